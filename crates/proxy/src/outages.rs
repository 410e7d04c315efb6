//! Says in the log when a server fails and when it answers again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::pool::Outage;
use ground::outage::OutageLine;
use ground::window::Nanos;
use tracing::{info, warn};

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

    /// Takes over why a server failed that had another place in `before`.
    pub(crate) fn go_on(&self, server: usize, before: &Reasons, was: usize) {
        let reason = before.lock().get(was).cloned().flatten();
        if let Some(place) = self.lock().get_mut(server) {
            *place = reason;
        }
    }

    fn forget(&self, server: usize) {
        if let Some(reason) = self.lock().get_mut(server) {
            *reason = None;
        }
    }
}

/// What the log says of one server.
#[derive(Clone, Default)]
struct ServerLine {
    outage: OutageLine,
    /// How often it had failed at the last look.
    failures: u64,
}

/// The log of all servers' outages: each once with its end, of one server at most one every ten seconds.
#[derive(Default)]
pub(crate) struct OutageLog(Vec<ServerLine>);

impl OutageLog {
    /// The log of servers that had these places; `None` for one that is new.
    pub(crate) fn reordered(&self, places: &[Option<usize>]) -> OutageLog {
        let line = |place: &Option<usize>| place.and_then(|at| self.0.get(at).cloned());
        OutageLog(places.iter().map(|place| line(place).unwrap_or_default()).collect())
    }

    /// Looks at the servers: `outages` has one for each name.
    pub(crate) fn look(
        &mut self,
        now: Nanos,
        outages: &[Outage],
        names: &[String],
        reasons: &Reasons,
    ) {
        self.0.resize(outages.len(), ServerLine::default());
        for (at, (line, outage)) in self.0.iter_mut().zip(outages).enumerate() {
            let name = names.get(at).map_or("", String::as_str);
            let failed = outage.failures > line.failures;
            line.failures = outage.failures;
            // One that goes on may be due for its line since another came before it.
            let goes_on = line.outage.is_out() && !outage.is_up;
            if (failed || goes_on)
                && let Some(start) = line.outage.fail(now)
            {
                warn!("the server {name} failed: {}{start}", reasons.reason(at));
            }
            if outage.is_up && line.outage.is_out() {
                if let Some(seconds) = line.outage.answer(now, now) {
                    info!("the server {name} answers again after {seconds:.1} s");
                }
                reasons.forget(at);
            }
        }
    }
}
