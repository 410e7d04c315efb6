//! A gateway's settings.

use std::sync::Arc;

use ground::window::{self, Nanos, SECOND};
use serde::{Deserialize, Serialize};

use crate::act::concurrency;
use crate::route::{Hedge, Policy, Ring, health};

/// Which of a key's nodes may serve a read when all of them are healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spread {
    /// Only the first.
    Primary,
    /// The first, and those that have the object too according to the primary.
    #[default]
    Warm,
    /// Any.
    All,
}

/// A gateway's policies and limits. [`Settings::new`] has the defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Assigns keys to nodes.
    pub ring: Arc<Ring>,
    /// Chooses one of the nodes that may serve a read.
    pub policy: Policy,
    /// The nodes that may serve a read.
    pub spread: Spread,
    /// Hedges of slow reads; `None` for no hedges. With [`Spread::Primary`] there are none either,
    /// because only one node may serve a read.
    pub hedge: Option<Hedge>,
    /// Maximum number of retries (attempts after a request's first, not counting hedges), as a
    /// share of requests.
    pub retry_share: f64,
    /// Maximum burst of retries after a quiet time. When a node dies, each of its reads under way
    /// uses one; a read without one is refused.
    pub retry_burst: u32,
    /// Maximum number of requests under way, those being relayed included; further requests are
    /// refused. At most 1,048,576.
    pub requests_max: u32,
    /// How the bound of requests under way is found below that; `None` for `requests_max` alone.
    #[serde(default)]
    pub concurrency: Option<concurrency::Settings>,
    /// A read's attempt is replaced by one at another node after this multiple of the 0.99 quantile
    /// of the node's recent responses (pings detect a dead node sooner) …
    pub attempt_timeout_factor: f64,
    /// … but not earlier than this …
    pub attempt_timeout_min: Nanos,
    /// … and at the latest after this, if there is another node to try. So long a write waits for a primary that
    /// fell silent, where members are static.
    pub attempt_timeout_max: Nanos,
    /// Time between two pings of a node.
    pub ping_interval: Nanos,
    /// Time after which the driver sends [`super::Event::PingFailed`]. If the driver sends nothing,
    /// the gateway counts the ping as failed after twice this time.
    pub ping_timeout: Nanos,
    /// How failed nodes are taken back.
    pub health: health::Settings,
    /// Whether the gateway reads from the origin when no node can.
    pub origin: bool,
    /// Maximum number of concurrent reads from the origin; further requests are refused.
    pub origin_attempts_max: u32,
    /// Time between two attempts of a write that its node did not accept.
    pub write_retry: Nanos,
    /// How long after a change of the membership others may still act on the view before
    /// ([`crate::node::ClusterSettings::view_lag`]): so long a gateway waits for writes that are at a node
    /// that was lost. 0 in a static membership.
    #[serde(default)]
    pub view_lag: Nanos,
    /// Maximum number of keys for which the gateway remembers the nodes that have them (about 50
    /// bytes each).
    pub hints_max: usize,
    /// The seed of random choices.
    pub seed: u64,
    /// Whether a listener in front of the gateway records the queue of the clients' requests, with
    /// bytes and up to the end of each reply. If so, the gateway's own record is the queue
    /// `routing`, otherwise `gateway`.
    #[serde(default)]
    pub behind_listener: bool,
    /// Settings of the recorded windows.
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
            concurrency: None,
            attempt_timeout_factor: 4.0,
            attempt_timeout_min: SECOND / 10,
            attempt_timeout_max: 5 * SECOND,
            ping_interval: SECOND / 10,
            ping_timeout: SECOND / 4,
            health: health::Settings::default(),
            origin: true,
            origin_attempts_max: 64,
            write_retry: SECOND / 50,
            view_lag: 0,
            hints_max: 65_536,
            seed: 0,
            behind_listener: false,
            windows: window::Settings::default(),
        }
    }
}
