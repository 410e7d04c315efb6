//! The sections of a cluster: its members, a node's place among them, and gateways.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::gateway::{self, Hedge, Spread};
use engine::route::{self, NodeId, Policy, REPLICAS_MAX, Ring, health};
use model::window::{self, Nanos};

use super::Config;
use super::Size;
use super::field::Visitor;

/// What a process is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// A node; with members a gateway too.
    #[default]
    All,
    /// A gateway alone.
    Gateway,
    /// A node alone.
    Node,
}

impl Role {
    /// The name.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Gateway => "gateway",
            Role::Node => "node",
        }
    }
}

/// `[[member]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its capacity.
    pub weight: f64,
}

/// `[cluster]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Which member this process is.
    pub name: Option<String>,
    /// Nodes of a key.
    pub replicas: u32,
    /// How long a lease lasts.
    pub lease_s: f64,
    /// Bytes each second offered to further replicas.
    pub replicate_bytes: Size,
    /// Requests to peers at once.
    pub peers_parallel: u32,
    /// Longest queue of requests to peers.
    pub peers_queue_length_max: u32,
}

/// `[gateway]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Gateway {
    /// Which of the nodes that may be asked is.
    pub policy: Policy,
    /// Which nodes may be asked.
    pub spread: Spread,
    /// After what quantile of a node's responses another is asked beside it.
    pub hedge_quantile: f64,
    /// Not before this.
    pub hedge_after_min_s: f64,
    /// How many, as a share of reads.
    pub hedge_share: f64,
    /// How many at once.
    pub hedge_burst: u32,
    /// Tries after the first, as a share of requests.
    pub retry_share: f64,
    /// How many of them at once.
    pub retry_burst: u32,
    /// Requests under way.
    pub requests_max: u32,
    /// How long a request may take.
    pub deadline_s: f64,
    /// Bounds of the time after which a read's try is given up for another.
    pub attempt_timeout_factor: f64,
    /// See there.
    pub attempt_timeout_min_s: f64,
    /// See there.
    pub attempt_timeout_max_s: f64,
    /// Time between two pings.
    pub ping_s: f64,
    /// How long a ping may take.
    pub ping_timeout_s: f64,
    /// Over how long a node that came back gets its whole share.
    pub recovery_s: f64,
    /// Whether the gateway reads from the origin when no node can.
    pub origin_fallback: bool,
    /// Such reads at once.
    pub origin_parallel: u32,
    /// Time between two tries of a write that its node did not take.
    pub write_retry_s: f64,
    /// Keys of which it is remembered which nodes have them.
    pub hints_max: u32,
}

impl Default for Member {
    fn default() -> Self {
        Member { name: String::new(), address: String::new(), weight: 1.0 }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Cluster {
            name: None,
            replicas: 3,
            lease_s: 0.5,
            replicate_bytes: Size(4 << 20),
            peers_parallel: 64,
            peers_queue_length_max: 1024,
        }
    }
}

impl Default for Gateway {
    fn default() -> Self {
        Gateway {
            policy: Policy::default(),
            spread: Spread::default(),
            hedge_quantile: 0.95,
            hedge_after_min_s: 0.002,
            hedge_share: 0.05,
            hedge_burst: 20,
            retry_share: 0.1,
            retry_burst: 1000,
            requests_max: 10_000,
            deadline_s: 10.0,
            attempt_timeout_factor: 4.0,
            attempt_timeout_min_s: 0.1,
            attempt_timeout_max_s: 5.0,
            ping_s: 0.1,
            ping_timeout_s: 0.25,
            recovery_s: 2.0,
            origin_fallback: true,
            origin_parallel: 64,
            write_retry_s: 0.02,
            hints_max: 65_536,
        }
    }
}

impl Member {
    /// One to show, where there is none.
    pub(super) fn example() -> Member {
        Member { name: "a".to_owned(), address: "127.0.0.1:7071".to_owned(), weight: 1.0 }
    }

    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "name",
            "Its name: what keys are placed by. Its address may change without moving keys.",
            &mut self.name,
        );
        v.field(
            "address",
            "Where it listens, for gateways and the other nodes.",
            &mut self.address,
        );
        v.field(
            "weight",
            "Its share of the keys in proportion to the others': its capacity, in any unit.",
            &mut self.weight,
        );
    }
}

impl Cluster {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field("name", "Which member this process is; a gateway is none.", &mut self.name);
        v.field(
            "replicas",
            "Nodes that a key belongs to, its primary included; the same in every process.",
            &mut self.replicas,
        );
        v.field(
            "lease_s",
            "How long a lease lasts that a key's primary grants to its other nodes: so long a write \
            waits for a node that died. A node that hears nothing from a primary for so long compares \
            its copies with the origin at each read.",
            &mut self.lease_s,
        );
        v.field(
            "replicate_bytes",
            "Bytes each second that are offered to a key's further nodes when an object is read for the \
            second time, so that they are warm before they are needed. 0: none.",
            &mut self.replicate_bytes,
        );
        v.field(
            "peers_parallel",
            "Requests to other nodes for objects at once.",
            &mut self.peers_parallel,
        );
        v.field(
            "peers_queue_length_max",
            "Such requests waiting and under way; past it requests are answered 503.",
            &mut self.peers_queue_length_max,
        );
    }
}

impl Gateway {
    pub(super) fn visit(&mut self, v: &mut dyn Visitor) {
        v.field(
            "policy",
            "Which of the nodes that may be asked is: \"smallest_expected_response\", \"blowfish\" (with \
            probability in proportion to 1/(1 + queue length)), \"shortest_queue\", \"power_of_two\", \
            \"round_robin\" or \"primary\".",
            &mut self.policy,
        );
        v.field(
            "spread",
            "Which of a key's nodes a read may go to when all are well: \"primary\", \"warm\" (the primary \
            and those that it says have the object too) or \"all\".",
            &mut self.spread,
        );
        v.field(
            "hedge_quantile",
            "A read that takes longer than this quantile of its node's recent responses is tried on \
            another node too, and the first answer counts.",
            &mut self.hedge_quantile,
        );
        v.field(
            "hedge_after_min_s",
            "But not earlier than this: below it a second try costs more than it saves.",
            &mut self.hedge_after_min_s,
        );
        v.field("hedge_share", "How many, as a share of reads; 0: none.", &mut self.hedge_share);
        v.field(
            "hedge_burst",
            "How many of them at once after a quiet time.",
            &mut self.hedge_burst,
        );
        v.field(
            "retry_share",
            "Tries after a request's first, as a share of requests; past it a request that failed is \
            answered 503.",
            &mut self.retry_share,
        );
        v.field(
            "retry_burst",
            "How many of them at once after a quiet time.",
            &mut self.retry_burst,
        );
        v.field(
            "requests_max",
            "Requests under way; past it they are answered 503.",
            &mut self.requests_max,
        );
        v.field(
            "deadline_s",
            "How long a request may take: then it is answered 504. Clients ask for less with \
            concertina-deadline-ms.",
            &mut self.deadline_s,
        );
        v.field(
            "attempt_timeout_factor",
            "A read's try is given up for another after so many times the 0.99 quantile of its node's \
            recent responses ...",
            &mut self.attempt_timeout_factor,
        );
        v.field(
            "attempt_timeout_min_s",
            "... but not earlier than this ...",
            &mut self.attempt_timeout_min_s,
        );
        v.field(
            "attempt_timeout_max_s",
            "... and at the latest after this.",
            &mut self.attempt_timeout_max_s,
        );
        v.field("ping_s", "Time between two pings of a node.", &mut self.ping_s);
        v.field(
            "ping_timeout_s",
            "After so long without an answer it is suspected.",
            &mut self.ping_timeout_s,
        );
        v.field(
            "recovery_s",
            "Over so long a node that came back gets its whole share of reads again.",
            &mut self.recovery_s,
        );
        v.field(
            "origin_fallback",
            "Whether a read that none of its nodes can answer is answered from the origin.",
            &mut self.origin_fallback,
        );
        v.field(
            "origin_parallel",
            "Such reads at once; past it they are answered 503.",
            &mut self.origin_parallel,
        );
        v.field(
            "write_retry_s",
            "Time between two tries of a write that its node did not take.",
            &mut self.write_retry_s,
        );
        v.field(
            "hints_max",
            "Keys of which it is remembered which nodes have them, at about 50 bytes each.",
            &mut self.hints_max,
        );
    }

    /// The engine's settings.
    pub fn settings(
        &self,
        ring: Arc<Ring>,
        windows: window::Settings,
        seed: u64,
    ) -> gateway::Settings {
        let hedge = Hedge {
            quantile: self.hedge_quantile,
            after_min: nanos(self.hedge_after_min_s),
            share: self.hedge_share,
            burst: self.hedge_burst,
        };
        let health = health::Settings { recovery: nanos(self.recovery_s), ..Default::default() };
        gateway::Settings {
            policy: self.policy,
            spread: self.spread,
            hedge: (self.hedge_share > 0.0).then_some(hedge),
            retry_share: self.retry_share,
            retry_burst: self.retry_burst,
            requests_max: self.requests_max,
            attempt_timeout_factor: self.attempt_timeout_factor,
            attempt_timeout_min: nanos(self.attempt_timeout_min_s),
            attempt_timeout_max: nanos(self.attempt_timeout_max_s),
            ping_interval: nanos(self.ping_s),
            ping_timeout: nanos(self.ping_timeout_s),
            health,
            origin: self.origin_fallback,
            origin_attempts_max: self.origin_parallel,
            write_retry: nanos(self.write_retry_s),
            hints_max: self.hints_max as usize,
            seed,
            windows,
            ..gateway::Settings::new(ring)
        }
    }
}

fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

impl Config {
    /// Where keys belong; `None` for a node alone. Costs 65,536 hashes for each member.
    pub fn ring(&self) -> Option<Arc<Ring>> {
        let member = |m: &Member| route::Member { name: m.name.clone(), weight: m.weight };
        let members = self.members.iter().map(member).collect();
        Ring::new(members, self.cluster.replicas as usize).ok().map(Arc::new)
    }

    /// Which member of the ring this process is: none alone, or on a gateway.
    pub fn me(&self) -> Option<NodeId> {
        let name = self.cluster.name.as_deref()?;
        // The ring's order.
        let mut names: Vec<&str> = self.members.iter().map(|m| m.name.as_str()).collect();
        names.sort_unstable();
        names.binary_search(&name).ok()
    }

    /// The members' addresses in the ring's order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let mut members: Vec<&Member> = self.members.iter().collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        members.iter().filter_map(|m| m.address.parse().ok()).collect()
    }

    /// Whether this process is a node.
    pub fn is_node(&self) -> bool {
        self.serve.role != Role::Gateway
    }

    /// Whether this process is a gateway to the members.
    pub fn is_gateway(&self) -> bool {
        self.serve.role != Role::Node && !self.members.is_empty()
    }

    /// Where the node listens: its member's address, and alone `serve.listen`.
    pub fn node_address(&self) -> &str {
        let name = self.cluster.name.as_deref();
        let me = self.members.iter().find(|member| Some(member.name.as_str()) == name);
        me.map_or(self.serve.listen.as_str(), |member| &member.address)
    }

    /// Checks members, the place among them and the gateway.
    pub(super) fn check_cluster(&self, must: &mut dyn FnMut(bool, &str, String)) {
        self.check_members(must);
        let role = self.serve.role;
        let name = self.cluster.name.as_deref();
        let known = || {
            let names: Vec<&str> = self.members.iter().map(|m| m.name.as_str()).collect();
            names.join(", ")
        };
        match (role, name) {
            (Role::Gateway, _) if self.members.is_empty() => must(
                false,
                "serve.role",
                "a gateway needs nodes: name them, each by [[member]]".to_owned(),
            ),
            (Role::Gateway, Some(_)) => must(
                false,
                "cluster.name",
                "a gateway is not a member: leave it out, or set serve.role to \"node\" or \"all\""
                    .to_owned(),
            ),
            (_, Some(name)) => must(
                self.members.iter().any(|member| member.name == name),
                "cluster.name",
                match self.members.is_empty() {
                    true => "there are no members: name all nodes, each by [[member]]".to_owned(),
                    false => format!("{name:?} is no member; they are {}", known()),
                },
            ),
            (Role::Gateway, None) => {}
            (_, None) => must(
                self.members.is_empty(),
                "cluster.name",
                format!("must say which of the members this node is: {}", known()),
            ),
        }
        let listen: Option<SocketAddr> = self.serve.listen.parse().ok();
        let mine: Option<SocketAddr> = self.node_address().parse().ok();
        if self.is_node() && !self.members.is_empty() && mine.is_some() {
            must(
                !self.is_gateway() || mine != listen,
                "serve.listen",
                "is the node's own address, and the gateway of this process needs another; with \
                 serve.role = \"node\" there is none"
                    .to_owned(),
            );
            must(
                mine.is_none_or(|mine| mine.ip().is_loopback()) || self.serve.token.is_some(),
                "serve.token",
                format!(
                    "must be set, the same for all: the node's address {} is reachable from outside",
                    self.node_address()
                ),
            );
        }
        self.cluster.check(must);
        self.gateway.check(must);
    }

    fn check_members(&self, must: &mut dyn FnMut(bool, &str, String)) {
        let mut names: HashMap<&str, usize> = HashMap::new();
        let mut addresses: HashMap<SocketAddr, usize> = HashMap::new();
        must(self.members.len() <= 4096, "member", "at most 4096 are possible".to_owned());
        for (index, member) in self.members.iter().enumerate() {
            let place = |key: &str| format!("member.{index}.{key}");
            let name = member.name.as_str();
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            must(
                (1..=64).contains(&name.len()) && name.bytes().all(plain) && name != "gateway",
                &place("name"),
                format!(
                    "{name:?} cannot be a name: give 1 to 64 letters, digits, `-`, `_` or `.`, and not \
                     \"gateway\""
                ),
            );
            if let Some(other) = names.insert(name, index).filter(|_| !name.is_empty()) {
                must(false, &place("name"), format!("{name:?} is member.{other} already"));
            }
            must(
                member.weight.is_finite() && member.weight > 0.0 && member.weight <= 1e9,
                &place("weight"),
                format!("must be positive and at most 1e9, not {}", member.weight),
            );
            match member.address.parse::<SocketAddr>() {
                Err(_) => must(
                    false,
                    &place("address"),
                    format!(
                        "{:?} is not an address and port; write it as \"127.0.0.1:7071\"",
                        member.address
                    ),
                ),
                Ok(address) => {
                    must(
                        address.port() != 0 && !address.ip().is_unspecified(),
                        &place("address"),
                        format!("{address} is not one that others can connect to"),
                    );
                    if let Some(other) = addresses.insert(address, index) {
                        must(false, &place("address"), format!("{address} is member.{other}'s"));
                    }
                }
            }
        }
    }
}

impl Cluster {
    fn check(&self, must: &mut dyn FnMut(bool, &str, String)) {
        must(
            (1..=REPLICAS_MAX).contains(&(self.replicas as usize)),
            "cluster.replicas",
            format!("must be between 1 and {REPLICAS_MAX}"),
        );
        must(
            (0.02..=60.0).contains(&self.lease_s),
            "cluster.lease_s",
            format!("must be between 0.02 and 60 seconds, not {}", self.lease_s),
        );
        must(
            (1..=4096).contains(&self.peers_parallel),
            "cluster.peers_parallel",
            "must be between 1 and 4096".to_owned(),
        );
        must(
            self.peers_queue_length_max > 0,
            "cluster.peers_queue_length_max",
            "must be at least 1".to_owned(),
        );
    }
}

impl Gateway {
    fn check(&self, must: &mut dyn FnMut(bool, &str, String)) {
        must(
            self.hedge_quantile > 0.0 && self.hedge_quantile < 1.0,
            "gateway.hedge_quantile",
            format!("must lie between 0 and 1, not be {}", self.hedge_quantile),
        );
        for (place, value) in
            [("gateway.hedge_share", self.hedge_share), ("gateway.retry_share", self.retry_share)]
        {
            let what = format!("must be between 0 and 1, not {value}");
            must((0.0..=1.0).contains(&value), place, what);
        }
        must(
            (1..=1 << 20).contains(&self.requests_max),
            "gateway.requests_max",
            "must be between 1 and 1048576".to_owned(),
        );
        must(
            (1.0..=1e3).contains(&self.attempt_timeout_factor),
            "gateway.attempt_timeout_factor",
            format!("must be between 1 and 1000, not {}", self.attempt_timeout_factor),
        );
        for (place, value, low) in [
            ("gateway.hedge_after_min_s", self.hedge_after_min_s, 0.0),
            ("gateway.deadline_s", self.deadline_s, 0.001),
            ("gateway.attempt_timeout_min_s", self.attempt_timeout_min_s, 0.001),
            ("gateway.attempt_timeout_max_s", self.attempt_timeout_max_s, 0.001),
            ("gateway.ping_s", self.ping_s, 0.001),
            ("gateway.ping_timeout_s", self.ping_timeout_s, 0.001),
            ("gateway.recovery_s", self.recovery_s, 0.0),
            ("gateway.write_retry_s", self.write_retry_s, 0.001),
        ] {
            must(
                (low..=3600.0).contains(&value),
                place,
                format!("must be between {low} and 3600 seconds, not {value}"),
            );
        }
        must(
            self.attempt_timeout_min_s <= self.attempt_timeout_max_s,
            "gateway.attempt_timeout_min_s",
            "must not be more than attempt_timeout_max_s".to_owned(),
        );
        must(self.hints_max > 0, "gateway.hints_max", "must be at least 1".to_owned());
    }
}
