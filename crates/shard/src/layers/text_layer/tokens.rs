//! Tokens and their codes.
//!
//! Tokens are numbered by frequency, the most frequent first, and divided into four *classes*. A
//! code consists of two bits for the class and the number within the class, with a width that
//! depends on the class: 10 to 18 bits in all for 65,536 tokens of package records, 2 % more than
//! their entropy. Decoding a code takes a shift, a mask and two additions; its token is copied in
//! pieces of 16 bytes, whatever its length. Successive codes depend on each other only in where a
//! code starts and where its bytes go.

use memmap2::MmapMut;

use super::strings::Strings;
use super::train::TOKEN_BYTES_MAX;
use super::trie::Trie;
use crate::bits::load::{u32_at, u64_at};
use crate::bits::packed::append;
use crate::error::Error;
use crate::layers::memory::zeros;

const CLASSES: usize = 4;
const CLASS_BITS: u32 = CLASSES.ilog2();

/// The padding after the codes that a read may touch, and after the tokens that a copy may touch.
pub(super) const CODES_SLACK: usize = 8;
const PIECE: usize = 16;

/// The number of codes certain to be complete within the 57 bits of a load.
const CODES_PER_WORD: usize = 3;
pub(super) const TOKEN_SLACK: usize = TOKEN_BYTES_MAX;

/// The four classes of tokens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Classes {
    /// The width of a number within each class.
    widths: [u32; CLASSES],
    /// The first token of each class.
    firsts: [u32; CLASSES],
}

impl Classes {
    /// Creates classes of the given widths, and a last one for the remaining tokens.
    fn new([first, second, third]: [u32; 3], tokens: u32) -> Self {
        let firsts = [1 << first, (1 << first) + (1 << second)];
        let last = firsts[1] + (1 << third);
        let rest = tokens.saturating_sub(last).max(1).next_power_of_two().ilog2();
        Self { widths: [first, second, third, rest], firsts: [0, firsts[0], firsts[1], last] }
    }

    /// Chooses the classes that minimise the total length of all codes. `counts` are those of the
    /// tokens, the largest first.
    fn best(counts: &[u64]) -> Self {
        let mut sums = vec![0];
        for count in counts {
            sums.push(sums[sums.len() - 1] + count);
        }
        let up_to = |token: u32| sums[(token as usize).min(counts.len())];
        let bits = |classes: &Self| -> u64 {
            let ends = classes.firsts[1..].iter().copied().chain([u32::MAX]);
            let class = classes.firsts.iter().zip(ends).zip(classes.widths);
            class.map(|((&first, end), width)| (up_to(end) - up_to(first)) * u64::from(width)).sum()
        };
        let tokens = counts.len() as u32;
        let mut best = Self::new([0; 3], tokens);
        for first in 0..12 {
            for second in first..15 {
                for third in second..17 {
                    let classes = Self::new([first, second, third], tokens);
                    if bits(&classes) < bits(&best) {
                        best = classes;
                    }
                }
            }
        }
        best
    }

    /// The class of a token.
    fn class_of(&self, token: u32) -> usize {
        self.firsts[1..].iter().filter(|&&first| first <= token).count()
    }

    /// A token's code and its width.
    fn code(&self, token: u32) -> (u64, u32) {
        let class = self.class_of(token);
        let within = u64::from(token - self.firsts[class]);
        (within << CLASS_BITS | class as u64, CLASS_BITS + self.widths[class])
    }
}

/// The tokens, in the form for decoding.
#[derive(Debug)]
pub(super) struct Tokens {
    classes: Classes,
    /// For each token four bytes: the start of its bytes, and in the low eight bits their number.
    places: MmapMut,
    /// The bytes of all tokens, and [`TOKEN_SLACK`] more.
    bytes: MmapMut,
}

impl Tokens {
    fn new(classes: Classes, tokens: &Strings) -> Result<Self, Error> {
        let mut places = zeros(size_of::<u32>() * tokens.len())?;
        let mut bytes = zeros(tokens.bytes() + TOKEN_SLACK)?;
        let mut start = 0;
        for (place, token) in places.chunks_exact_mut(size_of::<u32>()).zip(tokens.iter()) {
            place.copy_from_slice(&((start << 8 | token.len()) as u32).to_le_bytes());
            bytes[start..start + token.len()].copy_from_slice(token);
            start += token.len();
        }
        Ok(Self { classes, places, bytes })
    }

    pub(super) fn bytes(&self) -> usize {
        self.places.len() + self.bytes.len()
    }

    /// Decodes the codes that start with the first bit of `codes`, skips the first `skip` bytes,
    /// and fills `out` except for its last [`TOKEN_SLACK`] bytes, whose content is undefined. The
    /// codes must end [`CODES_SLACK`] bytes before the end of `codes`. `None` if `codes` do not
    /// match the tokens.
    #[inline]
    pub(super) fn decode(&self, codes: &[u8], skip: usize, out: &mut [u8]) -> Option<()> {
        let len = out.len().checked_sub(TOKEN_SLACK)?;
        let (mut bit, mut passed, mut at) = (0, 0, 0);
        while at < len {
            let mut word = u64_at(codes, bit / 8) >> (bit % 8);
            for _ in 0..CODES_PER_WORD {
                let (place, bits) = self.place(word);
                (word, bit) = (word >> bits, bit + bits as usize);
                let (start, token_len) = (place as usize >> 8, place as usize & 255);
                // No token is empty, so this is not the place of a token.
                if token_len == 0 {
                    return None;
                }
                let before = skip - passed;
                if token_len <= before {
                    passed += token_len;
                    continue;
                }
                // The first token may begin before the requested bytes.
                passed += before;
                at = self.copy(start + before, token_len - before, out, at)?;
                if at >= len {
                    break;
                }
            }
        }
        Some(())
    }

    /// Decodes the code in the lowest bits of `word` into the place of its token and the code's
    /// width.
    #[inline(always)]
    fn place(&self, word: u64) -> (u32, u32) {
        let class = word as usize % CLASSES;
        let width = self.classes.widths[class];
        let within = (word >> CLASS_BITS) as u32 & ((1 << width) - 1);
        let token = (self.classes.firsts[class] + within) as usize;
        (u32_at(&self.places, size_of::<u32>() * token), CLASS_BITS + width)
    }

    /// Copies a token to `out[at..]`, which has room for the longest, and returns the position
    /// after it.
    #[inline(always)]
    fn copy(&self, start: usize, len: usize, out: &mut [u8], at: usize) -> Option<usize> {
        let mut copied = 0;
        loop {
            let from = self.bytes.get(start + copied..start + copied + PIECE)?;
            out.get_mut(at + copied..at + copied + PIECE)?.copy_from_slice(from);
            copied += PIECE;
            if copied >= len {
                return Some(at + len);
            }
        }
    }
}

/// Encodes text as codes of tokens.
#[derive(Debug)]
pub(super) struct Encoder {
    trie: Trie,
    tokens: Strings,
    classes: Classes,
    /// The width of each token's code.
    bits: Vec<u8>,
    /// For each position of a block: the fewest bits of codes up to there, and the last token of
    /// those.
    best: Vec<(u32, u32)>,
    /// The tokens of a block, in reverse order.
    chosen: Vec<u32>,
}

impl Encoder {
    /// Creates an encoder with these tokens, numbered by their frequency in `samples`.
    pub(super) fn new(tokens: Strings, samples: &[&[u8]], block_bytes: usize) -> Self {
        // With equal widths at first, the fewest tokens are the best choice.
        let mut encoder = Self {
            trie: Trie::new(&tokens),
            bits: vec![1; tokens.len()],
            classes: Classes::new([0; 3], tokens.len() as u32),
            tokens,
            best: Vec::new(),
            chosen: Vec::new(),
        };
        for _ in 0..2 {
            let mut counts = vec![0; encoder.tokens.len()];
            for block in samples.iter().flat_map(|sample| sample.chunks(block_bytes)) {
                encoder.choose(block);
                encoder.chosen.iter().for_each(|&token| counts[token as usize] += 1);
            }
            encoder.number(&counts);
        }
        encoder
    }

    /// Numbers the tokens by their counts.
    fn number(&mut self, counts: &[u64]) {
        let mut ranked: Vec<u32> = (0..self.tokens.len() as u32).collect();
        ranked.sort_by_key(|&token| std::cmp::Reverse(counts[token as usize]));
        let counts: Vec<u64> = ranked.iter().map(|&token| counts[token as usize]).collect();
        self.tokens = ranked.iter().map(|&token| self.tokens.get(token)).collect();
        self.trie = Trie::new(&self.tokens);
        self.classes = Classes::best(&counts);
        let all = 0..self.tokens.len() as u32;
        self.bits = all.map(|token| self.classes.code(token).1 as u8).collect();
    }

    /// Chooses tokens for a block that take nearly the fewest bits. Skips a position if tokens that
    /// end later take no more bits than those up to it. (Measured with package records: twice as
    /// fast as the exact optimum, with 0.4 % more bits.)
    fn choose(&mut self, block: &[u8]) {
        self.best.clear();
        self.best.resize(block.len() + 1, (u32::MAX, 0));
        self.best[0].0 = 0;
        // The farthest end so far, and the bits up to there.
        let (mut end, mut end_bits) = (0, 0);
        for at in 0..block.len() {
            let before = self.best[at].0;
            if at < end && end_bits <= before {
                continue;
            }
            let rest = &block[at..block.len().min(at + TOKEN_BYTES_MAX)];
            let best = &mut self.best[at..];
            self.trie.matches(rest, |token, len| {
                let bits = before + u32::from(self.bits[token as usize]);
                if bits < best[len].0 {
                    best[len] = (bits, token);
                    if at + len >= end {
                        (end, end_bits) = (at + len, bits);
                    }
                }
            });
        }
        self.chosen.clear();
        let mut end = block.len();
        while end > 0 {
            let token = self.best[end].1;
            self.chosen.push(token);
            end -= self.tokens.get(token).len();
        }
    }

    /// Appends the codes of a block, padded to a whole byte.
    pub(super) fn encode(&mut self, block: &[u8], codes: &mut Vec<u8>) {
        self.choose(block);
        append(self.chosen.iter().rev().map(|&token| self.classes.code(token)), codes);
    }

    /// The tokens in the form for decoding.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if memory is exhausted.
    pub(super) fn tokens(&self) -> Result<Tokens, Error> {
        Tokens::new(self.classes, &self.tokens)
    }

    /// The size of [`Encoder::tokens`] in bytes.
    pub(super) fn tokens_bytes(&self) -> usize {
        size_of::<u32>() * self.tokens.len() + self.tokens.bytes() + TOKEN_SLACK
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::layers::text_layer::train::Training;

    fn train(samples: &[&[u8]], tokens_max: usize) -> Strings {
        let mut training = Training::new(tokens_max);
        while training.tokens().is_none() {
            training.round(samples).unwrap();
        }
        training.tokens().unwrap().clone()
    }

    proptest! {
        #[test]
        fn what_is_decoded_is_what_was_encoded(
            words in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 1..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..400),
            tokens_max in 0usize..300,
            block_bytes in 64usize..2000,
            part in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let text: Vec<u8> =
                order.iter().flat_map(|word| word.get(&words).iter().copied()).collect();
            let samples = [&text[..text.len() / 2]];
            let mut encoder = Encoder::new(train(&samples, tokens_max), &samples, block_bytes);
            let tokens = encoder.tokens().unwrap();
            prop_assert_eq!(tokens.bytes(), encoder.tokens_bytes());
            for block in text.chunks(block_bytes) {
                let mut codes = Vec::new();
                encoder.encode(block, &mut codes);
                codes.extend([0xFF; CODES_SLACK]);
                let skip = part.0.index(block.len());
                let len = 1 + part.1.index(block.len() - skip);
                let mut out = vec![0; len + TOKEN_SLACK];
                prop_assert_eq!(tokens.decode(&codes, skip, &mut out), Some(()));
                prop_assert_eq!(&out[..len], &block[skip..skip + len]);
            }
        }

        #[test]
        fn any_bytes_decode_to_an_end(
            codes in prop::collection::vec(any::<u8>(), 0..100),
            skip in 0usize..1000,
            len in 0usize..1000,
        ) {
            let text = b"abcabcd".repeat(100);
            let tokens = Encoder::new(train(&[&text], 100), &[&text], 64).tokens().unwrap();
            prop_assert!(tokens.places.len() > 4 * 256, "tokens of more than a byte");
            // An answer or none, no panic and no endless loop.
            _ = tokens.decode(&codes, skip, &mut vec![0; len]);
        }

        #[test]
        fn classes_hold_all_tokens_and_no_others_are_shorter(
            mut counts in prop::collection::vec(0u64..1000, 1..3000),
        ) {
            counts.sort_unstable_by(|a, b| b.cmp(a));
            // As many more as there may be, which never come: no code is too long even so.
            let mut all = counts.clone();
            all.resize(1 << 17, 0);
            let bits_max = Classes::best(&all).code((1 << 17) - 1).1;
            prop_assert!(CODES_PER_WORD * bits_max as usize <= 57, "{} bits", bits_max);
            let classes = Classes::best(&counts);
            let bits = |classes: &Classes| -> u64 {
                let tokens = (0..).zip(&counts);
                tokens.map(|(token, count)| count * u64::from(classes.code(token).1)).sum()
            };
            for token in 0..counts.len() as u32 {
                let (code, width) = classes.code(token);
                prop_assert!(code < 1 << width);
                let class = code as usize % CLASSES;
                let within = (code >> CLASS_BITS) as u32;
                prop_assert_eq!(classes.firsts[class] + within, token);
            }
            for widths in [[0, 0, 0], [2, 4, 8], [8, 8, 8], [4, 6, 10]] {
                let other = Classes::new(widths, counts.len() as u32);
                prop_assert!(bits(&classes) <= bits(&other));
            }
        }
    }
}
