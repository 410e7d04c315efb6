//! Servers behind gateways: their law of response, their limits, and their operating point.

use crate::bisection::{bisect, quantile};
use crate::error::{Error, check, not_negative};

use super::super::node::{Node, Operating};
use super::super::spotify::{BETA, balls_into_bins_limit};
use super::server::{Server, Within};

/// A server of a cluster: its name, its model and its share. [`Cluster`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Member<S = Node> {
    /// Its name in the ring.
    pub name: String,
    /// The server.
    pub server: S,
    /// Its share of the requests, 0 to 1.
    pub share: f64,
}

/// Servers behind gateways, each with its share of the requests. The fields are public;
/// [`Cluster::check`] validates them.
///
/// P(T ≤ t) = Σᵢ shareᵢ · Fᵢ(t − δ; λ·shareᵢ): a request goes to server i with probability shareᵢ,
/// chosen by the ring from its key alone, and gateway and network add δ to the server's response. A
/// Poisson stream that is split by keys is a Poisson stream at each server, so each server is the
/// fitted single server at its own load. Servers are of any type that implements [`Server`]:
/// [`Node`] (Concertina's model), [`crate::storage::Spotify`] (the published one; with equal shares this is
/// its equation 2) or [`crate::storage::Tiers`].
///
/// Source: equation 2 of R. Yanggratoke and others, CNSM 2012, with shares. Limitations: δ is a
/// constant. A request tried at a second server (retry, hedge, read from a replica) counts at that
/// server only. Objects so popular that their own requests arrive in bursts are not described.
/// Cost: [`Cluster::within`].
///
/// ```
/// use model::storage::{Cluster, HitRatio, Member, Popularity, Spotify};
/// // The paper's five small servers (Table II), in balance: its equation 2.
/// let small = Spotify::new(HitRatio::new(0.946, 0.0137)?, 93.0, 1.0)?;
/// let shared = ["a", "b", "c", "d", "e"];
/// let members = shared.map(|name| Member { name: name.to_owned(), server: small, share: 0.2 });
/// let cluster = Cluster { members: members.to_vec(), delay: 0.0 };
/// let within = cluster.cdf(200.0, &[0.050])?[0];
/// assert!((within - small.cluster_cdf(200.0, 5, 0.050)?).abs() < 1e-12);
/// assert!((cluster.confidence_limit_unplaced() - 223.85).abs() < 0.01);
/// // One is lost; the ring gives its keys to the others, which remember less of their larger parts.
/// let four = cluster.without("c", &[0.25; 4], Popularity::EQUAL)?;
/// assert!(four.cdf(200.0, &[0.050])?[0] < within);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster<S = Node> {
    /// The servers.
    pub members: Vec<Member<S>>,
    /// δ: what gateway and network add to every response, seconds.
    pub delay: f64,
}

/// The operating point of a cluster at a load, returned by [`Cluster::operating`]. Shares and times
/// are means over requests, utilisations means over servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterOperating {
    /// Load in requests/s.
    pub rate: f64,
    /// Share answered from memory.
    pub hit_ratio: f64,
    /// Utilisation of a device, on average over servers (each server's own average).
    pub utilisation_mean: f64,
    /// Utilisation of the busiest device of all.
    pub utilisation_max: f64,
    /// Mean response time of all requests, seconds.
    pub response_mean: f64,
    /// The operating point of each server, in their order.
    pub members: Vec<Operating>,
}

impl<S: Server> Cluster<S> {
    /// Checks all fields: the cluster is not empty, names differ, and shares add to 1 (within
    /// 1e-6).
    pub fn check(&self) -> Result<(), Error> {
        check("the number of servers", self.members.len() as f64, 1.0..=1e6, "1 to 1,000,000")?;
        not_negative("the delay of gateway and network", self.delay)?;
        let mut names = std::collections::BTreeSet::new();
        let mut total = 0.0;
        for member in &self.members {
            member.server.check()?;
            total += not_negative("a server's share", member.share)?;
            if !names.insert(&member.name) {
                return Err(Error::NodeTwice { name: member.name.clone() });
            }
        }
        check("the sum of the servers' shares", total, 1.0 - 1e-6..=1.0 + 1e-6, "1").map(|_| ())
    }

    /// [`Error::Unstable`] if a server is at or past its saturation.
    fn stable(&self, rate: f64) -> Result<(), Error> {
        not_negative("the request rate", rate)?;
        // The first server to fail as the load grows, by its own check: in bursts it fails before
        // saturation.
        let mut first: Option<f64> = None;
        for member in &self.members {
            match member.server.stable(rate * member.share) {
                Ok(()) => {}
                Err(Error::Unstable { saturation, .. }) => {
                    let here = saturation / member.share;
                    first = Some(first.map_or(here, |first| first.min(here)));
                }
                Err(error) => return Err(error),
            }
        }
        first.map_or(Ok(()), |saturation| Err(Error::Unstable { rate, saturation }))
    }

    /// P(T ≤ t) as a function of the load in requests/s, for CDFs at many loads. A server past its
    /// saturation answers from memory alone; [`Cluster::cdf`] refuses such loads.
    /// Cost: for [`Node`]s some 0.1 ms each, then microseconds for a load.
    pub fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<S> {
        let t = t_s - self.delay;
        let servers: Vec<_> = self.members.iter().map(|m| (m.share, m.server.within(t))).collect();
        move |rate| {
            let sum: f64 = servers.iter().map(|(share, f)| share * f(rate * share)).sum();
            sum.clamp(0.0, 1.0)
        }
    }

    /// [`Cluster::within`] for the replicates of a model: clusters with the same servers in the
    /// same order, each with its own δ. A server that a replicate lacks answers nothing.
    pub(crate) fn within_alike(&self, alike: &[Self], t_s: f64) -> Vec<Within>
    where
        S: 'static,
    {
        let mut clusters: Vec<Vec<(f64, Within)>> = alike.iter().map(|_| Vec::new()).collect();
        for (i, member) in self.members.iter().enumerate() {
            let others: Vec<(usize, &Member<S>)> = alike
                .iter()
                .enumerate()
                .filter_map(|(k, c)| Some((k, c.members.get(i)?)))
                .collect();
            let servers: Vec<(&S, f64)> =
                others.iter().map(|(k, m)| (&m.server, t_s - alike[*k].delay)).collect();
            let found = member.server.within_alike(&servers, t_s - self.delay);
            for ((k, other), within) in others.into_iter().zip(found) {
                clusters[k].push((other.share, within));
            }
        }
        let whole = |servers: Vec<(f64, Within)>| {
            let sum = move |rate: f64| {
                let sum: f64 = servers.iter().map(|(share, f)| share * f(rate * share)).sum();
                sum.clamp(0.0, 1.0)
            };
            Box::new(sum) as Within
        };
        clusters.into_iter().map(whole).collect()
    }

    /// P(T ≤ t) for each `t` in seconds at `rate` requests/s on the whole cluster.
    /// [`Error::Unstable`] past the saturation of any server. Cost: for each t and [`Node`]
    /// some 0.1 ms.
    pub fn cdf(&self, rate: f64, times: &[f64]) -> Result<Vec<f64>, Error> {
        self.stable(rate)?;
        Ok(times.iter().map(|&t| self.within(t)(rate)).collect())
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) of requests does not exceed, at
    /// `rate` requests/s. Cost: some 60 CDFs.
    pub fn quantile(&self, rate: f64, p: f64) -> Result<f64, Error> {
        self.stable(rate)?;
        quantile(p, self.delay.max(1e-3), |t| self.within(t)(rate))
    }

    /// The largest load in requests/s at which a share `share` of requests is answered within
    /// `within_s` seconds, and no server is past its saturation. [`Error::Unattainable`] if even an
    /// idle cluster does not. Infinite if memory answers all.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        not_negative("the time of an objective", within_s)?;
        check("the share of an objective", share, 0.0..=1.0, "0 to 1")?;
        self.largest_rate_by(&self.within(within_s), within_s, share)
    }

    /// [`Cluster::largest_rate`], given P(T ≤ `within_s`) as a function of the load.
    pub(crate) fn largest_rate_by(
        &self,
        at: &dyn Fn(f64) -> f64,
        within_s: f64,
        share: f64,
    ) -> Result<f64, Error> {
        if at(0.0) < share {
            return Err(Error::Unattainable { share, within_s, best: at(0.0) });
        }
        let saturation = self.saturation();
        Ok(if saturation.is_infinite() {
            saturation
        } else {
            bisect(saturation, |rate| at(rate) >= share && self.stable(rate).is_ok())
        })
    }

    /// The smallest load over the cluster at which one of the servers reaches its own limit.
    fn first(&self, limit: impl Fn(&S) -> f64) -> f64 {
        let of = |m: &Member<S>| {
            let limit = limit(&m.server);
            // A server without load reaches no limit.
            if m.share > 0.0 && limit.is_finite() { limit / m.share } else { f64::INFINITY }
        };
        self.members.iter().map(of).fold(f64::INFINITY, f64::min)
    }

    /// Load in requests/s at which the busiest device of some server is always busy.
    pub fn saturation(&self) -> f64 {
        self.first(S::saturation)
    }

    /// The confidence limit where the shares are known, as they are with a ring: load in requests/s
    /// at which the first server reaches its own limit.
    pub fn confidence_limit(&self) -> f64 {
        self.first(S::confidence_limit)
    }

    /// The published limit, where only the *expected* shares are known: up to this load, with high
    /// probability, no server is past its own limit if requests are balls that fall into servers at
    /// random ([`balls_into_bins_limit`], β = 2). For unequal servers the smallest of the limits
    /// that each would have among as many of its kind, which for equal ones is the paper's.
    pub fn confidence_limit_unplaced(&self) -> f64 {
        let servers = u32::try_from(self.members.len()).unwrap_or(u32::MAX).max(1);
        self.first(|server| {
            let limit = server.confidence_limit();
            balls_into_bins_limit(limit, servers, BETA) / f64::from(servers)
        })
    }
}

impl Cluster<Node> {
    /// The operating point at `rate` requests/s. [`Error::Unstable`] at or past saturation.
    /// Cost: microseconds for each server.
    pub fn operating(&self, rate: f64) -> Result<ClusterOperating, Error> {
        self.stable(rate)?;
        Ok(self.operating_unchecked(rate))
    }

    /// [`Cluster::operating`] at any load: the queues of a server past its saturation are infinite.
    pub(crate) fn operating_unchecked(&self, rate: f64) -> ClusterOperating {
        let stand = |m: &Member| m.server.operating_unchecked(rate * m.share);
        let members: Vec<Operating> = self.members.iter().map(stand).collect();
        let sum = |f: &dyn Fn(&Operating) -> f64| -> f64 {
            // A server without load adds nothing, even if its own mean is infinite.
            let loaded = self.members.iter().zip(&members).filter(|(m, _)| m.share > 0.0);
            loaded.map(|(m, o)| m.share * f(o)).sum()
        };
        let n = members.len().max(1) as f64;
        ClusterOperating {
            rate,
            hit_ratio: sum(&|o| o.hit_ratio),
            utilisation_mean: members.iter().map(|o| o.utilisation_mean).sum::<f64>() / n,
            utilisation_max: members.iter().map(|o| o.utilisation_max).fold(0.0, f64::max),
            response_mean: self.delay + sum(&|o| o.response_mean),
            members,
        }
    }
}
