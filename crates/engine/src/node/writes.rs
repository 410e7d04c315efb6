//! Writes: one at a time for each key, and nothing older after them.

use std::collections::VecDeque;

use model::window::Nanos;

use super::{Action, Node, Reply, RequestId, Stages, Writers};
use crate::{Key, Payload};

impl<P: Payload> Node<P> {
    pub(super) fn write_begin(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        actions: &mut Vec<Action<P>>,
    ) {
        match self.writers.get_mut(&key) {
            None => {
                let writers = Writers { current: request, waiting: VecDeque::new() };
                self.writers.insert(key, writers);
                actions.push(Action::WriteTurn { request });
            }
            Some(_) if self.writes_waiting >= self.settings.writes_waiting_max => {
                let reply = Reply::Busy { queue: "writes".into() };
                let stages = Stages {
                    received: now,
                    queued: now,
                    started: now,
                    served: now,
                    ..Stages::default()
                };
                actions.push(Action::Reply { request, reply, stages });
            }
            Some(writers) => {
                writers.waiting.push_back(request);
                self.writes_waiting += 1;
            }
        }
    }

    pub(super) fn write_end(
        &mut self,
        now: Nanos,
        request: RequestId,
        key: Key,
        payload: Option<P>,
        actions: &mut Vec<Action<P>>,
    ) {
        let Some(writers) = self.writers.get_mut(&key) else { return };
        if writers.current != request {
            // It waited for its turn and its client left.
            let before = writers.waiting.len();
            writers.waiting.retain(|&waiting| waiting != request);
            self.writes_waiting -= (before - writers.waiting.len()) as u32;
            return;
        }
        match writers.waiting.pop_front() {
            Some(next) => {
                writers.current = next;
                self.writes_waiting -= 1;
                actions.push(Action::WriteTurn { request: next });
            }
            None => {
                self.writers.remove(&key);
            }
        }
        self.forget(&key);
        self.flights.void(&key);
        if let Some(payload) = payload {
            self.append(&key, &payload, Some(now), actions);
            self.keep(key, payload, Some(now), actions);
        }
    }
}
