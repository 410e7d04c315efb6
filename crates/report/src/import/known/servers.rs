//! Lines of words that name their program by their shape: the common and combined log formats with a duration behind them (nginx,
//! Apache, Varnish, Traefik, ingress-nginx), Envoy, HAProxy, AWS's load balancers and S3, and the W3C extended format.

use super::sample::{Sample, from_time};
use super::tail;
use crate::import::layout::{Column, Layout, Place, Role, Shape, Side};
use crate::import::split::{self, Quote, Word};
use crate::import::time::{self, Unit};

/// The layout of lines of words.
pub(super) fn recognise(sample: &Sample) -> Option<Layout> {
    if sample.lines.iter().any(|line| line.starts_with("#Fields:")) {
        return w3c(sample);
    }
    let known: [fn(&Sample) -> Option<Layout>; 8] =
        [balancer, s3, haproxy, haproxy_tcp, envoy, cloudfront_real_time, tail::common, tail::bare];
    known.iter().find_map(|find| find(sample))
}

fn numbered(role: Role, at: usize) -> Column {
    Column::new(role, Place::Number(at))
}

fn text<'a>(words: &'a [Word<'_>], at: usize) -> &'a str {
    words.get(at).map_or("", |word| &word.text)
}

fn is_status(word: Option<&Word<'_>>) -> bool {
    word.is_some_and(|word| {
        word.text == "-"
            || word.text.parse::<u16>().is_ok_and(|status| (100..1000).contains(&status))
    })
}

fn is_quoted(word: Option<&Word<'_>>) -> bool {
    word.is_some_and(|word| word.quote == Quote::Quoted)
}

/// AWS's application load balancer, and the classic one, whose lines have no type at the beginning.
fn balancer(sample: &Sample) -> Option<Layout> {
    let is_seconds = |words: &[Word<'_>], from: usize| {
        (from..from + 3).all(|at| text(words, at).parse::<f64>().is_ok())
    };
    let is_application = |line: &str| {
        let words = split::words(line);
        ["http", "https", "h2", "grpcs", "ws", "wss"].contains(&text(&words, 0))
            && time::moment(text(&words, 1), None).is_some()
            && is_seconds(&words, 5)
            && is_quoted(words.get(12))
    };
    let is_classic = |line: &str| {
        let words = split::words(line);
        words.first().is_some_and(|word| word.quote == Quote::Plain)
            && text(&words, 0).contains('T')
            && time::moment(text(&words, 0), None).is_some()
            && text(&words, 2).contains([':', '.'])
            && is_seconds(&words, 4)
            && is_quoted(words.get(11))
    };
    let sums = |first: usize| (first..first + 3).map(|at| numbered(Role::Response, at));
    let shape = Shape::Words { from_time: false };
    if sample.mostly(is_application) {
        let mut columns: Vec<Column> = sums(5).collect();
        columns.extend([
            numbered(Role::Status, 8),
            numbered(Role::Bytes, 11),
            numbered(Role::Request, 12),
            numbered(Role::Server, 4),
        ]);
        // Both ends have microseconds where the durations have milliseconds.
        let agrees = |line: &str| {
            let words = split::words(line);
            let ends = [21, 1].map(|at| time::moment(text(&words, at), None));
            let [Some((start, _)), Some((end, _))] = ends else { return false };
            let sum: f64 = (5..8).filter_map(|at| text(&words, at).parse::<f64>().ok()).sum();
            let taken = (end.ns as f64 - start.ns as f64) * 1e-9;
            text(&words, 5) == "-1" || (taken - sum).abs() < 0.003
        };
        let layout = if sample.mostly(agrees) {
            columns.extend([numbered(Role::Start, 21), numbered(Role::End, 1)]);
            Layout::new("AWS application load balancer", shape, columns)
        } else {
            columns.push(numbered(Role::Stamp, 1));
            Layout::new("AWS application load balancer", shape, columns)
                .stamped(Side::End, "its time is that of the response")
        };
        return Some(layout.timed(Unit::Seconds, "its processing times are in s"));
    }
    if sample.mostly(is_classic) {
        let mut columns: Vec<Column> = sums(4).collect();
        columns.extend([
            numbered(Role::Stamp, 0),
            numbered(Role::Status, 7),
            numbered(Role::Bytes, 10),
            numbered(Role::Request, 11),
            numbered(Role::Server, 3),
        ]);
        return Some(
            Layout::new("AWS classic load balancer", shape, columns)
                .stamped(Side::Start, "its time is that of the request")
                .timed(Unit::Seconds, "its processing times are in s"),
        );
    }
    None
}

/// S3's server access log: bucket's owner, bucket, time, address, requester, id, operation, key, request, status, error, bytes,
/// size, total time, turn-around time.
fn s3(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        from_time(line).is_some_and(|words| {
            text(&words, 4).matches('.').count() >= 1
                && text(&words, 4).chars().all(|c| c.is_ascii_uppercase() || "._".contains(c))
                && is_status(words.get(7))
                && words.get(11).is_some_and(Word::is_number)
                && words.len() >= 13
        })
    };
    sample.mostly(is_one).then(|| {
        let columns = vec![
            numbered(Role::Stamp, 0),
            numbered(Role::Path, 5),
            numbered(Role::Request, 6),
            numbered(Role::Status, 7),
            numbered(Role::Bytes, 9),
            numbered(Role::Response, 11),
        ];
        Layout::new("S3 server access log", Shape::Words { from_time: true }, columns)
            .stamped(Side::Start, "its time is that at which the request was received")
            .timed(Unit::Millis, "its total time is in ms")
    })
}

/// Whether a word is so many of HAProxy's timers: `0/0/5007`.
fn is_timers(timers: &str, count: usize) -> bool {
    let is_one = |part: &str| part.trim_start_matches('+').parse::<i64>().is_ok();
    timers.split('/').count() == count && timers.split('/').all(is_one)
}

/// HAProxy's TCP log: `[accept date] front back/server Tw/Tc/Tt bytes state …`.
fn haproxy_tcp(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        from_time(line).is_some_and(|words| {
            text(&words, 2).contains('/')
                && is_timers(text(&words, 3), 3)
                && words
                    .get(4)
                    .is_some_and(|w| w.text.trim_start_matches('+').parse::<u64>().is_ok())
                && text(&words, 5).len() == 2
                && is_timers(text(&words, 6), 5)
        })
    };
    let count = sample.lines.iter().filter(|line| is_one(line)).count();
    if count == 0 || count * 2 < sample.lines.len() {
        return None;
    }
    let columns = vec![
        numbered(Role::Stamp, 0),
        numbered(Role::Response, 3).divided('/', 2),
        numbered(Role::Bytes, 4),
        Column { only: "--", ..numbered(Role::Status, 5) },
        numbered(Role::Server, 2).divided('/', 1),
    ];
    let mut layout = Layout::new("HAProxy, TCP log", Shape::Words { from_time: true }, columns)
        .stamped(Side::Start, "HAProxy's date is that at which the connection came")
        .timed(Unit::Millis, "HAProxy's timers are in ms; the last is the total");
    layout.remarks.extend(logged_early(sample));
    layout.remarks.push(
        "A line is a connection, from accept to close: its time is that of a request only where each connection carries one. \
         Connections that did not end with `--` count as refused."
            .to_owned(),
    );
    Some(layout)
}

/// HAProxy's HTTP log: `[accept date] front back/server TR/Tw/Tc/Tr/Ta status bytes …`.
fn haproxy(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        from_time(line).is_some_and(|words| {
            text(&words, 2).contains('/') && is_timers(text(&words, 3), 5) && words.len() > 5
        })
    };
    // The daemon logs its starts and stops in the same file.
    let count = sample.lines.iter().filter(|line| is_one(line)).count();
    if count == 0 || count * 2 < sample.lines.len() {
        return None;
    }
    // Where the request stands depends on the headers that are captured; in each file it is the same word.
    let words = sample.lines.iter().find(|line| is_one(line)).and_then(|line| from_time(line))?;
    let request = words.iter().rposition(|word| word.quote == Quote::Quoted);
    let mut columns = vec![
        numbered(Role::Stamp, 0),
        numbered(Role::Response, 3).divided('/', 4),
        numbered(Role::Status, 4),
        numbered(Role::Bytes, 5),
        numbered(Role::Server, 2).divided('/', 1),
    ];
    columns.extend(request.map(|at| numbered(Role::Request, at)));
    let mut layout = Layout::new("HAProxy, HTTP log", Shape::Words { from_time: true }, columns)
        .stamped(Side::Start, "HAProxy's date is that at which the request came")
        .timed(Unit::Millis, "HAProxy's timers are in ms; the last is the total");
    layout.remarks.extend(logged_early(sample));
    Some(layout)
}

/// What is to be known of lines that HAProxy wrote before the reply ended, whose totals have a `+`.
fn logged_early(sample: &Sample) -> Option<String> {
    let is_early = |line: &String| {
        from_time(line).is_some_and(|words| {
            text(&words, 3).rsplit('/').next().is_some_and(|total| total.starts_with('+'))
        })
    };
    sample.lines.iter().any(is_early).then(|| {
        "Totals with a `+` (`option logasap`) were logged when the reply began: they lack the time that it took to send, so \
         that long replies count as short ones. Import a log without `option logasap` to predict the whole."
            .to_owned()
    })
}

/// CloudFront's real-time log: fields that its owner chose, divided by tabs and without names, in CloudFront's order: `timestamp`,
/// `c-ip`, `time-to-first-byte`, `sc-status`, `sc-bytes`, `cs-method`, `cs-protocol`, …, `x-edge-location`, …, `time-taken`.
fn cloudfront_real_time(sample: &Sample) -> Option<Layout> {
    let lines: Vec<Vec<String>> =
        sample.lines.iter().map(|line| split::columns(line, b'\t')).collect();
    let count = lines.first()?.len();
    if count < 5 || !sample.mostly(|line| split::columns(line, b'\t').len() == count) {
        return None;
    }
    let find = |from: usize, is_so: &dyn Fn(&str) -> bool| {
        (from..count).find(|at| {
            let so = lines.iter().filter(|line| line.get(*at).is_some_and(|text| is_so(text)));
            so.count() * 10 >= lines.len() * 9
        })
    };
    let is_decimal = |text: &str| {
        text.split_once('.').is_some_and(|(whole, part)| {
            part.len() == 3 && [whole, part].iter().all(|t| t.bytes().all(|b| b.is_ascii_digit()))
        })
    };
    let location = find(1, &is_edge_location)?;
    find(1, &|text| matches!(text, "http" | "https" | "ws" | "wss"))?;
    if !lines.iter().all(|line| line.first().is_some_and(|t| is_decimal(t) && t.len() == 14)) {
        return None;
    }
    let column = |role, at| numbered(role, at);
    let mut columns =
        vec![column(Role::Stamp, 0), column(Role::Response, find(location, &is_decimal)?)];
    let status = find(1, &|text| text.parse::<u16>().is_ok_and(|s| s < 1000) && text.len() == 3);
    columns.extend(status.map(|at| column(Role::Status, at)));
    let method = find(1, &|text| text.len() > 2 && text.bytes().all(|b| b.is_ascii_uppercase()));
    columns.extend(method.filter(|at| *at < location).map(|at| column(Role::Method, at)));
    columns.extend(find(1, &|text| text.starts_with('/')).map(|at| column(Role::Path, at)));
    let shape = Shape::Csv { delimiter: b'\t', header: None };
    Some(
        Layout::new("CloudFront, real-time log", shape, columns)
            .stamped(Side::End, "CloudFront's timestamp is that at which it finished responding")
            .timed(Unit::Seconds, "CloudFront's time-taken is in s"),
    )
}

/// Whether a text names an edge location: `LHR62-C2`, `HIO50-P1`, `FRA2`.
fn is_edge_location(text: &str) -> bool {
    let (airport, rest) = text.split_at_checked(3).unwrap_or(("", text));
    airport.len() == 3
        && airport.bytes().all(|b| b.is_ascii_uppercase())
        && rest.starts_with(|c: char| c.is_ascii_digit())
        && rest.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'-')
}

/// Envoy's default format, and Istio's, which has more words between the flags and the bytes.
fn envoy(sample: &Sample) -> Option<Layout> {
    let is_head = |words: &[Word<'_>]| {
        text(words, 0).contains('T')
            && is_quoted(words.get(1))
            && is_status_or_none(words.get(2))
            && words.get(3).is_some_and(|word| word.text == "-" || !word.is_number())
    };
    // Bytes received, bytes sent, duration, the servers' time.
    let numbers = |words: &[Word<'_>]| {
        let is =
            |at: usize| words.get(at).is_some_and(|w| w.quote == Quote::Plain && w.is_number());
        (4..9).find(|at| {
            (*at..at + 4).all(is) && text(words, at + 1) != "-" && text(words, at + 2) != "-"
        })
    };
    let place = |line: &str| from_time(line).filter(|w| is_head(w)).and_then(|w| numbers(&w));
    let first = sample.lines.iter().find_map(|line| place(line))?;
    if !sample.mostly(|line| place(line) == Some(first)) {
        return None;
    }
    let columns = vec![
        numbered(Role::Stamp, 0),
        numbered(Role::Request, 1),
        numbered(Role::Status, 2),
        numbered(Role::Bytes, first + 1),
        numbered(Role::Response, first + 2),
        numbered(Role::Server, first + 8),
    ];
    Some(
        Layout::new("Envoy, text", Shape::Words { from_time: true }, columns)
            .stamped(Side::Start, "Envoy's START_TIME")
            .timed(Unit::Millis, "Envoy's DURATION is in ms")
            // A `duration_cast` to whole milliseconds.
            .rounded_down(),
    )
}

/// Envoy writes 0 where no reply came.
fn is_status_or_none(word: Option<&Word<'_>>) -> bool {
    is_status(word) || word.is_some_and(|word| word.text == "0")
}

/// The W3C extended format without columns.
pub(super) fn extended(sample: &Sample) -> Layout {
    let directive = |name: &str| {
        let line = sample.lines.iter().find_map(|line| line.strip_prefix(name));
        line.unwrap_or_default().trim().to_owned()
    };
    let fields = directive("#Fields:").split_whitespace().map(str::to_owned).collect();
    let date = directive("#Date:").split(' ').next().unwrap_or_default().to_owned();
    Layout::new("W3C extended", Shape::Extended { fields, date }, Vec::new())
}

/// The W3C extended format: IIS's, whose durations are in ms, and CloudFront's, in seconds.
fn w3c(sample: &Sample) -> Option<Layout> {
    let bare = extended(sample);
    let Shape::Extended { fields, .. } = &bare.shape else { return None };
    let has = |name: &str| fields.iter().any(|field| field == name);
    if !has("time-taken") || !has("time") {
        return None;
    }
    let is_cloudfront = has("x-edge-location");
    let pick = |role, names: &[&str]| {
        names.iter().find(|name| has(name)).map(|name| Column::named(role, name))
    };
    let mut columns = vec![
        Column::named(Role::Date, "date"),
        Column::named(Role::Stamp, "time"),
        Column::named(Role::Response, "time-taken"),
    ];
    columns.extend(pick(Role::Status, &["sc-status"]));
    columns.extend(pick(Role::Method, &["cs-method"]));
    columns.extend(pick(Role::Path, &["cs-uri-stem", "cs-uri"]));
    columns.extend(pick(Role::Bytes, &["sc-bytes"]));
    let name = if is_cloudfront { "CloudFront, W3C extended" } else { "W3C extended (IIS)" };
    let layout = Layout::new(name, bare.shape, columns)
        .stamped(Side::End, "its time is that at which the line was written");
    let is_iis = sample.lines.iter().any(|line| line.contains("Microsoft Internet Information"));
    Some(if is_cloudfront {
        layout.timed(Unit::Seconds, "CloudFront's time-taken is in s")
    } else if is_iis {
        layout.timed(Unit::Millis, "IIS's time-taken is in ms")
    } else {
        layout
    })
}
