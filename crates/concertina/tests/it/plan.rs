//! Plan, and what is held out of a fit, through the binary.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// A fitted server as a person could write it: eight bulk devices of 8 ms behind a memory.
pub fn model_text() -> String {
    let parameter = |key: &str, value: f64, unit: &str| {
        format!("{key} = {{ value = {value}, low = {value}, high = {value}, unit = \"{unit}\" }}\n")
    };
    let shape: Vec<String> = (0..25)
        .map(|i| {
            let low = f64::from(i) * 0.3;
            format!("[{}, 0.15, {}]", low + 0.15, (-low).exp() - (-low - 0.3).exp())
        })
        .collect();
    let rows: Vec<String> = (-10..=10)
        .map(|i| {
            let k = 1.0 + f64::from(i) * 1e-3;
            let (q, mean, mu) = (0.5 * (2.0 - k), 0.008 * k, 125.0 / k);
            format!("[{q}, 0.0, 0.0, 0.0003, 0.0, 1e9, {q}, 0.0, {mu}, {mean}, 1.0]")
        })
        .collect();
    let mut out = "format = 1\nwarnings = [\"Stamps are known to 1 s.\"]\n[about]\ntitle = \"by hand\"\nruns = []\n\
                   laboratory = \"simulated devices\"\n[requests]\n"
        .to_owned();
    for (key, value, unit) in [
        ("q0", 0.5, "1"),
        ("alpha", 0.0, "s"),
        ("other_share", 0.0, "1"),
        ("front_delay", 0.0003, "s"),
        ("joining", 0.0, "1"),
        ("joining_knee", 1e9, "reads"),
    ] {
        out += &parameter(key, value, unit);
    }
    out += "rate_low = 300.0\nrate_high = 1200.0\n[spotify]\nn_d = 8\n";
    out += &parameter("q0", 0.5, "1");
    out += &parameter("alpha", 0.0, "s");
    out += &parameter("mu_d", 125.0, "1/s");
    out += "[[classes]]\nname = \"bulk_device\"\nservers = 1\n[classes.service]\n";
    out += &parameter("mean", 0.008, "s");
    out += &parameter("scv", 1.0, "1");
    out += &format!("shape = [{}]\n", shape.join(", "));
    out += "[[devices]]\nclass = \"bulk_device\"\ncount = 8\nshare = 0.125\nfactor = 1.0\n";
    out += "[[held_out]]\nrate = 1500.0\nwithin_s = 0.05\nerror_points = 0.8\nhalf_width_points = 0.3\n";
    let columns = "q0 alpha other_share front_delay joining joining_knee spotify_q0 spotify_alpha spotify_mu_d \
                   mean_s.bulk_device scv.bulk_device";
    let columns: Vec<&str> = columns.split_whitespace().collect();
    out + &format!("[replicates]\ncolumns = {columns:?}\nrows = [{}]\n", rows.join(", "))
}

const CHOICES: &str = "\
prices_in = \"EUR\"
[servers]
counts = { from = 2, to = 12 }
price = 100
[memory]
fitted_gib = 64
gib = [64, 256]
price_per_gib = 1
exponent = 0.3
[devices.bulk_device]
counts = [4, 8, 16]
price = 10
[replicas]
counts = [2]
";

pub struct Lab {
    pub dir: tempfile::TempDir,
}

impl Lab {
    pub fn new() -> Lab {
        let lab = Lab { dir: tempfile::tempdir().unwrap() };
        lab.write("model.toml", &model_text());
        lab.write("choices.toml", CHOICES);
        lab
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir.path().join(name), text).unwrap();
    }

    pub fn plan(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.arg("plan").args(args).current_dir(self.dir.path()).output().unwrap()
    }

    /// The plan for 99 % within 100 ms.
    pub fn asks(&self, rest: &[&str]) -> Output {
        let question =
            ["--choices", "choices.toml", "--objective", "99% within 100ms", "--top", "2"];
        self.plan(&[&["model.toml"], &question[..], rest].concat())
    }
}

pub fn text(output: &Output) -> (String, String) {
    let of = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (of(&output.stdout), of(&output.stderr))
}

pub fn json(output: &Output) -> Value {
    let (out, error) = text(output);
    assert!(output.status.success(), "{out} {error}");
    serde_json::from_str(&out).unwrap()
}

#[test]
fn the_cheapest_that_holds_comes_first() {
    let lab = Lab::new();
    let found = json(&lab.asks(&["--rate", "5000", "--json"]));
    let ranked = found["ranked"].as_array().unwrap();
    assert_eq!((ranked.len(), &found["holds"]), (2, &Value::Bool(true)));
    let number = |value: &Value| value.as_f64().unwrap();
    let cost = |i: usize| number(&ranked[i]["configuration"]["cost"]);
    assert!(cost(0) <= cost(1));
    let best = &ranked[0];
    let within = &best["forecast"]["within"];
    assert!(number(&within["value"]) >= 0.99 && number(&within["low"]) < number(&within["high"]));
    assert!(number(&best["headroom"]) >= 1.0);
    assert_eq!(best["breaks_first"]["class"], "bulk_device");
    assert!(best["one_lost"]["holds"].is_boolean() && best["one_lost"]["unreachable"] == 0.0);
    assert_eq!(found["laboratory"], "simulated devices");
    assert_eq!(found["trust"]["end"], "unmeasured");
    // The warnings of the model, which the text ends with, are there for programs too.
    let (shown, _) = text(&lab.asks(&["--rate", "5000"]));
    let warnings = found["warnings"].as_array().unwrap();
    assert!(!warnings.is_empty() && shown.contains("Warning: "), "{shown}");
    assert!(shown.contains(warnings[0].as_str().unwrap()), "{shown} {warnings:?}");
    // What is said of it is what `predict` says of the same servers, where they are the fitted ones.
    let fitted = "[servers]\ncounts = [8]\n[replicas]\ncounts = [2]\n";
    lab.write("choices.toml", fitted);
    let found = json(&lab.asks(&["--rate", "8000", "--json"]));
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["predict", "model.toml", "--rate", "8000", "--servers", "8"]);
    command.args(["--within", "100ms", "--json"]).current_dir(lab.dir.path());
    let predicted = json(&command.output().unwrap());
    let point = &predicted["predictions"][0]["points"][0]["concertina"];
    assert_eq!(found["ranked"][0]["forecast"]["within"], *point);
    assert_eq!(found["ranked"][0]["like_fitted"], true);
    assert!((number(&predicted["trust_limit"]) / 1_500.0 - 8.0).abs() < 1e-6);
}

#[test]
fn a_plan_reads_as_text() {
    let lab = Lab::new();
    let growth = ["--growth", "5%/month", "--months", "12"];
    let output = lab.asks(&[&["--rate", "4000", "--with-one-lost"], &growth[..]].concat());
    let (out, error) = text(&output);
    assert!(output.status.success(), "{error}");
    for word in [
        "EMULATED: simulated devices",
        "growing 5 % a month to 7,183.43 in 12 months",
        "also with one server lost",
        "66 configurations",
        "What breaks first",
        "in month",
        "Cheapest for the current load",
        "best purchases next",
        "Checked up to 1,500 requests/s of a server: at most 0.8 points off",
    ] {
        assert!(out.contains(word), "{word} is missing in\n{out}");
    }
    assert!(!out.contains("NaN"), "{out}");
    // A server that is not the fitted one is marked, and so is a load past what was looked at.
    lab.write("choices.toml", "[servers]\ncounts = [3]\n[replicas]\ncounts = [2]\n");
    let rest = ["--choices", "choices.toml", "--objective", "90% within 100ms", "--rate", "4700"];
    let (out, error) = text(&lab.plan(&[&["model.toml"], &rest[..]].concat()));
    for word in [
        "not served  ?",
        "Past the confidence limit, where queues are long: 3 servers",
        "? past the loads at which the model was checked",
        "as fitted",
        "every list of the choices ends here",
    ] {
        assert!(out.contains(word), "{word} is missing in\n{out}{error}");
    }
    // What comes nearest is marked as well.
    let nothing = lab.asks(&["--rate", "4700"]);
    let (out, _) = text(&nothing);
    assert!(
        out.contains("NONE")
            && out.contains("in time ?")
            && out.contains("Past the confidence limit"),
        "{out}"
    );
    // That nothing holds is said by the exit code, whether anybody reads the rest or not.
    assert_eq!(nothing.status.code(), Some(1));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
    command.args(["plan", "model.toml", "--choices", "choices.toml", "--rate", "4700"]);
    command.args(["--objective", "99% within 100ms"]).current_dir(lab.dir.path());
    let output = command.stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), text(&output).1), (Some(1), String::new()));
}

/// A link and workers before the fitted server, as what-if and in the model file.
#[test]
fn a_link_or_workers_bound_what_is_predicted_and_planned() {
    let lab = Lab::new();
    let predict = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(["predict", "model.toml"]).args(rest).current_dir(lab.dir.path());
        command.output().unwrap()
    };
    let asked = ["--link", "40MB/s", "--reply-bytes", "80kB", "--rate", "450", "--json"];
    let found = json(&predict(&asked));
    assert!((found["saturation"].as_f64().unwrap() - 500.0).abs() < 1e-6, "{found}");
    let mean = |found: &Value| found["predictions"][0]["response_mean"]["value"].as_f64().unwrap();
    let free = json(&predict(&["--rate", "450", "--json"]));
    assert!(mean(&found) > mean(&free) + 0.005, "{found}");
    let (out, _) = text(&predict(&["--workers", "2"]));
    assert!(out.contains("by the workers"), "{out}");
    // Without the length of a reply a link is no limit of requests.
    for (wrong, word) in [
        (["--link", "1Gbit/s"], "needs the mean bytes of a reply"),
        (["--link", "1Gbit"], "invalid bandwidth"),
        (["--workers", "0"], "1..=10000"),
    ] {
        let output = predict(&wrong);
        assert!(!output.status.success() && text(&output).1.contains(word), "{output:?}");
    }
    let front = "[front]\nbytes_mean = 80000.0\nbytes_scv = 0.0\nworkers = 3\n[spotify]";
    lab.write("model.toml", &model_text().replace("[spotify]", front));
    let found = json(&lab.asks(&["--rate", "500", "--json"]));
    assert_eq!(found["ranked"][0]["breaks_first"]["class"], "workers");
}

/// The limit of several servers by the objects on them, beside the one that takes requests for balls.
#[test]
fn objects_say_how_unevenly_they_load_servers() {
    let lab = Lab::new();
    let predict = |rest: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.args(["predict", "model.toml", "--rate", "9000"]).args(rest);
        command.current_dir(lab.dir.path()).output().unwrap()
    };
    let number = |found: &Value, key: &str| found[key].as_f64().unwrap();
    let single = number(&json(&predict(&["--json"])), "confidence_limit");
    let asked = |law: &str| {
        json(&predict(&["--servers", "25", "--popularity", law, "--json"]))["imbalance"].clone()
    };
    let even = asked("zipf:0:1000000");
    assert!((number(&even, "effective_objects") / 1e6 - 1.0).abs() < 1e-6, "{even}");
    let limit = number(&even, "confidence_limit");
    assert!((limit * number(&even, "share_max_p95") / single - 1.0).abs() < 1e-9, "{even}");
    assert!(limit < 25.0 * single && limit > 24.0 * single, "{even}");
    assert_eq!(even["placements"], Value::Null);
    // The more popular the first few are, the less the servers hold together.
    let skewed = asked("zipf:0.8:1000000");
    assert_eq!(skewed["placements"], 1_000);
    assert!(number(&skewed, "confidence_limit") < 0.9 * limit, "{skewed}");
    let (out, error) = text(&predict(&["--servers", "25", "--popularity", "zipf:0.8:1000000"]));
    for word in ["balls into bins", "Without regard to time"] {
        assert!(out.contains(word), "{word} is missing in\n{out}{error}");
    }
    let without = json(&predict(&["--servers", "25", "--json"]));
    assert_eq!(without["imbalance"], Value::Null);
    for (wrong, word) in [
        (&["--popularity", "zipf:0.8:1000000"][..], "--servers"),
        (&["--servers", "25", "--popularity", "0.3"], "single objects"),
        (&["--servers", "25", "--popularity", "zipf:0.8"], "zipf:0.8:1000000"),
    ] {
        let output = predict(wrong);
        assert!(!output.status.success() && text(&output).1.contains(word), "{output:?}");
    }
}

#[test]
fn what_none_holds_says_what_is_reached() {
    let lab = Lab::new();
    let output = lab.asks(&["--rate", "1000000"]);
    let (out, _) = text(&output);
    assert!(!output.status.success());
    for word in ["NONE of the choices meets", "12 servers", "cannot serve that load", "up to"] {
        assert!(out.contains(word), "{word} is missing in\n{out}");
    }
    let output = lab.plan(&[
        "model.toml",
        "--choices",
        "choices.toml",
        "--objective",
        "99.9% within 1ms",
        "--rate",
        "10",
        "--json",
    ]);
    let found: Value = serde_json::from_str(&text(&output).0).unwrap();
    assert!(!output.status.success() && found["holds"] == false);
    assert!(found["nearest"]["forecast"]["within"]["value"].as_f64().unwrap() < 0.999);
}

#[test]
fn a_cluster_file_is_planned_from_its_slowest_node() {
    let lab = Lab::new();
    let slow = model_text().replace("value = 0.008,", "value = 0.0082,");
    lab.write(
        "slow.toml",
        &slow.replace("low = 0.008,", "low = 0.0079,").replace("0.008, unit", "0.0083, unit"),
    );
    let node =
        |model: &str, share: f64| format!("[[node]]\nmodel = \"{model}\"\nshare = {share}\n");
    let cluster =
        format!("delay_ms = 0.2\n{}{}", node("model.toml", 0.75), node("slow.toml", 0.25));
    lab.write("cluster.toml", &cluster);
    let asks = ["--choices", "choices.toml", "--objective", "99% within 100ms", "--rate", "5000"];
    let found = json(&lab.plan(&[&["cluster.toml", "--json", "--top", "1"], &asks[..]].concat()));
    assert!(found["note"].as_str().unwrap().contains("slow"), "{}", found["note"]);
    assert_eq!(found["question"]["delay_s"], 0.0002);
    lab.write("bad.toml", &cluster.replace("0.75", "0.8"));
    let (_, error) = text(&lab.plan(&[&["bad.toml"], &asks[..]].concat()));
    assert!(error.contains("shares"), "{error}");
}

#[test]
fn what_is_wrong_is_said_with_file_and_key() {
    let lab = Lab::new();
    let fails = |args: &[&str], words: &[&str]| {
        let output = lab.plan(args);
        let (_, error) = text(&output);
        assert!(!output.status.success() && !error.contains("panicked"), "{args:?}: {error}");
        for word in words {
            assert!(error.contains(word), "{args:?}: {error:?} does not say {word:?}");
        }
    };
    let rest = ["--objective", "99% within 50ms", "--rate", "100"];
    let with = |choices: &str| {
        lab.write("bent.toml", choices);
        [&["model.toml", "--choices", "bent.toml"], &rest[..]].concat()
    };
    fails(&["model.toml"], &["--choices", "--objective", "--rate"]);
    fails(&[&["none.toml", "--choices", "choices.toml"], &rest[..]].concat(), &["none.toml"]);
    let none = ["none.toml", "docs/plan.md", "docs/examples/choices.toml"];
    fails(&[&["model.toml", "--choices", "none.toml"], &rest[..]].concat(), &none);
    fails(
        &[&["choices.toml", "--choices", "choices.toml"], &rest[..]].concat(),
        &["not a usable model"],
    );
    fails(&with("[servers]\n"), &["bent.toml", "counts"]);
    fails(&with("[servers]\ncounts = [1]\nprize = 1\n"), &["bent.toml", "prize", "docs/plan.md"]);
    fails(&with("[servers]\ncounts = [0]\n"), &["bent.toml", "0 servers"]);
    fails(
        &with("[servers]\ncounts = [1]\n[devices.tape]\ncounts = [1]\n"),
        &["\"tape\"", "bulk_device"],
    );
    let many = "[servers]\ncounts = { from = 1, to = 1000000 }\n[devices.bulk_device]\n\
                counts = { from = 1, to = 100 }\n";
    fails(&with(many), &["more than 5000000 configurations"]);
    let plain = ["model.toml", "--choices", "choices.toml", "--objective", "99% within 50ms"];
    fails(&[&plain[..], &["--rate", "-5"]].concat(), &["requests/s above 0"]);
    fails(&[&plain[..], &["--rate", "5", "--growth", "5"]].concat(), &["5%/month"]);
    fails(&[&plain[..], &["--rate", "5", "--months", "5"]].concat(), &["--growth"]);
    fails(&[&plain[..], &["--rate", "5", "--limit", "x"]].concat(), &["published"]);
}

#[test]
fn the_documented_choices_are_read() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/plan.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let section = docs.split("## Choices and prices").nth(1).unwrap();
    let lines = section.lines().skip_while(|line| !line.starts_with("    "));
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with("    "));
    let choices: Vec<&str> = lines.map(|line| line.trim_start()).collect();
    let lab = Lab::new();
    lab.write("choices.toml", &choices.join("\n"));
    let output = lab.asks(&["--rate", "5000"]);
    assert!(output.status.success(), "{}", text(&output).1);
    // What is left out there is for models that have such devices.
    let all = choices.iter().filter(|line| !line.contains("hit_ratio ="));
    let all: Vec<&str> = all.map(|line| line.strip_prefix("# ").unwrap_or(line)).collect();
    lab.write("choices.toml", &all.join("\n"));
    let (_, error) = text(&lab.asks(&["--rate", "5000"]));
    assert!(error.contains("the model has no devices of class \"hot_device\""), "{error}");
}

/// `predict` of a server, and of a cluster of two such.
struct Predict {
    lab: Lab,
}

/// The arguments of both, at equal loads of a server.
const SERVER_AND_CLUSTER: [&[&str]; 2] = [
    &["model.toml", "--rate", "800", "--within", "20ms,50ms"],
    &[
        "--node",
        "model.toml:0.5",
        "--node",
        "b.toml:0.5",
        "--rate",
        "1600",
        "--within",
        "20ms,50ms",
    ],
];

impl Predict {
    fn new() -> Predict {
        let lab = Lab::new();
        lab.write("b.toml", &model_text());
        Predict { lab }
    }

    fn output(&self, base: &[&str], option: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_concertina"));
        command.arg("predict").args(base).args(option);
        command.current_dir(self.lab.dir.path()).output().unwrap()
    }

    fn json(&self, base: &[&str], option: &[&str]) -> Value {
        json(&self.output(base, &[option, &["--json"]].concat()))
    }

    fn says(&self, base: &[&str], option: &[&str], words: &[&str]) {
        let (out, error) = text(&self.output(base, option));
        for word in words {
            assert!(out.contains(word), "{word} is missing in\n{out}{error}");
        }
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn requests_of_several_parts_stand_beside_one_part() {
    let predict = Predict::new();
    for base in SERVER_AND_CLUSTER {
        let all = predict.json(base, &["--fan-out", "10"]);
        let found = &all["predictions"][0]["fan_out"];
        let share = &found["request"]["within"][1]["share"];
        let single = &all["predictions"][0]["points"][1]["concertina"];
        assert_eq!(&found["part"]["within"][1]["share"], single);
        for end in ["value", "low", "high"] {
            assert!((number(&share[end]) - number(&single[end]).powi(10)).abs() < 1e-9, "{found}");
        }
        let p99 = |found: &Value, kind: &str| number(&found[kind]["response_p99"]["value"]);
        assert!(p99(found, "request") > p99(found, "part"), "{found}");
        assert!((number(&found["requests_per_s"]) * 10.0 - number(&found["rate"])).abs() < 1e-9);
        let words =
            ["all of 10 parts", "one part", "independent", "others of its request", "p99 [95 %]"];
        predict.says(base, &["--fan-out", "10"], &words);
        // The first of three is faster than one.
        let any = predict.json(base, &["--fan-out", "3:1"]);
        let any = &any["predictions"][0]["fan_out"];
        assert!(p99(any, "request") < p99(any, "part"), "{any}");
    }
}

#[test]
fn hedged_requests_stand_beside_single_ones() {
    let predict = Predict::new();
    for base in SERVER_AND_CLUSTER {
        let found = predict.json(base, &["--hedge", "30ms"]);
        let found = &found["predictions"][0]["hedged"];
        let twice = number(&found["share_hedged"]["value"]);
        let offered = number(&found["offered_rate"]["value"]);
        assert!((offered / number(&found["rate"]) - 1.0 - twice).abs() < 1e-9 && twice > 0.0);
        let p99 = |kind: &str| number(&found[kind]["response_p99"]["value"]);
        assert!(found["stable"] == true && p99("hedged") < p99("single"), "{found}");
        let words = ["sent twice %", "hedged", "another server after 30 ms", "independent"];
        predict.says(base, &["--hedge", "30ms"], &words);
    }
}

#[test]
fn arrivals_of_another_law_are_what_if() {
    let predict = Predict::new();
    for base in SERVER_AND_CLUSTER {
        let mean = |law: &str| {
            let found = predict.json(base, &["--arrivals", law]);
            assert_eq!(found["arrivals"], law);
            number(&found["predictions"][0]["response_mean"]["value"])
        };
        let poisson = mean("poisson");
        assert!(mean("renewal:0") < poisson && poisson < mean("renewal:9"));
        assert!((mean("renewal:1") / poisson - 1.0).abs() < 1e-9);
        assert!(poisson < mean("bursts:0.1:0.5"));
        let fitted = predict.json(base, &[]);
        assert_eq!(fitted["arrivals"], Value::Null);
        assert_eq!(number(&fitted["predictions"][0]["response_mean"]["value"]), poisson);
        let words = ["What if: arrivals at each server are renewal:4"];
        predict.says(base, &["--arrivals", "renewal:4"], &words);
    }
}

#[test]
fn wrong_fan_outs_hedges_and_arrivals_are_named() {
    let predict = Predict::new();
    for (option, value, word) in [
        ("--fan-out", "0", "the number of parts is 0: it must be 1 to 10,000"),
        ("--fan-out", "10001", "1 to 10,000"),
        ("--fan-out", "3:4", "must answer is 4: it must be 1 to the number of parts"),
        ("--fan-out", "3:0", "must answer is 0"),
        ("--fan-out", "many", "N or N:K"),
        ("--hedge", "30", "unit"),
        ("--arrivals", "weibull", "renewal:SCV"),
        ("--arrivals", "renewal:-1", "0 to 1,000"),
        ("--arrivals", "bursts:1", "bursts:C2:RATE"),
    ] {
        let output = predict.output(SERVER_AND_CLUSTER[0], &[option, value]);
        let (_, error) = text(&output);
        assert!(!output.status.success() && error.contains(word), "{option} {value}: {error}");
    }
}
