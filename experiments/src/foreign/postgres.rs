//! PostgreSQL: a server of its own, with its files below the folder for temporary files, reached by a socket there.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, ensure};
use tempfile::TempDir;

use super::installed::library;

/// Whose processes these are, because the server refuses to run as root: `nobody`.
const USER: u32 = 65534;
/// Nothing works in the background while queries are measured, and nothing is made durable.
const SETTINGS: [&str; 8] = [
    "listen_addresses=",
    "fsync=off",
    "autovacuum=off",
    "jit=off",
    "max_parallel_workers_per_gather=0",
    "shared_buffers=64MB",
    "checkpoint_timeout=1h",
    "bgwriter_delay=10s",
];

/// Why there is no PostgreSQL on this machine.
pub(super) fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("root is needed, to run PostgreSQL as another user".to_owned());
    }
    let missing = ["initdb", "postgres"].into_iter().find_map(|name| program(name).err());
    let missing = missing.map(|error| format!("{error:#}"));
    missing.or_else(|| (!library("libpq.so.5")).then(|| "libpq.so.5 is missing".to_owned()))
}

/// A program of PostgreSQL: from the path, or of the newest version where Debian has them.
fn program(name: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if let Some(found) = std::env::split_paths(&path).map(|f| f.join(name)).find(|p| p.is_file()) {
        return Ok(found);
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let found = versions.map(|v| v.path().join("bin").join(name)).filter(|p| p.is_file());
    // 9 is before 10.
    let newest = found.max_by_key(|p| (p.as_os_str().len(), p.clone()));
    newest.with_context(|| format!("{name} is missing (apt-get install postgresql)"))
}

/// An initialised database, whose files are removed when it is dropped: after its server.
pub(super) struct Database {
    folder: TempDir,
}

impl Database {
    pub fn new() -> anyhow::Result<Database> {
        // Not below the scratch folder: another user must reach it, and the path of a socket is short.
        let folder = tempfile::Builder::new().prefix("concertina-postgres-").tempdir()?;
        chown(folder.path(), Some(USER), Some(USER))?;
        let output = Command::new("setpriv")
            .args(as_user())
            .arg(program("initdb")?)
            .args(["--username=concertina", "--auth=trust", "--no-sync", "--encoding=UTF8"])
            .args(["--locale=C", "--pgdata"])
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .output()
            .context("cannot run initdb (by setpriv, of util-linux)")?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "initdb failed: {}", error.trim());
        Ok(Database { folder })
    }

    /// Where the server's socket is.
    pub fn sockets(&self) -> &Path {
        self.folder.path()
    }

    /// The server's command, after `setpriv --pdeathsig`.
    pub fn command(&self) -> anyhow::Result<Vec<String>> {
        let path = |path: &Path| path.display().to_string();
        let mut command: Vec<String> = as_user().into();
        command.push(path(&program("postgres")?));
        command.extend(["-D".to_owned(), path(&self.folder.path().join("data"))]);
        command.extend(["-k".to_owned(), path(self.folder.path())]);
        command.extend(SETTINGS.iter().flat_map(|s| ["-c".to_owned(), (*s).to_owned()]));
        Ok(command)
    }
}

fn as_user() -> [String; 3] {
    [format!("--reuid={USER}"), format!("--regid={USER}"), "--clear-groups".to_owned()]
}
