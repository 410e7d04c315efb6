//! Requests of S3's to a server in this process, signed rightly after they were changed, or any bytes: every one is
//! answered, never by 500, and what is not signed is not carried out.

#![no_main]

mod edits;
mod servers;
#[path = "servers/signed.rs"]
mod signed;

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use serve::Server;
use servers::Client;
use signed::{How, Request};

const ID: &str = "admin";
const SECRET: &str = "a-secret-of-some-length";

/// A request of each operation, as [`Request::parse`] reads them.
const SEEDS: [&[u8]; 25] = [
    b"PUT /objects/k\ncontent-type: text/plain\nx-amz-meta-a: b\nif-none-match: *\n\nthe bytes of an object",
    b"PUT /photos/a/b%20c?x-id=PutObject\nx-amz-checksum-crc32: AAAAAA==\ncache-control: no-cache\n\nbytes",
    b"PUT /objects/k\nx-amz-trailer: x-amz-checksum-crc32\nx-amz-sdk-checksum-algorithm: CRC32\n\nbytes of a body that comes in several chunks, each with a length of its own",
    b"GET /objects/k?x-id=GetObject\nrange: bytes=1-3\nif-match: \"a\"\n\n",
    b"GET /objects/k?response-content-type=text%2Fplain&response-content-disposition=x&partNumber=1\nx-amz-checksum-mode: ENABLED\n\n",
    b"HEAD /objects/k\nif-modified-since: Sun, 06 Nov 1994 08:49:37 GMT\n\n",
    b"GET /objects/k?attributes\nx-amz-object-attributes: ETag,ObjectSize,Checksum\n\n",
    b"DELETE /objects/k?versionId=null\nif-match: *\n\n",
    b"POST /objects?delete\ncontent-md5: 1B2M2Y8AsgTpgAmy7PhCfg==\n\n<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object><Key>k</Key></Object><Object><Key>a&amp;b</Key><VersionId>null</VersionId></Object><Quiet>true</Quiet></Delete>",
    b"GET /objects?list-type=2&prefix=a&delimiter=%2F&max-keys=2&start-after=a&encoding-type=url&continuation-token=YQ%3D%3D&fetch-owner=true\n\n",
    b"GET /objects/?prefix=&marker=a&max-keys=1000&delimiter=b\n\n",
    b"GET /\n\n",
    b"HEAD /photos\n\n",
    b"GET /objects?location\n\n",
    b"POST /objects/m?uploads\nx-amz-checksum-algorithm: CRC32\nx-amz-checksum-type: FULL_OBJECT\n\n",
    b"PUT /objects/m?partNumber=1&uploadId=UPLOAD\n\na part of an upload",
    b"PUT /objects/m?partNumber=2&uploadId=UPLOAD\nx-amz-copy-source: /objects/k?versionId=null\nx-amz-copy-source-range: bytes=0-3\n\n",
    b"POST /objects/m?uploadId=UPLOAD\nx-amz-mp-object-size: 19\n\n<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"a\"</ETag><ChecksumCRC32>AAAAAA==</ChecksumCRC32></Part><Part><ETag>b</ETag><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>",
    b"GET /objects/m?uploadId=UPLOAD&part-number-marker=1&max-parts=2\n\n",
    b"GET /objects?uploads&prefix=m&key-marker=a&upload-id-marker=b&max-uploads=3&delimiter=%2F\n\n",
    b"DELETE /objects/m?uploadId=UPLOAD\n\n",
    b"PUT /objects/copy\nx-amz-copy-source: photos/a%2Fb\nx-amz-metadata-directive: REPLACE\nx-amz-copy-source-if-none-match: \"a\"\nx-amz-tagging: a=b&c=d\n\n",
    b"PUT /objects/k?tagging\ncontent-md5: 1B2M2Y8AsgTpgAmy7PhCfg==\n\n<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>",
    b"GET /objects?versioning\nx-amz-expected-bucket-owner: admin\n\n",
    b"GET /objects?%70refix=a&list%2Dtype=2&X-Amz%2DExpires=9&max%2Dkeys=2\n\n",
];
const RAW: [&[u8]; 4] = [
    b"GET /objects/k HTTP/1.1\r\nhost: x\r\nauthorization: AWS4-HMAC-SHA256 Credential=admin/20260101/us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-date, Signature=00\r\nx-amz-date: 20260101T000000Z\r\n\r\n",
    b"PUT /objects/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=admin%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20260101T000000Z&X-Amz-Expires=900&X-Amz-SignedHeaders=host&X-Amz-Signature=00 HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\n\r\na",
    b"GET /objects/k?X%2DAmz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=admin%2F20260101%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20260101T000000Z&X-Amz%2DExpires=999999&X-Amz-SignedHeaders=host&X-Amz-Signature=00 HTTP/1.1\r\nhost: x\r\n\r\n",
    b"POST /objects HTTP/1.1\r\nhost: x\r\ncontent-type: multipart/form-data; boundary=x\r\ntransfer-encoding: chunked\r\n\r\n4\r\n--x-\r\n0\r\n\r\n",
];

struct Running {
    _server: Server,
    address: SocketAddr,
    host: String,
    client: Mutex<(Client, String)>,
}

static SERVER: LazyLock<Running> = LazyLock::new(|| {
    let folder = servers::folder("s3");
    let keys = folder.join("keys");
    let text = format!("[[key]]\nid = {ID:?}\nsecret = {SECRET:?}\nscopes = [\"*:admin\"]\n");
    std::fs::write(&keys, text).expect("a file of keys");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let keys = format!("s3.keys={}", keys.display());
    let buckets = "s3.buckets=[\"objects\",\"photos=pictures/\"]";
    let server = servers::start(&folder, &["s3.listen=127.0.0.1:0", &keys, buckets]);
    let address = server.s3().expect("S3's front");
    let running =
        Running { _server: server, host: address.to_string(), address, client: Mutex::default() };
    let text = ask(&running, b"POST /objects/m?uploads\n\n", How::Header).expect("an upload").body;
    let text = String::from_utf8_lossy(&text).into_owned();
    let upload = text.split_once("<UploadId>").and_then(|(_, rest)| rest.split_once('<'));
    let upload = upload.expect("the id of an upload").0.to_owned();
    running.client.lock().expect("one thread").1 = upload;
    running
});

fn ask(running: &Running, text: &[u8], how: How) -> Option<servers::Reply> {
    let signed = Request::parse(text)?.signed(how, &running.host, ID, SECRET);
    let mut of = running.client.lock().expect("one thread");
    Some(of.0.ask(running.address, &signed))
}

// Input: how it is signed, then a request as edits of one of the above; or any bytes.
fuzz_target!(|data: &[u8]| {
    let [how, data @ ..] = data else { return };
    let running = &*SERVER;
    let how = match how % 8 {
        0 | 1 => How::Header,
        2 => How::Unsigned,
        3 => How::Url,
        4 => How::Chunks,
        5 => How::Trailer,
        _ => {
            let bytes = edits::edited(&RAW, data);
            for status in servers::statuses(&servers::send(running.address, &bytes)) {
                // Health is told to everybody.
                let health = bytes.windows(8).any(|it| it == b"/healthz" || it == b"/readyz ");
                let refused = (400..500).contains(&status) || [501, 503].contains(&status);
                assert!(refused || health, "{status} for {}", bytes.escape_ascii());
            }
            return;
        }
    };
    let mut text = edits::edited(&SEEDS, data);
    if let Some(at) = text.windows(6).position(|six| six == b"UPLOAD") {
        let upload = running.client.lock().expect("one thread").1.clone();
        drop(text.splice(at..at + 6, upload.bytes()));
    }
    let Some(reply) = ask(running, &text, how) else { return };
    assert!(reply.status != 500, "{how:?}: {}", String::from_utf8_lossy(&reply.body));
});
