//! Processes whose version or configuration differs from this one's: each is logged once and listed
//! in the status.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use engine::status::ProcessMismatch;
use ground::window::{Nanos, SECOND};
use tracing::warn;

use record::clock;

/// Maximum number of processes remembered. Other processes supply the names, so this is bounded.
const PROCESSES_MAX: usize = 64;

struct Noted {
    what: String,
    /// When `what` was noted.
    since: Nanos,
    last: Nanos,
    times: u64,
}

/// After so long another text about a process is another difference: before, both sides may describe the same one in other words.
const ANOTHER_AFTER: Nanos = 3600 * SECOND;

/// All mismatches noted so far, by process.
#[derive(Default)]
pub struct Mismatches(Mutex<BTreeMap<String, Noted>>);

impl Mismatches {
    /// Notes a mismatch with the process `peer`. Only the first one of a process is logged and
    /// kept, for an hour; others are counted. Of too many processes the one that was not heard of for longest is forgotten.
    pub fn note(&self, peer: &str, what: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = clock::now();
        // Names that never end do not fill the log either.
        let is_full = noted.len() >= PROCESSES_MAX && !noted.contains_key(peer);
        if let Some(known) = noted.get_mut(peer) {
            known.last = last;
            known.times += 1;
            if known.what == what || last.saturating_sub(known.since) < ANOTHER_AFTER {
                return;
            }
        } else if is_full {
            let oldest = noted.iter().min_by_key(|(_, noted)| noted.last);
            let oldest = oldest.map(|(peer, _)| peer.clone());
            oldest.and_then(|peer| noted.remove(&peer));
        }
        if !is_full {
            warn!("{peer}: {what}");
        }
        let what = what.to_owned();
        noted.insert(peer.to_owned(), Noted { what, since: last, last, times: 1 });
    }

    /// The mismatches noted so far.
    pub fn list(&self) -> Vec<ProcessMismatch> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let shown = |(peer, noted): (&String, &Noted)| ProcessMismatch {
            peer: peer.clone(),
            what: noted.what.clone(),
            times: noted.times,
            last_s_ago: now.saturating_sub(noted.last) as f64 / 1e9,
        };
        noted.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_processes_are_listed() {
        let mismatches = Mismatches::default();
        for number in 0..3 * PROCESSES_MAX {
            mismatches.note(&format!("node-{number}"), "another version");
        }
        mismatches.note("node-191", "in other words");
        let all = mismatches.list();
        assert_eq!(all.len(), PROCESSES_MAX);
        let last = all.iter().find(|it| it.peer == "node-191").unwrap();
        assert_eq!((&*last.what, last.times), ("another version", 2));
    }
}
