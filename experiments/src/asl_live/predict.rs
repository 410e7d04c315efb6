//! Predictions of every row, from [`Parameters`] alone and before any row is measured: by a network of
//! queues, solved exactly, and by the measured curve of the system as one flow-equivalent station.
//!
//! The network: clients think; a link is a station with a queue; distance is a delay. A middleware's
//! worker is taken from the moment a request starts until its reply is there, through distance and
//! links, so all workers are one station whose speed depends on the number present: k of them do
//! what a delay d and a link with service S allow, min(k/(d + S), 1/S), as both are constant. It is a
//! load-dependent station of the exact solution.

use anyhow::Context as _;
use model::network::{Class, Network, Station};
use serde::Serialize;

use super::config::Settings;
use super::parameters::{Light, Parameters};
use super::rows::{Row, System, Work};

/// A row's predictions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// What limits the row.
    pub limit: Limit,
    /// Requests/s by the network of queues.
    pub network: f64,
    /// Requests/s by the flow-equivalent station; `None` for gets of several keys, which have no
    /// curve.
    pub flow: Option<f64>,
}

/// What limits a system, and how much of it the clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Too few clients: their own thinking and the distance.
    Clients,
    /// The links of the servers.
    ServerLink,
    /// The link of the clients' machine.
    ClientLink,
    /// The links of the middlewares.
    MiddlewareLink,
    /// The workers of the middlewares.
    Workers,
    /// The processors.
    Machine,
}

impl Limit {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Limit::Clients => "clients",
            Limit::ServerLink => "servers' links",
            Limit::ClientLink => "clients' link",
            Limit::MiddlewareLink => "middlewares' links",
            Limit::Workers => "workers",
            Limit::Machine => "machine",
        }
    }
}

/// Bytes of a reply's line before a value, its end, and that of the reply: for keys like `k1234`.
const VALUE_LINE_BYTES: f64 = 22.0;
const END_BYTES: f64 = 5.0;

/// Predicts a row.
///
/// # Errors
/// If a parameter is missing.
pub fn predict(row: &Row, with: &Parameters, settings: &Settings) -> anyhow::Result<Prediction> {
    if !row.system.limited {
        return machine(row, with, settings);
    }
    let parts = Parts::of_row(row, with, settings)?;
    Ok(Prediction {
        limit: parts.limit(),
        network: parts.network()?,
        flow: flow(row, with, settings)?,
    })
}

/// The times of a request in a system with limits.
#[derive(Clone, Debug)]
struct Parts {
    system: System,
    /// Clients of one loop, and the number of loops that do not meet: without a middleware, readers
    /// of two servers.
    clients: u32,
    loops: f64,
    think_s: f64,
    /// Outside the workers: a delay, and the service of the clients' link.
    outside_s: f64,
    client_link_s: f64,
    /// While a worker is taken, or without middleware: a delay, the service of a server's link, and
    /// how many such links work side by side.
    inside_s: f64,
    server_link_s: f64,
    server_links: f64,
    /// The least time between two requests that the middlewares' links allow.
    middleware_link_s: f64,
}

impl Parts {
    fn of_row(row: &Row, with: &Parameters, settings: &Settings) -> anyhow::Result<Parts> {
        let system = row.system;
        let write = row.work == Work::Writes;
        let one = if write { Work::Writes } else { Work::Reads(1) };
        let light = with.light(system, one)?;
        let links = &with.bandwidths;
        let one_s = light.server_bytes / links.server;
        // A write's reply is short: a server's link is no station for it.
        let keys = keys(row.work, with)?;
        let share = settings.filled_share;
        let servers = f64::from(system.servers);
        let wire_s = one_s * values_bytes(keys * share, settings) / values_bytes(1.0, settings);
        let (server_link_s, server_links) = match (write, system.middlewares, system.sharded) {
            (true, ..) => (0.0, 1.0),
            (_, 0, _) => (wire_s, 1.0),
            // All links get the same part of every request at the same time: they are as one.
            (_, _, true) if keys > 1.0 => (slowest(row.work, keys, servers) / keys * wire_s, 1.0),
            _ => (wire_s, servers),
        };
        let client_link_s = if write { light.client_bytes / links.client } else { 0.0 };
        let middlewares = f64::from(system.middlewares.max(1));
        let middleware_bytes = match write {
            true => light.middleware_bytes,
            false => light.middleware_bytes * wire_s / one_s.max(1e-12),
        };
        let middleware_link_s = middleware_bytes / links.middleware / middlewares;
        // What light load does not explain by links is delay.
        let own_link_s = if write { 0.0 } else { one_s };
        let whole_s = (light.response_s - own_link_s - client_link_s).max(0.0);
        let inside_s = match system.middlewares {
            0 => whole_s,
            _ => (light.inside_s - own_link_s).clamp(0.0, whole_s),
        };
        let apart = system.middlewares == 0 && !write;
        let loops = if apart { servers } else { 1.0 };
        Ok(Parts {
            system,
            clients: (f64::from(row.clients) / loops) as u32,
            loops,
            think_s: settings.think_ms / 1e3,
            outside_s: whole_s - inside_s,
            client_link_s,
            inside_s,
            server_link_s,
            server_links,
            middleware_link_s,
        })
    }

    /// Requests/s that `k` requests inside make, in a system whose times do not vary.
    fn inside(&self, k: f64) -> f64 {
        let paced = k / (self.inside_s + self.server_link_s).max(1e-9);
        paced.min(self.capacity())
    }

    /// Most requests/s of the links behind the middlewares.
    fn capacity(&self) -> f64 {
        let links = self.server_links / self.server_link_s.max(1e-12);
        match self.system.middlewares {
            0 => links,
            _ => links.min(1.0 / self.middleware_link_s.max(1e-12)),
        }
    }

    fn workers(&self) -> u32 {
        u32::from(self.system.middlewares) * self.system.workers
    }

    fn network(&self) -> anyhow::Result<f64> {
        let think = self.think_s + self.outside_s;
        let mut stations = Vec::new();
        let mut demands = Vec::new();
        let mut think_s = think;
        if self.client_link_s > 0.0 {
            stations.push(Station::queue("clients' link"));
            demands.push(self.client_link_s);
        }
        if self.system.middlewares > 0 {
            let workers = self.workers();
            let rates: Vec<f64> =
                (1..=self.clients).map(|n| self.inside(f64::from(n.min(workers)))).collect();
            stations.push(Station::load_dependent("workers", &rates)?);
            demands.push(1.0);
        } else {
            think_s += self.inside_s;
            if self.server_link_s > 0.0 {
                stations.push(Station::queue("server's link"));
                demands.push(self.server_link_s);
            }
        }
        let clients = Class::closed("clients", self.clients, think_s, &demands)?;
        Ok(Network::new(stations, vec![clients])?.solve()?.classes[0].throughput * self.loops)
    }

    fn limit(&self) -> Limit {
        let most = match self.system.middlewares {
            0 => f64::INFINITY,
            _ => self.inside(f64::from(self.workers())),
        };
        let paced = f64::from(self.workers()) / (self.inside_s + self.server_link_s).max(1e-9);
        let links = self.server_links / self.server_link_s.max(1e-12);
        let client = 1.0 / self.client_link_s.max(1e-12);
        let cycle = self.think_s + self.outside_s + self.client_link_s + self.inside_s;
        let asked = f64::from(self.clients) / (cycle + self.server_link_s);
        let middlewares = if self.system.middlewares == 0 {
            f64::INFINITY
        } else {
            1.0 / self.middleware_link_s.max(1e-12)
        };
        let mut limits = vec![
            (asked, Limit::Clients),
            (links, Limit::ServerLink),
            (client, Limit::ClientLink),
            (middlewares, Limit::MiddlewareLink),
        ];
        if most.is_finite() {
            limits.push((paced, Limit::Workers));
        }
        limits.sort_by(|a, b| a.0.total_cmp(&b.0));
        limits[0].1
    }
}

/// Bytes of the values of a reply, before they are cut into packets.
fn values_bytes(values: f64, settings: &Settings) -> f64 {
    values * (settings.value_bytes as f64 + VALUE_LINE_BYTES) + END_BYTES
}

/// Keys of a request.
fn keys(work: Work, with: &Parameters) -> anyhow::Result<f64> {
    match work {
        Work::Reads(keys) => Ok(f64::from(keys)),
        Work::Writes => Ok(1.0),
        Work::Batches => with.batch_keys.context("no batches were read"),
    }
}

/// Keys of the largest part of a request that is shared among servers.
fn slowest(work: Work, keys: f64, servers: f64) -> f64 {
    match work {
        // Batches differ: on average each server has the same part of them.
        Work::Batches => keys / servers,
        _ => (keys / servers).ceil(),
    }
}

/// By the system's curve: what it does with n clients that never think it does with n that do, and
/// with more requests than workers what it does with as many as there are workers.
fn flow(row: &Row, with: &Parameters, settings: &Settings) -> anyhow::Result<Option<f64>> {
    if !matches!(row.work, Work::Reads(1) | Work::Writes) {
        return Ok(None);
    }
    let system = row.system;
    let apart = system.middlewares == 0 && row.work != Work::Writes;
    let loops = if apart { u32::from(system.servers) } else { 1 };
    let as_one =
        System { servers: if system.middlewares == 0 { 1 } else { system.servers }, ..system };
    let Some(curve) = with.curve(as_one, row.work) else { return Ok(None) };
    let workers = match system.middlewares {
        0 => u32::MAX,
        m => u32::from(m) * system.workers,
    };
    let clients = row.clients / loops;
    let rates: Vec<f64> =
        (1..=clients).map(|n| interpolate(&curve.points, n.min(workers))).collect();
    let station = Station::load_dependent("system", &rates)?;
    let class = Class::closed("clients", clients, settings.think_ms / 1e3, &[1.0])?;
    let solution = Network::new(vec![station], vec![class])?.solve()?;
    Ok(Some(solution.classes[0].throughput * f64::from(loops)))
}

/// A curve at `n` clients: straight between its points, from nothing with no clients; past its last
/// point as there.
fn interpolate(points: &[(u32, f64)], n: u32) -> f64 {
    let mut before = (0, 0.0);
    for &point in points {
        if n <= point.0 {
            let share = f64::from(n - before.0) / f64::from(point.0 - before.0);
            return before.1 + (point.1 - before.1) * share;
        }
        before = point;
    }
    before.1
}

/// Where the machine is the limit: its processors are one station, with the processor time that a
/// request takes at light load; what else it takes there is a delay.
fn machine(row: &Row, with: &Parameters, settings: &Settings) -> anyhow::Result<Prediction> {
    let light: &Light = with.light(row.system, row.work)?;
    let demand_s: f64 = light.processor_s.iter().sum();
    let largest_s = light.processor_s.iter().copied().fold(0.0, f64::max);
    let processors = std::thread::available_parallelism().map_or(1, usize::from) as u32;
    let rest_s = (light.response_s - demand_s).max(0.0);
    let think_s = settings.think_ms / 1e3 + rest_s;
    // Each process has one thread: the busiest is a limit too.
    let rates: Vec<f64> = (1..=row.clients)
        .map(|n| f64::from(n.min(processors)).min(demand_s / largest_s.max(1e-12)))
        .collect();
    let station = Station::load_dependent("processors", &rates)?;
    let class = Class::closed("clients", row.clients, think_s, &[demand_s])?;
    let solution = Network::new(vec![station], vec![class])?.solve()?;
    let asked = f64::from(row.clients) / (think_s + demand_s);
    let most = rates[rates.len() - 1] / demand_s;
    Ok(Prediction {
        limit: if asked < most { Limit::Clients } else { Limit::Machine },
        network: solution.classes[0].throughput,
        flow: flow(row, with, settings)?,
    })
}
