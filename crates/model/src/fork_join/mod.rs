//! One request that becomes several: the slowest of n, k of n, fork-join queues, hedged requests.
//!
//! - [`OrderStatistic`]: the k-th to finish of n *independent* times. A multi-get over idle or unrelated
//!   servers, a read of any k of n coded parts.
//! - [`ForkJoin`]: all parts arrive at their queues together, so their waits are dependent and the
//!   slowest is less slow than independence says. Exact for the mean of two M/M/1 queues
//!   ([`two_way_mean`]), approximate otherwise.
//! - [`Hedged`]: a second request when the first has not answered after a delay; and, where what is sent
//!   twice loads the servers, the load at which law and load agree ([`Hedged::at_load`]).

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
