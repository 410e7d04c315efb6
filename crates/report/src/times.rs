//! The recorded times of a step's requests, for a fit.

use record::{RunFolder, Step};

/// What was under way this long before a step may have been met by its requests.
const LEAD_NS: u64 = 5_000_000_000;

/// The recorded times of a step and of what its requests may have met; `None` without any. Judged
/// are those that came within a window that was kept.
pub(super) fn times_of(
    load: &RunFolder,
    step: &Step,
    windows: &model::fit::Step,
) -> Option<model::fit::Times> {
    let queue = if load.times.iter().any(|t| t.queue == "load") { "load" } else { "gateway" };
    let client = if queue == "load" { &windows.load } else { &windows.gateway };
    let mut kept: Vec<(u64, u64)> = client
        .iter()
        .map(|w| (w.start_unix_us.saturating_mul(1_000), w.end_unix_us().saturating_mul(1_000)))
        .collect();
    kept.sort_unstable();
    let judged = |at: u64| {
        let after = kept.partition_point(|w| w.0 <= at);
        after.checked_sub(1).and_then(|i| kept.get(i)).is_some_and(|w| at < w.1)
    };
    let start = step.start_unix_us.saturating_mul(1_000);
    let (from, to) = (
        start.saturating_sub(LEAD_NS),
        step.end_unix_us.saturating_mul(1_000).saturating_add(LEAD_NS),
    );
    let mut all =
        model::fit::Times { open: step.clients.is_none(), ..model::fit::Times::default() };
    for times in load.times.iter().filter(|t| t.queue == queue) {
        all.clock_s = all.clock_s.max(times.clock_ns as f64 * 1e-9);
        all.is_timed_apart |= times.is_timed_apart;
        all.resolution_s = all.resolution_s.max(times.resolution_ns as f64 * 1e-9);
        for (((end, taken), bytes), key) in times.iter().zip(times.bytes()).zip(times.keys()) {
            let arrival = end.saturating_sub(taken);
            if end < from || arrival > to {
                continue;
            }
            let since = |at: u64| (i128::from(at) - i128::from(start)) as f64 * 1e-9;
            all.requests.push(model::fit::Request {
                arrival_s: since(arrival),
                departure_s: since(end),
                operation: times.operation,
                outcome: times.outcome,
                bytes,
                key,
                counted: judged(arrival),
            });
        }
    }
    (!all.requests.is_empty()).then_some(all)
}
