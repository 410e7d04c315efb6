//! Other pools for a running proxy.
//!
//! All requests under way end first, and nothing is read from clients meanwhile: writes of one key have an order only
//! within one set of decisions, and a copy that is still on its way would overtake a later write. Then the threads end, and new
//! ones begin with the same listener, the same connections and what was read from them. Usually that takes as long as a
//! request; at most `drain`, after which connections that have not got their replies are closed.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use engine::pool::Status;
use ground::window::Nanos;

use crate::stream::Stream;
use crate::{Entrance, Error, Proxy, Settings};

/// A client's connection between two sets of threads.
pub(crate) struct Carried {
    pub(crate) stream: Stream,
    /// The beginning of a request.
    pub(crate) rest: Vec<u8>,
    /// Bytes of a refused value that are still to come.
    pub(crate) skip: u64,
}

impl From<Stream> for Carried {
    fn from(stream: Stream) -> Carried {
        Carried { stream, rest: Vec::new(), skip: 0 }
    }
}

/// Which servers of new settings may hold old values: those that may have missed writes, that were at another address
/// before, or that this process had and gave up.
fn distrusted(
    old: &Status,
    addresses: &[String],
    retired: &BTreeSet<String>,
    settings: &Settings,
) -> Vec<bool> {
    let servers = settings.pools.servers.iter().zip(&settings.addresses);
    let distrusted = servers.map(|(server, address)| {
        let mut before = old.servers.iter().zip(addresses);
        match before.find(|(before, _)| before.name == server.name) {
            Some((before, at)) => before.stale || *at != address.to_string(),
            None => retired.contains(&server.name),
        }
    });
    distrusted.collect()
}

impl Proxy {
    /// Ends this proxy, and starts one with other settings in its place, with its listener and its clients. Its windows up to
    /// then are still its own.
    ///
    /// # Errors
    /// A thread cannot be started: nothing is served any more. Settings that listen elsewhere are refused before
    /// anything ends.
    pub fn replace(&self, settings: Settings, now: Nanos) -> Result<Proxy, Error> {
        if settings.listen != self.listen {
            return Err(Error::ListenChanged);
        }
        let old = self.shared.pool_status(now);
        let addresses: Vec<String> =
            self.shared.addresses.iter().map(ToString::to_string).collect();
        let distrusted = distrusted(&old, &addresses, &self.retired, &settings);
        let mut retired = self.retired.clone();
        retired.extend(old.servers.iter().map(|server| server.name.clone()));
        self.shared.collect();
        self.stop();
        let (listener, carried) = self.shared.collected();
        let listener = listener.ok_or(Error::ListenChanged)?;
        let pass_on = self.shared.pass_on;
        let entrance = Entrance { listener, carried, pass_on, distrusted, retired };
        Proxy::enter(settings, entrance, now)
    }
}

impl crate::shared::Shared {
    /// What was collected when the threads have ended.
    fn collected(&self) -> (Option<crate::stream::Listener>, Vec<Carried>) {
        std::mem::take(&mut *self.collected.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
