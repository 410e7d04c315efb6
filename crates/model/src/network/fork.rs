//! Stations that fork: every visit puts a part into each of several queues.

use std::sync::Arc;

use crate::distribution::Exponential;
use crate::error::Error;
use crate::fork_join::{FanOut, ForkJoin};

use super::station::Kind;
use super::{Class, ForkResult, Network};

/// Largest relative difference of two classes' service times that counts as none.
const SAME_SERVICE: f64 = 1e-9;

impl Network {
    /// Whether a station forks.
    pub(super) fn has_forks(&self) -> bool {
        self.stations.iter().any(|station| matches!(station.inner(), Kind::Fork(_)))
    }

    /// The results of the stations that fork, in the order of the stations. [`Error::Network`] for closed classes, whose
    /// product form a fork breaks everywhere in the network, and for classes of different service times at a fork, whose
    /// mixture is not exponential.
    pub(super) fn forks(&self) -> Result<Vec<Option<ForkResult>>, Error> {
        if !self.has_forks() {
            return Ok(vec![None; self.stations.len()]);
        }
        if let Some(class) = self.classes.iter().find(|class| class.customers() > 0) {
            return Err(class.wrong(
                "is closed, but a station forks, which is solved for open classes only; give the class a rate",
            ));
        }
        let stations = self.stations.iter().enumerate();
        let found = stations.map(|(k, station)| match station.inner() {
            Kind::Fork(fan_out) => self.fork(k, *fan_out),
            _ => Ok(None),
        });
        found.collect()
    }

    fn fork(&self, k: usize, fan_out: FanOut) -> Result<Option<ForkResult>, Error> {
        let service_s = |class: &Class| class.demands_s[k] / class.visits[k];
        let visitors: Vec<&Class> =
            self.classes.iter().filter(|class| class.demands_s[k] > 0.0).collect();
        let Some(first) = visitors.first() else { return Ok(None) };
        let service = service_s(first);
        for class in &visitors {
            if (service_s(class) / service - 1.0).abs() > SAME_SERVICE {
                let what = format!(
                    "has a service time of {} s at station {:?}, which forks, and class {:?} one of {service} s; give \
                     both the same",
                    service_s(class),
                    self.stations[k].name(),
                    first.name(),
                );
                return Err(class.wrong(&what));
            }
        }
        let visits: f64 = visitors.iter().map(|class| class.rate() * class.visits[k]).sum();
        let (parts, needed) = (fan_out.parts(), fan_out.needed());
        let law = ForkJoin::new(visits, Arc::new(Exponential::new(service)?), parts, parts)?;
        Ok(Some(ForkResult {
            fan_out,
            part_response_s: law.part_mean(),
            response_s: law.kth_mean(needed),
            response_p50_s: law.kth_quantile(needed, 0.5)?,
            response_p99_s: law.kth_quantile(needed, 0.99)?,
        }))
    }
}
