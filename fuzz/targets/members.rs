//! Any bytes as what etcd holds of a cluster: what is accepted makes a ring, and is written as it was read.

#![no_main]
#![allow(dead_code, reason = "parts of files that are included as they are")]

// By their paths, because the crate of the servers would be most of the build.
#[path = "../../crates/membership/src/roster.rs"]
mod roster;
#[path = "../../crates/membership/src/snapshot.rs"]
mod snapshot;

mod common {
    /// What processes share: here only that it is there, because its rules need all of the servers' configuration.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Document;

    impl Document {
        pub fn parse(value: &[u8]) -> Result<Document, String> {
            if value.is_empty() { Err("malformed".to_owned()) } else { Ok(Document) }
        }
    }
}

mod etcd {
    /// What the client of etcd has.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Pair {
        pub key: Vec<u8>,
        pub value: Vec<u8>,
        pub revision: i64,
        pub lease: i64,
    }
}

use etcd::Pair;
use libfuzzer_sys::fuzz_target;
use roster::Roster;
use snapshot::Snapshot;

fuzz_target!(|data: &[u8]| {
    // Lines `KEY=VALUE`, below the prefix and beside it.
    let pairs = data.split(|&byte| byte == b'\n').enumerate().map(|(at, line)| {
        let cut = line.iter().position(|&byte| byte == b'=').unwrap_or(line.len());
        let (key, value) = (line[..cut].to_vec(), line.get(cut + 1..).unwrap_or_default().to_vec());
        Pair { key, value, revision: at as i64, lease: 0 }
    });
    let snapshot = Snapshot::from_pairs("/p", pairs.collect());
    let lists = [Some(Roster::parse(data)), snapshot.roster.clone()];
    for roster in lists.into_iter().flatten().flatten() {
        let again = Roster::parse(&roster.write().expect("what was accepted is written"));
        assert_eq!(again.as_ref(), Ok(&roster));
        // A ring costs some milliseconds for each member.
        if roster.members.len() <= 2 {
            assert!(roster.ring().is_ok());
        }
        for entry in &roster.members {
            assert!(snapshot.watched(&roster, &entry.name).len() <= snapshot::WATCHERS_MAX);
            let _ = snapshot.is_suspected(&roster, &entry.name);
            let mut other = roster.clone();
            other.end(&entry.name, entry.handed_over);
            let _ = other.drain(&entry.name, true);
            assert!(
                other.epoch != roster.epoch
                    || Roster::parse(&other.write().unwrap_or_default()).is_ok()
            );
        }
    }
});
