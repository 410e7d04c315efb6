//! What a report says first, in plain words: the question, the answer with its interval, what breaks first, what more load
//! costs, what was checked, and what to do next.

use model::storage::Limit;
use model::{Model, Parameter, Trust, TrustEnd};
use serde::Serialize;

use super::checked::{MARK, mark, trust_text};
use super::compare::{Comparison, LargestRate, upper_end};
use super::error::Error;
use super::objective::{digits, time};

/// More load than the heaviest measured one, for which the verdict says what it costs.
const MORE: f64 = 1.1;

/// The percentile that the verdict names.
const PERCENTILE: f64 = 0.99;

/// The opening of a report. Each field is one or more whole sentences.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The question.
    pub asked: String,
    /// The answer with its interval, one sentence for each objective.
    pub answer: Vec<String>,
    /// What saturates first, and at which load.
    pub breaks_first: String,
    /// What a tenth more than the heaviest measured load costs.
    pub more_load: String,
    /// What was checked ([`trust_text`]).
    pub checked: String,
    /// What to do next.
    pub next: String,
}

impl Verdict {
    /// The verdict of a comparison.
    ///
    /// # Errors
    /// If the model cannot predict.
    pub fn new(comparison: &Comparison) -> Result<Verdict, Error> {
        let model = &comparison.model;
        let heaviest = Heaviest::from_comparison(comparison);
        Ok(Verdict {
            asked: question(&comparison.largest_rates),
            answer: comparison.largest_rates.iter().map(|l| answer(l, &comparison.trust)).collect(),
            breaks_first: breaks_first(model)?,
            more_load: more_load(comparison, &heaviest)?,
            checked: trust_text(&comparison.trust).trim_end().to_owned(),
            next: next(comparison, heaviest.rate),
        })
    }

    /// The verdict as named lines.
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![("Asked", self.asked.clone())];
        lines.extend(self.answer.iter().map(|answer| ("Answer", answer.clone())));
        lines.push(("Breaks first", self.breaks_first.clone()));
        lines.push(("More load", self.more_load.clone()));
        lines.push(("Checked", self.checked.clone()));
        lines.push(("Next", self.next.clone()));
        lines
    }

    /// The verdict as text.
    pub fn text(&self) -> String {
        labelled_text(&self.lines())
    }
}

/// Sentences with their names before them, a line each: how every verdict is printed.
pub fn labelled_text(lines: &[(&'static str, String)]) -> String {
    lines.iter().map(|(name, text)| format!("{name:<13}{text}\n")).collect()
}

/// The load from which the verdict says what more load costs.
struct Heaviest {
    /// Requests/s; 0 if there is none.
    rate: f64,
    name: &'static str,
}

impl Heaviest {
    /// The heaviest measured load; of a model alone the heaviest that it was checked by, or that of the answer.
    fn from_comparison(comparison: &Comparison) -> Heaviest {
        let measured = comparison.steps.iter().map(|s| s.measured.rate).reduce(f64::max);
        if let Some(rate) = measured {
            return Heaviest { rate, name: "heaviest measured load" };
        }
        let trust = &comparison.trust;
        if trust.is_compared() && trust.limit > 0.0 && trust.limit.is_finite() {
            return Heaviest { rate: trust.limit, name: "heaviest checked load" };
        }
        let answers = comparison.largest_rates.iter().filter_map(|l| Some(l.rate.as_ref()?.value));
        Heaviest { rate: answers.reduce(f64::max).unwrap_or(0.0), name: "load of the answer" }
    }
}

fn question(largest: &[LargestRate]) -> String {
    let all: Vec<String> = largest.iter().map(|l| l.objective.to_string()).collect();
    match all.is_empty() {
        true => "How fast is the service at loads that were not measured?".to_owned(),
        false => format!("Up to which load does the service answer {}?", all.join(", or ")),
    }
}

fn answer(largest: &LargestRate, trust: &Trust) -> String {
    let Some(rate) = &largest.rate else { return largest.statement.clone() };
    let mut text = format!("{} requests/s{}", digits(rate.value, 4), interval(rate));
    if largest.servers > 1 {
        text += &format!(" on {} servers", largest.servers);
    }
    text += &format!(" keep {}", largest.objective);
    text += &match largest.beyond_trust {
        true if trust.limit > 0.0 => format!(
            " {MARK} (extrapolated: checked up to {})",
            digits(trust.limit * f64::from(largest.servers), 4)
        ),
        true => format!(" {MARK} (extrapolated)"),
        false => String::new(),
    };
    text + "."
}

/// The 95 % interval of a load.
fn interval(rate: &Parameter) -> String {
    match rate.low == rate.high {
        true => String::new(),
        false => format!(" (95 % interval {} to {})", digits(rate.low, 4), upper_end(rate.high)),
    }
}

fn breaks_first(model: &Model) -> Result<String, Error> {
    if model.unknown_beyond.is_some() {
        let known = digits(model.known_to(), 4);
        return Ok(format!(
            "Not known: no hypothesis fits, and nothing was measured past {known} requests/s of a server."
        ));
    }
    let limits = model.limits()?;
    let saturation = &limits.saturation;
    if !saturation.value.is_finite() {
        return Ok("Nothing: no load saturates the service.".to_owned());
    }
    let what = match limits.breaks_first {
        Some(Limit::Devices) | None => match model.classes.as_slice() {
            [class] => format!("the {}", class.name.replace('_', " ")),
            _ => "the busiest device".to_owned(),
        },
        Some(other) => format!("the {}", other.as_str()),
    };
    let load = digits(saturation.value, 4);
    Ok(format!("{what}: always busy from {load} requests/s on{}.", interval(saturation)))
}

/// What a tenth more load than the heaviest one costs, by the model at both loads.
fn more_load(comparison: &Comparison, heaviest: &Heaviest) -> Result<String, Error> {
    let &Heaviest { rate: heaviest, name } = heaviest;
    if heaviest <= 0.0 && comparison.steps.is_empty() {
        return Ok("Not known: the model was checked at no load.".to_owned());
    }
    let (model, within_s) = (&comparison.model, &comparison.within_s);
    let more = heaviest * MORE;
    let of = |rate: f64| -> Result<Option<(f64, Vec<f64>)>, Error> {
        match model.predict(rate, within_s) {
            Ok(found) => {
                let shares = found.points.iter().map(|point| point.concertina.value).collect();
                Ok(Some((model.quantile(rate, PERCENTILE)?, shares)))
            }
            Err(model::Error::Unstable { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    };
    let (from, to) = (digits(heaviest, 4), digits(more, 4));
    let beyond = mark(!comparison.trust.covers(more));
    let text = match (of(heaviest)?, of(more)?) {
        (None, _) => format!("The {name}, {from} requests/s, is past the model's saturation."),
        (Some(_), None) => {
            format!("10 % more than the {name} ({from} → {to} requests/s) saturates it {beyond}")
        }
        (Some((p99, shares)), Some((p99_more, shares_more))) => {
            let mut text = format!(
                "10 % more than the {name} ({from} → {to} requests/s): p99 {} → {}",
                time(p99),
                time(p99_more)
            );
            for ((t, now), then) in within_s.iter().zip(shares).zip(shares_more) {
                text += &format!(
                    ", {} → {} % within {}",
                    digits(now * 100.0, 4),
                    digits(then * 100.0, 4),
                    time(*t)
                );
            }
            format!("{text} {beyond}")
        }
    };
    // The mark stands behind the sentence.
    let text = text.trim_end();
    let (text, end) = text.strip_suffix(MARK).map_or((text, "."), |text| (text.trim_end(), ". ?"));
    Ok(format!("{}{end}", text.trim_end_matches('.')))
}

/// The one thing that would tell most next.
fn next(comparison: &Comparison, heaviest: f64) -> String {
    let trust = &comparison.trust;
    if let Some(missed) = trust.missed {
        let kind = if trust.end == TrustEnd::Misfit { "was fitted to" } else { "predicted" };
        return format!(
            "Find out why the model misses {} requests/s, which it {kind}: see the warnings, and `concertina check` the runs.",
            digits(missed.rate, 4)
        );
    }
    let rates = || comparison.largest_rates.iter().filter(|l| l.beyond_trust);
    let wanted = rates().filter_map(|l| l.rate.as_ref()).map(|rate| rate.value).reduce(f64::max);
    if let Some(wanted) = wanted {
        let fit = if comparison.model.fitted.is_empty() { "" } else { "; hold it out of the fit" };
        return format!(
            "Measure a load of about {} requests/s to check the answer{fit}.",
            digits(wanted, 2)
        );
    }
    if trust.held_out == 0 && !comparison.model.fitted.is_empty() {
        return "Hold a load out of the fit (`concertina fit --hold-out`) to test the predictions."
            .to_owned();
    }
    let held = comparison.largest_rates.iter().filter_map(|l| l.rate.as_ref());
    match held.map(|rate| rate.low).reduce(f64::min) {
        Some(limit) if limit < heaviest => format!(
            "Keep the load of a server below {} requests/s, or add servers: `concertina plan` finds the cheapest.",
            digits(limit, 3)
        ),
        _ => "Nothing is missing: `concertina plan` says what serves more load, and at what cost."
            .to_owned(),
    }
}
