//! `concertina tiers`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use configuration::Size;
use engine::node::TierSettings;
use engine::tier::Eviction;
use ground::number::{decimals, percent, time};
use ground::window::{Operation, SECOND};
use record::trace::Trace;
use report::grid::Grid;
use report::tiers::{CurvesFile, Node, Recorded, Sampled, Shares};
use serde::Serialize;

use crate::cli::output::{out, outln};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(
    after_help = "Example: what do 64 GB of SSD in each of 5 nodes buy, against one more node, \
                        against twice the memory?

  concertina tiers requests.csv.zst --nodes 5 --memory 16GiB --hot 64GB

and, at a load and an objective, with prices:

  concertina tiers requests.csv.zst --nodes 5 --memory 16GiB --hot 64GB --curves curves.toml
  concertina plan model.toml --choices choices.toml --curves curves.toml \\
      --objective \"99% within 50ms\" --rate 12000"
)]
pub struct Args {
    /// Recorded requests of the whole service: a CSV file, time_ms,key,size,op, plain or .zst
    trace: PathBuf,
    /// Memory of each node
    #[arg(long)]
    memory: Size,
    /// Bytes of hot devices to add to each node
    #[arg(long)]
    hot: Size,
    /// Bytes of hot devices that each node has
    #[arg(long, default_value = "0")]
    hot_now: Size,
    /// Number of nodes
    #[arg(long, default_value_t = 1)]
    nodes: u32,
    /// Mean response of a read from a bulk device, milliseconds
    #[arg(long, default_value_t = 10.0, value_parser = above_zero)]
    bulk_ms: f64,
    /// Mean response of a read from a hot device, milliseconds
    #[arg(long, default_value_t = 0.5, value_parser = above_zero)]
    hot_ms: f64,
    /// Size of objects whose size the trace does not state
    #[arg(long, default_value = "1kB")]
    size: Size,
    /// Keys that are sampled, at most
    #[arg(long, default_value_t = 50_000)]
    keys: usize,
    /// The least recently used objects leave memory first (`node.memory_eviction = "lru"`)
    #[arg(long)]
    lru: bool,
    /// Time over which reads are counted, seconds (`tiers.popularity_s`)
    #[arg(long, default_value_t = 600.0, value_parser = above_zero)]
    popularity_s: f64,
    /// Also write what memory and hot devices serve, from a quarter of the given bytes to four times
    /// these, to a file that `concertina plan --curves` reads
    #[arg(long, value_name = "FILE")]
    curves: Option<PathBuf>,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// The fewest requests of which shares are told to a point or so.
const REQUESTS_MIN: usize = 1_000;

/// A number of milliseconds or seconds.
fn above_zero(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|value| (1e-6..=1e9).contains(value));
    value.ok_or_else(|| format!("invalid number `{text}`: write one from 0.000001 to 1e9"))
}

/// Counters in a row of the sketch of popularity: enough for the keys of most samples.
const COUNTERS: usize = 1 << 18;

#[derive(Serialize)]
struct Row {
    what: &'static str,
    memory_share: f64,
    hot_share: f64,
    bulk_share: f64,
    /// Reads that reach the bulk devices of a node, relative to now.
    bulk_reads_per_node: f64,
    mean_read_ms: f64,
}

impl Args {
    fn eviction(&self) -> Eviction {
        if self.lru { Eviction::Lru } else { Eviction::S3Fifo }
    }

    /// The tiers of `nodes` nodes, as one node with these bytes.
    fn node(&self, memory: f64, hot: f64, nodes: f64) -> Node {
        let mut tiers = TierSettings {
            memory: (self.popularity_s * SECOND as f64) as u64,
            counters: COUNTERS,
            ..TierSettings::default()
        };
        tiers.promote_bytes_per_s = (tiers.promote_bytes_per_s as f64 * nodes) as u64;
        // The mean of all reads, whatever their bytes.
        let line = |ms: f64| (ms * 1e-3, f64::INFINITY);
        let (bulk, of_hot) = (line(self.bulk_ms), line(self.hot_ms));
        let eviction = self.eviction();
        Node { eviction, memory_bytes: memory, hot_bytes: hot, tiers, bulk, hot: of_hot }
    }

    /// Hot bytes of a node to which hot devices were added.
    fn hot_bytes_after(&self) -> f64 {
        self.hot_now.0 as f64 + self.hot.0 as f64
    }

    /// What each way to spend money would bring.
    fn choices(&self, sampled: &Sampled, timed: bool) -> [Row; 4] {
        let nodes = f64::from(self.nodes);
        let (memory, hot_now) = (self.memory.0 as f64, self.hot_now.0 as f64);
        let choices = [
            ("as it is", nodes, memory, hot_now),
            ("hot devices added", nodes, memory, self.hot_bytes_after()),
            ("one more node", nodes + 1.0, memory, hot_now),
            ("twice the memory", nodes, 2.0 * memory, hot_now),
        ];
        let mut now = None;
        choices.map(|(what, nodes, memory, hot)| {
            // The nodes share the keys, so together they are one of all their bytes.
            let (memory, hot) = (memory * nodes, hot * nodes);
            let shares = if timed && hot > 0.0 {
                sampled.node_shares(&self.node(memory, hot, nodes))
            } else {
                sampled.shares(self.eviction(), memory, hot)
            };
            let Shares { memory, hot, rest } = shares;
            let each = rest / nodes;
            let bulk_reads_per_node = each / now.get_or_insert(each).max(1e-12);
            let mean_read_ms = hot * self.hot_ms + rest * self.bulk_ms;
            let (memory_share, hot_share, bulk_share) = (memory, hot, rest);
            Row { what, memory_share, hot_share, bulk_share, bulk_reads_per_node, mean_read_ms }
        })
    }

    fn write_curves(&self, path: &Path, sampled: &Sampled, timed: bool) -> anyhow::Result<()> {
        let nodes = f64::from(self.nodes);
        let node = self.node(self.memory.0 as f64 * nodes, self.hot_bytes_after() * nodes, nodes);
        // Shown on terminals alone.
        let bar = indicatif::ProgressBar::new(0).with_message("curves");
        let file = CurvesFile::compute(sampled, &node, timed, |rows| {
            bar.set_length(rows as u64);
            bar.inc(1);
        });
        bar.finish_and_clear();
        Ok(report::write_whole(path, &file.text()?, CurvesFile::is_text)?)
    }
}

/// The table of the choices.
fn grid(rows: &[Row]) -> Grid {
    let head = ["", "memory", "hot", "bulk", "bulk reads of a node", "mean read"];
    let mut grid = Grid::new("lrrrrr", &head);
    for row in rows {
        grid.row([
            row.what.to_owned(),
            percent(row.memory_share, 1),
            percent(row.hot_share, 1),
            percent(row.bulk_share, 1),
            format!("{} x", decimals(row.bulk_reads_per_node, 2)),
            time(1e-3 * row.mean_read_ms),
        ]);
    }
    grid
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!(args.nodes > 0, "--nodes must be at least 1");
    ensure!(args.keys >= 64, "--keys must be at least 64");
    let mut trace = Trace::open(&args.trace, None, false)?;
    trace.spread_times();
    let data = |row: &record::trace::Row| matches!(row.operation, Operation::Get | Operation::Put);
    let others = trace.rows.iter().filter(|row| !data(row)).count();
    let skipped = trace.skipped_text();
    trace.rows.retain(data);
    ensure!(
        trace.rows.iter().any(|row| row.operation == Operation::Get),
        "{} has no reads, of which memory and devices serve a part",
        args.trace.display()
    );
    let unknown = u32::try_from(args.size.0).context("--size is too large")?;
    let timed = trace.rows.iter().all(|row| row.time.is_some());
    let requests = trace.rows.iter().map(|row| Recorded {
        key: trace.key(row.key),
        bytes: row.size.unwrap_or(unknown).into(),
        at: row.time.unwrap_or(0),
    });
    let sampled = Sampled::new(requests, args.keys);
    let rows = args.choices(&sampled, timed);
    if let Some(path) = &args.curves {
        args.write_curves(path, &sampled, timed)?;
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(ExitCode::SUCCESS);
    }
    out!("{}", grid(&rows).text());
    let hot = if timed {
        "hot devices as a node fills them, from empty"
    } else {
        "hot devices with the best placement, as the requests have no times"
    };
    outln!(
        "from {} requests, {} of the keys sampled; {hot}; without queueing, which `plan` and `predict` compute",
        trace.rows.len(),
        percent(sampled.rate(), 1)
    );
    if trace.rows.len() < REQUESTS_MIN {
        outln!(
            "! So few requests are mostly first reads, which nothing serves: record {REQUESTS_MIN} at least."
        );
    }
    if others > 0 {
        outln!(
            "{others} rows of head and delete neither read nor write an object's bytes and are left out"
        );
    }
    if let Some(skipped) = skipped {
        outln!("{skipped}");
    }
    Ok(ExitCode::SUCCESS)
}
