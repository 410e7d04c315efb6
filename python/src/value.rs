//! Values that are JSON or TOML elsewhere, as dicts and lists.

use std::path::PathBuf;

use anyhow::Context;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::error::{exception, invalid};

/// A dict or a list of Python.
///
/// # Errors
/// If Python has no memory.
pub fn object(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(pythonize::pythonize(py, value)?.unbind())
}

/// A description that a command reads from a TOML file, given as its path or as a dict.
pub enum Description {
    /// The path of the file.
    File(PathBuf),
    /// The text that a file with the keys of the dict would have.
    Text(String),
}

impl Description {
    /// The path or the dict.
    ///
    /// # Errors
    /// If it is neither, or the dict has values that TOML has not.
    pub fn new(given: &Bound<'_, PyAny>) -> PyResult<Description> {
        let Ok(dict) = given.cast::<PyDict>() else {
            return Ok(Description::File(given.extract()?));
        };
        let table: toml::Table =
            pythonize::depythonize(dict.as_any()).map_err(|error| invalid(error.to_string()))?;
        let text = toml::to_string(&table).context("a dict that TOML cannot express");
        text.map(Description::Text).map_err(|error| exception(given.py(), error))
    }
}
