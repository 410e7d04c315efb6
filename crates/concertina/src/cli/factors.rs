//! `concertina factors`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use model::design::{
    Advice, Anova, Bootstrap, Factor, Factorial, Form, Fraction, Judged, Residuals, Run, Table,
    letter, roman,
};
use model::regression::Estimated;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::factors_runs;
use super::sheet::{Sheet, confidence};
use crate::cli::output::{out, outln};
use report::grid::{Grid, printable};
use report::objective::digits;
use report::steps::{Selection, StepChoice};
use report::table::percent;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina factors runs.csv --response throughput
  concertina factors runs.csv --response latency_ms --factors servers,threads,middlewares
  concertina factors runs.csv --response throughput --model multiplicative --confidence 90%
  concertina factors runs.csv --response throughput --bootstrap 100000 --json
  concertina factors --runs runs --response response_ms_p99 \\
    --factors clients,load.keys.synthetic.read_share,serve.node.memory_bytes
  concertina factors --runs runs/* --response throughput_per_s --factors threads,servers

One row is one run: the level of each factor, and what was measured. Rows in the order they were run
show drifts; equal levels are replications. Two levels of each factor: effects (2^k·r), also of a
regular fraction of the combinations (2^(k−p), found from the rows), with what it cannot tell
apart. More levels: analysis of variance with F tests. Every combination needs as many runs.

With --runs every completed step of a run folder is one run. Its factors: `rate` and `clients` of the
step; `load.PATH` and `serve.PATH`, what the run.toml of the load, or of the server that was recorded
meanwhile, has under [asked]; any other name is looked for in the folder's name, as threads=8 in
runs/threads=8,servers=2/1. Responses: throughput_per_s, error_share, response_ms_mean, response_ms_p50,
_p95, _p99, _p999 …, service_ms_….

Without --model the data decide between sums and products; the reasons are printed.")]
pub struct Args {
    /// The runs, CSV with names in its first line
    #[arg(value_name = "FILE.csv", required_unless_present = "runs")]
    file: Option<PathBuf>,
    /// Instead: run folders, and folders that hold some
    #[arg(long, value_name = "DIR", num_args = 1.., conflicts_with = "file", requires = "factors")]
    runs: Vec<PathBuf>,
    /// The column that was measured, or the figure of run folders
    #[arg(long, value_name = "NAME")]
    response: String,
    /// The columns that were varied, A, B, C … in this order; all others if not given. With --runs:
    /// what was varied
    #[arg(long, alias = "factor", value_delimiter = ',', value_name = "NAMES")]
    factors: Vec<String>,
    /// With --runs: only these steps of each folder, by number (`0-2`) or rate (`400/s`)
    #[arg(long, value_delimiter = ',', value_name = "STEPS", requires = "runs")]
    steps: Vec<StepChoice>,
    /// With --runs: take those of different machines together
    #[arg(long, requires = "runs")]
    across_machines: bool,
    /// Whether effects add or multiply
    #[arg(long, value_enum)]
    model: Option<Model>,
    /// Of the intervals
    #[arg(long, default_value = "0.95", value_parser = confidence)]
    confidence: f64,
    /// Intervals by so many bootstrap samples as well (two levels)
    #[arg(long, value_name = "SAMPLES")]
    bootstrap: Option<usize>,
    /// Of the bootstrap
    #[arg(long, default_value_t = 1, requires = "bootstrap")]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Model {
    /// y is a sum of effects
    Additive,
    /// y is a product: its natural logarithm is a sum
    Multiplicative,
}

/// The analysis that the table allows.
enum Analysis {
    Two(Factorial, Fraction),
    Any(Anova),
}

/// All that is said.
struct Findings {
    factors: Vec<Factor>,
    advice: Option<Advice>,
    form: Form,
    analysis: Analysis,
    residuals: Option<Residuals>,
    bootstrap: Option<Bootstrap>,
    warnings: Vec<String>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (table, source) = match &args.file {
        Some(file) => (sheet_table(&args, &Sheet::read(file)?)?, Source::of_file(file)),
        None => runs_table(&args)?,
    };
    let found = analyse(&args, &table).with_context(|| {
        let hint = match args.factors.is_empty() {
            true => " (all columns but the response were taken for factors: --factors names them)",
            false => "",
        };
        format!("{}{hint}", source.name)
    })?;
    let found = Findings { warnings: [source.warnings.clone(), found.warnings].concat(), ..found };
    if args.json {
        outln!("{:#}", json(&args, &source, &found)?);
    } else {
        out!("{}", text(&args, &source, &found));
    }
    Ok(ExitCode::SUCCESS)
}

/// Where the runs are from.
struct Source {
    /// The file, or the folders that were given.
    name: String,
    /// Of run folders, each run: the folder, the step, the levels and the response.
    runs: Option<serde_json::Value>,
    /// What makes them doubtful.
    warnings: Vec<String>,
}

impl Source {
    fn of_file(file: &Path) -> Source {
        Source { name: file.display().to_string(), runs: None, warnings: Vec::new() }
    }
}

/// The names of the factors; the response cannot be one.
fn names(args: &Args, given: Vec<String>) -> anyhow::Result<Vec<String>> {
    for (i, name) in given.iter().enumerate() {
        if *name == args.response {
            bail!("--factors: {name} is the response; it cannot be a factor too");
        }
        if given[..i].contains(name) {
            bail!("--factors: {name} is named twice");
        }
    }
    Ok(given)
}

fn given(args: &Args) -> Vec<String> {
    args.factors.iter().map(|name| name.trim().to_owned()).collect()
}

fn runs_table(args: &Args) -> anyhow::Result<(Table, Source)> {
    let names = names(args, given(args))?;
    let selection =
        Selection { any_queues: true, ..Selection::new(&args.steps, args.across_machines) };
    let found = factors_runs::read(&args.runs, &names, &args.response, &selection)?;
    if matches!(args.model, Some(Model::Multiplicative))
        && let Some((run, (dir, step))) =
            found.runs.iter().zip(&found.places).find(|(run, _)| run.response <= 0.0)
    {
        let (response, dir) = (run.response, dir.display());
        bail!(
            "{dir}, step {step}: {} is {response}, and the multiplicative model takes logarithms",
            args.response
        );
    }
    let rows = found.runs.iter().zip(&found.places).map(|(run, (dir, step))| {
        let dir = dir.display().to_string();
        serde_json::json!({ "dir": dir, "step": step, "levels": run.levels, "response": run.response })
    });
    let dirs: Vec<String> = args.runs.iter().map(|dir| dir.display().to_string()).collect();
    let name = match &dirs[..] {
        [one] => format!("{} in {one}", steps(found.runs.len())),
        many => format!("{} in {} folders", steps(found.runs.len()), many.len()),
    };
    let source = Source { name, runs: Some(rows.collect()), warnings: found.warnings };
    let table = Table::new(&names, &found.runs).with_context(|| source.name.clone())?;
    Ok((table, source))
}

fn steps(n: usize) -> String {
    if n == 1 { "1 step".to_owned() } else { format!("{n} steps") }
}

fn sheet_table(args: &Args, sheet: &Sheet) -> anyhow::Result<Table> {
    let response = sheet.column(&args.response)?;
    let names = names(
        args,
        match args.factors.is_empty() {
            true => sheet.head().iter().filter(|name| **name != args.response).cloned().collect(),
            false => given(args),
        },
    )?;
    let columns = names.iter().map(|name| sheet.column(name)).collect::<Result<Vec<_>, _>>()?;
    let least = match args.model {
        Some(Model::Multiplicative) => f64::MIN_POSITIVE,
        _ => -1e100,
    };
    let mut runs = Vec::with_capacity(sheet.rows().len());
    for row in sheet.rows() {
        let level = |&column: &usize| sheet.text(row, column).map(str::to_owned);
        let levels = columns.iter().map(level).collect::<anyhow::Result<_>>()?;
        let number = sheet.number(row, response, least..=1e100);
        let number = number.with_context(|| match least > 0.0 {
            true => "the multiplicative model takes logarithms",
            false => "the response must be a number",
        });
        runs.push(Run { levels, response: number? });
    }
    Table::new(&names, &runs).with_context(|| sheet.path().display().to_string())
}

fn analyse(args: &Args, table: &Table) -> anyhow::Result<Findings> {
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
        // A single factor with one run of each level: nothing to judge by.
        Err(model::Error::TooFew { .. }) if fraction.is_some() => None,
        Err(error) => return Err(error.into()),
    };
    let form = match (args.model, &advice) {
        (Some(Model::Additive), _) | (None, None) => Form::Additive,
        (Some(Model::Multiplicative), _) => Form::Multiplicative,
        (None, Some(advice)) => advice.form,
    };
    let analysis = match fraction {
        Some(f) => Analysis::Two(f.analyse(&cells, form, args.confidence)?, f),
        None => Analysis::Any(Anova::new(&levels, &cells, form, args.confidence)?),
    };
    let (fitted, left, mut warnings) = match &analysis {
        Analysis::Two(found, _) => (&found.fitted, &found.residuals, found.warnings.clone()),
        Analysis::Any(found) => (&found.fitted, &found.residuals, found.warnings.clone()),
    };
    let residuals = Residuals::new(fitted, left, Some(&places))?;
    warnings.extend(residuals.iter().flat_map(|r| r.warnings(form)));
    if let (Some(advice), Some(_)) = (&advice, args.model)
        && advice.form != form
    {
        warnings.push(format!(
            "the data speak for the {} model: {}",
            name(advice.form),
            advice.reasons[0]
        ));
    }
    let bootstrap = match (args.bootstrap, &analysis) {
        (Some(samples), Analysis::Two(found, _)) => {
            Some(Bootstrap::new(found, samples, &mut StdRng::seed_from_u64(args.seed))?)
        }
        (Some(_), Analysis::Any(_)) => bail!("--bootstrap is for two levels of each factor"),
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

/// What the design is called.
fn design(found: &Findings) -> String {
    match &found.analysis {
        Analysis::Two(two, fraction) => {
            let (k, p, r) = (two.factor_count, fraction.generated(), two.replications);
            let mut words = match p {
                0 => format!("2^{k}·{r}: all combinations of two levels"),
                _ => format!("2^({k}−{p})·{r}: a fraction of the combinations of two levels"),
            };
            if let Some(resolution) = fraction.resolution() {
                let _ = write!(
                    words,
                    ", {}; resolution {}; {}",
                    fraction.generators().join(", "),
                    roman(resolution),
                    shortened(&fraction.defining_relation(), 100)
                );
            }
            words
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

/// At most so many characters.
fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{} …", &text[..at]),
        None => text.to_owned(),
    }
}

fn json(args: &Args, source: &Source, found: &Findings) -> anyhow::Result<serde_json::Value> {
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
        "file": args.file.as_ref().map(|file| file.display().to_string()),
        "runs": source.runs,
        "response": args.response,
        "factors": letters.collect::<Vec<_>>(),
        "design": design(found),
        "kind": kind,
        "fraction": fraction,
        "model": name(found.form),
        "confidence": args.confidence,
        "advice": found.advice,
        "analysis": analysis,
        "residuals": found.residuals,
        "bootstrap": found.bootstrap,
        "warnings": found.warnings,
    }))
}

/// A number and its interval.
fn interval(e: Estimated) -> String {
    match (e.low, e.high) {
        (Some(low), Some(high)) => {
            format!("{} [{}, {}]", digits(e.value, 4), digits(low, 4), digits(high, 4))
        }
        _ => digits(e.value, 4),
    }
}

fn text(args: &Args, source: &Source, found: &Findings) -> String {
    let mut out = format!("{} of {}\n", args.response, source.name);
    for (i, factor) in found.factors.iter().enumerate() {
        let levels = shortened(&factor.levels.join(", "), 60);
        let _ = writeln!(out, "  {} = {}: {levels}", letter(i), factor.name);
    }
    let _ = writeln!(out, "Design {}.", design(found));
    let chosen = if args.model.is_some() { "as asked" } else { "advised" };
    let _ = writeln!(out, "Model: {} ({chosen}).", name(found.form));
    for reason in found.advice.iter().filter(|_| args.model.is_none()).flat_map(|a| &a.reasons) {
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
                format!("{:+.2} (chance {})", j.correlation, digits(j.p, 2)).replace('-', "−")
            })
        };
        let _ = writeln!(
            out,
            "\nResiduals: normal correlation {:.3} (5 % point {:.3}); spread against fitted {}; trend with \
             the order of runs {}.",
            residuals.normal,
            residuals.normal_critical,
            judged(residuals.spread),
            judged(residuals.trend)
        );
    }
    out.extend(found.warnings.iter().map(|w| format!("Warning: {w}.\n")));
    printable(&out)
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
        head.push("one number with");
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
    out += "* the interval does not hold 0\n";
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
    let _ = writeln!(out, "* F that large has a chance below {}", digits(1.0 - any.confidence, 3));
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
