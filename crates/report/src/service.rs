//! A service that is fitted from the clients' side alone: what is known of it, and what is found.

use model::Model;
use model::fit::{ClosedAt, ClosedLoop, ServersFound, Worked};

/// A service that was fitted from the clients' side alone.
#[derive(Clone, Debug)]
pub struct Service {
    /// The model.
    pub model: Model,
    /// The number of its servers.
    pub servers: ServersFound,
    /// The hypotheses that were looked at; `None` if times of single requests were not recorded, and
    /// the response times alone were fitted.
    pub worked: Option<Worked>,
}

/// What is known of a service beside its runs.
#[derive(Clone, Debug, Default)]
pub struct ServiceFacts {
    /// The number of requests that it serves concurrently.
    pub servers: Option<u32>,
    /// What a closed loop of enough clients carried.
    pub closed_loop: Option<ClosedLoop>,
    /// What closed loops of several numbers of clients carried.
    pub closed_loops: Vec<ClosedAt>,
    /// That no request passes the servers by, as hits of a cache do.
    pub no_hits: bool,
}
