//! How a dataset carries out a seal, beside what is done with its log.

use super::event::{Action, Event, Read, Why};
use super::seal::{Seal, Step};
use super::state::State;
use super::{Dataset, Job, Reader};
use crate::mutant::{Mutant, is};

impl<E: Clone> Dataset<E> {
    /// Begins the next seal that was asked for, after the one under way.
    pub(super) fn begin_seal(&mut self) {
        if self.seal.is_none() && !self.sealers.is_empty() {
            self.seal = Some(Seal::new(std::mem::take(&mut self.sealers)));
            self.want_view(Reader::Seal);
        }
    }

    /// The view that a seal waits for was read, or could not be.
    pub(super) fn seal_view(&mut self, read: Read<E>, actions: &mut Vec<Action<E>>) {
        let Some(seal) = &mut self.seal else { return };
        let view = match (read, &self.view) {
            (Ok(()), Some(view)) => view,
            (Ok(()), None) => return self.end_seal(Err(Why::NoDataset), actions),
            (Err(why), _) => return self.end_seal(Err(why), actions),
        };
        let is_wanted = !seal.tokens.is_empty() || view.is_large(&self.settings);
        if !is_wanted || view.tail.last_chunk == view.manifest.sealed_chunks {
            return self.end_seal(Ok(false), actions);
        }
        seal.step = Step::Build(view.clone());
        actions.push(Action::Build);
    }

    pub(super) fn seal_event(&mut self, event: Event<E>, actions: &mut Vec<Action<E>>) {
        let Some(seal) = &mut self.seal else { return };
        let step = std::mem::replace(&mut seal.step, Step::View);
        match (step, event) {
            (Step::Build(base), Event::Built(Ok(true))) => {
                let (number, tries_left) = (base.manifest.next_shard, self.settings.shard_tries);
                seal.step = Step::Put { base, number, tries_left };
                actions.push(Action::PutShard { number });
            }
            (Step::Build(base), Event::Built(Ok(false))) => self.turn(base, None, actions),
            (Step::Put { base, number, .. }, Event::ShardPut(Ok(true))) => {
                self.turn(base, Some(number), actions);
            }
            (Step::Put { base, number, tries_left }, Event::ShardPut(Ok(false))) => {
                let (number, tries_left) = (number + 1, tries_left.saturating_sub(1));
                if tries_left == 0 {
                    return self.end_seal(Err(Why::NoNumber), actions);
                }
                seal.step = Step::Put { base, number, tries_left };
                actions.push(Action::PutShard { number });
            }
            (Step::Build(_), Event::Built(Err(error)))
            | (Step::Put { .. }, Event::ShardPut(Err(error))) => {
                self.end_seal(Err(Why::Store(error)), actions);
            }
            (Step::Look { base, from, refreshed, .. }, Event::Looked { found: true }) => {
                self.look(base, from, refreshed, actions);
            }
            (Step::Look { base, to, refreshed, .. }, Event::Looked { found: false }) => {
                self.remove(base, to + 1, refreshed, actions);
            }
            (Step::Remove { base, from, refreshed }, Event::ChunksRemoved(Ok(()))) => {
                self.remove(base, from, refreshed, actions);
            }
            // What is left is looked for by the next seal.
            (Step::Remove { refreshed, .. }, Event::ChunksRemoved(Err(_))) => {
                self.end_seal(refreshed.map(|()| true), actions);
            }
            (step, _) => seal.step = step,
        }
    }

    /// Waits for the turn at the log in which the manifest is replaced.
    fn turn(&mut self, base: State, shard: Option<u64>, actions: &mut Vec<Action<E>>) {
        if is(Mutant::DatasetRemovesUnsealed) {
            let (from, to) = (base.manifest.sealed_chunks + 1, base.tail.last_chunk);
            actions.push(Action::RemoveChunks { from, to });
        }
        if let Some(seal) = &mut self.seal {
            seal.step = Step::Replace { base, shard };
            self.is_due(Job::Replace);
        }
    }

    /// The manifest was replaced and the view refreshed, or not.
    pub(super) fn manifest_replaced(
        &mut self,
        result: Result<Read<E>, Why<E>>,
        actions: &mut Vec<Action<E>>,
    ) {
        let Some(Seal { step: Step::Replace { base, .. }, .. }) = &self.seal else { return };
        let base = base.clone();
        match result {
            // Nothing reads the sealed chunks now, and there may be thousands: the log is free meanwhile.
            Ok(refreshed) => {
                let from = base.manifest.sealed_chunks + 1;
                self.look(base, from, refreshed, actions);
            }
            Err(why) => self.end_seal(Err(why), actions),
        }
    }

    /// Looks for chunks before `from` that were sealed earlier. Removals ascend, so that whatever one of them left when it was
    /// interrupted is what lies directly below.
    fn look(&mut self, base: State, from: u64, refreshed: Read<E>, actions: &mut Vec<Action<E>>) {
        let of_this = self.removed.as_ref().filter(|(id, _)| *id == base.manifest.id);
        let removed = of_this.map_or(0, |(_, last)| *last);
        if from <= removed.saturating_add(1) || is(Mutant::DatasetLeavesChunks) {
            return self.remove(base, from, refreshed, actions);
        }
        let to = from - 1;
        let from = to.saturating_sub(self.settings.removed_at_once.max(1) - 1).max(removed + 1);
        actions.push(Action::LookForChunks { from, to });
        if let Some(seal) = &mut self.seal {
            seal.step = Step::Look { base, from, to, refreshed };
        }
    }

    fn remove(&mut self, base: State, from: u64, refreshed: Read<E>, actions: &mut Vec<Action<E>>) {
        let last = base.tail.last_chunk;
        if from > last {
            self.removed = Some((base.manifest.id.clone(), last));
            return self.end_seal(refreshed.map(|()| true), actions);
        }
        let to = last.min(from.saturating_add(self.settings.removed_at_once.max(1) - 1));
        actions.push(Action::RemoveChunks { from, to });
        if let Some(seal) = &mut self.seal {
            seal.step = Step::Remove { base, from: to + 1, refreshed };
        }
    }

    fn end_seal(&mut self, result: Result<bool, Why<E>>, actions: &mut Vec<Action<E>>) {
        if let Some(Seal { tokens, .. }) = self.seal.take() {
            actions.push(Action::Sealed { tokens, result });
        }
        self.begin_seal();
    }
}
