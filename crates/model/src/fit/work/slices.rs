//! Replies that leave in slices: a quota that is given out once a period, as the kernel does for processors (`cpu.max`) and disks
//! (`io.max`).
//!
//! Requests pass at once until the quota of the period is used up; later ones wait for the next period, all together. So a work depends on what
//! others used, and light loads do not show what heavy ones meet: predictions of such services were 17 to 55 points off, in narrow intervals where the
//! test of independence ([`super::score`]) had too few requests to object.
//!
//! It shows by *stalls*: intervals between two departures that are among the longest, with requests inside all the time. From the end of one to that
//! of the next there is a period, however long the works between them were; of independent works that time varies as works do, and a stall has
//! nothing to do with the works before it. Services of constant work leave as regularly, but have no replies that are faster than a period.

use super::search::Search;

/// Stalls are longer than this part of the longest intervals, which are those above this quantile.
const LONG: f64 = 0.5;
const LONGEST: f64 = 0.98;
/// The fewest times between stalls.
const FEWEST: usize = 30;
/// Times between stalls are alike if so many are within this part of their median.
const NEAR: f64 = 0.2;
const ALIKE: f64 = 0.7;
/// A stall ends a period, so that it is shorter by what was done before it: by a slope of −1, if at least by this one, and by so
/// many standard errors.
const SLOPE: f64 = -0.5;
const ERRORS: f64 = 3.0;
/// The least share of the requests that are answered within half a period.
const FAST: f64 = 0.1;

/// A quota that is given out once a period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Slices {
    /// Seconds from one to the next.
    pub period_s: f64,
    /// Requests that leave in one while more wait.
    pub served: f64,
}

/// From the end of a stall to the end of the next one, with requests inside all the time.
struct Cycle {
    seconds: f64,
    /// The last stall's.
    stall_s: f64,
    /// Departures in it, and the seconds of the intervals between those that are no stall.
    served: f64,
    between_s: f64,
}

/// The time of each departure but the first, with the seconds since the one before if requests were inside all the time.
fn busy_intervals(arrivals: &[f64], ends: impl Iterator<Item = f64>) -> Vec<(f64, Option<f64>)> {
    let (mut arrived, mut last) = (0, None);
    let of = |(left, end): (usize, f64)| {
        let before = last.replace(end);
        // Inside after the departure before: `left` have left.
        while before.is_some_and(|before| arrived < arrivals.len() && arrivals[arrived] <= before) {
            arrived += 1;
        }
        before.map(|before| (end, (arrived > left).then_some(end - before)))
    };
    ends.enumerate().map(of).skip(1).flatten().collect()
}

/// The cycles of a step, of stalls longer than a time.
fn cycles(intervals: &[(f64, Option<f64>)], stall_s: f64, all: &mut Vec<Cycle>) {
    let mut since: Option<(f64, f64, f64)> = None;
    for (end, interval) in intervals {
        since = match (*interval, since) {
            (None, _) => None,
            (Some(interval), known) if interval > stall_s => {
                all.extend(known.map(|(from, served, between_s)| Cycle {
                    seconds: end - from,
                    stall_s: interval,
                    served: served + 1.0,
                    between_s,
                }));
                Some((*end, 0.0, 0.0))
            }
            (Some(interval), Some((from, served, between_s))) => {
                Some((from, served + 1.0, between_s + interval))
            }
            (Some(_), None) => None,
        };
    }
}

/// The slope of the stalls by what was done before each, with its standard error; `None` where that is always the same.
fn slope(cycles: &[Cycle]) -> Option<(f64, f64)> {
    let n = cycles.len() as f64;
    let mean = |of: &dyn Fn(&Cycle) -> f64| cycles.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(&|c| c.between_s), mean(&|c| c.stall_s));
    let square = n * mean(&|c| (c.between_s - x).powi(2));
    let slope = n * mean(&|c| (c.between_s - x) * (c.stall_s - y)) / square;
    let left = n * mean(&|c| (c.stall_s - y - slope * (c.between_s - x)).powi(2));
    (square > 0.0 && slope.is_finite()).then(|| (slope, (left / (n - 2.0) / square).sqrt()))
}

/// The slices in which requests leave; `None` if they do not.
pub(super) fn slices(found: &Search) -> Option<Slices> {
    let each: Vec<_> = found
        .lines
        .iter()
        .map(|line| {
            let ends = line.by_end.iter().map(|i| line.departures[*i as usize]);
            busy_intervals(&line.arrivals, ends)
        })
        .collect();
    let mut busy: Vec<f64> = each.iter().flatten().filter_map(|r| r.1).collect();
    if busy.len() < FEWEST {
        return None;
    }
    let at = (LONGEST * busy.len() as f64) as usize;
    let stall_s = LONG * *busy.select_nth_unstable_by(at, f64::total_cmp).1;
    let mut all = Vec::new();
    each.iter().for_each(|intervals| cycles(intervals, stall_s, &mut all));
    if all.len() < FEWEST {
        return None;
    }
    let mut seconds: Vec<f64> = all.iter().map(|cycle| cycle.seconds).collect();
    let middle = seconds.len() / 2;
    let period_s = *seconds.select_nth_unstable_by(middle, f64::total_cmp).1;
    let tick_s = found.lines.iter().map(|line| line.ticks.coarsest()).fold(0.0, f64::max);
    let near = seconds.iter().filter(|s| (*s - period_s).abs() <= NEAR * period_s + tick_s);
    let (slope, error) = slope(&all)?;
    let is_regular = near.count() as f64 >= ALIKE * all.len() as f64;
    let ends_periods = slope <= SLOPE && slope + ERRORS * error < 0.0;
    let responses =
        || found.lines.iter().flat_map(|line| line.departures.iter().zip(&line.arrivals));
    let fast = responses().filter(|(end, from)| *end - *from < 0.5 * period_s).count() as f64;
    let passes = fast >= FAST * responses().count() as f64;
    let served = all.iter().map(|cycle| cycle.served).sum::<f64>() / all.len() as f64;
    (is_regular && ends_periods && passes && tick_s < NEAR * period_s)
        .then_some(Slices { period_s, served })
}

impl Slices {
    /// What does not fit: a part of a sentence.
    pub fn why(self) -> String {
        format!(
            "replies leave in slices of {:.3} s: while requests wait, nothing leaves for most of it, and then {:.1} requests in the mean",
            self.period_s, self.served
        )
    }

    /// What it means: a sentence.
    pub fn text(self) -> String {
        format!(
            "A quota seems to be given out every {:.3} s, as the kernel does for processors (cpu.max) and disks (io.max). Requests that find some of it left pass \
             at once, so that light loads do not show what heavy ones meet. It lets about {:.4} requests/s pass; measure loads near that, or raise the quota.",
            self.period_s,
            self.served / self.period_s
        )
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::super::congestion_tests::throttled;
    use super::super::line::Line;
    use super::super::search::{Among, search};
    use super::super::tests::{exponential, in_line, step};
    use super::*;
    use crate::fit::input::Options;
    use crate::fit::work::times::REQUESTS_MAX;

    fn slices_of(runs: &[Vec<(f64, f64)>], servers: u32) -> Option<Slices> {
        let line =
            |run: &Vec<(f64, f64)>| Line::new(&step("", run).times.unwrap(), REQUESTS_MAX).unwrap();
        let lines = runs.iter().map(line).collect();
        slices(&search(lines, Among::Servers(servers), &Options::default()))
    }

    #[test]
    fn the_slices_of_a_quota_are_found() {
        for seed in 1..4 {
            let run = |rate: f64| throttled(rate, 300.0, 100 * seed + rate as u64);
            let runs = [9.0, 15.0, 21.0].map(run);
            let Slices { period_s, served } = slices_of(&runs, 1).expect("slices");
            assert!((period_s / 0.1 - 1.0).abs() < 0.03, "{period_s}");
            assert!((served / 3.0 - 1.0).abs() < 0.1, "{served}");
        }
    }

    /// Services without a quota, some of which leave as regularly, have none.
    #[test]
    fn other_services_leave_in_no_slices() {
        type Works = Box<dyn FnMut(&mut StdRng) -> f64>;
        let two = |random: &mut StdRng| if random.random::<bool>() { 0.001 } else { 0.019 };
        let some = |random: &mut StdRng| if random.random::<f64>() < 0.9 { 0.005 } else { 0.055 };
        let services: [(u32, Works); 6] = [
            (1, Box::new(exponential(0.01))),
            (1, Box::new(|_: &mut StdRng| 0.01)),
            (3, Box::new(|_: &mut StdRng| 0.01)),
            (1, Box::new(two)),
            (1, Box::new(some)),
            (2, Box::new(|random: &mut StdRng| 0.02 * random.random::<f64>())),
        ];
        for (i, (servers, mut works)) in services.into_iter().enumerate() {
            let mut random = StdRng::seed_from_u64(i as u64);
            let mut run = |utilisation: f64| {
                let rate = utilisation * f64::from(servers) / 0.01;
                in_line(servers as usize, rate, 4_000, &mut works, &mut random)
            };
            let runs = [run(0.3), run(0.5), run(0.7)];
            assert_eq!(slices_of(&runs, servers), None, "{i}");
        }
    }
}
