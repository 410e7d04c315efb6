//! The size of an index, by part.

use crate::layers;

use super::shape::names;
use super::state::Index;

/// The size of an index in bytes, in memory or mapped, by part.
#[derive(Clone, Debug)]
pub struct Footprint {
    /// Each section of the container with its size, including padding, in stored order. Samples of
    /// the suffix array are part of `psi.blocks`.
    pub sections: Vec<(String, usize)>,
    /// Header, table and trailer of the container.
    pub container_bytes: usize,
    /// Heap memory of the opened index, without layers.
    pub heap_bytes: usize,
    /// The layers.
    pub layers: layers::Footprint,
}

impl Footprint {
    /// The total.
    pub fn total_bytes(&self) -> usize {
        self.index_bytes()
            + self.other_bytes()
            + self.container_bytes
            + self.heap_bytes
            + self.layers.total_bytes()
    }

    /// The index's own sections.
    pub fn index_bytes(&self) -> usize {
        self.sum(|name| names::ALL.contains(&name))
    }

    /// The sections that belong to others.
    pub fn other_bytes(&self) -> usize {
        self.sum(|name| !names::ALL.contains(&name))
    }

    fn sum(&self, which: impl Fn(&str) -> bool) -> usize {
        self.sections.iter().filter(|(name, _)| which(name)).map(|(_, bytes)| bytes).sum()
    }
}

impl Index {
    /// The size of this index, by part. Exact, except that the layers' part is as exact as
    /// [`Layers::footprint`](crate::layers::Layers::footprint).
    pub fn footprint(&self) -> Footprint {
        let aligned = |bytes: usize| bytes.next_multiple_of(crate::format::ALIGNMENT);
        let sections: Vec<(String, usize)> = self
            .reader
            .sections()
            .iter()
            .map(|section| (section.name.clone(), aligned(section.range.len())))
            .collect();
        let held: usize = sections.iter().map(|(_, bytes)| bytes).sum();
        Footprint {
            container_bytes: self.reader.len_bytes().saturating_sub(held),
            heap_bytes: size_of::<Self>()
                + self.symbols.capacity()
                + self.starts.capacity() * size_of::<u32>()
                + self.blocks_end.heap_bytes()
                + self.reader.heap_bytes(),
            sections,
            layers: self.layers.footprint(),
        }
    }
}
