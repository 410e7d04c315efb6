//! hyper with nothing on it: one thread, and the same bytes for every request, with the headers that a
//! node sends. What `experiments/serve-objects` compares a node with. With `uring` a raw server by io_uring.
//!
//!     serve-objects-bare ADDRESS BYTES [uring]

mod uring;

use std::convert::Infallible;

use anyhow::Context;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ACCEPT_RANGES, CONTENT_TYPE, ETAG, HeaderValue, LAST_MODIFIED};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().context("give an address and a number of bytes")?;
    let bytes = arguments.next().context("give a number of bytes")?;
    let bytes: usize = bytes.parse().with_context(|| format!("{bytes:?} is not a number"))?;
    match arguments.next().as_deref() {
        None => {}
        Some("uring") => return uring::serve(&address, raw_reply(bytes)),
        Some(other) => anyhow::bail!("unknown way {other:?}: expected uring, or nothing"),
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(&address, Bytes::from(vec![b'x'; bytes])))
}

/// The reply of the ceiling in `../shared/bench`: two headers and the bytes.
fn raw_reply(bytes: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\nContent-Type: application/octet-stream\r\n\r\n"
    );
    let mut reply = head.into_bytes();
    reply.resize(reply.len() + bytes, b'x');
    reply
}

async fn serve(address: &str, body: Bytes) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_| {
                let response = reply(body.clone());
                async move { Ok::<_, Infallible>(response) }
            });
            // A client that leaves is not an error here.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn reply(body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, "application/octet-stream"),
        (ETAG, "\"0123456789abcdef0123456789abcdef\""),
        (LAST_MODIFIED, "Mon, 23 Nov 2026 12:00:00 GMT"),
        (ACCEPT_RANGES, "bytes"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
