//! S3's protocol in front of a node or a gateway.
//!
//! `s3s` reads requests, checks signatures (its callers are [`guard`] and the keys in [`keys`]) and writes
//! replies; what an operation does is here. Reads and writes of one object are requests to a [`Store`], as those of
//! HTTP's clients are, so that conditions, ranges, copies in memory, the order of writes and
//! what is recorded are the same. Listings ([`listing`]) and the parts of uploads ([`multipart`]) go to the
//! origin.

mod abandoned;
mod absent;
mod acl;
mod asked;
mod bucket_list;
mod checksums;
mod chunks;
mod completed;
mod completion;
mod date_header;
mod described;
mod elements;
mod error;
mod errors;
mod guard;
mod headers;
mod hidden;
mod host;
mod inner;
mod kept_parts;
pub mod keys;
mod listing;
mod messages;
mod misread;
mod multipart;
mod objects;
mod operations;
mod parameters;
mod part_lists;
mod part_reads;
mod payload;
mod puts;
mod query;
mod query_headers;
mod refused;
mod removals;
mod repeated;
mod request_id;
pub mod seal;
mod shortcut;
mod subresources;
mod tagging;
mod tags;
mod timed;
mod traced;
mod upload_checksum;
mod upload_parts;
mod uploads;
mod xml;

use std::cell::RefCell;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ground::Key;
use ground::window::{Operation, Outcome};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use origin::KEY_BYTES_MAX;
use record::clock;
use s3s::config::{S3Config, StaticConfigProvider};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{HttpResponse, S3Error, S3ErrorCode, S3Result};
use tokio::runtime::Handle;

use chunks::Divided;
use configuration::Config;
pub use error::Error;
use front::Front;
use front::http as web;
use front::http::Service;
use front::quick::{Content, Facts, Never, Quick, ReadStart, Record, Signed};
use guard::{Authenticated, Guard, SKEW_S, XML_BYTES_MAX};
use host::Domain;
use inner::{Bucket, Inner};
use keys::{Files, Keys};
use objects::Ready;
use payload::{Differs, Hashed};
use request_id::{REQUEST_ID, RequestId};
use store::Store;
use timed::Timed;
use wire::body::{Budget, ReplyBody};
use wire::date::add_date;
use wire::head::Line;
use wire::lane::Passed;
use wire::lane::ThreadRecorder;
use wire::limits::{Client, Limits, Unproven};
use wire::pace::Pace;

/// Operations, as `s3s` calls them.
#[derive(Clone)]
struct Operations(Arc<Inner>);

impl Deref for Operations {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// The front for S3's clients.
pub struct S3 {
    inner: Arc<Inner>,
    service: S3Service,
}

impl Deref for S3 {
    type Target = Front;
    fn deref(&self) -> &Front {
        self.inner.store.front()
    }
}

impl S3 {
    /// Lets its threads read from the devices of the node behind it.
    pub fn read_on(&self, runtimes: &[Handle]) {
        self.inner.store.read_on(runtimes);
    }

    /// The front of a configuration with `s3.listen`, before a node or a gateway.
    ///
    /// # Errors
    ///
    /// If the file of access keys cannot be used.
    pub fn new(config: &Config, store: Arc<dyn Store>) -> Result<Arc<S3>, Error> {
        let master = config.s3.master_key.clone();
        let keys = Keys::open(Files { keys: config.s3.keys.clone().unwrap_or_default(), master })?;
        let buckets = config.s3_buckets();
        let names = buckets.iter().map(|(name, _)| name.clone());
        let domain = Domain::new(config.s3.domain.as_deref(), names);
        let buckets = buckets.into_iter().map(|(name, prefix)| Bucket { name, prefix }).collect();
        let inner = Arc::new(Inner {
            store,
            buckets,
            domain: domain.clone(),
            region: config.s3.region.clone(),
            keys: keys.clone(),
            uploads: Budget::new(config.serve.uploads_bytes_max.0),
            remembered: kept_parts::Remembered::default(),
            timeout: Duration::from_secs_f64(config.origin.timeout_s),
        });
        let mut limits = S3Config::default();
        limits.xml_max_body_size = XML_BYTES_MAX;
        limits.presigned_url_max_skew_time_secs = SKEW_S;
        let mut builder = S3ServiceBuilder::new(Operations(inner.clone()));
        builder.set_host(domain);
        builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits))));
        builder.set_auth(Guard(keys.clone()));
        builder.set_access(Guard(keys));
        Ok(Arc::new(S3 { inner, service: builder.build() }))
    }

    /// Has `s3s` answer a request.
    async fn call(
        &self,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
        known: &Authenticated,
    ) -> Option<HttpResponse> {
        let differs = Differs::default();
        let (parts, body) = request.into_parts();
        let body = Timed::new(body, Pace::from_settings(&self.config.serve), differs.clone());
        let body = match Hashed::new(body, &parts, differs.clone()) {
            Ok(hashed) => s3s::Body::http_body_unsync(hashed),
            Err(body) => match Divided::new(body, &parts, differs.clone()) {
                Ok(divided) => s3s::Body::http_body_unsync(divided),
                Err(body) => s3s::Body::http_body_unsync(body),
            },
        };
        let mut request = Request::from_parts(parts, body);
        request.extensions_mut().insert(lane.clone());
        request.extensions_mut().insert(known.clone());
        let answered = self.service.call(request).await.ok()?;
        match differs.error() {
            // Who read the body knows only that it broke off.
            Some(error) if matches!(answered.status().as_u16(), 400 | 500) => {
                error.to_http_response().ok()
            }
            _ => Some(answered),
        }
    }

    /// Keeps the access keys as their file is, and removes what uploads left behind; never returns.
    pub async fn run(self: Arc<S3>) {
        let abandoned_s = self.config.s3.abandoned_s;
        if abandoned_s > 0.0 {
            let age = Duration::from_secs_f64(abandoned_s);
            tokio::spawn(abandoned::keep_clean(self.inner.store.origin().clone(), age));
        }
        self.inner.keys.clone().keep_current().await;
    }
}

fn response_of(mut from: HttpResponse, request_id: RequestId) -> Response<ReplyBody> {
    let ready = from.extensions_mut().remove::<Ready>();
    let ready =
        ready.and_then(|ready| ready.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    let (parts, mut body) = from.into_parts();
    let mut response = Response::new(ReplyBody::empty(None));
    *response.status_mut() = parts.status;
    *response.headers_mut() = parts.headers;
    match (ready, body.take_bytes()) {
        (Some((status, body)), _) => {
            *response.status_mut() = status;
            *response.body_mut() = body;
        }
        (None, Some(bytes)) => {
            let bytes = xml::finish(bytes, request_id.as_str());
            tell(response.status(), &bytes, request_id);
            let had_length = response.headers_mut().remove(CONTENT_LENGTH).is_some();
            if had_length {
                response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            }
            *response.body_mut() = ReplyBody::bytes(bytes, None);
        }
        (None, None) => {
            response.headers_mut().remove(CONTENT_LENGTH);
        }
    }
    response
}

/// Logs a failure of the server's in one line: with the reason, which its client sees in other words, and the id, which it sees too.
fn tell(status: StatusCode, body: &[u8], request_id: RequestId) {
    let reason = errors::take_reason();
    let words = xml::words(body)
        .filter(|_| status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED);
    match (reason, words) {
        (Some(reason), Some((code, _))) => {
            tracing::warn!("an S3 request failed with {code} (request {request_id}): {reason}");
        }
        (Some(reason), None) => {
            tracing::warn!("an S3 request failed (request {request_id}): {reason}");
        }
        (None, Some((code, message))) => {
            tracing::warn!("an S3 request failed with {code} (request {request_id}): {message}");
        }
        (None, None) => {}
    }
}

/// A plain read of this key, whose signature was verified before hyper saw the request.
pub struct Allowed(Key);

impl Quick for S3 {
    type Flight = Never<Allowed>;

    fn refused(status: StatusCode, text: &str) -> Response<Bytes> {
        refused::reply(status, text)
    }

    fn ends(&self) -> bool {
        self.is_stopping()
    }

    fn signed<'a>(&self, is_head: bool, path: &'a str, headers: &HeaderMap) -> Option<Signed<'a>> {
        // A gateway asks a node, which goes the usual way; as does a checksum.
        if !self.inner.store.has_memory()
            || headers.contains_key("x-amz-checksum-mode")
            || !self.inner.domain.is_in_path(headers)
        {
            return None;
        }
        // Before the signature, so that it is verified once whatever the bucket.
        let (bucket, _) = path.strip_prefix('/')?.split_once('/')?;
        self.inner.bucket(bucket).ok().filter(|bucket| bucket.prefix.is_empty())?;
        let method = if is_head { Method::HEAD } else { Method::GET };
        let keys = &self.inner.keys;
        let plain = shortcut::allowed_path(keys, &method, path, headers, SystemTime::now())?;
        let query = path.split_once('?').map(|(_, query)| query);
        let id = self.limits.get().and_then(|_| guard::claimed_by(headers, query));
        let client = id.map(|id| Client::Key(id.to_owned()));
        let facts = Facts { parent: self.trace_parent(headers), ..Facts::default() };
        Some(Signed { key: plain.key.as_bytes(), facts, client })
    }

    fn limits(&self) -> Option<&Limits> {
        self.limits.get()
    }

    fn begin(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        line: &Line<'_>,
        facts: Facts,
        head: &mut Vec<u8>,
    ) -> ReadStart<Never<Allowed>> {
        let received = clock::now();
        // As [`Inner::key`] judges it, which tells the client.
        if line.key.len() > KEY_BYTES_MAX {
            return ReadStart::Usual;
        }
        let Some(hit) = self.inner.store.hit(received, line.key) else {
            return ReadStart::Resume(Allowed(Key::from(line.key)));
        };
        let object = hit.payload;
        head.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
        object.write_lines_of(headers::write_lines, head);
        add_date(received, head);
        for part in [REQUEST_ID.as_str(), ": ", RequestId::draw().as_str(), "\r\n\r\n"] {
            head.extend_from_slice(part.as_bytes());
        }
        let body = if line.is_head { Bytes::new() } else { object.body() };
        let passed = Passed {
            operation: if line.is_head { Operation::Head } else { Operation::Get },
            outcome: Outcome::Memory,
            hash: lane.hash_of(line.key),
            received,
            size: object.size(),
            bytes: body.len() as u64,
            parent: facts.parent,
        };
        ReadStart::Reply(Content::Bytes(body), Record::Passed(passed))
    }
}

impl S3 {
    /// Answers a request, or says why not.
    async fn reply(
        &self,
        lane: &Arc<ThreadRecorder>,
        mut request: Request<Incoming>,
        request_id: RequestId,
    ) -> S3Result<Response<ReplyBody>> {
        if let Some(Allowed(key)) = web::resumed::<S3, _>(&mut request) {
            return self.inner.read_plain(lane, Ok(key), &request).await;
        }
        // A bucket in the name of the host is s3s's to find.
        let (keys, now) = (&self.inner.keys, SystemTime::now());
        let is_in_path = self.inner.domain.is_in_path(request.headers());
        let plain = is_in_path.then(|| shortcut::allowed(keys, &request, now)).flatten();
        if let Some(plain) = plain {
            let key = self.inner.key(plain.bucket, plain.key);
            return self.inner.read_plain(lane, key, &request).await;
        }
        let plain = is_in_path.then(|| shortcut::allowed_write(keys, &request, now)).flatten();
        let checked = guard::check(&request);
        if let (Ok(()), Some(plain)) = (&checked, plain) {
            let (key, id) = (self.inner.key(plain.bucket, plain.key), plain.id);
            return self.inner.put_plain(lane, key, &id, request).await;
        }
        let known = Authenticated::default();
        let is_denied =
            guard::is_denied_write(keys, self.inner.domain.bucket_in(&request), &request);
        let query = request.uri().query().map(str::to_owned);
        let checked =
            checked.and_then(|()| query_headers::apply(query.as_deref(), request.headers_mut()));
        date_header::apply(request.headers_mut());
        if checked.is_ok() {
            misread::apply(keys, &mut request);
        }
        let checked = checked.and_then(|()| payload::check(&request));
        let answered = match checked {
            Ok(()) => self.call(lane, request, &known).await,
            Err(refused) => refused.to_http_response().ok(),
        };
        let answered = match answered {
            Some(answered) => answered,
            None => S3Error::new(S3ErrorCode::InternalError).to_http_response().unwrap_or_default(),
        };
        let is_unjudged = answered.status() == StatusCode::NOT_IMPLEMENTED && !known.is_set();
        let answered = match is_denied && is_unjudged {
            true => guard::denied().to_http_response().unwrap_or_default(),
            false => answered,
        };
        let mut response = response_of(answered, request_id);
        if !known.is_set() {
            response.extensions_mut().insert(Unproven);
        }
        Ok(response)
    }
}

impl Service for S3 {
    async fn answer(
        self: &Arc<Self>,
        lane: &Arc<ThreadRecorder>,
        request: Request<Incoming>,
    ) -> Response<ReplyBody> {
        if web::is_health(request.uri().path()) {
            return front::health::alive();
        }
        let is_head = request.method() == Method::HEAD;
        let request_id = RequestId::draw();
        let parent = self.trace_parent(request.headers());
        let reply = async {
            let response = match self.reply(lane, request, request_id).await {
                Ok(response) => response,
                Err(error) => response_of(error.to_http_response().unwrap_or_default(), request_id),
            };
            // Of a reply without a body, or of one of several keys.
            tell(response.status(), b"", request_id);
            response
        };
        let reply = traced::PARENT.scope(parent, reply);
        let mut response = errors::REASON.scope(RefCell::default(), reply).await;
        if is_head && !response.status().is_success() {
            *response.body_mut() = ReplyBody::empty(None);
        }
        response.headers_mut().extend(request_id.header().map(|id| (REQUEST_ID, id)));
        response
    }

    fn client(&self, from: IpAddr, request: &Request<Incoming>) -> Client {
        match guard::claimed(request).filter(|id| self.inner.keys.get(id).is_some()) {
            Some(id) => Client::Key(id.to_owned()),
            None => Client::from_address(from),
        }
    }

    fn slow_down(&self, wait_s: u64) -> Response<ReplyBody> {
        let what = format!("too many requests or bytes of one client: come again in {wait_s} s");
        let mut reply = web::refused::<S3>(StatusCode::SERVICE_UNAVAILABLE, &what);
        reply.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait_s));
        reply
    }

    fn under_way(&self) -> usize {
        self.inner.store.under_way()
    }
}
