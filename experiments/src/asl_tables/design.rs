//! Tables 8 to 11 and 27 to 31: 2^3·3 designs of reads and of writes, their effects on throughput and latency, and
//! the allocation of variation.
//!
//! The study prints the runs of one design: throughput of writes, Table 27. The throughput of reads is recovered from
//! its effects, Table 8, and its mean from the largest effect on its logarithm, Table 30. Latency follows from
//! N = X·R.

use std::path::Path;

use anyhow::Context as _;
use model::design::{Factorial, Form};
use model::statistics::quantile;
use serde::Deserialize;

use super::allocation::{self, Effect};
use super::cells::{Range, Sheet};
use super::csv::{Table, digits, rounding};
use crate::claims::{Claim, Goal};
use report::grid::Grid;

/// The tables of the designs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Printed {
    /// Low and high level of each factor, A first.
    levels: String,
    /// Runs of the writes.
    observations: String,
    /// Clients in every run.
    clients: u32,
    effects: Vec<Effects>,
}

/// A table of effects.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Effects {
    table: u32,
    file: String,
    load: Load,
    response: Response,
    model: Model,
    /// The fraction of the variation that the table, or the text beside it, attributes to errors.
    unexplained: Option<f64>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Load {
    Reads,
    Writes,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Response {
    Throughput,
    Latency,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Model {
    Additive,
    Multiplicative,
}

/// The source from which the effects of a table are computed again.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    /// None: other tables are computed from these effects.
    Given,
    /// The runs.
    Runs,
    /// Other effects, by the named law.
    Law(&'static str),
}

/// The runs from which tables are computed.
struct Runs {
    /// Observations of each cell, factor A varying fastest. Several versions if they were recovered from a rounded
    /// figure: one for the figure as printed and one for each end of its rounding.
    versions: Vec<Vec<Vec<f64>>>,
    /// Half-width of an observation's rounding.
    half: f64,
    /// The effect from which the observations were recovered.
    told_by: Option<String>,
}

/// The result of comparing all designs.
pub(super) struct Outcome {
    pub claims: Vec<Claim>,
    pub sheet: Sheet,
    pub text: String,
}

/// The result of comparing one table.
struct Analysed {
    text: String,
    /// Largest difference of an effect beyond its rounding, in percent of the largest effect.
    worst: f64,
    /// The number of fractions of variation, and of those that the effects do not explain.
    shares: usize,
    shares_off: usize,
    /// Percent by which each cell exceeds the value computed from the other effects, relative to the median cell.
    departures: Vec<f64>,
    ours: Factorial,
}

const CELLS: u32 = 8;
const CONFIDENCE: f64 = 0.95;
/// Tolerance: the study computed the printed effects from observations with more digits than it printed.
const DIFFERENCE_PERCENT: f64 = 0.1;
/// Allowed difference of a measured effect, as a fraction of the largest effect.
const NEAR: f64 = 0.01;

pub(super) fn compute(folder: &Path, printed: &Printed) -> anyhow::Result<Outcome> {
    let mut sheet = Sheet::default();
    let (writes, mut text) = observations(folder, &printed.observations, &mut sheet)?;
    let reads = printed.recovered(folder)?;
    let (mut claims, mut departures) = (Vec::new(), Vec::new());
    let (mut shares, mut shares_off) = (0, 0);
    for of in &printed.effects {
        let runs = match of.load {
            Load::Reads => &reads,
            Load::Writes => &writes,
        };
        let analysed = of.analyse(folder, runs, f64::from(printed.clients), &mut sheet)?;
        claims.extend(of.claims(&analysed));
        text.push_str(&analysed.text);
        shares += analysed.shares;
        shares_off += analysed.shares_off;
        if (of.response, of.model) == (Response::Latency, Model::Multiplicative) {
            departures.push((of.load, analysed.departures));
        }
    }
    claims.push(Claim {
        goal: Some(Goal::AtMost(0.0)),
        ..claim(
            "2^3·3 designs: printed shares of variation that do not follow from the effects by the study's weight",
            shares_off as f64,
            "shares",
            shares,
        )
    });
    text.push_str(&printed.by_cell(folder, &reads, &writes, &departures)?);
    Ok(Outcome { claims, sheet, text })
}

impl Printed {
    /// The throughput of reads: its effects, with the mean for which the largest effect on the logarithm is as
    /// printed.
    fn recovered(&self, folder: &Path) -> anyhow::Result<Runs> {
        let table = |model: Model| {
            let wanted = (Load::Reads, Response::Throughput, model);
            let mut tables = self.effects.iter();
            let of = tables.find(|of| (of.load, of.response, of.model) == wanted);
            let of = of.context("config.toml has no effects on the throughput of reads")?;
            allocation::read(folder, &of.file)
        };
        let (effects, logarithms) = (table(Model::Additive)?, table(Model::Multiplicative)?);
        let largest = logarithms.iter().max_by(|a, b| a.value.abs().total_cmp(&b.value.abs()));
        let largest = largest.context("a table of effects is empty")?;
        let ends = [0.0, -largest.half, largest.half].map(|by| largest.value + by);
        let version = |target: f64| -> Vec<Vec<f64>> {
            let mean = mean_for(&effects, largest, target);
            cells(&effects, mean).into_iter().map(|y| vec![y]).collect()
        };
        Ok(Runs {
            versions: Vec::from(ends.map(version)),
            half: 0.0,
            told_by: Some(largest.name.clone()),
        })
    }

    /// Formats the cells of the designs: throughput, and the deviation of latency from N/X.
    fn by_cell(
        &self,
        folder: &Path,
        reads: &Runs,
        writes: &Runs,
        departures: &[(Load, Vec<f64>)],
    ) -> anyhow::Result<String> {
        let levels = Table::read(folder, &self.levels)?;
        let head = ["A", "B", "C", "reads/s", "R: % off N/X", "writes/s", "R: % off N/X"];
        let mut grid = Grid::new("rrrrrrr", &head);
        for cell in 0..CELLS {
            let mut line = Vec::new();
            for (factor, row) in levels.rows().enumerate() {
                let level = if cell >> factor & 1 == 1 { "max" } else { "min" };
                line.push(row.text(level)?.to_owned());
            }
            for (load, runs) in [(Load::Reads, reads), (Load::Writes, writes)] {
                line.push(format!("{:.1}", runs.mean(cell)));
                let off = departures.iter().find(|(of, _)| *of == load);
                let off = off.and_then(|(_, off)| off.get(cell as usize));
                line.push(off.map_or_else(String::new, |off| format!("{off:+.2}")));
            }
            grid.row(line);
        }
        let factors: Vec<String> = levels
            .rows()
            .map(|row| Ok(format!("{}: {}", row.text("factor")?, row.text("parameter")?)))
            .collect::<anyhow::Result<_>>()?;
        Ok(format!(
            "The designs by cell ({}); latency by the effects on its logarithm, the median cell being right\n{}\n",
            factors.join(", "),
            grid.text()
        ))
    }
}

impl Runs {
    /// The mean of a cell's observations.
    fn mean(&self, cell: u32) -> f64 {
        let found = self.versions.first().and_then(|cells| cells.get(cell as usize));
        found.map_or(f64::NAN, |runs| runs.iter().sum::<f64>() / runs.len() as f64)
    }
}

impl Effects {
    fn source(&self) -> Source {
        match (self.load, self.response, self.model) {
            (Load::Writes, Response::Throughput, _) => Source::Runs,
            (Load::Reads, Response::Throughput, Model::Additive) => Source::Given,
            (Load::Reads, Response::Throughput, Model::Multiplicative) => Source::Law("Table 8"),
            (_, Response::Latency, _) => Source::Law("N/X"),
        }
    }

    fn words(&self) -> [&'static str; 3] {
        [
            match self.load {
                Load::Reads => "reads",
                Load::Writes => "writes",
            },
            match self.response {
                Response::Throughput => "throughput",
                Response::Latency => "latency",
            },
            match self.model {
                Model::Additive => "additive",
                Model::Multiplicative => "multiplicative",
            },
        ]
    }

    /// Computes effects from runs, with the range that rounding allows.
    fn computed(&self, runs: &Runs, clients: f64) -> anyhow::Result<(Factorial, Vec<Range>)> {
        let respond = |y: f64| match self.response {
            Response::Throughput => y,
            Response::Latency => clients / y,
        };
        let unit = |y: f64| match self.model {
            Model::Additive => respond(y),
            Model::Multiplicative => respond(y).ln(),
        };
        let form = match self.model {
            Model::Additive => Form::Additive,
            Model::Multiplicative => Form::Multiplicative,
        };
        let mut versions = Vec::new();
        for cells in &runs.versions {
            let responses = |cell: &Vec<f64>| cell.iter().map(|&y| respond(y)).collect();
            let cells: Vec<Vec<f64>> = cells.iter().map(responses).collect();
            let found = Factorial::new(&cells, form, CONFIDENCE);
            versions.push(found.with_context(|| format!("the design of table {}", self.table))?);
        }
        let moved = |&y: &f64| (unit(y + runs.half) - unit(y)).abs();
        let moves: Vec<f64> = runs.versions.iter().take(1).flatten().flatten().map(moved).collect();
        let slack = moves.iter().sum::<f64>() / moves.len() as f64;
        let ours = versions.first().context("a design has no runs")?.clone();
        let range = |i: usize| {
            let values = versions.iter().map(|version| version.effects[i].effect.value);
            Range {
                exact: ours.effects[i].effect.value,
                least: values.clone().fold(f64::INFINITY, f64::min) - slack,
                most: values.fold(f64::NEG_INFINITY, f64::max) + slack,
            }
        };
        let ranges = (0..ours.effects.len()).map(range).collect();
        Ok((ours, ranges))
    }

    /// The fraction explained by errors under the study's weight, and the remark printed beside it.
    fn unexplained(
        &self,
        effects: &[Effect],
        ours: &Factorial,
        sheet: &mut Sheet,
    ) -> (Range, String) {
        let mut left = allocation::left(effects);
        if self.source() == Source::Runs {
            let errors = ours.error_sum_of_squares;
            left = Range::around(allocation::left_of_errors(effects, errors), 0.0);
        }
        let (mut u, mut said) = (left, String::new());
        if let Some(exact) = self.unexplained {
            let printed = exact.to_string();
            let mark = sheet.computed(self.table, "unexplained", &printed, left);
            said = format!("printed {printed} {mark}, ");
            if self.source() != Source::Runs {
                let half = rounding(&printed);
                let (least, most) = (left.least.max(exact - half), left.most.min(exact + half));
                u = Range { exact, least, most };
            }
        } else if self.source() != Source::Runs {
            u.exact = f64::midpoint(left.least, left.most);
        }
        let [exact, least, most] = [u.exact, u.least, u.most].map(allocation::put_right);
        let said = format!(
            "unexplained: {said}{:.4} ({:.4} to {:.4}), put right {exact:.4} ({least:.4} to {most:.4})",
            u.exact, u.least, u.most
        );
        (u, said)
    }

    fn analyse(
        &self,
        folder: &Path,
        runs: &Runs,
        clients: f64,
        sheet: &mut Sheet,
    ) -> anyhow::Result<Analysed> {
        let effects = allocation::read(folder, &self.file)?;
        let (ours, ranges) = self.computed(runs, clients)?;
        let (u, unexplained) = self.unexplained(&effects, &ours, sheet);
        let half_width = allocation::half_width(&effects, u.most);
        let largest = effects.iter().map(|effect| effect.value.abs()).fold(0.0, f64::max);
        let (from, head) = match self.source() {
            Source::Given => ("", ""),
            Source::Runs => ("; effects beside those of the runs", "of runs"),
            Source::Law(law) => ("; effects beside what others tell", law),
        };
        let head = ["effect", "printed", head, "± at most", "", "share", "with 2²", "with 2^k·r"];
        let mut grid = Grid::new("lrrrlrrr", &head);
        let (mut worst, mut shares_off, mut off) = (0.0_f64, 0, Vec::new());
        for (effect, share) in effects.iter().zip(allocation::shares(&effects, u)) {
            let at = ours.effects.iter().position(|ours| ours.name == effect.name);
            let at = at.with_context(|| format!("the design has no effect {:?}", effect.name))?;
            let is = ranges[at];
            off.push(effect.value - is.exact);
            let beyond = (effect.value - is.exact).abs() - effect.half;
            worst = worst.max(beyond / largest * 100.0);
            let recovered = self.response == Response::Throughput
                && runs.told_by.as_ref() == Some(&effect.name);
            let (name, cell) = (format!("q{}", effect.name), &effect.printed);
            let computed = match self.source() {
                Source::Given => String::new(),
                Source::Law(_) if recovered => "taken".to_owned(),
                Source::Runs => sheet.computed(self.table, &name, cell, is),
                Source::Law(law) => {
                    sheet.check_measured(self.table, &name, cell, law, is, NEAR * largest)
                }
            };
            let (name, before) = (format!("share of {}", effect.name), sheet.misprinted.len());
            let weighed = sheet.computed(self.table, &name, &effect.printed_share, share);
            shares_off += sheet.misprinted.len() - before;
            let right = share.exact / (1.0 - u.exact) * (1.0 - allocation::put_right(u.exact));
            let note = if effect.value.abs() > half_width { "" } else { "not significant" };
            let digits = digits(cell);
            grid.row([
                effect.name.clone(),
                cell.clone(),
                computed,
                format!("{half_width:.digits$}"),
                note.to_owned(),
                effect.printed_share.clone(),
                weighed,
                format!("{right:.4}"),
            ]);
        }
        let [load, response, model] = self.words();
        Ok(Analysed {
            text: format!(
                "Table {}: 2^3·3 design, {load}, {response}, {model}{from}\n{unexplained}\n{}\n",
                self.table,
                grid.text()
            ),
            worst,
            shares: effects.len(),
            shares_off,
            departures: departures(&effects, &off),
            ours,
        })
    }

    /// The claims about a table.
    fn claims(&self, analysed: &Analysed) -> Vec<Claim> {
        let [load, response, model] = self.words();
        let design = match self.source() {
            Source::Given => return Vec::new(),
            Source::Runs => format!("2^3·3 design, {model}"),
            Source::Law(_) => format!("2^3·3 design, {load}, {response}, {model}"),
        };
        let mut claims = Vec::new();
        if self.response == Response::Throughput {
            claims.push(Claim {
                goal: Some(Goal::AtMost(DIFFERENCE_PERCENT)),
                ..claim(
                    &format!(
                        "{design}: printed effects, largest difference beyond rounding, of the largest effect"
                    ),
                    analysed.worst,
                    "%",
                    analysed.shares,
                )
            });
        } else if self.model == Model::Multiplicative {
            let largest = analysed.departures.iter().map(|off| off.abs()).fold(0.0, f64::max);
            let name = format!("{design}: the cell that departs most from N = X·R");
            claims.push(claim(&name, largest, "%", analysed.departures.len()));
        }
        if self.source() == Source::Runs && self.model == Model::Multiplicative {
            let ours = &analysed.ours;
            claims.push(Claim {
                published: self.unexplained,
                ..claim(
                    &format!("{design}: share of the variation that is not explained"),
                    ours.error_fraction,
                    "",
                    ours.fitted.len() * ours.replications,
                )
            });
        }
        claims
    }
}

/// The cell means that `effects` give around a grand mean.
fn cells(effects: &[Effect], mean: f64) -> Vec<f64> {
    let cell = |cell: u32| -> f64 { effects.iter().map(|e| e.sign(cell) * e.value).sum() };
    (0..CELLS).map(|at| mean + cell(at)).collect()
}

/// The grand mean for which an effect on the logarithm of cells has the given size; the effect falls as the mean rises.
fn mean_for(effects: &[Effect], of: &Effect, target: f64) -> f64 {
    // All cells are above 0, the least of them almost 0 at the low end.
    let least = cells(effects, 0.0).into_iter().fold(f64::INFINITY, f64::min);
    let (mut low, mut high) = (-least, -least * 1e3);
    for _ in 0..100 {
        let mean = f64::midpoint(low, high);
        let logarithms = cells(effects, mean).into_iter().map(f64::ln);
        let sum: f64 = (0..CELLS).zip(logarithms).map(|(cell, y)| of.sign(cell) * y).sum();
        if sum / f64::from(CELLS) > target {
            low = mean;
        } else {
            high = mean;
        }
    }
    f64::midpoint(low, high)
}

/// Percent by which the given differences of logarithmic effects raise each cell above the median cell.
fn departures(effects: &[Effect], off: &[f64]) -> Vec<f64> {
    let cell = |cell: u32| -> f64 {
        effects.iter().zip(off).map(|(effect, off)| effect.sign(cell) * off).sum()
    };
    let cells: Vec<f64> = (0..CELLS).map(cell).collect();
    let median = quantile(&cells, 0.5).unwrap_or(f64::NAN);
    cells.iter().map(|off| ((off - median).exp() - 1.0) * 100.0).collect()
}

const OBSERVATIONS: u32 = 27;
/// The sign columns that are products of the factors' columns.
const PRODUCTS: [(&str, &[usize]); 5] =
    [("I", &[]), ("xAB", &[0, 1]), ("xBC", &[1, 2]), ("xAC", &[0, 2]), ("xABC", &[0, 1, 2])];

/// The runs of writes, some of whose columns can be computed from others.
fn observations(folder: &Path, file: &str, sheet: &mut Sheet) -> anyhow::Result<(Runs, String)> {
    let table = Table::read(folder, file)?;
    let mut cells = vec![Vec::new(); CELLS as usize];
    let mut half = 0.0_f64;
    let head = [
        "A", "B", "C", "I", "", "AB", "", "BC", "", "AC", "", "ABC", "", "mean/s", "e1", "e2",
        "e3", "-e1-e2",
    ];
    let mut grid = Grid::new("rrrrrrrrrrrrrrrrrr", &head);
    for (index, row) in table.rows().enumerate() {
        let name = |column: &str| format!("row {}, {column}", index + 1);
        let (mut line, mut factors, mut cell) = (Vec::new(), Vec::new(), 0);
        for (bit, column) in ["xA", "xB", "xC"].into_iter().enumerate() {
            line.push(row.text(column)?.to_owned());
            factors.push(row.number(column)?);
            cell |= usize::from(row.number(column)? > 0.0) << bit;
        }
        for (column, of) in PRODUCTS {
            let is = Range::around(of.iter().map(|&factor| factors[factor]).product(), 0.0);
            let sign = row.text(column)?;
            line.push(sign.to_owned());
            line.push(sheet.computed(OBSERVATIONS, &name(column), sign, is));
        }
        let ((mean, mean_half), (e1, e1_half), (e2, e2_half)) = (
            row.number_and_half("y_mean")?,
            row.number_and_half("e1")?,
            row.number_and_half("e2")?,
        );
        for column in ["y_mean", "e1", "e2", "e3"] {
            line.push(row.text(column)?.to_owned());
        }
        let is = Range::around(-e1 - e2, e1_half + e2_half);
        line.push(sheet.computed(OBSERVATIONS, &name("e3"), row.text("e3")?, is));
        cells[cell].extend([mean + e1, mean + e2, mean + row.number("e3")?]);
        half = half.max(mean_half + e1_half);
        grid.row(line);
    }
    let text = format!(
        "Table {OBSERVATIONS}: the design; signs beside their products, errors beside what makes their sum 0\n{}\n",
        grid.text()
    );
    Ok((Runs { versions: vec![cells], half, told_by: None }, text))
}

/// A claim about a computed figure.
pub(super) fn claim(name: &str, value: f64, unit: &str, samples: usize) -> Claim {
    Claim::counted(name, value, unit, samples as u64)
}
