//! The state of a node: its tiers, what is under way, and what waits. It changes in the files beside it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use ground::window::{Nanos, Recorder};
use serde::{Deserialize, Serialize};

use super::authorities::{Authorities, AuthorityNumber, Verified};
use super::cluster::Cluster;
use super::device::{Device, Service};
use super::event::{DeviceId, JobId, RequestId};
use super::flights::Flights;
use super::hot::class_state::Hot;
use super::hot::keys_state::HotKeys;
use super::index::{Index, Place};
use super::reuse::Reuse;
use super::settings::Settings;
use crate::invariant::Invariants;
use crate::queue::Queue;
use crate::route::{Ring, Speed};
use crate::tier::{Keyed, Location, Memory};
use crate::{KeyedPayload, Payload};
use ground::Key;

/// An object in memory. There is one for each small object, so that what is beside the object counts: 16 bytes.
pub(super) struct MemoryEntry<P: Payload> {
    object: P::Keyed,
    /// When it was verified, if it was: see `authority`.
    verified_at: Nanos,
    /// Under which authority it was verified; `None` if it was not.
    authority: Option<AuthorityNumber>,
    /// The number of reads from memory, counted up to 2.
    hits: u8,
    /// The key's nodes it was offered to, as bits of their places.
    pub(super) warm: u8,
}

impl<P: Payload> Keyed for MemoryEntry<P> {
    fn key(&self) -> &[u8] {
        self.object.key()
    }
}

impl<P: Payload> MemoryEntry<P> {
    /// An entry that was neither read nor offered.
    pub(super) fn new(
        object: P::Keyed,
        verified: Option<Verified>,
        authorities: &mut Authorities,
    ) -> MemoryEntry<P> {
        let mut entry = MemoryEntry { object, verified_at: 0, authority: None, hits: 0, warm: 0 };
        entry.verify(verified, authorities);
        entry
    }

    pub(super) fn payload(&self) -> &P {
        self.object.payload()
    }

    pub(super) fn verified(&self, authorities: &Authorities) -> Option<Verified> {
        let authority = authorities.get(self.authority?)?;
        Some(Verified { at: self.verified_at, authority })
    }

    pub(super) fn verify(&mut self, verified: Option<Verified>, authorities: &mut Authorities) {
        self.verified_at = verified.map_or(0, |verified| verified.at);
        self.authority = verified.and_then(|verified| authorities.number_of(verified.authority));
    }

    /// Counts a read: the object, its marks of other nodes, and whether it is to be offered to them.
    pub(super) fn read(&mut self) -> (P, u8, bool) {
        self.hits = (self.hits + 1).min(2);
        (self.payload().clone(), self.warm, self.hits == 2 && self.warm == 0)
    }
}

/// A record that is being written to a device.
pub(super) struct Appending<P> {
    pub(super) device: DeviceId,
    pub(super) location: Location,
    pub(super) key: Key,
    /// The object, from which it is read until the record can be: memory may have no room for it any more.
    pub(super) payload: P,
    pub(super) verified: Option<Verified>,
    /// What it counts in [`Node::appending_bytes`].
    pub(super) held_bytes: u64,
    /// The record that it is a copy of, if one was read for it.
    pub(super) copy_of: Option<Place>,
    /// The object, if a copy on a hot device is to follow.
    pub(super) then_hot: Option<P>,
    /// A write to the key ended meanwhile: the record must not be indexed.
    pub(super) void: bool,
}

/// The writes of one key: the one that has its turn, and those that wait for theirs.
pub(super) struct Writers {
    pub(super) current: RequestId,
    /// Until when it may be made: another node may write after that. `MAX` while this node orders the key.
    pub(super) until: Nanos,
    /// Those that wait, each with the epoch of [`super::Event::WriteBegin`].
    pub(super) waiting: VecDeque<(RequestId, Option<u64>)>,
}

/// A storage server's state. See the module.
///
/// `handle` costs well under a microsecond for a hit; nothing here iterates over all objects.
pub struct Node<P: Payload> {
    pub(super) settings: Settings,
    pub(super) memory: Memory<MemoryEntry<P>>,
    /// Those under which entries of memory were verified.
    pub(super) authorities: Authorities,
    pub(super) index: Index,
    pub(super) devices: Vec<Device>,
    /// Present if there are devices of both classes.
    pub(super) hot: Option<Hot>,
    /// Present once there are hot nodes.
    pub(super) hot_keys: Option<Box<HotKeys>>,
    /// Counts choices of a device, for [`super::Choice::RoundRobin`].
    pub(super) turn: u64,
    pub(super) origin: Queue<JobId>,
    /// Set while the origin's last request failed: when to probe it next.
    pub(super) origin_down: Option<Nanos>,
    /// Requests for objects to peers.
    pub(super) peers: Queue<JobId>,
    /// How long the origin takes to say which version is current.
    pub(super) comparisons: Service,
    /// Reads of devices that found another key's record.
    pub(super) other_keys: u64,
    pub(super) cluster: Option<Cluster>,
    pub(super) warm: Warm,
    pub(super) flights: Flights,
    /// What readers of flights that are read in pieces are given, from their first piece on.
    pub(super) opened: HashMap<JobId, P>,
    pub(super) appending: HashMap<JobId, Appending<P>>,
    /// The newest of a key's records that are being written and not void.
    pub(super) appending_of: HashMap<Key, JobId>,
    pub(super) appending_bytes: u64,
    pub(super) writers: HashMap<Key, Writers>,
    pub(super) writes_waiting: u32,
    pub(super) recorder: Recorder,
    /// Of the reads of clients.
    pub(super) speed: Speed,
    /// Present if it was asked for.
    pub(super) reuse: Option<Reuse>,
    pub(super) invariants: Invariants,
    pub(super) next_job: JobId,
    /// The latest time of any event.
    pub(super) now: Nanos,
}

/// Classes of keys by their reads.
pub(super) const CLASSES: usize = 3;

/// Nodes that are to be warmed.
pub(super) struct Warming {
    /// The ring before.
    pub(super) from: Arc<Ring>,
    pub(super) begins: Nanos,
    /// How much of memory's order was looked at; `None`: all.
    pub(super) place: Option<usize>,
    /// By class, the keys and how often each was put off.
    pub(super) keys: [VecDeque<(Key, u8)>; CLASSES],
    /// Bytes that may be offered now, and when that was computed.
    pub(super) budget: (f64, Nanos),
}

impl Warming {
    pub(super) fn waiting_count(&self) -> usize {
        self.keys.iter().map(VecDeque::len).sum()
    }

    pub(super) fn next(&mut self) -> Option<(usize, Key, u8)> {
        let class = self.keys.iter().position(|keys| !keys.is_empty())?;
        self.keys[class].pop_front().map(|(key, tries)| (class, key, tries))
    }
}

/// The present warming of others, and what was done so far.
#[derive(Default)]
pub(super) struct Warm {
    pub(super) now: Option<Warming>,
    pub(super) done: Warmed,
}

/// What was done of it since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warmed {
    /// Objects offered, once for each node.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Comparisons with the origin before.
    pub compared: u64,
    /// Objects that are known to wait; more may be found.
    pub waiting: u64,
    /// Whether it goes on.
    pub goes_on: bool,
}
