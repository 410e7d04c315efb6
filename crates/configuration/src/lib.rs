//! The configuration: one typed TOML file, every key with a default and an explanation.
//!
//! Each section is a struct that [`origin::section!`] declares: reading (`read`),
//! printing in full (`concertina config`) and the names of unknown keys follow from it. Everything
//! is checked once, here, and all mistakes are reported together.

mod buckets;
mod cluster;
mod common;
mod config;
mod datasets;
mod error;
mod folders;
mod live;
mod membership;
mod memcached;
mod mistakes;
mod name;
pub mod nutcracker;
mod placement;
mod pools;
mod print;
mod read;
mod role;
mod s3;
mod sections;
mod tiers;
pub mod token;
mod traces;

pub use ::origin::{Mistake, Secret, Settings as Origin, Size};
pub use cluster::{Cluster, Concurrency, Gateway, Member, Verify};
pub use common::{check_shared, set_shared};
pub use config::Config;
pub use datasets::{Fill, Overload};
pub use error::Error;
pub use live::{Act, Model};
pub use membership::{Listed, Membership};
pub use memcached::{Kind as PoolRouting, Memcached, Pool, Route};
pub use mistakes::Mistakes;
pub use name::is_name;
pub use print::SecretKey;
pub use role::Role;
pub use s3::S3;
pub use sections::{Class, Datasets, Device, Kind, Node, Observe, Serve, Service, segment_of};
pub use tiers::Tiers;
pub use traces::{Collector, Traces};

#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod tests;
