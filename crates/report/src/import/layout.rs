//! What the values of a line mean: a layout says where a request's times, status and key stand, in which units, and at
//! which of its ends its stamp was taken. Every format, known or described by options, is one.

use std::borrow::Cow;

use ground::window::{Nanos, key_hash};

pub(super) use super::column::{Column, Place, Role};
use super::entry::{self, Cache, Entry, Line, operation, path_of};
use super::excerpt::excerpt;
use super::filter::{Filter, Verdict};
use super::nested::OpenSamples;
use super::split::{self, Fault};
use super::template::Template;
use super::time::{self, LastMoment, Reading, Unit};

/// How lines are divided.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Template(Template),
    Json,
    /// `key=value`.
    Pairs,
    /// Elements of JMeter's XML with such pairs, which may have others within.
    Samples(OpenSamples),
    /// Columns, named by a header or numbered.
    Csv {
        delimiter: u8,
        header: Option<Vec<String>>,
    },
    /// Words, counted from the first, or from the time in brackets.
    Words {
        from_time: bool,
    },
    /// W3C extended: words, named by the last `#Fields` line.
    Extended {
        fields: Vec<String>,
        date: String,
    },
}

/// At which end of a request its stamp was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Start,
    End,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::Start => "start",
            Side::End => "end",
        }
    }
}

/// A format: how lines are divided, and what the values mean.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Layout {
    /// What a person calls it.
    pub name: String,
    pub shape: Shape,
    pub columns: Vec<Column>,
    /// `None` until it is found.
    pub side: Option<Side>,
    /// What it is unless the log shows otherwise.
    pub likely: Option<Side>,
    /// Why it is this side.
    pub side_why: String,
    /// Of durations without their own; `None` until it is found.
    pub unit: Option<Unit>,
    pub unit_why: String,
    /// Units that the duration may have, if it is not known, or is only likely.
    pub units: Vec<Unit>,
    /// Whether durations are known to be rounded down rather than to the nearest.
    pub cuts: bool,
    /// Moments count from this, nanoseconds since 1970, of a log without dates.
    pub base: Nanos,
    /// Whether the log is in parts of which each begins anew, as a load generator writes one operation after the other.
    pub is_in_sections: bool,
    /// Whether a status that is no number means that no reply came, as load generators write it.
    pub is_tester: bool,
    /// Whether a line without a status is none of a request, since those that went well have one.
    pub is_status_needed: bool,
    /// Lines that have one of these texts are of another kind.
    pub others: &'static [&'static str],
    /// Words that some lines have in front of others; they are taken out, so that those keep their numbers.
    pub asides: &'static [&'static str],
    /// Words of each line from the first that is counted on, where a line with another number has another format.
    pub words: Option<usize>,
    /// Whether times are written with a decimal comma.
    pub has_decimal_commas: bool,
    /// What must be said before it is used; empty if it is known.
    pub doubt: String,
    /// What else is to be known of it.
    pub remarks: Vec<String>,
    /// Where each column's value stands, as far as that does not change from line to line.
    places: Vec<Option<usize>>,
    last: LastMoment,
}

/// The values of a line, in the order of the columns.
pub(super) type Values = Vec<Option<String>>;

impl Layout {
    /// A layout whose unit and side are not known.
    pub fn new(name: &str, shape: Shape, columns: Vec<Column>) -> Layout {
        let mut layout = Layout {
            name: name.to_owned(),
            shape,
            columns,
            side: None,
            likely: None,
            side_why: String::new(),
            unit: None,
            unit_why: String::new(),
            units: Unit::ALL.to_vec(),
            cuts: false,
            base: 0,
            is_in_sections: false,
            is_tester: false,
            is_status_needed: false,
            others: &[],
            asides: &[],
            words: None,
            has_decimal_commas: false,
            doubt: String::new(),
            remarks: Vec::new(),
            places: Vec::new(),
            last: LastMoment::default(),
        };
        layout.settle();
        layout
    }

    /// The same, whose stamp is known to be of a side.
    pub fn stamped(mut self, side: Side, why: &str) -> Layout {
        (self.side, self.side_why) = (Some(side), why.to_owned());
        self
    }

    /// The same, whose durations are known to be of a unit.
    pub fn timed(mut self, unit: Unit, why: &str) -> Layout {
        (self.unit, self.unit_why) = (Some(unit), why.to_owned());
        self
    }

    /// The same, whose durations are rounded down.
    pub fn rounded_down(mut self) -> Layout {
        self.cuts = true;
        self
    }

    /// The same, whose times may be written with a decimal comma.
    pub fn with_decimal_commas(mut self, has_decimal_commas: bool) -> Layout {
        self.has_decimal_commas = has_decimal_commas;
        if has_decimal_commas {
            self.remarks.push("A comma in a time is read as the decimal point.".to_owned());
        }
        self
    }

    /// A time with a decimal point.
    pub fn pointed<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.has_decimal_commas {
            true => Cow::Owned(text.trim().replacen(',', ".", 1)),
            false => Cow::Borrowed(text),
        }
    }

    /// Whether a value with this role is used.
    pub fn has(&self, role: Role) -> bool {
        self.columns.iter().any(|column| column.role == role)
    }

    /// The option that says what its values are.
    pub fn option(&self) -> &'static str {
        match self.shape {
            Shape::Template(_) | Shape::Words { .. } => {
                "give the server's `log_format` with --log-format"
            }
            _ => {
                "say what its values are with --fields end=NAME,response=NAME:ms,status=NAME (or start=NAME)"
            }
        }
    }

    /// Whether both ends of a request are stamped, so that nothing else is needed.
    pub fn has_both_ends(&self) -> bool {
        self.has(Role::Start) && self.has(Role::End)
    }

    /// Finds where the columns stand by the names of the header.
    fn settle(&mut self) {
        let names: &[String] = match &self.shape {
            Shape::Template(template) => &template.names,
            Shape::Csv { header: Some(header), .. } => header,
            Shape::Extended { fields, .. } => fields,
            _ => &[],
        };
        let find = |column: &Column| match &column.place {
            Place::Number(number) => Some(*number),
            Place::Name(name) => names.iter().position(|n| n == name),
        };
        self.places = self.columns.iter().map(find).collect();
    }

    /// The same, of other values.
    pub fn with_columns(mut self, columns: Vec<Column>) -> Layout {
        self.columns = columns;
        self.settle();
        self
    }

    /// The values of a line; `None` if it is none of a request.
    pub fn values(&mut self, line: &str) -> Result<Option<Values>, Fault> {
        let by_place = |get: &dyn Fn(usize) -> Option<String>| -> Values {
            self.places.iter().map(|place| place.and_then(get)).collect()
        };
        let by_name = |get: &dyn Fn(&str) -> Option<String>| -> Values {
            let value = |column: &Column| match &column.place {
                Place::Name(name) => get(name),
                Place::Number(_) => None,
            };
            self.columns.iter().map(value).collect()
        };
        Ok(Some(match &self.shape {
            Shape::Template(template) => {
                let values = template.values(line)?;
                by_place(&|at| values.get(at).map(|v| (*v).to_owned()))
            }
            Shape::Json => {
                let object = split::object(line)?;
                by_name(&|name| split::member(&object, name))
            }
            Shape::Pairs | Shape::Samples(_) => {
                let pairs = split::pairs(line);
                let find = |name: &str| pairs.iter().find(|pair| pair.0 == name);
                // Words before the pairs (a time, a program) have numbers.
                let value = |column: &Column| match &column.place {
                    Place::Name(name) => find(name).map(|pair| pair.1.to_owned()),
                    Place::Number(at) => line.split_whitespace().nth(*at).map(str::to_owned),
                };
                self.columns.iter().map(value).collect()
            }
            Shape::Csv { delimiter, header } => {
                let columns = split::columns(line, *delimiter);
                if header.as_ref().is_some_and(|header| *header == columns) {
                    return Ok(None);
                }
                if header.as_ref().is_some_and(|header| columns.len() < header.len() / 2) {
                    return Err(split::too_short(line));
                }
                by_place(&|at| columns.get(at).cloned())
            }
            Shape::Words { from_time } => return self.of_words(line, *from_time).map(Some),
            Shape::Extended { .. } => return self.extended(line),
        }))
    }

    /// The values of a line of words.
    fn of_words(&self, line: &str, from_time: bool) -> Result<Values, Fault> {
        let aside = self.asides.iter().find(|aside| line.contains(*aside));
        let line: Cow<'_, str> = match aside {
            Some(aside) => line.replacen(aside, "", 1).into(),
            None => line.into(),
        };
        let words = split::words(&line);
        let is_time = |word: &split::Word<'_>| {
            word.quote == split::Quote::Bracketed && self.last.parse(&word.text, None).is_some()
        };
        let first = if from_time {
            words.iter().position(is_time).ok_or_else(|| {
                let detail = format!("no time in brackets in `{}`", excerpt(&line));
                Fault::new("a line has no time", detail)
            })?
        } else {
            0
        };
        let count = words.len() - first;
        if let Some(most) = self.words.filter(|words| *words != count) {
            let detail = format!("{count} words, and not {most}, in `{}`", excerpt(&line));
            return Err(Fault::new("a line has another number of words", detail));
        }
        let get = |at: usize| words.get(first + at).map(|word| word.text.clone().into_owned());
        Ok(self.places.iter().map(|place| place.and_then(get)).collect())
    }

    /// The values of a line of the W3C format, or what a directive says of those that follow.
    fn extended(&mut self, line: &str) -> Result<Option<Values>, Fault> {
        let Shape::Extended { fields, date } = &mut self.shape else { return Ok(None) };
        if let Some(directive) = line.strip_prefix('#') {
            if let Some(names) = directive.strip_prefix("Fields:") {
                *fields = names.split_whitespace().map(str::to_owned).collect();
            } else if let Some(day) = directive.strip_prefix("Date:") {
                day.split_whitespace().next().unwrap_or_default().clone_into(date);
            }
            self.settle();
            return Ok(None);
        }
        let words = split::words(line);
        if words.len() < fields.len() {
            return Err(split::too_short(line));
        }
        let date = (!date.is_empty()).then(|| date.clone());
        let value = |(column, place): (&Column, &Option<usize>)| {
            let found =
                place.and_then(|at| words.get(at)).map(|word| word.text.clone().into_owned());
            if column.role == Role::Date { found.or_else(|| date.clone()) } else { found }
        };
        Ok(Some(self.columns.iter().zip(&self.places).map(value).collect()))
    }

    /// Reads a line.
    pub fn line(&mut self, line: &str, filter: &Filter) -> Result<Line, Fault> {
        let mut line = Cow::Borrowed(line);
        if let Shape::Samples(open) = &mut self.shape {
            let Some(ended) = open.ended(&line) else { return Ok(Line::Other) };
            line = Cow::Owned(ended);
        }
        if line.trim().is_empty() || self.others.iter().any(|text| line.contains(text)) {
            return Ok(Line::Other);
        }
        let Some(values) = self.values(&line)? else { return Ok(Line::Other) };
        self.request(&values, filter)
    }

    /// Whether a line of named values has not those that say how a request ended: services write what they do besides into the same
    /// log, and a line when a request begins. (A duration of `null` beside a status is a request without one.)
    fn is_other(&self, values: &Values) -> bool {
        if !matches!(self.shape, Shape::Json | Shape::Pairs) {
            return false;
        }
        if self.is_status_needed && self.value(values, Role::Status).is_none() {
            return true;
        }
        let ends = |column: &Column| {
            matches!(column.role, Role::Response | Role::Status | Role::End | Role::Upstream)
        };
        let mut of_ends = self.columns.iter().zip(values).filter(|(column, _)| ends(column));
        of_ends.all(|(_, value)| value.is_none())
    }

    /// Says which values no line has that options name: a status with a wrong name would let all requests count as answered.
    pub fn name_missing(mut self, lines: &[String]) -> Layout {
        let rows: Vec<Values> =
            lines.iter().filter_map(|line| self.values(line).ok().flatten()).collect();
        let is_missing = |at: usize| {
            !rows.is_empty() && rows.iter().all(|row| row.get(at).is_none_or(Option::is_none))
        };
        let columns = self.columns.iter().enumerate();
        let missing: Vec<String> =
            columns.filter(|(at, _)| is_missing(*at)).map(|(_, column)| column.label()).collect();
        if !missing.is_empty() {
            let names = missing.join(", ");
            self.remarks.push(format!("No value of its first lines is called {names}."));
        }
        self
    }

    /// Finds whether a line without a status is none of a request: services log queries and jobs with a duration as well. Where most statuses
    /// are of failures, it may be a request that went well.
    pub fn find_events(mut self, lines: &[String]) -> Layout {
        // What tells requests from other lines may be known.
        let is_known = self.is_tester || self.has(Role::Select);
        if is_known || !matches!(self.shape, Shape::Json | Shape::Pairs) {
            return self;
        }
        let (mut all, mut well) = (0, 0);
        for line in lines {
            let Ok(Some(values)) = self.values(line) else { continue };
            let status = self.value(&values, Role::Status).and_then(entry::status);
            let Some(status) = status.filter(|status| *status > 0) else { continue };
            all += 1;
            well += u32::from(status < 400);
        }
        self.is_status_needed = all > 0 && 2 * well >= all;
        self
    }

    /// The first value of a role.
    fn value<'a>(&self, values: &'a Values, role: Role) -> Option<&'a str> {
        let mut both = self.columns.iter().zip(values);
        both.find_map(|(column, value)| {
            value.as_deref().filter(|_| column.role == role).map(|value| column.cut(value))
        })
    }

    fn request(&self, values: &Values, filter: &Filter) -> Result<Line, Fault> {
        let selects = self.columns.iter().zip(values).filter(|(c, _)| c.role == Role::Select);
        for (column, value) in selects {
            if value.as_deref() != Some(column.only) {
                return Ok(Line::Other);
            }
        }
        if self.is_other(values) {
            return Ok(Line::Other);
        }
        let get = |role| self.value(values, role);
        let times = self.times(values)?;
        let status = self.status(get(Role::Status))?.or_else(|| self.success(values));
        let bytes = entry::bytes(get(Role::Bytes).unwrap_or(""));
        let request = get(Role::Request);
        let method = get(Role::Method).or(request.and_then(|r| r.split(' ').next()));
        let path = get(Role::Path).or(request.and_then(|r| r.split(' ').nth(1))).map(path_of);
        let verdict = filter.judge(times.end, status, path);
        if verdict != Verdict::Wanted {
            return Ok(Line::Filtered(verdict));
        }
        // What was upgraded (to a web socket) is logged when the connection ends, with its length as the time.
        if status == Some(101) {
            return Ok(Line::Upgraded);
        }
        // The server that a proxy chose (of several attempts the last) says more than the path.
        let server = get(Role::Server).and_then(|all| all.rsplit([',', ' ']).next());
        let server = server.filter(|last| !matches!(*last, "" | "-"));
        let key = get(Role::Key).filter(|key| !key.is_empty()).or(server).or(path);
        Ok(Line::Request(Entry {
            stamp: times.stamp,
            end: times.end,
            response: times.response,
            upstream: self.upstream(get(Role::Upstream))?,
            status,
            bytes: bytes.unwrap_or(0),
            is_size_known: bytes.is_some(),
            operation: operation(method),
            cache: get(Role::Cache).map_or(Cache::None, Cache::parse),
            key: key.map_or(0, |key| record::short_key(key_hash(key.as_bytes()))),
            zone_assumed: times.zone_assumed,
        }))
    }

    fn upstream(&self, text: Option<&str>) -> Result<Option<Reading>, Fault> {
        let Some(text) = text else { return Ok(None) };
        let column = self.columns.iter().find(|column| column.role == Role::Upstream);
        let unit = column.and_then(|c| c.unit).or(self.unit).unwrap_or(Unit::Seconds);
        time::durations(&self.pointed(text), unit).map_err(|()| {
            let detail = format!("the servers' time is not valid: `{}`", excerpt(text));
            Fault::new("an invalid time of the servers behind", detail)
        })
    }

    fn status(&self, text: Option<&str>) -> Result<Option<u16>, Fault> {
        let Some(text) = text else { return Ok(Some(200)) };
        let column = self.columns.iter().find(|column| column.role == Role::Status);
        if let Some(well) = column.map(|column| column.only).filter(|well| !well.is_empty()) {
            return Ok(well.split(' ').any(|word| text == word).then_some(200));
        }
        match entry::status(text) {
            Some(0) => Ok(None),
            Some(status) => Ok(Some(status)),
            None if self.is_tester => Ok(None),
            None => {
                let detail = format!("the status is not valid: `{}`", excerpt(text));
                Err(Fault::new("an invalid status", detail))
            }
        }
    }

    /// The status of a request that a value says went well, whatever its code is (of samplers other than HTTP's).
    fn success(&self, values: &Values) -> Option<u16> {
        let mut both = self.columns.iter().zip(values);
        let is_one = |(column, value): (&Column, &Option<String>)| {
            column.role == Role::Success && value.as_deref() == Some(column.only)
        };
        both.any(is_one).then_some(200)
    }

    fn times(&self, values: &Values) -> Result<Times, Fault> {
        let mut response = None;
        let mut is_timed = true;
        for (column, value) in self.columns.iter().zip(values) {
            if column.role != Role::Response {
                continue;
            }
            let text = column.cut(value.as_deref().unwrap_or(""));
            // HAProxy marks times of requests that it logs before they end.
            let text = text.trim_start_matches('+');
            if matches!(text, "-" | "-1" | "") {
                is_timed = false;
                continue;
            }
            let unit = column.unit.or(self.unit).unwrap_or(Unit::Seconds);
            let Ok(Some(one)) = time::durations(&self.pointed(text), unit) else {
                let detail = format!("the duration is not a valid time: `{}`", excerpt(text));
                return Err(Fault::new("an invalid duration", detail));
            };
            let sum = response.unwrap_or(Reading { ns: 0, decimals: 0 });
            let ns = sum.ns.saturating_add(one.ns);
            response = Some(Reading { ns, decimals: sum.decimals.max(one.decimals) });
        }
        let response = response.filter(|_| is_timed);
        if self.has_both_ends() {
            let (start, _) = self.moment(values, Role::Start)?;
            let (end, zone_assumed) = self.moment(values, Role::End)?;
            let decimals = start.decimals.min(end.decimals);
            // Stamps that are rounded apart differ by a tick.
            let tick = 10u64.pow(9 - decimals.min(9));
            if end.ns.saturating_add(tick) < start.ns {
                let detail = format!(
                    "the request ends {} s before it starts",
                    (start.ns - end.ns) as f64 * 1e-9
                );
                return Err(Fault::new("an end before its start", detail));
            }
            let taken = Some(Reading { ns: end.ns.saturating_sub(start.ns), decimals });
            // A request without a duration has none, though its line has two stamps.
            let response = if self.has(Role::Response) { response.and(taken) } else { taken };
            return Ok(Times { stamp: end, end: end.ns, response, zone_assumed });
        }
        let (stamp, zone_assumed) = self.moment(values, Role::Stamp)?;
        let taken = response.map_or(0, |r| r.ns);
        let end = match self.side {
            Some(Side::Start) => stamp.ns.saturating_add(taken),
            _ => stamp.ns,
        };
        Ok(Times { stamp, end, response, zone_assumed })
    }

    fn moment(&self, values: &Values, role: Role) -> Result<(Reading, bool), Fault> {
        let column = self.columns.iter().find(|column| column.role == role);
        let text = self.value(values, role).unwrap_or("");
        let dated;
        let text = if self.has(Role::Date) {
            dated = format!("{} {text}", self.value(values, Role::Date).unwrap_or(""));
            &dated
        } else {
            text
        };
        let invalid = || {
            let detail = if text.is_empty() {
                "the time is missing".to_owned()
            } else {
                format!("not a valid time: `{}`", excerpt(text))
            };
            Fault::new("an invalid time", detail)
        };
        let unit = column.and_then(|column| column.unit);
        let (mut reading, zone_assumed) =
            self.last.parse(&self.pointed(text), unit).ok_or_else(invalid)?;
        reading.ns = reading.ns.checked_add(self.base).ok_or_else(invalid)?;
        // The extended format is always in UTC.
        let is_utc = matches!(self.shape, Shape::Extended { .. });
        Ok((reading, zone_assumed && !is_utc))
    }
}

/// The times of a line.
struct Times {
    stamp: Reading,
    end: Nanos,
    response: Option<Reading>,
    zone_assumed: bool,
}
