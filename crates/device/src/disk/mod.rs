//! The devices: carries out the engine's actions on segments and records.
//!
//! Reads of all devices share one pool of blocking threads. It has a thread for each read that the
//! real devices serve concurrently, so that a slow device never delays another's reads. Appends of
//! a device run in order on one writer thread.
//!
//! An emulated device holds each read: the read completes a drawn time after its start, or when the
//! real read ends if that is later. The engine receives the completion at that time and with that
//! time, so that the next read starts exactly where this one ended.

pub mod block;
mod device;
mod folder;
pub mod format;
mod held;
mod pacer;
mod pieces;
mod place;
mod profile;
mod queue;
mod read;
pub mod record;
mod room;
mod scan;
mod scrub;
mod segment;
mod segments;
mod start;
pub mod summary;
mod uring;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::node::{DeviceId, DeviceSettings, Event, Extent, JobId};
use engine::status::Lateness;
use engine::tier::Location;
use ground::Key;
use ground::window::Nanos;
use origin::IdentityRecord;
use tracing::{error, info, warn};

pub use crate::assembly::Assembly;
pub use device::EventSink;
pub use pacer::Pacer;
pub use place::{FoundSegment, Listed, Slots, is_raw};
pub use profile::Profile;
pub use profile::empirical;
pub use segments::Segments;

pub use crate::error::Unusable;

pub use start::side_by_side;

use crate::error::Error;
use crate::object::Object;
use ::record::clock;
use configuration::Service;
use device::Device;
use held::{HELD_READERS, HeldQueue};
use queue::Queue;
use read::{Done, Read};
pub use room::Buffer;

/// A held read whose completion is further away than this goes to the polled queue (see `held`).
const PATIENCE: Nanos = 2_000_000;
/// Reader threads in addition to those of the real devices: for emulated devices, whose real reads
/// are short.
const READERS: usize = 8;
/// Maximum number of reader threads.
const READERS_MAX: usize = 1024;
/// Writer threads; all appends of a device go to the same one.
const WRITERS: usize = 2;
/// How long a writer that has slept waits for more to write. To wake it for each of many small objects takes as long as to write
/// one; until it is written an object is read from memory.
const GATHER: Duration = Duration::from_millis(1);

/// A configured device.
pub struct DeviceFolder {
    /// The device's folder, or a block device.
    pub folder: PathBuf,
    /// Its budget.
    pub bytes: u64,
    /// Configured bytes of a segment; 0: by the budget, or as a block device is formatted.
    pub segment_bytes: u64,
    /// Maximum reads that the device serves concurrently.
    pub parallel: u32,
    /// For an emulated device, its service times and its index in its group.
    pub service: Option<(Service, u64)>,
    /// Bytes that its scrub may read in a second; 0 for no scrub.
    pub scrub_bytes_per_s: f64,
}

/// The segments found on each device that can be used.
pub type FoundOn = HashMap<DeviceId, Vec<FoundSegment>>;

enum Write {
    Append { device: Arc<Device>, location: Location, key: Key, object: Object, job: JobId },
    Seal { device: Arc<Device>, segment: u64 },
    Drop { device: Arc<Device>, segment: u64 },
    List { device: Arc<Device>, id: DeviceId, segment: u64 },
}

/// The devices of a node.
pub struct Disks {
    /// Without those that cannot be used.
    devices: HashMap<DeviceId, Arc<Device>>,
    scrub: Arc<scrub::Stop>,
    reads: Arc<Queue<Read>>,
    held: Arc<HeldQueue<Read>>,
    writes: Vec<Arc<Queue<Write>>>,
    pacer: Arc<Pacer<Done>>,
    told: EventSink,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// The devices of a node, opened and looked through; none of those that cannot be used.
pub struct Opened(Vec<Option<(Segments, Vec<FoundSegment>)>>);

impl Opened {
    /// Opens the devices and finds their segments. A device that cannot be used is logged. `me` is the node's
    /// name in its cluster. Folders remember in their markers which origin `record` takes.
    ///
    /// # Errors
    ///
    /// If another process uses a device, or a folder holds what this project did not make.
    pub fn open(
        folders: &[DeviceFolder],
        me: Option<&str>,
        record: &IdentityRecord,
    ) -> Result<Opened, Error> {
        let mut devices = Vec::new();
        for (id, device) in folders.iter().enumerate() {
            let opened = Segments::open(&device.folder, me).and_then(|opened| {
                opened.0.holds(device.bytes, device.segment_bytes)?;
                Ok(opened)
            });
            devices.push(match opened {
                Ok(opened) => {
                    if !is_raw(&device.folder) {
                        record.add_folder(&device.folder);
                    }
                    warn_if_too_large(device);
                    Some(opened)
                }
                Err(Error::Unusable(why)) => {
                    error!("device {id} is not used: {why}");
                    None
                }
                Err(why) => return Err(why),
            });
        }
        Ok(Opened(devices))
    }

    /// Has the engine's settings say what block devices have places for.
    pub fn settle(&self, folders: &[DeviceFolder], settings: &mut [DeviceSettings]) {
        for ((opened, folder), settings) in self.0.iter().zip(folders).zip(settings) {
            let Some(slots) = opened.as_ref().and_then(|(segments, _)| segments.slots()) else {
                continue;
            };
            settings.segments_max = slots.segments_max;
            settings.segment_bytes = match folder.segment_bytes {
                0 => slots.segment_bytes,
                bytes => bytes,
            };
        }
    }
}

impl Disks {
    /// Starts the threads. Also returns the segments found on each device that can be used.
    ///
    /// # Errors
    ///
    /// If an emulated device's service times are invalid, or a thread cannot be started.
    pub fn start(
        folders: &[DeviceFolder],
        opened: Opened,
        told: EventSink,
    ) -> Result<(Disks, FoundOn), Error> {
        let mut devices = HashMap::new();
        let mut found = HashMap::new();
        let mut scrubs = Vec::new();
        for (id, (DeviceFolder { service, scrub_bytes_per_s, .. }, opened)) in
            folders.iter().zip(opened.0).enumerate()
        {
            let profile = service.as_ref().map(|(service, i)| Profile::new(service, *i));
            let profile = profile.transpose();
            let profile =
                profile.map_err(|source| Error::Emulated { id, source: source.into() })?;
            let Some((segments, segments_found)) = opened else { continue };
            found.insert(id, segments_found);
            let device = Arc::new(Device::new(segments, profile));
            if *scrub_bytes_per_s > 0.0 {
                scrubs.push(scrub::Task::new(id, device.clone(), *scrub_bytes_per_s));
            }
            devices.insert(id, device);
        }
        let deliver = told.clone();
        let pacer = Pacer::start(move |at, done: Done| done.tell(at, &deliver));
        let pacer = Arc::new(pacer.map_err(Error::Thread)?);
        // Bounded by the engine: at most `parallel` reads of each device are in service.
        let reads = Arc::new(Queue::<Read>::default());
        let mut threads = Vec::new();
        for index in 0..reader_count(folders) {
            let (reads, told, pacer) = (reads.clone(), told.clone(), pacer.clone());
            let reader = move || {
                let mut buffer = Buffer::default();
                while let Some(read) = reads.next() {
                    read.carry_out(&mut buffer, &told, &pacer);
                }
            };
            threads.push(spawn(format!("read/{index}"), reader)?);
        }
        let held = Arc::new(HeldQueue::default());
        let any_held = devices.values().any(|device| device.profile.is_some());
        for index in 0..if any_held { HELD_READERS } else { 0 } {
            let (held, told, pacer) = (held.clone(), told.clone(), pacer.clone());
            let reader = move || {
                let mut buffer = Buffer::default();
                held.run(|read: Read| read.carry_out(&mut buffer, &told, &pacer));
            };
            threads.push(spawn(format!("held/{index}"), reader)?);
        }
        let mut writes = Vec::new();
        for index in 0..WRITERS {
            // Bounded by the engine: `node.appends_bytes_max` of bytes under way.
            let (queue, told) = (Arc::new(Queue::default()), told.clone());
            writes.push(queue.clone());
            threads.push(spawn(format!("write/{index}"), move || writer(&queue, &told))?);
        }
        let scrub = Arc::new(scrub::Stop::default());
        if !scrubs.is_empty() {
            let (stop, told) = (scrub.clone(), told.clone());
            threads.push(spawn("scrub".to_owned(), move || scrub::run(scrubs, &stop, &told))?);
        }
        let threads = Mutex::new(threads);
        Ok((Disks { devices, scrub, reads, held, writes, pacer, told, threads }, found))
    }

    /// [`engine::node::Action::Read`].
    pub fn read(
        &self,
        id: DeviceId,
        location: Location,
        key: Key,
        job: JobId,
        start: Nanos,
        extent: Extent,
    ) {
        let Some(device) = self.device(id) else { return };
        let held_to = device
            .profile
            .as_ref()
            .map(|profile| start + profile.lock().unwrap_or_else(PoisonError::into_inner).draw());
        let segment = device.segments.segment(location.segment());
        let read = Read { device, segment, location, key, job, extent, held_to };
        if held_to.is_some_and(|at| at > start + PATIENCE) {
            self.held.push(read);
        } else if let Some(read) = uring::take(read) {
            self.reads.push(read);
        }
    }

    /// Lets a serving thread read by itself: runs on its runtime, until that ends.
    pub fn on_thread(&self) -> impl Future<Output = ()> + Send + 'static {
        uring::run(self.told.clone(), self.reads.clone())
    }

    /// [`engine::node::Action::CloseRead`].
    pub fn close(&self, id: DeviceId, job: JobId) {
        if let Some(device) = self.device(id) {
            device.cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(&job);
        }
    }

    /// [`engine::node::Action::Append`].
    pub fn append(&self, id: DeviceId, location: Location, key: Key, object: Object, job: JobId) {
        let Some(device) = self.device(id) else { return };
        self.write(id, Write::Append { device, location, key, object, job });
    }

    /// [`engine::node::Action::SealSegment`].
    pub fn seal(&self, id: DeviceId, segment: u64) {
        let Some(device) = self.device(id) else { return };
        self.write(id, Write::Seal { device, segment });
    }

    /// [`engine::node::Action::DropSegment`].
    pub fn remove(&self, id: DeviceId, segment: u64) {
        let Some(device) = self.device(id) else { return };
        self.write(id, Write::Drop { device, segment });
    }

    /// [`engine::node::Action::List`].
    pub fn list(&self, id: DeviceId, segment: u64) {
        let Some(device) = self.device(id) else { return };
        self.write(id, Write::List { device, id, segment });
    }

    /// Bytes that the scrub of a device read since the start, and passes that it ended.
    pub fn scrubbed(&self, id: DeviceId) -> (u64, u64) {
        self.devices.get(&id).map_or((0, 0), |device| {
            let scrubbed = &device.scrubbed;
            (scrubbed.bytes.load(Ordering::Relaxed), scrubbed.passes.load(Ordering::Relaxed))
        })
    }

    fn device(&self, id: DeviceId) -> Option<Arc<Device>> {
        self.devices.get(&id).cloned()
    }

    fn write(&self, id: DeviceId, write: Write) {
        self.writes[id % self.writes.len()].push(write);
    }

    /// How late held reads completed since the previous call: by the thread that delivers them, or because the
    /// real read took longer than the drawn time.
    pub fn lateness(&self) -> Lateness {
        self.pacer.lateness()
    }

    /// Stops the threads, and seals open segments so that the next start need not scan them.
    ///
    /// Objects that wait to be written are written for as long as `within`; the others are left out, since a device holds copies. A device
    /// that does not answer is left as it is after as long again, and at least [`WRITE_MAX`]: the next start scans its open segment.
    pub fn stop(&self, within: Duration) {
        self.scrub.stop();
        self.reads.stop();
        self.held.stop();
        for writes in &self.writes {
            writes.stop();
        }
        let written = || self.writes.iter().all(|writes| writes.is_empty());
        if !wait_until(within, written) {
            let is_other = |write: &Write| !matches!(write, Write::Append { .. });
            let left: usize = self.writes.iter().map(|writes| writes.retain(is_other)).sum();
            info!("{left} objects that waited to be written to devices are left out");
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        // What was begun ends in any case, unless the device is stuck.
        if !wait_until(within.max(WRITE_MAX), || threads.iter().all(JoinHandle::is_finished)) {
            warn!(
                "a device does not end what it was given: its open segment is scanned at the next start"
            );
            return;
        }
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
        self.pacer.stop();
        for device in self.devices.values() {
            device.segments.close();
        }
    }
}

/// Waits until something is so, for at most as long as `within`; returns whether it is.
fn wait_until(within: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !is_so() {
        if start.elapsed() >= within {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// How long a write that was begun may take at the end of the process, at least.
const WRITE_MAX: Duration = Duration::from_secs(1);

fn reader_count(folders: &[DeviceFolder]) -> usize {
    let real = folders.iter().filter(|device| device.service.is_none());
    let readers = real.map(|device| device.parallel as usize).sum::<usize>() + READERS;
    readers.min(READERS_MAX)
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new().name(name).spawn(run).map_err(Error::Thread)
}

/// Whether a write failed because there was no room for it.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// Says where a device was given more bytes than its file system has for it.
fn warn_if_too_large(device: &DeviceFolder) {
    let Ok(room) = rustix::fs::statvfs(&device.folder) else { return };
    let reserved = room.f_bfree.saturating_sub(room.f_bavail);
    let bytes = room.f_frsize.saturating_mul(room.f_blocks.saturating_sub(reserved));
    if !is_raw(&device.folder) && device.bytes > bytes {
        warn!(
            "{} is to hold {} bytes, and its file system has {bytes}: it will be full, and its oldest objects then make room for new \
             ones; give it fewer `bytes`",
            device.folder.display(),
            device.bytes
        );
    }
}

fn writer(queue: &Queue<Write>, told: &EventSink) {
    while let Some(write) = queue.next_after(GATHER) {
        match write {
            Write::Append { device, location, key, object, job } => {
                let result = device.segments.append(location, &key, &object);
                let failed_before = device.complained.swap(result.is_err(), Ordering::Relaxed);
                let full = result.as_ref().is_err_and(is_full);
                let name = || device.segments.name();
                match &result {
                    Ok(()) if failed_before => info!("{} takes writes again", name()),
                    Err(error) if !failed_before && full => warn!(
                        "the file system of {} has no more room ({error}): from now on its oldest objects make room for new \
                         ones; give it fewer `bytes`",
                        name()
                    ),
                    Err(error) if !failed_before => warn!(
                        "{} takes no writes: {error}; what it holds is read, and new objects are kept elsewhere until a write succeeds",
                        name()
                    ),
                    _ => {}
                }
                told(clock::now(), Event::Appended { job, written: result.is_ok(), full });
            }
            Write::Seal { device, segment } => {
                if let Err(error) = device.segments.seal(segment) {
                    warn!("cannot write the index of segment {segment}: {error}");
                }
            }
            Write::Drop { device, segment } => device.segments.remove(segment),
            Write::List { device, id, segment } => {
                let keys = device.segments.entries(segment).into_iter().map(|entry| entry.key);
                let event = Event::Listed { device: id, segment, keys: keys.collect() };
                told(clock::now(), event);
            }
        }
    }
}
