//! Of several values that may be the duration of a request, which is the whole of it.

use super::time::{self, Unit};

/// The values that a name has in the first lines, as durations.
pub(super) struct Durations {
    /// Seconds, or numbers whose unit is not known; `None` where there is none.
    numbers: Vec<Option<f64>>,
    has_unit: bool,
    /// The step of the numbers, as they are written.
    tick: f64,
}

impl Durations {
    pub fn new(texts: Vec<Option<&str>>, unit: Option<Unit>) -> Durations {
        let number = |text: &str| text.parse::<f64>().ok();
        let has_unit = unit.is_some() || texts.iter().flatten().all(|text| number(text).is_none());
        let read = |text: &str| time::durations(text, unit.unwrap_or(Unit::Seconds)).ok().flatten();
        let point = |text: &str| text.split_once('.').map_or(0, |(_, part)| part.len() as u32);
        let all = || texts.iter().flatten();
        let decimals = if has_unit {
            all().filter_map(|text| read(text)).map(|one| one.decimals).max()
        } else {
            all().map(|text| point(text)).max()
        };
        let numbers = texts.iter().map(|text| {
            let text = (*text)?;
            if has_unit { read(text).map(|one| one.ns as f64 * 1e-9) } else { number(text) }
        });
        let tick = 0.1f64.powi(decimals.unwrap_or(0).min(9) as i32);
        Durations { numbers: numbers.collect(), has_unit, tick }
    }

    /// Whether on nearly all lines that have both, a relation of the two numbers holds.
    fn mostly(&self, other: &Durations, holds: impl Fn(f64, f64) -> bool) -> bool {
        let both = self.numbers.iter().zip(&other.numbers);
        let pairs: Vec<(f64, f64)> = both.filter_map(|(a, b)| (*a).zip(*b)).collect();
        let count = pairs.iter().filter(|(a, b)| holds(*a, *b)).count();
        count > 0 && count * 100 >= pairs.len() * 95
    }

    /// Whether these are as long as the others or longer. Both may have been rounded.
    fn contains(&self, other: &Durations) -> bool {
        let slack = 1.001 * (self.tick + other.tick);
        self.has_unit == other.has_unit && self.mostly(other, |a, b| a + slack >= b)
    }

    /// Whether the others, whose unit is not known, are the same in one.
    fn is_repeated_by(&self, other: &Durations) -> bool {
        let is_same = |unit: Unit| {
            let scale = unit.seconds();
            let slack = 1.001 * (self.tick + scale * other.tick);
            self.mostly(other, |a, b| (a - scale * b).abs() <= slack)
        };
        self.has_unit && !other.has_unit && Unit::ALL.into_iter().any(is_same)
    }
}

/// The place of the whole, of several: it is as long as each of the others on nearly all lines. Of the same in several units it is that with the
/// finest step. `None` if there is none.
pub(super) fn longest(all: &[Durations]) -> Option<usize> {
    let contains = |one: &Durations| {
        all.iter().all(|other| {
            std::ptr::eq(one, other) || one.contains(other) || one.is_repeated_by(other)
        })
    };
    let wholes = all.iter().enumerate().filter(|(_, one)| contains(one));
    wholes.min_by(|(_, a), (_, b)| a.tick.total_cmp(&b.tick)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of some values is the whole; their names are their units.
    fn find_whole(all: &[(&str, [&str; 4])]) -> Option<usize> {
        let durations = all.iter().map(|(unit, texts)| {
            Durations::new(texts.iter().map(|text| Some(*text)).collect(), Unit::parse(unit))
        });
        longest(&durations.collect::<Vec<_>>())
    }

    #[test]
    fn the_whole_is_the_longest_on_nearly_all_lines() {
        let (part, all) = (["1", "2", "3", "4"], ["2", "2", "5", "7"]);
        assert_eq!(find_whole(&[("", part), ("", all)]), Some(1));
        assert_eq!(find_whole(&[("ms", all), ("ms", part)]), Some(0));
        assert_eq!(find_whole(&[("us", all), ("ms", part)]), Some(1));
        // The same twice: that with the finer step.
        assert_eq!(find_whole(&[("ms", all), ("us", ["2100", "1900", "5300", "7000"])]), Some(1));
        assert_eq!(find_whole(&[("", ["0.002", "0.002", "0.005", "0.007"]), ("ms", all)]), Some(1));
        assert_eq!(find_whole(&[("", ["2.1ms", "2ms", "5ms", "7ms"]), ("ms", all)]), Some(0));
        // Neither is, or their units are not known.
        assert_eq!(find_whole(&[("", part), ("", ["90", "0", "90", "0"])]), None);
        assert_eq!(find_whole(&[("", part), ("ms", all)]), None);
    }
}
