//! Which keys wait in one line, where the key of a request decides in which of several separate lines it waits.
//!
//! A request that overtakes another (it came later and left earlier) is not in the same line. So lines are the
//! classes of keys of which none overtakes another of its class, and of which those that could have overtaken each
//! other and did not are together: a pair of keys has the log likelihood of "same" against "different" by its
//! requests that were inside at once, and a local search moves keys between lines as long as the sum within lines
//! grows (a partition of a signed graph: N. Bansal, A. Blum, S. Chawla, "Correlation clustering", Machine Learning
//! 56, 2004). Partitions are found in the first half of each step, and kept if in the second half requests of one
//! line overtake each other far less often than those of any two keys do: what is fitted to chance does not. How
//! many lines there are is left to the test of independence, because too many never overtake either.
//!
//! Where there are few keys, each may be a line itself: so it is with the server that a proxy chose.
//!
//! Limitations: a key must come a few times; a line is one server that takes requests in about the order in which
//! they come. Cost: O(requests × inside at once), and some ten passes over pairs of keys for each number of lines.

use rand::prelude::SliceRandom;
use rand::{RngExt, SeedableRng};
use std::collections::HashMap;

use rand::rngs::StdRng;
use statrs::distribution::{ChiSquared, ContinuousCDF};

use super::line::Line;
use super::partition::Partition;

/// The most lines.
const LINES_MAX: u32 = 32;
/// The most keys each of which may be a line.
const NAMED_MAX: usize = 64;
/// Requests that are looked at, and those inside that each is compared with.
const REQUESTS: usize = 60_000;
const INSIDE: usize = 32;
/// A key that comes less often is not known, and the most requests of such keys.
const OFTEN: usize = 8;
const SELDOM: f64 = 0.1;
/// The fewest overtakings, and the smallest part of the pairs inside at once.
const OVERTAKINGS: f64 = 50.0;
const OVERTAKING: f64 = 0.03;
/// How much less often requests of one line overtake each other.
const CONSISTENT: f64 = 0.15;
/// The probability that requests of one line do: servers read new connections in an order of their own.
const DISORDER: f64 = 0.01;
/// What comes first by less than this part of the median response is no overtaking.
const TOGETHER: f64 = 0.02;
/// Starts and rounds of a search.
const STARTS: usize = 4;
const ROUNDS: usize = 40;
/// Lines beyond the fewest that are consistent, which are left to the test.
const MORE: u32 = 2;
/// Lines have equal shares if chance makes them differ as much with this probability.
const EQUAL: f64 = 0.01;

/// Pairs of requests that were inside at once, and how many of them overtook.
#[derive(Clone, Copy, Debug, Default)]
struct Pairs {
    all: f64,
    overtook: f64,
}

impl Pairs {
    fn add(&mut self, other: Pairs) {
        (self.all, self.overtook) = (self.all + other.all, self.overtook + other.overtook);
    }

    fn rate(self) -> f64 {
        self.overtook / self.all.max(1.0)
    }
}

/// Pairs of keys, by the smaller number first.
type ByKeys = HashMap<(u32, u32), Pairs>;

/// Keys, by numbers, and what is known of their pairs from the first halves of steps and from the second.
struct KeyPairs {
    keys: Vec<u32>,
    first: ByKeys,
    second: ByKeys,
}

/// The partitions that the test of independence may choose from: none unless keys are known, come often enough, and
/// tell who overtakes whom.
pub(super) fn partitions(lines: &[Line]) -> Vec<Partition> {
    let Some(seen) = KeyPairs::from_lines(lines) else { return Vec::new() };
    let different = different(&seen.first);
    if different.overtook < OVERTAKINGS || different.rate() < OVERTAKING {
        return Vec::new();
    }
    let mut found = Vec::new();
    if seen.keys.len() <= NAMED_MAX {
        let each: Vec<u32> = (0..seen.keys.len() as u32).collect();
        found.extend(seen.consistent(&each).then(|| seen.partition(each.len() as u32, &each)));
    }
    let mut fewest = None;
    for lines in 2..=LINES_MAX.min(seen.keys.len() as u32 - 1) {
        if fewest.is_some_and(|fewest| lines > fewest + MORE) {
            break;
        }
        let places = search(&seen, lines, different.rate());
        if (0..lines).any(|line| !places.contains(&line)) {
            // No more lines than these are told apart.
            break;
        }
        if seen.consistent(&places) {
            fewest.get_or_insert(lines);
            found.push(seen.partition(lines, &places));
        }
    }
    found
}

/// Pairs of different keys.
fn different(pairs: &ByKeys) -> Pairs {
    let mut all = Pairs::default();
    pairs.iter().filter(|(keys, _)| keys.0 != keys.1).for_each(|(_, more)| all.add(*more));
    all
}

impl KeyPairs {
    fn from_lines(lines: &[Line]) -> Option<KeyPairs> {
        let each = REQUESTS / lines.len().max(1);
        let mut counts: HashMap<u32, usize> = HashMap::new();
        let mut responses = Vec::new();
        for line in lines {
            for (i, key) in line.keys.iter().take(each).enumerate() {
                *counts.entry(*key).or_insert(0) += 1;
                responses.push(line.departures[i] - line.arrivals[i]);
            }
        }
        let often: usize =
            counts.iter().filter(|(k, n)| **k > 0 && **n >= OFTEN).map(|k| *k.1).sum();
        if (often as f64) < (1.0 - SELDOM) * responses.len() as f64 || counts.len() < 2 {
            return None;
        }
        let middle = responses.len() / 2;
        let median = *responses.select_nth_unstable_by(middle, f64::total_cmp).1;
        let mut keys: Vec<u32> = counts.into_keys().filter(|key| *key > 0).collect();
        keys.sort_unstable();
        let number: HashMap<u32, u32> = keys.iter().zip(0..).map(|(k, i)| (*k, i)).collect();
        let mut seen = KeyPairs { keys, first: ByKeys::new(), second: ByKeys::new() };
        for line in lines {
            let n = line.arrivals.len().min(each);
            let mut inside: Vec<usize> = Vec::new();
            for i in 0..n {
                inside.retain(|j| line.departures[*j] > line.arrivals[i]);
                let half = if 2 * i < n { &mut seen.first } else { &mut seen.second };
                for j in inside.iter().rev().take(INSIDE) {
                    let (Some(a), Some(b)) =
                        (number.get(&line.keys[i]), number.get(&line.keys[*j]))
                    else {
                        continue;
                    };
                    let apart = (TOGETHER * median).max(line.ticks.coarsest());
                    let earlier = line.departures[*j] - line.departures[i] > apart;
                    let pair = Pairs { all: 1.0, overtook: f64::from(u8::from(earlier)) };
                    half.entry((*a.min(b), *a.max(b))).or_default().add(pair);
                }
                inside.push(i);
            }
        }
        (seen.keys.len() >= 2).then_some(seen)
    }

    fn partition(&self, lines: u32, places: &[u32]) -> Partition {
        Partition { lines, of: self.keys.iter().copied().zip(places.iter().copied()).collect() }
    }

    /// Whether requests of one line hardly overtake each other in the second halves.
    fn consistent(&self, places: &[u32]) -> bool {
        let mut own = Pairs::default();
        for ((a, b), pairs) in &self.second {
            if places[*a as usize] == places[*b as usize] {
                own.add(*pairs);
            }
        }
        own.all >= OVERTAKINGS && own.rate() < CONSISTENT * different(&self.second).rate()
    }
}

/// The line of each key, by number.
fn search(seen: &KeyPairs, lines: u32, overtaking: f64) -> Vec<u32> {
    let n = seen.keys.len();
    // Of two keys at random one in so many is in the same line.
    let by_different = (overtaking * f64::from(lines) / f64::from(lines - 1)).min(0.9);
    let overtook = (DISORDER / by_different).ln();
    let kept = ((1.0 - DISORDER) / (1.0 - by_different)).ln();
    let mut near: Vec<Vec<(u32, f64)>> = vec![Vec::new(); n];
    let mut pairs: Vec<_> = seen.first.iter().filter(|(keys, _)| keys.0 != keys.1).collect();
    pairs.sort_by_key(|pair| *pair.0);
    for ((a, b), pairs) in pairs {
        let same = pairs.overtook * overtook + (pairs.all - pairs.overtook) * kept;
        near[*a as usize].push((*b, same));
        near[*b as usize].push((*a, same));
    }
    let mut random = StdRng::seed_from_u64(u64::from(lines));
    let mut order: Vec<usize> = (0..n).collect();
    let mut best: Option<(f64, Vec<u32>)> = None;
    for start in 0..STARTS {
        let mut places = vec![u32::MAX; n];
        if start == 0 {
            // Those of which most is known first.
            order.sort_by_key(|key| std::cmp::Reverse(near[*key].len()));
        } else {
            order.shuffle(&mut random);
        }
        for _ in 0..ROUNDS {
            let mut moved = false;
            for &key in &order {
                let mut sums = vec![0.0; lines as usize];
                for (other, same) in &near[key] {
                    if let Some(sum) = sums.get_mut(places[*other as usize] as usize) {
                        *sum += same;
                    }
                }
                let now = sums.get(places[key] as usize).copied();
                let (line, most) = (0..lines)
                    .map(|line| (line, sums[line as usize]))
                    .max_by(|a, b| a.1.total_cmp(&b.1))
                    .unwrap_or((0, 0.0));
                if now.is_none_or(|now| most > now + 1e-9) {
                    // Of a key of which nothing is known, any.
                    let any = most == 0.0 && now.is_none();
                    places[key] = if any { random.random_range(0..lines) } else { line };
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        let within = |(key, near): (usize, &Vec<(u32, f64)>)| {
            let own = near.iter().filter(|(other, _)| places[*other as usize] == places[key]);
            own.map(|(_, same)| same).sum::<f64>()
        };
        let sum: f64 = near.iter().enumerate().map(within).sum();
        if best.as_ref().is_none_or(|known| sum > known.0) {
            best = Some((sum, places));
        }
    }
    best.map_or_else(|| vec![0; n], |best| best.1)
}

/// The share of the judged requests that each line has; `None` if they are equal but for chance.
pub(super) fn shares(lines: &[Line], count: u32) -> Option<Vec<f64>> {
    let mut each = vec![0.0; count as usize];
    for line in lines {
        let places = line.places(count);
        let judged = places.iter().zip(&line.counted).filter(|r| *r.1);
        judged.for_each(|r| each[*r.0 as usize] += 1.0);
    }
    let all: f64 = each.iter().sum();
    let expected = all / f64::from(count);
    let chi: f64 = each.iter().map(|n| (n - expected).powi(2) / expected.max(1e-9)).sum();
    let law = ChiSquared::new(f64::from(count) - 1.0).ok()?;
    (law.sf(chi) < EQUAL).then(|| each.into_iter().map(|n| n / all).collect())
}
