//! Times and durations of the records of observations.

/// A time or a duration in nanoseconds. Times are of a monotonic clock with an arbitrary origin.
pub type Nanos = u64;

/// Nanoseconds in a second.
pub const SECOND: Nanos = 1_000_000_000;
