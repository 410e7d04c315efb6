//! Writes: to the key's primary, streamed; sent again only if nothing was done.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use engine::gateway::{Action, AttemptId, Failed, Operation, Status};
use engine::route::NodeId;
use http::{HeaderValue, Method, StatusCode};
use hyper::body::Incoming;
use model::window::Nanos;

use super::super::body::{Budget, GivenAt, Upload};
use super::super::headers::NOT_AFTER_NS;
use super::super::http::Problem;
use super::super::objects::origin_problem;
use super::Access;
use super::attempt::{Answer, Failure, GATHERED_BYTES_MAX, failure_of};
use super::drive::Mailbox;
use super::read::{Asking, Refused};
use super::wanted::Wanted;
use crate::peer::{Fault, Outgoing};
use origin::{BoxFuture, Chunks, Error};
use record::clock;

/// How long an upload may take that is not gathered first: its pieces and the node are timed, not it.
const UPLOAD_MAX: Nanos = 24 * 3600 * 1_000_000_000;

/// What is sent.
pub enum Source {
    /// All there: it can be sent again.
    Whole(Bytes),
    /// From the client as it comes.
    Stream(Streamed),
}

/// An upload that knows whether any of it was taken.
pub struct Streamed {
    /// What was gathered before it was known to be long.
    begun: Bytes,
    upload: Upload,
    given_at: GivenAt,
    taken: bool,
    failed: Option<Error>,
}

impl Chunks for Streamed {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        self.taken = true;
        let begun = std::mem::take(&mut self.begun);
        Box::pin(async move {
            if !begun.is_empty() {
                return Some(Ok(begun));
            }
            let next = self.upload.next().await;
            if let Some(Err(error)) = &next {
                self.failed = Some(error.clone());
            }
            next
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        self.upload.bytes_left().map(|left| left + self.begun.len() as u64)
    }
}

impl Source {
    /// The body of a request; a small one is gathered.
    pub async fn of(incoming: Incoming, idle: Duration) -> Result<Source, Problem> {
        // No copy is kept: that is for a node's tiers.
        let mut upload = Upload::new(incoming, idle, 0, Budget::new(0));
        let stream = |begun: Bytes, upload: Upload| {
            let given_at = upload.given_at();
            Source::Stream(Streamed { begun, upload, given_at, taken: false, failed: None })
        };
        // One that does not say its length is gathered until it shows to be long: only what is gathered can be
        // dated, and sent again.
        if upload.bytes_left().is_some_and(|bytes| bytes > GATHERED_BYTES_MAX) {
            return Ok(stream(Bytes::new(), upload));
        }
        let mut all = BytesMut::new();
        let mut first = Bytes::new();
        while let Some(piece) = upload.next().await {
            let piece = piece.map_err(|error| origin_problem(&error))?;
            if first.is_empty() && all.is_empty() {
                first = piece;
                continue;
            }
            if all.is_empty() {
                let left = upload.bytes_left().unwrap_or(0) as usize;
                all.reserve(first.len() + piece.len() + left);
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
            if all.len() as u64 > GATHERED_BYTES_MAX {
                return Ok(stream(all.freeze(), upload));
            }
        }
        Ok(Source::Whole(if all.is_empty() { first } else { all.freeze() }))
    }

    fn is_taken(&self) -> bool {
        matches!(self, Source::Stream(streamed) if streamed.taken)
    }

    /// Takes what the client still sends, so that it reads its answer.
    async fn discard(self) {
        if let Source::Stream(streamed) = self {
            streamed.upload.discard().await;
        }
    }
}

/// Why a write has no answer of a node's.
pub enum NotWritten {
    /// The engine refused it.
    Refused(Refused),
    /// The upload failed, or cannot be sent again.
    Problem(Problem),
}

/// Writes; the engine's request is over when it returns.
pub async fn write(
    access: &Arc<Access>,
    wanted: &Wanted,
    mut source: Source,
    patience: Nanos,
    said: bool,
) -> Result<Answer, NotWritten> {
    let long = matches!(source, Source::Stream(_)) && !said;
    let deadline = clock::now().saturating_add(if long { UPLOAD_MAX } else { patience });
    let mut asking = Asking::begin(access, &wanted.key, Operation::Write, deadline);
    let result = decide(access, wanted, &mut source, &mut asking, long).await;
    if result.is_err() {
        source.discard().await;
    }
    result
}

async fn decide(
    access: &Arc<Access>,
    wanted: &Wanted,
    source: &mut Source,
    asking: &mut Asking,
    long: bool,
) -> Result<Answer, NotWritten> {
    let (mut words, mut tried) = (None, false);
    loop {
        let action = match asking.todo.pop_front() {
            Some(action) => action,
            None => next(&asking.mailbox).await,
        };
        let (attempt, node, deadline) = match action {
            Action::Send { attempt, node, deadline, .. } => (attempt, node, deadline),
            Action::Refuse { why, .. } => {
                asking.is_over();
                return Err(NotWritten::Refused(Refused { why, words, tried }));
            }
            _ => continue,
        };
        tried = true;
        let left = (!long).then(|| deadline.saturating_sub(clock::now()));
        let mailbox = asking.mailbox.clone();
        let sent = {
            let sending = pin!(send(access, wanted, source, node, left));
            let mut unless = pin!(dropped(&mailbox, attempt));
            tokio::select! {
                biased;
                sent = sending => Ok(sent),
                refused = &mut unless => Err(refused),
            }
        };
        match sent {
            Ok(Ok(answer)) => {
                let mut head = answer.head();
                let again = matches!(head.status, Status::Misdirected);
                if again && source.is_taken() {
                    head.status = Status::Final;
                }
                words = access.named_words(&answer).or(words);
                if asking.answered(attempt, head, true) {
                    if again {
                        return Err(NotWritten::Problem(moved()));
                    }
                    return Ok(answer);
                }
            }
            Ok(Err(NotSent::Upload(problem))) => return Err(NotWritten::Problem(problem)),
            Ok(Err(NotSent::Failed((why, what)))) => {
                words = Some(what);
                asking.failed(attempt, why);
            }
            Err(Some(refused)) => asking.todo.push_back(refused),
            Err(None) => {}
        }
    }
}

fn moved() -> Problem {
    let what = "the order of the key's writes moved to another node while this one was sent; nothing \
        was written: send it again";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, what)
        .with(http::header::RETRY_AFTER, HeaderValue::from_static("1"))
}

async fn next(mailbox: &Mailbox) -> Action {
    std::future::poll_fn(|context| mailbox.poll(context)).await
}

/// The end of a try that the engine decides: with a refusal, or to be sent anew.
async fn dropped(mailbox: &Mailbox, attempt: AttemptId) -> Option<Action> {
    loop {
        match next(mailbox).await {
            Action::Cancel { attempt: of } if of == attempt => return None,
            action @ Action::Refuse { .. } => return Some(action),
            _ => {}
        }
    }
}

enum NotSent {
    Failed(Failure),
    Upload(Problem),
}

async fn send(
    access: &Access,
    wanted: &Wanted,
    source: &mut Source,
    node: NodeId,
    left: Option<Nanos>,
) -> Result<Answer, NotSent> {
    let name = access.name(node);
    let Some(pool) = access.pools.get(node) else {
        return Err(NotSent::Failed((Failed::Connect, "there is no such node".to_owned())));
    };
    let mut headers = wanted.headers(None, left);
    // What the network or a node that stands still holds back must not happen after later writes.
    let not_after = left.and_then(|left| access.not_after(node, left));
    headers.extend(not_after.map(|at| (NOT_AFTER_NS.clone(), HeaderValue::from(at))));
    let given_at = match source {
        Source::Stream(streamed) => Some(streamed.given_at.clone()),
        Source::Whole(_) => None,
    };
    let sent = {
        let body = match source {
            Source::Whole(_) if wanted.method == Method::DELETE => Outgoing::Empty,
            Source::Whole(bytes) => Outgoing::Bytes(bytes.clone()),
            Source::Stream(streamed) => Outgoing::Stream(streamed),
        };
        let sending = pin!(async {
            let reply = pool.send(&wanted.method, &wanted.path, &headers, body).await?;
            Answer::of(node, reply).await
        });
        unless_stalled(sending, given_at, access.deadline).await
    };
    match sent {
        Ok(answer) => Ok(answer),
        Err(Fault::Request(what)) => {
            let failed = match source {
                Source::Stream(streamed) => streamed.failed.take(),
                Source::Whole(_) => None,
            };
            let error = failed.unwrap_or(Error::Upload(what));
            Err(NotSent::Upload(origin_problem(&error)))
        }
        Err(fault) => Err(NotSent::Failed(failure_of(&fault, name))),
    }
}

/// However long the client takes with its upload, the node must take each piece, and answer the last,
/// in time.
async fn unless_stalled(
    mut sending: std::pin::Pin<&mut impl Future<Output = Result<Answer, Fault>>>,
    given_at: Option<GivenAt>,
    timeout: Duration,
) -> Result<Answer, Fault> {
    let Some(given_at) = given_at else { return sending.await };
    loop {
        if let Ok(result) = tokio::time::timeout(timeout, &mut sending).await {
            return result;
        }
        let given = given_at.load(std::sync::atomic::Ordering::Relaxed);
        let stalled = clock::now().saturating_sub(given);
        if given > 0 && u128::from(stalled) >= timeout.as_nanos() {
            return Err(Fault::Broken(std::io::ErrorKind::TimedOut.into()));
        }
    }
}
