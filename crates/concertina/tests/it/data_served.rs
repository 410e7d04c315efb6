//! `concertina data --server`, as a user types it: datasets that lie in a server's origin.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::data::{STANZAS, answer, refused, run};
use crate::serve_client::{Client, Process, bytes, spawn, start, until, until_or};

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
    assert!(text.starts_with("lines: 10000 records copied to copies/lines"), "{text}");
    let export = answer(folder, &["export", "lines"]);
    assert!(export.ends_with("\nsecond\n") && !export.contains("first"));
    assert_eq!(answer(folder, &["export", "lines", "--folder", "copies"]), export);
    refused(folder, &["pull", "lines", "--server", url], "", "datasets/lines already exists");

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
    // Nobody finds it there by queries.
    let warned = run(folder, &["push", "lines", "--server", url, "--replace"], "");
    assert!(String::from_utf8_lossy(&warned.stderr).contains("serves no datasets"));
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
    refused(folder, &["push", "a/b", "--server", url], "", "invalid dataset name");
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
    refused(folder, &push, "", "cannot connect");
}

/// What makes changes seen soon.
const SOON: [&str; 3] =
    ["datasets.refresh_s=0.1", "datasets.layers_interval_s=0.02", "node.revalidate_s=0.1"];

/// Starts a server that serves datasets.
fn serve(folder: &Path) -> Process {
    let path = format!("datasets.path={}/copies-of-shards", folder.display());
    spawn(folder, &[&SOON[..], &[&*path]].concat(), "")
}

/// A command for a folder's dataset and for a server's, with the same input.
fn both(folder: &Path, url: &str, args: &[&str], input: &str) -> (Output, Output) {
    let asked = [args, &["--server", url]].concat();
    (run(folder, args, input), run(folder, &asked, input))
}

/// Both answer the same.
fn same(folder: &Path, url: &str, args: &[&str], input: &str) -> String {
    let (local, served) = both(folder, url, args, input);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let errors = text(&served.stderr);
    assert_eq!(text(&served.stdout), text(&local.stdout), "{args:?}: {errors}");
    assert_eq!(served.status.code(), local.status.code(), "{args:?}: {errors}");
    assert_eq!(errors, text(&local.stderr), "{args:?}");
    text(&served.stdout)
}

/// Both find the same. What it took to find it depends on which parts were asked at once.
fn same_records(folder: &Path, url: &str, args: &[&str]) {
    let (local, served) = both(folder, url, &[args, &["--json"]].concat(), "");
    let records = |output: &Output| -> serde_json::Value {
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["located"].is_u64() && found["verified"].is_u64(), "{args:?}: {found}");
        found["records"].clone()
    };
    assert_eq!(records(&served), records(&local), "{args:?}");
    assert!(!records(&local).as_array().unwrap().is_empty(), "{args:?}");
}

/// Everything that reads, with something to find in each.
fn reads_are_the_same(folder: &Path, url: &str) {
    let check = |args: &[&str]| assert!(!same(folder, url, args, "").is_empty(), "{args:?}");
    // It is listed before it was asked for.
    check(&["list"]);
    check(&["list", "--json"]);
    check(&["info", "packages"]);
    check(&["info", "packages", "--json"]);
    check(&["get", "packages", "0", "2"]);
    check(&["get", "packages", "2", "--json"]);
    check(&["get", "packages", "--key", "libc6", "--json"]);
    check(&["search", "packages", "Maintainer:Python"]);
    check(&["search", "packages", "NOT zzz", "--limit", "2"]);
    check(&["search", "packages", "NOT zzz", "--unsorted"]);
    same_records(folder, url, &["search", "packages", "Section:=editors", "--limit", "1"]);
    same_records(folder, url, &["search", "packages", "Installed-Size:", "--after", "0"]);
    same_records(folder, url, &["grep", "packages", "^Package: lib.*6$"]);
    check(&["count", "packages", "Installed-Size:1000..20000"]);
    check(&["count", "packages", "--bytes", "Package", "--json"]);
    check(&["extract", "packages", "9", "2"]);
    check(&["extract", "packages", "0", "120", "--json"]);
    check(&["export", "packages"]);
    check(&["export", "packages", "--json"]);
}

#[test]
fn a_server_answers_as_the_files_do_through_appends_and_seals() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = serve(folder);
    let url = &format!("http://{}", server.address);
    let imported = run(folder, &["import", "-", "--name", "packages"], STANZAS);
    assert!(imported.status.success());
    answer(folder, &["push", "packages", "--server", url]);
    reads_are_the_same(folder, url);
    let more = "Package: vim\nSection: editors\nInstalled-Size: 3000\n\n\
                Package: emacs\nSection: editors\nMaintainer: Python\n";
    for args in [["append", "packages", "-"].as_slice(), &["append", "packages", "-", "--json"]] {
        same(folder, url, args, more);
        reads_are_the_same(folder, url);
    }
    for args in
        [["delete", "packages", "1", "5"].as_slice(), &["delete", "packages", "1", "--json"]]
    {
        same(folder, url, args, "");
        reads_are_the_same(folder, url);
    }
    for args in [["seal", "packages"].as_slice(), &["seal", "packages", "--json"]] {
        same(folder, url, args, "");
        reads_are_the_same(folder, url);
    }
    // A copy of it is what it is.
    answer(folder, &["pull", "packages", "--server", url, "--folder", "copies"]);
    let export = answer(folder, &["export", "packages"]);
    assert_eq!(answer(folder, &["export", "packages", "--folder", "copies"]), export);
    // Without the bytes of deleted records, whose ids are gaps from then on.
    let compacted = answer(folder, &["compact", "packages", "--deleted-share", "0"]);
    assert!(compacted.contains("2 deleted records left out"), "{compacted}");
    answer(folder, &["push", "packages", "--server", url, "--replace"]);
    let info = |more: &[&str]| answer(folder, &[&["info", "packages", "--json"], more].concat());
    until("the server has the compacted dataset", || info(&["--server", url]) == info(&[]));
    reads_are_the_same(folder, url);
    same(folder, url, &["append", "packages", "-"], more);
    same(folder, url, &["delete", "packages", "2"], "");
    same(folder, url, &["seal", "packages"], "");
    let export = same(folder, url, &["export", "packages"], "");
    assert!(export.contains("Package: vim") && !export.contains("Package: libc6"), "{export}");
}

/// A gateway over nodes of which each has some of the shards.
#[test]
fn a_gateway_answers_as_the_files_do_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let listeners = ["a", "b"].map(|name| (name, TcpListener::bind("127.0.0.1:0").unwrap()));
    let mut members = vec!["cluster.replicas=1".to_owned(), "cluster.lease_s=0.5".to_owned()];
    for (index, (name, listener)) in listeners.iter().enumerate() {
        members.push(format!("member.{index}.name={name}"));
        members.push(format!("member.{index}.address={}", listener.local_addr().unwrap()));
    }
    members.extend(SOON.map(str::to_owned));
    drop(listeners);
    let process = |more: &[String]| {
        let all = [&members[..], more].concat();
        spawn(folder, &all.iter().map(String::as_str).collect::<Vec<_>>(), "")
    };
    let nodes = ["a", "b"].map(|name| {
        let path = folder.display();
        process(&[
            "serve.role=node".to_owned(),
            format!("cluster.name={name}"),
            format!("device.0.path={path}/device-{name}"),
            format!("datasets.path={path}/copies-of-{name}"),
        ])
    });
    let gateway = process(&["serve.role=gateway".to_owned()]);
    let url = &format!("http://{}", gateway.address);
    let imported = run(folder, &["import", "-", "--name", "packages"], STANZAS);
    assert!(imported.status.success());
    // A node that has just started takes no writes until a lease could have run out.
    let until = Instant::now() + Duration::from_secs(90);
    while !run(folder, &["push", "packages", "--server", url], "").status.success() {
        assert!(Instant::now() < until, "no push succeeds");
    }
    reads_are_the_same(folder, url);
    let more = "Package: vim\nSection: editors\n";
    for args in [["append", "packages", "-"].as_slice(), &["seal", "packages"]] {
        same(folder, url, args, more);
        reads_are_the_same(folder, url);
    }
    same(folder, url, &["append", "packages", "-"], "Package: joe\nSection: editors\n");
    let table = answer(folder, &["layers", "packages", "--server", url]);
    assert!(table.contains(" 000001 ") && table.contains(" 000002 "), "{table}");
    drop(nodes);
    let search = ["search", "packages", "Section:=editors", "--json", "--server", url];
    refused(folder, &search, "", " replied 50");
    // Of what is not whole there is no file.
    let export = ["export", "packages", "--out", "all.txt", "--server", url];
    refused(folder, &export, "", "000001");
    assert!(!folder.join("all.txt").exists() && no_temporary(folder));
    let output = run(folder, &[&search[..], &["--partial"]].concat(), "");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let missing: Vec<&str> =
        found["missing"].as_array().unwrap().iter().filter_map(|part| part.as_str()).collect();
    assert_eq!(missing, ["000001", "000002"], "{found}");
    assert_eq!(found["records"].as_array().unwrap().len(), 1);
    assert_eq!(found["records"][0]["id"], 4);
    assert!(String::from_utf8_lossy(&output.stderr).contains("no node answered for part 000001"));
}

/// Whether no file is left that was being written.
fn no_temporary(folder: &Path) -> bool {
    let mut names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    names.all(|name| !name.to_string_lossy().starts_with(".writing-"))
}

#[test]
fn a_servers_dataset_is_exported_as_its_files_are() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = serve(folder);
    let url = &format!("http://{}", server.address);
    make(folder);
    let import = |name: &str, bytes: &[u8], format: &str| {
        std::fs::write(folder.join("input"), bytes).unwrap();
        let imported = run(folder, &["import", "input", "--name", name, "--format", format], "");
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    };
    let long = "x".repeat(600_000);
    import("rows", format!("id,text\n1,{long}\n2,b\n3,\"c\nd\"").as_bytes(), "csv");
    import("raw", b"\xff\x00 one\nplain\r\nno end", "lines");
    import("sources", b"a\n\nb", "files");
    for name in ["lines", "rows", "raw", "sources"] {
        answer(folder, &["push", name, "--server", url]);
        let (local, served) = both(folder, url, &["export", name], "");
        assert_eq!(String::from_utf8_lossy(&served.stderr), "", "{name}");
        assert!(served.status.success() && !served.stdout.is_empty(), "{name}");
        assert!(served.stdout == local.stdout, "{name}");
    }
    for (args, input) in [
        (&["append", "rows", "-"][..], "4,e\n5,f\n"),
        (&["delete", "rows", "0", "2", "4"][..], ""),
        (&["seal", "rows"][..], ""),
        (&["append", "rows", "-"][..], "6,g\n"),
    ] {
        same(folder, url, args, input);
        let text = same(folder, url, &["export", "rows"], "");
        assert!(text.starts_with("id,text\n"), "{args:?}: {text:.100}");
    }
    assert_eq!(same(folder, url, &["export", "rows"], ""), "id,text\n2,b\n4,e\n6,g\n");

    // Into a file: whole, or as it was.
    let all = answer(folder, &["export", "lines"]);
    let out = ["export", "lines", "--server", url, "--out", "all.txt"];
    let told = json(folder, &[&out[..], &["--json"]].concat());
    assert_eq!((&told["records"], &told["bytes"]), (&10_000.into(), &all.len().into()));
    let read = || std::fs::read_to_string(folder.join("all.txt")).unwrap();
    assert!(read() == all);
    refused(folder, &out, "", "--replace");
    refused(folder, &["export", "lines", "--out", "."], "", "not a regular file");
    answer(folder, &["delete", "lines", "0", "--server", url]);
    let text = answer(folder, &[&out[..], &["--replace"]].concat());
    assert!(text.starts_with("lines: wrote 9999 records, "), "{text}");
    assert!(all.ends_with(&read()));
    refused(folder, &["export", "nothing", "--server", url], "", "there is no dataset");
    drop(server);
    refused(folder, &[&out[..], &["--replace"]].concat(), "", "cannot connect");
    assert!(all.ends_with(&read()) && no_temporary(folder));
}

#[test]
fn what_is_pushed_is_listed_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = format!("datasets.path={}/copies-of-shards", folder.display());
    // The origin is not looked at again by itself.
    let server = spawn(folder, &["datasets.refresh_s=100000", &path], "");
    let url = &format!("http://{}", server.address);
    let list = ["list", "--server", url];
    assert_eq!(answer(folder, &list), "");
    for (count, name) in ["packages-2", "packages", "more"].iter().enumerate() {
        let imported = run(folder, &["import", "-", "--name", name], STANZAS);
        assert!(imported.status.success());
        answer(folder, &["push", name, "--server", url]);
        assert_eq!(same(folder, url, &["list"], "").lines().count(), count + 1);
    }
    same(folder, url, &["list", "--json"], "");
    assert_eq!(answer(folder, &["count", "more", "editors", "--server", url]), "2\n");
    // One that cannot be read is named, and hides no other.
    let mut client = Client::connect(server.address);
    assert_eq!(client.put("/objects/datasets/broken/dataset.json", b"{}").status, 200);
    let output = run(folder, &list, "");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&output.stdout).lines().count(), 3, "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("broken: "), "{}", text(&output.stderr));
}

#[test]
fn what_a_server_refuses_is_said_in_its_words() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = serve(folder);
    let url = &format!("http://{}", server.address);
    let imported = run(folder, &["import", "-", "--name", "packages"], STANZAS);
    assert!(imported.status.success());
    answer(folder, &["push", "packages", "--server", url]);
    let check = |args: &[&str], input: &str, says: &str| {
        refused(folder, &[args, &["--server", url]].concat(), input, says);
    };
    check(&["info", "nothing"], "", "404 Not Found: there is no dataset");
    check(&["search", "packages", "(a"], "", "the query");
    check(&["grep", "packages", "a("], "", "regular expression");
    check(&["search", "packages", "a", "--limit", "99999999", "--unsorted"], "", "limit");
    check(&["get", "packages", "3"], "", "no record 3");
    check(&["get", "packages", "--key", "vi"], "", "no record has the key");
    check(&["extract", "packages", "0", "99999"], "", "not within");
    check(&["delete", "packages", "3"], "", "no record 3");
    check(&["append", "packages", "-"], "no name here\n", "nothing was appended");
    check(&["layers", "nothing"], "", "there is no dataset");
    refused(folder, &["layers", "packages"], "", "--server http://HOST:PORT");
    refused(folder, &["search", "packages", "a", "--partial"], "", "--server");
    let (local, served) = both(folder, url, &["search", "packages", "Section:=games"], "");
    assert_eq!((local.status.code(), served.status.code()), (Some(1), Some(1)));
    let partial = ["search", "packages", "editors", "--partial", "--server", url];
    assert!(answer(folder, &partial).starts_with("Package: ed\n"));
    drop(server);
    check(&["info", "packages"], "", "cannot connect");
}

#[test]
fn many_records_come_in_pages_and_bytes_that_are_no_text_as_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = serve(folder);
    let url = &format!("http://{}", server.address);
    make(folder);
    std::fs::write(folder.join("raw.txt"), b"\xff\x00 one\nplain\n").unwrap();
    let imported = run(folder, &["import", "raw.txt", "--name", "raw", "--format", "lines"], "");
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    for name in ["lines", "raw"] {
        answer(folder, &["push", name, "--server", url]);
    }
    assert!(
        same(folder, url, &["get", "raw", "0", "--json"], "")
            .contains("\"base64\": \"/wAgb25lCg==\"")
    );
    same_records(folder, url, &["search", "raw", "one"]);
    let page = ["search", "lines", "NOT x", "--limit", "2500"];
    assert_eq!(same(folder, url, &page, "").lines().count(), 2500);
    let all = same(folder, url, &["grep", "lines", ".", "--limit", "20000"], "");
    assert_eq!(all, answer(folder, &["export", "lines"]));
    // Whoever has seen enough is no error.
    let head = format!("data grep lines . --limit 20000 --server {url} | head -n 1");
    let mut command = Command::new("sh");
    command.arg("-c").arg(format!("\"$0\" {head}")).arg(env!("CARGO_BIN_EXE_concertina"));
    let output = command.current_dir(folder).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.stdout, all.as_bytes()[..output.stdout.len()]);
}

#[test]
fn layers_are_shown_and_set() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = serve(folder);
    let url = &format!("http://{}", server.address);
    make(folder);
    answer(folder, &["push", "lines", "--server", url]);
    let layers = |more: &[&str]| {
        let args = [&["layers", "lines", "--server", url, "--json"], more].concat();
        json(folder, &args)
    };
    let before = layers(&[]);
    assert!(before["fixed_bytes"].is_null(), "{before}");
    assert_eq!(before["parts"][0]["layers"]["bytes"], 0, "{before}");
    assert_eq!(layers(&["--bytes", "1MiB"])["fixed_bytes"], 1 << 20);
    let until = Instant::now() + Duration::from_secs(60);
    while layers(&[])["parts"][0]["layers"]["bytes"] == 0 {
        assert!(Instant::now() < until, "no layer comes: {}", layers(&[]));
        std::thread::sleep(Duration::from_millis(20));
    }
    let now = layers(&[]);
    assert!(now["parts"][0]["layers"]["bytes"].as_u64().unwrap() <= 1 << 20, "{now}");
    let table = answer(folder, &["layers", "lines", "--server", url]);
    assert!(table.contains("\n000001") && table.contains("fixed at 1048576 B"), "{table}");
    // With so much, half is enough for all of the text, and for what decodes it.
    layers(&["--bytes", "3MiB"]);
    while layers(&[])["parts"][0]["layers"]["text_bytes"] == 0 {
        assert!(Instant::now() < until, "no text layer comes: {}", layers(&[]));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(layers(&["--bytes", "auto"])["fixed_bytes"].is_null());
    refused(folder, &["layers", "lines", "--server", url, "--bytes", "much"], "", "size");
}

#[test]
fn layers_of_a_busy_shard_become_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let path = format!("datasets.path={}/copies-of-shards", folder.display());
    let marks = [
        "datasets.layers_interval_s=0.05",
        "datasets.layers_smoothing=0.2",
        "datasets.layers_high=0.2",
        "datasets.layers_low=0.01",
    ];
    let server = spawn(folder, &[&marks[..], &[&*path]].concat(), "");
    let url = &format!("http://{}", server.address);
    make(folder);
    answer(folder, &["push", "lines", "--server", url]);
    let stop = std::sync::atomic::AtomicBool::new(false);
    let stopped = || stop.load(std::sync::atomic::Ordering::Relaxed);
    let shown = || -> serde_json::Value {
        let reply = Client::connect(server.address).get("/datasets/lines");
        serde_json::from_slice(&reply.body).unwrap()
    };
    let layers = || shown()["parts"][0]["layers"].clone();
    std::thread::scope(|scope| {
        for reader in 0..3u32 {
            let stopped = &stopped;
            let address = server.address;
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut at = reader;
                while !stopped() {
                    at = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let query = format!("/datasets/lines/records?query={:03x}&limit=1", at >> 20);
                    assert_eq!(client.get(&query).status, 200);
                }
            });
        }
        let has_samples = |layers: &serde_json::Value| {
            ["sa", "isa"].iter().any(|of| layers[of].as_array().is_some_and(|all| !all.is_empty()))
        };
        until_or("samples are added", || shown().to_string(), || has_samples(&layers()));
        // Queries fill them, and the worker the rest, however busy the machine is.
        until_or("they become whole", || shown().to_string(), || layers()["filled"] == 1.0);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let shown = shown();
    assert_eq!(shown["copied"]["shards"], 1, "{shown}");
    assert_eq!(shown["copied"]["bytes"], shown["parts"][0]["file_bytes"], "{shown}");
    assert!(shown["copied"]["bytes_per_s"].as_f64().unwrap() > 0.0, "{shown}");
}
