//! An HTTP client for the API of a node or gateway: sends requests over
//! [`peer::Pool`](peer::Pool), one at a time, and turns error replies into errors with the
//! server's message.
//!
//! Waiting is bounded: a request fails if no byte is sent or received for [`WAIT_MAX`]. Only plain
//! HTTP is supported, as between the processes of a cluster; there are no redirects and no proxies.
//! A request that must not be sent twice (an append) is sent as a stream, which the pool never
//! repeats.

use std::borrow::Cow;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, IF_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use origin::{Chunks, SingleChunk};
use peer::{Fault, Limits, Outgoing, Pool, Reply};

/// How long a server may be inactive: sealing a log of 32 MiB takes a few seconds.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// Timeout for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The longest error message that is read.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
/// The longest reply that is read into memory: a page of records, or a piece of the text.
const REPLY_BYTES_MAX: usize = 1 << 30;

/// The characters that are percent-encoded in a URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Percent-encodes text as one segment of a path or as a value of a query.
pub(crate) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// A server to which requests are sent.
pub(crate) struct Server {
    url: String,
    pool: Pool,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Parses `http://HOST[:PORT]` and resolves the host.
    ///
    /// # Errors
    ///
    /// If the address is invalid or unknown, or the token is not a valid header value.
    pub(crate) fn new(url: &str, token: Option<&str>) -> anyhow::Result<Server> {
        let address = resolve(url)?;
        let mut common = Vec::new();
        if let Some(token) = token.map(str::trim).filter(|token| !token.is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            common.push((AUTHORIZATION, value.context("the token is not a valid header value")?));
        }
        let limits = Limits { connect: CONNECT_MAX, ..Limits::default() };
        let pool = Pool::new(address, &common, limits);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Server { url: url.trim_end_matches('/').to_owned(), pool, runtime })
    }

    /// The address, as given.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request. An error reply becomes an error with the server's message. `moved` counts
    /// the uploaded bytes, so that a progressing upload does not time out.
    fn send(
        &self,
        method: &Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Outgoing<'_>,
        moved: &dyn Fn() -> u64,
    ) -> Result<Reply, Refused> {
        self.runtime.block_on(async {
            let sending = self.pool.send(method, path, headers, body);
            let reply = self.within(sending, moved).await.map_err(Refused::Other)?;
            if reply.status.is_success() {
                return Ok(reply);
            }
            let status = reply.status;
            let message = self.within(reply.body.gather(MESSAGE_BYTES_MAX), &|| 0).await;
            let message = message_of(&message.unwrap_or_default());
            Err(Refused::Status(status, format!("{} replied {status}: {message}", self.url)))
        })
    }

    async fn within<T>(
        &self,
        what: impl Future<Output = Result<T, Fault>>,
        moved: &dyn Fn() -> u64,
    ) -> anyhow::Result<T> {
        let mut what = pin!(what);
        let mut before = moved();
        loop {
            match tokio::time::timeout(WAIT_MAX, &mut what).await {
                Ok(result) => return result.map_err(|fault| self.failed(&fault)),
                Err(_) if moved() != before => before = moved(),
                Err(_) => bail!("{} was inactive for {} s", self.url, WAIT_MAX.as_secs()),
            }
        }
    }

    /// Formats a fault as text. As a cause, its I/O error might be mistaken for one of standard
    // output.
    fn failed(&self, fault: &Fault) -> anyhow::Error {
        match fault {
            Fault::Connect(error) => anyhow::anyhow!(
                "cannot connect to {}: {error}; is `concertina serve` running there, and does it listen there \
                 (serve.listen)?",
                self.url
            ),
            Fault::Broken(error) => anyhow::anyhow!(
                "the connection to {} broke: {error}; a change may or may not have been made, so check the result",
                self.url
            ),
            fault => anyhow::anyhow!("{}: {fault}", self.url),
        }
    }

    /// Requests a path and returns the body of the reply.
    ///
    /// # Errors
    ///
    /// If there is no reply, or an error reply.
    pub(crate) fn bytes(&self, path: &str) -> Result<Bytes, Refused> {
        Ok(self.headers_and_bytes(path)?.1)
    }

    /// Requests a path and returns the headers and the body of the reply.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(crate) fn headers_and_bytes(&self, path: &str) -> Result<(HeaderMap, Bytes), Refused> {
        let mut reply = self.send(&Method::GET, path, &[], Outgoing::Empty, &|| 0)?;
        let headers = std::mem::take(&mut reply.headers);
        Ok((headers, self.gather(reply).map_err(Refused::Other)?))
    }

    fn gather(&self, mut reply: Reply) -> anyhow::Result<Bytes> {
        self.runtime.block_on(async {
            let mut all = Vec::new();
            // A long reply may take its time, as long as bytes come.
            while let Some(piece) =
                self.within(async { reply.body.next().await.transpose() }, &|| 0).await?
            {
                ensure!(
                    all.len() + piece.len() <= REPLY_BYTES_MAX,
                    "{}: a reply of more than {REPLY_BYTES_MAX} bytes",
                    self.url
                );
                all.extend_from_slice(&piece);
            }
            Ok(Bytes::from(all))
        })
    }

    /// Sends a request and parses the JSON reply. A body is sent at most once.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes); or if the reply is not the expected JSON.
    pub(crate) fn json<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> anyhow::Result<T> {
        let mut whole = body.map(|body| SingleChunk::new(Bytes::from(body)));
        let body = match &mut whole {
            Some(whole) => Outgoing::Stream(whole),
            None => Outgoing::Empty,
        };
        let reply = self.send(method, path, &[], body, &|| 0)?;
        let text = self.gather(reply)?;
        serde_json::from_slice(&text).with_context(|| {
            format!("cannot parse the reply of {}; is it the same version?", self.url)
        })
    }

    /// Passes an object on, in pieces. Returns `false` if the object does not exist or has another
    /// etag: a node may serve an older version for up to its `node.revalidate_s`.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes), and the errors of `take`.
    pub(crate) fn read_object(
        &self,
        found: &Listed,
        take: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<bool> {
        let headers = [(IF_MATCH, found.if_match()?)];
        let path = object(&found.key);
        let reply = match self.send(&Method::GET, &path, &headers, Outgoing::Empty, &|| 0) {
            Ok(reply) => reply,
            Err(Refused::Status(StatusCode::NOT_FOUND | StatusCode::PRECONDITION_FAILED, _)) => {
                return Ok(false);
            }
            Err(refused) => return Err(refused.into()),
        };
        let mut body = reply.body;
        self.runtime.block_on(async {
            while body.bytes_left() > 0 {
                let next = async { body.next().await.transpose() };
                let piece = self.within(next, &|| 0).await?;
                take(&piece.context("the reply ended early")?)?;
            }
            Ok(true)
        })
    }

    /// Writes an object, conditionally if `header` is a condition. Returns `false` if the condition
    /// does not hold.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(crate) fn put_object(
        &self,
        key: &str,
        header: Option<(HeaderName, HeaderValue)>,
        chunks: &mut dyn Chunks,
        moved: &dyn Fn() -> u64,
    ) -> anyhow::Result<bool> {
        let headers: Vec<_> = header.into_iter().collect();
        let body = Outgoing::Stream(chunks);
        match self.send(&Method::PUT, &object(key), &headers, body, moved) {
            Ok(reply) => self.gather(reply).map(|_| true),
            Err(Refused::Status(StatusCode::PRECONDITION_FAILED, _)) => Ok(false),
            Err(refused) => Err(refused.into()),
        }
    }

    /// Deletes an object if it exists.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(crate) fn delete_object(&self, key: &str) -> anyhow::Result<()> {
        let reply = self.send(&Method::DELETE, &object(key), &[], Outgoing::Empty, &|| 0)?;
        self.gather(reply).map(drop)
    }

    /// Lists the objects of the origin whose keys begin with `prefix`. Keys that are not UTF-8 are
    /// skipped.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(crate) fn objects(&self, prefix: &str) -> anyhow::Result<Vec<Listed>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/objects?prefix={}{after}", encoded(prefix));
            let page: Listing = self.json(&Method::GET, &path, None)?;
            for mut found in page.objects {
                let key = percent_encoding::percent_decode_str(&found.key).decode_utf8();
                if let Ok(key) = key.map(Cow::into_owned) {
                    found.key = key;
                    all.push(found);
                }
            }
            match page.next {
                // The continuation token is already encoded.
                Some(next) => {
                    let before = std::mem::replace(&mut after, format!("&after={next}"));
                    ensure!(after != before, "{} lists the same objects again and again", self.url);
                }
                None => return Ok(all),
            }
        }
    }
}

#[derive(serde::Deserialize)]
struct Listing {
    objects: Vec<Listed>,
    next: Option<String>,
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
pub(crate) struct Listed {
    pub(crate) key: String,
    pub(crate) size: u64,
    pub(crate) etag: String,
}

impl Listed {
    /// The condition that a request applies to this version only.
    pub(crate) fn if_match(&self) -> anyhow::Result<HeaderValue> {
        let value = HeaderValue::from_str(&format!("\"{}\"", self.etag));
        value.with_context(|| format!("invalid etag of {}", self.key))
    }
}

/// Why there is no successful reply.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// The server sent an error, with this message.
    #[error("{1}")]
    Status(StatusCode, String),
    /// There is no reply.
    #[error("{0:#}")]
    Other(anyhow::Error),
}

impl Refused {
    /// Whether the same request may succeed later.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Refused::Status(status, _) => status.is_server_error(),
            Refused::Other(_) => true,
        }
    }
}

/// The path of an object; the segments of its key are encoded separately.
fn object(key: &str) -> String {
    let parts: Vec<String> = key.split('/').map(encoded).collect();
    format!("/objects/{}", parts.join("/"))
}

/// The message of an error reply: from its JSON, or its text.
fn message_of(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match json.as_ref().and_then(|json| json.get("error")?.as_str()) {
        Some(message) => message.to_owned(),
        None => String::from_utf8_lossy(body).trim().chars().take(1000).collect(),
    }
}

/// Resolves the address of a server; of several addresses, the first that accepts a connection.
fn resolve(url: &str) -> anyhow::Result<SocketAddr> {
    let wrong = |problem: &str| {
        format!("invalid server address `{url}`: {problem}; write http://HOST:PORT")
    };
    let uri: http::Uri = url.parse().with_context(|| wrong("it is not a URL"))?;
    ensure!(uri.scheme_str() == Some("http"), "{}", wrong("it does not begin with http://"));
    let host = uri.authority().map_or("", |authority| authority.as_str());
    ensure!(matches!(uri.path(), "" | "/") && uri.query().is_none(), "{}", wrong("it has a path"));
    ensure!(!host.is_empty() && !host.contains('@'), "{}", wrong("invalid host name"));
    let found = match uri.port() {
        Some(_) => host.to_socket_addrs(),
        None => format!("{host}:80").to_socket_addrs(),
    };
    let found: Vec<SocketAddr> =
        found.with_context(|| format!("invalid server address `{url}`: unknown host"))?.collect();
    if let [_, _, ..] = found[..] {
        let answers = |a: &&SocketAddr| TcpStream::connect_timeout(a, CONNECT_MAX).is_ok();
        if let Some(address) = found.iter().find(answers) {
            return Ok(*address);
        }
    }
    found
        .first()
        .copied()
        .with_context(|| format!("invalid server address `{url}`: the host has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_cannot_be_used_are_named() {
        let urls =
            ["", "ftp://h", "https://h:1", "http://", "http://a b", "http://h/p", "http://u@h:1"];
        for url in urls {
            let error = format!("{:#}", resolve(url).unwrap_err());
            assert!(error.contains(&format!("`{url}`")), "{error}");
        }
        for url in ["http://127.0.0.1:7070", "http://127.0.0.1:7070/"] {
            assert_eq!(resolve(url).unwrap(), "127.0.0.1:7070".parse().unwrap());
        }
        assert_eq!(resolve("http://[::1]").unwrap(), "[::1]:80".parse().unwrap());
        assert!(Server::new("http://127.0.0.1:1", Some("a\nb")).is_err());
    }

    #[test]
    fn keys_are_encoded_and_refusals_are_read() {
        assert_eq!(object("datasets/a b/%é.log"), "/objects/datasets/a%20b/%25%C3%A9.log");
        assert_eq!(message_of(br#"{"error":"no such thing"}"#), "no such thing");
        assert_eq!(message_of(b"bad gateway\n"), "bad gateway");
        assert_eq!(message_of(br#"{"error":1}"#), r#"{"error":1}"#);
    }

    #[test]
    fn an_unreachable_server_is_reported_with_advice() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let server = Server::new(&format!("http://{address}"), None).unwrap();
        let error = server.objects("x").unwrap_err().to_string();
        assert!(error.contains("cannot connect") && error.contains("concertina serve"), "{error}");
    }
}
