//! Numbers as people read them: the one formatter of messages, tables and labels.
//!
//! What `{}` makes of an `f64` is for programs: 0.001 s in milliseconds prints as `1.0000000000000002`, 1e300 as 301 digits,
//! and infinity as `inf`. JSON and files that are read back keep all digits and do not pass here.

/// Formats a number with `significant` digits, without trailing zeros after the decimal point, and with commas between the
/// thousands. From ten million on, a number that has fewer significant digits than places is in millions (`12.3 M`), and
/// past 10^15 or below 10^-12 a power of ten. `∞` and `–` (not a number) are the rest.
///
/// ```
/// use ground::number::digits;
/// assert_eq!(digits(0.1 + 0.2, 3), "0.3");
/// assert_eq!(digits(-1234.5, 4), "−1,234");
/// assert_eq!(digits(12_345_678.0, 3), "12.3 M");
/// assert_eq!(digits(1e300, 3), "1e300");
/// ```
pub fn digits(value: f64, significant: i32) -> String {
    if value.is_nan() {
        return "–".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "∞" } else { "−∞" }.to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let places = (significant - 1).clamp(0, 16) as usize;
    // Rounded first: the power of ten is that of the rounded number, so that 999.9995 is 1,000 and not 1000.0.
    let rounded = format!("{value:.places$e}");
    let (mantissa, power) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    if !(-12..15).contains(&power) {
        return format!("{}e{power}", signed(trimmed(mantissa)));
    }
    if power >= 7 && significant < power {
        return format!(
            "{} M",
            fixed(value / 1e6, (significant - 1 - (power - 6)).max(0) as usize)
        );
    }
    fixed(value, (significant - 1 - power).max(0) as usize)
}

/// A number as it was given: all its digits up to the twelfth, which hides what binary fractions add, without commas, so
/// that it can be given again. Past 10^15 or below 10^-6 a power of ten.
///
/// ```
/// assert_eq!(ground::number::exact(0.1 + 0.2), "0.3");
/// assert_eq!(ground::number::exact(1500.0), "1500");
/// assert_eq!(ground::number::exact(1e100), "1e100");
/// ```
pub fn exact(value: f64) -> String {
    if !value.is_finite() {
        return digits(value, 12);
    }
    let rounded = format!("{value:.11e}");
    let (mantissa, power) = rounded.split_once('e').unwrap_or((&rounded, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    match power {
        _ if value == 0.0 => "0".to_owned(),
        -6..15 => {
            trimmed(&format!("{value:.places$}", places = (11 - power).max(0) as usize)).to_owned()
        }
        _ => format!("{}e{power}", trimmed(mantissa)),
    }
}

/// Formats a number with a fixed number of decimals, for columns in which all have as many; from a billion on like [`digits`].
///
/// ```
/// assert_eq!(ground::number::decimals(1234.5, 2), "1,234.50");
/// assert_eq!(ground::number::decimals(-0.001, 1), "0.0");
/// assert_eq!(ground::number::decimals(f64::NAN, 1), "–");
/// ```
pub fn decimals(value: f64, places: usize) -> String {
    if !value.is_finite() || value.abs() >= 1e9 {
        return digits(value, 4);
    }
    let text = with_commas(&format!("{value:.places$}"));
    // What is rounded to nothing has no sign.
    match text.strip_prefix('−') {
        Some(size) if size.bytes().all(|byte| matches!(byte, b'0' | b'.')) => size.to_owned(),
        _ => text,
    }
}

/// The same with the sign of what is added: `+1.5`, `−1.5`, `+0.0`.
pub fn difference(value: f64, places: usize) -> String {
    let text = decimals(value, places);
    if value.is_nan() || text.starts_with('−') { text } else { format!("+{text}") }
}

/// Formats a share in percent, with a fixed number of decimals.
///
/// ```
/// assert_eq!(ground::number::percent(0.1 + 0.2, 2), "30.00 %");
/// ```
pub fn percent(share: f64, places: usize) -> String {
    format!("{} %", decimals(100.0 * share, places))
}

/// Formats a number of bytes in the largest unit of which there is one.
///
/// ```
/// assert_eq!(ground::number::bytes(1_500_000), "1.5 MB");
/// assert_eq!(ground::number::bytes(999_999), "1 MB");
/// ```
pub fn bytes(bytes: u64) -> String {
    let size = bytes as f64;
    // As rounded, so that no unit is reached by its number only.
    let units = [
        (999.5e12, 1e15, "PB"),
        (999.5e9, 1e12, "TB"),
        (999.5e6, 1e9, "GB"),
        (999.5e3, 1e6, "MB"),
        (999.5, 1e3, "kB"),
    ];
    match units.iter().find(|(from, ..)| size >= *from) {
        Some((_, unit, name)) => format!("{} {name}", digits(size / unit, 3)),
        None => format!("{bytes} B"),
    }
}

/// Formats a duration in seconds with three significant digits and a suitable unit: µs, ms, s, min or h.
///
/// ```
/// use ground::number::time;
/// assert_eq!(time(0.0123), "12.3 ms");
/// assert_eq!(time(0.9999999), "1 s");
/// assert_eq!(time(5400.0), "1.5 h");
/// ```
pub fn time(seconds: f64) -> String {
    if seconds.is_nan() {
        return "–".to_owned();
    }
    if seconds.is_infinite() {
        return "without bound".to_owned();
    }
    // As rounded, so that no unit is reached by its number only: 999.9999 ms are 1 s.
    let size = format!("{:.2e}", seconds.abs()).parse().unwrap_or(seconds.abs());
    let (value, unit) = match size {
        0.0 => (0.0, "ms"),
        // Below a nanosecond is what rounding errors leave of 0.
        s if s < 1e-9 => (0.0, "ms"),
        s if s < 1e-3 => (seconds * 1e6, "µs"),
        s if s < 1.0 => (seconds * 1e3, "ms"),
        s if s < 120.0 => (seconds, "s"),
        s if s < 3600.0 => (seconds / 60.0, "min"),
        _ => (seconds / 3600.0, "h"),
    };
    format!("{} {unit}", digits(value, 3))
}

/// Formats a value with a fixed number of decimals, without trailing zeros, with commas between the thousands.
fn fixed(value: f64, decimals: usize) -> String {
    with_commas(trimmed(&format!("{value:.decimals$}")))
}

/// A decimal fraction with commas between the thousands.
fn with_commas(text: &str) -> String {
    let text = signed(text);
    let digits_at = usize::from(text.starts_with('−')) * '−'.len_utf8();
    let (sign, rest) = text.split_at(digits_at);
    let (whole, fraction) = rest.find('.').map_or((rest, ""), |point| rest.split_at(point));
    let mut out = sign.to_owned();
    for (i, c) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out + fraction
}

/// Without zeros at the end of a decimal fraction.
fn trimmed(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

/// With the sign that is as wide as a digit.
fn signed(text: &str) -> String {
    text.replacen('-', "−", 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EXTREMES: [f64; 14] = [
        0.0,
        -0.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-300,
        1e300,
        999.9995,
        0.1 + 0.2,
        f64::MIN_POSITIVE,
        f64::MAX,
        -1e15,
        99.96,
        1e9,
    ];

    #[test]
    fn extremes_are_short_and_mean_what_they_are() {
        let shown = EXTREMES.map(|value| digits(value, 3));
        assert_eq!(
            shown,
            [
                "0",
                "0",
                "–",
                "∞",
                "−∞",
                "1e-300",
                "1e300",
                "1,000",
                "0.3",
                "2.23e-308",
                "1.8e308",
                "−1e15",
                "100",
                "1,000 M"
            ]
        );
        let times = EXTREMES.map(time);
        assert_eq!(&times[..5], ["0 ms", "0 ms", "–", "without bound", "without bound"]);
        assert_eq!((times[5].as_str(), times[6].as_str()), ("0 ms", "2.78e296 h"));
        let given = EXTREMES.map(exact);
        assert_eq!(
            (given[7].as_str(), given[8].as_str(), given[6].as_str()),
            ("999.9995", "0.3", "1e300")
        );
        let fixed = EXTREMES.map(|value| decimals(value, 3));
        assert_eq!(&fixed[..6], ["0.000", "0.000", "–", "∞", "−∞", "0.000"]);
        assert_eq!((fixed[8].as_str(), fixed[11].as_str()), ("0.300", "−1e15"));
        let added = EXTREMES.map(|value| difference(value, 1));
        assert_eq!((added[2].as_str(), added[3].as_str(), added[5].as_str()), ("–", "+∞", "+0.0"));
        let sizes = [0, 999, 1_000, 999_600, 123_456_789_012, u64::MAX].map(bytes);
        assert_eq!(sizes, ["0 B", "999 B", "1 kB", "1 MB", "123 GB", "18,447 PB"]);
        let all = shown.iter().chain(&times).chain(&given).chain(&fixed).chain(&added);
        for text in all.chain(&sizes) {
            assert!(text.chars().count() <= 18, "{text}");
        }
    }

    #[test]
    fn numbers_are_shown_to_their_digits() {
        let rows = [
            (1234.56, "1,235"),
            (0.012345, "0.0123"),
            (-7.0, "−7"),
            (1e6, "1,000,000"),
            (12_345_678.0, "12.3 M"),
            (9_999_999.0, "10 M"),
        ];
        for (value, shown) in rows {
            assert_eq!(digits(value, 3), shown);
        }
        assert_eq!(digits(123_456_789.0, 12), "123,456,789", "a count has all its digits");
        for (seconds, shown) in [
            (2e-5, "20 µs"),
            (0.9996e-3, "1 ms"),
            (0.00099999, "1 ms"),
            (59.999, "60 s"),
            (119.0, "119 s"),
            (150.0, "2.5 min"),
            (7200.0, "2 h"),
            (-0.004, "−4 ms"),
            (0.001 * 1.000_000_000_000_000_2, "1 ms"),
        ] {
            assert_eq!(time(seconds), shown, "{seconds}");
        }
    }

    proptest! {
        /// What is read back from a text is within the rounding of what was printed.
        #[test]
        fn a_text_says_its_number(value in prop::num::f64::NORMAL, significant in 1i32..9) {
            let text = digits(value, significant).replace(',', "").replace('−', "-");
            let (number, unit) = text.strip_suffix(" M").map_or((text.as_str(), 1.0), |n| (n, 1e6));
            let back = number.parse::<f64>().unwrap() * unit;
            let off = 0.51 * 10f64.powi(1 - significant);
            prop_assert!(back.is_infinite() || (back / value - 1.0).abs() <= off, "{value} {text}");
            prop_assert!((exact(value).parse::<f64>().unwrap() / value - 1.0).abs() < 1e-11);
        }
    }
}
