//! Where objects lie in a node.

mod log;
mod memory;

pub use log::{Location, Log, Placed, RECORD_OVERHEAD_BYTES};
pub use memory::Memory;
