//! Models of storage services: the published Spotify model, and Concertina's.
//!
//! In both, memory answers a request with probability q(λ); otherwise the request waits in the
//! queue of one device. [`Spotify`] assumes that memory takes no time and that devices are M/M/1
//! queues. [`Node`] uses the measured laws of both, and the delay between client and device.
//! [`Tiers`] has queues for memory, hot and bulk devices, peers and the origin, and finds the one
//! that saturates first. A [`Cluster`] consists of any of these models, and can be changed: servers
//! lost, slower, with more memory or with other shares. [`Imbalance`] computes how unevenly objects
//! load the nodes.

mod arrivals;
mod bursts;
mod by_load;
mod class;
mod cluster;
mod cosmetatos;
mod delay;
mod front;
pub(crate) mod hit_law;
mod hit_ratio;
mod imbalance;
mod levels;
mod node;
mod node_front;
mod renewal;
mod several;
mod solved;
mod spotify;
mod tiers;
mod workers;

pub use by_load::ByLoad;
pub use class::{Background, Class};
pub use cluster::{Change, Cluster, ClusterOperating, Member, Server, Within};
pub use delay::Delay;
pub(crate) use delay::SCV_MAX;
pub use front::{FrontOperating, Limit, Link, WORKERS_MAX};
pub use hit_law::{HitLaw, Popularity};
pub use hit_ratio::HitRatio;
pub use imbalance::Imbalance;
pub use node::{DeviceGroup, Node, NodeAt, Operating};
pub use solved::SolvedQueues;
pub use spotify::{
    BETA, Spotify, balls_into_bins_limit, cluster_cdf, effective_objects, weighted_limit,
};
pub use tiers::{Station, Tier, TierOperating, Tiers, TiersOperating};

#[cfg(test)]
mod tests;
