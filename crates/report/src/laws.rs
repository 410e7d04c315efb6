//! Chooses the operational laws that apply to a step, and checks them.
//!
//! The laws themselves, with their sources, are in [`model::laws`]. This module decides at which
//! queues they are checked: Little's law at every queue; the utilisation law where the number of
//! servers is limited; the interactive law in a closed loop; forced flow where the number of visits
//! of a request to a queue is known; the demand bound at the busiest queue. `concertina check`,
//! reports and `concertina measure` all use it.

use ground::window::{Operation, Outcome, QueueName, Window};
use model::laws::{
    Check, Law, Quantities, demand_bound, forced_flow, interactive, little, utilisation,
};

use super::steps::ObservedStep;

/// The quantities that the laws need, for each window of a queue.
fn sums(windows: &[Window]) -> Vec<Quantities> {
    windows.iter().map(Quantities::of_window).collect()
}

/// Like [`sums`], for reads only.
fn reads(windows: &[Window]) -> Vec<Quantities> {
    windows.iter().map(|w| Quantities::of_operation(w, Operation::Get)).collect()
}

/// Sums all devices as if they were one queue.
fn together(devices: &[Vec<Window>]) -> Vec<Quantities> {
    let mut all: Vec<Quantities> = Vec::new();
    for device in devices {
        for (i, sum) in sums(device).iter().enumerate() {
            match all.get_mut(i) {
                Some(together) => together.beside(sum),
                None => all.push(*sum),
            }
        }
    }
    all
}

/// A closed loop: the number of clients, and their mean think time in seconds.
pub type Loop = (u64, f64);

/// Checks the laws that need the clients' windows only: Little's law, and the interactive law in a
/// closed loop.
///
/// A queue without completions has no checks.
pub fn client_laws(
    queue: &str,
    windows: &[Quantities],
    closed: Option<Loop>,
    tolerance: f64,
) -> Vec<Check> {
    let mut checks: Vec<Check> = little(queue, windows, tolerance).into_iter().collect();
    if let Some((clients, think_s)) = closed {
        checks.extend(interactive(queue, clients, think_s, windows, tolerance));
    }
    checks
}

/// Checks every law that applies to a step. `each_device` checks the devices one by one instead of
/// together.
pub(crate) fn laws(observed: &ObservedStep, each_device: bool, tolerance: f64) -> Vec<Check> {
    let step = &observed.windows;
    let (load, gateway, node) = (sums(&step.load), sums(&step.gateway), sums(&step.node));
    let mut limited: Vec<(String, Vec<Quantities>)> = Vec::new();
    let name = |windows: &[Window]| windows.first().map_or(String::new(), |w| w.queue.clone());
    if each_device {
        limited.extend(step.devices.iter().map(|windows| (name(windows), sums(windows))));
    } else {
        limited.push(("devices".to_owned(), together(&step.devices)));
    }
    let origin = sums(&observed.origin);
    limited.push((QueueName::Origin.to_string(), origin.clone()));

    let mut checks = Vec::new();
    let closed = observed.step.clients.filter(|_| observed.step.rate.is_none());
    let mut closed = closed.map(|clients| (clients as u64, observed.think_s));
    for (queue, windows) in QueueName::REQUESTS.iter().zip([&load, &gateway, &node]) {
        if !windows.is_empty() {
            // The interactive law applies to the queue nearest to the clients.
            checks.extend(client_laws(&queue.to_string(), windows, closed.take(), tolerance));
        }
    }
    for (queue, windows) in &limited {
        checks.extend(little(queue, windows, tolerance));
        if windows.iter().any(|w| w.servers > 0.0) {
            checks.extend(utilisation(queue, windows, tolerance));
        }
    }
    checks.extend(flows(observed, tolerance));
    // The clients' throughput says nothing about one node if several nodes share it.
    let sides = [Some(&load).filter(|_| observed.alone), Some(&gateway), Some(&node), Some(&load)];
    if let Some(system) = sides.into_iter().flatten().find(|side| !side.is_empty()) {
        let devices = step.devices.iter().map(|w| (name(w), sums(w)));
        let each: Vec<(String, Vec<Quantities>)> =
            devices.chain([(QueueName::Origin.to_string(), origin)]).collect();
        let queues: Vec<(&str, &[Quantities])> =
            each.iter().map(|(queue, w)| (queue.as_str(), w.as_slice())).collect();
        checks.extend(demand_bound(system, &queues, tolerance));
    }
    checks.sort_by_key(|check| order(check.law));
    checks
}

/// The order of the laws in a table.
fn order(law: Law) -> usize {
    let all = [Law::Interactive, Law::Little, Law::Utilisation, Law::ForcedFlow, Law::DemandBound];
    all.iter().position(|&l| l == law).unwrap_or(all.len())
}

/// Checks forced flow between the queues that a read passes in sequence.
fn flows(observed: &ObservedStep, tolerance: f64) -> Vec<Check> {
    let step = &observed.windows;
    let mut checks = Vec::new();
    if observed.alone {
        // Every read of the clients passes the front of the only server, and then its node.
        let passed: Vec<(QueueName<'_>, Vec<Quantities>)> = QueueName::REQUESTS
            .into_iter()
            .zip([&step.load, &step.gateway, &step.node])
            .map(|(queue, windows)| (queue, reads(windows)))
            .filter(|(_, windows)| windows.iter().any(|w| w.completions > 0.0))
            .collect();
        for pair in passed.windows(2) {
            let ((_, before), (queue, after)) = (&pair[0], &pair[1]);
            checks.extend(forced_flow(&queue.to_string(), 1.0, before, after, tolerance));
        }
    }
    let (mut answered, mut from_devices, mut elsewhere) = (0.0, 0.0, 0.0);
    for times in step.node.iter().flat_map(|w| &w.times) {
        let count = times.response.count() as f64;
        answered += count;
        match times.outcome {
            outcome if outcome.is_device() => from_devices += count,
            Outcome::Memory => {}
            _ => elsewhere += count,
        }
    }
    let behind: u64 = observed.origin.iter().map(|w| w.completions).sum();
    let joined: u64 = step.node.iter().map(|w| w.joined).sum();
    // A joined request does not record which queue its read is in. The visit ratio is known only if
    // all reads go to the devices.
    if behind == 0 && elsewhere == 0.0 && from_devices > joined as f64 {
        let visits = (from_devices - joined as f64) / answered;
        let (node, devices) = (sums(&step.node), together(&step.devices));
        checks.extend(forced_flow("devices", visits, &node, &devices, tolerance));
    }
    checks
}

/// The usual cause of a deviation, and what to do about it; `None` where the law holds.
pub fn advice(check: &Check) -> Option<&'static str> {
    use model::laws::Verdict;
    let more = check.deviation_percent > 0.0;
    match check.verdict {
        Verdict::Holds => return None,
        Verdict::Unsure => {
            return Some(
                "the deviation may be chance, because its interval reaches into the tolerance; measure longer",
            );
        }
        Verdict::Broken => {}
    }
    Some(match (check.law, more) {
        (Law::Little, true) => {
            "more requests were in the queue than left it: it grew (past saturation: not steady), or requests were \
             given up without a reply; lower the load, lengthen the warm-up"
        }
        (Law::Little, false) => {
            "more response time was recorded than the queue's length explains: requests of a warm-up or from \
             before the interval are counted in it, or it is short compared with the response times; lengthen both"
        }
        (Law::Utilisation, true) => {
            "servers were busy with work that was not recorded as served: services that failed or had not \
             ended, or a clock that jumped"
        }
        (Law::Utilisation, false) => {
            "service times contain more than the servers' work (waiting, transfer), or more requests are \
             served concurrently than the queue states"
        }
        (Law::Interactive, true) => {
            "replies took longer than the clients had time for: responses of a warm-up are counted, or the \
             clients thought for less than configured, or clocks differ"
        }
        (Law::Interactive, false) => {
            "clients spent time that is neither response nor think time: they paused after errors, a busy \
             generator sent their requests late, or there were fewer of them than configured"
        }
        (Law::ForcedFlow, true) => {
            "more requests reached this queue than the queue before it passed on: other clients used the \
             service, requests were retried or hedged, or the runs' clocks differ"
        }
        (Law::ForcedFlow, false) => {
            "fewer requests reached this queue than were sent to it: requests were dropped, refused or lost on the \
             way, answered without it, or the runs' clocks differ"
        }
        (Law::DemandBound, _) => {
            "more requests completed than the busiest queue can serve: throughput and service times are not of \
             the same interval, or replies came from elsewhere"
        }
    })
}
