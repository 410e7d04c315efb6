//! Where servers that have a host name are: looked up again for each connection.
//!
//! A look-up may take seconds and blocks, so it runs in a thread of its own, one at a time for each server; connections
//! that need it wait without holding up their thread. A server that answers at another address than before may be
//! another server: it counts as one that has missed writes, and its connections elsewhere are closed.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use crate::shared::Shared;

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
