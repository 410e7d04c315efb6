//! Conditional requests (RFC 9110, section 13).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::header::{
    HeaderMap, HeaderName, HeaderValue, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
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

/// What must hold of the stored object for a request to be carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    if_match: Option<Etags>,
    if_none_match: Option<Etags>,
    if_modified_since: Option<SystemTime>,
    if_unmodified_since: Option<SystemTime>,
    /// As it was sent: what is neither an etag nor a date never holds, and is not an error.
    if_range: Option<String>,
}

/// The versions that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Etags {
    /// `*`
    Any,
    Listed(Vec<Tag>),
}

/// An entity tag of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tag {
    weak: bool,
    /// What is between the quotes.
    opaque: String,
}

/// Appends the entity tags of one header line; `None` if it is not a list of them (RFC 9110, section 8.8.3: what is
/// between the quotes is any text but quotes and control characters, commas included).
fn add_tags(line: &str, tags: &mut Vec<Tag>) -> Option<()> {
    let blank = |c: char| c == ' ' || c == '\t';
    let before = tags.len();
    let mut rest = line.trim_matches(blank);
    loop {
        // Empty elements of a list are passed over.
        while let Some(after) = rest.strip_prefix(',') {
            rest = after.trim_start_matches(blank);
        }
        if rest.is_empty() {
            return (tags.len() > before).then_some(());
        }
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let (opaque, after) = quoted.strip_prefix('"')?.split_once('"')?;
        if opaque.chars().any(|c| c <= ' ' || c == '\u{7f}') {
            return None;
        }
        tags.push(Tag { weak, opaque: opaque.to_owned() });
        rest = after.trim_start_matches(blank);
        if !rest.is_empty() && !rest.starts_with(',') {
            return None;
        }
    }
}

impl Etags {
    /// Reads all lines of a header; `None` if there are none.
    fn parse(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Etags>, String> {
        let mut lines = headers.get_all(name).iter();
        let Some(first) = lines.next() else { return Ok(None) };
        if first.as_bytes().trim_ascii() == b"*" && lines.next().is_none() {
            return Ok(Some(Etags::Any));
        }
        let mut tags = Vec::new();
        for value in headers.get_all(name) {
            let text = String::from_utf8_lossy(value.as_bytes());
            if add_tags(&text, &mut tags).is_none() {
                let shown: String = text.chars().take(100).collect();
                return Err(format!(
                    "{name}: {shown:?} is neither * nor a list of etags in double quotes, such as \
                     \"abc\", \"def\""
                ));
            }
        }
        Ok(Some(Etags::Listed(tags)))
    }

    /// Whether an object is one of these versions. With `weak`, a weak etag matches the strong one.
    fn hold(&self, object: Option<&Metadata>, weak: bool) -> bool {
        match (self, object) {
            (_, None) => false,
            (Etags::Any, Some(_)) => true,
            (Etags::Listed(tags), Some(object)) => {
                tags.iter().any(|tag| tag.opaque == *object.etag && (weak || !tag.weak))
            }
        }
    }

    fn value(&self) -> Option<HeaderValue> {
        let Etags::Listed(tags) = self else { return Some(HeaderValue::from_static("*")) };
        let mut text = String::new();
        for tag in tags {
            for part in [
                if text.is_empty() { "" } else { ", " },
                if tag.weak { "W/" } else { "" },
                "\"",
                &tag.opaque,
                "\"",
            ] {
                text.push_str(part);
            }
        }
        HeaderValue::from_bytes(text.as_bytes()).ok()
    }
}

impl Conditions {
    /// Reads the conditions of a request's headers.
    ///
    /// # Errors
    ///
    /// What is wrong with `If-Match` or `If-None-Match`. A condition that is not understood must not be passed over: a
    /// write would go ahead without it. (Dates that are not dates are passed over, as the RFC has it.)
    pub fn parse(headers: &HeaderMap) -> Result<Conditions, String> {
        let if_range = headers.get(IF_RANGE);
        Ok(Conditions {
            if_match: Etags::parse(headers, &IF_MATCH)?,
            if_none_match: Etags::parse(headers, &IF_NONE_MATCH)?,
            if_modified_since: date(headers, &IF_MODIFIED_SINCE),
            if_unmodified_since: date(headers, &IF_UNMODIFIED_SINCE),
            if_range: if_range.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
        })
    }

    /// The object has this version.
    pub fn is_version(etag: &str) -> Conditions {
        let tag = Tag { weak: false, opaque: etag.to_owned() };
        Conditions { if_match: Some(Etags::Listed(vec![tag])), ..Conditions::default() }
    }

    /// There is an object.
    pub fn exists() -> Conditions {
        Conditions { if_match: Some(Etags::Any), ..Conditions::default() }
    }

    /// There is no object.
    pub fn is_absent() -> Conditions {
        Conditions { if_none_match: Some(Etags::Any), ..Conditions::default() }
    }

    /// Whether there are conditions on a write.
    pub fn bind_writes(&self) -> bool {
        self.if_match.is_some()
            || self.if_none_match.is_some()
            || self.if_unmodified_since.is_some()
    }

    /// Whether a version must be there.
    pub fn has_if_match(&self) -> bool {
        self.if_match.is_some()
    }

    /// Whether the range counts only for one version.
    pub fn has_if_range(&self) -> bool {
        self.if_range.is_some()
    }

    /// Whether there is no condition, so that a reply depends on nothing but whether the object exists.
    pub fn is_empty(&self) -> bool {
        *self == Conditions::default()
    }

    /// Judges the conditions in the order that the RFC gives. `read` for GET and HEAD.
    pub fn judge(&self, object: Option<&Metadata>, read: bool) -> Verdict {
        if let Some(etags) = &self.if_match {
            if !etags.hold(object, false) {
                return Verdict::Failed;
            }
        } else if let Some(date) = self.if_unmodified_since
            && object.is_some_and(|object| modified(object) > date)
        {
            return Verdict::Failed;
        }
        if let Some(etags) = &self.if_none_match {
            if etags.hold(object, true) {
                return if read { Verdict::NotModified } else { Verdict::Failed };
            }
        } else if read
            && let Some(date) = self.if_modified_since
            && object.is_some_and(|object| modified(object) <= date)
        {
            return Verdict::NotModified;
        }
        Verdict::Proceed
    }

    /// Whether `If-Range` allows the range to be applied.
    pub fn range_holds(&self, object: &Metadata) -> bool {
        let Some(value) = &self.if_range else { return true };
        if value.starts_with('"') || value.starts_with("W/") {
            return value.trim() == format!("\"{}\"", object.etag);
        }
        httpdate::parse_http_date(value).is_ok_and(|date| modified(object) == date)
    }

    /// Writes the conditions as the headers that [`Conditions::parse`] reads.
    pub fn write(&self, headers: &mut Vec<(HeaderName, HeaderValue)>) {
        let mut add = |name: HeaderName, value: Option<HeaderValue>| {
            headers.extend(value.map(|value| (name, value)));
        };
        let dated = |date: SystemTime| HeaderValue::try_from(httpdate::fmt_http_date(date)).ok();
        let range = self.if_range.as_ref();
        add(IF_MATCH, self.if_match.as_ref().and_then(Etags::value));
        add(IF_NONE_MATCH, self.if_none_match.as_ref().and_then(Etags::value));
        add(IF_MODIFIED_SINCE, self.if_modified_since.and_then(dated));
        add(IF_UNMODIFIED_SINCE, self.if_unmodified_since.and_then(dated));
        add(IF_RANGE, range.and_then(|text| HeaderValue::from_bytes(text.as_bytes()).ok()));
    }
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
        let conditions = Conditions::parse(&map).unwrap();
        let verdict = conditions.judge(there.then_some(&object), read);
        assert_eq!(verdict, expected, "{headers:?} there {there} read {read}");
        let mut written = Vec::new();
        conditions.write(&mut written);
        let again = Conditions::parse(&written.into_iter().collect());
        assert_eq!(again.unwrap(), conditions, "{headers:?}");
    }

    fn check_form(lines: &[&str], expected: bool) {
        for name in [IF_MATCH, IF_NONE_MATCH] {
            let mut map = HeaderMap::new();
            for line in lines {
                map.append(&name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
            }
            assert_eq!(Conditions::parse(&map).is_ok(), expected, "{name}: {lines:?}");
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
