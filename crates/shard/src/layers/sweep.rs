//! Fills layers with a dedicated sweep: one pass over Ψ computes the values of all requested layers
//! of both arrays.
//!
//! A step costs a [`Walk::walk`] of its segments, two masks per position, and a store for each
//! value that a layer keeps. The caller decides how many segments a step takes, when it runs and on
//! which thread, so a sweep can be limited to any rate, and abandoned by dropping it. Request all
//! layers in one sweep, since the pass is the same.
//!
//! Measured by `examples/layers.rs` with 50 MB of Debian package records, on two cores busy with
//! other work: 2.5 to 3.2 CPU s for a layer of each array, of which the walk alone took 2.3.

use super::group::Filling;
use super::progress::Progress;
use super::rates::Rates;
use super::state::Layers;
use super::walk::Walk;
use crate::error::Error;

/// Layers being filled, to be published by [`Layers::publish`] when they are complete.
///
/// ```
/// use shard::layers::{Layers, Rates};
/// use shard::naive;
///
/// let text = naive::Text::new(b"she sells sea shells".to_vec());
/// let layers = Layers::new(21);
/// let mut sweep = layers.sweep(&Rates { sa: vec![4, 2], isa: vec![8] })?;
/// while !sweep.step(&text, 1).is_finished() {
///     // A caller that limits its use of the machine waits here.
/// }
/// layers.publish(sweep)?;
/// assert_eq!(layers.view().offset(0), Some(20));
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Sweep {
    pub(super) sa: Filling,
    pub(super) isa: Filling,
    segments_done: usize,
    segments: Option<usize>,
}

impl Sweep {
    pub(super) fn new(layers: &Layers, rates: &Rates) -> Result<Self, Error> {
        let set = layers.set.load();
        let mut sa = set.sa.filling(&rates.sa)?;
        let mut isa = set.isa.filling(&rates.isa)?;
        // The empty suffix is not in any segment.
        if let Some(len) = layers.rows.checked_sub(1) {
            sa.offer(0, len);
            isa.offer(len, 0);
        }
        Ok(Self { sa, isa, segments_done: 0, segments: None })
    }

    /// Walks the next `segments` segments and returns the progress. `walk` must be of the same text
    /// in every step. Takes time proportional to the segments' bytes; each has about the length of
    /// the text divided by the number of segments.
    pub fn step(&mut self, walk: &impl Walk, segments: usize) -> Progress {
        let all = *self.segments.get_or_insert_with(|| walk.segments());
        let from = self.segments_done;
        let to = from.saturating_add(segments).min(all);
        if from < to {
            let (sa, isa) = (&mut self.sa, &mut self.isa);
            walk.walk(from..to, &mut |position, row| {
                if row != 0 {
                    sa.offer(row, position);
                    isa.offer(position, row);
                }
            });
            self.segments_done = to;
        }
        Progress { done: to, all }
    }

    /// The memory of the layers, allocated at the start of the sweep. Not included in
    /// [`Layers::footprint`] until they are published.
    pub fn bytes(&self) -> usize {
        self.sa.bytes() + self.isa.bytes()
    }
}
