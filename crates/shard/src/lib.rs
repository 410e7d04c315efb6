//! The compressed, searchable shard and its layers.
//!
//! Bytes in, answers out: this crate has no runtime, no clock and no socket, and depends on no
//! other member of the workspace.
//!
//! A [`Shard`] is one file ([`format`](mod@format)) with the [`index::Index`] of a text and the
//! [`record::Records`] that the text consists of. A [`query`] finds records by the index.
//! [`layers`] use spare memory to speed the index up while it answers.
//!
//! [`Text`] is the interface of a searchable text. [`naive::Text`] is its simplest implementation,
//! a few lines long; every optimised implementation is tested against it.

mod bits;
mod boundary;
mod counts;
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
mod words;

pub use self::shard::{Report, Shard};
pub use error::Error;
pub use text::Text;
