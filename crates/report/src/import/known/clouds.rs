//! Formats of JSON of clouds, gateways and frameworks that name their program by their keys: Google Cloud's load balancers and Cloud Run,
//! Cloudflare's Logpush, Kong, ASP.NET Core, and the spans of OpenTelemetry and Zipkin.
//!
//! Sources: the `LogEntry` and `HttpRequest` of Google Cloud Logging, the fields of Cloudflare's HTTP requests, Kong's log serializer,
//! `JsonConsoleFormatter` of .NET, and `opentelemetry/proto/trace/v1/trace.proto` in its JSON mapping, and
//! `zipkin2-api.yaml`.

use serde_json::{Map, Value};

use crate::import::layout::{Column, Layout, Role, Shape, Side};
use crate::import::split;
use crate::import::time::Unit;

/// The layout of such lines; `None` if none of these programs has such keys.
pub(super) fn by_keys(object: &Map<String, Value>) -> Option<Layout> {
    google(object)
        .or_else(|| cloudflare(object))
        .or_else(|| kong(object))
        .or_else(|| asp_net(object))
        .or_else(|| server_span(object))
        .or_else(|| zipkin_span(object))
}

fn has(object: &Map<String, Value>, keys: &[&str]) -> bool {
    keys.iter().all(|key| split::member(object, key).is_some())
}

/// The first of some keys that an object has, else the first.
fn first_of(object: &Map<String, Value>, role: Role, keys: &[&str]) -> Column {
    let found = keys.iter().find(|key| has(object, &[key]));
    Column::named(role, found.or(keys.first()).unwrap_or(&""))
}

/// Entries about requests. Read by `gcloud logging read` they are sorted by their stamps, which says nothing of their side.
fn google(object: &Map<String, Value>) -> Option<Layout> {
    if !has(object, &["httpRequest.latency", "timestamp"]) {
        return None;
    }
    let columns = vec![
        Column::named(Role::Stamp, "timestamp"),
        Column::named(Role::Response, "httpRequest.latency"),
        Column::named(Role::Status, "httpRequest.status"),
        Column::named(Role::Method, "httpRequest.requestMethod"),
        Column::named(Role::Path, "httpRequest.requestUrl"),
        Column::named(Role::Bytes, "httpRequest.responseSize"),
    ];
    Some(
        Layout::new("Google Cloud's requests, JSON", Shape::Json, columns)
            .stamped(Side::Start, "Google stamps a request when it comes")
            .timed(Unit::Seconds, "`s` stands behind it"),
    )
}

fn cloudflare(object: &Map<String, Value>) -> Option<Layout> {
    let ends = ["EdgeStartTimestamp", "EdgeEndTimestamp"];
    if !has(object, &ends) {
        return None;
    }
    let columns = vec![
        Column::named(Role::Start, ends[0]),
        Column::named(Role::End, ends[1]),
        Column::named(Role::Status, "EdgeResponseStatus"),
        Column::named(Role::Method, "ClientRequestMethod"),
        Column::named(Role::Path, "ClientRequestURI"),
        Column::named(Role::Bytes, "EdgeResponseBytes"),
    ];
    let mut layout = Layout::new("Cloudflare's Logpush, JSON", Shape::Json, columns);
    let stamp = split::member(object, ends[0]).unwrap_or_default();
    // `unix` and `rfc3339`, which are what a job has unless it says otherwise.
    if stamp.len() <= 10 || (stamp.contains('T') && !stamp.contains('.')) {
        layout.remarks.push(
            "Cloudflare's stamps are whole seconds here: set `timestamp_format` of the Logpush job to rfc3339ms, rfc3339ns or unixnano."
                .to_owned(),
        );
    }
    Some(layout)
}

fn kong(object: &Map<String, Value>) -> Option<Layout> {
    if !has(object, &["started_at", "latencies.request"]) {
        return None;
    }
    let columns = vec![
        Column::named(Role::Stamp, "started_at").timed(Unit::Millis),
        Column::named(Role::Response, "latencies.request"),
        Column::named(Role::Upstream, "latencies.proxy"),
        Column::named(Role::Status, "response.status"),
        Column::named(Role::Method, "request.method"),
        Column::named(Role::Path, "request.uri"),
        Column::named(Role::Bytes, "response.size"),
    ];
    Some(
        Layout::new("Kong, JSON", Shape::Json, columns)
            .stamped(Side::Start, "its name says so")
            .timed(Unit::Millis, "Kong's latencies are in ms"),
    )
}

/// The lines of `Microsoft.AspNetCore.Hosting.Diagnostics` when a request has finished; others stand among them.
fn asp_net(object: &Map<String, Value>) -> Option<Layout> {
    if !has(object, &["Timestamp", "State.ElapsedMilliseconds"]) {
        return None;
    }
    let columns = vec![
        Column::named(Role::Stamp, "Timestamp"),
        Column::named(Role::Response, "State.ElapsedMilliseconds"),
        Column::named(Role::Status, "State.StatusCode"),
        Column::named(Role::Method, "State.Method"),
        Column::named(Role::Path, "State.Path"),
    ];
    Some(
        Layout::new("ASP.NET Core, JSON", Shape::Json, columns)
            .stamped(Side::End, "it is written when a request has finished")
            .timed(Unit::Millis, "its name says ms"),
    )
}

/// What is to be known of spans.
const SPANS_OF_ALL: &str = "The spans of servers (kind 2) are taken for requests, of all services in the file: write those of one service into a file of its own, \
    and export all of them, since a sampler that drops traces makes the load look lighter.";
/// The kind of a server's span.
const SERVER_OF_ZIPKIN: &str = "SERVER";

/// A span of OpenTelemetry. Of a trace those of the server's side are requests; others are their parts, or the caller's.
fn server_span(object: &Map<String, Value>) -> Option<Layout> {
    if !has(object, &["startTimeUnixNano", "endTimeUnixNano", "kind"]) {
        return None;
    }
    let only = match split::member(object, "kind").as_deref() {
        Some("2") => "2",
        Some("SPAN_KIND_SERVER") => "SPAN_KIND_SERVER",
        _ => return None,
    };
    let statuses = ["attributes.http.response.status_code", "attributes.http.status_code"];
    let methods = ["attributes.http.request.method", "attributes.http.method"];
    let paths = ["attributes.url.path", "attributes.http.target", "attributes.http.route", "name"];
    let columns = vec![
        Column { only, ..Column::named(Role::Select, "kind") },
        Column::named(Role::Start, "startTimeUnixNano").timed(Unit::Nanos),
        Column::named(Role::End, "endTimeUnixNano").timed(Unit::Nanos),
        first_of(object, Role::Status, &statuses),
        first_of(object, Role::Method, &methods),
        first_of(object, Role::Path, &paths),
    ];
    let mut layout = Layout::new("OpenTelemetry's spans, JSON", Shape::Json, columns);
    layout.remarks.push(SPANS_OF_ALL.to_owned());
    Some(layout)
}

/// A span of Zipkin's second version, which says its kind where it is of a request.
fn zipkin_span(object: &Map<String, Value>) -> Option<Layout> {
    if !has(object, &["traceId", "timestamp", "duration", "kind"]) {
        return None;
    }
    if split::member(object, "kind").as_deref() != Some(SERVER_OF_ZIPKIN) {
        return None;
    }
    let columns = vec![
        Column { only: SERVER_OF_ZIPKIN, ..Column::named(Role::Select, "kind") },
        Column::named(Role::Stamp, "timestamp").timed(Unit::Micros),
        Column::named(Role::Response, "duration"),
        Column::named(Role::Status, "tags.http.status_code"),
        Column::named(Role::Method, "tags.http.method"),
        first_of(
            object,
            Role::Path,
            &["tags.http.path", "tags.http.route", "tags.http.url", "name"],
        ),
    ];
    let mut layout = Layout::new("Zipkin's spans, JSON", Shape::Json, columns)
        .stamped(Side::Start, "Zipkin's timestamp is the start of a span")
        .timed(Unit::Micros, "Zipkin writes us");
    layout.remarks.push(SPANS_OF_ALL.replace("kind 2", "kind SERVER"));
    Some(layout)
}

/// Why spans are not imported of which none is a server's; `None` if these are not.
pub(super) fn without_servers(names: &[String]) -> Option<String> {
    let has = |all: &[&str]| all.iter().all(|name| names.iter().any(|n| n == name));
    let server = if has(&["startTimeUnixNano", "endTimeUnixNano", "kind"]) {
        "kind 2"
    } else if has(&["traceId", "timestamp", "duration", "kind"]) {
        "kind SERVER"
    } else {
        return None;
    };
    Some(format!(
        "it has spans of traces, and none of the first is a server's ({server}), which are the requests: export those of the service, and not its \
         callers' or its parts' alone"
    ))
}
