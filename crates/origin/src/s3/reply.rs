//! What a reply of the store must look like.
//!
//! Between this process and the store, others may answer: the maintenance page of a load balancer, a captive portal, a proxy. Their
//! 200 is no object, no listing and no write, and their 404 says nothing of an object: a proxy that has no back end at the moment
//! answers so, and a removal would be acknowledged that was not made. By another status nothing was read or written,
//! whoever gives it.

use http::StatusCode;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use http::response::Parts;

use super::failure::{Failure, FailureKind};

/// The request that a reply is to, as far as its form depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A page of a listing.
    Listing,
    /// An object, or its head.
    Object {
        /// Whether a part of it was asked for.
        is_range: bool,
    },
    /// A write of an object or of a part of one.
    Write,
    /// A removal.
    Removal,
    /// The beginning of an upload in parts. Its XML is read, and says whether it is one.
    Upload,
    /// The end of an upload in parts, of which the XML says whether it is a success.
    Completion,
}

impl Expected {
    /// Refuses a success that S3 does not give this request, and a 404 of something else.
    ///
    /// # Errors
    ///
    /// Of a kind that is not tried again at once, with what is missing.
    pub fn check(self, reply: &Parts) -> Result<(), Failure> {
        let has = |name| reply.headers.contains_key(name);
        let is_xml = || {
            let kind = reply.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
            kind.is_some_and(|kind| kind.to_ascii_lowercase().contains("xml"))
        };
        // A file that was put into a store's folder by other means has no etag at some stores, but a time. An error that a store tells
        // with the status 200 has neither.
        let is_of_store = || reply.headers.keys().any(|name| name.as_str().starts_with("x-amz"));
        // Nearly all stores send `x-amz-request-id`; one that does not describes its errors in XML, or, to HEAD, not at all.
        let is_page = has(CONTENT_TYPE) && !is_xml() && !is_of_store();
        let is_anothers = reply.status == StatusCode::NOT_FOUND && is_page;
        if !reply.status.is_success() && !is_anothers {
            return Ok(());
        }
        // A store's 200 to a DELETE has no body; a page of others has one.
        let is_empty = || reply.headers.get(CONTENT_LENGTH).is_none_or(|length| length == "0");
        let missing = match (self, reply.status) {
            (Expected::Listing, StatusCode::OK) if is_xml() => return Ok(()),
            (Expected::Listing, StatusCode::OK) => "with a listing that is not XML",
            (Expected::Object { .. }, StatusCode::OK)
                if has(ETAG) || is_of_store() && has(LAST_MODIFIED) =>
            {
                return Ok(());
            }
            (Expected::Object { is_range: true }, StatusCode::PARTIAL_CONTENT)
                if has(ETAG) && has(CONTENT_RANGE) =>
            {
                return Ok(());
            }
            (Expected::Write, StatusCode::OK) if has(ETAG) => return Ok(()),
            (Expected::Removal, StatusCode::NO_CONTENT) => return Ok(()),
            (Expected::Removal, StatusCode::OK) if is_empty() && !has(CONTENT_TYPE) => {
                return Ok(());
            }
            (Expected::Upload | Expected::Completion, StatusCode::OK) => return Ok(()),
            (_, StatusCode::NOT_FOUND) => "with a page",
            (Expected::Object { .. } | Expected::Write, StatusCode::OK) => "without an etag",
            (Expected::Object { is_range: true }, StatusCode::PARTIAL_CONTENT) => {
                "without an etag and a range"
            }
            _ => "which S3 does not give this request",
        };
        let what = format!(
            "the reply is not an S3-compatible store's (status {}, {missing}): something else answers at its address",
            reply.status.as_u16()
        );
        Err(Failure::new(FailureKind::Malformed, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(status: u16, headers: &[(&str, &str)]) -> Parts {
        let mut reply = http::Response::builder().status(status);
        for (name, value) in headers {
            reply = reply.header(*name, *value);
        }
        reply.body(()).unwrap().into_parts().0
    }

    /// A reply of a real store, and what strangers make of it.
    #[test]
    fn a_stranger_is_told_from_a_store() {
        let (etag, page) = (("etag", "\"a\""), ("content-type", "text/html"));
        let xml = ("content-type", "application/xml");
        let range = ("content-range", "bytes 0-1/2");
        let (object, part) =
            (Expected::Object { is_range: false }, Expected::Object { is_range: true });
        let is_stores = |expected: Expected, status, headers: &[(&str, &str)]| {
            expected.check(&reply(status, headers)).is_ok()
        };
        assert!(is_stores(object, 200, &[etag]) && is_stores(part, 206, &[etag, range]));
        // A store that ignores ranges sends the whole.
        assert!(is_stores(part, 200, &[etag]));
        let (request, time) = (("x-amz-request-id", "1"), ("last-modified", "x"));
        assert!(
            is_stores(object, 200, &[request, time]) && !is_stores(object, 200, &[request, xml])
        );
        assert!(is_stores(Expected::Listing, 200, &[xml]));
        assert!(is_stores(Expected::Write, 200, &[etag]));
        assert!(is_stores(Expected::Removal, 204, &[]) && is_stores(Expected::Removal, 200, &[]));
        let stores = [Expected::Listing, Expected::Write, Expected::Removal];
        let uploads = [Expected::Upload, Expected::Completion];
        for expected in [object, part].into_iter().chain(stores).chain(uploads) {
            for status in [201, 202, 203, 205, 207, 226] {
                assert!(!is_stores(expected, status, &[page]), "{expected:?} {status}");
            }
            // What is no success is judged by its status and code,
            assert!([301, 403, 503].iter().all(|status| is_stores(expected, *status, &[page])));
            // but for what says that there is nothing.
            assert!(is_stores(expected, 404, &[xml]) && is_stores(expected, 404, &[]));
            assert!(is_stores(expected, 404, &[page, ("x-amz-request-id", "1")]));
            assert!(!is_stores(expected, 404, &[page]));
            assert!(!is_stores(expected, 404, &[("content-type", "text/plain; charset=utf-8")]));
            if !uploads.contains(&expected) {
                assert!(!is_stores(expected, 200, &[page, ("content-length", "9")]));
            }
        }
        assert!(!is_stores(object, 204, &[etag]) && !is_stores(object, 206, &[etag, range]));
        assert!(!is_stores(part, 206, &[etag]) && !is_stores(Expected::Write, 204, &[etag]));
        assert!(!is_stores(Expected::Listing, 200, &[]));
    }
}
