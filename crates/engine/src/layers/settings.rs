//! How a [`Manager`](super::Manager) decides: its marks, its times and its budget, and which of
//! them cannot hold.

use model::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

/// How layers are given and taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Time between two decisions (δ).
    pub interval: Nanos,
    /// Weight of the newest length in a shard's average (a), above 0 and at most 1: the average
    /// follows within about `interval / smoothing`.
    pub smoothing: f64,
    /// Average length, in requests waiting and in service, above which a shard grows.
    pub high: f64,
    /// Average length below which it folds: less than [`Settings::spare`].
    pub low: f64,
    /// Bytes that the layers of all shards may take together.
    pub budget_bytes: u64,
    /// Time after a change of a shard before its next one. A growth counts from when its layer is
    /// full, and a shard that is new from when it was first seen. At least `interval / smoothing`,
    /// so that the average has followed the last change before it decides on the next.
    pub settle: Nanos,
}

/// A decision four times a second, on averages that follow within 2.5 s: a stall of a second is no
/// reason, and a load that is too much gets its layer within two. The marks suit a shard with one
/// server: 4 is a utilisation of 0.8, and 0.25 one of 0.2, which the loss of a layer doubles at
/// most.
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

/// Why settings cannot hold.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Decisions without time between them.
    #[error("the interval between decisions on layers is 0; give a time, such as 250 ms")]
    NoInterval,
    /// No weight of an average.
    #[error("the smoothing of queue lengths is {0}; it must be above 0 and at most 1")]
    Smoothing(f64),
    /// The marks are no lengths.
    #[error("the marks of queue lengths are {low} and {high}; both must be numbers, from 0 on")]
    Marks {
        /// The low one.
        low: f64,
        /// The high one.
        high: f64,
    },
    /// A shard that grows or folds could land beyond the other mark, and would go to and fro.
    #[error(
        "the low mark of queue lengths is {low}, too near to the high one, {high}: a layer that is added \
         there can bring the length down to {bound}; give a low mark below that"
    )]
    MarksTooNear {
        /// The low one.
        low: f64,
        /// The high one.
        high: f64,
        /// What the low one must be below.
        bound: f64,
    },
    /// The average could not follow a change before the next one.
    #[error(
        "layers settle for {settle} ns, less than the {least} ns in which the average of queue lengths follows \
         them (interval / smoothing); give at least as much"
    )]
    Settle {
        /// Time between two changes of a shard.
        settle: Nanos,
        /// The least that it can be.
        least: Nanos,
    },
}

impl Settings {
    /// The length below which a shard can lose a layer and stay below the high mark, and above
    /// which one that grew at the high mark stays: `high / (high + 2)`, 0.67 for a high mark of 4.
    ///
    /// It is so for an M/M/1 queue whose service a layer makes twice as fast at most: at the length
    /// h its utilisation is h / (1 + h), and with half of that its length is h / (h + 2). More
    /// servers leave more room. Where a layer gains more than that, [`Manager`](super::Manager)
    /// learns to wait instead.
    pub fn spare(&self) -> f64 {
        self.high / (self.high + 2.0)
    }

    /// # Errors
    /// The first thing in them that cannot hold.
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
