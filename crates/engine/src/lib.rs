//! Every decision of the serving plane, as state machines `(event, now) → actions`.
//!
//! There is no runtime, socket, file or clock here: a driver passes in events with their times and
//! carries out the resulting actions. The same code serves real traffic (the driver is the process,
//! a payload is bytes) and runs in virtual time (the driver is a simulation, a payload is a size).
//! So what a simulation finds is true of the server, and a recorded log of events replays exactly.
//!
//! - [`node`]: a storage server: memory tier, devices, origin, coalescing of misses, ordering of
//!   writes.
//! - [`gateway`]: an access point: chooses a node for each request; hedges, failover, retry
//!   budgets.
//! - [`pool`]: a proxy in front of memcached servers: routes, replicas, multi-gets, hedges, failover.
//!   What it shares with [`gateway`] is in `attempts`.
//! - [`dataset`]: a dataset as a process changes it: refreshed views, appends, seals.
//! - [`question`]: a question to a dataset: which parts are asked when, and when the answer is whole.
//! - [`route`]: the nodes of a key, and the health and load of each node.
//! - [`tier`]: where a node keeps objects: in memory, and in the segments of its devices.
//! - [`budget`]: one memory budget for objects and layers: who gets its bytes.
//! - [`layers`]: which shard of a node gains a layer and which drops one.
//! - [`sim`]: a cluster of nodes and gateways in virtual time, with faults, and a checker of
//!   histories.
//! - [`invariant`]: counts states that cannot occur, if a release build reaches one.
//! - [`status`]: the replies of a process's administrative paths, as it writes them and commands read them.
//! - [`queue`]: a bounded queue in front of one or more servers, which records its own windows.

pub mod act;
mod attempts;
pub mod budget;
pub mod dataset;
pub mod gateway;
pub mod invariant;
pub mod layers;
mod mutant;
pub mod node;
pub mod pool;
pub mod question;
pub mod queue;
pub mod route;
pub mod sim;
mod slots;
pub mod status;
pub mod tier;

use ground::{Etag, Key};
use serde::{Deserialize, Serialize};

use tier::{Keyed, WithKey};

/// An object as the engine handles it: its bytes in the process, its size in a simulation. Clones
/// are cheap (a reference count).
pub trait Payload: Clone {
    /// The object with its key, as the memory tier holds it.
    type Keyed: KeyedPayload<Self>;

    /// The object with its key. May cost a copy of a small object.
    fn with_key(self, key: &Key) -> Self::Keyed;
    /// Bytes of the object itself.
    fn bytes(&self) -> u64;
    /// Bytes of the object with its metadata as a device stores it, without the key.
    fn stored_bytes(&self) -> u64;
    /// Its version.
    fn etag(&self) -> Etag;
}

/// A payload with its key.
pub trait KeyedPayload<P>: Keyed {
    /// The payload.
    fn payload(&self) -> &P;
}

impl<P> KeyedPayload<P> for WithKey<P> {
    fn payload(&self) -> &P {
        &self.value
    }
}

/// The payload of simulations and of recorded event logs: sizes and the version without bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Bytes of the object.
    pub bytes: u64,
    /// Bytes of the object as a device stores it.
    pub stored_bytes: u64,
    /// Its version.
    pub etag: Etag,
}

impl Size {
    /// The sizes and version of any payload.
    pub fn from_payload<P: Payload>(payload: &P) -> Size {
        Size { bytes: payload.bytes(), stored_bytes: payload.stored_bytes(), etag: payload.etag() }
    }
}

impl Payload for Size {
    type Keyed = WithKey<Size>;

    fn with_key(self, key: &Key) -> WithKey<Size> {
        WithKey { key: key.clone(), value: self }
    }
    fn bytes(&self) -> u64 {
        self.bytes
    }
    fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }
    fn etag(&self) -> Etag {
        self.etag.clone()
    }
}
