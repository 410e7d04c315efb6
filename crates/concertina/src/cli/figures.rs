//! Figures in words: of running servers, of which each may be absent.

use std::fmt::Display;

/// In place of a figure that the server does not report.
pub const ABSENT: &str = "-";

/// A figure as it is, or absent.
pub fn figure(value: Option<impl Display>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| value.to_string())
}

/// A number in three digits.
pub fn number(value: impl Into<Option<f64>>) -> String {
    figure(value.into().map(|value| match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }))
}

/// A share in percent.
pub fn percent(share: impl Into<Option<f64>>) -> String {
    figure(share.into().map(|share| format!("{:.2} %", share * 100.0)))
}

/// Seconds in milliseconds.
pub fn ms(seconds: impl Into<Option<f64>>) -> String {
    figure(seconds.into().map(|seconds| format!("{:.3} ms", seconds * 1e3)))
}

/// Bytes in the largest unit of which there is one.
pub fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.iter().find(|(unit, _)| size >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{:.1} {name}", size / unit))
}
