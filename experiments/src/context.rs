//! What an experiment is given: its folders, its configuration, and where its claims are recorded.

use std::path::PathBuf;

use anyhow::Context as _;

use super::claims::Claim;
use super::provenance::Provenance;

/// What an experiment is given.
pub(super) struct Context {
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
    /// `run.json`: rounds, attempts and versions are told to it.
    pub provenance: Provenance,
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
    pub fn record(&self, claims: &[Claim]) -> anyhow::Result<Vec<Claim>> {
        let claims: Vec<Claim> = claims.iter().cloned().map(Claim::judged).collect();
        let path = self.out.join("claims.json");
        std::fs::write(&path, serde_json::to_string_pretty(&claims)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(claims)
    }

    /// Shows progress.
    pub fn say(&self, what: impl AsRef<str>) {
        if !self.quiet {
            eprintln!("{}", what.as_ref());
        }
    }
}
