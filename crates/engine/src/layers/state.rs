//! What a manager remembers of a shard: its queue lengths, how busy it is, and the change that was ordered.

use ground::window::Nanos;

use super::curve::Curve;

/// A change that was ordered and has not been observed yet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    Grow { bytes: u64, held_before: u64 },
    Fold { bytes: u64, held_before: u64 },
}

/// The observed queue lengths of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) average: f64,
    /// The average in which each length counts as at most twice the high mark.
    pub(super) pressure: f64,
    pub(super) newest: f64,
}

impl Lengths {
    /// The value compared with a mark to decide whether the shard is idle or can spare a layer.
    pub(super) fn most(&self) -> f64 {
        self.average.max(self.newest)
    }

    /// The value compared with the high mark to decide whether the shard is busy.
    pub(super) fn least(&self) -> f64 {
        self.pressure.min(self.newest)
    }
}

/// The manager's state of one shard.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// `None` until a length has been observed.
    pub(super) lengths: Option<Lengths>,
    /// When it was first seen, last changed, or last seen growing.
    pub(super) changed: Nanos,
    /// Minimum time between a growth and the next idle fold.
    pub(super) patience: Nanos,
    /// When its average was last not below the low mark.
    pub(super) busy: Nanos,
    /// When it last folded because it was idle; `None` if it has grown since.
    pub(super) folded: Option<Nanos>,
    pub(super) order: Option<Order>,
    /// The expected length of its queue, if anything is expected.
    pub(super) expected: Option<f64>,
    pub(super) curve: Curve,
    pub(super) load: Load,
}

/// How busy a shard is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    /// Seconds of service since the last decision.
    pub(super) busy_s: f64,
    /// The average share of the time in service.
    pub(super) utilisation: f64,
}
