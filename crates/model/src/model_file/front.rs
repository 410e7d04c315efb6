//! The resources that all requests of a node share: a link and workers.

use serde::{Deserialize, Serialize};

use crate::error::{Error, not_negative, positive};
use crate::storage::Link;

use super::{Model, Parameter};

/// The link that all replies share, and the workers that all requests share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Front {
    /// Mean bytes of a reply; absent if unknown, and then there is no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_mean: Option<f64>,
    /// Squared coefficient of variation of the bytes of a reply.
    #[serde(default)]
    pub bytes_scv: f64,
    /// Bytes per second of the link, from steps in which replies fell behind although no device was
    /// saturated; absent if there were no such steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_bytes_per_s: Option<Parameter>,
    /// Number of requests that are answered at once; absent if not limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
}

impl Front {
    /// The link of a replicate, with the fitted values for parameters that the replicate lacks.
    pub(super) fn link(&self, drawn: &dyn Fn(&str) -> Option<f64>) -> Option<Link> {
        let bytes_per_s = self.link_bytes_per_s.as_ref()?.value;
        Some(Link {
            bytes_per_s: drawn("link_bytes_per_s").unwrap_or(bytes_per_s),
            bytes_mean: drawn("bytes_mean").filter(|bytes| *bytes > 0.0).or(self.bytes_mean)?,
            bytes_scv: drawn("bytes_scv").unwrap_or(self.bytes_scv),
        })
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        if let Some(bytes) = self.bytes_mean {
            positive("the mean bytes of a reply", bytes)?;
        }
        not_negative("the SCV of the bytes of a reply", self.bytes_scv)?;
        let Some(link) = &self.link_bytes_per_s else { return Ok(()) };
        if self.bytes_mean.is_none() {
            return Err(Error::File("a link, and no bytes_mean of a reply in [front]".into()));
        }
        link.check("the bytes per second of a link")
    }
}

/// What the law of workers leaves out: a request holds its worker for the response of devices whose queues nothing bounds.
const WORKERS_TOO_SLOW: &str = "The law of workers takes devices to have the queues of requests without a bound, and adds the wait for a worker: where \
    few workers keep these queues short, it predicts responses too long and the saturation too low. With at least as many workers as \
    there are servers, the prediction without workers is the better one.";

impl Model {
    /// The same service with another link (bytes per second), other replies (mean bytes) or another
    /// number of requests answered at once; `None` keeps the present value. Only waits for these
    /// limits change: the longer device reads of longer replies are not modelled.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid numbers; [`Error::WhatIf`] for a link if neither the model nor
    /// `bytes_mean` has the bytes of a reply, and for bytes without a link.
    ///
    /// ```
    /// # fn of(model: &model::Model) -> Result<(), model::Error> {
    /// let gigabit = model.with_front(Some(125e6), Some(80e3), None)?;
    /// assert!(gigabit.limits()?.saturation.value <= 1562.5);
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_front(
        &self,
        link_bytes_per_s: Option<f64>,
        bytes_mean: Option<f64>,
        workers: Option<u32>,
    ) -> Result<Model, Error> {
        let mut model = self.clone();
        let none =
            Front { bytes_mean: None, bytes_scv: 0.0, link_bytes_per_s: None, workers: None };
        let mut front = model.front.take().unwrap_or(none);
        front.bytes_mean = bytes_mean.or(front.bytes_mean);
        let linked = link_bytes_per_s.is_some() || front.link_bytes_per_s.is_some();
        if link_bytes_per_s.is_some() && front.bytes_mean.is_none() {
            let what = "a link needs the mean bytes of a reply, which the model does not have: state them as well";
            return Err(Error::WhatIf(what.into()));
        }
        if bytes_mean.is_some() && !linked {
            let what = "the bytes of a reply matter to a link only, and the model has none: state its bytes/s as well";
            return Err(Error::WhatIf(what.into()));
        }
        front.workers = workers.or(front.workers);
        if workers.is_some() {
            model.warnings.push(WORKERS_TOO_SLOW.to_owned());
        }
        if let Some(rate) = link_bytes_per_s {
            front.link_bytes_per_s = Some(Parameter::exact(rate, "B/s"));
            model.replicates.change("link_bytes_per_s", |_, _| rate);
        }
        if let Some(bytes) = bytes_mean {
            model.replicates.change("bytes_mean", |_, _| bytes);
        }
        model.front = Some(front);
        model.check()?;
        Ok(model)
    }
}
