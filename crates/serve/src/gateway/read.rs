//! Reads: as many tries as the engine decides, polled in the request's own task.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use engine::gateway::{Action, AttemptId, Event, Failed, Operation, Refusal, RequestId};
use engine::route::NodeId;
use model::window::Nanos;

use super::Access;
use super::attempt::{Answer, Body, Failure, from_node, from_origin};
use super::drive::{Decided, Mailbox};
use super::wanted::Wanted;

type Trying<'a> = Pin<Box<dyn Future<Output = Result<Answer, Failure>> + Send + 'a>>;

/// Why there is no answer: what the engine says, and the words of the last node that had any.
pub struct Refused {
    pub why: Refusal,
    pub words: Option<String>,
    /// Whether anything was tried.
    pub tried: bool,
}

/// A request that the engine knows of. Dropped before it is over, its client left, or what was relayed
/// has ended.
pub struct Asking {
    access: Arc<Access>,
    pub request: RequestId,
    pub mailbox: Arc<Mailbox>,
    pub todo: VecDeque<Action>,
    over: bool,
}

impl Asking {
    /// Tells the engine of a request.
    pub fn begin(
        access: &Arc<Access>,
        key: &engine::Key,
        operation: Operation,
        deadline: Nanos,
    ) -> Asking {
        let request = access.drive.name();
        let mailbox = Arc::new(Mailbox::default());
        let event = Event::Request { request, key: key.clone(), operation, deadline };
        let decided = access.drive.begin(request, event, &mailbox);
        let mut asking =
            Asking { access: access.clone(), request, mailbox, todo: VecDeque::new(), over: false };
        asking.take(decided);
        asking
    }

    fn take(&mut self, decided: Decided) {
        self.todo.extend(decided.own);
        self.access.ping_all(decided.pings);
    }

    /// Tells of a failure.
    pub fn failed(&mut self, attempt: AttemptId, why: Failed) {
        let event = Event::Failed { attempt, why };
        let decided = self.access.drive.tell(Some(self.request), event);
        self.take(decided);
    }

    /// Tells of an answer; says whether the engine takes it as the request's. One that is whole is over
    /// then.
    pub fn answered(
        &mut self,
        attempt: AttemptId,
        head: engine::gateway::Head,
        whole: bool,
    ) -> bool {
        let decided = self.access.drive.answered(self.request, attempt, head, whole);
        self.take(decided);
        let relay = |a: &Action| matches!(a, Action::Relay { attempt: of, .. } if *of == attempt);
        let chosen = self.todo.iter().any(relay);
        self.over |= chosen && whole;
        chosen
    }

    /// The engine has forgotten the request.
    pub fn is_over(&mut self) {
        self.over = true;
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if !self.over {
            let event = Event::Over { request: self.request };
            let decided = self.access.drive.tell(Some(self.request), event);
            self.access.ping_all(decided.pings);
        }
    }
}

enum News {
    Action(Action),
    Ended(AttemptId, Result<Answer, Failure>),
}

/// Tries until there is an answer. `broke`: nodes that are not to be asked. The [`Asking`] stands for the
/// relay of an answer that is not whole, and is to be dropped at its end.
pub async fn read(
    access: &Arc<Access>,
    wanted: &Wanted,
    deadline: Nanos,
    broke: &[NodeId],
) -> Result<(Answer, Option<Asking>), Refused> {
    let mut asking = Asking::begin(access, &wanted.key, Operation::Read, deadline);
    let mut tries: Vec<(AttemptId, Trying<'_>)> = Vec::with_capacity(2);
    let (mut words, mut tried) = (None, false);
    loop {
        let news = match asking.todo.pop_front() {
            Some(action) => News::Action(action),
            None => next(&asking.mailbox, &mut tries).await,
        };
        match news {
            News::Action(Action::Send { attempt, node, .. }) if broke.contains(&node) => {
                asking.failed(attempt, Failed::Broken);
            }
            News::Action(Action::Send { attempt, node, avoid, deadline, .. }) => {
                tried = true;
                let sent = from_node(access, wanted, node, avoid, deadline);
                tries.push((attempt, Box::pin(sent)));
            }
            News::Action(Action::Origin { attempt, .. }) => {
                tried = true;
                tries.push((attempt, Box::pin(from_origin(access, wanted))));
            }
            News::Action(Action::Cancel { attempt }) => tries.retain(|(name, _)| *name != attempt),
            News::Action(Action::Refuse { why, .. }) => {
                asking.is_over();
                return Err(Refused { why, words, tried });
            }
            News::Action(Action::Relay { .. } | Action::Ping { .. }) => {}
            News::Ended(attempt, Ok(answer)) => {
                let whole = matches!(answer.body, Body::Whole(_));
                if asking.answered(attempt, answer.head(), whole) {
                    return Ok((answer, (!whole).then_some(asking)));
                }
                words = access.named_words(&answer).or(words);
            }
            News::Ended(attempt, Err((why, what))) => {
                words = Some(what);
                asking.failed(attempt, why);
            }
        }
    }
}

async fn next(mailbox: &Mailbox, tries: &mut Vec<(AttemptId, Trying<'_>)>) -> News {
    poll_fn(|context| {
        if let Poll::Ready(action) = mailbox.poll(context) {
            return Poll::Ready(News::Action(action));
        }
        for at in 0..tries.len() {
            if let Poll::Ready(result) = tries[at].1.as_mut().poll(context) {
                let (attempt, _) = tries.swap_remove(at);
                return Poll::Ready(News::Ended(attempt, result));
            }
        }
        Poll::Pending
    })
    .await
}
