//! Each rule of the pools, broken on purpose, is found by some seed that passes with the rule.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::Routing;
use super::world::{Plan, ROUTINGS, World};
use crate::mutant::{self, Mutant};

const MUTANTS: &[Mutant] = &[
    Mutant::PoolStaleServerRead,
    Mutant::PoolFlushBeforeLateWrites,
    Mutant::PoolMissedWriteIgnored,
    Mutant::PoolFirstReplyEndsWrite,
    Mutant::PoolUpdateNotCopied,
    Mutant::PoolUpdatesStaleServer,
    Mutant::PoolKeyShared,
    Mutant::PoolReadsDuringUpdate,
    Mutant::PoolMultiGetDoesNotWait,
    Mutant::PoolMovesDuringWrite,
    Mutant::PoolFormerValueKept,
    Mutant::PoolMovedValueKept,
    Mutant::PoolFormerRingForgotten,
    Mutant::PoolHedgesPastWrite,
    Mutant::PoolRetriesPastWrite,
    Mutant::PoolWritePassesWaitingRead,
    Mutant::PoolCopyCounts,
    Mutant::PoolNumberOfAny,
    Mutant::PoolMissNotAskedAtFirst,
    Mutant::PoolReadsBackStale,
    Mutant::PoolFlushPassesUpdates,
    Mutant::PoolUpdatesPassFlush,
];

/// Those that show where no server fails: with faults, what they break may be lost all the same.
const WITHOUT_FAULTS: &[Mutant] = &[
    Mutant::PoolNumberOfAny,
    Mutant::PoolMissNotAskedAtFirst,
    Mutant::PoolReadsBackStale,
    Mutant::PoolFlushPassesUpdates,
    Mutant::PoolUpdatesPassFlush,
];

/// Maximum number of seeds to try; most mutants are found within the first ten.
const SEEDS: u64 = 1000;

fn fails(plan: Plan, mutant: Option<Mutant>) -> bool {
    let run = AssertUnwindSafe(|| mutant::with(mutant, || World::new(plan).run()));
    catch_unwind(run).is_err()
}

#[test]
fn every_mutant_is_found() {
    let mut missed = Vec::new();
    for &mutant in MUTANTS {
        let faults = !WITHOUT_FAULTS.contains(&mutant);
        let plan = |seed, routing| Plan { faults, ..Plan::from_seed(seed, routing) };
        let usual = |seed| ROUTINGS.map(|routing| plan(seed, routing));
        let plans: Vec<Plan> = match mutant {
            Mutant::PoolMovedValueKept => (0..SEEDS).map(Plan::moving).collect(),
            Mutant::PoolFormerRingForgotten => (0..SEEDS).map(Plan::reloading).collect(),
            _ => (0..SEEDS).flat_map(usual).collect(),
        };
        let found = plans.into_iter().find(|plan| fails(*plan, Some(mutant)));
        match found {
            Some(plan) => {
                println!("{mutant:?}: {plan:?}");
                assert!(!fails(plan, None), "{plan:?} fails without {mutant:?} too");
            }
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}

/// Without the rules of `order`, a client that does not wait for replies reads what it wrote later.
#[test]
fn a_read_past_a_later_write_of_its_client_is_found() {
    let broken = [
        Mutant::PoolHedgesPastWrite,
        Mutant::PoolRetriesPastWrite,
        Mutant::PoolWritePassesWaitingRead,
    ];
    for rule in broken {
        let found = (0..SEEDS).any(|seed| {
            let plan = Plan::from_seed(seed, Routing::Replicated);
            let run = AssertUnwindSafe(|| mutant::with(Some(rule), || World::new(plan).run()));
            let why = catch_unwind(run).err();
            let why = why.and_then(|why| why.downcast::<String>().ok()).unwrap_or_default();
            why.contains("which the same client wrote after")
        });
        assert!(found, "{rule:?}");
    }
}
