//! Experiments: how a claim is made. One module for each, a registry, and a runner that judges.
//!
//! An experiment is a folder `experiments/NAME` with a `config.toml` that says what is measured and a
//! module here that measures it. The module gives figures; whether a claim holds is judged by the
//! runner alone. Predictions come from the model that was fitted to other runs than the ones measured.

mod accuracy;
mod again;
mod asl_tables;
pub mod claims;
mod kill;
mod lab;
mod memory_group;
mod model_speed;
mod nginx;
mod queue_laws;
mod serve_objects;
mod shard_build;
mod shard_curve;
mod shard_layers;
pub mod shard_peers;
mod shard_queries;
mod shard_served;
mod spotify_cluster;
mod spotify_single;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

pub use claims::{Claim, Goal, Peer};

/// What an experiment is given.
pub struct Context {
    /// Its folder, with `config.toml`.
    pub folder: PathBuf,
    /// Where raw results and plots go.
    pub out: PathBuf,
    /// Where run folders, data and logs go; large, and not part of the record.
    pub scratch: PathBuf,
    /// Fewer points, at full width and with the same goals, in at most five minutes.
    pub short: bool,
    /// Shows nothing of the progress.
    pub quiet: bool,
}

impl Context {
    /// Reads `config.toml` as the experiment's own settings.
    pub fn config<T: serde::de::DeserializeOwned>(&self) -> anyhow::Result<T> {
        let path = self.folder.join("config.toml");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is not as expected", path.display()))
    }

    /// Judges claims and writes them to `claims.json`.
    fn record(&self, claims: &[Claim]) -> anyhow::Result<Vec<Claim>> {
        let claims: Vec<Claim> = claims.iter().cloned().map(Claim::judged).collect();
        let path = self.out.join("claims.json");
        std::fs::write(&path, serde_json::to_string_pretty(&claims)?)
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(claims)
    }

    /// Says what is being done.
    pub fn say(&self, what: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("{}", what.as_ref());
        }
    }
}

type Experiment = fn(&Context) -> anyhow::Result<Vec<Claim>>;

/// Every experiment by the name of its folder.
const EXPERIMENTS: [(&str, Experiment); 14] = [
    ("asl-tables", asl_tables::run),
    ("kill", kill::run),
    ("model-speed", model_speed::run),
    ("nginx", nginx::run),
    ("queue-laws", queue_laws::run),
    ("serve-objects", serve_objects::run),
    ("shard-build", shard_build::run),
    ("shard-curve", shard_curve::run),
    ("shard-layers", shard_layers::run),
    ("shard-peers", shard_peers::run),
    ("shard-queries", shard_queries::run),
    ("shard-served", shard_served::run),
    ("spotify-cluster", spotify_cluster::run),
    ("spotify-single", spotify_single::run),
];

/// Runs the experiment of a folder and writes `claims.json` to `context.out`.
///
/// # Errors
/// If the folder names no experiment, or something that it needs could not be started or read.
pub fn run(context: &Context) -> anyhow::Result<Vec<Claim>> {
    let name = name_of(&context.folder)?;
    let Some((_, experiment)) = EXPERIMENTS.iter().find(|(known, _)| *known == name) else {
        let known: Vec<&str> = EXPERIMENTS.iter().map(|(known, _)| *known).collect();
        bail!("there is no experiment {name:?}; known are: {}", known.join(", "));
    };
    for dir in [&context.out, &context.scratch] {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    }
    let claims = experiment(context)?;
    context.record(&claims)
}

fn name_of(folder: &Path) -> anyhow::Result<String> {
    let real = folder
        .canonicalize()
        .with_context(|| format!("there is no experiment folder {}", folder.display()))?;
    let name = real.file_name().map(|name| name.to_string_lossy().into_owned());
    name.with_context(|| format!("{} names no experiment", folder.display()))
}
