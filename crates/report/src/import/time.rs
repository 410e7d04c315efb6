//! Parses times as logs write them, into nanoseconds since 1970-01-01 UTC, with the clock's
//! resolution.

use std::cell::RefCell;

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

impl Reading {
    /// Whether it is a moment of 2001 to 2099, as no other number is one.
    pub fn is_of_century(self) -> bool {
        (978_307_200_000_000_000..4_102_444_800_000_000_000).contains(&self.ns)
    }
}

/// The longest valid duration, seconds.
const DURATION_MAX_S: u64 = 1_000_000;
/// The latest valid moment (the year 2255), seconds since 1970: later ones would overflow.
const UNIX_MAX_S: u64 = 9_000_000_000;

/// The unit that a number of time is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
    Nanos,
}

impl Unit {
    /// All, the longest first.
    pub const ALL: [Unit; 4] = [Unit::Seconds, Unit::Millis, Unit::Micros, Unit::Nanos];

    /// Its name on command lines and as a suffix in logs.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Seconds => "s",
            Unit::Millis => "ms",
            Unit::Micros => "us",
            Unit::Nanos => "ns",
        }
    }

    /// The unit of a name: `s`, `ms`, `us`, `ns`, and the long forms that logs use.
    pub fn parse(name: &str) -> Option<Unit> {
        match name {
            "s" | "sec" | "secs" | "seconds" => Some(Unit::Seconds),
            "ms" | "msec" | "msecs" | "milli" | "millis" | "millisecond" | "milliseconds" => {
                Some(Unit::Millis)
            }
            "us" | "\u{b5}s" | "\u{3bc}s" | "usec" | "usecs" | "micro" | "micros"
            | "microsecond" | "microseconds" => Some(Unit::Micros),
            "ns" | "nsec" | "nano" | "nanos" | "nanosecond" | "nanoseconds" => Some(Unit::Nanos),
            _ => None,
        }
    }

    /// Its length, seconds.
    pub fn seconds(self) -> f64 {
        match self {
            Unit::Seconds => 1.0,
            Unit::Millis => 1e-3,
            Unit::Micros => 1e-6,
            Unit::Nanos => 1e-9,
        }
    }

    /// Decimals of a second that an integer of this unit has.
    fn decimals(self) -> u32 {
        match self {
            Unit::Seconds => 0,
            Unit::Millis => 3,
            Unit::Micros => 6,
            Unit::Nanos => 9,
        }
    }
}

/// Parses a number of a unit, with decimals. What is below a nanosecond is dropped.
fn decimal(text: &str, unit: Unit, most_s: u64) -> Option<Reading> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let places = 9 - unit.decimals();
    let scale = 10u64.pow(places);
    let most = u128::from(most_s) * u128::from(SECOND);
    let whole = whole.parse::<u64>().ok()? as u128 * u128::from(scale);
    let decimals = unit.decimals() + (part.len() as u32).min(places);
    let digits = part.bytes().chain(std::iter::repeat(b'0')).take(places as usize);
    let part = digits.fold(0u64, |n, digit| n * 10 + u64::from(digit - b'0'));
    let ns = whole + u128::from(part);
    (ns <= most).then_some(Reading { ns: ns as u64, decimals })
}

/// Parses a duration: a number of `unit`, or one that names its own (`12ms`, `0.5s`).
pub(super) fn duration(text: &str, unit: Unit) -> Option<Reading> {
    let text = text.trim();
    if text.contains(':') {
        return clock_duration(text);
    }
    if let Some(parts) = text.strip_prefix("PT") {
        // ISO 8601, as Java writes it: `PT1M2.5S`.
        let is_whole_units = parts.ends_with(['H', 'M']);
        let parts = parts.to_ascii_lowercase();
        return go_duration(&if is_whole_units { format!("{parts}0s") } else { parts });
    }
    let end = text.rfind(|c: char| c.is_ascii_digit() || c == '.').map_or(0, |i| i + 1);
    let (number, suffix) = text.split_at(end);
    if number.contains(['h', 'm']) {
        return go_duration(text);
    }
    let unit = if suffix.is_empty() { unit } else { Unit::parse(suffix.trim_start())? };
    if number.contains(['e', 'E']) {
        return decimal(&plain(number)?, unit, DURATION_MAX_S);
    }
    decimal(number, unit, DURATION_MAX_S)
}

/// Parses a duration of a minute or more as Go writes it: `1m3.5s`, `1h0m2s`.
fn go_duration(text: &str) -> Option<Reading> {
    let (mut rest, mut seconds) = (text, 0u64);
    for (unit, of) in [('h', 3600), ('m', 60)] {
        let Some((number, behind)) = rest.split_once(unit) else { continue };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(of)?)?;
        rest = behind;
    }
    let part = decimal(rest.strip_suffix('s')?, Unit::Seconds, DURATION_MAX_S)?;
    let ns = seconds.checked_mul(SECOND)?.checked_add(part.ns)?;
    (ns <= DURATION_MAX_S * SECOND).then_some(Reading { ns, ..part })
}

/// Parses a duration as a clock shows it, whatever the unit of plain numbers: `00:01:02.5`, with days (`1.00:00:01`) as .NET writes them, or
/// minutes and seconds with decimals (`0:01.52`). `00:12` may be of hours or of minutes, and is `None`.
fn clock_duration(text: &str) -> Option<Reading> {
    let (high, part) = text.rsplit_once(':')?;
    let (high, minutes) = high.rsplit_once(':').unwrap_or(("", high));
    let is_two_parts = high.is_empty();
    let (days, hours) =
        high.split_once('.').unwrap_or(("0", if is_two_parts { "0" } else { high }));
    let whole = |digits: &str, below: u64| {
        let is_plain =
            (1..=9).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|n| is_plain && *n < below)
    };
    let (days, hours) = (whole(days, u64::MAX)?, whole(hours, 10_000)?);
    let minutes = whole(minutes, if is_two_parts { 10_000 } else { 60 })?;
    let seconds = part.split('.').next()?;
    if whole(seconds, 60).is_none() || seconds.len() != 2 || is_two_parts && !part.contains('.') {
        return None;
    }
    let part = decimal(part, Unit::Seconds, DURATION_MAX_S)?;
    let ns =
        (days * 86_400 + hours * 3600 + minutes * 60).checked_mul(SECOND)?.checked_add(part.ns)?;
    (ns <= DURATION_MAX_S * SECOND).then_some(Reading { ns, ..part })
}

/// A number with an exponent (`1.2e-05`) without one.
fn plain(number: &str) -> Option<String> {
    let value: f64 = number.parse().ok()?;
    value.is_finite().then(|| format!("{value:.12}").trim_end_matches('0').to_owned())
}

/// Parses `$upstream_response_time`: `0.010`, or for several attempts `0.010, 0.020 : 0.005`, which
/// are summed. `None` if no upstream was contacted (`-`).
pub(super) fn durations(text: &str, unit: Unit) -> Result<Option<Reading>, ()> {
    let mut sum: Option<Reading> = None;
    // `0,010` is a decimal comma and not two attempts, which a blank divides.
    if text.split(',').skip(1).any(|rest| !rest.is_empty() && !rest.starts_with(' ')) {
        return Err(());
    }
    // nginx writes blanks around the colon; without them it is a clock's.
    for part in text
        .split(',')
        .flat_map(|group| group.split(" : "))
        .map(str::trim)
        .filter(|p| !matches!(*p, "-" | ""))
    {
        let one = duration(part, unit).ok_or(())?;
        let so_far = sum.unwrap_or(Reading { ns: 0, decimals: 0 });
        let ns = so_far.ns.saturating_add(one.ns).min(DURATION_MAX_S * SECOND);
        sum = Some(Reading { ns, decimals: so_far.decimals.max(one.decimals) });
    }
    Ok(sum)
}

/// Parses seconds since 1970 (`$msec`).
pub(super) fn unix(text: &str) -> Option<Reading> {
    decimal(text.trim(), Unit::Seconds, UNIX_MAX_S)
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

/// Parses the common log format: `22/Nov/2026:04:15:00 +0000`; HAProxy's has milliseconds and no zone.
/// The second value is true if the zone was missing, which is taken for UTC.
fn local(text: &str) -> Option<(Reading, bool)> {
    let (date, zone) = text.split_once(' ').unwrap_or((text, ""));
    let (date, part) = date.split_once('.').unwrap_or((date, ""));
    let time = NaiveDateTime::parse_from_str(date, "%d/%b/%Y:%H:%M:%S").ok()?;
    let offset_s = match zone.as_bytes() {
        [] => 0,
        [sign @ (b'+' | b'-'), digits @ ..] if digits.len() == 4 && zone.is_ascii() => {
            let (hours, minutes) = zone[1..].split_at(2);
            let s = hours.parse::<i64>().ok()? * 3600 + minutes.parse::<i64>().ok()? * 60;
            if *sign == b'-' { -s } else { s }
        }
        _ => return None,
    };
    let seconds = u64::try_from(time.and_utc().timestamp() - offset_s).ok()?;
    let text = if part.is_empty() { seconds.to_string() } else { format!("{seconds}.{part}") };
    Some((unix(&text)?, zone.is_empty()))
}

/// Parses what C's `ctime` writes: `Mon Jan 15 10:30:45 2024`, without a zone.
fn c_time(text: &str) -> Option<Reading> {
    let time = NaiveDateTime::parse_from_str(text, "%a %b %e %H:%M:%S %Y").ok()?;
    of_chrono(time.and_utc().timestamp(), 0, 0)
}

/// Parses seconds, milliseconds, microseconds or nanoseconds since 1970, which are told apart by their number of
/// digits: any moment from 1973 to 2255 has those of its unit alone.
fn epoch(text: &str, unit: Option<Unit>) -> Option<Reading> {
    let whole = text.find('.').unwrap_or(text.len());
    let by_digits = match whole {
        0..=10 => Unit::Seconds,
        11..=13 => Unit::Millis,
        14..=16 => Unit::Micros,
        _ => Unit::Nanos,
    };
    decimal(text, unit.unwrap_or(by_digits), UNIX_MAX_S)
}

/// Parses a moment in any of the forms that logs write: since 1970 in `unit` (found by its digits if `None`), ISO 8601, or the
/// common log format, with or without brackets. The second value is true if a zone was missing, which is taken
/// for UTC.
pub(super) fn moment(text: &str, unit: Option<Unit>) -> Option<(Reading, bool)> {
    let text = text.trim().trim_start_matches('[').trim_end_matches(']');
    let bytes = text.as_bytes();
    if bytes.get(2) == Some(&b'/') && bytes.get(6) == Some(&b'/') {
        return local(text);
    }
    if bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.get(3) == Some(&b' ') {
        return c_time(text).map(|reading| (reading, true));
    }
    // `2026/11/22 04:15:00.250`, as Go, Caddy and JMeter write it, and gin's ` - ` between.
    let dashed;
    let text = if bytes.get(4) == Some(&b'/') && bytes.get(7) == Some(&b'/') {
        dashed = text.replacen('/', "-", 2).replacen(" - ", " ", 1);
        dashed.as_str()
    } else {
        text
    };
    if bytes.get(4) == Some(&b'-') || bytes.get(4) == Some(&b'/') {
        return match iso(text) {
            Some(reading) => Some((reading, false)),
            None => {
                let dots = text.replace(',', ".");
                let dots = dots.trim_end_matches(" UTC").replacen(' ', "T", 1);
                iso(&dots).map(|reading| (reading, false)).or_else(|| {
                    let zoned = format!("{dots}Z");
                    iso(&zoned).map(|reading| (reading, !text.ends_with(" UTC")))
                })
            }
        };
    }
    if text.contains(['e', 'E']) {
        return epoch(&plain(text)?, unit).map(|reading| (reading, false));
    }
    epoch(text, unit).map(|reading| (reading, false))
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

/// The moment that was parsed last: hundreds of lines have the same second, and some formats look for it twice in a line. (A fifth of
/// an import was parsing times.)
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LastMoment(RefCell<ParsedMoment>);

/// A moment as it stood in a log, and what it was read as.
#[derive(Clone, Debug, Default, PartialEq)]
struct ParsedMoment {
    text: String,
    unit: Option<Unit>,
    /// The moment, and whether its zone was assumed.
    moment: Option<(Reading, bool)>,
}

impl LastMoment {
    /// As [`moment`].
    pub fn parse(&self, text: &str, unit: Option<Unit>) -> Option<(Reading, bool)> {
        let mut last = self.0.borrow_mut();
        if last.text != text || last.unit != unit {
            text.clone_into(&mut last.text);
            (last.unit, last.moment) = (unit, moment(text, unit));
        }
        last.moment
    }
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
        let local = |text| local(text).map(|(reading, _)| reading);
        is(local("22/Nov/2026:04:15:00 +0000"), at, 0);
        is(local("21/Nov/2026:23:15:00 -0500"), at, 0);
        is(local("22/Nov/2026:04:15:00.250"), at + 250_000_000, 3);
        for text in [
            "1795320900",
            "1795320900000",
            "1795320900000000",
            "1795320900000000000",
            "[22/Nov/2026:04:15:00 +0000]",
            "2026-11-22 04:15:00",
            "2026-11-22 04:15:00,000",
            "2026-11-22T04:15:00.000Z",
            "2026/11/22 04:15:00.000",
            "2026/11/22 - 04:15:00",
        ] {
            assert_eq!(moment(text, None).map(|(r, _)| r.ns), Some(at), "{text}");
        }
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
        let sum = |text| {
            durations(text, Unit::Seconds).map(|r| r.map(|r| (r.ns / 1_000_000, r.decimals)))
        };
        assert_eq!(sum("0.010, 0.020 : 0.005"), Ok(Some((35, 3))));
        assert_eq!((sum("-"), sum("-, 0.1")), (Ok(None), Ok(Some((100, 1)))));
        assert_eq!((sum("a"), sum("0,010")), (Err(()), Err(())));
        assert_eq!(sum("00:01:02.5"), Ok(Some((62_500, 1))));
    }

    #[test]
    fn durations_have_units() {
        let is = |text, unit, ns, decimals| {
            assert_eq!(duration(text, unit), Some(Reading { ns, decimals }), "{text}");
        };
        is("12345", Unit::Micros, 12_345_000, 6);
        is("12.3456789", Unit::Millis, 12_345_678, 9);
        is("12ms", Unit::Seconds, 12_000_000, 3);
        is("0.5s", Unit::Millis, 500_000_000, 1);
        is("7", Unit::Nanos, 7, 9);
        is("7.9", Unit::Nanos, 7, 9);
        is("1.2e-05", Unit::Seconds, 12_000, 6);
        for bad in ["", "-1", "1x", "ms", "1e99", "99999999999999999999", "PT", "PT5X", "PT-1S"] {
            assert_eq!(duration(bad, Unit::Millis), None, "{bad}");
        }
        is("PT0.0148S", Unit::Millis, 14_800_000, 4);
        is("PT1M2.5S", Unit::Millis, 62_500_000_000, 1);
        is("PT2H", Unit::Millis, 7_200_000_000_000, 0);
        // .NET's TimeSpan, Python's timedelta, `time -f %E`.
        is("00:01:02.5000000", Unit::Millis, 62_500_000_000, 7);
        is("1.00:00:01", Unit::Millis, 86_401_000_000_000, 0);
        is("0:00:00.014800", Unit::Millis, 14_800_000, 6);
        is("1:02.52", Unit::Millis, 62_520_000_000, 2);
        for bad in [
            "00:12",
            "0:60:00",
            "0:00:61",
            "1:2",
            ":",
            "::",
            "1::02.5",
            "0:00:00:01",
            "x:00:01",
            "-0:00:01",
            "0.1:0.2",
        ] {
            assert_eq!(duration(bad, Unit::Seconds), None, "{bad}");
        }
    }
}
