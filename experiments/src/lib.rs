//! Experiments: one module for each, a registry, and a runner that judges their claims.
//!
//! An experiment is a folder `experiments/NAME` with a `config.toml` and a module here that
//! measures what the configuration lists. The module gives figures; only the runner gives verdicts,
//! by the one rule in [`claims`]. A prediction comes from a model that was fitted to other runs
//! than the ones it is compared with.

mod accuracy;
mod again;
pub mod asl_live;
mod asl_tables;
mod att;
mod blowfish;
pub mod claims;
mod context;
mod covered;
mod demos;
mod foreign;
mod hit_ratios;
pub mod judge;
mod kill;
mod lab;
mod lastfm;
mod live_prediction;
mod machine;
mod machines;
pub mod marks;
mod memory_group;
mod model_speed;
mod network;
mod nginx;
mod policies;
mod policies_served;
pub mod provenance;
mod proxy;
mod queue_laws;
mod quota;
pub mod reproduce;
mod requests_needed;
mod s3;
mod serve_objects;
mod shard_build;
mod shard_curve;
mod shard_layers;
pub mod shard_peers;
mod shard_queries;
mod shard_served;
mod slices;
mod spotify_cluster;
mod spotify_single;
mod streams;
mod texts;
pub mod thief;
mod tiered_response;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

pub use claims::{Claim, Goal, Peer, Verdict};
use context::Context;
pub use machine::TooSmall;
use provenance::Provenance;

/// The options of a run.
pub struct Options {
    /// The experiment's folder, with `config.toml`.
    pub folder: PathBuf,
    /// Where raw results and plots go, an empty folder; `None`: a new folder in the experiment's
    /// `record`.
    pub out: Option<PathBuf>,
    /// Where run folders, data and logs go; large, and not part of the record.
    pub scratch: PathBuf,
    /// Fewer points, at full width and with the same goals, in at most five minutes.
    pub short: bool,
    /// Shows nothing of the progress.
    pub quiet: bool,
}

type Experiment = fn(&Context) -> anyhow::Result<Vec<Claim>>;

/// Every experiment by the name of its folder.
const EXPERIMENTS: &[(&str, Experiment)] = &[
    ("asl-live", asl_live::run),
    ("asl-tables", asl_tables::run),
    ("att", att::run),
    ("blowfish-gradual", blowfish::gradual::run),
    ("blowfish-recovery", blowfish::recovery::run),
    ("blowfish-replication", blowfish::replication::run),
    ("blowfish-scheduling", blowfish::scheduling::run),
    ("blowfish-served", shard_served::spike::run),
    ("foreign", foreign::run),
    ("kill", kill::run),
    ("hit-ratios", hit_ratios::run),
    ("lastfm", lastfm::run),
    ("loop", blowfish::looped::run),
    ("live-prediction", live_prediction::run),
    ("machines", machines::run),
    ("model-speed", model_speed::run),
    ("nginx", nginx::run),
    ("policies", policies::run),
    ("policies-served", policies_served::run),
    ("proxy", proxy::run),
    ("queue-laws", queue_laws::run),
    ("requests-needed", requests_needed::run),
    ("s3", s3::run),
    ("serve-objects", serve_objects::run),
    ("shard-build", shard_build::run),
    ("shard-curve", shard_curve::run),
    ("shard-layers", shard_layers::run),
    ("shard-peers", shard_peers::run),
    ("shard-queries", shard_queries::run),
    ("shard-served", shard_served::run),
    ("spotify-cluster", spotify_cluster::run),
    ("spotify-single", spotify_single::run),
    ("streams", streams::run),
    ("thief", demos::run),
    ("tiered-response", tiered_response::run),
];

/// A run that came to its end.
pub struct Finished {
    /// The claims with their verdicts.
    pub claims: Vec<Claim>,
    /// Where the results are.
    pub out: PathBuf,
}

impl Finished {
    /// The worst verdict of the claims: a failure, then what is not shown. Figures without a goal
    /// do not count.
    pub fn verdict(&self) -> Verdict {
        let has = |verdict| self.claims.iter().any(|claim| claim.verdict == Some(verdict));
        match (has(Verdict::Fails), has(Verdict::NotShown)) {
            (true, _) => Verdict::Fails,
            (false, true) => Verdict::NotShown,
            (false, false) => Verdict::Holds,
        }
    }
}

/// Runs the experiment of a folder; writes `claims.json` and `run.json`.
///
/// # Errors
/// If the folder is not that of an experiment, a file could not be read or written, a program could
/// not be started, or the machine is too small ([`TooSmall`]).
pub fn run(options: Options) -> anyhow::Result<Finished> {
    let name = name_of(&options.folder)?;
    let Some((_, experiment)) = EXPERIMENTS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = EXPERIMENTS.iter().map(|(known, _)| *known).collect();
        bail!("unknown experiment {name:?}; known are: {}", known.join(", "));
    };
    let Options { folder, out, scratch, short, quiet } = options;
    let out = match out {
        Some(out) => provenance::chosen_folder(&out).map(|()| out)?,
        None => provenance::new_folder(&folder.join("record"), short)?,
    };
    claim_scratch(&scratch)?;
    let provenance = Provenance::begin(&folder, &name, &out, short)?;
    let context = Context { folder, out, scratch, short, quiet, provenance };
    match experiment(&context).and_then(|claims| context.record(&claims)) {
        Ok(claims) => {
            let finished = Finished { claims, out: context.out };
            context.provenance.end(finished.verdict().in_words())?;
            Ok(finished)
        }
        Err(error) => {
            let too_small = error.downcast_ref::<TooSmall>().is_some();
            let outcome = if too_small { "too small" } else { "error" };
            context.provenance.end(&format!("{outcome}: {error:#}"))?;
            Err(error)
        }
    }
}

/// The file that tells the folder for data and logs from others.
const SCRATCH: &str = ".experiments";

/// Makes the folder for data and logs. Experiments remove and overwrite in it what an attempt before left, so one that is
/// not empty must be of an earlier run.
fn claim_scratch(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {shown}"))?;
    if folder.join(SCRATCH).is_file() {
        return Ok(());
    }
    let mut entries = std::fs::read_dir(folder).with_context(|| format!("cannot list {shown}"))?;
    if let Some(entry) = entries.next().transpose()? {
        let name = entry.file_name();
        bail!("{shown} holds {name:?} and no {SCRATCH}; name an empty or a new folder (--scratch)");
    }
    std::fs::File::create_new(folder.join(SCRATCH))
        .map(|_| ())
        .with_context(|| format!("cannot write {shown}/{SCRATCH}"))
}

fn name_of(folder: &Path) -> anyhow::Result<String> {
    let real = folder
        .canonicalize()
        .with_context(|| format!("there is no experiment folder {}", folder.display()))?;
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
    name.with_context(|| format!("{} is not the folder of an experiment", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_empty_folder_or_an_earlier_one_is_for_data_and_logs() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jpg"), "precious").unwrap();
        let error = claim_scratch(folder.path()).unwrap_err().to_string();
        assert!(error.contains("a.jpg"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        let new = folder.path().join("new");
        claim_scratch(&new).unwrap();
        std::fs::write(new.join("data"), "").unwrap();
        claim_scratch(&new).unwrap();
    }
}
