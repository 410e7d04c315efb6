//! A cluster whose hits are drawn: what answers a read is a matter of chance with given ratios, not of what was read before.
//!
//! Nothing is kept of keys, so a request costs a fraction of one of [`super::Simulation`], and memory does not grow with the
//! number of objects. The rules that decide how long a request takes are the engine's own: the ring's placement and replicas
//! ([`crate::route::Ring`]), the choice among replicas ([`crate::route::Policy`] over [`crate::route::Load`]), the queues in front of devices and of the
//! origin with their windows ([`crate::queue::Queue`]), and the laws of service.
//!
//! Not decided here, because it depends on which keys are read: popularity (each key of the ring is asked for equally often),
//! reads that join an earlier read of the same key, what memory and hot devices hold, warm copies on further replicas
//! ([`crate::gateway::Spread::Warm`] is the first replica), and how cold a node is after a restart. Not simulated: hedges, timeouts of attempts,
//! leases and the faults of messages. `docs/simulate.md` says it to users.
//!
//! Cost: an entry in a heap for each read of a device or the origin, none for a hit in memory: replies that are under way all
//! take the same time, so they are queues.

mod changes;
mod cluster;
mod run;
mod settings;

pub use run::DrawnCluster;
pub use settings::{DeviceSettings, Hits, NodeFault, NodeFaultKind, Settings};
