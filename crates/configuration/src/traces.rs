//! The section of traces: where spans go.

use std::path::PathBuf;

use origin::{Checks, Secret, section};

section! {
    /// Traces: spans of sampled requests with the times of their stages, exported to an OpenTelemetry collector (docs/traces.md).
    pub struct Traces {
        /// Address of a collector that takes OTLP over HTTP, for instance "http://127.0.0.1:4318"; without a path,
        /// /v1/traces is appended. Unset: no traces. The requests that have spans are those that are sampled
        /// (observe.sample_one_in).
        pub endpoint: Option<String> = None,
        /// Name of the service in the spans.
        pub service: String = "concertina".to_owned(),
        /// What the collector wants to see in the header `token_header`, in full: for instance "Bearer KEY".
        #[serde(skip_serializing)]
        pub token: Option<Secret> = None,
        /// The header that has the token.
        pub token_header: String = "authorization".to_owned(),
        /// File of the certificates, in PEM format, that the collector's certificate is checked against. Unset: those of
        /// the system.
        pub ca: Option<PathBuf> = None,
        /// Maximum number of requests whose spans wait for the collector; those of further ones are dropped and counted.
        pub waiting_max: u32 = 4096,
        /// Seconds that the collector has for a reply.
        pub timeout_s: f64 = 10.0,
    }
}

/// Where a collector is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    /// Whether the connection is encrypted.
    pub is_encrypted: bool,
    /// The name or address of the host, without the brackets of IPv6.
    pub host: String,
    /// The port: 80 or 443 if none is given.
    pub port: u16,
    /// The host as it is written in `Host`, with its port if one is given.
    pub authority: String,
    /// The path.
    pub path: String,
}

impl Collector {
    /// Reads an address.
    ///
    /// # Errors
    ///
    /// A text that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Collector, String> {
        let wrong = |what: &str| {
            format!(
                "invalid address {text:?}: {what}; write for instance \"http://127.0.0.1:4318\""
            )
        };
        if text.contains('@') {
            // It may be a password, which is not shown.
            return Err("must not contain a user or a password; use traces.token".to_owned());
        }
        let (scheme, rest) = text.split_once("://").ok_or_else(|| wrong("it has no http://"))?;
        let (is_encrypted, usual) = match scheme {
            "http" => (false, 80),
            "https" => (true, 443),
            _ => return Err(wrong("it is neither http:// nor https://")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.rfind(':') {
            // A colon within brackets is one of an IPv6 address.
            Some(at) if !authority[at..].contains(']') => {
                let port = authority[at + 1..].parse().ok().filter(|port| *port > 0);
                (&authority[..at], port.ok_or_else(|| wrong("its port is not a number"))?)
            }
            _ => (authority, usual),
        };
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        if bare.is_empty() || !bare.bytes().all(plain) || (bare == host && host.contains(':')) {
            return Err(wrong("it has no valid host"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.contains(['#', '?']) {
            return Err(wrong("its path is not percent-encoded, or has a query"));
        }
        let path = match path {
            "" | "/" => "/v1/traces".to_owned(),
            path => path.to_owned(),
        };
        let (host, authority) = (bare.to_owned(), authority.to_owned());
        Ok(Collector { is_encrypted, host, port, authority, path })
    }
}

impl Traces {
    /// `is_sampled` tells whether there are samples, and `is_proxy` whether the process is a proxy for memcached's protocol.
    pub(crate) fn check(&self, is_sampled: bool, is_proxy: bool, mut checks: Checks<'_>) {
        checks.between("waiting_max", self.waiting_max, 1, 1 << 20);
        checks.between("timeout_s", self.timeout_s, 0.01, 1e4);
        let is_visible = |text: &str| text.bytes().all(|b| (0x20..0x7f).contains(&b));
        checks.must(
            self.token.as_ref().is_none_or(|token| is_visible(token.expose())),
            "token",
            "has characters that a header cannot have; write visible ASCII",
        );
        let name = self.token_header.as_bytes();
        checks.must(
            !name.is_empty()
                && name.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b)),
            "token_header",
            format!(
                "invalid name of a header {:?}; write for instance \"x-api-key\"",
                self.token_header
            ),
        );
        let Some(endpoint) = &self.endpoint else { return };
        if let Err(what) = Collector::parse(endpoint) {
            checks.must(false, "endpoint", what);
        }
        checks.must(
            is_sampled,
            "endpoint",
            "needs samples: set observe.sample_one_in above 0 (1 traces every request)",
        );
        checks.must(
            !is_proxy,
            "endpoint",
            "a proxy for memcached's protocol has no traces; leave it out",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        let parts = |text: &str| {
            let found = Collector::parse(text)?;
            let Collector { is_encrypted, host, port, authority, path } = found;
            Ok::<_, String>(format!("{is_encrypted} {host} {port} {authority} {path}"))
        };
        for (text, expected) in [
            ("http://127.0.0.1:4318", "false 127.0.0.1 4318 127.0.0.1:4318 /v1/traces"),
            ("http://c/", "false c 80 c /v1/traces"),
            ("https://c.example/otlp/v1/traces", "true c.example 443 c.example /otlp/v1/traces"),
            ("http://[::1]:4318/x", "false ::1 4318 [::1]:4318 /x"),
            ("http://[::1]", "false ::1 80 [::1] /v1/traces"),
        ] {
            assert_eq!(parts(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            "127.0.0.1:4318",
            "grpc://c:4317",
            "http://",
            "http://:80",
            "http://c:0",
            "http://c:x",
            "http://c:70000",
            "http://::1",
            "http://c?k=1",
            "http://c/v1?k=1",
            "http://c/a b",
            "http://c/#x",
        ] {
            let wrong = parts(text).expect_err(text);
            assert!(wrong.contains("http://127.0.0.1:4318"), "{wrong}");
        }
    }
}
