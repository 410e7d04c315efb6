//! Fits an M/G/m queue with a given number of servers to responses ([`super`] has the method).

use crate::distribution::{Empirical, Piece, ServiceTime};
use crate::error::Error;
use crate::queue::MgmLoads;
use ground::window::Histogram;

use super::{All, GRID, StepDraws, Sums, between, dot};

/// Numbers of servers to try first; a larger number cannot be told from no limit.
const SERVERS: [u32; 12] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
/// Largest number of rounds of fitting a law.
const ROUNDS: usize = 8;
/// Step in ln b of the differences that give a likelihood's slope.
const STEP: f64 = 0.02;
/// Largest number of rounds of scoring.
const SCORINGS: usize = 4;
/// Largest utilisation at the lightest load with the initial law.
const START_MAX: f64 = 0.8;

/// A fitted queue with a number of servers; `None` is without limit.
pub(super) struct Candidate {
    pub servers: Option<u32>,
    pub law: Empirical,
    /// Number of rounds in which its shape was fitted.
    rounds: usize,
    /// For each step: logarithms of the shares between edges, and their slopes by ln b and by the
    /// logarithm of the load.
    pub shares: Vec<Shares>,
    /// For each step whose load did not determine the shape: logarithms of the shares that the
    /// queue predicts with the mean from all other loads.
    pub held_out: Vec<Option<Vec<f64>>>,
}

impl Candidate {
    /// The log likelihood of the steps that are predicted from the others; of the fitted steps, if
    /// there is only one load.
    pub fn likelihood(&self, drawn: &StepDraws) -> f64 {
        let fitted_alone = self.held_out.iter().all(Option::is_none);
        let of = |(i, sums): &(usize, Sums)| match &self.held_out[*i] {
            Some(log) => dot(&sums.counts, log),
            None if fitted_alone => dot(&sums.counts, &self.shares[*i].log),
            None => 0.0,
        };
        drawn.iter().map(of).sum()
    }

    /// Pearson's statistic of the predicted steps over its degrees of freedom, at least 1: by how much the counts vary more than
    /// those of independent responses would, and the queue misses them.
    pub fn overdispersion(&self, drawn: &StepDraws) -> f64 {
        let fitted_alone = self.held_out.iter().all(Option::is_none);
        let (mut statistic, mut degrees) = (0.0, 0.0);
        for (i, sums) in drawn {
            let log = match &self.held_out[*i] {
                Some(log) => log,
                None if fitted_alone => &self.shares[*i].log,
                None => continue,
            };
            let n: f64 = sums.counts.iter().sum();
            let off = |(count, log): (&f64, &f64)| (count - n * log.exp()).powi(2) / log.exp();
            statistic +=
                sums.counts.iter().zip(log).map(off).sum::<f64>() / n.max(f64::MIN_POSITIVE);
            degrees += log.len().saturating_sub(1) as f64;
        }
        (statistic / f64::max(degrees, 1.0)).max(1.0)
    }
}

#[derive(Clone)]
pub(super) struct Shares {
    log: Vec<f64>,
    by_mean: Vec<f64>,
    by_load: Vec<f64>,
}

/// Fitted queues with several numbers of servers: those of [`SERVERS`] that can carry the load,
/// until the likelihood has fallen twice in a row; no limit; and the neighbours of the best.
pub(super) fn candidates(all: &All) -> Result<Vec<Candidate>, Error> {
    let totals = all.totals();
    let likelihood = |c: &Candidate| c.likelihood(&totals);
    let mut found: Vec<(f64, Candidate)> = Vec::new();
    // The largest number that cannot carry the load, and why.
    let (mut fallen, mut refused) = (0, None);
    for servers in SERVERS {
        match fit_servers(all, Some(servers)) {
            Ok(candidate) => {
                let now = likelihood(&candidate);
                let before = found.last().map_or(f64::NEG_INFINITY, |last| last.0);
                fallen = if now < before { fallen + 1 } else { 0 };
                found.push((now, candidate));
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
        found.sort_by_key(|f| f.1.servers);
        let best = (0..found.len()).max_by(|&a, &b| found[a].0.total_cmp(&found[b].0));
        let Some(best) = best else { break };
        let at = |i: usize| found.get(i).and_then(|f| f.1.servers);
        let Some(here) = at(best) else { break };
        let gaps = [
            at(best + 1).map(|up| (here, up)),
            Some((best.checked_sub(1).and_then(at).unwrap_or(too_few), here)),
        ];
        let open = gaps.into_iter().flatten().find(|(low, high)| high - low > 1);
        let Some((low, high)) = open else { break };
        let middle = low.midpoint(high);
        match fit_servers(all, Some(middle)) {
            Ok(candidate) => found.push((likelihood(&candidate), candidate)),
            Err(Error::Unstable { .. }) if low == too_few => too_few = middle,
            Err(error) => return Err(error),
        }
    }
    let mut all_of: Vec<Candidate> = found.into_iter().map(|f| f.1).collect();
    all_of.push(fit_servers(all, None)?);
    Ok(all_of)
}

/// The law that reproduces the measured responses at the lightest load, with the mean of all loads.
pub(super) fn fit_servers(all: &All, servers: Option<u32>) -> Result<Candidate, Error> {
    let (totals, rates) = (all.totals(), all.rates());
    let (lightest, measured) = all.lightest(&totals);
    let law = Empirical::from_histogram(&measured)?;
    let Some(m) = servers else {
        let same = |_: &f64| Ok(all.edges.iter().map(|t| law.cdf(*t)).collect::<Vec<f64>>());
        let within = rates.iter().map(same).collect::<Result<Vec<_>, Error>>()?;
        let shares = within.iter().map(|w| Shares::new(w, w, w, w, w)).collect();
        let held_out = (0..rates.len()).map(|i| all.is_heavier(i).then(|| logs(&within[i])));
        return Ok(Candidate { servers, law, rounds: 0, shares, held_out: held_out.collect() });
    };
    let (rounds, law) = settled(&start(law, m, lightest)?, m, lightest, &measured, ROUNDS, true)?;
    // The mean by all loads: Fisher's scoring, whose information is never negative even where the
    // inversion is not smooth.
    let mut found = candidate(servers, m, law, &rates, &all.edges)?;
    found.rounds = rounds;
    for _ in 0..SCORINGS {
        let step = shift_of(&totals, all, &found.shares).clamp(-5.0 * STEP, 5.0 * STEP);
        let most = rates.iter().copied().fold(0.0, f64::max);
        let mean = (found.law.mean() * step.exp()).min(0.99 * f64::from(m) / most);
        let law = found.law.with_moments(mean, found.law.scv())?;
        found = candidate(servers, m, law, &rates, &all.edges)?;
        found.rounds = rounds;
        if step.abs() < 1e-3 {
            break;
        }
    }
    for group in all.groups.iter().skip(1) {
        let others: StepDraws = totals.iter().filter(|s| !group.contains(&s.0)).cloned().collect();
        let shift = shift_of(&others, all, &found.shares);
        let law = found.law.with_moments(found.law.mean() * shift.exp(), found.law.scv())?;
        for &i in group {
            found.held_out[i] = Some(match within(&law, m, &[rates[i]], &all.edges) {
                Ok(at) => at.first().map_or_else(Vec::new, |shares| logs(shares)),
                // By the other loads this one cannot be carried: no response would be in time.
                Err(Error::Unstable { .. }) => logs(&vec![0.0; all.edges.len()]),
                Err(error) => return Err(error),
            });
        }
    }
    Ok(found)
}

/// The law of a draw: its shape fitted in the same number of rounds to the drawn blocks of the
/// lightest load, its mean to all drawn blocks. Slopes are the candidate's. Cost: some evaluations
/// of the queue.
pub(super) fn refit(all: &All, from: &Candidate, drawn: &StepDraws) -> Result<Empirical, Error> {
    let (lightest, measured) = all.lightest(drawn);
    let Some(m) = from.servers else { return Empirical::from_histogram(&measured) };
    let law = start(Empirical::from_histogram(&measured)?, m, lightest)?;
    let (_, law) = settled(&law, m, lightest, &measured, from.rounds, false)?;
    let here = within(&law, m, &all.rates(), &all.edges)?;
    let with = |(shares, here): (&Shares, &Vec<f64>)| Shares { log: logs(here), ..shares.clone() };
    let shares: Vec<Shares> = from.shares.iter().zip(&here).map(with).collect();
    law.with_moments(law.mean() * shift_of(drawn, all, &shares).exp(), law.scv())
}

/// A candidate from a law and a number of servers, with its shares at each load.
fn candidate(
    servers: Option<u32>,
    m: u32,
    law: Empirical,
    rates: &[f64],
    edges: &[f64],
) -> Result<Candidate, Error> {
    let scaled = |h: f64| law.with_moments(law.mean() * h.exp(), law.scv());
    let loads = |h: f64| rates.iter().map(|r| r * h.exp()).collect::<Vec<f64>>();
    let here = within(&law, m, rates, edges)?;
    // Past saturation there is no upward slope: the downward one is used for both.
    let or = |of: Result<Vec<Vec<f64>>, Error>| of.unwrap_or_else(|_| here.clone());
    let slow = or(within(&scaled(STEP)?, m, rates, edges));
    let fast = within(&scaled(-STEP)?, m, rates, edges)?;
    let more = or(within(&law, m, &loads(STEP), edges));
    let less = within(&law, m, &loads(-STEP), edges)?;
    let each = (0..rates.len())
        .map(|i| Shares::new(&here[i], &slow[i], &fast[i], &more[i], &less[i]))
        .collect();
    Ok(Candidate { servers, law, rounds: 0, shares: each, held_out: vec![None; rates.len()] })
}

/// Logarithms of the shares between edges; a bin that is nearly empty by the model must not decide
/// alone.
fn logs(within: &[f64]) -> Vec<f64> {
    let least = 0.01 / (within.len() + 1) as f64;
    between(within, 1.0).into_iter().map(|share| share.max(least).ln()).collect()
}

impl Shares {
    fn new(here: &[f64], slow: &[f64], fast: &[f64], more: &[f64], less: &[f64]) -> Self {
        let slope = |up: &[f64], down: &[f64]| -> Vec<f64> {
            let (up, down) = (between(up, 1.0), between(down, 1.0));
            up.iter().zip(down).map(|(u, d)| (u - d) / (2.0 * STEP)).collect()
        };
        Shares { log: logs(here), by_mean: slope(slow, fast), by_load: slope(more, less) }
    }
}

/// P(T ≤ edge) at each load. [`Error::Unstable`] if one is too large.
fn within(law: &Empirical, m: u32, rates: &[f64], edges: &[f64]) -> Result<Vec<Vec<f64>>, Error> {
    let saturation = f64::from(m) / law.mean();
    let utilisations: Vec<f64> = rates.iter().map(|r| r / saturation).collect();
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most >= saturation {
        return Err(Error::Unstable { rate: most, saturation });
    }
    let queues = MgmLoads::new(m, law.clone(), &utilisations)?;
    let mut all = vec![Vec::with_capacity(edges.len()); rates.len()];
    for t in edges {
        let at = queues.response_cdfs_at(*t);
        all.iter_mut().zip(at).for_each(|(of, share)| of.push(share));
    }
    Ok(all)
}

/// Shares at which quantiles of `n` responses are compared: even in the middle, and denser towards
/// the ends, which contribute much of a law's mean and variance.
fn levels(n: f64) -> impl Iterator<Item = f64> {
    let even = 0.5 / GRID as f64;
    let middle = (0..GRID).map(move |i| (2 * i + 1) as f64 * even);
    let rest = std::iter::successors(Some(0.5 * even), |p| Some(0.5 * p));
    let rest = rest.take_while(move |p| *p >= 0.5 / n).take(30);
    middle.chain(rest.flat_map(|p| [p, 1.0 - p]))
}

/// The initial law: that of the responses, with a mean for which the queue is stable.
fn start(law: Empirical, m: u32, rate: f64) -> Result<Empirical, Error> {
    let most = START_MAX * f64::from(m) / rate;
    if law.mean() <= most { Ok(law) } else { law.with_moments(most, law.scv()) }
}

/// A law after a number of rounds; with `stop`, the law after the round whose responses are nearest
/// to the measured ones. Rounds undo a convolution, and each amplifies the noise in the quantiles,
/// so rounds that come no nearer fit noise.
fn settled(
    law: &Empirical,
    m: u32,
    rate: f64,
    measured: &Histogram,
    rounds: usize,
    stop: bool,
) -> Result<(usize, Empirical), Error> {
    let mut law = law.clone();
    let mut best: Option<(f64, usize, Empirical)> = None;
    for round in 0..rounds {
        let (distance, next) = settle(&law, m, rate, measured)?;
        match &best {
            Some(before) if stop && distance >= before.0 => break,
            _ => best = Some((distance, round, law)),
        }
        law = next;
    }
    Ok(best.filter(|_| stop).map_or((rounds, law), |(_, round, law)| (round, law)))
}

/// One round: multiplies each of the law's pieces by the ratio of the measured to the model's
/// response quantile at the piece's share. Also returns the largest difference of the model's share
/// from the measured one before the round.
fn settle(
    law: &Empirical,
    m: u32,
    rate: f64,
    measured: &Histogram,
) -> Result<(f64, Empirical), Error> {
    let n = measured.count() as f64;
    let mut times: Vec<f64> = levels(n).filter_map(|p| measured.quantile_s(p)).collect();
    let last = measured.quantile_s(1.0).unwrap_or(law.mean()).max(law.mean());
    // An initial law that is too long gives responses past the measured ones.
    times.extend([1.0, 2.0, 4.0].map(|f| f * last));
    times.sort_by(f64::total_cmp);
    times.dedup_by(|a, b| *a <= *b * (1.0 + 1e-6));
    let found = within(law, m, &[rate], &times)?.pop().unwrap_or_default();
    let apart = |(t, share): (&f64, &f64)| Some((measured.share_within(*t)? - share).abs());
    let distance = times.iter().zip(&found).filter_map(apart).fold(0.0, f64::max);
    let quantile = |p: f64| -> f64 {
        let at = found.partition_point(|share| *share < p);
        let point = |i: usize| match i.checked_sub(1) {
            None => (0.0, 0.0),
            Some(i) => (found[i.min(found.len() - 1)], times[i.min(times.len() - 1)]),
        };
        let ((low, a), (high, b)) = (point(at), point(at + 1));
        if high > low { a + (b - a) * ((p - low) / (high - low)).clamp(0.0, 1.0) } else { b }
    };
    let mut pieces = Vec::with_capacity(law.pieces().len());
    let mut below = 0.0;
    for piece in law.pieces() {
        let p = (below + 0.5 * piece.share).clamp(0.5 / n, 1.0 - 0.5 / n);
        below += piece.share;
        let (seen, model) = (measured.quantile_s(p).unwrap_or(piece.centre), quantile(p));
        let factor = if model > 0.0 && seen > 0.0 { (seen / model).clamp(0.5, 2.0) } else { 1.0 };
        let (centre, half_width) = (piece.centre * factor, piece.half_width * factor);
        pieces.push(Piece { centre, half_width, share: piece.share });
    }
    Ok((distance, Empirical::from_pieces(pieces)?))
}

/// ln b of a draw by one step of scoring: its responses belong to its own load.
fn shift_of(drawn: &StepDraws, all: &All, shares: &[Shares]) -> f64 {
    let (mut score, mut information) = (0.0, 0.0);
    for (i, sums) in drawn {
        let (of, n) = (&shares[*i], sums.counts.iter().sum::<f64>());
        let load = (sums.rate() / all.steps[*i].total.rate()).ln();
        for (j, count) in sums.counts.iter().enumerate() {
            let weight = of.by_mean[j] / of.log[j].exp();
            let expected = of.log[j].exp() + of.by_load[j] * load;
            score += weight * (count - n * expected);
            information += n * weight * of.by_mean[j];
        }
    }
    let step = score / information;
    if step.is_finite() { step.clamp(-0.5, 0.5) } else { 0.0 }
}
