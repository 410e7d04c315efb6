//! Encodes the heads of HTTP requests; those for S3-compatible stores are signed.

use ground::hex;
use ground::window::Operation;

use super::s3::Presigner;

/// Encodes the heads of requests for keys.
#[derive(Clone)]
pub(super) struct Heads {
    /// The path before the key; begins with `/`.
    prefix: String,
    /// The path and query after the key; `None` for a fixed URL without a key.
    suffix: Option<String>,
    /// All header lines of a request without a body, and the empty line.
    headers: String,
    /// The header lines of a put, up to the value of its content length.
    put_headers: String,
    signer: Option<Box<Presigner>>,
    /// Whether every `/` of a key is sent unencoded. For an object store `a//b` is a key; other
    /// servers merge repeated slashes.
    slashes: bool,
}

impl Heads {
    /// Creates heads for a host, with a bearer token if given. The caller ensures that both are
    /// valid in a header.
    pub fn new(host: &str, token: Option<&str>, prefix: String, suffix: Option<String>) -> Heads {
        let bearer = token.map(|t| format!("authorization: Bearer {t}\r\n")).unwrap_or_default();
        let common = format!(" HTTP/1.1\r\nhost: {host}\r\n{bearer}");
        Heads {
            prefix,
            suffix,
            headers: format!("{common}\r\n"),
            put_headers: format!(
                "{common}content-type: application/octet-stream\r\ncontent-length: "
            ),
            signer: None,
            slashes: false,
        }
    }

    /// Creates heads for the objects `PREFIX/KEY` of a bucket (`KEY` if the prefix is empty);
    /// signed if a signer is given.
    pub fn bucket(host: &str, bucket: &str, prefix: &str, signer: Option<Presigner>) -> Heads {
        let mut path = format!("/{bucket}/").into_bytes();
        encode_key(&mut path, prefix.as_bytes(), true);
        if !prefix.is_empty() && !prefix.ends_with('/') {
            path.push(b'/');
        }
        let path = String::from_utf8(path).unwrap_or_default();
        let plain = Heads::new(host, None, path, Some(String::new()));
        Heads { signer: signer.map(Box::new), slashes: true, ..plain }
    }

    /// The path before the key.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Appends the head of a request for a key. `size` is the length of a put's body.
    pub fn write(&self, out: &mut Vec<u8>, operation: Operation, key: &[u8], size: u64) {
        let method = match operation {
            Operation::Get
            | Operation::MultiGet
            | Operation::List
            | Operation::Search
            | Operation::Count
            | Operation::Extract => "GET",
            Operation::Append => "POST",
            Operation::Head => "HEAD",
            Operation::Put => "PUT",
            Operation::Delete => "DELETE",
        };
        out.extend_from_slice(method.as_bytes());
        out.push(b' ');
        let path = out.len();
        out.extend_from_slice(self.prefix.as_bytes());
        if let Some(suffix) = &self.suffix {
            encode_key(out, key, self.slashes);
            out.extend_from_slice(suffix.as_bytes());
        }
        if let Some(signer) = &self.signer {
            signer.sign(out, method, path);
        }
        if operation == Operation::Put {
            out.extend_from_slice(self.put_headers.as_bytes());
            out.extend_from_slice(size.to_string().as_bytes());
            out.extend_from_slice(b"\r\n\r\n");
        } else {
            out.extend_from_slice(self.headers.as_bytes());
        }
    }
}

/// Appends a key to a path: everything but letters, digits, `-._~` and `/` is percent-encoded.
/// Unless `slashes` is set, a slash at the start of the key or after another is encoded too,
/// because servers merge runs of slashes.
fn encode_key(out: &mut Vec<u8>, key: &[u8], slashes: bool) {
    let mut after_slash = true;
    for &byte in key {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || (byte == b'/' && (slashes || !after_slash));
        after_slash = byte == b'/';
        if plain {
            out.push(byte);
        } else {
            hex::push_percent(byte, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn heads_are_valid_http() {
        let head = |heads: &Heads, operation, key| {
            let mut out = Vec::new();
            heads.write(&mut out, operation, key, 7);
            String::from_utf8(out).unwrap()
        };
        let heads = |prefix: &str| {
            Heads::new("127.0.0.1:1", Some("secret"), prefix.to_owned(), Some(String::new()))
        };
        assert_eq!(
            head(&heads("/objects/"), Operation::Get, b"a/b c"),
            "GET /objects/a/b%20c HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\
             authorization: Bearer secret\r\n\r\n"
        );
        assert_eq!(
            head(&heads("/o/"), Operation::Put, b"/x//%"),
            "PUT /o/%2Fx/%2F%25 HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\
             authorization: Bearer secret\r\ncontent-type: application/octet-stream\r\n\
             content-length: 7\r\n\r\n"
        );
        let bucket = Heads::bucket("h", "b", "my own", None);
        assert_eq!(
            head(&bucket, Operation::Delete, b"/x//y"),
            "DELETE /b/my%20own//x//y HTTP/1.1\r\nhost: h\r\n\r\n"
        );
    }

    proptest! {
        #[test]
        fn keys_come_back_from_their_paths(
            key in prop::collection::vec(any::<u8>(), 0..40), slashes in any::<bool>(),
        ) {
            let mut out = Vec::new();
            encode_key(&mut out, &key, slashes);
            prop_assert!(out.iter().all(u8::is_ascii_graphic));
            prop_assert!(slashes || !out.windows(2).any(|w| w == b"//"));
            let text = String::from_utf8(out).unwrap();
            let back: Vec<u8> = percent_encoding::percent_decode_str(&text).collect();
            prop_assert_eq!(back, key);
        }
    }
}
