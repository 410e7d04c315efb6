//! `--until`: the next load is the one that narrows a prediction most, until the prediction is known as
//! well as is wanted.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use model::fit::{ClosedLoop, Goal, Options, Prospect, Worked, half_width_points, prospects};
use report::objective::{digits, time};
use report::{Observed, Selection, ServiceFacts, StepChoice};
use serde::Serialize;

use super::budget::Budget;
use super::offered::{OfferedLoad, rounded};
use super::point::Repeated;
use super::settings::{Place, Settings, Until};
use super::sweep::{Ended, measure_once};
use load::{Progress, Session};

/// Loads that may come next, as shares of the saturation.
const SHARES: [f64; 4] = [0.2, 0.4, 0.6, 0.75];
/// The fewest requests that a goal is judged by. A fit takes some dozens, but the widths of its intervals then vary by half, and a goal
/// would be reached by chance.
const REQUESTS_MIN: u64 = 500;
/// The fewest steady loads that a goal is judged by: a prediction takes as many, since one does not tell whether works change with
/// the load.
const LOADS_MIN: usize = 2;
/// The largest need that is printed, as a multiple of what was measured: beyond it, the extrapolation says nothing.
const FARTHEST: f64 = 1e4;

/// What is pursued.
#[derive(Clone, Copy)]
pub(super) struct PursuitGoal<'a> {
    pub until: &'a Until,
    /// The result of a search for the saturation.
    pub closed_loop: Option<ClosedLoop>,
}

/// Reports to the user: of a load while it runs, and of what is known then.
pub(super) struct Reporter<'a> {
    pub progress: &'a mut dyn FnMut(&Progress),
    pub tell: &'a mut dyn FnMut(&str),
}

/// What was known after a load was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Round {
    /// Requests that were fitted.
    pub requests: u64,
    /// The likeliest hypothesis; `None` while too little is known for any.
    pub hypothesis: Option<String>,
    /// The load of the goal, requests/s.
    pub rate: Option<f64>,
    /// Half the width of the widest interval there, points.
    pub half_width_points: Option<f64>,
    /// What was measured next, with the half width that was expected of it.
    pub next: Option<Prospect>,
}

/// The pursuit of a goal.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Pursuit {
    /// What was known, round by round.
    pub rounds: Vec<Round>,
    /// Whether the goal was reached.
    pub reached: bool,
    /// The result in a sentence.
    pub verdict: String,
}

/// The loads that a fit takes, requests/s.
fn steady_rates(settings: &Settings, points: &[Repeated]) -> Vec<f64> {
    let measured = points.iter().filter(|p| p.repetitions() > 0).map(|p| p.point(settings));
    let steady = measured.filter(|point| point.steady && !point.is_past_saturation());
    steady.filter_map(|point| point.at.rate()).collect()
}

/// A fit of the steady loads of what was measured; the error says what it lacks.
fn fitted(
    settings: &Settings,
    points: &[Repeated],
    closed_loop: Option<ClosedLoop>,
) -> Result<Worked, String> {
    let choices: Vec<StepChoice> =
        steady_rates(settings, points).into_iter().map(StepChoice::Rate).collect();
    if choices.is_empty() {
        return Err("no load was steady".to_owned());
    }
    let observed =
        observed(&settings.plan.out, &choices).map_err(|error| format!("no fit ({error:#})"))?;
    // Without the times of arrivals and departures a fit takes seconds, and is too inexact to choose a load by.
    if !model::fit::has_times(&observed.fit_steps()) {
        return Err("too few to tell how the service works".to_owned());
    }
    let facts = ServiceFacts { closed_loop, ..ServiceFacts::default() };
    let service = report::fit_service(&observed, "Fit of a measurement", facts)
        .map_err(|error| format!("no fit ({error:#})"))?;
    let Some(worked) = service.worked else {
        return Err("too few to tell how the service works".to_owned());
    };
    let fitted = worked.known.requests;
    if fitted < REQUESTS_MIN {
        return Err(format!(
            "{fitted} of them in steady loads, too few to judge the goal by, which takes {REQUESTS_MIN}"
        ));
    }
    Ok(worked)
}

fn observed(dir: &Path, choices: &[StepChoice]) -> anyhow::Result<Observed> {
    let selection = Selection { any_queues: true, ..Selection::new(choices, false) };
    Ok(Observed::read(&[dir.to_owned()], &selection)?)
}

/// The steps of steady loads, as a fit reads them.
fn steps(settings: &Settings, points: &[Repeated]) -> Vec<model::fit::Step> {
    let steady = points.iter().filter(|p| p.repetitions() > 0 && p.point(settings).steady);
    let choices: Vec<StepChoice> =
        steady.filter_map(|p| p.at.rate()).map(StepChoice::Rate).collect();
    observed(&settings.plan.out, &choices)
        .map_or_else(|_| Vec::new(), |observed| observed.fit_steps())
}

/// The saturation of a model, at most the throughput of a closed loop: the search found that more clients gained
/// nothing beyond it.
fn bounded(saturation: f64, closed_loop: Option<ClosedLoop>) -> f64 {
    closed_loop.map_or(saturation, |closed| saturation.min(closed.throughput))
}

/// What is known of the goal after some loads were measured.
struct Knowledge<'a> {
    settings: &'a Settings,
    points: &'a [Repeated],
    until: &'a Until,
    closed_loop: Option<ClosedLoop>,
    worked: &'a Worked,
    saturation: f64,
    /// The goal at its load, requests/s.
    goal: Goal,
    /// Half the width of the widest interval there, points.
    half_width_points: f64,
}

impl Knowledge<'_> {
    fn new<'a>(
        settings: &'a Settings,
        points: &'a [Repeated],
        worked: &'a Worked,
        goal: PursuitGoal<'a>,
    ) -> anyhow::Result<Knowledge<'a>> {
        let PursuitGoal { until, closed_loop } = goal;
        let saturation = bounded(worked.model.node()?.saturation(), closed_loop);
        let rate = match until.at {
            Place::Share(share) => share * saturation,
            Place::Rate(rate) => rate,
        };
        let goal = Goal { rate, within_s: until.within_s.clone() };
        let half_width_points = half_width_points(&worked.model, &goal)?;
        Ok(Knowledge {
            settings,
            points,
            until,
            closed_loop,
            worked,
            saturation,
            goal,
            half_width_points,
        })
    }

    fn round(&self) -> Round {
        Round {
            requests: self.worked.known.requests,
            hypothesis: self.worked.hypotheses.first().map(model::Hypothesis::title),
            rate: Some(self.goal.rate),
            half_width_points: Some(self.half_width_points),
            next: None,
        }
    }

    /// What loads would narrow the goal to if each was measured for some seconds, the best first.
    fn prospects(
        &self,
        steps: &[model::fit::Step],
        loads: &[f64],
        seconds: f64,
    ) -> anyhow::Result<Vec<Prospect>> {
        let options = Options { closed_loop: self.closed_loop, ..Options::default() };
        Ok(prospects(steps, self.worked, loads, seconds, &self.goal, &options)?)
    }

    /// The verdict where the budget is spent: what the goal lacks.
    fn lacking(
        &self,
        now: &str,
        steps: &[model::fit::Step],
        best: Option<Prospect>,
    ) -> anyhow::Result<String> {
        let Some(best) = best else { return Ok(format!("{now}; the budget is spent.")) };
        let times = (self.half_width_points / self.until.points).powi(2) - 1.0;
        let seconds = times.clamp(0.1, FARTHEST) * seconds(self.points);
        let then = self.prospects(steps, &[best.rate], seconds)?;
        Ok(lacking(now, self.until, best.rate, seconds, then.first()))
    }
}

/// What follows from what is known.
enum Decision {
    End(Ended),
    /// A load to measure, requests/s, if one would narrow the goal.
    Measure(Option<f64>),
}

impl Pursuit {
    fn decide(
        &mut self,
        known: &Knowledge<'_>,
        budget: &Budget,
        tell: &mut dyn FnMut(&str),
    ) -> anyhow::Result<Decision> {
        let mut round = known.round();
        let half = known.half_width_points;
        let mut now = format!(
            "{} requests: {}; ± {} points at {}/s",
            round.requests,
            round.hypothesis.as_deref().unwrap_or("nothing"),
            digits(half, 2),
            digits(known.goal.rate, 4)
        );
        let is_near = half <= known.until.points;
        let steady = steady_rates(known.settings, known.points);
        let mut loads = loads(known.settings, known.points, known.saturation);
        if is_near {
            // What is still missing is another load, not more of the same.
            loads.retain(|rate| !steady.contains(rate));
        }
        if is_near && (steady.len() >= LOADS_MIN || loads.is_empty()) {
            self.verdict = format!("{now}{}: reached.", times_text(&known.until.within_s));
            self.reached = true;
            self.rounds.push(round);
            tell(&self.verdict);
            return Ok(Decision::End(Ended::Known));
        }
        if is_near {
            now += ", by one steady load, where a prediction takes two";
        }
        let steps = steps(known.settings, known.points);
        let next = known.prospects(&steps, &loads, known.settings.step_s())?.first().copied();
        round.next = next;
        self.rounds.push(round);
        if !budget.allows() {
            self.verdict = known.lacking(&now, &steps, next)?;
            tell(&self.verdict);
            return Ok(Decision::End(Ended::Budget));
        }
        if let Some(next) = next {
            tell(&format!(
                "{now}; next {}/s, which should make it ± {}",
                digits(next.rate, 4),
                digits(next.half_width_points, 2)
            ));
        }
        Ok(Decision::Measure(next.map(|next| next.rate)))
    }

    /// Notes that too little was measured for a fit, and what it lacks.
    fn note_too_little(
        &mut self,
        settings: &Settings,
        points: &[Repeated],
        lack: &str,
        tell: &mut dyn FnMut(&str),
    ) {
        let requests = points.iter().map(|p| p.point(settings).completions).sum();
        let (hypothesis, rate, half_width_points, next) = (None, None, None, None);
        self.rounds.push(Round { requests, hypothesis, rate, half_width_points, next });
        tell(&format!("{requests} requests: {lack}"));
    }
}

/// Measures the first loads once, then what narrows the goal most.
pub(super) fn pursue(
    settings: &Settings,
    goal: PursuitGoal<'_>,
    session: &mut Session,
    points: &mut Vec<Repeated>,
    budget: &mut Budget,
    stop: &AtomicBool,
    reporter: &mut Reporter<'_>,
) -> anyhow::Result<(Ended, Pursuit)> {
    let Reporter { progress, tell } = reporter;
    let mut pursuit = Pursuit::default();
    for number in 0..points.len() {
        measure_once(settings, session, points, number, budget, *progress)?;
        if stop.load(Ordering::Relaxed) {
            return Ok((Ended::Interrupted, pursuit));
        }
    }
    loop {
        session.flush()?;
        let mut lack = String::new();
        let next = match fitted(settings, points, goal.closed_loop) {
            Ok(worked) => {
                let known = Knowledge::new(settings, points, &worked, goal)?;
                match pursuit.decide(&known, budget, *tell)? {
                    Decision::End(ended) => return Ok((ended, pursuit)),
                    Decision::Measure(rate) => rate,
                }
            }
            Err(why) => {
                pursuit.note_too_little(settings, points, &why, *tell);
                lack = format!(" ({why})");
                None
            }
        };
        // Without a prospect, the largest steady load, or half of the smallest.
        let rate = next.or_else(|| fallback(settings, points));
        let Some(rate) = rate.filter(|_| budget.allows()) else {
            pursuit.verdict =
                format!("Too little is known for a prediction{lack}: the budget is spent.");
            tell(&pursuit.verdict);
            return Ok((Ended::Budget, pursuit));
        };
        let at = OfferedLoad::Rate(rate);
        let number = points.iter().position(|p| p.at == at).unwrap_or_else(|| {
            points.push(Repeated::new(at));
            points.len() - 1
        });
        measure_once(settings, session, points, number, budget, *progress)?;
        if stop.load(Ordering::Relaxed) {
            return Ok((Ended::Interrupted, pursuit));
        }
    }
}

fn fallback(settings: &Settings, points: &[Repeated]) -> Option<f64> {
    let rates = || points.iter().filter_map(|p| p.at.rate());
    let steady = points.iter().filter(|p| p.point(settings).steady);
    let largest = steady.filter_map(|p| p.at.rate()).reduce(f64::max);
    largest.or_else(|| rates().reduce(f64::min).map(|rate| rounded(0.5 * rate)))
}

/// Seconds that were measured.
fn seconds(points: &[Repeated]) -> f64 {
    points.iter().map(Repeated::seconds).sum()
}

/// Loads that may come next: below the saturation, and below any that was not steady.
fn loads(settings: &Settings, points: &[Repeated], saturation: f64) -> Vec<f64> {
    let unsteady = points.iter().filter(|p| p.repetitions() > 0 && !p.point(settings).steady);
    let least = unsteady.filter_map(|p| p.at.rate()).fold(f64::INFINITY, f64::min);
    let own = points.iter().filter_map(|p| p.at.rate());
    let mut all: Vec<f64> = Vec::new();
    for rate in own.chain(SHARES.map(|share| rounded(share * saturation))) {
        let near = |other: &f64| (other / rate - 1.0).abs() < 0.1;
        if rate < 0.8 * saturation && rate < 0.95 * least && !all.iter().any(near) {
            all.push(rate);
        }
    }
    all
}

fn times_text(within_s: &[f64]) -> String {
    match within_s {
        [] => String::new(),
        times => {
            let each: Vec<String> = times.iter().map(|t| time(*t)).collect();
            format!(" (within {})", each.join(", "))
        }
    }
}

/// What the goal lacks.
fn lacking(now: &str, until: &Until, rate: f64, seconds: f64, then: Option<&Prospect>) -> String {
    let (at, wanted) = (digits(rate, 4), digits(until.points, 2));
    let need = format!("about {} s at {at}/s", digits(seconds, 2));
    match then {
        Some(then) if then.half_width_points <= 1.3 * until.points => {
            format!("{now}; the budget is spent. ± {wanted} need {need} more.")
        }
        Some(then) => format!(
            "{now}; the budget is spent. Even {need} more should leave ± {}: the service differs from run \
             to run, or several hypotheses remain.",
            digits(then.half_width_points, 2)
        ),
        None => format!("{now}; the budget is spent."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_loop_bounds_the_saturation_of_a_model() {
        let closed = |throughput| Some(ClosedLoop { throughput, deviation: 0.02 });
        assert_eq!(bounded(500.0, closed(250.0)), 250.0);
        assert_eq!(bounded(500.0, closed(510.0)), 500.0);
        assert_eq!(bounded(f64::INFINITY, closed(250.0)), 250.0);
        assert_eq!(bounded(500.0, None), 500.0);
    }

    #[test]
    fn goals_are_read_as_people_write_them() {
        let goal = |points, at| Until { points, at, within_s: Vec::new() };
        for (text, wanted) in [
            ("±2 points at 90 %", goal(2.0, Place::Share(0.9))),
            ("2 points at 80%", goal(2.0, Place::Share(0.8))),
            ("+-1 point at 150/s", goal(1.0, Place::Rate(150.0))),
            ("+/- 0.5 points at 7.5/s", goal(0.5, Place::Rate(7.5))),
        ] {
            assert_eq!(text.parse::<Until>(), Ok(wanted), "{text}");
        }
        for text in [
            "",
            "2",
            "2 points",
            "2 points at 90",
            "0 points at 90 %",
            "2 at 90 %",
            "2 points at 100 %",
        ] {
            let error = text.parse::<Until>().unwrap_err();
            assert!(error.contains("±2 points at 90 %"), "{error}");
        }
    }
}
