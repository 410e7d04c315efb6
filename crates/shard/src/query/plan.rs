//! Which of a filter's literals to look up, and the records that they lead to.
//!
//! Of alternatives all are looked up; of several conditions that must all hold the one with the fewest
//! occurrences, and of the others those that have few enough occurrences for it to pay: locating one
//! takes about as long as extracting a few tens of bytes, reading a record as long as extracting all of it.

use std::collections::HashMap;
use std::ops::Range;

use super::filter::{Filter, Literal, Numbers};
use crate::record::Records;
use crate::{Error, Text};

/// Occurrences that are worth locating to spare the reading of one record.
const OCCURRENCES_PER_RECORD: usize = 8;
/// Rows that are located at once.
const ROWS_MAX: usize = 1 << 16;

/// A filter whose literals are counted.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing to look up: any record.
    All,
    Leaf(Leaf),
    /// By rising cost.
    And(Vec<Plan>),
    Or(Vec<Plan>),
}

/// What leads to records at once.
#[derive(Clone, Debug)]
pub enum Leaf {
    Record(usize),
    /// Occurrences of a literal of `len` bytes, of which `skip` are before the record.
    Rows {
        rows: Range<usize>,
        skip: usize,
        len: usize,
    },
    /// Entries of an attribute's table of numbers.
    Numbers(Numbers),
}

impl Leaf {
    /// Occurrences, or entries.
    pub fn cost(&self) -> usize {
        match self {
            Self::Record(_) => 1,
            Self::Rows { rows, .. } => rows.len(),
            Self::Numbers(numbers) => numbers.entries.len(),
        }
    }

    /// The part of `len` occurrences after the first `done`; less where there are not as many.
    pub fn part(&self, done: usize, len: usize) -> Self {
        let part = |all: &Range<usize>| {
            let start = all.end.min(all.start + done);
            start..all.end.min(start + len)
        };
        match self {
            Self::Record(record) => Self::Record(*record),
            Self::Rows { rows, skip, len } => {
                Self::Rows { rows: part(rows), skip: *skip, len: *len }
            }
            Self::Numbers(Numbers { attribute, entries }) => {
                let (attribute, entries) = (attribute.clone(), part(entries));
                Self::Numbers(Numbers { attribute, entries })
            }
        }
    }
}

impl Plan {
    /// Counts the literals of all filters in one batch.
    pub fn of_all<T: Text + ?Sized>(text: &T, filters: &[Filter]) -> Vec<Self> {
        let mut ids = HashMap::new();
        filters.iter().for_each(|filter| collect(filter, &mut ids));
        let mut patterns = vec![&[][..]; ids.len()];
        for (bytes, &id) in &ids {
            patterns[id] = bytes;
        }
        let rows = text.rows_of_all(&patterns);
        filters.iter().map(|filter| Self::of(filter, &ids, &rows)).collect()
    }

    fn of(filter: &Filter, ids: &HashMap<&[u8], usize>, rows: &[Range<usize>]) -> Self {
        let each = |filters: &[Filter]| -> Vec<Self> {
            filters.iter().map(|filter| Self::of(filter, ids, rows)).collect()
        };
        match filter {
            Filter::All => Self::All,
            Filter::Record(record) => Self::Leaf(Leaf::Record(*record)),
            Filter::Numbers(numbers) => Self::Leaf(Leaf::Numbers(numbers.clone())),
            Filter::Literal(Literal { bytes, skip }) => {
                let rows = ids.get(&bytes[..]).and_then(|&id| rows.get(id)).cloned();
                let (skip, len) = (*skip, bytes.len());
                Self::Leaf(Leaf::Rows { rows: rows.unwrap_or_default(), skip, len })
            }
            Filter::And(filters) => {
                let mut plans = each(filters);
                plans.sort_by_key(Self::cost);
                Self::And(plans)
            }
            Filter::Or(filters) => {
                let mut plans = each(filters);
                plans.retain(|plan| plan.cost() > 0);
                Self::Or(plans)
            }
        }
    }

    /// Occurrences to locate; `usize::MAX` where every record has to be read.
    pub fn cost(&self) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Leaf(leaf) => leaf.cost(),
            Self::And(plans) => plans.first().map_or(usize::MAX, Self::cost),
            Self::Or(plans) => plans.iter().fold(0, |sum, plan| sum.saturating_add(plan.cost())),
        }
    }

    /// The leaves that together lead to every candidate, of conditions that must all hold those of the
    /// rarest; `None` where every record is one.
    pub fn leaves(&self) -> Option<Vec<Leaf>> {
        match self {
            Self::All => None,
            Self::Leaf(leaf) => Some(vec![leaf.clone()]),
            Self::And(plans) => plans.first()?.leaves(),
            Self::Or(plans) => {
                let leaves: Option<Vec<_>> = plans.iter().map(Self::leaves).collect();
                Some(leaves?.concat())
            }
        }
    }
}

fn collect<'a>(filter: &'a Filter, ids: &mut HashMap<&'a [u8], usize>) {
    match filter {
        Filter::All | Filter::Record(_) | Filter::Numbers(_) => {}
        Filter::Literal(literal) => {
            let next = ids.len();
            ids.entry(&literal.bytes).or_insert(next);
        }
        Filter::And(filters) | Filter::Or(filters) => {
            filters.iter().for_each(|filter| collect(filter, ids));
        }
    }
}

/// Turns plans into records, and counts the occurrences located for it.
pub struct Lookup<'a, T: ?Sized> {
    pub text: &'a T,
    pub records: &'a Records,
    pub located: usize,
    pub located_max: usize,
    offsets: Vec<usize>,
}

impl<'a, T: Text + ?Sized> Lookup<'a, T> {
    pub fn new(text: &'a T, records: &'a Records, located_max: usize) -> Self {
        Self { text, records, located: 0, located_max, offsets: Vec::new() }
    }

    /// The candidates in order, each once; `None` where every record is one.
    ///
    /// # Errors
    ///
    /// [`Error::TooMuchWork`] if more would have to be located than may be.
    pub fn candidates(&mut self, plan: &Plan) -> Result<Option<Vec<u32>>, Error> {
        match plan {
            Plan::All => Ok(None),
            Plan::Leaf(leaf) => {
                let mut ids = Vec::new();
                self.records_of(leaf, &mut ids)?;
                Ok(Some(ids))
            }
            Plan::Or(plans) => {
                let mut ids = Vec::new();
                for plan in plans {
                    let Some(more) = self.candidates(plan)? else { return Ok(None) };
                    ids.extend(more);
                }
                ids.sort_unstable();
                ids.dedup();
                Ok(Some(ids))
            }
            Plan::And(plans) => {
                let mut kept: Option<Vec<u32>> = None;
                for plan in plans {
                    let worth = kept
                        .as_ref()
                        .map_or(usize::MAX, |ids| ids.len().saturating_mul(OCCURRENCES_PER_RECORD));
                    if kept.is_some() && plan.cost() > worth {
                        break;
                    }
                    kept = match (kept, self.candidates(plan)?) {
                        (Some(ids), Some(others)) => Some(intersection(&ids, &others)),
                        (ids, others) => ids.or(others),
                    };
                }
                Ok(kept)
            }
        }
    }

    /// Appends the records that a leaf leads to, in order, each once.
    pub fn records_of(&mut self, leaf: &Leaf, ids: &mut Vec<u32>) -> Result<(), Error> {
        self.allow(leaf.cost())?;
        match leaf {
            Leaf::Record(record) => ids.push(*record as u32),
            Leaf::Numbers(Numbers { attribute, entries }) => {
                let order = self.records.order(attribute);
                let found = entries.clone().filter_map(|entry| order?.record(entry));
                ids.extend(found.map(|record| record as u32));
            }
            Leaf::Rows { rows, skip, len } => {
                let mut start = rows.start;
                while start < rows.end {
                    let end = rows.end.min(start + ROWS_MAX);
                    self.locate(start..end, *skip, *len, ids);
                    start = end;
                }
            }
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(())
    }

    /// Counts occurrences that are about to be located, unless they are too many.
    fn allow(&mut self, occurrences: usize) -> Result<(), Error> {
        self.located = self.located.saturating_add(occurrences);
        if self.located > self.located_max {
            return Err(Error::TooMuchWork {
                what: "occurrences to locate",
                count: self.located,
                max: self.located_max,
                remedy: "ask for something rarer, for fewer records unsorted, or raise the limit",
            });
        }
        Ok(())
    }

    /// Appends the records of some rows of a literal: those occurrences that lie within one record.
    fn locate(&mut self, rows: Range<usize>, skip: usize, len: usize, ids: &mut Vec<u32>) {
        self.offsets.clear();
        self.text.locate(rows, &mut self.offsets);
        self.offsets.sort_unstable();
        // Neighbours are often of one record: it is looked up once.
        let mut current = (0, 0..0);
        for &offset in &self.offsets {
            let start = offset + skip;
            if !current.1.contains(&start) {
                let Some(record) = self.records.record_of(start) else { continue };
                let Some(range) = self.records.range(record) else { continue };
                current = (record, range);
            }
            if offset + len <= current.1.end && ids.last() != Some(&(current.0 as u32)) {
                ids.push(current.0 as u32);
            }
        }
    }
}

/// Of two ascending lists.
fn intersection(few: &[u32], many: &[u32]) -> Vec<u32> {
    let mut rest = many;
    few.iter()
        .copied()
        .filter(|id| {
            rest = &rest[rest.partition_point(|other| other < id)..];
            rest.first() == Some(id)
        })
        .collect()
}
