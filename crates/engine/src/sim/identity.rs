//! Which origin a node takes, and whether those that call it have the same.
//!
//! A node that runs when another origin comes to the place of its own finds that its origin is lost; one that is started
//! meanwhile decides by what it remembers, or by what the others say.

use ground::window::Outcome;

use super::happening::{Caller, ClientReply, Happening};
use super::place::{WrongObject, right};
use super::settings::Process;
use super::state::Simulation;
use crate::gateway::{self, Failed, Head, Status};
use crate::mutant::{self, Mutant};
use crate::route::LoadReport;
use ground::origin::{Creation, OriginId, Place, Verdict, agree, judge, yields};

impl Simulation {
    /// A node starts: what it goes by.
    pub(super) fn start_place(&mut self, node: usize) {
        // Members in etcd find the identity there.
        let leased = self.settings.membership.is_some();
        let remembered = self.places[node].remembered.or(leased.then(right));
        let told = (0..self.nodes.len()).filter(|&other| other != node && self.hears(node, other));
        let told = told.filter_map(|other| self.places[other].taken).next();
        let place = &mut self.places[node];
        (place.expected, place.taken) = (remembered.or(told), None);
        (place.agreed, place.disagreed) = (false, false);
        // What no process can know: nothing is remembered, nobody says anything, and clients ask this node and not a gateway,
        // which would compare. An operator who replaces a node's disks starts it while others serve.
        let direct = self.gateways.is_empty() || self.settings.clients.any_node > 0.0;
        if place.expected.is_none() && direct {
            place.wrong.clear();
        }
        let _ = self.origin_of(node);
    }

    /// Whether a node that starts gets an answer from another.
    fn hears(&self, node: usize, other: usize) -> bool {
        let it = &self.processes[other];
        let (from, to) = (node as Process, other as Process);
        it.alive && it.paused == 0 && !self.is_cut(from, to) && !self.is_cut(to, from)
    }

    /// The origin that a node's operation reaches; `None` if it finds that its origin is lost.
    pub(super) fn origin_of(&mut self, node: usize) -> Option<OriginId> {
        let place = &mut self.places[node];
        if place.taken.is_none() {
            let compared = place.expected.filter(|_| !mutant::is(Mutant::OriginNotCompared));
            place.taken = match judge(compared, place.place(), Creation::FirstStart) {
                Verdict::Take(id) => Some(id),
                Verdict::Create => {
                    place.made = Some(OriginId::new(100 + node as u128));
                    place.made
                }
                Verdict::Refuse(_) => None,
            };
            place.remembered = place.taken.or(place.remembered);
        }
        let lost = yields(place.expected.is_some(), place.agreed, place.disagreed);
        place.taken.filter(|&taken| place.place() == Place::Origin(taken) && !lost)
    }

    /// Whether a node and the process that calls it serve the same origin, as far as both know.
    pub(super) fn same_origin(&mut self, at: usize, from: Caller) -> bool {
        let theirs = match from {
            Caller::Gateway { .. } | Caller::Ping { .. } => Some(right()),
            Caller::Peer { node, .. }
            | Caller::Lease { node, .. }
            | Caller::Invalidation { node, .. }
            | Caller::TakeBack { node, .. } => self.places[node].taken,
            Caller::Client { .. } | Caller::Offer => None,
        };
        let place = &mut self.places[at];
        if place.taken.is_some() && theirs.is_some() {
            let heard =
                if place.taken == theirs { &mut place.agreed } else { &mut place.disagreed };
            *heard = true;
        }
        agree(place.taken, theirs) || mutant::is(Mutant::OriginOfOthersNotCompared)
    }

    /// A node refuses the call of a process that serves another origin.
    pub(super) fn refuse_origin(&mut self, at: usize, from: Caller) {
        let refused =
            Head { status: Status::Misdirected, outcome: Outcome::Miss, node_length: 0, warm: 0 };
        match from {
            Caller::Gateway { .. } => {
                self.answer_from(at, from, &ClientReply::FAILED, Some(refused));
            }
            Caller::Ping { gateway, life } => {
                let event =
                    gateway::Event::Ponged { node: at, load: LoadReport::default(), fits: false };
                let what = Happening::Gateway { gateway, life, event, answer: None };
                self.send(at as Process, self.gateway_end(gateway), what);
            }
            from => self.fail_call(at, from, Failed::Broken),
        }
    }

    /// A wrong origin's object of a key.
    pub(super) fn wrong_object(&self, node: usize, key: u32) -> Option<WrongObject> {
        self.places[node].objects.get(&key).copied()
    }

    /// A node writes to a wrong origin.
    pub(super) fn write_wrong(&mut self, node: usize, key: u32, object: WrongObject) {
        self.places[node].objects.insert(key, object);
    }
}
