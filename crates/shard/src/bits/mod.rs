//! Bit vectors and packed integers: the small structures that the index and the records are made
//! of.
//!
//! [`load`] reads numbers of stored bytes without ever panicking; [`packed`] is an array of
//! integers of one width; [`elias_fano`] is a monotone sequence; [`word`] is selection in a word,
//! in the two ways that processors have for it, and unsafe code, of which this crate has little.

pub mod elias_fano;
pub mod load;
pub mod packed;
pub mod word;
