//! Devices of one kind: their law of service, their servers, and their other work.

use std::sync::Arc;

use crate::distribution::{Empirical, Gamma, ServiceTime};
use crate::error::{Error, check, not_negative};
use crate::queue::{Discipline, InOrder, Slowdown, SlowdownQueue};

use super::by_load::ByLoad;
use super::cosmetatos::waiting_mean;
use super::solved::SolvedQueues;

/// Work of a device that completes no request: writes, fills, scrubs. It shares the device's queue
/// with the reads, first come, first served, in an M/G/1 queue of both (Pollaczek and Khinchine):
/// E\[e^(−sW)\] = (1 − ρ)/(1 − ρ_r·E_r(s) − ρ_b·E_b(s)), ρ = ρ_r + ρ_b, with E the transforms of
/// the residual times. Not for devices that defer writes or prefer reads, nor for writes that grow
/// with load.
///
/// ```
/// use model::distribution::{Empirical, Gamma, Piece};
/// use model::storage::{Background, Class, Station, Tier, Tiers};
/// let service = Empirical::from_pieces(vec![Piece { centre: 0.008, half_width: 0.004, share: 1.0 }])?;
/// let mut class = Class::new(service, 1);
/// // 25 writes/s of 4 ms leave the reads nine tenths of the device.
/// class.background = Some(Background { rate: 25.0, law: Gamma::new(0.004, 1.0)? });
/// let station = Station::Queues { class, count: 1 };
/// let disk = Tier { name: "disk".to_owned(), share: 1.0, station, delay: 0.0 };
/// assert!((Tiers { tiers: vec![disk] }.saturation() - 0.9 / 0.008).abs() < 1e-9);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Background {
    /// Operations per second at each device, whatever the load.
    pub rate: f64,
    /// The law of their times.
    pub law: Gamma,
}

/// Devices of one kind: a law of service, M/G/1 or M/G/m, first come, first served or shared by all
/// requests present ([`Discipline`]). [`Background`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// The law of their service time.
    pub service: Empirical,
    /// Reads that a device serves at once; past 1 its queue is an approximation
    /// ([`crate::queue::Mgm`]).
    pub servers: u32,
    /// How the servers are given to requests.
    pub discipline: Discipline,
    /// Their work besides reads, if any; not with [`Discipline::Shared`].
    pub background: Option<Background>,
    /// Works in the order in which they came, where they come in spells: for one server, first come, first
    /// served, without other work. They take the place of the law but for its mean.
    pub in_order: Option<InOrder>,
    /// How their service time changes with their load, if it does; not with other work.
    pub by_load: Option<ByLoad>,
    /// How fast its servers work by the number of requests present, if that changes; not with other work.
    pub slowdown: Option<Arc<Slowdown>>,
    /// Its queues, as far as they were solved.
    pub(crate) solved: SolvedQueues,
    /// A law of nearly this shape whose solved queues serve for this one, with times in proportion
    /// to the means: that of the model, for its replicates.
    pub(crate) like: Option<Empirical>,
}

impl Class {
    /// With a law of service times, and reads that a device serves at once.
    pub fn new(service: Empirical, servers: u32) -> Self {
        Class {
            service,
            servers,
            discipline: Discipline::Fifo,
            background: None,
            in_order: None,
            by_load: None,
            slowdown: None,
            solved: SolvedQueues::default(),
            like: None,
        }
    }
}

impl Class {
    /// Mean service time, seconds; alone, where the speed depends on the number present.
    pub(crate) fn mean(&self) -> f64 {
        self.service.mean()
    }

    /// The same of devices that take `factor` times as long, for everything.
    pub(super) fn slower(&self, factor: f64) -> Result<Class, Error> {
        let (mean, scv) = (self.service.mean() * factor, self.service.scv());
        let slower = |b: Background| {
            let law = Gamma::new(b.law.mean() * factor, b.law.scv())?;
            Ok(Background { law, ..b })
        };
        let background = self.background.map(slower).transpose()?;
        let service = self.service.with_moments(mean, scv)?;
        let (discipline, in_order) = (self.discipline, self.in_order.clone());
        let (by_load, slowdown) = (self.by_load, self.slowdown.clone());
        let plain = Class::new(service, self.servers);
        Ok(Class { background, discipline, in_order, by_load, slowdown, ..plain })
    }

    /// The mean service time at reads/s of a device over that of the law.
    pub(super) fn factor_at(&self, rate: f64) -> f64 {
        self.by_load.map_or(1.0, |by_load| by_load.factor_at(rate))
    }

    /// The reads/s of a device that keep `servers` servers busy whose mean is `mean`.
    pub(super) fn rate_of(&self, servers: f64, mean: f64) -> f64 {
        if let Some(queue) = self.slowed() {
            return queue.tipping() / mean;
        }
        let busy = servers / mean;
        self.by_load.map_or(busy, |by_load| by_load.rate_of(busy))
    }

    /// Works in their order, where those are the law.
    pub(super) fn spells(&self) -> Option<&InOrder> {
        let one = self.servers == 1 && self.discipline == Discipline::Fifo;
        self.in_order.as_ref().filter(|_| one && self.background.is_none())
    }

    /// The queue of servers whose speed depends on the number present, where they are such.
    pub(super) fn slowed(&self) -> Option<Arc<SlowdownQueue>> {
        let slowdown = self.slowdown.as_deref().filter(|_| self.background.is_none())?;
        let is_shared = self.discipline.is_shared();
        Some(self.solved.slowed(slowdown, self.servers, is_shared, &self.service))
    }

    /// Servers of a device that reads keep busy at a rate, on average, if their mean service time is `mean` at light load.
    pub(super) fn busy(&self, rate: f64, mean: f64) -> f64 {
        match self.slowed() {
            Some(queue) => queue.busy(rate * mean),
            None => rate * mean * self.factor_at(rate),
        }
    }

    pub(super) fn check_background(&self) -> Result<(), Error> {
        let rate = not_negative("the rate of other work", self.background.map_or(0.0, |b| b.rate))?;
        let most = if self.discipline == Discipline::Shared { 0.0 } else { f64::MAX };
        check("the rate of other work", rate, 0.0..=most, "0 for shared processors")?;
        self.by_load.map_or(Ok(()), ByLoad::check)
    }

    /// Servers of a device `factor` times as slow that other work keeps busy, on average.
    pub(crate) fn other_busy(&self, factor: f64) -> f64 {
        self.background.map_or(0.0, |b| b.rate * b.law.mean() * factor)
    }

    /// Mean wait in seconds of the reads of a device `factor` times as slow, that come at `rate`
    /// per second.
    pub(super) fn waiting_mean(&self, rate: f64, factor: f64) -> f64 {
        let (mean, scv) = (self.service.mean() * factor, self.service.scv());
        if let Some(queue) = self.slowed() {
            return mean * (queue.response_mean(rate * mean) - 1.0);
        }
        if self.discipline == Discipline::Shared {
            // The mean of shared processors depends on no more than the mean of the law.
            return waiting_mean(rate, mean, 1.0, self.servers);
        }
        if let Some(works) = self.spells() {
            let queue = self.solved.in_order(works);
            return mean * (queue.response_mean(rate * mean) - 1.0);
        }
        let Some(other) = self.background.filter(|b| b.rate > 0.0) else {
            let wait = waiting_mean(rate, mean, scv, self.servers);
            let law = self.like.as_ref().unwrap_or(&self.service);
            let is_waiting = wait > 0.0 && wait.is_finite();
            let solved = is_waiting.then(|| self.solved.solve(law, self.servers)).flatten();
            let utilisation = rate * mean / f64::from(self.servers.max(1));
            return wait * solved.map_or(1.0, |solved| solved.wait_ratio(utilisation));
        };
        // All work alike waits in the queue of all work.
        let all = rate + other.rate;
        let other_mean = other.law.mean() * factor;
        let first = (rate * mean + other.rate * other_mean) / all;
        let square = rate * mean * mean * (1.0 + scv)
            + other.rate * other_mean * other_mean * (1.0 + other.law.scv());
        waiting_mean(all, first, square / all / (first * first) - 1.0, self.servers)
    }
}
