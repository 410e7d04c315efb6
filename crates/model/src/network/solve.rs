//! Solves a network: computes the capacity that open classes leave, chooses a method, and assembles
//! the solution.

use crate::error::Error;

use super::convolution::{self, Failure};
use super::station::{Kind, Law};
use super::{
    Class, ClassResult, ForkResult, Load, Method, Network, Share, Solution, StationResult,
    approximate, lattice, mva, open,
};

/// Largest number of steps of an exact mean value analysis: a few seconds.
const MVA_MAX: f64 = 2e9;

/// With more customers than this the linearizer's advantage is below its rounding error, and the
/// error of Bard-Schweitzer is below 1e-4.
const LINEARIZER_MAX: u64 = 10_000;

/// What open classes leave of a station for closed ones.
struct ResidualStation {
    law: Law,
    /// Work of open classes, seconds per second.
    open: f64,
    /// Probability that no open customer is present while no closed one is.
    idle_open: f64,
}

/// Results of a closed solution at a station besides the numbers of customers.
#[derive(Clone, Copy)]
struct Extra {
    /// Probability that no closed customer is present, if known.
    idle: Option<f64>,
    /// Mean number of open customers.
    open: f64,
}

/// A closed solution: throughputs, numbers `[class][station]` of all classes, and extras.
struct Parts {
    method: Method,
    throughput: Vec<f64>,
    numbers: Vec<Vec<f64>>,
    extra: Vec<Extra>,
}

/// The load, in servers, that stands for one request of a class without arrivals.
const ARRIVALS_OF_IDLE: f64 = 1e-9;

impl Network {
    /// Solves the network: exactly if that takes at most a few seconds, otherwise by
    /// [`Method::Linearizer`], or above 10,000 customers by [`Method::Schweitzer`], whose error
    /// vanishes there. [`Solution::method`] is the method used.
    ///
    /// Returns [`Error::StationUnstable`] if open classes saturate a station, [`Error::PastCurve`]
    /// past the end of a measured curve, and [`Error::TooMuchWork`] if the exact solution is too
    /// large and the approximations do not support a station.
    pub fn solve(&self) -> Result<Solution, Error> {
        let mut solution = self.solved(None)?;
        self.add_idle_responses(&mut solution);
        Ok(solution)
    }

    /// Adds the responses of open classes without arrivals, to which Little's law gives none: those that one request would have, which a
    /// load of a billionth of the station's has to nine digits. Where not even that fits, they stay 0.
    fn add_idle_responses(&self, solution: &mut Solution) {
        let is_idle = |class: &Class| matches!(class.load, Load::Open { rate } if rate == 0.0);
        if !self.classes.iter().any(is_idle) {
            return;
        }
        let mut visited = self.clone();
        for class in visited.classes.iter_mut().filter(|class| is_idle(class)) {
            let demand: f64 = class.demands_s.iter().sum();
            if demand > 0.0 {
                class.load = Load::Open { rate: ARRIVALS_OF_IDLE / demand };
            }
        }
        let Ok(found) = visited.solved(None) else { return };
        for (c, _) in self.classes.iter().enumerate().filter(|(_, class)| is_idle(class)) {
            solution.classes[c].response_s = found.classes[c].response_s;
            for (station, found) in solution.stations.iter_mut().zip(&found.stations) {
                let (share, found) = (&mut station.classes[c], &found.classes[c]);
                (share.response_s, share.residence_s) = (found.response_s, found.residence_s);
            }
        }
    }

    /// Solves by a given method, for example to see the error of an approximation. Returns
    /// [`Error::Network`] if the method cannot solve this network, and [`Error::TooMuchWork`] if it
    /// would take minutes.
    ///
    /// ```
    /// use model::network::{Class, Method, Network, Station};
    /// let network = Network::new(
    ///     vec![Station::queue("cpu"), Station::queue("disk")],
    ///     vec![Class::closed("a", 20, 0.0, &[10.0, 5.0])?, Class::closed("b", 10, 0.0, &[4.0, 6.0])?],
    /// )?;
    /// let exact = network.solve()?.classes[0].throughput;
    /// let near = network.solve_by(Method::Linearizer)?.classes[0].throughput;
    /// assert!((near / exact - 1.0).abs() < 0.002);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn solve_by(&self, method: Method) -> Result<Solution, Error> {
        self.solved(Some(method))
    }

    fn solved(&self, asked: Option<Method>) -> Result<Solution, Error> {
        let residual = self.residual_stations()?;
        let general = self.general_responses()?;
        let closed: Vec<usize> =
            (0..self.classes.len()).filter(|&c| self.classes[c].customers() > 0).collect();
        let method = match asked {
            Some(method) => method,
            None => self.method(&residual, &closed),
        };
        let forks = self.forks()?;
        let mut parts = match method {
            _ if closed.is_empty() => self.only_open(&residual),
            Method::Open | Method::Fork | Method::Decomposition => {
                return Err(no_way(method, "has closed classes"));
            }
            Method::Mva => self.by_mva(&residual, &closed)?,
            Method::Convolution => match self.by_convolution(&residual, &closed) {
                Err(Error::TooMuchWork { .. }) if asked.is_none() => {
                    self.by_approximation(&residual, &closed, self.near(&closed))?
                }
                found => found?,
            },
            Method::Linearizer | Method::Schweitzer => {
                self.by_approximation(&residual, &closed, method)?
            }
        };
        for ((k, fork), extra) in forks.iter().enumerate().zip(&mut parts.extra) {
            // By Little's law, of requests whose needed parts have not answered.
            let visits: f64 = self.classes.iter().map(|c| c.rate() * c.visits[k]).sum();
            let response = fork.map(|fork| fork.response_s).or(general[k]);
            extra.open = response.map_or(extra.open, |response_s| visits * response_s);
        }
        Ok(self.put_together(&residual, parts, &forks))
    }

    /// What open classes leave of the stations, which are checked for it.
    fn residual_stations(&self) -> Result<Vec<ResidualStation>, Error> {
        self.check_general()?;
        let customers: usize = self.classes.iter().map(|c| c.customers() as usize).sum();
        let loads = (0..self.stations.len())
            .map(|k| self.classes.iter().map(|c| c.rate() * c.demands_s[k]).sum::<f64>());
        let residual = self.stations.iter().zip(loads).enumerate().map(|(k, (station, load))| {
            let closed_here = self.classes.iter().filter(|c| c.demands_s[k] > 0.0);
            let here: usize = closed_here.map(|c| c.customers() as usize).sum();
            if load == 0.0 {
                return Ok(ResidualStation { law: station.law(here)?, open: 0.0, idle_open: 1.0 });
            }
            let place = || format!("station {:?}", station.name());
            if matches!(station.inner(), Kind::Curve(_)) {
                let what = "has a measured curve, which is limited, but open classes may bring any number of \
                            customers; give it a closed class";
                return Err(Error::Network { place: place(), what: what.to_owned() });
            }
            let limit = station.rate_limit();
            if load >= limit * (1.0 - 1e-12) {
                let station = station.name().to_owned();
                return Err(Error::StationUnstable { station, load, limit });
            }
            let (law, idle_open) = open::left_over(&station.law(usize::MAX)?, load, customers)
                .ok_or(Error::TooMuchWork {
                    what: "what open classes leave of a station",
                    steps: 5e8,
                    limit: 5e8,
                    advice: "lower the open load, or count fewer servers",
                })?;
            Ok(ResidualStation { law, open: load, idle_open })
        });
        residual.collect()
    }

    fn method(&self, residual: &[ResidualStation], closed: &[usize]) -> Method {
        let fixed = |s: &ResidualStation| s.law == Law::Delay || s.law.fixed().is_some();
        let customers: Vec<u32> = closed.iter().map(|&c| self.classes[c].customers()).collect();
        let near = self.near(closed);
        if closed.is_empty() {
            Method::Open
        } else if residual.iter().all(fixed) {
            let work = match customers[..] {
                [n] => f64::from(n) * residual.len() as f64,
                _ => mva::work(&customers, residual.len()),
            };
            if work <= MVA_MAX { Method::Mva } else { near }
        } else if closed.len() == 1 {
            Method::Convolution
        } else {
            let work = lattice::work(&self.lattice_servers(residual, closed), &customers);
            if work <= lattice::WORK_MAX { Method::Convolution } else { near }
        }
    }

    /// The more accurate approximation for this population.
    fn near(&self, closed: &[usize]) -> Method {
        let customers: u64 = closed.iter().map(|&c| u64::from(self.classes[c].customers())).sum();
        if customers <= LINEARIZER_MAX { Method::Linearizer } else { Method::Schweitzer }
    }

    fn only_open(&self, residual: &[ResidualStation]) -> Parts {
        let open = |s: &ResidualStation| Extra { idle: Some(1.0), open: s.open / s.law.alpha(1) };
        Parts {
            method: match (self.has_general(), self.has_forks()) {
                (true, _) => Method::Decomposition,
                (false, true) => Method::Fork,
                (false, false) => Method::Open,
            },
            throughput: vec![0.0; self.classes.len()],
            numbers: vec![vec![0.0; residual.len()]; self.classes.len()],
            extra: residual
                .iter()
                .map(|s| match s.law {
                    Law::Delay => Extra { idle: Some(1.0), open: s.open },
                    Law::Rates(_) => open(s),
                })
                .collect(),
        }
    }

    /// Extras for stations where the mean number of closed customers suffices.
    fn extra_of_fixed(&self, residual: &[ResidualStation], numbers: &[Vec<f64>]) -> Vec<Extra> {
        let each = residual.iter().enumerate().map(|(k, s)| {
            let number: f64 = numbers.iter().map(|n| n[k]).sum();
            let open = match s.law {
                Law::Delay => s.open,
                Law::Rates(_) => s.open * (1.0 + number) / s.law.alpha(1),
            };
            Extra { idle: None, open }
        });
        each.collect()
    }

    fn by_mva(&self, residual: &[ResidualStation], closed: &[usize]) -> Result<Parts, Error> {
        let queues: Vec<usize> =
            (0..residual.len()).filter(|&k| residual[k].law != Law::Delay).collect();
        let rates: Option<Vec<f64>> = queues.iter().map(|&k| residual[k].law.fixed()).collect();
        let Some(rates) = rates else {
            return Err(no_way(
                Method::Mva,
                "has stations of several servers or other rates; use convolution",
            ));
        };
        let customers: Vec<u32> = closed.iter().map(|&c| self.classes[c].customers()).collect();
        let work = match customers[..] {
            [n] => f64::from(n) * queues.len() as f64,
            _ => mva::work(&customers, queues.len()),
        };
        if work > MVA_MAX {
            return Err(Error::TooMuchWork {
                what: "exact mean value analysis",
                steps: work,
                limit: MVA_MAX,
                advice: "use the linearizer, or smaller populations",
            });
        }
        let of = |class: &Class| -> (Vec<f64>, f64) {
            let demands = queues.iter().zip(&rates).map(|(&k, rate)| class.demands_s[k] / rate);
            let delays = (0..residual.len()).filter(|&k| residual[k].law == Law::Delay);
            (demands.collect(), class.think_s() + delays.map(|k| class.demands_s[k]).sum::<f64>())
        };
        let (demands, think_s): (Vec<_>, Vec<_>) =
            closed.iter().map(|&c| of(&self.classes[c])).unzip();
        let (throughput, numbers) = match customers[..] {
            [n] => {
                let (x, q) = mva::single(&demands[0], think_s[0], n, |_| ());
                (vec![x], vec![q])
            }
            _ => {
                let demands: Vec<&[f64]> = demands.iter().map(Vec::as_slice).collect();
                mva::multi(&demands, &think_s, &customers)
            }
        };
        Ok(self.spread(residual, closed, Method::Mva, (throughput, numbers), &queues))
    }

    /// Spreads results at some stations and for the closed classes over all; the other stations are
    /// delays.
    fn spread(
        &self,
        residual: &[ResidualStation],
        closed: &[usize],
        method: Method,
        found: approximate::ClosedSolution,
        queues: &[usize],
    ) -> Parts {
        let mut throughput = vec![0.0; self.classes.len()];
        let mut numbers = vec![vec![0.0; residual.len()]; self.classes.len()];
        for ((&c, x), q) in closed.iter().zip(found.0).zip(found.1) {
            throughput[c] = x;
            for k in (0..residual.len()).filter(|&k| residual[k].law == Law::Delay) {
                numbers[c][k] = x * self.classes[c].demands_s[k];
            }
            queues.iter().zip(q).for_each(|(&k, q)| numbers[c][k] = q);
        }
        let extra = self.extra_of_fixed(residual, &numbers);
        Parts { method, throughput, numbers, extra }
    }

    /// The stations that a single closed class visits, with its think time as a last one, a delay.
    fn servers<'a>(
        &self,
        residual: &'a [ResidualStation],
        class: &Class,
        think: &'a Law,
    ) -> Vec<convolution::Server<'a>> {
        let stations = residual.iter().zip(&class.demands_s);
        let stations = stations.map(|(s, &demand)| convolution::Server { demand, law: &s.law });
        stations.chain([convolution::Server { demand: class.think_s(), law: think }]).collect()
    }

    fn lattice_servers<'a>(
        &self,
        residual: &'a [ResidualStation],
        closed: &[usize],
    ) -> Vec<lattice::Server<'a>> {
        let demands = |k: usize| closed.iter().map(|&c| self.classes[c].demands_s[k]).collect();
        let think = closed.iter().map(|&c| self.classes[c].think_s()).collect();
        let stations = residual.iter().enumerate();
        let stations = stations.map(|(k, s)| lattice::Server { demands: demands(k), law: &s.law });
        let think = lattice::Server { demands: think, law: &Law::Delay };
        stations.chain([think]).filter(|s| s.demands.iter().any(|d| *d > 0.0)).collect()
    }

    fn by_convolution(
        &self,
        residual: &[ResidualStation],
        closed: &[usize],
    ) -> Result<Parts, Error> {
        let mut throughput = vec![0.0; self.classes.len()];
        let mut numbers = vec![vec![0.0; residual.len()]; self.classes.len()];
        if let [c] = *closed {
            let class = &self.classes[c];
            let customers = class.customers() as usize;
            let servers = self.servers(residual, class, &Law::Delay);
            let found = convolution::solve(&servers, customers)
                .map_err(|f| failed(f, convolution::WORK_MAX))?;
            throughput[c] = found.throughput;
            numbers[c].copy_from_slice(&found.numbers[..residual.len()]);
            let mut extra = self.extra_of_fixed(residual, &numbers);
            for (k, s) in residual.iter().enumerate() {
                extra[k].idle = Some(found.idle[k]);
                if s.open > 0.0 && s.law != Law::Delay && s.law.fixed().is_none() {
                    let p = convolution::distribution(&servers, customers, k)
                        .map_err(|f| failed(f, convolution::WORK_MAX))?;
                    extra[k].open = beside(s, &p);
                }
            }
            return Ok(Parts { method: Method::Convolution, throughput, numbers, extra });
        }
        let customers: Vec<u32> = closed.iter().map(|&c| self.classes[c].customers()).collect();
        let servers = self.lattice_servers(residual, closed);
        let steps = lattice::work(&servers, &customers);
        if steps > lattice::WORK_MAX {
            return Err(failed(Failure::Work(steps), lattice::WORK_MAX));
        }
        let near = self.by_approximation(residual, closed, Method::Schweitzer);
        let tilt: Vec<f64> = match near {
            Ok(near) => closed.iter().map(|&c| near.throughput[c]).collect(),
            Err(_) => closed
                .iter()
                .map(|&c| &self.classes[c])
                .map(|c| f64::from(c.customers()) / (c.think_s() + c.demands_s.iter().sum::<f64>()))
                .collect(),
        };
        let found = lattice::solve(&servers, &customers, &tilt)
            .map_err(|f| failed(f, lattice::WORK_MAX))?;
        let used: Vec<usize> = (0..residual.len())
            .filter(|&k| closed.iter().any(|&c| self.classes[c].demands_s[k] > 0.0))
            .collect();
        for (i, &c) in closed.iter().enumerate() {
            throughput[c] = found.throughput[i];
            used.iter().zip(&found.numbers[i]).for_each(|(&k, q)| numbers[c][k] = *q);
        }
        let mut extra = self.extra_of_fixed(residual, &numbers);
        for (&k, p) in used.iter().zip(&found.totals) {
            if let Some(&idle) = p.first() {
                extra[k].idle = Some(idle.min(1.0));
                if residual[k].open > 0.0 {
                    extra[k].open = beside(&residual[k], p);
                }
            }
        }
        Ok(Parts { method: Method::Convolution, throughput, numbers, extra })
    }

    /// Replaces each station of changing speed by a queue of its highest speed and a delay, which
    /// is correct for one customer and for very many (Seidmann, Schweitzer, Shalev-Oren, OR Letters
    /// 6, 1987).
    fn by_approximation(
        &self,
        residual: &[ResidualStation],
        closed: &[usize],
        method: Method,
    ) -> Result<Parts, Error> {
        let queues: Vec<usize> =
            (0..residual.len()).filter(|&k| residual[k].law != Law::Delay).collect();
        // (1/speed of the queue, delay for each second of demand)
        let mut split = Vec::new();
        for &k in &queues {
            let Law::Rates(rates) = &residual[k].law else { continue };
            let (first, last) = (rates[0], rates[rates.len() - 1]);
            if rates.windows(2).any(|pair| pair[1] < pair[0]) {
                return Err(Error::Network {
                    place: format!("station {:?}", self.stations[k].name()),
                    what:
                        "gets slower with more customers, which the approximations do not support; use \
                           populations small enough for an exact solution"
                            .to_owned(),
                });
            }
            split.push((1.0 / last, 1.0 / first - 1.0 / last));
        }
        let part = |class: &Class| -> (Vec<f64>, f64) {
            let pairs = || queues.iter().map(|&k| class.demands_s[k]).zip(&split);
            let delays = (0..residual.len()).filter(|&k| residual[k].law == Law::Delay);
            let delays: f64 = delays.map(|k| class.demands_s[k]).sum();
            let own: f64 = pairs().map(|(d, (_, delay))| d * delay).sum();
            (pairs().map(|(d, (slow, _))| d * slow).collect(), class.think_s() + delays + own)
        };
        let (demands, think_s): (Vec<_>, Vec<_>) =
            closed.iter().map(|&c| part(&self.classes[c])).unzip();
        let customers: Vec<f64> =
            closed.iter().map(|&c| f64::from(self.classes[c].customers())).collect();
        let network =
            approximate::Closed { demands: &demands, think_s: &think_s, customers: &customers };
        let found = match method {
            Method::Linearizer => network.linearizer()?,
            _ => network.schweitzer()?,
        };
        let waiting = found.1.clone();
        let mut parts = self.spread(residual, closed, method, found, &queues);
        for (i, (&k, (slow, delay))) in queues.iter().zip(&split).enumerate() {
            for &c in closed {
                parts.numbers[c][k] += parts.throughput[c] * self.classes[c].demands_s[k] * delay;
            }
            let queued: f64 = waiting.iter().map(|q| q[i]).sum();
            parts.extra[k].open = residual[k].open * (slow + delay + slow * queued);
        }
        Ok(parts)
    }

    fn put_together(
        &self,
        residual: &[ResidualStation],
        parts: Parts,
        forks: &[Option<ForkResult>],
    ) -> Solution {
        let Parts { method, mut throughput, mut numbers, extra } = parts;
        for (c, class) in self.classes.iter().enumerate() {
            if let Load::Open { rate } = class.load {
                throughput[c] = rate;
                for (k, s) in residual.iter().enumerate().filter(|(_, s)| s.open > 0.0) {
                    numbers[c][k] = extra[k].open * (rate * class.demands_s[k] / s.open);
                }
            }
        }
        let over = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let classes = self.classes.iter().enumerate().map(|(c, class)| {
            let number: f64 = numbers[c].iter().sum();
            ClassResult {
                name: class.name.clone(),
                customers: match class.load {
                    Load::Closed { customers, .. } => Some(customers),
                    Load::Open { .. } => None,
                },
                think_s: class.think_s(),
                throughput: throughput[c],
                response_s: over(number, throughput[c]),
                number,
            }
        });
        let stations = self.stations.iter().enumerate().map(|(k, station)| {
            let work = |c: usize| throughput[c] * self.classes[c].demands_s[k];
            let total: f64 = (0..throughput.len()).map(work).sum();
            let busy = match (station.inner(), extra[k].idle) {
                (Kind::Delay | Kind::Fork(_), _) => total,
                (Kind::Servers(m), _) => (total / f64::from(*m)).min(1.0),
                (_, Some(idle)) => (1.0 - idle * residual[k].idle_open).clamp(0.0, 1.0),
                (_, None) => over(total, station.rate_limit()).min(1.0),
            };
            let shares: Vec<Share> = (0..throughput.len())
                .map(|c| {
                    let visits = throughput[c] * self.classes[c].visits[k];
                    Share {
                        throughput: visits,
                        utilisation: busy * over(work(c), total),
                        number: numbers[c][k],
                        response_s: over(numbers[c][k], visits),
                        residence_s: over(numbers[c][k], throughput[c]),
                    }
                })
                .collect();
            let visits: f64 = shares.iter().map(|s| s.throughput).sum();
            let number: f64 = shares.iter().map(|s| s.number).sum();
            StationResult {
                name: station.name().to_owned(),
                throughput: visits,
                utilisation: busy,
                number,
                response_s: over(number, visits),
                fork: forks[k],
                classes: shares,
            }
        });
        Solution { method, classes: classes.collect(), stations: stations.collect() }
    }

    /// P(n present) at a station, n = 0 … N, for a network of one closed class and no open ones.
    /// Values below some 1e-290 are 0. Cost: that of the solution, up to N² × stations.
    ///
    /// ```
    /// use model::network::{Class, Network, Station};
    /// let network = Network::new(
    ///     vec![Station::queue("disk")],
    ///     vec![Class::closed("clients", 2, 1.0, &[1.0])?],
    /// )?;
    /// let p = network.distribution(0)?; // as 1 : 2 : 2
    /// assert!((p[0] - 0.2).abs() < 1e-12 && (p[2] - 0.4).abs() < 1e-12);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn distribution(&self, station: usize) -> Result<Vec<f64>, Error> {
        let [class] = &self.classes[..] else {
            return Err(no_distribution("has several classes"));
        };
        if matches!(class.load, Load::Open { .. }) {
            return Err(no_distribution("has an open class"));
        }
        if station >= self.stations.len() {
            return Err(no_distribution("does not have this station; count from 0"));
        }
        let residual = self.residual_stations()?;
        let servers = self.servers(&residual, class, &Law::Delay);
        convolution::distribution(&servers, class.customers() as usize, station)
            .map_err(|f| failed(f, convolution::WORK_MAX))
    }
}

/// Mean number of open customers, given the distribution of closed ones: Σ p(n)·ρ(n+1)/α'(n+1).
fn beside(residual: &ResidualStation, p: &[f64]) -> f64 {
    let each =
        |(n, p): (usize, &f64)| p * residual.open * (n + 1) as f64 / residual.law.alpha(n + 1);
    p.iter().enumerate().map(each).sum()
}

fn no_distribution(what: &str) -> Error {
    let what = format!("{what}: distributions are for the stations of one closed class");
    Error::Network { place: "the network".to_owned(), what }
}

fn no_way(method: Method, what: &str) -> Error {
    let what = format!("{what}: {} cannot solve it", method.name());
    Error::Network { place: "the network".to_owned(), what }
}

fn failed(failure: Failure, limit: f64) -> Error {
    match failure {
        Failure::Work(steps) => Error::TooMuchWork {
            what: "exact convolution",
            steps,
            limit,
            advice: "use the linearizer, smaller populations, or rates that stay constant from some number on",
        },
        Failure::Range => Error::Network {
            place: "the network".to_owned(),
            what:
                "has two states so far apart in probability that they cannot be weighed; look for \
                   rates that fall by orders of magnitude, or ask for fewer customers"
                    .to_owned(),
        },
    }
}
