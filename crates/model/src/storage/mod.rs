//! Storage services as queues: the published Spotify model, and ours.
//!
//! Both say: a request is answered from memory with probability q(λ), else it waits in the queue of one
//! of the devices. [`Spotify`] takes memory for instant and devices for M/M/1; [`Node`] takes the
//! measured laws of both, and what lies between the client and the device. A [`Cluster`] is made of
//! either, and answers what would be with a server lost, slower, larger or with another share.

mod cluster;
mod hit_ratio;
mod node;
mod spotify;

pub use cluster::{Change, Cluster, ClusterOperating, Member, Popularity, Server};
pub use hit_ratio::HitRatio;
pub use node::{Class, DeviceGroup, Node, NodeAt, Operating};
pub(crate) use spotify::servers_for;
pub use spotify::{
    BETA, Spotify, balls_into_bins_limit, cluster_cdf, effective_objects, weighted_limit,
};

#[cfg(test)]
mod tests;
