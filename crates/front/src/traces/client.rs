//! The HTTP client of an exporter: one connection to one collector, kept between exports.
//!
//! Another client than that of the crate `peer`, which refuses replies without a length; nothing here is on the way of a request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use configuration::{Collector, Traces as Settings};
use http::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::Error;

/// Maximum bytes of a collector's reply that are read: the count and the reason of spans that it refused.
const REPLY_BYTES_MAX: usize = 64 << 10;
/// Bytes of a collector's own words in a message.
const REASON_BYTES_MAX: usize = 200;

/// What a collector did with an export.
#[derive(Debug, PartialEq)]
pub enum Reply {
    /// It took the spans, but for some.
    Taken {
        /// Spans that it refused.
        rejected: u64,
        /// Why it refused them, if it did.
        reason: String,
    },
    /// It will not take them.
    Refused(String),
    /// It may take them later.
    Busy {
        /// What it said.
        reason: String,
        /// When, if it said so.
        after: Option<Duration>,
    },
}

/// A connection to a collector.
pub struct CollectorClient {
    collector: Collector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    token: Option<(HeaderName, HeaderValue)>,
    kept: Option<SendRequest<Full<Bytes>>>,
}

impl CollectorClient {
    /// A client of a collector; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// If TLS or the token cannot be used.
    pub fn new(collector: Collector, settings: &Settings) -> Result<CollectorClient, Error> {
        let wrong = |what: &str| Error::Collector {
            address: collector.authority.clone(),
            source: what.to_owned().into(),
        };
        let tls = collector.is_encrypted.then(|| connector(&collector, settings)).transpose()?;
        let token = settings.token.as_ref().map(|token| {
            let name = HeaderName::from_bytes(settings.token_header.as_bytes());
            let name =
                name.map_err(|_| wrong("traces.token_header is not the name of a header"))?;
            let value = HeaderValue::from_str(token.expose());
            let mut value = value.map_err(|_| wrong("traces.token cannot be in a header"))?;
            value.set_sensitive(true);
            Ok::<_, Error>((name, value))
        });
        Ok(CollectorClient { token: token.transpose()?, collector, tls, kept: None })
    }

    /// Where the collector is, for messages.
    pub fn address(&self) -> &str {
        &self.collector.authority
    }

    /// Sends an export and waits for the reply. The caller bounds the wait; a future that is dropped closes the connection.
    ///
    /// # Errors
    ///
    /// If there is no reply, with the reason.
    pub async fn post(&mut self, body: Bytes) -> Result<Reply, String> {
        let mut sender = match self.kept.take().filter(|kept| kept.is_ready()) {
            Some(kept) => kept,
            None => self.open().await?,
        };
        let request = self.request(body)?;
        let replied = sender.send_request(request).await.map_err(|error| with_cause(&error))?;
        let reply = read(replied).await?;
        // Read to its end, so that the connection takes another request.
        self.kept = Some(sender);
        Ok(reply)
    }

    fn request(&self, body: Bytes) -> Result<Request<Full<Bytes>>, String> {
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(&self.collector.path)
            .header(HOST, &self.collector.authority)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = &self.token {
            request = request.header(name, value);
        }
        request.body(Full::new(body)).map_err(|error| error.to_string())
    }

    async fn open(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let Collector { host, port, .. } = &self.collector;
        let connected = TcpStream::connect((host.as_str(), *port)).await;
        let stream = connected.map_err(|error| format!("cannot connect: {error}"))?;
        match &self.tls {
            None => begin(stream).await,
            Some((connector, name)) => {
                let shaken = connector.connect(name.clone(), stream).await;
                begin(shaken.map_err(|error| format!("cannot connect by TLS: {error}"))?).await
            }
        }
    }
}

fn connector(
    collector: &Collector,
    settings: &Settings,
) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let wrong = |source: Box<dyn std::error::Error + Send + Sync>| Error::Collector {
        address: collector.authority.clone(),
        source,
    };
    let roots = match &settings.ca {
        Some(path) => record::read_roots(path).map_err(|error| wrong(error.into()))?,
        None => record::system_roots(),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(collector.host.clone()).map_err(|error| wrong(error.into()))?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

async fn begin<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let opened = handshake(TokioIo::new(stream)).await;
    let (sender, connection) = opened.map_err(|error| with_cause(&error))?;
    // Its errors are those of the request under way. It ends when the sender is dropped.
    tokio::spawn(connection);
    Ok(sender)
}

fn with_cause(error: &hyper::Error) -> String {
    ground::with_causes(error)
}

/// What a collector says of the spans that it did not take. A number of 64 bits may be a text.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PartialSuccess {
    rejected_spans: serde_json::Value,
    error_message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExportReply {
    partial_success: PartialSuccess,
}

async fn read(reply: Response<Incoming>) -> Result<Reply, String> {
    let (head, body) = reply.into_parts();
    let body = Limited::new(body, REPLY_BYTES_MAX).collect().await;
    let text = body.map_err(|error| format!("its reply breaks off: {error}"))?.to_bytes();
    let after = head.headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
    Ok(judge(head.status, after, &text))
}

/// What a reply means. Statuses after which an export is repeated: OTLP specification, "Retryable Response Codes".
fn judge(status: StatusCode, after_s: Option<u32>, text: &[u8]) -> Reply {
    if status.is_success() {
        let reply: ExportReply = serde_json::from_slice(text).unwrap_or_default();
        let PartialSuccess { rejected_spans, error_message } = reply.partial_success;
        let rejected = match &rejected_spans {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        return Reply::Taken { rejected: rejected.unwrap_or(0), reason: shortened(&error_message) };
    }
    let said = String::from_utf8_lossy(text);
    let said = shortened(said.trim());
    let reason = if said.is_empty() { status.to_string() } else { format!("{status}: {said}") };
    match status.as_u16() {
        429 | 502..=504 => {
            Reply::Busy { reason, after: after_s.map(|s| Duration::from_secs(u64::from(s))) }
        }
        _ => Reply::Refused(reason),
    }
}

/// A collector's words on one line of a bounded length.
fn shortened(text: &str) -> String {
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.char_indices().nth(REASON_BYTES_MAX) {
        Some((at, _)) => format!("{}…", &plain[..at]),
        None => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_replies_mean() {
        let taken = |rejected, reason: &str| Reply::Taken { rejected, reason: reason.to_owned() };
        let judged = |status: u16, text: &str| {
            judge(StatusCode::from_u16(status).unwrap(), Some(3), text.as_bytes())
        };
        assert_eq!(judged(200, "{}"), taken(0, ""));
        assert_eq!(judged(200, ""), taken(0, ""));
        assert_eq!(judged(200, "\u{0}\u{1}protobuf"), taken(0, ""));
        let partial = |count: &str| {
            format!("{{\"partialSuccess\":{{\"rejectedSpans\":{count},\"errorMessage\":\"old\"}}}}")
        };
        assert_eq!(judged(200, &partial("7")), taken(7, "old"));
        assert_eq!(judged(202, &partial("\"7\"")), taken(7, "old"));
        let after = Some(Duration::from_secs(3));
        for status in [429, 502, 503, 504] {
            assert!(matches!(judged(status, "x"), Reply::Busy { after: it, .. } if it == after));
        }
        let refused = Reply::Refused("401 Unauthorized: no key".to_owned());
        assert_eq!(judged(401, "no\nkey\n"), refused);
        assert_eq!(judged(400, ""), Reply::Refused("400 Bad Request".to_owned()));
        assert_eq!(judged(307, ""), Reply::Refused("307 Temporary Redirect".to_owned()));
        let Reply::Refused(long) = judged(400, &"ä".repeat(9999)) else { panic!() };
        assert_eq!(long.chars().count(), "400 Bad Request: ".len() + REASON_BYTES_MAX + 1);
    }
}
