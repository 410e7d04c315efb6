//! The engine's payload when serving: an object's bytes, metadata and reply headers.

use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use engine::tier::Keyed;
use engine::{KeyedPayload, Payload};
use ground::window::Outcome;
use ground::{Etag, Key};
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, EXPIRES,
    LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS,
};
use http::header::{HeaderMap, HeaderName, HeaderValue};

use httpdate::HttpDate;

use super::arena;
use super::assembly::Assembly;
use super::packed::{self, Packed, PackedEtag};
use super::thin::Thin;
use origin::{Attributes, KEPT_PREFIX, Metadata, VersionHasher};
use wire::headers;

/// The prefix of headers with user metadata.
pub const META_PREFIX: &str = "concertina-meta-";

/// What S3 keeps with an object beside its type, as user metadata whose names begin with [`KEPT_PREFIX`].
pub static KEPT: [HeaderName; 5] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, EXPIRES];

/// Objects of up to so many bytes are held in one allocation with their metadata. A larger one keeps the buffer that it came
/// in, as what that and its handle take is a small part of it, and a copy is not.
const SMALL_BYTES_MAX: usize = 2 << 10;

/// An object in memory. Clones share it.
///
/// A small object is one allocation: a counter and a length, the key if it has one ([`KeyedObject`]), the packed metadata and
/// the bytes. The lines of its replies are written when they are sent: kept, they would take more than the object does. Those
/// of a larger one are kept from its first reply on.
///
/// The key's length is in front of it as [`add_length_of`] writes it: one byte if it is below 128.
#[derive(Clone)]
pub struct Object(Thin<Arc<Large>>);

/// An object with its key in its allocation.
#[derive(Clone, Debug)]
pub struct KeyedObject(Object);

struct Large {
    body: Bytes,
    /// Of an object that is still being read: where its bytes come from; `body` is empty.
    assembly: Option<Arc<Assembly>>,
    /// What [`Object::write_head_common`] appends.
    lines: OnceLock<Box<[u8]>>,
    /// What [`Object::write_lines_of`] appends.
    other_lines: OnceLock<Box<[u8]>>,
}

impl Large {
    fn new(body: Bytes, assembly: Option<Arc<Assembly>>) -> Large {
        Large { body, assembly, lines: OnceLock::new(), other_lines: OnceLock::new() }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Object").field(&self.metadata()).finish()
    }
}

impl PartialEq for Object {
    fn eq(&self, other: &Object) -> bool {
        self.metadata() == other.metadata() && self.bytes_held() == other.bytes_held()
    }
}

impl Object {
    /// An object; the length of `body` must equal the metadata's `size`.
    pub fn new(metadata: &Metadata, body: Bytes) -> Object {
        debug_assert_eq!(metadata.size, body.len() as u64);
        let packed = packed::pack(metadata, false);
        if body.len() > SMALL_BYTES_MAX {
            let large = Large::new(arena::keep(body), None);
            return Object::from_parts(Some(large), &packed, b"");
        }
        Object::from_parts(None, &packed, &body)
    }

    /// An object of the bytes of some pieces, which are copied: a piece may be a small part of a buffer that it keeps.
    pub fn gathered(metadata: &Metadata, pieces: &[Bytes]) -> Object {
        let body = arena::gather(pieces).unwrap_or_else(|| pieces.concat().into());
        Object::new(metadata, body)
    }

    /// An object whose bytes, or some of them, are being read.
    pub fn opened(metadata: &Metadata, assembly: Arc<Assembly>) -> Object {
        let large = Large::new(Bytes::new(), Some(assembly));
        Object::from_parts(Some(large), &packed::pack(metadata, true), b"")
    }

    /// An object without a key.
    fn from_parts(large: Option<Large>, packed: &[u8], body: &[u8]) -> Object {
        Object(Thin::new(large.map(Arc::new), &[&[0], packed, body]))
    }

    fn large(&self) -> Option<&Large> {
        self.0.extra().map(|large| &**large)
    }

    /// The key, empty if the object has none, and what follows it: the packed metadata, and the bytes of a small object.
    fn split(&self) -> (&[u8], &[u8]) {
        split_key(self.0.bytes()).unwrap_or_default()
    }

    /// The metadata as it is held, without an allocation.
    pub fn packed(&self) -> Packed<'_> {
        Packed::new(self.split().1)
    }

    /// Where the bytes of an object come from that is still being read.
    pub fn assembly(&self) -> Option<&Arc<Assembly>> {
        self.large()?.assembly.as_ref()
    }

    /// Reads the stored form: metadata, then bytes. `None` if it is malformed.
    pub fn decode(stored: &Bytes) -> Option<Object> {
        let (metadata, body) = Metadata::decode(stored)?;
        if metadata.size != body.len() as u64 {
            return None;
        }
        let body = stored.slice(stored.len() - body.len()..);
        Some(Object::new(&metadata, body))
    }

    /// Whether the bytes are those of the etag, as far as it is a hash of them. Costs the hash.
    pub fn is_its_etags(&self) -> bool {
        let Metadata { etag, attributes, .. } = self.metadata();
        let Some(mut hasher) = VersionHasher::for_etag(&etag) else { return true };
        hasher.update(self.bytes_held());
        hasher.finish(&attributes) == etag
    }

    /// The bytes that are in memory: all, or none of an object that is still being read.
    pub fn bytes_held(&self) -> &[u8] {
        match self.large() {
            Some(large) => &large.body,
            None => {
                let (_, rest) = self.split();
                rest.get(packed::length(rest)..).unwrap_or_default()
            }
        }
    }

    /// As [`Object::bytes_held`], for a reply: without a copy, and for as long as it lasts.
    pub fn body(&self) -> Bytes {
        match self.large() {
            Some(large) => large.body.clone(),
            None => Bytes::from_owner(SmallBody(self.clone())),
        }
    }

    /// The metadata. Costs an allocation for each of its texts.
    pub fn metadata(&self) -> Metadata {
        self.packed().metadata(self.size())
    }

    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.packed().size.unwrap_or_else(|| self.bytes_held().len() as u64)
    }

    /// Appends the header lines of a reply with the whole object from memory: those of
    /// [`Object::write_head_common`], and the outcome.
    pub fn write_head(&self, lines: &mut Vec<u8>) {
        self.write_head_common(lines);
        // What memory answers met no queue.
        add_source(lines, Outcome::Memory, 0);
    }

    /// Appends the header lines that do not say where the object came from: [`headers_of`], and the length.
    pub fn write_head_common(&self, lines: &mut Vec<u8>) {
        append(lines, self.large().map(|large| &large.lines), |lines| self.write_plainly(lines));
    }

    /// Appends the header lines for clients of another protocol, always the same one, as `write` appends them.
    pub fn write_lines_of(&self, write: impl FnOnce(&Object, &mut Vec<u8>), lines: &mut Vec<u8>) {
        append(lines, self.large().map(|large| &large.other_lines), |lines| write(self, lines));
    }

    fn write_plainly(&self, lines: &mut Vec<u8>) {
        let packed = self.packed();
        write_type(&packed, lines);
        write_etag(&packed.etag, b"", lines);
        write_dates(&packed, lines);
        if packed.content_type().is_some_and(is_active) {
            add_line(lines, &CONTENT_SECURITY_POLICY, SANDBOX.as_bytes());
        }
        for (name, value) in packed.user() {
            add_user(name, value, |name, value| add_line(lines, &name, value.as_bytes()));
        }
        add_length(lines, self.size());
    }
}

/// Appends what `write` appends, from where it is kept if there is such a place.
fn append(
    lines: &mut Vec<u8>,
    kept: Option<&OnceLock<Box<[u8]>>>,
    write: impl FnOnce(&mut Vec<u8>),
) {
    let Some(kept) = kept else { return write(lines) };
    lines.extend_from_slice(kept.get_or_init(|| {
        let mut written = Vec::with_capacity(320);
        write(&mut written);
        written.into()
    }));
}

/// Appends the line of the type.
pub fn write_type(packed: &Packed<'_>, lines: &mut Vec<u8>) {
    let content_type = packed.content_type().unwrap_or(UNTYPED);
    if is_header_text(content_type) {
        add_line(lines, &CONTENT_TYPE, content_type.as_bytes());
    }
}

/// Appends the line of the version, with `after` in its quotes.
pub fn write_etag(etag: &PackedEtag<'_>, after: &[u8], lines: &mut Vec<u8>) {
    if matches!(etag, PackedEtag::Text(text) if !is_header_text(text)) {
        return;
    }
    lines.extend_from_slice(b"etag: \"");
    etag.write(lines);
    lines.extend_from_slice(after);
    lines.extend_from_slice(b"\"\r\n");
}

/// Appends the lines that all objects have: the time of the write, that parts can be asked for, and that the type holds.
pub fn write_dates(packed: &Packed<'_>, lines: &mut Vec<u8>) {
    // Writing into a vector does not fail.
    let _ = write!(lines, "last-modified: {}\r\n", http_date(packed.modified_unix_us));
    lines.extend_from_slice(b"accept-ranges: bytes\r\nx-content-type-options: nosniff\r\n");
}

/// The bytes of a small object, which it keeps.
struct SmallBody(Object);

impl AsRef<[u8]> for SmallBody {
    fn as_ref(&self) -> &[u8] {
        self.0.bytes_held()
    }
}

/// Writes a length: seven bits a byte, the lowest first, with the highest bit in all bytes but the last.
fn add_length_of(key: &[u8], to: &mut Vec<u8>) {
    let mut length = key.len();
    while length >= 0x80 {
        to.push(length as u8 | 0x80);
        length >>= 7;
    }
    to.push(length as u8);
}

/// Splits off a key with its length before it, as [`add_length_of`] has written that.
fn split_key(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&first, mut rest) = bytes.split_first()?;
    let (mut length, mut last, mut shift) = (usize::from(first & 0x7F), first, 0);
    while last & 0x80 != 0 {
        (last, rest) = rest.split_first().map(|(byte, rest)| (*byte, rest))?;
        shift += 7;
        length |= usize::from(last & 0x7F) << shift;
    }
    rest.split_at_checked(length)
}

impl Keyed for KeyedObject {
    fn key(&self) -> &[u8] {
        self.0.split().0
    }
}

impl KeyedPayload<Object> for KeyedObject {
    fn payload(&self) -> &Object {
        &self.0
    }
}

impl Payload for Object {
    type Keyed = KeyedObject;

    /// Costs a copy of a small object.
    fn with_key(self, key: &Key) -> KeyedObject {
        let (held, rest) = self.split();
        if held == &**key {
            return KeyedObject(self);
        }
        let mut length = Vec::with_capacity(4);
        add_length_of(key, &mut length);
        KeyedObject(Object(Thin::new(self.0.extra().cloned(), &[&length, key, rest])))
    }
    fn bytes(&self) -> u64 {
        self.size()
    }
    fn stored_bytes(&self) -> u64 {
        (self.packed().encoded_length() + self.bytes_held().len()) as u64
    }
    fn etag(&self) -> Etag {
        self.metadata().etag
    }
}

/// The type of an object without one.
const UNTYPED: &str = "application/octet-stream";
/// What a document that a browser may run is allowed.
const SANDBOX: &str = "sandbox";

/// Whether a header may have a text, as [`HeaderValue::from_bytes`] judges it.
fn is_header_text(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'\t' || (byte >= 32 && byte != 127))
}

/// Adds the line of a length.
pub fn add_length(lines: &mut Vec<u8>, bytes: u64) {
    // Writing into a vector does not fail.
    let _ = write!(lines, "content-length: {bytes}\r\n");
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
    add(CONTENT_TYPE, content_type.unwrap_or(UNTYPED));
    add(ETAG, &format!("\"{}\"", metadata.etag));
    add(LAST_MODIFIED, &http_date(metadata.modified_unix_us).to_string());
    add(ACCEPT_RANGES, "bytes");
    // A browser must take the type as it is, and run nothing that a document brings along.
    add(X_CONTENT_TYPE_OPTIONS, "nosniff");
    if content_type.is_some_and(is_active) {
        add(CONTENT_SECURITY_POLICY, SANDBOX);
    }
    for (name, value) in &metadata.attributes.user {
        add_user(name, value, |name, value| headers.push((name, value)));
    }
    headers
}

/// Adds the headers of a pair of user metadata. One that came with a name or value that no header can have, from a damaged file
/// or by another protocol, is left out.
fn add_user(name: &str, value: &str, mut add: impl FnMut(HeaderName, HeaderValue)) {
    let Ok(value) = HeaderValue::from_bytes(value.as_bytes()) else { return };
    // What S3's clients and other tools stored is what any client of HTTP needs to read the object by: without its encoding
    // the bytes mean something else. As metadata it is told too, by which a gateway knows it.
    let kept = name.strip_prefix(KEPT_PREFIX);
    if let Some(header) = kept.and_then(|kept| KEPT.iter().find(|name| *name == kept)) {
        add(header.clone(), value.clone());
    }
    if let Ok(name) = HeaderName::from_bytes(format!("{META_PREFIX}{name}").as_bytes()) {
        add(name, value);
    }
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
fn http_date(unix_us: u64) -> HttpDate {
    let seconds = unix_us / 1_000_000;
    let seconds = if seconds < 253_402_300_800 { seconds } else { 0 };
    (UNIX_EPOCH + Duration::from_secs(seconds)).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin of [`Object::write_head`]: by the headers that hyper is given.
    fn head_of(metadata: &Metadata) -> Vec<u8> {
        let mut lines = Vec::new();
        for (name, value) in headers_of(metadata) {
            add_line(&mut lines, &name, value.as_bytes());
        }
        add_length(&mut lines, metadata.size);
        add_source(&mut lines, Outcome::Memory, 0);
        lines
    }

    fn attributes() -> impl Strategy<Value = Attributes> {
        let name = prop_oneof!["[a-z-]{1,12}", "s3--(content-encoding|expires|upload)", ".{0,6}"];
        let content_type =
            prop_oneof!["text/html", "image/svg\\+xml; a=b", "[a-z]{1,9}/[a-z]{1,9}", ".{1,9}"];
        (prop::option::of(content_type), prop::collection::vec((name, ".{0,12}"), 0..4))
            .prop_map(|(content_type, user)| Attributes { content_type, user })
    }

    proptest! {
        #[test]
        fn an_object_is_what_it_was_made_of(
            attributes in attributes(),
            etag in prop_oneof!["[0-9a-f]{32}", "h-[0-9a-f]{32}", "[^\"]{0,40}"],
            modified_unix_us in prop_oneof![any::<u64>(), 0..4_000_000_000_000_000u64],
            size in prop_oneof![0..300usize, SMALL_BYTES_MAX - 2..SMALL_BYTES_MAX + 3],
            key_lengths in prop::collection::vec(prop_oneof![0..140usize, 16_380..16_390usize], 0..3),
        ) {
            let body: Vec<u8> = (0..size).map(|i| i as u8).collect();
            let (size, etag) = (size as u64, etag.into());
            let metadata = Metadata { size, etag, modified_unix_us, attributes };
            let mut object = Object::new(&metadata, body.clone().into());
            prop_assert_eq!(object.metadata(), metadata.clone());
            prop_assert_eq!(object.bytes_held(), &body[..]);
            // The body is there for as long as a reply takes, and is not copied.
            let sent = object.body();
            prop_assert_eq!(sent.as_ptr(), object.bytes_held().as_ptr());
            let mut stored = metadata.encode();
            prop_assert_eq!(object.stored_bytes() as usize, stored.len() + body.len());
            prop_assert_eq!((object.bytes(), object.etag()), (size, metadata.etag.clone()));
            let expected = head_of(&metadata);
            // The second time from where they are kept, if the object is large enough.
            for _ in 0..2 {
                let mut lines = Vec::new();
                object.write_head(&mut lines);
                prop_assert_eq!(lines.escape_ascii().to_string(), expected.escape_ascii().to_string());
            }
            stored.extend_from_slice(&body);
            prop_assert_eq!(Object::decode(&stored.into()), Some(object.clone()));
            // With a key it is the same object, also with another afterwards, and is not copied again for the one that it has.
            for length in key_lengths {
                let key = Key::from(vec![b'k'; length]);
                let keyed = object.clone().with_key(&key);
                prop_assert_eq!(keyed.key(), &key[..]);
                prop_assert_eq!(keyed.payload(), &object);
                let again = keyed.payload().clone().with_key(&key);
                prop_assert_eq!(again.key().as_ptr(), keyed.key().as_ptr());
                object = again.payload().clone();
            }
            drop(object);
            prop_assert_eq!(&sent[..], &body[..]);
        }
    }
}
