//! The bytes that layers and copies of shards share.

use std::sync::Arc;

use engine::act::Knob;
use engine::layers::Shard as Observed;
use ground::window::Nanos;

use super::super::leases::{Copies, Lease};
use super::{Candidate, Layers, State};
use crate::station::Station;

impl Layers {
    /// Makes copies of shards count against the budget, before the layers are started.
    pub fn count_copies(&self, copies: Arc<Copies>) {
        let _ = self.copies.set(copies);
    }

    /// Bytes that are left for copies of shards.
    pub fn room_bytes(&self) -> u64 {
        self.lock().room_bytes
    }

    /// Bytes that copies may take at most: the budget of layers and copies together.
    pub fn copies_bytes_max(&self) -> u64 {
        self.lock().total_bytes
    }

    /// Whether a shard could be given a further layer, or is being given one.
    pub fn can_grow(&self, station: &Station) -> bool {
        let state = self.lock();
        state.ids.get(station.name()).is_some_and(|id| state.can_grow.contains(id))
    }

    /// Leases a copy, if there is room for its bytes: see [`Copies`].
    pub(in super::super) fn lease(
        &self,
        copies: &Copies,
        now: Nanos,
        lease: Lease,
    ) -> Option<bool> {
        let mut state = self.lock();
        let bytes = lease.bytes;
        let granted = copies.grant(now, lease, state.room_bytes);
        if granted == Some(true) {
            state.room_bytes = state.room_bytes.saturating_sub(bytes);
            let budget = state.manager.settings().budget_bytes;
            state.manager.set_budget(budget.saturating_sub(bytes));
        }
        granted
    }

    /// With a budget that objects share: reports what the layers hold and lack, and takes their limit. Returns the
    /// part of the fixed bytes that fits.
    pub(super) fn take_limit(
        &self,
        state: &mut State,
        candidates: &[Candidate],
        all: &[Observed],
    ) -> f64 {
        let copies_bytes = self.copies.get().map_or(0, |copies| copies.bytes());
        let Some(memory) = self.memory.get() else {
            let most = state.total_bytes.saturating_sub(copies_bytes);
            state.manager.set_budget(most);
            return 1.0;
        };
        let with = || candidates.iter().zip(all);
        let fixed = |c: &Candidate| c.fixed_bytes;
        let least_bytes = with().filter_map(|(c, _)| fixed(c)).fold(0, u64::saturating_add);
        let of_fixed = with().filter(|(c, _)| fixed(c).is_some());
        let held_by_fixed: u64 = of_fixed.map(|(_, observed)| observed.held_bytes).sum();
        let layers = engine::budget::Layers {
            held_bytes: all.iter().map(|observed| observed.held_bytes).sum::<u64>() + copies_bytes,
            bytes_max: 0,
            // Copies that were granted stay while they are leased.
            least_bytes: least_bytes.saturating_add(copies_bytes),
            // What is not added needs no bytes.
            wish: state.manager.wish().filter(|_| self.live.makes(Knob::Layers)),
            spare: state.manager.spare(),
        };
        let limit = memory.exchange(layers, state.manager.busy_share());
        state.total_bytes = limit;
        let limit = limit.saturating_sub(copies_bytes);
        let for_fixed = least_bytes.min(limit);
        state.manager.set_budget(limit.saturating_sub(for_fixed.max(held_by_fixed)));
        if least_bytes > 0 { for_fixed as f64 / least_bytes as f64 } else { 1.0 }
    }
}

impl State {
    /// Notes what is left for copies of shards, and which shards could grow.
    pub(super) fn look_at_room(&mut self, now: Nanos, managed: &[Observed], grows: bool) {
        let held: u64 = managed.iter().map(|shard| shard.held_bytes).sum();
        self.room_bytes = self.manager.settings().budget_bytes.saturating_sub(held);
        let can = |shard: &&Observed| {
            grows && (shard.growing || self.manager.can_grow(now, shard, self.room_bytes))
        };
        self.can_grow = managed.iter().filter(can).map(|shard| shard.id).collect();
    }
}
