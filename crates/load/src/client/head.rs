//! Encodes the heads of HTTP requests; those for S3-compatible stores are signed.

use ground::hex;
use ground::window::Operation;

use super::forms::Forms;
use super::header::Header;
use super::s3::Presigner;
use super::template::{Escape, Template};

/// Encodes the heads of requests for keys.
#[derive(Clone)]
pub(super) struct Heads {
    /// The path before the key; begins with `/`.
    prefix: String,
    /// The path and query after the key; `None` for a fixed URL without a key.
    suffix: Option<String>,
    /// What follows the path of a request without a body: version, header lines, the empty line.
    headers: Template,
    /// What follows the path of a put, up to the value of its content length.
    put_headers: Template,
    /// The requests that are sent in the place of reads and writes of keys.
    forms: Forms,
    signer: Option<Box<Presigner>>,
    /// Whether every `/` of a key is sent unencoded. For an object store `a//b` is a key; other
    /// servers merge repeated slashes.
    slashes: bool,
}

impl Heads {
    /// Creates heads for a host, with these headers. The caller ensures that the host is valid in a
    /// header.
    pub fn new(host: &str, headers: &[Header], prefix: String, suffix: Option<String>) -> Heads {
        let mut common = format!(" HTTP/1.1\r\nhost: {host}\r\n");
        for header in headers {
            common += &format!("{}: {}\r\n", header.name, header.value);
        }
        let has_type = headers.iter().any(|header| header.name == "content-type");
        let media = if has_type { "" } else { "content-type: application/octet-stream\r\n" };
        Heads {
            prefix,
            suffix,
            headers: Template::parse(format!("{common}\r\n").as_bytes()),
            put_headers: Template::parse(format!("{common}{media}content-length: ").as_bytes()),
            forms: Forms::default(),
            signer: None,
            slashes: false,
        }
    }

    /// Creates heads for the objects `PREFIX/KEY` of a bucket (`KEY` if the prefix is empty);
    /// signed if a signer is given.
    pub fn bucket(
        host: &str,
        headers: &[Header],
        bucket: &str,
        prefix: &str,
        signer: Option<Presigner>,
    ) -> Heads {
        let mut path = format!("/{bucket}/").into_bytes();
        encode_key(&mut path, prefix.as_bytes(), true);
        if !prefix.is_empty() && !prefix.ends_with('/') {
            path.push(b'/');
        }
        let path = String::from_utf8(path).unwrap_or_default();
        let plain = Heads::new(host, headers, path, Some(String::new()));
        Heads { signer: signer.map(Box::new), slashes: true, ..plain }
    }

    /// The same, for these requests in the place of reads and writes of keys.
    pub fn with_forms(self, forms: Forms) -> Heads {
        Heads { forms, ..self }
    }

    /// The requests that are sent in the place of reads and writes of keys.
    pub fn forms(&self) -> &Forms {
        &self.forms
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
        self.write_path(out, key);
        if let Some(signer) = &self.signer {
            signer.sign(out, method, path);
        }
        let put = operation == Operation::Put;
        let headers = if put { &self.put_headers } else { &self.headers };
        let mut escaped = Vec::new();
        if headers.has_key() {
            Escape::Header.push(&mut escaped, key);
        }
        headers.write(out, &escaped);
        if put {
            out.extend_from_slice(size.to_string().as_bytes());
            out.extend_from_slice(b"\r\n\r\n");
        }
    }

    /// Appends the listed request with this number, its body included.
    pub fn write_form(&self, out: &mut Vec<u8>, number: u32, key: &[u8]) {
        let Some(form) = self.forms.get(number) else { return };
        out.extend_from_slice(form.method().as_bytes());
        out.push(b' ');
        match &form.path {
            None => self.write_path(out, key),
            Some(path) => {
                let mut escaped = Vec::new();
                if path.has_key() {
                    encode_key(&mut escaped, key, false);
                }
                path.write(out, &escaped);
            }
        }
        out.extend_from_slice(b" HTTP/1.1\r\n");
        form.write_rest(out, key);
    }

    fn write_path(&self, out: &mut Vec<u8>, key: &[u8]) {
        out.extend_from_slice(self.prefix.as_bytes());
        if let Some(suffix) = &self.suffix {
            encode_key(out, key, self.slashes);
            out.extend_from_slice(suffix.as_bytes());
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
            let bearer = Header::new("authorization", "Bearer secret", true).unwrap();
            Heads::new("127.0.0.1:1", &[bearer], prefix.to_owned(), Some(String::new()))
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
        let bucket = Heads::bucket("h", &[], "b", "my own", None);
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
