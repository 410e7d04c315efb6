//! What hot devices hold.

use engine::node::{Choice, Pin, TierSettings};
use origin::{Checks, Size, section};

use super::sections::{Class, Device};

section! {
    /// What devices of class "hot" hold, beside devices of class "bulk": second copies of the
    /// objects whose copy saves the most time for its bytes.
    pub struct Tiers {
        /// Seconds over which reads are counted: a read of this age counts 1/e. Counts over 1/16, 1/4,
        /// 4 and 16 times as long are kept beside, and those are used that would have served most
        /// lately: short ones follow changes of popularity, long ones tell more objects apart.
        pub popularity_s: f64 = TierSettings::default().memory as f64 / 1e9,
        /// Counters of reads, of 80 bytes each: some four for each object that could be worth a
        /// copy.
        pub counters: u32 = TierSettings::default().counters as u32,
        /// Maximum bytes per second that are written to hot devices: a bound on their wear. 0: no
        /// copies.
        pub promote_bytes: Size = Size(TierSettings::default().promote_bytes_per_s),
        /// An object is copied if its copy is worth this many times the least worth of what fits;
        /// less is enough where objects at that border are read often.
        pub hysteresis: f64 = TierSettings::default().hysteresis,
        /// Keys that are copied at their first read and stay; with a * at the end, all keys that
        /// begin so: ["index.html", "logos/*"].
        pub pins: Vec<String> = Vec::new(),
        /// How one of two copies is chosen: "wait" (the shorter expected wait), or, for
        /// comparisons, "utilisation" or "round-robin".
        pub choice: Choice = Choice::Wait,
    }
}

impl Tiers {
    /// The engine's settings.
    pub fn settings(&self) -> TierSettings {
        TierSettings {
            memory: (self.popularity_s * 1e9) as u64,
            counters: self.counters as usize,
            hysteresis: self.hysteresis,
            promote_bytes_per_s: self.promote_bytes.0,
            pins: self.pins.iter().map(|text| pin(text)).collect(),
            choice: self.choice,
            ..TierSettings::default()
        }
    }

    pub(crate) fn check(&self, devices: &[Device], mut checks: Checks<'_>) {
        checks.between("popularity_s", self.popularity_s, 1.0, 1e7);
        checks.between("counters", self.counters, 16, 1 << 28);
        checks.between("hysteresis", self.hysteresis, 1.0, 100.0);
        checks.must(
            self.pins.iter().all(|pin| !pin.is_empty()),
            "pins",
            "names an empty key; write \"*\" for all keys",
        );
        let has = |class| devices.iter().any(|device| device.class == class);
        checks.must(
            self.pins.is_empty() || has(Class::Hot) && has(Class::Bulk),
            "pins",
            "need a [[device]] of class \"hot\" and one of class \"bulk\": without both, every object \
             has one copy",
        );
    }
}

fn pin(text: &str) -> Pin {
    match text.strip_suffix('*') {
        Some(prefix) => Pin::Prefix(prefix.into()),
        None => Pin::Key(text.into()),
    }
}
