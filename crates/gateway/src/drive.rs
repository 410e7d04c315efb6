//! Drives the engine's gateway: passes events in and distributes the resulting actions to requests.
//!
//! One mutex guards the gateway, as in the node's driver. A gateway per thread was rejected: each
//! thread would then have its own knowledge of the nodes' health and load, and its own budgets. A
//! request takes the lock twice, when it arrives and when its reply arrives. Actions for the
//! request that an event concerns are returned; those for other requests go to their mailboxes.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use engine::act::concurrency::Advice;
use engine::gateway::{
    Action, AttemptId, Event, Gateway, GatewayStatus, Head, IntegerHash, RequestId, Settings,
};
use engine::invariant::Invariants;
use engine::route::NodeId;
use ground::window::{Nanos, Window};
use tokio::sync::Notify;

use super::outages::{OutageLog, OutageNews};
use record::clock;

/// Maximum time between two ticks.
const TICK_MAX: Nanos = 1_000_000_000;

type Numbers<T> = HashMap<u64, T, IntegerHash>;

/// Holds the actions for a request that events of other requests caused.
#[derive(Default)]
pub struct Mailbox {
    inside: Mutex<(VecDeque<Action>, Option<Waker>)>,
}

impl Mailbox {
    fn put(&self, action: Action) -> Option<Waker> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.0.push_back(action);
        inside.1.take()
    }

    /// Polls for the next action.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<Action> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(action) = inside.0.pop_front() {
            return Poll::Ready(action);
        }
        if !inside.1.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            inside.1 = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

struct State {
    gateway: Gateway,
    requests: Numbers<Arc<Mailbox>>,
    /// The request of each attempt in progress.
    attempts: Numbers<RequestId>,
    /// By node, why this gateway must not use it.
    misfits: Vec<Option<String>>,
    outages: OutageLog,
    /// Empty: the memory of the last event's actions.
    actions: Vec<Action>,
}

/// The engine's gateway behind its mutex, and the requests that wait for its actions.
pub struct Drive {
    state: Mutex<State>,
    next_request: AtomicU64,
    /// When the timer fires, nanoseconds.
    armed: AtomicU64,
    alarm: Notify,
}

/// The actions that an event caused, for its caller.
#[derive(Default)]
pub struct Decided {
    /// Actions for the request that the event concerns.
    pub own: VecDeque<Action>,
    /// Nodes to ping.
    pub pings: Vec<NodeId>,
}

impl Drive {
    /// A gateway that has not ticked yet.
    pub fn new(settings: Settings, now: Nanos) -> Drive {
        let nodes = settings.ring.members().len();
        Drive {
            state: Mutex::new(State {
                gateway: Gateway::new(settings, now),
                requests: HashMap::default(),
                attempts: HashMap::default(),
                misfits: vec![None; nodes],
                outages: OutageLog::default(),
                actions: Vec::new(),
            }),
            next_request: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            alarm: Notify::new(),
        }
    }

    /// Makes room for further servers.
    pub fn grow(&self, nodes: usize) {
        let misfits = &mut self.lock().misfits;
        if misfits.len() < nodes {
            misfits.resize(nodes, None);
        }
    }

    /// Allocates the id of a new request.
    pub fn name(&self) -> RequestId {
        self.next_request.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic inside the engine means a broken invariant: every later request must fail, rather
        // than be routed by a state that cannot be trusted.
        #[expect(clippy::expect_used, reason = "see above")]
        self.state.lock().expect("the gateway failed")
    }

    /// Begins a request. Actions for it that later events of others cause go to `mailbox`.
    pub fn begin(
        &self,
        now: Nanos,
        request: RequestId,
        event: Event,
        mailbox: &Arc<Mailbox>,
    ) -> Decided {
        let mut state = self.lock();
        state.requests.insert(request, mailbox.clone());
        self.handle(now, state, event, Some(request), false)
    }

    /// Reports an attempt's reply. With `whole`, choosing this reply also ends the request.
    pub fn attempt_answered(
        &self,
        now: Nanos,
        request: RequestId,
        attempt: AttemptId,
        head: Head,
        whole: bool,
    ) -> Decided {
        let event = Event::Answered { attempt, head };
        self.handle(now, self.lock(), event, Some(request), whole)
    }

    /// Reports any other event, which concerns the given request, or (`None`) no request.
    pub fn tell(&self, request: Option<RequestId>, event: Event) -> Decided {
        self.handle(clock::now(), self.lock(), event, request, false)
    }

    fn handle(
        &self,
        now: Nanos,
        mut state: MutexGuard<'_, State>,
        event: Event,
        own: Option<RequestId>,
        whole: bool,
    ) -> Decided {
        let mut actions = std::mem::take(&mut state.actions);
        match &event {
            Event::Answered { attempt, .. } | Event::Failed { attempt, .. } => {
                state.attempts.remove(attempt);
            }
            Event::Over { request } => {
                state.requests.remove(request);
            }
            _ => {}
        }
        state.gateway.handle(now, event, &mut actions);
        let chosen = |action: &Action| matches!(action, Action::Relay { .. });
        if let (true, Some(request), true) = (whole, own, actions.iter().any(chosen)) {
            state.requests.remove(&request);
            state.gateway.handle(now, Event::Over { request }, &mut actions);
        }
        let wake = state.gateway.next_wake();
        let mut decided = Decided::default();
        let mut wakers = Vec::new();
        for action in actions.drain(..) {
            state.deliver(action, own, &mut decided, &mut wakers);
        }
        state.actions = actions;
        // Compared under the lock, under which the next tick is armed: a wake between both would ring for nobody.
        let rings = wake.is_some_and(|wake| wake < self.armed.load(Ordering::Relaxed));
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        if rings {
            self.alarm.notify_one();
        }
        decided
    }

    /// Waits until the next tick is due, then sends the engine a tick.
    pub async fn tick(&self) -> Decided {
        let now = clock::now();
        let wake = {
            let state = self.lock();
            let wake = state.gateway.next_wake().unwrap_or(Nanos::MAX).min(now + TICK_MAX);
            self.armed.store(wake, Ordering::Relaxed);
            wake
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_nanos(wake.saturating_sub(now))) => {}
            () = self.alarm.notified() => {}
        }
        self.tell(None, Event::Tick)
    }

    /// Notes why this gateway must not use a node, or (`None`) that it may. Returns whether this
    /// differs from what was noted before.
    pub fn note(&self, node: NodeId, misfit: Option<String>) -> bool {
        let mut state = self.lock();
        let Some(place) = state.misfits.get_mut(node).filter(|place| **place != misfit) else {
            return false;
        };
        place.clone_from(&misfit);
        // The node answers, and is out of use all the same: this is why.
        if let Some(why) = misfit {
            state.outages.note(node, why);
        }
        true
    }

    /// Notes why an attempt at a node, or a ping, failed.
    pub fn note_failure(&self, node: NodeId, reason: String) {
        self.lock().outages.note(node, reason);
    }

    /// What is to be logged of nodes that failed or answer again.
    pub fn outage_news(&self, now: Nanos) -> Vec<(NodeId, OutageNews)> {
        let mut state = self.lock();
        let State { gateway, outages, .. } = &mut *state;
        outages.look(now, gateway.outages())
    }

    /// The members that do not answer, with the reasons, and the number of all.
    pub fn silent(&self) -> (Vec<(NodeId, String)>, usize) {
        let state = self.lock();
        let members = state.gateway.outages().enumerate();
        let members: Vec<(NodeId, bool)> =
            members.filter_map(|(node, outage)| Some((node, outage?.is_up))).collect();
        let silent = members.iter().filter(|(_, is_up)| !is_up);
        let silent = silent.map(|(node, _)| (*node, state.outages.reason(*node))).collect();
        (silent, members.len())
    }

    /// The engine's status, and by node why this gateway must not use it.
    pub fn status(&self, now: Nanos) -> (GatewayStatus, Vec<Option<String>>) {
        let state = self.lock();
        let mut status = state.gateway.status(now);
        for (node, outage) in state.gateway.outages().enumerate() {
            let silent = outage.filter(|outage| !outage.is_up);
            if let (Some(_), Some(told)) = (silent, status.nodes.get_mut(node)) {
                told.failure = Some(state.outages.reason(node));
            }
        }
        (status, state.misfits.clone())
    }

    /// Where the bound of requests wants to go, and the mean response at it, seconds (NaN if unknown).
    pub fn advice(&self) -> (Option<Advice>, f64) {
        let state = self.lock();
        let response_s = state.gateway.response_at_bound_s();
        (state.gateway.advice(), response_s.filter(|s| *s > 0.0).unwrap_or(f64::NAN))
    }

    /// The version of a node's directory of hot keys that the gateway has.
    pub fn hot_version(&self, node: NodeId) -> u64 {
        self.lock().gateway.hot_version(node)
    }

    /// The broken invariants of the gateway's engine since the start.
    pub fn invariants(&self) -> Invariants {
        self.lock().gateway.invariants()
    }

    /// Number of requests that can still receive actions.
    pub fn mailboxes(&self) -> usize {
        self.lock().requests.len()
    }

    /// The windows that ended by `now`; with `flush`, the current one too.
    pub fn windows(&self, now: Nanos, flush: bool) -> Vec<Window> {
        let mut state = self.lock();
        if flush { state.gateway.flush_windows(now) } else { state.gateway.windows(now) }
    }
}

impl State {
    fn deliver(
        &mut self,
        action: Action,
        own: Option<RequestId>,
        decided: &mut Decided,
        wakers: &mut Vec<Waker>,
    ) {
        let request = match &action {
            Action::Send { request, attempt, .. } | Action::Origin { request, attempt } => {
                self.attempts.insert(*attempt, *request);
                Some(*request)
            }
            Action::Relay { request, .. } | Action::Refuse { request, .. } => Some(*request),
            Action::Cancel { attempt } => self.attempts.remove(attempt),
            Action::Ping { node } => {
                decided.pings.push(*node);
                return;
            }
        };
        if request.is_some() && request == own {
            if matches!(action, Action::Refuse { .. })
                && let Some(request) = request
            {
                self.requests.remove(&request);
            }
            decided.own.push_back(action);
            return;
        }
        let Some(request) = request else { return };
        // A refused request sends no further event, not even `Over`, so its mailbox is removed
        // here.
        let mailbox = match &action {
            Action::Refuse { .. } => self.requests.remove(&request),
            _ => self.requests.get(&request).cloned(),
        };
        wakers.extend(mailbox.and_then(|mailbox| mailbox.put(action)));
    }
}
