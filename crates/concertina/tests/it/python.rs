//! The module for Python: built and installed as a user does (`pip install ./python`), and asked what the commands are asked.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::left_out::left_out;
use crate::memcached_proxy::clients::{installed, output_text};
use crate::tidy::root;

/// The Python of the environment that `.ci/setup` makes.
fn python() -> Option<PathBuf> {
    let path = installed().join("notebook/bin/python");
    path.exists().then_some(path)
}

/// The folder of everything that Cargo builds here, as a folder beside which the module is built: what both need is built once.
fn target() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    target.to_owned()
}

/// Builds the module in the profile of the tests, and installs it into the environment.
fn install(python: &Path) {
    let profile = target().join("python-profile.toml");
    let manifest = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let start = manifest.find("[profile.dev]").unwrap();
    let end = manifest.find("[profile.release]").unwrap();
    std::fs::write(&profile, &manifest[start..end]).unwrap();
    let arguments = format!(
        "--profile dev --offline --target-dir {} --config {}",
        target().display(),
        profile.display()
    );
    let bin = python.parent().unwrap();
    let paths = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(python)
        .args(["-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation"])
        .args(["--force-reinstall", "--disable-pip-version-check"])
        .arg(root().join("python"))
        .env("PATH", format!("{}:{paths}", bin.display()))
        .env("MATURIN_PEP517_ARGS", arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

#[test]
fn the_module_answers_as_the_commands_do() {
    const TEST: &str = "python::the_module_answers_as_the_commands_do";
    let Some(python) = python() else {
        return left_out(TEST, "maturin and pytest are not installed (sh .ci/setup)");
    };
    install(&python);
    // Not in `python/`: what is imported is what was installed.
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(python)
        .args([
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-W",
            "error::DeprecationWarning:concertina",
        ])
        .arg(root().join("python/tests"))
        .env("CONCERTINA", env!("CARGO_BIN_EXE_concertina"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .current_dir(folder.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}
