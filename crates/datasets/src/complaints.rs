//! What the log has been told of datasets that fail: a fault that lasts is one line, not one each look.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the log is not told again that a dataset fails as it did.
const PAUSE: Duration = Duration::from_secs(600);

/// The last fault of each dataset that fails, and when the log was told.
#[derive(Default)]
pub struct Complaints(Mutex<BTreeMap<String, (String, Instant)>>);

impl Complaints {
    /// Whether the log does not say yet that a dataset fails with `error`, or that it fails no more.
    pub fn is_news(&self, name: &str, error: Option<&str>, now: Instant) -> bool {
        let mut complaints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(error) = error else { return complaints.remove(name).is_some() };
        let is_known = |(last, at): &(String, Instant)| {
            last == error && now.saturating_duration_since(*at) < PAUSE
        };
        if complaints.get(name).is_some_and(is_known) {
            return false;
        }
        complaints.insert(name.to_owned(), (error.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_manifest_is_one_line_and_not_one_every_two_seconds() {
        let (complaints, start) = (Complaints::default(), Instant::now());
        let at = |s: u64| start + Duration::from_secs(s);
        assert!(!complaints.is_news("a", None, at(0)));
        assert!(complaints.is_news("a", Some("bad"), at(0)));
        assert!(!complaints.is_news("a", Some("bad"), at(2)));
        assert!(complaints.is_news("b", Some("bad"), at(2)));
        assert!(complaints.is_news("a", Some("worse"), at(4)));
        assert!(!complaints.is_news("a", Some("worse"), at(603)));
        assert!(complaints.is_news("a", Some("worse"), at(604)));
        assert!(complaints.is_news("a", None, at(606)));
        assert!(!complaints.is_news("a", None, at(608)));
    }
}
