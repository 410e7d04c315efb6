//! The metadata of an object in as few bytes as hold it, in front of the bytes of a small object.
//!
//! Objects of a few hundred bytes are many, and [`Metadata`] takes several times as much as they do: strings and vectors with
//! capacities, each with an allocation. The form is of this process alone; files have [`Metadata::encode`].
//!
//! The form's flags (1 byte), and its length if it has texts (4). Then the size, if the object's bytes do not tell it (8); the
//! time (8); the version, as 16 bytes if it is 32 hexadecimal digits with or without `h-` before them, else as a text; and, if
//! there are any attributes, the content type, names and values of user metadata as texts. Each text has its length (4) before
//! it. Numbers are little-endian.

use origin::{Attributes, Metadata};

/// The version is 32 hexadecimal digits in lower case, and `h-` precedes them.
const DIGITS: u8 = 1;
const MARKED: u8 = 2;
/// There are attributes.
const ATTRIBUTES: u8 = 4;
/// The size is told: the bytes are elsewhere.
const SIZED: u8 = 8;

/// What precedes the digits of a version that derives from a SHA-256.
const MARK: &str = "h-";
/// The length of a form without texts and without a size: flags, time and version.
const PLAIN_BYTES: usize = 1 + 8 + 16;

fn add_text(packed: &mut Vec<u8>, text: &str) {
    // Texts come from headers, which are far below 4 GiB.
    packed.extend_from_slice(&(text.len() as u32).to_le_bytes());
    packed.extend_from_slice(text.as_bytes());
}

/// Writes the form of metadata. `sized`: with the size.
pub fn pack(metadata: &Metadata, sized: bool) -> Vec<u8> {
    let Metadata { size, etag, modified_unix_us, attributes } = metadata;
    let Attributes { content_type, user } = attributes;
    let (marked, digits) = match etag.strip_prefix(MARK) {
        Some(digits) => (MARKED, digits),
        None => (0, &**etag),
    };
    let digits = bytes_of(digits);
    let mut flags = if sized { SIZED } else { 0 };
    if digits.is_some() {
        flags |= DIGITS | marked;
    }
    if content_type.is_some() || !user.is_empty() {
        flags |= ATTRIBUTES;
    }
    let mut packed = Vec::with_capacity(64);
    packed.push(flags);
    let has_texts = has_texts(flags);
    if has_texts {
        packed.extend_from_slice(&[0; 4]);
    }
    if sized {
        packed.extend_from_slice(&size.to_le_bytes());
    }
    packed.extend_from_slice(&modified_unix_us.to_le_bytes());
    match digits {
        Some(bytes) => packed.extend_from_slice(&bytes),
        None => add_text(&mut packed, etag),
    }
    if flags & ATTRIBUTES != 0 {
        add_text(&mut packed, content_type.as_deref().unwrap_or(""));
        for text in user.iter().flat_map(|(name, value)| [name, value]) {
            add_text(&mut packed, text);
        }
    }
    if has_texts {
        let length = packed.len() as u32;
        packed[1..5].copy_from_slice(&length.to_le_bytes());
    }
    packed
}

/// Whether a form has texts, and its length after the flags.
fn has_texts(flags: u8) -> bool {
    flags & DIGITS == 0 || flags & ATTRIBUTES != 0
}

/// The bytes of 32 hexadecimal digits in lower case.
fn bytes_of(digits: &str) -> Option<[u8; 16]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// A version of a packed form.
#[derive(Clone, Copy)]
pub enum PackedEtag<'a> {
    /// A hash.
    Digits {
        /// Whether the mark precedes the digits.
        marked: bool,
        /// In hexadecimal, lower case.
        digits: [u8; 32],
    },
    /// Any other.
    Text(&'a str),
}

impl PackedEtag<'_> {
    /// Appends the text.
    pub fn write(&self, to: &mut Vec<u8>) {
        match self {
            PackedEtag::Digits { marked, digits } => {
                to.extend_from_slice(if *marked { MARK.as_bytes() } else { b"" });
                to.extend_from_slice(digits);
            }
            PackedEtag::Text(text) => to.extend_from_slice(text.as_bytes()),
        }
    }
}

/// The parts of a packed form, which [`pack`] has written.
pub struct Packed<'a> {
    /// The size, if it is told.
    pub size: Option<u64>,
    /// Time of the write, microseconds since 1970.
    pub modified_unix_us: u64,
    /// The version.
    pub etag: PackedEtag<'a>,
    /// The texts.
    attributes: &'a [u8],
}

/// The length of the form at the start of `bytes`.
pub fn length(bytes: &[u8]) -> usize {
    let Some((flags, rest)) = bytes.split_first() else { return 0 };
    if !has_texts(*flags) {
        return PLAIN_BYTES + if flags & SIZED != 0 { 8 } else { 0 };
    }
    rest.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize)
}

fn take_number(bytes: &mut &[u8]) -> u64 {
    let Some((number, rest)) = bytes.split_first_chunk::<8>() else { return 0 };
    *bytes = rest;
    u64::from_le_bytes(*number)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *bytes = rest;
    std::str::from_utf8(text).ok()
}

impl<'a> Packed<'a> {
    /// Reads the form at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Packed<'a> {
        let flags = bytes.first().copied().unwrap_or(0);
        let start = if has_texts(flags) { 5 } else { 1 };
        let mut rest = bytes.get(start..length(bytes)).unwrap_or_default();
        let size = (flags & SIZED != 0).then(|| take_number(&mut rest));
        let modified_unix_us = take_number(&mut rest);
        let etag = if flags & DIGITS != 0 {
            let (packed, after) = rest.split_first_chunk::<16>().unwrap_or((&[0; 16], &[]));
            rest = after;
            let mut digits = [0; 32];
            for (pair, byte) in digits.chunks_exact_mut(2).zip(packed) {
                let digit = |value: u8| b"0123456789abcdef"[usize::from(value)];
                (pair[0], pair[1]) = (digit(byte >> 4), digit(byte & 15));
            }
            PackedEtag::Digits { marked: flags & MARKED != 0, digits }
        } else {
            PackedEtag::Text(take_text(&mut rest).unwrap_or_default())
        };
        let attributes = if flags & ATTRIBUTES != 0 { rest } else { &[] };
        Packed { size, modified_unix_us, etag, attributes }
    }

    /// The content type.
    pub fn content_type(&self) -> Option<&'a str> {
        self.texts().next().filter(|text| !text.is_empty())
    }

    /// The pairs of user metadata.
    pub fn user(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let mut texts = self.texts().skip(1);
        std::iter::from_fn(move || texts.next().zip(texts.next()))
    }

    fn texts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = self.attributes;
        std::iter::from_fn(move || take_text(&mut rest))
    }

    /// The length of [`Metadata::encode`].
    pub fn encoded_length(&self) -> usize {
        let etag = match self.etag {
            PackedEtag::Digits { marked, digits } => {
                digits.len() + if marked { MARK.len() } else { 0 }
            }
            PackedEtag::Text(text) => text.len(),
        };
        let texts: usize = self.user().map(|(name, value)| 4 + name.len() + value.len()).sum();
        20 + etag + 2 + self.content_type().map_or(0, str::len) + texts
    }

    /// The metadata of an object of `size` bytes. Costs an allocation for each text.
    pub fn metadata(&self, size: u64) -> Metadata {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let mut etag = Vec::with_capacity(34);
        self.etag.write(&mut etag);
        Metadata {
            size,
            etag: String::from_utf8(etag).unwrap_or_default().into(),
            modified_unix_us: self.modified_unix_us,
            attributes: Attributes {
                content_type: self.content_type().map(str::to_owned),
                user: self.user().map(owned).collect(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn etag() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9a-f]{32}", "h-[0-9a-f]{32}", "[0-9a-fA-Fh-]{0,40}", ".{0,40}"]
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_back(
            (size, sized, modified_unix_us) in any::<(u64, bool, u64)>(),
            etag in etag(),
            content_type in prop::option::of("[a-z/]{1,30}"),
            user in prop::collection::vec(("[a-z-]{0,20}", ".{0,20}"), 0..4),
            body in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let attributes = Attributes { content_type, user };
            let metadata = Metadata { size, etag: etag.into(), modified_unix_us, attributes };
            let mut bytes = pack(&metadata, sized);
            let digits = metadata.etag.strip_prefix(MARK).unwrap_or(&metadata.etag);
            if bytes_of(digits).is_some() && metadata.attributes == Attributes::default() && !sized {
                prop_assert_eq!(bytes.len(), 25);
            }
            let length_before = bytes.len();
            bytes.extend_from_slice(&body);
            prop_assert_eq!(length(&bytes), length_before);
            let packed = Packed::new(&bytes);
            prop_assert_eq!(packed.size, sized.then_some(size));
            prop_assert_eq!(packed.encoded_length(), metadata.encode().len());
            prop_assert_eq!(packed.metadata(size), metadata);
        }
    }
}
