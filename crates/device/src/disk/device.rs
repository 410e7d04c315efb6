//! A device that is in use: its segments, what it emulates, and what is known of it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use engine::node::{Event, JobId};
use ground::window::Nanos;

use super::pieces::Cursor;
use super::profile::Profile;
use super::segments::Segments;
use crate::object::Object;

/// Receives the results of reads and appends, with the time of each.
pub type EventSink = Arc<dyn Fn(Nanos, Event<Object>) + Send + Sync>;

pub(super) struct Device {
    pub(super) segments: Segments,
    pub(super) profile: Option<Mutex<Profile>>,
    pub(super) complained: AtomicBool,
    pub(super) scrubbed: Scrubbed,
    /// Records that are being read in pieces; bounded by the engine, as reads are.
    pub(super) cursors: Mutex<HashMap<JobId, Box<Cursor>>>,
}

impl Device {
    pub(super) fn new(segments: Segments, profile: Option<Profile>) -> Device {
        Device {
            segments,
            profile: profile.map(Mutex::new),
            complained: AtomicBool::new(false),
            scrubbed: Scrubbed::default(),
            cursors: Mutex::default(),
        }
    }

    /// Of an emulated device: the time that so many bytes take besides the drawn time.
    pub(super) fn transfer(&self, bytes: u64) -> Nanos {
        let Some(profile) = &self.profile else { return 0 };
        profile.lock().unwrap_or_else(PoisonError::into_inner).transfer(bytes)
    }
}

/// Counts of a device's scrub since the start.
#[derive(Debug, Default)]
pub struct Scrubbed {
    /// Bytes read.
    pub bytes: AtomicU64,
    /// Passes that were ended.
    pub passes: AtomicU64,
}
