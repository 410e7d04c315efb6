//! `concertina status`: what a running server predicts of itself, its devices, and what is hot.

use std::fmt::Write;
use std::process::ExitCode;

use http::{Method, StatusCode};
use serde_json::Value;

use super::data_print as print;
use super::live::{At, model_text};
use crate::remote::server::Refused;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina status
  concertina status --server http://127.0.0.1:7071 --json

Shows the share of requests within the objective (model.objective_ms) as measured and as predicted at 1,
1.5 and 2 times the load, the load up to which the objective holds (headroom), what saturates first, and
how wrong past predictions were. Figures marked * are past the load up to which the model is trusted.
Then the members of the cluster with their versions and the keys that they move, the devices of a node, what is hot and
why, and what was moved.")]
pub struct Args {
    #[command(flatten)]
    at: At,
    /// Print JSON: the replies of /model, /admin/status, /admin/members and /admin/tiers
    #[arg(long)]
    json: bool,
}

/// Objects that are listed as hot, and moves.
const LISTED: usize = 10;

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let live = args.at.json(&Method::GET, "/model")?;
    let status = args.at.json(&Method::GET, "/admin/status")?;
    // A gateway and a proxy have no devices.
    let is_node = !status["contents"].is_null();
    let tiers = match is_node {
        true => args.at.json(&Method::GET, "/admin/tiers")?,
        false => Value::Null,
    };
    let members = match membership_of(&status)["members"].is_array() {
        true => args.at.json(&Method::GET, "/admin/members").or_else(of_earlier)?,
        false => Value::Null,
    };
    if args.json {
        return print::value(&serde_json::json!({
            "live": live, "status": status, "members": members, "tiers": tiers,
        }));
    }
    let mut text = model_text(&live);
    text += &origin_text(&status["origin"]);
    text += &connections_text(&status);
    text += &members_text(&status, &members);
    text += &hot_reads_text(&status);
    if is_node {
        text += &in_words(&args.at.server, &status, &tiers);
    }
    print::line(text.trim_end())
}

/// The bound of connections, where the limit of open files is what bounds them.
fn connections_text(status: &Value) -> String {
    let config = &status["config"];
    let (section, part) = match status["role"] == "proxy" {
        true => (&config["memcached"], "memcached"),
        false => (&config["serve"], "serve"),
    };
    let numbers = status["connections_max"].as_u64().zip(section["connections_max"].as_u64());
    match numbers {
        Some((max, asked)) if max < asked => format!(
            "connections: {} of at most {max}; the limit of open files allows no more of {part}.connections_max {asked}\n",
            status["connections"]
        ),
        _ => String::new(),
    }
}

/// A server of an earlier version does not know what its members say.
fn of_earlier(error: anyhow::Error) -> anyhow::Result<Value> {
    match error.downcast_ref::<Refused>() {
        Some(Refused::Status(StatusCode::NOT_FOUND, _)) => Ok(Value::Null),
        _ => Err(error),
    }
}

/// The reason for the number of reads that a device is given at once.
fn depth_text(depth: &Value) -> String {
    if depth.is_null() {
        return String::new();
    }
    let at = |depth: &Value, reads: &Value| format!("{:.0}/s at {depth}", number(reads));
    let mut measured = vec![at(&depth["depth"], &depth["reads_per_s"])];
    for other in [&depth["smaller"], &depth["larger"]] {
        measured.extend(other.is_array().then(|| at(&other[0], &other[1])));
    }
    format!("; depth {} of measured {}", depth["depth"], measured.join(", "))
}

/// What a process says of its origin; empty if it says nothing.
fn origin_text(origin: &Value) -> String {
    let mut text = String::new();
    if let Some(id) = origin["id"].as_str() {
        let _ = writeln!(text, "origin {id}");
    }
    if let Some(why) = origin["lost"].as_str() {
        let _ = writeln!(text, "  {why}");
    }
    if let Some(why) = origin["read_only"].as_str() {
        let _ = writeln!(text, "  writes are refused: {why}");
    }
    text
}

/// The part of a status that has the members: a node's is about more.
fn membership_of(status: &Value) -> &Value {
    if status["cluster"].is_null() { status } else { &status["cluster"] }
}

/// The members of the cluster: who lives, joins or drains, and what each says of itself; empty alone.
fn members_text(status: &Value, said: &Value) -> String {
    let mut text = String::new();
    let it = membership_of(status);
    let Some(members) = it["members"].as_array() else { return text };
    let kind = it["membership"].as_str().unwrap_or("?");
    let _ = write!(text, "members ({kind}), epoch {}", it["epoch"]);
    match it["confirmed_s_ago"].as_f64() {
        Some(ago) => _ = writeln!(text, ", confirmed {ago:.1} s ago"),
        None => text.push('\n'),
    }
    if let Some(problem) = it["problem"].as_str() {
        let _ = writeln!(text, "  {problem}");
    }
    text += &shared_text(&it["configuration"]);
    for member in members {
        let state = match (member["state"].as_str(), member["live"] == true) {
            (Some("draining"), _) => "draining",
            (_, true) => "live",
            (_, false) => "not live",
        };
        let suspects = member["suspected_by"].as_array().map(Vec::as_slice).unwrap_or_default();
        let suspects: Vec<&str> = suspects.iter().filter_map(Value::as_str).collect();
        let suspected = match suspects.is_empty() {
            true => String::new(),
            false => format!(", does not answer {}", suspects.join(", ")),
        };
        let part = match member["hot"] == true {
            true => "hot node".to_owned(),
            false => format!("{:.1} % of the keys", 100.0 * number(&member["share"])),
        };
        let said = said.as_array().map(Vec::as_slice).unwrap_or_default();
        let said = said.iter().find(|one| one["name"] == member["name"]).unwrap_or(&Value::Null);
        let _ = writeln!(
            text,
            "  {} at {}: {state}, {part}{suspected}{}",
            member["name"].as_str().unwrap_or("?"),
            member["address"].as_str().unwrap_or("?"),
            said_text(said, &it["epoch"]),
        );
        text += &warmed_text(&said["warmed"]);
    }
    text
}

/// What a member says of itself: its version, and its epoch where that is another one.
fn said_text(said: &Value, epoch: &Value) -> String {
    if let Some(error) = said["error"].as_str() {
        return format!("; {error}");
    }
    let Some(version) = said["version"].as_str() else { return String::new() };
    match said["epoch"] == *epoch {
        true => format!(", version {version}"),
        false => format!(", version {version}, epoch {}", said["epoch"]),
    }
}

/// What a node offered to nodes that were new to their keys; empty if nothing.
fn warmed_text(warmed: &Value) -> String {
    if warmed["goes_on"] != true && number(&warmed["objects"]) == 0.0 {
        return String::new();
    }
    let now = match warmed["goes_on"] == true {
        true => format!("; {} wait", warmed["waiting"]),
        false => String::new(),
    };
    format!(
        "    warmed: {} objects ({}) offered to nodes that were new to them, {} compared with the origin first{now}\n",
        warmed["objects"],
        bytes(&warmed["bytes"]),
        warmed["compared"],
    )
}

/// What the processes of the cluster share; empty if nothing.
fn shared_text(shared: &Value) -> String {
    let mut text = String::new();
    if shared.is_null() || (shared["version"] == 0 && shared["refused"].is_null()) {
        return text;
    }
    let weights = shared["weights"].as_object().map(|all| {
        all.iter().map(|(name, weight)| format!("{name} {weight}")).collect::<Vec<_>>().join(", ")
    });
    let _ = write!(text, "  shared configuration: version {}", shared["version"]);
    match weights.filter(|weights| !weights.is_empty()) {
        Some(weights) => _ = writeln!(text, ", weights {weights}"),
        None => text.push('\n'),
    }
    if let Some(why) = shared["refused"].as_str() {
        let _ = writeln!(text, "  what etcd holds as the configuration is refused: {why}");
    }
    let later = shared["at_next_start"].as_array().map(Vec::as_slice).unwrap_or_default();
    let later: Vec<&str> = later.iter().filter_map(Value::as_str).collect();
    if !later.is_empty() {
        let _ = writeln!(text, "  from this process's next start on: {}", later.join(", "));
    }
    text
}

/// What a gateway knows of hot nodes; empty without any.
fn hot_reads_text(status: &Value) -> String {
    let gateway = &status["gateway"];
    let (keys, reads) = (number(&gateway["hot_keys"]), number(&gateway["counts"]["hot_reads"]));
    match keys + reads > 0.0 {
        true => {
            format!("hot nodes: known for {keys} keys, answered {reads} reads of this gateway\n")
        }
        false => String::new(),
    }
}

/// What a node has named hot nodes for, or what it served as one; empty without any.
fn hot_nodes_text(hot: &Value) -> String {
    let mut text = String::new();
    if hot.is_null() {
        return text;
    }
    if hot["is_hot"] == true {
        let _ = writeln!(text, "hot node: served {} reads", hot["served"]);
        return text;
    }
    let (bought, minute) = (&hot["bought"], &hot["last_minute"]);
    let _ = writeln!(
        text,
        "hot nodes: {} keys, {} of {}; they served {} reads, {:.1} s of this node's devices saved; worth it from \
         {} of a device",
        hot["keys"],
        bytes(&hot["bytes"]),
        bytes(&hot["bytes_max"]),
        bought["reads"],
        number(&bought["device_s"]),
        hot["load_min"],
    );
    let _ = writeln!(
        text,
        "  last minute: {} named ({}), {} dropped, {} put off",
        minute["named"],
        bytes(&minute["named_bytes"]),
        minute["dropped"],
        minute["put_off"],
    );
    let hottest = hot["hottest"].as_array().map(Vec::as_slice).unwrap_or_default();
    for object in hottest.iter().take(LISTED) {
        let nodes = object["nodes"].as_array().map(Vec::as_slice).unwrap_or_default();
        let nodes: Vec<&str> = nodes.iter().filter_map(Value::as_str).collect();
        let _ = writeln!(
            text,
            "  {:?} on {}: {:.2} reads/s x {:.3} ms of a device, {}{}",
            object["key"].as_str().unwrap_or("?"),
            nodes.join(", "),
            number(&object["reads_per_s"]),
            number(&object["device_s"]) * 1e3,
            bytes(&object["bytes"]),
            if object["pinned"] == true { ", pinned" } else { "" },
        );
    }
    text
}

fn in_words(url: &str, status: &Value, tiers: &Value) -> String {
    let mut text = String::new();
    let contents = &status["contents"];
    let _ = writeln!(
        text,
        "{url}: version {}, {} objects in memory ({}), {} on devices; requests waiting: {}",
        status["version"].as_str().unwrap_or("?"),
        contents["memory_objects"],
        bytes(&contents["memory_bytes"]),
        contents["device_objects"],
        status["requests_waiting"],
    );
    let memory = &status["memory"];
    if memory.is_object() {
        let of = |name: &str| bytes(&memory[name]);
        let _ = writeln!(
            text,
            "memory: {} for objects and layers; objects have {} of at most {}, layers {} of at most {}",
            of("bytes_max"),
            of("objects_bytes"),
            of("objects_bytes_max"),
            of("layers_bytes"),
            of("layers_bytes_max"),
        );
    }
    if let Some(laboratory) = status["laboratory"].as_str() {
        let _ = writeln!(text, "laboratory: {laboratory}");
    }
    let rows = tiers["devices"].as_array().map(Vec::as_slice).unwrap_or_default();
    for device in rows {
        let state = match device["state"].as_str() {
            Some("in") => String::new(),
            _ => format!(", OUT for {:.0} s", number(&device["out_for_s"])),
        };
        let depth = depth_text(&device["depth"]);
        // Of a block device, which has a place for each.
        let places = device["segments_max"].as_u64().map_or_else(String::new, |most| {
            format!(" in {} of {most} segments", device["segments"])
        });
        let _ = writeln!(
            text,
            "  {} {:4}  {:.3} ms expected, {} queued of {} at once; {} of {}{places}, {} live in {} objects; {} written \
             ({} again){depth}{state}",
            device["name"].as_str().unwrap_or("?"),
            device["class"].as_str().unwrap_or("?"),
            number(&device["expected_s"]) * 1e3,
            device["queue_length"],
            device["parallel"],
            bytes(&device["bytes"]),
            bytes(&device["bytes_max"]),
            bytes(&device["live_bytes"]),
            device["objects"],
            bytes(&device["written_bytes"]),
            bytes(&device["reinserted_bytes"]),
        );
    }
    text += &hot_nodes_text(&tiers["hot_nodes"]);
    let hot = &tiers["hot"];
    if hot.is_null() {
        text +=
            "no hot copies: these need devices of class \"hot\" beside those of class \"bulk\"\n";
        return text;
    }
    let (bought, minute) = (&hot["bought"], &hot["last_minute"]);
    let (reads, bulk) = (number(&bought["hot_reads"]), number(&bought["bulk_reads"]));
    let _ = writeln!(
        text,
        "hot: {:.1} % of {} device reads, {:.1} s of waiting saved; {} objects; worth it from {:.3e} s/s per byte; reads count for {:.0} s",
        100.0 * reads / (reads + bulk).max(1.0),
        reads + bulk,
        number(&bought["saved_s"]),
        hot["objects"],
        number(&hot["promote_from"]),
        number(&hot["remembered_s"]),
    );
    let _ = writeln!(
        text,
        "  last minute: {} promoted ({}), {} written again, {} demoted, {} put off",
        minute["promoted"],
        bytes(&minute["promoted_bytes"]),
        minute["reinserted"],
        minute["demoted"],
        minute["put_off"],
    );
    let shares = hot["share_at"].as_array().map(Vec::as_slice).unwrap_or_default();
    let share = |at: &Value| format!("{:.1} % with {}x", 100.0 * number(&at[1]), number(&at[0]));
    let shares: Vec<String> = shares.iter().map(share).collect();
    let _ = writeln!(text, "  of the bytes, the best placement serves: {}", shares.join(", "));
    let hottest = hot["hottest"].as_array().map(Vec::as_slice).unwrap_or_default();
    for object in hottest.iter().take(LISTED) {
        let _ = writeln!(
            text,
            "  {:?}: {:.2} reads/s x {:.3} ms saved, {}{}",
            object["key"].as_str().unwrap_or("?"),
            number(&object["reads_per_s"]),
            number(&object["saved_s"]) * 1e3,
            bytes(&object["bytes"]),
            if object["pinned"] == true { ", pinned" } else { "" },
        );
    }
    text
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

pub fn bytes(value: &Value) -> String {
    let bytes = number(value);
    let units = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let unit = units.iter().find(|(unit, _)| bytes >= *unit);
    unit.map_or_else(|| format!("{bytes} B"), |(unit, name)| format!("{:.1} {name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_who_is_there() {
        let member = |name: &str, state: &str, live: bool| {
            serde_json::json!({ "name": name, "address": "127.0.0.1:1", "share": 0.25,
                "state": state, "live": live, "suspected_by": if live { vec![] } else { vec!["b"] } })
        };
        let members = [member("a", "in", false), member("b", "draining", true)];
        let status = serde_json::json!({ "membership": "etcd", "epoch": 7, "confirmed_s_ago": 0.1,
            "problem": "etcd has not", "members": members });
        let inside = serde_json::json!({ "cluster": status });
        let warmed = serde_json::json!({ "objects": 7, "bytes": 1500, "compared": 3, "waiting": 2,
            "goes_on": true });
        let said = serde_json::json!([
            { "name": "b", "version": "0.2.0", "epoch": 6, "warmed": warmed },
            { "name": "a", "error": "it does not answer within 1 s" },
        ]);
        assert_eq!(members_text(&status, &said), members_text(&inside, &said));
        for part in [
            "members (etcd), epoch 7, confirmed 0.1 s ago\n  etcd has not",
            "a at 127.0.0.1:1: not live, 25.0 % of the keys, does not answer b; it does not answer within",
            "b at 127.0.0.1:1: draining, 25.0 % of the keys, version 0.2.0, epoch 6\n    warmed: 7 obj",
        ] {
            let text = members_text(&status, &said);
            assert!(text.contains(part), "{part}: {text}");
        }
        let none = Value::Null;
        assert!(
            members_text(&status, &none)
                .contains("b at 127.0.0.1:1: draining, 25.0 % of the keys\n")
        );
        assert_eq!(members_text(&serde_json::json!({ "version": "1" }), &none), "");
        let shared = serde_json::json!({ "version": 3, "weights": { "a": 0.5 }, "refused": "no JSON",
            "at_next_start": ["gateway.hedge_share"] });
        assert_eq!(
            shared_text(&shared),
            "  shared configuration: version 3, weights a 0.5\n  what etcd holds as the configuration is \
             refused: no JSON\n  from this process's next start on: gateway.hedge_share\n"
        );
        assert_eq!(shared_text(&serde_json::json!({ "version": 0 })), "");
        assert!(warmed_text(&warmed).contains("7 objects (1.5 kB) offered"), "{warmed}");
        assert!(warmed_text(&warmed).contains("3 compared with the origin first; 2 wait"));
        assert_eq!(warmed_text(&Value::Null), "");
    }

    #[test]
    fn says_what_hot_nodes_hold_and_bought() {
        let key = serde_json::json!({ "key": "a", "reads_per_s": 20.0, "device_s": 0.01,
            "bytes": 900, "nodes": ["h", "i"], "pinned": true });
        let hot = serde_json::json!({ "is_hot": false, "keys": 1, "bytes": 1800, "bytes_max": 5000,
            "load_min": 0.001, "bought": { "reads": 70, "device_s": 0.7 }, "hottest": [key],
            "last_minute": { "named": 2, "named_bytes": 1800, "dropped": 0, "put_off": 3 } });
        let text = hot_nodes_text(&hot);
        for part in [
            "1 keys, 1.8 kB of 5.0 kB; they served 70 reads, 0.7 s of",
            "2 named (1.8 kB), 0 dropped, 3 put off",
            "\"a\" on h, i: 20.00 reads/s x 10.000 ms of a device, 900 B, pinned",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let itself = serde_json::json!({ "is_hot": true, "served": 5 });
        assert_eq!(hot_nodes_text(&itself), "hot node: served 5 reads\n");
        assert_eq!(hot_nodes_text(&Value::Null), "");
        let gateway = serde_json::json!({ "hot_keys": 3, "counts": { "hot_reads": 8 } });
        let gateway = serde_json::json!({ "gateway": gateway });
        assert!(hot_reads_text(&gateway).contains("for 3 keys, answered 8 reads"));
        assert_eq!(hot_reads_text(&Value::Null), "");
        let members = [serde_json::json!({ "name": "h", "address": "127.0.0.1:1", "share": 0.0,
            "hot": true, "state": "in", "live": true })];
        let status = serde_json::json!({ "membership": "static", "epoch": 0, "members": members });
        assert!(members_text(&status, &Value::Null).contains("h at 127.0.0.1:1: live, hot node\n"));
    }

    #[test]
    fn says_what_is_hot_and_what_is_out() {
        let status = serde_json::json!({ "version": "1", "requests_waiting": 2,
            "contents": { "memory_objects": 3, "memory_bytes": 4096, "device_objects": 5 } });
        let device = serde_json::json!({ "name": "device/0", "class": "bulk", "state": "out",
            "out_for_s": 7.2, "expected_s": 0.0125, "queue_length": 1, "parallel": 8, "bytes": 1e6,
            "bytes_max": 1e9, "segments": 3, "segments_max": 15, "live_bytes": 1e6, "objects": 5, "written_bytes": 1e6,
            "reinserted_bytes": 0, "depth": { "depth": 8, "reads_per_s": 801.2,
            "smaller": [6, 640.4], "changes": 2 } });
        let alone = serde_json::json!({ "devices": [device] });
        let text = in_words("http://a", &status, &alone);
        for part in [
            "12.500 ms expected",
            "OUT for 7 s",
            "1.0 MB of 1.0 GB in 3 of 15 segments",
            "no hot copies",
            "depth 8 of measured 801/s at 8, 640/s at 6",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let hot = serde_json::json!({ "bought": { "hot_reads": 60, "bulk_reads": 40, "saved_s": 1.5 },
            "promote_from": 1e-9, "remembered_s": 2400.0, "objects": 9, "last_minute": { "promoted": 4,
            "promoted_bytes": 5000, "reinserted": 0, "demoted": 1, "put_off": 0 },
            "share_at": [[1.0, 0.625]], "hottest": [{ "key": "a", "reads_per_s": 2.0,
            "saved_s": 0.01, "bytes": 900, "pinned": true }] });
        let text = in_words("http://a", &status, &serde_json::json!({ "devices": [], "hot": hot }));
        for part in [
            "60.0 % of 100",
            "4 promoted (5.0 kB)",
            "reads count for 2400 s",
            "62.5 % with 1x",
            "10.000 ms saved, 900 B, pinned",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
