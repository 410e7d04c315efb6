//! Lines that services write unless they are told otherwise: gin, uWSGI, squid, Heroku's router.

use super::sample::{Sample, from_time};
use crate::import::layout::{Column, Layout, Place, Role, Shape, Side};
use crate::import::split::{self, Quote, Word};
use crate::import::time::{self, Unit};

/// The layout of such lines.
pub(super) fn recognise(sample: &Sample) -> Option<Layout> {
    let known: [fn(&Sample) -> Option<Layout>; 4] = [gin, uwsgi, squid, heroku];
    known.iter().find_map(|find| find(sample))
}

fn text<'a>(words: &'a [Word<'_>], at: usize) -> &'a str {
    words.get(at).map_or("", |word| &word.text)
}

fn is_integer(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The words of the first line that is one, if at least half of the lines are: the program's other messages stand among them.
fn first_of<'a>(
    sample: &'a Sample,
    words: impl Fn(&'a str) -> Option<Vec<Word<'a>>>,
) -> Option<Vec<Word<'a>>> {
    let found = || sample.lines.iter().filter_map(|line| words(line));
    (found().count() * 2 >= sample.lines.len()).then(|| found().next()).flatten()
}

/// gin's logger: `[GIN] 2024/01/15 - 10:30:45 | 200 | 1.234567ms | 127.0.0.1 | GET "/ping"`. On a terminal it colours the status and the
/// method, which puts a word between the method and the path.
fn gin(sample: &Sample) -> Option<Layout> {
    let first = first_of(sample, |line| {
        let words = split::words(line);
        let is_one = words.first().is_some_and(|w| w.quote == Quote::Bracketed && w.text == "GIN")
            && text(&words, 2) == "-"
            && text(&words, 4).starts_with('|')
            && text(&words, 8) == "|"
            && words.len() > 12;
        is_one.then_some(words)
    })?;
    let path = if text(&first, 12).starts_with('\u{1b}') { 13 } else { 12 };
    let columns = vec![
        Column::numbered(Role::Date, 1),
        Column::numbered(Role::Stamp, 3),
        Column::numbered(Role::Status, 5),
        Column::numbered(Role::Response, 7),
        Column::numbered(Role::Method, 11),
        Column::numbered(Role::Path, path),
    ];
    let mut layout = Layout::new("gin", Shape::Words { from_time: false }, columns)
        .stamped(Side::End, "gin stamps a request when it ends")
        .timed(Unit::Seconds, "each duration has its unit");
    // What gin says of itself, and errors that a handler left.
    layout.others = &["[GIN-debug]", "[GIN-warning]", "Error #"];
    Some(layout)
}

/// uWSGI: `[pid: 1|app: 0|req: 1/1] 127.0.0.1 () {32 vars in 401 bytes} [Mon Jan 15 10:30:45 2024] GET /x => generated 12 bytes in 15
/// msecs (HTTP/1.1 200) …`; `micros` with `log-micros`; `via sendfile()` and the like before the protocol, where a file was sent so.
fn uwsgi(sample: &Sample) -> Option<Layout> {
    let first = first_of(sample, |line| {
        let words = from_time(line)?;
        let is_one = text(&words, 3) == "=>"
            && text(&words, 4) == "generated"
            && text(&words, 7) == "in"
            && Unit::parse(text(&words, 9)).is_some();
        is_one.then_some(words)
    })?;
    let unit = Unit::parse(text(&first, 9))?;
    let columns = vec![
        Column::numbered(Role::Stamp, 0),
        Column::numbered(Role::Method, 1),
        Column::numbered(Role::Path, 2),
        Column::numbered(Role::Bytes, 5),
        Column::numbered(Role::Response, 8),
        Column::numbered(Role::Status, 11).divided(')', 0),
    ];
    let layout = Layout::new("uWSGI", Shape::Words { from_time: true }, columns)
        .stamped(Side::Start, "uWSGI writes the start of a request")
        .timed(unit, "its unit stands behind it");
    // A division of integers.
    let mut layout = layout.rounded_down();
    layout.asides = &["via sendfile() ", "via offload() ", "via route() "];
    Some(layout)
}

/// squid's native format: `1690000012.345    120 192.0.2.20 TCP_MISS/200 512 GET http://example.com/ - HIER_DIRECT/192.0.2.34 text/html`.
fn squid(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        let words = split::words(line);
        let (stamp, code) = (text(&words, 0), text(&words, 3));
        stamp.contains('.')
            && time::unix(stamp).is_some()
            && is_integer(text(&words, 1))
            && ["TCP_", "UDP_", "NONE"].iter().any(|begin| code.starts_with(begin))
            && code.rsplit('/').next().is_some_and(is_integer)
            && is_integer(text(&words, 4))
            && words.len() >= 9
    };
    if !sample.mostly(is_one) {
        return None;
    }
    let columns = vec![
        Column::numbered(Role::Stamp, 0),
        Column::numbered(Role::Response, 1),
        Column::numbered(Role::Cache, 3).divided('/', 0),
        Column::numbered(Role::Status, 3).divided('/', 1),
        Column::numbered(Role::Bytes, 4),
        Column::numbered(Role::Method, 5),
        Column::numbered(Role::Path, 6),
        Column::numbered(Role::Server, 8).divided('/', 1),
    ];
    let mut layout = Layout::new("squid, native", Shape::Words { from_time: false }, columns)
        .stamped(Side::End, "squid stamps a request when it ends")
        .timed(Unit::Millis, "squid's elapsed time is in ms");
    layout.others = &[" CONNECT ", " UDP_"];
    layout.remarks.push(
        "Tunnels (CONNECT) and queries of other caches (UDP) are left out: their times are not those of requests.".to_owned(),
    );
    Some(layout)
}

/// The program that Heroku's router is in its log.
pub(in crate::import) const HEROKU: &str = "heroku[router]:";

/// Heroku's router: `2024-01-15T10:30:45.123456+00:00 heroku[router]: at=info method=GET path="/" … connect=1ms service=18ms status=200
/// bytes=13`.
fn heroku(sample: &Sample) -> Option<Layout> {
    let is_one = |line: &str| {
        let mut words = line.split_whitespace();
        words.next().is_some_and(|word| time::moment(word, None).is_some())
            && words.next() == Some(HEROKU)
    };
    if !sample.lines.iter().any(|line| is_one(line)) {
        return None;
    }
    let columns = vec![
        Column { only: HEROKU, ..Column::numbered(Role::Select, 1) },
        Column::numbered(Role::Stamp, 0),
        Column::named(Role::Response, "connect"),
        Column::named(Role::Response, "service"),
        Column::named(Role::Status, "status"),
        Column::named(Role::Method, "method"),
        Column::named(Role::Path, "path"),
        Column::named(Role::Bytes, "bytes"),
        Column::new(Role::Server, Place::Name("dyno".to_owned())),
    ];
    Some(
        Layout::new("Heroku's router", Shape::Pairs, columns)
            .stamped(Side::End, "the router writes how long a request took")
            .timed(Unit::Millis, "connect and service, each with its unit, are summed"),
    )
}
