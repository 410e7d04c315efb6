//! HTTP requests below `/datasets`: the node's side, and the code that nodes and gateways share.
//!
//! A gateway queries one part at a time, at `/datasets/NAME/parts/PART/…`. Its request names the
//! version: the etag of the manifest that the gateway has read, and the last chunk of the log that
//! it knows. A node with an older version first compares with the origin. If the versions still
//! differ, the node replies 412, so that no query mixes parts of an old dataset with parts of a new
//! one.

use std::sync::Arc;

use engine::dataset::{DatasetVersion, Serves, serves};
use engine::node::Stages;
use engine::question::Failed;
use ground::window::{Nanos, Operation, Outcome};
use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, RETRY_AFTER};
use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use serde::Serialize;
use serde_json::json;

use super::ask::{Answer, Ask, LOG, ids, pairs, part_of, text};
use super::asking::{AskParts, ask_parts, question};
use super::datasets::Datasets;
use super::error::{Error, Result};
use super::layers::{LayerSummary, summary_of_layers};
pub use super::problem::{bad, no_dataset, only, unavailable};
use super::question_text::{BodyLimit, QuestionText, gather, is_posted_question, question_text};
use super::reply_form::ReplyForm;
use super::room::{APPEND_BYTES_MAX, APPENDS_BYTES_MAX, Reserved};
use super::served::{Changed, Copied, Served};
use super::view::View;
use dataset::Info;
use dataset::part::Run;
use wire::headers;
use wire::lane::RequestRecord;
use wire::pace::Pace;
use wire::problem::HttpResult;
use wire::problem::{Problem, json as json_reply, typed};

/// Memory of the deletion of a record, bytes.
const DELETION_BYTES: usize = 32;

/// The size and load of one part of a dataset.
#[derive(Serialize)]
struct PartStatus {
    part: String,
    records: u64,
    file_bytes: u64,
    queue_length: u32,
    queue_length_average: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    layers: Option<LayerSummary>,
}

#[derive(Serialize)]
struct DatasetStatus<'a> {
    name: &'a str,
    info: Info,
    parts: Vec<PartStatus>,
    copied: Copied,
}

/// The body of the reply to a count.
#[derive(Serialize)]
struct CountReply {
    count: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_attributes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// A path below `/datasets`, split after the dataset's name.
pub struct Place<'a> {
    /// The dataset's name.
    pub name: &'a str,
    /// The path after the name, without the slash between them.
    pub rest: &'a str,
}

/// Splits a path below `/datasets/`; `None` for the list at `/datasets` itself.
pub fn place(path: &str) -> Option<Place<'_>> {
    let below = path.strip_prefix("/datasets/").filter(|below| !below.is_empty())?;
    let (name, rest) = below.split_once('/').unwrap_or((below, ""));
    Some(Place { name, rest })
}

/// Whether a path is `/datasets` or below it.
pub fn is_below(path: &str) -> bool {
    path == "/datasets" || path.starts_with("/datasets/")
}

/// The HTTP reply with an answer computed on `view`.
pub fn reply(view: &View, answer: Answer, mut seen: RequestRecord, ask: &Ask) -> HttpResult {
    seen.bytes = answer.bytes();
    seen.size = seen.bytes;
    let mut response = match answer {
        Answer::Page(page) => json_reply(StatusCode::OK, &page, Some(seen)),
        Answer::Count { count, unknown_attributes, warnings } => {
            let count = CountReply { count, unknown_attributes, warnings };
            json_reply(StatusCode::OK, &count, Some(seen))
        }
        Answer::Bytes(Some(bytes)) => {
            typed(StatusCode::OK, "application/octet-stream", bytes, Some(seen))
        }
        Answer::Bytes(None) => {
            seen.outcome = Outcome::Miss;
            let what = match ask {
                Ask::Record { id } => format!("there is no record {id}, or it was deleted"),
                _ => "the text has no such range".to_owned(),
            };
            return Err(Problem::new(StatusCode::NOT_FOUND, &what).with_record(seen));
        }
        Answer::Run(Run { bytes, records, next }) => {
            let kind = "application/octet-stream";
            let mut response = typed(StatusCode::OK, kind, bytes, Some(seen));
            let to = response.headers_mut();
            to.insert(headers::NEXT.clone(), HeaderValue::from(next));
            to.insert(headers::RECORDS.clone(), HeaderValue::from(records));
            to.insert(headers::END.clone(), HeaderValue::from(view.dataset.end_id()));
            if let Ok(id) = HeaderValue::from_str(&view.current.manifest.id) {
                to.insert(headers::DATASET.clone(), id);
            }
            response
        }
    };
    let outcome = HeaderValue::from_static(Outcome::Shard.as_str());
    response.headers_mut().insert(headers::OUTCOME.clone(), outcome);
    Ok(response)
}

/// Queries the parts that this process holds.
pub struct Local {
    /// The dataset's version.
    pub view: Arc<View>,
}

impl AskParts for Local {
    type Error = Problem;

    fn why(&self, problem: &Problem) -> Failed {
        if problem.is_bad_request() { Failed::Question } else { Failed::Unavailable }
    }

    /// A node's own parts have no deadline.
    fn too_late(&self, part: Option<&str>) -> Problem {
        let what = format!("part {} gave no answer", part.unwrap_or("?"));
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, &what)
    }

    async fn ask(&self, name: &str, ask: &Ask) -> Result<Answer, Problem> {
        Ok(self.serve(name, ask).await?.0)
    }
}

impl Local {
    /// Queries a local part; returns its answer and the stage times.
    async fn serve(&self, name: &str, ask: &Ask) -> Result<(Answer, Stages), Problem> {
        let Some(station) = self.view.stations.get(name) else {
            let what = format!("part {name} is not on this node; send the request to a gateway");
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, &what));
        };
        let (view, asked, part) = (self.view.clone(), ask.clone(), self.view.part(name).cloned());
        let work = move || {
            let answer = match &part {
                Some(part) => asked.of_shard(&view.dataset, part),
                None => asked.of_log(&view.dataset),
            };
            let bytes = answer.as_ref().map_or(0, Answer::bytes);
            (answer, bytes)
        };
        match station.serve(ask.operation(), work).await {
            Ok(served) => match served.answer {
                Some(answer) => Ok((answer.map_err(|error| bad(&error))?, served.stages)),
                None => {
                    let what = "internal error: the query panicked; see the server's log";
                    Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, what))
                }
            },
            Err(busy) => {
                let what = format!(
                    "the queue of {} is full: it holds {} requests, the limit set by \
                     datasets.queue_length_max; try again later",
                    station.name(),
                    busy.length
                );
                let queue = HeaderValue::from_str(station.name());
                let queue = queue.unwrap_or(HeaderValue::from_static("shard"));
                Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what)
                    .with(headers::BUSY.clone(), queue)
                    .with(RETRY_AFTER, HeaderValue::from_static("1")))
            }
        }
    }
}

/// The result of a change, as the JSON body of its reply.
#[derive(Serialize)]
#[serde(untagged)]
pub enum Done {
    /// Records were appended.
    Appended {
        /// The id of the first; the others follow it.
        first_id: u64,
        /// How many were appended.
        records: u64,
    },
    /// Records were deleted.
    Deleted {
        /// How many there were to delete.
        deleted: u64,
    },
}

impl Datasets {
    /// Serves a client's request, or a gateway's request for a part.
    pub async fn answer(self: &Arc<Self>, request: Request<Incoming>) -> HttpResult {
        let form = ReplyForm::from_headers(request.headers());
        form.applied(self.answer_plainly(request).await).await
    }

    async fn answer_plainly(self: &Arc<Self>, request: Request<Incoming>) -> HttpResult {
        let path = request.uri().path().to_owned();
        let Some(place) = place(&path) else { return self.list(&request).await };
        let served = self.find(place.name).await.map_err(|error| unavailable(&error))?;
        if let Some(part) = place.rest.strip_prefix("parts/") {
            // The gateway knows this dataset, or knew it, so the versions differ. A 404 would
            // be taken for "no such record".
            let served = served.ok_or_else(another_version)?;
            return self.part(&served, part, request).await;
        }
        let served = served.ok_or_else(|| no_dataset(place.name))?;
        if place.rest == "layers" {
            return self.layers_of(&served, &request);
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD)
            || is_posted_question(request.method(), place.rest);
        if !is_read || place.rest == "seal" {
            return self.change(&served, place.rest, request).await;
        }
        let view = served.view().ok_or_else(|| no_dataset(place.name))?;
        if place.rest.is_empty() {
            return self.status(&served);
        }
        if place.rest == "search" && *request.method() != Method::POST {
            return Err(only("POST"));
        }
        let QuestionText { rest, query } = question_text(place.rest, request, self.pace).await?;
        let manifest = view.dataset.manifest();
        let ask = Ask::parse(&rest, &query, manifest).map_err(|error| bad(&error))?;
        let ask = ask.ok_or_else(nothing_here)?;
        let partial = is_partial(&query);
        let mut seen = self.lane.received(ask.operation(), place.name.as_bytes());
        let names = ask.parts(manifest);
        let mut question = question(&ask, partial, Nanos::MAX);
        match ask_parts(&Local { view: view.clone() }, &names, &ask, &mut question).await {
            Ok(Some(answer)) => {
                seen.outcome = Outcome::Shard;
                reply(&view, answer, seen, &ask)
            }
            // Its own parts are of its own view.
            Ok(None) => Err(another_version().with_record(seen)),
            Err(problem) => Err(problem.with_record(seen)),
        }
    }

    /// Replies with a dataset's size and the state of its parts.
    pub fn status(&self, served: &Arc<Served>) -> HttpResult {
        let view = served.view().ok_or_else(|| no_dataset(served.name()))?;
        let (name, info, parts) = (served.name(), view.dataset.info(), self.parts(&view));
        let copied = served.copied();
        Ok(json_reply(StatusCode::OK, &DatasetStatus { name, info, parts, copied }, None))
    }

    /// Replies with the list of all datasets.
    pub async fn list(&self, request: &Request<Incoming>) -> HttpResult {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return Err(only("GET, HEAD"));
        }
        let all = self.listed().await.map_err(|error| unavailable(&error))?;
        Ok(json_reply(StatusCode::OK, &json!({ "datasets": *all }), None))
    }

    /// Serves a gateway's query of one part.
    async fn part(
        &self,
        served: &Arc<Served>,
        path: &str,
        request: Request<Incoming>,
    ) -> HttpResult {
        if !matches!(*request.method(), Method::GET | Method::POST) {
            return Err(only("GET, POST"));
        }
        let (part, rest) = path.split_once('/').ok_or_else(nothing_here)?;
        let view = same_version(served, request.headers()).await?.ok_or_else(another_version)?;
        let QuestionText { rest, query } = question_text(rest, request, self.pace).await?;
        let ask =
            Ask::parse(&rest, &query, view.dataset.manifest()).map_err(|error| bad(&error))?;
        let ask = ask.ok_or_else(nothing_here)?;
        let mut seen = self.lane.received(ask.operation(), served.name().as_bytes());
        let local = Local { view };
        match local.serve(part, &ask).await {
            Ok((answer, stages)) => {
                seen.outcome = Outcome::Shard;
                seen.stages = Some(stages);
                let mut response = reply(&local.view, answer, seen, &ask)?;
                let to = response.headers_mut();
                let length = HeaderValue::from(stages.length_left);
                to.insert(headers::QUEUE_LENGTH.clone(), length.clone());
                to.insert(headers::NODE_LENGTH.clone(), length);
                // Every one of a shard's nodes holds it: all bits are set.
                let warm = (1_u16 << self.replicas) - 1;
                to.insert(headers::WARM.clone(), HeaderValue::from(warm));
                Ok(response)
            }
            Err(problem) => Err(problem.with_record(seen)),
        }
    }

    fn parts(&self, view: &View) -> Vec<PartStatus> {
        let manifest = view.dataset.manifest();
        let shards = manifest.shards.iter().map(|shard| {
            let name = part_of(&shard.file);
            let part = view.part(name);
            (
                name.to_owned(),
                shard.records,
                shard.file_bytes,
                part.map(|part| summary_of_layers(part)),
            )
        });
        let info = view.dataset.info();
        let log = (LOG.to_owned(), info.in_log, view.dataset.log_bytes() as u64, None);
        shards
            .chain([log])
            .map(|(part, records, file_bytes, layers)| {
                let station = view.stations.get(&part);
                PartStatus {
                    queue_length: station.map_or(0, |station| station.length()),
                    queue_length_average: station.and_then(|s| self.layers.average(s)),
                    part,
                    records,
                    file_bytes,
                    layers,
                }
            })
            .collect()
    }

    fn layers_of(&self, served: &Arc<Served>, request: &Request<Incoming>) -> HttpResult {
        match *request.method() {
            Method::GET => {}
            Method::PUT => {
                let given = pairs(request.uri().query().unwrap_or(""));
                let wrong = || {
                    let what = "give bytes=N for a fixed size, or bytes=auto to let the queue \
                                lengths decide";
                    Problem::new(StatusCode::BAD_REQUEST, what)
                };
                let [(name, value)] = given.as_slice() else { return Err(wrong()) };
                let value = text(name, value).map_err(|error| bad(&error))?;
                match (name.as_str(), value) {
                    ("bytes", "auto") => served.set_fixed_bytes(None),
                    ("bytes", bytes) => {
                        served.set_fixed_bytes(Some(bytes.parse().map_err(|_| wrong())?));
                    }
                    _ => return Err(wrong()),
                }
            }
            _ => return Err(only("GET, PUT")),
        }
        let view = served.view().ok_or_else(|| no_dataset(served.name()))?;
        let status = json!({
            "parts": self.parts(&view),
            "budget_bytes": self.layers.budget_bytes(),
            "fixed_bytes": served.fixed_bytes(),
            "changes": self.layers.changes(),
        });
        Ok(json_reply(StatusCode::OK, &status, None))
    }

    /// Serves a request that appends, deletes, seals or drops.
    pub async fn change(
        &self,
        served: &Arc<Served>,
        rest: &str,
        request: Request<Incoming>,
    ) -> HttpResult {
        let (method, query) = (request.method().clone(), request.uri().query().map(str::to_owned));
        match (method, rest) {
            (Method::POST, "records") => {
                let seen = self.lane.received(Operation::Append, served.name().as_bytes());
                // Held until the chunk is written, because the chunk is a second copy of the bytes.
                let room = match self.room(request.headers()) {
                    Ok(room) => room,
                    Err(problem) => return Err(problem.with_record(seen)),
                };
                let limit = BodyLimit { of: "an append", bytes: APPEND_BYTES_MAX };
                let body = match gather(request.into_body(), self.pace, limit).await {
                    Ok(body) => body,
                    Err(problem) => return Err(problem.with_record(seen)),
                };
                let done = served
                    .append(body, Some(room))
                    .await
                    .map(|Changed { first_id, records, .. }| Done::Appended { first_id, records });
                changed(done, seen)
            }
            (Method::DELETE, "records") => {
                let seen = self.lane.received(Operation::Delete, served.name().as_bytes());
                let ids = match ids(query.as_deref().unwrap_or("")) {
                    Ok(ids) => ids,
                    Err(error) => return Err(bad(&error).with_record(seen)),
                };
                let room = match self.room_of(ids.len().saturating_mul(DELETION_BYTES)) {
                    Ok(room) => room,
                    Err(problem) => return Err(problem.with_record(seen)),
                };
                let done = served.delete(ids, Some(room)).await;
                changed(
                    done.map(|Changed { records, .. }| Done::Deleted { deleted: records }),
                    seen,
                )
            }
            (Method::POST, "seal") => {
                let served = served.clone();
                // In a task of its own, so that a client that disconnects does not cancel the seal.
                match tokio::spawn(async move { served.seal().await }).await {
                    Ok(Ok(sealed)) => {
                        Ok(json_reply(StatusCode::OK, &json!({ "sealed": sealed }), None))
                    }
                    Ok(Err(error)) => Err(unavailable(&error)),
                    Err(error) => Err(unavailable(&error.into())),
                }
            }
            (Method::DELETE, "") => drop_dataset(served).await,
            (_, "") => Err(only("GET, HEAD, DELETE")),
            (_, "records") => Err(only("GET, HEAD, POST, DELETE")),
            (_, "seal" | "search") => Err(only("POST")),
            (_, "count") => Err(only("GET, HEAD, POST")),
            _ => Err(only("GET, HEAD")),
        }
    }
}

impl Datasets {
    /// How long a silent client is waited for.
    pub fn pace(&self) -> Pace {
        self.pace
    }

    /// Reserves memory for an append: its `Content-Length`, or [`APPEND_BYTES_MAX`] without one.
    ///
    /// # Errors
    ///
    /// 503 if the appends in progress leave too little.
    fn room(&self, headers: &HeaderMap) -> Result<Reserved, Problem> {
        let said = headers.get(CONTENT_LENGTH).and_then(|said| said.to_str().ok()?.parse().ok());
        self.room_of(said.unwrap_or(APPEND_BYTES_MAX).min(APPEND_BYTES_MAX))
    }

    /// Reserves memory for a change.
    fn room_of(&self, bytes: usize) -> Result<Reserved, Problem> {
        self.appends.take(bytes).ok_or_else(|| {
            let what = format!(
                "no memory for this change: those in progress may use {APPENDS_BYTES_MAX} bytes; \
                 try again later"
            );
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, &what)
                .with(RETRY_AFTER, HeaderValue::from_static("1"))
        })
    }
}

/// Removes a dataset from the origin.
async fn drop_dataset(served: &Arc<Served>) -> HttpResult {
    let served = served.clone();
    // In a task of its own, so that a client that disconnects does not leave its files there.
    let dropped = tokio::spawn(async move {
        let dropped = served.remote.drop_all().await?;
        served.refresh().await?;
        Ok::<_, Error>(dropped)
    });
    match dropped.await.map_err(Into::into).and_then(|dropped| dropped) {
        Ok(dropped) => Ok(json_reply(StatusCode::OK, &json!({ "dropped": dropped }), None)),
        Err(error) => Err(unavailable(&error)),
    }
}

/// Whether the query string has `partial=true`: the answer may lack parts.
pub fn is_partial(query: &str) -> bool {
    pairs(query).iter().any(|(name, value)| name == "partial" && value == b"true")
}

/// 404 Not Found: names the paths that exist below a dataset.
pub fn nothing_here() -> Problem {
    let what = "there is nothing here; the paths below a dataset are records, records/ID, search, count, \
                extract, export, layers and seal";
    Problem::new(StatusCode::NOT_FOUND, what)
}

fn changed(done: Result<Done>, mut seen: RequestRecord) -> HttpResult {
    match done {
        Ok(done) => {
            seen.outcome = Outcome::Origin;
            Ok(json_reply(StatusCode::OK, &done, Some(seen)))
        }
        Err(error) => {
            let problem = if matches!(error, Error::Unwritten(_) | Error::Replaced) {
                unavailable(&error)
            } else {
                bad(&error)
            };
            Err(problem.with_record(seen))
        }
    }
}

/// 412 Precondition Failed: gateway and node know different versions of the dataset.
fn another_version() -> Problem {
    let what = "this node has another version of the dataset; compare with the origin";
    Problem::new(StatusCode::PRECONDITION_FAILED, what)
}

/// The view of the version that a gateway's request names: deletions of later chunks are left out.
/// `None` if this node's version still differs after a comparison with the origin.
async fn same_version(
    served: &Arc<Served>,
    headers: &HeaderMap,
) -> Result<Option<Arc<View>>, Problem> {
    let (Some(etag), Some(chunk)) = (headers.get(&headers::VIEW), headers.get(&headers::CHUNK))
    else {
        let what = format!(
            "a request for a part needs the headers {} and {}",
            headers::VIEW,
            headers::CHUNK
        );
        return Err(Problem::new(StatusCode::BAD_REQUEST, &what));
    };
    let chunk: Option<u64> = chunk.to_str().ok().and_then(|chunk| chunk.parse().ok());
    let Some(chunk) = chunk else { return Ok(None) };
    let Ok(etag) = etag.to_str() else { return Ok(None) };
    let as_of = |view: Arc<View>| {
        let (last_chunk, etag_here) = (view.dataset.last_chunk(), view.current.etag.to_string());
        let held = DatasetVersion { etag: &etag_here, last_chunk };
        match serves(held, DatasetVersion { etag, last_chunk: chunk }) {
            Serves::Not => None,
            Serves::Now => Some(view),
            Serves::AsOf => {
                let dataset = view.dataset.shards_as_of(chunk);
                Some(Arc::new(View { dataset, ..View::clone(&view) }))
            }
        }
    };
    if let Some(view) = served.view().and_then(as_of) {
        return Ok(Some(view));
    }
    served.refresh().await.map_err(|error| unavailable(&error))?;
    Ok(served.view().and_then(as_of))
}
