//! The parts of a model file.

use serde::{Deserialize, Serialize};

use crate::distribution::{Empirical, Gamma, Piece, ServiceTime};
use crate::error::{Error, check, not_negative, positive};
use crate::queue::{ArrivalLaw, Bursts, Discipline, InOrder, Slowdown};
use crate::storage::{Background, ByLoad, Link, SolvedQueues};

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
    /// A value with the 2.5 % and 97.5 % quantiles of its replicates, between which one more replicate lies with a
    /// probability of 95 %; the interval always holds the value, and is the value alone if there are no replicates.
    pub(crate) fn from_replicates(value: f64, replicates: &[f64], unit: &str) -> Self {
        let at = |p| crate::statistics::quantile_beyond(replicates, p).unwrap_or(value);
        let (low, high) = (at(0.025).min(value), at(0.975).max(value));
        Parameter { value, low, high, unit: unit.to_owned() }
    }

    /// A number that is known, not estimated.
    pub fn exact(value: f64, unit: &str) -> Self {
        Parameter { value, low: value, high: value, unit: unit.to_owned() }
    }

    pub(super) fn check(&self, what: &'static str) -> Result<(), Error> {
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
    /// Says that figures come from a laboratory (simulated devices, one machine), and how; shown
    /// with every prediction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub laboratory: Option<String>,
}

/// Parameters of requests before the devices: hit ratio, delay, joining.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requests {
    /// q₀ of q₀ − αλ, the share that memory would answer if reads took no time.
    pub q0: Parameter,
    /// α, seconds.
    pub alpha: Parameter,
    /// Share that neither memory nor a device answers.
    pub other_share: Parameter,
    /// Time that gateway and network add to a device's response, seconds.
    pub front_delay: Parameter,
    /// SCV of that ([`crate::storage::Delay::beside`]); absent where it is taken for constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub front_delay_scv: Option<Parameter>,
    /// Share of requests joined to a read in progress, for each read in short device queues.
    pub joining: Parameter,
    /// Reads in the device queues beyond which fewer are joined; 1e9 for none.
    pub joining_knee: Parameter,
    /// Smallest load that was fitted, requests/s of one node.
    pub rate_low: f64,
    /// Largest load that was fitted, requests/s of one node.
    pub rate_high: f64,
}

/// Work of devices that completes no request: writes, fills, scrubs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackgroundWork {
    /// Operations per second at each device.
    pub rate: Parameter,
    /// Mean time of an operation, seconds. Its law is assumed exponential, because counters give
    /// only the mean.
    pub mean: Parameter,
}

impl BackgroundWork {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.rate.check("the rate of other work")?;
        self.mean.check("the time of other work")?;
        self.background().map(|_| ())
    }

    pub(super) fn background(&self) -> Result<Background, Error> {
        Self::exponential(self.rate.value, self.mean.value)
    }

    /// Work of `rate` operations per second with exponential times of mean `mean` seconds.
    pub(super) fn exponential(rate: f64, mean_s: f64) -> Result<Background, Error> {
        let rate = not_negative("the rate of other work", rate)?;
        Ok(Background { rate, law: Gamma::new(mean_s, 1.0)? })
    }
}

/// The variability of arrivals at one time scale.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DispersionAt {
    /// Length of the intervals in which arrivals were counted, seconds.
    pub scale_s: f64,
    /// Variance over mean of the counts: 1 for Poisson arrivals.
    pub index: Parameter,
}

/// The variability of the clients' arrivals in the fitted steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrivals {
    /// At several time scales, ascending.
    pub dispersion: Vec<DispersionAt>,
    /// SCV of the times between arrivals, if these are independent: the dispersion at the longest
    /// scale.
    pub scv: Parameter,
    /// c² of the arrival rate ([`crate::queue::Bursts`]); absent if arrivals do not differ from
    /// Poisson.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variation: Option<Parameter>,
    /// ω, 1/s: deviations of the rate decay within 1/ω. Present with `variation` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_rate: Option<Parameter>,
}

/// An index of dispersion this much above 1 is not a Poisson stream's, however many intervals there are.
const DISPERSION_EXCESS: f64 = 0.1;

impl Arrivals {
    /// The fitted law: bursts, or a Poisson stream where arrivals do not differ from one. `drawn` has the values of a
    /// replicate.
    pub fn law(&self, drawn: &dyn Fn(&str) -> Option<f64>) -> Result<ArrivalLaw, Error> {
        let (Some(variation), Some(rate)) = (&self.variation, &self.change_rate) else {
            return Ok(ArrivalLaw::Poisson);
        };
        let variation = drawn("variation").unwrap_or(variation.value);
        let change_rate = drawn("change_rate").unwrap_or(rate.value);
        Bursts::new(variation, change_rate).map(ArrivalLaw::Bursts)
    }

    /// The shortest and the longest scale, if arrivals come in bursts that even out: counts vary more than a Poisson stream's in
    /// short intervals and less than that in long ones, as where a sender stands still and then catches up. No bursts are fitted then.
    pub fn evens_out(&self) -> Option<[&DispersionAt; 2]> {
        let [first, .., last] = self.dispersion.as_slice() else { return None };
        let evens_out = self.variation.is_none()
            && first.index.low > 1.0 + DISPERSION_EXCESS
            && last.index.high < first.index.low;
        evens_out.then_some([first, last])
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for at in &self.dispersion {
            positive("the scale of a dispersion", at.scale_s)?;
            at.index.check("an index of dispersion")?;
        }
        self.scv.check("the SCV of arrivals")?;
        for parameter in self.variation.iter().chain(&self.change_rate) {
            parameter.check("a parameter of the arrivals' bursts")?;
        }
        self.law(&|_| None).map(|_| ())
    }
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

    pub(super) fn check(&self) -> Result<(), Error> {
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
    /// How its servers are given to requests.
    #[serde(default, skip_serializing_if = "is_fifo")]
    pub discipline: Discipline,
    /// Its service time.
    pub service: Law,
    /// Its other work, if the kernel's counters show any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub background: Option<BackgroundWork>,
    /// Works over their mean in the order in which they came, where they come in spells: of one server,
    /// first come, first served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_order: Option<InOrder>,
    /// How its mean service time changes with its load, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_load: Option<WorkByLoad>,
    /// How fast its servers work by the number of requests present, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_number: Option<SpeedByNumber>,
    /// The queues of such a device, as far as they were solved; [`Default`] for a new class.
    #[serde(skip)]
    pub solved: SolvedQueues,
}

/// A mean service time that changes with the load, from that of the fitted loads to that of a closed loop, which keeps
/// the servers always busy ([`crate::storage::ByLoad`] has the form).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkByLoad {
    /// Reads/s of a device up to which the mean is that of the class.
    pub from: f64,
    /// Reads/s at full load.
    pub to: f64,
    /// The mean at full load over that of the class.
    pub factor: Parameter,
}

impl WorkByLoad {
    /// With the factor of a replicate, or its own.
    pub(super) fn by_load(&self, drawn: Option<f64>) -> ByLoad {
        let least = self.from / self.to;
        let factor = drawn.map_or(self.factor.value, |drawn| drawn.max(1.001 * least));
        ByLoad { from: self.from, to: self.to, factor }
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        self.factor.check("the factor of works at full load")?;
        self.by_load(None).check()
    }
}

/// How fast servers work with some numbers of requests present ([`Slowdown`]): where works depend on congestion. The service time of the
/// class is that at the first number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpeedByNumber {
    /// Requests present, ascending from 1.
    pub numbers: Vec<f64>,
    /// The speed with each over that with the first.
    pub speeds: Vec<Parameter>,
    /// Beyond the last number n the speed is that at it times (n/last)^(−tail). The data say nothing of it: the interval reaches
    /// from 0 (the speed stays) to the power by which it falls over the last numbers.
    pub tail: Parameter,
}

impl SpeedByNumber {
    /// The columns of the replicates: the speed at the k-th number, from 1, and the tail.
    pub(crate) fn column(k: usize) -> String {
        format!("speed_{k}")
    }

    /// Whether a column of the replicates is one of a class's speeds.
    pub(super) fn is_column(name: &str, classes: &[&str]) -> bool {
        let Some((what, class)) = name.split_once('.') else { return false };
        let number = what.strip_prefix("speed_").is_some_and(|k| k.parse::<u8>().is_ok());
        classes.contains(&class) && (number || what == "tail")
    }

    /// With the values of a replicate, or its own.
    pub(super) fn slowdown(&self, drawn: &dyn Fn(&str) -> Option<f64>) -> Result<Slowdown, Error> {
        let speed = |(k, own): (usize, &Parameter)| drawn(&Self::column(k)).unwrap_or(own.value);
        let speeds = self.speeds.iter().enumerate().map(speed).collect();
        Slowdown::new(self.numbers.clone(), speeds, drawn("tail").unwrap_or(self.tail.value))
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for speed in &self.speeds {
            speed.check("a speed by the number inside")?;
        }
        self.tail.check("the tail of the speeds by the number inside")?;
        self.slowdown(&|_| None).map(|_| ())
    }
}

fn is_fifo(discipline: &Discipline) -> bool {
    *discipline == Discipline::Fifo
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

/// The source of an estimate of a mean service time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvidenceSource {
    /// Recorded service times of steady steps.
    Services,
    /// Completions of devices that were never idle: seconds × servers for each completion.
    Saturation,
    /// The mean that maximises the likelihood of the clients' responses.
    Responses,
}

impl EvidenceSource {
    /// Its description in tables.
    pub fn title(self) -> &'static str {
        match self {
            EvidenceSource::Services => "recorded service times",
            EvidenceSource::Saturation => "throughput at saturation",
            EvidenceSource::Responses => "response-time distribution",
        }
    }
}

/// An estimate of the mean service time of a class from one kind of evidence, with its weight.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Name of the class of devices.
    pub class: String,
    /// The kind of evidence.
    pub source: EvidenceSource,
    /// The estimated mean service time, seconds.
    pub mean: Parameter,
    /// Its weight in the logarithm of the fitted mean, 0 to 1; the weights of a class add to 1.
    pub weight: f64,
}

impl Evidence {
    pub(super) fn check(&self) -> Result<(), Error> {
        self.mean.check("the mean of an evidence")?;
        check("the weight of an evidence", self.weight, 0.0..=1.0, "0 to 1").map(|_| ())
    }
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

/// A fitted step: measured values beside those of the model.
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

impl FittedStep {
    /// The error of the model at this step in points (hundredths): the largest difference of a
    /// share within an objective, as for held-out loads. Without objectives it is the
    /// [`FittedStep::ks_distance`], which includes changes of memory's times between loads.
    pub fn misfit_points(&self) -> f64 {
        let off = self.points.iter().map(|p| (p.predicted - p.measured).abs()).reduce(f64::max);
        100.0 * off.unwrap_or(self.ks_distance)
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        not_negative("the rate of a fitted step", self.rate)?;
        let shares = self
            .points
            .iter()
            .flat_map(|p| [p.t_s, p.measured, p.predicted].into_iter().chain(p.spotify));
        let numbers = [
            self.seconds,
            self.hit_ratio,
            self.dispersion,
            self.utilisation,
            self.utilisation_predicted,
            self.queue_length,
            self.queue_length_predicted,
            self.response_mean,
            self.response_mean_predicted,
            self.ks_distance,
        ];
        for number in numbers.into_iter().chain(shares) {
            not_negative("a number of a fitted step", number)?;
        }
        Ok(())
    }
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
