//! The serving process: sockets, the engine behind them, and what is observed.
//!
//! A process is a node, a gateway, or both; each has its own `front::Front`: address, threads and
//! connections.

mod admin;
mod announce;
mod cluster;
mod components;
mod controls;
mod drive;
pub mod events;
#[doc(hidden)]
pub mod fuzzing;
mod gateway;
mod handover;
mod identity;
mod list;
mod middleware;
mod node_reads;
mod node_store;
mod objects;
mod origin_reads;
mod reads;
mod routes;
mod server;
mod settings;
mod tiers;
mod writes;

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use datasets::Datasets;
use engine::invariant::Invariants;
use front::Front;
use front::observe::Observed;
use ground::window::{Nanos, Window};
use hyper::body::Incoming;
use hyper::{Request, Response};
use wire::body::{Budget, ReplyBody};
use wire::lane::ThreadRecorder;

pub use announce::announce;
pub use device::object::Object;

pub use server::Server;
pub use settings::{cluster_of, settings_of};

use cluster::Mismatches;
use drive::Drive;

/// What all threads of a node share.
pub struct Node {
    front: Front,
    drive: Arc<Drive>,
    mismatches: Arc<Mismatches>,
    datasets: Option<Arc<Datasets>>,
    /// The memory that objects and layers share, if they do.
    memory: Option<Arc<live::memory::Memory>>,
    uploads: Arc<Budget>,
    writes: Arc<AtomicUsize>,
}

impl Deref for Node {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
    }
}

impl front::http::Service for Node {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        routes::answer(self, lane, request).await
    }

    fn under_way(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }
}

impl Observed for Node {
    fn front(&self) -> &Front {
        &self.front
    }

    fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut windows = self.drive.windows(now, flush);
        windows.extend(self.datasets.iter().flat_map(|datasets| datasets.windows(now, flush)));
        windows
    }

    fn invariants(&self) -> Invariants {
        self.drive.invariants()
    }
}

/// Counts a write under way, so that the end of the process waits for it.
struct Writing(Arc<AtomicUsize>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Node {
    fn writing(&self) -> Writing {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Writing(self.writes.clone())
    }
}
