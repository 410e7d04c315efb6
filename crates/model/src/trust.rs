//! Trust: what of a model was checked against measurements, how far off it was, and up to which load.
//!
//! [`Trust`] has the rule and its limitations.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative};
use crate::storage::Node;

/// Points (hundredths of all requests) of error from which a model counts as wrong at a load.
pub const POINTS_MAX: f64 = 5.0;

/// How far past a checked load is still the same load, as for `beyond_fitted`: measured rates of one offered
/// load differ by chance.
const SLACK: f64 = 1.01;

/// How much busier a changed server has to be at a fitted load before its checked loads shrink: what a model file
/// keeps of the utilisation is rounded.
const BUSIER: f64 = 1.02;

/// A prediction of a load that was held out of the fit, beside what was measured there.
///
/// ```
/// let text = r#"
/// name = "runs/load#3"
/// rate = 2000.0
/// within_s = 0.05
/// error_points = -1.2
/// half_width_points = 0.3
/// "#;
/// let held: model::HeldOut = toml::from_str(text).unwrap();
/// assert_eq!(held.error_points, -1.2);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeldOut {
    /// Name of the step.
    #[serde(default)]
    pub name: String,
    /// Load, requests/s of one server.
    pub rate: f64,
    /// The share within this many seconds was compared.
    pub within_s: f64,
    /// Prediction minus measurement, in points.
    pub error_points: f64,
    /// Half the width of the measurement's own 95 % interval, in points; absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half_width_points: Option<f64>,
}

impl HeldOut {
    pub(crate) fn check(&self) -> Result<(), Error> {
        not_negative("the rate of a held-out load", self.rate)?;
        not_negative("the time of a held-out load", self.within_s)?;
        let (error, half) = (self.error_points, self.half_width_points);
        check("the error of a held-out load in points", error, -100.0..=100.0, "-100 to 100")?;
        not_negative("the half width of a held-out load", half.unwrap_or(0.0)).map(|_| ())
    }
}

/// The reason why loads past [`Trust::limit`] are not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustEnd {
    /// No larger load was fitted or held out: predictions there are extrapolated.
    Unmeasured,
    /// The model misses the next larger held-out load by [`POINTS_MAX`] or more.
    Error,
    /// The model misses the next larger load that it was fitted to by [`POINTS_MAX`] or more.
    Misfit,
}

/// A load that the model misses by [`POINTS_MAX`] or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Miss {
    /// The load, requests/s of one server.
    pub rate: f64,
    /// By how many points, without its sign.
    pub points: f64,
}

/// What was checked of a model, and the load up to which it held ([`crate::Model::trust`]): the one notion of
/// trust of all outputs.
///
/// The model is compared with what was measured at each load that was fitted or held out of the fit. In the order of
/// the loads, the first one that the model misses by [`POINTS_MAX`] or more ends the checked range; else the largest
/// load does. A load past the range is *extrapolated*, and every output marks it.
///
/// - The error on held-out loads ([`HeldOut`]) is that of predictions. The uncertainty of the measurement is not
///   subtracted from it.
/// - The misfit of fitted loads ([`crate::FittedStep::misfit_points`]) proves little where it is small, because a fit
///   minimises its own errors. A large one shows that the form of the model is wrong, however narrow its interval.
/// - A held-out load that was measured to no better than [`POINTS_MAX`] does not extend the range: a measurement too
///   short to show an error does not prove that there is none.
/// - Numbers that were stated are checked up to the largest load that was compared with them, once there is one.
/// - A server that is busier at the fitted loads than the measured one (slower devices, less memory) is checked up to
///   the load at which it is as busy.
///
/// The width of the interval is not part of it: the interval is printed with each prediction, and a wide one is a
/// statement that holds. (A rule that added half the width to the errors left a model that was at most 0.33 points off
/// on held-out loads trusted at no load.) The published confidence limit ([`crate::Limits::mg1`]) is not part of it
/// either: that limit is about the length of queues, and a model that was right past it is right there.
///
/// Limitation: if the predicted system differs from the measured one (another memory, more devices), the errors of the
/// measured system are used for it.
///
/// ```
/// # fn of(model: &model::Model) -> Result<(), model::Error> {
/// let trust = model.trust()?;
/// assert!(model.predict(trust.limit * 1.1, &[0.05])?.beyond_trust);
/// if trust.bias_points.is_none() {
///     println!("no loads were held out: only the fitted ones were compared");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trust {
    /// The largest checked load, requests/s of one server; 0 if no load is.
    pub limit: f64,
    /// The reason why larger loads are not covered.
    pub end: TrustEnd,
    /// Number of held-out loads up to the limit.
    pub held_out: usize,
    /// The largest of them, requests/s of one server; `None` without any.
    pub held_out_high: Option<f64>,
    /// The largest error on them, points; `None` without any.
    pub bias_points: Option<f64>,
    /// The largest miss of the fitted loads up to the limit, points; `None` if the model names none.
    pub misfit_points: Option<f64>,
    /// The first load that the model misses; `None` if it misses none.
    pub missed: Option<Miss>,
}

impl Trust {
    /// Whether a load in requests/s of one server lies within the checked ones.
    pub fn covers(&self, rate: f64) -> bool {
        covers(self.limit, rate)
    }

    /// Whether any measured load was compared with the model; false of numbers that were stated.
    pub fn is_compared(&self) -> bool {
        self.bias_points.is_some() || self.misfit_points.is_some() || self.missed.is_some()
    }
}

/// Whether a load lies within those up to `limit`, but for the chance in measured rates.
pub(crate) fn covers(limit: f64, rate: f64) -> bool {
    rate <= limit * SLACK
}

/// A fitted load, and what the model says there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FittedLoad {
    /// The load, requests/s.
    pub rate: f64,
    /// By how many points the model misses it.
    pub misfit_points: f64,
    /// The devices' mean utilisation under the fitted model.
    pub utilisation: f64,
}

/// What is known of a server beside its parameters: the loads that it was compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Checked {
    /// The largest fitted load, requests/s.
    pub rate_high: f64,
    /// The fitted loads.
    pub fitted: Vec<FittedLoad>,
    /// The loads that were held out.
    pub held_out: Vec<HeldOut>,
}

/// One comparison of a model with a measurement.
struct Look {
    rate: f64,
    points: f64,
    held_out: bool,
    /// Whether the measurement was exact enough to extend the range.
    extends: bool,
}

impl Checked {
    /// All comparisons in the order of the loads, those of one load together.
    fn looks(&self) -> Vec<Look> {
        let mut looks: Vec<Look> = self.held_out.iter().map(Look::held_out).collect();
        looks.extend(self.fitted.iter().map(|step| Look {
            rate: step.rate,
            points: step.misfit_points.abs(),
            held_out: false,
            extends: true,
        }));
        looks.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        looks
    }

    /// How many times as busy as the fitted server `node` is at the largest fitted load; 1 at least.
    pub(crate) fn busier(&self, node: &Node) -> f64 {
        let known = self.fitted.iter().filter(|step| step.utilisation > 0.0);
        let Some(step) = known.max_by(|a, b| a.rate.total_cmp(&b.rate)) else { return 1.0 };
        let utilisation = match node.operating(step.rate) {
            Ok(operating) => operating.utilisation_mean,
            // Past saturation: the utilisation is 1 at the saturation.
            Err(_) => step.rate / node.saturation(),
        };
        let busier = utilisation / step.utilisation;
        if busier > BUSIER { busier } else { 1.0 }
    }
}

impl Look {
    fn held_out(held: &HeldOut) -> Look {
        Look {
            rate: held.rate,
            points: held.error_points.abs(),
            held_out: true,
            extends: held.half_width_points.is_some_and(|half| half < POINTS_MAX),
        }
    }
}

/// The first load of comparisons in order that is missed.
fn first_miss(looks: &[Look]) -> Option<&Look> {
    looks.iter().find(|look| look.points >= POINTS_MAX)
}

/// The trust in a node.
pub(crate) fn trust(node: &Node, checked: &Checked) -> Trust {
    let looks = checked.looks();
    let miss = first_miss(&looks);
    // All times of the missed load are lost with it.
    let below = |rate: f64| miss.is_none_or(|miss| rate < miss.rate);
    let extended = looks.iter().filter(|look| look.extends && below(look.rate));
    // Numbers that are stated for some loads are checked at those that were measured alone.
    let stated = checked.fitted.is_empty() && looks.iter().any(|look| look.extends);
    let fitted = if miss.is_none() && !stated { checked.rate_high } else { 0.0 };
    let limit = extended.map(|look| look.rate).fold(fitted, f64::max);
    let largest = |held_out: bool| {
        let of =
            looks.iter().filter(|l| l.held_out == held_out && below(l.rate) && l.rate <= limit);
        of.map(|look| look.points).reduce(f64::max)
    };
    let mut rates: Vec<f64> = looks
        .iter()
        .filter(|look| look.held_out && below(look.rate) && look.rate <= limit)
        .map(|look| look.rate)
        .collect();
    rates.dedup();
    let busier = checked.busier(node);
    Trust {
        limit: limit / busier,
        end: match miss {
            None => TrustEnd::Unmeasured,
            Some(miss) if miss.held_out => TrustEnd::Error,
            Some(_) => TrustEnd::Misfit,
        },
        held_out: rates.len(),
        held_out_high: rates.last().map(|rate| rate / busier),
        bias_points: largest(true),
        misfit_points: largest(false),
        missed: miss.map(|miss| Miss { rate: miss.rate / busier, points: miss.points }),
    }
}

/// The load in requests/s of a cluster up to which the errors that clients saw on held-out loads leave it checked:
/// infinite if they are all small.
pub(crate) fn limit_of_clients(held_out: &[HeldOut]) -> f64 {
    let mut looks: Vec<Look> = held_out.iter().map(Look::held_out).collect();
    looks.sort_by(|a, b| a.rate.total_cmp(&b.rate));
    let Some(miss) = first_miss(&looks) else { return f64::INFINITY };
    looks.iter().map(|look| look.rate).filter(|rate| *rate < miss.rate).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed_by(rate: f64, error_points: f64) -> HeldOut {
        HeldOut { name: String::new(), rate, within_s: 0.05, error_points, half_width_points: None }
    }

    #[test]
    fn the_first_load_that_clients_saw_missed_ends_a_clusters_range() {
        assert_eq!(limit_of_clients(&[]), f64::INFINITY);
        assert_eq!(limit_of_clients(&[missed_by(200.0, -4.9)]), f64::INFINITY);
        assert_eq!(limit_of_clients(&[missed_by(200.0, -5.0)]), 0.0);
        // Two times of one load: the worse one counts.
        let rows = [
            missed_by(300.0, 9.0),
            missed_by(200.0, 6.0),
            missed_by(200.0, 1.0),
            missed_by(100.0, 1.0),
        ];
        assert_eq!(limit_of_clients(&rows), 100.0);
    }

    #[test]
    fn hostile_rows_are_refused() {
        assert!(missed_by(100.0, 3.0).check().is_ok());
        for bad in [
            missed_by(f64::NAN, 0.0),
            missed_by(-1.0, 0.0),
            missed_by(1.0, f64::NAN),
            missed_by(1.0, 200.0),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let half = HeldOut { half_width_points: Some(f64::INFINITY), ..missed_by(1.0, 0.0) };
        assert!(half.check().is_err());
    }
}
