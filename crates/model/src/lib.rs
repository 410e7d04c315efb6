//! Performance models of storage services: observations, fits and predictions.
//!
//! Every function depends on its arguments alone. The crate uses no clock, socket, file or thread,
//! so a prediction cannot read the state of the running system. Rates are in requests/s and times
//! in seconds; recorded times are whole nanoseconds; milliseconds appear in input and output only.
//!
//! The modules, in the order of reading:
//!
//! 1. [`ground::window`]: the two records that every queue writes and every fit reads.
//! 2. [`distribution`]: laws of times, by formula or measured, and the inversion of Laplace
//!    transforms.
//! 3. [`queue`]: a single queue. With Poisson arrivals at rate λ and mean service time b, one
//!    server is busy a share ρ = λb of the time and a request waits with probability ρ. Waits grow
//!    with ρ and with the variation of service times. All queues implement [`queue::Queue`].
//! 4. [`storage`]: a node with memory and several devices: the published Spotify model
//!    ([`storage::Spotify`]) and Concertina's ([`storage::Node`]). Each has a confidence limit: the
//!    load at which the mean number of requests at a device reaches 1.
//! 5. [`cache`]: the hit ratio of memory. Che's approximation computes it from popularities for any
//!    size of memory, sampled reuse distances compute it from a stream of keys, and a hierarchy
//!    splits requests over several levels. [`storage::Tiers`] puts a queue at each level.
//!    [`storage::Imbalance`] computes how unevenly the objects load the nodes of a cluster.
//! 6. [`fit`]: from windows to a [`Model`], every parameter with its 95 % interval.
//! 7. [`Model::predict`]: the shares of requests answered within given times at a load, with
//!    intervals. The result says whether the load is past the confidence limit, and whether it is
//!    past the load up to which the model was compared with measurements ([`Trust`]).
//! 8. [`ClusterModel`]: fitted nodes behind gateways, and predictions for a cluster with a node
//!    lost or slowed down, with more memory or with other weights ([`storage::Change`]).
//! 9. [`network`]: networks of queues with clients that wait for each reply, thread pools,
//!    middleware and links: throughput and response time for any number of clients, bounds, and the
//!    bottleneck.
//! 10. [`fork_join`]: requests that consist of several: the slowest of n, k of n
//!     ([`Model::predict_fan_out`]), parts that queue together ([`network::Station::fork`]), and
//!     hedged requests with the load that they add ([`Model::predict_hedged`]).
//! 11. [`capacity`]: the capacity of a system. AT&T's constant of a storage system, by size and
//!     share of reads, and the Universal Scalability Law, by concurrency. Both use [`regression`].
//! 12. [`design`]: experiments with several factors: which factors matter, how much, with what
//!     confidence, and whether effects add or multiply.
//! 13. [`laws`]: operational laws that hold for every measured system (Little, utilisation,
//!     interactive response time, forced flow, demand bound), so that a deviation shows an error of
//!     measurement; and the detection of the steady part of a run.
//! 14. [`plan`]: the cheapest configuration that meets an objective at a load, the part that
//!     saturates first, and the next purchase.
//! 15. [`what_if`]: one server changed, and several like it, with everything that a person asks of them at once.
//!
//! `docs/models.md` lists the symbols of the papers and the misprints in their formulas.
//!
//! ```
//! use model::storage::{HitRatio, Spotify};
//! // The published "large" server: the share answered within 50 ms at 100 requests/s.
//! let server = Spotify::new(HitRatio::new(1.15, 0.0058)?, 120.0, 1.0)?;
//! let within = server.cdf(100.0, 0.050)?;
//! assert!((within - 0.9909).abs() < 1e-3);
//! assert!(100.0 < server.confidence_limit());
//! # Ok::<(), model::Error>(())
//! ```

mod bisection;
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
pub mod live;
mod model_file;
pub mod network;
pub mod plan;
pub mod queue;
pub mod regression;
pub mod statistics;
pub mod storage;
mod trust;
pub mod what_if;

pub use error::Error;
pub use model_file::{
    About, Arrivals, BackgroundWork, ClassParameters, ClusterLimits, ClusterModel, ClusterNode,
    ClusterPrediction, Coarse, Devices, DispersionAt, Evidence, EvidenceSource, FORMAT,
    FanOutPrediction, FittedPoint, FittedStep, Front, HedgedPrediction, Hypothesis, Law, Limits,
    MixShare, Model, NodePrediction, Parameter, Point, Prediction, Replicates, RequestKind,
    Requests, ResponseTimes, SpeedByNumber, SpotifyParameters, StateRate, StateRates, StatedNode,
    StatedNumber, Tipping, WithinTime, WorkByLoad,
};
pub use trust::{HeldOut, Miss, POINTS_MAX, Trust, TrustEnd};
