//! Tables 8 to 11 and 27 to 29: the 2^3·3 design, its effects, and how much of the variation they leave
//! unexplained.
//!
//! The study weighed the squares of effects with 2² where 2^k·r = 24 is right (Jain, section 18.5), so the
//! share that it calls unexplained is about six times too large.

use std::path::Path;

use anyhow::Context as _;
use model::design::{Factorial, Form};
use serde::Deserialize;

use super::claim;
use super::csv::{Table, digits, rounding};
use crate::experiment::{Claim, Goal};
use crate::report::grid::Grid;

/// The tables of the design.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    observations: String,
    additive: String,
    multiplicative: String,
    printed_unexplained: Vec<Unexplained>,
}

/// The share of the variation that a table, or the text with it, leaves to errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Unexplained {
    table: u32,
    share: f64,
}

/// What came of them.
pub(super) struct Outcome {
    pub claims: Vec<Claim>,
    pub text: String,
}

/// What the study weighed the squares of effects with, and what is right.
const WEIGHT_PRINTED: f64 = 4.0;
const WEIGHT: f64 = 24.0;
/// The printed effects were computed from observations with more digits than were printed.
const DIFFERENCE_PERCENT: f64 = 0.1;

pub(super) fn compute(folder: &Path, printed: &Printed) -> anyhow::Result<Outcome> {
    let cells = observations(folder, &printed.observations)?;
    let (mut claims, mut text) = (Vec::new(), String::new());
    for (form, file) in
        [(Form::Additive, &printed.additive), (Form::Multiplicative, &printed.multiplicative)]
    {
        let ours = Factorial::new(&cells, form, 0.95).context("the design")?;
        let (table, worst) = beside(&ours, &Table::read(folder, file)?)?;
        let what = match form {
            Form::Additive => "additive",
            Form::Multiplicative => "multiplicative",
        };
        text.push_str(&format!(
            "2^3·3 design, {what} ({file}): unexplained {:.5}\n{table}\n",
            ours.error_fraction
        ));
        claims.push(Claim {
            goal: Some(Goal::AtMost(DIFFERENCE_PERCENT)),
            ..claim(
                &format!(
                    "2^3·3 design, {what}: printed effects, largest difference beyond rounding, of the largest effect"
                ),
                worst,
                "%",
                ours.effects.len(),
            )
        });
        if form == Form::Multiplicative {
            let share = printed.printed_unexplained.iter().find(|u| u.table == 10);
            claims.push(Claim {
                published: share.map(|u| u.share),
                ..claim(
                    "2^3·3 design, multiplicative: share of the variation that is not explained",
                    ours.error_fraction,
                    "",
                    cells.len() * ours.replications,
                )
            });
        }
    }
    let mut grid = Grid::new("rrr", &["table", "unexplained as printed", "with the right weight"]);
    for Unexplained { table, share } in &printed.printed_unexplained {
        // share = E/(E + 4·Σq²), so E/(E + 24·Σq²) is:
        let right = share / (share + (1.0 - share) * WEIGHT / WEIGHT_PRINTED);
        grid.row([table.to_string(), share.to_string(), format!("{right:.4}")]);
    }
    text.push_str(&format!("Variation that is not explained, by table\n{}\n", grid.text()));
    Ok(Outcome { claims, text })
}

/// Observations of each cell in the order of the signs, A fastest: the mean and each error.
fn observations(folder: &Path, file: &str) -> anyhow::Result<Vec<Vec<f64>>> {
    let table = Table::read(folder, file)?;
    let mut cells = vec![Vec::new(); 8];
    for row in table.rows() {
        let high = |column| Ok::<_, anyhow::Error>(usize::from(row.number(column)? > 0.0));
        let cell = high("xA")? + 2 * high("xB")? + 4 * high("xC")?;
        let mean = row.number("y_mean")?;
        for error in ["e1", "e2", "e3"] {
            cells[cell].push(mean + row.number(error)?);
        }
    }
    Ok(cells)
}

/// Effects as printed beside ours, and the largest difference beyond rounding in percent of the largest
/// effect.
fn beside(ours: &Factorial, printed: &Table) -> anyhow::Result<(String, f64)> {
    let mut grid = Grid::new(
        "lrrrrr",
        &["effect", "printed", "computed", "± (95 %)", "variation printed", "computed"],
    );
    let largest = ours.effects.iter().map(|effect| effect.effect.value.abs()).fold(0.0, f64::max);
    let mut worst = 0.0_f64;
    for row in printed.rows() {
        let name = row.text("source")?.trim_start_matches('q').to_owned();
        let effect = ours
            .effects
            .iter()
            .find(|effect| effect.name == name)
            .with_context(|| format!("the design has no effect {name:?}"))?;
        let text = row.text("mean_estimate")?;
        let beyond = (effect.effect.value - row.number("mean_estimate")?).abs() - rounding(text);
        worst = worst.max(beyond / largest * 100.0);
        let digits = digits(text);
        grid.row([
            name,
            text.to_owned(),
            format!("{:.digits$}", effect.effect.value),
            effect.effect.high.map_or_else(String::new, |high| {
                format!("{:.digits$}", high - effect.effect.value)
            }),
            row.text("variation_explained_fraction")?.to_owned(),
            format!("{:.4}", effect.fraction),
        ]);
    }
    Ok((grid.text(), worst))
}
