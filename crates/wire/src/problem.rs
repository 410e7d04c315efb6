//! Replies that are errors or small texts: status, words that say what to do, and the headers that belong to them.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Method, Request, Response, StatusCode};
use serde::Serialize;

use super::body::ReplyBody;
use super::headers;
use super::lane::RequestRecord;

/// An answer that is an error: status, and words that say what to do.
pub struct Problem {
    status: StatusCode,
    what: String,
    headers: Vec<(HeaderName, HeaderValue)>,
    seen: Option<Box<RequestRecord>>,
    body: bool,
}

#[derive(Serialize)]
struct ProblemText<'a> {
    error: &'a str,
}

impl Problem {
    /// A status and its reason.
    pub fn new(status: StatusCode, what: &str) -> Problem {
        Problem { status, what: what.to_owned(), headers: Vec::new(), seen: None, body: true }
    }

    /// Whether it says that the request is wrong, or costs too much, wherever it is sent.
    pub fn is_bad_request(&self) -> bool {
        matches!(self.status, StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE)
    }

    /// Its reason.
    pub fn text(&self) -> &str {
        &self.what
    }

    /// Its status.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The reply to a path that nothing is served at.
    pub fn nothing_here() -> Problem {
        Problem::new(
            StatusCode::NOT_FOUND,
            "there is nothing here; the page at / shows how the server does, objects are at /objects/KEY, \
             their list at /objects, and beside them are /datasets (if datasets.path is set), /model, \
             /actions, /healthz, /readyz, /metrics, /admin/status, /admin/members and /admin/tiers",
        )
    }

    /// Its headers.
    pub fn headers(&self) -> &[(HeaderName, HeaderValue)] {
        &self.headers
    }

    /// Status and body alone.
    pub fn plain(&self) -> (StatusCode, Bytes) {
        let text = serde_json::to_vec(&ProblemText { error: &self.what }).unwrap_or_default();
        (self.status, Bytes::from(text))
    }

    /// Adds a header.
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Problem {
        self.headers.push((name, value));
        self
    }

    /// Says what it is about.
    pub fn about(mut self, part: &str) -> Problem {
        self.what = format!("{part}: {}", self.what);
        self
    }

    /// Ties it to the request's record.
    pub fn with_record(mut self, seen: RequestRecord) -> Problem {
        let outcome = HeaderValue::from_static(seen.outcome.as_str());
        self.headers.push((headers::OUTCOME.clone(), outcome));
        let stages = seen.stages.unwrap_or_default();
        let length = HeaderValue::from(stages.length_left);
        self.headers.push((headers::QUEUE_LENGTH.clone(), length));
        let replier = seen.replier.as_ref();
        self.headers.extend(replier.map(|by| (headers::NODE.clone(), by.name.clone())));
        if seen.internal {
            let length = HeaderValue::from(stages.node_length);
            self.headers.push((headers::NODE_LENGTH.clone(), length));
        }
        self.body = !seen.is_head();
        self.seen = Some(Box::new(seen));
        self
    }

    /// The reply.
    pub fn response(self) -> Response<ReplyBody> {
        let text = if self.body { self.plain().1 } else { Bytes::new() };
        let mut response = Response::new(ReplyBody::bytes(text, self.seen.map(|seen| *seen)));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.headers.into_iter().map(|(name, value)| (Some(name), value)));
        response
    }
}

/// A status and its reason in JSON: how HTTP's clients are told of an error.
pub fn in_json(status: StatusCode, what: &str) -> Response<Bytes> {
    let (status, body) = Problem::new(status, what).plain();
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    reply
}

/// A reply, or the error that is replied in its place.
pub type HttpResult = Result<Response<ReplyBody>, Problem>;

/// A reply of JSON.
pub fn json<T: Serialize>(
    status: StatusCode,
    value: &T,
    seen: Option<RequestRecord>,
) -> Response<ReplyBody> {
    let text = serde_json::to_vec(value).unwrap_or_default();
    typed(status, "application/json", text, seen)
}

/// A reply of some text.
pub fn typed(
    status: StatusCode,
    content_type: &'static str,
    text: Vec<u8>,
    seen: Option<RequestRecord>,
) -> Response<ReplyBody> {
    let mut response = Response::new(ReplyBody::bytes(Bytes::from(text), seen));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Refuses all but reads.
pub fn only_get<B>(request: &Request<B>) -> Result<(), Problem> {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this takes GET and HEAD only")
        .with(ALLOW, HeaderValue::from_static("GET, HEAD")))
}
