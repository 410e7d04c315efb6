//! What was found of a service, and how far off its predictions were.

use anyhow::Context as _;
use model::Model;
use report::{Comparison, Row, Service as Fitted};
use serde::Serialize;

use super::logs::FromLog;
use super::services::Service;
use crate::marks::Mark;
use crate::{Claim, Goal};

/// The largest errors that are claimed, points: up to 80 % of the capacity, and at 90 %.
const GOAL_POINTS: f64 = 3.0;
const GOAL_HIGH_POINTS: f64 = 5.0;
/// Above this share of the capacity the larger goal holds.
pub(super) const HIGH: f64 = 0.85;
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
        let mut worst: Option<[f64; 2]> = None;
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
            let part = usize::from(rate > HIGH * self.capacity);
            for (share, measured) in shares.iter().zip(&step.measured.within) {
                let error = 100.0 * (share - measured.share.value).abs();
                let worst = &mut worst.get_or_insert([0.0; 2])[part];
                *worst = worst.max(error);
            }
        }
        self.law_points = worst;
        Ok(())
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
