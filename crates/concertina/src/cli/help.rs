//! The text that a command's help ends with.

use clap::Command;

/// A command and all below it, with help whose paragraphs are wrapped where the terminal ends, as descriptions of options are,
/// and not where the source does.
pub(super) fn with_paragraphs(command: Command) -> Command {
    let text = command.get_after_help().map(|text| joined(&text.to_string()));
    let command = match text {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(with_paragraphs)
}

/// The text with each paragraph on one line. A line that is indented, and one before it, stand for themselves: examples, tables
/// and their headings.
fn joined(text: &str) -> String {
    let begins_text = |line: &str| line.starts_with(|first: char| !first.is_whitespace());
    let mut joined = String::new();
    for line in text.lines() {
        let last = joined.lines().next_back().unwrap_or_default();
        if begins_text(line) && begins_text(last) && joined.ends_with(last) {
            joined.push(' ');
        } else if !joined.is_empty() {
            joined.push('\n');
        }
        joined.push_str(line);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of the widest line that is shown as it is (`max_term_width`).
    const COLUMNS: usize = 100;

    #[test]
    fn paragraphs_are_lines_and_examples_stay() {
        let text = "Examples:\n  concertina a\n  concertina b\n\nOne\ntwo\nthree.\n\nForms:\n  x\nand\nmore";
        let expected =
            "Examples:\n  concertina a\n  concertina b\n\nOne two three.\n\nForms:\n  x\nand more";
        assert_eq!(joined(text), expected);
        assert_eq!(joined(""), "");
    }

    fn wide(command: &Command, found: &mut Vec<String>) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with(' '));
        let lines = lines.filter(|line| line.chars().count() > COLUMNS);
        found.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        command.get_subcommands().for_each(|below| wide(below, found));
    }

    #[test]
    fn examples_are_not_wrapped() {
        let mut found = Vec::new();
        wide(&crate::cli::command(), &mut found);
        assert!(found.is_empty(), "{}", found.join("\n"));
    }
}
