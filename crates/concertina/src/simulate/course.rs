//! When the clients of a simulation ask.

use std::fmt;
use std::sync::Arc;

use anyhow::ensure;
use engine::sim::{Arrivals, Burst, Course};
use ground::window::{Nanos, SECOND};

use super::time::{Span, nanos};

/// What changes the load of a step, whose rate is its mean.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadCourse {
    /// Part of the rate by which it is higher at noon and lower at midnight, where each step begins.
    pub daily: f64,
    /// Factor of growth in a year; `None`: none.
    pub yearly: Option<f64>,
    /// Times of higher load, from the end of the warm-up.
    pub bursts: Vec<LoadBurst>,
    /// The times of a trace, ascending from 0, instead of a law.
    pub times: Option<Arc<[Nanos]>>,
}

/// A time of higher load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadBurst {
    /// The multiple of the rate.
    pub factor: f64,
    /// When it begins, seconds after the warm-up.
    pub at_s: f64,
    /// How long it lasts, seconds.
    pub for_s: f64,
}

impl fmt::Display for LoadCourse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(times) = &self.times {
            return write!(f, "a trace of {} requests", times.len());
        }
        write!(f, "daily {}, growth {} a year", self.daily, self.yearly.unwrap_or(1.0))?;
        for LoadBurst { factor, at_s, for_s } in &self.bursts {
            write!(f, ", {factor}x@{at_s}s+{for_s}s")?;
        }
        Ok(())
    }
}

impl LoadCourse {
    /// Refuses what contradicts itself.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            (0.0..1.0).contains(&self.daily),
            "--daily must be 0 to below 100 %, not {}: at midnight there would be no load, or less",
            self.daily
        );
        ensure!(
            self.yearly.is_none_or(|factor| factor.is_finite() && factor > 0.0),
            "--growth must be more than 0, like 1.5 for a load that grows by half in a year, not {}",
            self.yearly.unwrap_or_default()
        );
        let varies = self.daily > 0.0 || self.yearly.is_some() || !self.bursts.is_empty();
        ensure!(
            self.times.is_none() || !varies,
            "--daily, --growth and --burst change a law: a --trace has its own times"
        );
        ensure!(
            self.times.as_ref().is_none_or(|times| !times.is_empty()),
            "the trace has no request"
        );
        Ok(())
    }

    /// Whether no law changes the load.
    pub(super) fn is_steady(&self) -> bool {
        self.daily == 0.0 && self.yearly.is_none() && self.bursts.is_empty()
    }

    /// The arrivals of a step; `None`: exponential times at its rate. A trace is repeated until the step ends, at its rate.
    pub(super) fn arrivals(&self, span: Span, rate: f64) -> Option<Arrivals> {
        if let Some(times) = &self.times {
            return Some(Arrivals::Times(repeated(times, span, rate)));
        }
        if self.is_steady() {
            return None;
        }
        let burst = |burst: &LoadBurst| {
            let from = nanos(span.warmup_s + burst.at_s);
            Burst { from, to: from.saturating_add(nanos(burst.for_s)), factor: burst.factor }
        };
        let bursts = self.bursts.iter().map(burst).collect();
        let yearly = self.yearly.unwrap_or(1.0);
        Some(Arrivals::Varying(Course { rate, daily: self.daily, yearly, bursts }))
    }

    /// The highest rate of a step over its mean, with its bursts.
    pub(super) fn most(&self, span: Span) -> f64 {
        let factors = self.bursts.iter().map(|burst| burst.factor);
        self.peak(span) * factors.fold(1.0, f64::max)
    }

    /// The highest rate of a step over its mean without bursts, roughly: for what is refused because it is unstable.
    pub(super) fn peak(&self, span: Span) -> f64 {
        if self.times.is_some() {
            return 1.0;
        }
        let years = (span.warmup_s + span.duration_s) / (365.0 * 86_400.0);
        // A burst is allowed to be more than the cluster holds: how it is survived is the question.
        (1.0 + self.daily) * self.yearly.unwrap_or(1.0).max(1.0).powf(years)
    }
}

impl LoadCourse {
    /// The requests of a step over those that come at its rate, about.
    pub(super) fn mean(&self, span: Span) -> f64 {
        if self.times.is_some() {
            return 1.0;
        }
        let span_s = span.warmup_s + span.duration_s;
        // The mean of exp(g t) over 0 to 1; the swing of days evens out.
        let grown = match self.yearly.unwrap_or(1.0).ln() * span_s / (365.0 * 86_400.0) {
            g if g.abs() < 1e-9 => 1.0,
            g => g.exp_m1() / g,
        };
        let of_burst = |burst: &LoadBurst| {
            let lasts_s = burst.for_s.min((span.duration_s - burst.at_s).max(0.0));
            (burst.factor - 1.0) * lasts_s / span_s
        };
        grown * (1.0 + self.bursts.iter().map(of_burst).sum::<f64>()).max(0.0)
    }
}

/// A trace's times scaled to a mean rate, one pass after the other up to the end of a step.
fn repeated(times: &[Nanos], span: Span, rate: f64) -> Arc<[Nanos]> {
    let end = span.end();
    let first = times.first().copied().unwrap_or(0);
    let recorded = times.last().map_or(0, |last| last - first).max(1) as f64;
    let count = times.len() as f64;
    // The time from the last request of a pass to the first of the next is the mean between two.
    let gap = recorded / (count - 1.0).max(1.0);
    let scale = SECOND as f64 / rate / gap;
    let pass = count * SECOND as f64 / rate;
    let mut all = Vec::new();
    for round in 0.. {
        let start = f64::from(round) * pass;
        for time in times {
            let at = (start + (time - first) as f64 * scale) as Nanos;
            if at >= end {
                return all.into();
            }
            all.push(at);
        }
    }
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_course_has_its_growth_and_bursts() {
        let year_s = 365.0 * 86_400.0;
        let span = Span { warmup_s: 0.0, duration_s: 2.0 * year_s };
        assert_eq!(LoadCourse { daily: 0.5, ..LoadCourse::default() }.mean(span), 1.0);
        // Of 2^t over two years.
        let grown = LoadCourse { yearly: Some(2.0), ..LoadCourse::default() };
        assert!((grown.mean(span) - 3.0 / (2.0 * 2f64.ln())).abs() < 1e-9);
        let burst = |factor, at_s, for_s| LoadCourse {
            bursts: vec![LoadBurst { factor, at_s, for_s }],
            ..LoadCourse::default()
        };
        assert!((burst(1e6, 0.0, year_s).mean(span) - 500_000.5).abs() < 1e-3);
        // One that lasts longer than the step, and one that lowers the load.
        assert!((burst(11.0, year_s, 9.0 * year_s).mean(span) - 6.0).abs() < 1e-9);
        assert!((burst(0.5, 0.0, year_s).mean(span) - 0.75).abs() < 1e-9);
    }

    #[test]
    fn a_trace_is_repeated_at_the_rate_that_is_wanted() {
        let times: Arc<[Nanos]> = [100, 150, 300, 400].map(|ms| ms * 1_000_000).into();
        let course = LoadCourse { times: Some(times), ..LoadCourse::default() };
        let span = Span { warmup_s: 1.0, duration_s: 9.0 };
        let Some(Arrivals::Times(at)) = course.arrivals(span, 20.0) else { panic!("it has times") };
        assert_eq!(at.len(), 200);
        // The gaps were 50, 150 and 100 ms, and are halved.
        let gaps: Vec<Nanos> =
            at.windows(2).take(5).map(|two| (two[1] - two[0]) / 1_000_000).collect();
        assert_eq!(gaps, [25, 75, 50, 50, 25]);
    }
}
