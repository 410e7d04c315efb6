//! Keys that are no paths of files: markers of folders, empty parts, parts `.`, long parts.

use super::text_store::TextStore;
use super::*;

fn open(store: &TextStore) -> S3 {
    S3::open(&config_of(&format!("http://{}", store.address))).unwrap()
}

fn listed(origin: &dyn Origin) -> Vec<String> {
    let listed = run(origin.list(b"", None, 1000)).unwrap();
    listed.iter().map(|one| String::from_utf8(one.key.to_vec()).unwrap()).collect()
}

fn keys() -> Vec<String> {
    let short = ["photos/", "a//b", "a/b", "/a", "a", "./x", "x", "d/./e", "/", "//", ".", "f//"];
    let long = ["l".repeat(256), format!("{}/{}", "m".repeat(300), "n".repeat(700))];
    let mut keys: Vec<String> = short.into_iter().map(str::to_owned).chain(long).collect();
    keys.sort();
    keys
}

#[test]
fn a_store_of_texts_behaves_as_an_origin() {
    let store = TextStore::start();
    run(suite(&open(&store), &open(&store)));
    let config = config::Origin {
        prefix: "in/side/".to_owned(),
        ..config_of(&format!("http://{}", store.address))
    };
    let inside = origin::open(&config, Sharing::Alone, Default::default()).unwrap();
    run(suite(inside.as_ref(), inside.as_ref()));
}

#[test]
fn objects_of_other_tools_may_have_any_text_as_their_names() {
    let store = TextStore::start();
    let origin = open(&store);
    for name in keys() {
        store.put(&name, name.as_bytes());
    }
    // A part `..` would lead elsewhere in a store, or a proxy, that resolves it.
    for name in ["a/../b", "..", "z/.."] {
        store.put(name, b"x");
        assert!(run(origin.head(&key(name))).unwrap().is_none());
    }
    assert_eq!(listed(&origin), keys());
    for name in keys() {
        assert_eq!(run(read(&origin, &name, None)), name.as_bytes(), "{name}");
        run(write(&origin, &name, b"ours", Attributes::default()));
        assert_eq!(run(read(&open(&store), &name, None)), b"ours", "{name}");
        let head = run(origin.head(&key(&name))).unwrap().unwrap();
        let update = run(staged(&origin, &name, b"again"));
        run(update.commit(Some(Condition::Is(head.etag)))).unwrap();
        let absent = run(staged(&origin, &name, b"x"));
        assert!(run(absent.commit(Some(Condition::Absent))).is_err());
    }
    let escaped = |names: Vec<String>| names.iter().filter(|name| name.starts_with("!key")).count();
    assert_eq!(escaped(store.names()), 1, "the marker alone: {:?}", store.names());
    for name in keys() {
        assert!(run(origin.delete(&key(&name))).unwrap(), "{name}");
    }
    assert_eq!(listed(&origin), [""; 0]);
    assert_eq!(store.names(), ["!key/identity", "..", "a/../b", "z/.."]);
}

/// The name that version 1.0.0 gave to all keys but paths.
fn name_of_1_0_0(key: &str) -> &'static str {
    match key {
        "photos/" => "!key/e1k6ut3fecng",
        "a//b" => "!key/c4niuog",
        _ => panic!("{key}"),
    }
}

#[test]
fn objects_of_version_1_0_0_are_served_written_and_removed() {
    let store = TextStore::start();
    for name in ["photos/", "a//b"] {
        run(write(&open(&store), name, b"before", Attributes::default()));
        store.rename(name, name_of_1_0_0(name));
    }
    let origin = open(&store);
    for name in ["photos/", "a//b"] {
        assert_eq!(run(read(&origin, name, None)), b"before");
        // What another tool stored under the key was not served before, and is not while this object is there.
        store.put(name, b"of another tool");
        assert_eq!(run(read(&origin, name, None)), b"before");
        let listed = run(origin.list(name.as_bytes(), None, 9)).unwrap();
        assert_eq!(listed.len(), 1);
        assert_eq!(listed[0].metadata, run(origin.head(&key(name))).unwrap().unwrap());
        let absent = run(staged(&origin, name, b"x"));
        assert!(run(absent.commit(Some(Condition::Absent))).is_err());
        let update = run(staged(&origin, name, b"after"));
        run(update.commit(Some(Condition::Is(listed[0].metadata.etag.clone())))).unwrap();
        run(write(&origin, name, b"later", Attributes::default()));
        assert_eq!(run(read(&open(&store), name, None)), b"later");
        // A removal leaves no object of the key behind.
        assert!(run(origin.delete(&key(name))).unwrap());
        assert!(run(origin.head(&key(name))).unwrap().is_none());
        run(write(&origin, name, b"anew", Attributes::default()));
        assert!(store.names().contains(&name.to_owned()), "{:?}", store.names());
        assert_eq!(run(read(&open(&store), name, None)), b"anew");
    }
    assert_eq!(listed(&origin), ["a//b", "photos/"]);
}

/// A process that starts after the removal does not look for the key under the name of version 1.0.0.
#[test]
fn a_write_does_not_bring_back_a_name_of_version_1_0_0() {
    let store = TextStore::start();
    run(write(&open(&store), "a//b", b"before", Attributes::default()));
    store.rename("a//b", name_of_1_0_0("a//b"));
    for condition in [None, Some(Condition::Absent)] {
        let origin = open(&store);
        let late = run(staged(&origin, "a//b", b"late"));
        store.rename(name_of_1_0_0("a//b"), "aside");
        let refused = run(late.commit(condition)).unwrap_err();
        assert!(refused.to_string().contains("write the object again"), "{refused}");
        assert_eq!(store.names(), ["!key/identity", "aside"]);
        store.rename("aside", name_of_1_0_0("a//b"));
    }
}

#[test]
fn the_object_that_has_the_prefix_as_its_name_is_no_keys() {
    let store = TextStore::start();
    store.put("data/", b"");
    store.put("data/a", b"x");
    store.put("data/sub/", b"");
    let config = config_of(&format!("http://{}", store.address));
    let origin = S3::open(&config::Origin { prefix: "data/".to_owned(), ..config }).unwrap();
    assert_eq!(listed(&origin), ["a", "sub/"]);
    assert_eq!(listed(&open(&store)), ["data/", "data/!key/identity", "data/a", "data/sub/"]);
}

/// Where the marker of the bucket cannot be written, and so not be looked for, paths and markers of folders are served.
#[test]
fn who_may_only_read_is_served_paths_alone() {
    let store = TextStore::start();
    for name in ["photos/", "a//b", "a/b"] {
        store.put(name, name.as_bytes());
    }
    store.refuse_writes();
    let origin = open(&store);
    assert_eq!(listed(&origin), ["a/b", "photos/"]);
    assert_eq!(run(read(&origin, "photos/", None)), b"photos/");
    assert!(run(origin.head(&key("a//b"))).unwrap().is_none());
}

/// A store that keeps objects as files takes `a//b` for `a/b`: there such keys are escaped, and only markers of folders are what they
/// are for other tools.
#[test]
fn a_store_of_files_is_asked_for_paths_alone() {
    const TEST: &str = "origin_s3::texts::a_store_of_files_is_asked_for_paths_alone";
    let Some(store) = Store::start(TEST) else { return };
    let origin = store.open();
    for name in ["a//b", "a/b", "a/./b", "/a/b", &"l".repeat(256)] {
        run(write(&origin, name, name.as_bytes(), Attributes::default()));
    }
    for name in ["a//b", "a/b", "a/./b", "/a/b", &"l".repeat(256)] {
        assert_eq!(run(read(&store.open(), name, None)), name.as_bytes());
    }
    assert!(store.bucket().join("!key").is_dir());
    run(put_as_another_tool(&store, "photos/1.jpg", b"jpg"));
    run(write(&origin, "photos/", b"", Attributes::default()));
    assert!(listed(&origin).contains(&"photos/".to_owned()), "{:?}", listed(&origin));
    assert_eq!(run(read(&origin, "photos/", None)), b"");
    let full = run(staged(&origin, "photos/", b"x"));
    let refused = run(full.commit(None)).unwrap_err();
    assert!(
        matches!(&refused, Error::Refused(what) if what.contains("without bytes")),
        "{refused}"
    );
    assert!(run(origin.delete(&key("photos/"))).unwrap());
    assert!(run(origin.head(&key("photos/"))).unwrap().is_none());
    assert_eq!(run(read(&origin, "photos/1.jpg", None)), b"jpg");
}
