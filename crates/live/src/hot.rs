//! Proposes to fill hot devices, and tells the node's engine whether to copy.

use engine::act::copies::{ReadCounts, TARGET};
use engine::act::{Mode, Status};
use record::clock;

use super::{LiveModel, lock};

impl LiveModel {
    /// Looks at what the hot devices hold, and proposes to fill them.
    pub fn look_at_hot(&self) {
        let Some(node) = self.node() else { return };
        let Some(hot) = node.tiers(clock::now()).hot else { return };
        let seen = ReadCounts {
            reads: hot.bought.hot_reads + hot.bought.bulk_reads,
            with_copy: hot.bought.hot_reads + hot.bought.hot_passed_by,
            best: hot.held,
        };
        let (proposal, share) = {
            let mut copies = lock(&self.copies);
            (copies.0.look(seen), copies.0.share())
        };
        if let Some(share) = share {
            self.note(TARGET, share);
        }
        if let Some(proposal) = proposal {
            let made = self.propose(&proposal) == Some(Status::Made);
            lock(&self.copies).0.decided(made);
        }
        self.set_copying();
    }

    /// Tells the node's engine whether to copy.
    pub fn set_copying(&self) {
        let Some(node) = self.node() else { return };
        let free = {
            let acting = lock(&self.acting);
            acting.governor.settings().modes.hot == Mode::Auto && !acting.governor.is_held()
        };
        let mut copies = lock(&self.copies);
        let on = free && copies.0.may_copy();
        if copies.1 != on {
            copies.1 = on;
            node.set_copying(on);
        }
    }
}
