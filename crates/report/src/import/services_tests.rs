//! Tests of the reader of logs: lines that services write unless they are told otherwise. Each test begins with a line of the format's
//! documentation, and then reads the one service from it.

use ground::window::SECOND;

use super::tests::{civil, clf, fields, log, service, settings};
use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// A log of the service, a line for each request, read.
fn read_of(line: impl Fn(u64, u64) -> String) -> Result<Log, String> {
    let text: String = service(5, 800).into_iter().map(|(a, d)| line(a, d)).collect();
    log(text.as_bytes(), &settings(""))
}

/// That a log has the durations of the service to a tick, at the ends of requests to another, in a format of this name whose stamps are
/// of this side.
pub(super) fn is_service(read: &Log, name: &str, stamp: &str, tick: u64, clock: u64) {
    let expected = service(5, 800);
    let file = &read.files[0];
    assert!(file.format.contains(name), "{}", file.format);
    assert_eq!((file.stamp.as_str(), read.lines), (stamp, 800), "{file:?}");
    let sorted = |of: &dyn Fn(&(u64, u64)) -> u64| {
        let mut all: Vec<u64> = expected.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    let mut taken: Vec<u64> = read.times.iter().map(|r| r.taken).collect();
    taken.sort_unstable();
    let is_near = |found: &[u64], of: &[u64], by: u64| {
        found.len() == of.len() && found.iter().zip(of).all(|(a, b)| a.abs_diff(*b) <= by)
    };
    assert!(is_near(&taken, &sorted(&|(a, d)| d - a), tick), "{name}");
    let mut ends: Vec<u64> = read.times.iter().map(|r| r.end).collect();
    ends.sort_unstable();
    assert!(is_near(&ends, &sorted(&|(_, d)| *d), clock + tick), "{name}");
}

#[test]
fn gin_writes_each_duration_with_its_unit() {
    let documented = "[GIN] 2023/10/01 - 10:18:42 | 404 |       1.548µs |       127.0.0.1 | GET      \"/\"\n\
                      [GIN] 2023/10/01 - 10:18:54 | 200 |  500.250509ms |       127.0.0.1 | GET      \"/weather?city=Hamburg\"\n";
    let read = log(documented.as_bytes(), &Settings { lenient: true, ..settings("") }).unwrap();
    assert_eq!((read.lines, read.files[0].format.as_str()), (2, "gin"));
    let duration = |ns: u64| match ns {
        ns if ns < MS => format!("{}.{:03}µs", ns / US, ns % US),
        ns => format!("{}.{:06}ms", ns / MS, ns % MS),
    };
    let plain = |a: u64, d: u64| {
        let at = civil(d, "%Y/%m/%d - %H:%M:%S");
        format!("[GIN] {at} | 200 | {:>13} |       127.0.0.1 | GET      \"/o\"\n", duration(d - a))
    };
    is_service(&read_of(plain).unwrap(), "gin", "end", 1, SECOND);
    let coloured = |a: u64, d: u64| {
        let at = civil(d, "%Y/%m/%d - %H:%M:%S");
        format!(
            "[GIN] {at} |\u{1b}[97;42m 200 \u{1b}[0m| {:>13} | 127.0.0.1 |\u{1b}[97;44m GET     \u{1b}[0m \"/o\"\n[GIN-debug] x\n",
            duration(d - a)
        )
    };
    let read = read_of(coloured).unwrap();
    assert_eq!(read.tally.other, 800);
    is_service(&read, "gin", "end", 1, SECOND);
}

#[test]
fn squid_writes_milliseconds_and_the_end() {
    let documented = "1690000012.345    120 192.168.56.20 TCP_MISS/200 512 GET http://example.com/ labuser HIER_DIRECT/93.184.216.34 text/html\n\
                      1690000015.210      1 192.168.56.20 TCP_MEM_HIT/200 512 GET http://example.com/ labuser HIER_NONE/- text/html\n\
                      1690000016.000  60000 192.168.56.20 TCP_TUNNEL/200 39 CONNECT example.com:443 labuser HIER_DIRECT/93.184.216.34 -\n";
    let read = log(documented.as_bytes(), &Settings { lenient: true, ..settings("") }).unwrap();
    assert_eq!((read.lines, read.tally.other), (2, 1));
    let line = |a: u64, d: u64| {
        let at = civil(d, "%s%.3f");
        format!(
            "{at} {:>6} 192.0.2.1 TCP_MISS/200 512 GET http://e.com/o - HIER_DIRECT/192.0.2.9 text/html\n",
            (d - a) / MS
        )
    };
    is_service(&read_of(line).unwrap(), "squid", "end", MS, MS);
}

#[test]
fn uwsgi_writes_its_unit_and_the_start() {
    for (unit, divisor) in [("msecs", MS), ("micros", US)] {
        let line = |a: u64, d: u64| {
            format!(
                "[pid: 31|app: 0|req: 7/9] 127.0.0.1 () {{28 vars in 307 bytes}} [{}] GET /o => generated 12 bytes in {} {unit} {}\
                 (HTTP/1.1 200) 2 headers in 79 bytes (1 switches on core 0)\n",
                civil(a, "%a %b %e %H:%M:%S %Y"),
                (d - a) / divisor,
                // Some replies are files that the kernel sends.
                ["", "via sendfile() ", "via offload() "][(a / US % 3) as usize]
            )
        };
        let read = read_of(line).unwrap();
        assert_eq!((read.broken, read.files[0].unit.is_empty()), (0, false));
        assert_eq!(read.files[0].unit, if divisor == MS { "ms" } else { "us" });
        is_service(&read, "uWSGI", "start", divisor, SECOND);
    }
}

#[test]
fn heroku_s_router_writes_two_durations() {
    let line = |a: u64, d: u64| {
        let at = civil(d, "%Y-%m-%dT%H:%M:%S%.6f+00:00");
        let (connect, service) = (((d - a) / MS).min(1), ((d - a) / MS).saturating_sub(1));
        format!(
            "{at} heroku[router]: at=info method=GET path=\"/o\" host=h.herokuapp.com request_id=1cc5 fwd=\"192.0.2.1\" dyno=web.1 \
             connect={connect}ms service={service}ms status=200 bytes=176 protocol=http\n\
             {at} app[web.1]: 10.1.2.3 - - \"GET /o HTTP/1.1\" 200 5\n"
        )
    };
    let read = read_of(line).unwrap();
    assert_eq!(read.tally.other, 800);
    is_service(&read, "Heroku", "end", MS, US);
    // A drain's syslog has no time that is the request's.
    let drained = "<158>1 2024-01-15T10:30:45+00:00 host heroku router - at=info method=GET path=\"/\" connect=1ms service=18ms status=200\n";
    let error = log(drained.repeat(600).as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("the time of a request"), "{error}");
}

#[test]
fn a_connection_of_haproxy_is_said_to_be_one() {
    let documented = "Feb  6 12:12:56 localhost haproxy[14387]: 10.0.1.2:33313 [06/Feb/2009:12:12:51.443] fnt bck/srv1 0/0/5007 212 -- \
                      0/0/0/0/3 0/0\n";
    let read = log(documented.as_bytes(), &Settings { lenient: true, ..settings("") }).unwrap();
    assert_eq!(read.times[0].taken, 5007 * MS);
    let line = |a: u64, d: u64| {
        let at = civil(a, "%d/%b/%Y:%H:%M:%S%.3f");
        format!("10.0.1.2:33313 [{at}] fnt bck/srv1 0/0/{} 212 -- 0/0/0/0/3 0/0\n", (d - a) / MS)
    };
    let read = read_of(line).unwrap();
    is_service(&read, "HAProxy, TCP", "start", MS, MS);
    let refused = documented.replace(" -- ", " SC ");
    let read = log(refused.as_bytes(), &Settings { lenient: true, ..settings("") }).unwrap();
    assert_eq!((read.lines, read.times.len()), (1, 0));
}

#[test]
fn the_request_time_of_api_gateway_is_a_date() {
    let line = |a: u64, d: u64| {
        format!(
            "{{\"requestId\":\"id\",\"ip\":\"192.0.2.1\",\"caller\":\"-\",\"user\":\"-\",\"requestTime\":\"{}\",\"httpMethod\":\"GET\",\
             \"resourcePath\":\"/o\",\"status\":\"200\",\"protocol\":\"HTTP/1.1\",\"responseLength\":\"12\",\"responseLatency\":\"{}\",\
             \"integrationLatency\":\"1\"}}\n",
            clf(a),
            (d - a) / MS
        )
    };
    is_service(&read_of(line).unwrap(), "API Gateway", "start", MS, SECOND);
    let epoch = |a: u64, d: u64| {
        format!(
            "{{\"requestTime\":\"{}\",\"requestTimeEpoch\":{},\"status\":200,\"responseLatency\":{}}}\n",
            clf(a),
            a / MS,
            (d - a) / MS
        )
    };
    is_service(&read_of(epoch).unwrap(), "API Gateway", "start", MS, MS);
}

/// A service's first lines are of its start.
#[test]
fn names_of_later_lines_count_in_logfmt() {
    let start = "time=2026-11-22T04:15:00Z level=info msg=listening addr=:8080\n".repeat(2);
    let line = |a: u64, d: u64| {
        let at = civil(d, "%Y-%m-%dT%H:%M:%S%.6fZ");
        format!(
            "time={at} level=info method=GET path=/o status=200 duration={}.{:03}ms\n",
            (d - a) / MS,
            (d - a) / US % 1000
        )
    };
    let text: String = service(5, 800).into_iter().map(|(a, d)| line(a, d)).collect();
    let read = log(format!("{start}{text}").as_bytes(), &settings("")).unwrap();
    assert_eq!((read.lines, read.tally.other), (800, 2));
}

#[test]
fn decimal_commas_are_read_beside_semicolons() {
    let table = |line: &dyn Fn(u64, u64) -> String| {
        let text: String = service(5, 800).into_iter().map(|(a, d)| line(a, d)).collect();
        log(format!("endtime;status;duration_s\n{text}").as_bytes(), &settings(""))
    };
    let seconds = |ns: u64| format!("{},{:06}", ns / SECOND, ns % SECOND / US);
    let read = table(&|a, d| format!("{};200;{}\n", seconds(d), seconds(d - a))).unwrap();
    is_service(&read, "CSV", "end", US, US);
    assert!(read.taken.iter().any(|note| note.contains("decimal point")));
    // Numbers with a point beside such with a comma are neither.
    let mixed = |a: u64, d: u64| format!("{}.5;200;{}\n", d / SECOND, seconds(d - a));
    assert!(table(&mixed).unwrap_err().contains("duration"));
    let named = fields("end=endtime,response=duration_s:s");
    let line = |(a, d): (u64, u64)| format!("{};200;{}\n", seconds(d), seconds(d - a));
    let text: String = service(5, 800).into_iter().map(line).collect();
    let read = log(format!("endtime;status;duration_s\n{text}").as_bytes(), &named).unwrap();
    assert_eq!(read.lines, 800);
}

/// nginx, HAProxy, Envoy and load balancers log a web socket when it ends, with its length as the time: five of them made a fit worthless.
#[test]
fn upgraded_connections_are_no_requests() {
    let line = |a: u64, d: u64| {
        let at = format!("{}.{:03}", d / SECOND, d / MS % 1000);
        let socket = if (d / US).is_multiple_of(5) {
            format!("{at} 101 25.123 9 \"GET /ws HTTP/1.1\"\n")
        } else {
            String::new()
        };
        format!(
            "{socket}{at} 200 {}.{:03} 5 \"GET /o HTTP/1.1\"\n",
            (d - a) / SECOND,
            (d - a) / MS % 1000
        )
    };
    let read = read_of(line).unwrap();
    is_service(&read, "nginx", "end", MS, MS);
    let notes = read.tally.notes(read.lines).join("\n");
    assert!(read.tally.upgraded > 0 && notes.contains("upgraded connection"), "{notes}");
}
