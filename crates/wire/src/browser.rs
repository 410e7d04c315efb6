//! Refuses what a web page of somebody else asks of a server without a token.
//!
//! Such a server listens on loopback, but a browser on the same machine sends there what any page tells
//! it to. Two headers, which a page cannot forge, give it away: `Origin` names the page's site, and `Host`
//! the name that the browser looked up, which is the attacker's after DNS rebinding. Where there is a
//! token no page knows it, and nothing is looked at.

use std::net::IpAddr;

use http::header::{HOST, HeaderMap, ORIGIN};
use http::uri::Authority;
use http::{HeaderName, StatusCode};

use crate::problem::Problem;

/// What the browser knows of where a request comes from.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// `navigate` where the user follows a link.
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

fn excerpt(value: &[u8]) -> String {
    String::from_utf8_lossy(value).chars().take(100).collect()
}

fn is_ours(host: &str, hosts: &str) -> bool {
    let Ok(authority) = host.parse::<Authority>() else { return false };
    if authority.as_str().contains('@') {
        return false;
    }
    let name = authority.host().trim_end_matches('.').to_ascii_lowercase();
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    name == "localhost"
        || address.is_ok_and(|address| address.to_canonical().is_loopback())
        || hosts.split(',').any(|one| one.trim().eq_ignore_ascii_case(&name))
}

/// What a server without a token knows of itself.
pub struct Server<'a> {
    /// Its names beside those of loopback, separated by commas.
    pub hosts: &'a str,
    /// Whether its clients connect by TLS.
    pub is_encrypted: bool,
}

impl Server<'_> {
    /// 403 for a request that a foreign page sent. `authority` is that of an address in absolute form, which counts in place
    /// of `Host` (RFC 9112, section 3.2.2).
    pub fn check(&self, authority: Option<&str>, headers: &HeaderMap) -> Result<(), Problem> {
        let refused = |what: String| Err(Problem::new(StatusCode::FORBIDDEN, &what));
        let host = headers.get(HOST).map(|host| host.as_bytes());
        let host = authority.map(str::as_bytes).or(host);
        if let Some(host) = host
            && !std::str::from_utf8(host).is_ok_and(|host| is_ours(host, self.hosts))
        {
            return refused(format!(
                "the Host {:?} is not this server's; ask 127.0.0.1 or localhost, add the name to serve.hosts, \
                 or set serve.token",
                excerpt(host)
            ));
        }
        for origin in headers.get_all(ORIGIN) {
            if host.is_none_or(|host| !self.is_own_origin(origin.as_bytes(), host)) {
                return refused(format!(
                    "a page of {:?} may not use this server; set serve.token and send it",
                    excerpt(origin.as_bytes())
                ));
            }
        }
        let is =
            |name: &HeaderName, value: &str| headers.get(name).is_some_and(|given| given == value);
        if is(&SEC_FETCH_SITE, "cross-site") && !is(&SEC_FETCH_MODE, "navigate") {
            return refused(
                "a page of another site may not use this server; set serve.token".to_owned(),
            );
        }
        Ok(())
    }

    /// Whether an origin has this server's scheme, and the host and the port of the request.
    fn is_own_origin(&self, origin: &[u8], host: &[u8]) -> bool {
        let (scheme, port) = if self.is_encrypted { ("https://", 443) } else { ("http://", 80) };
        let Some((start, site)) = origin.split_at_checked(scheme.len()) else { return false };
        let place = |text: &[u8]| {
            let authority: Authority = std::str::from_utf8(text).ok()?.parse().ok()?;
            // A port that is none has no number, either.
            let has_port = authority.as_str().len() > authority.host().len();
            let port = if has_port { authority.port_u16()? } else { port };
            Some((authority.host().to_ascii_lowercase(), port))
        };
        start.eq_ignore_ascii_case(scheme.as_bytes())
            && place(site).is_some_and(|site| Some(site) == place(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let rows: &[(&[(&str, &str)], bool)] = &[
            (&[], true),
            (&[("host", "127.0.0.1:7070")], true),
            (&[("host", "127.8.9.1")], true),
            (&[("host", "LocalHost:7070")], true),
            (&[("host", "[::1]:7070")], true),
            (&[("host", "cache.internal:7070")], true),
            (&[("host", "evil.example:7070")], false),
            (&[("host", "127.0.0.1.evil.example")], false),
            (&[("host", "localhost@evil.example")], false),
            (&[("host", "evil@localhost")], false),
            (&[("host", "192.0.2.1:7070")], false),
            (&[("host", "")], false),
            (&[("host", "\u{fc}")], false),
            (&[("host", "localhost:1"), ("origin", "http://localhost:1")], true),
            (&[("host", "localhost:1"), ("origin", "http://localhost:2")], false),
            (&[("host", "localhost:1"), ("origin", "https://evil.example")], false),
            (&[("host", "localhost:1"), ("origin", "null")], false),
            (&[("host", "evil.example"), ("origin", "http://evil.example")], false),
            (&[("origin", "http://evil.example")], false),
            (&[("host", "localhost"), ("sec-fetch-site", "cross-site")], false),
            (&[("host", "localhost"), ("sec-fetch-site", "none")], true),
            (
                &[
                    ("host", "localhost"),
                    ("sec-fetch-site", "cross-site"),
                    ("sec-fetch-mode", "navigate"),
                ],
                true,
            ),
        ];
        for (given, expected) in rows {
            let mut headers = HeaderMap::new();
            for (name, value) in *given {
                let name = HeaderName::from_static(name);
                headers.insert(name, http::HeaderValue::from_bytes(value.as_bytes()).unwrap());
            }
            let server = Server { hosts: "other, Cache.internal", is_encrypted: false };
            assert_eq!(server.check(None, &headers).is_ok(), *expected, "{given:?}");
        }
    }
    #[test]
    fn an_origin_is_that_of_scheme_host_and_port() {
        let rows: &[(&str, &str, bool, bool)] = &[
            ("http://localhost:7070", "localhost:7070", true, false),
            ("https://localhost:7070", "localhost:7070", false, true),
            ("http://localhost", "localhost", true, false),
            ("https://localhost", "localhost", false, true),
            ("http://localhost", "localhost:80", true, false),
            ("http://localhost:80", "localhost", true, false),
            ("https://localhost:443", "localhost", false, true),
            ("https://localhost", "localhost:443", false, true),
            ("http://localhost:443", "localhost", false, false),
            ("http://localhost:7071", "localhost:7070", false, false),
            ("HTTP://LOCALHOST:7070", "localhost:7070", true, false),
            ("http://localhost:7070", "LocalHost:7070", true, false),
            ("http://127.0.0.1:7070", "localhost:7070", false, false),
            ("http://[::1]:7070", "[::1]:7070", true, false),
            ("http://localhost:70700", "localhost:70700", false, false),
            ("null", "localhost", false, false),
            ("", "localhost", false, false),
            ("http://", "localhost", false, false),
            ("localhost", "localhost", false, false),
            ("ftp://localhost", "localhost", false, false),
            ("http://localhost.evil", "localhost", false, false),
        ];
        for (origin, host, plain, encrypted) in rows {
            for (is_encrypted, expected) in [(false, plain), (true, encrypted)] {
                let mut headers = HeaderMap::new();
                headers.insert(HOST, host.parse().unwrap());
                headers.insert(ORIGIN, origin.parse().unwrap());
                let server = Server { hosts: "", is_encrypted };
                let what = format!("{origin:?} at {host:?}, encrypted: {is_encrypted}");
                assert_eq!(server.check(None, &headers).is_ok(), *expected, "{what}");
                // One of two that is foreign suffices.
                headers.append(ORIGIN, "http://evil.example".parse().unwrap());
                assert!(server.check(None, &headers).is_err(), "{what}, and another");
            }
        }
    }

    #[test]
    fn an_absolute_form_is_judged_by_its_own_authority() {
        let server = Server { hosts: "", is_encrypted: false };
        let mut headers = HeaderMap::new();
        headers.insert(HOST, "localhost".parse().unwrap());
        assert!(server.check(Some("127.0.0.1:7070"), &headers).is_ok());
        assert!(server.check(Some("evil.example"), &headers).is_err());
        headers.insert(HOST, "evil.example".parse().unwrap());
        assert!(server.check(Some("localhost"), &headers).is_ok());
        headers.insert(ORIGIN, "http://evil.example".parse().unwrap());
        assert!(server.check(Some("localhost"), &headers).is_err());
    }
}
