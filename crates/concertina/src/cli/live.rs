//! `concertina why`, `hold` and `resume`: what a running server changes by itself. The live model's part of
//! `concertina status`.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use engine::act::{Cause, Entry};
use engine::status::{Actions, ModelReport};
use http::Method;
use model::live::{Ahead, AtLoad, State, Station, Summary};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::data_print as print;
use super::figures::{bytes, figure, number, percent, seconds};
use super::output::errln;
use crate::remote::server::Server;

/// The server that a command connects to.
#[derive(clap::Args)]
pub struct Endpoint {
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

impl Endpoint {
    fn server(&self) -> anyhow::Result<Server> {
        let read = |path: &PathBuf| {
            let text = record::file::read_text(path);
            text.with_context(|| format!("cannot read the token in {}", path.display()))
        };
        let from_file = self.token_file.as_ref().map(read).transpose()?;
        Server::new(&self.server, self.token.as_deref().or(from_file.as_deref()))
    }

    /// Sends a request and parses the JSON of its reply.
    pub fn json<T: DeserializeOwned>(&self, method: &Method, path: &str) -> anyhow::Result<T> {
        self.server()?.json(method, path, None)
    }

    /// Requests a path and returns the text of its reply.
    pub fn text(&self, path: &str) -> anyhow::Result<String> {
        let bytes = self.server()?.bytes(path)?;
        String::from_utf8(bytes.to_vec())
            .with_context(|| format!("the reply of {}{path} is not text", self.server))
    }

    /// Parses a reply that was fetched as it is.
    pub fn parse<T: DeserializeOwned>(&self, path: &str, reply: &Value) -> anyhow::Result<T> {
        T::deserialize(reply).with_context(|| {
            format!("cannot parse the reply of {}{path}; is it the same version?", self.server)
        })
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
    at: Endpoint,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Arguments of `concertina hold` and `concertina resume`.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina hold
  concertina why
  concertina resume --server http://10.0.0.2:7070 --token-file token")]
pub struct HoldArgs {
    #[command(flatten)]
    at: Endpoint,
}

/// Runs `concertina why`.
pub fn why(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    // Fetched as it is, for `--json`: it prints what this version does not know too.
    let mut raw: Value = args.at.json(&Method::GET, "/actions")?;
    let Actions { held, mut actions, .. } = args.at.parse("/actions", &raw)?;
    if args.json {
        if let Some(all) = raw["actions"].as_array_mut() {
            all.retain(|it| it["target"].as_str().is_some_and(|it| it.starts_with(&args.queue)));
            all.truncate(args.last);
        }
        return print::value(&raw);
    }
    actions.retain(|entry| entry.target.starts_with(&args.queue));
    actions.truncate(args.last);
    print::line(why_text(held, &actions).trim_end())
}

/// Runs `concertina hold` (`on`) or `concertina resume`.
pub fn hold(args: &HoldArgs, on: bool) -> anyhow::Result<ExitCode> {
    let path = if on { "/actions/hold" } else { "/actions/resume" };
    let Actions { held, warning, .. } = args.at.json(&Method::POST, path)?;
    if let Some(warning) = warning {
        errln!("Warning: {warning}");
    }
    print::line(if held {
        "all changes are held until `concertina resume`, but for those that a budget requires"
    } else {
        "changes are made again"
    })
}

/// The live model in words: the reply of `/model`.
pub fn model_text(reply: &ModelReport) -> String {
    let model = &reply.model;
    let measured = &model.measured;
    // The model is of objects. Without these words, 0 stands beside the queries that the stations below count.
    let serves_datasets = model.stations.iter().any(|station| is_of_queries(&station.queue));
    let of_objects = if serves_datasets { " for objects" } else { "" };
    let mut out = format!(
        "objective   {} within {}\nload        {} requests/s{of_objects} over {} s\nmeasured    {} within, median {}, p99 {}\n",
        percent(model.share),
        seconds(model.objective_s),
        number(model.rate),
        number(model.window_s),
        percent(measured.within),
        seconds(measured.p50_s),
        seconds(measured.p99_s),
    );
    for load in &model.loads {
        out += &load_text(load);
    }
    if let Some(ahead) = &model.ahead {
        out += &ahead_text(ahead, model.at_unix_us);
    }
    out += &headroom_text(model);
    out += &errors_text(&model.errors);
    if let Some(why) = &model.withheld {
        let _ = writeln!(out, "advice      withheld: {why}");
    }
    for station in &model.stations {
        // Queries have no model as a whole, so that each of their queues has a line.
        if is_of_queries(&station.queue) {
            out += &station_text(station, reply.footprints.get(&station.queue).copied());
        }
    }
    for change in &model.changes {
        let _ = writeln!(out, "changed     {change}");
    }
    if out.contains(" *") {
        out += "* past the confidence limit, where queues are long\n";
    }
    out
}

/// Whether a queue is one of queries of datasets.
fn is_of_queries(queue: &str) -> bool {
    queue == "datasets" || queue.starts_with("shard/")
}

fn extrapolated(beyond_limit: bool) -> &'static str {
    if beyond_limit { " *" } else { "" }
}

fn load_text(load: &AtLoad) -> String {
    let (times, rate) = (number(load.times), number(load.rate));
    let mark = extrapolated(load.beyond_limit);
    let Some(within) = &load.within else {
        return format!("at {times:>4} x   {rate} requests/s: saturated{mark}\n");
    };
    format!(
        "at {times:>4} x   {rate} requests/s: {} within ({} to {}), median {}, p99 {}{mark}\n",
        percent(within.value),
        percent(within.low),
        percent(within.high),
        seconds(load.p50_s),
        seconds(load.p99_s),
    )
}

fn ahead_text(ahead: &Ahead, now_unix_us: u64) -> String {
    let ahead_s = (ahead.at_unix_us as f64 - now_unix_us as f64) * 1e-6;
    let mut out = format!(
        "{:<12}{} within ({} to {}) at {} requests/s ({} to {}){}\n",
        format!("in {} s", ahead_s.round()),
        percent(ahead.within.value),
        percent(ahead.within.low),
        percent(ahead.within.high),
        number(ahead.rate),
        number(ahead.rate_low),
        number(ahead.rate_high),
        if ahead.misses { ", which misses the objective" } else { "" },
    );
    if ahead.may_saturate {
        out += "            the load may reach saturation: the share may then fall to 0\n";
    }
    out
}

fn errors_text(errors: &Summary) -> String {
    if errors.count == 0 {
        return "errors      not known: no prediction has been compared with what happened yet\n"
            .to_owned();
    }
    format!(
        "errors      of {} predictions: median {} points, worst {}; {} were inside their intervals; predicting \
         no change: median {}\n",
        errors.count,
        number(errors.median_points),
        number(errors.worst_points),
        percent(errors.coverage),
        number(errors.median_unchanged_points),
    )
}

fn headroom_text(model: &State) -> String {
    let Some(headroom) = &model.headroom else {
        let why = model.why_not_fitted.as_deref().unwrap_or("no model was fitted yet");
        return format!("headroom    not known: {why}\n");
    };
    format!(
        "headroom    {} x ({} to {}), up to {} requests/s{}; {} saturates first, at {}; confidence limit {}\n",
        number(headroom.times.value),
        number(headroom.times.low),
        number(headroom.times.high),
        number(headroom.rate.value),
        extrapolated(headroom.beyond_limit),
        headroom.breaks_first.as_deref().unwrap_or("nothing"),
        number(headroom.saturation),
        number(headroom.confidence_limit),
    )
}

fn station_text(station: &Station, layers_bytes: Option<u64>) -> String {
    // A station whose number of servers has no limit has no utilisation.
    let utilisation = (station.servers > 0).then_some(station.utilisation);
    format!(
        "{}: {} requests/s of {}, {} busy, mean queue length {}, expected {}, layers {}\n",
        station.queue,
        number(station.rate),
        seconds(station.service_mean_s),
        percent(utilisation),
        number(station.length),
        number(station.length_ahead),
        figure(layers_bytes.map(bytes)),
    )
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

fn why_text(held: bool, entries: &[Entry]) -> String {
    let mut out = String::new();
    if held {
        out += "All changes are held; `concertina resume` releases them.\n";
    }
    if entries.is_empty() {
        out += "The journal has no such changes.\n";
    }
    for entry in entries {
        let at = std::time::UNIX_EPOCH + std::time::Duration::from_micros(entry.at_unix_us);
        let ago = ago(at.elapsed().unwrap_or_default());
        let realised = match entry.realised {
            None => String::new(),
            Some(value) => format!(", {} realised", number(value)),
        };
        let by = if entry.cause == Cause::Operator { ", by an operator" } else { "" };
        let effect = &entry.expected;
        let _ = writeln!(
            out,
            "{} {ago} ago, {}: {} ({}{by})\n  because {}\n  {}: {} before, {} expected{realised}",
            entry.id,
            entry.target,
            entry.change,
            entry.status,
            entry.reason,
            effect.quantity,
            number(effect.before),
            number(effect.after),
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn station(queue: &str) -> Value {
        json!({
            "queue": queue, "servers": 1, "rate": 207.0, "rate_ahead": 207.0, "service_mean_s": 0.00366,
            "service_scv": 1.0, "utilisation": 0.9932, "length": 7.8, "length_ahead": null,
        })
    }

    #[test]
    fn unknown_figures_are_dashes_and_a_limit_is_marked() {
        let reply = json!({"cost_s": 0.0, "dropped": 0, "model": {
            "share": 0.95, "objective_s": 0.05, "at_unix_us": 1, "rate": 120.0, "window_s": 60.0, "method": "recent",
            "measured": {"requests": 9, "within": null, "p50_s": null, "p99_s": 0.04, "outcomes": []}, "fits": 0,
            "loads": [{"times": 2.0, "rate": 240.0, "within": null, "beyond_limit": true}],
            "ahead": {
                "at_unix_us": 2, "within": {"value": 0.99, "low": 0.0, "high": 1.0, "unit": "1"},
                "rate": 100.0, "rate_low": 80.0, "rate_high": 300.0, "misses": false, "may_saturate": true,
            },
            "headroom": null, "why_not_fitted": "few requests", "curve": [], "scored": [], "warnings": [],
            "errors": {"count": 0}, "withheld": "0 of 3", "changes": [{
                "parameter": {"service_time": "bulk_device"}, "fitted": 0.005,
                "now": {"value": 0.0075, "low": 0.007, "high": 0.008, "unit": "s"},
                "since_unix_us": 1, "certain_unix_us": 2,
            }],
            "stations": [station("shard/names/000001"), station("device/0")],
        }, "footprints": {"shard/names/000001": 6_200_000}});
        let text = model_text(&serde_json::from_value(reply).unwrap());
        for part in [
            "saturated *",
            "* past the confidence limit",
            "service time of bulk_device: 7.50 ms instead of 5.00 ms",
            "median -, p99 40 ms",
            "not known: few requests",
            "errors      not known: no prediction has been compared",
            "at 100 requests/s (80 to 300)",
            "may reach saturation",
            "withheld: 0 of 3",
            "shard/names/000001: 207 requests/s of 3.66 ms, 99.32 % busy, mean queue length 7.8, expected -, layers 6.2",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("device/0: "), "{text}");
        assert!(why_text(true, &[]).contains("resume"));
        let entry = json!({
            "id": 1, "knob": "bounds", "at_unix_us": 1, "target": "device/0", "change": "queue bound of 10 instead of 99",
            "reason": "reads wait", "status": "too_many", "realised": null,
            "expected": {"quantity": "longest wait, s", "before": 2.0, "after": 0.5},
        });
        let text = why_text(false, &[serde_json::from_value(entry).unwrap()]);
        let expected = "days ago, device/0: queue bound of 10 instead of 99 (not made: too many changes in a minute)";
        assert!(text.contains(expected), "{text}");
        assert_eq!(ago(std::time::Duration::from_secs(7199)), "119 min");
    }
}
