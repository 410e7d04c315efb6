//! The text once more, as numbers of tokens in blocks: a layer for `extract`.
//!
//! *Tokens* are up to 100,000 strings of up to 64 bytes that come often in samples of the text
//! (`train`). The text is written as their codes, of up to 19 bits (`tokens`), in the way that
//! takes the fewest bits. Blocks are there to find a position by: each begins with a token and a
//! byte of its own, and a table holds where. One that does not become smaller is stored as it is;
//! its length says so. With less memory a layer holds the beginning of the text: what is read of
//! that is fast, and the rest as without a layer.
//!
//! **Cost.** A read passes the tokens before its first byte in the block, half a block on average,
//! and copies those of its own bytes. Beside the block it needs the tokens, a megabyte or two,
//! which a processor's second-level cache may hold; it takes no lock. By `examples/text_layer.rs`,
//! per CPU second and thread on two cores: of 50 MB of Debian package records the layer is 0.277,
//! reads of 64 B 1.2 to 1.5 million, of 1 KiB 420,000 to 490,000; of 82 MB of mixed records 0.315,
//! 1.1 million and 415,000. Making one takes 23 CPU s and less for 100 MB, the choice of tokens
//! half of that. Blocks of 1 KiB compressed by Zstandard at level 15 with a dictionary, which this
//! was before, were 0.279 and 0.332, read at 320,000 to 460,000 and 190,000 to 207,000. Blocks of 2
//! KiB save one part in a hundred and are read at three quarters of the rate. When it is wrong:
//! where nothing is extracted, and for text that does not compress.

mod strings;
mod tokens;
mod train;
mod trie;

use std::fmt;

use memmap2::MmapMut;

use super::hot::Hot;
use super::memory::{room, zeros};
use super::{Part, Progress};
use crate::bits::load::u32_at;
use crate::{Error, Text};
use tokens::{CODES_SLACK, Encoder, TOKEN_SLACK, Tokens};
use train::{ROUNDS, Training};

/// Bytes that are extracted at once while a layer is made.
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of a sample.
const SAMPLE_BYTES: usize = 32 << 10;

/// Steps before the first block: those of the choice, and one that numbers what was chosen.
const TRAINING_STEPS: usize = ROUNDS + 1;

/// Bytes of the text for each token at least. Tokens take 13 bytes on average, so a thirtieth of
/// the text at most; where all are as long as they may be, and so save most, a sixth.
const BYTES_PER_TOKEN: usize = 400;

/// Bytes of a layer that may hold the beginning alone for each token at least: tokens are a
/// fifteenth of it. With a quarter of the tokens, layers of 50 MB of package records take 2 % more.
const LAYER_BYTES_PER_TOKEN: usize = 200;

/// Tokens at most beside those of one byte: together so many that no code has more than 19 bits,
/// and three of them are whole in any 57 (see `tokens`).
const TOKENS_MAX: usize = (128 << 10) - 256;

/// How a text layer is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextOptions {
    /// Bytes of a block: a power of two from 64 to 131,072.
    pub block_bytes: usize,
    /// Tokens at most, beside those of one byte: up to 130,816. A 400th of the text's bytes and a
    /// 200th of `bytes_max` at most in any case.
    pub tokens_max: usize,
    /// Bytes of the text that the tokens are chosen by, at most; 32 KiB at least.
    pub sample_bytes: usize,
    /// Bytes of the layer at most: from the beginning of the text on, it has the blocks that fit.
    pub bytes_max: usize,
}

impl Default for TextOptions {
    /// Blocks of 1 KiB, 100,000 tokens, 32 MiB of samples (with half of those, layers take 2 %
    /// more), and the whole text.
    fn default() -> Self {
        let (block_bytes, tokens_max, sample_bytes) = (1 << 10, 100_000, 32 << 20);
        Self { block_bytes, tokens_max, sample_bytes, bytes_max: usize::MAX }
    }
}

/// A text layer: see the module.
pub(super) struct TextLayer {
    text_len: usize,
    /// Bytes of the text that it has, from the first on.
    len: usize,
    block_bytes: usize,
    /// Where in `data` each block ends, four bytes each.
    ends: MmapMut,
    /// The blocks, and [`CODES_SLACK`] bytes.
    data: MmapMut,
    tokens: Tokens,
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

    /// Where a block's stored bytes start and end.
    fn stored(&self, block: usize) -> (usize, usize) {
        let end = |block: usize| u32_at(&self.ends, size_of::<u32>() * block) as usize;
        (block.checked_sub(1).map_or(0, end), end(block))
    }

    /// Appends `len` bytes from `position` on; `None`, with some of them appended, if that is not
    /// possible.
    pub(super) fn read(
        &self,
        position: usize,
        len: usize,
        hot: Option<&Hot>,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let end = position.checked_add(len).filter(|&end| end <= self.len)?;
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
                self.decode(block, 0, self.block_bytes.min(self.len - first), &mut decoded)?;
                bytes.extend_from_slice(decoded.get(part)?);
                hot.keep(block as u32, &decoded);
            }
        }
        Some(())
    }

    /// Appends `len` bytes of a block, from number `skip` on.
    #[inline]
    fn decode(&self, block: usize, skip: usize, len: usize, bytes: &mut Vec<u8>) -> Option<()> {
        let (start, end) = self.stored(block);
        let block_len = self.block_bytes.min(self.len - block * self.block_bytes);
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
        self.data.len() + self.ends.len() + self.tokens.bytes()
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

/// A text layer that is being made, published by
/// [`Layers::publish_text`](super::Layers::publish_text) when it is finished: whole, or as large as
/// it may be.
///
/// ```
/// use shard::layers::{Layers, TextBuild, TextOptions};
/// use shard::naive;
///
/// let text = naive::Text::new(b"she sells sea shells ".repeat(50));
/// let mut build = TextBuild::new(&text, TextOptions { block_bytes: 256, ..TextOptions::default() })?;
/// while !build.step(&text, 2)?.is_finished() {
///     // A caller that has to go easy on the machine waits here.
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
    /// Samples of the text and what is made of them, while tokens are chosen.
    training: Option<(MmapMut, Training)>,
    /// What comes of that.
    encoder: Option<Encoder>,
    /// Blocks done, whether one more is too many, and where each ends.
    done: usize,
    full: bool,
    ends: MmapMut,
    /// Room for the blocks, and what they take of it so far.
    data: MmapMut,
    data_len: usize,
    /// A piece of the text, and a block of it encoded.
    piece: Vec<u8>,
    codes: Vec<u8>,
}

impl TextBuild {
    /// Draws samples from `text`: the one part that is not done in steps, a CPU second for 32 MiB.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the options are not within their limits, or there is no memory.
    pub fn new(text: &impl Text, options: TextOptions) -> Result<Self, Error> {
        let TextOptions { block_bytes, tokens_max, sample_bytes, bytes_max } = options;
        if !block_bytes.is_power_of_two()
            || !(64..=128 << 10).contains(&block_bytes)
            || tokens_max > TOKENS_MAX
        {
            return Err(Error::Layers(format!(
                "text blocks of {block_bytes} bytes and {tokens_max} tokens; a power of two \
                 from 64 to 131,072 and up to {TOKENS_MAX} tokens are possible"
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

    fn blocks(&self) -> usize {
        self.text_len.div_ceil(self.block_bytes)
    }

    /// Takes a step of the choice of tokens, ten of a CPU second or two each, or else encodes the
    /// next `blocks` blocks of `text`, which has to be the same in every step; and says how many
    /// steps and blocks are done.
    ///
    /// # Errors
    ///
    /// What [`Text::extract`] says, or [`Error::Layers`] if there is no memory to choose tokens
    /// with. A step that failed may be tried again.
    pub fn step(&mut self, text: &impl Text, blocks: usize) -> Result<Progress, Error> {
        let all = self.blocks();
        let room = self.bytes_max.saturating_sub(self.tokens_bytes() + CODES_SLACK);
        let progress = |done| Progress { done, all: TRAINING_STEPS + all };
        if let Some((samples, training)) = &mut self.training {
            let samples: Vec<&[u8]> = samples.chunks(SAMPLE_BYTES).collect();
            let Some(tokens) = training.tokens() else {
                training.round(&samples)?;
                return Ok(progress(training.rounds()));
            };
            // Numbers need fewer samples than choices do.
            let every = (samples.len() / 32).clamp(1, 4);
            let few: Vec<&[u8]> = samples.iter().step_by(every).copied().collect();
            self.encoder = Some(Encoder::new(tokens.clone(), &few, self.block_bytes));
            self.training = None;
            return Ok(progress(TRAINING_STEPS));
        }
        let Some(encoder) = &mut self.encoder else { return Ok(progress(0)) };
        let to = self.done.saturating_add(blocks).min(all);
        while self.done < to && !self.full {
            let start = self.done * self.block_bytes;
            let len =
                (PIECE_BYTES.min((to - self.done) * self.block_bytes)).min(self.text_len - start);
            self.piece.clear();
            text.extract(start, len, &mut self.piece)?;
            for block in self.piece.chunks(self.block_bytes) {
                self.codes.clear();
                encoder.encode(block, &mut self.codes);
                let stored = if self.codes.len() < block.len() { &self.codes } else { block };
                let end = self.data_len + stored.len();
                if end + (self.done + 1) * size_of::<u32>() > room {
                    self.full = true;
                    break;
                }
                // No block is stored in more bytes than it has, so there is room for all of them.
                self.data[self.data_len..end].copy_from_slice(stored);
                let place = self.done * size_of::<u32>();
                self.ends[place..place + size_of::<u32>()]
                    .copy_from_slice(&(end as u32).to_le_bytes());
                (self.data_len, self.done) = (end, self.done + 1);
            }
        }
        let all = if self.full { self.done } else { all };
        Ok(Progress { done: TRAINING_STEPS + self.done, all: TRAINING_STEPS + all })
    }

    fn tokens_bytes(&self) -> usize {
        self.encoder.as_ref().map_or(0, Encoder::tokens_bytes)
    }

    /// Bytes that the finished layer will take, from what the blocks that are done have taken,
    /// [`TextOptions::bytes_max`] at most; `None` before the first.
    pub fn bytes_expected(&self) -> Option<usize> {
        let done = self.done;
        let all = if self.full { done } else { self.blocks() };
        let blocks = self.data_len as f64 * all as f64 / done as f64;
        let rest = self.tokens_bytes() + CODES_SLACK + all * size_of::<u32>();
        (done > 0).then_some((blocks as usize + rest).min(self.bytes_max))
    }

    /// Bytes that are held at present, besides what tokens are chosen and codes are found with: up
    /// to 130 MB for 32 MiB of samples, 10 MB from then on; the finished blocks are copied once,
    /// which takes their bytes again.
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
        if self.full && self.done == 0 {
            return Err(Error::Layers(format!(
                "a text layer of {} bytes has no room for a block beside its tokens, {} bytes",
                self.bytes_max,
                self.tokens_bytes()
            )));
        }
        // The room was for all blocks, and for as many bytes as the text has.
        let mut ends = zeros(self.done * size_of::<u32>())?;
        ends.copy_from_slice(&self.ends[..self.done * size_of::<u32>()]);
        let mut data = zeros(self.data_len + CODES_SLACK)?;
        data[..self.data_len].copy_from_slice(&self.data[..self.data_len]);
        Ok(TextLayer {
            text_len: self.text_len,
            len: self.text_len.min(self.done * self.block_bytes),
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

/// Pieces of the text, drawn evenly, one after the other: [`SAMPLE_BYTES`] each, or the whole text
/// if it is shorter than they would be.
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
