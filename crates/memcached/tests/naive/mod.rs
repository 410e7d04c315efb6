//! A naive twin of the codec: it has the whole stream before it, copies what it likes, and
//! follows the protocol's description word by word. Shared by the property tests and the fuzz
//! targets.
#![allow(dead_code, unused_imports, reason = "each user needs a part")]

mod reply;
mod request;

pub use reply::{FirstReply, first_reply, first_reply_in_chunks};
pub use request::{Item, encoded, in_chunks, items, plain};

use memcached::Limits;

/// Bounds so small that short inputs reach them.
pub const SMALL: Limits =
    Limits { key_bytes_max: 12, value_bytes_max: 40, keys_max: 4, line_bytes_max: 120 };

/// The words between single or several spaces.
fn words(line: &[u8]) -> Vec<&[u8]> {
    line.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).collect()
}

/// A decimal number without a sign.
fn digits(word: &[u8], digits_max: usize, max: u128) -> Option<u128> {
    let text = std::str::from_utf8(word).ok()?;
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let value =
        if plain && text.len() <= digits_max { text.parse::<u128>().ok()? } else { return None };
    (value <= max).then_some(value)
}

/// Where the bytes of a stream are cut: chunks of these lengths, again and again.
pub struct Cuts<'a> {
    lengths: &'a [usize],
    at: usize,
}

impl<'a> Cuts<'a> {
    pub fn new(lengths: &'a [usize]) -> Cuts<'a> {
        Cuts { lengths, at: 0 }
    }

    /// The length of the next chunk, at least 1.
    fn next(&mut self) -> usize {
        let length = self.lengths.get(self.at % self.lengths.len().max(1)).copied();
        self.at += 1;
        length.unwrap_or(usize::MAX).max(1)
    }
}
