//! Tags of objects.
//!
//! They are part of an object's metadata, under the reserved name [`TAGGING`](super::headers), in the form of the
//! header `x-amz-tagging`. So every tier keeps them with the object, and a read is as current as that of any other
//! metadata. [`tagging`](super::tagging) has the operations on them.

use std::fmt::Write;

use http::header::HeaderMap;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use s3s::dto::Tag;
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::messages::{MALFORMED_XML, TAGGING_ENCODED, error};

/// The most tags of an object.
const TAGS_MAX: usize = 10;
/// The most characters of a tag's key, and of its value.
const KEY_CHARS_MAX: usize = 128;
const VALUE_CHARS_MAX: usize = 256;
/// Characters that are escaped; a space becomes `+`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'/')
    .remove(b':')
    .remove(b'@')
    .remove(b' ');

/// The tags of an object: keys and values, valid and without duplicate keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(Vec<(String, String)>);

fn invalid(what: &'static str) -> S3Error {
    S3Error::with_message(S3ErrorCode::InvalidTag, what)
}

/// Letters, digits and spaces of any language, and `+ - = . _ : / @`.
fn is_allowed(c: char) -> bool {
    c.is_alphanumeric() || (c.is_whitespace() && !c.is_control()) || "+-=._:/@".contains(c)
}

impl Tags {
    /// Adds a tag.
    ///
    /// # Errors
    ///
    /// `InvalidTag` if key or value have characters that are not allowed, or too many; `BadRequest` for too many tags.
    fn add(&mut self, key: String, value: String) -> S3Result<()> {
        if key.starts_with("aws:") {
            return Err(invalid("System tags cannot be added/updated by requester"));
        }
        let fits = |text: &str, max| text.chars().count() <= max && text.chars().all(is_allowed);
        if key.is_empty() || !fits(&key, KEY_CHARS_MAX) {
            return Err(invalid("The TagKey you have provided is invalid"));
        }
        if !fits(&value, VALUE_CHARS_MAX) {
            return Err(invalid("The TagValue you have provided is invalid"));
        }
        if self.0.len() == TAGS_MAX {
            let code = S3ErrorCode::Custom("BadRequest".into());
            return Err(error(code, "Object tags cannot be greater than 10"));
        }
        self.0.push((key, value));
        Ok(())
    }

    fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(other, _)| other == key)
    }

    /// The tags of a list in XML.
    ///
    /// # Errors
    ///
    /// `MalformedXML` if a tag lacks its key or value, `InvalidTag` for duplicate keys, and as [`Tags::add`].
    pub fn of_set(set: Vec<Tag>) -> S3Result<Tags> {
        let mut tags = Tags::default();
        for tag in set {
            let (Some(key), Some(value)) = (tag.key, tag.value) else {
                return Err(S3Error::with_message(S3ErrorCode::MalformedXML, MALFORMED_XML));
            };
            if tags.has(&key) {
                return Err(invalid("Cannot provide multiple Tags with the same key"));
            }
            tags.add(key, value)?;
        }
        Ok(tags)
    }

    /// The tags of the text of a header `x-amz-tagging`: `KEY=VALUE&KEY=VALUE`, URL-encoded.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the text has another form or duplicate keys, and as [`Tags::add`].
    pub fn of_text(text: &str) -> S3Result<Tags> {
        let malformed = || error(S3ErrorCode::InvalidArgument, TAGGING_ENCODED);
        let decode = |text: &str| {
            let mut escapes = text.split('%').skip(1).map(str::as_bytes);
            let is_escape =
                |after: &[u8]| after.len() >= 2 && after[..2].iter().all(u8::is_ascii_hexdigit);
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8().map(String::from);
            decoded.ok().filter(|_| escapes.all(is_escape)).ok_or_else(malformed)
        };
        let mut tags = Tags::default();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key)?, decode(value)?);
            if key.is_empty() || tags.has(&key) {
                return Err(malformed());
            }
            tags.add(key, value)?;
        }
        Ok(tags)
    }

    /// The tags that the headers of a request set.
    ///
    /// # Errors
    ///
    /// As [`Tags::of_text`].
    pub fn of_request(given: &HeaderMap) -> S3Result<Tags> {
        let mut lines = given.get_all("x-amz-tagging").iter();
        let Some(line) = lines.next() else { return Ok(Tags::default()) };
        let text = line.to_str().ok().filter(|_| lines.next().is_none());
        Tags::of_text(text.ok_or_else(|| error(S3ErrorCode::InvalidArgument, TAGGING_ENCODED))?)
    }

    /// The text as which they are kept; `None` without tags.
    pub fn text(&self) -> Option<String> {
        let mut text = String::new();
        for (at, (key, value)) in self.0.iter().enumerate() {
            let encoded = |text| utf8_percent_encode(text, ESCAPED);
            let before = if at == 0 { "" } else { "&" };
            let _ = write!(text, "{before}{}={}", encoded(key), encoded(value));
        }
        Some(text.replace(' ', "+")).filter(|text| !text.is_empty())
    }

    /// How many tags a text has that was made by [`Tags::text`].
    pub fn count(text: &str) -> usize {
        text.split('&').filter(|pair| !pair.is_empty()).count()
    }

    pub fn into_set(self) -> Vec<Tag> {
        let tag = |(key, value)| Tag { key: Some(key), value: Some(value) };
        self.0.into_iter().map(tag).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tags(pairs: &[(&str, &str)]) -> Tags {
        Tags(pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
    }

    #[test]
    fn the_text_of_a_header_is_read() {
        for (text, expected) in [
            ("", tags(&[])),
            ("&&", tags(&[])),
            ("a", tags(&[("a", "")])),
            ("a=&b=c&", tags(&[("a", ""), ("b", "c")])),
            ("a==b", tags(&[("a", "=b")])),
            ("key%2E=a%2B+b", tags(&[("key.", "a+ b")])),
            ("%C3%BC=%E6%97%A5", tags(&[("ü", "日")])),
        ] {
            assert_eq!(Tags::of_text(text).unwrap(), expected, "{text}");
        }
        let long = |chars| "x".repeat(chars);
        let many: Vec<String> = (0..11).map(|n| format!("k{n}=v")).collect();
        for (text, code) in [
            ("=", "InvalidArgument"),
            ("=a", "InvalidArgument"),
            ("a%", "InvalidArgument"),
            ("a%2", "InvalidArgument"),
            ("a%2g", "InvalidArgument"),
            ("a%FF", "InvalidArgument"),
            ("a=b&a=c", "InvalidArgument"),
            ("a?=b", "InvalidTag"),
            ("a=b!", "InvalidTag"),
            ("a=%0A", "InvalidTag"),
            ("aws:x=b", "InvalidTag"),
            (&long(129), "InvalidTag"),
            (&format!("a={}", long(257)), "InvalidTag"),
            (&many.join("&"), "BadRequest"),
        ] {
            let error = Tags::of_text(text).unwrap_err();
            assert_eq!(error.code().as_str(), code, "{text}");
            assert_eq!(error.status_code(), Some(http::StatusCode::BAD_REQUEST), "{text}");
        }
        assert!(Tags::of_text(&format!("{}={}", long(128), long(256))).is_ok());
        assert!(Tags::of_text(&many[..10].join("&")).is_ok());
    }

    #[test]
    fn a_list_in_xml_is_read() {
        let tag = |key: Option<&str>, value: Option<&str>| Tag {
            key: key.map(str::to_owned),
            value: value.map(str::to_owned),
        };
        let read = |set: &[Tag]| Tags::of_set(set.to_vec());
        let whole = [tag(Some("a"), Some("b")), tag(Some("c"), Some(""))];
        assert_eq!(read(&whole).unwrap(), tags(&[("a", "b"), ("c", "")]));
        assert_eq!(read(&whole).unwrap().into_set(), whole);
        for (set, code) in [
            (vec![tag(None, Some("b"))], "MalformedXML"),
            (vec![tag(Some("a"), None)], "MalformedXML"),
            (vec![tag(Some(""), Some("b"))], "InvalidTag"),
            (vec![whole[0].clone(), whole[0].clone()], "InvalidTag"),
        ] {
            assert_eq!(read(&set).unwrap_err().code().as_str(), code, "{set:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_comes_back(
            set in proptest::collection::btree_map("[a-z +=.:/@_\u{e4}\u{65e5}-]{1,9}", "[A-Z9 +=.:/@_\u{e4}-]{0,9}", 0..10),
        ) {
            let tags = Tags(set.into_iter().collect());
            let text = tags.text();
            prop_assert_eq!(text.is_none(), tags.0.is_empty());
            let text = text.as_deref().unwrap_or_default();
            prop_assert_eq!(Tags::count(text), tags.0.len());
            prop_assert_eq!(Tags::of_text(text).unwrap(), tags);
        }

        #[test]
        fn any_text_is_read_without_panic(text in "\\PC{0,40}|[a%=&+0-9]{0,20}") {
            let _ = Tags::of_text(&text);
        }
    }
}
