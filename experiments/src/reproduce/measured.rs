//! Figures that an experiment measured: the claims of its newest record.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

use super::catalogue::MeasurementEntry;
use crate::claims::Claim;
use crate::judge;

/// The claims of a figure, of the newest record that has them.
pub struct Measurement<'a> {
    /// What the catalogue says.
    pub measured: &'a MeasurementEntry,
    /// The record's folder.
    pub record: PathBuf,
    /// The claims, judged.
    pub claims: Vec<Claim>,
}

impl Measurement<'_> {
    /// Finds the newest record of an experiment in which each wanted claim is found.
    ///
    /// # Errors
    /// If no record has them: the experiment was never run, or its claims have other names now.
    pub fn find<'a>(
        measured: &'a MeasurementEntry,
        experiments: &Path,
    ) -> anyhow::Result<Measurement<'a>> {
        let folder = experiments.join(&measured.experiment);
        let records = judge::records(std::slice::from_ref(&folder))?;
        // Names begin with the date. Of one day, a longer name is of a later run.
        for record in records.iter().rev() {
            let judged = judge::judge(record)?;
            let is_wanted = |claim: &Claim| {
                measured.claims.is_empty()
                    || measured.claims.iter().any(|begin| claim.name.starts_with(begin.as_str()))
            };
            let all = judged.claims.into_iter().chain(judged.shown);
            let claims: Vec<Claim> = all.filter(is_wanted).collect();
            let has_each = measured
                .claims
                .iter()
                .all(|begin| claims.iter().any(|claim| claim.name.starts_with(begin.as_str())));
            if has_each && !claims.is_empty() {
                return Ok(Measurement { measured, record: record.clone(), claims });
            }
        }
        ensure!(!records.is_empty(), "{} has no record", folder.display());
        Err(anyhow::anyhow!(
            "no record has claims that begin with each of: {}",
            measured.claims.join("; ")
        ))
        .with_context(|| format!("experiment {}", measured.experiment))
    }
}
