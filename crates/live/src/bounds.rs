//! Bounds of the devices' queues, from the service times that the live model has measured.
//!
//! A read that has to wait longer than the objective is certain to be answered late, and delays the
//! reads behind it. The bound is therefore the time of the objective divided by the mean service time,
//! times the number of servers. A bound is proposed if it differs from the present one by a factor of
//! at least two, and is never above the configured bound.

use engine::act::{Effect, Knob, Proposal, Status};
use ground::window::QueueName;
use model::live::Station;

use super::{LiveModel, lock};

/// A new bound differs at least by this factor from the present one: service times vary.
const FACTOR: f64 = 2.0;
/// The smallest bound for each server. A shorter queue leaves servers idle.
const EACH_MIN: u32 = 4;

/// The bound that an objective allows.
fn bound(station: &Station, objective_s: f64, configured: u32) -> u32 {
    let servers = station.servers.max(1);
    let most = objective_s / station.service_mean_s * f64::from(servers);
    (most as u32).max(EACH_MIN * servers).min(configured)
}

/// The bound to propose: the one proposed before, unless they differ by [`FACTOR`] or more. Service times vary by
/// chance, and each new number would be another entry of the journal.
fn steady(wanted: u32, before: Option<u32>) -> u32 {
    before
        .filter(|before| {
            let (low, high) = (f64::from(wanted.min(*before)), f64::from(wanted.max(*before)));
            high < FACTOR * low
        })
        .unwrap_or(wanted)
}

impl LiveModel {
    /// Proposes the bounds that differ, and sets those that may be changed.
    pub fn look_at_bounds(&self) {
        let Some(node) = self.node() else { return };
        let shown = self.report();
        if shown.model.withheld.is_some() {
            return;
        }
        for station in &shown.model.stations {
            let Some(QueueName::Device(id)) = QueueName::parse(&station.queue) else { continue };
            let Some((device, present, configured)) = id.parse().ok().and_then(|device: usize| {
                let (present, configured) = node.bound(device)?;
                Some((device, present, configured))
            }) else {
                continue;
            };
            let wanted = bound(station, self.objective_s, configured);
            let wanted = steady(wanted, lock(&self.bounds).get(&device).copied());
            let (low, high) = (f64::from(wanted.min(present)), f64::from(wanted.max(present)));
            if high < FACTOR * low {
                continue;
            }
            let servers = f64::from(station.servers.max(1));
            let wait = |bound: u32| f64::from(bound) * station.service_mean_s / servers;
            let proposal = Proposal {
                knob: Knob::Bounds,
                target: station.queue.clone(),
                kind: if wanted < present { "lower" } else { "raise" }.to_owned(),
                change: format!("queue bound of {wanted} instead of {present}"),
                reason: format!(
                    "a read behind {present} others waits {:.0} ms; the objective is {:.0} ms",
                    wait(present) * 1e3,
                    self.objective_s * 1e3
                ),
                expected: Effect {
                    quantity: "longest wait, s".to_owned(),
                    before: wait(present),
                    after: wait(wanted),
                },
                must: false,
            };
            lock(&self.bounds).insert(device, wanted);
            if self.propose(&proposal) == Some(Status::Made) {
                node.clone().set_bound(device, wanted);
            }
        }
    }

    /// The wait of the last read that a device's queue admits, seconds.
    pub fn longest_wait_s(&self, queue: &str) -> Option<f64> {
        let QueueName::Device(id) = QueueName::parse(queue)? else { return None };
        let node = self.node()?;
        let (present, _) = node.bound(id.parse().ok()?)?;
        let shown = self.report();
        let station = shown.model.stations.iter().find(|station| station.queue == queue)?;
        Some(f64::from(present) * station.service_mean_s / f64::from(station.servers.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_the_objective_and_stays_in_its_limits() {
        let station = |service_mean_s: f64, servers: u32| Station {
            queue: "device/0".to_owned(),
            servers,
            rate: 1.0,
            rate_ahead: 1.0,
            service_mean_s,
            service_scv: 1.0,
            utilisation: 0.1,
            length: 0.1,
            length_ahead: Some(0.1),
            within_ahead: None,
        };
        for (mean, servers, expected) in
            [(0.005, 1, 10), (0.005, 8, 80), (0.1, 1, 4), (0.1, 8, 32), (1e-6, 1, 1024)]
        {
            assert_eq!(bound(&station(mean, servers), 0.05, 1024), expected, "{mean} {servers}");
        }
        assert_eq!(
            [None, Some(4), Some(6), Some(11)].map(|before| steady(7, before)),
            [7, 4, 6, 11]
        );
        assert_eq!([3, 14].map(|before| steady(7, Some(before))), [7, 7]);
    }
}
