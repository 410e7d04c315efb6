//! The S3 front before real clients, with a real store behind.

mod attacks;
mod backup;
mod behind;
mod clients;
mod names;
mod sealed;
mod streamed;
mod suite;
mod tls;
mod verified;

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::measure::Running;
use crate::origin_s3::{self, Store};
use crate::serve_client::overrides;

/// An entry of a file of access keys.
#[derive(Clone, Copy)]
pub struct KeyEntry<'a> {
    pub id: &'a str,
    pub secret: &'a str,
    pub scope: &'a str,
}

/// The access keys of these tests.
pub const ADMIN: KeyEntry =
    KeyEntry { id: "admin-key", secret: "admin-secret-not-shown", scope: "*:admin" };
pub const READER: KeyEntry =
    KeyEntry { id: "reader-key", secret: "reader-secret-not-shown", scope: "objects:read" };
pub const WRITER: KeyEntry =
    KeyEntry { id: "writer-key", secret: "writer-secret-not-shown", scope: "photos:write" };

/// Writes a file of access keys.
pub fn write_keys(folder: &Path, keys: &[KeyEntry]) -> PathBuf {
    let entry = |KeyEntry { id, secret, scope }: &KeyEntry| {
        format!("[[key]]\nid = {id:?}\nsecret = {secret:?}\nscopes = [{scope:?}]\n")
    };
    let (path, new) = (folder.join("keys"), folder.join("keys-new"));
    std::fs::write(&new, keys.iter().map(entry).collect::<String>()).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
}

/// A process with an S3 front, and what it logs.
pub struct Front {
    _process: Running,
    /// Where S3's clients connect.
    pub address: String,
    /// Where HTTP's clients connect.
    pub http: String,
    pub folder: tempfile::TempDir,
}

impl Front {
    /// Starts one; its log is in the folder's `log`.
    pub fn start(more: &[&str]) -> Front {
        Front::start_with(more, |_| Vec::new())
    }

    /// Starts one after a change of its folder, which has the file of access keys already; the change may set more.
    pub fn start_with(more: &[&str], change: impl FnOnce(&Path) -> Vec<String>) -> Front {
        let folder = tempfile::tempdir().unwrap();
        let keys = write_keys(folder.path(), &[ADMIN, READER, WRITER]);
        let changed = change(folder.path());
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(["serve", "--json"]);
        let keys = format!("s3.keys={}", keys.display());
        let buckets = "s3.buckets=[\"objects\",\"photos=pictures/\"]";
        let mut sets = overrides(folder.path(), &["s3.listen=127.0.0.1:0", &keys, buckets]);
        sets.extend(more.iter().map(|&text| text.to_owned()));
        sets.extend(changed);
        command.args(sets.iter().flat_map(|set| ["--set", set]));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            panic!("{}", std::fs::read_to_string(folder.path().join("log")).unwrap())
        });
        let of = |name: &str| told[name].as_str().unwrap().to_owned();
        Front { _process: Running(child), address: of("s3"), http: of("address"), folder }
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

/// A front as object_store sees it, with the administrator's key.
pub fn object_store(at: impl std::fmt::Display) -> object_store::aws::AmazonS3 {
    // Its HTTP client demands one, even without TLS.
    let _ = rustls::crypto::ring::default_provider().install_default();
    object_store::aws::AmazonS3Builder::new()
        .with_endpoint(format!("http://{at}"))
        .with_bucket_name("objects")
        .with_allow_http(true)
        .with_access_key_id(ADMIN.id)
        .with_secret_access_key(ADMIN.secret)
        .build()
        .unwrap()
}

/// The path and query of a request that is signed in its address.
pub fn presigned(at: impl std::fmt::Display, method: &str, key: &str) -> String {
    use object_store::signer::Signer;
    let method = method.parse().unwrap();
    let (client, hour) = (object_store(at), std::time::Duration::from_secs(3600));
    let url =
        crate::origin::run(async { client.signed_url(method, &key.into(), hour).await.unwrap() });
    url.as_str()[url.as_str().find("/objects").unwrap()..].to_owned()
}

/// The overrides that put a node before a store.
pub fn before(store: &Store) -> Vec<String> {
    before_address(&store.address)
}

/// The same before the store at this address.
pub fn before_address(address: &str) -> Vec<String> {
    vec![
        "origin.kind=s3".to_owned(),
        format!("origin.endpoint=http://{address}"),
        "origin.bucket=objects".to_owned(),
        "origin.allow_http=true".to_owned(),
        // A store that waits for a disk beside other tests has not failed.
        "origin.timeout_s=60".to_owned(),
        format!("origin.access_key_id={}", origin_s3::ACCESS),
        format!("origin.secret_access_key={}", origin_s3::SECRET),
    ]
}
