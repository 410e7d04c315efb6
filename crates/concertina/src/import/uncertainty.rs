//! How coarse an imported run is, and what that does to the shares that a fit reads.

use model::window::{Histogram, Operation};
use serde::{Deserialize, Serialize};

use crate::record::Run;
use crate::report::Observed;

/// What an imported run says of its source: `imported` in the `asked` table of its `run.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Imported {
    /// Resolution of a response time, seconds: it is known to this on either side. 0 if only
    /// [`Imported::edges_s`] are.
    #[serde(default)]
    pub resolution_s: f64,
    /// Resolution of the time of completion, seconds.
    #[serde(default)]
    pub clock_s: f64,
    /// Bounds of the buckets in which responses were counted, seconds, ascending.
    #[serde(default)]
    pub edges_s: Vec<f64>,
    /// What was assumed or left out, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Imported {
    /// What a run says; `None` if it was not imported.
    pub fn of(run: &Run) -> Option<Imported> {
        if run.kind != "import" {
            return None;
        }
        run.asked.get("imported")?.clone().try_into().ok()
    }

    /// The share of `times` within `t_s`, at least and at most, as far as the source says.
    fn bounds(&self, times: &Histogram, t_s: f64) -> Option<(f64, f64)> {
        let (low, high) = if self.edges_s.is_empty() {
            (t_s - self.resolution_s, t_s + self.resolution_s)
        } else {
            // A hair of slack: a bound is a decimal number of seconds, an objective of milliseconds.
            let (below, above) = (t_s * (1.0 + 1e-9), t_s * (1.0 - 1e-9));
            let low = self.edges_s.iter().rev().find(|e| **e <= below);
            let high = self.edges_s.iter().find(|e| **e >= above);
            (low.copied().unwrap_or(0.0), high.copied().unwrap_or(f64::INFINITY))
        };
        let share = |t: f64| {
            if t.is_infinite() { Some(1.0) } else { times.share_within(t.max(0.0)) }
        };
        Some((share(low)?, share(high)?))
    }
}

/// What the coarseness of imported runs does to a fit, in sentences, for its warnings: by how many points
/// it can shift each share of responses within an objective, the worst of the steps; and what was assumed.
///
/// Shares move by no more than what lies within a resolution (or a bucket) of the objective; steps with
/// windows of a load generator rest on these, and are passed over.
pub fn warnings(observed: &Observed) -> Vec<String> {
    let mut all = Vec::new();
    for (index, run) in observed.runs.iter().enumerate() {
        let Some(imported) = Imported::of(&run.run) else { continue };
        let name = crate::report::steps::run_name(run);
        let mut worst: Vec<(f64, f64)> = Vec::new();
        for step in observed.steps.iter().filter(|s| s.run == index && s.windows.load.is_empty()) {
            let mut reads = Histogram::default();
            let times = step.windows.gateway.iter().flat_map(|w| &w.times);
            times.filter(|t| t.operation == Operation::Get).for_each(|t| reads.merge(&t.response));
            for &objective in step.windows.gateway.first().map_or(&[][..], |w| &w.objectives_ms) {
                let t_s = objective * 1e-3;
                let share = reads.share_within(t_s);
                let (Some(share), Some((low, high))) = (share, imported.bounds(&reads, t_s)) else {
                    continue;
                };
                let shift = (share - low).max(high - share) * 100.0;
                match worst.iter_mut().find(|(o, _)| *o == objective) {
                    Some(known) => known.1 = known.1.max(shift),
                    None => worst.push((objective, shift)),
                }
            }
        }
        if !worst.is_empty() {
            let known = if imported.edges_s.is_empty() {
                format!("known to ±{} ms", imported.resolution_s * 1e3)
            } else {
                "known by bucket only".to_owned()
            };
            let shifts: Vec<_> =
                worst.iter().map(|(o, s)| format!("{s:.1} points at {o} ms")).collect();
            all.push(format!(
                "Imported run {name}: response times are {known}, which can shift the measured share \
                 within an objective by up to {}.",
                shifts.join(", ")
            ));
        }
        all.extend(imported.notes.iter().map(|note| format!("Imported run {name}: {note}")));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_by_the_resolution() {
        let mut times = Histogram::default();
        (1..=1000).for_each(|ms| times.record(ms * 100_000));
        let ticks = Imported { resolution_s: 0.001, ..Imported::default() };
        let (low, high) = ticks.bounds(&times, 0.02).unwrap();
        assert!((low - 0.19).abs() < 2e-3 && (high - 0.21).abs() < 2e-3, "{low} {high}");
        let buckets = Imported { edges_s: vec![0.01, 0.05], ..Imported::default() };
        let (low, high) = buckets.bounds(&times, 0.02).unwrap();
        assert!((low - 0.1).abs() < 2e-3 && (high - 0.5).abs() < 2e-3, "{low} {high}");
        let (low, high) = buckets.bounds(&times, 0.05).unwrap();
        assert_eq!(low, high);
        assert_eq!(buckets.bounds(&times, 0.06).unwrap().1, 1.0);
        assert_eq!(ticks.bounds(&Histogram::default(), 1.0), None);
    }
}
