//! Chooses the tokens: frequent strings of the text.
//!
//! The choice works in rounds, like byte pair encoding. Each round splits the samples into the
//! longest tokens so far, then makes tokens of the most frequent pairs of neighbours, replacing the
//! least used tokens. The length of tokens can thus double in each round, and tokens made redundant
//! by longer ones are removed again. Early rounds, which find very frequent strings, use an eighth
//! of the samples; the last two use all. Sources: Gage, *A new algorithm for data compression*
//! (1994); dictionaries of 2¹⁶ such tokens for short strings with random access: Gargiulo and
//! Venturini, *OnPair* (arXiv:2508.02280), which adds pairs in a single pass and never removes a
//! token.

use std::cmp::Reverse;

use super::strings::Strings;
use super::trie::Trie;
use crate::error::Error;

/// The longest token in bytes.
pub(super) const TOKEN_BYTES_MAX: usize = 64;

/// The number of rounds.
pub(super) const ROUNDS: usize = 9;

/// The fewest occurrences of a pair that becomes a token.
const COUNT_MIN: u32 = 4;

/// The least capacity for neighbours. Smaller samples are used completely in every round.
const NEIGHBOURS_SMALL: usize = 1 << 22;

/// A token's number and its length.
type Cut = (u32, usize);

/// A choice of tokens in progress.
#[derive(Debug)]
pub(super) struct Training {
    tokens: Strings,
    tokens_max: usize,
    /// Completed rounds.
    round: usize,
    /// Pairs of adjacent tokens in the samples; one allocation for all rounds.
    neighbours: Vec<u64>,
}

impl Training {
    /// Begins a choice of at most `tokens_max` tokens, in addition to the single-byte tokens.
    pub(super) fn new(tokens_max: usize) -> Self {
        Self { tokens: Strings::singles(), tokens_max, round: 0, neighbours: Vec::new() }
    }

    /// Runs the next round; `samples` must be the same each time. For 32 MiB of samples it takes a
    /// CPU second or two, and twice their size in memory: pairs are counted as far as they fit.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if memory is exhausted.
    pub(super) fn round(&mut self, samples: &[&[u8]]) -> Result<(), Error> {
        let round = self.round + 1;
        let every = match ROUNDS.saturating_sub(round) {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 8,
        };
        // Small samples are used completely.
        let every = every.min((samples.len() / 32).max(1));
        let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        self.neighbours.clear();
        self.neighbours.try_reserve_exact((bytes / 4).max(bytes.min(NEIGHBOURS_SMALL))).map_err(
            |error| Error::Layers(format!("cannot allocate memory to choose tokens: {error}")),
        )?;
        let counts = count(samples.iter().step_by(every), &self.tokens, &mut self.neighbours);
        let chosen_max = self.tokens_max * round.min(ROUNDS) / ROUNDS;
        let pairs = pairs(&mut self.neighbours, chosen_max);
        self.tokens = choose(&self.tokens, &counts, &pairs, chosen_max);
        self.round = round;
        Ok(())
    }

    /// The number of completed rounds.
    pub(super) fn rounds(&self) -> usize {
        self.round
    }

    /// The tokens, if all rounds are complete.
    pub(super) fn tokens(&self) -> Option<&Strings> {
        (self.round >= ROUNDS).then_some(&self.tokens)
    }
}

/// Splits the samples into the longest tokens and counts each token. Collects pairs of adjacent
/// tokens (32 bits each) in `neighbours` up to its capacity, which suffices unless there are many
/// samples and the tokens are shorter than four bytes on average.
fn count<'a>(
    samples: impl Iterator<Item = &'a &'a [u8]>,
    tokens: &Strings,
    neighbours: &mut Vec<u64>,
) -> Vec<u32> {
    let trie = Trie::new(tokens);
    let mut counts = vec![0; tokens.len()];
    for sample in samples {
        let mut rest = *sample;
        let mut before: Option<Cut> = None;
        while !rest.is_empty() {
            let (token, len) = trie.longest(rest);
            counts[token as usize] += 1;
            if let Some((before, before_len)) = before
                && before_len + len <= TOKEN_BYTES_MAX
                && neighbours.len() < neighbours.capacity()
            {
                neighbours.push(u64::from(before) << 32 | u64::from(token));
            }
            before = Some((token, len));
            rest = &rest[len..];
        }
    }
    counts
}

/// Returns the most frequent pairs and their counts: up to twice as many as needed, because
/// different pairs may form the same string.
fn pairs(neighbours: &mut [u64], chosen_max: usize) -> Vec<(u32, u32, u32)> {
    neighbours.sort_unstable();
    let same = neighbours.chunk_by(|a, b| a == b);
    let mut pairs: Vec<(u32, u32, u32)> = same
        .map(|same| (same.len() as u32, (same[0] >> 32) as u32, same[0] as u32))
        .filter(|&(count, ..)| count >= COUNT_MIN)
        .collect();
    pairs.sort_unstable_by_key(|&(count, first, second)| (Reverse(count), first, second));
    pairs.truncate(2 * chosen_max);
    pairs
}

/// Returns the single-byte tokens, and those of the other tokens and the pairs that save most.
fn choose(
    tokens: &Strings,
    counts: &[u32],
    pairs: &[(u32, u32, u32)],
    chosen_max: usize,
) -> Strings {
    let mut strings = Strings::default();
    let mut savings: Vec<u64> = Vec::new();
    for (token, &count) in tokens.iter().zip(counts).filter(|(token, _)| token.len() > 1) {
        // Estimates the number of other tokens that would replace this one.
        savings.push(u64::from(count) * (token.len() as u64 - 1).min(3));
        strings.push(&[token]);
    }
    for &(count, first, second) in pairs {
        savings.push(u64::from(count));
        strings.push(&[tokens.get(first), tokens.get(second)]);
    }
    let saving = |&string: &u32| savings[string as usize];
    let bytes = |&string: &u32| strings.get(string);
    let mut best: Vec<u32> =
        (0..strings.len() as u32).filter(|string| saving(string) > 0).collect();
    best.sort_unstable_by(|a, b| (bytes(a), saving(b)).cmp(&(bytes(b), saving(a))));
    best.dedup_by(|a, b| bytes(a) == bytes(b));
    best.sort_unstable_by_key(|string| (Reverse(saving(string)), *string));
    let mut chosen = Strings::singles();
    best.iter().take(chosen_max).for_each(|string| chosen.push(&[bytes(string)]));
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn train(samples: &[&[u8]], tokens_max: usize) -> Strings {
        let mut training = Training::new(tokens_max);
        loop {
            if let Some(tokens) = training.tokens() {
                return tokens.clone();
            }
            training.round(samples).unwrap();
        }
    }

    #[test]
    fn what_comes_often_is_a_token_and_all_single_bytes_are() {
        let text = b"Maintainer: Concertina\nPriority: optional\n".repeat(200);
        let tokens = train(&[&text], 100);
        assert!(tokens.len() <= 356);
        assert!(tokens.iter().any(|token| token.len() >= 32), "no long token");
        assert!(tokens.iter().all(|token| (1..=TOKEN_BYTES_MAX).contains(&token.len())));
        let distinct: HashSet<&[u8]> = tokens.iter().collect();
        assert_eq!(distinct.len(), tokens.len());
        assert!((0..=u8::MAX).all(|byte| distinct.contains(&[byte][..])));
    }

    #[test]
    fn few_or_no_samples_make_the_single_bytes() {
        for samples in [&[][..], &[&[][..]], &[&b"abc"[..]]] {
            assert_eq!(train(samples, 1000).len(), 256);
        }
        assert_eq!(train(&[&[7; 1000]], 0).len(), 256);
    }
}
