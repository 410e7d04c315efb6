//! The description of a load: all options of the command line as one value.

use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

use crate::client::{Access, Credentials, HttpSettings, Target, TargetError, Trust};
use record::clock;

/// Requests of a step whose times are recorded by default: more than a fit uses.
const TIMES: u64 = 200_000;

/// A complete description of a load. [`Plan::new`] sets the defaults.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The service: `http[s]://HOST:PORT[/PREFIX]`, or an http(s) URL with `{key}` in the place of
    /// the key; `s3://BUCKET[/PREFIX]?endpoint=http[s]://HOST:PORT`; `memcached://HOST:PORT`; `file:///PATH` of a
    /// folder, or of a block device or file.
    pub url: String,
    /// Write where the URL is `file://`: overwrite the block device or the file, or make and remove files in the folder. The
    /// caller has made sure that the folder is a load generator's.
    pub destroy: bool,
    /// Request the URL as it is, without a key.
    pub fixed: bool,
    /// The path before the key, if the URL has no path of its own.
    pub prefix: Option<String>,
    /// A bearer token. Never written to the run folder.
    #[serde(skip)]
    pub token: Option<String>,
    /// Headers, requests, names of the host, HTTP/2. For http(s):// and s3:// only.
    pub http: HttpSettings,
    /// Credentials for a bucket; requests are anonymous if `None`. Never written to the run folder.
    #[serde(skip)]
    pub credentials: Option<Credentials>,
    /// A PEM file of trusted root certificates; the system's roots if `None`.
    pub ca_file: Option<PathBuf>,
    /// Number of keys in a get; more than one for memcached only. With a trace, a row's key is then a
    /// list of at most this many keys, separated by spaces.
    pub multi_get: usize,
    /// When requests are sent.
    pub load: Load,
    /// Which keys, sizes and operations are requested.
    pub keys: Keys,
    /// The warm-up before each step, not counted in the step.
    pub warmup: Option<Length>,
    /// Requests/s of the warm-up; the step's rate if `None`. Open loops only.
    pub warmup_rate: Option<f64>,
    /// The length of each step. `None`: one pass through the trace's slice, or 30 s without a
    /// trace. Schedules have their own lengths.
    pub length: Option<Length>,
    /// Put every distinct key once before the first step, with this many clients.
    pub fill: Option<usize>,
    /// Cut ramp-up and cool-down off each step, so that only its steady part is recorded as the
    /// step.
    pub trim: bool,
    /// Compare the bytes of get replies with the generated [`crate::client::Body`].
    pub verify: bool,
    /// Generator threads; one suffices below about 50,000 requests/s.
    pub threads: usize,
    /// The most connections, over all threads.
    pub connections: usize,
    /// The most arrivals waiting for a connection, over all threads; further arrivals are dropped.
    pub backlog: usize,
    /// The timeout of a request; one that takes longer counts as an error.
    pub timeout_s: f64,
    /// Length of the recorded windows.
    pub window_s: f64,
    /// Response-time limits for which completions are counted exactly.
    pub objectives_ms: Vec<f64>,
    /// One key in this many is sampled; 0 disables sampling.
    pub sample_one_in: u64,
    /// Requests of each step, and of its warm-up, whose times are recorded, over all threads; 0 for
    /// none.
    pub times: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The run folder.
    pub out: PathBuf,
}

impl Plan {
    /// A plan with the defaults of the command line.
    pub fn new(url: &str, load: Load, keys: Keys, out: PathBuf) -> Plan {
        Plan {
            url: url.to_owned(),
            destroy: false,
            fixed: false,
            prefix: None,
            token: None,
            http: HttpSettings::default(),
            credentials: None,
            ca_file: None,
            multi_get: 1,
            load,
            keys,
            warmup: Some(Length::Seconds(5.0)),
            warmup_rate: None,
            length: None,
            fill: None,
            trim: false,
            verify: false,
            threads: 1,
            connections: 8192,
            backlog: 8192,
            timeout_s: 10.0,
            window_s: 1.0,
            objectives_ms: vec![20.0, 50.0, 100.0],
            sample_one_in: 64,
            times: TIMES,
            seed: 1,
            out,
        }
    }

    /// Where the keys are, for messages.
    pub fn place(&self) -> String {
        self.target().map_or_else(|_| self.url.clone(), |target| target.to_string())
    }

    /// Whether the URL is a folder or file whose file system has no transfers that bypass the page cache.
    pub fn is_cached(&self) -> bool {
        self.target().is_ok_and(|target| target.files().is_some_and(|files| !files.is_direct()))
    }

    /// How many bytes the block device or file has that is measured; `None` of what is neither.
    ///
    /// # Errors
    /// If it cannot be used.
    pub fn device_bytes(&self) -> Result<Option<u64>, TargetError> {
        Ok(self.target()?.files().and_then(|files| files.bytes()))
    }

    /// Parses the URL and resolves its host.
    pub(super) fn target(&self) -> Result<Target, TargetError> {
        let trust = self.ca_file.as_deref().map_or(Trust::System, Trust::File);
        let access = Access { token: self.token.as_deref(), trust, http: &self.http };
        match self.scheme() {
            "file" => return Target::local(&self.url, self.destroy, self.verify),
            "memcached" => return Target::memcached(&self.url, self.multi_get > 1),
            "s3" => {
                let unix_ns = i128::from(clock::now()) + clock::unix_offset_ns();
                let unix_s = (unix_ns / 1_000_000_000) as i64;
                return Target::s3(&self.url, self.credentials.as_ref(), unix_s, access);
            }
            _ => {}
        }
        // Of a listed request the URL is the whole address, unless it says where the key belongs.
        let listed = !self.http.requests.is_empty() && self.prefix.is_none();
        if self.fixed || listed && !self.url.contains("{key}") {
            return Target::fixed(&self.url, access);
        }
        Target::parse(&self.url, self.prefix.as_deref(), access)
    }

    /// The part of the URL before `://`.
    fn scheme(&self) -> &str {
        self.url.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Checks the plan and returns a message for each mistake; empty if there is none.
    pub fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |fine: bool, message: String| {
            if !fine {
                found.push(message);
            }
        };
        if self.load == Load::Nothing {
            check(
                self.fill.is_some(),
                "nothing to do: the plan has neither a load nor a fill".into(),
            );
        }
        if matches!(self.load, Load::Trace { .. }) {
            let trace = matches!(self.keys, Keys::Trace { .. });
            check(trace, "arrival times of a trace require keys of a trace".into());
        }
        check(
            !(self.fixed && (self.verify || self.fill.is_some())),
            "a fixed URL can be neither filled nor verified".into(),
        );
        self.protocol_mistakes(&mut check);
        self.http_mistakes(&mut check);
        let streams = if self.http.http2 { self.http.streams } else { 1 };
        self.load.mistakes(self.connections.saturating_mul(streams), &mut check);
        self.length_mistakes(&mut check);
        if let Some(r) = self.warmup_rate {
            check(rate(r), format!("warm-up rate {r}: above 0 expected"));
        }
        check(
            self.fill.is_none_or(|n| (1..=self.connections).contains(&n)),
            "number of fill clients: 1 to the number of connections expected".into(),
        );
        check(
            (1..=64).contains(&self.threads),
            format!("{} threads: 1 to 64 expected", self.threads),
        );
        check(
            self.connections >= self.threads && self.connections <= 1 << 20,
            format!(
                "{} connections: at least one per thread and at most 1,048,576 expected",
                self.connections
            ),
        );
        check(
            self.backlog <= 1 << 24,
            format!("backlog {}: at most 16,777,216 expected", self.backlog),
        );
        check(span(self.timeout_s), format!("timeout {} s: above 0 expected", self.timeout_s));
        check(
            (0.01..=3600.0).contains(&self.window_s),
            format!("window length {} s: 0.01 to 3600 expected", self.window_s),
        );
        for &t in &self.objectives_ms {
            check(positive(t), format!("objective {t} ms: above 0 expected"));
        }
        check(self.objectives_ms.len() <= 64, "more than 64 objectives given".into());
        self.keys.mistakes(&mut check);
        found
    }

    fn length_mistakes(&self, check: &mut impl FnMut(bool, String)) {
        for length in self.warmup.iter().chain(&self.length) {
            let fine = match length {
                Length::Seconds(s) => s.is_finite() && (0.0..=1e8).contains(s),
                Length::Requests(_) => true,
            };
            check(fine, format!("length {length:?}: 0 to 1e8 seconds expected"));
        }
        if let Some(Length::Seconds(s)) = self.length {
            check(s > 0.0, "step length 0 s: above 0 expected".into());
        }
        check(
            self.length != Some(Length::Requests(0)),
            "step length 0 requests: at least 1 expected".into(),
        );
    }

    /// Checks headers, requests and HTTP/2.
    fn http_mistakes(&self, check: &mut impl FnMut(bool, String)) {
        let (http, scheme) = (&self.http, self.scheme());
        for mistake in http.mistakes() {
            check(false, mistake);
        }
        let message =
            "headers, requests, --host, --sni and HTTP/2 are for http(s):// and s3:// only";
        check(!matches!(scheme, "memcached" | "file") || !http.is_used(), message.into());
        if http.server_name.is_some() {
            let tls = scheme == "https" || self.url.contains("endpoint=https://");
            check(tls, "a server name (--sni) is for TLS: write https://".into());
        }
        let twice = self.token.is_some() && http.headers.iter().any(|h| h.name == "authorization");
        check(!twice, "a bearer token and a header `authorization` exclude each other".into());
        if http.requests.is_empty() {
            return;
        }
        check(
            scheme != "s3",
            "an S3 store takes no listed requests: their signatures differ".into(),
        );
        let message = "requests of a list, a method or a body cannot be filled or verified: --fill and \
                       --verify store and compare generated objects of keys";
        check(self.fill.is_none() && !self.verify, message.into());
        let reads = !matches!(&self.keys, Keys::Synthetic { read_share, .. } if *read_share < 1.0);
        check(reads, "a share of reads and a list of requests exclude each other".into());
    }

    /// Checks the options that only one of the protocols has.
    fn protocol_mistakes(&self, check: &mut impl FnMut(bool, String)) {
        let scheme = self.scheme();
        if matches!(scheme, "memcached" | "s3" | "file") {
            let http = self.fixed || self.prefix.is_some() || self.token.is_some();
            let message = "a fixed URL, a prefix and a bearer token are for http:// only; write a \
                         key prefix as s3://BUCKET/PREFIX, or in the key format";
            check(!http, message.into());
        }
        let s3 = scheme == "s3" || self.credentials.is_none();
        check(s3, "credentials are for s3:// only; http:// takes a bearer token".into());
        let generated = match &self.keys {
            Keys::Synthetic { format, count, .. } => Some((format, count)),
            Keys::Trace { .. } => None,
        };
        check(
            self.multi_get == 1 || scheme == "memcached",
            "gets of several keys require memcached://".into(),
        );
        check(
            (1..=MULTI_GET_MAX).contains(&self.multi_get),
            format!("{} keys per get: 1 to {MULTI_GET_MAX} expected", self.multi_get),
        );
        if let (Some((format, count)), "memcached") = (generated, scheme) {
            let longest = format.replacen("{i}", &(count.max(&1) - 1).to_string(), 1);
            let plain = longest.bytes().all(|b| b.is_ascii_graphic());
            let message =
                format!("key `{longest}`: memcached keys have 1 to 250 printable ASCII characters");
            check(plain && longest.len() <= 250, message);
        }
    }
}

/// The most keys in one get.
const MULTI_GET_MAX: usize = 1000;

/// When requests are sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// No requests besides the fill.
    Nothing,
    /// At times independent of the replies; one step for each rate (requests/s).
    Open {
        /// The rates of the sweep.
        rates: Vec<f64>,
        /// How arrivals follow each other.
        arrivals: Arrivals,
    },
    /// At the scaled times of a trace; one step for each speed.
    Trace {
        /// The speeds of the sweep.
        speeds: Vec<Speed>,
    },
    /// At consecutive rates without a pause; one step for each segment.
    Schedule {
        /// Pairs of rate (requests/s) and duration (s).
        segments: Vec<(f64, f64)>,
        /// How arrivals follow each other.
        arrivals: Arrivals,
    },
    /// By clients that wait for each reply, then think; one step for each number of clients.
    Closed {
        /// The numbers of clients of the sweep.
        clients: Vec<usize>,
        /// Mean think time.
        think_ms: f64,
        /// How think times are distributed.
        think: Think,
    },
}

impl Load {
    fn mistakes(&self, connections: usize, check: &mut impl FnMut(bool, String)) {
        match self {
            Load::Nothing => {}
            Load::Open { rates, .. } => {
                check(!rates.is_empty(), "no rate is given".into());
                for &r in rates {
                    check(rate(r), format!("rate {r}: above 0 and at most 10,000,000 expected"));
                }
            }
            Load::Trace { speeds } => {
                check(!speeds.is_empty(), "no speed is given".into());
                for &speed in speeds {
                    let (Speed::Factor(x) | Speed::Rate(x)) = speed;
                    check(rate(x), format!("speed {x}: above 0 expected"));
                }
            }
            Load::Schedule { segments, .. } => {
                check(!segments.is_empty(), "the schedule is empty".into());
                for &(r, s) in segments {
                    let message = format!("{r}:{s}s: a rate and a time above 0 expected");
                    check(rate(r) && span(s), message);
                }
            }
            Load::Closed { clients, think_ms, .. } => {
                check(!clients.is_empty(), "no number of clients is given".into());
                for &n in clients {
                    let message =
                        format!("{n} clients: 1 to {connections} (the connections) expected");
                    check((1..=connections).contains(&n), message);
                }
                let fine = think_ms.is_finite() && *think_ms >= 0.0;
                check(fine, format!("think time {think_ms} ms: 0 or more expected"));
            }
        }
    }
}

fn positive(x: f64) -> bool {
    x.is_finite() && x > 0.0
}

/// Whether `r` is a valid rate in requests/s.
fn rate(r: f64) -> bool {
    positive(r) && r <= 1e7
}

/// Whether `s` is a valid duration in seconds.
fn span(s: f64) -> bool {
    positive(s) && s <= 1e8
}

/// How the arrivals of an open loop follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrivals {
    /// Exponential gaps.
    Poisson,
    /// Equal gaps.
    Constant,
}

/// How think times are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Think {
    /// Exponential.
    Exponential,
    /// Always the mean.
    Constant,
}

/// The replay speed of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// A multiple of the recorded speed.
    Factor(f64),
    /// The speed at which the slice's mean rate is this many requests/s.
    Rate(f64),
}

/// The length of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// For a time.
    Seconds(f64),
    /// For a number of requests.
    Requests(u64),
}

/// The keys, sizes and operations of requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// Numbered keys, drawn at random.
    Synthetic {
        /// The relative frequency of each key.
        popularity: Popularity,
        /// The number of keys.
        count: u64,
        /// The sizes of the objects.
        size: Size,
        /// The text of a key; `{i}` is replaced by its number.
        format: String,
        /// The share of gets; the rest are puts.
        read_share: f64,
    },
    /// The keys, sizes and operations of a trace, in order, repeated from the start when it ends.
    Trace {
        /// A file in the format of [`record::trace`].
        file: PathBuf,
        /// The rows to measure, counted from 0; all if `None`.
        slice: Option<Range<u64>>,
        /// The rows of the warm-up; the measured rows if `None`.
        warmup_slice: Option<Range<u64>>,
        /// The size of objects whose size is missing from the trace.
        size: Size,
        /// Skip malformed lines and count them.
        skip_broken: bool,
        /// The resolution of the time stamps; derived from them if `None`.
        resolution_ms: Option<f64>,
    },
}

impl Keys {
    fn mistakes(&self, check: &mut impl FnMut(bool, String)) {
        let (Keys::Synthetic { size, .. } | Keys::Trace { size, .. }) = self;
        check(
            size.min <= size.max && size.max <= 1 << 34,
            format!(
                "sizes {} to {} bytes: ascending and at most 16 GiB expected",
                size.min, size.max
            ),
        );
        match self {
            Keys::Synthetic { popularity, count, format, read_share, .. } => {
                check((1..=1 << 40).contains(count), format!("{count} keys: 1 to 2^40 expected"));
                check(format.contains("{i}"), format!("key format `{format}`: {{i}} is missing"));
                check(format.len() <= 1024, "the key format is longer than 1024 bytes".into());
                check(
                    (0.0..=1.0).contains(read_share),
                    format!("read share {read_share}: 0 to 1 expected"),
                );
                if let Popularity::Zipf(s) = popularity {
                    let fine = s.is_finite() && (0.0..=10.0).contains(s);
                    check(fine, format!("zipf:{s}: an exponent of 0 to 10 expected"));
                }
            }
            Keys::Trace { slice, warmup_slice, resolution_ms, .. } => {
                for slice in slice.iter().chain(warmup_slice) {
                    let message =
                        format!("rows {}..{}: the range is empty", slice.start, slice.end);
                    check(slice.start < slice.end, message);
                }
                if let Some(ms) = resolution_ms {
                    let fine = ms.is_finite() && (0.0..=1e9).contains(ms);
                    check(fine, format!("resolution {ms} ms: 0 to 1e9 expected"));
                }
            }
        }
    }
}

/// The relative frequency of keys.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    /// All keys are equally frequent.
    Uniform,
    /// The frequency of key `i` is proportional to `(i + 1)^-s`.
    Zipf(f64),
}

/// Object sizes: log-uniform between `min` and `max`, determined by the key; fixed if the two are
/// equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The smallest, bytes.
    pub min: u64,
    /// The largest, bytes.
    pub max: u64,
}

impl Size {
    /// A fixed size.
    pub fn fixed(bytes: u64) -> Size {
        Size { min: bytes, max: bytes }
    }

    /// The size of an object, given the hash of its key.
    pub fn for_key(&self, hash: u64) -> u64 {
        if self.min >= self.max {
            return self.min;
        }
        // The hash is mixed again because sampling selects keys by the hash itself: without this,
        // sampled keys would all have small objects.
        let u = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
        let (low, high) = ((self.min.max(1)) as f64, (self.max + 1) as f64);
        ((low * (high / low).powf(u)) as u64).clamp(self.min, self.max)
    }
}
