//! `experiments/blowfish-scheduling`: three replicas of a shard, of which one may not grow (Figure 10).

use std::fmt::Write as _;

use engine::route::Policy;
use serde::Deserialize;

use super::curve::Curve;
use super::plot::over_time;
use super::world::{Fill, Phase, Second, Setting, Start, World};
use super::{SpeedRecords, each, layers, write};
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    text: String,
    measured: SpeedRecords,
    /// Footprint that the other two may have, × input.
    footprint_max: f64,
    /// The load before, as a share of what three replicas answer at the least footprint, and after, as a share of
    /// what they answer when two have grown.
    before: f64,
    after: f64,
    rises_s: f64,
    /// Clients of the closed loop, which keep all replicas busy.
    clients: u32,
    slower: f64,
    full: Part,
    short: Part,
    goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    rounds: u64,
    warm_s: f64,
    measured_s: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    level: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    policy: Policy,
    told: bool,
    closed: bool,
    round: u64,
}

const CASES: [(Policy, bool); 8] = [
    (Policy::SmallestExpectedResponse, true),
    (Policy::SmallestExpectedResponse, false),
    (Policy::Blowfish, false),
    (Policy::ShortestQueue, false),
    (Policy::PowerOfTwo, false),
    (Policy::C3, true),
    (Policy::HotCold, true),
    (Policy::RoundRobin, false),
];

impl Case {
    fn name(self) -> String {
        let policy = match self.policy {
            Policy::SmallestExpectedResponse if self.told => "smallest expected response, told",
            Policy::SmallestExpectedResponse => "smallest expected response, learnt",
            Policy::Blowfish => "inverse queue length",
            Policy::ShortestQueue => "shortest queue",
            Policy::PowerOfTwo => "power of two",
            Policy::C3 => "C3",
            Policy::HotCold => "Prequal's hot-cold rule",
            Policy::RoundRobin => "round robin",
            Policy::Primary => "primary",
        };
        let load = if self.closed { "saturated" } else { "open" };
        format!("{load}, {policy}")
    }
}

struct Outcome {
    seconds: Vec<Second>,
    offered: Vec<(f64, f64)>,
    /// Of each replica, over the measured time.
    lengths: Vec<f64>,
    services_s: Vec<f64>,
    answered: Vec<f64>,
    p50_ms: f64,
    p99_ms: f64,
    throughput: f64,
}

impl Outcome {
    /// The time that a request which comes now is to expect at each replica.
    fn waits_s(&self) -> Vec<f64> {
        self.lengths.iter().zip(&self.services_s).map(|(l, s)| (l + 1.0) * s).collect()
    }
}

/// The largest over the smallest.
fn spread(values: &[f64]) -> f64 {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    values.iter().copied().fold(0.0, f64::max) / low
}

pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let curve = config.measured.curve(&context.folder, &config.text)?;
    let mut cases = Vec::new();
    for closed in [false, true] {
        for (policy, told) in CASES {
            let case = |round| Case { policy, told, closed, round };
            cases.extend((0..part.rounds).map(case));
        }
    }
    let outcomes = each(&cases, |case| simulate(&config, part, &curve, *case))?;
    let mut csv =
        "case,round,replica,length,service_ms,wait_ms,answered_per_s,p50_ms,p99_ms\n".to_owned();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        let name = case.name();
        for (replica, wait_s) in outcome.waits_s().iter().enumerate() {
            let of = |values: &[f64]| values.get(replica).copied().unwrap_or(f64::NAN);
            let _ = writeln!(
                csv,
                "\"{name}\",{},{replica},{:.3},{:.4},{:.4},{:.1},{:.4},{:.4}",
                case.round,
                of(&outcome.lengths),
                of(&outcome.services_s) * 1e3,
                wait_s * 1e3,
                of(&outcome.answered),
                outcome.p50_ms,
                outcome.p99_ms
            );
        }
        if case.round == 0 {
            let waits: Vec<String> =
                outcome.waits_s().iter().map(|s| format!("{:.2}", s * 1e3)).collect();
            context.say(format!(
                "{name}: lengths {:.2?}, waits {} ms, p99 {:.2} ms",
                outcome.lengths,
                waits.join(", "),
                outcome.p99_ms
            ));
            if !case.closed
                && matches!(case.policy, Policy::SmallestExpectedResponse | Policy::Blowfish)
            {
                let svg = over_time(&name, &outcome.seconds, &outcome.offered, "three replicas");
                write(&context.out, &format!("{}.svg", name.replace([' ', ','], "-")), &svg)?;
            }
        }
    }
    write(&context.out, "scheduling.csv", &csv)?;
    Ok(claims(&config, &cases, &outcomes))
}

fn simulate(config: &Config, part: &Part, curve: &Curve, case: Case) -> anyhow::Result<Outcome> {
    let most = curve.at_most(config.footprint_max);
    let rate = |step: usize| curve.steps.get(step).map_or(0.0, |step| step.rate());
    let offered = vec![
        (0.0, config.before * 3.0 * rate(0)),
        (config.rises_s, config.after * (2.0 * rate(most) + rate(0))),
    ];
    let phases =
        offered.iter().map(|&(from_s, rate)| Phase { from_s, rates: vec![rate] }).collect();
    let setting = Setting {
        curve: curve.clone(),
        shard_bytes: curve.bytes,
        slower: config.slower,
        fill: Fill::Sweep,
        policy: case.policy,
        told: case.told,
        layers: layers(1 << 40),
        replicate: false,
        copy_bytes_per_s: 1e8,
        clients: if case.closed { config.clients } else { 0 },
        seed: config.seed + case.round,
    };
    // In the open loop two replicas grow by themselves; where all are busy they have grown.
    let start = |node: usize| {
        let step_max = if node == 2 { 0 } else { most };
        let step = if case.closed { step_max } else { 0 };
        Start { shard: 0, node, step, step_max }
    };
    let mut world = World::new(setting, &[start(0), start(1), start(2)], phases)?;
    let from_s = config.rises_s + part.warm_s;
    world.counted_from_s = from_s;
    world.run(from_s + part.measured_s);
    let (mut lengths, mut busy, mut answered) = (vec![0.0; 3], vec![0.0; 3], vec![0.0; 3]);
    for of in world.seconds.iter().filter(|s| s.at_s > from_s).flat_map(|s| &s.replicas) {
        for (sums, value) in [
            (&mut lengths, of.length),
            (&mut busy, of.busy_s),
            (&mut answered, of.completions as f64),
        ] {
            if let Some(sum) = sums.get_mut(of.replica) {
                *sum += value / part.measured_s;
            }
        }
    }
    let ms = |p: f64| world.responses.quantile_s(p).map_or(f64::NAN, |s| s * 1e3);
    Ok(Outcome {
        services_s: busy.iter().zip(&answered).map(|(busy, n)| busy / n).collect(),
        throughput: answered.iter().sum(),
        lengths,
        answered,
        p50_ms: ms(0.5),
        p99_ms: ms(0.99),
        offered,
        seconds: world.seconds,
    })
}

fn claims(config: &Config, cases: &[Case], outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for closed in [false, true] {
        for (policy, told) in CASES {
            let name = Case { policy, told, closed, round: 0 }.name();
            let is = |case: &Case| (case.policy, case.told, case.closed) == (policy, told, closed);
            let of = || cases.iter().zip(outcomes).filter(|(case, _)| is(case)).map(|(_, o)| o);
            let rounds = |value: &dyn Fn(&Outcome) -> f64| of().map(value).collect::<Vec<f64>>();
            let waits = rounds(&|o| spread(&o.waits_s()));
            let waits = Claim::of_rounds(
                format!("{name}: longest over shortest expected wait"),
                &waits,
                "×",
            );
            let ours = policy == Policy::SmallestExpectedResponse;
            claims.push(if ours {
                waits.with_goal(Goal::AtMost(config.goals.level))
            } else {
                waits
            });
            if policy == Policy::Blowfish {
                let lengths = rounds(&|o| spread(&o.lengths));
                claims.push(Claim::of_rounds(
                    format!("{name}: longest over shortest queue"),
                    &lengths,
                    "×",
                ));
                // Length × service rate is level where lengths are in inverse proportion to the rates of service.
                let inverse = rounds(&|o| {
                    let products: Vec<f64> =
                        o.lengths.iter().zip(&o.services_s).map(|(l, s)| l / s).collect();
                    spread(&products)
                });
                let what =
                    format!("{name}: largest over smallest product of length and rate of service");
                claims.push(Claim::of_rounds(what, &inverse, "×"));
            }
            let p99 = rounds(&|o| o.p99_ms);
            claims.push(Claim::of_rounds(format!("{name}: p99"), &p99, "ms"));
            if closed {
                let throughput = rounds(&|o| o.throughput);
                claims.push(Claim::of_rounds(format!("{name}: throughput"), &throughput, "/s"));
            }
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_level_under_smallest_expected_response() {
        let curve = super::super::curve::tests::curve();
        let config = Config {
            seed: 1,
            text: String::new(),
            measured: SpeedRecords { curve: "".into(), layers: "".into() },
            footprint_max: 1.0,
            before: 0.3,
            after: 0.9,
            rises_s: 10.0,
            clients: 60,
            slower: 1.0,
            full: Part { rounds: 1, warm_s: 60.0, measured_s: 100.0 },
            short: Part { rounds: 1, warm_s: 60.0, measured_s: 100.0 },
            goals: Goals { level: 1.5 },
        };
        let case = |policy, told| Case { policy, told, closed: true, round: 0 };
        let one = |case| simulate(&config, &config.full, &curve, case).unwrap();
        let ours = one(case(Policy::SmallestExpectedResponse, true));
        let robin = one(case(Policy::RoundRobin, false));
        assert!(spread(&ours.waits_s()) < 1.6, "{:?}", ours.waits_s());
        assert!(spread(&robin.waits_s()) > 3.0, "{:?}", robin.waits_s());
        assert!(ours.throughput > 1400.0, "700 + 700 + 100: {}", ours.throughput);
    }
}
