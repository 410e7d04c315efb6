//! What is measured, as processes: the slow disk, nginx, and the memory group that nginx is in.
//!
//! All end with this process, however it ends: the disk when its standard input does, nginx by the
//! kernel's signal at its parent's death. An empty memory group may be left behind by a killed run;
//! the next one removes it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use ground::window::Window;

use super::counters;
use crate::memory_group::MemoryGroup;

/// Checks that everything is there; the error names all that is missing. Returns nginx's version.
pub(crate) fn check() -> anyhow::Result<String> {
    let mut missing = Vec::new();
    let runs = |program: &str, argument: &str| {
        let output = Command::new(program).arg(argument).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let nginx = runs("nginx", "-V");
    match &nginx {
        None => missing.push("nginx (apt-get install nginx-light)"),
        Some(text) if !text.contains("--with-threads") => {
            missing.push("nginx with thread pools (apt-get install nginx-light)");
        }
        Some(_) => {}
    }
    if runs("fusermount3", "--version").is_none() {
        missing.push("fusermount3 (apt-get install fuse3)");
    }
    if runs("setpriv", "--version").is_none() {
        missing.push("setpriv (apt-get install util-linux)");
    }
    if !Path::new("/dev/fuse").exists() {
        missing.push("/dev/fuse (modprobe fuse; in a container: --device /dev/fuse)");
    }
    if !rustix::process::geteuid().is_root() {
        missing.push("root, for mounting and for a memory group");
    }
    ensure!(missing.is_empty(), "this experiment lacks: {}", missing.join("; "));
    let version = nginx.unwrap_or_default();
    let version = version.lines().find_map(|line| line.split_once("version: "));
    Ok(version.map_or("nginx".to_owned(), |(_, version)| version.trim().to_owned()))
}

/// A mounted slow disk.
pub(crate) struct SlowDisk {
    child: Child,
    mount: PathBuf,
    log: PathBuf,
    windows: Arc<Mutex<Vec<Window>>>,
}

impl SlowDisk {
    /// Mounts it; `arguments` are those of `slowdisk` after the folder.
    pub fn start(
        program: &Path,
        mount: &Path,
        log: &Path,
        arguments: &[String],
    ) -> anyhow::Result<SlowDisk> {
        std::fs::create_dir_all(mount)?;
        let mut child = Command::new(program)
            .arg(mount)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(log)?)
            // An interrupt from the keyboard is for this process: the disk ends after it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().context("the slow disk has no output")?;
        let windows = Arc::new(Mutex::new(Vec::new()));
        let disk = SlowDisk {
            child,
            mount: mount.to_owned(),
            log: log.to_owned(),
            windows: windows.clone(),
        };
        let mut lines = BufReader::new(stdout).lines();
        if !lines.next().is_some_and(|line| line.is_ok_and(|l| l.contains("mounted"))) {
            bail!("the slow disk did not start: {}", tail(log));
        }
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if let Ok(line) = serde_json::from_str(&line) {
                    let mut all = windows.lock().unwrap_or_else(PoisonError::into_inner);
                    all.extend(counters::windows(line));
                }
            }
        });
        Ok(disk)
    }

    /// An error if it does not run any more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("the slow disk ended ({status}): {}", tail(&self.log)),
        }
    }

    /// What it counted since this was asked last, up to now.
    pub fn windows(&self) -> Vec<Window> {
        // It writes twice a second.
        std::thread::sleep(Duration::from_millis(800));
        std::mem::take(&mut *self.windows.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if !ends_within(&mut self.child, Duration::from_secs(5)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        }
    }
}

fn ends_within(child: &mut Child, time: Duration) -> bool {
    let deadline = Instant::now() + time;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// A running nginx.
pub(crate) struct Nginx {
    child: Child,
    log: PathBuf,
    port: u16,
}

/// Threads that read: more than there are ever reads waiting, so that these wait at the disk.
const THREADS: u32 = 512;

/// Open files beside those that are served: connections.
const CONNECTIONS: u64 = 4096;

impl Nginx {
    /// Starts nginx in a memory group; it serves `files` files below `root`.
    pub fn start(
        scratch: &Path,
        root: &Path,
        files: u64,
        group: &MemoryGroup,
    ) -> anyhow::Result<Nginx> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let (conf, log) = (scratch.join("nginx.conf"), scratch.join("nginx.log"));
        std::fs::write(&conf, configuration(scratch, root, port, files))?;
        // The shell puts itself into the group and becomes nginx, so that all memory is charged
        // there.
        let script = r#"
            if [ "$(ulimit -n)" != unlimited ] && [ "$(ulimit -n)" -lt "$4" ]; then
                ulimit -n "$4" ||
                    { echo "it takes $4 open files: fewer objects, or ulimit -n" >&2; exit 1; }
            fi
            echo $$ > "$1/cgroup.procs" && exec setpriv --pdeathsig KILL nginx -p "$2" -c "$3""#;
        let child = Command::new("sh")
            .args(["-c", script, "sh"])
            .args([group.dir(), scratch, &conf])
            .arg((files + CONNECTIONS).to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .process_group(0)
            .spawn()
            .context("cannot start nginx")?;
        let mut nginx = Nginx { child, log, port };
        let deadline = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            nginx.check()?;
            ensure!(Instant::now() < deadline, "nginx does not listen: {}", tail(&nginx.log));
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(nginx)
    }

    /// Where the files are.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// An error if it does not run any more.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("nginx ended ({status}): {}", tail(&self.log)),
        }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One process; its threads read. Files stay open, so that only reads go to the disk.
fn configuration(scratch: &Path, root: &Path, port: u16, files: u64) -> String {
    let (scratch, root) = (scratch.display(), root.display());
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("    {name}_temp_path {scratch}/{name};\n"))
        .concat();
    format!(
        "daemon off;\nmaster_process off;\nworker_processes 1;\npid {scratch}/nginx.pid;\n\
         error_log stderr warn;\n\
         thread_pool disk threads={THREADS} max_queue=65536;\n\
         events {{ worker_connections {CONNECTIONS}; }}\n\
         http {{\n    access_log off;\n    default_type application/octet-stream;\n{temporary}\
         \u{20}   sendfile off;\n    aio threads=disk;\n    output_buffers 1 64k;\n    tcp_nodelay on;\n\
         \u{20}   keepalive_timeout 1d;\n    keepalive_requests 1000000000;\n\
         \u{20}   open_file_cache max={} inactive=1d;\n    open_file_cache_valid 1d;\n\
         \u{20}   open_file_cache_min_uses 1;\n\
         \u{20}   server {{\n        listen 127.0.0.1:{port} backlog=4096;\n\
         \u{20}       root {root};\n    }}\n}}\n",
        files
    )
}

/// The last lines of a log, for an error.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().rev().take(5).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("; ")
}
