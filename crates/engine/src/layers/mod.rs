//! Which shard of a node gets another layer, and which gives one back.
//!
//! A shard is faster the more layers it holds ("layered sampled arrays", crate `shard`), and memory
//! for them is short. The manager looks at the queue of each shard, averaged exponentially: every
//! interval Q̄ ← a·Q + (1 − a)·Q̄. A shard above a high mark grows by a layer, one below a low mark
//! folds its lowest, and all of them together stay within a budget of bytes. Averages and marks are
//! BlowFish's (NSDI 2016). What follows is ours:
//!
//! - **A backlog is not a load.** A shard grows when an average in which each length counts as
//!   twice the high mark at most, *and* the newest length, are above that mark: a server that
//!   stalls for a second, or an average that only remembers a backlog, asks for nothing. It folds
//!   when average and newest length are below the low mark. In between nothing changes, but for the
//!   next two rules.
//! - **The hottest first.** What is free goes to the shard of the longest average. If that is not
//!   enough for its next layer, others fold for it: the coldest first, and none whose average or
//!   newest length is above [`Settings::spare`], so that who gives does not become hot by it, and
//!   who was hot a moment ago does not give. If all of those together do not free enough, none
//!   folds, and a less hot shard that needs less may have what is free. Memory is given again only
//!   when it was seen to be free.
//! - **A smaller budget** ([`Manager::set_budget`]) folds the coldest until it holds, whatever
//!   their marks.
//! - **Mistakes are remembered.** If a shard that folded because it was idle is busy again soon, it
//!   waits twice as long before it folds next, up to [`PATIENCE_MAX`] times [`Settings::settle`].
//!   Where a layer gains so much that it takes a shard from above the high mark to below the low
//!   one, that makes rare what would go to and fro for ever.
//!
//! Under a constant load and layers that gain a factor of two at most, a shard that grew is never
//! asked to give and one that gave never becomes hot: there are at most as many changes as there
//! are layers. In a closed simulation of eight shards, one of which gets four times its load, its
//! queue is below the high mark again within six seconds, where equal parts of the same budget let
//! it grow into the thousands (`closed.rs` has the figures).
//!
//! **Cost.** O(n log n) for n shards once an interval, and some 100 bytes of memory a shard. When
//! it is wrong: a queue is long for another reason than the speed of look-ups (a slow origin, a
//! client that sends bursts), which more layers do not mend; and a layer is added only once
//! requests wait, since lengths say nothing of the load that comes.

#[cfg(test)]
mod closed;
#[cfg(test)]
mod properties;
mod settings;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use model::window::Nanos;
use serde::{Deserialize, Serialize};

pub use settings::{Settings, SettingsError};

/// How many times [`Settings::settle`] a shard waits at most before it folds, however often it
/// proved a mistake.
pub const PATIENCE_MAX: u64 = 64;

/// Names a shard to its manager, in any way that is unique in the node.
pub type ShardId = u64;

/// What is observed of a shard at the end of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Which.
    pub id: ShardId,
    /// Requests waiting and in service: best the mean over the interval, or else now. Less than 0
    /// is taken as 0; what is not a finite number is taken as not observed.
    pub queue_length: f64,
    /// Bytes of its layers: those being filled in full, and those that were dropped and are still
    /// read.
    pub held_bytes: u64,
    /// Bytes of the next layer, if it can have another.
    pub next_bytes: Option<u64>,
    /// Bytes that come back when it drops the lowest layer, or gives up the one that is being
    /// filled; `None` if there is nothing to drop.
    pub lowest_bytes: Option<u64>,
    /// Whether a layer is being filled.
    pub growing: bool,
}

/// What is to be done. The driver begins with it before it calls [`Manager::observe`] next; what it
/// cannot do it leaves, and is asked again after [`Settings::settle`] if it is still needed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Add the next layer to a shard.
    Grow {
        /// To which.
        shard: ShardId,
        /// Bytes granted: its `next_bytes`.
        bytes: u64,
        /// Because of what.
        why: Why,
    },
    /// Drop the lowest layer of a shard, or the one that is being filled.
    Fold {
        /// Of which.
        shard: ShardId,
        /// Bytes that are expected back: its `lowest_bytes`.
        bytes: u64,
        /// Because of what.
        why: Why,
    },
}

impl Change {
    /// Of which shard.
    pub fn shard(&self) -> ShardId {
        match *self {
            Change::Grow { shard, .. } | Change::Fold { shard, .. } => shard,
        }
    }

    /// Because of what.
    pub fn why(&self) -> &Why {
        match self {
            Change::Grow { why, .. } | Change::Fold { why, .. } => why,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, bytes) = match self {
            Change::Grow { bytes, .. } => ("grows", bytes),
            Change::Fold { bytes, .. } => ("folds", bytes),
        };
        write!(f, "shard {} {what} by {bytes} bytes: {}", self.shard(), self.why())
    }
}

/// Why a shard changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// Its queue is above the high mark.
    Busy {
        /// Average length of its queue.
        average: f64,
        /// The mark.
        high: f64,
    },
    /// Its queue is below the low mark.
    Idle {
        /// Average length of its queue.
        average: f64,
        /// The mark.
        low: f64,
    },
    /// A hot shard needs the memory, and this one is the coldest that can spare it.
    Taken {
        /// Average length of its own queue.
        average: f64,
        /// Which shard is to have it.
        by: ShardId,
    },
    /// The layers take more than the budget, and this shard is the coldest that has any.
    OverBudget {
        /// By how many bytes, after the changes that came before.
        over_bytes: u64,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Busy { average, high } => {
                write!(f, "its queue is {average:.2} on average, above the mark of {high}")
            }
            Why::Idle { average, low } => {
                write!(f, "its queue is {average:.2} on average, below the mark of {low}")
            }
            Why::Taken { average, by } => {
                write!(
                    f,
                    "shard {by} needs the memory, and its own queue is {average:.2} on average"
                )
            }
            Why::OverBudget { over_bytes } => {
                write!(f, "the layers take {over_bytes} bytes more than their budget")
            }
        }
    }
}

/// A change that was asked for and not seen yet.
#[derive(Clone, Copy, Debug)]
enum Order {
    Grow { bytes: u64, held_before: u64 },
    Fold { bytes: u64, held_before: u64 },
}

/// What was observed of a queue.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    average: f64,
    /// The average with each length counted as twice the high mark at most.
    pressure: f64,
    newest: f64,
}

impl Lengths {
    /// What is below a mark if the shard is idle, or can spare a layer.
    fn most(&self) -> f64 {
        self.average.max(self.newest)
    }

    /// What is above the high mark if it is busy.
    fn least(&self) -> f64 {
        self.pressure.min(self.newest)
    }
}

/// What is known of a shard.
#[derive(Clone, Debug)]
struct State {
    /// Once there was a length.
    lengths: Option<Lengths>,
    /// When it was first seen, last changed, or last seen growing.
    changed: Nanos,
    /// How long after a growth it is left as it is, however idle.
    patience: Nanos,
    /// When it last folded for being idle, and had not grown since.
    folded: Option<Nanos>,
    order: Option<Order>,
}

/// One decision under way.
struct Round<'a> {
    now: Nanos,
    coldest_first: Vec<&'a Shard>,
    /// Bytes of the budget that nobody holds or was granted: below 0 if the layers take more.
    free: i128,
    /// The same once all folds that were asked for are done and all that wait have got theirs.
    later: i128,
    changes: Vec<Change>,
}

/// Decides for all shards of a node. Has no clock: it is told the time.
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
}

impl Manager {
    /// A manager that has seen no shard yet.
    ///
    /// # Errors
    /// Settings that cannot hold.
    pub fn new(settings: Settings) -> Result<Manager, SettingsError> {
        settings.check()?;
        Ok(Manager { settings, decided: None, states: BTreeMap::new() })
    }

    /// How it decides.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Gives all layers together another budget, from the next decision on.
    pub fn set_budget(&mut self, bytes: u64) {
        self.settings.budget_bytes = bytes;
    }

    /// The average length of a shard's queue; `None` if none was observed.
    pub fn average(&self, id: ShardId) -> Option<f64> {
        self.states.get(&id)?.lengths.map(|lengths| lengths.average)
    }

    /// Takes what is observed of all shards, and says what is to change: at most one change a
    /// shard, and nothing unless an interval is over (call it as often as you like). A shard that
    /// is not among them is forgotten; of one that is named twice, the first counts. After a long
    /// gap the newest length counts for all intervals that passed.
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
        let mut round = self.round(now, by_id.into_values().collect());
        self.keep_budget(&mut round);
        self.fold_idle(&mut round);
        self.grow_busy(&mut round);
        round.changes
    }

    /// How many intervals ended since the last decision, if any.
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

    /// What an observation says of a shard, of whose average the share `kept` stays.
    fn learn(&mut self, now: Nanos, kept: f64, shard: &Shard) {
        let settle = self.settings.settle;
        let state = self.states.entry(shard.id).or_insert(State {
            lengths: None,
            changed: now,
            patience: settle,
            folded: None,
            order: None,
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

    /// The shards in order, and how the memory stands.
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

    /// What shards are ordered by: one that was never observed is as cold as can be.
    fn heat(&self, shard: &Shard) -> f64 {
        self.average(shard.id).unwrap_or(0.0)
    }

    /// Folds the coldest while the layers take more than the budget. A hotter shard folds only if
    /// all that the colder ones hold is not enough, though they give it a layer at a time.
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

    /// Folds what has been below the low mark for long enough.
    fn fold_idle(&mut self, round: &mut Round) {
        let low = self.settings.low;
        for shard in round.coldest_first.clone() {
            let Some(state) = self.states.get(&shard.id) else { continue };
            let Some(lengths) = state.lengths else { continue };
            // After a fold for being idle, patience was had already.
            let waited =
                state.folded.is_some() || round.now >= state.changed.saturating_add(state.patience);
            let idle = lengths.most() < low && waited;
            if !idle || shard.lowest_bytes.is_none() || !self.may_change(round.now, shard) {
                continue;
            }
            self.fold(round, shard, Why::Idle { average: lengths.average, low });
            if let Some(state) = self.states.get_mut(&shard.id) {
                state.folded = Some(round.now);
            }
        }
    }

    /// Grows what is above the high mark, the hottest first, from what is free or what others can
    /// spare.
    fn grow_busy(&mut self, round: &mut Round) {
        if round.later < 0 {
            // The budget is not held yet: what comes back first of all makes that good.
            return;
        }
        let high = self.settings.high;
        for shard in round.coldest_first.clone().into_iter().rev() {
            let lengths = self.states.get(&shard.id).and_then(|state| state.lengths);
            let (Some(lengths), Some(bytes)) = (lengths, shard.next_bytes) else {
                continue;
            };
            if lengths.least() <= high || !self.may_change(round.now, shard) {
                continue;
            }
            let wanted = i128::from(bytes);
            if wanted <= round.free.min(round.later) {
                self.grow(round, shard, bytes, Why::Busy { average: lengths.average, high });
            } else if wanted <= round.later || self.take(round, shard.id, wanted) {
                // It waits for what is on its way: others may use what is free beyond that.
                round.later -= wanted;
            }
        }
    }

    /// Folds the coldest shards that can spare a layer until `wanted` bytes will be free for a
    /// shard; none of them, and false, if that cannot be.
    fn take(&mut self, round: &mut Round, by: ShardId, wanted: i128) -> bool {
        let mut room = round.later;
        let mut givers = Vec::new();
        for &shard in &round.coldest_first {
            let lengths = self.states.get(&shard.id).and_then(|state| state.lengths);
            let (Some(lengths), Some(bytes)) = (lengths, shard.lowest_bytes) else {
                continue;
            };
            let spare = lengths.most() < self.settings.spare();
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

    /// Whether a shard's last change has had the time to show.
    fn may_change(&self, now: Nanos, shard: &Shard) -> bool {
        let settled = |state: &State| {
            state.order.is_none() && now >= state.changed.saturating_add(self.settings.settle)
        };
        !shard.growing && self.states.get(&shard.id).is_some_and(settled)
    }

    fn grow(&mut self, round: &mut Round, shard: &Shard, bytes: u64, why: Why) {
        let Some(state) = self.states.get_mut(&shard.id) else { return };
        // Busy again soon after it folded: that was a mistake, so it waits longer next time. Eight
        // times the time in which the average follows is enough to come from 0 to a length just
        // above the mark.
        let soon = |at: Nanos| round.now < at.saturating_add(state.patience.saturating_mul(8));
        let settle = self.settings.settle;
        state.patience = match state.folded.take() {
            Some(at) if soon(at) => {
                state.patience.saturating_mul(2).min(settle.saturating_mul(PATIENCE_MAX))
            }
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
