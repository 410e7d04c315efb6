//! `concertina status`: what a running server predicts of itself, its devices, and what is hot.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use engine::gateway::GatewayStatus;
use engine::node::Warmed;
use engine::status::{
    MemberReport, MemberStatus, ModelReport, OriginStatus, ProcessStatus, SharedConfiguration,
};
use http::{Method, StatusCode};
use serde_json::Value;

use super::data_print as print;
use ground::number::{percent, time};

use super::figures::{ABSENT, bytes};
use super::live::{Endpoint, model_text};
use super::status_node::node_text;
use super::status_watch;
use crate::remote::server::Refused;

/// Arguments of the command.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  concertina status
  concertina status --server http://127.0.0.1:7071 --json
  concertina status --watch
  concertina status --watch --queue device/0 --lines 60
  concertina status --watch --run results/2026-11-28

Shows the share of requests within the objective (model.objective_ms) as measured and as predicted at 1,
1.5 and 2 times the load, the load up to which the objective holds (headroom), what saturates first, and
how wrong past predictions were. Figures marked * are past the confidence limit, where queues are long.
Then the pools and servers of a proxy, the members of the cluster with their versions and the keys that they move, the devices of a node, what is hot and
why, and what was moved.

--watch prints a line each second instead: the mean length of a queue, requests that arrive and replies in a second,
misses, failures (errors and refusals), and the mean times of waiting and of service; with --run, of each window
that a run folder has.")]
pub struct Args {
    #[command(flatten)]
    at: Endpoint,
    /// Print JSON: the replies of /model, /admin/status, /admin/members and /admin/tiers; with --watch, an object a line
    #[arg(long)]
    json: bool,
    /// Print a line of a queue each second, until interrupted
    #[arg(long)]
    watch: bool,
    /// The queue to watch; `gateway` is that of the clients, whatever the server's role
    #[arg(long, value_name = "NAME", default_value = "gateway", requires = "watch")]
    queue: String,
    /// End after this number of lines
    #[arg(long, value_name = "N", requires = "watch")]
    lines: Option<u64>,
    /// Take the lines from a run folder in place of a server
    #[arg(long, value_name = "DIR", requires = "watch")]
    run: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(dir) = &args.run {
        return status_watch::run_folder(dir, &args.queue, args.lines, args.json);
    }
    if args.watch {
        return status_watch::server(&args.at, &args.queue, args.lines, args.json);
    }
    // Fetched as they are, for `--json`: it prints what this version does not know too.
    let fetch = |path: &str| args.at.json::<Value>(&Method::GET, path);
    let live = fetch("/model")?;
    let raw = fetch("/admin/status")?;
    let status: ProcessStatus = args.at.parse("/admin/status", &raw)?;
    // A gateway and a proxy have no devices.
    let tiers = status.node().map(|_| fetch("/admin/tiers")).transpose()?;
    let members = match status.membership() {
        Some(_) => fetch("/admin/members").map(Some).or_else(absent_before)?,
        None => None,
    };
    if args.json {
        return print::value(&serde_json::json!({
            "live": live, "status": raw, "members": members, "tiers": tiers,
        }));
    }
    let live: ModelReport = args.at.parse("/model", &live)?;
    let mut text = model_text(&live);
    if let Some(origin) = status.origin() {
        text += &origin_text(origin);
    }
    text += &connections_text(&status);
    if let ProcessStatus::Proxy(proxy) = &status {
        text += &pools_text(&proxy.memcached);
    }
    let reports: Vec<MemberReport> = match &members {
        Some(members) => args.at.parse("/admin/members", members)?,
        None => Vec::new(),
    };
    text += &members_text(&status, &reports);
    text += &mismatches_text(&status);
    if let Some(gateway) = status.gateway() {
        text += &nodes_text(gateway);
        text += &hot_reads_text(gateway);
    }
    if let (Some(node), Some(tiers)) = (status.node(), tiers) {
        text += &node_text(&args.at.server, node, &args.at.parse("/admin/tiers", &tiers)?);
    }
    print::line(text.trim_end())
}

/// The bound of connections, where the limit of open files is what bounds them.
fn connections_text(status: &ProcessStatus) -> String {
    let section = match status {
        ProcessStatus::Proxy(_) => "memcached",
        _ => "serve",
    };
    let configured = status.config().get(section).and_then(|it| it.get("connections_max"));
    let configured = configured.and_then(toml::Value::as_integer);
    let clients = status.connections();
    let (Some(max), Some(configured)) = (clients.connections_max, configured) else {
        return String::new();
    };
    if max as i64 >= configured {
        return String::new();
    }
    let open = clients.connections.map_or(ABSENT.to_owned(), |open| open.to_string());
    format!(
        "connections: {open} of at most {max}; the limit of open files allows no more of {section}.connections_max \
         {configured}\n"
    )
}

/// The pools of a proxy and their servers.
fn pools_text(status: &engine::pool::Status) -> String {
    let mut text = String::new();
    for pool in &status.pools {
        let refused = pool.counts.refused_busy
            + pool.counts.refused_too_late
            + pool.counts.refused_failed
            + pool.counts.refused_no_server;
        let _ = writeln!(
            text,
            "pool {}: {} requests in service, {} waiting, {refused} refused since the start",
            pool.name, pool.in_service, pool.waiting
        );
        for server in pool.servers.iter().filter_map(|&at| status.servers.get(at)) {
            let _ = write!(
                text,
                "  {:<24} {:<10} {} outstanding, {} expected, emptied {} times",
                server.name,
                server.state.as_str(),
                server.outstanding,
                time(1e-3 * server.expected_response_ms),
                server.flushes
            );
            match (&server.failure, server.stale) {
                (Some(why), _) => _ = writeln!(text, "; failed: {why}"),
                (None, true) => text.push_str("; to be emptied before it is read\n"),
                (None, false) => text.push('\n'),
            }
        }
    }
    text
}

/// Earlier versions do not answer `/admin/members`.
fn absent_before(error: anyhow::Error) -> anyhow::Result<Option<Value>> {
    match error.downcast_ref::<Refused>() {
        Some(Refused::Status(StatusCode::NOT_FOUND, _)) => Ok(None),
        _ => Err(error),
    }
}

fn origin_text(origin: &OriginStatus) -> String {
    let mut text = String::new();
    if let Some(id) = &origin.id {
        let _ = writeln!(text, "origin {id}");
    }
    for why in origin.lost.iter().chain(&origin.failing) {
        let _ = writeln!(text, "  {why}");
    }
    if let Some(why) = &origin.read_only {
        let _ = writeln!(text, "  writes are refused: {why}");
    }
    text
}

/// The members of the cluster, each with its own report; empty without a cluster.
fn members_text(status: &ProcessStatus, reports: &[MemberReport]) -> String {
    let mut text = String::new();
    let Some(membership) = status.membership() else { return text };
    let _ = write!(text, "members ({}), epoch {}", membership.kind, membership.epoch);
    match membership.confirmed_s_ago {
        Some(ago) => _ = writeln!(text, ", confirmed {} ago", time(ago)),
        None => text.push('\n'),
    }
    if let Some(problem) = &membership.problem {
        let _ = writeln!(text, "  {problem}");
    }
    if let Some(shared) = &membership.configuration {
        text += &shared_text(shared);
    }
    for member in &membership.members {
        text += &member_text(member);
        let report = reports.iter().find(|report| report.name == member.name);
        if let Some(report) = report {
            text += &report_text(report, membership.epoch);
        }
        text.push('\n');
        let warmed = report.and_then(|it| it.report.as_ref()?.warmed);
        text += &warmed.map_or_else(String::new, |warmed| warmed_text(&warmed));
    }
    text
}

fn member_text(member: &MemberStatus) -> String {
    let state = match (member.state.as_str(), member.live) {
        ("draining", _) => "draining",
        (_, true) => "live",
        (_, false) => "not live",
    };
    let suspected = match member.suspected_by.is_empty() {
        true => String::new(),
        false => format!(", does not answer {}", member.suspected_by.join(", ")),
    };
    let share = match (member.hot, member.share) {
        (Some(true), _) => "hot node".to_owned(),
        (_, Some(share)) => format!("{} of the keys", percent(share, 1)),
        (_, None) => format!("{ABSENT} of the keys"),
    };
    format!("  {} at {}: {state}, {share}{suspected}", member.name, member.address)
}

/// The version that a member reports, and its epoch where that is another one.
fn report_text(member: &MemberReport, epoch: u64) -> String {
    match (&member.error, &member.report) {
        (Some(error), _) => format!("; {error}"),
        (None, Some(report)) if report.epoch == epoch => format!(", version {}", report.version),
        (None, Some(report)) => format!(", version {}, epoch {}", report.version, report.epoch),
        (None, None) => String::new(),
    }
}

/// What a node offered to nodes that were new to their keys; empty if nothing.
fn warmed_text(warmed: &Warmed) -> String {
    if !warmed.goes_on && warmed.objects == 0 {
        return String::new();
    }
    let now = match warmed.goes_on {
        true => format!("; {} wait", warmed.waiting),
        false => String::new(),
    };
    format!(
        "    warmed: {} objects ({}) offered to nodes that were new to them, {} compared with the origin first{now}\n",
        warmed.objects,
        bytes(warmed.bytes),
        warmed.compared,
    )
}

/// What the processes of the cluster share; empty if nothing.
fn shared_text(shared: &SharedConfiguration) -> String {
    let mut text = String::new();
    if shared.version == 0 && shared.refused.is_none() {
        return text;
    }
    let _ = write!(text, "  shared configuration: version {}", shared.version);
    let weights = shared.weights.iter().map(|(name, weight)| format!("{name} {weight:?}"));
    let weights: Vec<String> = weights.collect();
    match weights.is_empty() {
        false => _ = writeln!(text, ", weights {}", weights.join(", ")),
        true => text.push('\n'),
    }
    if let Some(why) = &shared.refused {
        let _ = writeln!(text, "  what etcd holds as the configuration is refused: {why}");
    }
    if !shared.at_next_start.is_empty() {
        let later = shared.at_next_start.join(", ");
        let _ = writeln!(text, "  from this process's next start on: {later}");
    }
    text
}

/// Processes that do not fit this one: nodes that a gateway does not use, and those whose requests a node refused. Empty if all fit.
fn mismatches_text(status: &ProcessStatus) -> String {
    let mut text = String::new();
    if let ProcessStatus::Gateway(gateway) = status {
        for mismatch in &gateway.mismatches {
            let _ = writeln!(text, "{} is not used: {}", mismatch.name, mismatch.why);
        }
    }
    for mismatch in status.node().iter().flat_map(|node| &node.mismatches) {
        let (times, ago) = (mismatch.times, time(mismatch.last_s_ago));
        let plural = if times == 1 { "" } else { "s" };
        let _ = writeln!(
            text,
            "{} is refused: {} ({times} request{plural}, the last {ago} ago)",
            mismatch.peer, mismatch.what
        );
    }
    text
}

/// The nodes as a gateway sees them.
fn nodes_text(gateway: &GatewayStatus) -> String {
    let mut text = String::new();
    for node in &gateway.nodes {
        let _ = write!(
            text,
            "node {:<20} {:<10} {} outstanding, {} in its queues, {:.3} ms expected",
            node.name,
            node.state.as_str(),
            node.outstanding,
            node.reported_length,
            node.expected_response_ms,
        );
        match &node.failure {
            Some(why) => _ = writeln!(text, "; failed: {why}"),
            None => text.push('\n'),
        }
    }
    text
}

/// What a gateway knows of hot nodes; empty without any.
fn hot_reads_text(gateway: &GatewayStatus) -> String {
    let (keys, reads) = (gateway.hot_keys, gateway.counts.hot_reads);
    match keys == 0 && reads == 0 {
        true => String::new(),
        false => {
            format!("hot nodes: known for {keys} keys, answered {reads} reads of this gateway\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::gateway::Counts;
    use serde_json::json;

    use super::*;

    fn member(name: &str, state: &str, live: bool) -> Value {
        json!({ "name": name, "address": "127.0.0.1:1", "weight": 1.0, "hot": false, "share": 0.25,
            "state": state, "live": live, "suspected_by": if live { vec![] } else { vec!["b"] } })
    }

    fn gateway_of(members: &[Value]) -> Value {
        json!({ "role": "gateway", "version": "0.2.0", "protocol": "1", "ring": "0a", "replicas": 2,
            "membership": "etcd", "epoch": 7, "confirmed_s_ago": 0.1, "problem": "etcd has not",
            "mismatches": [{ "name": "a", "why": "another ring" }],
            "members": members, "gateway": { "requests": 0, "requests_bound": 8, "response_at_bound_s": null,
                "origin_attempts": 0, "retries_left": 1, "hedges_left": 1, "hints": 0, "hot_keys": 2,
                "epoch": 7, "nodes": [], "counts": Counts::default() } })
    }

    fn parse(value: &Value) -> ProcessStatus {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn members_are_listed_with_what_they_report() {
        let status = parse(&gateway_of(&[member("a", "in", false), member("b", "draining", true)]));
        let warmed =
            json!({ "objects": 7, "bytes": 1500, "compared": 3, "waiting": 2, "goes_on": true });
        let reports: Vec<MemberReport> = serde_json::from_value(json!([
            { "name": "b", "version": "0.2.0", "epoch": 6, "warmed": warmed },
            { "name": "a", "error": "it does not answer within 1 s" },
        ]))
        .unwrap();
        let text = members_text(&status, &reports);
        for part in [
            "members (etcd), epoch 7, confirmed 100 ms ago\n  etcd has not",
            "a at 127.0.0.1:1: not live, 25.0 % of the keys, does not answer b; it does not answer within",
            "b at 127.0.0.1:1: draining, 25.0 % of the keys, version 0.2.0, epoch 6\n    warmed: 7 objects (1.5 kB) offered",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let unreported = "b at 127.0.0.1:1: draining, 25.0 % of the keys\n";
        assert!(members_text(&status, &[]).contains(unreported));
        assert_eq!(warmed_text(&Warmed::default()), "");
        assert_eq!(mismatches_text(&status), "a is not used: another ring\n");
        let gateway = status.gateway().unwrap();
        assert!(hot_reads_text(gateway).contains("known for 2 keys, answered 0 reads"));
    }

    #[test]
    fn a_shared_configuration_is_shown_with_what_waits() {
        let shared = SharedConfiguration {
            version: 3,
            weights: [("a".to_owned(), 0.5)].into(),
            refused: Some("no JSON".to_owned()),
            at_next_start: vec!["gateway.hedge_share".to_owned()],
            ..SharedConfiguration::default()
        };
        assert_eq!(
            shared_text(&shared),
            "  shared configuration: version 3, weights a 0.5\n  what etcd holds as the configuration is \
             refused: no JSON\n  from this process's next start on: gateway.hedge_share\n"
        );
        assert_eq!(shared_text(&SharedConfiguration::default()), "");
    }

    #[test]
    fn what_an_older_server_does_not_report_is_absent_and_never_0() {
        let mut old = member("a", "in", true);
        for field in ["hot", "share", "suspected_by"] {
            old.as_object_mut().unwrap().remove(field);
        }
        let text = members_text(&parse(&gateway_of(&[old])), &[]);
        assert!(text.contains("a at 127.0.0.1:1: live, - of the keys\n"), "{text}");

        let mut limited = gateway_of(&[]);
        limited["config"] = json!({ "serve": { "connections_max": 100 } });
        assert_eq!(connections_text(&parse(&limited)), "", "no limit was reported");
        limited["connections_max"] = json!(10);
        let text = connections_text(&parse(&limited));
        assert!(text.starts_with("connections: - of at most 10; "), "{text}");
        limited["connections"] = json!(3);
        assert!(connections_text(&parse(&limited)).starts_with("connections: 3 of at most 10; "));
    }

    #[test]
    fn what_a_newer_server_reports_is_skipped_and_anything_else_is_an_error_that_names_it() {
        let mut newer = gateway_of(&[member("a", "resting", true)]);
        newer["weather"] = json!({ "rain": true });
        newer["gateway"]["weather"] = json!(1);
        newer["members"][0]["weather"] = json!([]);
        let text = members_text(&parse(&newer), &[]);
        assert!(text.contains("a at 127.0.0.1:1: live, 25.0 %"), "{text}");

        let error = |value: Value| serde_json::from_value::<ProcessStatus>(value).unwrap_err();
        let mut without = gateway_of(&[]);
        without["gateway"].as_object_mut().unwrap().remove("hot_keys");
        assert!(error(without).to_string().contains("missing field `hot_keys`"));
        assert!(
            error(json!({ "role": "kettle" })).to_string().contains("unknown variant `kettle`")
        );
        assert!(error(json!({ "version": "1" })).to_string().contains("missing field `role`"));
        assert!(error(json!([1, 2])).to_string().contains("invalid"));
    }
}
