//! A sample of a stream of requests, and what memory and hot devices would serve of the stream.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::world::{self, Disk, MemoryTier, World};
use engine::node::TierSettings;
use engine::tier::{Eviction, Memory, WithKey, record_bytes};
use ground::Key;
use ground::window::{Nanos, Outcome, SECOND};

/// Classes of keys by their number of requests: powers of two.
const CLASSES: usize = 48;

/// A request of a recorded stream.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The object's bytes.
    pub bytes: u64,
    /// Time since the first request.
    pub at: Nanos,
}

/// A sample of a stream of requests: all requests for some of the keys.
pub struct Sampled {
    requests: Vec<Request>,
    /// Sampled part of the keys, and of the bytes of all objects.
    rate: f64,
    bytes_rate: f64,
    /// Requests of the whole stream, by class.
    totals: [f64; CLASSES],
    largest: u64,
}

struct Request {
    key: Key,
    bytes: u64,
    at: Nanos,
    class: usize,
}

/// Shares of the requests, which sum up to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shares {
    /// Answered from memory.
    pub memory: f64,
    /// Answered by hot devices.
    pub hot: f64,
    /// The rest: bulk devices, other nodes, the origin.
    pub rest: f64,
}

/// A node whose shares are predicted. Sizes and rates are those of the whole node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The memory tier's policy.
    pub eviction: Eviction,
    /// The memory tier's bytes, overhead included.
    pub memory_bytes: f64,
    /// Bytes of the hot devices together.
    pub hot_bytes: f64,
    /// The hot class.
    pub tiers: TierSettings,
    /// Mean time to position of bulk and of hot devices, seconds, and bytes per second after that.
    pub bulk: (f64, f64),
    /// The same of hot devices.
    pub hot: (f64, f64),
}

fn hash_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

/// The class of a key with so many requests, at least one.
fn class_of(requests: u64) -> usize {
    (requests.max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Sampled {
    /// Samples at most about `keys_max` keys (all if there are no more). Cost: two looks at the
    /// requests, and some 50 bytes for each key meanwhile.
    pub fn new<'a>(
        requests: impl Iterator<Item = Recorded<'a>> + Clone,
        keys_max: usize,
    ) -> Sampled {
        // By hash: requests, and bytes of the record.
        let mut objects: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut largest = 0;
        for Recorded { key, bytes, .. } in requests.clone() {
            let object = objects.entry(hash_of(key)).or_default();
            object.0 += 1;
            object.1 = object.1.max(record_bytes(key.len(), bytes, bytes));
            largest = largest.max(bytes);
        }
        let mut hashes: Vec<u64> = objects.keys().copied().collect();
        hashes.sort_unstable();
        let threshold = hashes.get(keys_max).copied();
        let is_sampled = |hash: u64| threshold.is_none_or(|first_left_out| hash < first_left_out);
        let (mut totals, mut all, mut of_sample) = ([0.0; CLASSES], 0u64, 0u64);
        for (&hash, &(count, bytes)) in &objects {
            totals[class_of(count)] += count as f64;
            all += bytes;
            of_sample += if is_sampled(hash) { bytes } else { 0 };
        }
        let mut keys: HashMap<&[u8], (Key, usize)> = HashMap::new();
        let sampled = requests.filter(|request| is_sampled(hash_of(request.key)));
        let requests = sampled.map(|Recorded { key, bytes, at }| {
            let (key, class) = keys.entry(key).or_insert_with(|| {
                let count = objects.get(&hash_of(key)).map_or(1, |object| object.0);
                (key.into(), class_of(count))
            });
            Request { key: key.clone(), bytes, at, class: *class }
        });
        let requests = requests.collect();
        let rate = hashes.len().min(keys_max) as f64 / hashes.len().max(1) as f64;
        let bytes_rate = of_sample as f64 / all.max(1) as f64;
        Sampled { requests, rate, bytes_rate, totals, largest }
    }

    /// Requests of the whole stream.
    pub fn requests(&self) -> usize {
        self.totals.iter().sum::<f64>() as usize
    }

    /// The sampled part of the keys.
    pub fn rate(&self) -> f64 {
        self.rate
    }

    /// The shares of a memory of `memory_bytes`, overhead included, and of hot devices of `hot_bytes`
    /// that hold the best placement of what memory misses, from an empty memory on. Cost: a
    /// microsecond or so for each sampled request.
    pub fn shares(&self, eviction: Eviction, memory_bytes: f64, hot_bytes: f64) -> Shares {
        let mut memory = Memory::new(eviction, (memory_bytes * self.bytes_rate) as u64);
        let mut answers = vec![Tier::Rest; self.requests.len()];
        // Requests that memory missed, the first first, and bytes of the record.
        let mut missed: HashMap<&Key, (Vec<usize>, u64)> = HashMap::new();
        for (index, Request { key, bytes, .. }) in self.requests.iter().enumerate() {
            if memory.get(key).is_some() {
                answers[index] = Tier::Memory;
                continue;
            }
            let record = record_bytes(key.len(), *bytes, *bytes);
            missed.entry(key).or_insert((Vec::new(), record)).0.push(index);
            memory.insert(WithKey { key: key.clone(), value: () }, *bytes);
        }
        for index in best(missed.into_values(), (hot_bytes * self.bytes_rate) as u64) {
            answers[index] = Tier::Hot;
        }
        self.weighed(&answers)
    }

    /// The shares of a node, empty at first, that decides as the engine does. Its devices have no
    /// queues: waits change which copy is read only where a hot device is a bottleneck. Cost: some
    /// microseconds for each sampled request.
    pub fn node_shares(&self, node: &Node) -> Shares {
        let scaled = |bytes: f64| (bytes * self.bytes_rate) as u64;
        let disk = |hot: bool, (position_s, bytes_per_s): (f64, f64), bytes_max: u64| Disk {
            hot,
            servers: 1 << 16,
            position_s,
            bytes_per_s,
            bytes_max,
            segment_bytes: 0,
        };
        let all: u64 = self.requests.iter().map(|request| request.bytes + 4096).sum();
        let mut disks = vec![disk(false, node.bulk, 2 * all + (64 << 20))];
        if node.hot_bytes > 0.0 {
            // As many segments as the whole device has: what is dropped at once is the same part of it. All
            // objects must fit, though.
            let whole = world::segment_bytes(node.hot_bytes as u64, self.largest) as f64;
            let least = self.largest_sampled() + 4096;
            let segment_bytes = scaled(whole).max(least);
            disks.push(Disk { segment_bytes, ..disk(true, node.hot, scaled(node.hot_bytes)) });
        }
        let mut tiers = node.tiers.clone();
        tiers.promote_bytes_per_s = scaled(tiers.promote_bytes_per_s as f64);
        let memory = MemoryTier { bytes_max: scaled(node.memory_bytes), eviction: node.eviction };
        let mut world = World::new(memory, disks, tiers, self.largest, 1);
        for Request { key, bytes, at, .. } in &self.requests {
            world.read(*at, key, *bytes);
        }
        let last = self.requests.last().map_or(0, |request| request.at);
        world.run_to(last + 3600 * SECOND);
        let mut answers = vec![Tier::Rest; self.requests.len()];
        for answered in &world.answered {
            if let Some(answer) = answers.get_mut(answered.request) {
                *answer = match answered.outcome {
                    Outcome::Memory => Tier::Memory,
                    Outcome::HotDevice => Tier::Hot,
                    _ => Tier::Rest,
                };
            }
        }
        self.weighed(&answers)
    }

    fn largest_sampled(&self) -> u64 {
        self.requests.iter().map(|request| request.bytes).max().unwrap_or(0)
    }

    /// The shares of the stream by what answered the sampled requests.
    fn weighed(&self, answers: &[Tier]) -> Shares {
        let mut classes = [[0.0; 3]; CLASSES];
        for (request, answer) in self.requests.iter().zip(answers) {
            classes[request.class][*answer as usize] += 1.0;
        }
        let (mut sums, mut before, mut total) = ([0.0; 3], [0.0, 0.0, 1.0], 0.0);
        for (counts, weight) in classes.iter().zip(self.totals) {
            let all: f64 = counts.iter().sum();
            if all > 0.0 {
                before = counts.map(|count| count / all);
            }
            for (sum, share) in sums.iter_mut().zip(before) {
                *sum += share * weight;
            }
            total += weight;
        }
        let [memory, hot, rest] = sums.map(|sum| sum / f64::max(total, 1.0));
        Shares { memory, hot, rest }
    }
}

/// What answered a request.
#[derive(Clone, Copy)]
enum Tier {
    Memory,
    Hot,
    Rest,
}

/// The requests that the best placement of `bytes` bytes serves: those of the objects with the most
/// requests for their bytes. The first request of each comes before its copy.
fn best(objects: impl Iterator<Item = (Vec<usize>, u64)>, bytes: u64) -> Vec<usize> {
    let mut objects: Vec<(Vec<usize>, u64)> = objects.filter(|object| object.0.len() > 1).collect();
    let worth = |object: &(Vec<usize>, u64), other_bytes: u64| {
        (object.0.len() as u128 - 1) * u128::from(other_bytes)
    };
    // Ties, which a map has in any order, by the first request.
    objects.sort_by(|a, b| worth(b, a.1).cmp(&worth(a, b.1)).then_with(|| a.0[0].cmp(&b.0[0])));
    let (mut left, mut served) = (bytes, Vec::new());
    for (requests, size) in objects {
        if size <= left {
            left -= size;
            served.extend(requests.into_iter().skip(1));
        }
    }
    served
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use record::trace::Trace;

    use super::*;

    /// The hit ratio of the engine's memory on all requests.
    fn engine_hit_ratio(trace: &Trace, eviction: Eviction, bytes: u64) -> f64 {
        let mut memory = Memory::new(eviction, bytes);
        let keys: Vec<Key> = (0..trace.keys() as u32).map(|key| trace.key(key).into()).collect();
        let mut hits = 0;
        for row in &trace.rows {
            let key = &keys[row.key as usize];
            if memory.get(key).is_some() {
                hits += 1;
            } else {
                let value = WithKey { key: key.clone(), value: () };
                memory.insert(value, row.size.unwrap_or(1000).into());
            }
        }
        f64::from(hits) / trace.rows.len() as f64
    }

    fn recorded(trace: &Trace) -> impl Iterator<Item = Recorded<'_>> + Clone {
        trace.rows.iter().zip(0..).map(|(row, index)| Recorded {
            key: trace.key(row.key),
            bytes: row.size.unwrap_or(1000).into(),
            at: row.time.unwrap_or(index * SECOND / 1000),
        })
    }

    /// A quarter of the keys of a recorded stream, memory of three sizes: within a point of what the
    /// whole stream measures. Other streams, sizes and the hot class: `experiments/hit-ratios`.
    #[test]
    fn a_sample_predicts_the_hit_ratio_of_recorded_requests() {
        let name = "../../../shared/data/traces/cloudphysics_block_io.csv.zst";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        if !path.exists() {
            assert!(std::env::var_os("CI").is_none(), "left out in CI: {}", path.display());
            return;
        }
        let trace = Trace::open(&path, None, true).unwrap();
        let sampled = Sampled::new(recorded(&trace), trace.keys() / 4);
        assert!((sampled.rate() - 0.25).abs() < 0.001, "{}", sampled.rate());
        let mut seen = vec![false; trace.keys()];
        let mut all = 0u64;
        for row in &trace.rows {
            if !std::mem::replace(&mut seen[row.key as usize], true) {
                all += u64::from(row.size.unwrap_or(1000)) + 72;
            }
        }
        for share in [0.03, 0.1, 0.4] {
            let bytes = all as f64 * share;
            let predicted = sampled.shares(Eviction::S3Fifo, bytes, 0.0).memory;
            let truth = engine_hit_ratio(&trace, Eviction::S3Fifo, bytes as u64);
            println!("{share} of the bytes: {predicted:.4} predicted, {truth:.4} measured");
            assert!((predicted - truth).abs() <= 0.01, "{share}: {predicted}, {truth}");
        }
    }

    /// Of all keys, the miniature is the node itself.
    #[test]
    fn a_node_of_all_keys_is_the_node() {
        let keys: Vec<Vec<u8>> = (0..400u64).map(|key| key.to_le_bytes().to_vec()).collect();
        // A few keys have most of the requests.
        let key = |i: u64| ((i * i * 7919 % 1009) * (i * 104_729 % 401) / 1009) as usize % 400;
        let requests = (0..20_000u64).map(|i| Recorded {
            key: &keys[key(i)],
            bytes: 1000 + i % 7,
            at: i * SECOND / 100,
        });
        let node = Node {
            eviction: Eviction::S3Fifo,
            memory_bytes: 20_000.0,
            hot_bytes: 150_000.0,
            tiers: TierSettings { memory: 100 * SECOND, ..TierSettings::default() },
            bulk: (0.008, 1e8),
            hot: (0.0005, 1e9),
        };
        let all = Sampled::new(requests.clone(), 1000);
        let shares = all.node_shares(&node);
        assert!((shares.memory + shares.hot + shares.rest - 1.0).abs() < 1e-9);
        assert!(shares.memory > 0.02 && shares.hot > 0.2, "{shares:?}");
        let best = all.shares(Eviction::S3Fifo, 20_000.0, 150_000.0);
        assert!((best.memory - shares.memory).abs() < 0.01, "{best:?}, {shares:?}");
        assert!(shares.hot <= best.hot + 0.01, "{best:?}, {shares:?}");
        assert_eq!(all.node_shares(&Node { hot_bytes: 0.0, ..node.clone() }).hot, 0.0);
        let half = Sampled::new(requests, 200);
        assert!(half.rate() >= 0.5, "{}", half.rate());
        let shares_of_half = half.node_shares(&node);
        assert!((shares_of_half.hot - shares.hot).abs() < 0.1, "{shares_of_half:?}, {shares:?}");
    }

    #[test]
    fn hot_devices_serve_what_memory_misses() {
        // Two objects read in turn, of which memory holds neither for long enough.
        let requests = (0..200).map(|i| Recorded {
            key: if i % 2 == 0 { b"a" } else { b"b" },
            bytes: 1000,
            at: i * SECOND,
        });
        let sampled = Sampled::new(requests, 100);
        let none = sampled.shares(Eviction::Lru, 1300.0, 0.0);
        assert_eq!(none, Shares { memory: 0.0, hot: 0.0, rest: 1.0 });
        let one = sampled.shares(Eviction::Lru, 1300.0, 1100.0);
        assert_eq!((one.hot, one.rest), (0.495, 0.505));
        let both = sampled.shares(Eviction::Lru, 4000.0, 0.0);
        assert_eq!(both.memory, 0.99);
    }
}
