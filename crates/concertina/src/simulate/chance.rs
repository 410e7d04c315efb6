//! Faults that are drawn: times to failure and repair of nodes, racks and devices.

use anyhow::ensure;
use engine::sim::drawn::{NodeFault, NodeFaultKind};
use ground::number::digits;
use ground::window::Nanos;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rand_distr::{Distribution, Exp1};

use super::time::{Span, nanos};

/// Mean times to failure and repair, seconds; `None`: it does not fail.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chance {
    /// Of a node.
    pub node: Option<Lives>,
    /// Of a rack, all of whose nodes fail together.
    pub rack: Option<Lives>,
    /// Of a device.
    pub device: Option<Lives>,
    /// The number of racks; 0: a rack is what is before the last `-` of its members' names.
    pub racks: usize,
}

/// How long something works and how long it is repaired.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lives {
    /// Mean time to failure, seconds.
    pub mttf_s: f64,
    /// Mean time to repair, seconds.
    pub mttr_s: f64,
}

/// A time in which something does not work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outage {
    /// The node.
    pub node: usize,
    /// When it fails.
    pub at: Nanos,
    /// When it works again.
    pub until: Nanos,
}

/// Random numbers of faults must not be those of the load: the same faults whatever the rate.
const PURPOSE: u64 = 0xfa17;

impl Lives {
    /// Times of failure and repair up to `end`, one after the other: exponential laws of both.
    fn outages(self, random: &mut SmallRng, end: Nanos) -> Vec<(Nanos, Nanos)> {
        let mut outages = Vec::new();
        let mut draw = |mean_s: f64| {
            let unit: f64 = Exp1.sample(random);
            // At least a nanosecond each: what fails at once again and again would not end.
            nanos(unit * mean_s).max(1)
        };
        let mut at: Nanos = 0;
        loop {
            at = at.saturating_add(draw(self.mttf_s));
            if at >= end {
                return outages;
            }
            let until = at.saturating_add(draw(self.mttr_s));
            outages.push((at, until));
            at = until;
        }
    }

    /// How often it fails in a time, about.
    fn failures(self, span_s: f64) -> f64 {
        span_s / (self.mttf_s + self.mttr_s)
    }

    /// The part of the time in which it works.
    pub fn availability(self) -> f64 {
        self.mttf_s / (self.mttf_s + self.mttr_s)
    }
}

/// The most drawn failures of a step: each is kept from its start.
const FAILURES_MAX: f64 = 1e6;

impl Chance {
    /// Refuses what contradicts itself, and more failures than are kept; `devices` are those of each node.
    pub(super) fn check(&self, span: Span, names: &[&str], devices: usize) -> anyhow::Result<()> {
        for lives in [self.node, self.rack, self.device].into_iter().flatten() {
            ensure!(
                lives.mttf_s > 0.0 && lives.mttr_s > 0.0,
                "times to failure and repair must be more than 0"
            );
        }
        ensure!(
            self.racks <= names.len(),
            "--racks {}: there are only {} members",
            self.racks,
            names.len()
        );
        let failures = self.failures(span, names, devices);
        ensure!(
            failures <= FAILURES_MAX,
            "about {} failures would be drawn for a step; at most {} are: times to failure that are {} times as long fit, \
             or a shorter --duration",
            digits(failures, 2),
            digits(FAILURES_MAX, 2),
            digits(failures / FAILURES_MAX, 2)
        );
        Ok(())
    }

    /// Failures that are drawn for a step, about.
    pub(super) fn failures(&self, span: Span, names: &[&str], devices: usize) -> f64 {
        let span_s = span.warmup_s + span.duration_s;
        let nodes = names.len() as f64;
        let of = |lives: Option<Lives>, count: f64| {
            count * lives.map_or(0.0, |lives| lives.failures(span_s))
        };
        // An outage of a rack is one of each of its nodes.
        of(self.node, nodes) + of(self.rack, nodes) + of(self.device, nodes * devices as f64)
    }

    /// The rack of each member.
    fn racks(&self, names: &[&str]) -> Vec<usize> {
        if self.racks > 0 {
            return (0..names.len()).map(|at| at * self.racks / names.len()).collect();
        }
        let rack_of = |name: &str| name.rsplit_once('-').map_or(name, |(rack, _)| rack).to_owned();
        let mut racks: Vec<String> = names.iter().map(|name| rack_of(name)).collect();
        let all = racks.clone();
        racks.sort_unstable();
        racks.dedup();
        all.iter().map(|rack| racks.binary_search(rack).unwrap_or(0)).collect()
    }

    /// The outages of nodes, from failures of their own and of their racks, in order of time.
    pub(super) fn outages(&self, seed: u64, span: Span, names: &[&str]) -> Vec<Outage> {
        let mut random = SmallRng::seed_from_u64(seed ^ PURPOSE);
        let end = span.end();
        let mut outages = Vec::new();
        for node in 0..names.len() {
            let of = self.node.map(|lives| lives.outages(&mut random, end));
            let own = of.into_iter().flatten();
            outages.extend(own.map(|(at, until)| Outage { node, at, until }));
        }
        let racks = self.racks(names);
        let count = racks.iter().max().map_or(0, |last| last + 1);
        for rack in 0..count {
            let of = self.rack.map(|lives| lives.outages(&mut random, end));
            for (at, until) in of.into_iter().flatten() {
                let members = (0..names.len()).filter(|node| racks[*node] == rack);
                outages.extend(members.map(|node| Outage { node, at, until }));
            }
        }
        outages.sort_by_key(|outage| (outage.at, outage.node));
        outages
    }

    /// All drawn faults, for a run of drawn hits.
    pub(super) fn node_faults(
        &self,
        seed: u64,
        span: Span,
        names: &[&str],
        devices: usize,
    ) -> Vec<NodeFault> {
        let down = self.outages(seed, span, names).into_iter().map(|Outage { node, at, until }| {
            NodeFault { at, until, node, kind: NodeFaultKind::Down }
        });
        let mut faults: Vec<NodeFault> = down.collect();
        let mut random = SmallRng::seed_from_u64(seed ^ PURPOSE ^ 1);
        let end = span.end();
        if let Some(lives) = self.device {
            for (node, device) in (0..names.len()).flat_map(|n| (0..devices).map(move |d| (n, d))) {
                let kind = NodeFaultKind::DeviceLost(device);
                let outages = lives.outages(&mut random, end).into_iter();
                faults.extend(outages.map(|(at, until)| NodeFault { at, until, node, kind }));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_come_as_often_and_last_as_long_as_said() {
        let lives = Lives { mttf_s: 900.0, mttr_s: 100.0 };
        let mut random = SmallRng::seed_from_u64(1);
        let end = nanos(1e7);
        let outages = lives.outages(&mut random, end);
        let down: u64 = outages.iter().map(|(at, until)| until.min(&end) - at).sum();
        let share = down as f64 / end as f64;
        assert!((share - (1.0 - lives.availability())).abs() < 0.01, "{share}");
        assert!((9_500..10_500).contains(&outages.len()), "{}", outages.len());
        assert!(outages.is_sorted());
    }

    #[test]
    fn failures_that_contradict_themselves_or_are_too_many_are_refused() {
        let span = Span { warmup_s: 0.0, duration_s: 1000.0 };
        let lives = |mttf_s, mttr_s| Some(Lives { mttf_s, mttr_s });
        let check =
            |chance: Chance| chance.check(span, &["a", "b"], 3).map_err(|error| error.to_string());
        let node = |mttf_s, mttr_s| Chance { node: lives(mttf_s, mttr_s), ..Chance::default() };
        check(node(0.5, 0.5)).unwrap();
        check(Chance { racks: 2, rack: lives(1.0, 1.0), ..Chance::default() }).unwrap();
        for zero in [node(0.0, 1.0), node(1.0, 0.0)] {
            assert!(check(zero).unwrap_err().contains("more than 0"));
        }
        // Two nodes fail every millisecond for a thousand seconds.
        let many = check(node(5e-4, 5e-4)).unwrap_err();
        assert!(many.contains("2,000,000 failures") && many.contains("2 times as long"), "{many}");
        let many = Chance { device: lives(1e-9, 1e-9), ..Chance::default() };
        assert!(check(many).is_err());
        let racks = Chance { racks: usize::MAX, rack: lives(1.0, 1.0), ..Chance::default() };
        assert!(check(racks).unwrap_err().contains("only 2 members"));
    }

    #[test]
    fn a_rack_is_named_by_its_members_or_counted() {
        let names = ["b-1", "a-1", "a-2", "alone"];
        assert_eq!(Chance::default().racks(&names), [2, 0, 0, 1]);
        let counted = Chance { racks: 2, ..Chance::default() };
        assert_eq!(counted.racks(&names), [0, 0, 1, 1]);
    }
}
