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
    /// Whether segments of the present pass were begun.
    is_within_pass: bool,
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
            is_within_pass: false,
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
        let segments = &self.device.segments;
        if let Some(segment) = self.segments.pop_front() {
            self.segment = segment;
            self.entries = segments.entries(segment).into();
            self.is_within_pass = true;
            // A sealed segment has at least one record.
            if self.entries.is_empty() && segments.segment(segment).is_some() {
                let name = segments.name();
                warn!(
                    "scrub: {name}: segment {segment} has no list that can be read; its records are passed over"
                );
            }
            return;
        }
        // Here the records of the last segment have been read too.
        if std::mem::take(&mut self.is_within_pass) {
            self.device.scrubbed.passes.fetch_add(1, Ordering::Relaxed);
        }
        self.segments = segments.sealed().into();
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use engine::Payload as _;
    use engine::tier::{Location, record_bytes};
    use ground::Key;
    use origin::{Attributes, Metadata};

    use super::super::device::Scrubbed;
    use super::super::segments::Segments;
    use super::*;
    use crate::object::Object;

    /// A pass ends with its last record, not where its last segment begins.
    #[test]
    fn a_pass_counts_when_all_of_its_records_have_been_read() {
        let folder = tempfile::tempdir().unwrap();
        let (segments, _) = Segments::open(&folder.path().join("device"), None).unwrap();
        let metadata = Metadata {
            size: 4,
            etag: "0123456789abcdef0123456789abcdef".into(),
            modified_unix_us: 0,
            attributes: Attributes::default(),
        };
        let object = Object::new(&metadata, Bytes::from_static(b"data"));
        let keys: Vec<Key> = (0..3).map(|number| Key::from(&[b'k', number][..])).collect();
        let bytes = record_bytes(2, object.bytes(), object.stored_bytes());
        for segment in 0..2 {
            for (at, key) in (0..).zip(&keys) {
                segments.append(Location::new(segment, at * bytes, bytes), key, &object).unwrap();
            }
            segments.seal(segment).unwrap();
        }
        let device = Arc::new(Device::new(segments, None));
        let mut task = Task::new(0, device.clone(), 1e9);
        let damaged: EventSink = Arc::new(|_, event| panic!("{event:?}"));
        let read = |task: &mut Task| {
            task.step(&mut Buffer::default(), &damaged);
            let Scrubbed { bytes, passes } = &device.scrubbed;
            (bytes.load(Ordering::Relaxed), passes.load(Ordering::Relaxed))
        };
        let mut ended = vec![read(&mut task)];
        while ended.last().is_some_and(|(_, passes)| *passes == 0) {
            assert!(ended.len() < 20, "{ended:?}");
            ended.push(read(&mut task));
        }
        assert_eq!(ended.last(), Some(&(6 * bytes, 1)), "{ended:?}");
    }
}
