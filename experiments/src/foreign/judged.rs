//! What was found of a service, and how far off its predictions were.

use report::{Comparison, Row, Service as Fitted};
use serde::Serialize;

use super::services::Service;
use crate::marks::Mark;
use crate::{Claim, Goal};

/// The largest errors that are claimed, points: up to 80 % of the capacity, and at 90 %.
const GOAL_POINTS: f64 = 3.0;
const GOAL_HIGH_POINTS: f64 = 5.0;
/// Above this share of the capacity the larger goal holds.
const HIGH: f64 = 0.85;
/// The share of judged rows that is to lie within its interval.
const COVERAGE: f64 = 0.9;

/// A service with its judgement.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    pub name: String,
    /// Requests/s of the pilot.
    pub capacity: f64,
    /// The hypotheses, the likeliest first, in words with score and weight.
    pub hypotheses: Vec<String>,
    pub misfit: Option<String>,
    pub warnings: Vec<String>,
    /// Saturation by the model, requests/s.
    pub saturation: f64,
    /// Whether discipline and servers are those that are known.
    pub right: Option<bool>,
    /// Requests that were fitted.
    pub requests: u64,
    pub rows: Vec<Row>,
    pub marks: Vec<Mark>,
}

impl Judged {
    pub fn new(
        service: &Service,
        capacity: f64,
        fitted: &Fitted,
        comparison: &Comparison,
        marks: Vec<Mark>,
    ) -> Judged {
        let worked = fitted.worked.as_ref();
        let hypotheses = worked.map_or(&[][..], |w| &w.hypotheses);
        let first = hypotheses.first();
        let right = service.expected.map(|known| {
            first.is_some_and(|h| {
                // Without a limit, or of one server, the discipline does not matter.
                let any = known.servers.is_none() || h.servers.is_none();
                h.servers == known.servers && (any || h.discipline == known.discipline)
            })
        });
        let words = |h: &model::Hypothesis| {
            format!(
                "{}: score {:.2}, weight {:.2}, work {:.4} ms (SCV {:.2}), outside {:.4} ms, {:.1} % pass by",
                h.title(),
                h.score,
                h.weight,
                h.work.value * 1e3,
                h.scv,
                h.outside.value * 1e3,
                h.bypass * 100.0
            )
        };
        Judged {
            name: service.name.clone(),
            capacity,
            hypotheses: hypotheses.iter().map(words).collect(),
            misfit: worked.and_then(|w| w.misfit.clone()),
            warnings: fitted.model.warnings.clone(),
            saturation: fitted.model.node().map_or(f64::NAN, |node| node.saturation()),
            right,
            requests: worked.map_or(0, |w| w.known.requests),
            rows: comparison.rows.iter().filter(|row| !row.used_for_fit).cloned().collect(),
            marks,
        }
    }

    pub fn text(&self) -> String {
        let mut text = format!(
            "{}: {:.0}/s by a closed loop, {:.0}/s by the model, of {} requests\n",
            self.name, self.capacity, self.saturation, self.requests
        );
        for hypothesis in self.hypotheses.iter().take(3) {
            text.push_str(&format!("  {hypothesis}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("  ! {warning}\n"));
        }
        for row in &self.rows {
            let expected = row.expected.map_or(String::new(), |e| {
                let inside = if e.inside { "" } else { " OUTSIDE" };
                format!("{:.1}..{:.1}{inside}", e.low * 100.0, e.high * 100.0)
            });
            text.push_str(&format!(
                "  {:7.1}/s within {:8.3} ms: measured {:5.1} ± {:.1}, predicted {:5.1}, {expected}\n",
                row.rate,
                row.within_s * 1e3,
                row.measured.value * 100.0,
                row.measured.half_width.map_or(f64::NAN, |h| h * 100.0),
                row.concertina.as_ref().map_or(f64::NAN, |p| p.value * 100.0),
            ));
        }
        text
    }

    /// Shares of the capacity that are judged by one goal.
    fn part(&self, high: bool) -> Vec<&Row> {
        self.rows.iter().filter(|row| (row.rate > HIGH * self.capacity) == high).collect()
    }

    fn error(&self, high: bool) -> Option<Claim> {
        let rows = self.part(high);
        // Past the saturation of a model nobody is answered in time for long.
        let error =
            |row: &Row| row.concertina_error_points.map_or(row.measured.value * 100.0, f64::abs);
        let worst = rows.iter().map(|row| error(row)).reduce(f64::max)?;
        let half = rows.iter().map(|row| row.measured.half_width.map_or(f64::NAN, |h| h * 100.0));
        let half =
            half.fold(0.0, |w: f64, h| if h.is_nan() || w.is_nan() { f64::NAN } else { w.max(h) });
        let (part, goal) = match high {
            false => ("up to 80 %", GOAL_POINTS),
            true => ("at 90 %", GOAL_HIGH_POINTS),
        };
        let samples = rows.iter().map(|row| row.requests).max().unwrap_or(0);
        let name = format!("{}: worst |error of P(T ≤ t)| {part} of the capacity", self.name);
        let claim = Claim::new(name, (worst, half), "points", samples);
        Some(Claim { marks: self.marks.clone(), ..claim.with_goal(Goal::AtMost(goal)) })
    }
}

/// The claims of all services.
pub(super) fn claims(all: &[Judged]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for one in all {
        claims.extend([false, true].into_iter().filter_map(|high| one.error(high)));
        if let Some(right) = one.right {
            let name = format!("{}: discipline and servers are found", one.name);
            let value = f64::from(u8::from(right));
            let claim = Claim::counted(name, value, "", one.requests);
            claims.push(claim.with_goal(Goal::AtLeast(1.0)));
        }
    }
    claims.push(coverage(all));
    claims
}

/// Services whose judged shares are within their intervals, each service counted as a whole: the
/// rows of a load are not independent.
fn coverage(all: &[Judged]) -> Claim {
    let shares: Vec<f64> = all
        .iter()
        .filter(|one| !one.rows.is_empty())
        .map(|one| {
            let inside = |row: &&Row| row.expected.is_some_and(|e| e.inside);
            one.rows.iter().filter(inside).count() as f64 / one.rows.len() as f64
        })
        .collect();
    let claim = Claim::of_rounds("judged shares within their 95 % intervals", &shares, "");
    claim.with_goal(Goal::AtLeast(COVERAGE))
}
