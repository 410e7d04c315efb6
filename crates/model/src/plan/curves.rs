//! What memory and hot devices serve, as a table over their sizes.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check};

/// The shares of all requests that memory and hot devices serve, by their bytes: computed from
/// recorded requests (`concertina tiers --curves`) or measured. Servers divide the keys among
/// them, so together they serve what one server with the bytes of all would.
///
/// ```
/// use model::plan::Curves;
/// let curves = Curves {
///     memory_bytes: vec![0.0, 1e9],
///     hot_bytes: vec![0.0, 1e10],
///     memory_share: vec![0.0, 0.5],
///     hot_share: vec![vec![0.0, 0.5], vec![0.0, 0.25]],
/// };
/// curves.check()?;
/// assert_eq!(curves.shares(5e8, 1e10), (0.25, 0.375));
/// assert_eq!(curves.shares(1e12, 0.0), (0.5, 0.0)); // held: nothing is known beyond
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Curves {
    /// Bytes of memory of all servers together, ascending from 0.
    pub memory_bytes: Vec<f64>,
    /// Bytes of hot devices of all servers together, ascending from 0.
    pub hot_bytes: Vec<f64>,
    /// The share that memory serves, for each size of memory.
    pub memory_share: Vec<f64>,
    /// The share that hot devices serve: for each size of memory, by size of hot devices.
    pub hot_share: Vec<Vec<f64>>,
}

impl Curves {
    /// Checks every number and list.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::Choices(format!("the curves {what}")));
        for (what, sizes) in [("memory_bytes", &self.memory_bytes), ("hot_bytes", &self.hot_bytes)]
        {
            if sizes.first() != Some(&0.0) || sizes.windows(2).any(|two| two[0] >= two[1]) {
                return wrong(&format!("need {what} that ascend from 0"));
            }
            sizes
                .iter()
                .try_for_each(|&size| check(what, size, 0.0..=1e24, "0 to 1e24").map(|_| ()))?;
        }
        let rows = self.memory_bytes.len();
        if self.memory_share.len() != rows || self.hot_share.len() != rows {
            return wrong(
                "need a share of memory, and shares of hot devices, for each size of memory",
            );
        }
        for (memory, row) in self.memory_share.iter().zip(&self.hot_share) {
            if row.len() != self.hot_bytes.len() {
                return wrong("need a share of hot devices for each of their sizes");
            }
            check("memory_share", *memory, 0.0..=1.0, "0 to 1")?;
            for share in row {
                check("hot_share", *share, 0.0..=1.0 - memory + 1e-9, "0 to what memory leaves")?;
            }
        }
        Ok(())
    }

    /// The shares that memory and hot devices of these sizes serve: linear between the sizes of the
    /// table, and those of its last size beyond it.
    pub fn shares(&self, memory_bytes: f64, hot_bytes: f64) -> (f64, f64) {
        let row = Bracket::new(&self.memory_bytes, memory_bytes);
        let column = Bracket::new(&self.hot_bytes, hot_bytes);
        let memory = row.interpolate(|i| self.memory_share[i]);
        let hot = row.interpolate(|i| column.interpolate(|j| self.hot_share[i][j]));
        (memory, hot)
    }

    /// The share of the reads that memory leaves which hot devices serve.
    pub(super) fn hot_reads(&self, memory_bytes: f64, hot_bytes: f64) -> f64 {
        let (memory, hot) = self.shares(memory_bytes, hot_bytes);
        if memory < 1.0 { (hot / (1.0 - memory)).min(1.0) } else { 0.0 }
    }
}

/// The two sizes of a table around a size, as indices, and how far it lies between them.
struct Bracket {
    lower: usize,
    upper: usize,
    /// From 0 at the lower size to 1 at the upper one.
    part: f64,
}

impl Bracket {
    fn new(sizes: &[f64], size: f64) -> Bracket {
        let last = sizes.len() - 1;
        let upper = sizes.partition_point(|&s| s < size).min(last);
        let lower = upper.saturating_sub(1);
        let apart = sizes[upper] - sizes[lower];
        let part = if apart > 0.0 { ((size - sizes[lower]) / apart).clamp(0.0, 1.0) } else { 0.0 };
        Bracket { lower, upper, part }
    }

    /// The value at the size, linear between those at the two indices.
    fn interpolate(&self, value: impl Fn(usize) -> f64) -> f64 {
        let Bracket { lower, upper, part } = *self;
        // Both ends exactly, so that a fitted server stays as it is.
        if part >= 1.0 { value(upper) } else { value(lower) + (value(upper) - value(lower)) * part }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curves() -> Curves {
        Curves {
            memory_bytes: vec![0.0, 10.0, 20.0],
            hot_bytes: vec![0.0, 100.0],
            memory_share: vec![0.0, 0.4, 0.5],
            hot_share: vec![vec![0.0, 0.8], vec![0.0, 0.4], vec![0.0, 0.35]],
        }
    }

    #[test]
    fn shares_are_those_of_the_table_and_linear_between() {
        let curves = curves();
        assert_eq!(curves.check(), Ok(()));
        assert_eq!(curves.shares(10.0, 100.0), (0.4, 0.4));
        assert_eq!(curves.shares(0.0, 0.0), (0.0, 0.0));
        let (memory, hot) = curves.shares(15.0, 50.0);
        assert!((memory - 0.45).abs() < 1e-12 && (hot - 0.1875).abs() < 1e-12, "{memory} {hot}");
        assert_eq!(curves.shares(1e9, 1e9), (0.5, 0.35));
        assert!((curves.hot_reads(10.0, 100.0) - 0.4 / 0.6).abs() < 1e-12);
    }

    #[test]
    fn damaged_tables_are_errors_that_say_what() {
        type Damage = fn(&mut Curves);
        let rows: [(Damage, &str); 7] = [
            (|c| c.memory_bytes.clear(), "memory_bytes"),
            (|c| c.memory_bytes[0] = 5.0, "from 0"),
            (|c| c.hot_bytes[1] = 0.0, "hot_bytes"),
            (|c| c.hot_bytes[1] = f64::NAN, "hot_bytes"),
            (|c| c.memory_share.truncate(2), "for each size of memory"),
            (|c| c.hot_share[1].push(0.5), "for each of their sizes"),
            (|c| c.hot_share[2][1] = 0.6, "hot_share"),
        ];
        for (damage, says) in rows {
            let mut curves = curves();
            damage(&mut curves);
            let error = curves.check().unwrap_err().to_string();
            assert!(error.contains(says), "{says}: {error}");
        }
    }
}
