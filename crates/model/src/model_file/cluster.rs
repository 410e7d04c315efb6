//! A cluster of fitted nodes: predictions with intervals, and what-ifs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::{Error, not_negative};
use crate::storage::{Change, Cluster, HitLaw, Member, Node, Operating, Server, Spotify};

use super::coarse::even;
use super::known::{KnownLoads, wider};
use super::model::Model;
use super::parts::Parameter;
use super::predict::{Point, Quantile, is_perhaps_unstable};
use crate::trust::{Checked, HeldOut, covers, limit_of_clients, trust};

/// A fitted node of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterNode {
    /// Its name in the ring.
    pub name: String,
    /// The model fitted to its own windows, with its `gateway` queue (or `node`) as the client
    /// side.
    pub model: Model,
    /// Its share of the requests, 0 to 1.
    pub share: f64,
}

/// A cluster made of fitted nodes.
///
/// Replicate r of the cluster consists of replicate r of each node. Nodes fitted to the same steps
/// were resampled at the same seconds, so common causes (a busy machine) stay together. δ is a
/// constant, as [`crate::fit::front_delay`] estimates it; each replicate has its own value, spread
/// evenly over its interval.
///
/// ```
/// # fn cluster(node: model::Model) -> Result<(), model::Error> {
/// use model::{ClusterModel, ClusterNode, Parameter, storage::{Change, Popularity}};
/// let nodes = ["a", "b"].map(|name| ClusterNode {
///     name: name.to_owned(),
///     model: node.clone(),
///     share: 0.5,
/// });
/// let cluster = ClusterModel::new(&nodes, Parameter::exact(0.0002, "s"))?;
/// let now = cluster.predict(1_000.0, &[0.050])?;
/// let slow = Change::Speed { name: "b".to_owned(), factor: 0.5 };
/// let then = cluster.changed(&slow, Popularity::EQUAL)?.predict(1_000.0, &[0.050])?;
/// assert!(then.points[0].concertina.value <= now.points[0].concertina.value);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterModel {
    cluster: Cluster<Node>,
    replicates: Vec<Cluster<Node>>,
    spotify: Cluster<Spotify>,
    spotify_replicates: Vec<Cluster<Spotify>>,
    delay: Parameter,
    /// Errors that clients saw on loads that were held out, at loads on the cluster.
    held_out: Vec<HeldOut>,
    /// The load up to which these leave it trusted; infinite without
    /// them.
    trusted_by_clients: f64,
    /// Whether each node's model was compared with a measured load.
    compared: bool,
    /// The loads at which each node was examined, by its name.
    checked: BTreeMap<String, Checked>,
    /// The load up to which each node is trusted, in the order of the members.
    trusted: Vec<f64>,
    /// The loads of which each node's model knows something, by its name.
    known: BTreeMap<String, KnownLoads>,
    laboratory: Vec<String>,
}

/// The prediction for one node of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePrediction {
    /// Its name.
    pub name: String,
    /// Its share of the requests.
    pub share: f64,
    /// Its load, requests/s.
    pub rate: f64,
    /// Share of its requests that its memory answers.
    pub hit_ratio: f64,
    /// Utilisation of a device, on average.
    pub utilisation_mean: f64,
    /// Utilisation of its busiest device.
    pub utilisation_max: f64,
    /// Mean number waiting and in service at a device, on average.
    pub device_queue_length_mean: f64,
    /// Whether its load is past its own confidence limit.
    pub beyond_limit: bool,
    /// Whether its load is larger than any that it was fitted to.
    pub beyond_fitted: bool,
    /// Whether its load is past the one up to which its model is trusted ([`crate::Trust`]).
    pub beyond_trust: bool,
}

/// The prediction for a cluster at a load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterPrediction {
    /// Load on the cluster, requests/s.
    pub rate: f64,
    /// Share answered from memory.
    pub hit_ratio: Parameter,
    /// Utilisation of the busiest device of all.
    pub utilisation_max: f64,
    /// Mean response, seconds.
    pub response_mean: Parameter,
    /// The limit of the prediction, see [`ClusterLimits`].
    pub limits: ClusterLimits,
    /// Whether a node is past its own confidence limit. Say so wherever the prediction is shown.
    pub beyond_limit: bool,
    /// Whether a node's load is larger than any that it was fitted to.
    pub beyond_fitted: bool,
    /// Whether a node is past the load up to which its model is trusted. Say so wherever the
    /// prediction is shown.
    pub beyond_trust: bool,
    /// Shares within the requested times, by both models.
    pub points: Vec<Point>,
    /// The nodes, in their order.
    pub nodes: Vec<NodePrediction>,
    /// Laboratory conditions of the nodes' models: show them with the prediction.
    pub laboratory: Vec<String>,
}

/// Limits of the predictions for a cluster, as loads in requests/s. Infinite if no load reaches
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClusterLimits {
    /// The limit of Concertina's model with these shares: the first node reaches its own limit.
    pub placed: f64,
    /// The limit of Concertina's model if only the expected shares are known: balls into bins.
    pub unplaced: f64,
    /// The published one: balls into bins with the published limit of each server.
    pub published: f64,
    /// The first node reaches the load up to which its model is trusted ([`crate::Trust`]), or the
    /// errors that clients saw on held-out loads are too large.
    pub trusted: f64,
    /// Whether each node's model was compared with a measured load; false of stated numbers.
    pub compared: bool,
    /// The busiest device of some node is always busy.
    pub saturation: f64,
}

impl ClusterModel {
    /// Of fitted nodes, with δ as what gateway and network add (seconds).
    pub fn new(nodes: &[ClusterNode], delay: Parameter) -> Result<ClusterModel, Error> {
        not_negative("the delay of gateway and network", delay.value)?;
        let most = nodes.iter().map(|n| n.model.replicates.rows.len()).max().unwrap_or(0);
        // Replicate `index` of every node, or what was fitted where it is `None` or a node has
        // none.
        let of = |index: Option<usize>| {
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            for ClusterNode { name, model, share } in nodes {
                let all = &model.replicates;
                let draw = index.and_then(|i| all.draw(i % all.rows.len().max(1)));
                let node = draw.map_or_else(|| model.node(), |draw| model.replicate(draw))?;
                let spotify = model.spotify_of(draw)?;
                ours.push(Member { name: name.clone(), server: node, share: *share });
                theirs.push(Member { name: name.clone(), server: spotify, share: *share });
            }
            let ours = Cluster { members: ours, delay: delay_of_replicate(&delay, index) };
            // The published model has no delay: its µ_d and q were fitted to responses with it.
            Ok((ours, Cluster { members: theirs, delay: 0.0 }))
        };
        let (cluster, spotify) = of(None)?;
        cluster.check()?;
        let both = (0..most).map(|i| of(Some(i))).collect::<Result<Vec<_>, Error>>()?;
        let (replicates, spotify_replicates) = both.into_iter().unzip();
        let mut laboratory: Vec<String> = Vec::new();
        for note in nodes.iter().filter_map(|n| n.model.about.laboratory.clone()) {
            if !laboratory.contains(&note) {
                laboratory.push(note);
            }
        }
        let checked = nodes.iter().map(|n| (n.name.clone(), n.model.checked())).collect();
        let known = nodes.iter().map(|n| (n.name.clone(), n.model.known_loads())).collect();
        let trusted = Vec::new();
        let is_compared = |n: &ClusterNode| n.model.trust().is_ok_and(|trust| trust.is_compared());
        let compared = nodes.iter().all(is_compared);
        let model = ClusterModel {
            cluster,
            replicates,
            spotify,
            spotify_replicates,
            delay,
            held_out: Vec::new(),
            trusted_by_clients: f64::INFINITY,
            compared,
            checked,
            trusted,
            known,
            laboratory,
        };
        Ok(model.judged())
    }

    /// The same, with what it was wrong by at the clients on loads that were held out: the loads
    /// are of the whole cluster. Without them trust rests on the nodes' own alone, and says nothing
    /// of what lies before them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for invalid numbers.
    pub fn with_held_out(mut self, held_out: Vec<HeldOut>) -> Result<ClusterModel, Error> {
        for held in &held_out {
            held.check()?;
        }
        self.held_out = held_out;
        Ok(self.judged())
    }

    /// Its errors at the clients on held-out loads.
    pub fn held_out(&self) -> &[HeldOut] {
        &self.held_out
    }

    /// The same, with the load up to which each node is trusted found anew.
    fn judged(mut self) -> ClusterModel {
        let limit = |member: &Member| {
            let checked = self.checked.get(&member.name);
            checked.map_or(0.0, |checked| trust(&member.server, checked).limit)
        };
        self.trusted = self.cluster.members.iter().map(limit).collect();
        self.trusted_by_clients = limit_of_clients(&self.held_out);
        self
    }

    /// The cluster with the fitted values.
    pub fn cluster(&self) -> &Cluster<Node> {
        &self.cluster
    }

    /// The published model of the same cluster: equation 2, each server with its share.
    pub fn spotify(&self) -> &Cluster<Spotify> {
        &self.spotify
    }

    /// The cluster of every replicate.
    pub(super) fn replicates(&self) -> &[Cluster<Node>] {
        &self.replicates
    }

    /// δ.
    pub fn delay(&self) -> &Parameter {
        &self.delay
    }

    /// The cluster after a change, with every replicate changed likewise. Hit ratios follow memory
    /// and parts of the catalogue by `law`: a [`crate::storage::Popularity`], or a reference to a
    /// curve ([`crate::cache::HitCurve`], [`crate::cache::Curve`]).
    pub fn changed(&self, change: &Change, law: impl HitLaw + Copy) -> Result<Self, Error> {
        fn all<S: Server>(
            clusters: &[Cluster<S>],
            change: &Change,
            law: impl HitLaw + Copy,
        ) -> Result<Vec<Cluster<S>>, Error> {
            clusters.iter().map(|c| c.changed(change, law)).collect()
        }
        let cluster = self.cluster.changed(change, law)?;
        // What was wrong at a load is taken to be so where the changed cluster is as busy; but not
        // to have moved to larger loads, since what lies before the nodes did not grow with them.
        let busier = self.cluster.saturation() / cluster.saturation();
        let busier = if busier.is_finite() && busier > 0.0 { busier } else { 1.0 };
        let moved = |held: &HeldOut| HeldOut { rate: held.rate / busier.max(1.0), ..held.clone() };
        let changed = ClusterModel {
            cluster,
            held_out: self.held_out.iter().map(moved).collect(),
            replicates: all(&self.replicates, change, law)?,
            spotify: self.spotify.changed(change, law)?,
            spotify_replicates: all(&self.spotify_replicates, change, law)?,
            ..self.clone()
        };
        Ok(changed.judged())
    }

    /// The limits of the predictions.
    pub fn limits(&self) -> ClusterLimits {
        ClusterLimits {
            placed: self.cluster.confidence_limit(),
            unplaced: self.cluster.confidence_limit_unplaced(),
            published: self.spotify.confidence_limit_unplaced(),
            trusted: self.trusted(),
            compared: self.compared || !self.held_out.is_empty(),
            saturation: self.cluster.saturation(),
        }
    }

    /// The load up to which it is trusted, by its nodes and by what clients saw.
    fn trusted(&self) -> f64 {
        self.trusted_by_nodes().min(self.trusted_by_clients)
    }

    /// The load at which the first node reaches the one up to which it is trusted.
    fn trusted_by_nodes(&self) -> f64 {
        let members = self.cluster.members.iter().zip(&self.trusted);
        let loaded = members.filter(|(m, _)| m.share > 0.0);
        loaded.map(|(m, trusted)| trusted / m.share).fold(f64::INFINITY, f64::min)
    }

    /// The prediction for the cluster at `rate` requests/s, with the shares within each of
    /// `within_s` seconds. [`Error::Unstable`] past saturation. Cost: for each time some 0.1 ms a
    /// node and replicate.
    pub fn predict(&self, rate: f64, within_s: &[f64]) -> Result<ClusterPrediction, Error> {
        for &t in within_s {
            not_negative("the time of an objective", t)?;
        }
        let operating = self.cluster.operating(rate)?;
        let of_replicates: Vec<_> =
            self.replicates.iter().map(|c| c.operating_unchecked(rate)).collect();
        let stable = self.spotify.cdf(rate, &[]).is_ok();
        let point = |&t_s: &f64| {
            let published =
                stable.then(|| interval(&self.spotify, &self.spotify_replicates, t_s, rate));
            let concertina = self.within(t_s, rate);
            Point { t_s, concertina, spotify: published }
        };
        let hits: Vec<f64> = of_replicates.iter().map(|s| s.hit_ratio).collect();
        let responses = of_replicates.iter().map(|s| s.response_mean).filter(|r| r.is_finite());
        let limits = self.limits();
        let nodes: Vec<NodePrediction> = self
            .cluster
            .members
            .iter()
            .zip(&operating.members)
            .zip(&self.trusted)
            .map(|((member, operating), trusted)| self.node_prediction(member, operating, *trusted))
            .collect();
        Ok(ClusterPrediction {
            rate,
            hit_ratio: Parameter::from_replicates(operating.hit_ratio, &hits, "1"),
            utilisation_max: operating.utilisation_max,
            response_mean: Parameter::from_replicates(
                operating.response_mean,
                &responses.collect::<Vec<_>>(),
                "s",
            ),
            beyond_limit: nodes.iter().any(|n| n.beyond_limit),
            beyond_fitted: nodes.iter().any(|n| n.beyond_fitted),
            beyond_trust: !covers(limits.trusted, rate) || nodes.iter().any(|n| n.beyond_trust),
            limits,
            points: within_s.iter().map(point).collect(),
            nodes,
            laboratory: self.laboratory.clone(),
        })
    }

    /// P(T ≤ t) with its interval, wider by the requests to nodes at loads of which their models know nothing.
    fn within(&self, t_s: f64, rate: f64) -> Parameter {
        wider(interval(&self.cluster, &self.replicates, t_s, rate), self.unknown_at(rate))
    }

    /// By how much, as a share of all requests, intervals of shares at a load are wider because no hypothesis fits a node.
    pub(super) fn unknown_at(&self, rate: f64) -> f64 {
        let members = self.cluster.members.iter();
        let known = members.filter_map(|m| Some((m.share, self.known.get(&m.name)?)));
        known.map(|(share, known)| share * known.unknown_at(share * rate)).sum::<f64>().min(1.0)
    }

    /// The load on the cluster at which the first node reaches the end of what its model knows, requests/s.
    fn known_to(&self) -> f64 {
        let members = self.cluster.members.iter().filter(|m| m.share > 0.0);
        let known = members.filter_map(|m| Some(self.known.get(&m.name)?.end() / m.share));
        known.fold(f64::INFINITY, f64::min)
    }

    fn node_prediction(
        &self,
        member: &Member,
        operating: &Operating,
        trusted: f64,
    ) -> NodePrediction {
        let fitted = self.checked.get(&member.name).map_or(f64::INFINITY, |c| c.rate_high);
        NodePrediction {
            name: member.name.clone(),
            share: member.share,
            rate: operating.rate,
            hit_ratio: operating.hit_ratio,
            utilisation_mean: operating.utilisation_mean,
            utilisation_max: operating.utilisation_max,
            device_queue_length_mean: operating.queue_length_mean,
            beyond_limit: operating.rate > member.server.confidence_limit(),
            beyond_fitted: operating.rate > fitted * 1.01,
            beyond_trust: !covers(trusted, operating.rate),
        }
    }

    /// The response time in seconds that a share `p` of requests does not exceed, with its 95 % interval, found as that of
    /// [`Model::quantile_with_interval`]. [`Error::Unstable`] past saturation. Cost: some 120 CDFs, and one a replicate.
    pub fn quantile_with_interval(&self, rate: f64, p: f64) -> Result<Parameter, Error> {
        let value_s = self.cluster.quantile(rate, p)?;
        let shares = shares(&self.cluster, &self.replicates, value_s, rate);
        let within = Parameter::from_replicates(self.cluster.within(value_s)(rate), &shares, "1");
        let within = wider(within, self.unknown_at(rate));
        let responses = self.replicates.iter().map(|c| c.operating_unchecked(rate).response_mean);
        // Requests of which nothing is known may take any time.
        let unstable = is_perhaps_unstable(responses) || self.unknown_at(rate) >= 1.0 - p;
        Quantile { p, value_s }.interval(&shares, &within, unstable, |replicate, t| {
            let of = replicate.and_then(|i| self.replicates.get(i));
            of.unwrap_or(&self.cluster).within(t)(rate)
        })
    }

    /// The largest load in requests/s at which a share `share` is answered within `within_s`
    /// seconds, with its 95 % interval; a replicate that can't hold the objective at any load
    /// counts as 0. [`Error::Unattainable`] if even an idle cluster does not hold it.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<Parameter, Error> {
        let value = self.cluster.largest_rate(within_s, share)?;
        let mut others = Vec::new();
        let known = self.cluster.within_alike(&self.replicates, within_s);
        for (replicate, within) in self.replicates.iter().zip(known) {
            others.push(match replicate.largest_rate_by(&within, within_s, share) {
                Err(Error::Unattainable { .. }) => 0.0,
                other => other?,
            });
        }
        let found = Parameter::from_replicates(value, &others, "1/s");
        Ok(KnownLoads::largest_rate(self.known_to(), found))
    }
}

/// δ of a replicate: spread evenly over what the 95 % interval is the most of. Of none it is what
/// was fitted.
fn delay_of_replicate(delay: &Parameter, replicate: Option<usize>) -> f64 {
    let Some(index) = replicate else { return delay.value };
    let at = even(index, 0) / 0.95;
    let half = if at < 0.0 { delay.value - delay.low } else { delay.high - delay.value };
    (delay.value + at * half).max(0.0)
}

/// P(T ≤ t) with its interval.
fn interval<S: Server + 'static>(
    cluster: &Cluster<S>,
    replicates: &[Cluster<S>],
    t_s: f64,
    rate: f64,
) -> Parameter {
    let others = shares(cluster, replicates, t_s, rate);
    Parameter::from_replicates(cluster.within(t_s)(rate), &others, "1")
}

/// What each replicate answers in time.
fn shares<S: Server + 'static>(
    cluster: &Cluster<S>,
    replicates: &[Cluster<S>],
    t_s: f64,
    rate: f64,
) -> Vec<f64> {
    cluster.within_alike(replicates, t_s).iter().map(|within| within(rate)).collect()
}
