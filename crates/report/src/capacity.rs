//! Capacities computed from tables of measurements: mixes with what their intervals rest on, and the results as JSON.

use model::capacity::{
    IoCapacity, IoThroughput, MixError, MixPart, Scalability, ScalableThroughput, Scatter, Shares,
};
use model::regression::Estimated;
use model::statistics::student;
use serde_json::{Value, json};

use crate::error::Error;
use crate::objective::digits;

/// Degrees of freedom of a scatter that the user states: as good as known.
const STATED_DEGREES: f64 = 1e4;

/// A mix of sizes of which the capacity is asked.
#[derive(Clone, Copy, Debug)]
pub struct MixQuestion<'a> {
    /// Its parts, whose shares add to 1.
    pub parts: &'a [MixPart],
    /// What the shares are of.
    pub by: Shares,
    /// Confidence level of the interval.
    pub confidence: f64,
    /// Relative standard deviation of a measured throughput, where it is known; for tables with two points for each size.
    pub point_error: Option<f64>,
}

impl MixQuestion<'_> {
    /// The capacity for the mix with its interval: that of the points, and for several sizes the error that the law itself
    /// may have for it. Where two points for each size give no interval, every point of a mix may be off by as much as
    /// their scatter, or is taken as exact if that is not known.
    ///
    /// # Errors
    /// If a part is outside what the system was measured for, or a share is invalid.
    pub fn answer(&self, system: &IoCapacity) -> Result<IoThroughput, Error> {
        let found = system.mix(self.parts, self.by)?;
        if found.by != Some(Shares::Ios) {
            return Ok(found);
        }
        let several = MixError::has_several(self.parts);
        let (law, scatter) = match (found.total.low, self.scatter(system)) {
            (Some(_), _) if !several => return Ok(found),
            (Some(_), _) => (found.total, (0.0, 1.0)),
            (None, None) if !several => return Ok(found),
            (None, None) => (found.total, (0.0, 1.0)),
            // The points of a mix are independent; taken as one point they vary more, not less.
            (None, Some(Scatter { deviation, degrees })) => {
                let half = student(self.confidence, degrees)? * deviation * found.total.value;
                (Estimated::around(found.total.value, Some(half)), (deviation, degrees))
            }
        };
        let total = MixError::prior().expected(law, several, scatter, self.confidence)?;
        Ok(IoThroughput { total, ..found })
    }

    /// The scatter of the points of a table in which two for each size leave nothing to see it by: as stated, else as the
    /// sizes scatter about the cost between them.
    fn scatter(&self, system: &IoCapacity) -> Option<Scatter> {
        let stated = |deviation| Scatter { deviation, degrees: STATED_DEGREES };
        self.point_error.map(stated).or_else(|| system.affine_scatter())
    }

    /// What the interval rests on, where the points of each size do not tell their own scatter; or why there is none.
    pub fn basis_of_interval(&self, system: &IoCapacity) -> Option<String> {
        if system.scatter().is_some() {
            return None;
        }
        let more = "give a third point of a size, or repeat one, or state --point-error";
        let law = "what mixes of two stores were off by (docs/capacity.md)";
        Some(match (self.by, self.point_error, system.affine_scatter()) {
            (Shares::Capacity, ..) => format!(
                "no interval: two points for each size leave no residual, and shares of capacity are no measurement to expect; {more}"
            ),
            (_, Some(error), _) => format!(
                "its interval rests on the stated error of a point, {} %, and {law}",
                digits(100.0 * error, 3)
            ),
            (_, None, Some(scatter)) => format!(
                "two points for each size: its interval rests on how far the sizes are from one affine cost ({} % a point, {} \
                 degrees of freedom), and {law}",
                digits(100.0 * scatter.deviation, 3),
                digits(scatter.degrees, 3)
            ),
            (_, None, None) if MixError::has_several(self.parts) => format!(
                "its interval is too narrow: it holds {law}, but not the error of the points, which two for each of fewer than \
                 three sizes do not tell; {more}"
            ),
            _ => format!(
                "no interval: two points for each of fewer than three sizes do not tell their error; {more}"
            ),
        })
    }
}

/// The capacity of a storage system, with answers to questions as they were asked and notes on their intervals.
///
/// # Errors
/// If a number cannot be represented.
pub fn storage_json(
    system: &IoCapacity,
    answers: &[(String, IoThroughput)],
    notes: &[String],
) -> Result<Value, Error> {
    let mut predictions = Vec::new();
    for (asked, found) in answers {
        let mut value = serde_json::to_value(found)?;
        value["asked"] = asked.as_str().into();
        predictions.push(value);
    }
    Ok(json!({
        "law": "C = T_read + T_write·f_rw",
        "sizes": system.sizes(),
        "affine": system.affine(),
        "scatter": system.scatter(),
        "predictions": predictions,
        "intervals": notes,
        "warnings": system.warnings(),
    }))
}

/// The Universal Scalability Law of a system, with its throughput at other concurrencies.
///
/// # Errors
/// If a number cannot be represented.
pub fn scaling_json(law: &Scalability, found: &[ScalableThroughput]) -> Result<Value, Error> {
    Ok(json!({
        "law": "X(N) = γN / (1 + α(N − 1) + βN(N − 1))",
        "gamma": law.unit(),
        "alpha": law.contention(),
        "beta": law.coherency(),
        "residuals": law.residuals(),
        "peak": law.peak(),
        "ceiling": law.ceiling(),
        "predictions": serde_json::to_value(found)?,
        "warnings": law.warnings(),
    }))
}
