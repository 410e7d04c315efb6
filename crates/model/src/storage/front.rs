//! The limits that every reply passes besides memory and devices: a link with a limited number of
//! bytes per second ([`Link`]), and a limited number of workers, one of which each request holds
//! until it is answered ([`FrontOperating`]).

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, positive};

/// A limit of bytes per second that all replies of a node share, one after the other: at most
/// C/bytes requests/s.
///
/// It is an M/G/1 queue of the replies' transmission times ([`crate::queue::Mg1`]). The
/// transmission itself is in the measured responses already, so only the waiting is added: for a
/// share ρ = λ·bytes/C of the requests an exponential time, with Pollaczek's and Khinchine's mean
/// over all requests of λ·b²(1 + SCV)/(2(1 − ρ)), b = bytes/C seconds. Exact in heavy traffic and
/// for exponential times, and small against a response if the link is not busy: its purpose is to
/// be a limit, not to be exact. Wrong if the measured responses contain such waits already, which
/// then count twice: fit at loads far below the limit. A slow processor looks the same, but does
/// not depend on the bytes. Cost: [`super::Node::at_time`].
///
/// ```
/// use model::storage::Link;
/// // A gigabit, and objects of 80 KB: 1,562 a second.
/// let link = Link { bytes_per_s: 125e6, bytes_mean: 80e3, bytes_scv: 0.0 };
/// assert!((link.saturation() - 1562.5).abs() < 1e-9);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean bytes of a reply.
    pub bytes_mean: f64,
    /// Squared coefficient of variation of the bytes of a reply.
    pub bytes_scv: f64,
}

impl Link {
    /// Load in requests/s at which it is always busy.
    pub fn saturation(&self) -> f64 {
        self.bytes_per_s / self.bytes_mean
    }

    /// Checks all fields.
    pub fn check(&self) -> Result<(), Error> {
        positive("the bytes per second of a link", self.bytes_per_s)?;
        positive("the mean bytes of a reply", self.bytes_mean)?;
        check("the SCV of the bytes of a reply", self.bytes_scv, 0.0..=1e6, "0 to 1,000,000")?;
        Ok(())
    }
}

/// The largest number of workers of a node: Erlang's formula costs as many steps
/// ([`crate::queue::erlang_c`]).
pub const WORKERS_MAX: u32 = 10_000;

/// The operating point of link ([`Link`]) and workers, which every reply passes.
///
/// At most m requests are inside, a closed network whose throughput with m of them is the saturation of the workers; waits for a worker are those
/// of a birth and death process with the network's throughputs, lengthened by the two moments of the time that a worker is held. What waits for a
/// worker does not wait in a device's queue at the same time: a request that a device answers has the response without workers, and what
/// both waits are more than that queue's. A request waits at neither, one or both, for a time taken as exponential with the mean of both. Past
/// either saturation there is no prediction. Returned by [`super::Node::operating`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FrontOperating {
    /// Busy share of the link; 0 without one.
    pub link_utilisation: f64,
    /// Busy share of the workers; 0 if they are not limited.
    pub workers_utilisation: f64,
    /// Share of the requests that wait at either.
    pub waits: f64,
    /// Mean wait at both of the requests that no device answers, seconds.
    pub wait_mean: f64,
    /// By how much the responses of a device are longer in the mean than without link and workers, seconds.
    pub device_wait_mean: f64,
}

/// The resource of a node that saturates first ([`super::Node::breaks_first`]).
///
/// ```
/// assert_eq!(model::storage::Limit::Link.as_str(), "link");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The busiest device.
    Devices,
    /// The link.
    Link,
    /// The workers.
    Workers,
}

impl Limit {
    /// The resource's label in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Limit::Devices => "devices",
            Limit::Link => "link",
            Limit::Workers => "workers",
        }
    }
}

impl FrontOperating {
    /// The mean of what is added to responses of which devices answer a share.
    pub(super) fn added(&self, miss_ratio: f64) -> f64 {
        (1.0 - miss_ratio) * self.wait_mean + miss_ratio * self.device_wait_mean
    }

    /// P(wait + response ≤ t) for a mean wait, from the response's CDF at t·(1 − k/n), k from 0 to n: linear in
    /// between, which makes the integral with an exponential wait exact.
    pub(super) fn after(&self, wait_mean: f64, t: f64, earlier: &[f64]) -> f64 {
        let Some(&at_once) = earlier.first() else { return 0.0 };
        let n = earlier.len() - 1;
        if self.waits <= 0.0 || wait_mean <= 0.0 || !t.is_finite() {
            return at_once;
        }
        if t <= 0.0 || n == 0 || wait_mean > 1e9 * t {
            return (1.0 - self.waits) * at_once;
        }
        let rate = self.waits / wait_mean;
        let step = t / n as f64;
        // Over a piece from a to a + step: ∫ η·exp(−ηx)·(from + slope·(x − a)) dx.
        let (decay, gone) = ((-rate * step).exp(), -(-rate * step).exp_m1());
        let pieces = earlier.windows(2).enumerate().map(|(k, f)| {
            let slope = (f[1] - f[0]) / step;
            let inner = f[0] * gone + slope * (gone / rate - step * decay);
            (-rate * step * k as f64).exp() * inner
        });
        (1.0 - self.waits) * at_once + self.waits * pieces.sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponential_wait_is_added_exactly_to_a_line_and_nearly_to_a_curve() {
        let front = FrontOperating { waits: 0.4, wait_mean: 0.4 * 0.01, ..Default::default() };
        // An exponential response of mean 5 ms behind an exponential wait of mean 10 ms.
        let (t, n) = (0.02f64, 24);
        let cdf = |t: f64| 1.0 - (-t / 0.005).exp();
        let earlier: Vec<f64> =
            (0..=n).map(|k| cdf(t * (1.0 - f64::from(k) / f64::from(n)))).collect();
        let sum = 1.0 - (0.01 * (-t / 0.01).exp() - 0.005 * (-t / 0.005).exp()) / 0.005;
        let exact = 0.6 * cdf(t) + 0.4 * sum;
        assert!((front.after(front.wait_mean, t, &earlier) - exact).abs() < 5e-4, "{exact}");
        let none = FrontOperating::default();
        assert_eq!(none.after(0.0, t, &earlier), cdf(t));
        // Whatever waits for ever is never in time.
        let stuck = FrontOperating { waits: 1.0, wait_mean: 1e9, ..Default::default() };
        assert!(stuck.after(stuck.wait_mean, t, &earlier) < 1e-9);
        for mean in [1e3, 1e7, 1e14, f64::INFINITY] {
            let stuck = FrontOperating { waits: 1.0, wait_mean: mean, ..Default::default() };
            assert!(
                (0.0..=t / mean + 1e-12).contains(&stuck.after(stuck.wait_mean, t, &earlier)),
                "{mean}"
            );
        }
        assert_eq!(
            (none.after(0.0, t, &[]), front.after(front.wait_mean, f64::INFINITY, &[1.0, 1.0])),
            (0.0, 1.0)
        );
    }
}
