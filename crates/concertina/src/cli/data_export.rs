//! `concertina data export`: writes all records of a dataset unchanged, from its files or from a
//! server, to standard output or to a file, which is created completely or not at all.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::data_dataset::DatasetArgs;
use super::data_print as print;
use crate::cli::output::{errln, output};
use crate::remote::export::{Export, Exported, PATIENCE, of_server};
use crate::remote::server::Server;
use dataset::files;

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
    one: DatasetArgs,
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
    one: &DatasetArgs,
    server: &Option<Server>,
    bar: &ProgressBar,
    out: &mut dyn Write,
) -> anyhow::Result<Exported> {
    let mut export = Export { out, bar, done: Exported::default() };
    match one.served_on(server) {
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
    use super::*;

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
