//! Memory as a cache: the hit ratio as a function of the memory's size.
//!
//! There are two ways to the curve of hit ratio against memory:
//!
//! 1. **From a law of popularity.** A [`Catalogue`] holds the popularity and size of each object: a
//!    Zipf law or request counts. [`Cache`] applies Che's approximation to it, for
//!    least-recently-used, first-in-first-out and random eviction, and inverts it: the memory
//!    needed for a hit ratio. [`hierarchy()`] stacks levels: memory, hot devices with the most
//!    popular objects, bulk devices, and the origin for the rest.
//! 2. **From a stream of keys.** [`Shards`] samples the stream by the hashes of its keys, in
//!    bounded memory, and computes the [`Curve`] of a least-recently-used memory for that stream,
//!    with an interval.
//!
//! The first way works for catalogues and memories of any size, but assumes that requests are
//! independent (the *independent reference model*, IRM). Objects of real streams come and go. The
//! second way makes no such assumption, but holds for the measured stream only. If both curves are
//! known, their difference is the effect of popularity changing over time.
//!
//! [`crate::storage::HitLaw`] uses either curve to predict the hit ratio of a fitted node after a
//! change of its memory or of its part of the catalogue.
//!
//! Time is counted in requests; divide by the request rate to get seconds.

mod catalogue;
mod che;
mod hierarchy;
mod hit_curve;
mod shards;

pub use catalogue::{Catalogue, Group};
pub use che::{Cache, Eviction, Hits};
pub use hierarchy::{Keeps, Level, LevelShares, hierarchy};
pub use hit_curve::HitCurve;
pub use shards::{Curve, CurvePoint, Shards, Share};

#[cfg(test)]
mod tests;
