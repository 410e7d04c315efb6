//! Tables in the study's order.

use std::fmt::Write as _;

use report::grid::Grid;

use super::config::Settings;
use super::findings::Design;
use super::measured::MeasuredRow;
use super::parameters::Parameters;
use super::rows::{Part, Work};

/// All tables.
pub(super) fn text(
    measured: &[MeasuredRow],
    parameters: &Parameters,
    settings: &Settings,
    designs: &[Design],
) -> String {
    let mut text = links(parameters, settings);
    text.push_str(&costs(parameters));
    for part in Part::ALL {
        let rows: Vec<&MeasuredRow> =
            measured.iter().filter(|one| one.row.parts.contains(&part)).collect();
        if !rows.is_empty() {
            let _ = write!(text, "\n{}\n{}", part.title(), rows_text(&rows, parameters, settings));
        }
        if part == Part::Design {
            designs.iter().for_each(|design| text.push_str(&effects(design)));
        }
    }
    text
}

/// Bandwidths, as the study's Table 2.
fn links(parameters: &Parameters, settings: &Settings) -> String {
    let mut grid = Grid::new("lrrr", &["machine", "Mbit/s set", "MB/s set", "MB/s measured"]);
    let own = &settings.links;
    let names = [
        ("clients", own.client),
        ("middleware 1", own.middleware),
        ("middleware 2", own.middleware),
        ("server 1", own.server),
        ("server 2", own.server),
        ("server 3", own.server),
    ];
    for ((name, mbit), bytes) in names.into_iter().zip(&parameters.bandwidths.each) {
        let set = mbit / 8.0;
        grid.row([
            name.to_owned(),
            format!("{mbit:.0}"),
            format!("{set:.2}"),
            format!("{:.3}", bytes / 1e6),
        ]);
    }
    format!("Bandwidths of what leaves a machine, with the headers of frames\n{}", grid.text())
}

/// What one request costs at light load.
fn costs(parameters: &Parameters) -> String {
    let head = [
        "system",
        "work",
        "R ms",
        "with a worker",
        "bytes by client",
        "by middleware",
        "by servers",
        "µs generator",
        "middleware",
        "servers",
    ];
    let mut grid = Grid::new("llrrrrrrrr", &head);
    for light in parameters.light.iter().chain(&parameters.machine) {
        let us = |i: usize| format!("{:.1}", light.processor_s[i] * 1e6);
        grid.row([
            light.system.name(),
            light.work.name(),
            format!("{:.3}", light.response_s * 1e3),
            format!("{:.3}", light.inside_s * 1e3),
            format!("{:.0}", light.client_bytes),
            format!("{:.0}", light.middleware_bytes),
            format!("{:.0}", light.server_bytes),
            us(0),
            us(1),
            us(2),
        ]);
    }
    format!("\nOne request at light load\n{}", grid.text())
}

const HEAD: [&str; 17] = [
    "work",
    "mw",
    "servers",
    "workers",
    "clients",
    "X/s",
    "± (95 %)",
    "network/s",
    "error %",
    "flow/s",
    "error %",
    "R ms",
    "N/X − Z",
    "wait ms",
    "served ms",
    "missing %",
    "limit",
];

fn rows_text(rows: &[&MeasuredRow], parameters: &Parameters, settings: &Settings) -> String {
    let mut grid = Grid::new("lrrrrrrrrrrrrrrrl", &HEAD);
    for one in rows {
        let row = &one.row;
        let system = row.system;
        let many = row.work != Work::Reads(1) && row.work != Work::Writes;
        let mode = match (many, system.sharded) {
            (false, _) => "",
            (_, true) => ", sharded",
            (_, false) => ", whole",
        };
        let (rate, half) = one.mean(|r| r.throughput);
        let error = |predicted: f64| {
            let error = one.error(predicted, parameters.batch_keys, settings.filled_share).0;
            format!("{error:+.2}")
        };
        let law = f64::from(row.clients) / rate - settings.think_ms / 1e3;
        let ms =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{:.2}", value * 1e3));
        let behind = system.middlewares > 0;
        grid.row([
            format!("{}{mode}", row.work.name()),
            system.middlewares.to_string(),
            system.servers.to_string(),
            if behind { system.workers.to_string() } else { String::new() },
            row.clients.to_string(),
            format!("{rate:.1}"),
            format!("{half:.1}"),
            format!("{:.1}", one.prediction.network),
            error(one.prediction.network),
            one.prediction.flow.map_or(String::new(), |flow| format!("{flow:.1}")),
            one.prediction.flow.map_or(String::new(), error),
            format!("{:.2}", one.mean(|r| r.response_s).0 * 1e3),
            format!("{:.2}", law * 1e3),
            ms(one.mean_of_known(|r| r.waiting_s)),
            ms(one.mean_of_known(|r| r.serving_s)),
            one.mean_of_known(|r| r.missing_servers)
                .map_or(String::new(), |share| format!("{:.2}", share * 100.0)),
            one.prediction.limit.name().to_owned(),
        ]);
    }
    grid.text()
}

/// The effects of a design.
fn effects(design: &Design) -> String {
    let head = [
        "effect",
        "q multiplicative",
        "± (95 %)",
        "of predictions",
        "variation %",
        "q additive",
        "± (95 %)",
        "variation %",
    ];
    let mut grid = Grid::new("lrrrrrrr", &head);
    for effect in &design.multiplicative.effects {
        let half = |e: &model::design::Effect| {
            let (low, high) = (e.effect.low.unwrap_or(f64::NAN), e.effect.high.unwrap_or(f64::NAN));
            (high - low) / 2.0
        };
        let Some(additive) = design.additive.effect(effect.factors) else { continue };
        let predicted = design.predicted.effect(effect.factors);
        grid.row([
            effect.name.clone(),
            format!("{:.4}", effect.effect.value),
            format!("{:.4}", half(effect)),
            predicted.map_or(String::new(), |p| format!("{:.4}", p.effect.value)),
            format!("{:.2}", effect.fraction * 100.0),
            format!("{:.1}", additive.effect.value),
            format!("{:.1}", half(additive)),
            format!("{:.2}", additive.fraction * 100.0),
        ]);
    }
    format!(
        "\nEffects on the throughput of {} (A middlewares, B servers, C workers); unexplained {:.3} % \
         multiplicative, {:.3} % additive\n{}",
        design.work.name(),
        design.multiplicative.error_fraction * 100.0,
        design.additive.error_fraction * 100.0,
        grid.text()
    )
}
