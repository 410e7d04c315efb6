//! `experiments/hit-ratios`: predicted hit ratios of memory and of hot devices against measured ones.
//!
//! Measured is what the engine does with all requests of a trace; predicted, what it does with a
//! sample of the keys in a miniature ([`report::tiers`]). Beside it stand Che's approximation and the
//! curve of sampled reuse distances, which describe LRU.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::Context as _;
use engine::node::{Choice, TierSettings};
use engine::tier::{Eviction, Memory, WithKey, record_bytes};
use ground::Key;
use ground::window::{Nanos, Outcome, SECOND, key_hash};
use model::cache::{Cache, Catalogue, Shards};
use record::trace::Trace;
use report::tiers::world::{Disk, MemoryTier, World};
use report::tiers::{Node, Recorded, Sampled};
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    keys: usize,
    part_max: f64,
    unknown_bytes: u32,
    memory_shares: Vec<f64>,
    hot_shares: Vec<f64>,
    memory_beside_hot: f64,
    counters: usize,
    promote_mb_per_s: f64,
    bulk_position_ms: f64,
    bulk_mb_per_s: f64,
    hot_position_ms: f64,
    hot_mb_per_s: f64,
    trace: Vec<OfTrace>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OfTrace {
    name: String,
    /// Rows of a short run.
    short_rows: u64,
    /// Seconds over which reads are counted; without it, no hot class: the trace has no times.
    popularity_s: Option<f64>,
}

/// Bytes that the memory tier adds to each object.
const ENTRY_OVERHEAD_BYTES: u64 = 72;

/// A trace as all parts of the experiment read it.
struct Stream {
    requests: Vec<(u32, u64, Nanos)>,
    keys: Vec<Key>,
    /// Bytes of all objects, with what memory adds to each.
    bytes: f64,
    /// By key: requests.
    counts: Vec<u64>,
    largest: u64,
}

impl Stream {
    fn new(trace: &Trace, unknown_bytes: u32) -> Stream {
        let keys: Vec<Key> = (0..trace.keys() as u32).map(|key| trace.key(key).into()).collect();
        let (mut counts, mut sizes) = (vec![0u64; keys.len()], vec![0u64; keys.len()]);
        let mut requests = Vec::with_capacity(trace.rows.len());
        for ((row, at), index) in trace.rows.iter().zip(trace.times_spread()).zip(0..) {
            let key = row.key as usize;
            // An object keeps the size of its first request.
            if counts[key] == 0 {
                sizes[key] = row.size.unwrap_or(unknown_bytes).max(1).into();
            }
            counts[key] += 1;
            let at = if row.time.is_some() { at } else { index * SECOND / 1000 };
            requests.push((row.key, sizes[key], at));
        }
        let of = |(size, key): (&u64, &Key)| size + key.len() as u64 + ENTRY_OVERHEAD_BYTES;
        let bytes = sizes.iter().zip(&keys).map(of).sum::<u64>() as f64;
        let largest = sizes.iter().copied().max().unwrap_or(0);
        Stream { requests, keys, bytes, counts, largest }
    }

    fn recorded(&self) -> impl Iterator<Item = Recorded<'_>> + Clone {
        self.requests.iter().map(|&(key, bytes, at)| Recorded {
            key: &self.keys[key as usize],
            bytes,
            at,
        })
    }

    /// The hit ratio of the memory tier for all requests.
    fn memory_hit_ratio(&self, eviction: Eviction, bytes: f64) -> f64 {
        let (mut memory, mut hits) = (Memory::new(eviction, bytes as u64), 0u64);
        for &(key, size, _) in &self.requests {
            let key = &self.keys[key as usize];
            if memory.get(key).is_some() {
                hits += 1;
            } else {
                memory.insert(WithKey { key: key.clone(), value: () }, size);
            }
        }
        hits as f64 / self.requests.len() as f64
    }

    /// Che's approximation by the counts of the trace. The first request of each object, which it
    /// knows nothing of, counts as a miss.
    fn che(&self, bytes: f64) -> anyhow::Result<f64> {
        let mut sizes = vec![0u64; self.keys.len()];
        self.requests.iter().for_each(|&(key, size, _)| sizes[key as usize] = size);
        let all = self.counts.iter().zip(&sizes).zip(&self.keys);
        let object = |((count, size), key): ((&u64, &u64), &Key)| {
            (*count as f64, (size + key.len() as u64 + ENTRY_OVERHEAD_BYTES) as f64)
        };
        let catalogue = Catalogue::from_objects(all.map(object))?;
        let cache = Cache::new(catalogue, model::cache::Eviction::Lru);
        let again = 1.0 - self.keys.len() as f64 / self.requests.len() as f64;
        Ok(cache.with_memory(bytes)?.hit_ratio.min(again))
    }
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let (mut claims, mut report) = (Vec::new(), String::new());
    for of in &config.trace {
        let path = context.folder.join("../../../shared/data/traces");
        let path = path.join(format!("{}.csv.zst", of.name));
        if !path.exists() {
            context.say(format!("{} is not there", path.display()));
            continue;
        }
        let rows = context.short.then_some(0..of.short_rows);
        let trace = Trace::open(&path, rows, true)?;
        let stream = Stream::new(&trace, config.unknown_bytes);
        // Of fewer keys than are sampled at most, a sample of all would predict nothing.
        let keys = config.keys.min((stream.keys.len() as f64 * config.part_max) as usize);
        let sampled = Sampled::new(stream.recorded(), keys);
        writeln!(
            report,
            "{}: {} requests, {} keys, {:.1} % of them sampled",
            of.name,
            stream.requests.len(),
            stream.keys.len(),
            sampled.rate() * 100.0
        )?;
        claims.extend(memory(context, &config, of, keys, &stream, &sampled, &mut report)?);
        if let Some(popularity_s) = of.popularity_s {
            claims.push(hot(context, &config, of, popularity_s, &stream, &sampled, &mut report)?);
        }
    }
    let path = context.out.join("hit-ratios.txt");
    std::fs::write(&path, &report).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims)
}

/// The largest of some differences, in points.
fn largest(points: &[f64]) -> f64 {
    points.iter().map(|points| points.abs()).fold(0.0, f64::max) * 100.0
}

fn memory(
    context: &Context,
    config: &Config,
    of: &OfTrace,
    keys: usize,
    stream: &Stream,
    sampled: &Sampled,
    report: &mut String,
) -> anyhow::Result<Vec<Claim>> {
    let mut distances = Shards::fixed_size(keys)?;
    for &(key, bytes, _) in &stream.requests {
        let key = &stream.keys[key as usize];
        distances.push(key_hash(key), bytes + key.len() as u64 + ENTRY_OVERHEAD_BYTES);
    }
    let curve = distances.curve()?;
    let mut off = HashMap::<&str, Vec<f64>>::new();
    for &share in &config.memory_shares {
        let bytes = stream.bytes * share;
        let s3 = stream.memory_hit_ratio(Eviction::S3Fifo, bytes);
        let lru = stream.memory_hit_ratio(Eviction::Lru, bytes);
        let of_s3 = sampled.shares(Eviction::S3Fifo, bytes, 0.0).memory;
        let of_lru = sampled.shares(Eviction::Lru, bytes, 0.0).memory;
        let (shards, che) = (curve.point(bytes)?.hit_ratio.value, stream.che(bytes)?);
        for (name, points) in [
            ("s3", of_s3 - s3),
            ("lru", of_lru - lru),
            ("shards", shards - lru),
            ("che", che - lru),
            ("che of s3", che - s3),
        ] {
            off.entry(name).or_default().push(points);
        }
        writeln!(
            report,
            "  memory {share}: S3-FIFO {s3:.4}, miniature {of_s3:.4}; LRU {lru:.4}, miniature {of_lru:.4}, \
             reuse distances {shards:.4}, Che {che:.4}"
        )?;
    }
    let (name, samples) = (&of.name, stream.requests.len() as u64);
    let claim = |what: &str, of: &str| {
        let sizes = config.memory_shares.len();
        let what = format!("{name}: {what}, the largest error of {sizes} sizes of memory");
        Claim::counted(what, largest(&off[of]), "points", samples)
    };
    context.say(format!("{name}: memory off by {:.2} points", largest(&off["s3"])));
    Ok(vec![
        claim("S3-FIFO by a miniature", "s3").with_goal(Goal::AtMost(0.5)),
        claim("LRU by a miniature", "lru"),
        claim("LRU by sampled reuse distances", "shards").with_goal(Goal::AtMost(0.5)),
        claim("LRU by Che's approximation", "che"),
        claim("S3-FIFO by Che's approximation of LRU", "che of s3"),
    ])
}

fn hot(
    context: &Context,
    config: &Config,
    of: &OfTrace,
    popularity_s: f64,
    stream: &Stream,
    sampled: &Sampled,
    report: &mut String,
) -> anyhow::Result<Claim> {
    let tiers = TierSettings {
        memory: (popularity_s * SECOND as f64) as Nanos,
        counters: config.counters,
        promote_bytes_per_s: (config.promote_mb_per_s * 1e6) as u64,
        choice: Choice::Wait,
        ..TierSettings::default()
    };
    let (memory_bytes, eviction) = (stream.bytes * config.memory_beside_hot, Eviction::S3Fifo);
    let (bulk, fast) = (
        (config.bulk_position_ms * 1e-3, config.bulk_mb_per_s * 1e6),
        (config.hot_position_ms * 1e-3, config.hot_mb_per_s * 1e6),
    );
    let last = stream.requests.last().map_or(0, |request| request.2).max(SECOND);
    let rate = stream.requests.len() as f64 / (last as f64 / SECOND as f64);
    // As many disks as make them half busy if they served all.
    let disks = (rate * bulk.0 / 0.5).ceil().max(2.0) as usize;
    let total: u64 = stream
        .recorded()
        .map(|request| record_bytes(request.key.len(), request.bytes, request.bytes))
        .sum();
    let disk = |hot: bool, (position_s, bytes_per_s): (f64, f64), bytes_max: u64| Disk {
        hot,
        servers: 1,
        position_s,
        bytes_per_s,
        bytes_max,
        segment_bytes: 0,
    };
    let mut off = Vec::new();
    for &share in &config.hot_shares {
        let hot_bytes = stream.bytes * share;
        let mut of_node = vec![disk(false, bulk, 2 * total / disks as u64 + (64 << 20)); disks];
        of_node.push(disk(true, fast, hot_bytes as u64));
        let memory = MemoryTier { bytes_max: memory_bytes as u64, eviction };
        let mut world = World::new(memory, of_node, tiers.clone(), stream.largest, config.seed);
        for &(key, bytes, at) in &stream.requests {
            world.read(at, &stream.keys[key as usize], bytes);
        }
        world.run_to(last + 3600 * SECOND);
        let hits = world.answered.iter().filter(|a| a.outcome == Outcome::HotDevice).count();
        let measured = hits as f64 / stream.requests.len() as f64;
        let (hot, tiers) = (fast, tiers.clone());
        let node = Node { eviction, memory_bytes, hot_bytes, tiers, bulk, hot };
        let predicted = sampled.node_shares(&node).hot;
        let best = sampled.shares(eviction, memory_bytes, hot_bytes).hot;
        off.push(predicted - measured);
        writeln!(
            report,
            "  hot {share} beside memory {}, {disks} disks: {measured:.4}, miniature {predicted:.4}, best placement {best:.4}",
            config.memory_beside_hot
        )?;
    }
    context.say(format!("{}: hot off by {:.2} points", of.name, largest(&off)));
    let what = format!(
        "{}: hot devices by a miniature, the largest error of {} sizes",
        of.name,
        config.hot_shares.len()
    );
    let claim = Claim::counted(what, largest(&off), "points", stream.requests.len() as u64);
    Ok(claim.with_goal(Goal::AtMost(1.0)))
}
