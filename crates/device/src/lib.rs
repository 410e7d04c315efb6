//! Devices of a node: what is written to them and read from them, and the bytes of larger objects in memory.
//!
//! [`disk`] carries out what `engine::node` decides of devices; [`object`] is an object in memory with its metadata and
//! the head of its reply; [`arena`] holds the bytes of larger ones.

pub mod arena;
mod assembly;
pub mod disk;
mod error;
pub mod object;
mod packed;
pub mod system;
mod thin;

pub use error::Error;
pub use packed::{Packed, PackedEtag};
