//! The plots of a report: Figures 6 to 9 of the Spotify paper for the measured system, and plots
//! that help to judge the measurements.

use model::{Limits, Model, Prediction};

use super::compare::{ComparedStep, Comparison, Row};
use super::objective::{digits, time};
use super::svg::{Axis, Mark, Plot, PlotPoint, Shape};

/// Number of loads at which a curve is computed.
const CURVE: usize = 72;
/// Number of loads at which a band is computed. It is smaller because each interval needs a
/// prediction from every replicate.
const BAND: usize = 14;

/// The largest load that a plot shows: past the measured loads and the limit, but short of
/// saturation unless a measurement lies there.
fn rate_max(limits: &Limits, largest: f64) -> f64 {
    let finite = |r: f64| if r.is_finite() { r } else { 0.0 };
    let wanted = (largest * 1.04)
        .max(finite(limits.mg1.value) * 1.1)
        .max(finite(limits.spotify_single.value) * 1.1);
    let saturation = limits.saturation.value;
    match saturation.is_finite() {
        true => wanted.min(saturation.max(largest) * 1.02),
        false => wanted,
    }
}

/// Loads from nearly 0 to `high`, closer together near saturation, where the curves bend.
fn loads(high: f64, saturation: f64, count: usize) -> Vec<f64> {
    let top = high.min(saturation * 0.999);
    let at = |i: usize| {
        let x = i as f64 / (count - 1) as f64;
        top * (1.0 - (1.0 - x).powf(1.5)).max(1e-4)
    };
    (0..count).map(at).collect()
}

/// The curves of both models for P(T ≤ t) against the load of `servers` servers, and the interval
/// band of ours.
fn model_curves(model: &Model, limits: &Limits, t_s: f64, high: f64, servers: u32) -> Vec<Mark> {
    let n = f64::from(servers);
    let mut ours = Vec::new();
    if let Ok(node) = model.node() {
        let at = node.at_time(t_s);
        for load in loads(high, limits.saturation.value * n, CURVE) {
            if let Ok(operating) = node.operating(load / n) {
                ours.push((load, at.cdf(&operating)));
            }
        }
    }
    let saturation = model.spotify().map_or(f64::INFINITY, |s| s.saturation());
    let published = |load: f64| {
        let share = model.spotify_cdf(load / n, &[t_s]).ok()?;
        Some((load, *share.first()?))
    };
    let spotify = loads(high, saturation * n, CURVE).into_iter().filter_map(published).collect();
    let interval = |load: f64| {
        let share = model.within(load / n, t_s).ok()?;
        Some((load, share.low, share.high))
    };
    let band =
        loads(high, limits.saturation.value * n, BAND).into_iter().filter_map(interval).collect();
    let label = |text: &str| text.to_owned();
    vec![
        Mark::Band { class: "ours", label: String::new(), points: band },
        Mark::Line { class: "spotify", label: label("Spotify model"), points: spotify },
        Mark::Line { class: "ours", label: label("Concertina's model"), points: ours },
    ]
}

/// Marks the confidence limit, and the load up to which the model was checked; shades the loads past that.
fn limit_marks(limit: f64, checked: f64) -> Vec<Mark> {
    let mut marks = Vec::new();
    if checked.is_finite() {
        marks.push(Mark::Shade { class: "untrusted", from: checked, to: f64::INFINITY });
    }
    let bounds = [("confidence limit", limit), ("checked up to", checked)];
    for (what, x) in bounds.into_iter().filter(|bound| bound.1.is_finite()) {
        marks.push(Mark::Vertical { x, label: format!("{what} {}", digits(x, 4)) });
    }
    marks
}

/// The narrowest of a few standard axes that shows all shares.
fn share_axis(label: &str, shares: impl Iterator<Item = f64>) -> Axis {
    let lowest = shares.filter(|s| s.is_finite()).fold(1.0, f64::min);
    let low = [0.98, 0.95, 0.9, 0.8, 0.6, 0.4].into_iter().find(|&low| lowest >= low + 0.002);
    let low = low.unwrap_or(0.0);
    // A little above 1, so that the frame does not clip a point there.
    Axis::linear(label, low, 1.0 + (1.0 - low) * 0.02)
}

fn half(estimate: &super::measured::Estimate) -> f64 {
    estimate.half_width.unwrap_or(0.0)
}

/// Measured points: rings for held-out steps, squares for fitted steps.
fn measured_marks<'a, T: 'a>(
    rows: impl Iterator<Item = &'a T>,
    fitted: impl Fn(&T) -> bool,
    point: impl Fn(&T) -> PlotPoint,
) -> Vec<Mark> {
    let (mut used, mut held) = (Vec::new(), Vec::new());
    for row in rows {
        if fitted(row) { &mut used } else { &mut held }.push(point(row));
    }
    let marks = |shape, label: &str, points| Mark::Points {
        class: "measured",
        shape,
        label: label.to_owned(),
        points,
    };
    vec![
        marks(Shape::Square, "measured, fitted", used),
        marks(Shape::Ring, "measured, held out", held),
    ]
}

/// Plots the fraction answered within each time against load: the paper's Figures 6 and 7.
pub(crate) fn within_against_rate(comparison: &Comparison) -> Vec<Plot> {
    let largest = comparison.rows.iter().map(|r| r.rate).fold(0.0, f64::max);
    let high = rate_max(&comparison.limits, largest);
    let plot = |&t_s: &f64| {
        let rows: Vec<&Row> = comparison.rows.iter().filter(|r| r.within_s == t_s).collect();
        let mut marks = limit_marks(comparison.limits.mg1.value, comparison.trust.limit);
        let curves = model_curves(&comparison.model, &comparison.limits, t_s, high, 1);
        let shown = lowest_near(&curves, largest);
        marks.extend(curves);
        marks.extend(measured_marks(
            rows.iter().copied(),
            |r| r.used_for_fit,
            |r| PlotPoint {
                x: r.rate,
                y: r.measured.value,
                half: half(&r.measured),
                title: format!(
                    "{}: {} requests/s, measured {:.2} % ± {:.2}",
                    r.step,
                    digits(r.rate, 4),
                    r.measured.value * 100.0,
                    half(&r.measured) * 100.0
                ),
            },
        ));
        let shares = rows.iter().map(|r| r.measured.value - half(&r.measured)).chain(shown);
        Plot {
            title: format!("Fraction served within {}", time(t_s)),
            x: Axis::linear("requests/s", 0.0, high),
            y: share_axis("fraction of requests", shares),
            marks,
        }
    };
    comparison.within_s.iter().map(plot).collect()
}

/// The values of curves up to a load, which an axis must include.
fn lowest_near(curves: &[Mark], load: f64) -> Vec<f64> {
    let mut shown = Vec::new();
    for mark in curves {
        if let Mark::Line { points, .. } = mark {
            shown.extend(points.iter().filter(|p| p.0 <= load).map(|p| p.1));
        }
    }
    shown
}

/// Plots the hit ratio q against the arrival rate λ.
pub(crate) fn hit_ratio(comparison: &Comparison) -> Plot {
    let steps = &comparison.steps;
    let largest = steps.iter().map(|s| s.measured.rate).fold(0.0, f64::max);
    let high = rate_max(&comparison.limits, largest);
    let model = &comparison.model;
    let line = |q: &dyn Fn(f64) -> f64| -> Vec<(f64, f64)> {
        (0..=60).map(|i| high * f64::from(i) / 60.0).map(|x| (x, q(x))).collect()
    };
    let mut marks = limit_marks(comparison.limits.mg1.value, comparison.trust.limit);
    if let Ok(spotify) = model.spotify() {
        let points = line(&|x| spotify.hit_ratio().at_rate(x));
        let label = "Spotify: share under 1 ms".to_owned();
        marks.push(Mark::Line { class: "spotify", label, points });
    }
    if let Ok(node) = model.node() {
        let points = line(&|x| node.operating(x).map_or(f64::NAN, |at| at.hit_ratio));
        let points = points.into_iter().filter(|point| point.1.is_finite()).collect();
        marks.push(Mark::Line {
            class: "ours",
            label: "fitted q = q₀ − αλ − J(L)".to_owned(),
            points,
        });
    }
    marks.extend(measured_marks(
        steps.iter(),
        |s| s.used_for_fit,
        |s| {
            let q = s.measured.hit_ratio;
            PlotPoint {
                x: s.measured.rate,
                y: q.value,
                half: half(&q),
                title: format!("{}: q = {:.4} ± {:.4}", s.name, q.value, half(&q)),
            }
        },
    ));
    let shown: Vec<f64> = lowest_near(&marks, high);
    let values = steps.iter().map(|s| s.measured.hit_ratio.value).chain(shown);
    let (low, top) = values.fold((1.0f64, 0.0f64), |(l, t), v| (l.min(v), t.max(v)));
    let room = ((top - low) * 0.25).max(0.02);
    Plot {
        title: "Share answered from memory, q".to_owned(),
        x: Axis::linear("requests/s", 0.0, high),
        y: Axis::linear("q", (low - room).max(0.0), (top + room).min(1.02)),
        marks,
    }
}

/// Plots CDFs of the response time on a logarithmic axis, one plot for each step: the paper's
/// Figures 8 and 9.
pub(crate) fn cdfs(comparison: &Comparison) -> Vec<Plot> {
    comparison.steps.iter().map(|step| cdf(comparison, step)).collect()
}

fn cdf(comparison: &Comparison, step: &ComparedStep) -> Plot {
    let responses = &step.measured.responses;
    let low = responses.quantile_s(0.001).unwrap_or(1e-4).max(2e-5) / 1.5;
    let high = (responses.max_s() * 1.2).max(low * 10.0).min(1e4);
    let count = 110;
    let times: Vec<f64> =
        (0..=count).map(|i| low * (high / low).powf(f64::from(i) / f64::from(count))).collect();
    let curve = |shares: Result<Vec<f64>, model::Error>| -> Vec<(f64, f64)> {
        let shares = shares.unwrap_or_default();
        times.iter().zip(shares).map(|(t, p)| (t * 1e3, p)).collect()
    };
    let rate = step.measured.rate;
    let measured: Vec<(f64, f64)> =
        times.iter().filter_map(|&t| Some((t * 1e3, responses.share_within(t)?))).collect();
    let line = |class, label: &str, points| Mark::Line { class, label: label.to_owned(), points };
    let mut marks = vec![
        line("measured", "measured", measured),
        line("spotify", "Spotify model", curve(comparison.model.spotify_cdf(rate, &times))),
        line("ours", "Concertina's model", curve(comparison.model.cdf(rate, &times))),
    ];
    // The measured line is thin and must be drawn last, on top.
    marks.rotate_left(1);
    let used = if step.used_for_fit { "fitted" } else { "held out" };
    let prediction = step.prediction.as_ref();
    // The whole curve is extrapolated: its load is past the checked ones.
    let mut untrusted = "";
    if prediction.is_none_or(|p| p.beyond_trust) {
        untrusted = ", extrapolated";
        marks.push(Mark::Shade { class: "untrusted", from: 0.0, to: f64::INFINITY });
    }
    let busy = step.utilisation().map(|share| format!(", {:.0} % busy", share * 100.0));
    let busy = busy.unwrap_or_default();
    Plot {
        title: format!("{}/s{busy}, {used}{untrusted}", digits(rate, 4)),
        x: Axis::log("response time, ms", low * 1e3, high * 1e3),
        y: Axis::linear("fraction of requests", 0.0, 1.02),
        marks,
    }
}

/// The device utilisation, in percent, from which a comparison's steps are past the trusted load:
/// halfway between the last trusted step and the first untrusted one. `None` if all steps are
/// trusted.
fn untrusted_from(comparison: &Comparison) -> Option<f64> {
    let (mut trusted, mut first) = (0.0f64, f64::INFINITY);
    for row in &comparison.rows {
        let percent = row.utilisation * 100.0;
        if row.beyond_trust {
            first = first.min(percent);
        } else {
            trusted = trusted.max(percent);
        }
    }
    // Utilisation need not grow with the load. If the steps overlap, start at the first untrusted
    // one.
    let from = if trusted < first { 0.5 * (trusted + first) } else { first };
    first.is_finite().then_some(from)
}

/// Plots the errors of both models at each time against utilisation.
pub(crate) fn errors(comparison: &Comparison) -> Vec<Plot> {
    let plot = |&t_s: &f64| {
        let rows: Vec<&Row> = comparison.rows.iter().filter(|r| r.within_s == t_s).collect();
        let series =
            |class, shape, label: &str, error: &dyn Fn(&Row) -> Option<f64>, fitted: bool| {
                let rows = rows.iter().filter(|r| r.used_for_fit == fitted);
                let point = |r: &&Row| {
                    let y = error(r)?;
                    // Shift the two models apart, so that their error bars do not hide each other.
                    let x = r.utilisation * 100.0 + if class == "ours" { 0.7 } else { -0.7 };
                    let half = half(&r.measured) * 100.0;
                    let title = format!("{}: {y:+.2} points (measured ± {half:.2})", r.step);
                    Some(PlotPoint { x, y, half, title })
                };
                let points = rows.filter_map(point).collect();
                Mark::Points { class, shape, label: label.to_owned(), points }
            };
        let ours = |r: &Row| r.concertina_error_points;
        let spotify = |r: &Row| r.spotify_error_points;
        let mut marks = vec![
            Mark::Horizontal { y: 0.0, label: String::new() },
            series("spotify", Shape::Triangle, "Spotify model", &spotify, false),
            series("spotify", Shape::Triangle, "", &spotify, true),
            series("ours", Shape::Square, "Concertina, fitted", &ours, true),
            series("ours", Shape::Ring, "Concertina, held out", &ours, false),
        ];
        if let Some(from) = untrusted_from(comparison) {
            marks.push(Mark::Shade { class: "untrusted", from, to: f64::INFINITY });
        }
        let both = rows.iter().flat_map(|r| {
            let h = half(&r.measured) * 100.0;
            let of = move |e: Option<f64>| e.map(|e| [e - h, e + h]);
            [of(ours(r)), of(spotify(r))].into_iter().flatten().flatten()
        });
        let (low, high) = both.fold((-0.5f64, 0.5f64), |(l, t), e| (l.min(e), t.max(e)));
        Plot {
            title: format!("Error of the fraction within {}", time(t_s)),
            x: Axis::linear("utilisation of the devices, %", 0.0, 100.0),
            y: Axis::linear("prediction − measurement, points", low * 1.12, high * 1.12),
            marks,
        }
    };
    comparison.within_s.iter().map(plot).collect()
}

/// Plots the processor and disk use of the hosts over time, one plot for each run; the steps are
/// shaded.
pub(crate) fn hosts(comparison: &Comparison) -> Vec<Plot> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in comparison.steps.iter().flat_map(|s| &s.hosts) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let start = comparison.steps.iter().map(|s| s.step.start_unix_us).min().unwrap_or(0);
    let since = |us: u64| us.saturating_sub(start) as f64 * 1e-6;
    let end = comparison.steps.iter().map(|s| since(s.step.end_unix_us)).fold(0.0, f64::max);
    let plot = |name: &&str| {
        let mut steps: Vec<&ComparedStep> = comparison.steps.iter().collect();
        steps.sort_by_key(|s| s.step.start_unix_us);
        let mut marks = Vec::new();
        let shade = |s: &&ComparedStep| Mark::Shade {
            class: "shade",
            from: since(s.step.start_unix_us),
            to: since(s.step.end_unix_us),
        };
        marks.extend(steps.iter().map(shade));
        // One line for each step, because nothing is measured between them.
        let mut series = |class, label: &str, of: &dyn Fn(&record::Host) -> f64| {
            let mut label = label.to_owned();
            for step in &steps {
                let hosts = step.hosts.iter().filter(|h| h.0 == *name).flat_map(|h| &h.1);
                let points = hosts.map(|h| (since(h.unix_us), of(h) * 100.0)).collect();
                marks.push(Mark::Line { class, label: std::mem::take(&mut label), points });
            }
        };
        series("ours", "processor, all cores", &|h| h.cpu_user + h.cpu_system);
        series("spotify", "busiest disk", &|h| h.disk_utilisation_max);
        series("third", "stolen by the hypervisor", &|h| h.cpu_stolen);
        Plot {
            title: format!("Host of {name}; steps shaded"),
            x: Axis::linear("seconds since the first step", 0.0, end),
            y: Axis::linear("busy, %", 0.0, 102.0),
            marks,
        }
    };
    names.iter().map(plot).collect()
}

/// Plots how late the load generator sent its requests.
pub(crate) fn lateness(comparison: &Comparison) -> Plot {
    let steps = &comparison.steps;
    let series = |class, shape, label: &str, of: &dyn Fn(&record::Generator) -> f64| {
        let point = |s: &ComparedStep| {
            let y = of(&s.step.generator);
            let title = format!("{}: {} µs", s.name, digits(y, 3));
            (y > 0.0).then_some(PlotPoint { x: s.measured.rate, y, half: 0.0, title })
        };
        let points = steps.iter().filter_map(point).collect();
        Mark::Points { class, shape, label: label.to_owned(), points }
    };
    let marks = vec![
        Mark::Horizontal { y: 100.0, label: "0.1 ms".to_owned() },
        series("spotify", Shape::Triangle, "latest", &|g| g.lateness_us_max),
        series("ours", Shape::Disc, "99 %", &|g| g.lateness_us_p99),
        series("measured", Shape::Ring, "mean", &|g| g.lateness_us_mean),
    ];
    let all = steps.iter().flat_map(|s| {
        let g = &s.step.generator;
        [g.lateness_us_mean, g.lateness_us_p99, g.lateness_us_max]
    });
    let all = all.filter(|x| *x > 0.0 && x.is_finite());
    let (low, high) = all.fold((50.0f64, 200.0f64), |(l, h), x| (l.min(x), h.max(x)));
    let largest = steps.iter().map(|s| s.measured.rate).fold(0.0, f64::max);
    Plot {
        title: "Lateness of the load generator".to_owned(),
        x: Axis::linear("requests/s", 0.0, largest * 1.05),
        y: Axis::log("µs after the intended time", low / 1.5, high * 1.5),
        marks,
    }
}

/// The plots of `concertina predict`: the fraction answered within each time against load, with the
/// requested loads marked.
pub fn predictions(
    model: &Model,
    limits: &Limits,
    within_s: &[f64],
    servers: u32,
    asked: &[Prediction],
) -> Vec<Plot> {
    let n = f64::from(servers);
    let largest = asked.iter().map(|p| p.rate).fold(0.0, f64::max);
    let limit = if servers == 1 {
        limits.mg1.value
    } else {
        model.cluster_limit_mg1(servers).unwrap_or(f64::INFINITY)
    };
    let high = rate_max(limits, largest / n) * n;
    // If the trusted load cannot be computed, no load is trusted.
    let trusted = model.trust().map_or(0.0, |trust| trust.limit * n);
    let plot = |(i, &t_s): (usize, &f64)| {
        let mut marks = limit_marks(limit, trusted);
        let curves = model_curves(model, limits, t_s, high, servers);
        let shown = lowest_near(&curves, if largest > 0.0 { largest } else { high });
        marks.extend(curves);
        let point = |p: &Prediction| {
            let share = &p.points.get(i)?.concertina;
            let limit = if p.beyond_limit { ", past the confidence limit" } else { "" };
            let trust = if p.beyond_trust { ", extrapolated" } else { "" };
            let (rate, percent) = (digits(p.rate, 4), share.value * 100.0);
            let title = format!("{rate} requests/s: {percent:.2} %{limit}{trust}");
            Some((p.beyond_trust, PlotPoint { x: p.rate, y: share.value, half: 0.0, title }))
        };
        let points: Vec<_> = asked.iter().filter_map(point).collect();
        for (beyond, shape, label) in
            [(false, Shape::Disc, "requested"), (true, Shape::Ring, "requested, extrapolated")]
        {
            let points = points.iter().filter(|p| p.0 == beyond).map(|p| p.1.clone()).collect();
            marks.push(Mark::Points { class: "ours", shape, label: label.to_owned(), points });
        }
        Plot {
            title: format!("Fraction served within {}", time(t_s)),
            x: Axis::linear("requests/s", 0.0, high),
            y: share_axis("fraction of requests", shown.into_iter()),
            marks,
        }
    };
    within_s.iter().enumerate().map(plot).collect()
}
