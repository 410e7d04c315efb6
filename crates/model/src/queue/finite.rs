//! Queues with a limit: M/M/m/K (few places) and Engset's (few sources). Both are chains that gain and
//! lose one request at a time, so the states' probabilities are products of rates.

use crate::error::{Error, check};

use super::Queue;
use super::erlang::servers_count;
use super::mmm::service_rate;
use super::uniformised::Uniformised;

/// Places that a chain may have.
const PLACES_MAX: f64 = 1e6;

/// A chain of `places` + 1 states before `servers` servers: what M/M/m/K and Engset's model share.
#[derive(Clone, Debug, PartialEq)]
struct Chain {
    servers: f64,
    service_rate: f64,
    /// Probability of n in the system, at any time.
    number: Vec<f64>,
    /// Share of the arrivals that are refused.
    blocking: f64,
    waiting_mean: f64,
    waiting_variance: f64,
    waits: Uniformised,
    responds: Uniformised,
}

impl Chain {
    /// `arrivals(n)`: arrivals per second with n in the system, for n up to the places; not rising with n.
    fn new(
        servers: u32,
        service_rate: f64,
        places: usize,
        arrivals: impl Fn(usize) -> f64,
    ) -> Self {
        let m = f64::from(servers);
        let mut number = vec![0.0; places + 1];
        let ratio = |n: usize| arrivals(n) / (((n + 1) as f64).min(m) * service_rate);
        // From the likeliest state outwards nothing can overflow, and what underflows is nothing.
        let likeliest = (0..places).find(|&n| ratio(n) < 1.0).unwrap_or(places);
        number[likeliest] = 1.0;
        for n in likeliest..places {
            number[n + 1] = number[n] * ratio(n);
        }
        for n in (0..likeliest).rev() {
            number[n] = number[n + 1] / ratio(n);
        }
        let total: f64 = number.iter().sum();
        number.iter_mut().for_each(|p| *p /= total);
        // What an arrival meets is weighted by the rate of arrivals; an idle system's is what the first
        // one would meet.
        let rate = |n: usize| {
            if arrivals(0) > 0.0 { arrivals(n) } else { f64::from(u8::from(n < places)) }
        };
        let mut met: Vec<f64> = (0..=places).map(|n| number[n] * rate(n)).collect();
        let refused = met.pop().unwrap_or(0.0);
        let accepted: f64 = met.iter().sum();
        met.iter_mut().for_each(|p| *p /= accepted);
        let blocking = if arrivals(0) > 0.0 { refused / (refused + accepted) } else { 0.0 };
        Self::with(m, service_rate, number, blocking, &met)
    }

    /// With what an accepted request meets.
    fn with(m: f64, service_rate: f64, number: Vec<f64>, blocking: f64, met: &[f64]) -> Self {
        let free = met.len().min(m as usize);
        let (at_once, behind) = met.split_at(free);
        // Behind[k − 1]: the k-th departure brings the request into service.
        let rate = m * service_rate;
        let stays = (m - 1.0) / m;
        let mut waiting: Vec<f64> = behind.to_vec();
        for i in (1..waiting.len()).rev() {
            waiting[i - 1] += waiting[i];
        }
        let mut serving = at_once.iter().sum::<f64>();
        let mut responds = Vec::with_capacity(behind.len() + 1);
        for (left, enters) in waiting.iter().zip(behind) {
            responds.push(left + serving);
            serving = serving * stays + enters;
        }
        responds.push(serving);
        let (mut mean, mut square) = (0.0, 0.0);
        for (k, p) in behind.iter().enumerate() {
            let k = (k + 1) as f64;
            mean += p * k / rate;
            square += p * k / rate * ((k + 1.0) / rate);
        }
        Chain {
            servers: m,
            service_rate,
            number,
            blocking,
            waiting_mean: mean,
            waiting_variance: (square - mean * mean).max(0.0),
            waits: Uniformised::new(rate, waiting, 0.0),
            responds: Uniformised::new(rate, responds, stays),
        }
    }

    /// Mean number of busy servers.
    fn busy(&self) -> f64 {
        self.number.iter().enumerate().map(|(n, p)| (n as f64).min(self.servers) * p).sum()
    }

    fn number_probability(&self, n: u32) -> f64 {
        self.number.get(n as usize).copied().unwrap_or(0.0)
    }
}

/// Writes out [`Queue`] for a type with a field `chain`.
macro_rules! queue_of_chain {
    ($name:ty) => {
        impl Queue for $name {
            fn throughput(&self) -> f64 {
                self.chain.busy() * self.chain.service_rate
            }
            fn utilisation(&self) -> f64 {
                (self.chain.busy() / self.chain.servers).min(1.0)
            }
            fn blocking(&self) -> f64 {
                self.chain.blocking
            }
            fn waiting_mean(&self) -> f64 {
                self.chain.waiting_mean
            }
            fn waiting_variance(&self) -> f64 {
                self.chain.waiting_variance
            }
            fn response_mean(&self) -> f64 {
                self.chain.waiting_mean + 1.0 / self.chain.service_rate
            }
            fn response_variance(&self) -> f64 {
                self.chain.waiting_variance + self.chain.service_rate.powi(-2)
            }
            fn waiting_cdf(&self, t: f64) -> f64 {
                self.chain.waits.cdf(t)
            }
            fn response_cdf(&self, t: f64) -> f64 {
                self.chain.responds.cdf(t)
            }
        }
    };
}

/// The M/M/m/K queue: `servers` servers and `places` places in all, waiting and in service; a request that
/// finds none is refused. With one server it is M/M/1/K; with as many places as servers Erlang's loss
/// system. Any load is stable.
///
/// P(n) is proportional to the product of λ/(min(i, m)µ) for i = 1 … n. Times are those of accepted requests.
/// Source: G. Bolch, S. Greiner, H. de Meer, K. Trivedi, "Queueing Networks and Markov Chains"; the laws of the
/// times from what an accepted request meets, k departures of rate mµ and then its own service, by
/// uniformisation: exact to rounding.
///
/// It assumes Poisson arrivals, exponential service, and that who is refused does not come again: clients that try
/// again at once bring more load than they are counted for. Cost: `places` operations for
/// [`Mmmk::new`] and at most as many for each CDF.
///
/// ```
/// use model::queue::{Mmmk, Queue};
/// let bounded = Mmmk::new(2.0, 1.0, 2, 6)?;
/// assert!((bounded.throughput() - 1.692_307_692_307_7).abs() < 1e-12);
/// assert!((bounded.response_mean() - 1.909_090_909_090_9).abs() < 1e-12);
/// assert!((bounded.blocking() - 2.0 / 13.0).abs() < 1e-12);
/// assert!(bounded.response_quantile(0.99)? < 9.0);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mmmk {
    chain: Chain,
}

impl Mmmk {
    /// With arrivals per second (refused ones too), services per second of one server, servers, and places:
    /// at least as many as servers.
    pub fn new(
        arrival_rate: f64,
        service_rate: f64,
        servers: u32,
        places: u32,
    ) -> Result<Self, Error> {
        check("the arrival rate", arrival_rate, 0.0..=1e15, "0 to 1e15 per second")?;
        let service_rate = self::service_rate(service_rate)?;
        let m = f64::from(servers_count(servers)?);
        let must = "at least the servers, at most 1,000,000";
        check("the number of places", f64::from(places), m..=PLACES_MAX, must)?;
        let chain = Chain::new(servers, service_rate, places as usize, |_| arrival_rate);
        Ok(Mmmk { chain })
    }

    /// Probability of `n` requests in the system.
    pub fn number_probability(&self, n: u32) -> f64 {
        self.chain.number_probability(n)
    }
}

queue_of_chain!(Mmmk);

/// Engset's model: requests come from a finite number of sources, each of which, when it has none in the
/// system, sends one after an exponential time; `servers` exponential servers.
///
/// [`Engset::loss`] refuses a request that finds all servers busy, and its source starts anew;
/// [`Engset::delay`] lets it wait (the "machine repairman": then it is a closed system, and the
/// interactive law R = N/X − Z holds). A request meets what the other N − 1 sources make.
/// With n in the system the N − n other sources send at rate (N − n)·a, which makes the same products as in
/// [`Mmmk`]. Source: L. Kleinrock, "Queueing Systems" I (1975), on finite populations. [`Queue::blocking`] is the
/// share of *requests* refused (call congestion), [`Engset::time_congestion`] the share of *time* with all
/// places taken; octave's `engset` is the first. The loss model holds for any laws of service and idle
/// time with these means; the delay model needs both to be exponential. Cost as [`Mmmk`].
///
/// ```
/// use model::queue::{Engset, Queue};
/// let lines = Engset::loss(20, 0.3, 1.0, 8)?;
/// assert!((lines.blocking() - 0.034_517_912_084).abs() < 1e-11);
/// let clients = Engset::delay(20, 0.3, 1.0, 8)?;
/// let interactive = 20.0 / clients.throughput() - 1.0 / 0.3;
/// assert!((clients.response_mean() - interactive).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Engset {
    chain: Chain,
}

impl Engset {
    /// With sources, requests per second of a source that has none in the system, services per second of
    /// one server, and servers; no waiting.
    pub fn loss(
        sources: u32,
        source_rate: f64,
        service_rate: f64,
        servers: u32,
    ) -> Result<Self, Error> {
        Self::new(sources, source_rate, service_rate, servers, servers.min(sources))
    }

    /// The same with waiting: no request is refused.
    pub fn delay(
        sources: u32,
        source_rate: f64,
        service_rate: f64,
        servers: u32,
    ) -> Result<Self, Error> {
        Self::new(sources, source_rate, service_rate, servers, sources)
    }

    fn new(
        sources: u32,
        source_rate: f64,
        service_rate: f64,
        servers: u32,
        places: u32,
    ) -> Result<Self, Error> {
        check("the number of sources", f64::from(sources), 1.0..=PLACES_MAX, "1 to 1,000,000")?;
        check("the rate of a source", source_rate, 0.0..=1e12, "0 to 1e12 per second")?;
        let service_rate = self::service_rate(service_rate)?;
        servers_count(servers)?;
        let arrivals = |n: usize| (f64::from(sources) - n as f64) * source_rate;
        Ok(Engset { chain: Chain::new(servers, service_rate, places as usize, arrivals) })
    }

    /// Probability of `n` requests in the system.
    pub fn number_probability(&self, n: u32) -> f64 {
        self.chain.number_probability(n)
    }

    /// Share of time with all places taken.
    pub fn time_congestion(&self) -> f64 {
        self.chain.number.last().copied().unwrap_or(0.0)
    }
}

queue_of_chain!(Engset);
