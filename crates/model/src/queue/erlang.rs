//! Erlang's formulas: the probabilities that a request is refused, or waits.

use crate::error::{Error, check};

/// Largest number of servers of a formula that takes one step for each.
const SERVERS_MAX: f64 = 1e7;

/// Checks a number of servers.
pub(super) fn servers_count(servers: u32) -> Result<u32, Error> {
    check("the number of servers", f64::from(servers), 1.0..=SERVERS_MAX, "1 to 10,000,000")?;
    Ok(servers)
}

/// Erlang's B formula: the share of requests that find all `servers` busy and are refused, with
/// `offered` = arrival rate × mean service. It holds for any law of service (M/G/m/m).
///
/// Source: Erlang (1917); the recursion B(k) = a·B(k−1) / (k + a·B(k−1)), all of whose terms are
/// positive, so that it is exact to rounding for any number of servers. Cost: `servers` divisions.
/// 1 if `offered` is not a number; negative loads count as 0.
///
/// ```
/// use model::queue::erlang_b;
/// assert!((erlang_b(25, 20.0) - 0.050_221_777_890_794_6).abs() < 1e-15);
/// ```
pub fn erlang_b(servers: u32, offered: f64) -> f64 {
    if offered.is_nan() || offered > f64::MAX / 4.0 {
        return 1.0;
    }
    let offered = offered.max(0.0);
    let mut blocked = 1.0;
    for k in 1..=servers {
        blocked = offered * blocked / (f64::from(k) + offered * blocked);
    }
    blocked
}

/// Erlang's C formula: the probability that a request waits in M/M/c at utilisation `rho` of each
/// server.
///
/// C = B / (1 − ρ(1 − B)) with Erlang's B of the same load. Source: Erlang (1917). For exponential
/// service only: an SCV of 0.1 or 4 changes it by some points ([`crate::queue::Mgm`]). 1 at `rho`
/// ≥ 1. Cost: `servers` divisions.
///
/// ```
/// use model::queue::erlang_c;
/// assert!((erlang_c(128, 126.1 / 128.0) - 0.808_211_096_447_498).abs() < 1e-12);
/// ```
pub fn erlang_c(servers: u32, rho: f64) -> f64 {
    if rho.is_nan() || rho >= 1.0 {
        return 1.0;
    }
    let blocked = erlang_b(servers, rho.max(0.0) * f64::from(servers));
    blocked / (1.0 - rho * (1.0 - blocked))
}
