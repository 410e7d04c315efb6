//! What is at the place of each node's origin, and which origin the node takes.
//!
//! A fault puts an empty place or another origin where the right one was, as a file system that is not mounted does. A node
//! that is running then finds that its origin is lost; one that is started meanwhile decides by what it remembers, or by what
//! the others say.

use std::collections::HashMap;

use ground::window::Outcome;

use super::Simulation;
use super::check::Version;
use super::happening::{Caller, ClientReply, Happening};
use super::settings::Process;
use crate::gateway::{self, Failed, Head, Status};
use crate::mutant::{self, Mutant};
use crate::route::LoadReport;
use ground::origin::{Creation, OriginId, Place, Verdict, agree, judge, yields};

/// A version of a key in a wrong origin: its number and, unless it was deleted, its bytes.
type WrongObject = (Version, Option<u64>);

/// The origin that holds the objects.
pub(super) fn right() -> OriginId {
    OriginId::new(1)
}

/// A node's side of the origin.
pub(super) struct OriginPlace {
    /// The faults under way, and whether they leave the place empty.
    wrong: Vec<(usize, bool)>,
    /// The origin that was made in an empty place during these faults.
    made: Option<OriginId>,
    /// What the node's devices remember.
    remembered: Option<OriginId>,
    /// What this life of the node goes by: what is remembered, or what the others said when it started.
    expected: Option<OriginId>,
    /// The origin that this life took.
    pub taken: Option<OriginId>,
    agreed: bool,
    disagreed: bool,
    /// Objects of the wrong origin.
    objects: HashMap<u32, WrongObject>,
}

impl OriginPlace {
    /// Of a node that runs when the simulation begins.
    pub fn new() -> OriginPlace {
        let right = Some(right());
        OriginPlace {
            wrong: Vec::new(),
            made: None,
            remembered: right,
            expected: right,
            taken: right,
            agreed: false,
            disagreed: false,
            objects: HashMap::new(),
        }
    }

    fn place(&self) -> Place {
        match (self.wrong.last(), self.made) {
            (None, _) => Place::Origin(right()),
            (Some((_, true)), None) => Place::Empty,
            (Some((_, true)), Some(made)) => Place::Origin(made),
            (Some((_, false)), _) => Place::Origin(OriginId::new(2)),
        }
    }

    /// Its devices were lost, and what they remembered with them.
    pub fn forget(&mut self) {
        self.remembered = None;
    }

    /// A fault begins.
    pub fn go_wrong(&mut self, fault: usize, empty: bool) {
        (self.made, self.objects) = (None, HashMap::new());
        self.wrong.push((fault, empty));
    }

    /// A fault ends.
    pub fn mend(&mut self, fault: usize) {
        self.wrong.retain(|(other, _)| *other != fault);
    }
}

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
