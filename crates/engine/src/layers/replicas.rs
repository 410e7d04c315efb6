//! Decides how many replicas a shard has: selective replication.
//!
//! A layer makes one replica of a shard faster; a replica more divides its load. Both follow the same averages and
//! the same high mark. A shard gains a replica when its mean queue per replica is above [`Settings::high`] and no
//! replica can have a further layer. It loses one when those that stay would be below the mark by a margin: with n
//! replicas of one server each, losing one multiplies their utilisation by n/(n − 1), as losing a layer of that gain
//! would (see [`super::relieved`]).
//!
//! With footprints that are fixed, so that none can have a further layer, this is the *selective replication* that
//! BlowFish is compared with (NSDI 2016, section 4.1). Together with a [`Manager`](super::Manager) a shard grows by layers first, and by
//! replicas only once it is as fast as it can be.
//!
//! There is no clock here; callers pass the time. Cost: O(log n) for each of n shards once an interval.

use std::collections::BTreeMap;

use ground::window::Nanos;

use super::{Settings, SettingsError, ShardId, relieved};

/// A replica is given up only where those that stay would have this share of the utilisation of the high mark.
const MARGIN: f64 = 0.85;

/// An observation of all replicas of a shard at the end of an interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replicated {
    /// The shard.
    pub id: ShardId,
    /// Replicas that serve.
    pub replicas: u32,
    /// Requests waiting and in service at all of them together.
    pub queue_length: f64,
    /// Whether a replica can have a further layer, so that none is added.
    pub can_grow: bool,
    /// Whether a replica is being given a layer or is being made, so that nothing is decided.
    pub growing: bool,
}

/// What is to change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Resize {
    /// One more replica.
    Add {
        /// The shard.
        shard: ShardId,
        /// Average length of a replica's queue.
        average: f64,
    },
    /// One replica less.
    Remove {
        /// The shard.
        shard: ShardId,
        /// Average length of a replica's queue.
        average: f64,
    },
}

#[derive(Clone, Copy, Debug)]
struct State {
    average: f64,
    /// The average in which each length counts as at most twice the high mark.
    pressure: f64,
    changed: Nanos,
}

/// Decides on the replicas of shards.
///
/// ```
/// use engine::layers::{Settings, replicas::{Replicas, Replicated, Resize}};
///
/// let mut replicas = Replicas::new(Settings::default(), 1)?;
/// let busy = Replicated {
///     id: 7,
///     replicas: 1,
///     queue_length: 20.0,
///     can_grow: false,
///     growing: false,
/// };
/// assert!(replicas.observe(0, &[busy]).is_empty(), "a new shard is watched first");
/// let resized = replicas.observe(5_000_000_000, &[busy]);
/// assert!(matches!(resized[..], [Resize::Add { shard: 7, .. }]));
/// # Ok::<(), engine::layers::SettingsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replicas {
    settings: Settings,
    /// The fewest replicas of a shard.
    least: u32,
    decided: Option<Nanos>,
    states: BTreeMap<ShardId, State>,
}

impl Replicas {
    /// A shard has `least` replicas at least. The interval, smoothing, high mark and settling time of the settings are
    /// used; the low mark and the budget are not.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn new(settings: Settings, least: u32) -> Result<Replicas, SettingsError> {
        settings.check()?;
        Ok(Replicas { settings, least, decided: None, states: BTreeMap::new() })
    }

    /// Takes observations of all shards and returns the changes to make, at most one for a shard, and none until an
    /// interval has ended. A shard missing from `shards` is forgotten.
    pub fn observe(&mut self, now: Nanos, shards: &[Replicated]) -> Vec<Resize> {
        let passed = match self.decided {
            None => 1,
            Some(at) => now.saturating_sub(at) / self.settings.interval,
        };
        if passed == 0 {
            return Vec::new();
        }
        self.decided = Some(now);
        self.states.retain(|id, _| shards.iter().any(|shard| shard.id == *id));
        let kept = (1.0 - self.settings.smoothing).powi(i32::try_from(passed).unwrap_or(i32::MAX));
        shards.iter().filter_map(|shard| self.resize_of(now, kept, shard)).collect()
    }

    fn resize_of(&mut self, now: Nanos, kept: f64, shard: &Replicated) -> Option<Resize> {
        let Settings { high, settle, .. } = self.settings;
        let newest = (shard.queue_length / f64::from(shard.replicas.max(1))).max(0.0);
        if !newest.is_finite() {
            return None;
        }
        let counted = newest.min(2.0 * high);
        let spare = self.spare(shard);
        let state = self.states.entry(shard.id).or_insert(State {
            average: newest,
            pressure: counted,
            changed: now,
        });
        state.average = kept * state.average + (1.0 - kept) * newest;
        state.pressure = kept * state.pressure + (1.0 - kept) * counted;
        if shard.growing {
            state.changed = now;
        }
        let average = state.average;
        let settled = now >= state.changed.saturating_add(settle);
        if shard.growing || !settled {
            return None;
        }
        let resize = if state.pressure.min(newest) > high && !shard.can_grow {
            Resize::Add { shard: shard.id, average }
        } else if shard.replicas > self.least.max(1) && average.max(newest) < spare {
            Resize::Remove { shard: shard.id, average }
        } else {
            return None;
        };
        state.changed = now;
        Some(resize)
    }

    /// The mean length below which a replica less is enough.
    fn spare(&self, shard: &Replicated) -> f64 {
        let replicas = f64::from(shard.replicas);
        relieved(self.settings.high, replicas / (replicas - 1.0) / MARGIN)
    }
}

#[cfg(test)]
mod tests {
    use ground::window::SECOND;

    use super::*;

    /// Mean length at each of `n` M/M/1 replicas that divide a load.
    fn length(load: f64, n: u32) -> f64 {
        let utilisation = load / f64::from(n);
        if utilisation < 1.0 { utilisation / (1.0 - utilisation) } else { 1e3 }
    }

    /// Serves constant loads in turn; returns the replicas at the end of each, and the number of changes.
    fn serve(loads: &[f64]) -> (Vec<u32>, usize) {
        let mut replicas = Replicas::new(Settings::default(), 1).unwrap();
        let (mut n, mut now, mut changes) = (1, 0, 0);
        let mut ends = Vec::new();
        for &load in loads {
            for _ in 0..1200 {
                let queue_length = f64::from(n) * length(load, n);
                let (can_grow, growing) = (false, false);
                let seen = Replicated { id: 1, replicas: n, queue_length, can_grow, growing };
                for resize in replicas.observe(now, &[seen]) {
                    changes += 1;
                    match resize {
                        Resize::Add { .. } => n += 1,
                        Resize::Remove { .. } => n -= 1,
                    }
                }
                now += SECOND / 4;
            }
            ends.push(n);
        }
        (ends, changes)
    }

    #[test]
    fn replicas_follow_the_load_and_do_not_oscillate() {
        // At 4 requests in the queue a replica is busy 0.8 of the time.
        let (ends, changes) = serve(&[0.5, 1.5, 7.9, 7.9, 0.1]);
        assert_eq!(ends, [1, 2, 10, 10, 1]);
        assert_eq!(changes, 1 + 8 + 9, "and none under the same load again");
    }

    #[test]
    fn a_shard_that_can_grow_gets_no_replica() {
        let mut replicas = Replicas::new(Settings::default(), 1).unwrap();
        let mut seen =
            Replicated { id: 1, replicas: 1, queue_length: 50.0, can_grow: true, growing: false };
        for step in 0..100 {
            assert!(replicas.observe(step * SECOND, &[seen]).is_empty());
            seen.growing = step > 50;
        }
        (seen.can_grow, seen.growing) = (false, false);
        let settle = Settings::default().settle;
        let first = (100..200).find(|step| !replicas.observe(step * SECOND, &[seen]).is_empty());
        assert_eq!(first, Some(99 + settle / SECOND));
        // One replica is the least, however idle.
        seen.queue_length = 0.0;
        assert!((300..400).all(|step| replicas.observe(step * SECOND, &[seen]).is_empty()));
    }
}
