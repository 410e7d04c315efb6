//! Chunks of `aws-chunked` bodies, none of which takes much memory. `s3s` gathers a chunk before it passes it on, and clients may
//! send a whole object as one.
//!
//! Where chunks are not signed, a large one is divided as it arrives. One that is signed cannot be: it is refused from
//! [`SIGNED_BYTES_MAX`] on (clients sign chunks of 64 KiB to 1 MiB). What is malformed is passed on so that `s3s` refuses it: by
//! itself it takes a size of nine digits for its first eight, and passes over what follows the digits.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::request::Parts;
use hyper::body::{Body, Frame};
use s3s::S3ErrorCode;

use super::payload::{Broken, Differs};

/// The largest signed chunk.
const SIGNED_BYTES_MAX: u64 = 16 << 20;
/// The largest chunk that an unsigned one is divided into.
const PIECE_BYTES_MAX: usize = 256 << 10;
/// The longest head of a chunk.
const HEAD_BYTES_MAX: usize = 256;
/// What `s3s` refuses as the head of a chunk.
const MALFORMED: &[u8] = b"malformed\r\n";
const LINE_END: &[u8] = b"\r\n";

/// Where the next byte belongs.
enum Position {
    /// In the head of a chunk, of which this has come.
    Head(Vec<u8>),
    /// In a chunk of which so many bytes are still to come.
    Data(u64),
    /// In the line end after a chunk, of which so many bytes have come.
    End(usize),
    /// In what is passed on as it is.
    Rest,
}

/// A body whose chunks are small.
pub struct Divided<B> {
    body: B,
    signed: bool,
    at: Position,
    out: VecDeque<Bytes>,
    differs: Differs,
}

impl<B> Divided<B> {
    /// A body of which nothing was read; `Err` with the body if it does not come in chunks. The reason of a refusal goes to
    /// `differs`.
    pub fn new(body: B, request: &Parts, differs: Differs) -> Result<Divided<B>, B> {
        let payload = request.headers.get("x-amz-content-sha256").map(|value| value.as_bytes());
        let signed = match payload {
            Some(b"STREAMING-UNSIGNED-PAYLOAD-TRAILER") => false,
            Some(payload) if payload.starts_with(b"STREAMING-") => true,
            _ => return Err(body),
        };
        let at = Position::Head(Vec::new());
        Ok(Divided { body, signed, at, out: VecDeque::new(), differs })
    }

    /// Takes bytes of the body; `Err` if a chunk is too large.
    fn take(&mut self, mut bytes: Bytes) -> Result<(), Broken> {
        while !bytes.is_empty() {
            match &mut self.at {
                Position::Head(head) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let end = end.map_or(bytes.len(), |end| end + 1);
                    head.extend_from_slice(&bytes.split_to(end));
                    if head.ends_with(b"\n") || head.len() > HEAD_BYTES_MAX {
                        let head = std::mem::take(head);
                        self.begin(head)?;
                    }
                }
                Position::Data(left) => {
                    let most = if self.signed { bytes.len() } else { PIECE_BYTES_MAX };
                    let length = bytes.len().min(most).min(usize::try_from(*left).unwrap_or(most));
                    let piece = bytes.split_to(length);
                    *left -= length as u64;
                    if *left == 0 {
                        self.at = Position::End(0);
                    }
                    if self.signed {
                        self.out.push_back(piece);
                    } else {
                        self.out.push_back(format!("{length:x}\r\n").into());
                        self.out.push_back(piece);
                        self.out.push_back(Bytes::from_static(LINE_END));
                    }
                }
                Position::End(came) => {
                    if bytes[0] != LINE_END[*came] {
                        // The chunk is longer than its head says.
                        self.out.push_back(Bytes::from_static(MALFORMED));
                        self.at = Position::Rest;
                        continue;
                    }
                    bytes.advance(1);
                    *came += 1;
                    if *came == LINE_END.len() {
                        self.at = Position::Head(Vec::new());
                        if self.signed {
                            self.out.push_back(Bytes::from_static(LINE_END));
                        }
                    }
                }
                Position::Rest => self.out.push_back(std::mem::take(&mut bytes)),
            }
        }
        Ok(())
    }

    /// Begins a chunk by its head.
    fn begin(&mut self, head: Vec<u8>) -> Result<(), Broken> {
        let digits = head.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(head.len());
        let size = std::str::from_utf8(&head[..digits]).ok();
        let size = size.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let rest = head[digits..].strip_suffix(LINE_END).filter(|_| (1..=8).contains(&digits));
        let signature = rest.is_some_and(|rest| rest.starts_with(b";chunk-signature="));
        let fits = rest.is_some_and(|rest| rest.is_empty()) || signature && self.signed;
        let (at, out) = match size.filter(|_| fits) {
            Some(size) if self.signed && size > SIGNED_BYTES_MAX => {
                let what = format!(
                    "a signed chunk of {size} bytes: sign chunks of at most {SIGNED_BYTES_MAX} bytes"
                );
                self.differs.set(S3ErrorCode::InvalidRequest, what.clone());
                return Err(Broken::from(what));
            }
            Some(0) => (Position::Rest, Some(head.into())),
            Some(size) if self.signed => (Position::Data(size), Some(head.into())),
            // The heads of its pieces are made as these come.
            Some(size) => (Position::Data(size), None),
            None => (Position::Rest, Some(Bytes::from_static(MALFORMED))),
        };
        self.at = at;
        self.out.extend(out);
        Ok(())
    }
}

impl<B> Body for Divided<B>
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
        loop {
            if let Some(piece) = self.out.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(piece))));
            }
            let frame = ready!(Pin::new(&mut self.body).poll_frame(context)).transpose()?;
            let Some(frame) = frame else {
                // `s3s` takes what came for the whole if its length is the one announced; without the last chunk, its
                // signature is not known to be there either.
                return match std::mem::replace(&mut self.at, Position::Rest) {
                    Position::Rest => Poll::Ready(None),
                    Position::Head(_) | Position::Data(_) | Position::End(_) => {
                        let what = "the body ends without its last chunk, whose size is 0";
                        self.differs.set(S3ErrorCode::IncompleteBody, what.to_owned());
                        Poll::Ready(Some(Err(what.into())))
                    }
                };
            };
            if let Ok(bytes) = frame.into_data()
                && let Err(broken) = self.take(bytes)
            {
                return Poll::Ready(Some(Err(broken)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::Request;
    use http_body_util::{BodyExt, StreamBody};
    use proptest::prelude::*;

    use super::*;

    const UNSIGNED: &str = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    const SIGNED: &str = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD";

    /// What becomes of a body that comes in pieces of these lengths, in turn.
    fn divided(payload: &str, body: &[u8], pieces: &[usize]) -> Result<Vec<u8>, Broken> {
        let request = Request::builder().header("x-amz-content-sha256", payload);
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let mut rest = Bytes::copy_from_slice(body);
        let pieces: Vec<usize> = pieces.iter().copied().cycle().take(body.len() + 1).collect();
        let frames = pieces.into_iter().map_while(move |length| {
            (!rest.is_empty()).then(|| {
                let piece = rest.split_to(length.clamp(1, rest.len()));
                Ok::<_, Infallible>(Frame::data(piece))
            })
        });
        let body = StreamBody::new(futures_util::stream::iter(frames));
        let Ok(divided) = Divided::new(body, &parts, Differs::default()) else { panic!() };
        let all = futures_util::FutureExt::now_or_never(divided.collect()).unwrap();
        Ok(all?.to_bytes().to_vec())
    }

    /// Reads chunks the plain way: the sizes, the bytes, and what follows the last one.
    fn read(mut body: &[u8]) -> (Vec<usize>, Vec<u8>, Vec<u8>) {
        let (mut sizes, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let end = body.windows(2).position(|two| two == LINE_END).unwrap();
            let head = std::str::from_utf8(&body[..end]).unwrap();
            let size = usize::from_str_radix(head.split(';').next().unwrap(), 16).unwrap();
            body = &body[end + 2..];
            if size == 0 {
                return (sizes, bytes, body.to_vec());
            }
            sizes.push(size);
            bytes.extend_from_slice(&body[..size]);
            body = body[size..].strip_prefix(LINE_END).unwrap();
        }
    }

    fn chunks(sizes: &[usize], extension: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (at, size) in sizes.iter().enumerate() {
            body.extend(format!("{size:X}{extension}\r\n").bytes());
            body.extend((0..*size).map(|byte| (byte * 7 + at) as u8));
            body.extend_from_slice(LINE_END);
        }
        body.extend(format!("0{extension}\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n").bytes());
        body
    }

    proptest! {
        #[test]
        fn unsigned_chunks_have_the_same_bytes_and_are_small(
            sizes in prop::collection::vec(1usize..700_000, 0..4),
            pieces in prop::collection::vec(1usize..400_000, 1..6),
        ) {
            let body = chunks(&sizes, "");
            let (_, bytes, rest) = read(&body);
            let out = divided(UNSIGNED, &body, &pieces).unwrap();
            let (out_sizes, out_bytes, out_rest) = read(&out);
            prop_assert!(out_bytes == bytes && out_rest == rest);
            prop_assert!(out_sizes.iter().all(|size| *size <= PIECE_BYTES_MAX));
        }

        #[test]
        fn signed_chunks_pass_as_they_are(
            sizes in prop::collection::vec(1usize..9000, 0..4),
            pieces in prop::collection::vec(1usize..3000, 1..6),
        ) {
            let body = chunks(&sizes, &format!(";chunk-signature={}", "0".repeat(64)));
            prop_assert!(divided(SIGNED, &body, &pieces).unwrap() == body);
        }

        #[test]
        fn any_bytes_end(
            bytes in prop::collection::vec(prop::sample::select(b"05aF;\r\nx".to_vec()), 0..60),
            pieces in prop::collection::vec(1usize..20, 1..4),
        ) {
            for payload in [SIGNED, UNSIGNED] {
                let _ = divided(payload, &bytes, &pieces);
            }
        }
    }

    #[test]
    fn a_body_without_its_last_chunk_is_incomplete() {
        let signature = format!(";chunk-signature={}", "0".repeat(64));
        for (payload, extension) in [(UNSIGNED, ""), (SIGNED, &*signature)] {
            let body = chunks(&[5, 3], extension);
            assert!(divided(payload, &body, &[7]).is_ok());
            let whole =
                body.len() - format!("0{extension}\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n").len();
            for end in 0..=whole {
                assert!(divided(payload, &body[..end], &[7]).is_err(), "{payload}: {end} bytes");
            }
        }
    }

    #[test]
    fn what_is_malformed_stays_so() {
        let of = |payload: &str, body: &str| {
            String::from_utf8(divided(payload, body.as_bytes(), &[3]).unwrap()).unwrap()
        };
        // No size, sizes of which `s3s` reads a part, another line end, a signature where none belongs, heads that break off.
        let signature = format!(";chunk-signature={}", "0".repeat(64));
        for head in ["x", "", "ffffffff0", "ffffffffx", "-1", "5\n", "5;x=y", &signature] {
            for payload in [SIGNED, UNSIGNED] {
                let out = of(payload, &format!("{head}\r\nhello\r\n0\r\n\r\n"));
                assert!(out.starts_with("malformed\r\n"), "{payload}: {head:?}: {out:?}");
            }
        }
        for head in [format!("ffffffff0{signature}"), format!("5 {signature}"), "5".repeat(300)] {
            assert!(of(SIGNED, &format!("{head}\r\nhello")).starts_with("malformed"), "{head}");
        }
        let out = of(UNSIGNED, &format!("ffffffff{signature}\r\nhello"));
        assert!(out.starts_with("malformed"), "{out}");
        // More bytes than the chunk has.
        assert!(of(UNSIGNED, "3\r\nabcd\r\n0\r\n\r\n").contains("malformed"));
        let large = format!("{:x};chunk-signature=0\r\n", SIGNED_BYTES_MAX + 1);
        assert!(divided(SIGNED, large.as_bytes(), &[100]).is_err());
    }
}
