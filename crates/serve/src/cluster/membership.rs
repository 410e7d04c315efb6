//! Who is a member now.

use engine::route::View;
use model::window::Nanos;
use tokio::sync::watch;

/// Tells a node which members are there. Kept by whoever was told, as long as the node runs.
///
/// What is promised: epochs grow; a view without a member is told nobody before that member's own
/// `until` has passed on its clock; whoever is told of a change is told within [`Membership::lag`].
pub trait Membership: Send + Sync {
    /// The view now, and each change of it. Times in it are those of [`record::clock::now`].
    fn views(&self) -> watch::Receiver<View>;
    /// For how long after a change some may still act on the older view.
    fn lag(&self) -> Nanos;
}

/// The members of the configuration, for ever. It finds out nothing: while a key's primary is away,
/// nobody orders the key's writes.
pub struct Static(watch::Sender<View>);

impl Static {
    /// So many members.
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
