//! One import: a process, its processor time, its memory, and what it made.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::Deserialize;
use shard::format::Reader;

use crate::memory_group::MemoryGroup;
use dataset::manifest::Manifest;

/// Name of the dataset.
const NAME: &str = "built";

/// An import that has ended.
pub struct Import {
    folder: PathBuf,
    /// What it printed.
    pub made: Made,
    /// Processor seconds, in the kernel too.
    pub cpu_s: f64,
    /// Seconds.
    pub wall_s: f64,
    /// The most memory that was resident.
    pub peak_bytes: u64,
}

/// What an import says of itself.
#[derive(Deserialize)]
pub struct Made {
    /// Records that could not be read.
    pub bad: u64,
    /// Bytes read.
    pub input_bytes: u64,
    /// Bytes of all shards.
    pub shard_bytes: u64,
    /// How many.
    pub shards: usize,
    /// The most memory that it announced to take.
    pub memory_bytes_max: usize,
}

impl Import {
    /// Imports a text, in a memory group if one is given.
    ///
    /// # Errors
    ///
    /// If the process fails, or was killed: by the kernel, where its group's memory was not enough.
    pub fn run(
        scratch: &Path,
        text: &Path,
        group: Option<&MemoryGroup>,
        arguments: &[String],
    ) -> anyhow::Result<Import> {
        let folder = scratch.join("datasets");
        let program = crate::lab::program()?;
        let log = scratch.join("import.log");
        // The shell joins the group and becomes the import, so that all of its memory is charged
        // there.
        let script = r#"[ -z "$1" ] || echo $$ > "$1/cgroup.procs" || exit 1; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(group.map_or(Path::new(""), MemoryGroup::dir));
        command.arg(program).args(["data", "import"]).arg(text).arg("--folder").arg(&folder);
        command.args(["--name", NAME, "--json"]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&log)?);
        let (start, cpu_before) = (Instant::now(), children_cpu_s()?);
        let mut child = command.spawn().context("cannot start an import")?;
        let peak_bytes = watch(&mut child)?;
        let output = child.wait_with_output()?;
        let (wall_s, cpu_s) = (start.elapsed().as_secs_f64(), children_cpu_s()? - cpu_before);
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        ensure!(output.status.success(), "an import ended with {}: {said}", output.status);
        let made: Made =
            serde_json::from_slice(&output.stdout).context("an import did not say what it made")?;
        let input_bytes = std::fs::metadata(text)?.len();
        ensure!(made.input_bytes == input_bytes, "{} bytes of {input_bytes}", made.input_bytes);
        Ok(Import { folder, made, cpu_s, wall_s, peak_bytes })
    }

    /// A command on the dataset.
    pub fn command(&self, name: &str) -> anyhow::Result<Command> {
        let program = crate::lab::program()?;
        let mut command = Command::new(program);
        command.args(["data", name, NAME, "--folder"]).arg(&self.folder);
        Ok(command)
    }

    /// Bytes of each section, over all shards.
    ///
    /// # Errors
    ///
    /// If a shard cannot be read.
    pub fn parts(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let folder = self.folder.join(NAME);
        let mut parts = BTreeMap::new();
        for entry in Manifest::read(&folder)?.shards {
            let reader = Reader::open_unchecked(std::fs::read(folder.join(&entry.file))?)?;
            for section in reader.sections() {
                *parts.entry(section.name.clone()).or_default() += section.range.len() as u64;
            }
        }
        Ok(parts)
    }

    /// Removes the dataset.
    ///
    /// # Errors
    ///
    /// If that is not possible.
    pub fn remove(self) -> anyhow::Result<()> {
        let folder = self.folder;
        std::fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// Waits for the end of a process; the most memory that it was seen to have taken. The kernel keeps
/// the maximum, so only what is taken within the last moment before the end could be missed.
fn watch(child: &mut Child) -> anyhow::Result<u64> {
    let pid = i32::try_from(child.id()).context("a process without a number")?;
    let mut peak = 0;
    // Its output is one small text, which waits in the pipe.
    while child.try_wait()?.is_none() {
        let status = procfs::process::Process::new(pid).and_then(|process| process.status());
        let kib = status.ok().and_then(|status| status.vmhwm).unwrap_or(0);
        peak = peak.max(kib << 10);
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(peak)
}

/// Processor seconds of all processes that this one started and that have ended.
fn children_cpu_s() -> anyhow::Result<f64> {
    let stat = procfs::process::Process::myself().and_then(|process| process.stat());
    let stat = stat.context("cannot read /proc/self/stat")?;
    Ok((stat.cutime + stat.cstime) as f64 / procfs::ticks_per_second() as f64)
}
