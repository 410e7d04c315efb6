//! Tests of the reader of logs: clouds, gateways, frameworks, traces, Gatling, and lines of pairs behind a logger's time. One service.

use ground::window::SECOND;
use serde_json::json;

use super::services_tests::is_service;
use super::tests::{civil, iso, log, service, settings};
use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

fn read_of(line: impl Fn(u64, u64) -> String) -> Result<Log, String> {
    read_lines(service(5, 800).into_iter().map(|(a, d)| line(a, d) + "\n").collect())
}

fn read_lines(lines: Vec<String>) -> Result<Log, String> {
    log(lines.concat().as_bytes(), &settings(""))
}

/// Entries are often sorted by their stamps, the newest first, and an array.
#[test]
fn google_stamps_the_start_in_any_order() {
    let line = |a: u64, d: u64| {
        let latency = format!("{:.6}s", (d - a) as f64 / 1e9);
        let request = json!({"requestMethod": "GET", "requestUrl": "https://x/o", "status": 200, "responseSize": "9", "latency": latency});
        json!({"httpRequest": request, "severity": "INFO", "timestamp": iso(a, "%.6f"), "insertId": "x"}).to_string()
    };
    is_service(&read_of(line).unwrap(), "Google", "start", US, US);
    let mut all = service(5, 800);
    all.sort_unstable();
    let sorted: Vec<String> = all.iter().map(|(a, d)| line(*a, *d) + "\n").collect();
    is_service(&read_lines(sorted.clone()).unwrap(), "Google", "start", US, US);
    let newest: Vec<String> = sorted.into_iter().rev().collect();
    is_service(&read_lines(newest.clone()).unwrap(), "Google", "start", US, US);
    let array = format!("[{}]", newest.join(","));
    is_service(&read_lines(vec![array]).unwrap(), "Google", "start", US, US);
}

#[test]
fn gateways_and_frameworks_are_told_by_their_keys() {
    let kong = |a: u64, d: u64| {
        let latencies = json!({"kong": 1, "proxy": (d - a) / MS, "request": (d - a) / MS});
        json!({"started_at": a / MS, "latencies": latencies, "request": {"method": "GET", "uri": "/o", "size": "1"},
            "response": {"status": 200, "size": "9"}, "service": {"created_at": 1_690_000_000}})
        .to_string()
    };
    is_service(&read_of(kong).unwrap(), "Kong", "start", MS, MS);
    let asp = |a: u64, d: u64| {
        let state = json!({"ElapsedMilliseconds": (d - a) as f64 / 1e6, "StatusCode": 200, "Method": "GET", "Path": "/o"});
        let at = iso(d, "%.6f");
        let start = json!({"EventId": 1, "Timestamp": iso(a, "%.6f"), "State": {"Method": "GET", "Path": "/o"}});
        format!(
            "{start}\n{}",
            json!({"EventId": 2, "Timestamp": at, "Message": "Request finished in 3.5ms", "State": state})
        )
    };
    let read = read_of(asp).unwrap();
    is_service(&read, "ASP.NET Core", "end", US, US);
    assert_eq!(read.tally.other, 800);
    // Azure's gateway has names that say enough, and numbers that looked like words of a log.
    let azure = |a: u64, d: u64| {
        let properties = json!({"httpMethod": "GET", "requestUri": "/o", "httpStatus": 200, "sentBytes": 9,
            "timeTaken": ((d - a) / MS) as f64 / 1e3, "serverResponseLatency": "0.001"});
        json!({"timeStamp": iso(d, ""), "category": "ApplicationGatewayAccessLog", "properties": properties}).to_string()
    };
    let read = read_of(azure).unwrap();
    is_service(&read, "JSON", "end", MS, SECOND);
    assert_eq!(read.files[0].unit, "s");
}

#[test]
fn cloudflare_says_how_to_get_finer_stamps() {
    let of = |stamp: &dyn Fn(u64) -> serde_json::Value, a: u64, d: u64| {
        json!({"ClientRequestMethod": "GET", "ClientRequestURI": "/o", "EdgeStartTimestamp": stamp(a), "EdgeEndTimestamp": stamp(d),
            "EdgeResponseStatus": 200, "EdgeResponseBytes": 9})
        .to_string()
    };
    for stamp in
        [&|t: u64| json!(t / MS * MS) as serde_json::Value, &|t: u64| json!(iso(t, "%.3f"))]
            as [&dyn Fn(u64) -> serde_json::Value; 2]
    {
        let read = read_of(|a, d| of(stamp, a, d)).unwrap();
        is_service(&read, "Cloudflare", &read.files[0].stamp.clone(), MS, MS);
    }
    let coarse = |a, d| of(&|t: u64| json!(iso(t, "")), a, d);
    let told = match read_of(coarse) {
        Ok(read) => read.taken.join(" "),
        Err(error) => error,
    };
    assert!(told.contains("rfc3339ms"), "{told}");
}

/// Batches of spans: those of clients and of parts are none of the requests.
#[test]
fn spans_of_servers_are_requests() {
    let span = |kind: serde_json::Value, a: u64, d: u64| {
        json!({"traceId": "a", "spanId": "b", "name": "GET /o", "kind": kind, "startTimeUnixNano": a.to_string(),
            "endTimeUnixNano": d.to_string(), "status": {}, "attributes": [
                {"key": "http.request.method", "value": {"stringValue": "GET"}},
                {"key": "http.response.status_code", "value": {"intValue": "200"}},
                {"key": "url.path", "value": {"stringValue": "/o"}}]})
    };
    let batch = |kind: &dyn Fn() -> serde_json::Value, all: &[(u64, u64)]| {
        let spans: Vec<_> = all
            .iter()
            .flat_map(|(a, d)| {
                [span(json!(1), *a, a + 1), span(kind(), *a, *d), span(json!(3), *a, d + 9)]
            })
            .collect();
        json!({"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {"name": "spans"}, "spans": spans}]}]})
    };
    let all = service(5, 800);
    for kind in [&|| json!(2) as serde_json::Value, &|| json!("SPAN_KIND_SERVER")]
        as [&dyn Fn() -> serde_json::Value; 2]
    {
        let each: Vec<String> =
            all.chunks(50).map(|part| format!("{}\n", batch(kind, part))).collect();
        let read = read_lines(each).unwrap();
        is_service(&read, "OpenTelemetry", &read.files[0].stamp.clone(), 0, 0);
        assert_eq!((read.lines, read.tally.other), (800, 1600));
        let whole = serde_json::to_string_pretty(&batch(kind, &all)).unwrap();
        is_service(
            &read_lines(vec![whole]).unwrap(),
            "OpenTelemetry",
            &read.files[0].stamp.clone(),
            0,
            0,
        );
    }
}

#[test]
fn gatling_writes_both_ends_among_its_users() {
    for before in ["", "17\t", "scenario\t17\t"] {
        let line = |a: u64, d: u64| {
            let (from, to) = (a / MS, d / MS);
            format!(
                "USER\tscenario\tSTART\t{from}\nREQUEST\t{before}\tget o\t{from}\t{to}\tOK\t \nUSER\tscenario\tEND\t{to}"
            )
        };
        let read = read_of(line).unwrap();
        is_service(&read, "Gatling", &read.files[0].stamp.clone(), MS, MS);
    }
    let failed = |a: u64, d: u64| {
        let (from, to) = (a / MS, d / MS);
        format!("REQUEST\t\tget\t{from}\t{to}\tOK\t \nREQUEST\t\tget\t{from}\t{to}\tKO\tstatus 500")
    };
    let read = read_of(failed).unwrap();
    assert_eq!((read.lines, read.times.len()), (1600, 800));
}

/// Play, Python and Rails write the time before the pairs.
#[test]
fn the_time_of_a_logger_stands_before_the_pairs() {
    let taken = |a: u64, d: u64| format!("{}.{:02}", (d - a) / MS, (d - a) / 10_000 % 100);
    let play = |a: u64, d: u64| {
        let at = civil(d, "%Y-%m-%d %H:%M:%S,%3f");
        format!(
            "{at} [INFO] from access in akka-5 - method=GET uri=/o status=200 took={}ms",
            taken(a, d)
        )
    };
    is_service(&read_of(play).unwrap(), "logfmt", "end", 10 * US, MS);
    let rails = |a: u64, d: u64| {
        let at = civil(d, "%Y-%m-%dT%H:%M:%S%.6f");
        format!(
            "I, [{at} #12]  INFO -- : [id] method=GET path=/o status=200 duration={} db=0.5",
            taken(a, d)
        )
    };
    let read = read_of(rails).unwrap();
    is_service(&read, "logfmt", "end", 10 * US, US);
    assert_eq!(read.files[0].unit, "ms");
    // A process's number is no time.
    let none = |a: u64, d: u64| format!("1234 INFO method=GET status=200 duration={}", taken(a, d));
    let error = read_of(none).unwrap_err();
    assert!(error.contains("is known to be the time of a request"), "{error}");
}

#[test]
fn reports_without_requests_are_named() {
    for (text, name) in [
        (
            r#"{"aggregate":{"counters":{"http.requests":9},"summaries":{"http.response_time":{"p99":9}}}}"#,
            "Artillery's report",
        ),
        (
            r#"{"url":"u","start":"2026-11-22T04:15:00Z","finish":"2026-11-22T04:15:09Z","duration":9.1,"2xx":1,"latency":{"p99":9},"throughput":{}}"#,
            "autocannon's report in JSON",
        ),
        (
            "Running 10s test @ http://x\n10 connections\n\u{2502} Stat \u{2502} 2.5% \u{2502} 97.5% \u{2502}\n\u{2502} Latency \u{2502}\n",
            "autocannon's report",
        ),
        (
            "Bombarding http://x for 10s using 10 connection(s)\nStatistics  Avg\n",
            "bombardier's report",
        ),
        (
            r#"{"spec":{},"result":{"timeTakenSeconds":9.9,"latency":{"mean":1.0},"rps":{"mean":9.0}}}"#,
            "bombardier's report in JSON",
        ),
    ] {
        let error = read_lines(vec![text.to_owned()]).unwrap_err();
        assert!(error.contains(name) && error.contains("summaries"), "{error}");
    }
    // Requests of Rails and of Fastly's classic format are not a table with a request for a name.
    let line =
        "I, [2026-11-22T04:15:00.250 #12]  INFO -- : Started GET \"/o\" for 1.2.3.4 at 2026\n";
    let error = read_lines(vec![line.repeat(20)]).unwrap_err();
    assert!(error.contains("its format is not recognised"), "{error}");
}

/// Zipkin writes what a service called, and its parts, beside its requests. Where these are missing, the reason is said.
#[test]
fn spans_of_zipkin_are_requests_of_servers() {
    let span = |a: u64, d: u64, kind: &str, more: &str| {
        let kind = if kind.is_empty() { String::new() } else { format!("\"kind\":\"{kind}\",") };
        format!(
            "{{\"traceId\":\"1\",\"id\":\"2\",{kind}\"name\":\"get /o\",\"timestamp\":{},\"duration\":{}{more}}}",
            a / US,
            (d - a) / US
        )
    };
    let tags =
        ",\"tags\":{\"http.method\":\"GET\",\"http.path\":\"/o\",\"http.status_code\":\"200\"}";
    let text = |has_servers: bool| {
        let of = |(a, d): (u64, u64)| {
            let server =
                if has_servers { span(a, d, "SERVER", tags) } else { span(a, d, "CLIENT", tags) };
            format!(
                "[{},{},{server}]\n",
                span(a, a + (d - a) / 2, "", ""),
                span(a, d, "CLIENT", tags)
            )
        };
        let lists: String = service(5, 800).into_iter().map(of).collect();
        lists.replace("]\n[", ",\n")
    };
    let read = log(text(true).as_bytes(), &settings("")).unwrap();
    is_service(&read, "Zipkin", "start", US, US);
    assert_eq!(read.files[0].unit, "us");
    let error = log(text(false).as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("none of the first is a server's (kind SERVER)"), "{error}");
    let client = |(a, d): (u64, u64)| {
        format!(
            "{{\"name\":\"GET\",\"kind\":3,\"startTimeUnixNano\":\"{a}\",\"endTimeUnixNano\":\"{d}\",\"status\":{{}}}}\n"
        )
    };
    let text: String = service(5, 800).into_iter().map(client).collect();
    let error = log(text.as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("none of the first is a server's (kind 2)"), "{error}");
}

/// `docker compose logs` and `kubectl logs --prefix --all-containers` write the lines of all containers: each request counted at the proxy and behind it.
#[test]
fn lines_of_one_container_are_a_service() {
    let nginx = |a: u64, d: u64| {
        format!(
            "{}.{:03} 200 {}.{:03} 0 \"GET /a HTTP/1.1\"",
            d / SECOND,
            d / MS % 1000,
            (d - a) / SECOND,
            (d - a) / MS % 1000
        )
    };
    for (api, proxy, name) in [
        ("api-1    | ", "proxy-1  | ", "compose logs), api"),
        ("api_1    | ", "proxy_1  | ", "compose logs), api"),
        ("[pod/web-0/api] ", "[pod/web-0/proxy] ", "--prefix), api"),
    ] {
        let line = |a: u64, d: u64| {
            let second = if (d / US).is_multiple_of(2) {
                format!("\n{proxy}{}", nginx(a, d))
            } else {
                String::new()
            };
            format!("{api}{}{second}", nginx(a, d))
        };
        let read = read_of(line).unwrap();
        is_service(&read, "nginx", "end", MS, MS);
        assert!(read.taken.iter().any(|text| text.contains(name)), "{:?}", read.taken);
        assert!(read.taken.iter().any(|text| text.contains("other programs")), "{:?}", read.taken);
    }
    let pods = |a: u64, d: u64| format!("[pod/web-{}/api] {}", d / US % 3, nginx(a, d));
    let read = read_of(pods).unwrap();
    assert_eq!(read.lines, 800);
    assert!(
        read.taken.iter().any(|text| text.contains("of 3 containers of api")),
        "{:?}",
        read.taken
    );
}
