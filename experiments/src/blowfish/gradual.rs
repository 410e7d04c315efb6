//! `experiments/blowfish-gradual`: a load that rises by steps, and one that triples at once (Figures 6 to 9).

use std::fmt::Write as _;

use engine::route::Policy;
use serde::Deserialize;

use super::curve::Curve;
use super::plot::over_time;
use super::world::{Fill, Phase, Second, Setting, Start, World};
use super::{Part, SpeedRecords, each, layers, write};
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    text: String,
    measured: SpeedRecords,
    /// What the smallest footprint sustains, in the unit of the loads.
    unit_of_smallest: f64,
    gradual: Vec<f64>,
    spike: Vec<f64>,
    budget: f64,
    /// Processors of the node, where layers are filled by queries and where one is idle.
    processors: f64,
    full: Part,
    short: Part,
    goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    sustained_s: f64,
    drained_s: f64,
    footprint: f64,
}

/// What fills layers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Dedicated,
    Opportunistic,
    /// Queries, and a thread where a processor is idle: what a server does by default.
    Both,
}

const ALL_WAYS: [How; 3] = [How::Dedicated, How::Opportunistic, How::Both];

#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    spike: bool,
    how: How,
    round: u64,
}

impl Case {
    fn name(self) -> String {
        let load = if self.spike { "spike" } else { "gradual" };
        let fill = match self.how {
            How::Dedicated => "dedicated",
            How::Opportunistic => "opportunistic",
            How::Both => "both",
        };
        format!("{load}, {fill}")
    }
}

/// What came of a run.
struct Outcome {
    seconds: Vec<Second>,
    offered: Vec<(f64, f64)>,
    changes: Vec<(f64, usize, bool)>,
    /// The longest time after a rise until as much is answered as asked, and until the queue is short again.
    sustained_s: f64,
    drained_s: f64,
    footprint_max: f64,
    length_max: f64,
    /// Changes of direction while the load was the same.
    reversals: u64,
}

/// Time after a change of the load in which changes of layers are no oscillation.
const REACTS_S: f64 = 60.0;
/// Seconds over which throughput is compared with the rate.
const OVER: usize = 3;
/// A share of the rate that counts as all of it: counts of Poisson arrivals differ by that much.
const ALL: f64 = 0.97;

pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let curve = config.measured.curve(&context.folder, &config.text)?;
    let learning = config.measured.learning(&context.folder, &config.text)?;
    let mut cases = Vec::new();
    for spike in [false, true] {
        for how in ALL_WAYS {
            cases.extend((0..part.rounds).map(|round| Case { spike, how, round }));
        }
    }
    let outcomes = each(&cases, |case| {
        let fill = match case.how {
            How::Dedicated => Fill::Sweep,
            How::Opportunistic => Fill::Queries(learning.clone()),
            How::Both => Fill::Both(learning.clone(), config.processors),
        };
        let outcome = simulate(&config, part, &curve, fill, *case)?;
        context.say(format!(
            "{}: sustained after {} s, drained after {} s, footprint at most {:.3}",
            case.name(),
            outcome.sustained_s,
            outcome.drained_s,
            outcome.footprint_max
        ));
        Ok(outcome)
    })?;
    let mut csv = "case,round,second,offered,answered,footprint,queue_length\n".to_owned();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        if case.round > 0 {
            continue;
        }
        let name = case.name().replace(", ", "-");
        for second in outcome.seconds.iter().step_by(if context.short { 1 } else { 5 }) {
            let _ = writeln!(
                csv,
                "{name},{},{},{:.1},{},{:.4},{:.2}",
                case.round,
                second.at_s,
                rate_at(&outcome.offered, second.at_s),
                second.completions,
                second.footprint,
                second.length()
            );
        }
        let unit = curve.steps.first().map_or(0.0, |step| step.rate()) / config.unit_of_smallest;
        let note =
            format!("A shard of {:.0} MB; a unit of load is {unit:.0}/s.", curve.bytes / 1e6);
        let svg = over_time(&case.name(), &outcome.seconds, &outcome.offered, &note);
        write(&context.out, &format!("{name}.svg"), &svg)?;
    }
    write(&context.out, "gradual.csv", &csv)?;
    let mut csv = "case,round,second,grows\n".to_owned();
    for (case, outcome) in cases.iter().zip(&outcomes) {
        let name = case.name().replace(", ", "-");
        for (at, _, grows) in &outcome.changes {
            let _ = writeln!(csv, "{name},{},{at:.2},{grows}", case.round);
        }
    }
    write(&context.out, "changes.csv", &csv)?;
    Ok(claims(&config, &cases, &outcomes))
}

fn simulate(
    config: &Config,
    part: &Part,
    curve: &Curve,
    fill: Fill,
    case: Case,
) -> anyhow::Result<Outcome> {
    let unit = curve.steps.first().map_or(0.0, |step| step.rate()) / config.unit_of_smallest;
    let loads = if case.spike { &config.spike } else { &config.gradual };
    let times = (0..loads.len()).map(|at| at as f64 * part.hold_s);
    let offered: Vec<(f64, f64)> = times.zip(loads.iter().map(|load| load * unit)).collect();
    let phases =
        offered.iter().map(|&(from_s, rate)| Phase { from_s, rates: vec![rate] }).collect();
    let setting = Setting {
        curve: curve.clone(),
        shard_bytes: curve.bytes,
        slower: 1.0,
        fill,
        policy: Policy::SmallestExpectedResponse,
        told: true,
        layers: layers((config.budget * curve.bytes) as u64),
        replicate: false,
        copy_bytes_per_s: 1e8,
        clients: 0,
        seed: config.seed + case.round,
    };
    let start = Start { shard: 0, node: 0, step: 0, step_max: curve.last() };
    let high = setting.layers.high;
    let mut world = World::new(setting, &[start], phases)?;
    world.run(loads.len() as f64 * part.hold_s);
    let mut worst = (0.0_f64, 0.0_f64);
    for (at, &(from, rate)) in offered.iter().enumerate() {
        let rises = at.checked_sub(1).and_then(|before| offered.get(before));
        if rises.is_none_or(|before| before.1 < rate) {
            let until = from + part.hold_s;
            let within = |second: &&Second| second.at_s > from && second.at_s <= until;
            let seconds: Vec<&Second> = world.seconds.iter().filter(within).collect();
            worst.0 = worst.0.max(first(&seconds, part.hold_s, |few| {
                let answered: u64 = few.iter().map(|second| second.completions).sum();
                answered as f64 >= ALL * rate * few.len() as f64
            }));
            let short = |few: &[&Second]| few.iter().all(|second| second.length() < 2.0 * high);
            worst.1 = worst.1.max(first(&seconds, part.hold_s, short));
        }
    }
    let reversals = reversals(&world.changes, &offered);
    let most = |of: &dyn Fn(&Second) -> f64| world.seconds.iter().map(of).fold(0.0, f64::max);
    Ok(Outcome {
        sustained_s: worst.0,
        drained_s: worst.1,
        footprint_max: most(&|second| second.footprint),
        length_max: most(&Second::length),
        reversals,
        offered,
        changes: world.changes.clone(),
        seconds: world.seconds,
    })
}

/// Seconds until a few in a row are as they should; all of the time if never.
fn first(seconds: &[&Second], all_s: f64, are: impl Fn(&[&Second]) -> bool) -> f64 {
    seconds.windows(OVER).position(are).map_or(all_s, |at| at as f64)
}

fn rate_at(offered: &[(f64, f64)], at_s: f64) -> f64 {
    offered.iter().rev().find(|(from, _)| *from < at_s).map_or(0.0, |(_, rate)| *rate)
}

/// How often a layer came after one went, or went after one came, while the load was constant.
fn reversals(changes: &[(f64, usize, bool)], offered: &[(f64, f64)]) -> u64 {
    let begins = |at: f64| offered.iter().rev().find(|(from, _)| *from <= at).map_or(0.0, |o| o.0);
    let pairs = changes.windows(2).filter(|pair| match pair {
        [(before, _, one), (at, _, other)] => {
            one != other && *before > begins(*at) + REACTS_S && *at > begins(*at) + REACTS_S
        }
        _ => false,
    });
    pairs.count() as u64
}

fn claims(config: &Config, cases: &[Case], outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for spike in [false, true] {
        for how in ALL_WAYS {
            let name = Case { spike, how, round: 0 }.name();
            let of: Vec<&Outcome> = cases
                .iter()
                .zip(outcomes)
                .filter(|(case, _)| (case.spike, case.how) == (spike, how))
                .map(|(_, outcome)| outcome)
                .collect();
            let mut add = |what: &str, unit: &str, goal, value: &dyn Fn(&Outcome) -> f64| {
                let rounds: Vec<f64> = of.iter().map(|outcome| value(outcome)).collect();
                let claim = Claim::of_rounds(format!("{name}: {what}"), &rounds, unit);
                claims.push(match goal {
                    Some(most) => claim.with_goal(Goal::AtMost(most)),
                    None => claim,
                });
            };
            let goals = &config.goals;
            let sustained = spike.then_some(goals.sustained_s);
            add("time until as much is answered as asked", "s", sustained, &|o| o.sustained_s);
            add("time until the queue is short", "s", Some(goals.drained_s), &|o| o.drained_s);
            add("largest footprint", "× input", Some(goals.footprint), &|o| o.footprint_max);
            add("longest queue", "requests", None, &|o| o.length_max);
            add("changes of layers", "", None, &|o| o.changes.len() as f64);
            let reversals: u64 = of.iter().map(|outcome| outcome.reversals).sum();
            let what = format!("{name}: changes back and forth under a constant load");
            let claim = Claim::counted(what, reversals as f64, "", of.len() as u64);
            claims.push(claim.with_goal(Goal::AtMost(0.0)));
        }
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reversal_counts_only_under_a_constant_load() {
        let offered = [(0.0, 1.0), (300.0, 2.0)];
        let at = |times: &[(f64, bool)]| {
            let changes: Vec<_> = times.iter().map(|&(at, grows)| (at, 0, grows)).collect();
            reversals(&changes, &offered)
        };
        assert_eq!(at(&[(100.0, true), (150.0, true), (310.0, false)]), 0);
        assert_eq!(at(&[(100.0, true), (150.0, false), (200.0, true)]), 2);
        assert_eq!(at(&[(310.0, true), (330.0, false), (400.0, false)]), 0);
    }

    #[test]
    fn a_spike_is_followed() {
        let curve = super::super::curve::tests::curve();
        let part = Part { rounds: 1, hold_s: 60.0 };
        let config = Config {
            seed: 1,
            text: String::new(),
            measured: SpeedRecords { curve: "".into(), layers: "".into() },
            unit_of_smallest: 2.7,
            gradual: vec![],
            spike: vec![1.0, 7.5],
            budget: 1.0,
            processors: 2.0,
            full: Part { rounds: 1, hold_s: 60.0 },
            short: Part { rounds: 1, hold_s: 60.0 },
            goals: Goals { sustained_s: 10.0, drained_s: 60.0, footprint: 0.89 },
        };
        let case = Case { spike: true, how: How::Dedicated, round: 0 };
        let outcome = simulate(&config, &part, &curve, Fill::Sweep, case).unwrap();
        assert!(outcome.sustained_s < 30.0 && outcome.drained_s < 60.0, "{}", outcome.drained_s);
        assert!(outcome.footprint_max > 0.6 && outcome.length_max > 100.0);
        assert_eq!(claims(&config, &[case], &[outcome]).len(), 36);
    }
}
