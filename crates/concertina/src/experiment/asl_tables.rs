//! `experiments/asl-tables`: every table of the ETH middleware study that can be computed again, printed beside
//! what the models of this project give from the same inputs.
//!
//! Nothing is measured here: the measurements are the study's, and so are the misprints that this names.

mod csv;
mod curve;
mod design;
mod network;
mod queues;

use anyhow::Context as _;
use serde::Deserialize;

use super::{Claim, Context, Goal};
use queues::Outcome;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Folder of the study's tables, from the experiment's.
    tables: String,
    queue: Vec<queues::Printed>,
    curve: String,
    predicted: Vec<String>,
    networks: network::Printed,
    design: design::Printed,
}

/// Throughput error that a flow-equivalent prediction may have, percent.
const PREDICTED_PERCENT: f64 = 5.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let folder = context.folder.join(&config.tables);
    let mut claims = Vec::new();

    let queues = queues::compute(&folder, &config.queue)?;
    claims.extend(of_queues(&queues));
    let networks = network::solve(&folder, &config.networks)?;
    claims.extend(of_networks(&networks)?);
    let predicted = curve::predict(&folder, &config.curve, &config.predicted)?;
    let errors = predicted.iter().map(|row| row.error().abs());
    claims.push(Claim {
        goal: Some(Goal::AtMost(PREDICTED_PERCENT)),
        ..claim(
            "flow-equivalent prediction of throughput, worst row: error",
            errors.fold(0.0, f64::max),
            "%",
            predicted.len(),
        )
    });
    let designs = design::compute(&folder, &config.design)?;
    claims.extend(designs.claims);

    let named = queues.misprinted.join("\n");
    let text = [
        queues.text,
        format!("Cells that rounding does not explain:\n{named}\n\n"),
        network::text(&networks),
        curve::text(&predicted),
        designs.text,
    ]
    .concat();
    let path = context.out.join("tables.txt");
    std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    context.say(text);
    Ok(claims)
}

/// A computed figure: it has no interval.
fn claim(name: &str, value: f64, unit: &str, samples: usize) -> Claim {
    Claim {
        name: name.to_owned(),
        value,
        low: value,
        high: value,
        unit: unit.to_owned(),
        samples: samples as u64,
        width_max: 0.0,
        published: None,
        goal: None,
        peer: None,
        holds: false,
    }
}

/// As exactly as printed figures are known.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn of_queues(queues: &Outcome) -> [Claim; 3] {
    let cells = queues.cells as usize;
    [
        claim(
            "M/M/1 and M/M/m: printed cells that rounding does not explain",
            queues.misprinted.len() as f64,
            "cells",
            cells,
        ),
        Claim {
            goal: Some(Goal::AtMost(0.0)),
            ..claim(
                "M/M/1 and M/M/m: of these, cells that are not merely cut off",
                queues.unexplained as f64,
                "cells",
                cells,
            )
        },
        claim(
            "sampled queue lengths that break Little's law by more than 5 % and rounding",
            queues.broken as f64,
            "rows",
            queues.checked as usize,
        ),
    ]
}

/// Rows in which the study's solver was unstable: its table and clients, and the largest error in percent
/// that is claimed of a stable solution of the same inputs.
const UNSTABLE: [(u32, u32, f64); 2] = [(21, 192, 3.0), (21, 288, 1.0)];

fn of_networks(solved: &[network::Solved]) -> anyhow::Result<Vec<Claim>> {
    let mut claims = Vec::new();
    for (table, clients, goal) in UNSTABLE {
        let row = solved
            .iter()
            .find(|row| row.table == table && row.clients == clients)
            .with_context(|| format!("table {table} has no row of {clients} clients"))?;
        claims.push(Claim {
            published: Some(hundredths(row.printed_error().abs())),
            goal: Some(Goal::AtMost(goal)),
            ..claim(
                &format!(
                    "network of queues, {clients} clients, table {table}: |error| of throughput"
                ),
                row.computed_error().abs(),
                "%",
                1,
            )
        });
    }
    let worst = |error: fn(&network::Solved) -> f64| {
        solved.iter().map(|row| error(row).abs()).fold(0.0, f64::max)
    };
    claims.push(Claim {
        published: Some(hundredths(worst(network::Solved::printed_error))),
        ..claim(
            "network of queues, all tables: largest |error| of throughput",
            worst(network::Solved::computed_error),
            "%",
            solved.len(),
        )
    });
    claims.push(Claim {
        goal: Some(Goal::AtMost(1.0)),
        ..claim(
            "interactive law N = X·R in what the clients measured: largest deviation",
            worst(network::Solved::interactive_error),
            "%",
            solved.len(),
        )
    });
    Ok(claims)
}
