//! Reads run folders.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ground::window::{Sample, Window};
use serde::de::DeserializeOwned;

use super::error::Error;
use super::host::Host;
use super::run::{FORMAT, Run, Step};
use super::times::Times;

/// A run folder, read into memory.
#[derive(Clone, Debug)]
pub struct RunFolder {
    /// The folder.
    pub dir: PathBuf,
    /// The description of the run.
    pub run: Run,
    /// The windows, in the order written.
    pub windows: Vec<Window>,
    /// The samples.
    pub samples: Vec<Sample>,
    /// When requests were sent and answered, if that was recorded.
    pub times: Vec<Times>,
    /// The host's activity in each second.
    pub host: Vec<Host>,
    /// The completed steps; empty for a server's run.
    pub steps: Vec<Step>,
}

impl RunFolder {
    /// Reads a run folder. Files other than `run.toml` may be missing (if the run was killed
    /// early); an incomplete last line is ignored.
    pub fn read(dir: &Path) -> Result<RunFolder, Error> {
        let path = dir.join("run.toml");
        let text = crate::file::read_text(&path).map_err(|source| {
            let reason = match source.kind() {
                ErrorKind::NotADirectory => "it is a file",
                ErrorKind::NotFound if dir.is_dir() => "it has no run.toml",
                ErrorKind::NotFound => "it does not exist",
                _ => return Error::File { path: path.clone(), source },
            };
            Error::NotARun { path: dir.to_owned(), reason }
        })?;
        let run: Run = toml::from_str(&text)
            .map_err(|e| Error::Run { path: path.clone(), reason: e.message().to_owned() })?;
        if run.format != FORMAT {
            return Err(Error::Run {
                path,
                reason: format!("format {}, but this version reads format {FORMAT}", run.format),
            });
        }
        Ok(RunFolder {
            dir: dir.to_owned(),
            run,
            windows: lines(&dir.join("windows"))?,
            samples: lines(&dir.join("samples"))?,
            times: lines(&dir.join("times"))?,
            host: lines(&dir.join("host"))?,
            steps: lines(&dir.join("steps"))?,
        })
    }
}

fn lines<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, Error> {
    let bytes = match crate::file::read(path, crate::file::RUN_BYTES_MAX) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::File { path: path.to_owned(), source }),
    };
    // An incomplete last line was being written when the run ended.
    let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |end| end + 1);
    let mut records = Vec::new();
    for (index, line) in bytes.get(..whole).unwrap_or_default().split(|&b| b == b'\n').enumerate() {
        if line.is_empty() {
            continue;
        }
        let record = serde_json::from_slice(line).map_err(|e| Error::Line {
            path: path.to_owned(),
            line: index as u64 + 1,
            reason: e.to_string(),
        })?;
        records.push(record);
    }
    Ok(records)
}
