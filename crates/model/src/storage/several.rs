//! Devices that serve several reads at once (M/G/m), at one time t and any load.
//!
//! [`Mgm`] is within half a point of the exact law, but takes some milliseconds for each arrival
//! rate, and a node is evaluated at thousands of loads. [`Evaluated`] takes a microsecond for any
//! load, but its formula is exact only for one server or exponential service, and some points off
//! otherwise. Therefore the difference of the two is interpolated in the load (`solved`).
//!
//! Cost: a millisecond for each t, and less than a microsecond for a load, once the queues of a law are solved.
//!
//! [`Mgm`]: crate::queue::Mgm

use std::sync::Arc;

use crate::distribution::ServiceTime;
use crate::queue::{Discipline, Evaluated, InOrderQueue, SharedQueue, SlowdownQueue};

use super::class::Class;
use super::solved::Excess;

/// A class of devices at one time: P(T ≤ t) at any load.
#[derive(Clone, Debug)]
pub(super) enum ClassAt {
    Line(LineAt),
    Shared(SharedAt),
    InOrder(InOrderAt),
    Slowed(SlowedAt),
}

/// Works in their order at one time.
#[derive(Clone, Debug)]
pub(super) struct InOrderAt {
    queue: Arc<InOrderQueue>,
    /// Times before now, each with its share: now less the delay before the server.
    times: Vec<(f64, f64)>,
    /// Mean work, seconds.
    mean: f64,
}

impl InOrderAt {
    fn response_cdf(&self, rate: f64) -> f64 {
        let within = |(t, share): &(f64, f64)| {
            share * self.queue.response_cdf(t / self.mean, rate * self.mean)
        };
        self.times.iter().map(within).sum()
    }
}

/// Servers whose speed depends on the number present, at one time.
#[derive(Clone, Debug)]
pub(super) struct SlowedAt {
    queue: Arc<SlowdownQueue>,
    /// Times before now, each with its share: now less the delay before the servers.
    times: Vec<(f64, f64)>,
    /// Mean work, seconds.
    mean: f64,
}

impl SlowedAt {
    fn response_cdf(&self, rate: f64) -> f64 {
        let within = |(t, share): &(f64, f64)| {
            share * self.queue.response_cdf(t / self.mean, rate * self.mean)
        };
        self.times.iter().map(within).sum()
    }
}

/// Shared processors at one time.
#[derive(Clone, Debug)]
pub(super) struct SharedAt {
    queue: Arc<SharedQueue>,
    /// Times before now, each with its share: now less the delay before the processors.
    times: Vec<(f64, f64)>,
    /// Seconds that one processor works for a request, and in the queue above.
    mean: f64,
    like_mean: f64,
    processors: f64,
}

impl SharedAt {
    fn response_cdf(&self, rate: f64) -> f64 {
        let rho = rate * self.mean / self.processors;
        let scale = self.like_mean / self.mean;
        let within = |(t, share): &(f64, f64)| share * self.queue.response_cdf(t * scale, rho);
        self.times.iter().map(within).sum()
    }
}

/// A line at one time.
#[derive(Clone, Debug)]
pub(super) struct LineAt {
    plain: Evaluated,
    /// The CDF of the service law at t, an upper bound of any response CDF.
    cdf: f64,
    excess: Option<Excess>,
    /// Requests per second that would keep the servers as busy as their other work does.
    more: f64,
}

impl ClassAt {
    /// The class at `t` seconds.
    pub fn new(class: &Class, t: f64) -> Self {
        Self::after(class, t, &[(0.0, 1.0)], 1.0, None)
    }

    /// The class at `t` seconds, behind a delay (times in seconds, ascending, and their shares),
    /// for a device `factor` times as slow; times are in units of the factor. If `other` is given,
    /// the excess over the plain form is taken from it: for the replicates of a model, whose means
    /// differ too little to change that excess.
    pub fn after(
        class: &Class,
        t: f64,
        delays: &[(f64, f64)],
        factor: f64,
        other: Option<&ClassAt>,
    ) -> Self {
        if let Some(queue) = class.slowed() {
            let times = delays.iter().map(|(delay, share)| (t - delay, *share)).collect();
            return ClassAt::Slowed(SlowedAt { queue, times, mean: class.service.mean() });
        }
        if let Some(works) = class.spells() {
            let times = delays.iter().map(|(delay, share)| (t - delay, *share)).collect();
            let (queue, mean) = (class.solved.in_order(works), class.service.mean());
            return ClassAt::InOrder(InOrderAt { queue, times, mean });
        }
        match (class.discipline, other) {
            (Discipline::Shared, _) => ClassAt::Shared(SharedAt::new(class, t, delays)),
            (_, Some(ClassAt::Line(other))) => {
                ClassAt::Line(LineAt::new(class, t, delays, factor, Some(other)))
            }
            _ => ClassAt::Line(LineAt::new(class, t, delays, factor, None)),
        }
    }

    /// P(response time ≤ t) at an arrival rate per second; 0 at or past saturation.
    pub fn response_cdf(&self, rate: f64) -> f64 {
        match self {
            ClassAt::Line(line) => line.response_cdf(rate),
            ClassAt::Shared(shared) => shared.response_cdf(rate),
            ClassAt::InOrder(in_order) => in_order.response_cdf(rate),
            ClassAt::Slowed(slowed) => slowed.response_cdf(rate),
        }
    }
}

impl SharedAt {
    fn new(class: &Class, t: f64, delays: &[(f64, f64)]) -> Self {
        let (mean, law) = (class.service.mean(), class.like.as_ref().unwrap_or(&class.service));
        SharedAt {
            queue: class.solved.shared(law, class.servers),
            times: delays.iter().map(|(delay, share)| (t - delay, *share)).collect(),
            mean,
            like_mean: law.mean(),
            processors: f64::from(class.servers.max(1)),
        }
    }
}

impl LineAt {
    fn new(
        class: &Class,
        t: f64,
        delays: &[(f64, f64)],
        factor: f64,
        other: Option<&LineAt>,
    ) -> Self {
        let service = &class.service;
        // A shift of time needs no transform.
        let least = delays.first().map_or(0.0, |d| d.0);
        let rest: Vec<(f64, f64)> = delays.iter().map(|d| (d.0 - least, d.1)).collect();
        let background = class.background.as_ref();
        let beside = |at: Evaluated| match background {
            Some(work) => at.beside(work.rate * factor, &work.law),
            None => at,
        };
        let plain = |t: f64| Evaluated::new(service, class.servers, t);
        let solved = || {
            let law = class.like.as_ref().unwrap_or(service);
            let several = class.solved.solve(law, class.servers)?;
            let mean: f64 = rest.iter().map(|d| d.0 * d.1).sum();
            let t = (t - least - mean) * law.mean() / service.mean();
            several.excess(&Evaluated::new(law, class.servers, t), t)
        };
        let same = |e: &Excess| e.servers == class.servers;
        let excess = match other {
            Some(LineAt { excess: Some(known), .. }) if same(known) => Some(*known),
            // A replicate with servers of its own, or nothing to compare with.
            Some(_) if class.like.is_none() => None,
            _ => solved(),
        };
        let excess = excess.map(|excess| Excess { mean: service.mean(), ..excess });
        let cdf = delays.iter().map(|d| d.1 * service.cdf(t - d.0)).sum();
        let more = class.other_busy(factor) / service.mean();
        LineAt { plain: beside(plain(t - least).after(service, &rest)), cdf, excess, more }
    }

    /// P(response time ≤ t) at an arrival rate per second; 0 at or past saturation.
    pub fn response_cdf(&self, rate: f64) -> f64 {
        let plain = self.plain.response_cdf(rate);
        match &self.excess {
            Some(excess) => (plain + excess.excess(rate + self.more)).min(self.cdf).max(0.0),
            None => plain,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use crate::distribution::{Empirical, Gamma, Lognormal, Piece};
    use crate::queue::{self, Mgm, Queue};
    use crate::storage::cosmetatos::waiting_mean;

    use super::*;

    /// A law in pieces of 1/400 of its probability, as measured ones are.
    pub(in crate::storage) fn class(law: &dyn ServiceTime, servers: u32) -> Class {
        let step = law.mean() / 40.0;
        let piece = |i: u32| {
            let (low, high) = (f64::from(i) * step, f64::from(i + 1) * step);
            let share = law.cdf(high) - law.cdf(low);
            Piece { centre: 0.5 * (low + high), half_width: 0.5 * step, share }
        };
        let pieces = (0..2_000).map(piece).filter(|p| p.share > 1e-9).collect();
        let service = Empirical::from_pieces(pieces).unwrap();
        Class::new(service, servers)
    }

    /// The naive twin is a queue for each load.
    #[test]
    fn any_load_is_as_if_the_queue_were_made_for_it() {
        let laws: [Box<dyn ServiceTime>; 3] = [
            Box::new(Gamma::new(0.01, 0.2).unwrap()),
            Box::new(Gamma::new(0.01, 1.0).unwrap()),
            Box::new(Lognormal::new(0.01, 2.5).unwrap()),
        ];
        for law in laws {
            for servers in [2, 3, 8, 24] {
                let class = class(law.as_ref(), servers);
                for t in [0.005, 0.012, 0.03, 0.08] {
                    let at = ClassAt::new(&class, t);
                    for rho in [0.1, 0.33, 0.62, 0.77, 0.9, 0.97] {
                        let rate = rho * f64::from(servers) / class.service.mean();
                        let naive = Mgm::new(rate, servers, class.service.clone()).unwrap();
                        let off = at.response_cdf(rate) - naive.response_cdf(t);
                        let (scv, cdf) = (class.service.scv(), naive.response_cdf(t));
                        assert!(off.abs() < 1e-3, "{scv} {servers} {rho} {t}: {off} of {cdf}");
                    }
                    assert_eq!(at.response_cdf(f64::from(servers) / class.service.mean()), 0.0);
                }
            }
        }
    }

    /// A replicate of the same shape, by the queues of the model's law, whatever it is beside.
    #[test]
    fn a_replicate_with_servers_of_its_own_is_the_class_it_is_like() {
        for (servers, discipline) in
            [(1, Discipline::Fifo), (3, Discipline::Fifo), (2, Discipline::Shared)]
        {
            let mut class = class(&Lognormal::new(0.01, 2.0).unwrap(), servers);
            class.discipline = discipline;
            let (mean, scv) = (class.service.mean() * 1.04, class.service.scv());
            let longer = class.service.with_moments(mean, scv).unwrap();
            let like = Some(class.service.clone());
            let replicate = Class { service: longer, like, ..class.clone() };
            for other in [(1, Discipline::Fifo), (2, Discipline::Fifo), (2, Discipline::Shared)] {
                let mut beside = class.clone();
                (beside.servers, beside.discipline) = other;
                for t in [0.004, 0.03, 0.08] {
                    let at = ClassAt::new(&class, t);
                    let other = ClassAt::new(&beside, 1.04 * t);
                    let same =
                        ClassAt::after(&replicate, 1.04 * t, &[(0.0, 1.0)], 1.0, Some(&other));
                    for rho in [0.3, 0.7, 0.9] {
                        let rate = rho * f64::from(servers) / class.service.mean();
                        let off = same.response_cdf(rate / 1.04) - at.response_cdf(rate);
                        assert!(off.abs() < 1e-6, "{servers} {discipline:?} {rho} {t}: {off}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_mean_wait_is_near_that_of_the_queue_made_for_the_load() {
        for (scv, most) in [(0.1, 0.05), (0.5, 0.03), (1.0, 0.002), (2.0, 0.06), (4.0, 0.12)] {
            let law = Gamma::new(0.01, scv).unwrap();
            for servers in [2, 4, 16] {
                for rho in [0.5, 0.7, 0.9] {
                    let rate = rho * f64::from(servers) / 0.01;
                    let queue = Mgm::new(rate, servers, law).unwrap();
                    let found = waiting_mean(rate, 0.01, scv, servers);
                    let off = (found - queue.waiting_mean()) / queue.response_mean();
                    let plain = queue::waiting_mean(rate, 0.01, scv, servers);
                    let before = (plain - queue.waiting_mean()) / queue.response_mean();
                    assert!(off.abs() < most, "{scv} {servers} {rho}: {off}, was {before}");
                }
            }
        }
    }

    #[test]
    fn one_server_is_the_exact_queue_and_exponential_service_is_erlangs() {
        let law = Gamma::new(0.01, 0.3).unwrap();
        let one = class(&law, 1);
        assert!(one.solved.solve(&one.service, 1).is_none());
        let (at, plain) = (ClassAt::new(&one, 0.02), Evaluated::new(&one.service, 1, 0.02));
        assert_eq!(at.response_cdf(70.0), plain.response_cdf(70.0));
        for (rate, scv, servers) in [(70.0, 0.3, 1), (70.0, 3.0, 1), (350.0, 1.0, 4)] {
            let found = waiting_mean(rate, 0.01, scv, servers);
            let known = queue::waiting_mean(rate, 0.01, scv, servers);
            assert!((found / known - 1.0).abs() < 1e-12, "{rate} {scv} {servers}");
        }
        assert_eq!(waiting_mean(400.0, 0.01, 0.3, 4), f64::INFINITY);
    }

    #[test]
    fn any_load_gives_a_share() {
        let piece = |centre, half_width, share| Piece { centre, half_width, share };
        let pieces = vec![piece(0.004, 0.004, 0.7), piece(0.03, 0.01, 0.3)];
        let class = Class::new(Empirical::from_pieces(pieces).unwrap(), 3);
        let at = ClassAt::new(&class, 0.02);
        let full = 3.0 / class.service.mean();
        proptest!(|(rate in any::<f64>(), up in 0.0..1.2f64)| {
            for rate in [rate, up * full] {
                prop_assert!((0.0..=1.0).contains(&at.response_cdf(rate)), "{}", rate);
            }
            // More load is not faster, but for the interpolation's last digits.
            let (less, more) = (at.response_cdf(up * full), at.response_cdf(up * full + 1.0));
            prop_assert!(more <= less + 1e-4, "{}: {} {}", up, less, more);
        });
    }
}
