//! What is known of an object beside its bytes, and its form in files (docs/device-format.md).

use engine::Etag;

/// What a client says of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Content type.
    pub content_type: Option<String>,
    /// User metadata: names in lower case without the headers' prefix, ascending.
    pub user: Vec<(String, String)>,
}

/// What is known of an object beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Bytes of the object.
    pub size: u64,
    /// Its version: a hash of bytes and attributes.
    pub etag: Etag,
    /// When it was written, microseconds since 1970-01-01 UTC.
    pub modified_unix_us: u64,
    /// What the client said of it.
    pub attributes: Attributes,
}

const VERSION: u8 = 1;

impl Attributes {
    /// Their bytes in files and in the hash of the version.
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
    /// The block in files: version (1 byte), length of the etag (1), pairs of user metadata (2), size
    /// (8), modified (8), etag, and each text with its length (2) before it: content type, then name
    /// and value of each pair. Numbers are little-endian.
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

    /// Reads a block from the start of `bytes`; returns what follows it too. `None` if it is not one.
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

/// Makes the version of an object: 128 bits of BLAKE3 over the BLAKE3 hash of its bytes and its
/// attributes, in hexadecimal.
///
/// The attributes are part of it because a version names all that a client is sent: the same bytes
/// with another content type are not current because their bytes are.
#[derive(Clone, Default)]
pub struct VersionHasher(blake3::Hasher);

impl VersionHasher {
    /// Adds bytes of the object.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The version.
    pub fn finish(&self, attributes: &Attributes) -> Etag {
        let mut version = self.0.finalize().as_bytes().to_vec();
        attributes.encode(&mut version);
        let hash = blake3::hash(&version).to_hex();
        Etag::from(&hash.as_str()[..32])
    }
}
