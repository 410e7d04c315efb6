//! Experiments with several factors.

use std::path::Path;

use ::model::design::{Form, Run, Table};
use anyhow::Context;
use pyo3::prelude::*;
use report::factors::{Options, Source, analyse};

use crate::array::{Column, whole_number};
use crate::capacity::equal_lengths;
use crate::error::invalid;
use crate::value::object;
use crate::work::unlocked;

/// The analysis of an experiment, as `concertina factors --json` (docs/factors.md): `names` of the factors, for each the `levels` of all
/// runs, and their `response`, in the order of the runs.
#[pyfunction]
#[pyo3(signature = (names, levels, response, *, name="response", form=None, confidence=0.95, bootstrap=None, seed=1))]
#[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
pub fn factors_table(
    py: Python<'_>,
    names: Vec<String>,
    levels: Vec<Vec<String>>,
    response: Column,
    name: &str,
    form: Option<&str>,
    confidence: f64,
    #[pyo3(from_py_with = whole_number)] bootstrap: Option<usize>,
    #[pyo3(from_py_with = whole_number)] seed: u64,
) -> PyResult<Py<PyAny>> {
    let form = match form {
        None => None,
        Some("additive") => Some(Form::Additive),
        Some("multiplicative") => Some(Form::Multiplicative),
        Some(other) => {
            return Err(invalid(format!("invalid model `{other}`: additive or multiplicative")));
        }
    };
    let lengths: Vec<usize> = levels.iter().map(Vec::len).chain([response.0.len()]).collect();
    equal_lengths(&lengths)?;
    equal_lengths(&[names.len(), levels.len()])?;
    let mut seen = std::collections::BTreeSet::new();
    if let Some(name) = names.iter().find(|name| !seen.insert(*name)) {
        return Err(invalid(format!("factors: {name} is named twice")));
    }
    let run = |(row, &response): (usize, &f64)| Run {
        levels: levels.iter().map(|column| column[row].clone()).collect(),
        response,
    };
    let runs: Vec<Run> = response.0.iter().enumerate().map(run).collect();
    let name = name.to_owned();
    let found = unlocked(py, move |_| {
        let place = "the table";
        let table = Table::new(&names, &runs).context(place)?;
        let options = Options { form, confidence, bootstrap, seed };
        let found = analyse(&table, &options).context(place)?;
        Ok(found.json(&Source::of_file(Path::new(place)), &name, &options, None)?)
    })?;
    object(py, &found)
}
