//! The ceiling: dependent random accesses to memory of the text's size, one chain or several.
//!
//! A step of Ψ is at least one of them, so no index of this kind is faster than this allows; and
//! what the machine does to all of them from minute to minute is seen here first.

use std::hint::black_box;

use anyhow::ensure;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::engine::{self, Query};

/// Answers `access` slices over `bytes` bytes.
///
/// # Errors
/// If the query is of another kind.
pub fn serve(bytes: usize) -> anyhow::Result<()> {
    let next = cycle((bytes / 4).max(2));
    engine::serve(next.len() * 4, |slice| {
        ensure!(slice.query == Query::Access, "the ceiling answers no {}", slice.query.name());
        Ok(u64::from(black_box(follow(&next, slice.first, slice.batch, slice.count))))
    })
}

/// A random permutation of one cycle (Sattolo's algorithm): where to go from each place.
fn cycle(len: usize) -> Vec<u32> {
    let mut random = StdRng::seed_from_u64(2);
    let mut next: Vec<u32> = (0..len as u32).collect();
    for i in (1..len).rev() {
        next.swap(i, random.random_range(0..i));
    }
    next
}

/// Makes `count` accesses in `chains` chains at once.
fn follow(next: &[u32], first: usize, chains: usize, count: usize) -> u32 {
    let mut at: Vec<u32> =
        (0..chains).map(|i| ((first + i * (next.len() / chains)) % next.len()) as u32).collect();
    for _ in 0..count / chains {
        for place in &mut at {
            *place = next[*place as usize];
        }
    }
    at.into_iter().fold(0, |sum, place| sum ^ place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_goes_through_every_place() {
        let next = cycle(1000);
        let (mut at, mut seen) = (0, vec![false; next.len()]);
        for _ in 0..next.len() {
            assert!(!std::mem::replace(&mut seen[at], true));
            at = next[at] as usize;
        }
        assert_eq!(at, 0);
        assert_eq!(follow(&next, 7, 1, 1000), 7, "once around");
        assert_eq!(follow(&next, 0, 2, 2), next[0] ^ next[500]);
    }
}
