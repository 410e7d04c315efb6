//! `concertina data export`: writes all records of a dataset unchanged, from its files or from a
//! server.
//!
//! A server sends one piece at a time, and the next is requested once the previous is written, so
//! neither side buffers more. Records appended after the first piece was sent are not exported. A
//! failed piece is requested again for up to [`PATIENCE`]. An incomplete export is an error, and an
//! output file is created completely or not at all.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::data::One;
use super::data_print as print;
use super::data_served::{Run, Served};
use super::data_server::Server;
use crate::cli::output::{errln, output};
use dataset::files;

/// How long a piece is requested again, after the first piece arrived.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between attempts.
const PAUSE: Duration = Duration::from_millis(200);

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data export packages > packages.txt
  concertina data export packages --out packages.txt --json
  concertina data export packages --server http://127.0.0.1:7070 --out packages.txt

Records are written unchanged and in order, without deleted ones, those of the log last. FILE is created
once the export is complete; after an error, the output on standard output is incomplete. If the dataset
changes meanwhile, the export contains each record that existed at the start and was not deleted.")]
pub(super) struct Args {
    #[command(flatten)]
    one: One,
    /// Write this file instead of standard output, completely or not at all
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace FILE
    #[arg(long, requires = "out")]
    replace: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// The progress of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exported {
    records: u64,
    bytes: u64,
}

/// An export in progress.
struct Export<'a> {
    out: &'a mut dyn Write,
    bar: &'a ProgressBar,
    done: Exported,
}

impl Export<'_> {
    /// Writes some records; the next one has the id `next`.
    fn take(&mut self, bytes: &[u8], records: u64, next: u64) -> anyhow::Result<()> {
        self.out.write_all(bytes)?;
        self.done.records += records;
        self.done.bytes += bytes.len() as u64;
        self.bar.set_position(next);
        Ok(())
    }
}

/// Runs the command.
pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let local = &args.one.local;
    let server = args.one.server.find()?;
    if let Some(path) = &args.out {
        check(path, args.replace)?;
    }
    // On a terminal the progress bar would mix with the records.
    let shown = !args.quiet && (args.out.is_some() || !io::stdout().is_terminal());
    let bar = progress(shown);
    let done = match &args.out {
        Some(path) => write_whole(path, args.replace, |out| export(&args.one, &server, &bar, out)),
        None => write_out(|out| export(&args.one, &server, &bar, out)),
    };
    bar.finish_and_clear();
    let Exported { records, bytes } = done?;
    let summary = json!({ "records": records, "bytes": bytes });
    match &args.out {
        Some(_) if local.json => print::value(&summary),
        Some(path) => {
            let (name, shown) = (&local.name, path.display());
            print::line(&format!("{name}: wrote {records} records, {bytes} B, to {shown}"))
        }
        None => {
            if local.json {
                // Standard output carries the records, so print no result there.
                errln!("{summary}");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn export(
    one: &One,
    server: &Option<Server>,
    bar: &ProgressBar,
    out: &mut dyn Write,
) -> anyhow::Result<Exported> {
    let mut export = Export { out, bar, done: Exported::default() };
    match one.of(server) {
        Some(served) => of_server(&served, PATIENCE, &mut export)?,
        None => {
            let dataset = one.local.open()?;
            bar.set_length(dataset.end_id());
            dataset.runs(&mut |run| export.take(&run.bytes, run.records, run.next))?;
        }
    }
    Ok(export.done)
}

fn progress(shown: bool) -> ProgressBar {
    if !shown {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{spinner} {elapsed_precise} {human_pos} of {human_len} records {bar:30}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Exports from a server.
fn of_server(
    served: &Served<'_>,
    patience: Duration,
    export: &mut Export<'_>,
) -> anyhow::Result<()> {
    let first = served.run(0, None)?;
    let (end, dataset) = (first.end, first.dataset.clone());
    let mut next = first.next;
    export.bar.set_length(end);
    export.take(&first.bytes, first.records, next)?;
    while next < end {
        let run = patiently(served, next..end, patience);
        let run = run.with_context(|| format!("the export failed before record {next}"))?;
        ensure!(
            run.dataset == dataset,
            "the dataset was replaced before record {next} was exported; export it again"
        );
        next = run.next;
        export.take(&run.bytes, run.records, next)?;
    }
    Ok(())
}

/// Requests the next of these records, with retries if the server is busy or briefly unreachable.
fn patiently(served: &Served<'_>, ids: Range<u64>, patience: Duration) -> anyhow::Result<Run> {
    let begun = Instant::now();
    loop {
        let why = match served.run(ids.start, Some(ids.end)) {
            Ok(run) if ids.start < run.next && run.next <= ids.end => return Ok(run),
            // The server may not have seen records that others appended a moment ago.
            Ok(_) => anyhow::anyhow!("{} does not send it", served.url()),
            Err(refused) if refused.may_pass() => refused.into(),
            Err(refused) => return Err(refused.into()),
        };
        if begun.elapsed() >= patience {
            return Err(why);
        }
        std::thread::sleep(PAUSE);
    }
}

fn write_out(
    export: impl FnOnce(&mut dyn Write) -> anyhow::Result<Exported>,
) -> anyhow::Result<Exported> {
    let mut out = io::BufWriter::with_capacity(1 << 20, output());
    let done = export(&mut out)?;
    out.flush()?;
    Ok(done)
}

/// Checks whether a file may be written, before the export starts.
fn check(path: &Path, replace: bool) -> anyhow::Result<()> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Ok(there) => {
            ensure!(there.is_file(), "{shown} is not a regular file; name another");
            ensure!(replace, "{shown} exists; name another file, or replace it (--replace)");
            Ok(())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot write {shown}")),
    }
}

fn write_whole(
    path: &Path,
    replace: bool,
    export: impl FnOnce(&mut dyn Write) -> anyhow::Result<Exported>,
) -> anyhow::Result<Exported> {
    let shown = path.display();
    let name = path.file_name().and_then(OsStr::to_str);
    let name = name.with_context(|| format!("invalid file name {shown}"))?;
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut done = None;
    let written = files::write(folder, name, replace, |out| {
        done = Some(export(out).map_err(|error| io::Error::other(format!("{error:#}")))?);
        Ok(())
    });
    written.with_context(|| format!("cannot export to {shown}"))?;
    done.context("an export that is written was counted")
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    use super::*;

    /// A piece of the dataset `id`, which has four records.
    fn piece(next: u64, id: &str, body: &str) -> String {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconcertina-next: {next}\r\n\
             concertina-records: 1\r\nconcertina-end: 4\r\nconcertina-dataset: {id}\r\n\r\n{body}",
            body.len()
        )
    }

    const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 4\r\n\r\nbusy";

    /// A server that sends these replies, each to its own connection, and then returns the
    /// requests.
    fn scripted(replies: Vec<String>) -> (Server, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = move |reply: String| {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let asked = lines.next().unwrap();
            while !lines.next().unwrap().is_empty() {}
            (&stream).write_all(reply.as_bytes()).unwrap();
            asked
        };
        let asked = std::thread::spawn(move || replies.into_iter().map(answer).collect());
        (Server::new(&url, None).unwrap(), asked)
    }

    /// Runs an export; returns the written bytes, the result and the requests.
    fn exported(
        replies: Vec<String>,
        patience: Duration,
    ) -> (String, anyhow::Result<Exported>, Vec<String>) {
        let (server, asked) = scripted(replies);
        let (mut out, bar) = (Vec::new(), ProgressBar::hidden());
        let mut export = Export { out: &mut out, bar: &bar, done: Exported::default() };
        let result = of_server(&Served::new(&server, "d"), patience, &mut export);
        let result = result.map(|()| export.done);
        (String::from_utf8(out).unwrap(), result, asked.join().unwrap())
    }

    #[test]
    fn pieces_are_put_together_up_to_the_first_ones_end() {
        let replies = vec![piece(1, "a", "one\n"), BUSY.to_owned(), piece(4, "a", "two\n")];
        let (out, result, asked) = exported(replies, Duration::from_secs(20));
        assert_eq!(out, "one\ntwo\n");
        assert_eq!(result.unwrap(), Exported { records: 2, bytes: 8 });
        let get = |query: &str| format!("GET /datasets/d/export?{query} HTTP/1.1");
        assert_eq!(asked, [get("from=0"), get("from=1&to=4"), get("from=1&to=4")]);
    }

    #[test]
    fn what_breaks_off_is_an_error_that_says_where() {
        let first = || piece(1, "a", "one\n");
        let long = piece(4, "a", "two\n").replace("length: 4", "length: 9");
        for (second, says) in [
            (BUSY.to_owned(), "503 Service Unavailable: busy"),
            (long, "broke"),
            (piece(1, "a", ""), "does not send it"),
            (piece(5, "a", "more\n"), "does not send it"),
            (piece(4, "b", "two\n"), "was replaced"),
            (BUSY.replace("503 Service Unavailable", "404 Not Found"), "404 Not Found"),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_owned(), "same version"),
        ] {
            let (out, result, _) = exported(vec![first(), second], Duration::ZERO);
            let error = format!("{:#}", result.unwrap_err());
            assert_eq!(out, "one\n", "{error}");
            assert!(error.contains("before record 1") && error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_file_is_there_once_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.txt");
        let write = |replace: bool, text: &'static str, fails: bool| {
            write_whole(&path, replace, |out| {
                out.write_all(text.as_bytes())?;
                ensure!(!fails, "no more");
                Ok(Exported::default())
            })
        };
        let count = || std::fs::read_dir(folder.path()).unwrap().count();
        let error = format!("{:#}", write(false, "half", true).unwrap_err());
        assert!(error.contains("all.txt: no more"), "{error}");
        assert_eq!(count(), 0);
        write(false, "all", false).unwrap();
        assert!(check(&path, false).is_err() && check(folder.path(), true).is_err());
        check(&path, true).unwrap();
        assert!(write(true, "half", true).is_err() && write(false, "other", false).is_err());
        assert_eq!((std::fs::read_to_string(&path).unwrap().as_str(), count()), ("all", 1));
        write(true, "new", false).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }
}
