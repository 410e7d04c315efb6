//! What memcached keeps beside a value: the client's flags, the expiry, the compare-and-swap number, as metadata of an object.

use origin::{Attributes, Metadata};
use record::clock;

/// The names of the metadata that hold what memcached keeps beside a value, in their order.
const NUMBER: &str = "memcached-cas";
const EXPIRES: &str = "memcached-expires";
const FLAGS: &str = "memcached-flags";
const STALE: &str = "memcached-stale";
const WON: &str = "memcached-won";

/// Expiry times up to this count from now, in seconds; larger ones are dates.
const RELATIVE_MAX: i64 = 60 * 60 * 24 * 30;

/// The bits of a compare-and-swap number that is derived from an etag. libmemcached (1.0.16 of pylibmc 1.6.3, 1.1.4 of Debian 12)
/// has room for 18 digits and fails with "MEMORY ALLOCATION FAILURE" on more; a client in JavaScript loses what is past 53 bits.
const NUMBER_BITS: u32 = 53;

/// What memcached keeps beside a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Notes {
    /// The number that the client stored with the value.
    pub(super) flags: u32,
    /// When the value expires, in seconds since 1970; `None` if it does not.
    pub(super) expires: Option<i64>,
    /// The compare-and-swap number, if it is not the one that is derived from the etag.
    pub(super) number: Option<u64>,
    /// Whether the value was marked as stale (`md` with `I`).
    pub(super) is_stale: bool,
    /// Whether a reader was told to replace the value (`W` of `mg`).
    pub(super) is_won: bool,
}

impl Notes {
    pub(super) fn read(metadata: &Metadata) -> Notes {
        let mut notes = Notes::default();
        for (name, value) in &metadata.attributes.user {
            match &**name {
                NUMBER => notes.number = value.parse().ok(),
                EXPIRES => notes.expires = value.parse().ok(),
                FLAGS => notes.flags = value.parse().unwrap_or(0),
                STALE => notes.is_stale = true,
                WON => notes.is_won = true,
                _ => {}
            }
        }
        notes
    }

    /// With a client's flags and expiry, in memcached's form.
    pub(super) fn new(flags: u32, exptime: i64) -> Notes {
        Notes { flags, expires: expiry(exptime), ..Notes::default() }
    }

    pub(super) fn is_expired(&self) -> bool {
        self.expires.is_some_and(|at| at <= unix_s())
    }

    pub(super) fn attributes(&self) -> Attributes {
        // In the order of their names, as they are hashed into the version.
        let notes = [
            (NUMBER, self.number.map(|number| number.to_string())),
            (EXPIRES, self.expires.map(|at| at.to_string())),
            (FLAGS, (self.flags > 0).then(|| self.flags.to_string())),
            (STALE, self.is_stale.then(|| "1".to_owned())),
            (WON, self.is_won.then(|| "1".to_owned())),
        ];
        let user = notes.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        Attributes { content_type: None, user: user.collect() }
    }
}

/// The time at which a value expires whose expiry is given in memcached's form; `None` for 0. Its low 32 bits count, with a sign, as
/// memcached keeps them: 2^31 is in the past, and 2^32 never comes.
pub(super) fn expiry(exptime: i64) -> Option<i64> {
    let exptime = i64::from(exptime as i32);
    match exptime {
        0 => None,
        ..0 => Some(0),
        1..=RELATIVE_MAX => Some(unix_s().saturating_add(exptime)),
        date => Some(date),
    }
}

/// The compare-and-swap number of a version.
pub(super) fn number_of(metadata: &Metadata) -> u64 {
    Notes::read(metadata).number.unwrap_or_else(|| derived_number(&metadata.etag))
}

/// The number that is derived from an etag; not 0, which clients take for none.
pub(super) fn derived_number(etag: &str) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *blake3::hash(etag.as_bytes()).as_bytes();
    (u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> (u64::BITS - NUMBER_BITS)).max(1)
}

/// Seconds since 1970.
pub(super) fn unix_s() -> i64 {
    ((i128::from(clock::now()) + clock::unix_offset_ns()) / 1_000_000_000) as i64
}
