//! Builds all engines over a text, sends them the queries in turn, and checks every reply.

use std::path::Path;

use anyhow::ensure;
use serde::Serialize;

use super::config::{Class, Config};
use super::engine::{self, Engine, Open};
use super::oracle;
use super::protocol::{Built, Form, Kind, Question};
use super::questions::CheckedQuery;
use crate::context::Context;

/// The resources that an engine needs for a text.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// The engine's name.
    pub engine: String,
    /// Its version.
    pub version: String,
    /// Bytes of its files; `None` if it reads another engine's.
    pub disk_bytes: Option<u64>,
    /// Bytes of these in the page cache after all queries.
    pub cached_bytes: Option<u64>,
    /// Anonymous memory while it serves; `None` if it is started for each query.
    pub anonymous_bytes: Option<u64>,
    /// The resources that building took.
    pub built: Option<Built>,
    /// Time of opening, s.
    pub open_s: f64,
}

/// The queries of one kind, class and wanted result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    /// The kind of query.
    pub kind: Kind,
    /// The class by the number of matching records.
    pub class: Class,
    /// The wanted part of the result.
    pub form: Form,
}

/// The measurements of one engine in one cell.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The engine's name.
    pub engine: String,
    /// The cell.
    #[serde(flatten)]
    pub cell: Cell,
    /// The reason why it has no result.
    pub cannot: Option<String>,
    /// Time of a query in each round, s: the mean over different queries of the median over
    /// repetitions.
    pub wall_s: Vec<f64>,
    /// The CPU time, likewise, s.
    pub cpu_s: Vec<f64>,
    /// Number of queries whose reply differs from the scan.
    pub wrong: u64,
    /// Number of different queries.
    pub questions: u64,
    /// Mean number of matches by the scan.
    pub answers: f64,
}

/// The measurements on one text.
#[derive(Debug, Serialize)]
pub struct TextMeasurements {
    /// Its name.
    pub text: String,
    /// Its bytes.
    pub bytes: u64,
    /// Its records.
    pub records: u64,
    /// Engines that are missing, and why.
    pub missing: Vec<String>,
    /// The resources of each engine.
    pub sizes: Vec<Size>,
    /// The cells.
    pub questions: Vec<(Class, Question)>,
    /// The measurements of each engine in each cell.
    pub rows: Vec<Row>,
}

/// Builds all engines, one after the other.
///
/// # Errors
/// If one fails.
pub fn build(context: &Context, engines: &[Engine], place: &Path) -> anyhow::Result<Vec<Size>> {
    let mut sizes = Vec::new();
    for engine in engines {
        context.say(format!("  building {}", engine.name));
        let built = engine.build(place)?;
        let own = engine.files_of.is_none();
        let disk = own.then(|| engine::disk_bytes(&engine.folder(place))).transpose()?;
        sizes.push(Size {
            engine: engine.name.clone(),
            version: engine.version.clone(),
            disk_bytes: disk,
            cached_bytes: None,
            anonymous_bytes: None,
            built,
            open_s: 0.0,
        });
    }
    Ok(sizes)
}

/// Sends all queries to all engines, which take turns: once to warm up, then in the configured number
/// of rounds.
///
/// # Errors
/// If an engine ends, or if ours gives a wrong reply.
pub fn ask(
    context: &Context,
    config: &Config,
    engines: &[Engine],
    place: &Path,
    queries: &[CheckedQuery],
    sizes: &mut [Size],
) -> anyhow::Result<Vec<Row>> {
    for engine in engines {
        engine::evict(&engine.folder(place))?;
    }
    let opened: anyhow::Result<Vec<Open>> =
        engines.iter().map(|engine| engine.open(place)).collect();
    let mut opened = opened?;
    let cells = cells(queries);
    let mut rows: Vec<Row> = Vec::new();
    for round in 0..=config.rounds(context.short) {
        context.say(format!("  round {round}{}", if round == 0 { ", to warm up" } else { "" }));
        for (number, &cell) in cells.iter().enumerate() {
            for (which, open) in opened.iter_mut().enumerate() {
                let at = number * engines.len() + which;
                if round == 0 {
                    rows.push(Row::new(&open.engine.name, cell));
                    // What returning everything leaves in a heap is not what answering takes.
                    if cell.form == Form::All && sizes[which].anonymous_bytes.is_none() {
                        sizes[which].anonymous_bytes = open.memory_use()?.anonymous_bytes;
                    }
                }
                if rows[at].cannot.is_none() {
                    rows[at].ask(open, queries, config, round)?;
                }
            }
        }
    }
    for (size, open) in sizes.iter_mut().zip(&opened) {
        size.open_s = open.open_s;
        size.cached_bytes = engine::cached_bytes(&open.engine.folder(place))?;
    }
    Ok(rows)
}

/// The cells for which there are queries: all counts, then the first ten of all, then everything.
fn cells(queries: &[CheckedQuery]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for form in Form::ALL {
        for CheckedQuery { question: Question { kind, .. }, class, .. } in queries {
            let makes_sense = match kind {
                Kind::Occurrences => form == Form::Count,
                Kind::Key => form == Form::First,
                _ => true,
            };
            let cell = Cell { kind: *kind, class: *class, form };
            if makes_sense && !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    cells
}

impl Row {
    fn new(engine: &str, cell: Cell) -> Row {
        Row {
            engine: engine.to_owned(),
            cell,
            cannot: None,
            wall_s: Vec::new(),
            cpu_s: Vec::new(),
            wrong: 0,
            questions: 0,
            answers: 0.0,
        }
    }

    /// Sends the queries of a cell; the first round is not timed.
    fn ask(
        &mut self,
        open: &mut Open,
        queries: &[CheckedQuery],
        config: &Config,
        round: u32,
    ) -> anyhow::Result<()> {
        let of_cell = queries.iter().filter(|query| {
            query.question.kind == self.cell.kind && query.class == self.cell.class
        });
        let of_cell: Vec<&CheckedQuery> = of_cell.collect();
        let (mut wall_s, mut cpu_s, mut wrong, mut answers) = (0.0, 0.0, 0, 0);
        for query in &of_cell {
            let question = Question { form: self.cell.form, ..query.question.clone() };
            let lines = open.engine.answers_lines;
            let expected = if lines { &query.lines } else { &query.records };
            let (mut walls, mut cpus, mut sum) = (Vec::new(), Vec::new(), 0.0);
            let (slice_s, repeats) = match round {
                0 => (0.0, 1),
                _ => (config.slice_s / of_cell.len() as f64, config.repeats_max),
            };
            let mut right = true;
            for _ in 0..repeats {
                let reply = open.ask(&question)?;
                if reply.cannot.is_some() {
                    self.cannot = reply.cannot;
                    return Ok(());
                }
                right &= oracle::check(&question, expected, &reply);
                walls.push(reply.wall_ns as f64 / 1e9);
                cpus.push(reply.cpu_ns as f64 / 1e9);
                sum += reply.wall_ns as f64 / 1e9;
                if sum >= slice_s {
                    break;
                }
            }
            ensure!(
                right || !open.engine.is_ours,
                "{} answers otherwise than a scan: {question:?}",
                open.engine.name
            );
            wrong += u64::from(!right);
            wall_s += median(&mut walls);
            cpu_s += median(&mut cpus);
            answers += expected.count;
        }
        let questions = of_cell.len().max(1) as f64;
        if round > 0 {
            self.wall_s.push(wall_s / questions);
            self.cpu_s.push(cpu_s / questions);
        }
        self.wrong = self.wrong.max(wrong);
        self.questions = of_cell.len() as u64;
        self.answers = answers as f64 / questions;
        Ok(())
    }

    /// Mean time of a query, s.
    pub fn mean_s(&self) -> Option<f64> {
        let rounds = self.wall_s.len();
        (rounds > 0).then(|| self.wall_s.iter().sum::<f64>() / rounds as f64)
    }
}

/// The median, or the lower of the two middle values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

impl TextMeasurements {
    /// An engine's row.
    pub fn row(&self, engine: &str, cell: Cell) -> Option<&Row> {
        self.rows.iter().find(|row| row.engine == engine && row.cell == cell)
    }

    /// The resources of an engine.
    pub fn size(&self, engine: &str) -> Option<&Size> {
        self.sizes.iter().find(|size| size.engine == engine)
    }

    /// The ratio of one engine's time to another's in each round.
    pub fn ratios(&self, over: &str, under: &str, cell: Cell) -> Vec<f64> {
        let rows = (self.row(over, cell), self.row(under, cell));
        let (Some(over), Some(under)) = rows else { return Vec::new() };
        over.wall_s.iter().zip(&under.wall_s).map(|(over, under)| over / under).collect()
    }
}
