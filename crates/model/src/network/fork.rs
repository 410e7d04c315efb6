//! Stations that fork: every visit puts a part into each of several queues.

use std::sync::Arc;

use crate::distribution::Exponential;
use crate::error::Error;
use crate::fork_join::{FanOut, ForkJoin};

use super::solution::ForkResult;
use super::station::Kind;
use super::system::Network;
use super::visits::Visits;

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
        let visits = self.visits(k, "which forks", "give both the same")?;
        let Some(Visits { rate, service_s }) = visits else { return Ok(None) };
        let (parts, needed) = (fan_out.parts(), fan_out.needed());
        let law = ForkJoin::new(rate, Arc::new(Exponential::new(service_s)?), parts, parts)?;
        Ok(Some(ForkResult {
            fan_out,
            part_response_s: law.part_mean(),
            response_s: law.kth_mean(needed),
            response_p50_s: law.kth_quantile(needed, 0.5)?,
            response_p99_s: law.kth_quantile(needed, 0.99)?,
        }))
    }
}
