//! Compares predictions with measurements: the data behind tables, JSON and pages.

use model::{HeldOut, Limits, Model, POINTS_MAX, Parameter, Point, Prediction, Trust};
use serde::Serialize;

use super::coverage::{self, Between};
use super::error::Error;
use super::measured::{StepFigures, measure};
use super::objective::{Objective, digits, time};
use super::percentiles::{Percentile, percentiles};
pub use super::row::Row;
use super::steps::{Observed, ObservedStep, run_name, same_step, short_name};
use record::{Host, Run, Step};

/// A step of the load with its measurement and prediction.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedStep {
    /// Its name: the run's folder and its number in the sweep.
    pub name: String,
    /// The generator's record of the step.
    pub step: Step,
    /// Whether the model was fitted to this step.
    pub used_for_fit: bool,
    /// The measured figures.
    pub measured: StepFigures,
    /// The model's prediction; `None` if the load is unstable.
    pub prediction: Option<Prediction>,
    /// The reason why there is no prediction.
    pub unstable: Option<String>,
    /// The mean work of its requests under the model's likeliest hypothesis, seconds, where when each came
    /// and was answered is recorded.
    pub work_s: Option<f64>,
    /// Percentiles of its response time.
    pub percentiles: Vec<Percentile>,
    /// Host records, second by second.
    #[serde(skip)]
    pub hosts: Vec<(String, Vec<Host>)>,
}

impl ComparedStep {
    /// How busy the servers are, as a share of the time: of devices without queues the model says it. `None` without either.
    pub(crate) fn utilisation(&self) -> Option<f64> {
        if self.measured.utilisation_max > 0.0 {
            return Some(self.measured.utilisation_mean);
        }
        self.prediction.as_ref().map(|prediction| prediction.utilisation_mean.value)
    }

    fn step_data(&self) -> StepData<'_> {
        let prediction = self.prediction.as_ref();
        StepData {
            step: &self.name,
            measured: &self.measured,
            utilisation: self.utilisation().unwrap_or(self.measured.utilisation_mean),
            points: prediction.map(|p| p.points.as_slice()),
            beyond_limit: prediction.is_none_or(|p| p.beyond_limit),
            beyond_fitted: prediction.is_none_or(|p| p.beyond_fitted),
            beyond_trust: prediction.is_none_or(|p| p.beyond_trust),
            used_for_fit: self.used_for_fit,
        }
    }
}

/// The largest load that meets an objective.
#[derive(Clone, Debug, Serialize)]
pub struct LargestRate {
    /// The objective.
    pub objective: Objective,
    /// The number of servers that share the load.
    pub servers: u32,
    /// By Concertina's model, requests/s; `None` if no load meets the objective or every load does.
    pub rate: Option<Parameter>,
    /// By the Spotify model.
    pub spotify: Option<f64>,
    /// Whether it is past our confidence limit.
    pub beyond_limit: bool,
    /// Whether it is past the load up to which the model is trusted.
    pub beyond_trust: bool,
    /// The result as a sentence.
    pub statement: String,
}

/// A run that was read.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// Its folder's name.
    pub name: String,
    /// Its `run.toml`.
    pub run: Run,
}

/// A named parameter of the model.
#[derive(Clone, Debug, Serialize)]
pub struct NamedParameter {
    /// Its symbol or name.
    pub name: String,
    /// Its meaning.
    pub meaning: String,
    /// Its value, interval and unit.
    pub parameter: Parameter,
}

/// A comparison of runs with a model.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Emulation notes of the runs and the model. Show them with the figures.
    pub laboratory: Vec<String>,
    /// The times, seconds.
    pub within_s: Vec<f64>,
    /// One row for each step and time, in order of rate.
    pub rows: Vec<Row>,
    /// The steps in order of rate.
    pub steps: Vec<ComparedStep>,
    /// The loads that bound the model's validity; infinite ones are `null` in JSON.
    pub limits: Limits,
    /// The load up to which the model is trusted, from its interval and its errors on held-out
    /// loads.
    pub trust: Trust,
    /// The largest load for each objective.
    pub largest_rates: Vec<LargestRate>,
    /// The parameters of the model.
    pub parameters: Vec<NamedParameter>,
    /// Warnings about the model and the steps.
    pub warnings: Vec<String>,
    /// The runs.
    pub runs: Vec<RunInfo>,
    /// The model.
    #[serde(skip)]
    pub model: Model,
}

impl Comparison {
    /// Compares runs with a model. If `within_s` is empty, the objectives at which the runs counted
    /// are used.
    pub fn new(
        observed: &Observed,
        model: &Model,
        within_s: &[f64],
        objectives: &[Objective],
    ) -> Result<Comparison, Error> {
        let within_s = if within_s.is_empty() { counted_at(observed) } else { within_s.to_vec() };
        let found = Comparison::with_model(observed, model, &within_s, objectives)?;
        match checked_by(model, found.others()) {
            Some(model) => Comparison::with_model(observed, &model, &within_s, objectives),
            None => Ok(found),
        }
    }

    fn with_model(
        observed: &Observed,
        model: &Model,
        within_s: &[f64],
        objectives: &[Objective],
    ) -> Result<Comparison, Error> {
        let mut steps = Vec::new();
        for step in &observed.steps {
            steps.push(compare(step, model, within_s)?);
        }
        let mut rows: Vec<Row> =
            steps.iter().flat_map(|step| rows_of(&step.step_data(), within_s)).collect();
        expect(&mut rows, &steps, model, within_s)?;
        let mut laboratory = observed.laboratory();
        laboratory.extend(model.about.laboratory.clone().filter(|note| {
            let known = laboratory.join(" · ");
            !laboratory.contains(note) && known != *note
        }));
        let mut warnings = warnings_of(model);
        for step in &steps {
            let hints = step.measured.hints.iter();
            warnings.extend(hints.map(|hint| format!("Step {}: {hint}.", step.name)));
        }
        let largest_rates = objectives
            .iter()
            .map(|&objective| largest_rate(model, objective, 1))
            .collect::<Result<_, _>>()?;
        let info = |r: &record::RunFolder| RunInfo { name: run_name(r), run: r.run.clone() };
        Ok(Comparison {
            laboratory,
            within_s: within_s.to_vec(),
            rows,
            steps,
            limits: model.limits()?,
            trust: model.trust()?,
            largest_rates,
            parameters: parameters(model),
            warnings,
            runs: observed.runs.iter().map(info).collect(),
            model: model.clone(),
        })
    }

    /// The loads of these runs that the model was neither fitted to nor checked by, with its errors there.
    fn others(&self) -> Vec<HeldOut> {
        let is_known = |row: &Row| {
            let same = |held: &&HeldOut| held.within_s == row.within_s && held.rate == row.rate;
            self.model.held_out.iter().any(|held| same(&held))
        };
        let held_out = |row: &Row| {
            let half_width_points = row.measured.half_width.map(|half| half * 100.0);
            let error_points = row.concertina_error_points?;
            let (name, rate, within_s) = (row.step.clone(), row.rate, row.within_s);
            Some(HeldOut { name, rate, within_s, error_points, half_width_points })
        };
        let rows = self.rows.iter().filter(|row| !row.used_for_fit && row.marks.is_empty());
        rows.filter(|row| !is_known(row)).filter_map(held_out).collect()
    }

    /// The rows with a stable prediction that match a condition.
    pub fn predicted<'a>(
        &'a self,
        holds: impl Fn(&Row) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Row, f64)> + 'a {
        self.rows
            .iter()
            .filter_map(|row| Some((row, row.concertina_error_points?)))
            .filter(move |(row, _)| holds(row))
    }

    /// The largest absolute error in points among the rows that match a condition.
    pub(crate) fn worst_error(&self, holds: impl Fn(&Row) -> bool) -> Option<f64> {
        self.predicted(holds).map(|(_, error)| error.abs()).reduce(f64::max)
    }
}

/// A model with other loads among those it was checked by. A model that misses one of them is not to be trusted by those of its own; one that
/// was compared with none, because its numbers were stated, is checked by these alone. `None` for others.
fn checked_by(model: &Model, others: Vec<HeldOut>) -> Option<Model> {
    let is_compared = model.trust().is_ok_and(|trust| trust.is_compared());
    let tells = |held: &HeldOut| {
        let is_exact = held.half_width_points.is_some_and(|half| half < POINTS_MAX);
        is_exact && (!is_compared || held.error_points.abs() >= POINTS_MAX)
    };
    others.iter().any(tells).then(|| {
        let mut model = model.clone();
        model.held_out.extend(others);
        model
    })
}

/// The warnings of a model, without the start times in step names.
pub fn warnings_of(model: &Model) -> Vec<String> {
    let short = |text: String, s: &model::FittedStep| text.replace(&s.name, short_name(&s.name));
    let shorten = |warning: &String| model.fitted.iter().fold(warning.clone(), short);
    model.warnings.iter().map(shorten).collect()
}

/// The objectives at which the windows of the first step were counted.
pub(super) fn counted_at(observed: &Observed) -> Vec<f64> {
    let windows = observed.steps.iter().flat_map(|s| {
        let w = &s.windows;
        w.load.iter().chain(&w.gateway).chain(&w.node)
    });
    let found = windows.map(|w| &w.objectives_ms).find(|ms| !ms.is_empty());
    found.map_or(vec![0.020, 0.050, 0.100], |ms| ms.iter().map(|t| t * 1e-3).collect())
}

/// Sets the interval in which the measurement of each row is expected.
fn expect(
    rows: &mut [Row],
    steps: &[ComparedStep],
    model: &Model,
    within_s: &[f64],
) -> Result<(), Error> {
    let between = Between::of_models([model]);
    for (step, rows) in steps.iter().zip(rows.chunks_mut(within_s.len().max(1))) {
        coverage::expect(rows, &between, step.measured.rate, |rate| {
            match model.predict(rate, within_s) {
                Ok(shifted) => {
                    Ok(shifted.points.iter().map(|point| point.concertina.value).collect())
                }
                // Past saturation nothing is answered in time for long.
                Err(model::Error::Unstable { .. }) => Ok(vec![0.0; within_s.len()]),
                Err(error) => Err(error.into()),
            }
        })?;
    }
    Ok(())
}

fn compare(
    observed: &ObservedStep,
    model: &Model,
    within_s: &[f64],
) -> Result<ComparedStep, Error> {
    let mut measured = measure(observed, within_s);
    let used_for_fit =
        model.fitted.iter().any(|fitted| same_step(&fitted.name, &observed.windows.name));
    let work_s = work_of(observed, model)?;
    measured.hints.extend(work_s.filter(|_| !used_for_fit).and_then(|w| other_work(w, model)));
    let (prediction, unstable) = match model.predict(measured.rate, within_s) {
        Ok(prediction) => (Some(prediction), None),
        Err(error @ model::Error::Unstable { .. }) => (None, Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let percentiles = percentiles(&measured, model)?;
    Ok(ComparedStep {
        percentiles,
        name: observed.name().to_owned(),
        step: observed.step.clone(),
        used_for_fit,
        measured,
        prediction,
        unstable,
        work_s,
        hosts: observed.hosts.clone(),
    })
}

/// A step's mean work that differs from that of the fit by less than this says nothing.
const OTHER_WORK: f64 = 0.03;

/// The mean work of a step under the likeliest hypothesis of a model that was fitted to works.
fn work_of(observed: &ObservedStep, model: &Model) -> Result<Option<f64>, Error> {
    let times = observed.windows.times.as_ref();
    let (Some(hypothesis), Some(times)) = (model.hypotheses.first(), times) else {
        return Ok(None);
    };
    Ok(model::fit::mean_work(times, hypothesis)?)
}

/// That a step met another service than the fit: queues near saturation lengthen by a multiple of what
/// works do, so what a prediction misses there is told apart from a wrong law.
fn other_work(work_s: f64, model: &Model) -> Option<String> {
    let fitted = model.classes.first()?.service.mean.value;
    let off = work_s / fitted - 1.0;
    (off.abs() > OTHER_WORK).then(|| {
        format!(
            "its requests have {:.1} % {} work than those that were fitted ({} for {}): the service or its \
             machine differs from then, or works depend on the load, and the prediction is off by that",
            100.0 * off.abs(),
            if off > 0.0 { "more" } else { "less" },
            time(work_s),
            time(fitted)
        )
    })
}

/// The data of a step that its rows show.
pub(super) struct StepData<'a> {
    pub step: &'a str,
    pub measured: &'a StepFigures,
    pub utilisation: f64,
    /// The predicted points; `None` if the load is unstable.
    pub points: Option<&'a [Point]>,
    pub beyond_limit: bool,
    pub beyond_fitted: bool,
    pub beyond_trust: bool,
    pub used_for_fit: bool,
}

/// Makes one row for each time.
pub(super) fn rows_of(shown: &StepData, within_s: &[f64]) -> Vec<Row> {
    let row = |(i, &within_s): (usize, &f64)| {
        let measured = shown.measured.within[i].share;
        let point = shown.points.and_then(|points| points.get(i));
        let points = |p: &Parameter| (p.value - measured.value) * 100.0;
        let spotify = point.and_then(|p| p.spotify.clone());
        Row {
            step: shown.step.to_owned(),
            rate: shown.measured.rate,
            requests: shown.measured.requests,
            utilisation: shown.utilisation,
            within_s,
            measured,
            concertina_error_points: point.map(|p| points(&p.concertina)),
            spotify_error_points: spotify.as_ref().map(points),
            concertina: point.map(|p| p.concertina.clone()),
            spotify,
            beyond_limit: shown.beyond_limit,
            beyond_fitted: shown.beyond_fitted,
            beyond_trust: shown.beyond_trust,
            used_for_fit: shown.used_for_fit,
            marks: shown.measured.marks.clone(),
            expected: None,
        }
    };
    within_s.iter().enumerate().map(row).collect()
}

/// Computes the largest load on `servers` servers that meets an objective, with a sentence that
/// states it.
pub fn largest_rate(
    model: &Model,
    objective: Objective,
    servers: u32,
) -> Result<LargestRate, Error> {
    let Objective { share, within_s } = objective;
    let n = f64::from(servers);
    let spotify = model.spotify_largest_rate(within_s, share).ok().filter(|r| r.is_finite());
    let spotify = spotify.map(|r| r * n);
    let none = |statement: String| LargestRate {
        objective,
        servers,
        rate: None,
        spotify,
        beyond_limit: false,
        beyond_trust: false,
        statement,
    };
    let each = match model.largest_rate_with_interval(within_s, share) {
        Ok(each) => each,
        Err(model::Error::Unattainable { best, .. }) => {
            return Ok(none(format!(
                "No load meets {objective}: even an idle system answers only {} % within {}.",
                digits(best * 100.0, 4),
                time(within_s)
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if !each.value.is_finite() {
        return Ok(none(format!("Every load meets {objective}: memory answers everything.")));
    }
    let rate = Parameter {
        value: each.value * n,
        low: each.low * n,
        high: each.high * n,
        unit: each.unit,
    };
    let limit = model.cluster_limit_mg1(servers)?;
    let beyond_limit = rate.value > limit;
    let trust = model.trust()?;
    let beyond_trust = !trust.covers(each.value);
    let mut statement = format!("{objective} holds up to {} requests/s", digits(rate.value, 4));
    if rate.low < rate.high {
        statement += &format!(" [{}, {}]", digits(rate.low, 4), upper_end(rate.high));
    }
    if servers > 1 {
        statement += &format!(" on {servers} servers");
    }
    if let Some(spotify) = spotify {
        statement += &format!("; Spotify model: {}", digits(spotify, 4));
    }
    statement.push('.');
    if beyond_trust {
        statement += &extrapolated(trust.limit * n);
    }
    statement += &unknown_past(model.known_to() * n, &rate);
    if beyond_limit {
        let limit = digits(limit, 4);
        statement +=
            &format!(" Queues are long there: the confidence limit is {limit} requests/s.");
    }
    let rate = Some(rate);
    Ok(LargestRate { objective, servers, rate, spotify, beyond_limit, beyond_trust, statement })
}

/// That nothing is known past a load, if the interval of a load passes it.
fn unknown_past(known: f64, rate: &Parameter) -> String {
    match rate.high > known {
        true => {
            format!(" Nothing is known past {} requests/s: no hypothesis fits.", digits(known, 4))
        }
        false => String::new(),
    }
}

/// The upper end of the interval of a load: infinite where no hypothesis fits, so that nothing is known beyond the fitted loads.
pub(super) fn upper_end(rate: f64) -> String {
    if rate.is_finite() { digits(rate, 4) } else { "not known".to_owned() }
}

/// Says that an answer is for a load past the checked ones, which end at `limit` requests/s.
pub(super) fn extrapolated(limit: f64) -> String {
    match limit > 0.0 {
        true => format!(
            " ? This is extrapolated: the model was checked up to {} requests/s.",
            digits(limit, 4)
        ),
        false => " ? This is extrapolated: the model was checked at no load.".to_owned(),
    }
}

/// The parameters of a model with their names and meanings.
pub fn parameters(model: &Model) -> Vec<NamedParameter> {
    let r = &model.requests;
    let mut all: Vec<NamedParameter> = Vec::new();
    let mut add = |name: &str, meaning: &str, parameter: &Parameter| {
        let (name, meaning) = (name.to_owned(), meaning.to_owned());
        all.push(NamedParameter { name, meaning, parameter: parameter.clone() });
    };
    add("q₀", "share answered from memory as the load approaches 0", &r.q0);
    add("α", "decrease of that share for each additional request/s", &r.alpha);
    add("other", "share answered by neither memory nor a device", &r.other_share);
    add("δ", "time that gateway and network add to a device's response", &r.front_delay);
    if let Some(scv) = &r.front_delay_scv {
        add("SCV δ", "its squared coefficient of variation", scv);
    }
    if let Some(link) = model.front.as_ref().and_then(|front| front.link_bytes_per_s.as_ref()) {
        add("link", "bytes per second that replies share", link);
    }
    add(
        "joining",
        "share of requests that join a pending read, for each read in short queues",
        &r.joining,
    );
    add("joining knee", "queued reads beyond which fewer requests join", &r.joining_knee);
    for class in &model.classes {
        let reads = match class.servers {
            1 => String::new(),
            n => format!(", {n} concurrent reads"),
        };
        let meaning = format!("mean service time of {}{reads}", class.name.replace('_', " "));
        add(&format!("s̄ {}", class.name), &meaning, &class.service.mean);
        let meaning =
            format!("its squared coefficient of variation ({})", kind(&class.service.scv));
        add(&format!("SCV {}", class.name), &meaning, &class.service.scv);
        if let Some(work) = &class.background {
            let name = class.name.replace('_', " ");
            let meaning = format!("other work of each {name}, pieces per second");
            add(&format!("other {}", class.name), &meaning, &work.rate);
            add(
                &format!("s̄ other {}", class.name),
                "mean service time of such a piece",
                &work.mean,
            );
        }
    }
    if let Some(memory) = &model.memory {
        add("s̄ memory", "mean response time of memory hits", &memory.mean);
    }
    if let Some(other) = &model.other {
        add("s̄ other", "mean response time of requests answered by neither", &other.mean);
    }
    let s = &model.spotify;
    add("q₀ (Spotify)", "share of responses under 1 ms, as the load approaches 0", &s.q0);
    add("α (Spotify)", "decrease of that share for each additional request/s", &s.alpha);
    add("µ_d (Spotify)", &format!("service rate of each of {} disks", s.n_d), &s.mu_d);
    all
}

/// The distribution that an SCV suggests.
fn kind(scv: &Parameter) -> &'static str {
    match scv {
        p if p.low <= 1.0 && p.high >= 1.0 => "exponential: 1",
        p if p.value < 1.0 => "below 1: steadier than exponential",
        _ => "above 1: heavier-tailed than exponential",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::StatedNode;
    use model::distribution::Exponential;

    use super::super::checked::trust_text;
    use super::*;

    fn held_out(rate: f64, error_points: f64, half: f64) -> HeldOut {
        let half_width_points = Some(half);
        HeldOut { name: "r#0".to_owned(), rate, within_s: 0.05, error_points, half_width_points }
    }

    /// The page that compared it with every load said that no load was compared with it.
    #[test]
    fn a_stated_model_is_checked_by_the_runs_of_the_report() {
        let law = Arc::new(Exponential::new(0.01).unwrap());
        let stated = Model::stated(&StatedNode::new(law)).unwrap();
        assert!(trust_text(&stated.trust().unwrap()).starts_with("Not checked"));
        let rows = || vec![held_out(40.0, 0.2, 0.5), held_out(60.0, -0.3, 0.5)];
        let checked = checked_by(&stated, rows()).unwrap();
        let text = trust_text(&checked.trust().unwrap());
        let words =
            "Checked up to 60 requests/s of a server: at most 0.3 points off on 2 held-out loads.";
        assert!(text.starts_with(words), "{text}");
        // A measurement that is no better than the errors that are looked for says nothing.
        assert_eq!(checked_by(&stated, vec![held_out(40.0, 0.2, 9.0)]), None);
        // What a model was checked by stays, unless it misses another load.
        assert_eq!(checked_by(&checked, vec![held_out(50.0, 0.1, 0.5)]), None);
        let missed = checked_by(&checked, vec![held_out(50.0, 7.0, 0.5)]).unwrap();
        assert_eq!(missed.trust().unwrap().limit, 40.0);
    }
}
