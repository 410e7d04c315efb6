//! Reads a view: a manifest, its shards, and the chunks behind it, all while that manifest is current.

use std::sync::Arc;

use ground::window::Nanos;

use super::event::{Action, Event, Read, Why};
use super::settings::Settings;
use super::state::{Manifest, State};
use crate::mutant::{Mutant, is};

/// The result that is awaited.
#[derive(Clone, Debug)]
enum Step {
    Head,
    Manifest,
    Fetch(Manifest),
    Open(Manifest),
    Chunk(State),
    /// The version again, after the last chunk.
    HeadAgain(State),
    Pause(Nanos),
}

/// A view that is being read.
#[derive(Clone, Debug)]
pub(super) struct Refresh<E> {
    tries_left: u32,
    /// Whether the manifest is read again though it is the one in use.
    anew: bool,
    step: Step,
    /// The last error.
    error: Option<E>,
}

impl<E: Clone> Refresh<E> {
    pub(super) fn begin(
        settings: &Settings,
        anew: bool,
        actions: &mut Vec<Action<E>>,
    ) -> Refresh<E> {
        actions.push(Action::Head);
        Refresh { tries_left: settings.tries.max(1), anew, step: Step::Head, error: None }
    }

    pub(super) fn is_anew(&self) -> bool {
        self.anew
    }

    /// The result, once there is one. Events that are not awaited are ignored.
    pub(super) fn handle(
        &mut self,
        now: Nanos,
        event: Event<E>,
        settings: &Settings,
        view: &mut Option<State>,
        actions: &mut Vec<Action<E>>,
    ) -> Option<Read<E>> {
        let step = std::mem::replace(&mut self.step, Step::Head);
        let (step, action) = match (step, event) {
            (Step::Head, Event::Head(Ok(None))) => {
                *view = None;
                actions.push(Action::Hide);
                return Some(Ok(()));
            }
            (Step::Head, Event::Head(Ok(Some(etag)))) => self.begin_read(&etag, view, actions),
            (Step::Manifest, Event::Manifest(Ok(Some(manifest)))) => {
                (Step::Fetch(manifest), Action::Fetch)
            }
            (Step::Manifest, Event::Manifest(Ok(None))) => {
                return self.again(now, None, settings, actions);
            }
            (Step::Fetch(manifest), Event::Fetched(Ok(()))) => (Step::Open(manifest), Action::Open),
            (Step::Open(manifest), Event::Opened(Ok(tail))) => {
                let number = tail.last_chunk + 1;
                let state = State { manifest: Arc::new(manifest), tail };
                (Step::Chunk(state), Action::ReadChunk { number })
            }
            (Step::Open(manifest), Event::Opened(Err(error))) => {
                actions.push(discard(&manifest, view));
                return self.again(now, Some(error), settings, actions);
            }
            (Step::Chunk(state), Event::Chunk(Ok(Some(tail)))) => {
                let number = tail.last_chunk + 1;
                (Step::Chunk(State { tail, ..state }), Action::ReadChunk { number })
            }
            (Step::Chunk(state), Event::Chunk(Ok(None))) => {
                if is(Mutant::DatasetViewNotCompared) {
                    return show(state, view, self.anew, actions);
                }
                (Step::HeadAgain(state), Action::Head)
            }
            (Step::HeadAgain(state), Event::Head(Ok(etag))) => {
                if etag.as_ref() == Some(&state.manifest.etag) {
                    return show(state, view, self.anew, actions);
                }
                return self.again(now, None, settings, actions);
            }
            // A new manifest may have removed shards and chunks in between.
            (Step::Head | Step::HeadAgain(_), Event::Head(Err(error)))
            | (Step::Manifest, Event::Manifest(Err(error)))
            | (Step::Fetch(_), Event::Fetched(Err(error)))
            | (Step::Chunk(_), Event::Chunk(Err(error))) => {
                return self.again(now, Some(error), settings, actions);
            }
            (Step::Pause(at), Event::Tick) if now >= at => (Step::Head, Action::Head),
            // The driver's timer was early.
            (Step::Pause(at), Event::Tick) => (Step::Pause(at), Action::Wake { at }),
            (step, _) => {
                self.step = step;
                return None;
            }
        };
        self.step = step;
        actions.push(action);
        None
    }

    /// The manifest's etag is known: reads only the log behind the view if the manifest is still the view's.
    fn begin_read(
        &self,
        etag: &Arc<str>,
        view: &Option<State>,
        actions: &mut Vec<Action<E>>,
    ) -> (Step, Action<E>) {
        match view {
            Some(view) if view.manifest.etag == *etag && !self.anew => {
                actions.push(Action::FromView);
                let number = view.tail.last_chunk + 1;
                (Step::Chunk(view.clone()), Action::ReadChunk { number })
            }
            _ => (Step::Manifest, Action::ReadManifest),
        }
    }

    fn again(
        &mut self,
        now: Nanos,
        error: Option<E>,
        settings: &Settings,
        actions: &mut Vec<Action<E>>,
    ) -> Option<Read<E>> {
        self.error = error.or(self.error.take());
        self.tries_left -= 1;
        if self.tries_left == 0 {
            return Some(Err(self.error.take().map_or(Why::Changing, Why::Store)));
        }
        let at = now.saturating_add(settings.pause);
        self.step = Step::Pause(at);
        actions.push(Action::Wake { at });
        None
    }
}

/// Discards the copies of a manifest's shards that could not be opened, since a copy may be damaged, but for those that the
/// view uses.
fn discard<E>(manifest: &Manifest, view: &Option<State>) -> Action<E> {
    let used = view.as_ref().filter(|view| view.manifest.id == manifest.id);
    let used = used.filter(|_| !is(Mutant::DatasetDiscardsUsed));
    Action::Discard {
        keep: used.map_or_else(|| Arc::from([]), |view| view.manifest.shards.clone()),
    }
}

fn show<E>(
    state: State,
    view: &mut Option<State>,
    anew: bool,
    actions: &mut Vec<Action<E>>,
) -> Option<Read<E>> {
    let is_same = |view: &State| {
        view.manifest.etag == state.manifest.etag && view.tail == state.tail && !anew
    };
    if !view.as_ref().is_some_and(is_same) {
        *view = Some(state);
        actions.push(Action::Show);
    }
    Some(Ok(()))
}
