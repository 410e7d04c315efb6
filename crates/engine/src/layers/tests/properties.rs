//! Properties that hold for any observations, however late or incompletely the driver makes the
//! changes: the layers stay within the budget and every change has a valid reason. Under a constant
//! load the changes end.

use std::collections::BTreeMap;

use ground::window::SECOND;
use model::queue::{Mmm, Queue};
use proptest::prelude::*;

use super::*;

const SHARDS: usize = 6;
const SETTLE: Nanos = 10 * SECOND;

fn settings(smoothing: f64, budget_bytes: u64) -> Settings {
    Settings { interval: SECOND, smoothing, high: 4.0, low: 0.25, budget_bytes, settle: SETTLE }
}

/// A shard as its driver sees it.
#[derive(Clone, Debug)]
struct Real {
    /// Bytes of all layers that it can have, the lowest last.
    sizes: Vec<u64>,
    /// Number of its layers, one that is being filled included.
    layers: usize,
    /// When the lowest layer is full, if it is being filled.
    filling: Option<Nanos>,
    /// The change that was ordered, and when it starts.
    told: Option<(Nanos, Change)>,
    /// Its last change, and whether it grew.
    last: Option<(Nanos, bool)>,
}

impl Real {
    fn new(sizes: &[u64], layers: usize) -> Real {
        Real { sizes: sizes.to_vec(), layers, filling: None, told: None, last: None }
    }

    fn held_bytes(&self) -> u64 {
        self.sizes[..self.layers].iter().sum()
    }

    /// Bytes that were granted and are not held yet.
    fn granted(&self) -> u64 {
        match self.told {
            Some((_, Change::Grow { bytes, .. })) => bytes,
            _ => 0,
        }
    }

    fn observed(&self, id: ShardId, queue_length: f64) -> Shard {
        Shard {
            id,
            queue_length,
            held_bytes: self.held_bytes(),
            next_bytes: self.sizes.get(self.layers).copied(),
            lowest_bytes: self.layers.checked_sub(1).map(|lowest| self.sizes[lowest]),
            growing: self.filling.is_some(),
        }
    }

    /// Starts an ordered change when it is due, and ends a fill that is complete.
    fn pass(&mut self, now: Nanos, fill: Nanos) {
        if self.filling.is_some_and(|until| until <= now) {
            self.filling = None;
        }
        // An order that is never started expires after the settling time.
        if self.last.is_some_and(|(at, _)| now >= at + SETTLE) {
            self.told = None;
        }
        let Some((at, change)) = self.told.take_if(|(at, _)| *at <= now) else { return };
        self.filling = None;
        match change {
            Change::Grow { .. } => {
                self.layers += 1;
                self.filling = (fill > 0).then_some(at + fill);
            }
            Change::Fold { .. } => self.layers -= 1,
        }
    }
}

/// The events of one interval.
#[derive(Clone, Debug)]
struct Step {
    intervals: u64,
    lengths: Vec<f64>,
    /// A shard that is absent for this time and returns without layers.
    gone: Option<usize>,
    budget: Option<u64>,
    /// Seconds until the driver starts a change; `None` if it never does.
    late: Option<u64>,
    /// Seconds to fill a layer.
    fill: u64,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let length = prop_oneof![
        4 => 0.0..0.3,
        4 => 0.2..1.0,
        2 => 0.5..5.0,
        4 => 4.0..100.0,
        1 => prop_oneof![Just(f64::NAN), Just(-1.0), Just(f64::INFINITY), Just(1e300)],
    ];
    // Lengths stay constant for a while; otherwise no average would ever leave the middle.
    let lengths = prop::collection::vec(length, SHARDS);
    let gone = prop::option::weighted(0.03, 0..SHARDS);
    let budget = prop::option::weighted(0.1, 0u64..3_000);
    let late = prop::option::weighted(0.9, prop_oneof![3 => Just(0u64), 1 => 0u64..9]);
    let stay = (1u64..4, lengths, gone, budget, late, 0u64..5, 1usize..30);
    let stay = stay.prop_map(|(intervals, lengths, gone, budget, late, fill, times)| {
        let first = Step { intervals, lengths, gone, budget, late, fill };
        let then = Step { gone: None, budget: None, ..first.clone() };
        let mut all = vec![then; times];
        all[0] = first;
        all
    });
    prop::collection::vec(stay, 1..25).prop_map(|stays| stays.concat())
}

/// The average of a shard's lengths by the formula, one interval at a time.
#[derive(Clone, Debug, Default)]
struct NaiveAverage(Option<f64>);

impl NaiveAverage {
    fn observe(&mut self, length: f64, intervals: u64, smoothing: f64) {
        for _ in 0..if length.is_finite() { intervals } else { 0 } {
            let length = length.max(0.0);
            let average = self.0.unwrap_or(length);
            self.0 = Some(smoothing * length + (1.0 - smoothing) * average);
        }
    }
}

/// Checks everything that must hold of the changes of one interval.
fn check(manager: &Manager, now: Nanos, shards: &[Shard], real: &[Real], changes: &[Change]) {
    let Settings { high, low, budget_bytes, .. } = *manager.settings();
    let by_id: BTreeMap<ShardId, &Shard> = shards.iter().map(|shard| (shard.id, shard)).collect();
    let held: u64 = real.iter().map(Real::held_bytes).sum();
    let owed: u64 = real.iter().map(Real::granted).sum();
    let mut granted = 0;
    let mut changed = BTreeMap::new();
    for change in changes {
        let shard = by_id[&change.shard()];
        let average = manager.average(shard.id);
        assert!(
            changed.insert(shard.id, change).is_none(),
            "two changes of one shard: {changes:?}"
        );
        match change {
            Change::Grow { bytes, .. } => {
                assert_eq!(Some(*bytes), shard.next_bytes);
                assert!(!shard.growing);
                granted += bytes;
            }
            Change::Fold { bytes, .. } => assert_eq!(Some(*bytes), shard.lowest_bytes),
        }
        match (change, change.why()) {
            (Change::Grow { .. }, Why::Busy { .. }) => assert!(average > Some(high)),
            (Change::Fold { .. }, Why::Idle { .. }) => assert!(average < Some(low)),
            (Change::Fold { .. }, Why::Taken { by, .. }) => {
                assert!(average < Some(manager.settings().spare()));
                assert!(manager.average(*by) > Some(high) && !by_id[by].growing);
                assert!(!changes.iter().any(|change| change.shard() == *by), "taken, and given");
            }
            (Change::Fold { .. }, Why::OverBudget { .. }) => assert!(held + owed > budget_bytes),
            _ => panic!("no reason for that: {change:?}"),
        }
        if !matches!(change.why(), Why::OverBudget { .. }) {
            let last = real[shard.id as usize].last;
            assert!(last.is_none_or(|(at, _)| now >= at + SETTLE), "too soon after its last");
        }
    }
    assert!(granted == 0 || held + owed + granted <= budget_bytes, "more than the budget");
}

fn tell(real: &mut [Real], now: Nanos, changes: Vec<Change>, late: Option<u64>, fill: u64) {
    for change in changes {
        let shard = &mut real[change.shard() as usize];
        shard.last = Some((now, matches!(change, Change::Grow { .. })));
        let begins = late.map_or(Nanos::MAX, |late| now + late * SECOND);
        shard.told = Some((begins, change));
        shard.pass(now, fill * SECOND);
    }
}

proptest! {
    #[test]
    fn the_budget_holds_and_every_change_has_its_reason(
        steps in steps(),
        sizes in prop::collection::vec(prop::collection::vec(0u64..500, 0..6), SHARDS),
        smoothing in prop_oneof![Just(1.0), 0.1..1.0],
        budget in 0u64..3_000,
    ) {
        let mut manager = Manager::new(settings(smoothing, budget)).unwrap();
        let mut averages = vec![NaiveAverage::default(); SHARDS];
        let mut real: Vec<Real> = sizes.iter().map(|sizes| Real::new(sizes, 0)).collect();
        let mut now = 0;
        let mut within = true;
        for (index, step) in steps.iter().enumerate() {
            let intervals = if index == 0 { 1 } else { step.intervals };
            now += intervals * SECOND;
            if let Some(bytes) = step.budget {
                manager.set_budget(bytes);
                within = false;
            }
            if let Some(gone) = step.gone {
                real[gone] = Real::new(&sizes[gone], 0);
                averages[gone] = NaiveAverage::default();
            }
            let mut shards = Vec::new();
            for (id, shard) in real.iter_mut().enumerate() {
                shard.pass(now, step.fill * SECOND);
                if step.gone != Some(id) {
                    shards.push(shard.observed(id as ShardId, step.lengths[id]));
                    averages[id].observe(step.lengths[id], intervals, smoothing);
                }
            }
            let changes = manager.observe(now, &shards);
            for (id, naive) in averages.iter().enumerate() {
                match (manager.average(id as ShardId), naive.0) {
                    (Some(ours), Some(naive)) => prop_assert!((ours - naive).abs() <= 1e-9 * naive),
                    (ours, naive) => prop_assert_eq!(ours, naive),
                }
            }
            check(&manager, now, &shards, &real, &changes);
            tell(&mut real, now, changes, step.late, step.fill);
            let taken: u64 = real.iter().map(|shard| shard.held_bytes() + shard.granted()).sum();
            let holds = taken <= manager.settings().budget_bytes;
            prop_assert!(holds || !within, "the budget held and is exceeded now");
            within = holds;
        }
    }

    /// Shards between the marks, which only the smaller budget makes change.
    #[test]
    fn a_smaller_budget_folds_the_coldest_until_it_holds(
        lengths in prop::collection::vec(0.7..4.0, SHARDS),
        sizes in prop::collection::vec(prop::collection::vec(1u64..500, 1..6), SHARDS),
        share in 0.0..1.0,
    ) {
        let mut real: Vec<Real> =
            sizes.iter().map(|sizes| Real::new(sizes, sizes.len())).collect();
        let all: u64 = real.iter().map(Real::held_bytes).sum();
        let mut manager = Manager::new(settings(1.0, all)).unwrap();
        for second in 0..60 {
            if second == 30 {
                manager.set_budget((all as f64 * share) as u64);
            }
            let shards: Vec<Shard> = (0..SHARDS)
                .map(|id| real[id].observed(id as ShardId, lengths[id]))
                .collect();
            let changes = manager.observe(second * SECOND, &shards);
            prop_assert!(second >= 30 || changes.is_empty());
            check(&manager, second * SECOND, &shards, &real, &changes);
            tell(&mut real, second * SECOND, changes, Some(0), 0);
            if second >= 35 {
                let held: u64 = real.iter().map(Real::held_bytes).sum();
                prop_assert!(held <= manager.settings().budget_bytes, "still over budget");
            }
        }
        // Without the last layer that a shard gave, the layers of all colder shards would not have
        // been enough.
        let over = all - manager.settings().budget_bytes;
        for (hot, length) in real.iter().zip(&lengths) {
            let Some(given) = hot.sizes.get(hot.layers + 1..) else { continue };
            let colder = lengths.iter().zip(&sizes).filter(|(colder, _)| *colder < length);
            let colder: u64 = colder.flat_map(|(_, sizes)| sizes).sum();
            prop_assert!(given.iter().sum::<u64>() + colder < over);
        }
    }

    /// M/M/1 shards whose layers make them at most twice as fast, as the marks assume: each shard
    /// only grows or only folds, so the changes end.
    #[test]
    fn under_constant_load_changes_end(
        loads in prop::collection::vec(0.01f64..20.0, SHARDS),
        layers in prop::collection::vec(0usize..6, SHARDS),
        gain in 1.0..2.0,
        smoothing in 0.1..1.0,
        more in 0u64..20_000,
        fill in 0u64..20,
    ) {
        let sizes = [100, 100, 200, 400, 800, 1_600];
        let mut real: Vec<Real> = layers.iter().map(|&layers| Real::new(&sizes, layers)).collect();
        let held: u64 = real.iter().map(Real::held_bytes).sum();
        let mut manager = Manager::new(settings(smoothing, held + more)).unwrap();
        let mut grew = [None; SHARDS];
        let mut count = 0;
        for second in 0..1_000 {
            let now = second * SECOND;
            let mut shards = Vec::new();
            for (id, shard) in real.iter_mut().enumerate() {
                shard.pass(now, fill * SECOND);
                // A layer that is being filled has no effect yet.
                let full = shard.layers - usize::from(shard.filling.is_some());
                let length = length_mm1(loads[id] / f64::powi(gain, full as i32));
                shards.push(shard.observed(id as ShardId, length));
            }
            let changes = manager.observe(now, &shards);
            check(&manager, now, &shards, &real, &changes);
            for change in &changes {
                let grows = matches!(change, Change::Grow { .. });
                let before = grew[change.shard() as usize].replace(grows);
                prop_assert!(before.is_none_or(|before| before == grows), "oscillates: {change}");
                count += 1;
                prop_assert!(second < 700, "still changing: {change}");
            }
            tell(&mut real, now, changes, Some(0), fill);
        }
        prop_assert!(count <= SHARDS * sizes.len());
    }

    /// The bound that is derived for one server also holds for more, by the model's M/M/m.
    #[test]
    fn marks_hold_for_more_servers(high in 0.5f64..50.0, servers in 1u32..16) {
        let spare = Settings { high, ..Settings::default() }.spare();
        // The arrival rate at which the mean queue has a given length, with a mean service time of
        // 1 s.
        let arrivals = |length: f64| {
            let (mut less, mut more) = (0.0, f64::from(servers));
            for _ in 0..60 {
                let rate = (less + more) / 2.0;
                let shorter = Mmm::new(rate, 1.0, servers).is_ok_and(|at| at.number_mean() < length);
                if shorter { less = rate } else { more = rate }
            }
            less
        };
        let grown = Mmm::new(arrivals(high), 2.0, servers).unwrap().number_mean();
        prop_assert!(grown >= spare * (1.0 - 1e-6), "{grown} after a growth, {spare}");
        let folded = Mmm::new(arrivals(spare), 0.5, servers).unwrap().number_mean();
        prop_assert!(folded <= high * (1.0 + 1e-6), "{folded} after a fold");
    }

    /// Oscillations become rare, however much a layer gains and even if the marks do not suit it.
    #[test]
    fn mistakes_get_rare(
        load in 0.01f64..2_000.0,
        gain in 1.0..40.0,
        smoothing in 0.1..1.0,
        fill in 0u64..20,
    ) {
        let sizes = [1; 6];
        let mut real = [Real::new(&sizes, 0)];
        let mut manager = Manager::new(settings(smoothing, 100)).unwrap();
        let mut count = 0;
        let seconds = 4_000;
        for second in 0..seconds {
            let now = second * SECOND;
            real[0].pass(now, fill * SECOND);
            let full = real[0].layers - usize::from(real[0].filling.is_some());
            let length = length_mm1(load / f64::powi(gain, full as i32));
            let changes = manager.observe(now, &[real[0].observed(0, length)]);
            count += changes.len();
            tell(&mut real, now, changes, Some(0), fill);
        }
        // Growths to all layers, oscillations while the manager learns, then one for each patience.
        let patience = PATIENCE_MAX * SETTLE / SECOND;
        prop_assert!(count as u64 <= 6 + 2 * 7 + 2 * seconds / patience, "{count} changes");
    }
}

/// Mean number in an M/M/1 queue of a given utilisation; long if the queue is overloaded.
fn length_mm1(utilisation: f64) -> f64 {
    if utilisation < 0.999 { utilisation / (1.0 - utilisation) } else { 1_000.0 * utilisation }
}
