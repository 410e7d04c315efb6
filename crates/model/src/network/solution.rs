//! The answer: throughputs, times, numbers and utilisations, for each class and station.

use serde::Serialize;

/// How an answer was found: [`Solution::method`]. With demands D in seconds, think time Z,
/// populations n:
///
/// - mean value analysis: R = D·(1 + Q(n − 1)) at each station, X = n/(Z + ΣR), Q = X·R; M. Reiser,
///   S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 27 (1980);
/// - convolution: G, the convolution of each station's Dⁿ/(α(1)…α(n)), and X = G(N − 1)/G(N); J.
///   Buzen, CACM 16 (1973); several classes: M. Reiser, H. Kobayashi, IBM J. R&D 19 (1975); all
///   terms are positive, and tilted so that none leaves the range of numbers: relative error N ×
///   1e-16;
/// - linearizer: mean value analysis whose numbers with one customer less are estimated from the
///   fixed points there, some tenths of a per cent off; K. Chandy, D. Neuse, CACM 25 (1982);
/// - Bard-Schweitzer: the same with shares that stay as one customer leaves, some per cent off with
///   few customers; P. Schweitzer (1979); E. Lazowska and others, "Quantitative System Performance"
///   (1984), 6.4.
///
/// In both approximations several servers become a fast one and a delay: A. Seidmann, P.
/// Schweitzer, S. Shalev-Oren, Operations Research Letters 6 (1987); up to 10 % off. All assume the
/// product form ([`super::Station`]). [`super::Network::solve`] chooses,
/// [`super::Network::solve_by`] compares.
///
/// ```
/// use model::network::Method;
/// assert!(Method::Convolution.is_exact() && !Method::Linearizer.is_exact());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Exact mean value analysis.
    Mva,
    /// Exact convolution: stations with several servers or other rates.
    Convolution,
    /// Approximate: Chandy and Neuse. Several servers are one fast one and a delay (Seidmann).
    Linearizer,
    /// Approximate: Bard and Schweitzer. Several servers are one fast one and a delay (Seidmann).
    Schweitzer,
    /// Open classes only: each station by itself, exactly.
    Open,
}

impl Method {
    /// Whether the answer is that of the network, to rounding.
    pub fn is_exact(self) -> bool {
        matches!(self, Method::Mva | Method::Convolution | Method::Open)
    }

    /// The name in words.
    pub fn name(self) -> &'static str {
        match self {
            Method::Mva => "mean value analysis",
            Method::Convolution => "convolution",
            Method::Linearizer => "linearizer",
            Method::Schweitzer => "Bard-Schweitzer",
            Method::Open => "open queues",
        }
    }
}

/// A solved network, from [`super::Network::solve`]: Little's law, the utilisation law and the
/// interactive response-time law hold of it to rounding, or to the convergence of an approximation.
///
/// ```
/// use model::network::{Class, Network, Station};
/// // Two clients that think a second before a second of work.
/// let clients = Class::closed("clients", 2, 1.0, &[1.0])?;
/// let solution = Network::new(vec![Station::queue("disk")], vec![clients])?.solve()?;
/// assert!((solution.classes[0].throughput - 0.8).abs() < 1e-12);
/// assert!((solution.classes[0].response_s - (2.0 / 0.8 - 1.0)).abs() < 1e-12);
/// assert!((solution.stations[0].number - 1.2).abs() < 1e-12);
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Solution {
    /// How.
    pub method: Method,
    /// One for each class.
    pub classes: Vec<ClassResult>,
    /// One for each station.
    pub stations: Vec<StationResult>,
}

/// What a class gets, in a [`Solution`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassResult {
    /// Its name.
    pub name: String,
    /// Its customers, if it is closed.
    pub customers: Option<u32>,
    /// Its mean think time in seconds; 0 if it is open.
    pub think_s: f64,
    /// Requests/s.
    pub throughput: f64,
    /// Mean response time in seconds, think time not included; 0 for a class without customers.
    pub response_s: f64,
    /// Mean number of its customers at stations: those who do not think.
    pub number: f64,
}

/// What a station does, in a [`Solution`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationResult {
    /// Its name.
    pub name: String,
    /// Visits/s.
    pub throughput: f64,
    /// Busy share of its servers; of a load-dependent station the share of time with somebody
    /// present; of a delay the mean number present, which may be above 1.
    pub utilisation: f64,
    /// Mean number present.
    pub number: f64,
    /// Mean response time of a visit in seconds; 0 without visits.
    pub response_s: f64,
    /// The same for each class.
    pub classes: Vec<Share>,
}

/// A class at a station, in a [`StationResult`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Visits/s.
    pub throughput: f64,
    /// Its part of the station's utilisation.
    pub utilisation: f64,
    /// Mean number present.
    pub number: f64,
    /// Mean response time of a visit in seconds; 0 without visits.
    pub response_s: f64,
    /// Mean time there for each request, all visits together, in seconds.
    pub residence_s: f64,
}
