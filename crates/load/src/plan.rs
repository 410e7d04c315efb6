//! What a load is: everything that the command line says, as one value.

use std::ops::Range;
use std::path::PathBuf;

use serde::Serialize;

use crate::client::{Credentials, Target, TargetError, Trust};
use record::clock;

/// A load in full. [`Plan::new`] has the defaults.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// The service: `http[s]://HOST:PORT[/PREFIX]`, or with `{key}` where the key belongs;
    /// `s3://BUCKET[/PREFIX]?endpoint=http[s]://HOST:PORT`; `memcached://HOST:PORT`.
    pub url: String,
    /// Ask for the address as it is, without a key.
    pub fixed: bool,
    /// What precedes the key in the path, where the address has no path of its own.
    pub prefix: Option<String>,
    /// A bearer token; never written to the run folder.
    #[serde(skip)]
    pub token: Option<String>,
    /// Who asks a bucket; nobody in particular if `None`. Never written to the run folder.
    #[serde(skip)]
    pub credentials: Option<Credentials>,
    /// Certificates (PEM) that the service's must go back to; those of the system if `None`.
    pub ca_file: Option<PathBuf>,
    /// Keys of a get; more than one for memcached alone.
    pub multi_get: usize,
    /// When requests are sent.
    pub load: Load,
    /// What they ask for.
    pub keys: Keys,
    /// What precedes each step and is not counted in it.
    pub warmup: Option<Length>,
    /// Requests/s of the warm-up; that of the step if `None`. Open loops only.
    pub warmup_rate: Option<f64>,
    /// How long each step is. `None`: the slice of a trace once, else 30 s. Schedules have their own.
    pub length: Option<Length>,
    /// Put every distinct key once before the first step, with this many clients.
    pub fill: Option<usize>,
    /// Cut ramp-up and cool-down off each step: what is recorded as the step is its steady part.
    pub trim: bool,
    /// Compare the bytes of gets with those that [`crate::client::Body`] says.
    pub verify: bool,
    /// Threads that generate; one is right below some 50,000 requests/s.
    pub threads: usize,
    /// The most connections, over all threads.
    pub connections: usize,
    /// The most arrivals that wait for a connection, over all threads; more are dropped.
    pub backlog: usize,
    /// A request that takes longer than this is given up as an error.
    pub timeout_s: f64,
    /// Length of the recorded windows.
    pub window_s: f64,
    /// Response times at which completions are counted exactly.
    pub objectives_ms: Vec<f64>,
    /// One key in this many is sampled; 0: none.
    pub sample_one_in: u64,
    /// Where all random numbers come from.
    pub seed: u64,
    /// The run folder.
    pub out: PathBuf,
}

impl Plan {
    /// A plan with the defaults of the command line.
    pub fn new(url: &str, load: Load, keys: Keys, out: PathBuf) -> Plan {
        Plan {
            url: url.to_owned(),
            fixed: false,
            prefix: None,
            token: None,
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
            seed: 1,
            out,
        }
    }

    /// Where requests go.
    pub(super) fn target(&self) -> Result<Target, TargetError> {
        let token = self.token.as_deref();
        let trust = self.ca_file.as_deref().map_or(Trust::System, Trust::File);
        match self.scheme() {
            "memcached" => return Target::memcached(&self.url, self.multi_get > 1),
            "s3" => {
                let unix_ns = i128::from(clock::now()) + clock::unix_offset_ns();
                let unix_s = (unix_ns / 1_000_000_000) as i64;
                return Target::s3(&self.url, self.credentials.as_ref(), unix_s, trust);
            }
            _ => {}
        }
        if self.fixed {
            return Target::fixed(&self.url, token, trust);
        }
        Target::parse(&self.url, self.prefix.as_deref(), token, trust)
    }

    /// What precedes `://`.
    fn scheme(&self) -> &str {
        self.url.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// All that is wrong with the numbers, in words; empty if nothing is.
    pub fn mistakes(&self) -> Vec<String> {
        let mut found = Vec::new();
        let mut check = |fine: bool, words: String| {
            if !fine {
                found.push(words);
            }
        };
        if self.load == Load::Nothing {
            check(self.fill.is_some(), "nothing to do: no load, no fill".into());
        }
        if matches!(self.load, Load::Trace { .. }) {
            let trace = matches!(self.keys, Keys::Trace { .. });
            check(trace, "the arrivals of a trace need a trace".into());
        }
        check(
            !(self.fixed && (self.verify || self.fill.is_some())),
            "one fixed address can be neither filled nor verified".into(),
        );
        self.protocol_mistakes(&mut check);
        self.load.mistakes(self.connections, &mut check);
        for length in self.warmup.iter().chain(&self.length) {
            let fine = match length {
                Length::Seconds(s) => s.is_finite() && (0.0..=1e8).contains(s),
                Length::Requests(_) => true,
            };
            check(fine, format!("a length of {length:?}: 0 to 1e8 seconds expected"));
        }
        if let Some(Length::Seconds(s)) = self.length {
            check(s > 0.0, "a step of no time".into());
        }
        check(self.length != Some(Length::Requests(0)), "a step of no requests".into());
        if let Some(r) = self.warmup_rate {
            check(rate(r), format!("warm-up rate {r}: above 0 expected"));
        }
        check(
            self.fill.is_none_or(|n| (1..=self.connections).contains(&n)),
            "clients of the fill: 1 to the number of connections expected".into(),
        );
        check((1..=64).contains(&self.threads), format!("{} threads: 1 to 64", self.threads));
        check(
            self.connections >= self.threads && self.connections <= 1 << 20,
            format!("{} connections: one for each thread to 1,048,576", self.connections),
        );
        check(self.backlog <= 1 << 24, format!("a backlog of {}: too long", self.backlog));
        check(span(self.timeout_s), format!("a timeout of {} s: above 0 expected", self.timeout_s));
        check(
            (0.01..=3600.0).contains(&self.window_s),
            format!("windows of {} s: 0.01 to 3600 expected", self.window_s),
        );
        for &t in &self.objectives_ms {
            check(positive(t), format!("an objective of {t} ms: above 0 expected"));
        }
        check(self.objectives_ms.len() <= 64, "more than 64 objectives".into());
        self.keys.mistakes(&mut check);
        found
    }

    /// What one protocol has and others do not.
    fn protocol_mistakes(&self, check: &mut impl FnMut(bool, String)) {
        let scheme = self.scheme();
        if matches!(scheme, "memcached" | "s3") {
            let http = self.fixed || self.prefix.is_some() || self.token.is_some();
            let words = "a fixed address, a prefix and a bearer token are for http://: what precedes \
                         keys is in s3://BUCKET/PREFIX, or in the key format";
            check(!http, words.into());
        }
        let s3 = scheme == "s3" || self.credentials.is_none();
        check(s3, "credentials are for s3:// alone; http:// takes a bearer token".into());
        let generated = match &self.keys {
            Keys::Synthetic { format, count, .. } => Some((format, count)),
            Keys::Trace { .. } => None,
        };
        check(
            self.multi_get == 1 || (scheme == "memcached" && generated.is_some()),
            "gets of several keys are for memcached:// and generated keys".into(),
        );
        check(
            (1..=MULTI_GET_MAX).contains(&self.multi_get),
            format!("gets of {} keys: 1 to {MULTI_GET_MAX} expected", self.multi_get),
        );
        if let (Some((format, count)), "memcached") = (generated, scheme) {
            let longest = format.replacen("{i}", &(count.max(&1) - 1).to_string(), 1);
            let plain = longest.bytes().all(|b| b.is_ascii_graphic());
            let words =
                format!("keys like `{longest}`: memcached's are of 1 to 250 plain characters");
            check(plain && longest.len() <= 250, words);
        }
    }
}

/// The most keys of a get.
const MULTI_GET_MAX: usize = 1000;

/// When requests are sent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Load {
    /// Not at all: a fill alone.
    Nothing,
    /// At times that do not depend on the replies; a step for each rate (requests/s).
    Open {
        /// The rates of the sweep.
        rates: Vec<f64>,
        /// How arrivals follow each other.
        arrivals: Arrivals,
    },
    /// At the scaled times of a trace; a step for each speed.
    Trace {
        /// The speeds of the sweep.
        speeds: Vec<Speed>,
    },
    /// A rate after the other without a pause; a step for each segment of rate and seconds.
    Schedule {
        /// Rates in requests/s, and for how many seconds each.
        segments: Vec<(f64, f64)>,
        /// How arrivals follow each other.
        arrivals: Arrivals,
    },
    /// By clients that wait for their reply, then think; a step for each number of clients.
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
                    let words = format!("{r}:{s}s: a rate and a time above 0 expected");
                    check(rate(r) && span(s), words);
                }
            }
            Load::Closed { clients, think_ms, .. } => {
                check(!clients.is_empty(), "no number of clients is given".into());
                for &n in clients {
                    let words =
                        format!("{n} clients: 1 to {connections} (the connections) expected");
                    check((1..=connections).contains(&n), words);
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

/// Whether this is a rate, in requests/s.
fn rate(r: f64) -> bool {
    positive(r) && r <= 1e7
}

/// Whether this is a time that something takes, in seconds.
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

/// How fast the times of a trace go by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// This many times as fast as they were recorded.
    Factor(f64),
    /// So that the mean rate of the slice is this many requests/s.
    Rate(f64),
}

/// How long something goes on.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Length {
    /// For a time.
    Seconds(f64),
    /// For a number of requests.
    Requests(u64),
}

/// What requests ask for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Keys {
    /// Keys by number, drawn at random.
    Synthetic {
        /// How often each is asked for.
        popularity: Popularity,
        /// How many there are.
        count: u64,
        /// How large their objects are.
        size: Size,
        /// How a number becomes a key: `{i}` stands for it.
        format: String,
        /// Share of gets; the rest are puts.
        read_share: f64,
    },
    /// The keys, sizes and operations of a trace, in its order; from its start again when it ends.
    Trace {
        /// A file in the form of [`record::trace`].
        file: PathBuf,
        /// The rows that are measured, from 0; all of them if `None`.
        slice: Option<Range<u64>>,
        /// The rows of the warm-up; those that are measured if `None`.
        warmup_slice: Option<Range<u64>>,
        /// The size of objects whose size the trace does not say.
        size: Size,
        /// Count broken lines and pass over them.
        skip_broken: bool,
        /// The resolution of the time stamps; found out if `None`.
        resolution_ms: Option<f64>,
    },
}

impl Keys {
    fn mistakes(&self, check: &mut impl FnMut(bool, String)) {
        let (Keys::Synthetic { size, .. } | Keys::Trace { size, .. }) = self;
        check(
            size.min <= size.max && size.max <= 1 << 34,
            format!("sizes of {} to {} bytes: ascending, at most 16 GiB", size.min, size.max),
        );
        match self {
            Keys::Synthetic { popularity, count, format, read_share, .. } => {
                check(
                    (1..=1 << 40).contains(count),
                    format!("{count} keys: at least one expected"),
                );
                check(format.contains("{i}"), format!("key format `{format}`: {{i}} is missing"));
                check(format.len() <= 1024, "the key format is longer than 1024 bytes".into());
                check(
                    (0.0..=1.0).contains(read_share),
                    format!("a read share of {read_share}: 0 to 1 expected"),
                );
                if let Popularity::Zipf(s) = popularity {
                    let fine = s.is_finite() && (0.0..=10.0).contains(s);
                    check(fine, format!("zipf:{s}: an exponent of 0 to 10 expected"));
                }
            }
            Keys::Trace { slice, warmup_slice, resolution_ms, .. } => {
                for slice in slice.iter().chain(warmup_slice) {
                    let words = format!("rows {}..{}: none", slice.start, slice.end);
                    check(slice.start < slice.end, words);
                }
                if let Some(ms) = resolution_ms {
                    let fine = ms.is_finite() && (0.0..=1e9).contains(ms);
                    check(fine, format!("a resolution of {ms} ms: 0 to 1e9 expected"));
                }
            }
        }
    }
}

/// How often each key is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    /// All equally.
    Uniform,
    /// Key `i` in proportion to `(i + 1)^-s`.
    Zipf(f64),
}

/// How large objects are: log-uniform between the two, determined by the key; fixed if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// The smallest, bytes.
    pub min: u64,
    /// The largest, bytes.
    pub max: u64,
}

impl Size {
    /// Always this many bytes.
    pub fn fixed(bytes: u64) -> Size {
        Size { min: bytes, max: bytes }
    }

    /// The size of the object of a key, by the key's hash.
    pub fn of(&self, hash: u64) -> u64 {
        if self.min >= self.max {
            return self.min;
        }
        // A second scramble: the hash itself decides what is sampled, and samples must not be small.
        let u = (hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1u64 << 53) as f64;
        let (low, high) = ((self.min.max(1)) as f64, (self.max + 1) as f64);
        ((low * (high / low).powf(u)) as u64).clamp(self.min, self.max)
    }
}
