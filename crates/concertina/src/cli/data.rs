//! `concertina data`: operates on a folder of datasets or, with `--server`, on those of a server,
//! with the same output.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde_json::json;
use shard::query::{Pattern, Query};

use super::data_compact as compact;
use super::data_dataset::DatasetArgs;
use super::data_export as export;
use super::data_import as import;
use super::data_layers as layers;
use super::data_parts as parts;
use super::data_print::{self as print, Format, Records};
use super::data_push as push;
use super::data_server::ServerArgs;
use super::data_work::{self as work, WorkArgs};
use crate::cli::output::output;
use crate::remote::served::{self, Page, Record, Search};
use dataset::chunk::CHUNK_BYTES_MAX;
use dataset::{Dataset, PageRequest};

/// The records of the first page of all that match, which are printed together.
const PAGE_RECORDS_MIN: usize = 100;
/// The most records of a page.
const PAGE_RECORDS_MAX: usize = 1 << 16;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  apt-cache dumpavail | concertina data import - --format stanzas --name packages
  concertina data search packages Maintainer:python
  concertina data search packages 'Section:=admin AND Installed-Size:..100' --limit 5
  concertina data get packages --key nano
  concertina data count packages 'Package:^lib'
  concertina data search packages 'Section:=libs' --all --json > libs.ndjson
  concertina data grep packages '^Package: lib.*-dev$' --limit 3
  concertina data info packages --json
  concertina data delete packages 17 && concertina data export packages > packages.txt

On a server (docs/data.md):
  concertina data push packages --server http://127.0.0.1:7070
  concertina data search packages Maintainer:python --server http://127.0.0.1:7070
  concertina data export packages --server http://127.0.0.1:7070 --out packages.txt
  concertina data layers packages --server http://127.0.0.1:7070 --bytes 64MiB

A dataset is a folder in --folder; NAME may also be the path of a single shard's file. docs/queries.md
describes queries.")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a dataset from files or from standard input
    Import(import::Args),
    /// Import an input in parts that other machines may build: split it, build each part, join them
    Parts(parts::Args),
    /// List the datasets of a folder
    List(ListArgs),
    /// Show the contents and the sizes of a dataset
    Info(DatasetArgs),
    /// Print records by id, or by key
    Get(GetArgs),
    /// Print the records that match a query
    Search(SearchArgs),
    /// Count the records that match a query, or the occurrences of some bytes
    Count(CountArgs),
    /// Print the records that contain a match of a regular expression
    Grep(GrepArgs),
    /// Print bytes of the text, from an offset
    Extract(ExtractArgs),
    /// Write all records unchanged to standard output or to a file
    Export(export::Args),
    /// Append records, durably
    Append(AppendArgs),
    /// Delete records by id, durably
    Delete(DeleteArgs),
    /// Make a shard of the appended records
    Seal(DatasetArgs),
    /// Join small shards, and leave out the bytes of deleted records
    Compact(compact::Args),
    /// Remove a dataset with all its records
    Drop(DatasetArgs),
    /// Copy a dataset to a server, which shows it once the copy is complete
    Push(push::PushArgs),
    /// Copy a server's dataset into a folder
    Pull(push::PullArgs),
    /// Show the memory that the layers of a served dataset take, or set its limit
    Layers(layers::Args),
}

#[derive(clap::Args)]
struct ListArgs {
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
struct GetArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// Ids, as printed by a search
    #[arg(required_unless_present = "key", conflicts_with = "key")]
    ids: Vec<u64>,
    /// The records with this key instead: all of them, in the order of their ids
    #[arg(long)]
    key: Option<String>,
}

#[derive(clap::Args)]
struct PageArgs {
    /// The largest number of records
    #[arg(long, default_value = "10")]
    limit: usize,
    /// Continue after this id, which the previous page printed
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
    /// Print the first records found, in no order: faster where many match
    #[arg(long, conflicts_with = "after")]
    unsorted: bool,
    /// Print all records that match, each as soon as it is found; with --json one object a line
    #[arg(long, conflicts_with_all = ["limit", "unsorted"])]
    all: bool,
    /// Accept an incomplete result, with a warning that names the missing parts
    #[arg(long, requires = "server", help_heading = "Server")]
    partial: bool,
}

#[derive(clap::Args)]
struct SearchArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// The query; several words are joined by spaces
    #[arg(required = true)]
    query: Vec<String>,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(clap::Args)]
struct GrepArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// The regular expression, in the syntax of the crate `regex`; `^` and `$` match at lines
    pattern: String,
    #[command(flatten)]
    page: PageArgs,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(clap::Args)]
struct CountArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// The query; several words are joined by spaces [default: all records]
    #[arg(conflicts_with = "bytes")]
    query: Vec<String>,
    /// Count the occurrences of these bytes in the shards instead, overlaps included
    #[arg(long)]
    bytes: Option<String>,
    #[command(flatten)]
    work: WorkArgs,
}

#[derive(clap::Args)]
struct ExtractArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// Offset of the first byte
    offset: u64,
    /// Number of bytes
    len: u64,
}

#[derive(clap::Args)]
struct AppendArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// Files of records; `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(clap::Args)]
struct DeleteArgs {
    #[command(flatten)]
    one: DatasetArgs,
    /// Ids, as printed by a search
    #[arg(required = true)]
    ids: Vec<u64>,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Import(args) => import::run(&args),
        Command::Parts(args) => parts::run(&args),
        Command::List(args) => list(&args),
        Command::Info(args) => info(&args),
        Command::Get(args) => get(&args),
        Command::Search(args) => {
            let text = args.query.join(" ");
            work::warn_of_query(&text);
            search(&args, &text.parse()?, &Search::Query(&text))
        }
        Command::Grep(args) => {
            let text = format!("(?m){}", args.pattern);
            let condition = shard::query::Condition::Matches(Pattern::new(&text)?);
            let query = Query::Test(shard::query::Test { attribute: None, condition });
            let GrepArgs { one, page, work, .. } = args;
            let args = SearchArgs { one, query: Vec::new(), page, work };
            search(&args, &query, &Search::Pattern(&text))
        }
        Command::Count(args) => count(&args),
        Command::Extract(args) => extract(&args),
        Command::Export(args) => export::run(&args),
        Command::Append(args) => append(&args),
        Command::Delete(args) => delete(&args),
        Command::Seal(args) => seal(&args),
        Command::Compact(args) => compact::run(&args),
        Command::Drop(args) => drop_dataset(&args),
        Command::Push(args) => push::push(&args),
        Command::Pull(args) => push::pull(&args),
        Command::Layers(args) => layers::run(&args),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    if let Some(server) = args.server.find()? {
        return print::list(served::list(&server)?, args.json);
    }
    let folder = args.folder.display();
    let mut names = Vec::new();
    let entries =
        std::fs::read_dir(&args.folder).with_context(|| format!("cannot read {folder}"))?;
    for entry in entries {
        let entry = entry?;
        if entry.path().join(dataset::manifest::FILE).is_file() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    let of = |name: String| match Dataset::open(&args.folder.join(&name)) {
        Ok(dataset) => json!({ "name": name, "info": dataset.info() }),
        Err(error) => json!({ "name": name, "error": ground::with_causes(&error) }),
    };
    print::list(names.into_iter().map(of).collect(), args.json)
}

fn info(one: &DatasetArgs) -> anyhow::Result<ExitCode> {
    let server = one.server.find()?;
    let info = match one.served_on(&server) {
        Some(served) => served.info()?,
        None => json!(one.local.open()?.info()),
    };
    print::info(&info, one.local.json)
}

fn get(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let server = args.one.server.find()?;
    let format = if args.one.local.json { Format::Json } else { Format::Plain };
    let mut records = Records::new(format);
    let served = args.one.served_on(&server);
    if let Some(key) = &args.key {
        // A key need not be unique: an append adds a record, and replaces none.
        match served {
            Some(served) => {
                let all = served::PageRequest {
                    limit: usize::MAX,
                    after: None,
                    sorted: true,
                    partial: false,
                };
                served.search(&Search::Key(key), &all, &mut |record| records.push(record))?;
            }
            None => {
                let dataset = args.one.local.open()?;
                let query = dataset::key_query(dataset.schema(), key)?;
                let all = PageRequest { limit: usize::MAX, after: None, sorted: true };
                search_files(&dataset, &query, &all, &mut |ids| {
                    dataset.get_each(ids, &mut |id, bytes| records.push(Record::new(id, bytes)))
                })?;
            }
        }
        ensure!(!records.is_empty(), "no record has the key {key:?}");
        return records.finish(None);
    }
    match served {
        Some(served) => {
            for id in &args.ids {
                records.push(served.record(*id)?)?;
            }
        }
        None => {
            let dataset = args.one.local.open()?;
            for id in &args.ids {
                records.push(Record::new(*id, dataset.get(*id)?))?;
            }
        }
    }
    records.finish(None)
}

/// Passes the ids of the records that match to `take`: a page of them or, with the limit `usize::MAX`, all of them in pages that
/// grow, so that the first are there at once, and little is looked up twice.
fn search_files(
    dataset: &Dataset,
    query: &Query,
    wanted: &PageRequest,
    take: &mut dyn FnMut(&[u64]) -> anyhow::Result<()>,
) -> anyhow::Result<Page> {
    let is_all = wanted.limit == usize::MAX;
    let mut all = Page { next: wanted.after, ..Page::default() };
    let mut limit = if is_all { PAGE_RECORDS_MIN } else { wanted.limit };
    loop {
        let request = PageRequest { limit, after: all.next, sorted: wanted.sorted };
        let found = dataset.search(query, &request)?;
        take(&found.ids)?;
        all.next = found.next;
        all.has_more = found.has_more;
        all.located += found.located as u64;
        all.verified += found.verified as u64;
        if found.stopped_at.is_some() || !is_all || all.next.is_none() {
            return Ok(all);
        }
        limit = (2 * limit).min(PAGE_RECORDS_MAX);
    }
}

fn search(args: &SearchArgs, query: &Query, search: &Search<'_>) -> anyhow::Result<ExitCode> {
    let SearchArgs { one, page, work, .. } = args;
    let (limit, sorted) = (if page.all { usize::MAX } else { page.limit }, !page.unsorted);
    let after = page.after;
    let server = one.server.find()?;
    let format = match (one.local.json, page.all) {
        (false, _) => Format::Plain,
        (true, false) => Format::Json,
        (true, true) => Format::JsonLines,
    };
    let mut records = Records::new(format);
    if let Some(served) = one.served_on(&server) {
        let wanted = served::PageRequest { limit, after, sorted, partial: page.partial };
        let page = served.search(search, &wanted, &mut |record| records.push(record))?;
        work::warn_of_unknown_on(&served, &page.unknown_attributes)?;
        return records.finish(Some(&page));
    }
    let (dataset, bar) = work.observe(one.local.open()?);
    work::warn_of_unknown(&dataset, query)?;
    let all = search_files(&dataset, query, &PageRequest { limit, after, sorted }, &mut |ids| {
        records.flush()?;
        bar.suspend(|| dataset.get_each(ids, &mut |id, bytes| records.push(Record::new(id, bytes))))
    })?;
    bar.finish_and_clear();
    records.finish(Some(&all))
}

fn count(args: &CountArgs) -> anyhow::Result<ExitCode> {
    let text = args.query.join(" ");
    // Reject an invalid query before opening the dataset.
    let query = args.bytes.is_none().then(|| text.parse::<Query>()).transpose()?;
    work::warn_of_query(&text);
    let server = args.one.server.find()?;
    let bytes = args.bytes.as_deref().unwrap_or_default();
    let count = match (args.one.served_on(&server), &query) {
        (Some(served), Some(_)) => {
            let found = served.count(&text)?;
            work::warn_of_unknown_on(&served, &found.unknown_attributes)?;
            found.count
        }
        (Some(served), None) => served.occurrences(bytes)?,
        (None, Some(query)) => {
            let (dataset, bar) = args.work.observe(args.one.local.open()?);
            work::warn_of_unknown(&dataset, query)?;
            let count = dataset.count(query);
            bar.finish_and_clear();
            count?
        }
        (None, None) => args.one.local.open()?.occurrences(bytes.as_bytes()),
    };
    print_result(&args.one, json!({ "count": count }), &count.to_string())
}

fn extract(args: &ExtractArgs) -> anyhow::Result<ExitCode> {
    let end =
        args.offset.checked_add(args.len).context("the range ends past the largest offset")?;
    let server = args.one.server.find()?;
    let as_json = args.one.local.json;
    let mut out = io::BufWriter::new(output());
    let mut all = Vec::new();
    let mut take = |piece: &[u8]| {
        if as_json {
            all.extend_from_slice(piece);
        } else {
            out.write_all(piece)?;
        }
        Ok(())
    };
    match args.one.served_on(&server) {
        Some(served) => served.extract(args.offset..end, &mut take)?,
        None => take(&args.one.local.open()?.extract(args.offset..end)?)?,
    }
    out.flush()?;
    if as_json {
        let text = String::from_utf8_lossy(&all);
        return print::value(&json!({ "offset": args.offset, "text": text }));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a short result, as JSON or as text.
fn print_result(
    one: &DatasetArgs,
    value: serde_json::Value,
    text: &str,
) -> anyhow::Result<ExitCode> {
    if one.local.json { print::value(&value) } else { print::line(text) }
}

/// Reads a file, or standard input for `-`, decompressed. Reads at most one byte more than can be appended at
/// once, which suffices to reject longer input.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    dataset::open_input(path)?.take(CHUNK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() <= CHUNK_BYTES_MAX;
    ensure!(
        fits,
        "{} has more than {CHUNK_BYTES_MAX} bytes; append fewer at a time",
        path.display()
    );
    Ok(bytes)
}

fn append(args: &AppendArgs) -> anyhow::Result<ExitCode> {
    let server = args.one.server.find()?;
    let (mut first_id, mut records) = (None, 0);
    let mut append: Box<dyn FnMut(Vec<u8>) -> anyhow::Result<Range<u64>>> =
        match args.one.served_on(&server) {
            Some(served) => Box::new(move |bytes| served.append(bytes)),
            None => {
                let mut writer = args.one.local.write()?;
                Box::new(move |bytes| Ok(writer.append(&bytes)?))
            }
        };
    // A name that is wrong is found before the first file is appended.
    for path in args.files.iter().filter(|path| path.as_os_str() != "-") {
        let found = std::fs::metadata(path).map(|_| ());
        found.with_context(|| format!("cannot append {}", path.display()))?;
    }
    for path in &args.files {
        let ids = read(path).and_then(&mut append);
        let ids = ids.with_context(|| {
            let path = path.display();
            match first_id {
                None => format!("cannot append {path}"),
                Some(first) => format!(
                    "cannot append {path}, but the {records} records of the files before it are appended, from id {first} on"
                ),
            }
        })?;
        first_id.get_or_insert(ids.start);
        records += ids.end - ids.start;
    }
    let first_id = first_id.context("no file given")?;
    let text = format!("{records} records appended, from id {first_id} on");
    print_result(&args.one, json!({ "first_id": first_id, "records": records }), &text)
}

fn delete(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let server = args.one.server.find()?;
    let deleted = match args.one.served_on(&server) {
        Some(served) => served.delete(&args.ids)?,
        None => args.one.local.write()?.delete(&args.ids)?,
    };
    print_result(&args.one, json!({ "deleted": deleted }), &format!("{deleted} records deleted"))
}

fn seal(one: &DatasetArgs) -> anyhow::Result<ExitCode> {
    let server = one.server.find()?;
    let sealed = match one.served_on(&server) {
        Some(served) => served.seal()?,
        None => one.local.write()?.seal()?,
    };
    let text = if sealed { "sealed" } else { "nothing to seal" };
    print_result(one, json!({ "sealed": sealed }), text)
}

fn drop_dataset(one: &DatasetArgs) -> anyhow::Result<ExitCode> {
    let server = one.server.find()?;
    match one.served_on(&server) {
        Some(served) => served.drop_all()?,
        None => dataset::drop_dataset(&one.local.folder, &one.local.name)?,
    }
    print_result(one, json!({ "dropped": true }), &format!("{} dropped", one.local.name))
}
