//! `shard-queries-bench curve`: throughput against footprint of one opened shard whose layers grow
//! and are dropped again.
//!
//! The index is built once, with few samples. Each step adds the layers of one pair of rates by a
//! sweep, and every kind of query is measured there; then the lowest layers are dropped, one pair
//! after the other, and the same footprints are measured again on the way down. One way up or down
//! is a round. Rates are queries for each second of the thread's processor time, which on a quiet
//! machine is time on the wall. Every answer goes into a checksum that is compared with the
//! oracle's; the ceiling is measured before each footprint.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use shard::index::{Index, Options, build};
use shard::layers::{Array, Rates};

use crate::config::Config;
use crate::engine::{Engine, Query, Slice};
use crate::oracle::{Expected, Oracle};
use crate::ours;
use crate::queries::Queries;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Arguments {
    /// The experiment's folder, with config.toml
    folder: PathBuf,
    /// Where curve.json goes
    #[arg(long)]
    out: PathBuf,
    /// Where the text goes that the ceiling reads
    #[arg(long)]
    scratch: PathBuf,
    /// Measure one text
    #[arg(long)]
    short: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// `config.toml` of the experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Curve {
    /// The folder whose config.toml has the texts and the queries, from this one's.
    queries: PathBuf,
    /// Names of the texts.
    datasets: Vec<String>,
    /// Sampling rates (SA, ISA) of the index itself.
    base: [u32; 2],
    /// The lowest layers (SA, ISA) of each step; 0 for none.
    steps: Vec<[u32; 2]>,
    /// Ways up and down, in turns.
    rounds: usize,
    /// Length of a timed stretch, seconds.
    slice_s: f64,
    /// What `--short` measures.
    short: Short,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Short {
    datasets: Vec<String>,
    rounds: usize,
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Results {
    datasets: Vec<DatasetResult>,
}

#[derive(Debug, Serialize)]
struct DatasetResult {
    name: String,
    bytes: u64,
    base: [u32; 2],
    /// One for each step, from the base on.
    points: Vec<Point>,
}

/// One footprint.
#[derive(Clone, Debug, Default, Serialize)]
struct Point {
    /// Lowest layers; 0 for none.
    rates: [u32; 2],
    /// Bytes that the index and its layers hold.
    bytes: u64,
    /// Over the text's bytes.
    footprint: f64,
    /// Processor seconds of the sweep that led here, each time.
    sweep_cpu_s: Vec<f64>,
    /// Dependent accesses to memory for each second, of each round.
    ceiling_per_s: Vec<f64>,
    /// Queries for each second, of each round.
    per_s: Vec<(Kind, Vec<f64>)>,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Searches and extracts of 64 bytes, as many of each.
    Mix,
    /// One kind alone.
    #[serde(untagged)]
    Only(Query),
}

/// Segments of a sweep that are walked at once.
const SEGMENTS_AT_ONCE: usize = 4096;

/// Measures what the configuration says, and writes `curve.json`.
///
/// # Errors
/// If something is missing, or an answer is wrong.
pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let path = arguments.folder.join("config.toml");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut curve: Curve =
        toml::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))?;
    if arguments.short {
        curve.datasets.clone_from(&curve.short.datasets);
        curve.rounds = curve.short.rounds;
    }
    ensure!(curve.rounds >= 2 && !curve.steps.is_empty(), "rounds, steps: too few");
    ensure!(curve.slice_s > 0.0 && curve.slice_s <= 60.0, "slice_s is not in 0 … 60");
    let mut results = Results { datasets: Vec::new() };
    for name in &curve.datasets {
        results.datasets.push(measure(arguments, &curve, name)?);
    }
    let path = arguments.out.join("curve.json");
    std::fs::write(&path, serde_json::to_string_pretty(&results)? + "\n")
        .with_context(|| format!("cannot write {}", path.display()))
}

fn measure(arguments: &Arguments, curve: &Curve, name: &str) -> anyhow::Result<DatasetResult> {
    let say = |what: String| {
        if !arguments.quiet {
            eprintln!("{name}: {what}");
        }
    };
    let folder = arguments.folder.join(&curve.queries);
    let config = Config::read(&folder.join("config.toml"))?;
    let dataset = config.dataset.iter().find(|dataset| dataset.name == name);
    let dataset = dataset.with_context(|| format!("config.toml has no dataset {name}"))?;
    let text = dataset.load(&folder.join(&config.data))?;
    say(format!("{} bytes; drawing queries and their answers", text.len()));
    let oracle = Oracle::new(&text)?;
    let queries = Queries::draw(&oracle, &config.draw())?;
    oracle.check(&queries.patterns, 8)?;
    let expected = Expected::new(&oracle, &queries);
    drop(oracle);
    queries.write(&text, &arguments.scratch)?;
    let mut ceiling = Ceiling::start(&arguments.scratch)?;
    let [sa_sampling, isa_sampling] = curve.base;
    let mut file = Vec::new();
    build(&text, &Options { sa_sampling, isa_sampling }, &mut file)?;
    file.shrink_to_fit();
    let bytes = text.len() as u64;
    drop(text);
    let index = Index::open(file)?;
    let asked =
        OpenedShard { index: &index, queries: &queries, expected: &expected, block: config.block };

    let mut points: Vec<Point> =
        curve.steps.iter().map(|&rates| Point { rates, ..Point::default() }).collect();
    for round in 0..curve.rounds {
        let down = round % 2 == 1;
        let mut order: Vec<usize> = (0..points.len()).collect();
        if down {
            order.reverse();
        }
        for place in order {
            let point = points.get_mut(place).context("a point of its own place")?;
            if down {
                shrink(&index, point.rates)
            } else {
                grow(&index, point)?
            }
            point.bytes = index.footprint().total_bytes() as u64;
            point.footprint = point.bytes as f64 / bytes as f64;
            point.ceiling_per_s.push(ceiling.measure(round)?);
            asked.measure(point, curve.slice_s, round)?;
            say(format!("round {}: {:.3} × measured", round + 1, point.footprint));
        }
    }
    let base = curve.base;
    Ok(DatasetResult { name: name.to_owned(), bytes, base, points })
}

/// Rates of the layers that an array has, the lowest first.
fn lowest(index: &Index, array: Array) -> u32 {
    let footprint = index.layers().footprint();
    let layers = match array {
        Array::Sa => footprint.sa,
        Array::Isa => footprint.isa,
    };
    layers.last().map_or(0, |layer| layer.rate)
}

/// Adds the layers of a point, all by one sweep.
fn grow(index: &Index, point: &mut Point) -> anyhow::Result<()> {
    let missing = |array: Array, rate: u32| match (lowest(index, array), rate) {
        (_, 0) => Vec::new(),
        (there, rate) if there != 0 && there <= rate => Vec::new(),
        _ => vec![rate],
    };
    let [sa, isa] = point.rates;
    let rates = Rates { sa: missing(Array::Sa, sa), isa: missing(Array::Isa, isa) };
    if rates.is_empty() {
        return Ok(());
    }
    let start = cpu_s();
    let mut sweep = index.layers().sweep(&rates)?;
    while !sweep.step(index, SEGMENTS_AT_ONCE).is_finished() {}
    index.layers().publish(sweep)?;
    point.sweep_cpu_s.push(cpu_s() - start);
    Ok(())
}

/// Drops what is below the layers of a point.
fn shrink(index: &Index, [sa, isa]: [u32; 2]) {
    for (array, rate) in [(Array::Sa, sa), (Array::Isa, isa)] {
        while lowest(index, array) != rate {
            if index.layers().drop_lowest(array).is_none() {
                break;
            }
        }
    }
}

/// An opened shard, and its queries.
struct OpenedShard<'a> {
    index: &'a Index,
    queries: &'a Queries,
    expected: &'a Expected,
    block: usize,
}

impl OpenedShard<'_> {
    /// Measures every kind of query.
    fn measure(&self, point: &mut Point, slice_s: f64, round: usize) -> anyhow::Result<()> {
        for kind in Query::ALL.map(Kind::Only).into_iter().chain([Kind::Mix]) {
            // Another place of the queries in each round.
            let first = round * 7 * self.block;
            let rate = self.rate(kind, slice_s, first)?;
            match point.per_s.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, rates)) => rates.push(rate),
                None => point.per_s.push((kind, vec![rate])),
            }
        }
        Ok(())
    }

    /// Queries for each second of blocks that take this many seconds together, after a warming
    /// block.
    fn rate(&self, kind: Kind, slice_s: f64, first: usize) -> anyhow::Result<f64> {
        self.block(kind, first)?;
        let (mut asked, mut spent_s, mut at) = (0, 0.0, first + self.block);
        while spent_s < slice_s {
            spent_s += self.block(kind, at)?;
            asked += self.block;
            at += self.block;
        }
        Ok(asked as f64 / spent_s)
    }

    /// Seconds of one block of queries, whose answers are right.
    fn block(&self, kind: Kind, first: usize) -> anyhow::Result<f64> {
        let slice = |query: Query, count: usize| Slice { query, batch: 1, first, count };
        let slices = match kind {
            Kind::Only(query) => vec![slice(query, self.block)],
            Kind::Mix => {
                let half = self.block / 2;
                vec![slice(Query::Search, self.block - half), slice(Query::Extract64, half)]
            }
        };
        let mut spent_s = 0.0;
        for slice in slices {
            let start = cpu_s();
            let checksum = ours::answer(self.index, self.queries, &slice)?;
            spent_s += cpu_s() - start;
            ensure!(Some(checksum) == self.expected.checksum(&slice), "wrong answer in {slice}");
        }
        Ok(spent_s)
    }
}

/// Dependent accesses to memory of the text's size, by the process that also other measurements
/// have.
struct Ceiling {
    engine: Engine,
    count: usize,
}

impl Ceiling {
    fn start(folder: &Path) -> anyhow::Result<Ceiling> {
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        let mut command = Command::new(program);
        command.arg("serve").arg(folder).arg("--ceiling");
        let mut engine = Engine::start("the ceiling", &mut command)?;
        engine.ready()?;
        let mut ceiling = Ceiling { engine, count: 1 << 18 };
        // A twentieth of a second.
        ceiling.count = (ceiling.measure(0)? / 20.0) as usize + 1;
        Ok(ceiling)
    }

    fn measure(&mut self, first: usize) -> anyhow::Result<f64> {
        let slice = Slice { query: Query::Access, batch: 1, first, count: self.count };
        let answer = self.engine.ask(&slice)?;
        Ok(self.count as f64 * 1e9 / answer.ns.max(1) as f64)
    }
}

/// Processor seconds of this thread so far.
fn cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use shard::Text as _;

    use super::*;

    #[test]
    fn layers_grow_and_shrink_to_the_same_footprints() {
        let line = |i: usize| format!("{} {}\n", i * i % 9973, i % 77);
        let text: String = (0..4000).map(line).collect();
        let mut file = Vec::new();
        build(text.as_bytes(), &Options { sa_sampling: 64, isa_sampling: 64 }, &mut file).unwrap();
        let index = Index::open(file).unwrap();
        let steps = [[0, 0], [32, 32], [8, 32], [8, 4]];
        let bytes = || index.footprint().total_bytes();
        let mut up = Vec::new();
        for rates in steps {
            let mut point = Point { rates, ..Point::default() };
            grow(&index, &mut point).unwrap();
            assert_eq!(point.sweep_cpu_s.len(), usize::from(rates != [0, 0]));
            up.push(bytes());
        }
        assert!(up.is_sorted_by(|a, b| a < b), "{up:?}");
        assert_eq!(index.count(b"\n"), 4000);
        for (rates, bytes_before) in steps.into_iter().zip(up).rev() {
            shrink(&index, rates);
            assert_eq!([lowest(&index, Array::Sa), lowest(&index, Array::Isa)], rates);
            // What lists need to be changed may be a few bytes more.
            assert!(bytes().abs_diff(bytes_before) < 1024, "{} {bytes_before}", bytes());
        }
    }
}
