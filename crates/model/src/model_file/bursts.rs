//! Where a node stands when arrivals come in bursts: at one of two Poisson rates, in turn.
//!
//! [`crate::queue::Bursts`] has the process, what a queue feels of it, and when that is wrong. Each device gets a random
//! part of the requests, so the relative variation of its arrivals' rate is that of the clients'.

use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::queue::{Bursts, relaxation_s};
use crate::storage::{Node, NodeAt, Operating};

/// Where a node stands at each rate, and the share of the requests that come at it.
#[derive(Clone, Debug)]
pub(crate) struct Stands {
    parts: Vec<(f64, Operating)>,
}

impl Stands {
    /// At one rate.
    pub fn one(operating: Operating) -> Self {
        Stands { parts: vec![(1.0, operating)] }
    }

    /// At the rates that the devices of a node feel. [`Error::Unstable`] at a load at which one of them is
    /// past saturation.
    pub fn new(node: &Node, rate: f64, bursts: Option<Bursts>) -> Result<Self, Error> {
        let here = node.operating(rate)?;
        let Some(bursts) = bursts.filter(|_| rate > 0.0) else { return Ok(Stands::one(here)) };
        let (mut mean, mut scv, mut share) = (0.0, 0.0, 0.0);
        for group in &node.groups {
            if let Some(class) = node.classes.get(group.class) {
                let part = f64::from(group.count) * group.share;
                mean +=
                    part * class.service.mean() * group.factor / f64::from(class.servers.max(1));
                scv += part * class.service.scv();
                share += part;
            }
        }
        let relaxation = relaxation_s(here.utilisation_max, mean / share, scv / share);
        let mut parts = Vec::with_capacity(2);
        for (level, time) in bursts.levels(rate, relaxation) {
            let requests = time * level / rate;
            if requests > 0.0 {
                let stands = node.operating(level).map_err(|error| match error {
                    Error::Unstable { saturation, .. } => {
                        Error::Unstable { rate, saturation: saturation * rate / level }
                    }
                    other => other,
                })?;
                parts.push((requests, stands));
            }
        }
        Ok(Stands { parts })
    }

    /// P(T ≤ t) of the node at one time.
    pub fn cdf(&self, at: &NodeAt) -> f64 {
        self.mean(|operating| at.cdf(operating))
    }

    /// A mean over the requests.
    pub fn mean(&self, of: impl Fn(&Operating) -> f64) -> f64 {
        self.parts.iter().map(|(requests, operating)| requests * of(operating)).sum()
    }

    /// A mean over time.
    pub fn mean_over_time(&self, rate: f64, of: impl Fn(&Operating) -> f64) -> f64 {
        let time = |o: &Operating, requests: f64| match o.rate {
            level if level > 0.0 => requests * rate / level,
            _ => requests,
        };
        let parts = self.parts.iter();
        parts.map(|(requests, operating)| time(operating, *requests) * of(operating)).sum()
    }
}

#[cfg(test)]
mod tests;
