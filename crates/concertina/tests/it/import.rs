//! Import of other services' logs, through the binary: a known stream is written as a log and read back.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use ground::window::{Histogram, Outcome};
use model::queue::{Mmm, Queue as _};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use record::RunFolder;
use serde_json::Value;

use crate::report::exponential;

const START_S: f64 = 1_795_320_900.0;
const RATE: f64 = 60.0;
const SERVICE_S: f64 = 0.01;
const LENGTH_S: f64 = 120.0;

/// The responses of an M/M/1 queue: (arrival, end) in seconds from the start, in the order of their ends.
fn stream(seed: u64, rate: f64) -> Vec<(f64, f64)> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut at, mut free, mut all) = (0.0f64, 0.0f64, Vec::new());
    while at < LENGTH_S {
        at += exponential(&mut random, 1.0 / rate);
        free = at.max(free) + exponential(&mut random, SERVICE_S);
        all.push((at, free));
    }
    all
}

/// As nginx writes it: both ends of a request are read from a clock of milliseconds.
fn nginx_log(all: &[(f64, f64)]) -> String {
    let ms = |s: f64| ((START_S + s) * 1e3).floor() as u64;
    let mut text = String::new();
    for (start, end) in all {
        let (start, end) = (ms(*start), ms(*end));
        let took = end - start;
        writeln!(
            text,
            "{}.{:03} 200 {}.{:03} 512 \"GET /x HTTP/1.1\"",
            end / 1000,
            end % 1000,
            took / 1000,
            took % 1000
        )
        .unwrap();
    }
    text
}

const FORMAT: &str = "$msec $status $request_time $body_bytes_sent \"$request\"";

/// What iostat says of a disk that makes all of these reads, each second.
fn iostat(all: &[(f64, f64)]) -> String {
    let mut text = String::new();
    for second in 0..LENGTH_S as u64 {
        let (from, to) = (second as f64, second as f64 + 1.0);
        let inside: Vec<_> = all.iter().filter(|r| (from..to).contains(&r.1)).collect();
        let reads = inside.len() as f64;
        let await_ms = inside.iter().map(|r| (r.1 - r.0) * 1e3).sum::<f64>() / reads.max(1.0);
        let busy = reads * SERVICE_S * 100.0;
        // 1795320900 is 2026-11-22T04:15:00Z; the time of a report is its end.
        let end = 15 * 60 + second + 1;
        writeln!(text, "2026-11-22T04:{:02}:{:02}+0000", end / 60, end % 60).unwrap();
        writeln!(text, "Device r/s rkB/s r_await w/s w_await aqu-sz %util").unwrap();
        writeln!(text, "loop0 9.00 1.00 1.00 0.00 0.00 0.00 1.00").unwrap();
        writeln!(text, "sda {reads:.2} 100.00 {await_ms:.2} 0.00 0.00 0.50 {busy:.2}\n").unwrap();
    }
    text
}

fn concertina(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output().unwrap()
}

fn succeeds(dir: &Path, args: &[&str]) -> Value {
    let output = concertina(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {error}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

fn fails(dir: &Path, args: &[&str], words: &[&str]) {
    let output = concertina(dir, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && !error.contains("panicked"), "{args:?}: {error}");
    for word in words {
        assert!(error.contains(word), "{args:?}: {error:?} does not say {word:?}");
    }
}

#[test]
fn a_log_of_a_known_queue_gives_its_windows() {
    let dir = tempfile::tempdir().unwrap();
    let all = stream(1, RATE);
    std::fs::write(dir.path().join("a.log"), nginx_log(&all)).unwrap();
    let args = ["import", "--access-log", "a.log", "--log-format", FORMAT, "--out", "r", "--json"];
    let summary = succeeds(dir.path(), &args);
    assert_eq!(summary["requests"], all.len());
    assert_eq!(summary["imported"]["resolution_s"], 0.001);
    let run = RunFolder::read(&dir.path().join("r")).unwrap();
    let (mut responses, mut length, mut arrivals) = (Histogram::default(), 0.0, 0);
    for window in &run.windows {
        window.times.iter().for_each(|t| responses.merge(&t.response));
        length += window.length_integral_s;
        arrivals += window.arrivals;
    }
    let tick = 0.001;
    let mut exact: Vec<f64> = all.iter().map(|r| r.1 - r.0).collect();
    exact.sort_by(f64::total_cmp);
    let n = exact.len() as f64;
    let mean = exact.iter().sum::<f64>() / n;
    assert!((responses.mean_s() - mean).abs() < 0.05 * tick, "{} {mean}", responses.mean_s());
    for p in [0.1, 0.25, 0.5, 0.75, 0.9, 0.99] {
        let (quantile, exact) = (responses.quantile_s(p).unwrap(), exact[(p * n) as usize]);
        assert!((quantile - exact).abs() < tick + exact / 128.0, "{p}: {quantile} {exact}");
    }
    assert!(arrivals as usize + 3 >= all.len(), "{arrivals} of {}", all.len());
    // Little's law: the integral is the sum of the responses.
    assert!((length / (n * mean) - 1.0).abs() < 0.01, "{length}");
    // Poisson arrivals stay Poisson, as far as milliseconds say.
    let mut dispersion = ground::window::Dispersion::default();
    run.windows.iter().for_each(|w| dispersion.merge(&w.dispersion));
    assert!((dispersion.index().unwrap() - 1.0).abs() < 0.2, "{dispersion:?}");
    let step = &run.steps[0];
    assert!((step.rate.unwrap() / RATE - 1.0).abs() < 0.05);
    // Clients alone are no model, and the error says what is missing.
    fails(dir.path(), &["fit", "r"], &["device queues", "--iostat FILE", "--servers N"]);
}

/// A log of three servers, 40 ms each at the mean, that get one load after the other for 300 s each.
fn pool_log(seed: u64, loads: &[f64]) -> String {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut free, mut all) = ([0.0f64; 3], Vec::new());
    for (i, rate) in loads.iter().enumerate() {
        let mut at = 300.0 * i as f64;
        loop {
            at += exponential(&mut random, 1.0 / rate);
            if at > 300.0 * (i + 1) as f64 {
                break;
            }
            let first = (0..3).min_by(|&a, &b| free[a].total_cmp(&free[b])).unwrap();
            free[first] = at.max(free[first]) + exponential(&mut random, 0.04);
            all.push((at, free[first]));
        }
    }
    // Lines are written when requests end.
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    nginx_log(&all)
}

/// The way that docs/import.md shows: a log, a fit to its responses alone, a prediction at a load that was held out.
#[test]
fn a_log_alone_is_fitted_and_predicts_a_load_that_was_held_out() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("a.log"), pool_log(4, &[22.0, 45.0, 60.0, 67.0])).unwrap();
    let import = ["import", "--access-log", "a.log", "--log-format", FORMAT];
    let summary =
        succeeds(path, &[&import[..], &["--steps", "300s", "--out", "r", "--json"]].concat());
    // Nothing is cut off at the ends of the log.
    assert_eq!(summary["steps"].as_array().map(Vec::len), Some(4), "{summary}");
    let left_out = summary["left_out"].as_u64().unwrap();
    assert!(left_out <= 2, "{summary}");
    let fit = ["fit", "r", "--hold-out", "3", "--out", "m.toml"];
    let fitted = succeeds(path, &[&fit[..], &["--servers", "3", "--json"]].concat());
    let found = &fitted["servers"];
    assert!(found["given"] == true && found["likeliest"] == 3, "{found}");
    let held_out = fitted["held_out"].as_array().unwrap();
    let errors = held_out.iter().map(|h| h["error_points"].as_f64().unwrap().abs());
    let worst = errors.fold(0.0, f64::max);
    println!("worst error on the held-out load: {worst:.1} points");
    assert!(!held_out.is_empty() && worst < 5.0, "{held_out:?}");
    let first = &fitted["hypotheses"][0];
    assert!(first["discipline"] == "fifo" && first["servers"] == 3, "{first}");
    assert!((first["work"]["value"].as_f64().unwrap() / 0.04 - 1.0).abs() < 0.03, "{first}");
    assert!(fitted["misfit"].is_null() && fitted["known"]["requests"].as_u64() > Some(30_000));
    let predict = ["predict", "m.toml", "--rate", "67", "--within", "100ms", "--json"];
    let predicted = succeeds(path, &predict);
    let point = &predicted["predictions"][0]["points"][0]["concertina"];
    let exact = Mmm::new(67.0, 25.0, 3).unwrap().response_cdf(0.1);
    let value = point["value"].as_f64().unwrap();
    assert!((value - exact).abs() < 0.07, "{value} {exact}");
    assert!(point["low"].as_f64().unwrap() < value, "{point}");
    // Without the number the works of requests say it, and by how much.
    let output = concertina(path, &[&fit[..], &["--servers", "auto"]].concat());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Servers: 3 ") && text.contains("95 % interval 3 to 3"), "{text}");
    let table = text.lines().skip_while(|line| !line.starts_with("the service may be"));
    let rows: Vec<&str> = table.take(3).collect();
    assert!(rows[1..].iter().any(|r| r.starts_with("3 servers, first come")), "{text}");
    // One server was not it, and that is said.
    let one = succeeds(path, &[&fit[..], &["--servers", "1", "--json"]].concat());
    assert!(one["misfit"].as_str().is_some_and(|why| why.contains("work than the rest")), "{one}");
    // Without the times of single requests the responses alone are fitted.
    std::fs::remove_file(path.join("r/times")).unwrap();
    let alone = succeeds(path, &[&fit[..], &["--servers", "3", "--json"]].concat());
    assert!(alone["hypotheses"].is_null() && alone["servers"]["likeliest"] == 3, "{alone}");
    fails(path, &[&fit[..], &["--servers", "1"]].concat(), &["saturate"]);
    fails(path, &[&fit[..], &["--servers", "none"]].concat(), &["auto"]);
}

#[test]
fn a_log_and_iostat_are_fitted_with_their_resolution() {
    let dir = tempfile::tempdir().unwrap();
    let all = stream(2, RATE);
    std::fs::write(dir.path().join("a.log"), nginx_log(&all)).unwrap();
    std::fs::write(dir.path().join("io"), iostat(&all)).unwrap();
    let args = [
        "import",
        "--access-log",
        "a.log",
        "--log-format",
        FORMAT,
        "--iostat",
        "io",
        "--out",
        "r",
        "--steps",
        "30s",
        "--json",
    ];
    let summary = succeeds(dir.path(), &args);
    assert_eq!(summary["steps"].as_array().unwrap().len(), 4, "{}", summary["steps"]);
    let run = RunFolder::read(&dir.path().join("r")).unwrap();
    let device = |w: &ground::window::Window| w.queue == "device/0";
    assert!(run.windows.iter().any(device));
    let times = run.windows.iter().flat_map(|w| &w.times);
    assert!(times.clone().any(|t| t.outcome == Outcome::BulkDevice));
    let fitted = succeeds(dir.path(), &["fit", "r", "--out", "m.toml", "--json"]);
    let text = fitted.to_string();
    for words in ["known to ±1 ms", "points at 20 ms", "assumed exponential", "device/0 is sda"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    // Every request reads, by exponential service of 10 ms.
    let model = std::fs::read_to_string(dir.path().join("m.toml")).unwrap();
    let model = model::Model::from_toml(&model).unwrap();
    let service = &model.classes[0].service;
    assert!((service.mean.value / SERVICE_S - 1.0).abs() < 0.05, "{}", service.mean.value);
    assert!((service.scv.value - 1.0).abs() < 0.15, "{}", service.scv.value);
    assert!(model.requests.q0.value < 0.05, "{}", model.requests.q0.value);
    for step in &model.fitted {
        assert!(step.ks_distance < 0.12, "{}: {}", step.name, step.ks_distance);
    }
    succeeds(dir.path(), &["report", "r", "m.toml", "--no-what-if", "--out", "r.html"]);
}

/// The same stream, written with fewer decimals: the fit knows less, and so do predictions.
#[test]
fn a_coarser_log_gives_wider_intervals() {
    let dir = tempfile::tempdir().unwrap();
    let all = stream(4, RATE);
    std::fs::write(dir.path().join("io"), iostat(&all)).unwrap();
    let log = |name: &str, digits: usize| {
        let mut text = String::new();
        for (start, end) in &all {
            let unit = 10f64.powi(digits as i32);
            let cut = |s: f64| ((START_S + s) * unit).floor() / unit;
            let (start, end) = (cut(*start), cut(*end));
            let took = end - start;
            writeln!(text, "{end:.digits$} 200 {took:.digits$} 512 \"GET /x HTTP/1.1\"").unwrap();
        }
        std::fs::write(dir.path().join(name), text).unwrap();
        let io = ["--iostat", "io", "--steps", "30s", "--out", &format!("run-{name}"), "--json"];
        let args = ["import", "--access-log", name, "--log-format", FORMAT];
        succeeds(dir.path(), &[&args[..], &io].concat());
        let model = format!("{name}.toml");
        succeeds(dir.path(), &["fit", &format!("run-{name}"), "--out", &model, "--json"]);
        let text = std::fs::read_to_string(dir.path().join(model)).unwrap();
        model::Model::from_toml(&text).unwrap()
    };
    let (fine, coarse) = (log("ms", 3), log("cs", 2));
    let width = |p: &model::Parameter| p.high - p.low;
    let delay = |m: &model::Model| m.requests.front_delay.clone();
    // Half a tick on either side, less what is below no delay at all.
    assert!(
        delay(&coarse).high - delay(&coarse).value > 0.95 * 0.005 - 1e-9,
        "{:?}",
        delay(&coarse)
    );
    assert!(width(&delay(&coarse)) > 2.0 * width(&delay(&fine)), "{:?}", delay(&fine));
    // A clock of a second (iostat's) at the ends of steps of 30 s.
    let edge = 0.95 / 30.0 * (1.0 - fine.requests.q0.value);
    assert!(fine.requests.q0.high - fine.requests.q0.value > edge - 1e-9, "{:?}", fine.requests.q0);
    let share = |m: &model::Model| m.predict(RATE, &[0.02]).unwrap().points[0].concertina.clone();
    assert!(width(&share(&coarse)) > 1.2 * width(&share(&fine)), "{:?}", share(&coarse));
}

/// Logs of other programs, without an option: two servers are found in each, in its own unit and from its own end of a request.
#[test]
fn logs_of_other_programs_are_recognised_and_fitted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let mut random = StdRng::seed_from_u64(12);
    let (mut free, mut all, mut at) = ([0.0f64; 2], Vec::new(), 0.0f64);
    for rate in [60.0, 100.0, 140.0] {
        let until = at + 60.0;
        while at < until {
            at += exponential(&mut random, 1.0 / rate);
            let first = usize::from(free[1] < free[0]);
            free[first] = at.max(free[first]) + exponential(&mut random, SERVICE_S);
            all.push((at, free[first]));
        }
    }
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (mut caddy, mut vegeta, mut apache) = (String::new(), String::new(), String::new());
    for (start, end) in &all {
        let us = |s: f64| ((START_S + s) * 1e6) as u64;
        let (start, end) = (us(*start), us(*end));
        let took = end - start;
        writeln!(
            caddy,
            "{{\"ts\":{}.{:06},\"request\":{{\"method\":\"GET\",\"uri\":\"/x\"}},\"duration\":{}.{:06},\"status\":200}}",
            end / 1_000_000, end % 1_000_000, took / 1_000_000, took % 1_000_000
        )
        .unwrap();
        writeln!(vegeta, "{start}000,200,{took}000,0,5,,,atk,0,GET,http://x/x,").unwrap();
        // 1795320900 is 2026-11-22T04:15:00Z.
        let s = start / 1_000_000 - 1_795_320_900 + 15 * 60;
        let time = format!("22/Nov/2026:04:{:02}:{:02} +0000", s / 60, s % 60);
        writeln!(apache, "::1 - - [{time}] \"GET /x HTTP/1.1\" 200 5 \"-\" \"c\" {took}").unwrap();
    }
    for (name, text, unit, stamp) in [
        ("caddy", caddy, "s", "end"),
        ("vegeta", vegeta, "ns", "start"),
        ("apache", apache, "us", "start"),
    ] {
        std::fs::write(path.join(name), text).unwrap();
        let summary = succeeds(
            path,
            &["import", name, "--steps", "20s", "--out", &format!("r-{name}"), "--json"],
        );
        let file = &summary["files"][0];
        assert_eq!(
            (file["unit"].as_str(), file["stamp"].as_str()),
            (Some(unit), Some(stamp)),
            "{file}"
        );
        assert_eq!(summary["requests"], all.len(), "{name}");
        if name == "apache" {
            // Its stamps are whole seconds: what can be known is said.
            let notes = summary["imported"]["notes"].to_string();
            assert!(notes.contains("coarser than the median response"), "{notes}");
            continue;
        }
        let fit = ["fit", &format!("r-{name}"), "--servers", "auto", "--json"];
        let fitted = succeeds(path, &fit);
        assert_eq!(fitted["servers"]["likeliest"], 2, "{name}: {}", fitted["servers"]);
    }
    let filtered = ["import", "caddy", "--status", "404", "--out", "none"];
    fails(path, &filtered, &["leave none"]);
    fails(path, &["import", "caddy", "--status", "ok", "--out", "none"], &["--status ok", "2xx"]);
    fails(
        path,
        &["import", "caddy", "--fields", "colour=x", "--out", "none"],
        &["`colour`", "end"],
    );
}

#[test]
fn what_cannot_be_imported_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    std::fs::write(path.join("a.log"), "garbage\n").unwrap();
    std::fs::write(path.join("a.gz"), [0x1f, 0x8b, 0, 0]).unwrap();
    let log = |format, words: &[&str]| {
        let args = ["import", "--access-log", "a.log", "--log-format", format, "--out", "r"];
        fails(path, &args, words);
    };
    log("$msec $request_time", &["a.log: 1 of 1 lines", "line 1", "--log-format"]);
    log("$status", &["$msec"]);
    fails(path, &["import", "--out", "r"], &["nothing to import"]);
    fails(path, &["import", "--access-log", "none", "--out", "r"], &["cannot read none"]);
    fails(path, &["import", "a.gz", "--out", "r"], &["cannot read a.gz"]);
    let both = ["import", "--access-log", "a.log", "--prometheus", "p", "--out", "r"];
    fails(path, &both, &["both describe the clients' side"]);
    fails(path, &["import", "--iostat", "a.log", "--out", "r"], &["no device with reads"]);
    assert!(!path.join("r").exists(), "a failed import leaves no run");
}

#[test]
fn prometheus_and_iostat_are_fitted_by_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let all = stream(3, RATE);
    let edges = [0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 1.0, f64::INFINITY];
    let series = edges.map(|edge| {
        let le = if edge.is_infinite() { "+Inf".to_owned() } else { edge.to_string() };
        let values: Vec<Value> = (0..=(LENGTH_S as u64) / 5)
            .map(|i| {
                let at = i as f64 * 5.0;
                let count = all.iter().filter(|r| r.1 <= at && r.1 - r.0 <= edge).count();
                serde_json::json!([START_S + at, count.to_string()])
            })
            .collect();
        serde_json::json!({"metric": {"le": le}, "values": values})
    });
    let answer = serde_json::json!({"status": "success",
        "data": {"resultType": "matrix", "result": series}});
    std::fs::write(dir.path().join("p.json"), answer.to_string()).unwrap();
    std::fs::write(dir.path().join("io"), iostat(&all)).unwrap();
    let args = ["import", "--prometheus", "p.json", "--iostat", "io", "--out", "r", "--json"];
    let summary = succeeds(dir.path(), &args);
    assert_eq!(summary["imported"]["edges_s"].as_array().unwrap().len(), 7);
    let text = succeeds(dir.path(), &["fit", "r", "--out", "m.toml", "--json"]).to_string();
    assert!(text.contains("known by bucket only") && text.contains("0 points at 20 ms"), "{text}");
}

/// A log of one server, a load after the other for 150 s each: gets take 10 ms, and a share of puts 40 ms at the mean.
fn log_of_gets_and_puts(seed: u64, loads: &[f64], puts: f64) -> (Vec<(f64, f64)>, String) {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut free, mut all, mut text) = (0.0f64, Vec::new(), String::new());
    for (i, rate) in loads.iter().enumerate() {
        let mut at = 150.0 * i as f64;
        loop {
            at += exponential(&mut random, 1.0 / rate);
            if at > 150.0 * (i + 1) as f64 {
                break;
            }
            let put = random.random::<f64>() < puts;
            free = at.max(free) + exponential(&mut random, if put { 0.04 } else { 0.01 });
            let (end, took) = (START_S + free, free - at);
            let (method, bytes) = if put { ("PUT", 0) } else { ("GET", 3_000) };
            writeln!(text, "{end:.6} 200 {took:.6} {bytes} \"{method} /x HTTP/1.1\"").unwrap();
            all.push((at, free));
        }
    }
    (all, text)
}

/// `predict --mix` of a log that has one mix, against another log with another.
#[test]
fn a_log_of_one_mix_predicts_another() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    // A put in ten: 76.9/s saturate the server; half puts: 40/s.
    let (_, text) = log_of_gets_and_puts(8, &[25.0, 35.0, 45.0, 45.0], 0.1);
    std::fs::write(path.join("a.log"), text).unwrap();
    let import = ["import", "--access-log", "a.log", "--log-format", FORMAT];
    succeeds(path, &[&import[..], &["--steps", "150s", "--out", "r", "--json"]].concat());
    let fitted = succeeds(path, &["fit", "r", "--servers", "auto", "--out", "m.toml", "--json"]);
    assert_eq!(fitted["kinds"].as_array().map(Vec::len), Some(2), "{}", fitted["kinds"]);
    let predict = ["predict", "m.toml", "--rate", "30", "--within", "50ms,200ms", "--json"];
    let mix = ["--mix", "get=50%, put=50%"];
    let predicted = succeeds(path, &[&predict[..], &mix].concat());
    let (judged, _) = log_of_gets_and_puts(9, &[30.0; 40], 0.5);
    for point in predicted["predictions"][0]["points"].as_array().unwrap() {
        let t = point["t_s"].as_f64().unwrap();
        let share = judged.iter().filter(|r| r.1 - r.0 <= t).count() as f64 / judged.len() as f64;
        let [value, low, high] =
            ["value", "low", "high"].map(|of| point["concertina"][of].as_f64().unwrap());
        println!("within {t} s: {value:.3} [{low:.3}, {high:.3}], {share:.3} in the other log");
        assert!((value - share).abs() < 0.06 && low <= value && value <= high, "{point} {share}");
    }
    let saturation = predicted["saturation"].as_f64().unwrap();
    assert!((saturation / 40.0 - 1.0).abs() < 0.08, "{saturation}");
    let text = predicted["warnings"].to_string();
    assert!(text.contains("Of another mix than was measured"), "{text}");
    for (mix, words) in [
        ("get=50%", "add up to 0.5"),
        ("get=1,put", "write it like"),
        ("fetch=1", "one of get, multi_get"),
        ("get 1MiB=1", "nothing is known of get of 1048576 bytes"),
        ("delete=1", "measured were"),
    ] {
        fails(path, &["predict", "m.toml", "--mix", mix], &[words]);
    }
}
