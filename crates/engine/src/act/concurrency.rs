//! A bound of concurrent requests that adapts to the gradient of the response against the concurrency.
//!
//! With n requests at a service whose response is R(n), throughput is n/R(n) (Little). While the elasticity
//! d ln R / d ln n is below 1, a further concurrent request increases the throughput; where it is 1, the request only
//! waits. The bound alternates between a step above and a step below its centre, and the mean response is measured under both.
//! The centre moves up while the elasticity between the two is small, and down while it is near 1. It settles where the servers
//! become saturated, whatever their number and speed. In simulation, throughput is 0.94 to 0.97 of the maximum with 32 servers and
//! 0.89 with 4 (half of the time is spent below the centre), with 1.1 to 1.3 concurrent requests per server.
//!
//! The centre moves freely between half and twice an approved bound ([`Settings::free`]). At these limits it waits:
//! [`Concurrency::advice`] states the wanted bound, and [`Order::Move`] approves it. So [`super::Governor`] decides on large
//! changes only, and random moves around the knee do not fill the journal.
//!
//! Only replies to requests that were admitted while the bound was reached count: below it, the bound limits nothing.
//! A fixed bound remains the upper limit (`most`). Limitation: a mix of requests whose work changes with the load can
//! mislead the search.
//!
//! This module has no clock. Cost: a few additions for a reply.

use serde::{Deserialize, Serialize};

/// The settings of a [`Concurrency`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The bound at the beginning.
    pub initial: u32,
    /// The smallest bound, at least 1.
    pub least: u32,
    /// The largest.
    pub most: u32,
    /// The share by which the bound is moved up and down to measure, above 0 and below 1.
    pub step: f64,
    /// Number of replies of one measurement. The error of an elasticity falls with its square root.
    pub answers: u32,
    /// Elasticities above which the centre goes down and below which it goes up.
    pub elasticities: (f64, f64),
    /// The factor by which the centre may differ from the approved bound, at least 1.
    pub free: f64,
}

/// A decision on a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// The advised bound is approved.
    Move,
    /// The bound stays constant (`true`), or may move again (`false`).
    Freeze(bool),
}

/// A bound beyond the approved limits that the search would choose.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Advice {
    /// The approved bound.
    pub from: u32,
    /// The advised bound.
    pub to: u32,
    /// The growth of responses in per cent when concurrency grows by 1 %.
    pub elasticity: f64,
    /// Mean response at the present bound, seconds.
    pub response_s: f64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            initial: 16,
            least: 2,
            most: 1024,
            step: 0.2,
            answers: 400,
            elasticities: (0.8, 0.6),
            free: 2.0,
        }
    }
}

/// Weight of the newest elasticity.
const SMOOTHING: f64 = 0.4;

/// A bound of concurrent requests.
///
/// ```
/// use engine::act::concurrency::{Concurrency, Order, Settings};
///
/// let mut bound = Concurrency::new(Settings::default());
/// // A service whose response does not depend on the concurrency: more is better.
/// let before = bound.bound();
/// for _ in 0..10_000 {
///     bound.record_response(0.010, true);
/// }
/// let advice = bound.advice().expect("it is at the end of what was approved");
/// assert!(advice.from == 16 && advice.to > 16);
/// bound.order(Order::Move);
/// for _ in 0..10_000 {
///     bound.record_response(0.010, true);
/// }
/// assert!(bound.bound() > 2 * before);
/// ```
#[derive(Clone, Debug)]
pub struct Concurrency {
    settings: Settings,
    centre: f64,
    /// The bound about which the centre moves freely.
    approved: f64,
    /// Where the centre wants to go beyond that.
    wanted: Option<f64>,
    frozen: bool,
    /// Mean response about the centre, as last measured.
    response_s: f64,
    /// Whether the bound is above its centre now.
    up: bool,
    /// Answers to leave out: they were admitted under the other bound.
    skip: u32,
    count: u32,
    sum_s: f64,
    /// Mean response below the centre.
    below_s: Option<f64>,
    elasticity: Option<f64>,
}

impl Concurrency {
    /// A bound that nothing is known of.
    pub fn new(settings: Settings) -> Concurrency {
        Concurrency {
            settings,
            centre: f64::from(settings.initial),
            approved: f64::from(settings.initial),
            wanted: None,
            frozen: false,
            response_s: 0.0,
            up: false,
            skip: 0,
            count: 0,
            sum_s: 0.0,
            below_s: None,
            elasticity: None,
        }
    }

    /// The largest number of requests at a time now.
    pub fn bound(&self) -> u32 {
        let (low, high) = self.bounds();
        (if self.up { high } else { low }) as u32
    }

    /// Below and above the centre: whole numbers, one apart at least where the limits allow it.
    fn bounds(&self) -> (f64, f64) {
        let Settings { least, most, step, .. } = self.settings;
        let (least, most) = (f64::from(least.max(1)), f64::from(most.max(least).max(1)));
        let low = (self.centre * (1.0 - step)).floor().clamp(least, most);
        let high = (self.centre * (1.0 + step)).ceil().max(low + 1.0);
        (low, high.clamp(least, most))
    }

    /// Where it wants to go beyond what was approved; `None` while it does not.
    pub fn advice(&self) -> Option<Advice> {
        let (to, elasticity) = (self.wanted?, self.elasticity?);
        let (from, to) = (self.approved.round() as u32, to.round() as u32);
        let response_s = self.response_s;
        (from != to).then_some(Advice { from, to, elasticity, response_s })
    }

    /// Mean response about the present bound, seconds; 0 before it was measured.
    pub fn response_s(&self) -> f64 {
        self.response_s
    }

    /// Does as it is told.
    pub fn order(&mut self, order: Order) {
        match order {
            Order::Freeze(frozen) => self.frozen = frozen,
            Order::Move => {
                if let Some(wanted) = self.wanted.take() {
                    (self.centre, self.approved) = (wanted, wanted);
                    // What was measured belongs to another bound.
                    (self.below_s, self.count, self.sum_s) = (None, 0, 0.0);
                    self.up = false;
                    self.skip = self.bound();
                }
            }
        }
    }

    /// The elasticity of response against concurrency about the present bound; `None` before it was measured.
    pub fn elasticity(&self) -> Option<f64> {
        self.elasticity
    }

    /// Takes the response of a request in seconds; `full` says whether the bound was reached when it was
    /// admitted, itself included.
    pub fn record_response(&mut self, response_s: f64, full: bool) {
        if !full || !response_s.is_finite() || response_s <= 0.0 {
            return;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        self.count += 1;
        self.sum_s += response_s;
        if self.count < self.settings.answers.max(1) {
            return;
        }
        let mean_s = self.sum_s / f64::from(self.count);
        (self.count, self.sum_s) = (0, 0.0);
        if self.up {
            if let Some(below_s) = self.below_s.take() {
                self.adapt(below_s, mean_s);
            }
        } else {
            self.below_s = Some(mean_s);
        }
        self.up = !self.up;
        self.skip = self.bound();
    }

    fn adapt(&mut self, below_s: f64, above_s: f64) {
        let (low, high) = self.bounds();
        if high <= low {
            return;
        }
        let newest = (above_s / below_s).ln() / (high / low).ln();
        let elasticity = match self.elasticity {
            Some(last) => last + SMOOTHING * (newest - last),
            None => newest,
        };
        self.elasticity = Some(elasticity);
        self.response_s = (above_s + below_s) / 2.0;
        let Settings { step, least, most, elasticities: (down, up), free, .. } = self.settings;
        let factor = match elasticity {
            e if e > down => 1.0 / (1.0 + step / 2.0),
            e if e < up => 1.0 + step / 2.0,
            _ => 1.0,
        };
        let (least, most) = (f64::from(least.max(1)), f64::from(most.max(least).max(1)));
        let moved = (self.centre * factor).clamp(least, most);
        let free = if self.frozen { 1.0 } else { free.max(1.0) };
        let (low, high) = (self.approved / free, self.approved * free);
        self.wanted = (moved < low || moved > high).then_some(moved);
        if !self.frozen {
            self.centre = moved.clamp(low, high);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::{BinaryHeap, VecDeque};

    use rand::SeedableRng;
    use rand::rngs::SmallRng;

    use super::*;
    use crate::sim::Law;

    /// A service of some servers, asked by so many clients at once; past the bound they wait outside.
    struct Service {
        now: u64,
        servers: usize,
        busy: BinaryHeap<Reverse<(u64, u64, bool)>>,
        waiting: VecDeque<(u64, bool)>,
        random: SmallRng,
        law: Law,
    }

    impl Service {
        fn new(servers: usize) -> Service {
            Service {
                now: 0,
                servers,
                busy: BinaryHeap::new(),
                waiting: VecDeque::new(),
                random: SmallRng::seed_from_u64(7),
                law: Law::exponential(0.010),
            }
        }

        fn inside(&self) -> usize {
            self.busy.len() + self.waiting.len()
        }

        /// Answers so many requests of `clients` that ask again at once; returns throughput per second, and the
        /// mean bound.
        fn run(&mut self, bound: &mut Concurrency, clients: usize, answers: u32) -> (f64, f64) {
            let (began, mut bounds) = (self.now, 0.0);
            for _ in 0..answers {
                let most = bound.bound() as usize;
                while self.inside() < most.min(clients) {
                    let full = self.inside() + 1 >= most;
                    self.waiting.push_back((self.now, full));
                }
                while self.busy.len() < self.servers {
                    let Some((arrived, full)) = self.waiting.pop_front() else { break };
                    let ends = self.now + self.law.draw(&mut self.random);
                    self.busy.push(Reverse((ends, arrived, full)));
                }
                let Some(Reverse((ends, arrived, full))) = self.busy.pop() else { break };
                self.now = ends;
                bound.record_response((ends - arrived) as f64 * 1e-9, full);
                bound.order(Order::Move);
                bounds += f64::from(bound.bound());
            }
            let seconds = (self.now - began) as f64 * 1e-9;
            (f64::from(answers) / seconds, bounds / f64::from(answers))
        }
    }

    #[test]
    fn the_bound_is_found_and_follows_a_change() {
        for (initial, servers) in [(4, 32), (200, 32), (200, 4)] {
            let mut bound = Concurrency::new(Settings { initial, ..Settings::default() });
            let mut service = Service::new(servers);
            service.run(&mut bound, 1000, 60_000);
            let (throughput, mean) = service.run(&mut bound, 1000, 40_000);
            let most = servers as f64 / 0.010;
            assert!(throughput > 0.85 * most, "from {initial}: {throughput} of {most}");
            // A fixed bound of 1024 would have all clients wait inside.
            assert!(mean < 2.5 * servers as f64, "from {initial}: {mean} for {servers} servers");
            service.servers = servers * 2;
            service.run(&mut bound, 1000, 60_000);
            let (throughput, _) = service.run(&mut bound, 1000, 40_000);
            assert!(throughput > 1.75 * most, "twice as many: {throughput} of {}", 2.0 * most);
        }
    }

    #[test]
    fn a_bound_that_does_not_limit_stays() {
        let mut bound = Concurrency::new(Settings { initial: 100, ..Settings::default() });
        let mut service = Service::new(32);
        let before = bound.bound();
        service.run(&mut bound, 8, 20_000);
        assert_eq!((bound.bound(), bound.elasticity()), (before, None));
        // Nor does nonsense move it.
        (0..10_000).for_each(|_| bound.record_response(f64::NAN, true));
        assert_eq!(bound.bound(), before);
    }

    #[test]
    fn the_limits_hold() {
        let settings =
            Settings { initial: 10, least: 5, most: 40, answers: 10, ..Settings::default() };
        let mut bound = Concurrency::new(settings);
        for _ in 0..10_000 {
            bound.record_response(1.0, true);
            bound.order(Order::Move);
            assert!(bound.bound() <= 40);
        }
        assert!(bound.bound() >= 30, "a response that does not rise");
        for _ in 0..10_000 {
            let response_s = f64::from(bound.bound());
            bound.record_response(response_s, true);
            bound.order(Order::Move);
            assert!(bound.bound() >= 5);
        }
        assert!(bound.bound() <= 6, "a response that rises as the concurrency");
    }

    #[test]
    fn beyond_what_was_approved_it_waits_and_frozen_it_stays() {
        let settings = Settings { answers: 10, ..Settings::default() };
        let mut bound = Concurrency::new(settings);
        (0..100_000).for_each(|_| bound.record_response(1.0, true));
        assert!(bound.bound() <= 39, "{} with 16 approved", bound.bound());
        let advice = bound.advice().unwrap();
        assert_eq!((advice.from, advice.response_s), (16, 1.0));
        assert!(advice.to > 32 && advice.elasticity < 0.1, "{advice:?}");
        bound.order(Order::Move);
        bound.order(Order::Freeze(true));
        (0..100_000).for_each(|_| bound.record_response(1.0, true));
        assert!(bound.bound() <= 43 && bound.advice().is_some(), "{}", bound.bound());
        bound.order(Order::Freeze(false));
        (0..100_000).for_each(|_| bound.record_response(1.0, true));
        assert!(bound.bound() > 43);
    }
}
