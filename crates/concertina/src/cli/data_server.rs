//! A server, as `concertina data --server` asks it: requests over [`peer::Pool`](serve::peer::Pool), one at a
//! time, and errors in the server's own words.
//!
//! Waiting is bounded: a server that neither answers nor takes or sends a byte for [`WAIT_MAX`] is
//! given up. Plain HTTP only, as between the processes of a cluster; no redirects, no proxies. What may not be
//! sent twice (an append) goes as a stream, which the pool never repeats.

use std::borrow::Cow;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http::header::{AUTHORIZATION, IF_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;

use origin::{Chunks, Whole};
use serve::peer::{Fault, Limits, Outgoing, Pool, Reply};

/// How long a server may do nothing: sealing a log of 32 MiB takes a few seconds of it.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long connecting may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The longest text of a refusal that is read.
const WORDS_BYTES_MAX: usize = 64 << 10;
/// The longest answer that is read whole: a page of records, or a piece of the text.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// What is not written as it is in an address.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Some text as it stands in an address, as one part of a path or as a value of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

/// Which server is asked, if one is.
#[derive(clap::Args, Debug)]
pub(super) struct ServerArgs {
    /// Ask this node or gateway instead of opening files: http://HOST:PORT
    #[arg(long, value_name = "URL", help_heading = "Server")]
    server: Option<String>,
    /// Its `serve.token`; on the command line other users of this machine can see it
    #[arg(long, requires = "server", conflicts_with = "token_file", help_heading = "Server")]
    token: Option<String>,
    /// A file that holds the token
    #[arg(long, value_name = "FILE", requires = "server", help_heading = "Server")]
    token_file: Option<PathBuf>,
}

impl ServerArgs {
    /// The server, if one is named.
    ///
    /// # Errors
    ///
    /// If its address is none, or its token cannot be read.
    pub(super) fn find(&self) -> anyhow::Result<Option<Server>> {
        let Some(url) = &self.server else { return Ok(None) };
        let read = |path: &PathBuf| {
            let text = std::fs::read_to_string(path);
            text.with_context(|| format!("cannot read the token in {}", path.display()))
        };
        let from_file = self.token_file.as_ref().map(read).transpose()?;
        Server::new(url, self.token.as_deref().or(from_file.as_deref())).map(Some)
    }

    /// The server of a command that needs one.
    ///
    /// # Errors
    ///
    /// As [`find`](ServerArgs::find); or if none is named.
    pub(super) fn require(&self) -> anyhow::Result<Server> {
        let found = self.find()?;
        found.context("this is of a server: name it (--server http://HOST:PORT)")
    }
}

/// A server that is asked.
pub(super) struct Server {
    url: String,
    pool: Pool,
    runtime: tokio::runtime::Runtime,
}

impl Server {
    /// Understands `http://HOST[:PORT]` and finds the host's address.
    ///
    /// # Errors
    ///
    /// If it is not such an address, or not one that is known; if the token cannot be in a header.
    pub(super) fn new(url: &str, token: Option<&str>) -> anyhow::Result<Server> {
        let address = resolve(url)?;
        let mut common = Vec::new();
        if let Some(token) = token.map(str::trim).filter(|token| !token.is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            common.push((AUTHORIZATION, value.context("the token holds what no header can")?));
        }
        let limits = Limits { connect: CONNECT_MAX, ..Limits::default() };
        let pool = Pool::new(address, &common, limits);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Server { url: url.trim_end_matches('/').to_owned(), pool, runtime })
    }

    /// As it was named.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request; an answer that is no success is an error of the server's words. `moved` counts the
    /// bytes of an upload that were taken, so that one that goes on is not given up.
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
            let words = self.within(reply.body.gather(WORDS_BYTES_MAX), &|| 0).await;
            let words = said(&words.unwrap_or_default());
            Err(Refused::Status(status, format!("{} answers {status}: {words}", self.url)))
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
                Err(_) => bail!("{} did nothing for {} s", self.url, WAIT_MAX.as_secs()),
            }
        }
    }

    /// A fault in words: as a cause it might be taken for one of standard output.
    fn failed(&self, fault: &Fault) -> anyhow::Error {
        match fault {
            Fault::Connect(error) => anyhow::anyhow!(
                "cannot reach {}: {error}; does `concertina serve` run there, and listen there \
                 (serve.listen)?",
                self.url
            ),
            Fault::Broken(error) => anyhow::anyhow!(
                "the connection to {} broke: {error}; if something was to be changed, look whether it was",
                self.url
            ),
            fault => anyhow::anyhow!("{}: {fault}", self.url),
        }
    }

    /// The body of an answer.
    ///
    /// # Errors
    ///
    /// Without an answer, or with one that is no success.
    pub(super) fn bytes(&self, path: &str) -> Result<Bytes, Refused> {
        Ok(self.headers_and_bytes(path)?.1)
    }

    /// The headers of an answer, and its body.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(super) fn headers_and_bytes(&self, path: &str) -> Result<(HeaderMap, Bytes), Refused> {
        let mut reply = self.send(&Method::GET, path, &[], Outgoing::Empty, &|| 0)?;
        let headers = std::mem::take(&mut reply.headers);
        Ok((headers, self.gather(reply).map_err(Refused::Other)?))
    }

    fn gather(&self, reply: Reply) -> anyhow::Result<Bytes> {
        self.runtime.block_on(self.within(reply.body.gather(ANSWER_BYTES_MAX), &|| 0))
    }

    /// An answer of JSON. A body is sent once at most.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes); or if it is not the JSON that is expected.
    pub(super) fn json<T: DeserializeOwned>(
        &self,
        method: &Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> anyhow::Result<T> {
        let mut whole = body.map(|body| Whole::new(Bytes::from(body)));
        let body = match &mut whole {
            Some(whole) => Outgoing::Stream(whole),
            None => Outgoing::Empty,
        };
        let reply = self.send(method, path, &[], body, &|| 0)?;
        let text = self.gather(reply)?;
        serde_json::from_slice(&text).with_context(|| {
            format!("what {} answers is not understood; is it of another version?", self.url)
        })
    }

    /// Hands an object on in pieces. `false` if there is none, or if it is not the one that has this etag: a
    /// node may serve what it read before for as long as its `node.revalidate_s`.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes); and those of `take`.
    pub(super) fn read_object(
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

    /// Writes an object, under a condition if `header` is one. Gives `false` if the condition does not
    /// hold.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(super) fn put_object(
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

    /// Deletes an object, if there is one.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(super) fn delete_object(&self, key: &str) -> anyhow::Result<()> {
        let reply = self.send(&Method::DELETE, &object(key), &[], Outgoing::Empty, &|| 0)?;
        self.gather(reply).map(drop)
    }

    /// The objects whose keys begin with `prefix`, as they are in the origin. Keys that are no UTF-8 are
    /// passed over.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Server::bytes).
    pub(super) fn objects(&self, prefix: &str) -> anyhow::Result<Vec<Listed>> {
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
                // It is encoded already.
                Some(next) => after = format!("&after={next}"),
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
pub(super) struct Listed {
    pub(super) key: String,
    pub(super) size: u64,
    pub(super) etag: String,
}

impl Listed {
    /// What a request is told that concerns this version of it alone.
    pub(super) fn if_match(&self) -> anyhow::Result<HeaderValue> {
        let value = HeaderValue::from_str(&format!("\"{}\"", self.etag));
        value.with_context(|| format!("the etag of {} is none", self.key))
    }
}

/// Why there is no answer that is a success.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// The server said so, in these words.
    #[error("{1}")]
    Status(StatusCode, String),
    /// There is no answer.
    #[error("{0:#}")]
    Other(anyhow::Error),
}

impl Refused {
    /// Whether there may be an answer if the same is asked again.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Refused::Status(status, _) => status.is_server_error(),
            Refused::Other(_) => true,
        }
    }
}

/// Where an object is; the parts of its key are apart.
fn object(key: &str) -> String {
    let parts: Vec<String> = key.split('/').map(encoded).collect();
    format!("/objects/{}", parts.join("/"))
}

/// The words of a refusal: of its JSON, or as they stand.
fn said(body: &[u8]) -> String {
    let json: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    match json.as_ref().and_then(|json| json.get("error")?.as_str()) {
        Some(words) => words.to_owned(),
        None => String::from_utf8_lossy(body).trim().chars().take(1000).collect(),
    }
}

/// The address of a server; of a host with several, the first at which somebody listens.
fn resolve(url: &str) -> anyhow::Result<SocketAddr> {
    let wrong = |what: &str| format!("`{url}` {what}; write http://HOST:PORT");
    let uri: http::Uri = url.parse().with_context(|| wrong("is no address"))?;
    ensure!(uri.scheme_str() == Some("http"), "{}", wrong("does not begin with http://"));
    let host = uri.authority().map_or("", |authority| authority.as_str());
    ensure!(matches!(uri.path(), "" | "/") && uri.query().is_none(), "{}", wrong("has a path"));
    ensure!(!host.is_empty() && !host.contains('@'), "{}", wrong("is no host"));
    let found = match uri.port() {
        Some(_) => host.to_socket_addrs(),
        None => format!("{host}:80").to_socket_addrs(),
    };
    let found: Vec<SocketAddr> =
        found.with_context(|| format!("`{url}`: the host is not known"))?.collect();
    if let [_, _, ..] = found[..] {
        let answers = |a: &&SocketAddr| TcpStream::connect_timeout(a, CONNECT_MAX).is_ok();
        if let Some(address) = found.iter().find(answers) {
            return Ok(*address);
        }
    }
    found.first().copied().with_context(|| format!("`{url}`: the host has no address"))
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
        assert_eq!(said(br#"{"error":"no such thing"}"#), "no such thing");
        assert_eq!(said(b"bad gateway\n"), "bad gateway");
        assert_eq!(said(br#"{"error":1}"#), r#"{"error":1}"#);
    }

    #[test]
    fn nobody_there_is_said_with_what_to_do() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let server = Server::new(&format!("http://{address}"), None).unwrap();
        let error = server.objects("x").unwrap_err().to_string();
        assert!(error.contains("cannot reach") && error.contains("concertina serve"), "{error}");
    }
}
