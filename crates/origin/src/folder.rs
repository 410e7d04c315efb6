//! The folder origin: each object is one durable file.
//!
//! A file holds the object's bytes, checksums of their blocks, its metadata and key, and a footer of 24
//! bytes that says how long each is, with a checksum (docs/device-format.md). The metadata comes last because the version
//! is a hash that is known only at the end of an upload, and in the same file because a rename is atomic
//! for one file only. A write goes to `tmp/`, is synced, renamed over the object, and the folder synced;
//! what a crash leaves in `tmp/` is removed at the next start. The rename of a write and the removal of a
//! delete take the turn of their folder `XX`, so that the condition of a write holds when it is made.
//!
//! File calls block, so they run on a bounded pool of threads. A listing reads all names of the
//! folder (0.5 s for half a million) and the metadata of those that it returns: it is for
//! administration, not for serving.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ground::origin::OriginId;
use ground::{Etag, Key};
use tracing::error;

use super::chunks::{BoxFuture, Chunks, SingleChunk};
use super::damage::{FileStamp, Replaced};
use super::error::{Error, OpenError};
use super::file::{self, BLOCK_BYTES, Checksums, End, Footer, block_of, read_end, read_verified};
use super::identity_record::IdentityRecord;
use super::listing::{Entry, KeyRange};
use super::metadata::{Attributes, Metadata, VersionHasher, now_unix_us};
use super::name;
use super::pool::Pool;
use super::sharing::Sharing;
use super::store::{Origin, StoredObject};
use super::temporary::{PooledTemporary, Temporary, sync_parent};
use super::tree::Tree;
use super::write::{Condition, Fence, Staged, fenced};

/// Bytes read or written by one call.
const PIECE_BYTES: usize = 256 << 10;

/// The folder origin.
pub struct Folder {
    tree: Arc<Tree>,
    pool: Pool,
}

impl Folder {
    /// Opens the folder, creating it if necessary, and removes temporary files that a crash left in
    /// `tmp/`. Starts `threads` threads for file calls.
    ///
    /// # Errors
    ///
    /// Those of the file system; if another process uses the folder, or it holds what this project did not make.
    pub fn open(root: &Path, threads: u32, sharing: Sharing) -> Result<Folder, OpenError> {
        Folder::open_recorded(root, threads, sharing, Arc::default())
    }

    /// As [`Folder::open`], for a process that may remember which origin it served. Where that is missing or another one is
    /// in its place, every request fails until it is there.
    ///
    /// # Errors
    ///
    /// As [`Folder::open`].
    pub fn open_recorded(
        root: &Path,
        threads: u32,
        sharing: Sharing,
        record: Arc<IdentityRecord>,
    ) -> Result<Folder, OpenError> {
        let waits = record.waits();
        let tree = Arc::new(Tree::new(root, sharing, record));
        match tree.identity() {
            Err(Error::Lost(why)) if waits => {
                error!("{why}; until then, requests that need the origin are answered 503");
            }
            opened => _ = opened?,
        }
        Ok(Folder { tree, pool: Pool::start(threads).map_err(OpenError::Start)? })
    }
}

impl Tree {
    pub(super) fn path(&self, key: &[u8]) -> PathBuf {
        self.root.join(name::path_of(key))
    }

    /// The file of a key's object and its end, if there is one.
    pub(super) fn open(&self, key: &[u8]) -> Result<Option<(File, End)>, Error> {
        let path = self.path(key);
        let file = match file::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_parent(&path)?;
                return Ok(None);
            }
            Err(error) => {
                self.identity()?.check()?;
                return Err(Error::of_io(&error, &format!("open {}", path.display())));
            }
        };
        self.identity()?.check()?;
        let end = read_end(&file, &path).and_then(|end| {
            let other = || Error::Damaged(format!("{} is of another key", path.display()));
            if end.key == key { Ok(end) } else { Err(other()) }
        });
        match &end {
            Ok(_) => self.damage_log.forget(&path),
            Err(error) => self.damage_log.tell(&path, error),
        }
        Ok(Some((file, end?)))
    }

    /// [`Error::Lost`] unless a name missing in the folder of `path` means that there is no such object.
    fn check_parent(&self, path: &Path) -> Result<(), Error> {
        self.identity()?.check_shard(path.parent().unwrap_or(&self.root))
    }

    /// Renames a complete and synced file over the key's object, if the condition holds.
    fn put(
        &self,
        key: &[u8],
        mut file: Temporary,
        replaced: Option<&Replaced>,
    ) -> Result<(), Error> {
        let path = self.path(key);
        {
            let writable = self.writable()?;
            let _turn = writable.turns.take(key)?;
            // The file to be renamed was made here, so it is in this folder if the path leads there now.
            self.check_parent(&path)?;
            self.check_replaced(key, replaced)?;
            file.rename(&path)?;
        }
        sync_parent(&path)
    }

    /// What the key holds now, if the fence allows a write after that look.
    fn now(&self, key: &[u8], fence: &Fence) -> Result<Replaced, Error> {
        let now = match self.open(key) {
            Ok(None) => Replaced::Object(Condition::Absent),
            Ok(Some((_, end))) => Replaced::Object(Condition::Is(end.metadata.etag)),
            // A write heals it, a removal ends it: neither needs to read it.
            Err(damaged @ Error::Damaged(_)) => {
                Replaced::Damaged(FileStamp::of_path(&self.path(key)).ok_or(damaged)?)
            }
            Err(error) => return Err(error),
        };
        if fence() { Ok(now) } else { Err(fenced()) }
    }

    /// Returns [`Error::Condition`] unless the key holds what is to be replaced. The folder's turn is held.
    fn check_replaced(&self, key: &[u8], replaced: Option<&Replaced>) -> Result<(), Error> {
        match replaced {
            None => Ok(()),
            Some(Replaced::Object(condition)) => {
                condition.judge(self.open(key)?.map(|(_, end)| end.metadata).as_ref())
            }
            Some(Replaced::Damaged(stamp)) => {
                if FileStamp::of_path(&self.path(key)).as_ref() == Some(stamp) {
                    return Ok(());
                }
                Err(Error::Condition("the damaged object was replaced meanwhile".to_owned()))
            }
        }
    }

    fn delete(&self, key: &[u8], replaced: Option<&Replaced>) -> Result<bool, Error> {
        let path = self.path(key);
        let removed = {
            let writable = self.writable()?;
            let _turn = writable.turns.take(key)?;
            self.check_parent(&path)?;
            self.check_replaced(key, replaced)?;
            fs::remove_file(&path)
        };
        match removed {
            Ok(()) => {}
            // An earlier attempt may have removed the file and failed before the sync.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.check_parent(&path)?;
                sync_parent(&path)?;
                return Ok(false);
            }
            Err(error) => return Err(Error::of_io(&error, &format!("remove {}", path.display()))),
        }
        sync_parent(&path)?;
        Ok(true)
    }
}

/// A write whose bytes have all been received.
struct StagedFile {
    tree: Arc<Tree>,
    pool: Pool,
    key: Key,
    metadata: Metadata,
    bytes: StagedBytes,
    fence: Option<Fence>,
}

enum StagedBytes {
    /// A small object in memory; the commit writes the file in one job.
    Memory(Bytes),
    /// A synced file in `tmp/`.
    File(PooledTemporary),
}

impl Staged for StagedFile {
    fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    fn fence(&mut self, fence: Fence) {
        self.fence = Some(fence);
    }

    fn commit(
        self: Box<Self>,
        condition: Option<Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        let StagedFile { tree, pool, key, metadata, bytes, fence } = *self;
        Box::pin(async move {
            pool.run(move || {
                let file = match bytes {
                    StagedBytes::File(file) => file.take()?,
                    StagedBytes::Memory(bytes) => {
                        let mut file = tree.temporary()?;
                        let block = block_of(&metadata, &key);
                        let footer = Footer::encode(metadata.size, &block);
                        let whole =
                            [&bytes[..], &Checksums::of_bytes(&bytes), &block, &footer].concat();
                        file.write(&[&whole])?;
                        file.sync()?;
                        file
                    }
                };
                let replaced = match (condition, fence) {
                    (None, Some(fence)) => Some(tree.now(&key, &fence)?),
                    (condition, _) => condition.map(Replaced::Object),
                };
                tree.put(&key, file, replaced.as_ref())
            })
            .await
        })
    }
}

impl Origin for Folder {
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        let (tree, key) = (self.tree.clone(), key.clone());
        Box::pin(async move {
            self.pool.run(move || Ok(tree.open(&key)?.map(|(_, end)| end.metadata))).await
        })
    }

    fn get(
        &self,
        key: &Key,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        let (tree, key, pool) = (self.tree.clone(), key.clone(), self.pool.clone());
        Box::pin(async move {
            self.pool
                .run(move || {
                    let Some((file, found)) = tree.open(&key)? else { return Ok(None) };
                    let End { metadata, has_checksums, .. } = found;
                    let asked = range.unwrap_or(0..metadata.size);
                    let end = asked.end.min(metadata.size);
                    let at = asked.start.min(end);
                    // Only a read of the whole can be held against the version; blocks are verified always.
                    let version = (at == 0 && end == metadata.size)
                        .then(|| (VersionHasher::default(), metadata.clone()));
                    let size = has_checksums.then_some(metadata.size);
                    let mut reader = Reader { file, size, at, end, version };
                    let first = reader.read()?;
                    let body: Box<dyn Chunks> = if reader.at == reader.end {
                        Box::new(SingleChunk::new(first))
                    } else {
                        Box::new(Pieces { pool, first: Some(first), reader: Some(reader) })
                    };
                    Ok(Some(StoredObject { metadata, body }))
                })
                .await
        })
    }

    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            let mut upload = Upload {
                origin: self,
                hasher: VersionHasher::default(),
                checksums: Checksums::default(),
                size: 0,
            };
            let (first, more) = gather(body).await?;
            // A piece as large as that is hashed by a thread that may compute, as further ones are.
            let (metadata, bytes) = if more || first.len() > PIECE_BYTES {
                upload.write_file(first, body, attributes, &key).await?
            } else {
                upload.hasher.update(&first);
                upload.size = first.len() as u64;
                (upload.metadata(attributes), StagedBytes::Memory(first))
            };
            let (tree, pool) = (self.tree.clone(), self.pool.clone());
            let staged: Box<dyn Staged> =
                Box::new(StagedFile { tree, pool, key, metadata, bytes, fence: None });
            Ok(staged)
        })
    }

    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let (tree, key) = (self.tree.clone(), key.clone());
        Box::pin(async move { self.pool.run(move || tree.delete(&key, None)).await })
    }

    fn delete_fenced(&self, key: &Key, fence: Fence) -> BoxFuture<'_, Result<bool, Error>> {
        let (tree, key) = (self.tree.clone(), key.clone());
        Box::pin(async move {
            self.pool
                .run(move || {
                    let now = tree.now(&key, &fence)?;
                    tree.delete(&key, Some(&now))
                })
                .await
        })
    }

    fn delete_version(&self, key: &Key, etag: &Etag) -> BoxFuture<'_, Result<bool, Error>> {
        let (tree, key) = (self.tree.clone(), key.clone());
        let version = Replaced::Object(Condition::Is(etag.clone()));
        Box::pin(async move {
            self.pool
                .run(move || match tree.open(&key)? {
                    Some(_) => tree.delete(&key, Some(&version)),
                    None => Ok(false),
                })
                .await
        })
    }

    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        let (tree, range) = (self.tree.clone(), range.clone());
        Box::pin(async move { self.pool.run(move || tree.entries(range, limit)).await })
    }

    fn created_unix_us(&self) -> BoxFuture<'_, Option<u64>> {
        let tree = self.tree.clone();
        Box::pin(async move {
            self.pool.run(move || Ok(tree.identity()?.created_unix_us())).await.ok().flatten()
        })
    }

    fn check(&self) -> BoxFuture<'_, Result<(), Error>> {
        let tree = self.tree.clone();
        Box::pin(async move { self.pool.run(move || tree.identity()?.check()).await })
    }

    fn id(&self) -> Option<OriginId> {
        self.tree.id()
    }

    fn read_only(&self) -> Option<String> {
        self.tree.read_only()
    }
}

/// An upload in progress.
struct Upload<'a> {
    origin: &'a Folder,
    hasher: VersionHasher,
    checksums: Checksums,
    size: u64,
}

impl Upload<'_> {
    fn metadata(&self, attributes: Attributes) -> Metadata {
        Metadata {
            size: self.size,
            etag: self.hasher.finish(&attributes),
            modified_unix_us: now_unix_us(),
            attributes,
        }
    }

    async fn write_file(
        &mut self,
        first: Bytes,
        body: &mut dyn Chunks,
        attributes: Attributes,
        key: &Key,
    ) -> Result<(Metadata, StagedBytes), Error> {
        let tree = self.origin.tree.clone();
        let pool = &self.origin.pool;
        let mut kept = PooledTemporary::new(pool.run(move || tree.temporary()).await?, pool);
        let (mut piece, mut more) = (first, true);
        let mut file = loop {
            let mut file = kept.take()?;
            self.size += piece.len() as u64;
            let mut hasher = std::mem::take(&mut self.hasher);
            let mut checksums = std::mem::take(&mut self.checksums);
            let bytes = piece;
            let written = pool.run(move || {
                hasher.update(&bytes);
                checksums.update(&bytes);
                file.write(&[&bytes])?;
                Ok((file, hasher, checksums))
            });
            (file, self.hasher, self.checksums) = written.await?;
            if !more {
                break file;
            }
            kept = PooledTemporary::new(file, pool);
            (piece, more) = gather(body).await?;
        };
        let metadata = self.metadata(attributes);
        let (size, block) = (metadata.size, block_of(&metadata, key));
        let checksums = std::mem::take(&mut self.checksums).finish();
        let synced = pool.run(move || {
            file.write(&[&checksums, &block, &Footer::encode(size, &block)])?;
            file.sync()?;
            Ok(file)
        });
        Ok((metadata, StagedBytes::File(PooledTemporary::new(synced.await?, pool))))
    }
}

/// Collects at least [`PIECE_BYTES`] from the body, or all that is left. Returns the bytes and
/// whether there may be more.
async fn gather(body: &mut dyn Chunks) -> Result<(Bytes, bool), Error> {
    let mut first = match body.next().await {
        None => return Ok((Bytes::new(), false)),
        Some(chunk) => chunk?,
    };
    let Some(second) = body.next().await else { return Ok((first, false)) };
    // What is declared need not come: memory is taken in proportion to what did.
    let room = (4 * first.len()).min(PIECE_BYTES);
    let mut gathered = BytesMut::with_capacity(
        body.bytes_left().map_or(room, |n| room.min(n as usize)) + first.len(),
    );
    gathered.extend_from_slice(&std::mem::take(&mut first));
    gathered.extend_from_slice(&second?);
    while gathered.len() < PIECE_BYTES {
        match body.next().await {
            None => return Ok((gathered.freeze(), false)),
            Some(chunk) => gathered.extend_from_slice(&chunk?),
        }
    }
    Ok((gathered.freeze(), true))
}

/// Reads a range of a file piece by piece; no piece leaves that is not verified.
struct Reader {
    file: File,
    /// Bytes of the object, if its file has checksums.
    size: Option<u64>,
    at: u64,
    end: u64,
    version: Option<(VersionHasher, Metadata)>,
}

impl Reader {
    fn read(&mut self) -> Result<Bytes, Error> {
        // The first piece ends where a block does, so that later ones read no block twice.
        let room = PIECE_BYTES as u64 - self.at % BLOCK_BYTES as u64;
        let length = (self.end - self.at).min(room) as usize;
        let piece = match self.size {
            Some(size) => read_verified(&self.file, size, self.at, length)?,
            None => {
                let mut piece = vec![0; length];
                let read = self.file.read_exact_at(&mut piece, self.at);
                read.map_err(|e| Error::of_io(&e, "read"))?;
                piece
            }
        };
        self.at += piece.len() as u64;
        if let Some((hasher, metadata)) = &mut self.version {
            hasher.update(&piece);
            if self.at == self.end && hasher.finish(&metadata.attributes) != metadata.etag {
                return Err(Error::Damaged("the bytes do not match the version".to_owned()));
            }
        }
        Ok(Bytes::from(piece))
    }
}

/// The body of an object that is being read.
struct Pieces {
    pool: Pool,
    first: Option<Bytes>,
    reader: Option<Reader>,
}

impl Chunks for Pieces {
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            if let Some(first) = self.first.take() {
                return Some(Ok(first));
            }
            let mut reader = self.reader.take()?;
            if reader.at == reader.end {
                return None;
            }
            let read = self.pool.run(move || {
                let piece = reader.read()?;
                Ok((piece, reader))
            });
            match read.await {
                Ok((piece, reader)) => {
                    self.reader = Some(reader);
                    Some(Ok(piece))
                }
                Err(error) => Some(Err(error)),
            }
        })
    }

    fn bytes_left(&self) -> Option<u64> {
        let first = self.first.as_ref().map_or(0, Bytes::len) as u64;
        Some(first + self.reader.as_ref().map_or(0, |reader| reader.end - reader.at))
    }
}
