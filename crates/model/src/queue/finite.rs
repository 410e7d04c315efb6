//! Queues with room for a number of requests, which refuse the others: M/M/m/K, and M/G/m/m.

use crate::distribution::ServiceTime;
use crate::error::{Error, check, not_negative};

use super::departures::Departures;
use super::erlang::{erlang_b, servers_count};
use super::measures::Queue;
use super::mmm::service_rate;

/// The most requests that a finite queue holds: its states are computed one by one.
const ROOM_MAX: f64 = 1e6;

/// The M/M/m/K queue: `servers` servers, and room for `room` requests in all; one that finds it full is refused and lost.
///
/// P(n) ∝ aⁿ/n! up to m, then a geometric factor a/m; arrivals see these states, and those that are accepted the states
/// below K. All terms are positive, so that it is exact to rounding, at any load: losses keep it stable. Source: any text on
/// queues, for example R. Jain, "The Art of Computer Systems Performance Analysis" (1991), 31.4. Cost: K steps; a CDF as
/// many, and t·mµ.
///
/// Assumptions: Poisson arrivals, exponential service, equal servers, first come, first served. A client that tries again
/// after a refusal is another arrival, and retries are not independent: the real share of refusals is then larger.
///
/// ```
/// use model::queue::{Mmmk, Queue};
/// let queue = Mmmk::new(2.0, 1.0, 2, 6)?;
/// assert!((queue.throughput() - 1.692_307_692_307_692_3).abs() < 1e-12);
/// assert!((queue.blocking() - (1.0 - queue.throughput() / 2.0)).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Mmmk {
    arrival_rate: f64,
    blocking: f64,
    response: Departures,
}

impl Mmmk {
    /// Creates a queue from arrivals per second, services per second of one server, servers, and the requests that have
    /// room, waiting and in service: at least as many as servers.
    pub fn new(
        arrival_rate: f64,
        service_rate: f64,
        servers: u32,
        room: u32,
    ) -> Result<Self, Error> {
        let mu = self::service_rate(service_rate)?;
        let m = servers_count(servers)?;
        not_negative("the arrival rate", arrival_rate)?;
        check(
            "the room of a queue",
            f64::from(room),
            f64::from(m)..=ROOM_MAX,
            "at least as many as servers, at most 1e6",
        )?;
        let offered = arrival_rate / mu;
        check("the offered load", offered, 0.0..=1e12, "at most 1e12 busy servers")?;
        // Relative weights, kept within range by dividing through where they grow.
        let mut weights = Vec::with_capacity(room as usize + 1);
        let (mut weight, mut total) = (1.0f64, 1.0f64);
        weights.push(weight);
        for n in 1..=room {
            weight *= offered / f64::from(n.min(m));
            weights.push(weight);
            total += weight;
            if total > 1e200 {
                weights.iter_mut().for_each(|w| *w /= total);
                (weight, total) = (weight / total, 1.0);
            }
        }
        let blocking = weight / total;
        weights.pop();
        let accepted: f64 = weights.iter().sum();
        let mut ahead = vec![weights.iter().take(m as usize).sum::<f64>() / accepted];
        ahead.extend(weights.iter().skip(m as usize).map(|w| w / accepted));
        let response = Departures { service_s: 1.0 / mu, servers: f64::from(m), ahead };
        Ok(Mmmk { arrival_rate, blocking, response })
    }
}

impl Queue for Mmmk {
    fn throughput(&self) -> f64 {
        self.arrival_rate * (1.0 - self.blocking)
    }
    fn utilisation(&self) -> f64 {
        (self.throughput() * self.response.service_s / self.response.servers).min(1.0)
    }
    fn blocking(&self) -> f64 {
        self.blocking
    }
    fn waiting_mean(&self) -> f64 {
        self.response.waiting_mean()
    }
    fn waiting_variance(&self) -> f64 {
        self.response.waiting_variance()
    }
    fn response_mean(&self) -> f64 {
        self.response.mean()
    }
    fn response_variance(&self) -> f64 {
        self.response.variance()
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        self.response.waiting_cdf(t)
    }
    fn response_cdf(&self, t: f64) -> f64 {
        self.response.cdf(t)
    }
}

/// The M/G/m/m queue (Erlang B): nobody waits; a request that finds all servers busy is refused and lost.
///
/// The share refused is [`erlang_b`] for any law of service with this mean (Sevastyanov, 1957), and the response of the
/// others is their service. Assumptions as for [`Mmmk`], but for the law.
///
/// ```
/// use model::{distribution::Gamma, queue::{LossQueue, Queue}};
/// let queue = LossQueue::new(200.0, 25, Gamma::new(0.1, 3.0)?)?;
/// assert!((queue.blocking() - 0.050_221_777_890_794_6).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct LossQueue<D> {
    arrival_rate: f64,
    servers: f64,
    service: D,
    blocking: f64,
}

impl<D: ServiceTime> LossQueue<D> {
    /// Creates a queue from arrivals per second, servers and a law of service.
    pub fn new(arrival_rate: f64, servers: u32, service: D) -> Result<Self, Error> {
        not_negative("the arrival rate", arrival_rate)?;
        let blocking = erlang_b(servers_count(servers)?, arrival_rate * service.mean());
        Ok(LossQueue { arrival_rate, servers: f64::from(servers), service, blocking })
    }
}

impl<D: ServiceTime> Queue for LossQueue<D> {
    fn throughput(&self) -> f64 {
        self.arrival_rate * (1.0 - self.blocking)
    }
    fn utilisation(&self) -> f64 {
        (self.throughput() * self.service.mean() / self.servers).min(1.0)
    }
    fn blocking(&self) -> f64 {
        self.blocking
    }
    fn waiting_mean(&self) -> f64 {
        0.0
    }
    fn waiting_variance(&self) -> f64 {
        0.0
    }
    fn response_mean(&self) -> f64 {
        self.service.mean()
    }
    fn response_variance(&self) -> f64 {
        self.service.scv() * self.service.mean().powi(2)
    }
    fn waiting_cdf(&self, t: f64) -> f64 {
        f64::from(u8::from(t >= 0.0))
    }
    fn response_cdf(&self, t: f64) -> f64 {
        if t.is_nan() { 0.0 } else { self.service.cdf(t) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::Exponential;
    use crate::queue::Mmm;

    #[test]
    fn octave_agrees() {
        let Some(file) = crate::gold::json("octave/mmmk_a.json") else { return };
        let args: Vec<f64> =
            file["args"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let queue = Mmmk::new(args[0], args[1], args[2] as u32, args[3] as u32).unwrap();
        let out = |key: &str| file["out"][key].as_f64().unwrap();
        for (found, expected) in [
            (queue.utilisation(), out("U")),
            (queue.response_mean(), out("R")),
            (queue.number_mean(), out("Q")),
            (queue.throughput(), out("X")),
        ] {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
        }
    }

    #[test]
    fn room_for_all_is_m_m_m_and_for_none_is_erlang_b() {
        let (finite, whole) =
            (Mmmk::new(300.0, 100.0, 4, 400).unwrap(), Mmm::new(300.0, 100.0, 4).unwrap());
        assert!(finite.blocking() < 1e-40);
        for t in [0.001, 0.01, 0.03, 0.1] {
            assert!((finite.response_cdf(t) - whole.response_cdf(t)).abs() < 1e-10, "{t}");
            assert!((finite.waiting_cdf(t) - whole.waiting_cdf(t)).abs() < 1e-10, "{t}");
        }
        let none = Mmmk::new(300.0, 100.0, 4, 4).unwrap();
        let loss = LossQueue::new(300.0, 4, Exponential::new(0.01).unwrap()).unwrap();
        assert!((none.blocking() - erlang_b(4, 3.0)).abs() < 1e-14);
        assert!((none.response_cdf(0.02) - loss.response_cdf(0.02)).abs() < 1e-10);
    }

    #[test]
    fn overload_is_answered_and_nothing_overflows() {
        let queue = Mmmk::new(1e6, 1.0, 10, 100_000).unwrap();
        assert!((queue.throughput() - 10.0).abs() < 1e-6 && queue.utilisation() <= 1.0);
        assert!((queue.response_mean() / 10_000.0 - 1.0).abs() < 0.01, "{}", queue.response_mean());
        assert!(Mmmk::new(0.0, 1.0, 1, 1).unwrap().response_quantile(0.5).is_ok());
        assert!(Mmmk::new(1.0, 1.0, 3, 2).is_err() && Mmmk::new(f64::NAN, 1.0, 1, 2).is_err());
        assert!(Mmmk::new(1.0, 1.0, 0, 2).is_err() && Mmmk::new(1.0, 1.0, 1, 2_000_000).is_err());
    }
}
