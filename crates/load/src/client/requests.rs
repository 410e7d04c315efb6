//! The requests of a load that are more than reads of a key: methods, paths, headers and bodies, with
//! weights; and the file that lists them.
//!
//! A list is TOML or JSON lines (`docs/load.md`, "A list of requests"). It is bounded: [`REQUESTS_MAX`]
//! requests, bodies of [`BODY_BYTES_MAX`]. Messages about a file do not quote its lines, which may hold
//! secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use super::header::Header;

/// The most requests in a list: all are kept in memory.
pub const REQUESTS_MAX: usize = 100_000;
/// The longest body of a request from a list, bytes.
pub const BODY_BYTES_MAX: u64 = 16 << 20;
/// The longest body that a run folder repeats as text, bytes.
const RECORDED_MAX: usize = 1024;

/// A request as a user describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HttpRequest {
    /// A name for messages about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How often it is sent, relative to the others.
    pub weight: f64,
    /// The method, in upper case.
    pub method: String,
    /// Path and query, where `{key}` is replaced by the key; those of the plan's URL if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its own headers, before those of all requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<Header>,
    /// The body, where `{key}` is replaced by the key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<RequestBody>,
}

/// The body of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestBody {
    /// The bytes.
    pub text: Vec<u8>,
    /// The file that they come from, if it is one of its own.
    pub file: Option<PathBuf>,
    /// Whether the run folder repeats the bytes: those of a command line, which hides nothing.
    pub is_public: bool,
}

impl Serialize for RequestBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(&self.text).ok();
        let text = text.filter(|text| self.is_public && text.len() <= RECORDED_MAX);
        let mut fields = serializer.serialize_struct("RequestBody", 4)?;
        fields.serialize_field("bytes", &self.text.len())?;
        // Tells bodies of equal length apart. Not a cryptographic digest: secrets in it stay secret
        // only as far as 64 bits can be guessed.
        let hash = ground::window::key_hash(&self.text);
        fields.serialize_field("hash", &format!("{hash:016x}"))?;
        if let Some(file) = &self.file {
            fields.serialize_field("file", file)?;
        }
        if let Some(text) = text {
            fields.serialize_field("text", text)?;
        }
        fields.end()
    }
}

impl HttpRequest {
    /// A request with a method, and with a body if given, for the path of the plan's URL.
    pub fn new(method: &str, body: Option<RequestBody>) -> HttpRequest {
        let method = method.to_ascii_uppercase();
        let (name, path, headers) = (None, None, Vec::new());
        HttpRequest { name, weight: 1.0, method, path, headers, body }
    }

    /// What is wrong with the request, if anything.
    pub fn mistake(&self) -> Option<String> {
        let token = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b"-_".contains(&b);
        let method = &self.method;
        if method.is_empty() || method.len() > 32 || !method.bytes().all(token) {
            return Some(format!("invalid method `{}`", method.escape_debug()));
        }
        if matches!(method.as_str(), "CONNECT" | "TRACE") {
            return Some(format!("method {method}: it asks a proxy, not a service"));
        }
        if !self.weight.is_finite() || self.weight < 0.0 || self.weight > 1e9 {
            return Some(format!("weight {}: 0 to 1e9 expected", self.weight));
        }
        if let Some(path) = &self.path
            && !is_path(path)
        {
            return Some(format!(
                "path `{}`: plain ASCII from a `/` on expected, without blanks and #; write others as %XX",
                path.escape_debug()
            ));
        }
        let body = self.body.as_ref().map_or(0, |body| body.text.len() as u64);
        if method == "HEAD" && body > 0 {
            return Some("a HEAD has no body".to_owned());
        }
        (body > BODY_BYTES_MAX)
            .then(|| format!("a body of {body} bytes: at most {BODY_BYTES_MAX} expected"))
    }
}

fn is_path(path: &str) -> bool {
    path.starts_with('/')
        && path.len() <= 16 << 10
        && path.bytes().all(|b| b.is_ascii_graphic())
        && !path.contains('#')
}

/// A request of a file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: Option<String>,
    weight: Option<f64>,
    method: Option<String>,
    path: String,
    #[serde(default)]
    headers: BTreeMap<String, Values>,
    body: Option<serde_json::Value>,
    body_file: Option<PathBuf>,
}

/// One value of a header, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Values {
    One(String),
    Several(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    #[serde(default)]
    request: Vec<Entry>,
}

/// Parses a list of requests: TOML with a `[[request]]` for each, or a JSON object on each line (the
/// first character that is not a blank is then `{`). `read` reads the bodies that files hold.
///
/// # Errors
/// What is wrong, with the line or the number of the request.
pub fn parse_requests(
    text: &str,
    read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> Result<Vec<HttpRequest>, String> {
    let mut requests = Vec::new();
    if text.trim_start().starts_with('{') {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let wrong = |why: String| format!("line {}: {why}", at + 1);
            let entry: Entry = serde_json::from_str(line)
                .map_err(|error| wrong(format!("column {}: {}", error.column(), plain(&error))))?;
            add(&mut requests, entry, read).map_err(wrong)?;
        }
    } else {
        let list: List = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            format!(
                "line {}: {}",
                before.matches('\n').count() + 1,
                without_values(error.message())
            )
        })?;
        for (at, entry) in list.request.into_iter().enumerate() {
            add(&mut requests, entry, read).map_err(|why| format!("request {}: {why}", at + 1))?;
        }
    }
    if requests.is_empty() {
        return Err("it lists no request: write a [[request]] for each, or a JSON object on each \
                    line"
            .to_owned());
    }
    if requests.iter().map(|request| request.weight).sum::<f64>() <= 0.0 {
        return Err("all weights are 0: nothing would be sent".to_owned());
    }
    Ok(requests)
}

/// What serde_json says, without its place, which is that within the line.
fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    without_values(text.rsplit_once(" at line ").map_or(&text, |(what, _)| what))
}

/// A message of a parser without the text that it quotes, as in `invalid type: string "…"`.
fn without_values(message: &str) -> String {
    match (message.find('"'), message.rfind('"')) {
        (Some(from), Some(to)) if from < to => {
            let (before, after) = (message.get(..=from), message.get(to..));
            format!("{}…{}", before.unwrap_or_default(), after.unwrap_or_default())
        }
        _ => message.to_owned(),
    }
}

fn add(
    requests: &mut Vec<HttpRequest>,
    entry: Entry,
    read: &mut dyn FnMut(&Path) -> Result<Vec<u8>, String>,
) -> Result<(), String> {
    if requests.len() >= REQUESTS_MAX {
        return Err(format!("more than {REQUESTS_MAX} requests"));
    }
    let mut headers = Vec::new();
    for (name, values) in &entry.headers {
        let values = match values {
            Values::One(value) => std::slice::from_ref(value),
            Values::Several(values) => values,
        };
        for value in values {
            headers.push(Header::new(name.trim(), value.trim(), true)?);
        }
    }
    // The order of a map's keys is its parser's.
    headers.sort_by(|a, b| a.name.cmp(&b.name));
    let body_of = |text, file| Some(RequestBody { text, file, is_public: false });
    let body = match (entry.body, entry.body_file) {
        (Some(_), Some(_)) => return Err("give `body` or `body_file`, not both".to_owned()),
        (Some(serde_json::Value::String(text)), None) => body_of(text.into_bytes(), None),
        // Anything else is the JSON that it is.
        (Some(value), None) => body_of(value.to_string().into_bytes(), None),
        (None, Some(file)) => body_of(read(&file)?, Some(file)),
        (None, None) => None,
    };
    let default = if body.is_some() { "POST" } else { "GET" };
    let request = HttpRequest {
        name: entry.name,
        weight: entry.weight.unwrap_or(1.0),
        path: Some(entry.path),
        headers,
        ..HttpRequest::new(entry.method.as_deref().unwrap_or(default), body)
    };
    match request.mistake() {
        Some(mistake) => Err(mistake),
        None => {
            requests.push(request);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<Vec<HttpRequest>, String> {
        parse_requests(text, &mut |path| Ok(format!("of {}", path.display()).into_bytes()))
    }

    const TOML: &str = r#"
[[request]]
name = "search"
weight = 3
path = "/search?from={key}"
body = '{"q": "{key}"}'
[request.headers]
Content-Type = "application/json"
x-trace = ["a", "b"]

[[request]]
method = "put"
path = "/images/{key}"
body_file = "image.png"

[[request]]
path = "/"
"#;

    #[test]
    fn both_forms_of_a_list_are_the_same() {
        let lines = r#"{"name": "search", "weight": 3, "path": "/search?from={key}", "body": "{\"q\": \"{key}\"}", "headers": {"content-type": "application/json", "X-Trace": ["a", "b"]}}

{"method": "PUT", "path": "/images/{key}", "body_file": "image.png"}
{"path": "/"}
"#;
        let requests = parse(TOML).unwrap();
        assert_eq!(requests, parse(lines).unwrap());
        let [search, image, root] = &requests[..] else { panic!("three") };
        assert_eq!((search.method.as_str(), search.weight), ("POST", 3.0));
        assert_eq!(search.headers.len(), 3);
        let body = image.body.as_ref().unwrap();
        assert_eq!((image.method.as_str(), &body.text[..]), ("PUT", &b"of image.png"[..]));
        assert_eq!((root.method.as_str(), root.weight, &root.body), ("GET", 1.0, &None));
        // JSON in the place of text is sent as JSON.
        let json = parse(r#"{"path": "/", "body": {"q": ["{key}", 1]}}"#).unwrap();
        assert_eq!(json[0].body.as_ref().unwrap().text, br#"{"q":["{key}",1]}"#);
    }

    #[test]
    fn mistakes_have_a_place_and_no_secret() {
        for (text, words) in [
            ("", "lists no request"),
            ("x", "line 1: "),
            ("[[request]]\nweight = 1\n", "line 1: missing field `path`"),
            ("[[request]]\npath = \"/\"\nheaderz = \"hush\"\n", "line 3: unknown field `headerz`"),
            ("[[request]]\npath = \"x\"\n", "request 1: path `x`"),
            ("[[request]]\npath = \"/\"\nmethod = \"G T\"\n", "invalid method `G T`"),
            ("[[request]]\npath = \"/\"\nmethod = \"CONNECT\"\n", "method CONNECT"),
            ("[[request]]\npath = \"/\"\nweight = -1\n", "weight -1"),
            ("[[request]]\npath = \"/\"\nweight = 0\n", "all weights are 0"),
            ("[[request]]\npath = \"/\"\nbody = \"\"\nbody_file = \"x\"\n", "not both"),
            (
                "[[request]]\npath = \"/\"\nheaders = { \"a b\" = \"hush\" }\n",
                "invalid header name",
            ),
            ("[[request]]\npath = \"/\"\nheaders = \"hush\"\n", "line 3: invalid type"),
            ("{\"path\": \"/\", \"headers\": \"hush\"}", "line 1: column"),
            ("{\"path\": \"/\"}\n{\"path\": \"/\", \"to\": \"hush\"}\n", "line 2: column"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words) && !error.contains("hush"), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_recorded_has_no_value_of_a_header() {
        let mut requests = parse(TOML).unwrap();
        requests[0].headers.push(Header::new("x-key", "hush", true).unwrap());
        let text = toml::to_string(&toml::Table::from_iter([(
            "requests".to_owned(),
            toml::Value::try_from(&requests).unwrap(),
        )]));
        let text = text.unwrap();
        assert!(!text.contains("hush") && text.contains("x-key: (not recorded)"), "{text}");
        assert!(text.contains("file = \"image.png\"") && !text.contains("of image.png"), "{text}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_list_or_an_error(
            cut in 0..TOML.len(), junk in "\\PC{0,20}", json in any::<bool>(),
        ) {
            let text = if json {
                format!("{{\"path\": \"/\", {junk}}}")
            } else {
                format!("{}{junk}{}", TOML.get(..cut).unwrap_or(""), TOML.get(cut..).unwrap_or(""))
            };
            for request in parse(&text).unwrap_or_default() {
                prop_assert_eq!(request.mistake(), None);
            }
        }
    }
}
