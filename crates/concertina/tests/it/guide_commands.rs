//! The commands of docs/start.md, run in their order in a folder of their own.
//!
//! What differs from the page: the port, since tests run beside each other; the length of the load; the file `photo.jpg`; packages of a
//! machine without apt. The build and what has a placeholder (`URL`, `HOST`) are left out.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::serve_client::free;
use crate::steady::{in_time, steady};
use crate::tidy::root;

/// What a command must print: a part of it, and a part of its output.
const PRINTS: [(&str, &str); 14] = [
    ("curl -i", "200 OK"),
    ("curl -i", "a photograph"),
    ("?prefix=photos/", "photos/1.jpg"),
    ("concertina status", "within"),
    ("--fill", "filled: 20000 of 20000 keys"),
    ("--rate 500,1000,1500", "run folder: runs/load"),
    ("concertina check", "Little"),
    ("concertina fit", "Wrote model.toml"),
    ("concertina predict", "3,000"),
    ("concertina report", "Wrote report.html"),
    ("concertina plan", "servers"),
    ("concertina simulate", "requests"),
    ("data import", "packages"),
    ("data search", "Maintainer"),
];

/// The commands of a page: its indented lines, without comments; a line that ends with a backslash goes on.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("    "));
    while let Some(line) = lines.next() {
        let mut whole = line.split("   # ").next().unwrap_or_default().trim().to_owned();
        while let Some(begun) = whole.strip_suffix('\\') {
            whole = format!("{} {}", begun.trim_end(), lines.next().unwrap_or_default().trim());
        }
        found.push(whole);
    }
    found
}

/// The command as it runs here; `None` for one that is left out.
fn adapted_command(command: &str, address: &str) -> Option<String> {
    if command.starts_with("cargo ") || command.contains("HOST:PORT") || command.contains(" URL") {
        return None;
    }
    let stanzas =
        "for i in $(seq 300); do printf 'Package: p%s\\nMaintainer: python team\\n\\n' $i; done";
    let mut line =
        command.replace("127.0.0.1:7070", address).replace("apt-cache dumpavail", stanzas);
    // Outside of tests nothing else has the port.
    if line.starts_with("concertina serve") {
        let serve =
            format!("concertina serve --set serve.listen={address} --set node.memory_bytes=8MB");
        line = line.replace("concertina serve", &serve);
        line += &format!("\nuntil curl -sf http://{address}/readyz >/dev/null; do sleep 0.1; done");
    }
    if matches!(command, "concertina status" | "concertina why") {
        line += &format!(" --server http://{address}");
    }
    if command.contains("--rate 500,1000,1500") {
        line += " --warmup 1s --duration 4s";
    }
    Some(line)
}

/// Runs commands in one shell, each to its end, and gives the output of each.
fn run(folder: &Path, commands: &[String]) -> Vec<String> {
    let mut script = "set -m\nexec 2>&1\n".to_owned();
    for (index, command) in commands.iter().enumerate() {
        script += &format!("echo '### {index}'\n{command}\necho \"### ended $?\"\n");
    }
    // The server of the page is stopped by hand.
    script += "kill $(jobs -p) 2>/dev/null; wait; true\n";
    let program = Path::new(env!("CARGO_BIN_EXE_concertina")).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let output = Command::new("bash")
        .arg("-c")
        .arg(&script)
        .current_dir(folder)
        .env("PATH", path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    let outputs: Vec<String> = text.split("### ").skip(1).map(str::to_owned).collect();
    // Each command has its number and its end; a server that goes on prints in between.
    let number = |index: usize| format!("{index}\n");
    (0..commands.len())
        .map(|index| {
            let at = outputs.iter().position(|part| part.starts_with(&number(index))).unwrap();
            let ended = &outputs[at + 1];
            let (command, is_well) = (&commands[index], ended.starts_with("ended 0"));
            let shown = format!("`{command}`:\n{}{ended}", outputs[at]);
            // What was measured in seconds of a busy machine may break laws, and `check` says so, which is right; or meet no objective.
            let is_said = ended.starts_with("ended 1")
                && outputs[at].contains("do not trust or fit these steps");
            match command.contains("runs/") || command.contains("model.toml") {
                true => in_time(is_well || is_said, shown),
                false => assert!(is_well, "{shown}"),
            }
            outputs[at].clone()
        })
        .collect()
}

#[test]
fn the_first_ten_minutes_work_as_the_guide_says() {
    steady(first_ten_minutes);
}

fn first_ten_minutes() {
    let folder = tempfile::tempdir().unwrap();
    let page = fs::read_to_string(root().join("docs/start.md")).unwrap();
    let cluster = fs::read_to_string(root().join("docs/cluster.md")).unwrap();
    fs::write(folder.path().join("photo.jpg"), "a photograph\n").unwrap();
    fs::create_dir_all(folder.path().join("docs/examples")).unwrap();
    let choices = "docs/examples/choices.toml";
    fs::copy(root().join(choices), folder.path().join(choices)).unwrap();
    // The file that the page on clusters begins with.
    let (_, file) = cluster.split_once("    # cluster.toml\n").unwrap();
    let file: Vec<&str> = file
        .lines()
        .map_while(|line| line.strip_prefix("    ").or(line.is_empty().then_some("")))
        .collect();
    let end = file.iter().position(|line| line.starts_with("concertina ")).unwrap_or(file.len());
    fs::write(folder.path().join("cluster.toml"), file[..end].join("\n")).unwrap();

    let address = free().to_string();
    let shown = commands(&page);
    let run_here: Vec<String> =
        shown.iter().filter_map(|command| adapted_command(command, &address)).collect();
    assert!(run_here.len() >= 18 && shown.len() - run_here.len() <= 5, "{run_here:#?}");
    let outputs = run(folder.path(), &run_here);
    for (part, printed) in PRINTS {
        let at = run_here.iter().position(|command| command.contains(part));
        let at = at.unwrap_or_else(|| panic!("docs/start.md has no command with `{part}`"));
        assert!(
            outputs[at].contains(printed),
            "`{}` does not print `{printed}`:\n{}",
            run_here[at],
            outputs[at]
        );
    }
    let report = fs::read_to_string(folder.path().join("report.html")).unwrap();
    assert!(report.contains("id=\"what-if\""));
}

#[test]
fn commands_are_found_in_a_page() {
    let text = "# A\n\n    one   # said\n    two \\\n      three\n\nprose\n\n    four\n";
    assert_eq!(commands(text), ["one", "two three", "four"]);
    assert_eq!(adapted_command("cargo build", "a"), None);
}
