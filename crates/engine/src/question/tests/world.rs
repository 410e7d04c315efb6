//! Questions in virtual time: a gateway's engine, replicas that are lost, slow, busy or lie about their queues, a dataset whose shards
//! are added and merged meanwhile, and a checker of every answer.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use ground::window::{Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::{Action, Event, Failed, Kind, PartAnswer, Question, Settings};
use crate::gateway::{self, Gateway, Head, Operation, Status};
use crate::route::{LoadReport, Member, NodeId, Policy, Ring};
use crate::sim::schedule::Schedule;

const MS: Nanos = SECOND / 1000;
/// Requests that a node holds; further ones find it busy.
const NODE_MAX: u32 = 12;

/// What a seed stands for.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    seed: u64,
    /// Whether nothing fails and nothing changes, so that every question must be answered.
    calm: bool,
    nodes: usize,
    policy: Policy,
    questions: usize,
}

impl Plan {
    pub fn from_seed(seed: u64) -> Plan {
        let policies = [
            Policy::SmallestExpectedResponse,
            Policy::PowerOfTwo,
            Policy::RoundRobin,
            Policy::ShortestQueue,
        ];
        let policy = policies[(seed / 5 % 4) as usize];
        Plan {
            seed,
            calm: seed.is_multiple_of(5),
            nodes: 3 + (seed % 3) as usize,
            policy,
            questions: 60,
        }
    }
}

/// A shard or the log: its key, and the ids of its records.
#[derive(Clone, Debug)]
struct Piece {
    key: ground::Key,
    ids: Range<u64>,
}

/// Why a node does not do what it should.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    down: bool,
    slow: bool,
    /// Whether it says that its queues are empty, whatever they are.
    lies: bool,
    version: usize,
    busy_until: Nanos,
    length: u32,
}

/// The answer of a part: of which version, and the ids.
#[derive(Clone, Debug)]
struct Reply {
    version: usize,
    ids: Vec<u64>,
}

enum What {
    Ask,
    /// A node replies, or (`None`) fails.
    Reply {
        node: NodeId,
        attempt: u64,
        reply: Option<Result<Reply, bool>>,
    },
    Pong {
        node: NodeId,
    },
    PingLost {
        node: NodeId,
    },
    Wake,
    QuestionTick(usize),
    Refreshed {
        question: usize,
        version: Option<usize>,
    },
    Version,
    Learnt {
        node: NodeId,
        version: usize,
    },
    Fault {
        node: NodeId,
        begins: bool,
        kind: u8,
    },
}

/// A question under way.
struct OpenQuestion {
    question: Question,
    kind: Kind,
    modulus: u64,
    deadline: Nanos,
    version: usize,
    /// The requests under way, by part.
    requests: BTreeMap<usize, u64>,
    answers: BTreeMap<usize, Reply>,
    failed: BTreeMap<usize, Failed>,
    asked: Vec<usize>,
}

pub struct World {
    plan: Plan,
    random: SmallRng,
    now: Nanos,
    schedule: Schedule<What>,
    gateway: Gateway,
    wake: Nanos,
    nodes: Vec<Node>,
    versions: Vec<Vec<Piece>>,
    asked: Vec<OpenQuestion>,
    /// The question and part of each request of the gateway's.
    requests: HashMap<u64, (usize, usize)>,
    /// The request of each attempt, and the reply that it brought.
    attempts: HashMap<u64, u64>,
    replies: HashMap<u64, Result<Reply, bool>>,
    /// The ends of requests that the questions are to be told of next.
    ends: VecDeque<(u64, Result<Reply, Failed>)>,
    next_request: u64,
    done: usize,
}

impl World {
    pub fn new(plan: Plan) -> World {
        let mut random = SmallRng::seed_from_u64(plan.seed);
        let member = |i: usize| Member::new(format!("n{i}"), 1.0);
        let ring = Arc::new(Ring::coarse((0..plan.nodes).map(member).collect(), 3, 12).unwrap());
        let settings = gateway::Settings {
            policy: plan.policy,
            spread: gateway::Spread::All,
            origin: false,
            seed: plan.seed,
            retry_share: 1.0,
            ..gateway::Settings::new(ring)
        };
        let count = random.random_range(1..40);
        let mut first = Vec::new();
        let mut end = 0;
        for number in 0..count {
            let len = random.random_range(0..60);
            first.push(piece(&format!("s{number}"), end..end + len));
            end += len;
        }
        let mut world = World {
            plan,
            random,
            now: 0,
            schedule: Schedule::default(),
            gateway: Gateway::new(settings, 0),
            wake: Nanos::MAX,
            nodes: vec![Node::default(); plan.nodes],
            versions: vec![first],
            asked: Vec::new(),
            requests: HashMap::new(),
            attempts: HashMap::new(),
            replies: HashMap::new(),
            ends: VecDeque::new(),
            next_request: 0,
            done: 0,
        };
        for number in 0..plan.questions as u64 {
            world.enqueue(number * 60 * MS, What::Ask);
        }
        if !plan.calm {
            for _ in 0..world.random.random_range(1..5) {
                let at = world.random.random_range(0..3600) * MS;
                world.enqueue(at, What::Version);
            }
            for kind in [0, 1, 2, 0, 1] {
                let node = world.random.random_range(0..plan.nodes);
                let (at, time) = (
                    world.random.random_range(0..3000) * MS,
                    world.random.random_range(50..900) * MS,
                );
                world.enqueue(at, What::Fault { node, begins: true, kind });
                world.enqueue(at + time, What::Fault { node, begins: false, kind });
            }
        }
        world
    }

    fn enqueue(&mut self, at: Nanos, what: What) {
        self.schedule.push(at, what);
    }

    /// Runs to the end. The error says which rule was broken.
    pub fn run(mut self) -> Result<(), String> {
        self.tell(gateway::Event::Tick)?;
        while let Some((at, what)) = self.schedule.pop(Nanos::MAX) {
            if at > 20 * SECOND {
                break;
            }
            self.now = at;
            self.happen(what)?;
            // Not at once: a question first has all that it decided carried out.
            while let Some((request, end)) = self.ends.pop_front() {
                self.end(request, end)?;
            }
        }
        if self.done != self.plan.questions {
            return Err(format!("{} of {} questions ended", self.done, self.plan.questions));
        }
        let left = self.gateway.status(self.now).requests;
        let broken = self.gateway.invariants();
        match (left, broken.count()) {
            (0, 0) => Ok(()),
            (left, count) => {
                Err(format!("{left} requests are left, {count} invariants are broken"))
            }
        }
    }

    fn happen(&mut self, what: What) -> Result<(), String> {
        match what {
            What::Ask => self.ask(),
            What::Reply { node, attempt, reply } => {
                self.nodes[node].length -= 1;
                let node_length = if self.nodes[node].lies { 0 } else { self.nodes[node].length };
                let Some(reply) = reply else {
                    return self
                        .tell(gateway::Event::Failed { attempt, why: gateway::Failed::Connect });
                };
                let status = if matches!(reply, Err(true)) { Status::Busy } else { Status::Final };
                let head = Head { status, outcome: Outcome::Shard, node_length, warm: 7 };
                self.replies.insert(attempt, reply);
                self.tell(gateway::Event::Answered { attempt, head })
            }
            What::Pong { node } => {
                let length = self.nodes[node].length;
                let load = LoadReport { length, response_per_length: None };
                self.tell(gateway::Event::Ponged { node, load, fits: true })
            }
            What::PingLost { node } => self.tell(gateway::Event::PingFailed { node }),
            What::Wake => {
                self.wake = Nanos::MAX;
                self.tell(gateway::Event::Tick)
            }
            What::QuestionTick(question) => self.question(question, Event::Tick),
            What::Refreshed { question, version } => match version {
                Some(version) => self.view(question, version),
                None => self.question(question, Event::NoView),
            },
            What::Version => {
                self.change_version();
                Ok(())
            }
            What::Learnt { node, version } => {
                self.nodes[node].version = self.nodes[node].version.max(version);
                Ok(())
            }
            What::Fault { node, begins, kind } => {
                let node = &mut self.nodes[node];
                *[&mut node.down, &mut node.slow, &mut node.lies][usize::from(kind)] = begins;
                Ok(())
            }
        }
    }

    /// A shard more, or two merged; the nodes learn of it after a while.
    fn change_version(&mut self) {
        let version = self.versions.len();
        let mut pieces = self.versions[version - 1].clone();
        if pieces.len() > 2 && self.random.random_bool(0.5) {
            let at = self.random.random_range(0..pieces.len() - 1);
            let ids = pieces[at].ids.start..pieces[at + 1].ids.end;
            pieces.splice(at..at + 2, [piece(&format!("m{version}"), ids)]);
        } else {
            let end = pieces.last().map_or(0, |p| p.ids.end);
            pieces.push(piece(&format!("v{version}"), end..end + self.random.random_range(1..60)));
        }
        self.versions.push(pieces);
        for node in 0..self.nodes.len() {
            let at = self.now + self.random.random_range(0..200) * MS;
            self.enqueue(at, What::Learnt { node, version });
        }
    }

    fn ask(&mut self) -> Result<(), String> {
        let kind = match self.random.random_range(0..3) {
            0 => Kind::All,
            pages => Kind::Page { limit: self.random.random_range(1..40), partial: pages == 1 },
        };
        let deadline = self.now + 800 * MS;
        let settings = Settings { at_once: 4, ..Settings::default() };
        let number = self.asked.len();
        self.asked.push(OpenQuestion {
            question: Question::new(kind, settings, deadline),
            kind,
            modulus: self.random.random_range(1..40),
            deadline,
            version: 0,
            requests: BTreeMap::new(),
            answers: BTreeMap::new(),
            failed: BTreeMap::new(),
            asked: Vec::new(),
        });
        self.enqueue(deadline, What::QuestionTick(number));
        // What the gateway knows may be old.
        let newest = self.versions.len() - 1;
        let version = if self.random.random_bool(0.7) { newest } else { newest.saturating_sub(1) };
        self.view(number, version)
    }

    fn view(&mut self, number: usize, version: usize) -> Result<(), String> {
        let asked = &mut self.asked[number];
        asked.version = version;
        asked.asked.clear();
        asked.failed.clear();
        let parts = self.versions[version].len();
        self.question(number, Event::View { parts })
    }

    fn question(&mut self, number: usize, event: Event) -> Result<(), String> {
        let mut actions = Vec::new();
        let before = self.asked[number].question.is_over();
        self.asked[number].question.handle(self.now, event, &mut actions);
        if before && !actions.is_empty() {
            return Err(format!("question {number} is over and goes on: {actions:?}"));
        }
        for action in actions {
            self.act(number, action)?;
        }
        Ok(())
    }

    fn act(&mut self, number: usize, action: Action) -> Result<(), String> {
        match action {
            Action::Ask { part } => {
                let request = self.next_request;
                self.next_request += 1;
                let asked = &mut self.asked[number];
                if asked.asked.contains(&part) {
                    return Err(format!("part {part} is asked twice"));
                }
                asked.asked.push(part);
                asked.requests.insert(part, request);
                if asked.kind != Kind::All && asked.requests.len() > 4 {
                    return Err(format!("{} pages at once", asked.requests.len()));
                }
                let (key, deadline) =
                    (self.versions[asked.version][part].key.clone(), asked.deadline + MS);
                self.requests.insert(request, (number, part));
                let operation = Operation::Read;
                self.tell(gateway::Event::Request { request, key, operation, deadline })
            }
            Action::Drop { part } => {
                let request = self.asked[number].requests.remove(&part);
                let request = request.ok_or_else(|| format!("part {part} was not asked"))?;
                self.requests.remove(&request);
                self.tell(gateway::Event::Over { request })
            }
            Action::Refresh => {
                self.asked[number].answers.clear();
                let version = self.random.random_bool(0.95).then(|| self.versions.len() - 1);
                let at = self.now + self.random.random_range(1..60) * MS;
                self.enqueue(at, What::Refreshed { question: number, version });
                Ok(())
            }
            Action::Done { parts, missing, more } => {
                self.done += 1;
                self.check(number, parts, &missing, more)
            }
            Action::Fail { part } => {
                self.done += 1;
                let failed = self.asked[number].failed.contains_key(&part);
                self.ended_badly(failed, || format!("part {part} did not fail"))
            }
            Action::TooLate { .. } => {
                self.done += 1;
                let late = self.now >= self.asked[number].deadline;
                self.ended_badly(late, || "it was not too late".to_owned())
            }
            Action::NoView => {
                self.done += 1;
                self.ended_badly(true, String::new)
            }
        }
    }

    fn ended_badly(&self, rightly: bool, why: impl Fn() -> String) -> Result<(), String> {
        match (rightly, self.plan.calm) {
            (true, false) => Ok(()),
            (true, true) => Err("nothing was wrong, and a question failed".to_owned()),
            (false, _) => Err(why()),
        }
    }

    /// The checker: an answer is what its view of the dataset holds.
    fn check(
        &self,
        number: usize,
        parts: usize,
        missing: &[usize],
        more: bool,
    ) -> Result<(), String> {
        let asked = &self.asked[number];
        if self.now > asked.deadline {
            return Err("an answer after the deadline".to_owned());
        }
        if !missing.is_empty() && self.plan.calm {
            return Err(format!("nothing was wrong, and {missing:?} are missing"));
        }
        let pieces = &self.versions[asked.version];
        let mut got: Vec<u64> = Vec::new();
        let mut truth = Vec::new();
        for (part, piece) in pieces.iter().enumerate() {
            let absent = missing.contains(&part);
            if !absent {
                truth.extend(matches_of(piece, asked.modulus));
            }
            if part >= parts || absent {
                continue;
            }
            let answer = asked.answers.get(&part);
            let answer =
                answer.ok_or_else(|| format!("part {part} is in the answer, and gave none"))?;
            if answer.version != asked.version {
                return Err(format!(
                    "an answer of version {} in {}",
                    answer.version, asked.version
                ));
            }
            got.extend(&answer.ids);
        }
        if missing.iter().any(|part| asked.answers.contains_key(part)) {
            return Err(format!("one of {missing:?} is missing, and gave an answer"));
        }
        let limit = match asked.kind {
            Kind::All if parts < pieces.len() || more || !missing.is_empty() => {
                return Err("a count lacks a part".to_owned());
            }
            Kind::All => usize::MAX,
            Kind::Page { partial: false, .. } if !missing.is_empty() => {
                return Err(format!("{missing:?} are missing from what was to be whole"));
            }
            Kind::Page { limit, .. } => limit,
        };
        got.truncate(limit);
        let whole = truth.len();
        truth.truncate(limit);
        if got != truth {
            return Err(format!("{got:?} instead of {truth:?}"));
        }
        if !more && parts < pieces.len() && whole > limit {
            return Err("a page says that it is the last, and is not".to_owned());
        }
        Ok(())
    }

    /// Tells the gateway an event, and does what it decides.
    fn tell(&mut self, event: gateway::Event) -> Result<(), String> {
        let mut actions = Vec::new();
        self.gateway.handle(self.now, event, &mut actions);
        for action in actions {
            self.carry_out(action)?;
        }
        if let Some(wake) = self.gateway.next_wake().filter(|wake| *wake < self.wake) {
            self.wake = wake.max(self.now + 1);
            self.enqueue(self.wake, What::Wake);
        }
        Ok(())
    }

    fn carry_out(&mut self, action: gateway::Action) -> Result<(), String> {
        match action {
            gateway::Action::Send { request, attempt, node, .. } => {
                self.attempts.insert(attempt, request);
                self.send(request, attempt, node);
                Ok(())
            }
            gateway::Action::Relay { request, attempt } => {
                let reply = self.replies.remove(&attempt);
                self.tell(gateway::Event::Over { request })?;
                let end = match reply {
                    Some(Ok(reply)) => Ok(reply),
                    _ => Err(Failed::View),
                };
                self.ends.push_back((request, end));
                Ok(())
            }
            gateway::Action::Refuse { request, .. } => {
                self.ends.push_back((request, Err(Failed::Unavailable)));
                Ok(())
            }
            gateway::Action::Ping { node } if self.nodes[node].down => {
                self.enqueue(self.now + SECOND / 4, What::PingLost { node });
                Ok(())
            }
            gateway::Action::Ping { node } => {
                self.enqueue(self.now + MS, What::Pong { node });
                Ok(())
            }
            gateway::Action::Cancel { .. } | gateway::Action::Origin { .. } => Ok(()),
        }
    }

    /// A node takes a request for a part, works on it in turn, and replies.
    fn send(&mut self, request: u64, attempt: u64, node: NodeId) {
        let Some(&(number, part)) = self.requests.get(&request) else { return };
        let (version, modulus) = (self.asked[number].version, self.asked[number].modulus);
        let limit = match self.asked[number].kind {
            Kind::All => usize::MAX,
            Kind::Page { limit, .. } => limit,
        };
        let service = MS / 2 + self.random.random_range(0..3 * MS);
        let at = &mut self.nodes[node];
        at.length += 1;
        if at.down {
            // Half of the requests to a node that is lost get no reply at all in time.
            let after = if self.random.random_bool(0.5) { MS } else { 3 * SECOND };
            return self.enqueue(self.now + after, What::Reply { node, attempt, reply: None });
        }
        if at.length > NODE_MAX && !self.plan.calm {
            let reply = Some(Err(true));
            return self.enqueue(self.now + MS, What::Reply { node, attempt, reply });
        }
        let service = if at.slow { 30 * service } else { service };
        at.busy_until = at.busy_until.max(self.now) + service;
        let (ends, theirs) = (at.busy_until + MS / 10, at.version);
        // A node that is behind looks for the newer version; one that is ahead cannot go back.
        let reply = if theirs > version {
            Err(false)
        } else {
            let ids = matches_of(&self.versions[version][part], modulus).take(limit).collect();
            Ok(Reply { version, ids })
        };
        self.enqueue(ends, What::Reply { node, attempt, reply: Some(reply) });
    }

    fn end(&mut self, request: u64, end: Result<Reply, Failed>) -> Result<(), String> {
        // It was dropped meanwhile.
        let Some((number, part)) = self.requests.remove(&request) else { return Ok(()) };
        let asked = &mut self.asked[number];
        asked.requests.remove(&part);
        let event = match end {
            Ok(reply) => {
                let records = reply.ids.len();
                asked.answers.insert(part, reply);
                let answer = PartAnswer { records, bytes: records, broke_off: false };
                Event::Answered { part, answer }
            }
            Err(why) => {
                asked.failed.insert(part, why);
                Event::Failed { part, why }
            }
        };
        self.question(number, event)
    }
}

fn piece(name: &str, ids: Range<u64>) -> Piece {
    Piece { key: name.as_bytes().into(), ids }
}

fn matches_of(piece: &Piece, modulus: u64) -> impl Iterator<Item = u64> + use<> {
    piece.ids.clone().filter(move |id| id.is_multiple_of(modulus))
}
