//! `experiments/policies`: Prequal, C3 and ours before a hundred servers, and before four.

mod world;

use std::fmt::Write as _;

use anyhow::Context as _;
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use world::{Outcome, Policy, Setting};

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    seed: u64,
    full: Part,
    short: Part,
    hundred: Setting,
    four: Setting,
}

/// How long each case is simulated.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    rounds: u64,
    warm_s: f64,
    measured_s: f64,
}

/// The rounds of a policy at a load.
struct Case {
    policy: Policy,
    load: f64,
    rounds: Vec<Outcome>,
}

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let hundred = cases(context, "100 servers", &config.hundred, part, config.seed);
    let four = cases(context, "4 servers", &config.four, part, config.seed);
    let mut csv = "servers,load,policy,round,requests,errors,p50_ms,p99_ms\n".to_owned();
    for (servers, cases) in [(config.hundred.servers, &hundred), (config.four.servers, &four)] {
        for case in cases {
            for (round, outcome) in case.rounds.iter().enumerate() {
                let Outcome { requests, errors, p50_s, p99_s } = outcome;
                let _ = writeln!(
                    csv,
                    "{servers},{},{},{round},{requests},{errors},{:.3},{:.3}",
                    case.load,
                    case.policy.name(),
                    p50_s * 1e3,
                    p99_s * 1e3
                );
            }
        }
    }
    let path = context.out.join("policies.csv");
    std::fs::write(&path, csv).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(claims(&hundred, &four))
}

/// All policies at all loads of a setting, two cases at a time.
fn cases(context: &Context, name: &str, setting: &Setting, part: &Part, seed: u64) -> Vec<Case> {
    let mut all = Vec::new();
    for &load in &setting.loads {
        for policy in Policy::ALL {
            let (warm_s, measured_s) = (part.warm_s, part.measured_s);
            let one =
                |round: u64| world::run(setting, policy, load, warm_s, measured_s, seed + round);
            let halves = std::thread::scope(|scope| {
                let odd = scope.spawn(|| (1..part.rounds).step_by(2).map(one).collect::<Vec<_>>());
                let even: Vec<Outcome> = (0..part.rounds).step_by(2).map(one).collect();
                (even, odd.join().unwrap_or_default())
            });
            let rounds: Vec<Outcome> = halves.0.into_iter().chain(halves.1).collect();
            let case = Case { policy, load, rounds };
            let (p99, errors) = (mean(&case, |o| o.p99_s * 1e3), mean(&case, error_percent));
            context.say(format!(
                "{name}, {load}: {}: p99 {p99:.1} ms, {errors:.2} % errors",
                policy.name()
            ));
            all.push(case);
        }
    }
    all
}

fn error_percent(outcome: &Outcome) -> f64 {
    100.0 * outcome.errors as f64 / outcome.requests.max(1) as f64
}

fn mean(case: &Case, of: impl Fn(&Outcome) -> f64) -> f64 {
    case.rounds.iter().map(of).sum::<f64>() / case.rounds.len().max(1) as f64
}

fn find(cases: &[Case], policy: Policy, load: f64) -> Option<&Case> {
    cases.iter().find(|case| case.policy == policy && case.load == load)
}

/// Round by round, since both policies met the same requests and antagonists.
fn ratio(name: &str, one: Option<&Case>, other: Option<&Case>, published: Option<f64>) -> Claim {
    let pairs =
        one.into_iter().flat_map(|c| &c.rounds).zip(other.into_iter().flat_map(|c| &c.rounds));
    let ratios: Vec<f64> = pairs.map(|(a, b)| a.p99_s / b.p99_s).collect();
    let claim = Claim::of_rounds(name, &ratios, "×");
    Claim { published, ..claim }
}

fn claims(hundred: &[Case], four: &[Case]) -> Vec<Claim> {
    let mut claims = Vec::new();
    for (load, published) in
        [(0.7, [314.0, 1804.0, 299.0, 281.0]), (0.9, [f64::NAN, 2654.0, 304.0, 286.0])]
    {
        let percent = load * 100.0;
        for (policy, published) in
            Policy::ALL.into_iter().zip(published.map(Some).into_iter().chain([None, None]))
        {
            let rounds = find(hundred, policy, load).map_or(&[][..], |case| &case.rounds);
            let p99: Vec<f64> = rounds.iter().map(|o| o.p99_s * 1e3).collect();
            let claim =
                Claim::of_rounds(format!("p99 of {} at {percent} %", policy.name()), &p99, "ms");
            claims.push(Claim { published: published.filter(|p| p.is_finite()), ..claim });
        }
        let prequal = find(hundred, Policy::Prequal, load);
        let (c3, ours) = (find(hundred, Policy::C3, load), find(hundred, Policy::Gateways, load));
        let of_c3 = |what: &str| {
            ratio(&format!("C3 over Prequal at {percent} %, {what}"), c3, prequal, Some(1.06))
        };
        claims.push(of_c3("at least").with_goal(Goal::AtLeast(1.03)));
        claims.push(of_c3("at most").with_goal(Goal::AtMost(1.09)));
        let name = format!("ours over Prequal at {percent} %");
        claims.push(ratio(&name, ours, prequal, None).with_goal(Goal::AtMost(0.85)));
    }
    for (policy, published) in
        [(Policy::RoundRobin, Some(25.0)), (Policy::Prequal, Some(0.0)), (Policy::Gateways, None)]
    {
        let rounds = find(hundred, policy, 1.74).map_or(&[][..], |case| &case.rounds);
        let errors: Vec<f64> = rounds.iter().map(error_percent).collect();
        let claim = Claim::of_rounds(
            format!("errors of {} at 1.74 × the load", policy.name()),
            &errors,
            "%",
        );
        let claim = Claim { published, ..claim };
        claims.push(if policy == Policy::Gateways {
            claim.with_goal(Goal::AtMost(0.0))
        } else {
            claim
        });
    }
    let robin = find(four, Policy::RoundRobin, 0.7);
    let (prequal, ours) = (find(four, Policy::Prequal, 0.7), find(four, Policy::Gateways, 0.7));
    claims.push(ratio("Prequal over round robin, four servers", prequal, robin, Some(1.48)));
    let ours = ratio("ours over round robin, four servers", ours, robin, None);
    claims.push(ours.with_goal(Goal::AtMost(1.0)));
    claims
}
