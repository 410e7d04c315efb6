//! Fits a model to the steps that are not held out, and computes its errors on those that are.

use ground::window::{Histogram, Operation, Times, Window};
use model::fit::BlackBox;
use model::storage::Limit;
use model::{About, ClusterModel, HeldOut, Model};

use super::compare::counted_at;
use super::error::Error;
use super::measured::{StepFigures, measure};
use super::service::{Service, ServiceFacts};
use super::steps::{Observed, ObservedStep, short_name};

/// Fits a model and records its errors on the held-out steps in it.
pub(super) fn fit(observed: &Observed, about: About) -> Result<Model, Error> {
    let options = model::fit::Options { about, ..model::fit::Options::default() };
    let mut model = model::fit::fit(&observed.fit_steps(), &options)?;
    model.held_out = judge_all(&model, observed)?;
    Ok(model)
}

/// Like [`fit`], for a service of which only response times are known, or every arrival and
/// departure.
pub(super) fn fit_service(
    observed: &Observed,
    about: About,
    facts: ServiceFacts,
) -> Result<Service, Error> {
    let ServiceFacts { servers, closed_loop, closed_loops, no_hits } = facts;
    let options = model::fit::Options {
        about,
        closed_loop,
        closed_loops,
        no_hits,
        ..model::fit::Options::default()
    };
    let mut steps = observed.fit_steps();
    let silent: Vec<String> =
        steps.iter().filter(|s| !has_answers(s)).map(|s| s.name.clone()).collect();
    // An imported log may pause for a whole step.
    if silent.len() < steps.len() {
        steps.retain(has_answers);
    }
    let all = responses(&steps);
    if !all.is_empty() && all.max_s() == 0.0 {
        return Err(Error::NoDurations { requests: all.count() });
    }
    let too_few = |reason| Error::TooFew { requests: all.count(), needed: FEW, reason };
    if !all.is_empty() && all.count() < FEWEST {
        return Err(too_few(format!("a law of times is not told from fewer than {FEWEST}")));
    }
    if let Some(known) = model::fit::too_coarse(&steps) {
        return Err(Error::TooCoarse { known });
    }
    let has_times = model::fit::has_times(&steps);
    // Hits and the last requests are not judged, so that times of enough requests may still be too few.
    let worked = match has_times.then(|| model::fit::work(&steps, servers, &options)) {
        None | Some(Err(model::Error::NoTimes { .. })) => None,
        Some(found) => Some(found?),
    };
    let is_short = has_times && worked.is_none();
    if worked.is_none() && all.count() < FEW {
        return Err(too_few(why_not_alone(is_short).to_owned()));
    }
    let mut fitted = if let Some(worked) = worked {
        let (model, servers) = (worked.model.clone(), worked.servers.clone());
        Service { model, servers, worked: Some(worked) }
    } else {
        let fitted = model::fit::black_box(&steps, servers, &options);
        let BlackBox { model, servers } = fitted.map_err(Error::Model)?;
        Service { model, servers, worked: None }
    };
    fitted.model.held_out = judge_all(&fitted.model, observed)?;
    let warn = |name| format!("Step {name}: no read was answered in it, so it is not fitted.");
    fitted.model.warnings.extend(silent.iter().map(warn));
    fitted.model.warnings.extend(times_missing(&steps));
    if all.count() < FEW {
        fitted.model.warnings.push(format!(
            "Only {} answered reads were fitted, which exclude few numbers of servers; the intervals have all that are left. At least {FEW} are \
             needed to tell how many servers there are. A log as short may lack the longest works, and then its intervals are too narrow: where few \
             requests take most of the work, one in five of such logs of 100 requests showed too little.",
            all.count()
        ));
    } else if is_short {
        fitted.model.warnings.push(format!(
            "The response times alone were fitted: fewer than {} requests went to the servers before the last ones.",
            model::fit::REQUESTS_MIN
        ));
    }
    Ok(fitted)
}

/// That times of single requests are recorded for some steps alone, so that none are used.
fn times_missing(steps: &[model::fit::Step]) -> Option<String> {
    let missing: Vec<&str> = steps
        .iter()
        .filter(|step| step.times.is_none())
        .map(|step| short_name(&step.name))
        .collect();
    let some = !missing.is_empty() && missing.len() < steps.len();
    some.then(|| {
        format!(
            "Times of single requests are missing for {} of {} steps ({}), so the response times alone were fitted: was the run's file \
             `times` cut off? Copy it again, or leave these steps out (--steps).",
            missing.len(),
            steps.len(),
            missing.join(", ")
        )
    })
}

/// Why the response times of few requests are not fitted. Intervals of such fits excluded the truth: a few blocks of dependent responses do not
/// show what they deviate by.
fn why_not_alone(is_short: bool) -> &'static str {
    match is_short {
        true => "too few of them went to the servers before the last ones",
        false => "the order in which they came is not known, and response times alone tell less",
    }
}

/// With fewer answered reads response times alone are not fitted, and those of single requests (`model::fit::work`) hardly tell the number of servers.
const FEW: u64 = 500;

/// With fewer, nothing is fitted.
const FEWEST: u64 = model::fit::REQUESTS_MIN as u64;

/// The responses of all answered reads.
fn responses(steps: &[model::fit::Step]) -> Histogram {
    let mut all = Histogram::default();
    for step in steps {
        let sides = [&step.load, &step.gateway, &step.node];
        // The side nearest to the clients that has any: the others saw the same requests.
        let read = |w: &Window| w.times.iter().any(is_answered);
        if let Some(side) = sides.into_iter().find(|side| side.iter().any(read)) {
            let times = side.iter().flat_map(|w| &w.times).filter(|t| is_answered(t));
            times.for_each(|t| all.merge(&t.response));
        }
    }
    all
}

fn is_answered(times: &Times) -> bool {
    times.operation == Operation::Get && !times.response.is_empty()
}

/// Whether the clients' side has an answered read.
fn has_answers(step: &model::fit::Step) -> bool {
    let sides = [&step.load, &step.gateway, &step.node];
    sides.into_iter().flatten().flat_map(|w| &w.times).any(is_answered)
}

/// The errors of a model on all held-out steps.
fn judge_all(model: &Model, observed: &Observed) -> Result<Vec<HeldOut>, Error> {
    let within_s = counted_at(observed);
    let mut held_out = Vec::new();
    for step in observed.steps.iter().filter(|step| step.held_out) {
        held_out.extend(judge(model, step, &within_s)?);
    }
    Ok(held_out)
}

/// The errors of a cluster's model on the held-out steps, as measured at the clients.
pub(super) fn judge_cluster(
    model: &ClusterModel,
    clients: &Observed,
) -> Result<Vec<HeldOut>, Error> {
    let within_s = counted_at(clients);
    let mut held_out = Vec::new();
    for step in clients.steps.iter().filter(|step| step.held_out) {
        let measured = measure(step, &within_s);
        let shares = within_s.iter().map(|&t| model.cluster().within(t)(measured.rate)).collect();
        held_out.extend(rows(step, &measured, shares));
    }
    Ok(held_out)
}

/// The errors of a model on one step. At a load that the model considers unstable, it predicts that
/// only memory hits are answered; past the capacity of a link or of workers, nothing is.
fn judge(model: &Model, step: &ObservedStep, within_s: &[f64]) -> Result<Vec<HeldOut>, Error> {
    let measured = measure(step, within_s);
    let shares = match model.cdf(measured.rate, within_s) {
        Ok(shares) => shares,
        Err(model::Error::Unstable { .. }) => {
            let node = model.node()?;
            let devices = node.breaks_first().is_none_or(|(_, limit)| limit == Limit::Devices);
            let answered = if devices && node.workers.is_none() {
                node.hit_ratio.at_rate(measured.rate)
            } else {
                0.0
            };
            vec![answered; within_s.len()]
        }
        Err(error) => return Err(error.into()),
    };
    Ok(rows(step, &measured, shares))
}

/// Pairs the predicted shares with the measured ones.
fn rows(step: &ObservedStep, measured: &StepFigures, shares: Vec<f64>) -> Vec<HeldOut> {
    let rows = measured.within.iter().zip(shares).map(|(within, share)| HeldOut {
        name: step.windows.name.clone(),
        rate: measured.rate,
        within_s: within.t_s,
        error_points: (share - within.share.value) * 100.0,
        half_width_points: within.share.half_width.map(|half| half * 100.0),
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that was cut off made a fit of response times alone, without a word.
    #[test]
    fn steps_without_times_beside_others_are_named() {
        let times = model::fit::Times {
            requests: Vec::new(),
            clock_s: 0.0,
            resolution_s: 0.0,
            is_timed_apart: false,
            open: true,
        };
        let step = |name: &str, times: Option<model::fit::Times>| model::fit::Step {
            name: name.to_owned(),
            times,
            ..model::fit::Step::default()
        };
        let some = [step("r#0@17", Some(times.clone())), step("r#1@18", None)];
        let told = times_missing(&some).unwrap();
        assert!(told.contains("missing for 1 of 2 steps (r#1)"), "{told}");
        assert_eq!(times_missing(&some[..1]), None);
        assert_eq!(times_missing(&some[1..]), None);
    }
}
