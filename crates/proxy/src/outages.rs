//! Says in the log when a server fails and when it answers again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::pool::Outage;
use ground::window::{Nanos, SECOND};
use tracing::{info, warn};

/// Time between two lines about failures of one server.
const EVERY: Nanos = 10 * SECOND;

/// Why servers failed, by server.
pub(crate) struct Reasons(Mutex<Vec<Option<String>>>);

impl Reasons {
    pub(crate) fn new(servers: usize) -> Reasons {
        Reasons(Mutex::new(vec![None; servers]))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Option<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes why a connection to a server failed.
    pub(crate) fn note(&self, server: usize, why: String) {
        if let Some(reason) = self.lock().get_mut(server) {
            *reason = Some(why);
        }
    }

    /// Why a server that does not answer failed.
    pub(crate) fn reason(&self, server: usize) -> String {
        let reason = self.lock().get(server).cloned().flatten();
        reason.unwrap_or_else(|| "no reply within the time limit".to_owned())
    }

    fn forget(&self, server: usize) {
        if let Some(reason) = self.lock().get_mut(server) {
            *reason = None;
        }
    }
}

/// What the log says of one server.
#[derive(Clone, Default)]
struct Line {
    /// Since when it does not answer.
    since: Option<Nanos>,
    failures: u64,
    /// When its failure was last told; 0: never.
    told: Nanos,
    /// Whether the outage under way was.
    tells: bool,
    left_out: u64,
}

/// The log of all servers' outages: each once with its end, of one server at most one every ten seconds.
#[derive(Default)]
pub(crate) struct OutageLog(Vec<Line>);

impl OutageLog {
    /// Looks at the servers: `outages` has one for each name.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        outages: &[Outage],
        names: &[String],
        reasons: &Reasons,
    ) {
        self.0.resize(outages.len(), Line::default());
        for (at, (line, outage)) in self.0.iter_mut().zip(outages).enumerate() {
            let name = names.get(at).map_or("", String::as_str);
            let failed = outage.failures > line.failures;
            line.failures = outage.failures;
            if failed && line.since.is_none() {
                line.since = Some(now);
                line.tells = line.told == 0 || now.saturating_sub(line.told) >= EVERY;
                if line.tells {
                    line.told = now;
                    let before = match std::mem::take(&mut line.left_out) {
                        0 => String::new(),
                        n => format!(" ({n} shorter failures since the last line are left out)"),
                    };
                    warn!("the server {name} failed: {}{before}", reasons.reason(at));
                } else {
                    line.left_out += 1;
                }
            }
            if !outage.is_up {
                continue;
            }
            if let Some(since) = line.since.take() {
                if std::mem::take(&mut line.tells) {
                    let seconds = now.saturating_sub(since) as f64 * 1e-9;
                    info!("the server {name} answers again after {seconds:.1} s");
                }
                reasons.forget(at);
            }
        }
    }
}
