//! An artificial thief: takes the whole machine at random instants, as another guest of a hypervisor does.
//!
//! Threads of real-time priority, one on each processor, hold all of them at once for exponential times; the
//! guest's scheduler cannot evade it, as it cannot evade a hypervisor. A hypervisor counts as stolen only the time in
//! which the guest wanted to run. So the thief looks twice in a millisecond how many tasks wait for a processor, and
//! counts so many processors as robbed. The command runs in a mount namespace where `/proc/stat` shows it: `steal`
//! for the robbed time, `idle` for the rest, and the thief itself is nowhere.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};
use record::clock::now;

/// Arguments of `experiments thief`.
#[derive(clap::Args)]
pub struct Args {
    /// Share of the time in which the machine is taken, below 0.5
    #[arg(long, default_value_t = 0.1)]
    pub share: f64,
    /// Mean time for which it is taken, milliseconds
    #[arg(long, default_value_t = 10.0)]
    pub mean_ms: f64,
    /// Seed of the instants
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The command that is robbed, with its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<OsString>,
}

/// Longest time for which the machine is taken at once.
const TAKEN_MS_MAX: f64 = 200.0;
/// Time between two looks at the number of waiting tasks, and between two versions of `/proc/stat`.
const LOOK: Duration = Duration::from_micros(500);
const SHOW: Duration = Duration::from_millis(20);
/// Nanoseconds of a tick of `/proc/stat`.
const TICK: u64 = 10_000_000;

/// What was taken, in processor time.
#[derive(Default)]
struct Loot {
    /// All that the thief used, nanoseconds.
    taken: AtomicU64,
    /// The part in which somebody else wanted the processor.
    stolen: AtomicU64,
}

/// Runs the command while the machine is robbed; prints what was stolen.
///
/// # Errors
/// If this is not root, the command cannot be run, or a thread of the thief could not take its processor: what the command
/// measured then is not of a machine that was robbed.
pub fn run(args: &Args) -> anyhow::Result<ExitStatus> {
    ensure!((0.0..0.5).contains(&args.share), "--share {}: give 0 to 0.5", args.share);
    ensure!((0.1..=100.0).contains(&args.mean_ms), "--mean-ms {}: give 0.1 to 100", args.mean_ms);
    ensure!(rustix::process::geteuid().is_root(), "the thief needs priority: run it as root");
    let processors = std::thread::available_parallelism()?.get();
    let folder = tempfile::tempdir()?;
    let stat = folder.path().join("stat");
    let (loot, end) = (Loot::default(), AtomicBool::new(false));
    // The pulse that is under way: when it ends, 0 for none.
    let until = AtomicU64::new(0);
    show(&stat, &loot)?;
    let began = now();
    let status = std::thread::scope(|scope| {
        let (loot, end, until, stat) = (&loot, &end, &until, stat.as_path());
        let mut thieves: Vec<_> = (1..processors)
            .map(|processor| scope.spawn(move || follow(processor, until, end, loot)))
            .collect();
        thieves.push(scope.spawn(move || lead(args, processors as u64, until, end, loot)));
        scope.spawn(move || {
            while !end.load(Ordering::Relaxed) {
                let _ = show(stat, loot);
                std::thread::sleep(SHOW);
            }
        });
        let status = robbed(&args.command, stat);
        end.store(true, Ordering::Relaxed);
        for thief in thieves {
            let stole = thief.join().map_err(|_| anyhow!("a thread of the thief panicked"))?;
            stole.context("the machine was not robbed all the time")?;
        }
        status
    })?;
    let total = (now() - began) as f64 * processors as f64;
    let share = |of: &AtomicU64| of.load(Ordering::Relaxed) as f64 / total * 100.0;
    eprintln!(
        "thief: took {:.1} % of the processors, {:.1} % while somebody else wanted them",
        share(&loot.taken),
        share(&loot.stolen)
    );
    Ok(status)
}

/// Runs the command with the thief's `/proc/stat`.
fn robbed(command: &[OsString], stat: &Path) -> anyhow::Result<ExitStatus> {
    let script = r#"mount --bind "$0" /proc/stat && exec "$@""#;
    let mut robbed = Command::new("unshare");
    robbed.args(["-m", "sh", "-c", script]).arg(stat).args(command);
    robbed.status().context("cannot start the command (does this machine have `unshare`?)")
}

/// Pins this thread and raises it above all that is not of the kernel.
fn prepare(processor: usize) -> anyhow::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set)?;
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let raised = Command::new("chrt").args(["-f", "-p", "50", &thread]).status();
    if !raised.context("cannot run `chrt`")?.success() {
        bail!("`chrt` cannot raise the thief's priority");
    }
    Ok(())
}

/// Takes the first processor, and tells the others.
fn lead(
    args: &Args,
    processors: u64,
    until: &AtomicU64,
    end: &AtomicBool,
    loot: &Loot,
) -> anyhow::Result<()> {
    prepare(0)?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(args.seed);
    let mut exponential = |mean_ms: f64| -(1.0 - random.random::<f64>()).ln() * mean_ms;
    let stat = File::open("/proc/stat").ok();
    while !end.load(Ordering::Relaxed) && args.share > 0.0 {
        let gap_ms = exponential(args.mean_ms * (1.0 - args.share) / args.share);
        std::thread::sleep(Duration::from_secs_f64(gap_ms / 1e3));
        let lasts = (exponential(args.mean_ms).min(TAKEN_MS_MAX) * 1e6) as u64;
        let start = now();
        until.store(start + lasts, Ordering::Release);
        let mut looked = start;
        while looked < start + lasts {
            while now() < (looked + LOOK.as_nanos() as u64).min(start + lasts) {
                std::hint::spin_loop();
            }
            // Those that wait beside the thief's own threads. A thread that shows is not counted as waiting.
            let waiting = stat.as_ref().map_or(0, runnable).saturating_sub(processors);
            let at = now();
            let stolen = (at - looked) * waiting.min(processors);
            loot.stolen.fetch_add(stolen, Ordering::Relaxed);
            looked = at;
        }
        loot.taken.fetch_add(now() - start, Ordering::Relaxed);
    }
    Ok(())
}

/// Takes a processor while the leader says so.
fn follow(
    processor: usize,
    until: &AtomicU64,
    end: &AtomicBool,
    loot: &Loot,
) -> anyhow::Result<()> {
    prepare(processor)?;
    while !end.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_micros(200));
        let start = now();
        while now() < until.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let took = now() - start;
        if took > 10_000 {
            loot.taken.fetch_add(took, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Tasks that run or wait for a processor.
fn runnable(stat: &File) -> u64 {
    let mut bytes = vec![0; 32 << 10];
    let length = stat.read_at(&mut bytes, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&bytes[..length]);
    let line = text.lines().find_map(|line| line.strip_prefix("procs_running "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Writes `/proc/stat` as the robbed see it: all processors together, with what was taken moved from user
/// time to stolen and idle time.
fn show(to: &Path, loot: &Loot) -> anyhow::Result<()> {
    let real = std::fs::read_to_string("/proc/stat")?;
    let shown =
        moved(&real, loot.taken.load(Ordering::Relaxed), loot.stolen.load(Ordering::Relaxed));
    let file = File::options().create(true).write(true).truncate(false).open(to)?;
    file.write_all_at(shown.as_bytes(), 0)?;
    file.set_len(shown.len() as u64)?;
    Ok(())
}

fn moved(real: &str, taken: u64, stolen: u64) -> String {
    let stolen = stolen.min(taken);
    let mut shown = String::new();
    for line in
        real.lines().filter(|line| !line.starts_with("intr") && !line.starts_with("softirq"))
    {
        let Some(rest) = line.strip_prefix("cpu ") else {
            shown.push_str(line);
            shown.push('\n');
            continue;
        };
        let mut fields: Vec<u64> = rest.split_whitespace().filter_map(|f| f.parse().ok()).collect();
        fields.resize(10, 0);
        fields[0] = fields[0].saturating_sub(taken / TICK);
        fields[3] += (taken - stolen) / TICK;
        fields[7] += stolen / TICK;
        let fields: Vec<String> = fields.iter().map(u64::to_string).collect();
        shown.push_str(&format!("cpu  {}\n", fields.join(" ")));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_thief_took_is_shown_as_stolen_and_idle() {
        let real =
            "cpu  1000 5 200 3000 10 0 3 7 0 0\ncpu0 500 1 1 1 1 0 0 0 0 0\nintr 1 2 3\nctxt 9\n";
        let shown = moved(real, 50 * TICK, 30 * TICK);
        assert_eq!(
            shown,
            "cpu  950 5 200 3020 10 0 3 37 0 0\ncpu0 500 1 1 1 1 0 0 0 0 0\nctxt 9\n"
        );
        assert_eq!(moved(real, 0, 0).lines().next(), real.lines().next());
    }
}
