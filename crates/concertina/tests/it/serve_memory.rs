//! One memory budget for objects and layers: a real node whose load moves from the one to the other.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use crate::data::{answer, run};
use crate::serve_client::{Client, bytes, start, until_or};

const BUDGET: u64 = 4 << 20;
const LEAST: u64 = 512 << 10;

/// A slow disk, and a manager that decides quickly.
const QUICK: [&str; 9] = [
    "node.memory_bytes=512KiB",
    "node.memory_shared_bytes=4MiB",
    "node.memory_shared_interval_s=0.05",
    "device.0.service={ kind = \"exponential\", mean_ms = 1.0 }",
    "datasets.refresh_s=0.1",
    "datasets.layers_interval_s=0.05",
    "datasets.layers_high=2.0",
    "act.judged_after_s=0.5",
    "act.per_minute=600",
];

fn json(client: &mut Client, path: &str) -> Value {
    let reply = client.get(path);
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// What clients ask for: objects, searches, or nothing.
const OBJECTS: u64 = 1;
const SEARCHES: u64 = 2;

/// Asks for what `what` says until told to stop.
fn ask(address: SocketAddr, seed: u64, what: &AtomicU64, stop: &AtomicBool) {
    let mut client = Client::connect(address);
    let mut state = seed;
    while !stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let random = state >> 33;
        let path = match what.load(Ordering::Relaxed) {
            OBJECTS => format!("/objects/k{}", random % 80),
            // A few thousand lines each.
            SEARCHES => format!("/datasets/lines/records?query={:x}&limit=300", random % 256),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(5));
                continue;
            }
        };
        assert_eq!(client.get(&path).status, 200, "{path}");
    }
}

/// What the status says of the budget, which is never exceeded.
fn division(client: &mut Client) -> Value {
    let memory = json(client, "/admin/status")["memory"].take();
    let of = |name: &str| memory[name].as_u64().unwrap();
    assert_eq!(of("bytes_max"), BUDGET);
    assert!(of("objects_bytes_max") + of("layers_bytes_max") <= BUDGET, "{memory}");
    assert!(of("objects_bytes") + of("layers_bytes") <= BUDGET, "{memory}");
    assert!(of("objects_bytes_max") >= LEAST, "{memory}");
    memory
}

/// Waits until both limits are as wanted.
fn wait(
    client: &mut Client,
    what: &str,
    mut holds: impl FnMut(&mut Client, u64, u64) -> bool,
) -> (u64, u64) {
    let last = std::cell::RefCell::new(Value::Null);
    let mut found = (0, 0);
    until_or(
        what,
        || last.borrow().to_string(),
        || {
            let memory = division(client);
            let of = |name: &str| memory[name].as_u64().unwrap();
            found = (of("objects_bytes_max"), of("layers_bytes"));
            *last.borrow_mut() = memory;
            holds(client, found.0, found.1)
        },
    );
    found
}

/// The journal's entries for moves of memory.
fn moves_of_memory(client: &mut Client) -> Vec<Value> {
    let mut actions = json(client, "/actions")["actions"].take();
    let actions = actions.as_array_mut().unwrap();
    actions.retain(|entry| entry["knob"] == "memory");
    std::mem::take(actions)
}

/// Whether the journal says that objects gave memory up, and `why` as well: to layers, or, where these ask for it late, to nobody,
/// from whom layers take it. The journal keeps the last actions only, and on a busy machine layers grow long after they may, so
/// it is asked all the time.
fn journal_tells_of_the_move(client: &mut Client, address: SocketAddr) -> bool {
    let is_from_objects =
        |entry: &Value| entry["change"].as_str().unwrap().contains("from objects");
    if !moves_of_memory(client).iter().any(is_from_objects) {
        return false;
    }
    let why = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["why", "memory", "--server", &format!("http://{address}")])
        .output()
        .unwrap();
    let why = String::from_utf8_lossy(&why.stdout).into_owned();
    why.contains("from objects") && why.contains("ms of service")
}

fn while_loaded(address: SocketAddr, what: &AtomicU64) {
    let mut client = Client::connect(address);
    what.store(OBJECTS, Ordering::Relaxed);
    let (objects, _) = wait(&mut client, "objects get memory", |_, objects, _| objects > 3 << 20);
    what.store(SEARCHES, Ordering::Relaxed);
    let lacks = BUDGET - objects;
    let mut told = false;
    let what_is_missing = "layers get what objects have, and the journal tells of it";
    let (less, layers) = wait(&mut client, what_is_missing, |client, less, layers| {
        told = told || journal_tells_of_the_move(client, address);
        told && less < objects && layers > lacks
    });
    assert!(less + layers <= BUDGET && layers > 0);
    what.store(OBJECTS, Ordering::Relaxed);
    wait(&mut client, "objects get it back, as layers fold", |_, objects, layers| {
        layers == 0 && objects > 3 << 20
    });
}

#[test]
fn memory_follows_the_load_between_objects_and_a_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let copies = format!("datasets.path={}/copies", folder.display());
    let server = start(folder, &[&QUICK[..], &[&copies]].concat());
    let (address, url) = (server.address(), &format!("http://{}", server.address()));
    let hex = |byte: &u8| format!("{byte:02x}");
    let lines: String = bytes(5, 1_000_000)
        .chunks(40)
        .fold(String::new(), |text, line| text + &line.iter().map(hex).collect::<String>() + "\n");
    let imported = run(folder, &["import", "-", "--name", "lines", "--format", "lines"], &lines);
    assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    answer(folder, &["push", "lines", "--server", url]);
    let mut client = Client::connect(address);
    for key in 0..80 {
        let put = client.put(&format!("/objects/k{key}"), &vec![key; 40_000]);
        assert_eq!(put.status, 200);
    }
    let (what, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 1..=6 {
            let (what, stop) = (&what, &stop);
            scope.spawn(move || ask(address, seed, what, stop));
        }
        // Whatever fails below, the clients stop.
        let checked = std::panic::catch_unwind(|| while_loaded(address, &what));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
    let moves = moves_of_memory(&mut client);
    assert!(moves.iter().all(|of| of["status"] == "made"), "{moves:?}");
    assert!(moves.iter().any(|of| of["realised"].is_number()), "{moves:?}");
    let metrics = client.get("/metrics").text();
    for of in ["objects", "layers", "nobody"] {
        assert!(metrics.contains(&format!("concertina_memory_limit_bytes{{of=\"{of}\"}}")), "{of}");
    }
    server.stop();
}

/// However little address space there is, a server starts or says what it lacks, and neither panics nor aborts.
#[test]
fn a_server_with_little_address_space_starts_or_says_what_it_lacks() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    let proxy = "--set serve.role=proxy --set memcached.listen=127.0.0.1:0 --set pool.0={servers=[\"127.0.0.1:7\"]}";
    for (kib, more, starts) in [
        (1_000_000, "", true),
        (1_000_000, proxy, true),
        (400_000, "--set serve.threads=32", false),
        (150_000, "", false),
        (80_000, "", false),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let program = env!("CARGO_BIN_EXE_concertina");
        let line = "ulimit -v \"$0\"; exec \"$@\"";
        let mut child = Command::new("sh")
            .args(["-c", line, &kib.to_string(), program, "serve", "--json"])
            .args(["--set", "serve.listen=127.0.0.1:0"])
            .args(more.split_whitespace())
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let started = first.contains("address");
        child.kill().unwrap();
        let mut told = String::new();
        child.stderr.take().unwrap().read_to_string(&mut told).unwrap();
        child.wait().unwrap();
        assert!(started || !starts, "{kib} KiB, {more:?}: {told}");
        assert!(started || told.contains("not enough address space"), "{kib} KiB: {told}");
        assert!(!told.contains("panicked") && !told.contains("memory allocation"), "{kib}: {told}");
    }
}
