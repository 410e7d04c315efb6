//! What all threads of a node share.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::drive::Drive;
use cluster::Mismatches;
use datasets::Datasets;
use engine::invariant::Invariants;
use front::Front;
use front::observe::Observed;
use ground::window::{Nanos, Window};
use wire::body::Budget;

/// What all threads of a node share.
pub struct Node {
    pub(super) front: Front,
    /// The engine, with what carries out its decisions.
    pub drive: Arc<Drive>,
    pub(super) mismatches: Arc<Mismatches>,
    /// The shards that it serves, if it serves datasets.
    pub datasets: Option<Arc<Datasets>>,
    /// The memory that objects and layers share, if they do.
    pub memory: Option<Arc<live::memory::Memory>>,
    pub(super) uploads: Arc<Budget>,
    pub(super) writes: Arc<AtomicUsize>,
}

impl Deref for Node {
    type Target = Front;
    fn deref(&self) -> &Front {
        &self.front
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
pub(super) struct Writing(Arc<AtomicUsize>);

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

    pub(super) fn writing(&self) -> Writing {
        self.writes.fetch_add(1, Ordering::Relaxed);
        Writing(self.writes.clone())
    }
}
