//! The tables of a report as CSV files and its plots as SVG files, to use in other documents.
//!
//! CSV has the numbers with all their digits, in the units that the column names end with; an empty cell is an unknown one.

use std::path::{Path, PathBuf};

use model::Parameter;
use serde::Serialize;

use super::compare::Comparison;
use super::error::Error;
use super::{figures, state_rates, svg};

/// The first line of every file that is written here, by which an earlier one is recognised.
const MADE: &str = "# concertina report: ";

#[derive(Serialize)]
struct ShareRow<'a> {
    step: &'a str,
    rate: f64,
    requests: u64,
    utilisation: f64,
    within_s: f64,
    measured: f64,
    measured_half_width: Option<f64>,
    concertina: Option<f64>,
    concertina_low: Option<f64>,
    concertina_high: Option<f64>,
    spotify: Option<f64>,
    concertina_error_points: Option<f64>,
    spotify_error_points: Option<f64>,
    fitted: bool,
    extrapolated: bool,
    beyond_confidence_limit: bool,
    disturbed: String,
}

#[derive(Serialize)]
struct PercentileRow<'a> {
    step: &'a str,
    rate: f64,
    percentile: f64,
    measured_s: f64,
    concertina_s: Option<f64>,
    concertina_low_s: Option<f64>,
    concertina_high_s: Option<f64>,
    fitted: bool,
}

#[derive(Serialize)]
struct StepRow<'a> {
    step: &'a str,
    seconds: f64,
    requests: u64,
    rate: f64,
    throughput: f64,
    response_mean_s: Option<f64>,
    response_mean_half_width_s: Option<f64>,
    response_p99_s: Option<f64>,
    hit_ratio: f64,
    utilisation_mean: f64,
    utilisation_max: f64,
    device_length_mean: f64,
    errors: u64,
    refusals: u64,
    lateness_us_mean: f64,
    lateness_us_p99: f64,
    lateness_us_max: f64,
    fitted: bool,
}

#[derive(Serialize)]
struct ParameterRow<'a> {
    parameter: &'a str,
    value: f64,
    low: f64,
    high: f64,
    unit: &'a str,
    meaning: &'a str,
}

#[derive(Serialize)]
struct LawRow<'a> {
    step: &'a str,
    law: &'a str,
    queue: &'a str,
    measured: f64,
    expected: f64,
    deviation_percent: f64,
    half_width_percent: Option<f64>,
    tolerance_percent: f64,
    verdict: &'a str,
}

#[derive(Serialize)]
struct HeldOutRow<'a> {
    step: &'a str,
    rate: f64,
    within_s: f64,
    error_points: f64,
    half_width_points: Option<f64>,
}

#[derive(Serialize)]
struct ObjectiveRow {
    objective: String,
    servers: u32,
    rate: Option<f64>,
    rate_low: Option<f64>,
    rate_high: Option<f64>,
    spotify: Option<f64>,
    extrapolated: bool,
    beyond_confidence_limit: bool,
}

/// Writes a folder of CSV files, one for each table of the report; returns their paths. Files of an earlier report are
/// replaced, others are not.
///
/// # Errors
/// If a file cannot be written, or what it would replace was not written here.
pub fn write_csv(comparison: &Comparison, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    make(folder)?;
    let mut written = Vec::new();
    let mut add = |name: &str, table: Result<String, Error>| -> Result<(), Error> {
        let path = folder.join(format!("{name}.csv"));
        let text = format!("{MADE}{name}\n{}", table?);
        super::write_whole(&path, &text, |old| old.starts_with(MADE))?;
        written.push(path);
        Ok(())
    };
    add("shares", shares(comparison))?;
    add("percentiles", percentiles(comparison))?;
    add("steps", steps(comparison))?;
    add("parameters", parameters(comparison))?;
    add("fitted", text(fitted(comparison)))?;
    add("held-out", held_out(comparison))?;
    add("objectives", objectives(comparison))?;
    add("laws", laws(comparison))?;
    Ok(written)
}

/// Writes each plot of the report as an SVG file of its own into a folder; returns their paths.
///
/// # Errors
/// As [`write_csv`].
pub fn write_plots(comparison: &Comparison, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    make(folder)?;
    let mut plots = Vec::new();
    let mut add = |name: &str, found: Vec<svg::Plot>| {
        let several = found.len() > 1;
        for (i, plot) in found.into_iter().enumerate() {
            let name = if several { format!("{name}-{}", i + 1) } else { name.to_owned() };
            plots.push((name, plot));
        }
    };
    add("within", figures::within_against_rate(comparison));
    add("errors", figures::errors(comparison));
    add("memory", vec![figures::hit_ratio(comparison)]);
    add("distribution", figures::cdfs(comparison));
    add("state-rates", state_rates::plot(&comparison.model).into_iter().collect());
    add("lateness", vec![figures::lateness(comparison)]);
    add("hosts", figures::hosts(comparison));
    let notes: Vec<String> =
        comparison.laboratory.iter().map(|note| format!("Emulated: {note}")).collect();
    let mut written = Vec::new();
    for (name, plot) in plots {
        let path = folder.join(format!("{name}.svg"));
        super::write_whole(&path, &svg::standalone(&[plot], &notes), svg::is_plot)?;
        written.push(path);
    }
    Ok(written)
}

fn make(folder: &Path) -> Result<(), Error> {
    let failed = |source| Error::Folder { path: folder.to_owned(), source };
    std::fs::create_dir_all(folder).map_err(failed)
}

/// Rows as CSV, below the names of their fields.
fn text<R: Serialize>(rows: impl IntoIterator<Item = R>) -> Result<String, Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row)?;
    }
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8(bytes)?)
}

fn shares(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.rows.iter().map(|row| {
        let ours = row.concertina.as_ref();
        ShareRow {
            step: &row.step,
            rate: row.rate,
            requests: row.requests,
            utilisation: row.utilisation,
            within_s: row.within_s,
            measured: row.measured.value,
            measured_half_width: row.measured.half_width,
            concertina: ours.map(|p| p.value),
            concertina_low: ours.map(|p| p.low),
            concertina_high: ours.map(|p| p.high),
            spotify: row.spotify.as_ref().map(|p| p.value),
            concertina_error_points: row.concertina_error_points,
            spotify_error_points: row.spotify_error_points,
            fitted: row.used_for_fit,
            extrapolated: row.beyond_trust,
            beyond_confidence_limit: row.beyond_limit,
            disturbed: row.marks.join("; "),
        }
    }))
}

fn percentiles(comparison: &Comparison) -> Result<String, Error> {
    let of = |p: Option<&Parameter>, end: fn(&Parameter) -> f64| p.map(end);
    text(comparison.steps.iter().flat_map(|step| {
        step.percentiles.iter().map(move |p| PercentileRow {
            step: &step.name,
            rate: step.measured.rate,
            percentile: p.share,
            measured_s: p.measured_s,
            concertina_s: of(p.predicted.as_ref(), |v| v.value),
            concertina_low_s: of(p.predicted.as_ref(), |v| v.low),
            concertina_high_s: of(p.predicted.as_ref(), |v| v.high),
            fitted: step.used_for_fit,
        })
    }))
}

fn steps(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.steps.iter().map(|step| {
        let (m, generator) = (&step.measured, &step.step.generator);
        StepRow {
            step: &step.name,
            seconds: m.seconds,
            requests: m.requests,
            rate: m.rate,
            throughput: m.throughput,
            // None of a step in which nothing was answered.
            response_mean_s: Some(m.response_mean.value).filter(|mean| !mean.is_nan()),
            response_mean_half_width_s: m.response_mean.half_width,
            response_p99_s: Some(m.response_p99).filter(|p99| !p99.is_nan()),
            hit_ratio: m.hit_ratio.value,
            utilisation_mean: m.utilisation_mean,
            utilisation_max: m.utilisation_max,
            device_length_mean: m.device_length_mean,
            errors: m.errors,
            refusals: m.refusals,
            lateness_us_mean: generator.lateness_us_mean,
            lateness_us_p99: generator.lateness_us_p99,
            lateness_us_max: generator.lateness_us_max,
            fitted: step.used_for_fit,
        }
    }))
}

fn parameters(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.parameters.iter().map(|named| ParameterRow {
        parameter: &named.name,
        value: named.parameter.value,
        low: named.parameter.low,
        high: named.parameter.high,
        unit: &named.parameter.unit,
        meaning: &named.meaning,
    }))
}

#[derive(Serialize)]
struct FittedRow<'a> {
    step: &'a str,
    rate: f64,
    requests: u64,
    utilisation: f64,
    utilisation_predicted: f64,
    queue_length: f64,
    queue_length_predicted: f64,
    response_mean_s: f64,
    response_mean_predicted_s: f64,
    ks_distance: f64,
    dispersion: f64,
    misfit_points: f64,
}

fn fitted(comparison: &Comparison) -> impl Iterator<Item = FittedRow<'_>> {
    comparison.model.fitted.iter().map(|step| FittedRow {
        step: super::steps::short_name(&step.name),
        rate: step.rate,
        requests: step.requests,
        utilisation: step.utilisation,
        utilisation_predicted: step.utilisation_predicted,
        queue_length: step.queue_length,
        queue_length_predicted: step.queue_length_predicted,
        response_mean_s: step.response_mean,
        response_mean_predicted_s: step.response_mean_predicted,
        ks_distance: step.ks_distance,
        dispersion: step.dispersion,
        misfit_points: step.misfit_points(),
    })
}

fn held_out(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.model.held_out.iter().map(|held| HeldOutRow {
        step: super::steps::short_name(&held.name),
        rate: held.rate,
        within_s: held.within_s,
        error_points: held.error_points,
        half_width_points: held.half_width_points,
    }))
}

fn objectives(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.largest_rates.iter().map(|largest| ObjectiveRow {
        objective: largest.objective.to_string(),
        servers: largest.servers,
        rate: largest.rate.as_ref().map(|rate| rate.value),
        rate_low: largest.rate.as_ref().map(|rate| rate.low),
        rate_high: largest.rate.as_ref().map(|rate| rate.high),
        spotify: largest.spotify,
        extrapolated: largest.beyond_trust,
        beyond_confidence_limit: largest.beyond_limit,
    }))
}

fn laws(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.steps.iter().flat_map(|step| {
        step.measured.laws.iter().map(|check| LawRow {
            step: &step.name,
            law: check.law.name(),
            queue: &check.queue,
            measured: check.measured,
            expected: check.expected,
            deviation_percent: check.deviation_percent,
            half_width_percent: check.half_width_percent,
            tolerance_percent: check.tolerance_percent,
            verdict: check.verdict.as_str(),
        })
    }))
}
