//! `experiments/asl-tables`: every table of the ETH middleware study that can be computed again,
//! printed beside what the models of this project give from the same inputs.
//!
//! Nothing is measured here. The measurements are the study's, and so are the misprints that the
//! experiment lists.

mod allocation;
mod cells;
mod csv;
mod curve;
mod design;
mod network;
mod queues;
mod summary;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use design::claim;
use queues::Outcome;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Folder of the study's tables, relative to the experiment's folder.
    tables: String,
    /// Tables with no cell that can be computed from others.
    nothing: Vec<Nothing>,
    queue: Vec<queues::Printed>,
    curve: String,
    predicted: Vec<String>,
    networks: network::Printed,
    summaries: summary::Printed,
    design: design::Printed,
}

/// A table with no cell that can be computed from others.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {
    name: String,
    file: String,
    why: String,
}

/// An entry of the tables' `index.json`.
#[derive(Debug, Deserialize)]
struct Listed {
    file: String,
}

/// Goal for the throughput error of a flow-equivalent prediction, percent.
const PREDICTED_PERCENT: f64 = 5.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let folder = context.folder.join(&config.tables);
    all_named(context, &folder)?;
    let mut claims = Vec::new();

    let queues = queues::compute(&folder, &config.queue)?;
    claims.extend(of_queues(&queues));
    let networks = network::solve(&folder, &config.networks)?;
    claims.extend(of_networks(&networks.rows)?);
    let predicted = curve::predict(&folder, &config.curve, &config.predicted)?;
    let errors = predicted.iter().map(|row| row.error().abs());
    let worst = claim(
        "flow-equivalent prediction of throughput, worst row: error",
        errors.fold(0.0, f64::max),
        "%",
        predicted.len(),
    );
    claims.push(worst.with_goal(Goal::AtMost(PREDICTED_PERCENT)));
    let designs = design::compute(&folder, &config.design)?;
    claims.extend(designs.claims);
    let (mut sheet, summaries) = summary::compare(&folder, &config.summaries, &networks.rows)?;
    for other in [queues.models, queues.others, networks.sheet, designs.sheet] {
        sheet.merge(other);
    }

    let line = |table: &Nothing| format!("{}: {} ({})\n", table.name, table.why, table.file);
    let nothing: String = config.nothing.iter().map(line).collect();
    let text = [
        summaries,
        queues.text,
        networks.text,
        curve::text(&predicted),
        designs.text,
        sheet.text(),
        format!("Nothing to compute again\n{nothing}"),
    ]
    .concat();
    let path = context.out.join("tables.txt");
    std::fs::write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    context.say(text);
    Ok(claims)
}

/// Fails unless `config.toml` names the file of every table in the index.
fn all_named(context: &Context, folder: &Path) -> anyhow::Result<()> {
    let config = context.folder.join("config.toml");
    let config = std::fs::read_to_string(&config)
        .with_context(|| format!("cannot read {}", config.display()))?;
    let path = folder.join("index.json");
    let index = std::fs::read_to_string(&path).with_context(|| csv::unread(&path))?;
    let index: BTreeMap<String, Listed> = serde_json::from_str(&index)
        .with_context(|| format!("{} is not a list of tables", path.display()))?;
    for Listed { file } in index.values() {
        ensure!(config.contains(file), "config.toml does not name {file}, which index.json lists");
    }
    Ok(())
}

/// Rounds to the precision of the printed figures.
fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

fn of_queues(queues: &Outcome) -> [Claim; 3] {
    let cells = queues.models.cells();
    [
        claim(
            "M/M/1 and M/M/m: printed cells that rounding does not explain",
            queues.models.misprinted.len() as f64,
            "cells",
            cells,
        ),
        Claim {
            goal: Some(Goal::AtMost(0.0)),
            ..claim(
                "M/M/1 and M/M/m: of these, cells that are not merely cut off",
                queues.models.unexplained as f64,
                "cells",
                cells,
            )
        },
        claim(
            "sampled queue lengths that break Little's law by more than 5 % and rounding",
            queues.others.broken.len() as f64,
            "rows",
            queues.checked,
        ),
    ]
}

/// Rows in which the study's solver was unstable: its table and clients, and the largest error in
/// percent that is claimed of a stable solution of the same inputs.
const UNSTABLE: [(u32, u32, f64); 2] = [(21, 192, 3.0), (21, 288, 1.0)];

/// The number of cells in a network's row that the study's model computed.
const MODEL_CELLS: usize = 4;

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
    let stable: Vec<_> = solved
        .iter()
        .filter(|row| !UNSTABLE.iter().any(|at| (at.0, at.1) == (row.table, row.clients)))
        .collect();
    claims.push(Claim {
        goal: Some(Goal::AtMost(0.0)),
        ..claim(
            "network of queues, all other rows: printed cells that the exact solution does not give within rounding",
            stable.iter().map(|row| row.unexplained).sum::<usize>() as f64,
            "cells",
            stable.len() * MODEL_CELLS,
        )
    });
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
    claims.push(claim(
        "networks of queues: sampled lengths that break Little's law by more than 5 % and rounding",
        solved.iter().filter(|row| row.breaks_little).count() as f64,
        "rows",
        solved.len(),
    ));
    Ok(claims)
}
