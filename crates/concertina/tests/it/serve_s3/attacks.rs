//! Hostile clients: each attack is refused, and an honest client is served after it.

use super::clients::{client, gateway, python, script};
use super::{ADMIN, Front, READER, WRITER, before};
use crate::origin_s3::Store;
use crate::serve_client::Client;

fn attack(test: &str, with: &str, start: impl FnOnce() -> Front) {
    let Some(python) = python(test) else { return };
    let front = start();
    let keys = serde_json::json!({
        "admin": [ADMIN.id, ADMIN.secret], "reader": [READER.id, READER.secret], "writer": [WRITER.id, WRITER.secret],
    });
    let mut command = client(python, ADMIN, front.folder.path());
    command.arg(script(with)).arg(&front.address).env("KEYS", keys.to_string());
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let log = front.log();
    assert!(output.status.success(), "{}\n{}\n{log}", text(&output.stdout), text(&output.stderr));
    assert!(!log.contains("panicked"), "{log}");
    for secret in [ADMIN.secret, READER.secret, WRITER.secret] {
        assert!(!log.contains(secret), "{log}");
    }
    // What was to be written outside of the folder was not.
    let escaped = front.folder.path().parent().unwrap().join("escaped");
    assert!(!escaped.exists());
}

const ATTACKS: &str = "s3_attacks.py";
const SLOW: [&str; 2] = ["serve.idle_s=2", "serve.stall_s=2"];

#[test]
fn attacks_on_a_node_are_refused() {
    attack("serve_s3::attacks::attacks_on_a_node_are_refused", ATTACKS, || Front::start(&SLOW));
}

#[test]
fn attacks_on_a_gateway_are_refused() {
    attack("serve_s3::attacks::attacks_on_a_gateway_are_refused", ATTACKS, || gateway(&SLOW));
}

#[test]
fn attacks_before_a_store_are_refused() {
    const TEST: &str = "serve_s3::attacks::attacks_before_a_store_are_refused";
    let Some(store) = Store::start(TEST) else { return };
    let sets = before(&store);
    let sets: Vec<&str> = sets.iter().map(String::as_str).chain(SLOW).collect();
    attack(TEST, ATTACKS, || Front::start(&sets));
}

#[test]
fn a_key_that_asks_too_much_is_told_to_slow_down() {
    let start = || Front::start(&["serve.client_requests_per_s=3"]);
    attack(
        "serve_s3::attacks::a_key_that_asks_too_much_is_told_to_slow_down",
        "s3_limits.py",
        start,
    );
}

/// A client that waits for `100 Continue` sends no body after an error: it must not use the connection again.
#[test]
fn an_error_before_the_body_ends_the_connection() {
    let front = Front::start(&["serve.token=of-clients"]);
    for (address, refusal) in [(&front.address, 403), (&front.http, 401)] {
        for (expect, closes) in [(Some(("expect", "100-continue")), true), (None, false)] {
            let headers: Vec<(&str, &str)> = expect.into_iter().collect();
            let mut client = Client::connect(address.parse().unwrap());
            let refused = client.send("PUT", "/objects/a", &headers, Some(b"bytes")).unwrap();
            assert_eq!(refused.status, refusal, "{refused:?}");
            assert_eq!(refused.header("connection") == Some("close"), closes, "{refused:?}");
        }
    }
}

/// botocore, up to version 1.40, takes the reply to an upload of nothing for that to its next request, and waits a minute for the rest.
#[test]
fn an_upload_of_nothing_that_waits_ends_the_connection() {
    let front = Front::start(&[]);
    for (headers, closes) in [(&[("expect", "100-continue")][..], true), (&[], false)] {
        let mut client = Client::connect(front.http.parse().unwrap());
        let stored = client.send("PUT", "/objects/nothing", headers, Some(b"")).unwrap();
        assert!((200..300).contains(&stored.status), "{stored:?}");
        assert_eq!(stored.header("connection") == Some("close"), closes, "{stored:?}");
    }
}
