//! Models: from files, from stated numbers, and what they answer.

use std::path::PathBuf;
use std::sync::Arc;

use ::model::distribution::Exponential;
use ::model::plan::{Growth, LimitRule, Question, plan};
use ::model::queue::{ArrivalLaw, Discipline};
use ::model::storage::{BETA, balls_into_bins_limit};
use ::model::{Error, MixShare, StatedNode, StatedNumber};
use anyhow::{Context, anyhow, bail};
use ground::window::Operation;
use numpy::PyArrayDyn;
use pyo3::prelude::*;
use report::plan_basis::PlanBasis;
use report::stated_law::{self, StatedLaw};
use report::{Objective, choices, compare};

use crate::array::{Numbers, whole_number};
use crate::error::{exception, invalid};
use crate::interval::{Interval, Intervals, array};
use crate::predictions::{Answers, Limits, Predictions};
use crate::value::{Description, object};
use crate::work::unlocked;

/// A model of one server: its laws of service, its memory and its devices.
#[pyclass(frozen, module = "concertina")]
pub struct Model {
    model: Arc<::model::Model>,
}

/// That there are servers, and not more than a command takes.
fn check_servers(servers: impl std::fmt::Display, is_valid: bool) -> PyResult<()> {
    if is_valid {
        return Ok(());
    }
    Err(invalid(format!("invalid number of servers {servers}: from 1 to {SERVERS_MAX} servers")))
}

/// What a word or a text that a command takes was read as.
fn parsed<T>(py: Python<'_>, found: Result<T, String>) -> PyResult<T> {
    found.map_err(|error| exception(py, anyhow!(error)))
}

/// A part of a mix: operation, bytes or `None`, share.
type MixPart = (String, Option<u64>, f64);

impl Model {
    /// A model that was read, fitted or stated.
    pub fn new(model: ::model::Model) -> Self {
        Model { model: Arc::new(model) }
    }

    /// The quantity of each server for each of `at`, in its shape.
    fn each(
        &self,
        py: Python<'_>,
        at: Numbers,
        of: impl Fn(&::model::Model, &[f64]) -> Result<Vec<f64>, Error> + Send + 'static,
    ) -> PyResult<Py<PyArrayDyn<f64>>> {
        let model = self.model.clone();
        let Numbers { values: numbers, shape } = at;
        // Parts, so that Ctrl-C ends a long one.
        let found = unlocked(py, move |cancel| {
            let mut all = Vec::with_capacity(numbers.len());
            for part in numbers.chunks(PART) {
                cancel.check()?;
                all.extend(of(&model, part)?);
            }
            Ok(all)
        })?;
        array(py, found, &shape)
    }
}

/// Times of which the shares are computed before a look whether the caller still waits: a tenth of a second of the slowest laws.
const PART: usize = 1_024;

#[pymethods]
impl Model {
    /// Reads a model file, as `concertina fit` and `concertina model` write it (docs/model-file.md).
    #[staticmethod]
    fn read(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        unlocked(py, move |_| Ok(report::read_model(&path)?)).map(Model::new)
    }

    /// Reads the text of a model file.
    #[staticmethod]
    fn parse(py: Python<'_>, text: String) -> PyResult<Self> {
        let read = move |_: &_| Ok(::model::Model::from_toml(&text)?);
        unlocked(py, read).map(Model::new)
    }

    /// A server of the published Spotify model (Yanggratoke and others, "Predicting response times for the Spotify backend", CNSM
    /// 2012): disks of rate `mu_d` (1/s), `n_d` of them, and a memory that answers the share `q0` − `alpha`·λ (`alpha` in s).
    #[staticmethod]
    fn published(
        py: Python<'_>,
        mu_d: f64,
        #[pyo3(from_py_with = whole_number)] n_d: u32,
        q0: f64,
        alpha: f64,
    ) -> PyResult<Self> {
        let text = format!("{mu_d},{n_d},{q0},{alpha}");
        let stated = move |_: &_| -> anyhow::Result<_> {
            let node = StatedNode::new(Arc::new(Exponential::new(1.0 / mu_d)?));
            let title = "The published model of server".to_owned();
            let node = StatedNode { title, devices: n_d, ..node.with_memory(q0, alpha) };
            ::model::Model::stated(&node).with_context(|| format!("--published {text}"))
        };
        unlocked(py, stated).map(Model::new)
    }

    /// A server from stated numbers, as `concertina model` (docs/model-file.md#from-stated-numbers). `service`, `memory_time` and
    /// `outside` are laws of times: `exp:6.2ms`, `det:4ms`, `gamma:10ms,0.25`, `lognormal:10ms,2`, `hyper:10ms,4`, `file:PATH`.
    #[staticmethod]
    #[pyo3(signature = (service, *, devices=1, servers=1, shared=false, q0=0.0, alpha=0.0, memory_time=None, outside=None, loads=None, title=None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
    fn stated(
        py: Python<'_>,
        service: &str,
        #[pyo3(from_py_with = whole_number)] devices: u32,
        #[pyo3(from_py_with = whole_number)] servers: u32,
        shared: bool,
        q0: f64,
        alpha: f64,
        memory_time: Option<&str>,
        outside: Option<&str>,
        loads: Option<(f64, f64)>,
        title: Option<String>,
    ) -> PyResult<Self> {
        let StatedLaw { law, mean_s, text } = parsed(py, stated_law::parse(service))?;
        let other = |text: Option<&str>| {
            let law = text.map(stated_law::parse).transpose();
            parsed(py, law.map(|stated| stated.map(|stated| stated.law)))
        };
        let node = StatedNode {
            title: title.unwrap_or_else(|| format!("Stated: {text}")),
            service_mean_s: mean_s,
            devices,
            servers,
            discipline: if shared { Discipline::Shared } else { Discipline::Fifo },
            q0: StatedNumber::exact(q0),
            alpha,
            memory: other(memory_time)?,
            outside: other(outside)?,
            loads,
            ..StatedNode::new(law)
        };
        let stated =
            move |_: &_| ::model::Model::stated(&node).context("these numbers make no model");
        unlocked(py, stated).map(Model::new)
    }

    /// The text of the model's file.
    fn to_toml(&self, py: Python<'_>) -> PyResult<String> {
        self.model.to_toml().map_err(|error| exception(py, error.into()))
    }

    /// Writes the model's file. Replaces a model file, and no other file.
    fn write(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let text = self.to_toml(py)?;
        unlocked(py, move |_| {
            let ours = |old: &str| ::model::Model::from_toml(old).is_ok();
            Ok(report::write_whole(&path, &text, ours)?)
        })
    }

    /// What was fitted or stated, in a line.
    #[getter]
    fn title(&self) -> &str {
        &self.model.about.title
    }

    /// Warnings for users of the model, in sentences.
    #[getter]
    fn warnings(&self) -> Vec<String> {
        compare::warnings_of(&self.model)
    }

    /// The parameters with their 95 % intervals and units: a list of dicts.
    #[getter]
    fn parameters(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let parameters = serde_json::to_value(compare::parameters(&self.model));
        object(py, &parameters.map_err(|error| exception(py, error.into()))?)
    }

    /// The loads that bound what the model says of one server, requests/s: `spotify_single` and `mg1` (confidence limits of the
    /// published and of this model), `saturation`, each with its 95 % interval, and `breaks_first`.
    fn limits(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let model = self.model.clone();
        let found = unlocked(py, move |_| Ok(serde_json::to_value(model.limits()?)?))?;
        object(py, &found)
    }

    /// Up to which load the model was compared with measurements, and how far off it was there.
    fn trust(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let model = self.model.clone();
        let found = unlocked(py, move |_| Ok(serde_json::to_value(model.trust()?)?))?;
        object(py, &found)
    }

    /// The confidence limits of several servers by balls into bins: `servers` of any shape, of the model that `published` names.
    #[pyo3(signature = (servers, *, published=false))]
    fn cluster_limits(
        &self,
        py: Python<'_>,
        servers: Numbers,
        published: bool,
    ) -> PyResult<Py<PyArrayDyn<f64>>> {
        let Numbers { values: counts, shape } = servers;
        for n in &counts {
            check_servers(n, n.fract() == 0.0 && (1.0..=f64::from(SERVERS_MAX)).contains(n))?;
        }
        let model = self.model.clone();
        let limits = unlocked(py, move |_| {
            let limit = if published {
                model.spotify()?.confidence_limit()
            } else {
                model.node()?.confidence_limit()
            };
            Ok(counts.into_iter().map(|n| balls_into_bins_limit(limit, n as u32, BETA)).collect())
        })?;
        array(py, limits, &shape)
    }

    /// Predicts response times at loads `rate` (requests/s on all servers, shape (n,) or a number), with the shares within each of
    /// the times `within` (seconds, shape (k,) or a number). The answers are those of `concertina predict`. Cost: some 0.1 ms for each
    /// load, time and replicate of the model.
    #[pyo3(signature = (rate, within=None, *, servers=1))]
    fn predict(
        &self,
        py: Python<'_>,
        rate: Numbers,
        within: Option<Numbers>,
        #[pyo3(from_py_with = whole_number)] servers: u32,
    ) -> PyResult<Predictions> {
        let rates = rate.values;
        let within_s = within.map_or_else(|| WITHIN_S.to_vec(), |within| within.values);
        check_servers(servers, (1..=SERVERS_MAX).contains(&servers))?;
        let model = self.model.clone();
        let answers = unlocked(py, move |cancel| {
            let mut found = Vec::with_capacity(rates.len());
            for &rate in &rates {
                cancel.check()?;
                found.push(match model.predict_cluster(rate, servers, &within_s) {
                    Ok(prediction) => Some(prediction),
                    Err(Error::Unstable { .. }) => None,
                    Err(error) => return Err(error.into()),
                });
            }
            let confidence = balls_into_bins_limit(model.node()?.confidence_limit(), servers, BETA);
            let limits = Limits { confidence, trust: model.trust()?.limit * f64::from(servers) };
            Ok(Answers { rates, servers, within_s, found, limits })
        })?;
        answers.arrays(py)
    }

    /// P(T ≤ t) of one server at the load `rate` (requests/s) for each of `times` (seconds, any shape), in their shape, without
    /// intervals: for curves.
    fn cdf(&self, py: Python<'_>, rate: f64, times: Numbers) -> PyResult<Py<PyArrayDyn<f64>>> {
        self.each(py, times, move |model, times_s| model.cdf(rate, times_s))
    }

    /// The same by the published model.
    fn published_cdf(
        &self,
        py: Python<'_>,
        rate: f64,
        times: Numbers,
    ) -> PyResult<Py<PyArrayDyn<f64>>> {
        self.each(py, times, move |model, times_s| model.spotify_cdf(rate, times_s))
    }

    /// The response times in seconds that a share `p` (0 ≤ p < 1) of the requests does not exceed, at loads `rate` (requests/s of one
    /// server, any shape), in their shape, with 95 % intervals. NaN past saturation. Cost: some 240 CDFs for each load.
    fn quantile(&self, py: Python<'_>, rate: Numbers, p: f64) -> PyResult<Interval> {
        let model = self.model.clone();
        let Numbers { values: rates, shape } = rate;
        let found = unlocked(py, move |cancel| {
            let mut found = Intervals::default();
            for &rate in &rates {
                cancel.check()?;
                match model.quantile_with_interval(rate, p) {
                    Ok(quantile) => found.push(Some(&quantile)),
                    Err(Error::Unstable { .. }) => found.push(None),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(found)
        })?;
        found.shaped(py, &shape)
    }

    /// The largest load that meets an objective like `99% within 50ms`, as `concertina predict --objective --json`.
    #[pyo3(signature = (objective, *, servers=1))]
    fn largest_rate(
        &self,
        py: Python<'_>,
        objective: &str,
        #[pyo3(from_py_with = whole_number)] servers: u32,
    ) -> PyResult<Py<PyAny>> {
        check_servers(servers, (1..=SERVERS_MAX).contains(&servers))?;
        let objective: Objective = parsed(py, objective.parse())?;
        let model = self.model.clone();
        let found = unlocked(py, move |_| {
            Ok(serde_json::to_value(report::largest_rate(&model, objective, servers)?)?)
        })?;
        object(py, &found)
    }

    /// The model with another law of arrivals: `poisson`, `bursts:C2:RATE` or `renewal:SCV`.
    fn with_arrivals(&self, py: Python<'_>, law: &str) -> PyResult<Self> {
        let law: ArrivalLaw = parsed(py, law.parse())?;
        Ok(Model::new(self.model.with_arrivals(law)))
    }

    /// The model with a link that all replies share (`link`, bytes/s; `reply_bytes` on average), or with at most `workers` requests
    /// answered at once.
    #[pyo3(signature = (*, link=None, reply_bytes=None, workers=None))]
    fn with_front(
        &self,
        py: Python<'_>,
        link: Option<f64>,
        reply_bytes: Option<f64>,
        #[pyo3(from_py_with = whole_number)] workers: Option<u32>,
    ) -> PyResult<Self> {
        let model = self.model.clone();
        let changed = move |_: &_| {
            model
                .with_front(link, reply_bytes, workers)
                .context("invalid --link, --reply-bytes or --workers")
        };
        unlocked(py, changed).map(Model::new)
    }

    /// The model of another mix of requests: a list of (operation, bytes or None, share), of the kinds that the fit found. The shares
    /// add to 1.
    fn with_mix(&self, py: Python<'_>, mix: Vec<MixPart>) -> PyResult<Self> {
        let part = |(name, bytes, share): MixPart| {
            let operation = Operation::parse(&name).ok_or_else(|| {
                let all = Operation::ALL.map(Operation::as_str).join(", ");
                invalid(format!("unknown operation `{name}`: one of {all}"))
            })?;
            Ok(MixShare { operation, bytes, share })
        };
        let mix = mix.into_iter().map(part).collect::<PyResult<Vec<_>>>()?;
        let model = self.model.clone();
        unlocked(py, move |_| Ok(model.with_mix(&mix)?)).map(Model::new)
    }

    /// The cheapest configurations that meet an objective at the load `rate` (requests/s), as `concertina plan --json`: `ranked`, each
    /// with cost, share in time, headroom and what breaks first; `nearest` if there is none. `choices` is the path of a file or a dict with its keys
    /// (docs/plan.md). `growth` is a part in a month: 0.05 for 5 %.
    #[pyo3(signature = (choices, objective, rate, *, growth=None, months=12, with_one_lost=false, limit="none", top=10))]
    #[expect(clippy::too_many_arguments, reason = "keywords of a function in Python")]
    fn plan(
        &self,
        py: Python<'_>,
        choices: &Bound<'_, PyAny>,
        objective: &str,
        rate: f64,
        growth: Option<f64>,
        #[pyo3(from_py_with = whole_number)] months: u32,
        with_one_lost: bool,
        limit: &str,
        #[pyo3(from_py_with = whole_number)] top: usize,
    ) -> PyResult<Py<PyAny>> {
        let Objective { share, within_s } = parsed(py, objective.parse())?;
        let given = Description::new(choices)?;
        let limit = match limit {
            "none" => LimitRule::None,
            "ours" => LimitRule::Ours,
            "published" => LimitRule::Published,
            other => {
                return Err(invalid(format!("invalid limit `{other}`: none, ours or published")));
            }
        };
        let question = Question {
            growth: growth.map(|per_month| Growth { per_month, months }),
            limit,
            with_one_lost,
            top,
            ..Question::new(::model::plan::Objective { share, within_s }, rate)
        };
        let model = self.model.clone();
        let found = unlocked(py, move |_| {
            let (choices, _) = match &given {
                Description::File(path) => choices::read(path, None, None)?,
                Description::Text(text) => choices::parse(text, None, None)
                    .context("invalid choices (docs/plan.md describes them)")?,
            };
            if !(1..=1_000).contains(&top) {
                bail!("invalid top {top}: from 1 to 1000 configurations");
            }
            let found = plan(&model, &question, &choices)?;
            let basis = PlanBasis { model: (*model).clone(), delay_s: 0.0, of: None, note: None };
            Ok(basis.json(&found)?)
        })?;
        object(py, &found)
    }

    /// A model is pickled and copied as the text of its file, which has every digit.
    fn __reduce__(slf: &Bound<'_, Self>) -> PyResult<(Py<PyAny>, (String,))> {
        let text = slf.get().to_toml(slf.py())?;
        Ok((slf.get_type().getattr("parse")?.unbind(), (text,)))
    }

    fn __repr__(&self) -> String {
        format!("<concertina.Model {:?}>", self.model.about.title)
    }
}

/// The largest number of servers.
const SERVERS_MAX: u32 = 1_000_000;
/// The response times that are asked unless others are given.
const WITHIN_S: [f64; 3] = [0.020, 0.050, 0.100];
