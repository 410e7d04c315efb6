//! Where a node keeps objects.

mod log;
mod memory;
mod popularity;
mod worth;

pub use log::{Location, Log, Placed, RECORD_OVERHEAD_BYTES};
pub use memory::{Eviction, Memory};
pub use popularity::Popularity;
pub use worth::{Placement, Saved, Worth};
