//! Coverage over records: how many held-out measurements lie inside the intervals that were printed for them.
//!
//! Records since intervals of what will be measured (`report::coverage`) state for each row whether it was inside.
//! Earlier ones have the interval of the model alone; for those the measurement's own 95 % error is added in
//! squares, and the variation between runs is missing.
//!
//! **Which records count.** As soon as an experiment has a record that states the interval of what would be measured,
//! its records that do not are retired: they say how the earlier rule did, which is not used any more. Records that
//! state it all count, however old they are and however they did. What is retired is printed beside.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

/// Least number of held-out rows for a verdict.
const ROWS_MIN: u64 = 300;
/// The goal: this share of measurements inside their 95 % intervals.
const GOAL: std::ops::RangeInclusive<f64> = 0.90..=0.99;

/// A comparison, of which only the rows are read. Other JSON files of records have none.
#[derive(Deserialize)]
struct Comparison {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    measured: MeasuredValue,
    concertina: Option<Predicted>,
    used_for_fit: bool,
    expected: Option<Expected>,
}

#[derive(Deserialize)]
struct MeasuredValue {
    value: f64,
    half_width: Option<f64>,
}

#[derive(Deserialize)]
struct Predicted {
    value: f64,
    low: f64,
    high: f64,
}

#[derive(Deserialize)]
struct Expected {
    inside: bool,
}

/// Counts of held-out rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// With a prediction.
    pub rows: u64,
    /// Of these, whose record states the interval of what would be measured.
    pub stated: u64,
    /// Inside the model's own interval.
    pub model: u64,
    /// Inside the stated interval, or the model's with the measurement's error.
    pub inside: u64,
    /// Without a prediction, because the model took the load for unstable.
    pub unpredicted: u64,
}

impl Covered {
    /// Adds other counts.
    pub fn add(&mut self, other: &Covered) {
        self.rows += other.rows;
        self.stated += other.stated;
        self.model += other.model;
        self.inside += other.inside;
        self.unpredicted += other.unpredicted;
    }

    fn count(&mut self, row: &Row) {
        if row.used_for_fit {
            return;
        }
        let Some(predicted) = &row.concertina else {
            self.unpredicted += 1;
            return;
        };
        let (value, noise) = (row.measured.value, row.measured.half_width.unwrap_or(0.0));
        let low = predicted.value - (predicted.value - predicted.low).hypot(noise);
        let high = predicted.value + (predicted.high - predicted.value).hypot(noise);
        self.rows += 1;
        self.stated += u64::from(row.expected.is_some());
        self.model += u64::from((predicted.low..=predicted.high).contains(&value));
        let inside = row.expected.as_ref().map_or((low..=high).contains(&value), |e| e.inside);
        self.inside += u64::from(inside);
    }
}

/// Counts the rows of all comparisons of a record.
///
/// # Errors
/// If a file cannot be read.
pub fn of_record(record: &Path) -> anyhow::Result<Covered> {
    let mut covered = Covered::default();
    let mut files: Vec<_> = std::fs::read_dir(record)?
        .collect::<Result<Vec<_>, _>>()?
        .iter()
        .map(|e| e.path())
        .collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|e| e == "json")) {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        if let Ok(comparison) = serde_json::from_str::<Comparison>(&text) {
            comparison.rows.iter().for_each(|row| covered.count(row));
        }
    }
    Ok(covered)
}

/// Wilson's 95 % interval of a share. Rows of one step are not independent, so it is too narrow.
pub(crate) fn wilson(inside: u64, rows: u64) -> (f64, f64) {
    let (n, p) = (rows.max(1) as f64, inside as f64 / rows.max(1) as f64);
    let z2 = 1.96f64.powi(2);
    let middle = (p + z2 / (2.0 * n)) / (1.0 + z2 / n);
    let half = 1.96 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt() / (1.0 + z2 / n);
    (middle - half, middle + half)
}

fn verdict(all: &Covered) -> &'static str {
    let (low, high) = wilson(all.inside, all.rows);
    if high < *GOAL.start() || low > *GOAL.end() {
        "fails"
    } else if all.rows >= ROWS_MIN && low >= *GOAL.start() && high <= *GOAL.end() {
        "holds"
    } else {
        "not shown"
    }
}

/// The table by experiment, and the claim, in Markdown.
pub fn table<'a>(records: impl IntoIterator<Item = (&'a str, &'a Covered)>) -> String {
    let records: Vec<(&str, &Covered)> = records.into_iter().collect();
    let stating =
        |name: &str| records.iter().any(|(of, covered)| *of == name && covered.stated > 0);
    let mut experiments: Vec<(&str, Covered)> = Vec::new();
    let (mut all, mut retired) = (Covered::default(), Covered::default());
    for &(name, covered) in &records {
        if covered.stated == 0 && stating(name) {
            retired.add(covered);
            continue;
        }
        all.add(covered);
        match experiments.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => sum.add(covered),
            None => experiments.push((name, *covered)),
        }
    }
    experiments.retain(|(_, covered)| covered.rows + covered.unpredicted > 0);
    experiments.push(("all", all));
    let mut text = String::from(
        "| held-out measurements of | rows | inside the model's interval | inside the interval of what is measured | \
         no prediction |\n|---|---|---|---|---|\n",
    );
    for (name, Covered { rows, model, inside, unpredicted, .. }) in &experiments {
        let percent = |count: &u64| 100.0 * *count as f64 / (*rows).max(1) as f64;
        let (of_model, of_all) = (percent(model), percent(inside));
        let _ = writeln!(
            text,
            "| {name} | {rows} | {model} ({of_model:.0} %) | {inside} ({of_all:.0} %) | {unpredicted} |"
        );
    }
    let (low, high) = wilson(all.inside, all.rows);
    let _ = writeln!(
        text,
        "\nCoverage of the 95 % intervals: {:.1} % ({:.1} to {:.1} %) of {} rows; goal {:.0} to {:.0} % of at least \
         {ROWS_MIN}: **{}**. {} rows are of records that state the interval of what would be measured; for the others \
         the measurement's error is added to the model's interval, and the variation between runs is missing.",
        100.0 * all.inside as f64 / all.rows.max(1) as f64,
        100.0 * low,
        100.0 * high,
        all.rows,
        100.0 * GOAL.start(),
        100.0 * GOAL.end(),
        verdict(&all),
        all.stated,
    );
    if retired.rows > 0 {
        let _ = writeln!(
            text,
            "\nRetired, because a newer record of the same experiment states the interval: {} rows, {} ({:.1} %) inside by \
             the earlier rule.",
            retired.rows,
            retired.inside,
            100.0 * retired.inside as f64 / retired.rows as f64,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_counted_by_the_interval_that_their_record_has() {
        let dir = tempfile::tempdir().unwrap();
        let row = |value: f64, used: bool, rest: &str| {
            format!(
                r#"{{"measured": {{"value": {value}, "half_width": 0.03}}, "used_for_fit": {used},
                    "concertina": {{"value": 0.5, "low": 0.46, "high": 0.54, "unit": "1"}}{rest}}}"#
            )
        };
        let rows = [
            row(0.53, false, ""),
            // Inside with the measurement's error: the square root of 0.04² + 0.03² is 0.05.
            row(0.549, false, ""),
            row(0.551, false, ""),
            row(0.551, false, r#", "expected": {"low": 0.4, "high": 0.6, "inside": true}"#),
            row(0.9, true, ""),
            r#"{"measured": {"value": 0.1, "half_width": null}, "used_for_fit": false, "concertina": null}"#
                .to_owned(),
        ];
        let text = format!(r#"{{"rows": [{}]}}"#, rows.join(","));
        std::fs::write(dir.path().join("one.json"), text).unwrap();
        std::fs::write(dir.path().join("claims.json"), "[]").unwrap();
        let covered = of_record(dir.path()).unwrap();
        let expected = Covered { rows: 4, stated: 1, model: 1, inside: 3, unpredicted: 1 };
        assert_eq!(covered, expected);
        let text = table([("a", &covered), ("b", &Covered::default())]);
        assert!(
            text.contains("| a | 4 | 1 (25 %) | 3 (75 %) | 1 |") && !text.contains("| b |"),
            "{text}"
        );
    }

    #[test]
    fn records_of_the_earlier_rule_are_retired_by_a_newer_one_and_shown() {
        let of = |rows, stated, inside| Covered { rows, stated, inside, ..Covered::default() };
        let (old, new, other) = (of(45, 0, 39), of(9, 9, 5), of(36, 0, 30));
        let text = table([("single", &old), ("nginx", &other), ("single", &new)]);
        assert!(text.contains("| single | 9 |") && text.contains("| nginx | 36 |"), "{text}");
        assert!(text.contains("| all | 45 |"), "{text}");
        assert!(
            text.contains("interval: 45 rows, 39 (86.7 %) inside by the earlier rule"),
            "{text}"
        );
        let without = table([("single", &old), ("nginx", &other)]);
        assert!(without.contains("| all | 81 |") && !without.contains("Retired"), "{without}");
        // A record that states it counts even if a newer one does better.
        let text = table([("single", &new), ("single", &of(9, 9, 9))]);
        assert!(text.contains("| all | 18 |"), "{text}");
    }

    #[test]
    fn the_claim_needs_rows_and_its_whole_interval() {
        let of = |inside, rows| verdict(&Covered { inside, rows, ..Covered::default() });
        assert_eq!(of(190, 200), "not shown");
        assert_eq!(of(380, 400), "holds");
        assert_eq!(of(400, 400), "fails");
        assert_eq!(of(144, 171), "fails");
        assert_eq!(of(365, 400), "not shown");
    }
}
