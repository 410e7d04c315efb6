//! Devices that serve several reads at once (M/G/m), at one time t and any load.
//!
//! [`Mgm`] is within half a point of the exact law, but takes some milliseconds for each arrival
//! rate, and a node is evaluated at thousands of loads. [`Evaluated`] takes a microsecond for any
//! load, but its formula is exact only for one server or exponential service, and some points off
//! otherwise. Therefore the difference of the two is interpolated in the load.
//!
//! A request waits with Erlang's probability C. The difference divided by C is a smooth function of
//! the utilisation from 0 to 1, and 0 at 1, where both CDFs are 0. It is computed at [`POINTS`]
//! Chebyshev points of the utilisations at which C is not negligible, and interpolated by the
//! barycentric formula (J.-P. Berrut, L. N. Trefethen, "Barycentric Lagrange interpolation", SIAM
//! Review 46, 2004). With one server there is no difference, and nothing is computed.
//!
//! Cost: [`POINTS`] − 1 queues for a law, some tens of milliseconds up to 16 servers and 0.2 s past
//! them; once, because a class keeps them ([`SolvedQueues`]). Then a millisecond for each t, and
//! less than a microsecond for a load.

use std::sync::{Arc, Mutex, PoisonError};

use crate::bisection::bisect;
use crate::distribution::{Empirical, ServiceTime};
use crate::queue::{
    self, Discipline, Evaluated, InOrder, InOrderQueue, MgmLoads, SharedQueue, Slowdown,
    SlowdownQueue, erlang_c,
};

use super::Class;

/// Number of utilisations at which the two forms are compared.
const POINTS: usize = 12;

/// The probability of waiting below which the difference is negligible.
const RARE: f64 = 1e-4;

/// The largest number of laws whose queues are kept, of each discipline.
const KEPT_MAX: usize = 6;
/// The same of servers whose speed depends on the number present: as many as a model has replicates, and some.
const SLOWED_MAX: usize = 200;
/// Works that stand for a law.
const WORKS: usize = 16_384;

/// The queues solved for a [`Class`]. Clones share them. The law and servers they were solved for
/// are stored with them, so a changed class gets its own. They are a cache and not part of a
/// class's value, so all compare equal. [`super::Node::at_time`] fills them (some tens of milliseconds
/// for each law, once).
#[derive(Clone, Debug, Default)]
pub struct SolvedQueues {
    line: Arc<Mutex<Vec<Arc<Several>>>>,
    shared: Arc<Mutex<Vec<Arc<SharedQueue>>>>,
    in_order: Arc<Mutex<Vec<Arc<InOrderQueue>>>>,
    slowed: Arc<Mutex<Vec<Slowed>>>,
}

impl PartialEq for SolvedQueues {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl SolvedQueues {
    /// The queues for a law and several servers, solved now unless they are kept; `None` for one
    /// server, or if a queue cannot be solved: then the plain form is used.
    fn solve(&self, service: &Empirical, servers: u32) -> Option<Arc<Several>> {
        if servers < 2 {
            return None;
        }
        // The list is consistent even if a thread panicked while it held the lock.
        let mut kept = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |s: &&Arc<Several>| s.servers == servers && s.service == *service;
        if let Some(known) = kept.iter().find(same) {
            return Some(Arc::clone(known));
        }
        let solved = Arc::new(Several::new(service, servers)?);
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Arc::clone(&solved));
        Some(solved)
    }

    /// The queue of shared processors for a law, simulated now unless it is kept.
    fn shared(&self, service: &Empirical, processors: u32) -> Arc<SharedQueue> {
        let mut kept = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| known.is_of(processors, service)) {
            return Arc::clone(known);
        }
        let solved = Arc::new(SharedQueue::new(processors, service));
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Arc::clone(&solved));
        solved
    }
}

impl SolvedQueues {
    /// The queue of works in their order, simulated now unless it is kept.
    pub(super) fn in_order(&self, works: &InOrder) -> Arc<InOrderQueue> {
        let mut kept = self.in_order.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.iter().find(|known| known.is_of(works)) {
            return Arc::clone(known);
        }
        let solved = Arc::new(InOrderQueue::new(works));
        if kept.len() >= KEPT_MAX {
            kept.remove(0);
        }
        kept.push(Arc::clone(&solved));
        solved
    }
}

impl SolvedQueues {
    /// The queue of servers whose speed depends on the number present; its loads are simulated when they are first wanted. Those of the
    /// replicates of a model differ, and all are kept.
    pub(super) fn slowed(&self, slowdown: &Slowdown, class: &Class) -> Arc<SlowdownQueue> {
        let mut kept = self.slowed.lock().unwrap_or_else(PoisonError::into_inner);
        let (servers, is_shared, law) =
            (class.servers, class.discipline.is_shared(), &class.service);
        let same = |known: &&Slowed| known.1.is_of(slowdown, servers, is_shared) && known.0 == *law;
        if let Some(known) = kept.iter().find(same) {
            return Arc::clone(&known.1);
        }
        let works = equally_likely(law);
        let solved = SlowdownQueue::new(slowdown, servers, is_shared, works, law.mean());
        let solved = Arc::new(solved);
        if kept.len() >= SLOWED_MAX {
            kept.remove(0);
        }
        kept.push((law.clone(), Arc::clone(&solved)));
        solved
    }
}

/// A law with its queue.
type Slowed = (Empirical, Arc<SlowdownQueue>);

/// Works of a law over its mean that are equally likely: the middles of equal shares.
fn equally_likely(law: &Empirical) -> Vec<f64> {
    let (pieces, mean) = (law.pieces(), law.mean());
    let (mut at, mut below) = (0, 0.0);
    let work = |i: usize| {
        let share = (i as f64 + 0.5) / WORKS as f64;
        while at + 1 < pieces.len() && below + pieces[at].share < share {
            below += pieces[at].share;
            at += 1;
        }
        pieces.get(at).map_or(0.0, |piece| {
            let part = ((share - below) / piece.share).clamp(0.0, 1.0);
            (piece.centre + piece.half_width * (2.0 * part - 1.0)).max(0.0) / mean
        })
    };
    (0..WORKS).map(work).collect()
}

/// Queues with one law of service and several servers, solved at several utilisations.
#[derive(Debug)]
struct Several {
    /// In descending order, all below 1.
    utilisations: Vec<f64>,
    queues: MgmLoads<Empirical>,
    lowest: f64,
    service: Empirical,
    servers: u32,
}

impl Several {
    fn new(service: &Empirical, servers: u32) -> Option<Several> {
        let lowest = bisect(1.0, |rho| erlang_c(servers, rho) < RARE);
        let at = |k: usize| lowest + (1.0 - lowest) * 0.5 * (1.0 + chebyshev(k));
        // The value at utilisation 1 is known.
        let utilisations: Vec<f64> = (1..POINTS).map(at).collect();
        let queues = MgmLoads::new(servers, service.clone(), &utilisations).ok()?;
        Some(Several { utilisations, queues, lowest, service: service.clone(), servers })
    }

    /// The excess of the response CDF at `t` seconds over the plain form.
    fn excess(&self, plain: &Evaluated, t: f64) -> Option<Excess> {
        let mut values = [0.0; POINTS];
        let (mean, servers) = (self.service.mean(), self.servers);
        let found = self.queues.response_cdfs_at(t);
        for (value, (rho, cdf)) in
            values.iter_mut().skip(1).zip(self.utilisations.iter().zip(found))
        {
            let more = cdf - plain.response_cdf(rho * f64::from(servers) / mean);
            *value = more / erlang_c(servers, *rho);
        }
        let lowest = self.lowest;
        values.iter().all(|v| v.is_finite()).then_some(Excess { values, lowest, mean, servers })
    }
}

/// The k-th Chebyshev point of the second kind, from 1 down to −1.
fn chebyshev(k: usize) -> f64 {
    (std::f64::consts::PI * k as f64 / (POINTS - 1) as f64).cos()
}

/// The excess of the response CDF at one time over the plain form, for any load.
#[derive(Clone, Copy, Debug)]
struct Excess {
    /// The excess divided by the probability of waiting, at the Chebyshev points.
    values: [f64; POINTS],
    lowest: f64,
    mean: f64,
    servers: u32,
}

impl Excess {
    fn excess(&self, rate: f64) -> f64 {
        let rho = rate * self.mean / f64::from(self.servers);
        if rho.is_nan() || rho <= 0.0 || rho >= 1.0 {
            return 0.0;
        }
        let x = (2.0 * (rho.max(self.lowest) - self.lowest) / (1.0 - self.lowest) - 1.0).max(-1.0);
        let (mut above, mut below) = (0.0, 0.0);
        for (k, value) in self.values.iter().enumerate() {
            let apart = x - chebyshev(k);
            if apart == 0.0 {
                return value * erlang_c(self.servers, rho);
            }
            let end = k == 0 || k == POINTS - 1;
            let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
            let weight = sign * if end { 0.5 } else { 1.0 } / apart;
            above += weight * value;
            below += weight;
        }
        above / below * erlang_c(self.servers, rho)
    }
}

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

/// Mean waiting time in seconds of M/G/m; infinite at saturation. Exact for one server and for
/// exponential service.
///
/// Linear in the SCV between the waits of M/D/m and M/M/m (and beyond 1 the same line). The wait of
/// M/D/m is Cosmetatos's approximation, E\[W\] = ½(1 + (1 − ρ)(m − 1)(√(4 + 5m) − 2)/(16ρm))·E\[W\]
/// of M/M/m: G. Cosmetatos, "Approximate explicit formulae for the average queueing time in the
/// processes (M/D/r) and (D/M/r)", INFOR 13 (1975). Cost: Erlang's C.
pub(super) fn waiting_mean(rate: f64, mean: f64, scv: f64, servers: u32) -> f64 {
    let c = f64::from(servers.max(1));
    let rho = rate * mean / c;
    if rho >= 1.0 {
        return f64::INFINITY;
    }
    if servers < 2 || rho <= 0.0 {
        return queue::waiting_mean(rate, mean, scv, 1);
    }
    let exponential = queue::waiting_mean(rate, mean, 1.0, servers);
    // Cosmetatos's term grows without bound as ρ → 0; with constant service requests wait no longer
    // than with exponential service.
    let more = (1.0 - rho) * (c - 1.0) * ((4.0 + 5.0 * c).sqrt() - 2.0) / (16.0 * rho * c);
    let constant = (0.5 * (1.0 + more)).min(1.0);
    let share = constant + scv * (1.0 - constant);
    // A request that finds all servers busy waits at least for the first of m services to end.
    exponential * share.max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::distribution::{Gamma, Lognormal, Piece};
    use crate::queue::{Mgm, Queue};

    use super::*;

    /// A law in pieces of 1/400 of its probability, as measured ones are.
    fn class(law: &dyn ServiceTime, servers: u32) -> Class {
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

    #[test]
    fn queues_are_solved_once_for_a_law_and_its_clones() {
        let class = class(&Gamma::new(0.01, 0.5).unwrap(), 2);
        let first = class.solved.solve(&class.service, 2).unwrap();
        let again = class.clone().solved.solve(&class.service, 2).unwrap();
        assert!(Arc::ptr_eq(&first, &again));
        // Another law, or other servers, are others.
        let slower = class.service.with_moments(0.02, 0.5).unwrap();
        let other = class.solved.solve(&slower, 2).unwrap();
        assert!(!Arc::ptr_eq(&first, &other) && other.service == slower);
        for servers in 3..20 {
            assert_eq!(class.solved.solve(&slower, servers).unwrap().servers, servers);
        }
        assert_eq!(class.solved.line.lock().unwrap().len(), KEPT_MAX);
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
