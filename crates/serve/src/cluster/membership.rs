//! The current members of the cluster.

use engine::route::View;
use model::window::Nanos;
use tokio::sync::watch;

/// A source of membership views for a node, which keeps it as long as it runs.
///
/// Guarantees: epochs increase. A view that lacks a member reaches nobody before that member's own
/// `until` has passed on that member's clock. A change reaches its receivers within
/// [`Membership::lag`].
pub trait Membership: Send + Sync {
    /// The current view and each later one. Their times are readings of [`record::clock::now`].
    fn views(&self) -> watch::Receiver<View>;
    /// How long after a change other processes may still act on the previous view.
    fn lag(&self) -> Nanos;
}

/// The members of the configuration, which never change. Failures are not detected: while a key's
/// primary is down, nobody orders the key's writes.
pub struct Static(watch::Sender<View>);

impl Static {
    /// A fixed view of `members` members.
    pub fn new(members: usize) -> Static {
        Static(watch::Sender::new(View::fixed(members)))
    }
}

impl Membership for Static {
    fn views(&self) -> watch::Receiver<View> {
        self.0.subscribe()
    }
    fn lag(&self) -> Nanos {
        0
    }
}
