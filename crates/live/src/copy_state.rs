//! Whether a node's engine copies to hot devices, as the live model has told it.

use engine::act::copies::Copies;

/// Whether the node's engine copies to hot devices, and why it may.
pub struct CopyState {
    /// When copies may be made, and when that needs a decision.
    pub copies: Copies,
    /// What the engine was told last: whether it copies.
    pub is_on: bool,
    /// An operator approved the filling under way, so that it goes on in whatever mode.
    pub is_ordered: bool,
}

impl Default for CopyState {
    fn default() -> Self {
        CopyState { copies: Copies::new(), is_on: true, is_ordered: false }
    }
}
