//! `experiments/blowfish-recovery`: a node is lost; those that stay grow layers while its shards are copied.

use std::fmt::Write as _;

use engine::route::Policy;
use serde::Deserialize;

use super::curve::Curve;
use super::plot::over_time;
use super::world::{Fill, Phase, Second, Setting, Start, World};
use super::{SpeedRecords, each, layers, mean, write};
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
    replicas: usize,
    /// Footprints of a shard's replicas at the beginning, × input; layers follow the load from there.
    footprints: Vec<f64>,
    /// Load of a shard, as a share of what its replicas answer together at these footprints.
    loads: Vec<f64>,
    /// Footprint of each replica of the peer, which may not change.
    peer_footprint: f64,
    slower: f64,
    copy_bytes_per_s: f64,
    lost_s: f64,
    /// Time from the loss until the end.
    after_s: f64,
    full: Part,
    short: Part,
    goals: Goals,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    rounds: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Goals {
    storage: f64,
    drop_percent: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Case {
    load: f64,
    grows: bool,
    round: u64,
}

struct Outcome {
    seconds: Vec<Second>,
    rate: f64,
    /// Before the loss, × input.
    storage: f64,
    storage_max: f64,
    /// Largest loss of throughput over ten seconds, %.
    drop_percent: f64,
    /// From the loss until all shards have their replicas.
    rebuilt_s: f64,
    copied_bytes: f64,
    /// From the loss until as much is answered as asked and the queues are as before.
    drained_s: f64,
}

/// Seconds over which throughput is taken.
const OVER: usize = 10;

pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let curve = config.measured.curve(&context.folder, &config.text)?;
    let mut cases = Vec::new();
    for &load in &config.loads {
        for grows in [true, false] {
            cases.extend((0..part.rounds).map(|round| Case { load, grows, round }));
        }
    }
    let outcomes = each(&cases, |case| {
        let outcome = simulate(&config, &curve, *case)?;
        context.say(format!(
            "load {}, {}: {:.2} × the input before, {:.2} at most, drop {:.1} %, drained after {} s, rebuilt after {:.1} s",
            case.load, if case.grows { "layers" } else { "fixed" }, outcome.storage, outcome.storage_max,
            outcome.drop_percent, outcome.drained_s, outcome.rebuilt_s
        ));
        Ok(outcome)
    })?;
    let mut csv =
        "load,layers,round,storage,storage_max,drop_percent,drained_s,rebuilt_s,copied_bytes\n"
            .to_owned();
    for (case, o) in cases.iter().zip(&outcomes) {
        let _ = writeln!(
            csv,
            "{},{},{},{:.4},{:.4},{:.3},{},{:.2},{:.0}",
            case.load,
            case.grows,
            case.round,
            o.storage,
            o.storage_max,
            o.drop_percent,
            o.drained_s,
            o.rebuilt_s,
            o.copied_bytes
        );
        if case.round == 0 && case.grows {
            let note = format!("Node 0 of {} is lost after {} s.", config.nodes, config.lost_s);
            let title = format!("load {}", case.load);
            let svg = over_time(&title, &o.seconds, &[(0.0, o.rate)], &note);
            write(&context.out, &format!("recovery-{}.svg", case.load), &svg)?;
        }
    }
    write(&context.out, "recovery.csv", &csv)?;
    Ok(claims(&config, &cases, &outcomes))
}

fn simulate(config: &Config, curve: &Curve, case: Case) -> anyhow::Result<Outcome> {
    let rate_of = |step: usize| curve.steps.get(step).map_or(0.0, |step| step.rate());
    let steps: Vec<usize> = match case.grows {
        true => config.footprints.iter().map(|footprint| curve.at_most(*footprint)).collect(),
        false => vec![curve.at_most(config.peer_footprint); config.replicas],
    };
    // The load is the same for both.
    let of_ours = config.footprints.iter().map(|footprint| rate_of(curve.at_most(*footprint)));
    let rate = case.load * of_ours.sum::<f64>();
    let mut starts = Vec::new();
    for shard in 0..config.shards {
        for (replica, &step) in steps.iter().enumerate() {
            // Each node has replicas of every kind, and two nodes share few shards.
            let node = (shard + replica * (1 + shard / config.nodes)) % config.nodes;
            let step_max = if case.grows { curve.last() } else { step };
            starts.push(Start { shard, node, step, step_max });
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
        replicate: false,
        copy_bytes_per_s: config.copy_bytes_per_s,
        clients: 0,
        seed: config.seed + case.round,
    };
    let phase = Phase { from_s: 0.0, rates: vec![rate; config.shards] };
    let offered = rate * config.shards as f64 / config.slower;
    let mut world = World::new(setting, &starts, vec![phase])?;
    world.lose(config.lost_s, 0);
    world.run(config.lost_s + config.after_s);
    let (before, after): (Vec<&Second>, Vec<&Second>) =
        world.seconds.iter().partition(|second| second.at_s <= config.lost_s);
    let settled = before.get(before.len() / 2..).unwrap_or_default();
    let throughput = |few: &[&Second]| mean(few.iter().map(|second| second.completions as f64));
    let normal = throughput(settled);
    let least = after.windows(OVER).map(throughput).fold(f64::INFINITY, f64::min);
    let length = mean(settled.iter().map(|second| second.length()));
    let calm = |few: &[&Second]| mean(few.iter().map(|second| second.length())) < 2.0 * length;
    // Short again, and short to the end: the last time that it was not.
    let drained = after.windows(OVER).rposition(|few| !calm(few)).map_or(0, |at| at + 1);
    Ok(Outcome {
        rate: offered,
        storage: mean(settled.iter().map(|second| second.footprint)),
        storage_max: after.iter().map(|second| second.footprint).fold(0.0, f64::max),
        drop_percent: 100.0 * (1.0 - least / normal),
        rebuilt_s: world.rebuilt_s - config.lost_s,
        copied_bytes: world.copied_bytes,
        drained_s: drained as f64,
        seconds: world.seconds,
    })
}

fn claims(config: &Config, cases: &[Case], outcomes: &[Outcome]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for &load in &config.loads {
        let of = |grows: bool, value: &dyn Fn(&Outcome) -> f64| -> Vec<f64> {
            let is = |case: &Case| case.load == load && case.grows == grows;
            cases.iter().zip(outcomes).filter(|(c, _)| is(c)).map(|(_, o)| value(o)).collect()
        };
        let mut add = |what: &str,
                       unit: &str,
                       published,
                       goal: Option<f64>,
                       value: &dyn Fn(&Outcome) -> f64| {
            let claim = Claim::of_rounds(format!("load {load}: {what}"), &of(true, value), unit);
            let peer = mean(of(false, value).into_iter());
            let name = format!("{} replicas of {} ×", config.replicas, config.peer_footprint);
            let goal = goal.map(Goal::AtMost);
            claims.push(Claim { published, goal, peer: Some(Peer { name, value: peer }), ..claim });
        };
        let goals = &config.goals;
        add("bytes held before the loss", "× input", Some(1.9), Some(goals.storage), &|o| {
            o.storage
        });
        add("bytes held at most after it", "× input", None, None, &|o| o.storage_max);
        add(
            "drop of throughput over ten seconds",
            "%",
            Some(12.0),
            Some(goals.drop_percent),
            &|o| o.drop_percent,
        );
        add("time until queues are short again", "s", None, None, &|o| o.drained_s);
        add("time until every shard has its replicas", "s", None, None, &|o| o.rebuilt_s);
        add("bytes copied", "MB", None, None, &|o| o.copied_bytes / 1e6);
    }
    claims
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn survivors_grow_and_the_lost_shards_come_back() {
        let curve = super::super::curve::tests::curve();
        let config = Config {
            seed: 1,
            text: String::new(),
            measured: SpeedRecords { curve: "".into(), layers: "".into() },
            nodes: 4,
            shards: 4,
            replicas: 3,
            footprints: vec![0.9, 0.5, 0.5],
            loads: vec![0.6],
            peer_footprint: 0.5,
            slower: 1.0,
            copy_bytes_per_s: 1e7,
            lost_s: 30.0,
            after_s: 60.0,
            full: Part { rounds: 1 },
            short: Part { rounds: 1 },
            goals: Goals { storage: 1.9, drop_percent: 12.0 },
        };
        let case = |grows| Case { load: 0.6, grows, round: 0 };
        let ours = simulate(&config, &curve, case(true)).unwrap();
        let fixed = simulate(&config, &curve, case(false)).unwrap();
        assert!(ours.rebuilt_s > 4.0 && ours.rebuilt_s < 30.0, "{}", ours.rebuilt_s);
        assert!((ours.copied_bytes - 3.0 * 0.4 * 1e8).abs() < 1.0, "{}", ours.copied_bytes);
        assert!(ours.drop_percent < fixed.drop_percent + 5.0);
        assert!(ours.storage_max > ours.storage);
        assert!((fixed.storage - 1.5).abs() < 1e-9);
    }
}
