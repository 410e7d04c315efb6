//! Figures from windows: quantiles with intervals, the queues of shards, and predictions by M/G/1.

use anyhow::Context as _;
use ground::window::{Histogram, QueueName, Window};
use model::distribution::Empirical;
use model::queue::Mg1;
use model::statistics::batch_means;
use serde::Serialize;

use record::{RunFolder, Step};

/// Number of batches of successive windows from which an interval is computed.
const BATCHES: usize = 10;

/// A figure and half the width of its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Figure {
    pub value: f64,
    pub half_width: f64,
}

/// The windows of a queue that lie wholly within a step; the clocks of two processes may differ by
/// a hundredth of a window.
pub(super) fn windows<'a>(run: &'a RunFolder, queue: &str, step: &Step) -> Vec<&'a Window> {
    let within = |w: &&Window| {
        let slack = (w.length_s * 1e4) as u64;
        w.start_unix_us.saturating_add(slack) >= step.start_unix_us
            && w.end_unix_us() <= step.end_unix_us.saturating_add(slack)
    };
    run.windows.iter().filter(|w| w.queue == queue).filter(within).collect()
}

/// Which time of a request.
#[derive(Clone, Copy)]
pub(super) enum Time {
    Waiting,
    Service,
    Response,
}

/// All times of some windows.
pub(super) fn times(windows: &[&Window], time: Time) -> Histogram {
    let mut all = Histogram::default();
    for times in windows.iter().flat_map(|window| &window.times) {
        all.merge(match time {
            Time::Waiting => &times.waiting,
            Time::Service => &times.service,
            Time::Response => &times.response,
        });
    }
    all
}

/// A figure over all windows, with an interval from batches of them.
fn figure(windows: &[&Window], of: impl Fn(&[&Window]) -> Option<f64>) -> Figure {
    let size = (windows.len() / BATCHES).max(1);
    let batches: Vec<f64> = windows.rchunks_exact(size).take(BATCHES).filter_map(&of).collect();
    Figure {
        value: of(windows).unwrap_or(f64::NAN),
        half_width: batch_means(&batches).map_or(f64::NAN, |e| e.half_width),
    }
}

/// The quantile of response times at `share`, ms.
pub(super) fn quantile_ms(windows: &[&Window], share: f64) -> Figure {
    figure(windows, |w| times(w, Time::Response).quantile_s(share).map(|s| s * 1e3))
}

/// Mean queue length.
pub(super) fn length(windows: &[&Window]) -> Figure {
    figure(windows, |windows| {
        let seconds: f64 = windows.iter().map(|w| w.length_s).sum();
        (seconds > 0.0).then(|| windows.iter().map(|w| w.length_integral_s).sum::<f64>() / seconds)
    })
}

/// The figures of one shard's queue.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Queue {
    pub process: String,
    pub queue: String,
    pub arrivals_per_s: f64,
    pub utilisation: f64,
    pub length_mean: f64,
    pub waiting_ms_mean: f64,
    pub service_ms_mean: f64,
    /// Squared coefficient of variation of service.
    pub service_scv: f64,
    /// Variance over mean of arrivals in sixteenths of a window: 1 for Poisson.
    pub dispersion: Option<f64>,
}

/// The figures of every shard's queue that had requests.
pub(super) fn queues(process: &str, run: &RunFolder, step: &Step) -> Vec<Queue> {
    let mut names: Vec<&str> = run.windows.iter().map(|w| w.queue.as_str()).collect();
    names.retain(|name| matches!(QueueName::parse(name), Some(QueueName::Shard { .. })));
    names.sort_unstable();
    names.dedup();
    let of = |name: &str| {
        let windows = windows(run, name, step);
        let mut all = windows.first().map(|w| (*w).clone())?;
        windows.iter().skip(1).for_each(|w| all.merge(w, false));
        let service = times(&windows, Time::Service);
        let mean = service.mean_s();
        (all.arrivals > 0).then(|| Queue {
            process: process.to_owned(),
            queue: name.to_owned(),
            arrivals_per_s: all.arrival_rate(),
            utilisation: all.utilisation().unwrap_or(0.0),
            length_mean: all.length_mean(),
            waiting_ms_mean: times(&windows, Time::Waiting).mean_s() * 1e3,
            service_ms_mean: mean * 1e3,
            service_scv: service.variance_s2() / (mean * mean),
            dispersion: all.dispersion.index(),
        })
    };
    names.into_iter().filter_map(of).collect()
}

/// One quantile of a queue's response at a load, measured and predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Foretold {
    pub share: f64,
    pub measured_ms: f64,
    pub foretold_ms: f64,
    /// P(response ≤ the measured time), predicted minus measured, points.
    pub error_points: f64,
    /// Half the width of the measured share's 95 % interval, points.
    pub half_width_points: f64,
}

impl Foretold {
    /// No prediction is possible.
    pub(super) const NONE: Foretold = Foretold {
        share: f64::NAN,
        measured_ms: f64::NAN,
        foretold_ms: f64::NAN,
        error_points: f64::NAN,
        half_width_points: f64::NAN,
    };
}

/// The predicted quantiles.
pub(super) const SHARES: [f64; 3] = [0.5, 0.9, 0.99];

/// Predicts the response of a queue at the arrival rate of some windows from the service times of
/// others.
///
/// # Errors
///
/// If the histogram is empty, or the queue is unstable with those service times.
pub(super) fn foretell(service: &[&Window], at: &[&Window]) -> anyhow::Result<Vec<Foretold>> {
    let law = Empirical::from_histogram(&times(service, Time::Service))
        .context("the queue's service times at the light load")?;
    let seconds: f64 = at.iter().map(|w| w.length_s).sum();
    let arrivals: u64 = at.iter().map(|w| w.arrivals).sum();
    let queue = Mg1::new(arrivals as f64 / seconds, law).context("the queue at the higher load")?;
    let measured = times(at, Time::Response);
    let one = |&share: &f64| -> anyhow::Result<Foretold> {
        let t = measured.quantile_s(share).context("nothing was answered at the higher load")?;
        let within = figure(at, |w| times(w, Time::Response).share_within(t));
        Ok(Foretold {
            share,
            measured_ms: t * 1e3,
            foretold_ms: queue.response_quantile(share)? * 1e3,
            error_points: (queue.response_cdf(t) - within.value) * 100.0,
            half_width_points: within.half_width * 100.0,
        })
    };
    SHARES.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, SECOND, Settings};
    use rand::rngs::Xoshiro256PlusPlus;
    use rand::{RngExt, SeedableRng};

    use super::*;

    /// Windows of a queue with one server: exponential gaps, service of 2 to 6 ms.
    fn simulated(rate: f64, seconds: u64, seed: u64) -> Vec<Window> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut recorder = Recorder::new("shard/a/000001", 1, Settings::default(), 0);
        let (mut at, mut free, mut events) = (0.0_f64, 0.0_f64, Vec::new());
        while at < seconds as f64 {
            at += -(1.0 - random.random::<f64>()).ln() / rate;
            let service = 0.002 + 0.004 * random.random::<f64>();
            let start = at.max(free);
            free = start + service;
            let ns = |s: f64| (s * 1e9) as Nanos;
            events.extend([
                (ns(at), 0, 0.0, 0.0),
                (ns(start), 1, 0.0, 0.0),
                (ns(free), 2, start - at, service),
            ]);
        }
        events.sort_by_key(|event| (event.0, event.1));
        for (now, what, waiting, service) in events {
            match what {
                0 => recorder.arrive(now),
                1 => recorder.start(now),
                _ => recorder.finish(
                    now,
                    &Finished {
                        operation: Operation::Search,
                        outcome: Outcome::Shard,
                        waiting: (waiting * 1e9) as Nanos,
                        service: (service * 1e9) as Nanos,
                        response: ((waiting + service) * 1e9) as Nanos,
                        bytes: 1,
                    },
                ),
            }
        }
        recorder.flush((free as u64 + 1) * SECOND)
    }

    #[test]
    fn a_simulated_queue_is_foretold_from_a_lighter_load() {
        let of = |windows: &[Window], at: &[Window]| {
            foretell(&windows.iter().collect::<Vec<_>>(), &at.iter().collect::<Vec<_>>())
        };
        let light = simulated(20.0, 100, 1);
        let found = of(&light, &simulated(175.0, 400, 2));
        for one in found.unwrap() {
            assert!(one.error_points.abs() < 3.0, "{one:?}");
            assert!(one.half_width_points.is_finite() && one.half_width_points > 0.0);
        }
        // An unstable queue has no response time.
        let over = simulated(400.0, 20, 3);
        assert!(of(&light, &over[..15]).is_err());
    }

    #[test]
    fn figures_have_intervals_of_batches() {
        let windows = simulated(100.0, 40, 4);
        let windows: Vec<&Window> = windows.iter().collect();
        let (p50, p99) = (quantile_ms(&windows, 0.5), quantile_ms(&windows, 0.99));
        assert!(p50.value < p99.value && p50.half_width > 0.0);
        // Little's law.
        let response = times(&windows, Time::Response);
        let seconds: f64 = windows.iter().map(|w| w.length_s).sum();
        assert!((length(&windows).value * seconds / response.sum_s() - 1.0).abs() < 0.01);
        assert!(quantile_ms(&[], 0.5).value.is_nan());
    }
}
