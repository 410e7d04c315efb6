//! [`Model`]: the result of a fit, as a TOML file that a person can read and edit.
//!
//! Every fitted number is a [`Parameter`]: value, 95 % interval, unit. The laws of service times
//! are stored as a shape (mean 1) beside mean and squared coefficient of variation, so that these
//! can be edited. `replicates` are the fits of resampled windows: the interval of a prediction is
//! the spread of their predictions.

mod cluster;
mod coarse;
mod fan_out;
mod front;
mod hedge;
mod hypothesis;
mod kinds;
mod known;
mod mix;
mod model;
mod nodes;
mod parts;
mod predict;
mod replicates;
mod state_rates;
mod stated;
mod text;

pub use cluster::{ClusterLimits, ClusterModel, ClusterNode, ClusterPrediction, NodePrediction};
pub use coarse::Coarse;
pub use fan_out::{FanOutPrediction, ResponseTimes, WithinTime};
pub use hedge::HedgedPrediction;
pub use hypothesis::Hypothesis;
pub(crate) use hypothesis::title;
pub(crate) use kinds::size_class;
pub use kinds::{MixShare, RequestKind};
pub(crate) use mix::SAME_MIX;
pub use model::{FORMAT, Model};
pub(crate) use nodes::{ClusterLoad, Nodes, NodesAt};
pub use parts::{
    About, Arrivals, BackgroundWork, ClassParameters, Devices, DispersionAt, Evidence,
    EvidenceSource, FittedPoint, FittedStep, Front, Law, Parameter, Requests, SpeedByNumber,
    SpotifyParameters, WorkByLoad,
};
pub use predict::{Limits, Point, Prediction, Tipping};
pub use replicates::Replicates;
pub use state_rates::{StateRate, StateRates};
pub use stated::{StatedNode, StatedNumber};

#[cfg(test)]
mod tests;
