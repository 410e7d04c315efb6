//! Reads request traces: CSV files with the columns `time_ms,key,size,op`, plain or compressed with
//! zstd.
//!
//! Each line is a request; an empty field is unknown. `time_ms` counts from the first request and
//! may have decimals. Keys are text in which only `,` and `"` are percent-encoded; other percent
//! signs belong to the key. `op` is `get`, `head`, `put` or `delete`, or one of the names that
//! memcached and HTTP have for these (`set`, `post` …); empty means get. Lines of operations on no
//! object (`options`, `stats` …) are skipped and counted. A malformed line is an error with its
//! number, or is skipped and counted if the caller chooses so.
//!
//! Memory: 24 bytes for each request that is kept, and each distinct key once.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use ground::window::{Nanos, Operation, SECOND};

use crate::Error;
use crate::zst;

/// The first line of a trace.
pub const HEADER: &str = "time_ms,key,size,op";
/// The longest line that is accepted.
const LINE_MAX: u64 = 64 * 1024;

/// A request of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Time since the trace's first request, if known.
    pub time: Option<Nanos>,
    /// Index of the key in [`Trace::key`].
    pub key: u32,
    /// Size of the object in bytes, if known.
    pub size: Option<u32>,
    /// The operation; a get if unknown.
    pub operation: Operation,
}

/// Rows of a trace, and their keys.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The selected rows, in order.
    pub rows: Vec<Row>,
    /// The number of malformed lines skipped.
    pub broken: u64,
    /// The number of lines skipped because their operation neither reads nor writes an object, by
    /// operation.
    pub skipped: BTreeMap<&'static str, u64>,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Trace {
    /// The times of the rows, 0 where a row states none. Sources often state whole seconds: rows that
    /// share a time are spread evenly over the time until the next one, but at most over a second, because
    /// thousands of requests at one moment are a burst that never was.
    pub fn times_spread(&self) -> Vec<Nanos> {
        let mut times: Vec<Nanos> = self.rows.iter().map(|row| row.time.unwrap_or(0)).collect();
        let mut from = 0;
        while from < times.len() {
            let at = times[from];
            let same = times[from..].iter().take_while(|time| **time == at).count();
            let next = times.get(from + same).map_or(at + SECOND, |next| *next);
            let gap = next.saturating_sub(at).min(SECOND);
            for (place, time) in times[from..from + same].iter_mut().enumerate() {
                *time = at + gap * place as Nanos / same as Nanos;
            }
            from += same;
        }
        times
    }

    /// Reads the rows `slice` of a file, or all if `None`. Rows are counted from 0, without
    /// malformed lines and those of other operations. A file whose name ends in `.zst` is decompressed. With `skip_broken`,
    /// malformed lines are skipped and counted instead of being errors.
    pub fn open(path: &Path, slice: Option<Range<u64>>, skip_broken: bool) -> Result<Trace, Error> {
        let failed = |source| Error::File { path: path.to_owned(), source };
        let file = crate::file::open(path).map_err(failed)?;
        let input: Box<dyn Read> = if path.extension().is_some_and(|e| e == "zst") {
            Box::new(zst::Decoder::new(file))
        } else {
            Box::new(file)
        };
        Trace::read(BufReader::with_capacity(1 << 17, input), path, slice, skip_broken)
    }

    /// As [`Trace::open`], from bytes; `path` is for messages.
    pub fn read(
        mut input: impl BufRead,
        path: &Path,
        slice: Option<Range<u64>>,
        skip_broken: bool,
    ) -> Result<Trace, Error> {
        let mut trace = Trace::default();
        let mut keys: HashMap<Box<[u8]>, u32> = HashMap::new();
        let (mut line, mut row) = (Vec::new(), 0);
        for number in 1.. {
            line.clear();
            let read = input.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
            let count = read.map_err(|source| Error::File { path: path.to_owned(), source })?;
            let broken =
                |reason: String| Error::Line { path: path.to_owned(), line: number, reason };
            if count as u64 == LINE_MAX && line.last() != Some(&b'\n') {
                return Err(broken(format!("longer than {LINE_MAX} bytes")));
            }
            if number == 1 {
                if trimmed(&line) != HEADER.as_bytes() {
                    return Err(broken(format!("the first line must be `{HEADER}`")));
                }
                continue;
            }
            if count == 0 || slice.as_ref().is_some_and(|s| row >= s.end) {
                break;
            }
            let parsed = parse_line(trimmed(&line));
            let parsed = match parsed {
                Ok(Parsed::Request(parsed)) => parsed,
                Ok(Parsed::Other(operation)) => {
                    *trace.skipped.entry(operation).or_insert(0) += 1;
                    continue;
                }
                Err(_) if skip_broken => {
                    trace.broken += 1;
                    continue;
                }
                Err(reason) => return Err(broken(reason)),
            };
            if slice.as_ref().is_none_or(|s| s.contains(&row)) {
                trace.push(parsed, &mut keys).map_err(broken)?;
            }
            row += 1;
        }
        if let Some(slice) = slice.filter(|s| row < s.end || s.is_empty()) {
            return Err(Error::Rows {
                path: path.to_owned(),
                rows: row,
                from: slice.start,
                to: slice.end,
            });
        }
        Ok(trace)
    }

    fn push(&mut self, line: Line<'_>, keys: &mut HashMap<Box<[u8]>, u32>) -> Result<(), String> {
        let decoded = decode_key(line.key);
        let key = match keys.get(decoded.as_slice()) {
            Some(&key) => key,
            None => {
                let key = u32::try_from(keys.len()).map_err(|_| "too many distinct keys")?;
                self.text.extend_from_slice(&decoded);
                self.ends.push(self.text.len());
                keys.insert(decoded.into_boxed_slice(), key);
                key
            }
        };
        self.rows.push(Row { time: line.time, key, size: line.size, operation: line.operation });
        Ok(())
    }

    /// Spreads requests of the same time evenly over the trace's resolution, which is the least
    /// time between two different times of consecutive requests. A trace that states whole seconds
    /// would otherwise be a burst at each second. No request comes before the one ahead of it.
    pub fn spread_times(&mut self) {
        let times = self.rows.windows(2).filter_map(|two| two[1].time?.checked_sub(two[0].time?));
        let Some(resolution) = times.filter(|&time| time > 0).min() else { return };
        for run in self.rows.chunk_by_mut(|a, b| a.time == b.time) {
            let length = run.len() as u64;
            for (row, place) in run.iter_mut().zip(0..) {
                row.time = row.time.map(|time| time + resolution / length * place);
            }
        }
    }

    /// What was skipped because it neither reads nor writes an object, as a sentence; `None` if nothing
    /// was.
    pub fn skipped_text(&self) -> Option<String> {
        let lines: u64 = self.skipped.values().sum();
        let each: Vec<String> = self.skipped.iter().map(|(op, n)| format!("{n} `{op}`")).collect();
        let all = lines + self.rows.len() as u64;
        (lines > 0).then(|| {
            format!(
                "{lines} of {all} lines neither read nor write an object and are skipped: {}",
                each.join(", ")
            )
        })
    }

    /// The number of distinct keys.
    pub fn keys(&self) -> usize {
        self.ends.len()
    }

    /// A key by its index; empty if the index is out of range.
    pub fn key(&self, index: u32) -> &[u8] {
        let index = index as usize;
        let from = index.checked_sub(1).and_then(|i| self.ends.get(i)).copied().unwrap_or(0);
        let to = self.ends.get(index).copied().unwrap_or(from);
        self.text.get(from..to).unwrap_or_default()
    }
}

/// Operations that neither read nor write an object, of HTTP, WebDAV, memcached and Redis.
const OTHERS: [&str; 15] = [
    "options",
    "trace",
    "connect",
    "propfind",
    "proppatch",
    "mkcol",
    "lock",
    "unlock",
    "stats",
    "version",
    "flush_all",
    "verbosity",
    "quit",
    "noop",
    "ping",
];

enum Parsed<'a> {
    Request(Line<'a>),
    /// Of this operation, one of [`OTHERS`].
    Other(&'static str),
}

struct Line<'a> {
    time: Option<Nanos>,
    key: &'a [u8],
    size: Option<u32>,
    operation: Operation,
}

fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn parse_line(line: &[u8]) -> Result<Parsed<'_>, String> {
    let mut fields = line.split(|&b| b == b',');
    let mut next = |name: &str| {
        fields.next().ok_or_else(|| format!("four fields `{HEADER}` expected, `{name}` is missing"))
    };
    let (time, key, size, op) = (next("time_ms")?, next("key")?, next("size")?, next("op")?);
    if fields.next().is_some() {
        return Err("more than four fields (a `,` in a key is written %2C)".to_owned());
    }
    let shown = |field: &[u8]| String::from_utf8_lossy(field).chars().take(40).collect::<String>();
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if key.contains(&b'"') || std::str::from_utf8(key).is_err() {
        return Err(format!("key `{}`: UTF-8 expected, with `\"` written %22", shown(key)));
    }
    let time = match time {
        [] => None,
        text => Some(
            parse_time(text).ok_or_else(|| format!("time_ms `{}` is not a time", shown(text)))?,
        ),
    };
    let size = match size {
        [] => None,
        text => Some(
            std::str::from_utf8(text)
                .ok()
                .filter(|t| t.bytes().all(|b| b.is_ascii_digit()))
                .and_then(|t| t.parse().ok())
                .ok_or_else(|| format!("size `{}` is not a number of bytes", shown(text)))?,
        ),
    };
    let operation = match op {
        b"" | b"get" | b"gets" => Operation::Get,
        b"head" => Operation::Head,
        b"put" | b"post" | b"patch" | b"set" | b"add" | b"replace" | b"cas" | b"append"
        | b"prepend" | b"incr" | b"decr" => Operation::Put,
        b"delete" => Operation::Delete,
        other => {
            let known = OTHERS.into_iter().find(|name| name.as_bytes() == other);
            return known.map(Parsed::Other).ok_or_else(|| {
                format!("op `{}`: get, head, put, post or delete expected", shown(other))
            });
        }
    };
    Ok(Parsed::Request(Line { time, key, size, operation }))
}

/// Parses milliseconds with decimals into nanoseconds. At most a century.
fn parse_time(text: &[u8]) -> Option<Nanos> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) {
        return None;
    }
    let whole: u64 = whole.parse().ok().filter(|&ms| ms < 3_200_000_000_000)?;
    let nanos = part.bytes().chain(std::iter::repeat(b'0')).take(6);
    let nanos = nanos.fold(0u64, |n, digit| n * 10 + u64::from(digit - b'0'));
    Some(whole * 1_000_000 + nanos)
}

/// Decodes the percent-encoding of `,` and `"` only.
fn decode_key(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((&byte, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(b"%2C").or_else(|| rest.strip_prefix(b"%2c")) {
            out.push(b',');
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix(b"%22") {
            out.push(b'"');
            rest = tail;
        } else {
            out.push(byte);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &[u8], slice: Option<Range<u64>>, skip: bool) -> Result<Trace, String> {
        Trace::read(text, Path::new("t.csv"), slice, skip).map_err(|e| e.to_string())
    }

    const GOOD: &str =
        "time_ms,key,size,op\n0,a,5,\n0.25,/x%2Cy%22%7E,,put\r\n,a,7,head\n1000,-3,0,get";

    #[test]
    fn rows_of_one_second_are_spread_over_it() {
        let rows = |times: &str| {
            let lines: String = times.split(' ').map(|time| format!("{time},a,1,get\n")).collect();
            let text = format!("{HEADER}\n{lines}");
            let times = read(text.as_bytes(), None, false).unwrap().times_spread();
            times.iter().map(|time| time / 1_000_000).collect::<Vec<_>>()
        };
        assert_eq!(rows("0 0 1000 1000 1000 1000 9000"), [0, 500, 1000, 1250, 1500, 1750, 9000]);
        // Known better than that: as stated.
        assert_eq!(rows("0 3 4 4 6"), [0, 3, 4, 5, 6]);
        assert_eq!(rows("5000 5000 90000 90000"), [5000, 5500, 90_000, 90_500]);
        assert!(Trace::default().times_spread().is_empty());
    }

    #[test]
    fn rows_are_what_the_lines_say() {
        let trace = read(GOOD.as_bytes(), None, false).unwrap();
        let keys: Vec<_> = trace.rows.iter().map(|r| trace.key(r.key)).collect();
        assert_eq!(keys, [&b"a"[..], b"/x,y\"%7E", b"a", b"-3"]);
        assert_eq!(trace.keys(), 3);
        assert_eq!(trace.rows[1].time, Some(250_000));
        assert_eq!(trace.rows[2].time, None);
        assert_eq!(trace.rows[1].operation, Operation::Put);
        assert_eq!(trace.rows[0].operation, Operation::Get);
        assert_eq!(trace.rows[1].size, None);
        let slice = read(GOOD.as_bytes(), Some(1..3), false).unwrap();
        assert_eq!(slice.rows.len(), 2);
        assert_eq!(slice.key(1), b"a");
        assert_eq!(slice.key(9), b"");
        let error = read(GOOD.as_bytes(), Some(1..9), false).unwrap_err();
        assert_eq!(error, "t.csv has 4 requests, but rows 1..9 were selected");
    }

    #[test]
    fn operations_on_no_object_are_skipped_and_counted() {
        let text =
            format!("{HEADER}\n0,a,1,get\n1,*,,options\n2,a,1,set\n3,*,0,options\n4,b,,ping\n");
        let trace = read(text.as_bytes(), None, false).unwrap();
        let operations: Vec<_> = trace.rows.iter().map(|r| r.operation).collect();
        assert_eq!(operations, [Operation::Get, Operation::Put]);
        assert_eq!(
            trace.skipped_text().unwrap(),
            "3 of 5 lines neither read nor write an object and are skipped: 2 `options`, 1 `ping`"
        );
        assert_eq!(read(text.as_bytes(), Some(1..2), false).unwrap().rows.len(), 1);
        assert_eq!(read(GOOD.as_bytes(), None, false).unwrap().skipped_text(), None);
    }

    #[test]
    fn requests_of_one_second_are_spread_over_it() {
        let text =
            format!("{HEADER}\n0,a,,\n0,b,,\n1000,c,,\n5000,d,,\n5000,e,,\n5000,f,,\n,g,,\n");
        let mut trace = read(text.as_bytes(), None, false).unwrap();
        trace.spread_times();
        let times: Vec<_> =
            trace.rows.iter().map(|row| row.time.map(|ns| ns / 1_000_000)).collect();
        let expected = [0, 500, 1000, 5000, 5333, 5666].map(Some);
        assert_eq!(times, [&expected[..], &[None]].concat());
        let mut one = read(format!("{HEADER}\n0,a,,\n0,a,,\n").as_bytes(), None, false).unwrap();
        one.spread_times();
        assert_eq!(one.rows[1].time, Some(0), "the resolution is unknown");
    }

    #[test]
    fn broken_lines_are_named_or_counted() {
        for (line, expected) in [
            ("1,a", "`size` is missing"),
            ("1,a,1,get,x", "more than four"),
            ("x,a,1,get", "time_ms `x`"),
            ("1,a,-1,get", "size `-1`"),
            ("1,,1,get", "key is empty"),
            ("1,a,1,GET", "op `GET`"),
            ("1,\"a\",1,get", "key `\"a\"`"),
            ("", "`key` is missing"),
        ] {
            let text = format!("{HEADER}\n0,k,1,get\n{line}\n0,k,1,get\n");
            let error = read(text.as_bytes(), None, false).unwrap_err();
            assert!(error.starts_with("t.csv, line 3: ") && error.contains(expected), "{error}");
            let trace = read(text.as_bytes(), None, true).unwrap();
            assert_eq!((trace.rows.len(), trace.broken), (2, 1), "{line}");
        }
        assert!(read(b"", None, false).unwrap_err().contains("line 1: the first line must be"));
        assert!(read(b"a,b\n", None, true).is_err());
    }

    #[test]
    fn compressed_files_are_read_and_truncated_ones_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv.zst");
        let body: String =
            (0..5000).map(|i| format!("{i},key{},{},\n", i * 7919, i % 100)).collect();
        let packed = ruzstd::encoding::compress_to_vec(
            format!("{HEADER}\n{body}").as_bytes(),
            ruzstd::encoding::CompressionLevel::Fastest,
        );
        std::fs::write(&path, &packed).unwrap();
        assert_eq!(Trace::open(&path, None, false).unwrap().rows.len(), 5000);
        std::fs::write(&path, &packed[..packed.len() / 2]).unwrap();
        assert!(matches!(Trace::open(&path, None, true), Err(Error::File { .. })));
        assert!(Trace::open(&dir.path().join("none"), None, false).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300),
                                       skip in any::<bool>()) {
            let text = [HEADER.as_bytes(), b"\n", &bytes].concat();
            let lines = bytes.split(|&b| b == b'\n').filter(|l| !l.is_empty()).count();
            if let Ok(trace) = read(&text, None, skip) {
                // Nothing is lost: each line is a row or is counted. Empty lines count as
                // malformed.
                let skipped: u64 = trace.skipped.values().sum();
                prop_assert!(trace.rows.len() as u64 + trace.broken + skipped >= lines as u64);
            }
            let _ = read(&bytes, None, skip);
        }

        #[test]
        fn mutated_traces_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
            let mut text = GOOD.as_bytes().to_vec();
            let at = at.index(text.len());
            text[at] = byte;
            if let Ok(trace) = read(&text, None, true) {
                for row in &trace.rows {
                    prop_assert!((row.key as usize) < trace.keys());
                }
            }
        }
    }
}
