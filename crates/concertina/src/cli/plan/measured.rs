//! What was measured, beside what a plan computes and simulates of a candidate.

use std::path::Path;

use anyhow::{Context as _, ensure};
use report::measured::measure;
use report::steps::ObservedStep;
use report::{Observed, Selection};

/// A measured load that is further from that of the candidate, as a ratio, is said to be another one.
const NEAR: f64 = 0.05;

/// The loads of a candidate, requests/s.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateLoads {
    /// Of all of its servers.
    pub cluster: f64,
    /// Of each of them.
    pub server: f64,
}

/// The step of a run whose load is nearest to that of a candidate.
pub(super) struct NearestStep {
    step: ObservedStep,
    /// Its load, requests/s.
    pub rate: f64,
    /// The candidate's load that it is nearest to, requests/s.
    asked: f64,
    /// Whether that is the load of one server, and not of all.
    is_server: bool,
}

impl NearestStep {
    /// Reads a run folder: of the cluster, or of one server.
    ///
    /// # Errors
    /// If it cannot be read, or has no step with a load.
    pub fn read(run: &Path, loads: CandidateLoads) -> anyhow::Result<NearestStep> {
        ensure!(
            !run.is_file(),
            "--measured takes a run folder, and {0} is a file: make one of a log with `concertina import {0} --out RUN`",
            run.display()
        );
        let selection = Selection { any_queues: true, whole: true, ..Selection::default() };
        let observed = Observed::read(&[run.to_owned()], &selection)?;
        let far = |rate: f64, asked: f64| (rate / asked).ln().abs();
        let of = |step: ObservedStep| {
            let rate = measure(&step, &[]).rate;
            let is_server = far(rate, loads.server) < far(rate, loads.cluster);
            let asked = if is_server { loads.server } else { loads.cluster };
            NearestStep { step, rate, asked, is_server }
        };
        let steps = observed.steps.into_iter().map(of).filter(|found| found.rate > 0.0);
        steps
            .min_by(|a, b| far(a.rate, a.asked).total_cmp(&far(b.rate, b.asked)))
            .with_context(|| format!("{}: no step with requests", run.display()))
    }

    /// The shares of requests that were answered within times in seconds.
    pub fn shares(&self, times_s: &[f64]) -> Vec<f64> {
        let figures = measure(&self.step, times_s);
        figures.within.iter().map(|within| within.share.value).collect()
    }

    /// What a reader must know of it beside the picture.
    pub fn note(&self) -> String {
        let digits = |rate: f64| ground::number::digits(rate, 4);
        let whose = if self.is_server { "one server" } else { "all servers" };
        let (rate, asked) = (digits(self.rate), digits(self.asked));
        match (self.rate / self.asked - 1.0).abs() <= NEAR {
            true => {
                format!("measured: {} at {rate} requests/s, the load of {whose}", self.step.name())
            }
            false => format!(
                "measured: {} at {rate} requests/s, which is not the load of {whose}, {asked} requests/s: \
                 the curves need not agree",
                self.step.name()
            ),
        }
    }
}
