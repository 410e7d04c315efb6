//! Numbers in values of attributes: integers are exact, others are the nearest `f64`.

use std::cmp::Ordering;
use std::fmt;

/// The longest number that is parsed, in characters.
const CHARS_MAX: usize = 512;
/// Integers beyond this are compared as floating-point numbers.
const INTEGER_MAX: f64 = 1e38;

/// A finite number. Integers of up to 38 digits compare exactly, so that identifiers and
/// nanoseconds do.
///
/// ```
/// use shard::record::Number;
///
/// let number = Number::parse(b" 1500 ").unwrap();
/// assert!(number > Number::parse(b"1.4e3").unwrap());
/// assert_eq!(Number::parse(b"12 MB"), None);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Number(Value);

#[derive(Clone, Copy, Debug)]
enum Value {
    Integer(i128),
    Float(f64),
}

impl Number {
    /// Parses a decimal number, optionally surrounded by blanks; `None` for anything else,
    /// including infinities.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text.trim_ascii()).ok()?;
        let is_decimal = |byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
        if text.len() > CHARS_MAX || !text.bytes().all(is_decimal) {
            return None;
        }
        if let Ok(integer) = text.parse() {
            return Some(Self(Value::Integer(integer)));
        }
        let float: f64 = text.parse().ok()?;
        if let Some(integer) = integer(text) {
            return Some(Self(Value::Integer(integer)));
        }
        if float.fract() == 0.0 && float.abs() < INTEGER_MAX {
            return Some(Self(Value::Integer(float as i128)));
        }
        float.is_finite().then_some(Self(Value::Float(float)))
    }

    /// The nearest `f64`.
    pub(crate) fn to_f64(self) -> f64 {
        match self.0 {
            Value::Integer(integer) => integer as f64,
            Value::Float(float) => float,
        }
    }
}

/// The digits of an integer that is compared exactly.
const DIGITS_MAX: usize = 38;

/// The integer that a decimal number with a point or an exponent is, if it has at most [`DIGITS_MAX`] digits: `1e23` is 10²³, and not
/// the floating-point number next to it. `None` for any other number; `text` is one.
fn integer(text: &str) -> Option<i128> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = [whole.trim_start_matches(['+', '-']), fraction].concat();
    let significant = digits.trim_end_matches('0');
    if significant.is_empty() {
        return Some(0);
    }
    let zeros = digits.len() - significant.len();
    // An exponent of more digits makes no integer; in 64 bits the sum cannot overflow.
    let exponent = i64::from(exponent.parse::<i32>().ok()?);
    let shift = exponent - fraction.len() as i64 + zeros as i64;
    let shift = usize::try_from(shift).ok()?;
    let significant = significant.trim_start_matches('0');
    if shift > DIGITS_MAX || significant.len() + shift > DIGITS_MAX {
        return None;
    }
    let magnitude = significant.parse::<i128>().ok()? * 10i128.pow(shift as u32);
    Some(if whole.starts_with('-') { -magnitude } else { magnitude })
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.0, other.0) {
            (Value::Integer(a), Value::Integer(b)) => a.cmp(&b),
            // The values are finite, and zero is an integer, so `total_cmp` is the numeric order.
            _ => self.to_f64().total_cmp(&other.to_f64()),
        }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Number {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Number {}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Integer(integer) => integer.fmt(f),
            Value::Float(float) => float.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> Number {
        Number::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn numbers_are_in_their_order() {
        let ascending = [
            "-1e300",
            "-7.5",
            "-7",
            "-0.0",
            "1e-9",
            "0.5",
            "1",
            "9007199254740992",
            "9007199254740993",
            "1e39",
        ];
        for pair in ascending.windows(2) {
            assert!(number(pair[0]) < number(pair[1]), "{pair:?}");
        }
        assert_eq!(number("1e3"), number("1000"));
        assert_eq!(number("+5"), number("5.0"));
    }

    #[test]
    fn integers_are_exact_however_they_are_written() {
        for (text, same) in [
            ("1e23", "100000000000000000000000"),
            ("-1.5E22", "-15000000000000000000000"),
            ("12345678901234567890123.0", "12345678901234567890123"),
            ("9007199254740993e0", "9007199254740993"),
            ("900719925474099300.00e-2", "9007199254740993"),
            ("0.00001e28", "1e23"),
            ("9.9e37", "99000000000000000000000000000000000000"),
            ("-0e5", "0"),
            ("0e99999999999999999999", "0"),
        ] {
            assert_eq!(number(text), number(same), "{text}");
        }
        // The floating-point number next to it is another one.
        assert!(number("99999999999999991611392") < number("1e23"));
        assert!(number("1e37") < number("10000000000000000000000000000000000001"));
        assert!(number("1e-400") == number("0") && number("1e38") > number("9.9e37"));
        assert_eq!(number("1.5e-9223372036854775808"), number("0"));
        assert_eq!(Number::parse(b"10e9223372036854775807"), None);
    }

    #[test]
    fn words_are_no_numbers() {
        for text in ["", "inf", "nan", "1e999", "1,5", "0x10", "1-2", "e", ".", "1 2"] {
            assert_eq!(Number::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_shown_is_read_again() {
        for text in
            ["0", "-12", "1e20", "1e300", "0.1", "-2.5e-7", "123456789012345678901234567890"]
        {
            assert_eq!(number(&number(text).to_string()), number(text), "{text}");
        }
    }
}
