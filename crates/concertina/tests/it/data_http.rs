//! `/datasets` as HTTP clients ask it: limits, warnings, long queries, and the form of replies.

use std::io::Read;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::data::{answer, refused, run};
use crate::serve_client::{Client, Process, Reply, spawn};

/// A server with a dataset `d` of this text, and more configuration.
fn served(folder: &Path, format: &str, text: &[u8], more: &[&str]) -> (Process, Client) {
    let path = format!("datasets.path={}/copies-of-shards", folder.display());
    let server = spawn(folder, &[more, &["datasets.refresh_s=0.1", &path]].concat(), "");
    std::fs::write(folder.join("input"), text).unwrap();
    let imported = run(folder, &["import", "input", "--name", "d", "--format", format], "");
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    answer(folder, &["push", "d", "--server", &format!("http://{}", server.address)]);
    let client = Client::connect(server.address);
    (server, client)
}

fn json(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// A page ends at the limit and goes on, so that all is found; a count cannot, and says what to do.
#[test]
fn a_scan_over_the_budget_is_paged_and_a_count_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text: String = (0..40_000).map(|i| format!("{{\"m\":{i},\"t\":\"word {i}\"}}\n")).collect();
    let more = ["datasets.query_read_bytes_max=64KiB"];
    let (server, mut client) = served(folder, "json", text.as_bytes(), &more);
    let refused_reply = client.get("/datasets/d/count?query=NOT%20m%3A%3D7");
    assert_eq!(refused_reply.status, 413);
    let error = refused_reply.text();
    for says in ["bytes of records to read", "datasets.query_read_bytes_max", "data pull"] {
        assert!(error.contains(says), "{error}");
    }
    // The connection is as good as before, and what reads less is answered.
    assert_eq!(json(&client.get("/datasets/d/count?query=m%3A%3D7"))["count"], 1);
    assert_eq!(json(&client.get("/datasets/d/count?query="))["count"], 40_000);
    let (mut ids, mut pages, mut after) = (Vec::new(), 0, String::new());
    loop {
        let page =
            json(&client.get(&format!("/datasets/d/records?query=m%3A%3E39990&limit=100{after}")));
        ids.extend(
            page["records"].as_array().unwrap().iter().map(|record| record["id"].as_u64().unwrap()),
        );
        pages += 1;
        match page["next"].as_u64() {
            Some(next) => after = format!("&after={next}"),
            None => break,
        }
    }
    assert_eq!(ids, (39_991..40_000).collect::<Vec<u64>>());
    assert!(pages > 5, "{pages} pages of 64 KiB");
    // As the command shows both.
    let url = &format!("http://{}", server.address);
    refused(folder, &["count", "d", "NOT m:=7", "--server", url], "", "413");
    let all = answer(folder, &["search", "d", "m:>39990", "--all", "--server", url]);
    assert_eq!(all.lines().count(), 9);
}

#[test]
fn attributes_that_no_record_has_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "{\"name\":\"ed\",\"size\":90}\n{\"name\":\"nano\",\"size\":2900}\n";
    let (server, mut client) = served(folder, "json", text.as_bytes(), &[]);
    let mut unknown = |path: &str| {
        json(&client.get(&format!("/datasets/d/{path}")))["unknown_attributes"].clone()
    };
    let nothing = Value::Null;
    assert_eq!(unknown("count?query=size%3A%3E5"), nothing);
    assert_eq!(unknown("count?query=sise%3A%3E5"), serde_json::json!(["sise"]));
    assert_eq!(unknown("records?query=NOT%20nme%3A%3Dx%20name%3A"), serde_json::json!(["nme"]));
    // Of the first page alone.
    assert_eq!(unknown("records?query=NOT%20nme%3A%3Dx&after=0"), nothing);
    // Printed as for files.
    let url = &format!("http://{}", server.address);
    for command in ["count", "search"] {
        let served = run(folder, &[command, "d", "NOT nme:=x", "--server", url], "");
        let local = run(folder, &[command, "d", "NOT nme:=x"], "");
        let text = String::from_utf8_lossy(&served.stderr).into_owned();
        assert!(
            text.contains("no record has the attribute \"nme\"") && text.contains("name, size"),
            "{text}"
        );
        assert_eq!((served.stdout, served.stderr), (local.stdout, local.stderr));
    }
    // A record that is appended has it.
    assert!(run(folder, &["append", "d", "-", "--server", url], "{\"nme\":1}\n").status.success());
    assert_eq!(unknown("records?query=NOT%20nme%3A%3Dx"), nothing);
}

#[test]
fn a_query_that_most_likely_means_another_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (server, mut client) = served(folder, "csv", b"name,v\nlibs,1\ned,2\n", &[]);
    let mut warnings =
        |path: &str| json(&client.get(&format!("/datasets/d/{path}")))["warnings"].clone();
    for path in ["count?query=name%3A%20libs", "records?query=name%3A%20libs"] {
        let found = warnings(path);
        assert_eq!(found.as_array().map(Vec::len), Some(1), "{path}: {found}");
        assert!(found[0].as_str().unwrap().contains("name:libs tests the attribute"), "{found}");
    }
    assert!(warnings("count?query=ed+or+libs")[0].as_str().unwrap().contains("OR in capitals"));
    // Of the first page alone.
    assert_eq!(warnings("records?query=name%3A%20libs&after=0"), Value::Null);
    for path in ["count?query=name%3Alibs", "count?bytes=or", "records?key=ed"] {
        assert_eq!(warnings(path), Value::Null, "{path}");
    }
    // The command warns once.
    let url = &format!("http://{}", server.address);
    for command in ["count", "search"] {
        let warned =
            |args: &[&str]| run(folder, &[&[command, "d", "name: libs"], args].concat(), "");
        let (served, local) = (warned(&["--server", url]), warned(&[]));
        let told = String::from_utf8_lossy(&served.stderr).into_owned();
        assert_eq!(told.matches("concertina: warning: ").count(), 1, "{told}");
        assert_eq!((served.stdout, served.stderr), (local.stdout, local.stderr));
    }
    // Of a key all records, from a server as from files.
    assert!(run(folder, &["append", "d", "-", "--server", url], "ed,3\n").status.success());
    assert_eq!(answer(folder, &["get", "d", "--key", "ed", "--server", url]), "ed,2\ned,3\n");
}

#[test]
fn long_queries_come_as_a_body() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text: String = (0..300).map(|i| format!("number {i:04} end\n")).collect();
    let (server, mut client) = served(folder, "lines", text.as_bytes(), &[]);
    // A query of 60 KB, most of which must be percent-encoded.
    let words: Vec<String> =
        (0..250).map(|i| format!("\"number {i:04} {}\"", "é".repeat(80))).collect();
    let query = format!("{} OR \"number 0007 end\"", words.join(" OR "));
    assert!(query.len() > 40_000);
    let mut encoded = String::new();
    query.bytes().for_each(|byte| encoded.push_str(&format!("%{byte:02X}")));
    let mut post = |path: &str, body: &str| {
        client.send("POST", &format!("/datasets/d/{path}"), &[], Some(body.as_bytes())).unwrap()
    };
    let page = json(&post("search", &format!("query={encoded}&limit=5")));
    assert_eq!(page["records"][0]["record"], "number 0007 end\n", "{page}");
    assert_eq!(json(&post("count", &format!("query={encoded}")))["count"], 1);
    assert_eq!(json(&post("count", "bytes=number\n"))["count"], 300);
    assert_eq!(post("search", "query=a&bytes=3").status, 400);
    assert_eq!(post("search", &"x".repeat(300 << 10)).status, 413);
    assert_eq!(post("export", "from=0").status, 405);
    let mut client = Client::connect(server.address);
    assert_eq!(client.get("/datasets/d/search?query=a").status, 405);
    // And as the command sends it.
    let url = &format!("http://{}", server.address);
    assert_eq!(answer(folder, &["count", "d", &query, "--server", url]), "1\n");
    assert_eq!(answer(folder, &["search", "d", &query, "--server", url]), "number 0007 end\n");
}

#[test]
fn replies_are_compressed_or_a_range_as_the_client_takes_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut text: Vec<u8> =
        (0..3000).flat_map(|i| format!("a line of text {i}\n").into_bytes()).collect();
    text.splice(0..0, *b"\xff\x00 is not text\n");
    let (_server, mut client) = served(folder, "lines", &text, &[]);
    let gzip = [("accept-encoding", "gzip")];
    for path in ["export?from=0", "records?query=line&limit=500", "extract?offset=0&len=50000"] {
        let path = format!("/datasets/d/{path}");
        let plain = client.get(&path);
        let reply = client.send("GET", &path, &gzip, None).unwrap();
        assert_eq!((reply.status, reply.header("content-encoding")), (200, Some("gzip")), "{path}");
        assert!(reply.body.len() * 2 < plain.body.len(), "{path}: {} B", reply.body.len());
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&reply.body[..]).read_to_end(&mut bytes).unwrap();
        assert!(bytes == plain.body, "{path}");
        assert_eq!(reply.header("concertina-next"), plain.header("concertina-next"));
        let head = client.send("HEAD", &path, &gzip, None).unwrap();
        assert_eq!(head.header("content-length"), reply.header("content-length"), "{path}");
    }
    let range =
        client.send("GET", "/datasets/d/records/1", &[("range", "bytes=2-5")], None).unwrap();
    assert_eq!((range.status, &range.body[..]), (206, &b"line"[..]));
    assert_eq!(range.header("content-range"), Some("bytes 2-5/17"));
    let past =
        client.send("GET", "/datasets/d/records/1", &[("range", "bytes=99-")], None).unwrap();
    assert_eq!((past.status, past.header("content-range")), (416, Some("bytes */17")));
    // Bytes that are not text.
    let page = json(&client.get("/datasets/d/records?query=text&limit=1"));
    assert_eq!(page["records"][0]["base64"], STANDARD.encode(b"\xff\x00 is not text\n"));
    let shown = answer(folder, &["get", "d", "0", "--json"]);
    assert!(shown.contains(&STANDARD.encode(b"\xff\x00 is not text\n")), "{shown}");
}
