//! The engine's payload when serving: an object's bytes, metadata and reply headers.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use engine::Payload;
use ground::Etag;
use ground::window::Outcome;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, EXPIRES,
    LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use super::arena;
use super::disk::Assembly;
use origin::{Attributes, KEPT_PREFIX, Metadata, VersionHasher};
use wire::headers;

/// The prefix of headers with user metadata.
pub const META_PREFIX: &str = "concertina-meta-";

/// What S3 keeps with an object beside its type, as user metadata whose names begin with [`KEPT_PREFIX`].
pub static KEPT: [HeaderName; 5] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, EXPIRES];

/// An object in memory. Clones share it.
#[derive(Clone, Debug)]
pub struct Object(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    metadata: Metadata,
    block: Vec<u8>,
    body: Bytes,
    /// Of an object that is still being read: where its bytes come from; [`Object::body`] is empty.
    assembly: Option<Arc<Assembly>>,
    /// The lines of a reply with the whole object from memory, and how many of these bytes are the same
    /// wherever it comes from.
    head: Box<[u8]>,
    head_common: usize,
    /// The same for another protocol's clients, once one of them has read the object.
    other_head: OnceLock<Box<[u8]>>,
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.0.metadata == other.0.metadata && self.0.body == other.0.body
    }
}

impl Object {
    /// An object; the length of `body` must equal the metadata's `size`.
    pub fn new(metadata: Metadata, body: Bytes) -> Object {
        debug_assert_eq!(metadata.size, body.len() as u64);
        let block = metadata.encode();
        let (head, head_common) = head_of(&metadata);
        let body = arena::keep(body);
        let (assembly, other_head) = (None, OnceLock::new());
        Object(Arc::new(Inner { metadata, block, body, assembly, head, head_common, other_head }))
    }

    /// An object of the bytes of some pieces, which are copied: a piece may be a small part of a buffer that it keeps.
    pub fn gathered(metadata: Metadata, pieces: &[Bytes]) -> Object {
        let body = arena::gather(pieces).unwrap_or_else(|| pieces.concat().into());
        Object::new(metadata, body)
    }

    /// An object whose bytes, or some of them, are being read.
    pub fn opened(metadata: Metadata, assembly: Arc<Assembly>) -> Object {
        let (block, body, head) = (Vec::new(), Bytes::new(), Box::default());
        let (assembly, head_common, other_head) = (Some(assembly), 0, OnceLock::new());
        Object(Arc::new(Inner { metadata, block, body, assembly, head, head_common, other_head }))
    }

    /// Where the bytes of an object come from that is still being read.
    pub fn assembly(&self) -> Option<&Arc<Assembly>> {
        self.0.assembly.as_ref()
    }

    /// Reads the stored form: metadata, then bytes. `None` if it is malformed.
    pub fn decode(stored: &Bytes) -> Option<Object> {
        let (metadata, body) = Metadata::decode(stored)?;
        if metadata.size != body.len() as u64 {
            return None;
        }
        let body = stored.slice(stored.len() - body.len()..);
        Some(Object::new(metadata, body))
    }

    /// Whether the bytes are those of the etag, as far as it is a hash of them. Costs the hash.
    pub fn is_its_etags(&self) -> bool {
        let Metadata { etag, attributes, .. } = &self.0.metadata;
        let Some(mut hasher) = VersionHasher::for_etag(etag) else { return true };
        hasher.update(&self.0.body);
        hasher.finish(attributes) == *etag
    }

    /// The stored form of the metadata; [`Object::body`] follows it.
    pub fn block(&self) -> &[u8] {
        &self.0.block
    }

    /// The bytes.
    pub fn body(&self) -> &Bytes {
        &self.0.body
    }

    /// The metadata.
    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    /// The header lines of a reply with the whole object from memory, written once: those of the
    /// object, its length, and the outcome.
    pub fn head(&self) -> &[u8] {
        &self.0.head
    }

    /// Those of [`Object::head`] that do not say where the object came from.
    pub fn head_common(&self) -> &[u8] {
        self.0.head.get(..self.0.head_common).unwrap_or_default()
    }

    /// As [`Object::head`] for clients of another protocol: `write` makes the lines the first time.
    pub fn other_head(&self, write: impl FnOnce(&Metadata) -> Box<[u8]>) -> &[u8] {
        self.0.other_head.get_or_init(|| write(&self.0.metadata))
    }

    /// Adds the headers of a reply with this object.
    pub fn add_headers(&self, to: &mut HeaderMap) {
        for (name, value) in headers_of(&self.0.metadata) {
            to.append(name, value);
        }
    }
}

impl Payload for Object {
    fn bytes(&self) -> u64 {
        self.0.metadata.size
    }
    fn stored_bytes(&self) -> u64 {
        (self.0.block.len() + self.0.body.len()) as u64
    }
    fn etag(&self) -> Etag {
        self.0.metadata.etag.clone()
    }
}

/// The lines of [`Object::head`], and the length of [`Object::head_common`].
fn head_of(metadata: &Metadata) -> (Box<[u8]>, usize) {
    let mut lines = Vec::with_capacity(320);
    for (name, value) in headers_of(metadata) {
        add_line(&mut lines, &name, value.as_bytes());
    }
    add_line(&mut lines, &CONTENT_LENGTH, metadata.size.to_string().as_bytes());
    let common = lines.len();
    // What memory answers met no queue.
    add_source(&mut lines, Outcome::Memory, 0);
    (lines.into(), common)
}

/// Adds a header line.
pub fn add_line(lines: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        lines.extend_from_slice(part);
    }
}

/// Adds the lines that say where an object came from, and how many requests waited there.
pub fn add_source(lines: &mut Vec<u8>, outcome: Outcome, left: u32) {
    add_line(lines, &headers::OUTCOME, outcome.as_str().as_bytes());
    add_line(lines, &headers::QUEUE_LENGTH, left.to_string().as_bytes());
}

/// The reply headers of metadata.
pub fn headers_of(metadata: &Metadata) -> Vec<(HeaderName, HeaderValue)> {
    let mut headers = Vec::with_capacity(6 + metadata.attributes.user.len());
    let mut add = |name: HeaderName, value: &str| {
        // Values came from headers, so they are valid unless a file was damaged; invalid values are
        // left out.
        if let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) {
            headers.push((name, value));
        }
    };
    let content_type = metadata.attributes.content_type.as_deref();
    add(CONTENT_TYPE, content_type.unwrap_or("application/octet-stream"));
    add(ETAG, &format!("\"{}\"", metadata.etag));
    add(LAST_MODIFIED, &http_date(metadata.modified_unix_us));
    add(ACCEPT_RANGES, "bytes");
    // A browser must take the type as it is, and run nothing that a document brings along.
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    if content_type.is_some_and(is_active) {
        add(CONTENT_SECURITY_POLICY, "sandbox");
    }
    for (name, value) in &metadata.attributes.user {
        // What S3's clients and other tools stored is what any client of HTTP needs to read the object by: without its encoding
        // the bytes mean something else. As metadata it is told too, by which a gateway knows it.
        let kept = name.strip_prefix(KEPT_PREFIX);
        if let Some(header) = kept.and_then(|kept| KEPT.iter().find(|name| *name == kept)) {
            add(header.clone(), value);
        }
        if let Ok(name) = HeaderName::from_bytes(format!("{META_PREFIX}{name}").as_bytes()) {
            add(name, value);
        }
    }
    headers
}

fn text_of<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    std::str::from_utf8(headers.get(name)?.as_bytes()).ok()
}

/// The version in a reply's `ETag`.
pub fn etag_of(headers: &HeaderMap) -> Option<&str> {
    text_of(headers, &ETAG)?.strip_prefix('"')?.strip_suffix('"')
}

/// What the headers of a reply say of the object, as [`headers_of`] has written them; `None` if they do not name its version. Where they do not tell the size (304, 412)
/// it is 0.
pub fn metadata_of(headers: &HeaderMap) -> Option<Metadata> {
    let etag = etag_of(headers)?.into();
    let whole = text_of(headers, &CONTENT_RANGE).and_then(|range| range.rsplit('/').next());
    let size = whole.or_else(|| text_of(headers, &CONTENT_LENGTH));
    let date =
        text_of(headers, &LAST_MODIFIED).and_then(|date| httpdate::parse_http_date(date).ok());
    let since = date.and_then(|date| date.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    let mut user = Vec::new();
    for (name, value) in headers {
        let Some(short) = name.as_str().strip_prefix(META_PREFIX) else { continue };
        user.push((short.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
    }
    user.sort();
    Some(Metadata {
        size: size.and_then(|size| size.parse().ok()).unwrap_or(0),
        etag,
        modified_unix_us: since.as_secs() * 1_000_000,
        attributes: Attributes {
            content_type: text_of(headers, &CONTENT_TYPE).map(str::to_owned),
            user,
        },
    })
}

/// Whether a browser may run scripts of a document of this type.
fn is_active(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    essence == "text/html" || essence.ends_with("/xml") || essence.ends_with("+xml")
}

/// A time as HTTP writes it. Times past the year 9999, which no clock gave us, become 1970.
fn http_date(unix_us: u64) -> String {
    let seconds = unix_us / 1_000_000;
    let seconds = if seconds < 253_402_300_800 { seconds } else { 0 };
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}
