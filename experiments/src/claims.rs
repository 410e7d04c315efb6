//! Claims and their judgement: in one place, the same for every experiment.

use model::statistics::batch_means;
use serde::{Deserialize, Serialize};

use report::grid::Grid;

/// What a value must be for its claim to hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        self.margin(value) >= 0.0
    }

    /// How far a value is past the goal; negative where it falls short.
    fn margin(self, value: f64) -> f64 {
        match self {
            Goal::AtMost(bound) => bound - value,
            Goal::AtLeast(bound) => value - bound,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Goal::AtMost(bound) => write!(f, "≤ {bound}"),
            Goal::AtLeast(bound) => write!(f, "≥ {bound}"),
        }
    }
}

/// One figure that an experiment measured, and what was claimed of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// What the figure is.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// Lower end of its 95 % interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Unit of all of these.
    pub unit: String,
    /// Requests, repetitions or cases behind it.
    pub samples: u64,
    /// Largest half-width of the interval with which the figure says anything.
    pub width_max: f64,
    /// What the source printed, where it did.
    pub published: Option<f64>,
    /// What is claimed; `None` for a figure that is shown beside.
    pub goal: Option<Goal>,
    /// The same figure of the rival or baseline in the same run.
    pub peer: Option<Peer>,
    /// Whether the claim holds: set by [`Claim::judged`] alone.
    pub holds: bool,
}

/// A rival's figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Who.
    pub name: String,
    /// Its figure, in the claim's unit.
    pub value: f64,
}

impl Claim {
    /// The claim with its goal, whose interval may reach `width_share` of the goal to either side, or as far as the
    /// figure is past the goal: then all of the interval meets it, and a narrower one would say no more.
    pub fn aimed_at(self, goal: Goal, width_share: f64) -> Claim {
        let (Goal::AtMost(bound) | Goal::AtLeast(bound)) = goal;
        let width_max = (width_share * bound).max(goal.margin(self.value));
        Claim { goal: Some(goal), width_max, ..self }
    }

    /// The claim with its judgement: the value meets the goal, *and* the measurement's own 95 %
    /// half-width is within `width_max`. A figure without a goal holds if it is a number.
    pub fn judged(mut self) -> Claim {
        let half_width = (self.high - self.low) / 2.0;
        let measured = self.value.is_finite() && half_width.is_finite();
        let met = self.goal.is_none_or(|goal| goal.is_met(self.value));
        self.holds = measured && met && (self.goal.is_none() || half_width <= self.width_max);
        self
    }
}

/// A table of claims for a terminal.
pub fn table(claims: &[Claim]) -> String {
    let head = ["claim", "value", "95 % interval", "goal", "published", "peer", "samples", ""];
    let mut grid = Grid::new("lrrrrrrl", &head);
    for claim in claims {
        let verdict = match (claim.goal, claim.holds) {
            (None, true) => "",
            (None, false) => "NOT MEASURED",
            (Some(_), true) => "holds",
            (Some(_), false) => "DOES NOT HOLD",
        };
        grid.row([
            claim.name.clone(),
            format!("{:.3} {}", claim.value, claim.unit),
            format!("{:.3} … {:.3}", claim.low, claim.high),
            claim.goal.map_or(String::new(), |goal| goal.to_string()),
            claim.published.map_or(String::new(), |value| format!("{value}")),
            claim.peer.as_ref().map_or(String::new(), |p| format!("{:.3} {}", p.value, p.name)),
            claim.samples.to_string(),
            verdict.to_owned(),
        ]);
    }
    grid.text()
}

/// A figure with the interval of its mean over rounds, and no goal yet. Without rounds it has no value.
pub fn of_rounds(name: String, rounds: &[f64], unit: &str) -> Claim {
    let estimate = batch_means(rounds);
    let value = estimate.map_or(f64::NAN, |e| e.mean);
    let half_width = estimate.map_or(f64::NAN, |e| e.half_width);
    Claim {
        name,
        value,
        low: value - half_width,
        high: value + half_width,
        unit: unit.to_owned(),
        samples: rounds.len() as u64,
        width_max: 0.0,
        published: None,
        goal: None,
        peer: None,
        holds: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(value: f64, half_width: f64, goal: Option<Goal>) -> Claim {
        Claim {
            name: "error".into(),
            value,
            low: value - half_width,
            high: value + half_width,
            unit: "points".into(),
            samples: 10,
            width_max: 1.0,
            published: None,
            goal,
            peer: None,
            holds: false,
        }
        .judged()
    }

    #[test]
    fn a_claim_holds_within_goal_and_width_alone() {
        assert!(claim(1.5, 0.5, Some(Goal::AtMost(2.0))).holds);
        assert!(!claim(2.5, 0.5, Some(Goal::AtMost(2.0))).holds, "misses the goal");
        assert!(!claim(1.5, 1.5, Some(Goal::AtMost(2.0))).holds, "measured too roughly");
        assert!(!claim(1.5, 0.5, Some(Goal::AtLeast(2.0))).holds);
        assert!(!claim(f64::NAN, 0.5, None).holds);
        assert!(claim(1.5, 9.0, None).holds, "shown beside, nothing claimed");
    }

    #[test]
    fn a_claim_whose_whole_interval_is_past_its_goal_is_narrow_enough() {
        let aimed = |value, half_width, goal| {
            claim(value, half_width, None).aimed_at(goal, 0.1).judged().holds
        };
        assert!(aimed(30.0, 9.0, Goal::AtLeast(20.0)) && aimed(11.0, 8.0, Goal::AtMost(20.0)));
        assert!(!aimed(30.0, 11.0, Goal::AtLeast(20.0)) && !aimed(11.0, 10.0, Goal::AtMost(20.0)));
        assert!(aimed(20.5, 1.5, Goal::AtLeast(20.0)), "it reaches past the goal, but is narrow");
        assert!(!aimed(20.5, 2.5, Goal::AtLeast(20.0)) && !aimed(19.5, 0.1, Goal::AtLeast(20.0)));
        assert!(!aimed(f64::NAN, 0.1, Goal::AtLeast(20.0)));
    }
}
