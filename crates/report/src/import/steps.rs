//! Cuts the windows of an import into steps, and says what is in none.

use std::str::FromStr;

use ground::window::{QueueName, Window};
use record::{Generator, Step};
use serde::Serialize;

use super::collector::Break;
use super::levels;
use super::shown::{count, length, moment, share};
use crate::grid::Grid;
use crate::objective::{self, digits};

/// The most times without requests, and the most parts between them, that are listed.
const LISTED_MAX: usize = 5;

/// How the input is cut into steps.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Cut {
    /// Where the rate of arrivals changes.
    #[default]
    Levels,
    /// Not at all: all of it is one step.
    One,
    /// Into steps of this length, seconds.
    Every(f64),
}

impl FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Cut, String> {
        let length = |text: &str| {
            let (number, unit) =
                text.split_at(text.len() - usize::from(text.ends_with(['m', 'h'])));
            match (unit, number.parse::<f64>()) {
                ("m", Ok(minutes)) => Ok(60.0 * minutes),
                ("h", Ok(hours)) => Ok(3_600.0 * hours),
                _ => objective::seconds(text),
            }
        };
        match text.trim() {
            "levels" => Ok(Cut::Levels),
            "one" => Ok(Cut::One),
            text => length(text).map(Cut::Every).map_err(|_| {
                format!(
                    "invalid steps `{text}`: write `levels` (cut where the load changes), `one`, or a length \
                     like `100s`, `5m` or `1h`"
                )
            }),
        }
    }
}

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cut::Levels => f.write_str("levels"),
            Cut::One => f.write_str("one"),
            Cut::Every(s) => write!(f, "{s}s"),
        }
    }
}

/// The requests of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct InStep {
    /// The step's number.
    pub index: usize,
    /// Requests that arrived in it.
    pub requests: u64,
}

/// The steps of an import.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub steps: Vec<Step>,
    pub requests: Vec<InStep>,
    /// Requests that arrived in none.
    pub left_out: u64,
    pub notes: Vec<String>,
}

/// Arrivals of all queues in the same interval.
#[derive(Clone, Copy, Debug)]
struct Cell {
    start_us: u64,
    end_us: u64,
    arrivals: u64,
}

impl Cell {
    fn length_s(&self) -> f64 {
        self.end_us.saturating_sub(self.start_us) as f64 * 1e-6
    }
}

/// The windows that say what the load was: the clients', or else the devices'.
fn cells(windows: &[Window]) -> Vec<Cell> {
    let chosen = |client: bool| {
        let wanted = move |w: &&Window| match w.queue_name() {
            Some(QueueName::Gateway) => client,
            Some(QueueName::Origin) => false,
            _ => !client,
        };
        let mut chosen: Vec<&Window> = windows.iter().filter(wanted).collect();
        chosen.sort_by_key(|w| w.start_unix_us);
        chosen
    };
    let client = chosen(true);
    let mut cells: Vec<Cell> = Vec::new();
    for window in if client.is_empty() { chosen(false) } else { client } {
        match cells.last_mut() {
            // Of another device.
            Some(last) if window.start_unix_us < last.end_us.midpoint(last.start_us) => {
                last.arrivals += window.arrivals;
            }
            _ => cells.push(Cell {
                start_us: window.start_unix_us,
                end_us: window.end_unix_us(),
                arrivals: window.arrivals,
            }),
        }
    }
    cells
}

/// Cuts windows into steps; `breaks` are the times that have none.
pub(super) fn cut(windows: &[Window], breaks: &[Break], how: Cut) -> Steps {
    let cells = cells(windows);
    let mut notes = silent(breaks);
    let parts: Vec<&[Cell]> = match how {
        Cut::One => vec![&cells[..]],
        Cut::Every(length_s) => equal(&cells, length_s, &mut notes),
        Cut::Levels => of_levels(&cells, breaks, &mut notes),
    };
    let mut found = Steps { notes, ..Steps::default() };
    for part in parts {
        let (Some(first), Some(last)) = (part.first(), part.last()) else { continue };
        let requests: u64 = part.iter().map(|c| c.arrivals).sum();
        let seconds: f64 = part.iter().map(Cell::length_s).sum();
        if last.end_us <= first.start_us {
            continue;
        }
        let index = found.steps.len();
        found.steps.push(Step {
            index,
            rate: Some(requests as f64 / seconds.max(1e-6)),
            clients: None,
            start_unix_us: first.start_us,
            end_unix_us: last.end_us,
            generator: Generator::default(),
        });
        found.requests.push(InStep { index, requests });
    }
    let all: u64 = cells.iter().map(|c| c.arrivals).sum();
    let inside: u64 = found.requests.iter().map(|s| s.requests).sum();
    found.left_out = all - inside;
    found
}

/// Cuts into intervals of equal length, counted from the beginning of the first window. What is left
/// at the end is a step as well if it is at least half as long.
fn equal<'a>(cells: &'a [Cell], length_s: f64, notes: &mut Vec<String>) -> Vec<&'a [Cell]> {
    let Some(first) = cells.first() else { return Vec::new() };
    let length_us = ((length_s * 1e6) as u64).max(1);
    // The first window may have begun before the log did: the grid is that of the others.
    let mut lengths: Vec<u64> = cells.iter().map(|c| c.end_us - c.start_us).collect();
    lengths.sort_unstable();
    let window_us = lengths[lengths.len() / 2].max(1);
    let windows = (first.end_us - first.start_us).div_ceil(window_us);
    let start = first.end_us.saturating_sub(windows * window_us);
    let index = |c: &Cell| (c.start_us.midpoint(c.end_us).max(start) - start) / length_us;
    let mut parts: Vec<&[Cell]> = cells.chunk_by(|a, b| index(a) == index(b)).collect();
    let rest: f64 = parts.last().map_or(0.0, |last| last.iter().map(Cell::length_s).sum());
    let requests: u64 = parts.last().map_or(0, |last| last.iter().map(|c| c.arrivals).sum());
    if parts.len() > 1 && rest < length_s / 2.0 {
        parts.pop();
        if requests > 0 {
            let all: u64 = cells.iter().map(|c| c.arrivals).sum();
            notes.push(format!(
                "{} ({}) are in no step: they came in the last {} s, which is less than half a step. Choose \
                 another length for --steps, or `levels`.",
                count(requests, "request"),
                share(requests, all),
                digits(rest, 3)
            ));
        }
    }
    parts
}

/// That there are times without windows.
fn silent(breaks: &[Break]) -> Vec<String> {
    let text = |gap: &Break| {
        format!(
            "Nothing arrived from {} to {} ({}): there are no windows of that time, and a step that spans it has the rate of the rest.",
            moment(gap.from_us),
            moment(gap.until_us),
            length(gap.until_us.saturating_sub(gap.from_us) as f64 * 1e-6)
        )
    };
    let mut notes: Vec<String> = breaks.iter().take(LISTED_MAX).map(text).collect();
    if let Some(more) = breaks.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        notes.push(format!("Nor did anything in {} like these.", count(more as u64, "more time")));
    }
    notes
}

/// The parts between breaks that are long enough for a step, or all if there is one part; what is in no step is named.
fn parts_between<'a>(
    cells: &'a [Cell],
    breaks: &[Break],
    notes: &mut Vec<String>,
) -> Vec<&'a [Cell]> {
    let is_apart = |a: &Cell, b: &Cell| {
        breaks.iter().any(|gap| a.start_us < gap.from_us && b.start_us >= gap.until_us)
    };
    let all: Vec<&[Cell]> = cells.chunk_by(|a, b| !is_apart(a, b)).collect();
    if all.len() <= 1 {
        return all;
    }
    let arrivals = |part: &[Cell]| part.iter().map(|c| c.arrivals).sum::<u64>();
    let is_long = |part: &&[Cell]| {
        part.len() >= levels::WINDOWS_MIN && arrivals(part) >= levels::ARRIVALS_MIN
    };
    if !all.iter().any(is_long) {
        return all;
    }
    let (long, short): (Vec<&[Cell]>, Vec<&[Cell]>) = all.into_iter().partition(is_long);
    for part in short.iter().take(LISTED_MAX) {
        if let (Some(first), Some(last)) = (part.first(), part.last()) {
            notes.push(format!(
                "{} from {} to {}, with nothing before and after for long, are in no step: a step is at least {} windows and {} requests long.",
                count(arrivals(part), "request"),
                moment(first.start_us),
                moment(last.end_us),
                levels::WINDOWS_MIN,
                levels::ARRIVALS_MIN
            ));
        }
    }
    let more = short.get(LISTED_MAX..).unwrap_or_default();
    if !more.is_empty() {
        let requests = more.iter().map(|part| arrivals(part)).sum();
        notes.push(format!(
            "Nor are {} in {}.",
            count(requests, "request"),
            count(more.len() as u64, "more such time")
        ));
    }
    long
}

/// Cuts where the load changes, and at breaks.
fn of_levels<'a>(cells: &'a [Cell], breaks: &[Break], notes: &mut Vec<String>) -> Vec<&'a [Cell]> {
    let level = |c: &Cell| levels::Window { length_s: c.length_s(), arrivals: c.arrivals };
    let mut parts = Vec::new();
    let (mut is_steady, mut is_joined) = (true, false);
    for stretch in parts_between(cells, breaks, notes) {
        let windows: Vec<levels::Window> = stretch.iter().map(level).collect();
        let ends = levels::find(&windows);
        is_steady = levels::is_steady(&windows);
        is_joined |= ends.len() >= levels::LEVELS_MAX;
        let mut from = 0;
        for to in ends {
            let part = &stretch[from..to];
            from = to;
            match (part.first(), part.last()) {
                (Some(first), Some(last)) if part.iter().all(|c| c.arrivals == 0) => {
                    notes.push(format!(
                        "Nothing arrived from {} to {}: that is no step.",
                        moment(first.start_us),
                        moment(last.end_us)
                    ));
                }
                _ => parts.push(part),
            }
        }
    }
    if is_joined {
        notes.push(format!(
            "The load changes more often than {} times: neighbours of similar load were joined. Import a \
             shorter time, or cut steps of equal length by --steps.",
            levels::LEVELS_MAX
        ));
    }
    if parts.len() == 1 {
        notes.push(one_step(is_steady));
    }
    parts
}

/// What it means that a log is one step.
fn one_step(is_steady: bool) -> String {
    if is_steady {
        return format!(
            "One load was found, so there is one step (a step is at least {} windows and {} requests long; \
             a shorter --window finds shorter ones). One load does not tell how responses lengthen with \
             load: predictions need a log of at least two.",
            levels::WINDOWS_MIN,
            levels::ARRIVALS_MIN
        );
    }
    format!(
        "The load changes within the log, and no part of it is long enough for a step of its own ({} windows and {} requests at least): all of \
         it is one step, which a fit takes for one load. Its number of servers and its predictions are wrong then: import a longer log, cut it \
         by --steps, or, where its clock is fine enough, by a shorter --window.",
        levels::WINDOWS_MIN,
        levels::ARRIVALS_MIN
    )
}

/// The steps as a table: when, at which rate, with how many requests.
pub(super) fn table(steps: &[Step], requests: &[InStep], left_out: u64) -> String {
    let mut grid = Grid::new(
        "rllrrrr",
        &["step", "from (UTC)", "to", "seconds", "requests/s", "requests", ""],
    );
    let all = requests.iter().map(|s| s.requests).sum::<u64>() + left_out;
    for (step, requests) in steps.iter().zip(requests) {
        grid.row([
            step.index.to_string(),
            moment(step.start_unix_us),
            moment(step.end_unix_us),
            digits(step.end_unix_us.saturating_sub(step.start_unix_us) as f64 * 1e-6, 4),
            digits(step.rate.unwrap_or(0.0), 4),
            digits(requests.requests as f64, 15),
            share(requests.requests, all),
        ]);
    }
    grid.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a second from `start_s` on with so many arrivals each.
    fn windows(start_s: u64, loads: &[(u64, u64)]) -> Vec<Window> {
        let all = loads.iter().flat_map(|(arrivals, seconds)| (0..*seconds).map(|_| *arrivals));
        let window = |(i, arrivals): (usize, u64)| {
            let start_us = (start_s + i as u64) * 1_000_000;
            Window { arrivals, length_s: 1.0, ..Window::new("gateway", start_us, 0, &[]) }
        };
        all.enumerate().map(window).collect()
    }

    #[test]
    fn tests_of_different_days_have_their_steps_and_nothing_is_lost_in_silence() {
        let day = 86_400;
        let loads = [(30, 60), (50, 60), (70, 60)];
        let (monday, friday) = (windows(0, &loads), windows(5 * day, &loads));
        let stray = windows(9 * day, &[(1, 1)]);
        let breaks = [(180, 5 * day), (5 * day + 180, 9 * day)]
            .map(|(from, until)| Break { from_us: from * 1_000_000, until_us: until * 1_000_000 });
        let all = [monday, friday, stray].concat();
        let found = cut(&all, &breaks, Cut::Levels);
        let rates: Vec<f64> = found.steps.iter().filter_map(|s| s.rate).collect();
        assert_eq!(rates, [30.0, 50.0, 70.0, 30.0, 50.0, 70.0]);
        assert_eq!(found.left_out, 1);
        let notes = found.notes.join("\n");
        assert_eq!(notes.matches("Nothing arrived").count(), 2, "{notes}");
        assert!(notes.contains("1 request from 1970-01-10 00:00:00"), "{notes}");
        // Steps of equal length are those that have windows.
        let equal = cut(&all, &breaks, Cut::Every(60.0));
        assert_eq!(equal.steps.len(), 6);
        // A step that spans them has the rate while there were requests.
        let one = cut(&all, &breaks, Cut::One);
        assert_eq!(one.steps[0].rate.map(|rate| rate.round()), Some(50.0));
    }
}
