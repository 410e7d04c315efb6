//! The requests of a load, ready to be written: [`HttpRequest`]s whose templates are parsed and whose
//! headers are merged with those of all requests.

use ground::window::Operation;

use super::header::Header;
use super::requests::HttpRequest;
use super::template::{Escape, Template};

/// All requests of a load, with their weights.
#[derive(Clone, Default)]
pub(super) struct Forms {
    forms: Vec<Form>,
    /// For each, the sum of the weights up to it and with it.
    weights: Vec<f64>,
}

/// One request, ready to be written.
#[derive(Clone)]
pub(super) struct Form {
    /// What messages call it.
    name: String,
    /// What tables call it.
    label: String,
    method: String,
    pub operation: Operation,
    /// Path and query; those of the target if `None`.
    pub path: Option<Template>,
    /// The header lines, each with its end, without a length.
    headers: Template,
    body: Option<Body>,
    /// Whether a length is sent even if there is no body: methods of which a body is expected.
    has_length: bool,
}

/// The body of a request.
#[derive(Clone)]
struct Body {
    text: Template,
    escape: Escape,
}

impl Forms {
    /// Prepares requests. `host` and `common` are the headers of all; a request's own header replaces
    /// the common ones of its name.
    pub fn new(requests: &[HttpRequest], host: &str, common: &[Header]) -> Forms {
        let mut forms = Forms::default();
        let mut weight = 0.0;
        for (at, request) in requests.iter().enumerate() {
            weight += request.weight;
            forms.weights.push(weight);
            let mut form = Form::new(request, host, common);
            if form.name.is_empty() {
                form.name = format!("request {}", at + 1);
            }
            forms.forms.push(form);
        }
        forms
    }

    /// Whether requests are reads and writes of keys.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    pub fn len(&self) -> usize {
        self.forms.len()
    }

    /// The request with this number.
    pub fn get(&self, number: u32) -> Option<&Form> {
        self.forms.get(number as usize)
    }

    /// The number of a request drawn by weight; `draw` is uniform on 0 to 1.
    pub fn choose(&self, draw: f64) -> u32 {
        let whole = self.weights.last().copied().unwrap_or(0.0);
        let at = self.weights.partition_point(|&sum| sum <= draw * whole);
        at.min(self.forms.len().saturating_sub(1)) as u32
    }
}

impl Form {
    fn new(request: &HttpRequest, host: &str, common: &[Header]) -> Form {
        let own = |name: &str| request.headers.iter().any(|header| header.name == name);
        let rest = common.iter().filter(|header| !own(&header.name));
        let headers: Vec<&Header> = request.headers.iter().chain(rest).collect();
        let given = |name: &str| headers.iter().find(|header| header.name == name);
        let host = given("host").map_or(host, |header| &header.value);
        let mut lines = format!("host: {host}\r\n");
        let media_type = match (given("content-type"), &request.body) {
            (Some(header), _) => header.value.as_str(),
            (None, Some(body)) => media_type_of(&body.text),
            (None, None) => "",
        };
        if given("content-type").is_none() && !media_type.is_empty() {
            lines += &format!("content-type: {media_type}\r\n");
        }
        for header in headers.iter().filter(|header| header.name != "host") {
            lines += &format!("{}: {}\r\n", header.name, header.value);
        }
        let body = request
            .body
            .as_ref()
            .map(|body| Body { text: Template::parse(&body.text), escape: escape_of(media_type) });
        Form {
            name: request.name.clone().unwrap_or_default(),
            label: request.name.clone().unwrap_or_else(|| {
                // Without the query, which may hold secrets.
                let path = request.path.as_deref().unwrap_or_default();
                format!("{} {}", request.method, path.split('?').next().unwrap_or_default())
            }),
            method: request.method.clone(),
            operation: operation_of(&request.method),
            path: request.path.as_ref().map(|path| Template::parse(path.as_bytes())),
            headers: Template::parse(lines.as_bytes()),
            has_length: body.is_some()
                || matches!(request.method.as_str(), "POST" | "PUT" | "PATCH"),
            body,
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn label(&self) -> &str {
        &self.label
    }

    pub fn method(&self) -> &str {
        &self.method
    }

    /// Appends what follows the request line: the headers, the empty line, and the body.
    pub fn write_rest(&self, out: &mut Vec<u8>, key: &[u8]) {
        let mut escaped = Vec::new();
        if self.headers.has_key() {
            Escape::Header.push(&mut escaped, key);
        }
        self.headers.write(out, &escaped);
        if self.has_length {
            escaped.clear();
            if let Some(body) = self.body.as_ref().filter(|body| body.text.has_key()) {
                body.escape.push(&mut escaped, key);
            }
            let length = self.body.as_ref().map_or(0, |body| body.text.length(escaped.len()));
            out.extend_from_slice(format!("content-length: {length}\r\n").as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        if let Some(body) = &self.body {
            body.text.write(out, &escaped);
        }
    }
}

/// What a request does, as an import of its line of an access log would say.
fn operation_of(method: &str) -> Operation {
    match method {
        "GET" => Operation::Get,
        "PUT" | "POST" | "PATCH" => Operation::Put,
        "DELETE" => Operation::Delete,
        _ => Operation::Head,
    }
}

/// The media type of a body that has none: JSON if it looks like it, else bytes.
fn media_type_of(body: &[u8]) -> &'static str {
    match body.trim_ascii_start().first() {
        Some(b'{' | b'[') => "application/json",
        _ => "application/octet-stream",
    }
}

/// How keys are written into a body of a media type.
fn escape_of(media_type: &str) -> Escape {
    let media_type = media_type.to_ascii_lowercase();
    if media_type.contains("json") {
        Escape::Json
    } else if media_type.contains("x-www-form-urlencoded") {
        Escape::Form
    } else {
        Escape::Plain
    }
}

#[cfg(test)]
mod tests {
    use super::super::requests::RequestBody;
    use super::*;

    fn body(text: &str) -> Option<RequestBody> {
        Some(RequestBody { text: text.as_bytes().to_vec(), file: None, is_public: true })
    }

    fn text_of(request: &HttpRequest, common: &[(&str, &str)], key: &str) -> String {
        let common: Vec<Header> =
            common.iter().map(|(name, value)| Header::new(name, value, true).unwrap()).collect();
        let mut out = Vec::new();
        let forms = Forms::new(std::slice::from_ref(request), "h:1", &common);
        forms.get(0).unwrap().write_rest(&mut out, key.as_bytes());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn headers_and_bodies_are_as_described() {
        let search = HttpRequest::new("post", body(r#"{"q": "{key}"}"#));
        assert_eq!(
            text_of(&search, &[("authorization", "Bearer t"), ("x-key", "<{key}>")], "a\"é"),
            "host: h:1\r\ncontent-type: application/json\r\nauthorization: Bearer t\r\n\
             x-key: <a\"%C3%A9>\r\ncontent-length: 14\r\n\r\n{\"q\": \"a\\\"é\"}"
        );
        let own = |name: &str, value: &str| Header::new(name, value, false).unwrap();
        let form = HttpRequest {
            headers: vec![
                own("Content-Type", "application/x-www-form-urlencoded"),
                own("host", "other"),
                own("x-tenant", "own"),
            ],
            ..HttpRequest::new("PUT", body("k={key}"))
        };
        assert_eq!(
            text_of(&form, &[("x-tenant", "of all"), ("cookie", "a=b")], "a b"),
            "host: other\r\ncontent-type: application/x-www-form-urlencoded\r\nx-tenant: own\r\n\
             cookie: a=b\r\ncontent-length: 7\r\n\r\nk=a%20b"
        );
        let get = HttpRequest::new("GET", None);
        assert_eq!(text_of(&get, &[], "k"), "host: h:1\r\n\r\n");
        let empty = HttpRequest::new("POST", None);
        assert_eq!(text_of(&empty, &[], "k"), "host: h:1\r\ncontent-length: 0\r\n\r\n");
    }

    #[test]
    fn requests_are_drawn_by_weight() {
        let weighted = |weight| HttpRequest { weight, ..HttpRequest::new("GET", None) };
        let forms = Forms::new(&[0.0, 1.0, 0.0, 3.0, 0.0].map(weighted), "h", &[]);
        let mut counts = [0; 5];
        for draw in 0..1000 {
            counts[forms.choose(f64::from(draw) / 1000.0) as usize] += 1;
        }
        assert_eq!(counts, [0, 250, 0, 750, 0]);
    }
}
