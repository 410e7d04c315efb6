//! The Debian package: built of the program under test, unpacked, and installed, upgraded, removed and purged below a folder of its
//! own.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::left_out::left_out;
use crate::memcached_proxy::clients::output_text;
use crate::tidy::root;

/// Runs a program to its end, which must be good.
fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", output_text(&output));
    output
}

/// Builds the package of the program under test. `None` without dpkg.
fn package(test: &str, folder: &Path) -> Option<PathBuf> {
    if Command::new("dpkg-deb").arg("--version").output().is_err() {
        left_out(test, "dpkg-deb is not installed: this is not Debian");
        return None;
    }
    let output = run(Command::new(root().join("deploy/debian/package"))
        .args([env!("CARGO_BIN_EXE_concertina").as_ref(), folder])
        // Compressing the program of a test build takes a minute.
        .env("COMPRESSION", "none")
        .env("SOURCE_DATE_EPOCH", "1700000000"));
    Some(PathBuf::from(String::from_utf8(output.stdout).unwrap().trim()))
}

/// The fields of a package's description.
fn fields(package: &Path) -> BTreeMap<String, String> {
    let output = run(Command::new("dpkg-deb").arg("--field").arg(package));
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        (!line.starts_with(' ')).then(|| (name.to_owned(), value.to_owned()))
    };
    text.lines().filter_map(field).collect()
}

/// Says what is below a folder: the files by their paths, with their modes.
fn files(folder: &Path) -> BTreeMap<String, u32> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                let name = path.strip_prefix(folder).unwrap().display().to_string();
                found.insert(name, mode);
            }
        }
    }
    found
}

/// The commands that the program's help lists.
fn commands() -> Vec<String> {
    let help = run(Command::new(env!("CARGO_BIN_EXE_concertina")).arg("--help"));
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split("Commands:").nth(1).unwrap().split("Options:").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(str::to_owned).collect()
}

#[test]
fn the_package_has_all_that_belongs_to_the_program() {
    const TEST: &str = "package::the_package_has_all_that_belongs_to_the_program";
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = package(TEST, folder.path()) else { return };
    let described = fields(&package);
    assert_eq!(described["Version"], env!("CARGO_PKG_VERSION"));
    assert!(described["Depends"].contains("libc6 (>= 2."), "{described:?}");
    let tree = folder.path().join("tree");
    run(Command::new("dpkg-deb").arg("--extract").arg(&package).arg(&tree));
    let found = files(&tree);
    for (name, mode) in [
        ("usr/bin/concertina", 0o755),
        ("usr/lib/systemd/system/concertina.service", 0o644),
        ("usr/lib/sysusers.d/concertina.conf", 0o644),
        ("etc/concertina/concertina.toml", 0o644),
        ("usr/share/bash-completion/completions/concertina", 0o644),
        ("usr/share/zsh/vendor-completions/_concertina", 0o644),
        ("usr/share/fish/vendor_completions.d/concertina.fish", 0o644),
        ("usr/share/doc/concertina/copyright", 0o644),
        ("usr/share/doc/concertina/changelog.gz", 0o644),
        ("usr/share/doc/concertina/examples/concertina-gateway.service", 0o644),
        ("usr/share/man/man1/concertina.1.gz", 0o644),
        ("usr/share/man/man1/concertina-data-import.1.gz", 0o644),
    ] {
        assert_eq!(found.get(name), Some(&mode), "{name}: {found:#?}");
    }
    let all = commands();
    assert!(all.len() > 20, "{all:?}");
    for command in all {
        assert!(
            found.contains_key(&format!("usr/share/man/man1/concertina-{command}.1.gz")),
            "{command}"
        );
    }
    let program = tree.join("usr/bin/concertina");
    let version = run(Command::new(&program).arg("--version"));
    assert_eq!(output_text(&version).trim(), format!("concertina {}", env!("CARGO_PKG_VERSION")));
    // What the package configures is valid, and what its unit starts is in the package.
    run(Command::new(&program)
        .args(["config", "check"])
        .arg(tree.join("etc/concertina/concertina.toml")));
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/system/concertina.service")).unwrap();
    let start = unit.lines().find_map(|line| line.strip_prefix("ExecStart=/")).unwrap();
    let arguments: Vec<&str> = start.split_whitespace().collect();
    assert_eq!(
        arguments,
        ["usr/bin/concertina", "serve", "--config", "/etc/concertina/concertina.toml"]
    );
}

#[test]
fn pages_and_completions_are_what_man_and_bash_take() {
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_concertina");
    run(Command::new(program).args(["man", "--out"]).arg(folder.path()));
    let page = folder.path().join("concertina-plan.1");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("\\-\\-objective") && text.contains("What can be bought"), "{text}");
    if Command::new("man").arg("--version").output().is_ok() {
        let shown =
            run(Command::new("man").args(["--warnings", "-l"]).arg(&page).env("MANWIDTH", "100"));
        let shown = output_text(&shown);
        assert!(shown.contains("--objective") && !shown.contains("warning:"), "{shown}");
    }
    // Again into the folder; but not over what is no page.
    run(Command::new(program).args(["man", "--out"]).arg(folder.path()));
    fs::write(&page, "precious").unwrap();
    let refused = Command::new(program).args(["man", "--out"]).arg(folder.path()).output().unwrap();
    assert!(!refused.status.success() && output_text(&refused).contains("another kind of file"));
    for shell in ["bash", "zsh", "fish"] {
        let text = run(Command::new(program).args(["completions", shell])).stdout;
        assert!(String::from_utf8(text.clone()).unwrap().contains("objective"), "{shell}");
        fs::write(folder.path().join(shell), text).unwrap();
    }
    // What bash offers after `concertina pl`, and for options of a command.
    let script = r#"
        source "$1"
        COMP_WORDS=(concertina pl); COMP_CWORD=1; _concertina concertina pl concertina; echo "${COMPREPLY[@]}"
        COMP_WORDS=(concertina plan --obj); COMP_CWORD=2; _concertina concertina --obj plan; echo "${COMPREPLY[@]}"
    "#;
    let offered =
        run(Command::new("bash").args(["-c", script, "bash"]).arg(folder.path().join("bash")));
    assert_eq!(output_text(&offered), "plan\n--objective\n");
}

#[test]
fn completions_are_what_zsh_and_fish_take() {
    const TEST: &str = "package::completions_are_what_zsh_and_fish_take";
    let shells = ["zsh", "fish"];
    if shells.iter().any(|shell| Command::new(shell).arg("--version").output().is_err()) {
        return left_out(TEST, "zsh or fish is not installed (sh .ci/setup)");
    }
    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_concertina");
    for (shell, name) in shells.into_iter().zip(["_concertina", "concertina.fish"]) {
        let text = run(Command::new(program).args(["completions", shell])).stdout;
        fs::write(folder.path().join(name), text).unwrap();
        run(Command::new(shell).arg("-n").arg(folder.path().join(name)));
    }
    // zsh finds the function for the command, and can load it.
    let script = r#"
        fpath=("$1" $fpath); autoload -U compinit; compinit -u -D
        print ${_comps[concertina]}; autoload +X _concertina && print loaded
    "#;
    let found = run(Command::new("zsh").args(["-f", "-c", script, "zsh"]).arg(folder.path()));
    assert_eq!(output_text(&found), "_concertina\nloaded\n");
    let script = r#"source "$argv[1]/concertina.fish"
        complete -C "concertina pla"; complete -C "concertina plan --obj""#;
    let mut fish = Command::new("fish");
    // It keeps its variables in the user's folder.
    fish.env("HOME", folder.path()).env("XDG_CONFIG_HOME", folder.path());
    let offered = run(fish.args(["-c", script]).arg(folder.path()));
    let offered = output_text(&offered);
    let names: Vec<&str> = offered.lines().filter_map(|line| line.split('\t').next()).collect();
    assert_eq!(names, ["plan", "--objective"], "{offered}");
}

/// A folder that dpkg takes for the root of a system with nothing installed.
struct System {
    root: PathBuf,
}

impl System {
    fn new(root: PathBuf) -> System {
        for folder in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc", "tmp"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        System { root }
    }

    fn dpkg(&self, arguments: &[&str]) -> Output {
        let root = format!("--root={}", self.root.display());
        // Nothing that the package needs is in this root, and its scripts run outside of it, told where it is.
        let mut command = Command::new("dpkg");
        command.args([&root, "--force-depends", "--force-script-chrootless", "--force-confold"]);
        run(command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive"))
    }

    fn has(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }
}

#[test]
fn the_package_is_installed_upgraded_removed_and_purged() {
    const TEST: &str = "package::the_package_is_installed_upgraded_removed_and_purged";
    let folder = tempfile::tempdir().unwrap();
    let Some(package) = package(TEST, folder.path()) else { return };
    if !rustix::process::geteuid().is_root()
        || Command::new("systemd-sysusers").arg("--version").output().is_err()
    {
        return left_out(
            TEST,
            "dpkg installs for root alone, and users are made by systemd-sysusers",
        );
    }
    let system = System::new(folder.path().join("root"));
    let path = package.to_str().unwrap();
    system.dpkg(&["--install", path]);
    let users = fs::read_to_string(system.root.join("etc/passwd")).unwrap();
    assert!(users.lines().any(|line| line.starts_with("concertina:")), "{users}");
    assert!(system.has("usr/bin/concertina") && !system.has("var/lib/concertina"));
    // What somebody configured survives an upgrade, and their data a removal.
    let configuration = system.root.join("etc/concertina/concertina.toml");
    let changed = fs::read_to_string(&configuration).unwrap().replace("256MiB", "1GiB");
    fs::write(&configuration, &changed).unwrap();
    fs::create_dir_all(system.root.join("var/lib/concertina/origin")).unwrap();
    fs::write(system.root.join("var/lib/concertina/origin/object"), "precious").unwrap();
    system.dpkg(&["--install", path]);
    assert_eq!(fs::read_to_string(&configuration).unwrap(), changed);
    system.dpkg(&["--remove", "concertina"]);
    assert!(!system.has("usr/bin/concertina") && system.has("etc/concertina/concertina.toml"));
    system.dpkg(&["--purge", "concertina"]);
    assert!(!system.has("etc/concertina") && system.has("var/lib/concertina/origin/object"));
}
