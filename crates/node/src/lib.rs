//! A node: what `engine::node` decides, done on threads, devices, the origin and the connections to other nodes.

mod admin;
mod controls;
pub mod drive;
mod error;
pub mod events;
pub mod handover;
mod node_reads;
mod node_store;
pub mod peers;
mod reads;
mod routes;
pub mod settings;
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

use cluster::Mismatches;
use drive::Drive;
pub use error::Error;

/// What all threads of a node share.
pub struct Node {
    front: Front,
    /// The engine, with what carries out its decisions.
    pub drive: Arc<Drive>,
    mismatches: Arc<Mismatches>,
    /// The shards that it serves, if it serves datasets.
    pub datasets: Option<Arc<Datasets>>,
    /// The memory that objects and layers share, if they do.
    pub memory: Option<Arc<live::memory::Memory>>,
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
    /// A node that is not served yet.
    pub fn new(
        front: Front,
        drive: Arc<Drive>,
        mismatches: Arc<Mismatches>,
        datasets: Option<Arc<Datasets>>,
        memory: Option<Arc<live::memory::Memory>>,
    ) -> Node {
        let uploads = Budget::new(front.config.serve.uploads_bytes_max.0);
        Node { front, drive, mismatches, datasets, memory, uploads, writes: Arc::default() }
    }

    fn writing(&self) -> Writing {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Writing(self.writes.clone())
    }
}
