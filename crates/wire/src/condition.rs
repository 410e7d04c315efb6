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

/// An entity tag of a list.
struct Tag<'a> {
    weak: bool,
    /// What is between the quotes.
    opaque: &'a str,
}

/// The entity tags of one header line; `None` if it is not a list of them (RFC 9110, section 8.8.3: what is
/// between the quotes is any text but quotes and control characters, commas included).
fn tags(line: &str) -> Option<Vec<Tag<'_>>> {
    let blank = |c: char| c == ' ' || c == '\t';
    let mut tags = Vec::new();
    let mut rest = line.trim_matches(blank);
    loop {
        // Empty elements of a list are passed over.
        while let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_start_matches(blank);
        }
        if rest.is_empty() {
            return (!tags.is_empty()).then_some(tags);
        }
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (opaque, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if opaque.chars().any(|c| c <= ' ' || c == '\u{7f}') {
            return None;
        }
        tags.push(Tag { weak, opaque });
        rest = after.trim_start_matches(blank);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

/// Checks the form of `If-Match` and `If-None-Match`; returns what is wrong. A condition that is not
/// understood must not be passed over: a write would go ahead without it.
pub fn check(headers: &HeaderMap) -> Result<(), String> {
    for name in [&IF_MATCH, &IF_NONE_MATCH] {
        let mut lines = headers.get_all(name).iter();
        let Some(first) = lines.next() else { continue };
        if first.as_bytes().trim_ascii() == b"*" && lines.next().is_none() {
            continue;
        }
        for value in headers.get_all(name) {
            let text = String::from_utf8_lossy(value.as_bytes());
            if tags(&text).is_none() {
                let shown: String = text.chars().take(100).collect();
                return Err(format!(
                    "{name}: {shown:?} is neither * nor a list of etags in double quotes, such as \
                     \"abc\", \"def\""
                ));
            }
        }
    }
    Ok(())
}

/// Judges the conditions in the order that the RFC gives. `read` for GET and HEAD.
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
    headers.get_all(name).iter().any(|value| {
        let text = String::from_utf8_lossy(value.as_bytes());
        text.trim() == "*"
            || tags(&text)
                .into_iter()
                .flatten()
                .any(|tag| tag.opaque == &*object.etag && (weak || !tag.weak))
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

    fn check_form(lines: &[&str], expected: bool) {
        for name in [IF_MATCH, IF_NONE_MATCH] {
            let mut map = HeaderMap::new();
            for line in lines {
                map.append(&name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            assert_eq!(super::check(&map).is_ok(), expected, "{name}: {lines:?}");
        }
    }

    #[test]
    fn what_is_no_list_of_etags_is_told() {
        for line in
            ["*", " * ", "\"\"", "\"a\"", "W/\"a\"", "\"a\",\"b\"", ", \"a,b\" ,, W/\"c\"", "\"ü\""]
        {
            check_form(&[line], true);
        }
        for line in [
            "",
            ",",
            "abc",
            "\"abc",
            "abc\"",
            "'abc'",
            "w/\"a\"",
            "**",
            "*, \"a\"",
            "\"a\" \"b\"",
            "\"a b\"",
        ] {
            check_form(&[line], false);
            check_form(&["\"a\"", line], false);
        }
        check_form(&[], true);
        check_form(&["\"a\"", "\"b\""], true);
        check_form(&["*", "\"b\""], false);
        check_form(&["*", "*"], false);
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
        check(&[(IF_NONE_MATCH, "\"x,\", \"abc\"")], true, true, NotModified);
        check(&[(IF_NONE_MATCH, "\",abc,\"")], true, true, Proceed);
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
