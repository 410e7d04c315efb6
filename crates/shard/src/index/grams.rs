//! Tables of the rows of all pairs and triples of symbols, which replace the first steps of a
//! search.
//!
//! A pattern is searched from its end, one step per byte. The tables give the rows of the last
//! three bytes at once, and the pair with which a step starts bounds its rows. *Pairs* is dense:
//! one row number for every two symbols, `σ(σ + 1)` in all. *Triples* lists only the triples that
//! occur, five bytes each, grouped by pair. A table that would exceed its share of the text is
//! omitted (see [`orders`]); searches then take more steps.

use crate::bits::load::u32_at;

/// Symbols are numbered from 1 in byte order; 0 is the end of the text.
pub(crate) type Code = u16;

/// The tables within stored bytes; an omitted table is empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grams<'a> {
    pub symbols: u32,
    /// The first row of each pair, in row order, and the number of rows.
    pub pairs: &'a [u8],
    /// The first triple of each pair, and the number of triples.
    pub places: &'a [u8],
    /// The third symbol of each triple (its code less 1).
    pub thirds: &'a [u8],
    /// The first row of each triple.
    pub starts: &'a [u8],
}

/// Decides by rule of thumb whether to store pairs and triples: they may take at most a 16th and a
/// 32nd of the text. (`triples` is the number of triples that occur. Counting them takes `σ³`
/// counters, so they are not counted if the text has fewer bytes than that.)
pub(crate) fn orders(len: usize, symbols: usize, triples: usize) -> (bool, bool) {
    let pairs = symbols * (symbols + 1) + 1;
    let with_pairs = 4 * pairs <= len / 16;
    (with_pairs, with_pairs && 4 * pairs + 5 * triples <= len / 32)
}

impl Grams<'_> {
    #[inline(always)]
    fn pair_index(&self, first: Code, second: Code) -> usize {
        (first as usize - 1) * (self.symbols as usize + 1) + second as usize
    }

    /// The rows of the suffixes that start with two symbols, if the table exists. The first symbol
    /// must not be the end of the text.
    #[inline(always)]
    pub fn pair(&self, first: Code, second: Code) -> Option<(u32, u32)> {
        if self.pairs.is_empty() {
            return None;
        }
        let at = 4 * self.pair_index(first, second);
        Some((u32_at(self.pairs, at), u32_at(self.pairs, at + 4)))
    }

    /// The rows of the suffixes that start with three symbols, if the table exists. None may be the
    /// end of the text.
    #[inline(always)]
    pub fn triple(&self, codes: [Code; 3]) -> Option<(u32, u32)> {
        if self.places.is_empty() {
            return None;
        }
        let at = 4 * self.pair_index(codes[0], codes[1]);
        let (first, end) = (u32_at(self.places, at) as usize, u32_at(self.places, at + 4) as usize);
        let listed = self.thirds.get(first..end).unwrap_or(&[]);
        let Some(place) = listed.iter().position(|&third| Code::from(third) + 1 == codes[2]) else {
            return Some((0, 0));
        };
        let start = u32_at(self.starts, 4 * (first + place));
        let next = if place + 1 < listed.len() {
            u32_at(self.starts, 4 * (first + place + 1))
        } else {
            u32_at(self.pairs, at + 4)
        };
        Some((start, next))
    }
}

/// The tables in their stored form; an omitted table is empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct GramTables {
    pub pairs: Vec<u8>,
    pub places: Vec<u8>,
    pub thirds: Vec<u8>,
    pub starts: Vec<u8>,
}

/// Counts the pairs and triples of `text`, whose bytes have these codes. `starts` holds the first
/// row of each symbol's suffixes. Takes one pass over the text, and `4σ³` bytes of memory.
pub(crate) fn tables(text: &[u8], codes: &[Code; 256], starts: &[u32]) -> GramTables {
    let symbols = starts.len() - 2;
    let mut tables = GramTables::default();
    if !orders(text.len(), symbols, 0).0 {
        return tables;
    }
    let cube = symbols.pow(3);
    let by_threes = cube <= text.len();
    let mut counts = vec![0u32; if by_threes { cube } else { symbols * symbols }];
    let code = |byte: u8| codes[byte as usize] as usize - 1;
    if by_threes {
        for window in text.windows(3) {
            counts[(code(window[0]) * symbols + code(window[1])) * symbols + code(window[2])] += 1;
        }
    } else {
        for window in text.windows(2) {
            counts[code(window[0]) * symbols + code(window[1])] += 1;
        }
    }
    let occurring = counts.iter().filter(|&&count| count > 0).count();
    let with_triples = by_threes && orders(text.len(), symbols, occurring).1;
    let tail: Vec<usize> = text.iter().rev().take(2).rev().map(|&byte| code(byte)).collect();
    let cell = if by_threes { symbols } else { 1 };
    for first in 0..symbols {
        let mut row = starts[first + 1];
        let end = starts[first + 2];
        // The text's last byte forms a pair with the end.
        tables.pairs.extend_from_slice(&row.to_le_bytes());
        tables.places.extend_from_slice(&(tables.thirds.len() as u32).to_le_bytes());
        row += u32::from(tail.last() == Some(&first));
        for second in 0..symbols {
            tables.pairs.extend_from_slice(&row.to_le_bytes());
            tables.places.extend_from_slice(&(tables.thirds.len() as u32).to_le_bytes());
            // The pair before the end of the text is not part of a triple.
            row += u32::from(by_threes && tail == [first, second]);
            let pair = first * symbols + second;
            for (third, &count) in counts[pair * cell..(pair + 1) * cell].iter().enumerate() {
                if count > 0 && with_triples {
                    tables.thirds.push(third as u8);
                    tables.starts.extend_from_slice(&row.to_le_bytes());
                }
                row += count;
            }
        }
        assert_eq!(row, end, "pairs of symbol {first} do not fill its column");
    }
    let rows = starts[symbols + 1];
    tables.pairs.extend_from_slice(&rows.to_le_bytes());
    if with_triples {
        tables.places.extend_from_slice(&(tables.thirds.len() as u32).to_le_bytes());
    } else {
        tables.places.clear();
    }
    tables
}
