//! The values of options of a load: times, rates, sizes, popularities, rows of a trace, and the default run folder.

use std::ops::Range;
use std::path::PathBuf;

use chrono::DateTime;

use load::{Popularity, Size};
use record::clock;

/// The default run folder: `runs/` and the current time in UTC, with a number behind it where a run of this second is there.
pub(super) fn default_out() -> PathBuf {
    let unix_s = (i128::from(clock::now()) + clock::unix_offset_ns()) / 1_000_000_000;
    let time = DateTime::from_timestamp(unix_s as i64, 0).unwrap_or_default();
    let name = time.format("runs/%Y-%m-%dT%H%M%SZ").to_string();
    let numbered = (2..).map(|number: u32| PathBuf::from(format!("{name}-{number}")));
    let mut names = std::iter::once(PathBuf::from(&name)).chain(numbered);
    names.find(|path| !path.exists()).unwrap_or_else(|| PathBuf::from(&name))
}

/// Parses a time with its unit: `10s`, `500ms`, `2m`; seconds without one.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let (number, factor) = if let Some(number) = text.strip_suffix("ms") {
        (number, 1e-3)
    } else if let Some(number) = text.strip_suffix('s') {
        (number, 1.0)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else if let Some(number) = text.strip_suffix('h') {
        (number, 3600.0)
    } else {
        (text, 1.0)
    };
    let value: Option<f64> = number.trim().parse().ok();
    value
        .map(|v| v * factor)
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or_else(|| format!("`{text}` is not a time: 10s, 500ms or 2m expected"))
}

/// Parses a response time to count at, in milliseconds: `50ms`, `0.5s`, or a number of milliseconds. Of an objective (`p99<50ms`) the
/// time counts: a load counts at times, and `report` and `predict` judge shares.
pub(super) fn objective_ms(text: &str) -> Result<f64, String> {
    if text.contains(['<', ':', '%']) {
        let objective: report::Objective = text.parse()?;
        return Ok(objective.within_s * 1e3);
    }
    match text.trim().parse::<f64>() {
        Ok(ms) if ms > 0.0 && ms.is_finite() => Ok(ms),
        Ok(_) => Err(format!("`{text}`: a time must be above 0")),
        Err(_) => report::objective::seconds(text).map(|time_s| time_s * 1e3),
    }
}

/// Parses a bit rate: `128kbit/s`, `1.5Mbit/s`, `64000`.
pub(super) fn bits(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches("/s").trim_end_matches("bit");
    let (number, factor) = match number.strip_suffix(['k', 'M', 'G']) {
        Some(shorter) if number.ends_with('k') => (shorter, 1e3),
        Some(shorter) if number.ends_with('M') => (shorter, 1e6),
        Some(shorter) => (shorter, 1e9),
        None => (number, 1.0),
    };
    let value: Option<f64> = number.trim().parse().ok();
    value
        .map(|value| value * factor)
        .filter(|bits| bits.is_finite() && *bits > 0.0)
        .ok_or_else(|| format!("`{text}` is not a bit rate: 128kbit/s expected"))
}

/// Parses `RATE:TIME`.
pub(super) fn segment(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("`{text}`: RATE:TIME expected, e.g. 100:10s");
    let (rate, time) = text.split_once(':').ok_or_else(wrong)?;
    Ok((rate.trim().parse().map_err(|_| wrong())?, seconds(time)?))
}

/// Parses `zipf:S` or `uniform`.
pub(super) fn popularity(text: &str) -> Result<Popularity, String> {
    let wrong = || format!("`{text}`: zipf:S (e.g. zipf:0.99) or uniform expected");
    match text.split_once(':') {
        None if text == "uniform" => Ok(Popularity::Uniform),
        Some(("zipf", s)) => match s.parse::<f64>() {
            Ok(exponent) if exponent.is_finite() && exponent >= 0.0 => {
                Ok(Popularity::Zipf(exponent))
            }
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    }
}

/// Parses `4096`, `16k`, `1M`, or `MIN..MAX` of such sizes.
pub(super) fn size(text: &str) -> Result<Size, String> {
    match text.split_once("..") {
        Some((min, max)) => Ok(Size { min: bytes(min)?, max: bytes(max)? }),
        None => bytes(text).map(Size::fixed),
    }
}

/// Parses `4096`, `4KiB` or `4kB`, as in a configuration, and `16k`, which is 16 KiB.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let whole = match text.strip_suffix(['k', 'K']) {
        Some(number) => format!("{number}KiB"),
        None if text.ends_with(['M', 'G']) => format!("{text}iB"),
        None => text.to_owned(),
    };
    let size = whole.parse::<configuration::Size>();
    size.map(|size| size.0)
        .map_err(|_| format!("`{text}` is not a size: 4096, 16k or 4KiB expected"))
}

/// Parses `FROM..TO`.
pub(super) fn rows(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("`{text}`: FROM..TO expected, e.g. 0..100000");
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let number = |t: &str| t.trim().replace('_', "").parse().map_err(|_| wrong());
    let range: Range<u64> = number(from)?..number(to)?;
    if range.is_empty() { Err(wrong()) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn arguments_mean_what_they_say() {
        assert_eq!(seconds("500ms"), Ok(0.5));
        assert_eq!(seconds("2m"), Ok(120.0));
        assert_eq!(seconds("3"), Ok(3.0));
        assert_eq!(segment("100:10s"), Ok((100.0, 10.0)));
        for same in ["50", "50ms", "0.05s", " 50 ms", "p99<50ms", "50ms:99%", "99% within 50ms"] {
            assert_eq!(objective_ms(same), Ok(50.0), "{same}");
        }
        for bad in ["0", "-1", "inf", "NaN", "50x", "p99", "p99<50", "0ms", ""] {
            assert!(objective_ms(bad).is_err(), "{bad}");
        }
        assert_eq!(size("16k"), Ok(Size::fixed(16 << 10)));
        assert_eq!(
            (bytes("4kB"), bytes("1M"), bytes("2 GiB")),
            (Ok(4000), Ok(1 << 20), Ok(2 << 30))
        );
        assert_eq!(size("1KiB..2M"), Ok(Size { min: 1 << 10, max: 2 << 20 }));
        assert_eq!(popularity("zipf:0.9"), Ok(Popularity::Zipf(0.9)));
        assert_eq!(rows("1_000..2000"), Ok(1000..2000));
        assert!(rows("1..0").is_err());
        for text in ["", "x", "-1s", "zipf:", ":", "1e999s", "🦀", "18446744073709551615G"] {
            assert!(seconds(text).is_err() && rows(text).is_err(), "{text}");
            assert!(size(text).is_err() && popularity(text).is_err(), "{text}");
            assert!(segment(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_arguments_never_panic(text in "\\PC{0,12}") {
            let _ = (seconds(&text), segment(&text), popularity(&text), size(&text), rows(&text));
        }
    }
}
