//! Choices of the section `datasets`.

use serde::{Deserialize, Serialize};

/// What computes the values of layers of the arrays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fill {
    /// Queries first, which keep what they compute anyway, and the worker where a processor is idle. The layer is
    /// there from the decision on.
    #[default]
    Both,
    /// The worker alone (BlowFish: dedicated). The layer is there once it is whole.
    Sweep,
    /// Queries alone (BlowFish: opportunistic).
    Queries,
}

/// What happens to a request that finds a queue full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overload {
    /// It is refused at once.
    #[default]
    Shed,
    /// Its client waits for a place, in order of arrival. Those that wait are bounded by the open
    /// connections alone, and a client's deadline ends its wait.
    Block,
}
