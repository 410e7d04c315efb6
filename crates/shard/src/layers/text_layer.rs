//! The text once more, in blocks that are compressed with one dictionary: a layer for `extract`.
//!
//! Each block is a Zstandard frame of its own (RFC 8878) without its magic number, content size, checksum
//! and dictionary identifier, which would be the same for all: five bytes are left of the header. A
//! block that does not become smaller is stored as it is; its length says so. A table holds where each
//! ends. The dictionary is trained on blocks drawn evenly from the text.
//!
//! **Cost.** A read decodes each block that it touches, two for a kilobyte at any offset; larger blocks
//! are smaller in all and slower to read. Of 50 MB of Debian package records, by `examples/text_layer.rs`
//! with 112 KiB of dictionary: 0.315 of the text in blocks of 512 bytes, 0.279 of 1 KiB, 0.253 of 2 KiB.
//! Reads of 1 KiB from blocks of 1 KiB, in eight runs with either dictionary on two cores busy with other
//! work: 172,000 to 227,000 for each CPU second. Making that layer took 6.5 to 11 CPU s, more than twice a
//! [`Sweep`](super::Sweep), a second or two of them at once (the dictionary). When it is wrong: where
//! nothing is extracted, and for text that does not compress.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use memmap2::MmapMut;
use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, DCtx, DDict};

use super::hot::Hot;
use super::memory::{room, zeros};
use super::{Part, Progress};
use crate::bits::load::u32_at;
use crate::{Error, Text};

/// The magic number that each frame begins with, and that is not stored.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// Decoders that are kept for the next readers: more than there are threads that read at once would only
/// take memory.
const DECODERS_MAX: usize = 16;

/// Bytes that are extracted at once while a layer is made.
const PIECE_BYTES: usize = 1 << 20;

/// How a text layer is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TextOptions {
    /// Bytes of a block: a power of two from 64 to 131,072.
    pub block_bytes: usize,
    /// Bytes of the dictionary at most; a fiftieth of the text at most in any case.
    pub dictionary_bytes: usize,
    /// Bytes of the text that the dictionary is trained on at most.
    pub sample_bytes: usize,
    /// Zstandard's compression level, 1 to 22. A higher one takes longer to make and is as fast to read.
    pub level: i32,
}

impl Default for TextOptions {
    /// Blocks of 1 KiB at level 15 with a dictionary of 1 MiB. Of 50 MB of package records one of 112 KiB
    /// made 0.279 of the text instead of 0.281, in half as much time again; the rates of reads with the
    /// two differed by less than those of two runs with one.
    fn default() -> Self {
        Self {
            block_bytes: 1 << 10,
            dictionary_bytes: 112 << 10,
            sample_bytes: 16 << 20,
            level: 15,
        }
    }
}

/// A text layer: see the module.
pub(super) struct TextLayer {
    len: usize,
    block_bytes: usize,
    /// Where in `data` each block ends, four bytes each.
    ends: MmapMut,
    data: MmapMut,
    dictionary: DDict<'static>,
    decoders: Mutex<Vec<Decoder>>,
    decoder_bytes: usize,
}

/// What one reader needs to decode blocks.
struct Decoder {
    context: DCtx<'static>,
    /// The frame to decode, which begins with the magic number.
    frame: Vec<u8>,
    /// The block that was decoded last.
    block: Vec<u8>,
}

impl Decoder {
    fn new(block_bytes: usize) -> Option<Self> {
        let context = DCtx::try_create()?;
        Some(Self { context, frame: MAGIC.to_vec(), block: vec![0; block_bytes] })
    }

    /// The block of `len` bytes that is stored as `stored`; `None` if it is not that.
    fn decode(&mut self, stored: &[u8], len: usize, dictionary: &DDict<'_>) -> Option<&[u8]> {
        let block = self.block.get_mut(..len)?;
        if stored.len() == len {
            block.copy_from_slice(stored);
        } else {
            self.frame.truncate(MAGIC.len());
            self.frame.extend_from_slice(stored);
            let decoded = self.context.decompress_using_ddict(block, &self.frame, dictionary);
            if decoded != Ok(len) {
                return None;
            }
        }
        Some(block)
    }
}

impl TextLayer {
    pub(super) fn text_len(&self) -> usize {
        self.len
    }

    pub(super) fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// A block's stored bytes.
    fn stored(&self, block: usize) -> Option<&[u8]> {
        let end = |block: usize| u32_at(&self.ends, size_of::<u32>() * block) as usize;
        self.data.get(block.checked_sub(1).map_or(0, end)..end(block))
    }

    fn decoders(&self) -> std::sync::MutexGuard<'_, Vec<Decoder>> {
        self.decoders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends `len` bytes from `position` on; `None`, with some of them appended, if that is not possible.
    pub(super) fn read(
        &self,
        position: usize,
        len: usize,
        hot: Option<&Hot>,
        bytes: &mut Vec<u8>,
    ) -> Option<()> {
        let end = position.checked_add(len).filter(|&end| end <= self.len)?;
        bytes.reserve(len);
        let mut decoder = None;
        let mut at = position;
        while at < end {
            let block = at / self.block_bytes;
            let first = block * self.block_bytes;
            let part = at - first..(end - first).min(self.block_bytes);
            at = first + part.end;
            if hot.is_some_and(|hot| hot.read(block as u32, part.clone(), bytes)) {
                continue;
            }
            if decoder.is_none() {
                // Made outside the lock, and not a queue for it: any decoder will do.
                let kept = self.decoders().pop();
                decoder = kept.or_else(|| Decoder::new(self.block_bytes));
            }
            let block_len = self.block_bytes.min(self.len - first);
            let stored = self.stored(block)?;
            let decoded = decoder.as_mut()?.decode(stored, block_len, &self.dictionary)?;
            bytes.extend_from_slice(decoded.get(part)?);
            if let Some(hot) = hot {
                hot.keep(block as u32, decoded);
            }
        }
        if let Some(decoder) = decoder {
            let mut decoders = self.decoders();
            if decoders.len() < DECODERS_MAX {
                decoders.push(decoder);
            }
        }
        Some(())
    }
}

impl Part for TextLayer {
    /// Counts the decoders that are kept and one in use.
    fn bytes(&self) -> usize {
        let decoders = self.decoders().len().max(1);
        self.data.len() + self.ends.len() + self.dictionary.sizeof() + decoders * self.decoder_bytes
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

/// A text layer that is being made, published by [`Layers::publish_text`](super::Layers::publish_text)
/// when it is whole.
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
/// # Ok::<(), shard::Error>(())
/// ```
pub struct TextBuild {
    block_bytes: usize,
    text_len: usize,
    dictionary: Vec<u8>,
    compressor: Compressor<'static>,
    /// Blocks done, and where each ends.
    done: usize,
    ends: MmapMut,
    /// Room for the blocks, and what they take of it so far.
    data: MmapMut,
    data_len: usize,
    /// A piece of the text, and a block of it compressed.
    piece: Vec<u8>,
    frame: Vec<u8>,
}

impl TextBuild {
    /// Draws samples from `text` and trains the dictionary: the one part that is not done in steps. Of
    /// 16 MiB of samples it took 1.3 to 2.9 CPU s.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if the options are not within their limits, or there is no memory.
    pub fn new(text: &impl Text, options: TextOptions) -> Result<Self, Error> {
        let TextOptions { block_bytes, level, .. } = options;
        if !block_bytes.is_power_of_two()
            || !(64..=128 << 10).contains(&block_bytes)
            || !(1..=22).contains(&level)
        {
            return Err(Error::Layers(format!(
                "text blocks of {block_bytes} bytes at level {level}; \
                 a power of two from 64 to 131,072 and a level from 1 to 22 are possible"
            )));
        }
        let dictionary = train(text, &options)?;
        let compressor = compressor(level, &dictionary).map_err(failed)?;
        let text_len = text.len();
        Ok(Self {
            block_bytes,
            text_len,
            dictionary,
            compressor,
            done: 0,
            ends: zeros(text_len.div_ceil(block_bytes) * size_of::<u32>())?,
            data: room(text_len)?,
            data_len: 0,
            piece: Vec::new(),
            frame: Vec::new(),
        })
    }

    fn blocks(&self) -> usize {
        self.text_len.div_ceil(self.block_bytes)
    }

    /// Compresses the next `blocks` blocks of `text`, which has to be the same in every step, and says how
    /// many are done.
    ///
    /// # Errors
    ///
    /// What [`Text::extract`] says, or [`Error::Layers`] if the compression fails. A step that failed may
    /// be tried again.
    pub fn step(&mut self, text: &impl Text, blocks: usize) -> Result<Progress, Error> {
        let all = self.blocks();
        let to = self.done.saturating_add(blocks).min(all);
        while self.done < to {
            let start = self.done * self.block_bytes;
            let len =
                (PIECE_BYTES.min((to - self.done) * self.block_bytes)).min(self.text_len - start);
            self.piece.clear();
            text.extract(start, len, &mut self.piece)?;
            for block in self.piece.chunks(self.block_bytes) {
                self.frame.clear();
                self.frame.reserve(zstd::zstd_safe::compress_bound(block.len()));
                self.compressor.compress_to_buffer(block, &mut self.frame).map_err(failed)?;
                let stored = match self.frame.strip_prefix(&MAGIC) {
                    Some(frame) if frame.len() < block.len() => frame,
                    _ => block,
                };
                // No block is stored in more bytes than it has, so all of them fit.
                let end = self.data_len + stored.len();
                self.data[self.data_len..end].copy_from_slice(stored);
                let place = self.done * size_of::<u32>();
                self.ends[place..place + size_of::<u32>()]
                    .copy_from_slice(&(end as u32).to_le_bytes());
                (self.data_len, self.done) = (end, self.done + 1);
            }
        }
        Ok(Progress { done: to, all })
    }

    /// Bytes that the finished layer will take, from what the blocks that are done have taken; `None`
    /// before the first.
    pub fn bytes_expected(&self) -> Option<usize> {
        let done = self.done;
        let blocks = self.data_len as f64 * self.blocks() as f64 / done as f64;
        let rest = self.dictionary.len() + self.blocks() * size_of::<u32>();
        (done > 0).then_some(blocks as usize + rest)
    }

    /// Bytes that are held at present, besides the compressor's own.
    pub fn bytes(&self) -> usize {
        self.data_len
            + self.ends.len()
            + self.dictionary.capacity()
            + self.piece.capacity()
            + self.frame.capacity()
    }

    pub(super) fn finish(self) -> Result<TextLayer, Error> {
        let all = self.blocks();
        if self.done < all {
            return Err(Error::Layers(format!(
                "{} of {all} text blocks are done; only a whole layer is published",
                self.done
            )));
        }
        let decoder = Decoder::new(self.block_bytes);
        let dictionary = DDict::try_create(&self.dictionary);
        let (Some(decoder), Some(dictionary)) = (decoder, dictionary) else {
            return Err(Error::Layers("no memory for a decoder of the text layer".to_owned()));
        };
        // The room was for as many bytes as the text has.
        let mut data = zeros(self.data_len)?;
        data.copy_from_slice(&self.data[..self.data_len]);
        let decoder_bytes = decoder.context.sizeof() + 2 * self.block_bytes;
        Ok(TextLayer {
            len: self.text_len,
            block_bytes: self.block_bytes,
            ends: self.ends,
            data,
            dictionary,
            decoders: Mutex::new(vec![decoder]),
            decoder_bytes,
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

fn failed(error: std::io::Error) -> Error {
    Error::Layers(format!("text block: {error}"))
}

/// A compressor that writes nothing into a frame's header that is the same for all.
fn compressor(level: i32, dictionary: &[u8]) -> std::io::Result<Compressor<'static>> {
    let mut compressor = Compressor::with_dictionary(level, dictionary)?;
    compressor.set_parameter(CParameter::ContentSizeFlag(false))?;
    compressor.set_parameter(CParameter::ChecksumFlag(false))?;
    compressor.set_parameter(CParameter::DictIdFlag(false))?;
    Ok(compressor)
}

/// A dictionary from blocks drawn evenly from the text; an empty one where there are too few.
fn train(text: &impl Text, options: &TextOptions) -> Result<Vec<u8>, Error> {
    let dictionary_bytes = options.dictionary_bytes.min(text.len() / 50);
    let blocks = text.len() / options.block_bytes;
    let samples = (options.sample_bytes / options.block_bytes).min(blocks);
    let (mut bytes, mut block) = (zeros(samples * options.block_bytes)?, Vec::new());
    for (sample, place) in bytes.chunks_exact_mut(options.block_bytes).enumerate() {
        block.clear();
        let start = sample * blocks / samples * options.block_bytes;
        text.extract(start, options.block_bytes, &mut block)?;
        place.copy_from_slice(&block);
    }
    let sizes = vec![options.block_bytes; samples];
    // The trainer refuses a text that is too small or has nothing in common; blocks are compressed each
    // on its own then.
    Ok(zstd::dict::from_continuous(&bytes, &sizes, dictionary_bytes).unwrap_or_default())
}
