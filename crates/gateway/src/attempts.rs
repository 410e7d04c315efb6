//! Carries out a request's attempts, as `engine::gateway` decides them.
//!
//! All attempts of a request are futures within the request's own task; dropping one closes its
//! connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use engine::gateway::{Action, AttemptId, Failed, Operation, Refusal, Status};
use engine::node;
use engine::route::NodeId;
use ground::Key;
use ground::window::Nanos;
use record::clock;

use super::backend::{Backend, Body as _, Failure, NotSent, Reply as _};
use super::drive::Mailbox;
use super::pending::Pending;
use super::router::Router;

/// How an attempt ends.
pub type Attempt<'a, R> = Pin<Box<dyn Future<Output = Result<R, Failure>> + Send + 'a>>;

/// Why a request has no reply.
pub struct Refused {
    /// The engine's reason.
    pub why: Refusal,
    /// The last failure that a server reported, or that of the origin if it is for good.
    pub failure: Option<node::Failure>,
    /// Whether any server was tried.
    pub tried: bool,
}

/// The failure that a request without a reply is told: the later one, unless the origin has failed for good, which the failure of
/// another server does not change.
fn later(failed: Option<node::Failure>, next: Option<node::Failure>) -> Option<node::Failure> {
    match failed {
        Some(known) if known.kind.is_final() => Some(known),
        known => next.or(known),
    }
}

/// A reply with what is to be kept until its body has been relayed.
pub type ReadOutcome<B> = Result<(<B as Backend>::Reply, Option<Pending<B>>), Refused>;

/// Why a write has no reply of a server's.
pub enum NotWritten<E> {
    /// The engine refused it.
    Refused(Refused),
    /// The client's body failed.
    Body(E),
    /// The order of the key's writes moved to another server after some of the body was sent, which
    /// cannot be sent again. Nothing was written.
    Moved,
}

enum News<R> {
    Action(Action),
    Ended(AttemptId, Option<NodeId>, Result<R, Failure>),
}

/// An attempt under way: its name, its server (`None`: the origin), and its end.
pub type UnderWay<'a, R> = (AttemptId, Option<NodeId>, Attempt<'a, R>);

struct Attempts<'a, R>(Vec<UnderWay<'a, R>>);

impl<R> Attempts<'_, R> {
    /// Waits for an action of the engine's, or the end of an attempt.
    async fn next(&mut self, mailbox: &Mailbox) -> News<R> {
        poll_fn(|context| {
            if let Poll::Ready(action) = mailbox.poll(context) {
                return Poll::Ready(News::Action(action));
            }
            for at in 0..self.0.len() {
                if let Poll::Ready(result) = self.0[at].2.as_mut().poll(context) {
                    let (attempt, node, _) = self.0.swap_remove(at);
                    return Poll::Ready(News::Ended(attempt, node, result));
                }
            }
            Poll::Pending
        })
        .await
    }
}

impl<B: Backend> Router<B> {
    /// Reads: tries servers as the engine decides until one replies.
    ///
    /// `broken` are servers that are not tried again. The [`Pending`] comes with a reply that is
    /// not whole: the caller keeps it until the body has been relayed.
    pub async fn read(
        self: &Arc<Self>,
        key: &Key,
        request: &B::Request,
        deadline: Nanos,
        broken: &[NodeId],
    ) -> ReadOutcome<B> {
        let pending = Pending::begin(self, key, Operation::Read, clock::now(), deadline);
        self.read_on(pending, None, request, broken).await
    }

    /// As [`Router::read`], for a read that the engine knows and whose attempt may be under way.
    pub async fn read_on<'a>(
        self: &'a Arc<Self>,
        mut pending: Pending<B>,
        under_way: Option<UnderWay<'a, B::Reply>>,
        request: &'a B::Request,
        broken: &[NodeId],
    ) -> ReadOutcome<B> {
        let mut attempts = Attempts(Vec::with_capacity(2));
        let (mut failed, mut tried) = (None, under_way.is_some());
        attempts.0.extend(under_way);
        loop {
            let news = match pending.todo.pop_front() {
                Some(action) => News::Action(action),
                None => attempts.next(&pending.mailbox).await,
            };
            match news {
                News::Action(Action::Send { attempt, node, .. }) if broken.contains(&node) => {
                    pending.failed(attempt, Failed::Broken);
                }
                News::Action(Action::Send { attempt, node, avoid, deadline, .. }) => {
                    tried = true;
                    let sent = self.backend.read(node, request, avoid, deadline);
                    attempts.0.push((attempt, Some(node), Box::pin(sent)));
                }
                News::Action(Action::Origin { attempt, .. }) => {
                    tried = true;
                    let sent = self.backend.read_origin(request);
                    attempts.0.push((attempt, None, Box::pin(sent)));
                }
                News::Action(Action::Cancel { attempt }) => {
                    attempts.0.retain(|(name, ..)| *name != attempt);
                }
                News::Action(Action::Refuse { why, .. }) => {
                    pending.end();
                    return Err(Refused { why, failure: failed, tried });
                }
                News::Action(Action::Relay { .. } | Action::Ping { .. }) => {}
                News::Ended(attempt, node, Ok(reply)) => {
                    let whole = reply.is_whole();
                    if pending.replied(attempt, reply.head(), whole) {
                        return Ok((reply, (!whole).then_some(pending)));
                    }
                    failed = later(failed, self.named_failure(node, &reply));
                }
                News::Ended(attempt, node, Err(failure)) => {
                    if let Some(node) = node {
                        self.drive.note_failure(node, failure.reason.clone());
                    }
                    failed = later(failed, Some(node::Failure::unavailable(failure.reason)));
                    pending.failed(attempt, failure.kind);
                }
            }
        }
    }

    /// Writes: sends `body` to the key's primary, again only if nothing was done.
    ///
    /// With `streamed` the client's pace bounds the upload instead of the deadline. The engine's
    /// request is over when this returns.
    pub async fn write(
        self: &Arc<Self>,
        key: &Key,
        request: &B::Request,
        body: &mut B::Body,
        deadline: Nanos,
        streamed: bool,
    ) -> Result<(B::Reply, Option<NodeId>), NotWritten<B::BodyError>> {
        let mut pending = Pending::begin(self, key, Operation::Write, clock::now(), deadline);
        let (mut failed, mut tried) = (None, false);
        loop {
            let action = match pending.todo.pop_front() {
                Some(action) => action,
                None => next(&pending.mailbox).await,
            };
            let (attempt, node, deadline, epoch) = match action {
                Action::Send { attempt, node, deadline, epoch, .. } => {
                    (attempt, node, deadline, epoch)
                }
                Action::Refuse { why, .. } => {
                    pending.end();
                    return Err(NotWritten::Refused(Refused { why, failure: failed, tried }));
                }
                _ => continue,
            };
            tried = true;
            let left = (!streamed).then(|| deadline.saturating_sub(clock::now()));
            let mailbox = pending.mailbox.clone();
            let sent = {
                let sending = pin!(self.backend.write(node, request, body, left, epoch));
                let mut cancelled = pin!(cancelled(&mailbox, attempt));
                tokio::select! {
                    biased;
                    sent = sending => Ok(sent),
                    refused = &mut cancelled => Err(refused),
                }
            };
            match sent {
                Ok(Ok(reply)) => {
                    let mut head = reply.head();
                    let moved = matches!(head.status, Status::Misdirected);
                    // What the client sent is gone: another server cannot be tried.
                    if moved && body.is_consumed() {
                        head.status = Status::Final;
                    }
                    failed = later(failed, self.named_failure(Some(node), &reply));
                    if pending.replied(attempt, head, true) {
                        return if moved {
                            Err(NotWritten::Moved)
                        } else {
                            Ok((reply, Some(node)))
                        };
                    }
                }
                Ok(Err(NotSent::Body(error))) => return Err(NotWritten::Body(error)),
                Ok(Err(NotSent::Failed(failure))) => {
                    self.drive.note_failure(node, failure.reason.clone());
                    failed = later(failed, Some(node::Failure::unavailable(failure.reason)));
                    pending.failed(attempt, failure.kind);
                }
                Err(Some(refused)) => pending.todo.push_back(refused),
                Err(None) => {}
            }
        }
    }
}

async fn next(mailbox: &Mailbox) -> Action {
    poll_fn(|context| mailbox.poll(context)).await
}

/// Waits until the engine ends an attempt: with the refusal, or `None` if it is to be sent anew.
async fn cancelled(mailbox: &Mailbox, attempt: AttemptId) -> Option<Action> {
    loop {
        match next(mailbox).await {
            Action::Cancel { attempt: of } if of == attempt => return None,
            action @ Action::Refuse { .. } => return Some(action),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::node::FailureKind;

    use super::*;

    #[test]
    fn a_failure_for_good_is_told_whatever_others_report() {
        let passing = || Some(node::Failure::unavailable("b: refused"));
        let damaged =
            || Some(node::Failure { kind: FailureKind::Damaged, reason: "a: checksum".to_owned() });
        for (failed, next, told) in [
            (None, None, None),
            (None, passing(), passing()),
            (passing(), None, passing()),
            (passing(), damaged(), damaged()),
            (damaged(), passing(), damaged()),
        ] {
            assert_eq!(later(failed, next), told);
        }
    }
}
