//! [`Model`]: what a fit found, as a TOML file that a person can read and change.
//!
//! Every fitted number is a [`Parameter`]: value, 95 % interval, unit. The laws of service times are
//! kept as a shape (mean 1) beside mean and squared coefficient of variation, so that these can be edited.
//! `replicates` are the fits of resampled windows: a prediction's interval is the spread of the
//! predictions that they make.

mod predict;
mod text;

pub use predict::{Limits, Point, Prediction};

use serde::{Deserialize, Serialize};

use crate::distribution::{Empirical, Piece, ServiceTime};
use crate::error::{Error, check, not_negative, positive};
use crate::storage::{Class, DeviceGroup, HitRatio, Node, Spotify};

/// The version of the file's form that is written, and the only one that is read.
pub const FORMAT: u32 = 1;

/// A number with its 95 % interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Parameter {
    /// The estimate.
    pub value: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Unit of all three: `s`, `1/s`, or `1` for a pure number.
    pub unit: String,
}

impl Parameter {
    /// A value with the 2.5 % and 97.5 % quantiles of its replicates; the interval always holds the
    /// value, and is the value alone if there are no replicates.
    pub fn from_replicates(value: f64, replicates: &[f64], unit: &str) -> Self {
        let at = |p| crate::statistics::quantile(replicates, p).unwrap_or(value);
        let (low, high) = (at(0.025).min(value), at(0.975).max(value));
        Parameter { value, low, high, unit: unit.to_owned() }
    }

    /// A number that is known, not estimated.
    pub fn exact(value: f64, unit: &str) -> Self {
        Parameter { value, low: value, high: value, unit: unit.to_owned() }
    }

    fn check(&self, what: &'static str) -> Result<(), Error> {
        check(what, self.value, self.low..=self.high, "a finite number within its low and high")?;
        check(what, self.low, f64::MIN..=f64::MAX, "a finite number")?;
        check(what, self.high, f64::MIN..=f64::MAX, "a finite number").map(|_| ())
    }
}

/// Where a model comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct About {
    /// What was fitted, in a line.
    pub title: String,
    /// Names of the runs whose windows were read.
    pub runs: Vec<String>,
    /// Says that figures come from a laboratory (simulated devices, one machine), and how; shown with
    /// every prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laboratory: Option<String>,
}

/// What becomes of a request before a device sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// q₀ of q(λ) = q₀ − αλ, the share that memory answers.
    pub q0: Parameter,
    /// α, seconds.
    pub alpha: Parameter,
    /// Share that neither memory nor a device answers.
    pub other_share: Parameter,
    /// What gateway and network add to a device's response, seconds.
    pub front_delay: Parameter,
    /// Device reads for a request that needs one, joined ones included.
    pub reads_per_miss: Parameter,
    /// Share of reads joined to one on its way, for each read in the device queues.
    pub joining: Parameter,
    /// Smallest load that was fitted, requests/s of one node.
    pub rate_low: f64,
    /// Largest load that was fitted, requests/s of one node.
    pub rate_high: f64,
}

/// A measured law.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Law {
    /// Mean, seconds.
    pub mean: Parameter,
    /// Squared coefficient of variation.
    pub scv: Parameter,
    /// Uniform pieces: centre and half width over the mean, share.
    pub shape: Vec<[f64; 3]>,
}

impl Law {
    /// The shape of a law, with the given parameters.
    pub(crate) fn new(law: &Empirical, mean: Parameter, scv: Parameter) -> Self {
        // Seven digits: the moments are kept exactly beside the shape, and restored on reading.
        let short = |x: f64| format!("{x:.6e}").parse().unwrap_or(x);
        let unit = law.mean();
        let piece =
            |p: &Piece| [short(p.centre / unit), short(p.half_width / unit), short(p.share)];
        Law { mean, scv, shape: law.pieces().iter().map(piece).collect() }
    }

    /// The law, with its mean and SCV as parameters say, or as a replicate does.
    pub fn distribution(&self, moments: Option<(f64, f64)>) -> Result<Empirical, Error> {
        let piece = |p: &[f64; 3]| Piece { centre: p[0], half_width: p[1], share: p[2] };
        let (mean, scv) = moments.unwrap_or((self.mean.value, self.scv.value));
        Empirical::from_pieces(self.shape.iter().map(piece).collect())?.with_moments(mean, scv)
    }

    fn check(&self) -> Result<(), Error> {
        self.mean.check("the mean of a law")?;
        self.scv.check("the SCV of a law")?;
        self.distribution(None).map(|_| ())
    }
}

/// Devices of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassParameters {
    /// `bulk_device`, `hot_device` …
    pub name: String,
    /// Reads that a device serves at once.
    pub servers: u32,
    /// Its service time.
    pub service: Law,
}

/// Devices of one class with nearly equal load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Devices {
    /// Name of the class.
    pub class: String,
    /// How many.
    pub count: u32,
    /// Share of all reads that goes to each.
    pub share: f64,
    /// Their mean service time over that of the class.
    pub factor: f64,
}

/// The published model's parameters, by the paper's own estimators.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpotifyParameters {
    /// q₀: from the share of responses under 1 ms.
    pub q0: Parameter,
    /// α, seconds.
    pub alpha: Parameter,
    /// Service rate of a disk: reads over busy time.
    pub mu_d: Parameter,
    /// Disks.
    pub n_d: u32,
}

/// A step that was fitted: what was measured and what the model says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedStep {
    /// Its name.
    pub name: String,
    /// Load, requests/s.
    pub rate: f64,
    /// Length, seconds.
    pub seconds: f64,
    /// Reads that clients had answered.
    pub requests: u64,
    /// Share of them that memory answered.
    pub hit_ratio: f64,
    /// Index of dispersion of arrivals: 1 for Poisson.
    pub dispersion: f64,
    /// Mean utilisation of the devices, measured.
    pub utilisation: f64,
    /// Mean utilisation of the devices, by the model.
    pub utilisation_predicted: f64,
    /// Mean number at a device, measured.
    pub queue_length: f64,
    /// Mean number at a device, by the model.
    pub queue_length_predicted: f64,
    /// Mean response, seconds, measured.
    pub response_mean: f64,
    /// Mean response, seconds, by the model.
    pub response_mean_predicted: f64,
    /// Largest difference between the measured and the model's CDF (Kolmogorov and Smirnov).
    pub ks_distance: f64,
    /// Shares within each objective.
    pub points: Vec<FittedPoint>,
}

/// A share within an objective, at a fitted step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FittedPoint {
    /// The objective, seconds.
    pub t_s: f64,
    /// Share measured.
    pub measured: f64,
    /// Share by the model.
    pub predicted: f64,
    /// Share by the published model; absent where that is not stable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spotify: Option<f64>,
}

/// Parameters of the fits of resampled windows, a row each.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Replicates {
    /// Names of the columns, [`Replicates::COLUMNS`] and then mean and SCV of each class.
    pub columns: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<f64>>,
}

impl Replicates {
    /// The columns that do not depend on the classes.
    pub const COLUMNS: [&'static str; 9] = [
        "q0",
        "alpha",
        "other_share",
        "front_delay",
        "reads_per_miss",
        "joining",
        "spotify_q0",
        "spotify_alpha",
        "spotify_mu_d",
    ];
}

/// A fitted storage node. See [`crate::fit::fit`]; [`Model::predict`] uses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// [`FORMAT`].
    pub format: u32,
    /// What a user of the model should know, in sentences.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// Where it comes from.
    #[serde(default)]
    pub about: About,
    /// What becomes of a request before a device sees it.
    pub requests: Requests,
    /// The published model of the same node.
    pub spotify: SpotifyParameters,
    /// Response of what memory answers, as clients see it; absent if it answered nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Law>,
    /// Response of what neither memory nor a device answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub other: Option<Law>,
    /// Kinds of devices.
    pub classes: Vec<ClassParameters>,
    /// The devices.
    pub devices: Vec<Devices>,
    /// The steps that were fitted, and how well.
    #[serde(default)]
    pub fitted: Vec<FittedStep>,
    /// For the intervals of predictions.
    #[serde(default)]
    pub replicates: Replicates,
}

impl Model {
    /// Checks every number, as [`Model::from_toml`] does; for models that were edited in memory.
    pub fn check(&self) -> Result<(), Error> {
        if self.format != FORMAT {
            return Err(Error::File(format!(
                "format {} is not known (this version reads {FORMAT}); fit the run again",
                self.format
            )));
        }
        let r = &self.requests;
        for (what, parameter) in [
            ("q0", &r.q0),
            ("alpha", &r.alpha),
            ("other_share", &r.other_share),
            ("front_delay", &r.front_delay),
            ("reads_per_miss", &r.reads_per_miss),
            ("joining", &r.joining),
            ("spotify.q0", &self.spotify.q0),
            ("spotify.alpha", &self.spotify.alpha),
            ("spotify.mu_d", &self.spotify.mu_d),
        ] {
            parameter.check(what)?;
        }
        positive("rate_high", r.rate_high)?;
        check("rate_low", r.rate_low, 0.0..=r.rate_high, "0 to rate_high")?;
        for law in
            self.memory.iter().chain(&self.other).chain(self.classes.iter().map(|c| &c.service))
        {
            law.check()?;
        }
        for step in &self.fitted {
            not_negative("the rate of a fitted step", step.rate)?;
        }
        let width = Replicates::COLUMNS.len() + 2 * self.classes.len();
        check(
            "the number of replicates",
            self.replicates.rows.len() as f64,
            0.0..=1e4,
            "at most 10,000",
        )?;
        for row in &self.replicates.rows {
            if row.len() != width {
                return Err(Error::File(format!(
                    "a replicate has {} numbers, not {width}; do not edit replicates, fit again",
                    row.len()
                )));
            }
        }
        self.spotify()?;
        let (node, replicates) = (self.node()?, self.replicates.rows.iter());
        for row in replicates {
            self.replicate(row)?;
        }
        if node.groups.is_empty() {
            return Err(Error::File("it has no devices; add [[devices]] or fit again".into()));
        }
        Ok(())
    }

    /// The node with the fitted values: change its fields and ask what if.
    pub fn node(&self) -> Result<Node, Error> {
        let r = &self.requests;
        let values =
            [&r.q0, &r.alpha, &r.other_share, &r.front_delay, &r.reads_per_miss, &r.joining]
                .map(|p| p.value);
        self.node_with(&values, &[])
    }

    /// The node with the values of a replicate.
    fn replicate(&self, row: &[f64]) -> Result<Node, Error> {
        let moments = row.get(Replicates::COLUMNS.len()..).unwrap_or_default();
        self.node_with(row, moments)
    }

    fn node_with(&self, values: &[f64], moments: &[f64]) -> Result<Node, Error> {
        let &[q0, alpha, other_share, delay, reads_per_miss, joining, ..] = values else {
            return Err(Error::File("a replicate is too short; fit again".into()));
        };
        let law = |law: &Option<Law>| law.as_ref().map(|l| l.distribution(None)).transpose();
        let mut classes = Vec::new();
        for (i, class) in self.classes.iter().enumerate() {
            let moments = moments.get(2 * i..2 * i + 2).map(|m| (m[0], m[1]));
            classes.push(Class {
                service: class.service.distribution(moments)?,
                servers: class.servers,
            });
        }
        let mut groups = Vec::new();
        for devices in &self.devices {
            let class = self.classes.iter().position(|c| c.name == devices.class);
            let class = class.ok_or_else(|| {
                Error::File(format!(
                    "devices of class {:?}, which it does not define",
                    devices.class
                ))
            })?;
            let (count, share, factor) = (devices.count, devices.share, devices.factor);
            groups.push(DeviceGroup { class, count, share, factor });
        }
        let node = Node {
            hit_ratio: HitRatio::new(q0, alpha)?.held_from(self.requests.rate_high),
            memory: law(&self.memory)?,
            other_share,
            other: law(&self.other)?,
            delay,
            reads_per_miss,
            joining,
            classes,
            groups,
        };
        node.check()?;
        Ok(node)
    }

    /// The published model of the same node, with the paper's estimators.
    pub fn spotify(&self) -> Result<Spotify, Error> {
        let s = &self.spotify;
        self.spotify_with(s.q0.value, s.alpha.value, s.mu_d.value)
    }

    fn spotify_with(&self, q0: f64, alpha: f64, mu_d: f64) -> Result<Spotify, Error> {
        let q = HitRatio::new(q0, alpha)?.held_from(self.requests.rate_high);
        Spotify::new(q, mu_d, f64::from(self.spotify.n_d))
    }
}

#[cfg(test)]
mod tests;
