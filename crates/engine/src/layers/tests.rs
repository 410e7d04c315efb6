//! Worked examples of each rule.

use ground::window::SECOND;

mod closed;
mod properties;
mod weeks;

use super::*;

/// Maximum number of layers of a shard. The first takes 100 bytes, each further layer twice as
/// much.
const LAYERS_MAX: u32 = 6;

/// Bytes of the first `layers` layers.
fn held_bytes(layers: u32) -> u64 {
    100 * ((1 << layers) - 1)
}

/// A shard with the given number of layers.
fn shard(id: ShardId, queue_length: f64, layers: u32) -> Shard {
    Shard {
        id,
        queue_length,
        held_bytes: held_bytes(layers),
        next_bytes: (layers < LAYERS_MAX).then(|| 100 << layers),
        lowest_bytes: layers.checked_sub(1).map(|lower| 100 << lower),
        growing: false,
    }
}

/// Decides each second, on the newest length alone.
fn settings(budget_bytes: u64) -> Settings {
    Settings {
        interval: SECOND,
        smoothing: 1.0,
        high: 4.0,
        low: 0.25,
        budget_bytes,
        settle: 3 * SECOND,
    }
}

fn manager(budget_bytes: u64) -> Manager {
    Manager::new(settings(budget_bytes)).unwrap()
}

/// Changes as (shard, bytes); growths are positive.
fn signed(changes: &[Change]) -> Vec<(ShardId, i64)> {
    let signed = |change: &Change| match *change {
        Change::Grow { shard, bytes, .. } => (shard, bytes as i64),
        Change::Fold { shard, bytes, .. } => (shard, -(bytes as i64)),
    };
    changes.iter().map(signed).collect()
}

/// The changes that a manager orders after it has observed the shards for the settling time.
fn settled(manager: &mut Manager, shards: &[Shard]) -> Vec<Change> {
    assert_eq!(manager.observe(0, shards), []);
    manager.observe(3 * SECOND, shards)
}

#[test]
fn marks_decide() {
    let check = |length: f64, layers: u32, expected: &[(ShardId, i64)]| {
        let changes = settled(&mut manager(10_000), &[shard(1, length, layers)]);
        assert_eq!(signed(&changes), expected, "at {length} with {layers} layers");
    };
    check(4.1, 0, &[(1, 100)]);
    check(4.1, 2, &[(1, 400)]);
    check(4.1, LAYERS_MAX, &[]);
    check(4.0, 2, &[]);
    check(1.0, 2, &[]);
    check(0.25, 2, &[]);
    check(0.24, 2, &[(1, -200)]);
    check(0.0, 0, &[]);
}

#[test]
fn averages_follow_the_formula() {
    let mut manager =
        Manager::new(Settings { smoothing: 0.25, settle: 4 * SECOND, ..settings(0) }).unwrap();
    assert_eq!(manager.average(1), None);
    manager.observe(0, &[shard(1, 2.0, 0)]);
    assert_eq!(manager.average(1), Some(2.0), "a new shard starts with its first length");
    manager.observe(SECOND / 2, &[shard(1, 100.0, 0)]);
    assert_eq!(manager.average(1), Some(2.0), "the interval is not over");
    manager.observe(SECOND, &[shard(1, 4.0, 0)]);
    assert_eq!(manager.average(1), Some(2.5));
    manager.observe(3 * SECOND, &[shard(1, 0.0, 0)]);
    assert_eq!(manager.average(1), Some(2.5 * 0.75 * 0.75), "two intervals passed");
    manager.observe(2 * SECOND, &[shard(1, 9.0, 0)]);
    assert_eq!(manager.average(1), Some(2.5 * 0.75 * 0.75), "time does not go back");
    manager.observe(4 * SECOND, &[shard(2, 1.0, 0)]);
    assert_eq!((manager.average(1), manager.average(2)), (None, Some(1.0)), "gone is forgotten");
}

#[test]
fn lengths_that_are_none_are_not_observed() {
    let mut manager = manager(10_000);
    let watched = |length| [shard(1, length, 1)];
    for second in 0..5 {
        assert_eq!(manager.observe(second * SECOND, &watched(f64::NAN)), []);
        assert_eq!(manager.average(1), None);
    }
    assert_eq!(manager.observe(5 * SECOND, &watched(1.0)), []);
    manager.observe(6 * SECOND, &watched(f64::INFINITY));
    assert_eq!(manager.average(1), Some(1.0));
    assert_eq!(signed(&manager.observe(7 * SECOND, &watched(-5.0))), [(1, -100)]);
    assert_eq!(manager.average(1), Some(0.0), "less than none is none");
}

#[test]
fn an_average_that_remembers_a_backlog_asks_for_nothing() {
    let mut manager =
        Manager::new(Settings { smoothing: 0.1, settle: 10 * SECOND, ..settings(10_000) }).unwrap();
    assert_eq!(manager.observe(0, &[shard(1, 1000.0, 0)]), []);
    for second in 1..20 {
        assert_eq!(manager.observe(second * SECOND, &[shard(1, 1.0, 0)]), []);
        assert!(manager.average(1).unwrap() > 100.0);
    }
}

#[test]
fn a_stall_asks_for_nothing() {
    let mut manager =
        Manager::new(Settings { smoothing: 0.1, settle: 10 * SECOND, ..settings(10_000) }).unwrap();
    let mut asked = None;
    for second in 0..60 {
        // Five long lengths count as 8 each: 0.9⁵ × 1 + (1 − 0.9⁵) × 8 = 3.9. The average is above
        // 400.
        let length = if (20..25).contains(&second) || second >= 50 { 1000.0 } else { 1.0 };
        if !manager.observe(second * SECOND, &[shard(1, length, 1)]).is_empty() {
            asked = asked.or(Some(second));
        }
    }
    assert_eq!(asked, Some(55), "the sixth in a row");
}

#[test]
fn a_layer_settles_once_it_is_full() {
    let mut manager = manager(10_000);
    assert_eq!(signed(&settled(&mut manager, &[shard(1, 9.0, 0)])), [(1, 100)]);
    let filling = Shard { growing: true, ..shard(1, 9.0, 1) };
    for second in 4..20 {
        assert_eq!(manager.observe(second * SECOND, std::slice::from_ref(&filling)), []);
    }
    assert_eq!(manager.observe(20 * SECOND, &[shard(1, 9.0, 1)]), []);
    assert_eq!(manager.observe(21 * SECOND, &[shard(1, 9.0, 1)]), []);
    assert_eq!(signed(&manager.observe(22 * SECOND, &[shard(1, 9.0, 1)])), [(1, 200)]);
}

#[test]
fn the_hottest_gets_what_there_is() {
    let shards = [shard(1, 5.0, 1), shard(2, 50.0, 1), shard(3, 6.0, 1)];
    // The shards hold 300 bytes; each wants 200 more.
    let changed = |budget| signed(&settled(&mut manager(budget), &shards));
    assert_eq!(changed(300), []);
    assert_eq!(changed(499), []);
    assert_eq!(changed(500), [(2, 200)]);
    assert_eq!(changed(700), [(2, 200), (3, 200)]);
    assert_eq!(changed(10_000), [(2, 200), (3, 200), (1, 200)]);
    // Memory that is too little for the hottest shard, and cannot be made enough, goes to the next.
    let uneven = [shard(1, 5.0, 1), shard(2, 50.0, 3)];
    assert_eq!(signed(&settled(&mut manager(1_000), &uneven)), [(1, 200)]);
}

#[test]
fn a_hot_shard_takes_from_the_coldest_that_can_spare_it() {
    // The high mark is 4: a shard below 4 / 6 can spare a layer, and one at 1 cannot.
    let mut manager = manager(held_bytes(3) + 2 * held_bytes(2) + held_bytes(1));
    let mut shards = [shard(1, 0.5, 2), shard(2, 1.0, 3), shard(3, 9.0, 1), shard(4, 0.3, 2)];
    let changes = settled(&mut manager, &shards);
    assert_eq!(signed(&changes), [(4, -200)]);
    assert_eq!(*changes[0].why(), Why::Taken { average: 0.3, by: 3 });
    // The memory is granted once it is observed to be free, and ordered only once.
    assert_eq!(manager.observe(4 * SECOND, &shards), []);
    shards[3] = shard(4, 0.3, 1);
    assert_eq!(signed(&manager.observe(5 * SECOND, &shards)), [(3, 200)]);
}

#[test]
fn nothing_folds_in_vain() {
    let shards = [shard(1, 0.5, 1), shard(2, 0.6, 1), shard(3, 9.0, 2)];
    // The hot shard wants 400; the others can give 200.
    assert_eq!(settled(&mut manager(held_bytes(1) * 2 + held_bytes(2)), &shards), []);
    let changes = settled(&mut manager(held_bytes(1) * 2 + held_bytes(2) + 200), &shards);
    assert_eq!(signed(&changes), [(1, -100), (2, -100)]);
}

#[test]
fn who_waits_is_not_forestalled() {
    let shards = [shard(1, 0.5, 2), shard(2, 9.0, 2), shard(3, 8.0, 1)];
    // 300 are free. Shard 2 wants 400 and gets 200 of them from shard 1, so 100 remain: not 200.
    let mut manager = manager(2 * held_bytes(2) + held_bytes(1) + 300);
    assert_eq!(signed(&settled(&mut manager, &shards)), [(1, -200)]);
    assert_eq!(manager.observe(4 * SECOND, &shards), []);
}

#[test]
fn a_smaller_budget_folds_the_coldest_first() {
    let mut manager = manager(10_000);
    let mut shards = [shard(1, 3.0, 2), shard(2, 1.0, 2), shard(3, 2.0, 3)];
    assert_eq!(settled(&mut manager, &shards), []);
    manager.set_budget(held_bytes(2) + held_bytes(3) - 1);
    // Shard 2 holds 300, and one byte more is needed, so shard 3 folds too, and shard 1 does not.
    let changes = manager.observe(4 * SECOND, &shards);
    assert_eq!(signed(&changes), [(2, -200), (3, -400)]);
    assert_eq!(*changes[0].why(), Why::OverBudget { over_bytes: 301 });
    shards[1] = shard(2, 1.0, 1);
    shards[2] = shard(3, 2.0, 2);
    assert_eq!(manager.observe(5 * SECOND, &shards), [], "600 came back, and 301 were needed");
}

#[test]
fn nobody_takes_until_a_smaller_budget_holds() {
    let mut manager = manager(held_bytes(3) + held_bytes(2));
    let mut shards = [shard(1, 0.4, 3), shard(2, 0.5, 2), shard(3, 9.0, 0)];
    manager.observe(0, &shards);
    manager.set_budget(held_bytes(2) + 50);
    // Shard 1 must give all its layers, one at a time. That suffices, so shard 2 keeps its layers.
    for layers in [2, 1] {
        let second = 3 + 2 - u64::from(layers);
        assert_eq!(signed(&manager.observe(second * SECOND, &shards)), [(1, -(100 << layers))]);
        shards[0] = shard(1, 0.4, layers);
    }
    let changes = manager.observe(5 * SECOND, &shards);
    assert_eq!(signed(&changes), [(1, -100), (2, -200)]);
    assert_eq!(*changes[1].why(), Why::Taken { average: 0.5, by: 3 });
}

#[test]
fn reasons_are_in_words() {
    let check = |why: Why, words: &str| assert_eq!(why.to_string(), words);
    let idle = Why::Idle { average: 0.104, low: 0.25 };
    check(idle, "its queue is 0.10 on average, below the mark of 0.25");
    let taken = Why::Taken { average: 0.5, by: 3 };
    check(taken, "shard 3 needs the memory, and its own queue is 0.50 on average");
    let over = Why::OverBudget { over_bytes: 12 };
    check(over, "the layers take 12 bytes more than their budget");
}

#[test]
fn a_smaller_budget_stops_what_is_being_filled() {
    let mut manager = manager(10_000);
    assert_eq!(signed(&settled(&mut manager, &[shard(1, 9.0, 0)])), [(1, 100)]);
    manager.set_budget(50);
    let filling = Shard { growing: true, ..shard(1, 9.0, 1) };
    assert_eq!(signed(&manager.observe(4 * SECOND, &[filling])), [(1, -100)]);
    assert_eq!(manager.observe(8 * SECOND, &[shard(1, 9.0, 0)]), []);
}

#[test]
fn a_grant_that_is_not_seen_yet_is_kept() {
    let mut manager = manager(100);
    let before = [shard(1, 9.0, 0), shard(2, 8.0, 0)];
    assert_eq!(signed(&settled(&mut manager, &before)), [(1, 100)]);
    assert_eq!(manager.observe(4 * SECOND, &before), [], "the driver is late");
    assert_eq!(manager.observe(5 * SECOND, &before), []);
    // The shard does not seem to be able to grow: the order is repeated, or goes to the shard that
    // is hottest now.
    let after = [shard(1, 9.0, 0), shard(2, 10.0, 0)];
    assert_eq!(signed(&manager.observe(6 * SECOND, &after)), [(2, 100)]);
}

#[test]
fn of_a_shard_named_twice_the_first_counts() {
    let twice = [shard(1, 9.0, 0), shard(1, 0.0, 3)];
    let mut manager = manager(100);
    assert_eq!(signed(&settled(&mut manager, &twice)), [(1, 100)]);
    assert_eq!(manager.average(1), Some(9.0));
}

#[test]
fn a_fold_that_was_a_mistake_is_repeated_later_and_later() {
    // Its one layer takes the shard from 9 to 0.1.
    let mut manager = manager(1_000);
    let mut layers = 0;
    let mut folded = Vec::new();
    for second in 0..100_000 {
        let length = if layers == 0 { 9.0 } else { 0.1 };
        let only = Shard { next_bytes: (layers == 0).then_some(100), ..shard(1, length, layers) };
        for change in manager.observe(second * SECOND, &[only]) {
            layers = u32::from(matches!(change, Change::Grow { .. }));
            if layers == 0 {
                folded.push(second);
            }
        }
    }
    let periods: Vec<u64> = folded.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Three seconds until it grows, then the time it has learnt to wait.
    assert_eq!(periods[..7], [9, 15, 27, 51, 99, 195, 195]);
    assert!(periods[7..].iter().all(|&period| period == 195));
}

#[test]
fn settings_that_cannot_hold_are_named() {
    let check = |settings: Settings, error: SettingsError| {
        assert_eq!(Manager::new(settings).unwrap_err(), error);
    };
    Settings::default().check().unwrap();
    let plain = || settings(0);
    check(Settings { interval: 0, ..plain() }, SettingsError::NoInterval);
    check(Settings { smoothing: 0.0, ..plain() }, SettingsError::Smoothing(0.0));
    check(Settings { smoothing: 1.5, ..plain() }, SettingsError::Smoothing(1.5));
    let marks = SettingsError::Marks { low: -1.0, high: 4.0 };
    check(Settings { low: -1.0, ..plain() }, marks);
    let (low, high) = (0.25, f64::INFINITY);
    check(Settings { high, ..plain() }, SettingsError::Marks { low, high });
    let near = SettingsError::MarksTooNear { low: 0.7, high: 4.0, bound: 4.0 / 6.0 };
    check(Settings { low: 0.7, ..plain() }, near);
    let settle = SettingsError::Settle { settle: 3 * SECOND, least: 4 * SECOND };
    check(Settings { smoothing: 0.25, ..plain() }, settle);
    assert!(Manager::new(Settings { smoothing: f64::NAN, ..plain() }).is_err());
    assert!(Manager::new(Settings { low: f64::NAN, ..plain() }).is_err());
}

#[test]
fn what_is_expected_is_acted_on_ahead() {
    let watched = |length| [shard(1, length, 1)];
    let run = |expected: Option<f64>, length: f64| {
        let mut manager = manager(10_000);
        let mut changes = Vec::new();
        for second in 0..20 {
            manager.expect(1, expected);
            changes.extend(manager.observe(second * SECOND, &watched(length)));
            if !changes.is_empty() {
                return (signed(&changes), second, changes[0].why().clone());
            }
        }
        (Vec::new(), 20, Why::OverBudget { over_bytes: 0 })
    };
    assert_eq!(run(None, 1.0).0, [], "between the marks, nothing expected");
    let (changes, second, why) = run(Some(f64::INFINITY), 1.0);
    assert_eq!((changes, second), (vec![(1, 200)], 12), "four settling times after it was seen");
    assert!(matches!(why, Why::Ahead { high: 4.0, .. }), "{why}");
    assert_eq!(run(Some(3.9), 1.0).0, [], "it is expected below the mark");
    assert_eq!(run(Some(f64::NAN), 1.0).0, [], "not a number is no expectation");
    assert_eq!(run(Some(9.0), 0.1).0, [], "no load to speak of: neither grows nor folds");
    assert_eq!(run(Some(0.1), 0.1).0, [(1, -100)], "idle, and expected to stay so");
    // What waits now counts at once.
    assert_eq!(run(Some(0.1), 5.0).0, [(1, 200)]);
}
