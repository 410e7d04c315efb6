//! Tests of the reader of logs: what services write that no server's documentation says. One service, in many dialects.

use ground::window::SECOND;

use super::tests::{civil, clf, decimals, fields, iso, log, service, settings};
use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;

/// A log of the service, a line for each request, read.
fn read_of(line: impl Fn(u64, u64) -> String, settings: &Settings) -> Result<Log, String> {
    let text: String = service(5, 800).into_iter().map(|(a, d)| line(a, d)).collect();
    log(text.as_bytes(), settings)
}

/// Milliseconds with three decimals.
fn millis(ns: u64) -> String {
    format!("{}.{:03}", ns / MS, ns / US % 1000)
}

/// That the durations are those of the service, to a tick.
fn same_durations(read: &Log, tick: u64) {
    let mut expected: Vec<u64> = service(5, 800).iter().map(|(a, d)| d - a).collect();
    let mut found: Vec<u64> = read.times.iter().map(|r| r.taken).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found.len(), expected.len());
    assert!(found.iter().zip(&expected).all(|(a, b)| a.abs_diff(*b) <= tick), "{:?}", read.taken);
}

/// fastify writes a line when a request comes, and one when it is answered; other events stand among them.
#[test]
fn events_that_are_no_requests_are_not_counted_as_refused() {
    let line = |a: u64, d: u64| {
        format!(
            "{{\"level\":30,\"time\":{},\"reqId\":\"r\",\"req\":{{\"method\":\"GET\",\"url\":\"/o\"}},\"msg\":\"incoming request\"}}\n\
             {{\"level\":30,\"time\":{},\"reqId\":\"r\",\"res\":{{\"statusCode\":200}},\"responseTime\":{},\"msg\":\"request completed\"}}\n\
             {{\"level\":30,\"time\":{},\"msg\":\"cache refreshed\"}}\n",
            a / MS,
            d / MS,
            millis(d - a),
            d / MS
        )
    };
    let read = read_of(line, &settings("")).unwrap();
    assert_eq!((read.lines, read.tally.other, read.tally.untimed), (800, 1600, 0));
    assert_eq!((read.files[0].unit.as_str(), read.files[0].stamp.as_str()), ("ms", "end"));
    same_durations(&read, US);
    let window = &read.gateway.unwrap().finish(&[])[0];
    assert_eq!(window.refusals, 0);
    // logfmt; and a request whose status says that it ended, without a duration, is one.
    let line = |a: u64, d: u64| {
        let at = iso(d, "%.6f");
        format!(
            "ts={at} level=info method=GET status=200 duration_ms={}\nts={at} level=info msg=\"cache refreshed\"\n",
            millis(d - a)
        )
    };
    let read = read_of(line, &settings("")).unwrap();
    assert_eq!((read.lines, read.tally.other), (800, 800));
    let aborted = |a: u64, d: u64| {
        let at = d as f64 / 1e9;
        format!(
            "{{\"ts\":{at:.6},\"status\":200,\"duration_ms\":{}}}\n{{\"ts\":{at:.6},\"status\":499,\"duration_ms\":null}}\n",
            millis(d - a)
        )
    };
    let read = read_of(aborted, &settings("")).unwrap();
    assert_eq!((read.lines, read.tally.untimed), (1600, 800));
    // A name that no line has.
    let line = |a: u64, d: u64| format!("{{\"ts\":{},\"took\":{}}}\n", d / US, (d - a) / US);
    let error = read_of(line, &fields("end=ts,response=tok:us")).unwrap_err();
    assert!(error.contains("with a duration or a status") && error.contains("--fields"), "{error}");
}

/// morgan's `:response-time ms` behind the combined format: 8.972 ms was read as 8.972 s.
#[test]
fn a_unit_that_is_a_word_of_its_own_counts() {
    for (unit, divisor) in [("ms", MS), ("msecs", MS), ("us", US)] {
        let line = |a: u64, d: u64| {
            let number = format!("{}.{:03}", (d - a) / divisor, (d - a) % divisor * 1000 / divisor);
            format!(
                "::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {number} {unit}\n",
                clf(d)
            )
        };
        let read = read_of(line, &settings("")).unwrap();
        same_durations(&read, US);
    }
    let integers = |a: u64, d: u64| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 {} ms\n", clf(d), (d - a) / MS)
    };
    same_durations(&read_of(integers, &settings("")).unwrap(), MS);
    let bare = |a: u64, d: u64| format!("{} GET /o 200 {} ms - 5\n", iso(d, "%.3f"), millis(d - a));
    same_durations(&read_of(bare, &settings("")).unwrap(), US);
}

/// Decimals in the place of nginx's seconds.
#[test]
fn decimals_that_are_hardly_seconds_are_not_read_as_such() {
    let line = |a: u64, d: u64| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {}\n", clf(d), millis(d - a))
    };
    let error = read_of(line, &settings("")).unwrap_err();
    assert!(error.contains("the unit of its durations") && error.contains("--unit"), "{error}");
    let with_unit = |unit| Settings { unit: Some(unit), ..settings("") };
    same_durations(&read_of(line, &with_unit(Unit::Millis)).unwrap(), US);
    assert_eq!(read_of(line, &with_unit(Unit::Seconds)).unwrap().files[0].unit, "s");
    let msec = |a: u64, d: u64| {
        let at = format!("{}.{:03}", d / SECOND, d / MS % 1000);
        format!("{at} 200 {} 5 \"GET /o HTTP/1.1\"\n", millis(d - a))
    };
    assert!(read_of(msec, &settings("")).unwrap_err().contains("--unit"));
    // Of a service with few at a time it is possible, and said.
    let slow = |a: u64, d: u64| {
        let late = 1_795_320_900 * SECOND + 20 * (d - 1_795_320_900 * SECOND);
        format!(
            "::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {}\n",
            clf(late),
            millis(d - a)
        )
    };
    let read = read_of(slow, &settings("")).unwrap();
    assert!(read.taken.iter().any(|text| text.contains("say --unit ms")), "{:?}", read.taken);
    // Seconds, as nginx writes them, are not doubted.
    let nginx = |a: u64, d: u64| {
        format!(
            "::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" 0.{:03}\n",
            clf(d),
            (d / MS - a / MS).min(999)
        )
    };
    let read = read_of(nginx, &settings("")).unwrap();
    assert_eq!(
        (read.files[0].unit.as_str(), read.taken.iter().any(|t| t.contains("--unit"))),
        ("s", false)
    );
}

/// `%D` is in µs in Apache, and in ms in Tomcat up to 10.0, which alone has `%F`.
#[test]
fn durations_of_tomcat_are_not_those_of_apache() {
    let format = "%h %l %u %t \"%r\" %s %b %D %F";
    let line = |a: u64, d: u64| {
        let ms = (d - a) / MS;
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 {ms} {ms}\n", clf(a))
    };
    let read = read_of(line, &settings(format)).unwrap();
    assert_eq!(read.files[0].unit, "ms", "{:?}", read.taken);
    same_durations(&read, MS);
    let micros = |a: u64, d: u64| {
        format!(
            "::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 {} {}\n",
            clf(a),
            (d - a) / US,
            (d - a) / MS
        )
    };
    assert_eq!(read_of(micros, &settings(format)).unwrap().files[0].unit, "us");
    let without = "%h %l %u %t \"%r\" %s %b %D";
    let said = |read: Log| read.taken.iter().any(|text| text.contains("Tomcat"));
    let short = |a: u64, d: u64| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 {}\n", clf(a), (d - a) / MS)
    };
    assert!(said(read_of(short, &settings(without)).unwrap()));
    let apache = |a: u64, d: u64| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 {}\n", clf(a), (d - a) / US)
    };
    assert!(!said(read_of(apache, &settings(without)).unwrap()));
}

/// Tables whose columns tabs or blanks divide are read by the names above them, as those of commas are.
#[test]
fn names_above_columns_count_whatever_divides_them() {
    for (divider, pad) in [(",", ""), ("\t", ""), (";", ""), ("|", ""), (" ", ""), (" ", "   ")] {
        let row =
            |columns: [String; 4]| format!("{pad}{}\n", columns.join(&format!("{divider}{pad}")));
        let mut text = row(["start_time", "duration_ms", "status", "path"].map(str::to_owned));
        for (a, d) in service(5, 800) {
            let taken = format!("{:.3}", (d - a) as f64 / MS as f64);
            text += &row([format!("{:.3}", a as f64 / 1e9), taken, "200".into(), "/a".into()]);
        }
        let read = log(text.as_bytes(), &settings("")).unwrap();
        let file = &read.files[0];
        assert_eq!((&*file.unit, &*file.stamp), ("ms", "start"), "{divider:?}: {}", file.format);
        same_durations(&read, US);
    }
}

/// .NET writes a duration as a clock shows it, which has a unit of its own.
#[test]
fn durations_of_a_clock_are_read() {
    let minute = 60_000 * MS;
    let line = |a: u64, d: u64| {
        let ms = (d - a + minute) / MS;
        let taken = format!("00:{:02}:{:02}.{:03}0000", ms / 60_000, ms / 1000 % 60, ms % 1000);
        let stamp = civil(d + minute, "%Y-%m-%dT%H:%M:%S%.6fZ");
        format!("{{\"Timestamp\":\"{stamp}\",\"StatusCode\":200,\"Elapsed\":\"{taken}\"}}\n")
    };
    let at_end = Settings { side: Some(Side::End), ..settings("") };
    let read = read_of(line, &at_end).unwrap();
    assert_eq!(read.times.len(), 800);
    assert!(read.times.iter().all(|r| (minute..2 * minute).contains(&r.taken)), "{:?}", read.taken);
}

/// Dates as Go and JMeter write them, and names as OpenTelemetry and AWS give them.
#[test]
fn dates_with_slashes_and_names_of_traces_are_read() {
    let jmeter = |a: u64, d: u64| {
        format!("{},{},get,200,true,5\n", civil(a, "%Y/%m/%d %H:%M:%S%.3f"), (d - a) / MS)
    };
    let header = "timeStamp,elapsed,label,responseCode,success,bytes\n";
    let text: String = service(5, 800).into_iter().map(|(a, d)| jmeter(a, d)).collect();
    let read = log(format!("{header}{text}").as_bytes(), &settings("")).unwrap();
    assert_eq!(read.files[0].format, "JMeter, CSV");
    same_durations(&read, MS);
    let span = |a: u64, d: u64| {
        format!("{{\"name\":\"GET\",\"startTimeUnixNano\":\"{a}\",\"endTimeUnixNano\":\"{d}\"}}\n")
    };
    let read = read_of(span, &settings("")).unwrap();
    assert_eq!(read.files[0].stamp, "both");
    same_durations(&read, 1);
    let gateway = |a: u64, d: u64| {
        format!(
            "{{\"requestTimeEpoch\":{},\"status\":\"200\",\"responseLatency\":\"{}\"}}\n",
            a / MS,
            (d - a) / MS
        )
    };
    same_durations(&read_of(gateway, &settings("")).unwrap(), MS);
    let table = |a: u64, d: u64| format!("{},{}\n", d / US, (d - a) / US);
    let text: String = service(5, 800).into_iter().map(|(a, d)| table(a, d)).collect();
    let read = log(format!("end,response_us\n{text}").as_bytes(), &settings("")).unwrap();
    same_durations(&read, US);
    // A reply is called so, too.
    let reply = |a: u64, d: u64| {
        format!("{{\"ts\":{},\"response\":\"OK\",\"duration_us\":{}}}\n", d / US, (d - a) / US)
    };
    same_durations(&read_of(reply, &settings("")).unwrap(), US);
}

#[test]
fn names_that_say_too_little_are_listed() {
    let named = |text: &str| log(text.as_bytes(), &settings("")).unwrap_err();
    let error = named("{\"when\":1,\"duration\":2,\"x\\u001b\":3}\n");
    assert!(
        error.contains("duration, when, x") && error.contains("the time of a request"),
        "{error}"
    );
    assert!(error.bytes().all(|byte| byte >= b' '), "{error}");
    let error = named("time,dauer,status\n1795320900,3,200\n1795320901,3,200\n");
    assert!(
        error.contains("time, dauer") && error.contains("the duration of a request"),
        "{error}"
    );
    assert!(error.contains("--fields"), "{error}");
}

/// A transaction controller writes a sample of its own for all of the requests within it.
#[test]
fn transactions_of_jmeter_are_no_further_requests() {
    let header = "timeStamp,elapsed,label,responseCode,responseMessage,success,bytes,URL\n";
    let message = "Number of samples in transaction : 1, number of failing samples : 0";
    let of = |line: &dyn Fn(u64, u64) -> String| {
        let text: String = service(5, 800).into_iter().map(|(a, d)| line(a, d)).collect();
        log(format!("{header}{text}").as_bytes(), &settings("")).unwrap()
    };
    let transaction =
        |a: u64, d: u64| format!("{},{},txn,200,\"{message}\",true,5,null\n", a / MS, (d - a) / MS);
    let request =
        |a: u64, d: u64| format!("{},{},get,200,OK,true,5,http://x/o\n", a / MS, (d - a) / MS);
    let read = of(&|a, d| format!("{}{}", request(a, d), transaction(a, d)));
    assert_eq!((read.lines, read.tally.other), (800, 801), "{:?}", read.taken);
    assert!(read.taken.iter().any(|text| text.contains("are left out")), "{:?}", read.taken);
    same_durations(&read, MS);
    // "Generate parent sample" writes nothing else.
    let read = of(&transaction);
    assert!(read.taken.iter().any(|text| text.contains("is a transaction")), "{:?}", read.taken);
    same_durations(&read, MS);
    let xml = |a: u64, d: u64| {
        let (at, taken) = (a / MS, (d - a) / MS);
        format!(
            "<sample t=\"{taken}\" ts=\"{at}\" s=\"true\" lb=\"txn\" rc=\"200\" rm=\"{message}\">\n\
             <httpSample t=\"{taken}\" ts=\"{at}\" s=\"true\" lb=\"get\" rc=\"200\" rm=\"OK\"/>\n</sample>\n"
        )
    };
    let text: String = service(5, 800).into_iter().map(|(a, d)| xml(a, d)).collect();
    let text =
        format!("<?xml version=\"1.0\"?>\n<testResults version=\"1.2\">\n{text}</testResults>\n");
    let read = log(text.as_bytes(), &settings("")).unwrap();
    assert_eq!(read.lines, 800, "{:?}", read.taken);
    same_durations(&read, MS);
}

/// A proxy often adds less than a millisecond to its server's time.
#[test]
fn of_two_durations_the_whole_is_the_longer_one_wherever_it_stands() {
    let millis = |ns: u64| format!("{}.{:03}", ns / SECOND, ns / MS % 1000);
    let at = |d: u64| format!("{}.{:03}", d / SECOND, d / MS % 1000);
    for part_first in [true, false] {
        let line = |a: u64, d: u64| {
            let (whole, part) = (millis(d - a), millis((d - a).saturating_sub(MS)));
            let (one, two) = if part_first { (part, whole) } else { (whole, part) };
            format!("{} 200 {one} {two} 5 \"GET /o HTTP/1.1\"\n", at(d))
        };
        same_durations(&read_of(line, &settings("")).unwrap(), MS);
        let combined = |a: u64, d: u64| {
            let (whole, part) = (millis(d - a), millis((d - a).saturating_sub(MS)));
            let (one, two) = if part_first { (part, whole) } else { (whole, part) };
            format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {one} {two}\n", clf(d))
        };
        same_durations(&read_of(combined, &settings("")).unwrap(), MS);
    }
}

/// The time to the first byte stands before the time taken, and neither has a name.
#[test]
fn cloudfronts_real_time_logs_are_read_by_what_their_fields_hold() {
    let line = |a: u64, d: u64| {
        let (whole, first) = ((d - a) / MS, (d - a) / MS / 2);
        format!(
            "{}.{:03}\t192.0.2.1\t0.{first:03}\t200\t4838\tGET\thttps\td1.cloudfront.net\t/o/7\t30\tLHR62-C2\tid==\tx\t0.{whole:03}\tHTTP/2.0\tIPv4\n",
            d / SECOND,
            d / MS % 1000
        )
    };
    let read = read_of(line, &settings("")).unwrap();
    assert_eq!(read.files[0].format, "CloudFront, real-time log");
    assert_eq!((read.files[0].stamp.as_str(), read.files[0].unit.as_str()), ("end", "s"));
    assert!(read.origin.is_none(), "the first byte is not the origin's time");
    same_durations(&read, MS);
}

/// `duration_format ms` and `nano` write integers.
#[test]
fn integers_of_caddy_are_not_seconds() {
    for (unit, divisor) in [("ms", MS), ("ns", 1)] {
        let line = |a: u64, d: u64| {
            format!(
                "{{\"ts\":{}.{:06},\"request\":{{\"method\":\"GET\",\"uri\":\"/o\"}},\"duration\":{},\"size\":5,\"status\":200}}\n",
                d / SECOND,
                d / US % 1_000_000,
                (d - a) / divisor
            )
        };
        let read = read_of(line, &settings("")).unwrap();
        assert_eq!(read.files[0].unit, unit);
        same_durations(&read, divisor);
        // One that took 15 s is still one.
        let slow = |a: u64, d: u64| line(a, if d.is_multiple_of(97) { a + 15 * SECOND } else { d });
        assert_eq!(read_of(slow, &settings("")).unwrap().files[0].unit, unit);
    }
}

/// With `option logasap` HAProxy writes a line when a reply begins.
#[test]
fn totals_of_replies_that_had_not_ended_are_pointed_out() {
    let line = |plus: &'static str| {
        move |a: u64, d: u64| {
            let taken = (d - a) / MS;
            let at = civil(a, "%d/%b/%Y:%H:%M:%S%.3f");
            format!(
                "lb haproxy[1]: 192.0.2.1:3 [{at}] in~ back/srv1 0/0/0/{taken}/{plus}{taken} 200 {plus}5 - - ---- 1/1/1/1/0 0/0 \"GET /o HTTP/1.1\"\n"
            )
        }
    };
    let said = |read: &Log| read.taken.iter().any(|text| text.contains("logasap"));
    let early = read_of(line("+"), &settings("")).unwrap();
    assert!(said(&early), "{:?}", early.taken);
    same_durations(&early, MS);
    assert!(!said(&read_of(line(""), &settings("")).unwrap()));
}

/// `"$gzip_ratio"`, which nginx's documentation has behind the combined format, is no duration.
#[test]
fn ratios_are_no_durations() {
    let seconds = |ns: u64| format!("{}.{:03}", ns / SECOND, ns / MS % 1000);
    let ratio =
        |d: u64| if d.is_multiple_of(3) { "-".to_owned() } else { format!("3.{:02}", d % 100) };
    for (before, after) in [("", " \"R\""), ("\"R\" ", ""), ("R ", ""), ("", " R")] {
        let line = |a: u64, d: u64| {
            let with = |text: &str| text.replace('R', &ratio(d));
            let tail = format!("{}{}{}", with(before), seconds(d - a), with(after));
            format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {tail}\n", clf(d))
        };
        let read = read_of(line, &settings("")).unwrap();
        assert!(read.origin.is_none(), "{before}{after}");
        same_durations(&read, MS);
    }
    let alone = |_: u64, d: u64| {
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" \"{}\"\n", clf(d), ratio(d))
    };
    let error = read_of(alone, &settings("")).unwrap_err();
    assert!(error.contains("add it to the server's format"), "{error}");
}

/// What stands behind the combined format with a point in it, and no duration beside it.
#[test]
fn versions_and_places_are_no_durations() {
    let of = |text: &'static str| {
        move |a: u64, d: u64| {
            let taken = format!("{}.{:03}", (d - a) / SECOND, (d - a) / MS % 1000);
            let tail = text.replace("TAKEN", &taken);
            format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {tail}\n", clf(d))
        }
    };
    for tail in ["1.3", "1.1", "40.7128 -74.0060", "52.5200 13.4050", "TLSv1.3 1.2"] {
        let error = read_of(of(tail), &settings("")).unwrap_err();
        assert!(error.contains("add it to the server's format"), "{tail}: {error}");
    }
    for tail in ["1.3 TAKEN", "TAKEN 1.1", "52.5200 13.4050 TAKEN"] {
        same_durations(&read_of(of(tail), &settings("")).unwrap(), MS);
    }
}

/// A word more before the duration, from some line on.
#[test]
fn a_format_that_changes_within_a_file_is_noticed() {
    let half = service(5, 800)[400].1;
    let line = |a: u64, d: u64| {
        let taken = format!("{}.{:03}", (d - a) / SECOND, (d - a) / MS % 1000);
        let more = if d >= half { "0.001 " } else { "" };
        format!("::1 - - [{}] \"GET /o HTTP/1.1\" 200 5 \"-\" \"curl\" {more}{taken}\n", clf(d))
    };
    let error = read_of(line, &settings("")).unwrap_err();
    assert!(error.contains("8 words, and not 7"), "{error}");
}

/// A name that is no column's, and two that are taken for each other.
#[test]
fn logs_without_a_duration_are_refused() {
    let line = |a: u64, d: u64| format!("{{\"b\":{},\"e\":{},\"code\":200}}\n", a / US, d / US);
    same_durations(&read_of(line, &fields("start=b,end=e")).unwrap(), US);
    let error = read_of(line, &fields("end=e,response=x:ms,status=code")).unwrap_err();
    assert!(error.contains("no request has one") && error.contains("--fields"), "{error}");
    let error = read_of(line, &fields("start=e,end=b")).unwrap_err();
    assert!(error.contains("before it starts"), "{error}");
}

/// A logger's local time when summer time ends: the side of the stamps is shown by the order before and after that moment.
#[test]
fn the_order_of_lines_goes_on_after_a_clock_was_set_back() {
    let all = service(5, 800);
    let moment = all[400].1;
    let line = |a: u64, d: u64| {
        let shown = if d < moment { d + 3_600 * SECOND } else { d };
        format!(
            "{} method=GET path=/o status=200 duration={}ms\n",
            civil(shown, "%Y-%m-%d %H:%M:%S%.3f"),
            millis(d - a)
        )
    };
    let read = read_of(line, &settings("")).unwrap();
    assert_eq!(read.files[0].stamp, "end");
    same_durations(&read, US);
    // Lines in no order at all still do not tell.
    let mut shuffled: Vec<(u64, u64)> = all.clone();
    shuffled.sort_by_key(|(a, d)| (d - a, *a));
    let text: String = shuffled.into_iter().map(|(a, d)| line(a, d)).collect();
    let error = log(text.as_bytes(), &settings("")).unwrap_err();
    assert!(error.contains("--stamp start"), "{error}");
}

/// A timer of 20 ms, whose zeros were taken for hits of memory.
#[test]
fn durations_in_ticks_of_a_timer_are_known_to_a_tick() {
    for tick_ms in [4, 5, 20] {
        let tick = tick_ms * MS;
        let line = |a: u64, d: u64| {
            let taken = ((d - a) * 4 + tick / 2) / tick * tick / MS;
            format!("{{\"ts\":{},\"duration_ms\":{taken}}}\n", d / US)
        };
        let read = read_of(line, &settings("")).unwrap();
        assert_eq!(read.resolution_ns, tick, "{:?}", read.taken);
        assert!(read.clock_ns < tick);
    }
}

/// A sampler that followed a redirect has a sample for each request in it, and samplers other than HTTP's have codes that are no numbers.
#[test]
fn jmeter_samples_within_others_are_what_was_sent() {
    let element = |a: u64, d: u64, end: &str| {
        let (ts, t) = (a / MS, (d - a) / MS);
        format!(
            "<httpSample t=\"{t}\" lt=\"1\" ts=\"{ts}\" s=\"true\" lb=\"p\" rc=\"200\" rm=\"OK\" by=\"9\"{end}>\n"
        )
    };
    let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testResults version=\"1.2\">\n";
    let all = service(5, 800);
    let mut text = head.to_owned();
    for (at, (a, d)) in all.iter().enumerate() {
        if at % 2 == 0 {
            text += &element(*a, *d, "");
            text +=
                "  <responseHeader class=\"java.lang.String\">x</responseHeader>\n</httpSample>\n";
        } else {
            text += &element(*a, d + 5 * MS, "");
            text += &format!("  {}</httpSample>\n", element(*a, *d, "/"));
        }
    }
    let read = log(text.as_bytes(), &settings("")).unwrap();
    same_durations(&read, MS);
    assert!(read.taken.iter().any(|text| text.contains("with others within")), "{:?}", read.taken);

    let header = "timeStamp,elapsed,label,responseCode,responseMessage,success\n";
    let of = |code: &'static str| {
        let line = |(at, (a, d)): (usize, &(u64, u64))| {
            let well = at % 10 != 0;
            format!(
                "{},{},query,{code},{},{well}\n",
                a / MS,
                (d - a) / MS,
                if well { "OK" } else { "lost" }
            )
        };
        let text: String = all.iter().enumerate().map(line).collect();
        log(format!("{header}{text}").as_bytes(), &settings("")).unwrap()
    };
    for code in ["", "OK", "0", "200 OK (cached)"] {
        let read = of(code);
        assert_eq!((read.times.len(), read.tally.unanswered), (720, 80), "{code}");
    }
    assert_eq!(of("404").times.len(), 800);
    // gRPC's code 0 is OK, which nothing says.
    let grpc = |a: u64, d: u64| {
        format!("{{\"ts\":{},\"code\":0,\"duration_us\":{}}}\n", d / US, (d - a) / US)
    };
    let error = read_of(grpc, &settings("")).unwrap_err();
    assert!(error.contains("no reply came") && error.contains("--fields"), "{error}");
}

/// YCSB writes one operation after the other, and some operations twice.
#[test]
fn sections_of_ycsb_are_one_load() {
    let all = service(5, 800);
    let section = |name: &str, which: &dyn Fn(usize) -> bool| {
        let mut text = format!("{name} latency raw data: op, timestamp(ms), latency(us)\n");
        for (_, (a, d)) in all.iter().enumerate().filter(|(at, _)| which(*at)) {
            text += &format!("{name},{},{}\n", d / MS, (d - a) / US);
        }
        text + &format!("[{name}], Total Operations, 9\n")
    };
    let plain = section("READ", &|at| at % 2 == 0) + &section("UPDATE", &|at| at % 2 == 1);
    let more = plain.clone()
        + &section("READ-MODIFY-WRITE", &|at| at % 3 == 0)
        + &section("CLEANUP", &|at| at == 0)
        + &section("Intended-READ", &|at| at % 2 == 0);
    for text in [&plain, &more, &section("Intended-READ", &|_| true)] {
        let read = log(text.as_bytes(), &settings("")).unwrap();
        same_durations(&read, US);
        assert!(read.times.is_sorted_by_key(|r| r.end));
    }
    let failed = plain + &section("READ-FAILED", &|at| at < 80);
    let read = log(failed.as_bytes(), &settings("")).unwrap();
    assert_eq!((read.times.len(), read.tally.unanswered), (800, 80));
}

/// Windows' clock ticks 64 times in a second, and IIS writes what is left of that in whole milliseconds.
#[test]
fn durations_of_iis_are_multiples_of_the_tick_of_windows() {
    const TICK: u64 = 15_625_000;
    let mut text =
        "#Software: Microsoft Internet Information Services 10.0\n#Fields: date time cs-method cs-uri-stem sc-status sc-bytes time-taken\n".to_owned();
    for i in 0..600u64 {
        let at = civil(1_795_320_900 * SECOND + i * SECOND / 4, "%Y-%m-%d %H:%M:%S");
        let ms = (i * 7919 % 9 * TICK).div_euclid(1_000_000);
        text += &format!("{at} GET /o 200 9 {ms}\n");
    }
    let read = log(text.as_bytes(), &settings("")).unwrap();
    assert_eq!(read.resolution_ns, TICK);
    assert!(read.times.iter().all(|one| one.taken % TICK == 0));
    assert!(read.taken.iter().any(|text| text.contains("Windows")), "{:?}", read.taken);
}

/// `oha --output-format csv` as oha 1.x writes it: moments and durations in seconds of the load, with nine decimals.
#[test]
fn oha_counts_from_the_beginning_of_the_load() {
    let first = service(5, 800).iter().map(|(a, _)| *a).min().unwrap();
    let mut text =
        "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n".to_owned();
    for (a, d) in service(5, 800) {
        let (start, taken) = (decimals(a - first, 9), decimals(d - a, 9));
        text += &format!("{start},0,0,{taken},{taken},5,200\n");
    }
    let read = log(text.as_bytes(), &settings("")).unwrap();
    assert_eq!((read.lines, read.files[0].format.as_str()), (800, "oha, CSV"));
    assert_eq!((read.files[0].unit.as_str(), read.files[0].stamp.as_str()), ("s", "start"));
    same_durations(&read, US);
}

/// `curl -w '%{time_total} %{http_code}\n'` behind a stamp of the shell, as docs/import.md shows it.
#[test]
fn curl_writes_what_its_format_says() {
    let line = |a: u64, d: u64| format!("{} {} 200\n", decimals(d, 6), decimals(d - a, 6));
    let read = read_of(line, &settings("%{end} %{time_total} %{http_code}")).unwrap();
    assert_eq!((read.lines, read.tally.untimed), (800, 0));
    assert_eq!((read.files[0].unit.as_str(), read.files[0].stamp.as_str()), ("s", "end"));
    same_durations(&read, US);
}
