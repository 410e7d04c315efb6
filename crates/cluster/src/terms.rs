//! What a gateway or another node says in headers of when and by which view a request may be carried out.

use ground::window::Nanos;
use http::{HeaderMap, HeaderName, StatusCode};

use wire::headers;
use wire::problem::Problem;

/// How long the sender of a request waits for its reply; `None` if it does not say.
///
/// # Errors
///
/// 400 if the header is not a whole number.
pub fn patience(headers: &HeaderMap) -> Result<Option<Nanos>, Problem> {
    let ms = number(headers, &headers::DEADLINE_MS, " of milliseconds")?;
    Ok(ms.map(|ms| ms.saturating_mul(1_000_000)))
}

/// The deadline of a request, on this node's clock; `None` if it has none. The relative limit
/// counts from when the request was received. That may be long after it was sent (a link was down,
/// a process stood still), so for writes a gateway also sends an absolute limit on this node's
/// clock.
///
/// # Errors
///
/// 400 if a header is not a whole number.
pub fn deadline(headers: &HeaderMap, received: Nanos) -> Result<Option<Nanos>, Problem> {
    let left = patience(headers)?.map(|left| received.saturating_add(left));
    let not_after = number(headers, &headers::NOT_AFTER_NS, " of nanoseconds")?;
    Ok(left.into_iter().chain(not_after).min())
}

/// The epoch of the view by which a gateway sent a write here, or a node asks for a lease; `None` if it says none.
///
/// # Errors
///
/// 400 if the header is not a whole number.
pub fn epoch(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    number(headers, &headers::EPOCH, "")
}

fn number(headers: &HeaderMap, name: &HeaderName, of: &str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let number = value.to_str().ok().and_then(|text| text.parse().ok());
    number.map(Some).ok_or_else(|| {
        let what = format!("{name} must be a whole number{of}");
        Problem::new(StatusCode::BAD_REQUEST, &what)
    })
}
