//! Fills marked layers in place: a pass over Ψ offers them the values that no query has computed yet.
//!
//! The opposite of a [`Sweep`](super::Sweep) in one respect: each value helps as soon as it is known, also those of queries,
//! and a layer that is dropped meanwhile just is not filled any further. It costs what a sweep does, and the layer takes
//! four bytes for each value until [`Layers::pack`] has packed it, which takes the packed layer's memory in addition for that
//! moment.

use super::progress::Progress;
use super::state::Layers;
use super::walk::Walk;

/// The progress of filling all marked layers of a shard.
///
/// ```
/// use shard::layers::{Completion, Layers, Rates};
/// use shard::naive;
///
/// let text = naive::Text::new(b"she sells sea shells".to_vec());
/// let layers = Layers::new(21);
/// layers.mark(&Rates { sa: vec![4], isa: vec![8] })?;
/// let mut completion = Completion::default();
/// while !completion.step(&layers, &text, 1).is_finished() {}
/// assert_eq!(layers.view().offset(0), Some(20));
/// assert_eq!(layers.pack()?, 2);
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Completion {
    segments_done: usize,
    segments: Option<usize>,
}

impl Completion {
    /// Walks the next `segments` segments and offers what it finds to the layers that are marked now. `walk` must be of
    /// the same text in every step. Finished at once if no layer is marked. A layer that was marked after the first step
    /// lacks what was walked before: begin another completion for it.
    pub fn step(&mut self, layers: &Layers, walk: &impl Walk, segments: usize) -> Progress {
        let all = *self.segments.get_or_insert_with(|| walk.segments());
        let set = layers.set.load();
        if !set.learning {
            self.segments_done = all;
        }
        let from = self.segments_done;
        let to = from.saturating_add(segments).min(all);
        if from == 0
            && let Some(len) = layers.rows.checked_sub(1)
        {
            // The empty suffix is not in any segment.
            set.sa.learn(0, len);
            set.isa.learn(len, 0);
        }
        if from < to {
            let (sa, isa) = (&set.sa, &set.isa);
            let (of_sa, of_isa) = (sa.partial_mask(), isa.partial_mask());
            walk.walk(from..to, &mut |position, row| {
                if row & of_sa == 0 && row != 0 {
                    sa.learn(row, position);
                }
                if position & of_isa == 0 && row != 0 {
                    isa.learn(position, row);
                }
            });
            self.segments_done = to;
        }
        Progress { done: to, all }
    }
}
