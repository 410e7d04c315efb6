//! Rates of an index's queries on a file, one thread, one at a time and in batches of 16.
//!
//! `cargo run --release -p shard --example rates -- FILE [SA_RATE [ISA_RATE [SA_LAYER ISA_LAYER]]]`
//!
//! The last two add a layer of each array, made by a sweep; 0 stands for none.
//!
//! Prints the footprint by part, the CPU time of the build, and for each query how often it is
//! answered in a second of CPU time, every answer checked against the plain text. Patterns are
//! parts of the text of 4 to 12 bytes; those of searches occur 1 to 1,000 times. Rough figures for
//! whoever changes the index: claims are made by `experiments/shard-queries`.

#![allow(clippy::disallowed_methods)] // An example is a program: it reads files and clocks.

use std::hint::black_box;

use shard::Text;
use shard::index::{self, Index, Options};
use shard::layers::Rates;

/// Numbers that look random, the same ones each time.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end.max(1)
    }
}

/// CPU seconds of this thread: on a shared machine they drift less than the time of day.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn memory_peak_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap_or("");
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok());
    kib.unwrap_or(0) * 1024
}

/// Asks all of `queries` for a second or more, `batch` at a time, and prints how many were
/// answered.
fn rate<Q>(what: &str, queries: &[Q], batch: usize, mut ask: impl FnMut(&[Q])) {
    let (start, mut asked) = (cpu_s(), 0);
    while cpu_s() < start + 1.0 {
        for part in queries.chunks(batch) {
            ask(part);
            asked += part.len();
        }
    }
    println!("{what:24} {:12.0} /s", asked as f64 / (cpu_s() - start));
}

/// Prints what a dependent access to 256 MiB of memory costs here now: the measure of all that
/// follows.
fn access() {
    let count = 1 << 26;
    // A walk through all places in an order that no processor foresees.
    let next: Vec<u32> =
        (0..count).map(|place: u32| place.wrapping_mul(1_664_525).wrapping_add(12_345)).collect();
    let (start, accesses, mut place) = (cpu_s(), 4_000_000, 0);
    for _ in 0..accesses {
        place = next[(place % count) as usize];
    }
    black_box(place);
    println!("a dependent access: {:.0} ns", (cpu_s() - start) / f64::from(accesses) * 1e9);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: rates FILE [SA_RATE [ISA_RATE]]");
    let text = std::fs::read(path).expect("the file can be read");
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().expect("a number"));
    let sa_sampling = number(32);
    let options = Options { sa_sampling, isa_sampling: number(sa_sampling) };
    let layers = [number(0), number(0)].map(|rate| if rate > 0 { vec![rate] } else { Vec::new() });

    let (mut file, cpu) = (Vec::new(), cpu_s());
    let report = index::build(&text, &options, &mut file).expect("the text can be indexed");
    let n = text.len();
    println!("{n} bytes, SA every {}, ISA every {}", options.sa_sampling, options.isa_sampling);
    println!(
        "build {:.2} CPU s; memory {:.2} x the text at most, {:.2} x stated",
        cpu_s() - cpu,
        memory_peak_bytes() as f64 / n as f64,
        index::build_memory_bytes(n, &options) as f64 / n as f64
    );
    for (name, bytes) in &report.sections {
        println!("  {name:16} {bytes:12} {:.4}", *bytes as f64 / n as f64);
    }
    println!("footprint {:.4} x the text", file.len() as f64 / n as f64);
    let start = cpu_s();
    let index = Index::open(file).expect("the file is a shard");
    println!("opened and verified in {:.1} CPU ms", (cpu_s() - start) * 1e3);
    let [sa, isa] = layers;
    let mut sweep = index.layers().sweep(&Rates { sa, isa }).expect("layers below the samples");
    while !sweep.step(&index, 4096).is_finished() {}
    index.layers().publish(sweep).expect("nobody else changes layers");
    println!("layers {:.4} x the text", index.layers().footprint().total_bytes() as f64 / n as f64);
    access();

    let mut draw = Draw(88_172_645_463_325_252);
    extracts(&index, &text, &mut draw);
    let mut patterns: Vec<&[u8]> = Vec::new();
    let mut few: Vec<&[u8]> = Vec::new();
    while few.len() < 2000 {
        let at = draw.below(n - 12);
        let pattern = &text[at..at + 4 + draw.below(9)];
        if patterns.len() < 10_000 {
            patterns.push(pattern);
        }
        if (1..=1000).contains(&index.count(pattern)) {
            few.push(pattern);
        }
    }
    counts(&index, &patterns);
    searches(&index, &text, &few);
}

fn extracts(index: &Index, text: &[u8], draw: &mut Draw) {
    let mut bytes = Vec::new();
    for len in [64, 1024, 1 << 20] {
        if len >= text.len() {
            continue;
        }
        let ranges: Vec<_> = (0..2000)
            .map(|_| draw.below(text.len() - len))
            .map(|offset| offset..offset + len)
            .collect();
        for batch in [1, 16] {
            rate(&format!("extract {len} B, {batch}"), &ranges, batch, |ranges| {
                bytes.clear();
                index.extract_all(ranges, &mut bytes).expect("the ranges are within the text");
                for (range, found) in ranges.iter().zip(bytes.chunks(len)) {
                    assert!(text[range.clone()] == *found);
                }
            });
        }
    }
}

fn counts(index: &Index, patterns: &[&[u8]]) {
    for batch in [1, 16] {
        rate(&format!("count, {batch}"), patterns, batch, |patterns| {
            let rows = index.rows_of_all(patterns);
            assert!(rows.iter().all(|rows| !rows.is_empty()));
        });
    }
}

fn searches(index: &Index, text: &[u8], patterns: &[&[u8]]) {
    let hits: usize = patterns.iter().map(|pattern| index.count(pattern)).sum();
    println!("{:.0} hits for a search on average", hits as f64 / patterns.len() as f64);
    let mut offsets = Vec::new();
    for batch in [1, 16] {
        rate(&format!("search, {batch}"), patterns, batch, |patterns| {
            offsets.clear();
            let rows = index.rows_of_all(patterns);
            index.locate_all(&rows, &mut offsets);
            let mut found = offsets.iter();
            for (pattern, rows) in patterns.iter().zip(rows) {
                let first = found.nth(rows.len() - 1).expect("an offset for each row");
                assert!(text[*first..].starts_with(pattern));
            }
            black_box(&offsets);
        });
    }
}
