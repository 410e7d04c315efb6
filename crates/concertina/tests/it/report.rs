//! Fit, predict and report, through the binary, on simulated run folders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::left_out::left_out;
use ground::window::{Finished, Nanos, Operation, Outcome, Recorder, SECOND, Settings};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use record::{Generator, Host, Machine, Run, RunWriter, Step};
use serde_json::Value;

/// When the simulated laboratory began, in microseconds since 1970.
pub const START_US: u64 = 1_760_000_000_000_000;
const DEVICES: usize = 8;
/// Mean service time of a device, seconds; exponential.
const SERVICE_S: f64 = 0.005;
/// Share of requests that memory answers.
const HITS: f64 = 0.6;
const STEP_S: u64 = 24;
/// Loads of 25, 50 and 80 % utilisation: λ(1−q)s̄/n.
const RATES: [f64; 3] = [1000.0, 2000.0, 3200.0];

/// A queue's event: when, and what the recorder is told.
pub enum Event {
    Arrive,
    Start,
    Finish(Finished),
}

/// Two run folders, of a load generator and of a server, that share a sweep of rates.
pub struct Lab {
    dir: tempfile::TempDir,
}

pub fn machine() -> Machine {
    Machine {
        cores: 2,
        processor: "Simulated <b>CPU</b>".into(),
        memory_bytes: 8 << 30,
        kernel: "6".into(),
        ..Machine::default()
    }
}

fn run(kind: &str, laboratory: Option<&str>) -> Run {
    let asked = match kind {
        "load" => "note = '<script>alert(1)</script>'\n[load.open]\nrates = [1000.0]",
        _ => "devices = 8",
    };
    Run {
        format: 1,
        version: "0.1.0".into(),
        kind: kind.into(),
        start_unix_us: START_US,
        laboratory: laboratory.map(str::to_owned),
        machine: machine(),
        asked: asked.parse().unwrap(),
    }
}

pub fn exponential(random: &mut StdRng, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

pub fn nanos(seconds: f64) -> Nanos {
    (seconds * 1e9) as Nanos
}

/// The windows of a queue whose events are given in any order, from `from` for the length of a step.
pub fn windows(
    queue: &str,
    servers: u32,
    from: Nanos,
    mut events: Vec<(Nanos, Event)>,
) -> Vec<ground::window::Window> {
    let settings = Settings { unix_offset_ns: i128::from(START_US) * 1000, ..Settings::default() };
    let mut recorder = Recorder::new(queue, servers, settings, from);
    let mut all = Vec::new();
    events.sort_by_key(|(at, event)| (*at, matches!(event, Event::Start)));
    for (at, event) in events {
        all.extend(recorder.roll(at));
        match event {
            Event::Arrive => recorder.arrive(at),
            Event::Start => recorder.start(at),
            Event::Finish(finished) => recorder.finish(at, &finished),
        }
    }
    all.extend(recorder.roll(from + (STEP_S + 5) * SECOND));
    all
}

impl Lab {
    /// A sweep over [`RATES`]: Poisson arrivals, memory hits of 0.2 ms, devices of one exponential server.
    pub fn new(seed: u64) -> Lab {
        let lab = Lab { dir: tempfile::tempdir().unwrap() };
        let note = "Devices are profiled <i>(exponential)</i>.";
        let mut load = RunWriter::create(&lab.path("load"), &run("load", None)).unwrap();
        let mut server = RunWriter::create(&lab.path("server"), &run("serve", Some(note))).unwrap();
        let mut random = StdRng::seed_from_u64(seed);
        for (index, &rate) in RATES.iter().enumerate() {
            let from = (index as u64 * (STEP_S + 10) + 2) * SECOND;
            step(&mut random, rate, index, from, &mut load, &mut server);
        }
        load.flush().unwrap();
        server.flush().unwrap();
        lab
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs the binary in the laboratory's folder.
    fn concertina(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(args).current_dir(self.dir.path()).output().unwrap()
    }

    pub fn succeeds(&self, args: &[&str]) -> String {
        let output = self.concertina(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.succeeds(args)).unwrap()
    }

    /// Fails with one line that holds all of `words`.
    pub fn fails(&self, args: &[&str], words: &[&str]) {
        let output = self.concertina(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args:?} succeeded");
        assert!(!error.contains("panicked"), "{error}");
        for word in words {
            assert!(error.contains(word), "{args:?}: {error:?} does not say {word:?}");
        }
    }
}

fn step(
    random: &mut StdRng,
    rate: f64,
    index: usize,
    from: Nanos,
    load: &mut RunWriter,
    server: &mut RunWriter,
) {
    let mut client = Vec::new();
    let mut node = Vec::new();
    let mut devices: Vec<Vec<(Nanos, Event)>> = (0..DEVICES).map(|_| Vec::new()).collect();
    let mut free = [0.0f64; DEVICES];
    let mut at = from as f64 * 1e-9;
    // The two seconds before are a warm-up, which no step of a fit may see.
    let end = at + STEP_S as f64 + 2.0;
    while at < end {
        at += exponential(random, 1.0 / rate);
        let hit = random.random::<f64>() < HITS;
        let device = random.random_range(0..DEVICES);
        let (start, done) = match hit {
            true => (at, at + 0.0002),
            false => {
                let start = at.max(free[device]);
                free[device] = start + exponential(random, SERVICE_S);
                (start, free[device])
            }
        };
        let outcome = if hit { Outcome::Memory } else { Outcome::BulkDevice };
        let (arrived, started, done) = (nanos(at), nanos(start), nanos(done));
        let finished = |waiting| Finished {
            operation: Operation::Get,
            outcome,
            waiting,
            service: done - arrived - waiting,
            response: done - arrived,
            bytes: 1000,
        };
        let put = |into: &mut Vec<(Nanos, Event)>, started: Nanos| {
            into.push((arrived, Event::Arrive));
            into.push((started, Event::Start));
            into.push((done, Event::Finish(finished(started - arrived))));
        };
        put(&mut client, arrived);
        put(&mut node, arrived);
        if !hit {
            put(&mut devices[device], started);
        }
    }
    load.windows(&windows("load", 0, from, client)).unwrap();
    server.windows(&windows("node", 0, from, node)).unwrap();
    for (i, events) in devices.into_iter().enumerate() {
        server.windows(&windows(&format!("device/{i}"), 1, from, events)).unwrap();
    }
    for second in 0..STEP_S + 2 {
        let unix_us = unix_us(from + (second + 1) * SECOND);
        let host = Host { unix_us, length_s: 1.0, cpu_user: 0.2 + rate * 5e-5, ..Host::default() };
        server.host(&host).unwrap();
    }
    load.step(&recorded_step(index, rate, from)).unwrap();
}

fn unix_us(at: Nanos) -> u64 {
    START_US + at / 1000
}

fn recorded_step(index: usize, rate: f64, from: Nanos) -> Step {
    let complaints = match index {
        2 => vec!["the generator was <late>".to_owned()],
        _ => Vec::new(),
    };
    let generator = Generator {
        lateness_us_mean: 8.0,
        lateness_us_p99: 40.0,
        lateness_us_max: 300.0,
        complaints,
        ..Generator::default()
    };
    Step {
        index,
        rate: Some(rate),
        clients: None,
        start_unix_us: unix_us(from + 2 * SECOND),
        end_unix_us: unix_us(from + (STEP_S + 2) * SECOND),
        generator,
    }
}

/// P(T ≤ t) of the simulated laboratory: M/M/1 devices behind a memory.
fn exact(rate: f64, t: f64) -> f64 {
    let miss = rate * (1.0 - HITS) / DEVICES as f64;
    let mu = 1.0 / SERVICE_S;
    HITS + (1.0 - HITS) * (1.0 - (-(mu - miss) * t).exp())
}

#[test]
fn what_is_fitted_light_predicts_heavy_load() {
    let lab = Lab::new(1);
    // A run that was killed while it wrote.
    let cut = |name: &str| {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).open(lab.path(name));
        file.unwrap().write_all(b"{\"queue\":\"de").unwrap();
    };
    cut("server/windows");
    cut("load/steps");
    let fit = lab.succeeds(&["fit", "load", "server", "--steps", "0,2000/s"]);
    for word in
        ["EMULATED: Devices are profiled", "q₀", "SCV", "KS", "Confidence limit", "model.toml"]
    {
        assert!(fit.contains(word), "{word} is missing in\n{fit}");
    }
    let fit = lab.json(&["fit", "load", "server", "--steps", "0-1", "--json"]);
    assert_eq!(fit["fitted"].as_array().unwrap().len(), 2);
    let parameter = |name: &str| {
        let all = fit["parameters"].as_array().unwrap();
        let found = all.iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("{name}"));
        found["parameter"]["value"].as_f64().unwrap()
    };
    assert!((parameter("q₀") - HITS).abs() < 0.02);
    assert!((parameter("s̄ bulk_device") / SERVICE_S - 1.0).abs() < 0.03);

    assert_eq!(fit["held_out"], Value::Array(Vec::new()));
    assert_eq!(fit["trust"]["bias_points"], Value::Null);
    assert!((fit["trust"]["limit"].as_f64().unwrap() / 2020.0 - 1.0).abs() < 0.02);
    let limit = heavy_load_is_predicted(&lab);
    text_says_what_is_past_its_limits(&lab);
    let cluster =
        lab.json(&["predict", "model.toml", "--rate", "20000", "--servers", "20", "--json"]);
    assert_eq!(cluster["predictions"][0]["servers"], 20);
    assert!(cluster["confidence_limit"].as_f64().unwrap() < 20.0 * limit);
    let report = lab.json(&["report", "load", "server", "model.toml", "--json"]);
    rows_are_right(report["rows"].as_array().unwrap(), limit);
    laws_hold(report["steps"][0]["measured"]["laws"].as_array().unwrap());
    let html = std::fs::read_to_string(lab.path("report.html")).unwrap();
    page(&html);
    browser(&lab.path("report.html"), &html);
    let short = ["report", "load", "server", "model.toml", "--no-what-if"];
    let table = lab.succeeds(&short);
    assert!(table.contains("the generator was <late>"), "{table}");
    has_no_what_if(&html, &std::fs::read_to_string(lab.path("report.html")).unwrap());
    lab.succeeds(&[&short[..], &["--within", "7ms", "--steps", "1"]].concat());
}

/// A report without what-if answers has everything else.
fn has_no_what_if(with: &str, without: &str) {
    assert!(with.contains("id=\"what-if\"") && with.contains("href=\"#what-if\""));
    assert!(!without.contains("what-if\""), "a link or a part of it is left");
    for part in ["id=\"overlay\"", "href=\"#overlay\"", "id=\"table\"", "id=\"model\""] {
        assert!(without.contains(part), "{part}");
    }
    assert!(without.len() < with.len() * 3 / 4, "{} of {} bytes", without.len(), with.len());
}

/// Returns the confidence limit.
fn heavy_load_is_predicted(lab: &Lab) -> f64 {
    let predicted = lab.json(&[
        "predict",
        "model.toml",
        "--rate",
        "3200,9000",
        "--within",
        "20ms,50ms,100ms",
        "--json",
        "--objective",
        "99% within 50ms",
        "--plot",
        "plot.svg",
    ]);
    let heavy = &predicted["predictions"][0];
    for (point, t) in heavy["points"].as_array().unwrap().iter().zip([0.02, 0.05, 0.1]) {
        let ours = point["concertina"]["value"].as_f64().unwrap();
        assert!((ours - exact(3200.0, t)).abs() < 0.03, "{t}: {ours} {}", exact(3200.0, t));
    }
    assert_eq!(heavy["beyond_limit"], true);
    assert_eq!(heavy["beyond_fitted"], true);
    assert_eq!(heavy["beyond_trust"], true);
    assert!(heavy["laboratory"].as_str().unwrap().contains("profiled"));
    let past = &predicted["predictions"][1];
    assert_eq!(past["stable"], false);
    assert!((past["saturation"].as_f64().unwrap() / 4000.0 - 1.0).abs() < 0.05);
    let limit = predicted["confidence_limit"].as_f64().unwrap();
    assert!((limit / 2000.0 - 1.0).abs() < 0.05, "{limit}: M/M/1 has its at half the saturation");
    let largest = &predicted["objectives"][0];
    let rate = largest["rate"]["value"].as_f64().unwrap();
    assert!((exact(rate, 0.05) - 0.99).abs() < 0.01);
    let plot = std::fs::read_to_string(lab.path("plot.svg")).unwrap();
    well_formed(&plot);
    assert!(plot.contains("confidence limit") && plot.contains("class=\"untrusted\""));
    limit
}

fn text_says_what_is_past_its_limits(lab: &Lab) {
    let text = lab.succeeds(&["predict", "model.toml", "--rate", "1000,3200,9000"]);
    for word in
        ["Past the confidence limit", "? past the loads", "unstable", "saturates at", "EMULATED"]
    {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    assert!(!text.contains("NaN"));
}

fn rows_are_right(rows: &[Value], limit: f64) {
    assert_eq!(rows.len(), RATES.len() * 3);
    for row in rows {
        let (rate, t) = (row["rate"].as_f64().unwrap(), row["within_s"].as_f64().unwrap());
        let measured = row["measured"]["value"].as_f64().unwrap();
        let half = row["measured"]["half_width"].as_f64().unwrap();
        assert!((measured - exact(rate, t)).abs() < 3.0 * half + 0.001, "{row}");
        let error = row["concertina_error_points"].as_f64().unwrap();
        let ours = row["concertina"]["value"].as_f64().unwrap();
        assert!((error - (ours - measured) * 100.0).abs() < 1e-9 && error.abs() < 4.0, "{row}");
        assert_eq!(row["used_for_fit"], rate < 2500.0);
        assert_eq!(row["beyond_limit"], rate > limit);
    }
    assert!(rows.iter().all(|row| row["beyond_trust"] == (row["rate"].as_f64() > Some(2500.0))));
}

fn laws_hold(laws: &[Value]) {
    let of = |law: &str| laws.iter().filter(|l| l["law"] == law).count();
    assert_eq!(of("little"), 3, "load, node and devices: {laws:?}");
    assert_eq!((of("utilisation"), of("demand_bound")), (1, 1), "{laws:?}");
    assert_eq!(of("forced_flow"), 2, "to the node, and to its devices: {laws:?}");
    for law in laws.iter().filter(|l| l["law"] != "demand_bound") {
        assert!(law["deviation_percent"].as_f64().unwrap().abs() < 1.0, "{law}");
        assert_eq!(law["verdict"], "holds");
    }
}

#[test]
fn steps_that_are_held_out_say_how_far_the_model_is_trusted() {
    let lab = Lab::new(3);
    let args = ["fit", "load", "server", "--hold-out", "1,3200/s", "--out", "held.toml"];
    let fit = lab.json(&[&args[..], &["--json"]].concat());
    assert_eq!(fit["fitted"].as_array().unwrap().len(), 1);
    let held = fit["held_out"].as_array().unwrap();
    assert_eq!(held.len(), 2 * 3, "two steps at three times");
    for row in held {
        let (rate, t) = (row["rate"].as_f64().unwrap(), row["within_s"].as_f64().unwrap());
        assert!(rate > 1500.0 && [0.02, 0.05, 0.1].contains(&t), "{row}");
        assert!(row["error_points"].as_f64().unwrap().abs() < 5.0, "{row}");
        assert!(row["half_width_points"].as_f64().unwrap() > 0.0, "{row}");
    }
    let limit = fit["trust"]["limit"].as_f64().unwrap();
    assert!(limit > 1500.0 && limit < 3400.0 && fit["trust"]["bias_points"].is_number());
    let text = lab.succeeds(&args);
    for word in ["Errors on held-out loads", "Checked up to", "off on 2 held-out loads"] {
        assert!(text.contains(word), "{word} is missing in\n{text}");
    }
    let near = format!("{},{}", limit * 0.98, limit * 1.02);
    let predicted = lab.json(&["predict", "held.toml", "--rate", &near, "--json"]);
    assert_eq!(predicted["predictions"][0]["beyond_trust"], false);
    assert_eq!(predicted["predictions"][1]["beyond_trust"], true);
    assert_eq!(predicted["trust_limit"], limit);
    let text = lab.succeeds(&["predict", "held.toml", "--rate", &near]);
    assert!(text.contains("? past the loads at which the model was checked"), "{text}");
    let report = lab.succeeds(&["report", "load", "server", "held.toml", "--no-what-if"]);
    assert!(
        report.contains("Checked      Checked up to") && report.contains("?: past"),
        "{report}"
    );
    answers(&lab, &report);
    lab.fails(&["fit", "load", "server", "--hold-out", "0-2"], &["all steps are held out"]);
    lab.fails(&["fit", "load", "server", "--hold-out", "9"], &["no step 9", "0 (1000/s)"]);
    let missing = ["fit", "load", "server", "--steps", "0,1", "--hold-out", "3200/s"];
    lab.fails(&missing, &["no step of 3200/s"]);
}

/// The report opens with the answer, and its tables and plots are files.
fn answers(lab: &Lab, report: &str) {
    let names = ["Asked", "Answer", "Breaks first", "More load", "Checked", "Next"];
    let verdict: Vec<&str> = report.lines().skip_while(|line| !line.starts_with("Asked")).collect();
    for (line, name) in verdict.iter().zip(names) {
        assert!(line.starts_with(name) && line.ends_with('.') | line.ends_with('?'), "{line}");
    }
    assert!(report.contains("p99") && report.contains("95 % interval"), "{report}");
    let options = [
        "--within",
        "20ms,50ms:95%",
        "--objective",
        "p90<30ms",
        "--csv",
        "tables",
        "--plots",
        "plots",
    ];
    let held = ["report", "load", "server", "held.toml", "--no-what-if"];
    let text = lab.succeeds(&[&held[..], &options].concat());
    assert!(text.contains("90 % within 30 ms, or 95 % within 50 ms?"), "{text}");
    numbers_are_short(&text);
    for name in
        ["shares", "percentiles", "steps", "parameters", "fitted", "held-out", "objectives", "laws"]
    {
        let csv = std::fs::read_to_string(lab.path(&format!("tables/{name}.csv"))).unwrap();
        let mut lines = csv.lines();
        assert_eq!(lines.next(), Some(format!("# concertina report: {name}").as_str()));
        let columns = lines.next().unwrap().split(',').count();
        assert!(columns > 4 && lines.next().is_some(), "{csv}");
    }
    let shares = std::fs::read_to_string(lab.path("tables/shares.csv")).unwrap();
    assert_eq!(shares.lines().count(), 2 + RATES.len() * 2, "{shares}");
    for name in ["within-1", "errors-2", "memory", "distribution-3", "lateness", "hosts"] {
        well_formed(&std::fs::read_to_string(lab.path(&format!("plots/{name}.svg"))).unwrap());
    }
    // What is there and was not written here stays.
    std::fs::write(lab.path("tables/laws.csv"), "mine").unwrap();
    let again = [&held[..], &["--csv", "tables"]].concat();
    lab.fails(&again, &["laws.csv", "another kind of file"]);
}

/// No number of a text for people has more than eight significant digits.
fn numbers_are_short(text: &str) {
    for word in text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ',')) {
        let digits: String = word.chars().filter(char::is_ascii_digit).collect();
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        assert!(significant.len() <= 8, "{word} in\n{text}");
    }
}

/// A report that can be mailed: complete, nothing loaded, nothing of the inputs let through.
fn page(html: &str) {
    assert!(html.starts_with("<!doctype html>"));
    // The data, and the script that reads it: page_report.rs opens them in a browser.
    let (before, scripts) = html.split_once("<script").unwrap();
    let (scripts, after) = scripts.rsplit_once("</script>").unwrap();
    assert_eq!(scripts.matches("<script").count(), 1, "text of a run became an element");
    assert!(before.contains("script-src 'sha256-") && !before.contains("script-src 'unsafe"));
    let html = &(before.to_owned() + after);
    for loaded in ["src=", "href=\"http", "url(", "@import", "<script", "<link", "<iframe"] {
        assert!(!html.contains(loaded), "{loaded} in the report");
    }
    assert!(!html.contains("NaN") && !html.contains("<b>CPU") && !html.contains("<i>("));
    for word in [
        "Emulated devices",
        "Fraction served within 50 ms",
        "confidence limit",
        "&lt;late&gt;",
        "concertina fit load server",
        "prefers-color-scheme",
        "Little",
    ] {
        assert!(html.contains(word), "{word} is missing");
    }
    assert_eq!(html.matches("<figure>").count(), 3 + 3 + 1 + 3 + 2);
    let body = html.split_once("<body>").unwrap().1.replace("<br>", "");
    well_formed(&format!("<body>{}", body.split_once("</html>").unwrap().0));
}

/// Opens the report in a browser: it shows every figure, and asks for nothing.
fn browser(path: &Path, html: &str) {
    let profile = tempfile::tempdir().unwrap();
    let shot = profile.path().join("report.png");
    let run = Command::new("chromium")
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("--screenshot={}", shot.display()))
        .args(["--window-size=1200,4000", "--dump-dom"])
        .arg(format!("file://{}", path.display()))
        .output();
    let Ok(output) = run else {
        return left_out("report::browser", "chromium is not installed");
    };
    let dom = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(dom.matches("<svg").count(), html.matches("<svg").count());
    let drawn = std::fs::metadata(shot).map(|png| png.len()).unwrap_or(0);
    assert!(drawn > 50_000, "the page as drawn takes {drawn} bytes: it is all but empty");
}

/// Every element that opens closes, in order. Enough for what we write: no `>` in attributes.
fn well_formed(text: &str) {
    let mut open: Vec<&str> = Vec::new();
    for tag in text.split('<').skip(1) {
        let tag = tag.split_once('>').expect("a tag without its end").0;
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "closed in the wrong order");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "never closed: {open:?}");
}
