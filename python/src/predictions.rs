//! Predictions at several loads, as arrays.

use model::Prediction;
use numpy::{PyArray1, PyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::interval::{Interval, Intervals, array};

/// Predictions for n loads and k times, one row a load. Of a load past saturation `stable` is false and all quantities are NaN.
#[pyclass(frozen, get_all, module = "concertina")]
pub struct Predictions {
    /// Loads on all servers, requests/s, shape (n,).
    rate: Py<PyArrayDyn<f64>>,
    /// Servers that share each load equally.
    servers: u32,
    /// The k response times, seconds, shape (k,).
    within_s: Py<PyArrayDyn<f64>>,
    /// Whether a load is below saturation, shape (n,).
    stable: Py<PyArray1<bool>>,
    /// P(T ≤ t) by Concertina's model, shape (n, k).
    share: Py<Interval>,
    /// P(T ≤ t) by the published model, shape (n, k); NaN past its saturation.
    spotify: Py<Interval>,
    /// Mean response time, seconds, shape (n,).
    mean_s: Py<Interval>,
    /// Share of the requests that memory answers, shape (n,).
    hit_ratio: Py<Interval>,
    /// Utilisation of the busiest device, shape (n,).
    utilisation: Py<Interval>,
    /// Mean number of requests waiting and in service at a device, shape (n,).
    queue_length: Py<Interval>,
    /// Whether the load is past the confidence limit, shape (n,).
    beyond_limit: Py<PyArray1<bool>>,
    /// Whether the load is past the loads at which the model was checked, shape (n,): the prediction is extrapolated.
    beyond_trust: Py<PyArray1<bool>>,
    /// The confidence limit of all servers, requests/s.
    confidence_limit: f64,
    /// The load up to which the model was checked, requests/s on all servers.
    trust_limit: f64,
}

/// What a prediction says beside its loads.
pub struct Limits {
    /// Confidence limit of all servers.
    pub confidence: f64,
    /// Load up to which the model was checked, on all servers.
    pub trust: f64,
}

/// The predictions that were asked: one for each rate, `None` where it is not stable.
pub struct Answers {
    /// The loads, requests/s.
    pub rates: Vec<f64>,
    /// The servers.
    pub servers: u32,
    /// The times, seconds.
    pub within_s: Vec<f64>,
    /// A prediction for each load.
    pub found: Vec<Option<Prediction>>,
    /// The limits of the model.
    pub limits: Limits,
}

impl Answers {
    /// The answers as arrays.
    ///
    /// # Errors
    /// If Python has no memory.
    pub fn arrays(self, py: Python<'_>) -> PyResult<Predictions> {
        let (n, k) = (self.rates.len(), self.within_s.len());
        let (mut share, mut spotify) = (Intervals::default(), Intervals::default());
        for found in &self.found {
            for at in 0..k {
                let point = found.as_ref().and_then(|p| p.points.get(at));
                share.push(point.map(|p| &p.concertina));
                spotify.push(point.and_then(|p| p.spotify.as_ref()));
            }
        }
        let each = |of: fn(&Prediction) -> &model::Parameter| {
            let mut all = Intervals::default();
            self.found.iter().for_each(|found| all.push(found.as_ref().map(of)));
            Py::new(py, all.shaped(py, &[n])?)
        };
        let flag = |of: fn(&Prediction) -> bool| {
            let all = self.found.iter().map(|found| found.as_ref().is_none_or(of));
            PyArray1::from_iter(py, all).unbind()
        };
        let stable = PyArray1::from_iter(py, self.found.iter().map(Option::is_some)).unbind();
        Ok(Predictions {
            stable,
            share: Py::new(py, share.shaped(py, &[n, k])?)?,
            spotify: Py::new(py, spotify.shaped(py, &[n, k])?)?,
            mean_s: each(|p| &p.response_mean)?,
            hit_ratio: each(|p| &p.hit_ratio)?,
            utilisation: each(|p| &p.utilisation_max)?,
            queue_length: each(|p| &p.device_queue_length_mean)?,
            beyond_limit: flag(|p| p.beyond_limit),
            beyond_trust: flag(|p| p.beyond_trust),
            servers: self.servers,
            confidence_limit: self.limits.confidence,
            trust_limit: self.limits.trust,
            rate: array(py, self.rates, &[n])?,
            within_s: array(py, self.within_s, &[k])?,
        })
    }
}

#[pymethods]
impl Predictions {
    /// The predictions as a pandas DataFrame: a row for each load, indexed by it. Columns: `stable`, `mean_s`, `hit_ratio`,
    /// `utilisation`, `beyond_trust`, and of each time `share_50ms`, `share_50ms_low`, `share_50ms_high`, `spotify_50ms`.
    fn to_pandas(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let columns = PyDict::new(py);
        columns.set_item("stable", &self.stable)?;
        for (name, of) in [
            ("mean_s", &self.mean_s),
            ("hit_ratio", &self.hit_ratio),
            ("utilisation", &self.utilisation),
        ] {
            columns.set_item(name, of.bind(py).getattr("value")?)?;
        }
        columns.set_item("beyond_trust", &self.beyond_trust)?;
        let times: Vec<f64> = self.within_s.bind(py).extract()?;
        for (at, t_s) in times.into_iter().enumerate() {
            let time = format!("{}ms", ground::number::exact(t_s * 1e3));
            let column = |of: &Py<Interval>, what: &str| {
                of.bind(py).getattr(what)?.get_item((pyo3::types::PySlice::full(py), at))
            };
            columns.set_item(format!("share_{time}"), column(&self.share, "value")?)?;
            columns.set_item(format!("share_{time}_low"), column(&self.share, "low")?)?;
            columns.set_item(format!("share_{time}_high"), column(&self.share, "high")?)?;
            columns.set_item(format!("spotify_{time}"), column(&self.spotify, "value")?)?;
        }
        let keywords = PyDict::new(py);
        let pandas = py.import("pandas")?;
        let index = pandas.call_method1("Index", (&self.rate,))?;
        index.setattr("name", "rate")?;
        keywords.set_item("index", index)?;
        Ok(pandas.call_method("DataFrame", (columns,), Some(&keywords))?.unbind())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.rate.bind(py).len()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = |array: &Py<PyArrayDyn<f64>>| -> PyResult<String> {
            Ok(array.bind(py).str()?.to_string())
        };
        Ok(format!(
            "Predictions(rate={}, servers={}, within_s={})",
            shown(&self.rate)?,
            self.servers,
            shown(&self.within_s)?
        ))
    }
}
