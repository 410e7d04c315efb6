//! The part of a report that has controls: what-if questions, and its runs and model laid over each other. It is the page of a server
//! (`web/`) over what the file carries.
//!
//! The file carries the steps of its runs as the lines of a run folder, one window for each step; its model; and the answers of
//! [`Computed`]. Its content security policy allows the one script that `make web` built, by its hash, and nothing else: text of runs and
//! models is data, in which no `<` is left.

use std::fmt::Write;

use ground::window::{Histogram, Window};
use model::Model;
use record::Run;
use serde::Serialize;

use super::computed::Computed;
use super::error::Error;
use super::measured::client_side;
use super::objective::Objective;
use super::steps::{Observed, ObservedStep, run_name};

/// The script and the style, as `web/` builds them, and the hash of the script for the policy.
const SCRIPT: &str = include_str!("page/report.js");
const STYLE: &str = include_str!("page/report.css");
const SCRIPT_SHA256: &str = include_str!("page/report.js.sha256");

/// A model and its file's name.
#[derive(Clone, Copy, Debug)]
pub struct NamedModel<'a> {
    /// The name.
    pub name: &'a str,
    /// The model.
    pub model: &'a Model,
}

/// What the script of a report reads.
#[derive(Clone, Debug)]
pub struct Embedded {
    /// JSON without `<`.
    data: String,
    has_model: bool,
}

/// A run as the text of its files.
#[derive(Serialize)]
struct EmbeddedRun {
    name: String,
    description: String,
    steps: String,
    windows: String,
}

#[derive(Serialize)]
struct EmbeddedModel<'a> {
    name: &'a str,
    text: String,
}

#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<EmbeddedRun>,
    model: Option<EmbeddedModel<'a>>,
    computed: Option<Computed>,
}

/// The clients' windows of a step as one: within the step, with the response times alone.
fn merged(step: &ObservedStep) -> Option<Window> {
    let (_, windows) = client_side(&step.windows);
    let (first, rest) = windows.split_first()?;
    let mut all = first.clone();
    let mut has_same_objectives = true;
    for window in rest {
        has_same_objectives &= window.objectives_ms == all.objectives_ms;
        all.merge(window, false);
    }
    if !has_same_objectives {
        all.objectives_ms.clear();
    }
    all.service_by_number.clear();
    all.interval_arrivals.clear();
    for times in &mut all.times {
        (times.waiting, times.service) = (Histogram::default(), Histogram::default());
        times.within.truncate(all.objectives_ms.len());
    }
    all.kernel = None;
    // Windows may begin half a millisecond before their step.
    all.start_unix_us = all.start_unix_us.max(step.step.start_unix_us);
    Some(all)
}

/// The runs whose steps these are, with their steps in order.
fn runs(observed: &Observed) -> Result<Vec<EmbeddedRun>, Error> {
    let mut runs = Vec::new();
    for (index, folder) in observed.runs.iter().enumerate() {
        let (mut steps, mut windows) = (String::new(), String::new());
        for step in observed.steps.iter().filter(|step| step.run == index) {
            let Some(window) = merged(step) else { continue };
            steps += &(serde_json::to_string(&step.step)? + "\n");
            windows += &(serde_json::to_string(&window)? + "\n");
        }
        if steps.is_empty() {
            continue;
        }
        let run = Run { asked: toml::Table::new(), ..folder.run.clone() };
        let description = toml::to_string(&run)?;
        runs.push(EmbeddedRun { name: run_name(folder), description, steps, windows });
    }
    Ok(runs)
}

impl Embedded {
    /// What a report of these runs carries; with a model also what-if answers for an objective.
    ///
    /// # Errors
    /// If the model cannot predict, or cannot be written.
    pub fn new(
        observed: &Observed,
        model: Option<NamedModel<'_>>,
        objective: Objective,
    ) -> Result<Embedded, Error> {
        let data = Data {
            runs: runs(observed)?,
            model: match model {
                Some(NamedModel { name, model }) => {
                    Some(EmbeddedModel { name, text: model.to_toml()? })
                }
                None => None,
            },
            computed: match model {
                Some(named) => Some(Computed::new(named.model, objective)?),
                None => None,
            },
        };
        // Text of runs could end the element otherwise.
        let text = serde_json::to_string(&data)?.replace('<', "\\u003c");
        Ok(Embedded { data: text, has_model: model.is_some() })
    }
}

impl Embedded {
    /// What a report of a model alone carries.
    ///
    /// # Errors
    /// As [`Embedded::new`].
    pub fn of_model(model: NamedModel<'_>, objective: Objective) -> Result<Embedded, Error> {
        let none = Observed { runs: Vec::new(), steps: Vec::new() };
        Embedded::new(&none, Some(model), objective)
    }

    /// Whether it has a model, with its what-if answers.
    pub(crate) fn has_model(&self) -> bool {
        self.has_model
    }
}

/// The content security policy of a report.
pub(crate) fn policy(embedded: Option<&Embedded>) -> String {
    let script = match embedded {
        Some(_) => format!("; script-src 'sha256-{}'", SCRIPT_SHA256.trim()),
        None => String::new(),
    };
    format!("default-src 'none'; style-src 'unsafe-inline'{script}")
}

/// The style of the controls.
pub(crate) fn style(embedded: Option<&Embedded>) -> &'static str {
    if embedded.is_some() { STYLE } else { "" }
}

/// The sections with controls.
pub(crate) fn sections(embedded: Option<&Embedded>) -> String {
    let Some(Embedded { data, has_model }) = embedded else { return String::new() };
    let mut out = "<noscript><p class=\"soft\">What-if questions and the overlay of runs need a script, which this \
                   browser does not run.</p></noscript>\n"
        .to_owned();
    if *has_model {
        out += "<h2 id=\"what-if\">What if</h2>\n<p class=\"soft\">This file has nobody to ask: the sliders stop at loads, \
                numbers of servers, memories and speeds whose answers were computed when it was written, each that of \
                <code>concertina predict</code> to six digits. Nothing is interpolated. For anything between or beyond, download the \
                model and open it in the page of a server, or use the command that is shown.</p>\n\
                <div id=\"what-if-here\" class=\"page\"></div>\n";
    }
    out += "<h2 id=\"overlay\">Two runs or models</h2>\n<p class=\"soft\">The steps of this report laid over each other; other run \
            folders can be opened beside them.</p>\n<div id=\"overlay-here\" class=\"page\"></div>\n";
    let _ = writeln!(out, "<script type=\"application/json\" id=\"report-data\">{data}</script>");
    let _ = writeln!(out, "<script>{SCRIPT}</script>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_is_whole_in_a_page() {
        assert!(!SCRIPT.contains("</script") && !SCRIPT.contains("<!--"), "it would end early");
        assert!(!STYLE.contains("</style") && !STYLE.contains("url("), "it would load something");
        assert!(policy(None).ends_with("'unsafe-inline'"));
    }
}
