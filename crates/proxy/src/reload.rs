//! Other pools for a running proxy.
//!
//! All requests under way end first, and nothing is read from clients meanwhile: writes of one key have an order only
//! within one set of decisions, and a copy that is still on its way would overtake a later write. Then the threads end, and new
//! ones begin with the same listener, the same connections and what was read from them. Usually that takes as long as a
//! request; at most `drain`, after which connections that have not got their replies are closed.

use std::sync::PoisonError;

use ground::window::Nanos;

use crate::carried::Carried;
use crate::error::Error;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::{Entrance, Proxy};

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
        self.shared.collect();
        self.stop();
        let (listener, carried) = self.shared.collected();
        let listener = listener.ok_or(Error::ListenChanged)?;
        let pass_on = self.shared.pass_on;
        let before = Some(self.shared.clone());
        let entrance = Entrance { listener, carried, pass_on, before };
        Proxy::enter(settings, entrance, now)
    }
}

impl Shared {
    /// What was collected when the threads have ended.
    fn collected(&self) -> (Option<crate::stream::Listener>, Vec<Carried>) {
        std::mem::take(&mut *self.collected.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes over what the proxy before counted and knew of servers, by their names. `carried`: connections that go on.
    pub(crate) fn inherit(&mut self, before: &Shared, carried: usize) {
        let mut pools = self.pools();
        pools.inherit(&before.pools());
        let mut known = Vec::new();
        for (at, (name, address)) in self.names.iter().zip(&self.addresses).enumerate() {
            let address = address.to_string();
            let is_here = |at: &usize| before.addresses[*at].to_string() == address;
            let same: Vec<usize> =
                (0..before.names.len()).filter(|&at| before.names[at] == *name).collect();
            // Two pools may have servers of one name.
            let here = same.iter().copied().find(is_here);
            match (here, same.first()) {
                (Some(was), _) => self.places[at].go_on(&before.places[was]),
                // Another server, as far as anybody knows.
                (None, Some(_)) => pools.distrust(at),
                (None, None) => {}
            }
            let was = here.or(same.first().copied());
            if let Some(was) = was {
                self.reasons.go_on(at, &before.reasons, was);
            }
            known.push(was);
        }
        drop(pools);
        *self.outages() = before.outages().reordered(&known);
        self.go_on(before, carried);
    }
}
