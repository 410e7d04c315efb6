//! Format strings of logs, as servers' configurations have them: nginx (`$request_time`), Apache and Varnish (`%D`,
//! `%{ms}T`), Envoy (`%DURATION%`), HAProxy (`%Ta`) and `curl -w` (`%{time_total}`).

use std::borrow::Cow;

use super::error::Error;
use super::excerpt::excerpt;
use super::split::Fault;

/// A piece of a format.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Literal(String),
    /// A variable, by its place among the names.
    Variable(usize),
}

/// A parsed format.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    dialect: Dialect,
    parts: Vec<Part>,
    /// The variables in the order of their places, without `$` or `%`: `request_time`, `D`, `{ms}T`, `DURATION`, `>s`.
    pub names: Vec<String>,
}

/// Which program's language a format is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Nginx,
    Apache,
    Envoy,
    Haproxy,
    Curl,
}

fn dialect(text: &str) -> Dialect {
    let envoy = ["%START_TIME", "%DURATION%", "%RESPONSE_CODE%", "%REQ(", "%RESPONSE_DURATION%"];
    let haproxy = ["%Ta", "%Tt", "%TR", "%ST", "%ci", "%tr", "%HM", "%HU"];
    let has = |marks: &[&str]| marks.iter().any(|mark| text.contains(mark));
    if has(&envoy) {
        Dialect::Envoy
    } else if has(&["%{time_", "%{http_code}", "%{response_code}", "%{url"]) {
        Dialect::Curl
    } else if has(&haproxy) {
        Dialect::Haproxy
    } else if text.contains('%') && !text.contains('$') {
        Dialect::Apache
    } else {
        Dialect::Nginx
    }
}

/// The pieces in quotes at the beginning of a text, of either kind, joined, and what follows the last. A backslash keeps a quote or
/// another backslash from its meaning; before other characters it is one of the format.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut joined, mut rest, mut count) = (String::new(), text.trim_start(), 0);
    while let Some(quote) = rest.chars().next().filter(|c| matches!(c, '\'' | '"')) {
        let mut inner = rest[1..].char_indices().peekable();
        let end = loop {
            match inner.next()? {
                (at, c) if c == quote => break at,
                (_, '\\') if inner.peek().is_some_and(|(_, c)| matches!(c, '\'' | '"' | '\\')) => {
                    joined.extend(inner.next().map(|(_, c)| c));
                }
                (_, c) => joined.push(c),
            }
        };
        rest = rest.get(end + 2..)?.trim_start();
        count += 1;
    }
    (count > 0).then_some((joined, rest))
}

/// The format in a line of a configuration (`log_format NAME '…' '…';`, `LogFormat "…" NAME`, `log-format "…"`), or in its quotes
/// alone; any other text is the format itself.
fn format_of(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    let word = |text: &str| text.split_whitespace().next().unwrap_or("").to_owned();
    let after = |text: &'_ str, word: &str| text.trim_start()[word.len()..].trim_start().to_owned();
    let directive = word(trimmed);
    let is_end = |rest: &str| rest.is_empty() || rest == ";";
    let found = match directive.as_str() {
        "log_format" => {
            let mut rest = after(trimmed, &directive);
            rest = after(&rest, &word(&rest));
            if rest.starts_with("escape=") {
                rest = after(&rest, &word(&rest));
            }
            quoted(&rest).filter(|(_, end)| is_end(end)).map(|(format, _)| format)
        }
        "LogFormat" | "log-format" => quoted(&after(trimmed, &directive)).map(|(format, _)| format),
        // Double quotes are more likely those of the log.
        _ if trimmed.starts_with('\'') => {
            quoted(trimmed).filter(|(_, end)| is_end(end)).map(|(format, _)| format)
        }
        _ => None,
    };
    found.map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Times that are written with a blank between the day and the zone.
const WITH_BLANK: [&str; 5] = ["time_local", "T", "Tl", "trg", "trl"];

fn failed(reason: impl Into<String>) -> Error {
    Error::Format { reason: reason.into() }
}

impl Dialect {
    fn mark(self) -> char {
        if self == Dialect::Nginx { '$' } else { '%' }
    }

    /// The variable that stands behind a mark, and what follows it.
    fn variable(self, after: &str) -> Result<(String, &str), Error> {
        let plain = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
        let braced = |after: &str| -> Result<Option<(String, usize)>, Error> {
            let Some(inner) = after.strip_prefix('{') else { return Ok(None) };
            let end = inner
                .find('}')
                .ok_or_else(|| failed(format!("a `{}{{` is not closed by `}}`", self.mark())))?;
            Ok(Some((inner.get(..end).unwrap_or_default().to_owned(), end + 2)))
        };
        let split = |at: usize| (after.get(..at).unwrap_or(after), after.get(at..).unwrap_or(""));
        match self {
            Dialect::Nginx | Dialect::Curl => {
                if let Some((name, length)) = braced(after)? {
                    return Ok((name, split(length).1));
                }
                if self == Dialect::Curl && after.starts_with("time{") {
                    let end = after.find('}').unwrap_or(after.len().saturating_sub(1));
                    return Ok(("time".to_owned(), split(end + 1).1));
                }
                let (name, rest) = split(after.find(plain).unwrap_or(after.len()));
                Ok((name.to_owned(), rest))
            }
            Dialect::Envoy => {
                // `%START_TIME(%s.%3f)%` has marks within its brackets.
                let mut depth = 0;
                for (at, c) in after.char_indices() {
                    match c {
                        '(' => depth += 1,
                        ')' => depth -= 1,
                        '%' if depth <= 0 => {
                            let (name, rest) = split(at);
                            let short = name.split(['(', ':']).next().unwrap_or(name);
                            let is_header = short == "REQ" || short == "RESP";
                            let name = if is_header { name } else { short };
                            return Ok((name.to_owned(), rest.get(1..).unwrap_or("")));
                        }
                        _ => {}
                    }
                }
                Err(failed("a `%` is not closed by another, as Envoy's variables are"))
            }
            Dialect::Haproxy => {
                let length = braced(after)?.map_or(0, |(_, length)| length);
                let rest = split(length).1;
                if rest.starts_with('[') {
                    let end = rest.find(']').map_or(rest.len(), |end| end + 1);
                    return Ok((String::new(), rest.get(end..).unwrap_or("")));
                }
                let end = rest.find(plain).unwrap_or(rest.len());
                Ok((rest[..end].to_owned(), rest.get(end..).unwrap_or("")))
            }
            Dialect::Apache => {
                // `%!404{Referer}i`, `%>s`, `%{ms}T`: conditions and `<` or `>`, then braces, then a letter.
                let from = after
                    .find(|c: char| !matches!(c, '!' | '<' | '>' | ',' | '0'..='9'))
                    .unwrap_or(after.len());
                let rest = split(from).1;
                let (name, length) =
                    braced(rest)?.map_or((String::new(), 0), |(n, l)| (format!("{{{n}}}"), l));
                let rest = rest.get(length..).unwrap_or("");
                let mut letters = rest.chars();
                // Of two letters are `%^ti` and its kin.
                let count = if letters.next() == Some('^') { 3 } else { 1 };
                let end = rest.char_indices().nth(count).map_or(rest.len(), |(at, _)| at);
                let (letter, left) = rest.split_at(end);
                Ok((format!("{name}{letter}"), left))
            }
        }
    }
}

impl Template {
    /// Parses a format.
    ///
    /// # Errors
    /// [`Error::Format`] if a variable has no name or two are adjacent.
    pub fn parse(text: &str) -> Result<Template, Error> {
        let text = format_of(text);
        let dialect = dialect(&text);
        let mark = dialect.mark();
        let mut template = Template { dialect, parts: Vec::new(), names: Vec::new() };
        let mut literal = String::new();
        let mut rest = &*text;
        while let Some(at) = rest.find(mark) {
            let (before, after) = rest.split_at(at);
            literal.push_str(before);
            let after = after.strip_prefix(mark).unwrap_or(after);
            if mark == '%' && after.starts_with('%') {
                literal.push('%');
                rest = &after[1..];
                continue;
            }
            let (name, left) = dialect.variable(after)?;
            // What HAProxy puts in quotes.
            let is_quoted = dialect == Dialect::Haproxy && after.starts_with("{+Q");
            if is_quoted {
                literal.push('"');
            }
            if name.is_empty() && dialect != Dialect::Haproxy {
                return Err(failed(format!(
                    "a `{mark}` is not followed by the name of a variable"
                )));
            }
            if dialect == Dialect::Apache && matches!(name.as_str(), "t") {
                // Apache writes its time in brackets.
                literal.push('[');
            }
            if !literal.is_empty() {
                template.parts.push(Part::Literal(std::mem::take(&mut literal)));
            } else if matches!(template.parts.last(), Some(Part::Variable(_))) {
                return Err(failed(format!(
                    "`{mark}{name}` follows another variable without text between them, so its start is \
                     ambiguous"
                )));
            }
            if dialect == Dialect::Apache && matches!(name.as_str(), "t") {
                literal.push(']');
            }
            if is_quoted {
                literal.push('"');
            }
            template.parts.push(Part::Variable(template.names.len()));
            template.names.push(name);
            rest = left;
        }
        literal.push_str(rest);
        // curl's formats end in the two characters `\n`, and end a line.
        let literal = literal.strip_suffix("\\n").unwrap_or(&literal).trim_end_matches('\n');
        if !literal.is_empty() {
            template.parts.push(Part::Literal(literal.to_owned()));
        }
        Ok(template)
    }

    /// Whether its variables are those of HAProxy.
    pub fn is_of_haproxy(&self) -> bool {
        self.dialect == Dialect::Haproxy
    }

    /// Whether the values of a variable have a blank in them.
    fn has_blank(&self, variable: usize) -> bool {
        let is_dialect = matches!(self.dialect, Dialect::Haproxy | Dialect::Nginx);
        is_dialect && self.names.get(variable).is_some_and(|name| WITH_BLANK.contains(&&**name))
    }

    /// Where the value of a variable ends, which a literal follows; `None` if the literal is not there.
    fn end(&self, variable: usize, is_quoted: bool, rest: &str, literal: &str) -> Option<usize> {
        let blank = if self.has_blank(variable) { rest.find(' ') } else { None };
        let from = blank.map_or(0, |blank| blank + 1);
        let ends = || rest[from..].match_indices(literal).map(|(at, _)| from + at);
        if is_quoted && literal.starts_with('"') {
            // Servers write a quote within as `\"`. Where none is left, the text ends in a backslash.
            return ends().find(|at| !is_escaped(&rest[..*at])).or_else(|| ends().next());
        }
        if self.is_list(variable) && literal.starts_with(' ') {
            let goes_on = |at: &usize| {
                let (value, after) = rest.split_at(*at);
                value.ends_with([',', ':']) || after.starts_with(" : ")
            };
            return ends().find(|at| !goes_on(at));
        }
        ends().next()
    }

    /// Whether a variable has a value for each attempt, between which nginx writes `, ` and ` : `.
    fn is_list(&self, variable: usize) -> bool {
        let is_upstream = |name: &String| name.starts_with("upstream_");
        self.dialect == Dialect::Nginx && self.names.get(variable).is_some_and(is_upstream)
    }

    /// The values of a line's variables, in the order of their names.
    pub fn values<'a>(&self, line: &'a str) -> Result<Vec<&'a str>, Fault> {
        const KIND: &str = "a line does not have the format";
        let fault = |detail: String| Fault::new(KIND, detail);
        let mut values = vec![""; self.names.len()];
        let (mut rest, mut is_quoted) = (line, false);
        let mut parts = self.parts.iter().peekable();
        while let Some(part) = parts.next() {
            match part {
                Part::Literal(text) => {
                    is_quoted = text.ends_with('"');
                    rest = rest.strip_prefix(text.as_str()).ok_or_else(|| {
                        fault(format!("`{text}` expected at `{}`", excerpt(rest)))
                    })?;
                }
                Part::Variable(index) => {
                    let end = match parts.peek() {
                        Some(Part::Literal(text)) => {
                            let end = self.end(*index, is_quoted, rest, text);
                            end.ok_or_else(|| {
                                fault(format!("`{text}` expected after `{}`", excerpt(rest)))
                            })?
                        }
                        _ => rest.len(),
                    };
                    let (value, left) = rest.split_at(end);
                    if let Some(field) = values.get_mut(*index) {
                        *field = value;
                    }
                    rest = left;
                }
            }
        }
        if rest.is_empty() {
            Ok(values)
        } else {
            Err(fault(format!("unexpected text after the last variable: `{}`", excerpt(rest))))
        }
    }
}

/// Whether a text ends in a backslash that is no other's.
fn is_escaped(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_read_as(format: &str, line: &str, expected: &[&str]) {
        let template = Template::parse(format).unwrap();
        let values = template.values(line).unwrap();
        let read = template.names.iter().zip(values).map(|(n, v)| format!("{n}={v}"));
        assert_eq!(read.collect::<Vec<_>>(), expected, "{format}");
    }

    #[test]
    fn the_languages_of_servers_are_read() {
        for (format, line, expected) in [
            (
                "$msec [${request_time}] $x",
                "1.5 [0.1] y",
                vec!["msec=1.5", "request_time=0.1", "x=y"],
            ),
            (
                "%h %l %u %t \"%r\" %>s %b %{ms}T %D",
                "::1 - - [22/Nov/2026:04:15:00 +0000] \"GET / HTTP/1.1\" 200 5 12 12345",
                vec![
                    "h=::1",
                    "l=-",
                    "u=-",
                    "t=22/Nov/2026:04:15:00 +0000",
                    "r=GET / HTTP/1.1",
                    "s=200",
                    "b=5",
                    "{ms}T=12",
                    "D=12345",
                ],
            ),
            (
                "[%START_TIME(%s.%3f)%] %REQ(:METHOD)% %DURATION%",
                "[1.250] GET 12",
                vec!["START_TIME=1.250", "REQ(:METHOD)=GET", "DURATION=12"],
            ),
            (
                "%ci:%cp [%tr] %TR/%Tw/%Tc/%Tr/%Ta %ST %{+Q}r",
                "10.0.0.1:80 [x] 0/0/1/2/3 200 \"GET\"",
                vec![
                    "ci=10.0.0.1",
                    "cp=80",
                    "tr=x",
                    "TR=0",
                    "Tw=0",
                    "Tc=1",
                    "Tr=2",
                    "Ta=3",
                    "ST=200",
                    "r=GET",
                ],
            ),
            (
                "%{time_total} %{http_code}\\n",
                "0.012345 200",
                vec!["time_total=0.012345", "http_code=200"],
            ),
        ] {
            is_read_as(format, line, &expected);
        }
    }

    #[test]
    fn lines_of_configurations_are_formats() {
        for (format, line, expected) in [
            (
                "$time_local $status '$x'",
                "22/Nov/2026:04:15:00 +0000 200 'y'",
                vec!["time_local=22/Nov/2026:04:15:00 +0000", "status=200", "x=y"],
            ),
            (
                "log_format timed escape=default '$msec $status '\n  '\"$request\" $request_time';",
                "1.5 200 \"GET / HTTP/1.1\" 0.1",
                vec!["msec=1.5", "status=200", "request=GET / HTTP/1.1", "request_time=0.1"],
            ),
            (
                "LogFormat \"%h \\\"%r\\\" %>s %D\" timed",
                "::1 \"GET / HTTP/1.1\" 200 5",
                vec!["h=::1", "r=GET / HTTP/1.1", "s=200", "D=5"],
            ),
            ("'$msec ' '$request_time'", "1.5 0.1", vec!["msec=1.5", "request_time=0.1"]),
            ("\"$request\" \"$msec\"", "\"GET\" \"1.5\"", vec!["request=GET", "msec=1.5"]),
            (
                "log-format \"%T %ST %Ta\"",
                "9/Dec/2013:12:59:46 +0000 200 5",
                vec!["T=9/Dec/2013:12:59:46 +0000", "ST=200", "Ta=5"],
            ),
        ] {
            is_read_as(format, line, &expected);
        }
    }

    /// What a client sends decides where its text ends, and a retry has several values.
    #[test]
    fn values_end_where_servers_end_them() {
        let apache = "\"%r\" %>s \"%{User-Agent}i\" %D";
        for (line, expected) in [
            (
                r#""GET / HTTP/1.1" 200 "Moz \" 77 8" 32000"#,
                ["GET / HTTP/1.1", "200", r#"Moz \" 77 8"#, "32000"],
            ),
            (
                r#""GET /a?b=\" 500 HTTP/1.1" 200 "c" 5"#,
                [r#"GET /a?b=\" 500 HTTP/1.1"#, "200", "c", "5"],
            ),
            (r#""GET / HTTP/1.1" 200 "c:\\" 5"#, ["GET / HTTP/1.1", "200", r"c:\\", "5"]),
            (r#""GET / HTTP/1.1" 200 "c:\" 5"#, ["GET / HTTP/1.1", "200", r"c:\", "5"]),
        ] {
            assert_eq!(Template::parse(apache).unwrap().values(line).unwrap(), expected, "{line}");
        }
        let nginx = "$upstream_addr $upstream_response_time $request_time $gzip_ratio";
        for (line, expected) in [
            ("- - 0.001 -", ["-", "-", "0.001", "-"]),
            ("a:1, b:2 0.100, 0.050 0.150 -", ["a:1, b:2", "0.100, 0.050", "0.150", "-"]),
            (
                "a:1 : b:2, c:3 0.1 : 0.2, 0.3 0.6 2.15",
                ["a:1 : b:2, c:3", "0.1 : 0.2, 0.3", "0.6", "2.15"],
            ),
        ] {
            assert_eq!(Template::parse(nginx).unwrap().values(line).unwrap(), expected, "{line}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_formats_never_panic(format in ".{0,60}", mark in "[$%{}()A-Za-z>\\[\\]: ]{0,40}",
                                         line in ".{0,60}") {
            for text in [format, mark] {
                if let Ok(template) = Template::parse(&text) {
                    let _ = template.values(&line);
                }
            }
        }
    }
}
