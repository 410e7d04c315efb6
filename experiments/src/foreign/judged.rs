//! What was found of a service, and how far off its predictions were.

use anyhow::Context as _;
use model::Model;
use report::{Comparison, Row, Service as Fitted};
use serde::Serialize;

use super::loads::{Loads, OneError, worst};
use super::logs::FromLog;
use super::services::Service;
use crate::claims::{Claim, Goal};
use crate::marks::Mark;

/// The largest errors that are claimed, points: up to 80 % of the capacity, and at 90 %.
const GOAL_POINTS: f64 = 3.0;
const GOAL_HIGH_POINTS: f64 = 5.0;
/// The share of judged rows that is to lie within its interval.
const COVERAGE: f64 = 0.9;

/// A service with its judgement.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    pub name: String,
    pub loads: Loads,
    /// Requests/s of the closed loop of each round.
    pub closed: Vec<f64>,
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
    /// Mean works of the loads under the likeliest hypothesis.
    pub works: Vec<Work>,
    /// The worst error up to 80 % and above of the law alone, points: with the mean work of each judged
    /// load in the place of the fitted one.
    pub law_points: Option<[f64; 2]>,
    pub marks: Vec<Mark>,
    /// What an access log alone tells.
    pub logs: Vec<FromLog>,
}

/// The mean work of a load.
#[derive(Debug, Serialize)]
pub(super) struct Work {
    pub step: String,
    pub rate: f64,
    pub fitted: bool,
    pub work_s: f64,
}

impl Judged {
    pub fn new(
        service: &Service,
        loads: Loads,
        closed: Vec<f64>,
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
            loads,
            closed,
            hypotheses: hypotheses.iter().map(words).collect(),
            misfit: worked.and_then(|w| w.misfit.clone()),
            warnings: fitted.model.warnings.clone(),
            saturation: fitted.model.node().map_or(f64::NAN, |node| node.saturation()),
            right,
            requests: worked.map_or(0, |w| w.known.requests),
            rows: comparison.rows.iter().filter(|row| !row.used_for_fit).cloned().collect(),
            works: Vec::new(),
            law_points: None,
            marks,
            logs: Vec::new(),
        }
    }

    /// Tells a wrong law from a service that was slower or faster when it was judged than when it was
    /// fitted: the same prediction with the mean work that the judged requests had.
    pub fn by_law(
        &mut self,
        model: &Model,
        comparison: &Comparison,
        within_s: &[f64],
    ) -> anyhow::Result<()> {
        let mut errors = Vec::new();
        for step in &comparison.steps {
            let Some(work_s) = step.work_s else { continue };
            let (rate, fitted) = (step.measured.rate, step.used_for_fit);
            self.works.push(Work { step: step.name.clone(), rate, fitted, work_s });
            if fitted {
                continue;
            }
            let mut own = model.clone();
            let class = own.classes.first_mut().context("a model without a class")?;
            class.service.mean.value = work_s;
            class.by_load = None;
            let shares = match own.cdf(rate, within_s) {
                Ok(shares) => shares,
                Err(model::Error::Unstable { .. }) => vec![0.0; within_s.len()],
                Err(error) => return Err(error.into()),
            };
            let measured = step.measured.within.iter();
            for ((share, measured), &within_s) in shares.iter().zip(measured).zip(within_s) {
                let points = 100.0 * (share - measured.share.value);
                let (half_points, requests) = (0.0, step.measured.requests);
                errors.push(OneError { rate, within_s, points, half_points, requests });
            }
        }
        self.law_points =
            (!errors.is_empty()).then(|| worst(&self.loads.errors(errors.into_iter())));
        Ok(())
    }

    pub fn text(&self) -> String {
        let closed: Vec<String> = self.closed.iter().map(|x| format!("{x:.0}")).collect();
        let closed = closed.join(", ");
        let mut text = format!(
            "{}: {closed}/s by closed loops, {:.0}/s by the model, of {} requests\n",
            self.name, self.saturation, self.requests
        );
        for hypothesis in self.hypotheses.iter().take(3) {
            text.push_str(&format!("  {hypothesis}\n"));
        }
        for warning in &self.warnings {
            text.push_str(&format!("  ! {warning}\n"));
        }
        let each = self.works.iter().map(|w| format!("{} {:.4}", w.step, w.work_s * 1e3));
        let each = each.collect::<Vec<_>>().join(", ");
        text.push_str(&format!("  mean works, ms: {each}\n"));
        if let Some([below, above]) = self.law_points {
            text.push_str(&format!(
                "  the law alone: {below:.1} points up to 80 %, {above:.1} at 90 %\n"
            ));
        }
        self.logs.iter().for_each(|log| text.push_str(&log.text()));
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

    fn error(&self, high: bool) -> Option<Claim> {
        let rows = self.loads.of_rows(self.rows.iter());
        let rows = || rows.iter().filter(|error| error.high == high);
        let worst = rows().map(|error| error.points).reduce(f64::max)?;
        let wider = |w: f64, h: f64| if h.is_nan() || w.is_nan() { f64::NAN } else { w.max(h) };
        let half = rows().map(|error| error.half_points).fold(0.0, wider);
        let (part, goal) = match high {
            false => ("up to 80 %", GOAL_POINTS),
            true => ("at 90 %", GOAL_HIGH_POINTS),
        };
        let samples = rows().map(|error| error.requests).max().unwrap_or(0);
        let name = format!("{}: worst |error of P(T ≤ t)| {part} of the capacity", self.name);
        let claim = Claim::new(name, worst, half, "points", samples);
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
        if let Some([below, above]) = one.law_points {
            for (part, worst) in [("up to 80 %", below), ("at 90 %", above)] {
                let name =
                    format!("{}: the same {part} with the mean work of the judged load", one.name);
                claims.push(Claim::counted(name, worst, "points", one.requests));
            }
        }
        for log in &one.logs {
            let Some([worst, _]) = log.worst_points else { continue };
            let name = format!(
                "{}: the same up to 80 % from an access log {} alone",
                one.name, log.resolution
            );
            claims.push(Claim::counted(name, worst, "points", one.requests));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_rounds_are_averaged_with_their_signs() {
        let loads = Loads::new(100.0, &[0.7, 0.8, 0.9]);
        let error = |rate: f64, points: f64| OneError {
            rate,
            within_s: 0.01,
            points,
            half_points: 3.0,
            requests: 10,
        };
        // A round never has exactly the rate that was asked for.
        let rounds = [(70.4, 6.0), (69.2, -2.0), (70.1, -1.0), (88.0, -4.0), (91.0, -5.0)];
        let found = loads.errors(rounds.into_iter().map(|(rate, points)| error(rate, points)));
        let [low, high] = &found[..] else { panic!("{found:?}") };
        assert!(!low.high && high.high);
        assert!((low.points - 1.0).abs() < 1e-9 && (high.points - 4.5).abs() < 1e-9);
        assert!((low.half_points - 3.0 / 3f64.sqrt()).abs() < 1e-9 && low.requests == 30);
        assert_eq!(worst(&found).map(f64::round), [1.0, 5.0]);
    }
}
