//! Every decision of the serving plane, as state machines `(event, now) → actions`.
//!
//! There is no runtime, no socket, no file and no clock here: the driver tells what happened and when,
//! and carries out what is decided. The same code serves real traffic (the driver is the process, the
//! payload is bytes) and runs in virtual time (the driver is a simulation, the payload is a size), so
//! what a simulation finds is true of the server, and a recorded log of events replays exactly.
//!
//! - [`node`]: a storage server: memory tier, devices, origin, coalescing of misses, order of writes.
//! - [`gateway`]: an access point: which node a request goes to, hedges, failover, budgets.
//! - [`route`]: which nodes a key belongs to, and what is known of each.
//! - [`tier`]: where objects lie in a node: memory, and the segments of the devices.
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

/// What an engine moves without looking into it: an object's bytes when serving, its size when
/// simulating. Clones are cheap (a count of references).
pub trait Payload: Clone {
    /// Bytes of the object itself.
    fn bytes(&self) -> u64;
    /// Bytes of the object with its metadata as a device stores it, without the key.
    fn stored_bytes(&self) -> u64;
    /// Its version.
    fn etag(&self) -> Etag;
}

/// The payload of simulations and of recorded event logs: sizes and the version, no bytes.
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
