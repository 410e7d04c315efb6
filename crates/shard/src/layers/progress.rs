//! How far work is that is done in steps.

/// The progress of work that is done in steps.
///
/// The units are segments for a [`Sweep`](super::Sweep) and blocks for a [`TextBuild`](super::TextBuild).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Units done.
    pub done: usize,
    /// Units in all.
    pub all: usize,
}

impl Progress {
    /// Whether nothing is left to do.
    pub fn is_finished(self) -> bool {
        self.done == self.all
    }
}
