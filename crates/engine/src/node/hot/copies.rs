//! How copies on hot devices are written: after a read from a bulk device, or behind the record that was
//! just written to one.

use ground::window::Nanos;

use super::class_state::MoveKind;
use crate::Payload;
use crate::node::event::Action;
use crate::node::state::Node;
use crate::node::tiers::{NewRecord, Target};
use crate::tier::record_bytes;
use ground::Key;

impl<P: Payload> Node<P> {
    /// Writes a copy of a record to a hot device, if as many bytes may be written now. `again`: in place of a hot copy whose
    /// segment goes.
    pub(in crate::node) fn copy_to_hot(
        &mut self,
        now: Nanos,
        record: NewRecord<'_, P>,
        benefit: f64,
        again: bool,
        actions: &mut Vec<Action<P>>,
    ) {
        let key = record.key;
        let Some(on) = self.index.get(key) else { return };
        let (pinned, bytes) = (self.is_pinned(key), on.bytes());
        let settings = &self.settings.tiers;
        let Some(hot) = &mut self.hot else { return };
        if !hot.take(settings, bytes, again, pinned, now) {
            return;
        }
        if !self.append(record, Target::Hot, actions) {
            return;
        }
        let Some(hot) = &mut self.hot else { return };
        hot.note(now, key, if again { MoveKind::Reinserted } else { MoveKind::Promoted }, benefit);
        if again {
            hot.moves.reinserted += 1;
            hot.moves.reinserted_bytes += bytes;
        } else {
            hot.moves.promoted += 1;
            hot.moves.promoted_bytes += bytes;
        }
    }

    /// An object that was read elsewhere is being written to a bulk device: counts the read for the sample,
    /// which did not know its bytes, and lets the copy follow if it is worth it.
    pub(in crate::node) fn first_read(&mut self, key: &Key, payload: &P, now: Nanos) {
        let Some(hot) = &mut self.hot else { return };
        let bytes = record_bytes(key.len(), payload.bytes(), payload.stored_bytes());
        hot.worth.add_first(key, bytes, now);
        let Some(job) = self.appending_of.get(key).copied() else { return };
        if self.worth_hot(key, bytes, false, now).is_some()
            && let Some(appending) = self.appending.get_mut(&job)
        {
            appending.then_hot = Some(payload.clone());
        }
    }

    /// The record that an object was written to a bulk device with is there: writes its hot copy.
    pub(in crate::node) fn then_hot(
        &mut self,
        now: Nanos,
        record: NewRecord<'_, P>,
        bytes: u64,
        actions: &mut Vec<Action<P>>,
    ) {
        // A newer version came meanwhile; its own copy follows if it is worth one.
        if self.appending_of.contains_key(record.key) {
            return;
        }
        let benefit = self.worth_hot(record.key, bytes, false, now);
        let Some(benefit) = benefit else { return };
        self.copy_to_hot(now, record, benefit, false, actions);
    }
}
