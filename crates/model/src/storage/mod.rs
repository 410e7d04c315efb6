//! Storage services as queues: the published Spotify model, and ours.
//!
//! Both say: a request is answered from memory with probability q(λ), else it waits in the queue of one
//! of the devices. [`Spotify`] takes memory for instant and devices for M/M/1; [`Node`] takes the
//! measured laws of both, and what lies between the client and the device. [`Tiers`] has a queue at each of
//! memory, hot and bulk devices, peers and the origin, and says which breaks first. A [`Cluster`] is made
//! of any of them, and answers what would be with servers lost, slower, larger or with another share.
//! [`Imbalance`] says how unevenly objects load its nodes.

mod bursts;
mod cluster;
mod delay;
mod front;
mod hit_ratio;
mod imbalance;
mod node;
mod several;
mod spotify;
mod tiers;

pub use cluster::{
    Change, Cluster, ClusterOperating, Degraded, HitLaw, Member, Popularity, Server, Takeover,
    Within,
};
pub use delay::Delay;
pub(crate) use delay::SCV_MAX;
pub use front::{FrontOperating, Limit, Link, WORKERS_MAX};
pub use hit_ratio::HitRatio;
pub use imbalance::Imbalance;
pub use node::{Background, Class, DeviceGroup, Node, NodeAt, Operating};
pub use several::SolvedQueues;
pub(crate) use spotify::servers_for;
pub use spotify::{
    BETA, Spotify, balls_into_bins_limit, cluster_cdf, effective_objects, weighted_limit,
};
pub use tiers::{Station, Tier, TierOperating, Tiers, TiersOperating};

#[cfg(test)]
mod tests;
