//! Rolls the windows of all queues, and writes the run folder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use engine::invariant::Invariants;
use ground::window::{KernelDevice, Nanos, QueueName, Sample, Window};
use ground::with_causes;
use tracing::{error, warn};

use super::Front;
use super::error::Error;
use live::LiveModel;
use record::clock;
use record::{HostSampler, RunWriter};

/// Connections that must have closed before memory is given back: looking for it costs milliseconds.
const TRIM_CONNECTIONS: usize = 256;

/// What is observed.
pub trait Observed: Send + Sync {
    /// Its lanes, configuration and metrics.
    fn front(&self) -> &Front;
    /// The windows of the clients' requests that ended by `now` (with `flush` also the open ones),
    /// and the samples since the last call.
    fn take(&self, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
        take(self.front(), now, flush)
    }
    /// The windows of the queues behind it that ended by `now`; with `flush` also the open ones.
    fn windows(&self, now: Nanos, flush: bool) -> Vec<Window>;
    /// The broken invariants of its engine since the start.
    fn invariants(&self) -> Invariants;
}

/// The observing thread.
pub struct Observer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// The kernel's counters of the disk that holds a device's folder.
struct KernelDisk {
    queue: String,
    number: (u32, u32),
    last: Option<procfs::DiskStat>,
}

impl Observer {
    /// Starts the thread. `start` is the start of the first windows.
    pub fn start(
        observed: Vec<Arc<dyn Observed>>,
        run: Option<RunWriter>,
        live: Arc<LiveModel>,
        start: Nanos,
    ) -> Result<Observer, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let window_s = observed.first().map_or(1.0, |o| o.front().config.observe.window_s);
        let kernel = kernel_disks(&observed);
        let mut watch = Watch { kernel, observed, run, live, complained: false, peak: 0 };
        let thread = std::thread::Builder::new().name("observe".to_owned());
        let thread = thread.spawn(move || {
            let window = (window_s * 1e9) as Nanos;
            let mut host = HostSampler::start();
            let (mut next, mut next_host) = (start + window, start + 1_000_000_000);
            while !stopped.load(Ordering::Relaxed) {
                let wake = next.min(next_host);
                // Sleeps in steps, so that a long window does not delay the end of the process.
                clock::sleep_until(wake.min(clock::now() + 50_000_000));
                let now = clock::now();
                if now >= next {
                    watch.roll(now, false);
                    next += window * ((now - next) / window + 1);
                }
                if now >= next_host {
                    watch.host(&mut host);
                    next_host += 1_000_000_000 * ((now - next_host) / 1_000_000_000 + 1);
                }
            }
            watch.roll(clock::now(), true);
            watch.host(&mut host);
        });
        let failed = |source| Error::Thread { name: "observe".to_owned(), source };
        Ok(Observer { stop, thread: thread.map_err(failed)? })
    }

    /// Writes the last windows and ends the thread.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
    }
}

struct Watch {
    observed: Vec<Arc<dyn Observed>>,
    live: Arc<LiveModel>,
    run: Option<RunWriter>,
    kernel: Vec<KernelDisk>,
    complained: bool,
    /// The most connections since memory was last given back.
    peak: usize,
}

impl Watch {
    fn roll(&mut self, now: Nanos, flush: bool) {
        let mut windows = Vec::new();
        let mut samples = Vec::new();
        for observed in self.observed.clone() {
            let (lanes, sampled) = observed.take(now, flush);
            samples.extend(sampled);
            let mut own = observed.windows(now, flush);
            self.add_kernel(&mut own);
            own.extend(lanes);
            observed.front().metrics.add(&own);
            let invariants = observed.invariants();
            if observed.front().metrics.set_broken_invariants(invariants.count()) {
                error!("{invariants}; this is a defect of Concertina, please report it");
            }
            windows.extend(own);
        }
        self.live.push(&windows);
        if let Some(run) = &mut self.run {
            let written = run
                .windows(&windows)
                .and_then(|()| run.samples(&samples))
                .and_then(|()| run.flush());
            self.complain(written);
        }
    }

    fn host(&mut self, host: &mut HostSampler) {
        let fronts = self.observed.iter().map(|observed| observed.front());
        let open = fronts.map(|front| front.connections.count()).sum();
        self.peak = self.peak.max(open);
        if self.peak - open >= TRIM_CONNECTIONS {
            self.peak = open;
            wire::trim::trim();
        }
        let sampled = host.sample();
        if let Some(run) = &mut self.run {
            let written = run.host(&sampled).and_then(|()| run.flush());
            self.complain(written);
        }
    }

    fn complain(&mut self, written: Result<(), record::Error>) {
        if let Err(error) = written
            && !std::mem::replace(&mut self.complained, true)
        {
            let error = with_causes(&error);
            warn!("{error}; serving continues, but the run folder is incomplete");
        }
    }

    fn add_kernel(&mut self, windows: &mut [Window]) {
        if self.kernel.is_empty() {
            return;
        }
        let Ok(stats) = procfs::diskstats() else { return };
        for disk in &mut self.kernel {
            let found = stats.iter().find(|s| (s.major as u32, s.minor as u32) == disk.number);
            let Some(now) = found else { continue };
            let before = disk.last.replace(now.clone());
            let Some(before) = before else { continue };
            let window = windows.iter_mut().rev().find(|window| window.queue == disk.queue);
            if let Some(window) = window {
                window.kernel = Some(difference(&before, now, window.length_s));
            }
        }
    }
}

/// The windows and samples of the lanes of a front.
fn take(front: &Front, now: Nanos, flush: bool) -> (Vec<Window>, Vec<Sample>) {
    // Merged by start time, because lanes may return different numbers of windows: a lane whose
    // last event was past a window's end returns one more.
    let mut merged: BTreeMap<u64, Window> = BTreeMap::new();
    let mut samples = Vec::new();
    for lane in &front.lanes {
        let (windows, sampled) = lane.take(now, flush);
        samples.extend(sampled);
        for window in windows {
            match merged.get_mut(&window.start_unix_us) {
                Some(merged) => merged.merge(&window, true),
                None => {
                    merged.insert(window.start_unix_us, window);
                }
            }
        }
    }
    (merged.into_values().collect(), samples)
}

fn difference(before: &procfs::DiskStat, now: &procfs::DiskStat, length_s: f64) -> KernelDevice {
    let reads = now.reads.saturating_sub(before.reads);
    let writes = now.writes.saturating_sub(before.writes);
    let time = |f: fn(&procfs::DiskStat) -> u64| f(now).saturating_sub(f(before)) as f64;
    let waited_ms = time(|s| s.time_reading) + time(|s| s.time_writing);
    KernelDevice {
        reads,
        writes,
        await_ms: waited_ms / ((reads + writes).max(1) as f64),
        utilisation: (time(|s| s.time_in_progress) / 1e3 / length_s.max(1e-9)).min(1.0),
    }
}

/// The disks of real devices. Emulated devices are left out, because the kernel's figures do not
/// describe their drawn service times.
fn kernel_disks(observed: &[Arc<dyn Observed>]) -> Vec<KernelDisk> {
    let mut disks = Vec::new();
    let config = observed.iter().map(|o| &o.front().config).find(|config| config.is_node());
    let Some(config) = config else { return disks };
    let mut id = 0;
    for device in &config.devices {
        for folder in device.folders() {
            let number = rustix::fs::stat(&folder).ok().map(|stat| {
                let kind = rustix::fs::FileType::from_raw_mode(stat.st_mode);
                // A block device is on none.
                let device = if kind.is_block_device() { stat.st_rdev } else { stat.st_dev };
                (rustix::fs::major(device), rustix::fs::minor(device))
            });
            if let Some(number) = number.filter(|_| device.service.is_none()) {
                disks.push(KernelDisk {
                    queue: QueueName::Device(&id.to_string()).to_string(),
                    number,
                    last: None,
                });
            }
            id += 1;
        }
    }
    disks
}
