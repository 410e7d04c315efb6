//! `concertina simulate`: a run folder as of a measurement, from virtual time.

use std::path::Path;
use std::process::{Command, Output};

fn concertina(dir: &Path, args: &[&str]) -> Output {
    let output =
        Command::new(env!("CARGO_BIN_EXE_concertina")).args(args).current_dir(dir).output();
    output.unwrap()
}

/// One device of 10 ms, nothing in memory.
const CONFIG: &str = "
[node]
memory_bytes = \"0\"
revalidate_s = 0.0
[[device]]
path = \"device\"
service = { kind = \"exponential\", mean_ms = 10.0 }
";

fn simulate(dir: &Path, config: &str, args: &[&str]) -> serde_json::Value {
    std::fs::write(dir.join("c.toml"), config).unwrap();
    let all = ["simulate", "--config", "c.toml", "--json", "--popularity", "uniform"];
    let output = concertina(dir, &[&all[..], args].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_simulated_device_agrees_with_the_formula() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--rate", "50,70", "--duration", "600s", "--keys", "20000", "--network", "0s"];
    let said = simulate(dir.path(), CONFIG, &[&args[..], &["--out", "run"]].concat());
    for (step, rate) in [(0, 50.0), (1, 70.0)] {
        for within in said["steps"][step]["within"].as_array().unwrap() {
            let (ms, share) = (within[0].as_f64().unwrap(), within[1].as_f64().unwrap());
            let exact = 1.0 - f64::exp(-(100.0 - rate) * ms * 1e-3);
            assert!((share - exact).abs() < 0.02, "{rate}/s, {ms} ms: {share}, exact {exact}");
        }
    }
    let again = simulate(dir.path(), CONFIG, &[&args[..], &["--out", "again"]].concat());
    assert_eq!(said["steps"][0]["within"], again["steps"][0]["within"], "the seed is the same");
    for args in [&["fit", "run", "--out", "m.toml"][..], &["report", "run", "m.toml"]] {
        let output = concertina(dir.path(), args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let report = std::fs::read_to_string(dir.path().join("report.html")).unwrap();
    assert!(report.contains("a simulation in virtual time"), "the report says what it shows");
    let run = std::fs::read_to_string(dir.path().join("run/run.toml")).unwrap();
    assert!(run.contains("kind = \"simulate\"") && run.contains("a simulation"), "{run}");
}

#[test]
fn members_become_nodes_and_may_be_lost_or_slow() {
    let dir = tempfile::tempdir().unwrap();
    let config = format!(
        "{CONFIG}
[[member]]
name = \"a\"
address = \"127.0.0.1:7071\"
[[member]]
name = \"b\"
address = \"127.0.0.1:7072\"
[cluster]
name = \"a\"
"
    );
    let args = ["--rate", "60", "--duration", "60s", "--warmup", "5s", "--keys", "5000"];
    let well = simulate(dir.path(), &config, &[&args[..], &["--out", "well"]].concat());
    let slow =
        simulate(dir.path(), &config, &[&args[..], &["--slow", "b:0.5", "--out", "slow"]].concat());
    let mean = |said: &serde_json::Value| said["steps"][0]["response_ms"]["mean"].as_f64().unwrap();
    assert!(mean(&slow) > 1.2 * mean(&well), "{} and {}", mean(&slow), mean(&well));
    let lost =
        simulate(dir.path(), &config, &[&args[..], &["--lost", "b", "--out", "lost"]].concat());
    let share = |outcome: &str| lost["steps"][0]["outcomes"][outcome].as_f64().unwrap_or(0.0);
    assert!(share("origin") > 0.05 && share("error") < 0.05, "{lost}");
    let windows = std::fs::read_to_string(dir.path().join("well/windows")).unwrap();
    for queue in ["\"load\"", "\"gateway\"", "\"a/device/0\"", "\"b/node\""] {
        assert!(windows.contains(&format!("\"queue\":{queue}")), "{queue}");
    }
}

/// Faults from a seed, and a history that is judged.
#[test]
fn what_goes_wrong_is_asked_for_and_breaks_no_promise() {
    let dir = tempfile::tempdir().unwrap();
    let member = |(port, name): (u16, &str)| {
        format!("[[member]]\nname = \"{name}\"\naddress = \"127.0.0.1:{port}\"\n")
    };
    let members: String = [(7071, "a"), (7072, "b"), (7073, "c")].map(member).concat();
    let config = CONFIG.replace("\"0\"", "\"64KiB\"").replace("revalidate_s = 0.0", "");
    let config = format!("{config}{members}[cluster]\nname = \"a\"\n");
    let args = [
        "--rate=200",
        "--duration=30s",
        "--warmup=2s",
        "--keys=100",
        "--read-share=0.8",
        "--gateways=2",
        "--loss=1%",
        "--duplicates=1%",
        "--late=1%:20ms",
        "--drift=200",
        "--fault=kill:a@5s+3s",
        "--fault=cut:gateway-1@9s+1s",
        "--fault=cut:origin@12s+1s",
        "--fault=slow=3:b@15s+5s",
        "--check",
    ];
    let said = simulate(dir.path(), &config, &[&args[..], &["--out", "run"]].concat());
    assert_eq!(said["violations"].as_array().unwrap().len(), 0, "{said}");
    let again = simulate(dir.path(), &config, &[&args[..], &["--out", "again"]].concat());
    for what in ["outcomes", "response_ms"] {
        assert_eq!(said["steps"][0][what], again["steps"][0][what], "the seed is the same");
    }
    let well = simulate(dir.path(), &config, &[&args[..6], &["--out", "well"]].concat());
    let failed = |said: &serde_json::Value| said["steps"][0]["errors"].as_u64().unwrap();
    assert!(failed(&said) > failed(&well) + 50, "{said} {well}");
    assert!(well["violations"].is_null(), "nothing was judged");
    let run = std::fs::read_to_string(dir.path().join("run/run.toml")).unwrap();
    assert!(run.contains("kill:a@5s+3s"), "{run}");
    for (wrong, word) in [
        ("--fault=kill:z@1s", "there is no"),
        ("--fault=burn:a@1s", "KIND:WHO@AT+FOR"),
        ("--gateways=0", "1 to 64"),
        ("--loss=2", "invalid share"),
    ] {
        let asked = ["simulate", "--config", "c.toml", "--rate", "10", "--out", "bad", wrong];
        let output = concertina(dir.path(), &asked);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(word), "{wrong}: {told}");
    }
}

#[test]
fn what_cannot_be_simulated_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let output = concertina(dir.path(), &["simulate", "--rate", "10", "--out", "run"]);
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("`service` profile"), "{words}");
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    let args =
        ["simulate", "--config", "c.toml", "--rate", "10", "--lost", "nobody", "--out", "run"];
    let output = concertina(dir.path(), &args);
    assert!(String::from_utf8_lossy(&output.stderr).contains("unknown member"));
}

const HOT_DEVICES: &str = "
[node]
memory_bytes = \"600KiB\"
revalidate_s = 0.0
[observe]
objectives_ms = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
[tiers]
popularity_s = 60.0
[[device]]
path = \"bulk\"
count = 2
bytes = \"256MiB\"
queue_length_max = 100000
service = { kind = \"gamma\", mean_ms = 8.0, scv = 0.4 }
[[device]]
path = \"hot\"
class = \"hot\"
bytes = \"2MiB\"
segment_bytes = \"64KiB\"
queue_length_max = 100000
service = { kind = \"gamma\", mean_ms = 2.0, scv = 0.4 }
";

/// A disk and a hot device for a tenth of the bytes, with memory beside: a model fitted at three loads predicts
/// the shares within times at two others.
#[test]
fn the_response_of_a_node_with_hot_devices_is_predicted() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), HOT_DEVICES).unwrap();
    let simulate = |rates: &str, seed: &str, out: &str| -> serde_json::Value {
        let args = [
            "simulate",
            "--config=c.toml",
            "--json",
            "--popularity=zipf:0.9",
            "--keys=5000",
            "--size=4000",
            "--network=0s",
            "--warmup=100s",
            "--duration=200s",
        ];
        let asked = [("--rate", rates), ("--seed", seed), ("--out", out)];
        let asked = asked.map(|(name, value)| format!("{name}={value}"));
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let output = concertina(dir.path(), &[&args[..], &asked].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    simulate("100,180,260", "1", "fitted");
    let output = concertina(dir.path(), &["fit", "fitted", "--out", "m.toml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let judged = simulate("140,220", "2", "judged");
    for (step, rate) in ["140", "220"].iter().enumerate() {
        let step = &judged["steps"][step];
        let hot = step["outcomes"]["hot_device"].as_f64().unwrap();
        assert!(hot > 0.15 && step["outcomes"]["memory"].as_f64().unwrap() > 0.05, "{step}");
        let within: Vec<(f64, f64)> = step["within"]
            .as_array()
            .unwrap()
            .iter()
            .map(|at| (at[0].as_f64().unwrap(), at[1].as_f64().unwrap()))
            .collect();
        let times: Vec<String> = within.iter().map(|(ms, _)| format!("{ms}ms")).collect();
        let times = times.join(",");
        let args = ["predict", "m.toml", "--json", "--rate", *rate, "--within", &times];
        let output = concertina(dir.path(), &args);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let points = told["predictions"][0]["points"].as_array();
        for (point, (ms, share)) in points.unwrap().iter().zip(within) {
            let predicted = point["concertina"]["value"].as_f64().unwrap();
            println!("{rate}/s, {ms} ms: {share:.4}, predicted {predicted:.4}");
            assert!((predicted - share).abs() < 0.03, "{rate}/s, {ms} ms: {share}, {predicted}");
        }
    }
}
