//! The body of an upload, verified as it passes: its length, and the checksums that the client sent with it
//! or after it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use origin::{BoxFuture, Chunks, Error};
use ring::digest;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType, StreamingBlob};
use s3s::{S3Error, S3ErrorCode, S3Result, TrailingHeaders};

use super::messages::{INCOMPLETE_BODY, SHA256_MISMATCH, error, sha256_mismatch};
use wire::pace::{Meter, Pace};

/// The names of the algorithms, as in headers after `x-amz-checksum-`.
pub const ALGORITHMS: [&str; 5] = ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"];

/// How the names of headers with checksums begin.
const NAME_START: &str = "x-amz-checksum-";

/// A structure of [`s3s::dto`] with the checksums of another: each of these structures has a field of its own for every
/// algorithm.
macro_rules! with_checksums {
    ($from:expr => $name:ident { $($field:ident: $value:expr,)* $(..$rest:expr)? }) => {
        $name {
            $($field: $value,)*
            checksum_crc32: $from.checksum_crc32,
            checksum_crc32c: $from.checksum_crc32c,
            checksum_crc64nvme: $from.checksum_crc64nvme,
            checksum_sha1: $from.checksum_sha1,
            checksum_sha256: $from.checksum_sha256,
            $(..$rest)?
        }
    };
}
pub(crate) use with_checksums;

/// The value of an algorithm.
pub fn value<'a>(checksum: &'a Checksum, algorithm: &str) -> Option<&'a str> {
    match algorithm {
        "crc32" => checksum.checksum_crc32.as_deref(),
        "crc32c" => checksum.checksum_crc32c.as_deref(),
        "crc64nvme" => checksum.checksum_crc64nvme.as_deref(),
        "sha1" => checksum.checksum_sha1.as_deref(),
        "sha256" => checksum.checksum_sha256.as_deref(),
        _ => None,
    }
}

/// Sets the value of an algorithm.
pub fn set_value(checksum: &mut Checksum, algorithm: &str, text: String) {
    match algorithm {
        "crc32" => checksum.checksum_crc32 = Some(text),
        "crc32c" => checksum.checksum_crc32c = Some(text),
        "crc64nvme" => checksum.checksum_crc64nvme = Some(text),
        "sha1" => checksum.checksum_sha1 = Some(text),
        "sha256" => checksum.checksum_sha256 = Some(text),
        _ => {}
    }
}

/// The type of a checksum: one that ends in a number of parts is made of theirs.
pub fn type_of_text(text: &str) -> &'static str {
    if text.contains('-') { ChecksumType::COMPOSITE } else { ChecksumType::FULL_OBJECT }
}

/// The type of checksums that are kept, if there are any.
pub fn type_of(checksum: &Checksum) -> Option<ChecksumType> {
    let text = ALGORITHMS.iter().find_map(|of| value(checksum, of))?;
    Some(ChecksumType::from_static(type_of_text(text)))
}

/// The algorithms that headers of an upload name, by a value or as what follows the bytes.
pub fn claimed(checksum: &Checksum, trailer: &str) -> Vec<&'static str> {
    let trailer = trailer.to_ascii_lowercase();
    let follow = trailer.split(',').filter_map(|name| name.trim().strip_prefix(NAME_START));
    let is_claimed = |of: &&'static str| {
        value(checksum, of).is_some() || follow.clone().any(|following| following == *of)
    };
    ALGORITHMS.into_iter().filter(is_claimed).collect()
}

/// What computes the algorithms that are wanted.
pub fn hasher(wants: impl Fn(&str) -> bool) -> ChecksumHasher {
    ChecksumHasher {
        crc32: wants("crc32").then(Crc32::new),
        crc32c: wants("crc32c").then(Crc32c::new),
        sha1: wants("sha1").then(Sha1::new),
        sha256: wants("sha256").then(Sha256::new),
        crc64nvme: wants("crc64nvme").then(Crc64Nvme::new),
    }
}

/// What a client says of the bytes that it sends.
pub struct Claims {
    /// Their number.
    pub length: u64,
    /// Their SHA-256, which the signature covers.
    pub sha256: Option<[u8; 32]>,
    /// Whether `s3s` verifies it; if not, it is verified here.
    pub is_verified: bool,
    /// `Content-MD5`.
    pub md5: Option<String>,
    /// Checksums in headers.
    pub checksum: Checksum,
    /// The header `x-amz-trailer`: which checksum follows the bytes.
    pub trailer: Option<String>,
    /// Where it follows.
    pub trailers: Option<TrailingHeaders>,
    /// An algorithm that is computed whether or not the client states its value.
    pub computed: Option<&'static str>,
}

/// What is known once all bytes have passed.
#[derive(Default)]
struct Outcomes {
    wrong: Option<(S3ErrorCode, Cow<'static, str>)>,
    checksum: Option<Checksum>,
}

/// What became of an upload, for those who sent it on.
#[derive(Clone, Default)]
pub struct Verdict(Arc<Mutex<Outcomes>>);

impl Verdict {
    /// The checksums of all bytes.
    pub fn checksum(&self) -> Checksum {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.checksum.clone().unwrap_or_default()
    }

    /// The error if the bytes are not what the client said; otherwise `other`.
    pub fn or(&self, other: S3Error) -> S3Error {
        let told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &told.wrong {
            Some((code, what)) => error(code.clone(), what.clone()),
            None => other,
        }
    }
}

/// An upload that is verified as it passes. The last bytes are passed on only if all are as claimed.
pub struct Checked {
    blob: StreamingBlob,
    claims: Claims,
    left: u64,
    hasher: ChecksumHasher,
    md5: Option<Md5>,
    /// What computes the hash that the signature covers.
    signed: Option<digest::Context>,
    verdict: Verdict,
    /// The piece that is passed on when the next has come, or the end.
    held: Option<Bytes>,
    ended: bool,
}

impl Checked {
    /// The body of a request; `None` is an empty one.
    pub fn new(blob: Option<StreamingBlob>, claims: Claims) -> Checked {
        let trailer = claims.trailer.as_deref().unwrap_or("");
        let claimed = claimed(&claims.checksum, trailer);
        let hasher = hasher(|of| claimed.contains(&of) || claims.computed == Some(of));
        Checked {
            blob: blob.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty())),
            left: claims.length,
            md5: claims.md5.is_some().then(Md5::new),
            signed: (claims.sha256.is_some() && !claims.is_verified)
                .then(|| digest::Context::new(&digest::SHA256)),
            claims,
            hasher,
            verdict: Verdict::default(),
            held: None,
            ended: false,
        }
    }

    /// See [`Verdict`].
    pub fn verdict(&self) -> Verdict {
        self.verdict.clone()
    }

    /// Reads all bytes.
    ///
    /// # Errors
    ///
    /// If they are not as claimed, or the client is too slow or leaves.
    pub async fn gather(mut self, pace: Pace) -> S3Result<Bytes> {
        let mut all = BytesMut::with_capacity(self.left.min(1 << 20) as usize);
        let mut meter = Meter::new(pace);
        loop {
            let next = meter.wait(self.next()).await;
            let slow = |what| S3Error::with_message(S3ErrorCode::RequestTimeout, what);
            match next.map_err(slow)? {
                Some(Ok(piece)) => {
                    meter.took(piece.len());
                    all.extend_from_slice(&piece);
                }
                Some(Err(error)) => {
                    let other =
                        S3Error::with_message(S3ErrorCode::IncompleteBody, error.to_string());
                    return Err(self.verdict.or(other));
                }
                None => return Ok(all.freeze()),
            }
        }
    }

    fn wrong(&mut self, code: S3ErrorCode, what: impl Into<Cow<'static, str>>) -> Error {
        self.ended = true;
        let what = what.into();
        let mut told = self.verdict.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.wrong = Some((code, what.clone()));
        Error::Upload(what.into_owned())
    }

    /// Why the body broke off, as far as it is the client's doing.
    fn broke(&mut self, error: &str) -> Error {
        let (code, what) = if error.contains("SignatureMismatch") {
            (S3ErrorCode::SignatureDoesNotMatch, "the signature of a chunk does not match")
        } else if error.contains("Sha256Mismatch") {
            (sha256_mismatch(), SHA256_MISMATCH)
        } else if error.contains("FormatError") || error.contains("TooLarge") {
            (S3ErrorCode::InvalidRequest, "malformed chunks")
        } else {
            (S3ErrorCode::IncompleteBody, "the body broke off")
        };
        self.wrong(code, what)
    }

    /// Judges the whole.
    fn judge(&mut self) -> Result<(), Error> {
        if self.left > 0 {
            return Err(self.wrong(S3ErrorCode::IncompleteBody, INCOMPLETE_BODY));
        }
        if let (Some(signed), Some(stated)) = (self.signed.take(), self.claims.sha256)
            && signed.finish().as_ref() != stated
        {
            return Err(self.wrong(sha256_mismatch(), SHA256_MISMATCH));
        }
        let computed = std::mem::take(&mut self.hasher).finalize();
        let trailer = self.claims.trailer.as_deref().unwrap_or("");
        let stated = claimed(&self.claims.checksum, trailer);
        let trailers = self.claims.trailers.as_ref().and_then(TrailingHeaders::take);
        for algorithm in stated {
            let Some(is) = value(&computed, algorithm) else { continue };
            let name = format!("x-amz-checksum-{algorithm}");
            let after = trailers.as_ref().and_then(|trailers| trailers.get(&name)?.to_str().ok());
            let said = value(&self.claims.checksum, algorithm).or(after);
            if said != Some(is) {
                let of = algorithm.to_ascii_uppercase();
                let what = format!("The {of} you specified did not match the calculated checksum.");
                return Err(self.wrong(S3ErrorCode::BadDigest, what));
            }
        }
        if let (Some(said), Some(md5)) = (&self.claims.md5, self.md5.take())
            && *said != base64(md5.finalize().as_ref())
        {
            let what = "The Content-MD5 you specified did not match what we received.";
            return Err(self.wrong(S3ErrorCode::BadDigest, what));
        }
        let mut told = self.verdict.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.checksum = Some(computed);
        Ok(())
    }
}

impl Chunks for Checked {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            loop {
                if self.ended {
                    return None;
                }
                match self.blob.next().await {
                    None => {
                        if let Err(error) = self.judge() {
                            return Some(Err(error));
                        }
                        self.ended = true;
                        return self.held.take().map(Ok);
                    }
                    Some(Err(error)) => return Some(Err(self.broke(&error.to_string()))),
                    Some(Ok(piece)) if piece.is_empty() => {}
                    Some(Ok(piece)) => {
                        let Some(left) = self.left.checked_sub(piece.len() as u64) else {
                            let code = S3ErrorCode::IncompleteBody;
                            return Some(Err(self.wrong(code, INCOMPLETE_BODY)));
                        };
                        self.left = left;
                        self.hasher.update(&piece);
                        if let Some(md5) = &mut self.md5 {
                            md5.update(&piece);
                        }
                        if let Some(signed) = &mut self.signed {
                            signed.update(&piece);
                        }
                        if let Some(held) = self.held.replace(piece) {
                            return Some(Ok(held));
                        }
                    }
                }
            }
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        let held = self.held.as_ref().map_or(0, |held| held.len() as u64);
        Some(self.left + held)
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        self.claims.sha256
    }
}

/// RFC 4648, section 4, with padding.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut held = [0; 3];
        held[..group.len()].copy_from_slice(group);
        let held = u32::from_be_bytes([0, held[0], held[1], held[2]]);
        for place in 0..4 {
            let digit = DIGITS[(held >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_that_of_the_rfc() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(super::base64(bytes.as_bytes()), text);
        }
    }
}
