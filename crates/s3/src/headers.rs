//! What headers of S3's clients ask of the store, and what is known of an object as headers for them.
//!
//! User metadata changes its prefix. The headers that S3 keeps with an object (`Cache-Control` and its kin) and
//! the checksum that a client sent become user metadata whose names begin with [`OWN`]. Etags that are a hash
//! of ours get the suffix `-1`: 32 digits alone are taken for an MD5 by some clients, which would then refuse
//! what they read.

use ground::Key;
use ground::window::Outcome;
use http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_TYPE, ETAG, EXPIRES, HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, LAST_MODIFIED, RANGE, X_CONTENT_TYPE_OPTIONS,
};
use origin::{Attributes, KEPT_PREFIX, Metadata};
use s3s::dto::Checksum;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::checksums::{self, ALGORITHMS};
use super::errors::of_error;
use super::messages::METADATA_TOO_LARGE;
use super::tags::Tags;
use device::PackedEtag;
use device::object::{
    KEPT, Object, add_length, add_line, headers_of, write_dates, write_etag, write_type,
};
use store::ReadRequest;
use store::header_text;
use wire::condition::Conditions;
use wire::headers::OUTCOME;
use wire::range::ByteRange;

const USER: &str = "x-amz-meta-";
/// The prefix of names of user metadata that are this protocol's own.
const OWN: &str = KEPT_PREFIX;
/// The name after [`OWN`] of the hash of the upload that made an object.
const MARK: &str = "upload";
/// The name after [`OWN`] of the parts of an object that was uploaded in parts.
const PARTS: &str = "parts";
/// The name after [`OWN`] of an object's tags.
const TAGGING: &str = "tagging";
/// The longest value of a header that is kept, and the most bytes of all user metadata, as at AWS.
const VALUE_BYTES_MAX: usize = 2048;

/// Headers that are kept with an object and need not be ASCII.
static NOT_ASCII: [HeaderName; 5] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES];
/// What the name of such a header begins with while it is kept from `s3s`. Of a client's own making it is refused unless it is signed.
const ASIDE: &str = "x-amz-kept-";

/// The header with the number of tags.
const TAGGING_COUNT: &str = "x-amz-tagging-count";
/// What clients see after an etag that is a hash, so that they do not take it for an MD5 of the bytes.
const HASH_END: &str = "-1";

/// The etag that clients see.
pub fn etag(ours: &str) -> String {
    if is_hash(ours) { format!("{ours}{HASH_END}") } else { ours.to_owned() }
}

/// The etag that a client's stands for.
pub fn our_etag(theirs: &str) -> &str {
    theirs.strip_suffix(HASH_END).filter(|hash| is_hash(hash)).unwrap_or(theirs)
}

fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// A read of a key under the conditions of a request. `prefix` is `x-amz-copy-source-` for those of a copy's source.
///
/// # Errors
///
/// `InvalidRequest` for conditions that are not understood.
pub fn read(key: Key, given: &HeaderMap, prefix: &str) -> S3Result<ReadRequest> {
    let range = given.get(format!("{prefix}{RANGE}"));
    let range = range.and_then(|value| ByteRange::parse(value.to_str().ok()?));
    let conditions = conditions(given, prefix)?;
    Ok(ReadRequest { range, conditions, ..ReadRequest::get(key) })
}

/// The conditions of a request, with the store's etags.
///
/// # Errors
///
/// As [`read`].
pub fn conditions(given: &HeaderMap, prefix: &str) -> S3Result<Conditions> {
    let mut headers = HeaderMap::new();
    for name in [IF_RANGE, IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE] {
        let Some(value) = given.get(format!("{prefix}{name}")) else { continue };
        let is_etag = [IF_RANGE, IF_MATCH, IF_NONE_MATCH].contains(&name);
        let value = match value.to_str() {
            Ok(text) if is_etag => HeaderValue::from_str(&our_etags(text)).ok(),
            _ => Some(value.clone()),
        };
        headers.extend(value.map(|value| (name, value)));
    }
    let invalid = |what| S3Error::with_message(S3ErrorCode::InvalidRequest, what);
    Conditions::parse(&headers).map_err(invalid)
}

/// The conditions of a PUT: that an etag is there, or that nothing is.
///
/// # Errors
///
/// `NotImplemented` for others, as at AWS.
pub fn write_conditions(given: &HeaderMap) -> S3Result<Conditions> {
    let absent = given.get(IF_NONE_MATCH);
    let other = absent.is_some_and(|value| value.as_bytes() != b"*");
    if other || (absent.is_some() && given.contains_key(IF_MATCH)) {
        let what = "a write has the condition If-Match of an etag, or If-None-Match: *";
        return Err(S3Error::with_message(S3ErrorCode::NotImplemented, what));
    }
    conditions(given, "")
}

/// The etags of a list; those without quotes, which S3 takes, get them.
fn our_etags(text: &str) -> String {
    let text = text.trim();
    if text == "*" {
        return text.to_owned();
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b',') {
        return format!("\"{}\"", our_etag(text));
    }
    let parts = text.split('"').enumerate();
    let parts: Vec<&str> =
        parts.map(|(at, part)| if at % 2 == 1 { our_etag(part) } else { part }).collect();
    parts.join("\"")
}

/// What is kept with an object, as user metadata and type.
///
/// # Errors
///
/// `InvalidArgument` for names that are reserved, `MetadataTooLarge` for long values, `InvalidRequest` for what is not
/// UTF-8.
pub fn attributes_of(given: &HeaderMap) -> S3Result<Attributes> {
    let user =
        given.iter().filter_map(|(name, value)| Some((name.as_str().strip_prefix(USER)?, value)));
    if user.map(|(name, value)| name.len() + value.len()).sum::<usize>() > VALUE_BYTES_MAX {
        return Err(S3Error::with_message(S3ErrorCode::MetadataTooLarge, METADATA_TOO_LARGE));
    }
    let text = |name: &str, value| header_text(name, value).map_err(|error| of_error(&error));
    let kind = given.iter().find(|(name, _)| *stated(name) == CONTENT_TYPE);
    let kind = kind.map(|(_, value)| text("content-type", value)).transpose()?;
    let kind = kind.unwrap_or_else(|| "binary/octet-stream".to_owned());
    let content_type = Some(kind).filter(|kind| !kind.is_empty());
    let mut attributes = Attributes { content_type, user: Vec::new() };
    for (name, value) in given {
        let name = stated(name);
        if value.len() > VALUE_BYTES_MAX && KEPT.contains(name) {
            return Err(S3Error::with_message(S3ErrorCode::MetadataTooLarge, METADATA_TOO_LARGE));
        }
        if let Some(short) = name.as_str().strip_prefix(USER) {
            if short.is_empty() || short.starts_with(OWN) {
                let what = "names of metadata that begin with s3-- are reserved";
                return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, what));
            }
            add(&mut attributes, short.to_owned(), text(name.as_str(), value)?);
        } else if *name == CONTENT_ENCODING {
            let text = value.to_str().unwrap_or("");
            let rest = text.split(',').map(str::trim);
            let rest: Vec<&str> =
                rest.filter(|one| !one.is_empty() && *one != "aws-chunked").collect();
            if !rest.is_empty() {
                add(&mut attributes, format!("{OWN}{name}"), rest.join(", "));
            }
        } else if KEPT.contains(name) {
            add(&mut attributes, format!("{OWN}{name}"), text(name.as_str(), value)?);
        }
    }
    Ok(attributes)
}

fn add(attributes: &mut Attributes, name: String, text: String) {
    attributes.user.push((name, text));
}

/// The value of user metadata that this protocol has made.
fn own<'a>(attributes: &'a Attributes, name: &str) -> Option<&'a str> {
    let is_it = |(other, _): &&(String, String)| other.strip_prefix(OWN) == Some(name);
    attributes.user.iter().find(is_it).map(|(_, text)| text.as_str())
}

/// Keeps the checksums of an object with it.
pub fn keep_checksum(attributes: &mut Attributes, checksum: &Checksum) {
    for algorithm in ALGORITHMS {
        if let Some(text) = checksums::value(checksum, algorithm) {
            add(attributes, format!("{OWN}{algorithm}"), text.to_owned());
        }
    }
}

/// Keeps with an object which upload in parts made it.
pub fn keep_mark(attributes: &mut Attributes, mark: &str) {
    add(attributes, format!("{OWN}{MARK}"), mark.to_owned());
}

/// What [`keep_mark`] has kept.
pub fn mark(attributes: &Attributes) -> Option<&str> {
    own(attributes, MARK)
}

/// Keeps with an object which parts it was uploaded in.
pub fn keep_parts(attributes: &mut Attributes, text: &str) {
    add(attributes, format!("{OWN}{PARTS}"), text.to_owned());
}

/// What [`keep_parts`] has kept.
pub fn parts(attributes: &Attributes) -> Option<&str> {
    own(attributes, PARTS)
}

fn remove(attributes: &mut Attributes, name: &str) {
    attributes.user.retain(|(other, _)| other.strip_prefix(OWN) != Some(name));
}

/// Keeps an object's tags with it, instead of those that are there.
pub fn keep_tags(attributes: &mut Attributes, tags: &Tags) {
    remove(attributes, TAGGING);
    if let Some(text) = tags.text() {
        add(attributes, format!("{OWN}{TAGGING}"), text);
    }
}

impl Tags {
    /// The tags that are kept with an object. What is not readable as tags was not written as such, and is left out.
    pub fn of_object(attributes: &Attributes) -> Tags {
        own(attributes, TAGGING).and_then(|text| Tags::of_text(text).ok()).unwrap_or_default()
    }
}

/// The checksums that are kept with an object, and their type.
pub fn checksums(attributes: &Attributes) -> Checksum {
    let mut checksum = Checksum::default();
    for algorithm in ALGORITHMS {
        if let Some(text) = own(attributes, algorithm) {
            checksums::set_value(&mut checksum, algorithm, text.to_owned());
        }
    }
    checksum.checksum_type = checksums::type_of(&checksum);
    checksum
}

/// What of an object's attributes is kept with a copy of it: its type and all metadata that is the client's. A copy has neither the
/// parts nor the checksums, which are the caller's.
pub fn of_copy(attributes: &Attributes) -> Attributes {
    let mut kept = attributes.clone();
    for name in ALGORITHMS.into_iter().chain([MARK, PARTS]) {
        remove(&mut kept, name);
    }
    kept
}

/// Gives headers that are kept with an object, and are not ASCII, names that `s3s` does not know: it would refuse them.
pub fn set_aside(headers: &mut HeaderMap) {
    for name in &NOT_ASCII {
        let mut values = headers.get_all(name).iter();
        let value =
            values.next().filter(|value| value.to_str().is_err() && values.next().is_none());
        let other = HeaderName::try_from(format!("{ASIDE}{name}")).ok();
        if let Some((value, other)) = value.cloned().zip(other) {
            headers.remove(name);
            headers.insert(other, value);
        }
    }
}

/// The name that a header came with, before [`set_aside`].
fn stated(name: &HeaderName) -> &HeaderName {
    let aside = name.as_str().strip_prefix(ASIDE);
    aside.and_then(|aside| NOT_ASCII.iter().find(|name| *name == aside)).unwrap_or(name)
}

/// The headers that tell of an object. `checksum`: with its checksums.
pub fn reply(metadata: &Metadata, checksum: bool) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(8 + metadata.attributes.user.len());
    let mut kind = None;
    for (name, value) in headers_of(metadata) {
        if [ACCEPT_RANGES, CONTENT_TYPE, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS].contains(&name) {
            headers.insert(name, value);
        }
    }
    let etag = format!("\"{}\"", etag(&metadata.etag));
    headers.extend(HeaderValue::try_from(etag).ok().map(|value| (ETAG, value)));
    for (short, text) in &metadata.attributes.user {
        let name = match short.strip_prefix(OWN) {
            Some(own) if ALGORITHMS.contains(&own) && !checksum => continue,
            Some(MARK) => continue,
            Some(TAGGING) => {
                headers.insert(TAGGING_COUNT, HeaderValue::from(Tags::count(text)));
                continue;
            }
            Some(own) if ALGORITHMS.contains(&own) => {
                kind = Some(checksums::type_of_text(text));
                format!("x-amz-checksum-{own}")
            }
            // HTTP's clients and other tools can store any name: only the headers that S3 keeps are sent.
            Some(own) if !KEPT.iter().any(|name| name == own) => continue,
            Some(own) => own.to_owned(),
            None => format!("{USER}{short}"),
        };
        let name = HeaderName::from_bytes(name.as_bytes()).ok();
        if let Some((name, value)) = name.zip(HeaderValue::from_bytes(text.as_bytes()).ok()) {
            headers.append(name, value);
        }
    }
    if let Some(kind) = kind {
        headers.insert("x-amz-checksum-type", HeaderValue::from_static(kind));
    }
    headers
}

/// Appends the lines of a reply with a whole object from memory: those of [`reply`] without checksums, its length, and the outcome.
pub fn write_lines(object: &Object, lines: &mut Vec<u8>) {
    let packed = object.packed();
    write_type(&packed, lines);
    let is_hash = match packed.etag {
        PackedEtag::Digits { marked, .. } => !marked,
        PackedEtag::Text(text) => is_hash(text),
    };
    write_etag(&packed.etag, if is_hash { HASH_END.as_bytes() } else { b"" }, lines);
    write_dates(&packed, lines);
    for (short, text) in packed.user() {
        let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) else { continue };
        match short.strip_prefix(OWN) {
            Some(TAGGING) => {
                let count = HeaderValue::from(Tags::count(text));
                add_line(lines, &HeaderName::from_static(TAGGING_COUNT), count.as_bytes());
            }
            Some(own) => {
                if let Some(name) = KEPT.iter().find(|name| *name == own) {
                    add_line(lines, name, value.as_bytes());
                }
            }
            None => {
                if let Ok(name) = HeaderName::from_bytes(format!("{USER}{short}").as_bytes()) {
                    add_line(lines, &name, value.as_bytes());
                }
            }
        }
    }
    add_length(lines, object.size());
    add_line(lines, &OUTCOME, Outcome::Memory.as_str().as_bytes());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HASH: &str = "0123456789abcdef0123456789abcdef";

    fn map(pairs: &[(&str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&str, &str)| {
            (
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_str(value).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    fn described(attributes: &Attributes) -> Metadata {
        let (size, etag, attributes) = (1, HASH.into(), attributes.clone());
        Metadata { size, etag, modified_unix_us: 0, attributes }
    }

    fn lines_of(headers: &HeaderMap) -> Vec<String> {
        let line = |(name, value): (&HeaderName, &HeaderValue)| {
            format!("{name}: {}", String::from_utf8_lossy(value.as_bytes()))
        };
        headers.iter().map(line).collect()
    }

    proptest! {
        /// The naive twin makes the headers that hyper is given.
        #[test]
        fn lines_from_memory_are_those_of_any_reply(
            etag in prop_oneof!["[0-9a-f]{32}", "[0-9A-F]{32}", "h-[0-9a-f]{32}", "[a-z0-9-]{0,40}"],
            content_type in prop::option::of("[a-z]{1,9}/[a-z]{1,9}"),
            user in prop::collection::btree_map(
                prop_oneof!["[a-z-]{1,12}", "s3--(content-encoding|expires|upload|parts|tagging|sha256|other)"],
                "[ -~]{0,12}",
                0..5,
            ),
        ) {
            // Each name is there once.
            let attributes = Attributes { content_type, user: user.into_iter().collect() };
            let metadata = Metadata { size: 3, etag: etag.into(), modified_unix_us: 1_795_950_000_000_000, attributes };
            let mut expected = lines_of(&reply(&metadata, false));
            expected.extend(["content-length: 3".to_owned(), format!("{OUTCOME}: memory")]);
            let mut lines = Vec::new();
            write_lines(&Object::new(&metadata, "abc".into()), &mut lines);
            let lines = String::from_utf8(lines).unwrap();
            let mut found: Vec<String> = lines.split_terminator("\r\n").map(str::to_owned).collect();
            expected.sort();
            found.sort();
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn etags_are_never_taken_for_an_md5() {
        for ours in [HASH, "u-0123456789abcdef0123456789abcdef", "s3-abc"] {
            let theirs = etag(ours);
            assert!(!is_hash(&theirs));
            assert_eq!(our_etag(&theirs), ours);
        }
        let hash = format!("\"{HASH}-1\"");
        for (given, expected) in [
            (hash.as_str(), format!("\"{HASH}\"")),
            (&format!("W/{hash}, \"x-1\""), format!("W/\"{HASH}\", \"x-1\"")),
            (&format!("{HASH}-1"), format!("\"{HASH}\"")),
            ("*", "*".to_owned()),
            ("\"a", "\"a".to_owned()),
        ] {
            assert_eq!(our_etags(given), expected);
        }
    }

    #[test]
    fn an_encoding_is_kept_without_that_of_the_transfer() {
        for (given, expected) in [
            ("gzip", Some("gzip")),
            ("deflate, gzip", Some("deflate, gzip")),
            ("deflate,gzip,", Some("deflate, gzip")),
            ("gzip, aws-chunked", Some("gzip")),
            ("aws-chunked, deflate, gzip", Some("deflate, gzip")),
            ("aws-chunked, aws-chunked", None),
            ("aws-chunked", None),
        ] {
            let kept = attributes_of(&map(&[("content-encoding", given)])).unwrap();
            assert_eq!(own(&kept, "content-encoding"), expected, "{given}");
        }
    }

    #[test]
    fn what_is_kept_comes_back() {
        let given = map(&[
            ("content-type", "text/plain"),
            ("content-encoding", "aws-chunked, gzip"),
            ("cache-control", "no-store"),
            ("x-amz-meta-colour", "red"),
            ("x-amz-acl", "private"),
            ("authorization", "secret"),
        ]);
        let told = |attributes: &Attributes, checksum| {
            let mut headers = reply(&described(attributes), checksum);
            for name in [ACCEPT_RANGES, ETAG, LAST_MODIFIED, X_CONTENT_TYPE_OPTIONS] {
                headers.remove(name).unwrap();
            }
            headers
        };
        let back = told(&attributes_of(&given).unwrap(), true);
        let expected = map(&[
            ("content-type", "text/plain"),
            ("content-encoding", "gzip"),
            ("cache-control", "no-store"),
            ("x-amz-meta-colour", "red"),
        ]);
        assert_eq!(back, expected);
        let mut with = attributes_of(&given).unwrap();
        let checksum =
            Checksum { checksum_crc32: Some("AAAAAA==".to_owned()), ..Checksum::default() };
        keep_checksum(&mut with, &checksum);
        keep_mark(&mut with, HASH);
        assert_eq!(mark(&with), Some(HASH));
        keep_parts(&mut with, "1");
        assert_eq!(parts(&with), Some("1"));
        assert_eq!(of_copy(&with), attributes_of(&given).unwrap());
        assert_eq!(told(&with, true)["x-amz-checksum-crc32"], "AAAAAA==");
        assert_eq!(told(&with, true)["x-amz-checksum-type"], "FULL_OBJECT");
        assert_eq!(told(&with, false), expected);
        for other in ["content-length", "transfer-encoding", "set-cookie"] {
            let user = vec![(format!("{OWN}{other}"), "1".to_owned())];
            let told = told(&Attributes { content_type: Some("x".to_owned()), user }, true);
            assert_eq!(told, map(&[("content-type", "x")]));
        }
        assert!(attributes_of(&map(&[("x-amz-meta-s3--crc32", "x")])).is_err());
        assert!(attributes_of(&map(&[("x-amz-meta-a", &"x".repeat(3000))])).is_err());
    }

    proptest! {
        #[test]
        fn any_headers_are_read_and_user_metadata_comes_back(
            name in "[a-z0-9-]{1,20}",
            value in prop::collection::vec(any::<u8>(), 0..60),
            condition in 0usize..6,
        ) {
            let Ok(value) = HeaderValue::from_bytes(&value) else { return Ok(()) };
            let names = ["range", "if-range", "if-match", "if-none-match", "content-encoding", "expires"];
            let mut given = HeaderMap::new();
            given.insert(HeaderName::from_static(names[condition]), value.clone());
            given.insert(HeaderName::try_from(format!("{USER}{name}")).unwrap(), value.clone());
            let _ = conditions(&given, "");
            if let Ok(kept) = attributes_of(&given) {
                let back = reply(&described(&kept), true);
                prop_assert_eq!(back.get(format!("{USER}{name}")), Some(&value));
                prop_assert!(reply(&described(&of_copy(&kept)), true) == back);
            } else {
                let is_text = std::str::from_utf8(value.as_bytes()).is_ok();
                prop_assert!(name.starts_with(OWN) || !is_text);
            }
        }
    }
}
