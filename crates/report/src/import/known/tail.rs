//! The common and combined log formats, whose duration stands behind them in a way that each server's owner chose, and lines of
//! words with a time, a request and a duration in any order.

use std::collections::BTreeSet;

use super::sample::{Sample, from_time};
use crate::import::excerpt::excerpt;
use crate::import::layout::{Column, Layout, Place, Role, Shape, Side};
use crate::import::split::{self, Quote, Word};
use crate::import::time::{self, Unit};

/// Units of a number with a point where nginx writes seconds: other servers write milliseconds.
const DECIMALS: [Unit; 2] = [Unit::Seconds, Unit::Millis];

/// A line's words, by their places.
type Words<'a> = Vec<Word<'a>>;

/// The places of a request's duration, and of the time within it that a server behind took.
struct Durations {
    whole: usize,
    part: Option<usize>,
}

/// A place of which the content is known by all of the lines.
struct Places<'a> {
    lines: Vec<Words<'a>>,
    /// Words of a line, in most.
    count: usize,
}

impl<'a> Places<'a> {
    /// The words of the lines that have as many as most.
    fn new(lines: Vec<Words<'a>>) -> Places<'a> {
        let mut counts = std::collections::BTreeMap::new();
        lines.iter().for_each(|words| *counts.entry(words.len()).or_insert(0u32) += 1);
        let count = counts.iter().max_by_key(|(_, n)| **n).map_or(0, |(count, _)| *count);
        let lines = lines.into_iter().filter(|words| words.len() == count).collect();
        Places { lines, count }
    }

    /// Whether the word of a place is so in at least 95 of a hundred lines.
    fn all(&self, at: usize, is_so: impl Fn(&Word<'_>) -> bool) -> bool {
        let count = self.lines.iter().filter(|words| words.get(at).is_some_and(&is_so)).count();
        count > 0 && count * 100 >= self.lines.len() * 95
    }

    /// Whether the word of a place is so in one of the lines.
    fn any(&self, at: usize, is_so: impl Fn(&Word<'_>) -> bool) -> bool {
        self.lines.iter().any(|words| words.get(at).is_some_and(&is_so))
    }

    /// Whether a place has durations: numbers, lists of them, `-`; in one line at least a number.
    fn is_duration(&self, at: usize) -> bool {
        let is_one = |word: &Word<'_>| time::durations(&word.text, Unit::Nanos).is_ok();
        let has_number =
            |word: &Word<'_>| matches!(time::durations(&word.text, Unit::Nanos), Ok(Some(_)));
        self.all(at, is_one) && self.any(at, has_number)
    }

    /// Whether it has numbers with a point, which are seconds where the unit is not said. Programs write milliseconds,
    /// microseconds or nanoseconds of a second, or as many decimals as a number has; versions, ratios and degrees have one, two or four.
    fn has_point(&self, at: usize) -> bool {
        let decimals = |text: &str| {
            let decimals = text.trim().split_once('.')?.1;
            let has_unit = decimals.bytes().any(|byte| !byte.is_ascii_digit());
            Some(if has_unit { 0 } else { decimals.len() })
        };
        let words = self.lines.iter().filter_map(|words| words.get(at));
        let all: BTreeSet<usize> =
            words.flat_map(|word| word.text.split([',', ':']).filter_map(decimals)).collect();
        let is_one_of = |few: &[usize]| all.iter().all(|count| few.contains(count));
        !all.is_empty() && !is_one_of(&[1, 2]) && !is_one_of(&[4]) && !is_one_of(&[5])
    }

    /// The place of `name=…` words whose name is one of these.
    fn named(&self, from: usize, names: &[&str]) -> Option<usize> {
        (from..self.count).find(|at| {
            self.all(*at, |word| {
                word.text.split_once('=').is_some_and(|(name, _)| names.contains(&name))
            })
        })
    }

    /// The unit that a word of its own behind a number names (`12.3 ms`).
    fn unit_behind(&self, at: usize) -> Option<Unit> {
        let unit = |words: &Words<'_>| {
            let word = words.get(at + 1).filter(|word| word.quote == Quote::Plain)?;
            Unit::parse(&word.text)
        };
        let first = self.lines.iter().find_map(unit)?;
        let is_it = |word: &Word<'_>| Unit::parse(&word.text) == Some(first);
        self.all(at + 1, is_it).then_some(first)
    }

    /// The place of the duration among those of numbers with a point, and that of a part of it.
    fn response(&self, points: &[usize]) -> Option<Durations> {
        match *points {
            [whole] => Some(Durations { whole, part: None }),
            // nginx writes durations with three decimals, and ratios with two.
            [one, two] => match [one, two].map(|at| has_three_decimals(self, at)) {
                [true, false] => Some(Durations { whole: one, part: None }),
                [false, true] => Some(Durations { whole: two, part: None }),
                _ => self.whole_and_part(one, two),
            },
            _ => None,
        }
    }

    /// Of two places with durations, that of the whole and that of a part of it, whose sums are never more.
    fn whole_and_part(&self, one: usize, two: usize) -> Option<Durations> {
        let value = |words: &Words<'_>, at: usize| {
            words.get(at).and_then(|word| time::durations(&word.text, Unit::Seconds).ok().flatten())
        };
        let pairs: Vec<[u64; 2]> = self
            .lines
            .iter()
            .filter_map(|words| Some([value(words, one)?.ns, value(words, two)?.ns]))
            .collect();
        let sum = |at: usize| pairs.iter().map(|pair| u128::from(pair[at])).sum::<u128>();
        // The sums decide where each line would allow both: a proxy often adds less than a millisecond.
        let (whole, part) = if sum(0) >= sum(1) { (0, 1) } else { (1, 0) };
        // Both are rounded apart: a millisecond more is not a contradiction.
        let right = pairs.iter().filter(|pair| pair[whole] + 1_000_000 >= pair[part]).count();
        let places = [one, two];
        (!pairs.is_empty() && right * 100 >= pairs.len() * 98)
            .then(|| Durations { whole: places[whole], part: Some(places[part]) })
    }
}

fn numbered(role: Role, at: usize) -> Column {
    Column::new(role, Place::Number(at))
}

fn is_request(word: Option<&Word<'_>>) -> bool {
    // Requests that are none (`-`, bytes of TLS) stand among them.
    word.is_some_and(|word| word.quote == Quote::Quoted)
}

fn is_status(word: Option<&Word<'_>>) -> bool {
    word.is_some_and(|word| {
        word.text == "-"
            || word.text.parse::<u16>().is_ok_and(|status| (100..1000).contains(&status))
    })
}

fn is_common(words: &[Word<'_>]) -> bool {
    is_request(words.get(1)) && is_status(words.get(2)) && words.get(3).is_some_and(Word::is_number)
}

/// `[time] "request" status bytes`, `"referrer" "agent"` in the combined format, and then a duration.
pub(super) fn common(sample: &Sample) -> Option<Layout> {
    if !sample.mostly(|line| from_time(line).is_some_and(|words| is_common(&words))) {
        return None;
    }
    let lines = sample.lines.iter().filter_map(|line| from_time(line));
    let places = Places::new(lines.filter(|words| is_common(words)).collect());
    let mut layout = with_tail(&places)?;
    // A server whose format was changed goes on in the same file, and the same places then hold something else.
    layout.words = Some(places.count);
    Some(layout)
}

/// The layout by what stands behind the status and the bytes.
fn with_tail(places: &Places<'_>) -> Option<Layout> {
    let is_quoted = |at| places.all(at, |word| word.quote == Quote::Quoted);
    let (tail, kind) =
        if is_quoted(4) && is_quoted(5) { (6, "combined log") } else { (4, "common log") };
    let mut columns = vec![
        numbered(Role::Stamp, 0),
        numbered(Role::Request, 1),
        numbered(Role::Status, 2),
        numbered(Role::Bytes, 3),
    ];
    let shape = Shape::Words { from_time: true };
    let stamped_by_nginx = "nginx logs a request when it ends";
    // Traefik: requests so far, router, server, milliseconds.
    let has_suffix = |at| places.all(at, |word| word.text.ends_with("ms") && word.text != "ms");
    if has_suffix(tail + 3) && is_quoted(tail + 1) && is_quoted(tail + 2) {
        columns.extend([numbered(Role::Response, tail + 3), numbered(Role::Server, tail + 2)]);
        return Some(
            Layout::new("Traefik, common log", shape, columns)
                .stamped(Side::Start, "Traefik stamps the start")
                .timed(Unit::Millis, "`ms` stands behind it"),
        );
    }
    // ingress-nginx: length, time, [name], [other name], addresses, lengths, times, statuses, id.
    let is_bracketed = |at| places.all(at, |word| word.quote == Quote::Bracketed);
    if places.is_duration(tail + 1) && is_bracketed(tail + 2) {
        let server = if is_bracketed(tail + 3) { tail + 4 } else { tail + 3 };
        columns.push(numbered(Role::Response, tail + 1));
        columns.push(numbered(Role::Server, server));
        columns.push(numbered(Role::Upstream, server + 2));
        return Some(
            Layout::new("Kubernetes ingress (nginx)", shape, columns)
                .stamped(Side::End, stamped_by_nginx)
                .timed(Unit::Seconds, "nginx writes seconds"),
        );
    }
    // nginx with names: `rt=0.012 urt="0.010"`.
    let whole = ["rt", "request_time", "reqtime", "req_time", "duration"];
    if let Some(at) = places.named(tail, &whole) {
        columns.push(numbered(Role::Response, at).divided('=', 1));
        let part = ["urt", "ut", "upstream_response_time", "upstream_time"];
        let part = places.named(tail, &part);
        columns.extend(part.map(|at| numbered(Role::Upstream, at).divided('=', 1)));
        return Some(
            Layout::new(&format!("nginx, {kind}"), shape, columns)
                .stamped(Side::End, stamped_by_nginx)
                .timed(Unit::Seconds, "nginx writes seconds"),
        );
    }
    unnamed(places, tail, kind, columns)
}

/// The combined format with one or two numbers behind it.
fn unnamed(
    places: &Places<'_>,
    tail: usize,
    kind: &str,
    mut columns: Vec<Column>,
) -> Option<Layout> {
    let shape = Shape::Words { from_time: true };
    let numbers: Vec<usize> = (tail..places.count).filter(|at| places.is_duration(*at)).collect();
    let with_unit = |at: &usize| places.unit_behind(*at).map(|unit| (*at, unit));
    if let [(at, unit)] = numbers.iter().filter_map(with_unit).collect::<Vec<_>>()[..] {
        columns.push(numbered(Role::Response, at).timed(unit));
        let name = format!("{kind} with a duration and its unit behind it");
        return Some(Layout::new(&name, shape, columns));
    }
    let points: Vec<usize> = numbers.iter().copied().filter(|at| places.has_point(*at)).collect();
    let Durations { whole: at, part } = match (&points[..], &numbers[..]) {
        ([], [at]) if !places.any(*at, |word| word.text.contains('.')) => {
            columns.push(numbered(Role::Response, *at));
            let name = format!(
                "{kind} with an integer behind it (Apache's and Varnish's %D, %T or %{{ms}}T)"
            );
            let mut layout = Layout::new(&name, shape, columns);
            layout.likely = Some(Side::Start);
            layout.side_why = "as Apache and Varnish stamp a request".to_owned();
            layout.units = vec![Unit::Micros, Unit::Millis, Unit::Seconds];
            return Some(layout);
        }
        (points, _) => places.response(points)?,
    };
    columns.push(numbered(Role::Response, at));
    columns.extend(part.map(|at| numbered(Role::Upstream, at)));
    let mut layout = Layout::new(&format!("nginx, {kind} with its request time"), shape, columns)
        .stamped(Side::End, "nginx logs a request when it ends")
        .timed(Unit::Seconds, "nginx's decimals are seconds");
    layout.units = DECIMALS.to_vec();
    Some(layout)
}

/// Words in any order, of which one is a time of this century, one a request in quotes and one a number with a point.
pub(super) fn bare(sample: &Sample) -> Option<Layout> {
    let lines: Vec<Words<'_>> = sample.lines.iter().map(|line| split::words(line)).collect();
    let total = lines.len();
    let places = Places::new(lines);
    if places.count < 2 || places.lines.len() * 10 < total * 9 {
        return None;
    }
    let is_stamp = |word: &Word<'_>| {
        time::moment(&word.text, None).is_some_and(|(reading, _)| reading.is_of_century())
    };
    let all: Vec<usize> = (0..places.count).collect();
    let find = |is: &dyn Fn(usize) -> bool| -> Vec<usize> {
        all.iter().copied().filter(|at| is(*at)).collect()
    };
    let [stamp] = find(&|at| places.all(at, is_stamp))[..] else { return None };
    let is_line = |word: &Word<'_>| word.text.contains(" HTTP/") || word.text == "-";
    let request = find(&|at| places.all(at, is_line) && places.any(at, |w| w.text.len() > 1));
    let status = find(&|at| places.all(at, |word| is_status(Some(word))) && !request.contains(&at));
    let other = |at: usize| at != stamp && !status.contains(&at) && !request.contains(&at);
    let points = find(&|at| other(at) && places.is_duration(at) && places.has_point(at));
    let Durations { whole: at, part } = places.response(&points)?;
    let bytes =
        find(&|at| other(at) && places.all(at, |word| word.is_number()) && !places.has_point(at));
    let unit = places.unit_behind(at);
    let response = Column { unit, ..numbered(Role::Response, at) };
    let mut columns = vec![numbered(Role::Stamp, stamp), response];
    columns.extend(part.map(|at| numbered(Role::Upstream, at)));
    columns.extend(request.first().map(|at| numbered(Role::Request, *at)));
    columns.extend(status.first().map(|at| numbered(Role::Status, *at)));
    if let [bytes] = bytes[..] {
        columns.push(numbered(Role::Bytes, bytes));
    }
    let mut layout =
        Layout::new("words with a time and a duration", Shape::Words { from_time: false }, columns);
    layout.units = vec![Unit::Seconds, Unit::Millis, Unit::Micros];
    layout.words = Some(places.count);
    let is_nginx = has_three_decimals(&places, at) && has_three_decimals(&places, stamp);
    if is_nginx && unit.is_none() {
        layout.name = "nginx, $msec and $request_time".to_owned();
        layout.units = DECIMALS.to_vec();
        layout = layout
            .stamped(Side::End, "nginx logs a request when it ends")
            .timed(Unit::Seconds, "nginx's three decimals are of seconds");
    }
    Some(layout)
}

/// Whether all numbers of a place have three decimals, as nginx writes them.
fn has_three_decimals(places: &Places<'_>, at: usize) -> bool {
    let is_one = |word: &Word<'_>| {
        word.text == "-"
            || word.text.split([',', ':']).all(|one| {
                one.trim().split_once('.').is_some_and(|(_, decimals)| decimals.len() == 3)
            })
    };
    places.all(at, is_one)
}

/// Names that an error lists.
const NAMES_SHOWN: usize = 30;

/// What to do with a file whose values have names that say too little.
pub(super) fn advice_on_names(kind: &str, names: &[String]) -> String {
    let mut shown: Vec<String> = names.iter().take(NAMES_SHOWN).map(|name| excerpt(name)).collect();
    if names.len() > NAMES_SHOWN {
        shown.push("…".to_owned());
    }
    format!(
        "it is {kind}, and none of its names ({}) is known to be {}; say which are: --fields \
         end=NAME,response=NAME:ms,status=NAME,path=NAME (or start=NAME; units s, ms, us, ns)",
        shown.join(", "),
        crate::import::words::unknown_of(names.iter().map(String::as_str))
    )
}

/// What to do with a file that no format fits.
pub(super) fn advice(sample: &Sample) -> String {
    let first = format!("`{}`", excerpt(sample.first()));
    if sample.first().starts_with("[{") || sample.first().trim() == "[" {
        return "it is a JSON array; write an object on each line: `jq -c '.[]' FILE | concertina import -`".to_owned();
    }
    if sample.mostly(|line| from_time(line).is_some_and(|words| is_common(&words))) {
        return format!(
            "its lines ({first}) are of the common or combined log format, without one number that is clearly the \
             duration of the request; add it to the server's format (nginx: $request_time, Apache: %D), or say where \
             it is: --log-format FORMAT, with the format of the server's configuration"
        );
    }
    format!(
        "its format is not recognised by its first line, {first}; say it: --log-format FORMAT (of nginx, Apache, Envoy, HAProxy \
         or curl), or --fields end=NAME,response=NAME:ms,status=NAME,path=NAME of JSON, CSV, logfmt or numbered words (or \
         start=NAME; units s, ms, us, ns)"
    )
}
