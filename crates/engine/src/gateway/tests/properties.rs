//! Properties for any events in any order: each request is answered once, nothing leaks, budgets
//! hold.

use std::collections::{BTreeMap, BTreeSet};

use ground::window::SECOND;
use proptest::prelude::*;

use super::*;
use crate::route::{LoadReport, NodeId, Policy};

/// A step of a random history; numbers choose among what is there.
#[derive(Clone, Debug)]
enum Step {
    Ask { key: u8, write: bool, deadline_ms: u16 },
    Answer { which: u16, status: Status, warm: u8, length: u8 },
    Fail { which: u16, why: Failed },
    Over { which: u16 },
    Pong { node: u8, fits: bool, length: u8 },
    PingFails { node: u8 },
    View { epoch: u8, live: u8 },
    Pass { us: u32 },
}

fn steps() -> impl Strategy<Value = Step> {
    let status = prop_oneof![
        4 => Just(Status::Final),
        1 => Just(Status::Busy),
        1 => Just(Status::Unavailable),
        1 => Just(Status::Misdirected),
    ];
    let why = prop_oneof![Just(Failed::Connect), Just(Failed::Broken)];
    prop_oneof![
        6 => (0u8..20, prop::bool::weighted(0.2), 0u16..3_000)
            .prop_map(|(key, write, deadline_ms)| Step::Ask { key, write, deadline_ms }),
        6 => (any::<u16>(), status, any::<u8>(), any::<u8>())
            .prop_map(|(which, status, warm, length)| Step::Answer { which, status, warm, length }),
        2 => (any::<u16>(), why).prop_map(|(which, why)| Step::Fail { which, why }),
        2 => any::<u16>().prop_map(|which| Step::Over { which }),
        3 => (0u8..6, prop::bool::weighted(0.9), any::<u8>())
            .prop_map(|(node, fits, length)| Step::Pong { node, fits, length }),
        1 => (0u8..6).prop_map(|node| Step::PingFails { node }),
        1 => (0u8..6, any::<u8>()).prop_map(|(epoch, live)| Step::View { epoch, live }),
        4 => (0u32..300_000).prop_map(|us| Step::Pass { us }),
    ]
}

/// The driver's knowledge, and its checks.
#[derive(Default)]
struct Checker {
    asked: u64,
    reads: u64,
    attempts: Vec<AttemptId>,
    /// Attempts under way, by request.
    under_way: BTreeMap<AttemptId, RequestId>,
    ended: BTreeMap<RequestId, Action>,
    writes: BTreeSet<RequestId>,
    further: u64,
    sent: BTreeSet<RequestId>,
    unfit: BTreeSet<NodeId>,
    pinged: BTreeSet<NodeId>,
}

impl Checker {
    fn check(&mut self, action: &Action) {
        match action {
            Action::Send { request, attempt, node, avoid, .. } => {
                assert!(!self.unfit.contains(node), "sent to node {node}, which does not fit");
                assert_ne!(Some(*node), *avoid);
                self.begin(*request, *attempt);
            }
            Action::Origin { request, attempt } => {
                assert!(!self.writes.contains(request), "a write past its primary");
                self.begin(*request, *attempt);
            }
            Action::Relay { request, attempt } => {
                // It was answered, so it is not under way any more.
                assert!(!self.under_way.contains_key(attempt));
                self.end(*request, action);
            }
            Action::Cancel { attempt } => {
                assert!(self.under_way.remove(attempt).is_some(), "cancelled, not under way");
            }
            Action::Refuse { request, .. } => {
                self.end(*request, action);
                assert!(!self.under_way.values().any(|of| of == request), "left attempts");
            }
            Action::Ping { node } => assert!(self.pinged.insert(*node), "pinged twice at once"),
        }
    }

    fn begin(&mut self, request: RequestId, attempt: AttemptId) {
        assert!(!self.ended.contains_key(&request), "tried after its end");
        assert!(!self.attempts.contains(&attempt), "a name used twice");
        self.further += u64::from(!self.sent.insert(request));
        self.attempts.push(attempt);
        self.under_way.insert(attempt, request);
        let at_once = self.under_way.values().filter(|&&of| of == request).count();
        let most = if self.writes.contains(&request) { 1 } else { 2 };
        assert!(at_once <= most, "{at_once} attempts at once");
    }

    fn pong(&mut self, node: NodeId, fits: bool) {
        if !self.pinged.remove(&node) {
            return;
        }
        if fits {
            self.unfit.remove(&node);
        } else {
            self.unfit.insert(node);
        }
    }

    fn end(&mut self, request: RequestId, action: &Action) {
        let before = self.ended.insert(request, action.clone());
        assert_eq!(before, None, "request {request} ended twice");
    }
}

struct Run {
    gateway: Gateway,
    now: Nanos,
    checker: Checker,
    log: Vec<Action>,
}

impl Run {
    fn new(settings: Settings) -> Run {
        let mut gateway = Gateway::new(settings, 0);
        // Set as if after many answers: histories are too short to have quantiles of their own.
        for node in gateway.nodes.iter_mut().filter(|_| gateway.settings.hedge.is_some()) {
            (node.endpoint.hedge_after, node.timeout) = (5_000_000, 100_000_000);
        }
        Run { gateway, now: 0, checker: Checker::default(), log: Vec::new() }
    }

    fn tell(&mut self, event: Event) {
        match &event {
            Event::Answered { attempt, .. } | Event::Failed { attempt, .. } => {
                self.checker.under_way.remove(attempt);
            }
            Event::Over { request } => {
                // The driver's client left: what is under way for it will be cancelled.
                let over = Action::Refuse { request: *request, why: Refusal::TooLate };
                if *request <= self.checker.asked {
                    self.checker.ended.entry(*request).or_insert(over);
                }
            }
            Event::Ponged { node, fits, .. } => self.checker.pong(*node, *fits),
            Event::PingFailed { node } => {
                self.checker.pinged.remove(node);
            }
            _ => {}
        }
        let mut actions = Vec::new();
        self.gateway.handle(self.now, event, &mut actions);
        // The gateway's own time for a ping may have run out: then it pings again.
        for node in 0..self.gateway.nodes.len() {
            let again = actions.contains(&Action::Ping { node });
            if again && self.checker.pinged.contains(&node) {
                self.checker.pinged.remove(&node);
            }
        }
        actions.iter().for_each(|action| self.checker.check(action));
        self.log.extend(actions);
        if let Some(wake) = self.gateway.next_wake() {
            assert!(wake > self.now, "the wake at {wake} is not after {}", self.now);
        }
    }

    fn pass(&mut self, time: Nanos) {
        let until = self.now + time;
        while let Some(wake) = self.gateway.next_wake().filter(|&wake| wake <= until) {
            self.now = self.now.max(wake);
            self.tell(Event::Tick);
        }
        self.now = until;
    }

    fn step(&mut self, step: &Step) {
        let attempt = |checker: &Checker, which: u16| {
            let count = checker.attempts.len();
            // Mostly a recent one; any event may be repeated.
            count
                .checked_sub(1 + usize::from(which) % count.clamp(1, 12))
                .map(|i| checker.attempts[i])
        };
        match *step {
            Step::Ask { key, write, deadline_ms } => {
                self.checker.asked += 1;
                let request = self.checker.asked;
                let operation = if write { Operation::Write } else { Operation::Read };
                if write {
                    self.checker.writes.insert(request);
                } else {
                    self.checker.reads += 1;
                }
                let deadline = self.now + u64::from(deadline_ms) * 1_000_000;
                self.tell(Event::Request { request, key: [key][..].into(), operation, deadline });
            }
            Step::Answer { which, status, warm, length } => {
                let Some(attempt) = attempt(&self.checker, which) else { return };
                let node_length = u32::from(length);
                let head = Head { status, outcome: Outcome::Memory, node_length, warm };
                self.tell(Event::Answered { attempt, head });
            }
            Step::Fail { which, why } => {
                let Some(attempt) = attempt(&self.checker, which) else { return };
                self.tell(Event::Failed { attempt, why });
            }
            Step::Over { which } => {
                let request = 1 + u64::from(which) % (self.checker.asked + 1);
                self.tell(Event::Over { request });
            }
            Step::Pong { node, fits, length } => {
                let load = LoadReport { length: length.into(), response_per_length: None };
                self.tell(Event::Ponged { node: node.into(), load, fits });
            }
            Step::PingFails { node } => self.tell(Event::PingFailed { node: node.into() }),
            Step::View { epoch, live } => {
                let live = (0..5).map(|node| live >> node & 1 == 1).collect();
                self.tell(Event::View(View {
                    epoch: epoch.into(),
                    live,
                    until: Nanos::MAX,
                    ring: None,
                    handed_over: Vec::new(),
                }));
            }
            Step::Pass { us } => self.pass(u64::from(us) * 1_000),
        }
    }

    /// All deadlines pass, and all relays end.
    fn wind_up(&mut self) {
        self.pass(4 * SECOND);
        for request in 1..=self.checker.asked {
            self.tell(Event::Over { request });
        }
    }
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let policy = prop::sample::select(vec![
        Policy::SmallestExpectedResponse,
        Policy::Blowfish,
        Policy::ShortestQueue,
        Policy::PowerOfTwo,
        Policy::RoundRobin,
        Policy::Primary,
    ]);
    let spread = prop::sample::select(vec![Spread::Primary, Spread::Warm, Spread::All]);
    let rest = (1usize..4, any::<bool>(), 0u32..20, 1u32..30, 0u32..3, any::<bool>(), any::<u64>());
    (policy, spread, rest).prop_map(|(policy, spread, rest)| {
        let (replicas, origin, retry_burst, requests_max, origin_attempts_max, hedges, seed) = rest;
        let eager = Hedge { quantile: 0.5, after_min: 1, share: 0.3, burst: 5 };
        Settings {
            policy,
            spread,
            origin,
            retry_burst,
            requests_max,
            origin_attempts_max,
            hedge: hedges.then_some(eager),
            hints_max: 5,
            attempt_timeout_max: SECOND / 2,
            seed,
            ..settings(5, replicas)
        }
    })
}

proptest! {
    #[test]
    fn each_request_ends_once_and_nothing_leaks(
        settings in any_settings(),
        steps in prop::collection::vec(steps(), 0..400),
    ) {
        let mut run = Run::new(settings.clone());
        run.tell(Event::Tick);
        for step in &steps {
            run.step(step);
            let gateway = &run.gateway;
            prop_assert!(gateway.requests.len() <= settings.requests_max as usize);
            prop_assert!(gateway.origin_attempts <= settings.origin_attempts_max);
            prop_assert!(gateway.hints.len() <= settings.hints_max);
        }
        run.wind_up();
        let checker = &run.checker;
        prop_assert_eq!(checker.ended.len() as u64, checker.asked);
        prop_assert!(checker.under_way.is_empty(), "{:?}", checker.under_way);
        let counts = run.gateway.status(run.now).counts;
        prop_assert_eq!(checker.further, counts.attempts.retries + counts.attempts.hedges);
        let tokens = f64::from(settings.retry_burst) + settings.retry_share * checker.asked as f64;
        prop_assert!(counts.attempts.retries as f64 <= tokens, "{} of {tokens}", counts.attempts.retries);
        prop_assert!(counts.attempts.hedges as f64 <= 5.0 + 0.3 * checker.reads as f64);
        run.gateway.requests.assert_empty();
        prop_assert_eq!(run.gateway.origin_attempts, 0);
        for node in &run.gateway.nodes {
            prop_assert_eq!(node.endpoint.load.outstanding(), 0);
            prop_assert_eq!(node.endpoint.recorder.as_ref().map(Recorder::length), Some(0));
        }
        prop_assert_eq!(run.gateway.recorder.length(), 0);
    }

    #[test]
    fn the_same_events_give_the_same_actions(
        settings in any_settings(),
        steps in prop::collection::vec(steps(), 0..200),
    ) {
        let log = |settings: &Settings| {
            let mut run = Run::new(settings.clone());
            steps.iter().for_each(|step| run.step(step));
            run.log
        };
        prop_assert_eq!(log(&settings), log(&settings));
    }
}
