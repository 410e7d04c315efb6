//! The sections of the configuration: their fields, defaults and explanations.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::Size;
use super::cluster::Role;
use super::field::Visitor;

/// `[serve]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Serve {
    /// What the process is.
    pub role: Role,
    /// Address to listen on; port 0 lets the kernel choose.
    pub listen: String,
    /// Threads that serve connections; 0 means one for each core.
    pub threads: u32,
    /// What clients must present as `Authorization: Bearer`.
    pub token: Option<String>,
    /// Connections at once.
    pub connections_max: u32,
    /// Connections at once of one address; 0: chosen by [`Serve::connections_of_one`].
    pub connections_per_address_max: u32,
    /// Host names, comma-separated, that requests may name where there is no token.
    pub hosts: String,
    /// Longest head of a request.
    pub header_bytes_max: Size,
    /// How long a silent connection is kept.
    pub idle_s: f64,
    /// How long a client is waited for before the rate of its bytes is judged.
    pub stall_s: f64,
    /// Least bytes per second of a body that waits for its client.
    pub rate_bytes_min: Size,
    /// How long requests in flight may take to end when the process is told to stop.
    pub drain_s: f64,
    /// Bytes of uploads held in memory for the tiers.
    pub uploads_bytes_max: Size,
}

/// `[node]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Budget of the memory tier.
    pub memory_bytes: Size,
    /// Largest object that the tiers keep.
    pub object_bytes_max: Size,
    /// How long a kept object is served without asking the origin.
    pub revalidate_s: f64,
    /// How much longer, while the origin cannot be had.
    pub stale_if_error_s: f64,
    /// Bytes on their way to devices.
    pub appends_bytes_max: Size,
    /// Writes that wait for their turn.
    pub writes_waiting_max: u32,
}

/// `[[device]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its folder.
    pub path: PathBuf,
    /// How many devices of this kind there are.
    pub count: u32,
    /// Byte budget of each.
    pub bytes: Size,
    /// `hot` or `bulk`.
    pub class: Class,
    /// Longest queue.
    pub queue_length_max: u32,
    /// Reads at once.
    pub parallel: u32,
    /// Bytes of a segment; 0: chosen from `bytes`.
    pub segment_bytes: Size,
    /// The laboratory profile.
    pub service: Option<Service>,
}

/// Class of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Holds the hot class.
    Hot,
    /// Holds everything else.
    Bulk,
}

/// `service` of a device: the laboratory profile that holds each read for a drawn time.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Shape of the distribution.
    pub kind: Kind,
    /// Mean, milliseconds.
    pub mean_ms: f64,
    /// Squared coefficient of variation, for `gamma` and `lognormal`.
    pub scv: f64,
    /// Times in milliseconds, one a line, for `empirical`.
    pub file: Option<PathBuf>,
    /// Seed of the draws; device `i` of a group draws from `seed + i`.
    pub seed: u64,
}

/// Shape of a profile's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Exponential: SCV 1.
    Exponential,
    /// Gamma.
    Gamma,
    /// Lognormal.
    Lognormal,
    /// Drawn with replacement from a file.
    Empirical,
}

/// `[observe]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Observe {
    /// Run folder.
    pub run_dir: Option<PathBuf>,
    /// Length of a window.
    pub window_s: f64,
    /// Objectives at which responses are counted exactly.
    pub objectives_ms: Vec<f64>,
    /// One key in so many is sampled; 0: none.
    pub sample_one_in: u64,
    /// Whether the engine's events are recorded.
    pub events: bool,
}

const MIB: u64 = 1 << 20;

impl Default for Serve {
    fn default() -> Self {
        Serve {
            role: Role::All,
            listen: "127.0.0.1:7070".to_owned(),
            threads: 0,
            token: None,
            connections_max: 4096,
            connections_per_address_max: 0,
            hosts: String::new(),
            header_bytes_max: Size(64 << 10),
            idle_s: 60.0,
            stall_s: 30.0,
            rate_bytes_min: Size(1 << 10),
            drain_s: 10.0,
            uploads_bytes_max: Size(64 * MIB),
        }
    }
}

impl Default for Node {
    fn default() -> Self {
        Node {
            memory_bytes: Size(64 * MIB),
            object_bytes_max: Size(8 * MIB),
            revalidate_s: 60.0,
            stale_if_error_s: 3600.0,
            appends_bytes_max: Size(64 * MIB),
            writes_waiting_max: 1024,
        }
    }
}

impl Default for Device {
    fn default() -> Self {
        Device {
            path: PathBuf::from("concertina-data/device"),
            count: 1,
            bytes: Size(1024 * MIB),
            class: Class::Bulk,
            queue_length_max: 1024,
            parallel: 0,
            segment_bytes: Size(0),
            service: None,
        }
    }
}

impl Default for Service {
    fn default() -> Self {
        Service { kind: Kind::Exponential, mean_ms: 0.0, scv: 1.0, file: None, seed: 1 }
    }
}

impl Default for Observe {
    fn default() -> Self {
        Observe {
            run_dir: None,
            window_s: 1.0,
            objectives_ms: vec![20.0, 50.0, 100.0],
            sample_one_in: 64,
            events: false,
        }
    }
}

impl Serve {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "role",
            "What this process is: \"node\", \"gateway\", or \"all\": both, or without members a node \
            alone.",
            &mut self.role,
        );
        v.field(
            "listen",
            "Address and port of the gateway, or of a node alone. Port 0 lets the kernel choose. \
            Anything wider than loopback needs a token.",
            &mut self.listen,
        );
        v.field(
            "threads",
            "Threads that serve connections; 0: one for each core.",
            &mut self.threads,
        );
        v.field(
            "token",
            "If set, every request (but /healthz and /readyz) must carry \
            `Authorization: Bearer TOKEN`; the processes of a cluster send it to each other.",
            &mut self.token,
        );
        v.field(
            "connections_max",
            "Connections at once; more are answered 503 and closed.",
            &mut self.connections_max,
        );
        v.field(
            "connections_per_address_max",
            "Connections at once of one client's address; more are answered 503 and closed. 0: half of \
            connections_max, and all of them for loopback.",
            &mut self.connections_per_address_max,
        );
        v.field(
            "hosts",
            "Without a token, requests must name a loopback address, localhost, or one of these \
            comma-separated host names in `Host`, so that no web page can read or write here.",
            &mut self.hosts,
        );
        v.field(
            "header_bytes_max",
            "Longest head of a request, at least 8KiB; longer is answered 431.",
            &mut self.header_bytes_max,
        );
        v.field(
            "idle_s",
            "A connection that sends nothing for so long (between requests, in a head \
            or in a body) is closed.",
            &mut self.idle_s,
        );
        v.field(
            "stall_s",
            "A client that takes a reply, or sends a body, more slowly than rate_bytes_min over so \
            long is disconnected. Only time that is spent waiting for it counts.",
            &mut self.stall_s,
        );
        v.field("rate_bytes_min", "Least bytes per second; see stall_s.", &mut self.rate_bytes_min);
        v.field(
            "drain_s",
            "How long requests in flight may take to end after SIGINT or SIGTERM.",
            &mut self.drain_s,
        );
        v.field(
            "uploads_bytes_max",
            "Bytes of uploads under way that are held in memory to fill the \
            tiers; past it, uploads go to the origin alone.",
            &mut self.uploads_bytes_max,
        );
    }

    /// Connections at once of one address.
    pub fn connections_of_one(&self, address: IpAddr) -> u32 {
        match self.connections_per_address_max {
            0 if address.to_canonical().is_loopback() => self.connections_max,
            0 => self.connections_max.div_ceil(2),
            n => n,
        }
    }
}

impl Node {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field("memory_bytes", "Budget of the memory tier: object bytes.", &mut self.memory_bytes);
        v.field(
            "object_bytes_max",
            "Largest object that memory and devices keep; larger ones are \
            streamed from the origin.",
            &mut self.object_bytes_max,
        );
        v.field("revalidate_s", "An object is served from the tiers at most so long without asking \
            the origin whether it is still current: the bound on staleness after a write made behind \
            Concertina's back. Writes through Concertina are seen at once, whatever this is. 0: ask \
            once after a restart, and then believe that nobody else writes to the origin.",
            &mut self.revalidate_s);
        v.field(
            "stale_if_error_s",
            "While the origin cannot be had, objects whose revalidate_s has passed are served for so \
            much longer, unless a write through Concertina may have been missed. 0: they are answered \
            503 or 504.",
            &mut self.stale_if_error_s,
        );
        v.field(
            "appends_bytes_max",
            "Bytes on their way to the devices; past it, objects are not \
            written to a device until they are read again.",
            &mut self.appends_bytes_max,
        );
        v.field(
            "writes_waiting_max",
            "PUTs and DELETEs that wait for another of the same key; past \
            it they are answered 503.",
            &mut self.writes_waiting_max,
        );
    }
}

impl Device {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "path",
            "Folder of its segments; made if it is not there. With `count`, each device \
            has a folder 00, 01 ... in it.",
            &mut self.path,
        );
        v.field("count", "So many devices of this kind.", &mut self.count);
        v.field("bytes", "Byte budget of each device.", &mut self.bytes);
        v.field(
            "class",
            "\"bulk\" or \"hot\": the name under which its reads are recorded and fitted. What lies where \
             does not depend on it.",
            &mut self.class,
        );
        v.field(
            "queue_length_max",
            "Reads waiting and in service; past it they are answered 503.",
            &mut self.queue_length_max,
        );
        v.field(
            "parallel",
            "Reads at once; 0: 8, or 1 with a `service` profile, which is one server.",
            &mut self.parallel,
        );
        v.field(
            "segment_bytes",
            "Objects lie in segments of this size, and the oldest segment goes \
            first; 0: 1/16 of `bytes`, between 1MiB and 64MiB.",
            &mut self.segment_bytes,
        );
        v.field("service", "LABORATORY: hold each real read for a drawn time, as a disk would that \
            this machine does not have: { kind = \"exponential\" | \"gamma\" | \"lognormal\" | \
            \"empirical\", mean_ms = 10.0, scv = 1.0 (gamma, lognormal), file = \"times\" (empirical: \
            milliseconds, one a line), seed = 1 }. Named in every output.", &mut self.service);
    }

    /// Reads at once.
    pub fn servers(&self) -> u32 {
        match (self.parallel, &self.service) {
            (0, None) => 8,
            (0, Some(_)) => 1,
            (n, _) => n,
        }
    }

    /// Bytes of a segment.
    pub fn segment(&self) -> u64 {
        match self.segment_bytes.0 {
            0 => (self.bytes.0 / 16).clamp(MIB, 64 * MIB),
            n => n,
        }
    }

    /// The folders of its devices.
    pub fn folders(&self) -> Vec<PathBuf> {
        if self.count == 1 {
            return vec![self.path.clone()];
        }
        (0..self.count).map(|i| self.path.join(format!("{i:02}"))).collect()
    }
}

impl Service {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field("kind", "", &mut self.kind);
        v.field("mean_ms", "", &mut self.mean_ms);
        v.field("scv", "", &mut self.scv);
        v.field("file", "", &mut self.file);
        v.field("seed", "", &mut self.seed);
    }

    /// The profile in words: "an exponential time of mean 10.75 ms".
    pub fn in_words(&self) -> String {
        let mean = self.mean_ms;
        match self.kind {
            Kind::Exponential => format!("an exponential time of mean {mean} ms"),
            Kind::Gamma => format!("a gamma time of mean {mean} ms and SCV {}", self.scv),
            Kind::Lognormal => format!("a lognormal time of mean {mean} ms and SCV {}", self.scv),
            Kind::Empirical => {
                let file = self.file.as_deref().unwrap_or(Path::new("?")).display();
                format!("a time drawn from {file}")
            }
        }
    }
}

impl Observe {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "run_dir",
            "Run folder to be made (windows, samples, host each second); none if unset.",
            &mut self.run_dir,
        );
        v.field("window_s", "Length of a window.", &mut self.window_s);
        v.field(
            "objectives_ms",
            "Responses within these are counted exactly.",
            &mut self.objectives_ms,
        );
        v.field(
            "sample_one_in",
            "One key in so many is sampled, every request of it; 0: none.",
            &mut self.sample_one_in,
        );
        v.field(
            "events",
            "Record every event and action of the engine in the run folder, so that the \
            run can be replayed. For tests: it costs more than serving.",
            &mut self.events,
        );
    }
}
