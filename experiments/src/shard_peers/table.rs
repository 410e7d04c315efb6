//! All cells as a text: what each engine takes, how long each question takes, who is fastest, and who cannot.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::measure::{Cell, Row, TextMeasurements};
use report::grid::Grid;

/// The tables of a text.
pub fn text(measured: &TextMeasurements) -> String {
    let mut out =
        format!("{}: {} bytes, {} records\n\n", measured.text, measured.bytes, measured.records);
    for missing in &measured.missing {
        let _ = writeln!(out, "missing: {missing}");
    }
    let _ = writeln!(out, "Sizes, × input; building, s\n\n{}", sizes(measured));
    out.push_str("Time of a question, ms (CPU time if that differs by more than a fifth); *: the fastest, of \
                  each way of asking; -: cannot; !: answers otherwise than the scan\n\n");
    let names: Vec<&str> = measured.sizes.iter().map(|size| size.engine.as_str()).collect();
    out.push_str(&times(measured, &names));
    out.push('\n');
    out.push_str(&reasons(measured));
    out
}

fn sizes(measured: &TextMeasurements) -> String {
    let head = ["engine", "disk", "cached", "heap", "build", "CPU", "memory", "open ms", "version"];
    let mut grid = Grid::new("lrrrrrrrl", &head);
    let share = |bytes: Option<u64>| match bytes {
        Some(bytes) => format!("{:.3}", bytes as f64 / measured.bytes as f64),
        None => String::new(),
    };
    for size in &measured.sizes {
        let built = |of: fn(&super::protocol::Built) -> f64| {
            size.built.as_ref().map_or(String::new(), |built| format!("{:.2}", of(built)))
        };
        grid.row([
            size.engine.clone(),
            share(size.disk_bytes),
            share(size.cached_bytes),
            share(size.anonymous_bytes),
            built(|built| built.wall_s),
            built(|built| built.cpu_s),
            share(size.built.map(|built| built.memory_bytes)),
            format!("{:.2}", size.open_s * 1e3),
            size.version.clone(),
        ]);
    }
    grid.text()
}

fn times(measured: &TextMeasurements, names: &[&str]) -> String {
    let mut cells: BTreeMap<Cell, BTreeMap<&str, &Row>> = BTreeMap::new();
    for row in &measured.rows {
        cells.entry(row.cell).or_default().insert(&row.engine, row);
    }
    let mut head = vec!["query", "answers"];
    head.extend(names);
    let mut grid = Grid::new("lrrrrrrrrrrrrrrrr", &head);
    for (cell, rows) in &cells {
        let fastest = |started: bool| {
            let of_kind = rows.values().filter(|row| is_started(&row.engine) == started);
            let right = of_kind.filter(|row| row.wrong == 0).filter_map(|row| row.mean_s());
            right.fold(f64::INFINITY, f64::min)
        };
        let fastest = [fastest(false), fastest(true)];
        let answers = rows.values().map(|row| row.answers).next().unwrap_or(0.0);
        let query = format!("{}, {}, {}", cell.kind.name(), cell.class.name(), cell.form.name());
        let mut line = vec![query, format!("{answers:.0}")];
        for name in names {
            line.push(match rows.get(name) {
                None => String::new(),
                Some(row) => time_text(row, fastest[usize::from(is_started(name))]),
            });
        }
        grid.row(line);
    }
    grid.text()
}

/// Whether an engine is started for each question: those are compared with one another.
fn is_started(engine: &str) -> bool {
    ["rg", "rg-records", "zstd-rg", "concertina-process"].contains(&engine)
}

fn time_text(row: &Row, fastest: f64) -> String {
    let Some(mean) = row.mean_s() else { return "-".to_owned() };
    let cpu = row.cpu_s.iter().sum::<f64>() / row.cpu_s.len().max(1) as f64;
    let other = match (cpu / mean - 1.0).abs() > 0.2 {
        true => format!(" ({})", milliseconds(cpu)),
        false => String::new(),
    };
    let wrong = if row.wrong > 0 { "!" } else { "" };
    let best = if mean <= fastest { "*" } else { "" };
    format!("{}{other}{wrong}{best}", milliseconds(mean))
}

/// Three digits.
fn milliseconds(seconds: f64) -> String {
    let ms = seconds * 1e3;
    match ms {
        0.0..0.1 => format!("{ms:.4}"),
        0.1..1.0 => format!("{ms:.3}"),
        1.0..10.0 => format!("{ms:.2}"),
        10.0..100.0 => format!("{ms:.1}"),
        _ => format!("{ms:.0}"),
    }
}

/// Who cannot, and why.
fn reasons(measured: &TextMeasurements) -> String {
    let mut reasons: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for row in &measured.rows {
        if let Some(why) = &row.cannot {
            let kinds = reasons.entry((&row.engine, why)).or_default();
            if !kinds.contains(&row.cell.kind.name()) {
                kinds.push(row.cell.kind.name());
            }
        }
    }
    let line = |((engine, why), kinds): (&(&str, &str), &Vec<&str>)| {
        format!("{engine} cannot: {}: {why}\n", kinds.join(", "))
    };
    reasons.iter().map(line).collect()
}
