//! Prediction beside measurement: the data that tables, JSON and pages show.

use model::{Limits, Model, Parameter, Point, Prediction, Trust};
use serde::Serialize;

use super::error::Error;
use super::measured::{Estimate, Measured, measure};
use super::objective::{Objective, digits, time};
use super::steps::{Observed, ObservedStep, run_name, same_step, short_name};
use record::{Host, Run, Step};

/// One measured share beside its predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The step's name.
    pub step: String,
    /// Load, requests/s, as measured; the predictions are for it.
    pub rate: f64,
    /// Measured utilisation of the devices, on average.
    pub utilisation: f64,
    /// The time, seconds.
    pub within_s: f64,
    /// The share that was answered in time.
    pub measured: Estimate,
    /// Our model; `None` where it says that the load is not stable.
    pub concertina: Option<Parameter>,
    /// The Spotify model.
    pub spotify: Option<Parameter>,
    /// Our model minus the measurement, in points (hundredths).
    pub concertina_error_points: Option<f64>,
    /// The Spotify model minus the measurement, in points.
    pub spotify_error_points: Option<f64>,
    /// Whether the load is past our confidence limit.
    pub beyond_limit: bool,
    /// Whether the load is larger than any that was fitted.
    pub beyond_fitted: bool,
    /// Whether the load is past the one up to which the model is trusted.
    pub beyond_trust: bool,
    /// Whether the model was fitted to this step; else it was held out.
    pub used_for_fit: bool,
}

/// A step of the load, measured and predicted.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedStep {
    /// Its name: the run's folder and its number in the sweep.
    pub name: String,
    /// What the generator wrote.
    pub step: Step,
    /// Whether the model was fitted to it.
    pub used_for_fit: bool,
    /// What was measured.
    pub measured: Measured,
    /// What the model says; `None` where it says that the load is not stable.
    pub prediction: Option<Prediction>,
    /// Why there is no prediction.
    pub unstable: Option<String>,
    /// What the hosts did, second by second.
    #[serde(skip)]
    pub hosts: Vec<(String, Vec<Host>)>,
}

impl ComparedStep {
    fn shown(&self) -> Shown<'_> {
        let prediction = self.prediction.as_ref();
        Shown {
            step: &self.name,
            measured: &self.measured,
            utilisation: self.measured.utilisation_mean,
            points: prediction.map(|p| p.points.as_slice()),
            beyond_limit: prediction.is_none_or(|p| p.beyond_limit),
            beyond_fitted: prediction.is_none_or(|p| p.beyond_fitted),
            beyond_trust: prediction.is_none_or(|p| p.beyond_trust),
            used_for_fit: self.used_for_fit,
        }
    }
}

/// The largest load that holds an objective.
#[derive(Clone, Debug, Serialize)]
pub struct LargestRate {
    /// The objective.
    pub objective: Objective,
    /// Servers that share the load.
    pub servers: u32,
    /// By our model, requests/s; `None` if no load holds it or every load does.
    pub rate: Option<Parameter>,
    /// By the Spotify model.
    pub spotify: Option<f64>,
    /// Whether it is past our confidence limit.
    pub beyond_limit: bool,
    /// Whether it is past the load up to which the model is trusted.
    pub beyond_trust: bool,
    /// In words.
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

/// A number of the model by name.
#[derive(Clone, Debug, Serialize)]
pub struct NamedParameter {
    /// Its symbol or name.
    pub name: String,
    /// What it is.
    pub meaning: String,
    /// Value, interval, unit.
    pub parameter: Parameter,
}

/// Runs and a model, compared.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The laboratory conditions of runs and model: to be shown wherever figures are.
    pub laboratory: Vec<String>,
    /// The times, seconds.
    pub within_s: Vec<f64>,
    /// One for each step and time, in the order of the rates.
    pub rows: Vec<Row>,
    /// The steps, in the order of their rates.
    pub steps: Vec<ComparedStep>,
    /// The loads that bound what the model says; infinite ones are `null` in JSON.
    pub limits: Limits,
    /// The load up to which the model is trusted, by its interval and its errors on held-out loads.
    pub trust: Trust,
    /// For each objective.
    pub largest_rates: Vec<LargestRate>,
    /// The numbers of the model.
    pub parameters: Vec<NamedParameter>,
    /// What a reader should know, of the model and of the steps.
    pub warnings: Vec<String>,
    /// The runs.
    pub runs: Vec<RunInfo>,
    /// The model.
    #[serde(skip)]
    pub model: Model,
}

impl Comparison {
    /// Sets runs beside a model. `within_s` empty: the objectives at which the runs counted.
    pub fn new(
        observed: &Observed,
        model: &Model,
        within_s: &[f64],
        objectives: &[Objective],
    ) -> Result<Comparison, Error> {
        let within_s = if within_s.is_empty() { counted_at(observed) } else { within_s.to_vec() };
        let mut steps = Vec::new();
        for step in &observed.steps {
            steps.push(compare(step, model, &within_s)?);
        }
        let rows = steps.iter().flat_map(|step| rows_of(&step.shown(), &within_s)).collect();
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
            within_s,
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

    /// The rows with a stable prediction that a condition holds for.
    pub fn predicted<'a>(
        &'a self,
        holds: impl Fn(&Row) -> bool + 'a,
    ) -> impl Iterator<Item = (&'a Row, f64)> + 'a {
        self.rows
            .iter()
            .filter_map(|row| Some((row, row.concertina_error_points?)))
            .filter(move |(row, _)| holds(row))
    }

    /// The largest error in points among rows that a condition holds for, without its sign.
    pub fn worst_error(&self, holds: impl Fn(&Row) -> bool) -> Option<f64> {
        self.predicted(holds).map(|(_, error)| error.abs()).reduce(f64::max)
    }
}

/// What a model warns of, the names of its steps without their start times.
pub fn warnings_of(model: &Model) -> Vec<String> {
    let short = |text: String, s: &model::FittedStep| text.replace(&s.name, short_name(&s.name));
    let shorten = |warning: &String| model.fitted.iter().fold(warning.clone(), short);
    model.warnings.iter().map(shorten).collect()
}

/// The objectives at which the windows of the first step counted.
pub(super) fn counted_at(observed: &Observed) -> Vec<f64> {
    let windows = observed.steps.iter().flat_map(|s| {
        let w = &s.windows;
        w.load.iter().chain(&w.gateway).chain(&w.node)
    });
    let found = windows.map(|w| &w.objectives_ms).find(|ms| !ms.is_empty());
    found.map_or(vec![0.020, 0.050, 0.100], |ms| ms.iter().map(|t| t * 1e-3).collect())
}

fn compare(
    observed: &ObservedStep,
    model: &Model,
    within_s: &[f64],
) -> Result<ComparedStep, Error> {
    let measured = measure(observed, within_s);
    let (prediction, unstable) = match model.predict(measured.rate, within_s) {
        Ok(prediction) => (Some(prediction), None),
        Err(error @ model::Error::Unstable { .. }) => (None, Some(error.to_string())),
        Err(error) => return Err(error.into()),
    };
    let name = &observed.windows.name;
    Ok(ComparedStep {
        name: observed.name().to_owned(),
        step: observed.step.clone(),
        used_for_fit: model.fitted.iter().any(|fitted| same_step(&fitted.name, name)),
        measured,
        prediction,
        unstable,
        hosts: observed.hosts.clone(),
    })
}

/// A step as rows show it.
pub(super) struct Shown<'a> {
    pub step: &'a str,
    pub measured: &'a Measured,
    pub utilisation: f64,
    /// The prediction's points; `None` where it is not stable.
    pub points: Option<&'a [Point]>,
    pub beyond_limit: bool,
    pub beyond_fitted: bool,
    pub beyond_trust: bool,
    pub used_for_fit: bool,
}

/// A row for each time.
pub(super) fn rows_of(shown: &Shown, within_s: &[f64]) -> Vec<Row> {
    let row = |(i, &within_s): (usize, &f64)| {
        let measured = shown.measured.within[i].share;
        let point = shown.points.and_then(|points| points.get(i));
        let points = |p: &Parameter| (p.value - measured.value) * 100.0;
        let spotify = point.and_then(|p| p.spotify.clone());
        Row {
            step: shown.step.to_owned(),
            rate: shown.measured.rate,
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
        }
    };
    within_s.iter().enumerate().map(row).collect()
}

/// The largest load on `servers` servers that holds an objective, in words too.
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
                "No load holds {objective}: even an idle system answers only {} % within {}.",
                digits(best * 100.0, 4),
                time(within_s)
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if !each.value.is_finite() {
        return Ok(none(format!("Every load holds {objective}: memory answers everything.")));
    }
    let rate = Parameter {
        value: each.value * n,
        low: each.low * n,
        high: each.high * n,
        unit: each.unit,
    };
    let limit = model.cluster_limit_mg1(servers)?;
    let beyond_limit = rate.value > limit;
    let trusted = model.trust()?.limit * n;
    let beyond_trust = rate.value > trusted;
    let mut statement = format!(
        "{objective} holds up to {} requests/s [{}, {}]",
        digits(rate.value, 4),
        digits(rate.low, 4),
        digits(rate.high, 4)
    );
    if servers > 1 {
        statement += &format!(" on {servers} servers");
    }
    if let Some(spotify) = spotify {
        statement += &format!("; the Spotify model says {}", digits(spotify, 4));
    }
    statement.push('.');
    if beyond_limit {
        let limit = digits(limit, 4);
        statement += &format!(" This is BEYOND THE CONFIDENCE LIMIT of {limit} requests/s.");
    }
    if beyond_trust {
        statement += &format!(" The model is trusted up to {} requests/s.", digits(trusted, 4));
    }
    let rate = Some(rate);
    Ok(LargestRate { objective, servers, rate, spotify, beyond_limit, beyond_trust, statement })
}

/// The numbers of a model with their names.
pub fn parameters(model: &Model) -> Vec<NamedParameter> {
    let r = &model.requests;
    let mut all: Vec<NamedParameter> = Vec::new();
    let mut add = |name: &str, meaning: &str, parameter: &Parameter| {
        let (name, meaning) = (name.to_owned(), meaning.to_owned());
        all.push(NamedParameter { name, meaning, parameter: parameter.clone() });
    };
    add("q₀", "share from memory as load goes to 0", &r.q0);
    add("α", "how much of that share one more request/s takes", &r.alpha);
    add("other", "share that neither memory nor a device answers", &r.other_share);
    add("δ", "what gateway and network add to a device's response", &r.front_delay);
    if let Some(scv) = &r.front_delay_scv {
        add("SCV δ", "its squared coefficient of variation", scv);
    }
    if let Some(link) = model.front.as_ref().and_then(|front| front.link_bytes_per_s.as_ref()) {
        add("link", "bytes per second that replies share", link);
    }
    add("joining", "share of requests joined to a read, for each read in short queues", &r.joining);
    add("joining knee", "reads in the queues beyond which fewer are joined", &r.joining_knee);
    for class in &model.classes {
        let reads = match class.servers {
            1 => String::new(),
            n => format!(", {n} reads at once"),
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
            add(&format!("s̄ other {}", class.name), "mean time of such a piece", &work.mean);
        }
    }
    if let Some(memory) = &model.memory {
        add("s̄ memory", "mean response of what memory answers", &memory.mean);
    }
    if let Some(other) = &model.other {
        add("s̄ other", "mean response of what neither answers", &other.mean);
    }
    let s = &model.spotify;
    add("q₀ (Spotify)", "share of responses under 1 ms, as load goes to 0", &s.q0);
    add("α (Spotify)", "its slope", &s.alpha);
    add("µ_d (Spotify)", &format!("service rate of each of {} disks", s.n_d), &s.mu_d);
    all
}

/// What an SCV resembles.
fn kind(scv: &Parameter) -> &'static str {
    match scv {
        p if p.low <= 1.0 && p.high >= 1.0 => "exponential: 1",
        p if p.value < 1.0 => "below 1: steadier than exponential",
        _ => "above 1: heavier-tailed than exponential",
    }
}
