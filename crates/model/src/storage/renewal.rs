//! A node whose requests arrive at independent times that are not a Poisson stream's.
//!
//! [`Renewal`] documents the effect on a queue, and the limits of the approximation.

use crate::bisection::bisect;
use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::queue::Renewal;

use super::node::{Node, Operating};

/// The smallest load of the queues over the real one: a queue where nobody waits needs some load to have its service
/// time.
const QUEUE_FACTOR_MIN: f64 = 1e-9;

impl Node {
    /// The operating point, given that of a Poisson stream: the devices' queues are those of a Poisson stream at another
    /// rate, the same multiple for all devices. The busiest device determines it, because its waits matter most. The
    /// link and the workers are those of the Poisson stream.
    pub(super) fn with_renewal(
        &self,
        poisson: &Operating,
        renewal: Renewal,
    ) -> Result<Operating, Error> {
        let found = self.at_renewal(poisson, renewal)?;
        if found.front.workers_utilisation < 1.0 {
            return Ok(found);
        }
        // Longer waits hold workers longer, so that these may be all held below the saturation of a Poisson stream.
        let free = |rate: f64| {
            let at = self.steady(rate).and_then(|poisson| self.at_renewal(&poisson, renewal));
            at.is_ok_and(|at| at.front.workers_utilisation < 1.0)
        };
        let saturation = bisect(poisson.rate, free);
        Err(Error::Unstable { rate: poisson.rate, saturation })
    }

    fn at_renewal(&self, poisson: &Operating, renewal: Renewal) -> Result<Operating, Error> {
        let factor = self.queue_factor(poisson, renewal)?;
        let mut at = self.behind_front_with(poisson.rate, factor);
        at.front = self.front_operating(&at);
        at.response_mean += at.front.added(at.miss_ratio);
        let queues = Operating { device_rate: at.device_rate * factor, ..at.clone() };
        at.levels.push((1.0, queues));
        Ok(at)
    }

    /// The Poisson load of the busiest device that has its waits, over its own load.
    fn queue_factor(&self, poisson: &Operating, renewal: Renewal) -> Result<f64, Error> {
        let (mut busiest, mut factor) = (0.0, 1.0);
        for group in self.groups.iter().filter(|group| group.share > 0.0) {
            let Some((class, mean, servers)) = self.service(group) else { continue };
            let other = class.other_busy(group.factor);
            let reads = poisson.device_rate * group.share;
            let utilisation = (reads * mean * class.factor_at(reads) + other) / servers;
            if reads <= 0.0 || utilisation <= busiest {
                continue;
            }
            busiest = utilisation;
            // Other work arrives as a Poisson stream, so the superposition is nearer to one than the reads are.
            let operations = reads + class.background.map_or(0.0, |work| work.rate);
            let share = reads / poisson.rate * (reads / operations);
            let like = renewal.poisson_utilisation(share, utilisation, class.service.scv())?;
            let left = (like * servers - other).max(0.0);
            factor = (class.rate_of(left, mean) / reads).max(QUEUE_FACTOR_MIN);
        }
        Ok(factor)
    }
}

#[cfg(test)]
mod tests;
