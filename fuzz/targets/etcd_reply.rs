//! Any bytes as etcd's reply to a range of keys.

#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;

const SEED: &[u8] = br#"{"header":{"revision":"7"},"kvs":[{"key":"L3AvbWVtYmVycw==","create_revision":"2",
"mod_revision":"7","version":"3","value":"e30=","lease":"7587"},{"key":"L3AvYQ=="}],"more":false,"count":"2"}"#;

fuzz_target!(|data: &[u8]| {
    match serve::fuzzing::etcd_pairs(&edits::edited(&[SEED], data)) {
        Ok(pairs) => assert!(pairs.len() <= 8192),
        Err(why) => assert!(!why.is_empty()),
    }
});
