//! The target of requests: its address, its protocol, and the encoding of requests.

use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;

use ground::window::Operation;

use super::address::Addresses;
use super::files::Files;
use super::forms::Forms;
use super::head::Heads;
use super::header::Header;
use super::memcached;
use super::parts::RequestParts;
use super::s3::{Credentials, Presigner};
use super::settings::HttpSettings;
use super::template::KEY;
use super::tls::{Secure, Trust};

/// The path before the key, unless the URL has a path of its own.
const PREFIX: &str = "/objects/";

/// The default region.
const REGION: &str = "us-east-1";
/// The form of a bucket's URL.
const BUCKET: &str = "s3://BUCKET[/PREFIX]?endpoint=http[s]://HOST:PORT[&region=REGION]";

/// Why a URL cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The scheme is not supported.
    #[error(
        "invalid URL `{url}`: http://, https://, s3://, memcached:// and file:// are supported (write \
         http://HOST:PORT, {BUCKET}, memcached://HOST:PORT, or file:///PATH)"
    )]
    Scheme {
        /// What was given.
        url: String,
    },
    /// The URL is malformed.
    #[error("invalid URL `{url}`: {reason}")]
    Malformed {
        /// What was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The folder, device or file cannot be used.
    #[error("cannot use {url}: {reason}")]
    Unusable {
        /// What was given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The host name cannot be resolved.
    #[error(
        "cannot resolve `{host}`: {source}; is the name right? An address in its place needs no name \
         server (--host NAME then names the host that is asked)"
    )]
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
    /// The resolved addresses.
    pub addresses: Addresses,
    /// Host and port as given.
    pub host: String,
    protocol: Protocol,
    /// The TLS settings, for https.
    pub(super) secure: Option<Secure>,
    /// The most requests in progress on a connection, with HTTP/2.
    streams: Option<usize>,
}

/// How a service at an http(s) address is asked, beside the address.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    /// A bearer token for every request.
    pub token: Option<&'a str>,
    /// The trusted certificates.
    pub trust: Trust<'a>,
    /// Headers, requests, names, HTTP/2.
    pub http: &'a HttpSettings,
}

/// The protocol of a target.
#[derive(Clone)]
enum Protocol {
    Http(Heads),
    /// `several`: a get may be for several keys, separated by spaces.
    Memcached {
        several: bool,
    },
    Files(Arc<Files>),
}

impl std::fmt::Debug for Target {
    // Omits the headers, which may hold a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Target({self})")
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.protocol {
            Protocol::Http(heads) => {
                let scheme = if self.secure.is_some() { "https" } else { "http" };
                write!(f, "{scheme}://{}{}", self.host, heads.prefix())
            }
            Protocol::Memcached { .. } => write!(f, "memcached://{}", self.host),
            Protocol::Files(files) => write!(f, "{files}"),
        }
    }
}

impl Target {
    /// Parses `http[s]://HOST[:PORT][/PREFIX]` and resolves the host.
    ///
    /// `prefix` is used if the URL has no path of its own; without either the path is `/objects/`.
    /// Instead, the URL may contain `{key}` in the place of the key, in its path or its query.
    pub fn parse(
        url: &str,
        prefix: Option<&str>,
        access: Access<'_>,
    ) -> Result<Target, TargetError> {
        if let Some((before, after)) = url.split_once(KEY) {
            return Target::templated(url, before, Some(after), access);
        }
        let (tls, rest) = after_http(url, url)?;
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let own = if path.len() > 1 { Some(path) } else { None };
        let mut prefix = own.or(prefix).unwrap_or(PREFIX).to_owned();
        if !prefix.bytes().all(|b| b.is_ascii_graphic()) || prefix.contains(['?', '#']) {
            let reason = "the path before the keys must be plain ASCII without ? and #";
            return Err(malformed(url, reason));
        }
        if !prefix.starts_with('/') {
            prefix.insert(0, '/');
        }
        if !prefix.ends_with('/') {
            prefix.push('/');
        }
        let (name, headers) = common(url, host, access)?;
        let heads = Heads::new(&name, &headers, prefix, Some(String::new()));
        Target::http(url, host, access.add_forms(heads, &name, &headers), tls, access)
    }

    /// A fixed URL, requested as it is, including its query: no key is added.
    pub fn fixed(url: &str, access: Access<'_>) -> Result<Target, TargetError> {
        Target::templated(url, url, None, access)
    }

    /// The objects of a bucket: `s3://BUCKET[/PREFIX]?endpoint=http[s]://HOST:PORT[&region=REGION]`.
    ///
    /// The bucket is in the path; objects are named `PREFIX/KEY`. With credentials, requests are
    /// signed for the time `unix_s` (seconds since 1970); signatures are valid for seven days.
    pub fn s3(
        url: &str,
        credentials: Option<&Credentials>,
        unix_s: i64,
        access: Access<'_>,
    ) -> Result<Target, TargetError> {
        let wrong = |reason: &str| malformed(url, &format!("{reason}; write {BUCKET}"));
        let rest = url.strip_prefix("s3://").ok_or_else(|| wrong("not a bucket URL"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut endpoint, mut region) = (None, REGION);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("endpoint", value)) => endpoint = Some(value),
                Some(("region", value)) => region = value,
                _ => return Err(wrong(&format!("unknown parameter `{pair}`"))),
            }
        }
        let endpoint = endpoint.ok_or_else(|| wrong("the endpoint is missing"))?;
        let (tls, host) = after_http(url, endpoint)?;
        let host = host.trim_end_matches('/');
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let name = |text: &str| {
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
            (1..=255).contains(&text.len()) && text.bytes().all(plain)
        };
        if !name(bucket) || !name(region) || host.contains('/') {
            let reason = "bucket and region must consist of letters, digits, `.`, `-` and `_`, and \
                          the endpoint must have no path";
            return Err(wrong(reason));
        }
        let (named, headers) = common(url, host, access)?;
        // The signature holds for the host that the store believes to be asked.
        let signer = credentials.map(|c| Presigner::new(c, region, &named, unix_s));
        let heads = Heads::bucket(&named, &headers, bucket, prefix, signer);
        Target::http(url, host, heads, tls, access)
    }

    /// A memcached server: `memcached://HOST[:PORT]`, with default port 11211. With `several`, the
    /// key of a get is several keys separated by spaces.
    pub fn memcached(url: &str, several: bool) -> Result<Target, TargetError> {
        let rest = url.strip_prefix("memcached://");
        let rest = rest.ok_or_else(|| TargetError::Scheme { url: url.to_owned() })?;
        let host = rest.strip_suffix('/').unwrap_or(rest);
        if host.contains('/') {
            let reason = "a memcached URL has no path; put a key prefix into --key-format";
            return Err(malformed(url, reason));
        }
        let addresses = resolve(url, host, memcached::PORT)?;
        let (host, protocol) = (host.to_owned(), Protocol::Memcached { several });
        Ok(Target { addresses, host, protocol, secure: None, streams: None })
    }

    /// The files of a folder, or parts of a block device or file: `file:///PATH`. Nothing is written
    /// without `destroy`; `verify`: the bytes of reads are compared.
    pub fn local(url: &str, destroy: bool, verify: bool) -> Result<Target, TargetError> {
        let path = url.strip_prefix("file://").filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| malformed(url, "write file:///PATH, from the root"))?;
        let files = Files::open(Path::new(path), destroy, verify);
        let unusable = |reason| TargetError::Unusable { url: url.to_owned(), reason };
        let protocol = Protocol::Files(Arc::new(files.map_err(unusable)?));
        let addresses = Addresses::new(vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0))]);
        Ok(Target { addresses, host: String::new(), protocol, secure: None, streams: None })
    }

    /// A URL in two parts with the key between them, or without a key if `after` is `None`.
    fn templated(
        url: &str,
        before: &str,
        after: Option<&str>,
        access: Access<'_>,
    ) -> Result<Target, TargetError> {
        let (tls, rest) = after_http(url, before)?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let suffix = after.unwrap_or_default();
        if after.is_some() && path.is_empty() {
            let reason = "the key must be in the path or query: write http://HOST:PORT/{key}";
            return Err(malformed(url, reason));
        }
        let plain = |part: &str| part.bytes().all(|b| b.is_ascii_graphic()) && !part.contains('#');
        if !plain(path) || !plain(suffix) || suffix.contains(KEY) {
            return Err(malformed(url, "it must be plain ASCII without #, with at most one {key}"));
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        let (name, headers) = common(url, host, access)?;
        let heads = Heads::new(&name, &headers, path, after.map(str::to_owned));
        Target::http(url, host, access.add_forms(heads, &name, &headers), tls, access)
    }

    fn http(
        url: &str,
        host: &str,
        heads: Heads,
        tls: bool,
        access: Access<'_>,
    ) -> Result<Target, TargetError> {
        let addresses = resolve(url, host, if tls { 443 } else { 80 })?;
        let name = access.http.server_name.as_deref().unwrap_or(host);
        let secure = tls.then(|| Secure::new(name, access.trust, access.http.http2)).transpose();
        let secure = secure.map_err(|reason| malformed(url, &reason))?;
        let streams = access.http.http2.then_some(access.http.streams);
        let (host, protocol) = (host.to_owned(), Protocol::Http(heads));
        Ok(Target { addresses, host, protocol, secure, streams })
    }

    /// The most requests in progress on a connection, with HTTP/2.
    pub(crate) fn streams(&self) -> Option<usize> {
        self.streams
    }

    /// Speaks the first words of TLS and HTTP/2 over a connection, to find out whether the service
    /// understands them. With neither, nothing is sent.
    ///
    /// # Errors
    /// What is wrong, and what to do.
    pub(crate) fn greet(&self, stream: &TcpStream) -> Result<(), String> {
        match &self.secure {
            Some(secure) => secure.try_handshake(stream).map_err(|why| format!("TLS: {why}")),
            None if self.streams.is_some() => super::wire::greet(stream),
            None => Ok(()),
        }
    }

    /// The number of the listed request that is sent next, `draw` being uniform on 0 to 1; `None` if
    /// requests are reads and writes of keys.
    pub(crate) fn choose(&self, draw: impl FnOnce() -> f64) -> Option<u32> {
        let forms = self.forms()?;
        Some(if forms.len() == 1 { 0 } else { forms.choose(draw()) })
    }

    /// The operation of a listed request.
    pub(crate) fn operation_of(&self, form: u32) -> Option<Operation> {
        Some(self.forms()?.get(form)?.operation)
    }

    /// What messages call a listed request; `None` if there is only one.
    pub(crate) fn name_of(&self, form: u32) -> Option<&str> {
        self.forms().filter(|forms| forms.len() > 1)?.get(form).map(|form| form.name())
    }

    /// What tables call a listed request: its name, or its method and path; `None` if there is only one.
    pub(crate) fn label_of(&self, form: u32) -> Option<&str> {
        self.forms().filter(|forms| forms.len() > 1)?.get(form).map(|form| form.label())
    }

    fn forms(&self) -> Option<&Forms> {
        match &self.protocol {
            Protocol::Http(heads) => Some(heads.forms()).filter(|forms| !forms.is_empty()),
            _ => None,
        }
    }

    /// Appends a request, without the generated body of a put.
    pub(crate) fn write_request(&self, out: &mut Vec<u8>, parts: &RequestParts<'_>) {
        match (&self.protocol, parts.form) {
            (Protocol::Http(heads), Some(form)) => heads.write_form(out, form, parts.key),
            _ => self.write_head(out, parts.operation, parts.key, parts.body.size),
        }
    }

    /// Whether the reply has no body whatever its headers announce.
    pub(super) fn is_head(&self, parts: &RequestParts<'_>) -> bool {
        match parts.form {
            Some(form) => {
                let form = self.forms().and_then(|forms| forms.get(form));
                form.is_some_and(|form| form.method() == "HEAD")
            }
            None => parts.operation == Operation::Head,
        }
    }

    /// Whether the protocol is memcached's text protocol rather than HTTP.
    pub(crate) fn is_memcached(&self) -> bool {
        matches!(self.protocol, Protocol::Memcached { .. })
    }

    /// The files that are in the place of a service.
    pub(crate) fn files(&self) -> Option<&Arc<Files>> {
        match &self.protocol {
            Protocol::Files(files) => Some(files),
            _ => None,
        }
    }

    /// Whether connections are encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// Appends a request for a key, without its body. `size` is the length of a put's body.
    pub fn write_head(&self, out: &mut Vec<u8>, operation: Operation, key: &[u8], size: u64) {
        match &self.protocol {
            Protocol::Http(heads) => heads.write(out, operation, key, size),
            Protocol::Memcached { several } => {
                memcached::write_command(out, operation, key, *several, size);
            }
            Protocol::Files(_) => Files::write_request(out, operation, key, size),
        }
    }
}

fn malformed(url: &str, reason: &str) -> TargetError {
    TargetError::Malformed { url: url.to_owned(), reason: reason.to_owned() }
}

impl Access<'_> {
    /// The heads with the requests of the settings. `host` and `headers` are those of all requests.
    fn add_forms(&self, heads: Heads, host: &str, headers: &[Header]) -> Heads {
        heads.with_forms(Forms::new(&self.http.requests, host, headers))
    }
}

/// The value of `Host` and the headers of all requests, a bearer token's among them; an empty token
/// counts as none.
fn common(url: &str, host: &str, access: Access<'_>) -> Result<(String, Vec<Header>), TargetError> {
    let token = access.token.map(str::trim).filter(|token| !token.is_empty());
    let mut headers: Vec<Header> = Vec::new();
    if let Some(token) = token {
        if !token.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(malformed(url, "the token has characters that are invalid in a header"));
        }
        let bearer = Header::new("authorization", &format!("Bearer {token}"), true);
        headers.push(bearer.map_err(|reason| malformed(url, &reason))?);
    }
    let others = access.http.headers.iter().filter(|header| header.name != "host");
    headers.extend(others.cloned());
    let host = access.http.host.as_deref().unwrap_or(host);
    Ok((host.to_owned(), headers))
}

/// Splits off `http://` or `https://`. Returns whether it was https, and the rest.
fn after_http<'a>(url: &str, part: &'a str) -> Result<(bool, &'a str), TargetError> {
    let plain = part.strip_prefix("http://").map(|rest| (false, rest));
    let secure = || part.strip_prefix("https://").map(|rest| (true, rest));
    plain.or_else(secure).ok_or_else(|| TargetError::Scheme { url: url.to_owned() })
}

/// Checks a host name and resolves it.
fn resolve(url: &str, host: &str, port: u16) -> Result<Addresses, TargetError> {
    if host.is_empty() {
        return Err(malformed(url, "the host is missing"));
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || "@?#".contains(c)) {
        return Err(malformed(url, "invalid character in the host name"));
    }
    let with_port = if has_port(host) { host.to_owned() } else { format!("{host}:{port}") };
    let found = Addresses::resolve(&with_port);
    found.map_err(|source| TargetError::Resolve { host: with_port, source })
}

/// Whether a host ends with a port. The colons within a bracketed IPv6 address do not count.
fn has_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(before, port)| {
        !port.is_empty()
            && port.bytes().all(|b| b.is_ascii_digit())
            && (!before.contains(':') || before.ends_with(']'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The access without anything: a token, headers, HTTP/2.
    fn plain() -> Access<'static> {
        static HTTP: std::sync::LazyLock<HttpSettings> =
            std::sync::LazyLock::new(HttpSettings::default);
        Access { token: None, trust: Trust::System, http: &HTTP }
    }

    /// The first line of a get of the key `a b`.
    fn line(target: Target) -> String {
        let mut out = Vec::new();
        target.write_head(&mut out, Operation::Get, b"a b", 0);
        String::from_utf8(out).unwrap().lines().next().unwrap().to_owned()
    }

    #[test]
    fn addresses_may_say_where_the_key_belongs() {
        let of = |url| line(Target::parse(url, Some("/never/"), plain()).unwrap());
        assert_eq!(of("http://127.0.0.1:1/i/{key}.jpg"), "GET /i/a%20b.jpg HTTP/1.1");
        assert_eq!(of("http://127.0.0.1:1/f?x=1&k={key}&y"), "GET /f?x=1&k=a%20b&y HTTP/1.1");
        let fixed = |url| line(Target::fixed(url, plain()).unwrap());
        assert_eq!(fixed("http://127.0.0.1:1/p/q?x=1"), "GET /p/q?x=1 HTTP/1.1");
        assert_eq!(fixed("http://127.0.0.1:1"), "GET / HTTP/1.1");
        assert_eq!(fixed("http://127.0.0.1:1?x"), "GET /?x HTTP/1.1");
        for url in [
            "http://127.0.0.1:1{key}",
            "http://127.0.0.1:1/{key}/{key}",
            "http://127.0.0.1:1/{key}#x",
        ] {
            assert!(Target::parse(url, None, plain()).is_err(), "{url}");
        }
        assert!(Target::fixed("http:///x", plain()).is_err());
    }

    #[test]
    fn addresses_that_cannot_be_used_are_named() {
        for url in
            ["", "https://", "ftp://h", "http://", "http:///x", "http://a b:1", "http://h:x:y"]
        {
            let error = Target::parse(url, None, plain()).unwrap_err().to_string();
            assert!(error.contains('`'), "{url}: {error}");
        }
        let short = Target::parse("http://[::1]:80/", None, plain()).unwrap();
        assert_eq!(short.to_string(), "http://[::1]:80/objects/");
        let split = Access { token: Some("a\r\nb"), ..plain() };
        assert!(Target::parse("http://127.0.0.1:1", None, split).is_err());
    }

    #[test]
    fn buckets_are_addressed_in_the_path() {
        let credentials = Credentials {
            access_key_id: "AK".to_owned(),
            secret_access_key: "hush".to_owned(),
            session_token: None,
        };
        let of = |url: &str| Target::s3(url, Some(&credentials), 1_369_353_600, plain());
        let signed = of("s3://b.k/in/side?endpoint=http://127.0.0.1:7/&region=eu-west-1").unwrap();
        assert_eq!(format!("{signed:?}"), "Target(http://127.0.0.1:7/b.k/in/side/)");
        let signed = line(signed);
        let start = "GET /b.k/in/side/a%20b?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AK%2F\
                     20130524%2Feu-west-1%2Fs3";
        assert!(signed.starts_with(start) && signed.contains("&X-Amz-Signature="), "{signed}");
        let open = Target::s3("s3://b?endpoint=http://127.0.0.1:7", None, 0, plain()).unwrap();
        assert_eq!(line(open), "GET /b/a%20b HTTP/1.1");
        for (url, part) in [
            ("s3://b", "the endpoint is missing"),
            ("s3://?endpoint=http://127.0.0.1:7", "bucket and region"),
            ("s3://b?endpoint=http://127.0.0.1:7/x", "must have no path"),
            ("s3://b?endpoint=http://127.0.0.1:7&x=1", "unknown parameter `x=1`"),
            ("s3://b?endpoint=127.0.0.1:7", "http://, https://, s3://, memcached:// and file://"),
            ("s3://b\r\n?endpoint=http://127.0.0.1:7", "bucket and region"),
            ("s3://b?endpoint=http://a b", "invalid character in the host"),
        ] {
            let error = of(url).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hush"), "{url}: {error}");
        }
    }

    #[test]
    fn memcached_has_a_host_and_nothing_else() {
        let of = |url| Target::memcached(url, false);
        let found = of("memcached://127.0.0.1").unwrap();
        assert_eq!((found.addresses.current().port(), found.is_memcached()), (11211, true));
        assert_eq!(of("memcached://[::1]:7/").unwrap().to_string(), "memcached://[::1]:7");
        assert_eq!(line(found), "get a%20b");
        for url in ["memcached://", "memcached://h/x", "memcached://a b", "http://127.0.0.1:1"] {
            assert!(of(url).unwrap_err().to_string().contains('`'), "{url}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_or_an_error(text in "(http|s3|memcached)://[ -~]{0,12}") {
            // Avoids name resolution: only texts that fail before it, or are numeric.
            if text.contains('@') || text.len() < 8 {
                let _ = Target::parse(&text, None, plain()).is_err();
            }
            let _ = Target::s3(&text, None, 0, plain()).is_err();
        }
    }
}
