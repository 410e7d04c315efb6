//! Any bytes as the configuration that processes share in etcd: what is accepted is written as it was read, and either
//! fits a process or is refused.

#![no_main]

mod edits;

use std::sync::LazyLock;

use configuration::Config;
use libfuzzer_sys::fuzz_target;
use serve::fuzzing::{Document, with_shared};

const SEEDS: [&[u8]; 3] = [
    br#"{"format":1,"version":3,"weights":{"n1":2.5,"n2":1.0},"settings":{"gateway":{"hedge_share":0.5}}}"#,
    br#"{"format":1,"version":1,"settings":{"pool":[{"name":"a","servers":["10.0.0.1:11211"]}],"route":[{"prefix":"u:",
"pool":"a"}],"act":{"interval_s":2},"node":{"revalidate_s":5}}}"#,
    br#"{"format":1,"version":1,"settings":{"serve":{"client_requests_per_s":10,"listen":"0.0.0.0:1"},"origin":{}}}"#,
];

static OWN: LazyLock<[Config; 2]> = LazyLock::new(|| {
    let parse = |text: &str| Config::parse(text, "here", &[]).expect("a configuration");
    let proxy = "serve.role = \"proxy\"\n[[pool]]\nname = \"a\"\nservers = [\"127.0.0.1:11211\"]\n";
    [Config::default(), parse(proxy)]
});

fuzz_target!(|data: &[u8]| {
    let bytes = edits::edited(&SEEDS, data);
    let Ok(document) = Document::parse(&bytes) else { return };
    let written = document.write().expect("what was accepted is written");
    assert_eq!(Document::parse(&written).as_ref(), Ok(&document));
    for own in OWN.iter() {
        match with_shared(own, &document) {
            // What opens something stays this process's own.
            Ok(config) => {
                assert_eq!(config.serve.listen, own.serve.listen);
                assert_eq!(config.serve.token, own.serve.token);
                assert_eq!((&config.origin, &config.s3), (&own.origin, &own.s3));
            }
            Err(mistakes) => assert!(!mistakes.0.is_empty()),
        }
    }
});
