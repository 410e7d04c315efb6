//! Encodes an object's metadata in the attributes of an S3-compatible store
//! (docs/device-format.md).
//!
//! Content type and user metadata are stored as the store's own, so that other tools see them. The
//! rest is in attributes named `concertina-…`: the version, the time, and a key that the name does
//! not hold completely. An object without a `concertina-version` was written by another tool; its
//! version is a hash of the store's etag and its attributes.

use std::borrow::Cow;

use ground::Etag;
use object_store::{Attribute, ObjectMeta};
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};

use super::super::{Attributes, Error, KEPT_PREFIX, Metadata, VersionHasher};
use super::name;

/// The prefix of our own attributes.
const OURS: &str = "concertina-";
const VERSION: &str = "concertina-version";
const MODIFIED: &str = "concertina-modified-us";
const KEY: &str = "concertina-key";
const CONTENT_TYPE: &str = "concertina-content-type";
const USER: &str = "concertina-user-";
/// The most bytes of metadata that a store accepts, names and values.
const META_BYTES_MAX: usize = 2048;
/// Represents an empty text, which stores would drop. No other text is escaped to it.
const EMPTY: &str = "%";
/// The content type sent to the store when the real one is in our own attribute.
const OTHER_TYPE: &str = "application/octet-stream";
/// The characters to escape: `%`, and all but visible ASCII and the space.
const ESCAPED: &AsciiSet = &percent_encoding::CONTROLS.add(b'%');

/// Encodes the attributes of an object. [`Error::Refused`] if they are larger than stores accept.
pub fn to_store(
    etag: &Etag,
    modified_unix_us: u64,
    attributes: &Attributes,
    key: Option<&[u8]>,
) -> Result<object_store::Attributes, Error> {
    let mut pairs = vec![
        (VERSION.to_owned(), etag.to_string()),
        (MODIFIED.to_owned(), modified_unix_us.to_string()),
    ];
    if let Some(key) = key {
        pairs.push((KEY.to_owned(), name::digits_of(key)));
    }
    let mut stored = object_store::Attributes::new();
    let content_type = attributes.content_type.as_deref();
    let shown = content_type.filter(|text| escape(text) == *text).unwrap_or(OTHER_TYPE);
    stored.insert(Attribute::ContentType, shown.to_owned().into());
    if content_type != Some(shown) {
        pairs.push((CONTENT_TYPE.to_owned(), escape(content_type.unwrap_or("")).into_owned()));
    }
    for (index, (name, value)) in attributes.user.iter().enumerate() {
        let before = attributes.user[..index].iter().filter(|(other, _)| other == name).count();
        let stored = match before {
            0 if !name.starts_with(OURS) => name.clone(),
            n => format!("{USER}{n}-{name}"),
        };
        pairs.push((stored, escape(value).into_owned()));
    }
    let bytes: usize = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > META_BYTES_MAX {
        return Err(Error::Refused(format!(
            "the object's metadata takes {bytes} bytes, and an S3-compatible store accepts at most \
             {META_BYTES_MAX}; send less user metadata"
        )));
    }
    for (name, value) in pairs {
        stored.insert(Attribute::Metadata(name.into()), value.into());
    }
    Ok(stored)
}

/// The attributes of the bucket's marker.
pub fn of_marker() -> object_store::Attributes {
    let mut stored = object_store::Attributes::new();
    stored.insert(Attribute::ContentType, "text/plain".into());
    stored
}

/// Decodes the metadata of an object from the store's reply.
pub fn from_store(meta: &ObjectMeta, stored: &object_store::Attributes) -> Metadata {
    let get =
        |name: &'static str| stored.get(&Attribute::Metadata(name.into())).map(|v| v.as_ref());
    let written = written_unix_us(meta);
    let version = get(VERSION).filter(|text| is_version(text));
    let attributes = attributes_of(stored, version.is_some());
    let (etag, modified_unix_us) = match version {
        Some(version) => (
            Etag::from(version),
            get(MODIFIED).and_then(|text| text.parse().ok()).unwrap_or(written),
        ),
        None => (version_of_store(meta, &attributes), written),
    };
    Metadata { size: meta.size, etag, modified_unix_us, attributes }
}

/// The metadata of an object that another tool wrote, with our metadata of the bytes before.
pub fn of_another_tool(meta: &ObjectMeta, ours: Metadata) -> Metadata {
    let etag = version_of_store(meta, &ours.attributes);
    let modified_unix_us = written_unix_us(meta);
    Metadata { etag, modified_unix_us, ..ours }
}

fn written_unix_us(meta: &ObjectMeta) -> u64 {
    u64::try_from(meta.last_modified.timestamp_micros()).unwrap_or(0)
}

/// The version of an object that has none of ours: a hash of the store's etag and of its attributes.
fn version_of_store(meta: &ObjectMeta, attributes: &Attributes) -> Etag {
    let mut hasher = VersionHasher::default();
    match &meta.e_tag {
        Some(etag) => hasher.update(etag.as_bytes()),
        None => hasher.update(format!("{} {}", written_unix_us(meta), meta.size).as_bytes()),
    }
    Etag::from(&*format!("s3-{}", hasher.finish(attributes)))
}

/// The whole key of an object whose name does not hold it completely.
pub fn key_of(stored: &object_store::Attributes) -> Option<Vec<u8>> {
    name::bytes_of(stored.get(&Attribute::Metadata(KEY.into()))?.as_ref())
}

/// Draws a random version for an upload in parts: the attributes are sent before the bytes, so the
/// version cannot be their hash.
pub fn drawn_version() -> Etag {
    Etag::from(&*format!("u-{:032x}", rand::random::<u128>()))
}

fn is_version(text: &str) -> bool {
    let drawn = text.strip_prefix("u-").unwrap_or(text);
    VersionHasher::for_etag(text).or_else(|| VersionHasher::for_etag(drawn)).is_some()
}

fn attributes_of(stored: &object_store::Attributes, ours: bool) -> Attributes {
    let mut content_type = stored
        .get(&Attribute::ContentType)
        .map(|v| v.as_ref().to_owned())
        .filter(|t| !t.is_empty());
    let mut user = Vec::new();
    for (attribute, value) in stored {
        let value = value.as_ref();
        if let Some(header) = kept_header(attribute).filter(|_| !ours && !value.is_empty()) {
            user.push((format!("{KEPT_PREFIX}{header}"), value.to_owned()));
        }
        let Attribute::Metadata(name) = attribute else { continue };
        if !ours {
            user.push((name.to_string(), value.to_owned()));
        } else if let Some(rest) = name.strip_prefix(USER) {
            let name = rest.split_once('-').map_or(rest, |(_, name)| name);
            user.push((name.to_owned(), unescape(value)));
        } else if name == CONTENT_TYPE {
            content_type = Some(unescape(value)).filter(|text| !text.is_empty());
        } else if !name.starts_with(OURS) {
            user.push((name.to_string(), unescape(value)));
        }
    }
    user.sort();
    Attributes { content_type, user }
}

/// The header that a store keeps with an object, and that changes what its bytes mean to a client. (Our own objects have theirs as
/// user metadata.)
fn kept_header(attribute: &Attribute) -> Option<&'static str> {
    match attribute {
        Attribute::CacheControl => Some("cache-control"),
        Attribute::ContentDisposition => Some("content-disposition"),
        Attribute::ContentEncoding => Some("content-encoding"),
        Attribute::ContentLanguage => Some("content-language"),
        _ => None,
    }
}

/// Escapes a text so that a header carries it unchanged: visible ASCII, and single inner spaces.
fn escape(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return Cow::Borrowed(EMPTY);
    }
    let escaped: Cow<'_, str> = utf8_percent_encode(text, ESCAPED).into();
    let bytes = escaped.as_bytes();
    let lost = |(at, byte): (usize, &u8)| {
        *byte == b' ' && (at == 0 || at + 1 == bytes.len() || bytes[at - 1] == b' ')
    };
    if bytes.iter().enumerate().any(lost) { escaped.replace(' ', "%20").into() } else { escaped }
}

fn unescape(text: &str) -> String {
    if text == EMPTY {
        return String::new();
    }
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn meta(size: u64) -> ObjectMeta {
        ObjectMeta {
            location: object_store::path::Path::from("x"),
            last_modified: Default::default(),
            size,
            e_tag: Some("\"abc\"".to_owned()),
            version: None,
        }
    }

    fn check(attributes: Attributes, key: Option<Vec<u8>>) {
        let etag = Etag::from("0123456789abcdef0123456789abcdef");
        let stored = match to_store(&etag, 5, &attributes, key.as_deref()) {
            Err(Error::Refused(_)) => return,
            stored => stored.unwrap(),
        };
        for (_, value) in &stored {
            let value = value.as_ref();
            assert!(value.bytes().all(|byte| (32..127).contains(&byte)), "{value:?}");
            assert!(!value.is_empty() && value.trim() == value && !value.contains("  "));
        }
        let metadata = from_store(&meta(7), &stored);
        assert_eq!(metadata, Metadata { size: 7, etag, modified_unix_us: 5, attributes });
        assert_eq!(key_of(&stored), key);
    }

    proptest! {
        #[test]
        fn what_is_kept_comes_back(
            content_type in proptest::option::of("\\PC{1,20}"),
            mut user in proptest::collection::vec(
                ("(concertina-|concertina-user-0-)?[a-c]", "\\PC{0,9}| {0,3}"),
                0..6,
            ),
            key in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..1024)),
        ) {
            user.sort();
            check(Attributes { content_type, user }, key);
        }
    }

    #[test]
    fn every_key_fits() {
        let content_type = Some("text/plain; charset=utf-8".to_owned());
        let attributes = Attributes { content_type, user: Vec::new() };
        let stored = to_store(&drawn_version(), u64::MAX, &attributes, Some(&[0xff; 1024]));
        assert_eq!(key_of(&stored.unwrap()).unwrap(), [0xff; 1024]);
    }

    #[test]
    fn what_another_tool_wrote_has_a_version_of_all_that_is_served() {
        let mut stored = object_store::Attributes::new();
        stored.insert(Attribute::ContentType, "text/plain".into());
        let first = from_store(&meta(3), &stored);
        assert!(first.etag.starts_with("s3-") && VersionHasher::for_etag(&first.etag).is_none());
        assert_eq!(from_store(&meta(3), &stored), first);
        stored.insert(Attribute::Metadata("owner".into()), "me%20".into());
        let second = from_store(&meta(3), &stored);
        assert_ne!(first.etag, second.etag);
        assert_eq!(second.attributes.user, [("owner".to_owned(), "me%20".to_owned())]);
        // A malformed version was written by another tool.
        stored.insert(Attribute::Metadata(VERSION.into()), "1.2".into());
        assert!(from_store(&meta(3), &stored).etag.starts_with("s3-"));
    }
}
