//! Texts that `shard-queries-bench` generates or unpacks.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::lab;

/// Where texts come from.
pub struct Texts {
    program: PathBuf,
    folder: PathBuf,
}

impl Texts {
    /// The texts that `config.toml` of this folder describes, which is that of `experiments/shard-queries`.
    ///
    /// # Errors
    /// If `shard-queries-bench` was not built.
    pub fn in_folder(folder: PathBuf) -> anyhow::Result<Texts> {
        Ok(Texts { program: lab::helper("shard-queries-bench")?, folder })
    }

    /// Writes a text to the file `out` and returns its bytes. `what` is the program's argument that names the text, like
    /// `--lineitem-bytes=30000000`.
    ///
    /// # Errors
    /// If the program fails.
    pub fn write(&self, what: &str, out: &Path) -> anyhow::Result<u64> {
        let mut command = Command::new(&self.program);
        let status = command.arg("text").arg(&self.folder).arg("--out").arg(out).arg(what).status();
        let status = status.with_context(|| format!("cannot start {}", self.program.display()))?;
        ensure!(status.success(), "{} ended with {status}", self.program.display());
        Ok(std::fs::metadata(out)?.len())
    }
}
