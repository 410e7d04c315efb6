//! Seals the log into a shard: build, put, replace the manifest, remove the chunks.

use ground::window::Nanos;

use super::refresh::Refresh;
use super::{Action, Dataset, Event, Job, Read, Reader, Settings, State, Token, Why};
use crate::mutant::{Mutant, is};

/// How far a seal is. `base` is the view whose log is sealed.
#[derive(Clone, Debug)]
enum Step<E> {
    View,
    Build(State),
    Put {
        base: State,
        number: u64,
        tries_left: u32,
    },
    Replace {
        base: State,
        shard: Option<u64>,
    },
    /// Looks for sealed chunks that an earlier removal left, from the last one down.
    Look {
        base: State,
        from: u64,
        to: u64,
        refreshed: Read<E>,
    },
    Remove {
        base: State,
        from: u64,
        refreshed: Read<E>,
    },
}

/// A seal that is under way.
#[derive(Clone, Debug)]
pub(super) struct Seal<E> {
    /// Who asked for it; empty if the log was large.
    tokens: Vec<Token>,
    step: Step<E>,
}

impl<E: Clone> Seal<E> {
    pub(super) fn new(tokens: Vec<Token>) -> Seal<E> {
        Seal { tokens, step: Step::View }
    }

    /// Replaces the manifest, for which the seal has its turn at the log now.
    pub(super) fn replace(
        &self,
        view: Option<&State>,
        actions: &mut Vec<Action<E>>,
    ) -> Option<Replace<E>> {
        let Step::Replace { base, shard } = &self.step else { return None };
        let present = view.filter(|_| is(Mutant::DatasetPublishesOver));
        let over = present.unwrap_or(base).manifest.etag.clone();
        actions.push(Action::Replace { over, shard: *shard });
        Some(Replace { base: base.clone(), shard: *shard, step: ReplaceStep::Replace })
    }
}

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

/// The result that is awaited.
#[derive(Clone, Debug)]
enum ReplaceStep<E> {
    Replace,
    /// The view is refreshed because another manifest is current.
    Other(Refresh<E>),
    RemoveShard,
    /// The view is refreshed because the manifest was replaced.
    Done(Refresh<E>),
}

/// A manifest that is being replaced.
#[derive(Clone, Debug)]
pub(super) struct Replace<E> {
    base: State,
    shard: Option<u64>,
    step: ReplaceStep<E>,
}

impl<E: Clone> Replace<E> {
    /// The result, once there is one: if the manifest was replaced, that of the refresh after it. Events that are
    /// not awaited are ignored.
    pub(super) fn handle(
        &mut self,
        now: Nanos,
        event: Event<E>,
        settings: &Settings,
        view: &mut Option<State>,
        actions: &mut Vec<Action<E>>,
    ) -> Option<Result<Read<E>, Why<E>>> {
        match (&mut self.step, event) {
            (ReplaceStep::Replace, Event::Replaced(Ok(true))) => self.done(settings, actions),
            (ReplaceStep::Replace, Event::Replaced(Ok(false))) => {
                self.step = ReplaceStep::Other(Refresh::begin(settings, false, actions));
            }
            // Which manifest is current is unknown, so that the shard stays, listed or not.
            (ReplaceStep::Replace, Event::Replaced(Err(error)))
            | (ReplaceStep::RemoveShard, Event::ShardRemoved(Err(error))) => {
                return Some(Err(Why::Store(error)));
            }
            (ReplaceStep::Other(refresh), event) => {
                if let Err(why) = refresh.handle(now, event, settings, view, actions)? {
                    return Some(Err(why));
                }
                // Only the reply may be lost: then the current manifest, or a later one, lists the shard.
                let Some(number) = self.shard else { return Some(Err(Why::Lost)) };
                let is_listed = view.as_ref().is_some_and(|view| {
                    view.manifest.id == self.base.manifest.id
                        && view.manifest.shards.contains(&number)
                });
                if is_listed && !is(Mutant::DatasetRemovesListed) {
                    self.done(settings, actions);
                } else {
                    self.step = ReplaceStep::RemoveShard;
                    actions.push(Action::RemoveShard { number });
                }
            }
            (ReplaceStep::RemoveShard, Event::ShardRemoved(Ok(()))) => {
                return Some(Err(Why::Lost));
            }
            (ReplaceStep::Done(refresh), event) => {
                return refresh.handle(now, event, settings, view, actions).map(Ok);
            }
            _ => {}
        }
        None
    }

    fn done(&mut self, settings: &Settings, actions: &mut Vec<Action<E>>) {
        // The copy is in place before the view that uses it is read.
        actions.extend(self.shard.map(|number| Action::Keep { number }));
        self.step = ReplaceStep::Done(Refresh::begin(settings, false, actions));
    }
}
