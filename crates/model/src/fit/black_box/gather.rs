//! Counts the responses of each step between the times at which laws are compared.

use std::collections::BTreeMap;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::error::Error;
use ground::window::{Dispersion, Histogram, Outcome, Window};

use super::super::resample;
use super::super::resample::{draw, repetitions};
use super::super::valley::{is_crowded_within, valley};
use super::noise::Noise;
use super::stamps::{CoarseStamps, StampedRequest, StampedStep};
use super::sums::{Data, StepDraws, Sums};
use crate::fit::data::{block_index, blocks_of};
use crate::fit::input::{Options, Step};
use crate::fit::work::times::Request;

/// Number of quantiles at which responses are counted.
const EDGES: usize = 20;
/// A valley nearer to 0 than so many ticks of the response times is made by these.
const TICKS: f64 = 2.0;
/// Rates of repetitions of the lightest load differ by up to so many standard deviations of Poisson counts, and by this share at most.
const CHANCE: f64 = 4.0;
const ALIKE: f64 = 0.1;

/// All steps, and the times at which responses are counted.
pub(in super::super) struct All {
    pub(super) steps: Vec<Data>,
    pub(super) edges: Vec<f64>,
    pub(super) memory: Histogram,
    /// The longest response of hits that the source does not name, if there may be such.
    pub(super) valley: Option<f64>,
    /// What the stamps of the requests leave open, if these are known and coarse.
    pub(super) stamps: Option<CoarseStamps>,
    /// The tick of the responses, seconds.
    pub(super) resolution_s: f64,
    /// The chance of each step's counts.
    pub(super) noise: Vec<Noise>,
    /// Steps of the same load, the lightest first.
    groups: Vec<Vec<usize>>,
}

impl All {
    pub(super) fn has_valley(&self) -> bool {
        self.valley.is_some()
    }

    /// Whether there is more than one load.
    pub(super) fn has_loads(&self) -> bool {
        self.groups.len() > 1
    }

    /// Whether responses may tell how many servers there are: not in ticks longer than a response, and not where arrivals are in clumps that
    /// stamps do not show.
    pub(super) fn tells_servers(&self) -> bool {
        let clumped = self.stamps.as_ref().is_some_and(|stamps| stamps.clumped.is_some());
        !clumped && !self.is_resolution_long()
    }

    /// Whether responses are counted in ticks longer than the mean one at the lightest load.
    pub(super) fn is_resolution_long(&self) -> bool {
        self.resolution_s > self.lightest().1.mean_s()
    }

    pub(super) fn totals(&self) -> StepDraws {
        self.steps.iter().map(|s| s.total.clone()).enumerate().collect()
    }

    /// Requests/s of each step that are not hits.
    pub(super) fn rates(&self) -> Vec<f64> {
        self.steps.iter().map(|s| s.total.rate()).collect()
    }

    /// Requests/s of each step.
    pub(in super::super) fn offered(&self) -> Vec<f64> {
        self.steps.iter().map(|s| s.total.arrivals / s.total.seconds).collect()
    }

    /// The lightest load: its rate and its responses, of all steps whose rate differs from it by no more than chance.
    ///
    /// Repetitions of a load in an open loop have not quite the same rate. Of the lightest of three alone the law of service had the
    /// noise of a third of the responses, and "no limit", which has the law of all of them, fitted better.
    pub(super) fn lightest(&self) -> (f64, Histogram) {
        let (mut all, mut responses) = (Sums::default(), Histogram::default());
        let mut first = None;
        for step in self.groups.iter().flatten().map(|i| &self.steps[*i]) {
            let (rate, requests) = (step.total.rate(), step.total.responses());
            let most = *first.get_or_insert(rate * (1.0 + (CHANCE / requests.sqrt()).min(ALIKE)));
            if rate > most {
                break;
            }
            all.add(&step.total, 1.0);
            responses.merge(&step.responses);
        }
        (all.rate(), responses)
    }

    /// Draws blocks of the steps by the same rules as for any fit.
    pub(super) fn resample(&self, options: &Options) -> Vec<StepDraws> {
        let mut random = StdRng::seed_from_u64(options.seed);
        let mut draws = Vec::new();
        for _ in 0..options.replicates.min(10_000) {
            let drawn = draw(&mut random, &self.groups, &|i| self.steps[i].blocks.len());
            let of = |drawn: resample::StepDraw| {
                let mut total = Sums::default();
                for block in &drawn.blocks {
                    total.add(&self.steps[drawn.step].blocks[*block], drawn.weight);
                }
                (drawn.step, total)
            };
            draws.push(drawn.into_iter().map(of).collect());
        }
        draws
    }
}

/// The windows nearest to the clients that contain responses.
fn client_side(step: &Step) -> Result<&[Window], Error> {
    let answered = |windows: &&Vec<Window>| {
        windows.iter().flat_map(|w| &w.times).any(|t| !t.response.is_empty())
    };
    let side = [&step.load, &step.gateway, &step.node].into_iter().find(answered);
    side.map(Vec::as_slice).ok_or_else(|| Error::NoClientWindows { step: step.name.clone() })
}

/// Responses except hits of all steps, and hits.
fn pooled(steps: &[Step]) -> Result<(Histogram, Histogram), Error> {
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
    Ok((pooled, memory))
}

pub(in super::super) fn gather(steps: &[Step], options: &Options) -> Result<All, Error> {
    if steps.is_empty() {
        return Err(Error::NoSteps);
    }
    let (pooled, memory) = pooled(steps)?;
    let valley = hidden_hits(steps).filter(|_| memory.is_empty() && !options.no_hits);
    // What lies below the valley is counted as one.
    let above = valley.map_or_else(|| pooled.clone(), |valley| pooled.split_at(valley).1);
    // The top of the bucket that contains the quantile, so that no bucket is split.
    let edge = |share: f64| Some(above.quantile_s(share)? * (1.0 + 1.0 / 128.0));
    let quantiles = (1..EDGES).filter_map(|i| edge(i as f64 / EDGES as f64));
    let mut edges: Vec<f64> = valley.into_iter().chain(quantiles).filter(|t| *t > 0.0).collect();
    edges.dedup_by(|a, b| *a <= *b * (1.0 + 1.0 / 64.0));
    let (stamps, resolution_s) = (CoarseStamps::new(&stamped(steps)), resolution_of(steps));
    let steps: Vec<Data> =
        steps.iter().map(|step| gather_step(step, &edges, options)).collect::<Result<_, _>>()?;
    let noise = steps.iter().map(Noise::new).collect();
    let groups = Vec::new();
    let mut all = All { steps, edges, memory, valley, stamps, resolution_s, noise, groups };
    all.groups = repetitions(&all.rates());
    Ok(all)
}

/// The stamps of the steps that have some.
fn stamped(steps: &[Step]) -> Vec<StampedStep> {
    let of = |step: &Step| {
        let times = step.times.as_ref()?;
        let judged = times.requests.iter().filter(|r| r.counted);
        let stamps =
            |r: &Request| StampedRequest { arrival_s: r.arrival_s, departure_s: r.departure_s };
        let requests = judged.map(stamps).collect();
        Some(StampedStep { name: step.name.clone(), clock_s: times.clock_s, requests })
    };
    steps.iter().filter_map(of).collect()
}

/// The tick of the responses, seconds; 0 where it is not known.
fn resolution_of(steps: &[Step]) -> f64 {
    let known = steps.iter().filter_map(|step| step.times.as_ref());
    known.map(|times| times.resolution_s).fold(0.0, f64::max)
}

/// The valley between two humps of the responses at the lightest load.
fn hidden_hits(steps: &[Step]) -> Option<f64> {
    let rate = |windows: &&[Window]| {
        let seconds: f64 = windows.iter().map(|w| w.length_s).sum();
        windows.iter().map(|w| w.arrivals as f64).sum::<f64>() / seconds.max(f64::MIN_POSITIVE)
    };
    let sides = steps.iter().filter_map(|step| client_side(step).ok());
    let lightest = sides.min_by(|a, b| rate(a).total_cmp(&rate(b)))?;
    let mut responses = Histogram::default();
    lightest.iter().flat_map(|w| &w.times).for_each(|times| responses.merge(&times.response));
    let each = responses.buckets().map(|(low, high, n)| (f64::midpoint(low, high), n as f64));
    let each: Vec<(f64, f64)> = each.collect();
    let resolution = resolution_of(steps);
    // Of a clock whose ticks are about a response that would be every other request.
    let least = TICKS * resolution;
    let is_fine = least < 0.5 * responses.mean_s();
    match valley(&each).filter(|valley| *valley > resolution) {
        Some(found) => Some(if is_fine { found.max(least) } else { found }),
        None => Some(least).filter(|_| is_fine && is_crowded_within(each.into_iter(), least)),
    }
}

fn gather_step(step: &Step, edges: &[f64], options: &Options) -> Result<Data, Error> {
    let client = client_side(step)?;
    let (start, block_us) = blocks_of(client.iter(), options);
    let mut blocks: BTreeMap<u64, Sums> = BTreeMap::new();
    let mut data = Data {
        name: step.name.clone(),
        total: Sums::default(),
        blocks: Vec::new(),
        windows: Vec::new(),
        responses: Histogram::default(),
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
            data.responses.merge(&times.response);
            let mean = times.response.mean_s();
            sums.sum_s += times.response.sum_s();
            sums.squares_s2 += times.response.variance_s2() * (n - 1.0).max(0.0) + n * mean * mean;
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
        data.windows.push(sums);
    }
    data.blocks = blocks.into_values().collect();
    if data.total.rate() <= 0.0 || data.responses.is_empty() {
        return Err(Error::NoClientWindows { step: step.name.clone() });
    }
    Ok(data)
}

/// Differences of successive values, including those before the first and after the last.
pub(super) fn between(within: &[f64], all: f64) -> Vec<f64> {
    let ends = within.iter().copied().chain([all]);
    let starts = [0.0].into_iter().chain(within.iter().copied());
    ends.zip(starts).map(|(end, start)| end - start).collect()
}
