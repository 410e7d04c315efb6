//! Memory control groups, of either version of the kernel's interface: a bound on what processes
//! hold and on what the page cache keeps for them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};

/// A memory control group, of either version.
pub struct MemoryGroup {
    dir: PathBuf,
    version: u8,
}

impl MemoryGroup {
    /// Makes a group for an experiment, and removes those of its runs that were killed.
    ///
    /// # Errors
    /// If the system has no memory groups, or this process may not make one.
    pub fn create(experiment: &str) -> anyhow::Result<MemoryGroup> {
        let (parent, version) = parent()?;
        // The rest of the name is the process that made it.
        let prefix = format!("concertina-{experiment}-");
        for entry in std::fs::read_dir(&parent)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let made_by = name.strip_prefix(&prefix).and_then(|pid| pid.parse::<u32>().ok());
            if made_by.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        let dir = parent.join(format!("{prefix}{}", std::process::id()));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the memory group {}", dir.display()))?;
        Ok(MemoryGroup { dir, version })
    }

    /// Its folder; a process joins it by writing its number to `cgroup.procs` there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes that are charged to it.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn charged(&self) -> anyhow::Result<u64> {
        let name = if self.version == 1 { "memory.usage_in_bytes" } else { "memory.current" };
        let path = self.dir.join(name);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        text.trim().parse().with_context(|| format!("{} is not a number", path.display()))
    }

    /// Bounds what may be charged to it; what is more is given up at once.
    ///
    /// # Errors
    /// If that much cannot be given up.
    pub fn limit(&self, bytes: u64) -> anyhow::Result<()> {
        let name = if self.version == 1 { "memory.limit_in_bytes" } else { "memory.max" };
        let path = self.dir.join(name);
        std::fs::write(&path, bytes.to_string())
            .with_context(|| format!("cannot write {bytes} to {}", path.display()))
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        for _ in 0..50 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// The folder in which memory groups are made, and the version of its interface: below this
/// process's own group in version 1; in version 2 at the root, because a group with processes has
/// no groups below.
fn parent() -> anyhow::Result<(PathBuf, u8)> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    for fields in mounts.lines().map(|l| l.split(' ').collect::<Vec<_>>()) {
        let [_, at, kind, options, ..] = fields[..] else { continue };
        let at = PathBuf::from(at);
        if kind == "cgroup" && options.split(',').any(|o| o == "memory") {
            let own = std::fs::read_to_string("/proc/self/cgroup")?;
            let own = own.lines().find_map(|line| {
                let mut parts = line.splitn(3, ':').skip(1);
                let memory = parts.next()?.split(',').any(|c| c == "memory");
                memory.then(|| parts.next()).flatten()
            });
            let own = at.join(own.unwrap_or("/").trim_start_matches('/'));
            return Ok((if own.is_dir() { own } else { at }, 1));
        }
        let controllers = std::fs::read_to_string(at.join("cgroup.controllers"));
        let memory = |text: String| text.split_whitespace().any(|c| c == "memory");
        if kind == "cgroup2" && controllers.is_ok_and(memory) {
            // It may be on already; if it is not and cannot be, limiting says so.
            let _ = std::fs::write(at.join("cgroup.subtree_control"), "+memory");
            return Ok((at, 2));
        }
    }
    bail!(
        "no memory control group is mounted: mount -t cgroup -o memory none /sys/fs/cgroup/memory"
    )
}
