//! Whether a node's reply is the object that its etag names.
//!
//! An etag of 32 digits, also after `h-`, is a hash of the bytes, the type and the user metadata (`origin::VersionHasher`), all of
//! which a reply to a GET of a whole object has. Parts of objects, etags that are not a hash (uploads in
//! parts, other tools' objects), HEAD and refusals cannot be judged here.

use http::header::{CONTENT_TYPE, ETAG, HeaderMap};
use origin::{Attributes, VersionHasher};

use device::object::META_PREFIX;

/// The type of an object without one.
const UNTYPED: &str = "application/octet-stream";

/// The hash of a body that is being read, with what it must be.
pub struct Verifier {
    hasher: VersionHasher,
    etag: String,
    attributes: Attributes,
}

impl Verifier {
    /// That of a reply to a GET of a whole object; `None` if it cannot be judged.
    pub fn new(headers: &HeaderMap) -> Option<Verifier> {
        let etag = headers.get(ETAG)?.to_str().ok()?;
        let etag = etag.strip_prefix('"')?.strip_suffix('"')?;
        let hasher = VersionHasher::for_etag(etag)?;
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).map(str::to_owned).ok();
        let mut user = Vec::new();
        for (name, value) in headers {
            if let Some(short) = name.as_str().strip_prefix(META_PREFIX) {
                user.push((short.to_owned(), text(value.as_bytes())?));
            }
        }
        user.sort();
        let content_type = headers.get(CONTENT_TYPE).and_then(|value| text(value.as_bytes()));
        let attributes = Attributes { content_type, user };
        Some(Verifier { hasher, etag: etag.to_owned(), attributes })
    }

    /// Adds bytes of the body.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
    }

    /// Whether the body is the etag's. Costs the hash of the attributes.
    pub fn holds(mut self) -> bool {
        if *self.hasher.finish(&self.attributes) == *self.etag {
            return true;
        }
        // A reply names a type where the object has none.
        let untyped = self.attributes.content_type.as_deref() == Some(UNTYPED);
        self.attributes.content_type = None;
        untyped && *self.hasher.finish(&self.attributes) == *self.etag
    }
}

/// Whether a whole body is that of its reply's headers, as far as that can be judged.
pub fn holds(headers: &HeaderMap, body: &[u8]) -> bool {
    Verifier::new(headers).is_none_or(|mut verifier| {
        verifier.update(body);
        verifier.holds()
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use origin::Metadata;

    use super::*;
    use device::object::headers_of;

    fn check(content_type: Option<&str>, user: &[(&str, &str)]) {
        let user = user.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let attributes =
            Attributes { content_type: content_type.map(str::to_owned), user: user.collect() };
        let mut hasher = VersionHasher::default();
        hasher.update(b"the bytes");
        let etag = hasher.finish(&attributes);
        let metadata = Metadata { size: 9, etag, modified_unix_us: 0, attributes };
        let mut headers: HeaderMap = headers_of(&metadata).into_iter().collect();
        assert!(holds(&headers, b"the bytes"));
        assert!(!holds(&headers, b"the bytez"));
        assert!(!holds(&headers, b"the byte"));
        let etag = headers.insert(ETAG, HeaderValue::from_static("\"u-1\"")).unwrap();
        assert!(holds(&headers, b"the bytez"), "it cannot be judged");
        headers.insert(ETAG, etag);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("x/forged"));
        assert!(!holds(&headers, b"the bytes"));
    }

    #[test]
    fn a_reply_is_judged_by_bytes_type_and_metadata() {
        check(None, &[]);
        check(Some(UNTYPED), &[("a", "b")]);
        check(Some("text/plain"), &[("a", "1"), ("a", "2"), ("b", "ü")]);
    }
}
