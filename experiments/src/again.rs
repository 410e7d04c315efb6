//! Measures a load again if other guests of the hypervisor had too much of the processor meanwhile.
//!
//! Their time is missing from the servers, the gateway and the load generator alike, and no model
//! of the service accounts for it. A load is judged by that alone, before anybody looks at a
//! response time, and every attempt is recorded, the rejected ones too. If every attempt was
//! disturbed, the claims that rest on the load are not shown.

use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::context::Context;
use super::lab;
use super::marks::{self, Complaint, Mark};
use super::provenance::Round;
use record::RunFolder;

/// `[again]` of an experiment's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Again {
    /// The largest share of the processor that others may have had, over a whole run.
    pub stolen_max: f64,
    /// Number of further attempts at a load, at most; then the attempt that lost least is kept.
    pub times_max: u32,
}

impl Again {
    /// Measures a load (see [`lab::load`]) until one attempt was left alone. Gives the run that was
    /// kept with its marks, where `smallest_s` is the smallest response time that is judged.
    ///
    /// # Errors
    /// As [`lab::load`], or if the record cannot be written.
    pub fn load(
        &self,
        context: &Context,
        url: &str,
        arguments: &[String],
        out: &Path,
        smallest_s: f64,
    ) -> anyhow::Result<(RunFolder, Vec<Mark>)> {
        let step = out.strip_prefix(&context.scratch).unwrap_or(out).display().to_string();
        let mut best: Option<(f64, RunFolder)> = None;
        for attempt in 0..=self.times_max {
            let mut folder = out.as_os_str().to_owned();
            if attempt > 0 {
                folder.push(format!("-again-{attempt}"));
            }
            let mut run = lab::load(url, arguments, Path::new(&folder), context.quiet)?;
            run.samples = Vec::new();
            let stolen = marks::stolen(&run);
            let accepted = stolen <= self.stolen_max;
            let facts = [("stolen", stolen), ("processors_busy", marks::busy(&run))];
            let mut round = Round::new(&step, attempt + 1, accepted).with(facts);
            if !accepted {
                let why = format!("the hypervisor took {:.1} % of the processors", stolen * 100.0);
                context.say(format!("{step}, attempt {}: {why}", attempt + 1));
                round.why = Some(why);
            }
            context.provenance.round(round)?;
            if best.as_ref().is_none_or(|(least, _)| stolen < *least) {
                best = Some((stolen, run));
            }
            if accepted {
                break;
            }
        }
        let (stolen, run) = best.context("a load is measured at least once")?;
        let mut found = marks::of_run(&step, &run, smallest_s);
        if stolen > self.stolen_max {
            let attempts = self.times_max + 1;
            let detail = format!("all of {attempts} attempts were disturbed; the best is kept");
            found.push(Mark::new(&step, Complaint::AttemptsExhausted, detail));
        }
        Ok((run, found))
    }
}
