//! The curves as plots: queries/s against footprint, on a logarithmic axis.

use super::curve::Curve;
use super::measured::{Engine, Query};
use report::svg::{Axis, Mark, Plot, PlotPoint, Shape, standalone};

/// One plot for each kind of query, one below the other.
pub fn svg(curve: &Curve<'_>) -> String {
    let plots: Vec<Plot> = Query::ALL.into_iter().map(|query| plot(curve, query)).collect();
    let note = format!(
        "{}: {} bytes. Points are indexes as they were measured, means of all rounds; lines go \
         through the fastest one up to each footprint.",
        curve.dataset.name, curve.dataset.bytes
    );
    standalone(&plots, &[note])
}

fn plot(curve: &Curve<'_>, query: Query) -> Plot {
    let engines = &curve.dataset.engines;
    let rates = engines.iter().flat_map(|engine| {
        [1, curve.batch].into_iter().filter_map(move |batch| engine.mean(query, batch))
    });
    let (low, high) = rates.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), rate| {
        (low.min(rate), high.max(rate))
    });
    let right = engines.iter().map(|engine| engine.footprint).fold(1.0, f64::max);
    let mut marks = Vec::new();
    for (class, label, shape, ours, batch) in [
        ("third", "sdsl-lite", Shape::Triangle, false, 1),
        ("ours", "shard, one at a time", Shape::Disc, true, 1),
        ("measured", "shard, in batches", Shape::Ring, true, curve.batch),
    ] {
        let of = |engine: &&Engine| engine.is_ours() == ours;
        let mut points: Vec<PlotPoint> = engines
            .iter()
            .filter(of)
            .filter_map(|engine| {
                let y = engine.mean(query, batch)?;
                let Engine { index, parameters, footprint: x, .. } = engine;
                let title = format!("{index}, {parameters}: {x:.3} ×, {y:.0}/s");
                Some(PlotPoint { x: *x, y, half: 0.0, title })
            })
            .collect();
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
        let mut best = 0.0;
        let line = points.iter().filter_map(|point| {
            let faster = point.y > best;
            best = point.y.max(best);
            faster.then_some((point.x, point.y))
        });
        marks.push(Mark::Line { class, label: label.to_owned(), points: line.collect() });
        marks.push(Mark::Points { class, shape, label: String::new(), points });
    }
    Plot {
        title: format!("{}: {}", curve.dataset.name, query.in_words()),
        x: Axis::linear("footprint, × input", 0.3, right * 1.05),
        y: Axis::log("queries per second", low / 1.5, high * 1.5),
        marks,
    }
}
