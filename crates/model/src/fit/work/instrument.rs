//! Whether works depend on how many requests are inside, or only come together with many.
//!
//! A spell in which a server is slow (a neighbour on the machine, a collector of garbage) makes works long, and then many are inside.
//! So works are longer where many are inside, with either cause. What tells the causes apart is an instrument that knows
//! nothing of works: the number inside of a *virtual* queue, which has the arrivals of the recording and works that are all
//! as long as the mean. In an open loop, arrivals do not know how fast the servers are. If the number inside slows works down,
//! works are longer while many are in the virtual queue too; if slow works gather requests, they are not.
//!
//! With z = 1/s(virtual number), r = 1/s(number) and w the work, each less its mean at the same load, the part
//! β = Σ z·w / Σ z·r (r and w over their means) of the fitted dependence is caused by the number: 1 if all of it is, 0 if none is
//! (instrumental variables: P. Wright, "The Tariff on Animal and Vegetable Oils", 1928, appendix B). Its standard error is that of
//! blocks of successive requests.

use crate::queue::Slowdown;

use super::line::{Kind, Line};

/// Blocks of a load.
const BLOCKS: usize = 16;
/// A part that is smaller than this, and so far from 1 in standard errors, is not caused.
const CAUSED: f64 = 0.5;
const ERRORS: f64 = 3.0;

/// The share of a dependence that the number inside causes, with its standard error.
#[derive(Clone, Copy, Debug)]
pub(super) struct CausalShare {
    pub share: f64,
    pub error: f64,
}

impl CausalShare {
    /// Whether something else causes the dependence.
    pub fn is_spurious(self) -> bool {
        self.share < CAUSED && self.share + ERRORS * self.error < 1.0
    }
}

/// What the virtual queue has inside when each request begins there, itself included.
fn virtual_numbers(arrivals: &[f64], servers: usize, work: f64) -> Vec<u32> {
    let mut ends: Vec<f64> = Vec::with_capacity(arrivals.len());
    let (mut came, mut left) = (0, 0);
    let mut numbers = Vec::with_capacity(arrivals.len());
    for (i, arrival) in arrivals.iter().enumerate() {
        // Works are alike, so that requests leave in the order in which they came.
        let free = i.checked_sub(servers).map_or(f64::NEG_INFINITY, |before| ends[before]);
        let begins = arrival.max(free);
        ends.push(begins + work);
        while came < arrivals.len() && arrivals[came] <= begins {
            came += 1;
        }
        while left < i && ends[left] <= begins {
            left += 1;
        }
        numbers.push((came.saturating_sub(left) as u32).max(1));
    }
    numbers
}

/// Deviations of a quantity of the judged requests from its mean, over that mean.
fn deviations(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    values.iter().map(|value| value / mean - 1.0).collect()
}

/// What arrivals alone say of a dependence of works on the number inside; `None` where they say nothing: of closed loops, and where
/// the number never matters. `works`: those of the hypothesis without a dependence, in the order of arrivals, for each line;
/// `numbers`: how many were inside when each judged request began.
pub(super) fn causal_share(
    lines: &[Line],
    kind: Kind,
    slowdown: &Slowdown,
    works: &[Vec<f64>],
    numbers: &[Vec<u32>],
) -> Option<CausalShare> {
    let servers = kind.servers? as usize;
    // Of each block: Σ z·w and Σ z·r.
    let mut blocks: Vec<[f64; 2]> = Vec::new();
    for ((line, works), numbers) in lines.iter().zip(works).zip(numbers).filter(|l| l.0.0.open) {
        let judged = |values: &[f64]| -> Vec<f64> {
            values.iter().zip(&line.counted).filter(|r| *r.1).map(|r| *r.0).collect()
        };
        let of = |number: &u32| 1.0 / slowdown.speed(f64::from(*number));
        let own = judged(works);
        let work = own.iter().sum::<f64>() / own.len().max(1) as f64;
        if !(work > 0.0 && own.len() == numbers.len()) {
            continue;
        }
        let inside = virtual_numbers(&line.arrivals, servers, work);
        let z = deviations(&judged(&inside.iter().map(of).collect::<Vec<f64>>()));
        let r = deviations(&numbers.iter().map(of).collect::<Vec<f64>>());
        let w = deviations(&own);
        let each: Vec<[f64; 2]> =
            z.iter().zip(&w).zip(&r).map(|((z, w), r)| [z * w, z * r]).collect();
        let sum = |block: &[[f64; 2]]| {
            block.iter().fold([0.0; 2], |sum, one| [sum[0] + one[0], sum[1] + one[1]])
        };
        blocks.extend(each.chunks(each.len().div_ceil(BLOCKS)).map(sum));
    }
    let of_works: f64 = blocks.iter().map(|block| block[0]).sum();
    let of_numbers: f64 = blocks.iter().map(|block| block[1]).sum();
    if of_numbers <= 0.0 {
        return None;
    }
    let part = of_works / of_numbers;
    let square: f64 = blocks.iter().map(|block| (block[0] - part * block[1]).powi(2)).sum();
    Some(CausalShare { share: part, error: square.sqrt() / of_numbers })
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use rand::SeedableRng;
    use rand::rngs::StdRng;
    use rand_distr::{Distribution, Exp};

    use super::*;
    use crate::queue::Discipline;

    const ONE: Kind = Kind { discipline: Discipline::Fifo, servers: Some(1) };

    /// A line of exponential works of mean 1, which take longer by a factor that depends on the number inside and on the time of their begin;
    /// with how many were inside when each began.
    fn line(slower: impl Fn(u32, f64) -> f64, seed: u64) -> (Line, Vec<u32>) {
        let mut random = StdRng::seed_from_u64(seed);
        let (gaps, law) = (Exp::new(0.6).unwrap(), Exp::new(1.0).unwrap());
        let (mut arrivals, mut departures, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        let (mut due, mut free) = (0.0f64, 0.0f64);
        let mut waiting: VecDeque<f64> = VecDeque::new();
        while departures.len() < 20_000 {
            let begins = waiting.front().map_or(f64::INFINITY, |first| free.max(*first));
            if due <= begins {
                waiting.push_back(due);
                due += gaps.sample(&mut random);
                continue;
            }
            numbers.push(waiting.len() as u32);
            arrivals.extend(waiting.pop_front());
            free = begins + law.sample(&mut random) * slower(numbers[numbers.len() - 1], begins);
            departures.push(free);
        }
        (Line::from_times(arrivals, departures), numbers)
    }

    /// What is found if the speed is taken to fall as 1/(1 + 0.04 (n − 1)) up to 16 inside.
    fn dependence(line: Line, numbers: Vec<u32>) -> CausalShare {
        let known: Vec<f64> = (1..=16).map(f64::from).collect();
        let speeds = known.iter().map(|n| 1.0 / (1.0 + 0.04 * (n - 1.0))).collect();
        let slowdown = Slowdown::new(known, speeds, 0.0).unwrap();
        let works = line.works(ONE, 0.0.into());
        causal_share(&[line], ONE, &slowdown, &[works], &[numbers]).unwrap()
    }

    #[test]
    fn congestion_is_caused_and_spells_are_not() {
        for seed in 0..4 {
            let slower = |n: u32| 1.0 + 0.04 * (f64::from(n.min(16)) - 1.0);
            let (recorded, numbers) = line(|n, _| slower(n), seed);
            let congestion = dependence(recorded, numbers);
            assert!((congestion.share - 1.0).abs() < 4.0 * congestion.error, "{congestion:?}");
            assert!(congestion.error < 0.3 && !congestion.is_spurious(), "{congestion:?}");
            let (recorded, numbers) = line(|_, at| if at % 200.0 < 50.0 { 1.6 } else { 1.0 }, seed);
            let spells = dependence(recorded, numbers);
            assert!(spells.share.abs() < 4.0 * spells.error && spells.is_spurious(), "{spells:?}");
        }
    }

    #[test]
    fn a_virtual_queue_counts_whom_arrivals_alone_gather() {
        // Two come at once, one while the second is served, one long after.
        let numbers = virtual_numbers(&[0.0, 0.0, 1.5, 9.0], 1, 1.0);
        assert_eq!(numbers, [2, 1, 1, 1]);
        // At 1 s the second begins, and the third has come by then.
        assert_eq!(virtual_numbers(&[0.0, 0.0, 0.5], 1, 1.0), [2, 2, 1]);
        assert_eq!(virtual_numbers(&[0.0, 0.0, 0.5], 3, 1.0), [2, 2, 3]);
    }
}
