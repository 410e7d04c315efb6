//! What load generators write of each request: k6, JMeter, hey, oha and vegeta as CSV, YCSB's raw form, JMeter's XML.

use super::sample::Sample;
use crate::import::layout::{Column, Layout, Place, Role, Shape, Side};
use crate::import::nested::{self, OpenSamples};
use crate::import::split;
use crate::import::time::Unit;

/// Moments of a log that counts from its own beginning are placed here: 2000-01-01 UTC.
const BASE_NS: u64 = 946_684_800 * 1_000_000_000;

/// The delimiter of a table: the one of the usual that its lines all have equally often.
pub(super) fn delimiter(sample: &Sample) -> Option<u8> {
    let counts = |delimiter: u8| {
        let count = |line: &str| split::columns(line, delimiter).len();
        let first = count(sample.first());
        (first > 1 && sample.mostly(|line| count(line) == first)).then_some((first, delimiter))
    };
    b",;\t|".iter().filter_map(|delimiter| counts(*delimiter)).max().map(|(_, delimiter)| delimiter)
}

/// The layout of a load generator's output.
pub(super) fn recognise(sample: &Sample) -> Option<Layout> {
    let tables = || table(&split::columns(sample.first(), b','), sample);
    let known: [fn(&Sample) -> Option<Layout>; 5] =
        [ycsb, jmeter_xml, vegeta, apache_bench, gatling];
    let mut layout = known.iter().find_map(|find| find(sample)).or_else(tables)?;
    layout.is_tester = true;
    Some(layout)
}

fn table(header: &[String], sample: &Sample) -> Option<Layout> {
    let has = |names: &[&str]| names.iter().all(|name| header.iter().any(|h| h == name));
    let named = Column::named;
    let layout = |name: &str, columns| {
        let header = Some(header.to_vec());
        Layout::new(name, Shape::Csv { delimiter: b',', header }, columns)
    };
    if has(&["metric_name", "timestamp", "metric_value"]) {
        let only = "http_req_duration";
        let columns = vec![
            Column { only, ..named(Role::Select, "metric_name") },
            named(Role::Stamp, "timestamp"),
            named(Role::Response, "metric_value"),
            named(Role::Status, "status"),
            named(Role::Method, "method"),
            named(Role::Path, "url"),
        ];
        let mut layout = layout("k6, CSV", columns)
            .stamped(Side::End, "k6 stamps a request when it ends")
            .timed(Unit::Millis, "k6 writes ms");
        layout.remarks.push(
            "http_req_duration is what was sent, waited for and received, without connecting. Stamps of k6's CSV are \
             whole seconds unless K6_CSV_TIME_FORMAT says unix_micro; its JSON has microseconds."
                .to_owned(),
        );
        return Some(layout);
    }
    if has(&["timeStamp", "elapsed"]) {
        let columns = vec![
            named(Role::Stamp, "timeStamp"),
            named(Role::Response, "elapsed"),
            named(Role::Status, "responseCode"),
            Column { only: "true", ..named(Role::Success, "success") },
            named(Role::Path, if has(&["URL"]) { "URL" } else { "label" }),
            named(Role::Bytes, "bytes"),
        ];
        return Some(jmeter(layout("JMeter, CSV", columns), &sample.lines[1..]));
    }
    if has(&["response-time", "offset"]) {
        let columns = vec![
            named(Role::Stamp, "offset").timed(Unit::Seconds),
            named(Role::Response, "response-time"),
            named(Role::Status, "status-code"),
        ];
        return Some(undated(layout("hey, CSV", columns), "hey"));
    }
    if has(&["request-start", "request-duration"]) {
        let columns = vec![
            named(Role::Stamp, "request-start").timed(Unit::Seconds),
            named(Role::Response, "request-duration"),
            named(Role::Status, "status"),
            named(Role::Bytes, "bytes"),
        ];
        return Some(undated(layout("oha, CSV", columns), "oha"));
    }
    None
}

/// A table whose moments count from the beginning of the load.
fn undated(layout: Layout, program: &str) -> Layout {
    let why = format!("{program} counts from the beginning of the load to the start of a request");
    let mut layout = layout.stamped(Side::Start, &why).timed(Unit::Seconds, "its columns are in s");
    layout.base = BASE_NS;
    layout.remarks.push(format!(
        "{program} writes no date: its times count from 2000-01-01, so they cannot be matched with other sources."
    ));
    layout
}

/// The message of the sample that a transaction controller writes for all of the requests within it.
const TRANSACTION: &str = "Number of samples in transaction : ";

/// What JMeter writes, by the lines that may be samples.
fn jmeter(layout: Layout, lines: &[String]) -> Layout {
    let mut layout = layout
        .stamped(Side::Start, "JMeter's timeStamp is the start of a sample")
        .timed(Unit::Millis, "JMeter's elapsed is in ms");
    let count = lines.iter().filter(|line| line.contains(TRANSACTION)).count();
    if count == lines.len() && count > 0 {
        // As with "Generate parent sample", which leaves the requests out.
        layout.remarks.push(
            "Each sample is a transaction of one request or several: it is taken for a request."
                .to_owned(),
        );
        return layout;
    }
    layout.others = &[TRANSACTION];
    if count > 0 {
        layout.remarks.push(
            "Samples of transaction controllers are left out: the requests in them have lines of their own.".to_owned(),
        );
    }
    layout
}

/// JMeter's results as XML, of which every sample's element is on a line.
fn jmeter_xml(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &String| nested::begins(line);
    if !sample.first().starts_with('<') || !sample.lines.iter().any(is_one) {
        return None;
    }
    let columns = vec![
        Column::named(Role::Stamp, "ts"),
        Column::named(Role::Response, "t"),
        Column::named(Role::Status, "rc"),
        Column { only: "true", ..Column::named(Role::Success, "s") },
        Column::named(Role::Path, "lb"),
        Column::named(Role::Bytes, "by"),
    ];
    let mut open = OpenSamples::default();
    let samples: Vec<String> = sample.lines.iter().filter_map(|line| open.ended(line)).collect();
    let begun = sample.lines.iter().filter(|line| is_one(line)).count();
    let shape = Shape::Samples(OpenSamples::default());
    let mut layout = jmeter(Layout::new("JMeter, XML", shape, columns), &samples);
    // One may be cut off at the end of what is looked at.
    if samples.len() + 1 < begun {
        layout.remarks.push(
            "Samples with others within (of redirects, of what a page embeds) are left out: those within are what was sent.".to_owned(),
        );
    }
    Some(layout)
}

/// vegeta's CSV has no header: nanoseconds since 1970, status, latency in nanoseconds, bytes out and in, error, body, attack,
/// number, method, address.
fn vegeta(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        let columns = split::columns(line, b',');
        let digits = |at: usize, length: std::ops::RangeInclusive<usize>| {
            columns.get(at).is_some_and(|text| {
                length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
            })
        };
        columns.len() >= 7 && digits(0, 19..=19) && digits(1, 1..=3) && digits(2, 1..=15)
    };
    if !sample.mostly(is_one) {
        return None;
    }
    let number = |role, at| Column::new(role, Place::Number(at));
    let columns = vec![
        number(Role::Stamp, 0).timed(Unit::Nanos),
        number(Role::Status, 1),
        number(Role::Response, 2),
        number(Role::Bytes, 4),
        number(Role::Method, 9),
        number(Role::Path, 10),
    ];
    let shape = Shape::Csv { delimiter: b',', header: None };
    Some(
        Layout::new("vegeta, CSV", shape, columns)
            .stamped(Side::Start, "vegeta stamps a request when it is sent")
            .timed(Unit::Nanos, "vegeta writes nanoseconds"),
    )
}

/// What `ab -g` writes for a plot: seconds since 1970, and milliseconds to connect, to the reply and in all, sorted by these.
fn apache_bench(sample: &Sample) -> Option<Layout> {
    let header = split::columns(sample.first(), b'\t');
    if header != ["starttime", "seconds", "ctime", "dtime", "ttime", "wait"] {
        return None;
    }
    let columns =
        vec![Column::named(Role::Stamp, "seconds"), Column::named(Role::Response, "ttime")];
    let shape = Shape::Csv { delimiter: b'\t', header: Some(header) };
    Some(
        Layout::new("ApacheBench, -g", shape, columns)
            .stamped(Side::Start, "ab stamps the start of a request")
            .timed(Unit::Millis, "ab writes ms"),
    )
}

/// Gatling's `simulation.log`: `REQUEST`, groups, name, start, end (ms), `OK` or `KO`, a message, divided by tabs; up to 3.3 a user's number
/// before the groups, and up to 2.3 a scenario before that. Users and groups have lines of their own.
fn gatling(sample: &Sample) -> Option<Layout> {
    let first = sample.lines.iter().find(|line| line.starts_with("REQUEST\t"))?;
    let fields = split::columns(first, b'\t');
    let is_millis = |text: &String| text.len() == 13 && text.bytes().all(|b| b.is_ascii_digit());
    let is_end = |at: &usize| {
        is_millis(&fields[at - 1])
            && is_millis(&fields[*at])
            && fields.get(at + 1).is_some_and(|well| well == "OK" || well == "KO")
    };
    let end = (3..fields.len()).find(is_end)?;
    let columns = vec![
        Column { only: "REQUEST", ..Column::numbered(Role::Select, 0) },
        Column::numbered(Role::Path, end - 2),
        Column::numbered(Role::Start, end - 1).timed(Unit::Millis),
        Column::numbered(Role::End, end).timed(Unit::Millis),
        Column { only: "OK", ..Column::numbered(Role::Status, end + 1) },
    ];
    let shape = Shape::Csv { delimiter: b'\t', header: None };
    Some(Layout::new("Gatling, simulation.log", shape, columns))
}

/// What YCSB measures around operations that it measures too, and when a client ends.
const MODIFY: &str = "READ-MODIFY-WRITE";
const CLEANUP: &str = "CLEANUP";

/// YCSB's raw measurements: `READ,1700000000123,8456`, among lines of other kinds.
fn ycsb(sample: &Sample) -> Option<Layout> {
    let says_so = |line: &String| line.contains("latency raw data: op, timestamp(ms), latency(us)");
    if !sample.lines.iter().any(says_so) {
        return None;
    }
    // Failures have names of their own (`READ-FAILED`). That there is no such record is an answer.
    const ANSWERED: &str = "READ UPDATE INSERT SCAN DELETE READ-NOT_FOUND UPDATE-NOT_FOUND DELETE-NOT_FOUND \
                            Intended-READ Intended-UPDATE Intended-INSERT Intended-SCAN Intended-DELETE";
    let columns = vec![
        Column::numbered(Role::Method, 0),
        Column { only: ANSWERED, ..Column::numbered(Role::Status, 0) },
        Column::numbered(Role::Stamp, 1).timed(Unit::Millis),
        Column::numbered(Role::Response, 2),
    ];
    let shape = Shape::Csv { delimiter: b',', header: None };
    let mut layout = Layout::new("YCSB, raw", shape, columns)
        .stamped(Side::End, "YCSB stamps a measurement when it is made")
        .timed(Unit::Micros, "its header says us");
    // One operation after the other, and summaries (`[READ], Operations, 5`) around each.
    layout.is_in_sections = true;
    let is_intended = sample.lines.iter().any(|line| line.starts_with("Intended-"));
    layout.others = if is_intended {
        &["latency raw data:", "], ", MODIFY, CLEANUP]
    } else {
        &["latency raw data:", "], ", MODIFY, CLEANUP, "Intended-"]
    };
    layout.remarks.push(
        "READ-MODIFY-WRITE is left out, of which the read and the update have lines of their own; and so are CLEANUP, and the Intended times of \
         operations that are there by themselves."
            .to_owned(),
    );
    Some(layout)
}
