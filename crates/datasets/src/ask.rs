//! Queries on a dataset, and the answers of its parts. Nodes and gateways share this code: a node
//! queries its own parts, a gateway sends the query to nodes.
//!
//! `asking` carries out which parts are queried when.

use std::collections::BTreeSet;
use std::ops::Range;

use ground::window::Operation;
use serde::{Deserialize, Serialize};
use shard::Text;
use shard::query::{Condition, Pattern, Query, Test};

use super::error::{Error, Result};
use dataset::manifest::Manifest;
use dataset::part::{Part, Run};
use dataset::{Dataset, PageRequest, SearchResult, key_query};

/// Records in a page when the request has no `limit`.
const LIMIT: usize = 10;
/// Maximum records in a page.
const LIMIT_MAX: usize = 10_000;
/// Maximum bytes of a page's records. A page that reaches it ends early, with `has_more` set.
pub const PAGE_BYTES_MAX: usize = 16 << 20;
/// Records of a page that are read together, in bytes.
const RECORDS_BYTES_AT_ONCE: usize = 1 << 20;
/// Maximum bytes of one extract.
const EXTRACT_BYTES_MAX: u64 = 16 << 20;
/// Name of the part that holds the records not yet sealed into a shard.
pub const LOG: &str = "log";

/// A query: any request that reads a dataset.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// A page of matching records.
    Records {
        /// What they match.
        query: Query,
        /// Where the page begins, and how much it may hold.
        wanted: PageRequest,
        /// What was most likely meant otherwise in the query, for the client.
        warnings: Vec<String>,
    },
    /// One record.
    Record {
        /// Counted from 0 in the order of appends.
        id: u64,
    },
    /// The number of matching records.
    Count {
        /// What they match.
        query: Query,
        /// What was most likely meant otherwise in the query, for the client.
        warnings: Vec<String>,
    },
    /// The number of occurrences of a byte string in the shards.
    Occurrences {
        /// As they stand in the text.
        bytes: Vec<u8>,
    },
    /// A byte range of the shards' text.
    Extract {
        /// Offsets in the shards' text, one after another.
        range: Range<u64>,
    },
    /// The original bytes of the records with these ids. One answer may cover only the first of
    /// them.
    Export {
        /// Consecutive ids.
        ids: Range<u64>,
    },
}

/// The answer of one part, or of the whole dataset.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Answers [`Ask::Records`].
    Page(Page),
    /// Answers [`Ask::Count`] and [`Ask::Occurrences`].
    Count {
        /// Those of the part, or their sum.
        count: u64,
        /// Attributes of the query that no record has.
        unknown_attributes: Vec<String>,
        /// What was most likely meant otherwise in the query; only of a whole answer.
        warnings: Vec<String>,
    },
    /// Answers [`Ask::Record`] and [`Ask::Extract`]; `None` if the record does not exist.
    Bytes(Option<Vec<u8>>),
    /// Answers [`Ask::Export`].
    Run(Run),
}

/// A page of matching records.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// The records, in ascending order of id if the query asked for a sorted page.
    pub records: Vec<Record>,
    /// Id to pass as `after` to get the next page.
    pub next: Option<u64>,
    /// Whether more records may match.
    pub has_more: bool,
    /// Number of occurrences located in the index.
    pub located: usize,
    /// Number of candidate records read to verify that they match.
    pub verified: usize,
    /// Parts that did not answer; only filled for queries with `partial=true`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Attributes of the query that no record has: most often typing errors. Of the first page alone, and only if every
    /// part answered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown_attributes: Vec<String>,
    /// What was most likely meant otherwise in the query. Of the first page alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Whether the page ended early at the byte limit. Records of later parts must not be appended
    /// then: the records in between would be missing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub broke_off: bool,
}

/// A record with its id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The record's id.
    pub id: u64,
    /// The record's bytes.
    #[serde(flatten)]
    pub content: Content,
}

/// The bytes of a record: a string if they are valid UTF-8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Valid UTF-8.
    Record(String),
    /// Any other bytes, as base64 (RFC 4648, with padding).
    #[serde(with = "base64_text")]
    Base64(Vec<u8>),
}

/// Bytes as base64 in JSON: four characters for three bytes, where a list of numbers takes eleven.
mod base64_text {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

/// Splits a query string into its names and percent-decoded values.
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

/// A query string's value as text.
///
/// # Errors
///
/// If the value is not valid UTF-8; the message names the parameter.
pub fn text<'a>(name: &str, value: &'a [u8]) -> Result<&'a str> {
    std::str::from_utf8(value).map_err(|_| refused(format!("{name} is not text in UTF-8")))
}

fn number<T: std::str::FromStr>(name: &str, value: &[u8]) -> Result<T> {
    let text = text(name, value)?;
    text.parse().map_err(|_| refused(format!("{name} must be a whole number, not {text:?}")))
}

/// The client is told what is wrong with its request.
fn refused(what: impl Into<String>) -> Error {
    Error::Parameter(what.into())
}

/// The parameters of a query string.
struct Parameters(Vec<(String, Vec<u8>)>);

impl Parameters {
    fn new(query: &str, known: &[&str]) -> Result<Parameters> {
        let given = pairs(query);
        if let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            return Err(refused(format!(
                "unknown parameter {name:?}; expected one of: {}",
                known.join(", ")
            )));
        }
        if let Some(name) = wire::query::repeated_name(query) {
            return Err(refused(format!("parameter {name:?} is given twice")));
        }
        Ok(Parameters(given))
    }

    fn value(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_slice())
    }

    fn number<T: std::str::FromStr>(&self, name: &str) -> Result<Option<T>> {
        self.value(name).map(|value| number(name, value)).transpose()
    }

    fn required_number(&self, name: &str) -> Result<u64> {
        self.number(name)?.ok_or_else(|| refused(format!("parameter {name} is missing")))
    }

    /// The warnings of a query that is valid; none where the parameter is missing.
    fn warnings(&self, name: &str) -> Vec<String> {
        let text = self.value(name).and_then(|query| std::str::from_utf8(query).ok());
        text.map(Query::warnings).unwrap_or_default()
    }

    fn records(&self, manifest: &Manifest) -> Result<Ask> {
        let query = match (self.value("query"), self.value("key"), self.value("pattern")) {
            (Some(query), None, None) => text("query", query)?.parse()?,
            (None, Some(key), None) => key_query(&manifest.schema, text("key", key)?)?,
            (None, None, Some(pattern)) => {
                let pattern = Pattern::new(text("pattern", pattern)?)?;
                let condition = Condition::Matches(pattern);
                Query::Test(Test { attribute: None, condition })
            }
            _ => return Err(refused("give exactly one of query, key and pattern")),
        };
        let limit = self.number("limit")?.unwrap_or(LIMIT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            return Err(refused(format!("limit must be a number from 1 to {LIMIT_MAX}")));
        }
        let after = self.number("after")?;
        let sorted = match self.value("sorted") {
            None | Some(b"true") => true,
            Some(b"false") if after.is_none() => false,
            Some(b"false") => {
                return Err(refused("sorted=false has no next page; leave out after"));
            }
            Some(_) => return Err(refused("sorted must be true or false")),
        };
        let warnings = if after.is_none() { self.warnings("query") } else { Vec::new() };
        Ok(Ask::Records { query, wanted: PageRequest { limit, after, sorted }, warnings })
    }

    fn extract(&self, manifest: &Manifest) -> Result<Ask> {
        let start = self.required_number("offset")?;
        let len = self.required_number("len")?;
        if len > EXTRACT_BYTES_MAX {
            return Err(refused(format!("len must be at most {EXTRACT_BYTES_MAX}")));
        }
        let end = start.checked_add(len).ok_or_else(|| refused("offset + len exceeds 2^64 - 1"))?;
        let all: u64 = manifest.shards.iter().map(|shard| shard.input_bytes).sum();
        if end > all {
            let what =
                format!("bytes {start} to {end} are not within the {all} bytes of the shards");
            return Err(refused(what));
        }
        Ok(Ask::Extract { range: start..end })
    }
}

impl Ask {
    /// Parses `records`, `records/ID`, `count`, `extract` or `export` and its query string. Returns
    /// `None` for any other path. The schema of `manifest` defines the attribute that `key`
    /// searches.
    ///
    /// # Errors
    ///
    /// If a parameter is unknown, missing or invalid. The message is meant for the client.
    pub fn parse(path: &str, query: &str, manifest: &Manifest) -> Result<Option<Ask>> {
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
        let given = Parameters::new(query, known)?;
        if let Some(id) = is_record {
            return Ok(Some(Ask::Record { id: number("the id", id.as_bytes())? }));
        }
        Ok(Some(match path {
            "records" => given.records(manifest)?,
            "count" => match (given.value("query"), given.value("bytes")) {
                (Some(query), None) => Ask::Count {
                    query: text("query", query)?.parse()?,
                    warnings: given.warnings("query"),
                },
                (None, Some(bytes)) => Ask::Occurrences { bytes: bytes.to_vec() },
                _ => return Err(refused("give exactly one of query and bytes")),
            },
            "export" => {
                let (from, to) = (given.number("from")?, given.number("to")?);
                let (from, to) = (from.unwrap_or(0), to.unwrap_or(u64::MAX));
                if from > to {
                    return Err(refused("from must not be greater than to"));
                }
                Ask::Export { ids: from..to }
            }
            _ => given.extract(manifest)?,
        }))
    }

    /// The operation that windows record for this query.
    pub fn operation(&self) -> Operation {
        match self {
            Ask::Records { .. } => Operation::Search,
            Ask::Record { .. } => Operation::Get,
            Ask::Count { .. } | Ask::Occurrences { .. } => Operation::Count,
            Ask::Extract { .. } | Ask::Export { .. } => Operation::Extract,
        }
    }

    /// Names of the parts that this query needs, in order.
    pub fn parts(&self, manifest: &Manifest) -> Vec<String> {
        let all = || manifest.shards.iter();
        let names = |shards: &mut dyn Iterator<Item = &str>| -> Vec<String> {
            shards.map(|file| part_of(file).to_owned()).collect()
        };
        let mut parts = match self {
            Ask::Record { id } => {
                let holds = |s: &&dataset::manifest::ShardEntry| s.ids().contains(id);
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
                // A shard without records may still hold a header.
                let holds = |s: &&dataset::manifest::ShardEntry| {
                    let all = s.ids();
                    (all.start..all.end.max(all.start.saturating_add(1))).contains(&ids.start)
                };
                names(&mut all().filter(holds).map(|s| s.file.as_str()))
            }
            Ask::Records { wanted, .. } => {
                let after = wanted.after;
                let further = |s: &&dataset::manifest::ShardEntry| {
                    after.is_none_or(|after| after.saturating_add(1) < s.ids().end)
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

    /// Answers this query from one shard.
    ///
    /// # Errors
    ///
    /// Those of the functions of [`Part`].
    pub fn of_shard(&self, dataset: &Dataset, part: &Part) -> Result<Answer> {
        Ok(match self {
            Ask::Records { query, wanted, .. } => {
                let found = part.search(query, wanted, dataset.deleted(), dataset.work())?;
                let mut page =
                    page(dataset, found, &|ids| part.stored_all(ids, RECORDS_BYTES_AT_ONCE))?;
                if wanted.after.is_none() {
                    page.unknown_attributes = dataset.unknown_in(part, query)?;
                }
                Answer::Page(page)
            }
            Ask::Record { id } => record(dataset, *id, || part.stored(*id))?,
            Ask::Count { query, .. } => Answer::Count {
                count: part.count(query, dataset.deleted(), dataset.work())?,
                unknown_attributes: dataset.unknown_in(part, query)?,
                warnings: Vec::new(),
            },
            Ask::Occurrences { bytes } => {
                Answer::of_occurrences(part.shard().index().count(bytes) as u64)
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
            Ask::Export { ids } => {
                Answer::Run(part.run(ids.clone(), dataset.deleted(), dataset.end_id())?)
            }
        })
    }

    /// Answers this query from the dataset's log.
    ///
    /// # Errors
    ///
    /// If a record cannot be read, which does not happen while the log in memory is consistent.
    pub fn of_log(&self, dataset: &Dataset) -> Result<Answer> {
        Ok(match self {
            Ask::Records { query, wanted, .. } => {
                let found = dataset.search_log(query, wanted);
                let mut page = page(dataset, found, &|ids| {
                    ids.iter().take(1).map(|id| dataset.stored(*id)).collect()
                })?;
                if wanted.after.is_none() {
                    page.unknown_attributes = dataset.unknown_in_log(query);
                }
                Answer::Page(page)
            }
            Ask::Record { id } if *id < dataset.end_id() => {
                record(dataset, *id, || dataset.stored(*id))?
            }
            Ask::Count { query, .. } => Answer::Count {
                count: dataset.count_log(query),
                unknown_attributes: dataset.unknown_in_log(query),
                warnings: Vec::new(),
            },
            Ask::Occurrences { .. } => Answer::of_occurrences(0),
            Ask::Record { .. } | Ask::Extract { .. } => Answer::Bytes(None),
            Ask::Export { ids } => Answer::Run(dataset.run_of_log(ids.clone())),
        })
    }
}

/// The part name of a shard's file: the file name without `.shard`.
pub fn part_of(file: &str) -> &str {
    file.strip_suffix(".shard").unwrap_or(file)
}

fn record(
    dataset: &Dataset,
    id: u64,
    stored: impl FnOnce() -> dataset::Result<Vec<u8>>,
) -> Result<Answer> {
    if dataset.deleted().contains(&id) {
        return Ok(Answer::Bytes(None));
    }
    Ok(Answer::Bytes(Some(dataset.schema().original(&stored()?).to_vec())))
}

/// Reads the first of some records as they are stored.
type RecordReader<'a> = &'a dyn Fn(&[u64]) -> dataset::Result<Vec<Vec<u8>>>;

/// A page of the records found. `stored` reads the first of some records, at least one.
fn page(dataset: &Dataset, found: SearchResult, stored: RecordReader<'_>) -> Result<Page> {
    let SearchResult { ids, has_more, located, verified, stopped_at, .. } = found;
    let mut page = Page { has_more, located, verified, ..Page::default() };
    let (mut bytes, mut ids) = (0, &ids[..]);
    while !ids.is_empty() && !page.broke_off {
        let some = stored(ids)?;
        if some.is_empty() {
            return Err(Error::Lacking("no record was read"));
        }
        let (now, later) = ids.split_at(some.len());
        for (id, stored) in now.iter().zip(some) {
            let original = dataset.schema().original(&stored).to_vec();
            let content = String::from_utf8(original).map(Content::Record);
            let content = content.unwrap_or_else(|error| Content::Base64(error.into_bytes()));
            if !page.push(Record { id: *id, content }, &mut bytes) {
                break;
            }
        }
        ids = later;
    }
    if let (Some(_), false) = (stopped_at, page.broke_off) {
        (page.next, page.broke_off) = (stopped_at, true);
    }
    Ok(page)
}

impl Record {
    fn bytes(&self) -> usize {
        match &self.content {
            Content::Record(text) => text.len(),
            Content::Base64(bytes) => bytes.len(),
        }
    }
}

impl Answer {
    /// Answers [`Ask::Occurrences`].
    fn of_occurrences(count: u64) -> Answer {
        Answer::Count { count, unknown_attributes: Vec::new(), warnings: Vec::new() }
    }

    /// Approximate size in bytes.
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
    /// Bytes of its records.
    pub fn bytes(&self) -> usize {
        self.records.iter().map(Record::bytes).sum()
    }

    /// Appends a record and adds its size to `bytes`, the page's size so far. If the record would
    /// exceed [`PAGE_BYTES_MAX`], ends the page before it and returns `false`. The first record is
    /// always taken, so that a page makes progress.
    fn push(&mut self, record: Record, bytes: &mut usize) -> bool {
        *bytes += record.bytes();
        if *bytes > PAGE_BYTES_MAX && !self.records.is_empty() {
            (self.has_more, self.broke_off) = (true, true);
            return false;
        }
        self.records.push(record);
        true
    }

    /// Appends the page of a later part, up to a number of records.
    pub fn append(&mut self, further: Page, limit: usize) {
        let room = limit.saturating_sub(self.records.len());
        self.has_more |= further.has_more || further.records.len() > room;
        self.located += further.located;
        self.verified += further.verified;
        self.missing.extend(further.missing);
        if self.broke_off {
            return;
        }
        let (mut bytes, is_whole) = (self.bytes(), further.records.len() < room);
        for record in further.records.into_iter().take(room) {
            if !self.push(record, &mut bytes) {
                return;
            }
        }
        self.broke_off = further.broke_off;
        // Where a part stopped at the limits of its work.
        self.next = further.next.filter(|_| is_whole && further.broke_off);
    }
}

/// Parses the query string `ids=1,2,3`.
///
/// # Errors
///
/// If there is no `ids`, another parameter, an invalid number, or more than 10,000 ids.
pub fn ids(query: &str) -> Result<BTreeSet<u64>> {
    const IDS_MAX: usize = 10_000;
    let given = pairs(query);
    let [(name, value)] = given.as_slice() else {
        return Err(refused("give ids=1,2,3"));
    };
    if name != "ids" {
        return Err(refused(format!("unknown parameter {name:?}; give ids=1,2,3")));
    }
    let ids = value.split(|byte| *byte == b',').map(|id| number("an id", id));
    let ids: BTreeSet<u64> = ids.collect::<Result<_>>()?;
    if ids.len() > IDS_MAX {
        return Err(refused(format!("at most {IDS_MAX} ids at a time")));
    }
    Ok(ids)
}
