//! The records of a run folder as columns, which data frames take over the Arrow C data interface.
//!
//! `arrow-array` and `arrow-schema` alone, of Arrow's crates: they have the structures of the interface with their unsafe code. `pyo3-arrow` would bring
//! readers of what others hand over, which nothing here needs.

use std::sync::Arc;

use anyhow::Context;
use arrow_array::builder::StringDictionaryBuilder;
use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::{Float64Type, Int32Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Float64Array, RecordBatch, RecordBatchIterator, UInt64Array};
use arrow_schema::DataType;
use arrow_schema::ffi::FFI_ArrowSchema;
use ground::window::{Sample, Window};
use numpy::PyArray1;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList};
use record::{Host, RunFolder};

use crate::error::{exception, invalid};

/// The tables of a run folder.
pub const TABLES: [&str; 4] = ["windows", "requests", "samples", "host"];

/// Columns of one length. Of Arrow's interface: `polars.DataFrame(table)`, `pyarrow.table(table)` and, where pyarrow is installed,
/// `pandas.DataFrame.from_arrow(table)` take it without a loop in Python. `table["column"]` is an array of NumPy, and of words a list.
#[pyclass(frozen, module = "concertina")]
pub struct Table {
    batch: RecordBatch,
}

#[pymethods]
impl Table {
    /// The names of the columns.
    #[getter]
    fn columns(&self) -> Vec<String> {
        self.batch.schema().fields().iter().map(|field| field.name().clone()).collect()
    }

    fn __len__(&self) -> usize {
        self.batch.num_rows()
    }

    /// A column: an array of NumPy, float64 or uint64; of words a list.
    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let Some(column) = self.batch.column_by_name(name) else {
            let known = self.columns().join(", ");
            return Err(PyKeyError::new_err(format!("no column {name}: the columns are {known}")));
        };
        match column.data_type() {
            DataType::UInt64 => {
                let values = column.as_primitive::<UInt64Type>().values();
                Ok(PyArray1::from_slice(py, values).into_any().unbind())
            }
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>().values();
                Ok(PyArray1::from_slice(py, values).into_any().unbind())
            }
            _ => {
                let words = column.as_dictionary::<Int32Type>();
                let known = words.values().as_string::<i32>();
                let word = |key: &i32| known.value(usize::try_from(*key).unwrap_or_default());
                let all: Vec<&str> = words.keys().values().iter().map(word).collect();
                Ok(PyList::new(py, all)?.into_any().unbind())
            }
        }
    }

    /// The table as a stream of one batch (Arrow's PyCapsule interface). The types are those of the table, whatever is requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        let batches = RecordBatchIterator::new([Ok(self.batch.clone())], self.batch.schema());
        let stream = FFI_ArrowArrayStream::new(Box::new(batches));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }

    /// The types of the columns (Arrow's PyCapsule interface).
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.batch.schema().as_ref());
        let schema = schema.map_err(|error| invalid(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __repr__(&self) -> String {
        format!(
            "<concertina.Table of {} rows: {}>",
            self.batch.num_rows(),
            self.columns().join(", ")
        )
    }
}

/// Columns by name.
type Columns = Vec<(&'static str, ArrayRef)>;

impl Table {
    /// A table of a run folder.
    ///
    /// # Errors
    /// If there is no table of that name.
    pub fn new(py: Python<'_>, folder: &RunFolder, name: &str) -> PyResult<Table> {
        let columns = match name {
            "windows" => windows(&folder.windows),
            "requests" => requests(folder),
            "samples" => samples(&folder.samples),
            "host" => host(&folder.host),
            _ => {
                let known = TABLES.join(", ");
                return Err(invalid(format!("a run has no table {name:?}: {known}")));
            }
        };
        let batch = RecordBatch::try_from_iter(columns).context("columns of one length");
        Ok(Table { batch: batch.map_err(|error| exception(py, error))? })
    }
}

fn integers<T>(rows: &[T], of: impl Fn(&T) -> u64) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(rows.iter().map(of)))
}

fn numbers<T>(rows: &[T], of: impl Fn(&T) -> f64) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values(rows.iter().map(of)))
}

/// Few words that repeat: categories of data frames.
fn words<'a>(all: impl Iterator<Item = &'a str>) -> ArrayRef {
    let mut words = StringDictionaryBuilder::<Int32Type>::new();
    all.for_each(|word| words.append_value(word));
    Arc::new(words.finish())
}

fn windows(all: &[Window]) -> Columns {
    vec![
        ("queue", words(all.iter().map(|w| w.queue.as_str()))),
        ("start_us", integers(all, |w| w.start_unix_us)),
        ("length_s", numbers(all, |w| w.length_s)),
        ("servers", integers(all, |w| w.servers.into())),
        ("arrivals", integers(all, |w| w.arrivals)),
        ("completions", integers(all, |w| w.completions)),
        ("errors", integers(all, |w| w.errors)),
        ("refusals", integers(all, |w| w.refusals)),
        ("joined", integers(all, |w| w.joined)),
        ("bytes", integers(all, |w| w.bytes)),
        ("queue_length", numbers(all, |w| w.length_integral_s / w.length_s)),
        ("busy_s", numbers(all, |w| w.busy_s)),
    ]
}

fn requests(folder: &RunFolder) -> Columns {
    let (mut arrivals, mut departures) = (Vec::new(), Vec::new());
    let mut queues = StringDictionaryBuilder::<Int32Type>::new();
    let mut operations = StringDictionaryBuilder::<Int32Type>::new();
    let mut outcomes = StringDictionaryBuilder::<Int32Type>::new();
    for times in &folder.times {
        for (end_ns, taken_ns) in times.iter() {
            arrivals.push(end_ns.saturating_sub(taken_ns));
            departures.push(end_ns);
            queues.append_value(&times.queue);
            operations.append_value(times.operation.as_str());
            outcomes.append_value(times.outcome.as_str());
        }
    }
    vec![
        ("arrival_ns", Arc::new(UInt64Array::from(arrivals))),
        ("departure_ns", Arc::new(UInt64Array::from(departures))),
        ("queue", Arc::new(queues.finish())),
        ("operation", Arc::new(operations.finish())),
        ("outcome", Arc::new(outcomes.finish())),
    ]
}

fn samples(all: &[Sample]) -> Columns {
    vec![
        ("key", integers(all, |s| s.key)),
        ("size_bytes", integers(all, |s| s.size)),
        ("operation", words(all.iter().map(|s| s.operation.as_str()))),
        ("outcome", words(all.iter().map(|s| s.outcome.as_str()))),
        ("received_us", integers(all, |s| s.received_unix_us)),
        ("queued_ns", integers(all, |s| s.queued_ns)),
        ("started_ns", integers(all, |s| s.started_ns)),
        ("served_ns", integers(all, |s| s.served_ns)),
        ("replied_ns", integers(all, |s| s.replied_ns)),
        ("length_met", integers(all, |s| s.length_met.into())),
    ]
}

fn host(all: &[Host]) -> Columns {
    vec![
        ("end_us", integers(all, |h| h.unix_us)),
        ("length_s", numbers(all, |h| h.length_s)),
        ("cpu_user", numbers(all, |h| h.cpu_user)),
        ("cpu_system", numbers(all, |h| h.cpu_system)),
        ("cpu_wait", numbers(all, |h| h.cpu_wait)),
        ("cpu_stolen", numbers(all, |h| h.cpu_stolen)),
        ("memory_available_bytes", integers(all, |h| h.memory_available_bytes)),
        ("memory_cached_bytes", integers(all, |h| h.memory_cached_bytes)),
        ("network_received_bytes", integers(all, |h| h.network_received_bytes)),
        ("network_sent_bytes", integers(all, |h| h.network_sent_bytes)),
        ("disk_read_bytes", integers(all, |h| h.disk_read_bytes)),
        ("disk_written_bytes", integers(all, |h| h.disk_written_bytes)),
        ("disk_utilisation_max", numbers(all, |h| h.disk_utilisation_max)),
    ]
}
