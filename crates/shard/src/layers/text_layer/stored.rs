//! A text layer as it is read: stored blocks in parts, and where the regions of the text are.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;

use super::tokens::{CODES_SLACK, TOKEN_SLACK, Tokens};
use crate::bits::load::u32_at;
use crate::error::Error;
use crate::layers::hot::Hot;
use crate::layers::memory::zeros;
use crate::layers::part::Part;
use crate::layers::regions::Regions;

/// A text layer; see the module.
pub(in crate::layers) struct TextLayer {
    pub(super) text_len: usize,
    /// The bytes of the text that it holds.
    pub(super) len: usize,
    /// Where each region is; `None` if it holds the first `len` bytes.
    pub(super) places: Option<Arc<Places>>,
    pub(super) block_bytes: usize,
    /// The blocks, in the order of their numbers.
    pub(super) parts: Vec<Arc<Blocks>>,
    pub(super) tokens: Arc<Tokens>,
}

/// Stored blocks with consecutive numbers. Layers that are published while one is built share those that were finished before.
pub(super) struct Blocks {
    /// The number of the first.
    first: usize,
    /// The end of each block in `data`, four bytes each.
    ends: MmapMut,
    /// The blocks, and [`CODES_SLACK`] bytes.
    data: MmapMut,
}

impl Blocks {
    /// Copies blocks with their ends into memory of exactly their size.
    pub(super) fn copied(first: usize, ends: &[u8], data: &[u8]) -> Result<Blocks, Error> {
        let mut blocks =
            Blocks { first, ends: zeros(ends.len())?, data: zeros(data.len() + CODES_SLACK)? };
        blocks.ends.copy_from_slice(ends);
        blocks.data[..data.len()].copy_from_slice(data);
        Ok(blocks)
    }

    /// The start and end of a block's bytes, by its number.
    fn stored(&self, block: usize) -> Range<usize> {
        let end = |block: usize| u32_at(&self.ends, size_of::<u32>() * block) as usize;
        let block = block - self.first;
        block.checked_sub(1).map_or(0, end)..end(block)
    }
}

/// Where the regions of a text are in a layer.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) regions: Regions,
    /// The number of the stored block that each region begins with; [`MISSING`] if it is not held.
    pub(super) first: Box<[u32]>,
}

/// The place of a region that a layer does not hold.
pub(super) const MISSING: u32 = u32::MAX;

impl Places {
    /// The stored block of a block of the text.
    #[inline]
    fn stored(&self, block: usize, block_bytes: usize) -> Option<usize> {
        let region = self.regions.region_of(block * block_bytes);
        let first = *self.first.get(region).filter(|first| **first != MISSING)?;
        Some(first as usize + block - region * (self.regions.bytes() / block_bytes))
    }
}

impl TextLayer {
    pub(in crate::layers) fn text_len(&self) -> usize {
        self.text_len
    }

    pub(in crate::layers) fn len(&self) -> usize {
        self.len
    }

    pub(in crate::layers) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(in crate::layers) fn regions(&self) -> Option<Vec<u32>> {
        let first = self.places.as_ref()?.first.iter().zip(0u32..);
        Some(first.filter(|(first, _)| **first != MISSING).map(|(_, region)| region).collect())
    }

    /// What its bytes are counted of: blocks and tokens may be shared with another layer of the same build.
    pub(in crate::layers) fn parts(&self) -> impl Iterator<Item = Arc<dyn Part>> + '_ {
        let blocks = self.parts.iter().map(|blocks| Arc::clone(blocks) as Arc<dyn Part>);
        let places = self.places.iter().map(|places| Arc::clone(places) as Arc<dyn Part>);
        blocks.chain(places).chain([Arc::clone(&self.tokens) as Arc<dyn Part>])
    }

    pub(in crate::layers) fn bytes(&self) -> usize {
        self.parts().map(|part| part.bytes()).sum()
    }

    /// Appends `len` bytes from `position` on. If that is impossible, returns `None`; some bytes
    /// may have been appended.
    pub(in crate::layers) fn read(
        &self,
        position: usize,
        len: usize,
        hot: Option<&Hot>,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let most = if self.places.is_some() { self.text_len } else { self.len };
        let end = position.checked_add(len).filter(|&end| end <= most)?;
        bytes.reserve(len + TOKEN_SLACK);
        let mut at = position;
        while at < end {
            let block = at / self.block_bytes;
            let first = block * self.block_bytes;
            let part = at - first..(end - first).min(self.block_bytes);
            at = first + part.end;
            let Some(hot) = hot else {
                self.decode(block, part.start, part.len(), bytes)?;
                continue;
            };
            if !hot.read(block as u32, part.clone(), bytes) {
                let mut decoded = Vec::new();
                self.decode(block, 0, self.block_bytes.min(self.text_len - first), &mut decoded)?;
                bytes.extend_from_slice(decoded.get(part)?);
                hot.keep(block as u32, &decoded);
            }
        }
        Some(())
    }

    /// Appends `len` bytes of a block, after skipping the first `skip`.
    #[inline]
    fn decode(&self, block: usize, skip: usize, len: usize, bytes: &mut Vec<u8>) -> Option<()> {
        let place = match &self.places {
            Some(places) => places.stored(block, self.block_bytes)?,
            None => block,
        };
        let after = self.parts.partition_point(|blocks| blocks.first <= place);
        let blocks = self.parts.get(after.checked_sub(1)?)?;
        let stored = blocks.stored(place);
        let start = stored.start;
        let block_len = self.block_bytes.min(self.text_len - block * self.block_bytes);
        if stored.len() == block_len {
            bytes.extend_from_slice(blocks.data.get(start + skip..start + skip + len)?);
            return Some(());
        }
        let before = bytes.len();
        bytes.resize(before + len + TOKEN_SLACK, 0);
        let decoded = self.tokens.decode(blocks.data.get(start..)?, skip, &mut bytes[before..]);
        bytes.truncate(before + len);
        decoded
    }
}

impl Part for Blocks {
    fn bytes(&self) -> usize {
        self.data.len() + self.ends.len()
    }
}

impl Part for Places {
    fn bytes(&self) -> usize {
        size_of_val(&*self.first)
    }
}

impl Part for Tokens {
    fn bytes(&self) -> usize {
        Tokens::bytes(self)
    }
}

impl fmt::Debug for Blocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocks").field("first", &self.first).finish_non_exhaustive()
    }
}

impl fmt::Debug for TextLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextLayer")
            .field("len", &self.len)
            .field("block_bytes", &self.block_bytes)
            .finish_non_exhaustive()
    }
}
