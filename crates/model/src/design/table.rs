//! Runs sorted into the cells of a design.

use std::collections::BTreeMap;

use serde::Serialize;

use super::fraction::Fraction;
use super::letters::FACTORS_MAX;
use super::variation::CELLS_MAX;
use crate::error::{Error, check};

/// One run of an experiment, an input of [`Table::new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The level of each factor, as text.
    pub levels: Vec<String>,
    /// The measured response.
    pub response: f64,
}

/// A factor and its levels, in [`Table::factors`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Factor {
    /// The factor's name.
    pub name: String,
    /// Its levels: ascending if all are numbers, otherwise in the order of the runs. Of two levels,
    /// the first is low (−1) and the second high (+1).
    pub levels: Vec<String>,
}

/// All runs at one combination of levels, in [`Table::cells`].
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The index of each factor's level.
    pub levels: Vec<usize>,
    /// The responses.
    pub responses: Vec<f64>,
    /// The position of each response in the order of runs, from 0.
    pub runs: Vec<usize>,
}

/// A table of runs: the factors, and the cells that have a run, the first factor's level changing
/// fastest (the standard order of Jain, "The Art of Computer Systems Performance Analysis", 1991,
/// chapter 17).
///
/// It reports what an analysis cannot handle: missing cells and unequal replications. Levels that
/// are numbers are ordered by value; "10" and "10.0" together are an error. Cost: a few searches
/// for each run.
///
/// ```
/// use model::design::{Run, Table};
/// let run = |cache: &str, disks: &str, response| {
///     Run { levels: vec![cache.to_owned(), disks.to_owned()], response }
/// };
/// let names = ["cache".to_owned(), "disks".to_owned()];
/// let runs = [run("on", "10", 9.0), run("off", "10", 3.0), run("on", "2", 5.0)];
/// let table = Table::new(&names, &runs)?;
/// assert_eq!(table.factors()[1].levels, ["2", "10"]);
/// assert!(table.complete().unwrap_err().to_string().contains("cache = off, disks = 2"));
/// # Ok::<(), model::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    factors: Vec<Factor>,
    cells: Vec<Cell>,
}

impl Table {
    /// Sorts runs into cells. Every factor needs at least two levels; responses must be finite.
    pub fn new(names: &[String], runs: &[Run]) -> Result<Table, Error> {
        let wrong = |what: &str, why: String| Err(Error::Design { what: what.to_owned(), why });
        if !(1..=FACTORS_MAX).contains(&names.len()) {
            let why = format!("{} where 1 to {FACTORS_MAX} can be analysed", names.len());
            return wrong("the number of factors", why);
        }
        if runs.len() > CELLS_MAX {
            let why = format!("{} where at most {CELLS_MAX} can be analysed", runs.len());
            return wrong("the number of runs", why);
        }
        for (i, run) in runs.iter().enumerate() {
            check("a response", run.response, f64::MIN..=f64::MAX, "a finite number")?;
            if run.levels.len() != names.len() {
                let why = format!("{} levels for {} factors", run.levels.len(), names.len());
                return wrong(&format!("run {}", i + 1), why);
            }
        }
        let factor = |(i, name): (usize, &String)| factor(name, runs.iter().map(|r| &r.levels[i]));
        let factors: Vec<Factor> =
            names.iter().enumerate().map(factor).collect::<Result<_, _>>()?;
        let mut cells: BTreeMap<Vec<usize>, Cell> = BTreeMap::new();
        let index: Vec<BTreeMap<&str, usize>> = factors
            .iter()
            .map(|f| f.levels.iter().enumerate().map(|(i, l)| (l.as_str(), i)).collect())
            .collect();
        for (place, run) in runs.iter().enumerate() {
            let levels: Vec<usize> =
                run.levels.iter().zip(&index).map(|(l, of)| of[&**l]).collect();
            // The last factor changes slowest, so it comes first in the key.
            let key = levels.iter().rev().copied().collect();
            let cell = cells.entry(key).or_insert_with(|| Cell {
                levels,
                responses: Vec::new(),
                runs: Vec::new(),
            });
            cell.responses.push(run.response);
            cell.runs.push(place);
        }
        Ok(Table { factors, cells: cells.into_values().collect() })
    }

    /// The factors.
    pub fn factors(&self) -> &[Factor] {
        &self.factors
    }

    /// The cells that have a run.
    pub fn cells(&self) -> &[Cell] {
        &self.cells
    }

    /// The responses of each cell.
    pub fn responses(&self) -> Vec<Vec<f64>> {
        self.cells.iter().map(|cell| cell.responses.clone()).collect()
    }

    /// The positions in the order of runs, by cell.
    pub fn places(&self) -> Vec<Vec<usize>> {
        self.cells.iter().map(|cell| cell.runs.clone()).collect()
    }

    /// The text of a combination of levels.
    pub fn name(&self, levels: &[usize]) -> String {
        let part = |(f, &l): (&Factor, &usize)| {
            format!("{} = {}", f.name, f.levels.get(l).map_or("?", String::as_str))
        };
        self.factors.iter().zip(levels).map(part).collect::<Vec<_>>().join(", ")
    }

    /// Whether every factor has two levels.
    pub(crate) fn two_levels(&self) -> bool {
        self.factors.iter().all(|f| f.levels.len() == 2)
    }

    /// Checks that every cell has as many runs as the others.
    pub fn balanced(&self) -> Result<(), Error> {
        let Some(first) = self.cells.first() else { return Ok(()) };
        let expected = first.runs.len();
        match self.cells.iter().find(|cell| cell.runs.len() != expected) {
            None => Ok(()),
            Some(odd) => Err(Error::Unbalanced {
                cell: self.name(&odd.levels),
                got: odd.runs.len(),
                other: self.name(&first.levels),
                expected,
            }),
        }
    }

    /// Checks that every combination of levels has a run.
    pub fn complete(&self) -> Result<(), Error> {
        let sizes: Vec<usize> = self.factors.iter().map(|f| f.levels.len()).collect();
        let cells = sizes.iter().fold(1usize, |n, l| n.saturating_mul(*l));
        if cells == self.cells.len() {
            return Ok(());
        }
        // Cells are in standard order, so the first unexpected one follows a gap.
        let mut at = vec![0; sizes.len()];
        for cell in &self.cells {
            if cell.levels != at {
                break;
            }
            for (level, size) in at.iter_mut().zip(&sizes) {
                *level += 1;
                if *level < *size {
                    break;
                }
                *level = 0;
            }
        }
        let missing = cells - self.cells.len();
        Err(Error::MissingCells { first: self.name(&at), missing, cells })
    }

    /// The regular fraction of a two-level design that the runs form, if they do.
    pub fn fraction(&self) -> Option<Fraction> {
        if !self.two_levels() {
            return None;
        }
        Fraction::from_runs(self.factors.len(), &self.masks()).ok()
    }

    /// For each cell of a two-level design, the factors at their high level, one bit for each.
    pub fn masks(&self) -> Vec<u32> {
        let mask = |cell: &Cell| {
            cell.levels.iter().enumerate().map(|(i, &level)| u32::from(level == 1) << i).sum()
        };
        self.cells.iter().map(mask).collect()
    }
}

fn factor<'a>(name: &str, values: impl Iterator<Item = &'a String>) -> Result<Factor, Error> {
    let mut seen = std::collections::BTreeSet::new();
    let mut levels: Vec<String> = values.filter(|v| seen.insert(v.as_str())).cloned().collect();
    if levels.len() < 2 {
        let what = format!("factor {name}");
        let why = match levels.first() {
            Some(only) => format!("it is {only} in every run; vary it, or leave it out"),
            None => "it has no runs; add some".to_owned(),
        };
        return Err(Error::Design { what, why });
    }
    let number = |level: &String| level.trim().parse::<f64>().ok().filter(|x| x.is_finite());
    if let Some(numbers) = levels.iter().map(number).collect::<Option<Vec<f64>>>() {
        let mut order: Vec<usize> = (0..levels.len()).collect();
        order.sort_by(|&a, &b| numbers[a].total_cmp(&numbers[b]));
        if let Some(two) = order.windows(2).find(|two| numbers[two[0]] == numbers[two[1]]) {
            let why = format!(
                "{} and {} are one number; write a level in one way",
                levels[two[0]], levels[two[1]]
            );
            return Err(Error::Design { what: format!("factor {name}"), why });
        }
        levels = order.into_iter().map(|i| levels[i].clone()).collect();
    }
    Ok(Factor { name: name.to_owned(), levels })
}
