//! How often the S3 front verifies the signature of one read.

use std::io::Write;
use std::sync::{Arc, Mutex};

use object_store::ObjectStoreExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use super::{ADMIN, object_store, write_keys};
use crate::serve_client::overrides;

/// What has been logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The verifications of requests for a path.
    fn verified(&self, path: &str) -> usize {
        let log = self.0.lock().unwrap();
        let text = String::from_utf8_lossy(&log);
        text.lines().filter(|line| line.contains("is verified") && line.contains(path)).count()
    }
}

/// The path past hyper verifies a read and, where memory does not have the object, hands on that it did.
#[test]
fn a_signature_is_verified_once() {
    let log = Log::default();
    let writer = log.clone();
    let lines = fmt::layer().with_ansi(false).with_writer(move || writer.clone());
    let verifications = Targets::new().with_target("s3", LevelFilter::TRACE);
    tracing_subscriber::registry().with(lines.with_filter(verifications)).init();

    let folder = tempfile::tempdir().unwrap();
    let keys = format!("s3.keys={}", write_keys(folder.path(), &[ADMIN]).display());
    let sets = ["s3.listen=127.0.0.1:0", "s3.buckets=[\"objects\"]", &keys];
    let config = configuration::Config::load(None, &overrides(folder.path(), &sets)).unwrap();
    let server = serve::Server::start(config, None).unwrap();
    let client = object_store(server.s3().unwrap());
    let path = object_store::path::Path::from("verified-once");
    crate::origin::run(async {
        // Not there; put; from memory.
        client.get(&path).await.unwrap_err();
        assert_eq!(log.verified("/objects/verified-once"), 1);
        client.put(&path, "x".into()).await.unwrap();
        let written = log.verified("/objects/verified-once");
        assert_eq!(client.get(&path).await.unwrap().bytes().await.unwrap(), "x");
        assert_eq!(log.verified("/objects/verified-once"), written + 1);
    });
    server.stop();
}
