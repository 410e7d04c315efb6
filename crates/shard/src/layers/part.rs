//! What is counted and dropped as one.

use std::fmt::Debug;

/// A part of the layers whose bytes are counted until it is freed, also after it was dropped.
pub(super) trait Part: Debug + Send + Sync {
    fn bytes(&self) -> usize;
}
