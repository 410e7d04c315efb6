//! The metadata of objects and its encoding in files (docs/device-format.md).

use std::time::{SystemTime, UNIX_EPOCH};

use ground::Etag;
use ring::digest;

/// The attributes of an object that the client sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Content type.
    pub content_type: Option<String>,
    /// User metadata: names in lower case without the headers' prefix, ascending.
    pub user: Vec<(String, String)>,
}

/// How the names of user metadata begin that stand for headers which S3 keeps with an object, such as
/// `s3--content-encoding`.
pub const KEPT_PREFIX: &str = "s3--";

/// The metadata of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Size of the object in bytes.
    pub size: u64,
    /// The version: a hash of the bytes and the attributes.
    pub etag: Etag,
    /// Time of the write, microseconds since 1970-01-01 UTC.
    pub modified_unix_us: u64,
    /// The attributes set by the client.
    pub attributes: Attributes,
}

const VERSION: u8 = 1;

impl Attributes {
    /// Appends the encoding used in files and in the hash of the version.
    fn encode(&self, into: &mut Vec<u8>) {
        let mut text = |text: &str| {
            // Bounded by the limits of the protocol (8 KiB), far below 64 KiB.
            let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
            into.extend_from_slice(&length.to_le_bytes());
            into.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
        };
        text(self.content_type.as_deref().unwrap_or(""));
        for (name, value) in &self.user {
            text(name);
            text(value);
        }
    }
}

impl Metadata {
    /// Encodes the block stored in files: format version (1 byte), length of the etag (1), number
    /// of user metadata pairs (2), size (8), modified (8), etag, and texts with their length (2)
    /// before each: the content type, then the name and value of each pair. Numbers are
    /// little-endian.
    pub fn encode(&self) -> Vec<u8> {
        let mut block = Vec::with_capacity(64 + self.etag.len());
        block.push(VERSION);
        block.push(self.etag.len().min(255) as u8);
        block.extend_from_slice(&(self.attributes.user.len() as u16).to_le_bytes());
        block.extend_from_slice(&self.size.to_le_bytes());
        block.extend_from_slice(&self.modified_unix_us.to_le_bytes());
        block.extend_from_slice(&self.etag.as_bytes()[..self.etag.len().min(255)]);
        self.attributes.encode(&mut block);
        block
    }

    /// Decodes a block at the start of `bytes`. Returns the metadata and the bytes after the block;
    /// `None` if the block is malformed.
    pub fn decode(bytes: &[u8]) -> Option<(Metadata, &[u8])> {
        let (head, rest) = bytes.split_first_chunk::<20>()?;
        let [version, etag_length, pairs @ ..] = head;
        let (pairs, numbers) = pairs.split_first_chunk::<2>()?;
        let (size, modified) = numbers.split_first_chunk::<8>()?;
        if *version != VERSION {
            return None;
        }
        let (etag, mut rest) = rest.split_at_checked(usize::from(*etag_length))?;
        let mut text = || -> Option<String> {
            let (length, tail) = rest.split_first_chunk::<2>()?;
            let (text, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
            rest = tail;
            String::from_utf8(text.to_vec()).ok()
        };
        let content_type = Some(text()?).filter(|text| !text.is_empty());
        let mut user = Vec::new();
        for _ in 0..u16::from_le_bytes(*pairs) {
            user.push((text()?, text()?));
        }
        let metadata = Metadata {
            size: u64::from_le_bytes(*size),
            etag: Etag::from(std::str::from_utf8(etag).ok()?),
            modified_unix_us: u64::from_le_bytes(modified.try_into().ok()?),
            attributes: Attributes { content_type, user },
        };
        Some((metadata, rest))
    }
}

/// The prefix of versions that derive from the SHA-256 of the bytes.
const OF_SHA256: &str = "h-";

/// Computes the version of an object: 128 bits of BLAKE3 over the hash of its bytes followed by its attributes, in
/// hexadecimal. The hash of the bytes is BLAKE3's; or SHA-256, and then `h-` precedes the digits.
///
/// The attributes are included because a version identifies everything sent to a client: if only
/// the content type changes, a cached copy is out of date.
#[derive(Clone)]
pub struct VersionHasher(Hash);

#[derive(Clone)]
enum Hash {
    // Boxed: they take 2 KB and 200 bytes.
    Blake3(Box<blake3::Hasher>),
    Sha256(Box<digest::Context>),
}

impl Default for VersionHasher {
    fn default() -> VersionHasher {
        VersionHasher(Hash::Blake3(Box::default()))
    }
}

impl VersionHasher {
    /// The hasher that computes versions of the kind of `etag`; `None` if that is not a hash of the bytes (an upload in
    /// parts, an object of another tool).
    pub fn for_etag(etag: &str) -> Option<VersionHasher> {
        let is_hash = |text: &str| text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match etag.strip_prefix(OF_SHA256) {
            Some(digits) => is_hash(digits).then(|| {
                VersionHasher(Hash::Sha256(Box::new(digest::Context::new(&digest::SHA256))))
            }),
            None => is_hash(etag).then(VersionHasher::default),
        }
    }

    /// Adds bytes of the object.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Hash::Blake3(hasher) => {
                hasher.update(bytes);
            }
            Hash::Sha256(context) => context.update(bytes),
        }
    }

    /// Returns the version.
    pub fn finish(&self, attributes: &Attributes) -> Etag {
        match &self.0 {
            Hash::Blake3(hasher) => {
                Etag::from(&*digits_of(hasher.finalize().as_bytes(), attributes))
            }
            Hash::Sha256(context) => {
                let hash = digest::Context::clone(context).finish();
                Etag::from(&*format!("{OF_SHA256}{}", digits_of(hash.as_ref(), attributes)))
            }
        }
    }
}

/// The version of an object whose bytes have this SHA-256, so that it is known before they are.
pub fn version_of_sha256(hash: &[u8; 32], attributes: &Attributes) -> Etag {
    Etag::from(&*format!("{OF_SHA256}{}", digits_of(hash, attributes)))
}

fn digits_of(hash: &[u8], attributes: &Attributes) -> String {
    let mut version = hash.to_vec();
    attributes.encode(&mut version);
    let hash = blake3::hash(&version).to_hex();
    hash.as_str()[..32].to_owned()
}

/// Microseconds since 1970-01-01 UTC.
pub(crate) fn now_unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_verified_by_the_hash_of_its_kind() {
        let attributes =
            Attributes { content_type: Some("text/plain".to_owned()), user: Vec::new() };
        let sha256 = digest::digest(&digest::SHA256, b"the bytes");
        let known: [u8; 32] = sha256.as_ref().try_into().unwrap();
        let mut hasher = VersionHasher::default();
        hasher.update(b"the bytes");
        let versions = [hasher.finish(&attributes), version_of_sha256(&known, &attributes)];
        assert_ne!(versions[0], versions[1]);
        for version in &versions {
            for (bytes, same) in [("the bytes", true), ("the bytez", false), ("", false)] {
                let mut hasher = VersionHasher::for_etag(version).unwrap();
                let (first, rest) = bytes.as_bytes().split_at(bytes.len() / 2);
                hasher.update(first);
                hasher.update(rest);
                assert_eq!(hasher.finish(&attributes) == *version, same, "{version} {bytes}");
                assert_ne!(hasher.finish(&Attributes::default()), *version);
            }
        }
        for other in ["", "h-", "h-12", "u-0123456789abcdef0123456789abcdef", "s3-0", "h-h-"] {
            assert!(VersionHasher::for_etag(other).is_none(), "{other}");
        }
    }
}
