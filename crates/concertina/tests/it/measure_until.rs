//! `concertina measure --until`, and services that refuse, reset or fail: what is said, and what was still learnt.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::measure::{concertina, serve};
use crate::serve_client::spawn;
use crate::steady::{in_time, steady};

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The next load is chosen by what narrows the prediction, each is told, and the goal ends it; a budget that
/// is too small ends it too, and it is said what is missing.
#[test]
fn loads_are_chosen_until_a_prediction_is_known() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        // Of a length beside which the pauses of a busy machine are short, and loads that it carries.
        let (url, _) = serve(Duration::from_millis(5));
        let run = |goal: &str, out: &str| {
            let common = "--json --fixed --rates 60,100 --duration 3500ms --warmup 100ms --window 50ms \
                --within 12ms,50ms --budget";
            let mut args = vec!["measure", &url, "--until", goal, "--out", out];
            args.extend(words(common));
            args.push(if out == "reached" { "200s" } else { "15s" });
            let output = concertina(dir.path(), &args);
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{error}");
            (serde_json::from_slice::<Value>(&output.stdout).unwrap(), error)
        };
        let (found, told) = run("±30 points at 50 %", "reached");
        let rounds = found["until"]["rounds"].as_array().unwrap();
        in_time(found["ended"] == "known", format_args!("{:#} {told}", found["until"]));
        assert!(found["until"]["reached"] == true && told.contains("reached"), "{told}");
        let last = rounds.last().unwrap();
        assert!(last["half_width_points"].as_f64().unwrap() <= 30.0, "{last}");
        assert!(last["requests"].as_u64().unwrap() >= 500, "{last}");
        // What the goal is about is predicted.
        let predicted = found["prediction"]["predicted"].as_array().unwrap();
        assert_eq!(predicted[0]["rate"], last["rate"], "{predicted:?}");

        let (found, told) = run("±0.01 points at 80 %", "spent");
        let verdict = found["until"]["verdict"].as_str().unwrap();
        assert!(found["ended"] == "budget" && found["until"]["reached"] == false, "{verdict}");
        assert!(verdict.contains("the budget is spent") && told.contains(verdict), "{verdict}");
    });
    let dir = tempfile::tempdir().unwrap();
    for (args, word) in [
        ("--until 2", "±2 points at 90 %"),
        ("--until 2points@90% --clients 3", "±2 points at 90 %"),
        ("--within 5ms", "--predict"),
    ] {
        let all = [&["measure", "http://127.0.0.1:1"][..], &words(args)].concat();
        let output = concertina(dir.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{error}");
    }
}

/// A server with a service time of one millisecond behind a token bucket of `rate` requests/s and a burst of 20. The
/// bucket delays requests only under a lasting load; at the loads that are fitted it is always full.
fn held_up(rate: f64) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // When the bucket would be full again.
    let full = Arc::new(Mutex::new(Instant::now()));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let full = full.clone();
            std::thread::spawn(move || {
                converse(stream, &mut || {
                    let mut full = full.lock().unwrap();
                    *full = (*full).max(Instant::now()) + Duration::from_secs_f64(1.0 / rate);
                    let burst = Duration::from_secs_f64(20.0 / rate);
                    let wait = full.saturating_duration_since(Instant::now() + burst);
                    std::thread::sleep(wait.max(Duration::from_millis(1)));
                    Some("200 OK")
                })
            });
        }
    });
    format!("http://{address}")
}

/// The fitted loads show a server of a millisecond, and the search found that no more than 200 requests/s are carried:
/// the goal is at a share of those.
#[test]
fn a_goal_is_at_a_share_of_what_a_closed_loop_carries() {
    steady(|| {
        let dir = tempfile::tempdir().unwrap();
        let url = held_up(200.0);
        let common = "--json --fixed --shares 0.3,0.6 --clients-max 8 --duration 5s --warmup 300ms --window 50ms \
            --within 5ms,20ms --budget 30s --until";
        let mut args = vec!["measure", &url, "--out", "run"];
        args.extend(words(common));
        args.push("±49 points at 90 %");
        // On a busy machine too few loads are steady to predict others, which is an error; the rounds are printed.
        let output = concertina(dir.path(), &args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        let found = serde_json::from_slice::<Value>(&output.stdout);
        let found = found.unwrap_or_else(|wrong| panic!("{wrong}: {error}"));
        let carried = found["search"]["throughput_max"].as_f64().unwrap();
        let rounds = found["until"]["rounds"].as_array().unwrap();
        let rates: Vec<f64> = rounds.iter().filter_map(|round| round["rate"].as_f64()).collect();
        in_time(!rates.is_empty() && carried < 320.0, format_args!("{rounds:?} {carried} {error}"));
        for rate in rates {
            assert!(rate <= 0.901 * carried, "{rounds:?}, but a closed loop carried {carried}/s");
        }
    });
}

/// How a service misbehaves.
#[derive(Clone, Copy, Debug)]
enum Manners {
    /// More than this many requests a second are answered 429.
    Throttles(u64),
    /// Every so-manyth request ends its connection within the reply.
    Resets(u64),
    /// Every so-manyth request is answered 500.
    Fails(u64),
}

fn misbehave(manners: Manners) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (count, begun) = (Arc::new(AtomicU64::new(0)), Instant::now());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let count = count.clone();
            std::thread::spawn(move || converse(stream, &mut || status(manners, &count, begun)));
        }
    });
    format!("http://{address}")
}

/// The status of the next reply; `None` ends the connection within it.
fn status(manners: Manners, count: &AtomicU64, begun: Instant) -> Option<&'static str> {
    let number = count.fetch_add(1, Ordering::Relaxed) + 1;
    match manners {
        // A bucket that fills at this rate, of a tenth of a second.
        Manners::Throttles(rate) => {
            let allowed = (begun.elapsed().as_secs_f64() * rate as f64) as u64 + rate / 10;
            let over = number > allowed;
            if over {
                count.fetch_sub(1, Ordering::Relaxed);
            }
            Some(if over { "429 Too Many Requests" } else { "200 OK" })
        }
        Manners::Resets(every) if number.is_multiple_of(every) => None,
        Manners::Fails(every) if number.is_multiple_of(every) => Some("500 Internal Server Error"),
        _ => Some("200 OK"),
    }
}

/// Answers each request with the status that `next` gives.
fn converse(mut stream: TcpStream, next: &mut dyn FnMut() -> Option<&'static str>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    loop {
        let mut line = String::new();
        while line.trim_end() != "" || line.is_empty() {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
        }
        let Some(status) = next() else {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-le").ok()?;
            return None;
        };
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n\r\nok");
        stream.write_all(reply.as_bytes()).ok()?;
    }
}

/// A target that throttles, resets or fails: the loads at which it does are not fitted, and it is said why.
#[test]
fn services_that_refuse_reset_or_fail_are_said_to() {
    let common = "--fixed --rates 40,300 --repeat 1 --duration 700ms --warmup 50ms --window 50ms \
        --budget 9s --quiet --predict 2x --within 20ms --out";
    for (manners, words_said) in [
        (Manners::Throttles(100), "429"),
        (Manners::Resets(4), "closed"),
        (Manners::Fails(4), "500"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let url = misbehave(manners);
        let all = [&["measure", &url][..], &words(common), &["run"]].concat();
        let output = concertina(dir.path(), &all);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        println!("{manners:?}: {error}");
        assert!(!output.status.success(), "{text}{error}");
        // What was measured is shown all the same.
        assert!(text.contains("300/s") && text.contains("not steady"), "{text}");
        assert!(
            error.contains("--predict needs two") && error.contains("% of the replies"),
            "{error}"
        );
        assert!(error.contains(words_said), "{manners:?}: {error}");
    }
}

/// A path at which there are no objects is said to be wrong by every command that loads a service.
#[test]
fn a_path_without_objects_is_said_to_be_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let node = spawn(dir.path(), &[], "");
    let url = format!("http://{}/nothing-here", node.address);
    for args in [
        "load --rate 100 --duration 300ms --warmup 0s --count 10 --quiet",
        "load --rate 100 --duration 300ms --warmup 0s --count 10 --quiet --fill",
        "measure --rates 100 --repeat 1 --duration 300ms --warmup 50ms --budget 5s --count 10 --quiet",
        "capacity --sizes 4KiB --repeat 1 --duration 50ms --quiet",
    ] {
        let out = format!("--out=run{}", args.len());
        let mut all = words(args);
        all.insert(1, &url);
        all.push(&out);
        let output = concertina(dir.path(), &all);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{args}: {error}");
        assert!(error.contains("404") && error.contains("/nothing-here/"), "{args}: {error}");
        assert!(error.contains("path"), "{args}: {error}");
    }
}
