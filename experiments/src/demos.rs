//! `experiments/thief`: the demo while an artificial thief takes the machine.
//!
//! Each demo is a process of its own, started as a user starts it. What it printed is kept, and judged. Its run
//! folders are then fitted and judged once more with all seconds, the disturbed ones included, so that figures with
//! and without the cut stand beside each other, and the load of the kept seconds beside that of all.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use record::RunFolder;
use report::{Comparison, Observed, Selection, StepChoice};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::covered;
use super::lab;
use super::provenance::Round;
use super::thief;

/// `config.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seeds: Vec<u64>,
    share: f64,
    mean_ms: f64,
    utilisation_max: f64,
    error_points: f64,
    coverage: f64,
}

/// A held-out row of a demo, as it printed it.
#[derive(Clone, Debug, Deserialize)]
struct Row {
    utilisation: f64,
    measured: MeasuredValue,
    concertina_error_points: Option<f64>,
    used_for_fit: bool,
    expected: Option<Expected>,
}

#[derive(Clone, Debug, Deserialize)]
struct MeasuredValue {
    value: f64,
    half_width: Option<f64>,
}

#[derive(Clone, Debug, Deserialize)]
struct Expected {
    inside: bool,
}

/// A step with and without the cut of disturbed seconds.
#[derive(Serialize)]
struct Cut {
    seed: u64,
    offered_per_s: f64,
    used_for_fit: bool,
    /// Seconds that were kept, and all.
    seconds: [f64; 2],
    /// Requests/s in the kept seconds, and in all.
    rate_per_s: [f64; 2],
    /// Error of P(T ≤ t) at the first time, points; each by the model that was fitted likewise.
    error_points: [Option<f64>; 2],
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    ensure!(!config.seeds.is_empty(), "seeds: one at least");
    let earlier = short_records(&context.out);
    let seeds = match context.short {
        true => vec![config.seeds[earlier.saturating_sub(1) % config.seeds.len()]],
        false => config.seeds.clone(),
    };
    let (mut rows, mut cuts) = (Vec::new(), Vec::new());
    let mut claims = Vec::new();
    for seed in seeds {
        let dir = demo(context, &config, seed)?;
        let path = context.scratch.join(format!("{seed}.json"));
        let text = std::fs::read_to_string(&path).context("the demo printed nothing")?;
        let mut told: Value = serde_json::from_str(&text).context("the demo printed no JSON")?;
        let comparison = told["comparison"].take();
        let scratch = context.scratch.display().to_string();
        let text = serde_json::to_string_pretty(&comparison)?.replace(&scratch, "scratch");
        std::fs::write(context.out.join(format!("demo-{seed}.json")), text)?;
        let these: Vec<Row> = serde_json::from_value(comparison["rows"].clone())?;
        let [kept, all] = [false, true].map(|whole| judged(&dir, &comparison, whole));
        let (kept, all) = (kept?, all?);
        let tables = format!(
            "Without disturbed seconds\n\n{}\nWith all seconds\n\n{}",
            report::table(&kept),
            report::table(&all)
        );
        let tables = tables.replace(&scratch, "scratch");
        std::fs::write(context.out.join(format!("demo-{seed}.txt")), &tables)?;
        context.say(&tables);
        cuts.extend(beside(seed, &kept, &all));
        context.provenance.round(Round::new(&format!("demo, seed {seed}"), 1, true).with([
            ("held_out_rows", these.iter().filter(|row| !row.used_for_fit).count() as f64),
            ("worst_points", worst(&these, config.utilisation_max).0),
        ]))?;
        rows.extend(these);
        std::fs::write(context.out.join("cut.json"), serde_json::to_string_pretty(&cuts)? + "\n")?;
        claims = judge(&config, &rows, &cuts);
        context.record(&claims)?;
        std::fs::remove_dir_all(&dir).context("cannot remove a demo's folder")?;
    }
    Ok(claims)
}

/// Short records in the folder that has this one, which counts if it is one.
fn short_records(out: &Path) -> usize {
    let Some(entries) = out.parent().and_then(|records| std::fs::read_dir(records).ok()) else {
        return 1;
    };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter(|name| name.contains("-short")).count()
}

/// Runs a demo, and gives its folder. What it printed is beside it.
fn demo(context: &Context, config: &Config, seed: u64) -> anyhow::Result<PathBuf> {
    let dir = context.scratch.join(format!("demo-{seed}"));
    let out = context.scratch.join(format!("{seed}.json"));
    let share = if seed == 0 { 0.0 } else { config.share };
    context.say(format!("demo, thief of {:.0} % with seed {seed}", share * 100.0));
    let quiet = if context.quiet { " --quiet" } else { "" };
    let script = format!(r#"exec "$0" demo --json{quiet} --dir "$1" > "$2""#);
    let words: [OsString; 6] = [
        "sh".into(),
        "-c".into(),
        script.into(),
        lab::program()?.into(),
        dir.clone().into(),
        out.into(),
    ];
    let command = words.to_vec();
    let status = thief::run(&thief::Args { share, mean_ms: config.mean_ms, seed, command })?;
    ensure!(status.success(), "the demo ended with {status}");
    Ok(dir)
}

/// Fits the steps of a demo again and judges them, as it did, or with all seconds.
fn judged(dir: &Path, told: &Value, whole: bool) -> anyhow::Result<Comparison> {
    let names = told["runs"].as_array().context("the demo names no runs")?;
    let mut runs = Vec::new();
    for name in names.iter().filter_map(|run| run["name"].as_str()) {
        let mut run = RunFolder::read(&dir.join(name))?;
        if whole {
            // No second counts as disturbed.
            run.host.iter_mut().for_each(|host| host.cpu_stolen = 0.0);
        }
        runs.push(run);
    }
    let steps = told["steps"].as_array().context("the demo names no steps")?;
    let held_out = steps.iter().filter(|step| step["used_for_fit"] == false);
    let rates = held_out.filter_map(|step| step["step"]["rate"].as_f64());
    let hold_out = rates.map(StepChoice::Rate).collect();
    let observed = Observed::new(runs, &Selection { hold_out, ..Selection::default() })?;
    let model = report::fit(&observed, "demo")?;
    Ok(Comparison::new(&observed, &model, &[], &[])?)
}

/// The steps of two comparisons of the same runs.
fn beside(seed: u64, kept: &Comparison, all: &Comparison) -> Vec<Cut> {
    let error = |of: &Comparison, name: &str| {
        of.rows.iter().find(|row| row.step == name)?.concertina_error_points
    };
    let steps = kept.steps.iter().filter_map(|step| {
        let whole = all.steps.iter().find(|other| other.name == step.name)?;
        Some(Cut {
            seed,
            offered_per_s: step.step.rate.unwrap_or(f64::NAN),
            used_for_fit: step.used_for_fit,
            seconds: [step.measured.seconds, whole.measured.seconds],
            rate_per_s: [step.measured.rate, whole.measured.rate],
            error_points: [error(kept, &step.name), error(all, &step.name)],
        })
    });
    steps.collect()
}

/// The largest error of a held-out row up to a utilisation, and the widest half-width of a measurement there,
/// points. A load that the model calls unstable is one where it expects nobody to be answered in time.
fn worst(rows: &[Row], utilisation_max: f64) -> (f64, f64) {
    let counted = rows.iter().filter(|row| !row.used_for_fit && row.utilisation <= utilisation_max);
    counted.fold((0.0, 0.0), |(error, width), row| {
        let unstable = row.measured.value * 100.0;
        let half_width = row.measured.half_width.map_or(f64::NAN, |half| half * 100.0);
        let widest = if f64::is_nan(half_width) { f64::NAN } else { f64::max(width, half_width) };
        (f64::max(error, row.concertina_error_points.map_or(unstable, f64::abs)), widest)
    })
}

fn judge(config: &Config, rows: &[Row], cuts: &[Cut]) -> Vec<Claim> {
    let held_out: Vec<&Row> = rows.iter().filter(|row| !row.used_for_fit).collect();
    let up_to = format!("at most {:.0} % busy", config.utilisation_max * 100.0);
    let (error, half_width) = worst(rows, config.utilisation_max);
    let below = held_out.iter().filter(|row| row.utilisation <= config.utilisation_max).count();
    let stated: Vec<bool> =
        held_out.iter().filter_map(|row| Some(row.expected.as_ref()?.inside)).collect();
    let inside = stated.iter().filter(|inside| **inside).count() as u64;
    let (low, high) = covered::wilson(inside, stated.len() as u64);
    let share = inside as f64 / stated.len().max(1) as f64;
    let coverage = Claim {
        low: low * 100.0,
        high: high * 100.0,
        ..Claim::counted("held-out shares inside their 95 % interval", share * 100.0, "%", 0)
    };
    let lighter: Vec<f64> = cuts
        .iter()
        .filter(|cut| cut.seconds[0] < cut.seconds[1] - 0.5)
        .map(|cut| (cut.rate_per_s[0] / cut.rate_per_s[1] - 1.0) * 100.0)
        .collect();
    let of_cut = |which: usize, what: &str| {
        let errors = cuts.iter().filter(|cut| !cut.used_for_fit);
        let errors: Vec<f64> = errors.filter_map(|cut| cut.error_points[which]).collect();
        let squares = errors.iter().map(|error| error * error).sum::<f64>();
        let value = (squares / errors.len().max(1) as f64).sqrt();
        let name = format!("held-out error at the first time, root mean square, {what}");
        Claim { samples: errors.len() as u64, ..Claim::once(name, value, "points") }
    };
    let largest = format!("largest held-out error, {up_to}");
    vec![
        Claim::new(largest, error, half_width, "points", below as u64)
            .with_goal(Goal::AtMost(config.error_points)),
        Claim { samples: stated.len() as u64, ..coverage }
            .with_goal(Goal::AtLeast(config.coverage * 100.0)),
        Claim::of_rounds("load of the seconds kept, beside all seconds", &lighter, "%"),
        of_cut(0, "without disturbed seconds"),
        of_cut(1, "with all seconds"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    fn row(utilisation: f64, error: Option<f64>, used_for_fit: bool, inside: bool) -> Row {
        Row {
            utilisation,
            measured: MeasuredValue { value: 0.9, half_width: Some(0.002) },
            concertina_error_points: error,
            used_for_fit,
            expected: error.map(|_| Expected { inside }),
        }
    }

    const CONFIG: Config = Config {
        seeds: Vec::new(),
        share: 0.1,
        mean_ms: 10.0,
        utilisation_max: 0.8,
        error_points: 3.0,
        coverage: 0.9,
    };

    #[test]
    fn only_held_out_rows_up_to_the_utilisation_count() {
        let mut rows = vec![row(0.5, Some(-2.0), false, true); 60];
        rows.push(row(0.6, Some(9.0), true, false));
        rows.push(row(0.85, Some(9.0), false, false));
        let claims = judge(&CONFIG, &rows, &[]);
        assert_eq!((claims[0].value, claims[0].samples), (2.0, 60));
        assert_eq!(claims[1].samples, 61);
        let verdict = |claim: &Claim| claim.clone().judged().verdict;
        assert_eq!(verdict(&claims[0]), Some(Verdict::Holds));
        assert_eq!(verdict(&claims[1]), Some(Verdict::Holds));
        assert_eq!(verdict(&claims[3]), None);
        // A load that is unstable by the model is missed by all that was measured.
        rows.push(row(0.7, None, false, false));
        let claims = judge(&CONFIG, &rows, &[]);
        assert_eq!((claims[0].value, verdict(&claims[0])), (90.0, Some(Verdict::Fails)));
    }

    #[test]
    fn the_cut_is_judged_where_it_cut() {
        let cut = |kept: f64, rate: f64, error: f64| Cut {
            seed: 1,
            offered_per_s: 100.0,
            used_for_fit: false,
            seconds: [kept, 7.0],
            rate_per_s: [rate, 100.0],
            error_points: [Some(error), Some(2.0)],
        };
        let claims =
            judge(&CONFIG, &[], &[cut(4.0, 99.0, 3.0), cut(4.0, 99.0, -3.0), cut(7.0, 50.0, 3.0)]);
        assert!((claims[2].value + 1.0).abs() < 1e-9 && claims[2].samples == 2, "{:?}", claims[2]);
        assert_eq!((claims[3].value, claims[4].value), (3.0, 2.0));
    }
}
