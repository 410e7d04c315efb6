//! Computes the figures of a load from its repetitions, each with its interval.
//!
//! Each repetition is cut into five batches of successive windows. The half widths of throughput
//! and mean are those of a ratio of sums over all batches. From five repetitions on, those of the
//! repetitions' own means are used if they are wider, because the batches of one repetition do not
//! show the variation between repetitions. The half widths of quantiles come from sectioning
//! (Asmussen, Glynn: "Stochastic Simulation", 2007, section III.5): the batches' own quantiles
//! about the quantile of all requests, with batches joined until each has ten requests beyond the
//! quantile.

use std::collections::BTreeMap;

use ground::window::{Histogram, Outcome, Window};
use model::laws::{Check, Quantities, TOLERANCE, Verdict};
use model::statistics::{batch_means, ratio_of_sums, student_95};
use serde::Serialize;

use super::offered::OfferedLoad;
use super::settings::Settings;
use load::{StepSummary, UNSETTLED};
use report::laws::client_laws;
use report::measured::Estimate;

/// Number of batches of a repetition.
const BATCHES: usize = 5;
/// Number of repetitions from which their own means are compared.
const REPETITIONS: usize = 5;
/// Number of requests that a batch must have beyond a quantile.
const BEYOND: f64 = 10.0;
/// The quantiles of every table.
const QUANTILES: [f64; 3] = [0.5, 0.95, 0.99];

/// A quantile of the response time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quantile {
    /// The probability, 0 to 1.
    pub p: f64,
    /// The quantile, seconds.
    pub response_s: Estimate,
}

/// A load with its measurements. Times are those of successful replies.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The load.
    #[serde(flatten)]
    pub at: OfferedLoad,
    /// Number of repetitions.
    pub repetitions: usize,
    /// Length of the steady windows, seconds.
    pub seconds: f64,
    /// Requests completed in them.
    pub completions: u64,
    /// Completed requests that were errors.
    pub errors: u64,
    /// Replies with wrong bytes.
    pub mismatches: u64,
    /// Successful replies per second.
    pub throughput: Estimate,
    /// Mean response time, seconds.
    pub response_mean_s: Estimate,
    /// Quantiles of the response time: 50, 95, 99 % and the requested one.
    pub quantiles: Vec<Quantile>,
    /// Whether the point was steady: requests were completed as fast as sent, with few errors,
    /// nothing dropped, no drift.
    pub steady: bool,
    /// Whether the intervals of mean and requested quantile are as narrow as requested.
    pub narrow: bool,
    /// The checks of operational laws.
    pub laws: Vec<Check>,
    /// Reasons to doubt the point, each with the number of repetitions that reported it.
    pub notes: Vec<String>,
    /// The requested quantile.
    #[serde(skip)]
    pub asked: f64,
}

impl Point {
    /// The wider of the relative half widths of mean and requested quantile.
    pub fn width(&self) -> Option<f64> {
        let relative = |e: &Estimate| e.half_width.filter(|_| e.value > 0.0).map(|h| h / e.value);
        let asked = self.quantiles.iter().find(|q| q.p == self.asked)?;
        Some(relative(&self.response_mean_s)?.max(relative(&asked.response_s)?))
    }

    /// Whether an open loop had fewer successes than it sent requests.
    pub fn is_past_saturation(&self) -> bool {
        self.falls_short(self.throughput.value)
    }

    /// Whether errors alone are why: every request was answered.
    pub fn is_failing(&self) -> bool {
        let served = self.completions.saturating_sub(self.errors).max(1);
        let replies = self.throughput.value * self.completions as f64 / served as f64;
        let is_answered = self.errors == self.completions || !self.falls_short(replies);
        self.is_past_saturation() && self.errors > 0 && is_answered
    }

    /// Whether `throughput` replies/s are fewer than an open loop sent.
    fn falls_short(&self, throughput: f64) -> bool {
        self.at.rate().is_some_and(|rate| {
            // The standard deviation of a Poisson count is its square root.
            let chance = 4.0 / (rate * self.seconds).max(1.0).sqrt();
            throughput < rate * (1.0 - chance.max(0.03))
        })
    }

    /// The law with the largest deviation.
    pub fn worst_law(&self) -> Option<&Check> {
        let off = |c: &&Check| (c.verdict == Verdict::Broken, c.deviation_percent.abs());
        let by = |a: &&Check, b: &&Check| {
            let ((a_broken, a_off), (b_broken, b_off)) = (off(a), off(b));
            a_broken.cmp(&b_broken).then(a_off.total_cmp(&b_off))
        };
        self.laws.iter().max_by(by)
    }
}

/// A load with the windows of its repetitions.
pub(super) struct Repeated {
    pub at: OfferedLoad,
    repetitions: Vec<Vec<Window>>,
    mismatches: u64,
    dropped: u64,
    complaints: BTreeMap<String, usize>,
}

/// Sums over some windows, of successful replies.
#[derive(Clone, Default)]
struct Batch {
    seconds: f64,
    responses: Histogram,
}

impl Batch {
    fn from_windows(windows: &[Window]) -> Batch {
        let mut batch = Batch::default();
        for window in windows {
            batch.seconds += window.length_s;
            for times in window.times.iter().filter(|t| t.outcome != Outcome::Error) {
                batch.responses.merge(&times.response);
            }
        }
        batch
    }

    fn all(batches: &[Batch]) -> Batch {
        let mut all = Batch::default();
        for batch in batches {
            all.seconds += batch.seconds;
            all.responses.merge(&batch.responses);
        }
        all
    }

    fn count(&self) -> f64 {
        self.responses.count() as f64
    }
}

impl Repeated {
    pub fn new(at: OfferedLoad) -> Repeated {
        let (repetitions, complaints) = (Vec::new(), BTreeMap::new());
        Repeated { at, repetitions, mismatches: 0, dropped: 0, complaints }
    }

    pub fn repetitions(&self) -> usize {
        self.repetitions.len()
    }

    /// Seconds of all repetitions.
    pub fn seconds(&self) -> f64 {
        self.repetitions.iter().flatten().map(|window| window.length_s).sum()
    }

    /// Adds a repetition: its windows, trimmed.
    pub fn add(&mut self, step: &StepSummary, windows: Vec<Window>) {
        self.repetitions.push(windows);
        self.mismatches += step.mismatches;
        self.dropped += step.step.generator.dropped;
        for words in &step.step.generator.complaints {
            *self.complaints.entry(words.clone()).or_insert(0) += 1;
        }
        for words in step.faults.keys() {
            *self.complaints.entry(format!("error: {words}")).or_insert(0) += 1;
        }
    }

    /// Computes the figures.
    pub fn point(&self, settings: &Settings) -> Point {
        let batches: Vec<Batch> = self.repetitions.iter().flat_map(|w| cut(w)).collect();
        let whole = Batch::all(&batches);
        let each: Vec<Batch> = self.repetitions.iter().map(|w| Batch::from_windows(w)).collect();
        let mut wanted = QUANTILES.to_vec();
        if !wanted.contains(&settings.quantile) {
            wanted.push(settings.quantile);
            wanted.sort_by(f64::total_cmp);
        }
        let windows = || self.repetitions.iter().flatten();
        let sums: Vec<Quantities> = windows().map(Quantities::of_window).collect();
        let closed = self.at.clients().map(|n| (n as u64, settings.think_ms * 1e-3));
        let completions = windows().map(|w| w.completions).sum();
        let errors = windows().map(|w| w.errors).sum();
        let mut point = Point {
            at: self.at,
            repetitions: self.repetitions.len(),
            seconds: whole.seconds,
            completions,
            errors,
            mismatches: self.mismatches,
            throughput: ratio(&batches, &each, |b| (b.count(), b.seconds)),
            response_mean_s: ratio(&batches, &each, |b| (b.responses.sum_s(), b.count())),
            quantiles: wanted.iter().map(|&p| quantile(&batches, &whole, p)).collect(),
            steady: false,
            narrow: false,
            laws: client_laws("load", &sums, closed, TOLERANCE),
            notes: self.notes(),
            asked: settings.quantile,
        };
        let unsettled = self.complaints.get(UNSETTLED).copied().unwrap_or(0);
        point.steady = !point.is_past_saturation()
            && self.dropped == 0
            && 2 * unsettled <= self.repetitions.len()
            && errors as f64 <= 0.01 * completions as f64
            && completions > 0;
        point.narrow = point.width().is_some_and(|width| width <= settings.half_width);
        point
    }

    fn notes(&self) -> Vec<String> {
        let of = self.repetitions.len();
        self.complaints.iter().map(|(words, n)| format!("{words} ({n} of {of})")).collect()
    }
}

/// The batches of a repetition, without the oldest windows that do not fill a batch.
fn cut(windows: &[Window]) -> Vec<Batch> {
    let size = (windows.len() / BATCHES).max(1);
    let mut batches: Vec<Batch> =
        windows.rchunks_exact(size).take(BATCHES).map(Batch::from_windows).collect();
    batches.reverse();
    batches
}

/// A ratio of sums with its interval.
fn ratio(batches: &[Batch], each: &[Batch], of: impl Fn(&Batch) -> (f64, f64)) -> Estimate {
    let pairs: Vec<(f64, f64)> = batches.iter().map(&of).collect();
    let (a, b) = each.iter().map(&of).fold((0.0, 0.0), |s, x| (s.0 + x.0, s.1 + x.1));
    let within = ratio_of_sums(&pairs, pairs.len()).filter(|_| pairs.len() >= BATCHES);
    let own = |b: &Batch| Some(of(b)).filter(|x| x.1 > 0.0).map(|x| x.0 / x.1);
    let means: Vec<f64> = each.iter().filter_map(own).collect();
    let between = batch_means(&means).filter(|_| means.len() >= REPETITIONS);
    let half_width = match (within, between) {
        (Some(within), Some(between)) => Some(within.half_width.max(between.half_width)),
        (one, other) => one.or(other).map(|e| e.half_width),
    };
    Estimate { value: if b > 0.0 { a / b } else { 0.0 }, half_width, batches: pairs.len() }
}

/// A quantile with its interval, by sectioning.
fn quantile(batches: &[Batch], whole: &Batch, p: f64) -> Quantile {
    let value = whole.responses.quantile_s(p).unwrap_or(0.0);
    let beyond = whole.count() * (1.0 - p).min(p) / batches.len().max(1) as f64;
    let join = if beyond > 0.0 { (BEYOND / beyond).ceil().max(1.0) as usize } else { usize::MAX };
    let sections: Vec<f64> = batches
        .rchunks_exact(join.min(batches.len() + 1))
        .filter_map(|section| Batch::all(section).responses.quantile_s(p))
        .collect();
    let n = sections.len();
    let half_width = (n >= BATCHES).then(|| {
        let squares: f64 = sections.iter().map(|q| (q - value).powi(2)).sum();
        student_95(n - 1) * (squares / (n * (n - 1)) as f64).sqrt()
    });
    Quantile { p, response_s: Estimate { value, half_width, batches: n } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ground::window::Operation;

    fn settings() -> Settings {
        use load::{Arrivals, Keys, Load, Plan, Popularity, Size, Think};
        let keys = Keys::Synthetic {
            popularity: Popularity::Uniform,
            count: 1,
            size: Size::fixed(1),
            format: "{i}".to_owned(),
            read_share: 1.0,
        };
        Settings {
            until: None,
            plan: Plan::new("http://127.0.0.1:1", Load::Nothing, keys, "run".into()),
            sweep: super::super::settings::Sweep::Rates(vec![100.0]),
            arrivals: Arrivals::Poisson,
            think_ms: 0.0,
            think: Think::Constant,
            repeat: 3,
            half_width: 0.02,
            quantile: 0.9,
            budget_s: 60.0,
        }
    }

    /// A window of a tenth of a second with requests of these times, ms.
    fn window(times_ms: &[u64]) -> Window {
        let mut window = Window::new("load", 0, 0, &[]);
        window.length_s = 0.1;
        window.completions = times_ms.len() as u64;
        let times = window.times_mut(Operation::Get, Outcome::Unknown);
        times_ms.iter().for_each(|ms| times.response.record(ms * 1_000_000));
        window.length_integral_s = times_ms.iter().sum::<u64>() as f64 * 1e-3;
        window
    }

    fn repeated(at: OfferedLoad, repetitions: Vec<Vec<Window>>) -> Repeated {
        Repeated { repetitions, ..Repeated::new(at) }
    }

    #[test]
    fn equal_windows_have_no_width_and_their_own_figures() {
        let windows = vec![window(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]); 50];
        let point =
            repeated(OfferedLoad::Rate(100.0), vec![windows.clone(), windows]).point(&settings());
        assert!((point.throughput.value - 100.0).abs() < 1e-9 && point.completions == 1000);
        assert!((point.response_mean_s.value - 0.0055).abs() < 1e-9);
        assert!(point.response_mean_s.half_width.unwrap() < 1e-12);
        assert_eq!(point.response_mean_s.batches, 10);
        let asked = point.quantiles.iter().find(|q| q.p == 0.9).unwrap();
        assert!((asked.response_s.value / 0.009 - 1.0).abs() < 0.01);
        assert!(asked.response_s.half_width.unwrap() < 1e-12);
        // 10 beyond 99 % of 1000: one section, which has no interval.
        assert_eq!(point.quantiles.last().unwrap().response_s.half_width, None);
        assert!(point.narrow && point.steady && point.width().unwrap() < 1e-9, "{point:?}");
        assert_eq!(point.laws.len(), 1);
        assert!(point.laws[0].deviation_percent.abs() < 1e-9);
    }

    #[test]
    fn repetitions_that_differ_widen_the_interval() {
        // Each repetition is alike in itself; their means are 1, 2, 3, 4 and 5 ms.
        let all: Vec<Vec<Window>> = (1..=5).map(|ms| vec![window(&[ms; 10]); 10]).collect();
        let point = repeated(OfferedLoad::Clients(1), all).point(&settings());
        let between = batch_means(&[1e-3, 2e-3, 3e-3, 4e-3, 5e-3]).unwrap();
        assert!(
            (point.response_mean_s.half_width.unwrap() / between.half_width - 1.0).abs() < 1e-9
        );
        assert!(!point.narrow);
    }

    #[test]
    fn what_does_not_come_back_is_past_saturation() {
        let point = repeated(OfferedLoad::Rate(1000.0), vec![vec![window(&[1; 10]); 50]])
            .point(&settings());
        assert!(point.is_past_saturation() && !point.steady);
        let empty =
            repeated(OfferedLoad::Rate(10.0), vec![vec![window(&[]); 50]]).point(&settings());
        assert!(!empty.steady && empty.width().is_none() && empty.laws.is_empty());
    }

    #[test]
    fn quantiles_by_sectioning_cover_the_truth() {
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        // Uniform on 0 to 100 ms: the 90 % quantile is 90 ms.
        let mut random = StdRng::seed_from_u64(5);
        let mut covered = 0;
        for _ in 0..100 {
            let mut windows = Vec::new();
            for _ in 0..10 {
                let times: Vec<u64> =
                    (0..100).map(|_| (random.random::<f64>() * 100.0) as u64 + 1).collect();
                windows.push(window(&times));
            }
            let point = repeated(OfferedLoad::Clients(1), vec![windows.clone(), windows])
                .point(&settings());
            let q = point.quantiles.iter().find(|q| q.p == 0.9).unwrap().response_s;
            covered += usize::from((q.value - 0.090).abs() <= q.half_width.unwrap() + 0.0008);
        }
        assert!(covered >= 80, "{covered} of 100");
    }
}
