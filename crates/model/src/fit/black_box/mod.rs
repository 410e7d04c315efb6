//! Fits a service of which only arrivals and response times are known.
//!
//! The service is modelled as M/G/m: Poisson arrivals, one line, m equal servers, one law of
//! service. For a given number of servers, the law is the one for which the model's responses at
//! the lightest load match the measured ones. Each of its quantiles is multiplied by the ratio of
//! the measured response quantile to the model's, and this is repeated until the responses come no
//! nearer. At light load a response is nearly a service, so one or two rounds suffice; more rounds
//! would fit noise, because they undo a convolution. The mean is then set to the value that
//! maximises the likelihood of the responses at *all* loads: counts between 24 quantiles,
//! multinomial, by Fisher's scoring.
//!
//! The number of servers follows from how responses lengthen with load. If it is not given,
//! candidates are the numbers that can carry the largest load and "no limit" (responses that do not
//! depend on load). Each load but the lightest is predicted with the mean that the other loads
//! give, and the candidate with the largest likelihood wins. Its interval is that of the winners
//! when blocks of windows are resampled and each candidate's likelihood is summed over the drawn
//! blocks with fixed parameters (H. Kishino, T. Miyata and M. Hasegawa's resampling of estimated
//! log likelihoods). The interval is wide if the lightest and the largest load are similar; a
//! single load leaves the number undetermined.
//!
//! Responses depend on each other, and a law that is fitted to the lightest load may miss the others by chance, so that the difference
//! of two likelihoods says less than it would of independent responses. Each candidate has the weight exp(−Δ/φ), Δ what its log
//! likelihood is below the best and φ the overdispersion of the best (as in [`super::work()`]), and so many of the replicates. With those of
//! the winner alone, a log of one server that is taken for two had no true share inside its intervals.
//!
//! The intervals of mean and SCV come from fits of the resampled blocks, including the shape.
//!
//! Limitations: time that a request spends without holding a server (network, a fixed delay) counts
//! as service, so the model saturates too early. Reads and writes share one law. Hits of a cache
//! that the source does not report are part of the law. Each step's `ks_distance` measures the
//! goodness of fit; held-out loads measure the quality of predictions. Cost: a second or two for
//! each candidate number of servers, and some seconds for the replicates.

mod queue;
mod write;

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;
use serde::{Deserialize, Serialize};

use crate::error::{Error, check};
use crate::model_file::Model;
use ground::window::{Dispersion, Histogram, Outcome, Window};

use super::gather::{block_index, blocks_of};
use super::resample::{draw, repetitions};
use super::{Options, Step};
use queue::{Candidate, candidates, fit_servers};

/// Number of quantiles at which responses are counted and laws are compared.
const EDGES: usize = 24;
const GRID: usize = 48;
/// The smallest number of resamplings of an interval.
const REPLICATES_MIN: usize = 8;
/// Candidates of less weight have no replicates.
const WEIGHT_MIN: f64 = 0.01;
/// Candidates of at least this weight are in the interval of the number of servers.
const WEIGHT_INSIDE: f64 = 0.025;

/// The name of the only class in such a model's file.
pub const CLASS: &str = "server";

/// The number of servers of a service, estimated from its responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServersFound {
    /// The likeliest number; `None` if responses do not lengthen with load, so that there is no
    /// sign of a limit.
    pub likeliest: Option<u32>,
    /// Lower end of the 95 % interval.
    pub low: Option<u32>,
    /// Upper end of the interval; `None` if it includes no limit.
    pub high: Option<u32>,
    /// Whether the number was given instead of estimated.
    pub given: bool,
}

/// A fitted model, with its number of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct BlackBox {
    /// The model: one class of one device. Use [`Model::predict`] as for any other.
    pub model: Model,
    /// The number of servers, with its interval.
    pub servers: ServersFound,
}

/// Counts over an interval of time.
#[derive(Clone, Debug, Default)]
struct Sums {
    seconds: f64,
    arrivals: f64,
    answered: f64,
    hits: f64,
    /// Responses except hits, between edges.
    counts: Vec<f64>,
    /// The same as a histogram and without weights, for their shape.
    responses: Histogram,
}

/// Steps by index, with their sums.
type StepDraws = Vec<(usize, Sums)>;

impl Sums {
    fn add(&mut self, other: &Sums, weight: f64) {
        // Without `..`, so that a sum that is added to the struct and forgotten here does not
        // compile.
        let Sums { seconds, arrivals, answered, hits, counts, responses } = other;
        self.seconds += weight * seconds;
        self.arrivals += weight * arrivals;
        self.answered += weight * answered;
        self.hits += weight * hits;
        self.counts.resize(self.counts.len().max(counts.len()), 0.0);
        for (mine, theirs) in self.counts.iter_mut().zip(counts) {
            *mine += weight * theirs;
        }
        self.responses.merge(responses);
    }

    fn hit_ratio(&self) -> f64 {
        if self.answered > 0.0 { self.hits / self.answered } else { 0.0 }
    }

    /// Requests/s that reach the servers.
    fn rate(&self) -> f64 {
        let rate = if self.seconds > 0.0 { self.arrivals / self.seconds } else { 0.0 };
        rate * (1.0 - self.hit_ratio())
    }
}

/// A step, summed.
struct Data {
    name: String,
    total: Sums,
    blocks: Vec<Sums>,
    within: Vec<(f64, u64)>,
    dispersion: Dispersion,
}

/// All steps, and the times at which responses are counted.
pub(super) struct All {
    steps: Vec<Data>,
    edges: Vec<f64>,
    memory: Histogram,
    /// Steps of the same load, the lightest first.
    groups: Vec<Vec<usize>>,
}

impl All {
    fn totals(&self) -> StepDraws {
        self.steps.iter().map(|s| s.total.clone()).enumerate().collect()
    }

    /// Requests/s of each step that reach the servers.
    fn rates(&self) -> Vec<f64> {
        self.steps.iter().map(|s| s.total.rate()).collect()
    }

    /// Requests/s of each step.
    pub(super) fn offered(&self) -> Vec<f64> {
        self.steps.iter().map(|s| s.total.arrivals / s.total.seconds).collect()
    }

    /// Whether a step has a larger load than the lightest.
    fn is_heavier(&self, step: usize) -> bool {
        self.groups.first().is_some_and(|lightest| !lightest.contains(&step))
    }

    /// The drawn blocks of the lightest load: their rate and their responses.
    fn lightest(&self, drawn: &StepDraws) -> (f64, Histogram) {
        let mut all = Sums::default();
        for (_, sums) in drawn.iter().filter(|(i, _)| !self.is_heavier(*i)) {
            all.add(sums, 1.0);
        }
        (all.rate(), all.responses)
    }
}

/// Fits a black box to steady intervals: to the windows of clients, of a gateway, or of a node, in
/// this order of preference.
///
/// `servers`: the number of requests that it serves concurrently, if known. The best data are two
/// loads or more, the largest well above half of the capacity.
///
/// # Errors
/// [`Error::NoSteps`], [`Error::NoClientWindows`]; [`Error::Unstable`] if the given number of
/// servers (or every candidate) cannot carry a measured load.
///
/// ```
/// use model::fit::{Options, Step, black_box};
/// let step = Step { name: "120/s".into(), ..Step::default() };
/// let error = black_box(&[step], Some(4), &Options::default()).unwrap_err();
/// assert!(error.to_string().contains("120/s"));
/// ```
pub fn black_box(
    steps: &[Step],
    servers: Option<u32>,
    options: &Options,
) -> Result<BlackBox, Error> {
    if let Some(servers) = servers {
        check("the number of servers", f64::from(servers), 1.0..=1e4, "1 to 10,000")?;
    }
    let all = gather(steps, options)?;
    let candidates = match servers {
        Some(_) => vec![fit_servers(&all, servers)?],
        None => candidates(&all)?,
    };
    let best = |drawn: &StepDraws| {
        let each = candidates.iter().map(|c: &Candidate| c.likelihood(drawn)).enumerate();
        each.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |best| best.0)
    };
    let drawn = resample(&all, options);
    let totals = all.totals();
    let chosen = best(&totals);
    let weights = weights(&candidates, chosen, &totals);
    let mut winners: Vec<Option<u32>> =
        drawn.iter().map(|steps| candidates[best(steps)].servers).collect();
    // No limit sorts after every number.
    let rank = |servers: &Option<u32>| servers.unwrap_or(u32::MAX);
    winners.sort_by_key(rank);
    let Some(winner) = candidates.get(chosen) else { return Err(Error::NoSteps) };
    let found = match winners.len() {
        n if n >= REPLICATES_MIN && (all.groups.len() > 1 || servers.is_some()) => {
            let at = |p: f64| winners[((n as f64 * p) as usize).min(n - 1)];
            let inside = || {
                let each = candidates.iter().zip(&weights).filter(|c| *c.1 >= WEIGHT_INSIDE);
                each.map(|c| c.0.servers)
            };
            ServersFound {
                likeliest: winner.servers,
                low: inside().chain([at(0.025)]).min_by_key(rank).flatten(),
                high: inside().chain([at(0.975)]).max_by_key(rank).flatten(),
                given: false,
            }
        }
        _ => ServersFound { likeliest: winner.servers, low: Some(1), high: None, given: false },
    };
    let found = ServersFound { given: servers.is_some(), ..found };
    let drawn = by_weight(&candidates, &weights, chosen, drawn);
    let model = write::model(&all, winner, &drawn, &found, options)?;
    Ok(BlackBox { model, servers: found })
}

/// The weight of each candidate; they add to 1.
fn weights(candidates: &[Candidate], chosen: usize, totals: &StepDraws) -> Vec<f64> {
    let likelihoods: Vec<f64> = candidates.iter().map(|c| c.likelihood(totals)).collect();
    let (Some(best), Some(most)) = (candidates.get(chosen), likelihoods.get(chosen)) else {
        return Vec::new();
    };
    let dispersion = best.overdispersion(totals);
    let each = likelihoods.iter().map(|own| ((own - most) / dispersion).exp());
    let each: Vec<f64> = each.map(|w| if w >= WEIGHT_MIN { w } else { 0.0 }).collect();
    let all: f64 = each.iter().sum();
    each.into_iter().map(|w| w / all).collect()
}

/// Draws, each with the candidate that it is fitted by, of which each has its share.
fn by_weight<'a>(
    candidates: &'a [Candidate],
    weights: &[f64],
    chosen: usize,
    drawn: Vec<StepDraws>,
) -> Vec<(&'a Candidate, StepDraws)> {
    let n = drawn.len() as f64;
    let of = |(i, drawn): (usize, StepDraws)| {
        let mut left = (i as f64 + 0.5) / n;
        let reached = |weight: &f64| {
            left -= weight;
            left <= 0.0
        };
        let at = weights.iter().position(reached).unwrap_or(chosen);
        (&candidates[at], drawn)
    };
    drawn.into_iter().enumerate().map(of).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The windows nearest to the clients that contain responses.
fn client_side(step: &Step) -> Result<&[Window], Error> {
    let answered = |windows: &&Vec<Window>| {
        windows.iter().flat_map(|w| &w.times).any(|t| !t.response.is_empty())
    };
    let side = [&step.load, &step.gateway, &step.node].into_iter().find(answered);
    side.map(Vec::as_slice).ok_or_else(|| Error::NoClientWindows { step: step.name.clone() })
}

pub(super) fn gather(steps: &[Step], options: &Options) -> Result<All, Error> {
    if steps.is_empty() {
        return Err(Error::NoSteps);
    }
    let (mut pooled, mut memory) = (Histogram::default(), Histogram::default());
    for step in steps {
        for times in client_side(step)?.iter().flat_map(|w| &w.times) {
            let hit = times.outcome == Outcome::Memory;
            if hit { &mut memory } else { &mut pooled }.merge(&times.response);
        }
    }
    if pooled.is_empty() || pooled.mean_s() <= 0.0 {
        return Err(Error::NoCompletions);
    }
    // The top of the bucket that contains the quantile, so that no bucket is split.
    let edge = |i: usize| Some(pooled.quantile_s(i as f64 / EDGES as f64)? * (1.0 + 1.0 / 128.0));
    let mut edges: Vec<f64> = (1..EDGES).filter_map(edge).filter(|t| *t > 0.0).collect();
    edges.dedup_by(|a, b| *a <= *b * (1.0 + 1.0 / 64.0));
    let steps =
        steps.iter().map(|step| gather_step(step, &edges, options)).collect::<Result<_, _>>()?;
    let mut all = All { steps, edges, memory, groups: Vec::new() };
    all.groups = repetitions(&all.rates());
    Ok(all)
}

fn gather_step(step: &Step, edges: &[f64], options: &Options) -> Result<Data, Error> {
    let client = client_side(step)?;
    let (start, block_us) = blocks_of(client.iter(), options);
    let mut blocks: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut data = Data {
        name: step.name.clone(),
        total: Sums::default(),
        blocks: Vec::new(),
        within: Vec::new(),
        dispersion: Dispersion::default(),
    };
    for window in client {
        data.dispersion.merge(&window.dispersion);
        let mut sums =
            Sums { seconds: window.length_s, arrivals: window.arrivals as f64, ..Sums::default() };
        sums.counts = vec![0.0; edges.len() + 1];
        for times in &window.times {
            let n = times.response.count() as f64;
            sums.answered += n;
            if times.outcome == Outcome::Memory {
                sums.hits += n;
                continue;
            }
            sums.responses.merge(&times.response);
            let within = |t: f64| n * times.response.share_within(t).unwrap_or(0.0);
            let shares = between(&edges.iter().map(|t| within(*t)).collect::<Vec<_>>(), n);
            sums.counts.iter_mut().zip(shares).for_each(|(count, more)| *count += more);
        }
        for (i, ms) in window.objectives_ms.iter().enumerate() {
            let n = window.times.iter().filter_map(|t| t.within.get(i)).sum::<u64>();
            match data.within.iter_mut().find(|w| w.0 == ms * 1e-3) {
                Some(known) => known.1 = known.1.saturating_add(n),
                None => data.within.push((ms * 1e-3, n)),
            }
        }
        blocks.entry(block_index(window, start, block_us)).or_default().add(&sums, 1.0);
        data.total.add(&sums, 1.0);
    }
    data.blocks = blocks.into_values().collect();
    if data.total.rate() <= 0.0 || data.total.responses.is_empty() {
        return Err(Error::NoClientWindows { step: step.name.clone() });
    }
    Ok(data)
}

/// Differences of successive values, including those before the first and after the last.
fn between(within: &[f64], all: f64) -> Vec<f64> {
    let ends = within.iter().copied().chain([all]);
    let starts = [0.0].into_iter().chain(within.iter().copied());
    ends.zip(starts).map(|(end, start)| end - start).collect()
}

/// Draws blocks of the steps by the same rules as for any fit.
fn resample(all: &All, options: &Options) -> Vec<StepDraws> {
    let mut random = StdRng::seed_from_u64(options.seed);
    let mut draws = Vec::new();
    for _ in 0..options.replicates.min(10_000) {
        let drawn = draw(&mut random, &all.groups, &|i| all.steps[i].blocks.len());
        let of = |drawn: super::resample::StepDraw| {
            let mut total = Sums::default();
            for block in &drawn.blocks {
                total.add(&all.steps[drawn.step].blocks[*block], drawn.weight);
            }
            (drawn.step, total)
        };
        draws.push(drawn.into_iter().map(of).collect());
    }
    draws
}

#[cfg(test)]
mod tests;
