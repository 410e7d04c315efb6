//! The compressed suffix array.
