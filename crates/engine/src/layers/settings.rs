//! Settings of a [`Manager`](super::Manager): marks, times and budget, and their validation.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// When shards gain and drop layers, and the budget of the layers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Time between two decisions (δ).
    pub interval: Nanos,
    /// Weight of the newest length in a shard's average (a), above 0 and at most 1. The average
    /// follows a change within about `interval / smoothing`.
    pub smoothing: f64,
    /// Average length, in requests waiting and in service, above which a shard grows.
    pub high: f64,
    /// Average length below which a shard folds; must be below [`Settings::spare`].
    pub low: f64,
    /// Maximum bytes of the layers of all shards together.
    pub budget_bytes: u64,
    /// Minimum time between two changes of a shard. It starts when a new layer is full, when a fold
    /// is ordered, and when a shard is first observed. Must be at least `interval / smoothing`, so
    /// that the average reflects the last change before the next decision.
    pub settle: Nanos,
}

/// Four decisions a second, on averages that follow within 2.5 s: a stall of one second does not
/// cause a growth, and an overloaded shard gains a layer within two seconds. The marks suit a shard
/// with one server: a length of 4 is a utilisation of 0.8, and 0.25 one of 0.2, which the loss of a
/// layer at most doubles.
impl Default for Settings {
    fn default() -> Self {
        Settings {
            interval: SECOND / 4,
            smoothing: 0.1,
            high: 4.0,
            low: 0.25,
            budget_bytes: 1 << 30,
            settle: 5 * SECOND,
        }
    }
}

/// Why settings are invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The interval is 0.
    #[error("the interval between decisions on layers is 0; give a time, such as 250 ms")]
    NoInterval,
    /// The smoothing is not above 0 and at most 1.
    #[error("the smoothing of queue lengths is {0}; it must be above 0 and at most 1")]
    Smoothing(f64),
    /// A mark is not a non-negative number.
    #[error("invalid marks of queue lengths, {low} and {high}: both must be numbers of at least 0")]
    Marks {
        /// The low mark.
        low: f64,
        /// The high mark.
        high: f64,
    },
    /// The marks are so close that a growth could take a shard below the low mark, or a fold above
    /// the high mark, so that it would oscillate.
    #[error(
        "the low mark of queue lengths is {low}, too close to the high mark, {high}: adding a \
         layer there can reduce the length to {bound}; set a low mark below that"
    )]
    MarksTooNear {
        /// The low mark.
        low: f64,
        /// The high mark.
        high: f64,
        /// The upper bound of the low mark.
        bound: f64,
    },
    /// The settling time is shorter than the average needs to follow a change.
    #[error(
        "the settling time of layers is {settle} ns, less than the {least} ns that the average of \
         queue lengths needs to follow a change (interval / smoothing); set at least that"
    )]
    Settle {
        /// The settling time.
        settle: Nanos,
        /// Its minimum.
        least: Nanos,
    },
}

impl Settings {
    /// The length below which a shard can lose a layer and stay below the high mark, and above
    /// which a shard stays that grew at the high mark: `high / (high + 2)`, 0.67 for a high mark of
    /// 4.
    ///
    /// This holds for an M/M/1 queue whose service a layer makes at most twice as fast: at length h
    /// the utilisation is h / (1 + h), and at half of that utilisation the length is h / (h + 2).
    /// With more servers the bound is safer still. If a layer gains more than a factor of two,
    /// [`Manager`](super::Manager) learns to wait instead.
    pub fn spare(&self) -> f64 {
        self.high / (self.high + 2.0)
    }

    /// Checks the settings.
    ///
    /// # Errors The first invalid value.
    pub fn check(&self) -> Result<(), SettingsError> {
        let Settings { interval, smoothing, high, low, settle, .. } = *self;
        if interval == 0 {
            return Err(SettingsError::NoInterval);
        }
        if !(smoothing > 0.0 && smoothing <= 1.0) {
            return Err(SettingsError::Smoothing(smoothing));
        }
        if !(low.is_finite() && high.is_finite() && low >= 0.0 && high >= 0.0) {
            return Err(SettingsError::Marks { low, high });
        }
        if low >= self.spare() {
            return Err(SettingsError::MarksTooNear { low, high, bound: self.spare() });
        }
        let least = (interval as f64 / smoothing) as Nanos;
        if settle < least {
            return Err(SettingsError::Settle { settle, least });
        }
        Ok(())
    }
}
