//! What decides on the answer of a plan's formula: the parts of a simulation must agree on it.

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::Context as _;

/// The files and the question of a plan. A study's name is made of how it is shown.
#[derive(Debug)]
#[expect(dead_code, reason = "it is only shown")]
pub(super) struct Sources {
    files: Vec<Option<Vec<u8>>>,
    question: String,
}

impl Sources {
    /// Reads the files that are given.
    ///
    /// # Errors
    /// If one cannot be read.
    pub(super) fn read(
        files: &[Option<&PathBuf>],
        question: &dyn Debug,
    ) -> anyhow::Result<Sources> {
        let read = |path: &PathBuf| {
            record::file::read(path, record::file::TEXT_BYTES_MAX)
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let files = files.iter().map(|path| path.map(read).transpose());
        Ok(Sources {
            files: files.collect::<anyhow::Result<_>>()?,
            question: format!("{question:?}"),
        })
    }
}
