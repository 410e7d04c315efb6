//! `experiments/loop`: the layer manager on and off, with the same requests and the same budget of bytes.

use std::fmt::Write as _;

use engine::route::Policy;
use serde::Deserialize;

use super::curve::Curve;
use super::plot::over_time;
use super::world::{Fill, Phase, Second, Setting, Start, World};
use super::{Part, SpeedRecords, each, layers, mean, write};
use crate::claims::{Claim, Goal, Peer};
use crate::context::Context;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    text: String,
    measured: SpeedRecords,
    nodes: usize,
    shards: usize,
    zipf: f64,
    /// Load of all shards together at each time, as a share of what all answer at the equal footprint.
    loads: Vec<f64>,
    /// After so many loads the next shard is the most popular one.
    moves_after: usize,
    /// The footprint that every shard has where nothing acts; together they are the budget.
    equal_footprint: f64,
    objective_ms: f64,
    slower: f64,
    full: Part,
    short: Part,
    goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    missed_ratio: f64,
    p99_ratio: f64,
    bytes_ratio: f64,
}

struct Outcome {
    seconds: Vec<Second>,
    offered: Vec<(f64, f64)>,
    /// Share of the requests not answered within the objective, and those not answered at all, %.
    missed_percent: f64,
    p99_ms: f64,
    footprint: f64,
    footprint_max: f64,
}

pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let curve = config.measured.curve(&context.folder, &config.text)?;
    let cases: Vec<(bool, u64)> =
        (0..part.rounds).flat_map(|round| [(true, round), (false, round)]).collect();
    let outcomes = each(&cases, |&(on, round)| {
        let outcome = simulate(&config, part, &curve, on, config.seed + round)?;
        context.say(format!(
            "{}: {:.3} % missed, p99 {:.2} ms, {:.3} × the input, {:.3} at most",
            if on { "on" } else { "off" },
            outcome.missed_percent,
            outcome.p99_ms,
            outcome.footprint,
            outcome.footprint_max
        ));
        Ok(outcome)
    })?;
    let mut csv = "on,round,missed_percent,p99_ms,footprint,footprint_max\n".to_owned();
    for ((on, round), o) in cases.iter().zip(&outcomes) {
        let _ = writeln!(
            csv,
            "{on},{round},{:.5},{:.4},{:.4},{:.4}",
            o.missed_percent, o.p99_ms, o.footprint, o.footprint_max
        );
        if *round == 0 {
            let name = if *on { "on" } else { "off" };
            let note = format!("{} shards on {} nodes", config.shards, config.nodes);
            write(
                &context.out,
                &format!("{name}.svg"),
                &over_time(name, &o.seconds, &o.offered, &note),
            )?;
        }
    }
    write(&context.out, "loop.csv", &csv)?;
    Ok(claims(&config, &cases, &outcomes))
}

fn simulate(
    config: &Config,
    part: &Part,
    curve: &Curve,
    on: bool,
    seed: u64,
) -> anyhow::Result<Outcome> {
    let equal = curve.at_most(config.equal_footprint);
    let rate = |step: usize| curve.steps.get(step).map_or(0.0, |step| step.rate());
    let footprint = |step: usize| curve.steps.get(step).map_or(0.0, |step| step.footprint);
    let weights: Vec<f64> =
        (1..=config.shards).map(|rank| (rank as f64).powf(-config.zipf)).collect();
    let sum: f64 = weights.iter().sum();
    let all = rate(equal) * config.shards as f64;
    let mut phases = Vec::new();
    let mut offered = Vec::new();
    for (at, load) in config.loads.iter().enumerate() {
        let shift = at / config.moves_after.max(1) * 7;
        let rates: Vec<f64> = (0..config.shards)
            .map(|shard| {
                weights.get((shard + shift) % config.shards).map_or(0.0, |w| w / sum * load * all)
            })
            .collect();
        let from_s = at as f64 * part.hold_s;
        offered.push((from_s, load * all / config.slower));
        phases.push(Phase { from_s, rates });
    }
    let per_node = config.shards / config.nodes.max(1);
    let budget = (footprint(equal) - footprint(0)) * curve.bytes * per_node as f64;
    let starts: Vec<Start> = (0..config.shards)
        .map(|shard| Start {
            shard,
            node: shard % config.nodes,
            step: equal,
            step_max: if on { curve.last() } else { equal },
        })
        .collect();
    let setting = Setting {
        curve: curve.clone(),
        shard_bytes: curve.bytes,
        slower: config.slower,
        fill: Fill::Sweep,
        policy: Policy::SmallestExpectedResponse,
        told: true,
        layers: layers(budget.ceil() as u64 + 1024),
        replicate: false,
        copy_bytes_per_s: 1e8,
        clients: 0,
        seed,
    };
    let mut world = World::new(setting, &starts, phases)?;
    world.run(config.loads.len() as f64 * part.hold_s);
    let objective_s = config.objective_ms * 1e-3 * config.slower;
    let within = world.responses.share_within(objective_s).unwrap_or(0.0);
    let arrivals: u64 = world.seconds.iter().map(|second| second.arrivals).sum();
    let answered = world.responses.count() as f64;
    Ok(Outcome {
        missed_percent: 100.0 * (1.0 - within * answered / arrivals.max(1) as f64),
        p99_ms: world.responses.quantile_s(0.99).map_or(f64::NAN, |s| s * 1e3 / config.slower),
        footprint: mean(world.seconds.iter().map(|second| second.footprint)),
        footprint_max: world.seconds.iter().map(|second| second.footprint).fold(0.0, f64::max),
        offered,
        seconds: world.seconds,
    })
}

fn claims(config: &Config, cases: &[(bool, u64)], outcomes: &[Outcome]) -> Vec<Claim> {
    let of = |on: bool, value: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
        cases.iter().zip(outcomes).filter(|(case, _)| case.0 == on).map(|(_, o)| value(o)).collect()
    };
    let mut claims = Vec::new();
    let mut add = |what: &str, unit: &str, most: f64, value: &dyn Fn(&Outcome) -> f64| {
        let (on, off) = (of(true, value), of(false, value));
        let peer = Some(Peer { name: "off".to_owned(), value: mean(off.iter().copied()) });
        let figure = Claim::of_rounds(format!("on: {what}"), &on, unit);
        claims.push(Claim { peer, ..figure });
        // Round by round: both met the same requests.
        let ratios: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on / off).collect();
        let claim = Claim::of_rounds(format!("on over off: {what}"), &ratios, "×");
        claims.push(claim.with_goal(Goal::AtMost(most)));
    };
    let goals = &config.goals;
    let objective = format!("requests not within {} ms", config.objective_ms);
    add(&objective, "%", goals.missed_ratio, &|o| o.missed_percent);
    add("p99", "ms", goals.p99_ratio, &|o| o.p99_ms);
    add("bytes held on average", "× input", goals.bytes_ratio, &|o| o.footprint);
    add("bytes held at most", "× input", 1.0, &|o| o.footprint_max);
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_misses_less_than_off_within_the_same_budget() {
        let curve = super::super::curve::tests::curve();
        let config = Config {
            seed: 1,
            text: String::new(),
            measured: SpeedRecords { curve: "".into(), layers: "".into() },
            nodes: 1,
            shards: 6,
            zipf: 0.99,
            loads: vec![0.2, 0.5],
            moves_after: 1,
            equal_footprint: 0.5,
            objective_ms: 100.0,
            slower: 1.0,
            full: Part { rounds: 1, hold_s: 60.0 },
            short: Part { rounds: 1, hold_s: 60.0 },
            goals: Goals { missed_ratio: 0.5, p99_ratio: 0.5, bytes_ratio: 1.0 },
        };
        let one = |on| simulate(&config, &config.full, &curve, on, 1).unwrap();
        let (on, off) = (one(true), one(false));
        assert!(
            on.missed_percent < off.missed_percent,
            "{} {}",
            on.missed_percent,
            off.missed_percent
        );
        assert!(on.footprint_max <= off.footprint_max + 1e-9);
        assert!((off.footprint - 0.5).abs() < 1e-9);
    }
}
