//! Trust: the largest load up to which a model's predictions are useful, given their interval and
//! known bias.
//!
//! [`Trust`] has the formula, assumptions and cost.

use serde::{Deserialize, Serialize};

use crate::distribution::ServiceTime;
use crate::error::{Error, check, not_negative};
use crate::model_file::Parameter;
use crate::storage::{Node, NodeAt, Within};

/// Points (hundredths of all requests) of error at which a prediction is not trusted any more.
pub const POINTS_MAX: f64 = 5.0;

/// Loads at which the band is looked at first; the crossing is then found between two of them.
const SCAN: u32 = 16;
/// Halvings of the stretch with the crossing: a load is known to a millionth of the range.
const HALVINGS: u32 = 16;

/// How far past the largest fitted or held-out load is still the same load, as for `beyond_fitted`.
const SLACK: f64 = 1.01;

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

/// The reason why a model is not trusted past a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrustEnd {
    /// Band and bias reach [`POINTS_MAX`] there.
    Error,
    /// The band and the model's errors on fitted loads reach [`POINTS_MAX`] there.
    Misfit,
    /// No larger load was fitted or held out.
    Unmeasured,
    /// The model has no replicates, so its band is not known.
    NoReplicates,
}

/// The load up to which a model is trusted, and the reason why not further
/// ([`crate::Model::trust`]).
///
/// The paper's confidence limit considers only the length of queues. This limit considers the
/// possible error of a prediction, in points (hundredths of all requests):
///
/// half(λ) + max(bias(λ), misfit(λ)) < [`POINTS_MAX`]
///
/// - half(λ) is half the width of the 95 % band of the predicted CDF at the load λ, at the time
///   where it is widest, out of eight times from half to 64 times the mean service time. The band
///   is the spread of the predictions of the model's replicates: the uncertainty of the parameters.
/// - bias(λ) is the largest error on loads that were held out of the fit ([`HeldOut`]), up to λ:
///   linear between held-out loads, never falling. The uncertainty of the measurement is not
///   subtracted from an error.
/// - misfit(λ) is the same for the fitted loads ([`crate::FittedStep::misfit_points`]). A fit
///   minimises its own errors, so a small misfit proves nothing and does not reduce the bias. A
///   large misfit shows that the form of the model is wrong, however narrow its interval.
///
/// No load is trusted past the largest one that was fitted, or held out and measured within
/// [`POINTS_MAX`], however narrow the band: the band does not cover effects that appear only at
/// larger loads, and a measurement too short to show an error does not prove that there is none.
/// Without held-out loads the bias is unknown and reported as such. Without replicates the band is
/// unknown and no load is trusted.
///
/// Limitation: if the predicted system differs from the measured one (another memory, more
/// devices), the bias of the measured system is used for it.
///
/// Cost: for each replicate and class of devices eight transforms (some 0.5 ms), then some 40
/// loads; 25 times that with a link or workers.
///
/// ```
/// # fn of(model: &model::Model) -> Result<(), model::Error> {
/// let trust = model.trust()?;
/// assert!(model.predict(trust.limit * 1.1, &[0.05])?.beyond_trust);
/// if trust.bias_points.is_none() {
///     println!("no loads were held out: the bias is not known");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trust {
    /// The largest trusted load, requests/s of one server; 0 if no load is trusted.
    pub limit: f64,
    /// The reason why larger loads are not trusted.
    pub end: TrustEnd,
    /// Half the width of the band at that load where it is widest, points; 0 without replicates.
    pub half_width_points: f64,
    /// The bias at that load, points; `None` if no loads were held out: it is not known then.
    pub bias_points: Option<f64>,
    /// The largest miss of the fitted loads up to that one, points; `None` if the model names none.
    pub misfit_points: Option<f64>,
}

/// What is known of a server beside its parameters: the loads that were looked at.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Looked {
    /// The largest fitted load, requests/s.
    pub rate_high: f64,
    /// The fitted loads, and by how many points the model misses each.
    pub fitted: Vec<(f64, f64)>,
    /// The loads that were held out.
    pub held_out: Vec<HeldOut>,
}

impl Looked {
    /// Held-out loads with the largest error up to each, in the order of the loads.
    fn errors(&self) -> Vec<(f64, f64)> {
        largest_up_to(self.held_out.iter().map(|h| (h.rate, h.error_points)).collect())
    }

    /// The same of the fitted loads.
    fn misfits(&self) -> Vec<(f64, f64)> {
        largest_up_to(self.fitted.clone())
    }

    /// The largest load that was looked at.
    fn largest(&self) -> f64 {
        let seen = |h: &&HeldOut| h.half_width_points.is_some_and(|half| half < POINTS_MAX);
        self.held_out.iter().filter(seen).map(|h| h.rate).fold(self.rate_high, f64::max)
    }
}

/// Loads with the largest error up to each, without its sign, in the order of the loads.
fn largest_up_to(mut rows: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    rows.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut largest = 0.0f64;
    for row in &mut rows {
        largest = largest.max(row.1.abs());
        row.1 = largest;
    }
    rows.dedup_by(|later, kept| {
        let same = later.0 == kept.0;
        if same {
            kept.1 = later.1;
        }
        same
    });
    rows
}

/// The bias at a load: linear between the rows, constant outside of them. `None` without rows.
fn bias(rows: &[(f64, f64)], rate: f64) -> Option<f64> {
    let after = rows.iter().position(|row| row.0 >= rate);
    let (before, after) = match after {
        Some(0) => return rows.first().map(|r| r.1),
        Some(i) => (rows[i - 1], rows[i]),
        None => return rows.last().map(|r| r.1),
    };
    let part = (rate - before.0) / (after.0 - before.0).max(f64::MIN_POSITIVE);
    Some(before.1 + (after.1 - before.1) * part.clamp(0.0, 1.0))
}

/// A node and its replicates at the times at which the band is looked at.
struct Band<'a> {
    node: (&'a Node, Vec<NodeAt>),
    replicates: Vec<(&'a Node, Vec<NodeAt>)>,
}

/// The times at which a node's band is looked at, seconds.
pub(crate) fn times_of(node: &Node) -> Vec<f64> {
    let slowest = node.groups.iter().filter_map(|g| {
        let class = node.classes.get(g.class)?;
        Some(class.service.mean() * g.factor)
    });
    let service = slowest.fold(0.0, f64::max);
    (-1..7).map(|i| node.delay.mean() + service * 2f64.powi(i)).collect()
}

impl<'a> Band<'a> {
    fn new(node: &'a Node, replicates: &'a [Node]) -> Self {
        let times = times_of(node);
        let here: Vec<NodeAt> = times.iter().map(|&t| node.at(t)).collect();
        let beside = |other: &'a Node| (other, here.iter().map(|at| other.at_beside(at)).collect());
        let replicates = replicates.iter().map(beside).collect();
        Band { node: (node, here), replicates }
    }

    /// Half the width of the band where it is widest, in points. All of them past saturation.
    fn half_width_points(&self, rate: f64) -> f64 {
        let Ok(operating) = self.node.0.operating(rate) else { return 100.0 };
        let of_replicates: Vec<_> =
            self.replicates.iter().map(|(node, _)| node.operating_unchecked(rate)).collect();
        let width = |(i, at): (usize, &NodeAt)| {
            let others = self.replicates.iter().zip(&of_replicates).map(|(r, o)| r.1[i].cdf(o));
            let others: Vec<f64> = others.collect();
            let p = Parameter::from_replicates(at.cdf(&operating), &others, "1");
            50.0 * (p.high - p.low)
        };
        self.node.1.iter().enumerate().map(width).fold(0.0, f64::max)
    }
}

/// The trust in a node with its replicates.
pub(crate) fn trust(node: &Node, replicates: &[Node], looked: &Looked) -> Trust {
    let (errors, misfits) = (looked.errors(), looked.misfits());
    let known = |limit: f64, end: TrustEnd, half_width_points: f64| {
        let (bias_points, misfit_points) = (bias(&errors, limit), bias(&misfits, limit));
        // What of the three it was that was too large.
        let others = half_width_points.max(bias_points.unwrap_or(0.0));
        let misfit = end == TrustEnd::Error && misfit_points > Some(others);
        let end = if misfit { TrustEnd::Misfit } else { end };
        Trust { limit, end, half_width_points, bias_points, misfit_points }
    };
    if replicates.is_empty() {
        return known(0.0, TrustEnd::NoReplicates, 0.0);
    }
    let band = Band::new(node, replicates);
    let of = |rate: f64| {
        let error = bias(&errors, rate).unwrap_or(0.0).max(bias(&misfits, rate).unwrap_or(0.0));
        band.half_width_points(rate) + error
    };
    let (limit, whole) = largest_within(looked.largest() * SLACK, of);
    let end = if whole { TrustEnd::Unmeasured } else { TrustEnd::Error };
    known(limit, end, band.half_width_points(limit))
}

/// The largest load up to `end` at which an error in points stays under [`POINTS_MAX`], and whether
/// it is `end`.
fn largest_within(end: f64, points: impl Fn(f64) -> f64) -> (f64, bool) {
    let at = |i: u32| end * f64::from(i) / f64::from(SCAN);
    match (0..=SCAN).find(|&i| points(at(i)) >= POINTS_MAX) {
        None => (end, true),
        Some(0) => (0.0, false),
        Some(i) => {
            let (mut low, mut high) = (at(i - 1), at(i));
            for _ in 0..HALVINGS {
                let middle = 0.5 * (low + high);
                *if points(middle) < POINTS_MAX { &mut low } else { &mut high } = middle;
            }
            (low, false)
        }
    }
}

/// The largest load in requests/s of a cluster, `end` at most, at which the half-width of its band
/// and the error that clients saw on held-out loads stay under [`POINTS_MAX`]. `times`: P(T ≤ t) of
/// the cluster and of its replicates, at several times.
pub(crate) fn trust_of_clients(
    end: f64,
    times: &[(Within, Vec<Within>)],
    held_out: &[HeldOut],
) -> f64 {
    let errors = largest_up_to(held_out.iter().map(|h| (h.rate, h.error_points)).collect());
    let half = |rate: f64| {
        let width = |(value, others): &(Within, Vec<Within>)| {
            let others: Vec<f64> = others.iter().map(|within| within(rate)).collect();
            let p = Parameter::from_replicates(value(rate), &others, "1");
            50.0 * (p.high - p.low)
        };
        times.iter().map(width).fold(0.0, f64::max)
    };
    largest_within(end, |rate| half(rate) + bias(&errors, rate).unwrap_or(0.0)).0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(rate: f64, error_points: f64) -> HeldOut {
        HeldOut { name: String::new(), rate, within_s: 0.05, error_points, half_width_points: None }
    }

    #[test]
    fn bias_never_falls_and_is_linear_between_loads() {
        let held_out = vec![held(300.0, -3.0), held(100.0, 1.0), held(200.0, 0.5)];
        let rows = Looked { rate_high: 50.0, fitted: Vec::new(), held_out }.errors();
        assert_eq!(rows, [(100.0, 1.0), (200.0, 1.0), (300.0, 3.0)]);
        for (rate, expected) in
            [(0.0, 1.0), (100.0, 1.0), (150.0, 1.0), (250.0, 2.0), (300.0, 3.0), (900.0, 3.0)]
        {
            assert_eq!(bias(&rows, rate), Some(expected), "{rate}");
        }
        assert_eq!(bias(&[], 1.0), None);
        // Two times of one load: the larger error counts from the start.
        let held_out = vec![held(100.0, 1.0), held(100.0, 4.0)];
        let rows = Looked { rate_high: 50.0, fitted: Vec::new(), held_out }.errors();
        assert_eq!((bias(&rows, 10.0), bias(&rows, 100.0)), (Some(4.0), Some(4.0)));
        assert_eq!(bias(&rows, 101.0), Some(4.0));
    }

    #[test]
    fn hostile_rows_are_refused() {
        assert!(held(100.0, 3.0).check().is_ok());
        for bad in [held(f64::NAN, 0.0), held(-1.0, 0.0), held(1.0, f64::NAN), held(1.0, 200.0)] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
        let half = HeldOut { half_width_points: Some(f64::INFINITY), ..held(1.0, 0.0) };
        assert!(half.check().is_err());
    }
}
