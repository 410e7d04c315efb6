//! `experiments/lastfm`: a hot class that follows popularity, in virtual time with the engine that
//! serves.
//!
//! Last.fm put its popular tracks on a few solid-state devices and chose devices by the wait that a
//! request would meet. Here a node with disks and one hot device serves a Zipf catalogue and
//! recorded requests; the share served hot is compared with the best static placement, which knows
//! the popularity beforehand, and waits are compared with other ways to choose a device.

mod bound;
mod online;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use engine::node::{Choice, TierSettings};
use engine::tier::{Eviction, record_bytes};
use ground::Key;
use ground::window::{Nanos, Outcome, SECOND};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution as _, LogNormal};
use record::trace::Trace;
use report::tiers::world::{AnsweredRead, Disk, MemoryTier, World};
use serde::Deserialize;

use super::claims::{Claim, Goal, Peer};
use super::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    bulk_devices: usize,
    bulk_position_ms: f64,
    bulk_mb_per_s: f64,
    hot_position_ms: f64,
    hot_mb_per_s: f64,
    hot_share: f64,
    popularity_s: f64,
    counters: usize,
    promote_mb_per_s: f64,
    /// Other than the node's own: to find what they cost.
    fill: Option<f64>,
    hysteresis: Option<f64>,
    objects: usize,
    mean_kb: f64,
    size_sigma: f64,
    zipf: f64,
    reads_per_s: f64,
    long_s: f64,
    short_s: f64,
    counted_s: f64,
    choice_hot_position_ms: f64,
    choice_reads_per_s: Vec<f64>,
    trace: Vec<Recorded>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Recorded {
    name: String,
}

/// Last.fm: over half of the streams from under a tenth of the bytes.
const PUBLISHED_SHARE: f64 = 0.5;
/// So that every read reaches a device.
const NO_MEMORY: MemoryTier = MemoryTier { bytes_max: 0, eviction: Eviction::Lru };
/// Batches of which a share's interval is made.
const BATCHES: usize = 10;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let mut report = String::new();
    let mut claims = zipf(context, &config, &mut report)?;
    claims.extend(choices(context, &config, &mut report)?);
    for recorded in &config.trace {
        let path = context.folder.join("../../../shared/data/traces");
        let path = path.join(format!("{}.csv.zst", recorded.name));
        if path.exists() {
            claims.extend(traced(context, &config, recorded, &path, &mut report)?);
        } else {
            context.say(format!("{} is not there", path.display()));
        }
    }
    let path = context.out.join("lastfm.txt");
    std::fs::write(&path, &report).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims)
}

/// A catalogue: the key, bytes and cumulated weight of each object, by rank.
struct Catalogue {
    keys: Vec<Key>,
    bytes: Vec<u64>,
    sums: Vec<f64>,
}

impl Catalogue {
    fn new(config: &Config) -> anyhow::Result<Catalogue> {
        let mut random = SmallRng::seed_from_u64(config.seed);
        let mean = (config.mean_kb * 1e3).ln() - config.size_sigma.powi(2) / 2.0;
        let law = LogNormal::new(mean, config.size_sigma)?;
        let size = |_| law.sample(&mut random).clamp(1e3, 8e6) as u64;
        let bytes = (0..config.objects).map(size).collect();
        let mut sums = Vec::with_capacity(config.objects);
        let mut sum = 0.0;
        for rank in 1..=config.objects {
            sum += (rank as f64).powf(-config.zipf);
            sums.push(sum);
        }
        let keys = (0..config.objects).map(|i| format!("track/{i}").into_bytes().into()).collect();
        Ok(Catalogue { keys, bytes, sums })
    }

    fn record_bytes(&self, object: usize) -> u64 {
        record_bytes(self.keys[object].len(), self.bytes[object], self.bytes[object])
    }

    fn total_bytes(&self) -> u64 {
        (0..self.keys.len()).map(|object| self.record_bytes(object)).sum()
    }

    /// The share of reads that the best placement in `budget` bytes serves, which knows all rates.
    fn best(&self, budget: u64) -> f64 {
        let total = self.sums.last().copied().unwrap_or(1.0);
        let weight = |i: usize| self.sums[i] - if i == 0 { 0.0 } else { self.sums[i - 1] };
        best((0..self.keys.len()).map(|i| (weight(i) / total, self.record_bytes(i))), budget)
    }
}

/// The sum of the weights that the best placement in `budget` bytes holds.
fn best(objects: impl Iterator<Item = (f64, u64)>, budget: u64) -> f64 {
    let mut sorted: Vec<(f64, u64)> = objects.collect();
    sorted.sort_by(|a, b| (b.0 / b.1 as f64).total_cmp(&(a.0 / a.1 as f64)));
    let (mut bytes, mut sum) = (0, 0.0);
    for (weight, size) in sorted {
        if bytes + size <= budget {
            bytes += size;
            sum += weight;
        }
    }
    sum
}

fn disks(config: &Config, bulk: usize, bytes: u64, hot_bytes: u64, hot_ms: f64) -> Vec<Disk> {
    let slow = Disk {
        hot: false,
        servers: 1,
        position_s: config.bulk_position_ms * 1e-3,
        bytes_per_s: config.bulk_mb_per_s * 1e6,
        // Room for all objects twice, so that nothing is dropped.
        bytes_max: 2 * bytes / bulk as u64 + (64 << 20),
        segment_bytes: 0,
    };
    let hot = Disk {
        hot: true,
        servers: 1,
        position_s: hot_ms * 1e-3,
        bytes_per_s: config.hot_mb_per_s * 1e6,
        bytes_max: hot_bytes,
        segment_bytes: 0,
    };
    let mut disks = vec![slow; bulk];
    disks.push(hot);
    disks
}

fn settings(config: &Config, choice: Choice) -> TierSettings {
    let mut settings = TierSettings {
        memory: (config.popularity_s * SECOND as f64) as Nanos,
        counters: config.counters,
        promote_bytes_per_s: (config.promote_mb_per_s * 1e6) as u64,
        choice,
        ..TierSettings::default()
    };
    settings.fill = config.fill.unwrap_or(settings.fill);
    settings.hysteresis = config.hysteresis.unwrap_or(settings.hysteresis);
    settings
}

/// Reads at a constant rate.
#[derive(Clone, Copy)]
struct ConstantLoad {
    /// Reads/s.
    rate: f64,
    seconds: f64,
    /// How long a hot device takes to find a place, milliseconds.
    hot_ms: f64,
}

/// Serves a catalogue for a time after each object was read once; `shift` rotates the ranks at half
/// of the time.
fn serve(
    config: &Config,
    catalogue: &Catalogue,
    load: ConstantLoad,
    choice: Choice,
    shift: bool,
) -> (World, Vec<usize>) {
    let ConstantLoad { rate, seconds, hot_ms } = load;
    let hot_bytes = (catalogue.total_bytes() as f64 * config.hot_share) as u64;
    let disks = disks(config, config.bulk_devices, catalogue.total_bytes(), hot_bytes, hot_ms);
    let settings = settings(config, choice);
    let mut world = World::new(NO_MEMORY, disks, settings, 0, config.seed);
    for (key, &bytes) in catalogue.keys.iter().zip(&catalogue.bytes) {
        world.read(0, key, bytes);
    }
    world.answered.clear();
    let mut asked = Vec::new();
    let mut random = SmallRng::seed_from_u64(config.seed ^ 1);
    let total = catalogue.sums.last().copied().unwrap_or(1.0);
    let (mut now, end) = (0.0, seconds);
    while now < end {
        let drawn: f64 = random.random_range(f64::MIN_POSITIVE..1.0);
        now += -drawn.ln() / rate;
        let drawn = random.random_range(0.0..total);
        let rank =
            catalogue.sums.partition_point(|sum| *sum <= drawn).min(catalogue.keys.len() - 1);
        let moved = if shift && now > end / 2.0 { catalogue.keys.len() / 2 } else { 0 };
        let object = (rank + moved) % catalogue.keys.len();
        let at = (now * SECOND as f64) as Nanos;
        world.read(at, &catalogue.keys[object], catalogue.bytes[object]);
        asked.push(object);
    }
    world.run_to((end * SECOND as f64) as Nanos + 3600 * SECOND);
    world.answered.sort_by_key(|answered| answered.request);
    (world, asked)
}

fn share_hot(answered: &[AnsweredRead]) -> f64 {
    let hot = answered.iter().filter(|a| a.outcome == Outcome::HotDevice).count();
    hot as f64 / answered.len().max(1) as f64
}

fn since(answered: &[AnsweredRead], from_s: f64) -> &[AnsweredRead] {
    let from = (from_s * SECOND as f64) as Nanos;
    &answered[answered.partition_point(|a| a.sent < from)..]
}

/// The `q`-quantile of the responses, milliseconds.
fn quantile_ms(answered: &[AnsweredRead], q: f64) -> f64 {
    let mut responses: Vec<Nanos> = answered.iter().map(|a| a.response).collect();
    responses.sort_unstable();
    let place = ((responses.len() as f64 * q) as usize).min(responses.len().saturating_sub(1));
    responses.get(place).map_or(f64::NAN, |&ns| ns as f64 / 1e6)
}

fn batches(answered: &[AnsweredRead], of: impl Fn(&[AnsweredRead]) -> f64) -> Vec<f64> {
    let size = (answered.len() / BATCHES).max(1);
    answered.chunks_exact(size).map(of).collect()
}

fn zipf(context: &Context, config: &Config, report: &mut String) -> anyhow::Result<Vec<Claim>> {
    let catalogue = Catalogue::new(config)?;
    let seconds = if context.short { config.short_s } else { config.long_s };
    let budget = (catalogue.total_bytes() as f64 * config.hot_share) as u64;
    let best = catalogue.best(budget);
    let load = ConstantLoad { rate: config.reads_per_s, seconds, hot_ms: config.hot_position_ms };
    let (mut world, asked) = serve(config, &catalogue, load, Choice::Wait, false);
    let last = since(&world.answered, seconds - config.counted_s).to_vec();
    let shares = batches(&last, share_hot);
    let told = world.tiers();
    let hot = told.hot.context("there is a hot device")?;
    // Of these requests, with any objects there at the start.
    let counted = asked.iter().skip(asked.len() - last.len());
    let requests = counted.map(|&object| (object, catalogue.record_bytes(object)));
    let least = bound::misses_at_least(requests, budget, true) as f64 / last.len() as f64;
    let over_bound: Vec<f64> = shares.iter().map(|share| (1.0 - share) / least).collect();
    let points: Vec<f64> = shares.iter().map(|share| (best - share) * 100.0).collect();
    let all: Vec<f64> = shares.iter().map(|share| share * 100.0).collect();
    let predicted = hot.share_at.iter().find(|at| at.0 == 1.0).map_or(f64::NAN, |at| at.1);
    let written = told.devices.last().map_or(0, |device| device.written_bytes);
    context.say(format!("Zipf: {:.1} % hot, {:.1} % by the best placement", all[0], best * 100.0));
    writeln!(
        report,
        "Zipf {}: {} objects, {} bytes, {budget} hot; best static share {best:.4}, estimated by the node {predicted:.4}, held {:?}, {} s remembered; \
         moves {:?}; {written} bytes written to the hot device; saved {:.1} s; PFOO misses at least {least:.4}",
        config.zipf,
        config.objects,
        catalogue.total_bytes(),
        hot.held,
        hot.remembered_s,
        hot.moves,
        hot.bought.saved_s
    )?;
    let mut claims = vec![
        share_claim(config, &all, best),
        Claim::of_rounds(
            "Zipf: points below the best static placement of the same bytes",
            &points,
            "points",
        )
        .with_goal(Goal::AtMost(2.0)),
        Claim::of_rounds("Zipf: misses / PFOO's lower bound of misses", &over_bound, "")
            .with_goal(Goal::AtMost(1.2)),
        Claim::counted(
            "Zipf: |share that the node estimates for its hot bytes − best static|",
            (predicted - best).abs() * 100.0,
            "points",
            1,
        ),
        Claim::counted(
            "Zipf: bytes written to the hot device for each byte that it holds",
            written as f64 / budget as f64,
            "",
            1,
        ),
    ];
    claims.push(adaptation(config, &catalogue, load, report)?);
    Ok(claims)
}

/// The share of reads served hot, beside the published one and that of the best placement.
fn share_claim(config: &Config, percents: &[f64], best: f64) -> Claim {
    Claim {
        published: Some(PUBLISHED_SHARE * 100.0),
        peer: Some(Peer { name: "best static placement".to_owned(), value: best * 100.0 }),
        ..Claim::of_rounds(
            format!("Zipf: share of reads served hot, {} % of the bytes", config.hot_share * 100.0),
            percents,
            "%",
        )
    }
    .with_goal(Goal::AtLeast(PUBLISHED_SHARE * 100.0))
}

/// How long it takes until what became popular at once, at half of the time, is served hot.
fn adaptation(
    config: &Config,
    catalogue: &Catalogue,
    load: ConstantLoad,
    report: &mut String,
) -> anyhow::Result<Claim> {
    let (world, _) = serve(config, catalogue, load, Choice::Wait, true);
    let half = load.seconds / 2.0;
    let window_s = 20.0;
    let windows: Vec<(f64, f64)> = (0..(half / window_s) as usize)
        .map(|i| {
            let from = half + i as f64 * window_s;
            let part = since(&world.answered, from);
            let end = part.partition_point(|a| a.sent < ((from + window_s) * 1e9) as Nanos);
            (from - half, share_hot(&part[..end]))
        })
        .collect();
    let before = {
        let part = since(&world.answered, half - 300.0);
        share_hot(&part[..part.partition_point(|a| a.sent < (half * 1e9) as Nanos)])
    };
    let adapted = windows.iter().find(|(_, share)| *share >= 0.9 * before);
    writeln!(
        report,
        "after all popular objects changed at once ({before:.3} before): {windows:.3?}"
    )?;
    Ok(Claim::counted(
        format!(
            "Zipf: seconds until 90 % of the share is reached again after a change (popularity_s {})",
            config.popularity_s
        ),
        adapted.map_or(f64::NAN, |(at, _)| *at + window_s),
        "s",
        1,
    ))
}

fn choices(context: &Context, config: &Config, report: &mut String) -> anyhow::Result<Vec<Claim>> {
    let catalogue = Catalogue::new(config)?;
    let seconds = config.short_s / 2.0;
    let mut claims = Vec::new();
    for &rate in &config.choice_reads_per_s {
        let mut p99 = Vec::new();
        for choice in [Choice::Wait, Choice::Utilisation, Choice::RoundRobin] {
            let load = ConstantLoad { rate, seconds, hot_ms: config.choice_hot_position_ms };
            let (world, _) = serve(config, &catalogue, load, choice, false);
            let last = since(&world.answered, seconds - config.counted_s);
            let values = batches(last, |part| quantile_ms(part, 0.99));
            context.say(format!("{rate}/s, {choice:?}: p99 {:.1} ms", quantile_ms(last, 0.99)));
            writeln!(
                report,
                "{rate}/s, {choice:?}: mean {:.2} ms, p50 {:.2}, p99 {:.2}, hot {:.3}",
                last.iter().map(|a| a.response as f64 / 1e6).sum::<f64>() / last.len() as f64,
                quantile_ms(last, 0.5),
                quantile_ms(last, 0.99),
                share_hot(last)
            )?;
            p99.push(values);
        }
        for (name, other) in [("utilisation", &p99[1]), ("round robin", &p99[2])] {
            let ratios: Vec<f64> =
                other.iter().zip(&p99[0]).map(|(other, own)| other / own).collect();
            claims.push(
                Claim::of_rounds(
                    format!("{rate}/s: p99 by {name} / p99 by expected wait"),
                    &ratios,
                    "",
                )
                .with_goal(Goal::AtLeast(1.0)),
            );
        }
    }
    Ok(claims)
}

/// Recorded requests: every key's first request goes to the origin.
fn traced(
    context: &Context,
    config: &Config,
    recorded: &Recorded,
    path: &Path,
    report: &mut String,
) -> anyhow::Result<Vec<Claim>> {
    let trace = Trace::open(path, None, true)?;
    let times = trace.times_spread();
    let objects = objects_of(&trace);
    let half = trace.rows.len() / 2;
    let last = trace.rows.iter().filter_map(|row| row.time).max().unwrap_or(SECOND).max(SECOND);
    let total: u64 = objects.iter().map(|object| object.record).sum();
    let budget = (total as f64 * config.hot_share) as u64;
    // The first request of a key cannot be served hot, whatever the placement.
    let served = best(objects.iter().map(|o| (o.again, o.record)), budget);
    let served_late = best(objects.iter().map(|o| (o.again_late, o.record)), budget);
    let requests = trace.rows.len() as f64;
    let seconds = last as f64 / SECOND as f64;
    let bulk = (requests / seconds * config.bulk_position_ms * 1e-3 / 0.5).ceil().max(2.0) as usize;
    let disks = disks(config, bulk, total, budget, config.hot_position_ms / 5.0);
    let settings = settings(config, Choice::Wait);
    let mut world = World::new(NO_MEMORY, disks, settings, 0, config.seed);
    let keys: Vec<Key> = (0..trace.keys() as u32).map(|key| trace.key(key).into()).collect();
    for (row, at) in trace.rows.iter().zip(times) {
        world.read(at, &keys[row.key as usize], objects[row.key as usize].bytes);
    }
    world.run_to(last + 3600 * SECOND);
    world.answered.sort_by_key(|answered| answered.request);
    let (share, share_late) = (share_hot(&world.answered), share_hot(&world.answered[half..]));
    let told = world.tiers();
    let written = told.devices.last().map_or(0, |device| device.written_bytes);
    let written = written as f64 / budget.max(1) as f64;
    let hot = told.hot.map(|hot| (hot.moves, hot.remembered_s));
    let (best, best_late) = (served / requests, served_late / (requests - half as f64));
    let stream = || trace.rows.iter().map(|row| (row.key, objects[row.key as usize].record));
    let least = bound::misses_at_least(stream(), budget, false) as f64 / requests;
    let online = [
        ("LRU", online::share(stream(), &mut online::Lru::new(budget))),
        ("S3-FIFO", online::share(stream(), &mut online::S3Fifo::new(budget))),
        ("W-TinyLFU", online::share(stream(), &mut online::TinyLfu::new(budget))),
    ];
    let most = online.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(online[0]);
    context.say(format!("{}: {share:.4} hot, {best:.4} by the best placement", recorded.name));
    writeln!(
        report,
        "{}: share {share:.4}, best static {best:.4}; of the second half {share_late:.4}, best static {best_late:.4}; \
         {online:.4?}; PFOO misses at least {least:.4}; {bulk} disks, {hot:?}",
        recorded.name,
    )?;
    let placed = TracedShares { share, share_late, best, best_late, least, online: most, written };
    Ok(placed.claims(&recorded.name, trace.rows.len() as u64))
}

/// Shares of a trace's requests.
struct TracedShares<'a> {
    /// Served hot: of all, and of the second half.
    share: f64,
    share_late: f64,
    /// The same of the best static placement, which knows all requests.
    best: f64,
    best_late: f64,
    /// Misses at least, by PFOO.
    least: f64,
    /// The best policy of a cache of the same bytes, and its share.
    online: (&'a str, f64),
    /// Bytes written to the hot device for each byte that it holds.
    written: f64,
}

impl TracedShares<'_> {
    fn claims(&self, name: &str, samples: u64) -> Vec<Claim> {
        let points = (self.best - self.share) * 100.0;
        let claim = |what: &str, value: f64, unit: &str| {
            Claim::counted(format!("{name}: {what}"), value, unit, samples)
        };
        let beside =
            |name: &str, value: f64| Some(Peer { name: name.to_owned(), value: value * 100.0 });
        let placement = "best static placement";
        vec![
            Claim {
                peer: beside(placement, self.best),
                ..claim("share of requests served hot", self.share * 100.0, "%")
            },
            claim(
                "points below the best static placement, which knows all requests",
                points,
                "points",
            )
            .with_goal(Goal::AtMost(2.0)),
            claim("misses / PFOO's lower bound of misses", (1.0 - self.share) / self.least, "")
                .with_goal(Goal::AtMost(1.2)),
            Claim {
                peer: beside(placement, self.best_late),
                ..claim("second half: share of requests served hot", self.share_late * 100.0, "%")
            },
            Claim {
                peer: beside(self.online.0, self.online.1),
                ..claim(
                    "points below the best of LRU, S3-FIFO and W-TinyLFU in the same bytes",
                    (self.online.1 - self.share) * 100.0,
                    "points",
                )
            },
            claim("bytes written to the hot device for each byte that it holds", self.written, ""),
        ]
    }
}

/// An object of a trace.
#[derive(Clone, Copy, Default)]
struct Object {
    /// Requests after the first: of all, and of the second half.
    again: f64,
    again_late: f64,
    bytes: u64,
    record: u64,
}

/// The objects of a trace by their keys' numbers.
fn objects_of(trace: &Trace) -> Vec<Object> {
    let mut objects = vec![Object::default(); trace.keys()];
    let half = trace.rows.len() / 2;
    for (index, row) in trace.rows.iter().enumerate() {
        let object = &mut objects[row.key as usize];
        if object.record == 0 {
            object.bytes = u64::from(row.size.unwrap_or(1000)).max(1);
            object.record = record_bytes(trace.key(row.key).len(), object.bytes, object.bytes);
            continue;
        }
        object.again += 1.0;
        object.again_late += if index >= half { 1.0 } else { 0.0 };
    }
    objects
}
