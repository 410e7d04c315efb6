//! Memory as a cache: what share of the requests it answers, by its size, since when it is warm.
//!
//! Two ways to the same curve, hit ratio against memory:
//!
//! 1. **From a law of popularity.** A [`Catalogue`] says how often each object is asked for and how large
//!    it is: Zipf, Zipf–Mandelbrot, or counts. [`Cache`] is Che's approximation over it, for
//!    least-recently-used memory and for first-in-first-out or random eviction; its inverse, the memory
//!    for a hit ratio; and the way there from a cold start ([`Warming`]). [`hierarchy`] stacks levels: memory,
//!    hot devices with the most popular objects, bulk devices, and the origin for the rest.
//! 2. **From a stream of keys.** [`Shards`] samples the stream by the hashes of its keys, in bounded memory,
//!    and gives the [`Curve`] that a least-recently-used memory would have on it, with an interval.
//!
//! The first extends to catalogues and memories that nobody has; but it takes each request as drawn
//! independently of those before (the *independent reference model*, IRM), which real streams are not:
//! their objects come and go. The second takes the stream as it is, and says nothing of another. Where
//! both can be had, the distance between them is what time adds.
//!
//! Either curve says what becomes of a fitted node's hit ratio when its memory or its part of the catalogue
//! changes: [`crate::storage::HitLaw`].
//!
//! Time is counted in requests; divided by a request rate it is seconds.

mod catalogue;
mod che;
mod hierarchy;
mod hit_curve;
mod shards;
mod warming;

pub use catalogue::{Catalogue, Group};
pub use che::{Cache, Eviction, Hits};
pub use hierarchy::{Answered, Keeps, Level, hierarchy};
pub use hit_curve::HitCurve;
pub use shards::{Curve, CurvePoint, Shards, Share};
pub use warming::Warming;

#[cfg(test)]
mod tests;
