//! Predictions of hedged requests.

use serde::{Deserialize, Serialize};

use crate::bisection::quantile;
use crate::error::Error;
use crate::fork_join::Hedge;
use crate::storage::{Cluster, Member, Node};

use super::cluster::{ClusterModel, ClusterPrediction};
use super::fan_out::{ResponseTimes, WithinTime, response_times};
use super::known::wider;
use super::model::Model;
use super::parts::Parameter;
use super::predict::{Prediction, Quantile, is_perhaps_unstable};

/// The prediction for requests that are sent a second time if they are late, beside that without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HedgedPrediction {
    /// Load without second requests, requests/s on all servers.
    pub rate: f64,
    /// The delay after which the second request is sent, seconds.
    pub delay_s: f64,
    /// Load with second requests, requests/s on all servers.
    pub offered_rate: Parameter,
    /// Share of the requests that are sent twice.
    pub share_hedged: Parameter,
    /// Half of what the servers carry, requests/s on all of them; `None` if they carry any load. Past it they are saturated
    /// once all requests are sent twice, and stay so: chance, a pause or a restart leads there. Nothing cancels a request
    /// or bounds the share that is sent twice.
    #[serde(default)]
    pub rate_lasting: Option<f64>,
    /// A request without hedging, at `rate`.
    pub single: ResponseTimes,
    /// The first reply with hedging, at `offered_rate`.
    pub hedged: ResponseTimes,
}

impl Model {
    /// The prediction for hedged requests at the load of a prediction without hedging. The second request goes to
    /// another server like this one, which has as much load. [`Error::Unstable`] if the second requests saturate the
    /// servers. Cost: some 500 CDFs, and ten a replicate.
    ///
    /// ```
    /// # fn hedged(model: &model::Model) -> Result<(), model::Error> {
    /// let single = model.predict(1_000.0, &[0.020])?;
    /// let hedged = model.predict_hedged(&single, model::fork_join::Hedge::new(0.030)?)?;
    /// assert!(hedged.offered_rate.value >= 1_000.0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn predict_hedged(
        &self,
        single: &Prediction,
        hedge: Hedge,
    ) -> Result<HedgedPrediction, Error> {
        let servers = f64::from(single.servers);
        let rate = single.rate / servers;
        let alone = |server: Node| {
            let members = vec![Member { name: "server".to_owned(), server, share: 1.0 }];
            Cluster { members, delay: 0.0 }
        };
        let node = alone(self.node()?);
        let replicates: Vec<_> = self.nodes_of_replicates()?.into_iter().map(alone).collect();
        let times = response_times(&single.points, |p| self.quantile_with_interval(rate, p))?;
        let all = Servers { fitted: &node, replicates: &replicates };
        let mut found =
            predict(all, rate, hedge, times).map_err(|error| error.of_servers(servers))?;
        let known = self.known_loads();
        found.widen(known.unknown_at(found.offered_rate.value));
        found.rate = single.rate;
        found.rate_lasting = found.rate_lasting.map(|rate| rate * servers);
        let offered = &mut found.offered_rate;
        for end in [&mut offered.value, &mut offered.low, &mut offered.high] {
            *end *= servers;
        }
        Ok(found)
    }
}

impl ClusterModel {
    /// [`Model::predict_hedged`] for a cluster: both requests go to its nodes by their shares, as if to two replicas
    /// with independent queues.
    pub fn predict_hedged(
        &self,
        single: &ClusterPrediction,
        hedge: Hedge,
    ) -> Result<HedgedPrediction, Error> {
        let times =
            response_times(&single.points, |p| self.quantile_with_interval(single.rate, p))?;
        let servers = Servers { fitted: self.cluster(), replicates: self.replicates() };
        let mut found = predict(servers, single.rate, hedge, times)?;
        found.widen(self.unknown_at(found.offered_rate.value));
        Ok(found)
    }
}

impl HedgedPrediction {
    /// Whether the servers may end in sending all requests twice, for good.
    pub fn may_tip_over(&self) -> bool {
        self.share_hedged.value > 0.0 && self.rate_lasting.is_some_and(|most| self.rate >= most)
    }

    /// Widens the intervals by what is not known of the servers at the load with second requests, as a share of all requests. The load of
    /// second requests is then not known either: at most one for each request.
    fn widen(&mut self, unknown: f64) {
        if unknown <= 0.0 {
            return;
        }
        self.share_hedged = wider(self.share_hedged.clone(), unknown);
        let offered = |share: f64| self.rate * (1.0 + share);
        self.offered_rate.low = self.offered_rate.low.min(offered(self.share_hedged.low));
        self.offered_rate.high = self.offered_rate.high.max(offered(self.share_hedged.high));
        for within in &mut self.hedged.within {
            within.share = wider(within.share.clone(), unknown);
        }
        for (time, left) in
            [(&mut self.hedged.response_p50, 0.5), (&mut self.hedged.response_p99, 0.01)]
        {
            if unknown >= left {
                (time.low, time.high) = (0.0, f64::INFINITY);
            }
        }
    }
}

/// Servers as fitted, and the same of every replicate.
#[derive(Clone, Copy)]
struct Servers<'a> {
    fitted: &'a Cluster<Node>,
    replicates: &'a [Cluster<Node>],
}

/// Hedged requests at the loads that they cause: the fitted one's, and every replicate's.
struct Hedged<'a> {
    servers: Servers<'a>,
    hedge: Hedge,
    load: f64,
    loads: Vec<f64>,
}

impl<'a> Hedged<'a> {
    fn new(servers: Servers<'a>, rate: f64, hedge: Hedge) -> Result<Self, Error> {
        let load = |cluster: &Cluster<Node>, within: &dyn Fn(f64) -> f64| {
            hedge.offered_rate(rate, |load| cluster.operating(load).map(|_| 1.0 - within(load)))
        };
        let fitted = load(servers.fitted, &servers.fitted.within(hedge.delay_s()))?;
        let alike = servers.fitted.within_alike(servers.replicates, hedge.delay_s());
        // A replicate whose second requests saturate it has no load below twice the requests: it is taken there, where
        // only memory answers in time.
        let others = servers.replicates.iter().zip(alike);
        let loads = others.map(|(c, within)| load(c, &within).unwrap_or(2.0 * rate)).collect();
        Ok(Hedged { servers, hedge, load: fitted, loads })
    }

    fn cdf(&self, t: f64) -> f64 {
        self.cdf_of(self.servers.fitted, self.load, t)
    }

    /// P(T ≤ t) of servers at a load with second requests.
    fn cdf_of(&self, servers: &Cluster<Node>, load: f64, t: f64) -> f64 {
        let earlier = t - self.hedge.delay_s();
        let second = if earlier < 0.0 { 0.0 } else { servers.within(earlier)(load) };
        self.hedge.within(servers.within(t)(load), second)
    }

    /// P(T ≤ t) with its interval.
    fn within(&self, t: f64) -> Parameter {
        Parameter::from_replicates(self.cdf(t), &self.shares(t), "1")
    }

    /// What each replicate answers in time.
    fn shares(&self, t: f64) -> Vec<f64> {
        let earlier = t - self.hedge.delay_s();
        let alike = |t: f64| self.servers.fitted.within_alike(self.servers.replicates, t);
        let first = alike(t).into_iter().zip(&self.loads).map(|(within, load)| within(*load));
        let second: Vec<f64> = match earlier < 0.0 {
            true => vec![0.0; self.loads.len()],
            false => {
                let all = alike(earlier).into_iter().zip(&self.loads);
                all.map(|(within, load)| within(*load)).collect()
            }
        };
        first.zip(second).map(|(a, b)| self.hedge.within(a, b)).collect()
    }

    fn quantile(&self, p: f64) -> Result<Parameter, Error> {
        let value_s = quantile(p, 1e-3, |t| self.cdf(t))?;
        let replicates = self.servers.replicates.iter().zip(&self.loads);
        let responses = replicates.map(|(c, load)| c.operating_unchecked(*load).response_mean);
        let unstable = is_perhaps_unstable(responses);
        let shares = self.shares(value_s);
        let within = Parameter::from_replicates(self.cdf(value_s), &shares, "1");
        Quantile { p, value_s }.interval(&shares, &within, unstable, |replicate, t| {
            let of = replicate.and_then(|i| self.servers.replicates.get(i).zip(self.loads.get(i)));
            let (servers, load) = of.unwrap_or((self.servers.fitted, &self.load));
            self.cdf_of(servers, *load, t)
        })
    }
}

fn predict(
    servers: Servers,
    rate: f64,
    hedge: Hedge,
    single: ResponseTimes,
) -> Result<HedgedPrediction, Error> {
    let found = Hedged::new(servers, rate, hedge)?;
    let shares: Vec<f64> = found.loads.iter().map(|load| load / rate - 1.0).collect();
    let within =
        single.within.iter().map(|w| WithinTime { t_s: w.t_s, share: found.within(w.t_s) });
    let saturation = servers.fitted.saturation();
    Ok(HedgedPrediction {
        rate,
        rate_lasting: saturation.is_finite().then_some(saturation / 2.0),
        delay_s: hedge.delay_s(),
        offered_rate: Parameter::from_replicates(found.load, &found.loads, "1/s"),
        share_hedged: Parameter::from_replicates(found.load / rate - 1.0, &shares, "1"),
        hedged: ResponseTimes {
            within: within.collect(),
            response_p50: found.quantile(0.5)?,
            response_p99: found.quantile(0.99)?,
        },
        single,
    })
}
