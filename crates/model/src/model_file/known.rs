//! The loads of which a model knows something although no hypothesis fits.

use super::parts::Parameter;
use crate::trust::HeldOut;

/// Beyond the fitted loads by less than this is the same load.
const SLACK: f64 = 1.01;

/// The loads of one server of which something is known. Where a hypothesis fits, all are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct KnownLoads {
    /// The heaviest fitted load, requests/s, where no hypothesis fits.
    fitted: Option<f64>,
    /// The heaviest load that was held out, requests/s; 0 without any.
    held_out: f64,
    /// The largest error on a held-out load, as a share of all requests.
    worst: f64,
}

impl KnownLoads {
    /// Of a model's heaviest fitted load, if no hypothesis fits, and its held-out loads, of a server that is `busier` times as busy as the
    /// fitted one at the same load: 1 at least, because a faster server was not seen at any load.
    pub(super) fn new(fitted: Option<f64>, held_out: &[HeldOut], busier: f64) -> KnownLoads {
        let error =
            |held: &HeldOut| held.error_points.abs() + held.half_width_points.unwrap_or(0.0);
        let worst = held_out.iter().map(error).fold(0.0, f64::max);
        KnownLoads {
            fitted: fitted.map(|rate| rate / busier),
            held_out: held_out.iter().map(|held| held.rate).fold(0.0, f64::max) / busier,
            worst: (0.01 * worst).min(1.0),
        }
    }

    /// By how much, as a share of all requests, the interval of a share at a load is wider on either side because no hypothesis fits: by the
    /// errors on held-out loads up to the largest of these, and by everything beyond.
    pub(super) fn unknown_at(&self, rate: f64) -> f64 {
        match self.fitted {
            Some(fitted) if rate > SLACK * fitted => {
                if rate <= SLACK * self.held_out {
                    self.worst
                } else {
                    1.0
                }
            }
            _ => 0.0,
        }
    }

    /// The largest load of which something is known, requests/s; infinite where a hypothesis fits.
    pub(super) fn end(&self) -> f64 {
        let held_out = if self.worst < 1.0 { self.held_out } else { 0.0 };
        self.fitted.map_or(f64::INFINITY, |fitted| fitted.max(held_out))
    }

    /// The largest load that meets an objective, with an interval that says where nothing is known: beyond the known loads shares are from
    /// 0 to 1, so the objective may be missed at once there, or never.
    pub(super) fn largest_rate(end: f64, found: Parameter) -> Parameter {
        match found.high <= end {
            true => found,
            false => Parameter { low: found.low.min(end), high: f64::INFINITY, ..found },
        }
    }
}

/// A share whose interval is wider by `unknown` on either side.
pub(super) fn wider(share: Parameter, unknown: f64) -> Parameter {
    let (low, high) = (share.low - unknown, share.high + unknown);
    Parameter { low: low.max(0.0), high: high.min(1.0), ..share }
}
