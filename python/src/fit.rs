//! Fits: a service from the arrivals and departures of its requests, and from run folders.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ::model::fit::{ClosedAt, ClosedLoop};
use anyhow::{anyhow, bail};
use pyo3::prelude::*;
use report::import::{Cut, Options, import};
use report::{Observed, Selection, ServiceFacts, StepChoice};
use serde_json::{Value, json};

use crate::array::{Integers, whole_number};
use crate::capacity::equal_lengths;
use crate::error::invalid;
use crate::model::Model;
use crate::value::object;
use crate::work::unlocked;

/// A fitted model, with what the fit found.
#[pyclass(frozen, get_all, module = "concertina")]
pub struct Fit {
    /// The model.
    model: Py<Model>,
    /// The number of servers with its 95 % interval, the hypotheses with their weights, `misfit` if none fits, and `known`: how narrow a
    /// prediction is at 80 % of the saturation. As of `concertina fit --servers auto --json`.
    found: Py<PyAny>,
    /// The steps of the load that were found in the record: a list of dicts.
    steps: Py<PyAny>,
    /// What was taken for what, and warnings of the record.
    notes: Vec<String>,
}

#[pymethods]
impl Fit {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Fit(model={})", self.model.bind(py).repr()?))
    }
}

/// What a fit is asked.
struct Question {
    servers: Option<u32>,
    hold_out: Vec<StepChoice>,
    closed_loop: Vec<(Option<u32>, f64)>,
    no_hits: bool,
    title: String,
}

/// What a fit and the import before it answered.
struct Fitted {
    model: ::model::Model,
    found: Value,
    steps: Value,
    notes: Vec<String>,
}

impl Fitted {
    fn object(self, py: Python<'_>) -> PyResult<Fit> {
        Ok(Fit {
            model: Py::new(py, Model::new(self.model))?,
            found: object(py, &self.found)?,
            steps: object(py, &self.steps)?,
            notes: self.notes,
        })
    }
}

/// What the throughput of a closed loop is uncertain by, as a share: as of `concertina fit`.
const DEVIATION: f64 = 0.02;

/// Fits a service to runs.
fn fit_service(runs: &[PathBuf], question: &Question) -> anyhow::Result<Fitted> {
    let selection =
        Selection { any_queues: true, hold_out: question.hold_out.clone(), ..Selection::default() };
    let observed = Observed::read(runs, &selection)?;
    let most = question.closed_loop.iter().map(|at| at.1).reduce(f64::max);
    let each = question.closed_loop.iter().filter_map(|&(clients, throughput)| {
        clients.map(|clients| ClosedAt { clients, think_s: 0.0, throughput })
    });
    let facts = ServiceFacts {
        servers: question.servers,
        closed_loop: most.map(|throughput| ClosedLoop { throughput, deviation: DEVIATION }),
        closed_loops: each.collect(),
        no_hits: question.no_hits,
    };
    let fitted = report::fit_service(&observed, &question.title, facts)?;
    let worked = fitted.worked.as_ref();
    let found = json!({
        "servers": fitted.servers,
        "hypotheses": worked.map(|worked| &worked.hypotheses),
        "misfit": worked.and_then(|worked| worked.misfit.as_ref()),
        "known": worked.map(|worked| worked.known),
    });
    Ok(Fitted { model: fitted.model, found, steps: json!([]), notes: Vec::new() })
}

fn choices(hold_out: Vec<String>) -> PyResult<Vec<StepChoice>> {
    hold_out.iter().map(|text| text.parse().map_err(|error: String| invalid(error))).collect()
}

/// Nanoseconds as seconds with nine decimals, which an import reads without a loss.
fn stamp(line: &mut String, ns: i64) {
    let _ = write!(line, "{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
}

/// Arrivals and departures as a log. The import of logs finds steps of the load, a coarse clock and records that cannot be true; what it
/// finds here it finds in a log with the same times.
fn log_of(arrivals: &[i64], departures: &[i64], bytes: Option<&[i64]>) -> anyhow::Result<String> {
    let mut text = String::from(if bytes.is_some() { "start,end,bytes\n" } else { "start,end\n" });
    for (row, (&arrival, &departure)) in arrivals.iter().zip(departures).enumerate() {
        if arrival < 0 || departure < arrival {
            bail!(
                "request {row} arrives at {} s and departs at {} s: a departure is not before its arrival, and both are times since 1970 \
                 or since any later moment",
                arrival as f64 * 1e-9,
                departure as f64 * 1e-9
            );
        }
        stamp(&mut text, arrival);
        text.push(',');
        stamp(&mut text, departure);
        if let Some(bytes) = bytes.and_then(|bytes| bytes.get(row)) {
            if *bytes < 0 {
                bail!("request {row} has {bytes} bytes: a size is at least 0");
            }
            let _ = write!(text, ",{bytes}");
        }
        text.push('\n');
    }
    Ok(text)
}

/// How arrivals and departures are imported.
#[derive(Clone, Copy)]
struct ImportOptions {
    steps: Cut,
    /// Whether records that cannot be true are left out or taken instead of refused.
    lenient: bool,
}

/// Imports a log, so that the run folder `out` has its windows, times and steps.
fn import_log(
    log: &Path,
    has_bytes: bool,
    out: &Path,
    how: ImportOptions,
) -> anyhow::Result<report::import::Summary> {
    let fields = if has_bytes { "start=start,end=end,bytes=bytes" } else { "start=start,end=end" };
    Ok(import(&Options {
        out: out.to_owned(),
        logs: vec![log.to_owned()],
        fields: Some(fields.to_owned()),
        window_s: 1.0,
        steps: how.steps,
        lenient: how.lenient,
        ..Options::default()
    })?)
}

/// What a text that names the temporary log, the run folder and options of the command says to somebody who gave columns.
fn named(log: &Path, run: &Path) -> impl Fn(&str) -> String + use<> {
    let (log, run) = (log.display().to_string(), run.display().to_string());
    move |text| {
        let text = text.replace(&log, "the table").replace(&run, "the table");
        text.replace("--lenient", "lenient=True")
    }
}

/// What closed loops carried, as the command takes it.
fn check_closed_loops(closed_loop: &[(Option<u32>, f64)]) -> PyResult<()> {
    for &(clients, throughput) in closed_loop {
        if !(throughput.is_finite() && throughput > 0.0) {
            return Err(invalid(format!(
                "closed_loop: invalid rate {throughput}: requests/s above 0"
            )));
        }
        if clients == Some(0) {
            return Err(invalid(
                "closed_loop: a loop of 0 clients carries nothing: at least 1 client",
            ));
        }
    }
    Ok(())
}

/// Fits a service to the arrivals and departures of its requests, nanoseconds, as `concertina import` and `concertina fit --servers` do.
#[pyfunction]
#[pyo3(signature = (arrival_ns, departure_ns, bytes=None, *, servers=None, hold_out=Vec::new(), steps="levels", closed_loop=Vec::new(), no_hits=false, lenient=false, title=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
pub fn fit_times(
    py: Python<'_>,
    arrival_ns: Integers,
    departure_ns: Integers,
    bytes: Option<Integers>,
    #[pyo3(from_py_with = whole_number)] servers: Option<u32>,
    hold_out: Vec<String>,
    steps: &str,
    closed_loop: Vec<(Option<u32>, f64)>,
    no_hits: bool,
    lenient: bool,
    title: Option<String>,
) -> PyResult<Fit> {
    let steps: Cut = steps.parse().map_err(|error: String| invalid(error))?;
    let how = ImportOptions { steps, lenient };
    check_closed_loops(&closed_loop)?;
    let title = title.unwrap_or_else(|| "Fit of response times".to_owned());
    let question = Question { servers, hold_out: choices(hold_out)?, closed_loop, no_hits, title };
    let (Integers(arrivals), Integers(departures)) = (arrival_ns, departure_ns);
    let bytes = bytes.map(|Integers(bytes)| bytes);
    let lengths: Vec<usize> = [arrivals.len(), departures.len()]
        .into_iter()
        .chain(bytes.as_ref().map(Vec::len))
        .collect();
    equal_lengths(&lengths)?;
    if arrivals.is_empty() {
        return Err(invalid(
            "the table has no requests; a fit needs 20 at least, and some 10,000 at two loads to predict others",
        ));
    }
    let fitted = unlocked(py, move |cancel| {
        let folder = tempfile::tempdir()?;
        let (log, run) = (folder.path().join("requests.csv"), folder.path().join("requests"));
        std::fs::write(&log, log_of(&arrivals, &departures, bytes.as_deref())?)?;
        cancel.check()?;
        let named = named(&log, &run);
        let told = |error: anyhow::Error| anyhow!(named(&ground::with_causes(error.as_ref())));
        let summary = import_log(&log, bytes.is_some(), &run, how).map_err(told)?;
        cancel.check()?;
        let mut fitted = fit_service(&[run], &question).map_err(told)?;
        for warning in &mut fitted.model.warnings {
            *warning = named(warning);
        }
        let steps = serde_json::to_value(&summary.steps)?;
        let notes = summary.imported.notes.iter().map(|note| named(note)).collect();
        Ok(Fitted { steps, notes, ..fitted })
    })?;
    fitted.object(py)
}

/// Fits run folders: a storage node from the load generator's and the server's (`servers` is `None` and `auto` false), or a service of which
/// only the clients' side is known.
#[pyfunction]
#[pyo3(signature = (runs, *, service=false, servers=None, hold_out=Vec::new(), closed_loop=Vec::new(), no_hits=false, title=None))]
#[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
pub fn fit_runs(
    py: Python<'_>,
    runs: Vec<PathBuf>,
    service: bool,
    #[pyo3(from_py_with = whole_number)] servers: Option<u32>,
    hold_out: Vec<String>,
    closed_loop: Vec<(Option<u32>, f64)>,
    no_hits: bool,
    title: Option<String>,
) -> PyResult<Fit> {
    let hold_out = choices(hold_out)?;
    let is_service = service || servers.is_some();
    check_closed_loops(&closed_loop)?;
    if !is_service && (no_hits || !closed_loop.is_empty()) {
        return Err(invalid(
            "closed_loop and no_hits are facts of a service: give servers, or service=True",
        ));
    }
    let fitted = unlocked(py, move |_| {
        if is_service {
            let title = title.unwrap_or_else(|| "Fit of response times".to_owned());
            return fit_service(
                &runs,
                &Question { servers, hold_out, closed_loop, no_hits, title },
            );
        }
        let selection = Selection { hold_out, ..Selection::default() };
        let observed = Observed::read(&runs, &selection)?;
        let names: Vec<String> = observed.runs.iter().map(report::steps::run_name).collect();
        let title = title.unwrap_or_else(|| format!("Fit of {}", names.join(", ")));
        let model = report::fit(&observed, &title)?;
        Ok(Fitted { model, found: Value::Null, steps: json!([]), notes: Vec::new() })
    })?;
    fitted.object(py)
}
