//! Takes the lines of a service out of what carried them: containers (CRI, Docker), `kubectl` and `docker compose`, syslog and the
//! journal, collectors that put a line into a member of a JSON object, and arrays of JSON objects.
//!
//! An envelope is found by the first lines and taken off while the file is read, so that every format is recognised in every
//! envelope. Line numbers stay those of the file: a line that is left out (another program's, a part of a long one) becomes an
//! empty one. Of an array they count its objects.
//!
//! Sources: the layouts of Kubernetes' CRI (`TIME stream P|F line`), Docker's `json-file` driver, RFC 3164 and RFC 5424, and
//! `journalctl -o json`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::Value;

use super::spans::Spans;

/// Lines by which an envelope is found.
const LINES: usize = 200;
/// The longest line with its envelope, bytes: Docker cuts at 16 KiB, which escapes may make six times as long.
const LINE_MAX: u64 = 256 * 1024;
/// Docker divides longer lines, bytes.
const DOCKER_CUTS: usize = 16 * 1024;
/// The longest line that is put together from parts, bytes. What is longer is cut, as lines without an envelope are.
const JOINED_MAX: usize = 64 * 1024;

/// What carried the lines of a service.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Envelope {
    kind: Kind,
    /// The program or the stream whose lines are taken, of a file that has those of several.
    only: Option<String>,
    /// Containers of this program, of those whose lines have their names.
    replicas: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `2026-01-01T00:00:00.1Z stdout F line`
    Container,
    /// A JSON object with the line in a member, written by who is named.
    Member(&'static Collector),
    /// `Nov 28 10:00:00 host nginx[12]: line`, with a priority or without, or RFC 5424.
    Syslog,
    /// `2026-01-01T00:00:00.1Z line`
    Stamped,
    /// `[pod/web-1/nginx] line`
    Pod,
    /// `web-1  | line`
    Compose,
    /// `[{…}, {…}]`
    Array,
    /// `{"resourceSpans":[{"scopeSpans":[{"spans":[{…}]}]}]}`
    Spans,
}

/// Who writes lines into a member of a JSON object.
#[derive(Debug, PartialEq, Eq)]
struct Collector {
    name: &'static str,
    /// The member with the line, and another that such objects have.
    line: &'static str,
    beside: &'static str,
    /// The member that tells streams or programs apart.
    channel: &'static str,
    /// Whether nothing else writes these two members.
    is_sure: bool,
}

const COLLECTORS: &[Collector] = &[
    collector("Docker's json-file", ["log", "stream", "stream"], true),
    collector("Docker's json-file", ["log", "time", "stream"], true),
    collector("the journal", ["MESSAGE", "__REALTIME_TIMESTAMP", "SYSLOG_IDENTIFIER"], true),
    collector("a collector", ["message", "@timestamp", "stream"], false),
    collector("Loki", ["line", "timestamp", "stream"], false),
    collector("Google Cloud's logs", ["textPayload", "timestamp", "logName"], false),
];

const fn collector(name: &'static str, members: [&'static str; 3], is_sure: bool) -> Collector {
    let [line, beside, channel] = members;
    Collector { name, line, beside, channel, is_sure }
}

/// What a line with its envelope holds.
struct Content<'a> {
    /// The program or the stream that wrote it.
    channel: Cow<'a, str>,
    text: Cow<'a, str>,
    /// Whether more of the same line follows.
    is_part: bool,
}

impl<'a> Content<'a> {
    fn of_line(channel: &'a str, text: &'a str) -> Content<'a> {
        Content { channel: channel.into(), text: text.into(), is_part: false }
    }
}

impl Envelope {
    /// The envelope that nine in ten of the first lines have.
    pub fn find(head: &[u8]) -> Option<Envelope> {
        let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
        let begin = head.trim_ascii_start();
        if begin.first() == Some(&b'[') && begin[1..].trim_ascii_start().first() == Some(&b'{') {
            return Some(Envelope { kind: Kind::Array, only: None, replicas: 0 });
        }
        if Spans::begin(begin) {
            return Some(Envelope { kind: Kind::Spans, only: None, replicas: 0 });
        }
        let text = String::from_utf8_lossy(head);
        let mut lines: Vec<&str> =
            text.lines().filter(|line| !line.trim().is_empty()).take(LINES).collect();
        // The last may be cut.
        if lines.len() > 1 && lines.len() < LINES && !head.ends_with(b"\n") {
            lines.pop();
        }
        // The times of requests to Heroku stand before the router's name, and nowhere else.
        if lines.iter().any(|line| line.split(' ').nth(1) == Some(super::known::HEROKU)) {
            return None;
        }
        let members = COLLECTORS.iter().map(Kind::Member);
        let others = [Kind::Container, Kind::Syslog, Kind::Stamped, Kind::Pod, Kind::Compose];
        let kind = others.into_iter().chain(members).find(|kind| {
            let count = lines.iter().filter(|line| kind.content(line).is_some()).count();
            count > 0 && count * 10 >= lines.len() * 9
        })?;
        let mut channels: BTreeMap<String, usize> = BTreeMap::new();
        for content in lines.iter().filter_map(|line| kind.content(line)) {
            *channels.entry(content.channel.into_owned()).or_default() += 1;
        }
        let most = channels.into_iter().max_by_key(|(_, count)| *count).map(|(name, _)| name);
        // Always, not only if the first lines have several: another program's first line may come late.
        let only = most.filter(|name| !name.is_empty());
        let mut replicas: BTreeSet<&str> = BTreeSet::new();
        for line in lines {
            if kind.content(line).is_some_and(|content| Some(&*content.channel) == only.as_deref())
            {
                replicas.extend(kind.replica(line));
            }
        }
        let replicas = replicas.len();
        Some(Envelope { kind, only, replicas })
    }

    /// Whether nothing but an envelope begins so. A time may also be the first word of a format.
    pub fn is_sure(&self) -> bool {
        match self.kind {
            Kind::Container | Kind::Syslog | Kind::Array | Kind::Spans => true,
            Kind::Member(collector) => collector.is_sure,
            Kind::Pod => true,
            Kind::Compose => self.only.is_some(),
            Kind::Stamped => false,
        }
    }

    /// What is to be known of lines of several replicas of a program.
    pub fn remark(&self) -> Option<String> {
        (self.replicas > 1).then(|| {
            format!(
                "Its lines are of {} containers of {}, whose requests count as those of one service: to predict a container, import the lines of \
                 each by themselves.",
                self.replicas,
                super::excerpt::excerpt(self.only.as_deref().unwrap_or_default())
            )
        })
    }

    /// What it is, for messages: `Docker's json-file, stdout`.
    pub fn name(&self) -> String {
        let name = match self.kind {
            Kind::Container => "a container's log (CRI)",
            Kind::Member(collector) => collector.name,
            Kind::Syslog => "syslog",
            Kind::Stamped => "lines behind a time (kubectl logs --timestamps)",
            Kind::Pod => "lines behind a pod's name (kubectl logs --prefix)",
            Kind::Compose => "lines behind a container's name (docker compose logs)",
            Kind::Array => "an array of JSON objects",
            Kind::Spans => "batches of OpenTelemetry's spans",
        };
        match &self.only {
            Some(only) => format!("{name}, {}", super::excerpt::excerpt(only)),
            None => name.to_owned(),
        }
    }

    /// The lines in the first bytes of a file.
    pub fn unwrapped(&self, head: &[u8]) -> Vec<u8> {
        let head = Box::new(io::Cursor::new(head.to_vec()));
        let mut all = Vec::new();
        // Memory does not fail.
        drop(Unwrapped::new(self.clone(), head, Arc::default()).read_to_end(&mut all));
        all
    }
}

impl Kind {
    fn content<'a>(self, line: &'a str) -> Option<Content<'a>> {
        match self {
            Kind::Array | Kind::Spans => None,
            Kind::Container => {
                let (time, rest) = line.split_once(' ')?;
                let (stream, rest) = rest.split_once(' ')?;
                let (flag, text) = rest.split_once(' ').unwrap_or((rest, ""));
                let is_stream = matches!(stream, "stdout" | "stderr");
                if !is_iso(time) || !is_stream || !matches!(flag, "F" | "P") {
                    return None;
                }
                Some(Content { is_part: flag == "P", ..Content::of_line(stream, text) })
            }
            Kind::Member(collector) => member(collector, line),
            Kind::Syslog => {
                let (program, text) = syslog(line)?;
                Some(Content::of_line(program, text))
            }
            Kind::Stamped => {
                let (time, text) = line.split_once(' ')?;
                is_iso(time).then(|| Content::of_line("", text))
            }
            Kind::Pod => {
                let (pod, text) = line.strip_prefix("[pod/")?.split_once("] ")?;
                let container = pod.split_once('/').map_or("", |(_, container)| container);
                (!pod.contains(' ')).then(|| Content::of_line(container, text))
            }
            Kind::Compose => {
                let (name, text) = line.split_once('|')?;
                let is_name = !name.trim_end().is_empty()
                    && !name.trim_end().contains(' ')
                    && name.ends_with(' ');
                // `web-1`, `web_1`; of other names anything may be one.
                let program = name.trim_end().trim_end_matches(|c: char| c.is_ascii_digit());
                let program =
                    program.strip_suffix(['-', '_']).filter(|_| program != name.trim_end());
                let text = text.strip_prefix(' ').unwrap_or(text);
                is_name.then(|| Content::of_line(program.unwrap_or(""), text))
            }
        }
    }

    /// The container of a line whose name stands before it.
    fn replica(self, line: &str) -> Option<&str> {
        match self {
            Kind::Pod => line.strip_prefix("[pod/")?.split(']').next(),
            Kind::Compose => line.split_whitespace().next(),
            _ => None,
        }
    }
}

fn member<'a>(collector: &Collector, line: &str) -> Option<Content<'a>> {
    if !line.starts_with('{') {
        return None;
    }
    let mut object: serde_json::Map<String, Value> = serde_json::from_str(line).ok()?;
    if !object.contains_key(collector.beside) {
        return None;
    }
    let channel = match object.get(collector.channel) {
        Some(Value::String(channel)) => channel.clone(),
        _ => String::new(),
    };
    let text = match object.remove(collector.line)? {
        Value::String(text) => text,
        // The journal writes what is not UTF-8 as an array of bytes.
        Value::Array(bytes) => {
            let bytes = bytes.iter().map(|b| u8::try_from(b.as_u64()?).ok());
            String::from_utf8_lossy(&bytes.collect::<Option<Vec<u8>>>()?).into_owned()
        }
        _ => return None,
    };
    // Docker writes lines with their ends, and cuts longer ones, which have none. Collectors remove the ends of all.
    let is_part = collector.line == "log" && text.len() >= DOCKER_CUTS && !text.ends_with('\n');
    let text = text.trim_end_matches(['\n', '\r']).replace('\n', " ");
    Some(Content { channel: channel.into(), text: text.into(), is_part })
}

/// Whether a word is a time like `2026-11-28T10:00:00.5Z`.
fn is_iso(word: &str) -> bool {
    let shape = b"dddd-dd-ddTdd:dd:dd";
    let fits = |byte: u8, wanted: u8| match wanted {
        b'd' => byte.is_ascii_digit(),
        other => byte == other,
    };
    word.len() >= shape.len() && word.bytes().zip(shape).all(|(byte, wanted)| fits(byte, *wanted))
}

/// The program and the message of a line of syslog.
fn syslog(line: &str) -> Option<(&str, &str)> {
    let prioritised = line.strip_prefix('<').and_then(|rest| rest.split_once('>'));
    let prioritised = prioritised.filter(|(level, _)| level.parse::<u8>().is_ok());
    if let Some(rest) = prioritised.and_then(|(_, rest)| rest.strip_prefix("1 ")) {
        // RFC 5424: time, host, program, process, kind, structured data, message.
        let mut words = rest.splitn(6, ' ');
        let time = words.next()?;
        let program = words.nth(1)?;
        let rest = words.nth(2)?;
        return (is_iso(time) || time == "-").then_some((program, behind_data(rest)?));
    }
    let rest = behind_time(prioritised.map_or(line, |(_, rest)| rest))?;
    let (first, behind) = rest.split_once(' ')?;
    // The host may be left out (nginx: `nohostname`).
    let (tag, text) = match first.strip_suffix(':') {
        Some(tag) => (tag, behind),
        None => {
            let (tag, text) = behind.split_once(' ')?;
            (tag.strip_suffix(':')?, text)
        }
    };
    Some((tag.split('[').next().unwrap_or(tag), text))
}

/// What follows the time of a line of syslog: `Nov 28 10:00:00`, with decimals or without, or ISO 8601.
fn behind_time(line: &str) -> Option<&str> {
    let (first, rest) = line.split_once(' ')?;
    if is_iso(first) {
        return Some(rest);
    }
    let is_month = first.len() == 3 && first.bytes().all(|byte| byte.is_ascii_alphabetic());
    let (day, rest) = rest.trim_start().split_once(' ')?;
    let (time, rest) = rest.split_once(' ')?;
    let is_day = day.parse::<u8>().is_ok_and(|day| (1..=31).contains(&day));
    let is_time = time.len() >= 8
        && time.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'))
        && time.bytes().filter(|byte| *byte == b':').count() == 2;
    (is_month && is_day && is_time).then_some(rest)
}

/// The message behind the structured data of RFC 5424: `-` or `[id name="value"]…`.
fn behind_data(rest: &str) -> Option<&str> {
    if let Some(text) = rest.strip_prefix('-') {
        return Some(text.strip_prefix(' ').unwrap_or(text));
    }
    let (mut is_inside, mut is_quoted, mut is_escaped) = (false, false, false);
    for (at, byte) in rest.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' if is_inside => is_quoted = !is_quoted,
            b'[' if !is_inside => is_inside = true,
            b']' if is_inside && !is_quoted => is_inside = false,
            b' ' if !is_inside => return rest.get(at + 1..),
            _ if is_inside => {}
            _ => return None,
        }
    }
    Some("")
}

/// The lines of a stream without their envelopes.
pub(super) struct Unwrapped {
    envelope: Envelope,
    input: Box<dyn BufRead>,
    /// What is ready, and how much of it has been read.
    out: Vec<u8>,
    read: usize,
    line: Vec<u8>,
    /// The parts so far of a line that was divided.
    joined: String,
    array: Array,
    spans: Spans,
    /// Lines of other programs or streams.
    left_out: Arc<AtomicU64>,
}

/// Where a reader of an array of objects is.
#[derive(Default)]
struct Array {
    /// Open brackets and braces.
    depth: u32,
    is_quoted: bool,
    is_escaped: bool,
}

impl Array {
    /// Writes an object of the array on a line of its own, byte by byte.
    fn push(&mut self, byte: u8, out: &mut Vec<u8>) {
        if self.is_quoted {
            match byte {
                _ if self.is_escaped => self.is_escaped = false,
                b'\\' => self.is_escaped = true,
                b'"' => self.is_quoted = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.is_quoted = true,
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
        match (self.depth, byte) {
            // The end of an object.
            (1, b'}') if !self.is_quoted => out.extend(b"}\n"),
            // Between objects, and the array's own brackets.
            (0 | 1, _) => {}
            (_, b'\n' | b'\r') => out.push(b' '),
            _ => out.push(byte),
        }
    }
}

impl Unwrapped {
    /// The lines of `input`; those left out are counted in `left_out`.
    pub fn new(envelope: Envelope, input: Box<dyn BufRead>, left_out: Arc<AtomicU64>) -> Unwrapped {
        Unwrapped {
            envelope,
            input,
            out: Vec::new(),
            read: 0,
            line: Vec::new(),
            joined: String::new(),
            array: Array::default(),
            spans: Spans::default(),
            left_out,
        }
    }

    /// Makes more ready; `false` at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.out.clear();
        self.read = 0;
        if matches!(self.envelope.kind, Kind::Array | Kind::Spans) {
            let bytes = self.input.fill_buf()?;
            let count = bytes.len();
            match self.envelope.kind {
                Kind::Spans => bytes.iter().for_each(|b| self.spans.push(*b, &mut self.out)),
                _ => bytes.iter().for_each(|byte| self.array.push(*byte, &mut self.out)),
            }
            self.input.consume(count);
            return Ok(count > 0);
        }
        self.line.clear();
        let count = self.input.by_ref().take(LINE_MAX).read_until(b'\n', &mut self.line)?;
        if count == 0 {
            self.out.extend(std::mem::take(&mut self.joined).bytes());
            return Ok(!self.out.is_empty());
        }
        let is_ended = self.line.ends_with(b"\n");
        // Blanks at the end belong to the line: a part may end with one.
        let text = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let text = String::from_utf8_lossy(text.strip_suffix(b"\r").unwrap_or(text));
        let text = text.trim_start_matches('\u{feff}');
        match self.envelope.kind.content(text) {
            // Passed on as it is, to be counted among the lines that cannot be read.
            None => self.out.extend(text.bytes()),
            Some(content) if self.envelope.only.as_ref().is_some_and(|o| *o != content.channel) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
            }
            Some(content) => {
                if self.joined.len() < JOINED_MAX {
                    self.joined.push_str(&content.text);
                }
                if !content.is_part {
                    self.out.extend(std::mem::take(&mut self.joined).bytes());
                }
            }
        }
        if is_ended {
            self.out.push(b'\n');
        }
        Ok(true)
    }
}

impl Read for Unwrapped {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read >= self.out.len() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let ready = self.out.get(self.read..).unwrap_or_default();
        let count = ready.len().min(buffer.len());
        buffer[..count].copy_from_slice(&ready[..count]);
        self.read += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The envelope's name and the lines within it.
    fn check(text: &str, name: &str, lines: &[&str]) {
        let envelope = Envelope::find(text.as_bytes()).unwrap_or_else(|| panic!("{name}"));
        assert!(envelope.name().contains(name), "{}", envelope.name());
        let inner = String::from_utf8(envelope.unwrapped(text.as_bytes())).unwrap();
        assert_eq!(inner.lines().collect::<Vec<_>>(), lines, "{text}");
    }

    #[test]
    fn lines_are_taken_out_of_their_envelopes() {
        check(
            "2026-11-28T10:00:00.1Z stdout F a 1\n2026-11-28T10:00:00.2Z stdout P b \n\
             2026-11-28T10:00:00.2+01:00 stdout F 2\n2026-11-28T10:00:00.3Z stderr F crash\n",
            "CRI), stdout",
            &["a 1", "", "b 2", ""],
        );
        let long = "b".repeat(DOCKER_CUTS);
        check(
            &format!(
                "{{\"log\":\"a \\\"1\\\"\\n\",\"stream\":\"stdout\",\"time\":\"t\"}}\n\
                 {{\"log\":\"{long}\",\"stream\":\"stdout\",\"time\":\"t\"}}\n{{\"log\":\" 2\\n\",\"stream\":\"stdout\"}}\n\
                 {{\"log\":\"c\",\"stream\":\"stdout\"}}\n"
            ),
            "Docker",
            &["a \"1\"", "", &format!("{long} 2"), "c"],
        );
        check(
            "{\"MESSAGE\":\"a\",\"__REALTIME_TIMESTAMP\":\"1\",\"SYSLOG_IDENTIFIER\":\"nginx\"}\n\
             {\"MESSAGE\":[98,32,255],\"__REALTIME_TIMESTAMP\":\"2\",\"SYSLOG_IDENTIFIER\":\"nginx\"}\n",
            "the journal, nginx",
            &["a", "b \u{fffd}"],
        );
        check(
            "Nov  8 10:00:00 host nginx[12]: a [x] 1\n<190>Nov 28 10:00:00.5 nginx: b\n\
             2026-11-28T10:00:00+01:00 host nginx: c\n<30>1 2026-11-28T10:00:00Z host nginx 12 - [a b=\"]\"][c] d\n\
             <30>1 2026-11-28T10:00:00Z host nginx - - - e\nNov 28 10:00:01 host sshd[1]: f\n",
            "syslog, nginx",
            &["a [x] 1", "b", "c", "d", "e", ""],
        );
        check("2026-11-28T10:00:00Z a\n2026-11-28T10:00:01Z b\n", "--timestamps", &["a", "b"]);
        check("[pod/web-1/nginx] a b\n[pod/web-2/nginx] c\n", "--prefix", &["a b", "c"]);
        check("web-1  | a b\nweb-10 | c\n", "compose", &["a b", "c"]);
        check(
            " [ {\"a\": 1,\n \"b\": [\"}\\\"\", {}]},\n{\"a\":2} ]\n",
            "array",
            &["{\"a\": 1,  \"b\": [\"}\\\"\", {}]}", "{\"a\":2}"],
        );
    }

    #[test]
    fn lines_without_an_envelope_have_none() {
        for text in [
            "::1 - - [28/Nov/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5 0.010\n",
            "1700000000.000 200 0.010\n",
            "{\"time\":1,\"status\":200}\n",
            "[2026-11-28T10:00:00.000Z] \"GET / HTTP/1.1\" 200\n",
            "",
            "[",
        ] {
            assert_eq!(Envelope::find(text.as_bytes()), None, "{text}");
        }
    }

    /// A file that ends within a line, or has lines of another kind, keeps them: they are counted as broken.
    #[test]
    fn strange_lines_are_kept() {
        let mut text = "Nov 28 10:00:00 host nginx: a\n".repeat(20);
        text += "panic: here\nNov 28 10:0";
        let envelope = Envelope::find(text.as_bytes()).unwrap();
        let inner = String::from_utf8(envelope.unwrapped(text.as_bytes())).unwrap();
        assert!(inner.ends_with("a\npanic: here\nNov 28 10:0"), "{inner}");
    }

    proptest! {
        /// Objects are found again, however they were written.
        #[test]
        fn arrays_are_divided_as_a_parser_divides_them(
            texts in prop::collection::vec("[\\[\\]{}\",\\\\a\n]{0,9}", 1..9), pretty: bool,
        ) {
            let all: Vec<Value> = texts.iter().map(|t| serde_json::json!({ "t": t, "u": [{ "v": t }] })).collect();
            let text = if pretty { serde_json::to_string_pretty(&all) } else { serde_json::to_string(&all) }.unwrap();
            let inner = Envelope::find(text.as_bytes()).unwrap().unwrapped(text.as_bytes());
            let lines = inner.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let found: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
            prop_assert_eq!(found, all);
        }

        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..200), first in 0usize..6,
        ) {
            let begins = ["", "[{", "<1>1 ", "Nov 28 10:00:00 ", "2026-11-28T10:00:00Z stdout P ", "{\"log\":\"a\",\"stream\":1}\n"];
            let text = [begins[first].as_bytes(), &bytes].concat();
            if let Some(envelope) = Envelope::find(&text) {
                envelope.unwrapped(&text);
            }
        }
    }
}
