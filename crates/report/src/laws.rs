//! The operational laws of a step: which of them apply to what was observed, and what they come to.
//!
//! The laws themselves, with their sources, are in [`model::laws`]. Here is only which queues they are
//! checked at: Little's law at every queue; the utilisation law where servers are limited; the interactive
//! law in a closed loop; forced flow where it is known how often a request visits a queue; the demand bound
//! at the busiest queue. `concertina check`, reports and `concertina measure` all ask here.

use model::laws::{
    Check, Law, Quantities, demand_bound, forced_flow, interactive, little, utilisation,
};
use model::window::{Operation, Outcome, Window};

use super::steps::ObservedStep;

/// What of each queue is needed, in the order of the windows.
fn sums(windows: &[Window]) -> Vec<Quantities> {
    windows.iter().map(Quantities::of).collect()
}

/// The same of reads alone.
fn reads(windows: &[Window]) -> Vec<Quantities> {
    windows.iter().map(|w| Quantities::of_operation(w, Operation::Get)).collect()
}

/// All devices as one queue.
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

/// A closed loop: how many clients, and their mean think time in seconds.
pub type Loop = (u64, f64);

/// The laws of what clients saw alone: Little's, and the interactive law in a closed loop.
///
/// A queue in which nothing completed says nothing, so it has no check.
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

/// Every law that applies to a step. `each_device`: the devices one by one, not together.
pub fn laws(observed: &ObservedStep, each_device: bool, tolerance: f64) -> Vec<Check> {
    let step = &observed.windows;
    let (load, gateway, node) = (sums(&step.load), sums(&step.gateway), sums(&step.node));
    let mut limited: Vec<(String, Vec<Quantities>)> = Vec::new();
    let name = |windows: &[Window]| windows.first().map_or(String::new(), |w| w.queue.clone());
    if each_device {
        limited.extend(step.devices.iter().map(|windows| (name(windows), sums(windows))));
    } else {
        limited.push(("devices".to_owned(), together(&step.devices)));
    }
    limited.push(("origin".to_owned(), sums(&observed.origin)));

    let mut checks = Vec::new();
    let closed = observed.step.clients.filter(|_| observed.step.rate.is_none());
    let mut closed = closed.map(|clients| (clients as u64, observed.think_s));
    for (queue, windows) in [("load", &load), ("gateway", &gateway), ("node", &node)] {
        if !windows.is_empty() {
            // Those nearest to the clients are the loop's.
            checks.extend(client_laws(queue, windows, closed.take(), tolerance));
        }
    }
    for (queue, windows) in &limited {
        checks.extend(little(queue, windows, tolerance));
        if windows.iter().any(|w| w.servers > 0.0) {
            checks.extend(utilisation(queue, windows, tolerance));
        }
    }
    checks.extend(flows(observed, tolerance));
    // What clients of several nodes complete says nothing of the queues of one.
    let sides = [Some(&load).filter(|_| observed.alone), Some(&gateway), Some(&node), Some(&load)];
    if let Some(system) = sides.into_iter().flatten().find(|side| !side.is_empty()) {
        let each: Vec<(String, Vec<Quantities>)> =
            step.devices.iter().map(|w| (name(w), sums(w))).collect();
        let origin = limited.iter().filter(|(queue, _)| queue == "origin");
        let queues: Vec<(&str, &[Quantities])> =
            each.iter().chain(origin).map(|(queue, w)| (queue.as_str(), w.as_slice())).collect();
        checks.extend(demand_bound(system, &queues, tolerance));
    }
    checks.sort_by_key(|check| order(check.law));
    checks
}

/// The order of a table: each law by itself.
fn order(law: Law) -> usize {
    let all = [Law::Interactive, Law::Little, Law::Utilisation, Law::ForcedFlow, Law::DemandBound];
    all.iter().position(|&l| l == law).unwrap_or(all.len())
}

/// Forced flow between the queues that a read passes one after the other.
fn flows(observed: &ObservedStep, tolerance: f64) -> Vec<Check> {
    let step = &observed.windows;
    let mut checks = Vec::new();
    if observed.alone {
        // Every read of the clients passes the one server's front, and from there its node.
        let passed: Vec<(&str, Vec<Quantities>)> =
            [("load", &step.load), ("gateway", &step.gateway), ("node", &step.node)]
                .into_iter()
                .map(|(queue, windows)| (queue, reads(windows)))
                .filter(|(_, windows)| windows.iter().any(|w| w.completions > 0.0))
                .collect();
        for pair in passed.windows(2) {
            let ((_, before), (queue, after)) = (&pair[0], &pair[1]);
            checks.extend(forced_flow(queue, 1.0, before, after, tolerance));
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
    // A join does not say which queue its read is in: known only where all are in the devices'.
    if behind == 0 && elsewhere == 0.0 && from_devices > joined as f64 {
        let visits = (from_devices - joined as f64) / answered;
        let (node, devices) = (sums(&step.node), together(&step.devices));
        checks.extend(forced_flow("devices", visits, &node, &devices, tolerance));
    }
    checks
}

/// What a deviation usually means, and what to do; `None` where the law holds.
pub fn advice(check: &Check) -> Option<&'static str> {
    use model::laws::Verdict;
    let more = check.deviation_percent > 0.0;
    match check.verdict {
        Verdict::Holds => return None,
        Verdict::Unsure => {
            return Some(
                "its interval reaches into the tolerance: chance may do that; measure longer",
            );
        }
        Verdict::Broken => {}
    }
    Some(match (check.law, more) {
        (Law::Little, true) => {
            "more were in the queue than left it: it grew (past saturation: not steady), or requests were \
             given up without a reply; lower the load, lengthen the warm-up"
        }
        (Law::Little, false) => {
            "more response time was recorded than the queue's length explains: requests of a warm-up or of \
             before the interval are counted in it, or it is short against the response times; lengthen both"
        }
        (Law::Utilisation, true) => {
            "servers were busy with what was never recorded as served: services that failed or had not \
             ended, or a clock that jumped"
        }
        (Law::Utilisation, false) => {
            "service times hold more than the servers' work (waiting, transfer), or more are served at once \
             than the queue says"
        }
        (Law::Interactive, true) => {
            "replies took longer than the clients had time for: responses of a warm-up are counted, or they \
             thought for less than was asked, or their clocks differ"
        }
        (Law::Interactive, false) => {
            "clients spent time that is neither response nor think time: they paused after errors, were \
             sent off late by a busy generator, or were fewer than was asked"
        }
        (Law::ForcedFlow, true) => {
            "more came to this queue than the queue before it let through: other clients used the service, \
             requests were tried again or hedged, or the runs' clocks differ"
        }
        (Law::ForcedFlow, false) => {
            "fewer came to this queue than were sent to it: requests were dropped, refused or lost on the \
             way, answered without it, or the runs' clocks differ"
        }
        (Law::DemandBound, _) => {
            "more was completed than the busiest queue can serve: throughput and service times are not of \
             the same interval, or replies came from elsewhere"
        }
    })
}
