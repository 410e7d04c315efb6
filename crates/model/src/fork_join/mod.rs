//! Requests that consist of several: the slowest of n, k of n, fork-join queues, hedged requests.
//!
//! - [`FanOut`]: the k-th of n *independent* parts, for a multi-get over idle or unrelated servers or a read of any k
//!   of n coded parts. Of `concertina predict --fan-out`.
//! - [`ForkJoin`]: parts that arrive at their queues together. Their waits are dependent, so the slowest part is faster
//!   than independence predicts. Of stations that fork in `concertina network`.
//! - [`Hedge`]: a second request is sent if the first has no reply after a delay, and loads the servers. Of `concertina
//!   predict --hedge`.

mod fan_out;
mod hedge;
mod queues;

pub use fan_out::FanOut;
pub use hedge::Hedge;
pub use queues::ForkJoin;

#[cfg(test)]
mod tests;
