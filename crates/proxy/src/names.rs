//! Where servers that have a host name are: looked up again for each connection.
//!
//! A look-up may take seconds and blocks, so it runs in a thread of its own, one at a time for each server; connections
//! that need it wait without holding up their thread. A server that answers at another address than before may be
//! another server: it counts as one that has missed writes, and its connections elsewhere are closed.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::shared::Shared;

/// The place of one server.
#[derive(Default)]
pub(crate) struct Place(Mutex<PlaceState>);

#[derive(Default)]
struct PlaceState {
    /// Where it answered last.
    last: Option<SocketAddr>,
    /// The result of the last look-up.
    addresses: Vec<SocketAddr>,
    /// Why that found nothing.
    error: Option<String>,
    /// Connections that wait for a look-up, with their threads.
    askers: Vec<(usize, usize)>,
}

impl Place {
    fn lock(&self) -> MutexGuard<'_, PlaceState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The addresses to try, that where it answered last first.
    ///
    /// # Errors
    /// Why there are none.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, String> {
        let state = self.lock();
        if state.addresses.is_empty() {
            return Err(state.error.clone().unwrap_or_else(|| "it has no address".to_owned()));
        }
        let mut addresses = state.addresses.clone();
        addresses.sort_by_key(|address| state.last != Some(*address));
        Ok(addresses)
    }

    /// Notes where it answers. Returns where it did before, if that is another address.
    pub(crate) fn move_to(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.lock().last.replace(address).filter(|before| *before != address)
    }

    /// Notes that it answered last where another place says.
    pub(crate) fn go_on(&self, before: &Place) {
        let last = before.lock().last;
        self.lock().last = last;
    }

    /// Whether it has answered at another address since.
    pub(crate) fn has_left(&self, address: SocketAddr) -> bool {
        self.lock().last.is_some_and(|last| last != address)
    }
}

/// Looks a server's name up for a connection of a thread, which is told by its mailbox.
///
/// # Errors
/// No thread can be started.
pub(crate) fn look_up(
    shared: &Arc<Shared>,
    server: usize,
    name: &str,
    thread: usize,
    connection: usize,
) -> io::Result<()> {
    let Some(place) = shared.places.get(server) else { return Ok(()) };
    let mut state = place.lock();
    state.askers.push((thread, connection));
    if state.askers.len() > 1 {
        return Ok(());
    }
    drop(state);
    let (shared_there, name) = (shared.clone(), name.to_owned());
    let run = move || {
        let found = name.to_socket_addrs().map(Iterator::collect::<Vec<SocketAddr>>);
        let Some(place) = shared_there.places.get(server) else { return };
        let mut state = place.lock();
        (state.addresses, state.error) = match found {
            Ok(addresses) => (addresses, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let askers = std::mem::take(&mut state.askers);
        drop(state);
        for (thread, connection) in askers {
            shared_there.mail_look_up(thread, connection);
        }
    };
    let started = std::thread::Builder::new().name("memcached/names".to_owned()).spawn(run);
    if started.is_err() {
        place.lock().askers.clear();
    }
    started.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_place_is_tried_first_and_another_one_is_told() {
        let place = Place::default();
        let [a, b]: [SocketAddr; 2] = ["127.0.0.1:1", "127.0.0.2:1"].map(|it| it.parse().unwrap());
        assert!(place.addresses().is_err());
        place.lock().addresses = vec![a, b];
        assert_eq!((place.move_to(b), place.move_to(b)), (None, None));
        assert_eq!(place.addresses(), Ok(vec![b, a]));
        assert!(!place.has_left(b) && place.has_left(a));
        assert_eq!(place.move_to(a), Some(b));
        assert!(place.has_left(b));
        // What it was before is known to the next proxy.
        let next = Place::default();
        next.go_on(&place);
        assert_eq!((next.move_to(b), place.move_to(a)), (Some(a), None));
        // It is not there any more.
        place.lock().addresses = vec![b];
        assert_eq!(place.addresses(), Ok(vec![b]));
    }
}
