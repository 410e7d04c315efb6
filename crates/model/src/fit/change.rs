//! Change detection: does the fitted model still describe the stream?
//!
//! A [`Watch`] takes the windows of a running system, interval by interval. It reports each
//! parameter that no longer has its fitted value, the time since which it differs, and its present
//! value. It watches the mean service time of each class of devices, the hit ratio at the present
//! load, and the variability of arrivals (their index of dispersion).
//!
//! For each parameter θ and direction a CUSUM of log likelihood ratios (E. Page, Biometrika 41
//! (1954)):
//!
//! S ← max(0, S + ln f₁(x) / f₀(x)), alarm at S ≥ h
//!
//! x is the observation of the interval. f₀ is its density with θ at the edge of its fitted
//! interval, so that the uncertainty of the fit is not reported as a change. f₁ is its density with
//! θ beyond that edge by one, two or four times the smallest relevant change, each with a separate
//! CUSUM: the one with the right size is the fastest and estimates the start best. The likeliest
//! start of the change is the time at which its S was last 0, and the mean of all observations
//! since then estimates the present θ.
//!
//! **False alarms.** e^S is at most the Shiryaev–Roberts statistic, whose mean after n observations
//! is n if nothing changed, whatever the distributions. So with h = ln(charts · A) the chance of
//! any false alarm within n intervals is at most n/A (Doob's inequality), and the mean time to one
//! is at least A: that statistic less n is a martingale, so that at the alarm, where it is at least
//! A, n is A or more on average. The bounds assume independent intervals and means of enough
//! requests to be normal; intervals with few requests are joined. Dependence found by the bootstrap
//! of the fit widens the variances. An interval adds at most a quarter of h, so that a single stall
//! raises no alarm.
//!
//! Cost: a microsecond for each window; memory does not grow. Limitations: changes as slow as the
//! service's own cycles are not told from them (the hit ratio differs between day and night: fit
//! both), and a change in the shape of service times that keeps their mean is not detected.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, positive};
use crate::model_file::{Model, Parameter};
use crate::queue::ArrivalLaw;
use crate::storage::Node;
use ground::window::{Dispersion, Operation, Outcome, Times, Window};

use super::gather;
use super::input::Step;

/// Smallest number of arrivals in each sub-interval of a dispersion: with fewer, counts are not
/// normal.
const COUNT_MIN: f64 = 5.0;
/// Smallest number of hits, and of misses, of a hit ratio.
const HITS_MIN: f64 = 10.0;
/// Largest part of the threshold that one interval can add.
const PART_MAX: f64 = 0.25;

/// The settings of a [`Watch`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WatchOptions {
    /// A: mean number of intervals between false alarms, at least.
    pub intervals: f64,
    /// Smallest relevant relative change of a mean service time.
    pub service_change: f64,
    /// Smallest relevant change of the hit ratio, as a difference of shares.
    pub hit_ratio_change: f64,
    /// Smallest relevant relative change of the index of dispersion of arrivals.
    pub dispersion_change: f64,
}

impl Default for WatchOptions {
    /// One false alarm in a day of seconds, at most; 3 % of the service time (ten points of the
    /// response-time distribution at 90 % utilisation), 2 % of all requests, half of the
    /// dispersion.
    fn default() -> Self {
        WatchOptions {
            intervals: 86_400.0,
            service_change: 0.03,
            hit_ratio_change: 0.02,
            dispersion_change: 0.5,
        }
    }
}

/// A watched parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// Mean service time of a class of devices, seconds.
    ServiceTime(String),
    /// Share that memory answers.
    HitRatio,
    /// Index of dispersion of the clients' arrivals.
    Dispersion,
}

impl std::fmt::Display for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Watched::ServiceTime(class) => write!(f, "service time of {class}"),
            Watched::HitRatio => f.write_str("hit ratio"),
            Watched::Dispersion => f.write_str("dispersion of arrivals"),
        }
    }
}

/// A parameter that no longer has its fitted value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// The parameter.
    pub parameter: Watched,
    /// The fitted value; for the hit ratio, at the loads since the change.
    pub fitted: f64,
    /// The value since the change, with its 95 % interval.
    pub now: Parameter,
    /// The likeliest time of the change: microseconds since 1970-01-01 UTC.
    pub since_unix_us: u64,
    /// The time at which the change became certain, in the same unit.
    pub certain_unix_us: u64,
}

impl std::fmt::Display for Change {
    /// For example "service time of bulk_device: 7.50 ms instead of 5.00 ms".
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |value: f64| match self.parameter {
            Watched::ServiceTime(_) => format!("{:.2} ms", value * 1e3),
            Watched::HitRatio => format!("{:.1} %", value * 100.0),
            Watched::Dispersion => format!("{value:.2}"),
        };
        write!(f, "{}: {} instead of {}", self.parameter, text(self.now.value), text(self.fitted))
    }
}

/// The observation of a parameter in an interval.
#[derive(Clone, Copy, Debug)]
enum Sample {
    /// A deviation from the fitted value, nearly normal, with its variance.
    Normal { x: f64, variance: f64, fitted: f64 },
    /// A ratio to the fitted value, distributed as a gamma law of this shape.
    Gamma { x: f64, shape: f64 },
}

/// The sizes of changes that are tested, relative to the smallest relevant one.
const SIZES: [f64; 3] = [1.0, 2.0, 4.0];

/// One size of change in one direction.
#[derive(Clone, Copy, Debug, Default)]
struct Cusum {
    score: f64,
    since_us: u64,
    /// Sums since the start: weights, weighted observations, weighted fitted values.
    weight: f64,
    sum: f64,
    fitted: f64,
}

impl Cusum {
    /// Adds an interval; with `open` the start is still searched.
    fn add(&mut self, ratio: f64, sample: Sample, at_us: u64, threshold: f64, open: bool) {
        if !ratio.is_finite() {
            return;
        }
        let (x, weight, fitted) = match sample {
            Sample::Normal { x, variance, fitted } => (x, 1.0 / variance, fitted),
            Sample::Gamma { x, shape } => (x, shape, 0.0),
        };
        if open {
            if self.score <= 0.0 {
                *self = Cusum { since_us: at_us, ..Cusum::default() };
            }
            self.score = (self.score + ratio.min(PART_MAX * threshold)).max(0.0);
        }
        self.weight += weight;
        self.sum += weight * x;
        self.fitted += weight * fitted;
    }
}

/// One direction of a parameter.
#[derive(Clone, Copy, Debug, Default)]
struct Direction {
    sizes: [Cusum; SIZES.len()],
    /// The size that became certain first, and the time.
    certain: Option<(usize, u64)>,
}

impl Direction {
    /// Adds an interval with the ratio of each size.
    fn add(
        &mut self,
        ratio: impl Fn(f64) -> f64,
        sample: Sample,
        start_us: u64,
        end_us: u64,
        threshold: f64,
    ) {
        let open = self.certain.is_none();
        for (cusum, size) in self.sizes.iter_mut().zip(SIZES) {
            cusum.add(ratio(size), sample, start_us, threshold, open);
        }
        if open {
            let scores = self.sizes.iter().map(|cusum| cusum.score).enumerate();
            let best = scores.max_by(|a, b| a.1.total_cmp(&b.1));
            self.certain = best.filter(|b| b.1 >= threshold).map(|(size, _)| (size, end_us));
        }
    }
}

/// Both directions of one parameter.
#[derive(Clone, Debug)]
struct Chart {
    parameter: Watched,
    /// Fitted value.
    value: f64,
    /// Edges of the fitted interval: deviations (normal) or ratios (gamma).
    low: f64,
    high: f64,
    /// Smallest relevant change: a difference (normal) or a ratio − 1 (gamma).
    change: f64,
    /// The factor on variances, because successive requests depend on each other.
    overdispersion: f64,
    up: Direction,
    down: Direction,
}

/// ln f₁/f₀ of a normal sample: means `zero` and `zero + change`.
fn normal_ratio(x: f64, variance: f64, zero: f64, change: f64) -> f64 {
    change / variance * (x - zero - 0.5 * change)
}

/// ln f₁/f₀ of a gamma sample: means `zero` and `one`.
fn gamma_ratio(x: f64, shape: f64, zero: f64, one: f64) -> f64 {
    shape * (x * (1.0 / zero - 1.0 / one) - (one / zero).ln())
}

impl Chart {
    fn add(&mut self, sample: Sample, time: (u64, u64), threshold: f64) {
        let (low, high, change) = (self.low, self.high, self.change);
        let up = |size: f64| match sample {
            Sample::Normal { x, variance, .. } => normal_ratio(x, variance, high, size * change),
            Sample::Gamma { x, shape } => gamma_ratio(x, shape, high, high * (1.0 + size * change)),
        };
        let down = |size: f64| match sample {
            Sample::Normal { x, variance, .. } => normal_ratio(x, variance, low, -size * change),
            Sample::Gamma { x, shape } => gamma_ratio(x, shape, low, low / (1.0 + size * change)),
        };
        self.up.add(up, sample, time.0, time.1, threshold);
        self.down.add(down, sample, time.0, time.1, threshold);
    }

    /// The changes that are certain.
    fn changes(&self) -> impl Iterator<Item = Change> + '_ {
        [&self.up, &self.down].into_iter().filter_map(|direction| {
            let (size, certain_unix_us) = direction.certain?;
            let cusum = direction.sizes.get(size)?;
            let mean = cusum.sum / cusum.weight;
            let (fitted, now, half, unit) = match &self.parameter {
                Watched::ServiceTime(_) => {
                    let half = 1.96 * self.value / cusum.weight.sqrt();
                    (self.value, self.value * (1.0 + mean), half, "s")
                }
                Watched::HitRatio => {
                    let fitted = cusum.fitted / cusum.weight;
                    (fitted, fitted + mean, 1.96 / cusum.weight.sqrt(), "1")
                }
                // A gamma law of shape a has the SCV 1/a.
                Watched::Dispersion => {
                    let now = self.value * mean;
                    (self.value, now, 1.96 * now / cusum.weight.sqrt(), "1")
                }
            };
            let now =
                Parameter { value: now, low: now - half, high: now + half, unit: unit.to_owned() };
            let parameter = self.parameter.clone();
            Some(Change { parameter, fitted, now, since_unix_us: cusum.since_us, certain_unix_us })
        })
    }
}

/// Sums of an interval that was too short for an sample, and of those that follow it.
#[derive(Clone, Debug)]
struct Pending {
    start_us: Option<u64>,
    end_us: u64,
    time_s: f64,
    arrivals: f64,
    requests: f64,
    hits: f64,
    /// Count and sum (s) of the services of each class.
    services: Vec<(f64, f64)>,
    dispersion: Dispersion,
}

/// Watches a stream of windows for changes of the fitted parameters.
///
/// ```
/// # fn of(model: &model::Model, stream: &[model::fit::Step]) -> Result<(), model::Error> {
/// use model::fit::{Watch, WatchOptions};
/// let mut watch = Watch::new(model, WatchOptions::default())?;
/// for step in stream {
///     for change in watch.push_step(step) {
///         println!("{}: {} instead of {}", change.parameter, change.now.value, change.fitted);
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Watch {
    node: Node,
    threshold: f64,
    classes: Vec<(String, f64)>,
    services: Vec<Chart>,
    hits: Chart,
    arrivals: Option<Chart>,
    pending: Vec<Pending>,
    intervals: u64,
}

/// The factor by which the variance of an interval exceeds that of independent observations; at
/// least 1.
fn overdispersion(parameter: &Parameter, variance: f64, observations: f64) -> f64 {
    let half = 0.5 * (parameter.high - parameter.low) / 1.96;
    let ratio = half * half / (variance / observations);
    if ratio.is_finite() { ratio.max(1.0) } else { 1.0 }
}

impl Watch {
    /// Creates a watch of a model. [`Error::Invalid`] for options that are not above 0.
    pub fn new(model: &Model, options: WatchOptions) -> Result<Self, Error> {
        check("the intervals between false alarms", options.intervals, 1.0..=1e12, "1 to 1e12")?;
        positive("the smallest change of a service time", options.service_change)?;
        positive("the smallest change of a hit ratio", options.hit_ratio_change)?;
        positive("the smallest change of a dispersion", options.dispersion_change)?;
        let fitted_reads: f64 =
            model.fitted.iter().map(|f| f.requests as f64 * (1.0 - f.hit_ratio)).sum();
        let share = |class: &str| -> f64 {
            let ours = model.devices.iter().filter(|d| d.class == class);
            ours.map(|d| f64::from(d.count) * d.share).sum()
        };
        let mut services = Vec::new();
        for class in &model.classes {
            let (mean, scv) = (&class.service.mean, class.service.scv.value.max(1e-6));
            let value = positive("the mean of a law", mean.value)?;
            let relative = Parameter {
                value: 0.0,
                low: mean.low / value - 1.0,
                high: mean.high / value - 1.0,
                unit: String::new(),
            };
            services.push(Chart {
                parameter: Watched::ServiceTime(class.name.clone()),
                value,
                low: relative.low,
                high: relative.high,
                change: options.service_change,
                overdispersion: overdispersion(&relative, scv, fitted_reads * share(&class.name)),
                up: Direction::default(),
                down: Direction::default(),
            });
        }
        let rate = 0.5 * (model.requests.rate_low + model.requests.rate_high);
        let hit_ratio =
            model.hit_ratio(rate).or_else(|_| model.hit_ratio(model.requests.rate_low))?;
        let requests: f64 = model.fitted.iter().map(|f| f.requests as f64).sum();
        let binomial = (hit_ratio.value * (1.0 - hit_ratio.value)).max(1e-6);
        let hits = Chart {
            parameter: Watched::HitRatio,
            value: hit_ratio.value,
            low: hit_ratio.low - hit_ratio.value,
            high: hit_ratio.high - hit_ratio.value,
            change: options.hit_ratio_change,
            overdispersion: overdispersion(&hit_ratio, binomial, requests),
            up: Direction::default(),
            down: Direction::default(),
        };
        let arrivals = dispersion_chart(model, options);
        let charts = 2 * SIZES.len() * (services.len() + 1 + usize::from(arrivals.is_some()));
        let classes = model.classes.iter().map(|c| (c.name.clone(), c.service.scv.value)).collect();
        let count = services.len() + 2;
        let empty = Pending::new(model.classes.len());
        Ok(Watch {
            // The rates of windows already contain the bursts.
            node: Node { arrivals: ArrivalLaw::Poisson, ..model.node()? },
            threshold: (options.intervals * charts as f64).ln(),
            classes,
            services,
            hits,
            arrivals,
            pending: vec![empty; count],
            intervals: 0,
        })
    }

    /// Number of intervals pushed.
    pub fn intervals(&self) -> u64 {
        self.intervals
    }

    /// The watched parameters.
    pub fn watched(&self) -> impl Iterator<Item = &Watched> {
        self.charts().map(|chart| &chart.parameter)
    }

    /// All certain changes, with the values of the parameters since.
    pub fn changes(&self) -> Vec<Change> {
        self.charts().flat_map(Chart::changes).collect()
    }

    fn charts(&self) -> impl Iterator<Item = &Chart> {
        self.services.iter().chain([&self.hits]).chain(&self.arrivals)
    }

    /// Adds one interval: the window of the clients' side (`load`, `gateway` or `node`) and those
    /// of the devices. Returns the changes that it made certain, each parameter and direction once.
    pub fn push(&mut self, client: Option<&Window>, devices: &[&Window]) -> Vec<Change> {
        self.intervals = self.intervals.saturating_add(1);
        let seen = Pending::from_windows(client, devices, &self.classes);
        let before: Vec<Watched> = self.certain();
        for index in 0..self.pending.len() {
            let Some(mut pending) = self.pending.get(index).cloned() else { continue };
            pending.add(&seen);
            let found = self.sample(index, &pending);
            let chart = match index.checked_sub(self.services.len()) {
                None => self.services.get_mut(index),
                Some(0) => Some(&mut self.hits),
                Some(_) => self.arrivals.as_mut(),
            };
            let enough = found.is_some();
            if let (Some(chart), Some(found), Some(start)) = (chart, found, pending.start_us) {
                chart.add(found, (start, pending.end_us), self.threshold);
            }
            // Sums that are too small are kept until there are enough.
            let next = if enough { Pending::new(self.classes.len()) } else { pending };
            if let Some(place) = self.pending.get_mut(index) {
                *place = next;
            }
        }
        if self.certain().len() == before.len() {
            return Vec::new();
        }
        let new = |change: &Change| change.certain_unix_us == seen.end_us;
        self.changes().into_iter().filter(new).collect()
    }

    fn certain(&self) -> Vec<Watched> {
        self.changes().into_iter().map(|change| change.parameter).collect()
    }

    /// Adds all intervals of a step in order. The clients' side is chosen as in a fit; windows that
    /// begin within half a window of each other are one interval.
    pub fn push_step(&mut self, step: &Step) -> Vec<Change> {
        let client = gather::client_side(step).map_or(&[][..], |side| side.1);
        let mut all: Vec<(bool, &Window)> = client.iter().map(|w| (true, w)).collect();
        all.extend(step.devices.iter().flatten().map(|w| (false, w)));
        all.sort_by_key(|(_, w)| w.start_unix_us);
        let mut found = Vec::new();
        let mut rest = all.as_slice();
        while let Some((_, first)) = rest.first() {
            let half = (first.length_s * 5e5).clamp(0.0, 1e12) as u64;
            let end = first.start_unix_us.saturating_add(half);
            let count = rest.partition_point(|(_, w)| w.start_unix_us <= end);
            let (now, later) = rest.split_at(count.max(1));
            let client = now.iter().find(|(client, _)| *client).map(|(_, w)| *w);
            let devices: Vec<&Window> = now.iter().filter(|(c, _)| !c).map(|(_, w)| *w).collect();
            found.extend(self.push(client, &devices));
            rest = later;
        }
        found
    }

    /// The observation of a chart's parameter from sums; `None` if there are too few.
    fn sample(&self, index: usize, sums: &Pending) -> Option<Sample> {
        if let Some((chart, (_, scv))) = self.services.get(index).zip(self.classes.get(index)) {
            let (n, sum) = *sums.services.get(index)?;
            // The skewness of a mean of n falls with √n.
            if n < 30.0 * (1.0 + scv).powi(2) {
                return None;
            }
            let (x, fitted) = (sum / n / chart.value - 1.0, chart.value);
            let variance = scv.max(1e-6) * chart.overdispersion / n;
            return x.is_finite().then_some(Sample::Normal { x, variance, fitted });
        }
        if index == self.services.len() {
            let rate = sums.arrivals / sums.time_s;
            // Past saturation the model does not predict hits.
            let fitted = self.node.operating(rate).ok()?.hit_ratio.clamp(0.0, 1.0);
            let binomial = fitted * (1.0 - fitted);
            if sums.requests * binomial < HITS_MIN {
                return None;
            }
            let x = sums.hits / sums.requests - fitted;
            let variance = binomial * self.hits.overdispersion / sums.requests;
            return x.is_finite().then_some(Sample::Normal { x, variance, fitted });
        }
        let chart = self.arrivals.as_ref()?;
        let intervals = sums.dispersion.intervals as f64;
        if intervals < 8.0 || (sums.dispersion.sum as f64) < COUNT_MIN * intervals {
            return None;
        }
        let x = sums.dispersion.index()? / chart.value;
        let shape = 0.5 * (intervals - 1.0) / chart.overdispersion;
        (x.is_finite() && x >= 0.0).then_some(Sample::Gamma { x, shape })
    }
}

/// The chart of the arrivals' dispersion; `None` if the model does not contain the fitted value.
fn dispersion_chart(model: &Model, options: WatchOptions) -> Option<Chart> {
    let known = model.fitted.iter().filter(|f| f.dispersion > 0.0 && f.seconds > 1.0);
    let (mut sum, mut time, mut low, mut high) = (0.0, 0.0, f64::INFINITY, 0.0f64);
    for step in known {
        // Sixteen sub-intervals a second.
        let chance = 1.96 * (2.0 / (16.0 * step.seconds)).sqrt();
        sum += step.dispersion * step.seconds;
        time += step.seconds;
        low = low.min(step.dispersion * (1.0 - chance).max(0.1));
        high = high.max(step.dispersion * (1.0 + chance));
    }
    let value = if time > 0.0 { sum / time } else { return None };
    Some(Chart {
        parameter: Watched::Dispersion,
        value,
        low: low / value,
        high: high / value,
        change: options.dispersion_change,
        // Bursts make counts depend on each other: an allowance, which is exact without bursts.
        overdispersion: value.max(1.0),
        up: Direction::default(),
        down: Direction::default(),
    })
}

impl Pending {
    fn new(classes: usize) -> Self {
        Pending {
            start_us: None,
            end_us: 0,
            time_s: 0.0,
            arrivals: 0.0,
            requests: 0.0,
            hits: 0.0,
            services: vec![(0.0, 0.0); classes],
            dispersion: Dispersion::default(),
        }
    }

    /// The sums of an interval.
    fn from_windows(
        client: Option<&Window>,
        devices: &[&Window],
        classes: &[(String, f64)],
    ) -> Self {
        let mut sums = Pending::new(classes.len());
        let all = client.into_iter().chain(devices.iter().copied());
        sums.start_us = all.clone().map(|w| w.start_unix_us).min();
        sums.end_us = all.map(Window::end_unix_us).max().unwrap_or(0);
        if let Some(client) = client {
            sums.time_s = client.length_s;
            sums.arrivals = client.arrivals as f64;
            sums.dispersion = client.dispersion;
            let known = |t: &&Times| t.operation == Operation::Get && t.outcome != Outcome::Unknown;
            for times in client.times.iter().filter(known) {
                let n = times.response.count() as f64;
                sums.requests += n;
                sums.hits += if times.outcome == Outcome::Memory { n } else { 0.0 };
            }
        }
        for times in devices.iter().flat_map(|w| &w.times) {
            let class = classes.iter().position(|(name, _)| name == times.outcome.as_str());
            if let Some(service) = class.and_then(|class| sums.services.get_mut(class)) {
                service.0 += times.service.count() as f64;
                service.1 += times.service.sum_s();
            }
        }
        sums
    }

    /// Adds the sums of later windows.
    fn add(&mut self, later: &Pending) {
        // Without `..`, so that a forgotten field does not compile.
        let Pending { start_us, end_us, time_s, arrivals, requests, hits, services, dispersion } =
            later;
        self.start_us = self.start_us.or(*start_us);
        self.end_us = self.end_us.max(*end_us);
        self.time_s += time_s;
        self.arrivals += arrivals;
        self.requests += requests;
        self.hits += hits;
        for (mine, theirs) in self.services.iter_mut().zip(services) {
            mine.0 += theirs.0;
            mine.1 += theirs.1;
        }
        self.dispersion.merge(dispersion);
    }
}

#[cfg(test)]
mod tests;
