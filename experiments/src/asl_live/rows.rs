//! What is measured: the rows of the study's tables, in its order.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// The parts of the study. Rows of a part are a table and a plot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Part {
    /// Clients and one server.
    OneServer,
    /// Clients and two servers, without a middleware.
    TwoServers,
    /// One middleware before one server.
    OneMiddleware,
    /// Two middlewares before one server.
    TwoMiddlewares,
    /// Writes to three replicas.
    Writes,
    /// Gets of several keys, whole and sharded.
    MultiGets,
    /// The 2^3·3 design.
    Design,
    /// No limits but the machine.
    Machine,
}

impl Part {
    /// All parts, in the study's order.
    pub const ALL: [Part; 8] = [
        Part::OneServer,
        Part::TwoServers,
        Part::OneMiddleware,
        Part::TwoMiddlewares,
        Part::Writes,
        Part::MultiGets,
        Part::Design,
        Part::Machine,
    ];

    /// Its title, with the study's section.
    pub fn title(self) -> &'static str {
        match self {
            Part::OneServer => "2.1 Without middleware, one server",
            Part::TwoServers => "2.2 Without middleware, two servers, one machine of clients",
            Part::OneMiddleware => "3.1 One middleware, one server",
            Part::TwoMiddlewares => "3.2 Two middlewares, one server",
            Part::Writes => "4 Writes: two middlewares, three replicas",
            Part::MultiGets => "5 Gets of several keys: two middlewares, three replicas",
            Part::Design => "6 The 2^3·3 design",
            Part::Machine => "8 The machine as the limit: no links, no distance",
        }
    }
}

/// What stands between the clients and the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct System {
    /// Middlewares; without any, clients talk to the servers.
    pub middlewares: u8,
    /// Servers that the middlewares replicate on, or that the clients are divided among.
    pub servers: u8,
    /// Workers of each middleware.
    pub workers: u32,
    /// Whether gets of several keys are shared among the servers.
    pub sharded: bool,
    /// Whether links have bandwidths and servers are at a distance.
    pub limited: bool,
}

impl System {
    /// Its name, for files and messages.
    pub fn name(&self) -> String {
        let limits = if self.limited { "" } else { ", no limits" };
        let mode = if self.sharded { ", sharded" } else { "" };
        match self.middlewares {
            0 => format!("no middleware, {} servers{limits}", self.servers),
            m => format!(
                "{m} middlewares with {} workers, {} servers{mode}{limits}",
                self.workers, self.servers
            ),
        }
    }
}

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Work {
    /// Gets of so many keys.
    Reads(u32),
    /// Sets.
    Writes,
    /// Gets of real batches.
    Batches,
}

impl Work {
    /// In words.
    pub fn name(self) -> String {
        match self {
            Work::Reads(1) => "reads".to_owned(),
            Work::Reads(keys) => format!("gets of {keys}"),
            Work::Writes => "writes".to_owned(),
            Work::Batches => "batches".to_owned(),
        }
    }
}

/// A row: a system under a closed loop.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The parts that show it.
    pub parts: BTreeSet<Part>,
    /// The system.
    pub system: System,
    /// What clients do.
    pub work: Work,
    /// How many clients there are.
    pub clients: u32,
}

impl Row {
    /// Its name, for messages.
    pub fn name(&self) -> String {
        format!("{}, {}, {} clients", self.system.name(), self.work.name(), self.clients)
    }
}

/// What `config.toml` says of the rows, for the short form and the whole one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Points {
    /// Clients without middlewares.
    pub clients: Vec<u32>,
    /// Clients of middlewares.
    pub middleware_clients: Vec<u32>,
    /// Workers.
    pub workers: Vec<u32>,
    /// Keys of a get.
    pub multi_gets: Vec<u32>,
    /// Clients where the machine is the limit.
    pub machine_clients: Vec<u32>,
}

/// The levels of the design.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// Clients.
    pub clients: u32,
    /// Low and high.
    pub workers: [u32; 2],
    /// Low and high.
    pub servers: [u8; 2],
}

impl Levels {
    /// The system of a cell, in standard order: middlewares change fastest, then servers.
    pub fn cell(&self, cell: usize) -> System {
        let high = |bit: usize| cell >> bit & 1;
        System {
            middlewares: 1 + high(0) as u8,
            servers: self.servers[high(1)],
            workers: self.workers[high(2)],
            sharded: false,
            limited: true,
        }
    }
}

/// Clients of gets of several keys, and whether there are real batches.
#[derive(Clone, Copy, Debug)]
pub struct MultiGets {
    /// How many clients.
    pub clients: u32,
    /// Whether batches are measured.
    pub batches: bool,
}

/// All rows, each once, in the order of their parts.
pub fn rows(points: &Points, design: &Levels, multi: MultiGets) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    let mut add = |part: Part, system: System, work: Work, clients: u32| {
        let same =
            |row: &&mut Row| row.system == system && row.work == work && row.clients == clients;
        match all.iter_mut().find(same) {
            Some(row) => drop(row.parts.insert(part)),
            None => all.push(Row { parts: [part].into(), system, work, clients }),
        }
    };
    let system = |middlewares, servers, workers| System {
        middlewares,
        servers,
        workers,
        sharded: false,
        limited: true,
    };
    let both = [Work::Reads(1), Work::Writes];
    for (part, servers) in [(Part::OneServer, 1), (Part::TwoServers, 2)] {
        for work in both {
            points.clients.iter().for_each(|&n| add(part, system(0, servers, 0), work, n));
        }
    }
    for (part, middlewares) in [(Part::OneMiddleware, 1), (Part::TwoMiddlewares, 2)] {
        for work in both {
            for &workers in &points.workers {
                for &n in &points.middleware_clients {
                    add(part, system(middlewares, 1, workers), work, n);
                }
            }
        }
    }
    for &workers in &points.workers {
        for &n in &points.middleware_clients {
            add(Part::Writes, system(2, 3, workers), Work::Writes, n);
        }
    }
    let works = points.multi_gets.iter().map(|&keys| Work::Reads(keys));
    for work in works.chain(multi.batches.then_some(Work::Batches)) {
        for sharded in [false, true] {
            let system = System { sharded, ..system(2, 3, WORKERS_MANY) };
            add(Part::MultiGets, system, work, multi.clients);
        }
    }
    for work in both {
        (0..8).for_each(|cell| add(Part::Design, design.cell(cell), work, design.clients));
    }
    for middlewares in [0, 1] {
        let workers = if middlewares > 0 { WORKERS_MANY * 4 } else { 0 };
        let system = System { limited: false, ..system(middlewares, 1, workers) };
        for work in both {
            points.machine_clients.iter().for_each(|&n| add(Part::Machine, system, work, n));
        }
    }
    all
}

/// So many workers that they are never the limit: the study's most.
pub const WORKERS_MANY: u32 = 64;

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn few() -> Vec<Row> {
        let points = Points {
            clients: vec![6, 192],
            middleware_clients: vec![24, 192],
            workers: vec![8, 32],
            multi_gets: vec![1, 9],
            machine_clients: vec![24],
        };
        let levels = Levels { clients: 192, workers: [8, 32], servers: [1, 3] };
        rows(&points, &levels, MultiGets { clients: 24, batches: true })
    }

    #[test]
    fn every_part_has_its_rows_and_shared_ones_are_measured_once() {
        let rows = few();
        let count = |part| rows.iter().filter(|row| row.parts.contains(&part)).count();
        let counts: Vec<usize> = Part::ALL.into_iter().map(count).collect();
        assert_eq!(counts, [4, 4, 8, 8, 4, 6, 16, 4]);
        // The cells with one server are rows of 3.1 and 3.2; two of writes to three are in 4.
        assert_eq!(rows.len(), 4 + 4 + 8 + 8 + 4 + 6 + 6 + 4);
        for (i, row) in rows.iter().enumerate() {
            assert!(row.clients % 2 == 0, "clients are divided among two machines");
            let again = rows[..i].iter().any(|other| other.name() == row.name());
            assert!(!again, "{}", row.name());
        }
    }

    #[test]
    fn cells_are_in_standard_order() {
        let levels = Levels { clients: 192, workers: [8, 32], servers: [1, 3] };
        let of = |cell| {
            let System { middlewares, servers, workers, .. } = levels.cell(cell);
            (middlewares, servers, workers)
        };
        assert_eq!([of(0), of(1), of(2), of(4)], [(1, 1, 8), (2, 1, 8), (1, 3, 8), (1, 1, 32)]);
        assert_eq!(of(7), (2, 3, 32));
    }
}
