//! Copies a dataset's folder into the origin behind a server (push), and back (pull).
//!
//! The origin stores a dataset as its manifest `datasets/NAME/dataset.json` and the files
//! `datasets/NAME/ID/FILE`, where ID is the manifest's `id`. The manifest is written last and
//! conditionally, so an interrupted push leaves nothing visible, and concurrent pushes cannot mix.
//! The id of a pushed dataset is a hash of its files (and of the dataset that it replaces). So a
//! copy with other bytes under the same file names never meets this one's files, and a repeated
//! push finds the files that were uploaded before. The cost is one read of all files to verify and
//! hash them, and another to send them.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::HeaderValue;
use http::header::{IF_MATCH, IF_NONE_MATCH};
use indicatif::ProgressBar;
use serde::Serialize;

use super::server::{Listed, Server};
use dataset::folder::Draft;
use dataset::manifest::{self, Manifest, is_id};
use dataset::remote::PREFIX;
use dataset::{Dataset, Info, chunk_file, files, is_name};
use origin::{Chunks, Error, Lock, SingleChunk};

/// The size of one read and one send.
const PIECE_BYTES: usize = 256 << 10;
/// How often a pull restarts because the dataset was sealed or replaced meanwhile, or because a
/// node does not see the change yet. Including the pauses, this takes longer than
/// `node.revalidate_s` (60 s).
const ATTEMPTS: usize = 90;
/// The pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// The prefix of all keys of a dataset.
fn prefix_of(name: &str) -> String {
    format!("{PREFIX}{name}/")
}

/// The key of a dataset's manifest.
fn manifest_key(name: &str) -> String {
    format!("{}{}", prefix_of(name), manifest::FILE)
}

/// A file of a dataset.
struct Part {
    file: String,
    size: u64,
}

/// The files that a manifest names, and then the log.
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

/// A hash of a dataset's files and of the manifest that it replaces.
fn hash_of(
    folder: &Path,
    manifest: &Manifest,
    parts: &[Part],
    replaced: Option<&Listed>,
) -> anyhow::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    let mut add = |bytes: &[u8]| {
        hasher.update(blake3::hash(bytes).as_bytes());
    };
    let mut unnamed = manifest.clone();
    unnamed.id.clear();
    add(&serde_json::to_vec(&unnamed)?);
    add(replaced.map_or("", |replaced| &replaced.etag).as_bytes());
    for part in parts {
        add(part.file.as_bytes());
        let mut one = blake3::Hasher::new();
        let file = File::open(folder.join(&part.file));
        let read = file.and_then(|file| one.update_reader(file).map(drop));
        read.with_context(|| format!("cannot read {}", part.file))?;
        add(one.finalize().as_bytes());
    }
    Ok(hasher.finalize())
}

/// The first id derived from a hash under which the server has only these files, and the files that
/// it has. Any other file there (a chunk of the log of a dataset whose manifest was deleted) would
/// become part of the dataset. It cannot be distinguished from a chunk that another client, which
/// pushed the same dataset, appended a moment ago.
fn id_of(
    hash: &blake3::Hash,
    name: &str,
    parts: &[Part],
    listed: &[Listed],
) -> (String, HashSet<String>) {
    let mut salt = 0_u64;
    loop {
        let salted = [&hash.as_bytes()[..], &salt.to_le_bytes()].concat();
        let id: String = blake3::hash(&salted).to_hex().chars().take(16).collect();
        let prefix = format!("{}{id}/", prefix_of(name));
        let is_part = |found: &Listed| {
            let file = found.key.strip_prefix(&prefix)?;
            let part = |part: &&Part| part.file == file && part.size == found.size;
            Some(parts.iter().find(part).map(|part| part.file.clone()))
        };
        if let Some(files) = listed.iter().filter_map(is_part).collect::<Option<HashSet<_>>>() {
            return (id, files);
        }
        salt += 1;
    }
}

/// A file being uploaded.
struct Upload {
    file: File,
    left: u64,
    bar: ProgressBar,
}

impl Chunks for Upload {
    // Blocking reads are acceptable: this runtime has no other task.
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

/// The result of a push.
#[derive(Debug, Serialize)]
pub(crate) struct Pushed {
    name: String,
    id: String,
    /// Number of files of the dataset.
    pub(crate) files: usize,
    /// Their size.
    pub(crate) bytes: u64,
    /// Bytes that the server already had.
    skipped_bytes: u64,
    /// Number of replaced files that were removed.
    removed_files: usize,
}

/// Copies the dataset `name` of the folder `datasets` to a server.
///
/// # Errors
///
/// If the dataset is missing or damaged, the server has one of that name and `replace` is false, or
/// another client writes it meanwhile; and those of [`Server::bytes`].
pub(crate) fn push(
    server: &Server,
    name: &str,
    datasets: &Path,
    replace: bool,
    bar: &ProgressBar,
) -> anyhow::Result<Pushed> {
    let folder = datasets.join(name);
    ensure!(is_name(name), "invalid dataset name {name:?}");
    ensure!(
        folder.join(manifest::FILE).is_file(),
        "there is no dataset {name} in {} (concertina data list; --folder)",
        datasets.display()
    );
    // The lock prevents sealing during the push.
    let _lock = Lock::take(&folder)?;
    drop(Dataset::open(&folder).with_context(|| format!("dataset {name}"))?);
    let mut manifest = Manifest::read(&folder)?;
    let parts = parts(&folder, &manifest)?;
    // The listing comes from the origin; the object itself might be served from a copy a minute
    // old.
    let listed = server.objects(&prefix_of(name))?;
    let present = listed.iter().find(|found| found.key == manifest_key(name));
    ensure!(
        present.is_none() || replace,
        "{} already has a dataset {name}: replace it (--replace), or append to it",
        server.url()
    );
    let hash = hash_of(&folder, &manifest, &parts, present)?;
    let (id, there) = id_of(&hash, name, &parts, &listed);
    manifest.id = id;
    let bytes: u64 = parts.iter().map(|part| part.size).sum();
    bar.set_length(bytes);
    let mut skipped = 0;
    for part in &parts {
        if there.contains(&part.file) {
            skipped += part.size;
            bar.inc(part.size);
        } else {
            let prefix = format!("{}{}/", prefix_of(name), manifest.id);
            upload(server, &folder, part, &prefix, bar)?;
        }
    }
    let condition = match present {
        Some(present) => (IF_MATCH, present.if_match()?),
        None => (IF_NONE_MATCH, HeaderValue::from_static("*")),
    };
    let mut text = SingleChunk::new(Bytes::from(manifest.encode()?));
    let written = server.put_object(&manifest_key(name), Some(condition), &mut text, &|| 0)?;
    ensure!(
        written,
        "another client wrote the dataset {name} of {} meanwhile: inspect it, and push again",
        server.url()
    );
    bar.set_message("removing the replaced files");
    let removed = remove_others(server, name, &manifest.id, &listed)
        .context("pushed, but the replaced files could not be removed: push it again later")?;
    Ok(Pushed {
        name: name.to_owned(),
        id: manifest.id,
        files: parts.len(),
        bytes,
        skipped_bytes: skipped,
        removed_files: removed,
    })
}

fn upload(
    server: &Server,
    folder: &Path,
    part: &Part,
    prefix: &str,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    bar.set_message(part.file.clone());
    let key = format!("{prefix}{}", part.file);
    let file = File::open(folder.join(&part.file));
    let file = file.with_context(|| format!("cannot read {}", part.file))?;
    let mut upload = Upload { file, left: part.size, bar: bar.clone() };
    server
        .put_object(&key, None, &mut upload, &|| bar.position())
        .with_context(|| format!("cannot push {}", part.file))?;
    Ok(())
}

/// Removes the files that no manifest refers to any more, if they existed before this push: newer
/// files may belong to another push that will replace this one. Returns their number.
fn remove_others(
    server: &Server,
    name: &str,
    id: &str,
    listed: &[Listed],
) -> anyhow::Result<usize> {
    let prefix = prefix_of(name);
    let mut removed = 0;
    for Listed { key, .. } in listed {
        let folder = key.strip_prefix(&prefix).and_then(|rest| rest.split_once('/'));
        if folder.is_some_and(|(folder, _)| folder != id && is_id(folder)) {
            server.delete_object(key)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Copies the dataset `name` of a server into the folder `datasets`.
///
/// # Errors
///
/// If the dataset exists in the folder or not on the server, keeps changing, or arrives damaged;
/// and those of [`Server::bytes`].
pub(crate) fn pull(
    server: &Server,
    name: &str,
    datasets: &Path,
    bar: &ProgressBar,
) -> anyhow::Result<Info> {
    let place = datasets.join(name);
    ensure!(is_name(name), "invalid dataset name {name:?}");
    ensure!(
        !place.exists(),
        "{} already exists: remove it, or name another --folder",
        place.display()
    );
    let draft = Draft::begin(datasets, "pulling", name, false)?;
    let filled = fill(server, name, &draft, bar).and_then(|()| {
        // Opening verifies every byte.
        Dataset::open(draft.path()).context("the copy is damaged; pull again, or push again")
    });
    match filled {
        Ok(dataset) => Ok(draft.publish().map(|_| dataset.info())?),
        Err(error) => {
            draft.discard();
            Err(error)
        }
    }
}

/// Copies a consistent state of a dataset into a folder: the manifest is unchanged after the log
/// was read.
fn fill(server: &Server, name: &str, draft: &Draft, bar: &ProgressBar) -> anyhow::Result<()> {
    let folder = draft.path();
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            bar.set_message(
                "the dataset changed, or the server does not see the change yet: retrying",
            );
            std::thread::sleep(PAUSE);
        }
        draft.clear()?;
        if let Some(manifest) = copy(server, name, folder, bar)? {
            return Ok(manifest.write(folder)?);
        }
    }
    bail!("the dataset {name} changed during each of {ATTEMPTS} attempts to copy it; try again")
}

/// Copies a dataset's files except its manifest, which is returned; `None` if the files belong to
/// different states.
fn copy(
    server: &Server,
    name: &str,
    folder: &Path,
    bar: &ProgressBar,
) -> anyhow::Result<Option<Manifest>> {
    let listed = server.objects(&prefix_of(name))?;
    let Some(of_manifest) = listed.iter().find(|found| found.key == manifest_key(name)) else {
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
        let key = format!("{}{}/{file}", prefix_of(name), manifest.id);
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
        let written = files::write(folder, file, false, |out| {
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
