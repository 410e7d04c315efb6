//! The addresses of a host name, and which of them works.
//!
//! A name may have several addresses, of which some refuse: `::1` of a service that listens on
//! `127.0.0.1` only. As in RFC 8305 ("happy eyeballs"), families take turns in the order that the
//! resolver gave, an attempt begins [`STAGGER`] after the one before or as soon as that fails, and the
//! first connection wins. The load then goes to that address; one that later refuses a connection hands
//! over to the next.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// The head start of an address over the next: RFC 8305, section 5.
const STAGGER: Duration = Duration::from_millis(250);
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 16;

/// The addresses of a service. Clones share which of them is in use.
#[derive(Clone, Debug)]
pub struct Addresses {
    list: Arc<[SocketAddr]>,
    current: Arc<AtomicUsize>,
}

/// Addresses that could not be reached, each with the reason.
pub type Failures = Vec<(SocketAddr, io::Error)>;

impl Addresses {
    /// Resolves `HOST:PORT`.
    ///
    /// # Errors
    /// The resolver's; of the kind `NotFound` if the name has no address.
    pub fn resolve(host_and_port: &str) -> io::Result<Addresses> {
        let found = interleaved(host_and_port.to_socket_addrs()?.collect());
        if found.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Addresses::new(found))
    }

    /// These addresses, of which the first is in use.
    pub fn new(list: Vec<SocketAddr>) -> Addresses {
        Addresses { list: list.into(), current: Arc::default() }
    }

    /// The address in use.
    pub fn current(&self) -> SocketAddr {
        let at = self.current.load(Ordering::Relaxed) % self.list.len();
        self.list[at]
    }

    /// The number of addresses.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Puts the next address to use in the place of one that refused a connection. Of several threads
    /// that noticed the same, one moves on.
    pub fn failed(&self, address: SocketAddr) {
        let at = self.current.load(Ordering::Relaxed);
        if self.list[at % self.list.len()] == address {
            let next = (at + 1) % self.list.len();
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Connects to the first address that accepts within `timeout` of its attempt, and puts it to use.
    ///
    /// # Errors
    /// The failure of each address, in their order.
    pub fn connect(&self, timeout: Duration) -> Result<TcpStream, Failures> {
        let (sender, receiver) = channel();
        let mut failures: Vec<Option<io::Error>> = self.list.iter().map(|_| None).collect();
        let (mut begun, mut ended) = (0, 0);
        while ended < self.list.len() {
            if let Some(&address) = self.list.get(begun) {
                let (sender, at) = (sender.clone(), begun);
                // Attempts that lose end by themselves, by their timeout at the latest.
                std::thread::spawn(move || {
                    drop(sender.send((at, TcpStream::connect_timeout(&address, timeout))));
                });
                begun += 1;
            }
            let wait = if begun < self.list.len() { STAGGER } else { 2 * timeout };
            match receiver.recv_timeout(wait) {
                Ok((at, Ok(stream))) => {
                    self.current.store(at, Ordering::Relaxed);
                    return Ok(stream);
                }
                Ok((at, Err(error))) => {
                    failures[at] = Some(error);
                    ended += 1;
                }
                Err(RecvTimeoutError::Timeout) if begun < self.list.len() => {}
                Err(_) => break,
            }
        }
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        Err(self
            .list
            .iter()
            .copied()
            .zip(failures.into_iter().map(|f| f.unwrap_or_else(late)))
            .collect())
    }
}

/// Addresses with the families in turn, beginning with that of the first; each once.
fn interleaved(found: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = found.into_iter().partition(|a| a.is_ipv6() == first);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let mut list = Vec::new();
    loop {
        let next = [one.next(), other.next()];
        if next == [None, None] || list.len() >= ADDRESSES_MAX {
            return list;
        }
        for address in next.into_iter().flatten() {
            if !list.contains(&address) {
                list.push(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn families_take_turns() {
        let list = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let found = list(&["[::1]:1", "[::2]:1", "[::1]:1", "1.1.1.1:1", "2.2.2.2:1"]);
        let expected = list(&["[::1]:1", "1.1.1.1:1", "[::2]:1", "2.2.2.2:1"]);
        assert_eq!(interleaved(found), expected);
    }

    #[test]
    fn the_address_that_accepts_is_used_and_left_when_it_refuses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        // Nobody listens at this address of the same host.
        let bad = SocketAddr::from(([127, 0, 0, 2], good.port()));
        let addresses = Addresses::new(vec![bad, good]);
        assert_eq!(addresses.current(), bad);
        addresses.connect(Duration::from_secs(5)).unwrap();
        assert_eq!(addresses.current(), good);
        addresses.failed(bad);
        assert_eq!(addresses.current(), good, "it was not in use");
        addresses.failed(good);
        assert_eq!(addresses.clone().current(), bad);
        let failures = Addresses::new(vec![bad]).connect(Duration::from_secs(5)).unwrap_err();
        assert_eq!(failures[0].0, bad);
        assert_eq!(failures[0].1.kind(), io::ErrorKind::ConnectionRefused);
    }
}
