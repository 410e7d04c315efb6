//! Predictions of a fitted model.

use serde::{Deserialize, Serialize};

use crate::error::{Error, not_negative, positive};
use crate::queue::{Bursts, bisect, quantile};
use crate::storage::{
    BETA, Limit, Node, NodeAt, Operating, Spotify, balls_into_bins_limit, servers_for,
};

use super::bursts::Stands;
use super::{Model, Parameter, Replicates};

/// The share of requests answered within a time, by both models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The time, seconds.
    pub t_s: f64,
    /// P(T ≤ t) by our model.
    pub concertina: Parameter,
    /// P(T ≤ t) by the published model; `None` where that is not stable.
    pub spotify: Option<Parameter>,
}

/// What is to be expected of a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Load on all servers, requests/s.
    pub rate: f64,
    /// Servers that share it equally.
    pub servers: u32,
    /// Share answered from memory.
    pub hit_ratio: Parameter,
    /// Utilisation of a device, on average.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest device.
    pub utilisation_max: f64,
    /// Mean number waiting and in service at a device, on average.
    pub device_queue_length_mean: f64,
    /// Mean response, seconds.
    pub response_mean: Parameter,
    /// The load up to which the model is trusted, requests/s: [`Limits::mg1`], or its balls-into-bins
    /// bound for several servers. Infinite if memory answers everything.
    pub confidence_limit: f64,
    /// Whether `rate` is past `confidence_limit`. Say so wherever the prediction is shown.
    pub beyond_limit: bool,
    /// Whether the load on a server is larger than any that was fitted.
    pub beyond_fitted: bool,
    /// The load up to which the model is trusted by its own interval and its errors on held-out loads,
    /// requests/s on all servers ([`crate::Trust`]).
    pub trust_limit: f64,
    /// Whether `rate` is past `trust_limit`. Say so wherever the prediction is shown.
    pub beyond_trust: bool,
    /// Shares within the asked times.
    pub points: Vec<Point>,
    /// [`super::About::laboratory`]: show it with the prediction.
    pub laboratory: Option<String>,
}

/// Loads in requests/s that bound what a model says of one server. Infinite if no load reaches them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The published confidence limit: mean number at a disk is 1 by M/M/1, paper's estimators.
    pub spotify_single: f64,
    /// Ours: mean number at a device is 1 by M/G/1 with the measured law.
    pub mg1: f64,
    /// The load at which the busiest device, the link or the workers are always busy.
    pub saturation: f64,
    /// Which of them; `None` if no load reaches them.
    pub breaks_first: Option<Limit>,
}

/// P(T ≤ t) of a node where it stands, and of replicates of it.
fn beside(
    node: &Node,
    stands: &Stands,
    replicates: &[(Node, Stands)],
    t_s: f64,
) -> (f64, Vec<f64>) {
    let at = node.at(t_s);
    let others = replicates.iter().map(|(other, stands)| stands.cdf(&other.at_beside(&at)));
    (stands.cdf(&at), others.collect())
}

impl Model {
    /// What one server does at `rate` requests/s, with the shares within each of `within_s` seconds.
    /// [`Error::Unstable`] past saturation. Cost: that of [`Model::trust`], and for each time some 0.1 ms a
    /// replicate and class.
    pub fn predict(&self, rate: f64, within_s: &[f64]) -> Result<Prediction, Error> {
        self.predict_cluster(rate, 1, within_s)
    }

    /// What `servers` such servers do that share `rate` requests/s equally.
    pub fn predict_cluster(
        &self,
        rate: f64,
        servers: u32,
        within_s: &[f64],
    ) -> Result<Prediction, Error> {
        positive("the number of servers", f64::from(servers))?;
        not_negative("the request rate", rate)?;
        for &t in within_s {
            not_negative("the time of an objective", t)?;
        }
        let n = f64::from(servers);
        let each = rate / n;
        let node = self.node()?;
        let stands = Stands::new(&node, each, self.bursts()?).map_err(|error| match error {
            Error::Unstable { saturation, .. } => {
                Error::Unstable { rate, saturation: saturation * n }
            }
            other => other,
        })?;
        let operating = node.operating(each)?;
        let replicates = self.nodes_of_replicates(each)?;
        let spotify = self.spotify()?;
        let spotify_replicates = self.spotify_of_replicates()?;
        let point = |&t_s: &f64| {
            let (value, others) = beside(&node, &stands, &replicates, t_s);
            let published = spotify.cdf(each, t_s).ok().map(|value| {
                let others = spotify_replicates.iter();
                // Past its saturation a replicate answers from memory only.
                let cdf = |s: &Spotify| s.cdf(each, t_s).unwrap_or(s.hit_ratio().at(each));
                Parameter::from_replicates(value, &others.map(cdf).collect::<Vec<_>>(), "1")
            });
            let concertina = Parameter::from_replicates(value, &others, "1");
            Point { t_s, concertina, spotify: published }
        };
        let of = |f: &dyn Fn(&Operating) -> f64, unit: &str| {
            let others = replicates.iter().map(|r| r.1.mean(f));
            let others: Vec<f64> = others.filter(|x| x.is_finite()).collect();
            Parameter::from_replicates(stands.mean(f), &others, unit)
        };
        let confidence_limit = balls_into_bins_limit(node.confidence_limit(), servers, BETA);
        let trust_limit = self.trust()?.limit * n;
        Ok(Prediction {
            rate,
            servers,
            hit_ratio: of(&|o| o.hit_ratio, "1"),
            utilisation_mean: operating.utilisation_mean,
            utilisation_max: operating.utilisation_max,
            device_queue_length_mean: stands.mean_over_time(each, |o| o.queue_length_mean),
            response_mean: of(&|o| o.response_mean, "s"),
            confidence_limit,
            beyond_limit: rate > confidence_limit,
            beyond_fitted: each > self.requests.rate_high * 1.01,
            trust_limit,
            beyond_trust: rate > trust_limit,
            points: within_s.iter().map(point).collect(),
            laboratory: self.about.laboratory.clone(),
        })
    }

    /// Share of one server's requests that memory answers at `rate` requests/s, with its 95 % interval.
    /// [`Error::Unstable`] past saturation. Cost: microseconds a replicate.
    pub fn hit_ratio(&self, rate: f64) -> Result<Parameter, Error> {
        let value = self.node()?.operating(rate)?.hit_ratio;
        let replicates = self.nodes_of_replicates(rate)?;
        let others: Vec<f64> = replicates.iter().map(|(_, s)| s.mean(|o| o.hit_ratio)).collect();
        Ok(Parameter::from_replicates(value, &others, "1"))
    }

    /// P(T ≤ t) of one server at `rate` requests/s with its 95 % interval, alone: for curves.
    /// [`Error::Unstable`] past saturation. Cost: some 0.1 ms a replicate and class.
    pub fn within(&self, rate: f64, t_s: f64) -> Result<Parameter, Error> {
        not_negative("the time of an objective", t_s)?;
        let node = self.node()?;
        let stands = Stands::new(&node, rate, self.bursts()?)?;
        let (value, others) = beside(&node, &stands, &self.nodes_of_replicates(rate)?, t_s);
        Ok(Parameter::from_replicates(value, &others, "1"))
    }

    /// The bursts that arrivals come in; `None` if they are taken for Poisson.
    pub(super) fn bursts(&self) -> Result<Option<Bursts>, Error> {
        self.arrivals.as_ref().map_or(Ok(None), |arrivals| arrivals.bursts())
    }

    /// Those of a replicate: its last two numbers, if the model has bursts.
    pub(super) fn bursts_of(&self, row: &[f64]) -> Result<Option<Bursts>, Error> {
        match (self.bursts()?, row) {
            (Some(_), &[.., variation, change_rate]) => {
                Bursts::new(variation, change_rate).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Where a node of this model stands at a load, past saturation too.
    pub(crate) fn stands(&self, node: &Node, rate: f64) -> Result<Stands, Error> {
        match Stands::new(node, rate, self.bursts()?) {
            Err(Error::Unstable { .. }) => Ok(Stands::one(node.overloaded(rate))),
            other => other,
        }
    }

    /// Every replicate's node and where it stands; one that is past saturation stands with queues
    /// without bound, so that its devices answer nothing in time.
    fn nodes_of_replicates(&self, rate: f64) -> Result<Vec<(Node, Stands)>, Error> {
        let stand = |row: &Vec<f64>| {
            let (node, bursts) = (self.replicate(row)?, self.bursts_of(row)?);
            let stands = match Stands::new(&node, rate, bursts) {
                Err(Error::Unstable { .. }) => Stands::one(node.overloaded(rate)),
                other => other?,
            };
            Ok((node, stands))
        };
        self.replicates.rows.iter().map(stand).collect()
    }

    fn spotify_of_replicates(&self) -> Result<Vec<Spotify>, Error> {
        self.replicates.rows.iter().map(|row| self.spotify_of(row)).collect()
    }

    /// The published model with the values of a replicate.
    pub(super) fn spotify_of(&self, row: &[f64]) -> Result<Spotify, Error> {
        let value = |name| {
            let column = Replicates::COLUMNS.iter().position(|c| *c == name);
            let value = column.and_then(|c| row.get(c)).copied();
            value.ok_or_else(|| Error::File("a replicate is too short; fit again".into()))
        };
        self.spotify_with(value("spotify_q0")?, value("spotify_alpha")?, value("spotify_mu_d")?)
    }

    /// P(T ≤ t) of one server at `rate` requests/s for each `t` in seconds, without intervals.
    /// [`Error::Unstable`] past saturation. Cost: some 0.1 ms for each t and class.
    pub fn cdf(&self, rate: f64, times_s: &[f64]) -> Result<Vec<f64>, Error> {
        let node = self.node()?;
        let stands = Stands::new(&node, rate, self.bursts()?)?;
        Ok(times_s.iter().map(|&t| stands.cdf(&node.at(t))).collect())
    }

    /// The same by the published model.
    pub fn spotify_cdf(&self, rate: f64, times_s: &[f64]) -> Result<Vec<f64>, Error> {
        let spotify = self.spotify()?;
        times_s.iter().map(|&t| spotify.cdf(rate, t)).collect()
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) of one server's requests does not
    /// exceed at `rate` requests/s. Cost: some 60 CDFs.
    pub fn quantile(&self, rate: f64, p: f64) -> Result<f64, Error> {
        let node = self.node()?;
        let stands = Stands::new(&node, rate, self.bursts()?)?;
        quantile(p, stands.mean(|o| o.response_mean).max(1e-6), |t| stands.cdf(&node.at(t)))
    }

    /// The same with its 95 % interval. A replicate's quantile is taken from its CDF at the model's own, by the tail
    /// that both have in common: where the replicate leaves a share s′ of requests and the model s = 1 − p, it is
    /// where the model leaves s²/s′. Exact where tails differ by a factor. Cost: 180 CDFs, and one for each
    /// replicate.
    pub fn quantile_with_interval(&self, rate: f64, p: f64) -> Result<Parameter, Error> {
        let value = self.quantile(rate, p)?;
        let within = self.within(rate, value)?;
        let left = 1.0 - p;
        let at = |within: f64| {
            let other = 1.0 - left * left / (1.0 - within).max(f64::MIN_POSITIVE);
            self.quantile(rate, other.clamp(0.0, 1.0 - 1e-12))
        };
        let (low, high) = (at(within.high)?.min(value), at(within.low)?.max(value));
        Ok(Parameter { value, low, high, unit: "s".to_owned() })
    }

    /// The loads that bound what the model says of one server.
    pub fn limits(&self) -> Result<Limits, Error> {
        let node = self.node()?;
        Ok(Limits {
            spotify_single: self.spotify()?.confidence_limit(),
            mg1: node.confidence_limit(),
            saturation: node.saturation(),
            breaks_first: node.breaks_first().map(|(_, limit)| limit),
        })
    }

    /// The published confidence limit of `servers` such servers, requests/s.
    pub fn cluster_limit(&self, servers: u32) -> Result<f64, Error> {
        Ok(self.spotify()?.cluster_confidence_limit(servers))
    }

    /// The same bound with our limit of a server, requests/s.
    pub fn cluster_limit_mg1(&self, servers: u32) -> Result<f64, Error> {
        Ok(balls_into_bins_limit(self.node()?.confidence_limit(), servers, BETA))
    }

    /// The smallest number of servers that holds `rate` requests/s within our confidence limit.
    pub fn servers_for(&self, rate: f64) -> Result<u32, Error> {
        not_negative("the request rate", rate)?;
        let limit = self.node()?.confidence_limit();
        servers_for(rate, |n| balls_into_bins_limit(limit, n, BETA))
    }

    /// The largest load in requests/s at which one server answers a share `share` within `within_s`
    /// seconds. [`Error::Unattainable`] if even an idle one does not.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        let node = self.node()?;
        largest_rate(&node, &node.at(within_s), self.bursts()?, (within_s, share))
    }

    /// The same with its 95 % interval, from the replicates; one that can't hold the objective at any
    /// load counts as 0.
    pub fn largest_rate_with_interval(
        &self,
        within_s: f64,
        share: f64,
    ) -> Result<Parameter, Error> {
        let value = self.largest_rate(within_s, share)?;
        let mut others = Vec::new();
        let at = self.node()?.at(within_s);
        for row in &self.replicates.rows {
            let (node, bursts) = (self.replicate(row)?, self.bursts_of(row)?);
            let beside = node.at_beside(&at);
            others.push(match largest_rate(&node, &beside, bursts, (within_s, share)) {
                Err(Error::Unattainable { .. }) => 0.0,
                other => other?,
            });
        }
        Ok(Parameter::from_replicates(value, &others, "1/s"))
    }

    /// [`Model::largest_rate`] by the published model.
    pub fn spotify_largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        self.spotify()?.largest_rate(within_s, share)
    }

    /// The model at one time, for CDFs at many loads: [`Node::operating`] and [`NodeAt::cdf`].
    pub fn at(&self, t_s: f64) -> Result<(Node, NodeAt), Error> {
        let node = self.node()?;
        let at = node.at(t_s);
        Ok((node, at))
    }
}

/// The largest load at which a node answers a share within a time, whatever its arrivals.
fn largest_rate(
    node: &Node,
    at: &NodeAt,
    bursts: Option<Bursts>,
    (within_s, share): (f64, f64),
) -> Result<f64, Error> {
    let poisson = node.largest_rate_by(at, within_s, share)?;
    if bursts.is_none() || poisson.is_infinite() {
        return Ok(poisson);
    }
    let holds = |rate: f64| Stands::new(node, rate, bursts).is_ok_and(|s| s.cdf(at) >= share);
    Ok(bisect(node.saturation(), holds))
}
