//! Tests of the reader of logs: one service, written in every format, is read back to what the format can hold.

use std::fmt::Write as _;

use chrono::DateTime;
use ground::window::SECOND;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

pub(super) fn settings(format: &str) -> Settings {
    Settings {
        format: Some(format.to_owned()).filter(|format| !format.is_empty()),
        fields: None,
        unit: None,
        side: None,
        filter: Filter::default(),
        window_ns: SECOND,
        objectives_ms: vec![20.0],
        lenient: false,
        hits_are_memory: true,
    }
}

pub(super) fn fields(fields: &str) -> Settings {
    Settings { fields: Some(fields.to_owned()), ..settings("") }
}

pub(super) fn log(text: &[u8], settings: &Settings) -> Result<Log, String> {
    let source = Source::memory(Path::new("a.log"), text);
    read(vec![source], settings).map_err(|e| e.to_string())
}

/// When a request came and when it was answered, nanoseconds since 1970, in the order of the answers: two servers, exponential
/// work of 10 ms, 120 requests/s.
pub(super) fn service(seed: u64, count: usize) -> Vec<(u64, u64)> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut now, mut free, mut all) = (1_795_320_900.0f64, [0.0f64; 2], Vec::new());
    let mut draw = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
    for _ in 0..count {
        now += draw(1.0 / 120.0);
        let first = usize::from(free[1] < free[0]);
        free[first] = now.max(free[first]) + draw(0.01);
        let ns = |s: f64| (s * 1e6) as u64 * 1000;
        all.push((ns(now), ns(free[first])));
    }
    all.sort_by_key(|one| one.1);
    all
}

pub(super) fn civil(ns: u64, format: &str) -> String {
    DateTime::from_timestamp_nanos(ns as i64).format(format).to_string()
}

pub(super) fn clf(ns: u64) -> String {
    civil(ns, "%d/%b/%Y:%H:%M:%S +0000")
}

pub(super) fn iso(ns: u64, format: &str) -> String {
    civil(ns, &format!("%Y-%m-%dT%H:%M:%S{format}Z"))
}

pub(super) fn decimals(ns: u64, places: usize) -> String {
    let text = format!("{}.{:09}", ns / SECOND, ns % SECOND);
    text[..text.len() - 9 + places].to_owned()
}

/// A format: its name, what is recognised of it, the steps of its stamps and durations, the side of its stamps, its header and
/// its lines.
struct Written {
    name: &'static str,
    options: &'static str,
    clock_ns: u64,
    resolution_ns: u64,
    side: Side,
    header: &'static str,
    line: fn(u64, u64) -> String,
}

const MS: u64 = 1_000_000;
const US: u64 = 1000;

const fn written(
    name: &'static str,
    steps_ns: [u64; 2],
    side: Side,
    line: fn(u64, u64) -> String,
) -> Written {
    let [clock_ns, resolution_ns] = steps_ns;
    Written { name, options: "", clock_ns, resolution_ns, side, header: "", line }
}

const FORMATS: &[Written] = &[
    written("nginx, combined", [SECOND, MS], Side::End, |a, d| {
        format!(
            "::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"x \\x22y\\x22\" {}",
            clf(d),
            decimals(d - a, 3)
        )
    }),
    written("nginx, $msec", [MS, MS], Side::End, |a, d| {
        format!("{} 200 {} 512 \"GET /o HTTP/1.1\"", decimals(d, 3), decimals(d - a, 3))
    }),
    written("nginx's names", [MS, MS], Side::End, |a, d| {
        format!(
            "{{\"msec\":\"{}\",\"status\":\"200\",\"request_time\":\"{}\",\"request\":\"GET /\\x22 HTTP/1.1\"}}",
            decimals(d, 3),
            decimals(d - a, 3)
        )
    }),
    written("Kubernetes ingress", [SECOND, MS], Side::End, |a, d| {
        format!(
            "10.0.0.1 - - [{}] \"GET /o HTTP/2.0\" 200 5 \"-\" \"curl\" 34 {} [web-svc-80] [] 10.0.0.2:80, 10.0.0.3:80 0, 5 \
             0.096, 0.004 502, 200 abc",
            clf(d),
            decimals(d - a, 3)
        )
    }),
    written("%D", [SECOND, US], Side::Start, |a, d| {
        format!(
            "10.0.0.1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {}",
            clf(a),
            (d - a) / US
        )
    }),
    written("HAProxy", [MS, MS], Side::Start, |a, d| {
        format!(
            "Nov 22 04:15:00 lb haproxy[1]: 10.0.0.1:3 [{}] in static/srv1 0/0/1/{1}/{1} 200 5 - - ---- 1/1/1/1/0 0/0 \
             \"GET /o HTTP/1.1\"",
            civil(a, "%d/%b/%Y:%H:%M:%S%.3f"),
            (d - a) / MS
        )
    }),
    written("Envoy, text", [MS, MS], Side::Start, |a, d| {
        format!(
            "[{}] \"GET /o HTTP/1.1\" 200 - 0 5 {1} {1} \"-\" \"curl\" \"id\" \"svc\" \"10.0.0.2:80\"",
            iso(a, "%.3f"),
            (d - a) / MS
        )
    }),
    written("Envoy, text", [MS, MS], Side::Start, |a, d| {
        format!(
            "[{}] \"GET /o HTTP/1.1\" 200 - via_upstream - \"-\" 0 5 {1} {1} \"-\" \"curl\" \"id\" \"svc\" \"10.0.0.2:80\"",
            iso(a, "%.3f"),
            (d - a) / MS
        )
    }),
    written("Envoy, JSON", [MS, MS], Side::Start, |a, d| {
        format!(
            "{{\"start_time\":\"{}\",\"duration\":{},\"response_code\":200,\"path\":\"/o\",\"method\":\"GET\"}}",
            iso(a, "%.3f"),
            (d - a) / MS
        )
    }),
    written("Caddy", [US, US], Side::End, |a, d| {
        format!(
            "{{\"ts\":{},\"request\":{{\"method\":\"GET\",\"uri\":\"/o\"}},\"duration\":{},\"size\":5,\"status\":200}}",
            decimals(d, 6),
            decimals(d - a, 6)
        )
    }),
    written("Traefik, common log", [SECOND, MS], Side::Start, |a, d| {
        format!(
            "10.0.0.1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" 7 \"web@docker\" \"http://10.0.0.2:80\" {}ms",
            clf(a),
            (d - a) / MS
        )
    }),
    written("Traefik, JSON", [US, US], Side::Start, |a, d| {
        format!(
            "{{\"StartUTC\":\"{}\",\"Duration\":{},\"DownstreamStatus\":200,\"RequestPath\":\"/o\",\"RequestMethod\":\"GET\"}}",
            iso(a, "%.6f"),
            d - a
        )
    }),
    written("AWS application", [US, US], Side::End, |a, d| {
        format!(
            "http {} app/lb/5 10.0.0.1:28 10.0.0.2:80 0.000 {} 0.000 200 200 34 5 \"GET http://x:80/o HTTP/1.1\" \"curl\" - - \
             arn \"Root\" \"-\" \"-\" 0 {} \"forward\" \"-\" \"-\" \"10.0.0.2:80\" \"200\" \"-\" \"-\"",
            iso(d, "%.6f"),
            decimals(d - a, 3),
            iso(a, "%.6f")
        )
    }),
    written("AWS classic", [US, US], Side::Start, |a, d| {
        format!(
            "{} lb 10.0.0.1:28 10.0.0.2:80 0.000000 {} 0.000000 200 200 0 5 \"GET http://x:80/o HTTP/1.1\" \"curl\" - -",
            iso(a, "%.6f"),
            decimals(d - a, 6)
        )
    }),
    written("S3 server", [SECOND, MS], Side::Start, |a, d| {
        format!(
            "79a5 bkt [{}] 10.0.0.1 79a5 3E57 REST.GET.OBJECT o/1 \"GET /bkt/o/1 HTTP/1.1\" 200 - 5 5 {1} {1} \"-\" \"aws\" - h",
            clf(a),
            (d - a) / MS
        )
    }),
    Written {
        header: "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time cs-method cs-uri-stem \
            sc-status time-taken\n",
        ..written("W3C extended (IIS)", [SECOND, MS], Side::End, |a, d| {
            format!("{} GET /o 200 {}", civil(d, "%Y-%m-%d %H:%M:%S"), (d - a) / MS)
        })
    },
    Written {
        header: "metric_name,timestamp,metric_value,method,status,url\n",
        ..written("k6, CSV", [SECOND, US], Side::End, |a, d| {
            let ms = decimals((d - a) * 1000, 6);
            format!(
                "http_req_duration,{},{ms},GET,200,http://x/o\nhttp_reqs,{0},1,GET,200,http://x/o",
                d / SECOND
            )
        })
    },
    written("k6, JSON", [US, US], Side::End, |a, d| {
        format!(
            "{{\"metric\":\"http_req_duration\",\"type\":\"Point\",\"data\":{{\"time\":\"{}\",\"value\":{},\"tags\":{{\
             \"status\":\"200\"}}}}}}",
            iso(d, "%.6f"),
            decimals((d - a) * 1000, 6)
        )
    }),
    written("vegeta, CSV", [US, US], Side::Start, |a, d| {
        format!("{a},200,{},0,5,,Zm9v,atk,0,GET,http://x/o,", d - a)
    }),
    written("vegeta, JSON", [US, US], Side::Start, |a, d| {
        format!(
            "{{\"seq\":1,\"code\":200,\"timestamp\":\"{}\",\"latency\":{}}}",
            iso(a, "%.6f"),
            d - a
        )
    }),
    Written {
        header: "timeStamp,elapsed,label,responseCode,bytes\n",
        ..written("JMeter, CSV", [MS, MS], Side::Start, |a, d| {
            format!("{},{},\"get, one\",200,5", a / MS, (d - a) / MS)
        })
    },
    Written {
        header: "<?xml version=\"1.0\"?>\n<testResults version=\"1.2\">\n",
        ..written("JMeter, XML", [MS, MS], Side::Start, |a, d| {
            format!(
                "<httpSample t=\"{}\" ts=\"{}\" s=\"true\" lb=\"get\" rc=\"200\" by=\"5\"/>",
                (d - a) / MS,
                a / MS
            )
        })
    },
    Written {
        header: "[OVERALL], RunTime(ms), 3\nREAD,latency raw data: op, timestamp(ms), latency(us)\n",
        ..written("YCSB", [MS, US], Side::End, |a, d| format!("READ,{},{}", d / MS, (d - a) / US))
    },
    // What is described by hand, or found by sense.
    Written {
        options: "end=when,response=took:ms,status=code",
        ..written("JSON", [MS, MS], Side::End, |a, d| {
            format!("{{\"when\":{},\"took\":{},\"code\":200}}", d / MS, (d - a) / MS)
        })
    },
    Written {
        options: "start=1:us,response=3:us,status=2",
        ..written("CSV", [US, US], Side::Start, |a, d| format!("{}\t200\t{}", a / US, (d - a) / US))
    },
    Written {
        options: "[%START_TIME%] %RESPONSE_CODE% %DURATION%",
        ..written("the given format", [MS, MS], Side::Start, |a, d| {
            format!("[{}] 200 {}", iso(a, "%.3f"), (d - a) / MS)
        })
    },
    Written {
        options: "%h %t %>s %{ms}T",
        ..written("the given format", [SECOND, MS], Side::Start, |a, d| {
            format!("::1 [{}] 200 {}", clf(a), (d - a) / MS)
        })
    },
    written("JSON", [MS, MS], Side::Start, |a, d| {
        format!("{{\"time\":\"{}\",\"status\":200,\"duration\":{}}}", iso(a, "%.3f"), (d - a) / MS)
    }),
    written("JSON", [US, US], Side::End, |a, d| {
        format!("{{\"ts\":{},\"latency_us\":{},\"url\":\"/o\"}}", decimals(d, 6), (d - a) / US)
    }),
    written("logfmt", [MS, US], Side::End, |a, d| {
        format!("time={} level=info status=200 duration={}us", iso(d, "%.3f"), (d - a) / US)
    }),
];

#[test]
fn one_service_is_read_from_every_format() {
    for (seed, format) in (1..).zip(FORMATS) {
        let Written { name, options, clock_ns, resolution_ns, side, header, line } = *format;
        let all = service(seed, 1_500);
        let mut text = header.to_owned();
        all.iter().for_each(|(a, d)| writeln!(text, "{}", line(*a, *d)).unwrap());
        let given = if options.contains('=') { fields(options) } else { settings(options) };
        let read = log(text.as_bytes(), &given).unwrap_or_else(|e| panic!("{name}: {e}"));
        let file = &read.files[0];
        assert!(file.format.contains(name), "{name}: {file:?}");
        assert_eq!(
            (read.clock_ns, read.resolution_ns),
            (clock_ns, resolution_ns),
            "{name}: {file:?}"
        );
        let cut = |ns: u64, step: u64| ns / step * step;
        // Envoy rounds down: half a tick makes that the nearest.
        let is_envoy = name.starts_with("Envoy") || options.contains("%DURATION%");
        let short = if is_envoy { resolution_ns / 2 } else { 0 };
        assert_eq!(read.is_timed_apart, is_envoy || matches!(side, Side::Start), "{name}");
        let mut expected: Vec<(u64, u64)> = all
            .iter()
            .map(|(a, d)| {
                let taken = cut(d - a, resolution_ns) + short;
                let end = match side {
                    Side::Start => cut(*a, clock_ns) + taken,
                    Side::End => cut(*d, clock_ns),
                };
                (end, taken)
            })
            .collect();
        let mut found: Vec<(u64, u64)> = read.times.iter().map(|t| (t.end, t.taken)).collect();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}: {file:?}");
        }
        assert_eq!(read.broken, 0, "{name}");
    }
}

#[test]
fn integers_in_place_of_seconds_are_not_read_as_seconds() {
    let all = service(5, 800);
    let line = |(a, d): &(u64, u64)| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"x\" {}\n", clf(*a), (d - a) / US)
    };
    let text: String = all.iter().map(line).collect();
    let format = "$remote_addr - - [$time_local] \"$request\" $status $bytes_sent \"$a\" \"$b\" $request_time";
    let read = log(text.as_bytes(), &settings(format)).unwrap();
    assert_eq!((read.files[0].unit.as_str(), read.resolution_ns), ("us", US), "{:?}", read.taken);
    assert!(read.taken[1].contains("integers"), "{:?}", read.taken);
}

/// An idle service whose durations are integers: 12 ms and 12 s are both possible, and neither is guessed.
#[test]
fn what_sense_cannot_tell_is_refused() {
    let line = |n: u64| {
        let at = (1_795_320_900 + 20 * n) * SECOND + 7 * n * MS;
        format!("{{\"time\":\"{}\",\"status\":200,\"duration\":{}}}\n", iso(at, "%.3f"), 3 + n % 5)
    };
    let text: String = (0..200).map(line).collect();
    let error = log(text.as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("the unit of its durations") && error.contains("--unit"), "{error}");
    let with_unit = Settings { unit: Some(Unit::Millis), ..settings("") };
    let error = log(text.as_bytes(), &with_unit).unwrap_err();
    assert!(error.contains("--stamp start"), "{error}");
    let with_both = Settings { side: Some(Side::Start), ..with_unit };
    assert_eq!(log(text.as_bytes(), &with_both).unwrap().times[0].taken, 3 * MS);
}

#[test]
fn retries_and_refusals_are_counted() {
    let alb = |times: &str, status: &str| {
        format!(
            "http 2026-11-22T04:15:00.000000Z app/lb/5 10.0.0.1:28 - {times} {status} - 34 5 \"GET http://x:80/o HTTP/1.1\" \"c\" \
             - - a \"R\" \"-\" \"-\" 0 2026-11-22T04:15:00.000000Z \"forward\" \"-\" \"-\" \"-\" \"-\" \"-\" \"-\"\n"
        )
    };
    let text = alb("0.001 0.002 0.000", "200").repeat(9)
        + &alb("-1 -1 -1", "503")
        + &alb("-1 -1 -1", "460");
    let read = log(text.as_bytes(), &settings("")).unwrap();
    assert_eq!((read.times.len(), read.broken), (9, 0));
    assert_eq!((read.tally.refused, read.tally.untimed), (1, 1));
    assert_eq!(read.tally.notes(read.lines).len(), 2);
    let nginx = "1795320900.250 0.592 200 \"0.096, 0.092, 0.400\"\n1795320900.950 0.527 200 \"0.518 : 0.009\"\n\
        1795320901.250 0.001 502 \"-\"\n";
    let format = "$msec $request_time $status \"$upstream_response_time\"";
    let read = log(nginx.as_bytes(), &settings(format)).unwrap();
    let origin = read.origin.unwrap().finish(&[]);
    assert_eq!(origin.iter().map(|w| w.completions).sum::<u64>(), 2);
    assert_eq!(read.times[0].taken, 592 * MS);
}

#[test]
fn broken_lines_are_counted_by_kind_and_too_many_are_an_error() {
    let good = "1795320900.250 0.010 200 5 \"GET /o HTTP/1.1\"\n".repeat(398);
    let format = "$msec $request_time $status $bytes_sent \"$request\"";
    let bad = "1795320900.250 0,010 200 5 \"GET /\x1b[31m HTTP/1.1\"\n\x00\x1b]0;x\x07\n";
    let read = log(format!("{good}{bad}").as_bytes(), &settings(format)).unwrap();
    assert_eq!((read.lines, read.broken), (400, 2));
    let notes = read.tally.notes(read.lines).join("\n");
    for words in ["line 399 of a.log", "line 400 of a.log", "an invalid duration", "slow requests"]
    {
        assert!(notes.contains(words), "{words}: {notes}");
    }
    assert!(notes.bytes().all(|byte| byte == b'\n' || byte >= b' '), "{notes:?}");
    let text = format!("{}{bad}", &good[..good.len() / 398 * 150]);
    let error = log(text.as_bytes(), &settings(format)).unwrap_err();
    assert!(error.contains("2 of 152 lines") && error.contains("line 151"), "{error}");
    let lenient = Settings { lenient: true, ..settings(format) };
    assert_eq!(log(text.as_bytes(), &lenient).unwrap().broken, 2);
    assert!(log(b"x\n", &lenient).unwrap_err().contains("line 1"));
    assert_eq!(log(b"", &lenient).unwrap_err(), "a.log has no lines: the file is empty");
    assert!(log(b"\xff\xfe1\0", &settings("")).unwrap_err().contains("iconv -f UTF-16"));
    assert!(
        log(&[0x7f, b'E', b'L', b'F', 0, 1, b'\n'], &settings(""))
            .unwrap_err()
            .contains("not text")
    );
}

#[test]
fn files_are_read_in_the_order_of_time_and_requests_are_filtered() {
    let all = service(9, 600);
    let line = |(a, d): &(u64, u64)| {
        let path = if a % 3 == 0 { "/api/1" } else { "/static" };
        format!("{} 200 {} 5 \"GET {path} HTTP/1.1\"\n", decimals(*d, 3), decimals(d - a, 3))
    };
    let part = |from: usize, to: usize| all[from..to].iter().map(line).collect::<String>();
    let (first, second) = (part(0, 300), part(300, 600));
    let source = |name: &str, text: &str| Source::memory(Path::new(name), text.as_bytes());
    let sources = || vec![source("a.log", &second), source("b.log", ""), source("a.log.1", &first)];
    let read_all = read(sources(), &settings("")).unwrap();
    assert_eq!(read_all.files[0].path, Path::new("a.log.1"));
    assert!(read_all.times.is_sorted_by_key(|t| t.end) && read_all.times.len() == 600);
    assert!(read_all.taken.iter().any(|text| text == "b.log is empty."), "{:?}", read_all.taken);
    let paths = ["/api".to_owned()];
    let filter = Filter::parse(Some("1795320901"), Some("1795320903"), &paths, &[]).unwrap();
    let some = read(sources(), &Settings { filter, ..settings("") }).unwrap();
    let counted: u64 = some.tally.filtered.values().sum();
    assert_eq!(counted as usize + some.times.len(), 600);
    assert!(some.times.iter().all(|t| (1_795_320_901..1_795_320_903).contains(&(t.end / SECOND))));
    assert_eq!(some.tally.notes(some.lines).len(), 3);
    let filter = Filter::parse(None, None, &["/none".to_owned()], &[]).unwrap();
    let error = read(sources(), &Settings { filter, ..settings("") }).err().unwrap().to_string();
    assert!(error.contains("leave none"), "{error}");
}

#[test]
fn outcomes_follow_status_and_cache() {
    let format = "$msec $request_time $status $upstream_cache_status";
    let rows = ["200 HIT", "200 MISS", "200 -", "404 -", "500 -", "503 -", "429 -", "304 HIT"];
    let text: String = rows.iter().map(|r| format!("100.500 0.100 {r}\n")).collect();
    let windows = log(text.as_bytes(), &settings(format)).unwrap().gateway.unwrap().finish(&[]);
    let window = &windows[0];
    assert_eq!((window.arrivals, window.completions), (8, 6));
    assert_eq!((window.refusals, window.errors), (2, 1));
    let count = |outcome| {
        let times = window.times.iter().find(|t| t.outcome == outcome);
        times.map_or(0, |t| t.response.count())
    };
    assert_eq!(
        [Outcome::Memory, Outcome::Origin, Outcome::Unknown, Outcome::Miss, Outcome::Error]
            .map(count),
        [2, 1, 1, 1, 1]
    );
}

#[test]
fn summaries_and_logs_without_durations_are_refused_with_what_to_do() {
    for (text, words) in [
        ("  Detailed Percentile spectrum:\n", ["wrk2", "concertina capacity"]),
        ("{\"fio version\":\"fio-3.33\",\"jobs\":[]}\n", ["fio", "write_lat_log"]),
        ("Timestamp,User Count,Type,Name,Requests/s,Failures/s\n", ["Locust", "events.request"]),
        ("finished in 1s\ntime for request: 1ms\n", ["h2load", "--log-file"]),
        ("::1 - - [22/Nov/2026:04:15:00 +0000] \"GET / HTTP/1.1\" 200 5\n", ["duration", "%D"]),
        ("what is this\n", ["not recognised", "--fields"]),
    ] {
        let error = log(text.as_bytes(), &settings("")).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
    }
    let fine = Settings { window_ns: SECOND / 10, ..settings("$time_local|$request_time") };
    let error = log(b"22/Nov/2026:04:15:00 +0000|0.010\n", &fine).unwrap_err();
    assert!(error.contains("log $msec"), "{error}");
    let centuries = log(b"1.000 0.001\n8000000000.000 0.001\n", &settings("$msec $request_time"));
    let error = centuries.unwrap_err();
    assert!(error.contains("longer --window") && error.contains("--from"), "{error}");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400),
                                   format in prop::sample::select(vec!["json", "$msec $request_time $status", "", "%t %D"])) {
        let settings = Settings { lenient: true, ..settings(format) };
        if let Ok(read) = log(&bytes, &settings) {
            let windows = read.gateway.unwrap().finish(&[]);
            let seen: u64 = windows.iter().map(|w| w.completions + w.refusals).sum();
            prop_assert_eq!(seen, read.lines - read.broken);
        }
    }

    /// Lines of every format with some of their bytes changed.
    #[test]
    fn changed_lines_never_panic(which in any::<prop::sample::Index>(),
                                 edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let format = which.get(FORMATS);
        let mut text = format.header.to_owned();
        service(1, 8).iter().for_each(|(a, d)| writeln!(text, "{}", (format.line)(*a, *d)).unwrap());
        let mut bytes = text.into_bytes();
        for (at, byte) in edits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let given = if format.options.contains('=') { fields(format.options) } else { settings(format.options) };
        for lenient in [false, true] {
            if let Err(error) = log(&bytes, &Settings { lenient, ..given.clone() }) {
                prop_assert!(error.bytes().all(|byte| byte >= b' '), "{}", error);
            }
        }
    }
}
