//! Spreads coarsely known values over the range they may come from, deterministically: the same
//! input gives the same windows.

/// A sequence that fills [0, 1) evenly: the fractional parts of the multiples of an irrational
/// number.
#[derive(Clone, Debug)]
pub(super) struct Even {
    at: u64,
    step: u64,
}

impl Even {
    /// The sequence of the golden ratio, the most even of all.
    pub fn golden() -> Even {
        Even { at: 0, step: 0x9E37_79B9_7F4A_7C15 }
    }

    /// The sequence of √2. Paired with the golden one, it fills the unit square evenly.
    pub(crate) fn root_of_two() -> Even {
        Even { at: 0, step: 0x6A09_E667_F3BC_C909 }
    }

    /// The next number.
    pub fn next(&mut self) -> f64 {
        self.at = self.at.wrapping_add(self.step);
        (self.at >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A plausible true value for the difference of two readings of a clock that ticks once each
/// `resolution_ns`. The true difference lies within one resolution on either side, with a
/// triangular density; `u` in [0, 1) selects a quantile. Values below 0 are reflected.
pub(super) fn between_ticks(value_ns: u64, resolution_ns: u64, u: f64) -> u64 {
    let offset = if u < 0.5 { (2.0 * u).sqrt() - 1.0 } else { 1.0 - (2.0 * (1.0 - u)).sqrt() };
    (value_ns as f64 + offset * resolution_ns as f64).abs() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_keep_their_mean_and_stay_within_a_tick() {
        let mut even = Even::golden();
        let (n, tick) = (10_000, 1_000_000u64);
        let values: Vec<u64> = (0..n).map(|_| between_ticks(5 * tick, tick, even.next())).collect();
        let mean = values.iter().sum::<u64>() as f64 / f64::from(n);
        assert!((mean / 5e6 - 1.0).abs() < 1e-4, "{mean}");
        let variance =
            values.iter().map(|v| (*v as f64 - mean).powi(2)).sum::<f64>() / f64::from(n);
        // Of the triangular law on (−1, 1): 1/6.
        assert!((variance / 1e12 - 1.0 / 6.0).abs() < 1e-3, "{variance}");
        assert!(values.iter().all(|v| (4 * tick..=6 * tick).contains(v)));
    }
}
