//! A node of several tiers, each with a queue: memory, hot devices, bulk devices, a peer, the
//! origin. [`Tiers`] has the formula.

use crate::bisection::{bisect, quantile};
use crate::distribution::{Empirical, ServiceTime};
use crate::error::{Error, check, is_stable, not_negative, positive};

use super::class::Class;
use super::cluster::Server;
use super::hit_law::HitLaw;
use super::node::Node;
use super::several::ClassAt;

/// How a tier answers. [`Tiers`] has an example of both kinds.
#[derive(Clone, Debug, PartialEq)]
pub enum Station {
    /// Any number of concurrent requests, each for a time of this law (`None`: no time). For
    /// memory, or an origin far larger than its load.
    Delay(Option<Empirical>),
    /// `count` equal queues: devices, or connections to a peer or the origin.
    Queues {
        /// The law of service, and the number of requests that each queue serves concurrently.
        class: Class,
        /// Number of queues.
        count: u32,
    },
}

/// One tier: the share of the requests that it answers, how it answers them, and the delay before
/// it. [`Tiers`] has an example.
#[derive(Clone, Debug, PartialEq)]
pub struct Tier {
    /// The tier's name in reports.
    pub name: String,
    /// The share of all requests that it answers.
    pub share: f64,
    /// How it answers.
    pub station: Station,
    /// δ: the delay added to each of its responses, seconds.
    pub delay: f64,
}

/// A node of several tiers, looked up in order. The fields are public; [`Tiers::check`] validates
/// them.
///
/// P(T ≤ t) = Σᵢ shareᵢ·Fᵢ(t − δᵢ): tier i answers a request with probability shareᵢ, which follows
/// from the popularity of objects ([`crate::cache::hierarchy()`]) or from a measurement. The
/// requests of a tier spread evenly over its queues, each an M/G/1 or M/G/m queue
/// ([`crate::queue`]). δᵢ, in seconds, is the delay on the way (a network, a peer's front).
/// [`super::Node`] has one memory whose share depends on the load, and devices behind it; here
/// every tier has its own share, delay and saturation, and the first to saturate is reported by
/// name. Source: ours; a mixture of independent queues. Cost: [`Tiers::within`].
///
/// Assumptions: shares do not depend on the load; arrivals at each tier are Poisson (the misses of
/// a large memory nearly are); tiers and queues are independent; an unsuccessful look-up in a tier
/// takes no time beyond the δ of the tiers behind it. A request that fails at one tier and is
/// retried at another is not modelled.
///
/// ```
/// use model::cache::{Catalogue, Eviction, Keeps, Level, hierarchy};
/// use model::distribution::{Empirical, Piece};
/// use model::storage::{Class, Station, Tier, Tiers};
/// // Last.fm's question: the most played tracks on SSD, the others on disks.
/// let tracks = Catalogue::zipf(2_000_000, 0.8)?.with_bytes(5e6)?;
/// let shares = |ssd_bytes: f64| {
///     let memory = Level { bytes: 16e9, keeps: Keeps::Evicting(Eviction::Lru) };
///     let ssd = Level { bytes: ssd_bytes, keeps: Keeps::MostPopular };
///     let disks = Level { bytes: f64::INFINITY, keeps: Keeps::Evicting(Eviction::Lru) };
///     hierarchy(&tracks, &[memory, ssd, disks])
/// };
/// let law = |ms: f64| {
///     Empirical::from_pieces(vec![Piece { centre: ms / 1e3, half_width: ms / 2e3, share: 1.0 }])
/// };
/// let queues = |ms: f64, count: u32| -> Result<Station, model::Error> {
///     Ok(Station::Queues { class: Class::new(law(ms)?, 1), count })
/// };
/// let node = |ssd_bytes: f64| -> Result<Tiers, model::Error> {
///     let [memory, ssd, disks, _] = shares(ssd_bytes)?[..] else { unreachable!() };
///     let tier = |name: &str, share: f64, station| Tier {
///         name: name.to_owned(), share, station, delay: 0.0002,
///     };
///     Ok(Tiers { tiers: vec![
///         tier("memory", memory.share, Station::Delay(None)),
///         tier("ssd", ssd.share, queues(0.5, 1)?),
///         tier("disks", disks.share, queues(10.0, 6)?),
///     ] })
/// };
/// let (little, much) = (node(100e9)?, node(1e12)?);
/// assert_eq!(little.breaks_first().unwrap().name, "disks");
/// assert!(much.saturation() > 1.3 * little.saturation());
/// assert!(much.cdf(500.0, &[0.02])?[0] > little.cdf(500.0, &[0.02])?[0]);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Tiers {
    /// The tiers. If memory is changed, the share of the first one changes.
    pub tiers: Vec<Tier>,
}

/// The operating point of one tier, returned by [`Tiers::operating`].
#[derive(Clone, Debug, PartialEq)]
pub struct TierOperating {
    /// The tier's name.
    pub name: String,
    /// The share of all requests that it answers.
    pub share: f64,
    /// Requests per second that it answers, over all its queues.
    pub rate: f64,
    /// Busy share of each of its servers; 0 for a delay.
    pub utilisation: f64,
    /// Mean number waiting and in service at each of its queues; for a delay, in total.
    pub number_mean: f64,
    /// Mean response time of the requests that it answers, with its delay, seconds.
    pub response_mean: f64,
    /// Load in requests/s *on the node* at which the tier is always busy; infinite for a delay.
    pub saturation: f64,
}

/// The operating point of a node of tiers.
///
/// ```
/// use model::distribution::{Empirical, Piece};
/// use model::storage::{Class, Station, Tier, Tiers};
/// let law = Empirical::from_pieces(vec![Piece { centre: 0.010, half_width: 0.0, share: 1.0 }])?;
/// let tier = |name: &str, share, station| Tier { name: name.to_owned(), share, station, delay: 0.0 };
/// let disks = Station::Queues { class: Class::new(law, 1), count: 2 };
/// let node = Tiers { tiers: vec![tier("memory", 0.5, Station::Delay(None)), tier("disks", 0.5, disks)] };
/// // 160 requests/s are 40 reads/s for each disk of 10 ms.
/// let at = node.operating(160.0)?;
/// assert!((at.tiers[1].utilisation - 0.4).abs() < 1e-9);
/// assert!((at.tiers[1].saturation - 400.0).abs() < 1e-6);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TiersOperating {
    /// Load in requests/s.
    pub rate: f64,
    /// Mean response time of all requests, seconds.
    pub response_mean: f64,
    /// The operating point of each tier, in order.
    pub tiers: Vec<TierOperating>,
}

impl Tier {
    /// Load on the node at which the tier is always busy.
    fn saturation(&self) -> f64 {
        match &self.station {
            Station::Queues { class, count } if self.share > 0.0 => {
                let free = f64::from(class.servers.max(1)) - class.other_busy(1.0);
                free.max(0.0) * f64::from(*count) / (class.service.mean() * self.share)
            }
            _ => f64::INFINITY,
        }
    }

    /// Mean response without the delay at a load on the node.
    fn response_mean(&self, rate: f64) -> f64 {
        match &self.station {
            Station::Delay(law) => law.as_ref().map_or(0.0, ServiceTime::mean),
            Station::Queues { class, count } => {
                let each = rate * self.share / f64::from((*count).max(1));
                class.service.mean() + class.waiting_mean(each, 1.0)
            }
        }
    }

    fn operating(&self, rate: f64) -> TierOperating {
        let saturation = self.saturation();
        let time = self.response_mean(rate);
        let (queues, utilisation) = match &self.station {
            Station::Delay(_) => (1.0, 0.0),
            Station::Queues { class, count } => {
                let count = f64::from((*count).max(1));
                let reads = rate * self.share / count * class.service.mean();
                (count, (reads + class.other_busy(1.0)) / f64::from(class.servers.max(1)))
            }
        };
        TierOperating {
            name: self.name.clone(),
            share: self.share,
            rate: rate * self.share,
            utilisation,
            number_mean: rate * self.share * time / queues,
            response_mean: self.delay + time,
            saturation,
        }
    }

    /// Load on the node at which the mean number at each of its queues is 1.
    fn confidence_limit(&self) -> f64 {
        let saturation = self.saturation();
        if saturation.is_infinite() {
            return saturation;
        }
        bisect(saturation, |rate| self.operating(rate).number_mean < 1.0)
    }
}

impl Tiers {
    /// Checks all fields, and that the shares add to 1 (within 1e-6).
    pub fn check(&self) -> Result<(), Error> {
        check("the number of tiers", self.tiers.len() as f64, 1.0..=100.0, "1 to 100")?;
        let mut total = 0.0;
        for tier in &self.tiers {
            total += not_negative("a tier's share", tier.share)?;
            not_negative("a tier's delay", tier.delay)?;
            if let Station::Queues { class, count } = &tier.station {
                check("a tier's queues", f64::from(*count), 1.0..=1e6, "1 to 1,000,000")?;
                check("a queue's servers", f64::from(class.servers), 1.0..=1e4, "1 to 10,000")?;
                class.check_background()?;
            }
        }
        check("the sum of the tiers' shares", total, 1.0 - 1e-6..=1.0 + 1e-6, "1").map(|_| ())
    }

    /// A [`Node`] as tiers at its operating point at `rate` requests/s: memory, each group of
    /// devices, and other answers. Shares stay those of that load, δ becomes its mean, and link,
    /// workers and bursts are left out. [`Error::Unstable`] past the node's saturation.
    pub fn of_node(node: &Node, rate: f64) -> Result<Self, Error> {
        node.check()?;
        let at = node.operating(rate)?;
        let plain = |name: &str, share: f64, law: &Option<Empirical>| Tier {
            name: name.to_owned(),
            share,
            station: Station::Delay(law.clone()),
            delay: 0.0,
        };
        let mut tiers = vec![plain("memory", at.hit_ratio, &node.memory)];
        for (i, group) in node.groups.iter().enumerate() {
            let Some(class) = node.classes.get(group.class) else { continue };
            tiers.push(Tier {
                name: format!("devices {i}"),
                share: at.miss_ratio * f64::from(group.count) * group.share,
                station: Station::Queues { class: class.slower(group.factor)?, count: group.count },
                delay: node.delay.mean(),
            });
        }
        tiers.push(plain("other", node.other_share, &node.other));
        Ok(Tiers { tiers })
    }

    /// Load in requests/s at which the first tier to saturate is always busy. Infinite if no tier
    /// has a queue.
    pub fn saturation(&self) -> f64 {
        self.tiers.iter().map(Tier::saturation).fold(f64::INFINITY, f64::min)
    }

    /// The tier that saturates first; `None` if none saturates.
    pub fn breaks_first(&self) -> Option<&Tier> {
        let limited = self.tiers.iter().filter(|t| t.saturation().is_finite());
        limited.min_by(|a, b| a.saturation().total_cmp(&b.saturation()))
    }

    /// The confidence limit: load in requests/s at which the mean number at the queues of the first
    /// tier to get there is 1, as for [`Node::confidence_limit`]. Infinite if no tier has a queue.
    pub fn confidence_limit(&self) -> f64 {
        self.tiers.iter().map(Tier::confidence_limit).fold(f64::INFINITY, f64::min)
    }

    fn stable(&self, rate: f64) -> Result<(), Error> {
        self.check()?;
        not_negative("the request rate", rate)?;
        let saturation = self.saturation();
        if is_stable(rate, saturation) { Ok(()) } else { Err(Error::Unstable { rate, saturation }) }
    }

    /// The operating point at `rate` requests/s. [`Error::Unstable`] at or past saturation.
    pub fn operating(&self, rate: f64) -> Result<TiersOperating, Error> {
        self.stable(rate)?;
        let tiers: Vec<_> = self.tiers.iter().map(|t| t.operating(rate)).collect();
        let response_mean = tiers.iter().map(|t| t.share * t.response_mean).sum();
        Ok(TiersOperating { rate, response_mean, tiers })
    }

    /// P(T ≤ t) as a function of the load in requests/s, for CDFs at many loads. A tier past its
    /// saturation answers nothing in time; [`Tiers::cdf`] rejects such loads. Cost: some 0.1 ms for
    /// each tier, then microseconds for each load.
    pub fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<> {
        enum TierProbability {
            Fixed(f64),
            Queue(Box<ClassAt>, f64),
        }
        let at = |tier: &Tier| {
            let t = t_s - tier.delay;
            let at = match &tier.station {
                Station::Delay(None) => TierProbability::Fixed(if t >= 0.0 { 1.0 } else { 0.0 }),
                Station::Delay(Some(law)) => TierProbability::Fixed(law.cdf(t)),
                Station::Queues { class, count } => TierProbability::Queue(
                    Box::new(ClassAt::new(class, t)),
                    f64::from((*count).max(1)),
                ),
            };
            (tier.share, at)
        };
        let tiers: Vec<_> = self.tiers.iter().map(at).collect();
        move |rate| {
            let of = |(share, at): &(f64, TierProbability)| match at {
                TierProbability::Fixed(p) => share * p,
                TierProbability::Queue(law, count) => {
                    share * law.response_cdf(rate * share / count)
                }
            };
            tiers.iter().map(of).sum::<f64>().clamp(0.0, 1.0)
        }
    }

    /// P(T ≤ t) for each `t` in seconds at `rate` requests/s. [`Error::Unstable`] past saturation.
    /// Cost: some 0.1 ms for each t and tier.
    pub fn cdf(&self, rate: f64, times: &[f64]) -> Result<Vec<f64>, Error> {
        self.stable(rate)?;
        Ok(times.iter().map(|&t| self.within(t)(rate)).collect())
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) of requests does not exceed, at
    /// `rate` requests/s. Cost: some 60 CDFs.
    pub fn quantile(&self, rate: f64, p: f64) -> Result<f64, Error> {
        let mean = self.operating(rate)?.response_mean;
        quantile(p, mean.max(1e-6), |t| self.within(t)(rate))
    }

    /// The largest load in requests/s at which a share `share` of requests is answered within
    /// `within_s` seconds and no tier is saturated. [`Error::Unattainable`] if even an idle node
    /// does not. Infinite if no tier has a queue.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        self.check()?;
        not_negative("the time of an objective", within_s)?;
        check("the share of an objective", share, 0.0..=1.0, "0 to 1")?;
        let at = self.within(within_s);
        if at(0.0) < share {
            return Err(Error::Unattainable { share, within_s, best: at(0.0) });
        }
        let saturation = self.saturation();
        if saturation.is_infinite() {
            return Ok(saturation);
        }
        Ok(bisect(saturation, |rate| at(rate) >= share))
    }

    /// The factor on the share of the first tier if it has `factor` times the memory for each
    /// object.
    fn first_by(&self, law: &dyn HitLaw, factor: f64) -> f64 {
        self.tiers.first().map_or(1.0, |first| law.change(first.share, factor))
    }

    /// The same node whose first tier answers `factor` times as many requests, at most all; the
    /// other tiers share the rest in their former proportions.
    fn with_first(&self, factor: f64) -> Self {
        let mut changed = self.clone();
        let Some((first, others)) = changed.tiers.split_first_mut() else { return changed };
        let rest: f64 = others.iter().map(|t| t.share).sum();
        // Without other shares there is nothing to redistribute.
        if rest > 0.0 {
            let share = (first.share * factor).min(first.share + rest);
            let left = (first.share + rest - share) / rest;
            first.share = share;
            others.iter_mut().for_each(|t| t.share *= left);
        }
        changed
    }
}

/// A node of tiers is a server of a [`super::Cluster`], for example of unlike nodes, some of them
/// lost. A change of speed applies to all its queues.
impl Server for Tiers {
    fn check(&self) -> Result<(), Error> {
        Tiers::check(self)
    }

    fn stable(&self, rate: f64) -> Result<(), Error> {
        Tiers::stable(self, rate)
    }

    fn saturation(&self) -> f64 {
        Tiers::saturation(self)
    }

    fn confidence_limit(&self) -> f64 {
        Tiers::confidence_limit(self)
    }

    fn within(&self, t_s: f64) -> impl Fn(f64) -> f64 + use<> {
        Tiers::within(self, t_s)
    }

    fn with_catalogue(&self, factor: f64, law: impl HitLaw) -> Result<Tiers, Error> {
        positive("the factor of the catalogue", factor)?;
        Ok(self.with_first(self.first_by(&law, 1.0 / factor)))
    }

    fn with_memory(&self, factor: f64, law: impl HitLaw) -> Result<Tiers, Error> {
        positive("the factor of the memory", factor)?;
        Ok(self.with_first(self.first_by(&law, factor)))
    }

    fn with_speed(&self, factor: f64) -> Result<Tiers, Error> {
        positive("the factor of the speed", factor)?;
        let mut changed = self.clone();
        for tier in &mut changed.tiers {
            if let Station::Queues { class, .. } = &mut tier.station {
                *class = class.slower(1.0 / factor)?;
            }
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod tests;
