//! Which of the layers that queries fill is filled by a processor as well, and by how much of one.
//!
//! A layer that is *marked* is there at once and is filled by what queries compute anyway. That brings what is asked for
//! often, and the rest hardly ever. So a thread of low priority, the *worker*, makes marked layers whole where a processor
//! would be idle: opportunistic first, dedicated where processor time is idle. The rules:
//!
//! - **The hottest first.** The worker fills the layers of the shard with the longest average queue; of equals, those
//!   that were marked first.
//! - **What is idle.** The worker gets as much of a processor as is idle, at most all of one. What it used itself counts as
//!   idle, so that it does not drive itself away.
//! - **Never nothing.** It gets at least [`LEAST`] of a processor, so every layer is whole in the end, however busy the
//!   machine. Where the idle time is unknown it gets all of one; its low priority is then what queries rely on.
//! - **The manager waits where the worker is fast** ([`Filler::fills`]): a layer of which a shard has a part counts as being
//!   filled, so that no further one is added before this one shows what it brings. Where hardly any
//!   processor is idle the part that queries fill is all for a while, and the manager does not wait.
//!
//! A driver tells of marked layers ([`Filler::mark`]), of layers that are whole or gone ([`Filler::end`]), and once an
//! interval how much is idle ([`Filler::look`]), and asks what to do ([`Filler::next`]). **Cost:** O(n) for n shards with
//! marked layers.

use std::collections::BTreeMap;

use super::shard::ShardId;

/// The least part of a processor that the worker gets while a marked layer is not whole.
pub const LEAST: f64 = 0.1;

/// From this part of a processor on the manager waits for a layer to be whole.
const FAST: f64 = 0.5;

/// Weight of the newest idle time in its average: a pause of one interval starts nothing.
const NEWEST: f64 = 0.5;

/// Decides for which shard the worker fills layers, and how fast.
///
/// ```
/// use engine::layers::fill::Filler;
///
/// let mut filler = Filler::default();
/// assert_eq!(filler.next(|_| 0.0), None);
/// filler.mark(7);
/// filler.mark(8);
/// filler.look(Some(0.25), 0.0);
/// assert_eq!(filler.next(|shard| shard as f64), Some((8, 0.25)), "the longer queue first");
/// filler.end(8);
/// assert_eq!(filler.next(|shard| shard as f64), Some((7, 0.25)));
/// assert!(!filler.fills(7), "a quarter of a processor is slow");
/// ```
#[derive(Clone, Debug, Default)]
pub struct Filler {
    /// Shards with marked layers that are not whole, and the number of the mark.
    marked: BTreeMap<ShardId, u64>,
    marks: u64,
    /// Processors that would be idle without the worker, averaged; `None` while unknown.
    idle: Option<f64>,
}

impl Filler {
    /// A layer of a shard was marked. The worker begins anew with this shard if others of its layers were being filled.
    pub fn mark(&mut self, shard: ShardId) {
        self.marks += 1;
        self.marked.insert(shard, self.marks);
    }

    /// No marked layer of a shard is left to fill: they are whole, or dropped, or the shard is gone.
    pub fn end(&mut self, shard: ShardId) {
        self.marked.remove(&shard);
    }

    /// Forgets the shards that are not `there`.
    pub fn retain(&mut self, there: impl Fn(ShardId) -> bool) {
        self.marked.retain(|shard, _| there(*shard));
    }

    /// Tells how many processors were idle in the interval that ends, `None` if that is unknown, and how many the worker
    /// used on average.
    pub fn look(&mut self, idle: Option<f64>, worked: f64) {
        let newest = idle.filter(|idle| idle.is_finite()).map(|idle| {
            let worked = if worked.is_finite() { worked.max(0.0) } else { 0.0 };
            idle.max(0.0) + worked
        });
        self.idle = match (self.idle, newest) {
            (Some(before), Some(newest)) => Some(before + NEWEST * (newest - before)),
            (_, newest) => newest,
        };
    }

    /// The part of a processor that the worker may use.
    pub fn share(&self) -> f64 {
        self.idle.unwrap_or(1.0).clamp(LEAST, 1.0)
    }

    /// The shard whose layers the worker fills, and the part of a processor that it may use; `None` if all are whole.
    /// `heat` is the average length of a shard's queue.
    pub fn next(&self, heat: impl Fn(ShardId) -> f64) -> Option<(ShardId, f64)> {
        let of = |(shard, mark): (&ShardId, &u64)| (heat(*shard), *mark, *shard);
        let hottest = self.marked.iter().map(of).reduce(|most, other| {
            let hotter = other.0.total_cmp(&most.0).then(most.1.cmp(&other.1));
            if hotter.is_gt() { other } else { most }
        })?;
        Some((hottest.2, self.share()))
    }

    /// The number of a shard's last mark, if it has marked layers: the worker begins anew when it changes.
    pub fn mark_of(&self, shard: ShardId) -> Option<u64> {
        self.marked.get(&shard).copied()
    }

    /// Whether a shard has marked layers that are made whole fast, so that what they bring is about to show.
    pub fn fills(&self, shard: ShardId) -> bool {
        self.marked.contains_key(&shard) && self.share() >= FAST
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Event {
        Mark(ShardId),
        End(ShardId),
        Look(Option<f64>, f64),
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let amount = prop_oneof![
            4 => 0.0..4.0,
            1 => prop_oneof![Just(f64::NAN), Just(-3.0), Just(f64::INFINITY)],
        ];
        let event = prop_oneof![
            3 => (0u64..6).prop_map(Event::Mark),
            2 => (0u64..6).prop_map(Event::End),
            3 => (prop::option::weighted(0.9, amount.clone()), amount)
                .prop_map(|(idle, worked)| Event::Look(idle, worked)),
        ];
        prop::collection::vec(event, 0..60)
    }

    /// Marks in order, and all that was idle since it was last unknown: everything by the formula.
    #[derive(Default)]
    struct Naive {
        marked: Vec<ShardId>,
        idle: Vec<f64>,
    }

    impl Naive {
        fn share(&self) -> f64 {
            let mean = self.idle.iter().copied().reduce(|mean, newest| (mean + newest) / 2.0);
            mean.map_or(1.0, |mean| mean.clamp(LEAST, 1.0))
        }

        fn next(&self, heat: &[f64]) -> Option<ShardId> {
            let most = self.marked.iter().map(|s| heat[*s as usize]).fold(-1.0, f64::max);
            self.marked.iter().copied().find(|shard| heat[*shard as usize] == most)
        }
    }

    proptest! {
        #[test]
        fn the_filler_does_what_the_naive_one_does(
            events in events(),
            heat in prop::collection::vec(prop::sample::select(vec![0.0, 1.0, 5.0]), 6),
        ) {
            let (mut filler, mut naive) = (Filler::default(), Naive::default());
            for event in events {
                match event {
                    Event::Mark(shard) => {
                        filler.mark(shard);
                        naive.marked.retain(|other| *other != shard);
                        naive.marked.push(shard);
                    }
                    Event::End(shard) => {
                        filler.end(shard);
                        naive.marked.retain(|other| *other != shard);
                    }
                    Event::Look(idle, worked) => {
                        filler.look(idle, worked);
                        match idle.filter(|idle| idle.is_finite()) {
                            None => naive.idle.clear(),
                            Some(idle) => {
                                let worked = if worked.is_finite() { worked.max(0.0) } else { 0.0 };
                                naive.idle.push(idle.max(0.0) + worked);
                            }
                        }
                    }
                }
                let share = filler.share();
                prop_assert!((share - naive.share()).abs() < 1e-9);
                prop_assert!((LEAST..=1.0).contains(&share));
                let next = filler.next(|shard| heat[shard as usize]);
                prop_assert_eq!(next.map(|next| next.0), naive.next(&heat));
                for shard in 0..6 {
                    let marked = naive.marked.contains(&shard);
                    prop_assert_eq!(filler.mark_of(shard).is_some(), marked);
                    prop_assert_eq!(filler.fills(shard), marked && share >= FAST);
                }
            }
        }
    }

    #[test]
    fn what_the_worker_used_counts_as_idle() {
        let mut filler = Filler::default();
        filler.mark(1);
        for _ in 0..20 {
            let (_, share) = filler.next(|_| 0.0).unwrap();
            // Another program needs one of two processors; the worker takes of the other what it may.
            filler.look(Some(1.0 - share), share);
        }
        assert!((filler.share() - 1.0).abs() < 1e-6, "{}", filler.share());
        // Queries take both: what is left is the least.
        (0..40).for_each(|_| filler.look(Some(0.0), 0.0));
        assert!((filler.share() - LEAST).abs() < 1e-9);
        filler.retain(|shard| shard != 1);
        assert_eq!(filler.next(|_| 0.0), None);
    }
}
