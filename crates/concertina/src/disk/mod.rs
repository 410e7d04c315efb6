//! The devices: carries out what the engine decides about segments and records.
//!
//! A device has a thread for each read that it serves at once, so that between the end of one read and
//! the start of the next lies no hand-over while reads wait; appends of a device run in order on one
//! writer thread. A device with a laboratory profile holds each read: its completion is the drawn time
//! after its start (or the real read's end, if that is later), and the engine is told so at that time,
//! with that time, so that the next read starts where this one ended. Its thread sleeps to an absolute
//! time with the kernel's slack off and, where it may, in the real-time class, and keeps account of how
//! late it woke. (A shared pool with one pacer thread was tried: two more wake-ups for each read.)

pub mod format;
mod profile;
mod segments;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Context;
use crossbeam_channel::{Receiver, Sender, unbounded};
use engine::Key;
use engine::node::{DeviceId, Event, Failure, JobId};
use engine::tier::Location;
use model::window::{Histogram, Nanos};
use serde::Serialize;
use tracing::warn;

pub use profile::Profile;
pub use segments::{Buffer, FoundSegment, Segments};

use crate::clock;
use crate::config::Service;
use crate::serve::Object;

/// Threads that append; a device has one of them.
const WRITERS: usize = 2;

/// Who is told what became of reads and appends.
pub type Told = Arc<dyn Fn(Nanos, Event<Object>) + Send + Sync>;

/// A device as the configuration names it.
pub struct DeviceFolder {
    /// Its folder.
    pub folder: PathBuf,
    /// Reads that it serves at once.
    pub parallel: u32,
    /// Its laboratory profile, and its place in its group.
    pub service: Option<(Service, u64)>,
}

struct Device {
    segments: Segments,
    profile: Option<Mutex<Profile>>,
    lateness: Mutex<Histogram>,
    complained: AtomicBool,
}

/// How late held reads were told, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Lateness {
    /// Reads that were held.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// 99 % were at most so late.
    pub p99_us: f64,
    /// The latest.
    pub max_us: f64,
}

struct Read {
    segment: Option<Arc<segments::Segment>>,
    location: Location,
    key: Key,
    job: JobId,
    /// Completion, if it is held: start and drawn time.
    held_to: Option<Nanos>,
}

enum Write {
    Append { device: Arc<Device>, location: Location, key: Key, object: Object, job: JobId },
    Seal { device: Arc<Device>, segment: u64 },
    Drop { device: Arc<Device>, segment: u64 },
}

/// The devices of a node.
pub struct Disks {
    devices: Vec<Arc<Device>>,
    /// By device; the number is that of its threads.
    reads: Vec<(Sender<Option<Read>>, u32)>,
    writes: Vec<Sender<Option<Write>>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Disks {
    /// Opens the folders and starts the threads. The second part of the result is what was found, by
    /// device.
    pub fn open(
        folders: &[DeviceFolder],
        told: Told,
    ) -> anyhow::Result<(Disks, HashMap<DeviceId, Vec<FoundSegment>>)> {
        let mut devices = Vec::new();
        let mut found = HashMap::new();
        let mut threads = Vec::new();
        let mut reads = Vec::new();
        for (id, DeviceFolder { folder, parallel, service }) in folders.iter().enumerate() {
            let profile = service.as_ref().map(|(service, i)| Profile::new(service, *i));
            let profile = profile.transpose().with_context(|| format!("device {id}"))?;
            let (segments, segments_found) = Segments::open(folder)?;
            found.insert(id, segments_found);
            let device = Arc::new(Device {
                segments,
                profile: profile.map(Mutex::new),
                lateness: Mutex::default(),
                complained: AtomicBool::new(false),
            });
            let (send, queue) = unbounded();
            for _ in 0..*parallel {
                let (device, queue, told) = (device.clone(), queue.clone(), told.clone());
                let run = move || reader(&device, &queue, &told);
                threads.push(spawn(format!("device/{id}"), run)?);
            }
            reads.push((send, *parallel));
            devices.push(device);
        }
        let mut writes = Vec::new();
        for index in 0..WRITERS {
            let (send, queue) = unbounded();
            let told = told.clone();
            threads.push(spawn(format!("write/{index}"), move || writer(&queue, &told))?);
            writes.push(send);
        }
        let threads = Mutex::new(threads);
        Ok((Disks { devices, reads, writes, threads }, found))
    }

    /// [`engine::node::Action::Read`].
    pub fn read(&self, id: DeviceId, location: Location, key: Key, job: JobId, start: Nanos) {
        let Some(device) = self.devices.get(id).cloned() else { return };
        let held_to = device
            .profile
            .as_ref()
            .map(|profile| start + profile.lock().unwrap_or_else(PoisonError::into_inner).draw());
        let segment = device.segments.segment(location.segment());
        let _ = self.reads[id].0.send(Some(Read { segment, location, key, job, held_to }));
    }

    /// [`engine::node::Action::Append`].
    pub fn append(&self, id: DeviceId, location: Location, key: Key, object: Object, job: JobId) {
        let Some(device) = self.devices.get(id).cloned() else { return };
        self.write(id, Write::Append { device, location, key, object, job });
    }

    /// [`engine::node::Action::SealSegment`].
    pub fn seal(&self, id: DeviceId, segment: u64) {
        let Some(device) = self.devices.get(id).cloned() else { return };
        self.write(id, Write::Seal { device, segment });
    }

    /// [`engine::node::Action::DropSegment`].
    pub fn remove(&self, id: DeviceId, segment: u64) {
        let Some(device) = self.devices.get(id).cloned() else { return };
        self.write(id, Write::Drop { device, segment });
    }

    fn write(&self, id: DeviceId, write: Write) {
        let _ = self.writes[id % self.writes.len()].send(Some(write));
    }

    /// How late held reads were told since this was asked last.
    pub fn lateness(&self) -> Lateness {
        let mut times = Histogram::default();
        for device in &self.devices {
            let lateness = &mut *device.lateness.lock().unwrap_or_else(PoisonError::into_inner);
            times.merge(&std::mem::take(lateness));
        }
        Lateness {
            count: times.count(),
            mean_us: times.mean_s() * 1e6,
            p99_us: times.quantile_s(0.99).unwrap_or(0.0) * 1e6,
            max_us: times.max_s() * 1e6,
        }
    }

    /// Ends the threads, and seals what is open so that the next start need not scan it.
    pub fn stop(&self) {
        for (reads, threads) in &self.reads {
            for _ in 0..*threads {
                let _ = reads.send(None);
            }
        }
        for writes in &self.writes {
            let _ = writes.send(None);
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            let _ = thread.join();
        }
        for device in &self.devices {
            device.segments.close();
        }
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name).spawn(run).context("cannot start a thread")
}

fn reader(device: &Device, queue: &Receiver<Option<Read>>, told: &Told) {
    if device.profile.is_some() {
        clock::precise_thread();
        clock::raise_thread();
    }
    let mut buffer = Buffer::default();
    while let Ok(Some(read)) = queue.recv() {
        let Read { segment, location, key, job, held_to } = read;
        let result = match segment {
            Some(segment) => device.segments.read(&segment, location, &key, &mut buffer),
            None => Err(format!("segment {} is gone", location.segment())),
        };
        if let Err(reason) = &result {
            warn!("{reason}; the origin is asked");
        }
        let mut ended = clock::now();
        if let Some(at) = held_to.filter(|&at| at > ended) {
            clock::sleep_until(at);
            let late = clock::now().saturating_sub(at);
            device.lateness.lock().unwrap_or_else(PoisonError::into_inner).record(late);
            ended = at;
        }
        let result = result.map_err(|reason| Failure { reason });
        told(ended, Event::Read { job, result });
    }
}

fn writer(queue: &Receiver<Option<Write>>, told: &Told) {
    while let Ok(Some(write)) = queue.recv() {
        match write {
            Write::Append { device, location, key, object, job } => {
                let result = device.segments.append(location, &key, &object);
                if let Err(error) = &result
                    && !device.complained.swap(true, Ordering::Relaxed)
                {
                    warn!("a device cannot be written: {error}; serving goes on without it");
                }
                told(clock::now(), Event::Appended { job, written: result.is_ok() });
            }
            Write::Seal { device, segment } => {
                if let Err(error) = device.segments.seal(segment) {
                    warn!("cannot write the index of segment {segment}: {error}");
                }
            }
            Write::Drop { device, segment } => device.segments.remove(segment),
        }
    }
}
