//! Divides a line into values: words, columns of CSV, keys of JSON and of `logfmt`. Knows nothing of what they mean.

use std::borrow::Cow;

use super::excerpt::excerpt;

/// A line that cannot be used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fault {
    /// What is wrong, the same words for all such lines: they are counted by it.
    pub kind: &'static str,
    /// What is wrong with this one.
    pub detail: String,
}

impl Fault {
    pub fn new(kind: &'static str, detail: impl Into<String>) -> Fault {
        Fault { kind, detail: detail.into() }
    }
}

/// How a word was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quote {
    Plain,
    Quoted,
    Bracketed,
}

/// A word of a line, without its quotes or brackets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word<'a> {
    pub text: Cow<'a, str>,
    pub quote: Quote,
}

impl Word<'_> {
    /// Whether it is a number without a sign, or `-`, which stands for none.
    pub fn is_number(&self) -> bool {
        self.text == "-" || self.text.parse::<f64>().is_ok_and(|x| x.is_finite() && x >= 0.0)
    }
}

/// The words of a line: separated by blanks, `"quoted"` or `[bracketed]` as access logs write them. A list (`0.1, 0.2` or
/// `0.1 : 0.2`, of several attempts) is one word.
pub(super) fn words(line: &str) -> Vec<Word<'_>> {
    let mut all: Vec<Word<'_>> = Vec::new();
    let mut rest = line.trim_start();
    // Whether the next word belongs to the last, of a list.
    let mut is_continued = false;
    while let Some(first) = rest.chars().next() {
        let (text, quote, after) = match first {
            '"' => {
                let (text, after) = quoted(&rest[1..]);
                (text, Quote::Quoted, after)
            }
            // Addresses of IPv6 have brackets too, and go on behind them.
            '[' if rest[1..].contains(']') => {
                let (text, after) = rest[1..].split_once(']').unwrap_or((&rest[1..], ""));
                if after.is_empty() || after.starts_with([' ', '\t']) {
                    (text, Quote::Bracketed, after)
                } else {
                    let (text, after) = plain(rest);
                    (text, Quote::Plain, after)
                }
            }
            _ => {
                let (text, after) = plain(rest);
                (text, Quote::Plain, after)
            }
        };
        let is_colon = quote == Quote::Plain && text == ":";
        let ends_list = quote == Quote::Plain && text.len() > 1 && text.ends_with(',');
        match all.last_mut() {
            Some(last) if (is_continued || is_colon) && quote == Quote::Plain => {
                let joined = format!("{} {text}", last.text);
                last.text = Cow::Owned(joined);
            }
            _ => all.push(Word { text: Cow::Borrowed(text), quote }),
        }
        is_continued = is_colon || ends_list;
        rest = after.trim_start_matches([' ', '\t']);
    }
    all
}

fn plain(rest: &str) -> (&str, &str) {
    rest.split_at(rest.find([' ', '\t']).unwrap_or(rest.len()))
}

/// The text up to the next quote that is not escaped, and what follows it.
fn quoted(rest: &str) -> (&str, &str) {
    let mut is_escaped = false;
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            b'\\' => is_escaped = !is_escaped,
            b'"' if !is_escaped => return (&rest[..at], &rest[at + 1..]),
            _ => is_escaped = false,
        }
    }
    (rest, "")
}

/// The columns of a line of CSV, or its words if the delimiter is a blank, of which there may be several to align columns.
pub(super) fn columns(line: &str, delimiter: u8) -> Vec<String> {
    if delimiter == b' ' {
        return words(line).into_iter().map(|word| word.text.into_owned()).collect();
    }
    let mut reader = csv_core::ReaderBuilder::new().delimiter(delimiter).build();
    // A field is never longer than the line, nor are there more than its bytes and one.
    let (mut out, mut ends) = (vec![0u8; line.len() + 1], vec![0usize; line.len() + 2]);
    let (mut written, mut fields) = (0, 0);
    let mut input = line.as_bytes();
    loop {
        let (result, read, wrote, ended) =
            reader.read_record(input, &mut out[written..], &mut ends[fields..]);
        (written, fields) = (written + wrote, fields + ended);
        input = input.get(read..).unwrap_or_default();
        match result {
            // An empty input tells the reader that the line ends.
            csv_core::ReadRecordResult::InputEmpty => {}
            _ => break,
        }
    }
    let mut start = 0;
    let mut all = Vec::with_capacity(fields);
    for &end in ends.iter().take(fields) {
        let bytes = out.get(start..end).unwrap_or_default();
        all.push(String::from_utf8_lossy(bytes).into_owned());
        start = end;
    }
    all
}

/// A JSON object on a line. nginx escapes bytes as `\x22` unless its format has `escape=json`, which is no JSON.
pub(super) fn object(line: &str) -> Result<serde_json::Map<String, serde_json::Value>, Fault> {
    let parsed = match serde_json::from_str(line) {
        Err(_) if line.contains("\\x") => serde_json::from_str(&line.replace("\\x", "\\u00")),
        parsed => parsed,
    };
    parsed.map_err(|e| Fault::new("not a JSON object", format!("not a JSON object: {e}")))
}

/// The value of a dotted path in a JSON object: a key that has the dots itself, or one object within another.
pub(super) fn member(
    object: &serde_json::Map<String, serde_json::Value>,
    path: &str,
) -> Option<String> {
    if let Some(value) = object.get(path) {
        return plain_text(value);
    }
    for (at, _) in path.match_indices('.') {
        let (first, rest) = path.split_at(at);
        let rest = rest.trim_start_matches('.');
        let found = match object.get(first) {
            Some(serde_json::Value::Object(inner)) => member(inner, rest),
            Some(serde_json::Value::Array(list)) => attribute(list, rest),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// The dotted paths of the values in a JSON object, in their order, each behind `before`.
pub(super) fn names(
    object: &serde_json::Map<String, serde_json::Value>,
    before: &str,
    all: &mut Vec<String>,
) {
    for (key, value) in object {
        match value {
            serde_json::Value::Object(inner) => names(inner, &format!("{before}{key}."), all),
            _ => all.push(format!("{before}{key}")),
        }
    }
}

/// The value of a key in a list as OpenTelemetry writes attributes: `[{"key": "url.path", "value": {"stringValue": "/a"}}]`.
fn attribute(list: &[serde_json::Value], key: &str) -> Option<String> {
    let is_it = |one: &&serde_json::Value| one.get("key").and_then(|k| k.as_str()) == Some(key);
    plain_text(list.iter().find(is_it)?.get("value")?.as_object()?.values().next()?)
}

/// Formats a JSON value as a text log would; `None` of `null`.
fn plain_text(value: &serde_json::Value) -> Option<String> {
    Some(match value {
        serde_json::Value::Null => return None,
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Number(number) => {
            let text = number.to_string();
            match number.as_f64() {
                Some(x) if text.contains(['e', 'E']) => {
                    format!("{x:.9}").trim_end_matches('0').trim_end_matches('.').to_owned()
                }
                _ => text,
            }
        }
        other => other.to_string(),
    })
}

/// The pairs of a `logfmt` line (`key=value key="quoted value"`), which attributes of an XML element are as well.
pub(super) fn pairs(line: &str) -> Vec<(&str, &str)> {
    let mut all = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', '\t']).unwrap_or(rest.len());
        let (key, after) = rest.split_at(end);
        let Some(after) = after.strip_prefix('=') else {
            rest = after.trim_start();
            continue;
        };
        let (value, after) = match after.strip_prefix('"') {
            Some(inner) => quoted(inner),
            None => plain(after),
        };
        all.push((key, value));
        rest = after.trim_start();
    }
    all
}

/// The fault of a line that is too short.
pub(super) fn too_short(line: &str) -> Fault {
    Fault::new("a line is too short", format!("it ends too early: `{}`", excerpt(line)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn texts(line: &str) -> Vec<String> {
        words(line).into_iter().map(|word| word.text.into_owned()).collect()
    }

    #[test]
    fn words_are_divided_as_logs_write_them() {
        let line =
            r#"2001:db8::1 - - [22/Nov/2026:04:15:00 +0000] "GET /a b \"x\" HTTP/1.1" 200 - "-""#;
        let all = words(line);
        assert_eq!(all.len(), 8);
        assert_eq!(all[3].quote, Quote::Bracketed);
        assert_eq!(all[4].text, r#"GET /a b \"x\" HTTP/1.1"#);
        assert!(all[5].is_number() && all[6].is_number() && !all[4].is_number());
        assert_eq!(texts("a 0.096, 0.092, 0.496 b"), ["a", "0.096, 0.092, 0.496", "b"]);
        assert_eq!(texts("0.518 : 0.009 x"), ["0.518 : 0.009", "x"]);
        assert_eq!(texts("[::1]:80 [] \"open"), ["[::1]:80", "", "open"]);
        assert_eq!(texts("  a\t b "), ["a", "b"]);
    }

    #[test]
    fn columns_and_pairs_are_unquoted() {
        assert_eq!(columns("a,\"b, \"\"c\"\"\",,d", b','), ["a", "b, \"c\"", "", "d"]);
        assert_eq!(columns("a;b", b';'), ["a", "b"]);
        assert_eq!(columns("", b','), [""; 0]);
        let line = r#"<sample t="12" lb="a b" x=3 flag s=""/>"#;
        assert_eq!(pairs(line), [("t", "12"), ("lb", "a b"), ("x", "3"), ("s", "")]);
    }

    #[test]
    fn json_is_read_with_escapes_of_nginx() {
        let line = r#"{"a":{"b.c":1.5e-5,"d":null},"u":"say \x22hi\x22"}"#;
        let found = object(line).unwrap();
        assert_eq!(member(&found, "u").unwrap(), "say \"hi\"");
        assert_eq!(member(&found, "a.b.c").unwrap(), "0.000015");
        assert_eq!((member(&found, "a.d"), member(&found, "x.y")), (None, None));
        assert!(object("[1]").is_err() && object("{").is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_text_is_divided(line in ".{0,80}", delimiter in prop::sample::select(b",;\t".to_vec())) {
            prop_assert!(words(&line).len() <= line.len());
            prop_assert!(columns(&line, delimiter).len() <= line.len() + 1);
            prop_assert!(pairs(&line).len() <= line.len());
            let _ = object(&line);
        }
    }
}
