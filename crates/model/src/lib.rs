//! Performance models of storage services: what is observed, what is fitted, what is predicted.
//!
//! Everything here is a function of its arguments: no clock, no socket, no file and no thread, so a
//! prediction cannot peek at the running system. Rates are in requests/s and times in seconds inside;
//! recorded times are whole nanoseconds; `ms` appears at the edges only.
//!
//! A short course, in the order of reading:
//!
//! 1. [`window`]: the two records that every queue writes and every fit reads. A queue's service times
//!    come as a histogram with exact sums.
//! 2. [`distribution`]: laws of service times by mean, variation, CDF and Laplace transform: by a formula,
//!    measured, fitted (phase types), or made of others (mixtures with atoms, sums over stations); and
//!    how to come back from a transform to a CDF.
//! 3. [`queue`]: one device. With Poisson arrivals at rate λ and mean service b it is busy a share
//!    ρ = λb of the time; a request waits with probability ρ, and the longer the nearer ρ is to 1 and the
//!    more service times vary. Several servers, few places or sources, other arrivals and priorities all
//!    answer the same questions ([`queue::Queue`]).
//! 4. [`storage`]: a node of many devices behind a memory. The published Spotify model
//!    ([`storage::Spotify`]) and ours ([`storage::Node`]), each with its confidence limit: the load at
//!    which the mean number at a device reaches 1.
//! 5. [`cache`]: what share memory answers. By Che's approximation from popularities, for any size of memory
//!    and from a cold start on; by sampled reuse distances from a stream of keys; and down a hierarchy of
//!    levels, which [`storage::Tiers`] puts a queue at each of. [`storage::Imbalance`] says how unevenly the
//!    same popularities load the nodes of a cluster.
//! 6. [`fit`]: from windows to a [`Model`], every parameter with its 95 % interval.
//! 7. [`Model::predict`]: from a model and a load to the shares within given times, with intervals, and
//!    whether the load is past the confidence limit, or past the load up to which the model is trusted
//!    ([`Trust`]: its own interval and what held-out loads showed).
//! 8. [`ClusterModel`]: fitted nodes behind gateways, each with its share; and what would be with a node
//!    lost, slower, with more memory or another weight ([`storage::Change`]).
//! 9. [`network`]: networks of queues. Clients that wait for their answer before they ask again, threads,
//!    middlewares and links as stations: throughput and response time for any number of clients, bounds,
//!    and the station that limits.
//! 10. [`fork_join`]: one request that becomes several: the slowest of n, k of n, parts that queue together,
//!     a second request when the first is late and what it adds to the load.
//! 11. [`capacity`]: how much a system can do at all. AT&T's constant of a storage system, by size and share
//!     of reads, and the Universal Scalability Law, by concurrency; with [`regression`] under them.
//! 12. [`design`]: experiments with several factors. Which of them matter, how much, how sure that is, and
//!     whether effects add or multiply.
//! 13. [`laws`]: what holds of any measured system (Little, utilisation, interactive response time, forced
//!     flow, demand bound), so that a deviation is a fault of the measurement; and which part of a run is steady.
//! 14. [`plan`]: the cheapest servers that hold an objective at a load, what breaks first, and what to
//!     buy next.
//!
//! The symbols of the papers, and which printed formulas are wrong: `docs/models.md`.
//!
//! ```
//! use model::storage::{HitRatio, Spotify};
//! // The published "large" server: what share is answered within 50 ms at 100 requests/s?
//! let server = Spotify::new(HitRatio::new(1.15, 0.0058)?, 120.0, 1.0)?;
//! let within = server.cdf(100.0, 0.050)?;
//! assert!((within - 0.9909).abs() < 1e-3);
//! assert!(100.0 < server.confidence_limit());
//! # Ok::<(), model::Error>(())
//! ```

pub mod cache;
pub mod capacity;
pub mod design;
pub mod distribution;
mod error;
pub mod fit;
pub mod fork_join;
#[cfg(test)]
mod gold;
pub mod laws;
mod model_file;
pub mod network;
pub mod plan;
pub mod queue;
pub mod regression;
pub mod statistics;
pub mod storage;
mod trust;
pub mod window;

pub use error::Error;
pub use model_file::{
    About, Arrivals, BackgroundWork, ClassParameters, ClusterLimits, ClusterModel, ClusterNode,
    ClusterPrediction, Coarse, Devices, DispersionAt, Evidence, EvidenceSource, FORMAT,
    FittedPoint, FittedStep, Front, Law, Limits, Model, NodePrediction, Parameter, Point,
    Prediction, Replicates, Requests, SpotifyParameters,
};
pub use trust::{HeldOut, POINTS_MAX, Trust, TrustEnd};
