//! Each mutant of the engine is found by seeds that pass without it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::seeds::{HOT_SEEDS, ORIGIN_SEEDS, Rings, WEIGHT_SEEDS, run};
use crate::mutant::{self, Mutant};

static RINGS: LazyLock<Rings> = LazyLock::new(|| Rings::new().expect("the limits allow them"));

/// Maximum number of seeds to try for each mutant; most are found within the first hundred.
const SEEDS: u64 = 10_000;

/// Each mutant with a seed that finds it. A change of the simulation changes the course of every
/// seed; the test then searches for another seed, and fails only if none of the first [`SEEDS`]
/// finds the mutant. [`Mutant::GivenUpAtOnce`] is not among them: no seed below [`SEEDS`] finds it, as a write
/// would have to be under way longer than another gateway needs for a later one at a node that was just lost.
/// Nor are those that take a node that knows nothing of the others' views: `node::handover_tests` has them.
const MUTANTS: &[(Mutant, u64)] = &[
    (Mutant::InvalidationSkipped, 0),
    (Mutant::AckBeforePeers, 3),
    (Mutant::InvalidationKeepsCopies, 0),
    (Mutant::InvalidationKeepsFlights, 6),
    (Mutant::ServeAfterLease, 77),
    (Mutant::LeaseFromArrival, 43),
    (Mutant::GenerationIgnored, 19),
    (Mutant::NoMargin, 12449),
    (Mutant::RestartForgetsLeases, 363),
    (Mutant::ViewLagIgnored, 31),
    (Mutant::WritesUnasked, 1329),
    (Mutant::MissedViewTrusted, 4944),
    (Mutant::NewReplicaTrusted, 6519),
    (Mutant::EarlierRingForgotten, 224),
    (Mutant::EpochUnasked, 966),
    (Mutant::MembershipIgnored, 302),
    (Mutant::GraceForEver, 1329),
    (Mutant::HandsOverWhileWriting, 9333),
    (Mutant::HandoverKeepsLeases, 392),
    (Mutant::AsksPeersWhilePending, 45),
    (Mutant::StalePeerFillKept, 9),
    (Mutant::StaleOriginFillKept, 31),
    (Mutant::ChangedTakenForCurrent, 29),
    (Mutant::JoinsOldFlight, 1095),
    (Mutant::OpenedFlightJoined, 60),
    (Mutant::ReaderLost, 0),
    (Mutant::WriterLost, 137),
    (Mutant::TurnShared, 1),
    (Mutant::OwnCopyKept, 0),
    (Mutant::OwnFlightsKept, 1),
    (Mutant::ForgetsMemoryOnly, 0),
    (Mutant::HotCopyKept, 0),
    (Mutant::AppendsNotVoided, 28),
    (Mutant::RestoredTrusted, 116),
    (Mutant::BudgetIgnored, 1),
    (Mutant::HotNodeNotInvalidated, HOT_SEEDS),
    (Mutant::HotNodeServesAfterLease, HOT_SEEDS + 47),
    (Mutant::HotNodeTakesAnyKey, HOT_SEEDS + 10),
    (Mutant::NewHotNodeTrusted, HOT_SEEDS + 7878),
    (Mutant::WeightsTrusted, WEIGHT_SEEDS + 1003),
    (Mutant::OriginNotCompared, ORIGIN_SEEDS + 1),
    (Mutant::OriginOfOthersNotCompared, ORIGIN_SEEDS + 998),
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

/// The first seed from one on that finds a mutant; with several threads, one of the first.
fn find(mutant: Mutant, from: u64) -> Option<(u64, String)> {
    let (next, first) = (AtomicU64::new(from), AtomicU64::new(from + SEEDS));
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
        let worlds = [ORIGIN_SEEDS, WEIGHT_SEEDS, HOT_SEEDS];
        let world = worlds.into_iter().find(|first| known >= *first).unwrap_or(0);
        match again.or_else(|| find(mutant, world)) {
            Some((seed, what)) => {
                println!("{mutant:?}: seed {seed}: {what}");
                assert_eq!(fault(seed, None), None, "SIM_SEED={seed} fails without {mutant:?} too");
            }
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
