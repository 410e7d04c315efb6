//! What is asked of a dataset, and what its parts answer. The same for a node, whose parts are its own, and
//! for a gateway, which asks nodes.
//!
//! *Order of asking.* A page is often full after the first part; so that is asked alone, and all others
//! together after it. Counts are asked of all at once.

use std::collections::BTreeSet;
use std::ops::Range;

use anyhow::{Context, bail, ensure};
use model::window::Operation;
use serde::{Deserialize, Serialize};
use shard::Text;
use shard::query::{Condition, Pattern, Query, Test};

use dataset::manifest::Manifest;
use dataset::part::{Part, Run};
use dataset::{Dataset, Found, Wanted, key_query};

/// Records of a page, if the request does not say how many.
const LIMIT: usize = 10;
/// Records of a page at most.
const LIMIT_MAX: usize = 10_000;
/// Bytes of the records of a page: past it, the page is short and says that there is more.
const PAGE_BYTES_MAX: usize = 16 << 20;
/// Parts that are asked for their pages at once: so many pages may be held.
const PAGES_AT_ONCE: usize = 16;
/// Bytes of one extract.
const EXTRACT_BYTES_MAX: u64 = 16 << 20;
/// The name of the part that holds what is in no shard yet.
pub const LOG: &str = "log";

/// A question that reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// A page of the records that match.
    Records { query: Query, wanted: Wanted },
    /// A record.
    Record { id: u64 },
    /// How many records match.
    Count { query: Query },
    /// How often some bytes occur in the shards.
    Occurrences { bytes: Vec<u8> },
    /// Bytes of the text of the shards.
    Extract { range: Range<u64> },
    /// The records with these ids, as they came; fewer than that at a time.
    Export { ids: Range<u64> },
}

/// An answer, of a part or of the whole.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Ask::Records`].
    Page(Page),
    /// To [`Ask::Count`] and [`Ask::Occurrences`].
    Count { count: u64 },
    /// To [`Ask::Record`] and [`Ask::Extract`]; `None` where there is no such record.
    Bytes(Option<Vec<u8>>),
    /// To [`Ask::Export`].
    Run(Run),
}

/// Records that match.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// In the order of their ids, if they were asked for sorted.
    pub records: Vec<Record>,
    /// What the next page is after.
    pub next: Option<u64>,
    /// Whether there may be more.
    pub has_more: bool,
    /// Occurrences that were located.
    pub located: usize,
    /// Records that were read to be certain.
    pub verified: usize,
    /// Parts that could not be asked; only where that was allowed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Whether it ends where it does because of its bytes: what follows must not be put behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broke_off: bool,
}

/// A record with its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: u64,
    /// Its bytes.
    #[serde(flatten)]
    pub content: Content,
}

/// The bytes of a record: text where they are text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Record(String),
    /// Other bytes.
    Bytes(Vec<u8>),
}

/// The pairs of a query string, decoded.
pub fn pairs(query: &str) -> Vec<(String, Vec<u8>)> {
    let decode = |text: &str| -> Vec<u8> {
        percent_encoding::percent_decode_str(&text.replace('+', " ")).collect()
    };
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (name.to_owned(), decode(value))
        })
        .collect()
}

/// The text of a value of a query string.
pub fn text<'a>(name: &str, value: &'a [u8]) -> anyhow::Result<&'a str> {
    std::str::from_utf8(value).with_context(|| format!("{name} is not text in UTF-8"))
}

fn number<T: std::str::FromStr>(name: &str, value: &[u8]) -> anyhow::Result<T> {
    let text = text(name, value)?;
    text.parse().ok().with_context(|| format!("{name} must be a whole number, not {text:?}"))
}

impl Ask {
    /// Reads `records`, `records/ID`, `count`, `extract` or `export` with its query string; `None` for another
    /// path. `schema` is what the key of a record is found by.
    ///
    /// # Errors
    ///
    /// What is wrong with it, for who asked.
    pub fn parse(path: &str, query: &str, manifest: &Manifest) -> anyhow::Result<Option<Ask>> {
        let given = pairs(query);
        let known: &[&str] = match path {
            "records" => &["query", "key", "pattern", "limit", "after", "sorted", "partial"],
            "count" => &["query", "bytes"],
            "extract" => &["offset", "len"],
            "export" => &["from", "to"],
            _ => &[],
        };
        let is_record = path.strip_prefix("records/");
        if known.is_empty() && is_record.is_none() {
            return Ok(None);
        }
        if let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            bail!("{name:?} is none of: {}", known.join(", "));
        }
        let value = |name: &str| given.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_slice());
        let required = |name: &str| value(name).with_context(|| format!("{name} is missing"));
        if let Some(id) = is_record {
            return Ok(Some(Ask::Record { id: number("the id", id.as_bytes())? }));
        }
        Ok(Some(match path {
            "records" => {
                let query = match (value("query"), value("key"), value("pattern")) {
                    (Some(query), None, None) => text("query", query)?.parse()?,
                    (None, Some(key), None) => key_query(&manifest.schema, text("key", key)?)?,
                    (None, None, Some(pattern)) => {
                        let pattern = Pattern::new(text("pattern", pattern)?)?;
                        let condition = Condition::Matches(pattern);
                        Query::Test(Test { attribute: None, condition })
                    }
                    _ => bail!("give one of query, key and pattern"),
                };
                let limit = value("limit").map_or(Ok(LIMIT), |limit| number("limit", limit))?;
                ensure!(
                    (1..=LIMIT_MAX).contains(&limit),
                    "limit must be a number from 1 to {LIMIT_MAX}"
                );
                let after = value("after").map(|after| number("after", after)).transpose()?;
                let sorted = match value("sorted") {
                    None | Some(b"true") => true,
                    Some(b"false") if after.is_none() => false,
                    Some(b"false") => bail!("what is not sorted has no next page: leave out after"),
                    Some(_) => bail!("sorted must be true or false"),
                };
                Ask::Records { query, wanted: Wanted { limit, after, sorted } }
            }
            "count" => match (value("query"), value("bytes")) {
                (Some(query), None) => Ask::Count { query: text("query", query)?.parse()? },
                (None, Some(bytes)) => Ask::Occurrences { bytes: bytes.to_vec() },
                _ => bail!("give one of query and bytes"),
            },
            "export" => {
                let id = |name: &str, none: u64| {
                    value(name).map_or(Ok(none), |given| number::<u64>(name, given))
                };
                let (from, to) = (id("from", 0)?, id("to", u64::MAX)?);
                ensure!(from <= to, "from must not be greater than to");
                Ask::Export { ids: from..to }
            }
            _ => {
                let start: u64 = number("offset", required("offset")?)?;
                let len: u64 = number("len", required("len")?)?;
                ensure!(len <= EXTRACT_BYTES_MAX, "len must be at most {EXTRACT_BYTES_MAX}");
                let end = start.checked_add(len).context("that ends past the largest offset")?;
                let all: u64 = manifest.shards.iter().map(|shard| shard.input_bytes).sum();
                ensure!(
                    end <= all,
                    "bytes {start} to {end} are not within the {all} bytes of the shards"
                );
                Ask::Extract { range: start..end }
            }
        }))
    }

    /// What kind of request it is.
    pub fn operation(&self) -> Operation {
        match self {
            Ask::Records { .. } => Operation::Search,
            Ask::Record { .. } => Operation::Get,
            Ask::Count { .. } | Ask::Occurrences { .. } => Operation::Count,
            Ask::Extract { .. } | Ask::Export { .. } => Operation::Extract,
        }
    }

    /// The parts that have to be asked, in order.
    pub fn parts(&self, manifest: &Manifest) -> Vec<String> {
        let all = || manifest.shards.iter();
        let names = |shards: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            shards.map(|file| part_of(file).to_owned()).collect()
        };
        let mut parts = match self {
            Ask::Record { id } => {
                let holds = |s: &&dataset::manifest::ShardEntry| {
                    (s.first_id..s.first_id + s.records).contains(id)
                };
                names(&mut all().filter(holds).map(|s| s.file.as_str()))
            }
            Ask::Extract { range } => {
                let mut start = 0;
                names(&mut all().filter_map(|shard| {
                    let place = start..start + shard.input_bytes;
                    start = place.end;
                    let meets = place.start < range.end && range.start < place.end;
                    meets.then_some(shard.file.as_str())
                }))
            }
            Ask::Export { ids } => {
                // One without records may have a header.
                let holds = |s: &&dataset::manifest::ShardEntry| {
                    (s.first_id..s.first_id.saturating_add(s.records.max(1))).contains(&ids.start)
                };
                names(&mut all().filter(holds).map(|s| s.file.as_str()))
            }
            Ask::Records { wanted, .. } => {
                let after = wanted.after;
                let further = |s: &&dataset::manifest::ShardEntry| {
                    after.is_none_or(|after| after.saturating_add(1) < s.first_id + s.records)
                };
                names(&mut all().filter(further).map(|s| s.file.as_str()))
            }
            Ask::Count { .. } | Ask::Occurrences { .. } => {
                names(&mut all().map(|s| s.file.as_str()))
            }
        };
        let log = match self {
            Ask::Records { .. } | Ask::Count { .. } => true,
            Ask::Record { id } => *id >= manifest.end_id(),
            Ask::Export { ids } => ids.start >= manifest.end_id(),
            Ask::Occurrences { .. } | Ask::Extract { .. } => false,
        };
        parts.extend(log.then(|| LOG.to_owned()));
        parts
    }

    /// What a shard of a dataset answers.
    ///
    /// # Errors
    ///
    /// As the functions of [`Part`].
    pub fn of_shard(&self, dataset: &Dataset, part: &Part) -> anyhow::Result<Answer> {
        Ok(match self {
            Ask::Records { query, wanted } => {
                page(dataset, part.search(query, wanted, dataset.deleted())?, |id| part.stored(id))?
            }
            Ask::Record { id } => record(dataset, *id, || part.stored(*id))?,
            Ask::Count { query } => Answer::Count { count: part.count(query, dataset.deleted())? },
            Ask::Occurrences { bytes } => {
                Answer::Count { count: part.shard().index().count(bytes) as u64 }
            }
            Ask::Extract { range } => {
                let before = dataset.manifest().shards.iter();
                let before = before.take_while(|shard| shard.file != part.entry().file);
                let start: u64 = before.map(|shard| shard.input_bytes).sum();
                let end = start + part.entry().input_bytes;
                let (from, to) = (range.start.max(start), range.end.min(end));
                let mut bytes = Vec::new();
                if from < to {
                    let (offset, len) = ((from - start) as usize, (to - from) as usize);
                    part.shard().index().extract(offset, len, &mut bytes)?;
                }
                Answer::Bytes(Some(bytes))
            }
            Ask::Export { ids } => Answer::Run(part.run(ids.clone(), dataset.deleted())?),
        })
    }

    /// What the log of a dataset answers.
    ///
    /// # Errors
    ///
    /// None that there should be.
    pub fn of_log(&self, dataset: &Dataset) -> anyhow::Result<Answer> {
        Ok(match self {
            Ask::Records { query, wanted } => {
                page(dataset, dataset.search_log(query, wanted), |id| dataset.stored(id))?
            }
            Ask::Record { id } if *id < dataset.end_id() => {
                record(dataset, *id, || dataset.stored(*id))?
            }
            Ask::Count { query } => Answer::Count { count: dataset.count_log(query) },
            Ask::Occurrences { .. } => Answer::Count { count: 0 },
            Ask::Record { .. } | Ask::Extract { .. } => Answer::Bytes(None),
            Ask::Export { ids } => Answer::Run(dataset.run_of_log(ids.clone())),
        })
    }
}

/// The part of a shard's file: its number.
pub fn part_of(file: &str) -> &str {
    file.strip_suffix(".shard").unwrap_or(file)
}

fn record(
    dataset: &Dataset,
    id: u64,
    stored: impl FnOnce() -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Answer> {
    if dataset.deleted().contains(&id) {
        return Ok(Answer::Bytes(None));
    }
    Ok(Answer::Bytes(Some(dataset.schema().original(&stored()?).to_vec())))
}

fn page(
    dataset: &Dataset,
    found: Found,
    stored: impl Fn(u64) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Answer> {
    let Found { ids, has_more, located, verified, .. } = found;
    let mut page = Page { has_more, located, verified, ..Page::default() };
    let mut bytes = 0;
    for id in ids {
        let stored = stored(id)?;
        let original = dataset.schema().original(&stored).to_vec();
        let content = String::from_utf8(original).map(Content::Record);
        let content = content.unwrap_or_else(|error| Content::Bytes(error.into_bytes()));
        if !page.push(Record { id, content }, &mut bytes) {
            break;
        }
    }
    Ok(Answer::Page(page))
}

impl Record {
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Record(text) => text.len(),
            Content::Bytes(bytes) => bytes.len(),
        }
    }
}

impl Answer {
    /// Bytes of it, about.
    pub fn bytes(&self) -> u64 {
        match self {
            Answer::Page(page) => page.bytes() as u64,
            Answer::Count { .. } => 8,
            Answer::Bytes(bytes) => bytes.as_ref().map_or(0, |bytes| bytes.len() as u64),
            Answer::Run(run) => run.bytes.len() as u64,
        }
    }
}

impl Page {
    /// Whether no further part can add to it.
    fn is_full(&self, limit: usize) -> bool {
        self.broke_off || self.records.len() >= limit
    }

    fn bytes(&self) -> usize {
        self.records.iter().map(Record::bytes).sum()
    }

    /// Takes a record, unless the page has so many bytes that it breaks off before it. `bytes` are those that
    /// it has.
    fn push(&mut self, record: Record, bytes: &mut usize) -> bool {
        *bytes += record.bytes();
        if *bytes > PAGE_BYTES_MAX && !self.records.is_empty() {
            (self.has_more, self.broke_off) = (true, true);
            return false;
        }
        self.records.push(record);
        true
    }

    fn append(&mut self, further: Page, limit: usize) {
        let room = limit.saturating_sub(self.records.len());
        self.has_more |= further.has_more || further.records.len() > room;
        self.located += further.located;
        self.verified += further.verified;
        self.missing.extend(further.missing);
        if self.broke_off {
            return;
        }
        let mut bytes = self.bytes();
        for record in further.records.into_iter().take(room) {
            if !self.push(record, &mut bytes) {
                return;
            }
        }
        self.broke_off = further.broke_off;
    }
}

/// Who asks parts.
pub trait AskParts {
    /// Why a part has no answer.
    type Error;
    /// Whether that is because of the question, which other parts would refuse too.
    fn refuses(error: &Self::Error) -> bool;
    /// Asks a part.
    fn ask(
        &self,
        part: &str,
        ask: &Ask,
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;
}

/// Asks parts, and puts their answers together. With `partial`, those that cannot answer are named in a page
/// instead of failing it.
///
/// # Errors
///
/// The first part's that has no answer.
pub async fn ask_parts<P: AskParts>(
    parts: &P,
    names: &[String],
    ask: &Ask,
    partial: bool,
) -> Result<Answer, P::Error> {
    match ask {
        Ask::Records { wanted, .. } => {
            let mut whole = Page::default();
            // The first alone, since it is often enough; the others some at a time.
            let first = names.len().min(1);
            let (first, others) = names.split_at(first);
            for names in std::iter::once(first).chain(others.chunks(PAGES_AT_ONCE)) {
                if whole.is_full(wanted.limit) {
                    // Whether one of the others has a match is not known.
                    whole.has_more = true;
                    break;
                }
                for page in ask_all(parts, names, ask, partial).await? {
                    if let Answer::Page(page) = page {
                        whole.append(page, wanted.limit);
                    }
                }
            }
            whole.broke_off = false;
            let last = whole.records.last().map(|record| record.id);
            whole.next = last.filter(|_| whole.has_more && wanted.sorted);
            Ok(Answer::Page(whole))
        }
        Ask::Count { .. } | Ask::Occurrences { .. } => {
            let mut sum = 0;
            for answer in ask_all(parts, names, ask, false).await? {
                if let Answer::Count { count } = answer {
                    sum += count;
                }
            }
            Ok(Answer::Count { count: sum })
        }
        Ask::Record { .. } | Ask::Extract { .. } => {
            let mut all = None;
            for answer in ask_all(parts, names, ask, false).await? {
                if let Answer::Bytes(Some(bytes)) = answer {
                    all.get_or_insert_with(Vec::new).extend(bytes);
                }
            }
            if matches!(ask, Ask::Extract { range } if range.is_empty()) {
                all = Some(Vec::new());
            }
            Ok(Answer::Bytes(all))
        }
        Ask::Export { ids } => {
            let mut whole = Run { next: ids.start, ..Run::default() };
            for answer in ask_all(parts, names, ask, false).await? {
                if let Answer::Run(run) = answer {
                    whole.append(run);
                }
            }
            Ok(Answer::Run(whole))
        }
    }
}

async fn ask_all<P: AskParts>(
    parts: &P,
    names: &[String],
    ask: &Ask,
    partial: bool,
) -> Result<Vec<Answer>, P::Error> {
    let asked = names.iter().map(|name| parts.ask(name, ask));
    let mut answers = Vec::with_capacity(names.len());
    for (name, answer) in names.iter().zip(futures_util::future::join_all(asked).await) {
        answers.push(match answer {
            Err(error) if partial && !P::refuses(&error) => {
                Answer::Page(Page { missing: vec![name.clone()], ..Page::default() })
            }
            answer => answer?,
        });
    }
    Ok(answers)
}

/// The ids that a request names, `1,2,3`.
///
/// # Errors
///
/// If they are not numbers, or too many.
pub fn ids(query: &str) -> anyhow::Result<BTreeSet<u64>> {
    const IDS_MAX: usize = 10_000;
    let given = pairs(query);
    let [(name, value)] = given.as_slice() else { bail!("give ids=1,2,3") };
    ensure!(name == "ids", "{name:?} is not ids");
    let ids = value.split(|byte| *byte == b',').map(|id| number("an id", id));
    let ids: BTreeSet<u64> = ids.collect::<anyhow::Result<_>>()?;
    ensure!(ids.len() <= IDS_MAX, "at most {IDS_MAX} ids at a time");
    Ok(ids)
}
