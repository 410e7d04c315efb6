//! [`Config`]: the sections together, and their checks.

use origin::{Checks, Section, Settings as Origin, Size};
use serde::{Deserialize, Serialize};

use super::cluster::{Cluster, Gateway, Member};
use super::live::{Act, Model};
use super::membership::Membership;
use super::memcached::{Memcached, Pool, Route};
use super::s3::S3;
use super::sections::{Datasets, Device, Node, Observe, Serve};
use super::tiers::Tiers;
use super::traces::Traces;

/// The configuration of `concertina serve`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Connections of clients.
    pub serve: Serve,
    /// What a node keeps.
    pub node: Node,
    /// Devices that hold objects beside memory. A file without any has one.
    #[serde(rename = "device", default = "one_device")]
    pub devices: Vec<Device>,
    /// What hot devices hold.
    pub tiers: Tiers,
    /// Where objects are durable.
    pub origin: Origin,
    /// The datasets that are served.
    pub datasets: Datasets,
    /// What is recorded.
    pub observe: Observe,
    /// Where spans of sampled requests go.
    pub traces: Traces,
    /// What is predicted.
    pub model: Model,
    /// What changes by itself.
    pub act: Act,
    /// The nodes of the cluster; empty for a node alone.
    #[serde(rename = "member")]
    pub members: Vec<Member>,
    /// The place of this process among the members.
    pub cluster: Cluster,
    /// Where the list of members comes from.
    pub membership: Membership,
    /// How requests are routed.
    pub gateway: Gateway,
    /// S3's protocol in front.
    pub s3: S3,
    /// The proxy for memcached's protocol.
    pub memcached: Memcached,
    /// Its pools of servers.
    #[serde(rename = "pool")]
    pub pools: Vec<Pool>,
    /// Its routes of keys to pools.
    #[serde(rename = "route")]
    pub routes: Vec<Route>,
}

fn one_device() -> Vec<Device> {
    vec![Device::default()]
}

pub(super) type Explained = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The sections as they are printed, with their explanation and keys.
pub(super) const SECTIONS: &[Explained] = &[
    ("serve", Serve::ABOUT, Serve::KEYS),
    ("node", Node::ABOUT, Node::KEYS),
    ("device", Device::ABOUT, Device::KEYS),
    ("tiers", Tiers::ABOUT, Tiers::KEYS),
    ("origin", Origin::ABOUT, Origin::KEYS),
    ("datasets", Datasets::ABOUT, Datasets::KEYS),
    ("observe", Observe::ABOUT, Observe::KEYS),
    ("traces", Traces::ABOUT, Traces::KEYS),
    ("model", Model::ABOUT, Model::KEYS),
    ("act", Act::ABOUT, Act::KEYS),
    ("member", Member::ABOUT, Member::KEYS),
    ("cluster", Cluster::ABOUT, Cluster::KEYS),
    ("membership", Membership::ABOUT, Membership::KEYS),
    ("gateway", Gateway::ABOUT, Gateway::KEYS),
    ("s3", S3::ABOUT, S3::KEYS),
    ("memcached", Memcached::ABOUT, Memcached::KEYS),
    ("pool", Pool::ABOUT, Pool::KEYS),
    ("route", Route::ABOUT, Route::KEYS),
];

impl Config {
    /// Checks all values.
    pub(super) fn check(&self, checks: &mut Checks<'_>) {
        self.serve.check(checks.part("serve"));
        self.node.check(checks.part("node"));
        self.origin.check(checks.part("origin"));
        self.datasets.check(checks.part("datasets"));
        self.observe.check(checks.part("observe"));
        let is_sampled = self.observe.sample_one_in > 0;
        self.traces.check(is_sampled, self.is_proxy(), checks.part("traces"));
        self.model.check(checks.part("model"));
        self.act.check(self.is_in_etcd(), checks.part("act"));
        self.tiers.check(&self.devices, checks.part("tiers"));
        self.check_membership(checks.part("membership"));
        self.check_cluster(checks);
        self.check_folders(checks);
        self.check_listeners(checks);
        self.cluster.check(checks.part("cluster"));
        self.gateway.check(checks.part("gateway"));
        self.check_s3(checks.part("s3"));
        self.memcached.check(self, checks);
        let cache = self.origin.kind == origin::Kind::None;
        checks.part("origin").must(
            !cache || (!self.is_clustered() && self.datasets.path.is_none()),
            "kind",
            "\"none\" is for a node alone, without members of a cluster and without datasets",
        );
        checks.part("s3").must(
            !cache || self.s3.listen.is_none(),
            "listen",
            "S3's protocol has lists and uploads in parts, which a cache without an origin (origin.kind = \"none\") does not have",
        );
        checks.part("serve").must(
            !cache || self.is_proxy() || self.serve.uploads_bytes_max >= self.node.object_bytes_max,
            "uploads_bytes_max",
            "must be at least node.object_bytes_max: a cache without an origin (origin.kind = \"none\") keeps all of an upload in this memory",
        );
        for (index, device) in self.devices.iter().enumerate() {
            device.check(checks.part(&format!("device.{index}")));
        }
    }

    /// What to do if this process may use less memory, `limit_bytes`, than its budgets add up to; `None` if they fit.
    ///
    /// ```
    /// let config = configuration::Config::parse("[node]\nmemory_bytes = \"4GiB\"", "", &[])?;
    /// assert!(config.memory_advice(8 << 30).is_none());
    /// assert!(config.memory_advice(4 << 30).is_some_and(|advice| advice.contains("node.memory_bytes")));
    /// # Ok::<(), configuration::Mistakes>(())
    /// ```
    pub fn memory_advice(&self, limit_bytes: u64) -> Option<String> {
        if !self.is_node() {
            return None;
        }
        let (objects, layers) = (self.node.memory_bytes, self.datasets.layers_bytes);
        let appends = match self.devices.is_empty() {
            true => Size(0),
            false => self.node.appends_bytes_max,
        };
        let (budgets, bytes) = match (self.node.memory_shared_bytes, &self.datasets.path) {
            (Size(0), None) => (format!("node.memory_bytes is {objects}"), objects.0),
            (Size(0), Some(_)) => (
                format!("node.memory_bytes is {objects}, datasets.layers_bytes {layers}"),
                objects.0.saturating_add(layers.0),
            ),
            (shared, _) => (format!("node.memory_shared_bytes is {shared}"), shared.0),
        };
        let bytes = bytes.saturating_add(appends.0);
        let budgets = match appends {
            Size(0) => budgets,
            _ => format!("{budgets}, node.appends_bytes_max {appends}"),
        };
        // A tenth is for connections, uploads, tables and what the allocator rounds up.
        let fits = limit_bytes / 10 * 9;
        (bytes > fits).then(|| {
            format!(
                "{budgets}, and this process may use {:.1} GiB of memory: the system would end it as memory fills up; \
                 at most {:.1} GiB fit",
                limit_bytes as f64 / (1u64 << 30) as f64,
                fits as f64 / (1u64 << 30) as f64
            )
        })
    }

    /// The emulated devices in words; `None` where everything is real.
    pub fn laboratory(&self) -> Option<String> {
        let held: Vec<String> = self
            .devices
            .iter()
            .filter_map(|device| {
                let service = device.service.as_ref()?;
                let (n, plural) = (device.count, if device.count == 1 { "" } else { "s" });
                let verb = if n == 1 { "holds" } else { "hold" };
                Some(format!("{n} device{plural} {verb} each read for {}", service.in_words()))
            })
            .collect();
        (!held.is_empty()).then(|| held.join("; "))
    }
}
