//! `concertina data push` and `pull`: a dataset's folder into the origin behind a server, and back.
//!
//! A dataset lies in the origin as `datasets/NAME/dataset.json`, its manifest, and `datasets/NAME/ID/FILE` for
//! what the manifest's `id` names. The manifest is written last and under a condition, so a push that is
//! interrupted leaves nothing that can be seen, and two at once cannot mix. The id that a pushed dataset gets
//! is a hash of its files (and of what it replaces): a copy that went another way, and then has other
//! bytes under the same file names, never meets this one's files, and a push that is repeated finds what
//! was uploaded before. Costs a read of all files to verify and to hash them, and one more to send them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::data_print as print;
use super::data_server::{Listed, Server, ServerArgs};
use crate::dataset::Dataset;
use crate::dataset::manifest::{self, Manifest};
use crate::origin::{Chunks, Error, Lock, Whole};

/// What is read and sent at once.
const PIECE_BYTES: usize = 256 << 10;
/// How often a pull begins again, because the dataset was sealed or replaced meanwhile or because a node does
/// not see yet that it was. With the pauses that is longer than `node.revalidate_s` (60 s).
const ATTEMPTS: usize = 20;
/// The pause before that.
const PAUSE: Duration = Duration::from_secs(4);

/// Arguments of `push`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data push packages --server http://127.0.0.1:7070
  concertina data push packages --server http://gateway:7070 --token-file token --replace

The server shows the dataset once all of it is there. A push that was interrupted goes on where it was when
it is repeated. From then on the server's copy is the dataset: what is appended here does not reach it.")]
pub struct PushArgs {
    /// The dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    /// Replace the server's dataset of that name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// Arguments of `pull`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina data pull packages --server http://127.0.0.1:7070
  concertina data pull packages --server http://gateway:7070 --folder copies
  concertina data export packages --folder copies > packages.txt")]
pub struct PullArgs {
    /// The dataset
    name: String,
    /// The folder of datasets
    #[arg(long, value_name = "DIR", default_value = "datasets")]
    folder: PathBuf,
    #[command(flatten)]
    server: ServerArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(long)]
    quiet: bool,
}

/// The key of a dataset's manifest.
fn manifest_key(name: &str) -> String {
    format!("datasets/{name}/{}", manifest::FILE)
}

fn is_manifest(name: &str) -> impl Fn(&Listed) -> bool {
    let key = manifest_key(name);
    move |found| found.key == key
}

fn chunk_file(number: u64) -> String {
    format!("{number:012}.log")
}

fn progress(quiet: bool, bytes: u64) -> ProgressBar {
    let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new(bytes) };
    let template = "{spinner} {elapsed_precise} {bytes} of {total_bytes} {bar:30} {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// A file of a dataset.
struct Part {
    file: String,
    size: u64,
}

/// The files that a manifest names, and the log after it.
fn parts(folder: &Path, manifest: &Manifest) -> anyhow::Result<Vec<Part>> {
    let mut parts = Vec::new();
    for shard in &manifest.shards {
        let size = std::fs::metadata(folder.join(&shard.file))?.len();
        parts.push(Part { file: shard.file.clone(), size });
    }
    for number in manifest.sealed_chunks + 1.. {
        let file = chunk_file(number);
        match std::fs::metadata(folder.join(&file)) {
            Ok(found) => parts.push(Part { file, size: found.len() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(error).with_context(|| format!("cannot read {file}")),
        }
    }
    Ok(parts)
}

/// The id of a dataset of these files in place of that which has `replaced` as its etag: the same files give
/// the same, others another.
fn id_of(
    folder: &Path,
    manifest: &Manifest,
    parts: &[Part],
    replaced: Option<&str>,
) -> anyhow::Result<String> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(blake3::hash(bytes).as_bytes());
    };
    let mut unnamed = manifest.clone();
    unnamed.id.clear();
    add(&serde_json::to_vec(&unnamed)?);
    add(replaced.unwrap_or_default().as_bytes());
    for part in parts {
        add(part.file.as_bytes());
        let mut one = blake3::Hasher::new();
        let file = File::open(folder.join(&part.file));
        let read = file.and_then(|file| one.update_reader(file).map(drop));
        read.with_context(|| format!("cannot read {}", part.file))?;
        add(one.finalize().as_bytes());
    }
    Ok(hasher.finalize().to_hex().chars().take(16).collect())
}

/// A file on its way to a server.
struct Upload {
    file: File,
    left: u64,
    bar: ProgressBar,
}

impl Chunks for Upload {
    // Reads where it is polled: its runtime has this one thing to do.
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        let mut piece = vec![0; self.left.min(PIECE_BYTES as u64) as usize];
        let next = match piece.is_empty() {
            true => None,
            false => Some(match self.file.read_exact(&mut piece) {
                Ok(()) => {
                    self.left -= piece.len() as u64;
                    self.bar.inc(piece.len() as u64);
                    Ok(Bytes::from(piece))
                }
                Err(error) => Err(Error::of_io(&error, "cannot read it")),
            }),
        };
        Box::pin(std::future::ready(next))
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}

/// Runs `push`.
pub fn push(args: &PushArgs) -> anyhow::Result<ExitCode> {
    let (name, folder) = (&args.name, args.folder.join(&args.name));
    let server = args.server.require()?;
    ensure!(
        folder.join(manifest::FILE).is_file(),
        "there is no dataset {name} in {} (concertina data list; --folder)",
        args.folder.display()
    );
    // Nobody seals it meanwhile.
    let _lock = Lock::take(&folder)?;
    drop(Dataset::open(&folder).with_context(|| format!("dataset {name}"))?);
    let mut manifest = Manifest::read(&folder)?;
    let parts = parts(&folder, &manifest)?;
    // Of the listing, which is the origin's: a node might serve what was there a minute ago.
    let present = server.objects(&manifest_key(name))?.into_iter().find(is_manifest(name));
    ensure!(
        present.is_none() || args.replace,
        "{} has a dataset {name} already: replace it (--replace), or append to it",
        server.url()
    );
    manifest.id = id_of(&folder, &manifest, &parts, present.as_ref().map(|p| &*p.etag))?;
    let bytes: u64 = parts.iter().map(|part| part.size).sum();
    let bar = progress(args.quiet, bytes);
    let skipped = upload(&server, name, &folder, &manifest.id, &parts, &bar)?;
    let condition = match &present {
        Some(present) => (IF_MATCH, present.if_match()?),
        None => (IF_NONE_MATCH, HeaderValue::from_static("*")),
    };
    let mut text = Whole::new(Bytes::from(manifest.encode()?));
    let written = server.put_object(&manifest_key(name), Some(condition), &mut text, &|| 0)?;
    ensure!(
        written,
        "somebody else wrote the dataset {name} of {} meanwhile: look what it is now, and push again",
        server.url()
    );
    bar.set_message("removing what it replaces");
    let removed = remove_others(&server, name, &manifest.id)
        .context("it is pushed; what it replaces could not be removed: push it again later")?;
    bar.finish_and_clear();
    if args.json {
        return print::value(&json!({ "name": name, "id": manifest.id, "files": parts.len(),
            "bytes": bytes, "skipped_bytes": skipped, "removed_files": removed }));
    }
    let files = parts.len();
    print::line(&format!("{name}: {bytes} B in {files} files are at {}", server.url()))
}

/// Uploads all but the manifest, and removes what does not belong beside it. Gives the bytes that were
/// there.
fn upload(
    server: &Server,
    name: &str,
    folder: &Path,
    id: &str,
    parts: &[Part],
    bar: &ProgressBar,
) -> anyhow::Result<u64> {
    let prefix = format!("datasets/{name}/{id}/");
    let there = server.objects(&prefix)?.into_iter().map(|found| (found.key, found.size));
    let mut there: HashMap<String, u64> = there.collect();
    let mut skipped = 0;
    for part in parts {
        let key = format!("{prefix}{}", part.file);
        if there.remove(&key) == Some(part.size) {
            skipped += part.size;
            bar.inc(part.size);
            continue;
        }
        bar.set_message(part.file.clone());
        let file = File::open(folder.join(&part.file));
        let file = file.with_context(|| format!("cannot read {}", part.file))?;
        let mut upload = Upload { file, left: part.size, bar: bar.clone() };
        server
            .put_object(&key, None, &mut upload, &|| bar.position())
            .with_context(|| format!("cannot push {}", part.file))?;
    }
    // A chunk of a log that was there once would be taken for one that follows.
    for key in there.keys() {
        server.delete_object(key)?;
    }
    Ok(skipped)
}

/// Removes the files of what had this name before. Gives how many.
fn remove_others(server: &Server, name: &str, id: &str) -> anyhow::Result<usize> {
    let prefix = format!("datasets/{name}/");
    let mut removed = 0;
    for Listed { key, .. } in server.objects(&prefix)? {
        let folder = key.strip_prefix(&prefix).and_then(|rest| rest.split_once('/'));
        let is_id = |text: &str| text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        if folder.is_some_and(|(folder, _)| folder != id && is_id(folder)) {
            server.delete_object(&key)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Runs `pull`.
pub fn pull(args: &PullArgs) -> anyhow::Result<ExitCode> {
    let (name, place) = (&args.name, args.folder.join(&args.name));
    let server = args.server.require()?;
    let fits = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    ensure!(fits, "{name:?} is no name of a dataset");
    ensure!(
        !place.exists(),
        "there is {} already: remove it, or name another --folder",
        place.display()
    );
    std::fs::create_dir_all(&args.folder)
        .with_context(|| format!("cannot make {}", args.folder.display()))?;
    let unfinished = args.folder.join(format!(".pulling-{name}"));
    std::fs::create_dir_all(&unfinished)?;
    let lock = Lock::take(&unfinished)?;
    let bar = progress(args.quiet, 0);
    let filled = fill(&server, name, &unfinished, &bar).and_then(|()| {
        // Every byte is verified.
        Dataset::open(&unfinished).context("what came is damaged; pull again, or push again")
    });
    if filled.is_err() {
        let _ = std::fs::remove_dir_all(&unfinished);
    }
    let info = filled?.info();
    bar.finish_and_clear();
    std::fs::rename(&unfinished, &place)
        .with_context(|| format!("cannot make {}", place.display()))?;
    File::open(&args.folder)?.sync_all()?;
    drop(lock);
    if args.json {
        return print::value(&json!({ "name": name, "info": info }));
    }
    print::line(&format!("{name}: {} records are in {}", info.records, place.display()))
}

/// Fills a folder with a dataset as it is at some moment: the manifest is still the same once the log
/// was read.
fn fill(server: &Server, name: &str, folder: &Path, bar: &ProgressBar) -> anyhow::Result<()> {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            bar.set_message("it was changed, or the server does not see that yet: again");
            std::thread::sleep(PAUSE);
        }
        clear(folder)?;
        if let Some(manifest) = copy(server, name, folder, bar)? {
            return manifest.write(folder);
        }
    }
    bail!("the dataset {name} was changed each of {ATTEMPTS} times that it was copied; try again")
}

/// Copies a dataset's files without its manifest, which is given back; `None` if they are not of one
/// moment.
fn copy(
    server: &Server,
    name: &str,
    folder: &Path,
    bar: &ProgressBar,
) -> anyhow::Result<Option<Manifest>> {
    let listed = server.objects(&format!("datasets/{name}/"))?;
    let Some(of_manifest) = listed.iter().find(|found| is_manifest(name)(found)) else {
        bail!("there is no dataset {name} at {} (concertina data list)", server.url());
    };
    ensure!(of_manifest.size <= manifest::BYTES_MAX, "{} is too large", of_manifest.key);
    let mut text = Vec::new();
    let read = server.read_object(of_manifest, &mut |piece| {
        text.extend_from_slice(piece);
        Ok(())
    });
    if !read? {
        return Ok(None);
    }
    let manifest = Manifest::parse(&text).with_context(|| of_manifest.key.clone())?;
    let find = |file: &str| {
        let key = format!("datasets/{name}/{}/{file}", manifest.id);
        listed.iter().find(|found| found.key == key)
    };
    let shards = manifest.shards.iter().map(|shard| shard.file.clone());
    let log = (manifest.sealed_chunks + 1..).map(chunk_file);
    let log = log.take_while(|file| find(file).is_some());
    let files: Vec<String> = shards.chain(log).collect();
    let Some(found) = files.iter().map(|file| find(file)).collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    bar.set_position(0);
    bar.set_length(found.iter().map(|found| found.size).sum());
    for (file, found) in files.iter().zip(found) {
        bar.set_message(file.clone());
        let mut there = false;
        let written = crate::dataset::files::write(folder, file, false, |out| {
            let read = server.read_object(found, &mut |piece| {
                out.write_all(piece)?;
                bar.inc(piece.len() as u64);
                Ok(())
            });
            there = read.map_err(|error| io::Error::other(format!("{error:#}")))?;
            Ok(())
        });
        written.with_context(|| format!("cannot copy {file}"))?;
        if !there {
            return Ok(None);
        }
    }
    let now = server.objects(&of_manifest.key)?;
    Ok(now.contains(of_manifest).then_some(manifest))
}

/// Removes all but the lock.
fn clear(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != "lock" {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
