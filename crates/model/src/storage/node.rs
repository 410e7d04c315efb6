//! Concertina's model of a node: memory and devices with their measured laws.

use crate::bisection::{bisect, quantile};
use crate::distribution::{Empirical, ServiceTime};
use crate::error::{Error, check, is_stable, not_negative, positive};
use crate::queue::ArrivalLaw;

use super::class::Class;
use super::delay::Delay;
use super::front::{FrontOperating, Limit, Link};
use super::hit_ratio::HitRatio;
use super::levels::Levels;

/// Devices of one class with nearly equal load. [`Node`] has an example.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceGroup {
    /// Index of the class.
    pub class: usize,
    /// How many devices.
    pub count: u32,
    /// Share of all device reads that goes to each of them.
    pub share: f64,
    /// Their mean service time over that of the class.
    pub factor: f64,
}

/// A storage node. Its fields are public, for what-if questions; [`Node::check`] validates them.
///
/// P(T ≤ t) = q·F_memory(t) + o·F_other(t) + (1 − q − o)·Σᵢ shareᵢ·(Fᵢ ∗ δ)(t). Memory answers with
/// probability q, and neither memory nor a device with probability o. All other requests wait at
/// one device: an M/G/1 queue with the measured service law (M/G/m if it serves m reads at once),
/// possibly with other work ([`super::Background`]). Gateway and network add δ, which has a law
/// ([`Delay`]). Replies may share a link, and requests may share workers ([`Link`]).
///
/// A request for a key that is being read is joined to that read. If reads took no time, memory
/// would have answered it, so joins replace hits, not reads: the devices get λ(1 − o − q₀ + αλ)
/// reads/s whatever their queues, and q = q₀ − αλ − J(L), with J the joined share and L the mean
/// number in all device queues. J(L) = j·k·ln(1 + L/k): j for each read in short queues, less
/// beyond the knee k, because requests that closely follow each other are joined first.
///
/// Source: an extension of the published model ([`super::Spotify`]). Assumptions: a joined request
/// waits for a whole read (not for the rest of one); devices are independent; their
/// service depends on the load only as [`super::ByLoad`] says, and their other work does not. Cost: [`Node::at_time`], [`NodeAt::cdf`].
///
/// ```
/// use model::distribution::{Empirical, Piece};
/// use model::queue::ArrivalLaw;
/// use model::storage::{Class, Delay, DeviceGroup, HitRatio, Node};
/// let service = Empirical::from_pieces(vec![Piece { centre: 0.008, half_width: 0.004, share: 1.0 }])?;
/// let node = Node {
///     hit_ratio: HitRatio::new(0.8, 0.0)?,
///     memory: None,
///     other_share: 0.0,
///     other: None,
///     delay: Delay::constant(0.0003),
///     joining: 0.0,
///     joining_knee: f64::INFINITY,
///     link: None,
///     workers: None,
///     arrivals: ArrivalLaw::Poisson,
///     classes: vec![Class::new(service, 1)],
///     groups: vec![DeviceGroup { class: 0, count: 4, share: 0.25, factor: 1.0 }],
/// };
/// let now = node.largest_rate(0.020, 0.99)?;
/// let more_memory = Node { hit_ratio: HitRatio::new(0.9, 0.0)?, ..node };
/// assert!(more_memory.largest_rate(0.020, 0.99)? > 2.0 * now);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The share that memory would answer if reads took no time.
    pub hit_ratio: HitRatio,
    /// Law of the responses of memory, as the client sees them; `None` for 0.
    pub memory: Option<Empirical>,
    /// Share of requests that neither memory nor a device answers (origin, replica, no such key).
    pub other_share: f64,
    /// Law of their responses; `None` for 0.
    pub other: Option<Empirical>,
    /// Time that gateway and network add to a device's response.
    pub delay: Delay,
    /// j: share of requests that are joined to a read, for each read in short device queues.
    pub joining: f64,
    /// k: reads in the device queues beyond which the joined share grows less; infinite for no
    /// knee.
    pub joining_knee: f64,
    /// The link that all replies share, if known.
    pub link: Option<Link>,
    /// Number of workers, if limited: a request holds a worker for its whole response.
    pub workers: Option<u32>,
    /// The law of arrivals at the node. Each device gets a random part of the requests, so in bursts its arrival rate has
    /// the same relative variation as the node's, and with independent times its own are nearer to a Poisson stream's.
    pub arrivals: ArrivalLaw,
    /// Kinds of devices.
    pub classes: Vec<Class>,
    /// The devices.
    pub groups: Vec<DeviceGroup>,
}

/// The operating point of a node at a load, returned by [`Node::operating`]. Shares and times are
/// means over requests; utilisations, rates and lengths are means over time.
#[derive(Clone, Debug, PartialEq)]
pub struct Operating {
    /// Load in requests/s.
    pub rate: f64,
    /// Share answered from memory.
    pub hit_ratio: f64,
    /// Share that a device answers.
    pub miss_ratio: f64,
    /// Reads per second of all devices.
    pub device_rate: f64,
    /// Share of requests that were joined to a read.
    pub joined_share: f64,
    /// Utilisation of a device, on average.
    pub utilisation_mean: f64,
    /// Utilisation of the busiest device.
    pub utilisation_max: f64,
    /// Mean number waiting and in service at a device, on average.
    pub queue_length_mean: f64,
    /// Mean response time of all requests, seconds.
    pub response_mean: f64,
    /// Link and workers.
    pub front: FrontOperating,
    /// The operating points, under Poisson arrivals, of which the responses are made, each with its share of the
    /// requests: the loads that take turns in bursts, or the one with the waits of other independent arrivals. Empty if
    /// arrivals are Poisson.
    pub levels: Vec<(f64, Operating)>,
}

impl Node {
    /// Checks all fields, and that the shares of the devices add to 1 (within 1e-6).
    pub fn check(&self) -> Result<(), Error> {
        check("the share of other answers", self.other_share, 0.0..=1.0, "0 to 1")?;
        self.delay.check()?;
        self.check_front()?;
        not_negative("the joining factor", self.joining)?;
        if self.joining_knee.is_nan() || self.joining_knee <= 0.0 {
            positive("the joining knee", self.joining_knee)?;
        }
        let mut total = 0.0;
        for group in &self.groups {
            check(
                "a group's class",
                group.class as f64,
                0.0..=self.classes.len() as f64 - 1.0,
                "the index of a class",
            )?;
            check("the number of devices", f64::from(group.count), 1.0..=1e6, "1 to 1,000,000")?;
            positive("a device's factor", group.factor)?;
            total += f64::from(group.count) * not_negative("a device's share", group.share)?;
        }
        check("the sum of the devices' shares", total, 1.0 - 1e-6..=1.0 + 1e-6, "1")?;
        for class in &self.classes {
            check("a device's servers", f64::from(class.servers), 1.0..=1e4, "1 to 10,000")?;
            class.check_background()?;
        }
        Ok(())
    }

    /// Devices.
    pub fn devices(&self) -> u32 {
        self.groups.iter().map(|g| g.count).sum()
    }

    /// A group's class, mean service time and servers.
    pub(super) fn service(&self, group: &DeviceGroup) -> Option<(&Class, f64, f64)> {
        let class = self.classes.get(group.class)?;
        Some((class, class.service.mean() * group.factor, f64::from(class.servers.max(1))))
    }

    /// Reads/s at which the busiest device is always busy.
    fn device_saturation(&self) -> f64 {
        let limit = |g: &DeviceGroup| {
            let (class, mean, servers) = self.service(g)?;
            let left = (servers - class.other_busy(g.factor)).max(0.0);
            Some(class.rate_of(left, mean) / g.share)
        };
        self.groups.iter().filter_map(limit).fold(f64::INFINITY, f64::min)
    }

    /// Sums over the devices at `reads` per second: numbers in the queues, and mean response
    /// seconds.
    fn at_devices(&self, reads: f64) -> (f64, f64) {
        let (mut number, mut response) = (0.0, 0.0);
        for group in self.groups.iter().filter(|group| group.share > 0.0) {
            if let Some((class, mean, _)) = self.service(group) {
                let rate = reads * group.share;
                let by_load = class.factor_at(rate);
                let time = mean * by_load + class.waiting_mean(rate, group.factor * by_load);
                let count = f64::from(group.count);
                number += count * rate * time;
                response += count * group.share * time;
            }
        }
        (number, response)
    }

    /// Share of requests that memory would answer if reads took no time, and reads for a request.
    fn shares(&self, rate: f64) -> (f64, f64) {
        let hit = self.hit_ratio.at_rate(rate).min(1.0 - self.other_share);
        (hit, (1.0 - self.other_share - hit).max(0.0))
    }

    /// Share of requests that are joined with `number` reads in the device queues.
    fn joined(&self, number: f64) -> f64 {
        if self.joining_knee.is_finite() {
            self.joining * self.joining_knee * (number / self.joining_knee).ln_1p()
        } else {
            self.joining * number
        }
    }

    /// The smallest load in requests/s that brings `reads` per second.
    fn rate_for_reads(&self, reads: f64) -> f64 {
        let brought = |rate: f64| rate * self.shares(rate).1;
        let mut high = 1.0;
        while brought(high) < reads {
            high *= 2.0;
            if high > 1e15 {
                return f64::INFINITY;
            }
        }
        bisect(high, |rate| brought(rate) < reads)
    }

    /// Load in requests/s at which the busiest device, the link or the workers are always busy.
    /// Infinite without misses and such limits.
    pub fn saturation(&self) -> f64 {
        self.breaks_first().map_or(f64::INFINITY, |(rate, _)| rate)
    }

    /// The resource that saturates first, and its load in requests/s; `None` if none saturates.
    pub fn breaks_first(&self) -> Option<(f64, Limit)> {
        let devices = self.rate_for_reads(self.device_saturation());
        let front = self.front_saturation(devices, |rate| self.behind_front(rate));
        // If only the infinite queue of a saturated device holds all workers, the device is the
        // limit.
        let front = front.map(|(rate, limit)| match limit {
            Limit::Workers if rate > 0.99 * devices => (rate, Limit::Devices),
            _ => (rate, limit),
        });
        let devices = devices.is_finite().then_some((devices, Limit::Devices));
        devices.into_iter().chain(front).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The confidence limit: load in requests/s at which the mean number waiting and in service at
    /// a device (the mean over devices) is 1. Infinite without misses.
    pub fn confidence_limit(&self) -> f64 {
        let saturation = self.saturation();
        if self.arrivals != ArrivalLaw::Poisson && saturation.is_finite() {
            let short = |o: Operating| o.queue_length_mean < 1.0;
            return bisect(saturation, |rate| self.operating(rate).is_ok_and(short));
        }
        let devices = f64::from(self.devices());
        let reads = bisect(self.device_saturation(), |x| self.at_devices(x).0 < devices);
        self.rate_for_reads(reads).min(saturation)
    }

    /// The operating point at `rate` requests/s. [`Error::Unstable`] at or past saturation; with
    /// bursts also if the higher of their loads is. Cost: microseconds.
    pub fn operating(&self, rate: f64) -> Result<Operating, Error> {
        self.under_arrivals(self.steady(rate)?)
    }

    /// [`Node::operating`] at any load: past saturation queues are infinite.
    pub(crate) fn operating_unchecked(&self, rate: f64) -> Operating {
        self.operating(rate).unwrap_or_else(|_| self.overloaded(rate))
    }

    /// The operating point for a Poisson stream of requests.
    pub(super) fn steady(&self, rate: f64) -> Result<Operating, Error> {
        not_negative("the request rate", rate)?;
        let unstable = || Error::Unstable { rate, saturation: self.saturation() };
        if !is_stable(rate * self.shares(rate).1, self.device_saturation()) {
            return Err(unstable());
        }
        let mut at = self.behind_front(rate);
        at.front = self.front_operating(&at);
        let busy = [at.front.link_utilisation, at.front.workers_utilisation];
        if busy.iter().any(|busy| !is_stable(*busy, 1.0)) {
            return Err(unstable());
        }
        at.response_mean += at.front.added(at.miss_ratio);
        Ok(at)
    }

    /// Mean and maximum utilisation of the devices at `reads` per second; at most 1.
    fn busy(&self, reads: f64) -> (f64, f64) {
        let (mut busy, mut busiest) = (0.0, 0.0f64);
        for group in &self.groups {
            if let Some((class, mean, servers)) = self.service(group) {
                let other = class.other_busy(group.factor);
                let rate = reads * group.share;
                let rho = ((class.busy(rate, mean) + other) / servers).min(1.0);
                busy += rho * f64::from(group.count);
                busiest = busiest.max(rho);
            }
        }
        (busy / f64::from(self.devices().max(1)), busiest)
    }

    /// The operating point of memory and devices below their saturation, without link and workers.
    fn behind_front(&self, rate: f64) -> Operating {
        self.behind_front_with(rate, 1.0)
    }

    /// The same if the devices' queues are those of `queue_factor` times the load, where arrivals make them longer or
    /// shorter than a Poisson stream does. By Little's law the number at the devices is that of the real load.
    pub(super) fn behind_front_with(&self, rate: f64, queue_factor: f64) -> Operating {
        let (hit_at_once, read_share) = self.shares(rate);
        let device_rate = rate * read_share;
        let (number, device_response) = self.at_devices(device_rate * queue_factor);
        let number = number / queue_factor;
        let joined_share = self.joined(number).min(hit_at_once).max(0.0);
        let hit_ratio = hit_at_once - joined_share;
        let miss_ratio = read_share + joined_share;
        let devices = f64::from(self.devices().max(1));
        let (busy, busiest) = self.busy(device_rate);
        let mean = |law: &Option<Empirical>| law.as_ref().map_or(0.0, ServiceTime::mean);
        Operating {
            rate,
            hit_ratio,
            miss_ratio,
            device_rate,
            joined_share,
            utilisation_mean: busy,
            utilisation_max: busiest,
            queue_length_mean: number / devices,
            response_mean: hit_ratio * mean(&self.memory)
                + self.other_share * mean(&self.other)
                + miss_ratio * (self.delay.mean() + device_response),
            front: FrontOperating::default(),
            levels: Vec::new(),
        }
    }

    /// The operating point past saturation: queues are infinite and devices never answer in time;
    /// past the saturation of link or workers nothing is answered in time.
    fn overloaded(&self, rate: f64) -> Operating {
        let (hit_ratio, miss_ratio) = self.shares(rate);
        let (busy, busiest) = self.busy(rate * miss_ratio);
        Operating {
            rate,
            hit_ratio,
            miss_ratio,
            device_rate: f64::INFINITY,
            joined_share: 0.0,
            utilisation_mean: busy,
            utilisation_max: busiest,
            queue_length_mean: f64::INFINITY,
            response_mean: f64::INFINITY,
            front: self.front_overloaded(rate),
            levels: Vec::new(),
        }
    }

    /// The node's transforms at one time, for CDFs at many loads. Cost: some 0.1 ms for each class
    /// and distinct factor; a millisecond for a class of several servers, whose queues are solved
    /// at the first time (10 ms to 0.3 s), and kept by the class and its clones. With a link or
    /// workers 25 times that.
    pub fn at_time(&self, t: f64) -> NodeAt {
        self.at_by(t, None)
    }

    /// [`Node::at_time`] for a nearly equal node (a replicate of a model): the excess of M/G/m over its
    /// plain form is taken from `other`, at the same time. Cost: as for one server.
    pub(crate) fn at_beside(&self, other: &NodeAt) -> NodeAt {
        self.at_by(other.t, Some(other))
    }

    /// The same at a nearly equal time.
    pub(crate) fn at_time_beside(&self, t: f64, other: &NodeAt) -> NodeAt {
        self.at_by(t, Some(other))
    }

    fn at_by(&self, t: f64, other: Option<&NodeAt>) -> NodeAt {
        let mut at = self.behind_front_at(t, other);
        if self.link.is_some() || self.workers.is_some() {
            let earlier = |k: usize| {
                let t = t * (1.0 - k as f64 / FRONT_PIECES as f64);
                self.behind_front_at(t, other.and_then(|o| o.earlier.get(k - 1)))
            };
            at.earlier = (1..=FRONT_PIECES).map(earlier).collect();
        }
        at
    }

    fn behind_front_at(&self, t: f64, other: Option<&NodeAt>) -> NodeAt {
        let response = |law: &Option<Empirical>| law.as_ref().map_or(1.0, |law| law.cdf(t));
        let mut laws: Vec<(usize, f64, Levels)> = Vec::new();
        let mut groups = Vec::new();
        for group in &self.groups {
            let Some(class) = self.classes.get(group.class) else { continue };
            let same = |l: &&(usize, f64, Levels)| l.0 == group.class && l.1 == group.factor;
            let known = laws.iter().position(|l| same(&l));
            let index = known.unwrap_or_else(|| {
                let other = other.and_then(|o| o.laws.iter().find(same)).map(|l| &l.2);
                let law = Levels::new(class, t, &self.delay, group.factor, other);
                laws.push((group.class, group.factor, law));
                laws.len() - 1
            });
            groups.push((index, *group));
        }
        NodeAt {
            t,
            memory: response(&self.memory),
            other: response(&self.other),
            laws,
            groups,
            other_share: self.other_share,
            earlier: Vec::new(),
        }
    }

    /// P(T ≤ t) for each `t` in seconds at `rate` requests/s. [`Error::Unstable`] past saturation.
    /// Cost: some 0.1 ms for each t.
    pub fn cdf(&self, rate: f64, times: &[f64]) -> Result<Vec<f64>, Error> {
        let operating = self.operating(rate)?;
        Ok(times.iter().map(|&t| self.at_time(t).cdf(&operating)).collect())
    }

    /// The response time in seconds that a share `p` (0 ≤ p < 1) of requests does not exceed, at
    /// `rate` requests/s. Cost: some 60 CDFs.
    pub fn quantile(&self, rate: f64, p: f64) -> Result<f64, Error> {
        let operating = self.operating(rate)?;
        quantile(p, operating.response_mean.max(1e-6), |t| self.at_time(t).cdf(&operating))
    }

    /// The largest load in requests/s at which a share `share` of requests is answered within
    /// `within_s` seconds. [`Error::Unattainable`] if even an idle node does not. Infinite if
    /// memory answers all. Cost: one [`Node::at_time`] and a bisection.
    pub fn largest_rate(&self, within_s: f64, share: f64) -> Result<f64, Error> {
        not_negative("the time of an objective", within_s)?;
        check("the share of an objective", share, 0.0..=1.0, "0 to 1")?;
        self.largest_rate_by(&self.at_time(within_s), within_s, share)
    }

    /// [`Node::largest_rate`], given the [`NodeAt`] at that time.
    pub(crate) fn largest_rate_by(
        &self,
        at: &NodeAt,
        within_s: f64,
        share: f64,
    ) -> Result<f64, Error> {
        let holds = |rate: f64| self.operating(rate).is_ok_and(|o| at.cdf(&o) >= share);
        if !holds(0.0) {
            let best = self.operating(0.0).map_or(0.0, |o| at.cdf(&o));
            return Err(Error::Unattainable { share, within_s, best });
        }
        let saturation = self.saturation();
        if saturation.is_infinite() { Ok(saturation) } else { Ok(bisect(saturation, holds)) }
    }
}

/// A [`Node`] at one time t, for CDFs at many loads ([`Node::at_time`], [`NodeAt::cdf`]).
#[derive(Clone, Debug)]
pub struct NodeAt {
    t: f64,
    memory: f64,
    other: f64,
    other_share: f64,
    laws: Vec<(usize, f64, Levels)>,
    groups: Vec<(usize, DeviceGroup)>,
    /// The part behind link and workers, at t·(1 − k/[`FRONT_PIECES`]) for k from 1; empty without
    /// such limits.
    earlier: Vec<NodeAt>,
}

/// Number of times at which the CDF of responses is evaluated to add the wait for link and workers.
pub(crate) const FRONT_PIECES: usize = 24;

impl NodeAt {
    /// Replaces the devices. Their classes and factors must be among the known ones; others are
    /// ignored.
    pub(crate) fn set_groups(&mut self, groups: &[DeviceGroup]) {
        let laws = &self.laws;
        let of = |group: &DeviceGroup| {
            let known = laws.iter().position(|l| l.0 == group.class && l.1 == group.factor);
            known.map(|law| (law, *group))
        };
        self.groups.clear();
        self.groups.extend(groups.iter().filter_map(of));
        self.earlier.iter_mut().for_each(|at| at.set_groups(groups));
    }

    /// P(T ≤ t) at an operating point. Cost: a microsecond for each group of devices; 25 times that
    /// with a link or workers, and twice with bursts.
    pub fn cdf(&self, operating: &Operating) -> f64 {
        if operating.levels.is_empty() {
            return self.steady_cdf(operating);
        }
        let levels = operating.levels.iter();
        levels.map(|(requests, level)| requests * self.steady_cdf(level)).sum()
    }

    fn steady_cdf(&self, operating: &Operating) -> f64 {
        let at_once = self.behind_front(operating);
        if self.earlier.is_empty() {
            return (at_once.besides + at_once.devices).clamp(0.0, 1.0);
        }
        let earlier = self.earlier.iter().map(|at| at.behind_front(operating));
        let all: Vec<BehindFront> = std::iter::once(at_once).chain(earlier).collect();
        let besides: Vec<f64> = all.iter().map(|one| one.besides).collect();
        let devices: Vec<f64> = all.iter().map(|one| one.devices).collect();
        let front = &operating.front;
        let within = front.after(front.wait_mean, self.t, &besides)
            + front.after(front.device_wait_mean, self.t, &devices);
        within.clamp(0.0, 1.0)
    }

    fn behind_front(&self, operating: &Operating) -> BehindFront {
        if self.t.is_nan() || self.t < 0.0 {
            return BehindFront { besides: 0.0, devices: 0.0 };
        }
        let devices: f64 = self
            .groups
            .iter()
            .map(|(law, group)| {
                let rate = operating.device_rate * group.share;
                f64::from(group.count) * group.share * self.laws[*law].2.response_cdf(rate)
            })
            .sum();
        let besides = operating.hit_ratio * self.memory + self.other_share * self.other;
        BehindFront { besides, devices: operating.miss_ratio * devices }
    }
}

/// Shares of all requests that are answered within a time, without link and workers.
struct BehindFront {
    /// By memory and others.
    besides: f64,
    /// By devices.
    devices: f64,
}
