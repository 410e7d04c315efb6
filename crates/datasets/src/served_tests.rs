//! Several processes append to, delete from and seal one dataset in one origin.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ground::Etag;
use shard::query::Query;
use shard::record::{Format, Schema};

use super::*;
use configuration::Overload;
use dataset::PageRequest;
use dataset::manifest::Manifest;
use dataset::part::Work;
use dataset::remote::{key_of_file, key_of_manifest};
use origin::{
    Attributes, BoxFuture, Chunks, Entry, Error, Folder, KeyRange, Metadata, Sharing, SingleChunk,
    Staged, StoredObject,
};

/// A process with a folder of copies of its own.
fn process(origin: &Arc<dyn Origin>, copies: &Path) -> Arc<Served> {
    let common = Common {
        origin: origin.clone(),
        copies: Some(copies.to_owned()),
        bound: Bound { length_max: 100, overload: Overload::Shed },
        work: Work::default(),
        windows: Settings::default(),
        is_mine: Box::new(|_| true),
        seals: Box::new(|_| true),
    };
    Served::new("d", Arc::new(common))
}

/// Puts an empty dataset of lines into the origin.
async fn empty(origin: &Arc<dyn Origin>) {
    of_format(origin, Format::Lines).await;
}

/// Puts an empty dataset into the origin.
async fn of_format(origin: &Arc<dyn Origin>, format: Format) {
    let manifest = Manifest::new(Schema::new(format));
    let text = Bytes::from(manifest.encode().unwrap());
    let mut body = SingleChunk::new(text);
    let key = key_of_manifest("d");
    let staged = origin.stage(&key, Attributes::default(), &mut body).await.unwrap();
    staged.commit(None).await.unwrap();
}

/// An origin with one empty dataset, in a temporary folder.
async fn origin() -> (tempfile::TempDir, Arc<dyn Origin>) {
    let folder = tempfile::tempdir().unwrap();
    let origin: Arc<dyn Origin> =
        Arc::new(Folder::open(&folder.path().join("origin"), 8, Sharing::Cluster).unwrap());
    empty(&origin).await;
    (folder, origin)
}

async fn open(origin: &Arc<dyn Origin>, folder: &Path, name: &str) -> Arc<Served> {
    let served = process(origin, &folder.join(name));
    served.refresh().await.unwrap();
    served
}

fn all_of(served: &Served) -> BTreeMap<u64, String> {
    let dataset = served.view().unwrap().dataset.clone();
    let wanted = PageRequest { limit: usize::MAX, after: None, sorted: true };
    let ids = dataset.search(&Query::All, &wanted).unwrap().ids;
    let text = |id: u64| String::from_utf8(dataset.get(id).unwrap()).unwrap();
    ids.into_iter().map(|id| (id, text(id))).collect()
}

#[tokio::test]
async fn whatever_was_acknowledged_is_there_once_however_many_write_and_seal() {
    let (folder, origin) = origin().await;
    let mut processes = Vec::new();
    for name in ["a", "b", "c"] {
        processes.push(open(&origin, folder.path(), name).await);
    }
    let (mut tasks, sealed) = (tokio::task::JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for (number, served) in processes.iter().enumerate() {
        for client in 0..3 {
            let (served, sealed) = (served.clone(), sealed.clone());
            tasks.spawn(async move {
                let mut acknowledged = Vec::new();
                for i in 0..1000 {
                    if i >= 12 && sealed.load(Ordering::Relaxed) >= 3 {
                        break;
                    }
                    let line = format!("process {number} client {client} line {i}\n");
                    match served.append(Bytes::from(line.clone()), None).await {
                        Ok(changed) => acknowledged.push((changed.first_id, line)),
                        Err(error) => {
                            assert!(error.to_string().contains("try again"), "{error}")
                        }
                    }
                }
                acknowledged
            });
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let sealers: Vec<_> = processes[..2]
        .iter()
        .map(|served| {
            let (served, stop, sealed) = (served.clone(), stop.clone(), sealed.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let done = served.seal().await.unwrap_or(false);
                    sealed.fetch_add(usize::from(done), Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(3)).await;
                }
            })
        })
        .collect();
    let acknowledged: BTreeMap<u64, String> =
        tasks.join_all().await.into_iter().flatten().collect();
    stop.store(true, Ordering::Relaxed);
    for sealer in sealers {
        sealer.await.unwrap();
    }
    let sealed = sealed.load(Ordering::Relaxed);
    assert!(sealed >= 3, "sealed {sealed} times");
    assert!(acknowledged.len() > 50, "{} appends were acknowledged", acknowledged.len());
    for served in &processes {
        served.refresh().await.unwrap();
        let there = all_of(served);
        for (id, line) in &acknowledged {
            assert_eq!(there.get(id), Some(line));
        }
        let mut lines: Vec<_> = there.values().collect();
        lines.sort();
        lines.dedup();
        assert_eq!(lines.len(), there.len(), "no line is there twice");
    }
    // A process that starts now sees the same.
    assert_eq!(all_of(&*open(&origin, folder.path(), "late").await), all_of(&processes[0]));
}

#[tokio::test]
async fn a_writer_that_slept_through_a_seal_does_not_lose_its_append() {
    let (folder, origin) = origin().await;
    let (slow, fast) =
        (open(&origin, folder.path(), "slow").await, open(&origin, folder.path(), "fast").await);
    // Chunk 1 is appended, sealed and removed while `slow` believes that chunk 1 is next.
    fast.append(Bytes::from_static(b"first\n"), None).await.unwrap();
    assert!(fast.seal().await.unwrap());
    let changed = slow.append(Bytes::from_static(b"second\n"), None).await.unwrap();
    assert_eq!((changed.first_id, changed.chunk), (1, 2));
    assert_eq!(slow.delete([0], None).await.unwrap().records, 1);
    fast.refresh().await.unwrap();
    assert_eq!(all_of(&fast), BTreeMap::from([(1, "second\n".to_owned())]));
    assert_eq!(all_of(&fast), all_of(&slow));
}

/// `push --replace` tells no process. Records are appended to the dataset that has the name; ids are those of the dataset before.
#[tokio::test]
async fn an_append_is_to_the_dataset_that_replaced_another_and_a_delete_is_not() {
    let (folder, origin) = origin().await;
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\ntwo\n"), None).await.unwrap();
    // Replace the dataset by an empty one, which this process does not know yet.
    empty(&origin).await;
    assert_eq!(served.append(Bytes::from_static(b"three\n"), None).await.unwrap().first_id, 0);
    let there = BTreeMap::from([(0, "three\n".to_owned())]);
    assert_eq!(all_of(&served), there);
    assert_eq!(all_of(&*open(&origin, folder.path(), "b").await), there);
    empty(&origin).await;
    let refused = served.delete([0], None).await.unwrap_err();
    assert!(matches!(refused, super::Error::Replaced), "{refused}");
    assert!(all_of(&served).is_empty());
    let none = served.delete([0], None).await.unwrap_err();
    assert!(none.to_string().contains("no record 0"), "{none}");
}

/// Records are read in the format of the dataset that replaced another.
#[tokio::test]
async fn an_append_is_checked_against_the_dataset_that_replaced_another() {
    let (folder, origin) = origin().await;
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\n"), None).await.unwrap();
    of_format(&origin, Format::JsonLines).await;
    let refused = served.append(Bytes::from_static(b"two\n"), None).await.unwrap_err();
    assert!(with_causes(&refused).contains("not JSON"), "{refused}");
    assert_eq!(served.append(Bytes::from_static(b"{}\n"), None).await.unwrap().first_id, 0);
}

/// An origin that fails on demand: before anything is staged, or after the commit has succeeded.
struct Faulty {
    inner: Arc<dyn Origin>,
    /// Another process replaces the dataset before a removal.
    replaced: AtomicBool,
    before: AtomicBool,
    after: Arc<AtomicBool>,
}

struct FaultyStaged(Box<dyn Staged>, Arc<AtomicBool>);

impl Staged for FaultyStaged {
    fn metadata(&self) -> &Metadata {
        self.0.metadata()
    }
    fn commit(
        self: Box<Self>,
        condition: Option<origin::Condition>,
    ) -> BoxFuture<'static, Result<(), Error>> {
        Box::pin(async move {
            self.0.commit(condition).await?;
            match self.1.swap(false, Ordering::Relaxed) {
                true => Err(Error::TimedOut("the answer was lost".to_owned())),
                false => Ok(()),
            }
        })
    }
}

impl Faulty {
    fn new(inner: Arc<dyn Origin>, after: &Arc<AtomicBool>) -> Arc<Faulty> {
        let before = AtomicBool::new(false);
        Arc::new(Faulty { inner, replaced: AtomicBool::new(false), before, after: after.clone() })
    }

    /// Puts another dataset with a shard in place of the one that is there, as `push --replace` does.
    async fn replace(&self) {
        if !self.replaced.swap(false, Ordering::Relaxed) {
            return;
        }
        let manifest = Manifest::new(Schema::new(Format::Lines));
        let file = key_of_file("d", &manifest.id, "000001.shard");
        let text = manifest.encode().unwrap();
        for (key, bytes) in [(file, b"a shard".to_vec()), (key_of_manifest("d"), text)] {
            let mut body = SingleChunk::new(Bytes::from(bytes));
            let staged = self.inner.stage(&key, Attributes::default(), &mut body).await.unwrap();
            staged.commit(None).await.unwrap();
        }
    }
}

impl Origin for Faulty {
    fn head(&self, key: &Key) -> BoxFuture<'_, Result<Option<Metadata>, Error>> {
        self.inner.head(key)
    }
    fn get(
        &self,
        key: &Key,
        range: Option<std::ops::Range<u64>>,
    ) -> BoxFuture<'_, Result<Option<StoredObject>, Error>> {
        self.inner.get(key, range)
    }
    fn stage<'a>(
        &'a self,
        key: &Key,
        attributes: Attributes,
        body: &'a mut dyn Chunks,
    ) -> BoxFuture<'a, Result<Box<dyn Staged>, Error>> {
        let key = key.clone();
        Box::pin(async move {
            if self.before.swap(false, Ordering::Relaxed) {
                return Err(Error::Full("no space".to_owned()));
            }
            let staged = self.inner.stage(&key, attributes, body).await?;
            let staged: Box<dyn Staged> = Box::new(FaultyStaged(staged, self.after.clone()));
            Ok(staged)
        })
    }
    fn delete(&self, key: &Key) -> BoxFuture<'_, Result<bool, Error>> {
        let key = key.clone();
        Box::pin(async move {
            self.replace().await;
            self.inner.delete(&key).await
        })
    }
    fn delete_version(&self, key: &Key, etag: &Etag) -> BoxFuture<'_, Result<bool, Error>> {
        let (key, etag) = (key.clone(), etag.clone());
        Box::pin(async move {
            self.replace().await;
            self.inner.delete_version(&key, &etag).await
        })
    }
    fn entries(&self, range: &KeyRange, limit: usize) -> BoxFuture<'_, Result<Vec<Entry>, Error>> {
        self.inner.entries(range, limit)
    }
}

#[tokio::test]
async fn an_append_that_fails_in_the_origin_is_not_acknowledged_and_breaks_nothing() {
    let (folder, inner) = origin().await;
    let after = Arc::new(AtomicBool::new(false));
    let faulty = Faulty::new(inner, &after);
    let origin: Arc<dyn Origin> = faulty.clone();
    let served = open(&origin, folder.path(), "a").await;
    faulty.before.store(true, Ordering::Relaxed);
    let refused = served.append(Bytes::from_static(b"refused\n"), None).await.unwrap_err();
    assert!(format!("{refused:#}").contains("no space"), "{refused:#}");
    after.store(true, Ordering::Relaxed);
    let unknown = served.append(Bytes::from_static(b"unknown\n"), None).await.unwrap_err();
    assert!(format!("{unknown:#}").contains("not known"), "{unknown:#}");
    assert_eq!(served.append(Bytes::from_static(b"known\n"), None).await.unwrap().first_id, 1);
    let there: Vec<_> = all_of(&served).into_values().collect();
    assert_eq!(there, ["unknown\n", "known\n"], "the reply was lost, not the record");
    assert_eq!(
        served.view().unwrap().current.etag,
        Etag::clone(&served.remote.etag().await.unwrap().unwrap())
    );
}

/// Its files would be listed by no manifest.
#[tokio::test]
async fn a_dataset_that_replaces_one_while_it_is_dropped_is_dropped_with_its_files() {
    let (folder, inner) = origin().await;
    let faulty = Faulty::new(inner.clone(), &Arc::default());
    let origin: Arc<dyn Origin> = faulty.clone();
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\n"), None).await.unwrap();
    faulty.replaced.store(true, Ordering::Relaxed);
    assert!(served.remote.drop_all().await.unwrap());
    assert!(served.remote.current().await.unwrap().is_none());
    let left = inner.list(b"datasets/", None, 10).await.unwrap();
    // The log of the first one, which `push` removes: it was not this drop that ended it.
    assert!(left.iter().all(|listed| listed.key.ends_with(b".log")), "{left:?}");
}

#[tokio::test]
async fn a_failed_seal_does_not_block_the_next() {
    let (folder, inner) = origin().await;
    let after = Arc::new(AtomicBool::new(false));
    let faulty = Faulty::new(inner, &after);
    let origin: Arc<dyn Origin> = faulty.clone();
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\ntwo\n"), None).await.unwrap();
    let there = all_of(&served);
    // Putting the shard fails.
    faulty.before.store(true, Ordering::Relaxed);
    assert!(served.seal().await.is_err());
    // The shard is put, but the reply is lost: no manifest references the shard.
    after.store(true, Ordering::Relaxed);
    assert!(served.seal().await.is_err());
    assert_eq!(all_of(&served), there);
    assert!(served.seal().await.unwrap());
    let shards = served.view().unwrap().current.manifest.shards.clone();
    assert_eq!((shards.len(), shards[0].file.as_str()), (1, "000002.shard"));
    assert_eq!(all_of(&served), there);
    assert_eq!(all_of(&*open(&origin, folder.path(), "b").await), there);
    let left = std::fs::read_dir(folder.path().join("a")).unwrap().count();
    assert_eq!(left, 1, "the seals left nothing but the copy");
    assert!(!served.seal().await.unwrap());
}

#[tokio::test]
async fn the_view_as_of_an_earlier_chunk_lacks_later_deletions() {
    let (folder, origin) = origin().await;
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\ntwo\nthree\n"), None).await.unwrap();
    served.delete([0], None).await.unwrap();
    served.seal().await.unwrap();
    let chunk = served.delete([1], None).await.unwrap().chunk;
    served.delete([1, 2], None).await.unwrap();
    let dataset = served.view().unwrap().dataset.clone();
    let deleted_at = |chunk: u64| -> Vec<u64> {
        dataset.shards_as_of(chunk).deleted().iter().copied().collect()
    };
    assert_eq!(deleted_at(chunk - 1), [0]);
    assert_eq!(deleted_at(chunk), [0, 1]);
    assert_eq!(deleted_at(chunk + 1), [0, 1, 2]);
}

#[tokio::test]
async fn a_damaged_copy_is_replaced_and_a_damaged_shard_is_named() {
    let (folder, origin) = origin().await;
    let served = open(&origin, folder.path(), "a").await;
    served.append(Bytes::from_static(b"one\ntwo\n"), None).await.unwrap();
    assert!(served.seal().await.unwrap());
    let id = served.view().unwrap().current.manifest.id.clone();
    drop(served);
    let copy = folder.path().join("a/d").join(&id).join("000001.shard");
    let mut bytes = std::fs::read(&copy).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&copy, &bytes).unwrap();
    let served = open(&origin, folder.path(), "a").await;
    assert_eq!(all_of(&served).len(), 2);
    // Now damage the shard in the origin itself.
    let key = key_of_file("d", &id, "000001.shard");
    let mut body = SingleChunk::new(Bytes::from(bytes));
    let staged = origin.stage(&key, Attributes::default(), &mut body).await.unwrap();
    staged.commit(None).await.unwrap();
    let late = process(&origin, &folder.path().join("late"));
    let error = format!("{:#}", late.refresh().await.unwrap_err());
    assert!(error.contains("000001.shard") && error.contains("dataset d"), "{error}");
    assert!(late.view().is_none());
}
