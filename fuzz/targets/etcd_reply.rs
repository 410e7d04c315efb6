//! Any bytes as etcd's replies: to a range of keys, to changes, and to requests for leases.

#![no_main]

mod edits;

use libfuzzer_sys::fuzz_target;

const SEED: &[u8] = br#"{"header":{"revision":"7"},"kvs":[{"key":"L3AvbWVtYmVycw==","create_revision":"2",
"mod_revision":"7","version":"3","value":"e30=","lease":"7587"},{"key":"L3AvYQ=="}],"more":false,"count":"2"}"#;

const OTHERS: [&[u8]; 3] = [
    br#"{"header":{"revision":"7"},"succeeded":true,"responses":[{}]}"#,
    br#"{"header":{},"ID":"7587862094617841157","TTL":"20"}"#,
    br#"{"result":{"header":{},"ID":"7587862094617841157","TTL":"20"}}"#,
];

fuzz_target!(|data: &[u8]| {
    let [which, data @ ..] = data else { return };
    if which % 4 == 0 {
        let _ = serve::fuzzing::parse_change_reply(&edits::edited(&OTHERS, data));
        return;
    }
    match serve::fuzzing::etcd_pairs(&edits::edited(&[SEED], data)) {
        Ok(pairs) => assert!(pairs.len() <= 8192),
        Err(why) => assert!(!why.is_empty()),
    }
});
