//! What clients saw, from the windows of their side.

use std::collections::BTreeMap;

use super::state::RecentRequests;
use crate::fit::Step;
use ground::window::{Histogram, Outcome, QueueName, Window};

/// Windows of a block.
const BLOCK: usize = 5;

/// The requests of the clients in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientInterval {
    /// The end of the interval, microseconds since 1970-01-01 UTC.
    pub end_unix_us: u64,
    /// Requests that arrived.
    pub arrivals: u64,
    /// Requests that were answered.
    pub requests: u64,
    /// Requests that were answered within the objective.
    pub within: u64,
}

impl ClientInterval {
    /// Of the windows of one interval, with the requests within `t_s` seconds; `None` without a window of the clients' side.
    pub(super) fn from_windows(interval: &[Window], t_s: f64) -> Option<ClientInterval> {
        let client = [QueueName::NodeHttp, QueueName::Gateway, QueueName::Node];
        let windows = client.map(|name| interval.iter().filter(|w| w.is_of(name)).collect());
        let windows: Vec<&Window> = windows.into_iter().find(|found: &Vec<_>| !found.is_empty())?;
        let (within, requests) = within_of(&windows, t_s);
        let arrivals = windows.iter().map(|w| w.arrivals).sum();
        let end_unix_us = windows.iter().map(|w| w.end_unix_us()).max()?;
        Some(ClientInterval { end_unix_us, arrivals, requests, within })
    }
}

/// The windows of the client's side: the listener's, else the engine's.
pub(super) fn client_of(step: &Step) -> &[Window] {
    if step.gateway.is_empty() { &step.node } else { &step.gateway }
}

/// The responses to clients, errors not counted.
pub(super) fn responses_of(windows: &[&Window]) -> Histogram {
    let mut all = Histogram::default();
    for times in windows.iter().flat_map(|w| &w.times).filter(|t| t.outcome != Outcome::Error) {
        all.merge(&times.response);
    }
    all
}

/// The number of requests within a time, and of all requests. Exact if the windows count that objective. Errors are never
/// within it.
pub(super) fn within_of(windows: &[&Window], t_s: f64) -> (u64, u64) {
    let (mut within, mut all) = (0.0, 0);
    for window in windows {
        let counted = window.objectives_ms.iter().position(|ms| (ms * 1e-3 - t_s).abs() < 1e-9);
        for times in &window.times {
            all += times.response.count();
            if times.outcome == Outcome::Error {
                continue;
            }
            within += match counted.and_then(|index| times.within.get(index)) {
                Some(count) => *count as f64,
                None => {
                    let share = times.response.share_within(t_s).unwrap_or(0.0);
                    share * times.response.count() as f64
                }
            };
        }
    }
    (within.round() as u64, all)
}

pub(super) fn measured_of(windows: &[&Window], responses: &Histogram, t_s: f64) -> RecentRequests {
    let (within, requests) = within_of(windows, t_s);
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut dispersion = ground::window::Dispersion::default();
    for window in windows {
        dispersion.merge(&window.dispersion);
        for times in &window.times {
            *counts.entry(times.outcome.as_str()).or_default() += times.response.count();
        }
    }
    let share = |count: u64| count as f64 / requests.max(1) as f64;
    let hits = counts.get(Outcome::Memory.as_str()).copied().unwrap_or(0);
    RecentRequests {
        requests,
        within: (requests > 0).then(|| share(within)),
        p50_s: responses.quantile_s(0.5),
        p99_s: responses.quantile_s(0.99),
        hit_ratio: (requests > 0).then(|| share(hits)),
        dispersion: dispersion.index(),
        outcomes: counts.into_iter().map(|(name, n)| (name.to_owned(), share(n))).collect(),
    }
}

/// The variance of the share within the objective between blocks of five windows, over that of
/// independent requests; at least 1. It is above 1 because requests that meet the same queue are late
/// together.
pub(super) fn overdispersion(windows: &[&Window], t_s: f64) -> f64 {
    let blocks: Vec<(f64, f64)> = windows
        .chunks(BLOCK)
        .map(|block| within_of(block, t_s))
        .filter(|(_, all)| *all > 0)
        .map(|(within, all)| (within as f64, all as f64))
        .collect();
    let (within, all) = blocks.iter().fold((0.0, 0.0), |sum, b| (sum.0 + b.0, sum.1 + b.1));
    let p = within / all;
    let binomial = p * (1.0 - p);
    if blocks.len() < 3 || binomial.is_nan() || binomial <= 0.0 {
        return 1.0;
    }
    let squares = blocks.iter().map(|(w, n)| (w - n * p).powi(2) / (n * binomial)).sum::<f64>();
    (squares / (blocks.len() - 1) as f64).max(1.0)
}
