//! What-if questions: a cluster after a change ([`Change`]).

use crate::error::{Error, positive};

use super::super::hit_law::HitLaw;
use super::members::Cluster;
use super::server::Server;

/// A change of a cluster. [`Cluster::changed`] applies it; each change also has a method of its
/// own.
///
/// A server's hit ratio was fitted with its memory and its part of the catalogue. If either
/// changes, a [`HitLaw`] gives the new hit ratio: if a server's share goes from s to s′, each of
/// its objects has s/s′ of its former memory. A ring places keys such that a server's part of the
/// catalogue equals its share of the requests, unless a single object has many of them, so the
/// shares describe both. Changing the speed of devices divides service times by it. Source: ours.
/// Wrong while caches warm after the change, and if the change is so large that another resource
/// saturates first. Cost: a copy of the cluster.
///
/// ```
/// use model::storage::{Change, Cluster, HitRatio, Member, Popularity, Spotify};
/// let server = Spotify::new(HitRatio::new(0.5, 0.0)?, 100.0, 1.0)?;
/// let members = ["a", "b"].map(|name| Member { name: name.to_owned(), server, share: 0.5 });
/// let cluster = Cluster { members: members.to_vec(), delay: 0.0 };
/// // Objects all equally popular: with twice the memory the first server answers all from it.
/// let change = Change::Memory { name: "a".to_owned(), factor: 2.0 };
/// let after = cluster.changed(&change, Popularity::EQUAL)?;
/// assert_eq!(after.members[0].server.hit_ratio().at_rate(10.0), 1.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// [`Cluster::without`].
    Without {
        /// The lost server.
        name: String,
        /// Shares of the remaining servers, in order.
        shares_after: Vec<f64>,
    },
    /// [`Cluster::with_shares`].
    Shares(Vec<f64>),
    /// [`Cluster::with_speed`].
    Speed {
        /// The server.
        name: String,
        /// New speed of its devices relative to the old one.
        factor: f64,
    },
    /// [`Cluster::with_memory`].
    Memory {
        /// The server.
        name: String,
        /// New size of its memory relative to the old one.
        factor: f64,
    },
}

impl<S: Server> Cluster<S> {
    /// The cluster after a change.
    pub fn changed(&self, change: &Change, law: impl HitLaw + Copy) -> Result<Self, Error> {
        match change {
            Change::Without { name, shares_after } => self.without(name, shares_after, law),
            Change::Shares(shares) => self.with_shares(shares, law),
            Change::Speed { name, factor } => self.with_speed(name, *factor),
            Change::Memory { name, factor } => self.with_memory(name, *factor, law),
        }
    }

    pub(super) fn position(&self, name: &str) -> Result<usize, Error> {
        self.members.iter().position(|m| m.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.members.iter().map(|m| m.name.as_str()).collect();
            Error::NoSuchNode { name: name.to_owned(), known: known.join(", ") }
        })
    }

    fn with_server(
        &self,
        name: &str,
        change: impl Fn(&S) -> Result<S, Error>,
    ) -> Result<Self, Error> {
        let at = self.position(name)?;
        let mut cluster = self.clone();
        if let Some(member) = cluster.members.get_mut(at) {
            member.server = change(&member.server)?;
        }
        Ok(cluster)
    }

    /// The cluster without one server. Replicas answer its keys, and `shares_after`, computed from
    /// the ring, are the shares of the others, in order. It describes the state after the replicas
    /// have filled; while they fill, the origin answers.
    pub fn without(
        &self,
        name: &str,
        shares_after: &[f64],
        law: impl HitLaw + Copy,
    ) -> Result<Self, Error> {
        let mut cluster = self.clone();
        cluster.members.remove(self.position(name)?);
        cluster.with_shares(shares_after, law)
    }

    /// The cluster with other shares, in the order of its servers, as with other weights in the
    /// ring.
    pub fn with_shares(&self, shares: &[f64], law: impl HitLaw + Copy) -> Result<Self, Error> {
        if shares.len() != self.members.len() {
            return Err(Error::Shares { expected: self.members.len(), got: shares.len() });
        }
        let mut cluster = self.clone();
        for (member, &share) in cluster.members.iter_mut().zip(shares) {
            // Without load the hit ratio does not matter.
            if share > 0.0 {
                let before = positive("the share of a server whose share changes", member.share)?;
                member.server = member.server.with_catalogue(share / before, law)?;
            }
            member.share = share;
        }
        cluster.check()?;
        Ok(cluster)
    }

    /// The cluster with the devices of one server at another speed: 0.5 is half as fast.
    pub fn with_speed(&self, name: &str, factor: f64) -> Result<Self, Error> {
        self.with_server(name, |server| server.with_speed(factor))
    }

    /// The cluster with `factor` times the memory in one server.
    pub fn with_memory(
        &self,
        name: &str,
        factor: f64,
        law: impl HitLaw + Copy,
    ) -> Result<Self, Error> {
        self.with_server(name, |server| server.with_memory(factor, law))
    }
}
