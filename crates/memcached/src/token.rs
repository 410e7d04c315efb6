//! Words of a line, decimal numbers, base64.

use memchr::memchr;

/// The words of a line, which spaces separate, one or several.
#[derive(Clone, Debug)]
pub(crate) struct Tokens<'a>(pub &'a [u8]);

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
        if self.0.is_empty() {
            return None;
        }
        let (token, rest) = split_word(self.0);
        self.0 = rest;
        Some(token)
    }
}

impl<'a> Tokens<'a> {
    /// The words that are left, as they stand in the line.
    pub fn remaining(mut self) -> &'a [u8] {
        while let [b' ', rest @ ..] = self.0 {
            self.0 = rest;
        }
        self.0
    }
}

/// The bytes before the first space, and those from it on.
#[inline]
pub(crate) fn split_word(line: &[u8]) -> (&[u8], &[u8]) {
    let end = memchr(b' ', line).unwrap_or(line.len());
    line.split_at_checked(end).unwrap_or((line, &[]))
}

/// The line without spaces at its beginning.
#[inline]
pub(crate) fn trim_start(mut line: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = line {
        line = rest;
    }
    line
}

/// The line without spaces at its end.
#[inline]
pub(crate) fn trim_end(mut line: &[u8]) -> &[u8] {
    while let [rest @ .., b' '] = line {
        line = rest;
    }
    line
}

/// A decimal number of at most `digits_max` digits and at most `max`; nothing but digits.
#[inline]
pub(crate) fn number(token: &[u8], digits_max: usize, max: u64) -> Option<u64> {
    if token.is_empty() || token.len() > digits_max {
        return None;
    }
    let mut sum = 0u64;
    for byte in token {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        sum = sum.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    (sum <= max).then_some(sum)
}

/// A decimal number of 64 bits.
#[inline]
pub(crate) fn number_u64(token: &[u8]) -> Option<u64> {
    number(token, 20, u64::MAX)
}

/// A decimal number of 64 bits with a sign, such as an expiry. Of a larger number than 32 bits hold memcached takes the lower ones,
/// in every release: a date after 2038 is long past for it.
pub(crate) fn number_i64(token: &[u8]) -> Option<i64> {
    match token {
        [b'-', digits @ ..] => 0i64.checked_sub_unsigned(number(digits, 19, 1 << 63)?),
        digits => number(digits, 19, i64::MAX as u64).map(u64::cast_signed),
    }
}

/// Appends a number in decimal digits.
pub(crate) fn put_number(mut number: u64, out: &mut Vec<u8>) {
    let start = out.len();
    loop {
        out.push(b'0' + (number % 10) as u8);
        number /= 10;
        if number == 0 {
            break;
        }
    }
    if let Some(digits) = out.get_mut(start..) {
        digits.reverse();
    }
}

/// The value of a character of base64.
fn sextet(byte: u8) -> Option<u32> {
    Some(match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Appends the bytes that a key of a meta request with the flag `b` names, and returns true.
///
/// A text key and an encoded one of the same bytes name the same item: whoever chooses a server by
/// the key decodes it first. Returns false, with nothing appended, if the key is empty or is not
/// canonical base64 (RFC 4648 with padding, unused bits zero); [`parse`](crate::parse) has refused
/// such keys.
pub fn decode_base64(key: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let valid = decode_blocks(key, |bytes| out.extend_from_slice(bytes)).is_some();
    if !valid {
        out.truncate(start);
    }
    valid
}

/// Whether [`decode_base64`] would return true.
pub(crate) fn is_base64(key: &[u8]) -> bool {
    decode_blocks(key, |_| ()).is_some()
}

fn decode_blocks(key: &[u8], mut put: impl FnMut(&[u8])) -> Option<()> {
    let (blocks, []) = key.as_chunks::<4>() else { return None };
    let (last, blocks) = blocks.split_last()?;
    for block in blocks {
        put(&decode_block(block)?);
    }
    match last {
        [a, b, b'=', b'='] => {
            let [first, 0, 0] = decode_block(&[*a, *b, b'A', b'A'])? else { return None };
            put(&[first]);
        }
        [a, b, c, b'='] => {
            let [first, second, 0] = decode_block(&[*a, *b, *c, b'A'])? else { return None };
            put(&[first, second]);
        }
        whole => put(&decode_block(whole)?),
    }
    Some(())
}

fn decode_block(block: &[u8; 4]) -> Option<[u8; 3]> {
    let mut bits = 0;
    for byte in block {
        bits = bits << 6 | sextet(*byte)?;
    }
    let [_, bytes @ ..] = bits.to_be_bytes();
    Some(bytes)
}
