//! `concertina measure --predict`: from the measured loads to others, in three lines.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use model::{HeldOut, Model, Trust, TrustEnd};
use report::compare::warnings_of;
use report::objective::{digits, time};
use report::table::{percent, trust_text};
use report::{
    Comparison, Embedded, NamedModel, Objective, Observed, Page, Selection, Service, ServiceFacts,
    StepChoice,
};
use serde::Serialize;

use crate::measure::{Measurement, OfferedLoad, Point, Search};

/// A load to predict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LoadChoice {
    /// As a multiple of the smallest measured load.
    Times(f64),
    /// Requests/s.
    Rate(f64),
}

/// Reads `2x` or `150/s`.
pub fn parse_load_choice(text: &str) -> Result<LoadChoice, String> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| *n > 0.0 && *n < 1e12);
    let times = text.strip_suffix('x').and_then(number).map(LoadChoice::Times);
    let rate = text.strip_suffix("/s").and_then(number).map(LoadChoice::Rate);
    let wrong = || {
        format!(
            "invalid load `{text}`: write a multiple of the smallest measured load (`2x`), or \
             requests/s (`150/s`)"
        )
    };
    times.or(rate).ok_or_else(wrong)
}

/// A predicted share.
#[derive(Clone, Debug, Serialize)]
struct Share {
    rate: f64,
    within_s: f64,
    /// The share with the ends of its 95 % interval; `None` past saturation.
    share: Option<[f64; 3]>,
}

/// What was learnt from a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Learnt {
    /// What the service is, how well an unseen load was predicted, and the prediction.
    pub lines: Vec<String>,
    /// The warnings, at most five, and what was written.
    #[serde(skip)]
    pub below: Vec<String>,
    /// The model file.
    model: PathBuf,
    /// The report, if it could be drawn.
    report: Option<PathBuf>,
    predicted: Vec<Share>,
    held_out: Vec<HeldOut>,
    /// Where the service tips over, if it does.
    tipping: Option<model::Tipping>,
    /// What users of the model should know.
    warnings: Vec<String>,
}

/// The share of requests for which the report says up to which load it is answered within the times asked for.
const OBJECTIVE: f64 = 0.99;
/// Users are advised to measure for longer where the interval of a share is wider than this.
const WIDE: f64 = 0.3;

/// Fits what was measured, but for the largest steady load, which judges the fit; then fits all, and
/// predicts the loads that are wanted.
pub fn learn(
    measured: &Measurement,
    dir: &Path,
    wanted: &[LoadChoice],
    within_s: &[f64],
) -> anyhow::Result<Learnt> {
    let rates = steady_rates(measured)?;
    let closed_loop = measured.search.as_ref().and_then(Search::closed_loop);
    let closed_loops = measured.search.as_ref().map_or_else(Vec::new, Search::closed_loops);
    let fit = |hold_out: &[f64]| -> anyhow::Result<Service> {
        let choices: Vec<StepChoice> = rates.iter().map(|r| StepChoice::Rate(*r)).collect();
        let hold_out = hold_out.iter().map(|r| StepChoice::Rate(*r)).collect();
        let selection = Selection { hold_out, any_queues: true, ..Selection::new(&choices, false) };
        let observed = Observed::read(&[dir.to_owned()], &selection)?;
        let facts = ServiceFacts {
            closed_loop,
            closed_loops: closed_loops.clone(),
            ..ServiceFacts::default()
        };
        Ok(report::fit_service(&observed, "Fit of a measurement", facts)?)
    };
    // With two loads there is none to spare.
    let judged = if rates.len() > 2 { Some(fit(&rates[rates.len() - 1..])?) } else { None };
    let held_out = judged.map_or_else(Vec::new, |judged| judged.model.held_out);
    let mut fitted = fit(&[])?;
    fitted.model.held_out.clone_from(&held_out);
    let path = dir.join("model.toml");
    let drawn = draw(&fitted, dir, &rates, within_s);
    let ours = |old: &str| Model::from_toml(old).is_ok();
    report::write_whole(&path, &fitted.model.to_toml()?, ours)?;
    let predicted = predict_loads(&fitted.model, wanted, rates[0], within_s)?;
    let saturation = fitted.model.limits()?.saturation;
    let mut lines = vec![
        service_text(&fitted),
        checked_text(&fitted.model.trust()?, &held_out),
        predicted_text(&predicted, saturation.value, fitted.model.unknown_beyond),
    ];
    let tipping = fitted.model.tipping()?;
    lines.extend(tipping.as_ref().map(tipping_text));
    lines.extend(left_out(measured).map(|why| why + "."));
    let warnings = warnings_of(&fitted.model);
    // That no hypothesis fits is in the first line, and where it tips over in its own.
    let tips = tipping.as_ref().map(model::Tipping::text);
    let told = |warning: &&String| {
        !warning.starts_with("No hypothesis fits") && Some(*warning) != tips.as_ref()
    };
    let told: Vec<String> = warnings.iter().filter(told).cloned().collect();
    let told = report::table::grouped(&told, fitted.model.fitted.len());
    let mut below: Vec<String> = told.iter().map(|warning| format!("Warning: {warning}")).collect();
    below.push(match &drawn {
        Ok(page) => format!("Wrote {} and {}.", path.display(), page.display()),
        Err(error) => format!("Wrote {}; a report was not drawn: {error:#}.", path.display()),
    });
    let report = drawn.ok();
    Ok(Learnt { lines, below, model: path, report, predicted, held_out, tipping, warnings })
}

/// What was checked. Where trust ends at a fitted load that the model misses, the load that was held out is past it, and its error is said
/// beside it.
fn checked_text(trust: &Trust, held_out: &[HeldOut]) -> String {
    let text = trust_text(trust).trim_end().to_owned();
    let worst =
        held_out.iter().max_by(|a, b| a.error_points.abs().total_cmp(&b.error_points.abs()));
    let is_said = trust.held_out > 0 || trust.end == TrustEnd::Error;
    let Some(worst) = worst.filter(|_| !is_said) else { return text };
    let (rate, points) = (digits(worst.rate, 4), digits(worst.error_points.abs(), 2));
    format!("{text} A fit without the load of {rate} requests/s missed it by {points} points.")
}

/// The steady loads of an open loop in rising order, at least two.
fn steady_rates(measured: &Measurement) -> anyhow::Result<Vec<f64>> {
    let steady = |at: &OfferedLoad| match at {
        OfferedLoad::Rate(rate) => Some(*rate),
        OfferedLoad::Clients(_) => None,
    };
    let points = measured.points.iter().filter(|p| p.steady && !p.is_past_saturation());
    let mut rates: Vec<f64> = points.filter_map(|p| steady(&p.at)).collect();
    rates.sort_by(f64::total_cmp);
    ensure!(
        rates.len() >= 2,
        "{} measured: --predict needs two or more (--rates), the largest above half of the \
         saturation{}",
        match rates.len() {
            0 => "no steady load of an open loop was",
            _ => "one steady load of an open loop was",
        },
        left_out(measured).map_or(String::new(), |why| format!(". {why}"))
    );
    Ok(rates)
}

/// Predicts which shares of the requests are answered within each time, at each load.
fn predict_loads(
    model: &Model,
    wanted: &[LoadChoice],
    lightest: f64,
    within_s: &[f64],
) -> anyhow::Result<Vec<Share>> {
    let mut predicted = Vec::new();
    for load in wanted {
        let rate = match load {
            LoadChoice::Times(times) => times * lightest,
            LoadChoice::Rate(rate) => *rate,
        };
        for &within_s in within_s {
            let share = match model.within(rate, within_s) {
                Ok(p) => Some([p.value, p.low, p.high]),
                Err(model::Error::Unstable { .. }) => None,
                Err(error) => return Err(error.into()),
            };
            predicted.push(Share { rate, within_s, share });
        }
    }
    Ok(predicted)
}

/// Draws the report of a fit beside it: what was measured and predicted at each load.
fn draw(fitted: &Service, dir: &Path, rates: &[f64], within_s: &[f64]) -> anyhow::Result<PathBuf> {
    let choices: Vec<StepChoice> = rates.iter().map(|r| StepChoice::Rate(*r)).collect();
    let selection = Selection { any_queues: true, ..Selection::new(&choices, false) };
    let observed = Observed::read(&[dir.to_owned()], &selection)?;
    let objectives = within_s.iter().map(|&within_s| Objective { share: OBJECTIVE, within_s });
    let objectives: Vec<Objective> = objectives.collect();
    let comparison = Comparison::new(&observed, &fitted.model, within_s, &objectives)?;
    let (run, path) = (dir.display(), dir.join("report.html"));
    let named = NamedModel { name: "model.toml", model: &fitted.model };
    let embedded = match objectives.first() {
        Some(first) => Some(Embedded::new(&observed, Some(named), *first)?),
        None => None,
    };
    let page = Page {
        embedded,
        title: "Response times: prediction and measurement".to_owned(),
        commands: vec![
            format!("concertina fit {run} --servers auto --out {run}/model.toml"),
            format!("concertina report {run} {run}/model.toml --out {}", path.display()),
        ],
    };
    let html = report::html(&comparison, &page);
    report::write_whole(&path, &html, report::is_page)?;
    Ok(path)
}

/// The loads that are not fitted, and why: a service that throttles, resets or fails under load.
fn left_out(measured: &Measurement) -> Option<String> {
    let of = |point: &Point| {
        let errors = 100.0 * point.errors as f64 / point.completions.max(1) as f64;
        let faults = point.notes.iter().filter_map(|note| note.strip_prefix("error: "));
        let faults: Vec<&str> = faults.map(|f| f.rsplit_once(" (").map_or(f, |f| f.0)).collect();
        let why = if errors > 1.0 {
            format!("{} % of the replies were errors: {}", digits(errors, 2), faults.join(", "))
        } else if point.is_past_saturation() {
            "fewer requests were completed than sent".to_owned()
        } else {
            "it did not settle".to_owned()
        };
        format!("{}: {why}", point.at)
    };
    let unsteady = measured.points.iter().filter(|p| !p.steady || p.is_past_saturation());
    let each: Vec<String> = unsteady.map(of).collect();
    (!each.is_empty()).then(|| format!("Not fitted: {}", each.join("; ")))
}

/// What the service is, and how sure that is.
fn service_text(fitted: &Service) -> String {
    let Some(worked) = &fitted.worked else {
        return "Learnt: too little of single requests was recorded; response times alone were fitted."
            .to_owned();
    };
    let Some(first) = worked.hypotheses.first() else { return "Learnt: nothing.".to_owned() };
    if let Some(why) = &worked.misfit {
        return format!("Learnt: no hypothesis fits ({}, the nearest: {why}).", first.title());
    }
    let sure = match worked.hypotheses.get(1) {
        Some(next) if next.weight > 0.0 => {
            format!(", {} % sure; else {}", percent(first.weight), next.title())
        }
        Some(next) => {
            let (score, other) = (digits(first.score, 2), digits(next.score, 2));
            format!(" (score {score}; next best {}, {other})", next.title())
        }
        None => String::new(),
    };
    format!(
        "Learnt from {} requests: {}{sure}; {} of work and {} outside.",
        worked.known.requests,
        first.title(),
        time(first.work.value),
        time(first.outside.value)
    )
}

/// Where the service tips over.
fn tipping_text(tipping: &model::Tipping) -> String {
    format!("Tips over: {}", tipping.text())
}

/// `unknown_beyond`: the load beyond which nothing is known.
fn predicted_text(predicted: &[Share], saturation: f64, unknown_beyond: Option<f64>) -> String {
    let each = predicted.iter().map(|p| {
        let rate = digits(p.rate, 4);
        match p.share {
            Some([share, low, high]) => format!(
                "{rate}/s within {}: {} % ({} to {})",
                time(p.within_s),
                percent(share),
                percent(low),
                percent(high)
            ),
            None => format!("{rate}/s: past saturation ({}/s)", digits(saturation, 4)),
        }
    });
    let mut each: Vec<String> = each.collect();
    each.dedup();
    let wide = |p: &Share| p.share.is_some_and(|[_, low, high]| high - low > WIDE);
    let unknown = |p: &Share| unknown_beyond.is_some_and(|known| p.rate > known) && wide(p);
    let advice = if predicted.iter().any(unknown) {
        " No hypothesis fits, so nothing says what happens beyond the heaviest fitted load: measure the load itself."
    } else if predicted.iter().any(wide) {
        " An interval is wider than 30 points: measure for longer, or let --until choose the loads."
    } else {
        ""
    };
    format!("Predicted: {}.{advice}", each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_of_the_load_that_was_held_out_is_always_said() {
        let missed = Some(model::Miss { rate: 50.0, points: 6.0 });
        let trust = Trust {
            limit: 30.0,
            end: TrustEnd::Misfit,
            held_out: 0,
            held_out_high: None,
            bias_points: None,
            misfit_points: Some(2.7),
            missed,
        };
        let (name, within_s) = ("70/s".to_owned(), 0.05);
        let half_width_points = Some(14.5);
        let held = [HeldOut { name, rate: 70.0, within_s, error_points: -28.0, half_width_points }];
        let said = |trust: &Trust| {
            checked_text(trust, &held).contains("the load of 70 requests/s missed it by 28 points.")
        };
        assert!(said(&trust) && !said(&Trust { end: TrustEnd::Error, ..trust }));
        assert!(!said(&Trust { held_out: 1, bias_points: Some(28.0), ..trust }));
        assert_eq!(checked_text(&trust, &[]), trust_text(&trust).trim_end());
    }

    #[test]
    fn loads_are_multiples_or_rates() {
        assert_eq!(parse_load_choice("2x"), Ok(LoadChoice::Times(2.0)));
        assert_eq!(parse_load_choice("1.5x"), Ok(LoadChoice::Times(1.5)));
        assert_eq!(parse_load_choice("150/s"), Ok(LoadChoice::Rate(150.0)));
        for wrong in ["", "x", "0x", "-1x", "2", "NaNx", "inf/s", "/s"] {
            assert!(parse_load_choice(wrong).unwrap_err().contains("2x"), "{wrong}");
        }
    }
}
