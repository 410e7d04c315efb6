//! `concertina data --server`, as a user types it: datasets that lie in a server's origin.

use std::path::Path;

use crate::data::{STANZAS, answer, refused, run};
use crate::serve_client::{Client, bytes, start};

/// The JSON that a command prints.
fn json(folder: &Path, args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&answer(folder, args)).unwrap()
}

/// The keys of a server's objects.
fn keys(client: &mut Client) -> Vec<String> {
    let listing: serde_json::Value =
        serde_json::from_slice(&client.get("/objects?prefix=datasets/").body).unwrap();
    let objects = listing["objects"].as_array().unwrap();
    objects.iter().map(|object| object["key"].as_str().unwrap().to_owned()).collect()
}

/// A dataset with a shard of more than one piece of an upload, deleted records, and a log.
fn make(folder: &Path) {
    let hex = |byte: &u8| format!("{byte:02x}");
    let lines: String = bytes(5, 400_000)
        .chunks(40)
        .fold(String::new(), |text, line| text + &line.iter().map(hex).collect::<String>() + "\n");
    let imported = run(folder, &["import", "-", "--name", "lines", "--format", "lines"], &lines);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    assert!(run(folder, &["append", "lines", "-"], "first\nsecond\n").status.success());
    answer(folder, &["delete", "lines", "3", "10000"]);
}

#[test]
fn a_dataset_is_pushed_and_pulled_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = start(folder, &[]);
    let url = &format!("http://{}", server.address());
    make(folder);
    let pushed = json(folder, &["push", "lines", "--server", url, "--json"]);
    assert_eq!((pushed["files"].as_u64(), pushed["skipped_bytes"].as_u64()), (Some(3), Some(0)));
    let id = pushed["id"].as_str().unwrap();
    let mut client = Client::connect(server.address());
    let expected = ["000000000001.log", "000000000002.log", "000001.shard"]
        .map(|file| format!("datasets/lines/{id}/{file}"));
    assert_eq!(keys(&mut client)[..3], expected);
    assert_eq!(keys(&mut client)[3], "datasets/lines/dataset.json");
    let text = answer(folder, &["pull", "lines", "--server", url, "--folder", "copies"]);
    assert!(text.starts_with("lines: 10000 records are in copies/lines"), "{text}");
    let export = answer(folder, &["export", "lines"]);
    assert!(export.ends_with("\nsecond\n") && !export.contains("first"));
    assert_eq!(answer(folder, &["export", "lines", "--folder", "copies"]), export);
    refused(folder, &["pull", "lines", "--server", url], "", "there is datasets/lines already");

    // What was pushed before stays until it is to be replaced.
    refused(folder, &["push", "lines", "--server", url], "", "--replace");
    answer(folder, &["seal", "lines"]);
    let replaced = ["push", "lines", "--server", url, "--replace", "--json"];
    let replaced = json(folder, &replaced);
    assert_eq!(
        (replaced["files"].as_u64(), replaced["removed_files"].as_u64()),
        (Some(2), Some(3))
    );
    let left = keys(&mut client);
    assert_eq!(left.len(), 3);
    assert!(left.iter().all(|key| !key.contains(id)), "{left:?}");
    answer(folder, &["pull", "lines", "--server", url, "--folder", "again"]);
    assert_eq!(answer(folder, &["export", "lines", "--folder", "again"]), export);
    server.stop();
}

/// The manifest is what makes a dataset: without it there is none, and what was uploaded is found again.
#[test]
fn an_interrupted_push_shows_nothing_and_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = start(folder, &[]);
    let url = &format!("http://{}", server.address());
    make(folder);
    let push = ["push", "lines", "--server", url, "--json"];
    let first = json(folder, &push);
    let mut client = Client::connect(server.address());
    let id = first["id"].as_str().unwrap();
    let mut delete = |file: &str| {
        let path = format!("/objects/datasets/lines/{file}");
        assert_eq!(client.send("DELETE", &path, &[], None).unwrap().status, 204);
    };
    // As if it had been interrupted before its end.
    delete("dataset.json");
    delete(&format!("{id}/000000000002.log"));
    refused(folder, &["pull", "lines", "--server", url, "--folder", "x"], "", "no dataset lines");
    let second = json(folder, &push);
    let bytes = first["bytes"].as_u64().unwrap();
    let skipped = second["skipped_bytes"].as_u64().unwrap();
    assert!(skipped < bytes && skipped > bytes - 100, "{skipped} of {bytes}");
    assert_eq!((second["id"].as_str(), second["removed_files"].as_u64()), (Some(id), Some(0)));
    // A chunk too many would be taken for one of the log: it is not joined.
    delete("dataset.json");
    let stray = format!("/objects/datasets/lines/{id}/000000000003.log");
    assert_eq!(client.put(&stray, b"of another time").status, 200);
    let third = json(folder, &push);
    assert_ne!(third["id"], first["id"]);
    assert_eq!((&third["skipped_bytes"], &third["removed_files"]), (&0.into(), &4.into()));
    assert_eq!(keys(&mut client).len(), 4);
    answer(folder, &["pull", "lines", "--server", url, "--folder", "copies"]);
    let export = answer(folder, &["export", "lines"]);
    assert_eq!(answer(folder, &["export", "lines", "--folder", "copies"]), export);
    server.stop();
}

#[test]
fn what_cannot_be_pushed_or_pulled_is_refused_with_a_word() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = start(folder, &["serve.token=secret"]);
    let url = &format!("http://{}", server.address());
    let imported = run(folder, &["import", "-", "--name", "packages"], STANZAS);
    assert!(imported.status.success());
    let push = |more: &[&'static str]| {
        [&["push", "packages", "--server", url], more]
            .concat()
            .iter()
            .map(|s| s.to_string())
            .collect()
    };
    let check = |args: Vec<String>, says: &str| {
        refused(folder, &args.iter().map(String::as_str).collect::<Vec<_>>(), "", says);
    };
    check(push(&[]), "401 Unauthorized: this needs the header");
    check(push(&["--token", "wrong"]), "401 Unauthorized");
    check(push(&["--token-file", "missing"]), "cannot read the token in missing");
    refused(folder, &["push", "packages"], "", "--server http://HOST:PORT");
    refused(folder, &["push", "a/b", "--server", url], "", "no name of a dataset");
    refused(folder, &["push", "packages", "--server", "https://h"], "", "http://HOST:PORT");
    refused(folder, &["push", "nothing", "--server", url], "", "there is no dataset nothing");
    std::fs::write(folder.join("token"), "secret\n").unwrap();
    let push = ["push", "packages", "--server", url, "--token-file", "token", "--json"];
    let id = json(folder, &push)["id"].as_str().unwrap().to_owned();

    // A shard that is not what was pushed is told from it, and nothing is left of the copy.
    let mut client = Client::connect(server.address());
    let shard = format!("/objects/datasets/packages/{id}/000001.shard");
    let headers = [("authorization", "Bearer secret")];
    let mut bytes = client.send("GET", &shard, &headers, None).unwrap().body;
    bytes[500] ^= 1;
    assert_eq!(client.send("PUT", &shard, &headers, Some(&bytes)).unwrap().status, 200);
    let pull = ["pull", "packages", "--server", url, "--token", "secret", "--folder", "copies"];
    refused(folder, &pull, "", "000001.shard");
    assert_eq!(std::fs::read_dir(folder.join("copies")).unwrap().count(), 0);
    server.stop();
    refused(folder, &push, "", "cannot reach");
}
