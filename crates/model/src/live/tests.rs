use crate::fit::tests::{Simulated, laws, simulated};
use crate::fit::{Step, Watched};

use super::*;

mod replay;

/// Four disks of 8 ms with an exponential service.
fn system() -> Simulated {
    let (_, service) = laws().remove(0);
    Simulated { devices: 4, hit_ratio: 0.5, ..simulated(service) }
}

/// Feeds a live model with segments of load, each a rate and a number of seconds. Every segment
/// begins with empty queues.
struct Feed {
    live: Live,
    seconds: u64,
}

impl Feed {
    fn new(settings: Settings) -> Feed {
        Feed { live: Live::new(settings).unwrap(), seconds: 0 }
    }

    fn step(&mut self, step: Step, seconds: u64) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut queues = vec![step.load];
        queues.extend(step.devices);
        for second in 0..seconds as usize {
            let mut windows: Vec<Window> = queues.iter().map(|q| q[second].clone()).collect();
            windows[0].queue = QueueName::Gateway.to_string();
            for window in &mut windows {
                window.start_unix_us += 1_000_000_000 + self.seconds * 1_000_000;
            }
            changes.extend(self.live.push(windows));
            if self.live.is_due() {
                self.live.refit();
            }
        }
        self.seconds += seconds;
        changes
    }

    fn run(&mut self, system: &Simulated, rate: f64, seconds: u64) -> Vec<Change> {
        let step = system.step(rate, seconds as f64, 17 + self.seconds);
        self.step(step, seconds)
    }
}

/// The share within 50 ms of a long run, and its 0.99 quantile.
fn truth(system: &Simulated, rate: f64) -> (f64, f64) {
    let (client, _) = system.run(rate, 500.0, 99);
    let mut judged: Vec<f64> = client.iter().filter(|v| v.0 > 20.0).map(|v| v.3).collect();
    judged.sort_by(f64::total_cmp);
    let within = judged.iter().filter(|t| **t <= 0.05).count() as f64 / judged.len() as f64;
    (within, judged[judged.len() * 99 / 100])
}

#[test]
fn a_steady_load_is_predicted_and_trusted() {
    let system = system();
    let rate = system.rate(0.4);
    let mut feed = Feed::new(Settings::default());
    feed.run(&system, rate, 80);
    let early = feed.live.state().clone();
    assert!(early.withheld.unwrap().contains("of 3 predictions"), "a minute has hardly passed");
    feed.run(&system, rate, 100);
    let state = feed.live.state();
    assert_eq!(state.method, Method::Fitted, "{:?}", state.why_not_fitted);
    assert_eq!(state.withheld, None, "{:?}", state.errors);
    assert!(state.errors.median_points.unwrap() < 1.0, "{:?}", state.errors);
    assert!(state.errors.worst_points.unwrap() < 3.0, "{:?}", state.errors);
    assert!(state.errors.coverage.unwrap() > 0.6, "{:?}", state.errors);
    assert!((state.rate / rate - 1.0).abs() < 0.05);
    // At loads that it has never seen.
    for at in &state.loads {
        let (measured, p99_s) = truth(&system, at.rate);
        let within = at.within.as_ref().unwrap();
        let ours = at.p99_s.unwrap();
        assert!((ours / p99_s - 1.0).abs() < 0.35, "p99 of {p99_s} s at {} x: {ours}", at.times);
        assert!((within.value - measured).abs() < 0.06, "{measured} at {} x: {within:?}", at.times);
    }
    let headroom = state.headroom.as_ref().unwrap();
    let (edge, _) = truth(&system, headroom.rate.value);
    assert!((edge - 0.95).abs() < 0.05, "{edge} at the largest load: {headroom:?}");
    assert!(
        headroom.times.low < headroom.times.value && headroom.times.value < headroom.times.high
    );
    assert!(headroom.breaks_first.as_ref().unwrap().starts_with("device/"), "{headroom:?}");
    for point in &state.curve {
        assert!((point.predicted.unwrap() - point.measured).abs() < 0.05, "{point:?}");
    }
    let device = state.stations.iter().find(|s| s.queue == "device/2").unwrap();
    assert!((device.utilisation - 0.4).abs() < 0.05, "{device:?}");
    assert!((device.length_ahead.unwrap() - 0.4 / 0.6).abs() < 0.15, "{device:?}");
    assert!(device.within_ahead.unwrap() > 0.9, "{device:?}");
}

#[test]
fn a_disk_that_turns_slow_is_told_and_what_was_before_is_forgotten() {
    let mut system = system();
    let rate = system.rate(0.35);
    let mut feed = Feed::new(Settings::default());
    let false_alarms = feed.run(&system, rate, 150);
    assert!(false_alarms.is_empty(), "{false_alarms:?}");
    let before = feed.live.state().headroom.clone().unwrap();
    system.mean *= 1.5;
    let changes = feed.run(&system, rate, 40);
    let service = |change: &&Change| matches!(change.parameter, Watched::ServiceTime(_));
    let change = changes.iter().find(service).expect("a change of the service time");
    assert!((change.now.value / change.fitted - 1.5).abs() < 0.2, "{change:?}");
    let after = feed.live.state().headroom.clone().unwrap();
    assert!((after.saturation / before.saturation - 1.0 / 1.5).abs() < 0.06, "{after:?}");
    assert!(feed.live.state().window_s < 45.0, "windows from before the change were fitted");
    assert!(!feed.live.state().changes.is_empty());
}

#[test]
fn a_load_that_rises_is_expected_to_rise_further() {
    let system = system();
    let mut feed = Feed::new(Settings::default());
    for tenth in 0..24 {
        feed.run(&system, system.rate(0.2 + 0.022 * f64::from(tenth)), 10);
    }
    let state = feed.live.state();
    let ahead = state.ahead.as_ref().unwrap();
    assert!(ahead.rate > 1.15 * state.rate, "{ahead:?}");
    let errors = &state.errors;
    let (ours, unchanged) =
        (errors.median_points.unwrap(), errors.median_unchanged_points.unwrap());
    assert!(ours < unchanged, "no better than expecting no change: {errors:?}");
}

#[test]
fn advice_is_withheld_from_a_predictor_that_errs() {
    let system = system();
    let settings = Settings { window_s: 20.0, ahead_s: 20.0, ..Settings::default() };
    let mut feed = Feed::new(settings);
    // A square wave of twice the time ahead: every prediction is made in the other half.
    for half in 0..12 {
        feed.run(&system, system.rate(if half % 2 == 0 { 0.2 } else { 0.9 }), 20);
    }
    let state = feed.live.state();
    let why = state.withheld.as_ref().expect("advice is withheld");
    assert!(why.contains("median error"), "{why}");
    assert!(state.errors.median_points.unwrap() > 5.0, "{:?}", state.errors);
}

#[test]
fn a_load_that_may_saturate_is_told() {
    let system = system();
    let settings = Settings { window_s: 20.0, ahead_s: 20.0, ..Settings::default() };
    let mut feed = Feed::new(settings);
    feed.run(&system, system.rate(0.2), 120);
    let ahead = feed.live.state().ahead.clone().unwrap();
    assert!(!ahead.may_saturate && ahead.within.low > 0.9, "{ahead:?}");
    assert!(ahead.rate_low < ahead.rate && ahead.rate < ahead.rate_high, "{ahead:?}");
    // The load has leapt by as much before; from here such a leap saturates the disks.
    for half in 0..12 {
        feed.run(&system, system.rate(if half % 2 == 0 { 0.2 } else { 0.6 }), 20);
    }
    let state = feed.live.state();
    let (ahead, headroom) = (state.ahead.as_ref().unwrap(), state.headroom.as_ref().unwrap());
    assert!(ahead.rate_high > headroom.saturation && ahead.may_saturate, "{ahead:?}");
    assert!(ahead.within.low == 0.0 && ahead.within.value > 0.8, "{ahead:?}");
}

#[test]
fn without_devices_the_last_window_is_the_prediction() {
    let system = system();
    let mut feed = Feed::new(Settings { ahead_s: 20.0, ..Settings::default() });
    let mut step = system.step(system.rate(0.3), 60.0, 5);
    step.devices.clear();
    feed.step(step, 60);
    let state = feed.live.state();
    assert_eq!(state.method, Method::Recent);
    assert!(state.headroom.is_none());
    // In words of a server, not of a fit.
    let why = state.why_not_fitted.as_deref().unwrap();
    assert_eq!(why, "no request of the last minute was served by a device of this process");
    assert_eq!(state.loads.len(), 1);
    assert!(state.errors.count >= 3 && state.withheld.is_none(), "{:?}", state.errors);
}

/// Nobody chooses what a server fits: it does not say what to measure, or of which part.
#[test]
fn why_there_is_no_model_is_said_in_words_of_a_server() {
    let step = || "part 1 of the last minute".to_owned();
    for error in [
        Error::Overloaded { step: step(), utilisation: 1.0 },
        Error::Stalled { step: step() },
        Error::DeviceCount { step: step(), expected: 4, got: 3 },
    ] {
        let why = why_not(&error);
        for word in ["part 1", "step", "fit", "measure"] {
            assert!(!why.contains(word), "{why}");
        }
    }
}

#[test]
fn memory_is_bounded_by_the_window() {
    let mut feed = Feed::new(Settings { refit_s: 1e4, ..Settings::default() });
    feed.run(&system(), 50.0, 200);
    assert!(feed.live.intervals.len() <= 61, "{}", feed.live.intervals.len());
}
