//! The right answers: from the plain text and its suffix array, which libsais makes.
//!
//! It is itself compared with a scan of the text for some patterns ([`Oracle::check`]). Five times the text
//! in memory; the suffix array is given up before anything is timed.

use anyhow::{Context as _, ensure};
use libsais::SuffixArrayConstruction;

use crate::checksum::{fold, of_bytes, of_offsets};
use crate::engine::{Query, Slice};
use crate::queries::Queries;

/// A text with its suffix array.
pub struct Oracle<'t> {
    text: &'t [u8],
    suffixes: Vec<i32>,
}

impl<'t> Oracle<'t> {
    /// Sorts the suffixes.
    ///
    /// # Errors
    /// If the text is longer than 2 GiB.
    pub fn new(text: &'t [u8]) -> anyhow::Result<Oracle<'t>> {
        let array = SuffixArrayConstruction::for_text(text).in_owned_buffer32().single_threaded();
        let array = array.run().context("libsais cannot sort this text's suffixes")?;
        Ok(Oracle { text, suffixes: array.into_vec() })
    }

    /// The text.
    pub fn text(&self) -> &'t [u8] {
        self.text
    }

    /// Where a pattern occurs, in the order of the suffixes.
    pub fn offsets(&self, pattern: &[u8]) -> &[i32] {
        let start = self.suffixes.partition_point(|&at| &self.text[at as usize..] < pattern);
        let from = &self.suffixes[start..];
        let hits = from.partition_point(|&at| self.text[at as usize..].starts_with(pattern));
        &from[..hits]
    }

    /// Compares the oracle itself with a scan of the text, for some of the patterns.
    ///
    /// # Errors
    /// If they differ.
    pub fn check(&self, patterns: &[Vec<u8>], some: usize) -> anyhow::Result<()> {
        for pattern in patterns.iter().step_by(patterns.len().div_ceil(some.max(1))) {
            let windows = self.text.windows(pattern.len()).enumerate();
            let scanned = windows.filter(|(_, bytes)| *bytes == &pattern[..]).map(|(at, _)| at);
            let mut sorted: Vec<usize> =
                self.offsets(pattern).iter().map(|&at| at as usize).collect();
            sorted.sort_unstable();
            ensure!(
                scanned.eq(sorted),
                "the suffix array and a scan differ on {:?}",
                String::from_utf8_lossy(pattern)
            );
        }
        Ok(())
    }
}

/// Checksums of the right answers to all queries.
pub struct Expected {
    extracts: [Vec<u64>; 2],
    count: Vec<u64>,
    search: Vec<u64>,
    /// Mean hits of a pattern.
    pub hits_mean: f64,
}

impl Expected {
    /// Answers every query.
    pub fn new(oracle: &Oracle<'_>, queries: &Queries) -> Expected {
        let extracts = [64, 1024].map(|len| {
            let bytes = |&at: &u32| &oracle.text()[at as usize..at as usize + len];
            queries.extracts.iter().map(|at| of_bytes(bytes(at))).collect()
        });
        let (mut count, mut search) = (Vec::new(), Vec::new());
        for pattern in &queries.patterns {
            let offsets = oracle.offsets(pattern);
            count.push(offsets.len() as u64);
            search.push(of_offsets(offsets.iter().map(|&at| at as u64)));
        }
        let hits_mean = count.iter().sum::<u64>() as f64 / count.len().max(1) as f64;
        Expected { extracts, count, search, hits_mean }
    }

    /// The checksum of a slice's answers; `None` for what is no query.
    pub fn checksum(&self, slice: &Slice) -> Option<u64> {
        let answers = match slice.query {
            Query::Extract64 => &self.extracts[0],
            Query::Extract1024 => &self.extracts[1],
            Query::Count => &self.count,
            Query::Search => &self.search,
            Query::Access => return None,
        };
        let some = answers.iter().cycle().skip(slice.first % answers.len()).take(slice.count);
        Some(some.fold(0, |sum, &answer| fold(sum, answer)))
    }
}
