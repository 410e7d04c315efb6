//! Estimates δ, the time that gateway and network add, from the responses of the same requests at
//! the clients and at the nodes.

use crate::error::Error;
use crate::model_file::Parameter;
use crate::statistics::batch_means;
use ground::window::{Operation, Outcome, Window};

/// The windows of one steady interval, on both sides of the gateways. [`front_delay`] has an
/// example.
#[derive(Clone, Debug, Default)]
pub struct FrontStep {
    /// The step's name, for messages.
    pub name: String,
    /// Windows of the clients (`load`).
    pub client: Vec<Window>,
    /// Windows of every node's HTTP side.
    pub nodes: Vec<Vec<Window>>,
}

/// Number of batches of the interval.
const BATCHES: usize = 20;

/// Count and sum (s) of the responses that memory answered.
fn from_memory<'a>(windows: impl IntoIterator<Item = &'a Window>) -> (f64, f64) {
    let times = windows.into_iter().flat_map(|w| &w.times);
    let hits = times.filter(|t| t.operation == Operation::Get && t.outcome == Outcome::Memory);
    hits.fold((0.0, 0.0), |(n, sum), t| (n + t.response.count() as f64, sum + t.response.sum_s()))
}

/// δ with its 95 % interval: the mean response time of memory hits at the clients, less that at the
/// nodes, over all steps. It uses hits because they take so little time themselves that the
/// difference is accurate.
///
/// The result is a constant mean, whatever the load. That is sufficient for predictions at times
/// far above δ, where only the mean affects a distribution. The interval is computed from batches
/// of successive windows; both sides of a batch cover the same seconds.
///
/// δ = Σ nᵢ(c̄ᵢ − s̄ᵢ)/Σ nᵢ seconds over the steps, at least 0, with n the clients' hits, c̄ and s̄
/// the mean response times of hits at clients and nodes. The interval is that of the means of at
/// most 20 batches for each step ([`crate::statistics::batch_means`]). Source: ours; batch means
/// are in R. Jain, "The Art of Computer Systems Performance Analysis" (1991), section 25.5.
/// Assumptions: hits take the same way as all requests, and both sides recorded the same requests.
/// Wrong if larger replies take longer on the way (then hits must be as large as the others), at
/// times close to δ, where its variance matters, and if the gateways queue, because δ then grows
/// with the load. Cost: one pass over the windows for each batch.
///
/// # Errors
/// [`Error::NoSteps`]; [`Error::NoClientWindows`] if a step has no memory hits on one of the sides.
///
/// ```
/// use model::fit::{FrontStep, front_delay};
/// use ground::window::{Operation, Outcome, Window};
/// // Ten seconds of hits that take 0.9 ms at the clients, of which 0.5 ms at the node.
/// let side = |queue: &str, response_ns: u64| -> Vec<Window> {
///     let second = |at: u64| {
///         let mut window = Window::new(queue, at * 1_000_000, 0, &[]);
///         let hits = window.times_mut(Operation::Get, Outcome::Memory);
///         hits.response.record_many(response_ns, 100);
///         window
///     };
///     (0..10).map(second).collect()
/// };
/// let client = side("load", 900_000);
/// let nodes = vec![side("gateway", 500_000)];
/// let delay = front_delay(&[FrontStep { name: "one".to_owned(), client, nodes }])?;
/// assert!((delay.value - 0.0004).abs() < 1e-9 && delay.high - delay.low < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
pub fn front_delay(steps: &[FrontStep]) -> Result<Parameter, Error> {
    let mean = |(n, sum): (f64, f64)| if n > 0.0 { Some(sum / n) } else { None };
    let (mut total, mut weight, mut batches) = (0.0, 0.0, Vec::new());
    for step in steps {
        let missing = || Error::NoClientWindows { step: step.name.clone() };
        let client = from_memory(&step.client);
        let at_clients = mean(client).ok_or_else(missing)?;
        let at_nodes = mean(from_memory(step.nodes.iter().flatten())).ok_or_else(missing)?;
        total += client.0 * (at_clients - at_nodes);
        weight += client.0;
        let mut starts: Vec<u64> = step.client.iter().map(|w| w.start_unix_us).collect();
        starts.sort_unstable();
        let size = starts.len().div_ceil(BATCHES).max(1);
        for (i, batch) in starts.chunks_exact(size).enumerate() {
            let end = starts.get((i + 1) * size).copied().unwrap_or(u64::MAX);
            let inside = |w: &&Window| (batch[0]..end).contains(&w.start_unix_us);
            let client = mean(from_memory(step.client.iter().filter(inside)));
            let nodes = mean(from_memory(step.nodes.iter().flatten().filter(inside)));
            batches.extend(client.zip(nodes).map(|(client, node)| client - node));
        }
    }
    if weight <= 0.0 {
        return Err(Error::NoSteps);
    }
    let value = (total / weight).max(0.0);
    // Too few batches for an interval: the lower bound is 0.
    let half = batch_means(&batches).map_or(value, |e| e.half_width);
    Ok(Parameter { value, low: (value - half).max(0.0), high: value + half, unit: "s".to_owned() })
}
