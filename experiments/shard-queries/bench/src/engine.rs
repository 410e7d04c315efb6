//! An engine: a process that answers queries, and the protocol that it speaks.
//!
//! It is given a folder with `text`, `extracts` (offsets, four bytes each, little-endian) and
//! `patterns` (each with its length in four bytes before it). When it is ready it writes the bytes
//! that its index takes. Then it answers lines of `QUERY BATCH FIRST COUNT` by `NANOSECONDS
//! CHECKSUM`: COUNT queries from the one of number FIRST on, BATCH of them at a time, beginning
//! anew after the last one; the time that they took, by the engine's own clock, and the fold of the
//! answers' checksums. It ends with its input.

use std::fmt::{self, Display};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use anyhow::{Context as _, bail};
use serde::Serialize;

/// A kind of query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Query {
    /// 64 bytes from a random offset.
    #[serde(rename = "extract-64")]
    Extract64,
    /// 1024 bytes from a random offset.
    #[serde(rename = "extract-1024")]
    Extract1024,
    /// How often a pattern occurs.
    Count,
    /// Where a pattern occurs.
    Search,
    /// No query: a dependent access to memory.
    Access,
}

impl Query {
    /// All queries that an index answers.
    pub const ALL: [Query; 4] = [Query::Extract64, Query::Extract1024, Query::Count, Query::Search];

    /// Its name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Query::Extract64 => "extract-64",
            Query::Extract1024 => "extract-1024",
            Query::Count => "count",
            Query::Search => "search",
            Query::Access => "access",
        }
    }
}

/// Queries that are answered in one timed stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Their kind.
    pub query: Query,
    /// So many at a time.
    pub batch: usize,
    /// Number of the first one.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {} {}", self.query.name(), self.batch, self.first, self.count)
    }
}

impl FromStr for Slice {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> anyhow::Result<Slice> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [name, batch, first, count] = words[..] else { bail!("not a command: {line:?}") };
        let mut queries = Query::ALL.into_iter().chain([Query::Access]);
        let query = queries.find(|query| query.name() == name);
        let query = query.with_context(|| format!("unknown query {name:?}"))?;
        let number = |word: &str| -> anyhow::Result<usize> {
            word.parse().with_context(|| format!("{word:?} in {line:?} is not a number"))
        };
        let (batch, first, count) = (number(batch)?, number(first)?, number(count)?);
        if batch == 0 {
            bail!("a batch of nothing: {line:?}");
        }
        Ok(Slice { query, batch, first, count })
    }
}

/// What an engine says of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Nanoseconds that it took.
    pub ns: u64,
    /// The fold of its answers' checksums.
    pub checksum: u64,
}

/// The engine's side: says that the index takes `bytes`, then has `answer` give the checksum of
/// each slice.
///
/// # Errors
/// If a line is not a command, or an answer fails.
pub fn serve(
    bytes: usize,
    mut answer: impl FnMut(&Slice) -> anyhow::Result<u64>,
) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{bytes}")?;
    output.flush()?;
    for line in std::io::stdin().lock().lines() {
        let slice = line?.parse()?;
        let start = Instant::now();
        let checksum = answer(&slice)?;
        let ns = start.elapsed().as_nanos();
        writeln!(output, "{ns} {checksum}")?;
        output.flush()?;
    }
    Ok(())
}

/// An engine that runs; it ends when this is dropped.
pub struct Engine {
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Engine {
    /// Starts one; it prepares itself meanwhile. Its errors go to this process's.
    ///
    /// # Errors
    /// If the program is missing.
    pub fn start(name: &str, command: &mut Command) -> anyhow::Result<Engine> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("an engine without output")?);
        Ok(Engine { name: name.to_owned(), child, input, output })
    }

    /// Waits until it is ready; the bytes that its index takes.
    ///
    /// # Errors
    /// If it ends instead.
    pub fn ready(&mut self) -> anyhow::Result<u64> {
        let line = self.line()?;
        line.trim().parse().with_context(|| format!("{} said {line:?}, not its size", self.name))
    }

    /// Has it answer a slice.
    ///
    /// # Errors
    /// If it ends, or says something else.
    pub fn ask(&mut self, slice: &Slice) -> anyhow::Result<Answer> {
        let input = self.input.as_mut().context("an engine without input")?;
        writeln!(input, "{slice}").with_context(|| format!("{} does not listen", self.name))?;
        let line = self.line()?;
        let words = line.trim().split_once(' ');
        let answer = words.and_then(|(ns, sum)| Some((ns.parse().ok()?, sum.parse().ok()?)));
        let (ns, checksum) =
            answer.with_context(|| format!("{} said {line:?} to {slice}", self.name))?;
        Ok(Answer { ns, checksum })
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            bail!("{} ended: {status}", self.name);
        }
        Ok(line)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // It ends with its input; one that still prepares itself does not read.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_as_they_are_written() {
        for query in Query::ALL {
            let slice = Slice { query, batch: 16, first: 3, count: 1 << 20 };
            assert_eq!(slice.to_string().parse::<Slice>().unwrap(), slice);
        }
        for line in ["", "count", "count 1 2", "count 0 1 1", "count 1 -1 1", "grep 1 1 1"] {
            assert!(line.parse::<Slice>().is_err(), "{line:?}");
        }
    }

    #[test]
    fn an_engine_that_ends_or_says_nonsense_is_named() {
        let mut ended = Engine::start("false", &mut Command::new("false")).unwrap();
        assert!(ended.ready().unwrap_err().to_string().contains("false ended"));
        let mut echo = Engine::start("cat", &mut Command::new("cat")).unwrap();
        let slice = Slice { query: Query::Count, batch: 1, first: 0, count: 1 };
        let said = echo.ask(&slice).unwrap_err().to_string();
        assert!(said.contains("cat said \"count 1 0 1"), "{said}");
    }
}
