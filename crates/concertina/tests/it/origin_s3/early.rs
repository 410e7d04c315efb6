//! Writes whose SHA-256 is known in advance: they are sent to the store while they arrive.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ::bytes::Bytes;
use origin::{Attributes, BoxFuture, Chunks, Error, Origin, S3};

use super::{Store, config_of};
use crate::origin::{key, read, run, staged, write};
use crate::serve_client::{LONGEST, bytes};

const SIZE: usize = 3 << 20;
const PIECE: usize = 100_000;

/// Passes connections on to the store, counts what passes, and may cut the connections of PUTs.
pub struct Tap {
    endpoint: String,
    /// Bytes sent to the store.
    sent: Arc<AtomicU64>,
    /// The first lines of requests.
    lines: Arc<Mutex<Vec<String>>>,
    /// Cuts the connection after the next bytes of a PUT's body.
    cuts: Arc<AtomicBool>,
    /// Cuts the connection in place of the next reply to a PUT.
    loses: Arc<AtomicBool>,
    /// Is the reply to the next PUT, as soon as its head has come.
    refusal: Arc<Mutex<Option<String>>>,
}

impl Tap {
    pub fn before(store: &Store) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let tap = Tap {
            endpoint: format!("http://{}", listener.local_addr().unwrap()),
            sent: Arc::default(),
            lines: Arc::default(),
            cuts: Arc::default(),
            loses: Arc::default(),
            refusal: Arc::default(),
        };
        let (address, sent) = (store.address.clone(), tap.sent.clone());
        let (lines, cuts, loses) = (tap.lines.clone(), tap.cuts.clone(), tap.loses.clone());
        let refusal = tap.refusal.clone();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                let mut store = TcpStream::connect(&address).unwrap();
                let (mut back, mut to) = (store.try_clone().unwrap(), client.try_clone().unwrap());
                let puts = Arc::new(AtomicBool::new(false));
                let (loses, put) = (loses.clone(), puts.clone());
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = back.read(&mut buffer) {
                        let lost =
                            put.load(Ordering::Relaxed) && loses.swap(false, Ordering::Relaxed);
                        if lost || to.write_all(&buffer[..length]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
                let (sent, lines, cuts) = (sent.clone(), lines.clone(), cuts.clone());
                let (refusal, mut is_refused) = (refusal.clone(), false);
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while let Ok(length @ 1..) = client.read(&mut buffer) {
                        let piece = &buffer[..length];
                        let line = piece.split(|byte| *byte == b'\r').next().unwrap();
                        let line = String::from_utf8_lossy(line);
                        let is_head = line.contains(" HTTP/1.1");
                        if is_head {
                            puts.store(line.starts_with("PUT /objects/k"), Ordering::Relaxed);
                            lines.lock().unwrap().push(line.into_owned());
                        } else if cuts.swap(false, Ordering::Relaxed) {
                            break;
                        }
                        if is_head && puts.load(Ordering::Relaxed) {
                            let reply = refusal.lock().unwrap().take();
                            is_refused = reply.is_some();
                            let _ = client.write_all(reply.unwrap_or_default().as_bytes());
                        }
                        sent.fetch_add(length as u64, Ordering::Relaxed);
                        // What follows a refusal is not the store's.
                        if !is_refused && store.write_all(piece).is_err() {
                            break;
                        }
                    }
                    let _ = store.shutdown(Shutdown::Both);
                    let _ = client.shutdown(Shutdown::Both);
                });
            }
        });
        tap
    }

    pub fn open(&self) -> S3 {
        S3::open(&config_of(&self.endpoint)).unwrap()
    }

    fn puts(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.starts_with("PUT /objects/k")).count()
    }

    /// How many looks at the bucket's marker there were.
    pub fn looks(&self) -> usize {
        let lines = self.lines.lock().unwrap();
        lines.iter().filter(|line| line.contains("/identity ")).count()
    }

    /// Waits until the store has received `bytes` bytes or more.
    async fn wait(&self, bytes: u64) -> bool {
        let start = Instant::now();
        while self.sent.load(Ordering::Relaxed) < bytes {
            if start.elapsed() > LONGEST {
                return false;
            }
            // Small writes are tasks of this thread.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        true
    }
}

/// A body whose hash is known, and what happens before its last piece.
struct HashedBody<F> {
    left: Bytes,
    /// The length that is announced, if that is not the body's.
    announced: Option<usize>,
    piece: usize,
    hash: [u8; 32],
    before_last: Option<F>,
}

impl<F, W> HashedBody<F>
where
    F: FnOnce() -> W + Send,
    W: Future<Output = Option<Error>> + Send,
{
    fn new(body: &[u8], before_last: F) -> HashedBody<F> {
        HashedBody::in_pieces(body, PIECE, before_last)
    }

    fn in_pieces(body: &[u8], piece: usize, before_last: F) -> HashedBody<F> {
        let hash = ring::digest::digest(&ring::digest::SHA256, body);
        HashedBody {
            left: Bytes::copy_from_slice(body),
            announced: None,
            piece,
            hash: hash.as_ref().try_into().unwrap(),
            before_last: Some(before_last),
        }
    }
}

impl<F, W> Chunks for HashedBody<F>
where
    F: FnOnce() -> W + Send,
    W: Future<Output = Option<Error>> + Send,
{
    fn next(&mut self) -> BoxFuture<'_, Option<Result<Bytes, Error>>> {
        Box::pin(async move {
            if self.left.is_empty() {
                return None;
            }
            if self.left.len() <= self.piece
                && let Some(before_last) = self.before_last.take()
                && let Some(error) = before_last().await
            {
                return Some(Err(error));
            }
            let piece = self.left.split_to(self.left.len().min(self.piece));
            Some(Ok(piece))
        })
    }
    fn bytes_left(&self) -> Option<u64> {
        Some(self.announced.unwrap_or(self.left.len()) as u64)
    }
    fn sha256(&self) -> Option<[u8; 32]> {
        Some(self.hash)
    }
}

#[test]
fn bytes_reach_the_store_before_the_last_ones_have_come() {
    const TEST: &str = "origin_s3::early::bytes_reach_the_store_before_the_last_ones_have_come";
    let Some(store) = Store::start(TEST) else { return };
    let tap = &Tap::before(&store);
    let (origin, direct) = (tap.open(), store.open());
    run(async {
        for seed in [1, 2] {
            let body = bytes(seed, SIZE);
            let (sent, puts) = (tap.sent.load(Ordering::Relaxed), tap.puts());
            let mut known = HashedBody::new(&body, move || async move {
                assert!(tap.wait(sent + (SIZE - 2 * PIECE) as u64).await, "nothing was sent");
                None
            });
            let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
            let metadata = staged.metadata().clone();
            let before = direct.head(&key("k")).await.unwrap();
            assert!(before.is_none_or(|before| before.etag != metadata.etag), "not committed yet");
            staged.commit(None).await.unwrap();
            assert_eq!(tap.puts() - puts, 1);
            assert_eq!(direct.head(&key("k")).await.unwrap(), Some(metadata));
            assert_eq!(read(&direct, "k", None).await, body);
        }
        // Readers verify the bytes, as for any version.
        std::fs::write(store.bucket().join("k"), bytes(3, SIZE)).unwrap();
        let mut found = direct.get(&key("k"), None).await.unwrap().unwrap();
        let mut last = None;
        while let Some(piece) = found.body.next().await {
            last = Some(piece);
        }
        assert!(matches!(last, Some(Err(Error::Damaged(_)))));
    });
}

/// From 96 KiB on, up to 256 KiB by the thread that asks; where what it replaces is not known, a small one waits for its commit, and is written without a look.
#[test]
fn small_objects_are_sent_early_too() {
    const TEST: &str = "origin_s3::early::small_objects_are_sent_early_too";
    let Some(store) = Store::start(TEST) else { return };
    let tap = &Tap::before(&store);
    let (origin, direct) = (tap.open(), store.open());
    run(async {
        for (round, size) in
            [120_000_usize, 120_000, 98_304, 130_000, 300_000].into_iter().enumerate()
        {
            let body = bytes(20 + round as u64, size);
            let (sent, puts) = (tap.sent.load(Ordering::Relaxed), tap.puts());
            let mut known = HashedBody::in_pieces(&body, 20_000, move || async move {
                let is_early = round > 0;
                let waited = !is_early || tap.wait(sent + 20_000).await;
                assert!(waited, "nothing of {size} was sent");
                None
            });
            let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
            staged.commit(None).await.unwrap();
            assert_eq!(tap.puts() - puts, 1);
            assert_eq!(read(&direct, "k", None).await, body);
        }
    });
}

/// The store replies before it has received the body: with a refusal, because it is full, or to have the request repeated later. The
/// client still holds all bytes and sends them again as a whole; the second reply decides.
#[test]
fn a_store_that_answers_before_it_has_the_body_is_asked_again() {
    const TEST: &str =
        "origin_s3::early::a_store_that_answers_before_it_has_the_body_is_asked_again";
    let Some(store) = Store::start(TEST) else { return };
    let tap = Tap::before(&store);
    let (origin, direct) = (tap.open(), store.open());
    let statuses =
        ["400 Bad Request", "403 Forbidden", "503 Slow Down", "507 Insufficient Storage"];
    run(async {
        write(&origin, "k", b"before", Attributes::default()).await;
        for (round, status) in statuses.iter().enumerate() {
            for size in [120_000, SIZE] {
                let body = bytes(30 + round as u64, size);
                let text = "<Error><Code>Other</Code><Message>m</Message></Error>";
                let reply = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\r\n{text}",
                    text.len()
                );
                *tap.refusal.lock().unwrap() = Some(reply);
                let mut known = HashedBody::in_pieces(&body, 20_000, || async { None });
                let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await;
                staged.unwrap().commit(None).await.unwrap();
                assert!(tap.refusal.lock().unwrap().is_none(), "{status}: nothing was refused");
                assert_eq!(read(&direct, "k", None).await, body, "{status}");
            }
        }
    });
}

/// A body that is longer or shorter than announced is refused, and the object stays as it was.
#[test]
fn another_length_than_announced_changes_nothing() {
    const TEST: &str = "origin_s3::early::another_length_than_announced_changes_nothing";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    run(async {
        write(&origin, "k", b"before", Attributes::default()).await;
        for size in [120_000, SIZE] {
            for by in [-1, 1] {
                let body = bytes(50, size);
                let mut known = HashedBody::in_pieces(&body, 20_000, || async { None });
                known.announced = size.checked_add_signed(by);
                let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await;
                assert!(matches!(staged.err(), Some(Error::Upload(_))), "{size} {by}");
            }
        }
        assert_eq!(read(&origin, "k", None).await, b"before");
    });
}

#[test]
fn what_is_not_committed_or_breaks_off_changes_nothing() {
    const TEST: &str = "origin_s3::early::what_is_not_committed_or_breaks_off_changes_nothing";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    run(async {
        write(&origin, "k", b"before", Attributes::default()).await;
        let body = bytes(1, SIZE);
        let mut known = HashedBody::new(&body, || async { None });
        drop(origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap());
        let mut known =
            HashedBody::new(&body, || async { Some(Error::Upload("it left".to_owned())) });
        let error = origin.stage(&key("k"), Attributes::default(), &mut known).await.err();
        assert_eq!(error, Some(Error::Upload("it left".to_owned())));
        // What a fence forbids is not made.
        let mut known = HashedBody::new(&body, || async { None });
        let mut staged = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
        staged.fence(Arc::new(|| false));
        assert!(matches!(staged.commit(None).await, Err(Error::Fenced(_))));
        // A hash that is not that of the bytes: the store itself refuses it.
        let mut known = HashedBody::new(&body, || async { None });
        known.hash[0] ^= 1;
        let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
        staged.commit(None).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(read(&origin, "k", None).await, b"before");
    });
}

/// The reply to a write is lost, and then the node may not write any more: the write was made, and nobody may be told that
/// another node can make it.
#[test]
fn a_write_whose_reply_is_lost_is_not_said_to_be_left_out() {
    const TEST: &str = "origin_s3::early::a_write_whose_reply_is_lost_is_not_said_to_be_left_out";
    let Some(store) = Store::start(TEST) else { return };
    let tap = Tap::before(&store);
    let (origin, other) = (tap.open(), store.open());
    run(async {
        for may_write_again in [false, true] {
            let body = bytes(u64::from(may_write_again), SIZE);
            let mut known = HashedBody::new(&body, || async { None });
            let staged = origin.stage(&key("k"), Attributes::default(), &mut known).await;
            let mut staged = staged.unwrap();
            let asked = AtomicU64::new(0);
            staged.fence(Arc::new(move || {
                asked.fetch_add(1, Ordering::Relaxed) == 0 || may_write_again
            }));
            tap.loses.store(true, Ordering::Relaxed);
            let written = staged.commit(None).await;
            assert!(!tap.loses.load(Ordering::Relaxed));
            match may_write_again {
                true => written.unwrap(),
                false => assert!(matches!(written, Err(Error::Failed(_))), "{written:?}"),
            }
            assert_eq!(read(&other, "k", None).await, body);
        }
    });
}

#[test]
fn a_write_that_another_one_overtakes_or_whose_connection_ends_is_sent_again() {
    const TEST: &str = "origin_s3::early::a_write_that_another_one_overtakes_or_whose_connection_ends_is_sent_again";
    let Some(store) = Store::start(TEST) else { return };
    let tap = Tap::before(&store);
    let (origin, other) = (tap.open(), store.open());
    run(async {
        // Writes of others between the beginning and the commit, of this process and of another.
        for by_itself in [true, false] {
            let body = bytes(4 + u64::from(by_itself), SIZE);
            let mut known = HashedBody::new(&body, || async { None });
            let late = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
            let by: &S3 = if by_itself { &origin } else { &other };
            staged(by, "k", b"between").await.commit(None).await.unwrap();
            assert_eq!(read(&other, "k", None).await, b"between");
            late.commit(None).await.unwrap();
            assert_eq!(read(&other, "k", None).await, body);
        }
        let puts = tap.puts();
        let body = bytes(6, SIZE);
        tap.cuts.store(true, Ordering::Relaxed);
        let mut known = HashedBody::new(&body, || async { None });
        let late = origin.stage(&key("k"), Attributes::default(), &mut known).await.unwrap();
        late.commit(None).await.unwrap();
        assert!(!tap.cuts.load(Ordering::Relaxed));
        assert_eq!(tap.puts() - puts, 2);
        assert_eq!(read(&other, "k", None).await, body);
        // So many at a time are sent early, and all are written.
        let bodies: Vec<Vec<u8>> = (0..3).map(|seed| bytes(10 + seed, 1 << 20)).collect();
        let mut all = Vec::new();
        for round in 0..80 {
            let mut known = HashedBody::new(&bodies[round % 3], || async { None });
            let name = format!("many/{round}");
            all.push(origin.stage(&key(&name), Attributes::default(), &mut known).await.unwrap());
        }
        for staged in all {
            staged.commit(None).await.unwrap();
        }
        for round in [0, 1, 79] {
            let name = format!("many/{round}");
            assert_eq!(read(&other, &name, None).await, bodies[round % 3]);
        }
    });
}
