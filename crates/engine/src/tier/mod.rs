//! Where a node keeps objects.

mod log;
mod memory;

pub use log::{Location, Log, Placed, RECORD_OVERHEAD_BYTES};
pub use memory::Memory;
