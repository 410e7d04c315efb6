//! Writes the fitted queue of a black box as a model ([`super`] has the method).

use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::model_file::{
    ClassParameters, Devices, FORMAT, FittedPoint, FittedStep, Law, Model, Parameter, Replicates,
    Requests, SpotifyParameters,
};
use crate::queue::Discipline;
use crate::storage::SolvedQueues;

use super::super::{Options, law_of};
use super::queue::{Candidate, refit};
use super::{All, CLASS, Data, GRID, ServersFound, StepDraws};

/// A draw as its candidate fits it.
struct Row {
    mean: f64,
    scv: f64,
    hits: f64,
    servers: u32,
}

/// Servers of a service without a limit: more than it can ever keep busy.
const UNLIMITED: u32 = 10_000;

fn hit_ratio(steps: &StepDraws) -> f64 {
    let (hits, n) = steps.iter().fold((0.0, 0.0), |a, s| (a.0 + s.1.hits, a.1 + s.1.answered));
    if n > 0.0 { hits / n } else { 0.0 }
}

/// The draws; one of hits only, or one that its own law cannot carry, is left out.
fn rows(all: &All, drawn: &[(&Candidate, StepDraws)]) -> Result<Vec<Row>, Error> {
    let totals = all.totals();
    let mut rows = Vec::with_capacity(drawn.len());
    for part in drawn.chunk_by(|a, b| a.0.servers == b.0.servers) {
        let Some((own, _)) = part.first() else { continue };
        // Refitting all data gives nearly the same law; draws are relative to that refit.
        let (mean, scv) = (own.law.mean(), own.law.scv());
        let again = refit(all, own, &totals)?;
        let row = |(own, drawn): &(&Candidate, StepDraws)| {
            let law = refit(all, own, drawn).ok()?;
            Some(Row {
                mean: mean * law.mean() / again.mean(),
                scv: scv * law.scv() / again.scv().max(1e-9),
                hits: hit_ratio(drawn),
                servers: own.servers.unwrap_or(UNLIMITED),
            })
        };
        rows.extend(part.iter().filter_map(row));
    }
    Ok(rows)
}

/// Writes the model.
pub(super) fn model(
    all: &All,
    winner: &Candidate,
    drawn: &[(&Candidate, StepDraws)],
    found: &ServersFound,
    options: &Options,
) -> Result<Model, Error> {
    let totals = all.totals();
    let (mean, scv) = (winner.law.mean(), winner.law.scv());
    let rows = rows(all, drawn)?;
    let servers = winner.servers.unwrap_or(UNLIMITED);
    let own = || rows.iter().filter(|row| row.servers == servers);
    let hits: Vec<f64> = rows.iter().map(|row| row.hits).collect();
    let means: Vec<f64> = own().map(|row| row.mean).collect();
    let scvs: Vec<f64> = own().map(|row| row.scv).collect();
    let rates = all.steps.iter().map(|s| s.total.arrivals / s.total.seconds);
    let none = |unit: &str| Parameter::exact(0.0, unit);
    let q0 = Parameter::from_replicates(hit_ratio(&totals), &hits, "1");
    let inverse: Vec<f64> = means.iter().map(|b| 1.0 / b).collect();
    let mixed = own().count() < rows.len();
    let row = |r: &Row| {
        let first = [r.hits, 0.0, 0.0, 0.0, 0.0, 1e9, r.hits, 0.0, 1.0 / r.mean, r.mean, r.scv];
        let more = [f64::from(r.servers), 0.0].into_iter().filter(|_| mixed);
        first.into_iter().chain(more).collect()
    };
    let mut columns: Vec<String> = Replicates::COLUMNS.map(String::from).to_vec();
    columns.extend([format!("mean_s.{CLASS}"), format!("scv.{CLASS}")]);
    columns.extend(["servers", "shared"].iter().filter(|_| mixed).map(|c| format!("{c}.{CLASS}")));
    let mean = Parameter::from_replicates(mean, &means, "s");
    let mut model = Model {
        format: FORMAT,
        warnings: warnings(all, found, &rows, drawn.len() - rows.len()),
        about: options.about.clone(),
        requests: Requests {
            q0: q0.clone(),
            alpha: none("s"),
            other_share: none("1"),
            front_delay: none("s"),
            front_delay_scv: None,
            joining: none("1"),
            joining_knee: Parameter::exact(1e9, "reads"),
            rate_low: rates.clone().fold(f64::INFINITY, f64::min),
            rate_high: rates.fold(0.0, f64::max),
        },
        front: None,
        arrivals: None,
        assumed_arrivals: None,
        unknown_beyond: None,
        spotify: SpotifyParameters {
            q0,
            alpha: none("s"),
            mu_d: Parameter::from_replicates(1.0 / mean.value, &inverse, "1/s"),
            n_d: servers,
        },
        memory: law_of(&all.memory)?,
        other: None,
        classes: vec![ClassParameters {
            name: CLASS.to_owned(),
            servers,
            discipline: Discipline::Fifo,
            service: Law::new(&winner.law, mean, Parameter::from_replicates(scv, &scvs, "1")),
            background: None,
            in_order: None,
            by_load: None,
            by_number: None,
            solved: SolvedQueues::default(),
        }],
        evidence: Vec::new(),
        hypotheses: Vec::new(),
        kinds: Vec::new(),
        rates: None,
        devices: vec![Devices { class: CLASS.to_owned(), count: 1, share: 1.0, factor: 1.0 }],
        fitted: Vec::new(),
        held_out: Vec::new(),
        replicates: Replicates { columns, rows: rows.iter().map(row).collect() },
    };
    model.fitted = all.fitted(&model)?;
    for step in &model.fitted {
        if step.ks_distance > 0.05 {
            model.warnings.push(format!(
                "Step {}: the model misses the measured distribution by {:.1} points: the service is not a queue with one \
                 law of service and {servers} servers.",
                step.name,
                step.ks_distance * 100.0
            ));
        }
    }
    model.check()?;
    Ok(model)
}

/// A step as measured and as predicted. The servers were not measured, so their utilisation is the
/// model's.
fn fitted(model: &Model, step: &Data) -> Result<FittedStep, Error> {
    let node = model.node()?;
    let rate = step.total.arrivals / step.total.seconds;
    let operating = node.operating_unchecked(rate);
    let spotify = model.spotify()?;
    let answered = step.total.answered.max(1.0);
    let points = step.within.iter().map(|&(t_s, n)| FittedPoint {
        t_s,
        measured: n as f64 / answered,
        predicted: node.at_time(t_s).cdf(&operating),
        spotify: spotify.cdf(rate, t_s).ok(),
    });
    // The distance is that of the servers' answers; hits are as measured.
    let misses = (1.0 - step.total.hit_ratio()).max(1e-9);
    let distance = |i: usize| {
        let t =
            step.total.responses.quantile_s((i as f64 + 0.5) / GRID as f64)? * (1.0 + 1.0 / 128.0);
        let memory = node.memory.as_ref().map_or(1.0, |law| law.cdf(t));
        let of_servers = (node.at_time(t).cdf(&operating) - operating.hit_ratio * memory) / misses;
        Some((step.total.responses.share_within(t)? - of_servers).abs())
    };
    let finite = |x: f64| if x.is_finite() { x } else { 1e9 };
    let response_mean = step.total.responses.mean_s();
    Ok(FittedStep {
        name: step.name.clone(),
        rate,
        seconds: step.total.seconds,
        requests: step.total.answered as u64,
        hit_ratio: step.total.hit_ratio(),
        dispersion: step.dispersion.index().unwrap_or(1.0),
        utilisation: operating.utilisation_mean,
        utilisation_predicted: operating.utilisation_mean,
        // Little's law.
        queue_length: step.total.rate() * response_mean,
        queue_length_predicted: finite(operating.queue_length_mean),
        response_mean,
        response_mean_predicted: finite(operating.response_mean),
        ks_distance: (0..GRID).filter_map(distance).fold(0.0, f64::max),
        points: points.collect(),
    })
}

/// The warnings for the user of the model.
fn warnings(all: &All, found: &ServersFound, rows: &[Row], left_out: usize) -> Vec<String> {
    let mut texts = vec![
        "Fitted to response times alone: waiting outside of the servers counts as service, and the \
         utilisations of fitted steps are the model's."
            .to_owned(),
    ];
    let shown = |n: Option<u32>| n.map_or("no limit".to_owned(), |n| n.to_string());
    if !found.given {
        let (likeliest, low, high) = (shown(found.likeliest), shown(found.low), shown(found.high));
        texts.push(format!(
            "Servers: {likeliest} by the responses, 95 % interval {low} to {high}; predictions assume {likeliest}. \
             If you know the number, give it (--servers)."
        ));
    }
    let each: Vec<String> = rows
        .chunk_by(|a, b| a.servers == b.servers)
        .map(|of| {
            let percent = 100.0 * of.len() as f64 / rows.len() as f64;
            let number = Some(of[0].servers).filter(|n| *n < UNLIMITED);
            format!("{} ({percent:.0} %)", shown(number))
        })
        .collect();
    if each.len() > 1 {
        texts.push(format!(
            "The responses do not tell these numbers of servers apart: {}. Predictions are of the first number above, their intervals \
             of all. Stamps as fine as the responses, or a load nearer to saturation, tell.",
            each.join("; ")
        ));
    }
    let all_drawn = rows.len() + left_out;
    if 20 * left_out > all_drawn {
        texts.push(format!(
            "{} of {} resamplings could not be fitted: the intervals are too narrow. Measure longer, and a lighter \
             load.",
            left_out, all_drawn
        ));
    }
    if all.steps.len() < 2 {
        texts.push(
            "A single load hardly determines the number of servers: measure a second one, well above it.".to_owned(),
        );
    }
    texts.extend(all.not_poisson().map(|text| {
        format!("{text} The law of service and the number of servers are inaccurate.")
    }));
    texts
}

impl All {
    /// The steps as measured and as predicted.
    pub(in crate::fit) fn fitted(&self, model: &Model) -> Result<Vec<FittedStep>, Error> {
        self.steps.iter().map(|step| fitted(model, step)).collect()
    }

    /// The steps whose arrivals are not Poisson, in sentences.
    pub(in crate::fit) fn not_poisson(&self) -> impl Iterator<Item = String> {
        self.steps.iter().filter_map(|step| {
            let index = step.dispersion.index()?;
            let chance = 4.0 * (2.0 / step.dispersion.intervals as f64).sqrt();
            ((index - 1.0).abs() > chance.max(0.1)).then(|| {
                let name = &step.name;
                format!("Step {name}: arrivals are not Poisson (index of dispersion {index:.2}).")
            })
        })
    }
}
