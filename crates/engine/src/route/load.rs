//! A gateway's estimate of a node's load and speed.
//!
//! *Length*: replies and pings report the number of requests in the node's queues. Some of these
//! are this gateway's own, so a report is kept as its excess over the gateway's own outstanding
//! requests at that time: the requests of others. Its weight halves every [`REPORT_HALF`]; the
//! gateway's own outstanding requests are known exactly. Length = others' + own.
//!
//! *Speed*: response time is about proportional to the length met on arrival plus one (exactly so
//! for one server and exponential service). So speed is estimated as a ratio of two sums, of
//! responses and of lengths met plus one, both weighted to the last [`RATIO_SAMPLES`] answers. It
//! is a ratio of sums and not a mean of ratios, because a mean would weight an answer from memory
//! that bypassed a long queue as much as an answer from disk.
//!
//! *Expected response* = (length + 1) × ratio. A node that is not chosen is not measured, so a slow
//! ratio would never be corrected. Therefore the ratio is divided by 1 + age/[`PROBE_AFTER`], with
//! the age of the last answer: a node that seemed ten times slower gets a request again after nine
//! such times.
//!
//! *What nodes report*: each node measures the same ratio over the reads of all gateways ([`Speed`]) and
//! reports it in its answers to pings ([`LoadReport`]). Where a gateway is one of many, it sees a node too seldom to know its speed:
//! with a hundred gateways and servers, three servers for each key and pings every 100 ms, the 99th percentile is 300 and 346 ms at
//! 70 and 90 % of the load with the gateway's own ratio, and 286 and 297 ms with the reported one (`experiments/policies`). So a
//! reported ratio takes the place of the gateway's own for [`REPORT_FRESH`]. It ends at the node; the way to it is the time
//! that pings take ([`Load::pong`]), which queues of the node do not delay.

use ground::window::{Nanos, SECOND};
use serde::{Deserialize, Serialize};

use super::schedule::Candidate;

/// The half-life of a report's weight.
const REPORT_HALF: Nanos = SECOND / 5;
/// A ratio is halved after this time without an answer.
const PROBE_AFTER: Nanos = SECOND;
/// Number of answers over which the weights of a ratio fall to 1/e.
const RATIO_SAMPLES: f64 = 64.0;
/// The same for reads that a node answers at once. They are many more than the others where most reads hit memory; with the weight
/// of the others, a node's speed would be that of the last one or two reads of a disk.
const AT_ONCE_SAMPLES: f64 = 4096.0;
/// A reported ratio counts for so long: some pings. Later the node is known by this gateway's own answers.
const REPORT_FRESH: Nanos = SECOND;
/// Weight of the newest ping in the mean time of the way to a node.
const WAY_SMOOTHING: f64 = 0.1;

/// What is known of the speed of something that was last measured at `at` is divided by this, so
/// that what was slow once is tried again.
pub(crate) fn stale(now: Nanos, at: Nanos) -> f64 {
    1.0 + now.saturating_sub(at) as f64 / PROBE_AFTER as f64
}

/// What a node says of its load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadReport {
    /// Requests in its queues.
    pub length: u32,
    /// What a response takes for each request in its queues, that itself included; `None` before it has answered a read, and from
    /// nodes of earlier versions.
    pub response_per_length: Option<Nanos>,
}

/// How fast a node answers reads, by its own measurement.
#[derive(Clone, Debug, Default)]
pub struct Speed {
    ratio: Ratio,
    answered_at: Nanos,
}

impl Speed {
    /// Records a read that was answered at `now` after `response`. `length_met` is the number of requests in the node's queues
    /// when it came.
    pub fn respond(&mut self, now: Nanos, response: Nanos, length_met: u32) {
        let samples = if response == 0 { AT_ONCE_SAMPLES } else { RATIO_SAMPLES };
        self.ratio.record_among(samples, response, f64::from(length_met));
        self.answered_at = now;
    }

    /// What [`LoadReport::response_per_length`] says now. A node that nobody asks becomes faster, so that it is tried again.
    pub fn response_per_length(&self, now: Nanos) -> Option<Nanos> {
        let ratio_s = self.ratio.value_s()? / stale(now, self.answered_at);
        Some((ratio_s * 1e9) as Nanos)
    }
}

/// What a node reported of its speed, and when.
#[derive(Clone, Copy, Debug)]
struct ReportedRatio {
    ratio_s: f64,
    at: Nanos,
}

/// Load and speed of a node as seen by this gateway.
#[derive(Clone, Debug)]
pub struct Load {
    outstanding: u32,
    reported: u32,
    reported_at: Nanos,
    /// Requests of others, according to the last report.
    others: f64,
    ratio: Ratio,
    reported_ratio: Option<ReportedRatio>,
    /// Mean time that pings take, seconds; `None` before the first answer to one.
    way_s: Option<f64>,
    /// Mean response of recent answers, seconds.
    response_s: Option<f64>,
    answered_at: Nanos,
    responses: Responses,
}

impl Load {
    /// The estimate for a node without history.
    pub fn new(now: Nanos) -> Load {
        Load {
            outstanding: 0,
            reported: 0,
            reported_at: now,
            others: 0.0,
            ratio: Ratio::default(),
            reported_ratio: None,
            way_s: None,
            response_s: None,
            answered_at: now,
            responses: Responses::default(),
        }
    }

    /// Records that a request is sent to the node.
    pub fn send(&mut self) {
        self.outstanding += 1;
    }

    /// Records that a request has left the node: answered, failed or dropped.
    pub fn leave(&mut self) {
        debug_assert!(self.outstanding > 0, "a request left that was not sent");
        self.outstanding = self.outstanding.saturating_sub(1);
    }

    /// Records a report of the node's queue length.
    pub fn report(&mut self, now: Nanos, length: u32) {
        self.reported = length;
        self.reported_at = now;
        self.others = f64::from(length.saturating_sub(self.outstanding));
    }

    /// Records the node's answer to a ping that took `round_trip`.
    pub fn pong(&mut self, now: Nanos, report: LoadReport, round_trip: Nanos) {
        self.report(now, report.length);
        let newest_s = round_trip as f64 * 1e-9;
        let mean_s = self.way_s.unwrap_or(newest_s);
        self.way_s = Some(mean_s + WAY_SMOOTHING * (newest_s - mean_s));
        let of = |ratio: Nanos| ReportedRatio { ratio_s: ratio as f64 * 1e-9, at: now };
        self.reported_ratio = report.response_per_length.map(of);
    }

    /// Records a response time, or a lower bound of one that has not ended. `length_met` is the
    /// node's length when the request was sent.
    pub fn respond(&mut self, now: Nanos, response: Nanos, length_met: f64) {
        self.ratio.record(response, length_met);
        let seconds = response as f64 * 1e-9;
        let mean = self.response_s.unwrap_or(seconds);
        self.response_s = Some(mean + (seconds - mean) / RATIO_SAMPLES);
        self.answered_at = now;
        self.responses.record(response);
    }

    /// Whether a response is longer than usual at that length.
    pub fn is_slow(&self, response: Nanos, length_met: f64) -> bool {
        let usual_s = self.ratio.value_s().unwrap_or(0.0) * (length_met + 1.0);
        response as f64 * 1e-9 > usual_s
    }

    /// This gateway's requests at the node.
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The last reported length, and its age.
    pub fn reported(&self, now: Nanos) -> (u32, Nanos) {
        (self.reported, now.saturating_sub(self.reported_at))
    }

    /// Estimated number of requests at the node.
    pub fn length(&self, now: Nanos) -> f64 {
        let age = now.saturating_sub(self.reported_at) as f64 / REPORT_HALF as f64;
        f64::from(self.outstanding) + self.others / (1.0 + age)
    }

    /// Expected response in seconds of a request sent now; `prior_s` is the response per unit of
    /// length to assume for a node without history.
    pub fn expected_s(&self, now: Nanos, prior_s: f64) -> f64 {
        let requests = self.length(now) + 1.0;
        let is_fresh = |of: &ReportedRatio| now.saturating_sub(of.at) <= REPORT_FRESH;
        if let Some(of) = self.reported_ratio.filter(is_fresh) {
            return requests * of.ratio_s + self.way_s.unwrap_or(0.0);
        }
        let ratio_s = self.ratio.value_s().unwrap_or(prior_s) / stale(now, self.answered_at);
        requests * ratio_s
    }

    /// This node as a candidate for a request sent now; see [`Load::expected_s`] for `prior_s`. The mean of
    /// the responses grows old as the ratio does.
    pub fn candidate(&self, now: Nanos, prior_s: f64) -> Candidate {
        Candidate {
            length: self.length(now),
            expected_s: self.expected_s(now, prior_s),
            outstanding: f64::from(self.outstanding),
            response_s: self.response_s.unwrap_or(prior_s) / stale(now, self.answered_at),
        }
    }

    /// Recent responses.
    pub fn responses(&self) -> &Responses {
        &self.responses
    }
}

/// Response time per unit of length over recent answers.
#[derive(Clone, Debug, Default)]
pub struct Ratio {
    responses_s: f64,
    lengths: f64,
}

impl Ratio {
    /// Adds one answer.
    pub fn record(&mut self, response: Nanos, length_met: f64) {
        self.record_among(RATIO_SAMPLES, response, length_met);
    }

    /// Adds one answer, as one of so many that count.
    fn record_among(&mut self, samples: f64, response: Nanos, length_met: f64) {
        let keep = 1.0 - 1.0 / samples;
        self.responses_s = self.responses_s * keep + response as f64 * 1e-9;
        self.lengths = self.lengths * keep + length_met + 1.0;
    }

    /// The ratio in seconds; `None` before the first answer.
    pub fn value_s(&self) -> Option<f64> {
        (self.lengths > 0.0).then(|| self.responses_s / self.lengths)
    }
}

/// Sub-buckets of an octave of [`Responses`].
const SUB_BITS: u32 = 3;
/// Unit of the histogram, 2¹⁰ ns: the first buckets are about a microsecond wide.
const UNIT_BITS: u32 = 10;
/// Up to 2³⁷ ns, 137 s.
const BUCKETS: usize = ((37 - UNIT_BITS - SUB_BITS + 1) << SUB_BITS) as usize;
/// All counts are halved when their sum reaches this, so that the last few hundred answers count
/// most.
const COUNTED_MAX: u32 = 1024;
/// Number of answers between two computations of a quantile.
const REFRESH: u32 = 32;

/// Recent responses as a dense histogram that forgets by halving. It is log-linear with 8 buckets
/// per octave, so a quantile is at most an eighth too high. [`ground::window::Histogram`] is exact
/// and sparse; this one costs a few nanoseconds per answer and a scan of 216 counts per quantile.
#[derive(Clone, Debug)]
pub struct Responses {
    counts: [u32; BUCKETS],
    counted: u32,
    recorded: u32,
}

impl Default for Responses {
    fn default() -> Self {
        Responses { counts: [0; BUCKETS], counted: 0, recorded: 0 }
    }
}

impl Responses {
    fn record(&mut self, response: Nanos) {
        self.counts[bucket_of(response)] += 1;
        self.counted += 1;
        self.recorded = self.recorded.wrapping_add(1);
        if self.counted >= COUNTED_MAX {
            self.counts.iter_mut().for_each(|count| *count /= 2);
            self.counted = self.counts.iter().sum();
        }
    }

    /// Whether a quantile should be computed again after this answer.
    pub fn is_due(&self) -> bool {
        self.recorded.is_multiple_of(REFRESH)
    }

    /// The `p` quantile of recent responses, rounded up to the end of its bucket; `None` before a
    /// few answers.
    pub fn quantile(&self, p: f64) -> Option<Nanos> {
        if self.counted < REFRESH {
            return None;
        }
        let rank = (p.clamp(0.0, 1.0) * f64::from(self.counted)).ceil().max(1.0) as u32;
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(end_of(bucket));
            }
        }
        Some(end_of(BUCKETS - 1))
    }
}

fn bucket_of(response: Nanos) -> usize {
    let value = response >> UNIT_BITS;
    let sub = 1 << SUB_BITS;
    if value < sub {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros() - SUB_BITS;
    let bucket = ((octave + 1) << SUB_BITS) as usize + ((value >> octave) - sub) as usize;
    bucket.min(BUCKETS - 1)
}

/// The upper end of a bucket (exclusive).
fn end_of(bucket: usize) -> Nanos {
    let (next, sub) = (bucket as u64 + 1, 1 << SUB_BITS);
    if next < sub {
        return next << UNIT_BITS;
    }
    let octave = (next >> SUB_BITS) - 1;
    (((next & (sub - 1)) + sub) << octave) << UNIT_BITS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_bucket_ends_where_the_next_begins() {
        for bucket in 0..BUCKETS - 1 {
            assert_eq!(bucket_of(end_of(bucket)), bucket + 1);
            assert_eq!(bucket_of(end_of(bucket) - 1), bucket);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn a_report_counts_the_others_and_grows_old() {
        let mut load = Load::new(0);
        load.send();
        load.send();
        load.report(0, 6);
        assert_eq!(load.length(0), 6.0, "two of ours, four of others");
        assert_eq!(load.length(REPORT_HALF), 4.0);
        load.leave();
        load.leave();
        assert_eq!(load.length(REPORT_HALF), 2.0);
        load.report(0, 1);
        assert_eq!((load.length(0), load.reported(5)), (1.0, (1, 5)));
    }

    #[test]
    fn a_slow_node_is_asked_again_after_a_while() {
        let mut slow = Load::new(0);
        slow.respond(0, 10_000_000, 0.0);
        assert!((slow.expected_s(0, 1.0) - 0.010).abs() < 1e-12);
        assert!((slow.expected_s(9 * PROBE_AFTER, 1.0) - 0.001).abs() < 1e-12);
        assert_eq!(Load::new(0).expected_s(0, 0.5), 0.5, "the prior, where nothing is known");
    }

    #[test]
    fn a_reported_speed_counts_while_it_is_fresh() {
        let mut load = Load::new(0);
        load.respond(0, 10_000_000, 0.0);
        let report = LoadReport { length: 3, response_per_length: Some(2_000_000) };
        load.pong(0, report, 1_000_000);
        assert!((load.expected_s(0, 1.0) - 0.009).abs() < 1e-12, "four of 2 ms, and the way");
        // The length grows old, the reported speed ends at once.
        let expected_s = load.expected_s(REPORT_FRESH, 1.0);
        assert!((expected_s - (0.002 * (3.0 / 6.0 + 1.0) + 0.001)).abs() < 1e-12, "{expected_s}");
        assert!(load.expected_s(REPORT_FRESH + 1, 1.0) > 0.005);
        // A node of an earlier version reports none.
        load.pong(SECOND, LoadReport { length: 0, response_per_length: None }, 1_000_000);
        assert!((load.expected_s(SECOND, 1.0) - 0.010 / 2.0).abs() < 1e-12);
    }

    #[test]
    fn the_speed_of_a_node_is_that_of_all_its_reads() {
        let mut speed = Speed::default();
        assert_eq!(speed.response_per_length(0), None);
        // One read in ten takes 10 ms with one other in the queue, the rest none.
        for read in 0..20_000 {
            speed.respond(
                0,
                if read % 10 == 0 { 10_000_000 } else { 0 },
                u32::from(read % 10 == 0),
            );
        }
        // Slow reads forget all the others a little: of 1/64 each, nine hits between two of them weigh nearly the same.
        let found = speed.response_per_length(0).unwrap() as f64;
        let exact = 10_000_000.0 / (2.0 + 9.0);
        assert!((found / exact - 1.0).abs() < 0.1, "{found} of {exact}");
        assert_eq!(speed.response_per_length(SECOND).unwrap(), found as u64 / 2);
    }

    #[test]
    fn old_responses_are_forgotten() {
        let mut load = Load::new(0);
        assert_eq!(load.responses().quantile(0.5), None);
        (0..2_000).for_each(|_| load.respond(0, 1_000_000, 0.0));
        (0..3_000).for_each(|_| load.respond(0, 8_000_000, 0.0));
        let p10 = load.responses().quantile(0.1).unwrap();
        assert!((8_000_000..9_100_000).contains(&p10), "{p10}");
    }

    proptest! {
        #[test]
        fn quantiles_agree_with_sorting(
            mut responses in prop::collection::vec(0u64..10_000_000_000, 40..500),
            p in 0.0f64..1.0,
        ) {
            let mut load = Load::new(0);
            responses.iter().for_each(|&r| load.respond(0, r, 1.0));
            responses.sort_unstable();
            let rank = (p * responses.len() as f64).ceil().max(1.0) as usize;
            let exact = responses[rank - 1];
            let found = load.responses().quantile(p).unwrap();
            prop_assert!(found > exact, "{found} for {exact}");
            prop_assert!(found as f64 <= exact as f64 * 1.126 + 1025.0, "{found} for {exact}");
        }
    }
}
