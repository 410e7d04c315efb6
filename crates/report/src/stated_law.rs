//! Laws of times as people write them: `exp:6.2ms`, `gamma:6.2ms,0.25`, `file:times.txt`.

use std::path::Path;
use std::sync::Arc;

use crate::{objective, ranges};
use ground::window::Histogram;
use model::StatedNumber;
use model::distribution::{
    AnyLaw, Deterministic, Empirical, Exponential, Gamma, Hyperexponential, Lognormal, ServiceTime,
};

/// How a law is written.
pub const FORMS: &str =
    "exp:MEAN, det:TIME, gamma:MEAN,SCV, lognormal:MEAN,SCV, hyper:MEAN,SCV or file:PATH";

/// A law of times, as stated.
#[derive(Clone)]
pub struct StatedLaw {
    /// The law.
    pub law: AnyLaw,
    /// Its mean, seconds.
    pub mean_s: StatedNumber,
    /// The law as it was written.
    pub text: String,
}

/// Parses a law: [`FORMS`]. MEAN is a time (`6.2ms`), a rate (`150/s`, whose inverse is the mean) or a 95 % interval of the
/// mean (`6.0..6.4ms`); SCV the squared coefficient of variation; a time alone is a constant.
///
/// # Errors
/// What is wrong with the text or the file, and how a law is written.
pub fn parse(text: &str) -> Result<StatedLaw, String> {
    let text = text.trim();
    let (kind, rest) = text.split_once(':').unwrap_or(("det", text));
    if kind == "file" {
        let law = from_file(Path::new(rest))?;
        let mean_s = StatedNumber::exact(law.mean());
        return Ok(StatedLaw { law: Arc::new(law), mean_s, text: text.to_owned() });
    }
    let (mean, scv) = match rest.split_once(',') {
        Some((mean, scv)) => (mean, Some(number(scv)?)),
        None => (rest, None),
    };
    let mean_s = mean_of(mean)?;
    let law: Result<AnyLaw, model::Error> = match (kind, scv) {
        ("exp", None) => Exponential::new(mean_s.value).map(|law| Arc::new(law) as AnyLaw),
        ("det", None) => Deterministic::new(mean_s.value).map(|law| Arc::new(law) as AnyLaw),
        ("gamma", Some(scv)) => Gamma::new(mean_s.value, scv).map(|law| Arc::new(law) as AnyLaw),
        ("lognormal", Some(scv)) => {
            Lognormal::new(mean_s.value, scv).map(|law| Arc::new(law) as AnyLaw)
        }
        ("hyper", Some(scv)) => {
            Hyperexponential::balanced(mean_s.value, scv).map(|law| Arc::new(law) as AnyLaw)
        }
        ("gamma" | "lognormal" | "hyper", None) => {
            return Err(format!(
                "`{text}`: add the squared coefficient of variation, like `{kind}:6.2ms,0.5`"
            ));
        }
        _ => return Err(format!("invalid law `{text}`: write one of {FORMS}")),
    };
    let law = law.map_err(|error| format!("`{text}`: {error}"))?;
    Ok(StatedLaw { law, mean_s, text: text.to_owned() })
}

fn number(text: &str) -> Result<f64, String> {
    let value = text.trim().parse::<f64>().ok().filter(|x| x.is_finite());
    value.ok_or_else(|| format!("invalid number `{}`", text.trim()))
}

/// A mean time, by itself, by its rate, or between two.
fn mean_of(text: &str) -> Result<StatedNumber, String> {
    let text = text.trim();
    if let Some((low, high)) = text.split_once("..") {
        let unit: String = high.trim().chars().skip_while(|c| !c.is_alphabetic()).collect();
        let low = match low.trim().ends_with(char::is_alphabetic) {
            true => objective::seconds(low)?,
            false => objective::seconds(&format!("{}{unit}", low.trim()))?,
        };
        let high = objective::seconds(high)?;
        return match low < high {
            true => Ok(StatedNumber::between(low, high)),
            false => Err(format!("`{text}`: the lower end of an interval is below the upper")),
        };
    }
    if text.contains('/') {
        return Ok(StatedNumber::exact(1.0 / ranges::rate(text)?));
    }
    objective::seconds(text).map(StatedNumber::exact)
}

/// Measured times, one a line, each with its unit; empty lines and lines that begin with `#` are skipped.
fn from_file(path: &Path) -> Result<Empirical, String> {
    let shown = path.display();
    let text = record::file::read_text(path).map_err(|e| format!("cannot read {shown}: {e}"))?;
    let mut times = Histogram::default();
    for (line, text) in text.lines().enumerate() {
        let text = text.trim();
        if !text.is_empty() && !text.starts_with('#') {
            let seconds =
                objective::seconds(text).map_err(|e| format!("{shown}:{}: {e}", line + 1))?;
            times.record((seconds * 1e9).round() as u64);
        }
    }
    if times.is_empty() {
        return Err(format!("{shown} has no times; write one a line, with its unit, like `6.2ms`"));
    }
    Empirical::from_histogram(&times).map_err(|e| format!("{shown}: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laws_are_read() {
        for (text, mean, scv) in [
            ("exp:6.2ms", 0.0062, 1.0),
            ("exp:150/s", 1.0 / 150.0, 1.0),
            ("exp:6.0..6.4ms", 0.0062, 1.0),
            ("det:4ms", 0.004, 0.0),
            ("4ms", 0.004, 0.0),
            ("gamma:10ms,0.25", 0.01, 0.25),
            ("lognormal:10ms, 2", 0.01, 2.0),
            ("hyper:10ms,4", 0.01, 4.0),
        ] {
            let found = parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
            assert!((found.law.mean() / mean - 1.0).abs() < 1e-12, "{text}");
            assert!((found.law.scv() - scv).abs() < 1e-12, "{text}");
        }
        let between = parse("exp:6ms..6400us").unwrap().mean_s;
        assert!((between.low - 0.006).abs() < 1e-12 && (between.high - 0.0064).abs() < 1e-12);
        for bad in [
            "",
            "exp",
            "exp:",
            "exp:6",
            "exp:-1ms",
            "exp:6.4..6.0ms",
            "gamma:6ms",
            "hyper:6ms,0.5",
            "gamma:6ms,x",
            "gamma:6ms,-1",
            "normal:6ms",
            "file:/nonexistent",
            "exp:6ms,2",
            "exp:0/s",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_of_times_is_a_law() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("times.txt");
        std::fs::write(&path, "# measured\n10ms\n\n20ms\n0.03s\n").unwrap();
        let found = parse(&format!("file:{}", path.display())).unwrap();
        assert!((found.law.mean() - 0.02).abs() < 1e-9);
        std::fs::write(&path, "10ms\n20\n").unwrap();
        let why = parse(&format!("file:{}", path.display())).err().unwrap();
        assert!(why.contains("times.txt:2") && why.contains("unit"), "{why}");
        std::fs::write(&path, "\n").unwrap();
        assert!(parse(&format!("file:{}", path.display())).is_err());
    }
}
