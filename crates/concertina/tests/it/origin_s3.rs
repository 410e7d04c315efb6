//! The S3 origin against a real store, `versitygw`, on a folder that vanishes.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use concertina::config::{self, Secret, Size};
use concertina::origin::{self, Attributes, Condition, Error, Origin, S3, Sharing, Whole};
use engine::Key;

use crate::left_out::left_out;
use crate::origin::{Pieces, key, raise, read, run, staged, suite, write};
use crate::serve_client::bytes;

const ACCESS: &str = "test-access";
const SECRET: &str = "test-secret-that-is-never-shown";

/// A store, killed when it is dropped.
struct Store {
    child: Child,
    folder: tempfile::TempDir,
    address: String,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where `.ci/setup` puts it, or where it is found.
fn program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let gopath = std::env::var_os("GOPATH").map(|path| PathBuf::from(path).join("bin"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(gopath).chain([home.join("go/bin")]);
    folders.map(|folder| folder.join("versitygw")).find(|file| file.is_file())
}

impl Store {
    /// Starts a store with the bucket `objects`.
    fn start(test: &str) -> Option<Store> {
        let Some(program) = program() else {
            left_out(test, "versitygw is not installed (.ci/setup installs it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("data/objects")).unwrap();
        fs::create_dir(folder.path().join("iam")).unwrap();
        // Another process may take the port in between: then the next try has another.
        for _ in 0..5 {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            drop(listener);
            let mut child = Command::new(&program)
                .args(["--port", &address, "--access", ACCESS, "--secret", SECRET, "--quiet"])
                .arg("--iam-dir")
                .arg(folder.path().join("iam"))
                .arg("posix")
                .arg(folder.path().join("data"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(20) {
                if answers(&address) {
                    return Some(Store { child, folder, address });
                }
                if child.try_wait().unwrap().is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("versitygw does not start");
    }

    fn bucket(&self) -> PathBuf {
        self.folder.path().join("data/objects")
    }

    fn config(&self) -> config::Origin {
        config_of(&format!("http://{}", self.address))
    }

    fn open(&self) -> S3 {
        S3::open(&self.config()).unwrap()
    }
}

fn answers(address: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let _ = write!(stream, "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    let mut reply = String::new();
    let _ = stream.read_to_string(&mut reply);
    reply.starts_with("HTTP/1.1 ")
}

fn config_of(endpoint: &str) -> config::Origin {
    config::Origin {
        kind: "s3".to_owned(),
        endpoint: Some(endpoint.to_owned()),
        bucket: "objects".to_owned(),
        allow_http: true,
        access_key_id: Some(ACCESS.to_owned()),
        secret_access_key: Some(Secret::new(SECRET.to_owned())),
        timeout_s: 5.0,
        ..config::Origin::default()
    }
}

fn refusal(config: &config::Origin) -> String {
    let error = S3::open(config).err().expect("is refused").to_string();
    assert!(!error.contains(SECRET), "{error}");
    error
}

#[test]
fn a_store_behaves_as_an_origin() {
    let Some(store) = Store::start("origin_s3::a_store_behaves_as_an_origin") else { return };
    run(suite(&store.open(), &store.open()));
}

#[test]
fn a_prefix_is_a_place_of_its_own() {
    let Some(store) = Store::start("origin_s3::a_prefix_is_a_place_of_its_own") else { return };
    run(write(&store.open(), "outside", b"x", Attributes::default()));
    let config = config::Origin { prefix: "in/side/".to_owned(), ..store.config() };
    let inside = origin::open(&config, Sharing::Alone).unwrap();
    run(suite(inside.as_ref(), inside.as_ref()));
    assert_eq!(run(read(&store.open(), "outside", None)), b"x");
    run(write(inside.as_ref(), "a/b", b"y", Attributes::default()));
    assert_eq!(fs::read(store.bucket().join("in/side/a/b")).unwrap(), b"y");
}
