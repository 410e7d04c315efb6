//! A plot for each part, in the study's order: measured throughput with its interval, and both
//! predictions as lines.

use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, standalone};

use super::config::Settings;
use super::measured::MeasuredRow;
use super::rows::{Part, Work};

/// The file.
pub(super) fn svg(measured: &[MeasuredRow], settings: &Settings) -> String {
    let mut plots = Vec::new();
    for part in Part::ALL.into_iter().filter(|&part| part != Part::Design) {
        let of = |one: &&MeasuredRow| one.row.parts.contains(&part);
        let rows: Vec<&MeasuredRow> = measured.iter().filter(of).collect();
        if part == Part::MultiGets {
            for sharded in [false, true] {
                let own: Vec<&MeasuredRow> = rows
                    .iter()
                    .filter(|one| {
                        one.row.system.sharded == sharded && one.row.work != Work::Batches
                    })
                    .copied()
                    .collect();
                let mode = if sharded { "sharded" } else { "whole" };
                plots.extend(plot(
                    &format!("{}: {mode}", part.title()),
                    "keys of a get",
                    &own,
                    keys,
                ));
            }
            continue;
        }
        for work in [Work::Reads(1), Work::Writes] {
            let own: Vec<&MeasuredRow> =
                rows.iter().filter(|one| one.row.work == work).copied().collect();
            let title = format!("{}: {}", part.title(), work.name());
            plots.extend(plot(&title, "clients", &own, |one| f64::from(one.row.clients)));
        }
    }
    let note = format!(
        "Points: measured, mean of {} repetitions with its 95 % interval. Lines: predicted before, \
         by the network of queues (solid) and by the flow-equivalent station (dashed); one for each \
         number of workers.",
        settings.repetitions
    );
    standalone(&plots, &[note])
}

fn keys(one: &MeasuredRow) -> f64 {
    match one.row.work {
        Work::Reads(keys) => f64::from(keys),
        _ => 1.0,
    }
}

fn plot(
    title: &str,
    x: &str,
    rows: &[&MeasuredRow],
    at: impl Fn(&MeasuredRow) -> f64,
) -> Option<Plot> {
    let mut series: Vec<(u8, u32)> =
        rows.iter().map(|one| (one.row.system.middlewares, one.row.system.workers)).collect();
    series.sort_unstable();
    series.dedup();
    let (mut marks, mut points, mut top) = (Vec::new(), Vec::new(), 0.0f64);
    for (i, own) in series.iter().enumerate() {
        let mut of: Vec<&MeasuredRow> = rows
            .iter()
            .filter(|one| (one.row.system.middlewares, one.row.system.workers) == *own)
            .copied()
            .collect();
        of.sort_by(|a, b| at(a).total_cmp(&at(b)));
        let line = |of: &[(f64, f64)], class, label: &str| Mark::Line {
            class,
            // One entry of the legend for all lines of a method.
            label: if i == 0 { label.to_owned() } else { String::new() },
            points: of.to_vec(),
        };
        let network: Vec<(f64, f64)> =
            of.iter().map(|one| (at(one), one.prediction.network)).collect();
        let flow: Vec<(f64, f64)> =
            of.iter().filter_map(|one| Some((at(one), one.prediction.flow?))).collect();
        top = network.iter().chain(&flow).map(|p| p.1).fold(top, f64::max);
        marks.push(line(&network, "ours", "network of queues"));
        if !flow.is_empty() {
            marks.push(line(&flow, "spotify", "flow-equivalent"));
        }
        points.extend(of.iter().map(|one| {
            let (y, half) = one.mean(|r| r.throughput);
            let half = if half.is_nan() { 0.0 } else { half };
            PlotPoint { x: at(one), y, half, title: format!("{}: {y:.1}/s", one.row.name()) }
        }));
    }
    let (low, high) = points
        .iter()
        .fold((f64::INFINITY, 0.0f64), |(low, high), point| (low.min(point.x), high.max(point.x)));
    let top = points.iter().map(|point| point.y + point.half).fold(top, f64::max);
    let label = "measured".to_owned();
    marks.push(Mark::Points { class: "measured", shape: Shape::Disc, label, points });
    (high > 0.0).then(|| Plot {
        title: title.to_owned(),
        x: Axis::log(x, low * 0.8, high * 1.25),
        y: Axis::linear("requests per second", 0.0, top * 1.1),
        marks,
    })
}
