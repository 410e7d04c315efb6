//! Where a server with a host name is: the result of the last look-up, and where it answered last.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The place of one server.
#[derive(Default)]
pub(crate) struct Place(Mutex<PlaceState>);

#[derive(Default)]
pub(crate) struct PlaceState {
    /// Where it answered last.
    pub(crate) last: Option<SocketAddr>,
    /// The result of the last look-up.
    pub(crate) addresses: Vec<SocketAddr>,
    /// Why that found nothing.
    pub(crate) error: Option<String>,
    /// Connections that wait for a look-up, with their threads.
    pub(crate) askers: Vec<(usize, usize)>,
}

impl Place {
    pub(crate) fn lock(&self) -> MutexGuard<'_, PlaceState> {
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
