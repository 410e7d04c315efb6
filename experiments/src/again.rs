//! A load that is measured again if other guests of the hypervisor had too much of the processor
//! meanwhile.
//!
//! What they take is missing from the servers, the gateway and the load generator alike, and no model
//! of the service is about it. A load is judged by that alone, before anybody looks at a response time,
//! and each attempt is recorded.

use std::io::Write as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::{Context, lab};
use record::RunFolder;

/// `[again]` of an experiment's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Again {
    /// The largest share of the processor that others may have had, over a whole run.
    stolen_max: f64,
    /// How often a load is measured again at most; then the attempt that lost least counts.
    times_max: u32,
}

impl Again {
    /// Measures a load (see [`lab::load`]) until one attempt was left alone. Adds a line for each
    /// attempt to `attempts.txt` of the record.
    ///
    /// # Errors
    ///
    /// As [`lab::load`], or if the record cannot be written.
    pub fn load(
        &self,
        context: &Context,
        url: &str,
        arguments: &[String],
        out: &Path,
    ) -> anyhow::Result<RunFolder> {
        let mut best: Option<(f64, RunFolder)> = None;
        for attempt in 0..=self.times_max {
            let mut folder = out.as_os_str().to_owned();
            if attempt > 0 {
                folder.push(format!("-again-{attempt}"));
            }
            let mut run = lab::load(url, arguments, Path::new(&folder), context.quiet)?;
            run.samples = Vec::new();
            let stolen = stolen(&run);
            self.record(context, out, attempt, stolen)?;
            if best.as_ref().is_none_or(|(least, _)| stolen < *least) {
                best = Some((stolen, run));
            }
            if stolen <= self.stolen_max {
                break;
            }
            context.say(format!(
                "other guests of the hypervisor took {:.0} % of the processor",
                stolen * 100.0
            ));
        }
        best.map(|(_, run)| run).context("a load is measured at least once")
    }

    fn record(
        &self,
        context: &Context,
        out: &Path,
        attempt: u32,
        stolen: f64,
    ) -> anyhow::Result<()> {
        let path = context.out.join("attempts.txt");
        let name = out.strip_prefix(&context.scratch).unwrap_or(out).display();
        let again = if stolen > self.stolen_max { ": disturbed" } else { "" };
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).append(true).open(&path);
        file.and_then(|mut file| {
            let percent = stolen * 100.0;
            writeln!(file, "{name}, attempt {}: {percent:.1} % stolen{again}", attempt + 1)
        })
        .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Mean share of the processor that other guests had during a run.
fn stolen(run: &RunFolder) -> f64 {
    let seconds = run.host.len().max(1) as f64;
    run.host.iter().map(|host| host.cpu_stolen).sum::<f64>() / seconds
}
