//! Encodes an object's metadata in the attributes of an S3-compatible store
//! (docs/device-format.md).
//!
//! Content type and user metadata are stored as the store's own, so that other tools see them. The
//! rest is in attributes named `concertina-…`: the version, the time, and a key that the name does
//! not hold completely. An object without a `concertina-version` was written by another tool; its
//! version is a hash of the store's etag and its attributes.

use std::borrow::Cow;

use ::http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_TYPE,
    HeaderMap, HeaderName, HeaderValue,
};
use ground::Etag;
use percent_encoding::{AsciiSet, percent_decode_str, utf8_percent_encode};

use super::name;
use super::stored::{StoredHead, text};
use crate::error::Error;
use crate::metadata::{Attributes, KEPT_PREFIX, Metadata, VersionHasher};

/// What the name of a header with an attribute begins with.
const META: &str = "x-amz-meta-";
/// Headers that a store keeps with an object, and that change what its bytes mean to a client. (Our own objects have theirs as user
/// metadata.)
const KEPT: [HeaderName; 4] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE];
/// The prefix of our own attributes.
const OURS: &str = "concertina-";
const VERSION: &str = "concertina-version";
const MODIFIED: &str = "concertina-modified-us";
const KEY: &str = "concertina-key";
const TYPE: &str = "concertina-content-type";
const USER: &str = "concertina-user-";
/// The most bytes of metadata that a store accepts, names and values.
const META_BYTES_MAX: usize = 2048;
/// Represents an empty text, which stores would drop. No other text is escaped to it.
const EMPTY: &str = "%";
/// The content type sent to the store when the real one is in our own attribute.
const OTHER_TYPE: &str = "application/octet-stream";
/// The characters to escape: `%`, and all but visible ASCII and the space.
const ESCAPED: &AsciiSet = &percent_encoding::CONTROLS.add(b'%');

/// Encodes the attributes of an object as headers of its PUT. [`Error::Refused`] if they are larger than stores accept.
pub fn to_store(
    etag: &Etag,
    modified_unix_us: u64,
    attributes: &Attributes,
    key: Option<&[u8]>,
) -> Result<HeaderMap, Error> {
    let mut pairs = vec![
        (VERSION.to_owned(), etag.to_string()),
        (MODIFIED.to_owned(), modified_unix_us.to_string()),
    ];
    if let Some(key) = key {
        pairs.push((KEY.to_owned(), name::digits_of(key)));
    }
    let mut stored = HeaderMap::with_capacity(pairs.len() + attributes.user.len() + 2);
    let content_type = attributes.content_type.as_deref();
    let shown = content_type.filter(|text| escape(text) == *text).unwrap_or(OTHER_TYPE);
    stored.insert(CONTENT_TYPE, value_of(shown)?);
    if content_type != Some(shown) {
        pairs.push((TYPE.to_owned(), escape(content_type.unwrap_or("")).into_owned()));
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
        let header = HeaderName::try_from(format!("{META}{name}"));
        let header = header.map_err(|_| {
            Error::Refused(format!("the name {name:?} of user metadata cannot be one in a store"))
        })?;
        stored.append(header, value_of(&value)?);
    }
    Ok(stored)
}

fn value_of(text: &str) -> Result<HeaderValue, Error> {
    let odd = |_| Error::Refused(format!("{text:?} cannot be metadata in a store"));
    HeaderValue::from_str(text).map_err(odd)
}

/// The attributes of the bucket's marker.
pub fn of_marker() -> HeaderMap {
    HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("text/plain"))])
}

/// The last value of an attribute, without the prefix of its header.
fn attribute<'a>(head: &'a StoredHead, name: &str) -> Option<&'a str> {
    let values = head.headers.get_all(format!("{META}{name}"));
    std::str::from_utf8(values.iter().next_back()?.as_bytes()).ok()
}

/// Decodes the metadata of an object from the store's reply.
pub fn from_store(head: &StoredHead) -> Metadata {
    let version = attribute(head, VERSION).filter(|text| is_version(text));
    let attributes = attributes_of(head, version.is_some());
    let (etag, modified_unix_us) = match version {
        Some(version) => {
            let modified = attribute(head, MODIFIED).and_then(|text| text.parse().ok());
            (Etag::from(version), modified.unwrap_or(head.modified_unix_us))
        }
        None => (version_of_store(head, &attributes), head.modified_unix_us),
    };
    Metadata { size: head.size, etag, modified_unix_us, attributes }
}

/// The metadata of an object that another tool wrote, with our metadata of the bytes before.
pub fn of_another_tool(head: &StoredHead, ours: Metadata) -> Metadata {
    let etag = version_of_store(head, &ours.attributes);
    Metadata { etag, modified_unix_us: head.modified_unix_us, ..ours }
}

/// The version of an object that has none of ours: a hash of the store's etag, its length and its attributes. With the length, so
/// that a reply that was cut off on its way is another version than the next look finds.
fn version_of_store(head: &StoredHead, attributes: &Attributes) -> Etag {
    let mut hasher = VersionHasher::default();
    match &head.etag {
        Some(etag) => hasher.update(format!("{etag} {}", head.size).as_bytes()),
        None => hasher.update(format!("{} {}", head.modified_unix_us, head.size).as_bytes()),
    }
    Etag::from(&*format!("s3-{}", hasher.finish(attributes)))
}

/// The whole key of an object whose name does not hold it completely.
pub fn key_of(head: &StoredHead) -> Option<Vec<u8>> {
    name::bytes_of(attribute(head, KEY)?)
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

fn attributes_of(head: &StoredHead, ours: bool) -> Attributes {
    let headers = &head.headers;
    let content_type = text(headers, CONTENT_TYPE);
    let mut content_type = content_type.map(str::to_owned).filter(|t| !t.is_empty());
    let mut user = Vec::new();
    for header in KEPT.iter().filter(|_| !ours) {
        if let Some(value) = text(headers, header).filter(|value| !value.is_empty()) {
            user.push((format!("{KEPT_PREFIX}{header}"), value.to_owned()));
        }
    }
    for name in headers.keys() {
        let Some(name) = name.as_str().strip_prefix(META) else { continue };
        let Some(value) = attribute(head, name) else { continue };
        if !ours {
            user.push((name.to_owned(), value.to_owned()));
        } else if let Some(rest) = name.strip_prefix(USER) {
            let name = rest.split_once('-').map_or(rest, |(_, name)| name);
            user.push((name.to_owned(), unescape(value)));
        } else if name == TYPE {
            content_type = Some(unescape(value)).filter(|text| !text.is_empty());
        } else if !name.starts_with(OURS) {
            user.push((name.to_owned(), unescape(value)));
        }
    }
    user.sort();
    Attributes { content_type, user }
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

    fn head(size: u64, headers: HeaderMap) -> StoredHead {
        StoredHead { size, etag: Some("\"abc\"".to_owned()), modified_unix_us: 0, headers }
    }

    fn check(attributes: Attributes, key: Option<Vec<u8>>) {
        let etag = Etag::from("0123456789abcdef0123456789abcdef");
        let stored = match to_store(&etag, 5, &attributes, key.as_deref()) {
            Err(Error::Refused(_)) => return,
            stored => stored.unwrap(),
        };
        for value in stored.values() {
            let value = value.to_str().unwrap();
            assert!(value.bytes().all(|byte| (32..127).contains(&byte)), "{value:?}");
            assert!(!value.is_empty() && value.trim() == value && !value.contains("  "));
        }
        let head = head(7, stored);
        let metadata = from_store(&head);
        assert_eq!(metadata, Metadata { size: 7, etag, modified_unix_us: 5, attributes });
        assert_eq!(key_of(&head), key);
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
        assert_eq!(key_of(&head(0, stored.unwrap())).unwrap(), [0xff; 1024]);
    }

    #[test]
    fn metadata_that_another_tool_wrote_may_be_any_text() {
        let mut stored = head(3, of_marker());
        for (name, value) in [
            ("x-amz-meta-city", "Z\u{fc}rich \u{20ac}"),
            ("content-disposition", "attachment; filename=\"\u{fc}.txt\""),
        ] {
            stored.headers.insert(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        let user = from_store(&stored).attributes.user;
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            user,
            [
                pair("city", "Z\u{fc}rich \u{20ac}"),
                pair("s3--content-disposition", "attachment; filename=\"\u{fc}.txt\""),
            ]
        );
    }

    #[test]
    fn what_another_tool_wrote_has_a_version_of_all_that_is_served() {
        let mut stored = head(3, of_marker());
        let first = from_store(&stored);
        assert!(first.etag.starts_with("s3-") && VersionHasher::for_etag(&first.etag).is_none());
        assert_eq!(from_store(&stored), first);
        stored.headers.insert("x-amz-meta-owner", HeaderValue::from_static("me%20"));
        let second = from_store(&stored);
        assert_ne!(first.etag, second.etag);
        assert_eq!(second.attributes.user, [("owner".to_owned(), "me%20".to_owned())]);
        // A malformed version was written by another tool.
        let version = HeaderName::try_from(format!("{META}{VERSION}")).unwrap();
        stored.headers.insert(version, HeaderValue::from_static("1.2"));
        assert!(from_store(&stored).etag.starts_with("s3-"));
    }

    #[test]
    fn a_name_that_no_header_can_have_is_refused() {
        let etag = Etag::from("0123456789abcdef0123456789abcdef");
        for name in ["a b", "", "ä", "a\n"] {
            let user = vec![(name.to_owned(), "x".to_owned())];
            let attributes = Attributes { content_type: None, user };
            let refused = to_store(&etag, 5, &attributes, None);
            assert_eq!(refused.is_err(), !name.is_empty(), "{name:?}: {refused:?}");
        }
    }
}
