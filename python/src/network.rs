//! Networks of queues.

use anyhow::{Context, bail, ensure};
use pyo3::prelude::*;
use report::network_answer::{answer, sweep, sweep_json};
use report::network_file::{Described, parse, read};

use crate::array::{Numbers, counts};
use crate::value::{Description, object};
use crate::work::unlocked;

/// The longest response time that a command takes.
const WITHIN_MAX_S: f64 = 3600.0;

/// Solves a network of queues, as `concertina network --json` (docs/network.md). `network` is the path of a file or a dict with its keys;
/// `set` are changes like `station.disk.servers=4`, and the answer then has the solution `before` them; `within` are response times in
/// seconds; `customers` are other populations of the closed class `sweep_class`, solved under `sweep`.
#[pyfunction]
#[pyo3(signature = (network, *, set=Vec::new(), within=None, customers=Vec::new(), sweep_class=None))]
pub fn network(
    py: Python<'_>,
    network: &Bound<'_, PyAny>,
    set: Vec<String>,
    within: Option<Numbers>,
    #[pyo3(from_py_with = counts)] customers: Vec<u32>,
    sweep_class: Option<String>,
) -> PyResult<Py<PyAny>> {
    let given = Description::new(network)?;
    let within_s = within.map_or_else(Vec::new, |times| times.values);
    let found = unlocked(py, move |cancel| {
        if let Some(t_s) = within_s.iter().find(|t_s| !(0.0 < **t_s && **t_s <= WITHIN_MAX_S)) {
            bail!("invalid response time {t_s}: above 0 and at most {WITHIN_MAX_S} s");
        }
        ensure!(
            sweep_class.is_none() || !customers.is_empty(),
            "sweep_class names the class of customers: give customers as well"
        );
        let (text, name) = match given {
            Description::File(path) => (read(&path)?, path.display().to_string()),
            Description::Text(text) => (text, "the network".to_owned()),
        };
        let solved = |changes: &[String]| {
            let Described { title, network } = parse(&text, &name, changes)?;
            let solution = network.solve().with_context(|| name.clone())?;
            let mut value = answer(&network, &solution, &within_s);
            value["title"] = title.into();
            Ok::<_, anyhow::Error>((value, network))
        };
        let (mut value, network) = solved(&set)?;
        if !set.is_empty() {
            cancel.check()?;
            value["before"] = solved(&[])?.0;
            value["set"] = set.into();
        }
        if !customers.is_empty() {
            cancel.check()?;
            let (class, rows) = sweep(&network, &customers, sweep_class.as_deref())?;
            value["sweep"] = sweep_json(&class, &rows);
        }
        Ok(value)
    })?;
    object(py, &found)
}
