//! Maps keys to file names and back. Any bytes are allowed in a key; names are never too long and
//! never leave the folder.
//!
//! An object is stored at `XX/NAME`. `XX` are two hexadecimal digits of the key's hash, so that
//! half a million objects make two thousand per folder. `NAME` is the key with every byte but
//! letters, digits, `-`, `_` and an inner `.` written as `%` and two digits. A name over 200
//! characters is cut to about its first 150, followed by `~` and 32 digits of the key's hash; the
//! file holds the whole key. No name is `.`, `..`, hidden or contains a `/`.

use std::path::PathBuf;

/// The longest escaped key that is used as a name without a cut.
const NAME_MAX: usize = 200;
/// The length kept of a longer one, for readability.
const NAME_KEPT: usize = 150;

/// The key, or its start, decoded from a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// The whole key.
    Whole(Vec<u8>),
    /// The start of the key; the file holds the whole key.
    Cut(Vec<u8>),
}

/// Returns the folder and the name of a key's file.
pub(crate) fn path_of(key: &[u8]) -> PathBuf {
    let hash = blake3::hash(key).to_hex();
    let mut name = String::with_capacity(key.len() + 16);
    for (index, &byte) in key.iter().enumerate() {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'_')
            || (byte == b'.' && index > 0);
        if plain {
            name.push(char::from(byte));
        } else {
            name.push_str(&format!("%{byte:02x}"));
        }
        if name.len() > NAME_MAX {
            break;
        }
    }
    if name.len() > NAME_MAX {
        let mut cut = NAME_KEPT;
        // Never cut inside an escape.
        while name.as_bytes()[cut - 1] == b'%' || name.as_bytes()[cut - 2] == b'%' {
            cut -= 1;
        }
        name.truncate(cut);
        name.push('~');
        name.push_str(&hash.as_str()[..32]);
    }
    PathBuf::from(&hash.as_str()[..2]).join(name)
}

/// Decodes a name; `None` if no key has this name.
pub(crate) fn key_of(name: &str) -> Option<Named> {
    let (escaped, cut) = match name.split_once('~') {
        Some((escaped, hash)) if hash.len() == 32 => (escaped, true),
        Some(_) => return None,
        None => (name, false),
    };
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(bytes.next()?)? * 16 + digit(bytes.next()?)?;
            key.push(value as u8);
        } else {
            key.push(byte);
        }
    }
    if key.is_empty() {
        return None;
    }
    Some(if cut { Named::Cut(key) } else { Named::Whole(key) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(key: &[u8], expected: &str) {
        let path = path_of(key);
        assert_eq!(path.file_name().unwrap().to_str().unwrap(), expected);
    }

    #[test]
    fn names_are_safe_and_readable() {
        check(b"cat.jpg", "cat.jpg");
        check(b"..", "%2e.");
        check(b"../../etc/passwd", "%2e.%2f..%2fetc%2fpasswd");
        check(b"a/b~c%", "a%2fb%7ec%25");
        check(&[0, 255], "%00%ff");
    }

    proptest! {
        #[test]
        fn every_key_has_a_name_and_every_name_its_key(
            key in proptest::collection::vec(any::<u8>(), 1..crate::listing::KEY_BYTES_MAX)
        ) {
            let path = path_of(&key);
            let parts: Vec<_> = path.components().collect();
            prop_assert_eq!(parts.len(), 2);
            let name = path.file_name().unwrap().to_str().unwrap();
            prop_assert!(name.len() <= 255 && !name.starts_with('.'));
            match key_of(name).unwrap() {
                Named::Whole(back) => prop_assert_eq!(back, key),
                Named::Cut(start) => {
                    prop_assert!(key.starts_with(&start) && start.len() >= 45);
                }
            }
        }

        #[test]
        fn any_name_is_read_without_panic(name in ".*") {
            let _ = key_of(&name);
        }
    }
}
