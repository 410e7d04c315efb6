//! Measures layers of a real index: what a sweep costs, how long a drop takes, what queries notice
//! of either, what layers bring that queries fill themselves, and what memory the process holds.
//!
//!     cargo run --release -p shard --example layers -- FILE [SA_SAMPLING ISA_SAMPLING]
//!
//! Queries are locates of all occurrences of a random piece of the text, of 1 to 1000 occurrences,
//! and extracts of a kilobyte, in one thread, each checked against the file. CPU seconds are those
//! of the kernel for the thread (Linux). Times of queries are of the wall clock: run it on a quiet
//! machine with a processor for each of its two threads.

// A measurement needs the clock, a thread and a file, which the crate itself does without.
#![allow(clippy::disallowed_methods)]

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shard::Text;
use shard::index::{self, Index, Options};
use shard::layers::{Array, Rates, TextBuild, TextOptions};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let file = arguments.first().ok_or("which file?")?;
    let rate = |place: usize| arguments.get(place).map_or(Ok(32), |rate| rate.parse());
    let options = Options { sa_sampling: rate(1)?, isa_sampling: rate(2)? };
    let text = std::fs::read(file)?;
    let mut shard = Vec::new();
    let start = Instant::now();
    index::build(&text, &options, &mut shard)?;
    let ratio = |bytes: usize| bytes as f64 / text.len() as f64;
    println!(
        "built in {:.1} s, {:.3} of the text",
        start.elapsed().as_secs_f64(),
        ratio(shard.len())
    );
    let index = Index::open_unchecked(shard)?;
    let queries = Queries::new(&index, &text);

    let alone = queries.run(&index, 1, |at| at > Duration::from_secs(3));
    println!("without layers: {alone}");
    costs(&index, &options, ratio)?;
    let with = queries.run(&index, 2, |at| at > Duration::from_secs(3));
    println!("with a pair of layers: {with}");
    while index.layers().drop_lowest(Array::Sa).is_some() {}
    while index.layers().drop_lowest(Array::Isa).is_some() {}
    meanwhile(&index, &options, &queries)?;
    learning(&index, &options, &queries)?;
    while index.layers().drop_lowest(Array::Sa).is_some() {}
    while index.layers().drop_lowest(Array::Isa).is_some() {}
    memory(&index, &options, &queries)
}

/// The pair of layers below the index's own samples.
fn pair(options: &Options, halvings: u32) -> Rates {
    let below = |sampling: u32| vec![sampling.next_power_of_two() >> halvings];
    Rates { sa: below(options.sa_sampling), isa: below(options.isa_sampling) }
}

/// Adds and drops the pair, and leaves it there.
fn costs(index: &Index, options: &Options, ratio: impl Fn(usize) -> f64) -> Result<(), Failure> {
    for _ in 0..2 {
        while index.layers().drop_lowest(Array::Sa).is_some() {}
        while index.layers().drop_lowest(Array::Isa).is_some() {}
        for halvings in 1..=2 {
            let rates = pair(options, halvings);
            let cpu_s = cpu_s()?;
            let start = Instant::now();
            let mut sweep = index.layers().sweep(&rates)?;
            while !sweep.step(index, 4096).is_finished() {}
            let bytes = sweep.bytes();
            index.layers().publish(sweep)?;
            println!(
                "sweep for {rates:?}, {:.3} of the text: {:.2} CPU s, {:.2} s",
                ratio(bytes),
                self::cpu_s()? - cpu_s,
                start.elapsed().as_secs_f64()
            );
        }
        let resident = resident_pages()?;
        let start = Instant::now();
        let dropped = [Array::Sa, Array::Isa].map(|array| index.layers().drop_lowest(array));
        let unpublished = start.elapsed();
        drop(dropped);
        let freed = start.elapsed() - unpublished;
        let pages = resident - resident_pages()?;
        println!(
            "drop: {unpublished:?} to unpublish, {freed:?} to free; {pages} pages less resident"
        );
    }
    Ok(())
}

/// What the process holds while layers of every kind come and go, beside what is said of them.
fn memory(index: &Index, options: &Options, queries: &Queries<'_>) -> Result<(), Failure> {
    let layers = index.layers();
    let before = resident_pages()?;
    let say = |what: &str| {
        let more = (resident_pages()? - before) as f64 * 4096.0 / 1e6;
        let held = layers.footprint().total_bytes() as f64 / 1e6;
        println!("{what}: {more:.1} MB more resident than before, {held:.1} MB of layers");
        Ok::<(), Failure>(())
    };
    let mut sweep = layers.sweep(&pair(options, 2))?;
    while !sweep.step(index, 4096).is_finished() {}
    layers.publish(sweep)?;
    say("a pair by a sweep")?;
    drop([Array::Sa, Array::Isa].map(|array| layers.drop_lowest(array)));
    say("dropped")?;
    layers.mark(&pair(options, 2))?;
    say("a pair marked")?;
    queries.run(index, 5, |at| at > Duration::from_secs(2));
    say("and filled in part by queries")?;
    drop([Array::Sa, Array::Isa].map(|array| layers.drop_lowest(array)));
    say("dropped")?;
    let mut text = TextBuild::new(index, TextOptions::default())?;
    while !text.step(index, 4096)?.is_finished() {}
    layers.publish_text(text)?;
    say("a text layer")?;
    drop(layers.set_hot(queries.text.len() / 5)?);
    queries.run(index, 6, |at| at > Duration::from_secs(2));
    say("and hot blocks, some of them read")?;
    drop(layers.drop_text());
    say("dropped")
}

/// Queries in this thread while another adds and drops layers.
fn meanwhile(index: &Index, options: &Options, queries: &Queries<'_>) -> Result<(), Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let changes = scope.spawn(|| {
            let (mut count, mut slowest) = (0, Duration::ZERO);
            while !stop.load(Relaxed) {
                let mut sweep = index.layers().sweep(&pair(options, 1))?;
                let whole = loop {
                    if stop.load(Relaxed) {
                        break false;
                    }
                    if sweep.step(index, 1024).is_finished() {
                        break true;
                    }
                };
                if !whole {
                    break;
                }
                index.layers().publish(sweep)?;
                let start = Instant::now();
                let dropped =
                    [Array::Sa, Array::Isa].map(|array| index.layers().drop_lowest(array));
                slowest = slowest.max(start.elapsed());
                while dropped.iter().flatten().any(|dropped| dropped.is_read()) {
                    std::hint::spin_loop();
                }
                count += 1;
            }
            Ok::<_, shard::Error>((count, slowest))
        });
        let measured = queries.run(index, 3, |at| at > Duration::from_secs(20));
        stop.store(true, Relaxed);
        let (count, slowest) = changes.join().map_err(|_| "the changing thread panicked")??;
        println!("while a pair came and went {count} times: {measured}");
        println!("slowest of these to unpublish a pair: {slowest:?}");
        Ok(())
    })
}

/// Queries that fill marked layers themselves, their throughput in every second.
fn learning(index: &Index, options: &Options, queries: &Queries<'_>) -> Result<(), Failure> {
    index.layers().mark(&pair(options, 2))?;
    for second in 1..=6 {
        let measured = queries.run(index, 4, |at| at > Duration::from_secs(1));
        let footprint = index.layers().footprint();
        let known = |layers: &[shard::layers::LayerFootprint]| {
            let layer = layers.first().copied();
            layer.map_or(0.0, |layer| layer.known as f64 / layer.values as f64)
        };
        let (sa, isa) = (known(&footprint.sa), known(&footprint.isa));
        println!("marked, second {second}: {measured}; known {sa:.3} of SA, {isa:.3} of ISA");
    }
    Ok(())
}

/// Patterns and offsets to ask for.
struct Queries<'a> {
    text: &'a [u8],
    patterns: Vec<&'a [u8]>,
    offsets: Vec<usize>,
}

impl<'a> Queries<'a> {
    fn new(index: &Index, text: &'a [u8]) -> Self {
        let mut state = 7u64;
        let mut offsets = std::iter::repeat_with(move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % (text.len() - 1024)
        });
        let pieces =
            offsets.by_ref().take(20_000).map(|offset| &text[offset..offset + 8 + offset % 8]);
        let patterns = pieces.filter(|piece| (1..=1000).contains(&index.count(piece))).collect();
        Self { text, patterns, offsets: offsets.take(20_000).collect() }
    }

    /// Asks for a pattern and an offset in turn until `is_over`; begins at another place for
    /// another `seed`.
    fn run(&self, index: &Index, seed: usize, is_over: impl Fn(Duration) -> bool) -> QueryTimes {
        let (mut found, mut bytes) = (Vec::new(), Vec::new());
        let mut measured = QueryTimes::default();
        let start = Instant::now();
        for turn in seed * 3001.. {
            let pattern = self.patterns[turn % self.patterns.len()];
            let offset = self.offsets[turn % self.offsets.len()];
            found.clear();
            bytes.clear();
            let asked = Instant::now();
            index.locate(index.rows(pattern), &mut found);
            let located = asked.elapsed();
            let extracted = index.extract(offset, 1024, &mut bytes);
            measured.extracts.push(asked.elapsed() - located);
            measured.locates.push(located);
            assert!(!found.is_empty() && extracted.is_ok());
            assert!(found.iter().all(|&at| self.text[at..].starts_with(pattern)));
            assert_eq!(bytes, self.text[offset..offset + 1024]);
            if is_over(start.elapsed()) {
                break;
            }
        }
        measured.locates.sort_unstable();
        measured.extracts.sort_unstable();
        measured
    }
}

/// Times of queries, sorted.
#[derive(Default)]
struct QueryTimes {
    locates: Vec<Duration>,
    extracts: Vec<Duration>,
}

impl std::fmt::Display for QueryTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, times) in [("locate", &self.locates), ("; extract 1 KiB", &self.extracts)] {
            let at = |share: usize| times[(times.len() - 1) * share / 1000];
            let rate = times.len() as f64 / times.iter().sum::<Duration>().as_secs_f64();
            write!(
                f,
                "{name} {rate:.0}/s, p50 {:?}, p99 {:?}, p99.9 {:?}",
                at(500),
                at(990),
                at(999)
            )?;
        }
        Ok(())
    }
}

/// Pages of this process that are in memory.
fn resident_pages() -> Result<i64, Failure> {
    let sizes = std::fs::read_to_string("/proc/self/statm")?;
    Ok(sizes.split(' ').nth(1).ok_or("no size")?.parse()?)
}

/// CPU seconds of this thread so far.
fn cpu_s() -> Result<f64, Failure> {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    Ok(times.split(' ').next().ok_or("no time")?.parse::<f64>()? / 1e9)
}
