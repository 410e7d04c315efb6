//! Bounds and bottlenecks, which need no solution of the network.

use serde::Serialize;

use crate::error::Error;

use super::class::{Class, Load};
use super::station::Station;
use super::system::Network;

/// Bounds of a throughput in requests/s and of its response time in seconds (without think time), R
/// = N/X − Z. Part of [`Bounds`], and returned by [`Network::composite_bounds`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// Lower bound of the throughput, requests/s.
    pub throughput_low: f64,
    /// Upper bound of the throughput, requests/s.
    pub throughput_high: f64,
    /// Lower bound of the response time, seconds.
    pub response_low_s: f64,
    /// Upper bound of the response time, seconds.
    pub response_high_s: f64,
}

impl Limits {
    fn new(customers: f64, think_s: f64, low: f64, high: f64) -> Limits {
        let response = |x: f64| (customers / x - think_s).max(0.0);
        Limits {
            throughput_low: low,
            throughput_high: high,
            response_low_s: response(high),
            response_high_s: response(low),
        }
    }
}

/// Bounds of a closed class. For stations of constant speed and delays they hold exactly.
///
/// With N customers, think time Z, and ΣD the sum and D_max the largest of the demands at queues in
/// seconds, the asymptotic bounds are N/(Z + N·ΣD) ≤ X ≤ min(N/(Z + ΣD), 1/D_max). The others lie
/// within these; they need more of the demands (sum and maximum; their squares; all of them). R =
/// N/X − Z. For several servers a faster and a slower network are bounded ([`Network::bounds`],
/// which has an example). Cost: O(stations). Wrong where the product form is: first come, first
/// served with service far from exponential. The asymptotic bounds do not need the product form.
/// first come, first served. The asymptotic ones need no such form.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// Asymptotic: no request waits, or each waits for all others (Muntz and Wong, 1974).
    pub asymptotic: Limits,
    /// Balanced job bounds (Zahorjan, Sevcik, Eager, Galler, CACM 25, 1982), with think times as in
    /// Lazowska et al., "Quantitative System Performance", table 5.3.
    pub balanced: Limits,
    /// Proportional bounds (Hsieh and Lam, Performance Evaluation 7, 1987).
    pub proportional: Limits,
    /// Geometric bounds (Casale, Muntz, Serazzi, IEEE Trans. Computers 57, 2008): the narrowest.
    pub geometric: Limits,
}

/// The station that limits a class. A station that works α_max times as fast as one server, with a
/// demand of D seconds per request, completes at most α_max/D requests/s.
///
/// Source: E. Lazowska, J. Zahorjan, G. Graham, K. Sevcik, "Quantitative System Performance"
/// (1984), chapter 5. It holds for any system whose demands do not change with the load; if
/// measured demands rise with load (retries, cold caches), the bound is too large. Cost: a sort of
/// the stations.
///
/// ```
/// use model::network::{Class, Network, Station};
/// let network = Network::new(
///     vec![Station::queue("cpu"), Station::queue("disk")],
///     vec![Class::closed("clients", 3, 15.0, &[0.605, 2.1])?],
/// )?;
/// let disk = network.bottleneck(0)?;
/// assert!((disk.throughput_max - 1.0 / 2.1).abs() < 1e-12);
/// // (15 + 2.705)/2.1: with nine clients the disk is busy.
/// assert!((disk.knee - 8.43).abs() < 0.01);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The station's index.
    pub station: usize,
    /// The largest throughput that it allows, requests/s.
    pub throughput_max: f64,
    /// (ΣD + Z) × that throughput, in customers. Below it queues are short; above it the bottleneck
    /// is busy, and each further customer adds to the response time. 0 for an open class.
    pub knee: f64,
    /// The station that limits next, once this one is relieved, and the throughput that it allows.
    pub next: Option<(usize, f64)>,
}

/// A range of the mix of two classes in which one station is the bottleneck. [`Network::sectors`]
/// has formula, source and an example.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Sector {
    /// From this share of the first class in the sum of the two throughputs …
    pub from: f64,
    /// … to this one: the switching point to the next sector.
    pub to: f64,
    /// The station that saturates first.
    pub station: usize,
}

/// The demands of a class at queues, and its delays.
struct Demands {
    queues: Vec<f64>,
    think_s: f64,
}

impl Demands {
    fn max(&self) -> f64 {
        self.queues.iter().copied().fold(0.0, f64::max)
    }

    fn sum(&self) -> f64 {
        self.queues.iter().sum()
    }
}

impl Network {
    /// The station that limits a class by itself: the largest demand relative to the station's
    /// largest rate. See [`Network::sectors`] for two classes together. Delays do not limit;
    /// returns [`Error::Network`] if the class visits delays only.
    pub fn bottleneck(&self, class: usize) -> Result<Bottleneck, Error> {
        let of = self.class(class)?;
        let mut most: Vec<(usize, f64)> = (self.stations.iter().zip(&of.demands_s).enumerate())
            .filter(|(_, (station, demand))| **demand > 0.0 && station.rate_max().is_finite())
            .map(|(k, (station, demand))| (k, station.rate_max() / demand))
            .collect();
        most.sort_by(|a, b| a.1.total_cmp(&b.1));
        let Some(&(station, throughput_max)) = most.first() else {
            return Err(of.wrong("visits delays only, which never limit; nothing to look for"));
        };
        let alone = |(station, d): (&Station, &f64)| {
            d / if station.rate_max().is_finite() { station.rate(1) } else { 1.0 }
        };
        let idle: f64 = self.stations.iter().zip(&of.demands_s).map(alone).sum();
        let knee = match of.load {
            Load::Closed { think_s, .. } => (idle + think_s) * throughput_max,
            Load::Open { .. } => 0.0,
        };
        Ok(Bottleneck { station, throughput_max, knee, next: most.get(1).copied() })
    }

    fn class(&self, class: usize) -> Result<&Class, Error> {
        self.classes.get(class).ok_or_else(|| self.no_closed(class))
    }

    /// Bounds of a closed class that is alone in the network, in O(stations). For stations of
    /// several servers, the upper bounds of throughput are those of one server m times as fast (and
    /// at most what the demands alone allow); the lower bounds are those of that server plus a
    /// delay of D(m−1)/m (Seidmann's network, in which customers wait while servers are free).
    /// Load-dependent stations have no such bounds: an error.
    ///
    /// ```
    /// use model::network::{Class, Network, Station};
    /// let network = Network::new(
    ///     vec![Station::queue("a"), Station::queue("b"), Station::queue("c")],
    ///     vec![Class::closed("clients", 20, 4.0, &[2.0, 3.0, 1.0])?],
    /// )?;
    /// let (bounds, exact) = (network.bounds(0)?.geometric, network.solve()?.classes[0].throughput);
    /// assert!(bounds.throughput_low <= exact && exact <= bounds.throughput_high);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn bounds(&self, class: usize) -> Result<Bounds, Error> {
        let of = self.class(class)?;
        let Load::Closed { customers, think_s } = of.load else {
            return Err(self.no_closed(class));
        };
        if customers == 0 {
            return Err(of.wrong("has no customers; bounds are for at least one"));
        }
        if self.classes.len() > 1 {
            return Err(of.wrong(
                "is not alone: these bounds are for a single class; use `composite_bounds`",
            ));
        }
        let mut fast = Demands { queues: Vec::new(), think_s };
        let mut slow = Demands { queues: Vec::new(), think_s };
        for (station, &demand) in self.stations.iter().zip(&of.demands_s) {
            if station.rate_max().is_infinite() {
                fast.think_s += demand;
                slow.think_s += demand;
                continue;
            }
            let Some(servers) = station.server_count() else {
                let what = "is load-dependent: these bounds are for servers and delays";
                let place = format!("station {:?}", station.name());
                return Err(Error::Network { place, what: what.to_owned() });
            };
            let m = f64::from(servers);
            fast.queues.push(demand / m);
            slow.queues.push(demand / m);
            slow.think_s += demand * (m - 1.0) / m;
        }
        let n = f64::from(customers);
        let idle = think_s + of.demands_s.iter().sum::<f64>();
        let cap = |high: f64| high.min(n / idle);
        let pair = |of: fn(&Demands, f64) -> (f64, f64)| {
            let (low, high) = (of(&slow, n).0, cap(of(&fast, n).1));
            Limits::new(n, think_s, low.min(high), high)
        };
        // Delays among the stations belong to the response time; `think_s` here is the class's own.
        Ok(Bounds {
            asymptotic: pair(asymptotic),
            balanced: pair(balanced),
            proportional: pair(proportional),
            geometric: pair(geometric),
        })
    }

    /// Composite bounds of every closed class of several, at stations of constant speed and delays
    /// (Kerola, Performance Evaluation 6, 1986). In the worst case each class waits for all others
    /// at its largest demand; in the best case it gets the capacity that the others' worst cases
    /// leave.
    pub fn composite_bounds(&self) -> Result<Vec<Limits>, Error> {
        let mut total = 0.0;
        for (c, class) in self.classes.iter().enumerate() {
            if class.customers() == 0 {
                return Err(self.no_closed(c));
            }
            total += f64::from(class.customers());
        }
        for station in &self.stations {
            if station.rate_max().is_finite() && station.rate_max() != 1.0 {
                let place = format!("station {:?}", station.name());
                let what = "has several servers or other rates: composite bounds are for one server and delays";
                return Err(Error::Network { place, what: what.to_owned() });
            }
        }
        let queues = |d: &[f64]| -> Vec<f64> {
            let pairs = self.stations.iter().zip(d);
            pairs.filter(|(s, _)| s.rate_max().is_finite()).map(|(_, d)| *d).collect()
        };
        let demands: Vec<Vec<f64>> = self.classes.iter().map(|c| queues(&c.demands_s)).collect();
        let idle = |c: &Class| c.think_s() + c.demands_s.iter().sum::<f64>();
        let low: Vec<f64> = (self.classes.iter().zip(&demands))
            .map(|(class, demands)| {
                let max = demands.iter().copied().fold(0.0, f64::max);
                f64::from(class.customers()) / (idle(class) + (total - 1.0) * max)
            })
            .collect();
        let found = self.classes.iter().enumerate().map(|(c, class)| {
            let n = f64::from(class.customers());
            let mut high = n / idle(class);
            for (k, own) in demands[c].iter().enumerate().filter(|(_, own)| **own > 0.0) {
                let others = (0..low.len()).filter(|j| *j != c).map(|j| low[j] * demands[j][k]);
                high = high.min((1.0 - others.sum::<f64>()) / own);
            }
            Limits::new(n, class.think_s(), low[c], high.max(low[c]))
        });
        Ok(found.collect())
    }

    /// The station that saturates first, as a function of the mix of two classes. The share β of
    /// class `a` in the sum of the throughputs of `a` and `b` goes from 0 to 1, and the bottleneck
    /// is the station with the largest (β·D_a + (1−β)·D_b) / α. Two sectors meet at a switching
    /// point; near it both stations may saturate together. Source: Balbo and Serazzi, Performance
    /// Evaluation 30 (1997), 115-152.
    ///
    /// ```
    /// use model::network::{Class, Network, Station};
    /// let network = Network::new(
    ///     vec![Station::queue("cpu"), Station::queue("disk")],
    ///     vec![Class::open("reads", 1.0, &[0.01, 0.04])?, Class::open("scans", 1.0, &[0.05, 0.02])?],
    /// )?;
    /// let sectors = network.sectors(0, 1)?;
    /// assert_eq!((sectors[0].station, sectors[1].station), (0, 1));
    /// assert!((sectors[0].to - 0.5).abs() < 1e-12);
    /// # Ok::<(), model::Error>(())
    /// ```
    pub fn sectors(&self, a: usize, b: usize) -> Result<Vec<Sector>, Error> {
        let (a, b) = (self.class(a)?, self.class(b)?);
        let lines: Vec<(usize, f64, f64)> = (0..self.stations.len())
            .filter(|&k| self.stations[k].rate_max().is_finite())
            .map(|k| {
                let rate = self.stations[k].rate_max();
                (k, b.demands_s[k] / rate, a.demands_s[k] / rate)
            })
            .filter(|(_, low, high)| *low > 0.0 || *high > 0.0)
            .collect();
        // The largest at β = 0; among equals the one that grows fastest.
        let order = |x: &&(usize, f64, f64), y: &&(usize, f64, f64)| {
            x.1.total_cmp(&y.1).then((x.2 - x.1).total_cmp(&(y.2 - y.1)))
        };
        let Some(&start) = lines.iter().max_by(order) else {
            return Err(a.wrong("and the other visit delays only, which never limit"));
        };
        let (mut at, mut sectors, mut on) = (0.0, Vec::new(), start);
        loop {
            let slope = |line: &(usize, f64, f64)| line.2 - line.1;
            let crossing = |line: &(usize, f64, f64)| (on.1 - line.1) / (slope(line) - slope(&on));
            let next = lines
                .iter()
                .filter(|line| slope(line) > slope(&on))
                .map(|line| (crossing(line), *line))
                .filter(|(x, _)| *x < 1.0)
                .min_by(|x, y| x.0.total_cmp(&y.0).then(slope(&y.1).total_cmp(&slope(&x.1))));
            let to = next.map_or(1.0, |(x, _)| x.max(at));
            if to > at {
                sectors.push(Sector { from: at, to, station: on.0 });
            }
            let Some((_, line)) = next else { return Ok(sectors) };
            (at, on) = (to, line);
        }
    }
}

fn asymptotic(d: &Demands, n: f64) -> (f64, f64) {
    (n / (d.think_s + n * d.sum()), (n / (d.think_s + d.sum())).min(1.0 / d.max()))
}

fn balanced(d: &Demands, n: f64) -> (f64, f64) {
    let (sum, max, z) = (d.sum(), d.max(), d.think_s);
    if sum == 0.0 {
        return asymptotic(d, n);
    }
    let mean = sum / d.queues.len() as f64;
    let low = n / (sum + z + (n - 1.0) * max / (1.0 + z / (n * sum)));
    let high = n / (sum + z + (n - 1.0) * mean / (1.0 + z / sum));
    (low, high.min(1.0 / max))
}

fn proportional(d: &Demands, n: f64) -> (f64, f64) {
    let (sum, max, z) = (d.sum(), d.max(), d.think_s);
    if sum == 0.0 {
        return asymptotic(d, n);
    }
    // Σ Dⁿ / Σ Dⁿ⁻¹, relative to the largest so that nothing overflows.
    let power = |p: f64| d.queues.iter().map(|x| (x / max).powf(p)).sum::<f64>();
    let low = n / (sum + z + (n - 1.0) * max * power(n) / power(n - 1.0).max(1.0));
    let squares = d.queues.iter().map(|x| x * (x / sum)).sum::<f64>();
    let high = n / (sum + z + (n - 1.0) * squares / (1.0 + z / sum));
    (low, high.min(1.0 / max))
}

/// R = ΣD + D_max·(N − 1 − Z·X(N−1)) − Σ (D_max − D_i)·Q_i(N−1), with the numbers bounded by those
/// of geometric queues, and X(N−1) between X·(N−1)/N and X.
fn geometric(d: &Demands, n: f64) -> (f64, f64) {
    let (sum, max, z) = (d.sum(), d.max(), d.think_s);
    if sum == 0.0 {
        return asymptotic(d, n);
    }
    let before = n - 1.0;
    let sure = before / (z + sum + max * before);
    let most = asymptotic(d, before.max(1.0)).1;
    let number = |y: f64| {
        if y <= 0.0 || before == 0.0 {
            0.0
        } else if (1.0 - y).abs() < 1e-9 {
            before
        } else {
            (y - y.powf(before + 1.0)) / (1.0 - y)
        }
    };
    let solve = |x: f64, share: f64| {
        let slower = d.queues.iter().filter(|q| **q < max);
        let relief: f64 = slower.map(|q| (max - q) * number(q * x)).sum();
        let a = sum + max * before - relief;
        let square = ((a + z) * (a + z) - 4.0 * max * z * share).max(0.0);
        let response = 0.5 * (a - z + square.sqrt());
        n / (response + z)
    };
    let (loose_low, loose_high) = asymptotic(d, n);
    let high = solve(most, n).min(loose_high);
    // With one queue and no think time the bounds are equal but for rounding.
    (solve(sure, before).max(loose_low).min(high), high)
}
