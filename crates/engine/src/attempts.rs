//! Attempts to serve a request at one of several servers: what [`crate::gateway`] (nodes of a cluster) and [`crate::pool`]
//! (memcached servers) have in common.
//!
//! - [`Endpoint`]: a server as attempts meet it: what is under way there, which of its times count, and when a read there is
//!   slow enough for a hedge.
//! - [`Balancer`]: which of several endpoints gets an attempt.
//! - [`FurtherAttempts`]: the budgets of retries and hedges, and their counts.
//!
//! Each keeps what differs: which servers are candidates (live members with warm copies; readable servers of a ring, or where
//! their keys moved to), how many attempts a request has at once (two; one or more for each part of a multi-get), which reply
//! counts (the first; the first that found every key), and what a write that failed leaves behind. A common table of attempts
//! was left out: a gateway finds an attempt by the slot in its name without hashing, a pool's attempts outlive their requests.

use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, Window};
use serde::{Deserialize, Serialize};

use crate::route::{Budget, Candidate, Hedge, Load, Policy, REPLICAS_MAX, Ratio, SplitMix64};

/// When an attempt was sent, and how it is judged by its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Nanos,
    /// When it is taken for lost; `MAX` for never.
    pub(crate) until: Nanos,
    /// The endpoint's length when it was sent.
    pub(crate) length_met: f64,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum End {
    /// With a usable reply.
    Answered(Outcome),
    /// Without a usable reply: an error reply or a transport failure.
    Failed,
    /// Cancelled: another attempt answered first, another server is tried instead, or the client left.
    Dropped,
}

impl End {
    /// The outcome in the endpoint's windows.
    fn outcome(self) -> Outcome {
        match self {
            End::Answered(outcome) => outcome,
            End::Failed => Outcome::Error,
            End::Dropped => Outcome::Unknown,
        }
    }
}

/// A server as attempts meet it.
pub(crate) struct Endpoint {
    pub(crate) load: Load,
    /// The time after which a read is hedged; `MAX` if not known.
    pub(crate) hedge_after: Nanos,
    /// `None` for a server that no pool uses.
    pub(crate) recorder: Option<Recorder>,
}

impl Endpoint {
    pub(crate) fn new(recorder: Option<Recorder>, now: Nanos) -> Endpoint {
        Endpoint { load: Load::new(now), hedge_after: Nanos::MAX, recorder }
    }

    /// Counts an attempt that is sent now and is given up after `timeout`.
    pub(crate) fn send(&mut self, now: Nanos, timeout: Nanos) -> Sent {
        // Before it is counted itself: the estimate of speed divides by the length met plus one.
        let length_met = self.load.length(now);
        self.load.send();
        if let Some(recorder) = &mut self.recorder {
            recorder.arrive(now);
            recorder.start(now);
        }
        Sent { at: now, until: now.saturating_add(timeout), length_met }
    }

    /// Records the end of an attempt. Returns its time if that counts for estimates. A failure's does not: a quick refusal would
    /// make a busy server look fast. A dropped attempt's time is a lower bound; it counts if it is long, since otherwise a
    /// server whose reads are all answered by hedges would never be known to be slow.
    pub(crate) fn end(
        &mut self,
        now: Nanos,
        sent: &Sent,
        operation: Operation,
        end: End,
        bytes: u64,
    ) -> Option<Nanos> {
        self.load.leave();
        let service = now.saturating_sub(sent.at);
        if let Some(recorder) = &mut self.recorder {
            let (waiting, response) = (0, service);
            let outcome = end.outcome();
            recorder
                .finish(now, &Finished { operation, outcome, waiting, service, response, bytes });
        }
        let counts = match end {
            End::Answered(_) => true,
            End::Failed => false,
            End::Dropped => self.load.is_slow(service, sent.length_met),
        };
        counts.then_some(service)
    }

    /// Learns from the time of a read. Returns whether the quantiles of its reads are to be looked at again.
    pub(crate) fn learn(
        &mut self,
        now: Nanos,
        sent: &Sent,
        response: Nanos,
        hedge: Option<&Hedge>,
    ) -> bool {
        self.load.respond(now, response, sent.length_met);
        let due = self.load.responses().is_due();
        if due && let Some(hedge) = hedge {
            let after = self.load.responses().quantile(hedge.quantile);
            self.hedge_after = after.map_or(Nanos::MAX, |after| after.max(hedge.after_min));
        }
        due
    }

    /// The windows that ended by `now`.
    pub(crate) fn windows(&mut self, now: Nanos) -> Vec<Window> {
        self.recorder.as_mut().map(|recorder| recorder.roll(now)).unwrap_or_default()
    }

    /// The windows that ended by `now`, and the open ones.
    pub(crate) fn flush_windows(&mut self, now: Nanos) -> Vec<Window> {
        self.recorder.as_mut().map(|recorder| recorder.flush(now)).unwrap_or_default()
    }
}

/// Chooses the endpoint of an attempt.
pub(crate) struct Balancer {
    /// Response time per unit of length over all endpoints: the estimate for one without history.
    ratio: Ratio,
    random: SplitMix64,
    turn: u64,
}

impl Balancer {
    pub(crate) fn new(seed: u64) -> Balancer {
        Balancer { ratio: Ratio::default(), random: SplitMix64::new(seed), turn: 0 }
    }

    /// Learns from an attempt at any endpoint.
    pub(crate) fn learn(&mut self, sent: &Sent, response: Nanos) {
        self.ratio.record(response, sent.length_met);
    }

    /// Seconds per unit of length to assume of an endpoint without history; `None` before the first answer of any.
    pub(crate) fn prior_s(&self) -> Option<f64> {
        self.ratio.value_s()
    }

    /// Whether an endpoint that is to get this share of its normal load is a candidate now.
    pub(crate) fn grants(&mut self, share: f64) -> bool {
        share >= 1.0 || self.random.uniform() < share
    }

    /// The place among `loads` (at least one, at most [`REPLICAS_MAX`]) that gets an attempt.
    pub(crate) fn choose<'a>(
        &mut self,
        now: Nanos,
        policy: Policy,
        prior_s: f64,
        loads: impl Iterator<Item = &'a Load>,
    ) -> usize {
        let prior_s = self.prior_s().unwrap_or(prior_s);
        let (mut candidates, mut count) = ([Candidate::default(); REPLICAS_MAX], 0);
        for (candidate, load) in candidates.iter_mut().zip(loads) {
            *candidate = load.candidate(now, prior_s);
            count += 1;
        }
        let turn = self.turn;
        self.turn = turn.wrapping_add(1);
        policy.choose(&candidates[..count], turn, &mut self.random)
    }
}

/// Counts of attempts after a request's first, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptCounts {
    /// Retries: attempts after a request's first, not counting hedges.
    pub retries: u64,
    /// Retries that were due but not made, because the budget was spent or the result could have been an old one.
    pub retries_left_out: u64,
    /// Hedges: second attempts beside a slow one.
    pub hedges: u64,
    /// Hedges whose reply was used.
    pub hedges_won: u64,
    /// Hedges that were due but not made, for the same reasons.
    pub hedges_left_out: u64,
}

/// The budgets of attempts after a request's first, and their counts.
#[derive(Clone, Debug)]
pub(crate) struct FurtherAttempts {
    retries: Budget,
    hedges: Budget,
    counts: AttemptCounts,
}

impl FurtherAttempts {
    /// Full budgets; no hedges without settings of them.
    pub(crate) fn new(
        retry_share: f64,
        retry_burst: u32,
        hedge: Option<&Hedge>,
    ) -> FurtherAttempts {
        let (share, burst) = hedge.map_or((0.0, 0), |hedge| (hedge.share, hedge.burst));
        FurtherAttempts {
            retries: Budget::new(retry_share, retry_burst),
            hedges: Budget::new(share, burst),
            counts: AttemptCounts::default(),
        }
    }

    /// A request came.
    pub(crate) fn earn_retry(&mut self) {
        self.retries.earn();
    }

    /// A read came, which may be hedged.
    pub(crate) fn earn_hedge(&mut self) {
        self.hedges.earn();
    }

    /// Takes a retry's token, unless it is not `safe`; counts it as left out otherwise.
    pub(crate) fn may_retry(&mut self, safe: bool) -> bool {
        let may = safe && self.retries.take();
        self.counts.retries_left_out += u64::from(!may);
        may
    }

    /// Takes a hedge's token, unless it is not `safe`; counts it as left out otherwise.
    pub(crate) fn may_hedge(&mut self, safe: bool) -> bool {
        let may = safe && self.hedges.take();
        self.counts.hedges_left_out += u64::from(!may);
        may
    }

    /// A retry was sent. Apart from [`FurtherAttempts::may_retry`], as a token may be taken before it is known that no server
    /// is left.
    pub(crate) fn count_retry(&mut self) {
        self.counts.retries += 1;
    }

    /// A hedge was sent.
    pub(crate) fn count_hedge(&mut self) {
        self.counts.hedges += 1;
    }

    /// A hedge's reply is used.
    pub(crate) fn count_hedge_won(&mut self) {
        self.counts.hedges_won += 1;
    }

    pub(crate) fn counts(&self) -> AttemptCounts {
        self.counts
    }

    /// Counts go on from these.
    pub(crate) fn count_from(&mut self, counts: AttemptCounts) {
        self.counts = counts;
    }

    /// Retries left in the budget.
    pub(crate) fn retries_left(&self) -> u32 {
        self.retries.left()
    }

    /// Hedges left in the budget.
    pub(crate) fn hedges_left(&self) -> u32 {
        self.hedges.left()
    }
}

#[cfg(test)]
mod tests {
    use ground::window::SECOND;
    use proptest::prelude::*;

    use super::*;

    const MS: Nanos = SECOND / 1000;

    fn read(endpoint: &mut Endpoint, now: Nanos, took: Nanos, end: End) -> Option<Nanos> {
        let sent = endpoint.send(now, SECOND);
        let counts = endpoint.end(now + took, &sent, Operation::Get, end, 0);
        let hedge = Hedge { after_min: MS, ..Hedge::default() };
        counts.inspect(|took| {
            endpoint.learn(now + took, &sent, *took, Some(&hedge));
        })
    }

    #[test]
    fn a_quick_refusal_does_not_make_an_endpoint_look_fast() {
        let mut endpoint = Endpoint::new(None, 0);
        for i in 0..100 {
            read(&mut endpoint, i * SECOND, 10 * MS, End::Answered(Outcome::Memory));
        }
        let expected = endpoint.load.expected_s(100 * SECOND, 0.0);
        assert_eq!(read(&mut endpoint, 100 * SECOND, 1, End::Failed), None);
        assert_eq!(endpoint.load.expected_s(100 * SECOND, 0.0), expected);
        // A short wait for a reply that was dropped says nothing; a long one that the server is slow.
        assert_eq!(read(&mut endpoint, 100 * SECOND, MS, End::Dropped), None);
        assert_eq!(read(&mut endpoint, 100 * SECOND, SECOND, End::Dropped), Some(SECOND));
        assert!(endpoint.load.expected_s(101 * SECOND, 0.0) > expected);
    }

    #[test]
    fn a_read_is_hedged_after_a_quantile_of_its_server() {
        let mut endpoint = Endpoint::new(None, 0);
        read(&mut endpoint, 0, 10 * MS, End::Answered(Outcome::Memory));
        assert_eq!(endpoint.hedge_after, Nanos::MAX, "after one reply");
        for i in 1..200 {
            read(&mut endpoint, i * SECOND, 10 * MS, End::Answered(Outcome::Memory));
        }
        assert!((10 * MS..12 * MS).contains(&endpoint.hedge_after), "{}", endpoint.hedge_after);
        let mut quick = Endpoint::new(None, 0);
        for i in 0..200 {
            read(&mut quick, i * SECOND, 10, End::Answered(Outcome::Memory));
        }
        assert_eq!(quick.hedge_after, MS, "not below the least time");
    }

    #[test]
    fn an_endpoint_that_is_slower_gets_less() {
        let (mut fast, mut slow) = (Endpoint::new(None, 0), Endpoint::new(None, 0));
        for i in 0..50 {
            read(&mut fast, i * SECOND, MS, End::Answered(Outcome::Memory));
            read(&mut slow, i * SECOND, 20 * MS, End::Answered(Outcome::Memory));
        }
        let mut balancer = Balancer::new(1);
        let policy = Policy::SmallestExpectedResponse;
        for _ in 0..10 {
            let loads = [&slow.load, &fast.load];
            assert_eq!(balancer.choose(50 * SECOND, policy, 0.0, loads.into_iter()), 1);
        }
        let turns: Vec<usize> = (0..4)
            .map(|_| {
                let loads = [&slow.load, &fast.load];
                balancer.choose(50 * SECOND, Policy::RoundRobin, 0.0, loads.into_iter())
            })
            .collect();
        assert!(turns == [0, 1, 0, 1] || turns == [1, 0, 1, 0], "{turns:?}");
    }

    proptest! {
        /// Whatever the order of requests and failures, further attempts stay within their share.
        #[test]
        fn further_attempts_are_a_share_of_requests(steps in prop::collection::vec(0u8..4, 0..500)) {
            let hedge = Hedge { share: 0.2, burst: 3, ..Hedge::default() };
            let mut further = FurtherAttempts::new(0.1, 5, Some(&hedge));
            let (mut requests, mut reads, mut retries, mut hedges, mut left_out) = (0, 0, 0, 0, 0);
            for step in steps {
                match step {
                    0 => {
                        further.earn_retry();
                        requests += 1;
                    }
                    1 => {
                        further.earn_hedge();
                        reads += 1;
                    }
                    2 if further.may_retry(true) => retries += 1,
                    3 if further.may_hedge(true) => hedges += 1,
                    _ => left_out += 1,
                }
                prop_assert!(f64::from(retries) <= 5.0 + 0.1 * f64::from(requests) + 1e-9);
                prop_assert!(f64::from(hedges) <= 3.0 + 0.2 * f64::from(reads) + 1e-9);
            }
            let counts = further.counts();
            prop_assert_eq!(counts.retries_left_out + counts.hedges_left_out, left_out);
            prop_assert!(!further.may_retry(false) && !further.may_hedge(false));
        }
    }
}
