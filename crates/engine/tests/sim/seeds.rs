//! Consistency and bounds under faults, over many seeds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use engine::sim::Breakage;
use engine::sim::seeds::{Rings, Verdict, explain, run};

pub static RINGS: LazyLock<Rings> = LazyLock::new(|| Rings::new().unwrap());

#[allow(clippy::disallowed_methods, reason = "a test's seeds come from the environment")]
pub fn env(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Runs seeds on all cores until one of them fails; gives that, and the sum of what clients saw.
pub fn search(seeds: std::ops::Range<u64>, breakage: Option<Breakage>) -> (Option<Verdict>, Sums) {
    let next = AtomicU64::new(seeds.start);
    let stop = AtomicBool::new(false);
    let (found, sums) = (Mutex::new(None), Mutex::new(Sums::default()));
    let total = seeds.end - seeds.start;
    let work = || {
        let mut mine = Sums::default();
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if total >= 50_000 && (seed - seeds.start).is_multiple_of(total / 100) {
                eprintln!("{} of {total} seeds", seed - seeds.start);
            }
            let run = std::panic::catch_unwind(|| run(seed, &RINGS, breakage));
            let verdict = run.unwrap_or_else(|_| panic!("SIM_SEED={seed}: the engine panicked"));
            mine.add(&verdict);
            if !verdict.violations.is_empty() {
                stop.store(true, Ordering::Relaxed);
                found.lock().unwrap().get_or_insert(verdict);
            }
        }
        sums.lock().unwrap().merge(&mine);
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    (found.into_inner().unwrap(), sums.into_inner().unwrap())
}

/// What clients saw over all seeds.
#[derive(Debug, Default)]
pub struct Sums {
    pub requests: u64,
    pub reads: u64,
    pub acknowledged: u64,
    pub refused: u64,
    pub failed: u64,
}

impl Sums {
    fn add(&mut self, verdict: &Verdict) {
        let counts = &verdict.counts;
        self.requests += counts.requests;
        self.reads += counts.reads.values().sum::<u64>();
        self.acknowledged += counts.acknowledged;
        self.refused += counts.refused;
        self.failed += counts.failed;
    }

    fn merge(&mut self, other: &Sums) {
        self.requests += other.requests;
        self.reads += other.reads;
        self.acknowledged += other.acknowledged;
        self.refused += other.refused;
        self.failed += other.failed;
    }
}

/// Seeds that were once found to break a rule, and of what.
const FOUND: &[(u64, &str)] =
    &[(440_234, "a gateway that was dead was told of a view, and acted in the name of the next")];

#[test]
fn what_was_found_is_mended() {
    for &(seed, what) in FOUND {
        let Verdict { violations, .. } = run(seed, &RINGS, None);
        assert!(violations.is_empty(), "SIM_SEED={seed}, {what}: {violations:#?}");
    }
}

#[test]
fn no_older_version_after_an_acknowledged_write() {
    let seeds = match env("SIM_SEED") {
        Some(seed) => {
            explain(seed, &RINGS, None).iter().for_each(|line| println!("{line}"));
            seed..seed + 1
        }
        None => {
            let first = env("SIM_SEEDS_FROM").unwrap_or(0);
            first..first + env("SIM_SEEDS").unwrap_or(10_000)
        }
    };
    let alone = seeds.end - seeds.start < 100;
    let (found, sums) = search(seeds, None);
    if let Some(Verdict { seed, violations, .. }) = found {
        panic!("SIM_SEED={seed}: {violations:#?}");
    }
    println!("{sums:?}");
    assert!(alone || sums.reads > sums.requests / 3, "most reads failed: {sums:?}");
    assert!(alone || sums.acknowledged > sums.requests / 50, "most writes failed: {sums:?}");
}
