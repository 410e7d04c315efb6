//! `experiments/shard-layers`: layers of the compressed shard added, dropped and filled by queries,
//! while it answers.
//!
//! The member `shard-queries-bench` measures times and rates and knows no goals; here they become
//! claims. Ratios are taken between neighbours in time, so that what the machine does to both
//! cancels.

mod measured;
mod plot;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::claims::{Claim, Goal};
use super::context::Context;
use super::lab;
use measured::{Changed, Curve, Dataset, Measurements, Query};

/// Largest processor time of a sweep for a pair of layers that is claimed, seconds for each
/// [`SWEEP_BYTES`] of text.
const SWEEP_CPU_S: f64 = 4.0;
const SWEEP_BYTES: f64 = 100e6;

/// Microseconds to unpublish a pair that are claimed at most.
const UNPUBLISH_US: f64 = 100.0;

/// Share of a dropped pair's memory that the system is to have back, at least.
const RETURNED: f64 = 0.99;

/// What the 99th percentile of response times may be while layers change, over that without.
const P99_RATIO: f64 = 2.0;

/// Throughput at the end of the curve over that before the mark, at least. What an extract reads
/// beyond a sample is not shortened by layers, so of one of 1 KiB nothing is claimed.
const GAINS: [(Query, Option<f64>); 3] =
    [(Query::Search, Some(1.5)), (Query::Extract64, Some(1.1)), (Query::Extract1024, None)];

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let folder = context.folder.canonicalize()?;
    let program = lab::helper("shard-queries-bench")?;
    let mut command = Command::new(&program);
    command.arg("layers").arg(&folder).arg("--out").arg(&context.out);
    command.args(context.short.then_some("--short")).args(context.quiet.then_some("--quiet"));
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    let measured = Measurements::read(&context.out)?;
    let (mut claims, mut text) = (Vec::new(), String::new());
    for dataset in &measured.datasets {
        claims.extend(of_dataset(dataset));
        text.push_str(&curves(dataset));
        write(&context.out.join(format!("{}.svg", dataset.name)), &plot::svg(dataset))?;
    }
    write(&context.out.join("curves.txt"), &text)?;
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
fn of_dataset(dataset: &Dataset) -> Vec<Claim> {
    let Dataset { name, swept: [sa, isa], sampling: [base_sa, base_isa], .. } = dataset;
    let each = |changes: &[Changed], of: &dyn Fn(&Changed) -> f64| -> Vec<f64> {
        changes.iter().map(of).collect()
    };
    let (alone, meanwhile) = (&dataset.alone, &dataset.meanwhile);
    let input = dataset.bytes as f64;
    let per_input = |of: &Changed| of.cpu_s * SWEEP_BYTES / input;
    let pair = format!("SA {sa} and ISA {isa} over {base_sa} and {base_isa}");
    let sweep = format!("{name}: a sweep for {pair}, for 100 MB");
    let mut claims = vec![
        claim(sweep, &each(alone, &per_input), "CPU s").with_goal(Goal::AtMost(SWEEP_CPU_S)),
        claim(format!("{name}: the same while queries run"), &each(meanwhile, &per_input), "CPU s"),
        Claim::counted(
            format!("{name}: footprint without layers"),
            dataset.index_bytes as f64 / input,
            "× input",
            1,
        ),
        claim(
            format!("{name}: footprint of the pair"),
            &each(alone, &|of| of.bytes as f64 / input),
            "× input",
        ),
    ];
    for (when, changes) in [("alone", alone), ("while queries run", meanwhile)] {
        let unpublish = each(changes, &|of| of.unpublish_us);
        let slowest = unpublish.iter().copied().fold(f64::NAN, f64::max);
        let returned = each(changes, &|of| 1.0 - of.resident_left_bytes / of.bytes as f64);
        let returned = claim(format!("{name}: memory returned, {when}"), &returned, "× the pair");
        claims.extend([
            claim(format!("{name}: unpublish a pair, {when}"), &unpublish, "µs")
                .with_goal(Goal::AtMost(UNPUBLISH_US)),
            Claim::once(format!("{name}: the slowest of these, {when}"), slowest, "µs"),
            claim(format!("{name}: free a pair, {when}"), &each(changes, &|of| of.free_us), "µs"),
            // Queries grow their own buffers meanwhile, so it is claimed of the quiet rounds.
            match when {
                "alone" => returned.with_goal(Goal::AtLeast(RETURNED)),
                _ => returned,
            },
        ]);
        let added = each(changes, &|of| of.resident_added_bytes / of.bytes as f64);
        claims.push(claim(format!("{name}: memory taken, {when}"), &added, "× the pair"));
    }
    let share = dataset.sweep_share;
    for query in Query::ALL {
        let what = query.in_words();
        let text = format!(
            "{name}: {what}, p99 during a sweep of {share} of a processor over p99 without"
        );
        let ratio = claim(text, &dataset.p99_ratios(query), "×");
        claims.push(ratio.with_goal(Goal::AtMost(P99_RATIO)));
    }
    claims.extend(GAINS.iter().flat_map(|(query, least)| of_curve(dataset, *query, *least)));
    claims
}

/// What a marked pair brings one kind of query.
fn of_curve(dataset: &Dataset, query: Query, least: Option<f64>) -> [Claim; 2] {
    let Dataset { name, marked: [sa, isa], .. } = dataset;
    let curve = dataset.curves.iter().find(|curve| curve.query == query);
    let seconds = curve.and_then(|curve| curve.after.last()).map_or(0.0, |window| window.at_s);
    let gains = curve.map_or_else(Vec::new, Curve::gains);
    let whole = curve.map_or_else(Vec::new, Curve::gains_whole);
    let what = query.in_words();
    let gain = claim(
        format!("{name}: {what}, {seconds:.0} s after marking SA {sa} and ISA {isa}, over before"),
        &gains,
        "×",
    );
    let gain = Claim { goal: least.map(Goal::AtLeast), ..gain };
    [gain, claim(format!("{name}: {what}, the same with the pair whole"), &whole, "×")]
}

/// The curves as text: seconds since the mark, queries/s, shares known.
fn curves(dataset: &Dataset) -> String {
    let mut out = String::new();
    for curve in &dataset.curves {
        let _ = writeln!(out, "{}: {}", dataset.name, curve.query.in_words());
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len().max(1) as f64;
        let _ = writeln!(out, "   before {:12.0}/s", mean(&curve.before_per_s));
        for window in &curve.after {
            let _ = writeln!(
                out,
                "{:7.1} s {:12.0}/s, known {:.4} of SA, {:.4} of ISA",
                window.at_s, window.per_s, window.known_sa, window.known_isa
            );
        }
        let _ = writeln!(out, "    whole {:12.0}/s\n", mean(&curve.whole_per_s));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    #[test]
    fn claims_are_of_what_was_measured() {
        let dataset = measured::tests::dataset();
        let claims: Vec<Claim> = of_dataset(&dataset).into_iter().map(Claim::judged).collect();
        let of = |part: &str| claims.iter().find(|claim| claim.name.contains(part)).unwrap();
        let sweep = of("a sweep for SA 16 and ISA 16 over 64 and 64");
        let holds = Some(Verdict::Holds);
        assert!((sweep.value - 3.0).abs() < 1e-9 && sweep.verdict == holds, "{sweep:?}");
        assert_eq!(of("unpublish a pair, alone").verdict, holds);
        let differ = of("unpublish a pair, while").verdict;
        assert_eq!(differ, Some(Verdict::NotShown), "two rounds that differ so say nothing");
        assert_eq!(of("the slowest").value, 5.0);
        let returned = of("memory returned, alone");
        assert!((returned.value - 0.995).abs() < 1e-9 && returned.verdict == holds, "{returned:?}");
        assert_eq!(of("search, p99").value, 1.25);
        assert_eq!(of("search, 3 s after marking SA 8").value, 2.5);
        assert_eq!(of("extract 64 B, p99").verdict, Some(Verdict::NotShown), "not measured");
        assert!(curves(&dataset).contains("2.0 s           20/s, known 0.1000 of SA"));
    }
}
