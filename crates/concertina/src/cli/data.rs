//! `concertina data`: on a folder of datasets, or with `--server` on those of a server; the answers are the same.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use serde_json::json;
use shard::query::{Pattern, Query};
use shard::record::Format;

use super::data_print::{self as print, Page, Record, Records};
use super::data_served::{self as served, Served, What};
use super::data_server::{Server, ServerArgs};
use super::{
    data_export as export, data_import as import, data_layers as layers, data_push as push,
};
use crate::cli::output::output;
use dataset::chunk::CHUNK_BYTES_MAX;
use dataset::{Dataset, Wanted, Writer};

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

On a server (docs/data.md):
  concertina data push packages --server http://127.0.0.1:7070
  concertina data search packages Maintainer:python --server http://127.0.0.1:7070
  concertina data export packages --server http://127.0.0.1:7070 --out packages.txt
  concertina data layers packages --server http://127.0.0.1:7070 --bytes 64MiB

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
    /// All records, as they came, on standard output or in a file
    Export(export::Args),
    /// Append records, durably
    Append(AppendArgs),
    /// Delete records by id, durably
    Delete(DeleteArgs),
    /// Make a shard of what was appended
    Seal(One),
    /// Copy a dataset to a server, which has it once all of it is there
    Push(push::PushArgs),
    /// Copy a server's dataset into a folder
    Pull(push::PullArgs),
    /// What the layers of a served dataset take; or set what they may
    Layers(layers::Args),
}

/// A dataset, and how the answer is printed.
#[derive(clap::Args)]
pub(super) struct One {
    #[command(flatten)]
    pub(super) local: Local,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

/// A dataset of a folder, and how the answer is printed.
#[derive(clap::Args)]
pub(super) struct Local {
    /// The dataset, or the path of a shard's file
    pub(super) name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
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
    /// Take an answer that parts of the dataset are missing from, with a warning that names them
    #[arg(long, requires = "server", help_heading = "Server")]
    partial: bool,
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
    match args.command {
        Command::Import(args) => import::run(&args),
        Command::List(args) => list(&args),
        Command::Info(args) => info(&args),
        Command::Get(args) => get(&args),
        Command::Search(args) => {
            let text = args.query.join(" ");
            search(&args.one, &text.parse()?, &What::Query(&text), &args.page)
        }
        Command::Grep(args) => {
            let text = format!("(?m){}", args.pattern);
            let condition = shard::query::Condition::Matches(Pattern::new(&text)?);
            let query = Query::Test(shard::query::Test { attribute: None, condition });
            search(&args.one, &query, &What::Pattern(&text), &args.page)
        }
        Command::Count(args) => count(&args),
        Command::Extract(args) => extract(&args),
        Command::Export(args) => export::run(&args),
        Command::Append(args) => append(&args),
        Command::Delete(args) => delete(&args),
        Command::Seal(args) => seal(&args),
        Command::Push(args) => push::push(&args),
        Command::Pull(args) => push::pull(&args),
        Command::Layers(args) => layers::run(&args),
    }
}

impl Local {
    fn path(&self) -> PathBuf {
        let as_file = Path::new(&self.name);
        if as_file.is_file() { as_file.to_owned() } else { self.folder.join(&self.name) }
    }

    pub(super) fn open(&self) -> anyhow::Result<Dataset> {
        let path = self.path();
        Dataset::open(&path).with_context(|| self.missing(&path))
    }

    fn write(&self) -> anyhow::Result<Writer> {
        let path = self.path();
        Writer::open(&path).with_context(|| self.missing(&path))
    }

    fn missing(&self, path: &Path) -> String {
        if path.exists() {
            return format!("dataset {}", self.name);
        }
        let folder = self.folder.display();
        format!("there is no dataset {} in {folder} (concertina data list; --folder)", self.name)
    }
}

impl One {
    /// The dataset of a server, if one was named.
    pub(super) fn of<'a>(&self, server: &'a Option<Server>) -> Option<Served<'a>> {
        server.as_ref().map(|server| Served::new(server, &self.local.name))
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
        Err(error) => json!({ "name": name, "error": format!("{error:#}") }),
    };
    print::list(names.into_iter().map(of).collect(), args.json)
}

fn info(one: &One) -> anyhow::Result<ExitCode> {
    let server = one.server.find()?;
    let info = match one.of(&server) {
        Some(served) => served.info()?,
        None => json!(one.local.open()?.info()),
    };
    print::info(&info, one.local.json)
}

fn get(args: &GetArgs) -> anyhow::Result<ExitCode> {
    let server = args.one.server.find()?;
    let mut records = Records::new(args.one.local.json);
    let none = |key: &str| format!("no record has the key {key:?}");
    match (args.one.of(&server), &args.key) {
        (Some(served), Some(key)) => {
            let found = served.record_with_key(key)?;
            records.push(found.with_context(|| none(key))?)?;
        }
        (Some(served), None) => {
            for id in &args.ids {
                records.push(served.record(*id)?)?;
            }
        }
        (None, key) => {
            let dataset = args.one.local.open()?;
            let ids = match key {
                None => args.ids.clone(),
                Some(key) => vec![dataset.id_of(key)?.with_context(|| none(key))?],
            };
            for id in ids {
                records.push(Record::new(id, dataset.get(id)?))?;
            }
        }
    }
    records.finish(None)
}

fn search(one: &One, query: &Query, what: &What<'_>, page: &PageArgs) -> anyhow::Result<ExitCode> {
    let (limit, after, sorted) = (page.limit, page.after, !page.unsorted);
    let server = one.server.find()?;
    if let Some(served) = one.of(&server) {
        let wanted = served::Wanted { limit, after, sorted, partial: page.partial };
        return served.search(what, &wanted, one.local.json);
    }
    let dataset = one.local.open()?;
    let found = dataset.search(query, &Wanted { limit, after, sorted })?;
    let mut records = Records::new(one.local.json);
    for id in found.ids {
        records.push(Record::new(id, dataset.get(id)?))?;
    }
    records.finish(Some(&Page {
        next: found.next,
        has_more: found.has_more,
        located: found.located as u64,
        verified: found.verified as u64,
        missing: Vec::new(),
    }))
}

fn count(args: &CountArgs) -> anyhow::Result<ExitCode> {
    let text = args.query.join(" ");
    // What is no query is said without a look at the dataset.
    let query = args.bytes.is_none().then(|| text.parse::<Query>()).transpose()?;
    let server = args.one.server.find()?;
    let bytes = args.bytes.as_deref().unwrap_or_default();
    let count = match (args.one.of(&server), &query) {
        (Some(served), Some(_)) => served.count(&text)?,
        (Some(served), None) => served.occurrences(bytes)?,
        (None, Some(query)) => args.one.local.open()?.count(query)?,
        (None, None) => args.one.local.open()?.occurrences(bytes.as_bytes()),
    };
    say(&args.one, json!({ "count": count }), &count.to_string())
}

fn extract(args: &ExtractArgs) -> anyhow::Result<ExitCode> {
    let end = args.offset.checked_add(args.len).context("that ends past the largest offset")?;
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
    match args.one.of(&server) {
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

/// Prints a short answer: as JSON, or in words.
fn say(one: &One, value: serde_json::Value, words: &str) -> anyhow::Result<ExitCode> {
    if one.local.json { print::value(&value) } else { print::line(words) }
}

/// What a file holds, `-` for standard input; one byte more than can be appended at once shows that it
/// cannot.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let max = CHUNK_BYTES_MAX as u64 + 1;
    if path.as_os_str() == "-" {
        io::stdin().lock().take(max).read_to_end(&mut bytes)?;
    } else {
        let file = std::fs::File::open(path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        file.take(max).read_to_end(&mut bytes)?;
    }
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
        match args.one.of(&server) {
            Some(served) => Box::new(move |bytes| served.append(bytes)),
            None => {
                let mut writer = args.one.local.write()?;
                Box::new(move |bytes| writer.append(&bytes))
            }
        };
    for path in &args.files {
        let ids = read(path).and_then(&mut append);
        let ids = ids.with_context(|| format!("cannot append {}", path.display()))?;
        first_id.get_or_insert(ids.start);
        records += ids.end - ids.start;
    }
    let first_id = first_id.context("there is no file")?;
    let words = format!("{records} records appended, from id {first_id} on");
    say(&args.one, json!({ "first_id": first_id, "records": records }), &words)
}

fn delete(args: &DeleteArgs) -> anyhow::Result<ExitCode> {
    let server = args.one.server.find()?;
    let deleted = match args.one.of(&server) {
        Some(served) => served.delete(&args.ids)?,
        None => args.one.local.write()?.delete(&args.ids)?,
    };
    say(&args.one, json!({ "deleted": deleted }), &format!("{deleted} records deleted"))
}

fn seal(one: &One) -> anyhow::Result<ExitCode> {
    let server = one.server.find()?;
    let sealed = match one.of(&server) {
        Some(served) => served.seal()?,
        None => one.local.write()?.seal()?,
    };
    let words = if sealed { "sealed" } else { "there was nothing to seal" };
    say(one, json!({ "sealed": sealed }), words)
}

/// The formats, for `--format`.
pub(super) fn format(text: &str) -> Result<Format, String> {
    text.parse::<Format>().map_err(|error| error.to_string())
}
