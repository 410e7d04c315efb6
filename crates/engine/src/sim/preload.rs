//! Clusters that start warm.

use std::collections::VecDeque;

use super::happening::key_name;
use super::state::Simulation;
use crate::Size;
use crate::node::{Action, Event, PeerReply};

/// A preload asks whether it goes on after so many keys: a few milliseconds.
const LOOK_KEYS: u32 = 1 << 10;

impl Simulation {
    /// Places the objects of all keys as if all had been read, the last key first: on each key's
    /// first node or, with `replicas`, on all of its nodes. Only at time 0 and with static
    /// membership.
    pub fn preload(&mut self, replicas: bool) {
        self.preload_while(replicas, &mut |_| true);
    }

    /// The same, for as long as `goes_on`, which is told the part of the keys that are in their places, 0 to 1. Returns whether all
    /// are.
    pub fn preload_while(&mut self, replicas: bool, goes_on: &mut dyn FnMut(f64) -> bool) -> bool {
        self.lend();
        let keys = self.settings.clients.keys;
        for key in (0..keys).rev() {
            let done = keys - 1 - key;
            if done.is_multiple_of(LOOK_KEYS) && !goes_on(f64::from(done) / f64::from(keys)) {
                return false;
            }
            let name = key_name(key);
            let Some(payload) = self.origin.payload(key) else { continue };
            let nodes = self.settings.ring.replicas(&name);
            let mut nodes = nodes.iter();
            let Some(primary) = nodes.next() else { continue };
            self.take_in(
                primary,
                Event::WriteBegin { request: u64::MAX, key: name.clone(), epoch: None },
                None,
            );
            let written = Event::WriteEnd {
                request: u64::MAX,
                key: name.clone(),
                payload: Some(payload.clone()),
            };
            self.take_in(primary, written, None);
            if replicas {
                for node in nodes {
                    let offered = Event::Offered { key: name.clone() };
                    self.take_in(node, offered, Some(&payload));
                }
            }
        }
        true
    }

    /// Gives each node a lease from each other node.
    fn lend(&mut self) {
        for from in 0..self.nodes.len() {
            let Some(cluster) = &self.settings.nodes[from].cluster else { continue };
            let term = cluster.lease;
            for to in (0..self.nodes.len()).filter(|&to| to != from) {
                self.take_in(from, Event::LeaseAsked { peer: to, epoch: None }, None);
                let asked = self.local(to);
                self.take_in(to, Event::LeaseGranted { peer: from, asked, term }, None);
            }
        }
    }

    /// Sends a node an event and carries out its actions in zero time.
    fn take_in(&mut self, at: usize, event: Event<Size>, fill: Option<&Size>) {
        let now = self.local(at);
        let mut events = VecDeque::from([event]);
        let mut actions = Vec::new();
        while let Some(event) = events.pop_front() {
            self.nodes[at].node.handle(now, event, &mut actions);
            for action in actions.drain(..) {
                match action {
                    Action::Append { device, location, key, payload, job } => {
                        self.nodes[at].disks[device].write(location, key, payload, 0);
                        events.push_back(Event::Appended { job, written: true, full: false });
                    }
                    Action::DropSegment { device, segment } => {
                        self.nodes[at].disks[device].drop(segment);
                    }
                    Action::Invalidate { peer, request, .. } => {
                        events.push_back(Event::Invalidated { request, peer, done: true });
                    }
                    Action::Ask { job, .. } => {
                        let result = match fill {
                            Some(payload) => PeerReply::Found { payload: payload.clone(), age: 0 },
                            None => PeerReply::NotHere,
                        };
                        events.push_back(Event::Answered { job, result });
                    }
                    _ => {}
                }
            }
        }
    }
}
