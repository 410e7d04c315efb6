//! The governor's part in what an operator decides ([`super::operator`]).

use ground::window::Nanos;

use super::operator::{APPROVED_FOR, ChangeKind, DISMISSED_FOR, ORDERS_MAX, Order};
use super::{Entry, Governor, Line, Mode, NotDecided, Proposal, Status, Verdict};

impl Proposal {
    fn change_kind(&self) -> ChangeKind {
        let (target, kind) = (self.target.clone(), self.kind.clone());
        ChangeKind { knob: self.knob.as_str(), target, kind }
    }
}

impl Entry {
    fn change_kind(&self) -> ChangeKind {
        let (target, kind) = (self.target.clone(), self.kind.clone());
        ChangeKind { knob: self.knob.as_str(), target, kind }
    }
}

impl Governor {
    /// Takes an operator's decision on an entry of the journal.
    ///
    /// # Errors
    ///
    /// If there is nothing to decide, or the change cannot be made.
    pub fn decide(
        &mut self,
        now: Nanos,
        unix_us: u64,
        id: u64,
        verdict: Verdict,
    ) -> Result<(), NotDecided> {
        let found = self.entries.iter().find(|(_, entry)| entry.id == id);
        let Some((_, entry)) = found else { return Err(NotDecided::Unknown(id)) };
        let (of, knob, status) = (entry.change_kind(), entry.knob, entry.status.clone());
        match status {
            Status::Advised | Status::Held | Status::TooMany | Status::Lapsed => {}
            Status::Made => return Err(NotDecided::Made(id)),
            Status::Approved | Status::Applied | Status::Dismissed => {
                return Err(NotDecided::Decided(id));
            }
        }
        if self.settings.modes.mode_of(knob) == Mode::Off {
            return Err(NotDecided::Off(knob.as_str()));
        }
        // A new decision on the same kind of change replaces the one before.
        while let Some(at) = self.orders.iter().position(|order| order.of == of) {
            let before = self.orders.remove(at);
            self.end(&before, unix_us);
        }
        if self.orders.len() >= ORDERS_MAX {
            let oldest = self.orders.remove(0);
            self.end(&oldest, unix_us);
        }
        let (span, status) = match verdict {
            Verdict::Apply => (APPROVED_FOR, Status::Approved),
            Verdict::Dismiss => (DISMISSED_FOR, Status::Dismissed),
        };
        self.set_status(id, unix_us, status);
        let until = now.saturating_add(span);
        self.orders.push(Order { id, of, verdict, until });
        Ok(())
    }

    /// Ends the orders whose time is over.
    pub fn expire(&mut self, now: Nanos, unix_us: u64) {
        while let Some(at) = self.orders.iter().position(|order| order.until <= now) {
            let order = self.orders.remove(at);
            self.end(&order, unix_us);
        }
    }

    /// An approval that was not used has lapsed. A dismissal stays what it was.
    fn end(&mut self, order: &Order, unix_us: u64) {
        if order.verdict == Verdict::Apply {
            self.set_status(order.id, unix_us, Status::Lapsed);
        }
    }

    /// What an operator has decided on a proposal: the verdict, and the entry that it was on.
    pub(super) fn verdict_on(&self, proposal: &Proposal) -> Option<(Verdict, u64)> {
        if self.orders.is_empty() {
            return None;
        }
        let of = proposal.change_kind();
        let order = self.orders.iter().find(|order| order.of == of)?;
        Some((order.verdict, order.id))
    }

    /// Uses an approval: it holds once.
    pub(super) fn use_up(&mut self, id: u64, unix_us: u64) {
        self.orders.retain(|order| order.id != id);
        self.set_status(id, unix_us, Status::Applied);
    }

    fn set_status(&mut self, id: u64, at_unix_us: u64, status: Status) {
        self.lines.push(Line::Decided { id, at_unix_us, status: status.clone() });
        self.note_status(id, status);
    }

    pub(super) fn note_status(&mut self, id: u64, status: Status) {
        if let Some((_, entry)) = self.entries.iter_mut().find(|(_, entry)| entry.id == id) {
            entry.status = status;
        }
    }
}
