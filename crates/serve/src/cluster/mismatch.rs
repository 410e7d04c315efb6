//! Processes whose version or configuration is not ours: named once in the log, and in the status.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use model::window::Nanos;
use serde::Serialize;
use tracing::warn;

use record::clock;

/// Processes that are remembered. Names come from others, so their number is bounded.
const PROCESSES_MAX: usize = 64;

struct Noted {
    what: String,
    last: Nanos,
    times: u64,
}

/// All that were noticed.
#[derive(Default)]
pub struct Mismatches(Mutex<BTreeMap<String, Noted>>);

/// One of them, for the status.
#[derive(Debug, Serialize)]
pub struct Mismatch {
    /// The member, or `gateway`.
    pub peer: String,
    /// What differs.
    pub what: String,
    /// Requests that were refused because of it.
    pub times: u64,
    /// Seconds since the last of them.
    pub last_s_ago: f64,
}

impl Mismatches {
    /// A process is not fit to talk to. It is logged when something new is the matter with it.
    pub fn note(&self, peer: &str, what: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = clock::now();
        if let Some(known) = noted.get_mut(peer) {
            known.last = last;
            known.times += 1;
            // What differs may be told from both sides: that is one matter.
            return;
        }
        if noted.len() < PROCESSES_MAX {
            warn!("{peer}: {what}");
            noted.insert(peer.to_owned(), Noted { what: what.to_owned(), last, times: 1 });
        }
    }

    /// What was noted so far.
    pub fn list(&self) -> Vec<Mismatch> {
        let noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        let shown = |(peer, noted): (&String, &Noted)| Mismatch {
            peer: peer.clone(),
            what: noted.what.clone(),
            times: noted.times,
            last_s_ago: now.saturating_sub(noted.last) as f64 / 1e9,
        };
        noted.iter().map(shown).collect()
    }
}
