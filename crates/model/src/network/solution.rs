//! The answer: throughputs, times, numbers and utilisations, for each class and station.

use serde::Serialize;

/// How an answer was found.
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

/// A solved network, from [`super::Network::solve`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Solution {
    /// How.
    pub method: Method,
    /// One for each class.
    pub classes: Vec<ClassResult>,
    /// One for each station.
    pub stations: Vec<StationResult>,
}

/// What a class gets.
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

/// What a station does.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StationResult {
    /// Its name.
    pub name: String,
    /// Visits/s.
    pub throughput: f64,
    /// Busy share of its servers; of a load-dependent station the share of time with somebody present; of
    /// a delay the mean number present, which may be above 1.
    pub utilisation: f64,
    /// Mean number present.
    pub number: f64,
    /// Mean response time of a visit in seconds; 0 without visits.
    pub response_s: f64,
    /// The same for each class.
    pub classes: Vec<Share>,
}

/// A class at a station.
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
