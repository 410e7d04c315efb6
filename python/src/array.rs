//! Arguments of Python as numbers and bytes: what is not a number is refused, and never taken for one.
//!
//! NumPy casts dates, durations, truth values and words to numbers when it is told the dtype that is wanted, and a missing value to NaN.
//! So the array is made first, and what it has is looked at before it is read.

use numpy::{
    PyArrayDescrMethods, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBool, PyBytes, PyDict, PyString};

use crate::error::invalid;

/// Numbers of any shape: a number, a list, or an array of NumPy, pandas or polars. None of them is NaN.
pub struct Numbers {
    /// The numbers, in the order of rows.
    pub values: Vec<f64>,
    /// The length of each dimension; empty for one number.
    pub shape: Vec<usize>,
}

/// Numbers in one dimension. None of them is NaN.
pub struct Column(pub Vec<f64>);

/// BoundedInteger numbers in one dimension.
pub struct Integers(pub Vec<i64>);

/// Bytes, or text, of which these are the bytes in UTF-8.
pub enum BytesLike {
    /// Bytes: of `bytes` and `bytearray` their own memory, of what else has a buffer a copy.
    Bytes(PyBackedBytes),
    /// Text.
    Text(String),
}

/// Where a value stands, for a person.
fn place(at: usize, count: usize) -> String {
    if count == 1 { "the value".to_owned() } else { format!("value {at}") }
}

/// The value in words. Python refuses to print an integer of thousands of digits.
fn value_text(value: &Bound<'_, PyAny>) -> String {
    value.repr().map_or_else(|_| "a number of too many digits".to_owned(), |text| text.to_string())
}

/// The array of an argument, as NumPy makes it when it is told no dtype.
fn as_array<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
    let py = value.py();
    let numpy = py.import(intern!(py, "numpy"))?;
    if numpy
        .getattr(intern!(py, "ma"))?
        .call_method1(intern!(py, "is_masked"), (value,))?
        .is_truthy()?
    {
        return Err(invalid("the array has masked values: fill them, or leave them out"));
    }
    let array = numpy.call_method1(intern!(py, "asarray"), (value,))?;
    Ok(array.cast_into::<PyUntypedArray>()?)
}

/// The elements of an array as those of a dtype, in the order of rows.
fn cast<T: numpy::Element + Copy>(
    array: &Bound<'_, PyUntypedArray>,
    dtype: &str,
) -> PyResult<Vec<T>> {
    let options = PyDict::new(array.py());
    options.set_item("copy", false)?;
    let cast = array.call_method("astype", (dtype,), Some(&options))?;
    let cast = cast.cast_into::<PyArrayDyn<T>>()?;
    let read = cast.readonly();
    let all = read.as_array();
    Ok(all.as_slice().map_or_else(|| all.iter().copied().collect(), <[T]>::to_vec))
}

/// What an array of a dtype that has no numbers is refused with.
fn no_numbers(array: &Bound<'_, PyUntypedArray>) -> PyErr {
    let kind = array.dtype().kind();
    let what = match kind {
        b'b' => "truth values; select with them first: `numbers[mask]`",
        b'm' => "durations; give them in seconds: `durations / numpy.timedelta64(1, \"s\")`",
        b'M' => "dates; give numbers",
        b'c' => "complex numbers; give real ones",
        b'U' | b'S' | b'T' => "text; give numbers",
        _ => "other values; give numbers",
    };
    invalid(format!("numbers are needed, and these are {what}"))
}

/// The elements of an array of objects, each by `number`.
fn of_objects<T>(
    array: &Bound<'_, PyUntypedArray>,
    number: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
) -> PyResult<Vec<T>> {
    let count = array.len();
    let read = |(at, value): (usize, PyResult<Bound<'_, PyAny>>)| {
        let value = value?;
        let refused =
            || invalid(format!("{} is {}: give a number", place(at, count), value_text(&value)));
        let is_number = value.hasattr("__float__")? && !value.is_instance_of::<PyString>();
        if !is_number || value.is_instance_of::<PyBool>() {
            return Err(refused());
        }
        number(&value).map_err(|_| refused())
    };
    array.call_method0("ravel")?.try_iter()?.enumerate().map(read).collect()
}

impl Numbers {
    fn new(value: &Bound<'_, PyAny>) -> PyResult<Numbers> {
        let array = as_array(value)?;
        let values = match array.dtype().kind() {
            b'f' | b'i' | b'u' => cast(&array, "float64")?,
            b'O' => of_objects(&array, |number| number.call_method0("__float__")?.extract())?,
            _ => return Err(no_numbers(&array)),
        };
        if let Some(at) = values.iter().position(|number: &f64| number.is_nan()) {
            return Err(invalid(format!(
                "{} is missing or not a number (NaN): fill it, or leave it out",
                place(at, values.len())
            )));
        }
        Ok(Numbers { values, shape: array.shape().to_vec() })
    }
}

impl<'py> FromPyObject<'_, 'py> for Numbers {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        Numbers::new(&value)
    }
}

/// That an array has one dimension.
fn one_dimension(shape: &[usize]) -> PyResult<()> {
    match shape.len() {
        1 => Ok(()),
        0 => Err(invalid("a list of numbers is needed, and this is one number")),
        n => Err(invalid(format!("one dimension is needed, and the array has {n}"))),
    }
}

impl<'py> FromPyObject<'_, 'py> for Column {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Numbers { values, shape } = Numbers::new(&value)?;
        one_dimension(&shape)?;
        Ok(Column(values))
    }
}

/// The largest whole number up to which floating-point ones are exact.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

impl<'py> FromPyObject<'_, 'py> for Integers {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array = as_array(&value)?;
        one_dimension(array.shape())?;
        let count = array.len();
        let refused = |at: usize, number: &dyn std::fmt::Display| {
            let at = place(at, count);
            invalid(format!("{at} is {number}: give a whole number, at most {}", i64::MAX))
        };
        match array.dtype().kind() {
            b'i' => Ok(Integers(cast(&array, "int64")?)),
            b'u' => {
                let all: Vec<u64> = cast(&array, "uint64")?;
                let whole = |(at, &number)| i64::try_from(number).map_err(|_| refused(at, &number));
                all.iter().enumerate().map(whole).collect::<PyResult<_>>().map(Integers)
            }
            b'f' => {
                let whole = |(at, &number): (usize, &f64)| {
                    let is_whole = number.fract() == 0.0 && number.abs() <= EXACT_MAX;
                    is_whole.then_some(number as i64).ok_or_else(|| refused(at, &number))
                };
                let all: Vec<f64> = cast(&array, "float64")?;
                all.iter().enumerate().map(whole).collect::<PyResult<_>>().map(Integers)
            }
            b'O' => of_objects(&array, |number| number.extract()).map(Integers),
            _ => Err(no_numbers(&array)),
        }
    }
}

/// A type of whole numbers that an argument may have.
pub trait BoundedInteger: Sized {
    /// Its largest value.
    const MAX: u64;
}

impl BoundedInteger for u32 {
    const MAX: u64 = u32::MAX as u64;
}

impl BoundedInteger for u64 {
    const MAX: u64 = u64::MAX;
}

impl BoundedInteger for usize {
    const MAX: u64 = usize::MAX as u64;
}

impl<T: BoundedInteger> BoundedInteger for Option<T> {
    const MAX: u64 = T::MAX;
}

/// A whole number. One that is out of range is an input without an answer like others, not an `OverflowError`.
///
/// # Errors
/// If it is out of range, or not a whole number.
pub fn whole_number<'py, T>(value: &Bound<'py, PyAny>) -> PyResult<T>
where
    T: BoundedInteger + FromPyObjectOwned<'py>,
{
    value.extract().map_err(|error: T::Error| out_of_range(value, error.into(), T::MAX))
}

fn out_of_range(value: &Bound<'_, PyAny>, error: PyErr, most: u64) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(value.py()) {
        invalid(format!("{} is out of range: a whole number from 0 to {most}", value_text(value)))
    } else {
        error
    }
}

/// BoundedInteger numbers in one dimension that are counts.
///
/// # Errors
/// If one is out of range, or not a whole number.
pub fn counts(value: &Bound<'_, PyAny>) -> PyResult<Vec<u32>> {
    let Integers(all) = value.extract()?;
    let count = |number: i64| {
        u32::try_from(number).map_err(|_| {
            invalid(format!("{number} is out of range: a whole number from 0 to {}", u32::MAX))
        })
    };
    all.into_iter().map(count).collect()
}

impl<'py> FromPyObject<'_, 'py> for BytesLike {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if value.is_instance_of::<PyString>() {
            return Ok(BytesLike::Text(value.extract()?));
        }
        if let Ok(bytes) = value.extract() {
            return Ok(BytesLike::Bytes(bytes));
        }
        let kind = value.get_type().name()?;
        let view = value.py().import("builtins")?.getattr("memoryview")?.call1((value,));
        let view = view.map_err(|_| {
            PyTypeError::new_err(format!("bytes or text are needed, and this is of type {kind}"))
        })?;
        if view.getattr("itemsize")?.extract::<usize>()? != 1 {
            return Err(invalid(
                "bytes are needed, and the elements of this buffer are longer than a byte",
            ));
        }
        let bytes = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
        Ok(BytesLike::Bytes(PyBackedBytes::from(bytes)))
    }
}

impl AsRef<[u8]> for BytesLike {
    fn as_ref(&self) -> &[u8] {
        match self {
            BytesLike::Bytes(bytes) => bytes,
            BytesLike::Text(text) => text.as_bytes(),
        }
    }
}
