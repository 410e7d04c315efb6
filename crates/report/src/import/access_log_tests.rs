//! Tests of the access log's reader.

use ground::window::SECOND;
use proptest::prelude::*;

use super::*;

fn settings(format: &str) -> Settings {
    Settings {
        format: Format::parse(format).unwrap(),
        window_ns: SECOND,
        objectives_ms: vec![20.0],
        lenient: false,
        hits_are_memory: true,
    }
}

fn log(text: &[u8], settings: &Settings) -> Result<Log, String> {
    read(text, Path::new("a.log"), settings).map_err(|e| e.to_string())
}

const LINE: &str = "10.0.0.1 - - [22/Nov/2026:04:15:00 +0000] \"GET /a b HTTP/1.1\" 200 512 \
    \"-\" \"agent \\x22x\\x22\" 0.042";

#[test]
fn a_combined_line_is_read() {
    let entry = Format::parse(COMBINED).unwrap().entry(LINE).unwrap();
    assert_eq!(entry.end.ns, 1_795_320_900 * SECOND);
    assert_eq!((entry.response.ns, entry.status, entry.bytes), (42_000_000, 200, 512));
    assert_eq!((entry.operation, entry.cache), (Operation::Get, Cache::None));
}

#[test]
fn all_variables_are_read_in_both_forms() {
    let format = "$msec|${request_time}|$status|$request_method|$bytes_sent|$upstream_response_time|\
        $upstream_cache_status|$other";
    let line = "1795320900.250|0.010|404|DELETE|7|0.002, 0.003|MISS|any";
    let json = r#"{"msec":1795320900.25,"request_time":"0.010","status":404,"request_method":"DELETE",
        "bytes_sent":7,"upstream_response_time":"0.002, 0.003","upstream_cache_status":"MISS","o":[1]}"#;
    for (format, line) in [(format, line), ("json", json)] {
        let entry = Format::parse(format).unwrap().entry(line).unwrap();
        assert_eq!(entry.end.ns, 1_795_320_900 * SECOND + SECOND / 4);
        assert_eq!((entry.status, entry.bytes), (404, 7));
        assert_eq!(entry.upstream.unwrap().ns, 5_000_000);
        assert_eq!((entry.operation, entry.cache), (Operation::Delete, Cache::Passed));
    }
}

/// The server that a proxy chose says more of the line than the path does.
#[test]
fn a_line_has_the_key_of_its_path_or_of_the_server_that_answered() {
    let of = |text: &str| record::short_key(key_hash(text.as_bytes()));
    let entry = Format::parse(COMBINED).unwrap().entry(LINE).unwrap();
    assert_eq!(entry.key, of("/a"));
    let format = "$msec $request_time [$upstream_addr] $request_uri";
    let format = Format::parse(format).unwrap();
    for (line, key) in [
        ("1795320900.250 0.010 [127.0.0.1:81] /b", "127.0.0.1:81"),
        ("1795320900.250 0.010 [10.0.0.7:80, 127.0.0.1:81] /b", "127.0.0.1:81"),
        ("1795320900.250 0.010 [-] /b", "/b"),
        ("1795320900.250 0.010 [] /b", "/b"),
    ] {
        assert_eq!(format.entry(line).unwrap().key, of(key), "{line}");
    }
    let none = Format::parse("$msec $request_time").unwrap();
    assert_eq!(none.entry("1795320900.250 0.010").unwrap().key, 0);
}

#[test]
fn formats_that_cannot_be_read_are_named() {
    for (format, expected) in [
        ("$request_time", "no time of completion"),
        ("$msec", "no $request_time"),
        ("$msec$request_time", "without text between"),
        ("$msec ${request_time", "not closed"),
        ("$msec $ $request_time", "not followed by the name"),
    ] {
        let error = Format::parse(format).unwrap_err().to_string();
        assert!(error.contains(expected), "{format}: {error}");
    }
    let fine = Settings { window_ns: SECOND / 10, ..settings(COMBINED) };
    let error = log(LINE.as_bytes(), &fine).unwrap_err();
    assert!(error.contains("log $msec"), "{error}");
}

#[test]
fn broken_lines_are_counted_and_too_many_are_an_error() {
    let good = format!("{LINE}\n").repeat(199);
    let read = log(format!("{good}no line\n").as_bytes(), &settings(COMBINED)).unwrap();
    assert_eq!((read.lines, read.broken), (200, 1));
    assert_eq!(read.first_broken.unwrap().0, 200);
    let bad = format!("{LINE}\n\"x\"\n");
    let error = log(bad.as_bytes(), &settings(COMBINED)).unwrap_err();
    assert!(error.contains("1 of 2 lines") && error.contains("line 2: ` - ` expected"), "{error}");
    let lenient = Settings { lenient: true, ..settings(COMBINED) };
    assert_eq!(log(bad.as_bytes(), &lenient).unwrap().broken, 1);
    assert!(log(b"x\n", &lenient).unwrap_err().contains("line 1"));
    assert_eq!(log(b"", &lenient).unwrap_err(), "a.log has no lines");
}

#[test]
fn a_log_of_centuries_is_refused() {
    let text = "1.000 0.001\n8000000000.000 0.001\n";
    let error = log(text.as_bytes(), &settings("$msec $request_time")).unwrap_err();
    assert!(error.contains("longer --window"), "{error}");
}

#[test]
fn outcomes_follow_status_and_cache() {
    let format = "$msec $request_time $status $upstream_cache_status";
    let rows = ["200 HIT", "200 MISS", "200 -", "404 -", "500 -", "503 -", "429 -", "304 HIT"];
    let text: String = rows.iter().map(|r| format!("100.500 0.100 {r}\n")).collect();
    let windows = log(text.as_bytes(), &settings(format)).unwrap().gateway.unwrap().finish();
    let window = &windows[0];
    assert_eq!((window.arrivals, window.completions), (8, 6));
    assert_eq!((window.refusals, window.errors), (2, 1));
    let count = |outcome| {
        let times = window.times.iter().find(|t| t.outcome == outcome);
        times.map_or(0, |t| t.response.count())
    };
    assert_eq!(
        [Outcome::Memory, Outcome::Origin, Outcome::Unknown, Outcome::Miss, Outcome::Error]
            .map(count),
        [2, 1, 1, 1, 1]
    );
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400),
                                   json in any::<bool>()) {
        let settings = Settings { lenient: true,
            ..settings(if json { "json" } else { "$msec $request_time $status" }) };
        if let Ok(read) = log(&bytes, &settings) {
            let windows = read.gateway.unwrap().finish();
            let seen: u64 = windows.iter().map(|w| w.completions + w.refusals).sum();
            prop_assert_eq!(seen, read.lines - read.broken);
        }
    }

    #[test]
    fn arbitrary_formats_never_panic(format in ".{0,60}", line in ".{0,60}") {
        if let Ok(format) = Format::parse(&format) {
            let _ = format.entry(&line);
        }
    }

    #[test]
    fn changed_lines_never_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut line = LINE.as_bytes().to_vec();
        let at = at.index(line.len());
        line[at] = byte;
        let _ = log(&line, &settings(COMBINED));
    }
}
