//! The compressed shard of this project as an engine, with a text layer where one is configured.

use std::hint::black_box;
use std::ops::Range;

use anyhow::{Context as _, bail};
use shard::index::{Index, Options, build};
use shard::layers::{TextBuild, TextOptions};
use shard::{Text, naive};

use crate::checksum::{fold, of_bytes, of_offsets};
use crate::engine::{self, Query, Slice};
use crate::queries::Queries;

/// A text that finds the offsets of several patterns' rows together.
pub trait Searched: Text {
    /// Appends the offsets of the rows of all ranges, one range after the other.
    fn locate_all(&self, rows: &[Range<usize>], offsets: &mut Vec<usize>) {
        rows.iter().for_each(|rows| self.locate(rows.clone(), offsets));
    }
}

impl Searched for naive::Text {}

impl Searched for Index {
    fn locate_all(&self, rows: &[Range<usize>], offsets: &mut Vec<usize>) {
        Index::locate_all(self, rows, offsets);
    }
}

/// Parameters of our index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Text positions for one that is stored with its row, to find the position of a match.
    pub sa: u32,
    /// Text positions for one whose row is stored, to begin reading at.
    pub isa: u32,
    /// Bytes that the text as tokens may take, × the text's: infinite for all of it. `None` without
    /// that.
    pub text_layer: Option<f64>,
}

impl Point {
    /// In words.
    pub fn parameters(&self) -> String {
        let layer = match self.text_layer {
            None => String::new(),
            Some(most) if most.is_finite() => format!(", text layer ≤ {most} ×"),
            Some(_) => ", text layer".to_owned(),
        };
        format!("SA {}, ISA {}{layer}", self.sa, self.isa)
    }
}

/// Blocks of a text layer that are encoded in one step.
const BLOCKS_AT_ONCE: usize = 1 << 14;

/// Builds the index in memory, gives up the text, and answers slices from the file's bytes alone.
///
/// # Errors
/// If the shard cannot be built or opened, or a query fails.
pub fn serve(text: Vec<u8>, queries: &Queries, point: Point) -> anyhow::Result<()> {
    let options = Options { sa_sampling: point.sa, isa_sampling: point.isa };
    let mut file = Vec::new();
    build(&text, &options, &mut file).context("cannot build the shard")?;
    // A float that is too large becomes the largest number.
    let bytes_max = point.text_layer.map(|most| (most * text.len() as f64) as usize);
    drop(text);
    file.shrink_to_fit();
    let index = Index::open(file).context("cannot open the shard that was built")?;
    if let Some(bytes_max) = bytes_max {
        let options = TextOptions { bytes_max, ..TextOptions::default() };
        let mut layer = TextBuild::new(&index, options)?;
        while !layer.step(&index, BLOCKS_AT_ONCE)?.is_finished() {}
        index.layers().publish_text(layer)?;
    }
    engine::serve(index.footprint().total_bytes(), |slice| answer(&index, queries, slice))
}

/// The checksum of the answers to a slice.
///
/// # Errors
/// If a query fails, or is not one that an index answers.
pub fn answer(index: &impl Searched, queries: &Queries, slice: &Slice) -> anyhow::Result<u64> {
    match slice.query {
        Query::Extract64 => extract(index, queries, slice, 64),
        Query::Extract1024 => extract(index, queries, slice, 1024),
        Query::Count => Ok(count(index, queries, slice)),
        Query::Search => Ok(search(index, queries, slice)),
        Query::Access => bail!("an index answers no accesses to memory"),
    }
}

/// The numbers of the queries of each batch.
fn batches(slice: &Slice) -> impl Iterator<Item = Range<usize>> {
    let end = slice.first + slice.count;
    (slice.first..end).step_by(slice.batch).map(move |at| at..end.min(at + slice.batch))
}

fn extract(index: &impl Text, queries: &Queries, slice: &Slice, len: usize) -> anyhow::Result<u64> {
    let (mut sum, mut bytes, mut ranges) = (0, Vec::new(), Vec::new());
    let start = |number: usize| queries.extracts[number % queries.extracts.len()] as usize;
    for batch in batches(slice) {
        bytes.clear();
        if slice.batch == 1 {
            index.extract(start(batch.start), len, &mut bytes)?;
        } else {
            ranges.clear();
            ranges.extend(batch.map(start).map(|at| at..at + len));
            index.extract_all(&ranges, &mut bytes)?;
        }
        sum = bytes.chunks(len).fold(sum, |sum, bytes| fold(sum, of_bytes(bytes)));
    }
    Ok(sum)
}

fn pattern(queries: &Queries, number: usize) -> &[u8] {
    &queries.patterns[number % queries.patterns.len()]
}

fn count(index: &impl Text, queries: &Queries, slice: &Slice) -> u64 {
    let mut sum = 0;
    for batch in batches(slice) {
        if slice.batch == 1 {
            sum = fold(sum, index.count(pattern(queries, batch.start)) as u64);
        } else {
            let patterns: Vec<&[u8]> = batch.map(|number| pattern(queries, number)).collect();
            let rows = index.rows_of_all(&patterns);
            sum = rows.iter().fold(sum, |sum, rows| fold(sum, rows.len() as u64));
        }
    }
    black_box(sum)
}

fn search(index: &impl Searched, queries: &Queries, slice: &Slice) -> u64 {
    let (mut sum, mut offsets) = (0, Vec::new());
    let of = |offsets: &[usize]| of_offsets(offsets.iter().map(|&offset| offset as u64));
    for batch in batches(slice) {
        offsets.clear();
        if slice.batch == 1 {
            index.locate(index.rows(pattern(queries, batch.start)), &mut offsets);
            sum = fold(sum, of(&offsets));
            continue;
        }
        let patterns: Vec<&[u8]> = batch.map(|number| pattern(queries, number)).collect();
        let rows = index.rows_of_all(&patterns);
        index.locate_all(&rows, &mut offsets);
        let mut rest = &offsets[..];
        for rows in rows {
            let (found, behind) = rest.split_at(rows.len());
            sum = fold(sum, of(found));
            rest = behind;
        }
    }
    black_box(sum)
}
