//! The layers that there are, as a query takes them and a change replaces them.

use std::sync::{Arc, Mutex, Weak};

use arc_swap::ArcSwap;

use super::group::Group;
use super::hot::Hot;
use super::part::Part;
use super::text_layer::TextLayer;

/// The state that a view refers to. Immutable once it is published.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) sa: Group,
    pub(super) isa: Group,
    /// Whether any layer is marked to be filled by queries.
    pub(super) learning: bool,
    pub(super) text: Option<Arc<TextLayer>>,
    pub(super) hot: Option<Arc<Hot>>,
}

impl Set {
    pub(super) fn text_parts(&self) -> Vec<Arc<dyn Part>> {
        let text = self.text.iter().flat_map(|text| text.parts());
        text.chain(self.hot.iter().map(|hot| Arc::clone(hot) as Arc<dyn Part>)).collect()
    }
}

/// The layers of a shard, shared by reference between threads.
///
/// ```
/// use shard::layers::{Array, Layers, Rates};
///
/// // A text of 999 bytes; a query computes that row 8 is the suffix at offset 500.
/// let layers = Layers::new(1000);
/// layers.mark(&Rates { sa: vec![8], isa: vec![4] })?;
/// let view = layers.view();
/// assert_eq!(view.offset(8), None);
/// view.learn(500, 8);
/// assert_eq!(view.offset(8), Some(500));
/// assert_eq!(view.row_before(510, 400), Some((500, 8)));
///
/// // New views lack the dropped layer; an existing view keeps it.
/// let dropped = layers.drop_lowest(Array::Sa).unwrap();
/// assert_eq!(layers.view().offset(8), None);
/// assert_eq!(view.offset(8), Some(500));
/// assert!(dropped.is_read());
/// # Ok::<(), shard::Error>(())
/// ```
#[derive(Debug)]
pub struct Layers {
    pub(super) rows: u32,
    pub(super) base: Base,
    pub(super) set: ArcSwap<Set>,
    /// Serialises changes. Lists the dropped parts that may still be referenced; freed ones are
    /// removed at the next change.
    pub(super) dropped: Mutex<Vec<Weak<dyn Part>>>,
}

/// The sampling rates of the shard itself; 0 if it has no such samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Base {
    /// The shard marks the rows whose offsets are multiples of this rate, so that a walk from any
    /// row ends within as many steps. SA layers of this or a larger rate would be of little use.
    pub sa_rate: u32,
    /// The shard stores the rows of the offsets that are multiples of this rate. If it is a power
    /// of two, ISA layers do not store those again.
    pub isa_rate: u32,
}
