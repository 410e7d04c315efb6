//! The load generator against small servers that behave well and badly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ground::window::key_hash;
use load::client::Body;
use load::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, Speed, Summary, Think, run};
use record::RunFolder;

use crate::serve_client::{free, until};

/// A request as a test's server sees it.
struct Request {
    method: String,
    key: String,
    body: Vec<u8>,
    /// Its number on this connection, from 0.
    number: u64,
}

/// What a server does with a request: bytes to send, and whether the connection stays open.
type Behaviour = dyn Fn(&Request) -> (Vec<u8>, bool) + Send + Sync;

/// A server with a thread for each connection. Its threads end with their connections.
fn serve(behaviour: Arc<Behaviour>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let behaviour = behaviour.clone();
            std::thread::spawn(move || converse(stream, &behaviour));
        }
    });
    format!("http://{address}")
}

fn converse(mut stream: TcpStream, behaviour: &Arc<Behaviour>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    for number in 0.. {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let mut words = line.split(' ');
        let method = words.next()?.to_owned();
        let key = words.next()?.strip_prefix("/objects/")?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok()?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length: ") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let (bytes, keep) = behaviour(&Request { method, key, body, number });
        stream.write_all(&bytes).ok()?;
        if !keep {
            return None;
        }
    }
    None
}

fn reply(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn body_of(key: &str, size: u64) -> Vec<u8> {
    Body { key: key_hash(key.as_bytes()), size }.bytes()
}

fn keys(count: u64, size: u64) -> Keys {
    Keys::Synthetic {
        popularity: Popularity::Zipf(0.9),
        count,
        size: Size::fixed(size),
        format: "k{i}".to_owned(),
        read_share: 1.0,
    }
}

fn plan(url: &str, dir: &Path, load: Load) -> Plan {
    Plan {
        warmup: None,
        length: Some(Length::Seconds(0.6)),
        window_s: 0.2,
        timeout_s: 5.0,
        ..Plan::new(url, load, keys(50, 1000), dir.join("run"))
    }
}

fn open(rate: f64) -> Load {
    Load::Open { rates: vec![rate], arrivals: Arrivals::Poisson }
}

/// Runs a plan, reads its folder back, and checks what holds for every run.
fn measure(plan: &Plan) -> (Summary, RunFolder) {
    let summary = run(plan, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap();
    let folder = RunFolder::read(&plan.out).unwrap();
    assert_eq!(folder.steps.len(), summary.steps.len());
    for step in &summary.steps {
        let (from, to) = (step.step.start_unix_us, step.step.end_unix_us);
        let inside =
            |w: &&ground::window::Window| w.start_unix_us + 1 >= from && w.end_unix_us() <= to + 1;
        let windows: Vec<_> = folder.windows.iter().filter(inside).collect();
        let sum = |f: fn(&ground::window::Window) -> u64| windows.iter().map(|w| f(w)).sum::<u64>();
        assert_eq!(sum(|w| w.arrivals), step.arrivals, "the windows of the step are the step");
        assert_eq!(sum(|w| w.completions), step.completions);
        let dropped = step.step.generator.dropped;
        assert_eq!(step.arrivals, step.completions + dropped, "every arrival is accounted for");
    }
    (summary, folder)
}

#[test]
fn a_good_server_is_measured() {
    let url = serve(Arc::new(|asked: &Request| {
        let headers = "concertina-outcome: hot_device\r\nconcertina-queue-length: 3\r\n";
        (reply("200 OK", headers, &body_of(&asked.key, 1000)), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    let warm = Plan {
        warmup: Some(Length::Requests(50)),
        sample_one_in: 1,
        verify: true,
        threads: 2,
        ..plan(
            &url,
            dir.path(),
            Load::Open { rates: vec![300.0, 600.0], arrivals: Arrivals::Constant },
        )
    };
    let (summary, folder) = measure(&warm);
    assert_eq!(summary.steps.len(), 2);
    for (step, arrivals) in summary.steps.iter().zip([180, 360]) {
        assert_eq!((step.arrivals, step.errors, step.mismatches), (arrivals, 0, 0));
        assert_eq!(step.bytes, arrivals * 1000);
        assert_eq!(step.outcomes.get("hot_device"), Some(&1.0));
        assert!(step.response_ms.p50 >= step.service_ms.p50);
    }
    assert!(folder.samples.len() >= 540 && folder.samples.iter().all(|s| s.length_met == 3));
    assert_eq!(folder.run.kind, "load");
    // A folder is never written over.
    let again = run(&warm, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap_err();
    assert!(format!("{again:#}").contains("holds a run already"));
}

#[test]
fn a_stall_is_seen_by_all_who_should_have_been_served() {
    let started = Instant::now();
    let lock = Arc::new(Mutex::new(()));
    let first = AtomicBool::new(true);
    let url = serve(Arc::new(move |asked: &Request| {
        // One server behind a lock: it stalls once, for half a second.
        let held = lock.lock();
        if started.elapsed() > Duration::from_millis(250) && first.swap(false, Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(500));
        }
        drop(held);
        (reply("200 OK", "", &body_of(&asked.key, 10)), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    let (summary, _) = measure(&plan(&url, dir.path(), open(400.0)));
    let step = &summary.steps[0];
    // The stall lasts to the end of the step and beyond: all arrivals since its start are answered
    // late, and none is missing. A loop that waits for replies would have seen one slow request.
    let on_time = step.within.iter().find(|(ms, _)| *ms == 50.0).unwrap().1;
    assert!(on_time < 0.75, "{:.0} % within 50 ms", on_time * 100.0);
    assert!(step.response_ms.max > 350.0 && step.response_ms.p90 > 100.0);
    assert_eq!(step.errors, 0);
}

#[test]
fn arrivals_beyond_the_connections_wait_then_are_dropped() {
    let url = serve(Arc::new(|asked: &Request| {
        std::thread::sleep(Duration::from_millis(20));
        (reply("200 OK", "", asked.method.as_bytes()), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    let few = Plan { connections: 2, backlog: 5, ..plan(&url, dir.path(), open(500.0)) };
    let (summary, _) = measure(&few);
    let step = &summary.steps[0];
    let said = &step.step.generator;
    assert!(said.dropped > 50, "{} dropped", said.dropped);
    assert!(said.outstanding_max <= 8, "{} outstanding", said.outstanding_max);
    let complaints = said.complaints.join("\n");
    assert!(complaints.contains("dropped") && complaints.contains("waited"), "{complaints}");
    // What waited for a connection counts in the response time and not in the service time.
    assert!(step.response_ms.p50 > step.service_ms.p50 + 10.0);
}

#[test]
fn broken_replies_are_errors_with_words() {
    type Case = (&'static str, fn(&Request) -> (Vec<u8>, bool));
    let cases: [Case; 7] = [
        ("status 503", |_| (reply("503 Busy", "", b"busy"), true)),
        ("status 500", |_| (reply("500 No", "", b""), true)),
        ("malformed HTTP head", |_| (b"\0\xffgarbage\r\n\r\n".to_vec(), true)),
        ("within the reply's body", |_| {
            (b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nabc".to_vec(), false)
        }),
        ("closed before a reply", |_| (Vec::new(), false)),
        ("after the end of the reply", |_| {
            (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nabc".to_vec(), true)
        }),
        ("no reply within", |_| (b"HTTP/1.1 200 OK\r\n".to_vec(), true)),
    ];
    for (words, behaviour) in cases {
        let url = serve(Arc::new(behaviour));
        let dir = tempfile::tempdir().unwrap();
        let short = Plan {
            length: Some(Length::Requests(20)),
            timeout_s: 0.2,
            ..plan(&url, dir.path(), open(200.0))
        };
        let (summary, folder) = measure(&short);
        let step = &summary.steps[0];
        assert_eq!((step.arrivals, step.errors), (20, 20), "{words}");
        let faults: Vec<_> = step.faults.keys().cloned().collect();
        assert!(faults.iter().any(|f| f.contains(words)), "{words}: {faults:?}");
        assert!(summary.is_all_errors());
        let refused = folder.windows.iter().map(|w| w.refusals).sum::<u64>();
        assert_eq!(refused, if words == "status 503" { 20 } else { 0 });
    }
}

#[test]
fn connections_that_the_server_closes_are_made_again() {
    // Says keep-alive and closes after three replies: the fourth request finds the connection closed.
    let url = serve(Arc::new(|asked: &Request| {
        (reply("200 OK", "", &body_of(&asked.key, 1000)), asked.number < 2)
    }));
    let dir = tempfile::tempdir().unwrap();
    let (summary, _) = measure(&plan(&url, dir.path(), open(1000.0)));
    assert_eq!(summary.steps[0].errors, 0, "{:?}", summary.steps[0].faults);
}

#[test]
fn nobody_there_is_an_error_and_leaves_nothing() {
    let gone = free();
    let dir = tempfile::tempdir().unwrap();
    let asked = plan(&format!("http://{gone}"), dir.path(), open(10.0));
    let error = run(&asked, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap_err();
    assert!(format!("{error:#}").contains("is the service running there?"), "{error:#}");
    assert!(!asked.out.exists());
}

#[test]
fn closed_loops_obey_the_response_time_law() {
    let url = serve(Arc::new(|asked: &Request| {
        std::thread::sleep(Duration::from_millis(5));
        (reply("200 OK", "", &body_of(&asked.key, 1000)), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    let load = Load::Closed { clients: vec![8], think_ms: 15.0, think: Think::Exponential };
    let (summary, folder) = measure(&Plan {
        warmup: Some(Length::Seconds(0.2)),
        length: Some(Length::Seconds(1.0)),
        ..plan(&url, dir.path(), load)
    });
    let step = &summary.steps[0];
    assert_eq!(folder.steps[0].clients, Some(8));
    // R = N/X − Z, within what a second of a busy machine allows.
    let law_ms = 8.0 / step.rate * 1e3 - 15.0;
    let measured = step.response_ms.mean;
    assert!((law_ms - measured).abs() < 0.25 * (measured + 15.0), "{law_ms} {measured}");

    let counted = Plan {
        length: Some(Length::Requests(77)),
        threads: 2,
        out: dir.path().join("counted"),
        ..plan(
            &url,
            dir.path(),
            Load::Closed { clients: vec![5], think_ms: 0.0, think: Think::Constant },
        )
    };
    assert_eq!(measure(&counted).0.steps[0].arrivals, 77);
}

#[test]
fn a_schedule_makes_a_step_of_each_rate() {
    let url = serve(Arc::new(|asked: &Request| (reply("200 OK", "", asked.key.as_bytes()), true)));
    let dir = tempfile::tempdir().unwrap();
    let load =
        Load::Schedule { segments: vec![(100.0, 0.3), (500.0, 0.3)], arrivals: Arrivals::Constant };
    let (summary, folder) = measure(&Plan { length: None, ..plan(&url, dir.path(), load) });
    assert_eq!(summary.steps.iter().map(|s| s.arrivals).collect::<Vec<_>>(), [30, 150]);
    // No pause between them.
    assert_eq!(folder.steps[0].end_unix_us, folder.steps[1].start_unix_us);
}

#[test]
fn filled_objects_are_verified_and_wrong_bytes_are_noticed() {
    let stored: Arc<Mutex<std::collections::HashMap<String, Vec<u8>>>> = Arc::default();
    let (puts, spoil) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let url = serve(Arc::new({
        let (stored, puts, spoil) = (stored.clone(), puts.clone(), spoil.clone());
        move |asked: &Request| match asked.method.as_str() {
            // Every fifth put is refused, and must be tried again.
            "PUT" if puts.fetch_add(1, Ordering::Relaxed).is_multiple_of(5) => {
                (reply("503 Busy", "", b""), true)
            }
            "PUT" => {
                stored.lock().unwrap().insert(asked.key.clone(), asked.body.clone());
                (reply("204 No Content", "", b""), true)
            }
            _ => match stored.lock().unwrap().get(&asked.key).cloned() {
                Some(mut body) => {
                    if spoil.load(Ordering::Relaxed) {
                        *body.last_mut().unwrap() ^= 1;
                    }
                    (reply("200 OK", "", &body), true)
                }
                None => (reply("404 Not Found", "", b"no"), true),
            },
        }
    }));
    let dir = tempfile::tempdir().unwrap();
    let size = Size { min: 1, max: 300_000 };
    let what = Keys::Synthetic {
        popularity: Popularity::Uniform,
        count: 60,
        size,
        format: "a b/{i}".to_owned(),
        read_share: 0.9,
    };
    let filled = Plan {
        keys: what,
        fill: Some(8),
        verify: true,
        threads: 2,
        length: Some(Length::Requests(150)),
        ..plan(&url, dir.path(), open(400.0))
    };
    let (summary, _) = measure(&filled);
    let fill = summary.fill.as_ref().unwrap();
    assert_eq!((fill.keys, fill.stored), (60, 60));
    for (key, body) in stored.lock().unwrap().iter() {
        let key = key.replace("%20", " ");
        assert!(body.len() as u64 == size.for_key(key_hash(key.as_bytes())));
        assert_eq!(*body, body_of(&key, body.len() as u64), "{key}");
    }
    let step = &summary.steps[0];
    assert_eq!(step.mismatches, 0);
    assert!(!step.outcomes.contains_key("miss"), "{:?}", step.outcomes);

    spoil.store(true, Ordering::Relaxed);
    let spoilt = Plan { fill: None, out: dir.path().join("spoilt"), ..filled };
    let (summary, _) = measure(&spoilt);
    assert!(summary.is_wrong());
    assert!(summary.steps[0].mismatches > 100, "{}", summary.steps[0].mismatches);
}

#[test]
fn a_step_of_requests_ends_with_its_last_arrival_however_late_the_replies() {
    // Replies take longer than a window has left, in most steps: they must not open one past the step.
    let url = serve(Arc::new(|_: &Request| {
        std::thread::sleep(Duration::from_millis(4));
        (reply("200 OK", "", b"bytes"), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    let load = Load::Open { rates: vec![500.0; 20], arrivals: Arrivals::Poisson };
    let short = Plan {
        threads: 2,
        length: Some(Length::Requests(20)),
        window_s: 0.01,
        ..plan(&url, dir.path(), load)
    };
    let (summary, _) = measure(&short);
    assert!(summary.steps.iter().all(|step| step.arrivals == 20));
}

#[test]
fn a_trace_is_replayed_row_by_row_at_each_speed() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let url = serve(Arc::new({
        let seen = seen.clone();
        move |asked: &Request| {
            seen.lock().unwrap().push(format!("{} {}", asked.method, asked.key));
            (reply("200 OK", "", b""), true)
        }
    }));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("t.csv");
    let rows: String = (0..40).map(|i| format!("{},key{i},5,\n", i / 10 * 1000)).collect();
    std::fs::write(&file, format!("time_ms,key,size,op\n{rows}")).unwrap();
    let trace = Keys::Trace {
        file,
        slice: Some(10..40),
        warmup_slice: Some(0..10),
        size: Size::fixed(1),
        skip_broken: false,
        resolution_ms: None,
    };
    let replay = Plan {
        keys: trace,
        warmup: Some(Length::Requests(10)),
        warmup_rate: Some(200.0),
        length: None,
        ..plan(
            &url,
            dir.path(),
            Load::Trace { speeds: vec![Speed::Rate(100.0), Speed::Factor(20.0)] },
        )
    };
    let (summary, folder) = measure(&replay);
    assert_eq!(summary.steps.iter().map(|s| s.arrivals).collect::<Vec<_>>(), [30, 30]);
    assert!(folder.steps.iter().all(|s| s.rate.is_some_and(|r| (80.0..260.0).contains(&r))));
    let mut seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 80);
    // Each row twice, once at each speed.
    seen.sort();
    let mut rows: Vec<String> = (0..40).flat_map(|i| vec![format!("GET key{i}"); 2]).collect();
    rows.sort();
    assert_eq!(seen, rows);
}

#[test]
fn an_interrupted_run_is_readable() {
    let url = serve(Arc::new(|asked: &Request| (reply("200 OK", "", asked.key.as_bytes()), true)));
    let dir = tempfile::tempdir().unwrap();
    let long = Plan { length: Some(Length::Seconds(60.0)), ..plan(&url, dir.path(), open(200.0)) };
    let stop = Arc::new(AtomicBool::new(false));
    let begun = Instant::now();
    std::thread::spawn({
        let stop = stop.clone();
        move || {
            std::thread::sleep(Duration::from_millis(1500));
            stop.store(true, Ordering::Relaxed);
        }
    });
    let summary = run(&long, &stop, &mut |_| {}).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert!(summary.interrupted && summary.steps.is_empty());
    let folder = RunFolder::read(&long.out).unwrap();
    assert!(folder.windows.iter().map(|w| w.completions).sum::<u64>() > 20);
    assert!(folder.steps.is_empty());
}

#[test]
fn a_step_that_was_interrupted_is_none_though_its_end_passes_meanwhile() {
    // Replies take longer than what is left of the step: it is over before the last of them is given up.
    let url = serve(Arc::new(|_: &Request| {
        std::thread::sleep(Duration::from_secs(2));
        (reply("200 OK", "", b""), true)
    }));
    let dir = tempfile::tempdir().unwrap();
    for length in [Length::Seconds(0.6), Length::Requests(120)] {
        let name = format!("{length:?}");
        let cut = Plan { length: Some(length), ..plan(&url, &dir.path().join(name), open(200.0)) };
        let stop = Arc::new(AtomicBool::new(false));
        std::thread::spawn({
            let stop = stop.clone();
            move || {
                std::thread::sleep(Duration::from_millis(350));
                stop.store(true, Ordering::Relaxed);
            }
        });
        let summary = run(&cut, &stop, &mut |_| {}).unwrap();
        assert!(summary.interrupted && summary.steps.is_empty(), "{:?}", summary.steps);
    }
}

#[test]
fn mistakes_are_told_all_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = Plan {
        threads: 0,
        timeout_s: -1.0,
        keys: keys(0, 1),
        ..plan("http://127.0.0.1:1", dir.path(), open(f64::NAN))
    };
    let error = run(&wrong, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap_err();
    let error = error.to_string();
    for part in ["rate NaN", "0 threads", "timeout", "0 keys"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn the_command_ends_cleanly_when_interrupted_and_names_broken_lines() {
    let url = serve(Arc::new(|asked: &Request| (reply("200 OK", "", asked.key.as_bytes()), true)));
    let dir = tempfile::tempdir().unwrap();
    let command = || std::process::Command::new(env!("CARGO_BIN_EXE_concertina"));
    let out = dir.path().join("run");
    let child = command()
        .args(["load", &url, "--rate", "200", "--warmup", "0s", "--window", "100ms", "--out"])
        .arg(&out)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("it loads", || out.join("windows").exists());
    std::thread::sleep(Duration::from_millis(800));
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(told.contains("interrupted: no step is complete"), "{told}");
    let windows = RunFolder::read(&out).unwrap().windows;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let past = |window: &ground::window::Window| u128::from(window.end_unix_us()) < now.as_micros();
    assert!(!windows.is_empty() && windows.iter().all(past), "a window ends in the future");
    let mut report = command();
    let refused = report.arg("report").arg(&out).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && words.contains("has no finished step"), "{words}");

    let trace = dir.path().join("bad.csv");
    std::fs::write(&trace, "time_ms,key,size,op\n0,a,1,get\n0,b,x,get\n").unwrap();
    let run = |more: &[&str], name: &str| {
        let mut run = command();
        run.args(["load", &url, "--rate", "100", "--warmup", "0s", "--trace"]).arg(&trace);
        run.args(more).arg("--out").arg(dir.path().join(name)).output().unwrap()
    };
    let failed = run(&[], "bad");
    let words = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert_eq!(failed.status.code(), Some(1));
    assert!(words.contains("bad.csv, line 3: size `x`"), "{words}");
    assert!(!dir.path().join("bad").exists());
    let passed = run(&["--skip-broken", "--requests", "5", "--json"], "good");
    let said: serde_json::Value = serde_json::from_slice(&passed.stdout).unwrap();
    assert_eq!((&said["broken_lines"], &said["steps"][0]["completions"]), (&1.into(), &5.into()));
}

/// Ten clients of a service that takes 50 ms get at most 200 replies a second, however few requests they have.
#[test]
fn a_closed_loop_of_few_requests_lasts_until_its_last_reply() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                while let Ok(1..) = stream.read(&mut [0; 4096]) {
                    std::thread::sleep(Duration::from_millis(50));
                    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx";
                    if stream.write_all(reply).is_err() {
                        return;
                    }
                }
            });
        }
    });
    for requests in ["5", "15", "100"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_concertina"));
        let arguments = ["load", &url, "--clients", "10", "--warmup", "0s", "--json", "--requests"];
        let out = tempfile::tempdir().unwrap();
        command.args(arguments).arg(requests).arg("--out").arg(out.path().join("run"));
        let run = command.output().unwrap();
        let summary: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
        let rate = summary["steps"][0]["rate"].as_f64().unwrap();
        assert!(rate <= 200.5 && rate > 0.0, "{requests}: {rate}");
    }
}
