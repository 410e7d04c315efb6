//! What a model says by itself, without runs to compare it with: the verdict, and shares and percentiles at loads up to saturation.

use std::fmt::Write;

use model::{Model, Parameter, Prediction};
use serde::Serialize;

use super::checked::{mark, trust_text};
use super::compare::Comparison;
use super::embedded;
use super::error::Error;
use super::figures;
use super::grid::{Grid, escape, printable};
use super::html::{self, Page};
use super::objective::{Objective, digits, time};
use super::percentiles::SHARES;
use super::steps::Observed;
use super::table::{self, percent, tenths, with_interval};
use super::verdict::Verdict;

/// Loads of the table, as shares of the largest of which something is known.
const PARTS: [f64; 10] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// A load with what the model predicts for it.
#[derive(Clone, Debug, Serialize)]
pub struct PredictedLoad {
    /// Its shares and means.
    pub prediction: Prediction,
    /// Percentiles of the response time.
    pub percentiles: Vec<PredictedPercentile>,
}

/// A percentile of the response time at a load.
#[derive(Clone, Debug, Serialize)]
pub struct PredictedPercentile {
    /// The share of requests that it exceeds, 0 to 1.
    pub share: f64,
    /// The time, seconds.
    pub predicted: Parameter,
}

/// What a model says by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Predictions {
    /// What it answers.
    pub verdict: Verdict,
    /// Loads in ascending order.
    pub loads: Vec<PredictedLoad>,
    /// The model with its limits, its trust and its largest loads, beside no runs.
    #[serde(flatten)]
    pub comparison: Comparison,
}

impl Predictions {
    /// What a model says of the shares within times and of objectives. If `within_s` is empty, the usual times are used, and always
    /// those of `objectives`.
    ///
    /// # Errors
    /// If the model cannot predict.
    pub fn new(
        model: &Model,
        within_s: &[f64],
        objectives: &[Objective],
    ) -> Result<Predictions, Error> {
        let none = Observed { runs: Vec::new(), steps: Vec::new() };
        let mut within_s =
            if within_s.is_empty() { vec![0.02, 0.05, 0.1] } else { within_s.to_vec() };
        for objective in objectives {
            if !within_s.contains(&objective.within_s) {
                within_s.push(objective.within_s);
            }
        }
        let comparison = Comparison::new(&none, model, &within_s, objectives)?;
        let loads = loads(&comparison, &within_s)?;
        Ok(Predictions { verdict: Verdict::new(&comparison)?, loads, comparison })
    }

    fn grid(&self) -> Grid {
        let mut head: Vec<String> = ["rate/s", "busy %", "memory %"].map(String::from).to_vec();
        head.extend(self.comparison.within_s.iter().map(|t| format!("≤ {} % [95 %]", time(*t))));
        head.push("mean".to_owned());
        head.extend(SHARES.iter().map(|share| format!("p{}", digits(share * 100.0, 4))));
        head.push(String::new());
        let mut grid = Grid { head, align: "", rows: Vec::new() };
        for PredictedLoad { prediction: p, percentiles } in &self.loads {
            let mut row =
                vec![digits(p.rate, 4), tenths(p.utilisation_max.value), tenths(p.hit_ratio.value)];
            row.extend(p.points.iter().map(|point| with_interval(&point.concertina, percent)));
            row.push(time(p.response_mean.value));
            row.extend(percentiles.iter().map(|p| with_interval(&p.predicted, time)));
            row.push(mark(p.beyond_trust).to_owned());
            grid.row(row);
        }
        grid
    }

    /// The predictions as text: the verdict, a table, and warnings.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for note in &self.comparison.laboratory {
            let _ = writeln!(out, "EMULATED: {}", printable(note));
        }
        out += &self.verdict.text();
        let _ = writeln!(out, "\n{}", self.grid().text());
        out += &table::limits_text(&self.comparison.limits);
        out += &trust_text(&self.comparison.trust);
        out + &table::warnings_text(&table::grouped(
            &self.comparison.warnings,
            self.comparison.model.fitted.len(),
        ))
    }

    /// The predictions as an HTML page.
    pub fn html(&self, page: &Page) -> String {
        let of = &self.comparison;
        let mut out = html::head(page);
        html::laboratory(&of.laboratory, &mut out);
        out += &html::verdict_html(&self.verdict);
        let limits = escape(table::limits_text(&of.limits).trim_end());
        let _ = writeln!(out, "<p class=\"soft\">{limits}</p>");
        html::heading(
            "table",
            "Prediction",
            "For one server; nothing here was measured, and loads past those that were checked are marked ?.",
            &mut out,
        );
        out += &self.grid().html(|_| "");
        html::heading(
            "rate",
            "Against load",
            "The band is the 95 % interval. Shaded: past the checked loads.",
            &mut out,
        );
        html::plots(&self.plots(), &mut out);
        out += &embedded::sections(page.embedded.as_ref());
        html::model(of, &mut out);
        html::warnings(&of.warnings, &mut out);
        html::commands(page, &mut out);
        out + "</main>\n</body>\n</html>\n"
    }

    /// The plots of the page.
    pub(crate) fn plots(&self) -> Vec<super::svg::Plot> {
        let of = &self.comparison;
        figures::predictions(&of.model, &of.limits, &of.within_s, 1, &[])
    }
}

/// Predictions up to near saturation, or up to the load past which nothing is known.
fn loads(comparison: &Comparison, within_s: &[f64]) -> Result<Vec<PredictedLoad>, Error> {
    let model = &comparison.model;
    let mut largest = comparison.limits.saturation.value.min(model.known_to());
    if !largest.is_finite() {
        let checked = Some(comparison.trust.limit).filter(|limit| limit.is_finite());
        largest = checked.unwrap_or(0.0).max(model.requests.rate_high);
    }
    let mut loads = Vec::new();
    for part in PARTS {
        let rate = rounded(largest * part);
        if !(rate > 0.0 && rate.is_finite()) {
            continue;
        }
        let prediction = match model.predict(rate, within_s) {
            Ok(prediction) => prediction,
            Err(model::Error::Unstable { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let percentile = |share: f64| -> Result<PredictedPercentile, Error> {
            Ok(PredictedPercentile { share, predicted: model.quantile_with_interval(rate, share)? })
        };
        let percentiles = SHARES.into_iter().map(percentile).collect::<Result<_, _>>()?;
        loads.push(PredictedLoad { prediction, percentiles });
    }
    Ok(loads)
}

/// A load of three digits, as somebody would ask for it.
fn rounded(rate: f64) -> f64 {
    format!("{rate:.2e}").parse().unwrap_or(rate)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::StatedNode;
    use model::distribution::Exponential;

    use super::*;

    /// A model without a run was refused.
    #[test]
    fn a_model_alone_has_a_report() {
        let law = Arc::new(Exponential::new(0.01).unwrap());
        let model = Model::stated(&StatedNode::new(law)).unwrap();
        let objective = Objective { share: 0.9, within_s: 0.05 };
        let found = Predictions::new(&model, &[], &[objective]).unwrap();
        // One server of 10 ms: 1 - exp(-50/s * 50 ms) of the responses at 50 requests/s.
        let half = &found.loads[4].prediction;
        assert_eq!((half.rate, found.loads.len()), (50.0, 10));
        let exact = 1.0 - (-2.5f64).exp();
        assert!((half.points[1].concertina.value - exact).abs() < 1e-5);
        let text = found.text();
        let breaks = "always busy from 100 requests/s on";
        for part in ["Answer       53.95 requests/s keep 90 % within 50 ms", breaks, "More load"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("measured load,") && !text.contains("heaviest measured"), "{text}");
        let html = found.html(&Page { title: "<t>".to_owned(), ..Page::default() });
        assert!(super::super::is_page(&html) && html.contains("&lt;t&gt;"));
        assert!(html.contains(breaks) && html.contains("<svg"));
        let json = serde_json::to_value(&found).unwrap();
        assert_eq!(json["rows"], serde_json::json!([]));
    }
}
