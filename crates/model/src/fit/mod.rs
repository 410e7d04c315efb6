//! Fitting: from windows to a [`Model`].
//!
//! [`Window`](ground::window::Window)s are the only input of a fit. Its stages are:
//!
//! | module | stage |
//! |---|---|
//! | `gather`, `sums` | sum the windows of each steady interval, in blocks |
//! | `estimate` | compute the parameters from sums |
//! | `resample` | repeat the estimate for resampled blocks and repetitions (a block bootstrap) |
//! | `evidence` | combine three estimates of the mean service time: recorded services, throughput at saturation, and the clients' responses |
//! | `link` | find the bytes per second of a link, from steps that fell behind with no device saturated |
//! | `devices` | find devices whose load or service differs by more than chance |
//! | `goodness` | compare the model with the measurements and write the warnings |
//!
//! [`black_box()`] fits services of which only the responses are known, [`work()`] those of which
//! every arrival and departure is.
//!
//! At 90 % utilisation an error of 1 % in the service rate shifts the response-time distribution
//! by 3.5 points. Means are therefore exact sums, not means of histograms, and parameters that
//! chance alone could explain (unequal devices, a slope of q) are shrunk towards 0.

mod arrivals;
mod black_box;
mod change;
mod data;
mod devices;
mod estimate;
mod evidence;
mod front;
mod gather;
mod goodness;
mod idle;
mod input;
mod link;
mod resample;
mod responses;
mod saturated;
mod servers;
mod sums;
mod valley;
mod work;

use crate::distribution::Empirical;
use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::model_file::{
    BackgroundWork, ClassParameters, FORMAT, Front, Law, Model, Parameter, Requests,
    SpotifyParameters,
};
use crate::queue::Discipline;
use crate::storage::{SolvedQueues, WORKERS_MAX};

pub use black_box::{BlackBox, black_box};
pub use change::{Change, Watch, WatchOptions, Watched};
pub use front::{FrontStep, front_delay};
pub use input::{ClosedAt, ClosedLoop, Options, Step};
pub use servers::{CLASS, ServersFound};
pub use work::times::{REQUESTS_MIN, Request, Times};
pub use work::worked::{Precision, Worked};
pub use work::{
    Goal, Prospect, half_width_points, has_times, mean_work, prospects, too_coarse, work,
};

use estimate::Estimates;
use responses::law_of;
use sums::Sums;

/// Fits a model to steady intervals.
///
/// Each step must be steady: drop its warm-up first. Two or three loads at modest utilisation
/// suffice. With one load the dependence of q on load is unknown, and the model has a warning.
/// Steps at the same load are repetitions of each other. A step at or past saturation (a device was
/// never idle) contributes only the throughput of its saturated devices, as evidence of their
/// service time. A step in which replies fell behind although no device was saturated contributes
/// only the bytes per second that the link carries. Cost: one pass over the windows, then some tens
/// of milliseconds.
///
/// # Errors
/// [`Error::NoSteps`], [`Error::NoClientWindows`], [`Error::NoDeviceWindows`],
/// [`Error::NoCompletions`], [`Error::DeviceCount`], [`Error::Unlimited`], [`Error::Overloaded`]
/// (all steps are saturated, or a busy device has no queue), [`Error::Stalled`]. Each names the
/// step or the queue.
///
/// ```
/// use model::fit::{Options, Step, fit};
/// let step = Step { name: "120/s".into(), ..Step::default() };
/// let error = fit(&[step], &Options::default()).unwrap_err();
/// assert!(error.to_string().contains("120/s"));
/// ```
pub fn fit(steps: &[Step], options: &Options) -> Result<Model, Error> {
    let (serving, idle) = idle::serving(steps);
    let steps = &*serving;
    let gathered = gather::gather(steps, options)?;
    let groups = devices::group(&gathered);
    let totals: Vec<Sums> = gathered.steps.iter().map(|s| s.total.clone()).collect();
    let found = estimate::estimate(&totals, gathered.devices.len(), gathered.client_queue)?;
    let replicates = resample::resample(&gathered, options);
    let column = |f: &dyn Fn(&Estimates) -> f64| {
        replicates.iter().map(|r| f(&r.estimates)).collect::<Vec<f64>>()
    };
    let parameter = |f: &dyn Fn(&Estimates) -> f64, unit: &str| {
        Parameter::from_replicates(f(&found), &column(f), unit)
    };
    let mut alpha = parameter(&|e| e.alpha, "s");
    let rates = totals.iter().map(Sums::rate);
    let rate_low = rates.clone().fold(f64::INFINITY, f64::min);
    let rate_high = rates.fold(0.0, f64::max);
    if !estimate::spread_enough(&totals) {
        // All that is known of the slope is that q stays between 0 and 1.
        (alpha.low, alpha.high) = (-1.0 / rate_high, 1.0 / rate_high);
    }
    let mut classes = Vec::new();
    for (i, class) in gathered.classes.iter().enumerate() {
        let law = Empirical::from_histogram(&class.service)?;
        // The SCV of one device, where devices differ in their means.
        let law = law.with_moments(law.mean(), law.scv() * groups.scv_within[i])?;
        let scv_of = |e: &Estimates| e.classes[i].1 * groups.scv_within[i];
        let (mean, scv) = (parameter(&|e| e.classes[i].0, "s"), parameter(&scv_of, "1"));
        let service = Law::new(&law, mean, scv);
        let (name, servers, solved) = (class.name.clone(), class.servers, SolvedQueues::default());
        let background = (found.others[i].0 > 0.0).then(|| BackgroundWork {
            rate: parameter(&|e| e.others[i].0, "1/s"),
            mean: parameter(&|e| e.others[i].1, "s"),
        });
        let discipline = Discipline::Fifo;
        let (in_order, by_load) = (None, None);
        classes.push(ClassParameters {
            name,
            servers,
            discipline,
            service,
            background,
            in_order,
            by_load,
            by_number: None,
            solved,
        });
    }
    // What may be chance is not there.
    let delay_scv = Some(parameter(&|e| e.delay_scv, "1")).filter(|scv| scv.low > 0.0);
    let mut drawn = resample::replicates(&replicates, &classes, &groups.scv_within);
    let mut add = |name: &str, f: &dyn Fn(&Estimates) -> f64| {
        drawn.set(name, |i, _| replicates.get(i).map_or(f64::NAN, |r| f(&r.estimates)));
    };
    if delay_scv.is_some() {
        add("front_delay_scv", &|e| e.delay_scv);
    }
    if found.bytes.0 > 0.0 {
        add("bytes_mean", &|e| e.bytes.0);
        add("bytes_scv", &|e| e.bytes.1);
    }
    let carried = totals.iter().map(|s| s.bytes / s.time).filter(|rate| rate.is_finite());
    let carried = carried.fold(0.0, f64::max);
    let link = link::link(&gathered.stalled, carried, replicates.len(), options.seed);
    let link = link.filter(|_| found.bytes.0 > 0.0);
    if let Some((link, rates)) = &link {
        drawn.set("link_bytes_per_s", |i, _| rates.get(i).copied().unwrap_or(link.value));
    }
    let workers = steps.iter().flat_map(|s| &s.node).map(|w| w.servers).max();
    let workers = workers.filter(|m| (1..=WORKERS_MAX).contains(m));
    let front = (found.bytes.0 > 0.0 || workers.is_some()).then(|| Front {
        bytes_mean: Some(found.bytes.0).filter(|bytes| *bytes > 0.0),
        bytes_scv: found.bytes.1,
        link_bytes_per_s: link.map(|l| l.0),
        workers,
    });
    let arrivals = arrivals::arrivals(&gathered, &replicates);
    if let Some((_, bursts)) = arrivals.as_ref().filter(|a| a.0.variation.is_some()) {
        drawn.set("variation", |i, _| bursts.get(i).map_or(f64::NAN, |b| b.0));
        drawn.set("change_rate", |i, _| bursts.get(i).map_or(f64::NAN, |b| b.1));
    }
    let mut model = Model {
        format: FORMAT,
        warnings: Vec::new(),
        about: options.about.clone(),
        requests: Requests {
            q0: parameter(&|e| e.q0, "1"),
            alpha,
            other_share: parameter(&|e| e.other_share, "1"),
            front_delay: parameter(&|e| e.delay, "s"),
            front_delay_scv: delay_scv,
            joining: parameter(&|e| e.joining, "1"),
            joining_knee: parameter(&|e| e.joining_knee, "reads"),
            rate_low,
            rate_high,
        },
        front,
        arrivals: arrivals.map(|a| a.0),
        assumed_arrivals: None,
        unknown_beyond: None,
        spotify: SpotifyParameters {
            q0: parameter(&|e| e.spotify_q0, "1"),
            alpha: parameter(&|e| e.spotify_alpha, "s"),
            mu_d: parameter(&|e| e.spotify_mu_d, "1/s"),
            n_d: gathered.devices.len() as u32,
        },
        memory: law_of(&gathered.memory)?,
        other: law_of(&gathered.other)?,
        classes,
        evidence: Vec::new(),
        hypotheses: Vec::new(),
        kinds: Vec::new(),
        rates: None,
        devices: groups.groups,
        fitted: Vec::new(),
        held_out: Vec::new(),
        replicates: drawn,
    };
    model.check()?;
    let contradictions = evidence::combine(&mut model, &gathered, &groups.factors, &replicates)?;
    model.fitted = goodness::compare(&model, &gathered)?;
    model.warnings = goodness::warnings(&model, &gathered, groups.differ);
    model.warnings.extend(contradictions);
    model.warnings.extend(idle::warning(&idle));
    model.check()?;
    Ok(model)
}

#[cfg(test)]
pub(crate) mod tests;
