//! `concertina why`, `hold` and `resume`: what a running server changes by itself. The live model's part of
//! `concertina status`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use engine::act::Status;
use http::Method;
use model::fit::Change;
use serde::Deserialize as _;
use serde_json::Value;

use super::data_print as print;
use super::status::bytes;
use crate::remote::server::Server;

/// The server that a command connects to.
#[derive(clap::Args)]
pub struct At {
    /// The node or gateway
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7070")]
    pub server: String,
    /// Its `serve.token`; other users of this machine can see it on the command line
    #[arg(long, conflicts_with = "token_file")]
    token: Option<String>,
    /// A file that contains the token
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl At {
    fn server(&self) -> anyhow::Result<Server> {
        let read = |path: &PathBuf| {
            let text = record::file::read_text(path);
            text.with_context(|| format!("cannot read the token in {}", path.display()))
        };
        let from_file = self.token_file.as_ref().map(read).transpose()?;
        Server::new(&self.server, self.token.as_deref().or(from_file.as_deref()))
    }

    /// Sends a request and reads the JSON of its reply.
    pub fn json(&self, method: &Method, path: &str) -> anyhow::Result<Value> {
        self.server()?.json(method, path, None)
    }

    /// Sends a request with a body and reads the JSON of its reply.
    pub fn send(&self, method: &Method, path: &str, body: Vec<u8>) -> anyhow::Result<Value> {
        self.server()?.json(method, path, Some(body))
    }
}

/// Arguments of `concertina why`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina why
  concertina why shard/packages --last 50
  concertina why memory

Shows the changes that the server made by itself or advises (act.layers, act.bounds, act.memory), newest
first, each with its reason and with the expected and the realised effect.")]
pub struct WhyArgs {
    /// Only changes of queues whose names begin with this
    #[arg(default_value = "")]
    queue: String,
    /// Maximum number of changes
    #[arg(long, default_value_t = 20)]
    last: usize,
    #[command(flatten)]
    at: At,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `concertina hold` and `concertina resume`.
#[derive(clap::Args)]
pub struct HoldArgs {
    #[command(flatten)]
    at: At,
}

/// Runs `concertina why`.
pub fn why(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let mut shown = args.at.json(&Method::GET, "/actions")?;
    let held = shown["held"].as_bool().unwrap_or(false);
    let all = shown.get_mut("actions").and_then(Value::as_array_mut);
    let all = all.context("the reply has no actions")?;
    all.retain(|entry| entry["target"].as_str().is_some_and(|t| t.starts_with(&args.queue)));
    all.truncate(args.last);
    if args.json {
        return print::value(&shown);
    }
    print::line(
        why_text(held, shown["actions"].as_array().map_or(&[][..], Vec::as_slice)).trim_end(),
    )
}

/// Runs `concertina hold` (`on`) or `concertina resume`.
pub fn hold(args: &HoldArgs, on: bool) -> anyhow::Result<ExitCode> {
    let path = if on { "/actions/hold" } else { "/actions/resume" };
    let shown = args.at.json(&Method::POST, path)?;
    let held =
        shown["held"].as_bool().context("the reply does not say whether changes are held")?;
    print::line(if held {
        "all changes are held until `concertina resume`, but for those that a budget requires"
    } else {
        "changes are made again"
    })
}

/// A number in three digits, or a dash.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(value) if value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.2}"),
        Some(value) => format!("{value:.3}"),
        None => "-".to_owned(),
    }
}

fn percent(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{:.2} %", value * 100.0))
}

fn ms(value: &Value) -> String {
    value.as_f64().map_or_else(|| "-".to_owned(), |value| format!("{:.3} ms", value * 1e3))
}

/// The live model in words: the reply of `/model`.
pub fn model_text(shown: &Value) -> String {
    let model = &shown["model"];
    let measured = &model["measured"];
    let mut out = format!(
        "objective   {} within {}\nload        {} requests/s over {} s\nmeasured    {} within, median {}, p99 {}\n",
        percent(&model["share"]),
        ms(&model["objective_s"]),
        number(&model["rate"]),
        number(&model["window_s"]),
        percent(&measured["within"]),
        ms(&measured["p50_s"]),
        ms(&measured["p99_s"]),
    );
    for at in model["loads"].as_array().into_iter().flatten() {
        let mark = if at["beyond_limit"] == true { " *" } else { "" };
        let within = &at["within"];
        let _ = match within.is_null() {
            true => writeln!(
                out,
                "at {:>4} x   {} requests/s: saturated{mark}",
                number(&at["times"]),
                number(&at["rate"])
            ),
            false => writeln!(
                out,
                "at {:>4} x   {} requests/s: {} within ({} to {}), median {}, p99 {}{mark}",
                number(&at["times"]),
                number(&at["rate"]),
                percent(&within["value"]),
                percent(&within["low"]),
                percent(&within["high"]),
                ms(&at["p50_s"]),
                ms(&at["p99_s"]),
            ),
        };
    }
    let ahead = &model["ahead"];
    if !ahead.is_null() {
        let misses = if ahead["misses"] == true { ", which misses the objective" } else { "" };
        let (within, rate) = (percent(&ahead["within"]["value"]), number(&ahead["rate"]));
        let at = |of: &Value| of["at_unix_us"].as_f64().unwrap_or(0.0) * 1e-6;
        let ahead_s = at(ahead) - at(model);
        let _ = writeln!(
            out,
            "{:<12}{within} within ({} to {}) at {rate} requests/s ({} to {}){misses}",
            format!("in {} s", ahead_s.round()),
            percent(&ahead["within"]["low"]),
            percent(&ahead["within"]["high"]),
            number(&ahead["rate_low"]),
            number(&ahead["rate_high"]),
        );
        if ahead["may_saturate"] == true {
            out += "            the load may reach saturation: the share may then fall to 0\n";
        }
    }
    let headroom = &model["headroom"];
    if headroom.is_null() {
        let why = model["why_not_fitted"].as_str().unwrap_or("no model was fitted yet");
        let _ = writeln!(out, "headroom    not known: {why}");
    } else {
        let (times, mark) =
            (&headroom["times"], if headroom["beyond_limit"] == true { " *" } else { "" });
        let _ = writeln!(
            out,
            "headroom    {} x ({} to {}), up to {} requests/s{mark}; {} saturates first, at {}; trusted up to {}",
            number(&times["value"]),
            number(&times["low"]),
            number(&times["high"]),
            number(&headroom["rate"]["value"]),
            headroom["breaks_first"].as_str().unwrap_or("nothing"),
            number(&headroom["saturation"]),
            number(&headroom["confidence_limit"]),
        );
    }
    let errors = &model["errors"];
    let _ = writeln!(
        out,
        "errors      of {} predictions: median {} points, worst {}; {} were inside their intervals; predicting \
         no change: median {}",
        errors["count"],
        number(&errors["median_points"]),
        number(&errors["worst_points"]),
        percent(&errors["coverage"]),
        number(&errors["median_unchanged_points"]),
    );
    if let Some(why) = model["withheld"].as_str() {
        let _ = writeln!(out, "advice      withheld: {why}");
    }
    for queue in model["stations"].as_array().into_iter().flatten() {
        let name = queue["queue"].as_str().unwrap_or("?");
        // Queries have no model as a whole, so that each of their queues has a line.
        if name == "datasets" || name.starts_with("shard/") {
            let _ = writeln!(
                out,
                "{name}: {} requests/s of {}, {} busy, mean queue length {}, expected {}, layers {}",
                number(&queue["rate"]),
                ms(&queue["service_mean_s"]),
                match queue["servers"] == 0 {
                    true => "-".to_owned(),
                    false => percent(&queue["utilisation"]),
                },
                number(&queue["length"]),
                number(&queue["length_ahead"]),
                match &shown["footprints"][name] {
                    Value::Null => "-".to_owned(),
                    layers => bytes(layers),
                },
            );
        }
    }
    for change in model["changes"].as_array().into_iter().flatten() {
        if let Ok(change) = Change::deserialize(change) {
            let _ = writeln!(out, "changed     {change}");
        }
    }
    if out.contains(" *") {
        out += "* extrapolated: beyond the load up to which the model is trusted\n";
    }
    out
}

/// A time in the largest unit of which it has at least two.
fn ago(time: std::time::Duration) -> String {
    match time.as_secs() {
        s if s >= 2 * 86_400 => format!("{} days", s / 86_400),
        s if s >= 2 * 3600 => format!("{} h", s / 3600),
        s if s >= 2 * 60 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

fn why_text(held: bool, entries: &[Value]) -> String {
    let mut out = String::new();
    if held {
        out += "All changes are held; `concertina resume` releases them.\n";
    }
    if entries.is_empty() {
        out += "The journal has no such changes.\n";
    }
    for entry in entries {
        let text = |key: &str| entry[key].as_str().unwrap_or("?").to_owned();
        let at = entry["at_unix_us"].as_u64().unwrap_or(0);
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_micros(at);
        let ago = ago(at.elapsed().unwrap_or_default());
        let status =
            Status::deserialize(&entry["status"]).map_or("?".to_owned(), |s| s.to_string());
        let realised = match &entry["realised"] {
            Value::Null => String::new(),
            value => format!(", {} realised", number(value)),
        };
        let effect = &entry["expected"];
        let _ = writeln!(
            out,
            "{ago} ago, {}: {} ({status})\n  because {}\n  {}: {} before, {} expected{realised}",
            text("target"),
            text("change"),
            text("reason"),
            effect["quantity"].as_str().unwrap_or("?"),
            number(&effect["before"]),
            number(&effect["after"]),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_figures_are_dashes_and_a_limit_is_marked() {
        let shown = json!({"model": {
            "share": 0.95, "objective_s": 0.05, "rate": 120.0, "window_s": 60.0,
            "measured": {"within": null, "p50_s": null, "p99_s": 0.04},
            "loads": [{"times": 2.0, "rate": 240.0, "within": null, "beyond_limit": true}],
            "ahead": {
                "within": {"value": 0.99, "low": 0.0, "high": 1.0},
                "rate": 100.0, "rate_low": 80.0, "rate_high": 300.0, "may_saturate": true,
            },
            "headroom": null, "why_not_fitted": "few requests",
            "errors": {"count": 0}, "withheld": "0 of 3", "changes": [{
                "parameter": {"service_time": "bulk_device"}, "fitted": 0.005,
                "now": {"value": 0.0075, "low": 0.007, "high": 0.008, "unit": "s"},
                "since_unix_us": 1, "certain_unix_us": 2,
            }],
            "stations": [{
                "queue": "shard/names/000001", "servers": 1, "rate": 207.0, "service_mean_s": 0.00366,
                "utilisation": 0.9932, "length": 7.8, "length_ahead": null,
            }, {"queue": "device/0"}],
        }, "footprints": {"shard/names/000001": 6_200_000}});
        let text = model_text(&shown);
        for part in [
            "saturated *",
            "* extrapolated",
            "service time of bulk_device: 7.50 ms instead of 5.00 ms",
            "median -, p99 40.000 ms",
            "not known: few requests",
            "at 100 requests/s (80.00 to 300)",
            "may reach saturation",
            "withheld: 0 of 3",
            "shard/names/000001: 207 requests/s of 3.660 ms, 99.32 % busy, mean queue length 7.80, expected -, layers 6.2",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("device/0: "), "{text}");
        assert!(why_text(true, &[]).contains("resume"));
        let entry = json!({
            "at_unix_us": 1, "target": "device/0", "change": "queue bound of 10 instead of 99",
            "reason": "reads wait", "status": "too_many", "realised": null,
            "expected": {"quantity": "longest wait, s", "before": 2.0, "after": 0.5},
        });
        let text = why_text(false, &[entry]);
        let expected = "days ago, device/0: queue bound of 10 instead of 99 (not made: too many changes in a minute)";
        assert!(text.contains(expected), "{text}");
        assert_eq!(ago(std::time::Duration::from_secs(7199)), "119 min");
    }
}
