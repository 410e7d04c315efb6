//! What is fitted: steady intervals, and how.

use super::work::times::Times;
use crate::model_file::About;
use ground::window::Window;

/// The windows of one steady interval at one arrival rate.
///
/// The windows of a queue must not overlap: if several recorders recorded the same seconds of one
/// queue, merge their windows first ([`Window::merge`] with `parallel`).
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// Its name, for messages.
    pub name: String,
    /// Windows of the load generator: preferred for the client side.
    pub load: Vec<Window>,
    /// Windows of the gateway: used for the client side if `load` has none.
    pub gateway: Vec<Window>,
    /// Windows of the node; their `joined` counts the reads that were joined to others.
    pub node: Vec<Window>,
    /// Windows of each device queue.
    pub devices: Vec<Vec<Window>>,
    /// When each request came and was answered, if that was recorded; for [`work()`](super::work()).
    pub times: Option<Times>,
}

/// Options of a fit.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Provenance, copied into the model.
    pub about: About,
    /// Length of the blocks that are resampled, seconds; shortened until a step has at least 8.
    pub block_s: f64,
    /// Number of resamplings; 0 for a model without intervals.
    pub replicates: usize,
    /// Seed of the resampling: the same windows and seed give the same model.
    pub seed: u64,
    /// What a closed loop of enough clients carried, if that was measured; for [`work()`](super::work()).
    pub closed_loop: Option<ClosedLoop>,
    /// Whether it is known that no request passes the servers by, as a hit of a cache does; for [`work()`](super::work()).
    pub no_hits: bool,
    /// What closed loops of several numbers of clients carried, if that was measured: for services that carry less with more
    /// clients; for [`work()`](super::work()).
    pub closed_loops: Vec<ClosedAt>,
}

/// What a closed loop carried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedAt {
    /// Clients.
    pub clients: u32,
    /// Seconds that each waits before it asks again.
    pub think_s: f64,
    /// Requests/s.
    pub throughput: f64,
}

/// The throughput of a closed loop that more clients do not raise: the servers are always busy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClosedLoop {
    /// Requests/s.
    pub throughput: f64,
    /// Its standard deviation as a share of it, that from run to run included.
    pub deviation: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            about: About::default(),
            block_s: 5.0,
            replicates: 60,
            seed: 1,
            closed_loop: None,
            no_hits: false,
            closed_loops: Vec::new(),
        }
    }
}
