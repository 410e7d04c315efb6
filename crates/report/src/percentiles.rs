//! Percentiles of the response time, measured and predicted, beside the shares within times.

use model::{Model, Parameter};
use serde::Serialize;

use super::error::Error;
use super::grid::Grid;
use super::measured::StepFigures;
use super::objective::{digits, time};

/// The percentiles that are compared.
pub(super) const SHARES: [f64; 3] = [0.5, 0.9, 0.99];

/// One percentile of a step's response time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Percentile {
    /// The share of requests that it exceeds, 0 to 1.
    pub share: f64,
    /// As measured, seconds, within the width of a histogram's bucket (0.8 %). Of answered reads.
    pub measured_s: f64,
    /// By Concertina's model, seconds; `None` if the load is unstable.
    pub predicted: Option<Parameter>,
}

/// The percentiles of a step; none without answered reads.
///
/// # Errors
/// If the model cannot predict a stable load.
pub(super) fn percentiles(measured: &StepFigures, model: &Model) -> Result<Vec<Percentile>, Error> {
    let mut all = Vec::new();
    for share in SHARES {
        let Some(measured_s) = measured.responses.quantile_s(share) else { continue };
        let predicted = match model.quantile_with_interval(measured.rate, share) {
            Ok(predicted) => Some(predicted),
            Err(model::Error::Unstable { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        all.push(Percentile { share, measured_s, predicted });
    }
    Ok(all)
}

/// The table of the percentiles of several steps, each with its load in requests/s.
pub(super) fn percentiles_grid<'a>(steps: impl Iterator<Item = (f64, &'a [Percentile])>) -> Grid {
    let head = ["rate/s", "percentile", "measured", "Concertina [95 %]", "error %"];
    let mut grid = Grid::new("rlrrr", &head);
    for (rate, percentiles) in steps {
        for (i, p) in percentiles.iter().enumerate() {
            let predicted = p.predicted.as_ref();
            let off = predicted.map(|v| (v.value / p.measured_s - 1.0) * 100.0);
            grid.row([
                if i == 0 { digits(rate, 4) } else { String::new() },
                format!("p{}", digits(p.share * 100.0, 4)),
                time(p.measured_s),
                predicted.map_or("unstable".to_owned(), |v| match v.low < v.high {
                    true => format!("{} [{}, {}]", time(v.value), time(v.low), time(v.high)),
                    // Of numbers that were stated.
                    false => time(v.value),
                }),
                off.filter(|off| off.is_finite())
                    .map_or("–".to_owned(), |off| format!("{off:+.1}").replace('-', "−")),
            ]);
        }
    }
    grid
}
