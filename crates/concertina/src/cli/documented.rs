//! Every command line that the documents and the help show is one that the program takes.
//!
//! An option that gets another name, and an argument that another form replaces, would live on in examples that nobody
//! runs. This checks the words alone; what the commands do is tested end to end.

use std::fs;
use std::path::{Path, PathBuf};

/// A command line with where it stands.
struct Documented {
    place: String,
    line: String,
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut all = vec![root.join("README.md"), root.join("CONTRIBUTING.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "md") {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The command lines of a text: those of indented or fenced blocks that have `concertina` where a command begins. A line
/// that ends with a backslash goes on.
fn command_lines(place: &str, text: &str) -> Vec<Documented> {
    let (mut found, mut is_fenced) = (Vec::new(), false);
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
            continue;
        }
        if !is_fenced && !line.starts_with("  ") {
            continue;
        }
        let mut whole = line.trim().to_owned();
        while let Some(begun) = whole.strip_suffix('\\') {
            let next = lines.next().unwrap_or_default().trim();
            whole = format!("{} {next}", begun.trim_end());
        }
        // Behind a pipe or another command, too.
        let begin = ["", "| ", "&& ", "; "].iter().find_map(|before| {
            let begin = format!("{before}concertina ");
            match before.is_empty() {
                true => whole.starts_with(&begin).then_some(0),
                false => whole.find(&begin).map(|at| at + before.len()),
            }
        });
        if let Some(at) = begin {
            found.push(Documented { place: place.to_owned(), line: whole[at..].to_owned() });
        }
    }
    found
}

/// The examples that the help of a command and of all below it ends with.
fn examples_of_help(command: &clap::Command, found: &mut Vec<Documented>) {
    if let Some(text) = command.get_after_help() {
        let place = format!("--help of {}", command.get_name());
        found.extend(command_lines(&place, &text.to_string()));
    }
    command.get_subcommands().for_each(|below| examples_of_help(below, found));
}

/// The words of a command line without what a shell or a reader takes: redirections, pipes, a background, explanations
/// behind `#` or four spaces. `None` for a line that shows a form and no command (`…`).
fn words(line: &str) -> Option<Vec<String>> {
    let (command, _) = line.split_once("    ").unwrap_or((line, ""));
    if command.contains('…') {
        return None;
    }
    let words = shlex::split(command)?;
    let ends =
        |word: &String| matches!(word.as_str(), "|" | "&" | "&&" | ";" | ">" | ">>" | "2>" | "<");
    Some(words.into_iter().take_while(|word| !ends(word)).collect())
}

#[test]
fn every_documented_command_is_one() {
    let mut all = Vec::new();
    for path in documents() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        all.extend(command_lines(&name, &text));
    }
    examples_of_help(&super::command(), &mut all);
    // The search finds them: there were 158 in the documents alone.
    assert!(all.len() > 200, "{} command lines", all.len());
    let mut refused = Vec::new();
    for Documented { place, line } in &all {
        let Some(words) = words(line) else { continue };
        if let Err(error) = super::command().try_get_matches_from(words)
            && error.use_stderr()
        {
            let why = error.to_string();
            // A law that is a file is read with the words: its form is right where the file alone is missing.
            if why.contains("No such file") {
                continue;
            }
            refused
                .push(format!("{place}: {line}\n    {}", why.lines().next().unwrap_or_default()));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

/// The first that somebody looks for in a help is a line to copy.
#[test]
fn every_help_shows_how_the_command_is_used() {
    for command in super::command().get_subcommands() {
        let name = command.get_name();
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let shown = command_lines(name, &text).into_iter().map(|shown| shown.line);
        let begin = format!("concertina {name}");
        assert!(
            shown.into_iter().any(|line| line.starts_with(&begin)),
            "{name} has no example: {text}"
        );
    }
}

#[test]
fn command_lines_are_found_where_they_are() {
    let text = "concertina in a sentence\n\n    make it | concertina data import - --name x\n    concertina load URL \\\n      --rate 5   # why\n\
                ```sh\nconcertina serve &\n```\n    concertinas\n    see concertina in a block\n";
    let found: Vec<String> = command_lines("a", text).into_iter().map(|one| one.line).collect();
    assert_eq!(
        found,
        [
            "concertina data import - --name x",
            "concertina load URL --rate 5   # why",
            "concertina serve &"
        ]
    );
    assert_eq!(
        words("concertina serve --set 'a=\"b c\"' &").unwrap(),
        ["concertina", "serve", "--set", "a=\"b c\""]
    );
    assert_eq!(words("concertina why        what it did").unwrap(), ["concertina", "why"]);
    assert!(words("concertina load … --out x").is_none());
}
