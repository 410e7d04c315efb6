//! Tests of the reader of logs: which values of a service's own log are used, where several may be.

use ground::window::SECOND;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::tests::{civil, fields, log, service, settings};
use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// The service, of whose requests one in ten fails and one is refused, in lines of JSON whose members are written by `members`.
fn read_of(members: impl Fn(&Request) -> String, settings: &Settings) -> Result<Log, String> {
    let line = |(at, (a, d)): (usize, &(u64, u64))| {
        let status = [500, 503, 200, 200, 200, 200, 200, 200, 200, 200][at % 10];
        let (method, path) = (if at % 4 == 0 { "PUT" } else { "GET" }, format!("/o/{}", at % 3));
        let request = Request {
            end: civil(*d, "%Y-%m-%dT%H:%M:%S%.6fZ"),
            us: (d - a) / US,
            status,
            method,
            path,
        };
        format!("{{{}}}\n", members(&request))
    };
    let text: String = service(5, 800).iter().enumerate().map(line).collect();
    log(text.as_bytes(), settings)
}

/// Writes the members of a line's object.
type Members<'a> = &'a dyn Fn(&Request) -> String;

/// What a line says.
struct Request {
    end: String,
    us: u64,
    status: u16,
    method: &'static str,
    path: String,
}

/// That a log has the durations, statuses, methods and paths of the service.
fn is_service(read: &Log, name: &str) {
    let mut expected: Vec<u64> = service(5, 800).iter().map(|(a, d)| d - a).collect();
    expected =
        expected.into_iter().enumerate().filter(|(at, _)| at % 10 != 1).map(|(_, t)| t).collect();
    let found: Vec<u64> = read.times.iter().map(|r| r.taken).collect();
    let is_near = |(a, b): (&u64, &u64)| a.abs_diff(*b) <= MS;
    assert!(
        found.len() == expected.len() && found.iter().zip(&expected).all(is_near),
        "{name}: {:?}",
        read.taken
    );
    let count = |is: &dyn Fn(&Logged) -> bool| read.times.iter().filter(|r| is(r)).count();
    assert_eq!(read.tally.refused, 80, "{name}");
    assert_eq!(count(&|r| r.outcome == Outcome::Error), 80, "{name}");
    assert_eq!(count(&|r| r.operation == Operation::Put), 200, "{name}");
    let keys: BTreeSet<u32> = read.times.iter().map(|r| r.key).collect();
    assert_eq!(keys.len(), 3, "{name}");
}

/// That logs in these dialects have what the service has.
fn are_service(all: &[(&str, Members<'_>)]) {
    for (name, members) in all {
        let read = read_of(members, &settings("")).unwrap_or_else(|e| panic!("{name}: {e}"));
        is_service(&read, name);
    }
}

/// pino-http, the Elastic Common Schema: 500 and 503 counted as answered.
#[test]
fn values_within_others_are_found_by_their_last_names() {
    let pino = |r: &Request| {
        format!(
            "\"level\":30,\"time\":\"{}\",\"req\":{{\"id\":1,\"method\":\"{}\",\"url\":\"{}\",\"headers\":{{\"date\":\"x\"}}}},\
             \"res\":{{\"statusCode\":{}}},\"responseTime\":{}.{:03},\"msg\":\"request completed\"",
            r.end,
            r.method,
            r.path,
            r.status,
            r.us / 1000,
            r.us % 1000
        )
    };
    let elastic = |r: &Request| {
        format!(
            "\"@timestamp\":\"{}\",\"event\":{{\"duration\":{}}},\"http\":{{\"request\":{{\"method\":\"{}\",\"body\":{{\"bytes\":7}}}},\
             \"response\":{{\"status_code\":{},\"body\":{{\"bytes\":9}}}}}},\"url\":{{\"path\":\"{}\"}}",
            r.end,
            r.us * 1000,
            r.method,
            r.status,
            r.path
        )
    };
    let dotted = |r: &Request| {
        format!(
            "\"@timestamp\":\"{}\",\"event.duration\":{},\"http.request.method\":\"{}\",\"http.response.status_code\":{},\
             \"url.path\":\"{}\"",
            r.end,
            r.us * 1000,
            r.method,
            r.status,
            r.path
        )
    };
    are_service(&[("pino", &pino), ("elastic", &elastic), ("dotted", &dotted)]);
}

/// Rails' Semantic Logger, Azure's Application Gateway, Rust's tracing.
#[test]
fn values_of_a_payload_are_found_by_their_last_names() {
    let rails = |r: &Request| {
        format!(
            "\"timestamp\":\"{}\",\"duration_ms\":{}.{:03},\"payload\":{{\"status\":{},\"method\":\"{}\",\"path\":\"{}\"}}",
            r.end,
            r.us / 1000,
            r.us % 1000,
            r.status,
            r.method,
            r.path
        )
    };
    let azure = |r: &Request| {
        format!(
            "\"timeStamp\":\"{}\",\"properties\":{{\"httpStatus\":{},\"timeTaken\":{}.{:06},\"httpMethod\":\"{}\",\"requestUri\":\"{}\"}}",
            r.end,
            r.status,
            r.us / 1_000_000,
            r.us % 1_000_000,
            r.method,
            r.path
        )
    };
    let tracing = |r: &Request| {
        format!(
            "\"timestamp\":\"{}\",\"fields\":{{\"message\":\"finished processing request\",\"latency\":\"{} us\",\"status\":\"{}\"}},\
             \"target\":\"tower_http::trace\",\"span\":{{\"method\":\"{}\",\"uri\":\"{}\"}}",
            r.end, r.us, r.status, r.method, r.path
        )
    };
    are_service(&[("rails", &rails), ("azure", &azure), ("tracing", &tracing)]);
}

/// The line that says what was taken for what names the values, and what there is none of.
#[test]
fn a_log_without_a_status_says_so() {
    let line = |r: &Request| {
        format!("\"ts\":\"{}\",\"duration_us\":{},\"what\":\"{}\"", r.end, r.us, r.status)
    };
    let read = read_of(line, &settings("")).unwrap();
    assert!(
        read.taken[0].contains("its values are end=ts,response=duration_us"),
        "{:?}",
        read.taken
    );
    assert!(
        read.taken[0].contains("no value is a status, so all requests count as answered"),
        "{:?}",
        read.taken
    );
    assert!(!read.files[0].has_status && read.files[0].fields == "end=ts,response=duration_us");
    let line = |r: &Request| {
        format!("\"ts\":\"{}\",\"duration_us\":{},\"status\":\"{}\"", r.end, r.us, r.status)
    };
    let read = read_of(line, &settings("")).unwrap();
    assert!(read.files[0].has_status && !read.taken[0].contains("no value"), "{:?}", read.taken);
    assert!(read.taken[0].contains("status=status"), "{:?}", read.taken);
}

/// Several values that may be the duration: the first of the alphabet was taken, which may be a part of the whole.
#[test]
fn of_several_values_that_may_be_the_duration_the_whole_is_taken() {
    let part = |r: &Request| format!("{}.{:03}", r.us / 2000, r.us / 2 % 1000);
    let whole = |r: &Request| format!("{}.{:03}", r.us / 1000, r.us % 1000);
    for (one, two) in [
        ("processing_time_ms", "total_time_ms"),
        ("duration_ms", "elapsed_ms"),
        ("latency", "response_time"),
    ] {
        let line = |r: &Request| {
            let (part, whole) = (part(r), whole(r));
            format!(
                "\"ts\":\"{}\",\"{one}\":{part},\"{two}\":{whole},\"status\":{},\"method\":\"{}\",\"path\":\"{}\"",
                r.end, r.status, r.method, r.path
            )
        };
        let read = read_of(line, &settings("")).unwrap_or_else(|e| panic!("{two}: {e}"));
        is_service(&read, two);
        assert!(read.taken[0].contains(&format!("response={two}")), "{:?}", read.taken);
    }
    // The same in another unit is no other value.
    let line = |r: &Request| {
        format!("\"ts\":\"{}\",\"elapsed\":{},\"duration_ms\":{}", r.end, r.us * 1000, r.us / 1000)
    };
    assert!(
        read_of(line, &settings("")).unwrap().files[0].fields.ends_with("response=duration_ms")
    );
    let line = |r: &Request| {
        format!(
            "\"ts\":\"{}\",\"elapsed_ms\":{},\"duration_ms\":{}",
            r.end,
            r.us / 1000,
            r.us * 7919 % 90
        )
    };
    let error = read_of(line, &settings("")).unwrap_err();
    assert!(
        error.contains("`duration_ms` and `elapsed_ms`") && error.contains("--fields response="),
        "{error}"
    );
}

/// Of several stamps the finest is taken, and none that is no moment.
#[test]
fn of_several_stamps_the_finest_is_taken() {
    let line = |r: &Request| {
        let end = &r.end;
        format!(
            "\"date\":\"{}\",\"t\":17,\"time\":\"{}Z\",\"ts\":\"{end}\",\"duration_us\":{}",
            &end[..10],
            &end[..19],
            r.us
        )
    };
    let read = read_of(line, &settings("")).unwrap();
    assert_eq!((read.files[0].fields.as_str(), read.clock_ns), ("end=ts,response=duration_us", US));
}

/// A value that is not needed does not refuse a log: sizes that are no numbers, statuses of another kind beside those of HTTP.
#[test]
fn values_that_are_not_needed_refuse_no_log() {
    let with = |members: &'static str, status: &'static str| {
        move |r: &Request| {
            format!(
                "\"ts\":\"{}\",\"duration_us\":{},{},\"method\":\"{}\",\"path\":\"{}\"{members}",
                r.end,
                r.us,
                status.replace("CODE", &r.status.to_string()),
                r.method,
                r.path
            )
        }
    };
    for (members, status) in [
        (",\"content_length\":5,\"size\":\"5 B\"", "\"status\":CODE"),
        (",\"content_length\":12.0", "\"status\":CODE"),
        ("", "\"status\":CODE.0"),
        ("", "\"code\":\"OK\",\"status\":\"success\",\"status_code\":CODE"),
        ("", "\"status\":{\"code\":CODE}"),
    ] {
        let read = read_of(with(members, status), &settings(""))
            .unwrap_or_else(|e| panic!("{status}{members}: {e}"));
        is_service(&read, status);
        assert_eq!((read.tally.of_unknown_size, read.broken), (0, 0), "{members}");
    }
    for size in ["-1", "\"1.2 kB\""] {
        let line = |r: &Request| {
            let size = if r.us.is_multiple_of(2) { size } else { "5" };
            format!("\"ts\":\"{}\",\"duration_us\":{},\"status\":200,\"size\":{size}", r.end, r.us)
        };
        let read = read_of(line, &settings("")).unwrap();
        let even =
            service(5, 800).iter().filter(|(a, d)| ((d - a) / US).is_multiple_of(2)).count() as u64;
        assert_eq!((read.tally.of_unknown_size, read.times.len()), (even, 800));
        assert!(read.tally.notes(read.lines).iter().any(|text| text.contains("0 bytes")));
    }
    // What is needed and wrong: the option that helps is that of the format.
    let line =
        |r: &Request| format!("\"ts\":\"{}\",\"duration_ms\":\"soon\",\"status\":200", r.end);
    let error = read_of(line, &settings("")).unwrap_err();
    assert!(error.contains("--fields") && !error.contains("--log-format"), "{error}");
}

/// `--fields` adds to what is recognised without it, and a name keeps the unit that it says.
#[test]
fn fields_begin_from_what_is_recognised() {
    let line = |r: &Request| {
        format!(
            "\"ts\":\"{}\",\"latency_us\":{},\"outcome\":{},\"verb\":\"{}\",\"what\":\"{}\"",
            r.end, r.us, r.status, r.method, r.path
        )
    };
    for given in ["status=outcome,path=what", "end=ts,response=latency_us,status=outcome,path=what"]
    {
        let read = read_of(line, &fields(given)).unwrap_or_else(|e| panic!("{given}: {e}"));
        assert_eq!((read.files[0].unit.as_str(), read.resolution_ns), ("us", US), "{given}");
        is_service(&read, given);
    }
    let read = read_of(line, &fields("status=outcom,path=what")).unwrap();
    assert!(read.taken.iter().any(|text| text.contains("is called `outcom`.")), "{:?}", read.taken);
    // A table, by the number of a column; and a server's own format keeps its unit.
    let table = |header: &str| {
        let rows =
            service(5, 800).into_iter().map(|(a, d)| format!("{},{},200\n", d / US, (d - a) / US));
        format!("{header}\n{}", rows.collect::<String>())
    };
    let read =
        log(table("ts,took_us,x").as_bytes(), &fields("end=ts,response=took_us,status=3")).unwrap();
    assert_eq!((read.files[0].unit.as_str(), read.times.len()), ("us", 800));
    let traefik = |r: &Request| {
        format!(
            "\"StartUTC\":\"{}\",\"Duration\":{},\"DownstreamStatus\":{}",
            r.end,
            r.us * 1000,
            r.status
        )
    };
    let read = read_of(traefik, &fields("status=-")).unwrap();
    assert_eq!((read.files[0].unit.as_str(), read.times.len(), read.tally.refused), ("ns", 800, 0));
}

/// Without a status every request is as good as another, and none has a path.
#[test]
fn requests_are_not_chosen_by_what_a_log_has_not() {
    let line = |r: &Request| format!("\"ts\":\"{}\",\"duration_us\":{}", r.end, r.us);
    let chosen = |paths: &[&str], statuses: &[&str]| {
        let [paths, statuses] =
            [paths, statuses].map(|all| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let filter = Filter::parse(None, None, &paths, &statuses).unwrap();
        read_of(line, &Settings { filter, ..settings("") }).unwrap_err()
    };
    let error = chosen(&[], &["200"]);
    assert!(
        error.contains("--status") && error.contains("no value of it (JSON) is a status"),
        "{error}"
    );
    let error = chosen(&["/o"], &[]);
    assert!(error.contains("--path") && error.contains("--fields path=NAME"), "{error}");
}

/// A service logs queries with their durations into the same log; they counted as requests that were answered.
#[test]
fn events_with_a_duration_and_no_status_are_no_requests() {
    let json = |r: &Request| {
        format!(
            "\"ts\":\"{}\",\"msg\":\"query\",\"duration_us\":{}}}\n{{\"ts\":\"{}\",\"msg\":\"done\",\"duration_us\":{},\"status\":{},\
             \"method\":\"{}\",\"path\":\"{}\"",
            r.end,
            r.us / 2,
            r.end,
            r.us,
            r.status,
            r.method,
            r.path
        )
    };
    let read = read_of(json, &settings("")).unwrap();
    is_service(&read, "JSON");
    assert_eq!(read.tally.other, 800);
    assert!(
        read.tally
            .notes(read.lines)
            .iter()
            .any(|text| text.contains("without a duration or a status"))
    );
    // Where failures alone have one, the others went well.
    let failures = |r: &Request| {
        let status =
            if r.status < 400 { String::new() } else { format!(",\"status\":{}", r.status) };
        format!("\"ts\":\"{}\",\"duration_us\":{}{status}", r.end, r.us)
    };
    let read = read_of(failures, &settings("")).unwrap();
    assert_eq!((read.lines, read.tally.other, read.tally.refused), (800, 0, 80));
}

/// Go's slog writes durations as integers of ns beside stamps of ns: those of a service of 40 µs were read as 40 ms, because it is unusually fast.
#[test]
fn short_durations_beside_stamps_of_nanoseconds_are_not_guessed() {
    let text = |format: &'static str| {
        let line = |i: u64| {
            let at = 1_795_320_900 * SECOND + 50 * MS * i + i * 7919 % 1000;
            let time = civil(at, format);
            format!(
                "{{\"time\":\"{time}\",\"status\":200,\"duration\":{}}}\n",
                20_000 + i * 7919 % 40_000
            )
        };
        (0..600).map(line).collect::<String>()
    };
    let fine = text("%Y-%m-%dT%H:%M:%S%.9fZ");
    let error = log(fine.as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("the unit of its durations") && error.contains("--unit"), "{error}");
    let with_unit = Settings { unit: Some(Unit::Nanos), side: Some(Side::End), ..settings("") };
    assert_eq!(log(fine.as_bytes(), &with_unit).unwrap().times.len(), 600);
    let coarse = Settings { side: Some(Side::End), ..settings("") };
    let read = log(text("%Y-%m-%dT%H:%M:%S%.6fZ").as_bytes(), &coarse).unwrap();
    assert_eq!(read.files[0].unit, "us");
    assert!(read.taken.iter().any(|text| text.contains("--unit ns")), "{:?}", read.taken);
}

/// Works of a store in memory: the logs of 20 µs and of 20 ms differ in nothing but what waits show.
#[test]
fn integers_of_a_fast_service_are_told_by_its_waits_or_refused() {
    let text = |busy: f64, scale: u64| {
        let mut random = StdRng::seed_from_u64(7);
        let mut exponential = move |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
        let (mut arrival, mut free) = (0.0f64, 0.0f64);
        let line = |_| {
            arrival += exponential(20.0 / busy);
            free = free.max(arrival) + exponential(20.0);
            let at = 1_795_320_900 * SECOND + (free * 1e3) as u64 * scale;
            let taken = (free - arrival) as u64 + 1;
            let time = civil(at, "%Y-%m-%dT%H:%M:%S%.6fZ");
            format!("{{\"time\":\"{time}\",\"status\":200,\"duration\":{taken}}}\n")
        };
        (0..3_000).map(line).collect::<String>()
    };
    let end = Settings { side: Some(Side::End), ..settings("") };
    for (scale, unit) in [(1, "us"), (1_000, "ms")] {
        let read = log(text(0.5, scale).as_bytes(), &end).unwrap();
        assert_eq!(read.files[0].unit, unit);
        // Hardly anything waits, so that both may be.
        let error = log(text(0.001, scale).as_bytes(), &end).map(|read| read.taken).unwrap_err();
        assert!(
            error.contains("the unit of its durations") && error.contains("NAME:UNIT"),
            "{error}"
        );
    }
}
