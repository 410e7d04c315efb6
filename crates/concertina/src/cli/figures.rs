//! Figures in words: of running servers, of which each may be absent.

use std::fmt::Display;

use ground::number::{self, digits, time};

pub use ground::number::bytes;

/// In place of a figure that the server does not report.
pub const ABSENT: &str = "-";

/// A figure as it is, or absent.
pub fn figure(value: Option<impl Display>) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| value.to_string())
}

/// A number in three digits.
pub fn number(value: impl Into<Option<f64>>) -> String {
    figure(value.into().map(|value| digits(value, 3)))
}

/// A share in percent.
pub fn percent(share: impl Into<Option<f64>>) -> String {
    figure(share.into().map(|share| number::percent(share, 2)))
}

/// Seconds in a suitable unit.
pub fn seconds(seconds: impl Into<Option<f64>>) -> String {
    figure(seconds.into().map(time))
}
