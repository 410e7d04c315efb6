//! The keys and the entries of a listing.

use super::metadata::Metadata;
use ground::Key;

/// Longest key in bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// One object of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key.
    pub key: Key,
    /// Its metadata.
    pub metadata: Metadata,
}

/// An entry of a listing.
#[derive(Clone, Debug)]
pub enum Entry {
    /// An object.
    Object(Listed),
    /// All objects whose keys begin with this, which ends with the delimiter (a *common prefix* of S3's listings).
    Group(Vec<u8>),
}

impl Entry {
    /// The key, or what the group's keys begin with.
    pub fn key(&self) -> &[u8] {
        match self {
            Entry::Object(listed) => &listed.key,
            Entry::Group(prefix) => prefix,
        }
    }

    /// The position after it, for [`KeyRange::after`].
    pub fn end(&self) -> Vec<u8> {
        match self {
            Entry::Object(listed) => listed.key.to_vec(),
            Entry::Group(prefix) => behind(prefix),
        }
    }
}

/// The keys of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// What the keys begin with.
    pub prefix: Vec<u8>,
    /// Only keys greater than this.
    pub after: Option<Vec<u8>>,
    /// Keys that have this behind the prefix are listed as one [`Entry::Group`], which ends with it. Empty: none are.
    pub delimiter: Vec<u8>,
}

impl KeyRange {
    /// All keys that begin with `prefix`.
    pub fn new(prefix: &[u8]) -> KeyRange {
        KeyRange { prefix: prefix.to_vec(), ..KeyRange::default() }
    }

    /// The same keys, as far as they are greater than `after`.
    pub fn after(self, after: Option<Vec<u8>>) -> KeyRange {
        KeyRange { after, ..self }
    }

    /// The same keys, grouped by a delimiter.
    pub fn grouped(self, delimiter: &[u8]) -> KeyRange {
        KeyRange { delimiter: delimiter.to_vec(), ..self }
    }

    /// Whether a key is one of them.
    pub fn holds(&self, key: &[u8]) -> bool {
        key.starts_with(&self.prefix) && self.after.as_deref().is_none_or(|after| key > after)
    }

    /// The group of a key that begins with the prefix, if it is in one.
    ///
    /// ```
    /// use origin::KeyRange;
    ///
    /// let range = KeyRange::new(b"a/").grouped(b"/");
    /// assert_eq!(range.group_of(b"a/b/c"), Some(&b"a/b/"[..]));
    /// assert_eq!(range.group_of(b"a/b"), None);
    /// ```
    pub fn group_of<'k>(&self, key: &'k [u8]) -> Option<&'k [u8]> {
        let length = self.delimiter.len();
        let rest = key.get(self.prefix.len()..).filter(|_| length > 0)?;
        let at = rest.windows(length).position(|part| part == self.delimiter)?;
        Some(&key[..self.prefix.len() + at + length])
    }
}

/// A position after all keys that begin with `prefix`, and before all others that are greater.
///
/// ```
/// let after = origin::behind(b"a/");
/// assert!(after > b"a/\xff\xff".to_vec() && after < b"a0".to_vec());
/// ```
pub fn behind(prefix: &[u8]) -> Vec<u8> {
    // One byte more than the longest key.
    let mut after = prefix.to_vec();
    after.resize(KEY_BYTES_MAX.max(prefix.len()) + 1, 0xff);
    after
}
