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

use crate::http::Problem;

/// What the browser knows of where a request comes from.
static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// `navigate` where the user follows a link.
static SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");

fn shown(value: &[u8]) -> String {
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

/// 403 for a request that a foreign page sent; `hosts` are the further names of this server.
pub fn check(headers: &HeaderMap, hosts: &str) -> Result<(), Problem> {
    let refused = |what: String| Err(Problem::new(StatusCode::FORBIDDEN, &what));
    let host = headers.get(HOST).map(|host| host.as_bytes());
    if let Some(host) = host
        && !std::str::from_utf8(host).is_ok_and(|host| is_ours(host, hosts))
    {
        return refused(format!(
            "the Host {:?} is not this server's; ask 127.0.0.1 or localhost, add the name to serve.hosts, \
             or set serve.token",
            shown(host)
        ));
    }
    if let Some(origin) = headers.get(ORIGIN).map(|origin| origin.as_bytes()) {
        let site =
            [&b"http://"[..], b"https://"].iter().find_map(|start| origin.strip_prefix(*start));
        if site.is_none() || site != host {
            return refused(format!(
                "a page of {:?} may not use this server; set serve.token and send it",
                shown(origin)
            ));
        }
    }
    let is = |name: &HeaderName, value: &str| headers.get(name).is_some_and(|given| given == value);
    if is(&SEC_FETCH_SITE, "cross-site") && !is(&SEC_FETCH_MODE, "navigate") {
        return refused(
            "a page of another site may not use this server; set serve.token".to_owned(),
        );
    }
    Ok(())
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
            let checked = check(&headers, "other, Cache.internal");
            assert_eq!(checked.is_ok(), *expected, "{given:?}");
        }
    }
}
