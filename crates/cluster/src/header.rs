//! The headers by which the processes of a cluster know each other, and see that they place keys alike.

use engine::route::PLACEMENT;
use ground::window::key_hash;
use http::HeaderName;
use http::header::{AUTHORIZATION, HeaderValue};

use super::error::Error;
use configuration::Config;
use membership::Members;
use wire::headers;

/// A hash as a header value.
pub fn hexadecimal(hash: u64) -> HeaderValue {
    // Hexadecimal digits are always a valid header value, so the fallback is never used.
    HeaderValue::from_str(&format!("{hash:016x}")).unwrap_or(HeaderValue::from_static(""))
}

/// What two processes of a cluster must agree on to place all keys alike. The ring of members in etcd
/// changes, and nodes refuse what is not theirs by their views; so the list's name stands for it.
pub fn fingerprint(known: &Members, config: &Config) -> u64 {
    match config.is_in_etcd() {
        false => known.ring.fingerprint(),
        true => {
            let (prefix, replicas) = (&config.membership.prefix, config.cluster.replicas);
            let text = format!("etcd {prefix:?} {replicas} {PLACEMENT}");
            key_hash(text.as_bytes())
        }
    }
}

/// The headers of a gateway's requests: those of a process that has no place of its own among the members.
///
/// # Errors
///
/// If the token is not a valid header value.
pub fn ask_headers(
    known: &Members,
    config: &Config,
) -> Result<Vec<(HeaderName, HeaderValue)>, Error> {
    let mut common = vec![
        (headers::PROTOCOL.clone(), HeaderValue::from_static(headers::PROTOCOL_VERSION)),
        (headers::RING.clone(), hexadecimal(fingerprint(known, config))),
        (headers::FROM.clone(), HeaderValue::from_static("gateway")),
    ];
    common.extend(authorization(config)?);
    Ok(common)
}

/// The header by which processes of a cluster know each other, if there is a token.
pub fn authorization(config: &Config) -> Result<Option<(HeaderName, HeaderValue)>, Error> {
    let Some(token) = &config.cluster.token else { return Ok(None) };
    let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
    let mut value = value.map_err(Error::Token)?;
    value.set_sensitive(true);
    Ok(Some((AUTHORIZATION, value)))
}
