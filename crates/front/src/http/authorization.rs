//! Who may: tokens of clients and of the cluster's processes, and web pages where there is no token.

use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{StatusCode, Uri};

use crate::Front;

use wire::problem::Problem;
use wire::{browser, headers};

/// Refuses as [`authorize`] does, but admits the page at `/` without a token: a browser cannot send one before
/// it has the page.
pub fn admit(front: &Front, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if front.token.is_some() && live::http::is_page(uri.path()) {
        return Ok(());
    }
    authorize(front, uri.authority().map(|authority| authority.as_str()), headers)
}

/// Refuses requests without the token. If no token is configured, refuses requests of other sites' web pages.
/// Requests between processes need the cluster's token; the clients' token is not accepted for them. `authority` is that of
/// an address in absolute form.
pub fn authorize(
    front: &Front,
    authority: Option<&str>,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let internal = headers.contains_key(&headers::PROTOCOL);
    let (token, name) = match &front.cluster_token {
        Some(token) if internal => (Some(token), "cluster.token"),
        _ => (front.token.as_ref(), "serve.token"),
    };
    let Some(token) = token else {
        let server = browser::Server {
            hosts: &front.config.serve.hosts,
            is_encrypted: front.tls.get().is_some(),
        };
        return server.check(authority, headers);
    };
    let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    // Hashes are compared (in constant time), so that the time taken tells nothing of the token.
    if bearer(given).is_some_and(|given| blake3::hash(given) == *token) {
        return Ok(());
    }
    let what =
        format!("this needs the header `Authorization: Bearer TOKEN` with the token of {name}");
    Err(Problem::new(StatusCode::UNAUTHORIZED, &what)
        .with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")))
}

/// The token of `Bearer TOKEN`. The scheme is of any case, and spaces follow it (RFC 9110, section 11.4).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = value.split_at_checked(b"Bearer".len())?;
    let token = rest.trim_ascii_start();
    (scheme.eq_ignore_ascii_case(b"Bearer") && token.len() < rest.len()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scheme_is_of_any_case() {
        for (value, token) in [
            ("Bearer a", Some("a")),
            ("bearer a", Some("a")),
            ("BEARER a", Some("a")),
            ("bEaReR   a", Some("a")),
            ("Bearer\ta", Some("a")),
            ("Bearer a b", Some("a b")),
            ("Bearer ", Some("")),
            ("Bearer", None),
            ("Bearera", None),
            ("Basic a", None),
            ("a", None),
            ("", None),
        ] {
            assert_eq!(bearer(value.as_bytes()), token.map(str::as_bytes), "{value:?}");
        }
    }
}
