//! Requests below `/datasets`: sends each query to the nodes of the shards and merges their
//! answers.
//!
//! The gateway holds no shards, but the manifest and log of every requested dataset. It answers for
//! the log itself and appends directly to the origin. Records appended through a gateway are
//! therefore found through it at once, and through other gateways after `datasets.refresh_s`.
//!
//! `engine::question` decides which parts are asked when, and what follows if a node has another version of the dataset. A query of
//! a shard is routed like a read of an object: `engine::gateway` decides on health, policy, retries, hedging and
//! deadline, by the shard's key. *Partial answers*: if no node of a shard
//! answers in time, the query fails and the error names the part. With `partial=true` a page lacks
//! that part and names it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::question::{Failed, Question};
use ground::window::{Nanos, Outcome};
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde_json::Value;

use super::gateway::Gateway;
use super::nodes::reply::{Body, NodeReply};
use super::request::{NodeRequest, patience};
use dataset::part::Run;
use dataset::remote::{key_of_file, key_of_manifest};
use datasets::ask::{Answer, Ask, LOG, Page};
use datasets::asking::{AskParts, ask_parts, question};
use datasets::http::{
    Local, bad, is_partial, no_dataset, nothing_here, only, place, reply, unavailable,
};
use datasets::question_text::{QuestionText, is_posted_question, question_text};
use datasets::reply_form::ReplyForm;
use datasets::served::{Served, View};
use peer::Outgoing;
use record::clock;
use store::problem_of;
use wire::headers;
use wire::lane::RequestRecord;
use wire::problem::HttpResult;
use wire::problem::{Problem, json as json_reply};

/// How long a node may take to seal a log: building the index of 512 MiB takes minutes, and the node goes on if nobody waits.
const SEAL_MAX: Duration = Duration::from_secs(900);

/// Maximum bytes of a part's answer: those of a page as JSON, which may escape every byte.
const ANSWER_BYTES_MAX: usize = 128 << 20;
/// Longer parameters are sent to nodes as a body: a node's limit of heads (`serve.header_bytes_max`) is at least twice as much.
const QUERY_IN_PATH_BYTES_MAX: usize = 4 << 10;
/// How long after its deadline a query ends whatever is under way: the parts' own ends say more.
const GRACE: Nanos = 100_000_000;

/// Queries the parts of a dataset on the nodes that hold them.
struct Parts<'a> {
    access: &'a Arc<Gateway>,
    name: &'a str,
    view: Arc<View>,
    /// The question, as nodes parse it.
    text: QuestionText,
    deadline: Nanos,
    patience: Nanos,
    /// Whether a node had another version of the dataset.
    stale: AtomicBool,
}

impl Parts<'_> {
    async fn ask_nodes(&self, part: &str, ask: &Ask) -> Result<Answer, Problem> {
        let request = self.request(part)?;
        let answered = self.access.router.read(&request.key, &request, self.deadline, &[]).await;
        // `_pending` is held until the answer is complete: the engine counts the request until
        // then.
        let (answer, _pending) = answered.map_err(|refused| {
            let problem = problem_of(&self.access.error(refused, &request.key, self.patience));
            problem.about(&format!("part {part}"))
        })?;
        let node = self.access.router.name(answer.node).to_owned();
        let reply = PartReply::receive(answer, node, part).await?;
        match (reply.status, ask) {
            (StatusCode::OK, _) => reply.answer(ask),
            (StatusCode::NOT_FOUND, Ask::Record { .. }) if reply.is_of_record() => {
                Ok(Answer::Bytes(None))
            }
            (StatusCode::PRECONDITION_FAILED, _) => {
                self.stale.store(true, Ordering::Relaxed);
                let what = "the dataset changes faster than it can be queried; try again";
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, what))
            }
            _ => Err(reply.refusal()),
        }
    }

    /// The question as a node's request: of the version of the dataset that this process has read.
    fn request(&self, part: &str) -> Result<NodeRequest, Problem> {
        let id = &self.view.current.manifest.id;
        let header = |text: String| HeaderValue::from_str(&text);
        let view = header(self.view.current.etag.to_string());
        let chunk = header(self.view.dataset.last_chunk().to_string());
        let (Ok(view), Ok(chunk)) = (view, chunk) else {
            let what = "the manifest's etag in the origin is not a valid header value";
            return Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what));
        };
        let QuestionText { rest, query } = &self.text;
        let path = format!("/datasets/{}/parts/{part}/{rest}", self.name);
        let (method, path, body) = if query.len() <= QUERY_IN_PATH_BYTES_MAX {
            (Method::GET, format!("{path}?{query}"), None)
        } else {
            (Method::POST, path, Some(query.clone().into()))
        };
        Ok(NodeRequest {
            method,
            key: key_of_file(self.name, id, &format!("{part}.shard")),
            path,
            headers: vec![(headers::VIEW.clone(), view), (headers::CHUNK.clone(), chunk)],
            body,
            read: None,
        })
    }
}

/// A node's whole reply for a part.
struct PartReply<'a> {
    node: String,
    part: &'a str,
    status: StatusCode,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl PartReply<'_> {
    async fn receive(
        mut reply: NodeReply,
        node: String,
        part: &str,
    ) -> Result<PartReply<'_>, Problem> {
        let (status, headers) = (reply.status, std::mem::take(&mut reply.headers));
        let bytes = gather(reply).await.map_err(|why| {
            let what = format!("the reply of {node} for part {part} broke off: {why}");
            Problem::new(StatusCode::BAD_GATEWAY, &what)
        })?;
        Ok(PartReply { node, part, status, headers, bytes })
    }

    /// The answer to a query that the node has answered.
    fn answer(self, ask: &Ask) -> Result<Answer, Problem> {
        match ask {
            Ask::Records { .. } => {
                let page = serde_json::from_slice::<Page>(&self.bytes);
                Ok(Answer::Page(page.map_err(|error| self.malformed(&error))?))
            }
            Ask::Count { .. } | Ask::Occurrences { .. } => {
                let value = serde_json::from_slice::<Value>(&self.bytes);
                let value = value.map_err(|error| self.malformed(&error))?;
                let count = value.get("count").and_then(Value::as_u64);
                let count = count.ok_or_else(|| self.broken("missing count"))?;
                let unknown = value.get("unknown_attributes").and_then(Value::as_array);
                let names = unknown.into_iter().flatten().filter_map(Value::as_str);
                let unknown_attributes = names.map(str::to_owned).collect();
                Ok(Answer::Count { count, unknown_attributes, warnings: Vec::new() })
            }
            Ask::Export { .. } => {
                let run = self.number(&headers::NEXT).zip(self.number(&headers::RECORDS));
                let (next, records) = run.ok_or_else(|| {
                    let (next, records) = (&headers::NEXT, &headers::RECORDS);
                    self.broken(&format!("missing header {next} or {records}"))
                })?;
                Ok(Answer::Run(Run { bytes: self.bytes, records, next }))
            }
            _ => Ok(Answer::Bytes(Some(self.bytes))),
        }
    }

    /// Whether a 404 is said of the record, and not of a path that the node does not know.
    fn is_of_record(&self) -> bool {
        self.headers.contains_key(&headers::OUTCOME)
    }

    /// The node's refusal, for the client.
    fn refusal(&self) -> Problem {
        let error: Option<Value> = serde_json::from_slice(&self.bytes).ok();
        let error = error.as_ref().and_then(|e| e.get("error")).and_then(Value::as_str);
        let error = error.unwrap_or("no reason given");
        Problem::new(self.status, &format!("{}, part {}: {error}", self.node, self.part))
    }

    fn malformed(&self, error: &serde_json::Error) -> Problem {
        self.broken(&error.to_string())
    }

    fn number(&self, name: &HeaderName) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }

    fn broken(&self, what: &str) -> Problem {
        let what = format!("invalid reply of {} for part {}: {what}", self.node, self.part);
        Problem::new(StatusCode::BAD_GATEWAY, &what)
    }
}

impl AskParts for Parts<'_> {
    type Error = Problem;

    fn why(&self, problem: &Problem) -> Failed {
        if self.stale.swap(false, Ordering::Relaxed) {
            Failed::View
        } else if problem.is_bad_request() {
            Failed::Question
        } else {
            Failed::Unavailable
        }
    }

    fn too_late(&self, part: Option<&str>) -> Problem {
        let what = part.map_or_else(|| "the dataset".to_owned(), |part| format!("part {part}"));
        let ms = self.patience / 1_000_000;
        let what = format!("{what}: no reply within {ms} ms; try again later");
        Problem::new(StatusCode::GATEWAY_TIMEOUT, &what)
    }

    async fn ask(&self, part: &str, ask: &Ask) -> Result<Answer, Problem> {
        if part == LOG {
            let local = Local { view: self.view.clone() };
            return local.ask(part, ask).await;
        }
        self.ask_nodes(part, ask).await
    }
}

async fn gather(answer: NodeReply) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    match answer.body {
        Body::Whole(bytes) => all.extend_from_slice(&bytes),
        Body::Node(mut body) => {
            while let Some(piece) = body.next().await {
                all.extend_from_slice(&piece.map_err(|fault| fault.to_string())?);
                if all.len() > ANSWER_BYTES_MAX {
                    return Err(format!("more than {ANSWER_BYTES_MAX} bytes"));
                }
            }
        }
        Body::Origin(..) => return Err("the origin cannot answer queries".to_owned()),
    }
    Ok(all)
}

impl Gateway {
    /// Serves a request below `/datasets`.
    pub(super) async fn dataset(self: &Arc<Self>, request: Request<Incoming>) -> HttpResult {
        let form = ReplyForm::from_headers(request.headers());
        form.applied(self.dataset_plainly(request).await).await
    }

    async fn dataset_plainly(self: &Arc<Self>, request: Request<Incoming>) -> HttpResult {
        let path = request.uri().path().to_owned();
        let Some(place) = place(&path) else { return self.datasets.list(&request).await };
        let served = self.datasets.find(place.name).await.map_err(|error| unavailable(&error))?;
        let served = served.ok_or_else(|| no_dataset(place.name))?;
        match (request.method(), place.rest) {
            (&Method::GET | &Method::HEAD, "") => self.datasets.status(&served),
            (&Method::GET | &Method::PUT, "layers") => self.layers(place.name, &request).await,
            (_, "layers") => Err(only("GET, PUT")),
            (&Method::POST, "seal") => self.seal(&served).await,
            (_, "seal") => Err(only("POST")),
            (&Method::GET | &Method::HEAD, "search") => Err(only("POST")),
            (&Method::GET | &Method::HEAD, rest) => self.question(&served, rest, request).await,
            (method, rest) if is_posted_question(method, rest) => {
                self.question(&served, rest, request).await
            }
            (_, rest) => self.datasets.change(&served, rest, request).await,
        }
    }

    async fn question(
        self: &Arc<Self>,
        served: &Arc<Served>,
        rest: &str,
        request: Request<Incoming>,
    ) -> HttpResult {
        let max = self.router.backend.deadline.as_nanos() as Nanos;
        let (patience, _) = patience(request.headers(), max)?;
        let text = question_text(rest, request, self.datasets.pace()).await?;
        // The record of the request and the question, kept while views change.
        let mut asked: Option<(RequestRecord, Question)> = None;
        loop {
            let view = served.view().ok_or_else(|| no_dataset(served.name()))?;
            let manifest = view.dataset.manifest();
            let ask = Ask::parse(&text.rest, &text.query, manifest).map_err(|error| bad(&error))?;
            let ask = ask.ok_or_else(nothing_here)?;
            let (seen, mut question) = asked.take().unwrap_or_else(|| {
                let seen = self.datasets.received(ask.operation(), served.name());
                let ends = seen.received.saturating_add(patience).saturating_add(GRACE);
                (seen, question(&ask, is_partial(&text.query), ends))
            });
            let names = ask.parts(manifest);
            let nodes = Parts {
                access: self,
                name: served.name(),
                view: view.clone(),
                text: text.clone(),
                deadline: seen.received.saturating_add(patience),
                patience,
                stale: AtomicBool::new(false),
            };
            match ask_parts(&nodes, &names, &ask, &mut question).await {
                Ok(Some(answer)) => {
                    let mut seen = seen;
                    seen.outcome = Outcome::Shard;
                    return reply(&view, answer, seen, &ask);
                }
                Err(problem) => return Err(problem.with_record(seen)),
                Ok(None) => {}
            }
            let left = nodes.deadline.saturating_add(GRACE).saturating_sub(clock::now());
            let refreshed = tokio::time::timeout(Duration::from_nanos(left), served.refresh());
            match refreshed.await {
                Ok(Ok(())) => asked = Some((seen, question)),
                Ok(Err(error)) => return Err(unavailable(&error).with_record(seen)),
                Err(_) => return Err(nodes.too_late(None).with_record(seen)),
            }
        }
    }

    /// Sends the request to seal to the node that seals this dataset's log.
    async fn seal(&self, served: &Arc<Served>) -> HttpResult {
        let primary =
            self.router.backend.roll.ring().replicas(&key_of_manifest(served.name())).iter().next();
        let path = format!("/datasets/{}/seal", served.name());
        let node = primary.ok_or_else(|| {
            let what = "no node has keys: all were drained; see /admin/status";
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
        })?;
        let (status, value) = self.tell_node(node, &Method::POST, &path, SEAL_MAX).await?;
        if status == StatusCode::OK {
            served.refresh().await.map_err(|error| unavailable(&error))?;
        }
        Ok(json_reply(status, &value, None))
    }

    /// Sends a request to one node; returns the status and the JSON body of the reply, if it comes within `limit`.
    pub(super) async fn tell_node(
        &self,
        node: usize,
        method: &Method,
        path: &str,
        limit: Duration,
    ) -> Result<(StatusCode, Value), Problem> {
        let failed = |why: String| {
            let what = format!("{}: {why}; see /admin/status", self.router.name(Some(node)));
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what)
        };
        let pool =
            self.router.backend.roll.pool(node).ok_or_else(|| failed("unknown node".to_owned()))?;
        let asked = async {
            let reply = pool.send(method, path, &[], Outgoing::Empty).await?;
            let status = reply.status;
            Ok((status, reply.body.gather(ANSWER_BYTES_MAX).await?))
        };
        let told = tokio::time::timeout(limit, asked).await;
        let told = told.map_err(|_| failed("no reply in time".to_owned()))?;
        let (status, bytes) = told.map_err(|fault: peer::Fault| failed(fault.to_string()))?;
        let value = serde_json::from_slice(&bytes);
        Ok((
            status,
            value.map_err(|error| failed(format!("the reply is not valid JSON: {error}")))?,
        ))
    }
}
