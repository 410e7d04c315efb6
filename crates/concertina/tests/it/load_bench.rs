//! The load generator beside an independent one, against an independent server.
//!
//! `bench/load.c` and `bench/ceil.c` lie outside of the repository, beside it; where they or a C
//! compiler are missing, the test says so and passes.

use crate::left_out::left_out;
use crate::steady::{in_time, steady};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use load::{Arrivals, Keys, Length, Load, Plan, Popularity, Size, run};

/// A child that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const TEST: &str = "load_bench::agrees_with_an_independent_generator";

fn build(bench: &Path, name: &str, into: &Path) -> Option<PathBuf> {
    let out = into.join(name);
    let built = Command::new("gcc")
        .args(["-O2", "-o"])
        .arg(&out)
        .arg(bench.join(format!("{name}.c")))
        .args(["-lpthread", "-lm"])
        .output();
    match built {
        Ok(output) if output.status.success() => Some(out),
        Ok(output) => {
            left_out(TEST, &format!("{name}.c: {}", String::from_utf8_lossy(&output.stderr)));
            None
        }
        Err(error) => {
            left_out(TEST, &format!("gcc cannot be run: {error}"));
            None
        }
    }
}

#[test]
fn agrees_with_an_independent_generator() {
    steady(|| {
        let bench = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/bench");
        if !bench.join("load.c").exists() {
            left_out(TEST, &format!("{} is not there", bench.display()));
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let (Some(load), Some(ceil)) =
            (build(&bench, "load", dir.path()), build(&bench, "ceil", dir.path()))
        else {
            return;
        };
        let port = crate::serve_client::free().port().to_string();
        let server = Command::new(ceil).args(["-m", "http", "-p", &port]).spawn().unwrap();
        let _server = Running(server);

        let (rate, seconds) = (5000.0, 2.0);
        let keys = Keys::Synthetic {
            popularity: Popularity::Uniform,
            count: 1000,
            size: Size::fixed(4096),
            format: "{i}".to_owned(),
            read_share: 1.0,
        };
        let ask = Load::Open { rates: vec![rate], arrivals: Arrivals::Poisson };
        let plan = Plan {
            warmup: Some(Length::Seconds(0.5)),
            length: Some(Length::Seconds(seconds)),
            ..Plan::new(&format!("http://127.0.0.1:{port}/o"), ask, keys, dir.path().join("run"))
        };
        let summary = run(&plan, &Arc::new(AtomicBool::new(false)), &mut |_| {}).unwrap();
        let ours = &summary.steps[0];

        let theirs = Command::new(load)
            .args(["-m", "http", "-u", "/o/%d", "-c", "64", "-r", "5000", "-w", "0.5", "-s", "2"])
            .args(["-p", &port])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let theirs: serde_json::Value = serde_json::from_slice(&theirs.stdout).unwrap();
        let figure = |name: &str| theirs[name].as_f64().unwrap();
        println!(
            "ours: {} requests, p50 {:.3} ms, p99 {:.3} ms, {:.1} µs each; theirs: {theirs}",
            ours.completions, ours.response_ms.p50, ours.response_ms.p99, ours.cpu_us_per_request
        );
        let expected = rate * seconds;
        // Poisson counts of 10,000: 1 % is a standard deviation; 5 % is never seen.
        for count in [ours.completions as f64, figure("ops")] {
            let off = count / expected - 1.0;
            in_time(off.abs() < 0.05, format_args!("{count} requests, not {expected}"));
        }
        assert_eq!((ours.errors, figure("err") as u64), (0, 0));
        assert_eq!(ours.bytes, ours.completions * 4096);
        // A sanity check, not a measurement: the machine may be busy with other tests.
        let ratio = ours.response_ms.p50 / (figure("p50_us") / 1e3);
        in_time((0.05..20.0).contains(&ratio), format_args!("medians differ {ratio}-fold"));
    });
}
