//! The compressed, searchable shard and its layers.
//!
//! Bytes in, answers out: this crate has no runtime, no clock and no socket, and depends on no other
//! member of the workspace.
//!
//! A [`Shard`] is an [`index::Index`] of a text and the [`record::Records`] that the text is split into, in one
//! file ([`format`](mod@format)); [`query`] finds records by the index, and [`layers`] make it faster for memory, while it
//! answers.
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
mod shard;
mod text;

pub use self::shard::{Report, Shard};
pub use error::Error;
pub use text::Text;
