//! Proposes to fill hot devices, and tells the node's engine whether to copy.

use engine::act::copies::{ReadCounts, TARGET};
use engine::act::{Knob, Status};
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
            let mut copying = lock(&self.copies);
            (copying.copies.look(seen), copying.copies.share())
        };
        if let Some(share) = share {
            self.note(TARGET, share);
        }
        if let Some(proposal) = proposal {
            let made = self.propose(&proposal) == Some(Status::Made);
            let is_ordered = made && !self.makes(Knob::Hot);
            let mut copying = lock(&self.copies);
            copying.copies.decided(made);
            copying.is_ordered = is_ordered;
        }
        self.set_copying();
    }

    /// Tells the node's engine whether to copy.
    pub fn set_copying(&self) {
        let Some(node) = self.node() else { return };
        let free = self.makes(Knob::Hot);
        let mut copying = lock(&self.copies);
        // What an operator approved ends with the filling: copies that follow slow changes are the process's own.
        copying.is_ordered &= copying.copies.is_filling();
        let on = copying.copies.may_copy() && (free || copying.is_ordered);
        if copying.is_on != on {
            copying.is_on = on;
            node.set_copying(on);
        }
    }

    /// Ends a filling that an operator approved: later all changes were held.
    pub(crate) fn end_ordered_copying(&self) {
        lock(&self.copies).is_ordered = false;
    }
}
