//! Each mutant of the engine is found by seeds that pass without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::seeds::{Rings, run};
use crate::mutant::{self, Mutant};

static RINGS: LazyLock<Rings> = LazyLock::new(|| Rings::new().expect("the limits allow them"));

/// Maximum number of seeds to try for each mutant; most are found within the first hundred.
const SEEDS: u64 = 10_000;

/// Each mutant with a seed that finds it. A change of the simulation changes the course of every
/// seed; the test then searches for another seed, and fails only if none of the first [`SEEDS`]
/// finds the mutant.
const MUTANTS: &[(Mutant, u64)] = &[
    (Mutant::InvalidationSkipped, 0),
    (Mutant::AckBeforePeers, 1),
    (Mutant::InvalidationKeepsCopies, 0),
    (Mutant::InvalidationKeepsFlights, 7),
    (Mutant::ServeAfterLease, 1),
    (Mutant::LeaseFromArrival, 43),
    (Mutant::GenerationIgnored, 1),
    (Mutant::NoMargin, 6265),
    (Mutant::RestartForgetsLeases, 98),
    (Mutant::ViewLagIgnored, 31),
    (Mutant::MembershipIgnored, 47),
    (Mutant::AsksPeersWhilePending, 35),
    (Mutant::StalePeerFillKept, 9),
    (Mutant::StaleOriginFillKept, 2),
    (Mutant::ChangedTakenForCurrent, 21),
    (Mutant::JoinsOldFlight, 364),
    (Mutant::ReaderLost, 0),
    (Mutant::WriterLost, 120),
    (Mutant::TurnShared, 1),
    (Mutant::OwnCopyKept, 0),
    (Mutant::OwnFlightsKept, 5),
    (Mutant::ForgetsMemoryOnly, 0),
    (Mutant::HotCopyKept, 0),
    (Mutant::AppendsNotVoided, 1),
    (Mutant::RestoredTrusted, 116),
    (Mutant::BudgetIgnored, 0),
];

/// The failure of a seed: a violation, a broken invariant or a panic of the engine.
fn fault(seed: u64, mutant: Option<Mutant>) -> Option<String> {
    let seed = AssertUnwindSafe(|| mutant::with(mutant, || run(seed, &RINGS, None)));
    match catch_unwind(seed) {
        Ok(verdict) => verdict.violations.into_iter().next(),
        // The panic's message was printed.
        Err(_) => Some("the engine panicked".to_owned()),
    }
}

/// The first seed that finds a mutant; with several threads, one of the first.
fn find(mutant: Mutant) -> Option<(u64, String)> {
    let (next, first) = (AtomicU64::new(0), AtomicU64::new(SEEDS));
    let work = || {
        let mut found = None;
        while found.is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= first.load(Ordering::Relaxed) {
                break;
            }
            found = fault(seed, Some(mutant)).map(|what| (seed, what));
        }
        if let Some((seed, _)) = &found {
            first.fetch_min(*seed, Ordering::Relaxed);
        }
        found
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let found = threads.into_iter().filter_map(|t| t.join().expect("it catches panics"));
        found.min_by_key(|(seed, _)| *seed)
    })
}

#[test]
fn every_mutant_is_found() {
    let mut missed = Vec::new();
    for &(mutant, known) in MUTANTS {
        let again = fault(known, Some(mutant)).map(|what| (known, what));
        match again.or_else(|| find(mutant)) {
            Some((seed, what)) => {
                println!("{mutant:?}: seed {seed}: {what}");
                assert_eq!(fault(seed, None), None, "SIM_SEED={seed} fails without {mutant:?} too");
            }
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
