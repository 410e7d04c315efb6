//! The scrub: reads every record of the sealed segments once in a given time and verifies it, so that
//! damage is found before a second copy is lost. One thread for all devices, which reads one record
//! after another; each device at its own rate, its capacity divided by the time of a pass.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use engine::node::{DeviceId, Event, Unread};
use record::clock;
use tracing::{info, warn};

use super::device::{Device, EventSink};
use super::place::Listed;
use super::room::Buffer;

/// Tells the thread to stop.
#[derive(Default)]
pub struct Stop(Mutex<bool>, Condvar);

impl Stop {
    /// Stops the thread after the record that it reads.
    pub fn stop(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }

    /// Sleeps; returns whether to stop.
    fn sleep(&self, time: Duration) -> bool {
        let stopped = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let slept = self.1.wait_timeout_while(stopped, time, |stopped| !*stopped);
        *slept.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// A device to scrub.
pub struct Task {
    /// The device's number.
    pub id: DeviceId,
    /// The device.
    pub(super) device: Arc<Device>,
    /// Bytes read in a second at most.
    pub bytes_per_s: f64,
    segments: VecDeque<u64>,
    segment: u64,
    entries: VecDeque<Listed>,
    due: Instant,
}

/// Longest time that a device rests, so that new segments are seen.
const REST: Duration = Duration::from_secs(1);

impl Task {
    /// A device whose scrub begins now.
    pub(super) fn new(id: DeviceId, device: Arc<Device>, bytes_per_s: f64) -> Task {
        Task {
            id,
            device,
            bytes_per_s,
            segments: VecDeque::new(),
            segment: 0,
            entries: VecDeque::new(),
            due: Instant::now() + Duration::from_millis(10),
        }
    }

    /// Reads the next record, and sets when the one after is due.
    fn step(&mut self, buffer: &mut Buffer, told: &EventSink) {
        let Some(entry) = self.entries.pop_front() else { return self.next_segment() };
        let Listed { key, location } = entry;
        let bytes = location.bytes();
        self.due = Instant::now() + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s);
        let segments = &self.device.segments;
        // Dropped meanwhile: so are its other records.
        let Some(segment) = segments.segment(self.segment) else { return self.entries.clear() };
        let read = segments.read(&segment, location, &key, buffer);
        if let (Err(why), Some(_)) = (read, segments.segment(self.segment)) {
            let why = match why {
                Unread::Failed(failure) => failure.reason,
                Unread::OtherKey | Unread::Gone => {
                    format!("segment {}: another record is there", self.segment)
                }
            };
            warn!("scrub: {why}; the record is dropped");
            told(clock::now(), Event::Damaged { device: self.id, location, key });
        }
        self.device.scrubbed.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn next_segment(&mut self) {
        if let Some(segment) = self.segments.pop_front() {
            self.segment = segment;
            self.entries = self.device.segments.entries(segment).into();
            if self.segments.is_empty() {
                self.device.scrubbed.passes.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        self.segments = self.device.segments.sealed().into();
        self.due = Instant::now() + REST.min(Duration::from_secs_f64(1e6 / self.bytes_per_s));
    }
}

/// Scrubs the devices until it is stopped.
pub fn run(mut tasks: Vec<Task>, stop: &Stop, told: &EventSink) {
    let mut buffer = Buffer::default();
    info!("scrub: reads every record of {} device(s) again and again", tasks.len());
    while let Some(task) = tasks.iter_mut().min_by_key(|task| task.due) {
        if stop.sleep(task.due.saturating_duration_since(Instant::now())) {
            return;
        }
        task.step(&mut buffer, told);
    }
}
