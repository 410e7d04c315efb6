//! Two published policies for many clients and many servers: Prequal's and C3's.
//!
//! **Prequal** (B. Wydrowski, R. Kleinberg, S. Rumble, A. Archer, "Load is not what you should balance",
//! NSDI 2024). A client keeps a [`Pool`] of replies to probes: a server's requests in flight (RIF) and
//! its estimate of the latency there. A server is *hot* if its RIF is above a quantile of those in recent
//! replies, whether these are still in the pool or not: the rule leaves the bad ones in the pool, so that a quantile of
//! the pool would call too few hot. A request goes to the cold server of least latency; if all are hot, to the one of least
//! RIF ([`hot_cold`]). For each request some servers are probed at random, so what is known is always new;
//! a reply replaces an earlier one of its server, is used 1.3 times on average ([`PoolSettings::reuse`]), grows old, and the oldest and the worst
//! are thrown away in turn.
//!
//! **C3** (L. Suresh, M. Canini, S. Schmid, A. Feldmann, "C3: cutting tail latency in cloud data stores
//! via adaptive replica selection", NSDI 2015) ranks servers by [`c3_score`], which punishes long queues
//! by the cube of their length. Its rate control is left out, as in Prequal's comparison.
//!
//! The rules here have no clock and no sockets. Cost of a choice: a sort of the pool, 16 numbers.

use std::collections::VecDeque;

use ground::window::{Nanos, SECOND};

use super::ring::NodeId;

/// A server's reply to a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// The server.
    pub node: NodeId,
    /// Its requests in flight.
    pub in_flight: f64,
    /// Its estimate of a request's latency at that number, seconds.
    pub latency_s: f64,
}

/// The settings of a [`Pool`]; the defaults are the published ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PoolSettings {
    /// Replies that are kept.
    pub size: usize,
    /// The quantile of the requests in flight above which a server is hot.
    pub quantile: f64,
    /// How often a reply is used before it is thrown away: of a number with a fraction, by so many replies once more.
    pub uses: f64,
    /// The newest replies whose requests in flight tell which servers are hot.
    pub recent: usize,
    /// A reply is thrown away after this time.
    pub age_max: Nanos,
    /// Replies that are thrown away for each request, the oldest and the worst in turn.
    pub removed: f64,
}

impl Default for PoolSettings {
    /// For a hundred servers, with three probes and one reply removed for each request.
    fn default() -> Self {
        PoolSettings {
            size: 16,
            quantile: 0.84,
            uses: PoolSettings::reuse(16, 100, 3.0, 1.0),
            recent: 64,
            age_max: SECOND,
            removed: 1.0,
        }
    }
}

impl PoolSettings {
    /// The published number of uses of a reply, (1 + δ) / ((1 − m/n)·p − r) with δ = 1 and at least 1, with a pool of `size` (m)
    /// before `servers` (n), `probes` (p) and `removed` (r) for each request: as many as keep the pool from running empty.
    pub fn reuse(size: usize, servers: usize, probes: f64, removed: f64) -> f64 {
        let new = (1.0 - size as f64 / servers.max(1) as f64) * probes - removed;
        if new > 0.0 { (2.0 / new).max(1.0) } else { 2.0 }
    }
}

#[derive(Clone, Copy, Debug)]
struct PooledProbe {
    probe: Probe,
    at: Nanos,
    uses_left: f64,
}

/// A client's pool of replies to probes, oldest first.
///
/// ```
/// use engine::route::{Pool, PoolSettings, Probe};
/// let mut pool = Pool::new(PoolSettings::default());
/// for (node, in_flight, latency_s) in [(0, 2.0, 0.030), (1, 3.0, 0.010), (2, 90.0, 0.001)] {
///     pool.add(0, Probe { node, in_flight, latency_s });
/// }
/// assert_eq!(pool.choose(1), Some(1), "the third is hot");
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    settings: PoolSettings,
    kept: Vec<PooledProbe>,
    /// Requests in flight of the newest replies.
    recent: VecDeque<f64>,
    /// The part of a use that replies before this one have not been given.
    owed: f64,
    to_remove: f64,
    oldest_next: bool,
}

impl Pool {
    /// An empty pool.
    pub fn new(settings: PoolSettings) -> Pool {
        Pool {
            settings,
            kept: Vec::new(),
            recent: VecDeque::new(),
            owed: 0.0,
            to_remove: 0.0,
            oldest_next: true,
        }
    }

    /// Number of replies.
    pub fn len(&self) -> usize {
        self.kept.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Adds a reply, in place of an earlier one of its server; the oldest makes room.
    pub fn add(&mut self, now: Nanos, probe: Probe) {
        self.kept.retain(|kept| kept.probe.node != probe.node);
        if self.kept.len() >= self.settings.size {
            self.kept.remove(0);
        }
        if self.recent.len() >= self.settings.recent {
            self.recent.pop_front();
        }
        self.recent.push_back(probe.in_flight);
        self.owed += self.settings.uses;
        let uses_left = self.owed.floor().max(1.0);
        self.owed -= uses_left;
        self.kept.push(PooledProbe { probe, at: now, uses_left });
    }

    /// The number of requests in flight above which a server is hot.
    fn bound(&self) -> f64 {
        if self.settings.quantile >= 1.0 {
            return f64::INFINITY;
        }
        let recent: Vec<f64> = self.recent.iter().copied().collect();
        threshold(&recent, self.settings.quantile)
    }

    /// The server for a request; `None` if the pool is empty: choose at random then. The reply that is
    /// used counts the request, since the server will have it.
    pub fn choose(&mut self, now: Nanos) -> Option<NodeId> {
        let age_max = self.settings.age_max;
        self.kept.retain(|kept| now.saturating_sub(kept.at) <= age_max);
        let all: Vec<(f64, f64)> =
            self.kept.iter().map(|k| (k.probe.in_flight, k.probe.latency_s)).collect();
        let chosen = hot_cold(&all, self.bound())?;
        let kept = self.kept.get_mut(chosen)?;
        let node = kept.probe.node;
        kept.probe.in_flight += 1.0;
        kept.uses_left -= 1.0;
        if kept.uses_left <= 0.0 {
            self.kept.remove(chosen);
        }
        self.to_remove += self.settings.removed;
        while self.to_remove >= 1.0 {
            self.to_remove -= 1.0;
            self.remove_one();
        }
        Some(node)
    }

    /// Removes the oldest reply and the worst in turn.
    fn remove_one(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let oldest = self.oldest_next;
        self.oldest_next = !oldest;
        let at = if oldest { 0 } else { self.worst() };
        self.kept.remove(at);
    }

    /// The hottest server's reply if any is hot, else the one of the largest latency.
    fn worst(&self) -> usize {
        let bound = self.bound();
        let hot = |k: &PooledProbe| k.probe.in_flight > bound;
        let any = self.kept.iter().any(hot);
        let value = |k: &PooledProbe| match (any, hot(k)) {
            (true, true) => k.probe.in_flight,
            (true, false) => f64::NEG_INFINITY,
            (false, _) => k.probe.latency_s,
        };
        let by = |a: &(usize, &PooledProbe), b: &(usize, &PooledProbe)| {
            value(a.1).total_cmp(&value(b.1))
        };
        self.kept.iter().enumerate().max_by(by).map_or(0, |(at, _)| at)
    }
}

/// The quantile of these numbers in flight, above which a server is hot; infinite without any.
pub fn threshold(in_flight: &[f64], quantile: f64) -> f64 {
    let mut sorted = in_flight.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (quantile.clamp(0.0, 1.0) * (sorted.len() as f64 - 1.0)).floor().max(0.0);
    sorted.get(at as usize).copied().unwrap_or(f64::INFINITY)
}

/// Prequal's hot-cold rule over servers as (requests in flight, latency in seconds), of which those with more than `bound` in
/// flight are hot: the index of the cold one of least latency; if all are hot, of the one with least in flight. `None` without
/// servers.
pub fn hot_cold(servers: &[(f64, f64)], bound: f64) -> Option<usize> {
    let cold = servers.iter().enumerate().filter(|(_, server)| server.0 <= bound);
    let best = cold.min_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let least = || servers.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
    best.or_else(least).map(|(at, _)| at)
}

/// C3's score of a server; the least is best. `response_s`: mean response as this client sees it.
/// `service_s`: mean time that the server needs for a request. `queue`: its queue as it last said,
/// averaged. `outstanding`: this client's requests there. `clients`: how many clients there are, since
/// each sends as this one does.
pub fn c3_score(
    response_s: f64,
    service_s: f64,
    queue: f64,
    outstanding: f64,
    clients: f64,
) -> f64 {
    let estimate = 1.0 + outstanding * clients + queue;
    response_s - service_s + estimate.powi(3) * service_s
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(node: NodeId, in_flight: f64, latency_s: f64) -> Probe {
        Probe { node, in_flight, latency_s }
    }

    #[test]
    fn cold_servers_are_chosen_by_latency_and_hot_ones_by_number() {
        let servers = [(1.0, 0.030), (2.0, 0.020), (3.0, 0.010), (50.0, 0.001)];
        assert_eq!(threshold(&[1.0, 50.0, 2.0, 3.0], 0.84), 3.0);
        assert_eq!(hot_cold(&servers, 3.0), Some(2));
        assert_eq!(hot_cold(&servers, 1.0), Some(0), "only the least is cold");
        assert_eq!(hot_cold(&servers, 50.0), Some(3), "none is hot");
        assert_eq!(hot_cold(&servers, 0.0), Some(0), "all are hot");
        assert_eq!(hot_cold(&[], 3.0), None);
    }

    #[test]
    fn replies_are_used_up_grow_old_and_the_worst_goes() {
        let keep = PoolSettings { removed: 0.0, uses: 2.0, ..PoolSettings::default() };
        let mut pool = Pool::new(keep);
        assert_eq!(pool.choose(0), None);
        pool.add(0, probe(7, 0.0, 0.001));
        assert_eq!((pool.choose(0), pool.choose(0), pool.choose(0)), (Some(7), Some(7), None));
        pool.add(0, probe(8, 0.0, 0.001));
        assert_eq!(pool.choose(SECOND + 1), None, "it is too old");
        (0..40).for_each(|node| pool.add(SECOND, probe(node, 1.0, 0.001)));
        assert_eq!(pool.len(), 16);
        let mut pool = Pool::new(PoolSettings { removed: 1.0, ..keep });
        for (node, in_flight) in [(0, 1.0), (1, 1.0), (2, 9.0), (3, 1.0)] {
            pool.add(0, probe(node, in_flight, 0.001));
        }
        pool.choose(0);
        assert_eq!(pool.len(), 3, "the oldest went");
        pool.choose(0);
        assert!(pool.kept.iter().all(|kept| kept.probe.node != 2), "the hottest went");
    }

    #[test]
    fn what_is_hot_is_told_by_all_recent_replies() {
        let mut pool =
            Pool::new(PoolSettings { removed: 0.0, uses: 1.0, ..PoolSettings::default() });
        (0..20).for_each(|node| pool.add(0, probe(node, 2.0, 0.001)));
        while pool.choose(0).is_some() {}
        // The pool alone would call neither hot, or the second.
        pool.add(0, probe(50, 30.0, 0.001));
        pool.add(0, probe(51, 20.0, 0.900));
        assert_eq!(pool.choose(0), Some(51), "both are hot: the one with less in flight");
    }

    #[test]
    fn a_reply_is_used_as_often_as_published() {
        assert!((PoolSettings::reuse(16, 100, 3.0, 1.0) - 1.3158).abs() < 1e-4);
        assert_eq!(PoolSettings::reuse(16, 100, 10.0, 1.0), 1.0);
        assert_eq!(PoolSettings::reuse(16, 4, 3.0, 1.0), 2.0, "no such number is published");
        let mut pool = Pool::new(PoolSettings { removed: 0.0, ..PoolSettings::default() });
        let mut uses = 0;
        for node in 0..1000 {
            pool.add(0, probe(node, 1.0, 0.001));
            uses += std::iter::from_fn(|| pool.choose(0)).count();
        }
        assert!((1310..1322).contains(&uses), "{uses}");
        pool.add(0, probe(7, 5.0, 0.001));
        pool.add(0, probe(7, 1.0, 0.001));
        assert_eq!(pool.len(), 1, "a server's newest reply counts");
    }

    #[test]
    fn c3_flees_long_queues() {
        let fast = c3_score(0.004, 0.002, 6.0, 0.0, 1.0);
        let idle = c3_score(0.010, 0.008, 0.0, 0.0, 1.0);
        assert!(idle < fast, "four times as fast, but six wait there");
        assert!(c3_score(0.004, 0.002, 0.0, 1.0, 100.0) > c3_score(0.004, 0.002, 50.0, 0.0, 100.0));
    }
}
