//! `experiments reproduce`: every figure and table of the sources, theirs beside ours, as one site.
//!
//! What is reproduced stands in a catalogue (`experiments/reproduce.toml`): chapters of figures, each with
//! figures that are *computed* now by a command of `concertina`, figures that were *measured* by an experiment and
//! stand in its records, curves, or the reason why it is absent. The program knows no figure of its own: what the
//! sources print is in the catalogue alone, and what is ours comes from commands and records alone.

mod catalogue;
mod compute;
mod measured;
mod page;
mod reproduction;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, bail};

pub use catalogue::Catalogue;
use catalogue::{Chapter, Figure};
use compute::Program;
use measured::Measurement;
use reproduction::Reproduction;
pub use reproduction::{ChapterCount, Count};

/// The options of a reproduction.
#[derive(Clone, Debug)]
pub struct Request {
    /// The folder of experiments, with `reproduce.toml`.
    pub experiments: PathBuf,
    /// The program whose commands are run.
    pub program: PathBuf,
    /// Where the page goes: a new or empty folder, or that of an earlier page, which is replaced.
    pub out: PathBuf,
    /// Names of chapters; all if empty.
    pub chapters: Vec<String>,
    /// Runs the chapters' experiments first, and how long.
    pub rerun: Option<Form>,
    /// Shows nothing of the progress.
    pub quiet: bool,
}

/// How much of an experiment is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Form {
    /// Fewer points, in at most five minutes each
    Short,
    /// All points: hours for all chapters
    Long,
}

/// What a reproduction found, by chapter.
pub struct Site {
    /// The page.
    pub page: PathBuf,
    /// Title and count of each chapter.
    pub chapters: Vec<ChapterCount>,
}

/// Computes what is computed, takes the newest records of what is measured (after running the experiments, if that is
/// wanted), and writes the site.
///
/// # Errors
/// If the catalogue is invalid, a chapter or a record is missing, a command fails or does not answer what the
/// catalogue asks for, or a file cannot be written. An experiment whose claims fail is no error.
pub fn reproduce(request: &Request) -> anyhow::Result<Site> {
    let catalogue = Catalogue::read(&request.experiments.join("reproduce.toml"))?;
    let chapters = chosen(&catalogue, &request.chapters)?;
    if let Some(form) = request.rerun {
        rerun(request, &chapters, form)?;
    }
    let program = Program::new(&request.program)?;
    page::claim_folder(&request.out)?;
    let (mut counts, mut bodies) = (Vec::new(), Vec::new());
    for chapter in chapters {
        say(request, &format!("{}:", chapter.title));
        let mut found = Vec::new();
        for figure in &chapter.figures {
            let begun = Instant::now();
            found.push(find(request, &program, figure)?);
            say(request, &format!("  {} ({:.1} s)", figure.name, begun.elapsed().as_secs_f64()));
        }
        let count = Count::of_figures(&found);
        bodies.push(page::chapter(chapter, &found, &count, &request.out)?);
        counts.push(ChapterCount { title: chapter.title.clone(), count });
    }
    let page = request.out.join("index.html");
    let text = page::page(&catalogue, &counts, &bodies);
    std::fs::write(&page, text).with_context(|| format!("cannot write {}", page.display()))?;
    Ok(Site { page, chapters: counts })
}

fn say(request: &Request, what: &str) {
    if !request.quiet {
        eprintln!("{what}");
    }
}

fn chosen<'a>(catalogue: &'a Catalogue, names: &[String]) -> anyhow::Result<Vec<&'a Chapter>> {
    let is_known = |name: &&String| catalogue.chapters.iter().any(|known| known.name == **name);
    if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = catalogue.chapters.iter().map(|known| known.name.as_str()).collect();
        bail!("there is no chapter {unknown:?}; write one of: {}", known.join(", "));
    }
    let is_wanted = |chapter: &&Chapter| names.is_empty() || names.contains(&chapter.name);
    Ok(catalogue.chapters.iter().filter(is_wanted).collect())
}

/// Runs each experiment of the chapters once. One that cannot be run here (too small a machine, a rival that is not
/// installed) is named and left: its newest record stands.
fn rerun(request: &Request, chapters: &[&Chapter], form: Form) -> anyhow::Result<()> {
    let mut names: Vec<&str> = Vec::new();
    for measured in chapters.iter().flat_map(|c| &c.figures).flat_map(|f| &f.measured) {
        if !names.contains(&measured.experiment.as_str()) {
            names.push(&measured.experiment);
        }
    }
    for (at, name) in names.iter().enumerate() {
        say(request, &format!("running {name} ({} of {})", at + 1, names.len()));
        let scratch = tempfile::tempdir()?;
        let done = crate::run(crate::Options {
            folder: request.experiments.join(name),
            out: None,
            scratch: scratch.path().to_owned(),
            short: form == Form::Short,
            quiet: request.quiet,
        });
        match done {
            Ok(finished) => say(request, &format!("  {}", finished.verdict().in_words())),
            Err(error) => {
                eprintln!("  {name} cannot be run here; its newest record stands: {error:#}")
            }
        }
    }
    Ok(())
}

fn find<'a>(
    request: &Request,
    program: &Program,
    figure: &'a Figure,
) -> anyhow::Result<Reproduction<'a>> {
    let rows = figure.computed.iter().map(|computed| program.row(computed));
    let measurements =
        figure.measured.iter().map(|measured| Measurement::find(measured, &request.experiments));
    let curves = figure.curves.iter().map(|curve| program.curve(curve));
    let found = Reproduction {
        figure,
        rows: rows.collect::<anyhow::Result<_>>()?,
        measurements: measurements.collect::<anyhow::Result<_>>()?,
        curves: curves.collect::<anyhow::Result<_>>()?,
    };
    Ok(found)
}

#[cfg(test)]
mod tests;
