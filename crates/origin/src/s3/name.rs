//! Maps keys to object names of an S3-compatible store, and back.
//!
//! A *plain* key is its own name, so that it is the same for us and for other tools. A key can be plain
//! if it is UTF-8 text without control characters, has no part `..` between slashes, the
//! name fits the store's 1024 bytes, and the first part is not `!key`. Which of these keys are plain depends on what the
//! store can have ([`Form`]).
//!
//! A part `..` is never sent to a store: a proxy or a store that resolves it would lead out of the prefix and the bucket.
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
/// The longest part of a path.
const PART_BYTES_MAX: usize = 255;
/// The most bytes of a key in an escaped name (192 digits).
pub const WHOLE_BYTES_MAX: usize = 120;
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// What a store must be able to have as a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The path of a file, which every store can have.
    Path,
    /// A path with a slash at its end: the marker of a folder. Stores have it, some only without bytes.
    Folder,
    /// A text with parts that are empty, `.` or over 255 bytes. A store that keeps objects as files drops or refuses these parts.
    Text,
}

/// The plain name of a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Plain {
    pub name: String,
    pub form: Form,
}

/// The escaped name of a key.
#[derive(Debug, PartialEq, Eq)]
pub struct Escaped {
    pub name: String,
    /// Whether the name has only the start of the key, so that the metadata must hold the whole.
    pub is_cut: bool,
}

/// What is learnt of a store and its bucket.
#[derive(Clone, Copy, Debug)]
pub struct Naming {
    /// Whether the store has any text as a name ([`Form::Text`]), and takes `a//b` and `a/b` for two.
    pub takes_text: bool,
    /// Whether keys that can have plain names may have objects under escaped ones.
    pub has_escaped: bool,
}

/// The name of a key's object.
#[derive(Debug)]
pub struct ObjectName {
    pub text: String,
    /// Whether the metadata must hold the whole key.
    pub is_cut: bool,
    /// The plain name, if the object is one of version 1.0.0's. An object of another tool under it is not served before that is
    /// removed.
    pub shadowed: Option<String>,
}

impl From<Plain> for ObjectName {
    fn from(plain: Plain) -> ObjectName {
        ObjectName { text: plain.name, is_cut: false, shadowed: None }
    }
}

impl From<Escaped> for ObjectName {
    fn from(Escaped { name, is_cut }: Escaped) -> ObjectName {
        ObjectName { text: name, is_cut, shadowed: None }
    }
}

/// The key, or its start, decoded from a name.
#[derive(Debug, PartialEq, Eq)]
pub enum Named {
    /// The key of a plain name.
    Plain { key: Vec<u8>, form: Form },
    /// The whole key of an escaped name.
    Escaped(Vec<u8>),
    /// The start of the key of an escaped name; the metadata holds the whole key.
    Cut(Vec<u8>),
}

/// The form of a text that can be a plain name; `None` if it cannot.
pub fn form_of(text: &str) -> Option<Form> {
    let is_text = !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text != "!key"
        && !text.starts_with(ESCAPED)
        && !text.chars().any(|c| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}'))
        && text.split('/').all(|part| part != "..");
    let is_path = |text: &str| {
        text.split('/').all(|part| !matches!(part, "" | ".") && part.len() <= PART_BYTES_MAX)
    };
    is_text.then(|| match text.strip_suffix('/') {
        None if is_path(text) => Form::Path,
        Some(folder) if is_path(folder) => Form::Folder,
        _ => Form::Text,
    })
}

/// Whether a text is a path as [`Form::Path`] has it.
pub fn is_path(text: &str) -> bool {
    form_of(text) == Some(Form::Path)
}

/// Returns the plain name of a key in a store whose names begin with `prefix`; `None` if it cannot have one.
pub fn plain(key: &[u8], prefix: &str) -> Option<Plain> {
    let text = std::str::from_utf8(key).ok()?;
    let form = form_of(text).filter(|_| prefix.len() + text.len() <= NAME_BYTES_MAX)?;
    Some(Plain { name: format!("{prefix}{text}"), form })
}

/// Returns the escaped name of a key.
pub fn escaped(key: &[u8], prefix: &str) -> Escaped {
    let start = &key[..key.len().min(WHOLE_BYTES_MAX)];
    let mut name = format!("{prefix}{ESCAPED}{}", digits_of(start));
    let is_cut = key.len() > WHOLE_BYTES_MAX;
    if is_cut {
        let _ = write!(name, "-{}", &blake3::hash(key).to_hex().as_str()[..32]);
    }
    Escaped { name, is_cut }
}

/// Whether a key may have this escaped name: version 1.0.0 escaped all keys whose form is not that of a path, and their
/// objects are still there.
pub fn is_escaped_as(key: &[u8], name: &str, prefix: &str) -> bool {
    plain(key, prefix).is_none_or(|plain| plain.form != Form::Path)
        && escaped(key, prefix).name == name
}

/// Decodes a name; `None` if no key has this name.
pub fn key_of(name: &str, prefix: &str) -> Option<Named> {
    let rest = name.strip_prefix(prefix)?;
    let Some(digits) = rest.strip_prefix(ESCAPED) else {
        let form = plain(rest.as_bytes(), prefix)?.form;
        return Some(Named::Plain { key: rest.into(), form });
    };
    if let Some((digits, hash)) = digits.split_once('-') {
        let start = bytes_of(digits)?;
        let hexadecimal = hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let whole = start.len() == WHOLE_BYTES_MAX && hash.len() == 32 && hexadecimal;
        return whole.then_some(Named::Cut(start));
    }
    let key = bytes_of(digits)?;
    // Rejects escaped paths and non-zero padding bits.
    is_escaped_as(&key, name, prefix).then_some(Named::Escaped(key))
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
    text.len() <= 255 && is_path(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_text_is_its_name_and_other_keys_are_escaped() {
        let long = "l".repeat(256);
        let forms = [
            (Form::Path, &["a", "a/b c!~%20/ä.jpg", "!keys", "..a/b..", "a/!key", "..."][..]),
            (Form::Folder, &["a/", "a/b/", "!keys/"]),
            (Form::Text, &["/a", "a//b", "a//", "/", "//", ".", "./a", "a/.", "a/./", &long]),
        ];
        for (form, keys) in forms {
            for key in keys {
                assert_eq!(form_of(key), Some(form), "{key:?}");
                let named = Plain { name: format!("x/{key}"), form };
                assert_eq!(plain(key.as_bytes(), "x/"), Some(named), "{key:?}");
                let key = key.as_bytes().to_vec();
                assert_eq!(
                    key_of(&format!("x/{}", String::from_utf8_lossy(&key)), "x/"),
                    Some(Named::Plain { key, form })
                );
            }
        }
        let full = "f/".repeat(512);
        for key in
            ["", "..", "../a", "a/..", "a/../b", "a\n", "\u{80}", "!key/a", "!key", "!key/", &full]
        {
            assert_eq!(plain(key.as_bytes(), "x/"), None, "{key:?}");
        }
        assert_eq!(form_of(&full), Some(Form::Folder));
        assert_eq!(escaped(b"\xff\x00", "x/").name, "x/!key/vs00");
        assert_eq!(key_of("x/!key/vs00", "x/"), Some(Named::Escaped(b"\xff\x00".to_vec())));
        // As version 1.0.0 named the key `a/`.
        assert_eq!(key_of("x/!key/c4ng", "x/"), Some(Named::Escaped(b"a/".to_vec())));
        // Names that no key has: of a path, with bits after the end, of another prefix, of the prefix alone.
        for name in ["x/!key/c4", "x/!key/vs01", "x/!key/", "y/a", "x/", "x/a/..", "x/!key/vs00-a"]
        {
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
            if let Some(Plain { name, form }) = plain(&key, "pre/") {
                prop_assert!(name.len() <= NAME_BYTES_MAX);
                prop_assert!(name.split('/').all(|part| part != ".."));
                prop_assert_eq!(key_of(&name, "pre/"), Some(Named::Plain { key: key.clone(), form }));
                prop_assert!(!name.starts_with("pre/!key/"));
            }
            let Escaped { name, is_cut } = escaped(&key, "pre/");
            prop_assert_eq!(form_of(&name), Some(Form::Path), "every store can have it");
            let is_path = plain(&key, "pre/").is_some_and(|plain| plain.form == Form::Path);
            match key_of(&name, "pre/") {
                Some(Named::Escaped(back)) => prop_assert!(back == key && !is_cut && !is_path),
                Some(Named::Cut(start)) => prop_assert!(key.starts_with(&start) && is_cut),
                other => prop_assert!(other.is_none() && is_path),
            }
        }

        #[test]
        fn names_of_one_kind_sort_as_their_keys(mut keys in proptest::collection::vec(keys(), 2..20)) {
            keys.sort();
            keys.dedup();
            for pair in keys.windows(2) {
                let (a, b) = (escaped(&pair[0], "").name, escaped(&pair[1], "").name);
                let same = pair[0].len().min(pair[1].len()) > WHOLE_BYTES_MAX
                    && pair[0][..WHOLE_BYTES_MAX] == pair[1][..WHOLE_BYTES_MAX];
                prop_assert!(a < b || same, "{a} {b}");
            }
            let names: Vec<_> = keys.iter().filter_map(|key| plain(key, "")).collect();
            prop_assert!(names.is_sorted_by(|one, other| one.name < other.name), "{names:?}");
        }

        #[test]
        fn shared_digits_begin_the_names_of_all_that_begin_so(
            start in proptest::collection::vec(any::<u8>(), 0..130),
            rest in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            let key = [start.as_slice(), b"\xff", rest.as_slice()].concat();
            let name = escaped(&key, "").name;
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
