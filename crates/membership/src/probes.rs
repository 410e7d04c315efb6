//! Whether the members that this one watches answer.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ground::window::Nanos;
use http::Method;
use record::clock;
use tokio::sync::Notify;

use peer::{Limits, Outgoing, Pool, RequestHead};
use wire::tls::Dialer;

/// One watched member.
struct Probe {
    address: SocketAddr,
    pool: Pool,
    /// Since when it does not answer.
    failing: Option<Nanos>,
    /// A ping is under way.
    asked: bool,
}

/// The watched members.
pub struct Probes {
    suspect: Nanos,
    limits: Limits,
    dialer: Option<Arc<Dialer>>,
    all: Mutex<HashMap<String, Probe>>,
}

impl Probes {
    /// Members are suspected after this time without an answer.
    pub fn new(suspect: Nanos, dialer: Option<Arc<Dialer>>) -> Arc<Probes> {
        let connect = Duration::from_nanos(suspect);
        let limits = Limits { connect, ..Limits::default() };
        Arc::new(Probes { suspect, limits, dialer, all: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Probe>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches these members and no others.
    pub fn watch(&self, members: &[(&str, SocketAddr)]) {
        let mut all = self.lock();
        all.retain(|name, probe| members.contains(&(name.as_str(), probe.address)));
        for &(name, address) in members {
            all.entry(name.to_owned()).or_insert_with(|| Probe {
                address,
                pool: Pool::encrypted(
                    address,
                    &RequestHead::default(),
                    self.limits,
                    self.dialer.clone(),
                ),
                failing: None,
                asked: false,
            });
        }
    }

    /// The watched members, and whether each is suspected.
    pub fn suspected(&self) -> Vec<(String, bool)> {
        let now = clock::now();
        let late = |probe: &Probe| probe.failing.is_some_and(|at| now >= at + self.suspect);
        self.lock().iter().map(|(name, probe)| (name.clone(), late(probe))).collect()
    }

    /// Pings them for ever; rings when one begins to be suspected, or answers again.
    pub async fn run(self: Arc<Self>, bell: Arc<Notify>) {
        let every = Duration::from_nanos((self.suspect / 5).max(1_000_000));
        let mut ticks = tokio::time::interval(every);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = clock::now();
        loop {
            ticks.tick().await;
            let now = clock::now();
            let late = now.saturating_sub(std::mem::replace(&mut last, now)) > self.suspect / 2;
            let mut all = self.lock();
            if late {
                // This process stood still, or waited for a processor: what it took for the others' silence was its own.
                all.values_mut().for_each(|probe| probe.failing = None);
            }
            for (name, probe) in all.iter_mut().filter(|(_, probe)| !probe.asked) {
                probe.asked = true;
                let (name, pool, sent) = (name.clone(), probe.pool.clone(), clock::now());
                let (probes, bell) = (self.clone(), bell.clone());
                tokio::spawn(async move {
                    let within = Duration::from_nanos(probes.suspect / 2);
                    // Whatever it answers, it lives.
                    let ping = async {
                        let reply = pool.send(&Method::GET, "/healthz", &[], Outgoing::Empty).await;
                        match reply {
                            Ok(reply) => reply.body.gather(4096).await.is_ok(),
                            Err(_) => false,
                        }
                    };
                    let answers = tokio::time::timeout(within, ping).await.unwrap_or(false);
                    probes.note(&name, sent, answers, &bell);
                });
            }
        }
    }

    fn note(&self, name: &str, sent: Nanos, answers: bool, bell: &Notify) {
        let (mut all, now) = (self.lock(), clock::now());
        let Some(probe) = all.get_mut(name) else { return };
        probe.asked = false;
        let late = |failing: Option<Nanos>| failing.is_some_and(|at| now >= at + self.suspect);
        let was = late(probe.failing);
        probe.failing = if answers { None } else { probe.failing.or(Some(sent)) };
        if late(probe.failing) || was {
            bell.notify_one();
        }
    }
}
