//! The requests of the demo: keys and sizes of a trace, and a suitable size of memory.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use engine::tier::{Eviction, Memory, WithKey};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};

use record::trace::Trace;

/// Assumed size of an object whose size the trace does not state.
const SIZE_UNKNOWN_BYTES: u64 = 1024;

/// The fewest rows of a trace: enough to warm the memory, and for a step of some thousand requests.
const ROWS_MIN: usize = 20_000;

/// The first rows of a trace.
pub struct Catalogue {
    /// The path of the trace.
    pub path: PathBuf,
    /// A description for people.
    pub description: String,
    requests: Vec<(u32, u64)>,
}

impl Catalogue {
    /// Reads the first `rows` rows of a trace, or all of a shorter one.
    pub fn of_trace(path: &Path, rows: usize) -> anyhow::Result<Catalogue> {
        let trace = match Trace::open(path, Some(0..rows as u64), false) {
            Err(record::Error::Rows { rows, .. }) => Trace::open(path, Some(0..rows), false)?,
            trace => trace?,
        };
        if trace.rows.len() < ROWS_MIN {
            bail!(
                "{} has {} rows, but the demo needs at least {ROWS_MIN} (of {rows}, all are used); use a longer \
                 trace, or none",
                path.display(),
                trace.rows.len()
            );
        }
        let size = |size: Option<u32>| size.map_or(SIZE_UNKNOWN_BYTES, u64::from);
        let requests: Vec<_> = trace.rows.iter().map(|r| (r.key, size(r.size))).collect();
        let name = path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        let mut description = describe(&format!("the trace {name}"), &requests);
        if requests.len() < rows {
            description +=
                &format!(" (all of it; with {rows}, no step would repeat another's requests)");
        }
        if let Some(skipped) = trace.skipped_text() {
            description += &format!("; {skipped}");
        }
        Ok(Catalogue { path: path.to_owned(), description, requests })
    }

    /// Generates a trace with the published statistics of the Twitter cluster whose trace the demo
    /// otherwise uses: Zipf(0.99) over 248,646 keys, 203 bytes on average.
    pub fn generated(path: &Path, rows: usize) -> anyhow::Result<Catalogue> {
        let mut rng = StdRng::seed_from_u64(1);
        let popularity = Zipf::new(248_646.0, 0.99).context("invalid Zipf distribution")?;
        let mut text = String::from("time_ms,key,size,op\n");
        let mut requests = Vec::with_capacity(rows);
        let sizes: Vec<u64> = (0..4096)
            .map(|_| (-203.0 * f64::ln(1.0 - rng.random::<f64>())).ceil().max(1.0) as u64)
            .collect();
        for row in 0..rows {
            let key = popularity.sample(&mut rng) as u32;
            let size = sizes[key as usize % sizes.len()];
            requests.push((key, size));
            // 2,000 requests/s, as in the original. The demo sets its own rates.
            let _ = writeln!(text, "{},k{key},{size},get", row / 2);
        }
        report::write_new(path, &text)?;
        Ok(Catalogue {
            path: path.to_owned(),
            description: describe("generated keys, Zipf(0.99)", &requests),
            requests,
        })
    }

    /// The number of requests.
    pub fn rows(&self) -> usize {
        self.requests.len()
    }

    /// The hit ratio of a memory tier of this size that is full, over all requests.
    pub fn hit_ratio(&self, memory_bytes: u64) -> f64 {
        let mut memory = MemoryReplay::new(memory_bytes);
        memory.hits(&self.requests);
        memory.hits(&self.requests) as f64 / self.requests.len() as f64
    }

    /// The smallest memory, within 5 %, that reaches a hit ratio.
    pub fn memory_for(&self, hit_ratio: f64) -> u64 {
        let (mut low, mut high) = (1u64 << 12, 1u64 << 32);
        while high > low + low / 20 {
            let middle = ((low as f64 * high as f64).sqrt()) as u64;
            if self.hit_ratio(middle) < hit_ratio { low = middle } else { high = middle }
        }
        high
    }

    /// How many of the first requests an empty memory of this size takes until it answers nearly as many as in the second
    /// half of the trace; at most a quarter of a trace. S3-FIFO keeps what is asked for twice, which it learns slowly.
    pub fn warmup_rows(&self, memory_bytes: u64) -> usize {
        let mut memory = MemoryReplay::new(memory_bytes);
        let blocks = self.requests.chunks_exact(WARMUP_BLOCK_ROWS);
        let hits: Vec<f64> = blocks.map(|block| memory.hits(block) as f64).collect();
        let late = &hits[hits.len() / 2..];
        let mean = |hits: &[f64]| hits.iter().sum::<f64>() / hits.len() as f64;
        let enough = mean(late) - HIT_RATIO_MISSING * WARMUP_BLOCK_ROWS as f64;
        // Of five blocks, so that chance does not end it: the standard error of their mean is 0.3 points.
        let warm = hits.windows(5).position(|next| mean(next) >= enough);
        let blocks = warm.unwrap_or(hits.len()).clamp(1, (hits.len() / 4).max(1));
        blocks * WARMUP_BLOCK_ROWS
    }
}

/// Requests of which [`Catalogue::warmup_rows`] counts the hits together.
const WARMUP_BLOCK_ROWS: usize = 5_000;

/// The hit ratio that a memory may lack when the first step begins: a fifth of what device utilisations differ by between
/// steps of 6 s.
const HIT_RATIO_MISSING: f64 = 0.005;

/// The memory tier of a node, asked in turn for the objects of requests.
struct MemoryReplay(Memory<WithKey<()>>);

impl MemoryReplay {
    fn new(bytes: u64) -> MemoryReplay {
        MemoryReplay(Memory::new(Eviction::default(), bytes))
    }

    /// How many of `requests` find their object in memory. The others store it there.
    fn hits(&mut self, requests: &[(u32, u64)]) -> usize {
        let mut hits = 0;
        for &(key, size) in requests {
            let name: ground::Key = key.to_be_bytes()[..].into();
            if self.0.get(&name).is_some() {
                hits += 1;
            } else {
                self.0.insert(WithKey { key: name, value: () }, size + METADATA_BYTES);
            }
        }
        hits
    }
}

/// Approximate size of the metadata that the node keeps with a small object, bytes.
const METADATA_BYTES: u64 = 80;

fn describe(what: &str, requests: &[(u32, u64)]) -> String {
    let mut keys: Vec<u32> = requests.iter().map(|r| r.0).collect();
    keys.sort_unstable();
    keys.dedup();
    let bytes: u64 = requests.iter().map(|r| r.1).sum();
    format!(
        "{what}: {} requests of {} keys, {} bytes on average",
        requests.len(),
        keys.len(),
        bytes / requests.len().max(1) as u64
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_chosen_for_a_hit_ratio() {
        let dir = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::generated(&dir.path().join("t.csv"), 20_000).unwrap();
        let bytes = catalogue.memory_for(0.5);
        assert!((catalogue.hit_ratio(bytes) - 0.5).abs() < 0.05);
        let again = Catalogue::of_trace(&dir.path().join("t.csv"), 20_000).unwrap();
        assert!(!again.description.contains("all of it"));
        assert!((again.hit_ratio(bytes) - catalogue.hit_ratio(bytes)).abs() < 0.02);
        assert_eq!(again.warmup_rows(bytes), 5_000, "a quarter of a short trace");
    }

    /// What a demo's memory answers is the same in its first step as in its last.
    #[test]
    fn memory_is_warm_after_the_warm_up() {
        let dir = tempfile::tempdir().unwrap();
        let catalogue = Catalogue::generated(&dir.path().join("t.csv"), 500_000).unwrap();
        let bytes = catalogue.memory_for(0.6);
        let rows = catalogue.warmup_rows(bytes);
        let mut memory = MemoryReplay::new(bytes);
        let ratio = |memory: &mut MemoryReplay, rows: std::ops::Range<usize>| {
            memory.hits(&catalogue.requests[rows.clone()]) as f64 / rows.len() as f64
        };
        let cold = ratio(&mut memory, 0..15_000);
        ratio(&mut memory, 15_000..rows);
        let first = ratio(&mut memory, rows..rows + 15_000);
        let last = ratio(&mut memory, rows + 15_000..500_000);
        assert!(
            (first - last).abs() < 0.015 && last - cold > 0.05,
            "{rows}: {cold} {first} {last}"
        );
    }

    #[test]
    fn a_shorter_trace_is_used_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        let lines: String = (0..21_000).map(|i| format!("{i},k{},10,get\n", i % 500)).collect();
        std::fs::write(&path, format!("time_ms,key,size,op\n0,*,,options\n{lines}")).unwrap();
        let catalogue = Catalogue::of_trace(&path, 500_000).unwrap();
        assert_eq!(catalogue.rows(), 21_000);
        let shown = &catalogue.description;
        assert!(shown.contains("all of it") && shown.contains("1 `options`"), "{shown}");
        std::fs::write(&path, "time_ms,key,size,op\n0,a,1,get\n").unwrap();
        let error = Catalogue::of_trace(&path, 500_000).err().unwrap().to_string();
        assert!(error.contains("has 1 rows") && error.contains("20000"), "{error}");
    }
}
