//! Requests that consist of several: the slowest of n, k of n, fork-join queues, hedged requests.
//!
//! - [`OrderStatistic`]: the k-th smallest of n *independent* times, for a multi-get over idle or
//!   unrelated servers or a read of any k of n coded parts.
//! - [`ForkJoin`]: the slowest of n parts that arrive at their queues together. Their waits are
//!   dependent, so the slowest part is faster than independence predicts. The mean is exact for two
//!   M/M/1 queues ([`two_way_mean`]) and approximate otherwise.
//! - [`Hedged`]: a second request is sent if the first has no reply after a delay. Where second
//!   requests load the servers, [`Hedged::at_load`] finds the load at which law and load agree.

mod hedge;
mod mm1;
mod order;
mod queues;

pub use hedge::{Hedged, HedgedLoad};
pub use mm1::{heavy_traffic_factor, nelson_tantawi_mean, two_way_mean, varma_makowski_mean};
pub use order::OrderStatistic;
pub use queues::ForkJoin;

#[cfg(test)]
mod tests;
