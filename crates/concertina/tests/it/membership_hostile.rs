//! Hostile values in a real etcd while a cluster serves: each is refused by name and changes nothing.

use std::net::SocketAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::membership::{Etcd, World, json as page};
use crate::serve_client::{Client, until_or};

/// Nobody is suspected because a loaded machine answers late: the list's epoch would pass the hostile one.
const CALM: [&str; 3] =
    ["membership.valid_s=2", "membership.suspect_s=10", "membership.lease_s=20"];

/// A call of etcd's JSON gateway.
fn call(etcd: SocketAddr, path: &str, request: &Value) -> Value {
    let body = request.to_string();
    let reply = Client::connect(etcd).send("POST", path, &[], Some(body.as_bytes())).unwrap();
    assert_eq!(reply.status, 200, "{path} {body}: {}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

pub fn put(etcd: SocketAddr, key: &str, value: &[u8]) {
    let (key, value) = (BASE64_STANDARD.encode(key), BASE64_STANDARD.encode(value));
    call(etcd, "/v3/kv/put", &json!({ "key": key, "value": value }));
}

pub fn delete(etcd: SocketAddr, key: &str) {
    call(etcd, "/v3/kv/deleterange", &json!({ "key": BASE64_STANDARD.encode(key) }));
}

/// The value of a key, if it is there.
pub fn etcd_value(etcd: SocketAddr, key: &str) -> Option<Value> {
    let reply = call(etcd, "/v3/kv/range", &json!({ "key": BASE64_STANDARD.encode(key) }));
    let value = BASE64_STANDARD.decode(reply["kvs"][0]["value"].as_str()?).unwrap();
    Some(serde_json::from_slice(&value).unwrap())
}

pub fn get(etcd: SocketAddr, key: &str) -> Value {
    etcd_value(etcd, key).unwrap_or_else(|| panic!("no {key}"))
}

/// Values of the list's key that are to be refused, with what is wrong with each.
fn hostile_lists(good: &Value) -> Vec<(&'static str, Vec<u8>)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        // Newer than what is known: it would count.
        value["epoch"] = json!(good["epoch"].as_u64().unwrap() + 1);
        change(&mut value);
        value.to_string().into_bytes()
    };
    let many: Vec<Value> = (0..1025)
        .map(|n| {
            let mut one = good["members"][0].clone();
            one["name"] = json!(format!("n{n}"));
            one["address"] = json!(format!("127.0.0.1:{}", n + 1));
            one
        })
        .collect();
    vec![
        ("nothing", Vec::new()),
        ("no JSON", b"\xff\xfe{{{".to_vec()),
        ("deep JSON", "[".repeat(100_000).into_bytes()),
        ("half a list", with(&|_| ())[..40].to_vec()),
        ("a list without members", with(&|v| v["members"] = json!([]))),
        ("too many members", with(&|v| v["members"] = json!(many))),
        ("another format", with(&|v| v["format"] = json!(7))),
        ("no replicas", with(&|v| v["replicas"] = json!(0))),
        ("an epoch that cannot be followed", with(&|v| v["epoch"] = json!(u64::MAX))),
        ("a name with a line end", with(&|v| v["members"][0]["name"] = json!("a\r\nx: y"))),
        ("a name that is a path", with(&|v| v["members"][0]["name"] = json!("../a"))),
        ("one name twice", with(&|v| v["members"][0]["name"] = json!("b"))),
        (
            "one address twice",
            with(&|v| v["members"][0]["address"] = v["members"][1]["address"].clone()),
        ),
        ("an address of nobody", with(&|v| v["members"][0]["address"] = json!("0.0.0.0:1"))),
        ("no weight", with(&|v| v["members"][0]["weight"] = json!(0))),
        ("a weight without end", with(&|v| v["members"][0]["weight"] = json!(1e300))),
    ]
}

#[test]
fn hostile_values_in_etcd_end_nothing_and_move_no_key() {
    const PREFIX: &str = "/concertina";
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let at = etcd.client;
    let mut world = World::new(folder, etcd, &CALM);
    let mut nodes = [world.node("a"), world.node("b")];
    let server = world.gateway();
    let gateway = server.address();
    let mut client = Client::connect(gateway);
    let status = || page(gateway, "/admin/status");
    let told = || status().to_string();
    until_or("the first write", told, || client.put("/objects/kept", b"kept").status == 200);
    let view = format!("{PREFIX}/view");
    let good = get(at, &view);
    for (what, value) in hostile_lists(&good) {
        put(at, &view, &value);
        until_or(what, told, || status()["problem"].is_string());
        // Reads go on with the members last known.
        let reply = client.get("/objects/kept");
        assert_eq!((reply.status, reply.text()), (200, "kept".to_owned()), "{what}");
        put(at, &view, good.to_string().as_bytes());
        until_or("the list is back", told, || status()["problem"].is_null());
    }
    // Unknown keys, and known keys whose values are malformed, are ignored.
    for (key, value) in [
        ("live/a\r\nb", "{}"),
        ("live/../view", "{}"),
        ("live/c", "{\"instance\":\"1\",\"address\":\"nowhere\"}"),
        ("suspect/a", "1"),
        ("suspect/a/../b", "1"),
        ("suspect/a/nobody", "1"),
        ("view/x", "1"),
        ("\u{0}", "1"),
    ] {
        put(at, &format!("{PREFIX}/{key}"), value.as_bytes());
    }
    let writes = || client.put("/objects/kept", b"again").status == 200;
    until_or("writes go on", told, writes);
    assert_eq!(Client::connect(gateway).get("/objects/kept").text(), "again");
    for node in &mut nodes {
        assert!(node.child.try_wait().unwrap().is_none(), "a node has ended");
    }
    server.stop();
}
