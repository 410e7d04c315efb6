//! Processes whose version or configuration differs from this one's: each is logged once and listed
//! in the status.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use engine::status::ProcessMismatch;
use ground::window::Nanos;
use tracing::warn;

use record::clock;

/// Maximum number of processes remembered. Other processes supply the names, so this is bounded.
const PROCESSES_MAX: usize = 64;

struct Noted {
    what: String,
    last: Nanos,
    times: u64,
}

/// All mismatches noted so far, by process.
#[derive(Default)]
pub struct Mismatches(Mutex<BTreeMap<String, Noted>>);

impl Mismatches {
    /// Notes a mismatch with the process `peer`. Only the first one of a process is logged and
    /// kept; later ones are counted.
    pub fn note(&self, peer: &str, what: &str) {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = clock::now();
        if let Some(known) = noted.get_mut(peer) {
            known.last = last;
            known.times += 1;
            // Both sides may describe the same difference in other words: report it once.
            return;
        }
        if noted.len() < PROCESSES_MAX {
            warn!("{peer}: {what}");
            noted.insert(peer.to_owned(), Noted { what: what.to_owned(), last, times: 1 });
        }
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
