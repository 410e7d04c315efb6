//! The place of a process: its role, the cluster that it belongs to, and its place among the members.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use engine::route::{self, NodeId, Ring};
use origin::{Checks, Secret};

use super::cluster::{Member, Verify};
use super::config::Config;
use super::membership::Listed;
use super::name::is_name;
use super::role::Role;
use super::sections::{Class, not_an_address};
use crate::token;

impl Config {
    /// Where keys belong; `None` for a node alone.
    pub fn ring(&self) -> Option<Arc<Ring>> {
        let member = |m: &Member| route::Member {
            hot: m.class == Class::Hot,
            ..route::Member::new(m.name.clone(), m.weight)
        };
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

    /// Whether any member is reachable from other machines, as far as this process knows: one whose
    /// members are in etcd takes etcd's own addresses for a sign.
    fn is_spread(&self) -> bool {
        if self.is_in_etcd() {
            let here = |host: &str| {
                let ip = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
                host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
            };
            let host = |endpoint: &String| {
                let rest = endpoint.split_once("://").map_or(endpoint.as_str(), |(_, rest)| rest);
                here(rest.rsplit_once(':').map_or(rest, |(host, _)| host))
            };
            let mine = self.membership.address.as_ref();
            let mine = mine.and_then(|address| address.parse::<SocketAddr>().ok());
            let mine = mine.is_none_or(|address| address.ip().is_loopback());
            return !(mine && self.membership.endpoints.iter().all(host));
        }
        self.addresses().iter().any(|address| !address.ip().is_loopback())
    }

    /// Whether this process belongs to a cluster.
    pub fn is_clustered(&self) -> bool {
        !self.members.is_empty() || self.is_in_etcd()
    }

    /// Whether a gateway of this configuration verifies what nodes reply.
    pub fn verifies(&self) -> bool {
        match self.gateway.verify {
            Verify::Auto => self.is_spread(),
            Verify::Always => true,
            Verify::Never => false,
        }
    }

    /// Whether this process is a node.
    pub fn is_node(&self) -> bool {
        matches!(self.serve.role, Role::All | Role::Node)
    }

    /// Whether this process is a gateway to the members.
    pub fn is_gateway(&self) -> bool {
        matches!(self.serve.role, Role::All | Role::Gateway) && self.is_clustered()
    }

    /// Where the node listens: its member's address, and alone `serve.listen`.
    pub fn node_address(&self) -> &str {
        if let (true, Some(address)) = (self.is_in_etcd(), &self.membership.address) {
            return address;
        }
        let name = self.cluster.name.as_deref();
        let me = self.members.iter().find(|member| Some(member.name.as_str()) == name);
        me.map_or(self.serve.listen.as_str(), |member| &member.address)
    }

    /// Checks the members, and the place of this process among them.
    pub fn check_cluster(&self, checks: &mut Checks<'_>) {
        self.check_members(checks);
        self.check_own_name(checks);
        self.check_token(checks);
        let listen: Option<SocketAddr> = self.serve.listen.parse().ok();
        let Ok(mine) = self.node_address().parse::<SocketAddr>() else { return };
        if self.is_node() && self.is_clustered() {
            checks.must(
                !self.is_gateway() || Some(mine) != listen,
                "serve.listen",
                "is the address of this node; its gateway needs another one (or no gateway: set \
                 serve.role to \"node\")",
            );
            checks.must(
                mine.ip().is_loopback() || self.serve.token.is_some(),
                "serve.token",
                format!("must be set, the same in every process: {mine} is reachable from outside"),
            );
        }
    }

    /// Checks that no two of the places where this process listens are the same: the second could not be opened.
    pub(crate) fn check_listeners(&self, checks: &mut Checks<'_>) {
        let node = (self.is_node() && self.is_clustered()).then(|| self.node_address());
        let proxy = self.is_proxy().then_some(self.memcached.listen.as_str());
        let all = [
            ("cluster.name", node),
            ("serve.listen", Some(self.serve.listen.as_str())),
            ("s3.listen", self.s3.listen.as_deref()),
            ("memcached.listen", proxy),
            ("memcached.node_listen", self.memcached.node_listen.as_deref()),
        ];
        let all: Vec<(&str, SocketAddr)> = all
            .iter()
            .filter_map(|(key, text)| Some((*key, text.as_ref()?.parse().ok()?)))
            .collect();
        for (at, (key, address)) in all.iter().enumerate() {
            let is_same = |other: &SocketAddr| {
                let overlaps = other.ip() == address.ip()
                    || other.ip().is_unspecified()
                    || address.ip().is_unspecified();
                address.port() != 0 && other.port() == address.port() && overlaps
            };
            // The node's own address beside its gateway's is a mistake that is told apart.
            let other = all[..at].iter().find(|(other, address)| {
                is_same(address) && (*other, *key) != ("cluster.name", "serve.listen")
            });
            if let Some((other, _)) = other {
                checks.must(
                    false,
                    key,
                    format!("{address} is the address of {other} too; give each its own"),
                );
            }
        }
    }

    /// Checks that this process is one of the members, or none as a gateway.
    fn check_own_name(&self, checks: &mut Checks<'_>) {
        let names: Vec<&str> = self.members.iter().map(|m| m.name.as_str()).collect();
        let known = names.join(", ");
        match (self.serve.role, self.cluster.name.as_deref()) {
            (Role::Proxy, _) => {}
            (Role::All | Role::Node, Some(name)) if self.is_in_etcd() => {
                checks.must(is_name(name), "cluster.name", invalid_name(name));
            }
            (Role::All | Role::Node, None) if self.is_in_etcd() => {
                checks.must(false, "cluster.name", "is missing; give this node a name of its own")
            }
            (Role::Gateway, None) if self.is_in_etcd() => {}
            (Role::Gateway, _) if !self.is_clustered() => checks.must(
                false,
                "serve.role",
                "a gateway needs nodes; list all nodes, each as a [[member]]",
            ),
            (Role::Gateway, Some(_)) => checks.must(
                false,
                "cluster.name",
                "a gateway is not a member; leave the name out, or set serve.role to \"node\" or \"all\"",
            ),
            (Role::Gateway, None) => {}
            (_, Some(name)) if names.is_empty() => checks.must(
                false,
                "cluster.name",
                format!("there is no member {name:?}; list all nodes, each as a [[member]]"),
            ),
            (_, Some(name)) => checks.must(
                names.contains(&name),
                "cluster.name",
                format!("there is no member {name:?}; write one of: {known}"),
            ),
            (_, None) => checks.must(
                names.is_empty(),
                "cluster.name",
                format!("is missing; write which member this node is, one of: {known}"),
            ),
        }
    }

    /// Checks the token by which the processes of a cluster know each other.
    fn check_token(&self, checks: &mut Checks<'_>) {
        let token = self.cluster.token.as_ref().map(Secret::expose);
        let clients = self.serve.token.as_ref().map(Secret::expose);
        checks.must(
            token.is_none_or(|mine| {
                let same = clients.and_then(token::hash_of) == Some(blake3::hash(mine.as_bytes()));
                !mine.is_empty() && !same
            }),
            "cluster.token",
            "must not be empty, and not be the token of clients (serve.token): whoever has it may speak as a node",
        );
        checks.must(
            !token.is_some_and(token::is_hash),
            "cluster.token",
            "must be the token itself and not its hash: processes send it to each other",
        );
        checks.must(
            !self.is_clustered() || token.is_some() || (clients.is_none() && !self.is_spread()),
            "cluster.token",
            "must be set, the same in every process and not the same as serve.token: the members are \
             reachable from outside, or clients need a token",
        );
    }

    fn check_members(&self, checks: &mut Checks<'_>) {
        let mut names: HashMap<&str, usize> = HashMap::new();
        let mut addresses: HashMap<SocketAddr, usize> = HashMap::new();
        checks.must(self.members.len() <= 4096, "member", "there can be at most 4096 members");
        checks.must(
            self.members.is_empty() || self.members.iter().any(|m| m.class == Class::Bulk),
            "member",
            "all members are hot nodes: at least one must have keys (class = \"bulk\")",
        );
        for (index, member) in self.members.iter().enumerate() {
            let mut checks = checks.part(&format!("member.{index}"));
            let name = member.name.as_str();
            checks.must(is_name(name), "name", invalid_name(name));
            if let Some(other) = names.insert(name, index).filter(|_| !name.is_empty()) {
                checks.must(
                    false,
                    "name",
                    format!("{name:?} is already the name of member.{other}"),
                );
            }
            checks.must(
                member.weight > 0.0 && member.weight <= 1e9,
                "weight",
                format!("must be above 0 and at most 1e9, not {}", member.weight),
            );
            let Ok(address) = member.address.parse::<SocketAddr>() else {
                checks.must(false, "address", not_an_address(&member.address));
                continue;
            };
            checks.must(
                address.port() != 0 && !address.ip().is_unspecified(),
                "address",
                format!(
                    "nobody can connect to {address}; write the address that others connect to"
                ),
            );
            if let Some(other) = addresses.insert(address, index) {
                let what = format!("{address} is already the address of member.{other}");
                checks.must(false, "address", what);
            }
        }
    }
}

fn invalid_name(name: &str) -> String {
    format!(
        "invalid name {name:?}; write 1 to 64 letters, digits, `-`, `_` or `.`, and not \"gateway\""
    )
}

impl Config {
    /// Whether the list of nodes is in etcd.
    pub fn is_in_etcd(&self) -> bool {
        self.membership.kind == Listed::Etcd
    }

    pub(crate) fn check_membership(&self, mut checks: Checks<'_>) {
        let it = &self.membership;
        checks.between("lease_s", it.lease_s, 1.0, 60.0);
        checks.between("valid_s", it.valid_s, 0.05, 30.0);
        checks.between("suspect_s", it.suspect_s, 0.1, 60.0);
        checks.between("start_s", it.start_s, 0.0, 3600.0);
        checks.must(
            it.weight > 0.0 && it.weight <= 1e9,
            "weight",
            format!("must be above 0 and at most 1e9, not {}", it.weight),
        );
        if !self.is_in_etcd() {
            return;
        }
        checks.must(
            self.members.is_empty(),
            "kind",
            "the list of nodes is in etcd; remove the [[member]]s",
        );
        checks.must(
            !it.endpoints.is_empty(),
            "endpoints",
            "is missing; write where etcd's servers are, for instance [\"http://127.0.0.1:2379\"]",
        );
        it.endpoints.iter().for_each(|endpoint| it.check_endpoint(endpoint, &mut checks));
        checks.must(
            it.tls_certificate.is_some() == it.tls_key.is_some(),
            "tls_key",
            "a certificate and its key belong together",
        );
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
        checks.must(
            (1..=200).contains(&it.prefix.len())
                && it.prefix.bytes().all(plain)
                && !it.prefix.ends_with('/'),
            "prefix",
            format!(
                "invalid prefix {:?}; write 1 to 200 letters, digits, `-`, `_`, `.` or `/`, the last not `/`",
                it.prefix
            ),
        );
        self.check_own_address(&mut checks);
    }

    /// Checks the address on which other processes reach this node.
    fn check_own_address(&self, checks: &mut Checks<'_>) {
        match &self.membership.address {
            None => checks.must(
                !self.is_node(),
                "address",
                "is missing; write the address on which gateways and the other nodes reach this node",
            ),
            Some(address) => match address.parse::<SocketAddr>() {
                Err(_) => checks.must(false, "address", not_an_address(address)),
                Ok(parsed) => checks.must(
                    parsed.port() != 0 && !parsed.ip().is_unspecified(),
                    "address",
                    format!(
                        "nobody can connect to {parsed}; write the address that others connect to"
                    ),
                ),
            },
        }
    }
}
