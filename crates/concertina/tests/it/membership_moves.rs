//! What moves when members do: a node that joins is warmed at the rate that is allowed, and one is replaced on another
//! machine. `concertina status` shows both. And what must not come together: a node that etcd numbered while it had lost the
//! others, and nodes that wait differently.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use serve::Server;

use crate::membership::{Etcd, World, json, members};
use crate::serve_client::{Client, Process, free, spawn, until, until_or};

fn world(more: &'static [&'static str]) -> Option<World> {
    let folder = tempfile::tempdir().unwrap();
    let etcd = Etcd::start(folder.path())?;
    Some(World::new(folder, etcd, more))
}

fn status(at: SocketAddr) -> String {
    let server = format!("http://{at}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    let run = command.args(["status", "--server", &server]).output().unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8_lossy(&run.stdout).into_owned()
}

fn live(at: SocketAddr, names: &[&str]) -> bool {
    let there = members(at).into_iter().filter(|(_, _, live)| *live);
    there.map(|(name, ..)| name).collect::<Vec<_>>() == names
}

/// The nodes `a` and `b`, which are members in this order, and a gateway.
fn two(world: &mut World) -> (Process, Process, Server) {
    let (a, b) = (world.node("a"), world.node("b"));
    let gateway = world.gateway();
    until("two members", || live(gateway.address(), &["a", "b"]));
    (a, b, gateway)
}

const OBJECTS: usize = 60;
const BYTES: usize = 64 << 10;
const RATE: f64 = 131072.0;

#[test]
fn a_node_that_joins_is_warmed_at_the_rate_that_is_allowed() {
    // A node that is suspected falsely would be warmed too.
    const MORE: [&str; 3] =
        ["cluster.warm_bytes=128KiB", "membership.suspect_s=10", "membership.lease_s=20"];
    let Some(mut world) = world(&MORE) else { return };
    let (a, b, gateway) = two(&mut world);
    let at = gateway.address();
    let mut client = Client::connect(at);
    let body = vec![7; BYTES];
    for object in 0..OBJECTS {
        let path = format!("/objects/key-{object}");
        until("the object is written", || client.put(&path, &body).status == 200);
        (0..3).for_each(|_| assert_eq!(client.get(&path).status, 200));
    }
    let begun = Instant::now();
    let c = world.node("c");
    let warmed = |name: &str| -> u64 {
        let said = json(at, "/admin/members");
        let sum = |one: &Value| one["warmed"][name].as_u64().unwrap_or(0);
        said.as_array().unwrap().iter().map(sum).sum()
    };
    let mut most = 0.0f64;
    // Of 60 keys with two of three nodes each, about 40 have the new node.
    let done = || {
        let bytes = warmed("bytes") as f64;
        let allowed = 2.0 * RATE * (begun.elapsed().as_secs_f64() + 1.0);
        assert!(bytes <= allowed, "{bytes} of {allowed} bytes");
        most = most.max(bytes);
        most >= 20.0 * BYTES as f64
    };
    until_or("the new node is warmed", || json(at, "/admin/members").to_string(), done);
    // It has copies of objects that nobody asked it for.
    let of_c = world.addresses["c"];
    let contents = || json(of_c, "/admin/status")["contents"].clone();
    until_or(
        "copies in the new node",
        || contents().to_string(),
        || {
            let count = |name: &str| contents()[name].as_u64().unwrap_or(0);
            count("memory_objects") + count("device_objects") >= 20
        },
    );
    let version = env!("CARGO_PKG_VERSION");
    let text = status(at);
    let lines: Vec<&str> = text.lines().collect();
    for name in ["a", "b", "c"] {
        let is_of = |line: &&str| line.trim_start().starts_with(&format!("{name} at "));
        let line = lines.iter().find(|line| is_of(line)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.contains(&format!("version {version}")), "{text}");
    }
    assert!(text.contains("offered to nodes that were new to them"), "{text}");
    // A node shows the same of all of them, and says why where it knows nothing.
    a.signal("-STOP");
    let said = json(of_c, "/admin/members");
    a.signal("-CONT");
    let error = said[0]["error"].as_str().unwrap_or_else(|| panic!("{said}"));
    assert!(error.contains("does not answer within 1 s"), "{said}");
    assert_eq!(said[2]["version"], version, "{said}");
    assert_eq!(said[2]["epoch"], json(of_c, "/admin/status")["cluster"]["epoch"], "{said}");
    drop((a, b, c));
    gateway.stop();
}

#[test]
fn a_member_is_replaced_on_another_machine_when_its_lease_has_ended() {
    const MORE: [&str; 1] = ["membership.lease_s=2"];
    let Some(mut world) = world(&MORE) else { return };
    let (a, b, gateway) = two(&mut world);
    let at = gateway.address();
    let mut client = Client::connect(at);
    until("a write", || client.put("/objects/before", b"before").status == 200);
    // The machine is gone for good, with its device.
    let old = world.addresses["b"];
    drop(b);
    until("the loss", || live(at, &["a"]));
    std::fs::remove_dir_all(world.folder.path().join("device-b")).unwrap();
    let new = free();
    assert_ne!(new, old);
    world.addresses.insert("b", new);
    let again = world.node("b");
    until_or(
        "the member is replaced",
        || json(at, "/admin/status").to_string(),
        || live(at, &["a", "b"]) && members(at).len() == 2,
    );
    let shown = json(at, "/admin/status")["members"][1]["address"].clone();
    assert_eq!(shown, new.to_string());
    assert!(status(at).contains(&format!("b at {new}: live")));
    // It orders writes of its keys, and they are read back through it.
    for key in 0..16 {
        let (path, value) = (format!("/objects/after-{key}"), key.to_string());
        until("a write", || client.put(&path, value.as_bytes()).status == 200);
        assert_eq!(client.get(&path).text(), value);
    }
    assert_eq!(client.get("/objects/before").text(), "before");
    let contents = || json(new, "/admin/status")["contents"].clone();
    let holds = |name: &str| contents()[name].as_u64().unwrap_or(0);
    assert!(holds("memory_objects") + holds("device_objects") > 0, "{}", contents());
    drop((a, again));
    gateway.stop();
}

/// etcd comes back empty, and a node that starts enters an empty list before those that know the list put it back: it has
/// another's number, and ends.
#[test]
fn a_node_that_etcd_numbered_while_it_had_lost_the_others_ends() {
    const MORE: [&str; 1] = ["membership.start_s=60"];
    let Some(mut world) = world(&MORE) else { return };
    let (a, b, gateway) = two(&mut world);
    let at = gateway.address();
    let mut client = Client::connect(at);
    until("a write", || client.put("/objects/a", b"before").status == 200);
    [&a, &b].iter().for_each(|node| node.signal("-STOP"));
    world.etcd.kill();
    world.etcd.forget();
    world.etcd.run();
    let mut c = world.node("c");
    let of_c = world.addresses["c"];
    until("the list of the new one", || {
        let listed = json(of_c, "/admin/status")["cluster"]["members"].clone();
        listed.as_array().is_some_and(|all| all.len() == 1 && all[0]["live"] == true)
    });
    [&a, &b].iter().for_each(|node| node.signal("-CONT"));
    let mut ended = None;
    until("the end of the one with another's number", || {
        ended = c.child.try_wait().unwrap();
        ended.is_some()
    });
    assert_eq!(ended.and_then(|ended| ended.code()), Some(1), "{ended:?}");
    until_or(
        "the list that came back",
        || json(at, "/admin/status").to_string(),
        || live(at, &["a", "b"]),
    );
    assert_eq!(client.get("/objects/a").text(), "before");
    // Started again, it has a number of its own.
    let c = world.node("c");
    until("three members", || live(at, &["a", "b", "c"]));
    for key in 0..12 {
        let path = format!("/objects/key-{key}");
        until("a write", || client.put(&path, b"after").status == 200);
        assert_eq!(client.get(&path).text(), "after");
    }
    drop((a, b, c));
    gateway.stop();
}

/// After a failure of all machines their addresses may have changed hands.
#[test]
fn nodes_whose_addresses_changed_hands_start_again() {
    let Some(mut world) = world(&["membership.start_s=60"]) else { return };
    let (a, b, gateway) = two(&mut world);
    let at = gateway.address();
    drop((a, b));
    let (of_a, of_b) = (world.addresses["a"], world.addresses["b"]);
    world.addresses.extend([("a", of_b), ("b", of_a)]);
    // Neither is ready before both are: they start at the same time.
    let (a, b) = std::thread::scope(|scope| {
        let folder = world.folder.path();
        let start = |name: &str, address: SocketAddr| {
            let set = world.of_node(name, address);
            move || {
                let set: Vec<&str> = set.iter().map(String::as_str).collect();
                spawn(folder, &set, "")
            }
        };
        let (a, b) = (scope.spawn(start("a", of_b)), scope.spawn(start("b", of_a)));
        (a.join().unwrap(), b.join().unwrap())
    });
    until_or(
        "both again",
        || json(at, "/admin/status").to_string(),
        || live(at, &["a", "b"]) && status(at).contains(&format!("a at {of_b}: live")),
    );
    drop((a, b));
    gateway.stop();
}

#[test]
fn a_node_that_would_act_for_longer_than_others_wait_does_not_start() {
    let Some(mut world) = world(&[]) else { return };
    let (mut a, other) = (world.node("a"), world.node("c"));
    let gateway = world.gateway();
    let at = gateway.address();
    let mut set = world.of_node("b", free());
    set.extend([
        format!("origin.path={}/origin", world.folder.path().display()),
        "membership.valid_s=2".to_owned(),
        "membership.start_s=10".to_owned(),
    ]);
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.arg("serve").args(set.iter().flat_map(|set| ["--set", set]));
    let refused = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // While it waits for the others to change, they are restarted as ever.
    std::thread::sleep(Duration::from_secs(1));
    a.signal("-TERM");
    assert!(a.child.wait().unwrap().success());
    a = world.node("a");
    until("the member that was restarted", || live(at, &["a", "c"]));
    let run = refused.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{text}");
    assert!(text.contains("membership.valid_s is 2 here and 0.5 at member"), "{text}");
    drop((a, other));
    gateway.stop();
}

/// The order that was given while etcd was away was given up by whoever gave it, and a later one takes it back.
#[test]
fn an_order_that_nobody_waits_for_any_more_is_not_carried_out() {
    let Some(mut world) = world(&[]) else { return };
    let (_a, _b, gateway) = two(&mut world);
    let at = gateway.address();
    let order = |more: &[&str]| {
        let server = format!("http://{at}");
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(["drain", "b"]).args(more).args(["--server", &server]).output().unwrap()
    };
    let epoch = || json(at, "/admin/status")["epoch"].clone();
    world.etcd.kill();
    let before = epoch();
    let start = Instant::now();
    let given_up = order(&[]);
    let told = String::from_utf8_lossy(&given_up.stderr).into_owned();
    assert!(!given_up.status.success() && told.contains("before you try again"), "{told}");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
    world.etcd.run();
    until("etcd confirms again", || json(at, "/readyz")["degraded"].is_null());
    // It is carried out in its turn, after any that went before.
    until("a later order", || order(&["--resume"]).status.success());
    assert_eq!(epoch(), before, "nothing was drained meanwhile");
    assert!(members(at).iter().all(|(_, state, _)| state == "in"));
    gateway.stop();
}
