//! Removes what uploads in parts left behind that nobody goes on with, and the parts of objects that are not there any more.
//!
//! Times of writing are of the clocks of those who wrote, and of the store. A machine that starts with a clock a week ahead
//! would take all uploads for abandoned, so a process removes only what it has watched for a while itself, by a clock
//! that does not jump.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ground::Key;
use origin::{Error, Listed, Origin};
use tracing::{info, warn};

use super::hidden::{BEGUN, MADE, PARTS};
use super::multipart::{decoded, named_mark, remove};

/// How often to look: a listing of all uploads' keys.
const EVERY: Duration = Duration::from_secs(3600);

/// For how long a process watches before it removes: a wrong clock is set by then (`ntpd` takes minutes, people hours).
const WATCH_MAX: Duration = Duration::from_secs(12 * 3600);

/// Of how many looks one is for the parts of objects, too: it asks for each such object.
const PARTS_EVERY: u64 = 24;

/// Names on a page of a listing.
const PAGE: usize = 1000;

/// Looks again and again for uploads to which nothing was added for `age`; never returns.
pub async fn keep_clean(origin: Arc<dyn Origin>, age: Duration) {
    let watch_for = age.min(WATCH_MAX);
    let (mut uploads, mut lists) = (Watch::new(watch_for), Watch::new(watch_for));
    for look in 0_u64.. {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let before = now.saturating_sub(age).as_micros() as u64;
        match clean(&origin, before, &mut uploads).await {
            Ok(0) => {}
            Ok(count) => info!("removed {count} uploads that nobody went on with"),
            Err(error) => warn!("cannot look for uploads that nobody goes on with: {error}"),
        }
        if look % PARTS_EVERY == 0 {
            match forget(&origin, before, &mut lists).await {
                Ok(0) => {}
                Ok(count) => {
                    info!("removed the parts of {count} objects that are not there any more")
                }
                Err(error) => warn!("cannot look for parts of objects that are not there: {error}"),
            }
        }
        // Who sets a short age has it, also where the first look is when the watch begins.
        tokio::time::sleep(EVERY.min(watch_for.max(Duration::from_secs(1)))).await;
    }
}

/// What looked abandoned at earlier looks, and since when it has been as it is.
struct Watch {
    watch_for: Duration,
    known: HashMap<Vec<u8>, Watched>,
    /// Those of the present look; the others have gone, or somebody went on with them.
    present: HashMap<Vec<u8>, Watched>,
}

#[derive(Clone, Copy)]
struct Watched {
    /// The time that the newest of its keys was written, by the writer's clock.
    newest_unix_us: u64,
    keys: usize,
    since: Instant,
}

impl Watch {
    fn new(watch_for: Duration) -> Watch {
        Watch { watch_for, known: HashMap::new(), present: HashMap::new() }
    }

    /// Whether what has this name and these keys has been as it is for long enough.
    fn has_waited(&mut self, name: &[u8], keys: &[Listed], now: Instant) -> bool {
        let newest = keys.iter().map(|key| key.metadata.modified_unix_us).max();
        let found = Watched { newest_unix_us: newest.unwrap_or(0), keys: keys.len(), since: now };
        let is_same = |earlier: &&Watched| {
            (earlier.newest_unix_us, earlier.keys) == (found.newest_unix_us, found.keys)
        };
        let watched = *self.known.get(name).filter(is_same).unwrap_or(&found);
        self.present.insert(name.to_vec(), watched);
        now.saturating_duration_since(watched.since) >= self.watch_for
    }

    /// Ends a look: what was not met in it is forgotten.
    fn end_look(&mut self) {
        self.known = std::mem::take(&mut self.present);
    }
}

/// Removes the lists of parts that were written before a time and that no object names: it was written anew, or removed. Returns how
/// many. A list is written before its object, so the time is one by which the object is there, too.
async fn forget(
    origin: &Arc<dyn Origin>,
    before_unix_us: u64,
    watch: &mut Watch,
) -> Result<usize, Error> {
    let (mut after, mut count): (Option<Vec<u8>>, usize) = (None, 0);
    loop {
        let page = origin.list(MADE.as_bytes(), after.as_deref(), PAGE).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|last| last.key.to_vec());
        let mut unused = Vec::new();
        for listed in page {
            if listed.metadata.modified_unix_us < before_unix_us
                && !is_named(origin, &listed).await?
                && watch.has_waited(&listed.key, std::slice::from_ref(&listed), Instant::now())
            {
                unused.push(listed);
            }
        }
        count += unused.len();
        remove(origin, unused).await;
        if !full {
            watch.end_look();
            return Ok(count);
        }
    }
}

/// Whether the object that a list of parts is for names it. What says of no object has another origin, and is left.
async fn is_named(origin: &Arc<dyn Origin>, listed: &Listed) -> Result<bool, Error> {
    let user = &listed.metadata.attributes.user;
    let Some((_, key)) = user.iter().find(|(name, _)| name == "key") else { return Ok(true) };
    let Some(object) = origin.head(&Key::from(decoded(key).into_bytes())).await? else {
        return Ok(false);
    };
    let named = named_mark(&object.attributes).map(str::as_bytes);
    Ok(named == listed.key.strip_prefix(MADE.as_bytes()))
}

/// The upload that a key belongs to.
fn upload_of<'a>(listed: &'a Listed, prefix: &str) -> Option<&'a str> {
    std::str::from_utf8(&listed.key).ok()?.strip_prefix(prefix)?.split('/').next()
}

async fn pages(
    origin: &Arc<dyn Origin>,
    prefix: &str,
    mut each: impl FnMut(Listed),
) -> Result<(), Error> {
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = origin.list(prefix.as_bytes(), after.as_deref(), PAGE).await?;
        let full = page.len() == PAGE;
        after = page.last().map(|last| last.key.to_vec());
        page.into_iter().for_each(&mut each);
        if !full {
            return Ok(());
        }
    }
}

/// Removes the uploads that were begun, and whose last part came, before a time; and parts without an
/// upload. Returns how many uploads. An upload that is completed at this moment fails, and is never made of
/// other bytes: each part is compared with its etag.
async fn clean(
    origin: &Arc<dyn Origin>,
    before_unix_us: u64,
    watch: &mut Watch,
) -> Result<usize, Error> {
    let (mut young, mut old): (HashSet<String>, HashMap<String, Vec<Listed>>) = Default::default();
    let is_old = |listed: &Listed| listed.metadata.modified_unix_us < before_unix_us;
    pages(origin, BEGUN, |listed| {
        let Some(upload) = upload_of(&listed, BEGUN).map(str::to_owned) else { return };
        match is_old(&listed) {
            true => _ = old.insert(upload, vec![listed]),
            false => _ = young.insert(upload),
        }
    })
    .await?;
    pages(origin, PARTS, |listed| {
        let Some(upload) = upload_of(&listed, PARTS).map(str::to_owned) else { return };
        match young.contains(&upload) {
            true => {}
            false if is_old(&listed) => old.entry(upload).or_default().push(listed),
            false => {
                old.remove(&upload);
                young.insert(upload);
            }
        }
    })
    .await?;
    let now = Instant::now();
    old.retain(|upload, keys| watch.has_waited(upload.as_bytes(), keys, now));
    watch.end_look();
    let count = old.len();
    // The mark of the upload is the first of its keys: without it nothing is added.
    for (_, keys) in old {
        let mut keys = keys.into_iter();
        remove(origin, keys.next().into_iter().collect()).await;
        remove(origin, keys.collect()).await;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use crate::multipart::encoded;
    use bytes::Bytes;
    use origin::{Attributes, Folder, Metadata, Sharing, SingleChunk};

    use super::*;

    #[tokio::test]
    async fn what_nobody_goes_on_with_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Folder::open(folder.path(), 2, Sharing::Alone).unwrap();
        let origin: Arc<dyn Origin> = Arc::new(origin);
        let put = async |key: String| {
            let mut body = SingleChunk::new(Bytes::from_static(b"part"));
            let key = Key::from(key.into_bytes());
            let staged = origin.stage(&key, Attributes::default(), &mut body).await.unwrap();
            let at = staged.metadata().modified_unix_us;
            staged.commit(None).await.unwrap();
            at
        };
        let (left, orphan, live, late) = ("a", "b", "c", "d");
        put("object".to_owned()).await;
        for key in [
            format!("{BEGUN}{left}"),
            format!("{PARTS}{left}/00001"),
            format!("{PARTS}{left}/00002"),
            format!("{PARTS}{orphan}/00001"),
            format!("{BEGUN}{late}"),
            format!("{PARTS}{late}/00001"),
        ] {
            put(key).await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
        let before = put(format!("{BEGUN}{live}")).await;
        put(format!("{PARTS}{live}/00001")).await;
        put(format!("{PARTS}{late}/00002")).await;
        // A process that has just begun removes nothing, whatever its clock says.
        let mut patient = Watch::new(Duration::from_secs(3600));
        assert_eq!(clean(&origin, u64::MAX, &mut patient).await.unwrap(), 0);
        assert_eq!(clean(&origin, u64::MAX, &mut patient).await.unwrap(), 0);
        let mut watch = Watch::new(Duration::ZERO);
        assert_eq!(clean(&origin, before, &mut watch).await.unwrap(), 2);
        let mut keys = Vec::new();
        pages(&origin, "", |one| keys.push(String::from_utf8(one.key.to_vec()).unwrap()))
            .await
            .unwrap();
        let expected = [
            format!("{BEGUN}{live}"),
            format!("{BEGUN}{late}"),
            format!("{PARTS}{live}/00001"),
            format!("{PARTS}{late}/00001"),
            format!("{PARTS}{late}/00002"),
            "object".to_owned(),
        ];
        assert_eq!(keys, expected);
        assert_eq!(clean(&origin, before, &mut watch).await.unwrap(), 0);
    }

    #[test]
    fn what_changes_is_watched_anew() {
        let listed = |key: &str, at: u64| Listed {
            key: Key::from(key.as_bytes()),
            metadata: Metadata {
                size: 1,
                etag: "a".into(),
                modified_unix_us: at,
                attributes: Attributes::default(),
            },
        };
        let mut watch = Watch::new(Duration::from_secs(10));
        let start = Instant::now();
        let mut look = |second: u64, keys: &[Listed]| {
            let waited = watch.has_waited(b"upload", keys, start + Duration::from_secs(second));
            watch.end_look();
            waited
        };
        let (one, two) = ([listed("a", 1)], [listed("a", 1), listed("b", 1)]);
        assert!(!look(0, &one) && !look(9, &one) && look(10, &one));
        // A further part, also one that a clock behind has stamped.
        assert!(!look(11, &two) && look(21, &two));
        assert!(!look(22, &[listed("a", 2), listed("b", 1)]));
        watch.end_look();
        assert!(!watch.has_waited(b"upload", &one, start + Duration::from_secs(40)));
    }

    #[tokio::test]
    async fn lists_of_parts_go_with_their_objects() {
        let folder = tempfile::tempdir().unwrap();
        let origin = Folder::open(folder.path(), 2, Sharing::Alone).unwrap();
        let origin: Arc<dyn Origin> = Arc::new(origin);
        let put = async |key: &str, name: &str, value: &str| {
            let user = Some((name.to_owned(), value.to_owned())).filter(|_| !name.is_empty());
            let attributes = Attributes { content_type: None, user: user.into_iter().collect() };
            let mut body = SingleChunk::new(Bytes::from_static(b"1*1"));
            let key = Key::from(key.as_bytes());
            let staged = origin.stage(&key, attributes, &mut body).await.unwrap();
            staged.commit(None).await.unwrap();
        };
        let mark = |digit: &str| digit.repeat(32);
        for (digit, key) in [("a", "named"), ("b", "written-anew"), ("c", "gone"), ("d", "%41/ü")]
        {
            put(&format!("{MADE}{}", mark(digit)), "key", &encoded(key)).await;
        }
        put(&format!("{MADE}other"), "", "").await;
        put("named", "s3--parts", &format!("@{}", mark("a"))).await;
        put("written-anew", "s3--parts", &format!("@{}", mark("c"))).await;
        put("%41/ü", "s3--parts", &format!("@{}", mark("d"))).await;
        let mut watch = Watch::new(Duration::ZERO);
        assert_eq!(forget(&origin, 1, &mut watch).await.unwrap(), 0);
        let mut patient = Watch::new(Duration::from_secs(3600));
        assert_eq!(forget(&origin, u64::MAX, &mut patient).await.unwrap(), 0);
        assert_eq!(forget(&origin, u64::MAX, &mut watch).await.unwrap(), 2);
        let left = origin.list(MADE.as_bytes(), None, 9).await.unwrap();
        let left: Vec<_> = left.iter().map(|one| String::from_utf8_lossy(&one.key)).collect();
        assert_eq!(
            left,
            ["a", "d", "other"].map(|end| {
                format!("{MADE}{}", if end.len() == 1 { mark(end) } else { end.to_owned() })
            })
        );
    }
}
