//! Claims and their verdicts: one rule, the same for every experiment.
//!
//! A claim *holds* if its whole 95 % interval meets its goal, *fails* if all of the interval is
//! outside, and is *not shown* otherwise. There are no exceptions: not for an interval that is
//! narrow, and not for a value that meets the goal while its interval does not. A figure without a
//! goal has no verdict.

use model::statistics::batch_means;
use report::grid::Grid;
use serde::{Deserialize, Serialize};

use crate::marks::{Complaint, Mark};

/// What a figure must be for its claim to hold.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Goal {
    /// The rule: the verdict on an interval. An end that is unknown (NaN), or ends in the wrong
    /// order, show nothing.
    pub fn verdict(self, low: f64, high: f64) -> Verdict {
        let (met, missed) = match self {
            Goal::AtMost(bound) => (high <= bound, low > bound),
            Goal::AtLeast(bound) => (low >= bound, high < bound),
        };
        // A comparison with NaN is false.
        match (low <= high, met, missed) {
            (true, true, _) => Verdict::Holds,
            (true, _, true) => Verdict::Fails,
            _ => Verdict::NotShown,
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

/// What a measurement says about a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// The whole interval meets the goal.
    #[serde(rename = "holds")]
    Holds,
    /// The interval reaches across the goal, or is unknown.
    #[serde(rename = "not shown")]
    NotShown,
    /// All of the interval is outside the goal.
    #[serde(rename = "fails")]
    Fails,
}

impl Verdict {
    /// As it is written in `claims.json`.
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::NotShown => "not shown",
            Verdict::Fails => "fails",
        }
    }
}

/// One figure that an experiment measured, and what was claimed of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Name of the figure.
    pub name: String,
    /// The figure; NaN (`null` in a file) if it was not measured.
    #[serde(deserialize_with = "number_or_null")]
    pub value: f64,
    /// Lower end of its 95 % interval; NaN if the interval is unknown.
    #[serde(deserialize_with = "number_or_null")]
    pub low: f64,
    /// Upper end; NaN if the interval is unknown.
    #[serde(deserialize_with = "number_or_null")]
    pub high: f64,
    /// Unit of all of these.
    pub unit: String,
    /// Requests, repetitions or cases behind it.
    pub samples: u64,
    /// The source's figure, if it printed one.
    pub published: Option<f64>,
    /// What is claimed; `None` for a figure that is only shown.
    pub goal: Option<Goal>,
    /// The same figure of the rival or baseline in the same run.
    pub peer: Option<Peer>,
    /// Complaints about the steps that the claim rests on.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// Set by [`Claim::judged`] only; `None` for a figure without a goal.
    #[serde(default)]
    pub verdict: Option<Verdict>,
}

/// A rival's figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// Name of the rival.
    pub name: String,
    /// Its figure, in the claim's unit.
    pub value: f64,
}

/// JSON has no NaN: an unknown number is written as `null`.
fn number_or_null<'de, D: serde::Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(from)?.unwrap_or(f64::NAN))
}

impl Claim {
    /// A figure with the half-width of its 95 % interval, and no goal yet.
    pub fn new(
        name: impl Into<String>,
        value: f64,
        half_width: f64,
        unit: &str,
        samples: u64,
    ) -> Claim {
        Claim {
            name: name.into(),
            value,
            low: value - half_width,
            high: value + half_width,
            unit: unit.to_owned(),
            samples,
            published: None,
            goal: None,
            peer: None,
            marks: Vec::new(),
            verdict: None,
        }
    }

    /// A figure that was counted or computed, not estimated: a size, a number of wrong answers, an
    /// error of a formula. Its interval is the figure itself.
    pub fn counted(name: impl Into<String>, value: f64, unit: &str, samples: u64) -> Claim {
        Claim::new(name, value, 0.0, unit, samples)
    }

    /// A time or an amount of memory that was measured once: its interval is unknown, so that no
    /// goal is shown.
    pub fn once(name: impl Into<String>, value: f64, unit: &str) -> Claim {
        Claim::new(name, value, f64::NAN, unit, 1)
    }

    /// A figure with Student's 95 % interval of its mean over rounds. Without rounds it has no
    /// value, with one round no interval.
    pub fn of_rounds(name: impl Into<String>, rounds: &[f64], unit: &str) -> Claim {
        let only = rounds.first().copied().unwrap_or(f64::NAN);
        let estimate = batch_means(rounds);
        let (value, half_width) = estimate.map_or((only, f64::NAN), |e| (e.mean, e.half_width));
        Claim::new(name, value, half_width, unit, rounds.len() as u64)
    }

    /// The claim with its goal.
    pub fn with_goal(self, goal: Goal) -> Claim {
        Claim { goal: Some(goal), ..self }
    }

    /// The claim with its verdict, by [`Goal::verdict`]. A claim that rests on a step whose
    /// attempts ran out is not shown, whatever that step measured.
    pub fn judged(mut self) -> Claim {
        let settled = !self.marks.iter().any(|m| m.complaint == Complaint::AttemptsExhausted);
        let known = self.value.is_finite() && settled;
        self.verdict = self.goal.map(|goal| match known {
            true => goal.verdict(self.low, self.high),
            false => Verdict::NotShown,
        });
        self
    }
}

/// A table of claims for a terminal.
pub fn table(claims: &[Claim]) -> String {
    let head = ["claim", "value", "95 % interval", "goal", "published", "peer", "samples", ""];
    let mut grid = Grid::new("lrrrrrrl", &head);
    for claim in claims {
        let verdict = match claim.verdict {
            Some(Verdict::Holds) => "holds",
            Some(Verdict::NotShown) => "NOT SHOWN",
            Some(Verdict::Fails) => "FAILS",
            None if claim.value.is_nan() => "not measured",
            None => "",
        };
        let marked = if claim.marks.is_empty() { "" } else { " (marked)" };
        grid.row([
            claim.name.clone(),
            format!("{:.3} {}", claim.value, claim.unit),
            interval(claim),
            claim.goal.map_or(String::new(), |goal| goal.to_string()),
            claim.published.map_or(String::new(), |value| format!("{value}")),
            claim.peer.as_ref().map_or(String::new(), |p| format!("{:.3} {}", p.value, p.name)),
            claim.samples.to_string(),
            format!("{verdict}{marked}"),
        ]);
    }
    let mut text = grid.text();
    for mark in marks(claims) {
        text.push_str(&format!("marked: {mark}\n"));
    }
    text
}

fn interval(claim: &Claim) -> String {
    match claim.low.is_nan() || claim.high.is_nan() {
        true => "unknown".to_owned(),
        false => format!("{:.3} … {:.3}", claim.low, claim.high),
    }
}

/// The marks of all claims, each once, in words.
fn marks(claims: &[Claim]) -> Vec<String> {
    let mut marks: Vec<String> = Vec::new();
    for mark in claims.iter().flat_map(|claim| &claim.marks) {
        let words = mark.to_string();
        if !marks.contains(&words) {
            marks.push(words);
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(value: f64, half_width: f64, goal: Goal) -> Verdict {
        let claim = Claim::new("error", value, half_width, "points", 10).with_goal(goal).judged();
        claim.verdict.unwrap()
    }

    #[test]
    fn the_whole_interval_decides() {
        use Verdict::{Fails, Holds, NotShown};
        for (value, half_width, goal, expected) in [
            (1.5, 0.5, Goal::AtMost(2.0), Holds),
            (1.5, 0.6, Goal::AtMost(2.0), NotShown),
            (2.5, 0.6, Goal::AtMost(2.0), NotShown),
            (2.5, 0.4, Goal::AtMost(2.0), Fails),
            (2.5, 0.5, Goal::AtMost(2.0), NotShown),
            (2.0, 0.0, Goal::AtMost(2.0), Holds),
            // However wide, and however narrow: only the ends count.
            (30.0, 9.0, Goal::AtLeast(20.0), Holds),
            (30.0, 11.0, Goal::AtLeast(20.0), NotShown),
            (20.5, 1.5, Goal::AtLeast(20.0), NotShown),
            (19.5, 0.1, Goal::AtLeast(20.0), Fails),
            (0.0, 0.0, Goal::AtMost(0.0), Holds),
            (1.0, 0.0, Goal::AtMost(0.0), Fails),
            (f64::NAN, 0.5, Goal::AtMost(2.0), NotShown),
            (1.0, f64::NAN, Goal::AtMost(2.0), NotShown),
            (f64::INFINITY, 0.5, Goal::AtMost(2.0), NotShown),
            (1.0, -0.5, Goal::AtMost(2.0), NotShown),
        ] {
            assert_eq!(
                verdict(value, half_width, goal),
                expected,
                "{value} ± {half_width}, {goal}"
            );
        }
    }

    #[test]
    fn a_figure_without_a_goal_has_no_verdict() {
        let shown = Claim::new("size", 1.0, 9.0, "×", 3).judged();
        assert_eq!(shown.verdict, None);
        let json = serde_json::to_value(&shown).unwrap();
        assert!(json["verdict"].is_null() && json["goal"].is_null() && json.get("holds").is_none());
        let missing = Claim::of_rounds("a peer that is missing", &[], "×").judged();
        assert!(missing.verdict.is_none() && table(&[missing]).contains("not measured"));
    }

    #[test]
    fn one_measurement_shows_nothing_and_a_count_everything() {
        let goal = Goal::AtMost(2.0);
        for claim in [Claim::once("memory", 1.0, "GiB"), Claim::of_rounds("time", &[1.0], "s")] {
            let claim = claim.with_goal(goal).judged();
            assert_eq!((claim.value, claim.verdict), (1.0, Some(Verdict::NotShown)));
        }
        let counted = Claim::counted("wrong answers", 1.0, "", 10).with_goal(goal).judged();
        assert_eq!(counted.verdict, Some(Verdict::Holds));
    }

    #[test]
    fn a_mark_is_shown_and_exhausted_attempts_decide() {
        let mark = |complaint| Mark::new("fit-0.3", complaint, "3 ms");
        let claim = |complaint| Claim {
            marks: vec![mark(complaint)],
            ..Claim::counted("error", 1.0, "points", 1).with_goal(Goal::AtMost(2.0))
        };
        let late = claim(Complaint::Late).judged();
        assert_eq!(late.verdict, Some(Verdict::Holds), "a mark is a warning, not a verdict");
        let shown = table(&[late.clone(), late]);
        assert!(shown.contains("holds (marked)") && shown.matches("marked: fit-0.3").count() == 1);
        let exhausted = claim(Complaint::AttemptsExhausted).judged();
        assert_eq!(exhausted.verdict, Some(Verdict::NotShown));
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        let claim = Claim {
            marks: vec![Mark::new("slow 0.9", Complaint::Stolen, "12 % stolen")],
            ..Claim::once("memory", 1.5, "GiB").with_goal(Goal::AtLeast(1.0)).judged()
        };
        let text = serde_json::to_string(&claim).unwrap();
        assert!(
            text.contains(r#""verdict":"not shown""#) && text.contains(r#""low":null"#),
            "{text}"
        );
        let read: Claim = serde_json::from_str(&text).unwrap();
        assert!(read.low.is_nan() && read.marks == claim.marks && read.verdict == claim.verdict);
    }
}
