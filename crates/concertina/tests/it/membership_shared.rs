//! What the processes of a cluster share through a real etcd: weights that move keys while clients write and read, settings
//! that count from the next start on, and values that are refused while the last good one stays.

use std::net::SocketAddr;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::membership::{Etcd, History, Stopped, World, clients, json as page, members};
use crate::membership_hostile::{delete, etcd_value, get, put};
use crate::serve_client::{Client, spawn, until, until_or};

const KEY: &str = "/concertina/config";

/// Nobody is suspected because a loaded machine answers late.
const CALM: [&str; 4] =
    ["model.live=false", "membership.valid_s=1", "membership.suspect_s=4", "membership.lease_s=8"];

fn cluster(at: SocketAddr, args: &[&str]) -> Output {
    let server = format!("http://{at}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.arg("cluster").args(args).args(["--server", &server]).output().unwrap()
}

/// What a command prints that must succeed.
fn stdout_of(at: SocketAddr, args: &[&str]) -> String {
    let Output { status, stdout, stderr } = cluster(at, args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(status.success(), "{args:?}: {}", text(&stderr));
    text(&stdout)
}

/// The share of the keys and the weight of a member, as a process has them.
fn member(at: SocketAddr, name: &str) -> (f64, f64) {
    let status = page(at, "/admin/status");
    let members = status["members"].as_array().unwrap();
    let it = members.iter().find(|member| member["name"] == name).unwrap();
    (it["share"].as_f64().unwrap(), it["weight"].as_f64().unwrap())
}

fn metric(at: SocketAddr, name: &str) -> f64 {
    let text = Client::connect(at).get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

#[test]
fn weights_move_keys_while_clients_write_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let mut world = World::new(folder, etcd, &CALM);
    let nodes = [world.node("a"), world.node("b"), world.node("c")];
    let gateway = world.gateway();
    let at = gateway.address();
    until("three members", || members(at).iter().filter(|(_, _, live)| *live).count() == 3);
    let history = Arc::new(History::default());
    let _stopped = Stopped(history.clone());
    let clients = clients(&history, at);
    let all_written = |what: &str| history.all_written(what, at);
    all_written("the first writes");
    assert!((member(at, "c").0 - 1.0 / 3.0).abs() < 0.01);

    // One weight, then several at once, then none: each process has the same shares.
    for (args, weight, share) in [
        (vec!["set", "weight.c=0.25"], 0.25, 0.25 / 2.25),
        (vec!["set", "weight.c=4", "weight.a=2"], 4.0, 4.0 / 7.0),
        (vec!["unset", "weight.c", "weight.a"], 1.0, 1.0 / 3.0),
    ] {
        let text = stdout_of(at, &args);
        assert!(text.contains("of the cluster's configuration is written"), "{text}");
        until(&format!("{args:?}"), || {
            let (has, weighs) = member(at, "c");
            weighs == weight && (has - share).abs() < 0.01
        });
        all_written(&format!("writes after {args:?}"));
        let seen = page(nodes[2].address, "/admin/status");
        let shared = &seen["cluster"]["configuration"];
        until("the node's version", || shared["version"].as_u64().unwrap() > 0);
    }
    assert!(stdout_of(at, &["get"]).starts_with("# version 3"));

    // A member that comes back has the weight that is shared, not its own.
    stdout_of(at, &["set", "weight.b=0.5"]);
    let [a, b, c] = nodes;
    drop(b);
    let b = world.node("b");
    let status = || page(at, "/admin/status").to_string();
    let back = || members(at)[1] == ("b".to_owned(), "in".to_owned(), true);
    until_or("the member to come back", status, back);
    assert_eq!(member(at, "b").1, 0.5);
    all_written("writes after a return");

    history.stop.store(true, Ordering::Relaxed);
    clients.into_iter().for_each(|client| client.join().unwrap());
    history.is_right();
    drop((a, b, c));
    gateway.stop();
}

/// A client's mistakes are refused before anything is written.
fn mistakes_are_refused(at: SocketAddr) {
    for (args, says) in [
        (["set", "weight.a=-1"], "above 0"),
        (["set", "weight.nobody=2"], "no member \"nobody\""),
        (["set", "serve.listen=0.0.0.0:1"], "cannot be shared"),
        (["set", "gateway.hedge_share=7"], "gateway.hedge_share"),
        (["set", "gateway.hedge_shore=0.5"], "did you mean"),
        (["unset", "weight.a"], "is not shared"),
    ] {
        let Output { status, stderr, .. } = cluster(at, &args);
        let text = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && text.contains(says), "{args:?}: {text}");
    }
    let body = json!({ "format": 1, "version": 7 }).to_string();
    let reply = Client::connect(at).send("PUT", "/admin/cluster", &[], Some(body.as_bytes()));
    let reply = reply.unwrap();
    assert_eq!(reply.status, 409, "{}", reply.text());
}

/// Values of the configuration's key that are to be refused, with what the refusal says.
fn invalid_configurations(good: &Value) -> Vec<(&'static str, Vec<u8>)> {
    let with = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        value["version"] = json!(good["version"].as_u64().unwrap() + 1);
        change(&mut value);
        value.to_string().into_bytes()
    };
    vec![
        ("malformed", Vec::new()),
        ("malformed", b"\xff\xfe{{{".to_vec()),
        ("malformed", "[".repeat(100_000).into_bytes()),
        ("malformed", with(&|v| v["more"] = json!(1))),
        ("format is 2", with(&|v| v["format"] = json!(2))),
        ("out of range", with(&|v| v["version"] = json!(u64::MAX))),
        // The same version with other content.
        ("its version is", {
            let mut other = good.clone();
            other["weights"]["b"] = json!(3);
            other.to_string().into_bytes()
        }),
        ("above 0", with(&|v| v["weights"]["b"] = json!(0))),
        ("at most 1e9", with(&|v| v["weights"]["b"] = json!(1e300))),
        ("not a member's name", with(&|v| v["weights"]["a\r\nx: y"] = json!(1))),
        ("cannot be shared", with(&|v| v["settings"]["cluster"]["token"] = json!("x"))),
        ("gateway.hedge_share", with(&|v| v["settings"]["gateway"]["hedge_share"] = json!(9))),
        ("more than", vec![b' '; 200 << 10]),
        ("more than", vec![b' '; 1 << 20]),
    ]
}

#[test]
fn what_is_wrong_is_refused_by_name_and_the_last_good_version_stays() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let etcd_at = etcd.client;
    let mut world = World::new(folder, etcd, &CALM);
    let nodes = [world.node("a"), world.node("b")];
    let gateway = world.gateway();
    let at = gateway.address();
    until("two members", || members(at).iter().filter(|(_, _, live)| *live).count() == 2);

    mistakes_are_refused(at);
    let shared = |at: SocketAddr| page(at, "/admin/cluster");
    assert_eq!(shared(at)["version"], 0);

    // Settings count from the next start on.
    let text = stdout_of(at, &["set", "weight.b=0.5", "gateway.hedge_share=0.125"]);
    assert!(text.contains("next start on: gateway.hedge_share"), "{text}");
    until("the weight", || {
        let (share, weight) = member(at, "b");
        weight == 0.5 && (share - 1.0 / 3.0).abs() < 0.01
    });
    assert_eq!(shared(at)["at_next_start"], json!(["gateway.hedge_share"]));
    let later = world.gateway();
    let config = page(later.address(), "/admin/status")["config"]["gateway"].clone();
    assert_eq!(config["hedge_share"], 0.125);
    assert_eq!(shared(later.address())["at_next_start"], Value::Null);

    let good = get(etcd_at, KEY);
    let share = member(at, "b").0;
    for (what, value) in invalid_configurations(&good) {
        put(etcd_at, KEY, &value);
        for at in [at, later.address()] {
            let refused = || shared(at)["refused"].clone();
            let said = || refused().as_str().is_some_and(|why| why.contains(what));
            until_or(what, || refused().to_string(), said);
            assert_eq!(shared(at)["version"], good["version"], "{what}");
            assert_eq!(metric(at, "concertina_cluster_config_refused"), 1.0, "{what}");
        }
        assert_eq!(member(at, "b"), (share, 0.5), "{what}");
        let status = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args(["status", "--server", &format!("http://{at}")])
            .output()
            .unwrap();
        let status = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.contains("as the configuration is refused"), "{what}: {status}");
        put(etcd_at, KEY, good.to_string().as_bytes());
        until("the good version", || shared(at)["refused"].is_null());
    }
    assert!(metric(at, "concertina_cluster_config_refusals_total") >= 14.0);
    assert_eq!(metric(nodes[0].address, "concertina_cluster_config_version"), 1.0);

    // One that is gone, or older, is put back by the nodes.
    delete(etcd_at, KEY);
    until("what was gone", || etcd_value(etcd_at, KEY).as_ref() == Some(&good));
    until("no refusal", || shared(at)["refused"].is_null());
    assert_eq!(member(at, "b").1, 0.5);
    let path = world.folder.path().join("shared.toml");
    std::fs::write(&path, "[weights]\na = 2\n").unwrap();
    stdout_of(at, &["apply", path.to_str().unwrap()]);
    until("what was applied", || member(at, "a").1 == 2.0 && member(at, "b").1 == 1.0);
    put(etcd_at, KEY, good.to_string().as_bytes());
    until("the newer version", || get(etcd_at, KEY)["version"] == 2);
    later.stop();
    gateway.stop();
    drop(nodes);
}

#[test]
fn a_proxy_has_its_pools_from_etcd() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let endpoints = format!("membership.endpoints=[\"http://{}\"]", etcd.client);
    let proxy = |more: &[&str]| {
        let mut set = vec![
            "serve.role=proxy",
            "membership.kind=etcd",
            endpoints.as_str(),
            "memcached.listen=127.0.0.1:0",
        ];
        set.extend(more);
        spawn(folder.path(), &set, "")
    };
    let server = crate::serve_client::free();
    let own = proxy(&["pool.0.servers=[\"127.0.0.1:1\"]"]);
    let text = stdout_of(own.address, &["set", &format!("pool=[{{servers = [\"{server}\"]}}]")]);
    assert!(text.contains("next start on: pool"), "{text}");
    let pools = |at| page(at, "/admin/status")["memcached"]["servers"].clone();
    assert_eq!(pools(own.address)[0]["name"], "127.0.0.1:1");
    // Neither has pools of its own now, nor needs any.
    let other = proxy(&[]);
    assert_eq!(pools(other.address)[0]["name"], server.to_string());
    assert_eq!(metric(other.address, "concertina_cluster_config_version"), 1.0);
}

#[test]
fn a_slow_members_weight_is_lowered_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Some(etcd) = Etcd::start(folder.path()) else { return };
    let more = &[
        "observe.window_s=0.1",
        "act.weights=auto",
        "act.weights_every_s=1",
        "node.memory_bytes=0",
        "gateway.spread=primary",
        "gateway.hedge_share=0",
        "membership.valid_s=1",
        "membership.suspect_s=4",
        "membership.lease_s=8",
    ];
    let mut world = World::new(folder, etcd, more);
    let device = |ms| format!("device.0.service={{kind=\"exponential\",mean_ms={ms}}}");
    let nodes = [
        world.node_with("a", &[&device(8)]),
        world.node_with("b", &[&device(8)]),
        world.node_with("c", &[&device(40)]),
    ];
    let gateway = world.gateway();
    let at = gateway.address();
    until("three members", || members(at).iter().filter(|(_, _, live)| *live).count() == 3);
    let mut client = Client::connect(at);
    for key in 0..60 {
        let put = || client.put(&format!("/objects/{key}"), &[7; 100]).status == 200;
        until("the objects", put);
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let stop = &stop;
            scope.spawn(move || {
                let mut client = Client::connect(at);
                for turn in reader.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    client.get(&format!("/objects/{}", turn * 7 % 60));
                }
            });
        }
        let lowered = || {
            let weight = member(at, "c").1;
            (0.3..0.95).contains(&weight)
        };
        let why = || format!("{} {}", page(at, "/admin/status"), page(at, "/actions"));
        let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until_or("another weight", why, lowered);
        }));
        stop.store(true, Ordering::Relaxed);
        waited.unwrap();
    });
    let text = stdout_of(at, &["get"]);
    assert!(text.contains("[weights]\nc = 0."), "{text}");
    gateway.stop();
    drop(nodes);
}
