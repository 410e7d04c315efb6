//! Whether the records of a log can be true, before anything is fitted to them.
//!
//! Each check looks for one mistake that a fit would not notice: durations in another unit, a field
//! that is no duration, lines that are there twice, a clock that was set back, stamps of two zones,
//! lines that are missing. A finding says what, where, and what to do. Findings that make every
//! answer wrong are severe: an import fails with them unless it is lenient.
//!
//! What cannot be found: durations that are wrong by a factor look right if the number of requests
//! in flight that they imply is plausible, because arrivals are computed from them. So that number
//! is shown where it is large.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;

use ground::window::{Nanos, QueueName, SECOND, Window};

use super::access_log::Logged;
use super::shown::{about, count, length, moment, share};
use super::ticks;
use crate::objective::digits;

/// What a check found.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Finding {
    /// What, where and what to do.
    pub text: String,
    /// Whether every answer would be wrong.
    pub severe: bool,
}

/// The requests of a file, in the order of its lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct File<'a> {
    pub path: &'a Path,
    pub requests: &'a [Logged],
}

/// With fewer requests nothing is unlikely enough to be a finding.
const FEW: usize = 20;
/// More requests in flight at once than this, at the mean, are worth a question.
const IN_FLIGHT_MANY: f64 = 1_000.0;
/// Lines are written some time after their stamp: servers buffer them.
const WRITTEN_LATE: Nanos = 60 * SECOND;
/// A clock that went back by less is a nuisance; by more, the order of requests is unknown.
const BACK_SEVERE: Nanos = 600 * SECOND;
/// Zones differ by multiples of this.
const ZONE: Nanos = 900 * SECOND;
/// Lines in a row that are all there twice are no chance.
const TWICE_MIN: usize = 20;
/// A gap is a finding if so many requests would have come in it: e⁻³⁰ is no chance in any log.
const MISSED_MIN: f64 = 30.0;
/// Requests on either side of a gap that tell the rate there.
const AROUND: usize = 100;
/// The most gaps that are listed.
const GAPS_SHOWN: usize = 3;

/// All findings in the requests of files, the severe ones first. `windows` tell in which time
/// requests were refused, which `files` do not have.
pub(super) fn findings(files: &[File<'_>], windows: &[Window]) -> Vec<Finding> {
    let all: Vec<Logged> = files.iter().flat_map(|f| f.requests).copied().collect();
    let mut found = Vec::new();
    let beyond = longer_than_log(&all);
    let is_unit_wrong = beyond.as_ref().is_some_and(|f| f.severe);
    found.extend(beyond);
    if !is_unit_wrong {
        found.extend(in_flight(&all));
    }
    found.extend(same_durations(&all));
    let twice = lines_twice(&all);
    // Copies after each other look like a clock that was set back.
    let copied = twice.is_some();
    found.extend(twice);
    let back: Vec<Finding> = files.iter().filter(|_| !copied).filter_map(clock_back).collect();
    // Two clocks cover a time that one does not.
    if back.is_empty() {
        found.extend(gaps(files, windows));
    }
    found.extend(back);
    found.sort_by_key(|f| !f.severe);
    found
}

fn us(ns: Nanos) -> u64 {
    ns / 1000
}

fn seconds(ns: Nanos) -> f64 {
    ns as f64 / SECOND as f64
}

/// The first and the last end of a request.
fn span(all: &[Logged]) -> Option<(Nanos, Nanos)> {
    Some((all.iter().map(|r| r.end).min()?, all.iter().map(|r| r.end).max()?))
}

/// Requests that take longer than the log is long.
fn longer_than_log(all: &[Logged]) -> Option<Finding> {
    let (first, last) = span(all)?;
    let whole = last - first;
    let longer = || all.iter().filter(|r| r.taken > whole);
    let number = longer().count();
    let example = longer().next().filter(|_| all.len() >= FEW)?;
    Some(Finding {
        severe: number * 100 > all.len(),
        text: format!(
            "{} of {} ({}) last longer than the whole log ({}), for instance {} of the request that ended at {}. \
             Either the durations are in another unit (milliseconds or microseconds read as seconds), or \
             the field is not the duration of a request: state its unit, as docs/import.md says.",
            digits(number as f64, 15),
            count(all.len() as u64, "request"),
            share(number as u64, all.len() as u64),
            length(seconds(whole)),
            length(seconds(example.taken)),
            moment(us(example.end))
        ),
    })
}

/// Little's law: arrivals per second times the mean duration is the mean number in flight; the log
/// shows it as well, as arrivals less departures between its first and its last line. They agree
/// unless durations reach to before the log.
fn in_flight(all: &[Logged]) -> Option<Finding> {
    let (first, last) = span(all).filter(|_| all.len() >= FEW)?;
    let whole_s = seconds(last - first).max(1e-9);
    let taken_s: f64 = all.iter().map(|r| seconds(r.taken)).sum();
    // What ended in the tick of the first stamp ended up to a tick after it: of a log of seconds with a slow first second a third of all
    // time seemed to reach to before the log.
    let tick = ticks::step(all.iter().map(|r| r.end));
    let shown_s: f64 = all.iter().map(|r| seconds(r.taken.min(r.end - first + tick))).sum();
    let (law, shown) = (taken_s / whole_s, shown_s / whole_s);
    let rate = digits(all.len() as f64 / whole_s, 3);
    let mean = length(taken_s / all.len() as f64);
    let unit = few_long(all).unwrap_or_else(|| {
        "A unit that is misread is a factor of 1,000: state it, as docs/import.md says.".to_owned()
    });
    if shown < 0.9 * law {
        return Some(Finding {
            severe: shown < 0.7 * law,
            text: format!(
                "Little's law does not hold: {rate} requests/s that take {mean} at the mean are {} in flight at \
                 once, but arrivals less departures in the log (from {} on) are {} at the mean. Durations \
                 reach to before the log. {unit} If they are right, import a longer log.",
                digits(law, 3),
                moment(us(first)),
                digits(shown, 3)
            ),
        });
    }
    (law > IN_FLIGHT_MANY).then(|| Finding {
        severe: false,
        text: format!(
            "{rate} requests/s that take {mean} at the mean are {} in flight at once (Little's law, from {} on). \
             Can the service hold so many? {unit}",
            digits(law, 3),
            moment(us(first))
        ),
    })
}

/// That one request in a thousand took more than half of the time of all, so that no unit is misread.
fn few_long(all: &[Logged]) -> Option<String> {
    let mut longest: Vec<&Logged> = all.iter().collect();
    longest.sort_unstable_by_key(|request| std::cmp::Reverse(request.taken));
    let few = (all.len() / 1000).max(1);
    let of_few: f64 = longest.iter().take(few).map(|r| seconds(r.taken)).sum();
    let whole: f64 = longest.iter().map(|r| seconds(r.taken)).sum();
    let first = longest.first().filter(|_| of_few > 0.5 * whole)?;
    Some(format!(
        "More than half of all that time is that of the longest {}, of which one took {} and ended at {}. If such lines are not of requests, leave them out \
         (--from, --to, --path, --status).",
        count(few as u64, "request"),
        length(seconds(first.taken)),
        moment(us(first.end))
    ))
}

/// Durations that say nothing: all 0, most of them 0, or all the same.
fn same_durations(all: &[Logged]) -> Option<Finding> {
    let first = all.first().filter(|_| all.len() >= FEW)?;
    let zeros = all.iter().filter(|r| r.taken == 0).count();
    let (n, at) = (count(all.len() as u64, "request"), moment(us(first.end)));
    let finer = "Log a finer duration ($request_time of nginx has milliseconds, %D of Apache \
                 microseconds), or name the field that has it.";
    if zeros == all.len() {
        let text = format!(
            "Every duration is 0 ({n}, the first at {at}): the field is not the duration, or its clock is \
             coarser than the requests. {finer}"
        );
        return Some(Finding { text, severe: true });
    }
    if all.iter().all(|r| r.taken == first.taken) {
        let text = format!(
            "Every duration is {} ({n}, the first at {at}): the field is not the duration of a request. {finer}",
            length(seconds(first.taken))
        );
        return Some(Finding { text, severe: true });
    }
    (2 * zeros > all.len()).then(|| Finding {
        severe: false,
        text: format!(
            "{} of the durations are 0: most requests are shorter than a tick of the log's clock, so only the \
             slow ones are known. {finer}",
            share(zeros as u64, all.len() as u64)
        ),
    })
}

/// The number of pairs among so many.
fn pairs(n: usize) -> f64 {
    n as f64 * (n as f64 - 1.0) / 2.0
}

/// Pairs of equal times.
fn pairs_in_ticks(mut times: Vec<Nanos>) -> f64 {
    times.sort_unstable();
    times.chunk_by(|a, b| a == b).map(|same| pairs(same.len())).sum()
}

/// Lines that are there twice: a file that was given twice, or copies that overlap.
///
/// Requests with the same stamp and duration exist by chance where stamps are coarse. Copies are told
/// apart by long runs of lines, in the order of time, of which each is there twice, where chance
/// (the same duration, key and size in the same tick) makes a fifth of the pairs at most.
fn lines_twice(all: &[Logged]) -> Option<Finding> {
    let mut lines: Vec<(Nanos, u64)> = all
        .iter()
        .map(|r| {
            let mut hasher = DefaultHasher::new();
            (r.taken, r.bytes, r.key, r.operation.as_str(), r.outcome.as_str()).hash(&mut hasher);
            (r.end, hasher.finish())
        })
        .collect();
    lines.sort_unstable();
    let equal: Vec<&[(Nanos, u64)]> = lines.chunk_by(|a, b| a == b).collect();
    let found: f64 = equal.iter().map(|same| pairs(same.len())).sum();
    let in_tick = pairs_in_ticks(all.iter().map(|r| r.end).collect());
    // Of a log of starts the ends have the finer digits of the durations, and requests of one end and start have the same duration.
    let in_tick =
        in_tick.max(pairs_in_ticks(all.iter().map(|r| r.end - r.taken.min(r.end)).collect()));
    let mut kinds: Vec<u64> = lines.iter().map(|l| l.1).collect();
    kinds.sort_unstable();
    let n = lines.len() as f64;
    let alike: f64 =
        kinds.chunk_by(|a, b| a == b).map(|same| (same.len() as f64 / n).powi(2)).sum();
    if found < 5.0 * in_tick * alike {
        return None;
    }
    let (mut extra, mut first, mut last) = (0, None, 0);
    for run in equal.chunk_by(|a, b| (a.len() > 1) == (b.len() > 1)) {
        let number: usize = run.iter().map(|same| same.len()).sum();
        let is_long = number >= 2 * TWICE_MIN || number == lines.len() && number >= 4;
        if let (Some(from), Some(to)) = (run.first(), run.last())
            && from.len() > 1
            && is_long
        {
            extra += number - run.len();
            first = first.or(from.first().map(|line| line.0));
            last = to.first().map_or(last, |line| line.0);
        }
    }
    first.map(|first| Finding {
        severe: extra * 100 > all.len(),
        text: format!(
            "{} are there more than once ({}, stamped {} to {}): a file was given twice, or rotated copies \
             overlap. Give each part of the log once, or remove the copies (`sort -u`).",
            count(extra as u64, "line"),
            share(extra as u64, all.len() as u64),
            moment(us(first)),
            moment(us(last))
        ),
    })
}

/// A stamp that is earlier than one before it.
#[derive(Clone, Copy, Debug)]
struct Back {
    /// The latest stamp before.
    from: Nanos,
    to: Nanos,
    /// Number of the request.
    index: usize,
}

/// Where the stamps of a file go back, and what the lines between two such places cover.
fn steps_back(requests: &[Logged]) -> (Vec<Back>, Vec<(Nanos, Nanos)>) {
    let late = requests.iter().map(|r| r.taken).max().unwrap_or(0).max(WRITTEN_LATE);
    let (mut latest, mut backs) = (0, Vec::new());
    let mut pieces: Vec<(Nanos, Nanos)> = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let end = request.end;
        match pieces.last_mut() {
            Some(piece) if end.saturating_add(late) >= latest => {
                *piece = (piece.0.min(end), piece.1.max(end));
                latest = latest.max(end);
            }
            last => {
                if last.is_some() {
                    backs.push(Back { from: latest, to: end, index });
                }
                pieces.push((end, end));
                latest = end;
            }
        }
    }
    (backs, pieces)
}

fn is_hour(by: Nanos) -> bool {
    by.abs_diff(3_600 * SECOND) <= WRITTEN_LATE
}

/// A clock that was set back once by an hour, in a log that is too short for the hours to overlap. Rotated files in the order of their names
/// go back too, to where the one before begins.
fn hour_back(
    name: std::path::Display<'_>,
    backs: &[Back],
    pieces: &[(Nanos, Nanos)],
) -> Option<Finding> {
    let ([back], [before, after]) = (backs, pieces) else { return None };
    let is_apart = after.1.saturating_add(WRITTEN_LATE) < before.0;
    (is_hour(back.from - back.to) && is_apart).then(|| Finding {
        severe: false,
        text: format!(
            "{name}: the clock goes back by {} at {} (request {} of the file, once), as local time does when summer time ends. The stamps of the \
             requests from there on are an hour too early, and the hour that seems to be missing is not. Log in UTC, or with the zone.",
            length(seconds(back.from - back.to)),
            moment(us(back.from)),
            digits((back.index + 1) as f64, 15),
        ),
    })
}

/// A clock that was set back, or stamps of two zones. Lines that are merely out of order (buffers,
/// several writers, rotated files in the order of their names) are none.
fn clock_back(file: &File<'_>) -> Option<Finding> {
    let (backs, pieces) = steps_back(file.requests);
    let name = file.path.display();
    let first = backs.first()?;
    let multiple = |b: &Back| (b.from - b.to + ZONE / 2) / ZONE;
    let zones = multiple(first);
    let same =
        |b: &&Back| multiple(b) == zones && (b.from - b.to).abs_diff(zones * ZONE) <= WRITTEN_LATE;
    let alike = backs.iter().filter(same).count();
    if zones > 0 && backs.len() >= 3 && alike * 10 >= backs.len() * 9 {
        return Some(Finding {
            severe: true,
            text: format!(
                "{name}: stamps go back by {} again and again ({} times, first after {}): they are of two zones, \
                 written by servers whose local times differ. Import each server's log by itself, or \
                 log with the zone (or in UTC).",
                length(seconds(zones * ZONE)),
                digits(backs.len() as f64, 15),
                moment(us(first.from))
            ),
        });
    }
    // Many: the lines are in no order, as some load testers write them.
    if backs.len() > FEW {
        return None;
    }
    let overlaps = |i: usize, before: &[(Nanos, Nanos)]| {
        let piece = pieces.get(i).copied().unwrap_or_default();
        before.iter().any(|b| piece.1.min(b.1).saturating_sub(piece.0.max(b.0)) > WRITTEN_LATE)
    };
    let found = backs
        .iter()
        .enumerate()
        .find(|(i, _)| overlaps(i + 1, pieces.get(..=*i).unwrap_or_default()));
    let Some((i, back)) = found else { return hour_back(name, &backs, &pieces) };
    let by = back.from - back.to;
    Some(Finding {
        severe: by >= BACK_SEVERE,
        text: format!(
            "{name}: the clock goes back by {} at {} (request {} of the file, {}){}. Requests of two times \
             are counted as of one: import the parts before and after by themselves.",
            length(seconds(by)),
            moment(us(back.from)),
            digits((back.index + 1) as f64, 15),
            if backs.len() == 1 {
                "once".to_owned()
            } else {
                format!("{} of {}", i + 1, backs.len())
            },
            if is_hour(by) { ", as local time does when summer time ends" } else { "" }
        ),
    })
}

/// A time in which nothing ended where much should have.
struct Gap {
    from: Nanos,
    to: Nanos,
    /// Requests that would have ended in it.
    missed: f64,
}

/// Gaps in the ends of requests that the rate around them excludes.
fn gaps_of(requests: &[Logged], windows: &[Window]) -> Vec<Gap> {
    let mut ends: Vec<Nanos> = requests.iter().map(|r| r.end).collect();
    ends.sort_unstable();
    if ends.len() <= 2 * AROUND {
        return Vec::new();
    }
    let mut lengths: Vec<Nanos> = ends.windows(2).map(|two| two[1] - two[0]).collect();
    let usual = lengths.len() * 999 / 1000;
    let usual = *lengths.select_nth_unstable(usual).1;
    let least = usual.saturating_mul(10).max(SECOND);
    let mut found = Vec::new();
    for i in AROUND..ends.len() - AROUND {
        let (from, to) = (ends[i - 1], ends[i]);
        if to - from <= least {
            continue;
        }
        let spans = [from - ends[i - AROUND], ends[i + AROUND - 1] - to];
        let rate = (AROUND - 1) as f64 / seconds(spans[0].max(spans[1])).max(1e-9);
        let missed = rate * seconds(to - from);
        // Refused requests have no duration and are in the windows alone.
        let inside = |w: &&Window| {
            w.is_of(QueueName::Gateway)
                && w.start_unix_us >= us(from)
                && w.end_unix_us() <= us(to)
                && w.refusals > 0
        };
        if missed > MISSED_MIN && windows.iter().find(inside).is_none() {
            found.push(Gap { from, to, missed });
        }
    }
    found.sort_by_key(|gap| std::cmp::Reverse(gap.to - gap.from));
    found
}

/// Missing lines, in the whole log and, of several files, in each.
fn gaps(files: &[File<'_>], windows: &[Window]) -> Vec<Finding> {
    let text = |gap: &Gap, place: &str| {
        format!(
            "{place} has no request that ended from {} to {} ({}), where some {} would have at the rate around \
             it: lines are missing, or nothing was served. Import the parts before and after by \
             themselves if a step spans it.",
            moment(us(gap.from)),
            moment(us(gap.to)),
            length(seconds(gap.to - gap.from)),
            about(gap.missed)
        )
    };
    let mut found = Vec::new();
    let mut add = |gaps: Vec<Gap>, place: &str| {
        for gap in gaps.iter().take(GAPS_SHOWN) {
            found.push(Finding { text: text(gap, place), severe: false });
        }
        if let Some(more) = gaps.len().checked_sub(GAPS_SHOWN).filter(|more| *more > 0) {
            let text =
                format!("{place} has {} more, which are shorter.", count(more as u64, "gap"));
            found.push(Finding { text, severe: false });
        }
    };
    let all: Vec<Logged> = files.iter().flat_map(|f| f.requests).copied().collect();
    let whole = gaps_of(&all, windows);
    let is_known: Vec<(Nanos, Nanos)> = whole.iter().map(|gap| (gap.from, gap.to)).collect();
    add(whole, "The log");
    for file in files.iter().filter(|_| files.len() > 1) {
        let mut own = gaps_of(file.requests, &[]);
        own.retain(|gap| !is_known.iter().any(|(from, to)| *from < gap.to && *to > gap.from));
        add(own, &file.path.display().to_string());
    }
    found
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
