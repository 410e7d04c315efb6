//! Finds the records of a query, a page at a time, with bounded work.
//!
//! A sorted page (the default) locates every occurrence of the query's rarest literal, then reads
//! the candidates in ascending order, except those that are certain to match, until the page is
//! full. An unsorted page locates occurrences only until enough records match: ten records of a
//! frequent word cost ten records, but such a page has no next page.
//!
//! A query that has nothing to look up, or for which more occurrences than [`Limits::located_max`]
//! would have to be located, is answered by a scan: records are read in order, in batches, until
//! the page is full or [`Limits::read_bytes_max`] are read. So is one for which a sorted page takes
//! less time that way: a count of very many occurrences, or the first page of a common word, which is
//! read off the records from where it begins ([`Searcher::pages_by_reading`]).
//!
//! For a word of an attribute of stanzas, a small sorted page is first tried by reading the first
//! few candidates. If they do not fill the page, the bytes before each occurrence decide which
//! attribute the occurrence belongs to.

use std::collections::HashSet;
use std::ops::Range;

use super::condition::{Condition, Query, Test};
use super::filter::{Beside, Filter, Literal, filter};
use super::pattern::Bounds;
use super::plan::{Candidate, Leaf, Lookup, Plan};
use crate::error::Error;
use crate::record::Records;
use crate::text::Text;
use crate::words::Lists;

/// Maximum number of records that an unsorted search extracts together.
const BATCH_RECORDS: usize = 32;
/// The same for a sorted search: a scan of all records keeps the index's lanes busy.
const BATCH_RECORDS_MAX: usize = 1 << 13;
/// Maximum total size of the records of a batch, unless the batch is a single record.
pub(super) const BATCH_BYTES: usize = 1 << 20;

/// The number of bytes that take as long to scan as one occurrence takes to locate. Measured with the
/// package records of `docs/benchmarks.md`, without layers.
const BYTES_PER_OCCURRENCE: usize = 16;
/// The same for the start of a text, where a page is filled: with the package records of `docs/benchmarks.md` an
/// occurrence takes 0.75 to 1.15 µs to locate and a byte of records 0.02 µs to read. A page stops where half of that is
/// spent, so that the whole takes at most half as long again where the word is rarer at the start.
const PAGE_BYTES_PER_OCCURRENCE: usize = 40;
/// The number of occurrences that are located whatever the size of the text: they take a millisecond.
const LOCATED_ALWAYS: usize = 1 << 12;

/// Limits on the work of one search. The defaults are for interactive use: a search takes seconds
/// at worst, or tens of seconds for a word of an attribute that occurs millions of times, because
/// each occurrence is examined. A scan is not refused but ends: a page with a place to go on from,
/// a count with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of occurrences to locate. A query that needs more is answered by a scan of
    /// the records.
    pub located_max: usize,
    /// Maximum number of records to read. At the limit, a page ends early and can be continued; a
    /// count is an error.
    pub verified_max: usize,
    /// The same in bytes of these records. By default the largest shard that an import makes unless
    /// told otherwise, so that each of its queries is answered.
    pub read_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        let (located_max, verified_max) = (10_000_000, usize::MAX);
        Self { located_max, verified_max, read_bytes_max: 256 << 20 }
    }
}

impl Limits {
    /// No limits: for a process that a person waits for, and can end.
    pub const NONE: Self =
        Self { located_max: 10_000_000, verified_max: usize::MAX, read_bytes_max: usize::MAX };
}

/// The part of the answer to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Maximum number of records.
    pub limit: usize,
    /// Only records after this one: [`Answer::next`] of the page before.
    pub after: Option<usize>,
    /// Whether records are returned in ascending order. Otherwise the first ones found are
    /// returned, and there is no next page.
    pub sorted: bool,
}

impl Default for Page {
    /// The first 100 records in ascending order.
    fn default() -> Self {
        Self { limit: 100, after: None, sorted: true }
    }
}

/// One page of records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The records; ascending if they were asked for sorted.
    pub records: Vec<usize>,
    /// [`Page::after`] of the next page; `None` if there is no more. A page may be short, or empty,
    /// and have a next.
    pub next: Option<usize>,
    /// Whether there may be more than this page has.
    pub has_more: bool,
    /// Number of located occurrences.
    pub located: usize,
    /// Number of records that were read.
    pub verified: usize,
    /// Bytes of the records that were read.
    pub read_bytes: usize,
}

/// Told of each batch of records that a search has read: their bytes.
pub type Watch<'a> = &'a dyn Fn(usize);

/// Finds records in a text. Borrows everything, so that one can be created for each request.
pub struct Searcher<'a, T: ?Sized> {
    text: &'a T,
    records: &'a Records,
    limits: Limits,
    watch: Option<Watch<'a>>,
    lists: Option<Lists<'a>>,
}

impl<'a, T: Text + ?Sized> Searcher<'a, T> {
    /// # Errors
    ///
    /// [`Error::Damaged`] if the records are those of another text.
    pub fn new(text: &'a T, records: &'a Records) -> Result<Self, Error> {
        if text.len() != records.text_len() {
            let what = format!(
                "the records cover {} bytes, but the text has {}",
                records.text_len(),
                text.len()
            );
            return Err(Error::Damaged { section: "records", what });
        }
        Ok(Self { text, records, limits: Limits::default(), watch: None, lists: None })
    }

    /// Searches with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Uses the lists of frequent words.
    #[must_use]
    pub(crate) fn with_lists(mut self, lists: Lists<'a>) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Tells `watch` the progress of searches.
    #[must_use]
    pub fn watched(mut self, watch: Option<Watch<'a>>) -> Self {
        self.watch = watch;
        self
    }

    /// The bytes of a record, exactly as in the input.
    ///
    /// # Errors
    ///
    /// [`Error::NoRecord`] if the number is not below the number of records.
    pub fn get(&self, record: usize) -> Result<Vec<u8>, Error> {
        let mut all = self.get_all(&[record])?;
        Ok(all.pop().unwrap_or_default())
    }

    /// [`get`](Self::get) of many: extracted together.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get), for the first number that is not below the number of records.
    pub fn get_all(&self, records: &[usize]) -> Result<Vec<Vec<u8>>, Error> {
        let mut originals = Vec::with_capacity(records.len());
        self.read(records, |_, bytes| {
            originals.push(self.records.schema().original(bytes).to_vec());
        })?;
        Ok(originals)
    }

    /// The first record whose key is `key`.
    ///
    /// # Errors
    ///
    /// [`Error::Schema`] if the records have no key.
    pub fn get_by_key(&self, key: &[u8]) -> Result<Option<usize>, Error> {
        let attribute = self.records.schema().key.clone();
        let attribute = Some(attribute.ok_or_else(|| {
            Error::Schema(
                "the records have no key attribute; search for another attribute instead"
                    .to_owned(),
            )
        })?);
        let query = Query::Test(Test { attribute, condition: Condition::Equals(key.to_vec()) });
        let mut page = Page { limit: 1, ..Page::default() };
        loop {
            let answer = self.search(&query, &page)?;
            match (answer.records.first(), answer.next) {
                (None, Some(_)) => page.after = answer.next,
                (first, _) => return Ok(first.copied()),
            }
        }
    }

    /// A page of the records that match.
    ///
    /// # Errors
    ///
    /// [`Error::NoAttribute`] for a name that no record can have.
    pub fn search(&self, query: &Query, page: &Page) -> Result<Answer, Error> {
        let filter = self.prepare(query)?;
        let plan =
            Plan::of_all(self.text, &[filter], self.lists.as_ref()).pop().unwrap_or(Plan::All);
        self.answer(query, &plan, page)
    }

    /// How many records match.
    ///
    /// # Errors
    ///
    /// As [`search`](Self::search); and [`Error::TooMuchWork`] if more than the limits allow would
    /// have to be read.
    pub fn count(&self, query: &Query) -> Result<usize, Error> {
        if *query == Query::All {
            return Ok(self.records.len());
        }
        if let Some(known) = self.known_count(&self.prepare(query)?) {
            return Ok(known);
        }
        let answer = self.search(query, &Page { limit: usize::MAX, after: None, sorted: true })?;
        if answer.has_more {
            let is_bytes = answer.verified < self.limits.verified_max;
            return Err(Error::TooMuchWork {
                what: if is_bytes { "bytes of records to read" } else { "records to read" },
                count: if is_bytes { self.text.len() } else { self.records.len() },
                max: if is_bytes { self.limits.read_bytes_max } else { self.limits.verified_max },
                remedy: "add a word that matching records contain",
            });
        }
        Ok(answer.records.len())
    }

    /// The stored count of a frequent string or whole word, if it alone decides.
    fn known_count(&self, filter: &Filter) -> Option<usize> {
        let Filter::Literal(Literal { bytes, skip: 0, doubts: Some(doubts), beside }) = filter
        else {
            return None;
        };
        let lists = self.lists.as_ref().filter(|_| doubts.is_empty())?;
        match beside {
            None => lists.counts.get(bytes),
            Some(Beside::Word(Bounds::Unicode)) => lists.whole_counts.get(bytes),
            // Of ASCII's bounds, for which a letter of Unicode is none, nothing is stored.
            Some(Beside::Word(Bounds::Ascii) | Beside::Attribute(_)) => None,
        }
    }

    /// Whether certainly no record has the attribute: its name occurs nowhere.
    pub fn lacks(&self, attribute: &str) -> bool {
        let condition = Condition::Contains(Vec::new());
        let query = Query::Test(Test { attribute: Some(attribute.to_owned()), condition });
        let plans = Plan::of_all(self.text, &[filter(&query, self.records)], None);
        plans.iter().all(|plan| plan.cost() == 0)
    }

    fn prepare(&self, query: &Query) -> Result<Filter, Error> {
        self.check(query)?;
        Ok(filter(query, self.records))
    }

    /// Rejects attribute names that no record can have: most often they are typing errors.
    fn check(&self, query: &Query) -> Result<(), Error> {
        let schema = self.records.schema();
        match query {
            Query::All => Ok(()),
            Query::Not(query) => self.check(query),
            Query::And(queries) | Query::Or(queries) => {
                queries.iter().try_for_each(|query| self.check(query))
            }
            Query::Test(Test { attribute: Some(name), .. })
                if schema.is_closed()
                    && !schema.names.is_empty()
                    && !schema.names.contains(name) =>
            {
                Err(Error::NoAttribute { name: name.clone(), known: schema.names.join(", ") })
            }
            Query::Test(_) => Ok(()),
        }
    }

    fn answer(&self, query: &Query, plan: &Plan, page: &Page) -> Result<Answer, Error> {
        if let Some((plan, reads_max)) = plan.by_reading(page.limit).filter(|_| page.sorted) {
            let verified_max = reads_max.min(self.limits.verified_max);
            let reader = Searcher { limits: Limits { verified_max, ..self.limits }, ..*self };
            let answer = reader.answer(query, &plan, page)?;
            if answer.records.len() == page.limit || !answer.has_more {
                return Ok(answer);
            }
        }
        if page.sorted && self.is_faster_scanned(plan) {
            return self.scan(query, page);
        }
        if let Some(answer) = self.pages_by_reading(query, plan, page)? {
            return Ok(answer);
        }
        let mut lookup = Lookup::new(self.text, self.records, self.limits.located_max);
        let leaves = if page.sorted { None } else { plan.leaves() };
        let found = match leaves {
            Some(leaves) => self.unsorted(query, &leaves, &mut lookup, page)?,
            None => match lookup.candidates(plan)? {
                Some(found) => {
                    let is_done =
                        |c: &Candidate| page.after.is_some_and(|after| c.record() <= after);
                    let from = found.partition_point(is_done);
                    Some(self.sorted(query, found[from..].iter().copied(), page)?)
                }
                None => None,
            },
        };
        let mut answer = match found {
            Some(answer) => answer,
            None => self.scan(query, page)?,
        };
        if !page.sorted {
            answer.next = None;
        }
        answer.located = lookup.located;
        Ok(answer)
    }

    /// Whether a scan of all records takes less time than the look-ups of a plan, and is within the
    /// limits.
    fn is_faster_scanned(&self, plan: &Plan) -> bool {
        self.records.len() <= self.limits.verified_max
            && self.text.len() <= self.limits.read_bytes_max
            && plan.work() > (self.text.len() / BYTES_PER_OCCURRENCE).max(LOCATED_ALWAYS)
    }

    /// A sorted page of a common word, read off the records from where the page begins, if that most
    /// likely takes less than half of the time in which all occurrences are located: a page then costs
    /// what it shows. Gives up once it took that time, because the word is rare there, so that the
    /// whole takes at most half as long again.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`] if the records belong to another text.
    fn pages_by_reading(
        &self,
        query: &Query,
        plan: &Plan,
        page: &Page,
    ) -> Result<Option<Answer>, Error> {
        let (occurrences, work) = (plan.cost(), plan.work());
        if !page.sorted || plan.is_conjunction() || work <= LOCATED_ALWAYS {
            return Ok(None);
        }
        let read_bytes_max = work.saturating_mul(PAGE_BYTES_PER_OCCURRENCE) / 2;
        let between = self.text.len() / occurrences.max(1);
        let expected = between.max(self.text.len() / self.records.len().max(1));
        if expected.saturating_mul(page.limit) > read_bytes_max {
            return Ok(None);
        }
        let read_bytes_max = read_bytes_max.min(self.limits.read_bytes_max);
        let reader = Searcher { limits: Limits { read_bytes_max, ..self.limits }, ..*self };
        let answer = reader.scan(query, page)?;
        let is_whole = answer.records.len() == page.limit || !answer.has_more;
        Ok(is_whole.then_some(answer))
    }

    /// Reads the records one after the other: those of a query that has nothing to look up, or for
    /// which more occurrences than the limit would have to be located. Takes the memory of one
    /// batch.
    fn scan(&self, query: &Query, page: &Page) -> Result<Answer, Error> {
        let is_certain = *query == Query::All;
        let from = page.after.map_or(0, |after| after.saturating_add(1));
        let all = (from..self.records.len()).map(|record| Candidate::new(record, is_certain));
        self.sorted(query, all, page)
    }

    /// Reads candidates in order until the page is full or the work done.
    fn sorted(
        &self,
        query: &Query,
        candidates: impl ExactSizeIterator<Item = Candidate>,
        page: &Page,
    ) -> Result<Answer, Error> {
        let mut candidates = candidates.peekable();
        let mut answer = Answer::default();
        let mut batch = Vec::new();
        let mut last = None;
        let mut most = page.limit.clamp(4, BATCH_RECORDS_MAX);
        while candidates.len() > 0 && answer.records.len() < page.limit {
            if !self.next_batch(&mut candidates, most, &answer, &mut batch) {
                break;
            }
            last = batch.last().map(|candidate| candidate.record()).or(last);
            let before = answer.records.len();
            self.judge(query, &batch, &mut answer)?;
            // Not many more than the page still takes if most candidates match, and ever more at a
            // time if few do.
            let few_match = (answer.records.len() - before) * 2 < batch.len();
            let room = page.limit.saturating_sub(answer.records.len()).max(4);
            most = if few_match { room.max(2 * most) } else { room }.min(BATCH_RECORDS_MAX);
            if answer.records.len() > page.limit {
                answer.records.truncate(page.limit);
                last = answer.records.last().copied();
                answer.has_more = true;
            }
        }
        answer.has_more |= candidates.len() > 0;
        answer.next = last.filter(|_| answer.has_more);
        Ok(answer)
    }

    /// Locates occurrences, in growing steps, until the page is full; `None` if that takes more of
    /// them than the limit.
    fn unsorted(
        &self,
        query: &Query,
        leaves: &[Leaf],
        lookup: &mut Lookup<'_, T>,
        page: &Page,
    ) -> Result<Option<Answer>, Error> {
        let mut answer = Answer::default();
        let mut seen = HashSet::new();
        let mut steps = Steps::new(leaves, page.limit);
        let mut found = Vec::new();
        let mut batch = Vec::new();
        while answer.records.len() < page.limit {
            let Some(step) = steps.next() else { break };
            if !lookup.may_locate(step.cost()) {
                return Ok(None);
            }
            found.clear();
            lookup.records_of(&step, &mut found)?;
            // One that was read and did not match never will; one that is met again was certain, or
            // was read.
            let is_new = |candidate: &Candidate| {
                let record = candidate.record();
                page.after.is_none_or(|after| record > after) && seen.insert(record)
            };
            let new: Vec<Candidate> = found.iter().copied().filter(is_new).collect();
            let mut new = new.into_iter().peekable();
            while new.len() > 0 && answer.records.len() < page.limit {
                if !self.next_batch(&mut new, BATCH_RECORDS, &answer, &mut batch) {
                    answer.has_more = true;
                    return Ok(Some(answer));
                }
                self.judge(query, &batch, &mut answer)?;
            }
            answer.has_more |= new.len() > 0;
        }
        answer.has_more |= answer.records.len() > page.limit || steps.next().is_some();
        answer.records.truncate(page.limit);
        Ok(Some(answer))
    }

    /// Fills `batch` with the next candidates, at most `most`, of which no more have to be read
    /// than may be extracted together; `false` if the next would have to be read and none may any
    /// more.
    fn next_batch(
        &self,
        candidates: &mut std::iter::Peekable<impl Iterator<Item = Candidate>>,
        most: usize,
        answer: &Answer,
        batch: &mut Vec<Candidate>,
    ) -> bool {
        batch.clear();
        let (mut records, mut bytes) = (0, 0);
        let records_max = most.min(self.limits.verified_max - answer.verified);
        let bytes_left = self.limits.read_bytes_max.saturating_sub(answer.read_bytes);
        // A record that is longer than the limit is read nevertheless, or no page would get past it.
        let is_first = answer.read_bytes == 0;
        while let Some(&candidate) = candidates.peek() {
            if batch.len() >= most {
                break;
            }
            if !candidate.is_certain() {
                bytes += self.records.range(candidate.record()).map_or(0, |range| range.len());
                let is_full = records > 0 && bytes > BATCH_BYTES;
                let is_past = bytes > bytes_left && (records > 0 || !is_first);
                if records >= records_max || is_full || is_past {
                    break;
                }
                records += 1;
            }
            batch.push(candidate);
            candidates.next();
        }
        !batch.is_empty()
    }

    /// Takes those that match into the answer, in their order. Only what is not certain is read.
    fn judge(&self, query: &Query, batch: &[Candidate], answer: &mut Answer) -> Result<(), Error> {
        let schema = self.records.schema();
        let doubtful = batch.iter().filter(|candidate| !candidate.is_certain());
        let doubtful: Vec<usize> = doubtful.map(|candidate| candidate.record()).collect();
        answer.verified += doubtful.len();
        let mut fit = HashSet::new();
        let before = answer.read_bytes;
        self.read(&doubtful, |record, bytes| {
            answer.read_bytes += bytes.len();
            if query.matches(schema, bytes) {
                fit.insert(record);
            }
        })?;
        if let Some(watch) = self.watch {
            watch(answer.read_bytes - before);
        }
        let taken = batch.iter().filter(|c| c.is_certain() || fit.contains(&c.record()));
        answer.records.extend(taken.map(|candidate| candidate.record()));
        Ok(())
    }

    /// Extracts records together, and shows them one by one.
    fn read(&self, records: &[usize], mut visit: impl FnMut(usize, &[u8])) -> Result<(), Error> {
        let range = |&record: &usize| {
            let none = Error::NoRecord { record, records: self.records.len() };
            self.records.range(record).ok_or(none)
        };
        let ranges: Vec<Range<usize>> = records.iter().map(range).collect::<Result<_, _>>()?;
        let mut bytes = Vec::new();
        self.text.extract_all(&joined(&ranges), &mut bytes)?;
        let mut rest = &bytes[..];
        for (&record, range) in records.iter().zip(&ranges) {
            let Some((one, after)) = rest.split_at_checked(range.len()) else { break };
            visit(record, one);
            rest = after;
        }
        Ok(())
    }
}

/// The same bytes in the same order, in as few ranges as possible: an index walks through the
/// border of two ranges twice.
fn joined(ranges: &[Range<usize>]) -> Vec<Range<usize>> {
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => joined.push(range.clone()),
        }
    }
    joined
}

/// The occurrences of leaves, a few at a time: twice as many each time.
struct Steps<'a> {
    leaves: &'a [Leaf],
    /// Occurrences of the first leaf that are done.
    done: usize,
    size: usize,
}

impl<'a> Steps<'a> {
    fn new(leaves: &'a [Leaf], limit: usize) -> Self {
        Self { leaves, done: 0, size: limit.clamp(16, 1 << 12) }
    }
}

impl Iterator for Steps<'_> {
    type Item = Leaf;

    fn next(&mut self) -> Option<Leaf> {
        loop {
            let (leaf, others) = self.leaves.split_first()?;
            if self.done >= leaf.cost() {
                (self.leaves, self.done) = (others, 0);
                continue;
            }
            let part = leaf.part(self.done, self.size);
            self.done += part.cost();
            self.size = (2 * self.size).min(1 << 14);
            return Some(part);
        }
    }
}
