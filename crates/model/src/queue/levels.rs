//! The states of several busy servers whose services have phases: how many servers are in each
//! phase.

use std::collections::HashMap;

use crate::error::Error;

/// All ways to have `busy` servers in `phases` phases.
fn occupancies(phases: usize, busy: u32) -> Vec<Vec<u32>> {
    if phases == 1 {
        return vec![vec![busy]];
    }
    let with = |n: u32| {
        let rest = occupancies(phases - 1, busy - n);
        rest.into_iter().map(move |mut state| {
            state.push(n);
            state
        })
    };
    (0..=busy).flat_map(with).collect()
}

/// The states of one number of busy servers.
pub(super) struct Level {
    pub(super) states: Vec<Vec<u32>>,
    index: HashMap<Vec<u32>, usize>,
}

impl Level {
    pub(super) fn new(phases: usize, busy: u32) -> Self {
        let states = occupancies(phases, busy);
        let index = states.iter().cloned().enumerate().map(|(i, s)| (s, i)).collect();
        Level { states, index }
    }

    /// Index of a state with one server less in phase `from` and one more in phase `to`.
    pub(super) fn moved(&self, state: &[u32], from: Option<usize>, to: Option<usize>) -> usize {
        let mut state = state.to_vec();
        if let Some(i) = from {
            state[i] -= 1;
        }
        if let Some(j) = to {
            state[j] += 1;
        }
        self.index.get(&state).copied().unwrap_or(0)
    }
}

/// The error for a matrix without an inverse, which no valid generator gives.
pub(super) fn singular() -> Error {
    let must = "less extreme: the equations cannot be solved in 64-bit numbers";
    Error::Invalid { what: "a rate of the M/PH/m queue", value: f64::NAN, must }
}
