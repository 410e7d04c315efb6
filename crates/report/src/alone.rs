//! What runs measured, without a model: one row for each step, and the distributions.
//!
//! A run that has no device queues (of a load generator alone, an imported log, a measurement) says
//! what clients saw; that needs no model, and is what a model would be compared with.

use std::fmt::Write;

use serde::Serialize;

use super::compare::{RunInfo, counted_at};
use super::embedded;
use super::error::Error;
use super::grid::{Grid, escape, printable};
use super::html::{self, Page, verdict_html};
use super::measured::{StepFigures, measure};
use super::objective::{Objective, digits, time};
use super::steps::{Observed, run_name};
use super::svg::{Axis, Mark, Plot, PlotPoint, Shape};
use super::table::{percent, tenths, warnings_text};
use super::verdict::Verdict;
use record::Step;

/// A step with what was measured in it.
#[derive(Clone, Debug, Serialize)]
pub struct MeasuredStep {
    /// Its name: the run's folder and its number.
    pub name: String,
    /// The step as its run wrote it.
    pub step: Step,
    /// Whether the run has device queues.
    pub has_devices: bool,
    /// The measured figures.
    pub measured: StepFigures,
}

/// What runs measured.
#[derive(Clone, Debug, Serialize)]
pub struct Measurements {
    /// Emulation notes of the runs. Show them with the figures.
    pub laboratory: Vec<String>,
    /// What they answer.
    pub verdict: Verdict,
    /// The times, seconds.
    pub within_s: Vec<f64>,
    /// The steps in order of rate.
    pub steps: Vec<MeasuredStep>,
    /// Warnings about the steps.
    pub warnings: Vec<String>,
    /// The runs.
    pub runs: Vec<RunInfo>,
}

impl Measurements {
    /// Measures the steps of runs. If `within_s` is empty, the objectives at which the runs counted
    /// are used, and always the times of `objectives`.
    ///
    /// # Errors
    /// [`Error::Empty`] if the runs have no steps.
    pub fn new(
        observed: &Observed,
        within_s: &[f64],
        objectives: &[Objective],
    ) -> Result<Measurements, Error> {
        let mut within_s =
            if within_s.is_empty() { counted_at(observed) } else { within_s.to_vec() };
        for objective in objectives {
            if !within_s.contains(&objective.within_s) {
                within_s.push(objective.within_s);
            }
        }
        let steps: Vec<MeasuredStep> = observed
            .steps
            .iter()
            .map(|step| MeasuredStep {
                name: step.name().to_owned(),
                step: step.step.clone(),
                has_devices: !step.windows.devices.is_empty(),
                measured: measure(step, &within_s),
            })
            .collect();
        let mut warnings = Vec::new();
        for step in &steps {
            let hints = step.measured.hints.iter();
            warnings.extend(hints.map(|hint| format!("Step {}: {hint}.", step.name)));
        }
        for run in &observed.runs {
            // As an import wrote them (`uncertainty::Imported`).
            let imported = run.run.asked.get("imported").and_then(|imported| imported.get("notes"));
            let notes = imported.and_then(toml::Value::as_array).into_iter().flatten();
            let notes = notes.filter_map(toml::Value::as_str);
            warnings.extend(notes.map(|note| format!("Run {}: {note}", run_name(run))));
        }
        let info = |r: &record::RunFolder| RunInfo { name: run_name(r), run: r.run.clone() };
        let runs = observed.runs.iter().map(info).collect();
        let laboratory = observed.laboratory();
        let verdict = verdict(&steps, &within_s, objectives, &warnings);
        Ok(Measurements { laboratory, verdict, within_s, steps, warnings, runs })
    }

    fn grid(&self) -> Grid {
        let within: Vec<String> =
            self.within_s.iter().map(|t| format!("≤ {} %", time(*t))).collect();
        let mut head = vec!["step", "requests/s", "seconds", "reads", "mean", "p99"];
        head.extend(within.iter().map(String::as_str));
        head.extend(["errors", "busy %"]);
        let mut grid = Grid::new("lrrrrrrrrrrrrrrrrrrrrrrrr", &head);
        for step in &self.steps {
            let m = &step.measured;
            let half =
                m.response_mean.half_width.map_or(String::new(), |h| format!(" ± {}", time(h)));
            let mut row = vec![
                step.name.clone(),
                digits(m.rate, 4),
                digits(m.seconds, 4),
                digits(m.requests as f64, 15),
                time(m.response_mean.value) + &half,
                time(m.response_p99),
            ];
            row.extend(m.within.iter().map(|within| {
                let half = within.share.half_width.map_or("?".to_owned(), percent);
                format!("{} ± {half}", percent(within.share.value))
            }));
            row.push(digits(m.errors as f64, 15));
            row.push(if step.has_devices { tenths(m.utilisation_mean) } else { "–".to_owned() });
            grid.row(row);
        }
        grid
    }

    /// The measurements as text: a table, and warnings.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for note in &self.laboratory {
            let _ = writeln!(out, "EMULATED: {}", printable(note));
        }
        out += &self.verdict.text();
        let _ = writeln!(out, "\n{}", self.grid().text());
        out + &warnings_text(&self.warnings)
    }

    /// The measurements as an HTML page.
    pub fn html(&self, page: &Page) -> String {
        let embedded = page.embedded.as_ref();
        let mut out = html::head(page);
        html::laboratory(&self.laboratory, &mut out);
        out += &verdict_html(&self.verdict);
        out += &self.grid().html(|_| "");
        if !self.warnings.is_empty() {
            let count = self.warnings.len();
            let _ = writeln!(
                out,
                "<details class=\"note warn\" open><summary>Warnings ({count})</summary><ul>"
            );
            for warning in &self.warnings {
                let _ = writeln!(out, "<li>{}</li>", escape(warning));
            }
            out.push_str("</ul></details>\n");
        }
        out.push_str("<h2>Answered in time, against load</h2>\n");
        html::plots(&self.against_rate(), &mut out);
        out.push_str("<h2>Distribution of the response time</h2>\n");
        html::plots(&self.distributions(), &mut out);
        out.push_str(&embedded::sections(embedded));
        out.push_str("<h2>Runs</h2>\n");
        for RunInfo { name, run } in &self.runs {
            let asked = toml::to_string(&run.asked).unwrap_or_default();
            let _ = writeln!(
                out,
                "<details><summary>{} ({}, version {})</summary><pre><code>{}</code></pre></details>",
                escape(name),
                escape(&run.kind),
                escape(&run.version),
                escape(&asked)
            );
        }
        html::commands(page, &mut out);
        out.push_str("</main>\n</body>\n</html>\n");
        out
    }

    /// The share within each time at each measured load.
    pub(crate) fn against_rate(&self) -> Vec<Plot> {
        let largest = self.steps.iter().map(|s| s.measured.rate).fold(0.0, f64::max);
        let plot = |(i, t_s): (usize, &f64)| {
            let point = |step: &MeasuredStep| {
                let share = step.measured.within.get(i)?.share;
                let (x, y) = (step.measured.rate, share.value);
                let title =
                    format!("{}: {}/s, {} %", step.name, digits(x, 4), percent(share.value));
                Some(PlotPoint { x, y, half: share.half_width.unwrap_or(0.0), title })
            };
            let points: Vec<PlotPoint> = self.steps.iter().filter_map(point).collect();
            let lowest = points.iter().map(|p| p.y - p.half).fold(1.0, f64::min);
            let low = [0.98, 0.9, 0.8, 0.5].into_iter().find(|low| lowest > *low).unwrap_or(0.0);
            let mark = Mark::Points {
                class: "measured",
                shape: Shape::Disc,
                label: "measured".to_owned(),
                points,
            };
            Plot {
                title: format!("Fraction served within {}", time(*t_s)),
                x: Axis::linear("requests/s", 0.0, (largest * 1.05).max(1e-6)),
                y: Axis::linear("fraction of requests", low, 1.0 + (1.0 - low) * 0.02),
                marks: vec![mark],
            }
        };
        self.within_s.iter().enumerate().map(plot).collect()
    }

    /// The distribution of responses in each step.
    pub(crate) fn distributions(&self) -> Vec<Plot> {
        let plot = |step: &MeasuredStep| {
            let responses = &step.measured.responses;
            let low = responses.quantile_s(0.001).unwrap_or(1e-4).max(2e-5) / 1.5;
            let high = (responses.max_s() * 1.2).max(low * 10.0).min(1e4);
            let points = (0..=110)
                .map(|i| low * (high / low).powf(f64::from(i) / 110.0))
                .filter_map(|t| Some((t * 1e3, responses.share_within(t)?)))
                .collect();
            Plot {
                title: format!("{}/s", digits(step.measured.rate, 4)),
                x: Axis::log("response time, ms", low * 1e3, high * 1e3),
                y: Axis::linear("fraction of requests", 0.0, 1.02),
                marks: vec![Mark::Line { class: "measured", label: "measured".to_owned(), points }],
            }
        };
        self.steps.iter().filter(|s| !s.measured.responses.is_empty()).map(plot).collect()
    }
}

/// The steps in the order of their loads.
fn by_rate(steps: &[MeasuredStep]) -> Vec<&MeasuredStep> {
    let mut all: Vec<&MeasuredStep> = steps.iter().collect();
    all.sort_by(|a, b| a.measured.rate.total_cmp(&b.measured.rate));
    all
}

/// How fast the service was at a load: a sentence.
fn how_fast(measured: &StepFigures) -> String {
    let StepFigures { rate, response_mean, response_p99, errors, refusals, .. } = measured;
    let rate = digits(*rate, 4);
    if response_mean.value.is_nan() {
        return format!(
            "No read of {rate} requests/s was answered: {errors} errors, {refusals} refusals."
        );
    }
    let (mean, p99) = (time(response_mean.value), time(*response_p99));
    format!("{rate} requests/s took {mean} in the mean, 99 % at most {p99}.")
}

/// What measurements answer by themselves: which measured loads met the objectives, and how responses lengthened.
fn verdict(
    steps: &[MeasuredStep],
    within_s: &[f64],
    objectives: &[Objective],
    warnings: &[String],
) -> Verdict {
    let steps = by_rate(steps);
    let asked = match objectives {
        [] => "How fast was the service at the measured loads?".to_owned(),
        all => {
            let all: Vec<String> = all.iter().map(ToString::to_string).collect();
            format!("Which measured loads were answered {}?", all.join(", or "))
        }
    };
    let mut answer: Vec<String> =
        objectives.iter().filter_map(|objective| met(&steps, within_s, *objective)).collect();
    if answer.is_empty() {
        answer.extend(steps.last().map(|step| how_fast(&step.measured)));
    }
    let loads = match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if steps.len() > 1 => Some((&first.measured, &last.measured)),
        _ => None,
    };
    let more_load = match loads {
        Some((low, high)) => format!(
            "From {} to {} requests/s the mean went from {} to {}, p99 from {} to {}.",
            digits(low.rate, 4),
            digits(high.rate, 4),
            time(low.response_mean.value),
            time(high.response_mean.value),
            time(low.response_p99),
            time(high.response_p99)
        ),
        None => "Not known: one load was measured.".to_owned(),
    };
    let busiest = steps.iter().filter(|step| step.has_devices).map(|s| s.measured.utilisation_mean);
    let breaks_first = match busiest.reduce(f64::max) {
        Some(busy) => {
            format!("Not known without a model; the devices were at most {} % busy.", tenths(busy))
        }
        None => "Not known without a model: how busy the servers were was not measured.".to_owned(),
    };
    let checked =
        match warnings.len() {
            0 => "Measured only: no model was given. Nothing speaks against the measurements."
                .to_owned(),
            1 => "Measured only: no model was given. A note below is about the measurements."
                .to_owned(),
            n => format!(
                "Measured only: no model was given. {n} notes below are about the measurements."
            ),
        };
    let next = match loads {
        Some(_) => {
            "`concertina fit RUN --servers auto --out model.toml` predicts other loads (of a run with device queues \
             without --servers); `concertina report RUN model.toml` shows them beside this."
        }
        None => "Measure a second load: one does not tell how responses lengthen with load.",
    };
    Verdict { asked, answer, breaks_first, more_load, checked, next: next.to_owned() }
}

/// The largest measured load up to which all met an objective, and the first that did not.
fn met(steps: &[&MeasuredStep], within_s: &[f64], objective: Objective) -> Option<String> {
    let at = within_s.iter().position(|t| *t == objective.within_s)?;
    let share = |step: &MeasuredStep| step.measured.within.get(at).map(|within| within.share);
    let shown = |step: &MeasuredStep| {
        let share = share(step)?;
        let half = share.half_width.map_or(String::new(), |half| format!(" ± {}", percent(half)));
        let rate = digits(step.measured.rate, 4);
        Some(format!("{rate} requests/s ({}{half} %)", percent(share.value)))
    };
    let keeps = |step: &MeasuredStep| share(step).is_some_and(|s| s.value >= objective.share);
    let missed = steps.iter().position(|step| !keeps(step));
    let kept = missed.unwrap_or(steps.len()).checked_sub(1).and_then(|last| steps.get(last));
    let missed = missed.and_then(|at| steps.get(at));
    Some(match (kept.and_then(|s| shown(s)), missed.and_then(|s| shown(s))) {
        (Some(kept), None) => format!("All measured loads kept {objective}, up to {kept}."),
        (Some(kept), Some(missed)) => {
            format!("{kept} kept {objective}; {missed} did not.")
        }
        (None, Some(missed)) => {
            format!("No measured load kept {objective}: the smallest missed it, {missed}.")
        }
        (None, None) => return None,
    })
}
