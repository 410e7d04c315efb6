//! One suite for all policies: each agrees with its naive twin, which searches lists.

use proptest::prelude::*;

use super::*;

/// A policy in its simplest form, for keys of one byte. Bytes are those that a policy is told: with key and overhead.
pub(super) trait Twin {
    /// Whether the key is held; it counts as read.
    fn get(&mut self, key: u8) -> bool;
    fn remove(&mut self, key: u8);
    /// Inserts a key; returns those that leave, in order, or the key itself if it is larger than the budget.
    fn insert(&mut self, key: u8, bytes: u64) -> Vec<u8>;
    /// Returns the keys that leave, in order.
    fn set_budget(&mut self, budget: u64) -> Vec<u8>;
    fn bytes(&self) -> u64;
    /// The keys held, in any order.
    fn keys(&self) -> Vec<u8>;
    /// Whether what the policy remembers besides agrees too.
    fn agrees_with(&self, _memory: &Memory<WithKey<u8>>) -> bool {
        true
    }
}

/// The twin of a policy, without a budget.
fn twin_of(eviction: Eviction) -> Box<dyn Twin> {
    match eviction {
        Eviction::S3Fifo => Box::new(s3_fifo::tests::Naive::default()),
        Eviction::Lru => Box::new(lru::tests::Naive::default()),
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Get(u8),
    /// Reads a key's value if it is an even one.
    GetEven(u8),
    Peek(u8),
    Insert(u8, u64),
    Remove(u8),
    SetBudget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0u8..40;
    prop_oneof![
        20 => key().prop_map(Step::Get),
        5 => key().prop_map(Step::GetEven),
        2 => key().prop_map(Step::Peek),
        15 => (key(), 0u64..600).prop_map(|(key, bytes)| Step::Insert(key, bytes)),
        5 => key().prop_map(Step::Remove),
        1 => (0u64..4_800).prop_map(Step::SetBudget),
    ]
}

/// A value whose key is its name.
pub(super) fn named(key: u8) -> WithKey<u8> {
    WithKey { key: [key][..].into(), value: key }
}

fn values(left: Vec<WithKey<u8>>) -> Vec<u8> {
    left.into_iter().map(|it| it.value).collect()
}

fn agrees(eviction: Eviction, budget: u64, steps: &[Step]) -> Result<(), TestCaseError> {
    let name = |key: u8| -> Key { [key][..].into() };
    let mut memory = Memory::new(eviction, budget);
    let mut twin = twin_of(eviction);
    twin.set_budget(budget);
    for step in steps {
        match *step {
            Step::Get(key) => prop_assert_eq!(memory.get(&name(key)).is_some(), twin.get(key)),
            Step::GetEven(key) => {
                let there = memory
                    .get_if(&name(key), |it: &WithKey<u8>| it.value.is_multiple_of(2))
                    .is_some();
                prop_assert_eq!(there, key.is_multiple_of(2) && twin.get(key));
            }
            Step::Peek(key) => {
                let there = memory.peek(&name(key)).is_some();
                prop_assert_eq!(there, twin.keys().contains(&key));
            }
            Step::Insert(key, bytes) => {
                let left = values(memory.insert(named(key), bytes));
                prop_assert_eq!(left, twin.insert(key, bytes + 1 + ENTRY_OVERHEAD_BYTES));
            }
            Step::Remove(key) => {
                memory.remove(&name(key));
                twin.remove(key);
            }
            Step::SetBudget(budget) => {
                prop_assert_eq!(values(memory.set_bytes_max(budget)), twin.set_budget(budget));
            }
        }
        prop_assert_eq!(memory.bytes(), twin.bytes());
        prop_assert_eq!(memory.len(), twin.keys().len());
        prop_assert!(memory.bytes() <= memory.bytes_max());
        prop_assert!(twin.agrees_with(&memory));
    }
    Ok(())
}

/// The keys that are told as the hottest are held, and none is told twice, in whatever pieces they are asked for.
fn tells_the_hottest(memory: &mut Memory<WithKey<u8>>) -> Result<(), TestCaseError> {
    let (mut told, mut from) = (Vec::new(), 0);
    loop {
        let (keys, ends) = memory.hottest(from, 7);
        told.extend(keys.into_iter().map(|(key, _)| key));
        from += 7;
        if ends {
            break;
        }
    }
    for key in &told {
        prop_assert!(memory.peek(key).is_some());
    }
    let count = told.len();
    told.sort();
    told.dedup();
    prop_assert_eq!(told.len(), count);
    Ok(())
}

proptest! {
    #[test]
    fn each_policy_agrees_with_its_twin(steps in prop::collection::vec(step(), 0..400), budget in 0u64..6_000) {
        for &eviction in POLICIES {
            agrees(eviction, budget, &steps)?;
        }
    }

    /// Sizes and budgets of another order of magnitude: an entry's bytes are exact beyond what its 32 bits hold.
    #[test]
    fn large_values_are_counted(
        steps in prop::collection::vec(step(), 0..200),
        budget in 0u64..6_000,
        shift in 18u32..23,
    ) {
        let larger = |step: &Step| match *step {
            Step::Insert(key, bytes) => Step::Insert(key, bytes << shift),
            Step::SetBudget(budget) => Step::SetBudget(budget << shift),
            step => step,
        };
        let steps: Vec<Step> = steps.iter().map(larger).collect();
        for &eviction in POLICIES {
            agrees(eviction, budget << shift, &steps)?;
        }
    }

    #[test]
    fn the_hottest_are_held(reads in prop::collection::vec(0u8..60, 0..300)) {
        for &eviction in POLICIES {
            let mut memory = Memory::new(eviction, 4_000);
            for &key in &reads {
                let name: Key = [key][..].into();
                if memory.get(&name).is_none() {
                    memory.insert(named(key), 30);
                }
            }
            tells_the_hottest(&mut memory)?;
            memory.clear();
            prop_assert!(memory.is_empty() && memory.bytes() == 0);
            prop_assert_eq!(memory.hottest(0, 10), (Vec::new(), true));
        }
    }
}
