//! Choosing the tokens: strings of the text that are worth a number each.
//!
//! As byte pair encoding does, in rounds: samples are cut into the longest tokens there are so far,
//! and the pairs of neighbours that come most often become tokens too, in the place of those that
//! were used least. Tokens so double their length in a round, and what a longer one made needless
//! leaves again. The early rounds, which find what is very frequent, look at an eighth of the
//! samples, the last two at all of them. Source: Gage, *A new algorithm for data compression*
//! (1994); dictionaries of 2¹⁶ such tokens for short strings that are read one by one: Gargiulo and
//! Venturini, *OnPair* (arXiv:2508.02280), which adds each pair in passing and never takes a token
//! back.

use std::cmp::Reverse;

use super::strings::Strings;
use super::trie::Trie;
use crate::Error;

/// Bytes of a token at most.
pub(super) const TOKEN_BYTES_MAX: usize = 64;

/// Rounds of a choice.
pub(super) const ROUNDS: usize = 9;

/// A pair that comes less often is no token.
const COUNT_MIN: u32 = 4;

/// Neighbours that there is room for in any case: of samples of fewer bytes all are looked at in
/// the first round.
const NEIGHBOURS_SMALL: usize = 1 << 22;

/// A token and its length.
type Cut = (u32, usize);

/// Tokens that are being chosen.
#[derive(Debug)]
pub(super) struct Training {
    tokens: Strings,
    tokens_max: usize,
    /// Rounds that are done.
    round: usize,
    /// Which tokens are side by side in the samples: one allocation for all rounds.
    neighbours: Vec<u64>,
}

impl Training {
    /// The beginning of a choice of at most `tokens_max` tokens, and those of one byte, which are
    /// always there.
    pub(super) fn new(tokens_max: usize) -> Self {
        Self { tokens: Strings::singles(), tokens_max, round: 0, neighbours: Vec::new() }
    }

    /// Does another round, over the same samples each time. Costs, of 32 MiB of them, a CPU second
    /// or two, and twice their bytes of memory: what they are cut into is counted as far as there
    /// is room for it.
    ///
    /// # Errors
    ///
    /// [`Error::Layers`] if there is no memory.
    pub(super) fn round(&mut self, samples: &[&[u8]]) -> Result<(), Error> {
        let round = self.round + 1;
        let every = match ROUNDS.saturating_sub(round) {
            0 | 1 => 1,
            2 | 3 => 2,
            _ => 8,
        };
        // Of a few samples all are looked at.
        let every = every.min((samples.len() / 32).max(1));
        let bytes: usize = samples.iter().map(|sample| sample.len()).sum();
        self.neighbours.clear();
        self.neighbours
            .try_reserve_exact((bytes / 4).max(bytes.min(NEIGHBOURS_SMALL)))
            .map_err(|error| Error::Layers(format!("memory to choose tokens with: {error}")))?;
        let counts = count(samples.iter().step_by(every), &self.tokens, &mut self.neighbours);
        let chosen_max = self.tokens_max * round.min(ROUNDS) / ROUNDS;
        let pairs = pairs(&mut self.neighbours, chosen_max);
        self.tokens = choose(&self.tokens, &counts, &pairs, chosen_max);
        self.round = round;
        Ok(())
    }

    /// How many rounds are done.
    pub(super) fn rounds(&self) -> usize {
        self.round
    }

    /// The tokens, if all rounds are done.
    pub(super) fn tokens(&self) -> Option<&Strings> {
        (self.round >= ROUNDS).then_some(&self.tokens)
    }
}

/// How often each token comes where the samples are cut into the longest; and which are side by
/// side, as pairs of 32 bits, as many as `neighbours` has room for: all, unless there are many
/// samples and tokens of less than four bytes on average.
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

/// The most frequent pairs and their counts: up to twice as many as are chosen, as some make the
/// same string.
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

/// The tokens of one byte, and those of the others and of the pairs that save most.
fn choose(
    tokens: &Strings,
    counts: &[u32],
    pairs: &[(u32, u32, u32)],
    chosen_max: usize,
) -> Strings {
    let mut strings = Strings::default();
    let mut savings: Vec<u64> = Vec::new();
    for (token, &count) in tokens.iter().zip(counts).filter(|(token, _)| token.len() > 1) {
        // As many others as it would take instead, of which there is only a guess.
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
