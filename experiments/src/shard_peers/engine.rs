//! The engines, ours and the peers: each is a process that builds its index once and then replies to
//! queries until its input ends.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use rustix::fs::{Advice, fadvise};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::config::Config;
use super::protocol::{Built, MemoryUse, Opened, Question, Reply, Task};

/// An engine before it is started.
#[derive(Clone, Debug)]
pub struct Engine {
    /// Its name in tables.
    pub name: String,
    /// The program and its version.
    pub version: String,
    /// Whether it is this project's; a wrong reply then ends the run.
    pub is_ours: bool,
    /// Whether it returns lines instead of records.
    pub answers_lines: bool,
    /// Its command before `build` and `serve`.
    command: Vec<String>,
    /// Further arguments of `build` and of `serve`.
    build_options: Vec<String>,
    serve_options: Vec<String>,
    /// The engine whose files it reads, if it has no files of its own.
    pub files_of: Option<String>,
}

/// Our own command, started for each query, like ripgrep.
pub const COMMAND: &str = "concertina-process";

/// The peers by their names in `peer.py`: whether each returns lines where a record has several, and
/// whose files it reads.
const PEERS: [(&str, bool, Option<&str>); 10] = [
    (COMMAND, false, Some("shard")),
    ("rg", true, None),
    ("rg-records", false, Some("rg")),
    ("zstd-rg", true, None),
    ("sqlite-trigram", false, None),
    ("sqlite-trigram-small", false, None),
    ("sqlite-words", false, None),
    ("tantivy", false, None),
    ("tantivy-small", false, None),
    ("duckdb", false, None),
];

/// All available engines, ours first, and the reasons why others are missing.
///
/// # Errors
/// If this program's own file cannot be found.
pub fn engines(
    config: &Config,
    folder: &Path,
    scratch: &Path,
) -> anyhow::Result<(Vec<Engine>, Vec<String>)> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let program = program.to_string_lossy().into_owned();
    let ours = |shard: &super::config::ShardForm| Engine {
        name: shard.name.clone(),
        version: format!("concertina {}", env!("CARGO_PKG_VERSION")),
        is_ours: true,
        answers_lines: false,
        command: vec![program.clone(), "answer".to_owned()],
        build_options: vec![
            format!("--sa-sampling={}", shard.sampling.0),
            format!("--isa-sampling={}", shard.sampling.1),
        ],
        serve_options: shard.text_layer.then(|| "--text-layer".to_owned()).into_iter().collect(),
        files_of: None,
    };
    let mut engines: Vec<Engine> = config.shard.iter().map(ours).collect();
    let mut missing = Vec::new();
    let python = match virtual_environment(scratch, &config.peers.python) {
        Ok(python) => python,
        Err(why) => {
            // Most peers need no package: only the one that does is then missing.
            missing.push(why);
            "python3".to_owned()
        }
    };
    let script = folder.join("peer.py").to_string_lossy().into_owned();
    for (name, answers_lines, files_of) in PEERS {
        let command = vec![python.clone(), script.clone(), name.to_owned()];
        match version(&command) {
            Ok(version) => engines.push(Engine {
                name: name.to_owned(),
                version,
                is_ours: name == COMMAND,
                answers_lines,
                command,
                build_options: Vec::new(),
                serve_options: Vec::new(),
                files_of: files_of.map(str::to_owned),
            }),
            Err(why) => missing.push(why),
        }
    }
    Ok((engines, missing))
}

/// The path of `concertina`.
///
/// # Errors
/// If it cannot be found.
pub fn own_program() -> anyhow::Result<String> {
    Ok(crate::lab::program()?.to_string_lossy().into_owned())
}

/// A peer's name and version, or the reason why it is missing.
fn version(command: &[String]) -> Result<String, String> {
    let (program, first) = command.split_first().ok_or("a peer has no command")?;
    let output = Command::new(program).args(first).arg("version").output();
    let output = output.map_err(|error| format!("cannot start {program}: {error}"))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
}

/// Creates a virtual environment of Python with the packages, and returns the interpreter's path.
fn virtual_environment(scratch: &Path, packages: &[String]) -> Result<String, String> {
    let folder = scratch.join("python");
    let python = folder.join("bin/python");
    let run = |command: &mut Command| {
        let output = command.output().map_err(|error| error.to_string())?;
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        if output.status.success() { Ok(()) } else { Err(last.to_owned()) }
    };
    run(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .map_err(|why| format!("python3 -m venv: {why} (apt-get install python3-venv)"))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(Command::new(&python).args(install).args(packages))
        .map_err(|why| format!("pip install {}: {why}", packages.join(" ")))?;
    Ok(python.to_string_lossy().into_owned())
}

impl Engine {
    /// A peer with a given command, for tests.
    #[cfg(test)]
    pub fn of_command(command: Vec<String>) -> Engine {
        Engine {
            name: command.last().cloned().unwrap_or_default(),
            version: String::new(),
            is_ours: false,
            answers_lines: false,
            command,
            build_options: Vec::new(),
            serve_options: Vec::new(),
            files_of: None,
        }
    }

    /// The folder of its files.
    pub fn folder(&self, place: &Path) -> PathBuf {
        place.join(self.files_of.as_ref().unwrap_or(&self.name))
    }

    fn start(&self, word: &str, place: &Path) -> anyhow::Result<Command> {
        let (program, first) = self.command.split_first().context("an engine has no command")?;
        let mut command = Command::new(program);
        command.args(first).arg(word).arg(place.join("task.json")).arg(self.folder(place));
        Ok(command)
    }

    /// Builds its files; `None` if it reads another engine's.
    ///
    /// # Errors
    /// If the build fails.
    pub fn build(&self, place: &Path) -> anyhow::Result<Option<Built>> {
        if self.files_of.is_some() {
            return Ok(None);
        }
        std::fs::create_dir_all(self.folder(place))?;
        let mut command = self.start("build", place)?;
        let output = command.args(&self.build_options).stderr(Stdio::inherit()).output();
        let output = output.with_context(|| format!("cannot start {}", self.name))?;
        ensure!(output.status.success(), "{} did not build: {}", self.name, output.status);
        let built = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} does not say what building took", self.name))?;
        Ok(Some(built))
    }

    /// Starts it over its files.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn open(&self, place: &Path) -> anyhow::Result<Open> {
        let mut command = self.start("serve", place)?;
        command.args(&self.serve_options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            bail!("{} has no input or output", self.name);
        };
        let output = BufReader::new(output);
        let mut open = Open { engine: self.clone(), child, input, output, open_s: 0.0 };
        let Opened { open_s } = open.read()?;
        open.open_s = open_s;
        Ok(open)
    }
}

/// A running engine. Dropping it ends its process.
pub struct Open {
    /// The engine.
    pub engine: Engine,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// Time of opening, s.
    pub open_s: f64,
}

impl Open {
    /// Sends a query and returns the reply.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn ask(&mut self, question: &Question) -> anyhow::Result<Reply> {
        self.say(question)?;
        let failed = || format!("{}, query {question:?}", self.engine.name);
        let context = failed();
        self.read().context(context)
    }

    /// The memory that the engine holds.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn memory_use(&mut self) -> anyhow::Result<MemoryUse> {
        self.say(&"memory")?;
        self.read()
    }

    fn say(&mut self, what: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(what)?;
        writeln!(self.input, "{line}").with_context(|| format!("{} has ended", self.engine.name))
    }

    fn read<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line)
            .with_context(|| format!("{} printed an invalid reply: {line:?}", self.engine.name))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a task and its text to a folder.
///
/// # Errors
/// If one of them cannot be written.
pub fn write_task(place: &Path, task: &Task, text: &str) -> anyhow::Result<()> {
    let write = |path: &Path, content: &str| {
        std::fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
    };
    write(Path::new(&task.text), text)?;
    write(&place.join("task.json"), &serde_json::to_string_pretty(task)?)
}

/// The regular files of a folder.
fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let paths = entries.map(|entry| Ok(entry?.path()));
    let mut files = paths.collect::<anyhow::Result<Vec<_>>>()?;
    files.retain(|path| path.is_file());
    Ok(files)
}

/// Bytes of all files of a folder.
///
/// # Errors
/// If it cannot be read.
pub fn disk_bytes(folder: &Path) -> anyhow::Result<u64> {
    files(folder)?.iter().map(|path| Ok(std::fs::metadata(path)?.len())).sum()
}

/// Evicts a folder's files from the page cache, so that its later contents were read since.
///
/// # Errors
/// If one cannot be opened or synced.
pub fn evict(folder: &Path) -> anyhow::Result<()> {
    for path in files(folder)? {
        let file = File::open(&path)?;
        file.sync_all()?;
        fadvise(&file, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Bytes of a folder's files in the page cache, by `fincore` of util-linux; `None` without it.
///
/// # Errors
/// If the folder cannot be read.
pub fn cached_bytes(folder: &Path) -> anyhow::Result<Option<u64>> {
    let output = Command::new("fincore")
        .args(["--bytes", "--raw", "--noheadings", "--output", "RES"])
        .args(files(folder)?)
        .output();
    let Ok(output) = output else { return Ok(None) };
    let said = String::from_utf8_lossy(&output.stdout);
    let sizes: Result<Vec<u64>, _> = said.split_whitespace().map(str::parse).collect();
    Ok(sizes.ok().map(|sizes| sizes.iter().sum()))
}
