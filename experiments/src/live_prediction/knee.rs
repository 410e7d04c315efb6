//! The headroom that a node states at a modest load, against the load at which it then misses the
//! objective.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::Context as _;
use ground::window::Window;
use model::statistics::quantile;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use record::{RunFolder, Step};
use serde_json::Value;

use super::super::lab::{Catalogue, Server};
use super::config::Config;
use crate::claims::{Claim, Goal};
use crate::context::Context;

/// Resamplings of the seconds of each load.
const DRAWS: usize = 400;

/// The requests of a second: within the objective, and all.
type Second = (f64, f64);

/// A load and its seconds.
struct Loaded {
    rate: f64,
    seconds: Vec<Second>,
}

/// Asks for the headroom, finds the knee, and compares them.
pub(super) fn run(
    context: &Context,
    config: &Config,
    catalogue: &Catalogue,
    server: &Server,
) -> anyhow::Result<Vec<Claim>> {
    let settings = &config.knee;
    let base = settings.utilisation * config.capacity();
    context.say(format!("headroom at {base:.0} requests/s"));
    config.load(context, catalogue, server, &[(base, settings.base_s)], "base")?;
    let told = read_model(server.url())?;
    let headroom = &told["model"]["headroom"];
    let of = |name: &str| headroom["rate"][name].as_f64();
    let (Some(value), Some(low), Some(high)) = (of("value"), of("low"), of("high")) else {
        let why = told["model"]["why_not_fitted"].as_str().unwrap_or("no reason");
        anyhow::bail!("the node states no headroom: {why}");
    };
    let share = told["model"]["share"].as_f64().unwrap_or(0.95);
    let steps: Vec<(f64, f64)> =
        settings.loads.iter().map(|times| (times * value, settings.load_s)).collect();
    let run = config.load(context, catalogue, server, &steps, "knee")?;
    let loads = loaded(&run, config, &steps);
    let found = knee(&loads, share).context("the loads do not reach across the knee")?;
    let (knee_low, knee_high) = interval(&loads, share, config.seed);
    let mut text = "rate,within,requests\n".to_owned();
    for load in &loads {
        let (within, all) = sum(&load.seconds);
        let _ = writeln!(text, "{:.1},{:.5},{all:.0}", load.rate, within / all);
    }
    let _ = writeln!(
        text,
        "# told {value:.1} ({low:.1} to {high:.1}), found {found:.1} ({knee_low:.1} to {knee_high:.1})"
    );
    let path = context.out.join("knee.csv");
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let count = loads.iter().map(|load| sum(&load.seconds).1).sum::<f64>() as u64;
    let off = |knee: f64| 100.0 * (value / knee - 1.0);
    let mut error =
        Claim::counted("headroom's largest load less the true one", off(found), "%", count);
    (error.low, error.high) = (off(knee_high), off(knee_low));
    let size = Claim {
        low: if error.low <= 0.0 && error.high >= 0.0 {
            0.0
        } else {
            error.low.abs().min(error.high.abs())
        },
        high: error.low.abs().max(error.high.abs()),
        ..Claim::counted("error of the headroom's largest load", off(found).abs(), "%", count)
    };
    let held = f64::from(u8::from(low <= knee_high && knee_low <= high));
    Ok(vec![
        error,
        size.with_goal(Goal::AtMost(10.0)),
        Claim::counted("headroom's interval meets the knee's", held, "1", 1),
    ])
}

/// The seconds of each load that count.
fn loaded(run: &RunFolder, config: &Config, steps: &[(f64, f64)]) -> Vec<Loaded> {
    let start = run.steps.first().map_or(0, |step: &Step| step.start_unix_us);
    let clients = || run.windows.iter().filter(|w| w.queue == "load");
    let mut from = start;
    let mut loads = Vec::new();
    for &(rate, seconds) in steps {
        let to = from + (seconds * 1e6) as u64;
        let settled = from + (config.knee.settle_s * 1e6) as u64;
        let of = |w: &&Window| w.start_unix_us + 1000 >= settled && w.end_unix_us() <= to + 1000;
        let seconds = clients().filter(of).map(|w| second(w, config.objective_ms)).collect();
        loads.push(Loaded { rate, seconds });
        from = to;
    }
    loads
}

fn second(window: &Window, objective_ms: f64) -> Second {
    let index = window.objectives_ms.iter().position(|ms| (ms - objective_ms).abs() < 1e-9);
    let (mut within, mut all) = (0.0, 0.0);
    for times in &window.times {
        all += times.response.count() as f64;
        let counted = index.and_then(|index| times.within.get(index));
        if times.outcome != ground::window::Outcome::Error {
            within += counted.copied().unwrap_or(0) as f64;
        }
    }
    (within, all)
}

fn sum(seconds: &[Second]) -> Second {
    seconds.iter().fold((0.0, 0.0), |sum, s| (sum.0 + s.0, sum.1 + s.1))
}

/// The load at which the share is met, on a line through the logits of all loads, each with the weight of
/// what it tells; `None` if shares do not fall with the load.
fn knee(loads: &[Loaded], share: f64) -> Option<f64> {
    let mut points = Vec::new();
    for load in loads {
        let (within, all) = sum(&load.seconds);
        if all > 0.0 {
            let p = ((within + 0.5) / (all + 1.0)).clamp(1e-6, 1.0 - 1e-6);
            points.push((load.rate, (p / (1.0 - p)).ln(), all * p * (1.0 - p)));
        }
    }
    let weight: f64 = points.iter().map(|p| p.2).sum();
    let mean = |of: &dyn Fn(&(f64, f64, f64)) -> f64| {
        points.iter().map(|p| p.2 * of(p)).sum::<f64>() / weight
    };
    let (x, y) = (mean(&|p| p.0), mean(&|p| p.1));
    let slope = mean(&|p| (p.0 - x) * (p.1 - y)) / mean(&|p| (p.0 - x).powi(2));
    let wanted = (share / (1.0 - share)).ln();
    (slope < 0.0).then(|| x + (wanted - y) / slope)
}

/// The 95 % interval of the knee: the seconds of each load are drawn again.
fn interval(loads: &[Loaded], share: f64, seed: u64) -> (f64, f64) {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut found = Vec::new();
    for _ in 0..DRAWS {
        let drawn: Vec<Loaded> = loads
            .iter()
            .map(|load| {
                let n = load.seconds.len();
                let seconds = (0..n).map(|_| load.seconds[random.random_range(0..n)]).collect();
                Loaded { rate: load.rate, seconds }
            })
            .collect();
        found.extend(knee(&drawn, share));
    }
    let at = |p: f64| quantile(&found, p).unwrap_or(f64::NAN);
    (at(0.025), at(0.975))
}

/// What a node's model says.
pub(super) fn read_model(url: &str) -> anyhow::Result<Value> {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).context("cannot connect to the node")?;
    write!(stream, "GET /model HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let body = reply.split_once("\r\n\r\n").context("the node's reply has no end of its head")?.1;
    serde_json::from_str(body).context("the node's reply is not JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_knee_of_a_known_law_is_found() {
        // Logit of the share: 3 at 500 requests/s, 1 less for each 100 more.
        let load = |rate: f64| {
            let p = 1.0 / (1.0 + (-(3.0 - (rate - 500.0) / 100.0)).exp());
            Loaded { rate, seconds: vec![(p * 1e6, 1e6); 8] }
        };
        let loads: Vec<Loaded> = [450.0, 500.0, 550.0].map(load).into();
        let found = knee(&loads, 0.95).unwrap();
        assert!((found - (500.0 + 100.0 * (3.0 - 19f64.ln()))).abs() < 0.1, "{found}");
        let (low, high) = interval(&loads, 0.95, 1);
        assert!((high - low).abs() < 1e-3, "all seconds are alike");
        assert!(knee(&[load(500.0)], 0.95).is_none(), "one load has no slope");
    }
}
