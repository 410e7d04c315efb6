//! How far a seal of the log into a shard is: build, put, replace the manifest, remove the chunks.

use ground::window::Nanos;

use super::event::{Action, Event, Read, Token, Why};
use super::refresh::Refresh;
use super::settings::Settings;
use super::state::State;
use crate::mutant::{Mutant, is};

/// How far a seal is. `base` is the view whose log is sealed.
#[derive(Clone, Debug)]
pub(super) enum Step<E> {
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
    pub(super) tokens: Vec<Token>,
    pub(super) step: Step<E>,
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
