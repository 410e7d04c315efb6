//! The begins and ends of faults, in the order in which they come.

use std::cmp::Reverse;

use ground::window::Nanos;

use super::settings::NodeFault;

/// The begin or the end of a fault.
pub(super) struct Change {
    pub at: Nanos,
    pub begins: bool,
    pub fault: NodeFault,
}

impl Change {
    /// What comes first of changes at the same time: the ends of earlier faults, so that nothing is down for longer than it
    /// should be, then begins, then the ends of faults that last no time.
    fn order(&self) -> (Nanos, u8) {
        let order = match (self.begins, self.fault.at < self.fault.until) {
            (false, true) => 0,
            (true, _) => 1,
            (false, false) => 2,
        };
        (self.at, order)
    }
}

/// The begins and ends of faults, the next last.
pub(super) fn changes(faults: &[NodeFault]) -> Vec<Change> {
    let both = faults.iter().flat_map(|fault| {
        let begin = Change { at: fault.at, begins: true, fault: *fault };
        let end = Change { at: fault.until.max(fault.at), begins: false, fault: *fault };
        [begin, end]
    });
    let mut changes: Vec<Change> = both.filter(|change| change.at < Nanos::MAX).collect();
    changes.sort_by_key(|change| Reverse(change.order()));
    changes
}
