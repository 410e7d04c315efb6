//! Restarts, crashes, consistency under load, and what a run leaves behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ground::window::{Histogram, Outcome, Sample};
use record::RunFolder;

use crate::serve_client::{Client, bytes, spawn, start};
use crate::steady::{in_time, steady};

#[test]
fn a_restart_keeps_what_is_on_devices() {
    let folder = tempfile::tempdir().unwrap();
    let more = ["device.0.bytes=8MiB", "device.0.segment_bytes=256KiB"];
    let server = start(folder.path(), &more);
    let mut client = Client::connect(server.address());
    let path = |i: u64| format!("/objects/{i}");
    for i in 0..100 {
        assert_eq!(client.put(&path(i), &bytes(i, 5_000)).status, 200);
    }
    assert_eq!(client.put(&path(7), b"newer").status, 200);
    assert_eq!(client.send("DELETE", &path(8), &[], None).unwrap().status, 204);
    drop(client);
    server.stop();
    let server = start(folder.path(), &more);
    let mut client = Client::connect(server.address());
    for i in 0..100 {
        let got = client.get(&path(i));
        match i {
            7 => assert_eq!(got.body, b"newer"),
            8 => assert_eq!(got.status, 404),
            _ => {
                assert_eq!(got.body, bytes(i, 5_000));
                assert_eq!(got.header("concertina-outcome"), Some("bulk_device"));
            }
        }
    }
    server.stop();
}

#[test]
fn a_write_that_was_acknowledged_survives_kill_9() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = spawn(folder.path(), &[], "");
    let address = server.address;
    let acknowledged: Vec<_> = (0..4u64)
        .map(|writer| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut done = Vec::new();
                for i in 0.. {
                    let path = format!("/objects/{writer}-{i}");
                    match client.send("PUT", &path, &[], Some(&bytes(i, 700))) {
                        Ok(reply) if reply.status == 200 => done.push((path, i)),
                        _ => break,
                    }
                }
                done
            })
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    server.signal("-KILL");
    server.child.wait().unwrap();
    let acknowledged: Vec<_> = acknowledged.into_iter().flat_map(|t| t.join().unwrap()).collect();
    assert!(acknowledged.len() > 20);
    let server = spawn(folder.path(), &[], "");
    let mut client = Client::connect(server.address);
    for (path, i) in &acknowledged {
        assert!(client.get(path).body == bytes(*i, 700), "{path}");
    }
    assert_eq!(std::fs::read_dir(folder.path().join("origin/tmp")).unwrap().count(), 0);
}

#[test]
fn no_read_after_an_acknowledged_write_is_older() {
    let folder = tempfile::tempdir().unwrap();
    let more = [
        "node.memory_bytes=20kB",
        "node.revalidate_s=0.02",
        "device.0.count=2",
        "device.0.bytes=200kB",
        "device.0.segment_bytes=40kB",
    ];
    let server = start(folder.path(), &more);
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..4).map(|_| AtomicU64::new(0)).collect());
    let stop = Arc::new(AtomicBool::new(false));
    let address = server.address();
    let mut threads = Vec::new();
    for key in 0..4usize {
        let acknowledged = acknowledged.clone();
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || {
            let mut client = Client::connect(address);
            for version in 1u64.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let mut body = version.to_le_bytes().to_vec();
                body.extend_from_slice(&bytes(version, 6_000));
                assert_eq!(client.put(&format!("/objects/{key}"), &body).status, 200);
                acknowledged[key].store(version, Ordering::SeqCst);
            }
        }));
    }
    for reader in 0..4usize {
        let acknowledged = acknowledged.clone();
        let stop = stop.clone();
        threads.push(std::thread::spawn(move || {
            let mut client = Client::connect(address);
            for i in reader.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let key = i % 4;
                let before = acknowledged[key].load(Ordering::SeqCst);
                let reply = client.get(&format!("/objects/{key}"));
                if before == 0 && reply.status == 404 {
                    continue;
                }
                assert_eq!(reply.status, 200, "{}", reply.text());
                let version = u64::from_le_bytes(reply.body[..8].try_into().unwrap());
                assert!(version >= before, "{version} after {before} was acknowledged");
                assert!(reply.body[8..] == bytes(version, 6_000));
            }
        }));
    }
    std::thread::sleep(Duration::from_millis(1500));
    stop.store(true, Ordering::Relaxed);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(acknowledged.iter().all(|version| version.load(Ordering::SeqCst) > 10));
    server.stop();
}

#[test]
fn a_process_drains_and_leaves_a_run_that_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("run");
    let run_dir = format!("observe.run_dir={}", run.display());
    let more = [
        run_dir.as_str(),
        "observe.window_s=0.1",
        "observe.sample_one_in=1",
        "node.memory_bytes=0",
        "device.0.service={kind=\"gamma\",mean_ms=300,scv=0.01}",
    ];
    let mut server = spawn(folder.path(), &more, "");
    let mut client = Client::connect(server.address);
    assert_eq!(client.put("/objects/a", &bytes(1, 100)).status, 200);
    std::thread::sleep(Duration::from_millis(100));
    let address = server.address;
    let slow = std::thread::spawn(move || Client::connect(address).get("/objects/a"));
    std::thread::sleep(Duration::from_millis(100));
    let status = client.get("/admin/status").text();
    assert!(
        status.contains("1 device holds each read for a gamma time of mean 300 ms"),
        "{status}"
    );
    server.signal("-TERM");
    let reply = slow.join().unwrap();
    assert_eq!(reply.header("concertina-outcome"), Some("bulk_device"));
    assert!(server.child.wait().unwrap().success());
    let run = RunFolder::read(&run).unwrap();
    assert!(run.run.laboratory.is_some());
    let sum = |queue: &str| -> u64 {
        run.windows.iter().filter(|w| w.queue == queue).map(|w| w.completions).sum()
    };
    assert_eq!((sum("gateway"), sum("node"), sum("device/0")), (2, 1, 1));
    assert_eq!(run.samples.len(), 2);
    let get = &run.samples[1];
    let service_ms = (get.served_ns - get.started_ns) as f64 * 1e-6;
    assert!((100.0..30_000.0).contains(&service_ms), "{service_ms}");
    assert!(get.replied_ns >= get.served_ns);
}

#[test]
fn a_held_device_is_busy_without_gaps() {
    steady(|| {
        let folder = tempfile::tempdir().unwrap();
        let run = folder.path().join("run");
        let run_dir = format!("observe.run_dir={}", run.display());
        let more = [
            run_dir.as_str(),
            "node.memory_bytes=0",
            "observe.sample_one_in=1",
            "device.0.service={kind=\"exponential\",mean_ms=4}",
            "device.0.bytes=64MiB",
        ];
        let server = start(folder.path(), &more);
        let address = server.address();
        let mut client = Client::connect(address);
        for i in 0..40 {
            assert_eq!(client.put(&format!("/objects/{i}"), &bytes(i, 4000)).status, 200);
        }
        std::thread::sleep(Duration::from_millis(100));
        let readers: Vec<_> = (0..4u64)
            .map(|reader| {
                std::thread::spawn(move || {
                    let mut client = Client::connect(address);
                    for i in 0..100 {
                        let reply = client.get(&format!("/objects/{}", reader * 10 + i % 10));
                        assert_eq!(reply.header("concertina-outcome"), Some("bulk_device"));
                    }
                })
            })
            .collect();
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        drop(client);
        server.stop();
        let run = RunFolder::read(&run).unwrap();
        let device: Vec<_> = run.windows.iter().filter(|w| w.queue == "device/0").collect();
        // Whoever waited began when another ended, however late the process learnt of it.
        let ns = |sample: &Sample, since: u64| sample.received_unix_us * 1000 + since;
        let reads = || run.samples.iter().filter(|s| s.outcome == Outcome::BulkDevice);
        let ends: Vec<u64> = reads().map(|s| ns(s, s.served_ns)).collect();
        // One that came after an end of which the process learnt later met it, and did not wait.
        let has_waited = |s: &&Sample| s.length_met > 0 && s.started_ns > s.queued_ns + 2_000;
        let waited: Vec<u64> = reads().filter(has_waited).map(|s| ns(s, s.started_ns)).collect();
        in_time(waited.len() > 100, format_args!("{} reads waited", waited.len()));
        for start in waited {
            // Times are kept to the microsecond.
            let follows = ends.iter().any(|end| end.abs_diff(start) <= 2_000);
            in_time(follows, format_args!("a gap before {start}"));
        }
        let mut service = Histogram::default();
        device.iter().flat_map(|w| &w.times).for_each(|times| service.merge(&times.service));
        // Whoever stands still makes a few services longer and none shorter.
        let (mean_ms, half_ms) = (service.mean_s() * 1e3, service.quantile_s(0.5).unwrap() * 1e3);
        assert_eq!(service.count(), 400);
        in_time(mean_ms > 3.3, format_args!("mean {mean_ms} ms"));
        let expected_ms = 4.0 * std::f64::consts::LN_2;
        let off = half_ms / expected_ms - 1.0;
        in_time(off.abs() < 0.3, format_args!("median {half_ms}, not {expected_ms} ms"));
    });
}
