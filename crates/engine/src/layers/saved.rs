//! What layers save: seconds of service per second.
//!
//! A shard that is busy a share ρ of the time saves ρ · (1 − 1/g) by a layer that makes services g times
//! as fast, and would take ρ · (g − 1) longer without the layer that makes them so. The gains are measured
//! where both footprints were held ([`Curve`](super::curve::Curve)), and [`GAIN_UNKNOWN`] elsewhere.

use ground::window::SECOND;

use super::Manager;
use super::curve::GAIN_UNKNOWN;
use super::shard::{Shard, ShardId};
use super::state::{Order, State};
use crate::budget::Lump;

impl State {
    fn saved_by_next_s(&self, shard: &Shard, next: u64) -> f64 {
        let more = shard.held_bytes.saturating_add(next);
        let gain = self.curve.gain(shard.held_bytes, more).unwrap_or(GAIN_UNKNOWN);
        self.load.utilisation * (1.0 - 1.0 / gain.max(1.0))
    }

    fn saved_by_lowest_s(&self, shard: &Shard, lowest: u64) -> f64 {
        let less = shard.held_bytes.saturating_sub(lowest);
        let gain = self.curve.gain(less, shard.held_bytes).unwrap_or(GAIN_UNKNOWN);
        self.load.utilisation * (gain.max(1.0) - 1.0)
    }
}

impl Manager {
    /// Tells of the seconds that a shard's services took since the last call, in whatever state its layers were.
    /// A shard that was never observed is left out.
    pub fn busy(&mut self, id: ShardId, busy_s: f64) {
        if let Some(state) = self.states.get_mut(&id)
            && busy_s.is_finite()
            && busy_s > 0.0
        {
            state.load.busy_s += busy_s;
        }
    }

    /// Seconds of service per second of all shards together.
    pub fn busy_share(&self) -> f64 {
        self.states.values().map(|state| state.load.utilisation).sum()
    }

    /// What the busiest shard lacks for its next layer, if the budget did not allow the layer at the last
    /// decision: the missing bytes, and what the layer would save.
    pub fn wish(&self) -> Option<Lump> {
        self.wish
    }

    /// The layer that a smaller budget folds first, and what it saves.
    pub fn spare(&self) -> Option<Lump> {
        self.spare
    }

    pub(super) fn settle_loads(&mut self, kept: f64, intervals: i32) {
        let seconds = self.settings.interval as f64 / SECOND as f64 * f64::from(intervals);
        for state in self.states.values_mut() {
            let newest = std::mem::take(&mut state.load.busy_s) / seconds;
            state.load.utilisation = kept * state.load.utilisation + (1.0 - kept) * newest;
        }
    }

    pub(super) fn wish_of(&self, shard: &Shard, missing: i128) -> Option<Lump> {
        let (state, next) = (self.states.get(&shard.id)?, shard.next_bytes?);
        let bytes = u64::try_from(missing).ok()?;
        Some(Lump { bytes, saved_s: state.saved_by_next_s(shard, next) })
    }

    pub(super) fn spare_of(&self, coldest_first: &[&Shard]) -> Option<Lump> {
        coldest_first.iter().find_map(|shard| {
            let (state, bytes) = (self.states.get(&shard.id)?, shard.lowest_bytes?);
            let folds = matches!(state.order, Some(Order::Fold { .. }));
            let saved_s = state.saved_by_lowest_s(shard, bytes);
            (!folds).then_some(Lump { bytes, saved_s })
        })
    }
}
