//! When every request was sent and answered: the `times` file of a run folder.

use ground::window::{Operation, Outcome};
use serde::{Deserialize, Serialize};

/// The times of requests of one operation and outcome, in the order in which they were written.
///
/// ```
/// use ground::window::{Operation, Outcome};
/// let mut times = record::Times::new("load", Operation::Get, Outcome::Unknown, 100);
/// let some = [(1_700_000_000_000_001_234, 8_000_049), (1_700_000_000_010_000_000, 9_000_000)];
/// times.extend(some);
/// let all: Vec<_> = times.iter().collect();
/// assert_eq!(all[0], (1_700_000_000_000_001_200, 8_000_000));
/// assert_eq!(all[1], (1_700_000_000_010_000_000, 9_000_000));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// The queue, as in the windows: `load` or `gateway`.
    pub queue: String,
    /// What the requests did.
    pub operation: Operation,
    /// How they were answered.
    pub outcome: Outcome,
    /// The unit of all times below, nanoseconds.
    pub unit_ns: u64,
    /// Resolution of `ends`, nanoseconds, if coarser than the unit: times are rounded down.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ns: u64,
    /// Resolution of `taken`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resolution_ns: u64,
    /// Whether `taken` was measured by itself, as where a log has the start and a duration. Otherwise, where both have one resolution, it is
    /// the difference of two readings of the clock of `ends`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timed_apart: bool,
    /// When the last byte of each reply had come: units since 1970 for the first, since the one
    /// before for the others.
    pub ends: Vec<i64>,
    /// From sending a request to then, units.
    pub taken: Vec<u64>,
    /// Bytes of each object, if they are known; shorter if not of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bytes: Vec<u64>,
    /// What decides which line of the servers each request waits in, if that is known: 24 bits of the hash
    /// of its key, or of the server that a proxy chose; 0 is unknown. Shorter if not of all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<u32>,
}

/// The 24 bits of a key's hash that [`Times::keys`] holds; never 0.
pub fn short_key(hash: u64) -> u32 {
    ((hash >> 40) as u32).max(1)
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Times {
    /// No times yet.
    pub fn new(queue: &str, operation: Operation, outcome: Outcome, unit_ns: u64) -> Times {
        let (ends, taken) = (Vec::new(), Vec::new());
        let (queue, unit_ns) = (queue.to_owned(), unit_ns.max(1));
        let (clock_ns, resolution_ns) = (0, 0);
        let (bytes, keys) = (Vec::new(), Vec::new());
        Times {
            queue,
            operation,
            outcome,
            unit_ns,
            clock_ns,
            resolution_ns,
            is_timed_apart: false,
            ends,
            taken,
            bytes,
            keys,
        }
    }

    /// Requests.
    pub fn len(&self) -> usize {
        self.taken.len().min(self.ends.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds requests: when each reply had come, nanoseconds since 1970, and how long that took.
    pub fn extend(&mut self, all: impl IntoIterator<Item = (u64, u64)>) {
        let unit = self.unit_ns.max(1);
        let mut last = self.ends.iter().fold(0i64, |sum, more| sum.saturating_add(*more));
        for (end, taken) in all {
            let end = (end / unit).min(i64::MAX as u64) as i64;
            self.ends.push(end - last);
            self.taken.push(taken / unit);
            last = end;
        }
    }

    /// Bytes of each object, 0 where they are not known, in the order of [`Times::iter`].
    pub fn bytes(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.iter().copied().chain(std::iter::repeat(0)).take(self.len())
    }

    /// The key of each request, 0 where it is not known, in the order of [`Times::iter`].
    pub fn keys(&self) -> impl Iterator<Item = u32> + '_ {
        self.keys.iter().copied().chain(std::iter::repeat(0)).take(self.len())
    }

    /// When each reply had come, nanoseconds since 1970, and how long that took, nanoseconds. Numbers
    /// that cannot be saturate.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut now = 0i64;
        self.ends.iter().zip(&self.taken).map(move |(more, taken)| {
            now = now.saturating_add(*more);
            let end = now.max(0) as u64;
            (end.saturating_mul(self.unit_ns), taken.saturating_mul(self.unit_ns))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_comes_back_in_units_and_hostile_numbers_saturate() {
        let mut one = Times::new("load", Operation::Put, Outcome::Error, 100);
        let all = [(1_700_000_000_000_000_000, 5_000), (1_699_999_999_999_999_900, 77_777)];
        one.extend(all);
        let mut two = Times::new("load", Operation::Put, Outcome::Error, 100);
        all.into_iter().for_each(|one| two.extend([one]));
        assert_eq!(one, two);
        assert_eq!(one.iter().collect::<Vec<_>>(), [all[0], (all[1].0, 77_700)]);
        one.bytes = vec![7];
        assert_eq!(one.bytes().collect::<Vec<_>>(), [7, 0]);
        one.bytes.clear();
        one.keys = vec![short_key(0)];
        assert_eq!(one.keys().collect::<Vec<_>>(), [1, 0]);
        one.keys.clear();
        let text = serde_json::to_string(&one).unwrap();
        assert!(!text.contains("clock_ns") && text.len() < 160, "{text}");
        assert_eq!(serde_json::from_str::<Times>(&text).unwrap(), one);
        let hostile =
            Times { ends: vec![i64::MIN, i64::MAX, i64::MAX, 1], taken: vec![u64::MAX; 4], ..one };
        assert_eq!(hostile.iter().count(), 4);
    }
}
