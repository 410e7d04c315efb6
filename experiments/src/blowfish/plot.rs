//! Plots of a run against time: footprint, throughput, queue length.

use report::svg::{Axis, Mark, Plot, standalone};

use super::world::Second;

/// A line: its class, its name, its points.
pub type Line = (&'static str, String, Vec<(f64, f64)>);

/// Three plots below each other. `offered` is the rate of arrivals from each time on.
pub fn over_time(title: &str, seconds: &[Second], offered: &[(f64, f64)], note: &str) -> String {
    let end = seconds.last().map_or(1.0, |second| second.at_s);
    let line = |of: &dyn Fn(&Second) -> f64| -> Vec<(f64, f64)> {
        seconds.iter().map(|second| (second.at_s, of(second))).collect()
    };
    let mut steps = Vec::new();
    for (at, &(from, rate)) in offered.iter().enumerate() {
        steps.push((from, rate));
        steps.push((offered.get(at + 1).map_or(end, |next| next.0), rate));
    }
    let footprint = vec![("ours", String::new(), line(&|s| s.footprint))];
    let completed = line(&|s| s.completions as f64);
    let throughput =
        vec![("spotify", "offered".to_owned(), steps), ("ours", "answered".to_owned(), completed)];
    let length = vec![("ours", String::new(), line(&|s| s.length().max(0.01)))];
    let plots = [
        plot(&format!("{title}: footprint"), "seconds", "bytes held, × input", footprint, false),
        plot("throughput", "seconds", "requests per second", throughput, false),
        plot("requests waiting and in service", "seconds", "mean of a second", length, true),
    ];
    standalone(&plots, &[note.to_owned()])
}

/// A plot of lines; its vertical axis begins at 0 or is logarithmic.
pub fn plot(title: &str, x: &str, y: &str, lines: Vec<Line>, log: bool) -> Plot {
    let all = || lines.iter().flat_map(|(_, _, points)| points.iter().copied());
    let end = all().map(|(x, _)| x).fold(1.0, f64::max);
    let top = all().map(|(_, y)| y).fold(f64::MIN_POSITIVE, f64::max);
    let low = all().map(|(_, y)| y).fold(f64::INFINITY, f64::min).max(top * 1e-9);
    let mark = |(class, label, points)| Mark::Line { class, label, points };
    Plot {
        title: title.to_owned(),
        x: Axis::linear(x, 0.0, end),
        y: if log { Axis::log(y, low, top * 1.2) } else { Axis::linear(y, 0.0, top * 1.1) },
        marks: lines.into_iter().map(mark).collect(),
    }
}
