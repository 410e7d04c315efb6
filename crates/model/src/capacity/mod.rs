//! Capacity: of a storage system by size and read share of its I/Os, and of any system by
//! concurrency.
//!
//! - [`IoCapacity`]: the estimate of AT&T's capacity planners. A write takes f_rw times as much
//!   capacity as a read of the same size, and the capacity is constant: C = T_read + T_write·f_rw.
//!   Two measured points for each size give the throughput at every read share, and of mixes of
//!   sizes; [`MixError`] is how far measured mixes are from it.
//! - [`Scalability`]: Gunther's Universal Scalability Law. Throughput rises with concurrency, is
//!   limited by contention, and falls because of coherency. Three parameters determine its peak.
//!
//! Neither predicts response times. A system near its capacity answers slowly; use
//! [`queue`](crate::queue) and [`storage`](crate::storage) for response times.

mod io;
mod mix;
mod mix_error;
mod scalability;

pub use io::{AffineCost, IoCapacity, IoPoint, IoSize, Scatter};
pub use mix::{Basis, IoThroughput, MixPart, Shares};
pub use mix_error::{JudgedMix, MixError};
pub use scalability::{Peak, Scalability, ScalablePoint, ScalableThroughput};

#[cfg(test)]
mod tests;
