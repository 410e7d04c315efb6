//! Fits an experiment to the machine: measures what a request costs here, scales the load so that
//! the processors stay below 60 % in every step, and pins the load generator and the servers to
//! processors of their own where both fit.
//!
//! A model of queues at devices does not cover processors that are full. A measurement on such a
//! machine would be one of the scheduler, so where scaling is not enough the experiment ends with
//! [`TooSmall`] and gives no verdict.

use anyhow::{Context as _, ensure};
use record::RunFolder;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Largest share of its processors that a step may use, servers and load generator apart or
/// together.
pub const BUSY_MAX: f64 = 0.6;
/// Largest rate at which the cost of a request is measured, requests/s: one that every machine
/// carries.
pub const COST_RATE_MAX: f64 = 1000.0;
/// Share of the rate that fits without pinning at which pinning is preferred.
const PINNED_SHARE_MIN: f64 = 0.7;

/// The machine cannot carry the experiment at the smallest useful scale.
#[derive(Clone, Debug, PartialEq)]
pub struct TooSmall {
    /// Processors that the experiment may use here.
    pub processors: usize,
    /// Processors that it needs.
    pub needed: usize,
    /// The figures behind it.
    pub why: String,
}

impl std::fmt::Display for TooSmall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "this machine is too small for this experiment: needs {} processors, has {} ({})",
            self.needed, self.processors, self.why
        )
    }
}

impl std::error::Error for TooSmall {}

/// Processor time of one request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// In the servers, seconds.
    pub servers_s: f64,
    /// In the load generator, seconds.
    pub generator_s: f64,
}

impl Cost {
    /// The cost of the requests that `load` makes, where `servers` are the processes that answer
    /// them. The load must have no warm-up: the generator accounts for its measured steps only.
    ///
    /// # Errors
    /// If the load fails or makes no requests, or a process has ended.
    pub fn measure(
        servers: &[i32],
        load: impl FnOnce() -> anyhow::Result<RunFolder>,
    ) -> anyhow::Result<Cost> {
        let used = || servers.iter().map(|&pid| processor_s(pid)).sum::<anyhow::Result<f64>>();
        let before = used()?;
        let run = load()?;
        let spent = used()? - before;
        let requests: u64 = run.windows.iter().map(|window| window.completions).sum();
        ensure!(requests > 0, "the load that measures what a request costs got no reply");
        let of_step = |step: &record::Step| {
            step.generator.cpu * step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6
        };
        let generator: f64 = run.steps.iter().map(of_step).sum();
        let each = |s: f64| s / requests as f64;
        Ok(Cost { servers_s: each(spent), generator_s: each(generator) })
    }

    fn sum_s(self) -> f64 {
        self.servers_s + self.generator_s
    }
}

/// Processor seconds that a process has used, threads that ended included, in ticks of 10 ms.
///
/// # Errors
/// If it has ended.
pub fn processor_s(pid: i32) -> anyhow::Result<f64> {
    let stat = procfs::process::Process::new(pid).and_then(|process| process.stat());
    let stat = stat.with_context(|| format!("the process {pid} has ended"))?;
    Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
}

/// The share of all processors' time that is used during so long.
///
/// # Errors
/// If the kernel's counters cannot be read.
pub fn busy_over(time: std::time::Duration) -> anyhow::Result<f64> {
    use procfs::CurrentSI as _;
    let read = || -> anyhow::Result<(u64, u64)> {
        let total = procfs::KernelStats::current().context("cannot read /proc/stat")?.total;
        let idle = total.idle + total.iowait.unwrap_or(0);
        let busy = total.user + total.nice + total.system;
        let others = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0) + total.steal.unwrap_or(0);
        Ok((busy + others, busy + others + idle))
    };
    let before = read()?;
    std::thread::sleep(time);
    let after = read()?;
    let all = after.1.saturating_sub(before.1).max(1);
    Ok(after.0.saturating_sub(before.0) as f64 / all as f64)
}

/// Processor seconds that the running threads of a process have used, as the scheduler counts them, to the
/// nanosecond: for short slices of servers that keep their threads. Falls back on [`processor_s`] where the
/// kernel does not count.
///
/// # Errors
/// If it has ended.
pub fn threads_s(pid: i32) -> anyhow::Result<f64> {
    let process = procfs::process::Process::new(pid);
    let process = process.with_context(|| format!("the process {pid} has ended"))?;
    let of_task = |task: procfs::process::Task| task.schedstat().ok().map(|s| s.sum_exec_runtime);
    if let Ok(tasks) = process.tasks() {
        let times: Option<Vec<u64>> = tasks.map(|task| task.ok().and_then(of_task)).collect();
        if let Some(times) = times.filter(|times| !times.is_empty()) {
            return Ok(times.into_iter().sum::<u64>() as f64 * 1e-9);
        }
    }
    processor_s(pid)
}

/// How an experiment is run on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The share of the planned load and devices that the machine carries, at most 1.
    pub scale: f64,
    /// Where servers and load generator run.
    pub placement: Placement,
}

/// Processors of the servers and of the load generator.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Placement {
    /// Anywhere: both share all processors.
    #[default]
    Shared,
    /// Each on processors of its own, by their numbers.
    Apart {
        /// Of the servers.
        servers: Vec<usize>,
        /// Of the load generator.
        generator: Vec<usize>,
    },
}

impl Placement {
    /// The processors of `processors` apart: the last for the generator. Shared if there is one
    /// only.
    pub fn apart(processors: &[usize], of_generator: usize) -> Placement {
        let count = processors.len().saturating_sub(of_generator);
        if count == 0 || of_generator == 0 {
            return Placement::Shared;
        }
        let (servers, generator) = processors.split_at(count);
        Placement::Apart { servers: servers.to_vec(), generator: generator.to_vec() }
    }

    /// Does something, as starting a server, on the servers' processors: a process that is started
    /// meanwhile stays there.
    ///
    /// # Errors
    /// That of `start`, or if this thread cannot be moved.
    pub fn of_servers<T>(&self, start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        match self {
            Placement::Shared => start(),
            Placement::Apart { servers, .. } => on(servers, start),
        }
    }

    /// The same on the processors of the load generator.
    ///
    /// # Errors
    /// As [`Placement::of_servers`].
    pub fn of_generator<T>(&self, start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
        match self {
            Placement::Shared => start(),
            Placement::Apart { generator, .. } => on(generator, start),
        }
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Shared => write!(f, "servers and load generator share the processors"),
            Placement::Apart { servers, generator } => {
                write!(f, "servers on processors {servers:?}, load generator on {generator:?}")
            }
        }
    }
}

/// Does something with this thread on some processors; a process started by it inherits them.
fn on<T>(processors: &[usize], start: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let before = sched_getaffinity(None).context("cannot read the processors of this thread")?;
    let mut wanted = CpuSet::new();
    processors.iter().for_each(|&processor| wanted.set(processor));
    sched_setaffinity(None, &wanted)
        .with_context(|| format!("cannot run on the processors {processors:?}"))?;
    let done = start();
    sched_setaffinity(None, &before).context("cannot return to the processors before")?;
    done
}

/// The processors that this thread may use.
///
/// # Errors
/// If the system does not say.
pub fn processors() -> anyhow::Result<Vec<usize>> {
    let set = sched_getaffinity(None).context("cannot read the processors of this thread")?;
    Ok((0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect())
}

/// Fits a load of at most `rate` requests/s, where less than `scale_min` of it is of no use.
///
/// # Errors
/// [`TooSmall`].
pub fn fit(cost: Cost, rate: f64, scale_min: f64, processors: &[usize]) -> Result<Fit, TooSmall> {
    let count = processors.len();
    let shared = BUSY_MAX * count as f64 / cost.sum_s();
    let largest = |of_generator: usize| {
        let of_servers = (count - of_generator) as f64 / cost.servers_s;
        BUSY_MAX * of_servers.min(of_generator as f64 / cost.generator_s)
    };
    // Of equals the last counts: the one with the fewest processors for the generator.
    let apart = (1..count)
        .rev()
        .map(|of_generator| (of_generator, largest(of_generator)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, apart)| *apart >= rate || *apart >= PINNED_SHARE_MIN * shared);
    let (carried, placement) = match apart {
        Some((of_generator, apart)) => (apart, Placement::apart(processors, of_generator)),
        None => (shared, Placement::Shared),
    };
    let scale = (carried / rate).min(1.0);
    if scale >= scale_min {
        return Ok(Fit { scale, placement });
    }
    // If pinning costs too much, sharing may do.
    if shared / rate >= scale_min {
        return Ok(Fit { scale: (shared / rate).min(1.0), placement: Placement::Shared });
    }
    let needed = (rate * scale_min * cost.sum_s() / BUSY_MAX).ceil() as usize;
    let why = format!(
        "a request costs {:.0} µs in the servers and {:.0} µs in the load generator here; {:.0} requests/s at \
         least are wanted with the processors below {:.0} %",
        cost.servers_s * 1e6,
        cost.generator_s * 1e6,
        rate * scale_min,
        BUSY_MAX * 100.0
    );
    Err(TooSmall { processors: count, needed: needed.max(count + 1), why })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost { servers_s: 100e-6, generator_s: 50e-6 };

    fn apart(servers: &[usize], generator: &[usize]) -> Placement {
        Placement::Apart { servers: servers.to_vec(), generator: generator.to_vec() }
    }

    /// Shares of the processors that a fit uses at the largest load.
    fn busy(fit: &Fit, rate: f64, processors: usize) -> f64 {
        let rate = rate * fit.scale;
        match &fit.placement {
            Placement::Shared => rate * COST.sum_s() / processors as f64,
            Placement::Apart { servers, generator } => {
                let of_servers = rate * COST.servers_s / servers.len() as f64;
                of_servers.max(rate * COST.generator_s / generator.len() as f64)
            }
        }
    }

    #[test]
    fn no_step_uses_more_than_the_share_of_its_processors() {
        for count in 1..=16 {
            let processors: Vec<usize> = (0..count).collect();
            for rate in [500.0, 2e3, 6e3, 8e3, 20e3, 60e3] {
                match fit(COST, rate, 0.25, &processors) {
                    Ok(fit) => {
                        assert!((0.25..=1.0).contains(&fit.scale), "{fit:?}");
                        let busy = busy(&fit, rate, count);
                        assert!(busy <= BUSY_MAX + 1e-9, "{count}, {rate}: {busy}, {fit:?}");
                        // Nothing is given away: it is at full scale, or the processors are as full
                        // as allowed.
                        assert!(fit.scale > 0.999 || busy > BUSY_MAX - 1e-9, "{fit:?}");
                    }
                    Err(small) => {
                        assert!(small.needed > count, "{small}");
                        let enough: Vec<usize> = (0..small.needed).collect();
                        assert!(fit(COST, rate, 0.25, &enough).is_ok(), "{small}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_are_pinned_where_both_fit() {
        let fits = fit(COST, 5_000.0, 0.25, &[0, 1]).unwrap();
        assert_eq!(fits, Fit { scale: 1.0, placement: apart(&[0], &[1]) });
        let four = fit(COST, 15_000.0, 0.25, &[2, 3, 4, 5]).unwrap();
        assert_eq!(four.placement, apart(&[2, 3, 4], &[5]));
        // One processor of two would be idle: sharing carries twice as much.
        let lopsided = Cost { servers_s: 100e-6, generator_s: 1e-6 };
        assert_eq!(fit(lopsided, 9_000.0, 0.25, &[0, 1]).unwrap().placement, Placement::Shared);
        assert_eq!(fit(COST, 1_000.0, 0.25, &[3]).unwrap().placement, Placement::Shared);
        let small = fit(COST, 40_000.0, 0.25, &[0, 1]).unwrap_err();
        let words = small.to_string();
        assert!(
            words.starts_with("this machine is too small for this experiment: needs 3 "),
            "{words}"
        );
    }

    #[test]
    fn a_process_stays_where_it_was_started() {
        let all = processors().unwrap();
        let last = *all.last().unwrap();
        let placement = apart(&[all[0]], &[last]);
        let allowed = || -> anyhow::Result<String> {
            let output = std::process::Command::new("cat").arg("/proc/self/status").output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let line = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            Ok(line.unwrap_or_default().trim().to_owned())
        };
        assert_eq!(placement.of_servers(allowed).unwrap(), all[0].to_string());
        assert_eq!(placement.of_generator(allowed).unwrap(), last.to_string());
        assert_eq!(processors().unwrap(), all, "this thread is where it was");
    }

    #[test]
    fn processor_time_of_a_process_grows() {
        let mut child = std::process::Command::new("sh");
        let mut child = child.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = child.id() as i32;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        let mut grown = false;
        while !grown && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(20));
            grown = processor_s(pid).unwrap() > 0.02 && threads_s(pid).unwrap() > 0.02;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(grown);
        assert!(processor_s(i32::MAX).is_err());
    }
}
