//! Where requests go, and how their heads are written.

use std::net::{SocketAddr, ToSocketAddrs};

use model::window::Operation;

/// The path before the key, unless the address has a path of its own.
pub const PREFIX: &str = "/objects/";

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Not `http://`.
    #[error("`{url}`: only http:// is spoken here (write http://HOST:PORT)")]
    Scheme {
        /// What was given.
        url: String,
    },
    /// A part of the address is not what it should be.
    #[error("`{url}`: {reason}")]
    Malformed {
        /// What was given.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The name is not known.
    #[error("`{host}` cannot be resolved: {source}")]
    Resolve {
        /// Host and port.
        host: String,
        /// Why.
        source: std::io::Error,
    },
}

/// A service under load.
#[derive(Clone)]
pub struct Target {
    /// Its address.
    pub address: SocketAddr,
    /// Host and port as given, for the `host` header.
    pub host: String,
    /// What precedes the key in the path; begins and ends with `/`.
    pub prefix: String,
    /// All header lines of a request, and the empty line.
    headers: String,
    /// The same with room for a body's length.
    put_headers: String,
}

impl std::fmt::Debug for Target {
    // The headers may hold a token: they are not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target(http://{}{})", self.host, self.prefix)
    }
}

impl Target {
    /// Understands `http://HOST[:PORT][/PREFIX]`, resolves the host, and notes a bearer token.
    ///
    /// `prefix` is used where the address has no path of its own; without either it is `/objects/`.
    pub fn parse(
        url: &str,
        prefix: Option<&str>,
        token: Option<&str>,
    ) -> Result<Target, TargetError> {
        let malformed = |reason: &str| TargetError::Malformed {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| TargetError::Scheme { url: url.to_owned() })?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if host.is_empty() {
            return Err(malformed("the host is missing"));
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c)) {
            return Err(malformed("the host holds what no host can"));
        }
        let own = if path.len() > 1 { Some(path) } else { None };
        let mut prefix = own.or(prefix).unwrap_or(PREFIX).to_owned();
        if !prefix.bytes().all(|b| b.is_ascii_graphic()) || prefix.contains(['?', '#']) {
            return Err(malformed("the path before the keys must be plain ASCII without ? and #"));
        }
        if !prefix.starts_with('/') {
            prefix.insert(0, '/');
        }
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        let token = token.map(str::trim).filter(|t| !t.is_empty());
        if token.is_some_and(|t| !t.bytes().all(|b| b.is_ascii_graphic())) {
            return Err(malformed("the token holds what no header can"));
        }
        let with_port = if has_port(host) { host.to_owned() } else { format!("{host}:80") };
        let resolve = |source| TargetError::Resolve { host: with_port.clone(), source };
        let address = with_port
            .to_socket_addrs()
            .map_err(resolve)?
            .next()
            .ok_or_else(|| resolve(std::io::ErrorKind::NotFound.into()))?;
        let bearer = token.map(|t| format!("authorization: Bearer {t}\r\n")).unwrap_or_default();
        let common = format!(" HTTP/1.1\r\nhost: {host}\r\n{bearer}");
        Ok(Target {
            address,
            host: host.to_owned(),
            prefix,
            headers: format!("{common}\r\n"),
            put_headers: format!(
                "{common}content-type: application/octet-stream\r\ncontent-length: "
            ),
        })
    }

    /// Appends the head of a request for a key. `size` is the length of the body of a put.
    pub fn write_head(&self, out: &mut Vec<u8>, operation: Operation, key: &[u8], size: u64) {
        let method: &[u8] = match operation {
            Operation::Get | Operation::List => b"GET ",
            Operation::Head => b"HEAD ",
            Operation::Put => b"PUT ",
            Operation::Delete => b"DELETE ",
        };
        out.extend_from_slice(method);
        out.extend_from_slice(self.prefix.as_bytes());
        encode_key(out, key);
        if operation == Operation::Put {
            out.extend_from_slice(self.put_headers.as_bytes());
            out.extend_from_slice(size.to_string().as_bytes());
            out.extend_from_slice(b"\r\n\r\n");
        } else {
            out.extend_from_slice(self.headers.as_bytes());
        }
    }
}

/// Whether a host ends in a port; the colons of a bare IPv6 address in brackets are none.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(before, port)| {
        !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && (!before.contains(':') || before.ends_with(']'))
    })
}

/// Appends a key as it stands in a path: everything but letters, digits, `-._~` and `/` in percent form.
/// A `/` that begins the key or follows another is encoded too, because servers merge runs of them.
fn encode_key(out: &mut Vec<u8>, key: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut after_slash = true;
    for &byte in key {
        let plain = byte.is_ascii_alphanumeric()
            || matches!(byte, b'-' | b'.' | b'_' | b'~')
            || (byte == b'/' && !after_slash);
        after_slash = byte == b'/';
        if plain {
            out.push(byte);
        } else {
            out.extend_from_slice(&[
                b'%',
                HEX[usize::from(byte >> 4)],
                HEX[usize::from(byte & 15)],
            ]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(url: &str, operation: Operation, key: &[u8]) -> String {
        let target = Target::parse(url, None, Some("secret")).unwrap();
        let mut out = Vec::new();
        target.write_head(&mut out, operation, key, 7);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn heads_are_what_http_says() {
        assert_eq!(
            head("http://127.0.0.1:7070", Operation::Get, b"a/b c"),
            "GET /objects/a/b%20c HTTP/1.1\r\nhost: 127.0.0.1:7070\r\n\
             authorization: Bearer secret\r\n\r\n"
        );
        assert_eq!(
            head("http://127.0.0.1:1/o", Operation::Put, b"/x//%"),
            "PUT /o/%2Fx/%2F%25 HTTP/1.1\r\nhost: 127.0.0.1:1\r\n\
             authorization: Bearer secret\r\ncontent-type: application/octet-stream\r\n\
             content-length: 7\r\n\r\n"
        );
    }

    #[test]
    fn addresses_that_cannot_be_used_are_named() {
        for url in
            ["", "https://h", "ftp://h", "http://", "http:///x", "http://a b:1", "http://h:x:y"]
        {
            let error = Target::parse(url, None, None).unwrap_err().to_string();
            assert!(error.contains('`'), "{url}: {error}");
        }
        assert_eq!(Target::parse("http://[::1]:80/", None, None).unwrap().prefix, "/objects/");
        assert!(Target::parse("http://127.0.0.1:1", None, Some("a\r\nb")).is_err());
    }

    proptest! {
        #[test]
        fn keys_come_back_from_their_paths(key in prop::collection::vec(any::<u8>(), 0..40)) {
            let mut out = Vec::new();
            encode_key(&mut out, &key);
            prop_assert!(out.iter().all(u8::is_ascii_graphic));
            prop_assert!(!out.windows(2).any(|w| w == b"//"));
            let text = String::from_utf8(out).unwrap();
            let back: Vec<u8> = percent_encoding::percent_decode_str(&text).collect();
            prop_assert_eq!(back, key);
        }

        #[test]
        fn any_text_is_an_address_or_an_error(text in "http://[ -~]{0,12}") {
            // Names are not looked up here: only texts that fail before that, or are numeric.
            if text.contains('@') || text.len() < 8 {
                let _ = Target::parse(&text, None, None).is_err();
            }
        }
    }
}
