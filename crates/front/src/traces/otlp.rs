//! The body of an export: OTLP 1.x over HTTP, encoded as JSON.
//!
//! Source: opentelemetry-proto 1.x, `trace/v1/trace.proto`, and the OTLP specification, "JSON Protobuf Encoding": names in
//! lowerCamelCase, identifiers of traces and spans in hexadecimal digits, 64-bit numbers as texts, enumerations as numbers. Why
//! no library writes it: docs/decisions/0020-traces.md.

use std::borrow::Cow;

use ground::window::Outcome;
use serde::Serialize;

use wire::traces::{RequestSpans, Stage, TraceIds};

/// `SPAN_KIND_INTERNAL`, `SPAN_KIND_SERVER` and `SPAN_KIND_CLIENT`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
/// `STATUS_CODE_ERROR`.
const ERROR: u8 = 2;

/// The body of `POST /v1/traces`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportRequest<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: SpanResource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
struct SpanResource<'a> {
    attributes: Vec<Attribute<'a>>,
}

#[derive(Debug, Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<Span<'a>>,
}

#[derive(Debug, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

/// A span.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_span_id: Option<String>,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attributes: Vec<Attribute<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Debug, Serialize)]
struct Status {
    code: u8,
}

#[derive(Debug, Serialize)]
struct Attribute<'a> {
    key: &'static str,
    value: Value<'a>,
}

#[derive(Debug, Serialize)]
enum Value<'a> {
    #[serde(rename = "stringValue")]
    Text(Cow<'a, str>),
    /// A number of 64 bits is a text in JSON.
    #[serde(rename = "intValue")]
    Number(String),
}

/// Who exports.
#[derive(Clone, Debug)]
pub struct SpanSource {
    /// The name of the service.
    pub service: String,
    /// What tells processes of the service apart: the member's name, or the address.
    pub instance: String,
    /// The queue of the front: "gateway" towards clients, "node/http" of a node behind a gateway of its process.
    pub queue: String,
}

fn text<'a>(key: &'static str, value: &'a str) -> Attribute<'a> {
    Attribute { key, value: Value::Text(value.into()) }
}

fn number(key: &'static str, value: u64) -> Attribute<'static> {
    Attribute { key, value: Value::Number(value.to_string()) }
}

/// The spans of some requests as the body of an export.
pub fn export<'a>(of: &'a SpanSource, requests: &'a [RequestSpans]) -> ExportRequest<'a> {
    let mut spans = Vec::with_capacity(requests.len() * 3);
    for request in requests {
        let service = is_passed_on(request);
        spans.push(request_span(request));
        spans.extend(request.stages().map(|stage| stage_span(request, stage, service)));
    }
    let attributes = vec![
        text("service.name", &of.service),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", &of.instance),
        text("concertina.queue", &of.queue),
    ];
    let scope = Scope { name: "concertina", version: env!("CARGO_PKG_VERSION") };
    let scope_spans = [ScopeSpans { scope, spans }];
    let resource = SpanResource { attributes };
    ExportRequest { resource_spans: [ResourceSpans { resource, scope_spans }] }
}

/// Whether another process served the request, so that its service is a call.
fn is_passed_on(request: &RequestSpans) -> bool {
    request.replier.is_some()
        || matches!(request.sample.outcome, Outcome::Origin | Outcome::Replica)
}

fn trace_id(ids: &TraceIds) -> String {
    format!("{:032x}", ids.trace)
}

fn span_id(span: u64) -> String {
    format!("{span:016x}")
}

fn unix_ns(request: &RequestSpans, since_ns: u64) -> String {
    let received_ns = request.sample.received_unix_us.saturating_mul(1000);
    received_ns.saturating_add(since_ns).to_string()
}

/// The span of the whole request.
fn request_span(request: &RequestSpans) -> Span<'_> {
    let RequestSpans { ids, sample, replier } = request;
    let mut attributes = vec![
        text("concertina.outcome", sample.outcome.as_str()),
        Attribute { key: "concertina.key_hash", value: Value::Text(span_id(sample.key).into()) },
        number("concertina.object_bytes", sample.size),
        number("concertina.queue_length_met", u64::from(sample.length_met)),
    ];
    let name = replier.as_ref().and_then(|name| name.to_str().ok());
    attributes.extend(name.map(|name| text("concertina.node", name)));
    Span {
        trace_id: trace_id(ids),
        span_id: span_id(ids.request),
        parent_span_id: ids.parent.map(span_id),
        name: sample.operation.as_str(),
        kind: SERVER,
        start_time_unix_nano: unix_ns(request, 0),
        end_time_unix_nano: unix_ns(request, sample.replied_ns),
        attributes,
        status: (sample.outcome == Outcome::Error).then_some(Status { code: ERROR }),
    }
}

fn stage_span(request: &RequestSpans, stage: Stage, is_passed_on: bool) -> Span<'_> {
    // Stages have names of their own, but for the service, only here: nothing else refers to them.
    let span = stage.span.unwrap_or_else(|| rand::random::<u64>().max(1));
    Span {
        trace_id: trace_id(&request.ids),
        span_id: span_id(span),
        parent_span_id: Some(span_id(request.ids.request)),
        name: stage.name,
        kind: if is_passed_on && stage.name == "serve" { CLIENT } else { INTERNAL },
        start_time_unix_nano: unix_ns(request, stage.from),
        end_time_unix_nano: unix_ns(request, stage.to),
        attributes: Vec::new(),
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use ground::window::{Operation, Sample};
    use serde_json::json;

    use super::*;

    fn pair(key: &str, kind: &str, value: &str) -> serde_json::Value {
        json!({"key": key, "value": {kind: value}})
    }

    /// Those of the request below: of the whole, of its service, and of its reply, whose name is drawn.
    fn expected_spans() -> serde_json::Value {
        let trace = "0000000000000000000000000000001f";
        json!([
            {
                "traceId": trace,
                "spanId": "0000000000000003",
                "parentSpanId": "0000000000000002",
                "name": "get",
                "kind": 2,
                "startTimeUnixNano": "1700000000000001000",
                "endTimeUnixNano": "1700000000000003500",
                "attributes": [
                    pair("concertina.outcome", "stringValue", "error"),
                    pair("concertina.key_hash", "stringValue", "00000000000000ab"),
                    pair("concertina.object_bytes", "intValue", "4096"),
                    pair("concertina.queue_length_met", "intValue", "3"),
                    pair("concertina.node", "stringValue", "n1"),
                ],
                "status": {"code": 2},
            },
            {
                "traceId": trace,
                "spanId": "0000000000000004",
                "parentSpanId": "0000000000000003",
                "name": "serve",
                "kind": 3,
                "startTimeUnixNano": "1700000000000001000",
                "endTimeUnixNano": "1700000000000003000",
            },
            {
                "traceId": trace,
                "spanId": null,
                "parentSpanId": "0000000000000003",
                "name": "reply",
                "kind": 1,
                "startTimeUnixNano": "1700000000000003000",
                "endTimeUnixNano": "1700000000000003500",
            },
        ])
    }

    #[test]
    fn the_body_of_an_export() {
        let sample = Sample {
            key: 0xab,
            size: 4096,
            operation: Operation::Get,
            outcome: Outcome::Error,
            received_unix_us: 1_700_000_000_000_001,
            queued_ns: 0,
            started_ns: 0,
            served_ns: 2_000,
            replied_ns: 2_500,
            length_met: 3,
        };
        let ids = TraceIds { trace: 0x1f, parent: Some(2), request: 3, service: 4 };
        let replier = Some(http::HeaderValue::from_static("n1"));
        let of = SpanSource {
            service: "s".to_owned(),
            instance: "i".to_owned(),
            queue: "gateway".to_owned(),
        };
        let requests = [RequestSpans { ids, sample, replier }];
        let mut body = serde_json::to_value(export(&of, &requests)).unwrap();
        let scope = &mut body["resourceSpans"][0]["scopeSpans"][0];
        let drawn = scope["spans"][2]["spanId"].take();
        assert_eq!(drawn.as_str().map(str::len), Some(16));
        let spans = scope["spans"].take();
        assert_eq!(spans, expected_spans());
        let version = env!("CARGO_PKG_VERSION");
        let expected = json!({"resourceSpans": [{
            "resource": {"attributes": [
                pair("service.name", "stringValue", "s"),
                pair("service.version", "stringValue", version),
                pair("service.instance.id", "stringValue", "i"),
                pair("concertina.queue", "stringValue", "gateway"),
            ]},
            "scopeSpans": [{"scope": {"name": "concertina", "version": version}, "spans": null}],
        }]});
        assert_eq!(body, expected);
    }
}
