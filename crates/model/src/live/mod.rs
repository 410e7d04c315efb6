//! The live model: a process fits a model to its own windows again and again, and compares its
//! predictions with what it then measures.
//!
//! [`Live::push`] takes the windows of all queues of a process, interval by interval, and keeps the
//! last [`Settings::window_s`] seconds. When [`Live::is_due`] is true, [`Live::refit`] fits them
//! ([`crate::fit::fit`]). Each fit predicts the share of requests within the objective
//! [`Settings::ahead_s`] later, at the load that is then expected. When that time has come, the
//! prediction is compared with the measurement. [`State::withheld`] says why the model's advice
//! should not be followed: until three predictions have been compared, and while the median error of
//! the last ten is above [`Settings::error_points_max`].
//!
//! A [`Watch`] detects that a model no longer describes the stream. The windows before such a change
//! are then discarded: half a window of a fast disk and half a window of a slow one describe neither.
//!
//! The windows of a gateway are those of its clients, and those of its nodes' devices as the nodes
//! report them. A gateway is fitted as one node with all devices.
//!
//! Without a fitted model the method is [`Method::Recent`]: the responses of the window are the
//! prediction, and there is no headroom. Reasons are:
//!
//! - there is nothing to fit: no windows of devices, or memory answers everything;
//! - the model misses the present share within the objective by more than
//!   [`Settings::error_points_max`]. A model assumes that arrivals do not depend on the queues. Clients
//!   that wait for a reply before they send the next request keep queues short at any utilisation.
//!
//! Cost: some microseconds for each queue in a push; tens of milliseconds for a fit with its
//! predictions (`docs/operations.md` has the measurement). Memory: the windows, some kilobytes for each
//! queue and second.
//!
//! Limitation: a window with a single level of load does not show how the hit ratio depends on the
//! load; it is then taken to be constant.

mod client;
mod forecast;
mod grid;
mod levels;
mod score;
mod settings;
mod state;
mod station;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::error::Error;
use crate::fit::{self, Change, Step, Watch, WatchOptions};
use crate::model_file::{Model, Parameter};
use ground::window::{Histogram, QueueName, Window};

pub use client::ClientInterval;
pub use forecast::{Forecast, Forecaster};
pub use score::{Scored, Summary};
pub use settings::Settings;
pub use state::{Ahead, AtLoad, CurvePoint, Headroom, Method, RecentRequests, State};
pub use station::Station;

use client::{client_of, measured_of, overdispersion, responses_of, within_of};
use grid::{Grid, curve_of};
use score::{Pending, Scores};
use state::why_not;

/// The multiples of the present load for which shares are predicted.
const TIMES: [f64; 3] = [1.0, 1.5, 2.0];
/// Changes that are remembered.
const CHANGES: usize = 16;
/// The fewest requests of a fit.
const REQUESTS_MIN: u64 = 200;

/// The windows of one interval, of all queues.
type Interval = Vec<Window>;

/// A process's model of itself. It has no clock; the time is that of the windows.
///
/// ```
/// use model::live::{Live, Method, Settings};
/// use ground::window::{QueueName, Window};
/// let mut live = Live::new(Settings::default())?;
/// let mut window = Window::new(&QueueName::Gateway.to_string(), 0, 0, &[50.0]);
/// window.length_s = 1.0;
/// live.push(vec![window]);
/// live.refit();
/// assert_eq!(live.state().method, Method::None, "no request was seen");
/// assert!(live.state().withheld.is_some());
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Live {
    settings: Settings,
    intervals: VecDeque<Interval>,
    /// The end of the newest window, microseconds since 1970-01-01 UTC.
    now_us: u64,
    /// When to fit next.
    next_us: u64,
    /// What was seen before is forgotten.
    since_us: u64,
    /// The watch of a model, and when that was fitted.
    watch: Option<(Watch, u64)>,
    scores: Scores,
    /// Of the clients' requests, and of each queue by its name.
    forecaster: Forecaster,
    forecasters: BTreeMap<String, Forecaster>,
    /// The last fitted model. It stays while later windows cannot be fitted, so that what-if questions have an answer.
    fitted: Option<FittedModel>,
    state: State,
}

/// A fitted model.
#[derive(Clone, Debug)]
pub struct FittedModel {
    /// The model.
    pub model: Arc<Model>,
    /// When it was fitted, microseconds since 1970-01-01 UTC.
    pub at_unix_us: u64,
    /// The load to which it was fitted, requests/s.
    pub rate: f64,
}

impl Live {
    /// A model that has seen nothing. [`Error::Invalid`] for settings out of their ranges.
    pub fn new(settings: Settings) -> Result<Live, Error> {
        settings.check()?;
        let state =
            State { objective_s: settings.objective_s, share: settings.share, ..State::default() };
        let mut live = Live {
            settings,
            intervals: VecDeque::new(),
            now_us: 0,
            next_us: 0,
            since_us: 0,
            watch: None,
            scores: Scores::default(),
            forecaster: Forecaster::default(),
            forecasters: BTreeMap::new(),
            fitted: None,
            state,
        };
        live.state.withheld = live.doubt();
        Ok(live)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The predictions of the last fit, with the changes and errors up to now.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The last fitted model, of the latest windows that could be fitted.
    pub fn fitted(&self) -> Option<&FittedModel> {
        self.fitted.as_ref()
    }

    /// The clients' requests of the newest interval; `None` before the first.
    pub fn newest(&self) -> Option<ClientInterval> {
        ClientInterval::from_windows(self.intervals.back()?, self.settings.objective_s)
    }

    /// Adds the windows of one interval, of any queues. Windows without requests belong to it, too.
    /// Returns the changes that became certain.
    pub fn push(&mut self, windows: Vec<Window>) -> Vec<Change> {
        let Some(end) = windows.iter().map(Window::end_unix_us).max() else { return Vec::new() };
        if self.now_us == 0 {
            self.next_us = end.saturating_add(micros(self.settings.refit_s));
        }
        self.now_us = self.now_us.max(end);
        let changes = self.watched(&windows);
        self.intervals.push_back(windows);
        // A prediction's interval may be longer than the window.
        let kept = self.settings.window_s.max(self.settings.scored_s);
        let oldest = self.now_us.saturating_sub(micros(kept));
        while self.intervals.front().is_some_and(|first| start_of(first) + 1000 < oldest) {
            self.intervals.pop_front();
        }
        self.score();
        changes
    }

    /// Whether it is time to fit again.
    pub fn is_due(&self) -> bool {
        self.now_us > 0 && self.now_us >= self.next_us
    }

    /// Delays the next fit to at least this many seconds from now, for a driver that limits the cost of fits.
    pub fn not_before(&mut self, seconds: f64) {
        self.next_us = self.next_us.max(self.now_us.saturating_add(micros(seconds)));
    }

    /// Fits the windows, predicts, and remembers the prediction for the time ahead.
    pub fn refit(&mut self) {
        self.next_us = self.now_us.saturating_add(micros(self.settings.refit_s));
        let step = self.step();
        let parts = levels::split(&step);
        let client = client_of(&step);
        let windows: Vec<&Window> = client.iter().collect();
        let forecast = self.forecast();
        let responses = responses_of(&windows);
        let fitted = if responses.count() < REQUESTS_MIN {
            Err(format!("fewer than {REQUESTS_MIN} requests in the window"))
        } else {
            let options =
                fit::Options { replicates: self.settings.replicates, ..fit::Options::default() };
            fit::fit(&parts, &options).map_err(|error| why_not(&error))
        };
        let time: f64 = windows.iter().map(|w| w.length_s).sum();
        let arrivals: u64 = windows.iter().map(|w| w.arrivals).sum();
        let mut state = State {
            at_unix_us: self.now_us,
            window_s: time,
            fits: self.state.fits + 1,
            rate: if time > 0.0 { arrivals as f64 / time } else { 0.0 },
            measured: measured_of(&windows, &responses, self.settings.objective_s),
            stations: self.stations(),
            changes: std::mem::take(&mut self.state.changes),
            objective_s: self.settings.objective_s,
            share: self.settings.share,
            ..State::default()
        };
        let model = match fitted {
            Ok(model) => self.predict(&mut state, model, &parts, &forecast, &responses),
            Err(why) => {
                state.why_not_fitted = Some(why);
                None
            }
        };
        match &model {
            Some(model) => {
                let (model, at_unix_us) = (model.clone(), self.now_us);
                self.fitted = Some(FittedModel { model, at_unix_us, rate: state.rate });
            }
            None => self.predict_recent(&mut state, &forecast),
        }
        if state.curve.is_empty() {
            state.curve = curve_of(&responses, None, None);
        }
        if let (Some(ahead), Some(last)) = (&state.ahead, state.measured.within) {
            let (at_us, rate, within) = (ahead.at_unix_us, ahead.rate, ahead.within.clone());
            let overdispersion = overdispersion(&windows, self.settings.objective_s);
            self.scores.expect(Pending { at_us, rate, within, last, overdispersion, model });
        }
        self.state = state;
        self.note_errors();
    }

    fn doubt(&self) -> Option<String> {
        self.scores.doubt(self.settings.error_points_max)
    }

    fn note_errors(&mut self) {
        self.state.errors = self.scores.summary();
        self.state.scored = self.scores.scored().cloned().collect();
        self.state.withheld = self.doubt();
    }

    /// The windows since the last change, as a step of a fit.
    fn step(&self) -> Step {
        let mut step = Step { name: "the last minute".to_owned(), ..Step::default() };
        let mut devices: BTreeMap<&str, Vec<Window>> = BTreeMap::new();
        let whole = self.now_us.saturating_sub(micros(self.settings.window_s));
        let since = self.since_us.max(whole);
        let all = || self.intervals.iter().flatten().filter(|w| w.start_unix_us + 1000 >= since);
        // In one process with a gateway, the node's own requests.
        let has_http = all().any(|w| w.is_of(QueueName::NodeHttp));
        let client = if has_http { QueueName::NodeHttp } else { QueueName::Gateway };
        for window in all() {
            match window.queue_name() {
                Some(name) if name == client => step.gateway.push(window.clone()),
                Some(QueueName::Node) => step.node.push(window.clone()),
                Some(QueueName::Device(id)) => devices.entry(id).or_default().push(window.clone()),
                _ => {}
            }
        }
        step.devices = devices.into_values().collect();
        step
    }

    /// The expected load. It uses windows from before a change, too: a change of the service says nothing about the clients.
    fn forecast(&mut self) -> Forecast {
        let Settings { window_s, ahead_s, scored_s, .. } = self.settings;
        let whole = self.now_us.saturating_sub(micros(window_s));
        let rates: Vec<(f64, f64)> = self
            .step_all()
            .iter()
            .filter(|w| w.start_unix_us + 1000 >= whole)
            .map(rate_of)
            .collect();
        self.forecaster.next(&rates, ahead_s, scored_s)
    }

    /// Each queue on its own, except the queues of whole requests.
    fn stations(&mut self) -> Vec<Station> {
        let mut queues: BTreeMap<&str, Vec<&Window>> = BTreeMap::new();
        for window in self.intervals.iter().flatten() {
            let whole =
                [QueueName::Gateway, QueueName::Routing, QueueName::Node, QueueName::NodeHttp];
            if !window.queue_name().is_some_and(|name| whole.contains(&name)) {
                queues.entry(&window.queue).or_default().push(window);
            }
        }
        let mut before = std::mem::take(&mut self.forecasters);
        let mut stations = Vec::new();
        for (name, windows) in queues {
            let mut forecaster = before.remove(name).unwrap_or_default();
            let rates: Vec<(f64, f64)> = windows.iter().map(rate_of).collect();
            let Settings { ahead_s, scored_s, objective_s, .. } = self.settings;
            let rate_ahead = forecaster.next(&rates, ahead_s, scored_s).rate;
            self.forecasters.insert(name.to_owned(), forecaster);
            stations.extend(Station::from_windows(&windows, rate_ahead, objective_s));
        }
        stations
    }

    /// Writes the predictions of a model into the state. `None`, with the reason in the state, if the model
    /// is unusable at the present load.
    fn predict(
        &mut self,
        state: &mut State,
        model: Model,
        parts: &[Step],
        forecast: &Forecast,
        responses: &Histogram,
    ) -> Option<Arc<Model>> {
        let Settings { objective_s, share, window_s, .. } = self.settings;
        let now = match model.within(state.rate, objective_s) {
            Ok(now) => now,
            Err(error) => {
                state.why_not_fitted = Some(error.to_string());
                return None;
            }
        };
        let miss = 100.0 * present_miss(&model, parts, objective_s);
        if miss > self.settings.error_points_max {
            state.why_not_fitted = Some(format!(
                "the fitted model misses the present share within the objective by {miss:.1} points; do \
                 clients wait for replies before they send more?"
            ));
            return None;
        }
        let limits = model.limits().ok()?;
        (state.method, state.fitted_unix_us) = (Method::Fitted, Some(self.now_us));
        state.warnings.clone_from(&model.warnings);
        let grid = Grid::suggested(&model, responses);
        for times in TIMES {
            let rate = times * state.rate;
            let shares = grid.as_ref().and_then(|grid| grid.shares(rate));
            let quantile = |p| shares.as_ref().and_then(|s| grid.as_ref()?.quantile(s, p));
            let within = match times {
                1.0 => Some(now.clone()),
                _ => model.within(rate, objective_s).ok(),
            };
            state.loads.push(AtLoad {
                times,
                rate,
                within,
                p50_s: quantile(0.5),
                p99_s: quantile(0.99),
                beyond_limit: rate > limits.mg1.value,
            });
        }
        let shares = grid.as_ref().and_then(|grid| grid.shares(state.rate));
        let published = grid.as_ref().and_then(|grid| grid.published(&model, state.rate));
        state.curve = curve_of(responses, shares.as_deref(), published.as_deref());
        let (within, may_saturate) = within_ahead(&model, forecast, &state.measured, objective_s);
        state.ahead = Some(self.ahead(forecast, within, may_saturate));
        let none = || Parameter::exact(0.0, "1/s");
        let largest =
            model.largest_rate_with_interval(objective_s, share).unwrap_or_else(|_| none());
        let each = |rate: f64| if state.rate > 0.0 { rate / state.rate } else { f64::INFINITY };
        let times = Parameter {
            value: each(largest.value),
            low: each(largest.low),
            high: each(largest.high),
            unit: "1".to_owned(),
        };
        state.headroom = Some(Headroom {
            times,
            confidence_limit: limits.mg1.value,
            beyond_limit: largest.value > limits.mg1.value,
            saturation: limits.saturation.value,
            breaks_first: limits.breaks_first.map(|limit| match busiest(&state.stations) {
                Some(station) if limit.as_str() == "devices" => station.queue.clone(),
                _ => limit.as_str().to_owned(),
            }),
            rate: largest,
        });
        let model = Arc::new(model);
        // A watch needs several intervals to become certain of a change, so a fit does not replace it.
        let old = self
            .watch
            .as_ref()
            .is_none_or(|(_, from)| self.now_us.saturating_sub(*from) > micros(2.0 * window_s));
        if old {
            let watch = Watch::new(&model, WatchOptions::default()).ok();
            self.watch = watch.map(|watch| (watch, self.now_us));
        }
        Some(model)
    }

    /// Without a model: predicts that the responses stay as they were in the window.
    fn predict_recent(&self, state: &mut State, forecast: &Forecast) {
        let measured = &state.measured;
        let Some(within) = measured.within else { return };
        state.method = Method::Recent;
        let half = 1.96 * (within * (1.0 - within) / measured.requests.max(1) as f64).sqrt();
        let (low, high) = ((within - half).max(0.0), (within + half).min(1.0));
        let within = Parameter { value: within, low, high, unit: "1".to_owned() };
        state.loads.push(AtLoad {
            times: 1.0,
            rate: state.rate,
            within: Some(within.clone()),
            p50_s: measured.p50_s,
            p99_s: measured.p99_s,
            beyond_limit: false,
        });
        state.ahead = Some(self.ahead(forecast, within, false));
    }

    fn ahead(&self, forecast: &Forecast, within: Parameter, may_saturate: bool) -> Ahead {
        let Settings { share, ahead_s, .. } = self.settings;
        Ahead {
            at_unix_us: self.now_us.saturating_add(micros(ahead_s)),
            rate: forecast.rate,
            rate_low: forecast.low,
            rate_high: forecast.high,
            misses: within.value < share,
            within,
            may_saturate,
        }
    }

    /// Passes an interval to the watch. After a change only the windows since then count.
    fn watched(&mut self, windows: &[Window]) -> Vec<Change> {
        let Some((watch, _)) = &mut self.watch else { return Vec::new() };
        let of = |name: QueueName<'_>| windows.iter().find(|w| w.is_of(name));
        let client = of(QueueName::NodeHttp).or(of(QueueName::Gateway)).or(of(QueueName::Node));
        let is_device = |w: &&Window| w.queue_name().is_some_and(QueueName::is_device);
        let devices: Vec<&Window> = windows.iter().filter(is_device).collect();
        let changes = watch.push(client, &devices);
        if let Some(since) = changes.iter().map(|change| change.since_unix_us).max() {
            self.since_us = self.since_us.max(since);
            self.watch = None;
            self.next_us = self.now_us;
        }
        for change in &changes {
            if self.state.changes.len() >= CHANGES {
                self.state.changes.remove(0);
            }
            self.state.changes.push(change.clone());
        }
        changes
    }

    /// Compares the predictions whose time has come with the measurements.
    fn score(&mut self) {
        let mut any = false;
        while let Some(due) = self.scores.due(self.now_us) {
            let from = due.at_us.saturating_sub(micros(self.settings.scored_s));
            let of =
                |w: &&Window| w.start_unix_us + 1000 >= from && w.end_unix_us() <= due.at_us + 1000;
            let step = self.step_all();
            let windows: Vec<&Window> = step.iter().copied().filter(of).collect();
            let time: f64 = windows.iter().map(|w| w.length_s).sum();
            let arrivals: u64 = windows.iter().map(|w| w.arrivals).sum();
            if time > 0.0 {
                let t_s = self.settings.objective_s;
                let (within, requests) = within_of(&windows, t_s);
                self.scores.score(&due, arrivals as f64 / time, within, requests, t_s);
                any = true;
            }
        }
        if any {
            self.note_errors();
        }
    }

    /// All windows of the client's side.
    fn step_all(&self) -> Vec<&Window> {
        let all = || self.intervals.iter().flatten();
        for name in [QueueName::NodeHttp, QueueName::Gateway, QueueName::Node] {
            let found: Vec<&Window> = all().filter(|w| w.is_of(name)).collect();
            if !found.is_empty() {
                return found;
            }
        }
        Vec::new()
    }
}

fn micros(seconds: f64) -> u64 {
    (seconds * 1e6) as u64
}

/// The end of a window, seconds, and its arrivals per second.
fn rate_of(window: &&Window) -> (f64, f64) {
    (window.end_unix_us() as f64 * 1e-6, window.arrival_rate())
}

/// The error of a model at the loads to which it was fitted: the difference between its share within a time, averaged over all
/// requests, and the measured share; 0 if the model is not stable at one of the loads.
fn present_miss(model: &Model, parts: &[Step], t_s: f64) -> f64 {
    let (mut said, mut measured, mut requests) = (0.0, 0.0, 0.0);
    for part in parts {
        let windows: Vec<&Window> = client_of(part).iter().collect();
        let (arrivals, time) =
            windows.iter().fold((0.0, 0.0), |(n, s), w| (n + w.arrivals as f64, s + w.length_s));
        let (within, all) = within_of(&windows, t_s);
        let Ok(share) = model.cdf(arrivals / time, &[t_s]) else { return 0.0 };
        said += all as f64 * share.first().copied().unwrap_or(0.0);
        measured += within as f64;
        requests += all as f64;
    }
    if requests > 0.0 { (said - measured).abs() / requests } else { 0.0 }
}

/// The share within a time at an expected load. Its interval covers the predictions at all loads of the forecast's interval.
/// The second value is whether the upper end of the forecast's interval is past saturation. In that case the share's interval begins
/// at 0. If the expected load itself is past saturation, the share is the hit ratio: queues are long, and only memory answers in time.
fn within_ahead(
    model: &Model,
    forecast: &Forecast,
    measured: &RecentRequests,
    t_s: f64,
) -> (Parameter, bool) {
    let within = |rate: f64| model.within(rate, t_s).ok();
    let most = within(forecast.high);
    let hits = measured.hit_ratio.unwrap_or(0.0);
    let value = within(forecast.rate).map_or(hits, |share| share.value);
    let low = most.as_ref().map_or(0.0, |share| share.low).min(value);
    let high = within(forecast.low).map_or(1.0, |share| share.high).max(value);
    (Parameter { value, low, high, unit: "1".to_owned() }, most.is_none())
}

fn start_of(interval: &Interval) -> u64 {
    interval.iter().map(|w| w.start_unix_us).min().unwrap_or(0)
}

fn busiest(stations: &[Station]) -> Option<&Station> {
    let devices = stations.iter().filter(|s| s.queue.starts_with("device/"));
    devices.max_by(|a, b| a.utilisation.total_cmp(&b.utilisation))
}
