//! What one client may have: requests and bytes per second, as token buckets.
//!
//! A request is admitted while its client's buckets are not empty, and paid for when the head of its reply is
//! known: so a bucket can be overdrawn by what is under way on its client's connections, and nobody is served
//! before that has come in again. What is refused costs nothing, so that nobody can use up what belongs to an
//! access key whose secret they do not have.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use ground::window::Nanos;

use configuration::Serve;

/// Maximum number of clients that are told apart; further ones share one bucket.
const CLIENTS_MAX: usize = 65_536;

/// Whose requests are counted together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// Those of an address; of IPv6, of its first 64 bits, which one host can have all of.
    Address(IpAddr),
    /// Those that an access key signs.
    Key(String),
    /// Those of clients that are too many to be told apart.
    Others,
}

impl Client {
    /// The client at an address.
    pub fn from_address(address: IpAddr) -> Client {
        Client::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = u128::from(address) >> 64 << 64;
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 => v4,
        })
    }
}

/// What a client has left, at a time.
#[derive(Clone, Copy)]
struct Bucket {
    requests: f64,
    bytes: f64,
    at: Nanos,
}

/// What each client has left.
#[derive(Default)]
struct Buckets {
    of: HashMap<Client, Bucket>,
    /// When those that are full again were last looked for.
    swept: Nanos,
}

/// How often at most buckets that are full again are looked for, nanoseconds. Each look passes over all of them while everybody's requests
/// wait for the lock; without a bound, a host with more networks than there are buckets would cause one for each of its requests.
const SWEEP_EVERY: Nanos = 1_000_000_000;

/// The limits, and what each client has left.
pub struct Limits {
    /// Per second; infinite without a limit.
    requests: f64,
    /// Per second; infinite without a limit.
    bytes: f64,
    clients: Mutex<Buckets>,
}

/// An extension of replies: the signature of the request was not verified, so the request counts for the address that sent it and
/// not for the access key that it names.
#[derive(Clone)]
pub struct Unproven;

impl Limits {
    /// The limits of a configuration; `None` if it has none.
    pub fn from_settings(serve: &Serve) -> Option<Limits> {
        let rate = |of: f64| if of > 0.0 { of } else { f64::INFINITY };
        let (requests, bytes) = (serve.client_requests_per_s, serve.client_bytes_per_s.0 as f64);
        let any = requests > 0.0 || bytes > 0.0;
        let clients = Mutex::default();
        any.then(|| Limits { requests: rate(requests), bytes: rate(bytes), clients })
    }

    /// Whether bytes are counted, so that uploads must say their length.
    pub fn counts_bytes(&self) -> bool {
        self.bytes.is_finite()
    }

    /// The bytes that a client may move in a second; `u64::MAX` without a limit.
    pub fn second_bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// A bucket after what came in since; it holds what a second brings, but at least one request.
    fn filled(&self, bucket: Bucket, now: Nanos) -> Bucket {
        let since = now.saturating_sub(bucket.at) as f64 * 1e-9;
        let fill = |left: f64, rate: f64, most: f64| match rate.is_finite() {
            true => (left + since * rate).min(most),
            false => most,
        };
        Bucket {
            requests: fill(bucket.requests, self.requests, self.requests.max(1.0)),
            bytes: fill(bucket.bytes, self.bytes, self.bytes),
            at: now.max(bucket.at),
        }
    }

    fn full(&self, now: Nanos) -> Bucket {
        Bucket { requests: self.requests.max(1.0), bytes: self.bytes, at: now }
    }

    fn is_full(&self, bucket: Bucket) -> bool {
        bucket.requests >= self.requests.max(1.0) && bucket.bytes >= self.bytes
    }

    /// Whether a client may make a request now; if not, in how many seconds.
    ///
    /// # Errors
    ///
    /// The seconds, rounded up: at least 1.
    pub fn admit(&self, client: &Client, now: Nanos) -> Result<(), u64> {
        let clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = &clients.of;
        let others = || clients.get(&Client::Others).filter(|_| clients.len() >= CLIENTS_MAX);
        let Some(&bucket) = clients.get(client).or_else(others) else { return Ok(()) };
        let bucket = self.filled(bucket, now);
        let wait = |missing: f64, rate: f64| if missing > 0.0 { missing / rate } else { 0.0 };
        let wait = wait(1.0 - bucket.requests, self.requests).max(wait(-bucket.bytes, self.bytes));
        if wait > 0.0 { Err(wait.ceil().clamp(1.0, 3600.0) as u64) } else { Ok(()) }
    }

    /// A client has made a request that moves this many bytes.
    pub fn pay(&self, client: Client, bytes: u64, now: Nanos) {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let Buckets { of: clients, swept } = &mut *clients;
        let mut client = client;
        if clients.len() >= CLIENTS_MAX && !clients.contains_key(&client) {
            if now.saturating_sub(*swept) >= SWEEP_EVERY {
                *swept = now;
                // Whose bucket is full again is as good as new.
                clients.retain(|_, bucket| !self.is_full(self.filled(*bucket, now)));
            }
            if clients.len() >= CLIENTS_MAX {
                client = Client::Others;
            }
        }
        let bucket = clients.entry(client).or_insert_with(|| self.full(now));
        *bucket = self.filled(*bucket, now);
        bucket.requests -= 1.0;
        bucket.bytes -= bytes as f64;
    }
}

#[cfg(test)]
mod tests {
    use origin::Size;

    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    fn limits(requests: f64, bytes: u64) -> Limits {
        let serve = Serve {
            client_requests_per_s: requests,
            client_bytes_per_s: Size(bytes),
            ..Serve::default()
        };
        Limits::from_settings(&serve).unwrap()
    }

    fn client(text: &str) -> Client {
        Client::from_address(text.parse().unwrap())
    }

    #[test]
    fn a_client_gets_its_rate_and_others_theirs() {
        let it = limits(10.0, 0);
        let (one, other) = (client("10.0.0.1"), client("10.0.0.2"));
        let mut served = 0;
        // 20 attempts in each of 10 seconds: those of a full bucket, and 10 a second.
        for step in 0..200 {
            let now = step * SECOND / 20;
            if it.admit(&one, now).is_ok() {
                it.pay(one.clone(), 1 << 40, now);
                served += 1;
            }
        }
        assert!((105..=112).contains(&served), "{served}");
        assert_eq!(it.admit(&other, 10 * SECOND), Ok(()));
    }

    #[test]
    fn bytes_are_paid_back() {
        let it = limits(0.0, 1000);
        let one = client("::ffff:10.0.0.1");
        assert_eq!(one, client("10.0.0.1"));
        it.pay(one.clone(), 5500, SECOND);
        assert_eq!(it.admit(&one, SECOND), Err(5));
        assert_eq!(it.admit(&one, 5 * SECOND), Err(1));
        assert_eq!(it.admit(&one, 6 * SECOND), Ok(()));
    }

    #[test]
    fn one_host_is_one_client_and_their_number_is_bounded() {
        assert_eq!(client("2001:db8::1"), client("2001:db8::ffff:1"));
        assert_ne!(client("2001:db8::1"), client("2001:db8:0:1::1"));
        let it = limits(1.0, 0);
        // A debt of an hour is not forgiven for a second without requests.
        let slow = limits(0.001, 0);
        let debtor = client("10.0.0.1");
        slow.pay(debtor.clone(), 0, SECOND);
        let nth = |n: u32| Client::Address(std::net::Ipv4Addr::from(n).into());
        let most = CLIENTS_MAX as u32 + 10;
        (0..most).for_each(|n| it.pay(nth(n), 0, SECOND));
        (0..most).for_each(|n| slow.pay(nth(n), 0, 9 * SECOND));
        assert!(slow.admit(&debtor, 10 * SECOND).is_err());
        assert!(it.clients.lock().unwrap().of.len() <= CLIENTS_MAX + 1);
        // Those that share a bucket have used it up together.
        assert!(it.admit(&nth(most + 1), SECOND).is_err());
        it.pay(nth(0), 0, 9 * SECOND);
        it.pay(nth(most), 0, 9 * SECOND);
        assert!(it.clients.lock().unwrap().of.len() < 10);
        assert!(limits(0.0, 1).counts_bytes() && !it.counts_bytes());
        assert!(Limits::from_settings(&Serve::default()).is_none());
    }
}
