//! Chooses which literals of a filter to look up, and finds the candidate records.
//!
//! Of alternatives, all are looked up. Of conditions that must all hold, the one with the fewest
//! occurrences is looked up, and others if their occurrences are few enough to save time: locating
//! one takes about as long as extracting a few tens of bytes, reading a record as long as
//! extracting all of it.
//!
//! A record found by a sufficient literal (see `filter`) is certain, and is not read.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use memchr::memchr;

use super::filter::{Beside, Filter, Literal, Numbers};
use super::pattern::Bounds;
use crate::bits::elias_fano::EliasFano;
use crate::boundary::is_of_words;
use crate::error::Error;
use crate::record::{Records, stanza};
use crate::text::Text;
use crate::words::Lists;

/// The number of occurrences that take as long to locate as one record takes to read.
const OCCURRENCES_PER_RECORD: usize = 8;
/// The number of occurrences whose neighbouring bytes are extracted together.
const LOOKED_AT_ONCE: usize = 1024;
/// The number of plain occurrences that take as long to locate as one whose preceding bytes must be
/// read too.
const OCCURRENCES_PER_VALUE: usize = 4;
/// The number of bytes read before an occurrence to find the start of its field: most lines of
/// package records are shorter.
const FIELD_BYTES: usize = 128;
/// The number of records of a list that take as long to read off as one occurrence takes to locate.
const LISTED_PER_OCCURRENCE: usize = 64;
/// Maximum number of rows to locate at once: it bounds the memory of a look-up.
const ROWS_MAX: usize = 1 << 16;

/// A record that may match. Ordered by record, certain candidates first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    record: u32,
    has_doubt: bool,
}

impl Candidate {
    pub fn new(record: usize, is_certain: bool) -> Self {
        Self { record: record as u32, has_doubt: !is_certain }
    }

    pub fn record(self) -> usize {
        self.record as usize
    }

    pub fn is_certain(self) -> bool {
        !self.has_doubt
    }
}

/// Sorts and removes duplicates. A record is certain if any of its duplicates was.
fn tidy(candidates: &mut Vec<Candidate>) {
    candidates.sort_unstable();
    candidates.dedup_by_key(|candidate| candidate.record);
}

/// A filter whose literals have been counted.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Nothing to look up: every record is a candidate.
    All,
    Leaf(Leaf),
    /// In order of increasing cost.
    And(Vec<Plan>),
    Or(Vec<Plan>),
}

/// A source of candidates.
#[derive(Clone, Debug)]
pub enum Leaf {
    Record(usize),
    /// Occurrences of a literal of `len` bytes, of which the first `skip` precede the record.
    Rows {
        rows: Range<usize>,
        skip: usize,
        len: usize,
        is_certain: bool,
        beside: Option<Beside>,
    },
    /// Entries of an attribute's table of numbers.
    Numbers(Numbers),
    /// The part `range` of the list of a frequent word's records.
    List {
        list: Arc<EliasFano>,
        range: Range<usize>,
        is_certain: bool,
    },
}

impl Leaf {
    /// Occurrences, or entries.
    pub fn cost(&self) -> usize {
        match self {
            Self::Record(_) => 1,
            Self::Rows { rows, .. } => rows.len(),
            Self::Numbers(numbers) => numbers.entries.len(),
            // Read off in order, where an occurrence is walked to.
            Self::List { range, .. } => range.len().div_ceil(LISTED_PER_OCCURRENCE),
        }
    }

    /// Whether all its candidates are certain.
    fn is_certain(&self) -> bool {
        match self {
            Self::Record(_) => false,
            Self::Rows { is_certain, .. } => *is_certain,
            Self::Numbers(numbers) => numbers.certain == numbers.entries,
            Self::List { is_certain, .. } => *is_certain,
        }
    }

    /// The part of up to `len` occurrences after the first `done`.
    pub fn part(&self, done: usize, len: usize) -> Self {
        let part = |all: &Range<usize>| {
            let start = all.end.min(all.start + done);
            start..all.end.min(start + len)
        };
        match self {
            Self::Record(record) => Self::Record(*record),
            Self::Rows { rows, skip, len, is_certain, beside } => {
                let (skip, len, is_certain, beside) = (*skip, *len, *is_certain, beside.clone());
                Self::Rows { rows: part(rows), skip, len, is_certain, beside }
            }
            Self::Numbers(numbers) => {
                Self::Numbers(Numbers { entries: part(&numbers.entries), ..numbers.clone() })
            }
            Self::List { list, range, is_certain } => {
                let (done, len) = (done * LISTED_PER_OCCURRENCE, len * LISTED_PER_OCCURRENCE);
                let start = range.end.min(range.start + done);
                let range = start..range.end.min(start + len);
                Self::List { list: list.clone(), range, is_certain: *is_certain }
            }
        }
    }

    /// The same records, none of them certain.
    fn doubtful(&self) -> Self {
        match self.clone() {
            Self::Rows { rows, skip, len, beside, .. } => {
                Self::Rows { rows, skip, len, is_certain: false, beside }
            }
            Self::Numbers(numbers) => Self::Numbers(Numbers { certain: 0..0, ..numbers }),
            Self::List { list, range, .. } => Self::List { list, range, is_certain: false },
            leaf @ Self::Record(_) => leaf,
        }
    }
}

impl Plan {
    /// Counts the literals of all filters in one batch. Of frequent words that have a list, the list is taken.
    pub fn of_all<T: Text + ?Sized>(
        text: &T,
        filters: &[Filter],
        lists: Option<&Lists<'_>>,
    ) -> Vec<Self> {
        let mut ids = HashMap::new();
        filters.iter().for_each(|filter| collect(filter, &mut ids));
        let mut patterns = vec![&[][..]; ids.len()];
        for (bytes, &id) in &ids {
            patterns[id] = bytes;
        }
        let rows = text.rows_of_all(&patterns);
        filters.iter().map(|filter| Self::from_filter(filter, &ids, &rows, lists)).collect()
    }

    fn from_filter(
        filter: &Filter,
        ids: &HashMap<&[u8], usize>,
        rows: &[Range<usize>],
        lists: Option<&Lists<'_>>,
    ) -> Self {
        let each = |filters: &[Filter]| -> Vec<Self> {
            filters.iter().map(|filter| Self::from_filter(filter, ids, rows, lists)).collect()
        };
        match filter {
            Filter::All => Self::All,
            Filter::Record(record) => Self::Leaf(Leaf::Record(*record)),
            Filter::Numbers(numbers) => Self::Leaf(Leaf::Numbers(numbers.clone())),
            Filter::Literal(literal) => {
                if let Some(list) = list_of(literal, lists) {
                    return Self::Leaf(list);
                }
                let Literal { bytes, skip, doubts, beside } = literal;
                let rows_of = |bytes: &[u8]| {
                    ids.get(bytes).and_then(|&id| rows.get(id)).cloned().unwrap_or_default()
                };
                let doubts = doubts.as_ref().map(|all| all.iter().map(|way| rows_of(way)));
                let doubts = doubts.map(Iterator::collect);
                Self::of_rows(&rows_of(bytes), *skip, bytes.len(), beside, doubts)
            }
            Filter::Rarest(filters) => {
                each(filters).into_iter().min_by_key(Self::work).unwrap_or(Self::All)
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

    /// The rows of a literal, separated from those of its doubts: longer literals that start with
    /// it, whose rows are among its own.
    fn of_rows(
        all: &Range<usize>,
        skip: usize,
        len: usize,
        beside: &Option<Beside>,
        doubts: Option<Vec<Range<usize>>>,
    ) -> Self {
        let leaf = |rows, is_certain| {
            Self::Leaf(Leaf::Rows { rows, skip, len, is_certain, beside: beside.clone() })
        };
        let Some(mut doubts) = doubts else { return leaf(all.clone(), false) };
        doubts.retain(|rows| !rows.is_empty());
        if doubts.is_empty() {
            return leaf(all.clone(), true);
        }
        doubts.sort_unstable_by_key(|rows| rows.start);
        let mut leaves = Vec::new();
        let mut start = all.start;
        for doubt in doubts {
            leaves.push(leaf(start..doubt.start, true));
            start = doubt.end;
            leaves.push(leaf(doubt, false));
        }
        leaves.push(leaf(start..all.end, true));
        leaves.retain(|leaf| leaf.cost() > 0);
        Self::Or(leaves)
    }

    /// The number of occurrences to locate; `usize::MAX` if every record must be read.
    pub fn cost(&self) -> usize {
        match self {
            Self::All => usize::MAX,
            Self::Leaf(leaf) => leaf.cost(),
            Self::And(plans) => plans.first().map_or(usize::MAX, Self::cost),
            Self::Or(plans) => plans.iter().fold(0, |sum, plan| sum.saturating_add(plan.cost())),
        }
    }

    /// The same, plus the cost of reading uncertain records and the bytes before occurrences, in
    /// units of located occurrences.
    pub fn work(&self) -> usize {
        if let Self::Leaf(Leaf::Rows { rows, beside: Some(Beside::Attribute(_)), .. }) = self {
            return rows.len().saturating_mul(OCCURRENCES_PER_VALUE);
        }
        let reads = match self {
            Self::Or(plans) => {
                return plans.iter().fold(0, |sum, plan| sum.saturating_add(plan.work()));
            }
            Self::Leaf(leaf) if leaf.is_certain() => 0,
            Self::All | Self::Leaf(_) | Self::And(_) => self.cost(),
        };
        self.cost().saturating_add(reads.saturating_mul(OCCURRENCES_PER_RECORD))
    }

    /// Whether the occurrences counted say little of how many records match: all of several
    /// conditions must hold.
    pub fn is_conjunction(&self) -> bool {
        match self {
            Self::All | Self::And(_) => true,
            Self::Leaf(_) => false,
            Self::Or(plans) => plans.iter().any(Self::is_conjunction),
        }
    }

    /// An alternative plan for a page far smaller than the number of occurrences of a word of an
    /// attribute: does not read the bytes before each occurrence, and limits the number of records
    /// read (at an eighth of that cost). If most of the word's records match, the page needs few
    /// reads; otherwise these reads are wasted.
    pub fn by_reading(&self, limit: usize) -> Option<(Self, usize)> {
        let Self::Leaf(Leaf::Rows { rows, skip, len, beside: Some(Beside::Attribute(_)), .. }) =
            self
        else {
            return None;
        };
        let reads_max = rows.len() * OCCURRENCES_PER_VALUE / (8 * OCCURRENCES_PER_RECORD);
        let (rows, skip, len) = (rows.clone(), *skip, *len);
        let leaf = Leaf::Rows { rows, skip, len, is_certain: false, beside: None };
        (limit.saturating_mul(2) <= reads_max).then_some((Self::Leaf(leaf), reads_max))
    }

    /// The leaves that together lead to every candidate; for conditions that must all hold, those
    /// of the rarest. `None` if every record is a candidate.
    pub fn leaves(&self) -> Option<Vec<Leaf>> {
        match self {
            Self::All => None,
            Self::Leaf(leaf) => Some(vec![leaf.clone()]),
            Self::And(plans) => {
                let leaves = plans.first()?.leaves()?;
                Some(leaves.iter().map(Leaf::doubtful).collect())
            }
            Self::Or(plans) => {
                let leaves: Option<Vec<_>> = plans.iter().map(Self::leaves).collect();
                Some(leaves?.concat())
            }
        }
    }
}

/// The list of the records with a literal, if it has one and the place of an occurrence does not matter.
fn list_of(literal: &Literal, lists: Option<&Lists<'_>>) -> Option<Leaf> {
    let Literal { bytes, skip: 0, doubts, beside: None } = literal else { return None };
    let is_certain = doubts.as_ref().is_some_and(Vec::is_empty);
    if !is_certain && doubts.is_some() {
        return None;
    }
    let list = Arc::new(lists?.get(bytes)?);
    let range = 0..list.len();
    Some(Leaf::List { list, range, is_certain })
}

fn collect<'a>(filter: &'a Filter, ids: &mut HashMap<&'a [u8], usize>) {
    match filter {
        Filter::All | Filter::Record(_) | Filter::Numbers(_) => {}
        Filter::Literal(literal) => {
            for bytes in std::iter::once(&literal.bytes).chain(literal.doubts.iter().flatten()) {
                let next = ids.len();
                ids.entry(bytes).or_insert(next);
            }
        }
        Filter::And(filters) | Filter::Or(filters) | Filter::Rarest(filters) => {
            filters.iter().for_each(|filter| collect(filter, ids));
        }
    }
}

/// Finds the candidates of plans, and counts the occurrences located.
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

    /// Returns the candidates in order without duplicates; `None` if nothing can be looked up, or
    /// the number of occurrences to locate exceeds the limit, so that every record is a candidate.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the records belong to another text.
    pub fn candidates(&mut self, plan: &Plan) -> Result<Option<Vec<Candidate>>, Error> {
        // For `And` and `Or`, this is a lower bound: their parts are checked again.
        if !self.may_locate(plan.cost()) {
            return Ok(None);
        }
        match plan {
            Plan::All => Ok(None),
            Plan::Leaf(leaf) => {
                let mut found = Vec::new();
                self.records_of(leaf, &mut found)?;
                Ok(Some(found))
            }
            Plan::Or(plans) => {
                let mut found = Vec::new();
                for plan in plans {
                    let Some(more) = self.candidates(plan)? else { return Ok(None) };
                    found.extend(more);
                }
                tidy(&mut found);
                Ok(Some(found))
            }
            Plan::And(plans) => self.candidates_of_all(plans),
        }
    }

    /// The candidates of conditions that must all hold. Only the first condition, the rarest, must
    /// be looked up; others that cost too much are checked when the records are read.
    fn candidates_of_all(&mut self, plans: &[Plan]) -> Result<Option<Vec<Candidate>>, Error> {
        let Some((rarest, others)) = plans.split_first() else { return Ok(None) };
        let Some(mut kept) = self.candidates(rarest)? else { return Ok(None) };
        for plan in others {
            let is_worth_it = plan.cost() <= kept.len().saturating_mul(OCCURRENCES_PER_RECORD);
            let many = if is_worth_it { self.candidates(plan)? } else { None };
            let Some(many) = many else {
                // This condition has not been checked, so no candidate is certain.
                kept.iter_mut().for_each(|candidate| candidate.has_doubt = true);
                break;
            };
            kept = intersection(&kept, &many);
        }
        Ok(Some(kept))
    }

    /// Whether this many more occurrences are within the limit.
    pub fn may_locate(&self, occurrences: usize) -> bool {
        self.located.saturating_add(occurrences) <= self.located_max
    }

    /// Appends the records of a leaf; afterwards `found` is sorted without duplicates. The caller
    /// must have checked [`may_locate`](Self::may_locate).
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the records belong to another text.
    pub fn records_of(&mut self, leaf: &Leaf, found: &mut Vec<Candidate>) -> Result<(), Error> {
        self.located = self.located.saturating_add(leaf.cost());
        match leaf {
            Leaf::Record(record) => found.push(Candidate::new(*record, false)),
            Leaf::Numbers(Numbers { attribute, entries, certain }) => {
                let order = self.records.order(attribute);
                found.extend(entries.clone().filter_map(|entry| {
                    Some(Candidate::new(order?.record(entry)?, certain.contains(&entry)))
                }));
            }
            Leaf::List { list, range, is_certain } => {
                let listed = list.iter_from(range.start).take(range.len());
                found.extend(listed.map(|record| Candidate::new(record as usize, *is_certain)));
            }
            Leaf::Rows { rows, skip, len, is_certain, beside } => {
                let mut start = rows.start;
                while start < rows.end {
                    let end = rows.end.min(start + ROWS_MAX);
                    self.locate(start..end, *skip, *len, *is_certain, beside.as_ref(), found)?;
                    start = end;
                }
            }
        }
        tidy(found);
        Ok(())
    }

    /// Appends the records of some rows of a literal: those of occurrences that lie within one
    /// record and meet the `beside` condition.
    fn locate(
        &mut self,
        rows: Range<usize>,
        skip: usize,
        len: usize,
        is_certain: bool,
        beside: Option<&Beside>,
        found: &mut Vec<Candidate>,
    ) -> Result<(), Error> {
        self.offsets.clear();
        self.text.locate(rows, &mut self.offsets);
        self.offsets.sort_unstable();
        // Adjacent occurrences are often in one record, which is then looked up once.
        let mut current = (0, 0..0);
        let mut occurrences = Vec::new();
        for &offset in &self.offsets {
            let (start, end) = (offset + skip, offset + len);
            if !current.1.contains(&start) {
                let Some(record) = self.records.record_of(start) else { continue };
                let Some(range) = self.records.range(record) else { continue };
                current = (record, range);
            }
            if end > current.1.end {
                continue;
            }
            let candidate = Candidate::new(current.0, is_certain);
            let (before, after) = match beside {
                Some(Beside::Word(_)) => (1, 1),
                Some(Beside::Attribute(_)) => (FIELD_BYTES, 0),
                None => {
                    if found.last() != Some(&candidate) {
                        found.push(candidate);
                    }
                    continue;
                }
            };
            let before = offset.saturating_sub(before).max(current.1.start)..offset;
            let is_from_start = before.start == current.1.start;
            let beside = [before, end..current.1.end.min(end + after)];
            occurrences.push(Occurrence { candidate, beside, is_from_start });
        }
        if let Some(beside) = beside {
            self.keep(beside, &occurrences, found)?;
        }
        Ok(())
    }

    /// Appends the candidates of occurrences that the bytes beside them do not exclude.
    fn keep(
        &self,
        beside: &Beside,
        occurrences: &[Occurrence],
        found: &mut Vec<Candidate>,
    ) -> Result<(), Error> {
        let mut bytes = Vec::new();
        for some in occurrences.chunks(LOOKED_AT_ONCE) {
            let ranges: Vec<_> = some.iter().flat_map(|one| one.beside.clone()).collect();
            bytes.clear();
            self.text.extract_all(&ranges, &mut bytes)?;
            let mut rest = &bytes[..];
            for Occurrence { candidate, beside: ranges, is_from_start } in some {
                let len = ranges.iter().map(ExactSizeIterator::len).sum();
                let (read, after) = rest.split_at_checked(len).unwrap_or((rest, &[]));
                rest = after;
                let says = match beside {
                    Beside::Word(bounds) => is_word_between(read, *bounds),
                    Beside::Attribute(name) => is_value_after(read, *is_from_start, name),
                };
                if says != Some(false) {
                    let has_doubt = candidate.has_doubt || says.is_none();
                    found.push(Candidate { has_doubt, ..*candidate });
                }
            }
        }
        Ok(())
    }
}

/// An occurrence in a record, and the ranges to read before and after it.
struct Occurrence {
    candidate: Candidate,
    beside: [Range<usize>; 2],
    /// Whether the first range starts at the record's start.
    is_from_start: bool,
}

/// Whether the bytes before and after an occurrence make it a whole word; `None` if they do not
/// decide.
fn is_word_between(beside: &[u8], bounds: Bounds) -> Option<bool> {
    let is_bounded = !beside.iter().any(|byte| is_of_words(*byte));
    let is_certain = !is_bounded || bounds == Bounds::Ascii || beside.is_ascii();
    is_certain.then_some(is_bounded)
}

/// Whether the byte after these bytes of a stanza is in a value of the attribute; `None` if they do
/// not decide.
fn is_value_after(before: &[u8], is_from_start: bool, attribute: &str) -> Option<bool> {
    let field = stanza::open_field(before, is_from_start)?;
    let name = memchr(b':', field).map(|colon| &field[..colon]);
    Some(name == Some(attribute.as_bytes()))
}

/// The intersection of two ascending lists. A record is certain if it is certain in both.
fn intersection(few: &[Candidate], many: &[Candidate]) -> Vec<Candidate> {
    let mut rest = many;
    let both = few.iter().filter_map(|&candidate| {
        rest = &rest[rest.partition_point(|other| other.record < candidate.record)..];
        let other = rest.first().filter(|other| other.record == candidate.record)?;
        Some(Candidate { has_doubt: candidate.has_doubt || other.has_doubt, ..candidate })
    });
    both.collect()
}
