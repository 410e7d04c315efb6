//! A slow disk to measure other people's software with: a file system whose reads take drawn times.
//!
//! Everything before the disk is what any disk has: the page cache, its eviction, the kernel's
//! waiting. On standard output it writes a line of JSON when it is mounted, then one with what its
//! disks counted in each interval, as `iostat` would: that, and nothing of its arguments, is for
//! a fit to see. It ends, and unmounts, when its standard input ends: so it does not outlive whoever
//! started it.

mod clock;
mod disk;
mod files;
mod law;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use fuser::{MountOption, Session, SessionACL};
use rustix::mount::UnmountFlags;
use serde::Serialize;

use disk::{Counters, Disk};
use files::{Disks, Files};
use law::{Kind, Law};

/// Serves files k0, k1 … from disks with drawn service times, until its standard input ends.
#[derive(Parser)]
struct Args {
    /// Where to mount: an empty folder
    mount: PathBuf,
    /// How many files
    #[arg(long, default_value_t = 1000)]
    files: u64,
    /// Bytes of each; one page is one read
    #[arg(long, default_value_t = 4096)]
    bytes: u64,
    /// How many disks; file i is on disk i modulo their number
    #[arg(long, default_value_t = 1)]
    disks: u32,
    /// The law of their service times
    #[arg(long, value_enum, default_value = "exponential")]
    service: Kind,
    /// Its mean, ms
    #[arg(long, default_value_t = 10.0)]
    mean_ms: f64,
    /// Its squared coefficient of variation
    #[arg(long, default_value_t = 1.0)]
    scv: f64,
    /// Where its random numbers come from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Milliseconds between lines of counters
    #[arg(long, default_value_t = 500)]
    interval_ms: u64,
}

/// A line of counters.
#[derive(Serialize)]
struct Line {
    /// Start of the interval, microseconds since 1970-01-01 UTC.
    start_unix_us: u64,
    /// Its length in seconds.
    length_s: f64,
    /// What each disk counted in it.
    disks: Vec<Counters>,
    /// Mean time by which answers left after their service had ended, microseconds.
    late_us_mean: f64,
    /// The largest.
    late_us_max: f64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    ensure!((1..=1024).contains(&args.disks), "{} disks: give 1 to 1,024", args.disks);
    ensure!((1..=1 << 30).contains(&args.files), "{} files: give 1 to 2^30", args.files);
    ensure!((1..=1 << 20).contains(&args.bytes), "{} bytes: give 1 to 2^20", args.bytes);
    ensure!((10..=60_000).contains(&args.interval_ms), "give --interval-ms 10 to 60000");
    let start = clock::now();
    let mut all = Vec::new();
    for number in 0..u64::from(args.disks) {
        let seed = args.seed.wrapping_add(number);
        all.push(Disk::new(Law::new(args.service, args.mean_ms, args.scv, seed)?, start));
    }
    let disks = Arc::new(Disks::start(all)?);
    let mut options = fuser::Config::default();
    options.mount_options = vec![
        MountOption::RO,
        MountOption::FSName("slowdisk".to_owned()),
        // Even if this process is killed, nothing stays mounted.
        MountOption::AutoUnmount,
    ];
    options.acl = SessionACL::All;
    let files = Files::new(disks.clone(), args.files, args.bytes);
    let session = mount(files, args.mount.clone(), options)?;
    let counted = count(&disks, Duration::from_millis(args.interval_ms));
    // Even if files are open still. The helper that unmounts after a killed process does not do it while
    // this one answers.
    rustix::mount::unmount(&args.mount, UnmountFlags::DETACH).context("cannot unmount")?;
    session.join().map_err(|_| anyhow!("the file system's thread failed"))??;
    counted
}

/// Mounts, and serves until unmounted, on a thread of its own, which is woken before others: it takes
/// the reads.
fn mount(
    files: Files,
    at: PathBuf,
    options: fuser::Config,
) -> anyhow::Result<JoinHandle<std::io::Result<()>>> {
    let (tell, told) = channel();
    let shown = at.display().to_string();
    let thread = std::thread::Builder::new().name("files".to_owned()).spawn(move || {
        clock::precise_thread();
        let session = Session::new(files, &at, &options)?;
        let _ = tell.send(());
        session.run()
    })?;
    let failed = || format!("cannot mount at {shown} (it takes root, /dev/fuse and fusermount3)");
    match told.recv() {
        Ok(()) => Ok(thread),
        Err(_) => match thread.join() {
            Ok(Err(error)) => Err(error).with_context(failed),
            _ => Err(anyhow!(failed())),
        },
    }
}

/// Writes lines of counters until standard input ends.
fn count(disks: &Disks, interval: Duration) -> anyhow::Result<()> {
    let (end, ended) = channel::<()>();
    std::thread::Builder::new().name("input".to_owned()).spawn(move || {
        let mut input = std::io::stdin().lock();
        while matches!(input.read(&mut [0; 64]), Ok(1..)) {}
        drop(end);
    })?;
    let offset_us = clock::unix_offset_us();
    let step = interval.as_nanos() as u64;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{{\"mounted\":true}}")?;
    out.flush()?;
    let mut start = clock::now();
    disks.take_counters(start);
    let mut next = start + step;
    loop {
        let wait = Duration::from_nanos(next.saturating_sub(clock::now()));
        if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return Ok(());
        }
        let now = clock::now();
        let (disks, late) = disks.take_counters(now);
        let line = Line {
            start_unix_us: (start / 1000).saturating_add_signed(offset_us),
            length_s: (now - start) as f64 * 1e-9,
            disks,
            late_us_mean: late.mean_s() * 1e6,
            late_us_max: late.max_s() * 1e6,
        };
        serde_json::to_writer(&mut out, &line)?;
        out.write_all(b"\n")?;
        out.flush()?;
        (start, next) = (now, now + step);
    }
}
