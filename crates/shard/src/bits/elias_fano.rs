//! Elias–Fano coding: a non-decreasing sequence of numbers in little more than the minimum of bits.
//!
//! Source: P. Elias, "Efficient storage and retrieval by content and address of static files" (J.
//! ACM, 1974), and R. Fano's memorandum of 1971; the layout is the usual one (S. Vigna,
//! "Quasi-succinct indices", WSDM 2013). Of `n` numbers up to `u`, each has its low `⌊log₂(u / n)⌋`
//! bits packed, and its high bits written in unary into one bit vector: number `i` with high part
//! `h` sets bit `h + i`.
//!
//! Cost: `n (2 + ⌊log₂(u / n)⌋)` bits, and 1/8 of its bit vector for the directory in memory.
//! [`get`] and [`predecessor`] take `O(log n)` steps, by binary search in one directory, whatever
//! the distribution. A directory for selection in constant time would be faster for walks over the
//! whole sequence, but those use [`iter`].
//!
//! Not for numbers in long dense runs (a bitmap of runs is smaller), or for unsorted numbers.
//!
//! [`get`]: EliasFano::get
//! [`predecessor`]: EliasFano::predecessor
//! [`iter`]: EliasFano::iter

use crate::error::Error;

/// The number of words of the bit vector per directory entry.
const WORDS_PER_BLOCK: usize = 8;
/// Bytes before the packed words: the count, the last value, the number of low bits.
const HEADER_BYTES: usize = 24;

/// A monotone sequence of `u64`; equal neighbours are allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EliasFano {
    len: usize,
    last: u64,
    low_bits: u32,
    low: Vec<u64>,
    high: Vec<u64>,
    /// The number of set bits of `high` before each block of words, and the total at the end.
    ones_before: Vec<u64>,
}

impl EliasFano {
    /// Packs `values`.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if a value is below its predecessor.
    pub fn new(values: &[u64]) -> Result<Self, Error> {
        let last = values.last().copied().unwrap_or(0);
        let low_bits = low_bits(values.len(), last);
        let mut low = vec![0; packed_words(values.len(), low_bits)];
        let mut high = vec![0; high_words(values.len(), last, low_bits)];
        let mut before = 0;
        for (index, &value) in values.iter().enumerate() {
            if value < before {
                return Err(damaged(format!("element {index}, {value}, is below {before}")));
            }
            before = value;
            put(&mut low, index, low_bits, value & low_mask(low_bits));
            let bit = (value >> low_bits) as usize + index;
            high[bit / 64] |= 1 << (bit % 64);
        }
        let ones_before = directory(&high);
        Ok(Self { len: values.len(), last, low_bits, low, high, ones_before })
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the sequence is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Element `index`, or `None` past the end.
    pub fn get(&self, index: usize) -> Option<u64> {
        if index >= self.len {
            return None;
        }
        let high = self.select_one(index as u64) - index as u64;
        Some((high << self.low_bits) | self.low(index))
    }

    /// The index of the last element that is at most `value`; `None` if the first is above it.
    pub fn predecessor(&self, value: u64) -> Option<usize> {
        self.rank(value).checked_sub(1)
    }

    /// The number of elements that are at most `value`.
    pub fn rank(&self, value: u64) -> usize {
        if self.len == 0 {
            return 0;
        }
        if value >= self.last {
            return self.len;
        }
        // Elements with the same high part as `value` lie between two zeros of the bit vector: zero
        // number `h` ends the elements of high part `h`.
        let high = value >> self.low_bits;
        let mut start =
            if high == 0 { 0 } else { (self.select_zero(high - 1) + 1 - high) as usize };
        let mut end = (self.select_zero(high) - high) as usize;
        let low = value & low_mask(self.low_bits);
        while start < end {
            let middle = start + (end - start) / 2;
            if self.low(middle) <= low {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }

    /// All elements in order, each in constant amortised time.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        self.iter_from(0)
    }

    /// The elements from number `first` on, found in `O(log n)` steps.
    pub fn iter_from(&self, first: usize) -> impl Iterator<Item = u64> + '_ {
        // Its bit, or past all of them.
        let start = if first < self.len { self.select_one(first as u64) } else { u64::MAX };
        let (word, below) = ((start / 64) as usize, (1_u64 << (start % 64)) - 1);
        let from = word.min(self.high.len());
        let words = self.high.get(from..).unwrap_or_default();
        let ones = words.iter().enumerate().flat_map(move |(index, &word)| {
            let word_index = from + index;
            let mut rest = if index == 0 { word & !below } else { word };
            std::iter::from_fn(move || {
                if rest == 0 {
                    return None;
                }
                let bit = rest.trailing_zeros();
                rest &= rest - 1;
                Some(64 * word_index as u64 + u64::from(bit))
            })
        });
        ones.zip(first..)
            .map(|(bit, index)| ((bit - index as u64) << self.low_bits) | self.low(index))
    }

    /// Encodes the sequence, little-endian: count (8), last value (8), low bits (4), zero (4), the
    /// words of the low bits, the words of the bit vector. Both lengths follow from the header; the
    /// directory is rebuilt on decoding.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + 8 * (self.low.len() + self.high.len()));
        bytes.extend_from_slice(&(self.len as u64).to_le_bytes());
        bytes.extend_from_slice(&self.last.to_le_bytes());
        bytes.extend_from_slice(&self.low_bits.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        for word in self.low.iter().chain(&self.high) {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Decodes the bytes of [`encode`](Self::encode). Checks every element, in one pass, so the
    /// bytes need not be trusted.
    ///
    /// # Errors
    ///
    /// [`Error::Damaged`] if the bytes are malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, Error> {
        let (header, words) = bytes
            .split_at_checked(HEADER_BYTES)
            .ok_or_else(|| damaged(format!("{} bytes are too few for a header", bytes.len())))?;
        let number = |at: usize| header.get(at..at + 8).and_then(|b| b.try_into().ok());
        let len = number(0).map_or(0, u64::from_le_bytes);
        let last = number(8).map_or(0, u64::from_le_bytes);
        let tail = number(16).map_or(0, u64::from_le_bytes);
        // Each element sets one bit of the vector, so this rejects counts that the bytes cannot
        // hold.
        let len = usize::try_from(len).ok().filter(|&len| len / 8 <= words.len());
        let len = len.ok_or_else(|| damaged("more elements than bytes for them".to_owned()))?;
        let low_bits = low_bits(len, last);
        if tail != u64::from(low_bits) {
            return Err(damaged(format!("{tail} low bits, {low_bits} expected")));
        }
        let (low_len, high_len) = (packed_words(len, low_bits), high_words(len, last, low_bits));
        if low_len.checked_add(high_len).and_then(|n| n.checked_mul(8)) != Some(words.len()) {
            return Err(damaged(format!("{} bytes of words for {len} elements", words.len())));
        }
        let mut all: Vec<u64> = words
            .chunks_exact(8)
            .filter_map(|chunk| chunk.try_into().ok().map(u64::from_le_bytes))
            .collect();
        let high = all.split_off(low_len);
        let ones_before = directory(&high);
        let read = Self { len, last, low_bits, low: all, high, ones_before };
        read.check()?;
        Ok(read)
    }

    /// Checks that the words equal those that [`new`](Self::new) would produce for their elements.
    fn check(&self) -> Result<(), Error> {
        if self.ones_before.last() != Some(&(self.len as u64)) {
            return Err(damaged("the number of set bits differs from that of elements".to_owned()));
        }
        // The last element has the largest high part: if it is correct, no other can overflow.
        if let Some(last) = self.len.checked_sub(1) {
            let high = self.select_one(last as u64) - last as u64;
            if high != self.last >> self.low_bits {
                return Err(damaged(format!("does not end with {}", self.last)));
            }
        }
        let mut before = 0;
        for value in self.iter() {
            if value < before {
                return Err(damaged(format!("{value} after {before}")));
            }
            before = value;
        }
        if before != self.last {
            return Err(damaged(format!("ends with {before}, not with {}", self.last)));
        }
        // A full last word has no unused bits.
        let used = (self.len * self.low_bits as usize % 64) as u32;
        let unused = self.low.last().map_or(0, |&word| word & !low_mask(used));
        if used > 0 && unused != 0 {
            return Err(damaged("bits beyond the last element".to_owned()));
        }
        Ok(())
    }

    fn low(&self, index: usize) -> u64 {
        get(&self.low, index, self.low_bits)
    }

    /// The position of set bit number `rank`, which must exist.
    fn select_one(&self, rank: u64) -> u64 {
        let block = self.ones_before.partition_point(|&ones| ones <= rank) - 1;
        let mut left = rank - self.ones_before[block];
        let mut word = block * WORDS_PER_BLOCK;
        while left >= u64::from(self.high[word].count_ones()) {
            left -= u64::from(self.high[word].count_ones());
            word += 1;
        }
        64 * word as u64 + select_in_word(self.high[word], left)
    }

    /// The position of clear bit number `rank`, which must exist.
    fn select_zero(&self, rank: u64) -> u64 {
        let bits_per_block = 64 * WORDS_PER_BLOCK as u64;
        let blocks = self.ones_before.len() - 1;
        let (mut start, mut end) = (0, blocks);
        // Finds the last block with at most `rank` zeros before it.
        while end - start > 1 {
            let middle = start + (end - start) / 2;
            if middle as u64 * bits_per_block - self.ones_before[middle] <= rank {
                start = middle;
            } else {
                end = middle;
            }
        }
        let mut left = rank - (start as u64 * bits_per_block - self.ones_before[start]);
        let mut word = start * WORDS_PER_BLOCK;
        while left >= u64::from(self.high[word].count_zeros()) {
            left -= u64::from(self.high[word].count_zeros());
            word += 1;
        }
        64 * word as u64 + select_in_word(!self.high[word], left)
    }
}

/// The position of set bit number `rank` of a word, which must exist.
fn select_in_word(mut word: u64, rank: u64) -> u64 {
    for _ in 0..rank {
        word &= word - 1;
    }
    u64::from(word.trailing_zeros())
}

/// `⌊log₂(last / len)⌋`, and 0 for dense or no elements.
fn low_bits(len: usize, last: u64) -> u32 {
    last.checked_div(len as u64).and_then(u64::checked_ilog2).unwrap_or(0)
}

fn low_mask(low_bits: u32) -> u64 {
    (1 << low_bits) - 1
}

/// The number of words of `len` packed integers of `width` bits. Saturates: the comparison with the
/// actual length then fails.
pub(crate) fn packed_words(len: usize, width: u32) -> usize {
    len.saturating_mul(width as usize).div_ceil(64)
}

/// Packed integer `index`, which must be within the words.
pub(crate) fn get(words: &[u64], index: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let bit = index * width as usize;
    let (word, shift) = (bit / 64, bit % 64);
    let mut value = words[word] >> shift;
    if shift + width as usize > 64 {
        value |= words[word + 1] << (64 - shift);
    }
    value & low_mask(width)
}

/// The length of the bit vector: one bit for each element and one for each high part, so that every
/// part ends with a zero.
fn high_words(len: usize, last: u64, low_bits: u32) -> usize {
    if len == 0 {
        return 0;
    }
    let parts = usize::try_from(last >> low_bits).unwrap_or(usize::MAX).saturating_add(1);
    parts.saturating_add(len).div_ceil(64)
}

/// Writes packed integer `index` into words that are zero there.
pub(crate) fn put(words: &mut [u64], index: usize, width: u32, value: u64) {
    if width == 0 {
        return;
    }
    let bit = index * width as usize;
    let (word, shift) = (bit / 64, bit % 64);
    words[word] |= value << shift;
    if shift + width as usize > 64 {
        words[word + 1] |= value >> (64 - shift);
    }
}

fn directory(words: &[u64]) -> Vec<u64> {
    let mut ones = 0;
    let mut before = vec![0];
    for block in words.chunks(WORDS_PER_BLOCK) {
        ones += block.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        before.push(ones);
    }
    before
}

fn damaged(what: String) -> Error {
    Error::Damaged { section: "monotone sequence", what }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The twin is the slice itself.
    fn check(values: &[u64], probes: &[u64]) {
        let packed = EliasFano::new(values).unwrap();
        assert_eq!(packed.len(), values.len());
        assert_eq!(packed.iter().collect::<Vec<_>>(), values);
        for (index, &value) in values.iter().enumerate() {
            assert_eq!(packed.get(index), Some(value), "element {index}");
        }
        assert_eq!(packed.get(values.len()), None);
        let near = values.iter().flat_map(|&v| [v.saturating_sub(1), v, v.saturating_add(1)]);
        for probe in near.chain(probes.iter().copied()).chain([0, u64::MAX]) {
            let expected = values.partition_point(|&value| value <= probe);
            assert_eq!(packed.rank(probe), expected, "rank of {probe}");
            assert_eq!(packed.predecessor(probe), expected.checked_sub(1));
        }
        assert_eq!(EliasFano::decode(&packed.encode()).unwrap(), packed);
    }

    #[test]
    fn sequences_of_every_shape_are_kept() {
        let clustered: Vec<u64> =
            (0..3000).chain([1 << 40]).chain((1 << 41)..(1 << 41) + 700).collect();
        for values in [
            vec![],
            vec![0],
            vec![u64::MAX],
            vec![0, u64::MAX],
            vec![7; 1000],
            (0..1000).collect(),
            (0..1000).map(|i| i * i * 977).collect(),
            clustered,
        ] {
            check(&values, &[5, 1 << 20, 1 << 40, (1 << 41) + 350]);
        }
    }

    #[test]
    fn falling_values_are_refused() {
        assert!(matches!(EliasFano::new(&[3, 2]), Err(Error::Damaged { .. })));
    }

    fn ascending() -> impl Strategy<Value = Vec<u64>> {
        let gaps = prop_oneof![0..3u64, 0..1000u64, 0..(1u64 << 45)];
        proptest::collection::vec(gaps, 0..300).prop_map(|gaps| {
            let mut sum = 0;
            gaps.iter()
                .map(|gap| {
                    sum += gap;
                    sum
                })
                .collect()
        })
    }

    proptest! {
        #[test]
        fn the_slice_agrees(values in ascending(), probes in proptest::collection::vec(any::<u64>(), 0..20)) {
            check(&values, &probes);
        }

        /// A flipped bit is found, or the elements are still in order and answer as a slice does.
        #[test]
        fn damaged_bytes_are_refused_or_consistent(values in ascending(), at in any::<usize>(), bit in 0..8u32) {
            let mut bytes = EliasFano::new(&values).unwrap().encode();
            let at = at % bytes.len();
            bytes[at] ^= 1u8 << bit;
            if let Ok(read) = EliasFano::decode(&bytes) {
                let values: Vec<u64> = read.iter().collect();
                check(&values, &[]);
                prop_assert_eq!(read.encode(), bytes);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = EliasFano::decode(&bytes);
        }

        #[test]
        fn truncated_bytes_are_refused(values in ascending(), cut in 1..64usize) {
            let bytes = EliasFano::new(&values).unwrap().encode();
            let kept = bytes.len().saturating_sub(cut);
            prop_assert!(EliasFano::decode(&bytes[..kept]).is_err());
        }
    }
}
