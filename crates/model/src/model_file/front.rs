//! The resources that all requests of a node share: a link and workers.

use crate::error::Error;

use super::model::Model;
use super::parts::{Front, Parameter};

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
