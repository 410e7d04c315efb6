//! Where a node keeps objects.

mod log;
mod memory;
mod popularity;
mod table;
mod worth;

pub use log::{BLOCK_BYTES, Location, Log, Placed, RECORD_OVERHEAD_BYTES, record_bytes};
pub(crate) use memory::ENTRY_OVERHEAD_BYTES;
pub use memory::{Eviction, Keyed, Memory, WithKey};
pub use popularity::Popularity;
pub use table::fill::{Restored, Run, Work};
pub use table::{HASH_BITS, Item, STAMPS, Table, class_bytes, length_class};
pub use worth::{Placement, SCALES, Saved, Worth, mean_lives};
