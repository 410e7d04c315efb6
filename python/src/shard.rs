//! Shards: records that are compressed and searchable.

use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use ::shard::Text as _;
use ::shard::index::Options;
use ::shard::query::{Limits, Page as Wanted, Query};
use ::shard::record::detect::{Detection, Header, Hints};
use ::shard::record::{Format, Sample, Schema};
use anyhow::{Context, anyhow, bail};
use numpy::PyArray1;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::{BytesLike, Integers, whole_number};
use crate::error::{exception, invalid};
use crate::work::unlocked;

/// An open shard; `None` after it was closed.
type Opened = Mutex<Option<Arc<::shard::Shard>>>;

/// Records in compressed form, searchable without decompression (docs/queries.md). A context manager: `with Shard.open(path) as shard`.
#[pyclass(frozen, module = "concertina")]
pub struct Shard {
    shard: Opened,
}

/// A page of the records that match a query.
#[pyclass(frozen, get_all, module = "concertina")]
pub struct Page {
    /// Numbers of the records, ascending, dtype uint64.
    records: Py<PyArray1<u64>>,
    /// `after` of the next page; `None` after the last.
    next: Option<usize>,
    /// Number of records that were read and compared with the query.
    verified: usize,
}

#[pymethods]
impl Page {
    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.records.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Page(records={}, next={:?})", self.records.bind(py).repr()?, self.next))
    }
}

/// What is known of records before they are compressed.
struct BuildOptions {
    format: Option<Format>,
    key: Option<String>,
    order: Vec<String>,
    index: Options,
}

/// The bytes of a shard of a text.
fn build(text: &[u8], options: &BuildOptions) -> anyhow::Result<Vec<u8>> {
    // As an import does: a format says what the records are, and not whether a table has a header.
    let hints = Hints { format: options.format, header: Header::Detect, columns: Vec::new() };
    let sample = Sample::of_text(text);
    let Detection { mut schema, .. } = Schema::detect_with(&sample.records(), &hints)?;
    if options.key.is_some() {
        schema.key.clone_from(&options.key);
    }
    // As an import does, where the attributes are known before the records are read.
    if let Some(order) = options.order.iter().find(|order| !schema.names.contains(order))
        && schema.is_closed()
    {
        let known = schema.names.join(", ");
        bail!("unknown attribute {order:?} to order by; the attributes are: {known}");
    }
    let mut file = Vec::new();
    ::shard::Shard::build(text, schema, &options.order, &options.index, &mut file, &mut |_| ())?;
    Ok(file)
}

/// Writes a shard's file, whole or not at all.
fn write(path: &std::path::Path, bytes: &[u8]) -> anyhow::Result<()> {
    let shown = path.display();
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let written = || -> std::io::Result<()> {
        let mut file =
            tempfile::NamedTempFile::new_in(folder.unwrap_or(std::path::Path::new(".")))?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        // Nothing is overwritten: another process may have the file mapped.
        file.persist_noclobber(path)?;
        Ok(())
    };
    written().with_context(|| format!("cannot write {shown}"))
}

fn open(path: &std::path::Path) -> anyhow::Result<::shard::Shard> {
    let shown = path.display();
    let file = record::file::open(path).with_context(|| format!("cannot open {shown}"))?;
    #[expect(unsafe_code, reason = "mapping a file")]
    // SAFETY: a shard's file is written once, under another name, and never changed. Only
    // truncation by another program could remove mapped pages.
    let map = unsafe { memmap2::Mmap::map(&file) };
    let map = map.with_context(|| format!("cannot map {shown}"))?;
    ::shard::Shard::open(map).with_context(|| format!("cannot read {shown}"))
}

impl Shard {
    fn new(shard: ::shard::Shard) -> Self {
        Shard { shard: Mutex::new(Some(Arc::new(shard))) }
    }

    fn opened(&self) -> PyResult<Arc<::shard::Shard>> {
        let shard = self.shard.lock().unwrap_or_else(PoisonError::into_inner);
        shard.clone().ok_or_else(|| invalid("the shard is closed"))
    }
}

#[pymethods]
impl Shard {
    /// Compresses records: `text` is all of them, in bytes. `format` is `json`, `csv`, `tsv`, `stanzas`, `lines`, or detected; `key` the attribute that
    /// identifies a record; `order` attributes with a table for ranges of numbers. With `path` the shard is a new file of that name, else
    /// in memory. Takes some six times the text of memory.
    #[staticmethod]
    #[pyo3(signature = (text, path=None, *, format=None, key=None, order=Vec::new(), sa_sampling=32, isa_sampling=32))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
    fn build(
        py: Python<'_>,
        text: BytesLike,
        path: Option<PathBuf>,
        format: Option<&str>,
        key: Option<String>,
        order: Vec<String>,
        #[pyo3(from_py_with = whole_number)] sa_sampling: u32,
        #[pyo3(from_py_with = whole_number)] isa_sampling: u32,
    ) -> PyResult<Self> {
        let format = format
            .map(str::parse::<Format>)
            .transpose()
            .map_err(|error| exception(py, error.into()))?;
        let index = Options { sa_sampling, isa_sampling };
        let options = BuildOptions { format, key, order, index };
        let built = unlocked(py, move |cancel| {
            let bytes = build(text.as_ref(), &options)?;
            cancel.check()?;
            match path {
                None => Ok(::shard::Shard::open(bytes)?),
                Some(path) => {
                    write(&path, &bytes)?;
                    open(&path)
                }
            }
        })?;
        Ok(Shard::new(built))
    }

    /// Opens a shard's file, of this module or of a dataset (`concertina data import`), and verifies every byte.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        unlocked(py, move |_| open(&path)).map(Shard::new)
    }

    /// Closes the shard: what is asked of it afterwards is an error.
    fn close(&self) {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, pyo3::types::PyTuple>) {
        self.close();
    }

    /// The number of records.
    fn __len__(&self) -> PyResult<usize> {
        Ok(self.opened()?.records().len())
    }

    /// The format of the records: `json`, `csv` ….
    #[getter]
    fn format(&self) -> PyResult<&'static str> {
        Ok(self.opened()?.records().schema().format.name())
    }

    /// Names of the known attributes.
    #[getter]
    fn attributes(&self) -> PyResult<Vec<String>> {
        Ok(self.opened()?.records().schema().names.clone())
    }

    /// The attribute that identifies a record, if there is one.
    #[getter]
    fn key(&self) -> PyResult<Option<String>> {
        Ok(self.opened()?.records().schema().key.clone())
    }

    /// Bytes of the text.
    #[getter]
    fn text_bytes(&self) -> PyResult<usize> {
        Ok(self.opened()?.records().text_len())
    }

    /// Bytes of the shard: over `text_bytes` this is its footprint.
    #[getter]
    fn shard_bytes(&self) -> PyResult<usize> {
        Ok(self.opened()?.index().reader().len_bytes())
    }

    /// A page of the records that match a query (docs/queries.md): at most `limit`, with numbers above `after`, ascending.
    #[pyo3(signature = (query, *, limit=100, after=None))]
    fn search(
        &self,
        py: Python<'_>,
        query: &str,
        #[pyo3(from_py_with = whole_number)] limit: usize,
        #[pyo3(from_py_with = whole_number)] after: Option<usize>,
    ) -> PyResult<Page> {
        let shard = self.opened()?;
        let query: Query =
            query.parse().map_err(|error: ::shard::Error| exception(py, error.into()))?;
        let found = unlocked(py, move |_| {
            let wanted = Wanted { limit, after, sorted: true };
            Ok(shard.searcher()?.with_limits(Limits::NONE).search(&query, &wanted)?)
        })?;
        let records =
            PyArray1::from_iter(py, found.records.iter().map(|&record| record as u64)).unbind();
        Ok(Page { records, next: found.next, verified: found.verified })
    }

    /// How many records match a query.
    fn count(&self, py: Python<'_>, query: &str) -> PyResult<usize> {
        let shard = self.opened()?;
        let query: Query =
            query.parse().map_err(|error: ::shard::Error| exception(py, error.into()))?;
        unlocked(py, move |_| Ok(shard.searcher()?.with_limits(Limits::NONE).count(&query)?))
    }

    /// The bytes of a record, exactly as in the input.
    fn get<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole_number)] record: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let shard = self.opened()?;
        let found = unlocked(py, move |_| Ok(shard.searcher()?.get(record)?))?;
        Ok(PyBytes::new(py, &found))
    }

    /// The bytes of many records (numbers of any integer dtype), extracted together.
    fn get_all<'py>(
        &self,
        py: Python<'py>,
        records: Integers,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let shard = self.opened()?;
        let numbers = records.0.into_iter().map(|record| {
            usize::try_from(record)
                .map_err(|_| invalid(format!("no record {record}: records are numbered from 0")))
        });
        let numbers = numbers.collect::<PyResult<Vec<usize>>>()?;
        let found = unlocked(py, move |_| Ok(shard.searcher()?.get_all(&numbers)?))?;
        Ok(found.iter().map(|record| PyBytes::new(py, record)).collect())
    }

    /// The number of the first record with a key, or `None`.
    fn find(&self, py: Python<'_>, key: BytesLike) -> PyResult<Option<usize>> {
        let shard = self.opened()?;
        unlocked(py, move |_| Ok(shard.searcher()?.get_by_key(key.as_ref())?))
    }

    /// `length` bytes of the text from `offset` on.
    fn extract<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = whole_number)] offset: usize,
        #[pyo3(from_py_with = whole_number)] length: usize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let shard = self.opened()?;
        let found = unlocked(py, move |_| {
            let mut bytes = Vec::new();
            shard.index().extract(offset, length, &mut bytes)?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &found))
    }

    /// How often bytes occur in the text, overlapping occurrences included.
    fn occurrences(&self, bytes: BytesLike) -> PyResult<usize> {
        Ok(self.opened()?.index().count(bytes.as_ref()))
    }

    /// The offsets in the text at which bytes occur, ascending, dtype uint64.
    fn offsets(&self, py: Python<'_>, bytes: BytesLike) -> PyResult<Py<PyArray1<u64>>> {
        let shard = self.opened()?;
        let found = unlocked(py, move |_| {
            let rows = shard.index().rows(bytes.as_ref());
            let most = Limits::NONE.located_max;
            if rows.len() > most {
                return Err(anyhow!(
                    "{} occurrences, more than the limit of {most}; search for a longer string",
                    rows.len()
                ));
            }
            let mut offsets = Vec::new();
            shard.index().locate(rows, &mut offsets);
            offsets.sort_unstable();
            Ok(offsets)
        })?;
        Ok(PyArray1::from_iter(py, found.into_iter().map(|offset| offset as u64)).unbind())
    }

    fn __repr__(&self) -> String {
        match self.opened() {
            Ok(shard) => format!("<concertina.Shard of {} records>", shard.records().len()),
            Err(_) => "<concertina.Shard, closed>".to_owned(),
        }
    }
}
