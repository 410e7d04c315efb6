//! What-if answers that a report carries: computed beforehand for some loads, numbers of servers, memories and speeds, since a file
//! has nobody to ask.
//!
//! Each answer is that of [`model::what_if`] rounded to six digits. Nothing is interpolated between them: a reader's controls stop
//! where there is an answer. Cost: some milliseconds of processor time for each of at most 168 answers, and 1 to 2 KB each.

use model::Model;
use model::what_if::{Answer, ChangedModel, LoadPoint, WhatIf};
use serde::Serialize;
use serde_json::Value;

use super::error::Error;
use super::objective::Objective;

/// Loads on both sides of the fitted one; neighbours differ by a factor of √2.
const LOADS: i32 = 3;
const SERVERS: [u32; 4] = [1, 2, 3, 4];
/// Times what a server had. There are few, because a report takes as long as its answers do.
const MEMORIES: [f64; 3] = [0.5, 1.0, 2.0];
const SPEEDS: [f64; 2] = [1.0, 2.0];
/// Significant digits of what is written.
const DIGITS: i32 = 6;

/// The values for which there are answers, ascending.
#[derive(Clone, Debug, Serialize)]
struct Stops {
    rate: Vec<f64>,
    servers: Vec<u32>,
    speed: Vec<f64>,
    memory: Vec<f64>,
}

/// What can be asked: the reply of `GET /what-if` of a server, as far as a report needs it.
#[derive(Clone, Debug, Serialize)]
struct Knobs {
    at_unix_us: Option<u64>,
    rate: f64,
    objective_s: f64,
    share: f64,
    classes: [(); 0],
    kinds: [(); 0],
    laboratory: Option<String>,
}

/// The computed answers, as the script of a report reads them (`web/src/report.ts`).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Computed {
    knobs: Knobs,
    stops: Stops,
    /// The times of every law, seconds.
    times_s: Vec<f64>,
    /// For each memory and speed, the share within the objective at loads of one server.
    loads: Vec<Vec<LoadPoint>>,
    /// For each memory, speed, number of servers and load, the last of which changes first.
    answers: Vec<Value>,
}

/// A number with a few significant digits.
fn rounded(value: f64, digits: i32) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    format!("{value:.*e}", (digits - 1).unsigned_abs() as usize).parse().unwrap_or(value)
}

/// Rounds every number of a value that is not whole.
fn round(value: &mut Value) {
    match value {
        Value::Number(number) if !number.is_u64() && !number.is_i64() => {
            *value = number.as_f64().map(|number| rounded(number, DIGITS)).into();
        }
        Value::Array(values) => values.iter_mut().for_each(round),
        Value::Object(values) => values.values_mut().for_each(round),
        _ => {}
    }
}

/// The factors whose change the model can answer, and that make a difference.
fn factors(
    model: &Model,
    objective: Objective,
    rate: f64,
    of: fn(f64) -> WhatIf,
    all: &[f64],
) -> Vec<f64> {
    let at = |factor: f64| {
        let changed = ChangedModel::new(model, &of(factor), objective.within_s, objective.share);
        changed.and_then(|changed| changed.answer(rate)).ok()
    };
    let (Some(one), Some(other)) = (at(1.0), at(2.0)) else { return vec![1.0] };
    let is_same = one.loads == other.loads && one.largest_rate == other.largest_rate;
    if is_same { vec![1.0] } else { all.to_vec() }
}

impl Computed {
    /// Computes the answers of a model for an objective.
    ///
    /// # Errors
    /// Those of [`ChangedModel::answer`].
    pub(crate) fn new(model: &Model, objective: Objective) -> Result<Computed, Error> {
        let Objective { share, within_s } = objective;
        let rate = rounded(model.requests.rate_high, 4);
        let near = |step: i32| rounded(rate * 2f64.powf(f64::from(step) / 2.0), 4);
        let memory = |memory| WhatIf { memory, ..WhatIf::default() };
        let speed = |speed| WhatIf { speed, ..WhatIf::default() };
        let stops = Stops {
            rate: (-LOADS..=LOADS).map(near).collect(),
            servers: SERVERS.to_vec(),
            speed: factors(model, objective, rate, speed, &SPEEDS),
            memory: factors(model, objective, rate, memory, &MEMORIES),
        };
        let knobs = Knobs {
            at_unix_us: None,
            rate,
            objective_s: within_s,
            share,
            classes: [],
            kinds: [],
            laboratory: model.about.laboratory.clone(),
        };
        let (times_s, loads, answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut computed = Computed { knobs, stops, times_s, loads, answers };
        for memory in computed.stops.memory.clone() {
            for speed in computed.stops.speed.clone() {
                computed.add(model, &WhatIf { memory, speed, ..WhatIf::default() })?;
            }
        }
        Ok(computed)
    }

    /// Adds the answers for every number of servers and every load.
    fn add(&mut self, model: &Model, what_if: &WhatIf) -> Result<(), Error> {
        let Knobs { objective_s, share, .. } = self.knobs;
        for &servers in &SERVERS {
            let what_if = WhatIf { servers, ..what_if.clone() };
            let changed = ChangedModel::new(model, &what_if, objective_s, share)?;
            for rate in self.stops.rate.clone() {
                let answer = changed.answer(rate)?;
                self.push(answer, servers == 1 && rate == self.knobs.rate)?;
            }
        }
        Ok(())
    }

    /// Adds an answer without what it shares with others.
    fn push(&mut self, mut answer: Answer, is_first: bool) -> Result<(), Error> {
        if is_first {
            let short = |point: &LoadPoint| LoadPoint {
                rate: rounded(point.rate, DIGITS),
                within: rounded(point.within, DIGITS),
            };
            self.loads.push(answer.loads.iter().map(short).collect());
        }
        answer.loads.clear();
        let law = std::mem::take(&mut answer.law);
        if self.times_s.is_empty() {
            self.times_s = law.iter().map(|point| rounded(point.t_s, DIGITS)).collect();
        }
        let predicted: Vec<f64> = law.iter().map(|point| point.predicted).collect();
        let published: Option<Vec<f64>> = law.iter().map(|point| point.published).collect();
        let mut short = serde_json::to_value(&answer)?;
        if let Some(fields) = short.as_object_mut() {
            for shared in ["law", "loads"] {
                fields.remove(shared);
            }
            fields.insert("predicted".to_owned(), predicted.into());
            let published = published.filter(|law| !law.is_empty());
            fields.insert("published".to_owned(), published.into());
        }
        round(&mut short);
        self.answers.push(short);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_six_digits() {
        let mut value = serde_json::json!({ "a": [0.123_456_78, 1_234_567, 0.0], "b": null });
        round(&mut value);
        assert_eq!(value, serde_json::json!({ "a": [0.123_457, 1_234_567, 0.0], "b": null }));
        assert_eq!(rounded(1234.5678, 4), 1235.0);
        assert!(rounded(f64::INFINITY, 4).is_infinite());
    }
}
