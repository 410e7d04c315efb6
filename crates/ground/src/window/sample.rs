//! [`Sample`]: the record of one request, kept for a fixed part of the keys.

use serde::{Deserialize, Serialize};

use super::operation::{Operation, Outcome};
use super::time::Nanos;

/// One request whose key's hash falls in the sampled part of the space (1/64 unless configured).
///
/// Sampling by key, not by request, keeps every request for a sampled key, as reuse distances and
/// the dependence between requests require. Source: C. Waldspurger and others, "Efficient MRC
/// construction with SHARDS", FAST 2015. If one key has a large share of the requests, sums over
/// samples depend on whether that key is sampled: take sums from [`super::Window`]s instead
/// (`model::cache::Shards::curve_of`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// [`key_hash`] of the key.
    pub key: u64,
    /// Bytes of the object.
    pub size: u64,
    /// The operation.
    pub operation: Operation,
    /// The outcome.
    pub outcome: Outcome,
    /// Arrival, in microseconds since 1970-01-01 UTC.
    pub received_unix_us: u64,
    /// From arrival to entry into the queue that served it.
    pub queued_ns: Nanos,
    /// From arrival to the start of service.
    pub started_ns: Nanos,
    /// From arrival to the end of service.
    pub served_ns: Nanos,
    /// From arrival to the end of the reply.
    pub replied_ns: Nanos,
    /// Queue length (waiting and in service) when the request arrived.
    pub length_met: u32,
}

/// The hash of a key that selects samples: 64-bit FNV-1a with the finaliser of MurmurHash3, because
/// the high bits of plain FNV-1a are poor for short keys.
///
/// The function never changes, so that runs can be compared. It does not resist keys that are
/// constructed to collide. Cost: a nanosecond for each byte.
///
/// ```
/// assert_eq!(ground::window::key_hash(b"a"), 0x82a2_a958_a9be_ce5b);
/// ```
pub fn key_hash(key: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for &byte in key {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// Whether a key with this hash is sampled if one in `one_in` keys is (no key if `one_in` is 0).
/// The condition is hash ≤ (2⁶⁴ − 1)/`one_in`, so a coarser sample is a subset of a finer one.
///
/// ```
/// use ground::window::{is_sampled, key_hash};
/// let kept = (0..64_000).filter(|i| is_sampled(key_hash(format!("tracks/{i}").as_bytes()), 64));
/// assert_eq!(kept.count(), 1_004);
/// ```
pub fn is_sampled(hash: u64, one_in: u64) -> bool {
    one_in > 0 && hash <= u64::MAX / one_in
}
