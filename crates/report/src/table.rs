//! The text tables of comparisons, models and predictions.

use std::fmt::Write;

use model::laws::Check;
use model::storage::Limit;
use model::{ClusterLimits, Limits, Model, Parameter};

use super::cluster::ClusterComparison;
use super::compare::{Comparison, NamedParameter, Row, parameters, warnings_of};
use super::coverage::coverage;
use super::grid::{Grid, printable};
use super::objective::{digits, time};
use super::percentiles::percentiles_grid;
use super::steps::short_name;
use super::verdict::Verdict;

pub use super::checked::{MARK, MARK_TEXT, mark, past_limit_text, trust_text};

/// The legend of the marks in a comparison.
pub(crate) const MARKS: &str = "fit: the model was fitted to this step; the others were held out. \
     ?: past the checked loads. *: the generator or its machine disturbed the step.\n\
     Errors in points (hundredths): prediction minus measurement.";

/// Formats a share in percent.
pub fn percent(share: f64) -> String {
    format!("{:.2}", share * 100.0)
}

/// Formats a share in percent, with one decimal.
pub fn tenths(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

/// Formats a value with its interval, all in percent.
fn percent_interval(p: &Parameter) -> String {
    with_interval(p, percent)
}

/// Formats a value with its 95 % interval, and alone where it has none, as by numbers that were stated.
pub fn with_interval(p: &Parameter, shown: impl Fn(f64) -> String) -> String {
    match has_interval(p) {
        true => format!("{} [{}, {}]", shown(p.value), shown(p.low), shown(p.high)),
        false => shown(p.value),
    }
}

fn has_interval(p: &Parameter) -> bool {
    p.low < p.high
}

/// Whether one of these values has a 95 % interval.
pub fn has_intervals<'a>(values: impl IntoIterator<Item = &'a Parameter>) -> bool {
    values.into_iter().any(has_interval)
}

/// Why none of these values has an interval; nothing if one has, or there are none.
pub fn no_interval_text<'a>(values: impl IntoIterator<Item = &'a Parameter>) -> &'static str {
    let mut values = values.into_iter().peekable();
    match values.peek().is_some() && !has_intervals(values) {
        true => {
            "No intervals: the model's numbers are stated, and nothing says how uncertain they are.\n"
        }
        false => "",
    }
}

/// Formats an error in points, with its sign.
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
    // A fitted step can be past the checked loads: where the model misses a step it was fitted to.
    if row.beyond_trust {
        marks.push(MARK);
    }
    if !row.marks.is_empty() {
        marks.push("*");
    }
    marks.join(" ")
}

/// Prediction beside measurement: rate, share within t measured, Spotify model, Concertina's model,
/// and the errors of both.
pub(crate) fn comparison_grid(comparison: &Comparison) -> Grid {
    rows_grid(&comparison.rows)
}

/// The table of any comparison's rows.
pub(crate) fn rows_grid(rows: &[Row]) -> Grid {
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

/// The whole comparison as text: notes on emulation, table, limits, objectives, warnings.
pub fn table(comparison: &Comparison) -> String {
    let mut out = String::new();
    for note in &comparison.laboratory {
        let _ = writeln!(out, "EMULATED: {}", printable(note));
    }
    out += &Verdict::new(comparison).map_or(String::new(), |verdict| verdict.text());
    out.push('\n');
    out += &opening_text(comparison);
    out.push('\n');
    out += &comparison_grid(comparison).text();
    let _ = writeln!(out, "{MARKS}\n");
    out += &percentiles_of(comparison).text();
    out.push('\n');
    out += &limits_text(&comparison.limits);
    for largest in &comparison.largest_rates {
        let _ = writeln!(out, "{}", largest.statement);
    }
    out += &worst_text(comparison);
    out += &warnings_text(&grouped(&comparison.warnings, comparison.steps.len()));
    out
}

/// The percentiles of all steps.
pub(crate) fn percentiles_of(comparison: &Comparison) -> Grid {
    percentiles_grid(comparison.steps.iter().map(|s| (s.measured.rate, s.percentiles.as_slice())))
}

/// The result in three lines: a prediction, its measurement, and how often measurements fell inside their
/// intervals. The prediction is that of the largest held-out load, within the shortest time. Empty if no
/// load was held out.
pub fn opening_text(comparison: &Comparison) -> String {
    let held_out = comparison.rows.iter().filter(|row| !row.used_for_fit);
    let largest = held_out
        .filter(|row| row.expected.is_some())
        .max_by(|a, b| a.rate.total_cmp(&b.rate).then_with(|| b.within_s.total_cmp(&a.within_s)));
    let Some((row, predicted, expected)) =
        largest.and_then(|row| Some((row, row.concertina.as_ref()?, row.expected?)))
    else {
        return String::new();
    };
    let half = row.measured.half_width.map_or("?".to_owned(), percent);
    let (inside, judged) = coverage(&comparison.rows);
    format!(
        "Predicted  {} % within {} at {} requests/s, devices {} % busy (measured in 95 % of runs: \
         {} to {} %)\n\
         Measured   {} % ± {half}\n\
         Coverage   {inside} of {judged} held-out measurements fell inside their predicted 95 % interval\n",
        percent(predicted.value),
        time(row.within_s),
        digits(row.rate, 4),
        tenths(row.utilisation),
        percent(expected.low),
        percent(expected.high),
        percent(row.measured.value),
    )
}

/// The largest number of warnings that follow a table.
const WARNINGS_MAX: usize = 5;

/// Warnings that differ only in their step and figures as one, at most five in all.
pub fn grouped(warnings: &[String], steps: usize) -> Vec<String> {
    let mut groups: Vec<(String, &String, usize)> = Vec::new();
    for warning in warnings {
        let of_step = warning.strip_prefix("Step ").and_then(|rest| rest.split_once(": "));
        let text = of_step.map_or(warning.as_str(), |(_, text)| text);
        let mut shape: String =
            text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
        while shape.contains("00") {
            shape = shape.replace("00", "0");
        }
        shape = shape.replace("0.0", "0");
        match groups.iter_mut().find(|(known, ..)| *known == shape) {
            Some((.., count)) => *count += 1,
            None => groups.push((shape, warning, 1)),
        }
    }
    // What concerns most steps first.
    groups.sort_by_key(|(.., count)| std::cmp::Reverse(*count));
    let mut shown: Vec<String> = groups
        .iter()
        .map(|(_, first, count)| match count {
            1 => (*first).clone(),
            n if first.starts_with("Step ") => {
                format!("{n} of {steps} steps: as in {}", lower_first(first))
            }
            n => format!("{first} ({} more like it.)", n - 1),
        })
        .collect();
    if shown.len() > WARNINGS_MAX {
        let more = shown.split_off(WARNINGS_MAX - 1).len();
        shown.push(format!(
            "{more} more are in the output of --json and in the report, under \"Can it be trusted?\"."
        ));
    }
    shown
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_lowercase().chain(chars).collect())
}

/// The comparison of a cluster as text: rows, figures of each node, limits, warnings.
pub fn cluster_table(comparison: &ClusterComparison) -> String {
    let mut out = String::new();
    for note in &comparison.laboratory {
        let _ = writeln!(out, "EMULATED: {}", printable(note));
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

/// Describes the delay δ that gateway and network add.
pub fn delay_text(delay: &Parameter) -> String {
    let [value, low, high] = [delay.value, delay.low, delay.high].map(time);
    format!("Gateway and network add {value} [{low}, {high}] to every response.\n")
}

/// Describes the limits of a cluster.
pub fn cluster_limits_text(limits: &ClusterLimits) -> String {
    let trusted = digits(limits.trusted, 4);
    let checked = match (limits.compared, limits.trusted > 0.0) {
        (false, true) => format!(
            "Not checked: some node's numbers are stated, for loads up to {trusted} on the cluster, and no measured load was compared \
             with them"
        ),
        (_, true) => format!("Checked up to {trusted}"),
        (_, false) => "Checked at no load".to_owned(),
    };
    format!(
        "Confidence limit: {} requests/s with these shares, {} if only expected shares were known (balls \
         into bins); by the Spotify model {}; saturation {}. {checked}; larger loads are extrapolated \
         (marked ?).\n",
        digits(limits.placed, 4),
        digits(limits.unplaced, 4),
        digits(limits.published, 4),
        digits(limits.saturation, 4),
    )
}

/// Describes the largest errors on held-out steps.
pub(crate) fn worst_text(comparison: &Comparison) -> String {
    let held = |row: &Row| !row.used_for_fit;
    let within = comparison.worst_error(|row| held(row) && !row.beyond_trust);
    let all = comparison.worst_error(held);
    let spotify = comparison.rows.iter().filter(|row| held(row));
    let spotify = spotify.filter_map(|r| r.spotify_error_points).map(f64::abs).reduce(f64::max);
    let mut out = String::new();
    if let Some(worst) = within {
        let _ = writeln!(out, "Largest error on checked held-out loads: {worst:.2} points.");
    }
    if let Some(worst) = all {
        // An undefined error must not pass for a small one.
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

/// The cells of one law's check.
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

/// The checks of one step.
pub(crate) fn laws_grid<'a>(checks: impl Iterator<Item = &'a Check>) -> Grid {
    let mut grid = Grid::new("llrrrrrl", &LAW_HEAD[1..]);
    checks.for_each(|check| grid.row(law_cells(check)));
    grid
}

/// The checks of several steps, each row with its step's name.
pub(crate) fn laws_of_steps_grid<'a>(steps: impl Iterator<Item = (&'a str, &'a [Check])>) -> Grid {
    let mut grid = Grid::new("lllrrrrrl", &LAW_HEAD);
    for (step, checks) in steps {
        checks.iter().for_each(|c| grid.row([step.to_owned()].into_iter().chain(law_cells(c))));
    }
    grid
}

/// Formats a load of one server, multiplied by `servers`, with its 95 % interval.
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

/// Describes the confidence limits.
pub fn limits_text(limits: &Limits) -> String {
    format!(
        "Confidence limit: {} (mean number of requests at a device is 1); Spotify model: {}; saturation: {}{}.\n",
        rate_text(&limits.mg1, 1.0),
        rate_text(&limits.spotify_single, 1.0),
        rate_text(&limits.saturation, 1.0),
        match limits.breaks_first {
            Some(first) if first != Limit::Devices => format!(", by the {}", first.as_str()),
            _ => String::new(),
        }
    )
}

/// Formats warnings, one on each line.
pub fn warnings_text(warnings: &[String]) -> String {
    warnings.iter().map(|w| format!("Warning: {}\n", printable(w))).collect()
}

/// A number of reads in a queue that none has.
const NEVER: f64 = 1e8;

/// Formats a parameter of the model in a suitable unit.
fn value_in_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" => time(value),
        // No queue is as long: the fit found no such knee, and wrote a number that is never reached.
        "reads" if value >= NEVER => "none found".to_owned(),
        "1" => digits(value, 4),
        "1/s" => format!("{} /s", digits(value, 4)),
        other => format!("{} {other}", digits(value, 4)),
    }
}

/// The cells of one parameter. α is the share lost for each request/s, though its unit is the
/// second.
fn parameter_cells(named: &NamedParameter) -> [String; 4] {
    let p = &named.parameter;
    let shown = |value: f64| match named.name.starts_with('α') {
        true if value.abs() < 1e-15 => "0 s".to_owned(),
        true => format!("{} s", digits(value, 3)),
        false => value_in_unit(value, &p.unit),
    };
    let interval = match p.low == p.high {
        true => "–".to_owned(),
        false => format!("[{}, {}]", shown(p.low), shown(p.high)),
    };
    [named.name.clone(), shown(p.value), interval, named.meaning.clone()]
}

/// The table of parameters with their intervals.
pub(crate) fn parameters_grid(named: &[NamedParameter]) -> Grid {
    let mut grid = Grid::new("lrrl", &["parameter", "value", "95 % interval", "meaning"]);
    for n in named {
        grid.row(parameter_cells(n));
    }
    grid
}

/// The table of the goodness of fit on the fitted steps.
pub(crate) fn goodness_grid(model: &Model) -> Grid {
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

/// The table of the model's errors on loads that were held out of its fit.
pub(crate) fn held_out_grid(model: &Model) -> Grid {
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

/// A fitted model as text; the output of `concertina fit`.
pub fn model_text(model: &Model) -> String {
    let mut out = String::new();
    if let Some(note) = &model.about.laboratory {
        let _ = writeln!(out, "EMULATED: {}\n", printable(note));
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
        Err(error) => out += &format!("Not checked: {error}\n"),
    }
    out += &warnings_text(&grouped(&warnings_of(model), model.fitted.len()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_without_an_interval_stands_alone_and_says_why() {
        let known = Parameter::exact(0.25, "1");
        let fitted = Parameter { low: 0.2, high: 0.3, ..known.clone() };
        assert_eq!(with_interval(&known, percent), "25.00");
        assert_eq!(with_interval(&fitted, percent), "25.00 [20.00, 30.00]");
        assert!(no_interval_text([&known, &known]).starts_with("No intervals: the model's"));
        assert_eq!(no_interval_text([&known, &fitted]), "");
        assert_eq!(no_interval_text([]), "");
    }

    /// A cluster of stated numbers was said to be checked up to the largest load that somebody stated.
    #[test]
    fn a_cluster_of_stated_numbers_is_not_called_checked() {
        let limits = |compared, trusted| ClusterLimits {
            placed: 90.0,
            unplaced: 80.0,
            published: 70.0,
            trusted,
            compared,
            saturation: 100.0,
        };
        for (limits, words) in [
            (limits(true, 60.0), "saturation 100. Checked up to 60; larger"),
            (
                limits(false, 60.0),
                "Not checked: some node's numbers are stated, for loads up to 60 on",
            ),
            (limits(false, 0.0), "Checked at no load; larger"),
        ] {
            let text = cluster_limits_text(&limits);
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn at_most_five_warnings_follow() {
        let warning = |i: u8| format!("warning {}", char::from(b'a' + i));
        let many: Vec<String> = (0..7).map(warning).collect();
        let shown = grouped(&many, 3);
        assert_eq!(shown.len(), 5);
        assert!(shown[4].starts_with("3 more are in the output of --json"), "{shown:?}");
        assert_eq!(grouped(&many[..5], 3), many[..5]);
    }
}
