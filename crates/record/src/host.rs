//! The host's activity, second by second: CPU, memory, network and disks, as `dstat` shows them.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};

use procfs::{Current, CurrentSI};
use serde::{Deserialize, Serialize};

use crate::clock;

/// The machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Cores that this process may use.
    pub cores: usize,
    /// Name of the processor's model.
    pub processor: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Version of the kernel.
    pub kernel: String,
    /// Whether idle processors were [kept awake](Awake) when the run began; `None` if unknown (only
    /// root can tell).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awake: Option<bool>,
}

impl Machine {
    /// Describes this machine; unknown values are empty or 0.
    pub fn describe() -> Machine {
        let processor = procfs::CpuInfo::current()
            .ok()
            .and_then(|info| info.model_name(0).map(str::to_owned))
            .unwrap_or_default();
        Machine {
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor,
            memory_bytes: procfs::Meminfo::current().map_or(0, |m| m.mem_total),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            awake: latency_us().map(|latency| latency == 0),
        }
    }
}

/// The kernel's limit on how long a processor may take to wake up.
const LATENCY: &str = "/dev/cpu_dma_latency";

/// The present limit in microseconds: the smallest that any process holding the device has set.
fn latency_us() -> Option<i32> {
    let mut bytes = [0; 4];
    File::open(LATENCY).and_then(|mut file| file.read_exact(&mut bytes)).ok()?;
    Some(i32::from_ne_bytes(bytes))
}

/// Keeps idle processors from sleeping until it is dropped, as `cyclictest` does.
///
/// A processor that sleeps between requests wakes up late, and a virtual machine's is given to
/// other guests meanwhile: where a busy loop lost 1 % of its time to them, a load that was half
/// idle lost 34 %, and a message to the other processor and back took 93 µs instead of 8. Such a
/// run measures the hypervisor. The kernel's interface (`/dev/cpu_dma_latency`) is available to
/// root only; its effect ends with the process, however that ends.
pub struct Awake {
    _held: File,
}

impl Awake {
    /// Keeps all processors of this machine awake; `None` if that is not permitted.
    pub fn hold() -> Option<Awake> {
        let mut held = OpenOptions::new().write(true).open(LATENCY).ok()?;
        held.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(Awake { _held: held })
    }
}

/// The host's activity in one interval. Shares are averages over the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// End of the interval, in microseconds since 1970-01-01 UTC.
    pub unix_us: u64,
    /// Length of the interval in seconds.
    pub length_s: f64,
    /// Share of all cores in user code.
    pub cpu_user: f64,
    /// Share of all cores in the kernel, interrupts included.
    pub cpu_system: f64,
    /// Share of all cores idle while waiting for a disk.
    pub cpu_wait: f64,
    /// Share of all cores that the hypervisor gave to other guests.
    pub cpu_stolen: f64,
    /// Available memory, bytes.
    pub memory_available_bytes: u64,
    /// Memory in the page cache, bytes.
    pub memory_cached_bytes: u64,
    /// Bytes received by all interfaces, including the loopback.
    pub network_received_bytes: u64,
    /// Bytes sent.
    pub network_sent_bytes: u64,
    /// Bytes read from all disks.
    pub disk_read_bytes: u64,
    /// Bytes written.
    pub disk_written_bytes: u64,
    /// Highest utilisation of a disk.
    pub disk_utilisation_max: f64,
}

/// Sums since the host started.
#[derive(Clone, Default)]
struct Totals {
    cpu: Option<procfs::CpuTime>,
    network: (u64, u64),
    disk: (u64, u64),
    busy_ms: Vec<(String, u64)>,
}

/// Samples the differences of the kernel's counters between calls.
pub struct HostSampler {
    at: u64,
    totals: Totals,
}

impl HostSampler {
    /// Starts the first interval.
    pub fn start() -> HostSampler {
        HostSampler { at: clock::now(), totals: totals() }
    }

    /// Ends the interval and starts the next. Values that the kernel does not provide are 0.
    pub fn sample(&mut self) -> Host {
        let now = clock::now();
        let length_s = (now - self.at) as f64 * 1e-9;
        let next = totals();
        let before = std::mem::replace(&mut self.totals, next);
        self.at = now;
        let mut host = Host {
            unix_us: ((i128::from(now) + clock::unix_offset_ns()) / 1000).max(0) as u64,
            length_s,
            network_received_bytes: self.totals.network.0.saturating_sub(before.network.0),
            network_sent_bytes: self.totals.network.1.saturating_sub(before.network.1),
            disk_read_bytes: self.totals.disk.0.saturating_sub(before.disk.0),
            disk_written_bytes: self.totals.disk.1.saturating_sub(before.disk.1),
            ..Host::default()
        };
        if let (Some(a), Some(b)) = (&before.cpu, &self.totals.cpu) {
            cpu_shares(a, b, &mut host);
        }
        if let Ok(memory) = procfs::Meminfo::current() {
            host.memory_available_bytes = memory.mem_available.unwrap_or(0);
            host.memory_cached_bytes = memory.cached;
        }
        for (name, busy) in &self.totals.busy_ms {
            if let Some((_, old)) = before.busy_ms.iter().find(|(n, _)| n == name) {
                let share = busy.saturating_sub(*old) as f64 / 1000.0 / length_s.max(1e-9);
                host.disk_utilisation_max = host.disk_utilisation_max.max(share.min(1.0));
            }
        }
        host
    }
}

fn cpu_shares(a: &procfs::CpuTime, b: &procfs::CpuTime, host: &mut Host) {
    let of = |f: fn(&procfs::CpuTime) -> u64| f(b).saturating_sub(f(a)) as f64;
    let user = of(|c| c.user + c.nice);
    let system = of(|c| c.system + c.irq.unwrap_or(0) + c.softirq.unwrap_or(0));
    let wait = of(|c| c.iowait.unwrap_or(0));
    let stolen = of(|c| c.steal.unwrap_or(0));
    let total = user + system + wait + stolen + of(|c| c.idle);
    if total > 0.0 {
        host.cpu_user = user / total;
        host.cpu_system = system / total;
        host.cpu_wait = wait / total;
        host.cpu_stolen = stolen / total;
    }
}

/// Samples how many processors this process could use more than it does.
pub struct IdleSampler {
    at: u64,
    cpu: Option<procfs::CpuTime>,
    used_s: f64,
    /// Processors that this process may use, affinity and the limit of its control group considered.
    cores: f64,
}

impl IdleSampler {
    /// Starts the first interval.
    pub fn start() -> IdleSampler {
        IdleSampler {
            at: clock::now(),
            cpu: cpu_now(),
            used_s: clock::process_s(),
            cores: std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64),
        }
    }

    /// Processors that were idle in the interval that ends, of those that this process may use; `None` if the kernel does
    /// not tell, or no time has passed. Starts the next interval.
    pub fn sample(&mut self) -> Option<f64> {
        let next = IdleSampler { cores: self.cores, ..IdleSampler::start() };
        let before = std::mem::replace(self, next);
        let length_s = self.at.saturating_sub(before.at) as f64 * 1e-9;
        let used = (self.used_s - before.used_s) / length_s;
        let idle = idle_share(&before.cpu?, self.cpu.as_ref()?)? * self.cores;
        (length_s > 0.0).then(|| idle.min(self.cores - used).clamp(0.0, self.cores))
    }
}

fn cpu_now() -> Option<procfs::CpuTime> {
    procfs::KernelStats::current().ok().map(|stat| stat.total)
}

/// The share of all processors' time that was idle; waiting for a disk is idle.
fn idle_share(a: &procfs::CpuTime, b: &procfs::CpuTime) -> Option<f64> {
    let mut host = Host::default();
    cpu_shares(a, b, &mut host);
    let busy = host.cpu_user + host.cpu_system + host.cpu_stolen;
    let passed = |c: &procfs::CpuTime| c.idle + c.iowait.unwrap_or(0) + c.user + c.nice + c.system;
    (passed(b) > passed(a)).then_some((1.0 - busy).clamp(0.0, 1.0))
}

fn totals() -> Totals {
    let mut totals = Totals { cpu: cpu_now(), ..Totals::default() };
    if let Ok(interfaces) = procfs::net::dev_status() {
        for interface in interfaces.values() {
            totals.network.0 += interface.recv_bytes;
            totals.network.1 += interface.sent_bytes;
        }
    }
    if let Ok(disks) = procfs::diskstats() {
        // A partition's name extends its disk's, and the disk's counters include it.
        let whole = |name: &str| !disks.iter().any(|d| d.name != name && name.starts_with(&d.name));
        for disk in disks.iter().filter(|d| whole(&d.name)) {
            totals.disk.0 += disk.sectors_read * 512;
            totals.disk.1 += disk.sectors_written * 512;
            totals.busy_ms.push((disk.name.clone(), disk.time_in_progress));
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_is_not_idle() {
        let mut sampler = IdleSampler::start();
        let until = clock::now() + 300_000_000;
        while clock::now() < until {
            std::hint::spin_loop();
        }
        let idle = sampler.sample().unwrap();
        // However busy the machine is, this thread had some of a processor.
        assert!((0.0..sampler.cores).contains(&idle), "{idle} of {}", sampler.cores);
        let mut a = procfs::KernelStats::current().unwrap().total;
        assert_eq!(idle_share(&a, &a), None);
        let b = a.clone();
        a.user -= a.user.min(30);
        a.idle -= a.idle.min(10);
        assert!((idle_share(&a, &b).unwrap() - 0.25).abs() < 1e-9);
    }
}
