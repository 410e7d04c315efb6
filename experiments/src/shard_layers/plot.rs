//! The curves as plots: queries/s against the time since a pair of layers was marked.

use super::measured::{Curve, Dataset};
use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, standalone};

/// One plot for each kind of query, one below the other.
pub fn svg(dataset: &Dataset) -> String {
    let plots: Vec<Plot> = dataset.curves.iter().map(|curve| plot(dataset, curve)).collect();
    let [sa, isa] = dataset.marked;
    let note = format!(
        "{}: {} bytes. At 0 a layer of SA of rate {sa} and one of ISA of rate {isa} were marked, for queries \
         to fill. The horizontal line is the mean with both whole.",
        dataset.name, dataset.bytes
    );
    standalone(&plots, &[note])
}

fn plot(dataset: &Dataset, curve: &Curve) -> Plot {
    let count = curve.before_per_s.len();
    let before = curve.before_per_s.iter().enumerate();
    let before = before.map(|(i, &y)| PlotPoint {
        x: -curve.window_s * ((count - i) as f64 - 0.5),
        y,
        half: 0.0,
        title: format!("before: {y:.0}/s"),
    });
    let after = curve.after.iter().map(|window| PlotPoint {
        x: window.at_s - curve.window_s / 2.0,
        y: window.per_s,
        half: 0.0,
        title: format!(
            "{:.1} s: {:.0}/s; known {:.1} % of SA, {:.1} % of ISA",
            window.at_s,
            window.per_s,
            window.known_sa * 100.0,
            window.known_isa * 100.0
        ),
    });
    let points: Vec<PlotPoint> = before.chain(after).collect();
    let whole = curve.whole_per_s.iter().sum::<f64>() / curve.whole_per_s.len().max(1) as f64;
    let top = points.iter().map(|point| point.y).fold(whole, f64::max);
    let left = points.first().map_or(0.0, |point| point.x);
    let right = points.last().map_or(1.0, |point| point.x);
    let line = points.iter().map(|point| (point.x, point.y)).collect();
    Plot {
        title: format!("{}: {} by popularity", dataset.name, curve.query.in_words()),
        x: Axis::linear("seconds since the mark", left - 0.5, right + 0.5),
        y: Axis::linear("queries per second", 0.0, top * 1.1),
        marks: vec![
            Mark::Horizontal { y: whole, label: "whole".to_owned() },
            Mark::Vertical { x: 0.0, label: "marked".to_owned() },
            Mark::Line { class: "ours", label: String::new(), points: line },
            Mark::Points { class: "ours", shape: Shape::Disc, label: String::new(), points },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::measured::tests::dataset;
    use super::*;

    #[test]
    fn every_window_is_a_point() {
        let svg = svg(&dataset());
        assert_eq!(svg.matches("before: ").count(), 2);
        assert_eq!(svg.matches("known 10.0 % of SA, 20.0 % of ISA").count(), 3);
        assert!(svg.contains("marked") && svg.contains("whole"));
    }
}
