//! The state and counters of pools and servers, for their operators.

use ground::window::Nanos;
use serde::{Deserialize, Serialize};

use super::state::{Counts, Pools};
use crate::route::health::State;

/// A server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its name.
    pub name: String,
    /// Its assumed state.
    pub state: State,
    /// The share of its normal load that it gets.
    pub share: f64,
    /// Whether it answered last.
    pub answers: bool,
    /// Whether it may have missed writes, so that it is emptied before it is read again.
    pub stale: bool,
    /// How often it failed again soon after it was taken back.
    pub relapses: u32,
    /// Attempts under way.
    pub outstanding: u32,
    /// Expected response time of a request sent now.
    pub expected_response_ms: f64,
    /// How often it was emptied.
    pub flushes: u64,
    /// Why it does not answer, if it does not.
    #[serde(default)]
    pub failure: Option<String>,
}

/// A pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Its name.
    pub name: String,
    /// The places of its servers in [`Status::servers`].
    #[serde(default)]
    pub servers: Vec<usize>,
    /// Requests in service.
    pub in_service: u32,
    /// Requests that wait for a worker.
    pub waiting: u32,
    /// Retries left in the budget.
    pub retries_left: u32,
    /// Hedges left in the budget.
    pub hedges_left: u32,
    /// How often its servers were emptied.
    pub flushes: u64,
    /// Counters since the start.
    pub counts: Counts,
}

/// All pools and servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The servers, in the order of the settings.
    pub servers: Vec<ServerStatus>,
    /// The pools, in the order of the settings.
    pub pools: Vec<PoolStatus>,
}

impl Pools {
    /// The state and counters of all servers and pools.
    pub fn status(&self, now: Nanos) -> Status {
        let servers = (0..self.servers.len()).map(|at| self.server_status(now, at)).collect();
        let pools = self.pools.iter().map(|pool| PoolStatus {
            name: pool.settings.name.clone(),
            servers: pool.settings.servers.clone(),
            in_service: pool.in_service,
            waiting: pool.waiting.len() as u32,
            retries_left: pool.further.retries_left(),
            hedges_left: pool.further.hedges_left(),
            flushes: pool.settings.servers.iter().map(|&at| self.servers[at].flushes).sum(),
            counts: Counts { attempts: pool.further.counts(), ..pool.counts.clone() },
        });
        Status { pools: pools.collect(), servers }
    }

    fn server_status(&self, now: Nanos, at: usize) -> ServerStatus {
        let server = &self.servers[at];
        let health = &self.settings.health;
        ServerStatus {
            name: server.name.clone(),
            state: server.health.state(now, health),
            share: server.health.share(now, health),
            answers: server.health.answers(),
            stale: server.stale,
            relapses: server.health.relapses(),
            outstanding: server.endpoint.load.outstanding(),
            expected_response_ms: server.endpoint.load.expected_s(now, 0.0) * 1e3,
            flushes: server.flushes,
            // Known to the driver.
            failure: None,
        }
    }
}
