//! Any bytes as what an S3-compatible store replies to the origin: every call ends, a listing keeps to what was asked, and
//! what is read has the length that is told.

#![no_main]

mod edits;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ground::Key;
use libfuzzer_sys::fuzz_target;
use origin::{Attributes, KeyRange, Kind, Origin, S3, Secret, Settings, SingleChunk};
use tokio::runtime::{Builder, Runtime};

const MARKER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 53\r\nconnection: close\r\netag: \"m\"\r\nlast-modified: Tue, 24 Nov 2026 08:00:00 GMT\r\n\r\nconcertina-origin 1 0123456789abcdef0123456789abcdef\n";
const REFUSED: &[u8] = b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 46\r\nconnection: close\r\n\r\n<Error><Code>PreconditionFailed</Code></Error>";
const EMPTY: &[u8] =
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult></ListBucketResult>";
const REPLIES: [&[u8]; 7] = [
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>\n<Contents><Key>a</Key><LastModified>2025-11-24T08:00:00.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>5</Size></Contents>\n<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>\n<Contents><Key>b0</Key></Contents>\n</ListBucketResult>",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult>\n<Contents><Key>!key/c4======</Key><Size>5</Size></Contents>\n<Contents><Key>!key/64</Key><ETag>e</ETag></Contents>\n</ListBucketResult>",
    b"HTTP/1.1 404 Not Found\r\ncontent-length: 37\r\nconnection: close\r\n\r\n<Error><Code>NoSuchKey</Code></Error>",
    b"HTTP/1.1 412 Precondition Failed\r\ncontent-length: 46\r\nconnection: close\r\n\r\n<Error><Code>PreconditionFailed</Code></Error>",
    b"HTTP/1.1 206 Partial Content\r\ncontent-length: 3\r\nconnection: close\r\netag: \"e\"\r\nlast-modified: Mon, 24 Nov 2025 08:00:00 GMT\r\ncontent-range: bytes 1-3/5\r\n\r\nell",
    b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: close\r\netag: \"e\"\r\nlast-modified: Mon, 24 Nov 2025 08:00:00 GMT\r\ncontent-type: a/b\r\nx-amz-meta-concertina-version: 0123456789abcdef0123456789abcdef\r\nx-amz-meta-concertina-modified-us: 7\r\nx-amz-meta-a: b%20c\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n<ListBucketResult>\n<Contents><Key>/</Key></Contents>\n<Contents><Key>a/../b</Key></Contents>\n<Contents><Key>a//b</Key><ETag>e</ETag></Contents>\n<Contents><Key>b/</Key></Contents>\n</ListBucketResult>",
];

/// What the store replies, but for what a listing asks for beside its first pages.
static NEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static LISTING: AtomicBool = AtomicBool::new(false);

fn serve(mut stream: TcpStream) {
    let (mut head, mut piece) = (Vec::new(), [0; 4096]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => head.extend_from_slice(&piece[..count]),
            _ => return,
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let next = NEXT.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let asks = |part: &[u8]| line.windows(part.len()).any(|it| it == part);
    let listing = LISTING.load(Ordering::Relaxed);
    // A store that has any text as a name.
    let is_respelled = asks(b"key//identity") || asks(b"key/./identity");
    let reply = match (asks(b"identity"), line.starts_with(b"PUT ")) {
        _ if is_respelled => REPLIES[2],
        (true, true) => REFUSED,
        (true, false) => MARKER,
        _ if next.is_empty() || asks(b"continuation-token") => EMPTY,
        _ if listing && line.starts_with(b"HEAD ") => REPLIES[5],
        _ => &next,
    };
    let _ = stream.write_all(reply);
}

static ORIGIN: LazyLock<(S3, Runtime)> = LazyLock::new(|| {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let endpoint = format!("http://{}", listener.local_addr().expect("its address"));
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    let settings = Settings {
        kind: Kind::S3,
        endpoint: Some(endpoint),
        bucket: "objects".to_owned(),
        allow_http: true,
        access_key_id: Some("id".to_owned()),
        secret_access_key: Some(Secret::new("secret".to_owned())),
        timeout_s: 0.05,
        ..Settings::default()
    };
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    (S3::open(&settings).expect("an origin"), runtime)
});

async fn call(origin: &S3, which: u8) {
    let key = Key::from([&b"a"[..], b"a/", b"a//b"][usize::from(which / 8 % 3)]);
    match which % 8 {
        listing @ 0..4 => {
            let delimiter: &[u8] = [&b"/"[..], b"b", b"", b"/"][usize::from(listing)];
            let after = (listing == 3).then(|| b"b/c".to_vec());
            let range = KeyRange::new(b"").grouped(delimiter).after(after);
            let Ok(entries) = origin.entries(&range, 3).await else { return };
            assert!(entries.len() <= 3);
            assert!(entries.windows(2).all(|two| two[0].key() < two[1].key()), "{entries:?}");
            assert!(entries.iter().all(|one| range.holds(&one.end())), "{entries:?}");
        }
        4 => drop(origin.head(&key).await),
        reading @ 5..7 => {
            let range = (reading == 5).then_some(1..4);
            let Ok(Some(mut found)) = origin.get(&key, range).await else { return };
            let told = found.body.bytes_left();
            let mut came = 0;
            while let Some(piece) = found.body.next().await {
                let Ok(piece) = piece else { return };
                came += piece.len() as u64;
            }
            assert!(told.is_none_or(|told| told == came), "{told:?} {came}");
        }
        _ => {
            let mut body = SingleChunk::new(Bytes::from_static(b"hello"));
            if let Ok(staged) = origin.stage(&key, Attributes::default(), &mut body).await {
                let _ = staged.commit(None).await;
            }
            let _ = origin.delete(&key).await;
        }
    }
}

// Input: what is called, then a reply as edits of one of the above, or any bytes.
fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    let (origin, runtime) = &*ORIGIN;
    LISTING.store(which % 8 < 4, Ordering::Relaxed);
    *NEXT.lock().unwrap_or_else(PoisonError::into_inner) = edits::edited(&REPLIES, data);
    // Pages without an entry may follow each other without end: callers give up, as here.
    let call = async { tokio::time::timeout(Duration::from_secs(1), call(origin, *which)).await };
    let _ = runtime.block_on(call);
});
