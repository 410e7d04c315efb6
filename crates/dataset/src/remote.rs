//! Datasets in the origin: the files of a dataset's folder as objects, written by many processes
//! concurrently.
//!
//! A dataset `NAME` is the object `datasets/NAME/dataset.json`, the [`Manifest`], and below
//! `datasets/NAME/ID/` the shards and the chunks of the log, named as in a folder; `ID` is the
//! manifest's id. Shards and chunks are put only if the name is unused, and a manifest only
//! replaces the one that was read, so writers need no lock:
//!
//! - An *append* puts the next chunk. If two writers put the same number, the second one fails,
//!   reads the first one's chunk and takes the next number. A writer that was suspended while
//!   others appended *and* sealed could put a chunk under a number that was already sealed and
//!   removed; so the manifest is compared after each put, and a chunk whose number is sealed does
//!   not count.
//! - *Sealing* puts a shard with the appended records, then the manifest that lists it. If another
//!   manifest was put in between, the shard is removed and nothing has changed. Sealed chunks are
//!   removed afterwards.
//!
//! Here are the single operations; which follows which decides [`engine::dataset`]. A crash at any moment leaves at most
//! objects that no manifest lists.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use ground::{Etag, Key};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::chunk::{CHUNK_BYTES_MAX, Chunk};
use super::compute::compute;
use super::error::{Context as _, Result, bail, ensure};
use super::manifest::{self, Manifest};
use super::names::{chunk_file, is_name};
use origin::{
    Attributes, BoxFuture, Chunks, Condition, Error, Listed, Origin, SingleChunk, Staged,
    StoredObject,
};

/// The prefix of the keys of all datasets.
pub const PREFIX: &str = "datasets/";
/// How often the removal of a dataset reads a manifest that others replace.
const DROP_TRIES: u32 = 8;
/// Page size of listings.
const LIST_MAX: usize = 1000;

/// One dataset in an origin.
#[derive(Clone)]
pub struct Remote {
    origin: Arc<dyn Origin>,
    name: String,
}

/// A manifest with its version, which tells whether it is still current.
#[derive(Clone, Debug)]
pub struct Current {
    /// The manifest.
    pub manifest: Manifest,
    /// The version in the origin.
    pub etag: Etag,
}

/// Returns the key of a dataset's file.
pub fn key_of_file(name: &str, id: &str, file: &str) -> Key {
    Key::from(format!("{PREFIX}{name}/{id}/{file}").into_bytes())
}

/// Returns the key of a dataset's manifest.
pub fn key_of_manifest(name: &str) -> Key {
    Key::from(format!("{PREFIX}{name}/{}", manifest::FILE).into_bytes())
}

/// Lists the names of the datasets in an origin.
///
/// # Errors
///
/// Those of the origin.
pub async fn names(origin: &Arc<dyn Origin>) -> Result<Vec<String>, Error> {
    let mut names: Vec<String> = Vec::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = origin.list(PREFIX.as_bytes(), after.as_deref(), LIST_MAX).await?;
        let Some(last) = page.last() else { return Ok(names) };
        let is_last = page.len() < LIST_MAX;
        after = Some(last.key.to_vec());
        let name_of = |listed: &Listed| {
            let path = std::str::from_utf8(listed.key.strip_prefix(PREFIX.as_bytes())?).ok()?;
            Some(path.strip_suffix(manifest::FILE)?.strip_suffix('/')?.to_owned())
        };
        names.extend(page.iter().filter_map(name_of).filter(|n| is_name(n)));
        if is_last {
            return Ok(names);
        }
    }
}

impl Remote {
    /// Returns a handle of the dataset `name`, without accessing the origin.
    pub fn new(origin: Arc<dyn Origin>, name: &str) -> Remote {
        Remote { origin, name: name.to_owned() }
    }

    /// Reads the manifest; `None` if there is no such dataset.
    ///
    /// # Errors
    ///
    /// Those of the origin; or if the manifest is invalid.
    pub async fn current(&self) -> Result<Option<Current>> {
        let key = key_of_manifest(&self.name);
        let Some(StoredObject { metadata, mut body }) = self.origin.get(&key, None).await? else {
            return Ok(None);
        };
        let text = gather(body.as_mut(), metadata.size, manifest::BYTES_MAX).await?;
        let manifest = compute(metadata.size, move || Manifest::parse(&text)).await;
        let manifest =
            manifest.context(|| format!("the manifest of {} in the origin", self.name))?;
        Ok(Some(Current { manifest, etag: metadata.etag }))
    }

    /// Returns the version of the manifest.
    ///
    /// # Errors
    ///
    /// Those of the origin.
    pub async fn etag(&self) -> Result<Option<Etag>, Error> {
        let found = self.origin.head(&key_of_manifest(&self.name)).await?;
        Ok(found.map(|metadata| metadata.etag))
    }

    /// Reads a chunk of the log; `None` if no chunk has this number.
    ///
    /// # Errors
    ///
    /// Those of the origin; or if the chunk is damaged.
    pub async fn chunk(&self, id: &str, number: u64) -> Result<Option<Chunk>> {
        let key = key_of_file(&self.name, id, &chunk_file(number));
        let Some(StoredObject { metadata, mut body }) = self.origin.get(&key, None).await? else {
            return Ok(None);
        };
        let bytes = gather(body.as_mut(), metadata.size, CHUNK_BYTES_MAX as u64).await?;
        let chunk = compute(metadata.size, move || Chunk::decode(&bytes)).await;
        Ok(Some(chunk.context(|| format!("chunk {number} of the log of {}", self.name))?))
    }

    /// Copies a shard into a folder. The file appears there atomically.
    ///
    /// # Errors
    ///
    /// Those of the origin and of the folder; or if the shard's size is not `bytes`.
    pub async fn fetch(&self, id: &str, file: &str, bytes: u64, to: &Path) -> Result<()> {
        let key = key_of_file(&self.name, id, file);
        let Some(StoredObject { metadata, mut body }) = self.origin.get(&key, None).await? else {
            bail!(Missing, "{file} of {} is missing in the origin", self.name);
        };
        ensure!(
            metadata.size == bytes,
            Damaged,
            "{file} of {} has {} bytes, and the manifest says {bytes}",
            self.name,
            metadata.size
        );
        let temporary = tempfile::Builder::new().prefix(super::copies::FETCHING).tempfile_in(to)?;
        let mut out = tokio::fs::File::from_std(temporary.reopen()?);
        while let Some(piece) = body.next().await {
            out.write_all(&piece?).await?;
        }
        // Not synced: every byte of the copy is verified when it is opened.
        out.flush().await?;
        ensure!(out.metadata().await?.len() == bytes, Damaged, "{file} was cut off");
        temporary.persist(to.join(file)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Puts an encoded chunk of the log durably; `false` if a chunk has its number.
    ///
    /// # Errors
    ///
    /// Those of the origin. It is then unknown whether the chunk was put.
    pub async fn put_chunk(&self, id: &str, number: u64, bytes: Bytes) -> Result<bool> {
        let key = key_of_file(&self.name, id, &chunk_file(number));
        match self.put(&key, &mut SingleChunk::new(bytes), Condition::Absent).await {
            Err(Error::Condition(_)) => Ok(false),
            result => Ok(result.map(|()| true)?),
        }
    }

    /// Puts a shard's file from a folder, unless one of that name exists.
    ///
    /// # Errors
    ///
    /// Those of the origin and of the folder.
    pub async fn put_shard(&self, id: &str, file: &str, from: &Path) -> Result<()> {
        let mut body = FileChunks::open(&from.join(file)).await?;
        let key = key_of_file(&self.name, id, file);
        Ok(self.put(&key, &mut body, Condition::Absent).await?)
    }

    /// Replaces the manifest of version `there`. Returns the new version, or `None` if another
    /// manifest is current.
    ///
    /// # Errors
    ///
    /// Those of the origin. It is then unknown which manifest is current.
    pub async fn replace(&self, there: &Etag, manifest: Manifest) -> Result<Option<Etag>> {
        // About what it is in the origin.
        let bytes = 64 * manifest.shards.len() as u64 + 8 * manifest.deleted.len() as u64;
        let text = Bytes::from(compute(bytes, move || manifest.encode()).await?);
        let key = key_of_manifest(&self.name);
        let staged = self.stage(&key, &mut SingleChunk::new(text)).await?;
        let etag = staged.metadata().etag.clone();
        match staged.commit(Some(Condition::Is(there.clone()))).await {
            Ok(()) => Ok(Some(etag)),
            Err(Error::Condition(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the dataset: its manifest first, so that it is gone at once, then the files of that manifest. `false` if
    /// there is none. Files that an interruption leaves are listed by no manifest; the next `push` of the name removes them.
    ///
    /// # Errors
    ///
    /// Those of the origin, where a file that cannot be removed does not keep the others; or if the manifest is invalid, or
    /// changes faster than it can be read.
    pub async fn drop_all(&self) -> Result<bool> {
        let key = key_of_manifest(&self.name);
        let mut tries = DROP_TRIES;
        let id = loop {
            let Some(Current { manifest, etag }) = self.current().await? else { return Ok(false) };
            tries -= 1;
            match self.origin.delete_version(&key, &etag).await {
                // An append sealed the log, or `push` replaced the dataset, whose files are then others.
                Err(Error::Condition(_)) if tries > 0 => {}
                removed => {
                    removed?;
                    break manifest.id;
                }
            }
        };
        let prefix = format!("{PREFIX}{}/{id}/", self.name);
        let (mut after, mut failed) = (None, None);
        loop {
            let page = self.origin.list(prefix.as_bytes(), after.as_deref(), LIST_MAX).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.key.to_vec());
            for listed in page {
                failed = self.origin.delete(&listed.key).await.err().or(failed);
            }
        }
        failed.map_or(Ok(true), |error| Err(error.into()))
    }

    /// Whether a file is there.
    ///
    /// # Errors
    ///
    /// Those of the origin.
    pub async fn has(&self, id: &str, file: String) -> Result<bool, Error> {
        Ok(self.origin.head(&key_of_file(&self.name, id, &file)).await?.is_some())
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Those of the origin.
    pub async fn remove(&self, id: &str, file: &str) -> Result<(), Error> {
        self.origin.delete(&key_of_file(&self.name, id, file)).await?;
        Ok(())
    }

    async fn stage(&self, key: &Key, body: &mut dyn Chunks) -> Result<Box<dyn Staged>, Error> {
        self.origin.stage(key, Attributes::default(), body).await
    }

    async fn put(
        &self,
        key: &Key,
        body: &mut dyn Chunks,
        condition: Condition,
    ) -> Result<(), Error> {
        self.stage(key, body).await?.commit(Some(condition)).await
    }
}

/// Reads all bytes of a body of `size` bytes, at most `max`.
async fn gather(body: &mut dyn Chunks, size: u64, max: u64) -> Result<Vec<u8>> {
    ensure!(size <= max, Damaged, "{size} bytes, but at most {max} are allowed");
    let mut bytes = Vec::with_capacity(usize::try_from(size)?);
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
        if bytes.len() as u64 > size {
            bail!(Damaged, "more than the announced {size} bytes");
        }
    }
    ensure!(bytes.len() as u64 == size, Damaged, "only {} of {size} bytes", bytes.len());
    Ok(bytes)
}

/// The bytes of a file, in pieces.
struct FileChunks {
    file: tokio::fs::File,
    left: u64,
}

impl FileChunks {
    async fn open(path: &Path) -> std::io::Result<FileChunks> {
        let file = tokio::fs::File::from_std(record::file::open(path)?);
        let left = file.metadata().await?.len();
        Ok(FileChunks { file, left })
    }
}

impl Chunks for FileChunks {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        const PIECE_BYTES: u64 = 1 << 20;
        Box::pin(async move {
            if self.left == 0 {
                return None;
            }
            let mut piece = vec![0; self.left.min(PIECE_BYTES) as usize];
            if let Err(error) = self.file.read_exact(&mut piece).await {
                return Some(Err(Error::of_io(&error, "read a shard to upload it")));
            }
            self.left -= piece.len() as u64;
            Some(Ok(piece.into()))
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        Some(self.left)
    }
}
