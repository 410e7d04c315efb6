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

mod stored;
mod strings;
mod tokens;
mod train;
mod trie;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use memmap2::MmapMut;

use super::memory::{room, zeros};
use super::progress::Progress;
use super::regions::Regions;
use crate::bits::load::u32_at;
use crate::error::Error;
use crate::text::Text;
pub(super) use stored::TextLayer;
use stored::{Blocks, MISSING, Places};
use tokens::{CODES_SLACK, Encoder, Tokens};
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
    /// The tokens in the form for decoding, once a layer was made.
    tokens: Option<Arc<Tokens>>,
    /// The blocks that layers were made of, their number, and the bytes of their data.
    parts: Vec<Arc<Blocks>>,
    parted: usize,
    parted_bytes: usize,
    /// The number of finished blocks, whether the next one does not fit, and the end of each since the last part.
    done: usize,
    full: bool,
    ends: MmapMut,
    /// The memory for blocks since the last part, and how much of it is used.
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
            tokens: None,
            parts: Vec::new(),
            parted: 0,
            parted_bytes: 0,
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
                let bytes = self.parted_bytes + end;
                if bytes + (self.done + 1 + places) * size_of::<u32>() > room {
                    self.full = true;
                    break;
                }
                // A stored block is never larger than its text, so there is room for all blocks.
                self.data[self.data_len..end].copy_from_slice(stored);
                let place = (self.done - self.parted) * size_of::<u32>();
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
        let blocks = (self.parted_bytes + self.data_len) as f64 * all as f64 / done as f64;
        let rest = self.tokens_bytes() + CODES_SLACK + all * size_of::<u32>();
        (done > 0).then_some((blocks as usize + rest).min(self.bytes_max))
    }

    /// The memory in use, besides that for choosing tokens (up to 130 MB for 32 MiB of samples) and
    /// for finding codes (10 MB afterwards), and that of published parts. Publishing copies the blocks since the last part once,
    /// which takes their size again.
    pub fn bytes(&self) -> usize {
        self.data_len
            + self.ends.len()
            + self.tokens_bytes()
            + self.piece.capacity()
            + self.codes.capacity()
    }

    /// A layer of the regions that are finished; `None` if there is no further one since the last such layer, or if the build is
    /// not of regions.
    pub(super) fn so_far(&mut self) -> Result<Option<TextLayer>, Error> {
        if self.order.is_none() || self.encoder.is_none() || !self.cut()? {
            return Ok(None);
        }
        self.layer().map(Some)
    }

    /// The finished layer.
    pub(super) fn finish(mut self) -> Result<TextLayer, Error> {
        let all = self.blocks();
        if self.encoder.is_none() || !(self.full || self.done == all) {
            return Err(Error::Layers(format!(
                "{} of {all} text blocks are done; only a finished layer is published",
                self.done
            )));
        }
        // Building a layer without regions ends at once, even if its tokens alone exceed the maximum.
        let has_room = self.tokens_bytes() + CODES_SLACK <= self.bytes_max;
        if self.done == 0 && (self.full || !has_room) {
            return Err(Error::Layers(format!(
                "a text layer of {} bytes has no room for a block beside its tokens, {} bytes",
                self.bytes_max,
                self.tokens_bytes()
            )));
        }
        // No region is begun any more.
        self.before = (self.done, self.data_len);
        self.cut()?;
        self.layer()
    }

    /// Makes a part of the blocks of the regions that are finished; false if there is none since the last part.
    fn cut(&mut self) -> Result<bool, Error> {
        let (whole, len) = self.before;
        debug_assert!(self.parted <= whole && whole <= self.done && len <= self.data_len);
        let ends = size_of::<u32>();
        let count = whole - self.parted;
        if count == 0 {
            return Ok(false);
        }
        // The capacity was for all blocks at the size of their text: copied into exact sizes.
        let part = Blocks::copied(self.parted, &self.ends[..count * ends], &self.data[..len])?;
        self.parts.push(Arc::new(part));
        // What is begun of the next region moves to the beginning of the next part.
        self.data.copy_within(len..self.data_len, 0);
        for block in 0..self.done - whole {
            let end = u32_at(&self.ends, (count + block) * ends) - len as u32;
            self.ends[block * ends..][..ends].copy_from_slice(&end.to_le_bytes());
        }
        self.parted = whole;
        self.parted_bytes += len + CODES_SLACK;
        self.data_len -= len;
        self.before = (whole, 0);
        Ok(true)
    }

    /// The layer of the parts.
    fn layer(&mut self) -> Result<TextLayer, Error> {
        let tokens = match (&self.tokens, &self.encoder) {
            (Some(tokens), _) => Arc::clone(tokens),
            (None, Some(encoder)) => Arc::new(encoder.tokens()?),
            (None, None) => return Err(Error::Layers("tokens are not chosen yet".to_owned())),
        };
        self.tokens = Some(Arc::clone(&tokens));
        let (mut len, mut places) = (self.text_len.min(self.parted * self.block_bytes), None);
        if let Some(order) = &self.order {
            let regions = Regions::for_text(self.text_len);
            let mut first = vec![MISSING; regions.count()].into_boxed_slice();
            let mut block = 0;
            len = 0;
            for &region in order {
                let bytes = regions.range(region as usize).len();
                if block >= self.parted {
                    break;
                }
                if let Some(first) = first.get_mut(region as usize) {
                    *first = block as u32;
                }
                block += bytes.div_ceil(self.block_bytes);
                len += bytes;
            }
            debug_assert!(block == self.parted, "a part ends with a region");
            places = Some(Arc::new(Places { regions, first }));
        }
        Ok(TextLayer {
            text_len: self.text_len,
            len,
            places,
            block_bytes: self.block_bytes,
            parts: self.parts.clone(),
            tokens,
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
