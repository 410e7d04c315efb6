//! Whether the body of a request in XML is the one that its headers state: the SHA-256 that its signature covers,
//! `Content-MD5`, checksums.
//!
//! `s3s` verifies the first and answers 500 if it differs, and leaves the others to operations, which do not see the
//! body. So a body is hashed on its way to `s3s`. `s3s` also passes CDATA sections by, so that `<Key>a<![CDATA[b]]></Key>` would name
//! another object: a body with one is refused, as is one with elements that `s3s` would pass by ([`elements`](super::elements)). One that differs ends in an error, so that no operation begins, and the reply is
//! replaced.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use ground::hex;
use http::request::Parts;
use http::{Method, Request};
use hyper::body::{Body, Frame, SizeHint};
use ring::digest;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::{S3Error, S3ErrorCode};

use super::checksums::{ALGORITHMS, hasher, value};
use super::elements::Elements;
use super::messages::{self, SHA256_MISMATCH, sha256_mismatch};
use super::query;

/// What is wrong with a body, once that is known.
#[derive(Clone, Default)]
pub struct Differs(Arc<OnceLock<(S3ErrorCode, String)>>);

impl Differs {
    /// Remembers what is wrong, unless something is already.
    pub fn set(&self, code: S3ErrorCode, what: String) {
        let _ = self.0.set((code, what));
    }

    /// The error of the request, if its body differs from what its headers state.
    pub fn error(&self) -> Option<S3Error> {
        self.0.get().map(|(code, what)| messages::error(code.clone(), what.clone()))
    }
}

/// The error that ends a body that differs.
#[derive(Debug, thiserror::Error)]
#[error("the body is not the one that the headers state")]
struct Other;

/// How a CDATA section begins. Its first byte occurs nowhere else in it, which makes looking for it simple.
const CDATA: &[u8] = b"<![CDATA[";

/// Looks for CDATA sections in bytes that come in pieces.
#[derive(Default)]
struct Sections {
    /// How many of the last bytes begin one.
    matched: usize,
}

impl Sections {
    /// Whether a section begins in these bytes, or with those before them.
    fn begin_in(&mut self, bytes: &[u8]) -> bool {
        for byte in bytes {
            self.matched = match CDATA.get(self.matched) {
                Some(next) if next == byte => self.matched + 1,
                _ => usize::from(*byte == CDATA[0]),
            };
            if self.matched == CDATA.len() {
                return true;
            }
        }
        false
    }
}

/// What ends a body early.
pub type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Whether the body of a request is in XML.
pub fn is_xml(method: &Method, query: Option<&str>) -> bool {
    let has = |name: &str| query::has(query, name);
    method == Method::POST || (method == Method::PUT && (has("tagging") || has("acl")))
}

/// Refuses a body in XML that comes in chunks, which S3 has for objects and parts alone: `s3s` would take the chunks apart behind
/// the checks that are here, of CDATA sections and of checksums.
///
/// # Errors
///
/// `NotImplemented`.
pub fn check<B>(request: &Request<B>) -> Result<(), S3Error> {
    let signed = request.headers().get_all("x-amz-content-sha256").iter();
    let mut signed = signed.map(|value| value.as_bytes());
    let is_chunked = signed.any(|text| text.starts_with(b"STREAMING-"));
    if is_chunked && is_xml(request.method(), request.uri().query()) {
        let what = "a body in XML is not sent in chunks: send it as a whole, with its SHA-256";
        return Err(messages::error(S3ErrorCode::NotImplemented, what));
    }
    Ok(())
}

/// What is stated of a body.
struct Stated {
    sha256: Option<[u8; 32]>,
    md5: Option<String>,
    /// Algorithms and values.
    checksums: Vec<(&'static str, String)>,
}

impl Stated {
    /// What the headers of a request state; `None` if its body is none in XML.
    fn in_headers(request: &Parts) -> Option<Stated> {
        let text = |name: &str| request.headers.get(name)?.to_str().ok().map(str::to_owned);
        let has = |name: &str| query::has(request.uri.query(), name);
        let signed = text("x-amz-content-sha256").unwrap_or_default();
        if !is_xml(&request.method, request.uri.query()) {
            return None;
        }
        // The completion of an upload states the checksum of the object.
        let checksum = |name: &'static str| Some((name, text(&format!("x-amz-checksum-{name}"))?));
        let checksums = ALGORITHMS.into_iter().filter(|_| !has("uploadId")).filter_map(checksum);
        Some(Stated {
            sha256: hex::decode_hash(&signed),
            md5: text("content-md5"),
            checksums: checksums.collect(),
        })
    }
}

/// A body that is hashed as it passes.
pub struct Hashed<B> {
    body: B,
    left: u64,
    stated: Stated,
    sha256: digest::Context,
    md5: Md5,
    hasher: ChecksumHasher,
    sections: Sections,
    elements: Elements,
    differs: Differs,
}

impl<B: Body> Hashed<B> {
    /// The body of a request; the body itself if nothing is to be verified.
    ///
    /// # Errors
    ///
    /// The body, if it is none in XML or has no length.
    pub fn new(body: B, request: &Parts, differs: Differs) -> Result<Hashed<B>, B> {
        let (Some(stated), Some(left)) = (Stated::in_headers(request), body.size_hint().exact())
        else {
            return Err(body);
        };
        let hasher = hasher(|name| stated.checksums.iter().any(|(of, _)| *of == name));
        let sha256 = digest::Context::new(&digest::SHA256);
        let (md5, sections, elements) = (Md5::new(), Sections::default(), Elements::default());
        let mut hashed =
            Hashed { body, left, stated, sha256, md5, hasher, sections, elements, differs };
        if left == 0 {
            // No bytes will come; what differs shows in the reply alone.
            let _ = hashed.judge();
        }
        Ok(hashed)
    }

    /// Whether the whole body is as stated.
    fn judge(&mut self) -> Result<(), Other> {
        let sha256 = self.sha256.clone().finish();
        let wrong = if self.stated.sha256.is_some_and(|stated| stated != sha256.as_ref()) {
            Some((sha256_mismatch(), SHA256_MISMATCH.to_owned()))
        } else if self.stated.md5.as_ref().is_some_and(|stated| {
            *stated != BASE64.encode(std::mem::replace(&mut self.md5, Md5::new()).finalize())
        }) {
            let what = "The Content-MD5 you specified did not match what we received.";
            Some((S3ErrorCode::BadDigest, what.to_owned()))
        } else {
            let computed = std::mem::take(&mut self.hasher).finalize();
            let other = |(name, stated): &&(&str, String)| value(&computed, name) != Some(stated);
            self.stated.checksums.iter().find(other).map(|(name, _)| {
                let of = name.to_ascii_uppercase();
                let what = format!("The {of} you specified did not match the calculated checksum.");
                (S3ErrorCode::BadDigest, what)
            })
        };
        match wrong {
            Some(wrong) => {
                let _ = self.differs.0.set(wrong);
                Err(Other)
            }
            None => Ok(()),
        }
    }
}

impl<B> Body for Hashed<B>
where
    B: Body<Data = Bytes> + Unpin,
    Broken: From<B::Error>,
{
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(frame) = frame.transpose()? else { return Poll::Ready(None) };
        if let Some(bytes) = frame.data_ref() {
            self.left = self.left.saturating_sub(bytes.len() as u64);
            self.sha256.update(bytes);
            self.md5.update(bytes);
            self.hasher.update(bytes);
            if self.sections.begin_in(bytes) {
                self.differs.set(S3ErrorCode::MalformedXML, messages::NO_CDATA.to_owned());
                return Poll::Ready(Some(Err(Other.into())));
            }
            if self.elements.are_strange_in(bytes) {
                self.differs.set(S3ErrorCode::MalformedXML, messages::MALFORMED_XML.to_owned());
                return Poll::Ready(Some(Err(Other.into())));
            }
            if self.left == 0
                && let Err(other) = self.judge()
            {
                return Poll::Ready(Some(Err(other.into())));
            }
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::{BodyExt, Full};

    use super::*;

    const SHA256: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const MD5: &str = "kAFQmDzST7DWlj99KOF/cg==";
    const CRC32: &str = "NSRBwg==";

    /// The code of the error of a request with the body `abc`; `None` if the body passes.
    async fn verify(method: Method, uri: &str, headers: &[(&str, &str)]) -> Option<String> {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, body) =
            request.body(Full::new(Bytes::from_static(b"abc"))).unwrap().into_parts();
        let differs = Differs::default();
        let Ok(hashed) = Hashed::new(body, &parts, differs.clone()) else { return None };
        let passed = hashed.collect().await;
        assert_eq!(passed.is_err(), differs.error().is_some());
        assert!(passed.is_err() || passed.unwrap().to_bytes() == "abc");
        differs.error().map(|error| error.code().as_str().to_owned())
    }

    #[test]
    fn xml_does_not_come_in_chunks() {
        let judged = |method: Method, uri: &str, signed: &str| {
            let request = Request::builder().method(method).uri(uri);
            let request = request.header("x-amz-content-sha256", signed).body(()).unwrap();
            check(&request).map_err(|error| error.code().clone())
        };
        let refused = Err(S3ErrorCode::NotImplemented);
        for chunks in ["STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"] {
            for (method, uri) in [
                (Method::POST, "/b?delete"),
                (Method::POST, "/b/k?uploadId=x"),
                (Method::PUT, "/b/k?tagging"),
                (Method::PUT, "/b/k?tagging=&x-id=PutObjectTagging"),
                (Method::PUT, "/b/k?acl"),
            ] {
                assert_eq!(judged(method.clone(), uri, chunks), refused, "{method} {uri}");
                assert_eq!(judged(method, uri, "UNSIGNED-PAYLOAD"), Ok(()), "{uri}");
            }
            assert_eq!(judged(Method::PUT, "/b/k?uploadId=x&partNumber=1", chunks), Ok(()));
            assert_eq!(judged(Method::PUT, "/b/acl", chunks), Ok(()));
        }
    }

    #[test]
    fn cdata_sections_are_found_in_any_pieces() {
        let found = |text: &str, size: usize| {
            let mut sections = Sections::default();
            text.as_bytes().chunks(size).any(|piece| sections.begin_in(piece))
        };
        for size in 1..20 {
            for text in
                ["<Key>a<![CDATA[b]]></Key>", "<![CDATA[", "<<![CDATA[", "<![CDATA<![CDATA["]
            {
                assert!(found(text, size), "{text} in pieces of {size}");
            }
            for text in
                ["<Key>a</Key>", "<![CDATA", "<!-- [CDATA[ -->", "&lt;![CDATA[", "<![cdata["]
            {
                assert!(!found(text, size), "{text} in pieces of {size}");
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_is_not_as_stated_ends_in_an_error() {
        let sha256 = |of| ("x-amz-content-sha256", of);
        let other = SHA256.replace("ba", "bb");
        let put = async |headers: &[_]| verify(Method::PUT, "/b/k?tagging", headers).await;
        assert_eq!(put(&[]).await, None);
        assert_eq!(
            put(&[sha256(SHA256), ("content-md5", MD5), ("x-amz-checksum-crc32", CRC32)]).await,
            None
        );
        let mismatch = Some("XAmzContentSHA256Mismatch".to_owned());
        assert_eq!(put(&[sha256(&other)]).await, mismatch);
        let digest = Some("BadDigest".to_owned());
        assert_eq!(put(&[("content-md5", "kAFQmDzST7DWlj99KOF/cw==")]).await, digest);
        let crc32 = ("x-amz-checksum-crc32", "AAAAAA==");
        assert_eq!(put(&[sha256(SHA256), crc32]).await, digest);
        // That of the object, and that of bytes that are not in XML.
        assert_eq!(verify(Method::POST, "/b/k?uploadId=1", &[crc32]).await, None);
        assert_eq!(verify(Method::PUT, "/b/k", &[crc32]).await, None);
        assert_eq!(verify(Method::POST, "/b?delete", &[crc32]).await, digest);
    }
}
