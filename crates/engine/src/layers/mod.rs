//! Decides which shard of a node gains a sampled layer and which shard drops one.
//!
//! A shard answers faster the more layers it holds ("layered sampled arrays", crate `shard`), but
//! the memory for layers is limited. The manager averages the queue length of each shard
//! exponentially: every interval, Q̄ ← a·Q + (1 − a)·Q̄. A shard whose average is above a high mark
//! *grows*: it gains a layer. A shard whose average is below a low mark *folds*: it drops its
//! lowest layer. The layers of all shards together stay within a budget in bytes. The averages and
//! the two marks come from BlowFish (NSDI 2016). The following rules are additions:
//!
//! - **A backlog is not a load.** A shard grows only if two values are above the high mark: its
//!   newest queue length, and an average in which each length counts as at most twice the high
//!   mark. So a server that stalls for a second does not grow, and neither does one whose average
//!   only remembers a backlog that is gone. A shard folds when both its average and its newest
//!   length are below the low mark. In between a shard changes only by the next two rules.
//! - **The hottest shard first.** Free memory goes to the shard with the longest average queue. If
//!   it is not enough for that shard's next layer, other shards fold to make room, the coldest
//!   first. A shard whose average or newest length is above [`Settings::spare`] never folds for
//!   another: losing a layer could make it hot, or it was hot a moment ago. If all eligible shards
//!   together cannot free enough, none folds, and a less hot shard with a smaller next layer may
//!   use the free memory. Memory that a fold frees is granted only after an observation shows that
//!   it is free.
//! - **A smaller budget** ([`Manager::set_budget`]) folds the coldest shards, whatever their queue
//!   lengths, until the layers fit into it.
//! - **Mistakes are remembered.** If a shard folds because it is idle and is busy again soon after,
//!   it waits twice as long before its next idle fold, up to [`PATIENCE_MAX`] times
//!   [`Settings::settle`]. A single layer may speed a shard up so much that its queue falls from
//!   above the high mark to below the low mark. Such a shard would otherwise grow and fold for
//!   ever; the longer waits make these oscillations rare.
//!
//! - **Marks by what layers gain.** The driver tells how many services took how long
//!   ([`Manager::served`]), so the factor by which a layer makes a shard faster is measured, and the
//!   marks below which a shard folds or spares a layer follow from it (`curve`). A layer known to gain
//!   less than a tenth is not added.
//! - **Ahead.** A shard whose queue is *expected* to pass the high mark ([`Manager::expect`], from a
//!   model of the node) grows before it does, if it has a load at all, and does not fold.
//!
//! Under a constant load, and if a layer makes a shard at most twice as fast, a shard that grew
//! never folds for another and a shard that folded never becomes hot, so there are at most as many
//! changes as layers. In a closed-loop simulation of eight shards, the load of one shard rises to
//! four times its value: its queue is below the high mark again within six seconds. With the same
//! budget in equal fixed parts its queue grows into the thousands (`closed.rs` has the figures).
//!
//! **Cost.** O(n log n) time once an interval for n shards, and about 100 bytes of memory per
//! shard.
//!
//! **Limits.** A queue can be long for reasons that more layers do not fix, such as a slow origin
//! or a client that sends bursts. Without expectations a layer is added only when requests already
//! wait, because queue lengths do not predict a coming load.

mod change;
mod curve;
pub mod fill;
pub mod mix;
pub mod regions;
pub mod replicas;
mod saved;
mod settings;
mod shard;
mod state;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ground::window::Nanos;

use crate::budget::Lump;
pub use change::{Change, Why};
pub use curve::relieved;
use curve::{Curve, marks};
pub use settings::{Settings, SettingsError};
pub use shard::{Shard, ShardId};
use state::{Lengths, Load, Order, State};

/// Maximum time that a shard waits before it folds because it is idle, as a multiple of
/// [`Settings::settle`].
pub const PATIENCE_MAX: u64 = 64;

/// A shard grows for what is expected only this many times [`Settings::settle`] after its last change.
const AHEAD_SETTLES: u64 = 4;

/// The state of one decision.
struct Round<'a> {
    now: Nanos,
    coldest_first: Vec<&'a Shard>,
    /// Bytes of the budget that no shard holds or was granted; negative if the layers exceed the
    /// budget.
    free: i128,
    /// The same after all ordered folds are done and all waiting shards have their layers.
    later: i128,
    changes: Vec<Change>,
}

/// Decides which shards of a node grow and fold. It has no clock; callers pass the time.
///
/// ```
/// use engine::layers::{Change, Manager, Settings, Shard};
///
/// let mut manager = Manager::new(Settings { budget_bytes: 1000, ..Settings::default() })?;
/// let busy = Shard {
///     id: 7,
///     queue_length: 20.0,
///     held_bytes: 100,
///     next_bytes: Some(200),
///     lowest_bytes: Some(100),
///     growing: false,
/// };
/// assert!(manager.observe(0, &[busy.clone()]).is_empty(), "a new shard is watched first");
/// let changes = manager.observe(5_000_000_000, &[busy]);
/// assert!(matches!(changes[..], [Change::Grow { shard: 7, bytes: 200, .. }]));
/// assert_eq!(
///     changes[0].to_string(),
///     "shard 7 grows by 200 bytes: its queue is 20.00 on average, above the mark of 4",
/// );
/// # Ok::<(), engine::layers::SettingsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Manager {
    settings: Settings,
    /// When the last interval ended; `None` before the first.
    decided: Option<Nanos>,
    states: BTreeMap<ShardId, State>,
    wish: Option<Lump>,
    spare: Option<Lump>,
}

impl Manager {
    /// A manager that has seen no shard yet.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(settings: Settings) -> Result<Manager, SettingsError> {
        settings.check()?;
        Ok(Manager { settings, decided: None, states: BTreeMap::new(), wish: None, spare: None })
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Changes the budget of all layers together. Takes effect at the next decision.
    pub fn set_budget(&mut self, bytes: u64) {
        self.settings.budget_bytes = bytes;
    }

    /// The average queue length of a shard; `None` if no length has been observed.
    pub fn average(&self, id: ShardId) -> Option<f64> {
        self.states.get(&id)?.lengths.map(|lengths| lengths.average)
    }

    /// Sets the length that a shard's queue is expected to have by the time that a layer would take to
    /// help; `None` if nothing is expected. Infinite past saturation. It holds until it is set again.
    /// A shard that was never observed is left out.
    pub fn expect(&mut self, id: ShardId, length: Option<f64>) {
        if let Some(state) = self.states.get_mut(&id) {
            state.expected = length.filter(|length| !length.is_nan());
        }
    }

    /// Tells of services that ended while a shard held `held_bytes` of layers: their number, and the
    /// seconds that they took together. A shard that was never observed is left out.
    pub fn served(&mut self, now: Nanos, id: ShardId, held_bytes: u64, count: u64, busy_s: f64) {
        if let Some(state) = self.states.get_mut(&id) {
            state.curve.add(now, held_bytes, count, busy_s);
        }
    }

    /// The low mark of a shard, and the length below which it can spare its lowest layer.
    pub fn marks(&self, shard: &Shard) -> (f64, f64) {
        let gain = self.states.get(&shard.id).and_then(|state| {
            let less = shard.held_bytes.checked_sub(shard.lowest_bytes?)?;
            state.curve.gain(less, shard.held_bytes)
        });
        marks(self.settings.low, self.settings.high, gain)
    }

    /// Whether a shard could be given its next layer from `free_bytes`: it has one, and that is not known to gain too little.
    pub fn can_grow(&self, now: Nanos, shard: &Shard, free_bytes: u64) -> bool {
        let Some(next) = shard.next_bytes.filter(|next| *next <= free_bytes) else { return false };
        let more = shard.held_bytes.saturating_add(next);
        let poor = |state: &State| state.curve.is_poor(now, shard.held_bytes, more);
        !self.states.get(&shard.id).is_some_and(poor)
    }

    /// Takes observations of all shards and returns the changes to make: at most one per shard, and
    /// none until an interval has ended, so it may be called at any rate. A shard missing from
    /// `shards` is forgotten; of several observations of one shard, the first counts. After a gap
    /// of several intervals, the newest length counts for each of them.
    pub fn observe(&mut self, now: Nanos, shards: &[Shard]) -> Vec<Change> {
        let Some(passed) = self.intervals_over(now) else { return Vec::new() };
        let mut by_id = BTreeMap::new();
        for shard in shards {
            by_id.entry(shard.id).or_insert(shard);
        }
        self.states.retain(|id, _| by_id.contains_key(id));
        let kept = (1.0 - self.settings.smoothing).powi(passed);
        for shard in by_id.values() {
            self.learn(now, kept, shard);
        }
        self.settle_loads(kept, passed);
        let mut round = self.round(now, by_id.into_values().collect());
        self.keep_budget(&mut round);
        self.fold_idle(&mut round);
        self.grow_busy(&mut round);
        self.spare = self.spare_of(&round.coldest_first);
        round.changes
    }

    /// The number of intervals that have ended since the last decision; `None` if none has.
    fn intervals_over(&mut self, now: Nanos) -> Option<i32> {
        let Some(decided) = self.decided else {
            self.decided = Some(now);
            return Some(1);
        };
        let passed = now.saturating_sub(decided) / self.settings.interval;
        if passed == 0 {
            return None;
        }
        self.decided = Some(decided + passed * self.settings.interval);
        Some(i32::try_from(passed).unwrap_or(i32::MAX))
    }

    /// Updates a shard's state from an observation. `kept` is the weight of the old average.
    fn learn(&mut self, now: Nanos, kept: f64, shard: &Shard) {
        let settle = self.settings.settle;
        let state = self.states.entry(shard.id).or_insert(State {
            lengths: None,
            changed: now,
            patience: settle,
            busy: now,
            folded: None,
            order: None,
            expected: None,
            curve: Curve::default(),
            load: Load::default(),
        });
        if shard.queue_length.is_finite() {
            let newest = shard.queue_length.max(0.0);
            let counted = newest.min(2.0 * self.settings.high);
            let first = Lengths { average: newest, pressure: counted, newest };
            let last = state.lengths.unwrap_or(first);
            state.lengths = Some(Lengths {
                average: kept * last.average + (1.0 - kept) * newest,
                pressure: kept * last.pressure + (1.0 - kept) * counted,
                newest,
            });
            if state.lengths.is_some_and(|lengths| lengths.average >= self.settings.low) {
                state.busy = now;
            }
        }
        if shard.growing {
            state.changed = now;
        }
        let settled = now >= state.changed.saturating_add(settle);
        let seen = match state.order {
            Some(Order::Grow { held_before, .. }) => {
                shard.growing || shard.held_bytes != held_before
            }
            Some(Order::Fold { held_before, .. }) => shard.held_bytes != held_before,
            None => false,
        };
        if seen || settled {
            state.order = None;
        }
    }

    /// Starts a decision: the shards in order of their averages, and the free memory.
    fn round<'a>(&self, now: Nanos, mut shards: Vec<&'a Shard>) -> Round<'a> {
        shards.sort_by(|x, y| self.heat(x).total_cmp(&self.heat(y)));
        let mut free = i128::from(self.settings.budget_bytes);
        let mut coming = 0;
        for shard in &shards {
            free -= i128::from(shard.held_bytes);
            match self.states.get(&shard.id).and_then(|state| state.order) {
                Some(Order::Grow { bytes, .. }) => free -= i128::from(bytes),
                Some(Order::Fold { bytes, .. }) => coming += i128::from(bytes),
                None => {}
            }
        }
        Round { now, coldest_first: shards, free, later: free + coming, changes: Vec::new() }
    }

    /// The value by which shards are ordered. A shard that was never observed counts as coldest.
    fn heat(&self, shard: &Shard) -> f64 {
        self.average(shard.id).unwrap_or(0.0)
    }

    /// Folds the coldest shards while the layers exceed the budget. A shard drops one layer at a
    /// time, but all that it holds is counted: a hotter shard folds only if the layers of all
    /// colder ones together are not enough.
    fn keep_budget(&mut self, round: &mut Round) {
        let mut over = -round.later;
        for shard in round.coldest_first.clone() {
            if over <= 0 {
                break;
            }
            let order = self.states.get(&shard.id).and_then(|state| state.order);
            let rest = match (order, shard.lowest_bytes) {
                (None, None) => 0,
                (None, Some(_)) => {
                    let over_bytes = u64::try_from(over).unwrap_or(u64::MAX);
                    self.fold(round, shard, Why::OverBudget { over_bytes });
                    i128::from(shard.held_bytes)
                }
                (Some(Order::Fold { bytes, .. }), _) => {
                    i128::from(shard.held_bytes.saturating_sub(bytes))
                }
                (Some(Order::Grow { bytes, .. }), _) => {
                    i128::from(shard.held_bytes) + i128::from(bytes)
                }
            };
            over -= rest;
        }
    }

    /// Folds shards that have been below the low mark for long enough.
    fn fold_idle(&mut self, round: &mut Round) {
        for shard in round.coldest_first.clone() {
            let (low, spare) = self.marks(shard);
            let Some(state) = self.states.get(&shard.id) else { continue };
            let Some(lengths) = state.lengths else { continue };
            // A shard that folded because it was idle has waited out its patience already.
            // Once a fold was a mistake, the patience counts from when the shard was last busy: a load that
            // comes and goes would otherwise be mistaken for idleness at each of its pauses.
            let learnt = state.patience > self.settings.settle;
            let since = if learnt { state.changed.max(state.busy) } else { state.changed };
            let waited =
                state.folded.is_some() || round.now >= since.saturating_add(state.patience);
            let expected = state.expected.is_some_and(|length| length >= spare);
            let idle = lengths.most() < low && waited && !expected;
            if !idle || shard.lowest_bytes.is_none() || !self.may_change(round.now, shard) {
                continue;
            }
            self.fold(round, shard, Why::Idle { average: lengths.average, low });
            if let Some(state) = self.states.get_mut(&shard.id) {
                state.folded = Some(round.now);
            }
        }
    }

    /// Grows shards that are above the high mark, the hottest first, from free memory or from
    /// memory that others can spare.
    fn grow_busy(&mut self, round: &mut Round) {
        self.wish = None;
        if round.later < 0 {
            // The layers still exceed the budget: memory that is freed first reduces the excess.
            return;
        }
        let high = self.settings.high;
        for shard in round.coldest_first.clone().into_iter().rev() {
            let Some(why) = self.why_grow(round.now, shard, high) else { continue };
            let Some(bytes) = shard.next_bytes else { continue };
            if !self.may_change(round.now, shard) {
                continue;
            }
            let wanted = i128::from(bytes);
            if wanted <= round.free.min(round.later) {
                self.grow(round, shard, bytes, why);
            } else if wanted <= round.later || self.take(round, shard.id, wanted) {
                // The shard waits for memory that ordered folds will free. Others may use what is
                // free beyond its needs.
                round.later -= wanted;
            } else if self.wish.is_none() {
                self.wish = self.wish_of(shard, wanted - round.later);
            }
        }
    }

    /// Why a shard should grow; `None` if it should not.
    fn why_grow(&self, now: Nanos, shard: &Shard, high: f64) -> Option<Why> {
        let state = self.states.get(&shard.id)?;
        let lengths = state.lengths?;
        let more = shard.held_bytes.checked_add(shard.next_bytes?)?;
        if state.curve.is_poor(now, shard.held_bytes, more) {
            return None;
        }
        let average = lengths.average;
        if lengths.least() > high {
            return Some(Why::Busy { average, high });
        }
        // What is expected follows a change later than what is measured.
        let since =
            state.changed.saturating_add(self.settings.settle.saturating_mul(AHEAD_SETTLES));
        let expected = state.expected.filter(|expected| *expected > high)?;
        let ahead = average > self.settings.low && now >= since;
        ahead.then_some(Why::Ahead { average, expected, high })
    }

    /// Folds the coldest shards that can spare a layer until `wanted` bytes will be free for the
    /// shard `by`. If they cannot free enough, folds none and returns false.
    fn take(&mut self, round: &mut Round, by: ShardId, wanted: i128) -> bool {
        let mut room = round.later;
        let mut givers = Vec::new();
        for &shard in &round.coldest_first {
            let Some(state) = self.states.get(&shard.id) else { continue };
            let (Some(lengths), Some(bytes)) = (state.lengths, shard.lowest_bytes) else {
                continue;
            };
            let (_, spare) = self.marks(shard);
            let spare = lengths.most().max(state.expected.unwrap_or(0.0)) < spare;
            if room < wanted && spare && shard.id != by && self.may_change(round.now, shard) {
                room += i128::from(bytes);
                givers.push((shard, lengths.average));
            }
        }
        if room < wanted {
            return false;
        }
        for (shard, average) in givers {
            self.fold(round, shard, Why::Taken { average, by });
        }
        true
    }

    /// Whether a shard's last change has had enough time to show in its average.
    fn may_change(&self, now: Nanos, shard: &Shard) -> bool {
        let settled = |state: &State| {
            state.order.is_none() && now >= state.changed.saturating_add(self.settings.settle)
        };
        !shard.growing && self.states.get(&shard.id).is_some_and(settled)
    }

    fn grow(&mut self, round: &mut Round, shard: &Shard, bytes: u64, why: Why) {
        let Some(state) = self.states.get_mut(&shard.id) else { return };
        // A shard that is busy again soon after an idle fold should not have folded, so it waits
        // longer next time. Within eight times its patience the average can climb from 0 to just
        // above the high mark.
        let soon = |at: Nanos| round.now < at.saturating_add(state.patience.saturating_mul(8));
        let settle = self.settings.settle;
        state.patience = match state.folded.take() {
            Some(at) if soon(at) => {
                state.patience.saturating_mul(2).min(settle.saturating_mul(PATIENCE_MAX))
            }
            // One more growth of the same rise learns nothing and forgets nothing.
            None if soon(state.changed) => state.patience,
            _ => settle,
        };
        state.changed = round.now;
        state.order = Some(Order::Grow { bytes, held_before: shard.held_bytes });
        round.free -= i128::from(bytes);
        round.later -= i128::from(bytes);
        round.changes.push(Change::Grow { shard: shard.id, bytes, why });
    }

    fn fold(&mut self, round: &mut Round, shard: &Shard, why: Why) {
        let Some(state) = self.states.get_mut(&shard.id) else { return };
        let bytes = shard.lowest_bytes.unwrap_or(0);
        state.changed = round.now;
        state.order = Some(Order::Fold { bytes, held_before: shard.held_bytes });
        round.later += i128::from(bytes);
        round.changes.push(Change::Fold { shard: shard.id, bytes, why });
    }
}
