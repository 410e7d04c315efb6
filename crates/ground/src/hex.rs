//! Bytes as hexadecimal digits.

const LOWER: &[u8; 16] = b"0123456789abcdef";
const UPPER: &[u8; 16] = b"0123456789ABCDEF";

fn pair(byte: u8, digits: &[u8; 16]) -> [u8; 2] {
    [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]]
}

/// Appends two lower-case digits for each byte.
pub fn push(bytes: &[u8], to: &mut Vec<u8>) {
    to.extend(bytes.iter().flat_map(|&byte| pair(byte, LOWER)));
}

/// Two lower-case digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|&byte| pair(byte, LOWER)).map(char::from).collect()
}

/// Appends a byte as URLs escape it: `%` and two digits, in upper case as RFC 3986 wants them.
pub fn push_percent(byte: u8, to: &mut Vec<u8>) {
    to.push(b'%');
    to.extend(pair(byte, UPPER));
}

/// The bytes of pairs of digits of either case; `None` if there is anything else.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(byte).collect::<Option<Vec<u8>>>();
    bytes.filter(|_| rest.is_empty())
}

/// The 32 bytes of a hash; `None` if the text is anything but 64 digits.
pub fn decode_hash(text: &str) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (to, pair) in bytes.iter_mut().zip(pairs) {
        *to = byte(pair)?;
    }
    Some(bytes)
}

fn byte([high, low]: &[u8; 2]) -> Option<u8> {
    // Not `from_str_radix`, which takes a sign.
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    Some(digit(*high)? << 4 | digit(*low)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_and_back() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 37) as u8);
        let digits = encode(&bytes);
        let mut pushed = Vec::new();
        push(&bytes, &mut pushed);
        assert_eq!(pushed, digits.as_bytes());
        for text in [digits.clone(), digits.to_ascii_uppercase()] {
            assert_eq!(decode_hash(&text), Some(bytes));
            assert_eq!(decode(&text).as_deref(), Some(&bytes[..]));
        }
        for wrong in ["", &digits[1..], &format!("{digits}00"), &digits.replace('0', "+")] {
            assert_eq!(decode_hash(wrong), None);
        }
        for short in [&b""[..], b"a/b", &[0, 255, 16]] {
            assert_eq!(decode(&encode(short)).as_deref(), Some(short));
        }
        for wrong in ["0", "0g", "+f", "\u{fc}"] {
            assert_eq!(decode(wrong), None);
        }
        let mut escaped = Vec::new();
        push_percent(0xe9, &mut escaped);
        assert_eq!(escaped, b"%E9");
    }
}
