//! The compressed, searchable shard and its layers.
//!
//! Bytes in, answers out: this crate has no runtime, no clock and no socket, and depends on no other
//! member of the workspace.
//!
//! [`Text`] is what a searchable text answers; [`naive::Text`] is its plain twin, a few lines long, that
//! every clever implementation is tested against.

pub mod bits;
mod error;
pub mod format;
pub mod index;
pub mod layers;
pub mod naive;
pub mod query;
pub mod record;
#[cfg(test)]
mod sample;
mod text;

pub use error::Error;
pub use text::Text;
