//! Send times: arrival processes, and the times of a trace spread within their resolution.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ground::window::{Nanos, SECOND};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

use super::plan::{Length, Think};

/// Creates a generator that is the same for equal seeds and purposes, on every machine and in
/// every version.
pub(super) fn random(seed: u64, purpose: u64) -> Xoshiro256PlusPlus {
    let mixed = (seed ^ purpose.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose;
    Xoshiro256PlusPlus::seed_from_u64(mixed)
}

/// An exponential draw with the given mean.
pub(super) fn exponential(rng: &mut Xoshiro256PlusPlus, mean: f64) -> f64 {
    // 1 − u is in (0, 1], whose logarithm is finite.
    -(1.0 - rng.random::<f64>()).ln() * mean
}

/// How the send times of a phase are chosen.
#[derive(Clone, Debug)]
pub(super) enum Pace {
    /// Exponential gaps at a rate (requests/s).
    Poisson(f64),
    /// Equal gaps at a rate.
    Constant(f64),
    /// These times from the phase's start, ascending.
    Times(Arc<[Nanos]>),
    /// Clients that wait for their replies.
    Closed { clients: usize, think_ns: f64, think: Think },
}

/// The set of requests that a phase draws from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Warmup,
    Measured,
    /// Every distinct key once, as puts.
    Fill,
}

/// A stretch of a pass with one pace.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub pace: Pace,
    pub length: Length,
    pub part: Part,
    /// Selects the phase's random stream, together with the plan's seed.
    pub purpose: u64,
    /// The index of the step, if the phase is measured.
    pub step: Option<usize>,
}

impl Phase {
    /// The seed of the phase's keys. Numbers begin at 0 in each phase; with one seed for all, each would ask for the
    /// keys of the one before, in the same order, and memory would answer more with each step.
    pub fn key_seed(&self, seed: u64) -> u64 {
        seed ^ self.purpose.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// An arrival of an open loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub phase: usize,
    /// Its number within the phase.
    pub index: u64,
    /// Nanoseconds from the start of the pass.
    pub at: Nanos,
}

/// The arrivals of consecutive phases. Every thread draws all of them and keeps its share, so that
/// the load does not depend on the number of threads.
pub(super) struct ArrivalStream {
    phases: Arc<[Phase]>,
    seed: u64,
    rng: Xoshiro256PlusPlus,
    phase: usize,
    index: u64,
    /// Nanoseconds from the pass's start to the phase's start, and to the last arrival.
    phase_start: f64,
    last: f64,
    ends: Vec<Nanos>,
}

impl ArrivalStream {
    pub fn new(phases: Arc<[Phase]>, seed: u64) -> ArrivalStream {
        let purpose = phases.first().map_or(0, |p| p.purpose);
        ArrivalStream {
            phases,
            seed,
            rng: random(seed, purpose),
            phase: 0,
            index: 0,
            phase_start: 0.0,
            last: 0.0,
            ends: Vec::new(),
        }
    }

    /// Returns the end of each phase, in nanoseconds from the start of the pass; fewer entries if
    /// `stop` is set meanwhile.
    ///
    /// Cost: constant, except for a phase of a given number of Poisson arrivals, which are all
    /// drawn: about a second for 10⁸.
    pub fn ends(mut self, stop: &AtomicBool) -> Vec<Nanos> {
        while let Some(phase) = self.phases.get(self.phase) {
            let start = self.phase_start;
            let last = match (&phase.pace, phase.length) {
                (Pace::Poisson(_) | Pace::Constant(_), Length::Seconds(s)) => {
                    self.end_phase(start + s * SECOND as f64);
                    continue;
                }
                (Pace::Times(times), Length::Seconds(s)) => {
                    let end = start + s * SECOND as f64;
                    let count = times.partition_point(|&t| start + (t as f64) < end);
                    let last = count.checked_sub(1).map_or(start, |at| start + times[at] as f64);
                    let after = if count < times.len() { end } else { (last + 1.0).min(end) };
                    self.end_phase(after.max(start));
                    continue;
                }
                (Pace::Times(times), Length::Requests(n)) => {
                    let count = times.len().min(usize::try_from(n).unwrap_or(usize::MAX));
                    count.checked_sub(1).map_or(start, |at| start + times[at] as f64)
                }
                (Pace::Constant(rate), Length::Requests(n)) => {
                    start + n.saturating_sub(1) as f64 * (SECOND as f64 / rate)
                }
                (Pace::Poisson(rate), Length::Requests(n)) => {
                    let gap = SECOND as f64 / rate;
                    let mut rng = random(self.seed, phase.purpose);
                    let mut last = start;
                    for drawn in 0..n {
                        if drawn % (1 << 20) == 0 && stop.load(Ordering::Relaxed) {
                            return self.ends;
                        }
                        last += exponential(&mut rng, gap);
                    }
                    last
                }
                (Pace::Closed { .. }, _) => return self.ends,
            };
            self.end_phase(last + 1.0);
        }
        self.ends
    }

    /// Whether the arrivals of a phase are equally spaced, so that threads take them in turn.
    pub fn is_regular(&self, phase: usize) -> bool {
        matches!(self.phases.get(phase).map(|p| &p.pace), Some(Pace::Constant(_)))
    }

    fn end_phase(&mut self, end: f64) {
        self.ends.push(end as Nanos);
        self.phase += 1;
        self.index = 0;
        self.phase_start = end;
        self.last = end;
        if let Some(phase) = self.phases.get(self.phase) {
            self.rng = random(self.seed, phase.purpose);
        }
    }
}

impl Iterator for ArrivalStream {
    type Item = Arrival;

    fn next(&mut self) -> Option<Arrival> {
        while let Some(phase) = self.phases.get(self.phase) {
            let next = match &phase.pace {
                _ if matches!(phase.length, Length::Requests(n) if self.index >= n) => None,
                Pace::Poisson(rate) => {
                    Some(self.last + exponential(&mut self.rng, SECOND as f64 / rate))
                }
                Pace::Constant(rate) => {
                    Some(self.phase_start + self.index as f64 * (SECOND as f64 / rate))
                }
                Pace::Times(times) => {
                    times.get(self.index as usize).map(|&t| self.phase_start + t as f64)
                }
                Pace::Closed { .. } => None,
            };
            let limit = match phase.length {
                Length::Seconds(s) => Some(self.phase_start + s * SECOND as f64),
                Length::Requests(n) if self.index >= n => Some(self.last + 1.0),
                Length::Requests(_) => None,
            };
            match (next, limit) {
                (Some(at), limit) if limit.is_none_or(|limit| at < limit) => {
                    let arrival = Arrival { phase: self.phase, index: self.index, at: at as Nanos };
                    self.index += 1;
                    self.last = at;
                    return Some(arrival);
                }
                // A trace that is shorter than its phase ends the phase early.
                (None, limit) => {
                    let end = (self.last + 1.0).min(limit.unwrap_or(f64::INFINITY));
                    self.end_phase(end.max(self.phase_start));
                }
                (Some(_), limit) => self.end_phase(limit.unwrap_or(self.last + 1.0)),
            }
        }
        None
    }
}

/// The greatest common divisor of the gaps between time stamps. `None` if all stamps are equal.
pub(super) fn resolution_of(stamps: &[Nanos]) -> Option<Nanos> {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let first = *stamps.first()?;
    let found = stamps.iter().fold(0, |g, &stamp| gcd(g, stamp.abs_diff(first)));
    (found > 0).then_some(found)
}

/// Returns arrival times relative to the first stamp. Arrivals with equal stamps are spread
/// uniformly over the resolution, without reaching the next stamp; the order is kept.
pub(super) fn spread(stamps: &[Nanos], resolution: Nanos, seed: u64) -> Vec<Nanos> {
    let mut rng = random(seed, 0x73707265);
    let first = stamps.first().copied().unwrap_or(0);
    let mut times = Vec::with_capacity(stamps.len());
    for group in stamps.chunk_by(|a, b| a == b) {
        let from = group[0].saturating_sub(first);
        let done = times.len();
        let next = stamps.get(done + group.len()).map(|&n| n.saturating_sub(first));
        let room = next.map_or(resolution, |n| n.saturating_sub(from).min(resolution));
        let drawn = group.iter().map(|_| from + (rng.random::<f64>() * room as f64) as Nanos);
        times.extend(drawn);
        times[done..].sort_unstable();
    }
    times
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn phase(pace: Pace, length: Length, purpose: u64) -> Phase {
        Phase { pace, length, part: Part::Measured, purpose, step: None }
    }

    fn arrivals(phases: Vec<Phase>) -> (Vec<Arrival>, Vec<Nanos>) {
        let phases: Arc<[Phase]> = phases.into();
        let all = ArrivalStream::new(phases.clone(), 7).collect();
        (all, ArrivalStream::new(phases, 7).ends(&AtomicBool::new(false)))
    }

    #[test]
    fn poisson_gaps_have_the_mean_and_the_variation_of_exponentials() {
        let (all, ends) =
            arrivals(vec![phase(Pace::Poisson(1000.0), Length::Requests(100_000), 1)]);
        let gaps: Vec<f64> =
            all.windows(2).map(|w| (w[1].at - w[0].at) as f64 / SECOND as f64).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // Standard errors at 100,000 gaps: 0.3 % of the mean, 0.9 % of the squared variation.
        assert!((mean * 1000.0 - 1.0).abs() < 0.012, "mean gap {mean}");
        let scv = variance / (mean * mean);
        assert!((scv - 1.0).abs() < 0.036, "squared coefficient of variation {scv}");
        assert_eq!(ends.len(), 1);
        assert!(ends[0] > all.last().unwrap().at);
    }

    #[test]
    fn constant_gaps_are_equal_and_phases_follow_each_other() {
        let (all, ends) = arrivals(vec![
            phase(Pace::Constant(100.0), Length::Seconds(0.1), 1),
            phase(Pace::Constant(200.0), Length::Seconds(0.1), 2),
            phase(Pace::Constant(50.0), Length::Requests(3), 3),
        ]);
        assert_eq!(all.len(), 10 + 20 + 3);
        assert_eq!(all[1].at, 10_000_000);
        assert_eq!(all[10], Arrival { phase: 1, index: 0, at: 100_000_000 });
        assert_eq!(ends, [100_000_000, 200_000_000, 240_000_001]);
        assert!(all.windows(2).all(|w| w[0].at <= w[1].at));
    }

    #[test]
    fn a_phase_of_nothing_ends_at_once() {
        let (all, ends) = arrivals(vec![
            phase(Pace::Poisson(10.0), Length::Requests(0), 1),
            phase(Pace::Times(Arc::from([5, 9])), Length::Seconds(9.0), 1),
        ]);
        assert_eq!(all.len(), 2);
        assert!(ends[0] <= 1 && ends[1] <= 12, "{ends:?}");
    }

    #[test]
    fn resolutions_are_found() {
        assert_eq!(resolution_of(&[0, 4000, 6000, 6000]), Some(2000));
        assert_eq!(resolution_of(&[7, 7]), None);
        assert_eq!(resolution_of(&[]), None);
    }

    fn any_phase() -> impl Strategy<Value = Phase> {
        let rate = || 1.0..1e9;
        let times = prop::collection::vec(0..3_000_000u64, 0..20).prop_map(|mut times| {
            times.sort_unstable();
            Pace::Times(times.into())
        });
        let pace =
            prop_oneof![rate().prop_map(Pace::Poisson), rate().prop_map(Pace::Constant), times];
        let length = prop_oneof![
            (0u64..30).prop_map(Length::Requests),
            (0u64..3000).prop_map(|us| Length::Seconds(us as f64 * 1e-9)),
        ];
        (pace, length, any::<u64>())
            .prop_map(|(pace, length, purpose)| phase(pace, length, purpose))
    }

    proptest! {
        #[test]
        fn ends_agree_with_the_arrivals(phases in prop::collection::vec(any_phase(), 1..6)) {
            let (all, ends) = arrivals(phases.clone());
            let mut stream = ArrivalStream::new(phases.clone().into(), 7);
            stream.by_ref().for_each(drop);
            prop_assert_eq!(&stream.ends, &ends);
            for (number, phase) in phases.iter().enumerate() {
                let own: Vec<&Arrival> = all.iter().filter(|a| a.phase == number).collect();
                prop_assert!(own.iter().all(|arrival| arrival.at <= ends[number]));
                if let (Length::Requests(n), Pace::Poisson(_) | Pace::Constant(_)) =
                    (phase.length, &phase.pace)
                {
                    prop_assert_eq!(own.len() as u64, n);
                }
            }
        }

        #[test]
        fn spreading_keeps_order_and_stays_within_the_resolution(
            gaps in prop::collection::vec(0u64..4, 1..200),
            unit in 1u64..2_000_000_000,
            seed in any::<u64>(),
        ) {
            let stamps: Vec<Nanos> = gaps
                .iter()
                .scan(5 * unit, |at, gap| { *at += gap * unit; Some(*at) })
                .collect();
            let resolution = resolution_of(&stamps).unwrap_or(unit);
            let times = spread(&stamps, resolution, seed);
            prop_assert_eq!(times.len(), stamps.len());
            for (time, stamp) in times.iter().zip(&stamps) {
                let stamp = stamp - stamps[0];
                prop_assert!((stamp..stamp + resolution).contains(time));
            }
            prop_assert!(times.windows(2).all(|w| w[0] <= w[1]));
        }
    }
}
