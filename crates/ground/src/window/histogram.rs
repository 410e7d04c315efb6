//! A sparse, mergeable histogram of times.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::time::Nanos;

/// Sub-buckets of an octave; a power of two.
pub(super) const SUB: u64 = 128;
const SUB_BITS: u32 = SUB.trailing_zeros();

/// Times in nanoseconds, in buckets of relative width 1/128, with exact count, sum and sum of
/// squares.
///
/// Buckets are log-linear, as in G. Tene's HdrHistogram. Below 128 ns each nanosecond has its own
/// bucket; above, each octave is divided into 128 equal parts. The middle of a bucket is therefore
/// within 0.4 % of its values. Count, sum and sum of squares are kept exactly, because the mean of
/// service times must be more accurate than that: 1 % of a service rate is 3.5 points of a
/// response-time distribution at 90 % load.
///
/// Recording costs one search in a small ordered map. Empty buckets take no space. A dense
/// histogram would take tens of kilobytes for each operation, outcome and device in every second.
/// For a single histogram with millions of records per second use a dense one.
///
/// ```
/// use ground::window::Histogram;
/// let mut times = Histogram::default();
/// for ms in 1..=100 {
///     times.record(ms * 1_000_000);
/// }
/// assert_eq!(times.count(), 100);
/// assert!((times.mean_s() - 0.0505).abs() < 1e-12);
/// assert!((times.quantile_s(0.99).unwrap() / 0.099 - 1.0).abs() < 1.0 / 128.0);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    counts: BTreeMap<u32, u64>,
    count: u64,
    sum_ns: u64,
    sum_of_squares_s2: f64,
    max_ns: Nanos,
}

/// The bucket of a value.
pub(super) fn bucket_of(value: Nanos) -> u32 {
    if value < SUB {
        return value as u32;
    }
    let octave = 63 - value.leading_zeros() - SUB_BITS;
    (octave + 1) * SUB as u32 + ((value >> octave) - SUB) as u32
}

/// The smallest value of a bucket and the smallest of the next.
fn bounds_of(bucket: u32) -> (f64, f64) {
    let sub = SUB as u32;
    if bucket < sub {
        return (f64::from(bucket), f64::from(bucket + 1));
    }
    let width = f64::from(bucket / sub - 1).exp2();
    let low = f64::from(bucket % sub + sub) * width;
    (low, low + width)
}

/// The highest bucket that a 64-bit value can fall in.
const BUCKET_MAX: u32 = (64 - SUB_BITS) * SUB as u32 + SUB as u32 - 1;

impl Histogram {
    /// A histogram of counts by bucket, which together are `count`, and of the exact sums.
    pub(super) fn from_buckets(
        counts: BTreeMap<u32, u64>,
        count: u64,
        sum_ns: u64,
        sum_of_squares_s2: f64,
        max_ns: Nanos,
    ) -> Histogram {
        Histogram { counts, count, sum_ns, sum_of_squares_s2, max_ns }
    }

    /// Counts one time.
    pub fn record(&mut self, value: Nanos) {
        self.record_many(value, 1);
    }

    /// Counts one time as often as it occurred.
    pub fn record_many(&mut self, value: Nanos, times: u64) {
        if times == 0 {
            return;
        }
        let bucket = self.counts.entry(bucket_of(value)).or_insert(0);
        *bucket = bucket.saturating_add(times);
        self.count = self.count.saturating_add(times);
        self.sum_ns = self.sum_ns.saturating_add(value.saturating_mul(times));
        let seconds = value as f64 * 1e-9;
        self.sum_of_squares_s2 += times as f64 * seconds * seconds;
        self.max_ns = self.max_ns.max(value);
    }

    /// Adds all times of another histogram. The result equals one histogram of all times.
    pub fn merge(&mut self, other: &Histogram) {
        // Without `..`, so that a field that is added and not merged does not compile.
        let Histogram { counts, count, sum_ns, sum_of_squares_s2, max_ns } = other;
        for (&bucket, &count) in counts {
            let mine = self.counts.entry(bucket).or_insert(0);
            *mine = mine.saturating_add(count);
        }
        self.count = self.count.saturating_add(*count);
        self.sum_ns = self.sum_ns.saturating_add(*sum_ns);
        self.sum_of_squares_s2 += sum_of_squares_s2;
        self.max_ns = self.max_ns.max(*max_ns);
    }

    /// Number of recorded times.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Sum of the times in seconds, exact to the nanosecond.
    pub fn sum_s(&self) -> f64 {
        self.sum_ns as f64 * 1e-9
    }

    /// Mean in seconds; 0 if nothing was recorded.
    pub fn mean_s(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_s() / self.count as f64 }
    }

    /// Variance in square seconds (of the recorded values, not of their buckets); 0 below two
    /// values.
    pub fn variance_s2(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        let mean = self.mean_s();
        ((self.sum_of_squares_s2 - n * mean * mean) / (n - 1.0)).max(0.0)
    }

    /// Largest recorded time in seconds; 0 if nothing was recorded.
    pub fn max_s(&self) -> f64 {
        self.max_ns as f64 * 1e-9
    }

    /// The filled buckets in ascending order: lower and upper bound in seconds, and count.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        self.counts.iter().map(|(&bucket, &count)| {
            let (low, high) = bounds_of(bucket);
            (low * 1e-9, high * 1e-9, count)
        })
    }

    /// Splits the histogram into the buckets that begin at or below `t_s` seconds and the others.
    /// Counts are exact, and the two parts' sums add to the exact sums; each part's own sums are
    /// estimated from the middles of its buckets.
    pub fn split_at(&self, t_s: f64) -> (Histogram, Histogram) {
        let (mut low, mut high) = (Histogram::default(), Histogram::default());
        let (mut sum_low, mut sum, mut squares_low, mut squares) = (0.0, 0.0, 0.0, 0.0);
        for (&bucket, &count) in &self.counts {
            let (from, to) = bounds_of(bucket);
            let (middle, n) = (f64::midpoint(from, to), count as f64);
            sum += n * middle;
            squares += n * middle * middle;
            let part = if from * 1e-9 <= t_s {
                sum_low += n * middle;
                squares_low += n * middle * middle;
                low.max_ns = (to as Nanos).min(self.max_ns);
                &mut low
            } else {
                high.max_ns = self.max_ns;
                &mut high
            };
            part.counts.insert(bucket, count);
            part.count = part.count.saturating_add(count);
        }
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        low.sum_ns = ((self.sum_ns as f64 * share(sum_low, sum)) as Nanos).min(self.sum_ns);
        high.sum_ns = self.sum_ns - low.sum_ns;
        low.sum_of_squares_s2 = self.sum_of_squares_s2 * share(squares_low, squares);
        high.sum_of_squares_s2 = self.sum_of_squares_s2 - low.sum_of_squares_s2;
        (low, high)
    }

    /// Share of the times at or below `t_s` seconds. A bucket that contains `t_s` counts in
    /// proportion. `None` if nothing was recorded.
    pub fn share_within(&self, t_s: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let mut below = 0.0;
        for (low, high, count) in self.buckets() {
            let part = ((t_s - low) / (high - low)).clamp(0.0, 1.0);
            if part == 0.0 {
                break;
            }
            below += part * count as f64;
        }
        Some(below / self.count as f64)
    }

    /// The time in seconds that a share `p` of the times does not exceed, to the width of a bucket.
    /// `None` if nothing was recorded.
    pub fn quantile_s(&self, p: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let rank = (p.clamp(0.0, 1.0) * self.count as f64).max(f64::MIN_POSITIVE);
        let mut below = 0.0;
        for (low, high, count) in self.buckets() {
            let count = count as f64;
            if below + count >= rank {
                let value = low + (high - low) * (rank - below) / count;
                return Some(value.min(self.max_s()));
            }
            below += count;
        }
        Some(self.max_s())
    }
}

/// The stored form: buckets as flat `[bucket, count, bucket, count …]`, ascending.
#[derive(Serialize, Deserialize)]
struct Stored {
    n: u64,
    sum_ns: u64,
    sum_squares_s2: f64,
    max_ns: u64,
    buckets: Vec<u64>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Stored {
            n: self.count,
            sum_ns: self.sum_ns,
            sum_squares_s2: self.sum_of_squares_s2,
            max_ns: self.max_ns,
            buckets: self.counts.iter().flat_map(|(&b, &c)| [u64::from(b), c]).collect(),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error;
        let stored = Stored::deserialize(deserializer)?;
        if !stored.buckets.len().is_multiple_of(2) {
            return Err(D::Error::custom("histogram: buckets and counts do not pair up"));
        }
        let mut counts = BTreeMap::new();
        let mut total = 0u64;
        for pair in stored.buckets.chunks_exact(2) {
            let bucket = u32::try_from(pair[0]).ok().filter(|&b| b <= BUCKET_MAX);
            let bucket = bucket
                .ok_or_else(|| D::Error::custom(format!("histogram: no bucket {}", pair[0])))?;
            if counts.insert(bucket, pair[1]).is_some() {
                return Err(D::Error::custom(format!("histogram: bucket {bucket} twice")));
            }
            total = total
                .checked_add(pair[1])
                .ok_or_else(|| D::Error::custom("histogram: counts overflow"))?;
        }
        if total != stored.n {
            return Err(D::Error::custom(format!(
                "histogram: {} recorded, but buckets hold {total}",
                stored.n
            )));
        }
        if !stored.sum_squares_s2.is_finite() || stored.sum_squares_s2 < 0.0 {
            return Err(D::Error::custom("histogram: sum of squares is not a positive number"));
        }
        Ok(Histogram {
            counts,
            count: stored.n,
            sum_ns: stored.sum_ns,
            sum_of_squares_s2: stored.sum_squares_s2,
            max_ns: stored.max_ns,
        })
    }
}
