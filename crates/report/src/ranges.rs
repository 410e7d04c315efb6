//! Parses loads and counts as people write them: `500/s`, `30/min`, `12k/s`, lists of these, and ranges.
//!
//! One grammar for every option that takes several loads, servers or customers: `1..12`, `1000/s..20000/s:500/s`,
//! `1k/s..20k/s:5points`, `500/s,2k/s..4k/s`.

use std::str::FromStr;

/// The largest load, requests/s.
const RATE_MAX: f64 = 1e12;
/// The largest number of values of one option.
const VALUES_MAX: usize = 1_001;
/// Steps of a range of loads that states none, at most; its step is 1, 2 or 5 times a power of ten.
const STEPS: f64 = 20.0;
/// Values of a range of counts up to which each is taken, if no step is stated.
const EACH_MAX: u32 = 101;

/// Multipliers and units of time, longest first where one ends with another.
const MULTIPLIERS: [(&str, f64); 3] = [("k", 1e3), ("M", 1e6), ("G", 1e9)];
const PER: [(&str, f64); 4] = [("/s", 1.0), ("/min", 60.0), ("/h", 3600.0), ("/ms", 1e-3)];

/// Loads in requests/s, in the order given: a list of loads and ranges.
///
/// ```
/// use report::ranges::Loads;
/// let loads: Loads = "30/min,1k/s..2k/s:500/s".parse().unwrap();
/// assert_eq!(loads.0, [0.5, 1000.0, 1500.0, 2000.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads(pub Vec<f64>);

/// Whole numbers, in the order given: a list of numbers and ranges.
///
/// ```
/// use report::ranges::Counts;
/// let servers: Counts = "12..52:20,60".parse().unwrap();
/// assert_eq!(servers.0, [12, 32, 52, 60]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts(pub Vec<u32>);

/// What follows the colon of a range.
enum Step<'a> {
    /// Nothing.
    Chosen,
    /// A number of values.
    Points(u32),
    /// The distance of two values, not parsed.
    Of(&'a str),
}

/// A part of a list.
enum Part<'a> {
    One(&'a str),
    Range(&'a str, &'a str, Step<'a>),
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let part = |part| {
        let Some((from, rest)) = str::split_once(part, "..") else { return Ok(Part::One(part)) };
        let (to, step) = match rest.split_once(':') {
            None => (rest, Step::Chosen),
            Some((to, step)) => match step.trim().strip_suffix("points") {
                Some(count) => (to, Step::Points(points(count)?)),
                None => (to, Step::Of(step)),
            },
        };
        Ok(Part::Range(from, to, step))
    };
    text.split(',').map(str::trim).map(part).collect()
}

fn points(text: &str) -> Result<u32, String> {
    let count = text.trim().parse().ok().filter(|n| (2..VALUES_MAX as u32).contains(n));
    count.ok_or_else(|| format!("invalid number of points `{}`: write 2 to 1000", text.trim()))
}

/// Splits `12k/s` into a number, and a unit of time where there is one.
fn number_per(text: &str) -> Result<(f64, Option<f64>), String> {
    let wrong = || {
        format!("invalid load `{text}`: write requests/s, like `500`, `500/s`, `12k/s` or `30/min`")
    };
    let unit = PER.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)));
    let (number, per) = unit.map_or((text, None), |(number, s)| (number, Some(s)));
    let number = number.trim();
    let times = MULTIPLIERS.iter().find_map(|(m, by)| Some((number.strip_suffix(m)?, *by)));
    let (number, by) = times.unwrap_or((number, 1.0));
    let value = number.trim().parse::<f64>().map_err(|_| wrong())? * by;
    Ok((value, per))
}

fn checked(text: &str, rate: f64) -> Result<f64, String> {
    if !(rate.is_finite() && rate > 0.0) {
        return Err(format!("invalid load `{text}`: a load is a number of requests/s above 0"));
    }
    match rate <= RATE_MAX {
        true => Ok(rate),
        false => Err(format!("invalid load `{text}`: a load is at most {RATE_MAX:e} requests/s")),
    }
}

/// Parses one load, in requests/s: above 0 and at most 1e12. Without a unit it is in requests/s.
///
/// ```
/// assert_eq!(report::ranges::rate("12k/s"), Ok(12_000.0));
/// ```
pub fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    if text.contains("..") || text.contains(',') {
        return Err(format!("`{text}` is several loads, where one is expected"));
    }
    let (value, per) = number_per(text)?;
    checked(text, value / per.unwrap_or(1.0))
}

/// The step of a range that states none: 1, 2 or 5 times a power of ten, [`STEPS`] of it at most.
fn chosen_step(span: f64) -> f64 {
    let least = span / STEPS;
    let power = 10f64.powf(least.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|x| x * power >= least * (1.0 - 1e-9));
    step.unwrap_or(10.0) * power
}

fn loads_of(from: &str, to: &str, step: &Step) -> Result<Vec<f64>, String> {
    let (end, per) = number_per(to.trim())?;
    // `1000..20000/s`: a bound without a unit of time has that of the other.
    let (start, own) = number_per(from.trim())?;
    let of_end = per.or(own).unwrap_or(1.0);
    let low = checked(from, start / own.or(per).unwrap_or(1.0))?;
    let high = checked(to, end / of_end)?;
    if low > high {
        return Err(format!("`{from}..{to}`: the first load is above the last"));
    }
    let step = match step {
        _ if low == high => return Ok(vec![low]),
        Step::Points(count) => {
            let by = (high - low) / f64::from(count - 1);
            return Ok((0..*count).map(|i| low + by * f64::from(i)).collect());
        }
        Step::Chosen => chosen_step(high - low),
        Step::Of(text) => {
            let (step, unit) = number_per(text.trim())?;
            checked(text, step / unit.unwrap_or(of_end))?
        }
    };
    let count = ((high - low) / step * (1.0 + 1e-9)).floor();
    if count + 1.0 > VALUES_MAX as f64 {
        return Err(format!("`{from}..{to}`: more than {VALUES_MAX} loads; take larger steps"));
    }
    let mut all: Vec<f64> = (0..=count as u32).map(|i| low + step * f64::from(i)).collect();
    if all.last().is_some_and(|last| high - last > 1e-9 * high) {
        all.push(high);
    }
    Ok(all)
}

impl FromStr for Loads {
    type Err = String;

    fn from_str(text: &str) -> Result<Loads, String> {
        let mut all = Vec::new();
        for part in parts(text)? {
            match part {
                Part::One(one) => all.push(rate(one)?),
                Part::Range(from, to, step) => all.extend(loads_of(from, to, &step)?),
            }
        }
        match all.len() <= VALUES_MAX {
            true => Ok(Loads(all)),
            false => Err(format!("`{text}`: more than {VALUES_MAX} loads")),
        }
    }
}

fn count(text: &str) -> Result<u32, String> {
    let text = text.trim();
    text.parse().map_err(|_| {
        format!("invalid number `{text}`: write whole numbers, like `12`, `10,20,50`, `1..100` or `100..1000:100`")
    })
}

fn counts_of(from: &str, to: &str, step: &Step) -> Result<Vec<u32>, String> {
    let (low, high) = (count(from)?, count(to)?);
    if low > high {
        return Err(format!("`{from}..{to}`: the first is above the last"));
    }
    let span = high - low;
    let step = match step {
        Step::Of(text) => count(text)?,
        Step::Points(points) => {
            let by = f64::from(span) / f64::from(points - 1);
            let mut all: Vec<u32> =
                (0..*points).map(|i| low + (by * f64::from(i)).round() as u32).collect();
            all.dedup();
            return Ok(all);
        }
        Step::Chosen => span / EACH_MAX + 1,
    };
    if step == 0 || span / step >= VALUES_MAX as u32 {
        return Err(format!("`{from}..{to}`: more than {VALUES_MAX} numbers; take larger steps"));
    }
    let mut all: Vec<u32> = (low..=high).step_by(step as usize).collect();
    if all.last() != Some(&high) {
        all.push(high);
    }
    Ok(all)
}

impl FromStr for Counts {
    type Err = String;

    fn from_str(text: &str) -> Result<Counts, String> {
        let mut all = Vec::new();
        for part in parts(text)? {
            match part {
                Part::One(one) => all.push(count(one)?),
                Part::Range(from, to, step) => all.extend(counts_of(from, to, &step)?),
            }
        }
        match all.len() <= VALUES_MAX {
            true => Ok(Counts(all)),
            false => Err(format!("`{text}`: more than {VALUES_MAX} numbers")),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn loads(text: &str) -> Result<Vec<f64>, String> {
        text.parse::<Loads>().map(|loads| loads.0)
    }

    #[test]
    fn loads_have_units_lists_and_ranges() {
        for (text, expected) in [
            ("500", vec![500.0]),
            ("500/s", vec![500.0]),
            (" 30 / min", vec![]),
            ("30/min", vec![0.5]),
            ("7200/h", vec![2.0]),
            ("2/ms", vec![2000.0]),
            ("12k/s,1.5M/s", vec![12e3, 1.5e6]),
            ("1..3:1", vec![1.0, 2.0, 3.0]),
            ("60..120/min", vec![1.0, 1.05, 1.1]),
            ("1k/s..4k/s:2k/s", vec![1e3, 3e3, 4e3]),
            ("0.1/s..0.5/s:3points", vec![0.1, 0.3, 0.5]),
            ("5/s..5/s", vec![5.0]),
        ] {
            match loads(text) {
                Err(_) if expected.is_empty() => {}
                Ok(found) if text.starts_with("60..") => assert_eq!(found[..3], expected[..]),
                Ok(found) => {
                    assert_eq!(found.len(), expected.len(), "{text}");
                    for (a, b) in found.iter().zip(&expected) {
                        assert!((a - b).abs() < 1e-12 * b, "{text}: {found:?}");
                    }
                }
                Err(why) => panic!("{text}: {why}"),
            }
        }
        let figure = loads("1000/s..20000/s").unwrap();
        assert_eq!((figure.len(), figure[1], figure[19]), (20, 2000.0, 20_000.0));
        for bad in [
            "",
            "x",
            "-1",
            "0",
            "NaN",
            "inf",
            "1e13",
            "1..",
            "..5",
            "5..1",
            "1..5:0",
            "1..5:-1",
            "1..1e9:1",
            "1..2:1points",
            "1..2:99999points",
            "5/week",
            "1,,2",
            "1..2..3",
            "1/s/s",
            "k/s",
            "1..5:xpoints",
        ] {
            assert!(loads(bad).is_err(), "{bad}");
        }
        assert!(rate("1..5").is_err() && rate("1,2").is_err());
    }

    #[test]
    fn counts_have_lists_and_ranges() {
        let counts = |text: &str| text.parse::<Counts>().map(|counts| counts.0);
        assert_eq!(counts("12..52").unwrap().len(), 41);
        assert_eq!(counts("1..10:4").unwrap(), [1, 5, 9, 10]);
        assert_eq!(counts("1,2, 8..9").unwrap(), [1, 2, 8, 9]);
        assert_eq!(counts("1..3:9points").unwrap(), [1, 2, 3]);
        assert!(counts("0..4294967295").unwrap().len() <= 103);
        for bad in ["", "x", "-1", "1.5", "5..1", "1..5:0", "1..4294967295:1", "4294967296"] {
            assert!(counts(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        /// Whatever the text: no panic, no more values than the bound, and every value a load.
        #[test]
        fn any_text_is_refused_or_bounded(text in "[0-9kM./smin:,points-]{0,24}") {
            if let Ok(found) = loads(&text) {
                prop_assert!(found.len() <= VALUES_MAX);
                prop_assert!(found.iter().all(|rate| *rate > 0.0 && *rate <= RATE_MAX));
            }
            if let Ok(found) = text.parse::<Counts>() {
                prop_assert!(found.0.len() <= VALUES_MAX);
            }
        }

        /// A range begins and ends where it says, and ascends.
        #[test]
        fn ranges_hold_their_ends(low in 1u32..100_000, span in 1u32..100_000, points in 2u32..50) {
            let high = low + span;
            for text in [format!("{low}/s..{high}/s"), format!("{low}..{high}:{points}points")] {
                let found = loads(&text).unwrap();
                prop_assert_eq!(found[0], f64::from(low));
                prop_assert!((found[found.len() - 1] / f64::from(high) - 1.0).abs() < 1e-12);
                prop_assert!(found.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", found);
            }
        }
    }
}
