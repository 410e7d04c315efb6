//! The link and the workers of a node: their saturation, and their operating point.

use super::front::{FrontOperating, Limit, WORKERS_MAX};
use super::node::{Node, Operating};
use crate::bisection::bisect;
use crate::error::{Error, check};
use crate::queue::waiting_mean;

impl Node {
    pub(super) fn check_front(&self) -> Result<(), Error> {
        if let Some(link) = &self.link {
            link.check()?;
        }
        let workers = self.workers.map_or(1.0, f64::from);
        check("the number of workers", workers, 1.0..=f64::from(WORKERS_MAX), "1 to 10,000")?;
        Ok(())
    }

    /// Load in requests/s at which link or workers are always busy, and which of them. `behind`
    /// returns the operating point without them at a load below `devices`, the saturation of the devices.
    pub(super) fn front_saturation(
        &self,
        devices: f64,
        behind: impl Fn(f64) -> Operating,
    ) -> Option<(f64, Limit)> {
        let link = self.link.map(|link| (link.saturation(), Limit::Link));
        let workers = self.workers.and_then(|workers| {
            let free = |rate: f64| self.workers_at(workers, &behind(rate)).utilisation < 1.0;
            let mut high = devices;
            if high.is_infinite() {
                high = 1.0;
                while free(high) {
                    high *= 2.0;
                    if high > 1e15 {
                        return None;
                    }
                }
            }
            Some((bisect(high, free), Limit::Workers))
        });
        link.into_iter().chain(workers).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The operating point of link and workers past the saturation of some resource: a saturated
    /// link or device lets nothing through, and workers are then all held.
    pub(super) fn front_overloaded(&self, rate: f64) -> FrontOperating {
        let link = self.link.map_or(0.0, |link| rate / link.saturation());
        let stuck = link >= 1.0 || self.workers.is_some();
        FrontOperating {
            link_utilisation: link.min(1.0),
            workers_utilisation: if self.workers.is_some() { 1.0 } else { 0.0 },
            waits: if stuck { 1.0 } else { 0.0 },
            wait_mean: if stuck { f64::INFINITY } else { 0.0 },
            device_wait_mean: if stuck { f64::INFINITY } else { 0.0 },
        }
    }

    /// The operating point of link and workers below their saturation, given that of memory and devices without them.
    pub(super) fn front_operating(&self, behind: &Operating) -> FrontOperating {
        let mut at = FrontOperating::default();
        let rate = behind.rate;
        if let Some(link) = &self.link {
            let service = link.bytes_mean / link.bytes_per_s;
            at.link_utilisation = rate * service;
            at.waits = at.link_utilisation;
            at.wait_mean = waiting_mean(rate, service, link.bytes_scv, 1);
            at.device_wait_mean = at.wait_mean;
        }
        if let Some(workers) = self.workers {
            let added = self.workers_at(workers, behind);
            at.workers_utilisation = added.utilisation;
            at.waits = 1.0 - (1.0 - at.waits) * (1.0 - added.waits);
            at.wait_mean += added.wait_mean;
            at.device_wait_mean += added.device_wait_mean;
        }
        at
    }
}
