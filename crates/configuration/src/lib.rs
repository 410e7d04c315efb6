//! The configuration: one typed TOML file, every key with a default and an explanation.
//!
//! Each section is a struct that [`origin::section!`] declares: reading (`config/read.rs`),
//! printing in full (`concertina config`) and the names of unknown keys follow from it. Everything
//! is checked once, here, and all mistakes are reported together.

mod cluster;
mod common;
mod datasets;
mod error;
mod folders;
mod live;
mod membership;
mod memcached;
mod name;
pub mod nutcracker;
mod read;
mod s3;
mod sections;
mod tiers;
pub mod token;
mod traces;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use origin::{Checks, Section};
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

pub use ::origin::{Mistake, Secret, Settings as Origin, Size};
pub use cluster::{Cluster, Concurrency, Gateway, Member, Role, Verify};
pub use common::{check_shared, set_shared};
pub use datasets::{Fill, Overload};
pub use error::Error;
pub use live::{Act, Model};
pub use membership::{Listed, Membership};
pub use memcached::{Kind as PoolRouting, Memcached, Pool, Route};
pub use name::is_name;
pub use s3::S3;
pub use sections::{Class, Datasets, Device, Kind, Node, Observe, Serve, Service, segment_of};
pub use tiers::Tiers;
pub use traces::{Collector, Traces};

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

type Explained = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The sections as they are printed, with their explanation and keys.
const SECTIONS: &[Explained] = &[
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

/// Everything wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0.len();
        write!(f, "{n} mistake{} in the configuration:", if n == 1 { "" } else { "s" })?;
        for mistake in &self.0 {
            write!(f, "\n  {}: {}", mistake.place, mistake.what)?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

impl Config {
    /// Reads a file, if one is given, puts the overrides `a.b=c` on top, fills in the defaults and
    /// checks the whole.
    ///
    /// # Errors
    /// All mistakes, each with its place; values are checked once all can be read.
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Config, Mistakes> {
        let Some(path) = file else { return Config::parse("", "the configuration", overrides) };
        let place = path.display().to_string();
        match record::file::read_text_of(path, record::file::CONFIG_BYTES_MAX) {
            Ok(text) => Config::parse(&text, &place, overrides),
            Err(error) => {
                Err(Mistakes(vec![Mistake { place, what: format!("cannot be read: {error}") }]))
            }
        }
    }

    /// [`Config::load`] of a text; `name` is the place of mistakes in its syntax.
    ///
    /// # Errors
    /// As for [`Config::load`].
    pub fn parse(text: &str, name: &str, overrides: &[String]) -> Result<Config, Mistakes> {
        let mut mistakes = Vec::new();
        let mut table = text.parse::<Table>().unwrap_or_else(|error| {
            mistakes.push(read::syntax(name, text, &error));
            Table::new()
        });
        for text in overrides {
            if let Err(what) = read::override_with(&mut table, text) {
                mistakes.push(Mistake { place: read::shown_override(text), what });
            }
        }
        let config = read::config(table).unwrap_or_else(|wrong| {
            mistakes.extend(wrong);
            Config::default()
        });
        if mistakes.is_empty() {
            config.check(&mut Checks::new(&mut mistakes));
        }
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
    }

    fn check(&self, checks: &mut Checks<'_>) {
        self.serve.check(checks.part("serve"));
        self.node.check(checks.part("node"));
        self.origin.check(checks.part("origin"));
        self.datasets.check(checks.part("datasets"));
        self.observe.check(checks.part("observe"));
        let is_sampled = self.observe.sample_one_in > 0;
        self.traces.check(is_sampled, self.is_proxy(), checks.part("traces"));
        self.model.check(checks.part("model"));
        self.act.check(self.is_in_etcd(), checks.part("act"));
        self.tiers.check(self, checks.part("tiers"));
        self.check_membership(checks.part("membership"));
        self.check_cluster(checks);
        self.check_folders(checks);
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
        for (index, device) in self.devices.iter().enumerate() {
            device.check(checks.part(&format!("device.{index}")));
        }
    }

    /// All keys that are secrets, in the order of their sections.
    pub fn secrets(&self) -> Vec<SecretKey<'_>> {
        // Names every field, so that a new section does not compile until it is here.
        let Config {
            serve,
            node,
            devices,
            tiers,
            origin,
            datasets,
            observe,
            traces,
            model,
            act,
            members,
            cluster,
            membership,
            gateway,
            s3,
            memcached,
            pools,
            routes,
        } = self;
        let mut all = Vec::new();
        add_secrets(&mut all, "serve", serve);
        add_secrets(&mut all, "node", node);
        add_secrets_of_list(&mut all, "device", devices);
        add_secrets(&mut all, "tiers", tiers);
        add_secrets(&mut all, "origin", origin);
        add_secrets(&mut all, "datasets", datasets);
        add_secrets(&mut all, "observe", observe);
        add_secrets(&mut all, "traces", traces);
        add_secrets(&mut all, "model", model);
        add_secrets(&mut all, "act", act);
        add_secrets_of_list(&mut all, "member", members);
        add_secrets(&mut all, "cluster", cluster);
        add_secrets(&mut all, "membership", membership);
        add_secrets(&mut all, "gateway", gateway);
        add_secrets(&mut all, "s3", s3);
        add_secrets(&mut all, "memcached", memcached);
        add_secrets_of_list(&mut all, "pool", pools);
        add_secrets_of_list(&mut all, "route", routes);
        all
    }

    /// The configuration in full as TOML, each key with its explanation. Of a secret it says only that it is set: what is
    /// printed is not enough to start a server that has one.
    ///
    /// # Panics
    /// If a path is not UTF-8 or a number is above 2⁶³: neither can come from a file or an override.
    pub fn print(&self) -> String {
        let mut out = String::new();
        if self.devices.is_empty() {
            // Without the key there is one. It must stand before the first section.
            out += "device = []\n\n";
        }
        let table = self.table();
        let secrets = self.secrets();
        let set: Vec<&str> =
            secrets.iter().filter(|s| s.value.is_some()).map(|s| s.place.as_str()).collect();
        for &section in SECTIONS {
            match &table[section.0] {
                Value::Array(list) if list.is_empty() && section.0 != "device" => {
                    let example = match section.0 {
                        "pool" => as_value(&Pool::example()),
                        "route" => as_value(&Route::example()),
                        _ => as_value(&Member::example()),
                    };
                    let example =
                        printed(section, &format!("[[{}]]", section.0), &example, &|_| false);
                    example.lines().for_each(|line| out += &format!("# {line}\n"));
                    out.push('\n');
                }
                Value::Array(list) => {
                    let head = format!("[[{}]]", section.0);
                    for (index, one) in list.iter().enumerate() {
                        let is_set = |key: &str| {
                            set.contains(&format!("{}.{index}.{key}", section.0).as_str())
                        };
                        out += &(printed(section, &head, one, &is_set) + "\n");
                    }
                }
                one => {
                    let head = format!("[{}]", section.0);
                    let is_set = |key: &str| set.contains(&format!("{}.{key}", section.0).as_str());
                    out += &(printed(section, &head, one, &is_set) + "\n");
                }
            }
        }
        out.truncate(out.trim_end().len() + 1);
        out
    }

    /// The configuration in full as a table, for the record of a run. Secrets are not in it: their type cannot be
    /// written.
    ///
    /// # Panics
    /// As for [`Config::print`].
    pub fn as_table(&self) -> Table {
        self.table()
    }

    fn table(&self) -> Table {
        match as_value(self) {
            Value::Table(table) => table,
            other => unreachable!("a struct is written as a table, not as {other}"),
        }
    }

    /// The keys whose values differ from those of another configuration, in the order of their names: `serve.listen`,
    /// `device.1.path`. Of a list with another number of entries it is the name alone. Secrets are compared, and not shown.
    ///
    /// # Panics
    /// As for [`Config::print`].
    ///
    /// # Examples
    /// ```
    /// let before = configuration::Config::load(None, &[]).unwrap();
    /// let set = ["serve.drain_s=3".to_owned(), "device=[]".to_owned()];
    /// let after = configuration::Config::load(None, &set).unwrap();
    /// assert_eq!(before.differences(&after), ["device", "serve.drain_s"]);
    /// ```
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let mut different = BTreeSet::new();
        add_differences("", &self.table().into(), &other.table().into(), &mut different);
        let values = |config: &Config| -> BTreeMap<String, Option<String>> {
            let value = |key: SecretKey<'_>| key.value.map(|value| value.expose().to_owned());
            config.secrets().into_iter().map(|key| (key.place.clone(), value(key))).collect()
        };
        let after = values(other);
        let changed = values(self).into_iter().filter(|(place, value)| {
            // An entry that one of both does not have is told by the list's name.
            after.get(place).is_some_and(|other| other != value)
        });
        different.extend(changed.map(|(place, _)| place));
        different.into_iter().collect()
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
        let (budgets, bytes) = match (self.node.memory_shared_bytes, &self.datasets.path) {
            (Size(0), None) => (format!("node.memory_bytes is {objects}"), objects.0),
            (Size(0), Some(_)) => (
                format!("node.memory_bytes is {objects}, datasets.layers_bytes {layers}"),
                objects.0.saturating_add(layers.0),
            ),
            (shared, _) => (format!("node.memory_shared_bytes is {shared}"), shared.0),
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

fn as_value(value: &impl Serialize) -> Value {
    Value::try_from(value).expect("all keys have a form in TOML")
}

/// Adds the places below `place` at which two values differ.
fn add_differences(place: &str, one: &Value, other: &Value, different: &mut BTreeSet<String>) {
    let mut each = |key: &str, one: Option<&Value>, other: Option<&Value>| {
        let place = if place.is_empty() { key.to_owned() } else { format!("{place}.{key}") };
        match (one, other) {
            (Some(one), Some(other)) => add_differences(&place, one, other, different),
            _ => drop(different.insert(place)),
        }
    };
    match (one, other) {
        (Value::Table(one), Value::Table(other)) => {
            let keys: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
            keys.into_iter().for_each(|key| each(key, one.get(key), other.get(key)));
        }
        (Value::Array(one), Value::Array(other))
            if one.len() == other.len() && one.iter().all(Value::is_table) =>
        {
            for (index, (one, other)) in one.iter().zip(other).enumerate() {
                each(&index.to_string(), Some(one), Some(other));
            }
        }
        _ if one == other => {}
        _ => drop(different.insert(place.to_owned())),
    }
}

/// A key whose value is a secret.
#[derive(Clone, Debug)]
pub struct SecretKey<'a> {
    /// Where it stands: `serve.token`.
    pub place: String,
    /// Its value, if it is set.
    pub value: Option<&'a Secret>,
}

fn add_secrets<'a>(all: &mut Vec<SecretKey<'a>>, place: &str, section: &'a impl Section) {
    let of = section.secrets().into_iter();
    all.extend(of.map(|(key, value)| SecretKey { place: format!("{place}.{key}"), value }));
}

fn add_secrets_of_list<'a, S: Section>(
    all: &mut Vec<SecretKey<'a>>,
    place: &str,
    sections: &'a [S],
) {
    for (index, section) in sections.iter().enumerate() {
        add_secrets(all, &format!("{place}.{index}"), section);
    }
}

/// A section as TOML with explanations; keys that are not set are comments, and so are secrets, which `is_set` knows.
fn printed(
    (_, about, keys): Explained,
    head: &str,
    values: &Value,
    is_set: &dyn Fn(&str) -> bool,
) -> String {
    let mut out = format!("{about}{head}\n");
    for (key, explanation) in keys {
        let line = match values.get(key) {
            Some(value) => format!("{key} = {value}"),
            None if is_set(key) => format!("# {key} =   (set; not shown)"),
            None => format!("# {key} ="),
        };
        out += &format!("{explanation}{line}\n");
    }
    out
}

#[cfg(test)]
mod secret_tests;
#[cfg(test)]
mod tests;
