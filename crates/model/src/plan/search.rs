//! Searches the cheapest configurations that meet an objective: examines all configurations in the
//! order of their cost until enough meet it.
//!
//! Configurations that are too small for the catalogue or whose devices saturate are rejected
//! before any distribution is computed, and the search ends at the highest cost needed. The search
//! does not assume that more servers, memory or devices are better, so the result equals that of
//! examining every configuration.

use crate::error::Error;
use crate::storage::{BETA, balls_into_bins_limit};
use crate::trust::covers;

use super::choices::Digits;
use super::question::{LimitRule, Question};
use super::site::{Bench, Changes, Site};

/// The result of a search.
#[derive(Default)]
pub(super) struct SearchResult {
    /// The configurations that meet the objective, cheapest first.
    pub ranked: Vec<u32>,
    /// Number of configurations examined.
    pub evaluated: u64,
    /// The nearest configuration, if none meets the objective.
    pub nearest: Option<(u32, Nearness)>,
}

/// How near a configuration comes to meeting the objective.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) enum Nearness {
    /// Past saturation: minus the load relative to the saturation.
    Overloaded(f64),
    /// At a load of which the model knows nothing: minus the load relative to the largest known one.
    Unknown(f64),
    /// The share answered in time.
    Share(f64),
}

/// All configurations in the order of their cost.
pub(super) fn by_cost(site: &Site) -> Result<Vec<(f64, u32)>, Error> {
    let count = site.choices.configurations()?;
    let mut digits = Digits::new();
    let mut all = Vec::with_capacity(count as usize);
    for index in 0..count {
        site.choices.digits(index, &mut digits);
        all.push((site.choices.cost(&digits), index as u32));
    }
    all.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    Ok(all)
}

/// The cheapest `top` configurations that meet the objective at `rate` requests/s; at equal cost,
/// those with the larger share in time first.
pub(super) fn cheapest(
    site: &Site,
    question: &Question,
    all: &[(f64, u32)],
    rate: f64,
    top: usize,
) -> SearchResult {
    let mut judge = Judge::new(site, question, rate);
    let mut found = SearchResult::default();
    let mut holding: Vec<(f64, f64, u32)> = Vec::new();
    let mut digits = Digits::new();
    for &(cost, index) in all {
        if holding.len() >= top && holding.get(top.max(1) - 1).is_none_or(|last| cost > last.0) {
            break;
        }
        found.evaluated += 1;
        site.choices.digits(index.into(), &mut digits);
        match judge.judge(&digits) {
            Verdict::Holds(share) => holding.push((cost, share, index)),
            Verdict::Fails(nearness) => {
                if found.nearest.is_none_or(|(_, best)| nearness > best) {
                    found.nearest = Some((index, nearness));
                }
            }
            Verdict::Impossible => {}
        }
    }
    holding.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)).then(a.2.cmp(&b.2)));
    found.ranked = holding.into_iter().take(top).map(|h| h.2).collect();
    found
}

/// The judgement of a configuration.
pub(super) enum Verdict {
    /// It meets the objective; the share answered in time.
    Holds(f64),
    /// It does not meet the objective.
    Fails(Nearness),
    /// It cannot be built: no room, no servers for the replicas, no devices for the reads.
    Impossible,
}

/// Judges configurations at one load.
pub(super) struct Judge<'a> {
    site: &'a Site<'a>,
    question: &'a Question,
    rate: f64,
    bench: Bench,
    changes: Changes,
}

impl<'a> Judge<'a> {
    pub fn new(site: &'a Site<'a>, question: &'a Question, rate: f64) -> Self {
        let bench = site.bench(question.within_s());
        Judge { site, question, rate, bench, changes: Changes::default() }
    }

    /// Judges a configuration. Cost: some microseconds.
    pub fn judge(&mut self, digits: &[usize]) -> Verdict {
        let choices = self.site.choices;
        if !choices.fits(digits) || !self.set(digits, 1.0) {
            return Verdict::Impossible;
        }
        let (servers, wanted) = (choices.servers[digits[0]], self.question.objective.share);
        let n = f64::from(servers);
        let share = match self.share(n) {
            Ok(share) => share,
            Err(nearness) => return Verdict::Fails(nearness),
        };
        let fails = Verdict::Fails(Nearness::Share(share));
        if share < wanted || self.rate > self.limit(servers) {
            return fails;
        }
        if self.question.with_one_lost {
            if servers < 2 {
                return fails;
            }
            let lost = if choices.replicas(digits) < 2 {
                // Keys that only the lost server held count as too late, and load no other server.
                share * (n - 1.0) / n
            } else if self.set(digits, n / (n - 1.0)) {
                match self.share(n - 1.0) {
                    Ok(share) => share,
                    Err(_) => return fails,
                }
            } else {
                return fails;
            };
            if lost < wanted {
                return fails;
            }
        }
        Verdict::Holds(share)
    }

    fn set(&mut self, digits: &[usize], part: f64) -> bool {
        self.site.changes(digits, part, &mut self.changes) && self.bench.set(&self.changes).is_ok()
    }

    /// The share in time with `servers` servers.
    fn share(&self, servers: f64) -> Result<f64, Nearness> {
        let each = self.rate / servers;
        let known = self.site.known_to(&self.bench);
        if !covers(known, each) {
            return Err(Nearness::Unknown(-each / known));
        }
        self.bench.share(each).map_err(|error| match error {
            Error::Unstable { rate, saturation } => Nearness::Overloaded(-rate / saturation),
            _ => Nearness::Overloaded(f64::MIN),
        })
    }

    /// The limit that the load must not pass.
    fn limit(&self, servers: u32) -> f64 {
        match self.question.limit {
            LimitRule::None => f64::INFINITY,
            LimitRule::Ours => balls_into_bins_limit(self.bench.confidence_limit(), servers, BETA),
            LimitRule::Published => self
                .site
                .published(&self.changes)
                .map_or(0.0, |s| s.cluster_confidence_limit(servers)),
        }
    }
}
