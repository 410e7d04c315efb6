//! Finds by sense what a log does not say: the unit of its durations, and whether its stamps are starts or ends.
//!
//! A server writes a line when a request ends, so under the right reading the ends are in the order of the lines, up to the
//! clock's step and what is written late; under a unit too long, or with the wrong end, they are not. Where the order says nothing
//! (a clock of a second, requests that never overlap), Little's law does: rate times mean duration is the number of requests in
//! the service at a time, and a unit that is wrong is wrong by a thousand. What neither decides is refused, because a
//! log that is read in the wrong unit gives a wrong model without a word.

use ground::window::{Nanos, SECOND};

use super::collector::is_break;
use super::congestion;
use super::entry::Line;
use super::filter::Filter;
use super::layout::{Layout, Place, Role, Shape, Side};
use super::ticks::step;
use super::time::Unit;
use crate::objective::time;

/// Requests in the service at a time, on average: fewer or more is no service that somebody measures.
const IN_SERVICE: std::ops::RangeInclusive<f64> = 1e-7..=2e3;
/// Those of ordinary services. Hardly any is no evidence, because many services are idle; hundreds are.
const IN_SERVICE_USUAL: std::ops::RangeInclusive<f64> = 1e-5..=200.0;
/// Mean durations, seconds. A store in memory answers in some microseconds: that a reading is short is no evidence against it.
const MEAN_S: std::ops::RangeInclusive<f64> = 1e-6..=120.0;
/// Those of ordinary services.
const MEAN_USUAL_S: std::ops::RangeInclusive<f64> = 5e-5..=30.0;
/// Stamps with a finer step are of a program that writes nanoseconds.
const STAMPS_OF_NANOS_S: f64 = 0.9e-6;
/// Mean durations that a server of HTTP that logs microseconds hardly has, seconds.
const SHORT_S: f64 = 1e-3;
/// Waits of requests for others are seen from so many standard errors on, and are not below so many: under a wrong unit most requests meet
/// nobody, or as many whatever they take.
const CONGESTED: f64 = 5.0;
const NOT_CONGESTED: f64 = 3.0;
/// Lines from which their order is evidence.
const ORDERED_MIN: usize = 50;
/// Share of lines out of order that another reading must have more, to be excluded.
const DISORDER: f64 = 0.02;
/// Ends that go back by more are of a clock that was set back, as local time is when summer time ends: the order goes on from there. Counted
/// against the latest end before, all lines of the hour after it were out of order under every reading, and none could be told.
const BACK: Nanos = 60 * SECOND;
/// Shorter times without requests are a lull, in which a service is idle.
const LULL_S: f64 = 1_000.0;

/// The times of a sample of requests under one reading.
#[derive(Clone, Debug, Default)]
struct Reading {
    /// Stamp and duration, nanoseconds, in the order of the lines.
    times: Vec<(Nanos, Nanos)>,
    /// The largest step of the clock that the stamps allow, and of durations.
    clock_ns: Nanos,
    resolution_ns: Nanos,
    /// Whether durations have no decimals in their unit.
    is_integer: bool,
    /// Whether the log is a service's own, and not one of a server of HTTP.
    is_own: bool,
}

/// A reading that is judged.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    unit: Option<Unit>,
    side: Side,
    /// Requests in the service at a time.
    in_service: f64,
    mean_s: f64,
    median_s: f64,
    clock_s: f64,
    /// Share of the lines that end before an earlier one.
    disorder: f64,
    /// Whether it is hardly ever that short, which is no evidence where it may be.
    is_short: bool,
    is_possible: bool,
}

fn read(layout: &Layout, lines: &[String]) -> Reading {
    let mut layout = layout.clone();
    let filter = Filter::default();
    let is_own = !matches!(layout.shape, Shape::Template(_));
    let mut reading = Reading { is_integer: true, is_own, ..Reading::default() };
    for line in lines {
        let Ok(Line::Request(entry)) = layout.line(line, &filter) else { continue };
        let Some(response) = entry.response else { continue };
        reading.is_integer &= response.decimals == 0;
        reading.times.push((entry.stamp.ns, response.ns));
    }
    reading.clock_ns = step(reading.times.iter().map(|t| t.0));
    reading.resolution_ns = step(reading.times.iter().map(|t| t.1));
    reading
}

impl Reading {
    /// The share of requests that end before an earlier line's by more than the clocks' steps; of those after a clock was set back, the first
    /// alone.
    fn disorder(&self, side: Side) -> f64 {
        let slack = self.clock_ns.saturating_add(self.resolution_ns);
        let (mut latest, mut count) = (0u64, 0usize);
        for (stamp, taken) in &self.times {
            let end = if side == Side::End { *stamp } else { stamp.saturating_add(*taken) };
            count += usize::from(end.saturating_add(slack) < latest);
            let is_set_back = end.saturating_add(BACK) < latest;
            latest = if is_set_back { end } else { latest.max(end) };
        }
        count as f64 / self.times.len().max(1) as f64
    }

    /// Whether durations are too short to be likely. That integers of a service's own log are microseconds of a store in memory cannot be
    /// excluded, nor that a program that stamps nanoseconds writes durations in them (Go's slog does). Servers of HTTP take longer, and decimals
    /// are seldom of microseconds.
    fn is_short(&self, unit: Option<Unit>, mean_s: f64) -> bool {
        let is_fine = match unit {
            Some(Unit::Nanos) => (self.clock_ns as f64) < STAMPS_OF_NANOS_S * 1e9,
            Some(unit) => {
                let step = (unit.seconds() * 1e9).round() as Nanos;
                self.is_own && self.times.iter().all(|time| time.1.is_multiple_of(step))
            }
            None => false,
        };
        mean_s < *MEAN_USUAL_S.start() && !is_fine
    }

    /// How long the service was used, seconds: two tests of different days were not used in between.
    fn used_s(&self) -> f64 {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        let mut stamps: Vec<Nanos> = self.times.iter().map(|t| t.0).collect();
        stamps.sort_unstable();
        let (first, last) = (stamps.first().copied(), stamps.last().copied());
        let whole_s = seconds(last.unwrap_or(0) - first.unwrap_or(0) + self.clock_ns);
        let gaps_s = stamps.windows(2).map(|two| seconds(two[1] - two[0]));
        let is_unused =
            |gap_s: &f64| *gap_s > LULL_S && is_break(*gap_s, stamps.len() as u64, whole_s);
        whole_s - gaps_s.filter(is_unused).sum::<f64>()
    }

    fn judge(&self, unit: Option<Unit>, side: Side) -> Candidate {
        let seconds = |ns: u64| ns as f64 / SECOND as f64;
        let span_s = self.used_s();
        let mut taken: Vec<Nanos> = self.times.iter().map(|t| t.1).collect();
        taken.sort_unstable();
        let sum: f64 = taken.iter().map(|t| seconds(*t)).sum();
        let mean_s = sum / taken.len().max(1) as f64;
        let longest_s = taken.last().map_or(0.0, |t| seconds(*t));
        let in_service = sum / span_s.max(1e-9);
        Candidate {
            unit,
            side,
            in_service,
            mean_s,
            median_s: taken.get(taken.len() / 2).map_or(0.0, |t| seconds(*t)),
            clock_s: seconds(self.clock_ns),
            disorder: self.disorder(side),
            is_short: self.is_short(unit, mean_s),
            // A request that takes longer than the whole log is none of it, but for a few at its ends.
            is_possible: longest_s <= 2.0 * span_s
                && IN_SERVICE.contains(&in_service)
                && MEAN_S.contains(&mean_s),
        }
    }
}

/// A number for a sentence.
fn number(x: f64) -> String {
    match x {
        100.0.. => format!("{x:.0}"),
        0.1.. => format!("{x:.2}"),
        1e-4.. => format!("{x:.4}"),
        _ => "less than 0.0001".to_owned(),
    }
}

/// The layout with what sense says of it.
///
/// # Errors
/// A sentence: what is not known, what each reading would mean, and the option that says it.
pub(super) fn settle(mut layout: Layout, lines: &[String]) -> Result<Layout, String> {
    if layout.has_both_ends() {
        "the line has both ends".clone_into(&mut layout.side_why);
        return Ok(layout);
    }
    doubt_integers(&mut layout, lines);
    doubt_seconds(&mut layout, lines)?;
    // A layout whose durations all have units is judged by its sides alone.
    let has_units = layout.unit.is_some()
        || layout.columns.iter().all(|c| c.role != Role::Response || c.unit.is_some());
    if has_units && layout.side.is_some() {
        doubt_micros(&mut layout, lines);
        doubt_side(&mut layout, lines);
        return Ok(layout);
    }
    let units: Vec<Option<Unit>> =
        if has_units { vec![layout.unit] } else { layout.units.iter().map(|u| Some(*u)).collect() };
    let sides = layout.side.map_or(vec![Side::End, Side::Start], |side| vec![side]);
    let mut all: Vec<Candidate> = Vec::new();
    for unit in &units {
        let mut one = layout.clone();
        one.unit = unit.or(layout.unit);
        let reading = read(&one, lines);
        if !reading.times.is_empty() {
            all.extend(sides.iter().map(|side| reading.judge(*unit, *side)));
        }
    }
    let kept = ordered(&all, lines.len());
    // Values such as `12ms` are the same in every unit.
    let is_named = units.len() > 1
        && all.len() == units.len() * sides.len()
        && all.iter().all(|c| c.mean_s > 0.0 && Some(c.mean_s) == all.first().map(|f| f.mean_s));
    if !has_units && is_named {
        layout = layout.timed(Unit::Seconds, "its values name theirs");
    } else if !has_units {
        let found = unit_of(&kept);
        let by_waits = if found.is_none() { congested(&kept, &layout, lines) } else { None };
        let (found, why) = match (found, by_waits) {
            (Some(found), _) => (found, unit_reason(&all, &kept, found)),
            (None, Some(found)) => (found, WAITS_REASON.to_owned()),
            (None, None) => return Err(unit_refusal(&layout, &all)),
        };
        doubt_short(&mut layout, &kept, found);
        layout.unit = Some(found);
        layout.unit_why = why;
    }
    if layout.side.is_none() {
        let unit = layout.unit;
        let has_units = has_units || is_named;
        let kept: Vec<Candidate> =
            kept.into_iter().filter(|c| has_units || c.unit == unit).collect();
        settle_side(&mut layout, &kept, &all)?;
    }
    Ok(layout)
}

/// The candidates that are possible and whose ends are in order, as far as any's are.
fn ordered(all: &[Candidate], lines: usize) -> Vec<Candidate> {
    let possible: Vec<Candidate> = all.iter().copied().filter(|c| c.is_possible).collect();
    let best = possible.iter().map(|c| c.disorder).fold(f64::INFINITY, f64::min);
    // Lines that were shuffled, or merged from several machines, are in no order under any reading.
    if lines < ORDERED_MIN || best > 0.1 {
        return possible;
    }
    possible.into_iter().filter(|c| c.disorder <= 3.0 * best + DISORDER).collect()
}

/// The candidates of ordinary services.
fn usual(kept: &[Candidate]) -> Vec<Candidate> {
    let is_usual = |c: &Candidate| {
        let is_long = c.mean_s > *MEAN_USUAL_S.end();
        IN_SERVICE_USUAL.contains(&c.in_service) && !is_long && !c.is_short
    };
    kept.iter().copied().filter(is_usual).collect()
}

/// The one unit that is left, by order or else by the number of requests in the service.
fn unit_of(kept: &[Candidate]) -> Option<Unit> {
    let only = |some: &[Candidate]| {
        let first = some.first()?.unit?;
        some.iter().all(|c| c.unit == Some(first)).then_some(first)
    };
    only(kept).or_else(|| only(&usual(kept)))
}

/// The one unit in which requests take longer the more others they meet, if it is so in no other.
fn congested(kept: &[Candidate], layout: &Layout, lines: &[String]) -> Option<Unit> {
    let mut found: Vec<(Option<Unit>, f64)> = Vec::new();
    for candidate in usual(kept) {
        let mut one = layout.clone();
        one.unit = candidate.unit;
        let reading = read(&one, lines);
        found.push((
            candidate.unit,
            congestion::standard_errors(&reading.times, candidate.side, reading.clock_ns),
        ));
    }
    let unit = found.iter().find(|(_, z)| *z > CONGESTED)?.0;
    let mut others = found.iter().filter(|(other, _)| *other != unit);
    if others.all(|(_, z)| *z < NOT_CONGESTED) { unit } else { None }
}

/// Why a unit is taken that [`congested`] finds.
const WAITS_REASON: &str = "by sense: so requests that meet others in the service take longer, and in no other unit do they";

/// Says so if a shorter unit was left out for no other reason than that services are seldom that fast.
fn doubt_short(layout: &mut Layout, kept: &[Candidate], found: Unit) {
    let shorter = kept.iter().find(|c| c.is_short && c.unit.is_some_and(|unit| unit != found));
    if let Some((short, unit)) = shorter.and_then(|short| Some((short, short.unit?))) {
        layout.remarks.push(format!(
            "In {0} its durations would be {1} at the mean, which is seldom. If they are that, say --unit {0}.",
            unit.name(),
            time(short.mean_s)
        ));
    }
}

fn readings(all: &[Candidate]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for one in all {
        let Some(unit) = one.unit else { continue };
        let order = if one.disorder > DISORDER {
            format!(", {:.0} % of the lines out of order", one.disorder * 100.0)
        } else {
            String::new()
        };
        let side = one.side.name();
        let text = format!(
            "as {} with stamps of the {side}: {} requests in the service at a time{order}",
            unit.name(),
            number(one.in_service)
        );
        if all.iter().filter(|c| c.unit == one.unit).all(|c| c.disorder == one.disorder) {
            let text = text.replace(&format!(" with stamps of the {side}"), "");
            if !texts.contains(&text) {
                texts.push(text);
            }
        } else {
            texts.push(text);
        }
    }
    texts.join("; ")
}

fn unit_refusal(layout: &Layout, all: &[Candidate]) -> String {
    let readings = readings(all);
    let readings = if readings.is_empty() {
        "no line has a duration that can be read".to_owned()
    } else {
        readings
    };
    format!(
        "the unit of its durations is not known ({}): {readings}. Say it: --unit s, ms, us or ns, or \
         --fields response=NAME:UNIT",
        layout.name
    )
}

fn unit_reason(all: &[Candidate], kept: &[Candidate], found: Unit) -> String {
    let is_found = |c: &&Candidate| c.unit == Some(found);
    let others = all.iter().filter(|c| !is_found(c));
    let at_a_time = all.iter().find(is_found).map_or(0.0, |c| c.in_service);
    let mut against: Vec<String> = Vec::new();
    let mut named: Vec<Unit> = Vec::new();
    for other in others {
        let Some(unit) = other.unit.filter(|unit| !named.contains(unit)) else { continue };
        named.push(unit);
        let is_kept = kept.iter().any(|c| c.unit == Some(unit));
        against.push(if !is_kept && other.is_possible {
            format!(
                "as {} {:.0} % of the lines would be out of order",
                unit.name(),
                other.disorder * 100.0
            )
        } else {
            format!("as {} {}", unit.name(), number(other.in_service))
        });
    }
    format!(
        "by sense: so {} requests are in the service at a time ({})",
        number(at_a_time),
        against.join(", ")
    )
}

/// Finds the side of the stamps.
fn settle_side(layout: &mut Layout, kept: &[Candidate], all: &[Candidate]) -> Result<(), String> {
    let has = |side| kept.iter().find(|c: &&Candidate| c.side == side);
    let (side, why) = match (has(Side::Start), has(Side::End)) {
        (Some(start), None) => {
            let other = all.iter().find(|c| c.side == Side::End && c.unit == start.unit);
            let percent = other.map_or(0.0, |c| c.disorder) * 100.0;
            (
                Side::Start,
                format!(
                    "by sense: a log is written when requests end, and with its stamps as ends {percent:.0} % of the lines are \
                 out of order"
                ),
            )
        }
        (None, Some(end)) => {
            let other = all.iter().find(|c| c.side == Side::Start && c.unit == end.unit);
            let percent = other.map_or(0.0, |c| c.disorder) * 100.0;
            (
                Side::End,
                format!(
                    "by sense: the lines are in its order, and with it as the start {percent:.0} % of the ends are not"
                ),
            )
        }
        (first, second) => match (layout.likely, first.or(second)) {
            (Some(side), _) => (side, layout.side_why.clone()),
            (None, Some(one)) if one.clock_s >= 4.0 * one.median_s => (
                Side::End,
                "its clock is coarser than most durations, so that it hardly matters".to_owned(),
            ),
            _ => {
                return Err(
                    "whether its stamps are starts or ends of requests is not said, and the order of the lines does not show \
                     it. Say it: --stamp start or --stamp end, or --fields start=NAME or end=NAME"
                        .to_owned(),
                );
            }
        },
    };
    (layout.side, layout.side_why) = (Some(side), why);
    Ok(())
}

/// nginx writes its durations with three decimals: integers in their place are another server's, of another unit.
fn doubt_integers(layout: &mut Layout, lines: &[String]) {
    let is_seconds = |column: &super::layout::Column| {
        column.role == Role::Response && column.unit == Some(Unit::Seconds)
    };
    let may_be = matches!(layout.shape, Shape::Template(_) | Shape::Json)
        && layout.columns.iter().any(is_seconds);
    if !may_be {
        return;
    }
    let reading = read(layout, lines);
    let mut doubted = layout.clone();
    doubted.columns.iter_mut().filter(|c| is_seconds(c)).for_each(|c| c.unit = None);
    doubted.unit = Some(Unit::Nanos);
    let raw = read(&doubted, lines);
    let is_large = raw.times.iter().any(|t| t.1 > 100);
    if raw.times.len() >= 3 && is_large && (reading.is_integer || reading.times.is_empty()) {
        doubted.unit = None;
        doubted.units = vec![Unit::Micros, Unit::Millis, Unit::Seconds];
        doubted.remarks.push(
            "Its durations are integers, which nginx's $request_time is not (Apache's %D is one, in us)."
                .to_owned(),
        );
        *layout = doubted;
    }
}

/// Decimals in the place of nginx's `$request_time` may be another server's milliseconds. Of so many requests in the service at a time that
/// hardly any serves them, neither is believed; of long durations it is said.
fn doubt_seconds(layout: &mut Layout, lines: &[String]) -> Result<(), String> {
    let is_likely = layout.unit == Some(Unit::Seconds)
        && layout.units == [Unit::Seconds, Unit::Millis]
        && layout.columns.iter().all(|c| c.role != Role::Response || c.unit.is_none());
    if !is_likely {
        return Ok(());
    }
    let side = layout.side.unwrap_or(Side::End);
    let judged = |unit: Unit| {
        let mut one = layout.clone();
        one.unit = Some(unit);
        read(&one, lines).judge(Some(unit), side)
    };
    let (seconds, millis) = (judged(Unit::Seconds), judged(Unit::Millis));
    let is_usual = IN_SERVICE_USUAL.contains(&millis.in_service)
        && MEAN_USUAL_S.contains(&millis.mean_s)
        && lines.len() >= ORDERED_MIN;
    // Hundreds at a time are no doubt of a busy site, whose durations are short.
    if !is_usual || seconds.median_s < 1.0 {
        return Ok(());
    }
    if seconds.in_service > *IN_SERVICE_USUAL.end() || !seconds.is_possible {
        return Err(unit_refusal(layout, &[seconds, millis]));
    }
    layout.remarks.push(format!(
        "Half of its durations are {:.1} s or longer, as nginx writes them. If they are milliseconds, say --unit ms.",
        seconds.median_s
    ));
    Ok(())
}

/// Apache's `%D` is in µs, that of Tomcat up to 10.0 in ms: says so where durations are short for Apache.
fn doubt_micros(layout: &mut Layout, lines: &[String]) {
    let is_it = |c: &super::layout::Column| {
        c.role == Role::Response
            && c.unit == Some(Unit::Micros)
            && c.place == Place::Name("D".to_owned())
    };
    if !matches!(layout.shape, Shape::Template(_)) || !layout.columns.iter().any(is_it) {
        return;
    }
    let reading = read(layout, lines);
    let micros = reading.judge(Some(Unit::Micros), Side::End);
    if lines.len() >= ORDERED_MIN && micros.mean_s > 0.0 && micros.mean_s < SHORT_S {
        layout.remarks.push(format!(
            "%D is taken for Apache's, in µs: the mean duration is {:.1} µs. Tomcat's, up to 10.0, is in ms: if it is that, say \
             --unit ms.",
            1e6 * micros.mean_s
        ));
    }
}

/// Says so if the order of the lines speaks against the side that a server's documentation says.
fn doubt_side(layout: &mut Layout, lines: &[String]) {
    if layout.is_tester || lines.len() < ORDERED_MIN {
        return;
    }
    let Some(side) = layout.side else { return };
    let other = if side == Side::Start { Side::End } else { Side::Start };
    let reading = read(layout, lines);
    let (as_said, as_other) = (reading.disorder(side), reading.disorder(other));
    if as_said > 0.05 && as_other < 0.002 {
        layout.remarks.push(format!(
            "With its stamps as {}s of requests, {:.0} % of the lines are out of order, and none as {}s: if they are that, say \
             --stamp {}.",
            side.name(),
            as_said * 100.0,
            other.name(),
            other.name()
        ));
    }
}
