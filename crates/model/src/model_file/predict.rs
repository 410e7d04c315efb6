//! Predictions of a fitted model.

use serde::{Deserialize, Serialize};

use crate::bisection::quantile_to;
use crate::error::{Error, check, not_negative, positive};
use crate::queue::HORIZON_S;
use crate::storage::{BETA, Limit, Node, Operating, Spotify, balls_into_bins_limit};

use super::known::KnownLoads;
use super::model::Model;
use super::nodes::{ClusterLoad, Nodes, NodesAt};
use super::parts::{ClassParameters, Parameter};

/// The share of requests answered within a time, by both models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The time, seconds.
    pub t_s: f64,
    /// P(T ≤ t) by Concertina's model.
    pub concertina: Parameter,
    /// P(T ≤ t) by the published model; `None` where that is not stable.
    pub spotify: Option<Parameter>,
}

/// The prediction for a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Load on all servers, requests/s.
    pub rate: f64,
    /// Servers that share it equally.
    pub servers: u32,
    /// Share answered from memory.
    pub hit_ratio: Parameter,
    /// Utilisation of a device, on average.
    pub utilisation_mean: Parameter,
    /// Utilisation of the busiest device.
    pub utilisation_max: Parameter,
    /// Mean number waiting and in service at a device, on average. The upper end of its interval,
    /// and of the mean response's, is infinite where a replicate in forty is past saturation.
    pub device_queue_length_mean: Parameter,
    /// Mean response, seconds.
    pub response_mean: Parameter,
    /// The load past which queues are long, requests/s: [`Limits::mg1`], or its balls-into-bins bound for
    /// several servers. Infinite if memory answers everything.
    pub confidence_limit: f64,
    /// Whether `rate` is past `confidence_limit`. Say so wherever the prediction is shown.
    pub beyond_limit: bool,
    /// Whether the load on a server is larger than any that was fitted.
    pub beyond_fitted: bool,
    /// The load up to which the model was checked, requests/s on all servers ([`crate::Trust`]).
    pub trust_limit: f64,
    /// Whether `rate` is past `trust_limit`. Say so wherever the prediction is shown.
    pub beyond_trust: bool,
    /// Shares within the requested times.
    pub points: Vec<Point>,
    /// [`crate::model_file::parts::About::laboratory`]: show it with the prediction.
    pub laboratory: Option<String>,
}

/// Limits of the predictions for one server, as loads in requests/s. Infinite if no load reaches
/// them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// The published confidence limit: mean number at a disk is 1 by M/M/1, paper's estimators.
    pub spotify_single: Parameter,
    /// Ours: mean number at a device is 1 by M/G/1 with the measured law, and the bursts that
    /// arrivals came in.
    pub mg1: Parameter,
    /// The load at which the busiest device, the link or the workers are always busy.
    pub saturation: Parameter,
    /// Which of them; `None` if no load reaches them.
    pub breaks_first: Option<Limit>,
}

/// The operating points of a model's nodes at a load.
pub(crate) struct AtLoad<'a> {
    nodes: &'a Nodes,
    /// Requests/s of one server.
    rate: f64,
    fitted: Operating,
    replicates: Vec<Operating>,
    /// By how much shares are less known than by the replicates, on either side.
    unknown: f64,
    /// By how much the laws of queues are known to be off about shares of a half.
    approximate: f64,
}

impl AtLoad<'_> {
    /// P(T ≤ t).
    fn within(&self, at: &NodesAt) -> Parameter {
        self.within_of(at.node.cdf(&self.fitted), &self.shares(at))
    }

    /// What each replicate answers in that time.
    fn shares(&self, at: &NodesAt) -> Vec<f64> {
        at.replicates.iter().zip(&self.replicates).map(|(at, o)| at.cdf(o)).collect()
    }

    /// A share with the interval of those of the replicates and of what is not known besides.
    fn within_of(&self, share: f64, others: &[f64]) -> Parameter {
        let within = Parameter::from_replicates(share, others, "1");
        // Less towards the tails, whose decay is exact.
        let off = self.approximate * 4.0 * within.value * (1.0 - within.value);
        let low = within.value - (within.value - within.low).hypot(off) - self.unknown;
        let high = within.value + (within.high - within.value).hypot(off) + self.unknown;
        Parameter { low: low.max(0.0), high: high.min(1.0), ..within }
    }

    /// A quantity of the operating point, with its 95 % interval.
    fn quantity(&self, f: &dyn Fn(&Operating) -> f64, unit: &str) -> Parameter {
        let others = self.replicates.iter().map(f);
        Parameter::from_replicates(f(&self.fitted), &others.collect::<Vec<_>>(), unit)
    }

    /// Whether so many replicates are past saturation that the upper end of a time's interval is.
    fn is_perhaps_unstable(&self) -> bool {
        is_perhaps_unstable(self.replicates.iter().map(|operating| operating.response_mean))
    }
}

/// Whether so many of the replicates with these mean responses are past saturation that the upper end of the interval of
/// a time is.
pub(super) fn is_perhaps_unstable(responses: impl ExactSizeIterator<Item = f64>) -> bool {
    let all = responses.len() as f64;
    let count = responses.filter(|response| response.is_infinite()).count();
    // The rank of the upper end is 0.975·(n + 1).
    count > 0 && count as f64 > 0.025 * (all + 1.0) - 1.0
}

/// A quantile whose interval is looked for.
#[derive(Clone, Copy)]
pub(super) struct Quantile {
    /// The share of requests that take at most `value_s`.
    pub p: f64,
    /// As fitted, seconds.
    pub value_s: f64,
}

/// The accuracy of an interval's ends, as a share of them: what is estimated from replicates has two digits.
const END_TOLERANCE: f64 = 1e-4;
/// Quantiles of larger shares are those of a tail that no law here has.
const SHARE_MAX: f64 = 1.0 - 1e-9;

impl Quantile {
    /// The interval that [`Model::quantile_with_interval`] describes.
    ///
    /// `shares`: what each replicate answers within `value_s`, which orders the replicates; `within`: the interval of these shares, which may be
    /// wider than they are; `cdf(replicate, t)`: P(T ≤ t) of a replicate, or as fitted.
    pub fn interval(
        self,
        shares: &[f64],
        within: &Parameter,
        perhaps_unstable: bool,
        cdf: impl Fn(Option<usize>, f64) -> f64,
    ) -> Result<Parameter, Error> {
        let Quantile { p, value_s } = self;
        // Nothing spreads.
        if within.low == within.high && !perhaps_unstable {
            return Ok(Parameter::exact(value_s, "s"));
        }
        let of_shares = Parameter::from_replicates(within.value, shares, "1");
        let mut order: Vec<usize> = (0..shares.len()).filter(|i| !shares[*i].is_nan()).collect();
        order.sort_by(|a, b| shares[*a].total_cmp(&shares[*b]));
        let quantile = |replicate: Option<usize>, p: f64| {
            let p = p.clamp(0.0, SHARE_MAX);
            quantile_to(END_TOLERANCE, p, value_s, |t| cdf(replicate, t))
        };
        // Between the two replicates at the rank of an end, as `statistics::quantile_beyond` has it. Replicates differ in the decay of their
        // tails: an end taken from the fitted tail alone was 0 ms where the mean work is known to a fifth.
        let at_rank = |slow_first: bool, p: f64| {
            let rank = (0.025 * (order.len() as f64 + 1.0) - 1.0).max(0.0);
            let at = |rank: usize| {
                let rank = rank.min(order.len().saturating_sub(1));
                let from_slowest = if slow_first { rank } else { order.len() - 1 - rank };
                quantile(order.get(from_slowest).copied(), p)
            };
            if order.is_empty() {
                return quantile(None, p);
            }
            let (first, part) = (rank.floor() as usize, rank.fract());
            let first_s = at(first)?;
            Ok(if part == 0.0 { first_s } else { first_s * (1.0 - part) + at(first + 1)? * part })
        };
        let low = at_rank(false, p - (within.high - of_shares.high).max(0.0))?.min(value_s);
        let slow = p + (of_shares.low - within.low).max(0.0);
        let high = if perhaps_unstable || slow >= 1.0 {
            f64::INFINITY
        } else {
            at_rank(true, slow)?.max(value_s)
        };
        Ok(Parameter { value: value_s, low, high, unit: "s".to_owned() })
    }
}

impl Model {
    /// The prediction for one server at `rate` requests/s, with the shares within each of
    /// `within_s` seconds. [`Error::Unstable`] past saturation. Cost: for each time about 0.1 ms for each replicate and class.
    pub fn predict(&self, rate: f64, within_s: &[f64]) -> Result<Prediction, Error> {
        self.predict_cluster(rate, 1, within_s)
    }

    /// The prediction for `servers` such servers that share `rate` requests/s equally.
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
        let nodes = self.nodes()?;
        let load = ClusterLoad { rate, servers };
        let at_load = self.at_load_of(&nodes, load)?;
        let times: Vec<NodesAt> = within_s.iter().map(|t_s| nodes.at_time(*t_s)).collect();
        self.prediction(&at_load, load, &times)
    }

    /// The prediction for a load at which one of its servers is at `at_load`, with the shares within `times`.
    pub(crate) fn prediction(
        &self,
        at_load: &AtLoad<'_>,
        load: ClusterLoad,
        times: &[NodesAt],
    ) -> Result<Prediction, Error> {
        let ClusterLoad { rate, servers } = load;
        let (n, each) = (f64::from(servers), at_load.rate);
        let spotify = self.spotify()?;
        let spotify_replicates = self.spotify_of_replicates()?;
        let point = |at: &NodesAt| {
            let t_s = at.t_s;
            let published = spotify.cdf(each, t_s).ok().map(|value| {
                let others = spotify_replicates.iter();
                // Past its saturation a replicate answers from memory only.
                let cdf = |s: &Spotify| s.cdf(each, t_s).unwrap_or(s.hit_ratio().at_rate(each));
                Parameter::from_replicates(value, &others.map(cdf).collect::<Vec<_>>(), "1")
            });
            Point { t_s, concertina: at_load.within(at), spotify: published }
        };
        let limit = at_load.nodes.node.confidence_limit();
        let confidence_limit = balls_into_bins_limit(limit, servers, BETA);
        let trust = self.trust()?;
        Ok(Prediction {
            rate,
            servers,
            hit_ratio: at_load.quantity(&|o| o.hit_ratio, "1"),
            utilisation_mean: at_load.quantity(&|o| o.utilisation_mean, "1"),
            utilisation_max: at_load.quantity(&|o| o.utilisation_max, "1"),
            device_queue_length_mean: at_load.quantity(&|o| o.queue_length_mean, "1"),
            response_mean: at_load.quantity(&|o| o.response_mean, "s"),
            confidence_limit,
            beyond_limit: rate > confidence_limit,
            beyond_fitted: each > self.requests.rate_high * 1.01,
            trust_limit: trust.limit * n,
            beyond_trust: !trust.covers(each),
            points: times.iter().map(point).collect(),
            laboratory: self.about.laboratory.clone(),
        })
    }

    pub(crate) fn nodes(&self) -> Result<Nodes, Error> {
        Ok(Nodes { node: self.node()?, replicates: self.nodes_of_replicates()? })
    }

    /// The operating points of one of several servers.
    pub(crate) fn at_load_of<'a>(
        &self,
        nodes: &'a Nodes,
        load: ClusterLoad,
    ) -> Result<AtLoad<'a>, Error> {
        let n = f64::from(load.servers);
        self.at_load(nodes, load.of_server()).map_err(|error| error.of_servers(n))
    }

    /// The operating points of one server at `rate` requests/s. A replicate past saturation has
    /// infinite queues, so its devices answer nothing in time.
    fn at_load<'a>(&self, nodes: &'a Nodes, rate: f64) -> Result<AtLoad<'a>, Error> {
        let Nodes { node, replicates } = nodes;
        let replicates: Vec<Operating> =
            replicates.iter().map(|node| node.operating_unchecked(rate)).collect();
        // Past the tipping load nothing is answered in time for long; but that load is an estimate, and so is the saturation of one of several
        // hypotheses.
        let kept = self.hypotheses.iter().filter(|hypothesis| hypothesis.weight > 0.0);
        let perhaps = (self.is_slowed() || kept.count() > 1)
            && replicates.iter().any(|r| r.response_mean.is_finite());
        let mut unknown = self.known_loads().unknown_at(rate);
        let fitted = match node.operating(rate) {
            Err(Error::Unstable { .. }) if perhaps => node.operating_unchecked(rate),
            // The saturation of a hypothesis that does not fit does not say that nothing is answered.
            Err(Error::Unstable { .. }) if self.unknown_beyond.is_some() => {
                unknown = 1.0;
                node.operating_unchecked(rate)
            }
            found => found?,
        };
        let approximate = if replicates.is_empty() { 0.0 } else { self.approximate() };
        Ok(AtLoad { nodes, rate, fitted, replicates, unknown, approximate })
    }

    /// By how much the laws of the queues of a service that was fitted by its times are off, as a share. Works that hardly vary are known to
    /// a thousandth, and then this is the interval. Other fits know less by far.
    fn approximate(&self) -> f64 {
        let of = |class: &ClassParameters| {
            let scv = class.service.scv.value;
            let is_exact = class.servers == 1 || EXACT_SCV.contains(&scv);
            if is_exact && !class.discipline.is_shared() { OFF } else { OFF_SEVERAL }
        };
        let fitted = self.classes.iter().filter(|_| !self.hypotheses.is_empty());
        fitted.map(of).fold(0.0, f64::max)
    }

    /// Share of one server's requests that memory answers at `rate` requests/s, with its 95 %
    /// interval. [`Error::Unstable`] past saturation. Cost: microseconds a replicate.
    pub fn hit_ratio(&self, rate: f64) -> Result<Parameter, Error> {
        Ok(self.at_load(&self.nodes()?, rate)?.quantity(&|o| o.hit_ratio, "1"))
    }

    /// P(T ≤ t) of one server at `rate` requests/s with its 95 % interval, alone: for curves.
    /// [`Error::Unstable`] past saturation. Cost: some 0.1 ms a replicate and class.
    pub fn within(&self, rate: f64, t_s: f64) -> Result<Parameter, Error> {
        not_negative("the time of an objective", t_s)?;
        let nodes = self.nodes()?;
        Ok(self.at_load(&nodes, rate)?.within(&nodes.at_time(t_s)))
    }

    /// P(T ≤ t) of one server at `rate` requests/s for each `t` in seconds, without intervals.
    /// [`Error::Unstable`] past saturation. Cost: some 0.1 ms for each t and class.
    pub fn cdf(&self, rate: f64, times_s: &[f64]) -> Result<Vec<f64>, Error> {
        self.node()?.cdf(rate, times_s)
    }

    /// The same by the published model.
    pub fn spotify_cdf(&self, rate: f64, times_s: &[f64]) -> Result<Vec<f64>, Error> {
        let spotify = self.spotify()?;
        times_s.iter().map(|&t| spotify.cdf(rate, t)).collect()
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) of one server's requests does not
    /// exceed at `rate` requests/s. Cost: some 60 CDFs.
    pub fn quantile(&self, rate: f64, p: f64) -> Result<f64, Error> {
        self.node()?.quantile(rate, p)
    }

    /// The same with its 95 % interval: the quantiles of the replicates at its ends. Which these are is told by what each replicate answers
    /// within the model's own quantile. The upper end is infinite where a replicate in forty is past saturation. Cost: some 120
    /// CDFs, and one for each replicate.
    pub fn quantile_with_interval(&self, rate: f64, p: f64) -> Result<Parameter, Error> {
        let nodes = self.nodes()?;
        self.quantile_at(&self.at_load(&nodes, rate)?, p)
    }

    /// [`Model::quantile_with_interval`] at a load.
    pub(crate) fn quantile_at(&self, at_load: &AtLoad<'_>, p: f64) -> Result<Parameter, Error> {
        if at_load.fitted.response_mean.is_infinite() {
            let least = self.classes.iter().map(|class| class.service.mean.value);
            let low = self.requests.front_delay.low.max(0.0) + least.fold(f64::INFINITY, f64::min);
            return Ok(Parameter {
                value: f64::INFINITY,
                low,
                high: f64::INFINITY,
                unit: "s".to_owned(),
            });
        }
        let AtLoad { nodes, rate, fitted, .. } = at_load;
        let value_s = nodes.node.quantile(*rate, p)?;
        let at = nodes.at_time(value_s);
        let shares = at_load.shares(&at);
        let within = at_load.within_of(at.node.cdf(fitted), &shares);
        let unstable = at_load.is_perhaps_unstable() || at_load.unknown >= 1.0;
        Quantile { p, value_s }.interval(&shares, &within, unstable, |replicate, t| {
            let of = replicate.and_then(|i| nodes.replicates.get(i).zip(at_load.replicates.get(i)));
            let (node, operating) = of.unwrap_or((&nodes.node, fitted));
            node.at_time(t).cdf(operating)
        })
    }

    /// The loads that bound what the model says of one server, with their 95 % intervals. Cost: a
    /// tenth of a millisecond a replicate; some ten with workers.
    pub fn limits(&self) -> Result<Limits, Error> {
        self.limits_of(&self.nodes()?)
    }

    /// [`Model::limits`] by its nodes.
    pub(crate) fn limits_of(&self, nodes: &Nodes) -> Result<Limits, Error> {
        let Nodes { node, replicates: others } = nodes;
        let interval =
            |value: f64, others: Vec<f64>| Parameter::from_replicates(value, &others, "1/s");
        let of = |f: &dyn Fn(&Node) -> f64| interval(f(node), others.iter().map(f).collect());
        let published = self.spotify_of_replicates()?;
        let published = published.iter().map(Spotify::confidence_limit).collect();
        Ok(Limits {
            spotify_single: interval(self.spotify()?.confidence_limit(), published),
            mg1: of(&Node::confidence_limit),
            saturation: of(&Node::saturation),
            breaks_first: node.breaks_first().map(|(_, limit)| limit),
        })
    }

    /// The confidence limit of `servers` such servers, requests/s: the published bound (balls into bins) with the limit
    /// of Concertina's model for a server.
    pub fn cluster_limit_mg1(&self, servers: u32) -> Result<f64, Error> {
        Ok(balls_into_bins_limit(self.node()?.confidence_limit(), servers, BETA))
    }

    /// The largest load in requests/s at which one server answers a share `share` within `within_s`
    /// seconds, by the model's law also where nothing is known ([`Model::known_to`]). [`Error::Unattainable`] if even an idle one
    /// does not.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        self.node()?.largest_rate(within_s, share)
    }

    /// The same with its 95 % interval, from the replicates; one that can't hold the objective at
    /// any load counts as 0. The interval has no upper end where it passes [`Model::known_to`].
    pub fn largest_rate_with_interval(
        &self,
        within_s: f64,
        share: f64,
    ) -> Result<Parameter, Error> {
        not_negative("the time of an objective", within_s)?;
        let nodes = self.nodes()?;
        self.largest_rate_by(&nodes, &nodes.at_time(within_s), share)
    }

    /// [`Model::largest_rate_with_interval`] by its nodes at the time of the objective.
    pub(crate) fn largest_rate_by(
        &self,
        nodes: &Nodes,
        at: &NodesAt,
        share: f64,
    ) -> Result<Parameter, Error> {
        check("the share of an objective", share, 0.0..=1.0, "0 to 1")?;
        let value = nodes.node.largest_rate_by(&at.node, at.t_s, share)?;
        let known_to = self.known_to();
        let mut others = Vec::new();
        for (node, node_at) in nodes.replicates.iter().zip(&at.replicates) {
            others.push(match node.largest_rate_by(node_at, at.t_s, share) {
                Err(Error::Unattainable { .. }) => 0.0,
                other => other?,
            });
        }
        let found = Parameter::from_replicates(value, &others, "1/s");
        Ok(KnownLoads::largest_rate(known_to, found))
    }

    /// [`Model::largest_rate`] by the published model.
    pub fn spotify_largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        self.spotify()?.largest_rate(within_s, share)
    }
}

/// What the law of responses of one server is off by: laws of work are kept in bins of 1.6 %. And of several: by the table of
/// [`crate::queue::Mgm`], but for laws of nearly exponential work.
const OFF: f64 = 0.001;
const OFF_SEVERAL: f64 = 0.004;
const EXACT_SCV: std::ops::RangeInclusive<f64> = 0.5..=1.2;

/// A service of which a longer queue takes less than this part off the throughput does not tip over: it saturates.
const FALLS: f64 = 0.97;

/// A service that answers fewer requests the more are inside: where its queue grows and does not come back.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tipping {
    /// The load at which the queue has grown without end within ten minutes in the mean, requests/s of one server.
    pub load: Parameter,
    /// The load below which a queue that has grown becomes short again, as far as the data show it, requests/s.
    pub comes_back: Parameter,
    /// The number inside with which most requests are answered.
    pub best_inside: u32,
    /// Requests/s with that many inside.
    pub throughput_max: f64,
    /// The largest number inside of which the data tell the speed.
    pub known_to: f64,
    /// The speed with that many over that alone.
    pub speed_there: f64,
}

impl Tipping {
    /// What it is, and what to do, in sentences.
    pub fn text(&self) -> String {
        let shown = |p: &Parameter| format!("{:.4}/s ({:.4} to {:.4})", p.value, p.low, p.high);
        format!(
            "Requests slow each other down: with {:.0} inside the service works at {:.0} % of its speed alone. At {} it tips over: \
             within {:.0} minutes in the mean the queue grows and does not come back until the load falls below {}. Keep the \
             load below that, or let at most {} requests in at once: so many are answered at {:.4}/s. How it works with more than {:.0} \
             inside is not known; intervals have from \"no slower\" to \"slower on as before\".",
            self.known_to,
            100.0 * self.speed_there,
            shown(&self.load),
            HORIZON_S / 60.0,
            shown(&self.comes_back),
            self.best_inside,
            self.throughput_max,
            self.known_to
        )
    }
}

/// The load below which a grown queue becomes short again, requests/s of one server.
fn comes_back(node: &Node) -> Option<f64> {
    let class = node.classes.first()?;
    let slowdown = class.slowdown.as_ref()?;
    let reads = 1.0 - node.hit_ratio.at_rate(0.0) - node.other_share;
    Some(slowdown.least_departures(class.servers) / class.mean() / reads.max(1e-9))
}

impl Model {
    /// Where the service tips over; `None` if its speed does not depend on the number inside, or falls too little for that.
    ///
    /// # Errors
    /// Those of [`Model::node`].
    pub fn tipping(&self) -> Result<Option<Tipping>, Error> {
        let node = self.node()?;
        let Some(class) = node.classes.first() else { return Ok(None) };
        let Some((slowdown, back)) = class.slowdown.as_ref().zip(comes_back(&node)) else {
            return Ok(None);
        };
        let best_inside = slowdown.peak(class.servers);
        let servers = class.servers.min(best_inside);
        let reads = 1.0 - node.hit_ratio.at_rate(0.0) - node.other_share;
        let throughput_max = f64::from(servers) * slowdown.speed(f64::from(best_inside))
            / class.mean()
            / reads.max(1e-9);
        if back > FALLS * throughput_max {
            return Ok(None);
        }
        let others = self.nodes_of_replicates()?;
        let backs: Vec<f64> = others.iter().filter_map(comes_back).collect();
        Ok(Some(Tipping {
            load: self.limits()?.saturation,
            comes_back: Parameter::from_replicates(back, &backs, "1/s"),
            best_inside,
            throughput_max,
            known_to: slowdown.known_to(),
            speed_there: slowdown.speed(slowdown.known_to()),
        }))
    }

    /// Whether a node's speed depends on the number inside.
    pub(super) fn is_slowed(&self) -> bool {
        self.classes.iter().any(|class| class.by_number.is_some())
    }
}

impl Model {
    pub(super) fn known_loads(&self) -> KnownLoads {
        // A node is made only where something depends on it.
        let node = self.unknown_beyond.and_then(|_| self.node().ok());
        let busier = node.map_or(1.0, |node| self.checked().busier(&node));
        KnownLoads::new(self.unknown_beyond, &self.held_out, busier)
    }

    /// [`Model::known_to`] of this server after changes that made it `node`.
    pub(crate) fn known_to_as(&self, node: &Node) -> f64 {
        match self.unknown_beyond {
            None => f64::INFINITY,
            known => KnownLoads::new(known, &self.held_out, self.checked().busier(node)).end(),
        }
    }

    /// The load of one server, requests/s, beyond which nothing is known of it, because no hypothesis fits its times: the heaviest that
    /// was fitted or held out. Infinite if one fits.
    ///
    /// Of a server that is changed (slower devices, fewer of them, less memory), the load at which it is as busy as the fitted server at
    /// the heaviest fitted load. A faster server is not known further.
    pub fn known_to(&self) -> f64 {
        self.known_loads().end()
    }

    /// Whether a load of one server is past [`Model::known_to`]: the interval of every share is from 0 to 1 there.
    pub fn is_unknown(&self, rate: f64) -> bool {
        self.known_loads().unknown_at(rate) >= 1.0
    }

    /// That nothing is known beyond a load: a sentence.
    pub(crate) fn unknown_text(&self) -> Option<String> {
        self.unknown_beyond.map(|rate| {
            format!(
                "Since no hypothesis fits, nothing says what happens beyond the heaviest fitted load, {rate:.4} requests/s: the interval \
                 of a share is 0 to 100 % there, and as wide as the errors on loads that were held out. Measure the load that you \
                 want to know, or closed loops of more and more clients."
            )
        })
    }
}
