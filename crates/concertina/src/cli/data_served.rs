//! What `concertina data --server` asks of a dataset that a server has: `/datasets` of its HTTP API
//! (`docs/data.md`), answered as the local commands answer.

use std::ops::Range;
use std::process::ExitCode;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method};
use serde::Deserialize;
use serde_json::Value;

use super::data_print::{Page, Record, Records};
use super::data_server::{Refused, Server, encoded};

/// Records that are asked for at once where an answer is several pages.
const RECORDS_AT_ONCE: usize = 1000;
/// The most bytes of the text that a server gives at once.
const EXTRACT_BYTES_MAX: u64 = 16 << 20;
/// Bytes of ids in one address, well below the longest head that a server takes.
const IDS_BYTES_MAX: usize = 6 << 10;

/// What records are searched for.
pub(super) enum What<'a> {
    /// A query.
    Query(&'a str),
    /// A regular expression.
    Pattern(&'a str),
}

/// Which of the records are wanted.
pub(super) struct Wanted {
    pub(super) limit: usize,
    pub(super) after: Option<u64>,
    pub(super) sorted: bool,
    /// Whether an answer will do that some parts of the dataset have no share in.
    pub(super) partial: bool,
}

/// A dataset of a server.
pub(super) struct Served<'a> {
    server: &'a Server,
    path: String,
}

/// Records that follow one another, as they came.
pub(super) struct Run {
    pub(super) bytes: Bytes,
    /// How many there are.
    pub(super) records: u64,
    /// The id that the next run begins with.
    pub(super) next: u64,
    /// The id that the next appended record gets.
    pub(super) end: u64,
    /// Tells the dataset from one that takes its place.
    pub(super) dataset: String,
}

impl Run {
    fn of(headers: &HeaderMap, bytes: Bytes) -> Option<Run> {
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
struct OfCount {
    count: u64,
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

/// The datasets that a server has.
pub(super) fn list(server: &Server) -> anyhow::Result<Vec<Value>> {
    Ok(server.json::<Datasets>(&Method::GET, "/datasets", None)?.datasets)
}

impl<'a> Served<'a> {
    pub(super) fn new(server: &'a Server, name: &str) -> Served<'a> {
        Served { server, path: format!("/datasets/{}", encoded(name)) }
    }

    fn get<T: serde::de::DeserializeOwned>(&self, rest: &str) -> anyhow::Result<T> {
        self.server.json(&Method::GET, &format!("{}{rest}", self.path), None)
    }

    pub(super) fn info(&self) -> anyhow::Result<Value> {
        Ok(self.get::<OfInfo>("")?.info)
    }

    pub(super) fn record(&self, id: u64) -> anyhow::Result<Record> {
        let bytes = self.server.bytes(&format!("{}/records/{id}", self.path))?;
        Ok(Record::new(id, bytes.to_vec()))
    }

    pub(super) fn record_with_key(&self, key: &str) -> anyhow::Result<Option<Record>> {
        let found: OfRecords = self.get(&format!("/records?key={}", encoded(key)))?;
        Ok(found.records.into_iter().next())
    }

    /// Prints the records that match. A server may give fewer at once than are wanted: it is asked again,
    /// which only a sorted search can be.
    pub(super) fn search(
        &self,
        what: &What<'_>,
        wanted: &Wanted,
        as_json: bool,
    ) -> anyhow::Result<ExitCode> {
        let what = match what {
            What::Query(query) => format!("query={}", encoded(query)),
            What::Pattern(pattern) => format!("pattern={}", encoded(pattern)),
        };
        let mut records = Records::new(as_json);
        let mut all = Page { next: wanted.after, ..Page::default() };
        loop {
            let left = wanted.limit.saturating_sub(records.count() as usize);
            let limit = if wanted.sorted { left.min(RECORDS_AT_ONCE) } else { left };
            let mut rest = format!("/records?{what}&limit={limit}&sorted={}", wanted.sorted);
            if let Some(after) = all.next {
                rest.push_str(&format!("&after={after}"));
            }
            if wanted.partial {
                rest.push_str("&partial=true");
            }
            let OfRecords { records: found, page } = self.get(&rest)?;
            ensure!(found.len() <= limit, "{} gives more than it was asked for", self.server.url());
            for record in found {
                records.push(record)?;
            }
            let goes_on = page.next > all.next && page.next.is_some();
            all.next = page.next;
            all.has_more = page.has_more;
            all.located += page.located;
            all.verified += page.verified;
            for part in page.missing {
                if !all.missing.contains(&part) {
                    all.missing.push(part);
                }
            }
            if !goes_on || records.count() as usize >= wanted.limit {
                return records.finish(Some(&all));
            }
        }
    }

    pub(super) fn count(&self, query: &str) -> anyhow::Result<u64> {
        Ok(self.get::<OfCount>(&format!("/count?query={}", encoded(query)))?.count)
    }

    pub(super) fn occurrences(&self, bytes: &str) -> anyhow::Result<u64> {
        Ok(self.get::<OfCount>(&format!("/count?bytes={}", encoded(bytes)))?.count)
    }

    /// Hands bytes of the text on, in pieces.
    pub(super) fn extract(
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
                "{} gives {} bytes for {len}",
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

    /// Where it is.
    pub(super) fn url(&self) -> &str {
        self.server.url()
    }

    /// The records from an id on, up to another if one is given: as many as the server gives at once.
    ///
    /// # Errors
    ///
    /// As [`Server::bytes`].
    pub(super) fn run(&self, from: u64, to: Option<u64>) -> Result<Run, Refused> {
        let to = to.map(|to| format!("&to={to}")).unwrap_or_default();
        let path = format!("{}/export?from={from}{to}", self.path);
        let (headers, bytes) = self.server.headers_and_bytes(&path)?;
        let run = Run::of(&headers, bytes).with_context(|| {
            format!("what {} answers is not understood; is it of another version?", self.url())
        });
        run.map_err(Refused::Other)
    }

    /// Appends records; gives their ids.
    pub(super) fn append(&self, records: Vec<u8>) -> anyhow::Result<Range<u64>> {
        let path = format!("{}/records", self.path);
        let done: OfAppend = self.server.json(&Method::POST, &path, Some(records))?;
        let end = done.first_id.checked_add(done.records).context("more ids than there are")?;
        Ok(done.first_id..end)
    }

    /// Deletes records: with more ids than fit an address in several calls. The greatest come first, so that
    /// one that never was is refused before anything is deleted.
    pub(super) fn delete(&self, ids: &[u64]) -> anyhow::Result<u64> {
        let mut ids = ids.to_vec();
        ids.sort_unstable_by(|a, b| b.cmp(a));
        ids.dedup();
        let mut deleted = 0;
        for text in joined(&ids) {
            let path = format!("{}/records?ids={text}", self.path);
            let done = self.server.json::<OfDelete>(&Method::DELETE, &path, None);
            deleted += match done {
                Err(error) if deleted > 0 => {
                    return Err(error.context(format!("{deleted} records were deleted, and then")));
                }
                done => done?.deleted,
            };
        }
        Ok(deleted)
    }

    pub(super) fn seal(&self) -> anyhow::Result<bool> {
        let path = format!("{}/seal", self.path);
        Ok(self.server.json::<OfSeal>(&Method::POST, &path, None)?.sealed)
    }

    /// What the layers of its shards take; `bytes` sets it, to a number or to `auto`.
    pub(super) fn layers(&self, bytes: Option<&str>) -> anyhow::Result<Value> {
        let Some(bytes) = bytes else { return self.get("/layers") };
        let path = format!("{}/layers?bytes={bytes}", self.path);
        self.server.json(&Method::PUT, &path, None)
    }
}

/// Numbers with commas between them, in texts that are not too long.
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
