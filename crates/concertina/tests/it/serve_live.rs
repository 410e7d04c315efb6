//! The live model of a running server: its figures, its journal, its page in a browser.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::devtools::Browser;
use crate::left_out::left_out;
use crate::serve_client::{Client, free, start, until};

/// A node with a disk of 2 ms and hardly any memory, whose model looks back over seconds.
const QUICK: [&str; 13] = [
    "node.memory_bytes=20kB",
    "device.0.service={ kind = \"exponential\", mean_ms = 2.0 }",
    "observe.window_s=0.1",
    "observe.objectives_ms=[20.0]",
    "model.objective_ms=20.0",
    "model.share=0.9",
    "model.window_s=4.0",
    "model.refit_s=0.5",
    "model.cost_max=1.0",
    "model.ahead_s=1.0",
    "model.scored_s=0.5",
    "model.error_points_max=40.0",
    "act.judged_after_s=0.5",
];

fn json(client: &mut Client, path: &str) -> Value {
    serde_json::from_slice(&client.get(path).body).unwrap()
}

/// Two clients that read at random until told to stop.
fn load(address: SocketAddr, stop: &AtomicBool) {
    std::thread::scope(|scope| {
        for seed in 0..2u64 {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                let mut state = seed + 1;
                while !stop.load(Ordering::Relaxed) {
                    state =
                        state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    assert_eq!(
                        client.get(&format!("/objects/k{}", (state >> 33) % 100)).status,
                        200
                    );
                    // The disk is busy half of the time.
                    std::thread::sleep(Duration::from_millis((state >> 40) % 12));
                }
            });
        }
    });
}

#[test]
fn a_server_predicts_itself_and_says_what_it_would_change() {
    let folder = tempfile::tempdir().unwrap();
    let journal = folder.path().join("journal");
    let mut settings = QUICK.map(str::to_owned).to_vec();
    settings.push(format!("act.journal={}", journal.display()));
    settings.push("act.bounds=auto".to_owned());
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = start(folder.path(), &settings);
    let address = server.address();
    let mut client = Client::connect(address);
    for key in 0..100 {
        assert_eq!(client.put(&format!("/objects/k{key}"), &[7; 4000]).status, 200);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(address, &stop));
        // Whatever fails below, the clients stop.
        let checked = std::panic::catch_unwind(|| while_loaded(address));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
    assert_eq!(client.get("/actions/hold").status, 405);
    assert_eq!(client.send("POST", "/actions/hold", &[], Some(b"")).unwrap().status, 200);
    let before = json(&mut client, "/actions");
    assert_eq!(before["held"], true);
    server.stop();

    // The journal goes on where it was, though its last line is torn.
    let text = std::fs::read_to_string(&journal).unwrap();
    assert!(text.lines().count() >= 2, "{text}");
    std::fs::write(&journal, format!("{text}{{\"entry\":{{\"id\"")).unwrap();
    let server = start(folder.path(), &settings);
    let mut client = Client::connect(server.address());
    let after = json(&mut client, "/actions");
    assert_eq!(after["held"], true, "a restart does not release what was held");
    // An action may have been entered between the reply and the stop.
    let ids = |value: &Value| -> Vec<u64> {
        value["actions"].as_array().unwrap().iter().map(|a| a["id"].as_u64().unwrap()).collect()
    };
    let (known, kept) = (ids(&before), ids(&after));
    assert!(known.iter().all(|id| kept.contains(id)), "{known:?} {kept:?}");
    assert_eq!(client.send("POST", "/actions/resume", &[], Some(b"")).unwrap().status, 200);
    assert_eq!(json(&mut client, "/actions")["held"], false);
    server.stop();
}

fn while_loaded(address: SocketAddr) {
    let mut client = Client::connect(address);
    // A fit that misses the present, as one may while the machine is busy, is not used.
    let mut shown = Value::Null;
    until("a fit is used, and three predictions were compared", || {
        shown = json(&mut client, "/model");
        let model = &shown["model"];
        model["method"] == "fitted" && model["errors"]["count"].as_u64() >= Some(3)
    });
    let model = &shown["model"];
    let device = model["stations"].as_array().unwrap().iter().find(|s| s["queue"] == "device/0");
    let service_ms = device.unwrap()["service_mean_s"].as_f64().unwrap() * 1e3;
    assert!(service_ms > 1.5, "{service_ms} ms by a disk that holds each read for 2 ms");
    assert_eq!(model["headroom"]["breaks_first"], "device/0");
    assert_eq!(model["loads"].as_array().unwrap().len(), 3);
    assert!(shown["cost_s"].as_f64().unwrap() > 0.0);
    // A bound of 1024 reads is two seconds, and the objective 20 ms: it is changed, and judged.
    until("the bound was changed and judged", || {
        let actions = json(&mut client, "/actions");
        actions["actions"].as_array().unwrap().iter().any(|a| a["realised"].is_number())
    });
    let actions = json(&mut client, "/actions");
    // The first; on a busy machine, whose reads take longer, others follow.
    let actions = actions["actions"].as_array().unwrap();
    let judged = actions.iter().filter(|a| a["realised"].is_number());
    let made = judged.min_by_key(|a| a["id"].as_u64()).unwrap();
    assert_eq!((&made["knob"], &made["target"]), (&"bounds".into(), &"device/0".into()));
    let (expected, realised) = (&made["expected"], made["realised"].as_f64().unwrap());
    assert!(realised < 0.1 * expected["before"].as_f64().unwrap(), "{made}");
    let metrics = client.get("/metrics").text();
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("concertina_actions_total{knob=\"bounds\"} "));
    let count = count.and_then(|count| count.parse::<f64>().ok());
    assert!(count.is_some_and(|count| count >= 1.0), "{metrics}");
    let told = |args: &[&str]| {
        let url = format!("http://{address}");
        let run = Command::new(env!("CARGO_BIN_EXE_concertina"))
            .args(args)
            .args(["--server", &url])
            .output()
            .unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        String::from_utf8(run.stdout).unwrap()
    };
    until("the status names what saturates first", || {
        told(&["status"]).contains("device/0 saturates first")
    });
    assert!(told(&["why", "device/"]).contains("because a read behind 1024 others"));
    browser(address);
}

/// A gateway's model is of all devices behind it, as the nodes tell of them.
#[test]
fn a_gateway_knows_the_headroom_of_its_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let members = [("a", free()), ("b", free())];
    let mut text = format!("[origin]\npath = \"{}/origin\"\n", folder.path().display());
    for (name, address) in members {
        text += &format!("[[member]]\nname = \"{name}\"\naddress = \"{address}\"\n");
    }
    let started = |name: Option<&str>, more: &[&str]| {
        let mut set: Vec<String> = QUICK.iter().chain(more).map(|&set| set.to_owned()).collect();
        set.extend(name.map(|name| format!("cluster.name={name}")));
        set.extend(
            name.map(|name| format!("device.0.path={}/device-{name}", folder.path().display())),
        );
        let config = configuration::Config::parse(&text, "test", &set).unwrap();
        serve::Server::start(config, None).unwrap()
    };
    let nodes = members.map(|(name, _)| started(Some(name), &["serve.role=node"]));
    let more = ["serve.role=gateway", "serve.listen=127.0.0.1:0", "gateway.concurrency=auto"];
    let gateway = started(None, &more);
    let address = gateway.address();
    let mut client = Client::connect(address);
    for key in 0..100 {
        assert_eq!(client.put(&format!("/objects/k{key}"), &[7; 4000]).status, 200);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| load(address, &stop));
        let checked = std::panic::catch_unwind(|| {
            let mut client = Client::connect(address);
            until("the gateway's model is fitted to the nodes' devices", || {
                let model = &json(&mut client, "/model")["model"];
                let queues = model["stations"].as_array().unwrap().iter();
                let of = |node: &str| {
                    queues.clone().any(|s| s["queue"] == format!("device/{node}/0").as_str())
                };
                let first = model["headroom"]["breaks_first"].as_str().unwrap_or("");
                model["method"] == "fitted" && of("a") && of("b") && first.starts_with("device/")
            });
        });
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = checked {
            std::panic::resume_unwind(panic);
        }
    });
    let status = json(&mut client, "/admin/status");
    assert_eq!(status["gateway"]["requests_bound"], 102, "128 less a fifth: nothing was learnt");
    gateway.stop();
    nodes.into_iter().for_each(serve::Server::stop);
}

/// Opens the page in a browser, which draws what the server says.
fn browser(address: SocketAddr) {
    let Some(mut browser) = Browser::start() else {
        return left_out("serve_live::browser", "chromium is not installed");
    };
    browser.open(&format!("http://{address}/"));
    browser.until(
        "the page names what saturates first",
        "document.body?.innerText.includes('saturates first')",
    );
    browser.until("the plots are drawn", "document.querySelectorAll('canvas').length >= 2");
    let text = browser.text();
    for part in ["device/0", "queue bound", "bulk device", "requests/s"] {
        assert!(text.contains(part), "{part} is not on the page: {text}");
    }
    assert_eq!(browser.errors, Vec::<String>::new());
}

/// Browsers ask a server for the icon that a page does not have.
#[test]
fn the_page_has_its_icon_in_its_text() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let page = Client::connect(server.address()).get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("img-src data:;"), "{policy}");
    assert!(page.text().contains("<link rel=\"icon\" href=\"data:"), "no icon");
    server.stop();
}

#[test]
fn the_page_keeps_to_itself() {
    let folder = tempfile::tempdir().unwrap();
    let open = start(folder.path(), &[]);
    let mut client = Client::connect(open.address());
    let page = client.get("/");
    assert_eq!((page.status, page.header("x-content-type-options")), (200, Some("nosniff")));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && policy.contains("frame-ancestors 'none'"));
    assert!(!policy.contains("unsafe"), "{policy}");
    for (method, path, status) in [
        ("PUT", "/", 405),
        ("POST", "/model", 405),
        ("PUT", "/what-if", 405),
        ("POST", "/history", 405),
        ("GET", "/page.js", 200),
    ] {
        assert_eq!(client.send(method, path, &[], Some(b"")).unwrap().status, status, "{path}");
    }
    let foreign = [("origin", "https://evil.example")];
    for (method, path) in [
        ("POST", "/actions/hold"),
        ("POST", "/what-if"),
        ("GET", "/model"),
        ("GET", "/history"),
        ("GET", "/actions"),
        ("GET", "/"),
    ] {
        let mut other = Client::connect(open.address());
        assert_eq!(other.send(method, path, &foreign, Some(b"")).unwrap().status, 403, "{path}");
    }
    assert_eq!(json(&mut client, "/actions")["held"], false);
    open.stop();

    // With a token the page comes without one, and its figures do not.
    let closed = start(&folder.path().join("other"), &["serve.token=hush"]);
    let mut client = Client::connect(closed.address());
    for (path, status) in
        [("/", 200), ("/page.js", 200), ("/page.css", 200), ("/model", 401), ("/actions", 401)]
    {
        let reply = client.get(path);
        assert_eq!(reply.status, status, "{path}");
        assert!(!reply.text().contains("hush"));
    }
    assert_eq!(client.send("POST", "/actions/hold", &[], Some(b"")).unwrap().status, 401);
    closed.stop();
}
