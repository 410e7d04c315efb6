//! `experiments/proxy`: this project's memcached proxy beside twemproxy and memcached's built-in
//! one, and beside a server that stalls.
//!
//! All processes run at once, the proxies and the servers on the same processor, the client on
//! another. A block measures every cell of the grid, in each cell every system for a slice
//! ([`crate::slices`]).

mod cells;
mod client;
mod kind;
mod stall;
mod systems;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::claims::Claim;
use super::context::Context;
use super::machine::{self, Placement};
use super::marks::{Complaint, Mark};
use super::provenance::Round;
use super::serve_objects::peers::Bench;
use super::slices::{self, Blocks, SLICE_S_MAX};
use cells::{Cell, STALLED, STALLS, SYSTEMS};
use client::{Load, Slice, Target};
use kind::Kind;
use record::HostSampler;
use report::grid::Grid;
use stall::Stall;
use systems::{Process, Programs};
use values::{ValueSize, Values};

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    keys: u64,
    values: Vec<Values>,
    multi_get_keys: u32,
    set_percent: u32,
    warmup_s: f64,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
    seed: u64,
    server_memory_mib: u32,
    stall: StallConfig,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StallConfig {
    value_bytes: u64,
    stopped_ms: f64,
    period_ms: f64,
    connections: u32,
    get_rate: f64,
    multi_get_rate: f64,
    slice_s: f64,
    blocks: usize,
    blocks_short: usize,
}

/// Copies of each key beside a stalled server.
const REPLICAS: u32 = 2;
/// Servers of a stall.
const SERVERS: usize = 3;
/// Largest share of the processors that other guests may take, unmarked.
const STOLEN_MAX: f64 = 0.05;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    for slice_s in [config.slice_s, config.stall.slice_s] {
        ensure!(
            slice_s > 0.0 && slice_s <= SLICE_S_MAX,
            "slice_s is {slice_s}: a slice takes {SLICE_S_MAX} s at most"
        );
    }
    let programs = Programs::find(&context.folder)?;
    programs.record(context)?;
    let placement = Placement::apart(&machine::processors()?, 1);
    context.say(placement.to_string());
    let bench = Bench::build(&context.folder, &context.scratch)?;
    let lab = placement.of_servers(|| Lab::start(context, &config, &programs))?;
    let apart = placement != Placement::Shared;
    let measure = |target: &Target, load: &Load| {
        placement.of_generator(|| client::measure(bench.client(), target, load))
    };
    let mut host = HostSampler::start();
    let grid = measure_grid(context, &config, &lab, &measure)?;
    let stalls = measure_stalls(context, &config, &lab, &measure)?;
    let stolen = host.sample().cpu_stolen;
    drop(lab);
    record(context, &grid, &stalls, apart)?;
    context.provenance.round(Round::new("all blocks", 1, true).with([("stolen", stolen)]))?;
    Ok(claims(&grid, &stalls, stolen))
}

/// Every process that is measured.
struct Lab {
    /// For each number of servers the systems of [`SYSTEMS`].
    grid: BTreeMap<usize, Vec<Target>>,
    /// This project's proxy with replicas, and twemproxy; both over three servers.
    stalls: Vec<Target>,
    /// The server that is stopped.
    victim: i32,
    _processes: Vec<Process>,
}

impl Lab {
    fn start(context: &Context, config: &Config, programs: &Programs) -> anyhow::Result<Lab> {
        context.say("starting");
        let counts: BTreeSet<usize> =
            config.values.iter().flat_map(|values| values.servers.iter().copied()).collect();
        let count = counts.last().copied().unwrap_or(0).max(SERVERS);
        let (mut addresses, mut processes, mut pids) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (address, server) = systems::memcached(context, config.server_memory_mib)?;
            addresses.push(address);
            pids.push(server.pid());
            processes.push(server);
        }
        let mut grid = BTreeMap::new();
        for count in counts {
            let (servers, pids) = (&addresses[..count], &pids[..count]);
            let all = [
                systems::own(context, &format!("own-{count}"), servers, 1)?,
                systems::twemproxy(context, servers)?,
                systems::memcached_proxy(context, programs, servers)?,
            ];
            let of = |(address, proxy): &(String, Process)| systems::target(address, proxy, pids);
            grid.insert(count, all.iter().map(of).collect::<Vec<_>>());
            processes.extend(all.into_iter().map(|(_, process)| process));
        }
        let servers = &addresses[..SERVERS];
        let (address, own) = systems::own(context, "own-replicas", servers, REPLICAS)?;
        let mut stalls = vec![systems::target(&address, &own, &pids[..SERVERS])];
        processes.push(own);
        let (address, twemproxy) = systems::twemproxy(context, servers)?;
        stalls.push(systems::target(&address, &twemproxy, &pids[..SERVERS]));
        processes.push(twemproxy);
        Ok(Lab { grid, stalls, victim: pids[0], _processes: processes })
    }

    /// Stores every key through every proxy: each places keys at servers in a way of its own.
    fn fill(&self, sizes: &[usize]) -> anyhow::Result<()> {
        for target in self.grid.values().flatten().chain(&self.stalls) {
            systems::fill(target.port, sizes)?;
        }
        Ok(())
    }
}

fn load(config: &Config, kind: Kind, connections: u32, value_bytes: u64) -> Load {
    Load {
        kind,
        connections,
        keys: config.keys,
        value_bytes,
        multi_get_keys: config.multi_get_keys,
        set_percent: config.set_percent,
        rate: None,
        warmup_s: config.warmup_s,
        measure_s: config.slice_s,
    }
}

type Measure<'a> = dyn Fn(&Target, &Load) -> anyhow::Result<Slice> + 'a;

/// A cell with its slices.
type Slices = (Cell, Blocks<Slice>);

fn measure_grid(
    context: &Context,
    config: &Config,
    lab: &Lab,
    measure: &Measure<'_>,
) -> anyhow::Result<Vec<Slices>> {
    let count = if context.short { config.blocks_short } else { config.blocks };
    let (systems, slice_s) = (SYSTEMS.len(), config.slice_s);
    let mut all = Vec::new();
    for values in &config.values {
        let (cells, size) = (cells::grid(values), values.size());
        let wide = cells.len();
        let traces = context.folder.join("../../../shared/data/traces");
        let Some(sizes) = values.sizes(&traces, config.keys)? else {
            context.say(format!("values of {size}: not there, left out"));
            continue;
        };
        context.say(format!("values of {size}: filling"));
        lab.fill(&sizes)?;
        context.say(format!("{count} blocks of {wide} cells of {systems} slices of {slice_s} s"));
        // Of a trace's sizes nothing is set, and what is read has the size that it has.
        let value_bytes = values.bytes.unwrap_or(0);
        let found = slices::grid(wide, systems, count, config.seed, |_, cell, system| {
            let cell = &cells[cell];
            let target = &lab.grid[&cell.servers][system];
            measure(target, &load(config, cell.kind, cell.connections, value_bytes))
                .with_context(|| format!("{}, {cell}", SYSTEMS[system]))
        })?;
        for block in 0..count {
            let name = match size {
                ValueSize::Bytes(4096) => format!("block {}", block + 1),
                _ => format!("block {}, values of {size}", block + 1),
            };
            context.provenance.round(Round::new(&name, 1, true))?;
        }
        all.extend(cells.into_iter().zip(found));
    }
    Ok(all)
}

/// Gets and multi-gets beside healthy servers and a stalled one.
fn measure_stalls(
    context: &Context,
    config: &Config,
    lab: &Lab,
    measure: &Measure<'_>,
) -> anyhow::Result<Vec<(Kind, Blocks<Slice>)>> {
    let stall = &config.stall;
    let count = if context.short { stall.blocks_short } else { stall.blocks };
    context.say(format!("{count} blocks beside a server that is stopped"));
    let value_bytes = usize::try_from(stall.value_bytes)?;
    lab.fill(&vec![value_bytes; usize::try_from(config.keys)?])?;
    let ms = |ms: f64| Duration::from_secs_f64(ms * 1e-3);
    let kinds = [(Kind::Get, stall.get_rate), (Kind::MultiGet, stall.multi_get_rate)];
    let found = slices::grid(kinds.len(), STALLS.len(), count, config.seed, |_, kind, system| {
        let (kind, rate) = kinds[kind];
        let target = &lab.stalls[system / 2];
        let load = Load {
            rate: Some(rate),
            measure_s: stall.slice_s,
            ..load(config, kind, stall.connections, stall.value_bytes)
        };
        let stalls = system % 2 == STALLED;
        let begin = || Stall::begin(lab.victim, ms(stall.stopped_ms), ms(stall.period_ms));
        let _stall = stalls.then(begin);
        measure(target, &load).with_context(|| format!("{}, {}", STALLS[system], kind.name()))
    })?;
    Ok(kinds.into_iter().map(|(kind, _)| kind).zip(found).collect())
}

/// One row of `slices.json`.
#[derive(Serialize)]
struct Row<'a> {
    block: usize,
    cell: &'a str,
    system: &'a str,
    #[serde(flatten)]
    measured: &'a Slice,
}

fn record(
    context: &Context,
    grid: &[Slices],
    stalls: &[(Kind, Blocks<Slice>)],
    apart: bool,
) -> anyhow::Result<()> {
    let stall_name = |kind: &Kind| format!("{}, stall", kind.name());
    let cells = grid.iter().map(|(cell, slices)| (cell.to_string(), &SYSTEMS[..], slices));
    let stalls = stalls.iter().map(|(kind, slices)| (stall_name(kind), &STALLS[..], slices));
    let head = [
        "cell",
        "system",
        "requests/s",
        "p50 µs",
        "p99 µs",
        "p99.9 µs",
        "proxy µs",
        "servers µs",
        "client µs",
        "busy: proxy",
        "servers",
        "client",
        "limit",
    ];
    let mut table = Grid::new("llrrrrrrrrrrl", &head);
    let mut rows = Vec::new();
    let all: Vec<_> = cells.chain(stalls).collect();
    for (cell, systems, slices) in &all {
        for (block, measured) in slices.iter().enumerate() {
            let of = |(system, measured)| Row { block: block + 1, cell, system, measured };
            rows.extend(systems.iter().copied().zip(measured).map(of));
        }
        for (system, name) in systems.iter().enumerate() {
            table.row(table_row(cell, name, &median(slices, system), apart));
        }
    }
    write(&context.out.join("slices.json"), &serde_json::to_string(&rows)?)?;
    let text = table.text();
    write(&context.out.join("systems.txt"), &text)?;
    context.say(text);
    Ok(())
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The medians of a system's slices.
fn median(slices: &Blocks<Slice>, system: usize) -> Slice {
    let of = |of: fn(&Slice) -> f64| slices.figure(system, of).value;
    Slice {
        rate: of(|m| m.rate),
        p50_us: of(|m| m.p50_us),
        p99_us: of(|m| m.p99_us),
        p999_us: of(|m| m.p999_us),
        proxy_us: of(|m| m.proxy_us),
        servers_us: of(|m| m.servers_us),
        client_us: of(|m| m.client_us),
        proxy_busy: of(|m| m.proxy_busy),
        servers_busy: of(|m| m.servers_busy),
        client_busy: of(|m| m.client_busy),
    }
}

fn table_row(cell: &str, system: &str, m: &Slice, apart: bool) -> Vec<String> {
    let mut row = vec![cell.to_owned(), system.to_owned()];
    row.extend([m.rate, m.p50_us, m.p99_us, m.p999_us].map(|figure| format!("{figure:.0}")));
    row.extend([m.proxy_us, m.servers_us, m.client_us].map(|figure| format!("{figure:.2}")));
    let busy = [m.proxy_busy, m.servers_busy, m.client_busy];
    row.extend(busy.map(|share| format!("{:.0} %", share * 100.0)));
    row.push(m.limit(apart).to_owned());
    row
}

fn claims(grid: &[Slices], stalls: &[(Kind, Blocks<Slice>)], stolen: f64) -> Vec<Claim> {
    let mut claims: Vec<Claim> =
        grid.iter().flat_map(|(cell, slices)| cells::claims(cell, slices)).collect();
    claims.extend(stalls.iter().map(|(kind, slices)| cells::stall_claim(*kind, slices)));
    if stolen > STOLEN_MAX {
        let detail = format!("the hypervisor took {:.1} % of the processors", stolen * 100.0);
        let mark = Mark::new("all blocks", Complaint::Stolen, detail);
        claims.iter_mut().for_each(|claim| claim.marks.push(mark.clone()));
    }
    claims
}
