//! Each check catches its mistake, and is silent on logs without it.

use std::path::Path;

use ground::window::{Operation, Outcome};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::*;

const START: Nanos = 1_795_320_900 * SECOND;
const MS: Nanos = 1_000_000;

/// A log of two servers, 10 ms each at the mean, in the order of its lines, with a clock of `tick`.
fn log(seed: u64, rate: f64, length_s: f64, tick: Nanos) -> Vec<Logged> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut exponential = |mean: f64| -mean * (1.0 - random.random::<f64>()).ln();
    let (mut at, mut free, mut all) = (0.0, [0.0f64; 2], Vec::new());
    while at < length_s {
        at += exponential(1.0 / rate);
        free.sort_by(f64::total_cmp);
        free[0] = at.max(free[0]) + exponential(0.01);
        let ns = |s: f64| START + (s * 1e9) as u64 / tick * tick;
        let (end, taken) = (ns(free[0]), ns(free[0]) - ns(at));
        let key = 1 + (exponential(1000.0) as u32) % 3000;
        let (operation, outcome, bytes) = (Operation::Get, Outcome::Unknown, u64::from(key) + 4096);
        all.push(Logged { end, taken, operation, outcome, bytes, key });
    }
    all.sort_by_key(|r| r.end);
    all
}

fn findings_in(requests: &[Logged]) -> Vec<Finding> {
    findings(&[File { path: Path::new("a.log"), requests }], &[])
}

/// The only finding says the words.
fn finds(requests: &[Logged], severe: bool, words: &[&str]) {
    let found = findings_in(requests);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].severe, severe, "{found:?}");
    for word in words {
        assert!(found[0].text.contains(word), "{word}: {found:?}");
    }
}

fn silent(requests: &[Logged]) {
    assert_eq!(findings_in(requests), []);
}

#[test]
fn sound_logs_have_no_finding() {
    for seed in 0..5 {
        for tick in [1_000, MS] {
            for rate in [3.0, 60.0, 180.0] {
                silent(&log(seed, rate, 120.0, tick));
            }
        }
        // Stamps of a second: requests of the same second often have the same duration.
        silent(
            &log(seed, 150.0, 120.0, MS)
                .into_iter()
                .map(|r| Logged { end: r.end / SECOND * SECOND, key: 1, bytes: 9, ..r })
                .collect::<Vec<_>>(),
        );
    }
    silent(&[]);
    silent(&log(1, 60.0, 0.1, MS)[..1]);
    silent(&log(1, 60.0, 0.1, MS)[..3]);
    // A long request in a log of three.
    let mut three = log(1, 60.0, 0.1, MS)[..3].to_vec();
    three[0].taken = 3_600 * SECOND;
    silent(&three);
}

#[test]
fn durations_in_another_unit_are_found() {
    let all = log(1, 100.0, 600.0, 1_000);
    let times = |factor: u64| {
        all.iter().map(|r| Logged { taken: r.taken * factor, ..*r }).collect::<Vec<_>>()
    };
    finds(
        &times(1_000_000),
        true,
        &["longer than the whole log (10 min)", "microseconds", "docs/import.md"],
    );
    // Milliseconds read as seconds, at 100/s: 1,500 in flight.
    finds(&times(1_000), false, &["in flight at once", "Little's law", "factor of 1,000"]);
    // The same in a short log: they reach to before it.
    let short: Vec<Logged> = times(1_000)
        .into_iter()
        .filter(|r| r.end < START + 15 * SECOND)
        .map(|r| Logged { taken: r.taken.min(14 * SECOND), ..r })
        .collect();
    finds(&short, true, &["Little's law does not hold", "arrivals less departures"]);
}

/// The first second of a log of seconds was a second before its own lines.
#[test]
fn a_slow_begin_of_a_log_of_seconds_does_not_reach_to_before_it() {
    let mut all = log(5, 100.0, 12.0, MS);
    let slow = all.iter().filter(|r| r.end < START + SECOND).count();
    all.iter_mut().take(slow).for_each(|r| r.taken = 300 * MS + r.taken % (100 * MS));
    all.iter_mut().skip(slow).for_each(|r| r.taken = r.taken.min(20 * MS));
    silent(&all.iter().map(|r| Logged { end: r.end / SECOND * SECOND, ..*r }).collect::<Vec<_>>());
}

/// One line of a wrong duration was explained by a unit that is misread.
#[test]
fn a_stray_duration_is_named() {
    let mut all = log(1, 100.0, 60.0, 1_000);
    all[3000].taken = 999_999 * SECOND;
    let found = findings_in(&all);
    for words in ["Little's law", "one took 11.6 days", "--path"] {
        assert!(found[0].severe && found[0].text.contains(words), "{words}: {found:?}");
    }
    assert!(!found[0].text.contains("factor of 1,000"), "{found:?}");
}

#[test]
fn durations_that_are_none_are_found() {
    let all = log(2, 50.0, 60.0, MS);
    let with = |f: fn(&Logged) -> Nanos| {
        all.iter().map(|r| Logged { taken: f(r), ..*r }).collect::<Vec<_>>()
    };
    finds(&with(|_| 0), true, &["Every duration is 0", "finer"]);
    finds(&with(|_| 200 * MS), true, &["Every duration is 200 ms", "not the duration"]);
    finds(&with(|r| r.taken / (20 * MS) * 20 * MS), false, &["of the durations are 0"]);
    // A fifth of them at a clock of a millisecond is ordinary.
    silent(&with(|r| if r.key.is_multiple_of(5) { 0 } else { r.taken }));
}

#[test]
fn lines_that_are_there_twice_are_found() {
    for tick in [1_000, MS] {
        let all = log(3, 80.0, 120.0, tick);
        let n = all.len();
        let twice = [&all[..], &all].concat();
        finds(&twice, true, &["more than once", "rotated copies", "50 %"]);
        // Sorted by time, copies are neighbours.
        let mut sorted = twice;
        sorted.sort_by_key(|r| r.end);
        finds(&sorted, true, &["more than once"]);
        // Rotated copies that overlap by a tenth; by little, it is a warning.
        let overlap = [&all[..n / 2 + n / 10], &all[n / 2..]].concat();
        finds(&overlap, true, &["more than once", "9.1 %"]);
        let little = [&all[..n / 2 + 60], &all[n / 2..]].concat();
        finds(&little, false, &["60 lines are there more than once"]);
        // A file with its continuation.
        silent(&[&all[..n / 2], &all[n / 2..]].concat());
    }
    // Each second the same probe with the same answer, twice by chance or retry.
    let mut probes = log(3, 80.0, 120.0, MS);
    for i in (0..probes.len() - 1).step_by(10) {
        probes[i + 1] = probes[i];
    }
    silent(&probes);
    // Starts in whole seconds with durations in ms, one path, as `ab -g` sorts them: the same start and duration by chance.
    let mut starts = log(3, 140.0, 120.0, MS);
    for r in &mut starts {
        let start = (r.end - r.taken) / SECOND * SECOND;
        (r.end, r.bytes, r.key) = (start + r.taken, 0, 0);
    }
    starts.sort_by_key(|r| r.taken);
    silent(&starts);
}

#[test]
fn a_clock_that_goes_back_is_found() {
    let all = log(4, 20.0, 3_000.0, MS);
    let back = |by: Nanos| {
        let late = |r: &Logged| r.end > START + 2_000 * SECOND;
        all.iter()
            .map(|r| if late(r) { Logged { end: r.end - by, ..*r } } else { *r })
            .collect::<Vec<_>>()
    };
    let words = ["a.log: the clock goes back by", "2026-11-22 04:48:1", "once"];
    finds(&back(900 * SECOND), true, &words);
    finds(&back(120 * SECOND), false, &words);
    finds(&back(1_999 * SECOND), true, &words);
    let hour = [
        log(4, 20.0, 5_000.0, MS),
        log(5, 20.0, 5_000.0, MS)
            .iter()
            .map(|r| Logged { end: r.end + 1_400 * SECOND, ..*r })
            .collect(),
    ]
    .concat();
    finds(&hour, true, &["back by 60 min", "summer time"]);
    // Of two minutes the hours do not overlap.
    let short = log(4, 20.0, 120.0, MS);
    let early = |r: &Logged| {
        let is_late = r.end > START + 60 * SECOND;
        if is_late { Logged { end: r.end - 3_600 * SECOND, ..*r } } else { *r }
    };
    let short: Vec<Logged> = short.iter().map(early).collect();
    finds(&short, false, &["back by 60 min", "once", "summer time", "an hour too early"]);
    // Buffered lines, rotated files in the order of their names, and lines in no order are not.
    silent(&back(20 * SECOND));
    let (early, late) = all.split_at(all.len() / 2);
    silent(&[late, early].concat());
    // Nor are two files of half an hour.
    let hour = log(7, 20.0, 3_600.0, MS);
    let (early, late) = hour.split_at(hour.partition_point(|r| r.end < START + 1_800 * SECOND));
    silent(&[late, early].concat());
    let mut random = StdRng::seed_from_u64(1);
    let mut shuffled = all.clone();
    (1..shuffled.len()).for_each(|i| shuffled.swap(i, random.random_range(0..=i)));
    silent(&shuffled);
}

#[test]
fn stamps_of_two_zones_are_found() {
    let all = log(6, 20.0, 600.0, MS);
    let ahead =
        |hours: u64| {
            let other = |r: &Logged| r.key.is_multiple_of(2);
            all.iter()
                .map(|r| {
                    if other(r) { Logged { end: r.end + hours * 3_600 * SECOND, ..*r } } else { *r }
                })
                .collect::<Vec<_>>()
        };
    finds(&ahead(1), true, &["again and again", "60 min", "two zones"]);
    finds(&ahead(9), true, &["9 h", "UTC"]);
    silent(&ahead(0));
}

#[test]
fn missing_lines_are_found() {
    let all = log(7, 20.0, 7_200.0, MS);
    let out = |from: u64, to: u64| {
        let inside =
            move |r: &&Logged| !(START + from * SECOND..START + to * SECOND).contains(&r.end);
        all.iter().filter(inside).copied().collect::<Vec<_>>()
    };
    finds(&out(1_800, 5_400), false, &["The log has no request", "60 min", "some 6"]);
    finds(&out(3_000, 3_030), false, &["30 s", "lines are missing"]);
    silent(&out(3_000, 3_001));
    // Refused requests have no durations, but they came.
    let refused: Vec<Window> = (1_800..5_400)
        .map(|s| {
            let mut window = Window::new("gateway", us(START + s * SECOND), 0, &[]);
            (window.length_s, window.refusals) = (1.0, 20);
            window
        })
        .collect();
    let kept = out(1_800, 5_400);
    assert_eq!(findings(&[File { path: Path::new("-"), requests: &kept }], &refused), []);
    // One file of two misses an hour.
    let (a, b): (Vec<Logged>, Vec<Logged>) = all.iter().partition(|r| r.key.is_multiple_of(2));
    let b: Vec<Logged> = b
        .into_iter()
        .filter(|r| !(START + 1_800 * SECOND..START + 5_400 * SECOND).contains(&r.end))
        .collect();
    let files =
        [File { path: Path::new("a"), requests: &a }, File { path: Path::new("b"), requests: &b }];
    let found = findings(&files, &[]);
    assert!(found.len() == 1 && found[0].text.starts_with("b has no request"), "{found:?}");
    // A quiet night is not a gap.
    let night: Vec<Logged> = all
        .iter()
        .enumerate()
        .filter(|(i, r)| r.end < START + 3_000 * SECOND || i.is_multiple_of(400))
        .map(|(_, r)| *r)
        .collect();
    silent(&night);
}
