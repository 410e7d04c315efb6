//! What servers call the values of their formats. And `--fields`, by which an option says what a value is called.

use super::error::Error;
use super::layout::{Column, Layout, Place, Role, Shape, Side};
use super::template::Template;
use super::time::Unit;
use super::words;

/// What a variable of a server's format is.
struct Variable {
    name: &'static str,
    role: Role,
    /// Of times.
    unit: Option<Unit>,
    /// Of stamps.
    side: Option<Side>,
}

const fn plain(name: &'static str, role: Role) -> Variable {
    Variable { name, role, unit: None, side: None }
}

const fn timed(name: &'static str, unit: Unit) -> Variable {
    Variable { name, role: Role::Response, unit: Some(unit), side: None }
}

const fn stamp(name: &'static str, side: Side) -> Variable {
    Variable { name, role: Role::Stamp, unit: None, side: Some(side) }
}

/// The variables of nginx, Apache, Varnish, Envoy and curl that are used. Of several for the same, the first.
static VARIABLES: &[Variable] = &[
    // nginx: the finest stamp first. It reads both ends of a request from a clock of milliseconds.
    stamp("msec", Side::End),
    stamp("time_iso8601", Side::End),
    stamp("time_local", Side::End),
    timed("request_time", Unit::Seconds),
    plain("request", Role::Request),
    plain("request_method", Role::Method),
    plain("status", Role::Status),
    plain("body_bytes_sent", Role::Bytes),
    plain("bytes_sent", Role::Bytes),
    Variable {
        name: "upstream_response_time",
        role: Role::Upstream,
        unit: Some(Unit::Seconds),
        side: None,
    },
    plain("upstream_addr", Role::Server),
    plain("request_uri", Role::Path),
    plain("upstream_cache_status", Role::Cache),
    // Apache and Varnish: `%t` is the time at which the request was received.
    stamp("{end:usec}t", Side::End),
    stamp("{end:msec}t", Side::End),
    stamp("{end:sec}t", Side::End),
    stamp("{usec}t", Side::Start),
    stamp("{msec}t", Side::Start),
    stamp("{begin:usec}t", Side::Start),
    stamp("{begin:msec}t", Side::Start),
    stamp("{sec}t", Side::Start),
    stamp("t", Side::Start),
    timed("D", Unit::Micros),
    timed("{us}T", Unit::Micros),
    timed("{ms}T", Unit::Millis),
    timed("{s}T", Unit::Seconds),
    timed("T", Unit::Seconds),
    plain("r", Role::Request),
    plain("m", Role::Method),
    plain("U", Role::Path),
    plain("s", Role::Status),
    plain("B", Role::Bytes),
    plain("b", Role::Bytes),
    plain("O", Role::Bytes),
    // Envoy.
    stamp("START_TIME", Side::Start),
    timed("DURATION", Unit::Millis),
    plain("RESPONSE_CODE", Role::Status),
    plain("BYTES_SENT", Role::Bytes),
    plain("UPSTREAM_HOST", Role::Server),
    plain("REQ(:METHOD)", Role::Method),
    plain("REQ(X-ENVOY-ORIGINAL-PATH?:PATH)", Role::Path),
    plain("REQ(:PATH)", Role::Path),
    // curl: it has no stamp but `%time{…}`, which is written at the end.
    stamp("time", Side::End),
    stamp("end", Side::End),
    stamp("start", Side::Start),
    timed("time_total", Unit::Seconds),
    plain("http_code", Role::Status),
    plain("response_code", Role::Status),
    plain("size_download", Role::Bytes),
    plain("method", Role::Method),
    plain("url", Role::Path),
    plain("url_effective", Role::Path),
    // Of formats that are described by hand.
    plain("path", Role::Path),
    plain("bytes", Role::Bytes),
    plain("key", Role::Key),
    Variable { name: "duration", role: Role::Response, unit: None, side: None },
];

/// Those of HAProxy, some of which have names that are others in Apache. `%tr` is the start of the request, `%t` that of the
/// connection, `%Ta` counts from the former.
static OF_HAPROXY: &[Variable] = &[
    stamp("tr", Side::Start),
    stamp("trg", Side::Start),
    stamp("trl", Side::Start),
    stamp("t", Side::Start),
    stamp("T", Side::Start),
    stamp("Tl", Side::Start),
    stamp("Ts", Side::Start),
    timed("Ta", Unit::Millis),
    timed("Tt", Unit::Millis),
    plain("r", Role::Request),
    plain("ST", Role::Status),
    plain("B", Role::Bytes),
    plain("HM", Role::Method),
    plain("HU", Role::Path),
    plain("HP", Role::Path),
    plain("s", Role::Server),
];

/// A variable by its name in a format: `request_time`, `request_time:us` for another unit than the usual one, `>s`.
fn variable(name: &str, known: &'static [Variable]) -> Option<(&'static Variable, Option<Unit>)> {
    let name = name.trim_start_matches(['<', '>', '!']);
    let find = |name: &str| known.iter().find(|variable| variable.name == name);
    if let Some(found) = find(name) {
        return Some((found, None));
    }
    let (name, unit) = name.rsplit_once(':')?;
    Some((find(name)?, Some(Unit::parse(unit)?)))
}

/// The columns of the values that are named as variables of servers are, and the side of the stamp.
fn columns_of<'a>(
    names: impl Iterator<Item = &'a str>,
    known: &'static [Variable],
) -> (Vec<Column>, Option<Side>) {
    let mut ranked: Vec<(usize, &Variable, Column)> = Vec::new();
    for name in names {
        let Some((found, unit)) = variable(name, known) else { continue };
        let rank = known.iter().position(|v| v.name == found.name).unwrap_or(0);
        let mut column = Column::new(found.role, Place::Name(name.to_owned()));
        column.unit = unit.or(found.unit);
        ranked.push((rank, found, column));
    }
    ranked.sort_by_key(|(rank, ..)| *rank);
    let mut columns: Vec<Column> = Vec::new();
    let mut side = None;
    for (_, found, column) in ranked {
        if columns.iter().all(|c| c.role != column.role) {
            side = side.or(found.side);
            columns.push(column);
        }
    }
    (columns, side)
}

/// The layout of a format that is given.
///
/// # Errors
/// [`Error::Format`] if it has no time or no duration.
pub(super) fn of_template(text: &str, fields: Option<&str>) -> Result<Layout, Error> {
    let template = Template::parse(text)?;
    let failed = |reason: &str| Error::Format { reason: reason.to_owned() };
    let known = if template.is_of_haproxy() { OF_HAPROXY } else { VARIABLES };
    let (columns, side) = columns_of(template.names.iter().map(String::as_str), known);
    // Only Tomcat has %F, whose %D is in ms up to 10.0 and in µs since.
    let is_tomcat = ["D", "F"].iter().all(|name| template.names.iter().any(|n| n == name));
    // Envoy's.
    let cuts = template.names.iter().any(|name| name == "DURATION");
    let mut layout = Layout::new("the given format", Shape::Template(template), columns);
    layout.cuts = cuts;
    if is_tomcat {
        let durations = layout.columns.iter_mut().filter(|c| c.role == Role::Response);
        durations.for_each(|column| column.unit = None);
        layout.units = vec![Unit::Micros, Unit::Millis];
    }
    let mut layout = match side {
        Some(side) => layout.stamped(side, "as the server's variable is defined"),
        None => layout,
    };
    if let Some(fields) = fields {
        layout = described(layout, fields)?;
    }
    if !layout.has(Role::Stamp) && !layout.has_both_ends() {
        return Err(failed(
            "it has no time of completion; add $msec to the server's log_format (or $time_iso8601, $time_local, \
             which are good to a second), or say which of its variables is one: --fields end=NAME or start=NAME",
        ));
    }
    if !layout.has(Role::Response) && !layout.has_both_ends() {
        return Err(failed(
            "it has no $request_time, so the duration of a request is unknown; add it to the server's log_format \
             (Apache: %D, Envoy: %DURATION%, HAProxy: %Ta), or say which of its variables is one: --fields \
             response=NAME:ms",
        ));
    }
    Ok(layout)
}

/// The layout of JSON whose keys are the names of variables, as nginx writes it with `log_format … escape=json`.
pub(super) fn of_json<'a>(keys: impl Iterator<Item = &'a str> + Clone) -> Option<Layout> {
    // Other names (`time`, `duration`) are anybody's, and say neither a unit nor a side.
    let has = |name: &str| keys.clone().any(|key| key == name);
    let is_stamped = has("msec") || has("time_iso8601") || has("time_local");
    if !is_stamped || !has("request_time") {
        return None;
    }
    let (columns, side) = columns_of(keys, VARIABLES);
    let layout = Layout::new("JSON with nginx's names", Shape::Json, columns);
    let is_whole = layout.has(Role::Stamp) && layout.has(Role::Response);
    let side = side.filter(|_| is_whole)?;
    Some(layout.stamped(side, "nginx logs a request when it ends"))
}

/// What `--fields` says: values with their roles, and roles that no value has.
#[derive(Default)]
struct Fields {
    columns: Vec<Column>,
    without: Vec<Role>,
}

impl Fields {
    /// Reads `end=ts,response=duration:ms,status=code`; `status=-` of what a value was taken for and is not.
    fn parse(text: &str, shape: &Shape) -> Result<Fields, Error> {
        let is_numbered = !matches!(shape, Shape::Json | Shape::Pairs | Shape::Template(_));
        let mut fields = Fields::default();
        for field in text.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let (role, name) = field.split_once('=').unwrap_or((field, field));
            let (name, unit) = match name.rsplit_once(':') {
                Some((name, unit)) if Unit::parse(unit).is_some() => (name, Unit::parse(unit)),
                _ => (name, None),
            };
            let (role, name) = (role.trim(), name.trim());
            let role = Role::parse(role).ok_or_else(|| Error::Format {
                reason: format!(
                    "--fields has `{role}`, which is none of start, end, time, date, response, upstream, status, method, \
                     request, path, key, server, bytes and cache"
                ),
            })?;
            let place = match name.parse::<usize>() {
                _ if name == "-" => {
                    fields.without.push(role);
                    continue;
                }
                Ok(number) if is_numbered && number > 0 => Place::Number(number - 1),
                _ => Place::Name(name.to_owned()),
            };
            fields.columns.push(Column { unit, ..Column::new(role, place) });
        }
        Ok(fields)
    }

    fn has(&self, role: Role) -> bool {
        self.columns.iter().any(|column| column.role == role)
    }

    /// Makes a start or an end that is named alone the stamp, and returns which it is.
    fn side(&mut self) -> Option<Side> {
        if self.has(Role::Start) && self.has(Role::End) {
            return None;
        }
        let mut side = None;
        for column in &mut self.columns {
            let of_role = match column.role {
                Role::Start => Side::Start,
                Role::End => Side::End,
                _ => continue,
            };
            (column.role, side) = (Role::Stamp, Some(of_role));
        }
        side
    }

    /// Gives values without a unit behind a colon that which a layout knows of them, or that their names say.
    fn find_units(&mut self, layout: &Layout) {
        let times = [Role::Response, Role::Upstream, Role::Stamp, Role::Start, Role::End];
        for column in self.columns.iter_mut().filter(|column| times.contains(&column.role)) {
            let known = layout.columns.iter().find(|c| c.place == column.place);
            let by_name = match &column.place {
                Place::Name(name) => words::simple(name).1,
                Place::Number(_) => None,
            };
            column.unit = column.unit.or(known.and_then(|c| c.unit)).or(by_name);
        }
    }
}

/// A layout with what `--fields` says of it: `end=ts,response=duration:ms,status=code`. What is not named stays as it was recognised.
///
/// # Errors
/// [`Error::Format`]: a role that is none.
pub(super) fn described(layout: Layout, text: &str) -> Result<Layout, Error> {
    let mut fields = Fields::parse(text, &layout.shape)?;
    let side = fields.side();
    fields.find_units(&layout);
    let both = fields.has(Role::Start) && fields.has(Role::End);
    // Stamps are those that are named; two of them need no duration.
    let mut named: Vec<Role> = fields.columns.iter().map(|column| column.role).collect();
    let is_stamped = both || fields.has(Role::Stamp);
    if is_stamped {
        named.extend([Role::Stamp, Role::Start, Role::End, Role::Date]);
    }
    if both {
        named.push(Role::Response);
    }
    named.extend(&fields.without);
    let is_left = |column: &&Column| {
        !named.contains(&column.role) && fields.columns.iter().all(|c| c.place != column.place)
    };
    let left: Vec<Column> = layout.columns.iter().filter(is_left).cloned().collect();
    let is_same = |role: Role| {
        let is_in =
            |one: &Column| layout.columns.iter().any(|c| c.role == role && c.place == one.place);
        fields.columns.iter().filter(|column| column.role == role).all(is_in)
    };
    let (is_response_same, is_stamp_same) =
        (is_same(Role::Response), is_same(Role::Stamp) && !both);
    let is_timed = fields.has(Role::Response);
    let mut columns = fields.columns;
    columns.extend(left);
    let mut next = layout.with_columns(columns);
    if is_timed || both {
        next.doubt = String::new();
    }
    if !is_response_same {
        (next.unit, next.units, next.cuts) = (None, Unit::ALL.to_vec(), false);
        next.unit_why = String::new();
    }
    if !is_stamp_same {
        (next.side, next.likely, next.base) = (None, None, 0);
    }
    Ok(match side {
        Some(side) => next.stamped(side, "--fields says so"),
        None => next,
    })
}

#[cfg(test)]
mod tests {
    use super::super::entry::Line;
    use super::super::filter::Filter;
    use super::*;

    #[test]
    fn options_say_what_values_are() {
        let base = Layout::new("JSON", Shape::Json, Vec::new());
        let layout = described(base.clone(), "end=ts, response=d:ms,status=code,key").unwrap();
        assert_eq!(layout.side, Some(Side::End));
        assert_eq!(layout.columns[1].unit, Some(Unit::Millis));
        assert_eq!(layout.columns[3].place, Place::Name("key".into()));
        assert!(described(base.clone(), "start=a,end=b").unwrap().has_both_ends());
        let known = described(base.clone(), "start=ts,response=took_us,path=url").unwrap();
        assert_eq!(known.columns[1].unit, Some(Unit::Micros));
        let more = described(known, "status=code,path=-").unwrap();
        let roles: Vec<Role> = more.columns.iter().map(|c| c.role).collect();
        assert_eq!(roles, [Role::Status, Role::Stamp, Role::Response]);
        assert_eq!((more.columns[2].unit, more.side), (Some(Unit::Micros), Some(Side::Start)));
        assert!(described(base, "colour=a").unwrap_err().to_string().contains("`colour`"));
        // In HAProxy `%s` is the server, where it is Apache's status.
        let format = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
        let mut haproxy = of_template(format, None).unwrap();
        let line = "192.0.2.1:33317 [06/Feb/2009:12:14:14.655] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 \
                    {1wt.eu} {} \"GET /index.html HTTP/1.1\"";
        let read = haproxy.line(line, &Filter::default());
        let Ok(Line::Request(entry)) = read else { panic!("{read:?}") };
        assert_eq!((entry.status, entry.bytes), (Some(200), 2750));
        assert_eq!(entry.response.map(|taken| taken.ns), Some(109_000_000));
        let apache = of_template("%t %>s %D", None).unwrap();
        assert_eq!((apache.side, apache.columns[1].unit), (Some(Side::Start), Some(Unit::Micros)));
        let units = of_template("${msec} ${request_time:us}", None).unwrap();
        assert_eq!(units.columns[1].unit, Some(Unit::Micros));
        let own = of_template("$a $b", Some("start=a:ms,response=b:ns")).unwrap();
        assert_eq!(own.side, Some(Side::Start));
        assert!(of_template("$a $b", None).is_err());
    }
}
