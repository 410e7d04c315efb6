//! Hedged requests: a second request is sent if the first is late.

use crate::error::{Error, check, positive};

/// Rounds of the fixed point before a bisection searches for its root.
const ROUNDS: usize = 60;
/// Number of points at which that search scans for a root.
const SCAN: u32 = 200;

/// Requests that are sent again, to another server, if they have no reply after a delay; the first reply counts.
///
/// P(T ≤ t) = 1 − P(X > t)·P(X > t − d), with independent times X of the first and the second request. Source: J. Dean, L.
/// A. Barroso, "The tail at scale", Communications of the ACM 56 (2013); the formula is elementary. Requests are not
/// cancelled: each one sent is served to its end, so that servers get 1 + P(X > d) requests for each arrival, at which
/// load X is to be taken ([`Hedge::offered_rate`]). Wrong if both requests meet the same cause of slowness (one device,
/// one large object), because the times are then dependent and hedging gains less. Cost: nanoseconds.
///
/// ```
/// use model::fork_join::Hedge;
/// let hedge = Hedge::new(0.020)?;
/// // Nine tenths answer within 40 ms, half within the first 20: 5 % of the hedged requests take longer than 40 ms.
/// assert!((hedge.within(0.9, 0.5) - 0.95).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hedge {
    delay_s: f64,
}

impl Hedge {
    /// With the delay in seconds after which the second request is sent (0: both at once).
    pub fn new(delay_s: f64) -> Result<Self, Error> {
        let must = "a time in seconds from 0 to 1e12";
        check("the delay of a second request", delay_s, 0.0..=1e12, must)?;
        Ok(Hedge { delay_s })
    }

    /// The delay in seconds after which the second request is sent.
    pub fn delay_s(self) -> f64 {
        self.delay_s
    }

    /// P(first reply ≤ t), given P(X ≤ t) and P(X ≤ t − d) of one request.
    pub fn within(self, first: f64, second: f64) -> f64 {
        (1.0 - (1.0 - first) * (1.0 - second)).clamp(0.0, 1.0)
    }

    /// The load in requests/s at the servers, with second requests: the smallest x that is `rate`·(1 + `late`(x)), where
    /// `late` gives P(X > d) at a load, which rises with it.
    ///
    /// A system that starts empty settles there: from `rate` the load is raised to the one that the last one requires,
    /// which never exceeds the smallest solution. If `late` is unstable before that, hedging with this delay is unstable
    /// too, and its error names the load. The system may have a second, congested solution above. Cost: up to 60 values of
    /// `late`, and up to 250 more near the edge of stability.
    ///
    /// ```
    /// use model::{Error, fork_join::Hedge, queue::{Mm1, Queue}};
    /// let late = |load: f64| Ok(1.0 - Mm1::new(load, 100.0)?.response_cdf(0.020));
    /// let hedge = Hedge::new(0.020)?;
    /// let load = hedge.offered_rate(30.0, late)?;
    /// assert!((load - 30.0 * (1.0 + late(load)?)).abs() < 1e-6);
    /// // At 70 requests/s it sends so much twice that nothing is left.
    /// assert!(matches!(hedge.offered_rate(70.0, late), Err(Error::Unstable { .. })));
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn offered_rate(
        self,
        rate: f64,
        late: impl Fn(f64) -> Result<f64, Error>,
    ) -> Result<f64, Error> {
        positive("the arrival rate", rate)?;
        let wanted =
            |load: f64| -> Result<f64, Error> { Ok(rate * (1.0 + late(load)?.clamp(0.0, 1.0))) };
        let mut load = rate;
        for _ in 0..ROUNDS {
            let next = wanted(load)?.max(load);
            if next - load <= 1e-12 * load {
                return Ok(next);
            }
            load = next;
        }
        least_root(load, 2.0 * rate, &wanted)
    }
}

/// The smallest load from `low` to `high` at which no further load is wanted; `wanted(low)` is
/// above `low`.
fn least_root(
    low: f64,
    high: f64,
    wanted: &dyn Fn(f64) -> Result<f64, Error>,
) -> Result<f64, Error> {
    let mut below = low;
    for i in 1..=SCAN {
        let at = low + (high - low) * f64::from(i) / f64::from(SCAN);
        match wanted(at) {
            Ok(more) if more > at => {
                below = at;
                continue;
            }
            Ok(_) => {}
            // Unstable: a root, if any, is below.
            Err(error) if at - below <= 1e-9 * at => return Err(error),
            Err(_) => return least_root(below, at, wanted),
        }
        let mut above = at;
        while above - below > 1e-12 * above {
            let middle = 0.5 * (below + above);
            if wanted(middle)? > middle {
                below = middle;
            } else {
                above = middle;
            }
        }
        return Ok(above);
    }
    // The load never exceeds twice the rate.
    Ok(high)
}
