//! `experiments/blowfish-replication`: bytes for the same throughput, against selective replication (Figure 11).

use std::fmt::Write as _;

use engine::route::Policy;
use report::svg::standalone;
use serde::Deserialize;

use super::curve::Curve;
use super::plot::plot;
use super::world::{Fill, Phase, Second, Setting, Start, World};
use super::{SpeedRecords, each, layers, mean, write};
use crate::claims::{Claim, Goal, Peer};
use crate::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    measured: SpeedRecords,
    texts: Vec<String>,
    shards: usize,
    zipf: f64,
    /// Queries per second of all shards together, as multiples of what one shard answers at its least footprint.
    loads: Vec<f64>,
    rival_footprint: f64,
    /// Utilisation at which storage is planned for the beginning.
    utilisation: f64,
    slower: f64,
    copy_bytes_per_s: f64,
    published: Published,
    full: Part,
    short: Part,
    goals: Goals,
}

/// The published curve: so many times the throughput from one footprint to another.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    text: String,
    from: f64,
    to: f64,
    gain: f64,
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
    lowest: f64,
    top: f64,
    top_best: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    /// Layers first, replicas once a shard is as fast as it can be.
    Ours,
    /// Replicas of a fixed footprint, the rival's as published.
    Fixed,
    /// Replicas of the fixed footprint for which the plan needs least at this load.
    Best,
}

impl System {
    const ALL: [System; 3] = [System::Ours, System::Fixed, System::Best];

    fn name(self) -> &'static str {
        match self {
            System::Ours => "layers",
            System::Fixed => "selective replication",
            System::Best => "selective replication at its best footprint",
        }
    }
}

struct Case<'a> {
    text: &'a str,
    curve: &'a Curve,
    load: f64,
    system: System,
    round: u64,
}

#[derive(Clone, Copy, Debug)]
struct Outcome {
    /// Bytes held over those of the input.
    storage: f64,
    planned: f64,
    /// Answered over offered.
    answered: f64,
    replicas: f64,
    footprint: f64,
}

pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let mut curves = Vec::new();
    for text in &config.texts {
        curves.push((text.clone(), config.measured.curve(&context.folder, text)?));
    }
    let Published { text, from, to, gain } = &config.published;
    let bent = config.measured.curve(&context.folder, text)?.bent(*from, *to, *gain);
    curves.push((PUBLISHED.to_owned(), bent));
    let mut cases = Vec::new();
    for (text, curve) in &curves {
        for &load in &config.loads {
            for system in System::ALL {
                let case = |round| Case { text, curve, load, system, round };
                cases.extend((0..part.rounds).map(case));
            }
        }
    }
    let outcomes = each(&cases, |case| {
        let outcome = simulate(&config, part, case)?;
        context.say(format!(
            "{}, {} ×, {}: {:.3} × the input (planned {:.3}), {:.4} answered",
            case.text,
            case.load,
            case.system.name(),
            outcome.storage,
            outcome.planned,
            outcome.answered
        ));
        Ok(outcome)
    })?;
    let mut csv =
        "curve,load,system,round,storage,planned,answered,replicas_per_shard,footprint_of_a_replica\n"
            .to_owned();
    for (case, o) in cases.iter().zip(&outcomes) {
        let _ = writeln!(
            csv,
            "{},{},{},{},{:.4},{:.4},{:.4},{:.3},{:.3}",
            case.text,
            case.load,
            case.system.name(),
            case.round,
            o.storage,
            o.planned,
            o.answered,
            o.replicas,
            o.footprint
        );
    }
    write(&context.out, "replication.csv", &csv)?;
    let names: Vec<&str> = curves.iter().map(|(name, _)| name.as_str()).collect();
    write(&context.out, "replication.svg", &svg(&config, &names, &cases, &outcomes))?;
    Ok(claims(&config, &names, &cases, &outcomes))
}

/// The name of the curve that is bent to the published gain.
const PUBLISHED: &str = "a curve of the published gain";

/// The share of each shard: Zipf by rank.
fn shares(shards: usize, zipf: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=shards).map(|rank| (rank as f64).powf(-zipf)).collect();
    let sum: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / sum).collect()
}

/// The footprints of the replicas of a shard of this load that need least, as steps of the curve.
fn plan_ours(curve: &Curve, rate: f64, utilisation: f64) -> Vec<usize> {
    let needed = rate / utilisation;
    let (last, full) = (curve.last(), curve.steps.last().map_or(1.0, |step| step.rate()));
    let footprint = |steps: &[usize]| -> f64 {
        steps.iter().filter_map(|&at| curve.steps.get(at)).map(|step| step.footprint).sum()
    };
    let mut best: Option<Vec<usize>> = None;
    for (at, step) in curve.steps.iter().enumerate() {
        let alike = (needed / step.rate()).ceil().max(1.0) as usize;
        let fulls = ((needed - step.rate()) / full).ceil().max(0.0) as usize;
        for steps in [vec![at; alike], [vec![last; fulls], vec![at]].concat()] {
            if best.as_ref().is_none_or(|best| footprint(&steps) < footprint(best)) {
                best = Some(steps);
            }
        }
    }
    best.unwrap_or_default()
}

fn plan_fixed(curve: &Curve, step: usize, rate: f64, utilisation: f64) -> Vec<usize> {
    let each = curve.steps.get(step).map_or(1.0, |step| step.rate());
    vec![step; (rate / utilisation / each).ceil().max(1.0) as usize]
}

fn storage(curve: &Curve, plans: &[Vec<usize>]) -> f64 {
    let all = plans.iter().flatten().filter_map(|&at| curve.steps.get(at));
    all.map(|step| step.footprint).sum::<f64>() / plans.len().max(1) as f64
}

/// The replicas of every shard, by the plan.
fn plan(config: &Config, curve: &Curve, rates: &[f64], system: System) -> Vec<Vec<usize>> {
    let fixed = |step: usize| -> Vec<Vec<usize>> {
        rates.iter().map(|&rate| plan_fixed(curve, step, rate, config.utilisation)).collect()
    };
    match system {
        System::Ours => {
            rates.iter().map(|&rate| plan_ours(curve, rate, config.utilisation)).collect()
        }
        System::Fixed => fixed(curve.at_most(config.rival_footprint)),
        System::Best => {
            let all = (0..curve.steps.len()).map(fixed);
            let by = |a: &Vec<_>, b: &Vec<_>| storage(curve, a).total_cmp(&storage(curve, b));
            all.min_by(by).unwrap_or_default()
        }
    }
}

fn simulate(config: &Config, part: &Part, case: &Case<'_>) -> anyhow::Result<Outcome> {
    let curve = case.curve;
    let base = curve.steps.first().map_or(1.0, |step| step.rate());
    let shares = shares(config.shards, config.zipf);
    let rates: Vec<f64> = shares.iter().map(|share| share * case.load * base).collect();
    let plans = plan(config, curve, &rates, case.system);
    let mut starts = Vec::new();
    for (shard, steps) in plans.iter().enumerate() {
        for &step in steps {
            let step_max = if case.system == System::Ours { curve.last() } else { step };
            starts.push(Start { shard, node: starts.len(), step, step_max });
        }
    }
    let setting = Setting {
        curve: curve.clone(),
        shard_bytes: curve.bytes,
        slower: config.slower,
        fill: Fill::Sweep,
        policy: Policy::SmallestExpectedResponse,
        told: true,
        layers: layers(1 << 40),
        replicate: true,
        copy_bytes_per_s: config.copy_bytes_per_s,
        clients: 0,
        seed: config.seed + case.round,
    };
    let mut world = World::new(setting, &starts, vec![Phase { from_s: 0.0, rates }])?;
    world.run(part.warm_s + part.measured_s);
    let seconds: Vec<&Second> =
        world.seconds.iter().filter(|second| second.at_s > part.warm_s).collect();
    let sum = |of: fn(&Second) -> u64| seconds.iter().map(|s| of(s)).sum::<u64>() as f64;
    let storage_held = mean(seconds.iter().map(|second| second.footprint));
    let replicas = mean(seconds.iter().map(|second| second.replicas.len() as f64));
    Ok(Outcome {
        storage: storage_held,
        planned: storage(curve, &plans),
        answered: sum(|second| second.completions) / sum(|second| second.arrivals),
        replicas: replicas / config.shards as f64,
        footprint: storage_held * config.shards as f64 / replicas,
    })
}

fn rounds<'a>(
    cases: &'a [Case<'_>],
    outcomes: &'a [Outcome],
    text: &'a str,
    load: f64,
    system: System,
) -> impl Iterator<Item = &'a Outcome> {
    let is = move |case: &Case<'_>| (case.text, case.load, case.system) == (text, load, system);
    cases.iter().zip(outcomes).filter(move |(case, _)| is(case)).map(|(_, outcome)| outcome)
}

fn claims(config: &Config, names: &[&str], cases: &[Case<'_>], outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    let (lowest, top) = (config.loads.first().copied(), config.loads.last().copied());
    for &text in names {
        let of_published = text == PUBLISHED;
        for rival in [System::Fixed, System::Best] {
            for &load in &config.loads {
                let ours: Vec<&Outcome> =
                    rounds(cases, outcomes, text, load, System::Ours).collect();
                let theirs: Vec<&Outcome> = rounds(cases, outcomes, text, load, rival).collect();
                let ratios: Vec<f64> = theirs
                    .iter()
                    .zip(&ours)
                    .map(|(theirs, ours)| theirs.storage / ours.storage)
                    .collect();
                let name = format!("{text}, load {load}: bytes of {} over ours", rival.name());
                let claim = Claim::of_rounds(name, &ratios, "×");
                let planned =
                    mean(theirs.iter().map(|o| o.planned)) / mean(ours.iter().map(|o| o.planned));
                let peer = Peer { name: "by the plan".to_owned(), value: planned };
                let fixed = rival == System::Fixed;
                let (goal, published) = match (Some(load) == lowest, Some(load) == top) {
                    (true, _) if fixed => (Some(config.goals.lowest), Some(1.6)),
                    (_, true) if fixed => (Some(config.goals.top), Some(4.2)),
                    (_, true) => (Some(config.goals.top_best), None),
                    _ => (None, None),
                };
                let goal = goal.filter(|_| !of_published).map(Goal::AtLeast);
                claims.push(Claim { published, goal, peer: Some(peer), ..claim });
            }
        }
        let of_text = cases.iter().zip(outcomes).filter(|(case, _)| case.text == text);
        let least = of_text.map(|(_, outcome)| outcome.answered).fold(f64::INFINITY, f64::min);
        let claim = Claim::counted(
            format!("{text}: least share of the offered load that was answered"),
            least,
            "",
            outcomes.len() as u64,
        );
        claims.push(claim.with_goal(Goal::AtLeast(0.99)));
    }
    claims
}

fn svg(config: &Config, names: &[&str], cases: &[Case<'_>], outcomes: &[Outcome]) -> String {
    let plots: Vec<_> = names
        .iter()
        .map(|text| {
            let line = |(system, class)| {
                let point = |&load: &f64| {
                    let all = rounds(cases, outcomes, text, load, system);
                    (load.log2(), mean(all.map(|outcome| outcome.storage)))
                };
                (class, System::name(system).to_owned(), config.loads.iter().map(point).collect())
            };
            let lines =
                [(System::Ours, "ours"), (System::Fixed, "spotify"), (System::Best, "third")];
            let lines = lines.map(line).to_vec();
            plot(
                text,
                "load, log₂ of multiples of a smallest shard",
                "bytes held, × input",
                lines,
                true,
            )
        })
        .collect();
    standalone(&plots, &[format!("{} shards, Zipf({})", config.shards, config.zipf)])
}

#[cfg(test)]
mod tests {
    use super::super::curve::tests::curve;
    use super::*;

    #[test]
    fn shares_fall_by_rank() {
        let shares = shares(100, 0.99);
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert!((shares[0] / shares[9] - 10f64.powf(0.99)).abs() < 1e-9);
    }

    #[test]
    fn a_plan_carries_the_load_with_the_fewest_bytes() {
        // Footprints 0.4, 0.5, 0.7, 0.9 answer 100, 200, 400, 700.
        let curve = curve();
        assert_eq!(plan_ours(&curve, 10.0, 0.8), [0]);
        assert_eq!(plan_ours(&curve, 150.0, 0.8), [1]);
        assert_eq!(plan_ours(&curve, 600.0, 0.8), [3, 0]);
        assert_eq!(plan_fixed(&curve, 1, 600.0, 0.8), [1; 4]);
        for rate in [1.0, 90.0, 500.0, 3000.0] {
            let plan = plan_ours(&curve, rate, 0.8);
            let carried: f64 = plan.iter().map(|&at| curve.steps[at].rate()).sum();
            assert!(carried * 0.8 >= rate * (1.0 - 1e-9), "{rate}: {plan:?}");
        }
    }
}
