//! The first lines of a file, by which its format is recognised.

use crate::import::split::{self, Quote, Word};
use crate::import::time;

/// Lines by which a format is recognised.
const LINES: usize = 400;

/// The first lines of a file, without empty ones.
pub(super) struct Sample {
    pub lines: Vec<String>,
}

impl Sample {
    pub fn new(head: &[u8]) -> Sample {
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let text = String::from_utf8_lossy(head);
        let mut lines: Vec<String> = text
            .lines()
            .map(|line| line.trim_end().to_owned())
            .filter(|line| !line.is_empty())
            .take(LINES)
            .collect();
        // The last may be cut.
        if lines.len() > 1 && lines.len() < LINES && !head.ends_with(b"\n") {
            lines.pop();
        }
        Sample { lines }
    }

    pub fn first(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }

    /// Whether at least nine in ten of the lines are so.
    pub fn mostly(&self, is_so: impl Fn(&str) -> bool) -> bool {
        let count = self.lines.iter().filter(|line| is_so(line)).count();
        count > 0 && count * 10 >= self.lines.len() * 9
    }
}

/// The words of a line from its time in brackets on; `None` if it has none.
pub(super) fn from_time(line: &str) -> Option<Vec<Word<'_>>> {
    let mut words = split::words(line);
    let is_time = |word: &Word<'_>| {
        word.quote == Quote::Bracketed && time::moment(&word.text, None).is_some()
    };
    let first = words.iter().position(is_time)?;
    words.drain(..first);
    Some(words)
}
