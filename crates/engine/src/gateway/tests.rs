//! Each rule, by hand-written sequences of events.

mod hot;
mod properties;
mod writes;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use ground::window::SECOND;

use super::*;
use crate::route::health::State;
use crate::route::{LoadReport, Member, NodeId, Policy, Ring, SplitMix64};

const MS: Nanos = 1_000_000;

/// A gateway and its last actions.
pub(super) struct Desk {
    pub(super) gateway: Gateway,
    pub(super) now: Nanos,
    pub(super) actions: Vec<Action>,
    next: RequestId,
}

pub(super) fn settings(members: usize, replicas: usize) -> Settings {
    // Property tests reuse the same few rings.
    static RINGS: Mutex<BTreeMap<(usize, usize), Arc<Ring>>> = Mutex::new(BTreeMap::new());
    let mut rings = RINGS.lock().unwrap();
    let ring = rings.entry((members, replicas)).or_insert_with(|| {
        let member = |i| Member::new(format!("n{i}"), 1.0);
        Arc::new(Ring::new((0..members).map(member).collect(), replicas).unwrap())
    });
    Settings::new(ring.clone())
}

pub(super) const KEY: &[u8] = b"key";

impl Desk {
    fn new(settings: Settings) -> Desk {
        let now = SECOND;
        let gateway = Gateway::new(settings, now);
        let mut desk = Desk { gateway, now, actions: Vec::new(), next: 0 };
        desk.tell(Event::Tick);
        desk.all_well();
        desk
    }

    /// The nodes of the key, in order.
    fn order(&self) -> Vec<NodeId> {
        self.gateway.settings.ring.replicas(KEY).iter().collect()
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        self.actions.clear();
        self.gateway.handle(self.now, event, &mut self.actions);
        self.actions.clone()
    }

    /// Lets time pass, all nodes answering their pings.
    fn pass(&mut self, time: Nanos) -> Vec<Action> {
        self.pass_without(time, &[])
    }

    /// As above, but some nodes do not answer.
    fn pass_without(&mut self, time: Nanos, silent: &[NodeId]) -> Vec<Action> {
        let until = self.now + time;
        let mut all = Vec::new();
        while let Some(wake) = self.gateway.next_wake().filter(|&wake| wake <= until) {
            self.now = self.now.max(wake);
            let actions = self.tell(Event::Tick);
            for node in pings(&actions) {
                if !silent.contains(&node) {
                    self.tell(Event::Ponged { node, load: LoadReport::default(), fits: true });
                }
            }
            all.extend(actions);
        }
        self.now = until;
        all.into_iter().filter(|action| !matches!(action, Action::Ping { .. })).collect()
    }

    fn all_well(&mut self) {
        for node in 0..self.gateway.nodes.len() {
            self.tell(Event::Ponged { node, load: LoadReport::default(), fits: true });
        }
    }

    /// Fails the ping that is due next; the others' are answered.
    fn fail_ping(&mut self, node: NodeId) -> Vec<Action> {
        self.now += self.gateway.settings.ping_interval;
        let mut actions = self.tell(Event::Tick);
        for other in pings(&actions).into_iter().filter(|&other| other != node) {
            self.tell(Event::Ponged { node: other, load: LoadReport::default(), fits: true });
        }
        actions.extend(self.tell(Event::PingFailed { node }));
        actions.into_iter().filter(|action| !matches!(action, Action::Ping { .. })).collect()
    }

    fn ask(&mut self, operation: Operation) -> Vec<Action> {
        self.next += 1;
        let deadline = self.now + 10 * SECOND;
        self.tell(Event::Request { request: self.next, key: KEY.into(), operation, deadline })
    }

    fn read(&mut self) -> Vec<Action> {
        self.ask(Operation::Read)
    }

    fn write(&mut self) -> Vec<Action> {
        self.ask(Operation::Write)
    }

    fn answer(&mut self, attempt: AttemptId, status: Status) -> Vec<Action> {
        self.answer_warm(attempt, status, 0)
    }

    fn answer_warm(&mut self, attempt: AttemptId, status: Status, warm: u8) -> Vec<Action> {
        let head = Head { status, outcome: Outcome::Memory, node_length: 0, warm };
        self.tell(Event::Answered { attempt, head })
    }

    fn fail(&mut self, attempt: AttemptId, why: Failed) -> Vec<Action> {
        let actions = self.tell(Event::Failed { attempt, why });
        actions.into_iter().filter(|action| !matches!(action, Action::Ping { .. })).collect()
    }

    /// Reads that are answered after a given time, each by the node that it was sent to.
    fn answered_reads(&mut self, count: usize, after: Nanos) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for _ in 0..count {
            let (attempt, node) = sent(&self.read());
            self.pass(after);
            self.answer(attempt, Status::Final);
            self.tell(Event::Over { request: self.next });
            nodes.push(node);
        }
        nodes
    }

    fn state(&self, node: NodeId) -> State {
        self.gateway.status(self.now).nodes[node].state
    }
}

fn pings(actions: &[Action]) -> Vec<NodeId> {
    let node = |action: &Action| match action {
        Action::Ping { node } => Some(*node),
        _ => None,
    };
    actions.iter().filter_map(node).collect()
}

/// The only attempt that the actions send, with its node.
fn sent(actions: &[Action]) -> (AttemptId, NodeId) {
    let sends = actions.iter().filter_map(|action| match action {
        Action::Send { attempt, node, .. } => Some((*attempt, *node)),
        _ => None,
    });
    let sends: Vec<_> = sends.collect();
    assert_eq!(sends.len(), 1, "{actions:?}");
    sends[0]
}

fn refused(actions: &[Action]) -> Option<Refusal> {
    actions.iter().find_map(|action| match action {
        Action::Refuse { why, .. } => Some(*why),
        _ => None,
    })
}

fn avoided(actions: &[Action]) -> Option<NodeId> {
    actions.iter().find_map(|action| match action {
        Action::Send { avoid, .. } => *avoid,
        _ => None,
    })
}

fn origin(actions: &[Action]) -> AttemptId {
    let of = |action: &Action| match action {
        Action::Origin { attempt, .. } => Some(*attempt),
        _ => None,
    };
    actions.iter().find_map(of).unwrap_or_else(|| panic!("no read from the origin: {actions:?}"))
}

#[test]
fn a_read_goes_to_primary_replicas_origin() {
    let mut desk = Desk::new(settings(5, 3));
    let order = desk.order();
    let mut actions = desk.read();
    for (place, &node) in order.iter().enumerate() {
        let (attempt, at) = sent(&actions);
        assert_eq!(at, node);
        assert_eq!(avoided(&actions), (place > 0).then(|| order[place - 1]));
        actions = desk.fail(attempt, Failed::Broken);
        assert_eq!(desk.state(node), State::Suspect);
    }
    let attempt = origin(&actions);
    let relay = desk.answer(attempt, Status::Final);
    assert_eq!(relay, [Action::Relay { request: 1, attempt }]);
    assert_eq!(desk.gateway.status(desk.now).requests, 1);
    desk.tell(Event::Over { request: 1 });
    assert_eq!(desk.gateway.status(desk.now).requests, 0);
    assert_eq!(desk.gateway.origin_attempts, 0);
}

#[test]
fn without_the_origin_a_read_that_nobody_answers_is_refused() {
    let mut desk = Desk::new(Settings { origin: false, ..settings(2, 2) });
    let (attempt, _) = sent(&desk.read());
    let (attempt, _) = sent(&desk.fail(attempt, Failed::Connect));
    assert_eq!(refused(&desk.fail(attempt, Failed::Connect)), Some(Refusal::Unavailable));
    // Later ones are refused at once, until a node answers a ping.
    assert_eq!(refused(&desk.read()), Some(Refusal::Unavailable));
    desk.tell(Event::Ponged { node: 0, load: LoadReport::default(), fits: true });
    assert_eq!(sent(&desk.read()).1, 0);
}

#[test]
fn the_origin_is_asked_only_so_often_at_once() {
    let mut desk = Desk::new(Settings { origin_attempts_max: 1, ..settings(1, 1) });
    desk.fail_ping(0);
    let attempt = origin(&desk.read());
    assert_eq!(refused(&desk.read()), Some(Refusal::Busy));
    assert_eq!(refused(&desk.fail(attempt, Failed::Broken)), Some(Refusal::Unavailable));
    origin(&desk.read());
}

#[test]
fn all_reads_at_a_node_leave_it_when_its_ping_fails() {
    let mut desk = Desk::new(Settings { hedge: None, ..settings(5, 3) });
    let order = desk.order();
    let mut old = Vec::new();
    for _ in 0..500 {
        old.push(sent(&desk.read()).0);
    }
    let write = sent(&desk.write()).0;
    let actions = desk.fail_ping(order[0]);
    let cancelled = |id: &AttemptId| actions.contains(&Action::Cancel { attempt: *id });
    assert!(old.iter().all(cancelled));
    assert!(!cancelled(&write), "a write may have happened");
    let to = |action: &&Action| {
        matches!(action, Action::Send { node, avoid, .. }
        if *node == order[1] && *avoid == Some(order[0]))
    };
    assert_eq!(actions.iter().filter(to).count(), 500);
    assert_eq!(refused(&actions), None);
    assert_eq!(desk.gateway.nodes[order[0]].endpoint.load.outstanding(), 1);
}

#[test]
fn a_silent_driver_counts_as_a_failed_ping() {
    let mut desk = Desk::new(settings(2, 2));
    desk.pass_without(SECOND, &[1]);
    assert_eq!((desk.state(0), desk.state(1)), (State::Healthy, State::Suspect));
}

#[test]
fn a_gateway_that_stood_still_does_not_blame_the_nodes() {
    let mut desk = Desk::new(settings(2, 2));
    desk.now += SECOND / 10;
    assert_eq!(pings(&desk.tell(Event::Tick)), [0, 1]);
    desk.now += 60 * SECOND;
    desk.tell(Event::Tick);
    assert_eq!((desk.state(0), desk.state(1)), (State::Healthy, State::Healthy));
    // The answers to those pings, and to those that were due meanwhile.
    desk.all_well();
    desk.all_well();
    desk.pass(SECOND);
    assert_eq!((desk.state(0), desk.state(1)), (State::Healthy, State::Healthy));
    desk.pass_without(SECOND, &[1]);
    assert_eq!((desk.state(0), desk.state(1)), (State::Healthy, State::Suspect));
}

#[test]
fn a_node_that_came_back_gets_a_growing_share() {
    let mut desk = Desk::new(Settings { hedge: None, ..settings(3, 3) });
    let primary = desk.order()[0];
    desk.fail_ping(primary);
    desk.pass(200 * MS);
    let share = |desk: &mut Desk| {
        let nodes = desk.answered_reads(2_000, 1_000);
        nodes.iter().filter(|&&node| node == primary).count() as f64 / 2_000.0
    };
    assert_eq!(desk.state(primary), State::Recovering);
    let early = share(&mut desk);
    assert!((0.05..0.20).contains(&early), "{early}");
    desk.pass(900 * MS);
    let middle = share(&mut desk);
    assert!((0.5..0.65).contains(&middle), "{middle}");
    desk.pass(SECOND);
    assert_eq!(share(&mut desk), 1.0);
}

#[test]
fn an_unfit_node_gets_nothing_and_is_named_so() {
    let mut desk = Desk::new(settings(3, 2));
    let order = desk.order();
    let (attempt, _) = sent(&desk.read());
    desk.now += SECOND / 10;
    desk.tell(Event::Tick);
    let actions =
        desk.tell(Event::Ponged { node: order[0], load: LoadReport::default(), fits: false });
    assert!(actions.contains(&Action::Cancel { attempt }));
    assert_eq!(sent(&actions).1, order[1]);
    assert_eq!(desk.state(order[0]), State::Unfit);
    assert_eq!(sent(&desk.read()).1, order[1]);
    assert_eq!(refused(&desk.write()), Some(Refusal::NoPrimary));
}

#[test]
fn a_slow_read_is_hedged_and_the_first_answer_counts() {
    let mut desk = Desk::new(settings(3, 2));
    let order = desk.order();
    desk.answered_reads(64, 10 * MS);
    let (slow, node) = sent(&desk.read());
    assert_eq!(node, order[0]);
    assert!(desk.pass(9 * MS).is_empty());
    let actions = desk.pass(3 * MS);
    let (hedge, node) = sent(&actions);
    assert_eq!((node, avoided(&actions)), (order[1], Some(order[0])));
    let request = desk.next;
    let actions = desk.answer(hedge, Status::Final);
    let expected = [Action::Relay { request, attempt: hedge }, Action::Cancel { attempt: slow }];
    assert_eq!(actions, expected);
    assert!(desk.answer(slow, Status::Final).is_empty(), "too late");
    let counts = desk.gateway.status(desk.now).counts;
    assert_eq!(
        (counts.attempts.hedges, counts.attempts.hedges_won, counts.attempts.retries),
        (1, 1, 0)
    );
}

#[test]
fn hedges_have_a_budget_and_a_floor() {
    let hedge = Hedge { burst: 2, share: 0.0, after_min: 20 * MS, ..Hedge::default() };
    let mut desk = Desk::new(Settings { hedge: Some(hedge), ..settings(3, 2) });
    desk.answered_reads(64, 10 * MS);
    let hedges = (0..5).map(|_| {
        desk.read();
        assert!(desk.pass(19 * MS).is_empty(), "the floor");
        desk.pass(2 * MS).len()
    });
    assert_eq!(hedges.collect::<Vec<_>>(), [1, 1, 0, 0, 0]);
    assert_eq!(desk.gateway.status(desk.now).counts.attempts.hedges_left_out, 3);
}

#[test]
fn a_read_that_takes_far_too_long_goes_elsewhere() {
    let mut desk = Desk::new(Settings { hedge: None, ..settings(3, 2) });
    let order = desk.order();
    desk.answered_reads(64, 40 * MS);
    let (late, _) = sent(&desk.read());
    assert!(desk.pass(150 * MS).is_empty());
    let actions = desk.pass(50 * MS);
    assert!(actions.contains(&Action::Cancel { attempt: late }));
    let (attempt, node) = sent(&actions);
    assert_eq!(node, order[1]);
    // There is no third: it goes on until its deadline.
    let actions = desk.pass(20 * SECOND);
    let end =
        [Action::Cancel { attempt }, Action::Refuse { request: desk.next, why: Refusal::TooLate }];
    assert_eq!(actions, end);
}

#[test]
fn busy_nodes_are_passed_by_and_the_origin_is_spared() {
    let mut desk = Desk::new(settings(3, 3));
    let (attempt, _) = sent(&desk.read());
    let (attempt, _) = sent(&desk.answer(attempt, Status::Busy));
    let (attempt, _) = sent(&desk.fail(attempt, Failed::Broken));
    assert_eq!(refused(&desk.answer(attempt, Status::Busy)), Some(Refusal::Busy));
}

#[test]
fn two_nodes_that_cannot_reach_the_origin_are_enough() {
    let mut desk = Desk::new(settings(3, 3));
    let (attempt, _) = sent(&desk.read());
    let (attempt, _) = sent(&desk.answer(attempt, Status::Unavailable));
    assert_eq!(refused(&desk.answer(attempt, Status::Unavailable)), Some(Refusal::Unavailable));
}

#[test]
fn a_misdirected_read_goes_on() {
    let mut desk = Desk::new(settings(3, 2));
    let order = desk.order();
    let (attempt, _) = sent(&desk.read());
    let (attempt, node) = sent(&desk.answer(attempt, Status::Misdirected));
    assert_eq!(node, order[1]);
    origin(&desk.answer(attempt, Status::Misdirected));
}

#[test]
fn retries_stop_when_their_budget_is_spent() {
    let mut desk = Desk::new(Settings { retry_burst: 3, retry_share: 0.5, ..settings(3, 3) });
    let mut refusals = 0;
    for _ in 0..100 {
        let mut actions = desk.read();
        while refused(&actions).is_none() {
            let (attempt, _) = sent(&actions);
            actions = desk.answer(attempt, Status::Busy);
        }
        refusals += 1;
    }
    let counts = desk.gateway.status(desk.now).counts;
    assert_eq!((refusals, counts.refused_busy), (100, 100));
    assert!(counts.attempts.retries <= 3 + 50, "{}", counts.attempts.retries);
    assert!(counts.attempts.retries >= 50, "{}", counts.attempts.retries);
}

#[test]
fn past_the_bound_requests_are_refused_at_once() {
    let mut desk = Desk::new(Settings { requests_max: 2, ..settings(2, 2) });
    let (attempt, _) = sent(&desk.read());
    desk.read();
    assert_eq!(refused(&desk.read()), Some(Refusal::Busy));
    desk.answer(attempt, Status::Final);
    assert_eq!(refused(&desk.read()), Some(Refusal::Busy), "one is still being relayed");
    desk.tell(Event::Over { request: 1 });
    assert_eq!(refused(&desk.read()), None);
}

#[test]
fn reads_spread_to_the_nodes_that_are_warm() {
    let policy = Policy::RoundRobin;
    let mut desk = Desk::new(Settings { policy, ..settings(5, 3) });
    let order = desk.order();
    assert_eq!(desk.answered_reads(9, MS), [order[0]; 9]);
    let (attempt, _) = sent(&desk.read());
    desk.answer_warm(attempt, Status::Final, 0b100);
    let nodes: Vec<NodeId> = (0..100).map(|_| sent(&desk.read()).1).collect();
    let count = |node| nodes.iter().filter(|&&n| n == node).count();
    assert_eq!((count(order[0]), count(order[1]), count(order[2])), (50, 0, 50));
    // A write voids the replicas' copies.
    desk.write();
    assert_eq!(sent(&desk.read()).1, order[0]);
}

#[test]
fn a_slow_node_of_two_gets_less() {
    let spread = Spread::All;
    let mut desk = Desk::new(Settings { spread, hedge: None, ..settings(2, 2) });
    let slow = desk.order()[0];
    // One server each, 4 ms and 1 ms, requests as they come at 0.5 of what both can serve
    // (1,250/s): with lengths L and ratio s, the fast one is chosen while (L+1)·s is less.
    let (service, mut free) = ([4 * MS, MS], [0, 0]);
    let mut queues: [VecDeque<(Nanos, AttemptId, RequestId)>; 2] = Default::default();
    let mut counts = [0, 0];
    let mut random = SplitMix64::new(3);
    for _ in 0..5_000 {
        let gap = (-(1.0 - random.uniform()).ln() * 1.6e6) as Nanos;
        let until = desk.now + gap;
        while let Some(place) = first(&queues).filter(|&p| queues[p][0].0 <= until) {
            let (at, attempt, request) = queues[place].pop_front().unwrap();
            desk.pass(at - desk.now);
            desk.answer(attempt, Status::Final);
            desk.tell(Event::Over { request });
        }
        desk.pass(until - desk.now);
        let (attempt, node) = sent(&desk.read());
        let place = usize::from(node != slow);
        counts[place] += 1;
        free[place] = desk.now.max(free[place]) + service[place];
        queues[place].push_back((free[place], attempt, desk.next));
    }
    let share = f64::from(counts[0]) / 5_000.0;
    assert!((0.01..0.25).contains(&share), "the slow node got {share}");
}

fn first(queues: &[VecDeque<(Nanos, AttemptId, RequestId)>; 2]) -> Option<usize> {
    (0..2).filter(|&p| !queues[p].is_empty()).min_by_key(|&p| queues[p][0].0)
}

#[test]
fn windows_and_status_say_what_happened() {
    let mut desk = Desk::new(settings(3, 2));
    let order = desk.order();
    desk.answered_reads(100, MS);
    let (attempt, _) = sent(&desk.read());
    let (attempt, _) = sent(&desk.fail(attempt, Failed::Broken));
    desk.answer(attempt, Status::Final);
    desk.tell(Event::Over { request: desk.next });
    let windows = desk.gateway.flush_windows(desk.now);
    let find = |name: String| windows.iter().find(|w| w.queue == name).unwrap();
    let whole = find("gateway".into());
    assert_eq!((whole.arrivals, whole.completions, whole.errors), (101, 101, 0));
    let first = find(format!("gateway/n{}", order[0]));
    assert_eq!((first.arrivals, first.completions, first.errors), (101, 101, 1));
    assert!((first.times[0].service.mean_s() - 0.001).abs() < 1e-9);
    let status = serde_json::to_value(desk.gateway.status(desk.now)).unwrap();
    assert_eq!(status["nodes"][order[0]]["state"], "suspect");
    assert_eq!(status["counts"]["retries"], 1);
}
