//! Exceptions, with the texts that the commands print.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

create_exception!(
    concertina,
    Error,
    PyValueError,
    "An input that has no answer: what is wrong with it, where, and what to do."
);
create_exception!(
    concertina,
    UnstableError,
    Error,
    "A load at or past saturation. `rate` and `saturation` are in requests/s."
);

/// The exception of an error. What the system said of a file is an `OSError`, everything else an [`Error`].
pub fn exception(py: Python<'_>, error: anyhow::Error) -> PyErr {
    let text = text_of(&error);
    for cause in error.chain() {
        if let Some(model::Error::Unstable { rate, saturation }) = cause.downcast_ref() {
            return unstable(py, text, *rate, *saturation).unwrap_or_else(|error| error);
        }
        if let Some(cause) = cause.downcast_ref::<std::io::Error>() {
            return std::io::Error::new(cause.kind(), text).into();
        }
    }
    Error::new_err(text)
}

fn unstable(py: Python<'_>, text: String, rate: f64, saturation: f64) -> PyResult<PyErr> {
    let error = UnstableError::new_err(text);
    error.value(py).setattr("rate", rate)?;
    error.value(py).setattr("saturation", saturation)?;
    Ok(error)
}

/// The message of an error with those of its causes, as a command prints it behind its name.
fn text_of(error: &anyhow::Error) -> String {
    ground::with_causes(error.as_ref()).trim_end().to_owned()
}

/// The exception of an error that a parser describes in words.
pub fn invalid(text: impl Into<String>) -> PyErr {
    Error::new_err(text.into())
}
