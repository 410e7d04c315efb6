//! Formats of JSON that name their program by their keys: Caddy, Traefik, Envoy, API Gateway, k6, vegeta.

use serde_json::{Map, Value};

use super::clouds;
use super::sample::Sample;
use crate::import::layout::{Column, Layout, Role, Shape, Side};
use crate::import::split;
use crate::import::time::Unit;

/// The layout of lines of JSON; `None` if no program is known by their keys.
pub(super) fn recognise(sample: &Sample) -> Option<Layout> {
    if !sample.first().starts_with('{') {
        return None;
    }
    let objects = sample.lines.iter().filter_map(|line| split::object(line).ok());
    // A log may begin with other lines than requests: of k6 those that declare metrics.
    objects.take(100).find_map(|object| by_keys(&object, sample))
}

fn by_keys(object: &Map<String, Value>, sample: &Sample) -> Option<Layout> {
    let has = |keys: &[&str]| keys.iter().all(|key| split::member(object, key).is_some());
    let layout = |name: &str, columns: Vec<Column>| Layout::new(name, Shape::Json, columns);
    let named = Column::named;
    if has(&["metric", "data.time", "data.value"]) {
        return Some(k6());
    }
    if has(&["ts", "duration", "request.uri"]) {
        let columns = vec![
            named(Role::Stamp, "ts"),
            named(Role::Response, "duration"),
            named(Role::Status, "status"),
            named(Role::Method, "request.method"),
            named(Role::Path, "request.uri"),
            named(Role::Bytes, "size"),
        ];
        let unit = caddy_unit(sample);
        return Some(
            layout("Caddy, JSON", columns)
                .stamped(Side::End, "Caddy logs a request when it ends")
                .timed(unit, "Caddy writes seconds unless `duration_format` says otherwise"),
        );
    }
    if let Some(layout) = api_gateway(object).or_else(|| clouds::by_keys(object)) {
        return Some(layout);
    }
    if has(&["Duration", "DownstreamStatus"]) && (has(&["StartUTC"]) || has(&["StartLocal"])) {
        return Some(traefik(if has(&["StartUTC"]) { "StartUTC" } else { "StartLocal" }));
    }
    if has(&["timestamp", "latency", "code", "seq"]) {
        let columns = vec![
            named(Role::Stamp, "timestamp"),
            named(Role::Response, "latency"),
            named(Role::Status, "code"),
            named(Role::Method, "method"),
            named(Role::Path, "url"),
            named(Role::Bytes, "bytes_in"),
        ];
        let mut layout = layout("vegeta, JSON", columns)
            .stamped(Side::Start, "vegeta stamps a request when it is sent")
            .timed(Unit::Nanos, "vegeta writes nanoseconds");
        layout.is_tester = true;
        return Some(layout);
    }
    if has(&["start_time", "duration", "response_code"]) {
        let path = ["path", "x_envoy_original_path", "uri_path", "request_path"];
        let path = path.into_iter().find(|key| has(&[key])).unwrap_or("path");
        let columns = vec![
            named(Role::Stamp, "start_time"),
            named(Role::Response, "duration"),
            named(Role::Status, "response_code"),
            named(Role::Method, "method"),
            named(Role::Path, path),
            named(Role::Server, "upstream_host"),
            named(Role::Bytes, "bytes_sent"),
        ];
        return Some(
            layout("Envoy, JSON", columns)
                .stamped(Side::Start, "Envoy's START_TIME")
                .timed(Unit::Millis, "Envoy's DURATION is in ms")
                // A `duration_cast` to whole milliseconds.
                .rounded_down(),
        );
    }
    None
}

/// An access log of AWS's API Gateway whose keys have the names of its variables. `requestTime` is a date there.
fn api_gateway(object: &Map<String, Value>) -> Option<Layout> {
    let value = |key: &str| split::member(object, key);
    value("responseLatency")?;
    let is_date = value("requestTime").is_some_and(|text| text.contains('/'));
    // Milliseconds, where the date has seconds.
    let stamp = match value("requestTimeEpoch") {
        Some(_) => "requestTimeEpoch",
        None if is_date => "requestTime",
        None => return None,
    };
    let paths = ["path", "resourcePath", "routeKey"];
    let path = paths.into_iter().find(|key| value(key).is_some()).unwrap_or("path");
    let columns = vec![
        Column::named(Role::Stamp, stamp),
        Column::named(Role::Response, "responseLatency"),
        Column::named(Role::Upstream, "integrationLatency"),
        Column::named(Role::Status, "status"),
        Column::named(Role::Method, "httpMethod"),
        Column::named(Role::Path, path),
        Column::named(Role::Bytes, "responseLength"),
    ];
    Some(
        Layout::new("AWS API Gateway, JSON", Shape::Json, columns)
            .stamped(Side::Start, "$context.requestTime is when a request came")
            .timed(Unit::Millis, "API Gateway's latencies are in ms"),
    )
}

fn traefik(stamp: &str) -> Layout {
    let named = Column::named;
    let columns = vec![
        named(Role::Stamp, stamp),
        named(Role::Response, "Duration"),
        named(Role::Upstream, "OriginDuration"),
        named(Role::Status, "DownstreamStatus"),
        named(Role::Method, "RequestMethod"),
        named(Role::Path, "RequestPath"),
        named(Role::Bytes, "DownstreamContentSize"),
        named(Role::Server, "ServiceAddr"),
    ];
    Layout::new("Traefik, JSON", Shape::Json, columns)
        .stamped(Side::Start, "its name says so")
        .timed(Unit::Nanos, "Traefik writes nanoseconds")
}

/// `duration_format nano` and `ms` write integers, where seconds have decimals but for whole ones.
fn caddy_unit(sample: &Sample) -> Unit {
    let duration = |line: &String| split::member(&split::object(line).ok()?, "duration");
    let durations: Vec<String> = sample.lines.iter().filter_map(duration).collect();
    let whole = durations.iter().map(|text| text.parse().ok()).collect::<Option<Vec<u64>>>();
    let mut whole = whole.unwrap_or_default();
    whole.sort_unstable();
    match whole.get(whole.len() / 2) {
        // Half of the requests take longer than 10 µs, and not longer than 10 s.
        Some(n) if *n > 10_000 => Unit::Nanos,
        // A request alone may have taken a second or none.
        Some(_) if durations.len() > 1 => Unit::Millis,
        _ => Unit::Seconds,
    }
}

/// k6 writes each metric of a request as an object of its own.
fn k6() -> Layout {
    let select = |name: &str, only| Column { only, ..Column::named(Role::Select, name) };
    let columns = vec![
        select("metric", "http_req_duration"),
        select("type", "Point"),
        Column::named(Role::Stamp, "data.time"),
        Column::named(Role::Response, "data.value"),
        Column::named(Role::Status, "data.tags.status"),
        Column::named(Role::Method, "data.tags.method"),
        Column::named(Role::Path, "data.tags.url"),
    ];
    let mut layout = Layout::new("k6, JSON", Shape::Json, columns)
        .stamped(Side::End, "k6 stamps a request when it ends")
        .timed(Unit::Millis, "k6 writes ms");
    layout.is_tester = true;
    layout.remarks.push(
        "http_req_duration is what was sent, waited for and received, without connecting."
            .to_owned(),
    );
    layout
}
