//! The gateway's decisions: which node a request goes to, when another node is tried beside or
//! after it, and when the request is refused.
//!
//! A read goes to one of its key's nodes: the first healthy one, or one of those that may hold the
//! object too, chosen by the [`crate::route::Policy`]. If that node fails, the next is tried, and
//! the origin last. If it is slow, another is tried beside it, and the first reply counts. A write
//! goes to the key's primary alone, and is sent again only if nothing was done. Budgets bound all
//! attempts after a request's first, in proportion to the requests, so that the gateway never
//! multiplies a load under which nodes already fail.
//!
//! Events of attempts that are unknown or over are ignored: replies may come late, twice or in any
//! order.

mod event;
mod node;
mod nodes;
mod reads;
mod requests;
mod settings;
mod status;
mod writes;

pub use crate::attempts::AttemptCounts;
pub use crate::route::Hedge;
pub use event::{Action, AttemptId, Event, Failed, Head, Operation, Refusal, RequestId, Status};
pub use settings::{Settings, Spread};
pub use status::{Counts, NodeStatus, Status as GatewayStatus};

use std::collections::HashMap;

use ground::window::{Finished, Nanos, Outcome, QueueName, Recorder, Window, key_hash};
use hashlink::LruCache;

use crate::act::concurrency::{Advice, Concurrency};
use crate::attempts::{Balancer, End, FurtherAttempts};
use crate::invariant::Invariants;
use crate::node::HOT_KEYS_MAX;
use crate::route::{NodeId, View};
use crate::slots::{SLOTS_MAX, Slot};
use ground::Key;
use node::Node;
pub use requests::IntegerHash;
use requests::{Attempt, Phase, Request, Requests, Target};

impl Operation {
    fn recorded(self) -> ground::window::Operation {
        match self {
            Operation::Read => ground::window::Operation::Get,
            Operation::Write => ground::window::Operation::Put,
        }
    }
}

/// An access point's state. See the module.
///
/// `handle` costs some hundred nanoseconds for a request or an answer. Only the failure of a node
/// and a change of the membership look at all requests under way.
pub struct Gateway {
    settings: Settings,
    view: View,
    nodes: Vec<Node>,
    /// When the next ping or ping timeout is due.
    nodes_due: Nanos,
    requests: Requests,
    /// The nodes that hold a key's object, by the key's hash.
    hints: LruCache<u64, u8, IntegerHash>,
    /// The nodes that hold further copies of a key, by the key's hash.
    extras: HashMap<u64, Vec<NodeId>, IntegerHash>,
    further: FurtherAttempts,
    /// The bound of requests under way, where it is found by itself.
    concurrency: Option<Concurrency>,
    origin_attempts: u32,
    balancer: Balancer,
    counts: Counts,
    recorder: Recorder,
    invariants: Invariants,
    /// The latest time of any event.
    now: Nanos,
}

impl Gateway {
    /// A new gateway, which takes all members for live and healthy until it learns otherwise. Send
    /// it [`Event::Tick`] at once: it pings them all.
    pub fn new(mut settings: Settings, now: Nanos) -> Gateway {
        settings.requests_max = settings.requests_max.min(SLOTS_MAX);
        let members = settings.ring.members();
        let queue = match settings.behind_listener {
            true => QueueName::Routing,
            false => QueueName::Gateway,
        };
        Gateway {
            view: View::fixed(members.len()),
            nodes: members.iter().map(|m| Node::new(&m.name, &settings, now)).collect(),
            nodes_due: now,
            requests: Requests::default(),
            extras: HashMap::default(),
            hints: LruCache::with_hasher(settings.hints_max, IntegerHash::default()),
            further: FurtherAttempts::new(
                settings.retry_share,
                settings.retry_burst,
                settings.hedge.as_ref(),
            ),
            concurrency: settings.concurrency.map(Concurrency::new),
            origin_attempts: 0,
            balancer: Balancer::new(settings.seed),
            counts: Counts::default(),
            recorder: Recorder::new(&queue.to_string(), 0, settings.windows.clone(), now),
            invariants: Invariants::default(),
            now,
            settings,
        }
    }

    /// Handles an event that happened at `now` and appends the resulting actions. A time before
    /// that of an earlier event counts as that event's time.
    pub fn handle(&mut self, now: Nanos, event: Event, actions: &mut Vec<Action>) {
        let now = self.now.max(now);
        self.excuse(now);
        self.now = now;
        match event {
            Event::Request { request, key, operation, deadline } => {
                self.request(now, request, &key, operation, deadline, actions);
            }
            Event::Answered { attempt, head } => {
                self.attempt_answered(now, attempt, &head, actions)
            }
            Event::Failed { attempt, why } => self.failed(now, attempt, why, actions),
            Event::Over { request } => self.over(now, request, actions),
            Event::Ponged { node, load, fits } => {
                self.ponged(now, node, load, fits, actions);
            }
            Event::PingFailed { node } => self.ping_failed(now, node, actions),
            Event::HotKeys { node, directory } => self.hot_keys(node, &directory),
            Event::Extras(extras) => {
                self.extras = extras.iter().take(HOT_KEYS_MAX).cloned().collect();
            }
            Event::View(view) => self.viewed(now, view, actions),
            Event::Concurrency(order) => {
                if let Some(concurrency) = &mut self.concurrency {
                    concurrency.order(order);
                }
            }
            Event::Tick => {}
        }
        while let Some(slot) = self.requests.pop_due(now) {
            self.due(now, slot, actions);
        }
        self.run_nodes(now, actions);
    }

    /// The largest number of requests under way now.
    pub fn bound(&self) -> u32 {
        let most = self.settings.requests_max;
        self.concurrency.as_ref().map_or(most, |found| found.bound().min(most))
    }

    /// Mean response while as many requests are under way, seconds; `None` where the bound is fixed.
    pub fn response_at_bound_s(&self) -> Option<f64> {
        self.concurrency.as_ref().map(Concurrency::response_s)
    }

    /// Where the bound that is found by itself wants to go; answer with [`Event::Concurrency`].
    pub fn advice(&self) -> Option<Advice> {
        self.concurrency.as_ref()?.advice()
    }

    /// When to send [`Event::Tick`] if no other event comes first.
    pub fn next_wake(&self) -> Option<Nanos> {
        let due = self.requests.first_due().unwrap_or(Nanos::MAX).min(self.nodes_due);
        (due < Nanos::MAX).then_some(due)
    }

    /// The windows that ended by `now`: `gateway` (waiting: before the first attempt; service:
    /// until the request ends, relaying included) and for each node `gateway/NODE` (service: from
    /// an attempt's sending to the head of its answer; attempts that were dropped have the outcome
    /// `Unknown`).
    pub fn windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.roll(now);
        windows.extend(self.nodes.iter_mut().flat_map(|node| node.endpoint.windows(now)));
        windows
    }

    /// The windows that ended by `now`, and the open ones.
    pub fn flush_windows(&mut self, now: Nanos) -> Vec<Window> {
        let mut windows = self.recorder.flush(now);
        windows.extend(self.nodes.iter_mut().flat_map(|node| node.endpoint.flush_windows(now)));
        windows
    }

    /// The gateway's state and counters.
    pub fn status(&self, now: Nanos) -> GatewayStatus {
        GatewayStatus {
            requests: self.requests.len(),
            requests_bound: self.bound(),
            response_at_bound_s: self.response_at_bound_s(),
            origin_attempts: self.origin_attempts,
            retries_left: self.further.retries_left(),
            hedges_left: self.further.hedges_left(),
            hints: self.hints.len(),
            hot_keys: self.hot_keys_known(),
            epoch: self.view.epoch,
            counts: Counts { attempts: self.further.counts(), ..self.counts.clone() },
            nodes: (0..self.nodes.len()).map(|at| self.node_status(now, at)).collect(),
        }
    }

    /// Invariants that broke since the start: states that cannot occur, counted instead of a crash.
    pub fn invariants(&self) -> Invariants {
        self.invariants.clone().merged(&self.requests.invariants)
    }

    fn request(
        &mut self,
        now: Nanos,
        id: RequestId,
        key: &Key,
        operation: Operation,
        deadline: Nanos,
        actions: &mut Vec<Action>,
    ) {
        // The driver never uses a name twice.
        if self.requests.slot_of(id).is_some() {
            return self.invariants.broken();
        }
        let bound = self.bound() as usize;
        if self.requests.len() >= bound {
            self.recorder.refuse(now);
            self.counts.refuse(Refusal::Busy);
            actions.push(Action::Refuse { request: id, why: Refusal::Busy });
            return;
        }
        self.recorder.arrive(now);
        self.further.earn_retry();
        let hash = key_hash(key);
        let replicas = match operation {
            Operation::Read => self.readers(hash),
            Operation::Write => self.settings.ring.replicas_of_hash(hash),
        };
        let mut request = Request::new(id, hash, replicas, operation, now, deadline);
        request.full = self.requests.len() + 1 >= bound;
        let slot = self.requests.insert(request);
        if deadline <= now {
            return self.refuse(now, slot, Refusal::TooLate, actions);
        }
        match operation {
            Operation::Read => {
                self.further.earn_hedge();
                self.next_read(now, slot, actions);
            }
            Operation::Write => {
                // The write invalidates the replicas' copies.
                self.hints.remove(&hash);
                self.first_write(now, slot, actions);
            }
        }
    }

    fn attempt_answered(
        &mut self,
        now: Nanos,
        id: AttemptId,
        head: &Head,
        actions: &mut Vec<Action>,
    ) {
        // Late or repeated: the attempt was cancelled, or its request is over.
        let Some((slot, attempt)) = self.requests.take(id) else { return };
        let Some(request) = self.requests.get(slot) else { return self.invariants.broken() };
        let (operation, hash, replicas) = (request.operation, request.hash, request.replicas);
        let is_final = head.status == Status::Final;
        let end = if is_final { End::Answered(head.outcome) } else { End::Failed };
        self.end(now, &attempt, operation, end);
        if let Target::Node(at) = attempt.target {
            self.nodes[at].endpoint.load.report(now, head.node_length);
            let read = is_final && operation == Operation::Read;
            // Only the primary knows where else its objects are.
            if self.settings.ring.is_hot(at) {
                self.counts.hot_reads += u64::from(read);
            } else if read && self.view.primary(&replicas) == Some(at) {
                self.hint(hash, head.warm);
            }
        }
        match (is_final, operation) {
            (true, _) => self.relay(now, slot, &attempt, head.outcome, actions),
            (false, Operation::Read) => {
                self.read_declined(now, slot, attempt.target, head, actions);
            }
            (false, Operation::Write) => self.write_declined(now, slot, head.status, actions),
        }
    }

    fn hint(&mut self, hash: u64, warm: u8) {
        if self.settings.spread != Spread::Warm {
            return;
        }
        if warm != 0 && self.settings.hints_max > 0 {
            self.hints.insert(hash, warm);
        } else if !self.hints.is_empty() {
            self.hints.remove(&hash);
        }
    }

    fn relay(
        &mut self,
        now: Nanos,
        slot: Slot,
        attempt: &Attempt,
        outcome: Outcome,
        actions: &mut Vec<Action>,
    ) {
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        request.phase = Phase::Relaying { outcome };
        let (took, full) = (now.saturating_sub(request.received), request.full);
        if let Some(concurrency) = &mut self.concurrency {
            concurrency.record_response(took as f64 * 1e-9, full);
        }
        if attempt.hedge {
            self.further.count_hedge_won();
        }
        actions.push(Action::Relay { request: request.id, attempt: attempt.id });
        self.cancel(now, slot, actions);
        self.requests.arm(slot);
    }

    fn failed(&mut self, now: Nanos, id: AttemptId, why: Failed, actions: &mut Vec<Action>) {
        // Late or repeated, as an answer.
        let Some((slot, attempt)) = self.requests.take(id) else { return };
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        let operation = request.operation;
        if attempt.target == Target::Origin {
            request.unavailable = 2;
        }
        self.end(now, &attempt, operation, End::Failed);
        self.suspect(now, &attempt);
        match (operation, why) {
            (Operation::Read, _) => self.go_on(now, slot, actions),
            (Operation::Write, Failed::Connect) => self.park(now, slot, false),
            (Operation::Write, Failed::Broken) => {
                self.refuse(now, slot, Refusal::Unknown, actions);
            }
        }
    }

    /// Cancels the attempts of a request that are under way.
    fn cancel(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get_mut(slot) else { return self.invariants.broken() };
        let operation = request.operation;
        let attempts = std::mem::take(&mut request.attempts);
        for attempt in attempts.iter().flatten() {
            actions.push(Action::Cancel { attempt: attempt.id });
            self.end(now, attempt, operation, End::Dropped);
        }
    }

    /// The client left, or has its reply.
    fn over(&mut self, now: Nanos, id: RequestId, actions: &mut Vec<Action>) {
        // The client left just when its request was refused.
        let Some(slot) = self.requests.slot_of(id) else { return };
        self.cancel(now, slot, actions);
        let Some(request) = self.requests.remove(slot) else { return self.invariants.broken() };
        let outcome = match request.phase {
            Phase::Relaying { outcome } => outcome,
            Phase::Asking | Phase::Parked { .. } => Outcome::Unknown,
        };
        self.finish(now, &request, outcome);
    }

    pub(in crate::gateway) fn refuse(
        &mut self,
        now: Nanos,
        slot: Slot,
        why: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.cancel(now, slot, actions);
        let Some(request) = self.requests.remove(slot) else { return self.invariants.broken() };
        self.counts.refuse(why);
        if let (Refusal::TooLate | Refusal::Unknown, Some(found)) = (why, &mut self.concurrency) {
            // No answer in so long: otherwise a bound past every deadline would learn nothing.
            found.record_response(now.saturating_sub(request.received) as f64 * 1e-9, request.full);
        }
        actions.push(Action::Refuse { request: request.id, why });
        self.finish(now, &request, Outcome::Error);
    }

    /// Records the end of a request. One that was refused without being sent has a service time of
    /// 0.
    fn finish(&mut self, now: Nanos, request: &Request, outcome: Outcome) {
        if request.started.is_none() {
            self.recorder.start(now);
        }
        let started = request.started.unwrap_or(now);
        let finished = Finished {
            operation: request.operation.recorded(),
            outcome,
            waiting: started.saturating_sub(request.received),
            service: now.saturating_sub(started),
            response: now.saturating_sub(request.received),
            bytes: 0,
        };
        self.recorder.finish(now, &finished);
    }

    /// A request's timer fired.
    fn due(&mut self, now: Nanos, slot: Slot, actions: &mut Vec<Action>) {
        let Some(request) = self.requests.get(slot) else { return self.invariants.broken() };
        if request.deadline <= now {
            let sent = request.operation == Operation::Write && request.is_asking();
            let why = if sent { Refusal::Unknown } else { Refusal::TooLate };
            return self.refuse(now, slot, why, actions);
        }
        match request.phase {
            Phase::Parked { .. } => self.retry_write(now, slot, actions),
            Phase::Asking if request.operation == Operation::Read => {
                self.read_due(now, slot, actions);
            }
            Phase::Asking if request.attempts.iter().flatten().any(|a| a.sent.until <= now) => {
                self.refuse(now, slot, Refusal::Unknown, actions);
            }
            Phase::Asking | Phase::Relaying { .. } => self.requests.arm(slot),
        }
    }
}

#[cfg(test)]
mod tests;
