//! Quantities with their intervals, as arrays.

use model::Parameter;
use numpy::ndarray::IxDyn;
use numpy::{PyArray1, PyArrayDyn, PyArrayMethods};
use pyo3::prelude::*;

/// Values with their 95 % intervals: three arrays of one shape.
///
/// `value` is the estimate, `low` and `high` are the ends of the interval: equal to it where a number is taken as known. NaN where
/// there is no value.
#[pyclass(frozen, get_all, module = "concertina")]
pub struct Interval {
    /// The estimate.
    value: Py<PyArrayDyn<f64>>,
    /// The lower end of the 95 % interval.
    low: Py<PyArrayDyn<f64>>,
    /// The upper end.
    high: Py<PyArrayDyn<f64>>,
}

#[pymethods]
impl Interval {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let text = |array: &Py<PyArrayDyn<f64>>| -> PyResult<String> {
            Ok(array.bind(py).repr()?.to_string())
        };
        Ok(format!(
            "Interval(value={}, low={}, high={})",
            text(&self.value)?,
            text(&self.low)?,
            text(&self.high)?
        ))
    }
}

/// Intervals under construction.
#[derive(Clone, Debug, Default)]
pub struct Intervals {
    value: Vec<f64>,
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Intervals {
    /// Appends a quantity; `None` where there is none.
    pub fn push(&mut self, parameter: Option<&Parameter>) {
        let nan = |number: Option<f64>| number.unwrap_or(f64::NAN);
        self.value.push(nan(parameter.map(|p| p.value)));
        self.low.push(nan(parameter.map(|p| p.low)));
        self.high.push(nan(parameter.map(|p| p.high)));
    }

    /// The quantities as arrays of a shape.
    ///
    /// # Errors
    /// If there are fewer or more than the shape has places.
    pub fn shaped(self, py: Python<'_>, shape: &[usize]) -> PyResult<Interval> {
        Ok(Interval {
            value: array(py, self.value, shape)?,
            low: array(py, self.low, shape)?,
            high: array(py, self.high, shape)?,
        })
    }
}

/// An array of a shape.
///
/// # Errors
/// If there are fewer or more numbers than the shape has places.
pub fn array(py: Python<'_>, numbers: Vec<f64>, shape: &[usize]) -> PyResult<Py<PyArrayDyn<f64>>> {
    // The vector becomes the array's memory: nothing is copied.
    Ok(PyArray1::from_vec(py, numbers).reshape(IxDyn(shape))?.unbind())
}
