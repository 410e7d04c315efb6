//! What a shard answers at each footprint, as `experiments/shard-curve` measured it, and how fast queries fill a layer,
//! as `experiments/shard-layers` did.

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

/// A layer that makes a shard faster by less is left out.
const GAIN_MIN: f64 = 1.1;

/// A footprint of a shard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Bytes held over bytes of the input.
    pub footprint: f64,
    /// Seconds of processor time for a search, on average.
    pub search_s: f64,
    /// The same for an extract of 64 B.
    pub extract_s: f64,
    /// Seconds of processor time to make this step's layer from the step before; 0 for the first.
    pub sweep_s: f64,
}

impl Step {
    /// Searches and extracts in equal numbers, per second.
    pub fn rate(&self) -> f64 {
        2.0 / (self.search_s + self.extract_s)
    }
}

/// The steps of a shard from its least footprint up, each at least a tenth faster than the one before.
#[derive(Clone, Debug)]
pub struct Curve {
    pub steps: Vec<Step>,
    /// Bytes of the input that was measured.
    pub bytes: f64,
}

#[derive(Deserialize)]
struct File {
    datasets: Vec<Dataset>,
}

#[derive(Deserialize)]
struct Dataset {
    name: String,
    bytes: f64,
    points: Vec<Point>,
}

#[derive(Deserialize)]
struct Point {
    footprint: f64,
    sweep_cpu_s: Vec<f64>,
    per_s: Vec<(String, Vec<f64>)>,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

impl Curve {
    /// Reads the curve of a text from a record of `experiments/shard-curve`.
    ///
    /// # Errors
    /// If the file is not such a record, or the text is not in it.
    pub fn read(path: &Path, name: &str) -> anyhow::Result<Curve> {
        let file: File = read(path)?;
        let dataset = file.datasets.into_iter().find(|d| d.name == name);
        let dataset =
            dataset.with_context(|| format!("{} has no curve of {name}", path.display()))?;
        let of = |point: &Point, kind: &str| {
            let rates = point.per_s.iter().find(|(named, _)| named == kind);
            rates.map(|(_, rates)| 1.0 / mean(rates)).context("a point lacks a kind of query")
        };
        let mut all = Vec::new();
        for point in &dataset.points {
            all.push(Step {
                footprint: point.footprint,
                search_s: of(point, "search")?,
                extract_s: of(point, "extract-64")?,
                sweep_s: mean(&point.sweep_cpu_s),
            });
        }
        Curve::from_steps(all, dataset.bytes)
    }

    /// The curve of all steps that gain enough.
    ///
    /// # Errors
    /// If there is none, or footprints do not ascend.
    pub fn from_steps(all: Vec<Step>, bytes: f64) -> anyhow::Result<Curve> {
        ensure!(all.is_sorted_by(|a, b| a.footprint < b.footprint), "footprints do not ascend");
        let mut steps: Vec<Step> = Vec::new();
        for step in all {
            if steps.last().is_none_or(|last| step.rate() >= GAIN_MIN * last.rate()) {
                steps.push(step);
            }
        }
        ensure!(!steps.is_empty(), "the curve is empty");
        Ok(Curve { steps, bytes })
    }

    /// The curve with its rates changed so that they rise by `gain` from one footprint to another, evenly on a
    /// logarithmic scale, as a published figure has it; services take as long at the first step as before.
    pub fn bent(&self, from: f64, to: f64, gain: f64) -> Curve {
        let first = self.steps.first().copied();
        let bend = |step: &Step| {
            let first = first.unwrap_or(*step);
            let speed = gain.powf((step.footprint - first.footprint) / (to - from));
            Step { search_s: first.search_s / speed, extract_s: first.extract_s / speed, ..*step }
        };
        Curve { steps: self.steps.iter().map(bend).collect(), bytes: self.bytes }
    }

    /// The step of the largest footprint that is at most this; the first if none is.
    pub fn at_most(&self, footprint: f64) -> usize {
        self.steps.iter().rposition(|step| step.footprint <= footprint).unwrap_or(0)
    }

    /// The step that answers most.
    pub fn last(&self) -> usize {
        self.steps.len().saturating_sub(1)
    }
}

/// How much of a layer's gain there is after so many queries since it was marked.
#[derive(Clone, Debug)]
pub struct Learning {
    /// Queries, share of the gain; ascending.
    points: Vec<(f64, f64)>,
}

#[derive(Deserialize)]
struct Layers {
    datasets: Vec<Marked>,
}

#[derive(Deserialize)]
struct Marked {
    name: String,
    curves: Vec<Filled>,
}

#[derive(Deserialize)]
struct Filled {
    query: String,
    window_s: f64,
    before_per_s: Vec<f64>,
    after: Vec<Window>,
    whole_per_s: Vec<f64>,
}

#[derive(Deserialize)]
struct Window {
    per_s: f64,
}

impl Learning {
    /// Reads from a record of `experiments/shard-layers` how searches filled a pair of layers.
    ///
    /// # Errors
    /// If the file is not such a record, or the text is not in it.
    pub fn read(path: &Path, name: &str) -> anyhow::Result<Learning> {
        let file: Layers = read(path)?;
        let marked = file.datasets.into_iter().find(|d| d.name == name);
        let curves = marked.map(|marked| marked.curves).unwrap_or_default();
        let curve = curves.into_iter().find(|curve| curve.query == "search");
        let curve =
            curve.with_context(|| format!("{} has no searches of {name}", path.display()))?;
        let (before, whole) = (mean(&curve.before_per_s), mean(&curve.whole_per_s));
        ensure!(whole > before, "layers gained nothing");
        let mut points = vec![(0.0, 0.0)];
        let (mut asked, mut most) = (0.0, 0.0_f64);
        for window in &curve.after {
            asked += window.per_s * curve.window_s;
            // What a window lost to noise was not forgotten.
            most = most.max(((window.per_s - before) / (whole - before)).clamp(0.0, 1.0));
            points.push((asked, most));
        }
        Ok(Learning { points })
    }

    /// Of points: queries, and the share of the gain; ascending.
    #[cfg(test)]
    pub fn from_points(points: Vec<(f64, f64)>) -> Learning {
        Learning { points }
    }

    /// The share of a layer's gain after so many queries; from the record's end on it stays.
    pub fn share(&self, queries: f64) -> f64 {
        let above = self.points.partition_point(|(asked, _)| *asked <= queries);
        let Some(&(x1, y1)) = self.points.get(above) else {
            return self.points.last().map_or(1.0, |(_, share)| *share);
        };
        let (x0, y0) =
            above.checked_sub(1).and_then(|at| self.points.get(at)).copied().unwrap_or_default();
        y0 + (y1 - y0) * (queries - x0) / (x1 - x0)
    }
}

fn read<T: serde::de::DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A step of so many queries per second.
    pub fn step(footprint: f64, rate: f64) -> Step {
        Step { footprint, search_s: 1.5 / rate, extract_s: 0.5 / rate, sweep_s: 3.0 }
    }

    pub fn curve() -> Curve {
        let of = [(0.4, 100.0), (0.5, 200.0), (0.55, 205.0), (0.7, 400.0), (0.9, 700.0)];
        Curve::from_steps(of.map(|(f, r)| step(f, r)).to_vec(), 1e8).unwrap()
    }

    #[test]
    fn a_step_without_a_gain_is_left_out() {
        let curve = curve();
        assert_eq!(
            curve.steps.iter().map(|s| s.footprint).collect::<Vec<_>>(),
            [0.4, 0.5, 0.7, 0.9]
        );
        assert_eq!((curve.at_most(0.6), curve.at_most(0.1), curve.last()), (1, 0, 3));
        assert!((curve.steps[3].rate() - 700.0).abs() < 1e-9);
        let bent = curve.bent(0.5, 0.75, 20.0);
        let gain = bent.steps[2].rate() / bent.steps[0].rate();
        assert!((gain - 20f64.powf(0.3 / 0.25)).abs() < 1e-9);
    }

    #[test]
    fn a_layer_is_learnt_as_it_was_measured() {
        let learning = Learning { points: vec![(0.0, 0.0), (100.0, 0.5), (300.0, 0.6)] };
        let shares = [0.0, 50.0, 200.0, 900.0].map(|n| learning.share(n));
        for (share, expected) in shares.into_iter().zip([0.0, 0.25, 0.55, 0.6]) {
            assert!((share - expected).abs() < 1e-12, "{shares:?}");
        }
    }

    #[test]
    fn records_are_read() {
        let experiments = Path::new(env!("CARGO_MANIFEST_DIR"));
        let curve =
            experiments.join("shard-curve/record/2026-11-22-intel-xeon-2-cores-whole/curve.json");
        let curve = Curve::read(&curve, "records").unwrap();
        assert!(curve.steps.len() >= 5 && curve.steps[0].footprint < 0.45);
        let layers =
            experiments.join("shard-layers/record/2026-11-23-intel-xeon-2-cores/measurements.json");
        let learning = Learning::read(&layers, "records").unwrap();
        assert!(learning.share(1e5) > 0.2 && learning.share(1e9) < 1.0);
    }
}
