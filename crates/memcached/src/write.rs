//! Requests written for servers.

use crate::reply::{read_va_line, split_line, split_value};
use crate::request::Request;
use crate::token::{Tokens, number_u64, put_number};
use crate::verb::Verb;

const END: &[u8] = b"\r\n";
/// The longest expiry that memcached counts from now, in seconds: a larger number is a date
/// (`REALTIME_MAXDELTA` in `memcached.c`).
const TTL_MAX: u64 = 60 * 60 * 24 * 30;

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

impl Request<'_> {
    /// Appends the request such that a server replies to it: as it came, but without `noreply` and
    /// without the flag `q`. [`is_suppressed`](crate::is_suppressed) tells whether the client is
    /// sent the reply. (`quit` has none all the same.)
    pub fn put_answered(&self, out: &mut Vec<u8>) {
        if !self.noreply && !self.quiet {
            return out.extend_from_slice(self.whole);
        }
        if self.quiet {
            let first_flag = if self.verb == Verb::MetaSet { 3 } else { 2 };
            for (i, word) in Tokens(self.line).enumerate() {
                if i < first_flag || !word.starts_with(b"q") {
                    put(out, &[if i == 0 { b"" } else { b" " }, word]);
                }
            }
        } else {
            out.extend_from_slice(self.line);
        }
        out.extend_from_slice(END);
        if self.verb.has_value() {
            put(out, &[self.value(), END]);
        }
    }
}

/// Appends a get of some keys: `verb` is `Get` or `Gets`, or `Gat` or `Gats` with the expiry, as in
/// [`Request::arguments`]. At least one key, and as many as a request may have (of a `gat` as many as
/// [`Request::is_line_long`] allows).
pub fn put_get<'k>(
    verb: Verb,
    exptime: &[u8],
    keys: impl Iterator<Item = &'k [u8]>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(verb.name().as_bytes());
    if matches!(verb, Verb::Gat | Verb::Gats) {
        put(out, &[b" ", exptime]);
    }
    for key in keys {
        put(out, &[b" ", key]);
    }
    out.extend_from_slice(END);
}

/// Appends `mg KEY f t s v c u`: reads an item with all that a copy of it needs, see [`put_copy`].
/// `base64`: whether the key is encoded.
///
/// The read is not one of a client, so that it does not count as a use of the item (`u`). With uses, memcached holds an item
/// in a queue for some milliseconds; an `ma` with `T` that comes meanwhile replaces the item, and memcached up to 1.6.38 sets the
/// time to live of the old one only.
///
/// If the item is stale (`md` with `I`), this wins the right to recache it, as any `mg` would.
pub fn put_read_back(key: &[u8], base64: bool, out: &mut Vec<u8>) {
    put(out, &[b"mg ", key, b" f t s v c u", if base64 { b" b" } else { b"" }, END]);
}

/// Appends `md KEY I`: marks the item as stale, so that the next `mg` of it wins. `base64`: whether the key is encoded.
pub fn put_invalidate(key: &[u8], base64: bool, out: &mut Vec<u8>) {
    put(out, &[b"md ", key, if base64 { b" I b" } else { b" I" }, END]);
}

/// Appends `md KEY`. `base64`: whether the key is encoded.
pub fn put_delete(key: &[u8], base64: bool, out: &mut Vec<u8>) {
    put(out, &[b"md ", key, if base64 { b" b" } else { b"" }, END]);
}

/// Appends an `ms` of the item in `read_back`, the whole reply to [`put_read_back`], and returns
/// true. With `add`, the copy is stored only where there is no item (mode `E`), otherwise in any case
/// (mode `S`).
///
/// The copy has the value, the client's flags and the remaining time to live, to the second: none
/// (`t-1`) remains none; less than a second becomes one, as 0 would be none; more than 30 days become
/// 30 days, as a larger number would be a date. Its compare-and-swap number is the server's own.
///
/// Returns false, with nothing appended, if there is no item to copy: a miss, an error, bytes that
/// are not a whole reply, or an item that is stale or being recached (flags `W`, `X`, `Z`), whose
/// copy would look fresh.
pub fn put_copy(read_back: &[u8], key: &[u8], base64: bool, add: bool, out: &mut Vec<u8>) -> bool {
    let Some(Item { value, ttl, flags }) = read_item(read_back) else { return false };
    put(out, &[b"ms ", key, b" "]);
    put_number(value.len() as u64, out);
    out.extend_from_slice(b" T");
    put_number(ttl, out);
    out.extend_from_slice(b" F");
    put_number(flags, out);
    let mode = if add { b" ME" } else { b" MS" };
    put(out, &[mode, if base64 { b" b" } else { b"" }, END, value, END]);
    true
}

/// What a copy needs.
struct Item<'a> {
    value: &'a [u8],
    /// For `T`: seconds, 0 for none.
    ttl: u64,
    flags: u64,
}

fn read_item(read_back: &[u8]) -> Option<Item<'_>> {
    let (line, rest) = split_line(read_back)?;
    let (bytes, words) = read_va_line(line)?;
    let (value, _) = split_value(rest, bytes)?;
    let (mut ttl, mut flags) = (None, None);
    for word in words {
        match word {
            b"t-1" => ttl = Some(0),
            [b't', seconds @ ..] => ttl = Some(number_u64(seconds)?.clamp(1, TTL_MAX)),
            [b'f', number @ ..] => flags = Some(number_u64(number)?),
            [b'W' | b'X' | b'Z', ..] => return None,
            _ => {}
        }
    }
    Some(Item { value, ttl: ttl?, flags: flags? })
}
