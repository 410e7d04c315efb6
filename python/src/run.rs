//! Run folders as arrays.

use std::path::PathBuf;
use std::sync::Arc;

use ground::window::Window;
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use record::RunFolder;

use crate::error::exception;
use crate::table::Table;
use crate::value::object;
use crate::work::unlocked;

/// A run folder: what a server, a load generator or an import recorded.
#[pyclass(frozen, module = "concertina")]
pub struct Run {
    folder: Arc<RunFolder>,
}

#[pymethods]
impl Run {
    /// Reads a run folder. One that is still written is read up to its last complete line.
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let folder = unlocked(py, move |_| Ok(RunFolder::read(&path)?))?;
        Ok(Run { folder: Arc::new(folder) })
    }

    /// What wrote it: `load`, `serve`, `import` ….
    #[getter]
    fn kind(&self) -> &str {
        &self.folder.run.kind
    }

    /// Its `run.toml`: configuration or load, machine, versions.
    fn about(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value =
            serde_json::to_value(&self.folder.run).map_err(|error| exception(py, error.into()))?;
        object(py, &value)
    }

    /// The completed steps of a load: a list of dicts.
    fn steps(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let value = serde_json::to_value(&self.folder.steps)
            .map_err(|error| exception(py, error.into()))?;
        object(py, &value)
    }

    /// The windows of all queues as columns of one length: `queue` (a list), and arrays `start_us` (microseconds since 1970),
    /// `length_s`, `servers`, `arrivals`, `completions`, `errors`, `refusals`, `joined`, `bytes`, `queue_length` (mean number waiting and in
    /// service) and `busy_s` (server-seconds in service). `pandas.DataFrame(run.windows())` is a table of them.
    fn windows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let windows = &self.folder.windows;
        let whole = |of: fn(&Window) -> u64| PyArray1::from_iter(py, windows.iter().map(of));
        let real = |of: fn(&Window) -> f64| PyArray1::from_iter(py, windows.iter().map(of));
        let columns = PyDict::new(py);
        let queues: Vec<&str> = windows.iter().map(|window| window.queue.as_str()).collect();
        columns.set_item("queue", queues)?;
        columns.set_item("start_us", whole(|w| w.start_unix_us))?;
        columns.set_item("length_s", real(|w| w.length_s))?;
        columns.set_item("servers", whole(|w| w.servers.into()))?;
        columns.set_item("arrivals", whole(|w| w.arrivals))?;
        columns.set_item("completions", whole(|w| w.completions))?;
        columns.set_item("errors", whole(|w| w.errors))?;
        columns.set_item("refusals", whole(|w| w.refusals))?;
        columns.set_item("joined", whole(|w| w.joined))?;
        columns.set_item("bytes", whole(|w| w.bytes))?;
        columns.set_item("queue_length", real(|w| w.length_integral_s / w.length_s))?;
        columns.set_item("busy_s", real(|w| w.busy_s))?;
        Ok(columns)
    }

    /// The single requests, where their times were recorded, as columns of one length: `arrival_ns` and `departure_ns` (nanoseconds since
    /// 1970), `operation` and `outcome` (lists). What `fit` takes.
    fn requests<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (mut arrivals, mut departures) = (Vec::new(), Vec::new());
        let (mut operations, mut outcomes) = (Vec::new(), Vec::new());
        for times in &self.folder.times {
            for (end_ns, taken_ns) in times.iter() {
                arrivals.push(end_ns.saturating_sub(taken_ns));
                departures.push(end_ns);
                operations.push(times.operation.as_str());
                outcomes.push(times.outcome.as_str());
            }
        }
        let columns = PyDict::new(py);
        columns.set_item("arrival_ns", PyArray1::from_vec(py, arrivals))?;
        columns.set_item("departure_ns", PyArray1::from_vec(py, departures))?;
        columns.set_item("operation", operations)?;
        columns.set_item("outcome", outcomes)?;
        Ok(columns)
    }

    /// One of its tables: `"windows"` of all queues, `"requests"` whose times were recorded, `"samples"` (requests whose key was drawn, with the times of
    /// their stages) or `"host"` (processors, memory, network and disks, each second). Data frames take it over Arrow's interface.
    ///
    /// Columns end with their units: `_us` microseconds and `_ns` nanoseconds, `_s` seconds, `_bytes`. `start_us`, `end_us`, `received_us`, `arrival_ns` and
    /// `departure_ns` count from 1970; the stages of a sample from its arrival. Shares of processors and disks are from 0 to 1.
    fn table(&self, py: Python<'_>, name: &str) -> PyResult<Table> {
        Table::new(py, &self.folder, name)
    }

    fn __repr__(&self) -> String {
        format!("<concertina.Run {} of {}>", self.folder.run.kind, self.folder.dir.display())
    }
}
