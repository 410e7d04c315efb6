//! Layered sampled arrays: optional memory that makes a shard faster, and can be given back.
//!
//! A compressed suffix array finds the value of a row or position by walking to the next one whose
//! value is stored. *Layers* store additional values while memory allows. A layer of sampling rate
//! L holds the values at the multiples of L that no layer of a larger rate holds. Layers are
//! therefore added and dropped at the bottom (the smallest rate), and a look-up need not know which
//! exist. The two arrays, SA (row → offset in the text) and ISA (offset → row), have separate
//! layers. Source: the layered sampled array of BlowFish (NSDI 2016).
//!
//! A layer is either filled by a dedicated [`Sweep`] and published when it is complete, or *marked*
//! and filled with values that queries compute ([`View::learn`]); a [`Completion`] makes marked layers whole. A text layer ([`TextBuild`])
//! answers `extract` from a copy of the text encoded as tokens instead.
//!
//! **Concurrency.** All layers are one immutable list behind an `arc-swap`. A query takes a
//! [`View`] of it (a few nanoseconds, no lock, no wait) and reads that on each hop. A change swaps
//! in another list, in microseconds whatever the layers' sizes, and never waits for readers.
//! Dropped layers are freed with the last view of them; [`Dropped`] controls which thread frees
//! them. Changes exclude one another.
//!
//! **Memory.** Freed memory returns to the system at once, because values, text blocks and hot
//! blocks are stored in anonymous maps (`memory`). Measured by `examples/layers.rs` with 50 MB of
//! Debian package records: a pair of layers added 17.8 MB to the process, and 0.0 MB after it was
//! dropped; likewise for a pair filled by queries (22.0 MB). A text layer with hot blocks added
//! 29.6 MB, of which 24.0 MB were counted, and 6.3 MB remained after the drop: the allocator keeps
//! the memory in which tokens were chosen. [`Footprint`] counts the capacity of layers, each array
//! without the rest of its last page; pages of marked layers and hot blocks are allocated when they
//! are first written.
//!
//! **Cost.** A layer of rate L costs `rows / L · w / 8` bytes, `w` being the bits of a row, less
//! what larger rates hold. A look-up costs two dependent loads and one cache miss. When not to use
//! it: without spare memory, or for queries that never locate or extract (counting does not read
//! layers).

mod complete;
#[cfg(test)]
mod concurrent_tests;
mod footprint;
mod group;
mod hot;
#[cfg(test)]
mod index_tests;
mod memory;
mod part;
mod progress;
mod rates;
mod regions;
#[cfg(test)]
mod regions_tests;
mod state;
mod sweep;
#[cfg(test)]
mod tests;
mod text_layer;
mod values;
mod walk;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};

use crate::error::Error;
pub use complete::Completion;
pub use footprint::{Budget, Changes, Footprint};
use group::Group;
pub use group::LayerFootprint;
use hot::Hot;
use part::Part;
pub use progress::Progress;
pub use rates::{Array, Rates};
pub(crate) use regions::Reads;
pub use regions::{REGIONS_MAX, Regions};
pub(crate) use state::Base;
pub use state::Layers;
use state::Set;
pub use sweep::Sweep;
use text_layer::TextLayer;
pub use text_layer::{TextBuild, TextOptions};
pub use walk::Walk;

impl Layers {
    /// Creates an empty set of layers for a text of `rows - 1` bytes. Takes at most a kilobyte.
    ///
    /// Layers do not hold rows past `u32::MAX`; a shard has fewer.
    pub fn new(rows: usize) -> Self {
        Self::over(rows, Base::default())
    }

    /// As [`new`](Layers::new), in addition to the shard's own samples.
    pub(crate) fn over(rows: usize, base: Base) -> Self {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        let set = Set {
            sa: Group::new(rows, 0),
            isa: Group::new(rows, base.isa_rate),
            learning: false,
            text: None,
            hot: None,
        };
        Self { rows, base, set: ArcSwap::from_pointee(set), dropped: Mutex::default() }
    }

    /// Returns the present layers, for the duration of one query. Costs a few nanoseconds; never
    /// waits.
    #[inline]
    pub fn view(&self) -> View {
        View(self.set.load())
    }

    /// Begins to fill layers of the given rates. These may include the rates of existing partial
    /// layers, which are then replaced by complete ones.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if a rate is not a power of two, or not below all existing rates of its
    /// array, or if memory is exhausted.
    pub fn sweep(&self, rates: &Rates) -> Result<Sweep, Error> {
        Sweep::new(self, rates)
    }

    /// Publishes the layers of a finished sweep.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the sweep is not finished, or if layers of an array that it fills were
    /// added or dropped since it began. The sweep is then lost.
    pub fn publish(&self, sweep: Sweep) -> Result<(), Error> {
        let change = self.change();
        let set = self.set.load();
        let mut replaced = Vec::new();
        let sa = set.sa.with_filled(sweep.sa, &mut replaced)?;
        let isa = set.isa.with_filled(sweep.isa, &mut replaced)?;
        drop(self.swap(change, Set { sa, isa, ..Set::clone(&set) }, replaced));
        Ok(())
    }

    /// Adds empty layers of the given rates, to be filled by [`View::learn`]. Takes microseconds
    /// whatever their size. They are counted with four bytes per value from now on, but their
    /// memory is allocated as values arrive.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if a rate is not a power of two, or not below all existing rates of its
    /// array, or if memory is exhausted.
    pub fn mark(&self, rates: &Rates) -> Result<(), Error> {
        let change = self.change();
        let set = self.set.load();
        let sa = set.sa.with_marked(&rates.sa)?;
        let isa = set.isa.with_marked(&rates.isa)?;
        drop(self.swap(change, Set { sa, isa, ..Set::clone(&set) }, Vec::new()));
        Ok(())
    }

    /// Packs the marked layers whose values are all known, and returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if memory is exhausted; nothing is changed then.
    pub fn pack(&self) -> Result<usize, Error> {
        let change = self.change();
        let set = self.set.load();
        let mut replaced = Vec::new();
        let sa = set.sa.with_packed(&mut replaced)?;
        let isa = set.isa.with_packed(&mut replaced)?;
        let packed = replaced.len();
        drop(self.swap(change, Set { sa, isa, ..Set::clone(&set) }, replaced));
        Ok(packed)
    }

    /// Removes the lowest layer of an array; `None` if it has none.
    pub fn drop_lowest(&self, array: Array) -> Option<Dropped> {
        let change = self.change();
        let set = self.set.load();
        let mut next = Set::clone(&set);
        let group = match array {
            Array::Sa => &mut next.sa,
            Array::Isa => &mut next.isa,
        };
        let (without, layer) = group.without_lowest()?;
        *group = without;
        Some(self.swap(change, next, vec![layer]))
    }

    /// Publishes a text layer. An existing one is replaced, and its hot blocks are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the layer is not finished or belongs to a text of another length, or if
    /// memory is exhausted.
    pub fn publish_text(&self, build: TextBuild) -> Result<(), Error> {
        self.replace_text(build.finish()?)
    }

    /// Publishes the regions that a build has finished, as a text layer that the next call or
    /// [`publish_text`](Layers::publish_text) replaces by a larger one: blocks are shared, and queries need not wait for the last.
    /// Returns whether there were further ones. A build that is not of regions is published when it is finished.
    ///
    /// # Errors
    ///
    /// As [`publish_text`](Layers::publish_text), unfinished builds excepted.
    pub fn publish_text_so_far(&self, build: &mut TextBuild) -> Result<bool, Error> {
        let Some(layer) = build.so_far()? else { return Ok(false) };
        self.replace_text(layer)?;
        Ok(true)
    }

    fn replace_text(&self, layer: TextLayer) -> Result<(), Error> {
        if layer.text_len() + 1 != self.rows as usize {
            return Err(Error::Layers(format!(
                "a text layer of {} bytes does not belong to a text of {} rows",
                layer.text_len(),
                self.rows
            )));
        }
        let change = self.change();
        let set = self.set.load();
        // What the new layer shares with the old one is not dropped.
        let mut dropped = set.text_parts();
        dropped.retain(|old| !layer.parts().any(|new| Arc::ptr_eq(old, &new)));
        let next = Set { text: Some(Arc::new(layer)), hot: None, ..Set::clone(&set) };
        drop(self.swap(change, next, dropped));
        Ok(())
    }

    /// Removes the text layer and its hot blocks; `None` if there is no text layer.
    pub fn drop_text(&self) -> Option<Dropped> {
        let change = self.change();
        let set = self.set.load();
        set.text.as_ref()?;
        let next = Set { text: None, hot: None, ..Set::clone(&set) };
        Some(self.swap(change, next, set.text_parts()))
    }

    /// Caches recently decoded blocks of the text layer in at most `bytes`; none if `bytes` is 0 or
    /// there is no text layer. Replaces the previous cache.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if memory is exhausted; nothing is changed then.
    pub fn set_hot(&self, bytes: usize) -> Result<Dropped, Error> {
        let change = self.change();
        let set = self.set.load();
        let hot = match &set.text {
            Some(text) => Hot::new(bytes, text.block_bytes())?,
            None => None,
        };
        let next = Set { hot: hot.map(Arc::new), ..Set::clone(&set) };
        let parts = set.hot.iter().map(|hot| Arc::clone(hot) as Arc<dyn Part>).collect();
        Ok(self.swap(change, next, parts))
    }

    /// The memory of all layers, by part, and of dropped layers that a view or a [`Dropped`] still
    /// holds.
    pub fn footprint(&self) -> Footprint {
        let dropped = self.change().iter().filter_map(Weak::upgrade).map(|part| part.bytes()).sum();
        let set = self.set.load();
        Footprint {
            sa: set.sa.footprint(),
            isa: set.isa.footprint(),
            text_bytes: set.text.as_ref().map_or(0, |text| text.bytes()),
            hot_bytes: set.hot.as_ref().map_or(0, |hot| hot.bytes()),
            dropped_bytes: dropped,
        }
    }

    /// Computes which layers to drop and to add so that each array uses its budget.
    pub fn changes(&self, budget: &Budget) -> Changes {
        Changes::toward(&self.set.load(), self.base, budget)
    }

    /// Locks the layers for a change, from reading the present set until publishing the next.
    fn change(&self) -> MutexGuard<'_, Vec<Weak<dyn Part>>> {
        // A panic within a change leaves the old set published, so a poisoned lock is usable.
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes `next`, from which `parts` have been removed.
    fn swap(
        &self,
        mut change: MutexGuard<'_, Vec<Weak<dyn Part>>>,
        mut next: Set,
        parts: Vec<Arc<dyn Part>>,
    ) -> Dropped {
        next.learning = next.sa.has_partial() || next.isa.has_partial();
        self.set.store(Arc::new(next));
        change.retain(|part| part.strong_count() > 0);
        change.extend(parts.iter().map(Arc::downgrade));
        Dropped { parts }
    }
}

/// Layers that are no longer published. They are freed when this value and the last view of them
/// are dropped, by whichever thread drops last.
///
/// Hold this value until [`is_read`](Dropped::is_read) returns `false`, and no query spends time on
/// freeing. Drop it at once, and the memory is freed as early as possible.
#[must_use = "dropping this at once may leave the freeing to a query"]
#[derive(Debug)]
pub struct Dropped {
    parts: Vec<Arc<dyn Part>>,
}

impl Dropped {
    /// The number of bytes to be freed.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes()).sum()
    }

    /// Whether a view still refers to it.
    pub fn is_read(&self) -> bool {
        self.parts.iter().any(|part| Arc::strong_count(part) > 1)
    }
}

/// The layers at the time the view was taken, unaffected by later changes.
///
/// Take one view per query and do not keep it longer: dropped layers are freed with the last view
/// of them.
#[derive(Debug)]
pub struct View(Guard<Arc<Set>>);

impl View {
    /// The offset in the text of a row, if a layer holds it.
    #[inline]
    pub fn offset(&self, row: u32) -> Option<u32> {
        self.0.sa.get(row)
    }

    /// Whether a marked layer includes this row and lacks its offset.
    #[inline(always)]
    pub(crate) fn wants_offset(&self, row: u32) -> bool {
        self.0.learning && self.0.sa.wants(row)
    }

    /// Prefetches the memory that [`offset`](View::offset) of this row reads. Returns whether a
    /// layer certainly holds the row.
    #[inline(always)]
    pub(crate) fn ask_offset(&self, row: u32) -> bool {
        self.0.sa.ask(row)
    }

    /// The nearest `(offset, row)` in a layer with `after < offset <= position`. Costs one look-up
    /// if the lowest layer is complete; if it is partial, at most one for each multiple of its rate
    /// between the two.
    #[inline]
    pub fn row_before(&self, position: u32, after: u32) -> Option<(u32, u32)> {
        self.0.isa.get_before(position, after)
    }

    /// Whether any layer is marked, so that values computed during a walk are worth offering to it.
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        self.0.learning
    }

    /// Offers the fact that `row` is the suffix at `position`, which the caller has computed. A
    /// marked layer that includes either stores it unless known already; otherwise it is ignored.
    /// Never waits.
    #[inline]
    pub fn learn(&self, position: u32, row: u32) {
        if self.0.learning {
            self.0.sa.learn(row, position);
            self.0.isa.learn(position, row);
        }
    }

    /// The bytes of the text that the text layer holds; 0 without a text layer. They are the beginning of the text, unless
    /// [`text_regions`](View::text_regions) says which they are.
    #[inline]
    pub fn text_len(&self) -> usize {
        self.0.text.as_ref().map_or(0, |text| text.len())
    }

    /// The regions ([`Regions`]) that the text layer holds, ascending; `None` without a text layer, and if it holds a
    /// beginning of the text.
    pub fn text_regions(&self) -> Option<Vec<u32>> {
        self.0.text.as_ref()?.regions()
    }

    /// Appends `len` bytes of the text from `position` on, if a text layer holds all of them;
    /// otherwise appends nothing and returns `false`. Decodes each block it touches that is not
    /// hot.
    pub fn text(&self, position: usize, len: usize, bytes: &mut Vec<u8>) -> bool {
        let Some(text) = &self.0.text else { return false };
        let start = bytes.len();
        let whole = text.read(position, len, self.0.hot.as_deref(), bytes).is_some();
        if !whole {
            bytes.truncate(start);
        }
        whole
    }
}
