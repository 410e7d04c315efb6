//! What a command says, on standard output.
//!
//! Whoever reads it may have seen enough (`| head`): that is no error and no panic. A command that only prints records
//! ends there; one that says what came of it goes on in silence to its exit code. A connection that breaks has the
//! same kind of error, and is one.

use std::fmt;
use std::io::{self, StdoutLock, Write};

/// Standard output. Its errors can be told from those of files and connections by [`is_unread`].
#[derive(Debug)]
pub(super) struct Output(StdoutLock<'static>);

/// Standard output, locked until it is dropped.
pub(super) fn output() -> Output {
    Output(io::stdout().lock())
}

#[derive(Debug)]
struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nobody reads the output any more")
    }
}

impl std::error::Error for Unread {}

fn told_apart(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::BrokenPipe => io::Error::new(kind, Unread),
        _ => error,
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(told_apart)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(told_apart)
    }
}

/// Whether a command ended because nobody reads its output any more.
pub(super) fn is_unread(error: &anyhow::Error) -> bool {
    let of_output = |cause: &io::Error| cause.get_ref().is_some_and(|inner| inner.is::<Unread>());
    error.chain().any(|cause| cause.downcast_ref().is_some_and(of_output))
}

/// What came of saying something that the rest of a command does not depend on: no error if nobody reads it.
pub(super) fn said(result: io::Result<()>) -> anyhow::Result<()> {
    result.map_err(anyhow::Error::from).or_else(|error| match is_unread(&error) {
        true => Ok(()),
        false => Err(error.context("cannot write to standard output")),
    })
}

/// As `print!`, with an error where that panics, and none if nobody reads: the command goes on, so that its exit code
/// is the same. For functions that return [`anyhow::Result`].
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::cli::output::said(std::io::Write::write_fmt(
            &mut $crate::cli::output::output(),
            format_args!($($argument)*),
        ))?
    };
}

/// As `println!`, in the way of [`out`].
macro_rules! outln {
    () => { $crate::cli::output::out!("\n") };
    ($($argument:tt)*) => { $crate::cli::output::out!("{}\n", format_args!($($argument)*)) };
}

/// As `eprintln!`, which panics where nobody reads (`2>&1 | head`): what cannot be said is not.
macro_rules! errln {
    ($($argument:tt)*) => {{
        let line = format_args!("{}\n", format_args!($($argument)*));
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), line));
    }};
}

pub(super) use {errln, out, outln};

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn only_broken_output_is_unread() {
        let broken = || io::Error::from(io::ErrorKind::BrokenPipe);
        let of_output = Err::<(), _>(told_apart(broken())).context("cannot say it").unwrap_err();
        assert!(is_unread(&of_output), "{of_output:#}");
        let of_connection = Err::<(), _>(broken()).context("cannot send it").unwrap_err();
        assert!(!is_unread(&of_connection), "{of_connection:#}");
        let full = || told_apart(io::ErrorKind::StorageFull.into());
        assert!(!is_unread(&full().into()));
        assert!(said(Err(told_apart(broken()))).is_ok());
        assert!(said(Err(full())).is_err());
    }
}
