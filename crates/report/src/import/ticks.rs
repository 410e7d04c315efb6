//! Finds the steps of clocks by what times have in common.

use std::collections::BTreeSet;

use ground::window::{Nanos, SECOND};

/// The tick of Windows' clock, 64 in a second.
pub(super) const WINDOWS_TICK: Nanos = 15_625_000;

/// The largest number by which all can be divided; 0 of none.
pub(super) fn divisor(numbers: impl Iterator<Item = u64>) -> u64 {
    let mut divisor = 0u64;
    for number in numbers.filter(|n| *n > 0) {
        let (mut a, mut b) = (divisor, number);
        while b > 0 {
            (a, b) = (b, a % b);
        }
        divisor = a;
        if divisor == 1 {
            break;
        }
    }
    divisor
}

/// The largest power of ten by which a number can be divided, at most a second; 1 of 0.
fn power(number: u64) -> u64 {
    let mut power = 1u64;
    while power < SECOND && number > 0 && number.is_multiple_of(power * 10) {
        power *= 10;
    }
    power
}

/// The largest power of ten by which all numbers can be divided; 1 of none.
pub(super) fn step(numbers: impl Iterator<Item = u64>) -> u64 {
    power(divisor(numbers))
}

/// The step of a clock that durations were read from: as [`step`], or twice, four times or five times that, as timers of 4, 5 and 20 ms
/// have it, or that of Windows. (Other numbers by which all can be divided are those of the work.)
pub(super) fn tick(durations: impl Iterator<Item = u64>) -> u64 {
    let durations: Vec<u64> = durations.collect();
    let divisor = divisor(durations.iter().copied());
    let power = power(divisor);
    if power < SECOND && [2, 4, 5].contains(&(divisor / power)) {
        return divisor;
    }
    if is_of_windows(&durations, power) { WINDOWS_TICK } else { power }
}

/// Whether durations are multiples of Windows' tick, of which less than a unit is lost (`15`, `16`, `31`, `47`): three of them at least, because
/// other works may be as long as one or two ticks.
fn is_of_windows(durations: &[u64], unit: u64) -> bool {
    let ticks = |ns: u64| (ns + WINDOWS_TICK / 2) / WINDOWS_TICK;
    let is_multiple = |ns: &u64| ns.abs_diff(ticks(*ns) * WINDOWS_TICK) < unit;
    let distinct: BTreeSet<u64> = durations.iter().map(|ns| ticks(*ns)).collect();
    (1_000..=1_000_000).contains(&unit) && distinct.len() >= 4 && durations.iter().all(is_multiple)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_powers_of_ten() {
        for (numbers, expected) in [
            (vec![1_700_000_000_000_000_000, 5_000_000_000], SECOND),
            (vec![20_000_000, 30_000_000], 10_000_000),
            (vec![15_000, 0, 20_000], 1_000),
            (vec![7], 1),
            (vec![], 1),
        ] {
            assert_eq!(step(numbers.iter().copied()), expected, "{numbers:?}");
        }
    }

    #[test]
    fn ticks_of_windows_are_found_behind_what_is_cut_off() {
        let ms = |all: &[u64]| tick(all.iter().map(|ms| ms * 1_000_000));
        assert_eq!(ms(&[0, 15, 16, 31, 46, 47, 62, 78, 109, 125]), WINDOWS_TICK);
        assert_eq!(ms(&[0, 15, 16, 31, 46, 47, 62, 78, 110, 125]), WINDOWS_TICK);
        // One that is none, or too few to say it.
        assert_eq!(ms(&[0, 15, 16, 31, 46, 47, 55, 78, 109, 125]), 1_000_000);
        assert_eq!(ms(&[0, 15, 16, 31]), 1_000_000);
        let exact = [0, 15_625, 31_250, 46_875, 125_000].map(|us| us * 1_000);
        assert_eq!(tick(exact.into_iter()), WINDOWS_TICK);
    }

    #[test]
    fn ticks_are_those_that_timers_have() {
        const MS: u64 = 1_000_000;
        for (multiples_ms, expected_ms) in [
            ([4, 8, 0, 12], 4),
            ([20, 60, 100, 0], 20),
            ([5, 25, 10, 15], 5),
            ([12, 24, 36, 48], 1),
            ([10, 30, 50, 70], 10),
            ([7, 8, 9, 10], 1),
            ([2000, 4000, 8000, 6000], 1000),
        ] {
            let durations = multiples_ms.map(|ms| ms * MS);
            assert_eq!(tick(durations.into_iter()), expected_ms * MS, "{multiples_ms:?}");
        }
    }
}
