//! A layer for `extract`: a second copy of the text, as token codes in blocks.
//!
//! *Tokens* are up to 100,000 strings of up to 64 bytes that are frequent in samples of the text
//! (`train`). The text is encoded with their codes of up to 19 bits (`tokens`), choosing tokens
//! that take the fewest bits. Blocks give access to positions: each begins with a new token on a
//! byte boundary, and a table holds its offset. A block that does not become smaller is stored
//! unencoded, which its length shows. With less memory, a layer holds a part of the text: its beginning, or
//! as many of its regions as fit, in an order that the caller gives (those that are read most first). The rest is read as
//! without a layer.
//!
//! **Cost.** A read decodes the tokens before its first byte in the block, half a block on average,
//! and copies the tokens of its own bytes. Besides the block it needs the tokens, a megabyte or
//! two, which may fit a processor's second-level cache; it takes no lock. Measured by
//! `examples/text_layer.rs`, per CPU second and thread on two cores: for 50 MB of Debian package
//! records the layer takes 0.277 of the text, with 1.2 to 1.5 million reads of 64 B and 420,000 to
//! 490,000 of 1 KiB; for 82 MB of mixed records 0.315, 1.1 million and 415,000. Building takes at
//! most 23 CPU s per 100 MB, half of it for the choice of tokens. The earlier design, blocks of 1
//! KiB compressed by Zstandard at level 15 with a dictionary, took 0.279 and 0.332, and was read at
//! 320,000 to 460,000 and 190,000 to 207,000. Blocks of 2 KiB save one part in a hundred and are
//! read at three quarters of the rate.
//!
//! When not to use it: if nothing is extracted, and for text that does not compress.

mod strings;
mod tokens;
mod train;
mod trie;

use std::fmt;
use std::ops::Range;

use memmap2::MmapMut;

use super::hot::Hot;
use super::memory::{room, zeros};
use super::{Part, Progress, Regions};
use crate::bits::load::u32_at;
use crate::{Error, Text};
use tokens::{CODES_SLACK, Encoder, TOKEN_SLACK, Tokens};
use train::{ROUNDS, Training};

/// Bytes extracted at once while a layer is built.
const PIECE_BYTES: usize = 1 << 20;

/// The length of a sample.
const SAMPLE_BYTES: usize = 32 << 10;

/// The steps before the first block: those of the choice, and one that numbers the tokens.
const TRAINING_STEPS: usize = ROUNDS + 1;

/// The least bytes of text per token. Tokens take 13 bytes on average, so at most a thirtieth of
/// the text; if all have the greatest length, and so save most, a sixth.
const BYTES_PER_TOKEN: usize = 400;

/// The least bytes of a size-limited layer per token, so that tokens take a fifteenth of it. With a
/// quarter of the tokens, layers of 50 MB of package records take 2 % more.
const LAYER_BYTES_PER_TOKEN: usize = 200;

/// The most tokens besides those of one byte: no code then has more than 19 bits, and three codes
/// fit into 57 bits (see `tokens`).
const TOKENS_MAX: usize = (128 << 10) - 256;

/// The options of a text layer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextOptions {
    /// Size of a block in bytes: a power of two from 64 to 131,072.
    pub block_bytes: usize,
    /// The most tokens besides those of one byte, up to 130,816. Further limited to a 400th of the
    /// text's bytes and a 200th of `bytes_max`.
    pub tokens_max: usize,
    /// The most bytes of text sampled to choose the tokens; at least 32 KiB.
    pub sample_bytes: usize,
    /// The largest size of the layer in bytes. It holds the first blocks of the text, or the first regions given, that fit.
    pub bytes_max: usize,
}

impl Default for TextOptions {
    /// Blocks of 1 KiB, 100,000 tokens, 32 MiB of samples (with half of these, layers take 2 %
    /// more), and the whole text.
    fn default() -> Self {
        let (block_bytes, tokens_max, sample_bytes) = (1 << 10, 100_000, 32 << 20);
        Self { block_bytes, tokens_max, sample_bytes, bytes_max: usize::MAX }
    }
}

/// A text layer; see the module.
pub(super) struct TextLayer {
    text_len: usize,
    /// The bytes of the text that it holds.
    len: usize,
    /// Where each region is; `None` if it holds the first `len` bytes.
    places: Option<Places>,
    block_bytes: usize,
    /// The end of each block in `data`, four bytes each.
    ends: MmapMut,
    /// The blocks, and [`CODES_SLACK`] bytes.
    data: MmapMut,
    tokens: Tokens,
}

/// Where the regions of a text are in a layer.
struct Places {
    regions: Regions,
    /// The number of the stored block that each region begins with; [`MISSING`] if it is not held.
    first: Box<[u32]>,
}

/// The place of a region that a layer does not hold.
const MISSING: u32 = u32::MAX;

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
    pub(super) fn text_len(&self) -> usize {
        self.text_len
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    pub(super) fn regions(&self) -> Option<Vec<u32>> {
        let first = self.places.as_ref()?.first.iter().zip(0u32..);
        Some(first.filter(|(first, _)| **first != MISSING).map(|(_, region)| region).collect())
    }

    /// The start and end of a stored block's bytes.
    fn stored(&self, block: usize) -> (usize, usize) {
        let end = |block: usize| u32_at(&self.ends, size_of::<u32>() * block) as usize;
        (block.checked_sub(1).map_or(0, end), end(block))
    }

    /// Appends `len` bytes from `position` on. If that is impossible, returns `None`; some bytes
    /// may have been appended.
    pub(super) fn read(
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
        let (start, end) = self.stored(place);
        let block_len = self.block_bytes.min(self.text_len - block * self.block_bytes);
        if end - start == block_len {
            bytes.extend_from_slice(self.data.get(start + skip..start + skip + len)?);
            return Some(());
        }
        let before = bytes.len();
        bytes.resize(before + len + TOKEN_SLACK, 0);
        let decoded = self.tokens.decode(self.data.get(start..)?, skip, &mut bytes[before..]);
        bytes.truncate(before + len);
        decoded
    }
}

impl Part for TextLayer {
    fn bytes(&self) -> usize {
        let places = self.places.as_ref().map_or(0, |places| size_of_val(&*places.first));
        self.data.len() + self.ends.len() + self.tokens.bytes() + places
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

/// A text layer being built, to be published by
/// [`Layers::publish_text`](super::Layers::publish_text) when it is finished: complete, or as large
/// as allowed.
///
/// ```
/// use shard::layers::{Layers, TextBuild, TextOptions};
/// use shard::naive;
///
/// let text = naive::Text::new(b"she sells sea shells ".repeat(50));
/// let mut build = TextBuild::new(&text, TextOptions { block_bytes: 256, ..TextOptions::default() })?;
/// while !build.step(&text, 2)?.is_finished() {
///     // A caller that limits its use of the machine waits here.
/// }
/// let layers = Layers::new(1051);
/// layers.publish_text(build)?;
/// let mut bytes = Vec::new();
/// assert!(layers.view().text(1000, 9, &mut bytes));
/// assert_eq!(bytes, b" shells s");
/// assert_eq!(layers.view().text_len(), 1050);
/// # Ok::<(), shard::Error>(())
/// ```
pub struct TextBuild {
    block_bytes: usize,
    bytes_max: usize,
    text_len: usize,
    /// The regions to hold, the most important first; `None` for the text from its beginning on.
    order: Option<Vec<u32>>,
    /// The number of blocks of all that is to be held.
    all: usize,
    /// Of `order`: the region that is being encoded, and the finished blocks and their bytes before it.
    region: usize,
    before: (usize, usize),
    /// The samples of the text, while tokens are being chosen.
    training: Option<(MmapMut, Training)>,
    /// The encoder with the chosen tokens.
    encoder: Option<Encoder>,
    /// The number of finished blocks, whether the next one does not fit, and the end of each.
    done: usize,
    full: bool,
    ends: MmapMut,
    /// The memory for blocks, and the part used so far.
    data: MmapMut,
    data_len: usize,
    /// A piece of the text, and a block of it encoded.
    piece: Vec<u8>,
    codes: Vec<u8>,
}

impl TextBuild {
    /// Draws samples from `text`. This is the only part that is not divided into steps; it takes a
    /// CPU second for 32 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the options are out of range, or memory is exhausted.
    pub fn new(text: &impl Text, options: TextOptions) -> Result<Self, Error> {
        let TextOptions { block_bytes, tokens_max, sample_bytes, bytes_max } = options;
        if !block_bytes.is_power_of_two()
            || !(64..=128 << 10).contains(&block_bytes)
            || tokens_max > TOKENS_MAX
        {
            return Err(Error::Layers(format!(
                "invalid text layer: blocks of {block_bytes} bytes, {tokens_max} tokens; use a power \
                 of two from 64 to 131,072, and up to {TOKENS_MAX} tokens"
            )));
        }
        let text_len = text.len();
        let samples = samples(text, sample_bytes)?;
        let tokens_max = tokens_max.min(text_len / BYTES_PER_TOKEN);
        let training = Training::new(tokens_max.min(bytes_max / LAYER_BYTES_PER_TOKEN));
        Ok(Self {
            block_bytes,
            bytes_max,
            text_len,
            order: None,
            all: text_len.div_ceil(block_bytes),
            region: 0,
            before: (0, 0),
            training: Some((samples, training)),
            encoder: None,
            done: 0,
            full: false,
            ends: zeros(text_len.div_ceil(block_bytes) * size_of::<u32>())?,
            data: room(text_len)?,
            data_len: 0,
            piece: Vec::new(),
            codes: Vec::new(),
        })
    }

    /// As [`new`](TextBuild::new), for the regions given ([`Regions::for_text`] the text's length), in this order: those that fit
    /// into [`TextOptions::bytes_max`].
    ///
    /// # Errors
    ///
    /// Also [`Error::Layers`] if blocks are larger than regions, or a region is given twice or does not exist.
    pub fn of_regions(
        text: &impl Text,
        options: TextOptions,
        order: Vec<u32>,
    ) -> Result<Self, Error> {
        let regions = Regions::for_text(text.len());
        let mut given = vec![false; regions.count()];
        for &region in &order {
            match given.get_mut(region as usize) {
                Some(given) if !*given => *given = true,
                _ => {
                    return Err(Error::Layers(format!(
                        "region {region} of a text of {} regions is given twice or does not exist",
                        regions.count()
                    )));
                }
            }
        }
        if options.block_bytes > regions.bytes() {
            return Err(Error::Layers(format!(
                "blocks of {} bytes are larger than the text's regions of {} bytes",
                options.block_bytes,
                regions.bytes()
            )));
        }
        let mut build = Self::new(text, options)?;
        let blocks =
            |region: &u32| regions.range(*region as usize).len().div_ceil(build.block_bytes);
        build.all = order.iter().map(blocks).sum();
        build.order = Some(order);
        Ok(build)
    }

    fn blocks(&self) -> usize {
        self.all
    }

    /// The positions of the text to encode next: at most `most` bytes of whole blocks, without a gap.
    fn next_piece(&mut self, most: usize) -> Range<usize> {
        let Some(order) = &self.order else {
            let start = self.done * self.block_bytes;
            return start..start.saturating_add(most).min(self.text_len);
        };
        let regions = Regions::for_text(self.text_len);
        while let Some(&region) = order.get(self.region) {
            let range = regions.range(region as usize);
            let start = range.start + (self.done - self.before.0) * self.block_bytes;
            if start < range.end {
                return start..start.saturating_add(most).min(range.end);
            }
            self.region += 1;
            self.before = (self.done, self.data_len);
        }
        0..0
    }

    /// Runs the next step and returns the progress. The first ten steps choose tokens and take a
    /// CPU second or two each; later ones encode the next `blocks` blocks. `text` must be the same
    /// in every step.
    ///
    /// # Errors
    ///
    /// Those of [`Text::extract`], or [`Error::Layers`] if memory is exhausted. A failed step may
    /// be retried.
    pub fn step(&mut self, text: &impl Text, blocks: usize) -> Result<Progress, Error> {
        let all = self.blocks();
        let room = self.bytes_max.saturating_sub(self.tokens_bytes() + CODES_SLACK);
        let places = self.order.as_ref().map_or(0, |_| Regions::for_text(self.text_len).count());
        let progress = |done| Progress { done, all: TRAINING_STEPS + all };
        if let Some((samples, training)) = &mut self.training {
            let samples: Vec<&[u8]> = samples.chunks(SAMPLE_BYTES).collect();
            let Some(tokens) = training.tokens() else {
                training.round(&samples)?;
                return Ok(progress(training.rounds()));
            };
            // Numbering the tokens needs fewer samples than choosing them.
            let every = (samples.len() / 32).clamp(1, 4);
            let few: Vec<&[u8]> = samples.iter().step_by(every).copied().collect();
            self.encoder = Some(Encoder::new(tokens.clone(), &few, self.block_bytes));
            self.training = None;
            return Ok(progress(TRAINING_STEPS));
        }
        if self.encoder.is_none() {
            return Ok(progress(0));
        }
        let to = self.done.saturating_add(blocks).min(all);
        while self.done < to && !self.full {
            let most = PIECE_BYTES.min((to - self.done) * self.block_bytes);
            let range = self.next_piece(most);
            let Some(encoder) = self.encoder.as_mut().filter(|_| !range.is_empty()) else { break };
            self.piece.clear();
            text.extract(range.start, range.len(), &mut self.piece)?;
            for block in self.piece.chunks(self.block_bytes) {
                self.codes.clear();
                encoder.encode(block, &mut self.codes);
                let stored = if self.codes.len() < block.len() { &self.codes } else { block };
                let end = self.data_len + stored.len();
                if end + (self.done + 1 + places) * size_of::<u32>() > room {
                    self.full = true;
                    break;
                }
                // A stored block is never larger than its text, so there is room for all blocks.
                self.data[self.data_len..end].copy_from_slice(stored);
                let place = self.done * size_of::<u32>();
                self.ends[place..place + size_of::<u32>()]
                    .copy_from_slice(&(end as u32).to_le_bytes());
                (self.data_len, self.done) = (end, self.done + 1);
            }
        }
        if self.full && self.order.is_some() {
            // A region is held whole or not.
            (self.done, self.data_len) = self.before;
        }
        let all = if self.full { self.done } else { all };
        Ok(Progress { done: TRAINING_STEPS + self.done, all: TRAINING_STEPS + all })
    }

    fn tokens_bytes(&self) -> usize {
        self.encoder.as_ref().map_or(0, Encoder::tokens_bytes)
    }

    /// The estimated size of the finished layer in bytes, extrapolated from the finished blocks; at
    /// most [`TextOptions::bytes_max`]. `None` before the first block.
    pub fn bytes_expected(&self) -> Option<usize> {
        let done = self.done;
        let all = if self.full { done } else { self.blocks() };
        let blocks = self.data_len as f64 * all as f64 / done as f64;
        let rest = self.tokens_bytes() + CODES_SLACK + all * size_of::<u32>();
        (done > 0).then_some((blocks as usize + rest).min(self.bytes_max))
    }

    /// The memory in use, besides that for choosing tokens (up to 130 MB for 32 MiB of samples) and
    /// for finding codes (10 MB afterwards). Finishing copies the blocks once, which takes their
    /// size again.
    pub fn bytes(&self) -> usize {
        self.data_len
            + self.ends.len()
            + self.tokens_bytes()
            + self.piece.capacity()
            + self.codes.capacity()
    }

    pub(super) fn finish(self) -> Result<TextLayer, Error> {
        let all = self.blocks();
        let Some(encoder) = self.encoder.as_ref().filter(|_| self.full || self.done == all) else {
            return Err(Error::Layers(format!(
                "{} of {all} text blocks are done; only a finished layer is published",
                self.done
            )));
        };
        // Building a layer without regions ends at once, even if its tokens alone exceed the maximum.
        let has_room = self.tokens_bytes() + CODES_SLACK <= self.bytes_max;
        if self.done == 0 && (self.full || !has_room) {
            return Err(Error::Layers(format!(
                "a text layer of {} bytes has no room for a block beside its tokens, {} bytes",
                self.bytes_max,
                self.tokens_bytes()
            )));
        }
        let (mut len, mut places) = (self.text_len.min(self.done * self.block_bytes), None);
        if let Some(order) = &self.order {
            let regions = Regions::for_text(self.text_len);
            let mut first = vec![MISSING; regions.count()].into_boxed_slice();
            let mut block = 0;
            len = 0;
            for &region in order {
                let bytes = regions.range(region as usize).len();
                if block >= self.done {
                    break;
                }
                if let Some(first) = first.get_mut(region as usize) {
                    *first = block as u32;
                }
                block += bytes.div_ceil(self.block_bytes);
                len += bytes;
            }
            places = Some(Places { regions, first });
        }
        // The capacity was for all blocks at the size of their text: copy into exact sizes.
        let mut ends = zeros(self.done * size_of::<u32>())?;
        ends.copy_from_slice(&self.ends[..self.done * size_of::<u32>()]);
        let mut data = zeros(self.data_len + CODES_SLACK)?;
        data[..self.data_len].copy_from_slice(&self.data[..self.data_len]);
        Ok(TextLayer {
            text_len: self.text_len,
            len,
            places,
            block_bytes: self.block_bytes,
            ends,
            data,
            tokens: encoder.tokens()?,
        })
    }
}

impl fmt::Debug for TextBuild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextBuild")
            .field("done", &self.done)
            .field("blocks", &self.blocks())
            .finish_non_exhaustive()
    }
}

/// Returns evenly drawn pieces of the text, concatenated: [`SAMPLE_BYTES`] each, or the whole text
/// if it is shorter.
fn samples(text: &impl Text, bytes_max: usize) -> Result<MmapMut, Error> {
    let pieces = (bytes_max / SAMPLE_BYTES).max(1);
    let whole = text.len() <= pieces * SAMPLE_BYTES;
    let mut bytes = zeros(if whole { text.len() } else { pieces * SAMPLE_BYTES })?;
    let mut piece = Vec::new();
    for (number, place) in bytes.chunks_mut(SAMPLE_BYTES).enumerate() {
        let last = text.len() - place.len();
        let start = if whole { number * SAMPLE_BYTES } else { last * number / (pieces - 1).max(1) };
        piece.clear();
        text.extract(start, place.len(), &mut piece)?;
        place.copy_from_slice(&piece);
    }
    Ok(bytes)
}
