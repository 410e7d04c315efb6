//! Compares the model with the measurements and writes the warnings of a fit.

use crate::error::Error;
use crate::model_file::{FittedPoint, FittedStep, Model};
use ground::window::QueueName;

use super::data::{Gathered, StepData};

/// Quantiles of the measured responses at which the CDFs are compared.
const KS_POINTS: usize = 40;

/// Each step as measured and as predicted.
pub(super) fn compare(model: &Model, gathered: &Gathered) -> Result<Vec<FittedStep>, Error> {
    let node = model.node()?;
    let spotify = model.spotify()?;
    let mut all = Vec::new();
    for step in &gathered.steps {
        let total = &step.total;
        let rate = total.rate();
        // A step that is unstable by the fitted model is a poor fit, not an error.
        let operating = node.operating_unchecked(rate);
        let count = step.responses.count().max(1) as f64;
        let points = step.within.iter().map(|&(t_s, within)| FittedPoint {
            t_s,
            measured: within as f64 / count,
            predicted: node.at_time(t_s).cdf(&operating),
            spotify: spotify.cdf(rate, t_s).ok(),
        });
        let distance = |i: usize| {
            let t = step.responses.quantile_s((i as f64 + 0.5) / KS_POINTS as f64)?;
            // Evaluated at the top of the bucket that contains t, so that a constant time is not a
            // misfit.
            let t = t * (1.0 + 1.0 / 128.0);
            Some((step.responses.share_within(t)? - node.at_time(t).cdf(&operating)).abs())
        };
        let finite = |x: f64| if x.is_finite() { x } else { 1e9 };
        let device_time = total.device_time.max(f64::MIN_POSITIVE);
        let classes = total.classes.iter().zip(&model.classes);
        let others = classes.filter(|(_, class)| class.background.is_some());
        let others: f64 = others.map(|(s, _)| s.other_s.min(s.other_most_s).max(0.0)).sum();
        all.push(FittedStep {
            name: step.name.clone(),
            rate,
            seconds: total.time,
            requests: step.responses.count(),
            hit_ratio: total.memory / total.requests.max(1.0),
            dispersion: step.dispersion.index().unwrap_or(1.0),
            utilisation: (total.busy + others) / device_time / servers_mean(model),
            utilisation_predicted: operating.utilisation_mean,
            queue_length: total.length_integral / device_time,
            queue_length_predicted: finite(operating.queue_length_mean),
            response_mean: step.responses.mean_s(),
            response_mean_predicted: finite(operating.response_mean),
            ks_distance: (0..KS_POINTS).filter_map(distance).fold(0.0, f64::max),
            points: points.collect(),
        });
    }
    Ok(all)
}

/// Mean number of servers of a device.
fn servers_mean(model: &Model) -> f64 {
    let servers = |name: &str| {
        model.classes.iter().find(|c| c.name == name).map_or(1.0, |c| f64::from(c.servers))
    };
    let (mut sum, mut count) = (0.0, 0.0);
    for devices in &model.devices {
        sum += f64::from(devices.count) * servers(&devices.class);
        count += f64::from(devices.count);
    }
    if count > 0.0 { sum / count } else { 1.0 }
}

/// The warnings for the user of the model, in sentences.
pub(super) fn warnings(model: &Model, gathered: &Gathered, differ: Vec<String>) -> Vec<String> {
    let mut all = Vec::new();
    if !super::estimate::spread_enough(
        &gathered.steps.iter().map(|s| s.total.clone()).collect::<Vec<_>>(),
    ) {
        all.push(
            "All steps have about the same load: how the hit ratio depends on load is unknown; \
             measure a second load."
                .to_owned(),
        );
    }
    if gathered.client_queue != QueueName::Load {
        all.push(format!(
            "The client side is the queue `{}`: predictions leave out all delays before it.",
            gathered.client_queue
        ));
    }
    for name in differ {
        all.push(format!(
            "Devices of class {name} differ in mean service time by more than chance; they are \
             modelled in groups."
        ));
    }
    for class in gathered.classes.iter().filter(|c| c.servers_max > c.servers) {
        all.push(format!(
            "Devices of class {} serve {} to {} reads at once; the model takes {} for each of them, so that it \
             overstates the waits of the others.",
            class.name, class.servers, class.servers_max, class.servers
        ));
    }
    for class in model.classes.iter().filter(|c| c.servers > 1) {
        all.push(format!(
            "Devices of class {} serve {} reads at once: their queues are an approximation (M/G/m), \
             exact for exponential service, and within half a point for the other laws tested.",
            class.name, class.servers
        ));
    }
    let services: f64 = gathered.devices.iter().map(|d| d.service.n).sum();
    if services < 2_000.0 {
        all.push(format!(
            "Only {services:.0} device reads: the tail of the service time is uncertain; measure \
             longer."
        ));
    }
    if model.requests.other_share.value > 0.01 {
        all.push(format!(
            "{:.1} % of the reads were answered by neither memory nor a device of this node; their \
             response time is assumed not to depend on the load.",
            model.requests.other_share.value * 100.0
        ));
    }
    let arrivals = model.arrivals.as_ref();
    let bursts = arrivals.and_then(|a| a.variation.as_ref().zip(a.change_rate.as_ref()));
    if let Some((variation, change_rate)) = bursts {
        all.push(format!(
            "Arrivals come in bursts: their rate varies by {:.0} %, with a correlation time of {:.2} s. Predicted \
             responses, limits and plans assume a two-state MMPP, in which the queues see one of two Poisson \
             rates.",
            variation.value.sqrt() * 100.0,
            1.0 / change_rate.value
        ));
    }
    let evened = arrivals.and_then(|a| a.evens_out());
    if let Some([short, long]) = evened {
        all.push(format!(
            "Arrivals come in short bursts that even out: their counts vary {:.1} times as much as a Poisson stream's in \
             intervals of {:.2} s, and {:.1} times in {:.2} s. Queues are predicted as for a Poisson stream.",
            short.index.value, short.scale_s, long.index.value, long.scale_s
        ));
    }
    let bursts = bursts.is_some() || evened.is_some();
    for (step, fitted) in gathered.steps.iter().zip(&model.fitted) {
        of_step(&mut all, step, fitted.ks_distance, bursts);
        // At a server's queue, waiting is not lateness of the generator.
        let generator = gathered.client_queue == QueueName::Load;
        if generator && step.lateness_s > 0.02 * fitted.response_mean {
            all.push(format!(
                "Step {}: the load generator sent requests {:.2} ms late on average; this delay is part of the \
                 responses.",
                step.name,
                step.lateness_s * 1e3
            ));
        }
    }
    for step in &gathered.stalled {
        let known = model.front.as_ref().is_some_and(|front| front.link_bytes_per_s.is_some());
        all.push(format!(
            "Step {}: replies fell behind arrivals although no device was saturated; the step is not fitted as a load{}",
            step.name,
            if known { ". It shows the most that the link carries (or the server's processor, or the load generator)." } else {
                ". It carried fewer bytes than a steady step, or none: the load generator may be the limit."
            }
        ));
    }
    trend(&mut all, gathered);
    all
}

fn of_step(all: &mut Vec<String>, step: &StepData, ks_distance: f64, bursts: bool) {
    let name = &step.name;
    if step.blocks.len() < 8 {
        all.push(format!(
            "Step {name}: only {} blocks of windows; intervals are too narrow.",
            step.blocks.len()
        ));
    }
    for (what, dispersion) in
        [("at the client", &step.dispersion), ("at the devices", &step.device_dispersion)]
    {
        if let Some(index) = dispersion.index() {
            let chance = 4.0 * (2.0 / dispersion.intervals as f64).sqrt();
            if (index - 1.0).abs() > chance.max(0.1) && !(bursts && index > 1.0) {
                all.push(format!(
                    "Step {name}: arrivals {what} are not Poisson (index of dispersion {index:.2}); \
                     waiting times are predicted too {}.",
                    if index > 1.0 { "short" } else { "long" }
                ));
            }
        }
    }
    let answered = step.responses.count().max(1);
    for (count, what) in [
        (step.refusals, "were refused"),
        (step.errors, "failed"),
        (step.not_reads, "were not reads"),
    ] {
        if count > answered / 100 {
            all.push(format!(
                "Step {name}: {count} requests {what}; the model describes only reads that were answered."
            ));
        }
    }
    if ks_distance > 0.05 {
        all.push(format!(
            "Step {name}: the model misses the measured distribution by {:.1} points.",
            ks_distance * 100.0
        ));
    }
}

/// Warns if service gets slower or faster with load, because the mean at other loads is then
/// unknown.
fn trend(all: &mut Vec<String>, gathered: &Gathered) {
    for (i, class) in gathered.classes.iter().enumerate() {
        let mut means: Vec<(f64, f64, f64)> = Vec::new();
        for step in &gathered.steps {
            let sums = &step.total.classes[i];
            if sums.n > 30.0 {
                let mean = sums.sum / sums.n;
                let variance = (sums.squares / sums.n - mean * mean).max(0.0);
                means.push((step.total.rate(), mean, variance / sums.n));
            }
        }
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(first), Some(last)) = (means.first(), means.last()) {
            let change = last.1 / first.1 - 1.0;
            let chance = 4.0 * (first.2 + last.2).sqrt() / first.1;
            if change.abs() > chance.max(0.01) {
                all.push(format!(
                    "The service time of class {} differs by {:+.1} % at {:.0} requests/s from that at {:.0}: one law \
                     for all loads is an approximation.",
                    class.name,
                    change * 100.0,
                    last.0,
                    first.0
                ));
            }
        }
    }
}
