//! Which of several nodes gets a read.
//!
//! Sources: shortest queue and power of two choices: Mitzenmacher, "The power of two choices in
//! randomized load balancing", IEEE TPDS 12(10), 2001; probability ∝ 1/(1 + length): BlowFish, NSDI
//! 2016. A choice costs one pass over the candidates, at most the number of a key's nodes.

use serde::{Deserialize, Serialize};

use super::prequal::{c3_score, hot_cold, threshold};
use super::random::SplitMix64;

/// How a read's node is chosen among the key's nodes that may serve it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The smallest expected response: length × response per unit of length (see [`super::Load`]).
    /// A node other than the first must be better by a tenth; without a gain, reads stay where
    /// their objects are.
    #[default]
    SmallestExpectedResponse,
    /// With probability in proportion to 1/(1 + length).
    Blowfish,
    /// The smallest length; the first of equals.
    ShortestQueue,
    /// The shorter of two nodes drawn at random.
    PowerOfTwo,
    /// The smallest score of C3, which rises with the cube of the length.
    C3,
    /// Prequal's hot-cold rule: the fastest of the nodes whose length is not above the 0.84 quantile.
    HotCold,
    /// Each node in turn.
    RoundRobin,
    /// The first of the key's nodes.
    Primary,
}

/// A node that may be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Candidate {
    /// Estimated number of requests at the node.
    pub length: f64,
    /// Expected response in seconds.
    pub expected_s: f64,
    /// This gateway's requests among them.
    pub outstanding: f64,
    /// Mean of recent responses in seconds.
    pub response_s: f64,
}

impl Candidate {
    /// Response per unit of length, seconds.
    fn service_s(&self) -> f64 {
        self.expected_s / (self.length + 1.0)
    }
}

/// The quantile of the hot-cold rule.
const HOT_QUANTILE: f64 = 0.84;

/// Another candidate is preferred to the first if its expected response is below this multiple of
/// the first's.
const BETTER: f64 = 0.9;

impl Policy {
    /// Chooses among candidates in the order of the key's nodes and returns an index; 0 if there
    /// are none. `turn` must increase by one with each choice.
    pub fn choose(self, candidates: &[Candidate], turn: u64, random: &mut SplitMix64) -> usize {
        if candidates.len() < 2 {
            return 0;
        }
        match self {
            Policy::SmallestExpectedResponse => {
                let best = least(candidates, |c| c.expected_s);
                let worth = candidates[best].expected_s < BETTER * candidates[0].expected_s;
                if worth { best } else { 0 }
            }
            Policy::Blowfish => in_proportion(candidates, random.uniform()),
            Policy::ShortestQueue => least(candidates, |c| c.length),
            Policy::PowerOfTwo => {
                let one = random.below(candidates.len());
                let other = random.below(candidates.len() - 1);
                let other = other + usize::from(other >= one);
                if candidates[other].length < candidates[one].length { other } else { one }
            }
            Policy::C3 => least(candidates, |c| {
                let others = (c.length - c.outstanding).max(0.0);
                // The reported length has the requests of other gateways, so none is multiplied.
                c3_score(c.response_s, c.service_s(), others, c.outstanding, 1.0)
            }),
            Policy::HotCold => {
                let all: Vec<(f64, f64)> =
                    candidates.iter().map(|c| (c.length, c.response_s)).collect();
                let lengths: Vec<f64> = candidates.iter().map(|c| c.length).collect();
                hot_cold(&all, threshold(&lengths, HOT_QUANTILE)).unwrap_or(0)
            }
            Policy::RoundRobin => (turn % candidates.len() as u64) as usize,
            Policy::Primary => 0,
        }
    }
}

/// The first candidate with the smallest value.
fn least(candidates: &[Candidate], value: impl Fn(&Candidate) -> f64) -> usize {
    let mut best = 0;
    for (i, candidate) in candidates.iter().enumerate() {
        if value(candidate) < value(&candidates[best]) {
            best = i;
        }
    }
    best
}

/// Draws a candidate with probability in proportion to 1/(1 + length); `uniform` is in [0, 1).
fn in_proportion(candidates: &[Candidate], uniform: f64) -> usize {
    let weight = |c: &Candidate| 1.0 / (1.0 + c.length.max(0.0));
    let mut left = uniform * candidates.iter().map(weight).sum::<f64>();
    for (i, candidate) in candidates.iter().enumerate() {
        left -= weight(candidate);
        if left < 0.0 {
            return i;
        }
    }
    candidates.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(of: &[(f64, f64)]) -> Vec<Candidate> {
        let of = of.iter().copied();
        let candidate = |(length, expected_s)| {
            let (outstanding, response_s) = (0.0, expected_s);
            Candidate { length, expected_s, outstanding, response_s }
        };
        of.map(candidate).collect()
    }

    fn shares(policy: Policy, of: &[(f64, f64)]) -> Vec<f64> {
        let candidates = candidates(of);
        let mut random = SplitMix64::new(7);
        let mut counts = vec![0u32; of.len()];
        for turn in 0..30_000 {
            counts[policy.choose(&candidates, turn, &mut random)] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / 30_000.0).collect()
    }

    #[test]
    fn each_policy_chooses_as_it_says() {
        let of = [(1.0, 0.010), (0.0, 0.030), (3.0, 0.005)];
        let check = |policy, expected: [f64; 3]| {
            let shares = shares(policy, &of);
            for (share, expected) in shares.iter().zip(expected) {
                assert!((share - expected).abs() < 0.01, "{policy:?}: {shares:?}");
            }
        };
        check(Policy::SmallestExpectedResponse, [0.0, 0.0, 1.0]);
        check(Policy::ShortestQueue, [0.0, 1.0, 0.0]);
        // Cubes of 2, 1 and 4 times 5, 30 and 1.25 ms, with the responses beyond the service.
        check(Policy::C3, [0.0, 1.0, 0.0]);
        // The third is hot.
        check(Policy::HotCold, [1.0, 0.0, 0.0]);
        check(Policy::Primary, [1.0, 0.0, 0.0]);
        check(Policy::RoundRobin, [1.0 / 3.0; 3]);
        let sum = 0.5 + 1.0 + 0.25;
        check(Policy::Blowfish, [0.5 / sum, 1.0 / sum, 0.25 / sum]);
        // The second is in two of the three pairs and always the shorter; the third is always the
        // longer.
        check(Policy::PowerOfTwo, [1.0 / 3.0, 2.0 / 3.0, 0.0]);
    }

    #[test]
    fn the_first_is_kept_where_nothing_is_gained() {
        let policy = Policy::SmallestExpectedResponse;
        assert_eq!(shares(policy, &[(1.0, 0.010), (1.0, 0.0095)]), [1.0, 0.0]);
        assert_eq!(shares(policy, &[(1.0, 0.010), (1.0, 0.0085)]), [0.0, 1.0]);
    }

    #[test]
    fn no_or_one_candidate_is_no_choice() {
        let mut random = SplitMix64::new(1);
        for policy in [Policy::PowerOfTwo, Policy::Blowfish, Policy::RoundRobin] {
            assert_eq!(policy.choose(&[], 5, &mut random), 0);
            assert_eq!(policy.choose(&[Candidate::default()], 5, &mut random), 0);
        }
    }
}
