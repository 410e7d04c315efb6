//! The law of the first end of several services.

use super::moments::integral;
use crate::distribution::{Empirical, Piece, ServiceTime};
use crate::error::Error;

/// The law of the first end of `servers` services, each with its residual time left: P(> t) = (∫ₜ(1
/// − F)/b)^m, in pieces with 1/200 of the probability each, and less in the tail.
pub(super) fn first_end(law: &dyn ServiceTime, servers: u32) -> Result<Empirical, Error> {
    let (mean, m) = (law.mean(), f64::from(servers));
    let above = |t: f64| (1.0 - law.cdf(t)).max(0.0);
    // The shares of residual times and of first ends beyond t.
    let (mut t, mut residual, mut left) = (0.0f64, 1.0f64, 1.0f64);
    let mut pieces = Vec::new();
    while left > 1e-9 && pieces.len() < 2_000 {
        let now = above(t);
        if now < 1e-12 {
            break;
        }
        // First ends come at the rate m(1 − F(t)) / (b·residual); the step contains a `share` of
        // them.
        let share = (left / 8.0).min(1.0 / 200.0);
        let step = share / left * mean * residual / (m * now);
        let spent = integral(&above, t, t + step, 1e-9 * mean / m);
        let next = (residual - spent / mean).max(0.0);
        let next_left = next.powf(m);
        if next_left >= left {
            break;
        }
        let (centre, half_width) = (t + 0.5 * step, 0.5 * step);
        pieces.push(Piece { centre, half_width, share: left - next_left });
        (t, residual, left) = (t + step, next, next_left);
    }
    Empirical::from_pieces(pieces)
}
