//! Digests that a client states of the body of a PUT: `Content-MD5` (RFC 1864), `Repr-Digest` and `Content-Digest` (RFC 9530). A
//! body that has another one is not stored.

use base64::Engine;
use base64::prelude::BASE64_STANDARD as BASE64;
use bytes::Bytes;
use http::StatusCode;
use http::header::HeaderMap;
use md5::{Digest as _, Md5};
use origin::{BoxFuture, Chunks, Error};
use ring::digest::{Context, SHA256, SHA512};
use wire::body::RequestBody;
use wire::problem::Problem;

/// A digest that is being computed.
enum Hasher {
    Md5(Box<Md5>),
    Sha(Box<Context>),
}

impl Hasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Md5(md5) => md5.update(bytes),
            Hasher::Sha(sha) => sha.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Hasher::Md5(md5) => md5.finalize().to_vec(),
            Hasher::Sha(sha) => sha.finish().as_ref().to_vec(),
        }
    }
}

/// A digest that a request states.
struct Stated {
    /// The header.
    name: &'static str,
    hasher: Hasher,
    expected: Vec<u8>,
}

fn stated(name: &'static str, hasher: Hasher, text: &str) -> Result<Stated, Problem> {
    let bytes = hasher_bytes(&hasher);
    match BASE64.decode(text) {
        Ok(expected) if expected.len() == bytes => Ok(Stated { name, hasher, expected }),
        _ => {
            let what = format!("malformed {name}: send the base64 of {bytes} bytes");
            Err(Problem::new(StatusCode::BAD_REQUEST, &what))
        }
    }
}

fn hasher_bytes(hasher: &Hasher) -> usize {
    match hasher {
        Hasher::Md5(_) => 16,
        Hasher::Sha(sha) => sha.algorithm().output_len(),
    }
}

/// The digests that headers state. Algorithms that are not known are passed over, as RFC 9530 allows.
fn all_stated(headers: &HeaderMap) -> Result<Vec<Stated>, Problem> {
    let mut all = Vec::new();
    let lines = |name: &'static str| {
        headers.get_all(name).iter().map(|value| value.to_str().unwrap_or("?"))
    };
    for text in lines("content-md5") {
        all.push(stated("Content-MD5", Hasher::Md5(Box::default()), text.trim())?);
    }
    for (lower, name) in [("repr-digest", "Repr-Digest"), ("content-digest", "Content-Digest")] {
        for member in lines(lower).flat_map(|line| line.split(',')) {
            let (algorithm, text) = member.split_once('=').unwrap_or((member, ""));
            let algorithm = match algorithm.trim() {
                "sha-256" => &SHA256,
                "sha-512" => &SHA512,
                _ => continue,
            };
            // A sequence of bytes has colons around it; parameters may follow it.
            let text = text.trim().strip_prefix(':').and_then(|text| text.split_once(':'));
            let hasher = Hasher::Sha(Box::new(Context::new(algorithm)));
            all.push(stated(name, hasher, text.map_or("?", |(text, _)| text))?);
        }
    }
    Ok(all)
}

/// The body of a request, which ends in an error if it has not the digests that the request states.
///
/// # Errors
///
/// 400 for a digest that is none.
pub fn verified(headers: &HeaderMap, body: RequestBody) -> Result<RequestBody, Problem> {
    let all = all_stated(headers)?;
    if all.is_empty() {
        return Ok(body);
    }
    Ok(RequestBody::Stream(Box::new(Verified { body, all, held: None })))
}

struct Verified {
    body: RequestBody,
    /// Empty once they were compared.
    all: Vec<Stated>,
    /// The last piece that came: an origin is given the last of all once it is known to be right.
    held: Option<Bytes>,
}

impl Verified {
    fn judge(&mut self) -> Result<(), Error> {
        for Stated { name, hasher, expected } in self.all.drain(..) {
            if hasher.finish() != expected {
                let what = format!("the bytes that came do not have the {name} of the request");
                return Err(Error::Upload(what));
            }
        }
        Ok(())
    }
}

impl Chunks for Verified {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            loop {
                match self.body.next().await {
                    None => {
                        if let Err(error) = self.judge() {
                            return Some(Err(error));
                        }
                        return self.held.take().map(Ok);
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    Some(Ok(piece)) => {
                        self.all.iter_mut().for_each(|one| one.hasher.update(&piece));
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
        Some(self.body.bytes_left()? + held)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use origin::SingleChunk;

    use super::*;

    const MD5: &str = "kAFQmDzST7DWlj99KOF/cg==";
    const SHA: &str = "sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:";

    fn came(name: &'static str, value: &str) -> Result<bool, String> {
        let mut headers = HeaderMap::new();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        let body = RequestBody::Stream(Box::new(SingleChunk::new(Bytes::from_static(b"abc"))));
        let mut body = verified(&headers, body).map_err(|problem| problem.text().to_owned())?;
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Ok(runtime.block_on(async {
            assert_eq!(body.bytes_left(), Some(3));
            let first = body.next().await.unwrap();
            first.is_ok() && body.next().await.is_none()
        }))
    }

    #[test]
    fn a_body_has_the_digests_that_are_stated() {
        for (name, value, expected) in [
            ("content-md5", MD5, Some(true)),
            ("content-md5", "kAFQmDzST7DWlj99KOF/cA==", Some(false)),
            ("content-md5", "kAFQmDzST7DWlj99KOF/", None),
            ("content-md5", "", None),
            ("repr-digest", SHA, Some(true)),
            ("content-digest", SHA, Some(true)),
            ("repr-digest", "unknown=:AA==:", Some(true)),
            ("repr-digest", &SHA.replace("ungW", "ungX"), Some(false)),
            ("repr-digest", &format!("md5=:AA==:, {SHA};a=1"), Some(true)),
            ("content-digest", "sha-256=ungW", None),
            ("content-digest", "sha-512=:ungW:", None),
        ] {
            assert_eq!(came(name, value).ok(), expected, "{name}: {value}");
        }
    }
}
