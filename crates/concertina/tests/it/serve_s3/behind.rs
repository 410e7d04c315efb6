//! What clients get, and the log, of a store behind that refuses, fails, or has objects of other tools.

use super::*;
use crate::origin::run;
use crate::origin_s3::drawn::{Fault, Relay};
use crate::origin_s3::put_as_another_tool;
use crate::serve_client::{Client, Reply};

fn front_before(store: &Store) -> Front {
    let before = before(store);
    Front::start(&before.iter().map(String::as_str).collect::<Vec<_>>())
}

fn put(front: &Front, key: &str, headers: &[(&str, &str)]) -> Reply {
    let path = presigned(&front.address, "PUT", key);
    let mut client = Client::connect(front.address.parse().unwrap());
    client.send("PUT", &path, headers, Some(b"1")).unwrap()
}

fn code(reply: &Reply) -> String {
    let text = reply.text();
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or_else(String::new, |(code, _)| code.to_owned())
}

/// A store that keeps objects as files cannot have `foo` beside `foo/bar`, however often a client tries.
#[test]
fn what_can_never_be_stored_is_refused_for_good() {
    const TEST: &str = "serve_s3::behind::what_can_never_be_stored_is_refused_for_good";
    let Some(store) = Store::start(TEST) else { return };
    let front = front_before(&store);
    for (first, second) in [("foo", "foo/bar"), ("foo2/bar", "foo2")] {
        assert_eq!(put(&front, first, &[]).status, 200);
        let refused = put(&front, second, &[]);
        assert_eq!(
            (refused.status, &*code(&refused)),
            (409, "KeyConflict"),
            "{second}: {refused:?}"
        );
        assert!(refused.header("retry-after").is_none(), "{refused:?}");
        assert!(!refused.text().contains(&store.address), "{refused:?}");
        let of_http =
            Client::connect(front.http.parse().unwrap()).put(&format!("/objects/{second}"), b"1");
        assert_eq!(of_http.status, 409, "{of_http:?}");
        for of_the_store in ["ObjectParentIsFile", "ExistingObjectIsDirectory", "already exists"] {
            assert!(!refused.text().contains(of_the_store), "{refused:?}");
        }
    }
}

/// A failure behind is one line of the log, with the id that the client has, and with the reason that it does not get.
#[test]
fn a_failure_behind_is_one_line_with_its_reason_and_id() {
    const TEST: &str = "serve_s3::behind::a_failure_behind_is_one_line_with_its_reason_and_id";
    let Some(store) = Store::start(TEST) else { return };
    let front = front_before(&store);
    let address = store.address.clone();
    drop(store);
    let path = presigned(&front.address, "GET", "unknown");
    let mut client = Client::connect(front.address.parse().unwrap());
    let reply = client.get(&path);
    assert_eq!(reply.status, 503, "{reply:?}");
    let id = reply.header("x-amz-request-id").unwrap();
    assert!(reply.text().contains(&format!("<RequestId>{id}</RequestId>")), "{reply:?}");
    assert!(!reply.text().contains(&address), "{reply:?}");
    let log = front.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("S3 request")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains(&format!("(request {id}): the origin failed: ")), "{log}");
    assert!(lines[0].contains(&address), "{log}");
}

/// A read that the store forbids will fail again: the client is told so, and not to come again.
#[test]
fn a_read_that_the_store_denies_is_denied() {
    const TEST: &str = "serve_s3::behind::a_read_that_the_store_denies_is_denied";
    let Some(mut store) = Store::start(TEST) else { return };
    let relay = Relay::start(&store.address);
    store.address.clone_from(&relay.address);
    let front = front_before(&store);
    assert_eq!(put(&front, "held", &[]).status, 200);
    relay.set(Fault::Status(403));
    for method in ["GET", "HEAD"] {
        let path = presigned(&front.address, method, "never-read");
        let mut client = Client::connect(front.address.parse().unwrap());
        let denied = client.send(method, &path, &[], None).unwrap();
        assert_eq!(denied.status, 403, "{method}: {denied:?}");
        assert!(denied.header("retry-after").is_none(), "{denied:?}");
        assert!(!denied.text().contains(&relay.address), "{denied:?}");
        if method == "GET" {
            assert_eq!(code(&denied), "AccessDenied", "{denied:?}");
        }
    }
    let mut http = Client::connect(front.http.parse().unwrap());
    let denied = http.get("/objects/never-read");
    assert_eq!(denied.status, 502, "{denied:?}");
    // It is the store that refuses: what is in memory is the client's to read.
    assert_eq!(http.get("/objects/held").status, 200);
    relay.set(Fault::None);
    assert_eq!(http.get("/objects/never-read").status, 404);
}

/// Without its encoding, an object's bytes mean something else.
#[test]
fn http_passes_on_what_was_stored_with_an_object() {
    const TEST: &str = "serve_s3::behind::http_passes_on_what_was_stored_with_an_object";
    let Some(store) = Store::start(TEST) else { return };
    run(put_as_another_tool(&store, "theirs", b"their bytes"));
    let front = front_before(&store);
    let headers = [("content-encoding", "gzip"), ("content-disposition", "attachment")];
    assert_eq!(put(&front, "ours", &headers).status, 200);
    let mut http = Client::connect(front.http.parse().unwrap());
    // From the origin, and from memory.
    for _ in 0..2 {
        for method in ["GET", "HEAD"] {
            let theirs = http.send(method, "/objects/theirs", &[], None).unwrap();
            assert_eq!(theirs.header("cache-control"), Some("no-store"), "{theirs:?}");
            assert_eq!(theirs.header("content-type"), Some("text/x-theirs"), "{theirs:?}");
            let ours = http.send(method, "/objects/ours", &[], None).unwrap();
            for (name, value) in headers {
                assert_eq!(ours.header(name), Some(value), "{ours:?}");
            }
        }
    }
}
