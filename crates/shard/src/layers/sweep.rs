//! Layers made by a dedicated sweep: one pass over Ψ fills every layer that was asked for.
//!
//! A step costs what [`Walk::walk`] does for its segments, two masks a position, and a store for
//! each value that a layer keeps. The caller decides how many segments a step takes, when the next
//! one comes and on which thread, so that a sweep can be limited to any rate, and abandoned by
//! dropping it. The values of all layers of both arrays come from the same pass: ask for them
//! together.
//!
//! Of 50 MB of Debian package records, by `examples/layers.rs` on two cores busy with other work:
//! 2.5 to 3.2 CPU s for a layer of each array, of which the walk alone, with nothing to fill, took
//! 2.3.

use super::group::Filling;
use super::{Layers, Rates, Walk};
use crate::Error;

/// How far a piece of work that is done in steps has come.
///
/// Its units are what the work's steps count: segments of a [`Sweep`], blocks of a
/// [`TextBuild`](super::TextBuild).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Units done.
    pub done: usize,
    /// Units in all.
    pub all: usize,
}

impl Progress {
    /// Whether nothing is left to do.
    pub fn is_finished(self) -> bool {
        self.done == self.all
    }
}

/// Layers that are being filled, published by [`Layers::publish`] when they are whole.
///
/// ```
/// use shard::layers::{Layers, Rates};
/// use shard::naive;
///
/// let text = naive::Text::new(b"she sells sea shells".to_vec());
/// let layers = Layers::new(21);
/// let mut sweep = layers.sweep(&Rates { sa: vec![4, 2], isa: vec![8] })?;
/// while !sweep.step(&text, 1).is_finished() {
///     // A caller that has to go easy on the machine waits here.
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
        // The empty suffix, which belongs to no segment.
        if let Some(len) = layers.rows.checked_sub(1) {
            sa.offer(0, len);
            isa.offer(len, 0);
        }
        Ok(Self { sa, isa, segments_done: 0, segments: None })
    }

    /// Walks the next `segments` segments, and says how many are done. `walk` has to be of the same
    /// text in every step. Takes a time proportional to the segments' bytes: about the length of
    /// the text divided by its number of segments each.
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

    /// Bytes that the layers take, from the start of the sweep on. Not in [`Layers::footprint`]
    /// before they are published.
    pub fn bytes(&self) -> usize {
        self.sa.bytes() + self.isa.bytes()
    }
}
