//! Clients that empty all servers, and what no read may return afterwards.

use std::collections::{BTreeMap, HashMap, VecDeque};

use ground::window::Nanos;

use super::server::{Job, Sent};
use super::{Event, KEYS, RequestId, World};

/// Flushes under way, and what ended ones have removed.
#[derive(Default)]
pub(super) struct Flushes {
    running: HashMap<RequestId, Running>,
    /// By key, the last set that was acknowledged before a flush that is acknowledged.
    pub(super) floors: BTreeMap<u64, u64>,
}

impl Flushes {
    /// Whether none is under way.
    pub(super) fn are_over(&self) -> bool {
        self.running.is_empty()
    }
}

struct Running {
    /// By key, the last set that was acknowledged when it came.
    floors: BTreeMap<u64, u64>,
    awaited: Vec<usize>,
    left: usize,
    failed: Vec<usize>,
}

impl World {
    pub(super) fn flush(&mut self, now: Nanos, request: RequestId) {
        let last = |key: u64| {
            let all = self.acknowledged.get(&key).into_iter().flatten();
            Some((key, all.map(|(_, order)| order >> 8).max()?))
        };
        let floors = (0..KEYS).filter_map(last).collect();
        self.marks.clear();
        self.last_writes.extend((0..KEYS).map(|key| (key, request)));
        self.flushes
            .running
            .insert(request, Running { floors, awaited: Vec::new(), left: 0, failed: Vec::new() });
        self.tell(now, Event::FlushAll { request });
    }

    pub(super) fn broadcast(
        &mut self,
        now: Nanos,
        request: RequestId,
        awaited: Vec<usize>,
        events: &mut VecDeque<Event>,
    ) {
        let Some(flush) = self.flushes.running.get_mut(&request) else { panic!("not asked for") };
        flush.awaited = awaited;
        for (at, server) in self.servers.iter_mut().enumerate() {
            let is_awaited = flush.awaited.contains(&at);
            if server.down_until > now {
                flush.failed.extend(is_awaited.then_some(at));
            } else {
                flush.left += usize::from(is_awaited);
                let sent =
                    Sent { attempt: 0, keys: Vec::new(), job: Job::Read, flush: Some(request) };
                server.queue.push_back(sent);
            }
        }
        for at in 0..self.servers.len() {
            self.work(now, at);
        }
        if self.flushes.running.get(&request).is_some_and(|flush| flush.left == 0) {
            events.push_back(self.end_flush(request));
        }
    }

    /// A flush is carried out by a server, or not.
    pub(super) fn flush_reached(&mut self, now: Nanos, request: RequestId, at: usize, done: bool) {
        if done {
            self.servers[at].values.clear();
        }
        // A server that gets copies alone may answer when the flush has ended.
        let running = self.flushes.running.get_mut(&request);
        let Some(flush) = running.filter(|flush| flush.awaited.contains(&at)) else { return };
        flush.left -= 1;
        if !done {
            flush.failed.push(at);
        }
        if flush.left == 0 {
            let ended = self.end_flush(request);
            self.tell(now, ended);
        }
    }

    fn end_flush(&mut self, request: RequestId) -> Event {
        let Some(flush) = self.flushes.running.remove(&request) else { panic!("not under way") };
        if flush.failed.is_empty() {
            for (key, floor) in flush.floors {
                let known = self.flushes.floors.entry(key).or_default();
                *known = floor.max(*known);
            }
            self.finished += 1;
        } else {
            self.refused += 1;
        }
        Event::FlushEnded { request, failed: flush.failed }
    }
}
