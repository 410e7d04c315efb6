//! How long a get of several keys takes, whole or shared among servers.

use ground::window::Nanos;

/// The response time of a get as a line over its number of keys, a + b·keys, by least squares over
/// recent replies (the last thousand or so count most).
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    weight: f64,
    keys: f64,
    keys_squared: f64,
    time: f64,
    time_keys: f64,
}

const KEEP: f64 = 1.0 - 1.0 / 1024.0;

impl Costs {
    pub(super) fn record(&mut self, response: Nanos, keys: u32) {
        let (time, keys) = (response as f64 * 1e-9, f64::from(keys));
        self.weight = self.weight * KEEP + 1.0;
        self.keys = self.keys * KEEP + keys;
        self.keys_squared = self.keys_squared * KEEP + keys * keys;
        self.time = self.time * KEEP + time;
        self.time_keys = self.time_keys * KEEP + time * keys;
    }

    /// a and b; `None` while too little was seen to tell them apart.
    fn line(&self) -> Option<(f64, f64)> {
        let spread = self.weight * self.keys_squared - self.keys * self.keys;
        if self.weight < 32.0 || spread < 0.1 * self.weight * self.weight {
            return None;
        }
        let b = (self.weight * self.time_keys - self.keys * self.time) / spread;
        let a = (self.time - b * self.keys) / self.weight;
        Some((a.max(0.0), b.max(0.0)))
    }

    /// How many of `servers` a get of so many keys is best shared among: 1 or all of them.
    ///
    /// Whole, it takes a + b·n. Shared among m, the slowest of m replies counts: the part a, which
    /// is mostly waiting, grows by the harmonic number of m (the mean of the largest of m
    /// exponential times), the keys' part falls to b·n/m. Until both are known, gets of up to 16
    /// keys stay whole.
    pub(super) fn shares(&self, keys: usize, servers: usize) -> usize {
        if servers < 2 || keys < 2 {
            return 1;
        }
        let Some((a, b)) = self.line() else { return if keys > 16 { servers } else { 1 } };
        let harmonic: f64 = (1..=servers).map(|i| 1.0 / i as f64).sum();
        let whole = a + b * keys as f64;
        let shared = a * harmonic + b * keys as f64 / servers as f64;
        if shared < whole { servers } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_are_shared_and_few_are_not() {
        let mut costs = Costs::default();
        assert_eq!((costs.shares(9, 3), costs.shares(81, 3)), (1, 3));
        for _ in 0..100 {
            for keys in [1, 10, 50] {
                // 100 µs, and 10 µs for each key.
                costs.record(100_000 + 10_000 * u64::from(keys), keys);
            }
        }
        let (a, b) = costs.line().unwrap();
        assert!((a - 1e-4).abs() < 1e-7 && (b - 1e-5).abs() < 1e-8, "{a} {b}");
        // 100·(11/6 − 1) µs more waiting against two thirds of 10 µs a key.
        assert_eq!((costs.shares(12, 3), costs.shares(13, 3)), (1, 3));
        assert_eq!(costs.shares(81, 1), 1);
    }
}
