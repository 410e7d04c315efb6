//! Queues of several servers, solved once for each law and kept.
//!
//! A request waits with Erlang's probability C. The difference of [`Mgm`] and [`Evaluated`], divided by C, is a smooth function
//! of the utilisation from 0 to 1, and 0 at 1, where both CDFs are 0. It is computed at [`POINTS`]
//! Chebyshev points of the utilisations at which C is not negligible, and interpolated by the
//! barycentric formula (J.-P. Berrut, L. N. Trefethen, "Barycentric Lagrange interpolation", SIAM
//! Review 46, 2004). With one server there is no difference, and nothing is computed.
//!
//! Likewise the mean wait over that of Cosmetatos's formula, which is 1 at saturation: two laws of one variance have one mean wait by that
//! formula, which was up to a fifth too long (lognormal, SCV 9, four servers at 75 %).
//!
//! Cost: [`POINTS`] − 1 queues for a law, some tens of milliseconds up to 16 servers and 0.2 s past
//! them; once, because a class keeps them ([`SolvedQueues`]).
//!
//! [`Mgm`]: crate::queue::Mgm

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use crate::bisection::bisect;
use crate::distribution::{Empirical, ServiceTime};
use crate::queue::{
    Evaluated, InOrder, InOrderQueue, MgmLoads, SharedQueue, Slowdown, SlowdownQueue, erlang_c,
};

use super::cosmetatos::waiting_mean;

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

/// The queues solved for a [`super::Class`]. Clones share them. The law and servers they were solved for
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
    pub(super) fn solve(&self, service: &Empirical, servers: u32) -> Option<Arc<Several>> {
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
    pub(super) fn shared(&self, service: &Empirical, processors: u32) -> Arc<SharedQueue> {
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
    pub(super) fn slowed(
        &self,
        slowdown: &Slowdown,
        servers: u32,
        is_shared: bool,
        law: &Empirical,
    ) -> Arc<SlowdownQueue> {
        let mut kept = self.slowed.lock().unwrap_or_else(PoisonError::into_inner);
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
pub(super) struct Several {
    /// In descending order, all below 1.
    utilisations: Vec<f64>,
    queues: MgmLoads<Empirical>,
    lowest: f64,
    service: Empirical,
    servers: u32,
    /// The mean waits at the points over those of Cosmetatos's formula, computed when they are first wanted.
    wait_ratios: OnceLock<[f64; POINTS]>,
}

impl Several {
    fn new(service: &Empirical, servers: u32) -> Option<Several> {
        let lowest = bisect(1.0, |rho| erlang_c(servers, rho) < RARE);
        let at = |k: usize| lowest + (1.0 - lowest) * 0.5 * (1.0 + chebyshev(k));
        // The value at utilisation 1 is known.
        let utilisations: Vec<f64> = (1..POINTS).map(at).collect();
        let queues = MgmLoads::new(servers, service.clone(), &utilisations).ok()?;
        let (service, wait_ratios) = (service.clone(), OnceLock::new());
        Some(Several { utilisations, queues, lowest, service, servers, wait_ratios })
    }

    /// The mean wait at a utilisation over that of Cosmetatos's formula.
    pub(super) fn wait_ratio(&self, utilisation: f64) -> f64 {
        let (mean, scv) = (self.service.mean(), self.service.scv());
        let ratios = self.wait_ratios.get_or_init(|| {
            let mut ratios = [1.0; POINTS];
            let solved = self.utilisations.iter().zip(self.queues.waiting_means());
            for (ratio, (rho, wait)) in ratios.iter_mut().skip(1).zip(solved) {
                let rate = rho * f64::from(self.servers) / mean;
                *ratio = wait / waiting_mean(rate, mean, scv, self.servers);
            }
            // Where a queue could not be solved, the formula stands.
            let known = ratios.iter().all(|ratio| ratio.is_finite() && *ratio > 0.0);
            if known { ratios } else { [1.0; POINTS] }
        });
        interpolated(ratios, self.lowest, utilisation)
    }

    /// The excess of the response CDF at `t` seconds over the plain form.
    pub(super) fn excess(&self, plain: &Evaluated, t: f64) -> Option<Excess> {
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

/// What is known at the Chebyshev points of the utilisations from `lowest` to 1, at another one; below `lowest` as there.
fn interpolated(values: &[f64; POINTS], lowest: f64, utilisation: f64) -> f64 {
    let x = (2.0 * (utilisation.max(lowest) - lowest) / (1.0 - lowest) - 1.0).max(-1.0);
    let (mut above, mut below) = (0.0, 0.0);
    for (k, value) in values.iter().enumerate() {
        let apart = x - chebyshev(k);
        if apart == 0.0 {
            return *value;
        }
        let end = k == 0 || k == POINTS - 1;
        let sign = if k % 2 == 0 { 1.0 } else { -1.0 };
        let weight = sign * if end { 0.5 } else { 1.0 } / apart;
        above += weight * value;
        below += weight;
    }
    above / below
}

/// The excess of the response CDF at one time over the plain form, for any load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Excess {
    /// The excess divided by the probability of waiting, at the Chebyshev points.
    pub(super) values: [f64; POINTS],
    pub(super) lowest: f64,
    pub(super) mean: f64,
    pub(super) servers: u32,
}

impl Excess {
    pub(super) fn excess(&self, rate: f64) -> f64 {
        let rho = rate * self.mean / f64::from(self.servers);
        if rho.is_nan() || rho <= 0.0 || rho >= 1.0 {
            return 0.0;
        }
        interpolated(&self.values, self.lowest, rho) * erlang_c(self.servers, rho)
    }
}

#[cfg(test)]
mod tests {
    use crate::distribution::Gamma;
    use crate::storage::several::tests::class;

    use super::*;

    /// At loads between those that were solved, and of laws with one variance and unlike waits.
    #[test]
    fn mean_waits_are_those_of_the_solved_queue() {
        use crate::distribution::{Hyperexponential, Lognormal};
        use crate::queue::{Mgm, Queue};
        let laws: [Box<dyn ServiceTime>; 4] = [
            Box::new(Gamma::new(0.01, 0.5).unwrap()),
            Box::new(Lognormal::new(0.01, 4.0).unwrap()),
            Box::new(Lognormal::new(0.01, 9.0).unwrap()),
            Box::new(Hyperexponential::new(&[(0.9, 0.005), (0.1, 0.055)]).unwrap()),
        ];
        for (law, servers) in laws.iter().zip([3, 4, 4, 4]) {
            let class = class(&**law, servers);
            for utilisation in [0.2, 0.5, 0.62, 0.75, 0.93] {
                let rate = utilisation * f64::from(servers) / 0.01;
                let naive = Mgm::new(rate, servers, class.service.clone()).unwrap();
                let (found, known) = (class.waiting_mean(rate, 1.0), naive.waiting_mean());
                let off = (found - known).abs() / naive.response_mean();
                assert!(off < 0.004, "{servers} {utilisation}: {found} {known}");
                // A device twice as slow waits twice as long for half the rate.
                let slow = class.waiting_mean(rate / 2.0, 2.0);
                assert!((slow / found / 2.0 - 1.0).abs() < 1e-9);
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
}
