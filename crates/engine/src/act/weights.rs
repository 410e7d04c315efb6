//! Advises a lower weight for a member of a cluster whose capacity is below its weight.
//!
//! Members get keys in proportion to their weights, so their devices are equally busy if weights are in proportion to
//! capacity. With utilisations u and weights w, such weights with the same sum are w·ū/u, where
//! ū = Σw / Σ(w/u) is the utilisation that all members then have. If the mean utilisation of a member's devices is at least
//! `APART` times ū in `LOOKS` successive looks, the member is advised that weight. A shorter disturbance does not justify
//! moving keys.
//!
//! If weights are changed automatically, one is changed at a time, by at most [`STEP`]; callers bound how often.
//!
//! This module has no clock. Cost: a few additions for a member and look.

use std::collections::BTreeMap;

use super::{Effect, Knob, Proposal};

/// The ratio of a member's utilisation to ū from which on a weight is advised.
const APART: f64 = 1.25;
/// The number of successive looks before advice, and before the same advice is repeated.
const LOOKS: u32 = 60;
/// Weight of the earlier average at each look.
const KEPT: f64 = 0.9;
/// If ū is below this, nothing is advised.
const BUSY_MIN: f64 = 0.1;
/// The smallest factor by which a change multiplies a weight: a member that is slow for a while must not lose all of its keys at once.
pub const STEP: f64 = 0.5;
/// The smallest utilisation that is used: the capacity of idle devices is unknown.
const UTILISATION_MIN: f64 = 0.01;

/// A member and its devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// Its present weight, above 0.
    pub weight: f64,
    /// The mean utilisation of its devices.
    pub utilisation: f64,
}

/// A weight that a member should have.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The weight.
    pub weight: f64,
    /// The same as a proposal.
    pub proposal: Proposal,
}

/// The averages of a member.
#[derive(Clone, Copy, Debug)]
struct MemberAverages {
    utilisation: f64,
    weight: f64,
    apart: u32,
}

/// Looks at members, again and again.
///
/// ```
/// use engine::act::weights::{Member, Weights};
///
/// let member = |name: &str, utilisation| Member { name: name.into(), weight: 1.0, utilisation };
/// let mut weights = Weights::default();
/// let members = [member("a", 0.3), member("b", 0.3), member("c", 0.6)];
/// let advice: Vec<_> = (0..60).flat_map(|_| weights.look(&members)).collect();
/// assert_eq!(advice.len(), 1);
/// let proposal = &advice[0].proposal;
/// assert_eq!((proposal.target.as_str(), proposal.change.as_str()), ("c", "weight of 0.60 instead of 1.00"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Weights {
    known: BTreeMap<String, MemberAverages>,
}

impl Weights {
    /// Takes the members as they are now, and returns the weights that are advised.
    pub fn look(&mut self, members: &[Member]) -> Vec<Advice> {
        self.known.retain(|name, _| members.iter().any(|member| member.name == *name));
        for Member { name, weight, utilisation } in members {
            let fresh = MemberAverages { utilisation: *utilisation, weight: *weight, apart: 0 };
            let known = self.known.entry(name.clone()).or_insert(fresh);
            if known.weight != *weight {
                *known = fresh;
            }
            known.utilisation += (1.0 - KEPT) * (utilisation - known.utilisation);
        }
        let all = self.known.values();
        let (sum, borne) = all.fold((0.0, 0.0), |(sum, borne), k| {
            (sum + k.weight, borne + k.weight / k.utilisation.max(UTILISATION_MIN))
        });
        let even = sum / borne;
        let mut advised = Vec::new();
        for (name, known) in &mut self.known {
            let apart = even >= BUSY_MIN && known.utilisation >= APART * even;
            known.apart = if apart { known.apart + 1 } else { 0 };
            if known.apart < LOOKS {
                continue;
            }
            known.apart = 0;
            let weight = (known.weight * even / known.utilisation).max(known.weight * STEP);
            let proposal = Proposal {
                knob: Knob::Weights,
                target: name.clone(),
                // No weight is raised: the others' shares grow by themselves.
                kind: "lower".to_owned(),
                change: format!("weight of {weight:.2} instead of {:.2}", known.weight),
                reason: format!(
                    "its devices are busy {:.0} % of the time, and with weights by what members bear all would be \
                     {:.0} %",
                    100.0 * known.utilisation,
                    100.0 * even
                ),
                expected: Effect {
                    quantity: "utilisation of its devices".to_owned(),
                    before: known.utilisation,
                    after: even,
                },
                must: false,
            };
            advised.push(Advice { weight, proposal });
        }
        advised
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::{Governor, Settings, Status};

    /// Members that bear so much each, under a load that follows the weights.
    fn members(weights: &[f64], bear: &[f64], load: f64) -> Vec<Member> {
        let sum: f64 = weights.iter().sum();
        let each = weights.iter().zip(bear).enumerate();
        each.map(|(at, (weight, bear))| Member {
            name: format!("node-{at}"),
            weight: *weight,
            utilisation: load * weight / sum / bear,
        })
        .collect()
    }

    #[test]
    fn advice_that_is_followed_evens_the_members_out() {
        let (mut weights, bear) = (vec![1.0, 1.0, 2.0], [100.0, 50.0, 200.0]);
        let mut looker = Weights::default();
        for look in 0..1000 {
            for Advice { weight, proposal } in looker.look(&members(&weights, &bear, 150.0)) {
                assert_eq!(proposal.target, "node-1", "{proposal:?} at {look}");
                assert!(proposal.change.starts_with(&format!("weight of {weight:.2} ")));
                weights[1] = weight;
            }
        }
        // All but evenly busy: the remaining difference is not worth moving keys.
        let busy: Vec<f64> =
            members(&weights, &bear, 150.0).iter().map(|member| member.utilisation).collect();
        assert!((0.5..0.65).contains(&weights[1]), "{weights:?}");
        assert!(busy[1] < APART * busy[0], "{busy:?}");
    }

    #[test]
    fn short_troubles_idle_members_and_even_ones_are_left_alone() {
        let mut looker = Weights::default();
        let bear = |slow: bool| [100.0, if slow { 40.0 } else { 100.0 }];
        for look in 0..2000 {
            // Slow for half a minute in every two.
            let proposals = looker.look(&members(&[1.0, 1.0], &bear(look % 120 < 30), 80.0));
            assert!(proposals.is_empty(), "{proposals:?} at {look}");
        }
        for _ in 0..500 {
            assert!(looker.look(&members(&[1.0, 1.0], &bear(true), 4.0)).is_empty(), "all idle");
        }
        assert!(looker.look(&[]).is_empty() && looker.known.is_empty());
        let broken = Member { name: "a".to_owned(), weight: 1.0, utilisation: f64::NAN };
        assert!((0..200).all(|_| looker.look(std::slice::from_ref(&broken)).is_empty()));
    }

    #[test]
    fn one_change_leaves_half() {
        let mut looker = Weights::default();
        let slow = members(&[1.0, 1.0], &[100.0, 5.0], 30.0);
        let advice: Vec<Advice> = (0..LOOKS).flat_map(|_| looker.look(&slow)).collect();
        assert_eq!(advice.iter().map(|it| it.weight).collect::<Vec<_>>(), [STEP]);
    }

    #[test]
    fn the_journal_has_the_advice_once_in_a_while() {
        let mut governor = Governor::new(Settings::default());
        let mut looker = Weights::default();
        let mut advised = 0;
        for second in 0..600u64 {
            for Advice { proposal, .. } in looker.look(&members(&[1.0, 1.0], &[100.0, 50.0], 80.0))
            {
                let now = second * ground::window::SECOND;
                let status = governor.propose(now, second, &proposal);
                assert!(matches!(status, None | Some(Status::Advised)), "{status:?}");
                advised += usize::from(status.is_some());
            }
        }
        assert_eq!(advised, 2, "in ten minutes, with the same said at most every five");
    }
}
