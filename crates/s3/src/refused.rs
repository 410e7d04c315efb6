//! Replies to requests that are refused before they are S3's: malformed heads, and what is past a limit.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use s3s::{S3Error, S3ErrorCode};

use super::errors::of_status;
use super::request_id::{REQUEST_ID, RequestId};
use super::xml;

/// The reply to a status and a reason: an error in XML with the id of the request, as all others are.
pub fn reply(status: StatusCode, text: &str) -> Response<Bytes> {
    let code = match status {
        StatusCode::NOT_IMPLEMENTED => S3ErrorCode::NotImplemented,
        StatusCode::PAYLOAD_TOO_LARGE => S3ErrorCode::EntityTooLarge,
        StatusCode::URI_TOO_LONG => S3ErrorCode::KeyTooLongError,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
            S3ErrorCode::Custom("RequestHeaderSectionTooLarge".into())
        }
        _ => of_status(status, String::new()).code().clone(),
    };
    let mut error = S3Error::with_message(code, text.to_owned());
    error.set_status_code(status);
    let id = RequestId::draw();
    let (mut parts, mut body) = error.to_http_response().unwrap_or_default().into_parts();
    let body = xml::finish(body.take_bytes().unwrap_or_default(), id.as_str());
    parts.status = status;
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    parts.headers.extend(id.header().map(|id| (REQUEST_ID, id)));
    Response::from_parts(parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_code_of_its_status_and_the_id_of_its_header() {
        for (status, code) in [
            (400, "InvalidRequest"),
            (411, "MissingContentLength"),
            (413, "EntityTooLarge"),
            (414, "KeyTooLongError"),
            (431, "RequestHeaderSectionTooLarge"),
            (501, "NotImplemented"),
            (503, "SlowDown"),
        ] {
            let reply = reply(StatusCode::from_u16(status).unwrap(), "a < b");
            let id = reply.headers()[REQUEST_ID].to_str().unwrap().to_owned();
            assert_eq!(reply.status().as_u16(), status);
            assert_eq!(reply.headers()[CONTENT_TYPE], "application/xml");
            let text = String::from_utf8(reply.body().to_vec()).unwrap();
            let is = format!(
                "<Error><Code>{code}</Code><Message>a &lt; b</Message><RequestId>{id}</RequestId></Error>"
            );
            assert!(text.ends_with(&is), "{text}");
        }
    }
}
