//! What is said of trust: the one sentence, the one mark, and the loads past the confidence limit.

use model::{Trust, TrustEnd};

use super::objective::digits;

/// The one mark of trust: the prediction is for a load past the checked ones ([`Trust`]).
pub const MARK: &str = "?";

/// The mark of a prediction.
pub fn mark(beyond_trust: bool) -> &'static str {
    if beyond_trust { MARK } else { "" }
}

/// What [`MARK`] means, below a table that has one.
pub const MARK_TEXT: &str =
    "? past the loads at which the model was checked: extrapolated (see below).\n";

/// Names the loads of a table that are past the confidence limit; nothing if none is. The limit is about the length of
/// queues, not about trust: a model that was checked past it is right there.
pub fn past_limit_text(rates: impl Iterator<Item = f64>) -> String {
    let rates: Vec<String> = rates.map(|rate| digits(rate, 4)).collect();
    match rates.as_slice() {
        [] => String::new(),
        rates => format!(
            "Past the confidence limit, where queues are long: {} requests/s.\n",
            rates.join(", ")
        ),
    }
}

/// Says what of a model was checked, how far off it was, up to which load, and what larger loads are: the one sentence
/// about trust of all outputs.
pub fn trust_text(trust: &Trust) -> String {
    let limit = digits(trust.limit, 4);
    let points = |points: f64| format!("{} points", digits(points, 2));
    let wrong = trust.missed.map(|missed| {
        let load = digits(missed.rate, 4);
        let kind = if trust.end == TrustEnd::Misfit { "fitted" } else { "held-out" };
        format!("at the {kind} load of {load} requests/s it is {} off", points(missed.points))
    });
    if trust.limit <= 0.0 {
        return match wrong {
            Some(wrong) => format!(
                "Checked, and wrong: {wrong}. Every prediction is marked ?; `concertina check` the runs.\n"
            ),
            None => "Not checked: the model names no measured load, so every prediction is extrapolated (marked \
                     ?).\n"
                .to_owned(),
        };
    }
    if !trust.is_compared() {
        return format!(
            "Not checked: no measured load was compared with the model, whose numbers are stated for loads up to {limit} requests/s of a \
             server. Larger loads are extrapolated (marked ?).\n"
        );
    }
    let mut found = match (trust.bias_points, trust.held_out) {
        (Some(bias), held_out) => {
            let loads = if held_out == 1 { "load" } else { "loads" };
            // Where the fit has larger loads than the judge.
            let high = trust.held_out_high.filter(|high| *high < trust.limit / 1.02);
            let high =
                high.map_or(String::new(), |high| format!(" (the largest {})", digits(high, 4)));
            format!("at most {} off on {held_out} held-out {loads}{high}", points(bias))
        }
        (None, _) => {
            let misfit =
                trust.misfit_points.map(|misfit| format!(" (at most {} off)", points(misfit)));
            // Where a held-out load was missed, predictions were tested.
            let advice = if trust.end == TrustEnd::Error {
                ""
            } else {
                "; `concertina fit --hold-out` tests predictions"
            };
            format!("on the fitted loads alone{}{advice}", misfit.unwrap_or_default())
        }
    };
    if let Some(wrong) = wrong {
        found += &format!("; {wrong}");
    }
    format!(
        "Checked up to {limit} requests/s of a server: {found}. Larger loads are extrapolated (marked ?).\n"
    )
}

#[cfg(test)]
mod tests {
    use model::Miss;

    use super::*;

    #[test]
    fn one_sentence_says_what_was_checked() {
        let trust = Trust {
            limit: 1_500.0,
            end: TrustEnd::Unmeasured,
            held_out: 2,
            held_out_high: Some(1_500.0),
            bias_points: Some(0.333),
            misfit_points: Some(0.1),
            missed: None,
        };
        let missed = Some(Miss { rate: 1_400.0, points: 6.0 });
        let nothing = Trust { held_out: 0, held_out_high: None, bias_points: None, ..trust };
        for (trust, words) in [
            (
                trust,
                "Checked up to 1,500 requests/s of a server: at most 0.33 points off on 2 held-out loads. Larger",
            ),
            (
                Trust { held_out: 1, held_out_high: Some(900.0), ..trust },
                "on 1 held-out load (the largest 900). Larger",
            ),
            (
                nothing,
                "on the fitted loads alone (at most 0.1 points off); `concertina fit --hold-out`",
            ),
            (
                Trust { end: TrustEnd::Error, missed, ..trust },
                "at the held-out load of 1,400 requests/s it is 6 points off",
            ),
            (Trust { end: TrustEnd::Misfit, missed, ..trust }, "at the fitted load of 1,400"),
            (
                Trust { limit: 0.0, end: TrustEnd::Error, missed, ..nothing },
                "Checked, and wrong: at the held-out",
            ),
            (Trust { limit: 0.0, ..nothing }, "Not checked: the model names no measured load"),
        ] {
            let text = trust_text(&trust);
            assert!(text.contains(words) && text.contains("marked ?"), "{text}");
        }
    }
}
