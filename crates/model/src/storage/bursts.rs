//! A node in bursts: requests arrive at one of two Poisson rates, in turn.
//!
//! [`Bursts`] documents the process, its effect on a queue, and the limits of the approximation.

use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::queue::{Bursts, relaxation_s};

use super::front::FrontOperating;
use super::node::{Node, Operating};

impl Node {
    /// The operating point at the loads that the devices experience, given the operating point
    /// `here` of a Poisson stream with the same mean. [`Error::Unstable`] if one of the loads is
    /// past saturation.
    pub(super) fn in_bursts(&self, here: &Operating, bursts: Bursts) -> Result<Operating, Error> {
        let rate = here.rate;
        let mut at = Operating {
            device_rate: 0.0,
            hit_ratio: 0.0,
            miss_ratio: 0.0,
            joined_share: 0.0,
            utilisation_mean: 0.0,
            utilisation_max: 0.0,
            queue_length_mean: 0.0,
            response_mean: 0.0,
            front: FrontOperating::default(),
            ..here.clone()
        };
        for (level, time) in bursts.levels(rate, self.relaxation_s(here)) {
            let stands = self.steady(level).map_err(|error| match error {
                Error::Unstable { saturation, .. } => {
                    Error::Unstable { rate, saturation: saturation * rate / level }
                }
                other => other,
            })?;
            let requests = time * level / rate;
            at.device_rate += time * stands.device_rate;
            at.utilisation_mean += time * stands.utilisation_mean;
            at.utilisation_max += time * stands.utilisation_max;
            at.queue_length_mean += time * stands.queue_length_mean;
            at.hit_ratio += requests * stands.hit_ratio;
            at.miss_ratio += requests * stands.miss_ratio;
            at.joined_share += requests * stands.joined_share;
            at.response_mean += requests * stands.response_mean;
            at.front.link_utilisation += time * stands.front.link_utilisation;
            at.front.workers_utilisation += time * stands.front.workers_utilisation;
            at.front.waits += requests * stands.front.waits;
            at.front.wait_mean += requests * stands.front.wait_mean;
            at.front.device_wait_mean += requests * stands.front.device_wait_mean;
            at.levels.push((requests, stands));
        }
        Ok(at)
    }

    /// The relaxation time of the busiest device's queue, with the service of an average read.
    fn relaxation_s(&self, here: &Operating) -> f64 {
        let (mut mean, mut scv, mut share) = (0.0, 0.0, 0.0);
        for group in &self.groups {
            if let Some(class) = self.classes.get(group.class) {
                let part = f64::from(group.count) * group.share;
                mean +=
                    part * class.service.mean() * group.factor / f64::from(class.servers.max(1));
                scv += part * class.service.scv();
                share += part;
            }
        }
        let share = share.max(f64::MIN_POSITIVE);
        relaxation_s(here.utilisation_max, mean / share, scv / share)
    }
}

#[cfg(test)]
mod tests;
