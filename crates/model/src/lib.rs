//! Performance models of storage services: what is observed, what is fitted, what is predicted.
//!
//! Everything here is a function of its arguments: no clock, no socket, no file and no thread, so a
//! prediction cannot peek at the running system. Rates are in requests/s and times in seconds inside;
//! recorded times are whole nanoseconds; `ms` appears at the edges only.
//!
//! - [`window`]: the two records that every queue writes and every fit reads.

pub mod window;
