//! Times that a clock gave in ticks: what they may have been.
//!
//! A time is known to be within its tick. Times within are drawn uniformly, subject to what is known: a reply comes after
//! its request, and requests of one tick leave in the order in which they came. Draws without that order invent idle time
//! between departures of one tick, and responses of exactly 0, which look like hits of a cache. A response that was measured by itself
//! is taken for the nearest tick: rounded down it would be half a tick longer in the mean, which importers add where a format is known to
//! do that. Taken for rounded down, one that was rounded to the nearest came out half a tick too long, as did every
//! prediction. Cost: O(n log n).

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// The ticks of recorded times, seconds; 0 where times are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ticks {
    /// Of the departures, which are rounded down.
    pub clock_s: f64,
    /// Of the responses.
    pub resolution_s: f64,
    /// Whether responses were measured by themselves, whatever the resolutions.
    pub is_timed_apart: bool,
}

impl Ticks {
    /// Whether arrivals and departures were read from one clock. Otherwise the response was measured by itself.
    fn has_one_clock(self) -> bool {
        !self.is_timed_apart
            && self.clock_s > 0.0
            && (self.clock_s / self.resolution_s - 1.0).abs() < 1e-9
    }

    /// The variance that drawing within ticks adds to a work, s².
    pub fn blur(self) -> f64 {
        if self.has_one_clock() {
            self.clock_s * self.clock_s / 6.0
        } else {
            self.resolution_s * self.resolution_s / 12.0
        }
    }

    /// The coarser of the two, seconds.
    pub fn coarsest(self) -> f64 {
        self.clock_s.max(self.resolution_s)
    }

    /// Arrival and departure as a log shows them.
    pub fn read(self, arrival: f64, departure: f64) -> (f64, f64) {
        let down =
            |time: f64, tick: f64| if tick > 0.0 { (time / tick).floor() * tick } else { time };
        let end = down(departure, self.clock_s);
        if self.has_one_clock() {
            (down(arrival, self.clock_s).min(end), end)
        } else {
            let taken = departure - arrival;
            let resolution = self.resolution_s;
            let nearest =
                if resolution > 0.0 { (taken / resolution).round() * resolution } else { taken };
            (end - nearest, end)
        }
    }

    /// Arrivals that chance draws anew within the ticks of those drawn for a log, ascending. Those of a log are too early within their ticks
    /// where replies came within the same tick, since an arrival is before its reply: works that were done from them again ended in a later
    /// tick less often than they had (of works of a tick in the mean, the works that were seen came out 1 to 2.5 % shorter).
    pub fn arrivals(self, drawn: &[f64], random: &mut StdRng) -> Vec<f64> {
        if !self.has_one_clock() {
            return drawn.to_vec();
        }
        let clock = self.clock_s;
        let anew = |time: &f64| ((time / clock).floor() + random.random::<f64>()) * clock;
        let mut arrivals: Vec<f64> = drawn.iter().map(anew).collect();
        arrivals.sort_by(f64::total_cmp);
        arrivals
    }

    /// Arrivals and departures that were read as `recorded`, which are in an order that does not depend on that of the
    /// log's lines.
    pub fn draw(self, recorded: &[(f64, f64)], seed: u64) -> Vec<(f64, f64)> {
        let (clock, resolution) = (self.clock_s, self.resolution_s);
        if self.coarsest() <= 0.0 {
            return recorded.to_vec();
        }
        let mut random = StdRng::seed_from_u64(seed);
        if !self.has_one_clock() {
            let mut of = |(arrival, departure): &(f64, f64)| {
                let late = clock * random.random::<f64>();
                let longer = resolution * (random.random::<f64>() - 0.5);
                // Of a response of 0 the half above it.
                let taken = (departure - arrival + longer).abs();
                (departure + late - taken, departure + late)
            };
            return recorded.iter().map(&mut of).collect();
        }
        let mut of = |(arrival, departure): &(f64, f64)| {
            let (u, v) = (random.random::<f64>(), random.random::<f64>());
            let is_within = departure - arrival < 0.75 * clock;
            let (u, v) = if is_within && u > v { (v, u) } else { (u, v) };
            (arrival + u * clock, departure + v * clock)
        };
        let mut drawn: Vec<(f64, f64)> = recorded.iter().map(&mut of).collect();
        // In any order that keeps each pair, the sorted draws of a tick also do.
        let mut order: Vec<usize> = (0..drawn.len()).collect();
        // Those that left first came first, so that no reply is before its request.
        order.sort_by(|a, b| {
            let (a, b) = (recorded[*a], recorded[*b]);
            a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
        });
        for tick in order.chunk_by(|a, b| recorded[*b].0 - recorded[*a].0 < 0.5 * clock) {
            let mut times: Vec<f64> = tick.iter().map(|i| drawn[*i].0).collect();
            times.sort_by(f64::total_cmp);
            tick.iter().zip(times).for_each(|(i, time)| drawn[*i].0 = time);
        }
        let mut order: Vec<usize> = (0..drawn.len()).collect();
        order.sort_by(|a, b| recorded[*a].1.total_cmp(&recorded[*b].1));
        for tick in order.chunk_by_mut(|a, b| recorded[*b].1 - recorded[*a].1 < 0.5 * clock) {
            let mut times: Vec<f64> = tick.iter().map(|i| drawn[*i].1).collect();
            times.sort_by(f64::total_cmp);
            tick.sort_by(|a, b| drawn[*a].0.total_cmp(&drawn[*b].0));
            tick.iter().zip(times).for_each(|(i, time)| drawn[*i].1 = time);
        }
        drawn
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Draws are within their ticks, and no reply is before its request.
        #[test]
        fn draws_are_what_was_read(times in prop::collection::vec((0.0f64..0.2, 0.0f64..0.02), 1..200), seed in any::<u64>()) {
            for (clock_s, resolution_s, is_timed_apart) in [
                (1e-2, 1e-2, false),
                (1e-3, 1e-3, false),
                (1e-3, 1e-3, true),
                (1e-6, 1e-3, false),
                (0.0, 1e-3, false),
            ] {
                let ticks = Ticks { clock_s, resolution_s, is_timed_apart };
                let read: Vec<(f64, f64)> =
                    times.iter().map(|(a, taken)| ticks.read(*a, a + taken)).collect();
                let drawn = ticks.draw(&read, seed);
                for ((arrival, departure), (a, d)) in drawn.iter().zip(&read) {
                    prop_assert!(departure >= arrival);
                    prop_assert!((-1e-12..ticks.clock_s + 1e-12).contains(&(departure - d)));
                    // An arrival is a departure less a response where that was measured by itself.
                    let late = match ticks.has_one_clock() {
                        true => ticks.clock_s,
                        false => ticks.clock_s + ticks.resolution_s / 2.0,
                    };
                    prop_assert!((arrival - a).abs() <= late + 1e-12);
                }
            }
        }
    }

    /// Requests that are answered within the tick in which they came, or soon after, are drawn early within it; arrivals drawn anew are as late
    /// as chance makes them, each in the tick that was read.
    #[test]
    fn arrivals_drawn_anew_are_anywhere_in_their_ticks() {
        let mut random = StdRng::seed_from_u64(8);
        let (clock, mut now) = (0.01, 0.0);
        let ticks = Ticks { clock_s: clock, resolution_s: clock, is_timed_apart: false };
        let read: Vec<(f64, f64)> = (0..40_000)
            .map(|_| {
                now += -0.01 * (1.0 - random.random::<f64>()).ln();
                ticks.read(now, now + 0.01 * random.random::<f64>())
            })
            .collect();
        let mut drawn: Vec<f64> = ticks.draw(&read, 9).iter().map(|r| r.0).collect();
        drawn.sort_by(f64::total_cmp);
        let anew = ticks.arrivals(&drawn, &mut random);
        let tick = |time: &f64| (time / clock).floor();
        let phase =
            |all: &[f64]| all.iter().map(|t| t / clock - tick(t)).sum::<f64>() / all.len() as f64;
        assert!(phase(&drawn) < 0.45, "{}", phase(&drawn));
        // The standard deviation of the mean is 0.0014.
        assert!((phase(&anew) - 0.5).abs() < 0.006, "{}", phase(&anew));
        assert!(anew.is_sorted() && anew.iter().map(tick).eq(drawn.iter().map(tick)));
        // Responses that were measured by themselves are drawn to either side.
        let apart = Ticks { is_timed_apart: true, ..ticks };
        assert_eq!(apart.arrivals(&drawn, &mut random), drawn);
    }

    /// Responses that were drawn from what a clock shows are as long in the mean as they were.
    #[test]
    fn draws_keep_the_mean_response() {
        let mut random = StdRng::seed_from_u64(4);
        let (mut now, n) = (0.0, 60_000);
        let times: Vec<(f64, f64)> = (0..n)
            .map(|_| {
                now += -0.01 * (1.0 - random.random::<f64>()).ln();
                // Many ticks long: where a density is steep, or ends, within a tick, draws within it are off by some of it.
                (now, now - 0.05 * (1.0 - random.random::<f64>()).ln())
            })
            .collect();
        let mean = |all: &[(f64, f64)]| all.iter().map(|r| r.1 - r.0).sum::<f64>() / n as f64;
        for (clock_s, resolution_s, is_timed_apart) in
            [(1e-3, 1e-3, false), (1e-3, 1e-3, true), (1e-6, 1e-3, false), (0.0, 1e-3, false)]
        {
            let ticks = Ticks { clock_s, resolution_s, is_timed_apart };
            let read: Vec<(f64, f64)> = times.iter().map(|(a, d)| ticks.read(*a, *d)).collect();
            let off = mean(&ticks.draw(&read, 9)) - mean(&times);
            assert!(off.abs() < 0.015 * clock_s.max(resolution_s), "{ticks:?}: {off}");
        }
    }
}
