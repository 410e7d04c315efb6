//! The claims about the findings, and their table.

use super::config::Config;
use super::findings::{Findings, LayersRow, Row};
use super::measured::Figure;
use super::oracle::Kind;
use crate::claims::{Claim, Goal};
use report::grid::Grid;

/// All claims.
pub(super) fn claims(config: &Config, findings: &Findings) -> Vec<Claim> {
    let mut claims = vec![none("wrong answers", findings.wrong, findings.checked)];
    let lightest = config.load.shares.first().copied().unwrap_or(0.0);
    let highest = config.load.shares.last().copied().unwrap_or(0.0);
    for row in &findings.rows {
        let before = claims.len();
        let name = format!("{}, {}, {:.0} %", row.system, row.kind.in_words(), row.share * 100.0);
        let goal_ms = match row.system.as_str() {
            "gateway" => config.goals.gateway_p99_ms,
            _ => config.goals.node_p99_ms,
        };
        let is_claimed = row.share == lightest && matches!(row.kind, Kind::GetById | Kind::Extract);
        let p99 = figure(&format!("{name}: p99"), row.p99_ms, "ms", row.requests);
        claims.push(Claim { goal: is_claimed.then_some(Goal::AtMost(goal_ms)), ..p99 });
        claims.push(figure(&format!("{name}: p50"), row.p50_ms, "ms", row.requests));
        if row.share == highest {
            claims.push(none(&format!("{name}: failed requests"), row.failed, row.requests));
        }
        let worst = row
            .foretold
            .iter()
            .max_by(|a, b| a.error_points.abs().total_cmp(&b.error_points.abs()));
        if let Some(worst) = worst {
            let figure_of =
                Figure { value: worst.error_points.abs(), half_width: worst.half_width_points };
            let what = format!("{name}: M/G/1 of the first shard, largest error of P(T ≤ t)");
            let error = figure(&what, figure_of, "points", row.requests);
            claims.push(error.with_goal(Goal::AtMost(config.goals.foretold_points)));
        }
        for claim in claims.iter_mut().skip(before) {
            claim.marks.clone_from(&row.marks);
        }
    }
    if let [off, on] = findings.layers.as_slice() {
        let goals = config.goals;
        let requests = off.requests.min(on.requests);
        // A queue at its bound says what the bound is, and not what layers do.
        let saturated =
            off.failed > 0 || off.queues.iter().any(|queue| queue.utilisation > SATURATED);
        let mut ratio = |what: &str, of: fn(&LayersRow) -> Figure, goal: f64| {
            let (on, off) = (of(on), of(off));
            let value = on.value / off.value;
            // To first order, for independent figures.
            let relative = (on.half_width / on.value).hypot(off.half_width / off.value);
            let half_width = if saturated { f64::NAN } else { value * relative };
            let ratio = Figure { value, half_width };
            let ratio = figure(&format!("layers on over off: {what}"), ratio, "×", requests);
            claims.push(ratio.with_goal(Goal::AtMost(goal)));
        };
        ratio("p99", |row| row.p99_ms, goals.layers_p99_ratio);
        ratio(
            "mean length of the first shard's queue",
            |row| row.queue_length_mean,
            goals.layers_length_ratio,
        );
        claims.push(none("layers: failed requests", off.failed + on.failed, requests));
    }
    claims
}

/// The utilisation of a shard's queue above which a comparison with it shows nothing.
const SATURATED: f64 = 0.95;

/// A count that must be 0.
fn none(name: &str, value: u64, samples: u64) -> Claim {
    Claim::counted(name, value as f64, "", samples).with_goal(Goal::AtMost(0.0))
}

/// A figure without a goal.
fn figure(name: &str, figure: Figure, unit: &str, samples: u64) -> Claim {
    Claim::new(name, figure.value, figure.half_width, unit, samples)
}

/// A table of the measurements, for a terminal.
pub(super) fn table(findings: &Findings) -> String {
    let head = [
        "system",
        "what",
        "share",
        "rate/s",
        "p50 ms",
        "p99 ms",
        "±",
        "failed",
        "CPU µs each",
        "stolen",
        "busiest queue",
        "busy",
        "wait ms",
        "serve ms",
        "scv",
    ];
    let mut grid = Grid::new("llrrrrrrlrlrrrr", &head);
    for row in &findings.rows {
        grid.row(cells(row));
    }
    let mut text = grid.text();
    let head = [
        "foretold",
        "share",
        "quantile",
        "measured ms",
        "M/G/1 ms",
        "error, points",
        "by its own service",
    ];
    let mut grid = Grid::new("lrrrrrr", &head);
    for row in &findings.rows {
        for (one, own) in row.foretold.iter().zip(&row.foretold_by_own) {
            grid.row([
                row.kind.in_words().to_owned(),
                format!("{}", row.share),
                format!("{}", one.share),
                format!("{:.3}", one.measured_ms),
                format!("{:.3}", one.foretold_ms),
                format!("{:.1} ± {:.1}", one.error_points, one.half_width_points),
                format!("{:.1}", own.error_points),
            ]);
        }
    }
    text.push('\n');
    text.push_str(&grid.text());
    let head =
        ["layers, bytes", "rate/s", "p50 ms", "p99 ms", "queue", "busy", "serve ms", "changes"];
    let mut grid = Grid::new("rrrrrrrr", &head);
    for row in &findings.layers {
        let queue = row.queues.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
        grid.row([
            row.layers_bytes.to_string(),
            format!("{:.0}", row.rate_per_s),
            format!("{:.2}", row.p50_ms.value),
            format!("{:.2} ± {:.2}", row.p99_ms.value, row.p99_ms.half_width),
            format!("{:.2} ± {:.2}", row.queue_length_mean.value, row.queue_length_mean.half_width),
            queue.map_or(String::new(), |q| format!("{:.2}", q.utilisation)),
            queue.map_or(String::new(), |q| format!("{:.3}", q.service_ms_mean)),
            row.told["changes"].as_array().map_or(0, Vec::len).to_string(),
        ]);
    }
    text.push('\n');
    text.push_str(&grid.text());
    text
}

fn cells(row: &Row) -> Vec<String> {
    let cpu = row.cpu_us.iter().map(|(_, us)| format!("{us:.0}")).collect::<Vec<_>>().join(" + ");
    let busiest = row.queues.iter().max_by(|a, b| a.utilisation.total_cmp(&b.utilisation));
    let of = |f: &dyn Fn(&crate::shard_served::measured::Queue) -> String| {
        busiest.map_or(String::new(), f)
    };
    vec![
        row.system.clone(),
        row.kind.in_words().to_owned(),
        format!("{}", row.share),
        format!("{:.0}", row.rate_per_s),
        format!("{:.2}", row.p50_ms.value),
        format!("{:.2}", row.p99_ms.value),
        format!("{:.2}", row.p99_ms.half_width),
        row.failed.to_string(),
        cpu,
        format!("{:.2}", row.stolen),
        of(&|q| format!("{} {}", q.process, q.queue)),
        of(&|q| format!("{:.2}", q.utilisation)),
        of(&|q| format!("{:.3}", q.waiting_ms_mean)),
        of(&|q| format!("{:.3}", q.service_ms_mean)),
        of(&|q| format!("{:.2}", q.service_scv)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::Verdict;

    #[test]
    fn one_wrong_answer_fails_the_claim() {
        assert_eq!(none("wrong answers", 0, 10).judged().verdict, Some(Verdict::Holds));
        assert_eq!(none("wrong answers", 1, 10).judged().verdict, Some(Verdict::Fails));
    }
}
