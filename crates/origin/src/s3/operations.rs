//! The operations of the S3 protocol that an origin needs, on objects by their names.

use std::ops::Range;

use bytes::Bytes;
use http::Method;
use http::header::{HeaderMap, HeaderValue, RANGE};
use quick_xml::escape::partial_escape;
use serde::Deserialize;

use super::client::{Attempts, Client, Reply, Request};
use super::connections::ReplyBody;
use super::failure::{Failure, FailureKind};
use super::pieces::Payload;
use super::precondition::Precondition;
use super::reply::Expected;
use super::signer::Sha256;
use super::stored::{StoredHead, StoredPart, text};

/// The SHA-256 of no bytes.
pub const EMPTY_SHA256: Sha256 = [
    0xe3, 0xb0, 0xc4, 0x42, 0x98, 0xfc, 0x1c, 0x14, 0x9a, 0xfb, 0xf4, 0xc8, 0x99, 0x6f, 0xb9, 0x24,
    0x27, 0xae, 0x41, 0xe4, 0x64, 0x9b, 0x93, 0x4c, 0xa4, 0x95, 0x99, 0x1b, 0x78, 0x52, 0xb8, 0x55,
];

/// An object to be written.
pub struct NewObject {
    pub payload: Payload,
    /// That of the payload.
    pub sha256: Sha256,
    /// The content type, and our metadata.
    pub headers: HeaderMap,
}

/// An object whose bytes follow.
pub struct OpenObject {
    pub part: StoredPart,
    pub body: ReplyBody,
}

/// A part that the store has of an upload.
pub struct UploadedPart {
    pub number: u64,
    pub etag: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct StartedUpload {
    upload_id: String,
}

fn malformed(what: &str) -> Failure {
    Failure::new(FailureKind::Malformed, what)
}

impl Client {
    fn request(&self, method: Method, target: String, expected: Expected) -> Request {
        let is_idempotent = method.is_safe();
        Request {
            method,
            target,
            headers: HeaderMap::new(),
            payload: Payload::default(),
            sha256: EMPTY_SHA256,
            expected,
            is_idempotent,
            repeats_conflicts: false,
        }
    }

    async fn send_anew(&self, request: &Request) -> Result<Reply, Failure> {
        self.send(request, &mut Attempts::new()).await
    }

    /// The head of an object.
    ///
    /// # Errors
    ///
    /// Of an object that is not there, the status 404.
    pub async fn head(&self, name: &str) -> Result<StoredHead, Failure> {
        let expected = Expected::Object { is_range: false };
        let request = self.request(Method::HEAD, self.target(name, &[]), expected);
        StoredHead::parse(self.send_anew(&request).await?.parts)
    }

    /// An object, or a range of it, which must not be empty.
    ///
    /// # Errors
    ///
    /// As [`Client::head`].
    pub async fn get(
        &self,
        name: &str,
        range: Option<&Range<u64>>,
        attempts: &mut Attempts,
    ) -> Result<OpenObject, Failure> {
        let expected = Expected::Object { is_range: range.is_some() };
        let mut request = self.request(Method::GET, self.target(name, &[]), expected);
        if let Some(Range { start, end }) = range {
            let bytes = format!("bytes={start}-{}", end.saturating_sub(1));
            let bytes = HeaderValue::try_from(bytes).map_err(|_| malformed("an odd range"))?;
            request.headers.insert(RANGE, bytes);
        }
        let Reply { parts, body, .. } = self.send(&request, attempts).await?;
        let body = body.ok_or_else(|| malformed("the reply has no body"))?;
        Ok(OpenObject { part: StoredPart::parse(parts, range)?, body })
    }

    /// The request that writes an object.
    ///
    /// # Errors
    ///
    /// If the condition cannot stand in a header.
    pub fn put_request(
        &self,
        name: &str,
        object: NewObject,
        precondition: &Precondition,
    ) -> Result<Request, Failure> {
        let NewObject { payload, sha256, mut headers } = object;
        precondition.write(&mut headers)?;
        Ok(Request {
            headers,
            payload,
            sha256,
            // A condition that held does not hold any more after the write.
            is_idempotent: matches!(precondition, Precondition::None),
            repeats_conflicts: matches!(precondition, Precondition::Is(_)),
            ..self.request(Method::PUT, self.target(name, &[]), Expected::Write)
        })
    }

    /// Writes an object; returns the store's etag for it.
    ///
    /// # Errors
    ///
    /// If the condition does not hold, the status 412, 409 or 304.
    pub async fn put(
        &self,
        name: &str,
        object: NewObject,
        precondition: &Precondition,
    ) -> Result<Option<String>, Failure> {
        let reply = self.send_anew(&self.put_request(name, object, precondition)?).await?;
        Ok(etag_of(&reply))
    }

    /// Removes an object; a store says so too if there is none.
    ///
    /// # Errors
    ///
    /// As [`Client::put`].
    pub async fn delete(&self, name: &str, precondition: &Precondition) -> Result<(), Failure> {
        let mut request = self.request(Method::DELETE, self.target(name, &[]), Expected::Removal);
        precondition.write(&mut request.headers)?;
        self.send_anew(&request).await.map(|_| ())
    }

    /// A page of a listing, in XML. The parameters are in the order of their names.
    ///
    /// # Errors
    ///
    /// If there is none.
    pub async fn page(&self, parameters: &[(&str, &str)]) -> Result<Bytes, Failure> {
        let target = self.target("", parameters);
        let request = self.request(Method::GET, target, Expected::Listing);
        Ok(self.send_anew(&request).await?.text)
    }

    /// Begins an upload in parts of an object with these headers; returns what the store calls the upload.
    ///
    /// # Errors
    ///
    /// If it is not begun.
    pub async fn start_upload(&self, name: &str, headers: HeaderMap) -> Result<String, Failure> {
        let target = self.target(name, &[("uploads", "")]);
        let mut request = self.request(Method::POST, target, Expected::Upload);
        (request.headers, request.is_idempotent) = (headers, true);
        let reply = self.send_anew(&request).await?;
        let started: StartedUpload = quick_xml::de::from_reader(&reply.text[..])
            .map_err(|error| Failure::of_cause(FailureKind::Malformed, &error))?;
        Ok(started.upload_id)
    }

    /// Sends a part of an upload.
    ///
    /// # Errors
    ///
    /// If the store does not have it.
    pub async fn put_part(
        &self,
        name: &str,
        upload_id: &str,
        number: u64,
        payload: Payload,
    ) -> Result<UploadedPart, Failure> {
        let number_text = number.to_string();
        let parameters = [("partNumber", &*number_text), ("uploadId", upload_id)];
        let request = Request {
            sha256: payload.sha256(),
            payload,
            is_idempotent: true,
            ..self.request(Method::PUT, self.target(name, &parameters), Expected::Write)
        };
        let etag = etag_of(&self.send_anew(&request).await?);
        let etag = etag.ok_or_else(|| malformed("the store gives a part no etag"))?;
        Ok(UploadedPart { number, etag })
    }

    /// Makes an object of an upload's parts.
    ///
    /// # Errors
    ///
    /// As [`Client::put`].
    pub async fn complete_upload(
        &self,
        name: &str,
        upload_id: &str,
        parts: &[UploadedPart],
        precondition: &Precondition,
    ) -> Result<(), Failure> {
        let mut xml = "<CompleteMultipartUpload>".to_owned();
        for UploadedPart { number, etag } in parts {
            let etag = partial_escape(&**etag);
            xml += &format!("<Part><ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>");
        }
        xml += "</CompleteMultipartUpload>";
        let payload = Payload::from_iter([Bytes::from(xml)]);
        let target = self.target(name, &[("uploadId", upload_id)]);
        let mut request = Request {
            sha256: payload.sha256(),
            payload,
            // The second time there is no such upload any more, or the store says again that it has made the object.
            is_idempotent: true,
            ..self.request(Method::POST, target, Expected::Completion)
        };
        precondition.write(&mut request.headers)?;
        self.send_anew(&request).await.map(|_| ())
    }

    /// Gives up an upload in parts.
    ///
    /// # Errors
    ///
    /// If the store may have its parts still.
    pub async fn abort_upload(&self, name: &str, upload_id: &str) -> Result<(), Failure> {
        let target = self.target(name, &[("uploadId", upload_id)]);
        let mut request = self.request(Method::DELETE, target, Expected::Removal);
        request.is_idempotent = true;
        self.send_anew(&request).await.map(|_| ())
    }
}

/// The store's etag in a reply.
pub fn etag_of(reply: &Reply) -> Option<String> {
    text(&reply.parts.headers, http::header::ETAG).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::super::signer::sha256;
    use super::*;

    #[test]
    fn the_hash_of_nothing_is_that_of_nothing() {
        assert_eq!(EMPTY_SHA256, sha256([]));
        assert_eq!(EMPTY_SHA256, Payload::default().sha256());
    }
}
