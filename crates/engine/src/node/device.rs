//! One device of a node: its queue and log, how long it serves, and whether it works.

use ground::window::{Finished, Nanos, Outcome, SECOND};
use serde::{Deserialize, Serialize};

use super::depth::Depth;
use super::event::JobId;
use super::settings::DeviceSettings;
use crate::queue::Queue;
use crate::route::stale;
use crate::tier::{Location, Log};

/// How long writes to a device pause after one of them failed.
const APPEND_PAUSE: Nanos = 10 * SECOND;
/// The same after one for which there was no room: until the segments that make room are removed.
const FULL_PAUSE: Nanos = SECOND;

/// How the write of a record ended ([`Event::Appended`](super::Event::Appended)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendEnd {
    /// It can be read.
    Written,
    /// It failed.
    Failed,
    /// The file system had no room for it.
    Full,
}

impl AppendEnd {
    pub fn new(written: bool, full: bool) -> AppendEnd {
        match (written, full) {
            (true, _) => AppendEnd::Written,
            (false, true) => AppendEnd::Full,
            (false, false) => AppendEnd::Failed,
        }
    }
}
/// Reads that fail in a row until a device is taken out.
const OUT_AFTER: u32 = 3;
/// Reads from a device that was taken out that succeed in a row until it is put back.
const BACK_AFTER: u32 = 3;
/// Time between two operations that try a device which was taken out; it doubles with each failure.
const TRIED_EVERY: Nanos = 2 * SECOND;
/// Maximum of that time.
const TRIED_EVERY_MAX: Nanos = 64 * SECOND;

pub(super) struct Device {
    pub queue: Queue<JobId>,
    pub log: Log,
    pub outcome: Outcome,
    pub servers: u32,
    /// Finds that number, if it is not fixed.
    pub depth: Option<Depth>,
    /// See [`DeviceSettings::piece_bytes`].
    pub piece_bytes: u64,
    /// No writes before this time, because one failed: a full device need not fail each of them.
    pub paused_until: Nanos,
    /// Whether the last write failed for another reason than a lack of room.
    pub write_failed: bool,
    pub service: Service,
    /// The time for which a read holds a server until the next may have it: the service of a piece, or
    /// of a read that is not in pieces.
    turns: Service,
    pub health: Health,
    /// Bytes of all records placed since the start, and of these the ones that were there before.
    pub written_bytes: u64,
    pub reinserted_bytes: u64,
    /// Records that a scrub found damaged.
    pub damaged: u64,
    /// For the choice by utilisation: time in service until the last look, and the share of the
    /// time between the last two looks.
    busy: Busy,
    /// Moving average of the queue's length, as reads met it.
    length: f64,
}

/// Reads over which the length of a queue is averaged.
const LENGTHS: f64 = 256.0;

#[derive(Default)]
struct Busy {
    since: Nanos,
    sum: Nanos,
    looked: Nanos,
    share: f64,
}

impl Device {
    pub fn new(settings: &DeviceSettings, queue: Queue<JobId>) -> Device {
        Device {
            queue,
            log: Log::new(settings.bytes_max, settings.segment_bytes, settings.segments_max),
            outcome: settings.outcome,
            servers: settings.servers.max(1),
            depth: (settings.servers_max > 0)
                .then(|| Depth::new(settings.servers, settings.servers_max)),
            piece_bytes: settings.piece_bytes,
            paused_until: 0,
            write_failed: false,
            service: Service::default(),
            turns: Service::default(),
            health: Health::default(),
            written_bytes: 0,
            reinserted_bytes: 0,
            damaged: 0,
            busy: Busy::default(),
            length: 0.0,
        }
    }

    /// Whether a record is read in pieces.
    pub fn is_large(&self, location: Location) -> bool {
        self.piece_bytes > 0 && location.bytes() > self.piece_bytes
    }

    /// A server was held for this time, until `now`.
    pub fn turn(&mut self, service: Nanos, now: Nanos) {
        self.turns.add(0, service, now);
    }

    /// The expected response of a read of `bytes` bytes that comes now, seconds: what waits before
    /// it, divided among the servers, and its own service. It grows old, see [`Device::stale`].
    pub fn expected_s(&self, bytes: u64, now: Nanos) -> f64 {
        let before = (self.queue.length() + 1).saturating_sub(self.servers);
        let expected_s = f64::from(before) / f64::from(self.servers) * self.turns.mean_s()
            + self.service.of_s(bytes);
        expected_s / self.stale(now)
    }

    /// The same at the average length of the queue lately, which does not leap with each read: of a
    /// read without bytes, and for each byte.
    pub fn average_line(&self, now: Nanos) -> (f64, f64) {
        let before = (self.length + 1.0 - f64::from(self.servers)).max(0.0);
        let (fixed, per_byte) = self.service.line();
        let fixed = before / f64::from(self.servers) * self.turns.mean_s() + fixed;
        (fixed / self.stale(now), per_byte / self.stale(now))
    }

    /// The factor, 1 or more, by which expected times are divided, because the last read was long ago.
    /// A hot device that stalled once is not chosen for reads and gets no copies, so without this factor no
    /// read would ever show that it is fast again. Bulk devices need none: objects without a hot copy are
    /// read from them in any case.
    fn stale(&self, now: Nanos) -> f64 {
        if self.outcome == Outcome::HotDevice { stale(now, self.service.at) } else { 1.0 }
    }

    /// Appends a read to the queue; if it is full, returns it as the error.
    pub fn push(&mut self, job: JobId, now: Nanos) -> Result<(), JobId> {
        self.observe_busy(now);
        self.length += (f64::from(self.queue.length()) - self.length) / LENGTHS;
        self.health.used(now);
        self.queue.push(job, now)?;
        if let Some(depth) = self.depth.as_mut().filter(|_| self.queue.is_backed_up()) {
            depth.waits(now);
        }
        Ok(())
    }

    /// A read ended.
    pub fn finish(&mut self, now: Nanos, finished: &Finished) {
        self.observe_busy(now);
        let more = self.queue.is_backed_up();
        self.queue.finish(now, finished);
        self.left(more, now);
    }

    /// A piece of a read ended, and the rest waits for its turn.
    pub fn again(&mut self, job: JobId, now: Nanos) {
        let more = self.queue.is_backed_up();
        self.queue.again(job, now);
        self.left(more, now);
    }

    /// A read left the device; `more`: others waited for its place.
    fn left(&mut self, more: bool, now: Nanos) {
        let Some(depth) = &mut self.depth else { return };
        if depth.ended(more, now) {
            self.servers = depth.now();
            self.queue.set_servers(self.servers);
        }
    }

    /// Whether it takes a write now.
    pub fn takes_writes(&self, now: Nanos) -> bool {
        self.paused_until <= now && self.health.takes(now)
    }

    /// A write ended.
    pub fn appended(&mut self, end: AppendEnd, now: Nanos) {
        match end {
            // A write that succeeds proves nothing: what it wrote must be read.
            AppendEnd::Written => {
                self.write_failed = false;
                self.health.trial_over();
            }
            AppendEnd::Failed => {
                self.write_failed = true;
                self.paused_until = now + APPEND_PAUSE;
                self.health.failed_to_write(now);
            }
            // Others that were under way fail likewise: the budget is shrunk once for all of them.
            AppendEnd::Full => {
                if self.paused_until <= now {
                    self.log.shrink();
                }
                self.paused_until = self.paused_until.max(now + FULL_PAUSE);
            }
        }
    }

    /// The share of the time that it was busy, looked at once a second as `iostat` does: what
    /// balancers that choose by utilisation know.
    pub fn utilisation(&mut self, now: Nanos) -> f64 {
        let past = now.saturating_sub(self.busy.looked);
        if past >= SECOND {
            self.observe_busy(now);
            self.busy.share = self.busy.sum as f64 / past as f64;
            (self.busy.looked, self.busy.sum) = (now, 0);
        }
        self.busy.share
    }

    /// Adds the time since the last change of the queue. Called before each change.
    fn observe_busy(&mut self, now: Nanos) {
        if self.queue.length() > 0 {
            self.busy.sum += now.saturating_sub(self.busy.since);
        }
        self.busy.since = self.busy.since.max(now);
    }
}

/// The service time of reads as a line over their bytes, from the device's own timestamps: the
/// least squares of the latest reads, of which older ones count less and less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Service {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
    /// When the last read ended.
    at: Nanos,
}

impl Service {
    /// Reads that count, in the sense of the sum of an exponential law.
    const MEMORY: f64 = 256.0;
    /// The same in time: after a pause of this many seconds, what was before counts 1/e.
    const MEMORY_S: f64 = 20.0;

    /// Adds a read of `bytes` bytes that took `service` and ended at `now`.
    pub fn add(&mut self, bytes: u64, service: Nanos, now: Nanos) {
        let (x, y) = (bytes as f64, service as f64 / SECOND as f64);
        let pause_s = now.saturating_sub(self.at) as f64 / SECOND as f64;
        let keep = (1.0 - 1.0 / Service::MEMORY) * (-pause_s / Service::MEMORY_S).exp();
        self.at = now;
        self.weight = self.weight * keep + 1.0;
        self.x = self.x * keep + x;
        self.y = self.y * keep + y;
        self.xx = self.xx * keep + x * x;
        self.xy = self.xy * keep + x * y;
    }

    /// The mean service time, seconds; 0 before the first read.
    pub fn mean_s(&self) -> f64 {
        if self.weight > 0.0 { self.y / self.weight } else { 0.0 }
    }

    /// Seconds of a read without bytes, and seconds per byte; neither is negative.
    pub fn line(&self) -> (f64, f64) {
        if self.weight == 0.0 {
            return (0.0, 0.0);
        }
        let (x, y) = (self.x / self.weight, self.y / self.weight);
        let variance = self.xx / self.weight - x * x;
        // Of reads of nearly one size, and of few reads, a slope is noise.
        if self.weight < 16.0 || variance <= 0.01 * x * x {
            return (y, 0.0);
        }
        let slope = ((self.xy / self.weight - x * y) / variance).clamp(0.0, y / x.max(1.0));
        (y - slope * x, slope)
    }

    /// The service time of a read of `bytes` bytes, seconds; 0 before the first read, so that an
    /// unknown device is tried.
    pub fn of_s(&self, bytes: u64) -> f64 {
        let (fixed, per_byte) = self.line();
        fixed + per_byte * bytes as f64
    }
}

/// Whether a device works. Reads that fail in a row take it out; then single operations try it,
/// until enough reads succeed in a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Health {
    failures: u32,
    proofs: u32,
    out_since: Option<Nanos>,
    try_at: Nanos,
    tried_every: Nanos,
    /// An operation that tries it is under way.
    trial: bool,
}

/// The state of a device as `/admin/tiers` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceState {
    /// It serves.
    In,
    /// It failed: only trial operations go to it.
    Out,
}

impl Health {
    pub fn state(&self) -> DeviceState {
        if self.out_since.is_some() { DeviceState::Out } else { DeviceState::In }
    }

    /// Since when it is out.
    pub fn out_since(&self) -> Option<Nanos> {
        self.out_since
    }

    /// Whether an operation may go to it now.
    pub fn takes(&self, now: Nanos) -> bool {
        self.out_since.is_none() || self.try_at <= now
    }

    /// An operation goes to it: if it is out, no other does for a while.
    pub fn used(&mut self, now: Nanos) {
        if self.out_since.is_some() {
            self.try_at = now + self.tried_every;
            self.trial = true;
        }
    }

    /// It is out for good.
    pub fn retire(&mut self, now: Nanos) {
        (self.out_since, self.try_at) = (Some(now), Nanos::MAX);
    }

    /// A read succeeded.
    pub fn worked(&mut self) {
        self.failures = 0;
        if self.out_since.is_none() {
            return;
        }
        self.proofs += 1;
        (self.try_at, self.trial) = (0, false);
        if self.proofs >= BACK_AFTER {
            *self = Health::default();
        }
    }

    /// A write ended that went to it.
    pub fn trial_over(&mut self) {
        self.trial = false;
    }

    /// A read failed.
    pub fn failed(&mut self, now: Nanos) {
        self.failures = self.failures.saturating_add(1);
        self.proofs = 0;
        if self.out_since.is_some() {
            // What was under way when it was taken out says nothing new.
            if std::mem::take(&mut self.trial) {
                self.tried_every = (self.tried_every * 2).min(TRIED_EVERY_MAX);
                self.try_at = now + self.tried_every;
            }
        } else if self.failures >= OUT_AFTER {
            self.out_since = Some(now);
            self.tried_every = TRIED_EVERY;
            self.try_at = now + self.tried_every;
        }
    }

    /// A write failed. A device that is full still serves reads, so this takes nothing out.
    pub fn failed_to_write(&mut self, now: Nanos) {
        if self.out_since.is_some() {
            self.failed(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_through_reads_of_many_sizes_and_a_mean_of_one_size() {
        let mut service = Service::default();
        assert_eq!(service.of_s(1000), 0.0);
        for read in 0..1000u64 {
            let bytes = 1000 * (1 + read % 64);
            service.add(bytes, 5_000_000 + 10 * bytes, 0);
        }
        let (fixed, per_byte) = service.line();
        assert!(
            (fixed - 0.005).abs() < 1e-6 && (per_byte - 1e-8).abs() < 1e-12,
            "{fixed} {per_byte}"
        );
        let mut service = Service::default();
        (0..1000).for_each(|read| service.add(4096, 1_000_000 + read % 2 * 1_000_000, 0));
        assert!((service.of_s(1 << 20) - 0.0015).abs() < 1e-4);
        // A device that serves large reads faster than small ones has no negative times.
        let mut service = Service::default();
        for read in 0..1000 {
            service.add(1 + read % 2 * 100_000, 2_000_000 - read % 2 * 1_000_000, 0);
        }
        assert!(service.of_s(0) >= 0.0 && service.of_s(1 << 30) >= 0.0);
    }

    /// A device with one arm, whose reads take 10 ms each, one after the other.
    #[test]
    fn the_queue_follows_the_depth_that_is_found() {
        use crate::node::flights::unserved;

        let settings = DeviceSettings {
            name: "device/0".to_owned(),
            outcome: Outcome::BulkDevice,
            servers: 8,
            servers_max: 64,
            queue_length_max: 100,
            bytes_max: 1 << 20,
            segment_bytes: 1 << 16,
            segments_max: 0,
            piece_bytes: 0,
        };
        let windows = ground::window::Settings::default();
        let mut device = Device::new(&settings, Queue::new("device/0", 8, 100, windows, 0));
        let (mut now, mut inside, mut most) = (0, 0, 0);
        for job in 0..400_000 {
            device.push(job, now).unwrap();
            while device.queue.start(now).is_some() {
                inside += 1;
            }
            most = if job < 300_000 { 0 } else { most.max(inside) };
            if device.queue.length() > 80 {
                now += SECOND / 100;
                inside -= 1;
                device.finish(now, &unserved());
            }
        }
        // Once the depth is found, 2 are in service in the rounds that compare it with the next.
        assert!(most <= 2, "{most} reads in service");
        let reason = device.depth.as_ref().and_then(Depth::reason).unwrap();
        assert_eq!((reason.depth, reason.smaller), (1, None));
        assert!((reason.reads_per_s - 100.0).abs() < 1.0, "{reason:?}");
        assert!(reason.changes >= 5 && reason.changes < 8, "{reason:?}");
        let windows = device.queue.windows(now);
        assert_eq!(windows.last().map(|window| window.servers), Some(device.servers));
    }

    #[test]
    fn a_device_is_taken_out_by_failures_in_a_row_and_proves_itself_before_it_is_back() {
        let mut health = Health::default();
        for _ in 0..10 {
            (0..OUT_AFTER - 1).for_each(|_| health.failed(5));
            health.worked();
        }
        assert_eq!(health.state(), DeviceState::In);
        (0..OUT_AFTER).for_each(|_| health.failed(10));
        assert_eq!((health.state(), health.out_since()), (DeviceState::Out, Some(10)));
        assert!(!health.takes(10 + TRIED_EVERY - 1) && health.takes(10 + TRIED_EVERY));
        // One operation tries it; the next only after as long again, twice that after a failure.
        let now = 10 + TRIED_EVERY;
        health.used(now);
        assert!(!health.takes(now));
        health.failed(now);
        assert!(!health.takes(now + TRIED_EVERY) && health.takes(now + 2 * TRIED_EVERY));
        for proof in 1..=BACK_AFTER {
            assert_eq!(health.state(), DeviceState::Out, "after {proof} proofs");
            assert!(health.takes(now + 100 * SECOND));
            health.used(now + 100 * SECOND);
            health.worked();
        }
        assert_eq!(health.state(), DeviceState::In);
        assert!(health.takes(0));
    }
}
