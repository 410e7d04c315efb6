//! Times of a plan as the simulator has them.

use ground::window::{Nanos, SECOND};

/// Nanoseconds of a time in seconds.
pub(super) fn nanos(seconds: f64) -> Nanos {
    (seconds * SECOND as f64) as Nanos
}

/// The longest time: 50 years, within what virtual time holds.
const SPAN_MAX_S: f64 = 50.0 * 365.0 * DAY_S;
/// The longest mean of a delay. Drawn ones are longer, and end within what virtual time holds, too.
const DELAY_MAX_S: f64 = DAY_S;
const DAY_S: f64 = 86_400.0;

/// Parses a time of up to 50 years: `10s`, `500ms`, `4h`, `90d`, `3y`; without a unit, seconds.
///
/// # Errors
/// If it is not such a time.
pub fn span(text: &str) -> Result<f64, String> {
    let units =
        [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", DAY_S), ("y", 365.0 * DAY_S)];
    let with_unit =
        units.iter().find_map(|&(unit, each_s)| Some((text.strip_suffix(unit)?, each_s)));
    let (number, each_s) = with_unit.unwrap_or((text, 1.0));
    let value = number.trim().parse::<f64>().ok().map(|value| value * each_s);
    value.filter(|value| (0.0..=SPAN_MAX_S).contains(value)).ok_or_else(|| {
        format!("`{text}` is not a time of up to 50 years: 500ms, 10s, 4h, 90d or 3y expected")
    })
}

/// Parses the mean of a delay: as [`span`], up to a day.
///
/// # Errors
/// If it is not such a time.
pub fn delay(text: &str) -> Result<f64, String> {
    let value = span(text).ok().filter(|value| *value <= DELAY_MAX_S);
    value.ok_or_else(|| format!("`{text}` is not a delay of up to a day: 0.1ms, 5s or 1m expected"))
}

/// The time of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Span {
    /// Time that is not counted, seconds.
    pub warmup_s: f64,
    /// Time that is, seconds.
    pub duration_s: f64,
}

impl Span {
    /// The end of the step.
    pub fn end(self) -> Nanos {
        nanos(self.warmup_s + self.duration_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_within_what_virtual_time_holds() {
        for (text, expected) in
            [("0.1ms", 1e-4), ("5", 5.0), ("2m", 120.0), ("4h", 14_400.0), ("1y", 31_536_000.0)]
        {
            assert!((span(text).unwrap() - expected).abs() < 1e-9, "{text}");
        }
        for bad in ["", "s", "-1s", "nan", "inf", "1e300", "60y", "1e30h", "1w", "1 0s"] {
            assert!(span(bad).is_err() && delay(bad).is_err(), "{bad}");
        }
        assert!(delay("24h").is_ok() && delay("25h").is_err() && span("25h").is_ok());
        // Exponential times are at most 54 times their mean, by how they are drawn.
        let latest_s = 3.0 * SPAN_MAX_S + 60.0 * DELAY_MAX_S;
        assert!(latest_s < Nanos::MAX as f64 * 1e-9 / 2.0);
    }
}
