//! Writes the fitted queue of a black box as a model ([`super`] has the method).

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::StandardNormal;

use crate::distribution::{Piece, ServiceTime};
use crate::error::Error;
use crate::model_file::{
    About, ClassParameters, Devices, FORMAT, FittedPoint, FittedStep, Law, Model, Parameter,
    Replicates, Requests, SpotifyParameters,
};
use crate::queue::Discipline;
use crate::storage::SolvedQueues;
use ground::number::time;
use ground::window::Histogram;

use super::gather::All;
use super::queue::{Candidate, Weighted};
use super::sums::{Data, StepDraws};
use crate::fit::responses::law_of;
use crate::fit::servers::{CLASS, ServersFound};

/// Number of quantiles at which laws are compared.
const GRID: usize = 48;
/// Standard error of the logarithm of the mean that a law's shape adds, which is fitted by a few numbers: of uniform work of
/// four servers, whose mean is else known to 0.25 %, fits were off by 0.6 %.
const SHAPE_ERROR: f64 = 0.005;
/// The most that the logarithm of a drawn SCV is off by for it.
const SCV_OFF_MAX: f64 = 1.0;
const SHAPE_SEED: u64 = 0x5a9e;
/// A step whose measured distribution the model misses by more than this is no queue of one law of service.
const MISSED: f64 = 0.05;
/// Chance does not miss the counts by so many times what is expected (a thousandth of fits is beyond 1.8 with 50 degrees of freedom).
const DISPERSION_MAX: f64 = 2.0;

/// A draw as its candidate fits it.
struct Row {
    mean: f64,
    scv: f64,
    hits: f64,
    servers: u32,
    /// Whether requests pass the servers by without saying so.
    passes: bool,
}

/// Servers of a service without a limit: more than it can ever keep busy.
const UNLIMITED: u32 = 10_000;

fn hit_ratio(steps: &StepDraws) -> f64 {
    let (hits, n) = steps.iter().fold((0.0, 0.0), |a, s| (a.0 + s.1.hits, a.1 + s.1.answered));
    if n > 0.0 { hits / n } else { 0.0 }
}

/// The draws; one of hits only, or one that tells no law, is left out.
fn rows(
    all: &All,
    weighted: &[Weighted<'_>],
    drawn: &[(usize, StepDraws)],
) -> Result<Vec<Row>, Error> {
    let mut responses = Vec::new();
    for each in weighted.iter().take_while(|c| c.weight > 0.0) {
        responses.push(each.candidate.response()?);
    }
    let lightest = all.lightest().1.count() as f64;
    let within: Vec<WithinBins> =
        weighted.iter().map(|each| each.candidate.within_bins(&all.edges, lightest)).collect();
    let mut random = StdRng::seed_from_u64(SHAPE_SEED);
    let mut row = |(at, draw): &(usize, StepDraws)| {
        let own = &weighted[*at].candidate;
        let found = responses.get(*at)?.replicate(all, draw)?;
        let named = hit_ratio(draw);
        let mut normal = || random.sample::<f64, _>(StandardNormal);
        let (of_shape, tail) = (SHAPE_ERROR * normal(), normal());
        let longer = tail * within[*at].scv / found.scv.max(f64::MIN_POSITIVE);
        Some(Row {
            mean: found.mean * (of_shape + tail * within[*at].mean).exp(),
            scv: found.scv * longer.clamp(-SCV_OFF_MAX, SCV_OFF_MAX).exp(),
            hits: named + (1.0 - named) * found.passing,
            servers: own.servers.unwrap_or(UNLIMITED),
            passes: own.passing > 0.0,
        })
    };
    Ok(drawn.iter().filter_map(&mut row).collect())
}

/// Standard errors of a law that counts between edges do not show: of where times are between them.
struct WithinBins {
    /// Of the mean, as a share of it.
    mean: f64,
    /// Of the SCV, which is off to the same side.
    scv: f64,
}

impl Candidate<'_> {
    /// Counts tell how many times are between two edges, and the responses at the lightest load, of which there are so many, where.
    fn within_bins(&self, edges: &[f64], responses: f64) -> WithinBins {
        // Of each bin the share, and the sums of times, of their squares, and of the squares of these.
        let mut bins = vec![[0.0; 4]; edges.len() + 1];
        for Piece { centre: c, half_width: h, share } in self.law.pieces() {
            let bin = &mut bins[edges.partition_point(|edge| edge < c)];
            let square = c * c + h * h / 3.0;
            let fourth = c.powi(4) + 2.0 * c * c * h * h + h.powi(4) / 5.0;
            let each = [1.0, *c, square, fourth];
            bin.iter_mut().zip(each).for_each(|(sum, value)| *sum += share * value);
        }
        let between = |first: usize, second: usize| {
            let of = |bin: &[f64; 4]| bin[second] - bin[first] * bin[first] / bin[0].max(1e-12);
            bins.iter().map(of).sum::<f64>().max(0.0)
        };
        let n = (responses * (1.0 - self.passing)).max(1.0);
        let (mean, scv) = (self.law.mean(), self.law.scv());
        let of_mean = (between(1, 2) / n).sqrt() / mean;
        let of_square = (between(2, 3) / n).sqrt() / (mean * mean);
        let of_scv = (of_square - 2.0 * (1.0 + scv) * of_mean).max(0.0);
        WithinBins { mean: of_mean, scv: of_scv }
    }
}

/// Writes the model.
pub(super) fn model(
    all: &All,
    weighted: &[Weighted<'_>],
    drawn: &[(usize, StepDraws)],
    found: &ServersFound,
) -> Result<Model, Error> {
    let winner = &weighted.first().ok_or(Error::NoSteps)?.candidate;
    let totals = all.totals();
    let (mean, scv) = (winner.law.mean(), winner.law.scv());
    let rows = rows(all, weighted, drawn)?;
    let servers = winner.servers.unwrap_or(UNLIMITED);
    let passes = winner.passing > 0.0;
    let own = || rows.iter().filter(|row| row.servers == servers && row.passes == passes);
    let hits: Vec<f64> = rows.iter().map(|row| row.hits).collect();
    let means: Vec<f64> = own().map(|row| row.mean).collect();
    let scvs: Vec<f64> = own().map(|row| row.scv).collect();
    let rates = all.steps.iter().map(|s| s.total.arrivals / s.total.seconds);
    let none = |unit: &str| Parameter::exact(0.0, unit);
    let named = hit_ratio(&totals);
    let q0 = Parameter::from_replicates(named + (1.0 - named) * winner.passing, &hits, "1");
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
        warnings: warnings(all, weighted, found, &rows, drawn.len() - rows.len()),
        about: About::default(),
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
        memory: law_of(&all.hits_of(winner))?,
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
        if step.ks_distance > MISSED {
            model.warnings.push(format!(
                "Step {}: the model misses the measured distribution by {:.1} points: the service is not a queue with one \
                 law of service and {servers} servers.",
                step.name,
                step.ks_distance * 100.0
            ));
        }
    }
    let missed = model.fitted.iter().map(|step| step.ks_distance).fold(0.0, f64::max);
    let is_unfit = missed > MISSED && winner.dispersion > DISPERSION_MAX;
    if all.stamps.as_ref().is_some_and(|stamps| stamps.clumped.is_some()) {
        // The first warning says why.
        model.unknown_beyond = Some(model.requests.rate_high);
    } else if is_unfit {
        model.unknown_beyond = Some(model.requests.rate_high);
        model.warnings.extend(model.unknown_text());
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
    // The distance is that of the servers' answers; hits are as measured, where the source names them.
    let misses = (1.0 - step.total.hit_ratio()).max(1e-9);
    let named = if step.total.hits > 0.0 { operating.hit_ratio } else { 0.0 };
    let distance = |i: usize| {
        let t = step.responses.quantile_s((i as f64 + 0.5) / GRID as f64)? * (1.0 + 1.0 / 128.0);
        let memory = node.memory.as_ref().map_or(1.0, |law| law.cdf(t));
        let of_servers = (node.at_time(t).cdf(&operating) - named * memory) / misses;
        Some((step.responses.share_within(t)? - of_servers).abs())
    };
    let finite = |x: f64| if x.is_finite() { x } else { 1e9 };
    let response_mean = step.responses.mean_s();
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

/// A candidate in words.
fn title(candidate: &Candidate<'_>) -> String {
    let servers = match candidate.servers {
        None => "no limit".to_owned(),
        Some(1) => "1 server".to_owned(),
        Some(m) => format!("{m} servers"),
    };
    let passing = 100.0 * candidate.passing;
    if passing > 0.0 {
        format!("{servers} that {passing:.0} % of the requests pass by")
    } else {
        servers
    }
}

/// The warnings for the user of the model.
fn warnings(
    all: &All,
    weighted: &[Weighted<'_>],
    found: &ServersFound,
    rows: &[Row],
    left_out: usize,
) -> Vec<String> {
    let mut texts: Vec<String> = all.stamps.iter().map(|stamps| stamps.text()).collect();
    texts.push(
        "Fitted to response times alone: waiting outside of the servers counts as service, and the \
         utilisations of fitted steps are the model's."
            .to_owned(),
    );
    if all.has_loads() && all.is_resolution_long() {
        texts.push(format!(
            "Response times are counted in ticks of {}, longer than the mean response: how many servers there are does not follow from \
             them. Log durations with more decimals, or give the number (--servers).",
            time(all.resolution_s)
        ));
    }
    let shown = |n: Option<u32>| n.map_or("no limit".to_owned(), |n| n.to_string());
    if !found.given {
        let (likeliest, low, high) = (shown(found.likeliest), shown(found.low), shown(found.high));
        texts.push(format!(
            "Servers: {likeliest} by the responses, 95 % interval {low} to {high}; predictions assume {likeliest}. \
             If you know the number, give it (--servers)."
        ));
    }
    let alternatives: Vec<String> = weighted
        .iter()
        .filter(|c| c.weight > 0.0)
        .map(|c| format!("{} ({:.0} %)", title(&c.candidate), 100.0 * c.weight))
        .collect();
    if alternatives.len() > 1 {
        texts.push(format!(
            "The responses do not tell these services apart: {}. Predictions are of the first, their intervals \
             of all. Stamps as fine as the responses, or a load nearer to saturation, tell.",
            alternatives.join("; ")
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
    /// The responses of hits: of those that the source names, or of what may be such.
    fn hits_of(&self, winner: &Candidate<'_>) -> Histogram {
        match self.valley.filter(|_| winner.passing > 0.0) {
            None => self.memory.clone(),
            Some(valley) => {
                let mut hits = Histogram::default();
                self.steps.iter().for_each(|step| hits.merge(&step.responses.split_at(valley).0));
                hits
            }
        }
    }

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
