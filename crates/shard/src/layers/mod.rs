//! Layered sampled arrays: what a shard holds beyond its index to be faster, and gives back.
//!
//! A compressed suffix array finds the value of any row or position by walking to the next one
//! whose value is stored. *Layers* store more of them while there is memory for it. A layer of
//! sampling rate L holds the values at the multiples of L that no layer of a larger rate holds; so
//! layers are added at the bottom (the smallest rate), dropped from the bottom, and a look-up need
//! not know which exist. The two arrays, SA (row → offset in the text) and ISA (offset → row), have
//! layers of their own. Source: the layered sampled array of BlowFish (NSDI 2016).
//!
//! A layer is filled by a dedicated [`Sweep`] and published when it is whole, or is *marked* and
//! filled by what queries come by ([`View::learn`]). A text layer ([`TextBuild`]) answers `extract`
//! from a copy of the text in tokens instead.
//!
//! **Concurrency.** All layers are one immutable list behind an `arc-swap`: a query takes a
//! [`View`] of it (a few nanoseconds, no lock, no wait) and asks that on each hop. A change swaps
//! in another list, in microseconds whatever the layers' sizes, and never waits for readers. What
//! was dropped is freed with the last view of it; [`Dropped`] says when that is and who pays for
//! it. Changes exclude one another.
//!
//! **Memory.** What is freed goes back to the system at that moment: values, text blocks and hot
//! blocks lie in anonymous maps (`memory`). By `examples/layers.rs`, over 50 MB of Debian package
//! records: a process that held 17.8 MB more with a pair of layers held 0.0 MB more when that was
//! dropped, as after one that queries had filled (22.0 MB). With a text layer and hot blocks it
//! held 29.6 MB more, of 24.0 MB that were counted, and 6.3 MB when they were dropped: the
//! allocator keeps what the tokens were chosen with. [`Footprint`] counts what layers may hold,
//! each array without the rest of its last page; pages of marked layers and hot blocks are taken as
//! they are first written.
//!
//! **Cost.** A layer of rate L costs `rows / L · w / 8` bytes, `w` the bits of a row, less what
//! larger rates hold; a look-up costs two dependent loads and one cache miss. When it is wrong:
//! with no memory to spare, or with queries that never locate or extract (counting reads none of
//! this).

#[cfg(test)]
mod concurrent_tests;
mod footprint;
mod group;
mod hot;
#[cfg(test)]
mod index_tests;
mod memory;
mod sweep;
#[cfg(test)]
mod tests;
mod text_layer;
mod values;

use std::fmt::Debug;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use arc_swap::{ArcSwap, Guard};

use crate::{Error, Text, naive};
pub use footprint::{Budget, Changes, Footprint, LayerFootprint};
use group::Group;
use hot::Hot;
pub use sweep::{Progress, Sweep};
use text_layer::TextLayer;
pub use text_layer::{TextBuild, TextOptions};

/// What a [`Sweep`] walks: all positions of a text and their rows, in pieces.
pub trait Walk {
    /// Into how many segments the text is cut.
    fn segments(&self) -> usize;

    /// Calls `visit(position, row)` once for each position of the text (`0..len`) in the given
    /// segments, in any order. The end of the text, whose row is 0, may be visited or not.
    fn walk(&self, segments: Range<usize>, visit: &mut dyn FnMut(u32, u32));
}

/// The naive twin of a walk, in segments of 16 positions: it looks through all rows at each call.
impl Walk for naive::Text {
    fn segments(&self) -> usize {
        self.len().div_ceil(16)
    }

    fn walk(&self, segments: Range<usize>, visit: &mut dyn FnMut(u32, u32)) {
        let mut offsets = Vec::new();
        self.locate(0..self.len() + 1, &mut offsets);
        for (row, offset) in offsets.into_iter().enumerate() {
            if segments.contains(&(offset / 16)) {
                visit(offset as u32, row as u32);
            }
        }
    }
}

/// One of the two sampled arrays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Array {
    /// The suffix array, from a row to its offset in the text: what `locate` reads.
    Sa,
    /// Its inverse, from an offset in the text to its row: what `extract` begins with.
    Isa,
}

/// Sampling rates of both arrays: powers of two, in any order.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rates {
    /// Of the suffix array.
    pub sa: Vec<u32>,
    /// Of the inverse suffix array.
    pub isa: Vec<u32>,
}

impl Rates {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sa.is_empty() && self.isa.is_empty()
    }
}

/// All that a view sees. Never changed once it is published.
#[derive(Clone, Debug)]
struct Set {
    sa: Group,
    isa: Group,
    /// Whether a layer is marked to be filled by queries.
    learning: bool,
    text: Option<Arc<TextLayer>>,
    hot: Option<Arc<Hot>>,
}

/// The layers of one shard, shared by reference among threads.
///
/// ```
/// use shard::layers::{Array, Layers, Rates};
///
/// // A text of 999 bytes; say that row 8 is found to be the suffix at offset 500.
/// let layers = Layers::new(1000);
/// layers.mark(&Rates { sa: vec![8], isa: vec![4] })?;
/// let view = layers.view();
/// assert_eq!(view.offset(8), None);
/// view.learn(500, 8);
/// assert_eq!(view.offset(8), Some(500));
/// assert_eq!(view.row_before(510, 400), Some((500, 8)));
///
/// // What is dropped is gone for new views; this one still has it.
/// let dropped = layers.drop_lowest(Array::Sa).unwrap();
/// assert_eq!(layers.view().offset(8), None);
/// assert_eq!(view.offset(8), Some(500));
/// assert!(dropped.is_read());
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Layers {
    rows: u32,
    base: Base,
    set: ArcSwap<Set>,
    /// Excludes changes, and remembers what was dropped and may still be held.
    dropped: Mutex<Vec<Weak<dyn Part>>>,
}

/// Sampling rates of what is part of the shard itself; 0 where there is no such sampling.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Base {
    /// The shard knows the rows whose offsets are multiples of this, so that a walk from any row
    /// ends within as many steps: layers of SA of this rate or a larger one would be of little use.
    pub sa_rate: u32,
    /// The shard knows the rows of the offsets that are multiples of this. If it is a power of two,
    /// layers of ISA do not hold those again.
    pub isa_rate: u32,
}

impl Layers {
    /// No layers over a text of `rows - 1` bytes. Holds no more than a kilobyte.
    ///
    /// Rows past `u32::MAX` are not held by any layer; a shard does not have so many.
    pub fn new(rows: usize) -> Self {
        Self::over(rows, Base::default())
    }

    /// As [`new`](Layers::new), above the samples that the shard itself has.
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

    /// The layers as they are now, to be asked during one query. Costs a few nanoseconds; never
    /// waits.
    #[inline]
    pub fn view(&self) -> View {
        View(self.set.load())
    }

    /// Begins to fill layers of the given rates. Those of partial layers that exist may be among
    /// them: they will be replaced by whole ones.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if a rate is not a power of two, or not below all existing ones of its
    /// array, or if there is no memory.
    pub fn sweep(&self, rates: &Rates) -> Result<Sweep, Error> {
        Sweep::new(self, rates)
    }

    /// Publishes the layers of a finished sweep.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if it is not finished, or if layers of an array that it fills were added
    /// or dropped since it began; the sweep is lost then.
    pub fn publish(&self, sweep: Sweep) -> Result<(), Error> {
        let change = self.change();
        let set = self.set.load();
        let mut replaced = Vec::new();
        let sa = set.sa.with_filled(sweep.sa, &mut replaced)?;
        let isa = set.isa.with_filled(sweep.isa, &mut replaced)?;
        drop(self.swap(change, Set { sa, isa, ..Set::clone(&set) }, replaced));
        Ok(())
    }

    /// Adds empty layers of the given rates, which [`View::learn`] fills, in microseconds whatever
    /// their size. They count four bytes a value from now on, and take them as values come.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if a rate is not a power of two, or not below all existing ones of its
    /// array, or if there is no memory.
    pub fn mark(&self, rates: &Rates) -> Result<(), Error> {
        let change = self.change();
        let set = self.set.load();
        let sa = set.sa.with_marked(&rates.sa)?;
        let isa = set.isa.with_marked(&rates.isa)?;
        drop(self.swap(change, Set { sa, isa, ..Set::clone(&set) }, Vec::new()));
        Ok(())
    }

    /// Packs the marked layers of which every value is known by now, and says how many those were.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if there is no memory; nothing is changed then.
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

    /// Unpublishes the lowest layer of an array; `None` if it has none.
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

    /// Publishes a text layer; one that exists is replaced, and its hot blocks are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the layer is not finished or is not of a text of this length, or if
    /// there is no memory.
    pub fn publish_text(&self, build: TextBuild) -> Result<(), Error> {
        let layer = build.finish()?;
        if layer.text_len() + 1 != self.rows as usize {
            return Err(Error::Layers(format!(
                "a text layer of {} bytes does not belong to a text of {} rows",
                layer.text_len(),
                self.rows
            )));
        }
        let change = self.change();
        let set = self.set.load();
        let next = Set { text: Some(Arc::new(layer)), hot: None, ..Set::clone(&set) };
        drop(self.swap(change, next, set.text_parts()));
        Ok(())
    }

    /// Unpublishes the text layer and its hot blocks; `None` if there is none.
    pub fn drop_text(&self) -> Option<Dropped> {
        let change = self.change();
        let set = self.set.load();
        set.text.as_ref()?;
        let next = Set { text: None, hot: None, ..Set::clone(&set) };
        Some(self.swap(change, next, set.text_parts()))
    }

    /// Keeps blocks of the text layer that were read last as they are when decoded, in at most
    /// `bytes`; none with 0, or without a text layer. Those that were kept before are unpublished.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if there is no memory; nothing is changed then.
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

    /// What all layers hold, by part, and what was dropped and is still held by a view or a
    /// [`Dropped`].
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

    /// Which layers to drop and which to add, for each array to have as many as its budget holds.
    pub fn changes(&self, budget: &Budget) -> Changes {
        Changes::of(&self.set.load(), self.base, budget)
    }

    /// Every change holds this while it makes the next set of the present one.
    fn change(&self) -> MutexGuard<'_, Vec<Weak<dyn Part>>> {
        // Poisoned by a panic within a change, which leaves the old set published.
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Publishes `next`, which no longer has `parts`.
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

/// Something whose bytes are counted, and counted still while it is dropped but not yet freed.
trait Part: Debug + Send + Sync {
    fn bytes(&self) -> usize;
}

impl Set {
    fn text_parts(&self) -> Vec<Arc<dyn Part>> {
        let text = self.text.iter().map(|text| Arc::clone(text) as Arc<dyn Part>);
        text.chain(self.hot.iter().map(|hot| Arc::clone(hot) as Arc<dyn Part>)).collect()
    }
}

/// What is no longer published, and is freed when this and the last view of it are gone, by
/// whichever of them goes last: hold it until [`is_read`](Dropped::is_read) says no, and no query
/// ever pays for freeing; drop it at once, and the memory comes back as early as it can.
#[must_use = "dropping this at once may leave the freeing to a query"]
#[derive(Debug)]
pub struct Dropped {
    parts: Vec<Arc<dyn Part>>,
}

impl Dropped {
    /// Bytes that are freed with it.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes()).sum()
    }

    /// Whether a view still sees it.
    pub fn is_read(&self) -> bool {
        self.parts.iter().any(|part| Arc::strong_count(part) > 1)
    }
}

/// The layers as they were when the view was taken, whatever is added or dropped meanwhile.
///
/// Take one for each query, not for longer: what is dropped is freed with the last view of it.
#[derive(Debug)]
pub struct View(Guard<Arc<Set>>);

impl View {
    /// The offset in the text of a row, if a layer knows it.
    #[inline]
    pub fn offset(&self, row: u32) -> Option<u32> {
        self.0.sa.get(row)
    }

    /// Whether a marked layer holds this row and does not know its offset yet.
    #[inline(always)]
    pub(crate) fn wants_offset(&self, row: u32) -> bool {
        self.0.learning && self.0.sa.wants(row)
    }

    /// Asks for the memory that [`offset`](View::offset) of this row reads, without waiting for it,
    /// and says whether that will certainly know the row.
    #[inline(always)]
    pub(crate) fn ask_offset(&self, row: u32) -> bool {
        self.0.sa.ask(row)
    }

    /// The nearest `(offset, row)` that a layer knows with `after < offset <= position`. Costs one
    /// look-up where the lowest layer is whole; where it is partial, at most as many as there are
    /// multiples of its rate between the two.
    #[inline]
    pub fn row_before(&self, position: u32, after: u32) -> Option<(u32, u32)> {
        self.0.isa.get_before(position, after)
    }

    /// Whether a layer is marked, so that it is of use to remember what a walk comes by.
    #[inline]
    pub(crate) fn is_learning(&self) -> bool {
        self.0.learning
    }

    /// Offers that `row` is the suffix at `position`, which the caller has computed. Stored where a
    /// marked layer holds either and does not know it yet; anything else is ignored. Never waits.
    #[inline]
    pub fn learn(&self, position: u32, row: u32) {
        if self.0.learning {
            self.0.sa.learn(row, position);
            self.0.isa.learn(position, row);
        }
    }

    /// Bytes of the text that a text layer has, from the first on: 0 without one, all with a whole
    /// one.
    #[inline]
    pub fn text_len(&self) -> usize {
        self.0.text.as_ref().map_or(0, |text| text.len())
    }

    /// Appends `len` bytes of the text from `position` on, if a text layer has all of them;
    /// otherwise says `false` and appends nothing. Decodes every block that it touches and that is
    /// not hot.
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
