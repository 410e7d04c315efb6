//! What services call the values of their own logs: times, statuses, paths.

use super::candidates::{Candidate, Candidates};
use super::layout::{Column, Layout, Role, Side};
use super::time::Unit;

/// Names of a role in services' own logs, without case, `_`, `-`, `.` and `@`.
const WORDS: [(Role, Option<Side>, &[&str]); 11] = [
    (
        Role::Start,
        Some(Side::Start),
        &[
            "start",
            "starttime",
            "starttimestamp",
            "startedat",
            "startts",
            "requeststart",
            "arrival",
            "arrivaltime",
            "begin",
            "startutc",
            "requesttimestamp",
            "starttimeunix",
            "requesttimeepoch",
        ],
    ),
    (
        Role::End,
        Some(Side::End),
        &[
            "end",
            "endtime",
            "endtimestamp",
            "endedat",
            "endts",
            "finishedat",
            "completedat",
            "finish",
            "departure",
            "responsetimestamp",
            "endtimeunix",
        ],
    ),
    (Role::Stamp, None, &["ts", "time", "timestamp", "date", "datetime", "unixtime", "epoch", "t"]),
    (
        Role::Response,
        None,
        &[
            "duration",
            "latency",
            "elapsed",
            "elapsedtime",
            "responsetime",
            "requesttime",
            "took",
            "timetaken",
            "totaltime",
            "durationtime",
            "requestduration",
            "responseduration",
            "rt",
            "resptime",
            "processingtime",
            "timetotal",
            "servicetime",
            "httprequestlatency",
            "response",
            "timeelapsed",
            "responselatency",
            "eventduration",
            "propertiestimetaken",
        ],
    ),
    (
        Role::Status,
        None,
        &[
            "status",
            "statuscode",
            "responsecode",
            "code",
            "httpstatus",
            "httpcode",
            "httpstatuscode",
            "responsestatus",
            "httprequeststatus",
            "scstatus",
        ],
    ),
    (
        Role::Method,
        None,
        &["method", "requestmethod", "httpmethod", "verb", "operation", "op", "csmethod"],
    ),
    (
        Role::Path,
        None,
        &[
            "path",
            "uri",
            "url",
            "requestpath",
            "requesturi",
            "requesturl",
            "endpoint",
            "route",
            "target",
            "httprequestrequesturl",
        ],
    ),
    (Role::Request, None, &["request", "requestline"]),
    (Role::Key, None, &["key", "objectkey"]),
    (
        Role::Bytes,
        None,
        &[
            "bytes",
            "bytessent",
            "size",
            "responsesize",
            "bodybytessent",
            "contentlength",
            "responsebytes",
            "bytesout",
            "bodybytes",
            "length",
        ],
    ),
    (Role::Server, None, &["upstream", "upstreamhost", "upstreamaddr", "server", "backend"]),
];

/// A name without what differs between writers, and the unit that it ends in (`duration_ms`, `latencyUs`, `elapsed(s)`).
pub(super) fn simple(name: &str) -> (String, Option<Unit>) {
    let mut cased = String::new();
    let mut previous = ' ';
    for c in name.chars() {
        if c.is_uppercase() && previous.is_lowercase() {
            cased.push('_');
        }
        previous = c;
        cased.extend(c.to_lowercase());
    }
    let pieces: Vec<&str> =
        cased.split(|c: char| !c.is_alphanumeric()).filter(|p| !p.is_empty()).collect();
    let unit = pieces.last().and_then(|last| Unit::parse(last)).filter(|_| pieces.len() > 1);
    let count = pieces.len() - usize::from(unit.is_some());
    (pieces[..count].concat(), unit)
}

/// Parents of names that are of something else than the request and its reply.
const APART: &[&str] = &[
    "headers",
    "header",
    "trailers",
    "error",
    "err",
    "exception",
    "db",
    "database",
    "sql",
    "query",
    "cache",
    "redis",
    "user",
    "upstream",
    "origin",
    "backend",
    "client",
    "parent",
    "process",
    "host",
];

/// What services commonly call a value: `None` if the name says nothing. Of a dotted name the last parts count where the whole says
/// nothing: `res.statusCode`, `http.response.status_code`, `payload.status`.
fn candidate(name: &str) -> Option<Candidate> {
    let starts = std::iter::once(0).chain(name.match_indices('.').map(|(at, _)| at + 1));
    let (depth, start, word, unit) = starts.enumerate().find_map(|(depth, start)| {
        let (word, unit) = simple(&name[start..]);
        let is_known = WORDS.iter().any(|(.., words)| words.contains(&word.as_str()));
        // A reply is called so as well; its time has a unit.
        let is_reply = word == "response" && unit.is_none();
        (is_known && !is_reply).then_some((depth, start, word, unit))
    })?;
    let (role, side, _) = WORDS.iter().find(|(.., words)| words.contains(&word.as_str()))?;
    let parents: Vec<String> = name[..start].split('.').map(|part| simple(part).0).collect();
    let has_parent = |words: &[&str]| parents.iter().any(|part| words.contains(&part.as_str()));
    // What the client sent is not the size of the reply.
    if has_parent(APART) || *role == Role::Bytes && has_parent(&["req", "request"]) {
        return None;
    }
    let column = Column { unit, ..Column::named(*role, name) };
    Some(Candidate { column, side: *side, depth })
}

/// What no name of a log is known to be: a time, a duration.
pub(super) fn unknown_of<'a>(names: impl Iterator<Item = &'a str>) -> &'static str {
    let roles: Vec<Role> = names.filter_map(candidate).map(|one| one.column.role).collect();
    let has = |role| roles.contains(&role);
    let is_stamped = has(Role::Stamp) || has(Role::Start) || has(Role::End);
    match (is_stamped, has(Role::Response)) {
        (false, true) => "the time of a request",
        (true, false) => "the duration of a request",
        _ => "the time of a request, nor its duration",
    }
}

/// The layout of a service's own log by what its values are called, and by what they are in the first lines. A start and an end without a
/// duration are both used; else the stamp whose name says its side, else one whose name does not.
/// `time`: where the stamp stands without a name; else empty.
pub(super) fn by_words<'a>(
    base: &Layout,
    time: Vec<Column>,
    names: impl Iterator<Item = &'a str>,
    lines: &[String],
) -> Option<Layout> {
    let candidates = Candidates::new(base, names.filter_map(candidate).collect(), lines);
    let stamp_of = |role| candidates.first(role);
    let (response, doubt) = match candidates.response() {
        Ok(response) => (response, String::new()),
        Err(names) => {
            let doubt = format!(
                "{names} may be the duration of a request, and none is the longest on nearly all lines, or their units are not \
                 known; say which it is: --fields response=NAME:ms (units s, ms, us, ns)"
            );
            (candidates.first(Role::Response), doubt)
        }
    };
    let (mut columns, side) = match response {
        None => {
            let (start, end) = (stamp_of(Role::Start)?, stamp_of(Role::End)?);
            (vec![start.column.clone(), end.column.clone()], None)
        }
        Some(response) => {
            let stamp = stamp_of(Role::Stamp);
            // A name that says the side, unless it is of something within the request.
            let is_nearer = |one: &&Candidate| stamp.is_none_or(|stamp| one.depth <= stamp.depth);
            let sided = [Role::End, Role::Start].into_iter().filter_map(stamp_of).find(is_nearer);
            let mut columns = match sided.or(stamp.filter(|_| time.is_empty())) {
                Some(one) => vec![Column { role: Role::Stamp, ..one.column.clone() }],
                None => time,
            };
            columns.push(response.column.clone());
            (columns, sided.and_then(|one| one.side))
        }
    };
    columns.extend(candidates.others().map(|one| one.column.clone()));
    let mut layout = base.clone().with_columns(columns);
    layout.doubt = doubt;
    let layout = match side {
        Some(side) => layout.stamped(side, "its name says so"),
        None => layout,
    };
    (layout.has(Role::Stamp) || layout.has_both_ends()).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::super::layout::Shape;
    use super::*;

    fn roles(layout: &Layout) -> Vec<Role> {
        layout.columns.iter().map(|c| c.role).collect()
    }

    fn of_names(names: &[&str]) -> Option<Layout> {
        let base = Layout::new("x", Shape::Json, Vec::new());
        by_words(&base, Vec::new(), names.iter().copied(), &[])
    }

    #[test]
    fn names_of_services_are_understood() {
        let names = ["@timestamp", "durationMs", "http.status_code", "url", "bytes_sent", "other"];
        let layout = of_names(&names).unwrap();
        assert_eq!(
            roles(&layout),
            [Role::Stamp, Role::Response, Role::Status, Role::Path, Role::Bytes]
        );
        assert_eq!((layout.columns[1].unit, layout.side), (Some(Unit::Millis), None));
        let layout = of_names(&["start_time", "end_time", "t"]).unwrap();
        assert!(layout.has_both_ends() && !layout.has(Role::Stamp));
        let layout = of_names(&["start_time", "latency_us"]).unwrap();
        assert_eq!(
            (roles(&layout), layout.side),
            (vec![Role::Stamp, Role::Response], Some(Side::Start))
        );
        assert!(of_names(&["time", "status"]).is_none());
        assert!(of_names(&["status", "duration"]).is_none());
    }

    #[test]
    fn the_last_parts_of_names_count_where_the_whole_says_nothing() {
        for (name, role) in [
            ("res.statusCode", Role::Status),
            ("http.response.status_code", Role::Status),
            ("payload.status", Role::Status),
            ("properties.httpStatus", Role::Status),
            ("meta.req.method", Role::Method),
            ("url.path", Role::Path),
            ("event.duration", Role::Response),
            ("fields.latency_ms", Role::Response),
            ("http.response.body.bytes", Role::Bytes),
        ] {
            let found = candidate(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(found.column.role, role, "{name}");
        }
        for name in
            ["res.headers.date", "db.duration", "error.code", "req.body.bytes", "upstream_rt", "a."]
        {
            assert!(candidate(name).is_none(), "{name}");
        }
    }
}
