//! What was predicted and what was then measured, over a day: the body of `GET /history`.
//!
//! Two rings of fixed size: a point for each of the last [`FINE`] seconds, and one for each of the last [`COARSE`] minutes. All
//! their memory is taken at the start ([`BYTES_MAX`]), so a process that runs for years holds what one holds after a minute. Cost: a
//! few additions for each interval of windows.
//!
//! A prediction is for a time to come, so it waits until then, and holds until the next one's time.

use std::collections::VecDeque;

use model::live::{ClientInterval, State};
use serde::Serialize;

/// Points of a second: the last hour.
const FINE: usize = 3600;
/// Points of a minute: the last day.
const COARSE: usize = 1440;
/// Seconds of a coarse point.
const MINUTE: u32 = 60;
/// Predictions that wait for their time; the oldest is dropped for another. One is made each `model.refit_s`, at most an hour ahead.
const WAITING: usize = 512;
/// The largest memory of a history.
pub const BYTES_MAX: usize = 192 << 10;

const _: () = assert!(
    size_of::<Point>() * (FINE + COARSE) + size_of::<Expected>() * WAITING <= BYTES_MAX,
    "the rings are larger than what docs/operations.md states"
);

/// A predicted share within the objective with its 95 % interval; NaN where there was no prediction.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Share {
    value: f32,
    low: f32,
    high: f32,
}

const UNKNOWN: Share = Share { value: f32::NAN, low: f32::NAN, high: f32::NAN };

/// A second or a minute.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Point {
    /// Its start, seconds since 1970-01-01 UTC.
    unix_s: u32,
    arrivals: u32,
    requests: u32,
    within: u32,
    predicted: Share,
}

/// A prediction and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Expected {
    at_unix_us: u64,
    share: Share,
}

/// The last points of one resolution.
#[derive(Debug)]
struct Ring {
    seconds: u32,
    points: VecDeque<Point>,
    most: usize,
}

impl Ring {
    fn new(seconds: u32, most: usize) -> Ring {
        Ring { seconds, points: VecDeque::with_capacity(most), most }
    }

    /// Adds counts to the point of their time: a new one, or the newest.
    fn add(&mut self, counts: Point) {
        let unix_s = counts.unix_s - counts.unix_s % self.seconds;
        // A clock that is put back adds to the newest point, so that times ascend.
        if let Some(newest) = self.points.back_mut().filter(|newest| newest.unix_s >= unix_s) {
            newest.arrivals = newest.arrivals.saturating_add(counts.arrivals);
            newest.requests = newest.requests.saturating_add(counts.requests);
            newest.within = newest.within.saturating_add(counts.within);
            // The last prediction of a minute stands for the minute: they come every ten seconds and hardly differ.
            if !counts.predicted.value.is_nan() {
                newest.predicted = counts.predicted;
            }
            return;
        }
        if self.points.len() >= self.most {
            self.points.pop_front();
        }
        self.points.push_back(Point { unix_s, ..counts });
    }

    /// The points that began at or after a time. The one at that time is among them, since it may have grown.
    fn series(&self, from_unix_s: u32) -> Series {
        let from = self.points.partition_point(|point| point.unix_s < from_unix_s);
        let points = || self.points.iter().skip(from);
        let known = |of: fn(&Share) -> f32| {
            points().map(|p| Some(of(&p.predicted)).filter(|share| share.is_finite())).collect()
        };
        Series {
            seconds: self.seconds,
            unix_s: points().map(|p| p.unix_s).collect(),
            arrivals: points().map(|p| p.arrivals).collect(),
            requests: points().map(|p| p.requests).collect(),
            within: points().map(|p| p.within).collect(),
            predicted: known(|share| share.value),
            low: known(|share| share.low),
            high: known(|share| share.high),
        }
    }
}

/// Points of one resolution, as columns of equal length, oldest first.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The length of a point, seconds.
    seconds: u32,
    /// Its start, seconds since 1970-01-01 UTC.
    unix_s: Vec<u32>,
    /// Requests that arrived.
    arrivals: Vec<u32>,
    /// Requests that were answered.
    requests: Vec<u32>,
    /// Requests that were answered within the objective.
    within: Vec<u32>,
    /// The share within the objective that had been predicted for this time.
    predicted: Vec<Option<f32>>,
    /// The lower end of its 95 % interval.
    low: Vec<Option<f32>>,
    /// The upper end.
    high: Vec<Option<f32>>,
}

/// The reply of `GET /history`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistoryReport {
    /// The time of the objective, seconds.
    objective_s: f64,
    /// The share of the objective.
    share: f64,
    /// The last hour, second by second.
    fine: Series,
    /// The last day, minute by minute.
    coarse: Series,
}

/// Predicted and measured shares within the objective.
#[derive(Debug)]
pub struct History {
    fine: Ring,
    coarse: Ring,
    waiting: VecDeque<Expected>,
    /// The prediction whose time came last.
    present: Share,
    /// Until when it holds, microseconds since 1970-01-01 UTC.
    present_until_us: u64,
}

/// A prediction without a successor holds for this long, microseconds: fits come at least every few minutes.
const HOLDS_US: u64 = 300_000_000;

impl History {
    /// An empty history, with all its memory.
    pub fn new() -> History {
        History {
            fine: Ring::new(1, FINE),
            coarse: Ring::new(MINUTE, COARSE),
            waiting: VecDeque::with_capacity(WAITING),
            present: UNKNOWN,
            present_until_us: 0,
        }
    }

    /// Notes what a fit predicts for a time to come.
    pub fn expect(&mut self, state: &State) {
        let Some(ahead) = &state.ahead else { return };
        let within = &ahead.within;
        let share =
            Share { value: within.value as f32, low: within.low as f32, high: within.high as f32 };
        if self.waiting.len() >= WAITING {
            self.waiting.pop_front();
        }
        self.waiting.push_back(Expected { at_unix_us: ahead.at_unix_us, share });
    }

    /// Adds an interval.
    pub fn push(&mut self, interval: &ClientInterval) {
        while self.waiting.front().is_some_and(|next| next.at_unix_us <= interval.end_unix_us) {
            if let Some(due) = self.waiting.pop_front() {
                self.present = due.share;
                self.present_until_us = due.at_unix_us.saturating_add(HOLDS_US);
            }
        }
        let holds = interval.end_unix_us <= self.present_until_us;
        let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        let counts = Point {
            unix_s: count(interval.end_unix_us.saturating_sub(1) / 1_000_000),
            arrivals: count(interval.arrivals),
            requests: count(interval.requests),
            within: count(interval.within),
            predicted: if holds { self.present } else { UNKNOWN },
        };
        self.fine.add(counts);
        self.coarse.add(counts);
    }

    /// The points from a time on.
    pub fn report(&self, from_unix_s: u32, objective_s: f64, share: f64) -> HistoryReport {
        let (fine, coarse) = (self.fine.series(from_unix_s), self.coarse.series(from_unix_s));
        HistoryReport { objective_s, share, fine, coarse }
    }

    /// Bytes of its rings.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        (self.fine.points.capacity() + self.coarse.points.capacity()) * size_of::<Point>()
            + self.waiting.capacity() * size_of::<Expected>()
    }
}

#[cfg(test)]
mod tests {
    use model::Parameter;
    use model::live::Ahead;

    use super::*;

    const START_S: u64 = 1_700_000_040;

    fn interval(second: u64, within: u64) -> ClientInterval {
        let end_unix_us = (START_S + second + 1) * 1_000_000;
        ClientInterval { end_unix_us, arrivals: 100, requests: 100, within }
    }

    fn state(second: u64, share: f64) -> State {
        let ahead = Ahead {
            at_unix_us: (START_S + second) * 1_000_000,
            rate: 100.0,
            rate_low: 90.0,
            rate_high: 110.0,
            within: Parameter { value: share, low: share - 0.1, high: 1.0, unit: "1".to_owned() },
            misses: false,
            may_saturate: false,
        };
        State { ahead: Some(ahead), ..State::default() }
    }

    #[test]
    fn a_prediction_is_beside_what_was_measured_at_its_time() {
        let mut history = History::new();
        history.expect(&state(5, 0.75));
        history.expect(&state(8, 0.5));
        for second in 0..12 {
            history.push(&interval(second, 90));
        }
        let report = history.report(0, 0.05, 0.95);
        let fine = &report.fine;
        assert_eq!(fine.unix_s.len(), 12);
        assert_eq!(fine.unix_s.first(), Some(&(START_S as u32)));
        // The second whose end is the predicted time is the first that the prediction is for.
        assert_eq!(
            fine.predicted[3..9],
            [None, Some(0.75), Some(0.75), Some(0.75), Some(0.5), Some(0.5)]
        );
        assert_eq!((fine.low[4], fine.high[4]), (Some(0.65), Some(1.0)));
        assert_eq!(
            (report.coarse.requests.clone(), report.coarse.within.clone()),
            (vec![1200], vec![1080])
        );
        // From a time on, with the point that began then.
        let later = history.report(START_S as u32 + 10, 0.05, 0.95);
        assert_eq!(later.fine.unix_s, [START_S as u32 + 10, START_S as u32 + 11]);
        // A prediction without a successor does not hold for ever, and a clock that is put back loses no count.
        history.push(&interval(8 + 301, 1));
        assert_eq!(history.report(0, 0.05, 0.95).fine.predicted.last(), Some(&None));
        history.push(&interval(2, 1));
        assert_eq!(history.report(0, 0.05, 0.95).fine.requests.last(), Some(&200));
    }

    #[test]
    fn windows_of_a_tenth_of_a_second_share_a_point() {
        let mut history = History::new();
        for tenth in 0..50u64 {
            let end_unix_us = START_S * 1_000_000 + (tenth + 1) * 100_000;
            history.push(&ClientInterval { end_unix_us, arrivals: 1, requests: 1, within: 1 });
        }
        assert_eq!(history.report(0, 0.05, 0.95).fine.requests, [10; 5]);
    }

    #[test]
    fn two_days_take_the_memory_of_the_first_minute() {
        let mut history = History::new();
        let bytes = history.bytes();
        assert!(bytes <= BYTES_MAX, "{bytes}");
        for second in 0..2 * 86_400 {
            if second % 10 == 0 {
                history.expect(&state(second + 60, 0.9));
            }
            history.push(&interval(second, 90));
        }
        assert_eq!(history.bytes(), bytes);
        let report = history.report(0, 0.05, 0.95);
        assert_eq!((report.fine.unix_s.len(), report.coarse.unix_s.len()), (FINE, COARSE));
        assert!(report.fine.predicted.iter().all(|share| *share == Some(0.9)));
        // More predictions than may wait: the oldest are dropped.
        for second in 0..10_000 {
            history.expect(&state(2 * 86_400 + second, 0.9));
        }
        assert_eq!(history.bytes(), bytes);
    }
}
