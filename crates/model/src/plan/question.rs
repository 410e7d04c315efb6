//! What a plan is asked: the objective, the load and its growth, and the limit that is to be kept.

use serde::{Deserialize, Serialize};

use crate::error::{Error, check, not_negative, positive};

/// An objective: a share of the requests within a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Objective {
    /// The share, 0 to 1.
    pub share: f64,
    /// The time, seconds.
    pub within_s: f64,
}

/// Growth of the load by a constant factor each month.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Relative growth in a month: 0.05 for 5 %.
    pub per_month: f64,
    /// Number of months for which the objective must hold.
    pub months: u32,
}

/// A limit that the load of a configuration must not pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitRule {
    /// No limit: a configuration past the confidence limit is marked, but valid.
    #[default]
    None,
    /// Our confidence limit of the servers (balls into bins).
    Ours,
    /// The published one: dimensioning as in the Spotify paper.
    Published,
}

/// The question that a plan answers.
///
/// ```
/// use model::plan::{Growth, Objective, Question};
/// let objective = Objective { share: 0.99, within_s: 0.05 };
/// let question = Question { growth: Some(Growth { per_month: 0.05, months: 12 }),
///     ..Question::new(objective, 12_000.0) };
/// assert!((question.design_rate() - 21_550.3).abs() < 0.1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The objective.
    pub objective: Objective,
    /// Load now, requests/s on all servers.
    pub rate: f64,
    /// Growth of the load, if any.
    pub growth: Option<Growth>,
    /// The limit that the load must not pass.
    pub limit: LimitRule,
    /// Whether the objective must hold with one server lost as well.
    pub with_one_lost: bool,
    /// Delay that gateway and network add to every response, seconds, if the model does not contain
    /// it.
    pub delay_s: f64,
    /// Number of configurations to report.
    pub top: usize,
}

impl Question {
    /// Asks for the ten cheapest configurations that meet an objective at a load.
    pub fn new(objective: Objective, rate: f64) -> Self {
        Question {
            objective,
            rate,
            growth: None,
            limit: LimitRule::None,
            with_one_lost: false,
            delay_s: 0.0,
            top: 10,
        }
    }

    /// The largest load until the end of the growth, requests/s, which a configuration must carry: that of today where the
    /// load shrinks.
    pub fn design_rate(&self) -> f64 {
        let grown = |g: Growth| self.rate * (1.0 + g.per_month).powf(g.months.into());
        self.growth.map_or(self.rate, |growth| grown(growth).max(self.rate))
    }

    /// The objective's time less the delay, seconds: the time left for a server.
    pub(super) fn within_s(&self) -> f64 {
        self.objective.within_s - self.delay_s
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        check("the share of an objective", self.objective.share, 0.0..=1.0, "0 to 1")?;
        not_negative("the time of an objective", self.objective.within_s)?;
        not_negative("the delay of gateway and network", self.delay_s)?;
        check("the time of an objective less the delay", self.within_s(), 0.0..=1e12, "above 0")?;
        positive("the request rate", self.rate)?;
        if let Some(growth) = self.growth {
            check("the growth of a month", growth.per_month, -0.99..=100.0, "-0.99 to 100")?;
            check("the months of growth", growth.months.into(), 0.0..=1200.0, "at most 1200")?;
            check("the load after the growth", self.design_rate(), 0.0..=1e15, "at most 1e15")?;
        }
        check("the number of configurations to show", self.top as f64, 1.0..=1e4, "1 to 10,000")
            .map(|_| ())
    }
}
