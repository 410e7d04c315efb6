//! The queries, drawn once for a dataset and put to every engine.
//!
//! Extracts start at offsets drawn evenly. Patterns are drawn so that their hits spread evenly over
//! the logarithms from 1 to a maximum: of a random place of the text, the shortest string that
//! occurs at most so often. The patterns are dealt into blocks of nearly the same hits, so that any
//! number of blocks is a fair sample of all: an engine that is too slow for all of them in a timed
//! stretch does some blocks.

use std::path::Path;

use anyhow::{Context as _, ensure};
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{RngExt, SeedableRng};

use crate::config::Draw;
use crate::oracle::Oracle;

/// The longest extract, bytes.
pub const EXTRACT_MAX: usize = 1024;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queries {
    /// Where extracts start.
    pub extracts: Vec<u32>,
    /// What is counted and searched.
    pub patterns: Vec<Vec<u8>>,
}

/// Number of draws of a pattern after which the text is refused for having too few.
const DRAWS_MAX: usize = 1000;

impl Queries {
    /// Draws the queries of a text, the same ones each time.
    ///
    /// # Errors
    /// If the text is too short or has too few patterns with the configured number of hits.
    pub fn draw(oracle: &Oracle<'_>, draw: &Draw) -> anyhow::Result<Queries> {
        let mut random = StdRng::seed_from_u64(1);
        let text = oracle.text();
        ensure!(text.len() > EXTRACT_MAX, "a text of {} bytes is too short", text.len());
        let starts = 0..=(text.len() - EXTRACT_MAX) as u32;
        let extracts = (0..draw.extracts).map(|_| random.random_range(starts.clone())).collect();
        let mut patterns: Vec<(usize, &[u8])> = Vec::new();
        let (mut hits_sum, mut draws) = (0, 0);
        while patterns.len() < draw.patterns {
            draws += 1;
            ensure!(
                draws <= draw.patterns * DRAWS_MAX,
                "the text has too few patterns of up to {} hits, {} on average",
                draw.hits_max,
                draw.hits_mean
            );
            let Some((hits, pattern)) = pattern(oracle, draw, &mut random) else { continue };
            // What takes the mean away from where it should be is drawn again.
            let below = hits_sum < draw.hits_mean * patterns.len().max(1);
            if below == (hits >= draw.hits_mean) {
                hits_sum += hits;
                patterns.push((hits, pattern));
            }
        }
        let patterns = dealt(patterns, draw.block, &mut random);
        Ok(Queries { extracts, patterns })
    }

    /// Writes text and queries to the folder that engines read.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, text: &[u8], folder: &Path) -> anyhow::Result<()> {
        let extracts: Vec<u8> = self.extracts.iter().flat_map(|o| o.to_le_bytes()).collect();
        let mut patterns = Vec::new();
        for pattern in &self.patterns {
            patterns.extend_from_slice(&(pattern.len() as u32).to_le_bytes());
            patterns.extend_from_slice(pattern);
        }
        for (name, bytes) in [("text", text), ("extracts", &extracts), ("patterns", &patterns)] {
            let path = folder.join(name);
            std::fs::write(&path, bytes)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// Reads the queries of a folder.
    ///
    /// # Errors
    /// If a file is missing or cut off.
    pub fn read(folder: &Path) -> anyhow::Result<Queries> {
        let bytes = read(folder, "extracts")?;
        let extracts: Vec<u32> =
            bytes.as_chunks().0.iter().map(|&word| u32::from_le_bytes(word)).collect();
        let bytes = read(folder, "patterns")?;
        let (mut rest, mut patterns) = (&bytes[..], Vec::new());
        while let Some((len, behind)) = rest.split_first_chunk() {
            let len = u32::from_le_bytes(*len) as usize;
            let pattern = behind.get(..len).context("the file of patterns is cut off")?;
            patterns.push(pattern.to_vec());
            rest = &behind[len..];
        }
        ensure!(!extracts.is_empty() && !patterns.is_empty(), "there are no queries");
        Ok(Queries { extracts, patterns })
    }

    /// Reads the text of a folder.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_text(folder: &Path) -> anyhow::Result<Vec<u8>> {
        read(folder, "text")
    }
}

fn read(folder: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let path = folder.join(name);
    std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Of a random place, the shortest string with at most a drawn number of hits; `None` if it is too
/// long.
fn pattern<'t>(oracle: &Oracle<'t>, draw: &Draw, random: &mut StdRng) -> Option<(usize, &'t [u8])> {
    let text = oracle.text();
    let wanted = (draw.hits_max as f64).powf(random.random::<f64>()) as usize;
    let at = random.random_range(0..text.len() - draw.pattern_bytes_max.min(text.len() - 1));
    let place = &text[at..text.len().min(at + draw.pattern_bytes_max)];
    let hits = |len: usize| oracle.offsets(&place[..len]).len();
    // Longer strings never have more hits.
    let (mut short, mut long) = (1, place.len());
    while short < long {
        let middle = usize::midpoint(short, long);
        if hits(middle) <= wanted { long = middle } else { short = middle + 1 }
    }
    let found = hits(long);
    (found <= wanted).then(|| (found, &place[..long]))
}

/// Deals the patterns into blocks, by their hits up and down in turns, and shuffles each block.
fn dealt(mut patterns: Vec<(usize, &[u8])>, block: usize, random: &mut StdRng) -> Vec<Vec<u8>> {
    patterns.sort_unstable();
    let mut blocks = vec![Vec::new(); patterns.len().div_ceil(block)];
    for (turn, hand) in patterns.chunks(blocks.len()).enumerate() {
        for (i, (_, pattern)) in hand.iter().enumerate() {
            let to = if turn % 2 == 0 { i } else { blocks.len() - 1 - i };
            blocks[to].push(pattern.to_vec());
        }
    }
    for block in &mut blocks {
        block.shuffle(random);
    }
    blocks.concat()
}
