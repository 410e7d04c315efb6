//! `experiments/shard-curve`: what more memory gives one opened shard, its layers growing by steps
//! (BlowFish's Figure 1).
//!
//! `shard-queries-bench curve` measures rates and knows no goals; here they become gains and
//! claims. At a footprint the shard is as fast as at the best step that is not larger, for each
//! kind of query apart; gains are taken within rounds, so that what the machine does from one round
//! to the next cancels.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};
use model::statistics::batch_means;
use serde::Deserialize;

use super::claims::{Claim, Goal};
use super::context::Context;
use super::lab;
use report::grid::Grid;
use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, standalone};

/// `curve.json`.
#[derive(Deserialize)]
struct CurveFile {
    datasets: Vec<Dataset>,
}

/// What was measured on one text.
#[derive(Deserialize)]
struct Dataset {
    name: String,
    bytes: u64,
    /// Sampling rates of the index itself.
    base: [u32; 2],
    /// From the base on.
    points: Vec<Point>,
}

/// One footprint.
#[derive(Deserialize)]
struct Point {
    /// Lowest layers of SA and ISA; 0 for none.
    rates: [u32; 2],
    footprint: f64,
    sweep_cpu_s: Vec<f64>,
    ceiling_per_s: Vec<f64>,
    per_s: Vec<(Kind, Vec<f64>)>,
}

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Mix,
    Search,
    #[serde(rename = "extract-64")]
    Extract64,
    #[serde(rename = "extract-1024")]
    Extract1024,
    Count,
}

impl Kind {
    const ALL: [Kind; 5] =
        [Kind::Mix, Kind::Search, Kind::Extract64, Kind::Extract1024, Kind::Count];

    fn in_words(self) -> &'static str {
        match self {
            Kind::Mix => "searches and extracts of 64 B",
            Kind::Search => "search",
            Kind::Extract64 => "extract 64 B",
            Kind::Extract1024 => "extract 1 KiB",
            Kind::Count => "count",
        }
    }
}

/// A gain between two footprints, × input.
struct Gain {
    from: f64,
    to: f64,
    /// What BlowFish printed for its mix.
    published: f64,
    goal: Option<f64>,
}

/// BlowFish (NSDI 2016), Figure 1, and what a draft of it printed of a narrower system.
const GAINS: [Gain; 2] = [
    Gain { from: 0.5, to: 0.75, published: 20.0, goal: None },
    Gain { from: 0.4, to: 0.8, published: 5.0, goal: Some(5.0) },
];

/// A step that adds layers may lose so much of the mix's rate at most.
const STEP_GOAL: f64 = 0.95;

pub(super) fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let folder = context.folder.canonicalize()?;
    let program = lab::helper("shard-queries-bench")?;
    let mut command = Command::new(&program);
    command.arg("curve").arg(&folder);
    command.arg("--out").arg(&context.out).arg("--scratch").arg(&context.scratch);
    command.args(context.short.then_some("--short")).args(context.quiet.then_some("--quiet"));
    let status = command.status().with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(status.success(), "{} ended with {status}", program.display());
    let path = context.out.join("curve.json");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let measured: CurveFile = serde_json::from_str(&text)
        .with_context(|| format!("{} is not as expected", path.display()))?;
    ensure!(!measured.datasets.is_empty(), "nothing was measured");
    let (mut claims, mut text) = (Vec::new(), String::new());
    for dataset in &measured.datasets {
        claims.extend(dataset.claims());
        text.push_str(&dataset.text());
        write(&context.out.join(format!("{}.svg", dataset.name)), &dataset.svg())?;
    }
    write(&context.out.join("curve.txt"), &text)?;
    context.say(text);
    Ok(claims)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

impl Point {
    fn rounds(&self, kind: Kind) -> &[f64] {
        let rates = self.per_s.iter().find(|(known, _)| *known == kind);
        rates.map_or(&[], |(_, rates)| rates)
    }

    fn mean(&self, kind: Kind) -> f64 {
        let rounds = self.rounds(kind);
        rounds.iter().sum::<f64>() / rounds.len() as f64
    }

    fn parameters(&self) -> String {
        match self.rates {
            [0, 0] => "no layers".to_owned(),
            [sa, isa] => format!("SA down to {sa}, ISA down to {isa}"),
        }
    }
}

impl Dataset {
    /// The fastest step up to a footprint; the base where that is larger already.
    fn best(&self, footprint: f64, kind: Kind) -> Option<&Point> {
        let points = self.points.iter().filter(|point| point.footprint <= footprint);
        points.max_by(|a, b| a.mean(kind).total_cmp(&b.mean(kind))).or(self.points.first())
    }

    /// The rate up to one footprint over that up to another in each round, and which these were.
    fn gain(&self, from: f64, to: f64, kind: Kind) -> (Vec<f64>, [f64; 2]) {
        let (Some(before), Some(after)) = (self.best(from, kind), self.best(to, kind)) else {
            return (Vec::new(), [f64::NAN; 2]);
        };
        let rounds = after.rounds(kind).iter().zip(before.rounds(kind));
        let ratios = rounds.map(|(after, before)| after / before).collect();
        (ratios, [before.footprint, after.footprint])
    }

    fn claims(&self) -> Vec<Claim> {
        let name = &self.name;
        let mut claims = Vec::new();
        for gain in &GAINS {
            for kind in Kind::ALL {
                let &Gain { from, to, .. } = gain;
                // What the source claims is claimed of its mix; the kinds alone are shown.
                let (published, goal) = match kind {
                    Kind::Mix => (Some(gain.published), gain.goal),
                    _ => (None, None),
                };
                let (rounds, [low, high]) = self.gain(from, to, kind);
                let what = format!(
                    "{name}: {}, gain from {from} to {to} × ({low:.3} to {high:.3})",
                    kind.in_words()
                );
                claims.push(Claim {
                    published,
                    goal: goal.map(Goal::AtLeast),
                    ..Claim::of_rounds(what, &rounds, "×")
                });
            }
        }
        let steps = self.points.windows(2).map(|pair| {
            let rounds = pair.iter().map(|point| point.rounds(Kind::Mix));
            let rounds: Vec<&[f64]> = rounds.collect();
            let ratio = |(after, before): (&f64, &f64)| after / before;
            match rounds[..] {
                [before, after] => after.iter().zip(before).map(ratio).collect(),
                _ => Vec::new(),
            }
        });
        let mean = |ratios: &Vec<f64>| ratios.iter().sum::<f64>() / ratios.len() as f64;
        let worst = steps.min_by(|a, b| mean(a).total_cmp(&mean(b))).unwrap_or_default();
        let step = format!("{name}: mix, after a step over before it, the worst");
        let step = Claim::of_rounds(step, &worst, "×");
        claims.push(step.with_goal(Goal::AtLeast(STEP_GOAL)));
        let ends = [("smallest", self.points.first()), ("largest", self.points.last())];
        for (which, point) in ends {
            let Some(point) = point else { continue };
            let what = format!("{name}: {which} footprint ({})", point.parameters());
            claims.push(Claim::counted(what, point.footprint, "× input", 1));
        }
        let ceiling: Vec<f64> = self.points.iter().flat_map(|p| p.ceiling_per_s.clone()).collect();
        let ns: Vec<f64> = ceiling.iter().map(|rate| 1e9 / rate).collect();
        claims.push(Claim::of_rounds(format!("{name}: dependent access to memory"), &ns, "ns"));
        claims
    }

    fn text(&self) -> String {
        let [sa, isa] = self.base;
        let mut text = format!(
            "{}: {} bytes, an index of SA {sa} and ISA {isa} with layers; queries/s\n\n",
            self.name, self.bytes
        );
        let kinds = Kind::ALL.map(Kind::in_words);
        let head = [&["× input"][..], &kinds, &["sweep, CPU s", "layers"]].concat();
        let mut grid = Grid::new("rrrrrrrl", &head);
        for point in &self.points {
            let sweeps = point.sweep_cpu_s.len() as f64;
            let sweep = point.sweep_cpu_s.iter().sum::<f64>() / sweeps;
            let mut row = vec![format!("{:.3}", point.footprint)];
            row.extend(Kind::ALL.map(|kind| format!("{:.0}", point.mean(kind))));
            row.push(if sweeps > 0.0 { format!("{sweep:.2}") } else { String::new() });
            row.push(point.parameters());
            grid.row(row);
        }
        let _ = writeln!(text, "{}", grid.text());
        text
    }

    fn svg(&self) -> String {
        let [sa, isa] = self.base;
        let note = format!(
            "{}: {} bytes; one index of SA {sa} and ISA {isa}, each point a step of its layers, mean of all \
             rounds, one query at a time on one thread.",
            self.name, self.bytes
        );
        let plots: Vec<Plot> = Kind::ALL.into_iter().map(|kind| self.plot(kind)).collect();
        standalone(&plots, &[note])
    }

    fn plot(&self, kind: Kind) -> Plot {
        let point = |point: &Point| {
            let (x, y) = (point.footprint, point.mean(kind));
            let half = batch_means(point.rounds(kind)).map_or(0.0, |e| e.half_width);
            let title = format!("{}: {x:.3} ×, {y:.0}/s", point.parameters());
            PlotPoint { x, y, half, title }
        };
        let points: Vec<PlotPoint> = self.points.iter().map(point).collect();
        let low = points.iter().map(|point| point.y).fold(f64::INFINITY, f64::min);
        let high = points.iter().map(|point| point.y).fold(0.0, f64::max);
        let right = points.iter().map(|point| point.x).fold(1.0, f64::max);
        let line = points.iter().map(|point| (point.x, point.y)).collect();
        Plot {
            title: format!("{}: {}", self.name, kind.in_words()),
            x: Axis::linear("footprint, × input", 0.3, right * 1.05),
            y: Axis::log("queries per second", low / 1.5, high * 1.5),
            marks: vec![
                Mark::Line { class: "ours", label: "shard".to_owned(), points: line },
                Mark::Points { class: "ours", shape: Shape::Disc, label: String::new(), points },
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    fn dataset() -> Dataset {
        let point = |rates: [u32; 2], footprint: f64, speed: f64| {
            let per_s = Kind::ALL.map(|kind| (kind, vec![speed, speed * 2.0])).to_vec();
            let (sweep_cpu_s, ceiling_per_s) = (vec![1.0; usize::from(rates[0] > 0)], vec![1e7; 2]);
            Point { rates, footprint, sweep_cpu_s, ceiling_per_s, per_s }
        };
        let points = vec![
            point([0, 0], 0.39, 10.0),
            point([32, 32], 0.6, 40.0),
            // Larger and slower: not what would be kept.
            point([16, 32], 0.7, 36.0),
            point([8, 8], 1.2, 90.0),
        ];
        Dataset { name: "text".to_owned(), bytes: 1000, base: [256, 256], points }
    }

    #[test]
    fn a_gain_is_that_of_the_best_steps_within_both_footprints() {
        let dataset = dataset();
        assert_eq!(dataset.gain(0.5, 0.75, Kind::Mix), (vec![4.0, 4.0], [0.39, 0.6]));
        assert_eq!(dataset.gain(0.5, 1.3, Kind::Search), (vec![9.0, 9.0], [0.39, 1.2]));
        // No footprint is so small: the gain is from the smallest.
        assert_eq!(dataset.gain(0.3, 0.75, Kind::Mix).1, [0.39, 0.6]);
    }

    #[test]
    fn what_is_claimed_is_judged_by_what_was_measured() {
        let claims: Vec<Claim> = dataset().claims().into_iter().map(Claim::judged).collect();
        let of = |what: &str| claims.iter().find(|claim| claim.name.contains(what)).unwrap();
        let gain = of("searches and extracts of 64 B, gain from 0.4 to 0.8");
        assert_eq!(gain.verdict, Some(Verdict::Fails), "4 is not 5");
        assert_eq!(of("gain from 0.5 to 0.75").verdict, None, "shown, not claimed");
        let step = of("the worst");
        assert!(
            (step.value - 0.9).abs() < 1e-9 && step.verdict == Some(Verdict::Fails),
            "{step:?}"
        );
        assert_eq!(of("smallest footprint").value, 0.39);
        let text = dataset().text();
        assert!(text.contains("SA down to 32") && text.contains("no layers"), "{text}");
        assert!(dataset().svg().contains("text: count"));
    }

    #[test]
    fn results_are_read_as_they_are_written() {
        let text = r#"{"datasets": [{"name": "a", "bytes": 5, "base": [64, 64], "points": [
            {"rates": [0, 0], "bytes": 9, "footprint": 1.8, "sweep_cpu_s": [], "ceiling_per_s": [1.0],
             "per_s": [["search", [1.0]], ["extract-64", [2.0]], ["mix", [3.0]]]}]}]}"#;
        let measured: CurveFile = serde_json::from_str(text).unwrap();
        assert_eq!(measured.datasets[0].points[0].rounds(Kind::Extract64), [2.0]);
        assert_eq!(measured.datasets[0].points[0].rounds(Kind::Mix), [3.0]);
    }
}
