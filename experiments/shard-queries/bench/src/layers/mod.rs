//! What `experiments/shard-layers` measures: layers added, dropped and filled by queries, on one
//! index.
//!
//! All in one process, as in a server: a thread that queries, one query after the other, and for
//! some of it one that changes the layers. Every answer, timed or not, is compared with the
//! [`oracle`](crate::oracle)'s. Response times include what it takes to make an answer's checksum.

mod config;
mod process;
mod results;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::Zipf;
use shard::index::{Index, Options, build};
use shard::layers::{Array, LayerFootprint, Rates};

use crate::checksum;
use crate::config::Dataset;
use crate::engine::{Query, Slice};
use crate::oracle::{Expected, Oracle};
use crate::ours;
use crate::queries::Queries;
pub use config::Config;
use config::rates;
use process::{cpu_s, resident_bytes};
pub use results::{Changed, Curve, DatasetResult, Results, Times, Window};

/// What is asked: counting reads no layer.
const ASKED: [Query; 3] = [Query::Search, Query::Extract64, Query::Extract1024];
/// Patterns for which the oracle is compared with a scan of the text.
const SCANNED: usize = 8;
/// Segments of a step of a sweep that nothing holds back.
const STEP_SEGMENTS: usize = 4096;
/// Queries between two looks at the clock while throughput is measured.
const QUERIES_AT_ONCE: usize = 8;

/// Measures what the configuration says; `folder` is the experiment's.
///
/// # Errors
/// If something is missing or an answer is wrong.
pub fn run(
    config: &Config,
    short: bool,
    folder: &Path,
    say: &dyn Fn(&str),
) -> anyhow::Result<Results> {
    let config = if short { config.clone().shortened()? } else { config.clone() };
    let of = |dataset| measure(&config, dataset, &folder.join(&config.data), say);
    let datasets = config.dataset.iter().map(of).collect::<anyhow::Result<_>>()?;
    Ok(Results { version: env!("CARGO_PKG_VERSION").to_owned(), datasets })
}

fn measure(
    config: &Config,
    dataset: &Dataset,
    data: &Path,
    say: &dyn Fn(&str),
) -> anyhow::Result<DatasetResult> {
    let text = dataset.load(data)?;
    say(&format!("{}: {} bytes; drawing queries and their answers", dataset.name, text.len()));
    let measured = IndexUnderTest::new(config, &text)?;
    let (bytes, checksum) = (text.len() as u64, checksum::of_bytes(&text));
    drop(text);
    let index_bytes = measured.index.footprint().total_bytes() as u64;

    say("a pair of layers, added and dropped");
    let alone = (0..config.rounds).map(|_| measured.change(1.0, STEP_SEGMENTS, true));
    let alone = alone.collect::<anyhow::Result<_>>()?;
    say("the same while queries run");
    let mut undisturbed = vec![measured.undisturbed(0)?];
    let (mut meanwhile, mut disturbed) = (Vec::new(), Vec::new());
    for round in 0..config.rounds {
        let (changed, times) = measured.disturbed(round)?;
        meanwhile.push(changed);
        disturbed.push(times);
        undisturbed.push(measured.undisturbed(round + 1)?);
    }
    let mut curves = Vec::new();
    for query in ASKED {
        say(&format!("{} by popularity, filling a marked pair", query.name()));
        curves.push(measured.curve(query)?);
    }
    Ok(DatasetResult {
        name: dataset.name.clone(),
        bytes,
        checksum: format!("{checksum:016x}"),
        index_bytes,
        sampling: config.sampling,
        swept: config.swept,
        marked: config.marked,
        sweep_share: config.sweep_share,
        alone,
        meanwhile,
        undisturbed,
        disturbed,
        curves,
    })
}

/// An index, its queries, and the right answers.
pub struct IndexUnderTest<'a> {
    config: &'a Config,
    index: Index,
    queries: Queries,
    expected: Expected,
}

impl<'a> IndexUnderTest<'a> {
    /// Builds the index of a text and draws the queries.
    ///
    /// # Errors
    /// If the text has too few patterns or cannot be indexed.
    pub fn new(config: &'a Config, text: &[u8]) -> anyhow::Result<Self> {
        let oracle = Oracle::new(text)?;
        let queries = Queries::draw(&oracle, &config.draw())?;
        oracle.check(&queries.patterns, SCANNED)?;
        let expected = Expected::new(&oracle, &queries);
        drop(oracle);
        let [sa_sampling, isa_sampling] = config.sampling;
        let mut file = Vec::new();
        build(text, &Options { sa_sampling, isa_sampling }, &mut file)
            .context("cannot build the shard")?;
        file.shrink_to_fit();
        let index = Index::open(file).context("cannot open the shard that was built")?;
        Ok(Self { config, index, queries, expected })
    }

    /// Asks one query; how long it took.
    fn ask(&self, query: Query, number: usize) -> anyhow::Result<Duration> {
        let slice = Slice { query, batch: 1, first: number, count: 1 };
        let start = Instant::now();
        let answer = ours::answer(&self.index, &self.queries, &slice)?;
        let took = start.elapsed();
        let right = Some(answer) == self.expected.checksum(&slice);
        ensure!(right, "a wrong answer to {slice}");
        Ok(took)
    }

    /// Adds the pair by a sweep of `share` of a processor and drops it again. If nobody queries
    /// meanwhile (`quiet`), asks some queries of the pair.
    ///
    /// # Errors
    /// If the sweep fails or an answer is wrong.
    pub fn change(&self, share: f64, step_segments: usize, quiet: bool) -> anyhow::Result<Changed> {
        let layers = self.index.layers();
        let before = resident_bytes()?;
        let (start, cpu) = (Instant::now(), cpu_s()?);
        let mut sweep = layers.sweep(&rates(self.config.swept))?;
        let bytes = sweep.bytes() as u64;
        loop {
            let step = Instant::now();
            if sweep.step(&self.index, step_segments).is_finished() {
                break;
            }
            if share < 1.0 {
                std::thread::sleep(step.elapsed().mul_f64(1.0 / share - 1.0));
            }
        }
        layers.publish(sweep)?;
        let (cpu_s, wall_s) = (cpu_s()? - cpu, start.elapsed().as_secs_f64());
        let resident_added_bytes = resident_bytes()? - before;
        if quiet {
            for query in ASKED {
                (0..self.config.block).try_for_each(|n| self.ask(query, n).map(drop))?;
            }
        }
        let start = Instant::now();
        let dropped = [Array::Sa, Array::Isa].map(|array| layers.drop_lowest(array));
        let unpublished = start.elapsed();
        while dropped.iter().flatten().any(|dropped| dropped.is_read()) {
            std::thread::yield_now();
        }
        let start = Instant::now();
        drop(dropped);
        let freed = start.elapsed();
        Ok(Changed {
            cpu_s,
            wall_s,
            bytes,
            resident_added_bytes,
            resident_left_bytes: resident_bytes()? - before,
            unpublish_us: unpublished.as_secs_f64() * 1e6,
            free_us: freed.as_secs_f64() * 1e6,
        })
    }

    /// Response times until `is_over`, queries of all kinds in turns; the same ones for the same
    /// `round`.
    fn times(&self, round: usize, is_over: impl Fn() -> bool) -> anyhow::Result<Vec<Times>> {
        let mut took = ASKED.map(|query| (query, Vec::new()));
        let first = round * self.config.block;
        for number in first.. {
            for (query, took) in &mut took {
                took.push(self.ask(*query, number)?);
            }
            if is_over() {
                break;
            }
        }
        Ok(took.into_iter().map(|(query, took)| Times::new(query, took)).collect())
    }

    fn undisturbed(&self, round: usize) -> anyhow::Result<Vec<Times>> {
        let (start, alone_s) = (Instant::now(), self.config.alone_s);
        self.times(round, || start.elapsed().as_secs_f64() > alone_s)
    }

    /// A change in another thread, and the response times meanwhile.
    ///
    /// # Errors
    /// As [`change`](Self::change).
    pub fn disturbed(&self, round: usize) -> anyhow::Result<(Changed, Vec<Times>)> {
        std::thread::scope(|scope| {
            let change = scope.spawn(|| {
                let Config { sweep_share, step_segments, .. } = *self.config;
                self.change(sweep_share, step_segments, false)
            });
            let times = self.times(round, || change.is_finished());
            let changed = change.join().map_err(|_| anyhow::anyhow!("the sweep panicked"))?;
            Ok((changed?, times?))
        })
    }

    /// Queries by popularity, before a pair is marked, after, and with the same pair whole.
    ///
    /// # Errors
    /// If an answer is wrong or layers cannot be added.
    pub fn curve(&self, query: Query) -> anyhow::Result<Curve> {
        let Config { window_s, windows_before, windows_after, zipf, .. } = *self.config;
        let layers = self.index.layers();
        let all = match query {
            Query::Search | Query::Count => self.queries.patterns.len(),
            _ => self.queries.extracts.len(),
        };
        let (law, mut random) = (Zipf::new(all as f64, zipf)?, StdRng::seed_from_u64(3));
        let mut number = || {
            let rank: f64 = random.sample(law);
            rank as usize - 1
        };
        let mut window = || self.window(query, window_s, &mut number);
        window()?;
        let before = (0..windows_before).map(|_| window());
        let before_per_s = before.collect::<anyhow::Result<_>>()?;
        let marked = rates(self.config.marked);
        let start = Instant::now();
        layers.mark(&marked)?;
        let mut after = Vec::new();
        for _ in 0..windows_after {
            let per_s = window()?;
            let footprint = layers.footprint();
            let (known_sa, known_isa) = (known_share(&footprint.sa), known_share(&footprint.isa));
            after.push(Window { at_s: start.elapsed().as_secs_f64(), per_s, known_sa, known_isa });
        }
        // What the queries have filled by now may be swept again.
        let partial = |layers: &[LayerFootprint]| {
            let partial = layers.iter().filter(|layer| layer.known < layer.values);
            partial.map(|layer| layer.rate).collect()
        };
        let footprint = layers.footprint();
        let mut sweep =
            layers.sweep(&Rates { sa: partial(&footprint.sa), isa: partial(&footprint.isa) })?;
        while !sweep.step(&self.index, STEP_SEGMENTS).is_finished() {}
        layers.publish(sweep)?;
        layers.pack()?;
        window()?;
        let whole = (0..windows_before).map(|_| window());
        let whole_per_s = whole.collect::<anyhow::Result<_>>()?;
        drop([Array::Sa, Array::Isa].map(|array| layers.drop_lowest(array)));
        Ok(Curve { query, window_s, before_per_s, after, whole_per_s })
    }

    /// Queries/s over this many seconds.
    fn window(
        &self,
        query: Query,
        seconds: f64,
        number: &mut impl FnMut() -> usize,
    ) -> anyhow::Result<f64> {
        let (start, mut asked) = (Instant::now(), 0);
        loop {
            for _ in 0..QUERIES_AT_ONCE {
                self.ask(query, number())?;
            }
            asked += QUERIES_AT_ONCE;
            let took = start.elapsed().as_secs_f64();
            if took >= seconds {
                return Ok(asked as f64 / took);
            }
        }
    }
}

/// Share of the values of an array's layers that are known; 1 where there are none.
fn known_share(layers: &[LayerFootprint]) -> f64 {
    let sum = |count: fn(&LayerFootprint) -> usize| layers.iter().map(count).sum::<usize>();
    let values = sum(|layer| layer.values);
    if values == 0 { 1.0 } else { sum(|layer| layer.known) as f64 / values as f64 }
}

impl Times {
    /// Percentiles of at least one response time.
    fn new(query: Query, mut took: Vec<Duration>) -> Times {
        took.sort_unstable();
        let at = |per_mille: usize| {
            let place = (took.len().saturating_sub(1)) * per_mille / 1000;
            took.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1e6)
        };
        Times {
            query,
            count: took.len() as u64,
            us_p50: at(500),
            us_p99: at(990),
            us_p999: at(999),
        }
    }
}
