//! Every decision of the serving plane, as state machines `(event, now) → actions`.
//!
//! There is no runtime, socket, file or clock here: a driver passes in events with their times and
//! carries out the resulting actions. The same code serves real traffic (the driver is the process,
//! a payload is bytes) and runs in virtual time (the driver is a simulation, a payload is a size).
//! So what a simulation finds is true of the server, and a recorded log of events replays exactly.
//!
//! - [`node`]: a storage server: memory tier, devices, origin, coalescing of misses, order of
//!   writes.
//! - [`gateway`]: an access point: the choice of a node for each request, hedges, failover,
//!   budgets.
//! - [`route`]: the nodes of a key, and the health and load of each.
//! - [`tier`]: the places of objects in a node: memory, and the segments of the devices.
//! - [`layers`]: which shard of a node gets another layer, and which gives one back.
//! - [`sim`]: a cluster of them in virtual time, with faults, and a checker of histories.
//! - [`invariant`]: states that cannot occur, counted where a release build meets one.
//! - [`queue`]: a bounded queue before one or more servers, which records its own windows.

pub mod gateway;
pub mod invariant;
pub mod layers;
mod mutant;
pub mod node;
pub mod queue;
pub mod route;
pub mod sim;
pub mod tier;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A key: any bytes.
pub type Key = Arc<[u8]>;

/// The version of an object's bytes, as the origin names it. Compared for equality alone.
pub type Etag = Arc<str>;

/// An object as the engine handles it: its bytes in the process, its size in a simulation. Clones
/// are cheap (a reference count).
pub trait Payload: Clone {
    /// Bytes of the object itself.
    fn bytes(&self) -> u64;
    /// Bytes of the object with its metadata as a device stores it, without the key.
    fn stored_bytes(&self) -> u64;
    /// Its version.
    fn etag(&self) -> Etag;
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
    pub fn of<P: Payload>(payload: &P) -> Size {
        Size { bytes: payload.bytes(), stored_bytes: payload.stored_bytes(), etag: payload.etag() }
    }
}

impl Payload for Size {
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
