//! What the works of requests tell of a service.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::fit::servers::ServersFound;
use crate::model_file::{Hypothesis, Model};

/// A service fitted to the works of its requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Worked {
    /// The model: one class of one device.
    pub model: Model,
    /// Every hypothesis that was looked at, the likeliest first; the model has those with weight.
    pub hypotheses: Vec<Hypothesis>,
    /// The number of servers, by the weights.
    pub servers: ServersFound,
    /// Why no hypothesis fits; `None` if the first does.
    pub misfit: Option<String>,
    /// How well the prediction is known at 80 % of the saturation.
    pub known: Precision,
    /// The line of each key, from 0, where the likeliest hypothesis is separate lines; else empty.
    pub lines: BTreeMap<u32, u32>,
}

/// What the number of requests is good for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Precision {
    /// Requests that were fitted.
    pub requests: u64,
    /// Half the width of the 95 % band of P(T ≤ t) at 80 % of the saturation where it is widest,
    /// points.
    pub half_width_points: f64,
    /// Requests, at the same loads, for 2 points.
    pub requests_for_2_points: u64,
}
