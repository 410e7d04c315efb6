//! A solved network: throughputs, times, numbers and utilisations of each class and station.

use serde::Serialize;

use crate::fork_join::FanOut;

/// The method of a solution ([`Solution::method`]). With demands D in seconds, think time Z and
/// populations n:
///
/// - mean value analysis: R = D·(1 + Q(n − 1)) at each station, X = n/(Z + ΣR), Q = X·R; M. Reiser,
///   S. Lavenberg, "Mean-Value Analysis of Closed Multichain Queuing Networks", JACM 27 (1980);
/// - convolution: G is the convolution of each station's Dⁿ/(α(1)…α(n)), and X = G(N − 1)/G(N); J.
///   Buzen, CACM 16 (1973); for several classes M. Reiser, H. Kobayashi, IBM J. R&D 19 (1975). All
///   terms are positive, and tilted so that none overflows: relative error N × 1e-16;
/// - linearizer: mean value analysis that estimates the numbers with one customer less from the
///   fixed points of those populations; errors of some tenths of a per cent; K. Chandy, D. Neuse,
///   CACM 25 (1982);
/// - Bard-Schweitzer: the same, with the assumption that shares stay the same when one customer
///   leaves; errors of some per cent with few customers; P. Schweitzer (1979); E. Lazowska and
///   others, "Quantitative System Performance" (1984), 6.4.
///
/// Both approximations replace several servers by a fast one and a delay: A. Seidmann, P.
/// Schweitzer, S. Shalev-Oren, Operations Research Letters 6 (1987); errors up to 10 %. All methods
/// assume the product form ([`super::Station`]). [`super::Network::solve`] chooses the method,
/// [`super::Network::solve_by`] takes a given one.
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
    /// Approximation of Chandy and Neuse. Several servers become one fast one and a delay
    /// (Seidmann).
    Linearizer,
    /// Approximation of Bard and Schweitzer. Several servers become one fast one and a delay
    /// (Seidmann).
    Schweitzer,
    /// Open classes only: each station is solved separately and exactly.
    Open,
    /// Open classes only, with stations that fork ([`super::Station::fork`]): these are approximated, the others exact.
    Fork,
    /// Open classes only, with stations whose service is not exponential ([`super::Station::with_scv`]): each station is solved
    /// as if its arrivals were Poisson.
    Decomposition,
}

impl Method {
    /// Whether the method is exact, up to rounding.
    pub fn is_exact(self) -> bool {
        matches!(self, Method::Mva | Method::Convolution | Method::Open)
    }

    /// The method's name.
    pub fn name(self) -> &'static str {
        match self {
            Method::Mva => "mean value analysis",
            Method::Convolution => "convolution",
            Method::Linearizer => "linearizer",
            Method::Schweitzer => "Bard-Schweitzer",
            Method::Open => "open queues",
            Method::Fork => "open queues and fork-join",
            Method::Decomposition => "open queues, each by itself",
        }
    }
}

/// A solved network, returned by [`super::Network::solve`]. Little's law, the utilisation law and
/// the interactive response-time law hold for it up to rounding, or up to the convergence of an
/// approximation.
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
    /// The method.
    pub method: Method,
    /// The result for each class.
    pub classes: Vec<ClassResult>,
    /// The result for each station.
    pub stations: Vec<StationResult>,
}

/// The results of a class, in a [`Solution`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassResult {
    /// The class's name.
    pub name: String,
    /// Number of customers, for a closed class.
    pub customers: Option<u32>,
    /// Mean think time in seconds; 0 for an open class.
    pub think_s: f64,
    /// Requests/s.
    pub throughput: f64,
    /// Mean response time in seconds, without the think time; 0 for a closed class without customers. Of an open class without
    /// arrivals it is what one request would have.
    pub response_s: f64,
    /// Mean number of the class's customers at stations, that is, not thinking.
    pub number: f64,
}

/// The results of a station, in a [`Solution`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationResult {
    /// The station's name.
    pub name: String,
    /// Visits/s.
    pub throughput: f64,
    /// Busy share of the servers; for a load-dependent station the share of time with at least one
    /// customer present; for a delay the mean number present, which may exceed 1.
    pub utilisation: f64,
    /// Mean number present.
    pub number: f64,
    /// Mean response time of a visit in seconds; 0 without visits.
    pub response_s: f64,
    /// Of a station that forks, the distribution of a visit's response time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fork: Option<ForkResult>,
    /// The same for each class.
    pub classes: Vec<Share>,
}

/// A visit to a station that forks ([`super::Station::fork`]), in a [`StationResult`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ForkResult {
    /// The parts of a visit, and how many of them must answer.
    pub fan_out: FanOut,
    /// Mean response time of one part, seconds: exact.
    pub part_response_s: f64,
    /// Mean response time of a visit, seconds.
    pub response_s: f64,
    /// Median of a visit's response time, seconds.
    pub response_p50_s: f64,
    /// 99th percentile of a visit's response time, seconds.
    pub response_p99_s: f64,
}

/// A class at a station, in a [`StationResult`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Visits/s.
    pub throughput: f64,
    /// The class's part of the station's utilisation.
    pub utilisation: f64,
    /// Mean number present.
    pub number: f64,
    /// Mean response time of a visit in seconds; 0 without visits.
    pub response_s: f64,
    /// Mean time at the station per request, summed over all visits, in seconds.
    pub residence_s: f64,
}
