//! When the log tells of failures of something behind: each outage once with its end, and at most one line of failures in ten
//! seconds, however often it fails. What is behind is a server, a node or the store; each has an [`OutageLine`] of its own, and
//! whoever asks it writes the lines.

use crate::window::{Nanos, SECOND};

/// The time between two lines about failures of one thing.
const EVERY: Nanos = 10 * SECOND;

/// What the log has said of one thing that may fail.
///
/// ```
/// use ground::outage::OutageLine;
///
/// const SECOND: u64 = 1_000_000_000;
/// let mut line = OutageLine::default();
/// assert_eq!(line.fail(0).unwrap().to_string(), "");
/// assert!(line.fail(SECOND).is_none());
/// assert_eq!(line.answer(2 * SECOND, 5 * SECOND), Some(5.0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct OutageLine {
    /// When the outage under way began.
    since: Option<Nanos>,
    /// When the last failure was.
    failed: Nanos,
    /// When a failure was last told.
    told: Option<Nanos>,
    /// Whether the outage under way was told.
    is_told: bool,
    /// Outages that ended untold since the last line.
    left_out: u64,
}

/// What a line about a failure says beside the reason. It is printed after the reason: empty for a failure that is told at once
/// with none before it left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutageStart {
    /// How long it has failed.
    pub ago: Nanos,
    /// Shorter outages since the last line, which have no line.
    pub left_out: u64,
}

impl std::fmt::Display for OutageStart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.ago >= SECOND / 10 {
            write!(f, " (for {:.1} s already)", self.ago as f64 / 1e9)?;
        }
        match self.left_out {
            0 => Ok(()),
            1 => write!(f, " (1 shorter failure since the last line is left out)"),
            n => write!(f, " ({n} shorter failures since the last line are left out)"),
        }
    }
}

impl OutageLine {
    /// Notes a failure at `now`; returns what to tell if a line is due.
    pub fn fail(&mut self, now: Nanos) -> Option<OutageStart> {
        self.failed = now;
        let since = *self.since.get_or_insert(now);
        let is_due = self.told.is_none_or(|told| now.saturating_sub(told) >= EVERY);
        if self.is_told || !is_due {
            return None;
        }
        (self.is_told, self.told) = (true, Some(now));
        let left_out = std::mem::take(&mut self.left_out);
        Some(OutageStart { ago: now.saturating_sub(since), left_out })
    }

    /// Notes at `now` that what was sent at `sent` was answered; returns the length of the outage that this ends, in seconds, if
    /// the log has its beginning. What was sent before the last failure ends nothing: it may have been answered before that.
    pub fn answer(&mut self, sent: Nanos, now: Nanos) -> Option<f64> {
        if sent < self.failed {
            return None;
        }
        let since = self.since.take()?;
        if std::mem::take(&mut self.is_told) {
            return Some(now.saturating_sub(since) as f64 / 1e9);
        }
        self.left_out += 1;
        None
    }

    /// Whether an outage is under way.
    pub fn is_out(&self) -> bool {
        self.since.is_some()
    }

    /// When the last failure was; 0 if there was none.
    pub fn failed_at(&self) -> Nanos {
        self.failed
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_outage_is_told_once_with_its_end() {
        let mut line = OutageLine::default();
        assert!(line.answer(0, SECOND).is_none() && !line.is_out());
        assert_eq!(line.fail(SECOND), Some(OutageStart { ago: 0, left_out: 0 }));
        assert!(line.fail(2 * SECOND).is_none() && line.fail(60 * SECOND).is_none());
        // What was sent before the last failure says nothing.
        assert!(line.answer(59 * SECOND, 61 * SECOND).is_none() && line.is_out());
        assert_eq!(line.answer(61 * SECOND, 62 * SECOND), Some(61.0));
        assert!(line.answer(62 * SECOND, 63 * SECOND).is_none());
    }

    #[test]
    fn short_outages_are_counted_and_long_ones_told_late() {
        let mut line = OutageLine::default();
        assert!(line.fail(0).is_some());
        assert!(line.answer(1, 2).is_some());
        for at in 1..4 {
            assert!(line.fail(at * SECOND).is_none());
            assert!(line.answer(at * SECOND, at * SECOND + 1).is_none());
        }
        // One that begins too soon after a line is told when it has lasted.
        assert!(line.fail(5 * SECOND).is_none());
        let start = line.fail(10 * SECOND).unwrap();
        assert_eq!(start, OutageStart { ago: 5 * SECOND, left_out: 3 });
        assert_eq!(
            start.to_string(),
            " (for 5.0 s already) (3 shorter failures since the last line are left out)"
        );
        assert_eq!(line.answer(11 * SECOND, 11 * SECOND), Some(6.0));
        let one = OutageStart { ago: 0, left_out: 1 };
        assert_eq!(one.to_string(), " (1 shorter failure since the last line is left out)");
    }

    proptest! {
        /// Whatever fails and answers: beginnings and ends alternate, beginnings are ten seconds apart, and each outage that lasts
        /// longer than that is told.
        #[test]
        fn lines_are_pairs_and_rare(steps in prop::collection::vec((0..3 * SECOND, any::<bool>()), 0..200)) {
            let (mut line, mut now) = (OutageLine::default(), 0);
            let (mut open, mut last, mut began) = (false, None, None);
            for (wait, fails) in steps {
                now += wait;
                if fails {
                    began.get_or_insert(now);
                    if line.fail(now).is_some() {
                        prop_assert!(!open);
                        prop_assert!(last.is_none_or(|last| now - last >= EVERY));
                        (open, last) = (true, Some(now));
                    }
                    prop_assert!(open || began.is_some_and(|began| now - began < EVERY));
                } else {
                    prop_assert_eq!(line.answer(now, now).is_some(), open);
                    (open, began) = (false, None);
                }
                prop_assert_eq!(line.is_out(), began.is_some());
            }
        }
    }
}
