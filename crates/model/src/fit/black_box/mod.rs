//! Fits a service of which only arrivals and response times are known.
//!
//! The service is modelled as M/G/m: Poisson arrivals, one line, m equal servers, one law of
//! service; some requests may pass the servers by (hits of a cache that the source does not name).
//! For each candidate, a number of servers with or without such hits, *all* loads are fitted at
//! once by the likelihood of their responses: counts between some 20 times, by Fisher's scoring. What is fitted:
//!
//! - the law of service. It begins as the responses at the lightest load with a shorter mean, or as the
//!   law for which the model's responses at that load match the measured ones: each of its quantiles is
//!   multiplied by the ratio of the measured response quantile to the model's, and this is repeated
//!   until the responses come no nearer. The likelier of both fits counts: the second suits laws with
//!   atoms or edges, and has the noise of the first many times over, because it undoes a convolution.
//!   Then its quantiles are multiplied by a factor that changes slowly over the law (`shape`), so
//!   that its mean and its tail are those which explain the heavier loads too.
//! - the share of hits, if the responses at the lightest load have two humps: those below the
//!   valley are counted as one, and are hits as far as they do not become fewer with the load.
//!
//! Responses in a queue depend on each other. Counts are weighed by their covariance, which windows and
//! blocks show (`noise`): as if they were independent, a few long busy periods decided the mean.
//!
//! Candidates are the numbers of servers that can carry the largest load and "no limit" (responses
//! that do not depend on load). Each has the weight exp(−Δ/φ), Δ what its log likelihood is below
//! the best and φ ≥ 1 the sum of squares that the best misses over its degrees of freedom (as in
//! [`super::work()`]), and so many of the replicates, so that the intervals hold what is not known
//! of the number of servers. The replicates are one step of scoring from the fit, by resampled
//! blocks: their scores, and so all parameters together, √φ times as wide.
//!
//! Limitations: time that a request spends without holding a server (network, a fixed delay) counts
//! as service, so the model saturates too early. Reads and writes share one law. A single load
//! leaves the number of servers undetermined. Each step's `ks_distance` measures the goodness of
//! fit; held-out loads measure the quality of predictions. Cost: a second or two for each candidate.

mod gather;
mod noise;
mod queue;
mod shape;
mod stamps;
mod start;
mod sums;
mod write;

use crate::error::{Error, check};
use crate::model_file::Model;

use super::input::{Options, Step};
use super::servers::ServersFound;
use queue::{Among, Candidate, Weighted, candidates, fit_servers};
use sums::StepDraws;

pub(super) use gather::gather;

/// The smallest number of resamplings of an interval.
const REPLICATES_MIN: usize = 8;
/// Candidates of less weight have no replicates.
const WEIGHT_MIN: f64 = 0.01;
/// Candidates of at least this weight are in the interval of the number of servers.
const WEIGHT_INSIDE: f64 = 0.025;

/// A fitted model, with its number of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct BlackBox {
    /// The model: one class of one device. Use [`Model::predict`] as for any other.
    pub model: Model,
    /// The number of servers, with its interval.
    pub servers: ServersFound,
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
    let mut found = Vec::new();
    let mut among = Among { hits: false, best: None };
    // Where hits may be they mostly are; the others are then given up early.
    for hits in [true, false].into_iter().skip(if all.has_valley() { 0 } else { 1 }) {
        among.hits = hits;
        match servers {
            Some(_) => found.push(fit_servers(&all, servers, among)),
            None => match candidates(&all, &mut among) {
                Ok(more) => found.extend(more.into_iter().map(Ok)),
                Err(error) => found.push(Err(error)),
            },
        }
    }
    let weighted = weighted(found)?;
    let likeliest = weighted.first().ok_or(Error::NoSteps)?.candidate.servers;
    // No limit sorts after every number.
    let rank = |servers: &Option<u32>| servers.unwrap_or(u32::MAX);
    let inside = || {
        let each = weighted.iter().filter(|c| c.weight >= WEIGHT_INSIDE);
        each.map(|c| c.candidate.servers)
    };
    let enough = options.replicates >= REPLICATES_MIN
        && (servers.is_some() || (all.has_loads() && all.tells_servers()));
    let mut found = ServersFound { likeliest, low: Some(1), high: None, given: servers.is_some() };
    if enough {
        found.low = inside().min_by_key(rank).flatten();
        found.high = inside().max_by_key(rank).flatten();
    }
    let drawn = by_weight(&weighted, all.resample(options));
    let model = write::model(&all, &weighted, &drawn, &found)?;
    let model = Model { about: options.about.clone(), ..model };
    Ok(BlackBox { model, servers: found })
}

/// The candidates, the likeliest first, with weights that add to 1. The first error, if there is none.
fn weighted(found: Vec<Result<Candidate<'_>, Error>>) -> Result<Vec<Weighted<'_>>, Error> {
    let mut candidates = Vec::new();
    let mut failed = None;
    for each in found {
        match each {
            Ok(candidate) => candidates.push(candidate),
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    candidates.sort_by(|a, b| b.likelihood.total_cmp(&a.likelihood));
    let Some(best) = candidates.first() else { return Err(failed.unwrap_or(Error::NoSteps)) };
    let (most, dispersion) = (best.likelihood, best.dispersion);
    let weight = |c: &Candidate<'_>| match ((c.likelihood - most) / dispersion).exp() {
        weight if weight >= WEIGHT_MIN => weight,
        _ => 0.0,
    };
    let sum: f64 = candidates.iter().map(weight).sum();
    let with = |candidate| {
        let weight = weight(&candidate) / sum;
        Weighted { candidate, weight }
    };
    Ok(candidates.into_iter().map(with).collect())
}

/// Draws, each with the number of the candidate that it is fitted by, of which each has its share.
fn by_weight(weighted: &[Weighted<'_>], drawn: Vec<StepDraws>) -> Vec<(usize, StepDraws)> {
    let n = drawn.len() as f64;
    let of = |(i, drawn): (usize, StepDraws)| {
        let mut left = (i as f64 + 0.5) / n;
        let reached = |c: &Weighted<'_>| {
            left -= c.weight;
            left <= 0.0
        };
        (weighted.iter().position(reached).unwrap_or(0), drawn)
    };
    drawn.into_iter().enumerate().map(of).collect()
}

#[cfg(test)]
mod tests;
