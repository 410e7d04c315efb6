//! A key as it appears in an address.

use ground::Key;
use http::StatusCode;
use origin::KEY_BYTES_MAX;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use wire::problem::Problem;

const KEY_ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// A key as it appears in its URL.
pub fn escaped(key: &[u8]) -> String {
    percent_encoding::percent_encode(key, KEY_ESCAPED).to_string()
}

/// The key of a path below `/objects/`.
pub fn key_of(encoded: &str) -> Result<Key, Problem> {
    let bad = |what: &str| Problem::new(StatusCode::BAD_REQUEST, what);
    let bytes = encoded.as_bytes();
    for (index, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%') {
        let digits = bytes.get(index + 1..index + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(bad("the key has a % that is not followed by two hexadecimal digits; \
                write % itself as %25"));
        }
    }
    let key: Vec<u8> = percent_encoding::percent_decode_str(encoded).collect();
    if key.is_empty() {
        return Err(bad(
            "the key is empty; write it after /objects/, or list with /objects?prefix=",
        ));
    }
    if key.len() > KEY_BYTES_MAX {
        return Err(bad(&format!(
            "the key has {} bytes; at most {KEY_BYTES_MAX} are taken",
            key.len()
        )));
    }
    Ok(Key::from(key))
}
