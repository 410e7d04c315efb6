//! Parses and prints times and objectives as people write them: `50ms`, `99% within 50ms`.

use std::str::FromStr;

pub use ground::number::{digits, time};
use serde::Serialize;

/// An objective: a share of requests to answer within a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Objective {
    /// The share, 0 to 1.
    pub share: f64,
    /// The time limit, seconds.
    pub within_s: f64,
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(text: &str) -> Result<Objective, String> {
        let wrong = || {
            format!(
                "invalid objective `{text}`: write it like `99% within 50ms`, `p99<50ms` or `50ms:99%`"
            )
        };
        let percentile = text.trim().strip_prefix(['p', 'P']).and_then(|rest| rest.split_once('<'));
        let (share, within) = match percentile {
            Some((share, within)) => (share, within.strip_prefix('=').unwrap_or(within)),
            None => {
                let written = text.split_once("within");
                let written = written.or_else(|| text.split_once(':').map(|(t, share)| (share, t)));
                let (share, within) = written.ok_or_else(wrong)?;
                (share.trim().strip_suffix('%').ok_or_else(wrong)?, within)
            }
        };
        let share = share.trim();
        let share: f64 = share.parse().map_err(|_| wrong())?;
        if !(share > 0.0 && share < 100.0) {
            return Err(format!("`{text}`: the share must be above 0 % and below 100 %"));
        }
        Ok(Objective { share: share / 100.0, within_s: seconds(within)? })
    }
}

impl std::fmt::Display for Objective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} % within {}", digits(self.share * 100.0, 8), time(self.within_s))
    }
}

/// Parses a duration such as `20ms`, `1.5s`, `800us` or `2min`, in seconds; at most one hour.
pub fn seconds(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let long = [("min", 1.0 / 60.0), ("m", 1.0 / 60.0), ("h", 1.0 / 3600.0)];
    let units = [("ms", 1e3), ("us", 1e6), ("µs", 1e6), ("s", 1.0)].into_iter().chain(long);
    let mut found = units.filter_map(|(unit, per_s)| Some((text.strip_suffix(unit)?, per_s)));
    let (number, per_s) = found
        .next()
        .ok_or_else(|| format!("invalid time `{text}`: write it with its unit, like `50ms`"))?;
    let value: f64 = number.trim().parse().map_err(|_| format!("invalid time `{text}`"))?;
    let value = value / per_s;
    if value > 0.0 && value <= 3600.0 {
        Ok(value)
    } else {
        Err(format!("`{text}`: a time must be above 0 and at most 3600 s"))
    }
}

/// Parses a bandwidth such as `125MB/s`, `1Gbit/s` or `40MiB/s`, in bytes per second.
pub fn bytes_per_s(text: &str) -> Result<f64, String> {
    let wrong = || format!("invalid bandwidth `{text}`: write it like `125MB/s` or `1Gbit/s`");
    let rate = text.trim().strip_suffix("/s").ok_or_else(wrong)?;
    let bits = ["kbit", "Mbit", "Gbit", "Tbit"].into_iter().zip([125.0, 125e3, 125e6, 125e9]);
    let bytes = ["kB", "MB", "GB", "TB"].into_iter().zip([1e3, 1e6, 1e9, 1e12]);
    let binary = ["KiB", "MiB", "GiB", "TiB"].into_iter().zip((1..5).map(|k| 1024f64.powi(k)));
    let units = bits.chain(bytes).chain(binary).chain([("B", 1.0)]);
    let mut found = units.filter_map(|(unit, of)| Some((rate.strip_suffix(unit)?, of)));
    let (number, of) = found.next().ok_or_else(wrong)?;
    let value = number.trim().parse::<f64>().map_err(|_| wrong())? * of;
    if value > 0.0 && value.is_finite() { Ok(value) } else { Err(wrong()) }
}

/// Parses a share written as `2%` or `0.02`; above 0, below 1.
pub fn share(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("invalid share `{text}`: write it like `2%` or `0.02`, above 0 and below 100 %");
    let (number, whole) = match text.trim().strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let value = number.trim().parse::<f64>().map_err(|_| wrong())? / whole;
    if value > 0.0 && value < 1.0 { Ok(value) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_bytes_have_units() {
        for (text, expected) in [
            ("1Gbit/s", 125e6),
            ("125MB/s", 125e6),
            ("2 KiB/s", 2048.0),
            ("7B/s", 7.0),
            ("0.5GB/s", 5e8),
        ] {
            assert_eq!(bytes_per_s(text), Ok(expected), "{text}");
        }
        for bad in ["", "1", "1/s", "MB/s", "-1MB/s", "0B/s", "NaNB/s", "infB/s", "1Gbit", "1 X/s"]
        {
            assert!(bytes_per_s(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn objectives_and_times_are_read() {
        let objective: Objective = "99.9 % within 50ms".parse().unwrap();
        assert!((objective.share - 0.999).abs() < 1e-12 && objective.within_s == 0.05);
        assert_eq!(objective.to_string(), "99.9 % within 50 ms");
        for same in ["p99.9<50ms", "p99.9 < 50 ms", "50ms:99.9%", "P99.9<=50ms"] {
            assert_eq!(same.parse(), Ok(objective), "{same}");
        }
        for bad in [
            "",
            "p99",
            "p<50ms",
            "p100<50ms",
            "50ms:99",
            "99%:50ms",
            "99%",
            "p99",
            "p99 < ",
            "99 < 50ms",
            "p100 < 50ms",
            "p99 > 50ms",
            "pp99 < 50ms",
            "50ms:99",
            "99% within",
            "99% within 50",
            "100% within 1s",
            "x% within 1s",
            "99% within -1s",
            "99% within NaNs",
            "99% within 1e9s",
        ] {
            assert!(bad.parse::<Objective>().is_err(), "{bad}");
        }
        assert_eq!(seconds("1.5s"), Ok(1.5));
        assert_eq!(
            (seconds("2min"), seconds("0.5 h"), seconds("1m")),
            (Ok(120.0), Ok(1800.0), Ok(60.0))
        );
        assert!((seconds(" 800us").unwrap() - 8e-4).abs() < 1e-15);
    }
}
