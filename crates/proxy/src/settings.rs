//! The settings of a proxy.

use ground::window::Nanos;
use memcached::Limits;

use crate::stream::Address;
use crate::tls::Tls;

/// The settings of a proxy.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: Address,
    /// Threads; 0: one for each core.
    pub threads: usize,
    /// Most open connections of clients.
    pub connections_max: usize,
    /// Bounds of what clients and servers may send.
    pub limits: Limits,
    /// A request is refused after this time.
    pub deadline: Nanos,
    /// A client that owes the rest of a request, or does not read its replies, is closed after this
    /// time without a byte.
    pub stall: Nanos,
    /// Time that requests under way have when the proxy stops.
    pub drain: Nanos,
    /// One key in so many is sampled; 0: none.
    pub sample_one_in: u64,
    /// The addresses of `pools.servers`.
    pub addresses: Vec<Address>,
    /// For each of them, how connections are encrypted, if they are.
    pub tls: Vec<Option<Tls>>,
    /// The decisions' settings.
    pub pools: engine::pool::Settings,
}
