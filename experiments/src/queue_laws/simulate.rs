//! First come, first served, request by request: what the formulas of `model::queue` are compared with.
//!
//! Each request goes to the server that is free first (J. Kiefer and J. Wolfowitz, "On the theory of queues
//! with many servers", Transactions of the AMS 78 (1955)); with one server this is Lindley's recursion. So no
//! list of events is kept, and nothing is approximated. No code is shared with the formulas.
//!
//! Cost: some 20 to 60 ns for each request, of which drawing two numbers is the most. Wrong for other
//! orders of service, and for servers of different speeds.

use rand::rngs::Xoshiro256PlusPlus;
use rand_distr::{Distribution as _, Exp, Gamma, LogNormal, StandardUniform};

/// The generator of all simulations.
pub type Random = Xoshiro256PlusPlus;

/// A law to draw times from.
#[derive(Clone, Copy, Debug)]
pub enum Draw {
    /// Exponential.
    Exponential(Exp<f64>),
    /// Gamma; Erlang where its shape is whole.
    Gamma(Gamma<f64>),
    /// Lognormal.
    Lognormal(LogNormal<f64>),
    /// Exponential, of the first mean with the probability, else of the second.
    Hyperexponential { share: f64, means: [f64; 2] },
}

impl Draw {
    /// One time.
    #[inline]
    pub fn draw(&self, random: &mut Random) -> f64 {
        match self {
            Draw::Exponential(law) => law.sample(random),
            Draw::Gamma(law) => law.sample(random),
            Draw::Lognormal(law) => law.sample(random),
            Draw::Hyperexponential { share, means } => {
                let uniform: f64 = StandardUniform.sample(random);
                let time: f64 = rand_distr::Exp1.sample(random);
                time * means[usize::from(uniform >= *share)]
            }
        }
    }
}

/// Servers with one line before them.
#[derive(Clone, Debug)]
pub struct Servers {
    /// When each is free, in ascending order.
    free: Vec<f64>,
    now: f64,
}

impl Servers {
    /// So many (at least one), all free.
    pub fn new(servers: usize) -> Self {
        Servers { free: vec![0.0; servers.max(1)], now: 0.0 }
    }

    /// How long a request waits that comes `gap` after the one before it and takes `service`.
    #[inline]
    pub fn serve(&mut self, gap: f64, service: f64) -> f64 {
        self.now += gap;
        let wait = (self.free[0] - self.now).max(0.0);
        let end = self.now + wait + service;
        // The server's new end finds its place among the others.
        let mut place = 1;
        while place < self.free.len() && self.free[place] < end {
            self.free[place - 1] = self.free[place];
            place += 1;
        }
        self.free[place - 1] = end;
        wait
    }

    /// Counts time from now on, so that it keeps its digits however long the simulation lasts.
    pub fn rebase(&mut self) {
        self.free.iter_mut().for_each(|end| *end -= self.now);
        self.now = 0.0;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The naive twin: servers as a list of ends, the earliest looked for.
    fn naive(servers: usize, requests: &[(f64, f64)]) -> Vec<f64> {
        let mut ends = vec![0.0f64; servers];
        let mut now = 0.0;
        let serve = |&(gap, service): &(f64, f64)| {
            now += gap;
            let first = (0..servers).min_by(|&a, &b| ends[a].total_cmp(&ends[b])).unwrap();
            let start = ends[first].max(now);
            ends[first] = start + service;
            start - now
        };
        requests.iter().map(serve).collect()
    }

    proptest! {
        #[test]
        fn servers_agree_with_their_naive_twin(
            servers in 1usize..6,
            requests in prop::collection::vec((0.0f64..2.0, 0.0f64..9.0), 1..200),
            every in 1usize..50,
        ) {
            let expected = naive(servers, &requests);
            let mut tested = Servers::new(servers);
            for (i, (&(gap, service), wait)) in requests.iter().zip(expected).enumerate() {
                if i % every == 0 {
                    tested.rebase();
                }
                prop_assert!((tested.serve(gap, service) - wait).abs() < 1e-9, "request {}", i);
            }
        }
    }
}
