//! When clients' requests arrive.

use std::sync::Arc;

use ground::window::{Nanos, SECOND};
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1};

/// The law of the times at which requests arrive.
#[derive(Clone, Debug)]
pub enum Arrivals {
    /// Exponential times between them, at this rate in requests/s.
    Poisson(f64),
    /// The same at a rate that changes.
    Varying(Course),
    /// The same at one of two rates in turn: a two-state MMPP.
    Switching(Switching),
    /// These times, ascending: those of a trace.
    Times(Arc<[Nanos]>),
}

/// Two rates that take turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Switching {
    /// Both, each with its share of the time.
    pub levels: [Level; 2],
    /// Changes a second, in both directions together: deviations of the rate decay within one over this.
    pub change_rate: f64,
}

/// A rate for a part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// Requests/s.
    pub rate: f64,
    /// Its part of the time, 0 to 1.
    pub share: f64,
}

/// A rate that grows, and swings once a day.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// Requests/s at the mean of the first day.
    pub rate: f64,
    /// Part of the rate by which it is above the mean at noon and below it at midnight; time 0 is midnight.
    pub daily: f64,
    /// Factor of the growth in a year: 2 doubles the rate.
    pub yearly: f64,
    /// Times of higher load: from, to, and the factor.
    pub bursts: Vec<Burst>,
}

/// A time of higher load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// When it begins.
    pub from: Nanos,
    /// When it ends.
    pub to: Nanos,
    /// The multiple of the rate.
    pub factor: f64,
}

const DAY: Nanos = 86_400 * SECOND;

impl Course {
    /// The rate at a time, requests/s.
    pub fn rate_at(&self, time: Nanos) -> f64 {
        let day = time as f64 / DAY as f64;
        let swing = 1.0 - self.daily * (std::f64::consts::TAU * day).cos();
        let grown = self.yearly.powf(day / 365.0);
        let bursts = self.bursts.iter().filter(|burst| (burst.from..burst.to).contains(&time));
        self.rate * swing * grown * bursts.map(|burst| burst.factor).product::<f64>()
    }
}

/// Draws arrivals.
#[derive(Clone, Debug)]
pub(super) struct Source {
    law: Arrivals,
    /// The next of the times.
    at: usize,
    /// The rate, and until when it is taken for constant.
    rate: f64,
    until: Nanos,
    /// The level of [`Switching`].
    level: usize,
    /// When requests end.
    end: Nanos,
}

/// A rate that changes is looked at so often: in this time a day's swing changes it by less than a thousandth.
const LOOK: Nanos = 10 * SECOND;

impl Source {
    /// Draws from `law`; arrivals after `end` are not needed.
    pub fn new(law: Arrivals, end: Nanos) -> Source {
        Source { law, at: 0, rate: 0.0, until: 0, level: 0, end }
    }

    /// The first arrival.
    pub fn first(&mut self) -> Option<Nanos> {
        match &self.law {
            Arrivals::Times(times) => {
                self.at = 1;
                times.first().copied()
            }
            Arrivals::Poisson(_) | Arrivals::Varying(_) | Arrivals::Switching(_) => Some(0),
        }
    }

    /// The arrival that follows one at `now`; `None` after the last.
    pub fn next(&mut self, now: Nanos, random: &mut SmallRng) -> Option<Nanos> {
        let rate = match &self.law {
            Arrivals::Poisson(rate) => *rate,
            Arrivals::Varying(_) => return self.next_varying(now, random),
            Arrivals::Switching(switching) => {
                let switching = *switching;
                return Some(self.next_switching(&switching, now, random));
            }
            Arrivals::Times(times) => {
                let next = times.get(self.at).copied();
                self.at += 1;
                return next.map(|next| next.max(now));
            }
        };
        Some(now.saturating_add(exponential(rate, random)).max(now + 1))
    }

    /// The same of a rate that changes. A gap that reaches past a change begins again there, because it has no memory: drawn at the
    /// rate before a burst, it would pass over the burst.
    fn next_varying(&mut self, now: Nanos, random: &mut SmallRng) -> Option<Nanos> {
        let Arrivals::Varying(course) = &self.law else { return None };
        let mut from = now;
        loop {
            if from >= self.end {
                return None;
            }
            if from >= self.until {
                self.rate = course.rate_at(from);
                let step = from - from % LOOK + LOOK;
                let borders = course.bursts.iter().flat_map(|burst| [burst.from, burst.to]);
                self.until = borders.filter(|&at| at > from).min().unwrap_or(step).min(step);
            }
            let next = from.saturating_add(exponential(self.rate, random)).max(now + 1);
            if next <= self.until {
                return Some(next);
            }
            from = self.until;
        }
    }

    /// The same of two rates in turn. A gap that reaches past a change begins again there, because it has no memory.
    fn next_switching(
        &mut self,
        switching: &Switching,
        now: Nanos,
        random: &mut SmallRng,
    ) -> Nanos {
        let mut from = now;
        loop {
            if from >= self.until {
                self.level = 1 - self.level;
                let leave = switching.change_rate * (1.0 - switching.levels[self.level].share);
                self.until = from.saturating_add(exponential(leave, random)).max(from + 1);
            }
            let gap = exponential(switching.levels[self.level].rate, random);
            let next = from.saturating_add(gap).max(from + 1);
            if next <= self.until || self.until == Nanos::MAX {
                return next;
            }
            from = self.until;
        }
    }
}

/// A time of the exponential law with this rate per second; without end where the rate is 0.
fn exponential(rate: f64, random: &mut SmallRng) -> Nanos {
    let unit: f64 = Exp1.sample(random);
    // A float past the largest integer becomes that.
    ((unit / rate) * SECOND as f64) as Nanos
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn a_course_swings_grows_and_bursts() {
        let bursts = vec![Burst { from: DAY, to: DAY + SECOND, factor: 10.0 }];
        let course = Course { rate: 100.0, daily: 0.5, yearly: 2.0, bursts };
        assert_eq!(course.rate_at(0), 50.0);
        assert!((course.rate_at(DAY / 2) - 150.0).abs() < 1.0);
        assert!((course.rate_at(365 * DAY) - 100.0).abs() < 1e-6);
        assert!(course.rate_at(DAY) > 9.9 * course.rate_at(DAY + SECOND));
    }

    #[test]
    fn arrivals_follow_the_rate_and_the_times() {
        let mut random = SmallRng::seed_from_u64(1);
        let course = Course { rate: 1000.0, daily: 0.8, yearly: 1.0, bursts: Vec::new() };
        let mut source = Source::new(Arrivals::Varying(course.clone()), Nanos::MAX);
        let (mut now, mut count) = (DAY / 4, 0);
        while now < DAY / 4 + 100 * SECOND {
            now = source.next(now, &mut random).unwrap();
            count += 1;
        }
        let expected = 100.0 * course.rate_at(DAY / 4 + 50 * SECOND);
        assert!((f64::from(count) / expected - 1.0).abs() < 0.02, "{count}, {expected}");
        let mut source = Source::new(Arrivals::Times([5, 7, 7].into()), Nanos::MAX);
        let times: Vec<_> = std::iter::from_fn(|| source.next(0, &mut random)).collect();
        assert_eq!(times, [5, 7, 7]);
    }

    /// A load of a request in a hundred seconds and a burst of a hundred requests/s: gaps are longer than what changes the rate.
    #[test]
    fn a_burst_is_met_however_low_the_rate_before() {
        let bursts = vec![Burst { from: 60 * SECOND, to: 70 * SECOND, factor: 1e4 }];
        let course = Course { rate: 0.01, daily: 0.0, yearly: 1.0, bursts };
        let (mut within, mut outside) = (0, 0);
        for seed in 0..20 {
            let mut random = SmallRng::seed_from_u64(seed);
            let mut source = Source::new(Arrivals::Varying(course.clone()), 1_000 * SECOND);
            let mut now = 0;
            while let Some(next) = source.next(now, &mut random) {
                now = next;
                let is_within = (60 * SECOND..70 * SECOND).contains(&now);
                *(if is_within { &mut within } else { &mut outside }) += 1;
            }
            assert!(now <= 1_000 * SECOND);
        }
        assert!((19_000..21_000).contains(&within), "{within} of 20,000");
        assert!((150..250).contains(&outside), "{outside} of 198");
        // A load that all but ends is followed to the end, and not beyond.
        let course = Course { rate: 1.0, daily: 0.9, yearly: 1e-300, bursts: Vec::new() };
        let mut source = Source::new(Arrivals::Varying(course), 400 * DAY);
        let mut random = SmallRng::seed_from_u64(1);
        let mut now = 0;
        while let Some(next) = source.next(now, &mut random) {
            now = next;
        }
        assert!(now < 400 * DAY);
    }

    /// The mean of two rates, and counts that vary as those of the process.
    #[test]
    fn rates_that_take_turns_have_their_shares_of_the_time() {
        let levels = [Level { rate: 40.0, share: 0.75 }, Level { rate: 280.0, share: 0.25 }];
        let switching = Switching { levels, change_rate: 2.0 };
        let mut source = Source::new(Arrivals::Switching(switching), Nanos::MAX);
        let mut random = SmallRng::seed_from_u64(1);
        let (mut now, mut counts) = (0, vec![0f64; 20_000]);
        while let Some(next) = source.next(now, &mut random) {
            now = next;
            let Some(count) = counts.get_mut((now / SECOND) as usize) else { break };
            *count += 1.0;
        }
        let mean = counts.iter().sum::<f64>() / counts.len() as f64;
        assert!((mean / 100.0 - 1.0).abs() < 0.02, "{mean}");
        let variance = counts.iter().map(|count| (count - mean).powi(2)).sum::<f64>();
        let index = variance / counts.len() as f64 / mean;
        // 1 + 2λc²(ωτ − 1 + exp(−ωτ))/(ω²τ) with c² = 1.08, ω = 2, τ = 1.
        let expected = 1.0 + 2.0 * 100.0 * 1.08 * (1.0 + (-2.0f64).exp()) / 4.0;
        assert!((index / expected - 1.0).abs() < 0.05, "{index}, {expected}");
        // A level without requests ends, too.
        let levels = [Level { rate: 0.0, share: 0.5 }, Level { rate: 1.0, share: 0.5 }];
        let law = Arrivals::Switching(Switching { levels, change_rate: 1.0 });
        let mut source = Source::new(law, Nanos::MAX);
        assert!(source.next(0, &mut random).unwrap() < 1000 * SECOND);
    }
}
