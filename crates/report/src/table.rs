//! The tables of comparisons, models and predictions.

use std::fmt::Write;

use model::laws::Check;
use model::storage::Limit;
use model::{ClusterLimits, Limits, Model, POINTS_MAX, Parameter, Trust, TrustEnd};

use super::cluster::ClusterComparison;
use super::compare::{Comparison, NamedParameter, Row, parameters, warnings_of};
use super::grid::{Grid, printable};
use super::objective::{digits, time};
use super::steps::short_name;

/// What the marks of a comparison mean.
pub const MARKS: &str = "fit: the model was fitted to this step; the others were held out. \
     !: past the confidence limit. >: past every fitted load. ?: past the trusted load.\n\
     Errors in points (hundredths): prediction minus measurement.";

/// A share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// A share in percent, to a tenth.
pub fn tenths(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// A value with its interval, all in percent.
fn percent_interval(p: &Parameter) -> String {
    format!("{} [{}, {}]", percent(p.value), percent(p.low), percent(p.high))
}

/// An error in points, with its sign.
pub fn points(error: Option<f64>) -> String {
    // + 0.0 turns a rounded −0 into 0.
    let round = |e: f64| (e * 100.0).round() / 100.0 + 0.0;
    error.map_or("–".to_owned(), |e| format!("{:+.2}", round(e)).replace('-', "−"))
}

fn marks(row: &Row) -> String {
    let mut marks = Vec::new();
    if row.used_for_fit {
        marks.push("fit");
    }
    if row.beyond_limit {
        marks.push("!");
    }
    if row.beyond_fitted && !row.used_for_fit {
        marks.push(">");
    }
    // A fitted step is past it where the model misses what it was fitted to.
    if row.beyond_trust {
        marks.push("?");
    }
    marks.join(" ")
}

/// Prediction beside measurement: rate · share within t measured · Spotify model · ours · errors.
pub fn comparison_grid(comparison: &Comparison) -> Grid {
    rows_grid(&comparison.rows)
}

/// Rows of any comparison.
pub fn rows_grid(rows: &[Row]) -> Grid {
    let mut grid = Grid::new(
        "rrrrrrrrl",
        &[
            "rate/s",
            "busy %",
            "within",
            "measured %",
            "Spotify %",
            "Concertina % [95 %]",
            "err. Spotify",
            "err. Concertina",
            "",
        ],
    );
    let mut last = "";
    for row in rows {
        let first = last != row.step;
        last = &row.step;
        let once = |text: String| if first { text } else { String::new() };
        let half = row.measured.half_width.map_or("?".to_owned(), |h| format!("{:.2}", h * 100.0));
        grid.row([
            once(digits(row.rate, 4)),
            once(tenths(row.utilisation)),
            time(row.within_s),
            format!("{} ± {half}", percent(row.measured.value)),
            row.spotify.as_ref().map_or("unstable".to_owned(), |p| percent(p.value)),
            row.concertina.as_ref().map_or("unstable".to_owned(), percent_interval),
            points(row.spotify_error_points),
            points(row.concertina_error_points),
            marks(row),
        ]);
    }
    grid
}

/// The whole comparison as text: laboratory note, table, limits, objectives, warnings.
pub fn table(comparison: &Comparison) -> String {
    let mut out = String::new();
    for note in &comparison.laboratory {
        let _ = writeln!(out, "LABORATORY: {}", printable(note));
    }
    if !comparison.laboratory.is_empty() {
        out.push('\n');
    }
    out += &comparison_grid(comparison).text();
    let _ = writeln!(out, "{MARKS}\n");
    out += &limits_text(&comparison.limits);
    out += &trust_text(&comparison.trust);
    for largest in &comparison.largest_rates {
        let _ = writeln!(out, "{}", largest.statement);
    }
    out += &worst_text(comparison);
    out += &warnings_text(&comparison.warnings);
    out
}

/// The comparison of a cluster as text: rows, what each node did, limits, warnings.
pub fn cluster_table(comparison: &ClusterComparison) -> String {
    let mut out = String::new();
    for note in &comparison.laboratory {
        let _ = writeln!(out, "LABORATORY: {}", printable(note));
    }
    out += &rows_grid(&comparison.rows).text();
    let _ = writeln!(out, "{MARKS}\n");
    let head = ["rate/s", "node", "share %", "busy %", "model", "memory %", "model"];
    let mut grid = Grid::new("rlrrrrr", &head);
    for step in &comparison.steps {
        for node in &step.nodes {
            let all = step.prediction.iter().flat_map(|p| &p.nodes);
            let predicted = all.into_iter().find(|p| p.name == node.name);
            let or_none = |value: Option<f64>| value.map_or("–".to_owned(), tenths);
            grid.row([
                digits(step.measured.rate, 4),
                node.name.clone(),
                percent(node.share),
                tenths(node.utilisation),
                or_none(predicted.map(|p| p.utilisation_mean)),
                tenths(node.hit_ratio),
                or_none(predicted.map(|p| p.hit_ratio)),
            ]);
        }
    }
    out += &grid.text();
    out += &cluster_limits_text(&comparison.limits);
    out += &delay_text(&comparison.delay);
    out += &warnings_text(&comparison.warnings);
    out
}

/// δ in words.
pub fn delay_text(delay: &Parameter) -> String {
    let [value, low, high] = [delay.value, delay.low, delay.high].map(time);
    format!("Gateway and network add {value} [{low}, {high}] to every response.\n")
}

/// The limits of a cluster in words.
pub fn cluster_limits_text(limits: &ClusterLimits) -> String {
    format!(
        "Confidence limit: {} requests/s with these shares, {} if only expected shares were known (balls \
         into bins); by the Spotify model {}; saturation {}. Trusted up to {}: the nodes' intervals and \
         their errors on held-out loads.\n",
        digits(limits.placed, 4),
        digits(limits.unplaced, 4),
        digits(limits.published, 4),
        digits(limits.saturation, 4),
        digits(limits.trusted, 4)
    )
}

/// The largest errors on held-out steps.
pub fn worst_text(comparison: &Comparison) -> String {
    let held = |row: &Row| !row.used_for_fit;
    let within = comparison.worst_error(|row| held(row) && !row.beyond_limit);
    let all = comparison.worst_error(held);
    let spotify = comparison.rows.iter().filter(|row| held(row));
    let spotify = spotify.filter_map(|r| r.spotify_error_points).map(f64::abs).reduce(f64::max);
    let mut out = String::new();
    if let Some(worst) = within {
        let _ =
            writeln!(out, "Largest error on held-out loads within the limit: {worst:.2} points.");
    }
    if let Some(worst) = all {
        // An error that is not a number is not a small one.
        let unstable = comparison.rows.iter().filter(|r| held(r) && r.spotify.is_none()).count();
        let unstable = match unstable {
            0 => String::new(),
            n => format!(", and unstable for {n} of the shares"),
        };
        let spotify =
            spotify.map_or(String::new(), |s| format!(" (Spotify model: {s:.2}{unstable})"));
        let _ = writeln!(out, "Largest error on all held-out loads: {worst:.2} points{spotify}.");
    }
    out
}

/// What a law came to, in cells.
fn law_cells(check: &Check) -> [String; 8] {
    let side = |value: f64| match check.law.unit() {
        "s" => time(value),
        "1/s" => format!("{} /s", digits(value, 5)),
        _ => digits(value, 4),
    };
    let percent = |value: f64| format!("{value:.2} %");
    [
        format!("{}, {}", check.law.name(), check.law.formula()),
        check.queue.clone(),
        side(check.measured),
        side(check.expected),
        points(Some(check.deviation_percent)) + " %",
        check.half_width_percent.map_or("?".to_owned(), percent),
        percent(check.tolerance_percent),
        check.verdict.as_str().to_owned(),
    ]
}

const LAW_HEAD: [&str; 9] =
    ["step", "law", "queue", "measured", "expected", "deviation", "± (95 %)", "tolerance", ""];

/// The laws of one step.
pub fn laws_grid<'a>(checks: impl Iterator<Item = &'a Check>) -> Grid {
    let mut grid = Grid::new("llrrrrrl", &LAW_HEAD[1..]);
    checks.for_each(|check| grid.row(law_cells(check)));
    grid
}

/// The laws of several steps, each with its step's name.
pub fn laws_of_steps_grid<'a>(steps: impl Iterator<Item = (&'a str, &'a [Check])>) -> Grid {
    let mut grid = Grid::new("lllrrrrrl", &LAW_HEAD);
    for (step, checks) in steps {
        checks.iter().for_each(|c| grid.row([step.to_owned()].into_iter().chain(law_cells(c))));
    }
    grid
}

/// A load of one server, on `servers` of them, with its 95 % interval.
pub fn rate_text(rate: &Parameter, servers: f64) -> String {
    let shown = |x: f64| match x.is_finite() {
        true => digits(x * servers, 4),
        false => "∞".to_owned(),
    };
    match rate.value.is_finite() {
        false => "none (memory answers everything)".to_owned(),
        true if rate.low == rate.high => format!("{} requests/s", shown(rate.value)),
        true => {
            format!("{} [{}, {}] requests/s", shown(rate.value), shown(rate.low), shown(rate.high))
        }
    }
}

/// The confidence limits in words.
pub fn limits_text(limits: &Limits) -> String {
    format!(
        "Confidence limit: {} (mean number at a device is 1); by the Spotify model {}; saturation {}{}.\n",
        rate_text(&limits.mg1, 1.0),
        rate_text(&limits.spotify_single, 1.0),
        rate_text(&limits.saturation, 1.0),
        match limits.breaks_first {
            Some(first) if first != Limit::Devices => format!(", by the {}", first.as_str()),
            _ => String::new(),
        }
    )
}

/// Up to which load a model is trusted, and why not further.
pub fn trust_text(trust: &Trust) -> String {
    let why = match trust.end {
        TrustEnd::NoReplicates => {
            return "Trusted at no load: the model has no replicates, so its interval is not known.\n"
                .to_owned();
        }
        TrustEnd::Unmeasured => "no larger load was fitted or held out".to_owned(),
        TrustEnd::Error | TrustEnd::Misfit => format!("error reaches {POINTS_MAX} points"),
    };
    let misfit = trust.misfit_points.filter(|_| trust.end == TrustEnd::Misfit);
    let bias = match (misfit, trust.bias_points) {
        (Some(points), _) => {
            format!(" + {points:.2} of MISFIT: the model misses loads that it was fitted to")
        }
        (None, Some(points)) => format!(" + {points:.2} of bias on held-out loads"),
        (None, None) => {
            "; the bias is NOT KNOWN, for no loads were held out (`concertina fit --hold-out`)"
                .to_owned()
        }
    };
    format!(
        "Trusted up to {} requests/s of a server ({why}): {:.2} points of interval{bias}.\n",
        digits(trust.limit, 4),
        trust.half_width_points
    )
}

/// Warnings, a line each.
pub fn warnings_text(warnings: &[String]) -> String {
    warnings.iter().map(|w| format!("Warning: {}\n", printable(w))).collect()
}

/// A number of the model in the unit that suits it.
fn value_in_unit(value: f64, unit: &str) -> String {
    match unit {
        // Below a nanosecond is what arithmetic leaves of 0.
        "s" if value.abs() < 1e-9 => "0 ms".to_owned(),
        "s" if value.abs() < 3600.0 => time(value),
        "1" => digits(value, 4),
        "1/s" => format!("{} /s", digits(value, 4)),
        other => format!("{} {other}", digits(value, 4)),
    }
}

/// α is a share for each request/s, though its unit is a second.
fn parameter_cells(named: &NamedParameter) -> [String; 4] {
    let p = &named.parameter;
    let shown = |value: f64| match named.name.starts_with('α') {
        true if value.abs() < 1e-15 => "0 s".to_owned(),
        true => format!("{value:.2e} s").replace('-', "−"),
        false => value_in_unit(value, &p.unit),
    };
    let interval = match p.low == p.high {
        true => "–".to_owned(),
        false => format!("[{}, {}]", shown(p.low), shown(p.high)),
    };
    [named.name.clone(), shown(p.value), interval, named.meaning.clone()]
}

/// The parameters with their intervals.
pub fn parameters_grid(named: &[NamedParameter]) -> Grid {
    let mut grid = Grid::new("lrrl", &["parameter", "value", "95 % interval", "meaning"]);
    for n in named {
        grid.row(parameter_cells(n));
    }
    grid
}

/// How well the model fits the steps that it was fitted to.
pub fn goodness_grid(model: &Model) -> Grid {
    let mut grid = Grid::new(
        "lrrrrrrrrrr",
        &[
            "fitted step",
            "rate/s",
            "reads",
            "busy %",
            "model",
            "number at device",
            "model",
            "mean response",
            "model",
            "KS",
            "dispersion",
        ],
    );
    for step in &model.fitted {
        grid.row([
            short_name(&step.name).to_owned(),
            digits(step.rate, 4),
            digits(step.requests as f64, 9),
            tenths(step.utilisation),
            tenths(step.utilisation_predicted),
            digits(step.queue_length, 3),
            digits(step.queue_length_predicted, 3),
            time(step.response_mean),
            time(step.response_mean_predicted),
            format!("{:.4}", step.ks_distance),
            digits(step.dispersion, 3),
        ]);
    }
    grid
}

/// What the model was wrong by on loads that were held out of its fit.
pub fn held_out_grid(model: &Model) -> Grid {
    let head = ["held-out step", "rate/s", "within", "error", "measured ±"];
    let mut grid = Grid::new("lrrrr", &head);
    for held in &model.held_out {
        grid.row([
            short_name(&held.name).to_owned(),
            digits(held.rate, 4),
            time(held.within_s),
            points(Some(held.error_points)),
            held.half_width_points.map_or("?".to_owned(), |half| format!("{half:.2}")),
        ]);
    }
    grid
}

/// A fitted model as text: what `concertina fit` prints.
pub fn model_text(model: &Model) -> String {
    let mut out = String::new();
    if let Some(note) = &model.about.laboratory {
        let _ = writeln!(out, "LABORATORY: {}\n", printable(note));
    }
    out += &parameters_grid(&parameters(model)).text();
    if !model.held_out.is_empty() {
        out += "\nErrors on held-out loads, in points: prediction minus measurement\n";
        out += &held_out_grid(model).text();
    }
    out += "\nGoodness of fit (KS: largest difference between measured and predicted CDF)\n";
    out += &goodness_grid(model).text();
    out.push('\n');
    match model.limits() {
        Ok(limits) => out += &limits_text(&limits),
        Err(error) => out += &format!("No limits: {error}\n"),
    }
    match model.trust() {
        Ok(trust) => out += &trust_text(&trust),
        Err(error) => out += &format!("Trusted at no load: {error}\n"),
    }
    out += &warnings_text(&warnings_of(model));
    out
}
