//! `experiments/shard-queries`: queries on the compressed shard at footprints from the smallest to
//! 1.3 ×, beside sdsl-lite at the same footprints in the same run.
//!
//! The member `shard-queries-bench` measures rates and knows no goals; here rates become ratios and
//! claims. At a footprint each side is represented by its fastest index that is not larger, for
//! each kind of query apart, and ratios are taken within rounds, so that what the machine does to
//! both cancels.

mod curve;
mod measured;
mod plot;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::claims::{Claim, Goal};
use super::context::Context;
use super::lab;
use super::provenance;
use curve::{Curve, Ratio};
use measured::{Measurements, Query};

/// What is claimed between two footprints, × input: kinds of queries with the least ratio of rates
/// for one query at a time and for a batch.
struct Part {
    name: &'static str,
    from: f64,
    to: f64,
    goals: &'static [(Query, f64, f64)],
}

/// The goals against sdsl-lite.
const PARTS: [Part; 3] = [
    Part {
        name: "below 0.55 ×",
        from: 0.0,
        to: 0.55,
        goals: &[
            (Query::Extract64, 3.0, 3.0),
            (Query::Extract1024, 3.0, 3.0),
            (Query::Count, 3.0, 3.0),
            (Query::Search, 3.0, 3.0),
        ],
    },
    Part {
        name: "0.55 to 0.75 ×",
        from: 0.55,
        to: 0.75,
        goals: &[
            (Query::Extract64, 6.0, 12.0),
            (Query::Extract1024, 14.0, 14.0),
            (Query::Count, 7.0, 10.0),
            (Query::Search, 8.0, 10.0),
        ],
    },
    Part { name: "1.0 to 1.3 ×", from: 1.0, to: 1.3, goals: &[(Query::Search, 5.0, 5.0)] },
];

/// Smallest useful footprint that is claimed, × input.
const FOOTPRINT_GOAL: f64 = 0.43;

/// Extracts of 1 KiB per second that are claimed up to a footprint, × input, text layers included.
const EXTRACT_GOAL: (f64, f64) = (200e3, 0.75);

/// Where the gain of more memory is taken, × input (BlowFish's Figure 1), and what the source
/// printed for it.
const GAIN: (f64, f64) = (0.5, 0.75);
const GAIN_PUBLISHED: f64 = 20.0;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let folder = context.folder.canonicalize()?;
    let program = lab::helper("shard-queries-bench")?;
    let version = provenance::package_version("libsdsl-dev");
    context.provenance.peer("sdsl-lite", version.as_deref().unwrap_or("unknown"))?;
    let mut command = Command::new(&program);
    command.arg("run").arg(&folder);
    command.arg("--out").arg(&context.out).arg("--scratch").arg(&context.scratch);
    command.args(context.short.then_some("--short")).args(context.quiet.then_some("--quiet"));
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    let measured = Measurements::read(&context.out)?;
    let mut claims = Vec::new();
    let mut text = String::new();
    for dataset in &measured.datasets {
        let curve = Curve::new(dataset);
        claims.extend(of_dataset(&curve));
        text.push_str(&curve.text());
        write(&context.out.join(format!("{}.svg", dataset.name)), &plot::svg(&curve))?;
    }
    write(&context.out.join("curve.txt"), &text)?;
    context.say(text);
    Ok(claims)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// A figure with the interval of its mean over rounds.
fn claim(name: String, rounds: &[f64], unit: &str) -> Claim {
    Claim::of_rounds(name, rounds, unit)
}

/// All claims on one text.
fn of_dataset(curve: &Curve<'_>) -> Vec<Claim> {
    let name = &curve.dataset.name;
    let smallest = curve.footprints().next().unwrap_or(f64::NAN);
    let size = Claim::counted(format!("{name}: smallest footprint"), smallest, "× input", 1);
    let mut claims = vec![size.with_goal(Goal::AtMost(FOOTPRINT_GOAL))];
    for part in &PARTS {
        for &(query, alone, batched) in part.goals {
            for (batch, goal) in [(1, alone), (curve.batch, batched)] {
                claims.push(worst(curve, part, query, batch, goal));
            }
        }
    }
    claims.push(extracts(curve));
    for (query, what) in [
        (Some(Query::Search), "search"),
        (Some(Query::Extract64), "extract 64 B"),
        (None, "both in turns"),
    ] {
        let (low, high) = GAIN;
        let gains = curve.gain(low, high, query);
        let text = format!("{name}: {what}, gain from {low} to {high} ×");
        let published = query.is_none().then_some(GAIN_PUBLISHED);
        claims.push(Claim { published, ..claim(text, &gains, "×") });
    }
    for rates in &curve.dataset.ceiling {
        let ns: Vec<f64> = rates.per_s.iter().map(|rate| 1e9 / rate).collect();
        let text = format!("{name}: dependent access to memory, {} at once", rates.batch);
        claims.push(claim(text, &ns, "ns"));
    }
    claims
}

/// The claim on the footprint where the ratio is worst.
fn worst(curve: &Curve<'_>, part: &Part, query: Query, batch: usize, goal: f64) -> Claim {
    let footprints = curve.footprints().filter(|f| (part.from..=part.to).contains(f));
    let ratios: Vec<Ratio<'_>> =
        footprints.filter_map(|footprint| curve.ratio(footprint, query, batch)).collect();
    let (name, query) = (&curve.dataset.name, query.in_words());
    let what = format!("{name}: {query}, batch {batch}, {}", part.name);
    let worst = ratios.iter().min_by(|a, b| a.mean().total_cmp(&b.mean()));
    let of_worst = match worst {
        Some(ratio) => claim(
            format!(
                "{what}: over {} ({}), worst at {:.3} ×",
                ratio.rival.index, ratio.rival.parameters, ratio.footprint
            ),
            &ratio.rounds,
            "×",
        ),
        // It was not measured, so it is not shown.
        None => claim(format!("{what}: no such footprint of both"), &[], "×"),
    };
    of_worst.with_goal(Goal::AtLeast(goal))
}

/// The claim on long extracts at a footprint, one at a time.
fn extracts(curve: &Curve<'_>) -> Claim {
    let (goal, footprint) = EXTRACT_GOAL;
    let query = Query::Extract1024;
    let ours = curve.ours(footprint, query, 1);
    let rounds = ours.and_then(|engine| engine.rounds(query, 1)).unwrap_or_default();
    let parameters = ours.map_or("none so small", |engine| &engine.parameters);
    let text = format!("{}: extract 1 KiB up to {footprint} × ({parameters})", curve.dataset.name);
    claim(text, rounds, "/s").with_goal(Goal::AtLeast(goal))
}
