//! Hot and bulk devices of a real server: what is read again moves, a write voids both copies, and
//! a device that fails is taken out.

use serde_json::Value;
use serve::Server;

use crate::serve_client::{Client, bytes, start};

/// A server without memory, with an emulated disk of 4 ms and a folder as hot device.
fn tiered(folder: &std::path::Path) -> Server {
    let hot = format!("device.1.path={}/hot", folder.display());
    let more = [
        "node.memory_bytes=0",
        "device.0.bytes=64MiB",
        "device.0.service={kind=\"exponential\",mean_ms=4}",
        "device.1.class=hot",
        "device.1.bytes=4MiB",
        hot.as_str(),
        "tiers.popularity_s=60",
    ];
    start(folder, &more)
}

fn tiers(client: &mut Client) -> Value {
    let reply = client.get("/admin/tiers");
    assert_eq!(reply.status, 200);
    serde_json::from_str(&reply.text()).unwrap()
}

fn outcome(client: &mut Client, i: u64) -> String {
    let reply = client.get(&format!("/objects/{i}"));
    assert_eq!((reply.status, reply.body == bytes(i, 5_000)), (200, true));
    reply.header("concertina-outcome").unwrap().to_owned()
}

#[test]
fn what_is_read_again_is_served_hot_and_a_failing_device_is_taken_out() {
    let folder = tempfile::tempdir().unwrap();
    let server = tiered(folder.path());
    let mut client = Client::connect(server.address());
    for i in 0..20 {
        assert_eq!(client.put(&format!("/objects/{i}"), &bytes(i, 5_000)).status, 200);
    }
    // How many reads it takes depends on the time between them, and a busy machine may make a hot device wait.
    crate::serve_client::until("nine of ten are read from the hot device", || {
        (0..10).filter(|i| outcome(&mut client, *i) == "hot_device").count() >= 9
    });
    let told = tiers(&mut client);
    assert_eq!(told["devices"][1]["class"], "hot");
    assert!(told["hot"]["objects"].as_u64().unwrap() >= 9, "{told}");
    assert!(told["hot"]["bought"]["saved_s"].as_f64().unwrap() > 0.0, "{told}");
    assert_eq!(told["hot"]["moved"][0]["what"], "promoted");
    let metrics = client.get("/metrics").text();
    for line in ["concertina_hot_moves_total{kind=\"promoted\"}", "concertina_device_live_bytes{"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // A write voids the hot copy too.
    assert_eq!(client.put("/objects/3", b"newer").status, 200);
    assert_eq!(client.get("/objects/3").body, b"newer");

    // The hot device loses its bytes: nobody notices, and it is taken out.
    for entry in std::fs::read_dir(folder.path().join("hot")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "seg") {
            std::fs::File::options().write(true).open(path).unwrap().set_len(0).unwrap();
        }
    }
    // A busy machine may make the hot device wait, and then the other one is read at once: only failed reads in a row count.
    crate::serve_client::until("the hot device is taken out", || {
        for i in (0..10).filter(|i| *i != 3) {
            assert_eq!(outcome(&mut client, i), "bulk_device");
        }
        tiers(&mut client)["devices"][1]["state"] == "out"
    });
    server.stop();
}

#[test]
fn pins_need_devices_of_both_classes() {
    let told = configuration::Config::load(None, &["tiers.pins=[\"a\"]".to_owned()]);
    let told = told.unwrap_err().to_string();
    assert!(told.contains("tiers.pins: need a [[device]] of class \"hot\""), "{told}");
}

#[test]
fn status_prints_the_tiers_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let server = tiered(folder.path());
    let url = format!("http://{}", server.address());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["status", "--server", &url])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for part in ["device/0 bulk", "device/1 hot", "hot: 0.0 % of 0 device reads"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    server.stop();
}

#[test]
fn streams_play_without_a_stall() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &[]);
    let url = format!("http://{}", server.address());
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(["load", &url, "--count", "5", "--size", "40k", "--fill", "--json", "--quiet"])
        .args([
            "--streams",
            "20",
            "--bitrate",
            "256kbit/s",
            "--duration",
            "4s",
            "--stream-start",
            "500ms",
        ])
        .arg("--out")
        .arg(folder.path().join("fill"))
        .output()
        .unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["streams"], &told["failed"]), (&20.into(), &0.into()), "{told}");
    // They read on to the next object: 40 KiB are 1.3 seconds.
    assert!(told["objects"].as_u64().unwrap() >= 20, "{told}");
    assert!(told["played_s"].as_f64().unwrap() > 30.0, "{told}");
    server.stop();
}

/// Waits for something that the server does by itself.
fn until(client: &mut Client, what: &str, holds: impl Fn(&Value) -> bool) {
    for _ in 0..4_500 {
        let told = tiers(client);
        if holds(&told) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{what}: {}", tiers(client));
}

#[test]
fn a_scrub_finds_damage_and_the_object_is_fetched_again() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "node.memory_bytes=0",
        "device.0.bytes=1MiB",
        "device.0.segment_bytes=8KiB",
        "device.0.scrub_s=0.5",
    ];
    let server = start(folder.path(), &more);
    let mut client = Client::connect(server.address());
    // The second record begins another segment, so that the first one is sealed.
    for i in 0..2 {
        assert_eq!(client.put(&format!("/objects/{i}"), &bytes(i, 5_000)).status, 200);
    }
    until(&mut client, "both are stored", |told| told["devices"][0]["objects"] == 2);
    let segment = folder.path().join("device/00000000.seg");
    let mut stored = std::fs::read(&segment).unwrap();
    stored[2_000] ^= 1;
    std::fs::write(&segment, stored).unwrap();
    until(&mut client, "the damage is found", |told| told["devices"][0]["damaged"] == 1);
    until(&mut client, "it is fetched again", |told| told["devices"][0]["objects"] == 2);
    assert_eq!(outcome(&mut client, 0), "bulk_device");
    let metrics = client.get("/metrics").text();
    for name in ["concertina_device_damaged_total", "concertina_device_scrubbed_bytes_total"] {
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
        assert!(!line.ends_with(" 0"), "{line}");
    }
    server.stop();
}

#[test]
fn a_device_that_cannot_be_used_is_named_and_the_others_serve() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["node.memory_bytes=0", "device.1.class=hot", "device.1.path=/proc/no-folder"];
    let server = start(folder.path(), &more);
    let mut client = Client::connect(server.address());
    assert_eq!(client.put("/objects/0", &bytes(0, 5_000)).status, 200);
    until(&mut client, "it is stored", |told| told["devices"][0]["objects"] == 1);
    (0..5).for_each(|_| assert_eq!(outcome(&mut client, 0), "bulk_device"));
    let told = tiers(&mut client);
    assert_eq!(
        (&told["devices"][0]["state"], &told["devices"][1]["state"]),
        (&"in".into(), &"out".into())
    );
    let metrics = client.get("/metrics").text();
    let out = "concertina_device_in_service{queue=\"device/1\",class=\"hot\"} 0";
    assert!(metrics.contains(out), "{metrics}");
    server.stop();
}

/// As one whose file system became read-only, or that was unmounted.
#[test]
fn a_device_that_takes_no_writes_is_told_of_until_it_takes_some() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), &["node.memory_bytes=0"]);
    let mut client = Client::connect(server.address());
    let (device, away) = (folder.path().join("device"), folder.path().join("away"));
    let writable = "concertina_device_writable{queue=\"device/0\",class=\"bulk\"}";
    assert!(client.get("/metrics").text().contains(&format!("{writable} 1\n")));
    std::fs::rename(&device, &away).unwrap();
    assert_eq!(client.put("/objects/0", &bytes(0, 5_000)).status, 200);
    let failed = |told: &Value| told["devices"][0]["write_failed"] == true;
    until(&mut client, "a write failed", failed);
    let metrics = client.get("/metrics").text();
    for line in [&format!("{writable} 0\n"), "concertina_degraded{what=\"device\"} 1\n"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let ready = client.get("/readyz");
    assert!(ready.status == 200 && ready.text().contains("device/0 takes no writes"));
    std::fs::rename(&away, &device).unwrap();
    until(&mut client, "it takes writes again", |told| {
        let _ = Client::connect(server.address()).put("/objects/1", &bytes(1, 5_000));
        !failed(told)
    });
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("concertina_degraded{what=\"device\"} 0\n"), "{metrics}");
    server.stop();
}
