//! What a node and a gateway share of a cluster: connections to the members, what each says of itself, the identity of the
//! origin, and the headers by which processes know each other.

mod about;
mod error;
mod header;
pub mod identity;
mod mismatch;
mod roll;
mod terms;

pub use about::{BYTES_MAX as ABOUT_BYTES_MAX, members, parse_report, report};
pub use error::Error;
pub use header::{ask_headers, authorization, fingerprint, hexadecimal};
pub use mismatch::Mismatches;
pub use roll::Roll;
pub use terms::{deadline, epoch, patience};
