//! Where requests go, and how their heads are written.

use std::net::{SocketAddr, ToSocketAddrs};

use model::window::Operation;

/// The path before the key, unless the address has a path of its own.
pub const PREFIX: &str = "/objects/";

/// Where the key belongs in an address that says so.
const KEY: &str = "{key}";

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
    /// What precedes the key in the path; begins with `/`, and ends with it unless the address has a
    /// `{key}` of its own.
    pub prefix: String,
    /// What follows the key.
    suffix: String,
    /// Whether there is a key at all.
    keyed: bool,
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
    /// `prefix` is used where the address has no path of its own; without either it is `/objects/`. An
    /// address may say itself where the key belongs, as `{key}`, in its path or its query.
    pub fn parse(
        url: &str,
        prefix: Option<&str>,
        token: Option<&str>,
    ) -> Result<Target, TargetError> {
        if let Some((before, after)) = url.split_once(KEY) {
            return Target::templated(url, before, Some(after), token);
        }
        let malformed = |reason: &str| TargetError::Malformed {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| TargetError::Scheme { url: url.to_owned() })?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
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
        Target::at(url, host, prefix, token)
    }

    /// An address that is asked for as it is, its query included: no key is added.
    pub fn fixed(url: &str, token: Option<&str>) -> Result<Target, TargetError> {
        Target::templated(url, url, None, token)
    }

    /// An address in two parts, the key between them if there is one.
    fn templated(
        url: &str,
        before: &str,
        after: Option<&str>,
        token: Option<&str>,
    ) -> Result<Target, TargetError> {
        let malformed = |reason: &str| TargetError::Malformed {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        let rest = before
            .strip_prefix("http://")
            .ok_or_else(|| TargetError::Scheme { url: url.to_owned() })?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let suffix = after.unwrap_or_default();
        if after.is_some() && path.is_empty() {
            return Err(malformed("a key belongs into the path: write http://HOST:PORT/{key}"));
        }
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_graphic()) && !part.contains('#');
        if !plain(path) || !plain(suffix) || suffix.contains(KEY) {
            return Err(malformed("it must be plain ASCII without #, with at most one {key}"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let target = Target::at(url, host, path, token)?;
        Ok(Target { suffix: suffix.to_owned(), keyed: after.is_some(), ..target })
    }

    fn at(
        url: &str,
        host: &str,
        prefix: String,
        token: Option<&str>,
    ) -> Result<Target, TargetError> {
        let malformed = |reason: &str| TargetError::Malformed {
            url: url.to_owned(),
            reason: reason.to_owned(),
        };
        if host.is_empty() {
            return Err(malformed("the host is missing"));
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c)) {
            return Err(malformed("the host holds what no host can"));
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
            suffix: String::new(),
            keyed: true,
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
        if self.keyed {
            encode_key(out, key);
            out.extend_from_slice(self.suffix.as_bytes());
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
    fn addresses_may_say_where_the_key_belongs() {
        let line = |target: Target| {
            let mut out = Vec::new();
            target.write_head(&mut out, Operation::Get, b"a b", 0);
            String::from_utf8(out).unwrap().lines().next().unwrap().to_owned()
        };
        let of = |url| line(Target::parse(url, Some("/never/"), None).unwrap());
        assert_eq!(of("http://127.0.0.1:1/i/{key}.jpg"), "GET /i/a%20b.jpg HTTP/1.1");
        assert_eq!(of("http://127.0.0.1:1/f?x=1&k={key}&y"), "GET /f?x=1&k=a%20b&y HTTP/1.1");
        let fixed = |url| line(Target::fixed(url, None).unwrap());
        assert_eq!(fixed("http://127.0.0.1:1/p/q?x=1"), "GET /p/q?x=1 HTTP/1.1");
        assert_eq!(fixed("http://127.0.0.1:1"), "GET / HTTP/1.1");
        assert_eq!(fixed("http://127.0.0.1:1?x"), "GET /?x HTTP/1.1");
        for url in [
            "http://127.0.0.1:1{key}",
            "http://127.0.0.1:1/{key}/{key}",
            "http://127.0.0.1:1/{key}#x",
        ] {
            assert!(Target::parse(url, None, None).is_err(), "{url}");
        }
        assert!(Target::fixed("https://127.0.0.1:1/", None).is_err());
        assert!(Target::fixed("http:///x", None).is_err());
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
