//! Bit vectors and packed integers: the building blocks of the index and the records.
//!
//! [`load`] reads numbers from stored bytes without panicking; [`packed`] is an array of integers
//! of one width; [`elias_fano`] is a monotone sequence; [`word`] has selection in a word, in two
//! implementations, with unsafe code.

pub mod elias_fano;
pub mod load;
pub mod packed;
pub mod word;
