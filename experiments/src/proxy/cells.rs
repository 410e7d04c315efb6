//! The grid of `experiments/proxy`: what is sent to which system, and what is claimed of it.

use super::super::slices::{Blocks, Interval};
use super::client::Slice;
use super::kind::Kind;
use super::values::{ValueSize, Values};
use crate::claims::{Claim, Goal, Peer};

/// The proxies that are compared, in the order of a block's slices.
pub const SYSTEMS: [&str; 3] = ["concertina", "twemproxy", "memcached proxy"];
/// This project's number among them.
pub const OWN: usize = 0;

/// One cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    pub kind: Kind,
    pub values: ValueSize,
    pub connections: u32,
    pub servers: usize,
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Cell { kind, values, connections, servers } = self;
        let plural = if *servers == 1 { "" } else { "s" };
        write!(f, "{}", kind.name())?;
        // The study's values go without saying: cells of earlier records have the same names.
        if *values != ValueSize::Bytes(4096) {
            write!(f, " of {values}")?;
        }
        write!(f, ", {connections} connections, {servers} server{plural}")
    }
}

/// What a cell claims: throughput over the better rival's, and processor time over the same rival's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goals {
    pub rate: f64,
    pub cpu: f64,
    /// Of the 99th percentile over the rival's.
    pub p99: f64,
}

impl Cell {
    /// Its goals; `None` where nothing is claimed (multi-gets from one server).
    pub fn goals(&self) -> Option<Goals> {
        match self.kind {
            Kind::MultiGet if self.servers > 1 => Some(Goals { rate: 1.5, cpu: 0.5, p99: 1.0 }),
            Kind::MultiGet => None,
            _ => {
                let rate = if self.connections <= 12 { 1.0 } else { 1.1 };
                Some(Goals { rate, cpu: 0.8, p99: 1.0 })
            }
        }
    }
}

/// Every cell of one size of values.
pub fn grid(values: &Values) -> Vec<Cell> {
    let size = values.size();
    let mut cells = Vec::new();
    for &servers in &values.servers {
        for kind in Kind::ALL {
            if size == ValueSize::Trace && matches!(kind, Kind::Set | Kind::Mix) {
                continue;
            }
            let cell = |&connections: &u32| Cell { kind, values: size, connections, servers };
            cells.extend(values.connections.iter().map(cell));
        }
    }
    cells
}

/// The rival with the higher throughput in a cell, by the median over its blocks.
pub fn better_rival(slices: &Blocks<Slice>) -> usize {
    let rate = |system: &usize| slices.figure(*system, |m| m.rate).value;
    let rivals = (0..SYSTEMS.len()).filter(|system| *system != OWN);
    rivals.max_by(|a, b| rate(a).total_cmp(&rate(b))).unwrap_or(OWN)
}

/// The claims of one cell.
pub fn claims(cell: &Cell, slices: &Blocks<Slice>) -> Vec<Claim> {
    let rival = better_rival(slices);
    let goals = cell.goals();
    let claim = |what: &str, of: fn(&Slice) -> f64, unit: &str, goal: Option<Goal>| {
        let Interval { value, low, high } = slices.ratio(OWN, rival, of);
        let name = format!("{cell}: {what} over {}'s", SYSTEMS[rival]);
        let mut claim = Claim::new(name, value, 0.0, unit, slices.len() as u64);
        (claim.low, claim.high, claim.goal) = (low, high, goal);
        claim
    };
    vec![
        claim("requests/s", |m| m.rate, "×", goals.map(|g| Goal::AtLeast(g.rate))),
        claim("processor time", |m| m.proxy_us, "×", goals.map(|g| Goal::AtMost(g.cpu))),
        claim("p99", |m| m.p99_us, "×", goals.map(|g| Goal::AtMost(g.p99))),
    ]
}

/// What the slices of a stall are, for each proxy: its healthy servers, and one that is stopped
/// again and again.
pub const HEALTHY: usize = 0;
/// See [`HEALTHY`].
pub const STALLED: usize = 1;
/// Systems of a stall's blocks: each proxy healthy, then stalled.
pub const STALLS: [&str; 4] =
    ["concertina", "concertina, stalled", "twemproxy", "twemproxy, stalled"];
/// Largest p99 beside a stalled server, as a multiple of the healthy one.
const STALL_GOAL: f64 = 2.0;

/// The claim of a stall: the p99 beside a stalled server over the healthy one. Twemproxy's is
/// beside it.
pub fn stall_claim(kind: Kind, slices: &Blocks<Slice>) -> Claim {
    let Interval { value, low, high } = slices.ratio(STALLED, HEALTHY, |m| m.p99_us);
    let name = format!("{}, one of three servers stalled: p99 over the healthy one", kind.name());
    let mut claim = Claim::new(name, value, 0.0, "×", slices.len() as u64);
    (claim.low, claim.high) = (low, high);
    let theirs = slices.ratio(2 + STALLED, 2 + HEALTHY, |m| m.p99_us);
    claim.peer = Some(Peer { name: "twemproxy".to_owned(), value: theirs.value });
    claim.with_goal(Goal::AtMost(STALL_GOAL))
}

#[cfg(test)]
mod tests {
    use super::super::super::slices;
    use super::*;
    use crate::claims::Verdict;

    fn slice(rate: f64, proxy_us: f64, p99_us: f64) -> Slice {
        Slice { rate, proxy_us, p99_us, ..Slice::default() }
    }

    #[test]
    fn every_kind_is_measured_with_every_number_of_connections_and_servers() {
        let values = |bytes| Values {
            bytes,
            trace: None,
            connections: vec![12, 48, 192],
            servers: vec![1, 3],
        };
        let cells = grid(&values(Some(4096)));
        assert_eq!(cells.len(), 24);
        let with_goals = cells.iter().filter(|cell| cell.goals().is_some()).count();
        assert_eq!(with_goals, 21, "all but multi-gets from one server");
        let easier = cells.iter().filter_map(Cell::goals).filter(|goals| goals.rate == 1.0);
        assert_eq!(easier.count(), 6, "12 connections");
        assert_eq!(cells[0].to_string(), "get, 12 connections, 1 server");
        assert_eq!(
            grid(&values(Some(100)))[0].to_string(),
            "get of 100 B, 12 connections, 1 server"
        );
        // The load client's sets would change the sizes.
        let cells = grid(&values(None));
        assert!(cells.len() == 12 && cells.iter().all(|cell| cell.kind != Kind::Set), "{cells:?}");
    }

    #[test]
    fn a_cell_is_compared_with_the_rival_that_is_faster_there() {
        let values = ValueSize::Bytes(4096);
        let cell = Cell { kind: Kind::Get, values, connections: 48, servers: 3 };
        let each = [(120.0, 5.0, 3.0), (90.0, 9.0, 4.0), (100.0, 8.0, 2.0)];
        let slices = slices::run(3, 12, 1, |block, system| {
            let machine = 1.0 + block as f64;
            let (rate, cpu, p99) = each[system];
            Ok(slice(machine * rate, cpu, p99 / machine))
        });
        let claims: Vec<Claim> =
            claims(&cell, &slices.unwrap()).into_iter().map(Claim::judged).collect();
        assert!(claims.iter().all(|claim| claim.name.ends_with("memcached proxy's")), "{claims:?}");
        let found: Vec<(f64, Option<Verdict>)> =
            claims.iter().map(|claim| (claim.value, claim.verdict)).collect();
        let close = |at: usize, value: f64| (found[at].0 - value).abs() < 1e-9;
        assert!(close(0, 1.2) && close(1, 0.625) && close(2, 1.5), "{found:?}");
        let verdicts = [Verdict::Holds, Verdict::Holds, Verdict::Fails].map(Some);
        assert_eq!(found.iter().map(|f| f.1).collect::<Vec<_>>(), verdicts);
    }

    #[test]
    fn a_stall_is_compared_with_the_same_proxys_health() {
        let p99 = [100.0, 150.0, 200.0, 1800.0];
        let slices = slices::run(4, 12, 1, |_, system| Ok(slice(1.0, 1.0, p99[system])));
        let claim = stall_claim(Kind::Get, &slices.unwrap()).judged();
        assert!((claim.value - 1.5).abs() < 1e-9);
        assert_eq!(claim.verdict, Some(Verdict::Holds));
        assert!((claim.peer.unwrap().value - 9.0).abs() < 1e-9);
    }
}
