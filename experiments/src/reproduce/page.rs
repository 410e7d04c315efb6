//! The page: one HTML file without scripts, with the plots beside it.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use report::grid::escape;

use super::catalogue::{Catalogue, Chapter};
use super::compute::Row;
use super::measured::Measurement;
use super::reproduction::{ChapterCount, Count, Reproduction};
use crate::claims::{Claim, Verdict};

/// The style of the page: system fonts, light and dark.
const STYLE: &str = "\
*{box-sizing:border-box}html{color-scheme:light dark}
:root{--ink:#1b1f24;--soft:#57606a;--grid:#e3e6ea;--panel:#f5f7f9;--link:#0072b2;--good:#117a5a;--bad:#a13c00;--open:#6b5900}
@media (prefers-color-scheme:dark){:root{--ink:#e6e9ed;--soft:#9aa4af;--grid:#2a313a;--panel:#1a2027;--link:#56b4e9;--good:#2ec495;--bad:#f0a13c;--open:#d9c765}}
body{margin:0;font:16px/1.5 system-ui,sans-serif;color:var(--ink)}main{max-width:1080px;margin:0 auto;padding:20px 18px 60px}
h1{font-size:1.6rem}h2{font-size:1.3rem;margin-top:2.2em;border-bottom:1px solid var(--grid)}h3{font-size:1.05rem;margin:1.6em 0 .2em}
p{max-width:78ch;margin:.4em 0}.soft{color:var(--soft);font-size:.9rem}a{color:var(--link)}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.88rem;font-variant-numeric:tabular-nums;margin:.5em 0}
th,td{padding:.25em .7em;text-align:left;border-bottom:1px solid var(--grid);vertical-align:top}th{background:var(--panel)}td.n{text-align:right;white-space:nowrap}
.good{color:var(--good);font-weight:600}.bad{color:var(--bad);font-weight:600}.open{color:var(--open);font-weight:600}
code{font-size:.86em;overflow-wrap:anywhere}img{max-width:100%;height:auto}.plots{display:flex;flex-wrap:wrap;gap:12px}.plots img{max-width:480px;width:100%}
@media print{h3,tr{break-inside:avoid}}
";

/// What the page says of who made it: a page that says so is overwritten, and no other file.
const GENERATOR: &str = "experiments reproduce";

/// Makes the folder of the page, or takes one that has nothing else than an earlier page with its plots.
///
/// # Errors
/// If the folder holds anything else, or cannot be made.
pub fn claim_folder(out: &Path) -> anyhow::Result<()> {
    let shown = out.display();
    std::fs::create_dir_all(out).with_context(|| format!("cannot make the folder {shown}"))?;
    let earlier = std::fs::read_to_string(out.join("index.html")).unwrap_or_default();
    let is_ours = earlier.contains(&format!("<meta name=\"generator\" content=\"{GENERATOR}\">"));
    for entry in std::fs::read_dir(out).with_context(|| format!("cannot list {shown}"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        ensure!(
            is_ours && (name == "index.html" || name.ends_with(".svg")),
            "{shown} holds {name:?}, which no earlier run wrote there; name an empty or a new folder (--out)"
        );
    }
    Ok(())
}

/// The whole page.
pub fn page(catalogue: &Catalogue, counts: &[ChapterCount], bodies: &[String]) -> String {
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"generator\" content=\"{GENERATOR}\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src 'self'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Concertina: the sources reproduced</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>The sources reproduced</h1>\n\
         <p>Every figure and table of the five sources that can be computed or measured on one machine: what they print, what \
         Concertina computes or measured, the command, and why they differ. A measured claim <em>holds</em> if its whole 95 % \
         interval meets the goal, <em>fails</em> if all of it is outside, and is <em>not shown</em> otherwise.</p>\n\
         <div class=\"scroll\"><table>\n<thead><tr><th>source</th><th>computed: as printed</th><th>not</th>\
         <th>measured: holds</th><th>not shown</th><th>fails</th><th>absent</th></tr></thead>\n<tbody>\n"
    );
    for ChapterCount { title, count } in counts {
        let name = catalogue.chapters.iter().find(|chapter| chapter.title == *title);
        let Count { same, differ, hold, not_shown, fail, absent } = count;
        let _ = writeln!(
            out,
            "<tr><td><a href=\"#{}\">{}</a></td><td class=\"n\">{same}</td><td class=\"n\">{differ}</td>\
             <td class=\"n\">{hold}</td><td class=\"n\">{not_shown}</td><td class=\"n\">{fail}</td><td class=\"n\">{absent}</td></tr>",
            name.map_or(String::new(), |chapter| escape(&chapter.name)),
            escape(title)
        );
    }
    out.push_str("</tbody></table></div>\n");
    bodies.iter().for_each(|body| out.push_str(body));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

/// A chapter's part of the page. Its plots are written beside the page.
///
/// # Errors
/// If a plot cannot be read or written.
pub fn chapter(
    chapter: &Chapter,
    found: &[Reproduction<'_>],
    count: &Count,
    out: &Path,
) -> anyhow::Result<String> {
    let mut text = format!(
        "<h2 id=\"{}\">{}</h2>\n<p class=\"soft\">{}</p>\n<p>{count}.</p>\n",
        escape(&chapter.name),
        escape(&chapter.title),
        escape(&chapter.source)
    );
    for (at, one) in found.iter().enumerate() {
        let _ = write!(
            text,
            "<h3>{}</h3>\n<p>{}</p>\n",
            escape(&one.figure.name),
            escape(&one.figure.shows)
        );
        if let Some(reason) = &one.figure.absent {
            let _ = writeln!(text, "<p><span class=\"open\">Absent.</span> {}</p>", escape(reason));
        }
        number_table(&one.rows, &mut text);
        one.measurements.iter().for_each(|measurement| measurement_table(measurement, &mut text));
        if let Some(note) = &one.figure.note {
            let _ = writeln!(text, "<p>{}</p>", escape(note));
        }
        plots(one, &format!("{}-{}", chapter.name, at + 1), out, &mut text)?;
    }
    Ok(text)
}

fn number_table(rows: &[Row<'_>], text: &mut String) {
    if rows.is_empty() {
        return;
    }
    text.push_str(
        "<div class=\"scroll\"><table><thead><tr><th>computed</th><th>theirs</th><th>ours</th><th></th><th>command</th></tr></thead>\n<tbody>\n",
    );
    for row in rows {
        let (class, verdict) = match row.is_same() {
            true => ("good", "as printed"),
            false => ("bad", "differs"),
        };
        let _ = writeln!(
            text,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"{class}\">{verdict}</td>\
             <td><code>concertina {}</code></td></tr>",
            escape(&row.computed.what),
            digits(row.computed.theirs),
            digits(row.ours),
            escape(&row.computed.command)
        );
    }
    text.push_str("</tbody></table></div>\n");
}

fn measurement_table(measurement: &Measurement<'_>, text: &mut String) {
    let Measurement { measured, record, claims } = measurement;
    let name = record.file_name().map(|name| name.to_string_lossy().into_owned());
    let _ = write!(
        text,
        "<p>Theirs: {}.</p>\n<p class=\"soft\">Ours, record {} of <code>experiments/{}</code>, again by \
         <code>make experiment NAME={}</code>:</p>\n\
         <div class=\"scroll\"><table><thead><tr><th>measured</th><th>theirs</th><th>ours</th><th>95 % interval</th><th>goal</th><th></th></tr></thead>\n<tbody>\n",
        escape(&measured.theirs),
        escape(&name.unwrap_or_default()),
        escape(&measured.experiment),
        escape(&measured.experiment)
    );
    for claim in claims {
        row_of(claim, text);
    }
    text.push_str("</tbody></table></div>\n");
}

fn row_of(claim: &Claim, text: &mut String) {
    let (class, verdict) = match claim.verdict {
        Some(Verdict::Holds) => ("good", Verdict::Holds.in_words()),
        Some(Verdict::Fails) => ("bad", Verdict::Fails.in_words()),
        Some(Verdict::NotShown) => ("open", Verdict::NotShown.in_words()),
        None => ("soft", ""),
    };
    let interval = match (claim.low.is_finite() && claim.high.is_finite(), claim.low == claim.high)
    {
        (true, false) => format!("{} to {}", digits(claim.low), digits(claim.high)),
        (true, true) => "exact".to_owned(),
        (false, _) => "unknown".to_owned(),
    };
    let goal = claim.goal.map_or(String::new(), |goal| goal.to_string());
    let theirs = claim.published.map_or(String::new(), digits);
    let _ = writeln!(
        text,
        "<tr><td>{}</td><td class=\"n\">{theirs}</td><td class=\"n\">{} {}</td><td class=\"n\">{interval}</td><td class=\"n\">{goal}</td><td class=\"{class}\">{verdict}</td></tr>",
        escape(&claim.name),
        digits(claim.value),
        escape(&claim.unit)
    );
}

fn plots(
    found: &Reproduction<'_>,
    name: &str,
    out: &Path,
    text: &mut String,
) -> anyhow::Result<()> {
    let mut files = Vec::new();
    for (at, curve) in found.curves.iter().enumerate() {
        let file = format!("{name}-curve-{}.svg", at + 1);
        let path = out.join(&file);
        std::fs::write(&path, &curve.svg)
            .with_context(|| format!("cannot write {}", path.display()))?;
        let _ = writeln!(
            text,
            "<p class=\"soft\">Curve: <code>concertina {}</code></p>",
            escape(&curve.curve.command)
        );
        files.push((file, curve.curve.title.clone()));
    }
    for measurement in &found.measurements {
        for plot in &measurement.measured.plots {
            let from = measurement.record.join(plot);
            let file = format!("{name}-{plot}");
            std::fs::copy(&from, out.join(&file))
                .with_context(|| format!("cannot copy the plot {}", from.display()))?;
            files.push((file, format!("{}: {plot}", measurement.measured.experiment)));
        }
    }
    if !files.is_empty() {
        text.push_str("<div class=\"plots\">\n");
        for (file, title) in files {
            let _ = writeln!(text, "<img src=\"{}\" alt=\"{}\">", escape(&file), escape(&title));
        }
        text.push_str("</div>\n");
    }
    Ok(())
}

/// A number with five significant digits, and no more than it has.
fn digits(value: f64) -> String {
    if !value.is_finite() {
        return "unknown".to_owned();
    }
    report::objective::digits(value, 5)
}
