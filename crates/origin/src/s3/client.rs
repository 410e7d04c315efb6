//! Requests of the S3 protocol: signed, sent with a timeout for each reply, and tried again after a transient failure, at most
//! three times and not after the timeout; the last attempt may take as long again.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use chrono::DateTime;
use http::header::{CONTENT_LENGTH, DATE, HOST, HeaderMap, HeaderName, HeaderValue};
use http::response::Parts;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::IgnoredAny;
use tracing::debug;

use super::body::RequestBody;
use super::connections::{Connections, ReplyBody};
use super::endpoint::Endpoint;
use super::failure::{Failure, FailureKind};
use super::pieces::Payload;
use super::reply::Expected;
use super::signer::{RequestLine, Sha256, Signer};
use super::stored::text;

/// The most retries of a request.
const RETRIES_MAX: usize = 3;
/// The pause before the first retry.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// The longest pause before a retry.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The longest page of a listing: a thousand names of 1024 bytes in XML.
const LIST_BYTES_MAX: usize = 16 << 20;
/// How long a store may take to say that a change was made, as long as bytes come.
const WORDS_MAX: Duration = Duration::from_secs(900);
/// The largest reply that is neither an object nor a listing, bytes.
const WORDS_BYTES_MAX: usize = 1 << 20;
/// How far a request's time may be from the store's, seconds, at AWS and most others.
const SKEW_MAX_S: u64 = 900;
/// Codes of errors that a store may report with a success, and that pass.
const PASSING_ERRORS: [&str; 2] = ["InternalError", "SlowDown"];

/// Sends requests to one bucket.
pub struct Client {
    endpoint: Endpoint,
    signer: Signer,
    connections: Arc<Connections>,
    timeout: Duration,
}

/// A request, which can be sent repeatedly.
pub struct Request {
    pub method: Method,
    /// The path with the parameters; see [`Endpoint::target`].
    pub target: String,
    pub headers: HeaderMap,
    pub payload: Payload,
    /// That of the payload.
    pub sha256: Sha256,
    pub expected: Expected,
    /// Whether it may be sent again though it may have been carried out.
    pub is_idempotent: bool,
    /// Whether a conflict passes: a store may report one of a condition while another write is under way.
    pub repeats_conflicts: bool,
}

/// A success.
pub struct Reply {
    pub parts: Parts,
    /// What is not an object.
    pub text: Bytes,
    /// An object, of which nothing has been read yet.
    pub body: Option<ReplyBody>,
}

/// The attempts of an operation: how many there were, and when the next one may be.
pub struct Attempts {
    retries: usize,
    next_pause: Duration,
    start: Instant,
}

impl Attempts {
    /// None yet.
    pub fn new() -> Attempts {
        Attempts { retries: 0, next_pause: PAUSE_MIN, start: Instant::now() }
    }

    /// The pause before the next attempt; `None` if there is none.
    pub fn pause(&mut self, timeout: Duration) -> Option<Duration> {
        if self.retries >= RETRIES_MAX || self.start.elapsed() > timeout {
            return None;
        }
        self.retries += 1;
        // Clients that failed together do not come back together.
        let drawn = rand::random_range(PAUSE_MIN..self.next_pause * 2);
        Some(std::mem::replace(&mut self.next_pause, drawn.min(PAUSE_MAX)))
    }
}

impl Request {
    /// Whether the same request may succeed later, and does no harm if it was carried out.
    fn may_repeat(&self, failure: &Failure) -> bool {
        match failure {
            Failure::Status { status, .. } => {
                status.is_server_error()
                    || matches!(
                        *status,
                        StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT
                    )
                    || (self.repeats_conflicts && *status == StatusCode::CONFLICT)
            }
            Failure::ErrorText(text) => PASSING_ERRORS.iter().any(|code| text.contains(code)),
            Failure::Transport { kind, .. } => match kind {
                FailureKind::Connect | FailureKind::Closed => true,
                FailureKind::Timeout | FailureKind::Interrupted => self.is_idempotent,
                FailureKind::Malformed | FailureKind::Unreadable | FailureKind::Unknown => false,
            },
        }
    }
}

impl Client {
    /// A client of a bucket. `timeout` applies to each reply and to each piece of its body.
    pub fn new(
        endpoint: Endpoint,
        signer: Signer,
        connections: Connections,
        timeout: Duration,
    ) -> Client {
        Client { endpoint, signer, connections: Arc::new(connections), timeout }
    }

    /// The longest time for a reply, and for each piece of its body.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether what is sent is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.connections.is_encrypted()
    }

    /// The target of a request; see [`Endpoint::target`].
    pub fn target(&self, name: &str, parameters: &[(&str, &str)]) -> String {
        self.endpoint.target(name, parameters)
    }

    /// Sends a request, and again as long as that may help.
    ///
    /// # Errors
    ///
    /// The last failure.
    pub async fn send(&self, request: &Request, attempts: &mut Attempts) -> Result<Reply, Failure> {
        loop {
            let failure = match self.attempt(request).await {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let pause = match request.may_repeat(&failure) {
                true => attempts.pause(self.timeout),
                false => None,
            };
            let Some(pause) = pause else { return Err(failure) };
            debug!("{} {}: {failure:?}, again in {pause:?}", request.method, request.target);
            tokio::time::sleep(pause).await;
        }
    }

    async fn attempt(&self, request: &Request) -> Result<Reply, Failure> {
        let signed = self.signed(request, RequestBody::from(request.payload.clone()))?;
        let sent = tokio::time::timeout(self.timeout, self.connections.send(signed)).await;
        let (parts, body) = sent.unwrap_or_else(|_| Err(Failure::late(self.timeout)))?.into_parts();
        self.receive(parts, body, request.expected).await
    }

    /// Sends a PUT once whose body still arrives. The timeout begins when `complete` ends, which is when the body is complete: its
    /// sender may be slow, and the store decides how long it waits.
    ///
    /// # Errors
    ///
    /// Why there is no success. Only [`FailureKind::Timeout`] says that the request may be carried out still.
    pub async fn send_growing(
        &self,
        request: &Request,
        body: RequestBody,
        complete: impl Future<Output = ()>,
    ) -> Result<Reply, Failure> {
        let signed = self.signed(request, body)?;
        let exchange = async {
            let (parts, body) = self.connections.send(signed).await?.into_parts();
            self.receive(parts, body, request.expected).await
        };
        let too_late = async {
            complete.await;
            tokio::time::sleep(self.timeout).await;
        };
        tokio::select! {
            reply = exchange => reply.map_err(|failure| match failure {
                Failure::Transport { text, .. } => Failure::new(FailureKind::Unknown, text),
                failure => failure,
            }),
            () = too_late => Err(Failure::late(self.timeout)),
        }
    }

    fn signed(
        &self,
        request: &Request,
        body: RequestBody,
    ) -> Result<http::Request<RequestBody>, Failure> {
        let odd = |error: http::Error| Failure::of_cause(FailureKind::Unknown, &error);
        let mut headers = request.headers.clone();
        headers.insert(HOST, self.endpoint.authority.clone());
        if request.method == Method::PUT || request.method == Method::POST {
            let length = hyper::body::Body::size_hint(&body).exact().unwrap_or_default();
            headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        let line = RequestLine { method: &request.method, target: &request.target };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = DateTime::from_timestamp_secs(now.as_secs() as i64).unwrap_or_default();
        let signed = self.signer.sign(&line, &mut headers, &request.sha256, now);
        signed.map_err(|error| odd(error.into()))?;
        let signed = http::Request::builder().method(&request.method).uri(&request.target);
        let mut signed = signed.body(body).map_err(odd)?;
        *signed.headers_mut() = headers;
        Ok(signed)
    }

    /// Judges the head of a reply, and reads it to its end unless it is an object.
    async fn receive(
        &self,
        mut parts: Parts,
        body: ReplyBody,
        expected: Expected,
    ) -> Result<Reply, Failure> {
        remove_unreadable(&mut parts.headers);
        expected.check(&parts)?;
        let status = parts.status;
        let (bytes_max, longest) = match expected {
            _ if !status.is_success() => (WORDS_BYTES_MAX, self.timeout),
            Expected::Object { .. } => {
                return Ok(Reply { parts, text: Bytes::new(), body: Some(body) });
            }
            Expected::Listing => (LIST_BYTES_MAX, self.timeout),
            // A store that completes an upload in parts sends blanks until it has, for minutes.
            _ => (WORDS_BYTES_MAX, WORDS_MAX),
        };
        let text = tokio::time::timeout(longest, read_text(body, bytes_max, self.timeout)).await;
        let text = text.unwrap_or_else(|_| Err(Failure::late(longest)))?;
        let words = || String::from_utf8_lossy(&text).into_owned();
        if !status.is_success() {
            // The reply to a HEAD has no text, which would name the reason.
            let is_silent = text.is_empty() && status == StatusCode::FORBIDDEN;
            let skewed = is_silent.then(|| skew_of(&parts.headers, SystemTime::now())).flatten();
            return Err(Failure::Status { status, text: skewed.unwrap_or_else(words) });
        }
        if expected == Expected::Completion
            && quick_xml::de::from_reader::<_, Completion>(&text[..]).is_err()
        {
            return Err(Failure::ErrorText(words()));
        }
        Ok(Reply { parts, text, body: None })
    }
}

/// The error of a request whose time is too far from the store's, in the store's words, if the time of its reply is.
fn skew_of(headers: &HeaderMap, now: SystemTime) -> Option<String> {
    let date = text(headers, DATE)?;
    let theirs = DateTime::parse_from_rfc2822(date).ok()?.timestamp();
    let ours = i64::try_from(now.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()?;
    (theirs.abs_diff(ours) > SKEW_MAX_S).then(|| {
        format!("<Code>RequestTimeTooSkewed</Code><Message>the time there is {date}</Message>")
    })
}

/// What a store says of an upload in parts that is an object now. A failure has the same status.
#[derive(Deserialize)]
struct Completion {
    #[serde(rename = "ETag")]
    _etag: IgnoredAny,
}

/// Gathers a reply that is no object. Each piece of it must come within `patience`.
async fn read_text(
    mut body: ReplyBody,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, Failure> {
    let mut all = Vec::new();
    loop {
        let piece = tokio::time::timeout(patience, body.next()).await;
        let Some(piece) = piece.unwrap_or_else(|_| Err(Failure::late(patience)))? else {
            return Ok(all.into());
        };
        if all.len() + piece.len() > bytes_max {
            return Err(Failure::new(FailureKind::Malformed, "the reply is too long"));
        }
        all.extend_from_slice(&piece);
    }
}

/// Removes headers that are no text in UTF-8: what another tool stored with an object does not keep it from being read.
fn remove_unreadable(headers: &mut HeaderMap) {
    let unreadable: Vec<HeaderName> = headers
        .iter()
        .filter(|(_, value)| std::str::from_utf8(value.as_bytes()).is_err())
        .map(|(name, _)| name.clone())
        .collect();
    for name in unreadable {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_end() {
        let mut attempts = Attempts::new();
        let pauses: Vec<Duration> =
            std::iter::from_fn(|| attempts.pause(Duration::from_secs(60))).collect();
        assert_eq!(pauses.len(), RETRIES_MAX);
        assert_eq!(pauses[0], PAUSE_MIN);
        for pair in pauses.windows(2) {
            assert!((PAUSE_MIN..=PAUSE_MAX.min(pair[0] * 2)).contains(&pair[1]), "{pauses:?}");
        }
        let mut late = Attempts::new();
        late.start -= Duration::from_secs(2);
        assert_eq!(late.pause(Duration::from_secs(1)), None);
    }

    #[test]
    fn clocks_that_differ_are_told_by_the_time_of_a_reply() {
        let told = |date: &'static str, now_unix_s| {
            let headers = HeaderMap::from_iter([(DATE, HeaderValue::from_static(date))]);
            skew_of(&headers, UNIX_EPOCH + Duration::from_secs(now_unix_s))
        };
        let date = "Mon, 24 Nov 2025 08:00:00 GMT";
        let at = 1_763_971_200;
        for near in [at - 900, at, at + 900] {
            assert_eq!(told(date, near), None);
        }
        for far in [at - 3600, at + 901] {
            assert!(told(date, far).is_some_and(|text| text.contains("RequestTimeTooSkewed")));
        }
        assert_eq!(told("yesterday", at), None);
        assert_eq!(skew_of(&HeaderMap::new(), UNIX_EPOCH), None);
    }

    /// What may be carried out twice without harm is what reads, or replaces whatever is there.
    #[test]
    fn a_request_is_repeated_only_if_that_is_safe() {
        let request = |is_idempotent, repeats_conflicts| Request {
            method: Method::PUT,
            target: String::new(),
            headers: HeaderMap::new(),
            payload: Payload::default(),
            sha256: [0; 32],
            expected: Expected::Write,
            is_idempotent,
            repeats_conflicts,
        };
        let status = |status: u16| Failure::Status {
            status: StatusCode::from_u16(status).unwrap(),
            text: String::new(),
        };
        let lost = |kind| Failure::new(kind, "");
        let (careful, safe) = (request(false, true), request(true, false));
        for passing in [status(500), status(503), status(429), status(408)] {
            assert!(careful.may_repeat(&passing) && safe.may_repeat(&passing), "{passing:?}");
        }
        for final_word in [status(400), status(403), status(404), status(412), status(301)] {
            assert!(!careful.may_repeat(&final_word) && !safe.may_repeat(&final_word));
        }
        assert!(careful.may_repeat(&status(409)) && !safe.may_repeat(&status(409)));
        for unsent in [FailureKind::Connect, FailureKind::Closed] {
            assert!(careful.may_repeat(&lost(unsent)) && safe.may_repeat(&lost(unsent)));
        }
        for unknown in [FailureKind::Timeout, FailureKind::Interrupted] {
            assert!(!careful.may_repeat(&lost(unknown)) && safe.may_repeat(&lost(unknown)));
        }
        for odd in [FailureKind::Malformed, FailureKind::Unreadable, FailureKind::Unknown] {
            assert!(!careful.may_repeat(&lost(odd)) && !safe.may_repeat(&lost(odd)));
        }
        assert!(safe.may_repeat(&Failure::ErrorText("<Code>SlowDown</Code>".to_owned())));
        assert!(!safe.may_repeat(&Failure::ErrorText("<Code>AccessDenied</Code>".to_owned())));
    }
}
