//! The limited resolution of imported runs, and its effect on the shares that a fit uses.

use ground::window::{Histogram, Operation, Outcome, Window};
use model::Coarse;
use serde::{Deserialize, Serialize};

use record::Run;

use crate::objective::{digits, time};
use crate::steps::Observed;

/// Properties of an imported run's source, stored as `imported` in the `asked` table of its
/// `run.toml`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Imported {
    /// Resolution of a response time, seconds: the true time lies within this on either side. 0 if
    /// only
    /// [`Imported::edges_s`] are.
    #[serde(default)]
    pub resolution_s: f64,
    /// Resolution of the time of completion, seconds; for Prometheus, the time between samples.
    #[serde(default)]
    pub clock_s: f64,
    /// Resolution of the times of devices' windows, seconds; 0 if there are no devices.
    #[serde(default)]
    pub device_clock_s: f64,
    /// Resolution of the utilisation of devices, a share; 0 if there are no devices.
    #[serde(default)]
    pub utilisation_resolution: f64,
    /// Upper bounds of the buckets in which responses were counted, seconds, ascending.
    #[serde(default)]
    pub edges_s: Vec<f64>,
    /// Assumptions and omissions, as sentences.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Imported {
    /// Reads the properties from a run; `None` if it was not imported.
    pub(crate) fn from_run(run: &Run) -> Option<Imported> {
        if run.kind != "import" {
            return None;
        }
        run.asked.get("imported")?.clone().try_into().ok()
    }

    /// The largest possible error of the mean of `times`, seconds: half a tick if the source rounds
    /// or truncates; half of each bucket if all its responses lie at one end.
    fn mean_off(&self, times: &Histogram) -> f64 {
        if times.is_empty() {
            return 0.0;
        }
        if self.edges_s.is_empty() {
            return self.resolution_s / 2.0;
        }
        let (mut off, mut low, mut below) = (0.0, 0.0, 0.0);
        for &edge in &self.edges_s {
            // Slightly above the edge, so that values placed exactly at it count as below.
            let share = times.share_within(edge * (1.0 + 1e-9)).unwrap_or(below);
            off += (share - below) * (edge - low) / 2.0;
            (low, below) = (edge, share);
        }
        // Responses past the last bound were placed at it: assume at least the same error again.
        off + (1.0 - below) * low
    }

    /// The largest possible error of the devices' mean service time, seconds: half a step of the
    /// utilisation divided by the reads in a second.
    fn service_off<'a>(&self, devices: impl Iterator<Item = &'a Vec<Window>>) -> f64 {
        let sum = |sum: (f64, f64), w: &Window| (sum.0 + w.completions as f64, sum.1 + w.length_s);
        let (reads, seconds) = devices.flatten().fold((0.0, 0.0), sum);
        if reads > 0.0 { self.utilisation_resolution / 2.0 * seconds / reads } else { 0.0 }
    }

    /// The smallest and largest share of `times` within `t_s` that the source's resolution allows.
    fn bounds(&self, times: &Histogram, t_s: f64) -> Option<(f64, f64)> {
        let (low, high) = if self.edges_s.is_empty() {
            (t_s - self.resolution_s, t_s + self.resolution_s)
        } else {
            // Allow for rounding: a bound is a decimal number of seconds, an objective one of
            // milliseconds.
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

/// The uncertainty of fitted parameters that comes from imported runs, whatever was counted: from
/// the resolution of the clients' response times, of the devices' utilisation, and of the clocks
/// that assign windows to steps. Runs that were not imported add none, and neither do steps with
/// windows of a load generator, which are fitted to those windows.
pub(crate) fn coarse(observed: &Observed) -> Coarse {
    let mut coarse = Coarse::default();
    let fitted = || observed.steps.iter().filter(|step| !step.held_out);
    for (index, run) in observed.runs.iter().enumerate() {
        let Some(imported) = Imported::from_run(&run.run) else { continue };
        let mut all = Histogram::default();
        let [mut memory, mut device, mut other] = [(); 3].map(|()| Histogram::default());
        let (mut seconds, mut steps) = (0.0, 0.0);
        for step in fitted().filter(|s| s.run == index && s.windows.load.is_empty()) {
            let times = step.windows.gateway.iter().flat_map(|w| &w.times);
            for times in times.filter(|t| t.operation == Operation::Get) {
                let part = match times.outcome {
                    Outcome::Memory => &mut memory,
                    outcome if outcome.is_device() => &mut device,
                    _ => &mut other,
                };
                part.merge(&times.response);
                all.merge(&times.response);
            }
            let length_us = step.step.end_unix_us.saturating_sub(step.step.start_unix_us);
            (seconds, steps) = (seconds + length_us as f64 * 1e-6, steps + 1.0);
        }
        let most = |known: &mut f64, size: f64| {
            *known = known.max(if size.is_finite() { size } else { 0.0 });
        };
        most(&mut coarse.memory_s, imported.mean_off(&memory));
        most(&mut coarse.device_s, imported.mean_off(&device));
        most(&mut coarse.other_s, imported.mean_off(&other));
        // The published model uses the share answered in less than a millisecond.
        let bounds = imported.bounds(&all, 1e-3).zip(all.share_within(1e-3));
        if let Some(((low, high), share)) = bounds {
            most(&mut coarse.fast, (share - low).max(high - share).clamp(0.0, 1.0));
        }
        // A tick at either end of a step belongs to the load before or after it, which may be any
        // load.
        let clock_s = imported.clock_s.max(imported.device_clock_s);
        most(&mut coarse.reads, (clock_s * steps / seconds.max(1e-9)).min(1.0));
        most(
            &mut coarse.service_s,
            imported.service_off(fitted().flat_map(|s| &s.windows.devices)),
        );
    }
    coarse
}

/// Warnings about the effect of limited resolution on a fit: by how many points it can shift the
/// share of responses within each objective (the worst of the steps), and the assumptions of the
/// import.
///
/// A share can move by at most the responses within one resolution (or bucket) of the objective.
/// Steps with windows of a load generator use those windows and are skipped.
pub(crate) fn warnings(observed: &Observed) -> Vec<String> {
    let mut all = Vec::new();
    for (index, run) in observed.runs.iter().enumerate() {
        let Some(imported) = Imported::from_run(&run.run) else { continue };
        let name = crate::steps::run_name(run);
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
                format!("known to ±{}", time(imported.resolution_s))
            } else {
                "known by bucket only".to_owned()
            };
            let shifts: Vec<_> = worst
                .iter()
                .map(|(o, s)| format!("{} points at {}", digits(*s, 2), time(o * 1e-3)))
                .collect();
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

    #[test]
    fn a_mean_is_off_by_half_a_tick_or_half_its_buckets() {
        let mut times = Histogram::default();
        (1..=1000).for_each(|ms| times.record(ms * 100_000));
        let ticks = Imported { resolution_s: 0.002, ..Imported::default() };
        assert_eq!(ticks.mean_off(&times), 0.001);
        assert_eq!(ticks.mean_off(&Histogram::default()), 0.0);
        // A tenth in a bucket of 10 ms, four tenths in one of 40, and half past 50 ms.
        let buckets = Imported { edges_s: vec![0.01, 0.05], ..Imported::default() };
        let off = 0.1 * 0.005 + 0.4 * 0.02 + 0.5 * 0.05;
        assert!(
            (buckets.mean_off(&times) / off - 1.0).abs() < 0.01,
            "{}",
            buckets.mean_off(&times)
        );
        // 200 reads/s, a tick of 0.01 % of a second: half of 0.1 ms over 200.
        let mut window = Window::new("device/0", 0, 1, &[]);
        (window.length_s, window.completions) = (10.0, 2000);
        let busy = Imported { utilisation_resolution: 1e-4, ..Imported::default() };
        assert!((busy.service_off([vec![window]].iter()) - 2.5e-7).abs() < 1e-15);
        assert_eq!(busy.service_off([].iter()), 0.0);
    }
}
