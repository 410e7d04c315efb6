//! Maps keys to object names of an S3-compatible store, and back.
//!
//! A *plain* key is its own name, so that it is the same for us and for other tools. A key is plain
//! if it is UTF-8 text without control characters, its parts between slashes are neither empty nor
//! `.` nor `..` and have at most 255 bytes (the limit of stores that keep objects as files), the
//! name fits the store's 1024 bytes, and the first part is not `!key`.
//!
//! The name of any other key is `!key/` and its bytes in base 32 with the extended hexadecimal
//! alphabet (RFC 4648, section 7: `0` to `9`, `a` to `v`, five bits each), which sorts as the bytes
//! do. If such a key is over 120 bytes, its name has the first 120, `-` and 32 digits of the key's
//! BLAKE3; the whole key is in the object's metadata.
//!
//! Names of both kinds are thus listed in key order, and a listing merges two sorted lists.

use std::fmt::Write;

/// The prefix of the names of keys that are not plain.
pub const ESCAPED: &str = "!key/";
/// The longest name in a store.
pub const NAME_BYTES_MAX: usize = 1024;
/// The longest part of a name between slashes.
const PART_BYTES_MAX: usize = 255;
/// The most bytes of a key in an escaped name (192 digits).
pub const WHOLE_BYTES_MAX: usize = 120;
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// The key, or its start, decoded from a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// The whole key.
    Whole(Vec<u8>),
    /// The start of the key; the metadata holds the whole key.
    Cut(Vec<u8>),
}

/// Whether a text is a plain name. Followed by `/`, it can then start other plain names.
pub fn is_plain(text: &str) -> bool {
    let parts = text.split('/');
    text.len() <= NAME_BYTES_MAX
        && text != "!key"
        && !text.starts_with(ESCAPED)
        && !text.chars().any(|c| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'))
        && parts
            .clone()
            .all(|part| !matches!(part, "" | "." | "..") && part.len() <= PART_BYTES_MAX)
}

/// Returns a plain key as text, for a store whose names begin with `prefix`; `None` if it is not
/// plain.
fn plain<'a>(key: &'a [u8], prefix: &str) -> Option<&'a str> {
    let text = std::str::from_utf8(key).ok()?;
    (is_plain(text) && prefix.len() + text.len() <= NAME_BYTES_MAX).then_some(text)
}

/// Returns the name of a key, and whether the metadata must hold the whole key.
pub fn name_of(key: &[u8], prefix: &str) -> (String, bool) {
    if let Some(text) = plain(key, prefix) {
        return (format!("{prefix}{text}"), false);
    }
    let start = &key[..key.len().min(WHOLE_BYTES_MAX)];
    let mut name = format!("{prefix}{ESCAPED}{}", digits_of(start));
    let cut = key.len() > WHOLE_BYTES_MAX;
    if cut {
        let _ = write!(name, "-{}", &blake3::hash(key).to_hex().as_str()[..32]);
    }
    (name, cut)
}

/// Decodes a name; `None` if no key has this name.
pub fn key_of(name: &str, prefix: &str) -> Option<Named> {
    let rest = name.strip_prefix(prefix)?;
    let Some(escaped) = rest.strip_prefix(ESCAPED) else {
        return plain(rest.as_bytes(), prefix).map(|text| Named::Whole(text.into()));
    };
    if let Some((digits, hash)) = escaped.split_once('-') {
        let start = bytes_of(digits)?;
        let hexadecimal = hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let whole = start.len() == WHOLE_BYTES_MAX && hash.len() == 32 && hexadecimal;
        return whole.then_some(Named::Cut(start));
    }
    let key = bytes_of(escaped)?;
    // Each key has exactly one name: rejects escaped plain keys and non-zero padding bits.
    (name_of(&key, prefix).0 == name).then_some(Named::Whole(key))
}

/// Encodes bytes in base 32; the last digit is padded with zero bits.
pub fn digits_of(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 5 + 1);
    let (mut held, mut bits) = (0u32, 0);
    for &byte in bytes {
        held = held << 8 | u32::from(byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(char::from(DIGITS[(held >> bits) as usize & 31]));
        }
        held &= (1 << bits) - 1;
    }
    if bits > 0 {
        text.push(char::from(DIGITS[(held << (5 - bits)) as usize & 31]));
    }
    text
}

/// Returns the digits shared by the names of all keys that begin with these bytes.
pub fn shared_digits(bytes: &[u8]) -> String {
    let mut digits = digits_of(&bytes[..bytes.len().min(WHOLE_BYTES_MAX)]);
    digits.truncate(bytes.len().min(WHOLE_BYTES_MAX) * 8 / 5);
    digits
}

/// Decodes digits; `None` if they are malformed or empty.
pub fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut held, mut bits) = (0u32, 0);
    for digit in digits.bytes() {
        held = held << 5 | DIGITS.iter().position(|d| *d == digit)? as u32;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
        held &= (1 << bits) - 1;
    }
    (!bytes.is_empty() && held == 0 && bits < 5).then_some(bytes)
}

/// Whether `text` is a valid prefix (before a slash) of object names in a store.
pub fn is_plain_prefix(text: &str) -> bool {
    text.len() <= 255 && is_plain(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn plain_keys_are_their_names_and_others_are_not() {
        for key in ["a", "a/b c!~%20/ä.jpg", "!keys", "..a/b..", "a/!key"] {
            assert_eq!(name_of(key.as_bytes(), "x/"), (format!("x/{key}"), false));
        }
        let long = "l".repeat(256);
        for key in ["/a", "a/", "a//b", ".", "a/../b", "a\n", "\u{80}", "!key/a", "!key", &long] {
            let (name, _) = name_of(key.as_bytes(), "");
            assert!(name.starts_with(ESCAPED), "{key:?}: {name}");
        }
        assert_eq!(name_of(b"\xff\x00", "x/").0, "x/!key/vs00");
        assert_eq!(key_of("x/!key/vs00", "x/"), Some(Named::Whole(b"\xff\x00".to_vec())));
        // Names that no key has: of a plain key, with bits after the end, of another prefix.
        for name in ["x/!key/c4", "x/!key/vs01", "x/!key/", "y/a", "x/", "x/a/", "x/!key/vs00-a"] {
            assert_eq!(key_of(name, "x/"), None, "{name}");
        }
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            proptest::collection::vec(any::<u8>(), 1..300),
            proptest::collection::vec(any::<u8>(), 1..=1024),
            proptest::collection::vec(0u8..3, 1..6),
            "[a-c/.!]{1,6}".prop_map(String::into_bytes),
            "\\PC{1,20}".prop_map(String::into_bytes),
        ]
    }

    proptest! {
        #[test]
        fn every_key_has_a_name_and_every_name_its_key(key in keys()) {
            let (name, cut) = name_of(&key, "pre/");
            prop_assert!(name.len() <= NAME_BYTES_MAX);
            prop_assert!(name.split('/').all(|part| !part.is_empty() && part.len() <= 255));
            match key_of(&name, "pre/").unwrap() {
                Named::Whole(back) => prop_assert!(back == key && !cut),
                Named::Cut(start) => prop_assert!(key.starts_with(&start) && cut),
            }
        }

        #[test]
        fn names_of_one_kind_sort_as_their_keys(mut keys in proptest::collection::vec(keys(), 2..20)) {
            keys.sort();
            keys.dedup();
            for escaped in [true, false] {
                let kind = |key: &&Vec<u8>| name_of(key, "").0.starts_with(ESCAPED) == escaped;
                let kept: Vec<_> = keys.iter().filter(kind).collect();
                for pair in kept.windows(2) {
                    let (a, b) = (name_of(pair[0], "").0, name_of(pair[1], "").0);
                    let same = pair[0].len().min(pair[1].len()) > WHOLE_BYTES_MAX
                        && pair[0][..WHOLE_BYTES_MAX] == pair[1][..WHOLE_BYTES_MAX];
                    prop_assert!(a < b || same, "{a} {b}");
                }
            }
        }

        #[test]
        fn shared_digits_begin_the_names_of_all_that_begin_so(
            start in proptest::collection::vec(any::<u8>(), 0..130),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let key = [start.as_slice(), b"\xff", rest.as_slice()].concat();
            let name = name_of(&key, "").0;
            let digits = name.strip_prefix(ESCAPED).unwrap();
            prop_assert!(digits.starts_with(&shared_digits(&start)));
        }

        #[test]
        fn any_name_is_read_without_panic(name in ".*") {
            let _ = key_of(&name, "");
            let _ = key_of(&format!("{ESCAPED}{name}"), "");
        }
    }
}
