//! Conditional requests (RFC 9110, section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    HeaderMap, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE,
};

use origin::Metadata;

/// The result of a request's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All conditions hold: process the request.
    Proceed,
    /// The client's copy is current: status 304.
    NotModified,
    /// A condition failed: status 412.
    Failed,
}

/// Whether a request has conditions on a write.
pub fn is_conditional(headers: &HeaderMap) -> bool {
    [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE].iter().any(|name| headers.contains_key(name))
}

/// Evaluates the conditions in the RFC's order. `read` is true for GET and HEAD.
pub fn judge(headers: &HeaderMap, object: Option<&Metadata>, read: bool) -> Verdict {
    if headers.contains_key(IF_MATCH) {
        if !listed(headers, &IF_MATCH, object, false) {
            return Verdict::Failed;
        }
    } else if let Some(date) = date(headers, &IF_UNMODIFIED_SINCE)
        && object.is_some_and(|object| modified(object) > date)
    {
        return Verdict::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if listed(headers, &IF_NONE_MATCH, object, true) {
            return if read { Verdict::NotModified } else { Verdict::Failed };
        }
    } else if read
        && let Some(date) = date(headers, &IF_MODIFIED_SINCE)
        && object.is_some_and(|object| modified(object) <= date)
    {
        return Verdict::NotModified;
    }
    Verdict::Proceed
}

/// Whether `If-Range` allows the `Range` header to be applied.
pub fn range_holds(headers: &HeaderMap, object: &Metadata) -> bool {
    let Some(value) = headers.get(IF_RANGE) else { return true };
    let Ok(value) = value.to_str() else { return false };
    if value.starts_with('"') || value.starts_with("W/") {
        return value.trim() == format!("\"{}\"", object.etag);
    }
    httpdate::parse_http_date(value).is_ok_and(|date| modified(object) == date)
}

/// Whether the object's etag is in a list of etags, or the object exists and the list is `*`. With
/// `weak`, a weak etag matches the strong one.
fn listed(headers: &HeaderMap, name: &HeaderName, object: Option<&Metadata>, weak: bool) -> bool {
    let Some(object) = object else { return false };
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.trim() == "*"
            || value.split(',').map(str::trim).any(|etag| {
                let etag = if weak { etag.strip_prefix("W/").unwrap_or(etag) } else { etag };
                let bare = etag.strip_prefix('"').and_then(|e| e.strip_suffix('"'));
                bare == Some(&*object.etag)
            })
    })
}

fn date(headers: &HeaderMap, name: &HeaderName) -> Option<SystemTime> {
    httpdate::parse_http_date(headers.get(name)?.to_str().ok()?).ok()
}

/// The modification time in whole seconds, as in `Last-Modified`.
fn modified(object: &Metadata) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(object.modified_unix_us / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn check(headers: &[(HeaderName, &str)], there: bool, read: bool, expected: Verdict) {
        let object = Metadata {
            size: 3,
            etag: "abc".into(),
            modified_unix_us: 784_111_777_500_000,
            attributes: Default::default(),
        };
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        let verdict = judge(&map, there.then_some(&object), read);
        assert_eq!(verdict, expected, "{headers:?} there {there} read {read}");
    }

    #[test]
    fn rows() {
        use Verdict::*;
        const AT: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
        const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
        check(&[], true, true, Proceed);
        check(&[(IF_MATCH, "\"abc\"")], true, true, Proceed);
        check(&[(IF_MATCH, "\"x\", \"abc\"")], true, false, Proceed);
        check(&[(IF_MATCH, "W/\"abc\"")], true, true, Failed);
        check(&[(IF_MATCH, "*")], true, false, Proceed);
        check(&[(IF_MATCH, "*")], false, false, Failed);
        check(&[(IF_MATCH, "\"x\"")], true, true, Failed);
        check(&[(IF_NONE_MATCH, "*")], false, false, Proceed);
        check(&[(IF_NONE_MATCH, "*")], true, false, Failed);
        check(&[(IF_NONE_MATCH, "W/\"abc\"")], true, true, NotModified);
        check(&[(IF_NONE_MATCH, "\"x\"")], true, true, Proceed);
        check(&[(IF_MODIFIED_SINCE, AT)], true, true, NotModified);
        check(&[(IF_MODIFIED_SINCE, BEFORE)], true, true, Proceed);
        check(&[(IF_MODIFIED_SINCE, AT)], true, false, Proceed);
        check(&[(IF_MODIFIED_SINCE, AT), (IF_NONE_MATCH, "\"x\"")], true, true, Proceed);
        check(&[(IF_MODIFIED_SINCE, "yesterday")], true, true, Proceed);
        check(&[(IF_UNMODIFIED_SINCE, AT)], true, true, Proceed);
        check(&[(IF_UNMODIFIED_SINCE, BEFORE)], true, true, Failed);
        check(&[(IF_UNMODIFIED_SINCE, BEFORE), (IF_MATCH, "*")], true, true, Proceed);
    }
}
