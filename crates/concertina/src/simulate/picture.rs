//! How a simulated step went on: its load and its responses over virtual time, as a picture.

use ground::number::time;
use ground::window::{Histogram, Outcome, Window};
use report::svg::{Axis, Mark, Plot, standalone};

/// The most windows that a course keeps: neighbours are put together beyond.
const WINDOWS_MAX: usize = 4096;
/// The most points of a line, about.
const POINTS: f64 = 400.0;
const DAY_S: f64 = 86_400.0;
/// Of a longer run each point is the mean of whole days: of parts of days a line would show the beat of days and points.
const DAYS: f64 = 10.0;
/// The classes of lines, in the order of the objectives.
const CLASSES: [&str; 4] = ["ours", "measured", "third", "spotify"];

/// The clients' windows of a step, in order of time.
#[derive(Clone, Debug, Default)]
pub struct StepCourse {
    /// Requests/s that were asked for.
    pub rate: f64,
    windows: Vec<Window>,
    /// Windows that each of them stands for, and those that the last one has.
    each: usize,
    last: usize,
}

/// A unit of time in which a picture is readable.
fn unit(seconds: f64) -> (f64, &'static str) {
    match seconds {
        s if s > 3.0 * DAY_S => (DAY_S, "days"),
        s if s > 3.0 * 3600.0 => (3600.0, "hours"),
        s if s > 600.0 => (60.0, "minutes"),
        _ => (1.0, "seconds"),
    }
}

impl StepCourse {
    /// A course without windows.
    pub(super) fn new(rate: f64) -> StepCourse {
        StepCourse { rate, windows: Vec::new(), each: 1, last: 0 }
    }

    /// Adds the next window.
    pub(super) fn push(&mut self, window: &Window) {
        match self.windows.last_mut() {
            Some(open) if self.last < self.each => {
                open.merge(window, false);
                self.last += 1;
            }
            _ => {
                self.windows.push(window.clone());
                self.last = 1;
            }
        }
        if self.windows.len() > WINDOWS_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let all = std::mem::take(&mut self.windows);
        for pair in all.chunks(2) {
            let mut both = pair[0].clone();
            pair.iter().skip(1).for_each(|second| both.merge(second, false));
            self.windows.push(both);
        }
        self.last += if all.len().is_multiple_of(2) { self.each } else { 0 };
        self.each *= 2;
    }

    /// The windows of each point together, with the middle of their time in seconds.
    fn points(&self, span_s: f64) -> impl Iterator<Item = (f64, Window)> {
        let width_s = match span_s / POINTS {
            width_s if span_s > DAYS * DAY_S => (width_s / DAY_S).ceil() * DAY_S,
            width_s => width_s,
        };
        let mut start_s = 0.0;
        let starts = self.windows.iter().map(|window| {
            let start = start_s;
            start_s += window.length_s;
            (start, window)
        });
        let starts: Vec<(f64, &Window)> = starts.collect();
        let point = |start_s: f64| (start_s / width_s) as u64;
        let together = starts.chunk_by(|a, b| point(a.0) == point(b.0)).map(|of| {
            let mut window = of[0].1.clone();
            of.iter().skip(1).for_each(|(_, next)| window.merge(next, false));
            (of[0].0 + window.length_s / 2.0, window)
        });
        together.collect::<Vec<_>>().into_iter()
    }

    fn plots(&self) -> Vec<Plot> {
        let span_s: f64 = self.windows.iter().map(|window| window.length_s).sum();
        let (unit_s, unit) = unit(span_s);
        let rows: Vec<(f64, Row)> =
            self.points(span_s).map(|(at_s, window)| (at_s / unit_s, Row::new(&window))).collect();
        let x = Axis::linear(&format!("{unit} after the warm-up"), 0.0, span_s / unit_s);
        let line = |class, label: String, of: &dyn Fn(&Row) -> f64| Mark::Line {
            class,
            label,
            points: rows
                .iter()
                .map(|(at, row)| (*at, of(row)))
                .filter(|p| p.1.is_finite())
                .collect(),
        };
        let most = |of: &dyn Fn(&Row) -> f64| {
            rows.iter().map(|(_, row)| of(row)).filter(|y| y.is_finite()).fold(0.0, f64::max)
        };
        let objectives = self.windows.first().map_or(&[][..], |window| &window.objectives_ms);
        let shares = objectives.iter().zip(CLASSES).enumerate().map(|(at, (ms, class))| {
            let share = move |row: &Row| row.within.get(at).copied().unwrap_or(f64::NAN);
            line(class, format!("≤ {}", time(ms / 1e3)), &share)
        });
        let low = rows.iter().map(|(_, row)| row.mean_s).filter(|s| *s > 0.0);
        let (low, high) = (low.fold(f64::INFINITY, f64::min), most(&|row| row.p99_s));
        let (per_s, time_unit) = if high > 10.0 { (1.0, "s") } else { (1e3, "ms") };
        let plot = |title: &str, y: Axis, marks: Vec<Mark>| Plot {
            title: title.to_owned(),
            x: x.clone(),
            y,
            marks,
        };
        vec![
            plot(
                "answered in time",
                Axis::linear("% of the requests", 0.0, 100.0),
                shares.collect(),
            ),
            plot(
                "response times",
                Axis::log(time_unit, low * per_s * 0.8, high * per_s * 1.2),
                vec![
                    line("measured", "mean".to_owned(), &|row| row.mean_s * per_s),
                    line("ours", "p99".to_owned(), &|row| row.p99_s * per_s),
                ],
            ),
            plot(
                "load and failures",
                Axis::linear("requests/s", 0.0, most(&|row| row.rate) * 1.1),
                vec![
                    line("measured", "requests".to_owned(), &|row| row.rate),
                    line("spotify", "failed".to_owned(), &|row| row.failed),
                ],
            ),
        ]
    }

    /// The picture as an SVG file, with a note below.
    pub fn svg(&self, note: &str) -> String {
        standalone(&self.plots(), &[note.to_owned()])
    }
}

/// A point of each line.
struct Row {
    rate: f64,
    failed: f64,
    mean_s: f64,
    p99_s: f64,
    /// For each objective, the share of all requests within it, in percent.
    within: Vec<f64>,
}

impl Row {
    fn new(window: &Window) -> Row {
        let (mut responses, mut within) =
            (Histogram::default(), vec![0; window.objectives_ms.len()]);
        for times in window.times.iter().filter(|times| times.outcome != Outcome::Error) {
            responses.merge(&times.response);
            within.iter_mut().zip(&times.within).for_each(|(sum, count)| *sum += count);
        }
        let of_all = |count: u64| 100.0 * count as f64 / window.completions as f64;
        let per_s = |count: u64| count as f64 / window.length_s;
        Row {
            rate: per_s(window.arrivals),
            failed: per_s(window.errors),
            mean_s: if responses.is_empty() { f64::NAN } else { responses.mean_s() },
            p99_s: responses.quantile_s(0.99).unwrap_or(f64::NAN),
            within: within.into_iter().map(of_all).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(arrivals: u64) -> Window {
        let mut window = Window::new("load", 0, 0, &[20.0]);
        (window.arrivals, window.completions, window.length_s) = (arrivals, arrivals, 1.0);
        window
    }

    #[test]
    fn a_long_course_is_bounded_and_loses_nothing() {
        let mut course = StepCourse::new(1.0);
        for at in 0..10_007 {
            course.push(&window(at));
            assert!(course.windows.len() <= WINDOWS_MAX);
        }
        let sum = |of: &dyn Fn(&Window) -> f64| course.windows.iter().map(of).sum::<f64>();
        assert_eq!(sum(&|window| window.arrivals as f64), (10_006.0 * 10_007.0) / 2.0);
        assert_eq!(sum(&|window| window.length_s), 10_007.0);
        let lengths: Vec<f64> = course.windows.iter().map(|window| window.length_s).collect();
        let (last, whole) = lengths.split_last().unwrap();
        assert!(whole.iter().all(|length| *length == course.each as f64), "{lengths:?}");
        assert!(*last <= course.each as f64);
        let svg = course.svg("a note");
        assert!(
            svg.contains("a note") && svg.contains("hours") || svg.contains("minutes"),
            "{svg}"
        );
    }
}
