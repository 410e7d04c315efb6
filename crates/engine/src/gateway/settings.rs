//! A gateway's settings.

use std::sync::Arc;

use model::window::{self, Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::route::{Policy, Ring, health};

/// Which of a key's nodes a read may go to when all of them are well.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// The first alone.
    Primary,
    /// The first, and those that the primary says have the object too.
    #[default]
    Warm,
    /// Any.
    All,
}

/// When a read that is slow is tried on a second node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hedge {
    /// After what quantile of the node's recent responses.
    pub quantile: f64,
    /// But not earlier than this: below it a second try costs more than it saves.
    pub after_min: Nanos,
    /// How many, as a share of reads.
    pub share: f64,
    /// How many at once after a quiet time.
    pub burst: u32,
}

impl Default for Hedge {
    fn default() -> Self {
        Hedge { quantile: 0.95, after_min: SECOND / 500, share: 0.05, burst: 20 }
    }
}

/// How a gateway decides, and what bounds it. [`Settings::new`] has the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Where keys belong.
    pub ring: Arc<Ring>,
    /// Which of the nodes that may be asked is.
    pub policy: Policy,
    /// Which nodes may be asked.
    pub spread: Spread,
    /// Second tries of slow reads; `None`: none. There are none either where [`Spread::Primary`]
    /// says that only one node is to be asked.
    pub hedge: Option<Hedge>,
    /// Tries after a request's first, hedges apart, as a share of requests.
    pub retry_share: f64,
    /// How many of them at once after a quiet time. When a node dies, each of its reads in flight
    /// takes one; a read that finds none is refused.
    pub retry_burst: u32,
    /// Requests under way, those that are being relayed included; past it they are refused. At most
    /// 1,048,576.
    pub requests_max: u32,
    /// A read's try is given up for another after this many times the 0.99 quantile of the node's
    /// recent responses (a dead node is found by pings sooner) …
    pub attempt_timeout_factor: f64,
    /// … but not earlier than this …
    pub attempt_timeout_min: Nanos,
    /// … and at the latest after this, if there is another to be tried.
    pub attempt_timeout_max: Nanos,
    /// Time between two pings of a node.
    pub ping_interval: Nanos,
    /// After which the driver says [`super::Event::PingFailed`]. If it says nothing, the gateway
    /// takes it as said after twice as long.
    pub ping_timeout: Nanos,
    /// How nodes that failed are taken back.
    pub health: health::Settings,
    /// Whether the gateway reads from the origin when no node can.
    pub origin: bool,
    /// Reads from the origin at once; past it, requests are refused.
    pub origin_attempts_max: u32,
    /// Time between two tries of a write that its node did not take.
    pub write_retry: Nanos,
    /// Keys of which it is remembered which nodes have them (about 50 bytes each).
    pub hints_max: usize,
    /// Where random choices begin.
    pub seed: u64,
    /// Whether a listener before the gateway records the queue of the clients' requests, with bytes and up
    /// to the end of each reply. The gateway's own record of them is the queue `routing` then, and else
    /// `gateway`.
    #[serde(default)]
    pub behind_listener: bool,
    /// How windows are cut.
    #[serde(skip)]
    pub windows: window::Settings,
}

impl Settings {
    /// The defaults.
    pub fn new(ring: Arc<Ring>) -> Settings {
        Settings {
            ring,
            policy: Policy::default(),
            spread: Spread::default(),
            hedge: Some(Hedge::default()),
            retry_share: 0.1,
            retry_burst: 1000,
            requests_max: 10_000,
            attempt_timeout_factor: 4.0,
            attempt_timeout_min: SECOND / 10,
            attempt_timeout_max: 5 * SECOND,
            ping_interval: SECOND / 10,
            ping_timeout: SECOND / 4,
            health: health::Settings::default(),
            origin: true,
            origin_attempts_max: 64,
            write_retry: SECOND / 50,
            hints_max: 65_536,
            seed: 0,
            behind_listener: false,
            windows: window::Settings::default(),
        }
    }
}
