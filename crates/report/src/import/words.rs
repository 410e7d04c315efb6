//! What services call the values of their own logs: times, statuses, paths.

use super::layout::{Column, Layout, Place, Role, Shape, Side};
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
fn simple(name: &str) -> (String, Option<Unit>) {
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

/// A column by what services commonly call it; `None` if the name says nothing.
fn by_word(name: &str) -> Option<(Column, Option<Side>)> {
    let (word, unit) = simple(name);
    // A reply is called so as well; its time has a unit.
    if word == "response" && unit.is_none() {
        return None;
    }
    let (role, side, _) = WORDS.iter().find(|(.., words)| words.contains(&word.as_str()))?;
    let mut column = Column::new(*role, Place::Name(name.to_owned()));
    column.unit = unit;
    Some((column, *side))
}

/// What no name of a log is known to be: a time, a duration.
pub(super) fn unknown_of<'a>(names: impl Iterator<Item = &'a str>) -> &'static str {
    let roles: Vec<Role> = names.filter_map(by_word).map(|(column, _)| column.role).collect();
    let has = |role| roles.contains(&role);
    let is_stamped = has(Role::Stamp) || has(Role::Start) || has(Role::End);
    match (is_stamped, has(Role::Response)) {
        (false, true) => "the time of a request",
        (true, false) => "the duration of a request",
        _ => "the time of a request, nor its duration",
    }
}

/// The columns of a service's own log by what its values are called. A start and an end without a duration are both used; else the
/// stamp whose name says its side, else one whose name does not.
/// `time`: where the stamp stands without a name; else empty.
pub(super) fn by_words<'a>(
    name: &str,
    shape: Shape,
    time: Vec<Column>,
    names: impl Iterator<Item = &'a str>,
) -> Option<Layout> {
    let mut columns = time;
    for (column, _) in names.filter_map(by_word) {
        if columns.iter().all(|c| c.role != column.role) {
            columns.push(column);
        }
    }
    let has = |columns: &[Column], role| columns.iter().any(|c| c.role == role);
    let drop = |columns: &mut Vec<Column>, role| columns.retain(|c| c.role != role);
    let mut side = None;
    if has(&columns, Role::Response) {
        for (role, of_role) in [(Role::End, Side::End), (Role::Start, Side::Start)] {
            if has(&columns, role) && side.is_none() {
                drop(&mut columns, Role::Stamp);
                columns.iter_mut().filter(|c| c.role == role).for_each(|c| c.role = Role::Stamp);
                side = Some(of_role);
            }
            drop(&mut columns, role);
        }
    } else if !(has(&columns, Role::Start) && has(&columns, Role::End)) {
        return None;
    } else {
        drop(&mut columns, Role::Stamp);
    }
    let layout = Layout::new(name, shape, columns);
    let layout = match side {
        Some(side) => layout.stamped(side, "its name says so"),
        None => layout,
    };
    (layout.has(Role::Stamp) || layout.has_both_ends()).then_some(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roles(layout: &Layout) -> Vec<Role> {
        layout.columns.iter().map(|c| c.role).collect()
    }

    #[test]
    fn names_of_services_are_understood() {
        let names = ["@timestamp", "durationMs", "http.status_code", "url", "bytes_sent", "other"];
        let layout = by_words("x", Shape::Json, Vec::new(), names.into_iter()).unwrap();
        assert_eq!(
            roles(&layout),
            [Role::Stamp, Role::Response, Role::Status, Role::Path, Role::Bytes]
        );
        assert_eq!((layout.columns[1].unit, layout.side), (Some(Unit::Millis), None));
        let layout =
            by_words("x", Shape::Json, Vec::new(), ["start_time", "end_time", "t"].into_iter())
                .unwrap();
        assert!(layout.has_both_ends() && !layout.has(Role::Stamp));
        let layout =
            by_words("x", Shape::Json, Vec::new(), ["start_time", "latency_us"].into_iter())
                .unwrap();
        assert_eq!(
            (roles(&layout), layout.side),
            (vec![Role::Stamp, Role::Response], Some(Side::Start))
        );
        assert!(by_words("x", Shape::Json, Vec::new(), ["time", "status"].into_iter()).is_none());
        assert!(
            by_words("x", Shape::Json, Vec::new(), ["status", "duration"].into_iter()).is_none()
        );
    }
}
