//! The state of the hot class: how often keys are read, from which benefit on objects fit, what was moved, and what it bought.

use std::collections::VecDeque;

use ground::window::{Nanos, Outcome, SECOND};
use serde::{Deserialize, Serialize};

use crate::node::device::Device;
use crate::node::event::DeviceId;
use crate::node::settings::TierSettings;
use crate::tier::{Popularity, SCALES, Saved, Worth, mean_lives};
use ground::Key;

/// How far above the level an object must be to be copied, in standard errors of its count at the level.
const ERRORS: f64 = 0.5;
/// Objects that are listed as the hottest.
const LISTED: usize = 32;
/// Moves that are listed.
const MOVES_LISTED: usize = 64;
/// Keys of which the curve of reads against bytes is made.
const SAMPLED: usize = 8192;
/// The level of benefit is computed anew this many times in the remembered time, but at least once in
/// `LEVEL_MAX`, and whenever a segment of a hot device is full.
const LEVELS: Nanos = 64;
const LEVEL_MAX: Nanos = 10 * SECOND;
/// Multiples of the hot bytes of which the best placement's share is reported.
const SHARES_AT: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// Bytes written again for each byte of a new copy. Each write to a full log puts out as much, and
/// if all of that were written again, the log would turn for ever; so a log of which more than
/// 16/17 is worth its bytes loses some of it.
const AGAIN_MAX: f64 = 16.0;
const MINUTE: Nanos = 60 * SECOND;

/// Counts of what moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moves {
    /// Objects copied to a hot device.
    pub promoted: u64,
    /// Their bytes.
    pub promoted_bytes: u64,
    /// Hot copies written again because their segment was about to be dropped.
    pub reinserted: u64,
    /// Their bytes.
    pub reinserted_bytes: u64,
    /// Hot copies that went with their segment.
    pub demoted: u64,
    /// Copies put off because as many bytes were written as `promote_bytes` allows.
    pub put_off: u64,
}

/// What reads from devices brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bought {
    /// Reads that a hot device served.
    pub hot_reads: u64,
    /// Reads that a bulk device served.
    pub bulk_reads: u64,
    /// Reads of objects with a hot copy that a bulk device served, because there the expected wait
    /// was shorter.
    pub hot_passed_by: u64,
    /// Seconds that hot reads took less than a bulk device was expected to take at that moment.
    pub saved_s: f64,
}

/// An object on a hot device, and why it is there.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hottest {
    /// The key; bytes that are not UTF-8 are replaced.
    pub key: String,
    /// Its record's bytes.
    pub bytes: u64,
    /// Reads per second that reached the devices, when it was last read.
    pub reads_per_s: f64,
    /// The expected wait that each of them saved then, seconds.
    pub saved_s: f64,
    /// The benefit: seconds saved in a second for each byte.
    pub benefit: f64,
    /// Whether the configuration pins it.
    pub pinned: bool,
}

/// What was done with a copy on a hot device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveKind {
    /// It was copied to a hot device.
    Promoted,
    /// It was written again, before its segment was dropped.
    Reinserted,
    /// It went with its segment.
    Demoted,
}

impl Moves {
    pub(in crate::node) fn since(&self, before: &Moves) -> Moves {
        Moves {
            promoted: self.promoted - before.promoted,
            promoted_bytes: self.promoted_bytes - before.promoted_bytes,
            reinserted: self.reinserted - before.reinserted,
            reinserted_bytes: self.reinserted_bytes - before.reinserted_bytes,
            demoted: self.demoted - before.demoted,
            put_off: self.put_off - before.put_off,
        }
    }
}

/// A move, as it is kept.
pub(in crate::node) struct Noted {
    pub at: Nanos,
    pub key: Key,
    pub what: MoveKind,
    pub benefit: f64,
    pub level: f64,
}

/// An object that is to be read in the background before its segment is dropped.
pub(super) struct Rescue {
    pub(super) device: DeviceId,
    pub(super) segment: u64,
    pub(super) key: Key,
}

/// The state of the hot class.
pub(in crate::node) struct Hot {
    pub counts: Popularity<{ SCALES.len() }>,
    pub worth: Worth,
    /// Bytes of the hot devices, and the part that objects worth a copy should take.
    bytes: f64,
    budget: f64,
    pub share_at: Vec<(f64, f64)>,
    /// Whether objects that are not pinned are copied.
    pub copying: bool,
    pub level: f64,
    pub(super) level_at: Nanos,
    level_every: Nanos,
    tokens: f64,
    tokens_at: Nanos,
    /// Bytes that may be written again.
    again: f64,
    pub(super) rescues: VecDeque<Rescue>,
    pub(super) rescues_under_way: usize,
    pub bought: Bought,
    pub moves: Moves,
    /// The moves when the current minute and the one before began.
    pub minutes: [Moves; 2],
    minute: Nanos,
    pub hottest: Vec<(Key, Hottest)>,
    pub moved: VecDeque<Noted>,
}

impl Hot {
    pub fn new(settings: &TierSettings, devices: &[Device], now: Nanos) -> Option<Hot> {
        let hot = |device: &&Device| device.outcome == Outcome::HotDevice;
        let count = devices.iter().filter(hot).count();
        if count == 0 || count == devices.len() {
            return None;
        }
        let bytes: u64 = devices.iter().filter(hot).map(|device| device.log.bytes_max()).sum();
        Some(Hot {
            counts: Popularity::with_lives(settings.counters, mean_lives(settings.memory), now),
            worth: Worth::new(SAMPLED, settings.memory, now),
            level_every: (settings.memory / LEVELS).clamp(1, LEVEL_MAX),
            bytes: bytes as f64,
            budget: bytes as f64 * settings.fill,
            share_at: Vec::new(),
            copying: true,
            level: 0.0,
            level_at: now,
            tokens: settings.promote_bytes_per_s as f64,
            tokens_at: now,
            again: 0.0,
            rescues: VecDeque::new(),
            rescues_under_way: 0,
            bought: Bought::default(),
            moves: Moves::default(),
            minutes: [Moves::default(); 2],
            minute: now,
            hottest: Vec::new(),
            moved: VecDeque::new(),
        })
    }

    /// A background read did not begin.
    pub fn rescue_refused(&mut self) {
        self.rescues_under_way = self.rescues_under_way.saturating_sub(1);
    }

    /// The least benefit per byte of what fits, in decayed reads × seconds ÷ bytes.
    pub(super) fn level_now(&mut self, saved: Saved, now: Nanos) -> f64 {
        if now >= self.level_at {
            self.worth.look(saved, self.budget, now);
            self.level = self.worth.level();
            let placement = self.worth.placement(saved, now);
            let share = |times| Some((times, placement.share(self.bytes * times)?));
            self.share_at = SHARES_AT.into_iter().filter_map(share).collect();
            self.level_at = now + self.level_every;
        }
        self.level
    }

    /// Takes bytes from the bucket, which holds a second's. Copies of what is on a hot device come
    /// before others: these leave half of the bucket. Returns whether they may be written.
    pub fn take(
        &mut self,
        settings: &TierSettings,
        bytes: u64,
        again: bool,
        pinned: bool,
        now: Nanos,
    ) -> bool {
        let (bytes, per_s) = (bytes as f64, settings.promote_bytes_per_s as f64);
        let past = now.saturating_sub(self.tokens_at) as f64 / SECOND as f64;
        self.tokens = (self.tokens + past * per_s).min(per_s);
        self.tokens_at = self.tokens_at.max(now);
        let kept = if again { 0.0 } else { per_s / 2.0 };
        // A full bucket lets any object pass, however small the bucket is.
        let there = per_s > 0.0 && (self.tokens - bytes >= kept || self.tokens >= per_s);
        if !there {
            self.moves.put_off += 1;
            return false;
        }
        if again && !pinned && self.again < bytes {
            return false;
        }
        self.tokens -= bytes;
        self.again = match again {
            true => (self.again - bytes).max(0.0),
            false => (self.again + AGAIN_MAX * bytes).min(self.budget),
        };
        true
    }

    /// The decayed reads of a key, over the time that is best at the moment.
    pub(super) fn count(&mut self, key: &[u8], now: Nanos) -> f64 {
        self.counts.counts(key, now)[self.worth.scale()]
    }

    /// Reads per second that a decayed count stands for.
    pub fn rate(&self, count: f64, now: Nanos) -> f64 {
        self.counts.rate_of(self.worth.scale(), count, now)
    }

    /// The multiple of the level from which on an object is copied: a standard error of the count that an
    /// object at the level has, so that what is there by chance does not move, but at most the setting.
    pub(super) fn hysteresis(&self, saved: Saved, bytes: u64, most: f64) -> f64 {
        let at_level = self.level * bytes.max(1) as f64 / saved.of_s(bytes);
        // Not a number if a copy saves nothing.
        most.min(1.0 + ERRORS / at_level.sqrt())
    }

    pub fn note(&mut self, now: Nanos, key: &Key, what: MoveKind, benefit: f64) {
        self.roll(now);
        if self.moved.len() >= MOVES_LISTED {
            self.moved.pop_front();
        }
        let level = self.level;
        self.moved.push_back(Noted { at: now, key: key.clone(), what, benefit, level });
    }

    pub fn roll(&mut self, now: Nanos) {
        let past = now.saturating_sub(self.minute);
        if past >= MINUTE {
            let before = if past < 2 * MINUTE { self.minutes[1] } else { self.moves };
            self.minutes = [before, self.moves];
            self.minute = now - past % MINUTE;
        }
    }

    /// Lists an object that a hot device served.
    pub(super) fn list(&mut self, key: &Key, hottest: Hottest) {
        if let Some((_, listed)) = self.hottest.iter_mut().find(|(listed, _)| listed == key) {
            *listed = hottest;
            return;
        }
        if self.hottest.len() < LISTED {
            return self.hottest.push((key.clone(), hottest));
        }
        let least = self.hottest.iter_mut().min_by(|a, b| a.1.benefit.total_cmp(&b.1.benefit));
        if let Some(least) = least
            && least.1.benefit < hottest.benefit
        {
            *least = (key.clone(), hottest);
        }
    }
}
