//! The law of response times.

use crate::distribution::Empirical;
use crate::distribution::ServiceTime;
use crate::error::Error;
use crate::model_file::{Law, Parameter};
use ground::window::Histogram;

/// A law from clients' response times; `None` if there were none (or all were 0).
pub(super) fn law_of(times: &Histogram) -> Result<Option<Law>, Error> {
    if times.is_empty() || times.mean_s() <= 0.0 {
        return Ok(None);
    }
    let law = Empirical::from_histogram(times)?;
    let half = 1.96 * (times.variance_s2() / times.count() as f64).sqrt();
    let (value, unit) = (law.mean(), "s".to_owned());
    let mean = Parameter { value, low: (value - half).max(0.0), high: value + half, unit };
    let scv = Parameter::exact(law.scv(), "1");
    Ok(Some(Law::new(&law, mean, scv)))
}
