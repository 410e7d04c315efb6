//! What an operator decides on single changes of a running server.

use std::net::SocketAddr;
use std::process::Command;

use serde_json::Value;

use crate::page::{QUICK, fill, get, loaded};
use crate::serve_client::{Client, start, until_or};

fn entries(address: SocketAddr) -> Vec<Value> {
    get(address, "/actions")["actions"].as_array().cloned().unwrap_or_default()
}

/// The newest entry of a status about another target than `but`.
fn newest(address: SocketAddr, status: &str, but: &str) -> Option<Value> {
    let mut all = entries(address).into_iter();
    all.find(|it| it["knob"] == "bounds" && it["status"] == status && it["target"] != but)
}

fn entry(address: SocketAddr, id: &Value) -> Value {
    entries(address).into_iter().find(|it| it["id"] == *id).unwrap()
}

/// Runs `concertina act`; returns what it prints, and its errors.
fn act(address: SocketAddr, verdict: &str, id: &str) -> (String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["act", verdict, id, "--wait", "200", "--server", &format!("http://{address}")]);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn post(address: SocketAddr, path: &str) -> (u16, String) {
    let reply = Client::connect(address).send("POST", path, &[], Some(b"")).unwrap();
    (reply.status, reply.text())
}

#[test]
fn an_operator_has_one_change_made_and_dismisses_another() {
    let folder = tempfile::tempdir().unwrap();
    let journal = format!("act.journal={}", folder.path().join("journal").display());
    let settings = [&QUICK[..], &["act.judged_after_s=0.5", &journal]].concat();
    let server = start(folder.path(), &settings);
    let address = server.address();
    fill(address);
    let (mut applied, mut dismissed) = (Value::Null, Value::Null);
    loaded(address, || {
        let told = || get(address, "/actions").to_string();
        // A queue of 1024 reads of 4 ms is four seconds, and the objective 20 ms; bounds are only advised.
        until_or("advice on two devices", told, || {
            applied = newest(address, "advised", "").unwrap_or_default();
            let target = applied["target"].as_str().unwrap_or_default();
            dismissed = newest(address, "advised", target).unwrap_or_default();
            // The second may be new since the first was looked for.
            applied.is_object() && dismissed.is_object()
        });
        let (out, errors) = act(address, "apply", &applied["id"].to_string());
        assert!(out.starts_with("made as entry "), "{out}{errors}");
        assert!(out.contains(applied["target"].as_str().unwrap()), "{out}");
        assert_eq!(entry(address, &applied["id"])["status"], "applied");
        let made = entries(address).into_iter().find(|it| it["approved"] == applied["id"]).unwrap();
        assert_eq!((&made["status"], &made["cause"]), (&"made".into(), &"operator".into()));
        // It was made: the last read that the queue admits waits as long as the change says.
        until_or("its effect", told, || entry(address, &made["id"])["realised"].is_number());
        let realised = entry(address, &made["id"])["realised"].as_f64().unwrap();
        let before = made["expected"]["before"].as_f64().unwrap();
        assert!(realised < before / 10.0, "{realised} s of {before} s");

        let (out, errors) = act(address, "dismiss", &dismissed["id"].to_string());
        assert!(out.starts_with("dismissed for an hour: "), "{out}{errors}");
        assert_eq!(entry(address, &dismissed["id"])["status"], "dismissed");
        refusals(address, &applied, &made);
    });
    server.stop();

    // The journal tells what was decided, to the next process too.
    let server = start(folder.path(), &settings);
    let address = server.address();
    assert_eq!(entry(address, &applied["id"])["status"], "applied");
    assert_eq!(entry(address, &dismissed["id"])["status"], "dismissed");
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["why", "--last", "256", "--server", &format!("http://{address}")]);
    let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
    assert!(text.contains("(made, by an operator)") && text.contains("dismissed by"), "{text}");
    server.stop();
}

/// What cannot be decided is refused with the reason.
fn refusals(address: SocketAddr, applied: &Value, made: &Value) {
    let path = |id: &Value, verdict: &str| format!("/admin/actions/{id}/{verdict}");
    for (path, status, part) in [
        (path(&applied["id"], "apply"), 409, "was decided on before"),
        (path(&made["id"], "dismiss"), 409, "there is nothing to decide"),
        (path(&999_999.into(), "apply"), 404, "no entry 999999"),
        ("/admin/actions/x/apply".to_owned(), 404, "POST /admin/actions/ID/apply"),
        (path(&applied["id"], "undo"), 404, "POST /admin/actions/ID/apply"),
    ] {
        let (replied, text) = post(address, &path);
        assert!(replied == status && text.contains(part), "{path}: {replied} {text}");
    }
    let (_, errors) = act(address, "apply", &applied["id"].to_string());
    assert!(errors.contains("was decided on before"), "{errors}");
    let mut client = Client::connect(address);
    assert_eq!(client.get(&path(&applied["id"], "apply")).status, 405);
    let foreign = [("origin", "https://evil.example")];
    let other = client.send("POST", &path(&applied["id"], "apply"), &foreign, Some(b"")).unwrap();
    assert_eq!(other.status, 403);
}

#[test]
fn decisions_need_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["serve.token=hush"]);
    assert_eq!(post(server.address(), "/admin/actions/1/apply").0, 401);
    let mut client = Client::connect(server.address());
    let token = [("authorization", "Bearer hush")];
    let path = "/admin/actions/1/apply";
    assert_eq!(client.send("POST", path, &token, Some(b"")).unwrap().status, 404);
    server.stop();
}
