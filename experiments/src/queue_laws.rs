//! `experiments/queue-laws`: the response-time laws of M/G/1, M/G/m and GI/M/1 against simulation.
//!
//! The formulas are those of `model::queue`. The simulation is code of its own, [`simulate`], that
//! knows of them only this: where it counts a single fast server beside several slow ones, to
//! narrow its intervals, it takes that server's probabilities from `Mg1`, which the first claim
//! tests without them.

mod case;
mod control;
pub(super) mod simulate;

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, anyhow};
use serde::Deserialize;

use super::claims::{Claim, Goal, Peer};
use super::context::Context;
use case::{Case, Effort, Law, Outcome, Shape};
use report::grid::Grid;

/// `config.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// Times at which each law is compared, up to the 99.9 % quantile.
    grid_points: usize,
    /// Half width at which a simulation ends, points.
    half_width_points: f64,
    /// Batches of a first estimate.
    batches_min: usize,
    seed: u64,
    full: Part,
    short: Part,
}

/// What is compared.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    utilisations: Vec<f64>,
    servers: Vec<u32>,
    /// Requests of one simulation, at most.
    customers_max: u64,
    law: Vec<Law>,
}

/// The largest error of a law that is claimed, points.
const GOAL_POINTS: f64 = 0.5;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let config: Config = context.config()?;
    let part = if context.short { &config.short } else { &config.full };
    let effort = Effort {
        grid_points: config.grid_points.max(1),
        half_width: config.half_width_points / 100.0,
        batches_min: config.batches_min,
        customers_max: part.customers_max,
    };
    let cases = cases(part);
    let outcomes = run_all(context, &cases, &effort, config.seed)?;
    let rows: Vec<(Case, Outcome)> = cases.into_iter().zip(outcomes).collect();
    let text = text(part, &rows);
    for (file, content) in [("laws.txt", &text), ("laws.csv", &csv(&rows))] {
        let path = context.out.join(file);
        std::fs::write(&path, content)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    context.say(text);
    Ok(shapes(part).filter_map(|shape| claim(shape, &rows)).collect())
}

fn shapes(part: &Part) -> impl Iterator<Item = Shape> {
    let several = part.servers.iter().map(|&servers| Shape::Poisson { servers });
    several.chain([Shape::General])
}

fn cases(part: &Part) -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in shapes(part) {
        for &law in &part.law {
            for &utilisation in &part.utilisations {
                cases.push(Case { shape, law, utilisation });
            }
        }
    }
    cases
}

/// Simulates on all processors; what comes of a case depends on its seed alone.
fn run_all(
    context: &Context,
    cases: &[Case],
    effort: &Effort,
    seed: u64,
) -> anyhow::Result<Vec<Outcome>> {
    // The longest first, so that no processor is left with one at the end.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by(|&a, &b| cases[b].utilisation.total_cmp(&cases[a].utilisation));
    let next = AtomicUsize::new(0);
    let work = || -> anyhow::Result<Vec<(usize, Outcome)>> {
        let mut done = Vec::new();
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            let Some(&index) = order.get(turn) else { return Ok(done) };
            let outcome = cases[index].run(effort, seed.wrapping_add(index as u64))?;
            context.say(format!(
                "{}/{}: {}: off by {:.2} ± {:.2} points",
                turn + 1,
                cases.len(),
                cases[index].name(),
                outcome.error() * 100.0,
                outcome.half_width * 100.0
            ));
            done.push((index, outcome));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get());
    let mut all = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        let mut all = Vec::with_capacity(cases.len());
        for thread in threads {
            let done = thread.join().map_err(|_| anyhow!("a simulation ended in a panic"))?;
            all.extend(done?);
        }
        anyhow::Ok(all)
    })?;
    all.sort_by_key(|(index, _)| *index);
    Ok(all.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The largest difference of a kind of queue, with the widest interval of all its laws.
fn claim(shape: Shape, rows: &[(Case, Outcome)]) -> Option<Claim> {
    let rows: Vec<_> = rows.iter().filter(|(case, _)| case.shape == shape).collect();
    let worst = rows.iter().max_by(|a, b| a.1.error().abs().total_cmp(&b.1.error().abs()))?;
    let widest = rows.iter().fold(0.0f64, |w, (_, outcome)| w.max(outcome.widest)) * 100.0;
    let value = worst.1.error().abs() * 100.0;
    let plain = rows.iter().filter_map(|(_, outcome)| outcome.plain).reduce(f64::max);
    let name = format!(
        "{}: largest |difference of P(T ≤ t)|, at ρ {} and {}",
        shape.name(),
        worst.0.utilisation,
        worst.0.law.name()
    );
    let samples = rows.iter().map(|(_, outcome)| outcome.customers).sum();
    Some(Claim {
        goal: Some(Goal::AtMost(GOAL_POINTS)),
        peer: plain.map(|error| Peer {
            name: "Erlang C and one faster server".to_owned(),
            value: error * 100.0,
        }),
        ..Claim::new(name, value, widest, "points", samples)
    })
}

fn text(part: &Part, rows: &[(Case, Outcome)]) -> String {
    let mut text = String::from(
        "Largest difference of P(T ≤ t), predicted less simulated, over all t, in points, with the 95 % half \
         width there\n",
    );
    for shape in shapes(part) {
        let mut head = vec!["law, SCV".to_owned()];
        head.extend(part.utilisations.iter().map(|rho| format!("ρ {rho}")));
        let head: Vec<&str> = head.iter().map(String::as_str).collect();
        let mut grid = Grid::new("lrrrrrrrrrrrr", &head);
        for law in &part.law {
            let of = rows.iter().filter(|(case, _)| case.shape == shape && case.law == *law);
            let mut line = vec![law.name()];
            line.extend(of.map(|(_, outcome)| {
                format!("{:+.2} ± {:.2}", outcome.error() * 100.0, outcome.half_width * 100.0)
            }));
            grid.row(line);
        }
        text.push_str(&format!("\n{}\n{}", shape.name(), grid.text()));
    }
    text
}

fn csv(rows: &[(Case, Outcome)]) -> String {
    let mut text = String::from(
        "queue,law,utilisation,t_mean_services,predicted,simulated,error_points,half_width_points,\
         widest_points,plain_error_points,requests\n",
    );
    for (case, outcome) in rows {
        let plain = outcome.plain.map_or(String::new(), |error| format!("{:.4}", error * 100.0));
        text.push_str(&format!(
            "{},{},{},{:.6},{:.6},{:.6},{:.4},{:.4},{:.4},{plain},{}\n",
            case.shape.name(),
            case.law.name(),
            case.utilisation,
            outcome.t,
            outcome.predicted,
            outcome.simulated,
            outcome.error() * 100.0,
            outcome.half_width * 100.0,
            outcome.widest * 100.0,
            outcome.customers,
        ));
    }
    text
}
