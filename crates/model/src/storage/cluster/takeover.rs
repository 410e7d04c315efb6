//! Several nodes lost at once: who answers for their keys.

use crate::error::{Error, check, not_negative, positive};

use super::{Cluster, HitLaw, Server};

/// Who answers for the keys of lost nodes. A key belongs to `replicas` nodes in an order of its own, and
/// the first of them that is there answers; if none is, the origin does.
///
/// Rendezvous hashing: D. Thaler, C. Ravishankar, "Using name-based mappings to increase hit rates",
/// IEEE/ACM Transactions on Networking 6 (1998); with weights each node of a key is the next of exponential
/// clocks whose rates are the weights. Wrong where replicas share what fails (a rack), and while replicas
/// fill. [`Cluster::without_nodes`] has an example. Cost: for the ring some 2,000·lost·replicas operations.
#[derive(Clone, Debug, PartialEq)]
pub enum Takeover {
    /// The native ring, weighted rendezvous hashing, whose weights are the nodes' shares: a key's nodes
    /// are drawn one after the other in proportion to them, so the nodes that are left keep the
    /// proportions of their shares.
    Ring {
        /// Nodes of each key, its primary included.
        replicas: u32,
    },
    /// Every node that is left gets as much of it as every other, whatever their shares: replicas dealt
    /// out by a table.
    Evenly {
        /// Nodes of each key, its primary included.
        replicas: u32,
    },
    /// Shares of all requests for the nodes that are left, in their order: counted over the real ring. What
    /// is missing to 1 goes to the origin.
    Shares(Vec<f64>),
}

/// A cluster that has lost nodes, from [`Cluster::without_nodes`], whose page has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Degraded<S> {
    /// The nodes that are left. Their shares are of the requests that *they* get:
    /// load it with [`Degraded::served_rate`].
    pub cluster: Cluster<S>,
    /// The share of all requests none of whose nodes is left: the origin answers them.
    pub unserved: f64,
}

impl<S> Degraded<S> {
    /// What is left for the cluster of a load of `rate` requests/s.
    pub fn served_rate(&self, rate: f64) -> f64 {
        rate * (1.0 - self.unserved)
    }
}

impl<S: Server> Cluster<S> {
    /// The cluster that has lost these servers at once, after the replicas have filled. A survivor's part
    /// of the catalogue grows with its share, and its hit ratio follows by `popularity`.
    ///
    /// ```
    /// use model::storage::{Cluster, HitRatio, Member, Popularity, Spotify, Takeover};
    /// let server = Spotify::new(HitRatio::new(0.5, 0.0)?, 100.0, 4.0)?;
    /// let names = ["a", "b", "c", "d", "e"];
    /// let members = names.map(|name| Member { name: name.to_owned(), server, share: 0.2 });
    /// let cluster = Cluster { members: members.to_vec(), delay: 0.0 };
    /// let ring = Takeover::Ring { replicas: 2 };
    /// let after = cluster.without_nodes(&["a", "b"], &ring, Popularity::EQUAL)?;
    /// // Of two nodes' keys a quarter had their only replica on the other: 2/5 · 1/4.
    /// assert!((after.unserved - 0.1).abs() < 1e-9);
    /// assert!((after.cluster.members[0].share - 1.0 / 3.0).abs() < 1e-9);
    /// assert!(after.cluster.cdf(after.served_rate(400.0), &[0.05])?[0] < cluster.cdf(400.0, &[0.05])?[0]);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn without_nodes(
        &self,
        names: &[&str],
        takeover: &Takeover,
        law: impl HitLaw + Copy,
    ) -> Result<Degraded<S>, Error> {
        self.check()?;
        let mut lost = vec![false; self.members.len()];
        for name in names {
            lost[self.position(name)?] = true;
        }
        let shares = self.shares_after(&lost, takeover)?;
        let served: f64 = shares.iter().sum();
        check(
            "the sum of the shares of the servers that are left",
            served,
            0.0..=1.0 + 1e-6,
            "at most 1",
        )?;
        positive("the share of the requests that a server is left for", served)?;
        let mut cluster = self.clone();
        let mut kept = lost.iter().map(|lost| !lost);
        cluster.members.retain(|_| kept.next().unwrap_or(true));
        for (member, share) in cluster.members.iter_mut().zip(shares) {
            if share > 0.0 {
                let before = positive("the share of a server whose share changes", member.share)?;
                member.server = member.server.with_catalogue(share / before, law)?;
            }
            member.share = share / served;
        }
        Ok(Degraded { cluster, unserved: (1.0 - served).max(0.0) })
    }

    /// Shares of all requests for those that are left, in their order.
    fn shares_after(&self, lost: &[bool], takeover: &Takeover) -> Result<Vec<f64>, Error> {
        let of = |gone: bool| -> Vec<f64> {
            let members = self.members.iter().zip(lost).filter(|(_, lost)| **lost == gone);
            members.map(|(m, _)| m.share).collect()
        };
        let (left, gone) = (of(false), of(true));
        let moved: f64 = gone.iter().sum();
        check(
            "the number of servers that are left",
            left.len() as f64,
            1.0..=f64::MAX,
            "1 or more",
        )?;
        match takeover {
            Takeover::Shares(shares) => {
                if shares.len() != left.len() {
                    return Err(Error::Shares { expected: left.len(), got: shares.len() });
                }
                for share in shares {
                    not_negative("a server's share", *share)?;
                }
                Ok(shares.clone())
            }
            Takeover::Evenly { replicas } => {
                let replicas = replicas_of(*replicas)?;
                // Of a lost node's keys, those whose other replicas are all among the lost.
                let (n, k) = (self.members.len() as f64, gone.len() as f64);
                let others = (1..replicas).map(f64::from);
                let orphaned: f64 =
                    others.map(|i| if k > i { (k - i) / (n - i) } else { 0.0 }).product();
                let each = moved * (1.0 - orphaned) / left.len() as f64;
                Ok(left.iter().map(|share| share + each).collect())
            }
            Takeover::Ring { replicas } => {
                let replicas = replicas_of(*replicas)?;
                let rest = positive("the share of the servers that are left", left.iter().sum())?;
                let served = 1.0 - all_among(&gone, rest, replicas as usize);
                Ok(left.iter().map(|share| share / rest * served).collect())
            }
        }
    }
}

fn replicas_of(replicas: u32) -> Result<u32, Error> {
    check("the number of replicas", f64::from(replicas), 1.0..=100.0, "1 to 100").map(|_| replicas)
}

/// The probability that the first `replicas` nodes of a key are all among those with shares `gone`, the
/// others having `rest` together.
///
/// Nodes come in the order of exponential clocks with their shares for rates. The first of the others rings
/// at time t with density rest·exp(−rest·t); until then that many of `gone` must have rung: a sum
/// of independent events, each with probability 1 − exp(−share·t). The integral over ln t by the
/// trapezoidal rule, which is exact to rounding for such an integrand.
fn all_among(gone: &[f64], rest: f64, replicas: usize) -> f64 {
    if gone.len() < replicas {
        return 0.0;
    }
    const STEP: f64 = 0.02;
    // Times of which less than 1e-17 of the density is left out on each side: ln 1e-17 to ln 40.
    let (low, high) = (-39.2, 3.7);
    let steps = ((high - low) / STEP) as usize;
    let mut rung = vec![0.0; replicas + 1];
    let mut sum = 0.0;
    for i in 0..=steps {
        let x = (low + STEP * i as f64).exp();
        // rung[k]: exactly k so far; the last one: that many or more.
        rung.fill(0.0);
        rung[0] = 1.0;
        for share in gone {
            let p = -(-share / rest * x).exp_m1();
            rung[replicas] += rung[replicas - 1] * p;
            for k in (1..replicas).rev() {
                rung[k] += (rung[k - 1] - rung[k]) * p;
            }
            rung[0] *= 1.0 - p;
        }
        sum += x * (-x).exp() * rung[replicas];
    }
    (sum * STEP).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests;
