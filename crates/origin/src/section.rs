//! What a section of the configuration is: keys with a default and an explanation, and checks of
//! their values.
//!
//! [`section!`](crate::section) declares all that is said about a key in one place. `serde` does
//! the reading and writing. A derived JSON schema (`schemars`) would bring the explanations too,
//! but leaves defaults in a second place, and keeps the order of keys only where all JSON of the
//! workspace does.

use std::any::Any;
use std::fmt::{self, Display};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// A section of the configuration.
pub trait Section {
    /// Its explanation, as lines of TOML comments.
    const ABOUT: &'static str;
    /// Its keys in the order of their declaration, each with its explanation as lines of TOML
    /// comments.
    const KEYS: &'static [(&'static str, &'static str)];

    /// Its keys whose values are secrets, each with its value if it is set.
    fn secrets(&self) -> Vec<(&'static str, Option<&Secret>)>;
}

/// The value of a key, if its type is that of a secret: `None` for a key of any other type.
///
/// [`section!`](crate::section) asks this of every key, so the list of secrets follows from the types and no key can be
/// left out of it.
#[doc(hidden)]
pub fn as_secret(value: &dyn Any) -> Option<Option<&Secret>> {
    value.downcast_ref::<Option<Secret>>().map(Option::as_ref)
}

/// Declares a section: a struct whose fields are keys with a default, and whose documentation is
/// the explanation of the section and of each key. The struct can be read and written by `serde`:
/// what is missing has its default, and unknown keys are errors.
///
/// ```
/// use origin::Section;
/// origin::section! {
///     /// Where objects are durable.
///     pub struct Store {
///         /// Concurrent requests.
///         pub parallel: u32 = 16,
///     }
/// }
/// assert_eq!(Store::default().parallel, 16);
/// assert_eq!(Store::ABOUT, "# Where objects are durable.\n");
/// assert_eq!(Store::KEYS, [("parallel", "# Concurrent requests.\n")]);
/// ```
#[macro_export]
macro_rules! section {
    (@comment doc = $line:literal) => { concat!("#", $line, "\n") };
    (@comment $($other:tt)*) => { "" };
    (
        $(#[$($about:tt)*])*
        pub struct $name:ident {
            $($(#[$($attribute:tt)*])* pub $key:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$($about)*])*
        #[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(#[$($attribute)*])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $crate::section::Section for $name {
            const ABOUT: &'static str = concat!($($crate::section!(@comment $($about)*),)*);
            const KEYS: &'static [(&'static str, &'static str)] = &[
                $((stringify!($key), concat!($($crate::section!(@comment $($attribute)*),)*)),)*
            ];

            fn secrets(&self) -> Vec<(&'static str, Option<&$crate::section::Secret>)> {
                let keys = [$((stringify!($key), $crate::section::as_secret(&self.$key)),)*];
                keys.into_iter().filter_map(|(key, secret)| Some((key, secret?))).collect()
            }
        }
    };
}

/// Something wrong in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Key (`device.0.bytes`), or file and line.
    pub place: String,
    /// What is wrong, and what to write instead.
    pub what: String,
}

/// Checks the values of a section and collects the mistakes.
#[derive(Debug)]
pub struct Checks<'a> {
    prefix: String,
    mistakes: &'a mut Vec<Mistake>,
}

impl<'a> Checks<'a> {
    /// Checks of the whole configuration: keys are given with their section.
    pub fn new(mistakes: &'a mut Vec<Mistake>) -> Checks<'a> {
        Checks { prefix: String::new(), mistakes }
    }

    /// Checks of a part: a section, or the table that is the value of a key.
    pub fn part(&mut self, part: &str) -> Checks<'_> {
        Checks { prefix: format!("{}{part}.", self.prefix), mistakes: self.mistakes }
    }

    /// Adds a mistake unless a condition on a key's value holds.
    pub fn must(&mut self, holds: bool, key: &str, what: impl Into<String>) {
        if !holds {
            let place = format!("{}{key}", self.prefix);
            self.mistakes.push(Mistake { place, what: with_short_numbers(&what.into()) });
        }
    }

    /// Adds a mistake if a value is not within two bounds, or not a number.
    pub fn between<T: PartialOrd + Display + Copy>(
        &mut self,
        key: &str,
        value: T,
        low: T,
        high: T,
    ) {
        let holds = (low..=high).contains(&value);
        self.must(holds, key, format!("must be between {low} and {high}, not {value}"));
    }

    /// Adds a mistake if a value is below a bound, or not a number.
    pub fn at_least<T: PartialOrd + Display>(&mut self, key: &str, value: T, low: T) {
        self.must(low <= value, key, format!("must be at least {low}, not {value}"));
    }
}

/// Digits of a number that is printed as it is; no whole number of 64 bits has more.
const DIGITS_MAX: usize = 20;

/// A message whose numbers have at most 20 digits and longer ones an exponent: `Display` writes 1e300 with 301 digits.
pub fn with_short_numbers(text: &str) -> String {
    let is_digit = |c: char| c.is_ascii_digit() || c == '.';
    let mut short = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(is_digit) {
        let (before, from) = rest.split_at(start);
        let (digits, after) = from.split_at(from.find(|c| !is_digit(c)).unwrap_or(from.len()));
        short += before;
        let stands_alone =
            !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        match digits.parse::<f64>() {
            Ok(number) if digits.len() > DIGITS_MAX && stands_alone => {
                short += &format!("{number:e}")
            }
            _ => short += digits,
        }
        rest = after;
    }
    short + rest
}

/// A text that is never shown: not by `concertina config`, in a run's record, or for debugging. It
/// can be read but not written: a section with a field of this type that is not skipped when the section is written
/// does not compile.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides a text.
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text, for those who are meant to have it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        // The value may be the secret, so the error must not repeat it.
        String::deserialize(deserializer)
            .map(Secret)
            .map_err(|_| D::Error::custom("must be a string"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_printed_as_hundreds_of_digits() {
        for (number, printed) in [
            (1e300, "1e300"),
            (-1e300, "-1e300"),
            (f64::MAX, "1.7976931348623157e308"),
            (1e-300, "1e-300"),
            (1e6, "1000000"),
            (0.001, "0.001"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ] {
            let mut mistakes = Vec::new();
            let mut checks = Checks::new(&mut mistakes);
            checks.between("a", number, 5.0, 5.0);
            checks.at_least("a", -f64::INFINITY, number);
            checks.must(false, "a", format!("not {number}"));
            for mistake in mistakes {
                assert!(mistake.what.contains(printed), "{number:e}: {}", mistake.what);
                assert!(mistake.what.len() < 80, "{}", mistake.what);
            }
        }
        for same in [
            "",
            "no number",
            "18446744073709551615",
            "127.0.0.1:7070",
            "a.b",
            "...",
            "5.",
            "x123456789012345678901234567890",
            "123456789012345678901234567890x",
            "é1ü",
        ] {
            assert_eq!(with_short_numbers(same), same);
        }
    }
}
