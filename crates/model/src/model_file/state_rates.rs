//! Departures by the number of requests inside.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative};

/// How fast a service answers with n requests inside, beside what hypotheses say: what shows how many
/// servers it has. Predictions do not use it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRates {
    /// The hypotheses in words, the chosen one first.
    pub hypotheses: Vec<String>,
    /// The numbers of requests inside that were seen often enough, ascending.
    pub states: Vec<StateRate>,
}

/// The rate with one number of requests inside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StateRate {
    /// Requests at the servers.
    pub inside: u32,
    /// Departures per second while they were so many.
    pub rate: f64,
    /// Half of its 95 % interval.
    pub half_width: f64,
    /// The rate by each hypothesis, with its own works in another order; 0 where it hardly ever has
    /// so many inside.
    pub expected: Vec<f64>,
}

impl StateRates {
    pub(super) fn check(&self) -> Result<(), Error> {
        for state in &self.states {
            check("requests inside", f64::from(state.inside), 1.0..=1e6, "1 to a million")?;
            not_negative("a rate of departures", state.rate)?;
            not_negative("the half width of a rate of departures", state.half_width)?;
            for rate in &state.expected {
                not_negative("an expected rate of departures", *rate)?;
            }
            if state.expected.len() != self.hypotheses.len() {
                return Err(Error::File("rates of departures: one for each hypothesis".into()));
            }
        }
        Ok(())
    }
}
