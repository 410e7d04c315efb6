//! Networks of queues: stations, and the classes of customers that visit them.
//!
//! A customer of a *closed* class thinks, visits stations, and starts again, like a client that
//! waits for each reply before it sends the next request. Customers of an *open* class arrive from
//! outside and leave. Each class has a **demand** D = V·S seconds at each station: the number of
//! visits times the mean service time. A solution computes throughputs, response times, numbers of
//! customers and utilisations from populations, think times and demands.
//!
//! Three laws hold for any system, whatever its distributions (Denning and Buzen, 1978), and so for
//! every solution here: **Little's law** N = X·R, the **utilisation law** U = X·D/m, and the
//! **interactive response-time law** R = N/X − Z. All other results assume the product form of BCMP
//! (see [`Station`]).
//!
//! | network | solved by | exact |
//! |---|---|---|
//! | one closed class, constant speeds | mean value analysis ([`Method::Mva`]) | yes |
//! | one closed class, any speeds (servers, rates, measured curves) | tilted convolution ([`Method::Convolution`]) | yes |
//! | several closed classes, constant speeds | multi-class mean value analysis, while populations are few | yes |
//! | several closed classes, any speeds | convolution over populations, while they are few | yes |
//! | several large closed classes | [`Method::Linearizer`], with very many customers [`Method::Schweitzer`] | no |
//! | open classes | M/M/m and its special cases at each station ([`Method::Open`]) | yes |
//! | open classes, stations that fork | fork-join queues ([`Method::Fork`], [`Station::fork`]) | no |
//! | open classes, stations whose service is not exponential | M/G/m at each ([`Method::Decomposition`], [`Station::with_scv`]) | no |
//! | open and closed | closed classes get the capacity that open classes leave at each station | as the closed |
//!
//! Load-dependent mean value analysis is deliberately missing: it subtracts, and published solvers
//! return negative throughputs from a few dozen servers on. Convolution adds positive terms only;
//! the tests compare it with 120-digit arithmetic.
//!
//! [`Network::bounds`] needs no solution and holds for every load.
//! [`bottleneck`](Network::bottleneck) names the limiting station, and
//! [`sectors`](Network::sectors) shows how it changes with the mix of two classes.
//! [`Station::flow_equivalent`] replaces a measured system by one station. [`Network::sojourn`] is
//! the distribution of the response time at one station, [`Network::cycle_time`] that through all
//! of them, and [`Network::path_time`] that of an open class.
//!
//! ```
//! use model::network::{Class, Network, Station};
//! // 192 clients, 2 ms away, and two middlewares with 64 threads each, 11.6 ms for each request.
//! let network = Network::new(
//!     vec![Station::servers("middleware 1", 64)?, Station::servers("middleware 2", 64)?],
//!     vec![Class::closed("clients", 192, 0.002_093, &[0.0058, 0.0058])?],
//! )?;
//! let solution = network.solve()?;
//! assert!((solution.classes[0].throughput - 10_854.523).abs() < 1e-3);
//! assert!(solution.method.is_exact());
//! # Ok::<(), model::Error>(())
//! ```

mod approximate;
mod bounds;
mod class;
mod convolution;
mod cycle;
mod fork;
mod general;
mod lattice;
mod mva;
mod open;
mod path;
mod response;
mod solution;
mod solve;
mod station;
mod system;
mod visits;

pub use bounds::{Bottleneck, Bounds, Limits, Sector};
pub use class::{Class, Load};
pub use cycle::CycleTime;
pub use open::{flows, visits};
pub use path::PathTime;
pub use response::Sojourn;
pub use solution::{ClassResult, ForkResult, Method, Share, Solution, StationResult};
pub use station::Station;
pub use system::Network;

#[cfg(test)]
mod tests;
