//! How much a system can do: storage by size and read share of its I/Os, and any system by concurrency.
//!
//! - [`IoCapacity`]: the estimate of AT&T's capacity planners. A write takes f_rw times as much of a storage
//!   system as a read of the same size, and what it can do is constant: C = T_read + T_write·f_rw. Two
//!   measured points for each size give the throughput at every read share, and of mixes of sizes.
//! - [`Scalability`]: Gunther's Universal Scalability Law. Throughput rises with concurrency, is held back
//!   by contention, and falls by coherency; three parameters say where it peaks.
//!
//! Both say what they leave out: neither knows response times. A system near the capacity that is given
//! here answers slowly; [`queue`](crate::queue) and [`storage`](crate::storage) say how slowly.

mod io;
mod mix;
mod scalability;

pub use io::{AffineCost, IoCapacity, IoPoint, IoSize};
pub use mix::{Basis, IoThroughput, MixPart, Shares};
pub use scalability::{Peak, Scalability, ScalablePoint, ScalableThroughput};

#[cfg(test)]
mod tests;
