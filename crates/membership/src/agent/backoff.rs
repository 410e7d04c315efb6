//! How long a node that was lost stays away.

use ground::window::{Nanos, SECOND};

/// Losses further apart than this have nothing to do with each other.
const FORGOTTEN: Nanos = 60 * SECOND;

/// The first and the longest pause of a node that is lost again.
const PAUSES: (Nanos, Nanos) = (SECOND, 8 * SECOND);

/// When a node that others lost may be live again: at once, the first time. Where it is lost again within a minute,
/// each pause is twice as long as the one before. A node whose processor is overloaded answers late, is lost, and
/// answers in time as soon as it has nothing to do; without pauses it would come and go several times a second, and
/// each change of the list costs everybody work.
#[derive(Debug, Default)]
pub struct Backoff {
    was_live: bool,
    lost: Option<Nanos>,
    pause: Nanos,
}

impl Backoff {
    /// Notes whether the list has this node as live.
    pub fn note(&mut self, is_live: bool, now: Nanos) {
        if self.was_live && !is_live {
            let again = self.lost.is_some_and(|at| now < at + FORGOTTEN);
            self.pause = if again { (2 * self.pause).clamp(PAUSES.0, PAUSES.1) } else { 0 };
            self.lost = Some(now);
        }
        self.was_live = is_live;
    }

    /// Whether the pause is over.
    pub fn is_over(&self, now: Nanos) -> bool {
        self.lost.is_none_or(|at| now >= at + self.pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_lost_again_and_again_stays_away_for_longer() {
        let (mut rest, mut now, mut changes) = (Backoff::default(), 0, 0);
        let mut aways = Vec::new();
        while now < 120 * SECOND {
            rest.note(true, now);
            now += SECOND / 5;
            rest.note(false, now);
            let since = now;
            while !rest.is_over(now) {
                now += SECOND / 10;
                rest.note(false, now);
            }
            aways.push((now - since) / SECOND);
            changes += 2;
        }
        assert_eq!(aways[..6], [0, 1, 2, 4, 8, 8]);
        assert!(changes < 45, "{changes}");
        // A minute later nothing is held against it.
        rest.note(true, now);
        rest.note(false, now + FORGOTTEN + 8 * SECOND);
        assert!(rest.is_over(now + FORGOTTEN + 8 * SECOND));
    }
}
