//! Writes a batch of changes as one chunk of the log.

use std::collections::VecDeque;
use std::sync::Arc;

use ground::window::Nanos;

use super::event::{Action, Changed, Event, Put, Read, Token, Why};
use super::refresh::Refresh;
use super::settings::Settings;
use super::state::{State, Tail};
use crate::mutant::{Mutant, is};

/// A change that waits.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    pub token: Token,
    pub id: Arc<str>,
    pub bytes: usize,
    pub records: u64,
    pub appended: u64,
}

/// Takes the changes that become one chunk: those that fit, and were checked against the same dataset.
pub(super) fn batch(changes: &mut VecDeque<PendingChange>, bytes_max: usize) -> Vec<PendingChange> {
    let (mut batch, mut bytes) = (Vec::<PendingChange>::new(), 0_usize);
    while let Some(change) = changes.front() {
        bytes = bytes.saturating_add(change.bytes);
        let other = batch.first().is_some_and(|first| first.id != change.id);
        if other || (!batch.is_empty() && bytes > bytes_max) {
            break;
        }
        batch.extend(changes.pop_front());
    }
    batch
}

/// The result that is awaited.
#[derive(Clone, Debug)]
enum Step<E> {
    Put,
    /// Whether the manifest is still the one of the view.
    Head(Tail),
    /// Whether the manifest that replaced it has sealed the number.
    Manifest(Tail),
    RemoveLate,
    Refresh(Refresh<E>, Then<E>),
    Compare,
}

/// What follows when the view is fresh.
#[derive(Clone, Debug)]
enum Then<E> {
    Unknown(Option<E>),
    /// Another chunk has the number.
    Taken,
    /// The number was sealed.
    Sealed,
}

/// A batch of changes that is being written.
#[derive(Clone, Debug)]
pub(super) struct Write<E> {
    batch: Vec<PendingChange>,
    tries_left: u32,
    number: u64,
    first_id: u64,
    step: Step<E>,
}

impl<E: Clone> Write<E> {
    /// Begins; `None` if the changes ended at once.
    pub(super) fn begin(
        settings: &Settings,
        batch: Vec<PendingChange>,
        view: Option<&State>,
        actions: &mut Vec<Action<E>>,
    ) -> Option<Write<E>> {
        let tries_left = settings.tries.max(1);
        let mut write = Write { batch, tries_left, number: 0, first_id: 0, step: Step::Put };
        (!write.put(view, actions)).then_some(write)
    }

    /// Puts the chunk after the view's last one; whether the changes ended instead.
    fn put(&mut self, view: Option<&State>, actions: &mut Vec<Action<E>>) -> bool {
        let Some(id) = self.batch.first().map(|change| change.id.clone()) else { return true };
        let Some(view) = view else { return self.fail(&Why::NoDataset, actions) };
        if view.manifest.id != id {
            return self.fail(&Why::Replaced, actions);
        }
        if self.tries_left == 0 {
            return self.fail(&Why::Contended, actions);
        }
        self.tries_left -= 1;
        self.number = view.tail.last_chunk + 1;
        self.first_id = view.tail.end_id;
        self.step = Step::Put;
        let (number, first_id, changes) = (self.number, self.first_id, self.tokens());
        if is(Mutant::DatasetAckBeforeStored) {
            self.acknowledge(actions);
        }
        actions.push(Action::PutChunk { number, first_id, changes });
        false
    }

    fn tokens(&self) -> Vec<Token> {
        self.batch.iter().map(|change| change.token).collect()
    }

    /// Whether the changes have ended. Events that are not awaited are ignored.
    pub(super) fn handle(
        &mut self,
        now: Nanos,
        event: Event<E>,
        settings: &Settings,
        view: &mut Option<State>,
        actions: &mut Vec<Action<E>>,
    ) -> bool {
        let step = std::mem::replace(&mut self.step, Step::Put);
        match (step, event) {
            (Step::Put, Event::Put(put)) => match put {
                Put::Stored(tail) if is(Mutant::DatasetLateChunkCounts) => {
                    return self.stored(tail, view, actions);
                }
                Put::Stored(tail) => {
                    self.step = Step::Head(tail);
                    actions.push(Action::Head);
                }
                Put::Taken => self.refresh(Then::Taken, settings, actions),
                Put::Failed(error) => self.refresh(Then::Unknown(Some(error)), settings, actions),
                Put::Inapplicable(error) => {
                    return self.fail(&Why::Inapplicable(error), actions);
                }
            },
            (Step::Head(tail), Event::Head(Ok(etag))) => {
                if view.as_ref().map(|view| &view.manifest.etag) == etag.as_ref() {
                    return self.stored(tail, view, actions);
                }
                self.step = Step::Manifest(tail);
                actions.push(Action::ReadManifest);
            }
            (Step::Manifest(tail), Event::Manifest(Ok(manifest))) => {
                let counts = manifest.is_some_and(|manifest| {
                    manifest.sealed_chunks < self.number
                        && view.as_ref().is_some_and(|view| view.manifest.id == manifest.id)
                });
                if counts {
                    return self.stored(tail, view, actions);
                }
                self.step = Step::RemoveLate;
                actions.push(Action::RemoveChunk { number: self.number });
            }
            // It was put too late, or sealed at once.
            (Step::RemoveLate, Event::ChunkRemoved(Ok(()))) => {
                self.refresh(Then::Sealed, settings, actions);
            }
            (Step::Head(_), Event::Head(Err(error)))
            | (Step::Manifest(_), Event::Manifest(Err(error)))
            | (Step::RemoveLate, Event::ChunkRemoved(Err(error))) => {
                self.refresh(Then::Unknown(Some(error)), settings, actions);
            }
            (Step::Refresh(mut refresh, then), event) => {
                match refresh.handle(now, event, settings, view, actions) {
                    Some(result) => return self.refreshed(result, then, view.as_ref(), actions),
                    None => self.step = Step::Refresh(refresh, then),
                }
            }
            (Step::Compare, Event::Compared { may_hold: true }) => {
                return self.fail(&Why::Unknown(None), actions);
            }
            (Step::Compare, Event::Compared { may_hold: false }) => {
                return self.put(view.as_ref(), actions);
            }
            (step, _) => self.step = step,
        }
        false
    }

    fn refresh(&mut self, then: Then<E>, settings: &Settings, actions: &mut Vec<Action<E>>) {
        self.step = Step::Refresh(Refresh::begin(settings, false, actions), then);
    }

    fn refreshed(
        &mut self,
        result: Read<E>,
        then: Then<E>,
        view: Option<&State>,
        actions: &mut Vec<Action<E>>,
    ) -> bool {
        let error = match (result, &then) {
            (_, Then::Unknown(error)) => error.clone(),
            (Err(Why::Store(error)), _) => Some(error),
            (Err(_), _) => None,
            (Ok(()), _) => {
                // The chunk under this number was not ours, as the store says, unless it was removed before the store looked.
                let same = view.filter(|view| self.is_of(view));
                let sealed = same.is_some_and(|view| view.manifest.sealed_chunks >= self.number);
                let trusted = is(Mutant::DatasetSealedNotCompared)
                    || (is(Mutant::DatasetTakenTrusted) && matches!(then, Then::Taken));
                if sealed && !trusted {
                    self.step = Step::Compare;
                    let (first_id, changes) = (self.first_id, self.tokens());
                    actions.push(Action::Compare { first_id, changes });
                    return false;
                }
                return self.put(view, actions);
            }
        };
        self.fail(&Why::Unknown(error), actions)
    }

    fn is_of(&self, view: &State) -> bool {
        self.batch.first().is_some_and(|change| change.id == view.manifest.id)
    }

    /// The chunk is part of the log.
    fn stored(
        &mut self,
        tail: Tail,
        view: &mut Option<State>,
        actions: &mut Vec<Action<E>>,
    ) -> bool {
        if let Some(view) = view {
            view.tail = tail;
            actions.push(Action::Show);
        }
        if !is(Mutant::DatasetAckBeforeStored) {
            self.acknowledge(actions);
        }
        true
    }

    fn acknowledge(&self, actions: &mut Vec<Action<E>>) {
        let (mut first_id, chunk) = (self.first_id, self.number);
        for change in &self.batch {
            let result = Ok(Changed { first_id, records: change.records, chunk });
            actions.push(Action::Changed { token: change.token, result });
            first_id += change.appended;
        }
    }

    fn fail(&mut self, why: &Why<E>, actions: &mut Vec<Action<E>>) -> bool {
        if !is(Mutant::DatasetAckBeforeStored) {
            let failed = |change: &PendingChange| Action::Changed {
                token: change.token,
                result: Err(why.clone()),
            };
            actions.extend(self.batch.iter().map(failed));
        }
        true
    }
}
