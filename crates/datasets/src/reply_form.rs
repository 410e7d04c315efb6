//! In which form a client takes a reply: a range of its bytes, or compressed.
//!
//! Compressing takes about 8 ms of a processor for each megabyte (level 1), in a thread for blocking work where that
//! would hold up other connections.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::header::{
    ACCEPT_ENCODING, ACCEPT_RANGES, CONTENT_ENCODING, CONTENT_RANGE, CONTENT_TYPE, HeaderMap,
    HeaderValue, RANGE, VARY,
};
use http::{Response, StatusCode};

use wire::body::ReplyBody;
use wire::headers;
use wire::problem::{HttpResult, Problem};
use wire::range::{ByteRange, SelectedRange};

/// Shorter replies are not compressed: they fit one packet.
const COMPRESSED_MIN: usize = 1 << 10;
/// Longer ones are compressed in another thread.
const AT_ONCE_MAX: usize = 64 << 10;

/// What a request says of the form of its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyForm {
    range: Option<ByteRange>,
    takes_gzip: bool,
}

impl ReplyForm {
    /// Reads `Range` and `Accept-Encoding`.
    pub fn from_headers(given: &HeaderMap) -> ReplyForm {
        let range = given.get(RANGE).and_then(|value| value.to_str().ok());
        let encodings =
            given.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        let takes_gzip = encodings.flat_map(|value| value.split(',')).any(is_gzip);
        ReplyForm { range: range.and_then(ByteRange::parse), takes_gzip }
    }

    /// A reply in this form. Errors, and streams, stay as they are.
    ///
    /// # Errors
    ///
    /// The reply's, and 416 for a range past its end.
    pub async fn applied(self, reply: HttpResult) -> HttpResult {
        let mut reply = reply?;
        if reply.status() != StatusCode::OK {
            return Ok(reply);
        }
        let Some(bytes) = reply.body().whole_bytes() else { return Ok(reply) };
        let is_bytes = reply
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind == "application/octet-stream");
        // A piece of an export is asked for by its ids.
        if is_bytes && !reply.headers().contains_key(&headers::NEXT) {
            reply.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
            if let Some(range) = self.range {
                return part_of(reply, &bytes, range);
            }
        }
        reply.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
        if !self.takes_gzip || bytes.len() < COMPRESSED_MIN {
            return Ok(reply);
        }
        let len = bytes.len();
        let compressed = if len <= AT_ONCE_MAX {
            compressed(&bytes)
        } else {
            tokio::task::spawn_blocking(move || compressed(&bytes)).await.ok().flatten()
        };
        if let Some(compressed) = compressed.filter(|compressed| compressed.len() < len) {
            reply.body_mut().replace(compressed.into());
            reply.headers_mut().insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        Ok(reply)
    }
}

/// Whether an element of `Accept-Encoding` names gzip and does not refuse it (RFC 9110, section 12.5.3).
fn is_gzip(element: &str) -> bool {
    let mut parts = element.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let mut weights =
        parts.filter_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
    let is_refused =
        weights.any(|weight| weight.trim().parse::<f64>().is_ok_and(|weight| weight <= 0.0));
    name.eq_ignore_ascii_case("gzip") && !is_refused
}

/// The bytes as gzip; `None` if the encoder fails, which writing to memory does not.
fn compressed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    encoder.write_all(bytes).ok()?;
    encoder.finish().ok()
}

fn part_of(mut reply: Response<ReplyBody>, bytes: &Bytes, range: ByteRange) -> HttpResult {
    let len = bytes.len();
    match range.of_size(len as u64) {
        SelectedRange::Whole => Ok(reply),
        SelectedRange::Unsatisfiable => {
            let what = format!("the range begins past the end: there are {len} bytes");
            let problem = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, &what);
            let range = HeaderValue::try_from(format!("bytes */{len}"));
            Err(problem.with(CONTENT_RANGE, range.unwrap_or(HeaderValue::from_static("bytes */*"))))
        }
        SelectedRange::Part(part) => {
            let range = HeaderValue::try_from(format!(
                "bytes {}-{}/{len}",
                part.start,
                part.end.saturating_sub(1)
            ));
            let (start, end) = (part.start as usize, part.end as usize);
            reply.body_mut().replace(bytes.slice(start.min(len)..end.min(len)));
            *reply.status_mut() = StatusCode::PARTIAL_CONTENT;
            if let Ok(range) = range {
                reply.headers_mut().insert(CONTENT_RANGE, range);
            }
            Ok(reply)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http::header::HeaderName;
    use http_body_util::BodyExt;
    use wire::problem::typed;

    use super::*;

    fn applied(
        headers: &[(HeaderName, &'static str)],
        bytes: &[u8],
    ) -> (StatusCode, HeaderMap, Vec<u8>) {
        let mut given = HeaderMap::new();
        for (name, value) in headers {
            given.append(name, HeaderValue::from_static(value));
        }
        let reply = typed(StatusCode::OK, "application/octet-stream", bytes.to_vec(), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let reply = ReplyForm::from_headers(&given).applied(Ok(reply)).await;
            let (head, body) = reply.unwrap_or_else(Problem::response).into_parts();
            let body =
                body.collect().await.unwrap_or_else(|_| panic!("a body")).to_bytes().to_vec();
            (head.status, head.headers, body)
        })
    }

    #[test]
    fn long_replies_are_compressed_for_clients_that_take_it() {
        for len in [10, 5_000, 300_000] {
            let bytes: Vec<u8> = (0..len).map(|i: u32| b"records"[i as usize % 7]).collect();
            for (accepted, takes) in [
                ("gzip", true),
                ("br, GZIP;q=0.5", true),
                ("gzip;q=0", false),
                ("gzip; q=0.000", false),
                ("identity", false),
            ] {
                let (status, headers, body) = applied(&[(ACCEPT_ENCODING, accepted)], &bytes);
                assert_eq!(status, StatusCode::OK);
                let is_gzip = headers.get(CONTENT_ENCODING).is_some();
                assert_eq!(is_gzip, takes && len > 1024, "{accepted} {len}");
                let mut plain = Vec::new();
                match is_gzip {
                    true => drop(GzDecoder::new(&body[..]).read_to_end(&mut plain).unwrap()),
                    false => plain = body,
                }
                assert!(plain == bytes, "{accepted} {len}");
            }
        }
        // What cannot be made shorter is sent as it is.
        let noise: Vec<u8> =
            (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let (_, _, body) = applied(&[(ACCEPT_ENCODING, "gzip")], &noise);
        assert!(body.len() <= noise.len());
    }

    #[test]
    fn ranges_are_cut_out_and_not_compressed() {
        let bytes: Vec<u8> = (0..3000).map(|i| (i % 251) as u8).collect();
        let check = |range: &'static str, expected: Option<std::ops::Range<usize>>| {
            let (status, headers, body) =
                applied(&[(RANGE, range), (ACCEPT_ENCODING, "gzip")], &bytes);
            let said = headers.get(CONTENT_RANGE).map(|value| value.to_str().unwrap().to_owned());
            assert!(headers.get(CONTENT_ENCODING).is_none());
            match expected {
                Some(part) => {
                    assert_eq!(status, StatusCode::PARTIAL_CONTENT, "{range}");
                    assert_eq!(said, Some(format!("bytes {}-{}/3000", part.start, part.end - 1)));
                    assert!(body == bytes[part], "{range}");
                }
                None => {
                    assert_eq!(
                        (status, said.as_deref()),
                        (StatusCode::RANGE_NOT_SATISFIABLE, Some("bytes */3000"))
                    );
                }
            }
        };
        check("bytes=0-0", Some(0..1));
        check("bytes=2990-", Some(2990..3000));
        check("bytes=-5", Some(2995..3000));
        check("bytes=5-99999", Some(5..3000));
        check("bytes=3000-", None);
    }
}
