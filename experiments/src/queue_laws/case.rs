//! One queue under one law at one utilisation: predicted, simulated, compared.

use std::sync::Arc;

use anyhow::Context as _;
use model::distribution::{AnyLaw, Exponential, Gamma, Hyperexponential, Lognormal};
use model::queue::{Evaluated, Gim1, Mg1, Mgm, Queue};
use model::statistics::Estimate;
use rand::SeedableRng as _;
use serde::Deserialize;

use super::control::Controls;
use super::simulate::{Draw, Random, Servers};

/// A family of laws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Exponential,
    Gamma,
    Lognormal,
    Hyperexponential,
}

/// A law of times by its family and squared coefficient of variation.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Law {
    family: Family,
    scv: f64,
}

impl Law {
    pub fn name(self) -> String {
        match self.family {
            Family::Exponential => "exponential".to_owned(),
            Family::Gamma => format!("gamma {}", self.scv),
            Family::Lognormal => format!("lognormal {}", self.scv),
            Family::Hyperexponential => format!("hyperexponential {}", self.scv),
        }
    }

    fn scv(self) -> f64 {
        if self.family == Family::Exponential { 1.0 } else { self.scv }
    }

    /// To draw from.
    fn draw(self, mean: f64) -> anyhow::Result<Draw> {
        let scv = self.scv;
        Ok(match self.family {
            Family::Exponential => Draw::Exponential(rand_distr::Exp::new(1.0 / mean)?),
            Family::Gamma => Draw::Gamma(rand_distr::Gamma::new(1.0 / scv, mean * scv)?),
            Family::Lognormal => {
                let variance = scv.ln_1p();
                let (mu, sigma) = (mean.ln() - 0.5 * variance, variance.sqrt());
                Draw::Lognormal(rand_distr::LogNormal::new(mu, sigma)?)
            }
            Family::Hyperexponential => {
                let (share, means) = balanced(scv);
                Draw::Hyperexponential { share, means: means.map(|m| m * mean) }
            }
        })
    }

    /// For the formulas.
    fn law(self, mean: f64) -> anyhow::Result<AnyLaw> {
        Ok(match self.family {
            Family::Exponential => Arc::new(Exponential::new(mean)?),
            Family::Gamma => Arc::new(Gamma::new(mean, self.scv)?),
            Family::Lognormal => Arc::new(Lognormal::new(mean, self.scv)?),
            Family::Hyperexponential => Arc::new(Hyperexponential::balanced(mean, self.scv)?),
        })
    }

    /// The third moment at a mean of 1.
    fn third(self) -> f64 {
        let scv = self.scv;
        match self.family {
            Family::Exponential => 6.0,
            Family::Gamma => (1.0 + scv) * (1.0 + 2.0 * scv),
            Family::Lognormal => (1.0 + scv).powi(3),
            Family::Hyperexponential => {
                let (p, [x, y]) = balanced(scv);
                6.0 * (p * x.powi(3) + (1.0 - p) * y.powi(3))
            }
        }
    }
}

/// Two exponential branches that carry half of the work each, of mean 1: the share and mean of the first, and
/// the mean of the second.
fn balanced(scv: f64) -> (f64, [f64; 2]) {
    let p = 0.5 * (1.0 + ((scv - 1.0) / (scv + 1.0)).sqrt());
    (p, [0.5 / p, 0.5 / (1.0 - p)])
}

/// What arrives, and how many serve it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Poisson arrivals; the law is that of service.
    Poisson { servers: u32 },
    /// One server, exponential service; the law is that of the times between arrivals.
    General,
}

impl Shape {
    pub fn name(self) -> String {
        match self {
            Shape::Poisson { servers } => format!("M/G/{servers}"),
            Shape::General => "GI/M/1".to_owned(),
        }
    }
}

/// How well to measure.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub grid_points: usize,
    pub half_width: f64,
    pub batches_min: usize,
    pub customers_max: u64,
}

/// What is compared. Service takes 1 s at the mean.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub shape: Shape,
    pub law: Law,
    pub utilisation: f64,
}

/// What came of it: probabilities, as shares of 1.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where prediction and simulation differ most: time (of mean services), both, and the half width there.
    pub t: f64,
    pub predicted: f64,
    pub simulated: f64,
    pub half_width: f64,
    /// The widest interval of all times.
    pub widest: f64,
    /// Largest difference of the plain approximation of several servers.
    pub plain: Option<f64>,
    pub customers: u64,
}

impl Outcome {
    pub fn error(&self) -> f64 {
        self.predicted - self.simulated
    }
}

/// The share of responses beyond the grid of times.
const BEYOND: f64 = 0.001;

/// Relaxation times that a batch lasts at least, and requests.
const BATCH_RELAXATIONS: f64 = 100.0;
const BATCH_MIN: f64 = 20_000.0;

/// So many batches are merged to half as many.
const BATCHES_MAX: usize = 512;

impl Case {
    pub fn name(&self) -> String {
        format!("{}, {}, ρ {}", self.shape.name(), self.law.name(), self.utilisation)
    }

    fn servers(&self) -> u32 {
        match self.shape {
            Shape::Poisson { servers } => servers,
            Shape::General => 1,
        }
    }

    fn arrival_rate(&self) -> f64 {
        self.utilisation * f64::from(self.servers())
    }

    fn queue(&self) -> anyhow::Result<Box<dyn Queue>> {
        let rate = self.arrival_rate();
        Ok(match self.shape {
            Shape::Poisson { servers: 1 } => Box::new(Mg1::new(rate, self.law.law(1.0)?)?),
            Shape::Poisson { servers } => Box::new(Mgm::new(rate, servers, self.law.law(1.0)?)?),
            Shape::General => Box::new(Gim1::new(&self.law.law(1.0 / rate)?, 1.0)?),
        })
    }

    /// The plain approximation: Erlang's probability to wait, and then as with one faster server.
    fn plain(&self, t: f64) -> anyhow::Result<Option<f64>> {
        let Shape::Poisson { servers: m @ 2.. } = self.shape else { return Ok(None) };
        let law = self.law.law(1.0)?;
        Ok(Some(Evaluated::new(&law, m, t).response_cdf(self.arrival_rate())))
    }

    /// Requests after which the queue has forgotten where it was, within a small factor.
    fn relaxation(&self) -> f64 {
        let idle = 1.0 - self.utilisation;
        (1.0 + self.law.scv()) / (idle * idle) + 20.0 * f64::from(self.servers())
    }

    /// Predicts and simulates until every interval is narrow enough, or the customers are spent.
    pub fn run(&self, effort: &Effort, seed: u64) -> anyhow::Result<Outcome> {
        let queue = self.queue().with_context(|| self.name())?;
        let end = queue.response_quantile(1.0 - BEYOND)?;
        let points = effort.grid_points;
        // Dense where times are short, and a request's place is one square root.
        let times: Vec<f64> =
            (1..=points).map(|j| end * (j as f64 / points as f64).powi(2)).collect();
        let mut simulation = Simulation::new(self, seed, end, points)?;
        let estimates = simulation.until(effort)?;
        let mut outcome = Outcome {
            t: 0.0,
            predicted: 0.0,
            simulated: 0.0,
            half_width: 0.0,
            widest: 0.0,
            plain: None,
            customers: simulation.customers,
        };
        for (&t, estimate) in times.iter().zip(&estimates) {
            let predicted = queue.response_cdf(t);
            outcome.widest = outcome.widest.max(estimate.half_width);
            if let Some(plain) = self.plain(t)? {
                let error = (plain - estimate.mean).abs();
                outcome.plain = Some(outcome.plain.unwrap_or(0.0).max(error));
            }
            if (predicted - estimate.mean).abs() >= outcome.error().abs() {
                outcome.t = t;
                outcome.predicted = predicted;
                outcome.simulated = estimate.mean;
                outcome.half_width = estimate.half_width;
            }
        }
        Ok(outcome)
    }
}

/// One batch of successive requests.
#[derive(Clone, Debug)]
struct Batch {
    /// The share that had its answer by each time of the grid.
    within: Vec<f64>,
    /// Figures less their true means.
    controls: Vec<f64>,
}

/// The queue, and with several servers beside it one that is as many times faster: it gets the same requests, and
/// its law is known (Pollaczek, Khinchine).
struct Simulation {
    random: Random,
    gap: Draw,
    service: Draw,
    servers: Servers,
    fast: Option<Servers>,
    speed: f64,
    /// The grid's points, and their square over its end.
    points: usize,
    scale: f64,
    known: ExactValues,
    batch: u64,
    batches: Vec<Batch>,
    customers: u64,
}

/// What is known of the draws, and of the wait at one server with Poisson arrivals.
struct ExactValues {
    service: [f64; 2],
    gap: [f64; 2],
    wait: Option<Wait>,
}

struct Wait {
    moments: [f64; 2],
    idle: f64,
    /// Times, and the probability to wait no longer.
    within: Vec<(f64, f64)>,
}

impl Simulation {
    fn new(case: &Case, seed: u64, end: f64, points: usize) -> anyhow::Result<Self> {
        let (rate, scv) = (case.arrival_rate(), case.law.scv());
        let exponential = Law { family: Family::Exponential, scv: 1.0 };
        let (gaps, services) = match case.shape {
            Shape::Poisson { .. } => (exponential, case.law),
            Shape::General => (case.law, exponential),
        };
        let speed = f64::from(case.servers());
        let wait = match case.shape {
            Shape::General => None,
            Shape::Poisson { servers } => {
                let idle = 1.0 - case.utilisation;
                let first = rate * (1.0 + scv) / (speed * speed) / (2.0 * idle);
                let third = rate * case.law.third() / speed.powi(3) / (3.0 * idle);
                let mut within = Vec::new();
                if servers > 1 {
                    let queue = Mg1::new(rate, case.law.law(1.0 / speed)?)?;
                    let times = [0.5, 1.5, 3.0].map(|part| part * first);
                    within.extend(times.map(|t| (t, queue.waiting_cdf(t))));
                }
                Some(Wait { moments: [first, 2.0 * first * first + third], idle, within })
            }
        };
        let square = |law: Law, mean: f64| mean * mean * (1.0 + law.scv());
        Ok(Simulation {
            random: Random::seed_from_u64(seed),
            gap: gaps.draw(1.0 / rate)?,
            service: services.draw(1.0)?,
            servers: Servers::new(case.servers() as usize),
            fast: (wait.is_some() && case.servers() > 1).then(|| Servers::new(1)),
            speed,
            points,
            scale: (points * points) as f64 / end,
            known: ExactValues {
                service: [1.0, square(services, 1.0)],
                gap: [1.0 / rate, square(gaps, 1.0 / rate)],
                wait,
            },
            batch: (BATCH_RELAXATIONS * case.relaxation()).max(BATCH_MIN) as u64,
            batches: Vec::new(),
            customers: 0,
        })
    }

    /// Serves the next requests, as many as a batch has.
    fn serve(&mut self) -> Batch {
        let mut counts = vec![0u64; self.points + 1];
        let (mut services, mut gaps, mut waits) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        let mut idle = 0u64;
        let known = self.known.wait.as_ref().map_or(&[][..], |wait| &wait.within[..]);
        let mut within = vec![0u64; known.len()];
        for _ in 0..self.batch {
            let gap = self.gap.draw(&mut self.random);
            let service = self.service.draw(&mut self.random);
            let wait = self.servers.serve(gap, service);
            let place = ((wait + service) * self.scale).sqrt() as usize;
            counts[place.min(self.points)] += 1;
            let alone = match &mut self.fast {
                Some(fast) => fast.serve(gap, service / self.speed),
                None => wait,
            };
            for (sums, x) in [(&mut services, service), (&mut gaps, gap), (&mut waits, alone)] {
                sums[0] += x;
                sums[1] += x * x;
            }
            idle += u64::from(alone <= 0.0);
            for (count, (t, _)) in within.iter_mut().zip(known) {
                *count += u64::from(alone <= *t);
            }
        }
        self.servers.rebase();
        self.fast.iter_mut().for_each(Servers::rebase);
        let n = self.batch as f64;
        let mut controls = Vec::new();
        let off =
            |sums: [f64; 2], means: [f64; 2]| [sums[0] / n - means[0], sums[1] / n - means[1]];
        controls.extend(off(services, self.known.service));
        controls.extend(off(gaps, self.known.gap));
        if let Some(wait) = &self.known.wait {
            controls.extend(off(waits, wait.moments));
            controls.push(idle as f64 / n - wait.idle);
            let more = within.iter().zip(&wait.within);
            controls.extend(more.map(|(count, (_, share))| *count as f64 / n - share));
        }
        let mut sum = 0u64;
        let within = counts[..self.points].iter().map(|count| {
            sum += count;
            sum as f64 / n
        });
        Batch { within: within.collect(), controls }
    }

    /// Simulates until all intervals are narrow enough, or the customers are spent.
    fn until(&mut self, effort: &Effort) -> anyhow::Result<Vec<Estimate>> {
        // From an empty system to one that has forgotten it.
        self.serve();
        self.customers += self.batch;
        let mut wanted = effort.batches_min;
        loop {
            while self.batches.len() < wanted {
                let batch = self.serve();
                self.customers += self.batch;
                self.batches.push(batch);
            }
            let estimates = self.estimates().context("too few batches for an interval")?;
            let widest = estimates.iter().fold(0.0f64, |w, e| w.max(e.half_width));
            if widest <= effort.half_width || self.customers >= effort.customers_max {
                return Ok(estimates);
            }
            let more = self.batches.len() as f64 * (widest / effort.half_width).powi(2) * 1.05;
            wanted = (more as usize).clamp(self.batches.len() + 4, 2 * self.batches.len());
            if wanted > BATCHES_MAX {
                self.merge();
                wanted = wanted.div_ceil(2).max(self.batches.len() + 2);
            }
        }
    }

    /// Two batches in a row become one.
    fn merge(&mut self) {
        let mean = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| 0.5 * (a + b)).collect();
        let pairs = self.batches.chunks_exact(2).map(|pair| Batch {
            within: mean(&pair[0].within, &pair[1].within),
            controls: mean(&pair[0].controls, &pair[1].controls),
        });
        self.batches = pairs.collect();
        self.batch *= 2;
    }

    /// The share within each time of the grid.
    fn estimates(&self) -> Option<Vec<Estimate>> {
        let columns = self.batches.first()?.controls.len();
        let column =
            |i: usize| -> Vec<f64> { self.batches.iter().map(|b| b.controls[i]).collect() };
        let controls = Controls::new((0..columns).map(column).collect(), self.batches.len());
        (0..self.points)
            .map(|j| {
                let values: Vec<f64> = self.batches.iter().map(|b| b.within[j]).collect();
                controls.mean(&values)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use model::distribution::ServiceTime as _;

    use super::*;

    fn outcome(shape: Shape, family: Family, scv: f64, utilisation: f64) -> Outcome {
        let effort =
            Effort { grid_points: 20, half_width: 0.01, batches_min: 24, customers_max: 1_000_000 };
        let case = Case { shape, law: Law { family, scv }, utilisation };
        case.run(&effort, 7).unwrap()
    }

    #[test]
    fn simulation_and_exact_formulas_agree() {
        for (shape, family, scv) in [
            (Shape::Poisson { servers: 1 }, Family::Exponential, 1.0),
            (Shape::Poisson { servers: 3 }, Family::Exponential, 1.0),
            (Shape::Poisson { servers: 1 }, Family::Gamma, 0.25),
            (Shape::Poisson { servers: 1 }, Family::Lognormal, 2.0),
            (Shape::General, Family::Hyperexponential, 2.0),
        ] {
            let found = outcome(shape, family, scv, 0.7);
            let off = found.error().abs();
            assert!(found.widest <= 0.01 && found.customers > 100_000, "{found:?}");
            assert!(off < 2.0 * found.half_width + 1e-3, "{shape:?} {family:?}: {found:?}");
        }
    }

    #[test]
    fn what_is_known_of_the_laws_is_right() {
        for (family, scv) in
            [(Family::Gamma, 0.5), (Family::Lognormal, 0.5), (Family::Hyperexponential, 2.0)]
        {
            let law = Law { family, scv };
            let (draw, mut random) = (law.draw(2.0).unwrap(), Random::seed_from_u64(5));
            let mut sums = [0.0f64; 3];
            let n = 400_000;
            for _ in 0..n {
                let x = draw.draw(&mut random);
                sums.iter_mut().enumerate().for_each(|(i, s)| *s += x.powi(i as i32 + 1));
            }
            let third = law.third();
            let expected = [2.0, 4.0 * (1.0 + scv), 8.0 * third];
            for (sum, expected) in sums.iter().zip(expected) {
                let ratio = sum / f64::from(n) / expected;
                assert!((ratio - 1.0).abs() < 0.05, "{family:?} {scv}: {ratio}");
            }
            let formula = law.law(2.0).unwrap();
            assert!((formula.mean() - 2.0).abs() < 1e-9);
            assert!((formula.scv() - scv).abs() < 1e-9);
        }
    }

    #[test]
    fn one_effort_and_seed_give_one_outcome() {
        let run = || outcome(Shape::Poisson { servers: 2 }, Family::Gamma, 0.5, 0.5);
        let (a, b) = (run(), run());
        assert_eq!((a.t, a.simulated, a.customers), (b.t, b.simulated, b.customers));
    }
}
