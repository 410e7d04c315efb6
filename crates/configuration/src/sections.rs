//! The sections of a single process: what listens, what is kept and where, what is recorded.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use engine::layers::SettingsError;
use engine::tier::Eviction;
use ground::window::Nanos;
use origin::{Checks, Secret, Size, section};
use serde::{Deserialize, Serialize};

use super::datasets::{Fill, Overload};
use super::role::Role;
use crate::token;

const MIB: u64 = 1 << 20;

section! {
    /// Connections of clients, and of the other processes of a cluster.
    pub struct Serve {
        /// The role of this process: "node", "gateway", "all" (both, or only a node if there are no
        /// members), or "proxy": a proxy for memcached's protocol.
        pub role: Role = Role::All,
        /// Address and port of the gateway, or of a node without members. With port 0 the kernel
        /// chooses the port. An address other than loopback needs a token.
        pub listen: String = "127.0.0.1:7070".to_owned(),
        /// Threads that serve connections; 0: one for each core.
        pub threads: u32 = 0,
        /// If set, every request (except /healthz and /readyz) must carry the header
        /// `Authorization: Bearer TOKEN`. The token, or "blake3:HASH" as `concertina keys token` prints it.
        /// Processes of a cluster show each other cluster.token. CONCERTINA_TOKEN of the environment
        /// sets it, too, unless a --set does.
        #[serde(skip_serializing)]
        pub token: Option<Secret> = None,
        /// File with the certificate, in PEM format, that clients of the gateway, of a node without members, and
        /// of S3's protocol are shown: their connections are encrypted by TLS. Read again when it changes.
        pub tls_certificate: Option<PathBuf> = None,
        /// File with the certificate's key, in PEM format, which only its owner may read.
        pub tls_key: Option<PathBuf> = None,
        /// Maximum open connections, fewer where the limit of open files is low (docs/operations.md). A further one takes
        /// the place of the one that has waited longest for a request; where none waits, it is answered 503 and closed.
        pub connections_max: u32 = 4096,
        /// Maximum open connections of one client's address; further ones are answered 503 and
        /// closed. 0: half of connections_max, and all of them for loopback.
        pub connections_per_address_max: u32 = 0,
        /// Requests per second of one client: of an address (of IPv6, of 64 bits of it), or of an access key
        /// of S3's. Past them it is answered 429, and S3's clients SlowDown. 0: no limit. Holds at
        /// gateways and at nodes without members.
        pub client_requests_per_s: f64 = 0.0,
        /// Bytes per second of one client, sent and received, of bodies only. A larger body is let through, and
        /// the client waits until it is paid. Uploads must say their length then. 0: no limit.
        pub client_bytes_per_s: Size = Size(0),
        /// Host names, separated by commas. Without a token, requests must name a loopback address,
        /// localhost, or one of these names in `Host`, so that no web page can read or write here.
        pub hosts: String = String::new(),
        /// Maximum bytes of a request's line and headers, at least 8KiB; longer ones are answered
        /// 431.
        pub header_bytes_max: Size = Size(64 << 10),
        /// A connection is closed after this many seconds without a byte from the client, whether
        /// between requests or within one.
        pub idle_s: f64 = 60.0,
        /// A client that takes a reply, or sends a body, more slowly than rate_bytes_min over this
        /// many seconds is disconnected. Only time spent waiting for the client counts.
        pub stall_s: f64 = 30.0,
        /// Least bytes per second of a reply or body; see stall_s.
        pub rate_bytes_min: Size = Size(1 << 10),
        /// Seconds that requests in progress have to finish after SIGINT or SIGTERM.
        pub drain_s: f64 = 10.0,
        /// Seconds that clients' connections stay open at the end: each one's next request is answered, with
        /// `Connection: close`. A part of drain_s, and at least half of it where another process gets the sockets after
        /// this one.
        pub linger_s: f64 = 0.0,
        /// Memory for the bytes of uploads in progress that will fill the tiers; when it is full,
        /// uploads go only to the origin. On a gateway: for those that it can send to another node.
        pub uploads_bytes_max: Size = Size(64 * MIB),
    }
}

section! {
    /// What a node keeps, and for how long without asking the origin.
    pub struct Node {
        /// Capacity of the memory tier in bytes of objects.
        pub memory_bytes: Size = Size(64 * MIB),
        /// One budget for objects in memory and layers of datasets alike: bytes move to where they save most time.
        /// memory_bytes is then what objects have at the start and when nobody reads them, and
        /// datasets.layers_bytes only says whether there are layers (above 0). At least memory_bytes.
        /// 0: each has its own bytes.
        pub memory_shared_bytes: Size = Size(0),
        /// Seconds between two decisions on memory_shared_bytes. Bytes move when they were worth it for ten of
        /// these, by at most 1/16 of the budget in each.
        pub memory_shared_interval_s: f64 = 1.0,
        /// Which objects leave memory first: "s3-fifo" (those that are not read again soon after
        /// they came) or "lru" (the least recently used).
        pub memory_eviction: Eviction = Eviction::S3Fifo,
        /// Size of the largest object that memory and devices keep; larger ones are streamed from
        /// the origin.
        pub object_bytes_max: Size = Size(8 * MIB),
        /// Seconds for which a kept object is served without asking the origin whether it is still
        /// current: the bound on staleness after a write to the origin that bypassed Concertina.
        /// Writes through Concertina are visible at once in any case. 0: ask once after a restart;
        /// only correct if nobody else writes to the origin.
        pub revalidate_s: f64 = 60.0,
        /// While the origin is unavailable, objects past revalidate_s are served for this many
        /// further seconds, unless a write through Concertina may have been missed. 0: they are
        /// answered 503 or 504.
        pub stale_if_error_s: f64 = 3600.0,
        /// Memory for objects that wait to be written to the devices, each with some 550 bytes of its own; when it is full, objects are
        /// written to a device only when they are read again.
        pub appends_bytes_max: Size = Size(64 * MIB),
        /// Maximum PUTs and DELETEs that wait for another write of the same key; further ones are
        /// answered 503.
        pub writes_waiting_max: u32 = 1024,
        /// Folder, created if missing, that remembers which origin the node serves, so that a restart while the origin is
        /// not there does not begin a new one. Folders of devices and of datasets' copies remember it too: set this where a
        /// node has neither, or only block devices.
        pub state_path: Option<PathBuf> = None,
    }
}

section! {
    /// Devices that hold objects beside memory. Repeat the section for devices of another kind.
    pub struct Device {
        /// Folder for the device's segments, created if missing; or a block device, or a file, that
        /// `concertina device format` has prepared, which is then used without a file system. If
        /// count is above 1, each device is a folder, or a link to a device, 00, 01 ... in it.
        pub path: PathBuf = "concertina-data/device".into(),
        /// Number of devices of this kind.
        pub count: u32 = 1,
        /// Capacity of each device.
        pub bytes: Size = Size(1024 * MIB),
        /// "bulk" or "hot". If there are devices of both, hot ones hold second copies of the objects
        /// for which that saves the most time; see [tiers]. Of one class alone, all hold objects in
        /// the same way.
        pub class: Class = Class::Bulk,
        /// Maximum reads waiting or in service; further ones are answered 503.
        pub queue_length_max: u32 = 1024,
        /// Concurrent reads. 0: 8, or 1 with a service profile, which is a single server.
        pub parallel: u32 = 0,
        /// "fixed", or "auto": begins with `parallel` and finds the fewest concurrent reads, up to 64,
        /// with which the device reads nearly as much in a second as with any number.
        pub depth: Depth = Depth::Fixed,
        /// Size of the segments that hold the objects; the oldest segment is reclaimed first. 0:
        /// 1/16 of bytes, at least 1MiB and at most 64MiB, or 1/1024 of bytes if that is more; of a
        /// block device, as it is formatted.
        pub segment_bytes: Size = Size(0),
        /// Larger records are read in pieces of so many bytes, with other reads between two pieces: a
        /// reply begins when the first piece has been verified, and a range of an object is read
        /// without the rest (docs/operations.md). At least 64KiB. 0: records are read at once.
        pub piece_bytes: Size = Size(0),
        /// Seconds in which every stored record is read once in the background and verified; what is
        /// damaged is dropped and fetched again. So at most bytes / scrub_s are read in a second. 0:
        /// never.
        pub scrub_s: f64 = 604800.0,
        /// EMULATED: hold each real read for a random time, to imitate a disk that this machine
        /// does not have: { kind = "exponential" | "gamma" | "lognormal" | "empirical", mean_ms =
        /// 10.0, scv = 1.0 (gamma, lognormal), file = "times" (empirical: milliseconds, one a
        /// line), bytes_per_s = "0" (in addition, for each read's bytes), seed = 1 }. Every
        /// output names the profile.
        pub service: Option<Service> = None,
    }
}

/// How the number of concurrent reads of a device is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Depth {
    /// As configured.
    Fixed,
    /// By measurement.
    Auto,
}

/// Class of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Holds the hot class.
    Hot,
    /// Holds everything else.
    Bulk,
}

section! {
    /// The emulation profile of a device: the distribution of the time for which each read is
    /// held.
    pub struct Service {
        /// Shape of the distribution.
        pub kind: Kind = Kind::Exponential,
        /// Mean, milliseconds.
        pub mean_ms: f64 = 0.0,
        /// Squared coefficient of variation, for `gamma` and `lognormal`.
        pub scv: f64 = 1.0,
        /// File of times in milliseconds, one a line, for `empirical`.
        pub file: Option<PathBuf> = None,
        /// Bytes that it reads in a second, after that time; 0: sizes take no time.
        pub bytes_per_s: Size = Size(0),
        /// Seed of the random numbers; device `i` of a group uses `seed + i`.
        pub seed: u64 = 1,
    }
}

/// Shape of a profile's distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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

section! {
    /// Datasets of records, served from the origin.
    pub struct Datasets {
        /// Folder for local copies of the shards that this node serves; created if missing. It is for
        /// nothing else: one with other things in it is refused. It can be deleted: missing copies are
        /// fetched from the origin again. Unset: no datasets are served.
        pub path: Option<PathBuf> = None,
        /// Seconds between checks of the origin for new datasets and for records that other
        /// processes appended: the time within which every process sees them.
        pub refresh_s: f64 = 2.0,
        /// Maximum requests waiting or in service at one shard; see overload.
        pub queue_length_max: u32 = 1000,
        /// What happens to requests past queue_length_max: "shed", they are answered 503 at once, or
        /// "block", their clients wait.
        pub overload: Overload = Overload::Shed,
        /// Maximum bytes of records that one query reads of a shard, where no index helps (NOT, a range of
        /// numbers): a page ends there and can be continued, a count is refused with status 413.
        pub query_read_bytes_max: Size = Size(256 * MIB),
        /// Memory for the layers of all shards, which make shards under load faster. 0: no layers.
        pub layers_bytes: Size = Size(256 * MIB),
        /// Seconds between two measurements of the queue lengths.
        pub layers_interval_s: f64 = engine::layers::Settings::default().interval as f64 / 1e9,
        /// Weight of the newest measurement in the moving average of a queue's length.
        pub layers_smoothing: f64 = engine::layers::Settings::default().smoothing,
        /// Average queue length above which a shard gets its next layer.
        pub layers_high: f64 = engine::layers::Settings::default().high,
        /// Average queue length below which a shard drops its lowest layer.
        pub layers_low: f64 = engine::layers::Settings::default().low,
        /// What computes the values of a layer: "queries", which keep what they compute anyway (it costs
        /// nothing, and only what is asked for becomes fast), "sweep", a thread of low priority, or "both":
        /// queries at once, and the thread the rest where a processor is idle.
        pub layers_fill: Fill = Fill::Both,
    }
}

section! {
    /// What is recorded.
    pub struct Observe {
        /// Run folder to create (windows, samples, and the state of the host each second). If it holds a run, `serve` records in the
        /// first of NAME-2, NAME-3 and so on that holds none: every start begins another. A run takes 0.2 to 2 GB a day, and nothing
        /// removes it. Unset: nothing is recorded to disk.
        pub run_dir: Option<PathBuf> = None,
        /// Length of a window in seconds.
        pub window_s: f64 = 1.0,
        /// Response times in milliseconds; the responses within each of them are counted exactly.
        pub objectives_ms: Vec<f64> = vec![20.0, 50.0, 100.0],
        /// One key in this many is sampled, with every request for it. 0: no samples.
        pub sample_one_in: u64 = 64,
        /// Record every event and action of the engine in the run folder, so that the run can be
        /// replayed. For tests only: recording costs more than serving.
        pub events: bool = false,
    }
}

impl Serve {
    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        match self.listen.parse::<std::net::SocketAddr>() {
            Err(_) => checks.must(false, "listen", not_an_address(&self.listen)),
            Ok(address) => checks.must(
                address.ip().is_loopback() || self.token.is_some(),
                "listen",
                format!(
                    "{address} is reachable from outside; set serve.token, or listen on 127.0.0.1"
                ),
            ),
        }
        let token = self.token.as_ref().map(Secret::expose);
        checks.must(token != Some(""), "token", "is empty; leave it out or set it");
        checks.must(
            token.is_none_or(|token| token.trim() == token && !token.contains(char::is_control)),
            "token",
            "has a line break, or a blank at an end: no header `Authorization: Bearer TOKEN` can have it",
        );
        checks.must(
            token.is_none_or(|token| token::hash_of(token).is_some()),
            "token",
            "begins with blake3: and is not a hash as `concertina keys token` prints it",
        );
        checks.must(
            self.tls_certificate.is_some() == self.tls_key.is_some(),
            "tls_key",
            "a certificate and its key go together: set both tls_certificate and tls_key",
        );
        checks.at_least("connections_max", self.connections_max, 1);
        checks.between("client_requests_per_s", self.client_requests_per_s, 0.0, 1e9);
        checks.between("threads", self.threads, 0, 1024);
        checks.between("header_bytes_max", self.header_bytes_max, Size(8 << 10), Size(16 * MIB));
        checks.between("idle_s", self.idle_s, 0.01, 1e6);
        checks.between("stall_s", self.stall_s, 0.01, 1e6);
        checks.between("drain_s", self.drain_s, 0.0, 1e6);
        checks.between("linger_s", self.linger_s, 0.0, self.drain_s);
    }

    /// Maximum open connections of one address, where `of_all` is that of all.
    pub fn connections_of_one(&self, address: IpAddr, of_all: usize) -> u32 {
        let of_all = u32::try_from(of_all).unwrap_or(u32::MAX);
        match self.connections_per_address_max {
            0 if address.to_canonical().is_loopback() => of_all,
            0 => of_all.div_ceil(2),
            n => n,
        }
    }
}

/// The mistake of an address that cannot be read.
pub fn not_an_address(text: &str) -> String {
    format!("{text:?} is not an address and port; write it as \"127.0.0.1:7070\"")
}

impl Node {
    /// The settings of the budget that objects and layers share; `None` if each has its own.
    pub fn shared(&self) -> Option<engine::budget::Settings> {
        let interval = (self.memory_shared_interval_s * 1e9) as Nanos;
        (self.memory_shared_bytes.0 > 0).then(|| engine::budget::Settings {
            bytes_max: self.memory_shared_bytes.0,
            objects_least: self.memory_bytes.0,
            interval,
            settle: 10 * interval,
            idle: 600 * interval,
            ..Default::default()
        })
    }

    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        checks.between("memory_shared_interval_s", self.memory_shared_interval_s, 0.01, 1e4);
        checks.must(
            self.memory_shared_bytes.0 == 0 || self.memory_shared_bytes.0 >= self.memory_bytes.0,
            "memory_shared_bytes",
            "must be 0, or at least memory_bytes, which objects have in any case",
        );
        checks.between("revalidate_s", self.revalidate_s, 0.0, 1e6);
        checks.between("stale_if_error_s", self.stale_if_error_s, 0.0, 1e6);
        checks.must(
            self.object_bytes_max.0 <= 1 << 30,
            "object_bytes_max",
            "must be at most 1GiB: an object is read into memory as a whole before it is kept",
        );
    }
}

/// Segments of the devices of a section: the index numbers those of all devices with 16 bits.
const SEGMENTS_MAX: u64 = 60_000;
/// Maximum number of concurrent reads that a device with `depth = "auto"` is tried with.
const DEPTH_MAX: u32 = 64;

/// Bytes of a segment of a device of so many bytes, if they are not configured.
pub fn segment_of(bytes: u64) -> u64 {
    let most = (64 * MIB).max(bytes / 1024).min((1 << 32) - 1);
    (bytes / 16).clamp(MIB, most)
}

impl Device {
    /// Concurrent reads.
    pub fn servers(&self) -> u32 {
        match (self.parallel, &self.service) {
            (0, None) => 8,
            (0, Some(_)) => 1,
            (n, _) => n,
        }
    }

    /// The largest number that is tried; 0 if the number is fixed.
    pub fn servers_max(&self) -> u32 {
        match self.depth {
            Depth::Fixed => 0,
            Depth::Auto => DEPTH_MAX.max(self.servers()),
        }
    }

    /// Bytes of a segment.
    pub fn segment(&self) -> u64 {
        match self.segment_bytes.0 {
            0 => segment_of(self.bytes.0),
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

    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        let segment = Size(self.segment());
        checks.between("count", self.count, 1, 4096);
        checks.between("parallel", self.servers(), 1, 1024);
        checks.at_least("queue_length_max", self.queue_length_max, 1);
        checks.between("segment_bytes", segment, Size(4096), Size((1 << 32) - 1));
        checks.between("scrub_s", self.scrub_s, 0.0, 1e9);
        checks.must(
            self.piece_bytes.0 == 0 || self.piece_bytes.0 >= engine::tier::BLOCK_BYTES,
            "piece_bytes",
            "must be 0, or at least 64KiB: a block is verified as a whole",
        );
        checks.must(
            u64::from(self.count).saturating_mul(self.bytes.0 / segment.0.max(1)) <= SEGMENTS_MAX,
            "segment_bytes",
            format!("makes more than {SEGMENTS_MAX} segments; increase it"),
        );
        checks.must(
            self.bytes.0 / 2 >= segment.0,
            "bytes",
            format!("must hold two segments of {segment}; increase it, or decrease segment_bytes"),
        );
        let Some(service) = &self.service else { return };
        checks.must(
            self.parallel <= 1,
            "parallel",
            "a device with a service profile is one server; leave parallel out",
        );
        checks.must(
            self.depth == Depth::Fixed,
            "depth",
            "a device with a service profile is one server; leave depth out",
        );
        service.check(checks.part("service"));
    }
}

impl Service {
    /// The profile in words: "an exponential time of mean 10.75 ms".
    pub fn in_words(&self) -> String {
        // A computed mean (2.9999999999999996) is not printed to its last bit.
        let mean = (self.mean_ms * 1e6).round() / 1e6;
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

    fn check(&self, mut checks: Checks<'_>) {
        let empirical = self.kind == Kind::Empirical;
        checks.between("mean_ms", self.mean_ms, 0.0, 1e6);
        checks.must(
            empirical || self.mean_ms != 0.0,
            "mean_ms",
            "must be above 0, in milliseconds",
        );
        checks.must(
            self.scv > 0.0 && self.scv <= 1e4,
            "scv",
            format!("must be above 0 and at most 10000, not {}", self.scv),
        );
        checks.must(
            self.kind != Kind::Exponential || self.scv == 1.0,
            "scv",
            "an exponential time has SCV 1; for another SCV set kind to gamma or lognormal",
        );
        checks.must(
            empirical == self.file.is_some(),
            "file",
            "kind = \"empirical\" needs a file of times, and the other kinds have none",
        );
    }
}

impl Datasets {
    /// The settings of the layer manager.
    pub fn layers(&self) -> engine::layers::Settings {
        engine::layers::Settings {
            interval: (self.layers_interval_s * 1e9) as Nanos,
            smoothing: self.layers_smoothing,
            high: self.layers_high,
            low: self.layers_low,
            budget_bytes: self.layers_bytes.0,
            ..Default::default()
        }
    }

    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        checks.between("refresh_s", self.refresh_s, 0.05, 1e6);
        checks.between("layers_interval_s", self.layers_interval_s, 0.001, 1e6);
        checks.at_least("queue_length_max", self.queue_length_max, 1);
        let Err(error) = self.layers().check() else { return };
        let what = match error {
            SettingsError::Settle { settle, least } => format!(
                "is too small: an average of queue lengths follows a change within layers_interval_s / layers_smoothing, which is {} s and \
                 must be at most {} s",
                least as f64 * 1e-9,
                settle as f64 * 1e-9
            ),
            _ => error.to_string(),
        };
        let key = match error {
            SettingsError::Marks { .. } | SettingsError::MarksTooNear { .. } => "layers_low",
            _ => "layers_smoothing",
        };
        checks.must(false, key, what);
    }
}

impl Observe {
    pub(crate) fn check(&self, mut checks: Checks<'_>) {
        checks.between("window_s", self.window_s, 0.01, 1e6);
        checks.must(
            self.objectives_ms.iter().all(|ms| ms.is_finite() && *ms > 0.0),
            "objectives_ms",
            "must all be above 0",
        );
        checks.must(
            !self.events || self.run_dir.is_some(),
            "events",
            "needs observe.run_dir, the folder for the events",
        );
    }
}
