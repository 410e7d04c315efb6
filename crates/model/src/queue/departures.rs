//! The response time of a request that waits for a random number of departures before its own service.
//!
//! What finite queues and closed networks have in common: service is exponential, so that departures come at rate mµ
//! while all m servers are busy, whatever has been served of each request.

/// The law of such a time: K departures at rate m/`service_s`, then an exponential time of mean `service_s`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Departures {
    /// Mean service time, seconds.
    pub(crate) service_s: f64,
    /// m.
    pub(crate) servers: f64,
    /// P(K = 0), P(K = 1), …
    pub(crate) ahead: Vec<f64>,
}

impl Departures {
    /// The power moment of K.
    fn moment(&self, power: i32) -> f64 {
        self.ahead.iter().enumerate().map(|(k, p)| (k as f64).powi(power) * p).sum()
    }

    /// Mean in seconds.
    pub(crate) fn mean(&self) -> f64 {
        self.service_s + self.waiting_mean()
    }

    /// Mean wait in seconds.
    pub(crate) fn waiting_mean(&self) -> f64 {
        self.service_s * self.moment(1) / self.servers
    }

    /// Variance of the wait in seconds²: a sum of K exponential times, E[K]/r² + Var[K]/r².
    pub(crate) fn waiting_variance(&self) -> f64 {
        let (first, second) = (self.moment(1), self.moment(2));
        let step = self.service_s / self.servers;
        step * step * (first + second - first * first)
    }

    /// Variance in seconds².
    pub(crate) fn variance(&self) -> f64 {
        self.service_s * self.service_s + self.waiting_variance()
    }

    /// P(T ≤ t seconds), to some 1e-12. O(customers + m + t·m/service time).
    pub(crate) fn cdf(&self, t: f64) -> f64 {
        self.within(t, true)
    }

    /// P(wait ≤ t seconds), likewise.
    pub(crate) fn waiting_cdf(&self, t: f64) -> f64 {
        match t {
            t if t.is_nan() || t < 0.0 => 0.0,
            0.0 => self.ahead.first().copied().unwrap_or(1.0).min(1.0),
            t => self.within(t, false),
        }
    }

    /// By uniformisation: departures come at rate mµ. After j of them, a customer with k ≤ j ahead is in service, and each
    /// further step ends it with probability 1/m. All terms are positive.
    fn within(&self, t: f64, with_service: bool) -> f64 {
        if t.is_nan() || t <= 0.0 {
            return 0.0;
        }
        let steps = t / self.service_s * self.servers;
        let count = self.ahead.len() as f64;
        // Past this, less than 1e-16 is left: the queue is gone, and 40 service times more have passed.
        if steps > 2.0 * count + 40.0 * count.sqrt() + 80.0 * self.servers + 200.0 {
            return 1.0;
        }
        let stays = 1.0 - 1.0 / self.servers;
        let spread = 9.0 * steps.sqrt() + 40.0;
        let (first, last) = ((steps - spread).max(0.0) as usize, (steps + spread) as usize);
        let (mut waiting, mut serving, mut above, mut total) = (1.0f64, 0.0, 0.0, 0.0);
        let mut log_factorial = 0.0f64;
        for j in 0..=last {
            let enters = self.ahead.get(j).copied().unwrap_or(0.0);
            waiting = (waiting - enters).max(0.0);
            serving = serving * stays + enters;
            if j > 0 {
                log_factorial += (j as f64).ln();
            }
            if j >= first {
                let weight = (j as f64 * steps.ln() - steps - log_factorial).exp();
                above += weight * (waiting + if with_service { serving } else { 0.0 });
                total += weight;
            }
        }
        // The weights of the window sum to 1 up to the rounding of large logarithms.
        (1.0 - above / total).clamp(0.0, 1.0)
    }
}
