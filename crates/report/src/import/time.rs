//! Parses times as logs write them, into nanoseconds since 1970-01-01 UTC, with the clock's
//! resolution.

use chrono::{DateTime, NaiveDateTime};
use ground::window::{Nanos, SECOND};

/// A moment or a duration, and the number of decimals of a second it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// Nanoseconds.
    pub ns: Nanos,
    /// Number of decimals, at most 9.
    pub decimals: u32,
}

/// The longest valid duration, seconds.
const DURATION_MAX_S: u64 = 1_000_000;
/// The latest valid moment (the year 2255), seconds since 1970: later ones would overflow.
const UNIX_MAX_S: u64 = 9_000_000_000;

/// Parses seconds with decimals. Digits after the ninth decimal are dropped.
fn decimal(text: &str, most_s: u64) -> Option<Reading> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = whole.parse().ok().filter(|s| *s <= most_s)?;
    let decimals = part.len().min(9) as u32;
    let part = part.bytes().chain(std::iter::repeat(b'0')).take(9);
    let part = part.fold(0, |n, digit| n * 10 + u64::from(digit - b'0'));
    Some(Reading { ns: whole * SECOND + part, decimals })
}

/// Parses a duration in seconds: `0.042`.
pub(super) fn duration(text: &str) -> Option<Reading> {
    decimal(text.trim(), DURATION_MAX_S)
}

/// Parses `$upstream_response_time`: `0.010`, or for several attempts `0.010, 0.020 : 0.005`, which
/// are summed. `None` if no upstream was contacted (`-`).
pub(super) fn durations(text: &str) -> Result<Option<Reading>, ()> {
    let mut sum: Option<Reading> = None;
    for part in text.split([',', ':']).map(str::trim).filter(|p| !matches!(*p, "-" | "")) {
        let one = duration(part).ok_or(())?;
        let so_far = sum.unwrap_or(Reading { ns: 0, decimals: 0 });
        let ns = so_far.ns.saturating_add(one.ns).min(DURATION_MAX_S * SECOND);
        sum = Some(Reading { ns, decimals: so_far.decimals.max(one.decimals) });
    }
    Ok(sum)
}

/// Parses seconds since 1970 (`$msec`).
pub(super) fn unix(text: &str) -> Option<Reading> {
    decimal(text.trim(), UNIX_MAX_S)
}

fn of_chrono(seconds: i64, nanos: u32, decimals: usize) -> Option<Reading> {
    let seconds = u64::try_from(seconds).ok().filter(|s| *s <= UNIX_MAX_S)?;
    let ns = seconds * SECOND + u64::from(nanos.min(999_999_999));
    Some(Reading { ns, decimals: decimals.min(9) as u32 })
}

/// Parses ISO 8601 with a zone: `2026-11-22T04:15:00+00:00`, `…Z`, with or without decimals.
pub(super) fn iso(text: &str) -> Option<Reading> {
    let text = text.trim();
    let time = DateTime::parse_from_rfc3339(text)
        .or_else(|_| DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z"))
        .ok()?;
    let part = text.split_once('.').map_or("", |(_, part)| part);
    let decimals = part.bytes().take_while(u8::is_ascii_digit).count();
    of_chrono(time.timestamp(), time.timestamp_subsec_nanos(), decimals)
}

/// Parses the common log format: `22/Nov/2026:04:15:00 +0000`.
pub(super) fn local(text: &str) -> Option<Reading> {
    let time = DateTime::parse_from_str(text.trim(), "%d/%b/%Y:%H:%M:%S %z").ok()?;
    of_chrono(time.timestamp(), 0, 0)
}

/// Parses a time line of `iostat -t`: ISO 8601 (`S_TIME_FORMAT=ISO`), or one of the usual formats
/// without a zone, which is taken for UTC. The second value is true if the zone was missing.
pub(super) fn iostat(text: &str) -> Option<(Reading, bool)> {
    let text = text.trim();
    if let Some(reading) = iso(text) {
        return Some((reading, false));
    }
    // Two-digit years first: `%Y` would read 26 as the year 26.
    let formats = [
        "%m/%d/%y %I:%M:%S %p",
        "%m/%d/%Y %I:%M:%S %p",
        "%m/%d/%y %H:%M:%S",
        "%m/%d/%Y %H:%M:%S",
        "%Y-%m-%d %H:%M:%S",
    ];
    let time = formats.iter().find_map(|f| NaiveDateTime::parse_from_str(text, f).ok())?.and_utc();
    Some((of_chrono(time.timestamp(), 0, 0)?, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_the_same_in_every_format() {
        // date -u -d @1795320900
        let at = 1_795_320_900 * SECOND;
        let is = |reading: Option<Reading>, ns, decimals| {
            assert_eq!(reading, Some(Reading { ns, decimals }));
        };
        is(unix("1795320900.123"), at + 123_000_000, 3);
        is(iso("2026-11-22T04:15:00+00:00"), at, 0);
        is(iso("2026-11-22T05:15:00.25+0100"), at + 250_000_000, 2);
        is(iso("2026-11-22T04:15:00Z"), at, 0);
        is(local("22/Nov/2026:04:15:00 +0000"), at, 0);
        is(local("21/Nov/2026:23:15:00 -0500"), at, 0);
        for text in ["11/22/2026 04:15:00 AM", "11/22/26 04:15:00", "2026-11-22 04:15:00"] {
            assert_eq!(iostat(text).map(|r| (r.0.ns, r.1)), Some((at, true)), "{text}");
        }
        assert_eq!(iostat("2026-11-22T04:15:00+0000").map(|r| r.1), Some(false));
        for bad in ["", "-", "x", "-1", "1e3", "99999999999", "22/Nov/2026", "NaN", "1.-2"] {
            assert!(unix(bad).is_none() && iso(bad).is_none() && local(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn attempts_are_summed() {
        let sum = |text| durations(text).map(|r| r.map(|r| (r.ns / 1_000_000, r.decimals)));
        assert_eq!(sum("0.010, 0.020 : 0.005"), Ok(Some((35, 3))));
        assert_eq!((sum("-"), sum("-, 0.1")), (Ok(None), Ok(Some((100, 1)))));
        assert_eq!(sum("a"), Err(()));
    }
}
