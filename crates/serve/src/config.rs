//! The configuration: one typed TOML file, every key of it with a default and an explanation.
//!
//! Each section lists its fields once, in `visit`: reading, printing in full (`concertina config`) and
//! the names of unknown keys all follow from that list. Everything is checked once, here, and all
//! mistakes are told together.

mod cluster;
mod datasets;
mod field;
mod folders;
mod origin;
mod sections;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

pub use ::origin::{Secret, Settings as Origin, Size};
pub use cluster::{Cluster, Gateway, Member, Role};
pub use datasets::Datasets;
use field::{Printer, Reader, Visitor};
use origin::Keys as _;
pub use sections::{Class, Device, Kind, Node, Observe, Serve, Service};

/// The configuration of `concertina serve`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// What listens.
    pub serve: Serve,
    /// What is kept, and how long it is believed.
    pub node: Node,
    /// Where objects lie beside memory.
    pub devices: Vec<Device>,
    /// Where objects are durable.
    pub origin: Origin,
    /// The datasets that are served.
    pub datasets: Datasets,
    /// What is recorded.
    pub observe: Observe,
    /// The nodes of the cluster; none for a node alone.
    pub members: Vec<Member>,
    /// The place among them.
    pub cluster: Cluster,
    /// How requests are routed.
    pub gateway: Gateway,
}

/// Something wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Key, or file and line.
    pub place: String,
    /// What is wrong, and what to do.
    pub what: String,
}

/// All that is wrong in a configuration.
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
    pub fn load(file: Option<&Path>, overrides: &[String]) -> Result<Config, Mistakes> {
        let text = match file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path).map_err(|error| {
                Mistakes(vec![Mistake {
                    place: path.display().to_string(),
                    what: format!("cannot be read: {error}"),
                }])
            })?,
        };
        let name = file.map_or("the configuration".to_owned(), |path| path.display().to_string());
        Config::parse(&text, &name, overrides)
    }

    /// [`Config::load`] of a text; `name` is what mistakes call it.
    pub fn parse(text: &str, name: &str, overrides: &[String]) -> Result<Config, Mistakes> {
        let mut mistakes = Vec::new();
        let mut table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => {
                mistakes.push(Mistake { place: name.to_owned(), what: error.to_string() });
                toml::Table::new()
            }
        };
        for text in overrides {
            if let Err(what) = field::override_with(&mut table, text) {
                mistakes.push(Mistake { place: format!("--set {text}"), what });
            }
        }
        let mut config = Config::default();
        config.read(table, &mut mistakes);
        if mistakes.is_empty() {
            config.check(&mut mistakes);
        }
        if mistakes.is_empty() { Ok(config) } else { Err(Mistakes(mistakes)) }
    }

    fn read(&mut self, mut table: toml::Table, mistakes: &mut Vec<Mistake>) {
        let mut section = |name: &str, visit: &mut dyn FnMut(&mut dyn Visitor)| {
            let value = table.remove(name);
            Reader::section(name, value, mistakes, visit);
        };
        section("serve", &mut |v| self.serve.visit(v));
        section("node", &mut |v| self.node.visit(v));
        section("origin", &mut |v| self.origin.visit(v));
        section("datasets", &mut |v| self.datasets.visit(v));
        section("observe", &mut |v| self.observe.visit(v));
        section("cluster", &mut |v| self.cluster.visit(v));
        section("gateway", &mut |v| self.gateway.visit(v));
        match table.remove("device") {
            None => self.devices.push(Device::default()),
            value => self.devices = list("device", value, mistakes, Device::visit),
        }
        self.members = list("member", table.remove("member"), mistakes, Member::visit);
        for key in table.keys() {
            let sections = [
                "serve", "node", "device", "origin", "datasets", "observe", "member", "cluster",
                "gateway",
            ];
            mistakes.push(Mistake { place: key.clone(), what: field::unknown(key, &sections) });
        }
    }

    fn check(&self, mistakes: &mut Vec<Mistake>) {
        let mut must = |holds: bool, place: &str, what: String| {
            if !holds {
                mistakes.push(Mistake { place: place.to_owned(), what });
            }
        };
        match self.serve.listen.parse::<SocketAddr>() {
            Err(_) => must(
                false,
                "serve.listen",
                format!(
                    "{:?} is not an address and port; write it as \"127.0.0.1:7070\"",
                    self.serve.listen
                ),
            ),
            Ok(address) => must(
                address.ip().is_loopback() || self.serve.token.is_some(),
                "serve.listen",
                format!(
                    "{address} is reachable from outside; set serve.token, or \
                listen on 127.0.0.1"
                ),
            ),
        }
        must(self.serve.token.as_deref() != Some(""), "serve.token", "is empty".to_owned());
        must(
            self.serve.connections_max > 0,
            "serve.connections_max",
            "must be at least 1".to_owned(),
        );
        must(self.serve.threads <= 1024, "serve.threads", "must be at most 1024".to_owned());
        must(
            (8 << 10..=16 << 20).contains(&self.serve.header_bytes_max.0),
            "serve.header_bytes_max",
            "must be between 8KiB and 16MiB".to_owned(),
        );
        for (place, value, low) in [
            ("serve.idle_s", self.serve.idle_s, 0.01),
            ("serve.stall_s", self.serve.stall_s, 0.01),
            ("serve.drain_s", self.serve.drain_s, 0.0),
            ("node.revalidate_s", self.node.revalidate_s, 0.0),
            ("node.stale_if_error_s", self.node.stale_if_error_s, 0.0),
            ("origin.timeout_s", self.origin.timeout_s, 0.001),
            ("observe.window_s", self.observe.window_s, 0.01),
        ] {
            must(
                (low..=1e6).contains(&value),
                place,
                format!("must be between {low} and 1000000 seconds, not {value}"),
            );
        }
        must(
            self.node.object_bytes_max.0 <= 1 << 30,
            "node.object_bytes_max",
            "must be at most 1GiB: objects that are kept are held in memory whole".to_owned(),
        );
        self.origin.check(&mut must);
        self.datasets.check(&mut must);
        must(
            self.observe.objectives_ms.iter().all(|o| o.is_finite() && *o > 0.0),
            "observe.objectives_ms",
            "must all be positive".to_owned(),
        );
        must(
            !self.observe.events || self.observe.run_dir.is_some(),
            "observe.events",
            "needs observe.run_dir, the folder that events are written to".to_owned(),
        );
        self.check_cluster(&mut must);
        self.check_folders(&mut must);
        let mut folders: Vec<PathBuf> = Vec::new();
        if self.origin.kind == "folder" {
            folders.push(self.origin.path.clone());
        }
        for (index, device) in self.devices.iter().enumerate() {
            device.check(&format!("device.{index}"), &mut must);
            for folder in if device.count <= 4096 { device.folders() } else { Vec::new() } {
                must(
                    !folders.contains(&folder),
                    &format!("device.{index}.path"),
                    format!(
                        "{} is used twice; give each device and the origin its own folder",
                        folder.display()
                    ),
                );
                folders.push(folder);
            }
        }
    }

    /// The configuration in full as TOML, each key with its explanation.
    pub fn print(&self) -> String {
        self.printed(true)
    }

    /// The configuration in full as a table, for the record of a run; the token is left out.
    pub fn asked(&self) -> toml::Table {
        let mut public = self.clone();
        public.serve.token = None;
        public.printed(false).parse().unwrap_or_default()
    }

    fn printed(&self, explain: bool) -> String {
        let mut config = self.clone();
        let mut printer = Printer::new(explain);
        printer.section("[serve]", "What listens.");
        config.serve.visit(&mut printer);
        printer.section("[node]", "What is kept, and how long it is believed.");
        config.node.visit(&mut printer);
        for device in &mut config.devices {
            printer
                .section("[[device]]", "Where objects lie beside memory. Repeat for other kinds.");
            device.visit(&mut printer);
        }
        if config.devices.is_empty() {
            printer.raw("device = []");
        }
        printer.section("[origin]", "Where objects are durable.");
        config.origin.visit(&mut printer);
        printer.section("[datasets]", "The datasets of records that are served from the origin.");
        config.datasets.visit(&mut printer);
        printer.section("[observe]", "What is recorded.");
        config.observe.visit(&mut printer);
        config.print_cluster(explain, &mut printer);
        printer.finish()
    }

    fn print_cluster(&mut self, explain: bool, printer: &mut Printer) {
        const MEMBERS: &str =
            "The nodes of a cluster, the same list in every process. Repeat for each.";
        for member in &mut self.members {
            printer.section("[[member]]", MEMBERS);
            member.visit(printer);
        }
        if self.members.is_empty() && explain {
            let mut example = Printer::new(true);
            example.section("[[member]]", MEMBERS);
            Member::example().visit(&mut example);
            printer.example(&example.finish());
        }
        printer.section("[cluster]", "A node's place among the members.");
        self.cluster.visit(printer);
        printer.section("[gateway]", "How a gateway routes requests to the members.");
        self.gateway.visit(printer);
    }

    /// The laboratory conditions in words; `None` where everything is real.
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

/// Reads a list of sections of one kind.
fn list<T: Default>(
    name: &str,
    value: Option<toml::Value>,
    mistakes: &mut Vec<Mistake>,
    visit: fn(&mut T, &mut dyn Visitor),
) -> Vec<T> {
    let groups = match value {
        None => return Vec::new(),
        Some(toml::Value::Array(groups)) => groups,
        Some(_) => {
            let what = format!("{name}s are a list: write [[{name}]], not [{name}]");
            mistakes.push(Mistake { place: name.to_owned(), what });
            return Vec::new();
        }
    };
    let mut all = Vec::new();
    for (index, group) in groups.into_iter().enumerate() {
        let mut one = T::default();
        let place = format!("{name}.{index}");
        Reader::section(&place, Some(group), mistakes, &mut |v| visit(&mut one, v));
        all.push(one);
    }
    all
}

impl Device {
    fn check(&self, place: &str, must: &mut dyn FnMut(bool, &str, String)) {
        must(
            (1..=4096).contains(&self.count),
            &format!("{place}.count"),
            "must be between 1 and 4096".to_owned(),
        );
        must(
            (1..=1024).contains(&self.servers()),
            &format!("{place}.parallel"),
            "must be between 1 and 1024".to_owned(),
        );
        must(
            self.queue_length_max > 0,
            &format!("{place}.queue_length_max"),
            "must be at least 1".to_owned(),
        );
        must(
            (4096..=1 << 40).contains(&self.segment()),
            &format!("{place}.segment_bytes"),
            "must be between 4KiB and 1TiB".to_owned(),
        );
        must(
            self.bytes.0 >= 2 * self.segment(),
            &format!("{place}.bytes"),
            format!(
                "must hold two segments of {}; make it larger, or segment_bytes smaller",
                Size(self.segment())
            ),
        );
        let Some(service) = &self.service else { return };
        must(
            self.parallel <= 1,
            &format!("{place}.parallel"),
            "a device with a service profile is one server; leave it out".to_owned(),
        );
        must(
            service.kind == Kind::Empirical || (service.mean_ms > 0.0 && service.mean_ms <= 1e6),
            &format!("{place}.service.mean_ms"),
            "must be positive, in milliseconds".to_owned(),
        );
        must(
            service.scv > 0.0 && service.scv <= 1e4,
            &format!("{place}.service.scv"),
            "must be positive".to_owned(),
        );
        must(
            service.kind != Kind::Exponential || service.scv == 1.0,
            &format!("{place}.service.scv"),
            "an exponential time has SCV 1; use gamma or lognormal for another".to_owned(),
        );
        must(
            (service.kind == Kind::Empirical) == service.file.is_some(),
            &format!("{place}.service.file"),
            "goes with kind = \"empirical\", and must be given for it".to_owned(),
        );
    }
}

#[cfg(test)]
mod tests;
