//! A request as it stands in a log, whatever its format: what a layout reads of a line.

use ground::window::{Nanos, Operation};

use super::filter::Verdict;
use super::time::Reading;

/// A request as it stands in a log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Entry {
    /// The moment that was logged, at either end.
    pub stamp: Reading,
    pub end: Nanos,
    /// `None` if it has none: it was refused, or no reply came.
    pub response: Option<Reading>,
    pub upstream: Option<Reading>,
    /// `None` if no reply came.
    pub status: Option<u16>,
    pub bytes: u64,
    /// Whether its size is a number, or it has none.
    pub is_size_known: bool,
    pub operation: Operation,
    pub cache: Cache,
    /// What decides which line the request waits in; 0 if it is not known.
    pub key: u32,
    /// Whether the stamp had no zone.
    pub zone_assumed: bool,
}

/// What a proxy's cache did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cache {
    None,
    Hit,
    Passed,
}

impl Cache {
    /// Of nginx's `$upstream_cache_status`, or squid's code (`TCP_MEM_HIT`).
    pub fn parse(state: &str) -> Cache {
        match state {
            "HIT" | "STALE" | "UPDATING" | "REVALIDATED" => Cache::Hit,
            "MISS" | "BYPASS" | "EXPIRED" => Cache::Passed,
            _ if !state.starts_with("TCP_") => Cache::None,
            // The origin was asked whether its object is still the same.
            _ if state.contains("REFRESH") || state.contains("MISS") => Cache::Passed,
            _ if state.contains("HIT") => Cache::Hit,
            _ => Cache::None,
        }
    }
}

/// What a line is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Line {
    Request(Entry),
    /// A request that was not asked for.
    Filtered(Verdict),
    /// A connection that went on as one of another protocol.
    Upgraded,
    /// A header, a comment, or something else than a request.
    Other,
}

/// The path of a request's address: `/a?b` of `http://host/a?b`.
pub(super) fn path_of(address: &str) -> &str {
    let Some((scheme, rest)) = address.split_once("://") else { return address };
    if scheme.is_empty() || !scheme.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return address;
    }
    rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/")
}

/// What a method does; that of a load generator of stores as well.
pub(super) fn operation(method: Option<&str>) -> Operation {
    match method {
        None | Some("GET" | "get" | "READ" | "SCAN" | "-" | "") => Operation::Get,
        Some("PUT" | "POST" | "PATCH" | "UPDATE" | "INSERT" | "READ-MODIFY-WRITE") => {
            Operation::Put
        }
        Some("DELETE") => Operation::Delete,
        Some(_) => Operation::Head,
    }
}

/// A status as logs write it, 0 where no reply came; `None` if it is none. Programs without integers write `500.0`.
pub(super) fn status(text: &str) -> Option<u16> {
    // Of several attempts the last is what the client got.
    let last = text.rsplit([',', ' ']).next().unwrap_or(text);
    if matches!(last, "-" | "" | "-1") {
        return Some(0);
    }
    let status = whole_number(last)?;
    let status = u16::try_from(status).ok()?;
    (status == 0 || (100..1000).contains(&status)).then_some(status)
}

/// A size as logs write it, 0 where there is none; `None` if it is no whole number: `-1` of a size that was not known, `1.2 kB`.
pub(super) fn bytes(text: &str) -> Option<u64> {
    if matches!(text, "-" | "") { Some(0) } else { whole_number(text).map(|n| n.min(1 << 40)) }
}

/// A whole number, which may have a point and zeros behind it.
fn whole_number(text: &str) -> Option<u64> {
    let whole = text.split_once('.').filter(|(_, part)| part.bytes().all(|b| b == b'0'));
    whole.map_or(text, |(whole, _)| whole).parse().ok()
}
