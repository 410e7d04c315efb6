//! Gateways, nodes and shards in virtual time: loads that change, nodes that crash, that are full or lie, gateways that end.
//!
//! Queues are those of M/M/1 at once, each holder of a shard taking an equal part of its load. What is checked holds at every
//! look: no node holds more copies than it has room for, no shard more than are allowed, changes are bounded, none is made
//! under a load that has been constant for long, and an hour after all load has ended no copy is left.

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::*;
use crate::mutant;

const NODES: usize = 6;
const SHARDS: usize = 5;
const BYTES: u64 = 100;
/// Time between two looks of a gateway, and for a node to make a copy: longer than the settling time.
const LOOK: Nanos = 2 * SECOND;
const COPY: Nanos = 30 * SECOND;
/// Requests to nodes without room, and those lost in faults, that a run may have.
const VAIN_MAX: usize = 100;
const HOUR: Nanos = 3600 * SECOND;

/// Which load a shard has at a time, as a multiple of what one holder can serve.
type Load = Box<dyn Fn(usize, Nanos) -> f64>;

struct Plan {
    name: String,
    load: Load,
    length: Nanos,
    gateways: u64,
    /// Room of each node, in copies.
    room: u64,
    /// Whether nodes crash and gateways end.
    faults: bool,
    /// A node that says what it likes of its queues.
    liar: bool,
    /// The most changes of all shards together.
    changes_max: usize,
    /// Whether the load is constant, so that nothing changes after half an hour.
    constant: bool,
}

#[derive(Default)]
struct Node {
    leases: Leases,
    /// Copies that are being made, and when they are there.
    making: BTreeMap<ShardId, Nanos>,
    down_until: Nanos,
}

struct Gateway {
    extras: Extras,
    number: u64,
    down_until: Nanos,
}

/// What went wrong, and what was seen.
#[derive(Debug, Default)]
struct Findings {
    faults: Vec<String>,
    changes: usize,
    asked: usize,
    /// Requests that were refused.
    vain: usize,
    most: u64,
}

struct World<'a> {
    plan: &'a Plan,
    random: SmallRng,
    now: Nanos,
    nodes: Vec<Node>,
    gateways: Vec<Gateway>,
    seen: Findings,
}

fn homes(shard: usize) -> Vec<NodeId> {
    vec![shard % NODES, (shard + 1) % NODES]
}

impl World<'_> {
    fn is_up(&self, node: NodeId) -> bool {
        self.now >= self.nodes[node].down_until
    }

    /// The nodes that serve a shard.
    fn holders(&self, shard: usize) -> Vec<NodeId> {
        let holds = |node: &NodeId| {
            let at = &self.nodes[*node];
            let copy =
                at.leases.holds(shard as ShardId) && !at.making.contains_key(&(shard as ShardId));
            self.is_up(*node) && (homes(shard).contains(node) || copy)
        };
        (0..NODES).filter(holds).collect()
    }

    fn length(&self, shard: usize) -> f64 {
        let load =
            if self.now < self.plan.length { (self.plan.load)(shard, self.now) } else { 0.0 };
        let each = load / self.holders(shard).len().max(1) as f64;
        if each < 0.98 { each / (1.0 - each) } else { 200.0 }
    }

    /// What the nodes tell.
    fn reports(&mut self) -> (Vec<ShardReport>, Vec<Room>) {
        let mut of_nodes = [0.0; NODES];
        let mut shards = Vec::new();
        for shard in 0..SHARDS {
            let (length, holders) = (self.length(shard), self.holders(shard));
            let lie = [1e9, -1.0, f64::NAN, 0.0][(self.now / (10 * SECOND) % 4) as usize];
            let mut says = |node: NodeId| {
                of_nodes[node] += length;
                let noise = 1.0 + 0.2 * (self.random.random::<f64>() - 0.5);
                if self.plan.liar && node == 0 { lie } else { length * noise }
            };
            shards.push(ShardReport {
                shard: shard as ShardId,
                bytes: BYTES,
                homes: homes(shard),
                holders: holders.iter().map(|node| (*node, says(*node))).collect(),
                can_grow: false,
            });
        }
        let room = |node: NodeId| Room {
            node,
            length: of_nodes[node],
            bytes: (self.plan.room * BYTES).saturating_sub(self.nodes[node].leases.bytes()),
        };
        (shards, (0..NODES).filter(|node| self.is_up(*node)).map(room).collect())
    }

    /// A request to hold a copy.
    fn ask(&mut self, shard: ShardId, node: NodeId, by: u64, lease: Nanos) -> bool {
        self.seen.asked += 1;
        let up = self.is_up(node);
        let at = &mut self.nodes[node];
        let room = (self.plan.room * BYTES).saturating_sub(at.leases.bytes());
        let there = at.leases.holds(shard);
        let granted = up && at.leases.grant(self.now, shard, by, BYTES, lease, room);
        self.seen.vain += usize::from(!granted);
        if granted && !there {
            at.making.insert(shard, self.now + COPY);
        }
        granted
    }

    fn act(&mut self, which: usize, orders: Vec<Order>) {
        let lease = self.gateways[which].extras.settings.lease;
        for order in orders {
            let by = self.gateways[which].number;
            if let Order::Add { shard, .. } = order {
                let making = |node: NodeId| self.nodes[node].making.contains_key(&shard);
                let mut own = self.gateways[which].extras.leased();
                if own.any(|(leased, node)| leased == shard && making(node)) {
                    let at = self.now / SECOND;
                    self.seen.faults.push(format!("one more while one is being made, at {at} s"));
                }
            }
            match order {
                Order::Add { shard, node, .. } | Order::Renew { shard, node } => {
                    let granted = self.ask(shard, node, by, lease);
                    let extras = &mut self.gateways[which].extras;
                    if granted {
                        extras.record_agreement(self.now, shard, node);
                    } else {
                        extras.refused(self.now, shard, node);
                    }
                    self.change(usize::from(matches!(order, Order::Add { .. }) && granted));
                }
                Order::Remove { shard, node, .. } => {
                    self.nodes[node].leases.release(shard, by);
                    self.gateways[which].extras.gone(self.now, shard, node);
                    self.change(1);
                }
            }
        }
    }

    fn change(&mut self, count: usize) {
        self.seen.changes += count;
        if count > 0 && self.plan.constant && self.now > HOUR / 2 && self.now < self.plan.length {
            self.seen
                .faults
                .push(format!("a change at {} s of a constant load", self.now / SECOND));
        }
    }

    fn fail(&mut self) {
        if !self.plan.faults || self.now > self.plan.length || !self.random.random_bool(1e-3) {
            return;
        }
        let until = self.now + self.random.random_range(1..120) * SECOND;
        let node = self.random.random_range(0..NODES + self.gateways.len());
        if let Some(gateway) = node.checked_sub(NODES) {
            let number = self.gateways[gateway].number;
            let extras = Extras::new(Settings::default(), number).unwrap();
            self.gateways[gateway] = Gateway { extras, number, down_until: until };
        } else {
            // Leases are not kept over a restart.
            self.nodes[node] = Node { down_until: until, ..Node::default() };
        }
    }

    fn look(&mut self) {
        self.fail();
        for node in 0..NODES {
            let at = &mut self.nodes[node];
            for shard in at.leases.expire(self.now) {
                at.making.remove(&shard);
            }
            at.making.retain(|_, until| *until > self.now);
            let bytes = at.leases.bytes();
            self.seen.most = self.seen.most.max(bytes);
            if bytes > self.plan.room * BYTES {
                self.seen
                    .faults
                    .push(format!("{bytes} bytes of copies at {} s", self.now / SECOND));
            }
        }
        for gateway in 0..self.gateways.len() {
            if self.now < self.gateways[gateway].down_until {
                continue;
            }
            let (shards, nodes) = self.reports();
            for seen in &shards {
                let extra = seen.holders.len().saturating_sub(2);
                // Each gateway may add one before it sees the other's.
                if extra > Settings::default().per_shard + self.gateways.len() - 1 {
                    self.seen
                        .faults
                        .push(format!("{extra} further replicas of shard {}", seen.shard));
                }
            }
            let now = self.now;
            let orders = self.gateways[gateway].extras.observe(now, &shards, &nodes);
            self.act(gateway, orders);
        }
    }

    fn run(mut self) -> Findings {
        while self.now < self.plan.length + HOUR {
            self.now += LOOK;
            self.look();
        }
        let left: u64 = self.nodes.iter().map(|node| node.leases.bytes()).sum();
        if left > 0 {
            self.seen.faults.push(format!("{left} bytes of copies after an idle hour"));
        }
        if self.seen.changes > self.plan.changes_max {
            self.seen.faults.push(format!("{} changes", self.seen.changes));
        }
        // A copy is renewed twice in a lease; whatever is more are requests in vain.
        let copies = 10.min(self.plan.room * NODES as u64) * self.plan.gateways;
        let renewals = copies * (self.plan.length + HOUR) / (29 * SECOND);
        let most = self.plan.changes_max + renewals as usize;
        if self.seen.vain > VAIN_MAX {
            self.seen.faults.push(format!("{} requests were refused", self.seen.vain));
        }
        if self.seen.asked > most {
            self.seen.faults.push(format!("{} requests to nodes", self.seen.asked));
        }
        self.seen.faults.truncate(3);
        self.seen
    }
}

fn run(plan: &Plan, seed: u64) -> Findings {
    let gateway = |number| Gateway {
        extras: Extras::new(Settings::default(), number).unwrap(),
        number,
        down_until: 0,
    };
    World {
        plan,
        random: SmallRng::seed_from_u64(seed),
        now: 0,
        nodes: (0..NODES).map(|_| Node::default()).collect(),
        gateways: (0..plan.gateways).map(gateway).collect(),
        seen: Findings::default(),
    }
    .run()
}

/// Loads under which a controller might do harm.
fn plans(gateways: u64) -> Vec<Plan> {
    let plan = |name: &str, load: Load, changes_max: usize| {
        let name = format!("{name}, {gateways} gateways");
        let (length, room, faults, liar, constant) = (6 * HOUR, 3, false, false, false);
        let changes_max = changes_max * gateways as usize;
        Plan { name, load, length, gateways, room, faults, liar, changes_max, constant }
    };
    let mut plans = Vec::new();
    for tenths in [2u32, 10, 15, 17, 19, 25, 33, 60] {
        let load = f64::from(tenths) / 10.0;
        let of = plan(&format!("a constant load of {load}"), Box::new(move |_, _| load), 40);
        plans.push(Plan { constant: true, length: 2 * HOUR, ..of });
    }
    let one = Box::new(|shard, _| if shard == 2 { 3.1 } else { 0.3 });
    plans.push(Plan { constant: true, length: 2 * HOUR, ..plan("one hot shard", one, 12) });
    for period_s in [10, 20, 40, 90, 300] {
        let wave = move |now: Nanos| (now / SECOND) % period_s < period_s / 2;
        let load = Box::new(move |_, now| if wave(now) { 2.6 } else { 0.1 });
        plans.push(plan(&format!("a square wave of {period_s} s"), load, 400));
    }
    let moving =
        Box::new(|shard, now| if now / (2 * HOUR) % 5 == shard as u64 { 2.6 } else { 0.2 });
    plans.push(plan("another hot shard each two hours", moving, 60));
    let all = |_: usize, now: Nanos| if (now / HOUR).is_multiple_of(2) { 3.5 } else { 0.2 };
    plans.push(Plan {
        room: 1,
        ..plan("all shards hot at once, and little room", Box::new(all), 150)
    });
    let calm = Box::new(|_, _| 0.8);
    plans.push(Plan { liar: true, ..plan("a node that lies", calm, 20) });
    plans.push(Plan { faults: true, ..plan("faults", Box::new(all), 300) });
    plans
}

/// What is wrong under each of the loads, lazily.
fn faults(seed: u64) -> impl Iterator<Item = String> {
    let all = [1, 3].into_iter().flat_map(plans);
    all.flat_map(move |plan| {
        let found = run(&plan, seed);
        println!("{}: {found:?}", plan.name);
        let name = plan.name;
        found.faults.into_iter().map(move |fault| format!("{name}: {fault}"))
    })
}

#[test]
fn under_adversarial_loads_copies_are_bounded_and_given_back() {
    assert_eq!(faults(0).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn a_hot_shard_is_relieved_within_a_minute() {
    let plan = &plans(2)[8];
    let mut world = World {
        plan,
        random: SmallRng::seed_from_u64(1),
        now: 0,
        nodes: (0..NODES).map(|_| Node::default()).collect(),
        gateways: (0..2)
            .map(|number| Gateway {
                extras: Extras::new(Settings::default(), number).unwrap(),
                number,
                down_until: 0,
            })
            .collect(),
        seen: Findings::default(),
    };
    while world.now < 120 * SECOND {
        world.now += LOOK;
        world.look();
    }
    // Two replicas cannot carry 3.1; with two more each is busy 0.78 of the time.
    assert_eq!(world.holders(2).len(), 4);
    assert!(world.length(2) < 4.0, "{}", world.length(2));
}

#[test]
fn every_mutant_is_found() {
    for mutant in [
        Mutant::ReplicaIgnoresRoom,
        Mutant::ReplicaNeverLapses,
        Mutant::ReplicaRefusalForgotten,
        Mutant::ReplicaUnderWayIgnored,
    ] {
        let found = mutant::with(Some(mutant), || faults(0).next());
        println!("{mutant:?}: {found:?}");
        assert!(found.is_some(), "{mutant:?} was not found");
    }
}
