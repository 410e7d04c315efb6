//! How times and counts of an import are written for people.

use chrono::DateTime;

use crate::objective::digits;

/// A moment in UTC to the millisecond: `2026-11-22 04:15:00.250`.
pub(super) fn moment(unix_us: u64) -> String {
    let us = i64::try_from(unix_us).unwrap_or(i64::MAX);
    match DateTime::from_timestamp_micros(us) {
        Some(time) => time.format("%Y-%m-%d %H:%M:%S%.3f").to_string(),
        None => format!("{unix_us} µs after 1970"),
    }
}

/// `1 request`, `3 requests`.
pub(super) fn count(n: u64, what: &str) -> String {
    let many = if n == 1 { "" } else { "s" };
    format!("{} {what}{many}", digits(n as f64, 15))
}

/// A share of all in percent, never rounded to nothing or to everything.
pub(super) fn share(part: u64, all: u64) -> String {
    let percent = 100.0 * part as f64 / all.max(1) as f64;
    match percent {
        p if part > 0 && p < 0.01 => "under 0.01 %".to_owned(),
        p if part < all && p > 99.9 => "over 99.9 %".to_owned(),
        p => format!("{} %", digits(p, if p < 10.0 { 2 } else { 3 })),
    }
}

/// A large number to two digits: `60,000`.
pub(super) fn about(x: f64) -> String {
    let unit = 10f64.powf((x.max(10.0).log10() - 1.0).floor());
    digits((x / unit).round() * unit, 15)
}

/// A length of time: `250 ms`, `40 s`, `12 min`, `3 h`, `2 days`.
pub(super) fn length(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 120.0 => return crate::objective::time(s),
        s if s < 7_200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3_600.0, "h"),
        s => (s / 86_400.0, "days"),
    };
    format!("{} {unit}", digits(value, 3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_can_be_read() {
        assert_eq!(moment(1_795_320_900_250_000), "2026-11-22 04:15:00.250");
        assert!(moment(u64::MAX).contains("1970"));
        assert_eq!(
            (count(1, "line"), count(2_500, "line")),
            ("1 line".into(), "2,500 lines".into())
        );
        let shares = [(0, 9), (1, 100_000), (1, 3), (99_999, 100_000), (9, 9), (0, 0)];
        assert_eq!(
            shares.map(|(part, all)| share(part, all)),
            ["0 %", "under 0.01 %", "33.3 %", "over 99.9 %", "100 %", "0 %"]
        );
        assert_eq!([7.4, 34.6, 60_445.0].map(about), ["7", "35", "60,000"]);
        let lengths = [0.25, 40.0, 720.0, 10_800.0, 2_592_000.0].map(length);
        assert_eq!(lengths, ["250 ms", "40 s", "12 min", "3 h", "30 days"]);
    }
}
