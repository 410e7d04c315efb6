//! A storage server: its memory tier and devices, coalescing of misses, and the order of writes.
//!
//! A read is answered from the memory tier at once, or waits in a *flight*: one retrieval of a key
//! that every later reader of that key joins. A flight goes to the device that holds the object, to
//! a peer or to the origin, and its result fills the memory tier and a device. The writes of a key
//! take turns. When a write ends, whatever its result, the older version is removed from every tier
//! and flights that may carry it are *voided*: they still answer the readers that came before the
//! write ended, but fill no tier. So after an acknowledged write no later read returns an older
//! version.
//!
//! In a cluster ([`ClusterSettings`]) a key belongs to several nodes. Its primary orders its writes
//! and tells the other nodes to drop their copies before a write is acknowledged. The others serve
//! copies under leases from the primary; nodes fill their tiers from each other before they use the
//! origin.
//!
//! A node with hot and bulk devices keeps a second copy of what is read often on a hot one, and reads
//! the copy with the shorter expected wait (`hot::class`). A device whose reads fail is taken out until it
//! works again (`device`). Of what is read most, hot nodes of the cluster hold copies (`hot::keys`).
//!
//! Objects found on a device at a restart, and objects that were not compared with the origin for
//! [`Settings::revalidate`], are compared with it by etag before they are served.

mod authorities;
mod cluster;
mod depth;
mod device;
mod event;
mod extent;
mod failure;
mod flights;
mod handover;
mod hot;
mod index;
mod leases;
mod memory_use;
mod pieces;
mod reads;
mod remote;
mod reply;
mod reuse;
mod settings;
mod stamps;
mod state;
mod terms;
#[cfg(test)]
mod tests;
mod tiers;
mod warm;
mod writes;

pub use cluster::PeerStatus;
pub use depth::Reason as DepthReason;
pub use device::DeviceState;
pub use event::{
    Action, Asker, Checked, DeviceId, Event, Fetched, JobId, PeerReply, ReadsTold, RequestId,
    RestoredSegment, Unread,
};
pub use extent::{Extent, Part, Take};
pub use failure::{Failure, FailureKind};
pub use hot::class_report::{DeviceClass, DeviceTier, HotTier, Moved, Tiers};
pub use hot::class_state::{Bought, Hottest, MoveKind, Moves};
pub use hot::keys_report::{HotKey, HotKeyMoved, HotNodes};
pub use hot::keys_state::{HOT_KEYS_MAX, HotDirectory, HotNodesBought, HotNodesMoves, TOLD_MAX};
pub use memory_use::MemoryUse;
pub use reply::{Hit, Reply, Stages};
pub use settings::{
    Choice, ClusterSettings, DeviceSettings, OriginSettings, Pin, Settings, TierSettings,
};

pub use crate::tier::Restored;
pub use state::{Node, Warmed};

use std::collections::HashMap;

use ground::window::{Nanos, QueueName, Recorder, Window};
use serde::{Deserialize, Serialize};

use crate::Payload;
use crate::invariant::Invariants;
use crate::mutant::{self, Mutant};
use crate::queue::Queue;
use crate::route::{LoadReport, Speed};
use crate::tier::{Memory, Work};
use authorities::{Authorities, Authority, Verified};
use cluster::Cluster;
use device::{AppendEnd, Device, Service};
use flights::Flights;
use hot::class_state::Hot;
use index::{Index, Place};
use reads::ReadRequest;
use stamps::Stamps;
use state::Warm;

/// What a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Objects in the memory tier.
    pub memory_objects: usize,
    /// Bytes of the memory tier, overhead included.
    pub memory_bytes: u64,
    /// Maximum bytes of the memory tier at present.
    pub memory_bytes_max: u64,
    /// Objects on devices; second copies on hot devices do not count.
    pub device_objects: usize,
    /// Bytes of memory of the index of the devices' objects.
    pub index_bytes: u64,
    /// Bytes on each device, replaced versions included.
    pub device_bytes: Vec<u64>,
    /// Bytes of memory of the objects that wait to be written to devices.
    #[serde(default)]
    pub appending_bytes: u64,
    /// Reads that wait for a device or the origin, by key.
    pub flights: usize,
    /// Readers that wait for these.
    pub readers: usize,
    /// Writes that have their turn, wait for it, or wait for other nodes.
    pub writers: usize,
}

impl<P: Payload> Node<P> {
    /// An empty node at time `now`.
    pub fn new(settings: Settings, now: Nanos) -> Node<P> {
        let devices = settings.devices.iter().map(|d| {
            let windows = settings.windows.clone();
            Device::new(d, Queue::new(&d.name, d.servers, d.queue_length_max, windows, now))
        });
        let devices: Vec<Device> = devices.collect();
        let members = |cluster: &ClusterSettings| cluster.ring.members().len();
        let origin = &settings.origin;
        let peers = settings.cluster.as_ref().map_or(origin, |cluster| &cluster.peers);
        Node {
            memory: Memory::new(settings.eviction, settings.memory_bytes_max),
            authorities: Authorities::default(),
            index: Index::new(
                settings.tiers.index_bits,
                Stamps::new(settings.revalidate, settings.cluster.as_ref().map_or(1, members)),
            ),
            comparisons: Service::default(),
            other_keys: 0,
            hot: Hot::new(&settings.tiers, &devices, now),
            hot_keys: None,
            turn: 0,
            devices,
            origin: Queue::new(
                &QueueName::Origin.to_string(),
                origin.servers,
                origin.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            origin_down: None,
            peers: Queue::new(
                &QueueName::Peers.to_string(),
                peers.servers,
                peers.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            cluster: settings.cluster.clone().map(|cluster| Cluster::new(cluster, now)),
            warm: Warm::default(),
            flights: Flights::default(),
            opened: HashMap::new(),
            appending: HashMap::new(),
            appending_of: HashMap::new(),
            appending_bytes: 0,
            writers: HashMap::new(),
            writes_waiting: 0,
            recorder: Recorder::new(&QueueName::Node.to_string(), 0, settings.windows.clone(), now),
            speed: Speed::default(),
            reuse: None,
            invariants: Invariants::default(),
            next_job: 0,
            now,
            settings,
        }
    }

    /// Adds all segments that were found on devices at start; a device's segments come in ascending
    /// order. To be called once, before the first event. Their objects are compared with the origin
    /// before they are served. `carry_out` must carry out all pieces of work; they may run at the
    /// same time. Cost: some 100 ns a record, divided by the threads.
    pub fn restore(
        &mut self,
        found: &[RestoredSegment<'_>],
        carry_out: impl FnOnce(Vec<Work<'_>>),
    ) {
        if found.iter().any(|found| found.device >= self.devices.len()) {
            return self.invariants.broken();
        }
        // Nothing is known of what happened to them meanwhile.
        let trusted = Verified { at: self.now, authority: Authority::ALONE };
        let verified = mutant::is(Mutant::RestoredTrusted).then_some(trusted);
        let hot: Vec<bool> = (0..self.devices.len()).map(|device| self.is_hot(device)).collect();
        if !self.index.restore(found, |device| hot[device], verified, carry_out) {
            return self.invariants.broken();
        }
        for &RestoredSegment { device, segment, records } in found {
            let bytes = records.iter().map(|record| u64::from(record.bytes)).sum();
            self.devices[device].log.restore(segment, bytes);
        }
    }

    /// A device cannot be used until the process ends.
    pub fn unusable(&mut self, device: DeviceId) {
        match self.devices.get_mut(device) {
            Some(on) => on.health.retire(self.now),
            None => self.invariants.broken(),
        }
    }

    /// Handles an event that happened at `now` and appends the resulting actions. Times may run
    /// back by as much as a completion is reported late.
    pub fn handle(&mut self, now: Nanos, event: Event<P>, actions: &mut Vec<Action<P>>) {
        self.now = self.now.max(now);
        match event {
            Event::Get { request, key, asker, deadline, take } => {
                let read = ReadRequest { request, key, asker, deadline, take };
                self.get(now, read, actions);
            }
            Event::WriteBegin { request, key, epoch } => {
                self.write_begin(now, request, key, epoch, actions);
            }
            Event::WriteGivenUp { request, key } => {
                self.write_given_up(now, request, &key, actions)
            }
            Event::WriteEnd { request, key, payload } => {
                self.write_end(now, request, key, payload, actions);
            }
            Event::Read { job, result: Ok(payload), left } if left > 0 => {
                self.read_piece(now, job, payload, actions);
            }
            Event::Read { job, result, .. } => self.read(now, job, result, true, actions),
            Event::Appended { job, written, full } => {
                self.appended(now, job, AppendEnd::new(written, full), actions);
            }
            Event::Listed { device, segment, keys } => {
                self.listed(now, device, segment, keys, actions);
            }
            Event::Damaged { device, location, key } => {
                self.damaged(now, Place { device, location }, key, actions);
            }
            Event::Fetched { job, result } => self.fetched(now, job, result, actions),
            Event::Checked { job, result } => self.checked(now, job, result, actions),
            Event::Answered { job, result } => self.peer_replied(now, job, result, actions),
            Event::LeaseAsked { peer, epoch } => self.lease_asked(now, peer, epoch, actions),
            Event::LeaseGranted { peer, asked, term } => {
                self.lease_granted(now, peer, asked, term);
            }
            Event::Invalidate { key } => self.invalidate(&key),
            Event::Invalidated { request, peer, done } => {
                self.invalidated(now, request, peer, done, actions);
            }
            Event::Offered { key } => self.offered(now, key, actions),
            Event::Return { peer } => self.give_back(peer),
            Event::Returned { peer, done } => self.returned(now, peer, done, actions),
            Event::HandOver => self.hand_over(now, actions),
            Event::ReadsTold { peer, told } => self.reads_told(now, peer, &told),
            Event::View(view) => {
                let before = self.ring_before();
                self.view(now, view, actions);
                if let Some(before) = before {
                    self.begin_warming(now, before);
                }
            }
            Event::Clear => self.clear(),
            Event::Tick => {
                self.tick(now, actions);
                self.warm_others(now, actions);
            }
            Event::Bound { device, length_max } => match self.devices.get_mut(device) {
                Some(on) => on.queue.set_length_max(length_max),
                None => self.invariants.broken(),
            },
            Event::MemoryMax { bytes } => self.set_memory_max(bytes, actions),
            Event::Copying(on) => {
                if let Some(hot) = &mut self.hot {
                    hot.copying = on;
                }
            }
        }
    }

    /// The windows of all queues that ended by `now`.
    pub fn windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.roll(now);
        windows.extend(self.origin.windows(now));
        if self.cluster.is_some() {
            windows.extend(self.peers.windows(now));
        }
        windows.extend(self.devices.iter_mut().flat_map(|d| d.queue.windows(now)));
        windows
    }

    /// The windows of all queues that ended by `now`, and the open ones.
    pub fn flush_windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.flush(now);
        windows.extend(self.origin.flush(now));
        if self.cluster.is_some() {
            windows.extend(self.peers.flush(now));
        }
        windows.extend(self.devices.iter_mut().flat_map(|d| d.queue.flush(now)));
        windows
    }

    /// The bound of a device's queue, and the one in the settings.
    pub fn bound(&self, device: DeviceId) -> Option<(u32, u32)> {
        let present = self.devices.get(device)?.queue.length_max();
        Some((present, self.settings.devices.get(device)?.queue_length_max))
    }

    /// What gateways are told of the node's load.
    pub fn load(&self, now: Nanos) -> LoadReport {
        let length = self.flights.len() as u32;
        LoadReport { length, response_per_length: self.speed.response_per_length(now) }
    }

    /// What the node holds. Cost: a look at each flight.
    pub fn contents(&self) -> Contents {
        Contents {
            memory_objects: self.memory.len(),
            memory_bytes: self.memory.bytes(),
            memory_bytes_max: self.memory.bytes_max(),
            device_objects: self.index.len(),
            index_bytes: self.index.memory_bytes(),
            device_bytes: self.devices.iter().map(|d| d.log.bytes()).collect(),
            appending_bytes: self.appending_bytes,
            flights: self.flights.len(),
            readers: self.flights.readers(),
            writers: self.writers.len()
                + self.writes_waiting as usize
                + self.cluster.as_ref().map_or(0, Cluster::pending_writes),
        }
    }

    /// Invariants that broke since the start: states that cannot occur, counted instead of a crash.
    pub fn invariants(&self) -> Invariants {
        self.invariants.clone().merged(&self.flights.invariants)
    }

    /// The state of each peer as this node sees it; empty without a cluster.
    pub fn peers(&self, now: Nanos) -> Vec<PeerStatus> {
        self.cluster.as_ref().map_or(Vec::new(), |cluster| cluster.status(now))
    }

    /// The authority to serve copies of a key now; `None`: each is compared with the origin first.
    fn authority(&self, key: &[u8], now: Nanos) -> Option<Authority> {
        match &self.cluster {
            None => Some(Authority::ALONE),
            Some(cluster) => cluster.authority(key, now),
        }
    }

    /// Whether a copy may be served as it is.
    fn is_fresh(
        &self,
        verified: Option<Verified>,
        authority: Option<Authority>,
        now: Nanos,
    ) -> bool {
        Node::<P>::is_within(self.settings.revalidate, verified, authority, now)
    }

    /// Whether a copy may be served while the origin does not answer.
    fn may_be_stale(
        &self,
        verified: Option<Verified>,
        authority: Option<Authority>,
        now: Nanos,
    ) -> bool {
        let longer = self.settings.stale_if_error;
        let bound = self.settings.revalidate.map(|bound| bound.saturating_add(longer));
        Node::<P>::is_within(bound, verified, authority, now)
    }

    /// Whether a copy may be served now: as it is, or because the origin does not answer.
    fn may_be_served(
        &self,
        verified: Option<Verified>,
        authority: Option<Authority>,
        now: Nanos,
    ) -> bool {
        self.is_fresh(verified, authority, now)
            || (self.origin_down.is_some() && self.may_be_stale(verified, authority, now))
    }

    /// Whether a verification may count now or later, for [`Index::put`].
    fn counts(
        settings: &Settings,
        cluster: Option<&Cluster>,
        verified: &Verified,
        now: Nanos,
    ) -> bool {
        let longest = settings.revalidate.map(|r| r.saturating_add(settings.stale_if_error));
        longest.is_none_or(|longest| now.saturating_sub(verified.at) < longest)
            && cluster.is_none_or(|cluster| cluster.may_count(&verified.authority))
    }

    /// Records that a record on a device was compared with the origin, or is not to be trusted.
    fn verify(&mut self, key: &[u8], place: Place, verified: Option<Verified>) {
        let (settings, cluster, now) = (&self.settings, self.cluster.as_ref(), self.now);
        let counts = |verified: &Verified| Node::<P>::counts(settings, cluster, verified, now);
        self.index.verify(key, place, verified, &counts);
    }

    /// Whether a copy was verified under this authority and within `bound`, if there is one.
    fn is_within(
        bound: Option<Nanos>,
        verified: Option<Verified>,
        authority: Option<Authority>,
        now: Nanos,
    ) -> bool {
        let Some(verified) = verified.filter(|v| Some(v.authority) == authority) else {
            return false;
        };
        bound.is_none_or(|bound| now.saturating_sub(verified.at) < bound)
    }
}
