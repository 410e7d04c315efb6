//! Fits an M/G/m queue with a given number of servers to responses ([`super`] has the method).

use crate::distribution::{Empirical, ServiceTime};
use crate::error::Error;
use crate::statistics::student_95;
use ground::window::Histogram;

use super::gather::{All, between};
use super::noise::{Noise, solve};
use super::shape::{Factors, KNOTS, Shape};
use super::start::{at_lightest, within};
use super::sums::StepDraws;

/// Numbers of servers to try first; a larger number cannot be told from no limit.
const SERVERS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Step in a factor or a load of the differences that give slopes.
const STEP: f64 = 0.01;
/// Largest number of rounds of scoring, the largest change in one, and the change from which slopes may be why nothing is gained.
const SCORINGS: usize = 16;
const CHANGE_MAX: f64 = 0.3;
const CHANGED: f64 = 0.05;
/// A gain in the likelihood that ends scoring.
const GAIN: f64 = 0.05;
/// A candidate that stays so many dispersions behind after so many times the gain that is expected of the next scoring is given up.
const BEHIND: f64 = 30.0;
const GAINS: f64 = 5.0;
/// The standard deviation that the factors of neighbouring knots differ by beforehand.
const ROUGHNESS: f64 = 0.3;
/// The largest share that passes the servers by.
const PASSING_MAX: f64 = 0.99;
/// How much more than what the servers can carry the law of the lightest load may make of the heaviest: it is known so
/// roughly. Scoring begins where they are busy for so much of the time.
const CARRIED: f64 = 1.3;
const BUSY: f64 = 0.97;

/// Which candidates are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Among {
    /// Whether some of the requests up to the valley pass the servers by.
    pub hits: bool,
    /// The likeliest candidate so far.
    pub best: Option<Likeliest>,
}

/// What a candidate has to come near: one that is this much less likely has no weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Likeliest {
    likelihood: f64,
    dispersion: f64,
}

impl Among {
    /// Takes note of a candidate.
    pub fn note(&mut self, found: &Candidate<'_>) {
        let Candidate { likelihood, dispersion, .. } = *found;
        if self.best.is_none_or(|best| likelihood > best.likelihood) {
            self.best = Some(Likeliest { likelihood, dispersion });
        }
    }

    /// Whether a candidate that scoring is expected to make likelier by `gain` stays far behind the likeliest.
    fn is_behind(&self, likelihood: f64, gain: f64) -> bool {
        self.best.is_some_and(|best| {
            likelihood + GAINS * gain < best.likelihood - BEHIND * best.dispersion
        })
    }
}

/// What a candidate's shares follow from.
#[derive(Clone, Copy)]
struct Values {
    factors: Factors,
    /// The share of the requests that passes the servers by.
    passing: f64,
}

/// A fitted queue with a number of servers; `None` is without limit.
pub(super) struct Candidate<'a> {
    pub servers: Option<u32>,
    pub law: Empirical,
    /// The share of the requests that passes the servers by, without saying so.
    pub passing: f64,
    /// The logarithm of its likelihood, by what counts deviate by chance ([`Noise`]).
    pub likelihood: f64,
    /// Half of that by which counts deviate, over its expectation, at least 1: by how much the queue misses them.
    pub dispersion: f64,
    fit: Option<(Problem<'a>, Values)>,
}

/// How a fit follows counts that deviate.
pub(super) struct Response<'a> {
    candidate: &'a Candidate<'a>,
    /// None without limit.
    scoring: Option<Scoring>,
}

/// What one step of scoring from a fit needs.
struct Scoring {
    /// The columns of each step's slopes.
    slopes: Vec<Vec<Vec<f64>>>,
    /// That of all steps.
    information: Vec<Vec<f64>>,
}

/// A law and a share of hits, as a draw has them.
pub(super) struct Replicate {
    pub mean: f64,
    pub scv: f64,
    pub passing: f64,
}

/// Fitted queues with several numbers of servers: those of [`SERVERS`] that can carry the load,
/// until the likelihood has fallen twice in a row; no limit; and the neighbours of the best.
pub(super) fn candidates<'a>(all: &'a All, among: &mut Among) -> Result<Vec<Candidate<'a>>, Error> {
    let mut found: Vec<Candidate<'_>> = Vec::new();
    // The largest number that cannot carry the load, and why.
    let (mut fallen, mut refused) = (0, None);
    for servers in SERVERS {
        match fit_servers(all, Some(servers), *among) {
            Ok(candidate) => {
                among.note(&candidate);
                let before = found.last().map_or(f64::NEG_INFINITY, |last| last.likelihood);
                fallen = if candidate.likelihood < before { fallen + 1 } else { 0 };
                found.push(candidate);
                if fallen == 2 {
                    break;
                }
            }
            Err(error @ Error::Unstable { .. }) => refused = Some((servers, error)),
            Err(error) => return Err(error),
        }
    }
    if let (true, Some((_, error))) = (found.is_empty(), &refused) {
        return Err(error.clone());
    }
    let mut too_few = refused.map_or(0, |refused| refused.0);
    // Between the numbers tried, towards the larger likelihood.
    loop {
        found.sort_by_key(|f| f.servers);
        let likelihood = |i: &usize| found[*i].likelihood;
        let best = (0..found.len()).max_by(|a, b| likelihood(a).total_cmp(&likelihood(b)));
        let Some(best) = best else { break };
        let at = |i: usize| found.get(i).and_then(|f| f.servers);
        let Some(here) = at(best) else { break };
        let gaps = [
            at(best + 1).map(|up| (here, up)),
            Some((best.checked_sub(1).and_then(at).unwrap_or(too_few), here)),
        ];
        let open = gaps.into_iter().flatten().find(|(low, high)| high - low > 1);
        let Some((low, high)) = open else { break };
        let middle = low.midpoint(high);
        match fit_servers(all, Some(middle), *among) {
            Ok(candidate) => {
                among.note(&candidate);
                found.push(candidate);
            }
            Err(Error::Unstable { .. }) if low == too_few => too_few = middle,
            Err(error) => return Err(error),
        }
    }
    // Hits that pass by what has no limit are a part of its law.
    if !among.hits {
        found.push(without_limit(all)?);
    }
    Ok(found)
}

/// The queue with a number of servers that is likeliest by all loads; `None`: without limit.
pub(super) fn fit_servers<'a>(
    all: &'a All,
    servers: Option<u32>,
    mut among: Among,
) -> Result<Candidate<'a>, Error> {
    match servers {
        Some(m) => {
            let [settled, plain] = Problem::both(all, m, among)?;
            let settled = settled.fitted(&among)?;
            among.note(&settled);
            let plain = plain.fitted(&among)?;
            Ok(if plain.likelihood > settled.likelihood { plain } else { settled })
        }
        None => without_limit(all),
    }
}

/// One law of responses at all loads.
fn without_limit<'a>(all: &'a All) -> Result<Candidate<'a>, Error> {
    let mut pooled = Histogram::default();
    all.steps.iter().for_each(|step| pooled.merge(&step.responses));
    let law = Empirical::from_histogram(&pooled)?;
    let mut counts = vec![0.0; all.edges.len() + 1];
    for step in &all.steps {
        counts.iter_mut().zip(&step.total.counts).for_each(|(sum, count)| *sum += count);
    }
    let n: f64 = counts.iter().sum();
    let own: Vec<f64> = counts.iter().map(|count| count / n).collect();
    let shares: Vec<Vec<f64>> = all.steps.iter().map(|_| floored(own.clone())).collect();
    Ok(Candidate {
        servers: None,
        law,
        passing: 0.0,
        likelihood: -0.5 * squares(&missed(all, &shares)),
        dispersion: dispersion(&missed(all, &shares), counts.len()),
        fit: None,
    })
}

/// A bin that is nearly empty by the model must not decide alone.
fn floored(shares: Vec<f64>) -> Vec<f64> {
    let least = 0.01 / shares.len() as f64;
    shares.into_iter().map(|share| share.max(least)).collect()
}

/// What shares miss the counts of each step by, whitened.
fn missed(all: &All, shares: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let each = all.steps.iter().zip(&all.noise).zip(shares);
    each.map(|((step, noise), shares)| noise.missed(&step.total.counts, shares)).collect()
}

fn squares(all: &[Vec<f64>]) -> f64 {
    all.iter().flatten().map(|x| x * x).sum()
}

/// The sum of squares over its degrees of freedom, at least 1. A step has one fewer than it has bins.
fn dispersion(missed: &[Vec<f64>], parameters: usize) -> f64 {
    let degrees: usize = missed.iter().map(|step| step.len().saturating_sub(1)).sum();
    (squares(missed) / degrees.saturating_sub(parameters).max(1) as f64).max(1.0)
}

/// The fit of one candidate.
struct Problem<'a> {
    all: &'a All,
    servers: u32,
    hits: bool,
    rates: Vec<f64>,
    shape: Shape,
    /// The share of the requests that passes by, to begin with.
    passing: f64,
}

impl<'a> Problem<'a> {
    /// From the law that the lightest load's responses settle to, and from that of these responses with another mean. The one
    /// suits laws that end suddenly or have atoms, but has the noise of few responses many times over: of exponential work it
    /// made lumps, and the wrong number of servers then fitted better. The other is as smooth as the responses.
    fn both(all: &'a All, servers: u32, among: Among) -> Result<[Problem<'a>; 2], Error> {
        let (rate, measured) = all.lightest();
        let valley = all.valley.filter(|_| among.hits);
        let (measured, passing) = match valley {
            Some(valley) => without_hits(&measured, valley),
            None => (measured, 0.0),
        };
        let rate = rate * (1.0 - passing);
        let law = at_lightest(&measured, servers, rate)?;
        let rates = all.rates();
        let most = rates.iter().copied().fold(0.0, f64::max) * (1.0 - passing);
        let saturation = f64::from(servers) / law.mean();
        if most > CARRIED * saturation {
            return Err(Error::Unstable { rate: most, saturation });
        }
        let plain = Empirical::from_histogram(&measured)?;
        // As of M/M/1, and less with more servers.
        let m = f64::from(servers);
        let busy = rate * plain.mean() / m;
        let plain = plain.with_moments(plain.mean() / (1.0 + busy.powf(m) / m), plain.scv())?;
        let problem = |law: Empirical| {
            let busy = most * law.mean() / m;
            let law = law.with_moments(law.mean() * (BUSY / busy).min(1.0), law.scv())?;
            let (shape, hits, rates) = (Shape::new(&law), among.hits, rates.clone());
            Ok(Problem { all, servers, hits, rates, shape, passing })
        };
        Ok([problem(law)?, problem(plain)?])
    }

    /// The shares between edges that are expected of each step, if all loads are multiplied by a factor.
    /// [`Error::Unstable`] if one is too large.
    fn shares(&self, values: &Values, factor: f64) -> Result<Vec<Vec<f64>>, Error> {
        let law = self.shape.law(&values.factors)?;
        let served = 1.0 - values.passing;
        let loads: Vec<f64> = self.rates.iter().map(|rate| rate * served * factor).collect();
        let all = within(&law, self.servers, &loads, &self.all.edges)?;
        let of = |within: Vec<f64>| {
            let mut shares = between(&within, 1.0);
            shares.iter_mut().for_each(|share| *share *= served);
            shares.iter_mut().take(1).for_each(|share| *share += values.passing);
            floored(shares)
        };
        Ok(all.into_iter().map(of).collect())
    }

    /// How the whitened counts of each step follow each parameter: by step, parameter and bin. Differences are to the
    /// side of less work, where no load is past saturation.
    fn slopes(&self, values: &Values, here: &[Vec<f64>]) -> Result<Vec<Vec<Vec<f64>>>, Error> {
        let slope = |low: Vec<Vec<f64>>| {
            let of = |(here, low): (&Vec<f64>, Vec<f64>)| -> Vec<f64> {
                here.iter().zip(low).map(|(here, low)| (here - low) / STEP).collect()
            };
            here.iter().zip(low).map(of).collect::<Vec<_>>()
        };
        let mut by = Vec::with_capacity(KNOTS + 1);
        for knot in 0..KNOTS {
            let mut changed = *values;
            changed.factors[knot] -= STEP;
            by.push(slope(self.shares(&changed, 1.0)?));
        }
        if self.hits {
            let by_load = slope(self.shares(values, (-STEP).exp())?);
            // Requests that pass by are no load.
            let served = 1.0 - values.passing;
            let of = |(here, by_load): (&Vec<f64>, Vec<f64>)| {
                let each = here.iter().zip(by_load).enumerate();
                let own = |(j, (share, by_load)): (usize, (&f64, f64))| {
                    let more = if j == 0 { 1.0 } else { 0.0 };
                    (more - share - by_load) / served
                };
                each.map(own).collect()
            };
            by.push(here.iter().zip(by_load).map(of).collect());
        }
        let of = |(step, noise): (usize, &Noise)| {
            by.iter().map(|each: &Vec<Vec<f64>>| noise.slope(&each[step])).collect()
        };
        Ok(self.all.noise.iter().enumerate().map(of).collect())
    }

    /// The information of all counts, with what is known beforehand: factors of neighbouring knots are alike.
    fn information(&self, slopes: &[Vec<Vec<f64>>]) -> Vec<Vec<f64>> {
        let parameters = KNOTS + usize::from(self.hits);
        let mut all = vec![vec![0.0; parameters]; parameters];
        for step in slopes {
            for (row, a) in all.iter_mut().zip(step) {
                row.iter_mut().zip(step).for_each(|(cell, b)| *cell += dot(a, b));
            }
        }
        let rough = 1.0 / (ROUGHNESS * ROUGHNESS);
        for knot in 1..KNOTS {
            all[knot][knot] += rough;
            all[knot - 1][knot - 1] += rough;
            all[knot][knot - 1] -= rough;
            all[knot - 1][knot] -= rough;
        }
        all
    }

    /// The slope of the likelihood.
    fn score(&self, values: &Values, slopes: &[Vec<Vec<f64>>], missed: &[Vec<f64>]) -> Vec<f64> {
        let mut all = along(slopes, missed);
        let rough = 1.0 / (ROUGHNESS * ROUGHNESS);
        for knot in 1..KNOTS {
            let apart = values.factors[knot] - values.factors[knot - 1];
            all[knot] -= rough * apart;
            all[knot - 1] += rough * apart;
        }
        all
    }

    /// The logarithm of the likelihood, with what is known beforehand.
    fn likelihood(&self, values: &Values, missed: &[Vec<f64>]) -> f64 {
        let apart = values.factors.windows(2).map(|pair| (pair[1] - pair[0]).powi(2));
        -0.5 * squares(missed) - apart.sum::<f64>() / (2.0 * ROUGHNESS * ROUGHNESS)
    }

    /// Values changed by a step.
    fn changed(&self, values: &Values, step: &[f64], part: f64) -> Values {
        let mut changed = *values;
        changed.factors.iter_mut().zip(step).for_each(|(value, step)| *value += part * step);
        if let Some(step) = step.get(KNOTS) {
            changed.passing = (values.passing + part * step).clamp(0.0, PASSING_MAX);
        }
        changed
    }

    fn fitted(self, among: &Among) -> Result<Candidate<'a>, Error> {
        let mut values = Values { factors: [0.0; KNOTS], passing: self.passing };
        let mut shares = self.shares(&values, 1.0)?;
        let mut off = missed(self.all, &shares);
        let mut slopes = self.slopes(&values, &shares)?;
        let mut now = self.likelihood(&values, &off);
        let mut moved = 0.0f64;
        for _ in 0..SCORINGS {
            let score = self.score(&values, &slopes, &off);
            let Some(step) = solve(&self.information(&slopes), &score) else { break };
            if among.is_behind(now, 0.5 * dot(&score, &step)) {
                break;
            }
            let longest = step.iter().copied().map(f64::abs).fold(0.0, f64::max);
            let mut part = (CHANGE_MAX / longest).min(1.0);
            let before = now;
            for _ in 0..5 {
                let next = self.changed(&values, &step, part);
                if let Ok(found) = self.shares(&next, 1.0) {
                    let next_off = missed(self.all, &found);
                    let likelihood = self.likelihood(&next, &next_off);
                    if likelihood > now {
                        // Differences at each new place took four fifths of a fit's time.
                        update(&mut slopes, &between_values(&values, &next), &off, &next_off);
                        (values, shares, off, now) = (next, found, next_off, likelihood);
                        moved += part * longest;
                        break;
                    }
                }
                part *= 0.3;
            }
            if now - before < GAIN {
                if moved <= CHANGED {
                    break;
                }
                slopes = self.slopes(&values, &shares)?;
                moved = 0.0;
            }
        }
        Ok(Candidate {
            servers: Some(self.servers),
            law: self.shape.law(&values.factors)?,
            passing: values.passing,
            likelihood: now,
            dispersion: dispersion(&off, KNOTS + usize::from(self.hits)),
            fit: Some((self, values)),
        })
    }
}

/// How far one point of the fit is from another, by parameter.
fn between_values(from: &Values, to: &Values) -> Vec<f64> {
    let factors = from.factors.iter().zip(&to.factors).map(|(from, to)| to - from);
    factors.chain([to.passing - from.passing]).collect()
}

/// Changes slopes by as little as explains what a step made of the whitened counts (C. Broyden, "A class of methods for solving
/// nonlinear simultaneous equations", 1965).
fn update(slopes: &mut [Vec<Vec<f64>>], step: &[f64], before: &[Vec<f64>], after: &[Vec<f64>]) {
    let square = dot(step, step);
    if square <= 0.0 {
        return;
    }
    for ((slopes, before), after) in slopes.iter_mut().zip(before).zip(after) {
        for (bin, (before, after)) in before.iter().zip(after).enumerate() {
            let explained: f64 = slopes.iter().zip(step).map(|(slope, x)| slope[bin] * x).sum();
            let left = (before - after - explained) / square;
            slopes.iter_mut().zip(step).for_each(|(slope, x)| slope[bin] += left * x);
        }
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// What whitened counts are along the slopes, of all steps.
fn along(slopes: &[Vec<Vec<f64>>], off: &[Vec<f64>]) -> Vec<f64> {
    let parameters = slopes.first().map_or(0, Vec::len);
    let mut all = vec![0.0; parameters];
    for (step, off) in slopes.iter().zip(off) {
        all.iter_mut().zip(step).for_each(|(sum, slope)| *sum += dot(slope, off));
    }
    all
}

/// The responses of requests that were served, and the share of those that were not. A law that has works up to the valley
/// has as many for each second as just above it.
fn without_hits(measured: &Histogram, valley: f64) -> (Histogram, f64) {
    let (below, mut served) = measured.split_at(valley);
    let near = served.share_within(2.0 * valley).unwrap_or(0.0) * served.count() as f64;
    let back = near.min(below.count() as f64).round();
    let parts = 8u64;
    for part in 0..parts {
        let at = valley * (part as f64 + 0.5) / parts as f64;
        served.record_many((at * 1e9) as u64, back as u64 / parts);
    }
    let passing = (below.count() as f64 - back) / measured.count().max(1) as f64;
    (served, passing.clamp(0.0, PASSING_MAX))
}

impl Candidate<'_> {
    /// How the fit follows counts that deviate.
    pub fn response(&self) -> Result<Response<'_>, Error> {
        let Some((problem, values)) = &self.fit else {
            return Ok(Response { candidate: self, scoring: None });
        };
        let slopes = problem.slopes(values, &problem.shares(values, 1.0)?)?;
        let information = problem.information(&slopes);
        Ok(Response { candidate: self, scoring: Some(Scoring { slopes, information }) })
    }
}

impl Response<'_> {
    /// The law of a draw, by one step of scoring from that of all data. `None` if nothing follows.
    pub fn replicate(&self, all: &All, drawn: &StepDraws) -> Option<Replicate> {
        let (Some((problem, values)), Some(Scoring { slopes, information })) =
            (&self.candidate.fit, &self.scoring)
        else {
            return of_moments(drawn);
        };
        let mut score = vec![0.0; information.len()];
        for (step, sums) in drawn {
            let noise = &all.noise[*step];
            let off = noise.whitened(&noise.off(sums));
            let own = slopes[*step].iter().map(|slope| dot(slope, &off));
            score.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        let step = solve(information, &score)?;
        // Few blocks know their own variance roughly.
        let fewest = all.steps.iter().map(|step| step.blocks.len()).min().unwrap_or(2).max(2);
        let few = (fewest as f64 / (fewest as f64 - 1.0)).sqrt() * student_95(fewest - 1) / 1.96;
        // What the queue misses the counts by beyond chance, it may miss by its parameters.
        let wider = few * self.candidate.dispersion.sqrt();
        let step: Vec<f64> = step.into_iter().map(|x| (wider * x).clamp(-1.0, 1.0)).collect();
        let values = problem.changed(values, &step, 1.0);
        let law = problem.shape.law(&values.factors).ok()?;
        Some(Replicate { mean: law.mean(), scv: law.scv(), passing: values.passing })
    }
}

/// A law by the moments of responses.
fn of_moments(drawn: &StepDraws) -> Option<Replicate> {
    let (n, sum, squares) = drawn.iter().fold((0.0, 0.0, 0.0), |all, (_, sums)| {
        (all.0 + sums.responses(), all.1 + sums.sum_s, all.2 + sums.squares_s2)
    });
    let mean = sum / n;
    let scv = (squares / n / (mean * mean) - 1.0).max(0.0);
    (mean.is_finite() && mean > 0.0).then_some(Replicate { mean, scv, passing: 0.0 })
}

/// A candidate and its weight.
pub(super) struct Weighted<'a> {
    pub(super) candidate: Candidate<'a>,
    pub(super) weight: f64,
}
