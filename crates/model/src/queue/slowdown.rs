//! Servers whose speed depends on how many requests are present.
//!
//! A contended lock, a pool that thrashes, a budget that the kernel refills in slices: with n requests inside each server works at
//! s(n) times its speed alone, so that μ(n) = min(n, m)·s(n) requests leave in a mean work. Where μ falls with n such a queue is
//! *metastable*: it may settle at a load λ although more requests inside are answered more slowly than λ. Chance then drives it
//! out of the settled state after a time that is exponential in its depth, and it does not come back.
//!
//! | what | from |
//! |---|---|
//! | the number n* from which on μ(n) ≤ λ: beyond it the queue grows for ever | the speeds |
//! | the mean time to n*, from an empty queue | first passage of a birth-death chain (S. Karlin, H. Taylor, "A First Course in Stochastic Processes", 1975, section 4.7), exact for exponential works |
//! | the tipping load: the largest λ at which that time is [`HORIZON_S`] or more | bisection |
//! | responses while it is settled | simulation at a few loads below the tipping load |
//!
//! For works with another squared coefficient of variation c² the ratio λ/μ(n) of a step of the chain is raised to 2/(1 + c²), by which
//! the number in M/G/1 decays under heavy traffic.
//!
//! Limitations: Poisson arrivals; the speed depends on the number alone, not on what happened before. Cost: some milliseconds for the tipping load and
//! for each simulated load, once.

use std::collections::{BinaryHeap, VecDeque};
use std::sync::OnceLock;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::error::{Error, check, not_negative, positive};

/// The mean time for which a load that holds stays settled, seconds. The tipping load depends on it weakly: where a service collapses
/// past 20 requests, six times as long lowers it by some 5 %.
pub const HORIZON_S: f64 = 600.0;
/// The same in mean works, for services whose works take so long that ten minutes are a few of them.
const HORIZON_WORKS: f64 = 10_000.0;

/// Numbers beyond this count as never reached.
const NUMBER_MAX: u32 = 100_000;
/// Requests that are followed at each simulated load, after those that fill the queue.
const FOLLOWED: usize = 40_000;
const FILLED: usize = 2_000;
/// Escapes after which a simulation ends with what it has.
const ESCAPES: u32 = 40;
/// Quantiles of the responses that are kept.
const KEPT: usize = 1_000;
/// Simulated loads, as parts of the tipping load.
const PARTS: [f64; 11] = [0.0, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97, 1.0];

/// The speed of servers by the number of requests present.
///
/// ```
/// use model::queue::Slowdown;
/// // As fast as alone with up to 8 requests inside, 0.7 times with 16, and as slow with more.
/// let slowdown = Slowdown::new(vec![1.0, 8.0, 16.0], vec![1.0, 1.0, 0.7], 0.0)?;
/// assert_eq!((slowdown.speed(4.0), slowdown.speed(16.0), slowdown.speed(100.0)), (1.0, 0.7, 0.7));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Slowdown {
    /// Numbers of requests present, ascending from 1.
    numbers: Vec<f64>,
    /// The speed of each server with so many, over that in which works are counted.
    speeds: Vec<f64>,
    /// Beyond the last number n the speed falls as (n/last)^(−tail); 0: it stays.
    tail: f64,
}

impl Slowdown {
    /// Speeds at some numbers; between these they are linear in the logarithm of the number.
    ///
    /// # Errors
    /// [`Error::Invalid`] for numbers that do not ascend from 1 or more, and for speeds that are not above 0.
    pub fn new(numbers: Vec<f64>, speeds: Vec<f64>, tail: f64) -> Result<Slowdown, Error> {
        let pairs = numbers.len().min(speeds.len()) as f64;
        let same = numbers.len().max(speeds.len()) as f64;
        check("the speeds by the number inside", pairs, same.max(1.0)..=256.0, "1 to 256 pairs")?;
        let mut least = 1.0;
        for number in &numbers {
            let must = "ascending from 1 to a million";
            check("a number of requests inside", *number, least..=1e6, must)?;
            least = number * 1.000_001;
        }
        for speed in &speeds {
            positive("a speed by the number inside", *speed)?;
            check("a speed by the number inside", *speed, 1e-9..=1e9, "1e-9 to 1e9")?;
        }
        not_negative("the tail of a slowdown", tail)?;
        check("the tail of a slowdown", tail, 0.0..=8.0, "0 to 8")?;
        Ok(Slowdown { numbers, speeds, tail })
    }

    /// The speed with a number of requests present.
    pub fn speed(&self, number: f64) -> f64 {
        let next = self.numbers.partition_point(|known| *known < number);
        let last = self.numbers.len() - 1;
        if next > last {
            return self.speeds[last] * (number / self.numbers[last]).powf(-self.tail);
        }
        if next == 0 {
            return self.speeds[0];
        }
        let (low, high) = (self.numbers[next - 1], self.numbers[next]);
        let part = (number / low).ln() / (high / low).ln();
        (1.0 - part) * self.speeds[next - 1] + part * self.speeds[next]
    }

    /// The largest number at which it was fitted.
    pub fn known_to(&self) -> f64 {
        self.numbers[self.numbers.len() - 1]
    }

    /// Requests that leave in a mean work with a number of them present.
    fn departures(&self, number: u32, servers: u32) -> f64 {
        f64::from(number.min(servers)) * self.speed(f64::from(number))
    }

    /// The fewest that leave in a mean work while all servers are busy, as far as the speeds are known: at a larger load a queue
    /// that has grown long does not become shorter.
    pub fn least_departures(&self, servers: u32) -> f64 {
        let from = servers.max(self.peak(servers));
        let to = (self.known_to().ceil() as u32).max(from);
        (from..=to).map(|n| self.departures(n, servers)).fold(f64::INFINITY, f64::min)
    }

    /// The number at which most requests leave.
    pub fn peak(&self, servers: u32) -> u32 {
        let to = (self.known_to().ceil() as u32).max(servers).max(1);
        let by = |a: &u32, b: &u32| {
            self.departures(*a, servers).total_cmp(&self.departures(*b, servers))
        };
        (1..=to).max_by(by).unwrap_or(1)
    }

    /// The largest number at which more than `load` requests leave in a mean work: beyond it the queue grows for ever.
    /// `None` if it never does.
    fn last_above(&self, load: f64, servers: u32) -> Option<u32> {
        let last = (self.known_to().ceil() as u32).max(servers);
        if self.departures(last, servers) > load {
            if self.tail <= 0.0 {
                return None;
            }
            let beyond = (self.departures(last, servers) / load).powf(1.0 / self.tail);
            let number = f64::from(last) * beyond;
            return (number < f64::from(NUMBER_MAX)).then_some(number as u32);
        }
        Some((1..last).rev().find(|n| self.departures(*n, servers) > load).unwrap_or(0))
    }

    /// A number from which hardly any queue comes back: a quarter and eight past the last from which it tends to, where as many come
    /// back as do not.
    fn gone(&self, load: f64, servers: u32) -> Option<u32> {
        self.last_above(load, servers).map(|last| last + last / 4 + 8)
    }

    /// The mean time, in mean works, in which a load of so many requests in a mean work drives an empty queue past the numbers from
    /// which it comes back; infinite if it comes back from all.
    pub fn escape_mean(&self, load: f64, servers: u32, scv: f64) -> f64 {
        let Some(last) = self.gone(load, servers) else { return f64::INFINITY };
        let power = 2.0 / (1.0 + scv.max(0.0));
        // The mean time from k to k + 1.
        let (mut step, mut all) = (1.0 / load, 1.0 / load);
        for k in 1..=last {
            let ratio = self.departures(k, servers) / load;
            let ratio = if k > servers { ratio.powf(power) } else { ratio };
            step = 1.0 / load + ratio * step;
            all += step;
            if !all.is_finite() {
                break;
            }
        }
        all
    }

    /// The largest load, requests in a mean work, at which [`Slowdown::escape_mean`] is at least `horizon` mean works.
    pub fn tipping_load(&self, servers: u32, scv: f64, horizon: f64) -> f64 {
        let most = self.departures(self.peak(servers), servers);
        let (mut low, mut high) = (0.0, most);
        while high - low > 1e-9 * most {
            let middle = 0.5 * (low + high);
            if self.escape_mean(middle, servers, scv) >= horizon {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// A simulated load.
#[derive(Debug)]
struct Load {
    /// The mean response, in mean works.
    mean: f64,
    /// Servers that are busy, on average.
    busy: f64,
    /// Quantiles of the responses, in mean works.
    quantiles: Vec<f64>,
}

/// Servers with a [`Slowdown`], while the queue is settled, at any load below the tipping load. Deterministic.
#[derive(Debug)]
pub(crate) struct SlowdownQueue {
    slowdown: Slowdown,
    servers: u32,
    is_shared: bool,
    /// Works over their mean, equally likely.
    works: Vec<f64>,
    tipping: f64,
    loads: [OnceLock<Load>; PARTS.len()],
}

impl SlowdownQueue {
    /// `is_shared`: whether all present share the servers; else they are served in the order of arrival. `works`: equally likely works over their
    /// mean of `mean_s` seconds.
    pub(crate) fn new(
        slowdown: &Slowdown,
        servers: u32,
        is_shared: bool,
        works: Vec<f64>,
        mean_s: f64,
    ) -> SlowdownQueue {
        let servers = servers.max(1);
        let horizon = (HORIZON_S / mean_s).max(HORIZON_WORKS);
        let n = works.len().max(1) as f64;
        let mean = works.iter().sum::<f64>() / n;
        let scv = works.iter().map(|work| (work / mean - 1.0).powi(2)).sum::<f64>() / n;
        let tipping = slowdown.tipping_load(servers, scv, horizon);
        let slowdown = slowdown.clone();
        SlowdownQueue { slowdown, servers, is_shared, works, tipping, loads: Default::default() }
    }

    pub(crate) fn is_of(&self, slowdown: &Slowdown, servers: u32, is_shared: bool) -> bool {
        let same = (self.servers, self.is_shared) == (servers.max(1), is_shared);
        same && self.slowdown == *slowdown
    }

    /// The tipping load, requests in a mean work.
    pub(crate) fn tipping(&self) -> f64 {
        self.tipping
    }

    /// A simulated load, simulated now unless it was.
    fn load(&self, index: usize) -> &Load {
        self.loads[index].get_or_init(|| {
            let load = PARTS[index] * self.tipping;
            simulated(&self.slowdown, self.servers, self.is_shared, &self.works, load)
        })
    }

    /// The loads beside one, and the part of the second.
    fn beside(&self, load: f64) -> (&Load, &Load, f64) {
        let part = (load / self.tipping).clamp(0.0, 1.0);
        let next = PARTS.partition_point(|known| *known <= part).clamp(1, PARTS.len() - 1);
        let of = (part - PARTS[next - 1]) / (PARTS[next] - PARTS[next - 1]);
        (self.load(next - 1), self.load(next), of)
    }

    /// The mean response in mean works, of so many requests in a mean work; infinite past the tipping load.
    pub(crate) fn response_mean(&self, load: f64) -> f64 {
        if load.is_nan() || load > self.tipping {
            return f64::INFINITY;
        }
        let (before, after, part) = self.beside(load);
        ((1.0 - part) * before.mean.ln() + part * after.mean.ln()).exp()
    }

    /// Servers that are busy, on average; all of them past the tipping load.
    pub(crate) fn busy(&self, load: f64) -> f64 {
        if load.is_nan() || load > self.tipping {
            return f64::from(self.servers);
        }
        let (before, after, part) = self.beside(load);
        (1.0 - part) * before.busy + part * after.busy
    }

    /// P(response time ≤ `t` mean works); 0 past the tipping load.
    pub(crate) fn response_cdf(&self, t: f64, load: f64) -> f64 {
        if load.is_nan() || t.is_nan() || load > self.tipping || t < 0.0 {
            return 0.0;
        }
        let over = t / self.response_mean(load);
        let (before, after, part) = self.beside(load);
        let share = |of: &Load| {
            let t = over * of.mean;
            of.quantiles.partition_point(|q| *q <= t) as f64 / KEPT as f64
        };
        (1.0 - part) * share(before) + part * share(after)
    }
}

/// When a request is done, by the work that each in service was given; the earliest first in a heap.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Due {
    given: f64,
    arrival: f64,
}

impl Eq for Due {}

impl Ord for Due {
    fn cmp(&self, other: &Due) -> std::cmp::Ordering {
        other.given.total_cmp(&self.given)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Due) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Servers in virtual time: all requests in service progress at one speed, so that a heap of what each must be given suffices.
struct Simulation<'a> {
    slowdown: &'a Slowdown,
    servers: u32,
    shared: bool,
    /// Speeds by the number present.
    speeds: Vec<f64>,
    now: f64,
    given: f64,
    serving: BinaryHeap<Due>,
    /// Arrivals and works of those that wait.
    waiting: VecDeque<(f64, f64)>,
    busy: f64,
}

impl<'a> Simulation<'a> {
    fn new(slowdown: &'a Slowdown, servers: u32, shared: bool) -> Simulation<'a> {
        let mut simulation = Simulation {
            slowdown,
            servers,
            shared,
            speeds: Vec::new(),
            now: 0.0,
            given: 0.0,
            serving: BinaryHeap::new(),
            waiting: VecDeque::new(),
            busy: 0.0,
        };
        simulation.speeds = (0..2_048).map(|n| simulation.speed_of(n)).collect();
        simulation
    }

    fn speed_of(&self, present: u32) -> f64 {
        let speed = self.slowdown.speed(f64::from(present.max(1)));
        let part = f64::from(self.servers) / f64::from(present.max(1));
        if self.shared { speed * part.min(1.0) } else { speed }
    }

    fn present(&self) -> usize {
        self.serving.len() + self.waiting.len()
    }

    fn speed(&self) -> f64 {
        let present = self.present();
        self.speeds.get(present).copied().unwrap_or_else(|| self.speed_of(present as u32))
    }

    /// When the next request leaves, if none comes before.
    fn next_end(&self) -> f64 {
        let next = self.serving.peek();
        next.map_or(f64::INFINITY, |due| self.now + (due.given - self.given) / self.speed())
    }

    fn advance(&mut self, to: f64) {
        let servers = self.serving.len().min(self.servers as usize);
        self.busy += (to - self.now) * servers as f64;
        self.given += (to - self.now) * self.speed();
        self.now = to;
    }

    fn arrive(&mut self, work: f64) {
        if self.shared || self.serving.len() < self.servers as usize {
            self.serving.push(Due { given: self.given + work, arrival: self.now });
        } else {
            self.waiting.push_back((self.now, work));
        }
    }

    /// Ends the next request; returns its response.
    fn leave(&mut self) -> f64 {
        let Some(due) = self.serving.pop() else { return 0.0 };
        self.given = due.given;
        if let Some((arrival, work)) = self.waiting.pop_front() {
            self.serving.push(Due { given: self.given + work, arrival });
        }
        self.now - due.arrival
    }

    fn clear(&mut self) {
        self.serving.clear();
        self.waiting.clear();
    }
}

/// A load of so many requests in a mean work. Excursions that do not come back are left out: they are no part of the settled state.
fn simulated(slowdown: &Slowdown, servers: u32, is_shared: bool, works: &[f64], load: f64) -> Load {
    let mut random = StdRng::seed_from_u64(71);
    let mut run = Simulation::new(slowdown, servers, is_shared);
    let work = |random: &mut StdRng| works[random.random_range(0..works.len())];
    let gone = slowdown.gone(load, servers).map_or(usize::MAX, |gone| gone as usize);
    let (mut all, mut open): (Vec<f64>, Vec<f64>) = (Vec::with_capacity(FOLLOWED), Vec::new());
    let (mut filled, mut escapes) = (0, 0);
    let mut comes = 0.0;
    while all.len() + open.len() < FOLLOWED && escapes < ESCAPES {
        let end = run.next_end();
        if comes <= end {
            run.advance(comes);
            run.arrive(work(&mut random));
            comes = match load > 0.0 {
                true => run.now - (1.0 - random.random::<f64>()).ln() / load,
                false => run.next_end() * (1.0 + 1e-12) + 1.0,
            };
            if run.present() > gone {
                open.clear();
                run.clear();
                escapes += 1;
            }
        } else {
            run.advance(end);
            let response = run.leave();
            filled += 1;
            if filled > FILLED {
                open.push(response);
            }
            if run.present() == 0 {
                all.append(&mut open);
            }
        }
    }
    let busy = run.busy / run.now.max(f64::MIN_POSITIVE);
    all.append(&mut open);
    if all.is_empty() {
        all.push(f64::INFINITY);
    }
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    all.sort_by(f64::total_cmp);
    let at = |k: usize| all[((k as f64 + 0.5) / KEPT as f64 * all.len() as f64) as usize];
    let busy = if load > 0.0 { busy } else { 0.0 };
    Load { mean, busy, quantiles: (0..KEPT).map(at).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{Empirical, Piece};
    use crate::queue::{Discipline, Mg1, Mmm, Queue};

    /// Works of mean 1, by their quantiles.
    fn works(quantile: impl Fn(f64) -> f64) -> Vec<f64> {
        let mut all: Vec<f64> =
            (0..16_384).map(|i| quantile((f64::from(i) + 0.5) / 16_384.0)).collect();
        let mean = all.iter().sum::<f64>() / 16_384.0;
        all.iter_mut().for_each(|work| *work /= mean);
        all
    }

    fn exponential() -> Vec<f64> {
        works(|u| -(1.0 - u).ln())
    }

    fn even() -> Vec<f64> {
        works(|u| 0.5 + u)
    }

    fn queue(
        slowdown: &Slowdown,
        servers: u32,
        discipline: Discipline,
        works: &[f64],
    ) -> SlowdownQueue {
        SlowdownQueue::new(slowdown, servers, discipline.is_shared(), works.to_vec(), 0.01)
    }

    fn plain() -> Slowdown {
        Slowdown::new(vec![1.0], vec![1.0], 0.0).unwrap()
    }

    /// Without a change of speed it is the queue of one server, or of several.
    #[test]
    fn servers_of_one_speed_are_those_of_the_formulas() {
        let law = exponential();
        for (servers, discipline) in
            [(1, Discipline::Fifo), (3, Discipline::Fifo), (2, Discipline::Shared)]
        {
            let queue = queue(&plain(), servers, discipline, &law);
            assert!((queue.tipping() - f64::from(servers)).abs() < 1e-6, "{}", queue.tipping());
            for rho in [0.0, 0.3, 0.55, 0.7, 0.8] {
                let load = rho * f64::from(servers);
                let exact = Mmm::new(load.max(1e-9), 1.0, servers).unwrap();
                let mean = queue.response_mean(load) / exact.response_mean();
                assert!((mean - 1.0).abs() < 0.06, "{servers} {rho}: {mean}");
                assert!((queue.busy(load) - load).abs() < 0.03 * f64::from(servers), "{rho}");
                if discipline == Discipline::Fifo {
                    for t in [0.3, 1.0, 3.0] {
                        let off = queue.response_cdf(t, load) - exact.response_cdf(t);
                        assert!(off.abs() < 0.02, "{servers} {rho} {t}: {off}");
                    }
                }
            }
            assert_eq!(queue.response_cdf(1e9, 1.01 * f64::from(servers)), 0.0);
            assert!(queue.response_mean(1.01 * f64::from(servers)).is_infinite());
        }
        let even = Empirical::from_pieces(vec![Piece { centre: 1.0, half_width: 0.5, share: 1.0 }]);
        let even = even.unwrap();
        let queue = queue(&plain(), 1, Discipline::Fifo, &works(|u| 0.5 + u));
        let exact = Mg1::new(0.6, even).unwrap();
        assert!((queue.response_mean(0.6) / exact.response_mean() - 1.0).abs() < 0.04);
    }

    /// The mean time to a number by the formula of M/M/1 in closed form, and by a count.
    #[test]
    fn the_time_to_tip_over_is_that_of_the_chain() {
        // As fast as alone up to 5, a tenth beyond.
        let cliff = Slowdown::new(vec![1.0, 5.0, 5.001], vec![1.0, 1.0, 0.1], 0.0).unwrap();
        let load = 0.5f64;
        assert_eq!((cliff.last_above(load, 1), cliff.gone(load, 1)), (Some(5), Some(14)));
        // From empty past 14: Σₖ (Σⱼ Π μ/λ)/λ, of which the ratios are 2 up to 5 and a fifth beyond.
        let ratio = |k: u32| if k <= 5 { 2.0 } else { 0.2 };
        let step = |k: u32| (0..=k).map(|j| (j + 1..=k).map(ratio).product::<f64>()).sum::<f64>();
        let known: f64 = (0..=14).map(|k| step(k) / load).sum();
        assert!((cliff.escape_mean(load, 1, 1.0) - known).abs() < 1e-9);
        let tipping = cliff.tipping_load(1, 1.0, known);
        assert!((tipping - load).abs() < 1e-9, "{tipping}");
        // What never falls below the load does not tip over.
        assert!(plain().escape_mean(0.9, 1, 1.0).is_infinite());
        // Works that vary less tip over later, at a heavier load.
        assert!(cliff.tipping_load(1, 0.2, 1e4) > 1.05 * cliff.tipping_load(1, 1.0, 1e4));
    }

    /// The time to tip over by the chain, beside that of simulated runs with exponential and with even works.
    #[test]
    fn runs_tip_over_when_the_chain_says() {
        let falls =
            Slowdown::new(vec![1.0, 4.0, 8.0, 16.0], vec![1.0, 1.0, 0.9, 0.5], 0.0).unwrap();
        for (law, scv, bound) in [(exponential(), 1.0, 0.03), (even(), 1.0 / 12.0, 0.06)] {
            let mut random = StdRng::seed_from_u64(3);
            let load = falls.tipping_load(1, scv, 2_000.0);
            let time = |load: f64, random: &mut StdRng| {
                let mut run = Simulation::new(&falls, 1, false);
                let (mut comes, gone) = (0.0, 24);
                while run.present() <= gone {
                    let end = run.next_end();
                    if comes <= end {
                        run.advance(comes);
                        run.arrive(law[random.random_range(0..law.len())]);
                        comes = run.now - (1.0 - random.random::<f64>()).ln() / load;
                    } else {
                        run.advance(end);
                        run.leave();
                    }
                }
                run.now
            };
            let mean = |load: f64, random: &mut StdRng| {
                (0..400).map(|_| time(load, random)).sum::<f64>() / 400.0
            };
            // The load at which runs last as long is near.
            let (less, more) = (load * (1.0 - bound), load * (1.0 + bound));
            assert!(mean(less, &mut random) > 2_000.0, "{load}");
            assert!(mean(more, &mut random) < 2_000.0, "{load}");
        }
    }

    /// The number present in a settled chain has the law of births and deaths, so the mean response is known by Little's law.
    #[test]
    fn settled_responses_are_those_of_the_chain() {
        let falls = Slowdown::new(vec![1.0, 6.0, 20.0], vec![1.0, 0.9, 0.8], 0.0).unwrap();
        let law = exponential();
        for servers in [1, 2] {
            let queue = queue(&falls, servers, Discipline::Fifo, &law);
            for part in [0.3, 0.6, 0.8] {
                let load = part * queue.tipping();
                let (mut weight, mut all, mut number) = (1.0, 1.0, 0.0);
                for n in 1..500u32 {
                    weight *= load / falls.departures(n, servers);
                    (all, number) = (all + weight, number + weight * f64::from(n));
                }
                let known = number / all / load;
                let found = queue.response_mean(load);
                assert!((found / known - 1.0).abs() < 0.06, "{servers} {part}: {found} {known}");
            }
        }
    }

    #[test]
    fn bad_speeds_are_named() {
        let bad = |numbers: &[f64], speeds: &[f64], tail: f64| {
            Slowdown::new(numbers.to_vec(), speeds.to_vec(), tail).is_err()
        };
        assert!(bad(&[], &[], 0.0) && bad(&[1.0], &[], 0.0) && bad(&[0.5], &[1.0], 0.0));
        assert!(bad(&[1.0, 1.0], &[1.0, 1.0], 0.0) && bad(&[1.0], &[0.0], 0.0));
        assert!(bad(&[1.0], &[f64::NAN], 0.0) && bad(&[f64::INFINITY], &[1.0], 0.0));
        assert!(bad(&[1.0], &[1.0], -0.1) && bad(&[1.0], &[1.0], f64::NAN));
    }
}
