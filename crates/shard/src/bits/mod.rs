//! Bit vectors and packed integers.
