//! A node as a gateway sees it.

use std::collections::HashMap;

use ground::window::{Nanos, QueueName, Recorder};

use super::requests::IntegerHash;
use super::settings::Settings;
use crate::attempts::Endpoint;
use crate::route::Health;

/// A node as seen from here.
pub(super) struct Node {
    pub(super) health: Health,
    pub(super) endpoint: Endpoint,
    /// When the ping under way was sent.
    pub(super) pinged: Option<Nanos>,
    /// When the next ping is due.
    pub(super) ping_at: Nanos,
    /// The time after which a read is cancelled and sent to another node.
    pub(super) timeout: Nanos,
    /// How often it stopped answering.
    pub(super) failures: u64,
    /// The version of its directory of hot keys; 0 for none.
    pub(super) hot_version: u64,
    /// The number of hot nodes of each of its keys that has some.
    pub(super) hot: HashMap<u64, u8, IntegerHash>,
}

impl Node {
    pub(super) fn new(name: &str, settings: &Settings, now: Nanos) -> Node {
        let queue = QueueName::GatewayNode(name).to_string();
        let recorder = Recorder::new(&queue, 0, settings.windows.clone(), now);
        Node {
            health: Health::new(now),
            endpoint: Endpoint::new(Some(recorder), now),
            pinged: None,
            ping_at: now,
            timeout: settings.attempt_timeout_max,
            failures: 0,
            hot_version: 0,
            hot: HashMap::default(),
        }
    }

    /// When this node's next ping or ping timeout is due.
    pub(super) fn due(&self, settings: &Settings) -> Nanos {
        match self.pinged {
            Some(sent) => sent.saturating_add(settings.ping_timeout.saturating_mul(2)),
            None => self.ping_at,
        }
    }

    /// Notes that what was sent at `sent` failed.
    pub(super) fn fail(&mut self, now: Nanos, sent: Nanos, settings: &Settings) {
        let answered = self.health.answers();
        self.health.fail(now, sent, &settings.health);
        self.failures += u64::from(answered && !self.health.answers());
    }

    /// Sets its timeout by what its reads take.
    pub(super) fn update_timeout(&mut self, settings: &Settings) {
        if let Some(high) = self.endpoint.load.responses().quantile(0.99) {
            let timeout = (high as f64 * settings.attempt_timeout_factor) as Nanos;
            let most = settings.attempt_timeout_max;
            self.timeout = timeout.clamp(settings.attempt_timeout_min.min(most), most);
        }
    }
}
