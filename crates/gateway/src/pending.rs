//! A request that the engine knows of.

use std::collections::VecDeque;
use std::sync::Arc;

use engine::gateway::{Action, AttemptId, Event, Failed, Head, Operation, RequestId};
use ground::window::Nanos;
use record::clock;

use super::backend::Backend;
use super::drive::{Decided, Mailbox};
use super::router::Router;

/// A request under way. Dropping it tells the engine that the request is over: its client left, or
/// the relay of its reply ended.
pub struct Pending<B: Backend> {
    router: Arc<Router<B>>,
    request: RequestId,
    /// Actions that other requests' events caused for this one.
    pub mailbox: Arc<Mailbox>,
    /// Actions to carry out before waiting for the mailbox.
    pub todo: VecDeque<Action>,
    over: bool,
}

impl<B: Backend> Pending<B> {
    /// Tells the engine of a request that came `now` and waits until `deadline`.
    pub fn begin(
        router: &Arc<Router<B>>,
        key: &ground::Key,
        operation: Operation,
        now: Nanos,
        deadline: Nanos,
    ) -> Pending<B> {
        let request = router.drive.name();
        let mailbox = Arc::new(Mailbox::default());
        let event = Event::Request { request, key: key.clone(), operation, deadline };
        let decided = router.drive.begin(now, request, event, &mailbox);
        let mut pending = Pending {
            router: router.clone(),
            request,
            mailbox,
            todo: VecDeque::new(),
            over: false,
        };
        pending.take(decided);
        pending
    }

    fn take(&mut self, decided: Decided) {
        if self.todo.is_empty() {
            self.todo = decided.own;
        } else {
            self.todo.extend(decided.own);
        }
        self.router.ping_all(decided.pings);
    }

    /// Reports that an attempt ended without a reply.
    pub fn failed(&mut self, attempt: AttemptId, why: Failed) {
        let event = Event::Failed { attempt, why };
        let decided = self.router.drive.tell(Some(self.request), event);
        self.take(decided);
    }

    /// Reports an attempt's reply. Returns whether the engine chose it as the request's; a chosen
    /// reply that is `whole` ends the request.
    pub fn replied(&mut self, attempt: AttemptId, head: Head, whole: bool) -> bool {
        self.replied_at(clock::now(), attempt, head, whole)
    }

    /// As [`Pending::replied`], at a time that the caller knows.
    pub fn replied_at(&mut self, now: Nanos, attempt: AttemptId, head: Head, whole: bool) -> bool {
        let decided = self.router.drive.attempt_answered(now, self.request, attempt, head, whole);
        self.take(decided);
        let relay = |a: &Action| matches!(a, Action::Relay { attempt: of, .. } if *of == attempt);
        let chosen = self.todo.iter().any(relay);
        self.over |= chosen && whole;
        chosen
    }

    /// Notes that the engine has forgotten the request.
    pub fn end(&mut self) {
        self.over = true;
    }
}

impl<B: Backend> Drop for Pending<B> {
    fn drop(&mut self) {
        if !self.over {
            let event = Event::Over { request: self.request };
            let decided = self.router.drive.tell(Some(self.request), event);
            self.router.ping_all(decided.pings);
        }
    }
}
