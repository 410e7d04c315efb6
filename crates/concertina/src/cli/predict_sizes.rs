//! `concertina predict --servers 12..52`: one model, several numbers of servers.

use std::process::ExitCode;

use model::storage::{BETA, balls_into_bins_limit};
use model::{Limits, Model, Parameter, Prediction};

use crate::cli::output::{out, outln};
use report::grid::{Grid, printable};
use report::objective::{digits, time};
use report::table::{
    MARK_TEXT, limits_text, mark, no_interval_text, percent, tenths, trust_text, warnings_text,
    with_interval,
};

/// The most predictions of one command: the cost of each is that of a fitted model's replicates.
const PREDICTIONS_MAX: usize = 5_000;

/// A number of servers, with its limits in requests/s on all of them.
#[derive(serde::Serialize)]
struct Size {
    servers: u32,
    confidence_limit: f64,
    confidence_limit_spotify: f64,
    saturation: f64,
    predictions: Vec<AtLoad>,
}

/// A prediction at a load, or its absence past saturation.
#[derive(serde::Serialize)]
struct AtLoad {
    rate: f64,
    stable: bool,
    prediction: Option<Prediction>,
    response_p99: Option<Parameter>,
}

/// Prints the limits of each number of servers, and the predictions at each of the loads.
pub(super) fn run(
    model: &Model,
    servers: &[u32],
    rates: &[f64],
    within_s: &[f64],
    json: bool,
) -> anyhow::Result<ExitCode> {
    if servers.len() * rates.len() > PREDICTIONS_MAX {
        anyhow::bail!(
            "{} numbers of servers at {} loads are more than {PREDICTIONS_MAX} predictions; take larger steps",
            servers.len(),
            rates.len()
        );
    }
    let limits = model.limits()?;
    let mut sizes = Vec::new();
    for &n in servers {
        let predictions = rates.iter().map(|&rate| at_load(model, n, rate, within_s));
        sizes.push(Size {
            servers: n,
            confidence_limit: balls_into_bins_limit(limits.mg1.value, n, BETA),
            confidence_limit_spotify: balls_into_bins_limit(limits.spotify_single.value, n, BETA),
            saturation: limits.saturation.value * f64::from(n),
            predictions: predictions.collect::<anyhow::Result<_>>()?,
        });
    }
    if json {
        let value = serde_json::json!({
            "model": model.about.title,
            "laboratory": model.about.laboratory,
            "limits_of_one": limits,
            "trust": model.trust()?,
            "within_s": within_s,
            "sizes": sizes,
            "smallest_within_limit": smallest(&sizes, rates),
            "warnings": model.warnings,
        });
        outln!("{value:#}");
        return Ok(ExitCode::SUCCESS);
    }
    out!("{}", text(model, &limits, &sizes, rates, within_s)?);
    Ok(ExitCode::SUCCESS)
}

fn text(
    model: &Model,
    limits: &Limits,
    sizes: &[Size],
    rates: &[f64],
    within_s: &[f64],
) -> anyhow::Result<String> {
    let mut out = String::new();
    if let Some(note) = &model.about.laboratory {
        out += &format!("EMULATED: {}\n\n", printable(note));
    }
    out += &grid(sizes, within_s).text();
    let found = || sizes.iter().flat_map(|s| &s.predictions).filter_map(|p| p.prediction.as_ref());
    let values = found().flat_map(|p| p.points.iter().map(|point| &point.concertina));
    out += no_interval_text(values);
    if found().any(|p| p.beyond_trust) {
        out += MARK_TEXT;
    }
    for Smallest { rate, servers } in smallest(sizes, rates) {
        let rate = digits(rate, 5);
        out += &match servers {
            Some(n) => {
                format!(
                    "{rate} requests/s are within the confidence limit of {n} servers, the fewest of these.\n"
                )
            }
            None => format!(
                "{rate} requests/s are past the confidence limit of each of these numbers of servers: queues are long.\n"
            ),
        };
    }
    out += &format!("\nOne server. {}", limits_text(limits));
    Ok(out + &trust_text(&model.trust()?) + &warnings_text(&model.warnings))
}

fn at_load(model: &Model, servers: u32, rate: f64, within_s: &[f64]) -> anyhow::Result<AtLoad> {
    match model.predict_cluster(rate, servers, within_s) {
        Ok(prediction) => {
            let p99 = model.quantile_with_interval(rate / f64::from(servers), 0.99)?;
            Ok(AtLoad { rate, stable: true, prediction: Some(prediction), response_p99: Some(p99) })
        }
        Err(model::Error::Unstable { .. }) => {
            Ok(AtLoad { rate, stable: false, prediction: None, response_p99: None })
        }
        Err(error) => Err(error.into()),
    }
}

/// The smallest number of servers within whose confidence limit a load is.
#[derive(serde::Serialize)]
struct Smallest {
    rate: f64,
    servers: Option<u32>,
}

fn smallest(sizes: &[Size], rates: &[f64]) -> Vec<Smallest> {
    let of = |&rate: &f64| {
        let holds = sizes.iter().filter(|size| rate <= size.confidence_limit);
        Smallest { rate, servers: holds.map(|size| size.servers).min() }
    };
    rates.iter().map(of).collect()
}

fn grid(sizes: &[Size], within_s: &[f64]) -> Grid {
    let mut head: Vec<String> =
        ["servers", "confidence limit/s", "Spotify", "saturation/s"].map(String::from).to_vec();
    let loaded = sizes.iter().any(|size| !size.predictions.is_empty());
    if loaded {
        head.extend(["rate/s", "busy %"].map(String::from));
        for &t in within_s {
            head.push(format!("≤ {} % [95 %]", time(t)));
            head.push("Spotify".to_owned());
        }
        head.extend(["mean", "p99 [95 %]", ""].map(String::from));
    }
    let mut grid = Grid { head, align: "", rows: Vec::new() };
    for size in sizes {
        let limits = [size.confidence_limit, size.confidence_limit_spotify, size.saturation];
        let mut first = vec![size.servers.to_string()];
        first.extend(limits.map(|limit| digits(limit, 5)));
        if size.predictions.is_empty() {
            grid.row(first.clone());
        }
        for at in &size.predictions {
            let mut cells = first.clone();
            cells.push(digits(at.rate, 5));
            match (&at.prediction, &at.response_p99) {
                (Some(p), Some(p99)) => cells.extend(cells_of(p, p99)),
                _ => cells.push("unstable".to_owned()),
            }
            grid.row(cells);
        }
    }
    grid
}

fn cells_of(p: &Prediction, p99: &Parameter) -> Vec<String> {
    let mut cells = vec![tenths(p.utilisation_max.value)];
    for point in &p.points {
        cells.push(with_interval(&point.concertina, percent));
        cells.push(point.spotify.as_ref().map_or("unstable".to_owned(), |s| percent(s.value)));
    }
    cells.push(time(p.response_mean.value));
    cells.push(with_interval(p99, time));
    cells.push(mark(p.beyond_trust).to_owned());
    cells
}
