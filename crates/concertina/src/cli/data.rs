//! `concertina data`.

use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;
use shard::query::{Pattern, Query};
use shard::record::Format;

use super::data_import as import;
use crate::dataset::{Dataset, Wanted, Writer};

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  apt-cache dumpavail | concertina data import - --format stanzas --name packages
  concertina data search packages Maintainer:python
  concertina data search packages 'Section:=admin AND Installed-Size:..100' --limit 5
  concertina data get packages --key nano
  concertina data count packages 'Package:^lib'
  concertina data grep packages '^Package: lib.*-dev$' --limit 3
  concertina data info packages --json
  concertina data delete packages 17 && concertina data export packages > packages.txt

A dataset is a folder in --folder; NAME may also be the path of a shard's own file. docs/queries.md
says what a query can be.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a dataset of files, or of standard input
    Import(import::Args),
    /// The datasets of a folder
    List(ListArgs),
    /// What a dataset holds and takes
    Info(One),
    /// Records by id, or by key
    Get(GetArgs),
    /// The records that match a query
    Search(SearchArgs),
    /// How many records match a query, or how often some bytes occur
    Count(CountArgs),
    /// The records that hold a match of a regular expression
    Grep(GrepArgs),
    /// Bytes of the text, from an offset
    Extract(ExtractArgs),
    /// All records, as they came, on standard output
    Export(One),
    /// Append records, durably
    Append(AppendArgs),
    /// Delete records by id, durably
    Delete(DeleteArgs),
    /// Make a shard of what was appended
    Seal(One),
}

/// A dataset, and how the answer is printed.
#[derive(clap::Args)]
struct One {
    /// The dataset, or the path of a shard's file
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct ListArgs {
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct GetArgs {
    #[command(flatten)]
    one: One,
    /// Ids, as a search gives them
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    ids: Vec<u64>,
    /// The record with this key instead
    #[arg(long)]
    key: Option<String>,
}

#[derive(clap::Args)]
struct PageArgs {
    /// Records at most
    #[arg(long, default_value = "10")]
    limit: usize,
    /// Go on after this id: what the page before says
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// The first that are found, in no order: faster where many match
    #[arg(long, conflicts_with = "after")]
    unsorted: bool,
}

#[derive(clap::Args)]
struct SearchArgs {
    #[command(flatten)]
    one: One,
    /// The query; several words are joined by blanks
    #[arg(required = true)]
    query: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(clap::Args)]
struct GrepArgs {
    #[command(flatten)]
    one: One,
    /// The regular expression, in the syntax of the crate `regex`; `^` and `$` are those of a line
    pattern: String,
    #[command(flatten)]
    page: PageArgs,
}

#[derive(clap::Args)]
struct CountArgs {
    #[command(flatten)]
    one: One,
    /// The query; several words are joined by blanks
    #[arg(required_unless_present = "bytes", conflicts_with = "bytes")]
    query: Vec<String>,
    /// How often these bytes occur in the shards instead, overlaps included
    #[arg(long)]
    bytes: Option<String>,
}

#[derive(clap::Args)]
struct ExtractArgs {
    #[command(flatten)]
    one: One,
    /// Offset of the first byte
    offset: u64,
    /// How many
    len: u64,
}

#[derive(clap::Args)]
struct AppendArgs {
    #[command(flatten)]
    one: One,
    /// Files of records, `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    one: One,
    /// Ids, as a search gives them
    #[arg(required = true)]
    ids: Vec<u64>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let result = match args.command {
        Command::Import(args) => import::run(&args),
        Command::List(args) => list(&args),
        Command::Info(args) => info(&args),
        Command::Get(args) => get(&args),
        Command::Search(args) => {
            let query: Query = args.query.join(" ").parse()?;
            search(&args.one, &query, &args.page)
        }
        Command::Grep(args) => {
            let pattern = Pattern::new(&format!("(?m){}", args.pattern))?;
            let condition = shard::query::Condition::Matches(pattern);
            let query = Query::Test(shard::query::Test { attribute: None, condition });
            search(&args.one, &query, &args.page)
        }
        Command::Count(args) => count(&args),
        Command::Extract(args) => extract(&args),
        Command::Export(args) => export(&args),
        Command::Append(args) => append(&args),
        Command::Delete(args) => delete(&args),
        Command::Seal(args) => seal(&args),
    };
    match result {
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        result => result,
    }
}

/// Whoever read the output has seen enough (`| head`).
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_io = |e: &io::Error| e.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(of_io))
}

fn path_of(one: &One) -> PathBuf {
    let as_file = Path::new(&one.name);
    if as_file.is_file() { as_file.to_owned() } else { one.folder.join(&one.name) }
}

fn open(one: &One) -> anyhow::Result<Dataset> {
    let path = path_of(one);
    Dataset::open(&path).with_context(|| missing(one, &path))
}

fn write(one: &One) -> anyhow::Result<Writer> {
    let path = path_of(one);
    Writer::open(&path).with_context(|| missing(one, &path))
}

fn missing(one: &One, path: &Path) -> String {
    if path.exists() {
        format!("dataset {}", one.name)
    } else {
        let folder = one.folder.display();
        format!("there is no dataset {} in {folder} (concertina data list; --folder)", one.name)
    }
}

fn print(out: &mut dyn Write, value: &serde_json::Value) -> anyhow::Result<ExitCode> {
    writeln!(out, "{}", serde_json::to_string_pretty(value)?)?;
    Ok(ExitCode::SUCCESS)
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let folder = args.folder.display();
    let mut names = Vec::new();
    let entries =
        std::fs::read_dir(&args.folder).with_context(|| format!("cannot read {folder}"))?;
    for entry in entries {
        let entry = entry?;
        if entry.path().join(crate::dataset::manifest::FILE).is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let mut out = io::stdout().lock();
    let mut all = Vec::new();
    for name in names {
        match Dataset::open(&args.folder.join(&name)) {
            Ok(dataset) => {
                let info = dataset.info();
                if !args.json {
                    let percent = 100.0 * info.footprint;
                    let bytes = info.shard_bytes;
                    writeln!(out, "{name}\t{} records\t{bytes} B\t{percent:.1} %", info.records)?;
                }
                all.push(json!({ "name": name, "info": info }));
            }
            Err(error) => {
                eprintln!("concertina: {name}: {error:#}");
                all.push(json!({ "name": name, "error": format!("{error:#}") }));
            }
        }
    }
    if args.json { print(&mut out, &json!(all)) } else { Ok(ExitCode::SUCCESS) }
}

fn info(one: &One) -> anyhow::Result<ExitCode> {
    let info = open(one)?.info();
    let mut out = io::stdout().lock();
    if one.json {
        return print(&mut out, &json!(info));
    }
    writeln!(out, "records     {} ({} of them in the log)", info.records, info.in_log)?;
    writeln!(out, "deleted     {}", info.deleted)?;
    writeln!(out, "input       {} B", info.input_bytes)?;
    writeln!(out, "shards      {} of {} B", info.shards.len(), info.shard_bytes)?;
    writeln!(out, "footprint   {:.3} of the input", info.footprint)?;
    writeln!(out, "key         {}", info.key.as_deref().unwrap_or("none"))?;
    writeln!(out, "attributes  {}", info.attributes.join(", "))?;
    Ok(ExitCode::SUCCESS)
}

fn get(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let dataset = open(&args.one)?;
    let ids = match &args.key {
        None => args.ids.clone(),
        Some(key) => {
            let id = dataset.id_of(key)?;
            vec![id.with_context(|| format!("no record has the key {key:?}"))?]
        }
    };
    show(&args.one, &dataset, &ids, None)
}

/// Prints records; `more` says how to go on.
fn show(
    one: &One,
    dataset: &Dataset,
    ids: &[u64],
    found: Option<&crate::dataset::Found>,
) -> anyhow::Result<ExitCode> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut records = Vec::new();
    for &id in ids {
        let record = dataset.get(id)?;
        if one.json {
            // A record need not be text: what is none is shown as its bytes.
            let text = match String::from_utf8(record) {
                Ok(text) => json!({ "id": id, "record": text }),
                Err(error) => json!({ "id": id, "bytes": error.into_bytes() }),
            };
            records.push(text);
            continue;
        }
        out.write_all(&record)?;
        if !record.ends_with(b"\n") {
            out.write_all(b"\n")?;
        }
    }
    if one.json {
        let value = match found {
            Some(found) => {
                json!({ "records": records, "next": found.next, "has_more": found.has_more,
                "located": found.located, "verified": found.verified })
            }
            None => json!({ "records": records }),
        };
        print(&mut out, &value)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn search(one: &One, query: &Query, page: &PageArgs) -> anyhow::Result<ExitCode> {
    let dataset = open(one)?;
    let wanted = Wanted { limit: page.limit, after: page.after, sorted: !page.unsorted };
    let found = dataset.search(query, &wanted)?;
    show(one, &dataset, &found.ids, Some(&found))?;
    if !one.json && io::stderr().is_terminal() {
        match found.next {
            Some(next) => eprintln!("{} records; more: --after {next}", found.ids.len()),
            None if found.has_more => eprintln!("{} records of more", found.ids.len()),
            None => eprintln!("{} records", found.ids.len()),
        }
    }
    // As grep does.
    Ok(if found.ids.is_empty() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn count(args: &CountArgs) -> anyhow::Result<ExitCode> {
    let dataset = open(&args.one)?;
    let count = match &args.bytes {
        Some(bytes) => dataset.occurrences(bytes.as_bytes()),
        None => dataset.count(&args.query.join(" ").parse()?)?,
    };
    let mut out = io::stdout().lock();
    if args.one.json {
        return print(&mut out, &json!({ "count": count }));
    }
    writeln!(out, "{count}")?;
    Ok(ExitCode::SUCCESS)
}

fn extract(args: &ExtractArgs) -> anyhow::Result<ExitCode> {
    let dataset = open(&args.one)?;
    let end = args.offset.checked_add(args.len).context("that ends past the largest offset")?;
    let bytes = dataset.extract(args.offset..end)?;
    let mut out = io::stdout().lock();
    if args.one.json {
        let text = String::from_utf8_lossy(&bytes);
        return print(&mut out, &json!({ "offset": args.offset, "text": text }));
    }
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn export(one: &One) -> anyhow::Result<ExitCode> {
    let dataset = open(one)?;
    let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let records = dataset.export(&mut out)?;
    out.flush()?;
    if one.json {
        // The records have standard output.
        eprintln!("{}", json!({ "records": records }));
    }
    Ok(ExitCode::SUCCESS)
}

fn append(args: &AppendArgs) -> anyhow::Result<ExitCode> {
    let mut writer = write(&args.one)?;
    let start = writer.dataset().end_id();
    for path in &args.files {
        let mut bytes = Vec::new();
        let max = crate::dataset::chunk::CHUNK_BYTES_MAX as u64 + 1;
        if path.as_os_str() == "-" {
            io::stdin().lock().take(max).read_to_end(&mut bytes)?;
        } else {
            let file = std::fs::File::open(path);
            let file = file.with_context(|| format!("cannot open {}", path.display()))?;
            file.take(max).read_to_end(&mut bytes)?;
        }
        let appended = writer.append(&bytes);
        appended.with_context(|| format!("cannot append {}", path.display()))?;
    }
    let ids = start..writer.dataset().end_id();
    let mut out = io::stdout().lock();
    if args.one.json {
        return print(&mut out, &json!({ "first_id": ids.start, "records": ids.end - ids.start }));
    }
    writeln!(out, "{} records appended, from id {} on", ids.end - ids.start, ids.start)?;
    Ok(ExitCode::SUCCESS)
}

fn delete(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let deleted = write(&args.one)?.delete(&args.ids)?;
    let mut out = io::stdout().lock();
    if args.one.json {
        return print(&mut out, &json!({ "deleted": deleted }));
    }
    writeln!(out, "{deleted} records deleted")?;
    Ok(ExitCode::SUCCESS)
}

fn seal(one: &One) -> anyhow::Result<ExitCode> {
    let sealed = write(one)?.seal()?;
    let mut out = io::stdout().lock();
    if one.json {
        return print(&mut out, &json!({ "sealed": sealed }));
    }
    writeln!(out, "{}", if sealed { "sealed" } else { "there was nothing to seal" })?;
    Ok(ExitCode::SUCCESS)
}

/// The formats, for `--format`.
pub(super) fn format(text: &str) -> Result<Format, String> {
    text.parse::<Format>().map_err(|error| error.to_string())
}
