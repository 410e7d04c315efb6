//! The number of servers of a service that is one class.

use serde::{Deserialize, Serialize};

/// The name of the only class in such a model's file.
pub const CLASS: &str = "server";

/// The number of servers of a service, estimated from its responses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServersFound {
    /// The likeliest number; `None` if responses do not lengthen with load, so that there is no
    /// sign of a limit.
    pub likeliest: Option<u32>,
    /// Lower end of the 95 % interval.
    pub low: Option<u32>,
    /// Upper end of the interval; `None` if it includes no limit.
    pub high: Option<u32>,
    /// Whether the number was given instead of estimated.
    pub given: bool,
}
