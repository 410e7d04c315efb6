//! How coarse the records were that a model was fitted to, carried as uncertainty of its
//! parameters.
//!
//! A log that counts in milliseconds, buckets of a histogram, a clock of seconds: each is an error
//! that all requests share, so that more of them do not average it away, and resampling does not
//! show it. It is taken as uniform on ± its largest size, independent of what chance does, and
//! added in quadrature: half′² = half² + (0.95·size)², 0.95 being what 95 % of a uniform law lie
//! within.

use crate::error::{Error, check, not_negative};

use super::model::Model;
use super::parts::Parameter;

/// Sizes of errors that all requests of a record share; 0 where there is none. Each is the largest
/// there can be, on either side.
///
/// ```
/// # fn of(mut model: model::Model) -> Result<(), model::Error> {
/// // Response times known to 10 ms, so that their mean is off by up to 5.
/// let before = model.requests.front_delay.clone();
/// model.widen(&model::Coarse { device_s: 0.005, ..model::Coarse::default() })?;
/// assert!(model.requests.front_delay.high > before.high);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coarse {
    /// Of the mean response that clients saw where memory answered, seconds.
    pub memory_s: f64,
    /// Of the same where a device answered.
    pub device_s: f64,
    /// Of the same where neither did.
    pub other_s: f64,
    /// Of the mean service time of a device, seconds.
    pub service_s: f64,
    /// Of the share answered within a millisecond, which the published model takes for q.
    pub fast: f64,
    /// Of the device reads for each request, over them: what the ends of the steps may have cut
    /// wrongly.
    pub reads: f64,
}

/// What 95 % of a uniform law on ±1 lie within.
const UNIFORM_95: f64 = 0.95;

impl Parameter {
    /// The same with an error of up to `size` on either side added, within `least` and up.
    fn widened(&self, size: f64, least: f64) -> Parameter {
        let half = |half: f64| half.hypot(UNIFORM_95 * size);
        Parameter {
            low: (self.value - half(self.value - self.low)).max(least.min(self.low)),
            high: self.value + half(self.high - self.value),
            ..self.clone()
        }
    }
}

/// Kinds of errors: those of the clients' clock, of the devices', of the ends of steps.
const CLIENTS: usize = 0;
const DEVICES: usize = 1;
const ENDS: usize = 2;

/// An even sequence on (−1, 1) for the k-th kind of error: multiples of the root of a prime, less
/// their whole parts. The same model gives the same numbers, and kinds are independent of each
/// other.
pub(super) fn even(index: usize, kind: usize) -> f64 {
    let root = [2.0f64, 3.0, 5.0][kind % 3].sqrt();
    2.0 * ((index + 1) as f64 * root).fract() - 1.0
}

impl Model {
    /// Widens the intervals of the parameters, and spreads the replicates that predictions get
    /// theirs from, by what coarse records leave unknown. Values stay as they are.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a size is negative or not finite.
    pub fn widen(&mut self, coarse: &Coarse) -> Result<(), Error> {
        for size in [coarse.memory_s, coarse.device_s, coarse.other_s, coarse.service_s] {
            not_negative("what a coarse record leaves unknown, in seconds", size)?;
        }
        for share in [coarse.fast, coarse.reads] {
            check("the share that a coarse record leaves unknown", share, 0.0..=1.0, "0 to 1")?;
        }
        let r = &mut self.requests;
        // Of requests: what devices answer is what is counted by reads.
        let reads = coarse.reads * (1.0 - r.q0.value - r.other_share.value).clamp(0.0, 1.0);
        r.q0 = r.q0.widened(reads, f64::MIN);
        r.front_delay = r.front_delay.widened(coarse.device_s, 0.0);
        if coarse.device_s > 0.0 {
            // A difference of variances that were not measured.
            r.front_delay_scv = None;
        }
        self.spotify.q0 = self.spotify.q0.widened(coarse.fast, f64::MIN);
        let rate = self.spotify.mu_d.value;
        self.spotify.mu_d = self.spotify.mu_d.widened(coarse.service_s * rate * rate, rate * 1e-3);
        for (law, size) in [(&mut self.memory, coarse.memory_s), (&mut self.other, coarse.other_s)]
        {
            if let Some(law) = law {
                law.mean = law.mean.widened(size, 0.0);
            }
        }
        for class in &mut self.classes {
            let mean = &class.service.mean;
            class.service.mean = mean.widened(coarse.service_s, mean.value * 1e-3);
        }
        let all = &mut self.replicates;
        all.change("q0", |i, value| value + reads * even(i, ENDS));
        // A delay below zero is one of a server that is busy after its replies: it stays.
        all.change("front_delay", |i, value| {
            (value + coarse.device_s * even(i, CLIENTS)).max(value.min(0.0))
        });
        all.change("spotify_q0", |i, value| value + coarse.fast * even(i, CLIENTS));
        all.change("spotify_mu_d", |i, value| {
            value / (1.0 + value * coarse.service_s * even(i, DEVICES)).max(1e-3)
        });
        for class in &self.classes {
            all.change(&format!("mean_s.{}", class.name), |i, value| {
                (value + coarse.service_s * even(i, DEVICES)).max(value * 1e-3)
            });
        }
        self.check()
    }
}
