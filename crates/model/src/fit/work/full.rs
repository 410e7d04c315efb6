//! Works at full load, from the throughput of a closed loop.
//!
//! A closed loop of enough clients keeps the servers always busy, so its throughput X tells the mean work there, m/X
//! for m servers, without the times of its requests. Where this differs from the mean work at the fitted loads by more than works differ
//! from run to run, works change with the load, and the loads between are interpolated ([`ByLoad`]). A straight line
//! through light loads does not tell it: what is done for many requests at once shows when many wait.

use crate::storage::ByLoad;

use super::super::{ClosedLoop, Options};
use super::between::Between;
use super::search::{Among, Search, excess, search};
use super::write::{moments, rate, sum};

/// The smallest difference that counts, and the least that a closed loop is uncertain by, as shares.
const BEYOND: f64 = 0.03;
const LEAST: f64 = 0.01;
/// The standard deviation of the work between the two loads, as a part of the difference: the form of the
/// interpolation is not known, and the work of full load may be reached soon after the heaviest fitted load.
const FORM: f64 = 0.25;
/// A closed loop that carries less than this over the heaviest fitted load was not at full load.
const ABOVE: f64 = 1.05;
/// The most servers that a closed loop tells.
const SERVERS_MAX: f64 = 5_000.0;

/// What a hypothesis with the limit of a closed loop may be less likely by than none, in units of the overdispersion:
/// its servers were hardly ever all busy at the fitted loads.
const WORSE: f64 = 10.0;

/// As many servers as a closed loop keeps busy, where the fitted loads show no limit; `None` if these show that so many
/// servers would have been too few, or the closed loop was not at full load.
pub(super) fn limited(found: &Search, closed: ClosedLoop, options: &Options) -> Option<Search> {
    let (mean, _) = moments(sum(found.best.blocks.iter().flatten()), 0.0);
    let heaviest = found.lines.iter().map(rate).fold(0.0, f64::max);
    let servers = closed.throughput * mean;
    if closed.throughput < ABOVE * heaviest || !(servers > 0.0 && servers < SERVERS_MAX) {
        return None;
    }
    let among = Among::Servers(servers.round().max(1.0) as u32);
    let again = search(found.lines.clone(), among, options);
    let worse = excess(&again.best.score) - excess(&found.best.score);
    let same = worse <= WORSE * found.best.score.ratio().max(1.0);
    same.then_some(Search { limited: true, ..again })
}

/// What a closed loop says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    /// How works change; `None` where they do not, beyond chance.
    pub by_load: Option<ByLoad>,
    /// Servers over the throughput is known to this share.
    pub deviation: f64,
}

impl Full {
    /// Of a fit with a mean work. `None` without a closed loop, or a limit of servers, or if it was not at full
    /// load.
    pub fn of(
        found: &Search,
        closed: Option<ClosedLoop>,
        mean: f64,
        between: Between,
        bypass: f64,
    ) -> Option<Full> {
        let closed = closed?;
        if found.best.kind.lines() > 0 {
            // A closed loop waits for the fullest line, and leaves the others idle.
            return None;
        }
        let servers = f64::from(found.best.kind.servers?);
        let to = closed.throughput * (1.0 - bypass);
        let from = found.lines.iter().map(rate).fold(0.0, f64::max);
        let by_load = ByLoad { from, to, factor: servers / (to * mean) };
        if to < ABOVE * from || by_load.check().is_err() {
            return None;
        }
        let deviation = closed.deviation.max(LEAST);
        // Disturbances slow a run and never speed it up. So if the closed loop carried more than the fitted works allow,
        // the variation between runs does not explain the difference.
        let of_runs = if by_load.factor < 1.0 { 0.0 } else { between.deviation };
        let chance = (1.96 * deviation.hypot(of_runs)).max(BEYOND);
        let changes = by_load.factor.ln().abs() > chance;
        Some(Full { by_load: changes.then_some(by_load), deviation })
    }

    /// What the form of the interpolation makes uncertain.
    pub fn form(self) -> f64 {
        self.by_load.map_or(0.0, |by_load| FORM * by_load.factor.ln().abs())
    }

    /// That works change.
    pub fn warning(self) -> Option<String> {
        self.by_load.map(|ByLoad { from, to, factor }| {
            format!(
                "The mean work at full load, by a closed loop of {to:.4} requests/s, is {:.1} % {} than at the heaviest fitted \
                 load of {from:.4} requests/s. The model interpolates between them.",
                100.0 * (factor - 1.0).abs(),
                if factor > 1.0 { "more" } else { "less" }
            )
        })
    }
}
