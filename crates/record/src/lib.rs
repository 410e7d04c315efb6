//! The run folder: what a run leaves behind, and how it is read again.
//!
//! A run is a folder of four files. `run.toml` says what was asked, on what machine, with what
//! versions; it is written before the first request. `windows`, `samples` and `host` are JSON, one
//! record on each line, appended as the run goes and flushed each second, so that an unfinished run is
//! readable up to its last second: a last line that was cut off is passed over, a broken line
//! elsewhere is an error with its number. Everything that is shown or fitted is derived from these.

pub mod clock;
mod host;
mod read;
pub mod trace;
pub mod zst;

pub use host::{Awake, Host, HostSampler, Machine};
pub use read::{ReadError, RunFolder};

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use model::window::{Sample, Window};
use serde::{Deserialize, Serialize};

/// Version of the run folder's format.
pub const FORMAT: u32 = 1;

/// `run.toml`: what a run was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// [`FORMAT`].
    pub format: u32,
    /// Version of the program that wrote it.
    pub version: String,
    /// What wrote it: `load` or `serve`.
    pub kind: String,
    /// Start, in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// The laboratory conditions it ran under, in words (profiled devices, a generated origin); `None`
    /// where everything was real. Shown in every output that is derived from the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub laboratory: Option<String>,
    /// The machine.
    pub machine: Machine,
    /// What was asked: the configuration or the load, as its own table.
    #[serde(default)]
    pub asked: toml::Table,
}

/// A steady interval of a load: one step of a sweep, after its warm-up.
///
/// Written to the `steps` file of a load's run folder when the step is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its place in the sweep, from 0.
    pub index: usize,
    /// The rate that was asked for, requests/s; `None` in a closed loop.
    pub rate: Option<f64>,
    /// The number of clients of a closed loop.
    pub clients: Option<usize>,
    /// When measuring began (after the warm-up), in microseconds since 1970-01-01 UTC.
    pub start_unix_us: u64,
    /// When measuring ended.
    pub end_unix_us: u64,
    /// What the generator says of itself: lateness, drops, its CPU.
    pub generator: Generator,
}

/// Whether the load generator was the bottleneck, by its own account.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Generator {
    /// Mean of actual minus intended send time, microseconds.
    pub lateness_us_mean: f64,
    /// 99 % of requests were sent at most this late, microseconds.
    pub lateness_us_p99: f64,
    /// The latest, microseconds.
    pub lateness_us_max: f64,
    /// Arrivals that were dropped because too many requests were outstanding.
    pub dropped: u64,
    /// Most requests outstanding at once.
    pub outstanding_max: u64,
    /// Share of one core that the generator used.
    pub cpu: f64,
    /// What was wrong with it, in words; empty if nothing was.
    pub complaints: Vec<String>,
}

/// Writes a run folder.
pub struct RunWriter {
    dir: PathBuf,
    windows: BufWriter<File>,
    samples: BufWriter<File>,
    host: BufWriter<File>,
    steps: BufWriter<File>,
}

impl RunWriter {
    /// Makes the folder and its `run.toml`. A folder that holds a run already is an error: runs are
    /// never overwritten.
    pub fn create(dir: &Path, run: &Run) -> anyhow::Result<RunWriter> {
        let shown = dir.display();
        fs::create_dir_all(dir).with_context(|| format!("cannot make the run folder {shown}"))?;
        if dir.join("run.toml").exists() {
            anyhow::bail!("{shown} holds a run already; name another folder, or remove it first");
        }
        let text = toml::to_string(run).context("run.toml cannot be written as TOML")?;
        fs::write(dir.join("run.toml"), text)
            .with_context(|| format!("cannot write {shown}/run.toml"))?;
        let open = |name: &str| -> anyhow::Result<BufWriter<File>> {
            let file = File::create(dir.join(name))
                .with_context(|| format!("cannot write {shown}/{name}"))?;
            Ok(BufWriter::new(file))
        };
        Ok(RunWriter {
            dir: dir.to_owned(),
            windows: open("windows")?,
            samples: open("samples")?,
            host: open("host")?,
            steps: open("steps")?,
        })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Appends windows.
    pub fn windows(&mut self, windows: &[Window]) -> anyhow::Result<()> {
        append(&mut self.windows, windows, &self.dir, "windows")
    }

    /// Appends samples.
    pub fn samples(&mut self, samples: &[Sample]) -> anyhow::Result<()> {
        append(&mut self.samples, samples, &self.dir, "samples")
    }

    /// Appends what the host did in a second.
    pub fn host(&mut self, host: &Host) -> anyhow::Result<()> {
        append(&mut self.host, std::slice::from_ref(host), &self.dir, "host")
    }

    /// Appends a step that is over.
    pub fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        append(&mut self.steps, std::slice::from_ref(step), &self.dir, "steps")
    }

    /// Hands what was appended to the operating system. Called each second, and at the end.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        for file in [&mut self.windows, &mut self.samples, &mut self.host, &mut self.steps] {
            file.flush().with_context(|| {
                format!("cannot write to the run folder {}", self.dir.display())
            })?;
        }
        Ok(())
    }
}

fn append<T: Serialize>(
    file: &mut BufWriter<File>,
    records: &[T],
    dir: &Path,
    name: &str,
) -> anyhow::Result<()> {
    for record in records {
        serde_json::to_writer(&mut *file, record)
            .map_err(anyhow::Error::from)
            .and_then(|()| Ok(file.write_all(b"\n")?))
            .with_context(|| format!("cannot write {}/{name}", dir.display()))?;
    }
    Ok(())
}
