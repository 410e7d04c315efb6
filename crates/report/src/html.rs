//! The report as one HTML file without external resources.
//!
//! Every text that comes from a file (names, notes, warnings, configuration) is escaped, and the
//! page's content security policy forbids loading anything, so that a hostile run folder can at
//! worst make an ugly report.

use std::fmt::Write;

use super::compare::{Comparison, RunInfo};
use super::embedded::{self, Embedded};
use super::figures;
use super::grid::{Grid, escape};
use super::objective::{digits, time};
use super::state_rates;
use super::svg::{COLOURS, Plot, STYLE};
use super::table;
use super::verdict::Verdict;

/// The parts of a report besides its comparison.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// What has controls; without it the report has no script.
    pub embedded: Option<Embedded>,
    /// Its title.
    pub title: String,
    /// Commands that reproduce the report, one on each line.
    pub commands: Vec<String>,
}

const CSS: &str = "\
*{box-sizing:border-box}html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 18px 60px}
h1{font-size:1.6rem;line-height:1.2;margin:.4em 0}h2{font-size:1.2rem;margin:2em 0 .5em;border-bottom:1px solid var(--grid);padding-bottom:.2em}
p,li{max-width:76ch}p.lead{font-size:1.05rem}.soft{color:var(--soft);font-size:.9rem}
.note{border-left:4px solid;padding:.5em .9em;margin:1em 0;border-radius:0 4px 4px 0}
.note.lab{border-color:var(--lab);background:var(--labbg);color:var(--lab)}.note.warn{border-color:var(--warn);background:var(--warnbg);color:var(--warn)}
.note ul{margin:.3em 0;padding-left:1.2em}
.plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,340px),1fr));gap:14px}
.plots figure{margin:0;background:var(--paper);border:1px solid var(--grid);border-radius:6px;padding:6px}
.scroll{overflow-x:auto;margin:.6em 0}table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{padding:.28em .7em;text-align:left;white-space:nowrap;border-bottom:1px solid var(--grid)}th{background:var(--panel);vertical-align:bottom}
td.n,th.n{text-align:right}tr.first td{border-top:2px solid var(--axis)}tr.untrusted td{background:var(--untrusted)}
td:last-child{white-space:normal;min-width:4.5em}
nav{font-size:.9rem}nav a{display:inline-block;margin-right:1em;color:var(--ours)}
pre{background:var(--panel);padding:.8em;overflow-x:auto;font-size:.82rem;border-radius:4px}code{font-size:.9em}
summary{cursor:pointer}
dl.verdict{display:grid;grid-template-columns:max-content 1fr;gap:.35em 1.1em;margin:1em 0;padding:.9em 1.1em;background:var(--panel);border-left:4px solid var(--ours);border-radius:0 4px 4px 0}
dl.verdict dt{font-weight:600}dl.verdict dd{margin:0;max-width:76ch;overflow-wrap:anywhere}
@media (max-width:520px){main{padding:12px 12px 40px}dl.verdict{grid-template-columns:1fr;gap:0}dl.verdict dd{margin-bottom:.6em}pre.opening{white-space:pre-wrap}th,td{padding:.25em .5em}}
@media print{body{font-size:10.5pt}main{max-width:none;padding:0}nav{display:none}.plots{grid-template-columns:1fr 1fr}
.plots figure,tr,.note{break-inside:avoid}h2{break-after:avoid}.scroll{overflow:visible}th,td{white-space:normal;padding:.2em .4em}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
";

/// The head of a page and its title.
pub(crate) fn head(page: &Page) -> String {
    let title = escape(&page.title);
    let embedded = page.embedded.as_ref();
    let (policy, style) = (embedded::policy(embedded), embedded::style(embedded));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"generator\" content=\"{GENERATOR}\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{COLOURS}{CSS}{STYLE}{style}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n"
    )
}

/// Renders a comparison as an HTML page.
pub fn html(comparison: &Comparison, page: &Page) -> String {
    let embedded = page.embedded.as_ref();
    let mut out = head(page);
    laboratory(&comparison.laboratory, &mut out);
    summary(comparison, &mut out);
    let controls = match embedded.map(Embedded::has_model) {
        Some(true) => "<a href=\"#what-if\">What if</a> <a href=\"#overlay\">Two runs</a>",
        Some(false) => "<a href=\"#overlay\">Two runs</a>",
        None => "",
    };
    let _ = writeln!(
        out,
        "<nav>{controls}<a href=\"#table\">Prediction and measurement</a><a href=\"#percentiles\">Percentiles</a><a href=\"#rate\">Against load</a>\
         <a href=\"#error\">Errors</a><a href=\"#q\">Memory</a><a href=\"#cdf\">Distributions</a>\
         <a href=\"#model\">Model</a><a href=\"#trust\">Can it be trusted?</a><a href=\"#runs\">Runs</a></nav>",
    );
    results(comparison, &mut out);
    out.push_str(&embedded::sections(embedded));
    model(comparison, &mut out);
    trust(comparison, &mut out);
    runs(comparison, page, &mut out);
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// Identifies a file as an earlier report, which may be overwritten.
pub const GENERATOR: &str = "concertina report";

/// Whether a text is a page that [`html()`] made.
pub fn is_page(text: &str) -> bool {
    text.contains(&format!("<meta name=\"generator\" content=\"{GENERATOR}\">"))
}

pub(crate) fn laboratory(notes: &[String], out: &mut String) {
    for note in notes {
        let _ = writeln!(
            out,
            "<div class=\"note lab\"><strong>Emulated devices, not real hardware.</strong> {}</div>",
            escape(note)
        );
    }
}

/// A verdict as a list of names and sentences.
pub(crate) fn verdict_html(verdict: &Verdict) -> String {
    let mut out = "<dl class=\"verdict\">\n".to_owned();
    for (name, text) in verdict.lines() {
        let _ = writeln!(out, "<dt>{name}</dt><dd>{}</dd>", escape(&text));
    }
    out + "</dl>\n"
}

fn summary(comparison: &Comparison, out: &mut String) {
    if let Ok(verdict) = Verdict::new(comparison) {
        *out += &verdict_html(&verdict);
    }
    let opening = table::opening_text(comparison);
    if !opening.is_empty() {
        let _ = writeln!(out, "<pre class=\"opening\">{}</pre>", escape(&opening));
    }
    out.push_str("<p class=\"soft\">");
    for line in table::limits_text(&comparison.limits).lines() {
        let _ = writeln!(out, "{}<br>", escape(line));
    }
    for line in table::worst_text(comparison).lines() {
        let _ = writeln!(out, "{}<br>", escape(line));
    }
    out.push_str("</p>\n");
    for step in &comparison.steps {
        if let Some(why) = &step.unstable {
            let _ = writeln!(
                out,
                "<p>No prediction for step {}: {}</p>",
                escape(&step.name),
                escape(why)
            );
        }
    }
}

pub(crate) fn warnings(warnings: &[String], out: &mut String) {
    if warnings.is_empty() {
        return;
    }
    let count = warnings.len();
    let _ = writeln!(out, "<details class=\"note warn\"><summary>Warnings ({count})</summary><ul>");
    for warning in warnings {
        let _ = writeln!(out, "<li>{}</li>", escape(warning));
    }
    out.push_str("</ul></details>\n");
}

pub(crate) fn plots(plots: &[Plot], out: &mut String) {
    out.push_str("<div class=\"plots\">\n");
    for plot in plots {
        let _ = writeln!(out, "<figure>{}</figure>", plot.svg());
    }
    out.push_str("</div>\n");
}

pub(crate) fn heading(id: &str, text: &str, below: &str, out: &mut String) {
    let _ = writeln!(out, "<h2 id=\"{id}\">{text}</h2>\n<p class=\"soft\">{below}</p>");
}

fn results(comparison: &Comparison, out: &mut String) {
    heading("table", "Prediction beside measurement", &escape(table::MARKS), out);
    let class_of = |i: usize| {
        let row = &comparison.rows[i];
        let first = i == 0 || comparison.rows[i - 1].step != row.step;
        match (first, row.beyond_trust) {
            (true, true) => "first untrusted",
            (true, false) => "first",
            (false, true) => "untrusted",
            (false, false) => "",
        }
    };
    out.push_str(&table::comparison_grid(comparison).html(class_of));
    heading(
        "percentiles",
        "Percentiles",
        "The time within which 50, 90 and 99 % of the answered reads were answered; the prediction is for all reads.",
        out,
    );
    out.push_str(&table::percentiles_of(comparison).html(|_| ""));
    heading(
        "rate",
        "Fraction answered in time, against load",
        "Points are measured, with their 95 % intervals: squares were fitted, rings were held out. \
         Lines are the models, the band the 95 % interval of ours. Shaded: past \
         the loads at which the model was checked, where predictions are extrapolated.",
        out,
    );
    plots(&figures::within_against_rate(comparison), out);
    heading(
        "error",
        "Error against utilisation",
        "Prediction minus measurement; the bars are the measurement's own 95 % interval, so a point \
         whose bar meets 0 is not known to be wrong. Shaded: past the checked loads.",
        out,
    );
    plots(&figures::errors(comparison), out);
    heading(
        "q",
        "Share answered from memory",
        "The Spotify model defines q as the share answered in less than 1 ms, as its paper does; ours as \
         the share that the node reports as answered from memory.",
        out,
    );
    plots(&[figures::hit_ratio(comparison)], out);
    heading(
        "cdf",
        "Distribution of the response time",
        "Fraction answered within a time, at each measured load; the time axis is logarithmic. A plot is \
         shaded if its load is past the checked ones.",
        out,
    );
    plots(&figures::cdfs(comparison), out);
}

pub(crate) fn model(comparison: &Comparison, out: &mut String) {
    heading(
        "model",
        "The model",
        "Each parameter with its 95 % interval, computed by refitting resampled windows.",
        out,
    );
    out.push_str(&table::parameters_grid(&comparison.parameters).html(|_| ""));
    if let Some(plot) = state_rates::plot(&comparison.model) {
        out.push_str(
            "<p class=\"soft\">Why this hypothesis: how fast requests leave while n are inside. One server's \
             curve is flat from one request on, that of m servers rises up to m. Lines are the works of \
             each hypothesis in another order, served by it.</p>\n",
        );
        plots(&[plot], out);
    }
    out.push_str(
        "<p class=\"soft\">Goodness of fit on the fitted steps. KS is the largest \
         difference between the measured and the model's distribution; dispersion is 1 for Poisson \
         arrivals.</p>\n",
    );
    out.push_str(&table::goodness_grid(&comparison.model).html(|_| ""));
}

/// The section with evidence for or against the measurements.
fn trust(comparison: &Comparison, out: &mut String) {
    heading(
        "trust",
        "Can the measurements be trusted?",
        "Operational laws hold for any steady system (Little’s L = X·W for any queue, \
         R = N/X − Z for any closed loop): a deviation means a fault of the measurement, or that the load \
         was not steady.",
        out,
    );
    warnings(&comparison.warnings, out);
    let steps = comparison.steps.iter().map(|s| (s.name.as_str(), &*s.measured.laws));
    let laws = table::laws_of_steps_grid(steps);
    out.push_str(&laws.html(|_| ""));
    out.push_str(&measured_grid(comparison).html(|_| ""));
    let mut shown = vec![figures::lateness(comparison)];
    shown.extend(figures::hosts(comparison));
    plots(&shown, out);
    out.push_str(&generator_grid(comparison).html(|_| ""));
}

fn measured_grid(comparison: &Comparison) -> Grid {
    let mut grid = Grid::new(
        "lrrrrrrrl",
        &["step", "seconds", "reads", "rate/s", "done/s", "mean", "p99", "errors", "answered by"],
    );
    for step in &comparison.steps {
        let m = &step.measured;
        let outcomes =
            m.outcomes.iter().map(|(o, s)| format!("{} {:.2} %", o.replace('_', " "), s * 100.0));
        let half = m.response_mean.half_width.map_or(String::new(), |h| format!(" ± {}", time(h)));
        grid.row([
            step.name.clone(),
            digits(m.seconds, 4),
            digits(m.requests as f64, 12),
            digits(m.rate, 5),
            digits(m.throughput, 5),
            time(m.response_mean.value) + &half,
            time(m.response_p99),
            m.errors.to_string(),
            outcomes.collect::<Vec<_>>().join(", "),
        ]);
    }
    grid
}

fn generator_grid(comparison: &Comparison) -> Grid {
    let mut grid = Grid::new(
        "lrrrrrrl",
        &[
            "generator in step",
            "late: mean",
            "99 %",
            "latest",
            "dropped",
            "outstanding",
            "core %",
            "complaints",
        ],
    );
    for step in &comparison.steps {
        let g = &step.step.generator;
        let us = |x: f64| format!("{} µs", digits(x, 3));
        let complaints = match g.complaints.is_empty() {
            true => "none".to_owned(),
            false => g.complaints.join("; "),
        };
        grid.row([
            step.name.clone(),
            us(g.lateness_us_mean),
            us(g.lateness_us_p99),
            us(g.lateness_us_max),
            g.dropped.to_string(),
            g.outstanding_max.to_string(),
            digits(g.cpu * 100.0, 3),
            complaints,
        ]);
    }
    grid
}

/// The commands that reproduce a page.
pub(crate) fn commands(page: &Page, out: &mut String) {
    if !page.commands.is_empty() {
        let commands = escape(&page.commands.join("\n"));
        let _ = writeln!(out, "<p>To reproduce it:</p>\n<pre><code>{commands}</code></pre>");
    }
}

fn runs(comparison: &Comparison, page: &Page, out: &mut String) {
    out.push_str("<h2 id=\"runs\">Runs and machines</h2>\n");
    let mut grid = Grid::new(
        "llllrrlll",
        &[
            "run",
            "kind",
            "started",
            "version",
            "cores",
            "memory",
            "processor",
            "kernel",
            "kept awake",
        ],
    );
    for RunInfo { name, run } in &comparison.runs {
        grid.row([
            name.clone(),
            run.kind.clone(),
            date(run.start_unix_us),
            run.version.clone(),
            run.machine.cores.to_string(),
            format!("{:.1} GiB", run.machine.memory_bytes as f64 / f64::from(1 << 30)),
            run.machine.processor.clone(),
            run.machine.kernel.clone(),
            match run.machine.awake {
                Some(true) => "yes".to_owned(),
                Some(false) => "no".to_owned(),
                None => "unknown".to_owned(),
            },
        ]);
    }
    out.push_str(&grid.html(|_| ""));
    commands(page, out);
    for RunInfo { name, run } in &comparison.runs {
        let asked = toml::to_string(&run.asked).unwrap_or_default();
        if !asked.trim().is_empty() {
            let _ = writeln!(
                out,
                "<details><summary>Configuration of {}</summary><pre><code>{}</code></pre></details>",
                escape(name),
                escape(&asked)
            );
        }
    }
    let about = &comparison.model.about;
    let _ = writeln!(
        out,
        "<p class=\"soft\">Model “{}”, fitted from {}. Formulas and their sources: \
         <code>docs/models.md</code>; how to read this page: <code>docs/reports.md</code>. Written by \
         concertina {}.</p>",
        escape(&about.title),
        escape(&about.runs.join(", ")),
        env!("CARGO_PKG_VERSION")
    );
}

/// Formats a date and time in UTC.
fn date(unix_us: u64) -> String {
    // The year 9999 is the last that the format can express.
    let seconds = unix_us / 1_000_000;
    if seconds >= 253_402_300_799 {
        return format!("{unix_us} µs");
    }
    httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}
