//! What follows from all rows: the 2^k·r analysis, and the claims.

use anyhow::Context as _;
use model::design::{Factorial, Form};
use serde::Serialize;

use super::config::Settings;
use super::measured::{MeasuredRow, Repetition};
use super::parameters::Parameters;
use super::predict::Limit;
use super::rows::{Levels, Part, Work};
use crate::claims::{Claim, Goal, Peer};
use crate::marks::Mark;

/// Largest errors of throughput, percent: where links or the clients are the limit, and where the
/// machine is.
const LINK_PERCENT: f64 = 5.0;
const MACHINE_PERCENT: f64 = 10.0;
/// Loops whose deviation is past 2 % with all of its 95 % interval, percent.
const BROKEN_PERCENT: f64 = 5.0;
/// The study's largest error of its networks of queues, percent (its Table 21).
const PUBLISHED_PERCENT: f64 = 55.0;

/// The analysis of one kind of request.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Design {
    /// What clients did.
    pub work: Work,
    /// Of the logarithms of throughputs, and of the throughputs.
    pub multiplicative: Factorial,
    /// See `multiplicative`.
    pub additive: Factorial,
    /// The same of the predicted throughputs, multiplicative.
    pub predicted: Factorial,
}

/// Analyses the design of reads and of writes.
pub(super) fn design(measured: &[MeasuredRow], levels: &Levels) -> anyhow::Result<Vec<Design>> {
    let mut found = Vec::new();
    for work in [Work::Reads(1), Work::Writes] {
        let (mut cells, mut predicted) = (Vec::new(), Vec::new());
        for cell in 0..8 {
            let system = levels.cell(cell);
            let same = |one: &&MeasuredRow| {
                let row = &one.row;
                row.system == system && row.work == work && row.clients == levels.clients
            };
            let one = measured.iter().find(same).context("a cell of the design is missing")?;
            cells.push(one.repetitions.iter().map(|r| r.throughput).collect::<Vec<f64>>());
            predicted.push(vec![one.prediction.network]);
        }
        found.push(Design {
            work,
            multiplicative: Factorial::new(&cells, Form::Multiplicative, 0.95)?,
            additive: Factorial::new(&cells, Form::Additive, 0.95)?,
            predicted: Factorial::new(&predicted, Form::Multiplicative, 0.95)?,
        });
    }
    Ok(found)
}

/// The method of a prediction.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    Network,
    Flow,
}

/// Predicted requests/s of a row.
fn predicted(one: &MeasuredRow, method: Method) -> Option<f64> {
    match method {
        Method::Network => Some(one.prediction.network),
        Method::Flow => one.prediction.flow,
    }
}

/// All claims.
pub(super) fn claims(
    measured: &[MeasuredRow],
    parameters: &Parameters,
    settings: &Settings,
) -> Vec<Claim> {
    let largest = |what: &str, rows: &[&MeasuredRow], method, goal| {
        largest(what, rows, method, parameters.batch_keys, settings.filled_share, goal)
    };
    let mut claims = Vec::new();
    let methods = [("network of queues", Method::Network), ("flow-equivalent", Method::Flow)];
    for (name, method) in methods {
        let (limited, machine): (Vec<&MeasuredRow>, Vec<&MeasuredRow>) =
            measured.iter().partition(|one| one.row.system.limited);
        let saturated = |one: &&&MeasuredRow| one.prediction.limit != Limit::Clients;
        let full: Vec<&MeasuredRow> = limited.iter().filter(saturated).copied().collect();
        let what = format!("{name}: |error of throughput| where links, workers or clients limit");
        claims.extend(largest(&what, &limited, method, LINK_PERCENT));
        let what = format!("{name}: |error of throughput| in the saturated rows of these");
        claims.extend(largest(&what, &full, method, LINK_PERCENT));
        let what = format!("{name}: |error of throughput| where the machine is the limit");
        claims.extend(largest(&what, &machine, method, MACHINE_PERCENT));
    }
    for claim in &mut claims {
        claim.published = Some(PUBLISHED_PERCENT);
    }
    claims.extend(laws(measured, settings.think_ms / 1e3));
    claims.extend(missing(measured, settings));
    claims.push(choices(measured));
    claims
}

/// The largest error among rows. Each row has to be measured well: the interval reaches from the
/// largest lower end to the largest upper end of all rows' errors.
fn largest(
    what: &str,
    rows: &[&MeasuredRow],
    method: Method,
    batch_keys: Option<f64>,
    found: f64,
    goal: f64,
) -> Option<Claim> {
    let mut errors = Vec::new();
    for one in rows {
        if let Some(predicted) = predicted(one, method) {
            errors.push((one, one.error(predicted, batch_keys, found)));
        }
    }
    let (worst, (value, _)) = errors.iter().max_by(|a, b| a.1.0.abs().total_cmp(&b.1.0.abs()))?;
    let most = |end: fn(&(f64, f64)) -> f64| {
        errors.iter().map(|(_, error)| end(error)).fold(0.0, |most: f64, x| {
            // An unknown end stays unknown; `max` alone would drop it.
            if most.is_nan() || x.is_nan() { f64::NAN } else { most.max(x) }
        })
    };
    let marks: Vec<Mark> = rows.iter().flat_map(|one| one.marks()).collect();
    Some(Claim {
        name: format!("{what}, worst: {}", worst.row.name()),
        value: value.abs(),
        low: most(|(error, half)| error.abs() - half),
        high: most(|(error, half)| error.abs() + half),
        goal: Some(Goal::AtMost(goal)),
        marks,
        ..Claim::counted("", 0.0, "%", errors.len() as u64)
    })
}

/// The interactive law on every closed loop, and errors of replies.
fn laws(measured: &[MeasuredRow], think_s: f64) -> Vec<Claim> {
    let all = || measured.iter().flat_map(|one| &one.repetitions);
    let loops: usize = all().map(|r| r.interactive_percent.len()).sum();
    let broken: u32 = all().map(|r| r.broken).sum();
    let errors: u64 = all().map(|r| r.errors).sum();
    let requests: f64 = all().map(|r| r.requests).sum();
    let share = f64::from(broken) / loops.max(1) as f64 * 100.0;
    let furthest = measured
        .iter()
        .map(|one| {
            let clients = f64::from(one.row.clients);
            let of = |r: &Repetition| r.throughput * (r.response_s + think_s) / clients - 1.0;
            one.mean(of).0.abs() * 100.0
        })
        .fold(0.0, f64::max);
    // Each loop has a 95 % interval of its own, so that some break the law by chance.
    vec![
        Claim::counted("closed loops that break R = N/X − Z", share, "%", loops as u64)
            .with_goal(Goal::AtMost(BROKEN_PERCENT)),
        Claim::counted("X·(R + Z) against N: largest difference", furthest, "%", loops as u64),
        Claim::counted("replies that were errors", errors as f64, "", requests as u64)
            .with_goal(Goal::AtMost(0.0)),
    ]
}

/// Shares of missing keys: as asked for, by the servers and by the clients.
fn missing(measured: &[MeasuredRow], settings: &Settings) -> Vec<Claim> {
    let mut claims = Vec::new();
    type MissingShare = fn(&Repetition) -> Option<f64>;
    let sides: [(&str, MissingShare); 2] =
        [("servers", |r| r.missing_servers), ("clients", |r| r.missing_clients)];
    for (who, of) in sides {
        // Which keys of batches are missing is not drawn anew for each request.
        let drawn = measured.iter().filter(|one| one.row.work != Work::Batches);
        let shares: Vec<f64> = drawn.filter_map(|one| one.mean_of_known(of)).collect();
        let name = format!(
            "keys missing of those read, by the {who} (1 − {} stored)",
            settings.filled_share
        );
        let percent: Vec<f64> = shares.iter().map(|share| share * 100.0).collect();
        claims.push(Claim::of_rounds(name, &percent, "%"));
    }
    claims
}

/// Whether the mode of gets of several keys that is predicted to be better is the better one.
fn choices(measured: &[MeasuredRow]) -> Claim {
    let (mut compared, mut wrong, mut gain) = (0, 0, f64::NAN);
    let rows: Vec<&MeasuredRow> =
        measured.iter().filter(|one| one.row.parts.contains(&Part::MultiGets)).collect();
    for whole in rows.iter().filter(|one| !one.row.system.sharded) {
        let pair =
            rows.iter().find(|other| other.row.system.sharded && other.row.work == whole.row.work);
        let Some(sharded) = pair.filter(|_| whole.row.work != Work::Reads(1)) else { continue };
        let ratio = |of: fn(&MeasuredRow) -> f64| of(sharded) / of(whole);
        let predicted = ratio(|one| one.prediction.network);
        let measured = ratio(|one| one.mean(|r| r.throughput).0);
        compared += 1;
        // Within 3 % neither is better.
        let differs = (predicted - 1.0).abs() > 0.03 && (measured - 1.0).abs() > 0.03;
        wrong += u32::from(differs && (predicted > 1.0) != (measured > 1.0));
        gain = f64::max(gain, measured);
    }
    Claim {
        peer: Some(Peer { name: "largest gain of sharding, ×".to_owned(), value: gain }),
        ..Claim::counted(
            "whole or sharded: wrongly predicted choices",
            f64::from(wrong),
            "",
            compared,
        )
        .with_goal(Goal::AtMost(0.0))
    }
}
