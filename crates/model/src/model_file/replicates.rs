//! The fits of resampled windows: what intervals are made of.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::statistics::quantile_beyond;

use super::parts::{Parameter, SpeedByNumber};

/// Parameters of the fits of resampled windows, a row each.
///
/// Columns are found by their names. What a model has and no column names, a replicate has as the
/// model has it:
///
/// | column | what |
/// |---|---|
/// | [`Replicates::COLUMNS`] | always there |
/// | `mean_s.CLASS`, `scv.CLASS` | the service of a class of devices; always there |
/// | `servers.CLASS`, `shared.CLASS` | servers, and 1 if they are shared equally, else 0 |
/// | `lines.CLASS` | separate lines of one server each, in the place of the devices; below 2: one device |
/// | `full_factor.CLASS` | its mean at full load over `mean_s` |
/// | `speed_K.CLASS`, `tail.CLASS` | the speeds by the number inside, from K = 1, and how they fall on |
/// | `other_rate.CLASS`, `other_mean_s.CLASS` | its other work |
/// | `front_delay_scv` | the SCV of δ |
/// | `bytes_mean`, `bytes_scv`, `link_bytes_per_s` | replies and the link |
/// | `variation`, `change_rate` | the arrivals' bursts |
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replicates {
    /// Names of the columns.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<f64>>,
}

impl Replicates {
    /// The columns that every model with replicates has.
    pub const COLUMNS: [&'static str; 9] = [
        "q0",
        "alpha",
        "other_share",
        "front_delay",
        "joining",
        "joining_knee",
        "spotify_q0",
        "spotify_alpha",
        "spotify_mu_d",
    ];

    /// Those that some have, but for other work of classes.
    const OPTIONAL: [&'static str; 6] = [
        "front_delay_scv",
        "bytes_mean",
        "bytes_scv",
        "link_bytes_per_s",
        "variation",
        "change_rate",
    ];

    /// A value of each row: replaces a column, or adds it. `of` gets the row's number and what
    /// stands there.
    pub(crate) fn set(&mut self, name: &str, of: impl Fn(usize, Option<f64>) -> f64) {
        let at = self.columns.iter().position(|c| c == name);
        if at.is_none() {
            self.columns.push(name.to_owned());
        }
        for (i, row) in self.rows.iter_mut().enumerate() {
            let value = of(i, at.and_then(|at| row.get(at)).copied());
            match at.and_then(|at| row.get_mut(at)) {
                Some(cell) => *cell = value,
                None => row.push(value),
            }
        }
    }

    /// Changes the values of a column, if there is one.
    pub(crate) fn change(&mut self, name: &str, of: impl Fn(usize, f64) -> f64) {
        if let Some(at) = self.columns.iter().position(|c| c == name) {
            for (i, row) in self.rows.iter_mut().enumerate() {
                row.iter_mut().skip(at).take(1).for_each(|value| *value = of(i, *value));
            }
        }
    }

    /// Moves a column to a parameter that was edited: the file's numbers are the user's to change, and each has its replicates. What
    /// stands at or beyond the ends of the old interval stands so to the new one.
    ///
    /// A parameter that was fitted holds the interval of its column, or its value is among the column's: where neither is so, it was
    /// edited.
    pub(super) fn follow(&mut self, name: &str, parameter: &Parameter) {
        let Some(at) = self.columns.iter().position(|column| column == name) else { return };
        let values: Vec<f64> = self.rows.iter().filter_map(|row| row.get(at)).copied().collect();
        let quantile = |p| quantile_beyond(&values, p);
        let (Some(low), Some(middle), Some(high)) =
            (quantile(0.025), quantile(0.5), quantile(0.975))
        else {
            return;
        };
        let (new, slack) = (parameter.value, 1e-9 * parameter.value.abs());
        let holds = parameter.low <= low + slack && high - slack <= parameter.high;
        let is_among = low - slack <= new && new <= high + slack;
        if holds || is_among {
            return;
        }
        let part = |span: f64, of: f64| if of > 0.0 { span / of } else { 0.0 };
        let below = part(new - parameter.low, middle - low);
        let above = part(parameter.high - new, high - middle);
        self.change(name, |_, old| {
            let moved = new + (old - middle) * if old < middle { below } else { above };
            // Times and shares stay what they are: far below the interval a line would end below 0.
            moved.max(0.5 * parameter.low.min(new))
        });
    }

    /// The rows, by the names of their columns.
    pub(crate) fn draws(&self) -> impl Iterator<Item = Draw<'_>> {
        self.rows.iter().map(|row| Draw { columns: &self.columns, row })
    }

    /// One of them.
    pub(crate) fn draw(&self, index: usize) -> Option<Draw<'_>> {
        self.rows.get(index).map(|row| Draw { columns: &self.columns, row })
    }

    /// That every row has a number for every column, and that the columns are those of a model of
    /// these classes.
    pub(super) fn check(&self, classes: &[&str]) -> Result<(), Error> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let wrong =
            |what: String| Err(Error::File(format!("{what}; do not edit replicates, fit again")));
        let of = |what: &str| classes.iter().map(|class| format!("{what}.{class}")).collect();
        let [means, scvs, rates, times, servers, shared, lines, full]: [Vec<String>; 8] = [
            "mean_s",
            "scv",
            "other_rate",
            "other_mean_s",
            "servers",
            "shared",
            "lines",
            "full_factor",
        ]
        .map(of);
        let needed: Vec<String> =
            Self::COLUMNS.map(String::from).into_iter().chain(means).chain(scvs).collect();
        let known: BTreeSet<&str> =
            Self::OPTIONAL.into_iter().chain(needed.iter().map(String::as_str)).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for name in &self.columns {
            let other = [&rates, &times, &servers, &shared, &lines, &full]
                .iter()
                .any(|of| of.contains(name))
                || SpeedByNumber::is_column(name, classes);
            if !other && !known.contains(name.as_str()) {
                return wrong(format!("the replicates have a column {name:?}, which is unknown"));
            }
            if !seen.insert(name) {
                return wrong(format!("the replicates have the column {name} twice"));
            }
        }
        if let Some(name) = needed.iter().find(|name| !seen.contains(name.as_str())) {
            return wrong(format!("the replicates have no column {name}"));
        }
        let pairs = rates.iter().zip(&times).chain(servers.iter().zip(&shared));
        let pairs = pairs.map(|(a, b)| (a.as_str(), b.as_str()));
        for (a, b) in pairs.chain([("variation", "change_rate")]) {
            if seen.contains(a) != seen.contains(b) {
                return wrong(format!("the replicates have one of the columns {a} and {b}"));
            }
        }
        for row in &self.rows {
            let (n, columns) = (row.len(), self.columns.len());
            if n != columns {
                return wrong(format!("a replicate has {n} numbers, not {columns}"));
            }
            if let Some(at) = row.iter().position(|x| !x.is_finite()) {
                return wrong(format!(
                    "a replicate has {} in the column {}",
                    row[at], self.columns[at]
                ));
            }
        }
        Ok(())
    }
}

/// A row, by the names of its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw<'a> {
    columns: &'a [String],
    row: &'a [f64],
}

impl Draw<'_> {
    /// What stands in a column.
    pub fn get(&self, name: &str) -> Option<f64> {
        let at = self.columns.iter().position(|c| c == name)?;
        self.row.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_set_and_changed_by_name() {
        let mut of = Replicates { columns: vec!["a".into()], rows: vec![vec![1.0], vec![2.0]] };
        of.set("b", |i, before| {
            assert_eq!(before, None);
            i as f64
        });
        of.set("a", |_, before| before.unwrap_or_default() + 1.0);
        of.change("b", |i, value| value + 10.0 * i as f64);
        of.change("c", |_, _| f64::NAN);
        assert_eq!((of.columns.len(), of.rows.clone()), (2, vec![vec![2.0, 0.0], vec![3.0, 11.0]]));
        let draw = of.draw(1).unwrap();
        assert_eq!((draw.get("a"), draw.get("b"), draw.get("c")), (Some(3.0), Some(11.0), None));
        assert!(of.draw(2).is_none());
    }

    #[test]
    fn a_column_follows_an_edited_parameter() {
        let column = |values: &[f64]| Replicates {
            columns: vec!["q0".to_owned()],
            rows: values.iter().map(|value| vec![*value]).collect(),
        };
        let of = |replicates: &Replicates| -> Vec<f64> {
            replicates.draws().filter_map(|draw| draw.get("q0")).collect()
        };
        let values: Vec<f64> = (0..=100).map(|i| 16.0 + 0.08 * f64::from(i)).collect();
        let followed = |value, low, high| {
            let mut replicates = column(&values);
            replicates.follow("q0", &Parameter { value, low, high, unit: "s".to_owned() });
            of(&replicates)
        };
        // As fitted: the interval of the column, also where the value is beside it, or a wider one.
        for value in [20.0, 25.0, 3.0] {
            let fitted = Parameter::from_replicates(value, &values, "s");
            assert_eq!(followed(value, fitted.low, fitted.high), values);
        }
        assert_eq!(followed(20.0, 1.0, 50.0), values);
        // A narrower one of a value that is among them: another hypothesis's are there, too.
        assert_eq!(followed(20.0, 19.0, 21.0), values);
        let moved = followed(30.0, 28.0, 32.0);
        let now = Parameter::from_replicates(30.0, &moved, "s");
        assert!((now.low - 28.0).abs() < 0.1 && (now.high - 32.0).abs() < 0.1, "{now:?}");
        assert!(moved.is_sorted() && (moved[50] - 30.0).abs() < 1e-9);
        assert!(followed(2.0, 0.0, 5.0).iter().all(|value| *value >= 0.0));
        // A number that is known exactly.
        assert!(followed(30.0, 30.0, 30.0).iter().all(|value| *value == 30.0));
        let mut same = column(&[10.0; 20]);
        same.follow("q0", &Parameter { value: 30.0, low: 28.0, high: 32.0, unit: "s".to_owned() });
        assert_eq!(of(&same), [30.0; 20]);
    }

    #[test]
    fn missing_double_and_short_columns_are_named() {
        let mut all: Vec<String> = Replicates::COLUMNS.map(String::from).to_vec();
        all.extend(["mean_s.disk".to_owned(), "scv.disk".to_owned()]);
        let of = |columns: &[String], numbers: usize| {
            let found = Replicates { columns: columns.to_vec(), rows: vec![vec![1.0; numbers]] };
            found.check(&["disk"]).map_err(|e| e.to_string())
        };
        assert_eq!(of(&all, 11), Ok(()));
        assert!(of(&all, 10).unwrap_err().contains("10 numbers, not 11"));
        assert!(of(&all[..10], 10).unwrap_err().contains("no column scv.disk"));
        assert!(of(&[&all[..], &all[..1]].concat(), 12).unwrap_err().contains("q0 twice"));
        let more = |names: &[&str]| {
            let more = names.iter().map(|name| (*name).to_owned());
            of(&all.iter().cloned().chain(more).collect::<Vec<_>>(), 11 + names.len())
        };
        assert_eq!(more(&["other_rate.disk", "other_mean_s.disk", "front_delay_scv"]), Ok(()));
        assert!(more(&["other_rate.disk"]).unwrap_err().contains("one of the columns"));
        assert!(more(&["change_rate"]).unwrap_err().contains("variation and change_rate"));
        assert!(more(&["front_delay_svc"]).unwrap_err().contains("unknown"));
        let mut nan = Replicates { columns: all, rows: vec![vec![1.0; 11]] };
        nan.rows[0][3] = f64::NAN;
        assert!(nan.check(&["disk"]).unwrap_err().to_string().contains("NaN in the column"));
        assert!(Replicates::default().check(&["disk"]).is_ok());
    }
}
