//! A share of a processor for some processes: the kernel's controller of processor time (cgroup, either version).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The period, microseconds: short, so that nobody waits long for the next; and the least that its share is, or the
/// period is longer.
const PERIOD_US: f64 = 5_000.0;
const QUOTA_US: f64 = 1_250.0;
/// The period of threads of real-time priority, and the most of it that they get, microseconds: they do not count
/// against the quota of the others.
const REAL_TIME_PERIOD_US: u64 = 1_000_000;
const REAL_TIME_MOST_US: f64 = 50_000.0;
/// Where groups are, of version 2 and of version 1.
const UNIFIED: &str = "/sys/fs/cgroup";
const CONTROLLER: &str = "/sys/fs/cgroup/cpu";

/// Processes with a quota, until it is dropped. They must have ended by then, or be moved by the kernel's owner.
#[derive(Debug)]
pub struct Quota {
    group: PathBuf,
}

impl Quota {
    /// Gives processes a share of one processor, all of them together.
    ///
    /// # Errors
    /// If there is no controller that may be used: it needs root.
    pub fn new(name: &str, pids: &[u32], share: f64) -> anyhow::Result<Quota> {
        let unified = fs::read_to_string(Path::new(UNIFIED).join("cgroup.controllers"));
        let unified = unified.is_ok_and(|all| all.split_whitespace().any(|one| one == "cpu"));
        let own = format!("concertina-{name}-{}", std::process::id());
        let group = Path::new(if unified { UNIFIED } else { CONTROLLER }).join(own);
        fs::create_dir_all(&group)
            .with_context(|| format!("cannot make a group of processes at {}", group.display()))?;
        let quota = Quota { group };
        let period = PERIOD_US.max(QUOTA_US / share);
        let (us, period) = ((period * share) as u64, period as u64);
        if unified {
            let _ = fs::write(Path::new(UNIFIED).join("cgroup.subtree_control"), "+cpu");
            quota.write("cpu.max", &format!("{us} {period}"))?;
        } else {
            quota.write("cpu.cfs_period_us", &period.to_string())?;
            quota.write("cpu.cfs_quota_us", &us.to_string())?;
            // A thread of real-time priority (that paces emulated devices) is refused by a group without time for
            // such threads. Where the kernel does not tell them apart, there is no such file.
            if quota.group.join("cpu.rt_runtime_us").exists() {
                quota.write("cpu.rt_runtime_us", &real_time_us(share).to_string())?;
            }
        }
        for pid in pids {
            quota.write("cgroup.procs", &pid.to_string())?;
        }
        Ok(quota)
    }

    fn write(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.group.join(file);
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The time of a group's threads of real-time priority in each period: a tenth of its share.
fn real_time_us(share: f64) -> u64 {
    (0.1 * share * REAL_TIME_PERIOD_US as f64).clamp(1_000.0, REAL_TIME_MOST_US) as u64
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Once its processes have ended; a group that is left holds nothing.
        for _ in 0..50 {
            if fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
