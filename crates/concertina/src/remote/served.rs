//! Operates on a dataset of a server through `/datasets` of its HTTP API (`docs/data.md`), with the
//! same results as the local commands.

use std::ops::Range;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::server::{Refused, Server, encoded};

/// Number of records in a request, for results of several pages.
const RECORDS_AT_ONCE: usize = 1000;
/// The most bytes of the text that a server sends at once.
const EXTRACT_BYTES_MAX: u64 = 16 << 20;
/// The most bytes of ids, or of a query, in one URL, well below the longest head that a server accepts.
const IDS_BYTES_MAX: usize = 6 << 10;

/// A record with its id. A record need not be text; other records are shown in base64.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Record {
    Text {
        id: u64,
        record: String,
    },
    Bytes {
        id: u64,
        #[serde(with = "base64_text")]
        base64: Vec<u8>,
    },
}

/// Bytes as base64 in JSON (RFC 4648, with padding).
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

impl Record {
    /// Makes a record of bytes, which may be text.
    pub(crate) fn new(id: u64, bytes: Vec<u8>) -> Record {
        match String::from_utf8(bytes) {
            Ok(record) => Record::Text { id, record },
            Err(error) => Record::Bytes { id, base64: error.into_bytes() },
        }
    }

    /// The bytes of the record, without its id.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Record::Text { record, .. } => record.as_bytes(),
            Record::Bytes { base64, .. } => base64,
        }
    }
}

/// The properties of a page of records, besides the records.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Page {
    pub(crate) next: Option<u64>,
    pub(crate) has_more: bool,
    pub(crate) located: u64,
    pub(crate) verified: u64,
    /// Parts of the dataset that no node answered for.
    #[serde(default)]
    pub(crate) missing: Vec<String>,
    /// Attributes of the query that no record has.
    #[serde(default)]
    pub(crate) unknown_attributes: Vec<String>,
}

/// How many records match a query.
#[derive(Deserialize)]
pub(crate) struct Count {
    pub(crate) count: u64,
    /// Attributes of the query that no record has.
    #[serde(default)]
    pub(crate) unknown_attributes: Vec<String>,
}

/// A search.
pub(crate) enum Search<'a> {
    /// A query.
    Query(&'a str),
    /// A regular expression.
    Pattern(&'a str),
    /// The value of the key attribute.
    Key(&'a str),
}

/// The requested part of a result.
pub(crate) struct PageRequest {
    pub(crate) limit: usize,
    pub(crate) after: Option<u64>,
    pub(crate) sorted: bool,
    /// Whether a result without some parts of the dataset is acceptable.
    pub(crate) partial: bool,
}

/// A dataset of a server.
pub(crate) struct Served<'a> {
    server: &'a Server,
    path: String,
}

/// Consecutive records, unchanged.
pub(crate) struct Run {
    pub(crate) bytes: Bytes,
    /// The number of records.
    pub(crate) records: u64,
    /// The first id of the next run.
    pub(crate) next: u64,
    /// The id of the next record to be appended.
    pub(crate) end: u64,
    /// Distinguishes the dataset from one that replaces it.
    pub(crate) dataset: String,
}

impl Run {
    fn from_reply(headers: &HeaderMap, bytes: Bytes) -> Option<Run> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let number = |name: &str| text(name).and_then(|text| text.parse::<u64>().ok());
        Some(Run {
            bytes,
            records: number("concertina-records")?,
            next: number("concertina-next")?,
            end: number("concertina-end")?,
            dataset: text("concertina-dataset")?.to_owned(),
        })
    }
}

#[derive(Deserialize)]
struct Datasets {
    datasets: Vec<Value>,
}

#[derive(Deserialize)]
struct OfInfo {
    info: Value,
}

#[derive(Deserialize)]
struct OfRecords {
    records: Vec<Record>,
    #[serde(flatten)]
    page: Page,
}

#[derive(Deserialize)]
struct OfAppend {
    first_id: u64,
    records: u64,
}

#[derive(Deserialize)]
struct OfDelete {
    deleted: u64,
}

#[derive(Deserialize)]
struct OfSeal {
    sealed: bool,
}

/// Lists the datasets of a server.
pub(crate) fn list(server: &Server) -> anyhow::Result<Vec<Value>> {
    Ok(server.json::<Datasets>(&Method::GET, "/datasets", None)?.datasets)
}

impl<'a> Served<'a> {
    pub(crate) fn new(server: &'a Server, name: &str) -> Served<'a> {
        Served { server, path: format!("/datasets/{}", encoded(name)) }
    }

    fn get<T: serde::de::DeserializeOwned>(&self, rest: &str) -> anyhow::Result<T> {
        self.server.json(&Method::GET, &format!("{}{rest}", self.path), None)
    }

    pub(crate) fn info(&self) -> anyhow::Result<Value> {
        Ok(self.get::<OfInfo>("")?.info)
    }

    pub(crate) fn record(&self, id: u64) -> anyhow::Result<Record> {
        let bytes = self.server.bytes(&format!("{}/records/{id}", self.path))?;
        Ok(Record::new(id, bytes.to_vec()))
    }

    /// Passes the records that match to `take`, and returns their page. A server may send fewer
    /// records than requested; then further pages are requested, which only a sorted search allows.
    pub(crate) fn search(
        &self,
        search: &Search<'_>,
        wanted: &PageRequest,
        take: &mut dyn FnMut(Record) -> anyhow::Result<()>,
    ) -> anyhow::Result<Page> {
        let search = match search {
            Search::Query(query) => format!("query={}", encoded(query)),
            Search::Pattern(pattern) => format!("pattern={}", encoded(pattern)),
            Search::Key(key) => format!("key={}", encoded(key)),
        };
        let mut count = 0;
        let mut all = Page { next: wanted.after, ..Page::default() };
        loop {
            let left = wanted.limit.saturating_sub(count);
            let limit = if wanted.sorted { left.min(RECORDS_AT_ONCE) } else { left };
            let mut query = format!("{search}&limit={limit}&sorted={}", wanted.sorted);
            if let Some(after) = all.next {
                query.push_str(&format!("&after={after}"));
            }
            if wanted.partial {
                query.push_str("&partial=true");
            }
            let OfRecords { records: found, page } = self.answer("records", "search", query)?;
            ensure!(found.len() <= limit, "{} sent more records than requested", self.server.url());
            count += found.len();
            found.into_iter().try_for_each(&mut *take)?;
            let goes_on = page.next > all.next && page.next.is_some();
            all.next = page.next;
            all.has_more = page.has_more;
            all.unknown_attributes.extend(page.unknown_attributes);
            all.located += page.located;
            all.verified += page.verified;
            for part in page.missing {
                if !all.missing.contains(&part) {
                    all.missing.push(part);
                }
            }
            if !goes_on || count >= wanted.limit {
                return Ok(all);
            }
        }
    }

    pub(crate) fn count(&self, query: &str) -> anyhow::Result<Count> {
        self.answer("count", "count", format!("query={}", encoded(query)))
    }

    pub(crate) fn occurrences(&self, bytes: &str) -> anyhow::Result<u64> {
        Ok(self.answer::<Count>("count", "count", format!("bytes={}", encoded(bytes)))?.count)
    }

    /// Asks a question: by an address or, where that would be too long for a server, by a body.
    fn answer<T: serde::de::DeserializeOwned>(
        &self,
        get: &str,
        post: &str,
        query: String,
    ) -> anyhow::Result<T> {
        if query.len() <= IDS_BYTES_MAX {
            return self.get(&format!("/{get}?{query}"));
        }
        let path = format!("{}/{post}", self.path);
        self.server.json(&Method::POST, &path, Some(query.into_bytes()))
    }

    /// Passes bytes of the text on, in pieces.
    pub(crate) fn extract(
        &self,
        range: Range<u64>,
        take: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut offset = range.start;
        loop {
            let len = (range.end - offset).min(EXTRACT_BYTES_MAX);
            let path = format!("{}/extract?offset={offset}&len={len}", self.path);
            let piece = self.server.bytes(&path)?;
            ensure!(
                piece.len() as u64 == len,
                "{} sent {} bytes instead of {len}",
                self.server.url(),
                piece.len()
            );
            take(&piece)?;
            offset += len;
            if offset >= range.end {
                return Ok(());
            }
        }
    }

    /// The address of the server.
    pub(crate) fn url(&self) -> &str {
        self.server.url()
    }

    /// Reads the records from an id on, up to another id if given: as many as the server sends at
    /// once.
    ///
    /// # Errors
    ///
    /// As [`Server::bytes`].
    pub(crate) fn run(&self, from: u64, to: Option<u64>) -> Result<Run, Refused> {
        let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
        let path = format!("{}/export?from={from}{to}", self.path);
        let (headers, bytes) = self.server.headers_and_bytes(&path)?;
        let run = Run::from_reply(&headers, bytes).with_context(|| {
            format!("cannot parse the reply of {}; is it the same version?", self.url())
        });
        run.map_err(Refused::Other)
    }

    /// Appends records; returns their ids.
    pub(crate) fn append(&self, records: Vec<u8>) -> anyhow::Result<Range<u64>> {
        let path = format!("{}/records", self.path);
        let done: OfAppend = self.server.json(&Method::POST, &path, Some(records))?;
        let end = done
            .first_id
            .checked_add(done.records)
            .context("the server sent invalid record ids")?;
        Ok(done.first_id..end)
    }

    /// Deletes records, in several requests if their ids do not fit one URL. The largest ids come
    /// first, so that an id that never existed is rejected before anything is deleted.
    pub(crate) fn delete(&self, ids: &[u64]) -> anyhow::Result<u64> {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.dedup();
        let mut deleted = 0;
        for text in joined(&ids) {
            let path = format!("{}/records?ids={text}", self.path);
            let done = self.server.json::<OfDelete>(&Method::DELETE, &path, None);
            deleted += match done {
                Err(error) if deleted > 0 => {
                    return Err(error.context(format!("after {deleted} records were deleted")));
                }
                done => done?.deleted,
            };
        }
        Ok(deleted)
    }

    /// Removes the dataset.
    pub(crate) fn drop_all(&self) -> anyhow::Result<()> {
        let _: Value = self.server.json(&Method::DELETE, &self.path, None)?;
        Ok(())
    }

    pub(crate) fn seal(&self) -> anyhow::Result<bool> {
        let path = format!("{}/seal", self.path);
        Ok(self.server.json::<OfSeal>(&Method::POST, &path, None)?.sealed)
    }

    /// Reads the state of the layers of its shards; `bytes` sets their limit, to a number or to
    /// `auto`.
    pub(crate) fn layers(&self, bytes: Option<&str>) -> anyhow::Result<Value> {
        let Some(bytes) = bytes else { return self.get("/layers") };
        let path = format!("{}/layers?bytes={bytes}", self.path);
        self.server.json(&Method::PUT, &path, None)
    }
}

/// Joins numbers with commas into texts of limited length.
fn joined(ids: &[u64]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for id in ids {
        let id = id.to_string();
        match all.last_mut().filter(|text| text.len() + id.len() < IDS_BYTES_MAX) {
            Some(text) => {
                text.push(',');
                text.push_str(&id);
            }
            None => all.push(id),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_joined_into_texts_that_fit() {
        assert_eq!(joined(&[]), Vec::<String>::new());
        assert_eq!(joined(&[3, 2, 1]), ["3,2,1"]);
        let ids: Vec<u64> = (0..10_000).collect();
        let texts = joined(&ids);
        assert!(texts.iter().all(|text| text.len() <= IDS_BYTES_MAX));
        let back: Vec<u64> = texts.join(",").split(',').map(|id| id.parse().unwrap()).collect();
        assert_eq!(back, ids);
    }
}
