//! The mean wait of several servers by a formula.

use crate::queue;

/// Mean waiting time in seconds of M/G/m; infinite at saturation. Exact for one server and for
/// exponential service.
///
/// Linear in the SCV between the waits of M/D/m and M/M/m (and beyond 1 the same line). The wait of
/// M/D/m is Cosmetatos's approximation, E\[W\] = ½(1 + (1 − ρ)(m − 1)(√(4 + 5m) − 2)/(16ρm))·E\[W\]
/// of M/M/m: G. Cosmetatos, "Approximate explicit formulae for the average queueing time in the
/// processes (M/D/r) and (D/M/r)", INFOR 13 (1975). With an SCV of 4 to 9 it is up to a fifth too long, by the law's
/// tail: [`Class::waiting_mean`](super::Class) corrects it where the queue is solved. Cost: Erlang's C.
pub(super) fn waiting_mean(rate: f64, mean: f64, scv: f64, servers: u32) -> f64 {
    let c = f64::from(servers.max(1));
    let rho = rate * mean / c;
    if rho >= 1.0 {
        return f64::INFINITY;
    }
    if servers < 2 || rho <= 0.0 {
        return queue::waiting_mean(rate, mean, scv, 1);
    }
    let exponential = queue::waiting_mean(rate, mean, 1.0, servers);
    // Cosmetatos's term grows without bound as ρ → 0; with constant service requests wait no longer
    // than with exponential service.
    let more = (1.0 - rho) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * rho * c);
    let constant = (0.5 * (1.0 + more)).min(1.0);
    let share = constant + scv * (1.0 - constant);
    // A request that finds all servers busy waits at least for the first of m services to end.
    exponential * share.max(0.0)
}
