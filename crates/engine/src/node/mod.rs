//! A storage server: memory tier, devices, the origin behind, coalescing of misses, order of writes.
//!
//! A read is answered by the memory tier at once, or parks as a *flight*: one piece of work for a key
//! that every later reader of that key joins. A flight goes to the device that holds the object, or to
//! the origin; what it brings fills the memory tier and a device. A write takes its turn in its key's
//! order; when it ends, whatever the result, the older version is gone from every tier and flights that
//! may carry it are *voided*: they still answer those who asked before the write ended, and fill
//! nothing. So after an acknowledged write no later read returns an older version.
//!
//! In a cluster ([`ClusterSettings`]) a key belongs to several nodes. Its primary orders its writes and
//! tells the others to drop their copies before a write is acknowledged; they serve copies under leases
//! from the primary, and fill their tiers from it as it does from them.
//!
//! Objects that came from a device's restored segments, and any that have not been compared with the
//! origin for [`Settings::revalidate`], are checked by etag before they are served.

mod behind;
mod cluster;
mod event;
mod flights;
mod reads;
mod settings;
mod tiers;
mod writes;

pub use cluster::PeerStatus;
pub use event::{
    Action, Answered, Asker, Checked, DeviceId, Event, Failure, Fetched, JobId, Reply, RequestId,
    Stages,
};
pub use settings::{ClusterSettings, DeviceSettings, OriginSettings, Settings};

use std::collections::{HashMap, VecDeque};

use model::window::{Nanos, Outcome, Recorder, SECOND, Window};
use serde::{Deserialize, Serialize};

use crate::invariant::Invariants;
use crate::mutant::{self, Mutant};
use crate::queue::Queue;
use crate::tier::{Location, Log, Memory};
use crate::{Etag, Key, Payload};
use cluster::{Cluster, Standing, Verified};
use flights::Flights;

/// An object in memory.
struct Kept<P> {
    payload: P,
    verified: Option<Verified>,
    /// Times that it was read here, up to 2.
    hits: u8,
    /// Which of the key's nodes it was offered to.
    warm: u8,
}

/// An object on a device.
struct OnDevice {
    device: DeviceId,
    location: Location,
    etag: Etag,
    /// When the origin was known to have this version; `None` since a restart.
    verified: Option<Verified>,
}

/// A record that is being written to a device.
struct Appending {
    device: DeviceId,
    location: Location,
    key: Key,
    etag: Etag,
    verified: Option<Verified>,
    stored_bytes: u64,
    /// A write to the key ended since: the record is not to be indexed.
    void: bool,
}

/// A record that the disk code found on a device at start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    /// Its key.
    pub key: Key,
    /// The object's version.
    pub etag: Etag,
    /// Where it lies.
    pub location: Location,
}

/// What a node holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Objects in the memory tier.
    pub memory_objects: usize,
    /// Bytes of the memory tier, overhead included.
    pub memory_bytes: u64,
    /// Objects that some device holds.
    pub device_objects: usize,
    /// Bytes on each device, replaced versions included.
    pub device_bytes: Vec<u64>,
    /// Reads that wait for a device or the origin, by key.
    pub flights: usize,
    /// Readers that wait for these.
    pub readers: usize,
    /// Writes that have their turn, wait for it, or wait for other nodes.
    pub writers: usize,
}

struct Device {
    queue: Queue<JobId>,
    log: Log,
    outcome: Outcome,
    /// Until when nothing is written to it, after a write failed: a full device is not tried each time.
    rests_until: Nanos,
}

/// How long a device is not written to after a write to it failed.
const REST: Nanos = 10 * SECOND;

/// The writes of one key: the one whose turn it is, and those behind it.
struct Writers {
    current: RequestId,
    /// The view changed since its turn came.
    uncertain: bool,
    waiting: VecDeque<RequestId>,
}

/// A storage server's state. See the module.
///
/// `handle` costs well under a microsecond for a hit; nothing here iterates over all objects.
pub struct Node<P> {
    settings: Settings,
    memory: Memory<Kept<P>>,
    index: HashMap<Key, OnDevice>,
    devices: Vec<Device>,
    origin: Queue<JobId>,
    /// The origin failed when it was asked last; when to ask again whether it is back.
    origin_down: Option<Nanos>,
    /// Requests to peers for objects.
    peers: Queue<JobId>,
    cluster: Option<Cluster>,
    flights: Flights,
    appending: HashMap<JobId, Appending>,
    /// The newest of a key's records that are being written and not void.
    appending_of: HashMap<Key, JobId>,
    appending_bytes: u64,
    writers: HashMap<Key, Writers>,
    writes_waiting: u32,
    recorder: Recorder,
    invariants: Invariants,
    next_job: JobId,
    /// The latest time that was told.
    now: Nanos,
}

impl<P: Payload> Node<P> {
    /// An empty node at time `now`.
    pub fn new(settings: Settings, now: Nanos) -> Node<P> {
        let devices = settings.devices.iter().map(|d| Device {
            queue: Queue::new(
                &d.name,
                d.servers,
                d.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            log: Log::new(d.bytes_max, d.segment_bytes),
            outcome: d.outcome,
            rests_until: 0,
        });
        let origin = &settings.origin;
        let peers = settings.cluster.as_ref().map_or(origin, |cluster| &cluster.peers);
        Node {
            memory: Memory::new(settings.memory_bytes_max),
            index: HashMap::new(),
            devices: devices.collect(),
            origin: Queue::new(
                "origin",
                origin.servers,
                origin.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            origin_down: None,
            peers: Queue::new(
                "peers",
                peers.servers,
                peers.queue_length_max,
                settings.windows.clone(),
                now,
            ),
            cluster: settings.cluster.clone().map(|cluster| Cluster::new(cluster, now)),
            flights: Flights::default(),
            appending: HashMap::new(),
            appending_of: HashMap::new(),
            appending_bytes: 0,
            writers: HashMap::new(),
            writes_waiting: 0,
            recorder: Recorder::new("node", 0, settings.windows.clone(), now),
            invariants: Invariants::default(),
            next_job: 0,
            now,
            settings,
        }
    }

    /// Takes over a segment that the disk code found on a device, in ascending order of segments. Its
    /// objects are checked against the origin before they are served.
    pub fn restore(&mut self, device: DeviceId, segment: u64, records: Vec<Restored>) {
        let Some(on) = self.devices.get_mut(device) else { return self.invariants.broken() };
        let bytes = records.iter().map(|r| r.location.bytes()).sum();
        let keys = records.iter().map(|r| r.key.clone()).collect();
        on.log.restore(segment, bytes, keys);
        // Nothing is known of what happened to them meanwhile.
        let trusted = Verified { at: self.now, standing: Standing::ALONE };
        let verified = mutant::is(Mutant::RestoredTrusted).then_some(trusted);
        for Restored { key, etag, location } in records {
            self.index.insert(key, OnDevice { device, location, etag, verified });
        }
    }

    /// Takes in what happened at `now` and adds to `actions` what is to be done. Times may run back by
    /// as much as a completion is late in being told.
    pub fn handle(&mut self, now: Nanos, event: Event<P>, actions: &mut Vec<Action<P>>) {
        self.now = self.now.max(now);
        match event {
            Event::Get { request, key, asker, deadline } => {
                self.get(now, request, key, asker, deadline, actions);
            }
            Event::WriteBegin { request, key } => self.write_begin(now, request, key, actions),
            Event::WriteEnd { request, key, payload } => {
                self.write_end(now, request, key, payload, actions);
            }
            Event::Read { job, result } => self.read(now, job, result, actions),
            Event::Appended { job, written } => self.appended(job, written, actions),
            Event::Fetched { job, result } => self.fetched(now, job, result, actions),
            Event::Checked { job, result } => self.checked(now, job, result, actions),
            Event::Answered { job, result } => self.answered(now, job, result, actions),
            Event::LeaseAsked { peer } => self.lease_asked(now, peer, actions),
            Event::LeaseGranted { peer, asked, term } => {
                self.lease_granted(now, peer, asked, term);
            }
            Event::Invalidate { key } => self.invalidate(&key),
            Event::Invalidated { request, peer, done } => {
                self.invalidated(now, request, peer, done, actions);
            }
            Event::Offered { key } => self.offered(now, key, actions),
            Event::View(view) => self.view(now, view, actions),
            Event::Tick => self.tick(now, actions),
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

    /// What the node holds.
    pub fn contents(&self) -> Contents {
        Contents {
            memory_objects: self.memory.len(),
            memory_bytes: self.memory.bytes(),
            device_objects: self.index.len(),
            device_bytes: self.devices.iter().map(|d| d.log.bytes()).collect(),
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

    /// What this node knows of its peers; none without a cluster.
    pub fn peers(&self, now: Nanos) -> Vec<PeerStatus> {
        self.cluster.as_ref().map_or(Vec::new(), |cluster| cluster.status(now))
    }

    /// By whose leave copies of a key are served now; `None`: each is compared with the origin first.
    fn standing(&self, key: &Key, now: Nanos) -> Option<Standing> {
        match &self.cluster {
            None => Some(Standing::ALONE),
            Some(cluster) => cluster.standing(key, now),
        }
    }

    /// Whether a copy may be served as it is.
    fn is_fresh(&self, verified: Option<Verified>, standing: Option<Standing>, now: Nanos) -> bool {
        self.is_within(verified, standing, now, 0)
    }

    /// Whether a copy may be served while the origin cannot be had.
    fn is_spared(
        &self,
        verified: Option<Verified>,
        standing: Option<Standing>,
        now: Nanos,
    ) -> bool {
        self.is_within(verified, standing, now, self.settings.stale_if_error)
    }

    fn is_within(
        &self,
        verified: Option<Verified>,
        standing: Option<Standing>,
        now: Nanos,
        longer: Nanos,
    ) -> bool {
        let Some(verified) = verified.filter(|v| Some(v.standing) == standing) else {
            return false;
        };
        let bound = self.settings.revalidate.map(|bound| bound.saturating_add(longer));
        bound.is_none_or(|bound| now.saturating_sub(verified.at) < bound)
    }
}
