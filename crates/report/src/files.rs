//! The tables of a report as CSV files and its plots as SVG files, to use in other documents.
//!
//! CSV has the numbers with all their digits, in the units that the column names end with; an empty cell is an unknown one.

use std::path::{Path, PathBuf};

use model::Parameter;
use record::Step;
use serde::Serialize;

use super::alone::Measurements;
use super::compare::Comparison;
use super::error::Error;
use super::measured::StepFigures;
use super::percentiles::SHARES;
use super::predictions::Predictions;
use super::{figures, state_rates, svg};

/// The first line of every file that is written here, by which an earlier one is recognised.
const MADE: &str = "# concertina report: ";

#[derive(Default, Serialize)]
struct ShareRow<'a> {
    step: &'a str,
    rate: f64,
    requests: Option<u64>,
    utilisation: Option<f64>,
    within_s: f64,
    measured: Option<f64>,
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

#[derive(Default, Serialize)]
struct PercentileRow<'a> {
    step: &'a str,
    rate: f64,
    percentile: f64,
    measured_s: Option<f64>,
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
    let mut tables = vec![
        ("shares", shares(comparison)?),
        ("percentiles", percentiles(comparison)?),
        ("steps", steps(comparison)?),
    ];
    tables.extend(model_tables(comparison)?);
    tables.push(("laws", laws(comparison)?));
    write_tables(&tables, folder)
}

/// The same of a model alone: the tables have the columns of a comparison, of which the measured ones are empty.
///
/// # Errors
/// As [`write_csv`].
pub fn write_predicted_csv(predicted: &Predictions, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut tables = vec![
        ("shares", predicted_shares(predicted)?),
        ("percentiles", predicted_percentiles(predicted)?),
    ];
    tables.extend(model_tables(&predicted.comparison)?);
    write_tables(&tables, folder)
}

/// The same of measurements without a model, of which the predicted columns are empty.
///
/// # Errors
/// As [`write_csv`].
pub fn write_measured_csv(measured: &Measurements, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let tables = [
        ("shares", measured_shares(measured)?),
        ("percentiles", measured_percentiles(measured)?),
        ("steps", text(measured.steps.iter().map(|s| step_row(&s.name, &s.measured, &s.step)))?),
        ("laws", text(measured.steps.iter().flat_map(|s| law_rows(&s.name, &s.measured)))?),
    ];
    write_tables(&tables, folder)
}

/// The tables that tell of a model.
fn model_tables(comparison: &Comparison) -> Result<[(&'static str, String); 4], Error> {
    Ok([
        ("parameters", parameters(comparison)?),
        ("fitted", text(fitted(comparison))?),
        ("held-out", held_out(comparison)?),
        ("objectives", objectives(comparison)?),
    ])
}

fn write_tables(tables: &[(&str, String)], folder: &Path) -> Result<Vec<PathBuf>, Error> {
    make(folder)?;
    let mut written = Vec::new();
    for (name, table) in tables {
        let path = folder.join(format!("{name}.csv"));
        let text = format!("{MADE}{name}\n{table}");
        super::write_whole(&path, &text, |old| old.starts_with(MADE))?;
        written.push(path);
    }
    Ok(written)
}

/// Writes each plot of the report as an SVG file of its own into a folder; returns their paths.
///
/// # Errors
/// As [`write_csv`].
pub fn write_plots(comparison: &Comparison, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let plots = vec![
        ("within", figures::within_against_rate(comparison)),
        ("errors", figures::errors(comparison)),
        ("memory", vec![figures::hit_ratio(comparison)]),
        ("distribution", figures::cdfs(comparison)),
        ("state-rates", state_rates::plot(&comparison.model).into_iter().collect()),
        ("lateness", vec![figures::lateness(comparison)]),
        ("hosts", figures::hosts(comparison)),
    ];
    write_each(plots, &comparison.laboratory, folder)
}

/// The plots of a model alone.
///
/// # Errors
/// As [`write_csv`].
pub fn write_predicted_plots(
    predicted: &Predictions,
    folder: &Path,
) -> Result<Vec<PathBuf>, Error> {
    let model = &predicted.comparison.model;
    let plots = vec![
        ("within", predicted.plots()),
        ("state-rates", state_rates::plot(model).into_iter().collect()),
    ];
    write_each(plots, &predicted.comparison.laboratory, folder)
}

/// The plots of measurements without a model.
///
/// # Errors
/// As [`write_csv`].
pub fn write_measured_plots(measured: &Measurements, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let plots =
        vec![("within", measured.against_rate()), ("distribution", measured.distributions())];
    write_each(plots, &measured.laboratory, folder)
}

/// Writes plots by their names, several of a name with a number.
fn write_each(
    plots: Vec<(&str, Vec<svg::Plot>)>,
    laboratory: &[String],
    folder: &Path,
) -> Result<Vec<PathBuf>, Error> {
    make(folder)?;
    let notes: Vec<String> = laboratory.iter().map(|note| format!("Emulated: {note}")).collect();
    let mut written = Vec::new();
    for (name, found) in plots {
        let several = found.len() > 1;
        for (i, plot) in found.into_iter().enumerate() {
            let name = if several { format!("{name}-{}", i + 1) } else { name.to_owned() };
            let path = folder.join(format!("{name}.svg"));
            super::write_whole(&path, &svg::standalone(&[plot], &notes), svg::is_plot)?;
            written.push(path);
        }
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
            requests: Some(row.requests),
            utilisation: Some(row.utilisation),
            within_s: row.within_s,
            measured: Some(row.measured.value),
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
            measured_s: Some(p.measured_s),
            concertina_s: of(p.predicted.as_ref(), |v| v.value),
            concertina_low_s: of(p.predicted.as_ref(), |v| v.low),
            concertina_high_s: of(p.predicted.as_ref(), |v| v.high),
            fitted: step.used_for_fit,
        })
    }))
}

fn predicted_shares(predicted: &Predictions) -> Result<String, Error> {
    text(predicted.loads.iter().map(|load| &load.prediction).flat_map(|p| {
        p.points.iter().map(move |point| ShareRow {
            rate: p.rate,
            utilisation: Some(p.utilisation_mean.value),
            within_s: point.t_s,
            concertina: Some(point.concertina.value),
            concertina_low: Some(point.concertina.low),
            concertina_high: Some(point.concertina.high),
            spotify: point.spotify.as_ref().map(|p| p.value),
            extrapolated: p.beyond_trust,
            beyond_confidence_limit: p.beyond_limit,
            ..ShareRow::default()
        })
    }))
}

fn predicted_percentiles(predicted: &Predictions) -> Result<String, Error> {
    text(predicted.loads.iter().flat_map(|load| {
        load.percentiles.iter().map(move |p| PercentileRow {
            rate: load.prediction.rate,
            percentile: p.share,
            concertina_s: Some(p.predicted.value),
            concertina_low_s: Some(p.predicted.low),
            concertina_high_s: Some(p.predicted.high),
            ..PercentileRow::default()
        })
    }))
}

fn measured_shares(measured: &Measurements) -> Result<String, Error> {
    text(measured.steps.iter().flat_map(|step| {
        let m = &step.measured;
        measured.within_s.iter().zip(&m.within).map(move |(&within_s, found)| ShareRow {
            step: &step.name,
            rate: m.rate,
            requests: Some(m.requests),
            utilisation: step.has_devices.then_some(m.utilisation_mean),
            within_s,
            measured: Some(found.share.value).filter(|share| !share.is_nan()),
            measured_half_width: found.share.half_width,
            disturbed: m.marks.join("; "),
            ..ShareRow::default()
        })
    }))
}

fn measured_percentiles(measured: &Measurements) -> Result<String, Error> {
    text(measured.steps.iter().flat_map(|step| {
        SHARES.into_iter().filter_map(move |share| {
            let measured_s = Some(step.measured.responses.quantile_s(share)?);
            let (rate, percentile) = (step.measured.rate, share);
            let step = step.name.as_str();
            Some(PercentileRow { step, rate, percentile, measured_s, ..PercentileRow::default() })
        })
    }))
}

fn steps(comparison: &Comparison) -> Result<String, Error> {
    text(comparison.steps.iter().map(|step| StepRow {
        fitted: step.used_for_fit,
        ..step_row(&step.name, &step.measured, &step.step)
    }))
}

/// A step that was not fitted.
fn step_row<'a>(name: &'a str, m: &StepFigures, step: &Step) -> StepRow<'a> {
    let generator = &step.generator;
    StepRow {
        step: name,
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
        fitted: false,
    }
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
    text(comparison.steps.iter().flat_map(|step| law_rows(&step.name, &step.measured)))
}

fn law_rows<'a>(step: &'a str, measured: &'a StepFigures) -> impl Iterator<Item = LawRow<'a>> {
    measured.laws.iter().map(move |check| LawRow {
        step,
        law: check.law.name(),
        queue: &check.queue,
        measured: check.measured,
        expected: check.expected,
        deviation_percent: check.deviation_percent,
        half_width_percent: check.half_width_percent,
        tolerance_percent: check.tolerance_percent,
        verdict: check.verdict.as_str(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use model::distribution::Exponential;
    use model::{Model, StatedNode};

    use super::super::objective::Objective;
    use super::*;

    #[test]
    fn a_model_alone_has_tables_and_plots() {
        let law = Arc::new(Exponential::new(0.01).unwrap());
        let model = Model::stated(&StatedNode::new(law)).unwrap();
        let objective = Objective { share: 0.9, within_s: 0.05 };
        let found = Predictions::new(&model, &[], &[objective]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let tables = write_predicted_csv(&found, folder.path()).unwrap();
        let shares = std::fs::read_to_string(&tables[0]).unwrap();
        // The table's name, its columns, and three times at ten loads.
        assert_eq!(shares.lines().count(), 2 + 30, "{shares}");
        assert!(shares.lines().nth(2).unwrap().starts_with(",10.0,,"), "{shares}");
        assert!(!write_predicted_plots(&found, folder.path()).unwrap().is_empty());
    }
}
