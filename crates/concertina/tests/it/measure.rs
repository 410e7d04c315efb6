//! `concertina measure`, against this project's server, nginx, and servers of a test's own.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use record::RunFolder;
use serde_json::Value;

use crate::left_out::left_out;
use crate::serve_client::{free, spawn};
use crate::steady::{in_time, steady};

/// A child that ends with the test.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that holds a lock for `service` on each request, and the request lines that it saw.
pub fn serve(service: Duration) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let lines = seen.clone();
    std::thread::spawn(move || {
        let lock = Arc::new(Mutex::new(()));
        for stream in listener.incoming().flatten() {
            let (lock, lines) = (lock.clone(), lines.clone());
            std::thread::spawn(move || converse(stream, &lock, &lines, service));
        }
    });
    (format!("http://{address}"), seen)
}

fn converse(
    mut stream: TcpStream,
    lock: &Mutex<()>,
    lines: &Mutex<Vec<String>>,
    service: Duration,
) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        lines.lock().ok()?.push(line.trim_end().to_owned());
        while line.trim_end() != "" {
            line.clear();
            reader.read_line(&mut line).ok()?;
        }
        if !service.is_zero() {
            let held = lock.lock().ok()?;
            std::thread::sleep(service);
            drop(held);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").ok()?;
    }
}

/// Short repetitions: these tests are of what is done, not of how exact a busy machine is.
const SHORT: [&str; 8] =
    ["--duration", "600ms", "--warmup", "100ms", "--window", "20ms", "--budget", "15s"];

pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(args).current_dir(dir);
    command
}

pub fn concertina(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().unwrap()
}

pub fn measure(dir: &Path, url: &str, args: &[&str]) -> Value {
    let all = [&["measure", url, "--json", "--out", "run"], &SHORT[..], args].concat();
    let output = concertina(dir, &all);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn value(number: &Value) -> f64 {
    number["value"].as_f64().unwrap_or_else(|| panic!("{number}"))
}

/// What holds of every point.
pub fn sound(point: &Value) {
    let at = |q: usize| value(&point["quantiles"][q]["response_s"]);
    assert!(at(0) > 0.0 && at(0) <= at(1) && at(1) <= at(2), "{point:#}");
    assert!(value(&point["throughput"]) > 0.0 && value(&point["response_mean_s"]) > 0.0);
    assert!(point["throughput"]["half_width"].as_f64().is_some(), "{point:#}");
    assert!(point["laws"].as_array().is_some_and(|l| !l.is_empty()), "{point:#}");
}

#[test]
fn a_sweep_of_our_server_is_read_by_fit_and_check() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = format!("observe.run_dir={}", dir.path().join("server").display());
        let more = [
            &*run_dir,
            "observe.window_s=0.02",
            "node.memory_bytes=4kB",
            "device.0.count=2",
            "device.0.bytes=8MiB",
            "device.0.segment_bytes=256KiB",
        ];
        let mut server = spawn(dir.path(), &more, "");
        let url = format!("http://{}", server.address);
        let what = ["--rates", "300,150", "--count", "200", "--size", "1k", "--fill", "--verify"];
        let measured = measure(
            dir.path(),
            &url,
            &[&what[..], &["--repeat", "2", "--half-width", "99%"]].concat(),
        );
        let points = measured["points"].as_array().unwrap();
        assert_eq!(points.len(), 2);
        for (point, rate) in points.iter().zip([150.0, 300.0]) {
            sound(point);
            assert_eq!((&point["rate"], &point["errors"]), (&rate.into(), &0.into()));
            let off = value(&point["throughput"]) / rate - 1.0;
            in_time(off.abs() < 0.4, format_args!("{point:#}"));
            assert!(point["repetitions"].as_u64().unwrap() >= 2);
        }
        let folder = RunFolder::read(&dir.path().join("run")).unwrap();
        let steps: usize = points.iter().map(|p| p["repetitions"].as_u64().unwrap() as usize).sum();
        assert_eq!(folder.steps.len(), steps);
        // Points take turns, and a step is what is left of its repetition.
        assert_eq!(folder.steps[0].rate, Some(150.0));
        assert_eq!(folder.steps[1].rate, Some(300.0));
        for step in &folder.steps {
            let length = (step.end_unix_us - step.start_unix_us) as f64 * 1e-6;
            in_time((0.15..=0.61).contains(&length), format_args!("a step of {length} s"));
        }
        server.signal("-TERM");
        server.child.wait().unwrap();

        let fit = concertina(dir.path(), &["fit", "run", "server"]);
        assert!(fit.status.success(), "{}", String::from_utf8_lossy(&fit.stderr));
        assert!(dir.path().join("model.toml").exists());
        let report =
            concertina(dir.path(), &["report", "run", "server", "model.toml", "--no-what-if"]);
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        // Half a second of a busy machine says little: every law is there and none is wildly off.
        let check =
            concertina(dir.path(), &["check", "run", "server", "--json", "--tolerance", "50%"]);
        let checked: Value = serde_json::from_slice(&check.stdout).unwrap();
        assert_eq!(checked["steps"].as_array().unwrap().len(), steps);
        let laws = checked["steps"][0]["laws"].as_array().unwrap();
        for law in ["little", "utilisation", "forced_flow", "demand_bound"] {
            assert!(laws.iter().any(|l| l["law"] == law), "{law}: {checked:#}");
        }
    });
}

#[test]
fn saturation_is_searched_for_and_shares_of_it_are_measured() {
    steady(|| {
        // One request at a time, 4 ms each.
        let (url, _) = serve(Duration::from_millis(4));
        let dir = tempfile::tempdir().unwrap();
        let measured = measure(
            dir.path(),
            &url,
            &["--shares", "0.25,0.5", "--repeat", "1", "--half-width", "99%"],
        );
        let rate = measured["saturation"]["rate"].as_f64().unwrap();
        // A busy machine sleeps longer, never shorter; short steps have their edges.
        in_time((10.0..=300.0).contains(&rate), format_args!("{measured:#}"));
        let clients = measured["saturation"]["clients"].as_f64().unwrap();
        in_time((0.3..20.0).contains(&clients), format_args!("{clients} clients keep it busy"));
        let search = measured["search"]["steps"].as_array().unwrap();
        assert_eq!(search[0]["clients"], 1, "{measured:#}");
        in_time((3..=11).contains(&search.len()), format_args!("{measured:#}"));
        let max = measured["search"]["throughput_max"].as_f64().unwrap();
        // The same clients again, after the loads.
        let after = &measured["search"]["after"];
        let same = search.iter().any(|step| step["clients"] == after["clients"]);
        in_time(same, format_args!("{measured:#}"));
        let ratio = after["throughput"].as_f64().unwrap() / max;
        in_time((0.5..2.0).contains(&ratio), format_args!("{measured:#}"));
        for (point, share) in measured["points"].as_array().unwrap().iter().zip([0.25, 0.5]) {
            sound(point);
            assert!((point["rate"].as_f64().unwrap() / (share * max) - 1.0).abs() < 0.006);
        }
        for folder in ["run", "run/search", "run/search-after"] {
            assert!(
                !RunFolder::read(&dir.path().join(folder)).unwrap().steps.is_empty(),
                "{folder}"
            );
        }
    });
}

#[test]
fn clients_are_swept_and_addresses_are_templates() {
    steady(|| {
        let (url, seen) = serve(Duration::from_millis(2));
        let dir = tempfile::tempdir().unwrap();
        let template = format!("{url}/img/{{key}}.jpg?size=2");
        let measured = measure(
            dir.path(),
            &template,
            &["--clients", "4,1,16", "--key-format", "{i}", "--count", "5", "--repeat", "1"],
        );
        let points = measured["points"].as_array().unwrap();
        let clients: Vec<u64> = points.iter().map(|p| p["clients"].as_u64().unwrap()).collect();
        assert_eq!(clients, [1, 4, 16]);
        for point in points {
            sound(point);
            assert!(point["laws"].as_array().unwrap().iter().any(|l| l["law"] == "interactive"));
        }
        // Sixteen wait for one another: R = N/X.
        let mean = |i: usize| value(&points[i]["response_mean_s"]);
        in_time(mean(2) > 4.0 * mean(0), format_args!("{measured:#}"));
        // The first client has the server to itself.
        in_time(measured["knee"] == 0, format_args!("{measured:#}"));
        let lines = std::mem::take(&mut *seen.lock().unwrap());
        let fine = |l: &String| l.starts_with("GET /img/") && l.ends_with(".jpg?size=2 HTTP/1.1");
        assert!(lines.iter().all(fine), "{:?}", lines.first());

        let fixed =
            [&["measure", &format!("{url}/page?x=1")[..], "--fixed", "--out", "fixed"], &SHORT[..]];
        let more = ["--clients", "2", "--repeat", "1", "--half-width", "99%", "--quantile", "90%"];
        let output = concertina(dir.path(), &[&fixed.concat()[..], &more].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for word in ["2 clients", "p90", "p99", "throughput/s", "laws", "run folder: fixed"] {
            assert!(text.contains(word), "{word} is missing in\n{text}");
        }
        let lines = seen.lock().unwrap();
        assert!(lines.iter().all(|l| l == "GET /page?x=1 HTTP/1.1"), "{:?}", lines.first());
    });
}

#[test]
fn an_interrupt_keeps_what_was_measured() {
    steady(|| {
        let (url, _) = serve(Duration::ZERO);
        let dir = tempfile::tempdir().unwrap();
        let args = [&["measure", &url, "--rates", "100,200", "--json", "--out", "run"], &SHORT[..]]
            .concat();
        // It would go on for the budget: the width cannot be reached.
        let long = ["--half-width", "0.001%", "--repeat", "1"];
        let child = command(dir.path(), &[&args[..], &long].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let steps = dir.path().join("run/steps");
        let begun = Instant::now();
        while std::fs::read(&steps).map_or(0, |s| s.iter().filter(|&&b| b == b'\n').count()) < 3 {
            assert!(begun.elapsed() < Duration::from_secs(50), "no steps came");
            std::thread::sleep(Duration::from_millis(20));
        }
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(measured["ended"], "interrupted");
        let kept = measured["points"].as_array().unwrap();
        assert_eq!(kept.len(), 2);
        kept.iter().for_each(sound);
        assert!(RunFolder::read(&dir.path().join("run")).unwrap().steps.len() >= 3);
    });
}

/// One command from question to answer: what the service is, how well an unseen load was predicted,
/// and what other loads will be like.
#[test]
fn other_loads_are_predicted_from_what_was_measured() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        let (url, _) = serve(Duration::from_millis(2));
        let args = "--json --out run --fixed --rates 100,150,200 --repeat 2 --duration 1500ms \
            --warmup 100ms --window 20ms --budget 15s --predict 2x,100000/s --within 5ms,20ms";
        let all: Vec<&str> = ["measure", &url].into_iter().chain(args.split_whitespace()).collect();
        let output = concertina(dir.path(), &all);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let measured: Value = serde_json::from_slice(&output.stdout).unwrap();
        let prediction = &measured["prediction"];
        let lines: Vec<&str> =
            prediction["lines"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(lines.len() >= 3 && lines[0].starts_with("Learnt"), "{lines:?}");
        // Where the machine stands still a load does not settle, or the fit is wrong and says so.
        let is_good = lines.len() == 3 && lines[1].starts_with("Checked up to ");
        in_time(is_good && lines[2].contains("past saturation"), format_args!("{lines:?}"));
        let predicted = prediction["predicted"].as_array().unwrap();
        assert_eq!(predicted.len(), 4);
        let share = |i: usize| predicted[i]["share"][0].as_f64().unwrap();
        assert!(predicted[0]["rate"] == 200.0 && predicted[2]["share"].is_null(), "{predicted:?}");
        assert!(share(0) <= share(1), "{predicted:?}");
        in_time(share(1) > 0.5, format_args!("{predicted:?}"));
        // The generator recorded when each request was sent and answered.
        let run = RunFolder::read(&dir.path().join("run")).unwrap();
        let recorded: usize = run.times.iter().map(|t| t.len()).sum();
        let arrived: u64 = run.windows.iter().map(|w| w.arrivals).sum();
        assert!(recorded as u64 + 20 > arrived, "{recorded} of {arrived}");
        let predict = concertina(dir.path(), &["predict", "run/model.toml", "--rate", "150"]);
        assert!(predict.status.success(), "{}", String::from_utf8_lossy(&predict.stderr));
    });
    let dir = tempfile::tempdir().unwrap();
    for (args, word) in [(["--predict", "2"], "2x"), (["--within", "5ms"], "--predict")] {
        let all = [&["measure", "http://127.0.0.1:1"][..], &args].concat();
        let output = concertina(dir.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{error}");
    }
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let gone = free();
    let gone = format!("http://{gone}");
    std::fs::create_dir(dir.path().join("taken")).unwrap();
    std::fs::write(dir.path().join("taken/run.toml"), "").unwrap();
    for (args, words) in [
        (&["--rates", "1,2", "--budget", "10s"][..], "longer than the budget of 10 s"),
        (&["--rates", "1"][..], "is the service running there?"),
        (&["--rates", "1", "--clients", "1"][..], "cannot be used with"),
        (&["--rates", "NaN"][..], "rate NaN"),
        (&["--shares", "3"][..], "invalid share 3 of the saturation"),
        (&["--half-width", "0%", "--rates", "1"][..], "invalid share"),
        (&["--rates", "1", "--out", "taken"][..], "already contains a run"),
        (&["--rates", "1", "--fixed", "--fill"][..], "a fixed URL"),
        (&["--rates", "1", "--multi-get", "3"][..], "gets of several keys require memcached://"),
    ] {
        let mut all = vec!["measure", &gone];
        if !args.contains(&"--out") {
            all.extend(["--out", "run"]);
        }
        let failed = concertina(dir.path(), &[&all[..], args].concat());
        let error = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(!failed.status.success() && error.contains(words), "{args:?}: {error}");
    }
    assert!(!dir.path().join("run").exists());
    let other = concertina(dir.path(), &["measure", "ftp://127.0.0.1:1", "--rates", "1"]);
    let error = String::from_utf8_lossy(&other.stderr).into_owned();
    assert!(
        error.contains("http://, https://, s3://, memcached:// and file:// are supported"),
        "{error}"
    );
}

#[test]
fn nginx_is_measured() {
    steady(|| {
        const TEST: &str = "measure::nginx_is_measured";
        if Command::new("nginx").arg("-v").output().is_err() {
            return left_out(TEST, "nginx cannot be run (apt-get install nginx-light)");
        }
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let port = free().port();
        std::fs::create_dir(dir.path().join("img")).unwrap();
        for i in 0..20 {
            std::fs::write(dir.path().join(format!("img/{i}.bin")), vec![b'x'; 1000]).unwrap();
        }
        let conf = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/log; events {{}}\n\
         http {{ access_log off; client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; \
         fastcgi_temp_path {at}/t3; uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5; \
         server {{ listen 127.0.0.1:{port}; root {at}; }} }}\n"
        );
        std::fs::write(dir.path().join("nginx.conf"), conf).unwrap();
        let nginx = Command::new("nginx")
            .arg("-c")
            .arg(dir.path().join("nginx.conf"))
            .args(["-e", &format!("{at}/log")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let _nginx = Running(nginx);
        let url = format!("http://127.0.0.1:{port}/img/{{key}}.bin");
        let what = ["--key-format", "{i}", "--count", "20", "--rates", "200", "--repeat", "2"];
        let measured = measure(dir.path(), &url, &[&what[..], &["--half-width", "99%"]].concat());
        let point = &measured["points"][0];
        sound(point);
        assert_eq!(point["errors"], 0, "{measured:#}");
        let off = value(&point["throughput"]) / 200.0 - 1.0;
        in_time(off.abs() < 0.3, format_args!("{measured:#}"));
        let check = concertina(dir.path(), &["check", "run", "--tolerance", "50%"]);
        // Laws compare times; half a second of a machine that stands still breaks them.
        in_time(check.status.success(), String::from_utf8_lossy(&check.stdout));
    });
}
