//! A load that a service is offered: open or closed.

use std::cmp::Ordering;

use report::objective::digits;
use serde::Serialize;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OfferedLoad {
    /// An open loop with this rate, requests/s.
    Rate(f64),
    /// A closed loop with this number of clients.
    Clients(usize),
}

impl OfferedLoad {
    /// The rate, if it is an open loop.
    pub fn rate(self) -> Option<f64> {
        match self {
            OfferedLoad::Rate(rate) => Some(rate),
            OfferedLoad::Clients(_) => None,
        }
    }

    /// The number of clients, if it is a closed loop.
    pub fn clients(self) -> Option<usize> {
        match self {
            OfferedLoad::Rate(_) => None,
            OfferedLoad::Clients(clients) => Some(clients),
        }
    }

    pub(super) fn order(&self, other: &OfferedLoad) -> Ordering {
        let of = |at: &OfferedLoad| at.rate().unwrap_or(0.0);
        self.clients().cmp(&other.clients()).then(of(self).total_cmp(&of(other)))
    }
}

impl std::fmt::Display for OfferedLoad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OfferedLoad::Rate(rate) => write!(f, "{}/s", digits(*rate, 5)),
            OfferedLoad::Clients(1) => write!(f, "1 client"),
            OfferedLoad::Clients(clients) => write!(f, "{clients} clients"),
        }
    }
}

/// Rounds a rate to three digits, the precision of a search.
pub(super) fn rounded(rate: f64) -> f64 {
    format!("{rate:.2e}").parse().unwrap_or(rate)
}
