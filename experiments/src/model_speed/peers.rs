//! The rivals of model-speed: small programs in `experiments/model-speed/peers`, each of which
//! prints how long it took and what it found. What they need comes from Debian or PyPI; what is
//! missing is named.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

/// What an adapter prints.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// Of one call, without starting up.
    pub seconds: f64,
    pub answer: f64,
    pub version: String,
}

/// A rival: the command that runs it, or the reason why it is missing.
pub type Peer = Result<Vec<String>, String>;

/// All of them.
pub struct Peers {
    /// The textbook's mean value analysis in C.
    pub textbook: Peer,
    pub pdq: Peer,
    pub octave: Peer,
    /// ciw.
    pub simulation: Peer,
    /// numpy.
    pub inversion: Peer,
}

impl Peers {
    /// Builds and installs what can be, into `scratch`.
    pub fn prepare(folder: &Path, scratch: &Path, pdq: &Path, python: &[String]) -> Self {
        let adapters = folder.join("peers");
        let adapters = adapters.canonicalize().unwrap_or(adapters);
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        let interpreter = virtual_environment(scratch, python);
        let python = |script: &str| {
            interpreter.clone().map(|python| vec![text(python), text(adapters.join(script))])
        };
        Peers {
            textbook: compile(scratch, "mva", &[adapters.join("mva.c")], None)
                .map(|program| vec![text(program)]),
            pdq: pdq_program(scratch, &adapters.join("pdq.c"), pdq)
                .map(|program| vec![text(program)]),
            octave: octave().map(|program| {
                let options = ["--quiet", "--no-init-file"].map(str::to_owned);
                let script = text(adapters.join("networks.m"));
                [program].into_iter().chain(options).chain([script]).collect()
            }),
            simulation: python("simulate.py"),
            inversion: python("cdf.py"),
        }
    }
}

/// Runs a rival once.
pub fn run(command: &[String], arguments: &[String]) -> anyhow::Result<Answer> {
    let (program, first) = command.split_first().context("a peer's command is empty")?;
    let output = Command::new(program)
        .args(first)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        bail!("{program} ended with {}: {complained}", output.status);
    }
    let line = said.lines().rfind(|line| line.starts_with('{'));
    let line = line.with_context(|| format!("{program} printed no answer: {complained}"))?;
    serde_json::from_str(line).with_context(|| format!("{program} printed {line}"))
}

/// Whether a command succeeds; else what it complained of.
fn succeeds(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("cannot start {name}: {error}"))?;
    let complained = String::from_utf8_lossy(&output.stderr);
    let last = complained.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
    if output.status.success() { Ok(()) } else { Err(format!("{name} failed: {last}")) }
}

fn compile(
    scratch: &Path,
    name: &str,
    sources: &[PathBuf],
    include: Option<&Path>,
) -> Result<PathBuf, String> {
    let program = scratch.join(name);
    let mut command = Command::new("gcc");
    command.args(["-O2", "-w", "-o"]).arg(&program);
    if let Some(folder) = include {
        command.arg("-I").arg(folder);
    }
    command.args(sources).arg("-lm");
    succeeds(&mut command).map_err(|why| format!("{why} (apt-get install gcc)"))?;
    Ok(program)
}

fn pdq_program(scratch: &Path, adapter: &Path, sources: &Path) -> Result<PathBuf, String> {
    let folder = sources.join("lib");
    let Ok(entries) = std::fs::read_dir(&folder) else {
        return Err(format!("missing sources of PDQ: expected in {}", sources.display()));
    };
    let mut files = vec![adapter.to_owned()];
    let paths = entries.flatten().map(|entry| entry.path());
    files.extend(paths.filter(|path| path.extension().is_some_and(|e| e == "c")));
    compile(scratch, "pdq", &files, Some(&folder))
}

fn octave() -> Result<String, String> {
    let asked = ["--quiet", "--no-init-file", "--eval", "pkg load queueing"];
    succeeds(Command::new("octave-cli").args(asked))
        .map_err(|why| format!("{why} (apt-get install octave octave-queueing)"))?;
    Ok("octave-cli".to_owned())
}

/// A Python of its own with the packages; its path.
fn virtual_environment(scratch: &Path, packages: &[String]) -> Result<PathBuf, String> {
    let folder = scratch.join("python");
    let python = folder.join("bin/python");
    succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        .map_err(|why| format!("{why} (apt-get install python3-venv)"))?;
    let install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    succeeds(Command::new(&python).args(install).args(packages))
        .map_err(|why| format!("{why} (pip install {})", packages.join(" ")))?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> anyhow::Result<Answer> {
        run(&["sh".to_owned(), "-c".to_owned()], &[script.to_owned()])
    }

    #[test]
    fn an_answer_is_the_last_line_in_braces() {
        let line = r#"echo warming up; echo '{"seconds": 0.5, "answer": 2.0, "version": "x 1"}'"#;
        let found = shell(line).unwrap();
        assert_eq!((found.seconds, found.answer, &*found.version), (0.5, 2.0, "x 1"));
    }

    #[test]
    fn what_is_wrong_with_a_peer_is_said() {
        for (script, said) in [
            ("echo broken >&2; exit 3", "broken"),
            ("echo nothing", "printed no answer"),
            ("echo '{\"seconds\": 1}'", "printed {"),
        ] {
            let error = format!("{:#}", shell(script).unwrap_err());
            assert!(error.contains(said), "{error}");
        }
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("none");
        assert!(pdq_program(dir.path(), &missing, &missing).unwrap_err().contains("PDQ"));
        assert!(compile(dir.path(), "x", &[missing], None).unwrap_err().contains("gcc"));
        assert!(run(&[dir.path().join("none").display().to_string()], &[]).is_err());
    }
}
