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
    for args in
        [&["fit", "run", "--out", "m.toml"][..], &["report", "run", "m.toml", "--no-what-if"]]
    {
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

/// The windows of a run, without the time of day at which it began.
fn windows_of(folder: &Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(folder.join("windows")).unwrap();
    let parse = |line: &str| {
        let mut window: serde_json::Value = serde_json::from_str(line).unwrap();
        window.as_object_mut().unwrap().remove("start_unix_us");
        window
    };
    text.lines().map(parse).collect()
}

/// Hits that are drawn: the exact law of one server, and names of queues as with keys.
#[test]
fn drawn_hits_agree_with_the_formula() {
    let dir = tempfile::tempdir().unwrap();
    let args = "--rate=120 --duration=3000s --warmup=60s --keys=drawn --hit-ratio=40% --network=0s --out=run";
    let args: Vec<&str> = args.split(' ').collect();
    let said = simulate(dir.path(), CONFIG, &args);
    for within in said["steps"][0]["within"].as_array().unwrap() {
        let (ms, share) = (within[0].as_f64().unwrap(), within[1].as_f64().unwrap());
        let exact = 0.4 + 0.6 * (1.0 - f64::exp(-(100.0 - 72.0) * ms * 1e-3));
        assert!((share - exact).abs() < 0.01, "{ms} ms: {share}, exact {exact}");
    }
    let windows = std::fs::read_to_string(dir.path().join("run/windows")).unwrap();
    for queue in ["\"load\"", "\"node\"", "\"device/0\""] {
        assert!(windows.contains(&format!("\"queue\":{queue}")), "{queue}");
    }
    let run = std::fs::read_to_string(dir.path().join("run/run.toml")).unwrap();
    assert!(run.contains("keys = \"drawn\"") && run.contains("hit_ratio = 0.4"), "{run}");
    let output = concertina(dir.path(), &["fit", "run", "--out", "m.toml"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs side by side are the same on one and on two threads, and go on until their interval is narrow.
#[test]
fn runs_side_by_side_do_not_depend_on_the_threads() {
    let dir = tempfile::tempdir().unwrap();
    let args = "--rate=60 --duration=100s --warmup=5s --keys=2000 --until-within=5%";
    let run = |threads: &str, out: &str| -> serde_json::Value {
        let more = [("--threads", threads), ("--out", out)].map(|(n, v)| format!("{n}={v}"));
        let all: Vec<&str> = args.split(' ').chain(more.iter().map(String::as_str)).collect();
        simulate(dir.path(), CONFIG, &all)
    };
    let (one, two) = (run("1", "one"), run("2", "two"));
    assert_eq!((&one["steps"], &one["seeds"]), (&two["steps"], &two["seeds"]));
    assert_eq!(one["is_narrow"], true);
    let mean = &one["steps"][0]["mean_ms"];
    let (value, half) = (mean["value"].as_f64().unwrap(), mean["half"].as_f64().unwrap());
    assert!(half <= 0.05 * value && (value - 25.0).abs() < 3.0 * half, "{value} ± {half}");
    let seeds = one["seeds"].as_array().unwrap();
    assert!(seeds.len() >= 3);
    let intervals = std::fs::read_to_string(dir.path().join("two/intervals.json")).unwrap();
    assert!(intervals.contains("\"is_narrow\": true"), "{intervals}");
    for seed in seeds {
        let of = |out: &str| windows_of(&dir.path().join(format!("{out}/seed-{seed}")));
        assert!(of("one") == of("two"), "the windows of seed {seed}");
    }
}

#[test]
fn loads_change_and_faults_are_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let base = "--keys=drawn --hit-ratio=50% --nodes=6 --rate=120 --warmup=0s";
    let run = |more: &str| -> serde_json::Value {
        let all: Vec<&str> = base.split(' ').chain(more.split(' ')).collect();
        simulate(dir.path(), CONFIG, &all)
    };
    let arrivals = |said: &serde_json::Value| said["steps"][0]["arrivals"].as_f64().unwrap();
    let even = arrivals(&run("--duration=6h --out=even"));
    // From midnight to six the load is 1 − 0.5·2/π of its mean.
    let night = arrivals(&run("--duration=6h --daily=50% --out=night"));
    assert!((night / even - (1.0 - 1.0 / std::f64::consts::PI)).abs() < 0.02, "{}", night / even);
    let burst = arrivals(&run("--duration=600s --burst=5x@60s+60s --out=burst"));
    assert!((burst / (120.0 * 600.0) - 1.4).abs() < 0.05, "{burst}");
    let racks = "--duration=2h --rack-mttf=20m --rack-mttr=5m --racks=2 --out=racks";
    let failed = run(racks);
    let without = run("--duration=2h --out=without");
    // One key in twenty has all of its nodes in one rack.
    let errors = |said: &serde_json::Value| said["steps"][0]["errors"].as_u64().unwrap();
    assert!(errors(&failed) > 100 && errors(&without) == 0, "{} errors", errors(&failed));
    let trace = "time_ms,key,size,op\n0,a,1,get\n10,b,1,get\n40,c,1,get\n60,d,1,get\n";
    std::fs::write(dir.path().join("trace.csv"), trace).unwrap();
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    let args = "simulate --config=c.toml --json --trace=trace.csv --duration=100s --warmup=0s --out=traced";
    let output = concertina(dir.path(), &args.split(' ').collect::<Vec<_>>());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(arrivals(&said), 5000.0, "a request each 20 ms on the mean");
}

#[test]
fn what_cannot_work_is_refused_before_it_runs() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    for (args, words) in [
        ("--rate=150 --popularity=uniform", "up to about 95 requests/s fit"),
        ("--rate=150 --keys=drawn --hit-ratio=20%", "up to about 119 requests/s fit"),
        ("--rate=1e8 --popularity=uniform --duration=20s", "up to about 95 requests/s fit"),
        (
            "--rate=200 --keys=drawn --hit-ratio=20% --nodes=3 --lost=node-0000 --lost=node-0001",
            "up to about 119 requests/s fit",
        ),
        (
            "--rate=200 --keys=drawn --hit-ratio=20% --nodes=3 --slow=node-0000:0.1",
            "keep the bulk devices of node-0000 busy",
        ),
        (
            "--rate=200 --nodes=3 --popularity=uniform --slow=node-0000:0.1 --slow=node-0001:0.1",
            "keep the nodes' devices busy",
        ),
        (
            "--rate=9 --keys=drawn --hit-ratio=20% --nodes=1 --lost=node-0000",
            "every member is --lost",
        ),
        ("--rate=10 --gateways=2", "clients ask a single node itself"),
        ("--rate=10 --duration=10s --network=5s", "take 2 such delays"),
        ("--rate=10 --loss=100%", "above 0 and below 100 %"),
        ("--rate=10 --keys=drawn", "needs --hit-ratio"),
        ("--rate=10 --hit-ratio=20%", "for --keys drawn"),
        ("--rate=10 --keys=drawn --hit-ratio=80% --origin-ratio=30%", "together at most 1"),
        ("--rate=10 --keys=drawn --hit-ratio=80% --hot-ratio=10%", "no device of class `hot`"),
        ("--rate=10 --keys=drawn --hit-ratio=80% --loss=1%", "need --keys N"),
        ("--rate=10 --keys=drawn --hit-ratio=80% --fault=pause:node@1s+1s", "kill, wipe and slow"),
        ("--rate=10 --daily=100%", "--daily must be"),
        ("--rate=10 --growth=0", "--growth must be more than 0"),
        ("--rate=10 --popularity=zipf:-1", "zipf:0.99"),
        ("--rate=10 --duration=20s --fault=cut:origin@20s+5s", "begins after the end"),
        ("--rate=10 --duration=20s --burst=10x@30s+5s", "begins after the end"),
        ("--rate=10 --picture=course.png", "course.svg"),
        ("--rate=10 --keys=4000000000 --popularity=uniform", "of memory"),
        ("--rate=50 --duration=50y", "fits in a day"),
        ("--rate=10 --runs=2 --until-within=1%", "cannot be used with"),
        ("--rate=10 --mttf=1d", "--mttr"),
    ] {
        let all = ["simulate", "--config=c.toml", "--out=bad"];
        let all: Vec<&str> = all.into_iter().chain(args.split(' ')).collect();
        let output = concertina(dir.path(), &all);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(words), "{args}: {told}");
        assert!(!dir.path().join("bad").exists(), "{args}: nothing was begun");
    }
    std::fs::create_dir(dir.path().join("full")).unwrap();
    std::fs::write(dir.path().join("full/intervals.json"), "mine").unwrap();
    let args = "simulate --config=c.toml --rate=10 --runs=2 --out=full";
    let output = concertina(dir.path(), &args.split(' ').collect::<Vec<_>>());
    assert!(String::from_utf8_lossy(&output.stderr).contains("full is not empty"));
    let seen = "--rate=150 --keys=drawn --hit-ratio=20% --unstable --duration=60s --out=seen";
    simulate(dir.path(), CONFIG, &seen.split(' ').collect::<Vec<_>>());
}

/// Without `--out`, runs that begin in the same second have folders of their own.
#[test]
fn runs_of_one_second_are_kept_apart() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    let args = "simulate --config=c.toml --rate=10 --duration=5s --warmup=1s --keys=100";
    for _ in 0..4 {
        let output = concertina(dir.path(), &args.split(' ').collect::<Vec<_>>());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    assert_eq!(std::fs::read_dir(dir.path().join("runs")).unwrap().count(), 4);
    // All of these reads come from memory and take one time: an interval of rounding errors is none.
    let config = CONFIG.replace("memory_bytes = \"0\"", "memory_bytes = \"1MiB\"");
    std::fs::write(dir.path().join("m.toml"), config).unwrap();
    let args = args.replace("c.toml", "m.toml") + " --runs=3 --out=same";
    let output = concertina(dir.path(), &args.split(' ').collect::<Vec<_>>());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("± 0 ms") && !said.contains("e-"), "{said}");
}

/// Ctrl-C: what was simulated is a run that a report reads, and the step says how far it came.
#[test]
fn an_interrupt_keeps_what_was_done() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("c.toml"), CONFIG).unwrap();
    let args = "simulate --config=c.toml --keys=drawn --hit-ratio=50% --rate=100 --duration=300d --warmup=1s --json --out=run";
    let mut child = Command::new(env!("CARGO_BIN_EXE_concertina"))
        .args(args.split(' '))
        .current_dir(dir.path())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let windows = dir.path().join("run/windows");
    let begun = std::time::Instant::now();
    while std::fs::metadata(&windows).map_or(0, |file| file.len()) < 100_000 {
        assert!(child.try_wait().unwrap().is_none() && begun.elapsed().as_secs() < 120);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(said["interrupted"], true);
    let complaint = said["steps"][0]["step"]["generator"]["complaints"][0].as_str().unwrap();
    assert!(complaint.starts_with("interrupted: "), "{complaint}");
    let output = concertina(dir.path(), &["report", "run"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // No generator is at fault.
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("interrupted: ") && !told.contains("generator: interrupted"), "{told}");
}
