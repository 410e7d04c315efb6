//! Listings that do not ask for each object again.

use super::*;

use std::cell::Cell;

use proptest::prelude::{Strategy, prop_oneof};
use proptest::test_runner::{Config, TestRunner};

/// An entry of a listing, and a HEAD's reply.
fn entry_and_head(etag: &str, size: u64, hour: u32, head_hour: u32) -> [String; 2] {
    let entry = format!(
        "<ListBucketResult><Contents><Key>a</Key><LastModified>2025-11-24T{hour:02}:00:00.000Z</LastModified>\
         <ETag>&quot;{etag}&quot;</ETag><Size>{size}</Size></Contents></ListBucketResult>"
    );
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {size}\r\nconnection: close\r\netag: \"{etag}\"\r\n\
         last-modified: Mon, 24 Nov 2025 {head_hour:02}:00:00 GMT\r\n\r\n"
    );
    [answer("200 OK", "", &entry), head]
}

/// An object costs a HEAD when it is listed first, and whenever the store lists another etag, size or time for it.
#[test]
fn an_object_is_asked_for_once_until_it_is_listed_otherwise() {
    let mut script = opening();
    let mut expected = String::new();
    let versions =
        [("e1", 3, 8), ("e1", 3, 8), ("e2", 3, 8), ("e2", 4, 8), ("e2", 4, 9), ("e2", 4, 9)];
    for (at, (etag, size, hour)) in versions.into_iter().enumerate() {
        let [listing, head] = entry_and_head(etag, size, hour, hour);
        script.extend([listing, empty()]);
        expected += "GET GET ";
        if at == 0 || versions[at - 1] != versions[at] {
            script.push(head.clone());
            expected += "HEAD ";
        }
        // An etag stands for the bytes: another length under the same one is asked for again before it is believed.
        if at > 0 && versions[at - 1].0 == etag && versions[at - 1].1 != size {
            script.push(head);
            expected += "HEAD ";
        }
    }
    // Written since it was listed: the reply is of the newer version, and not remembered as the older.
    let [listing, _] = entry_and_head("e3", 4, 9, 9);
    let [_, newer] = entry_and_head("e4", 5, 10, 10);
    for _ in 0..2 {
        script.extend([listing.clone(), empty(), newer.clone()]);
        expected += "GET GET HEAD ";
    }
    // Written lately, as a time to come is taken too: there may be another write at the same time.
    let [listing, head] = entry_and_head("e5", 4, 11, 11).map(|text| text.replace("2025", "2099"));
    let head = head.replace("Mon", "Tue");
    for _ in 0..2 {
        script.extend([listing.clone(), empty(), head.clone()]);
        expected += "GET GET HEAD ";
    }
    let (endpoint, requests) = recorded(script);
    let origin = S3::open(&config_of(&endpoint)).unwrap();
    let mut sizes = Vec::new();
    for _ in 0..versions.len() + 4 {
        let listed = run(origin.list(b"", None, 9)).unwrap();
        sizes.extend(listed.iter().map(|one| one.metadata.size));
    }
    assert_eq!(sizes, [3, 3, 3, 4, 4, 4, 5, 5, 4, 4]);
    let methods = requests.try_iter().skip(4);
    let methods: String =
        methods.map(|request| format!("{} ", request.split(' ').next().unwrap())).collect();
    assert_eq!(methods, expected);
}

/// An object whose metadata no header can have is listed as the store lists it, and costs the page nothing.
#[test]
fn an_object_whose_head_cannot_be_read_is_listed_all_the_same() {
    let [listing, head] = entry_and_head("e1", 3, 8, 8);
    let odd = head.replace("\r\n\r\n", "\r\nx-amz-meta-a: a\u{1}b\r\n\r\n");
    let mut script = opening();
    script.extend([listing, empty(), odd]);
    let (endpoint, _) = recorded(script);
    let origin = S3::open(&config_of(&endpoint)).unwrap();
    let listed = run(origin.list(b"", None, 9)).unwrap();
    let metadata = &listed[0].metadata;
    assert_eq!((metadata.size, metadata.modified_unix_us), (3, 1_763_971_200_000_000));
    assert!(metadata.etag.starts_with("s3-"), "{}", metadata.etag);
}

/// What happens to one of a few objects.
#[derive(Clone, Debug)]
enum Step {
    Write { name: usize, body: usize, kind: usize },
    Age { file: usize },
    Remove { name: usize },
}

/// The last has a name of its own in the store.
const NAMES: [&str; 4] = ["a", "b/c", "My Cat 100%.jpg", "d//e"];
const BODIES: [&[u8]; 2] = [b"some bytes", b"other bytes"];
const KINDS: [&str; 2] = ["text/plain", "text/html"];

/// An origin that remembers what it listed lists what one does that does not, whatever happens in between, against a real store
/// whose objects have been there for long.
#[test]
fn a_listing_that_is_remembered_is_the_one_that_is_asked_for() {
    const TEST: &str =
        "origin_s3::listed::a_listing_that_is_remembered_is_the_one_that_is_asked_for";
    let Some(store) = Store::start(TEST) else { return };
    let remembers = store.open();
    let asks = config::Origin { listed_bytes_max: Size(0), ..store.config() };
    let asks = S3::open(&asks).unwrap();
    let step = prop_oneof![
        3 => (0..4usize, 0..2usize, 0..2usize)
            .prop_map(|(name, body, kind)| Step::Write { name, body, kind }),
        3 => (0..4usize).prop_map(|file| Step::Age { file }),
        1 => (0..4usize).prop_map(|name| Step::Remove { name }),
    ];
    let steps = proptest::collection::vec(step, 1..12);
    // Each aged object has a time of its own, as versions have that were not written within a second.
    let age = Cell::new(1_000_000);
    let mut runner =
        TestRunner::new(Config { cases: 12, failure_persistence: None, ..Config::default() });
    let ran = runner.run(&steps, |steps| {
        for step in steps {
            match step {
                Step::Write { name, body, kind } => {
                    let content_type = Some(KINDS[kind].to_owned());
                    let attributes = Attributes { content_type, user: Vec::new() };
                    run(write(&remembers, NAMES[name], BODIES[body], attributes));
                }
                Step::Age { file } => {
                    let files = files_below(&store.bucket());
                    let Some(file) = files.get(file % files.len().max(1)) else { continue };
                    age.set(age.get() - 1);
                    let time = std::time::SystemTime::now() - Duration::from_secs(age.get());
                    let file = fs::File::options().write(true).open(file).unwrap();
                    file.set_modified(time).unwrap();
                }
                Step::Remove { name } => {
                    run(remembers.delete(&key(NAMES[name]))).unwrap();
                }
            }
            let one = run(remembers.list(b"", None, 9)).unwrap();
            let other = run(asks.list(b"", None, 9)).unwrap();
            proptest::prop_assert_eq!(one.len(), other.len());
            for (one, other) in one.iter().zip(&other) {
                proptest::prop_assert_eq!((&one.key, &one.metadata), (&other.key, &other.metadata));
            }
        }
        Ok(())
    });
    ran.unwrap();
    assert!(age.get() < 1_000_000, "objects were aged");
}

/// The files of the objects.
fn files_below(folder: &std::path::Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_name().as_encoded_bytes().starts_with(b".") || path.ends_with("identity")
            {
                continue;
            }
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// A store that passes by where a listing should begin, or whose pages have no end, is an error and not asked for ever.
#[test]
fn a_listing_that_gets_no_further_is_an_error() {
    let page = |inside: &str| {
        answer("200 OK", "", &format!("<ListBucketResult>{inside}</ListBucketResult>"))
    };
    let escaped = "<Contents><Key>!key/c5jzzhh4</Key></Contents>";
    let endless = "<NextContinuationToken>t</NextContinuationToken>";
    for (reply, told) in [(escaped, "start-after"), (endless, "pages without a name")] {
        let replies = [opening(), vec![page(reply); 1100]].concat();
        let origin = S3::open(&config_of(&scripted(replies))).unwrap();
        let error = run(origin.list(b"", None, 9)).unwrap_err().to_string();
        assert!(error.contains(told), "{error}");
    }
}
