//! Analyses designed experiments: which factors matter, by how much, and with which confidence.
//!
//! The runs of an experiment come from a table, or from run folders (`runs`). The designs and their
//! formulas are in [`model::design`]; this module chooses the design that the runs allow, judges
//! the residuals, and formats the result. `docs/factors.md` explains the output.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use ground::number::{decimals, difference};
use model::design::{
    Advice, Anova, Bootstrap, Factor, Factorial, Form, Fraction, Judged, Residuals, Table, letter,
    roman,
};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::error::Error;
use crate::grid::{Grid, printable};
use crate::objective::digits;
use crate::steps::Selection;
use crate::table::percent;
use crate::verdict::labelled_text;

mod runs;
mod verdict;

use verdict::interval;

/// An analysis, as the levels of the factors allow.
enum Analysis {
    Two(Factorial, Fraction),
    Any(Anova),
}

/// The analysis of an experiment.
pub struct Findings {
    factors: Vec<Factor>,
    advice: Option<Advice>,
    form: Form,
    analysis: Analysis,
    residuals: Option<Residuals>,
    bootstrap: Option<Bootstrap>,
    warnings: Vec<String>,
}

/// The origin of an experiment's runs.
pub struct Source {
    /// The file, or a description of the run folders.
    pub name: String,
    /// For run folders, each run: the folder, the step, the levels and the response.
    runs: Option<serde_json::Value>,
    /// Reasons to doubt the runs.
    warnings: Vec<String>,
}

impl Source {
    /// The source of runs read from a table.
    pub fn of_file(file: &Path) -> Source {
        Source { name: file.display().to_string(), runs: None, warnings: Vec::new() }
    }
}

/// Reads an experiment from run folders: each completed step is a run. `names` are its factors;
/// `needs_logarithms` requires positive responses.
///
/// # Errors
/// If a folder cannot be read, a level or the response of a step is unknown, or the steps are not a
/// table of runs.
pub fn of_run_folders(
    dirs: &[PathBuf],
    names: &[String],
    response: &str,
    needs_logarithms: bool,
    selection: &Selection,
) -> Result<(Table, Source), Error> {
    let found = runs::read(dirs, names, response, selection)?;
    if needs_logarithms
        && let Some((run, (dir, step))) =
            found.runs.iter().zip(&found.places).find(|(run, _)| run.response <= 0.0)
    {
        let (value, dir) = (run.response, dir.display());
        return Err(Error::experiment(format!(
            "{dir}, step {step}: {response} is {value}, and the multiplicative model takes logarithms"
        )));
    }
    let rows = found.runs.iter().zip(&found.places).map(|(run, (dir, step))| {
        let dir = dir.display().to_string();
        serde_json::json!({ "dir": dir, "step": step, "levels": run.levels, "response": run.response })
    });
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let name = match &dirs[..] {
        [one] => format!("{} in {one}", steps(found.runs.len())),
        many => format!("{} in {} folders", steps(found.runs.len()), many.len()),
    };
    let source = Source { name, runs: Some(rows.collect()), warnings: found.warnings };
    let table = Table::new(names, &found.runs).map_err(Error::content(&source.name))?;
    Ok((table, source))
}

fn steps(n: usize) -> String {
    if n == 1 { "1 step".to_owned() } else { format!("{n} steps") }
}

/// The options of an analysis.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether effects add or multiply; `None` lets the data decide.
    pub form: Option<Form>,
    /// Confidence level of the intervals, 0 to 1.
    pub confidence: f64,
    /// Number of bootstrap samples for further intervals; only for two levels of each factor.
    pub bootstrap: Option<usize>,
    /// Seed of the bootstrap.
    pub seed: u64,
}

/// Analyses an experiment: effects if each factor has two levels, otherwise an analysis of
/// variance.
///
/// # Errors
/// If combinations of levels are missing or have different numbers of runs, or the responses do not
/// suit the form.
pub fn analyse(table: &Table, options: &Options) -> Result<Findings, Error> {
    let fraction = table.fraction();
    if fraction.is_none() {
        table.complete()?;
    }
    table.balanced()?;
    let (mut cells, mut places) = (table.responses(), table.places());
    let mut levels: Vec<usize> = table.factors().iter().map(|f| f.levels.len()).collect();
    if let Some(fraction) = &fraction {
        cells = fraction.ordered(&table.masks(), &cells)?;
        places = fraction.ordered(&table.masks(), &places)?;
        levels = vec![2; fraction.factor_count() - fraction.generated()];
    }
    let advice = match Advice::new(&levels, &cells) {
        Ok(advice) => Some(advice),
        // A single factor with one run of each level leaves no evidence about the form.
        Err(model::Error::TooFew { .. }) if fraction.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let form = match (options.form, &advice) {
        (Some(form), _) => form,
        (None, None) => Form::Additive,
        (None, Some(advice)) => advice.form,
    };
    let analysis = match fraction {
        Some(f) => Analysis::Two(f.analyse(&cells, form, options.confidence)?, f),
        None => Analysis::Any(Anova::new(&levels, &cells, form, options.confidence)?),
    };
    let (fitted, left, mut warnings) = match &analysis {
        Analysis::Two(found, _) => (&found.fitted, &found.residuals, found.warnings.clone()),
        Analysis::Any(found) => (&found.fitted, &found.residuals, found.warnings.clone()),
    };
    let residuals = Residuals::new(fitted, left, Some(&places))?;
    warnings.extend(residuals.iter().flat_map(|r| r.warnings(form)));
    if let (Some(advice), Some(_)) = (&advice, options.form)
        && advice.form != form
    {
        warnings.push(format!(
            "the data favour the {} model: {}",
            name(advice.form),
            advice.reasons[0]
        ));
    }
    let bootstrap = match (options.bootstrap, &analysis) {
        (Some(samples), Analysis::Two(found, _)) => {
            Some(Bootstrap::new(found, samples, &mut StdRng::seed_from_u64(options.seed))?)
        }
        (Some(_), Analysis::Any(_)) => {
            return Err(Error::input("--bootstrap is for two levels of each factor"));
        }
        (None, _) => None,
    };
    let factors = table.factors().to_vec();
    Ok(Findings { factors, advice, form, analysis, residuals, bootstrap, warnings })
}

fn name(form: Form) -> &'static str {
    match form {
        Form::Additive => "additive",
        Form::Multiplicative => "multiplicative",
    }
}

impl Findings {
    /// What is said first, as named sentences.
    fn verdict(&self, response: &str) -> Vec<(&'static str, String)> {
        let found = match &self.analysis {
            Analysis::Two(two, _) => verdict::of_two(two, &self.factors),
            Analysis::Any(any) => verdict::of_any(any, &self.factors),
        };
        verdict::lines(found, &self.factors, response)
    }

    /// The warnings of the source and of the analysis.
    fn warnings(&self, source: &Source) -> Vec<String> {
        [&source.warnings[..], &self.warnings[..]].concat()
    }

    /// The analysis as JSON. `file` is the table's path, if it came from one.
    ///
    /// # Errors
    /// If a number cannot be represented.
    pub fn json(
        &self,
        source: &Source,
        response: &str,
        options: &Options,
        file: Option<&Path>,
    ) -> Result<serde_json::Value, Error> {
        let found = self;
        let letters = found.factors.iter().enumerate().map(|(i, factor)| {
        serde_json::json!({ "letter": letter(i), "name": factor.name, "levels": factor.levels })
    });
        let (kind, analysis, fraction) = match &found.analysis {
            Analysis::Two(two, fraction) => {
                let described = (fraction.generated() > 0).then(|| {
                    serde_json::json!({
                        "generators": fraction.generators(),
                        "defining_relation": fraction.defining_relation(),
                        "resolution": fraction.resolution(),
                    })
                });
                ("factorial", serde_json::to_value(two)?, described)
            }
            Analysis::Any(any) => ("anova", serde_json::to_value(any)?, None),
        };
        Ok(serde_json::json!({
            "file": file.map(|file| file.display().to_string()),
            "runs": source.runs,
            "response": response,
            "factors": letters.collect::<Vec<_>>(),
            "design": design(found),
            "kind": kind,
            "fraction": fraction,
            "model": name(found.form),
            "confidence": options.confidence,
            "advice": found.advice,
            "analysis": analysis,
            "residuals": found.residuals,
            "bootstrap": found.bootstrap,
            "verdict": verdict_json(&found.verdict(response)),
            "warnings": self.warnings(source),
        }))
    }

    /// The analysis as text.
    pub fn text(&self, source: &Source, response: &str, options: &Options) -> String {
        let found = self;
        let mut out = format!("{} of {}\n", response, source.name);
        for (i, factor) in found.factors.iter().enumerate() {
            let levels = shortened(&factor.levels.join(", "), 60);
            let _ = writeln!(out, "  {} = {}: {levels}", letter(i), factor.name);
        }
        let _ = writeln!(out, "\n{}", labelled_text(&found.verdict(response)));
        let _ = writeln!(out, "Design {}.", design(found));
        let chosen = if options.form.is_some() { "as requested" } else { "advised" };
        let _ = writeln!(out, "Model: {} ({chosen}).", name(found.form));
        for reason in
            found.advice.iter().filter(|_| options.form.is_none()).flat_map(|a| &a.reasons)
        {
            let _ = writeln!(out, "  {reason}.");
        }
        out.push('\n');
        out += &match &found.analysis {
            Analysis::Two(two, _) => factorial_text(two, found.bootstrap.as_ref()),
            Analysis::Any(any) => anova_text(any, &found.factors),
        };
        if let Some(residuals) = &found.residuals {
            let judged = |j: Option<Judged>| {
                j.map_or("–".to_owned(), |j| {
                    format!("{} (chance {})", difference(j.correlation, 2), digits(j.p, 2))
                })
            };
            let _ = writeln!(
                out,
                "\nResiduals: normal correlation {} (5 % point {}); spread against fitted {}; trend with \
             the order of runs {}.",
                decimals(residuals.normal, 3),
                decimals(residuals.normal_critical, 3),
                judged(residuals.spread),
                judged(residuals.trend)
            );
        }
        out.extend(self.warnings(source).iter().map(|w| format!("Warning: {w}.\n")));
        printable(&out)
    }
}

/// A verdict for programs: a list of names and sentences.
fn verdict_json(lines: &[(&'static str, String)]) -> Vec<serde_json::Value> {
    let line = |(name, text): &(&str, String)| serde_json::json!({ "name": name, "text": text });
    lines.iter().map(line).collect()
}

/// Names the design.
fn design(found: &Findings) -> String {
    match &found.analysis {
        Analysis::Two(two, fraction) => {
            let (k, p, r) = (two.factor_count, fraction.generated(), two.replications);
            let mut name = match p {
                0 => format!("2^{k}·{r}: all combinations of two levels"),
                _ => format!("2^({k}−{p})·{r}: a fraction of the combinations of two levels"),
            };
            if let Some(resolution) = fraction.resolution() {
                let _ = write!(
                    name,
                    ", {}; resolution {}; {}",
                    fraction.generators().join(", "),
                    roman(resolution),
                    shortened(&fraction.defining_relation(), 100)
                );
            }
            name
        }
        Analysis::Any(any) => {
            let levels: Vec<String> = any.levels.iter().map(usize::to_string).collect();
            format!("{}, {} of each combination", levels.join(" × "), runs(any.replications))
        }
    }
}

fn runs(r: usize) -> String {
    if r == 1 { "1 run".to_owned() } else { format!("{r} runs") }
}

/// Truncates a text to at most `most` characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_owned(),
    }
}

fn factorial_text(two: &Factorial, bootstrap: Option<&Bootstrap>) -> String {
    let percents = digits(100.0 * two.confidence, 4);
    let change = match two.form {
        Form::Additive => "low to high adds",
        Form::Multiplicative => "low to high multiplies by",
    };
    let effect = format!("effect q [{percents} %]");
    let mut head = vec!["", &*effect, change, "variation %"];
    let aliased = two.effects.iter().any(|e| !e.aliases.is_empty());
    if bootstrap.is_some() {
        head.push("bootstrap");
    }
    head.push("");
    if aliased {
        head.push("aliased with");
    }
    let align = if bootstrap.is_some() { "lrrrrll" } else { "lrrrll" };
    let mut grid = Grid::new(align, &head);
    let mut order: Vec<usize> = (0..two.effects.len()).collect();
    order.sort_by_key(|&i| (two.effects[i].factors.count_ones(), two.effects[i].factors));
    for i in order {
        let e = &two.effects[i];
        let mut cells = vec![
            e.name.clone(),
            interval(e.effect),
            digits(e.low_to_high.value, 4),
            percent(e.fraction),
        ];
        if let Some(b) = bootstrap.and_then(|b| b.effects.get(i)) {
            cells.push(format!("[{}, {}]", percent(b.fraction[0]), percent(b.fraction[1])));
        }
        cells.push(if e.effect.excludes(0.0) { "*" } else { "" }.to_owned());
        if aliased {
            cells.push(shortened(&e.aliases.join(", "), 40));
        }
        grid.row(cells);
    }
    let mut noise = vec!["noise".to_owned(), String::new(), String::new()];
    noise.push(if two.error_degrees > 0 { percent(two.error_fraction) } else { "–".to_owned() });
    if let Some(b) = bootstrap {
        noise.push(format!("[{}, {}]", percent(b.error_fraction[0]), percent(b.error_fraction[1])));
    }
    grid.row(noise);
    let unit = match two.form {
        Form::Additive => "",
        Form::Multiplicative => " (natural logarithm)",
    };
    let mut out = format!("Mean{unit}: {}\n{}", interval(two.mean), grid.text());
    out += "* the interval does not contain 0\n";
    if let Some(s) = two.error_deviation {
        let _ = writeln!(
            out,
            "Noise{unit}: standard deviation {}, {} degrees of freedom.",
            digits(s, 4),
            two.error_degrees
        );
    }
    out
}

fn anova_text(any: &Anova, factors: &[Factor]) -> String {
    let mut grid =
        Grid::new("lrrrrrl", &["", "sum of squares", "variation %", "degrees", "F", "chance", ""]);
    for term in &any.terms {
        let shown = |x: Option<f64>| x.map_or("–".to_owned(), |x| digits(x, 3));
        grid.row([
            term.name.clone(),
            digits(term.sum_of_squares, 4),
            percent(term.fraction),
            term.degrees.to_string(),
            shown(term.f),
            shown(term.p),
            if term.p.is_some_and(|p| p < 1.0 - any.confidence) { "*" } else { "" }.to_owned(),
        ]);
    }
    let noise = [
        "noise".to_owned(),
        digits(any.error_sum_of_squares, 4),
        percent(any.error_fraction),
        any.error_degrees.to_string(),
    ];
    grid.row(noise);
    let unit = match any.form {
        Form::Additive => "",
        Form::Multiplicative => " (natural logarithm)",
    };
    let mut out = format!("Mean{unit}: {}\n{}", interval(any.mean), grid.text());
    let _ =
        writeln!(out, "* such a large F has a chance below {}", digits(1.0 - any.confidence, 3));
    let head = format!("effect [{} %]", digits(100.0 * any.confidence, 4));
    let mut grid = Grid::new("llr", &["factor", "level", &head]);
    for term in any.terms.iter().filter(|t| t.factors.count_ones() == 1) {
        let factor = &factors[term.factors.trailing_zeros() as usize];
        for effect in &term.effects {
            let level = effect.levels.first().and_then(|l| factor.levels.get(*l));
            grid.row([
                factor.name.clone(),
                level.cloned().unwrap_or_default(),
                interval(effect.effect),
            ]);
        }
    }
    out + "\n" + &grid.text()
}
