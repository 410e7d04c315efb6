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
    /// These times, ascending: those of a trace.
    Times(Arc<[Nanos]>),
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
}

/// A rate that changes is looked at so often: in this time a day's swing changes it by less than a thousandth.
const LOOK: Nanos = 10 * SECOND;

impl Source {
    pub fn new(law: Arrivals) -> Source {
        Source { law, at: 0, rate: 0.0, until: 0 }
    }

    /// The first arrival.
    pub fn first(&mut self) -> Option<Nanos> {
        match &self.law {
            Arrivals::Times(times) => {
                self.at = 1;
                times.first().copied()
            }
            Arrivals::Poisson(_) | Arrivals::Varying(_) => Some(0),
        }
    }

    /// The arrival that follows one at `now`; `None` after the last.
    pub fn next(&mut self, now: Nanos, random: &mut SmallRng) -> Option<Nanos> {
        let rate = match &self.law {
            Arrivals::Poisson(rate) => *rate,
            Arrivals::Varying(course) => {
                if now >= self.until {
                    self.rate = course.rate_at(now);
                    let step = now - now % LOOK + LOOK;
                    let borders = course.bursts.iter().flat_map(|burst| [burst.from, burst.to]);
                    self.until = borders.filter(|&at| at > now).min().unwrap_or(step).min(step);
                }
                self.rate
            }
            Arrivals::Times(times) => {
                let next = times.get(self.at).copied();
                self.at += 1;
                return next.map(|next| next.max(now));
            }
        };
        let unit: f64 = Exp1.sample(random);
        let after = (unit / rate) * SECOND as f64;
        Some(now.saturating_add(after as Nanos).max(now + 1))
    }
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
        let mut source = Source::new(Arrivals::Varying(course.clone()));
        let (mut now, mut count) = (DAY / 4, 0);
        while now < DAY / 4 + 100 * SECOND {
            now = source.next(now, &mut random).unwrap();
            count += 1;
        }
        let expected = 100.0 * course.rate_at(DAY / 4 + 50 * SECOND);
        assert!((f64::from(count) / expected - 1.0).abs() < 0.02, "{count}, {expected}");
        let mut source = Source::new(Arrivals::Times([5, 7, 7].into()));
        let times: Vec<_> = std::iter::from_fn(|| source.next(0, &mut random)).collect();
        assert_eq!(times, [5, 7, 7]);
    }
}
