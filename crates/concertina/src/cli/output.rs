//! Writing to standard output and standard error.
//!
//! A reader may close the pipe early (`| head`), which is neither an error nor a panic. A command
//! that only prints records ends there; a command whose exit code carries a result continues
//! silently. A broken network connection has the same kind of I/O error, but remains an error.

use std::fmt;
use std::io::{self, StdoutLock, Write};

/// Locked standard output. [`is_unread`] distinguishes its errors from those of files and
/// connections.
#[derive(Debug)]
pub(super) struct Output(StdoutLock<'static>);

/// Locks standard output until the result is dropped.
pub(super) fn output() -> Output {
    Output(io::stdout().lock())
}

#[derive(Debug)]
struct Unread;

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the reader of the output has closed it")
    }
}

impl std::error::Error for Unread {}

fn mark_unread(error: io::Error) -> io::Error {
    match error.kind() {
        kind @ io::ErrorKind::BrokenPipe => io::Error::new(kind, Unread),
        _ => error,
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(mark_unread)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(mark_unread)
    }
}

/// Whether a command failed because the reader closed its output.
pub(super) fn is_unread(error: &anyhow::Error) -> bool {
    let of_output = |cause: &io::Error| cause.get_ref().is_some_and(|inner| inner.is::<Unread>());
    error.chain().any(|cause| cause.downcast_ref().is_some_and(of_output))
}

/// Converts the result of writing output that the rest of a command does not depend on. A closed
/// pipe is not an error.
pub(super) fn unless_unread(result: io::Result<()>) -> anyhow::Result<()> {
    result.map_err(anyhow::Error::from).or_else(|error| match is_unread(&error) {
        true => Ok(()),
        false => Err(error.context("cannot write to standard output")),
    })
}

/// Like `print!`, but returns an error where `print!` panics, and ignores a closed pipe, so that
/// the command continues and its exit code stays the same. For functions that return
/// [`anyhow::Result`].
macro_rules! out {
    ($($argument:tt)*) => {
        $crate::cli::output::unless_unread(std::io::Write::write_fmt(
            &mut $crate::cli::output::output(),
            format_args!($($argument)*),
        ))?
    };
}

/// Like `println!`; see [`out`].
macro_rules! outln {
    () => { $crate::cli::output::out!("\n") };
    ($($argument:tt)*) => { $crate::cli::output::out!("{}\n", format_args!($($argument)*)) };
}

/// Like `eprintln!`, but ignores errors where `eprintln!` panics (`2>&1 | head`).
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
        let of_output = Err::<(), _>(mark_unread(broken())).context("cannot say it").unwrap_err();
        assert!(is_unread(&of_output), "{of_output:#}");
        let of_connection = Err::<(), _>(broken()).context("cannot send it").unwrap_err();
        assert!(!is_unread(&of_connection), "{of_connection:#}");
        let full = || mark_unread(io::ErrorKind::StorageFull.into());
        assert!(!is_unread(&full().into()));
        assert!(unless_unread(Err(mark_unread(broken()))).is_ok());
        assert!(unless_unread(Err(full())).is_err());
    }
}
