//! How few misses any placement could have, which may know all requests beforehand and change at
//! every request: PFOO-L (Berger, Beckmann, Harchol-Balter, "Practical bounds on optimal caching with
//! variable object sizes", SIGMETRICS 2018).
//!
//! To serve a request from a cache, its object must have been held since its last request: this takes
//! its bytes × the number of requests in between. A cache of C bytes has C × (number of requests) to
//! give. Served by it are at most as many requests as fit there, those that take the least first.

use std::collections::HashMap;
use std::hash::Hash;

/// A lower bound of the misses of a cache of `bytes` bytes for requests (object, its bytes), in order.
/// `warm`: anything may be held at the start; otherwise each object's first request misses. Cost:
/// sorts the requests.
pub fn misses_at_least<K: Hash + Eq>(
    requests: impl Iterator<Item = (K, u64)>,
    bytes: u64,
    warm: bool,
) -> u64 {
    let mut last: HashMap<K, u64> = HashMap::new();
    let (mut taken, mut count) = (Vec::<u128>::new(), 0u64);
    for (object, size) in requests {
        let before = last.insert(object, count);
        if let Some(since) = before.or(warm.then_some(0)) {
            taken.push(u128::from(size) * u128::from(count - since));
        }
        count += 1;
    }
    taken.sort_unstable();
    let mut left = u128::from(bytes) * u128::from(count);
    let served = taken.iter().take_while(|&&needs| {
        let fits = needs <= left;
        left = left.saturating_sub(needs);
        fits
    });
    count - served.count() as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The misses of the best cache of `places` objects of one byte each, by trying all choices.
    fn fewest(requests: &[u8], held: &mut Vec<u8>, places: usize) -> u64 {
        let Some((&object, rest)) = requests.split_first() else { return 0 };
        if held.contains(&object) {
            // To give it up is a choice, too, but never a better one than at another's miss.
            return fewest(rest, held, places);
        }
        // Not kept, or kept in place of each.
        let mut best = fewest(rest, &mut held.clone(), places);
        if held.len() < places {
            let mut with = held.clone();
            with.push(object);
            best = best.min(fewest(rest, &mut with, places));
        }
        for index in 0..held.len() {
            let mut with = held.clone();
            with[index] = object;
            best = best.min(fewest(rest, &mut with, places));
        }
        1 + best
    }

    proptest! {
        #[test]
        fn no_cache_misses_less(requests in prop::collection::vec(0u8..4, 0..9), places in 0usize..3) {
            let truth = fewest(&requests, &mut Vec::new(), places);
            let bound = |warm| misses_at_least(requests.iter().map(|r| (*r, 1)), places as u64, warm);
            prop_assert!(bound(false) <= truth, "{} of {truth}", bound(false));
            prop_assert!(bound(true) <= bound(false));
        }
    }

    #[test]
    fn a_cache_for_one_of_two_serves_half_of_requests_in_turn() {
        let requests = (0u64..1000).map(|i| (i % 2, 1));
        let bound = misses_at_least(requests.clone(), 1, false);
        assert!((500..=503).contains(&bound), "{bound}");
        assert_eq!(misses_at_least(requests.clone(), 2, false), 2);
        assert_eq!(misses_at_least(requests.clone(), 2, true), 0);
        assert_eq!(misses_at_least(requests, 0, true), 999);
    }
}
