//! A client of etcd's: its JSON gateway over HTTP/1.1, with the few calls that a membership needs.
//!
//! What comes back is bounded and not trusted: the sizes are limited, numbers are parsed, and keys and
//! values are bytes to the caller.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::error::Error;
use super::roster::BYTES_MAX;
use configuration as config;
use wire::tls::Dialer;

/// Maximum bytes of a reply, whose values are in base64: room for a list of members and a configuration that are as long
/// as etcd lets a value be, so that they are refused by name.
const REPLY_BYTES_MAX: usize = 12 * BYTES_MAX;

/// Maximum time of one watch.
const WATCH_MAX: Duration = Duration::from_secs(60);

/// Maximum keys of a reply.
const KEYS_MAX: usize = 8192;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// No server answered.
    #[error("{0}")]
    Unreachable(String),
    /// A server answered something else than etcd does.
    #[error("{0} does not answer as etcd does: {1}")]
    Malformed(String, String),
    /// etcd refused.
    #[error("{0} refuses: {1}")]
    Refused(String, String),
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: i64,
    /// The lease that it ends with; 0 for none.
    pub lease: i64,
}

/// A change to a key.
pub enum Put<'a> {
    /// Its value, and the lease that it ends with.
    Value(&'a str, &'a [u8], Option<i64>),
    /// It is removed.
    Delete(&'a str),
}

/// What must hold for a change to be made: a key was not changed meanwhile.
pub struct Unchanged<'a> {
    /// The key.
    pub key: &'a str,
    /// The revision at which it was last changed; 0: it does not exist.
    pub revision: i64,
}

struct Endpoint {
    /// As configured, for messages.
    shown: String,
    host: String,
    port: u16,
    tls: bool,
}

/// A connection to the servers, one at a time.
pub struct Etcd {
    endpoints: Vec<Endpoint>,
    tls: Option<Arc<Dialer>>,
    within: Duration,
    current: usize,
    open: Option<SendRequest<Full<Bytes>>>,
}

fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// etcd writes 64-bit numbers as strings.
fn number(text: &str) -> Result<i64, String> {
    if text.is_empty() { Ok(0) } else { text.parse().map_err(|_| format!("{text:?} is no number")) }
}

#[derive(Deserialize)]
struct Kv {
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    mod_revision: String,
    #[serde(default)]
    lease: String,
}

impl Kv {
    fn pair(self) -> Result<Pair, String> {
        let bytes = |text: &str| BASE64_STANDARD.decode(text).map_err(|error| error.to_string());
        Ok(Pair {
            key: bytes(&self.key)?,
            value: bytes(&self.value)?,
            revision: number(&self.mod_revision)?,
            lease: number(&self.lease)?,
        })
    }
}

#[derive(Deserialize)]
struct Ranged {
    /// Every reply of etcd's has it: another server's `{}` does not say that the members are lost.
    #[serde(rename = "header")]
    _header: serde::de::IgnoredAny,
    #[serde(default)]
    kvs: Vec<Kv>,
    #[serde(default)]
    more: bool,
}

impl Ranged {
    /// The keys; what is wrong if they are malformed or too many.
    fn pairs(self) -> Result<Vec<Pair>, String> {
        if self.more || self.kvs.len() > KEYS_MAX {
            return Err(format!("more than {KEYS_MAX} keys"));
        }
        self.kvs.into_iter().map(Kv::pair).collect()
    }
}

/// The keys of the body of a reply to a range, as the client reads it.
///
/// # Errors
///
/// What is wrong with it.
pub fn pairs(reply: &[u8]) -> Result<Vec<Pair>, String> {
    serde_json::from_slice::<Ranged>(reply).map_err(|error| error.to_string())?.pairs()
}

#[derive(Deserialize)]
struct Done {
    #[serde(default)]
    succeeded: bool,
}

#[derive(Deserialize)]
struct Leased {
    #[serde(rename = "ID", default)]
    id: String,
    #[serde(rename = "TTL", default)]
    ttl: String,
}

impl Leased {
    /// The lease; what is wrong if there is none: a key under lease 0 would stay for good.
    fn lease(&self) -> Result<i64, String> {
        match number(&self.id)? {
            0 => Err("it grants no lease".to_owned()),
            id => Ok(id),
        }
    }
}

#[derive(Deserialize)]
struct Streamed {
    result: Leased,
}

impl Streamed {
    /// Whether the lease still was there; what is wrong if that is not said.
    fn lives(&self) -> Result<bool, String> {
        number(&self.result.ttl).map(|ttl| ttl > 0)
    }
}

/// What the bodies of other replies say, as the client reads them: whether changes were made, the id of a lease, and whether
/// a lease that was renewed still was there.
pub fn parse_change_reply(reply: &[u8]) -> (Option<bool>, Option<i64>, Option<bool>) {
    let done: Option<Done> = serde_json::from_slice(reply).ok();
    let leased: Option<Leased> = serde_json::from_slice(reply).ok();
    let kept: Option<Streamed> = serde_json::from_slice(reply).ok();
    (
        done.map(|it| it.succeeded),
        leased.and_then(|it| it.lease().ok()),
        kept.and_then(|it| it.lives().ok()),
    )
}

/// A connection in the clear or by TLS.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

struct Boxed(Box<dyn Stream>);

impl AsyncRead for Boxed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Boxed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl Endpoint {
    fn parse(text: &str) -> Option<Endpoint> {
        let (scheme, rest) = text.split_once("://")?;
        let (host, port) = rest.trim_end_matches('/').rsplit_once(':')?;
        let host = host.trim_matches(['[', ']']).to_owned();
        let (port, tls) = (port.parse().ok()?, scheme == "https");
        Some(Endpoint { shown: text.to_owned(), host, port, tls })
    }

    async fn connect(&self, tls: Option<&Arc<Dialer>>) -> io::Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match tls.filter(|_| self.tls) {
            None => Box::new(stream),
            Some(dialer) => {
                let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(dialer.current()).connect(name, stream).await?)
            }
        };
        let opened = handshake(TokioIo::new(Boxed(stream))).await.map_err(io::Error::other)?;
        let (sender, connection) = opened;
        tokio::spawn(connection);
        Ok(sender)
    }
}

impl Etcd {
    /// A client of a configuration's servers. Connects at the first call. Each call may take `within` at
    /// each server.
    ///
    /// # Errors
    ///
    /// If a certificate cannot be used.
    pub fn new(of: &config::Membership, within: Duration) -> Result<Etcd, Error> {
        let endpoints: Vec<Endpoint> =
            of.endpoints.iter().filter_map(|it| Endpoint::parse(it)).collect();
        if endpoints.is_empty() {
            return Err(Error::NoServers);
        }
        let tls = of.tls_ca.as_ref().map(|ca| {
            let own = of.tls_certificate.as_deref().zip(of.tls_key.as_deref());
            Dialer::open(ca, own)
        });
        Ok(Etcd { endpoints, tls: tls.transpose()?, within, current: 0, open: None })
    }

    async fn send(
        &mut self,
        path: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>, io::Error> {
        let endpoint = &self.endpoints[self.current];
        if self.open.as_ref().is_none_or(SendRequest::is_closed) {
            self.open = None;
            self.open = Some(endpoint.connect(self.tls.as_ref()).await?);
        }
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::NotConnected.into()) };
        let request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(HOST, format!("{}:{}", endpoint.host, endpoint.port))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        open.ready().await.map_err(io::Error::other)?;
        open.send_request(request).await.map_err(io::Error::other)
    }

    /// Calls the servers in turn, beginning with the one that answered last.
    async fn call<T: for<'a> Deserialize<'a>>(
        &mut self,
        path: &str,
        body: &Value,
    ) -> Result<T, EtcdError> {
        let (body, within) = (Bytes::from(body.to_string()), self.within);
        let mut reasons = Vec::new();
        for _ in 0..self.endpoints.len() {
            let exchange = async {
                let reply = self.send(path, body.clone()).await?;
                let status = reply.status();
                let limited = http_body_util::Limited::new(reply.into_body(), REPLY_BYTES_MAX);
                let bytes = limited.collect().await.map_err(io::Error::other)?.to_bytes();
                Ok::<_, io::Error>((status, bytes))
            };
            let timed = tokio::time::timeout(within, exchange).await;
            let answered = timed.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let shown = self.endpoints[self.current].shown.clone();
            match answered {
                Ok((StatusCode::OK, bytes)) => {
                    let malformed = |error| EtcdError::Malformed(shown, error);
                    return serde_json::from_slice(&bytes).map_err(|e| malformed(e.to_string()));
                }
                Ok((status, bytes)) if status.is_client_error() => {
                    let text: String = String::from_utf8_lossy(&bytes).chars().take(200).collect();
                    return Err(EtcdError::Refused(shown, format!("{status}: {text}")));
                }
                Ok((status, _)) => reasons.push(format!("{shown}: {status}")),
                Err(error) => reasons.push(format!("{shown}: {error}")),
            }
            self.open = None;
            self.current = (self.current + 1) % self.endpoints.len();
        }
        Err(EtcdError::Unreachable(reasons.join("; ")))
    }

    fn malformed(&self, what: String) -> EtcdError {
        EtcdError::Malformed(self.endpoints[self.current].shown.clone(), what)
    }

    /// All keys that begin with `prefix`, as they are when most servers have agreed (linearizable).
    ///
    /// # Errors
    ///
    /// See [`EtcdError`]; also if there are more keys than a membership can have.
    pub async fn all(&mut self, prefix: &str) -> Result<Vec<Pair>, EtcdError> {
        let body = json!({
            "key": base64(prefix.as_bytes()),
            "range_end": base64(&after(prefix)),
            "limit": KEYS_MAX,
        });
        self.range(&body, prefix).await
    }

    /// One key; `None` if there is none.
    ///
    /// # Errors
    ///
    /// See [`EtcdError`].
    pub async fn get(&mut self, key: &str) -> Result<Option<Pair>, EtcdError> {
        let body = json!({ "key": base64(key.as_bytes()) });
        Ok(self.range(&body, key).await?.pop())
    }

    async fn range(&mut self, body: &Value, shown: &str) -> Result<Vec<Pair>, EtcdError> {
        let found: Ranged = self.call("/v3/kv/range", body).await?;
        found.pairs().map_err(|what| self.malformed(format!("{what} (below {shown})")))
    }

    /// Makes changes in one step if all conditions hold; returns whether they did.
    ///
    /// # Errors
    ///
    /// See [`EtcdError`]. The changes may have been made if no server answered.
    pub async fn change(
        &mut self,
        conditions: &[Unchanged<'_>],
        puts: &[Put<'_>],
    ) -> Result<bool, EtcdError> {
        let compare: Vec<Value> = conditions
            .iter()
            .map(|Unchanged { key, revision }| {
                json!({
                    "key": base64(key.as_bytes()), "target": "MOD", "result": "EQUAL",
                    "mod_revision": revision.to_string(),
                })
            })
            .collect();
        let success: Vec<Value> = puts
            .iter()
            .map(|put| match put {
                Put::Value(key, value, lease) => json!({"request_put": {
                    "key": base64(key.as_bytes()), "value": base64(value),
                    "lease": lease.unwrap_or(0).to_string(),
                }}),
                Put::Delete(key) => {
                    json!({"request_delete_range": {"key": base64(key.as_bytes())}})
                }
            })
            .collect();
        let body = json!({"compare": compare, "success": success});
        Ok(self.call::<Done>("/v3/kv/txn", &body).await?.succeeded)
    }

    /// A new lease of at least this many seconds.
    ///
    /// # Errors
    ///
    /// See [`EtcdError`].
    pub async fn grant(&mut self, seconds: i64) -> Result<i64, EtcdError> {
        let leased: Leased =
            self.call("/v3/lease/grant", &json!({"TTL": seconds.to_string()})).await?;
        leased.lease().map_err(|what| self.malformed(what))
    }

    /// Renews a lease; returns whether it still was there.
    ///
    /// # Errors
    ///
    /// See [`EtcdError`].
    pub async fn renew(&mut self, lease: i64) -> Result<bool, EtcdError> {
        let body = json!({"ID": lease.to_string()});
        let kept: Streamed = self.call("/v3/lease/keepalive", &body).await?;
        kept.lives().map_err(|what| self.malformed(what))
    }

    /// Ends a lease, and the keys that end with it.
    ///
    /// # Errors
    ///
    /// See [`EtcdError`].
    pub async fn revoke(&mut self, lease: i64) -> Result<(), EtcdError> {
        let body = json!({"ID": lease.to_string()});
        self.call::<Value>("/v3/lease/revoke", &body).await.map(|_| ())
    }

    /// Calls `rings` for each change of a key that begins with `prefix`, until the connection ends, but for [`WATCH_MAX`] at
    /// most: a machine that is gone ends no connection.
    ///
    /// # Errors
    ///
    /// Why it could not begin.
    pub async fn watch(&mut self, prefix: &str, rings: impl Fn()) -> Result<(), EtcdError> {
        let body = json!({"create_request": {
            "key": base64(prefix.as_bytes()), "range_end": base64(&after(prefix)),
        }});
        let (body, within) = (Bytes::from(body.to_string()), self.within);
        let sent = tokio::time::timeout(within, self.send("/v3/watch", body)).await;
        let shown = self.endpoints[self.current].shown.clone();
        let sent = sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        self.current = (self.current + 1) % self.endpoints.len();
        // The connection is the events' own, and no other request's.
        let open = self.open.take();
        let mut events = match sent {
            Ok(reply) if reply.status() == StatusCode::OK => reply.into_body(),
            Ok(reply) => return Err(EtcdError::Refused(shown, reply.status().to_string())),
            Err(error) => return Err(EtcdError::Unreachable(format!("{shown}: {error}"))),
        };
        // What changed is read anew, so that an event is nothing but a bell.
        let all = async {
            while let Some(Ok(frame)) = events.frame().await {
                if frame.is_data() {
                    rings();
                }
            }
        };
        let _ = tokio::time::timeout(WATCH_MAX, all).await;
        drop(open);
        Ok(())
    }
}

/// The end of the range of all keys that begin with `prefix`.
fn after(prefix: &str) -> Vec<u8> {
    let mut end: VecDeque<u8> = prefix.bytes().collect();
    while let Some(last) = end.pop_back() {
        if last < u8::MAX {
            end.push_back(last + 1);
            break;
        }
    }
    end.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_ranges() {
        let it = Endpoint::parse("https://[::1]:2379/").unwrap();
        assert_eq!((it.host.as_str(), it.port, it.tls), ("::1", 2379, true));
        assert!(Endpoint::parse("127.0.0.1:2379").is_none());
        assert_eq!(after("/a/"), b"/a0");
    }

    #[test]
    fn hostile_replies_are_refused() {
        for text in [
            r#""kvs":[{"key":"!!"}]"#,
            r#""kvs":[{"key":"YQ==","mod_revision":"99999999999999999999"}]"#,
            r#""kvs":[{"key":"YQ==","lease":"x"}]"#,
            r#""kvs":[{"key":7}]"#,
            r#""kvs":[],"more":true"#,
        ] {
            assert!(pairs(format!("{{\"header\":{{}},{text}}}").as_bytes()).is_err(), "{text}");
        }
        let one = pairs(br#"{"header":{},"kvs":[{"key":"YQ=="}]}"#).unwrap();
        assert_eq!(one[0].key, b"a");
        // What is not etcd's does not say that nothing is there, or grants a lease that never ends.
        assert!(pairs(b"{}").is_err());
        assert_eq!(parse_change_reply(b"{}"), (Some(false), None, None));
        assert_eq!(
            parse_change_reply(br#"{"ID":"7","succeeded":true}"#),
            (Some(true), Some(7), None)
        );
        assert_eq!(
            parse_change_reply(br#"{"result":{"TTL":"0"}}"#),
            (Some(false), None, Some(false))
        );
    }
}
